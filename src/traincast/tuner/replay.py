"""Replay of published runs: how many trials the tuner would have needed, and how good its stop would be.

Groups of runs that differ only in their plan stand for a machine: a trial returns the measured time. What is
predicted was fitted without the group's runs of this model on this accelerator, or without its whole source
(``catalog/measured/replay.csv``, written by calibration/replay_table.py), so that nothing is in sample but
the few constants of the error model.
"""

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Final

import numpy as np

from traincast.accuracy import Run, batches, load_bundled_runs, source_of
from traincast.catalog import resolve
from traincast.core import Doc, Floats, Result, System
from traincast.planner import Question, plan_coordinates
from traincast.step import errors
from traincast.tuner.belief import LEARNT, STOP_PROBABILITY, TRIAL_GAIN, Belief, Prior
from traincast.tuner.candidates import of_search

MIN_PLANS: Final = 5  # of a group
LONG: Final = 15  # plans, from which on a group is long
MANY: Final = 4  # trials that 90 % of groups should stop within
PRIORS: Final = {  # column of the table → its name in reports
    "left_out": "without the model on this accelerator",
    "without_source": "without the whole source",
}
OTHER_STACK: Final = "megatron-lm-2021"  # in place of what ran, which is newer
SPACE: Final = ("llama-3-70b", "dgx-h100", 256, 512)  # whose plans make a long list: GPUs, sequences
SPACE_PLANS: Final = 256
SPACE_DRAWS: Final = 30
TRUTHS: Final = ("its own covariance", "errors of knobs", "heavy tails")  # of lists that are simulated
SPACE_TRIALS: Final = 60  # at most
NEAR: Final = (0.01, 0.03)  # of the best, in such a list


@dataclass(frozen=True)
class Wrong:
    """Prior made wrong on purpose: all measured times scaled, figures of the machine, or the software."""

    title: str
    factor: float = 1.0
    figures: tuple[str, str] | None = None  # beginning and end of the paths of those scaled
    by: float = 1.0
    stack: str = ""

    def system(self, system: System) -> System:
        """Return the machine with the figures scaled."""
        if self.figures is None:
            return system
        first, last = self.figures
        chosen = {
            path: value * self.by
            for path, value in system.figures().items()
            if value is not None and path.startswith(first) and path.endswith(last)
        }
        return replace(system.with_figures(chosen), software=())


HBM: Final = ("accelerator.", "hbm_bandwidth")
NETWORK: Final = ("network.", ".bandwidth")
WRONGS: Final = (
    Wrong("as predicted"),
    Wrong("all times x 1.35", factor=1.35),
    Wrong("HBM bandwidth x 1.3", figures=HBM, by=1.3),
    Wrong("HBM bandwidth x 0.7", figures=HBM, by=0.7),
    Wrong("network bandwidths x 1.3", figures=NETWORK, by=1.3),
    Wrong("network bandwidths x 0.7", figures=NETWORK, by=0.7),
    Wrong("another software stack", stack=OTHER_STACK),
)


@dataclass(frozen=True, eq=False)
class RunGroup:
    """Runs that differ only in their plan: repeats of a plan are one run, of the median time."""

    name: str  # id of the first run
    source: str
    seconds: Floats  # measured, shape (plans,) [s]
    prior: Prior


class Replayed(Result):
    """What the tuner would have done in a group."""

    group: Annotated[str, Doc("id of the group's first run")]
    source: Annotated[str, Doc("source of the runs")]
    plans: Annotated[int, Doc("plans that were measured")]
    trials: Annotated[int, Doc("trials at which it stops")]
    regret: Annotated[float, Doc("time of the plan it ends with over the best, less 1")]
    sure: Annotated[bool, Doc("whether it stopped because it was sure, not because all were tried")]
    ranked_regret: Annotated[float, Doc("the same of the first plans of the ranking, of as many trials")]
    to_best: Annotated[int, Doc("trials until a plan within 1% of the best was tried")]
    ranked_to_best: Annotated[int, Doc("the same in the order of the ranking")]
    first_regret: Annotated[float, Doc("the same of the plan predicted to be the fastest, without a trial")]


class ReplaySummary(Result):
    """Means over groups."""

    prior: Annotated[str, Doc("what predictions were fitted without")]
    wrong: Annotated[str, Doc("what was made wrong on purpose")]
    kind: Annotated[str, Doc("which groups: all, those of a source, or long ones")]
    groups: Annotated[int, Doc("groups")]
    trials: Annotated[float, Doc("mean of the trials at which it stops")]
    within_four: Annotated[float, Doc("share of groups in which it stops within 4 trials")]
    right: Annotated[float, Doc("share of groups in which it ends within 1% of the best")]
    regret: Annotated[float, Doc("mean of the regret at the stop")]
    ranked_regret: Annotated[float, Doc("the same of the ranking without learning, after as many trials")]
    to_best: Annotated[float, Doc("mean of the trials to within 1% of the best")]
    ranked_to_best: Annotated[float, Doc("the same of the ranking without learning")]
    reliability: Annotated[
        float | None, Doc("share of the stops that were sure that are within 1%; null without any")
    ]


class LongList(Result):
    """Trials in a simulated long list, in the median over draws; the most trials count where it took more."""

    truth: Annotated[str, Doc("what true times are drawn from")]
    within: Annotated[float, Doc("how near to the best")]
    trials: Annotated[float, Doc("trials with learning")]
    ranked: Annotated[float, Doc("trials in the order of the ranking")]
    most: Annotated[int, Doc("trials at most")]


class Goal(Result):
    """A goal of the tuner, and what it reaches."""

    goal: Annotated[str, Doc("goal in words")]
    reached: Annotated[str, Doc("what is reached")]
    met: Annotated[bool, Doc("whether that is enough")]


class ReplayReport(Result):
    """Replay of all groups, and simulated long lists."""

    summaries: Annotated[list[ReplaySummary], Doc("means over groups")]
    long_lists: Annotated[list[LongList], Doc("simulated lists of 256 plans")]
    goals: Annotated[list[Goal], Doc("goals, with all that is missed")]
    groups: Annotated[list[Replayed], Doc("every group, with the prior as predicted")]


@cache
def table() -> dict[str, dict[str, float]]:
    """Return the logarithm of predicted over measured time by run and column of `PRIORS`."""
    text = (files("traincast") / "catalog/measured/replay.csv").read_text(encoding="utf-8")
    return {
        row["id"]: {column: float(row[column]) for column in PRIORS}
        for row in csv.DictReader(text.splitlines())
    }


def setting_of(run: Run) -> object:
    """Return what runs of a group have in common."""
    return replace(run.model, name=""), run.system.name, run.plan.gpus, run.gbs, run.plan.precision, run.stack


def runs_by_group(runs: Sequence[Run]) -> list[list[Run]]:
    """Return runs that differ only in their plan, of groups with at least `MIN_PLANS`."""
    groups: dict[object, list[Run]] = defaultdict(list)
    for run in runs:
        groups[setting_of(run)].append(run)
    return [members for members in groups.values() if len({run.plan for run in members}) >= MIN_PLANS]


class Replay:
    """Groups of the bundled runs, and their priors."""

    def __init__(self) -> None:
        known = table()
        runs = [run for _, run in load_bundled_runs() if isinstance(run, Run) and run.id in known]
        self.members = runs_by_group(runs)
        self.runs = [run for members in self.members for run in members]
        self.batches = batches(self.runs)[0]

    @cache  # noqa: B019  one replay is made
    def predict(self, wrong: Wrong) -> dict[str, Floats]:
        """Return time [s], shares and factor of all runs with the catalogue's constants, shape (runs,)."""
        columns = {name: np.full(len(self.runs), np.nan) for name in ("seconds", "factor", *LEARNT)}
        for batch in self.batches:
            est = batch.estimate(wrong.system(batch.system), resolve(wrong.stack or batch.stack))
            figures = {"seconds": est.step_seconds, "factor": est.case.factor(errors())}
            figures |= {name: est.case.shares[name] for name in LEARNT}
            for name, value in figures.items():
                columns[name][batch.rows] = value
        return columns

    def groups(self, column: str, wrong: Wrong = WRONGS[0]) -> list[RunGroup]:
        """Return the groups with a prior of `PRIORS`, made wrong."""
        usual = self.predict(WRONGS[0])
        other = self.predict(wrong)
        change = other["seconds"] / usual["seconds"]
        groups = list[RunGroup]()
        start = 0
        for members in self.members:
            rows = np.arange(start, start + len(members))
            start += len(members)
            plans = list(dict.fromkeys(run.plan for run in members))
            of_plan = [[row for row in rows.tolist() if self.runs[row].plan == plan] for plan in plans]

            def medians(values: Floats, of_plan: list[list[int]] = of_plan) -> Floats:
                return np.array([np.median(values[some]) for some in of_plan])

            measured = np.full(len(self.runs), np.nan)
            measured[rows] = [run.step_seconds for run in members]
            residual = np.full(len(self.runs), np.nan)
            residual[rows] = [table()[run.id][column] for run in members]
            seconds = medians(measured * np.exp(residual) * change)
            prior = Prior(
                seconds=seconds,
                memory=np.ones(len(plans)),  # all of them ran
                shares={name: medians(other[name]) for name in LEARNT},
                coordinates=plan_coordinates(plans),
                factor=float(other["factor"][rows[0]]),
            )
            source = source_of(members[0].id, members[0].model.experts is not None)
            groups.append(RunGroup(members[0].id, source, wrong.factor * medians(measured), prior))
        return groups


def try_known_plans(
    prior: Prior, seconds: Floats, *, ranked: bool = False
) -> Iterator[tuple[int, float, Belief]]:
    """Try plans whose times are known; yield each, its stated probability of a gain, and the belief after it.

    `seconds`: times of all plans [s]; `ranked`: in the order of the ranking, in place of the tuner's.
    """
    belief = Belief(prior)
    ranking = iter(np.argsort(prior.seconds, kind="stable").tolist())
    while (row := next(ranking, None) if ranked else belief.choose()) is not None:
        gain = np.nan if belief.best is None else float(np.exp(belief.log_gain_probability()[row]))
        belief.time(row, float(seconds[row]))
        yield row, gain, belief


def replay(group: RunGroup) -> Replayed:
    """Let the tuner try plans of a group until it stops, and on until it has tried the best."""
    seconds = group.seconds
    order = list[int]()
    stop = 0
    regret = 0.0
    sure = False
    good = seconds <= (1 + TRIAL_GAIN) * seconds.min()
    for row, _, belief in try_known_plans(group.prior, seconds):
        if stop and row in order:
            break
        order.append(row)
        if not stop and (belief.outlook.within >= STOP_PROBABILITY or len(belief.times) == len(seconds)):
            best = belief.best
            assert best is not None  # a plan was timed
            stop = len(order)
            sure = belief.outlook.within >= STOP_PROBABILITY
            regret = float(seconds[best] / seconds.min() - 1)
        if stop and good[order].any():
            break
    ranking = np.argsort(group.prior.seconds, kind="stable")
    return Replayed(
        group=group.name,
        source=group.source,
        plans=len(seconds),
        trials=stop,
        regret=regret,
        sure=sure,
        ranked_regret=float(seconds[ranking[:stop]].min() / seconds.min() - 1),
        to_best=_first(good, order, len(seconds)),
        ranked_to_best=_first(good, ranking, len(seconds)),
        first_regret=float(seconds[ranking[0]] / seconds.min() - 1),
    )


def _first(good: Any, order: Iterable[int], otherwise: int) -> int:
    """Return the place in an order, repeats aside, of the first that is good, from 1."""
    distinct = enumerate(dict.fromkeys(order), 1)
    return next((place for place, row in distinct if good[row]), otherwise)


def summary(prior: str, wrong: str, kind: str, groups: Sequence[Replayed]) -> ReplaySummary:
    """Return means over groups."""
    same = ("trials", "regret", "ranked_regret", "to_best", "ranked_to_best")
    means = {name: float(np.mean([getattr(group, name) for group in groups])) for name in same}
    sure = [group.regret <= TRIAL_GAIN for group in groups if group.sure]
    return ReplaySummary(
        prior=prior,
        wrong=wrong,
        kind=kind,
        groups=len(groups),
        within_four=float(np.mean([group.trials <= MANY for group in groups])),
        right=float(np.mean([group.regret <= TRIAL_GAIN for group in groups])),
        reliability=float(np.mean(sure)) if sure else None,
        **means,
    )


def replay_all(
    progress: Callable[[int, int], object] = lambda done, of: None, details: bool = True
) -> ReplayReport:
    """Replay every group; with `details` also with every wrong prior, and simulate long lists.

    `progress` is called with the groups and lists that are done, and how many there are.
    """
    replays = Replay()
    summaries = list[ReplaySummary]()
    first = list[Replayed]()
    column, *others = PRIORS
    cases = [(column, WRONGS[0])]
    if details:
        cases += [(other, WRONGS[0]) for other in others] + [(column, wrong) for wrong in WRONGS[1:]]
    groups = len(cases) * len(replays.members)
    total = groups + (len(TRUTHS) * SPACE_DRAWS if details else 0)
    for number, (prior, wrong) in enumerate(cases):
        done = list[Replayed]()
        for measured in replays.groups(prior, wrong):
            done.append(replay(measured))
            progress(number * len(replays.members) + len(done), total)
        first = first or done
        kinds: dict[str, list[Replayed]] = {"all": done}
        if wrong is WRONGS[0]:
            for group in done:
                kinds.setdefault(group.source, []).append(group)
            kinds[f"{LONG} plans and more"] = [group for group in done if group.plans >= LONG]
        summaries += [summary(PRIORS[prior], wrong.title, kind, some) for kind, some in kinds.items()]
    lists = long_lists(lambda lists: progress(groups + lists, total)) if details else []
    return ReplayReport(summaries, lists, goals(summaries, lists), first)


def long_lists(progress: Callable[[int], object] = lambda done: None) -> list[LongList]:
    """Simulate lists of `SPACE_PLANS` plans whose true times are drawn from the covariance, and from another.

    The others have own errors of the same deviation: the sum of an error for each value of each knob and of a
    fifth of independent ones, as errors of published runs are mostly those of their degrees; or independent
    errors with heavy tails (Student's t with 3 degrees of freedom), of which nothing can be learnt.
    `progress` is called with the number of lists that are done.
    """
    prior = _space()
    everything = np.arange(len(prior.seconds))
    covariance = prior.covariance(everything, everything) + 1e-10 * np.eye(len(everything))
    root = np.linalg.cholesky(covariance)
    rng = np.random.default_rng(0)
    varied = [column for column in prior.coordinates.T if np.ptp(column)]
    values = [np.unique(column, return_inverse=True)[1] for column in varied]
    own = prior.known.own * prior.scale
    plans = len(everything)

    def of_knobs() -> Floats:
        effects = sum(rng.standard_normal(place.max() + 1)[place] for place in values)
        return np.asarray(
            own * (effects * (0.8 / len(values)) ** 0.5 + 0.2**0.5 * rng.standard_normal(plans))
        )

    results = []
    draws: tuple[Callable[[], Floats], ...] = (
        lambda: root @ rng.standard_normal(plans),
        of_knobs,
        lambda: own * rng.standard_t(3, plans) / 3**0.5,
    )
    done = 0
    for truth, draw in zip(TRUTHS, draws, strict=True):
        of_draws = list[Floats]()
        for _ in range(SPACE_DRAWS):
            of_draws.append(_trials_to(prior, prior.seconds * np.exp(draw())))
            done += 1
            progress(done)
        trials = np.array(of_draws)
        for column, within in enumerate(NEAR):
            middle = np.median(trials[:, :, column], axis=0)
            results.append(LongList(truth, within, float(middle[0]), float(middle[1]), SPACE_TRIALS))
    return results


def _space() -> Prior:
    """Return the plans of `SPACE` that are predicted to be the fastest."""
    from traincast.catalog import load_model, load_system

    model, system, gpus, gbs = SPACE
    question = Question(
        model=load_model(model), system=load_system(system), gpus=(gpus,), gbs=gbs, framework="megatron"
    )
    every = of_search(question).prior
    return replace(
        every,
        seconds=every.seconds[:SPACE_PLANS],
        memory=np.ones(SPACE_PLANS),
        shares={name: share[:SPACE_PLANS] for name, share in every.shares.items()},
        coordinates=every.coordinates[:SPACE_PLANS],
        capacity=np.inf,
        software=None,  # errors are drawn as of stated software
    )


def _trials_to(prior: Prior, truth: Floats) -> Floats:
    """Return trials to within each of `NEAR` of the best, with learning and by ranking, shape (2, near)."""
    order = list[int]()
    good = [truth <= (1 + within) * truth.min() for within in NEAR]
    for row, _, _ in try_known_plans(prior, truth):
        order.append(row)
        if good[0][row] or len(order) == SPACE_TRIALS:
            break
    orders = order, np.argsort(prior.seconds, kind="stable")[:SPACE_TRIALS]
    return np.array([[_first(some, of, SPACE_TRIALS) for some in good] for of in orders], np.float64)


def goals(summaries: Sequence[ReplaySummary], lists: Sequence[LongList]) -> list[Goal]:
    """Return the goals of the tuner with what it reaches."""
    first, *others = [row for row in summaries if row.kind == "all" and row.prior == PRIORS["left_out"]]
    reliability = first.reliability or 0.0
    result = [
        Goal("stops after at most 3 trials, mean", f"{first.trials:.2f}", first.trials <= 3),
        Goal("stops within 4 trials in 90%", f"{first.within_four:.1%}", first.within_four >= 0.9),
        Goal("ends within 1% of the best in 95%", f"{first.right:.1%}", first.right >= 0.95),
        Goal("regret at most 0.2%, mean", f"{first.regret:.2%}", first.regret <= 0.002),
        Goal("is right in 90% when it states 95%", f"{reliability:.1%}", reliability >= 0.9),
    ]
    for other in others:
        more = other.trials / first.trials - 1
        regret = other.regret
        result.append(Goal(f"{other.wrong}: at most 25% more trials", f"{more:+.1%}", more <= 0.25))
        same = regret <= max(first.regret, 0.002)
        result.append(Goal(f"{other.wrong}: the same regret, or 0.2%", f"{regret:.2%}", same))
    for row in lists:
        ratio = row.trials / row.ranked
        name = f"long list, {row.truth}, to {row.within:.0%}: at most 0.6 of the ranking's trials"
        result.append(Goal(name, f"{ratio:.2f}", ratio <= 0.6))
    return result
