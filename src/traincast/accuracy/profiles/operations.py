"""Operations of a profiled step beside the predicted ones, where names and shapes tell them apart."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from traincast.accuracy.profiles.events import DeviceEvents
from traincast.core import Column, Doc, Result
from traincast.operations import Operation

if TYPE_CHECKING:
    from traincast.step import Estimate
    from traincast.times import TimedOperation

COMPUTE: Final = ("compute", "exposed_memory", "recomputation")  # components that operations take
BUSY: Final = ("products", "attention", "vector")  # kinds of work of operations
OTHERS: Final = "others"


class ProfiledOperation(Result):
    """An operation in all layers of a profiled step, with its gradients; or several not told apart."""

    name: Annotated[
        str, Doc("operations as `estimate --operations` names them; the label without an estimate")
    ]
    seconds: Annotated[float, Doc("their time in a step, those on several streams at once in full", "s")]
    predicted_seconds: Annotated[float | None, Doc("predicted time, null without an estimate", "s")]


def predicted_operations(estimate: "Estimate") -> "Iterator[tuple[TimedOperation, float]]":
    """Yield each operation with its compute and memory time in a step of the slowest device [s]."""
    counts = estimate.stages.executed_parts[int(np.asarray(estimate.step.slowest).item())]
    work = [
        (timed, float(np.asarray(counts.get(part, 0.0) * _seconds(timed)).item()))
        for part, operations in estimate.timed.items()
        for timed in operations
    ]
    total = sum(seconds for _, seconds in work) or 1.0
    compute = sum(float(estimate.breakdown[name]) for name in COMPUTE)
    for timed, seconds in work:
        yield timed, compute * seconds / total


def _seconds(timed: "TimedOperation") -> Column:
    """Return the time of an operation of one micro-batch, without communication [s]."""
    forward = timed.forward
    backward = timed.backward
    again = 0.0 if timed.recompute is None else timed.recompute.total
    return forward.compute + forward.memory + backward.compute + backward.memory + again


def profiled_operations(events: DeviceEvents, estimate: "Estimate | None") -> list[ProfiledOperation]:
    """Return the operations of a mean step, longest first; none where no event has a label."""
    measured: dict[str, float] = {}  # label -> seconds
    for begin, finish in events.steps:
        inside = (events.end > begin) & (events.start < finish) & np.isin(events.kind, BUSY)
        spans = np.clip(events.end[inside], begin, finish) - np.clip(events.start[inside], begin, finish)
        for label in sorted(set(events.label[inside].tolist())):
            seconds = float(spans[events.label[inside] == label].sum()) / len(events.steps)
            measured[label] = measured.get(label, 0.0) + seconds
    if not any(measured):
        return []
    predicted: dict[str, float] = {}
    if estimate is not None:
        for timed, seconds in predicted_operations(estimate):
            predicted[timed.operation.name] = predicted.get(timed.operation.name, 0.0) + seconds
    groups = (
        {label: (label,) for label in measured if label} if estimate is None else _groups(measured, estimate)
    )
    rows = dict.fromkeys((*groups.values(), ()), 0.0)
    for label, seconds in measured.items():
        rows[groups.get(label, ())] += seconds
    told = {name for members in rows for name in members}
    rest = [name for name in predicted if name not in told]
    operations = [
        ProfiledOperation(
            name=", ".join(members) or OTHERS,
            seconds=seconds,
            predicted_seconds=sum(predicted[name] for name in members or rest) if predicted else None,
        )
        for members, seconds in rows.items()
    ]
    return sorted(operations, key=lambda each: (each.name == OTHERS, -each.seconds))


def _groups(labels: Iterable[str], estimate: "Estimate") -> dict[str, tuple[str, ...]]:
    """Return the operations of each label that has some; those of labels that share one stand together."""
    labels = frozenset(labels)
    operations = {timed.operation.name: timed.operation for part in estimate.timed.values() for timed in part}
    widths = {name: _widths(operation, estimate, labels) for name, operation in operations.items()}
    groups: dict[str, frozenset[str]] = {}
    for label in sorted(labels - {""}):
        found = frozenset(
            name
            for name, operation in operations.items()
            if label in widths[name] or _is_of(label, operation, estimate)
        )
        joined = found.union(*(group for group in groups.values() if group & found))
        groups = {each: joined if group & found else group for each, group in groups.items()}
        groups |= {label: joined} if joined else {}
    return {label: tuple(name for name in operations if name in group) for label, group in groups.items()}


def _is_of(label: str, operation: Operation, estimate: "Estimate") -> bool:
    """Return whether a label that is no product's with weights can be of an operation."""
    block, _, name = operation.name.partition(".")
    is_product = bool(operation.forward.flops("matrix")) or bool(operation.forward.flops("low"))
    match label:
        case "attention":
            return is_product and not operation.weights
        case "batched":
            return is_product and not operation.weights and estimate.model.experts is None
        case "norm":
            return name == "norm"
        case "activation":
            return operation.role == "activation"
        case "embedding" | "loss":
            return label in (block, name)
    return False


def _widths(operation: Operation, estimate: "Estimate", labels: frozenset[str]) -> set[str]:
    """Return the labels of an operation's products with weights; of its parts where none has all of it."""
    model = estimate.model
    tp = estimate.plan.tp
    found = set[str]()
    for gemm in operation.forward.gemms if operation.weights else ():
        k = float(np.asarray(gemm.k).item())
        n = float(np.asarray(gemm.n).item())
        parts = {n}
        if f"product {k:.0f} {n:.0f}" not in labels and operation.role == "qkv":
            parts = {model.heads * model.head_width / tp, max(model.groups / tp, 1) * model.head_width}
        if operation.role == "head":
            parts |= {(model.vocab or 0) / tp}  # not padded
        if f"product {k:.0f} {n:.0f}" not in labels and operation.role == "up projection":
            parts = {n / 2}  # gate and up
        found |= {f"product {k:.0f} {part:.0f}" for part in parts}
    return found
