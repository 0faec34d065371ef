"""How far predictions of measured runs are off: by source, in all, and how well they rank plans."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from traincast.core.quantities import Floats

MANY: Final = 2  # plans that make a group worth ranking, at least so many and one more
FIRST: Final = 3  # plans ranked first, of which the best is tried
KINDS: Final = {False: "dense", True: "moe"}
INDEPENDENT: Final = {"vtrain-s": 206}  # numbers that all rows of a source are composed of (docs/scoreboard.md)

FAMILIES: Final = {  # of sources: what ran
    "Megatron on A100 and V100": ("bloom", "korth", "mlm20", "mlm21", "vtrain-m", "vtrain-s", "zb"),
    "NeMo, Megatron-Core": ("dgxc", "mbridge", "mcore", "mega", "mlperf", "nemo", "nvmoe", "simumax"),
    "FSDP, DeepSpeed": ("dsazure", "ibm", "ibm-old", "internevo", "misc", "mpt", "nanotron", "titan"),
    "JAX": ("google", "jaxtb"),
    "papers": ("papers",),
}


@dataclass(frozen=True)
class Prediction:
    """One row of a table of runs, predicted or skipped.

    Parameters
    ----------
    id : str
        What the row is called.
    measured_step_seconds, predicted_step_seconds : float or None
        Time of a step [s].
    low, high : float or None
        Interval of the predicted time [s]; None where assumptions give none.
    measured_memory_bytes, predicted_memory_bytes : float or None
        Memory of the fullest rank, both as the row's way of measuring sees it [byte].
    skipped : str or None
        Why the row is not predicted.
    parts : mapping of str to float
        Seconds of the predicted step by component, where they were asked for.
    """

    id: str
    measured_step_seconds: float | None = None
    predicted_step_seconds: float | None = None
    low: float | None = None
    high: float | None = None
    measured_memory_bytes: float | None = None
    predicted_memory_bytes: float | None = None
    skipped: str | None = None
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
    """What a row is of, as far as scores need it.

    Parameters
    ----------
    moe : bool
        Whether the model has experts.
    stack : str
        The software that ran it.
    setting : hashable
        All that rows share which differ only in their plan.
    plan : hashable
        The plan.
    """

    moe: bool
    stack: str
    setting: Hashable
    plan: Hashable


@dataclass(frozen=True)
class ErrorSummary:
    """How far predictions of one source are off.

    Parameters
    ----------
    source : str
        Rows whose names begin alike, mixture-of-experts models apart; ``"dense"`` or ``"moe"`` for all of a kind.
    n, skipped : int
        Rows predicted whose step time was measured, and rows skipped.
    weight : float
        What the rows count together: their number, or less where they are composed of fewer measurements.
    mape, median, bias, worst : float or None
        Mean and median of the absolute relative error of the step time, its mean, and its largest absolute value; None where no
        step time was measured.
    groups : int
        Groups of rows that differ only in their plan, of which there are three or more.
    spearman, regret, best_of_three : float or None
        Of such groups, the mean of: rank correlation; how much slower the plan ranked first really is than the best; the same of
        the best of the three ranked first. None without such groups.
    worst_regret, worst_of_three : float or None
        The largest regrets.
    memory : float or None
        Mean absolute relative error of memory; None where none is measured.
    """

    source: str
    n: int
    skipped: int
    weight: float
    mape: float | None
    median: float | None
    bias: float | None
    worst: float | None
    groups: int
    spearman: float | None
    regret: float | None
    best_of_three: float | None
    worst_regret: float | None
    worst_of_three: float | None
    memory: float | None


@dataclass(frozen=True)
class RankingScore:
    """How well one group of plans is ranked: rank correlation, regret of the first, and of the best of the first three."""

    spearman: float
    regret: float
    best_of_three: float


def source_of(run_id: str, moe: bool) -> str:
    """What rows of one source have in common: the beginning of their names, and whether the model has experts."""
    return run_id.rsplit("-", 1)[0] + ("/moe" if moe else "")


def family_of(source: str) -> str:
    """What sources are drawn alike with; a source that is not bundled stands alone."""
    bare = source.removesuffix("/moe")
    return next((family for family, members in FAMILIES.items() if bare in members), bare)


def summaries(predictions: Sequence[Prediction], of: Mapping[str, Subject]) -> tuple[ErrorSummary, ...]:
    """Errors by source.

    Parameters
    ----------
    predictions : sequence of Prediction
        Rows, predicted or skipped.
    of : mapping of str to Subject
        What the rows are of, by id, as far as they can be read.
    """
    by: dict[str, list[Prediction]] = defaultdict(list)
    for one in predictions:
        by[source_of(one.id, one.id in of and of[one.id].moe)].append(one)
    return tuple(summary(source, some, of) for source, some in sorted(by.items()) if any(one.skipped is None for one in some))


def totals(predictions: Sequence[Prediction], of: Mapping[str, Subject]) -> tuple[ErrorSummary, ...]:
    """Errors of all dense models and of all with experts; a source counts as no more than it measured (`INDEPENDENT`)."""
    kinds: dict[str, list[Prediction]] = {name: [] for name in KINDS.values()}
    for one in predictions:
        if one.id in of:
            kinds[KINDS[of[one.id].moe]].append(one)
    return tuple(summary(name, some, of) for name, some in kinds.items() if any(one.skipped is None for one in some))


def summary(source: str, some: Sequence[Prediction], of: Mapping[str, Subject]) -> ErrorSummary:
    """Errors of some rows."""
    done = [one for one in some if one.skipped is None]
    timed = [one for one in done if one.measured_step_seconds is not None]
    errors, weights = np.array([one.error for one in timed]), _weights(timed)
    ranks = rankings(timed, of)
    regrets, of_three = [one.regret for one in ranks], [one.best_of_three for one in ranks]
    n = len(timed)
    return ErrorSummary(
        source=source,
        n=n,
        skipped=len(some) - len(done),
        weight=float(weights.sum()),
        mape=float(np.average(np.abs(errors), weights=weights)) if n else None,
        median=_median(np.abs(errors), weights) if n else None,
        bias=float(np.average(errors, weights=weights)) if n else None,
        worst=float(np.abs(errors).max()) if n else None,
        groups=len(ranks),
        spearman=_figure(np.mean, [one.spearman for one in ranks]),
        regret=_figure(np.mean, regrets),
        best_of_three=_figure(np.mean, of_three),
        worst_regret=_figure(np.max, regrets),
        worst_of_three=_figure(np.max, of_three),
        memory=_figure(np.mean, [abs(one.memory_error) for one in done if one.measured_memory_bytes]),
    )


def _weights(some: Sequence[Prediction]) -> Floats:
    """What each row counts: 1, or what it measured on average."""
    sources = [one.id.rsplit("-", 1)[0] for one in some]
    n = Counter(sources)
    return np.array([min(1.0, INDEPENDENT.get(name, n[name]) / n[name]) for name in sources])


def _median(values: Floats, weights: Floats) -> float:
    """The median; of weighted values that which half of the weight is below."""
    if np.all(weights == 1):
        return float(np.median(values))
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)])


def _figure(of: Callable[[Sequence[float]], Any], values: Sequence[float]) -> float | None:
    """One figure of many values; None without any."""
    return float(of(values)) if values else None


def rankings(predictions: Sequence[Prediction], of: Mapping[str, Subject]) -> list[RankingScore]:
    """How every group of runs that differ only in their plan is ranked."""
    groups: dict[Hashable, list[Prediction]] = defaultdict(list)
    for one in predictions:
        groups[of[one.id].setting].append(one)
    found = []
    for some in groups.values():
        if len({of[one.id].plan for one in some}) > MANY:
            predicted, measured = (
                np.array([getattr(one, f"{which}_step_seconds") for one in some]) for which in ("predicted", "measured")
            )
            order = measured[np.argsort(predicted, kind="stable")]
            regret, of_three = (float(order[:first].min() / measured.min() - 1) for first in (1, FIRST))
            found.append(RankingScore(spearman(predicted, measured), regret, of_three))
    return found


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation, equal values sharing their mean rank."""
    ranks = [np.array([np.mean(np.flatnonzero(np.sort(one) == value)) for value in one]) for one in (a, b)]
    off = [one - one.mean() for one in ranks]
    spread = float(np.sqrt((off[0] ** 2).sum() * (off[1] ** 2).sum()))
    return float((off[0] * off[1]).sum()) / spread if spread else 0.0


def reasons(predictions: Iterable[Prediction]) -> Counter[str]:
    """How many rows are skipped for each reason, without the numbers of the row; a row may have several."""
    told: Counter[str] = Counter()
    for one in predictions:
        if one.skipped is not None:
            told.update({re.sub(r" \([^()]*\)$", "", part) for part in re.split(r"; (?![^(]*\))", one.skipped)})
    return told
