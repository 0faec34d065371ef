"""Figures of the public scoreboard: errors of bundled runs and benchmarks, goals, and what peers publish.

Every figure is computed when the page is written. "Fitted" is what the package predicts now; "left out" comes
from the table that ``calibration/refit.py`` writes: each run predicted with constants fitted without its
group.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import exp, log
from pathlib import Path
from typing import Final, Literal

import numpy as np

import megatron_tests
from collective_benchmarks import BANDS, Timing, check_collectives
from error_model import (
    Chances,
    Coverage,
    Held,
    Reliability,
    coverage,
    estimate_errors,
    held,
    levels_reliability,
    memory_chances,
    odds_left_out,
    rankings,
    reliability,
)
from kernel_benchmarks import KernelPrediction
from kernel_benchmarks import predict as predict_kernels
from kernel_benchmarks import read as read_kernels
from left_out import BLIND, HEADLINE, LATER, SPLITS, TABLE
from left_out_residuals import Residuals, gather
from made_once import made_once
from software import left_open
from traincast.accuracy.scores import (
    KINDS,
    ErrorSummary,
    Prediction,
    Subject,
    source_of,
    summaries,
    summary,
    totals,
)
from traincast.accuracy.validation import Report, validate, verdicts_of
from traincast.accuracy.verdicts import VerdictReport
from traincast.catalog.documents import read_document
from traincast.step.uncertainty import Errors, Mixture
from traincast.step.uncertainty import errors as stated_errors

LEFT_OUT: Final = "left_out"
PROTOCOLS: Final = {  # column → how runs are read and left out, the headline first
    HEADLINE: "**facts blind**: facts blank but framework and release; source × model × accelerator left out",
    "left_out": "with facts; source × model × accelerator left out",
    "blind_without_stack": "facts blind; a whole stack left out",
    "without_stack": "with facts; a whole stack left out",
}
What = Literal["mape", "regret", "best_of_three", "memory"]
JAX: Final = ("maxtext-2025", "pax-2023", "pax-2024")
GOALS_FILE: Final = Path(__file__).with_name("goals.yaml")


@dataclass(frozen=True, kw_only=True)
class Goal:
    """Goal for the errors of some families of runs; `why` is the reason where it is missed.

    Parameters
    ----------
    rows : str
        Description of the rows.
    sources : tuple of str
        Sources of runs.
    most : float
        Largest error [%].
    what : {"mape", "regret", "best_of_three", "memory"}
        Figure that is judged.
    column : str
        Column of the table of left-out runs.
    why : str
        Reason for missing it.
    """

    rows: str
    sources: tuple[str, ...]
    most: float
    what: What = "mape"
    column: str = LEFT_OUT
    why: str = ""


_GOALS: Final = read_document(GOALS_FILE)
GOALS: Final = tuple(Goal(**{**goal, "sources": tuple(goal["sources"])}) for goal in _GOALS["families"])
HEADLINE_GOALS: Final = tuple(_GOALS["headline"])
SPLIT_GOALS: Final = {
    (goal["kind"] == "moe", goal["column"]): (float(goal["most"]), goal.get("why", ""))
    for goal in _GOALS["splits"]
}
OTHERS: Final = _GOALS["others"]
FIT_GOALS: Final = tuple(_GOALS["fits"])
KIND_NAMES: Final = {"dense": "dense", "moe": "experts"}
MIN_RUNS_OF_STACK: Final = 4  # a stack with fewer runs is not judged
TRUSTED: Final = 0.10  # mean error of the families of a split up to which its like can be trusted
DOUBTED: Final = 0.15  # and from which on it should not be


@dataclass(frozen=True)
class Board:
    """Errors of the bundled runs, fitted and left out.

    Parameters
    ----------
    reports : tuple of Report
        Predictions of the bundled runs, and of those collected later.
    residuals : mapping of str to mapping of str to float
        Run → column → logarithm of predicted over measured.
    """

    reports: tuple[Report, ...]
    residuals: Mapping[str, Mapping[str, float]]

    @property
    def report(self) -> Report:
        """Predictions of the bundled runs."""
        return self.reports[0]

    @cached_property
    def subjects(self) -> Mapping[str, Subject]:
        """Properties of all runs that can be read, by id."""
        return {name: subject for report in self.reports for name, subject in report.subjects.items()}

    @cached_property
    def all_predictions(self) -> tuple[Prediction, ...]:
        """Predictions of all rows."""
        return tuple(prediction for report in self.reports for prediction in report.predictions)

    @cached_property
    def fits(self) -> VerdictReport:
        """Verdicts of fit of all runs, as predicted now, against what happened."""
        return verdicts_of(self.reports)

    def predictions(self, column: str) -> list[Prediction]:
        """Return the predictions of a column of left-out residuals; fits do not touch memory.

        Runs with measured memory but no time are included.
        """
        predictions = []
        for prediction in self.all_predictions:
            residual = self.residuals.get(prediction.id, {}).get(column)
            if prediction.measured_step_seconds is None:
                predictions += [prediction] if prediction.skipped is None else []
            elif residual is not None:
                predictions.append(
                    replace(
                        prediction, predicted_step_seconds=prediction.measured_step_seconds * exp(residual)
                    )
                )
        return predictions

    def of(self, sources: Sequence[str], column: str) -> ErrorSummary:
        """Return the errors of several sources together."""
        subjects = self.subjects
        predictions = [
            prediction
            for prediction in self.predictions(column)
            if source_of(prediction.id, subjects[prediction.id].moe) in sources
        ]
        return summary(", ".join(sources), predictions, subjects)

    def by_source(self, column: str = LEFT_OUT) -> dict[str, ErrorSummary]:
        """Return the errors by source, and in total by kind."""
        if column not in self._by_source:
            predictions, subjects = self.predictions(column), self.subjects
            found = (*summaries(predictions, subjects), *totals(predictions, subjects))
            self._by_source[column] = {each.source: each for each in found}
        return self._by_source[column]

    @cached_property
    def _by_source(self) -> dict[str, dict[str, ErrorSummary]]:
        return {}

    def split(self, column: str, moe: bool) -> "SplitErrors | None":
        """Return the errors of runs left out in a way, as means over families; None without such runs."""
        families = [
            of_family
            for name, of_family in self.by_source(column).items()
            if of_family.n and name not in KINDS.values() and name.endswith("/moe") == moe
        ]
        if not families:
            return None
        n, mape, bias, worst = (
            [getattr(of_family, figure) for of_family in families]
            for figure in ("n", "mape", "bias", "worst")
        )
        return SplitErrors(
            len(families), sum(n), float(np.mean(mape)), float(np.mean(bias)), max(worst),
            families[int(np.argmax(mape))].source,
        )  # fmt: skip

    def by_stack(self, moe: bool) -> dict[str, ErrorSummary]:
        """Return the errors by software stack, with constants fitted without its runs."""
        groups: dict[str, list[Prediction]] = defaultdict(list)
        subjects = self.subjects
        for prediction in self.predictions("without_stack"):
            if subjects[prediction.id].moe == moe and prediction.measured_step_seconds is not None:
                groups[subjects[prediction.id].stack].append(prediction)
        return {stack: summary(stack, predictions, subjects) for stack, predictions in sorted(groups.items())}

    def moved(self) -> float:
        """Return the mean change of predictions since the left-out table was written [1]."""
        predictions = {prediction.id: prediction for prediction in self.all_predictions}
        pairs = (
            (predictions[name], residuals["fitted"])
            for name, residuals in self.residuals.items()
            if name in predictions
        )
        return float(
            np.mean(
                [
                    abs(log(1 + prediction.error) - residuals)
                    for prediction, residuals in pairs
                    if prediction.error == prediction.error
                ]
            )
        )


@dataclass(frozen=True)
class SplitErrors:
    """Errors of runs left out in a way: means over families, the largest of all, and the worst family."""

    families: int
    n: int
    mape: float
    bias: float
    worst: float
    worst_family: str


def read_left_out() -> dict[str, dict[str, float]]:
    """Read the left-out table: run → column → logarithm of predicted over measured."""
    rows = csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines())
    words = ("id", "source", "group")
    return {row["id"]: {name: float(y) for name, y in row.items() if name not in words and y} for row in rows}


@made_once
def board() -> Board:
    """Return the present scoreboard of the bundled runs."""
    return Board((validate(), validate(LATER)), read_left_out())


@dataclass(frozen=True)
class Calibration:
    """How well stated uncertainty holds, each run's group left out of predictions and error model.

    Parameters
    ----------
    splits : mapping of (str, bool) to Coverage
        Column of the table of left-out runs, and whether models have experts → coverage of intervals.
    families : mapping of str to Coverage
        The same by family, left out by source x model x accelerator.
    blind : mapping of (str, bool) to Coverage
        The same of columns of `BLIND`, the intervals of what their rows then leave open.
    levels : mapping of (str, bool) to list of Reliability
        Column of runs left out by their group, with facts or blind, and whether models have experts → how
        intervals of each of `LEVELS` hold.
    rankings, fits, tests_fit : Chances
        Stated probabilities that the first plan is near the best, that a run fits, and that one of
        Megatron-LM's own tests does; and what happened.
    """

    splits: Mapping[tuple[str, bool], Coverage]
    families: Mapping[str, Coverage]
    blind: Mapping[tuple[str, bool], Coverage]
    levels: Mapping[tuple[str, bool], list[Reliability]]
    rankings: Chances
    fits: Chances
    tests_fit: Chances


@made_once
def error_model() -> tuple[Residuals, Errors]:
    """Return the measured runs with their left-out residuals, and the error model estimated from them."""
    data = gather()
    return data, estimate_errors(data)


def blind_intervals(data: Residuals, of: Held, column: str) -> Held:
    """Return the intervals of runs read with facts blind, left out as a column of `BLIND` says.

    Where that leaves software open they are those of the mixture, of an error model without the run's tenth
    of the groups, and of what the runs have that are not of its group.
    """
    residuals = read_left_out()
    split = BLIND[column]
    errors = np.array([residuals.get(data.runs[i].id, {}).get(column, np.nan) for i in of.rows])
    faster = of.faster.copy()
    slower = of.slower.copy()
    levels = of.levels.copy()
    places = {int(of.rows[k]): k for k in np.flatnonzero(of.columns == split)}
    opened = left_open(data, column)
    software_of = stated_errors().software
    for i, parts, evidence in zip(opened.rows, opened.parts, opened.evidence, strict=True):
        fold = next(fold for fold in of.folds if fold.out[i])
        known = replace(fold.known, evidence=evidence)
        is_open = len(parts) > 1
        spread = software_of.left_open(
            data.cases[i].moe, [part.case.stack for part in parts] if is_open else ()
        )
        mixture = Mixture.from_parts(parts, known, spread)
        k = places[i]
        measured = np.log(data.runs[i].step_seconds or np.nan)
        low, high = mixture.quantiles(0.05, 0.95)
        faster[k] = errors[k] + measured - np.log(low)
        slower[k] = np.log(high) - errors[k] - measured
        levels[k] = abs(2 * float(mixture.share_below(measured)) - 1)
    return replace(of, errors=errors, faster=faster, slower=slower, levels=levels)


@made_once
def held_intervals() -> tuple[Held, dict[str, Held]]:
    """Return the intervals of runs left out, and by column of `BLIND` those of runs read with facts blind."""
    data, known = error_model()
    of = held(data, known)
    columns = [column for column, split in BLIND.items() if split in SPLITS]
    return of, {column: blind_intervals(data, of, column) for column in columns}


@made_once
def calibration() -> Calibration:
    """Return how well the stated uncertainty of measured runs holds."""
    data, known = error_model()
    of, of_blind = held_intervals()
    moe = np.array([data.cases[i].moe for i in of.rows])
    families = np.array([source_of(data.runs[i].id, data.cases[i].moe) for i in of.rows])
    splits = {
        (column, kind): coverage(data, of, used)
        for column in SPLITS
        for kind in (False, True)
        if (used := (of.columns == column) & (moe == kind)).any()
    }
    by_family = {
        str(family): coverage(data, of, (of.columns == LEFT_OUT) & (families == family))
        for family in sorted(set(families))
    }
    blind = {}
    levels = {}
    for column, judged in {LEFT_OUT: of, **of_blind}.items():
        split = BLIND.get(column, column)
        for kind in (False, True):
            used = (of.columns == split) & (moe == kind) & ~np.isnan(judged.errors)
            if not used.any():
                continue
            if column in BLIND:
                blind[column, kind] = coverage(data, judged, used)
            if split == LEFT_OUT:
                levels[column, kind] = levels_reliability(data, judged, used)
    ranked = rankings(data, known)
    stated = odds_left_out(ranked, known)
    fits = memory_chances(data), memory_chances(data, tests=True)
    chances = Chances(stated, ranked.is_right, ranked.group)
    return Calibration(splits, by_family, blind, levels, chances, *fits)


@dataclass(frozen=True)
class Verdict:
    """What a goal asks for, what was reached, and why it was missed."""

    rows: str
    goal: str
    reached: str
    met: bool
    why: str = ""


def verdicts() -> list[Verdict]:
    """Judge every goal of goals.yaml."""
    scores = board()
    found, family = [], ""
    for goal in GOALS:
        family = family if goal.rows.startswith("… ") else goal.rows
        rows = goal.rows.replace("…", f"{family}:")
        summary_of_rows = scores.of(goal.sources, goal.column)
        found.append(_judged(rows, goal.most, getattr(summary_of_rows, goal.what), goal.why))
    for goal in HEADLINE_GOALS:
        error = scores.by_source(goal["column"])[goal["kind"]].mape
        title = PROTOCOLS[goal["column"]].partition(":")[0].strip("*").capitalize()
        rows = f"{title}, {KIND_NAMES[goal['kind']]}"
        found.append(_judged(rows, goal["most"], error, goal.get("why", "")))
    for (moe, column), (most, why) in SPLIT_GOALS.items():
        split = scores.split(column, moe)
        rows = f"Mean over families, {'experts' if moe else 'dense'}, without {SPLITS[column].title}"
        found.append(_judged(rows, most, split.mape if split else None, why))
    found += [_worst_stack(scores, jax, name) for jax, name in ((False, "stack"), (True, "jax_stack"))]
    timed = [item.error for items in perlmutter().values() for item in items]
    kernels = kernel_errors()
    attention = [item.error for kind in ("attention forward", "attention backward") for item in kernels[kind]]
    benchmarks = {
        "collectives": ("Collectives on Perlmutter, as fitted", mean(timed)),
        "products": ("Matrix products, as fitted", mean(item.error for item in kernels["product"])),
        "attention": ("Fused attention, as fitted", mean(attention)),
    }
    found += [
        _judged(rows, OTHERS[name]["most"], error, OTHERS[name].get("why", ""))
        for name, (rows, error) in benchmarks.items()
    ]
    of_tests = OTHERS["memory_of_tests"]
    error, why = megatron_tests.mean_error(), of_tests.get("why", "")
    found.append(_judged("Memory of Megatron's tests above 1 GiB", of_tests["most"], error, why))
    for goal in FIT_GOALS:
        found.append(_judged(goal["rows"], goal["most"], fit_figure(scores, goal), goal.get("why", "")))
    least, most = OTHERS["coverage"]["least"], OTHERS["coverage"]["most"]
    held_by = {**calibration().splits, **calibration().blind}
    for (column, moe), item in held_by.items():
        if column in (LEFT_OUT, HEADLINE):
            blind = ", facts blind" * (column == HEADLINE)
            rows = f"90 % intervals hold{blind}, {'experts' if moe else 'dense'}"
            met = least <= 100 * item.share <= most
            found.append(
                Verdict(
                    rows,
                    f"{least} to {most}",
                    f"{100 * item.share:.1f}",
                    met,
                    OTHERS["coverage"].get("why", ""),
                )
            )
    bins = [item for of_kind in calibration().levels.values() for item in of_kind]
    bins += reliability(calibration().rankings)
    outside = sum(not item.holds for item in bins)
    most = OTHERS["reliability"]["most"]
    why = OTHERS["reliability"].get("why", "")
    rows = f"Of {len(bins)} bins of intervals and of the first plan, outside their band (count)"
    found.append(Verdict(rows, f"{most}", f"{outside}", outside <= most, why))
    return found


def fit_figure(scores: Board, goal: Mapping[str, str]) -> float | None:
    """Return the figure of verdicts that a goal of `FIT_GOALS` is for; None without such rows."""
    figure: float | None = getattr(getattr(scores.fits, goal["of"]), goal["what"])
    return figure


def _judged(rows: str, most: float, reached: float | None, why: str) -> Verdict:
    """Return the verdict on an error, up to the digits that are printed."""
    if reached is None:
        return Verdict(rows, f"{most:g}", "no such rows", False, why)
    return Verdict(rows, f"{most:g}", f"{100 * reached:.1f}", round(100 * reached, 1) <= most, why)


def _worst_stack(scores: Board, jax: bool, name: str) -> Verdict:
    """Return the verdict on the worst left-out stack that has enough runs."""
    most = OTHERS[name]["most"]
    stacks = {
        stack: item
        for stack, item in scores.by_stack(moe=False).items()
        if item.n >= MIN_RUNS_OF_STACK and (stack in JAX) == jax
    }
    worst, item = max(stacks.items(), key=lambda pair: pair[1].mape or 0.0)
    within = sum((item.mape or 0.0) <= most / 100 for item in stacks.values())
    what = "JAX" if jax else "others"
    found = f"{within} of {len(stacks)} within, the worst is `{worst}`"
    rows = f"A whole software stack left out, dense, {what}: {found}"
    return _judged(rows, most, item.mape, OTHERS[name].get("why", ""))


@cache
def kernel_errors() -> dict[str, list[KernelPrediction]]:
    """Return predictions of the bundled kernel benchmarks by kind."""
    groups: dict[str, list[KernelPrediction]] = defaultdict(list)
    for prediction in predict_kernels(read_kernels()[0]):
        groups[prediction.benchmark.kind].append(prediction)
    return groups


def flops(prediction: KernelPrediction) -> float:
    """Return the work of a matmul [FLOP]."""
    sizes = prediction.benchmark.sizes
    return 2 * sizes["batch"] * sizes["m"] * sizes["n"] * sizes["k"]


@cache
def perlmutter() -> dict[int, list[Timing]]:
    """Return nccl-tests timings on Perlmutter by number of nodes."""
    groups: dict[int, list[Timing]] = defaultdict(list)
    for timing in check_collectives().timings:
        if (
            timing.skipped is None
            and timing.system == "perlmutter"
            and timing.source.startswith("transformer")
        ):
            groups[timing.nodes].append(timing)
    return dict(sorted(groups.items()))


def mean(errors: Iterable[float]) -> float | None:
    """Return the mean absolute value; None without values."""
    sizes = [abs(error) for error in errors]
    return float(np.mean(sizes)) if sizes else None


def banded(timings: Iterable[Timing]) -> list[float | None]:
    """Return the mean absolute error by size band of the message."""
    all_timings = list(timings)
    return [mean(timing.error for timing in all_timings if timing.band == name) for _, name in BANDS]
