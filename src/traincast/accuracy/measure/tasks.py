"""Benchmark tasks: kernels, copies and collectives over sizes, coarse sizes first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Family = Literal["products", "attention", "memory", "dispatch", "copies", "collectives"]
Scope = Literal["all", "node"]
FAMILIES: Final[tuple[Family, ...]] = ("products", "attention", "memory", "dispatch", "copies", "collectives")
COLLECTIVE_OPS: Final = (
    "allreduce",
    "allgather",
    "reducescatter",
    "all2all",
    "p2p",
)  # names in tables of collectives
ELEMENT_BYTES: Final = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}  # per element
ARRAYS_MOVED: Final = {"copy": 2, "add": 3, "norm": 2, "gelu": 2}  # arrays read and written
MATMUL_SHAPES: Final = (  # m, n, k on a CPU: square, as in layers, skinny, and no multiple of a tile
    (512, 512, 512), (1024, 1024, 1024), (64, 512, 512), (256, 1024, 256), (1024, 256, 1024), (256, 256, 256), (1000, 1000, 1000),
    (16, 1024, 1024), (512, 2048, 512), (512, 512, 2048), (128, 128, 128), (520, 520, 520), (8, 512, 512), (1, 1024, 1024),
    (64, 64, 64), (32, 2048, 512), (2048, 64, 512), (500, 300, 700), (768, 768, 768), (130, 514, 258), (1024, 4096, 1024),
    (2048, 512, 2048), (384, 1536, 384), (512, 16, 512), (257, 257, 257), (2048, 2048, 2048),
)  # fmt: skip
ATTENTION_SHAPES: Final = (  # batch, heads, tokens, head width on a CPU
    (2, 4, 256, 64), (1, 4, 512, 64), (1, 8, 1024, 64), (4, 4, 128, 64), (1, 4, 512, 128), (2, 8, 256, 32), (1, 4, 2048, 64),
)  # fmt: skip
GPU_SCALE: Final = 8  # of matmul sides and sequence lengths on a GPU, which needs more work to be busy
SIZE_POWERS: Final = {  # exponents of two: elements of a memory kernel, bytes of a copy or a collective
    ("memory", "cpu"): (24, 18, 21, 26, 15, 23, 20, 25, 12, 17, 22, 19),
    ("memory", "cuda"): (28, 24, 20, 30, 26, 16, 22, 18, 29, 27, 25),
    ("copies", "cuda"): (26, 16, 22, 28, 12, 19),
    ("collectives", "cpu"): (22, 12, 17, 25, 20, 15, 23, 10, 19, 21, 18, 24, 14, 16),
    ("collectives", "cuda"): (26, 15, 22, 30, 18, 12, 24, 28, 20, 16, 32, 14, 25, 27, 29, 31),
}


@dataclass(frozen=True)
class Task:
    """One benchmark.

    Parameters
    ----------
    family, op : str
        Family and operation.
    dtype : str
        Type of its elements.
    sizes : tuple of int
        Matmuls: m, n, k. Attention: batch, heads, tokens, head width. Memory: elements. Collectives: bytes, as nccl-tests count
        them. Copies: bytes. Dispatch: operations.
    scope : {"all", "node"}
        Ranks of a collective: all, or those of each node, on all nodes at once.
    """

    family: Family
    op: str
    dtype: str
    sizes: tuple[int, ...]
    scope: Scope = "all"

    @property
    def key(self) -> str:
        """Name in the journal."""
        return "/".join((self.family, self.op, self.dtype, "x".join(map(str, self.sizes)), self.scope))

    @classmethod
    def of(cls, key: str) -> "Task":
        """Return the task of a key."""
        family, op, dtype, sizes, scope = key.split("/")
        return cls(family, op, dtype, tuple(map(int, sizes.split("x"))), scope)  # type: ignore[arg-type]  # as `key` wrote it

    @property
    def flops(self) -> float:
        """Arithmetic of a matmul [FLOP]."""
        m, n, k = self.sizes
        return 2.0 * m * n * k

    @property
    def nbytes(self) -> float:
        """Memory needed, approximately [byte]."""
        element_bytes = ELEMENT_BYTES[self.dtype]
        match self.family:
            case "products":
                m, n, k = self.sizes
                return float(element_bytes * (m * n + m * k + k * n))
            case "attention":
                b, h, s, d = self.sizes
                return 12.0 * element_bytes * b * h * s * d
            case "memory":
                return float(element_bytes * ARRAYS_MOVED[self.op] * self.sizes[0])
            case "copies" | "collectives":
                return 3.0 * self.sizes[0]
        return 0.0


def tasks(
    device: Literal["cpu", "cuda"], dtypes: Sequence[str], ranks: int, nodes: int, memory: float
) -> list[Task]:
    """Return all tasks, in each family the most informative first.

    Parameters
    ----------
    device : {"cpu", "cuda"}
        Type of device.
    dtypes : sequence of str
        Types of matmuls, that of training first.
    ranks, nodes : int
        Ranks of the job, and its nodes.
    memory : float
        Memory of a rank [byte].
    """
    candidates = [*_products(device, dtypes), *_attention(device, dtypes[0])]
    candidates += [
        Task("memory", op, dtypes[0], (1 << power,))
        for power in SIZE_POWERS["memory", device]
        for op in ARRAYS_MOVED
    ]
    candidates += [Task("dispatch", op, dtypes[0], (64,)) for op in ("kernel", "forward", "backward")]
    candidates += [
        Task("copies", op, "fp32", (1 << power,))
        for power in SIZE_POWERS.get(("copies", device), ())
        for op in ("to device", "to host")
    ]
    return [task for task in (*candidates, *_collectives(device, ranks, nodes)) if task.nbytes < memory / 4]


def _products(device: str, dtypes: Sequence[str]) -> Iterable[Task]:
    """Yield matmuls; sides above 64 are larger on a GPU."""
    scale = GPU_SCALE if device == "cuda" else 1
    for shape in MATMUL_SHAPES:
        sizes = tuple(side * scale if side > 64 else side for side in shape)
        for dtype in dtypes:
            if dtype != "fp8" or all(side % 16 == 0 for side in sizes):
                yield Task("products", "mm", dtype, sizes)


def _attention(device: str, dtype: str) -> Iterable[Task]:
    """Yield fused attention, causal forward and backward, and some full forward passes."""
    scale = GPU_SCALE if device == "cuda" else 1
    for i, (b, h, s, d) in enumerate(ATTENTION_SHAPES):
        for op in ("forward", "backward", *(("full",) if i < 3 else ())):
            yield Task("attention", op, dtype, (b, h * min(scale, 4), s * scale, d))


def _collectives(device: str, ranks: int, nodes: int) -> Iterable[Task]:
    """Yield collectives over sizes; with several nodes also those inside each node."""
    scopes: tuple[Scope, ...] = ("all", "node") if 1 < nodes < ranks else ("all",)
    for power in SIZE_POWERS["collectives", device] if ranks > 1 else ():
        for scope in scopes:
            members = ranks // nodes if scope == "node" else ranks
            for op in COLLECTIVE_OPS:
                yield Task(
                    "collectives", op, "fp32", (-(-(1 << power) // (4 * members)) * 4 * members,), scope
                )
