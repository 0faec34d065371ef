"""Measurements that people already have: logs of training, output of nccl-tests, tables; told apart by what is in the file.

    from traincast.accuracy.logs import read

    read("megatron.log", gpu="h100-sxm-80")                  # TrainingRows
    read("all_reduce.txt")                                   # CollectiveRows
    read("gemm.csv", dtype="bf16")                           # GemmRows

Formats are described in docs/calibration.md; every reader gives rows, or an `InputError` that says all that is missing.
"""

from traincast.accuracy.logs.reader import GIVEN as GIVEN
from traincast.accuracy.logs.reader import Kind as Kind
from traincast.accuracy.logs.reader import holds as holds
from traincast.accuracy.logs.reader import not_used as not_used
from traincast.accuracy.logs.reader import read as read
from traincast.accuracy.logs.tables import Collective as Collective
from traincast.accuracy.logs.tables import CollectiveRows as CollectiveRows
from traincast.accuracy.logs.tables import Gemm as Gemm
from traincast.accuracy.logs.tables import GemmRows as GemmRows
from traincast.accuracy.logs.tables import TrainingRows as TrainingRows

__all__ = ["GIVEN", "Collective", "CollectiveRows", "Gemm", "GemmRows", "Kind", "TrainingRows", "holds", "not_used", "read"]
