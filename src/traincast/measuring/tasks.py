"""What is measured: kernels, copies and collectives over sizes, the coarse ones first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Family = Literal["products", "attention", "memory", "dispatch", "copies", "collectives"]
SHARES: Final[dict[Family, float]] = {  # of the time
    "products": 0.30,
    "attention": 0.15,
    "memory": 0.15,
    "dispatch": 0.05,
    "copies": 0.05,
    "collectives": 0.30,
}
OPS: Final = ("allreduce", "allgather", "reducescatter", "all2all", "p2p")  # as tables of collectives call them
BYTES: Final = {"fp32": 4, "bf16": 2, "fp16": 2}  # of an element
MOVED: Final = {"copy": 2, "add": 3, "norm": 2, "gelu": 2}  # arrays read and written


@dataclass(frozen=True)
class Task:
    """One thing that is timed.

    Parameters
    ----------
    family, op : str
        What it is.
    dtype : str
        Type of its elements.
    sizes : tuple of int
        Products: m, n, k. Attention: sequences, heads, tokens, width of a head. Memory: elements. Collectives: bytes, as
        nccl-tests counts them. Copies: bytes. Dispatch: operations.
    """

    family: Family
    op: str
    dtype: str
    sizes: tuple[int, ...]

    @property
    def key(self) -> str:
        """Its name in a file."""
        return f"{self.family}/{self.op}/{self.dtype}/{'x'.join(map(str, self.sizes))}"

    @property
    def flops(self) -> float:
        """Arithmetic of products, and of attention on the whole square [FLOP]; 0 of anything else."""
        if self.family == "products":
            m, n, k = self.sizes
            return 2.0 * m * n * k
        if self.family == "attention":
            b, h, s, d = self.sizes
            return 4.0 * b * h * s * s * d * (2.5 if self.op == "backward" else 1.0)
        return 0.0

    @property
    def nbytes(self) -> float:
        """Memory that it needs, about [byte]."""
        each = BYTES.get(self.dtype, 4)
        match self.family:
            case "products":
                m, n, k = self.sizes
                return float(each * (m * n + m * k + k * n))
            case "attention":
                b, h, s, d = self.sizes
                return 12.0 * each * b * h * s * d
            case "memory":
                return float(each * MOVED[self.op] * self.sizes[0])
            case "copies" | "collectives":
                return 3.0 * self.sizes[0]
        return 0.0


def of_key(key: str) -> Task:
    """The task of a name in a file."""
    family, op, dtype, sizes = key.split("/")
    return Task(family, op, dtype, tuple(map(int, sizes.split("x"))))  # type: ignore[arg-type]  # as `key` wrote it


def tasks(device: Literal["cpu", "cuda"], dtypes: Sequence[str], ranks: int, memory: float) -> list[Task]:
    """All that can be measured, in each family what tells most first.

    Parameters
    ----------
    device : {"cpu", "cuda"}
        Where.
    dtypes : sequence of str
        Types of products, that of training first.
    ranks : int
        Ranks of the job.
    memory : float
        Memory of a rank [byte].
    """
    found = [*_products(device, dtypes), *_attention(device, dtypes), *_memory(device, dtypes[0])]
    found += [Task("dispatch", op, dtypes[0], (64,)) for op in ("kernel", "forward", "backward", "host")]
    if device == "cuda":
        sizes = [1 << power for power in (26, 16, 22, 28, 12, 19)]
        found += [Task("copies", op, "fp32", (size,)) for size in sizes for op in ("to device", "to host")]
    if ranks > 1:
        found += _collectives(device, ranks)
    return [one for one in found if one.nbytes < memory / 4]


def _products(device: str, dtypes: Sequence[str]) -> Iterable[Task]:
    """Square products, those of layers, skinny ones, and sizes that are no multiple of a tile."""
    scale = 8 if device == "cuda" else 1
    shapes = [
        (512, 512, 512), (1024, 1024, 1024), (64, 512, 512), (256, 1024, 256), (1024, 256, 1024), (256, 256, 256),
        (1000, 1000, 1000), (16, 1024, 1024), (512, 2048, 512), (512, 512, 2048), (128, 128, 128), (520, 520, 520),
        (8, 512, 512), (1, 1024, 1024), (64, 64, 64), (32, 2048, 512), (2048, 64, 512), (500, 300, 700), (768, 768, 768),
        (130, 514, 258), (1024, 4096, 1024), (2048, 512, 2048), (384, 1536, 384), (512, 16, 512), (257, 257, 257),
        (2048, 2048, 2048),
    ]  # fmt: skip
    for m, n, k in shapes:
        for dtype in dtypes:
            yield Task(
                "products", "mm", dtype, (m * scale, n * scale, k * scale) if min(m, n, k) > 100 else (m, n * scale, k * scale)
            )


def _attention(device: str, dtypes: Sequence[str]) -> Iterable[Task]:
    """Fused attention forward and backward, with a causal mask."""
    scale = 4 if device == "cuda" else 1
    shapes = [
        (2, 4, 256, 64),
        (1, 4, 512, 64),
        (1, 8, 1024, 64),
        (4, 4, 128, 64),
        (1, 4, 512, 128),
        (2, 8, 256, 32),
        (1, 4, 2048, 64),
    ]
    for b, h, s, d in shapes:
        for op in ("forward", "backward"):
            yield Task("attention", op, dtypes[0], (b * scale, h * scale, s * scale, d))


def _memory(device: str, dtype: str) -> Iterable[Task]:
    """Kernels that move memory, over sizes inside and beyond caches."""
    powers = (24, 18, 21, 26, 15, 23, 20, 25, 12, 17, 22, 19) if device == "cpu" else (28, 24, 20, 30, 26, 16, 22, 18, 29, 27, 25)
    for power in powers:
        for op in MOVED:
            yield Task("memory", op, dtype, (1 << power,))


def _collectives(device: str, ranks: int) -> Iterable[Task]:
    """Collectives over sizes."""
    powers = (22, 12, 17, 25, 20, 15, 23, 10, 19, 21, 18, 24, 14, 16)
    if device == "cuda":
        powers = (26, 15, 22, 30, 18, 12, 24, 28, 20, 16, 32, 14, 25, 27, 29, 31)
    for power in powers:
        for op in OPS:
            yield Task("collectives", op, "fp32", ((1 << power) // (4 * ranks) * 4 * ranks,))
