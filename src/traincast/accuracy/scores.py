"""Errors of predicted runs, by source and in total, and how well predictions rank plans."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import numpy as np

from traincast.core.quantities import Floats
from traincast.core.result import Doc, Result

MAX_UNRANKED_PLANS: Final = 2  # groups of more plans are ranked
BEST_OF: Final = 3  # the best of this many top-ranked plans, for `best_of_three`
KINDS: Final = {False: "dense", True: "moe"}
INDEPENDENT: Final = {
    "vtrain-s": 206
}  # independent measurements that all rows of a source are composed of (docs/scoreboard.md)

FAMILIES: Final = {  # framework or origin → its sources
    "Megatron on A100 and V100": ("bloom", "korth", "mlm20", "mlm21", "vtrain-m", "vtrain-s", "zb"),
    "NeMo, Megatron-Core": ("dgxc", "mbridge", "mcore", "mega", "mlperf", "nemo", "nvmoe", "simumax"),
    "FSDP, DeepSpeed": ("dsazure", "ibm", "ibm-old", "internevo", "misc", "mpt", "nanotron", "titan"),
    "JAX": ("google", "jaxtb"),
    "papers": ("papers",),
}


@dataclass(frozen=True)
class Prediction(Result):
    """One row of a table of runs, predicted or skipped; `parts` are the seconds by component, where requested."""

    id: Annotated[str, Doc("name of the row")]
    measured_step_seconds: Annotated[float | None, Doc("measured time of a step", "s")] = None
    predicted_step_seconds: Annotated[float | None, Doc("predicted time of a step", "s")] = None
    low: Annotated[float | None, Doc("lower end of the 90 % interval", "s")] = None
    high: Annotated[float | None, Doc("upper end of the 90 % interval", "s")] = None
    measured_memory_bytes: Annotated[float | None, Doc("measured memory of the fullest rank", "byte")] = None
    predicted_memory_bytes: Annotated[
        float | None, Doc("predicted memory, by the row's kind of measurement", "byte")
    ] = None
    skipped: Annotated[str | None, Doc("why the row is not predicted")] = None
    parts: Mapping[str, float] = field(default_factory=dict, repr=False, compare=False)

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
    """Properties of a row that scores are grouped by.

    Parameters
    ----------
    moe : bool
        Whether the model has experts.
    stack : str
        The software that ran it.
    setting : hashable
        Everything but the plan: equal for rows to be ranked against each other.
    plan : hashable
        The plan.
    """

    moe: bool
    stack: str
    setting: Hashable
    plan: Hashable


@dataclass(frozen=True)
class ErrorSummary(Result):
    """Errors of the predictions of one source, mixture-of-experts models apart; ``"dense"`` or ``"moe"`` for totals.

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


@dataclass(frozen=True)
class RankingScore:
    """Ranking of one group of plans: rank correlation, regret of the first, and of the best of the first three."""

    spearman: float
    regret: float
    best_of_three: float


def source_of(run_id: str, moe: bool) -> str:
    """Return the source of a row: the beginning of its name, and whether the model has experts."""
    return run_id.rsplit("-", 1)[0] + ("/moe" if moe else "")


def family_of(source: str) -> str:
    """Return the family of a source, for figures; a source that is not bundled is its own family."""
    bare = source.removesuffix("/moe")
    return next((family for family, members in FAMILIES.items() if bare in members), bare)


def summaries(predictions: Sequence[Prediction], of: Mapping[str, Subject]) -> tuple[ErrorSummary, ...]:
    """Summarise errors by source.

    Parameters
    ----------
    predictions : sequence of Prediction
        Rows, predicted or skipped.
    of : mapping of str to Subject
        Properties of the rows that can be read, by id.
    """
    by_source: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in predictions:
        by_source[source_of(prediction.id, prediction.id in of and of[prediction.id].moe)].append(prediction)
    return tuple(
        summary(source, rows, of)
        for source, rows in sorted(by_source.items())
        if any(row.skipped is None for row in rows)
    )


def totals(predictions: Sequence[Prediction], of: Mapping[str, Subject]) -> tuple[ErrorSummary, ...]:
    """Summarise errors of all dense models and of all with experts, weighting sources by `INDEPENDENT` measurements."""
    kinds: dict[str, list[Prediction]] = {name: [] for name in KINDS.values()}
    for prediction in predictions:
        if prediction.id in of:
            kinds[KINDS[of[prediction.id].moe]].append(prediction)
    return tuple(
        summary(name, rows, of) for name, rows in kinds.items() if any(row.skipped is None for row in rows)
    )


def summary(source: str, rows: Sequence[Prediction], of: Mapping[str, Subject]) -> ErrorSummary:
    """Summarise errors of rows."""
    predicted = [row for row in rows if row.skipped is None]
    timed = [row for row in predicted if row.measured_step_seconds is not None]
    errors, weights = np.array([row.error for row in timed]), _weights(timed)
    ranks = rankings(timed, of)
    regrets, of_three = [score.regret for score in ranks], [score.best_of_three for score in ranks]
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
        spearman=_statistic(np.mean, [score.spearman for score in ranks]),
        regret=_statistic(np.mean, regrets),
        best_of_three=_statistic(np.mean, of_three),
        worst_regret=_statistic(np.max, regrets),
        worst_of_three=_statistic(np.max, of_three),
        memory=_statistic(np.mean, [abs(row.memory_error) for row in predicted if row.measured_memory_bytes]),
    )


def _weights(rows: Sequence[Prediction]) -> Floats:
    """Return the weight of each row: 1, or less where a source has fewer independent measurements than rows."""
    sources = [row.id.rsplit("-", 1)[0] for row in rows]
    n = Counter(sources)
    return np.array([min(1.0, INDEPENDENT.get(name, n[name]) / n[name]) for name in sources])


def _median(values: Floats, weights: Floats) -> float:
    """Return the median; of weighted values the one that half of the weight is below."""
    if np.all(weights == 1):
        return float(np.median(values))
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)])


def _statistic(of: Callable[[Sequence[float]], Any], values: Sequence[float]) -> float | None:
    """Return a statistic of values; None without values."""
    return float(of(values)) if values else None


def rankings(predictions: Sequence[Prediction], of: Mapping[str, Subject]) -> list[RankingScore]:
    """Score the ranking of every group of runs that differ only in their plan."""
    groups: dict[Hashable, list[Prediction]] = defaultdict(list)
    for prediction in predictions:
        groups[of[prediction.id].setting].append(prediction)
    scores = []
    for rows in groups.values():
        if len({of[prediction.id].plan for prediction in rows}) > MAX_UNRANKED_PLANS:
            predicted, measured = (
                np.array([getattr(prediction, f"{which}_step_seconds") for prediction in rows])
                for which in ("predicted", "measured")
            )
            order = measured[np.argsort(predicted, kind="stable")]
            regret, of_three = (float(order[:first].min() / measured.min() - 1) for first in (1, BEST_OF))
            scores.append(RankingScore(spearman(predicted, measured), regret, of_three))
    return scores


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
