"""Predicted times of benchmark tasks, with the formulas of a training step."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from traincast.accuracy.fit.benchmark_residuals import collective_seconds, product_seconds
from traincast.accuracy.fit.kernel_benchmarks import pass_seconds
from traincast.accuracy.measure.tables import Row, collective_row, matmul_row
from traincast.accuracy.measure.tasks import ARRAYS_MOVED
from traincast.core.assumptions import Assumptions
from traincast.core.precision import PRECISIONS, Precision
from traincast.core.quantities import Floats
from traincast.core.system import Accelerator, System
from traincast.operations.attention import Heads, flash
from traincast.operations.operation import PassCount, Vector

FLOPS_PER_ELEMENT: Final = {"copy": 0.0, "add": 1.0, "norm": 9.0, "gelu": 8.0}  # (arXiv 2410.00273)


def products(rows: Sequence[Row], gpu: Accelerator, assumed: Assumptions) -> Floats:
    """Predict the times of matmuls, shape (rows,) [s]."""
    return product_seconds(gpu, assumed, [matmul_row(row) for row in rows])


def memory(rows: Sequence[Row], gpu: Accelerator, assumed: Assumptions) -> Floats:
    """Predict the times of memory-bound kernels, shape (rows,) [s]."""
    recipe = _precision_of(rows)
    elements = np.array([float(row.task.sizes[0]) for row in rows])
    flops = np.array([FLOPS_PER_ELEMENT[row.task.op] for row in rows]) * elements
    nbytes = (
        np.array([ARRAYS_MOVED[row.task.op] for row in rows])
        * assumed.memory.element_bytes
        * recipe.width
        * elements
    )
    return np.asarray(pass_seconds(PassCount((Vector(flops),), nbytes), gpu, assumed, recipe), float)


def attention(rows: Sequence[Row], gpu: Accelerator, assumed: Assumptions) -> Floats:
    """Predict the times of fused attention, causal or full, shape (rows,) [s]."""
    recipe = _precision_of(rows)
    b, h, s, d = np.array([row.task.sizes for row in rows], float).T
    causal = np.array([row.task.op != "full" for row in rows])
    share = 1 - causal * assumed.attention.causal_skipping * (1 - (1 + 1 / s) / 2)
    kernel = flash(
        assumed.memory.element_bytes * recipe.width,
        Heads(b, h, h, s, s, d, d, share),
        ((), ()),
        dropped=False,
    )
    fused = assumed.with_values({"attention.kernel": "fa2"})
    forward, backward = (
        np.asarray(pass_seconds(passes, gpu, fused, recipe), float)
        for passes in (kernel.forward, kernel.backward)
    )
    return np.where([row.task.op == "backward" for row in rows], backward, forward)


def collectives(
    rows: Sequence[Row], system: System, assumed: Assumptions, about: Mapping[str, Any]
) -> Floats:
    """Predict the times of collectives and p2p messages, shape (rows,) [s]."""
    return collective_seconds(system, assumed, [collective_row(row, about) for row in rows])


def _precision_of(rows: Sequence[Row]) -> Precision:
    """Return the precision of rows, which all have one type."""
    return PRECISIONS[rows[0].task.dtype]
