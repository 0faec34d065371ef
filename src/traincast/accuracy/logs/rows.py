"""Results of reading a file: rows of one kind, the name of the file, and what was left out and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

TRAINING: Final = (  # columns of a table of runs that a log may fill, and two on how the time was measured
    "id", "source", "stack", "model", "layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "seq", "mlp", "experts", "topk",
    "moe_ffn", "shared_experts", "dense_layers", "mla", "moe_detail", "gpu", "gpus", "gpus_per_node", "interconnect", "precision",
    "precision_detail", "tp", "sp", "cp", "ep", "pp", "vp", "dp", "zero", "zero_detail", "mbs", "gbs", "recompute",
    "recompute_detail", "flash_attention", "step_seconds", "tokens_per_s_per_gpu", "memory_gb_published", "memory_kind",
    "step_spread", "steps_measured", "notes",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """Measured training runs.

    Parameters
    ----------
    file : str
        Name of the file.
    rows : tuple of mapping of str to str
        Columns of a table of runs that can be predicted, as `traincast.accuracy.runs.run.read` takes them. ``step_seconds`` is
        a median over iterations [s]; of a log, ``step_spread`` is the width of the middle half of them over the median, and
        ``steps_measured`` how many there are.
    left_out : tuple of str
        Measurements not used, and why.
    """

    file: str
    rows: tuple[Mapping[str, str], ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CollectiveRow:
    """A measured collective operation.

    Parameters
    ----------
    op : {"allreduce", "allgather", "reducescatter", "all2all", "broadcast", "reduce", "gather", "scatter", "p2p"}
        Operation.
    nodes, gpus_per_node, ranks : int
        Nodes, GPUs per node, and ranks of the group.
    size_bytes : float
        Size as nccl-tests counts it: the larger of a rank's input and output [byte].
    time_us : float
        Time, out of place where both were measured [µs].
    gpu : str
        Name of the accelerators in the log, ``""`` if not known.
    """

    op: str
    nodes: int
    gpus_per_node: int
    ranks: int
    size_bytes: float
    time_us: float
    gpu: str = ""


@dataclass(frozen=True, kw_only=True)
class CollectiveRows:
    """Measured collectives of a file; `left_out` says what was not used, and why."""

    file: str
    rows: tuple[CollectiveRow, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MatmulRow:
    """A measured matrix product.

    Parameters
    ----------
    m, n, k : int
        Shape: m × k times k × n.
    dtype : str
        Type of the inputs: fp32, tf32, fp16, bf16, fp8, mxfp8 or nvfp4.
    time_us : float
        Time of the whole batch [µs].
    batch : int
        Products in a batch.
    gpu : str
        Name of the accelerator in the table, ``""`` if not known.
    """

    m: int
    n: int
    k: int
    dtype: str
    time_us: float
    batch: int = 1
    gpu: str = ""


@dataclass(frozen=True, kw_only=True)
class GemmRows:
    """Measured matrix products of a file; `left_out` says what was not used, and why."""

    file: str
    rows: tuple[MatmulRow, ...]
    left_out: tuple[str, ...] = ()
