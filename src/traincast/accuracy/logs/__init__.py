"""Readers of existing measurements: training logs, output of nccl-tests, tables; recognised by content.

    from traincast.accuracy.logs import read

    read("megatron.log", gpu="h100-sxm-80")                  # TrainingRows
    read("all_reduce.txt")                                   # CollectiveRows
    read("gemm.csv", dtype="bf16")                           # GemmRows

Formats are described in docs/calibration.md; every reader returns rows, or raises an `InputError` that lists all that is missing.
"""

from traincast.accuracy.logs.detect import GIVEN as GIVEN
from traincast.accuracy.logs.detect import Kind as Kind
from traincast.accuracy.logs.detect import holds as holds
from traincast.accuracy.logs.detect import not_used as not_used
from traincast.accuracy.logs.detect import read as read
from traincast.accuracy.logs.rows import CollectiveRow as Collective
from traincast.accuracy.logs.rows import CollectiveRows as CollectiveRows
from traincast.accuracy.logs.rows import GemmRows as GemmRows
from traincast.accuracy.logs.rows import MatmulRow as Gemm
from traincast.accuracy.logs.rows import TrainingRows as TrainingRows

__all__ = [
    "GIVEN",
    "Collective",
    "CollectiveRows",
    "Gemm",
    "GemmRows",
    "Kind",
    "TrainingRows",
    "holds",
    "not_used",
    "read",
]
