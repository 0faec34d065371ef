"""What reading a file gives: rows of one kind, the file's name, and what was left out and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

TRAINING: Final = (  # columns of a table of runs that a log may fill, and two that say how the time was measured
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
        Name of the file they are from.
    rows : tuple of mapping of str to str
        Columns of a table of runs that can be predicted, as `traincast.accuracy.runs.run.read` takes them. ``step_seconds`` is
        a median over iterations [s]; of a log, ``step_spread`` is the width of the middle half of them over the median, and
        ``steps_measured`` how many there are.
    left_out : tuple of str
        What was not used, and why.
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
        What was run.
    nodes, gpus_per_node, ranks : int
        Where it ran.
    size_bytes : float
        Size as nccl-tests counts it: the larger of a rank's input and output [byte].
    time_us : float
        Time, out of place where both were measured [µs].
    gpu : str
        What the accelerators call themselves, ``""`` if not known.
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
        Its shape: m × k times k × n.
    dtype : str
        Type of the inputs: fp32, tf32, fp16, bf16, fp8, mxfp8 or nvfp4.
    time_us : float
        Time of all of the batch [µs].
    batch : int
        Products run at once.
    gpu : str
        What it ran on, ``""`` if the table does not say.
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
