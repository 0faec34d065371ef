"""Prediction errors of a measured system file on its own benchmarks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from traincast.accuracy.measure import predict as predicted
from traincast.accuracy.measure.bounded_fit import Values
from traincast.accuracy.measure.fit_accelerator import Figures
from traincast.accuracy.measure.fit_network import system_of
from traincast.accuracy.measure.tables import Row
from traincast.core.quantities import Floats

MIN_MEMORY_BOUND_BYTES: Final = 2.0**20  # traffic of a kernel bound by memory, not by launch overhead [byte]
LARGE_MESSAGE_BYTES: Final = 2**18  # size of a collective bound by bandwidth [byte]
ALL_KINDS: Final = "all"


@dataclass(frozen=True)
class KindError:
    """Relative errors of predicted times, for one kind of a family.

    Parameters
    ----------
    family, kind : str
        Family, and type or operation of the tasks.
    rows : int
        Number of tasks.
    mape, bias : float
        Mean absolute error, and mean error [1].
    worst : str
        Key of the task with the largest error.
    """

    family: str
    kind: str
    rows: int
    mape: float
    bias: float
    worst: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        return asdict(self)


def errors_by_family(fit: Figures, network: Sequence[Values]) -> tuple[KindError, ...]:
    """Return the errors of each family and kind.

    Parameters
    ----------
    fit : Figures
        Fitted figures of a machine, with its benchmarks.
    network : sequence of dict of str to float
        Fitted figures of its tiers [SI].
    """
    memory = [row for row in fit.of("memory") if row.task.nbytes >= MIN_MEMORY_BOUND_BYTES]
    predictions: Mapping[str, tuple[list[Row], Callable[[list[Row]], Floats]]] = {
        "products": (fit.of("products"), lambda rows: predicted.products(rows, fit.gpu(), fit.bare())),
        "attention": (fit.of("attention"), lambda rows: predicted.attention(rows, fit.gpu(), fit.assumed())),
        "memory": (memory, lambda rows: predicted.memory(rows, fit.gpu(), fit.bare())),
        "collectives": (
            fit.of("collectives") if network else [],
            lambda rows: predicted.collectives(rows, system_of(fit, network), fit.assumed(), fit.about),
        ),
    }
    errors: list[KindError] = []
    for family, (rows, predict) in predictions.items():
        if rows:
            errors += _errors_by_kind(family, rows, predict(rows) / fit.seconds(rows) - 1)
    return tuple(errors)


def _errors_by_kind(family: str, rows: Sequence[Row], relative: Floats) -> list[KindError]:
    """Return the errors of each kind of a family, and of the whole family."""
    kinds = [{row.task.dtype if family == "products" else row.task.op, ALL_KINDS} for row in rows]
    for row, row_kinds in zip(rows, kinds, strict=True):
        if family == "collectives":
            row_kinds.add("small" if row.task.sizes[0] < LARGE_MESSAGE_BYTES else "large")
    errors = []
    for kind in sorted(
        {kind for row_kinds in kinds for kind in row_kinds},
        key=lambda name: (name == ALL_KINDS, name in ("small", "large"), name),
    ):
        mask = np.array([kind in row_kinds for row_kinds in kinds])
        worst = rows[int(np.argmax(np.abs(relative) * mask))].task.key
        errors.append(
            KindError(
                family,
                kind,
                int(mask.sum()),
                float(np.mean(np.abs(relative[mask]))),
                float(np.mean(relative[mask])),
                worst,
            )
        )
    return errors
