"""Results of reading a file: rows of one kind, the name of the file, and what was left out and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, Self

from traincast.accuracy.logs.text import whole_number
from traincast.accuracy.runs.cells import is_file
from traincast.catalog import FACTS, load_model
from traincast.core import InputError, close_to, first_problems

TRAINING: Final = (  # columns of a table of runs that a log may fill, and two on how the time was measured
    "id", "source", "stack", "system", "model", "layers", "hidden", "ffn", "heads", "kv_heads", "vocab",
    "seq", "mlp", "head_dim", "experts", "topk", "moe_ffn", "shared_experts", "shared_ffn", "dense_layers",
    "moe_every", "mla", "mtp", "gpu", "gpus", "gpus_per_node", "interconnect", "precision", "tp", "sp", "cp",
    "ep", "pp", "vp", "dp", "zero", "mbs", "gbs", "recompute", *FACTS, "flash_attention",
    "step_seconds", "tokens_per_s_per_gpu", "memory_gb_published", "memory_kind",
    "step_spread", "steps_measured", "notes",
)  # fmt: skip
ROWS_SHOWN: Final = 5  # of those left out, in an error


@dataclass(frozen=True, kw_only=True)
class FileRows:
    """Measurements in a file; `left_out` says what was not used, and why."""

    file: str
    rows: tuple[object, ...]
    left_out: tuple[str, ...] = ()

    @classmethod
    def from_rows(cls, file: str, rows: Sequence[object], left_out: Sequence[str], missing: str) -> Self:
        """Return the rows of a file; raise `InputError` if there are none, with what is missing."""
        if not rows:
            raise InputError(file, [f"holds no {missing}", *left_out[:ROWS_SHOWN]])
        return cls(file=file, rows=tuple(rows), left_out=tuple(left_out))


@dataclass(frozen=True, kw_only=True)
class TrainingRows(FileRows):
    """Training runs that can be predicted, as rows for `traincast.accuracy.runs.run.read_run`.

    ``step_seconds`` of a log is a median over iterations [s], ``step_spread`` the width of the middle half of
    them over it, and ``steps_measured`` their number.
    """

    rows: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class CollectiveRow:
    """A timed collective; `op` is one of `nccl_tests.OPERATIONS`.

    `size_bytes` is as nccl-tests counts it: the larger of a rank's input and output [byte]. `gpu` is the name
    of the accelerators in the log, ``""`` if not known.
    """

    op: str
    nodes: int
    gpus_per_node: int
    ranks: int
    size_bytes: float
    time_us: float
    gpu: str = ""


@dataclass(frozen=True, kw_only=True)
class CollectiveRows(FileRows):
    """Timed collectives of a file."""

    rows: tuple[CollectiveRow, ...]


@dataclass(frozen=True, kw_only=True)
class MatmulRow:
    """A timed batch of matrix products m × k times k × n, with the type of the inputs."""

    m: int
    n: int
    k: int
    dtype: str
    time_us: float
    batch: int = 1
    gpu: str = ""


@dataclass(frozen=True, kw_only=True)
class GemmRows(FileRows):
    """Timed matrix products of a file."""

    rows: tuple[MatmulRow, ...]


def check_columns(given: Mapping[str, object]) -> None:
    """Raise `InputError` for given names that are no column of a run."""
    unknown = [name for name in given if name not in TRAINING]
    if unknown:
        raise InputError(
            "what is given",
            first_problems(unknown, lambda name: f"{name}: no column of a run; {close_to(name, TRAINING)}"),
        )


def of_model(name: str) -> dict[str, object]:
    """Return the columns that a model of the catalogue, or of a file, fills; seq is left to the run."""
    model = load_model(name)
    columns: dict[str, object] = {
        "model": name if is_file(name) else model.name,
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "ffn": model.ffn,
        "kv_heads": model.kv_heads or model.heads,
        "vocab": model.vocab,
        "mlp": model.mlp,
        "mla": str(model.latent is not None),
    }
    columns |= {"head_dim": model.head_dim, "mtp": model.mtp or None}
    if experts := model.experts:
        columns |= {"experts": experts.experts, "topk": experts.topk, "moe_ffn": experts.ffn}
        columns |= {"dense_layers": experts.first_dense, "shared_ffn": experts.shared_ffn or None}
        columns["moe_every"] = experts.every if experts.every > 1 else None
    return {name: value for name, value in columns.items() if value is not None}


def complete(file: str, from_log: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """Return the columns of a row: given values first, then the log, then the given model."""
    stated = {name: value for name, value in from_log.items() if value not in (None, "")}
    name = given.get("model")
    model = of_model(str(name)) if name and "layers" not in stated else {}
    columns = {"id": file.rsplit(".", 1)[0], "source": file} | model | stated | dict(given)
    if model:
        columns["model"] = model["model"]
    gpus = whole_number(columns.get("gpus"))
    ranks = prod(whole_number(columns.get(degree)) or 1 for degree in ("tp", "pp", "cp"))
    if gpus and not columns.get("dp") and gpus % ranks == 0:
        columns["dp"] = gpus // ranks
    return columns
