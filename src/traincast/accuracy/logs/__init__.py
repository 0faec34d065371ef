"""Readers of existing measurements: training logs, output of nccl-tests, tables; recognised by content.

    from traincast.accuracy.logs import read

    read("megatron.log", gpu="h100-sxm-80")                  # TrainingRows
    read("all_reduce.txt")                                   # CollectiveRows
    read("gemm.csv", dtype="bf16")                           # GemmRows

Formats are described in docs/calibration.md; readers return rows, or raise an `InputError` that lists all
that is missing.
"""

from traincast.accuracy.logs.detect import (
    GIVEN,
    Kind,
    StepTimes,
    holds,
    not_used,
    read,
    read_times,
    without_effect,
)
from traincast.accuracy.logs.rows import CollectiveRow as Collective
from traincast.accuracy.logs.rows import CollectiveRows, GemmRows, TrainingRows
from traincast.accuracy.logs.rows import MatmulRow as Gemm

__all__ = [
    "GIVEN",
    "Collective",
    "CollectiveRows",
    "Gemm",
    "GemmRows",
    "Kind",
    "StepTimes",
    "TrainingRows",
    "holds",
    "not_used",
    "read",
    "read_times",
    "without_effect",
]
