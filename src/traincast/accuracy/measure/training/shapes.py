"""Grid of training cases: small GPTs of different shapes, and the plans that the ranks can run for each."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from traincast.core.errors import InputError
from traincast.core.model import Model
from traincast.core.plan import Plan

VOCAB_MULTIPLE: Final = 128  # the estimator pads vocabularies to a multiple of this, for each tensor rank


class Shape(NamedTuple):
    """A GPT and its global batch [sequences]."""

    hidden: int
    layers: int
    heads: int
    seq: int
    vocab: int
    gbs: int

    @property
    def name(self) -> str:
        """Name of the shape in ids of rows."""
        return f"{self.hidden}x{self.layers}s{self.seq}"


# A step takes 0.1 to 0.6 s on two ranks of 100 GFLOP/s; each differs most from those before it.
CPU_SHAPES: Final = (
    Shape(512, 4, 8, 64, 8192, 8),
    Shape(256, 8, 4, 128, 1024, 8),
    Shape(768, 2, 12, 64, 8192, 8),
    Shape(128, 8, 4, 256, 2048, 8),
    Shape(1024, 2, 16, 64, 2048, 8),
    Shape(256, 2, 8, 1024, 2048, 4),
    Shape(384, 6, 6, 128, 4096, 8),
    Shape(512, 2, 8, 32, 4096, 16),
    Shape(640, 4, 10, 96, 4096, 4),
    Shape(256, 4, 4, 512, 4096, 4),
)
GPU_SHAPES: Final = (  # steps of 0.02 to 0.5 s at 400 TFLOP/s
    Shape(2048, 8, 16, 2048, 32768, 8),
    Shape(1024, 12, 16, 1024, 32768, 16),
    Shape(4096, 4, 32, 2048, 32768, 8),
    Shape(1024, 24, 16, 2048, 50176, 8),
    Shape(2048, 4, 32, 4096, 8192, 4),
    Shape(768, 12, 12, 512, 50176, 32),
)
DEFAULT_SHAPES: Final[Mapping[str, tuple[Shape, ...]]] = {"cpu": CPU_SHAPES, "cuda": GPU_SHAPES}
PRECISION_KNOBS: Final[Mapping[str, dict[str, Any]]] = {  # knobs of the plan: precision of the training loop
    "cpu": {"precision": "fp32"},
    "cuda": {"precision": "bf16-pure", "grad_dtype": "16-bit", "optimizer_kind": "adam-bf16"},
}


@dataclass(frozen=True)
class TrainingCase:
    """A shape and the parallel plan under which it is trained for a few steps."""

    shape: Shape
    plan: Plan

    @property
    def id(self) -> str:
        """Name of the shape, then the degrees of the plan."""
        plan = self.plan
        sizes = {"dp": plan.dp, "tp": plan.tp, "pp": plan.pp}
        degrees = "".join(f"{name}{size}" for name, size in sizes.items() if size > 1)
        return f"{self.shape.name}-{degrees or 'one'}{'z' if plan.zero else ''}m{plan.mbs}"

    @property
    def model(self) -> Model:
        """The GPT as a `Model`."""
        shape = self.shape
        return Model(
            name=shape.name, layers=shape.layers, hidden=shape.hidden,
            heads=shape.heads, kv_heads=shape.heads, ffn=4 * shape.hidden, seq=shape.seq, vocab=shape.vocab,
            biases=("qkv", "proj", "mlp"), positions="learned", causal=True, dropout=False,
            inner_dropout=False,
        )  # fmt: skip


def training_cases(device: str, ranks: int, shapes: Iterable[Shape] = ()) -> tuple[TrainingCase, ...]:
    """Return the cases of `shapes` or of the default ones of a device, the most informative first."""
    return tuple(
        TrainingCase(shape, plan)
        for shape in tuple(shapes) or DEFAULT_SHAPES[device]
        for plan in plans_of_shape(shape, ranks, device)
    )


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Parse shapes with commas, each hidden x layers x heads x seq x vocab x gbs (256x4x4x128x4096x8)."""
    shapes, problems = [], []
    for word in text.split(","):
        numbers = [int(part) if part.isdecimal() else 0 for part in word.strip().lower().split("x")]
        if len(numbers) != len(Shape._fields) or not all(numbers):
            problems.append(
                f"{word.strip()!r}: write {' x '.join(Shape._fields)}, such as 256x4x4x128x4096x8"
            )
            continue
        shape = Shape(*numbers)
        shapes.append(shape)
        if shape.hidden % shape.heads:
            problems.append(f"{word.strip()!r}: {shape.heads} heads do not divide {shape.hidden}")
        if shape.vocab % VOCAB_MULTIPLE:
            problem = f"vocabulary {shape.vocab}: must be a multiple of {VOCAB_MULTIPLE}"
            problems.append(f"{word.strip()!r}: {problem}")
    if problems:
        raise InputError("shapes", problems)
    return tuple(shapes)


def plans_of_shape(shape: Shape, ranks: int, device: str = "cpu") -> Iterator[Plan]:
    """Yield the plans of a shape: competing ones on all ranks, and one on a single rank.

    They are data parallelism with one and with two micro-batches and with ZeRO-1, tensor parallelism,
    pipelines with few and with many micro-batches, and pairs of them with four ranks and more; only those
    whose degrees divide the shape.
    """
    degree_sets: list[dict[str, int]] = []
    if ranks > 1:
        degree_sets += [{"dp": ranks}, {"tp": ranks}, {"pp": ranks}]
    if ranks >= 4 and ranks % 2 == 0:
        half = ranks // 2
        degree_sets += [{"tp": 2, "dp": half}, {"pp": 2, "dp": half}, {"pp": 2, "tp": half}]
    candidates: list[Plan] = []
    for degrees in degree_sets:
        dp, tp, pp = (degrees.get(name, 1) for name in ("dp", "tp", "pp"))
        if shape.gbs % dp or shape.heads % tp or shape.vocab % (VOCAB_MULTIPLE * tp) or shape.layers % pp:
            continue
        replica_batch = shape.gbs // dp
        counts = (2 * pp, 4 * pp) if pp > 1 else (1, 2)  # micro-batches of a replica
        knobs = {"dp": dp, "tp": tp, "pp": pp, "sp": tp == 1} | PRECISION_KNOBS[device]
        plans = [Plan(mbs=replica_batch // n, zero=0, **knobs) for n in counts if replica_batch % n == 0]
        if plans and tp == pp == 1:
            plans.append(replace(plans[0], zero=1))
        candidates += plans
    yield from dict.fromkeys(candidates)
    yield Plan(mbs=shape.gbs, zero=0, **PRECISION_KNOBS[device])
