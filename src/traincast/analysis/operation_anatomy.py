"""What the operations of a plan are: their collectives, their classes, and the FLOPs of a sequence."""

from collections.abc import Iterator
from typing import Annotated, Final

from traincast.core import Doc, Plans, Result, plain
from traincast.operations import Operation, PassCount, Unit, parts, total
from traincast.step import Estimate

# Classes of a transformer's operations (Ivanov et al., arXiv 2007.00072; S. Bekman).
CLASSES: Final = ("contractions", "normalisations", "element-wise")
UNITS: Final[tuple[Unit, ...]] = ("matrix", "low", "vector")


class CollectiveRow(Result):
    """A collective of an operation, of one micro-batch."""

    part: Annotated[str, Doc("kind of layer, embedding or head")]
    operation: Annotated[str, Doc("name of the operation")]
    direction: Annotated[str, Doc("the pass: forward or backward")]
    collective: Annotated[str, Doc("what is run")]
    over: Annotated[str, Doc("the group of ranks")]
    nbytes: Annotated[float, Doc("full tensor; of an all-to-all a rank's, of a send the block", "byte")]
    times: Annotated[float, Doc("how often: panels of a product, or rounds of a ring")]


class ClassRow(Result):
    """A class of operations, over all layers and both passes, without communication."""

    name: Annotated[str, Doc(f"one of {', '.join(CLASSES)}")]
    flops_share: Annotated[float, Doc("share of the FLOPs")]
    bytes_share: Annotated[float, Doc("share of the memory traffic")]
    seconds_share: Annotated[float, Doc("share of the time, launches included")]


class Anatomy(Result):
    """Collectives and classes of a plan's operations, and the FLOPs of a sequence."""

    collectives: Annotated[list[CollectiveRow], Doc("collectives of every operation")]
    classes: Annotated[list[ClassRow], Doc("contractions, normalisations and element-wise work")]
    sequence_flops: Annotated[float, Doc("forward and backward of a sequence, on one rank", "FLOP")]
    mlp_to_attention: Annotated[float | None, Doc("FLOPs of MLPs and experts over those of attention")]


def anatomy(est: Estimate) -> Anatomy:
    """Return collectives and classes of the operations of one plan, and the FLOPs of a sequence."""
    mlp, attention, whole = _sequence_flops(est)
    ratio = mlp / attention if attention else None
    return Anatomy(list(_collectives(est)), _classes(est), whole, ratio)


def _collectives(est: Estimate) -> Iterator[CollectiveRow]:
    for part, operations in est.timed.items():
        for timed in operations:
            operation = timed.operation
            for direction, work in operation.passes.items():
                times = work.panels if work.panels is not None else work.rounds
                for one in work.collectives:
                    if (nbytes := float(plain(one.nbytes))) and _ranks(est, one.over) > 1:
                        named = (part, operation.name, direction, one.kind, one.over)
                        yield CollectiveRow(*named, nbytes, 1.0 if times is None else float(plain(times)))


def _ranks(est: Estimate, axis: str) -> float:
    """Return the ranks of a group; groups that are no degree of the plan count as several."""
    return float(getattr(est.plan, axis, 2))


def _classes(est: Estimate) -> list[ClassRow]:
    """Return the shares of every class over the layers of the model."""
    sums = {name: [0.0, 0.0, 0.0] for name in CLASSES}
    for count, timed in est.whole_model():
        row = sums[_class(timed.operation)]
        for direction, work in timed.operation.passes.items():
            time = getattr(timed, direction)
            for i, figure in enumerate((_flops(work), work.nbytes, time.compute + time.memory)):
                row[i] += count * float(figure)
    wholes = [max(sum(column), 1e-300) for column in zip(*sums.values(), strict=True)]
    return [
        ClassRow(name, *(own / whole for own, whole in zip(row, wholes, strict=True)))
        for name, row in sums.items()
    ]


def _class(operation: Operation) -> str:
    if operation.forward.gemms:
        return CLASSES[0]
    is_norm = operation.name.endswith(("norm", "softmax", "loss"))  # they reduce along a row
    return CLASSES[1] if is_norm else CLASSES[2]


def _flops(work: PassCount) -> float:
    return float(total(work.flops(unit) for unit in UNITS))


def _sequence_flops(est: Estimate) -> tuple[float, float, float]:
    """Return the FLOPs of a sequence in MLPs, in attention, and in all, on one rank that holds the model."""
    mlp = attention = whole = 0.0
    for part, operations in parts(est.model, Plans(), est.assumptions).items():
        for operation in operations:
            flops = sum(map(_flops, operation.passes.values()))
            flops *= float(est.stages.model_parts.get(part, 0.0))
            whole += flops
            block = operation.name.partition(".")[0]
            mlp += flops if block in ("mlp", "experts", "shared") else 0.0
            attention += flops if block == "attention" else 0.0
    return mlp, attention, whole
