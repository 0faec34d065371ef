"""Benchmark tasks, coarse sizes first, and the time budget that chooses between them."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Self

Family = Literal["products", "attention", "memory", "dispatch", "copies", "collectives"]
Scope = Literal["all", "node"]
COLLECTIVE_OPS: Final = ("allreduce", "allgather", "reducescatter", "all2all", "p2p")  # names of nccl-tests
ELEMENT_BYTES: Final = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
ARRAYS_MOVED: Final = {"copy": 2, "add": 3, "norm": 2, "gelu": 2}  # arrays read and written
MATMUL_SHAPES: Final = (  # m, n, k on a CPU: square, as in layers, skinny, and no multiple of a tile
    (512, 512, 512), (1024, 1024, 1024), (64, 512, 512), (256, 1024, 256), (1024, 256, 1024), (256, 256, 256),
    (1000, 1000, 1000), (16, 1024, 1024), (512, 2048, 512), (512, 512, 2048), (128, 128, 128),
    (520, 520, 520), (8, 512, 512), (1, 1024, 1024), (64, 64, 64), (32, 2048, 512), (2048, 64, 512),
    (500, 300, 700),
    (768, 768, 768), (130, 514, 258), (1024, 4096, 1024), (2048, 512, 2048), (384, 1536, 384),
    (512, 16, 512), (257, 257, 257), (2048, 2048, 2048),
)  # fmt: skip
ATTENTION_SHAPES: Final = (  # batch, heads, tokens, head width on a CPU
    (2, 4, 256, 64),
    (1, 4, 512, 64),
    (1, 8, 1024, 64),
    (4, 4, 128, 64),
    (1, 4, 512, 128),
    (2, 8, 256, 32),
    (1, 4, 2048, 64),
)
FULL_ATTENTION_SHAPES: Final = 3  # the first of them are also timed without a causal mask
GPU_SCALE: Final = 8  # of matmul sides and sequence lengths on a GPU, which needs more work to be busy
MAX_HEAD_SCALE: Final = 4  # of attention heads on a GPU
MAX_SKINNY_SIDE: Final = 64  # matmul sides up to this one are the same on a GPU
SIZE_POWERS: Final = {  # exponents of two: elements of a memory kernel, bytes of a copy or a collective
    ("memory", "cpu"): (24, 18, 21, 26, 15, 23, 20, 25, 12, 17, 22, 19),
    ("memory", "cuda"): (28, 24, 20, 30, 26, 16, 22, 18, 29, 27, 25),
    ("copies", "cuda"): (26, 16, 22, 28, 12, 19),
    ("collectives", "cpu"): (22, 12, 17, 25, 20, 15, 23, 10, 19, 21, 18, 24, 14, 16),
    ("collectives", "cuda"): (26, 15, 22, 30, 18, 12, 24, 28, 20, 16, 32, 14, 25, 27, 29, 31),
}
SMALL_OPERATIONS: Final = 64  # in a dispatch task


class FamilySpec(NamedTuple):
    """What tasks of a family have in common."""

    share: float  # of the time; rescaled to the families present
    table: str  # suffix of the name of the table they are written to
    sizes: tuple[str, ...]  # what the sizes of a task are, as columns of the table
    nbytes: Callable[..., float]  # memory needed, of the operation, bytes of an element and sizes [byte]


FAMILIES: Final[dict[Family, FamilySpec]] = {
    "products": FamilySpec(
        0.30, "products", ("m", "n", "k"), lambda _, width, m, n, k: width * (m * n + m * k + k * n)
    ),
    "collectives": FamilySpec(0.30, "collectives", ("size_bytes",), lambda _, width, n: 3.0 * n),
    "attention": FamilySpec(
        0.15,
        "kernels",
        ("batch", "heads", "tokens", "head_dim"),
        lambda _, width, b, h, s, d: 12.0 * width * b * h * s * d,
    ),
    "memory": FamilySpec(0.15, "kernels", ("elements",), lambda op, width, n: width * ARRAYS_MOVED[op] * n),
    "dispatch": FamilySpec(0.05, "kernels", ("operations",), lambda *_: 0.0),
    "copies": FamilySpec(0.05, "kernels", ("size_bytes",), lambda _, width, n: 3.0 * n),
}
MAX_VISITS: Final = 4  # of a task
VISITS_PER_FAMILY: Final = 60.0  # a visit gets the family's time divided by this
# time for the samples of a visit [s]
MIN_VISIT_SECONDS = 0.01
MAX_VISIT_SECONDS = 2.0
# of a visit
MIN_SAMPLES = 3
MAX_SAMPLES = 60
MIN_CALL_SECONDS: Final = 1e-9  # what a clock may return for a call of nothing


@dataclass(frozen=True)
class Task:
    """One benchmark.

    What its `sizes` are stands in `FAMILIES`; bytes of collectives are as nccl-tests count them. `scope` says
    who takes part in a collective: all ranks, or those of each node, on all nodes at once.
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
    def from_key(cls, key: str) -> Self:
        """Return the task of a key."""
        family, op, dtype, sizes, scope = key.split("/")
        numbers = tuple(map(int, sizes.split("x")))
        return cls(family, op, dtype, numbers, scope)  # type: ignore[arg-type]  # as `key` wrote it

    @property
    def sort_key(self) -> tuple[object, ...]:
        """Place in a table: by family, operation, type and scope, then by size."""
        return self.family, self.op, self.dtype, self.scope, self.sizes

    @property
    def flops(self) -> float:
        """Arithmetic of a matmul [FLOP]."""
        m, n, k = self.sizes
        return 2.0 * m * n * k

    @property
    def nbytes(self) -> float:
        """Memory needed, approximately [byte]."""
        return float(FAMILIES[self.family].nbytes(self.op, ELEMENT_BYTES[self.dtype], *self.sizes))


def tasks(
    device: Literal["cpu", "cuda"], dtypes: Sequence[str], ranks: int, nodes: int, memory: float
) -> list[Task]:
    """Return the tasks that fit in the `memory` of a rank [byte], in each family the most informative first.

    The first of `dtypes` is that of training; products are timed in all of them.
    """
    scale = GPU_SCALE if device == "cuda" else 1
    candidates: list[Task] = []
    for shape in MATMUL_SHAPES:
        sizes = tuple(side * scale if side > MAX_SKINNY_SIDE else side for side in shape)
        aligned = all(side % 16 == 0 for side in sizes)  # fp8 products need it
        candidates += [Task("products", "mm", dtype, sizes) for dtype in dtypes if aligned or dtype != "fp8"]
    for i, (b, h, s, d) in enumerate(ATTENTION_SHAPES):
        ops = ("forward", "backward", *(("full",) if i < FULL_ATTENTION_SHAPES else ()))
        sizes = (b, h * min(scale, MAX_HEAD_SCALE), s * scale, d)
        candidates += [Task("attention", op, dtypes[0], sizes) for op in ops]
    for power in SIZE_POWERS["memory", device]:
        candidates += [Task("memory", op, dtypes[0], (1 << power,)) for op in ARRAYS_MOVED]
    for op in ("kernel", "forward", "backward"):
        candidates.append(Task("dispatch", op, dtypes[0], (SMALL_OPERATIONS,)))
    for power in SIZE_POWERS.get(("copies", device), ()):
        candidates += [Task("copies", op, "fp32", (1 << power,)) for op in ("to device", "to host")]
    scopes: tuple[Scope, ...] = ("all", "node") if 1 < nodes < ranks else ("all",)
    for power in SIZE_POWERS["collectives", device] if ranks > 1 else ():
        for scope in scopes:
            unit = 4 * (ranks // nodes if scope == "node" else ranks)  # bytes of an equal share of each rank
            sizes = (-(-(1 << power) // unit) * unit,)
            candidates += [Task("collectives", op, "fp32", sizes, scope) for op in COLLECTIVE_OPS]
    return [task for task in candidates if task.nbytes < memory / 4]


class TimeBudget:
    """Scheduler that chooses the next task; tasks with keys in `known` are done; `clock` returns seconds."""

    def __init__(
        self,
        tasks: Sequence[Task],
        known: Collection[str],
        seconds: float,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self._clock = clock
        self._seconds = seconds
        self._end = clock() + seconds
        self._queues: dict[Family, list[Task]] = {}
        for task in tasks:
            if task.key not in known:
                self._queues.setdefault(task.family, []).append(task)
        total = sum(FAMILIES[family].share for family in self._queues) or 1.0
        self._shares = {family: FAMILIES[family].share / total for family in self._queues}
        self._spent = dict.fromkeys(self._queues, 0.0)
        self._costs: dict[Task, float] = {}
        self._visits: dict[Task, int] = {}
        self._since = clock()

    @property
    def seconds_left(self) -> float:
        """Time left [s]."""
        return self._end - self._clock()

    def samples_seconds(self, task: Task) -> float:
        """Return the time for the samples of a visit [s]."""
        seconds = self._shares[task.family] * self._seconds / VISITS_PER_FAMILY
        return min(max(seconds, MIN_VISIT_SECONDS), MAX_VISIT_SECONDS)

    def next(self) -> Task | None:
        """Return the next task; None at the end.

        It is the first task of the family furthest behind its share that fits into the time left, by the
        duration of its last visit. Each family gets one turn, however short the time.
        """
        self._since = self._clock()
        for family in sorted(self._queues, key=lambda family: self._spent[family] / self._shares[family]):
            queue = self._queues[family]
            while queue and self._spent[family] and self._expected_seconds(queue[0]) > self.seconds_left:
                queue.pop(0)
            if queue:
                return queue[0]
        return None

    def _expected_seconds(self, task: Task) -> float:
        """Return the time of a visit: that of the last one, or twice the time of its samples [s]."""
        return self._costs.get(task, 2 * self.samples_seconds(task))

    def record(self, task: Task, failed: bool = False) -> None:
        """Record a finished visit, and queue the task for its next one unless it failed."""
        seconds = self._clock() - self._since
        self._costs[task], self._visits[task] = seconds, self._visits.get(task, 0) + 1
        self._spent[task.family] += seconds
        queue = self._queues[task.family]
        queue.remove(task)
        if not failed and self._visits[task] < MAX_VISITS:
            queue.append(task)


def sample_counts(call_seconds: float, seconds: float, shortest: float) -> tuple[int, int]:
    """Return how many samples of how many calls fill a time; a sample takes at least `shortest` [s]."""
    call_seconds = max(call_seconds, MIN_CALL_SECONDS)
    calls = max(1, round(shortest / call_seconds))
    return min(max(int(seconds / (calls * call_seconds)), MIN_SAMPLES), MAX_SAMPLES), calls
