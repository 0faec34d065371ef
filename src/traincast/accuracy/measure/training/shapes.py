"""What is trained to judge predictions: small GPTs of different shapes, and for each the plans that its ranks can run."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
        """As rows are called."""
        return f"{self.hidden}x{self.layers}s{self.seq}"


# A step takes two ranks of 100 GFLOP/s 0.1 to 0.6 s; what differs most from those before comes next.
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
GPU_SHAPES: Final = (  # some 0.02 to 0.5 s on an accelerator of 400 TFLOP/s
    Shape(2048, 8, 16, 2048, 32768, 8),
    Shape(1024, 12, 16, 1024, 32768, 16),
    Shape(4096, 4, 32, 2048, 32768, 8),
    Shape(1024, 24, 16, 2048, 50176, 8),
    Shape(2048, 4, 32, 4096, 8192, 4),
    Shape(768, 12, 12, 512, 50176, 32),
)
DEFAULT_SHAPES: Final[Mapping[str, tuple[Shape, ...]]] = {"cpu": CPU_SHAPES, "cuda": GPU_SHAPES}
PRECISION_KNOBS: Final[Mapping[str, dict[str, Any]]] = {  # of a plan: what the loop trains in
    "cpu": {"precision": "fp32"},
    "cuda": {"precision": "bf16-pure", "grad_dtype": "16-bit", "optimizer_kind": "adam-bf16"},
}


@dataclass(frozen=True)
class TrainingCase:
    """One configuration that is trained for a few steps.

    Parameters
    ----------
    shape : Shape
        What is trained.
    plan : Plan
        How.
    """

    shape: Shape
    plan: Plan

    @property
    def id(self) -> str:
        """Its name: that of the shape, then what the plan cuts."""
        plan = self.plan
        cut = "".join(f"{name}{getattr(plan, name)}" for name in ("dp", "tp", "pp") if getattr(plan, name) > 1)
        return f"{self.shape.name}-{cut or 'one'}{'z' if plan.zero else ''}m{plan.mbs}"

    @property
    def model(self) -> Model:
        """The GPT, as the estimator sees it."""
        one = self.shape
        return Model(
            name=one.name, layers=one.layers, hidden=one.hidden, heads=one.heads, kv_heads=one.heads, ffn=4 * one.hidden,
            seq=one.seq, vocab=one.vocab, biases=("qkv", "proj", "mlp"), positions="learned", causal=True, dropout=False,
            inner_dropout=False,
        )  # fmt: skip


def training_cases(device: str, ranks: int, shapes: Iterable[Shape] = ()) -> tuple[TrainingCase, ...]:
    """All that is trained, in the order in which it tells most.

    Parameters
    ----------
    device : {"cpu", "cuda"}
        Where.
    ranks : int
        Ranks of the job.
    shapes : iterable of Shape
        What is trained in place of the usual shapes.
    """
    return tuple(
        TrainingCase(shape, plan)
        for shape in tuple(shapes) or DEFAULT_SHAPES[device]
        for plan in plans_of_shape(shape, ranks, device)
    )


def shapes_of(text: str) -> tuple[Shape, ...]:
    """Shapes as people write them.

    Parameters
    ----------
    text : str
        Shapes with commas, each hidden x layers x heads x sequence x vocabulary x sequences of a step.

    Raises
    ------
    InputError
        If a shape cannot be read or trained: all that is wrong at once.

    Examples
    --------
    >>> shapes_of("256x4x4x128x4096x8")
    (Shape(hidden=256, layers=4, heads=4, seq=128, vocab=4096, gbs=8),)
    """
    found, wrong = [], []
    for word in text.split(","):
        numbers = [int(part) if part.isdecimal() else 0 for part in word.strip().lower().split("x")]
        if len(numbers) != len(Shape._fields) or not all(numbers):
            told = " x ".join(f"{name}" for name in Shape._fields)
            wrong.append(f"{word.strip()!r}: write {told}, such as 256x4x4x128x4096x8")
            continue
        shape = Shape(*numbers)
        found.append(shape)
        if shape.hidden % shape.heads:
            wrong.append(f"{word.strip()!r}: {shape.heads} heads do not divide {shape.hidden}")
        if shape.vocab % VOCAB_MULTIPLE:
            wrong.append(f"{word.strip()!r}: vocabulary {shape.vocab}: must be a multiple of {VOCAB_MULTIPLE}")
    if wrong:
        raise InputError("--shapes", wrong)
    return tuple(found)


def plans_of_shape(shape: Shape, ranks: int, device: str = "cpu") -> Iterator[Plan]:
    """Plans of a shape: those of all ranks, which compete, and that of one rank.

    Parameters
    ----------
    shape : Shape
        What is trained.
    ranks : int
        Ranks of the job.
    device : {"cpu", "cuda"}
        Where.

    Yields
    ------
    Plan
        Data parallelism with one and with two micro-batches and with ZeRO-1, tensor parallelism, pipelines with few and with many
        micro-batches, and pairs of them where there are ranks for two; each only where the shape can be cut so.
    """
    ways: list[dict[str, Any]] = [{"dp": ranks}, {"tp": ranks}, {"pp": ranks}]
    ways += [{one: 2, two: ranks // 2} for one, two in (("tp", "dp"), ("pp", "dp"), ("pp", "tp")) if ranks >= 4 and ranks % 2 == 0]
    seen: list[Plan] = []
    for way in ways if ranks > 1 else ():
        share = shape.gbs // way.get("dp", 1)
        pp = way.get("pp", 1)
        parts = (2 * pp, 4 * pp) if pp > 1 else (1, 2)  # micro-batches of a replica
        choices: list[dict[str, Any]] = [{"mbs": share // nm, "zero": 0} for nm in parts if share % nm == 0]
        if set(way) == {"dp"} and choices:
            choices.append(choices[0] | {"zero": 1})
        seen += [Plan(sp="tp" not in way, **way, **choice, **PRECISION_KNOBS[device]) for choice in choices if _divides(shape, way)]
    yield from dict.fromkeys(seen)
    yield Plan(mbs=shape.gbs, zero=0, **PRECISION_KNOBS[device])


def _divides(shape: Shape, way: Mapping[str, int]) -> bool:
    """Whether a shape can be cut so."""
    dp, tp, pp = (way.get(name, 1) for name in ("dp", "tp", "pp"))
    return not (shape.gbs % dp or shape.heads % tp or shape.vocab % (VOCAB_MULTIPLE * tp) or shape.layers % pp)
