"""How far the errors of two measured runs differ, by what the runs do not share, against what is stated.

Each run is predicted with constants fitted without its group (``measured/left_out.csv``). A pair lies inside
where the logarithm of its ratio, measured against predicted, is within the half width that
`traincast.planner.answers.differences.half_width` states for it.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, NamedTuple

import numpy as np

from error_model import weighted_quantile
from left_out import SPLITS
from left_out_residuals import Residuals
from traincast.planner.answers.differences import Predicted, half_width

MOST: Final = 10  # pairs of two cells, drawn with a fixed seed
Fact = Callable[[Residuals, int], Hashable]
FACTS: Final[Mapping[str, Fact]] = {
    "model": lambda data, i: (
        SPLITS["without_model"].group(data.runs[i]),
        data.runs[i].model.layers,
        data.runs[i].model.seq,
    ),
    "accelerator": lambda data, i: data.cases[i].accelerator,
    "software": lambda data, i: data.cases[i].stack,
    "GPUs": lambda data, i: data.runs[i].plan.gpus,
    "plan": lambda data, i: str(data.runs[i].plan),
}
# what differs between the two runs of a pair -> what they share
SHARED: Final[Mapping[str, tuple[str, ...]]] = {
    "accelerator": ("model", "software"),
    "software": ("model", "accelerator"),
    "model": ("accelerator", "software"),
    "GPUs": ("model", "accelerator", "software"),
    "plan": ("model", "accelerator", "software", "GPUs"),
}


@dataclass(frozen=True)
class PairCoverage:
    """Pairs that differ in one respect."""

    differ: str
    moe: bool
    pairs: int
    inside: float  # share, each two cells of n pairs weighing as the square root of n
    error: float  # that 90 % of the differences are within, of the logarithm
    stated: float  # median of the stated half widths


class _Pair(NamedTuple):
    first: int
    second: int
    weight: float


def pair_coverage(data: Residuals) -> list[PairCoverage]:
    """Return how many pairs lie inside, by what they do not share and by kind of model."""
    rows = []
    for differ, shared in SHARED.items():
        pairs = _pairs(data, differ, shared)
        for moe in (False, True):
            of_kind = [pair for pair in pairs if data.cases[pair.first].moe == moe]
            if len(of_kind) > 1:
                rows.append(_coverage(data, differ, moe, of_kind))
    return rows


def _pairs(data: Residuals, differ: str, shared: tuple[str, ...]) -> list[_Pair]:
    cells: dict[Any, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i in np.flatnonzero(data.weights > 0).tolist():
        key = tuple(FACTS[name](data, i) for name in shared)
        cells[key][FACTS[differ](data, i)].append(i)
    rng = np.random.default_rng(0)
    found = []
    for of_key in cells.values():
        for first, second in combinations(of_key.values(), 2):
            every = [(a, b) for a in first for b in second]
            if len(every) > MOST:
                every = [every[k] for k in rng.choice(len(every), MOST, replace=False)]
            found += [_Pair(a, b, len(every) ** -0.5) for a, b in every]
    return found


def _coverage(data: Residuals, differ: str, moe: bool, pairs: list[_Pair]) -> PairCoverage:
    def step(i: int) -> Predicted:
        run = data.runs[i]
        return Predicted(data.cases[i], run.plan, FACTS["model"](data, i), run.system)

    errors = np.array([abs(data.left_out[pair.first] - data.left_out[pair.second]) for pair in pairs])
    halves = np.array([half_width(step(pair.second), step(pair.first)) for pair in pairs])
    weights = np.array([pair.weight for pair in pairs])
    inside = float(weights @ (errors <= halves) / weights.sum())
    quantile = float(weighted_quantile(errors, weights, 0.9))
    return PairCoverage(differ, moe, len(pairs), inside, quantile, float(np.median(halves)))


if __name__ == "__main__":
    from left_out_residuals import gather

    for row in pair_coverage(gather()):
        print(row)
