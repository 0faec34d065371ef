"""How right verdicts of fit are: the probability that a plan fits, against what happened."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Annotated, Final

import numpy as np

from traincast.core import INLINE, Bools, Doc, Floats, Result
from traincast.step import UNCERTAIN

LIKELY: Final = 0.5  # probability from which on a plan is called "fits", below it "no"
CERTAIN: Final = 0.95  # probability above which a verdict is certain
NEAR: Final = 0.2  # share of the capacity by which memory may differ from it that is near to it
SHARPEST: Final = 0.3  # share of the rows, those nearest to capacity, that are judged apart
BIN_EDGES: Final = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0)  # of probabilities, for their reliability
MIN_ROWS_OF_BIN: Final = 30  # a bin of fewer rows is joined with the next


@dataclass(frozen=True)
class Judged:
    """Row with a verdict.

    Parameters
    ----------
    framework, accelerator : str
        What it ran on.
    ran : bool
        Whether it ran; else it ran out of memory.
    probability : float
        Predicted probability that it fits.
    share : float
        Predicted memory over that of the accelerator.
    """

    framework: str
    accelerator: str
    ran: bool
    probability: float
    share: float


class VerdictErrors(Result):
    """Verdicts of some rows against what happened; "no" is a probability to fit below one half."""

    rows: Annotated[int, Doc("rows with a verdict")]
    ran: Annotated[int, Doc("rows that ran")]
    ran_called_no: Annotated[int, Doc("of those, called no")]
    ran_called_no_share: Annotated[float | None, Doc("the same as a share; null where none ran")]
    out_of_memory: Annotated[int, Doc("rows that ran out of memory")]
    out_of_memory_called_fits: Annotated[int, Doc("of those, called fits")]
    out_of_memory_called_fits_share: Annotated[
        float | None, Doc("the same as a share; null where none ran out of memory")
    ]
    uncertain: Annotated[int, Doc("rows with a probability between 20 and 80 %, which either count includes")]
    certain_and_wrong: Annotated[int, Doc("rows whose verdict is wrong with more than 95 % certainty")]
    certain_and_wrong_share: Annotated[float | None, Doc("the same as a share of all rows")]
    brier: Annotated[float | None, Doc("mean squared difference of probability and outcome (Brier score)")]


class VerdictBin(Result):
    """Rows whose probability to fit lies in a bin."""

    rows: Annotated[int, Doc("rows in the bin")]
    low: Annotated[float, Doc("lower edge of the bin")]
    high: Annotated[float, Doc("upper edge of the bin")]
    stated: Annotated[float, Doc("mean probability that they fit")]
    ran: Annotated[float, Doc("share of them that ran")]


class VerdictReport(Result):
    """Verdicts of a table of runs against what happened."""

    total: Annotated[VerdictErrors, INLINE]
    near_capacity: Annotated[VerdictErrors, Doc("rows whose predicted memory is within 20 % of capacity")]
    sharpest: Annotated[VerdictErrors, Doc("the 30 % of the rows that are predicted nearest to capacity")]
    by_framework: Annotated[Mapping[str, VerdictErrors], Doc("the same by framework")]
    by_accelerator: Annotated[Mapping[str, VerdictErrors], Doc("the same by accelerator")]
    reliability: Annotated[
        tuple[VerdictBin, ...], Doc("share that ran by probability, in bins of at least 30 rows")
    ]
    not_judged: Annotated[Mapping[str, int], Doc("rows that are predicted without a verdict, by reason")]


def verdict_report(rows: Sequence[Judged], not_judged: Mapping[str, int]) -> VerdictReport:
    """Return how right the verdicts of rows are; `not_judged` are rows without one, by reason."""
    return VerdictReport(
        total=verdict_errors(rows),
        near_capacity=verdict_errors([row for row in rows if abs(row.share - 1) <= NEAR]),
        sharpest=verdict_errors(sharpest(rows)),
        by_framework=_group_errors((row.framework, row) for row in rows),
        by_accelerator=_group_errors((row.accelerator, row) for row in rows),
        reliability=tuple(reliability_bins(rows)),
        not_judged=dict(not_judged),
    )


def verdict_errors(rows: Sequence[Judged]) -> VerdictErrors:
    """Return how right the verdicts of rows are."""
    probability, ran = _columns(rows)
    fits = probability >= LIKELY
    certainty = np.where(fits, probability, 1 - probability)
    called_no = int((ran & ~fits).sum())
    called_fits = int((~ran & fits).sum())
    certain_and_wrong = int(((fits != ran) & (certainty > CERTAIN)).sum())
    low, high = UNCERTAIN
    n = len(rows)
    n_ran = int(ran.sum())
    return VerdictErrors(
        rows=n,
        ran=n_ran,
        ran_called_no=called_no,
        ran_called_no_share=_share(called_no, n_ran),
        out_of_memory=n - n_ran,
        out_of_memory_called_fits=called_fits,
        out_of_memory_called_fits_share=_share(called_fits, n - n_ran),
        uncertain=int(((probability >= low) & (probability <= high)).sum()),
        certain_and_wrong=certain_and_wrong,
        certain_and_wrong_share=_share(certain_and_wrong, n),
        brier=float(np.mean((probability - ran) ** 2)) if n else None,
    )


def sharpest(rows: Sequence[Judged]) -> list[Judged]:
    """Return the share `SHARPEST` of the rows whose predicted memory is nearest to capacity."""
    nearest = sorted(rows, key=lambda row: abs(np.log(row.share)))
    return nearest[: ceil(SHARPEST * len(rows))]


def reliability_bins(rows: Sequence[Judged]) -> Iterable[VerdictBin]:
    """Yield the share of rows that ran by their probability, of at least `MIN_ROWS_OF_BIN` rows each.

    A bin of `BIN_EDGES` with fewer rows is joined with the next, and the last with the one before.
    """
    probability, ran = _columns(rows)
    edges = [0.0]
    for edge in BIN_EDGES[1:]:
        if _is_in(probability, edges[-1], edge).sum() >= MIN_ROWS_OF_BIN:
            edges.append(edge)
    if len(edges) > 1:
        edges[-1] = 1.0
    for low, high in pairwise(edges):
        within = _is_in(probability, low, high)
        yield VerdictBin(
            rows=int(within.sum()),
            low=low,
            high=high,
            stated=float(probability[within].mean()),
            ran=float(ran[within].mean()),
        )


def _is_in(probability: Floats, low: float, high: float) -> Bools:
    """Return which probabilities lie in a bin: its lower edge belongs to it, and so does 1."""
    return np.asarray((probability >= low) & ((probability < high) | (high == 1.0)))


def _columns(rows: Sequence[Judged]) -> tuple[Floats, Bools]:
    """Return the probabilities that rows fit, and whether they ran."""
    probability = np.array([row.probability for row in rows], np.float64)
    return probability, np.array([row.ran for row in rows], bool)


def _group_errors(rows: Iterable[tuple[str, Judged]]) -> dict[str, VerdictErrors]:
    groups: dict[str, list[Judged]] = defaultdict(list)
    for name, row in rows:
        groups[name].append(row)
    return {name: verdict_errors(group) for name, group in sorted(groups.items())}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
