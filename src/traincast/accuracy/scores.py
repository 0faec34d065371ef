"""Errors of predicted runs by source and in total, how well predictions rank plans, and error budgets."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import numpy as np

from traincast.core import Doc, Floats, Ints, Result
from traincast.step import MODEL_RESOLUTION

MAX_UNRANKED_PLANS: Final = 2  # groups of more plans are ranked
BEST_OF: Final = 3  # the best of this many top-ranked plans, for `best_of_three`
KINDS: Final = {False: "dense", True: "moe"}
INDEPENDENT: Final = {"vtrain-s": 206}  # measurements that a source's rows consist of (docs/scoreboard.md)
BUDGET_NOISE: Final = 0.05  # relative error of a row that no part of the step explains
BELIEVED: Final = 0.2  # prior of the relative deviation of a part
FAMILIES: Final = {  # framework or origin → its sources
    "Megatron on A100 and V100": ("bloom", "korth", "mlm20", "mlm21", "vtrain-m", "vtrain-s", "zb"),
    "NeMo, Megatron-Core": ("dgxc", "mbridge", "mcore", "mega", "mlperf", "nemo", "nvmoe", "simumax"),
    "FSDP, DeepSpeed": ("dsazure", "ibm", "ibm-old", "internevo", "misc", "mpt", "nanotron", "titan"),
    "JAX": ("google", "jaxtb"),
    "papers": ("papers",),
}


class Prediction(Result):
    """One row of a table of runs, predicted or skipped; `parts` are the seconds by component."""

    id: Annotated[str, Doc("name of the row")]
    measured_step_seconds: Annotated[float | None, Doc("measured time of a step", "s")] = None
    predicted_step_seconds: Annotated[float | None, Doc("predicted time of a step", "s")] = None
    low: Annotated[float | None, Doc("lower end of the 90 % interval", "s")] = None
    high: Annotated[float | None, Doc("upper end of the 90 % interval", "s")] = None
    measured_memory_bytes: Annotated[float | None, Doc("measured memory of the fullest rank", "byte")] = None
    predicted_memory_bytes: Annotated[
        float | None, Doc("predicted memory, by the row's kind of measurement", "byte")
    ] = None
    outcome: Annotated[str | None, Doc("whether it ran: ran or out-of-memory")] = None
    fits_probability: Annotated[float | None, Doc("probability that it fits")] = None
    capacity_share: Annotated[
        float | None, Doc("predicted memory of the fullest rank over that of the accelerator")
    ] = None
    skipped: Annotated[str | None, Doc("why the row is not predicted")] = None
    parts: Mapping[str, float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def family(self) -> str:
        """Family of its source, for figures."""
        return family_of(source_of(self.id, False))

    @property
    def memory_error(self) -> float:
        """Predicted over measured memory, less 1."""
        if not self.measured_memory_bytes or self.predicted_memory_bytes is None:
            return math.nan
        return self.predicted_memory_bytes / self.measured_memory_bytes - 1

    @property
    def error(self) -> float:
        """Predicted over measured step time, less 1."""
        if self.measured_step_seconds is None or self.predicted_step_seconds is None:
            return math.nan
        return self.predicted_step_seconds / self.measured_step_seconds - 1


@dataclass(frozen=True)
class Subject:
    """Properties of a row that scores are grouped by."""

    moe: bool
    stack: str
    setting: Hashable  # everything but the plan: equal for rows to be ranked against each other
    plan: Hashable
    mbs: int = 1
    layout: Hashable = None  # what of the plan is not its micro-batch
    unsaid: bool = False  # whether several software may have run it
    framework: str = ""
    accelerator: str = ""
    unjudged: str = ""  # why it has no verdict of fit
    assumed_out: bool = False  # whether it is taken to have run out of memory, having no measurement


class ErrorSummary(Result):
    """Errors of the predictions of one source, models with experts apart; "dense" or "moe" for totals.

    Relative errors are of the step time; None where none was measured. Groups hold rows that differ only in
    their plan.
    """

    source: str
    n: Annotated[int, Doc("runs predicted that have a measured step time")]
    skipped: Annotated[int, Doc("runs skipped")]
    weight: Annotated[float, Doc("independent measurements among the runs")]
    mape: Annotated[float | None, Doc("mean absolute relative error")]
    median: Annotated[float | None, Doc("median absolute relative error")]
    bias: Annotated[float | None, Doc("mean relative error")]
    worst: Annotated[float | None, Doc("largest absolute relative error")]
    groups: Annotated[int, Doc("groups of three or more plans of one model on one machine")]
    spearman: Annotated[float | None, Doc("mean rank correlation in groups")]
    regret: Annotated[float | None, Doc("mean slowdown of the plan ranked first, relative to the best")]
    best_of_three: Annotated[float | None, Doc("mean slowdown of the best of the three ranked first")]
    worst_regret: Annotated[float | None, Doc("largest slowdown of the plan ranked first")]
    worst_of_three: Annotated[float | None, Doc("largest slowdown of the best of the three ranked first")]
    memory: Annotated[float | None, Doc("mean absolute relative error of memory")]

    @property
    def composed_of(self) -> int | None:
        """Measurements that its rows are composed of; None where each row is one."""
        return INDEPENDENT.get(self.source)


@dataclass(frozen=True)
class ErrorBudget:
    """Error budget of a source: mean error, its causes by part, and the mean error unexplained."""

    source: str
    n: int
    causes: Mapping[str, float]  # contribution to the mean error: above 0 where it is predicted too long
    bias: float
    unexplained: float


def source_of(run_id: str, moe: bool) -> str:
    """Return the source of a row: the beginning of its name, and whether the model has experts."""
    return run_id.rsplit("-", 1)[0] + ("/moe" if moe else "")


def family_of(source: str) -> str:
    """Return the family of a source, for figures; a source that is not bundled is its own family."""
    bare = source.removesuffix("/moe")
    return next((family for family, members in FAMILIES.items() if bare in members), bare)


def summaries(predictions: Sequence[Prediction], of: Mapping[str, Subject]) -> tuple[ErrorSummary, ...]:
    """Summarise errors by source; `of` are the properties of the rows that can be read, by id."""
    by_source: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in predictions:
        by_source[source_of(prediction.id, prediction.id in of and of[prediction.id].moe)].append(prediction)
    return _summaries(dict(sorted(by_source.items())), of)


def totals(predictions: Sequence[Prediction], of: Mapping[str, Subject]) -> tuple[ErrorSummary, ...]:
    """Summarise errors of all dense models and of all with experts, sources weighted by `INDEPENDENT`."""
    readable = [prediction for prediction in predictions if prediction.id in of]
    kinds = {name: [row for row in readable if of[row.id].moe == moe] for moe, name in KINDS.items()}
    return _summaries(kinds, of)


def _summaries(
    groups: Mapping[str, Sequence[Prediction]], of: Mapping[str, Subject]
) -> tuple[ErrorSummary, ...]:
    return tuple(
        summary(name, rows, of) for name, rows in groups.items() if any(row.skipped is None for row in rows)
    )


def summary(source: str, rows: Sequence[Prediction], of: Mapping[str, Subject]) -> ErrorSummary:
    """Summarise errors of rows."""
    predicted = [row for row in rows if row.skipped is None]
    timed = [row for row in predicted if row.measured_step_seconds is not None]
    errors = np.array([row.error for row in timed])
    weights = independent_weights([row.id for row in timed])
    ranks = rankings(timed, of)
    rank_correlations, regrets, of_three = zip(*ranks, strict=True) if ranks else ((), (), ())
    n = len(timed)
    return ErrorSummary(
        source=source,
        n=n,
        skipped=len(rows) - len(predicted),
        weight=float(weights.sum()),
        mape=float(np.average(np.abs(errors), weights=weights)) if n else None,
        median=_median(np.abs(errors), weights) if n else None,
        bias=float(np.average(errors, weights=weights)) if n else None,
        worst=float(np.abs(errors).max()) if n else None,
        groups=len(ranks),
        spearman=_statistic(np.mean, rank_correlations),
        regret=_statistic(np.mean, regrets),
        best_of_three=_statistic(np.mean, of_three),
        worst_regret=_statistic(np.max, regrets),
        worst_of_three=_statistic(np.max, of_three),
        memory=_statistic(np.mean, [abs(row.memory_error) for row in predicted if row.measured_memory_bytes]),
    )


def independent_weights(ids: Sequence[str]) -> Floats:
    """Return the weight of each row: less than 1 where a source has fewer measurements than rows."""
    sources = [name.rsplit("-", 1)[0] for name in ids]
    n = Counter(sources)
    return np.array([min(1.0, INDEPENDENT.get(name, n[name]) / n[name]) for name in sources])


def _median(values: Floats, weights: Floats) -> float:
    """Return the median; of weighted values the one that half of the weight is below."""
    if np.all(weights == 1):
        return float(np.median(values))
    return float(np.quantile(values, 0.5, weights=weights, method="inverted_cdf"))


def _statistic(of: Callable[[Sequence[float]], Any], values: Sequence[float]) -> float | None:
    return float(of(values)) if values else None


def rankings(predictions: Sequence[Prediction], of: Mapping[str, Subject]) -> list[tuple[float, ...]]:
    """Score the ranking of every group of runs that differ only in their plan.

    The scores are rank correlation, regret of the plan ranked first, and of the best of the first three; a
    search ranks as `recommended_order` does.
    """
    groups: dict[Hashable, list[Prediction]] = defaultdict(list)
    for prediction in predictions:
        groups[of[prediction.id].setting].append(prediction)
    scores = []
    for rows in groups.values():
        if len({of[prediction.id].plan for prediction in rows}) > MAX_UNRANKED_PLANS:
            predicted: Floats = np.array([row.predicted_step_seconds for row in rows])
            measured: Floats = np.array([row.measured_step_seconds for row in rows])
            subjects = [of[row.id] for row in rows]
            mbs = np.array([run.mbs for run in subjects])
            layouts = [run.layout for run in subjects]
            order = measured[recommended_order(predicted, mbs, layouts)]
            regrets = [float(order[:first].min() / measured.min() - 1) for first in (1, BEST_OF)]
            scores.append((spearman(predicted, measured), *regrets))
    return scores


def recommended_order(predicted: Floats, mbs: Floats, layouts: Sequence[Hashable]) -> Ints:
    """Return plans as a search ranks them: those within `MODEL_RESOLUTION` of the fastest by micro-batch.

    Of plans of one layout, which differ in the micro-batch alone, the fastest does so.
    """
    numbers = {layout: i for i, layout in enumerate(dict.fromkeys(layouts))}
    place = np.array([numbers[layout] for layout in layouts])
    least = np.full(len(numbers), np.inf)
    np.minimum.at(least, place, predicted)
    is_tied = (predicted <= predicted.min() * (1 + MODEL_RESOLUTION)) & (predicted == least[place])
    return np.lexsort((predicted, np.where(is_tied, mbs, np.inf)))


def spearman(a: Floats, b: Floats) -> float:
    """Return the rank correlation (Spearman); equal values share their mean rank."""
    ranks = [
        np.array([np.mean(np.flatnonzero(np.sort(values) == value)) for value in values]) for values in (a, b)
    ]
    deviations = [rank - rank.mean() for rank in ranks]
    spread = float(np.sqrt((deviations[0] ** 2).sum() * (deviations[1] ** 2).sum()))
    return float((deviations[0] * deviations[1]).sum()) / spread if spread else 0.0


def reasons(predictions: Iterable[Prediction]) -> Counter[str]:
    """Count the rows skipped for each reason, without numbers of the row; a row may have several reasons."""
    counts: Counter[str] = Counter()
    for prediction in predictions:
        if prediction.skipped is not None:
            parts = re.split(r"; (?![^(]*\))", prediction.skipped)
            counts.update(list(dict.fromkeys(re.sub(r" \([^()]*\)$", "", part) for part in parts)))
    return counts


def budgets(predictions: Sequence[Prediction], moe: frozenset[str] = frozenset()) -> tuple[ErrorBudget, ...]:
    """Compute error budgets by source from rows with `parts`; `moe` are the ids of rows with experts.

    If part j of row i, a share s_ij of its predicted time, were right times 1 + e_j, then measured over
    predicted would be 1 + Σ_j s_ij e_j. The e_j of a source are fitted to its rows (ridge regression), with a
    prior of 0 ± `BELIEVED` and a noise of `BUDGET_NOISE` in each row. A part's cause is minus its mean share
    times e_j. This is correlation: parts that vary together share each other's error, and an error common to
    all parts is attributed to the largest.
    """
    by_source: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in predictions:
        if prediction.parts and prediction.measured_step_seconds is not None:
            by_source[source_of(prediction.id, prediction.id in moe)].append(prediction)
    return tuple(_budget(source, rows) for source, rows in sorted(by_source.items()))


def _budget(source: str, rows: Sequence[Prediction]) -> ErrorBudget:
    names = list(rows[0].parts)
    seconds = np.array([[row.parts[name] for name in names] for row in rows])
    errors = np.array([row.error for row in rows])
    shares = seconds / seconds.sum(axis=1, keepdims=True)
    missing = 1 / (1 + errors) - 1  # measured over predicted, less 1
    deviations = np.linalg.solve(
        shares.T @ shares / BUDGET_NOISE**2 + np.eye(len(names)) / BELIEVED**2,
        shares.T @ missing / BUDGET_NOISE**2,
    )
    causes = dict(zip(names, (-shares.mean(axis=0) * deviations).tolist(), strict=True))
    return ErrorBudget(
        source, len(rows), causes, float(errors.mean()), float(np.abs(missing - shares @ deviations).mean())
    )
