"""Where the time of a profiled step went, beside the prediction."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
from numpy.typing import NDArray

from traincast.accuracy.profiles.events import DeviceEvents, read_events
from traincast.accuracy.profiles.operations import (
    ProfiledOperation,
    predicted_operations,
    profiled_operations,
)
from traincast.core import KEY, Doc, Result, require_path

if TYPE_CHECKING:
    from traincast.step import Estimate

PARTS: Final = {  # part of a step -> components of an estimate, besides compute; the first takes shared time
    "matrix products": (),
    "attention": (),
    "norms and element-wise": (),
    "optimizer step": ("optimizer_step",),
    "exposed communication": ("tp_comm", "ep_comm", "dp_comm", "stragglers"),
    "exposed copies": ("offload_comm",),
    "pipeline and idle": ("pp_comm", "bubble", "data_loading"),
    "dispatch gaps": ("host",),
}
KIND_OF_PART: Final = dict(zip(PARTS, ("products", "attention", "vector", "optimizer"), strict=False))
SMALL: Final = 0.02  # difference of a step that is not worth a sentence


class ProfiledPart(Result):
    """A part of a profiled step."""

    name: Annotated[str, Doc("part of the step")]
    seconds: Annotated[float, Doc("measured time of a step that nothing before it in the list covers", "s")]
    predicted_seconds: Annotated[float | None, Doc("predicted time, null without an estimate", "s")]


class ProfiledCollective(Result):
    """Collectives of one kind in a profiled step."""

    collective: Annotated[str, Doc("all-reduce, all-gather, reduce-scatter, all-to-all, send-recv, …")]
    calls: Annotated[float, Doc("calls in a step")]
    seconds: Annotated[float, Doc("time in which at least one runs", "s")]
    exposed_seconds: Annotated[
        float, Doc("of it, time in which no compute and no collective above it runs", "s")
    ]


class ProfiledDispatch(Result):
    """Dispatch gaps of a profiled step by where the host was: inside an operator, or between operators."""

    inside_seconds: Annotated[
        float, Doc("gaps while an operator of PyTorch runs on the host (intra-operator dispatch)", "s")
    ]
    between_seconds: Annotated[
        float, Doc("gaps while none does: Python, hooks, data loading (inter-operator dispatch)", "s")
    ]

    @property
    def seconds(self) -> float:
        """Time of all dispatch gaps [s]."""
        return self.inside_seconds + self.between_seconds


class ProfiledStep(Result):
    """Mean step of a profile of one rank, by parts that add up to it, and what is predicted."""

    file: Annotated[str, Doc("name of the profile")]
    device: Annotated[str, Doc("device that it names, or empty")]
    steps: Annotated[int, Doc("steps in it")]
    has_marks: Annotated[bool, Doc("false where the profile marks no steps: all of it counts as one")]
    step_seconds: Annotated[float, Doc("measured time of a step", "s")]
    predicted_seconds: Annotated[float | None, Doc("predicted time of a step, null without an estimate", "s")]
    parts: Annotated[list[ProfiledPart], Doc("parts of a step")]
    dispatch: Annotated[
        ProfiledDispatch | None,
        Doc("dispatch gaps inside and between operators, null where the profile holds none of the host"),
    ]
    operations: Annotated[
        list[ProfiledOperation],
        Doc("operations of the model that names and shapes tell apart, longest first"),
    ]
    collectives: Annotated[list[ProfiledCollective], Doc("collectives, the most exposed first")]

    @property
    def summary(self) -> Annotated[str, KEY]:
        """Where measurement and prediction part."""
        if self.predicted_seconds is None:
            largest = max(self.parts, key=lambda part: part.seconds)
            return f"Most of the step, {largest.seconds / self.step_seconds:.0%}, is {largest.name}."
        differences = {
            part.name: part.seconds - part.predicted_seconds
            for part in self.parts
            if part.predicted_seconds is not None
        }
        total = self.step_seconds / self.predicted_seconds - 1
        ordered = sorted(differences, key=lambda name: -abs(differences[name]))
        told = [name for name in ordered[:2] if abs(differences[name]) > SMALL * self.predicted_seconds]
        if abs(total) <= SMALL and not told:
            return f"The step is as predicted, within {SMALL:.0%}, and so is every part."
        text = f"The step takes {abs(total):.0%} {'more' if total > 0 else 'less'} than predicted"
        if not told:
            return f"{text}; no part stands out."
        reasons = (f"{name} ({differences[name] / self.predicted_seconds:+.0%} of a step)" for name in told)
        return f"{text}; what differs most: {', '.join(reasons)}."


def profile(path: str | Path, estimate: "Estimate | None" = None) -> ProfiledStep:
    """Read a profile of one rank, and compare its step with an estimate.

    Parameters
    ----------
    path
        Trace of ``torch.profiler`` (JSON, may be compressed), or an export of Nsight Systems: SQLite, or the
        CSV of ``nsys stats --report cuda_gpu_trace``.
    estimate
        Prediction of the plan that ran.

    Returns
    -------
    ProfiledStep
        Mean step, by parts that add up to it.

    Raises
    ------
    InputError
        Where the file is no profile, or holds no work of a device.

    Notes
    -----
    Work on several streams at once counts once, for the first part in the list. Time without any work is a
    *dispatch gap* where the host launched the next kernel only after the gap began. Other idle time, and with
    pipeline stages exposed sends and receives, are counted with the pipeline. Dispatch gaps are split by
    whether an operator runs on the host, as Cheng et al. (SIGMETRICS 2024, doi 10.1145/3639034) do.
    """
    events = read_events(require_path("path", path))
    has_pipeline = estimate is not None and estimate.plan.pp > 1
    seconds, dispatch, collectives = _measured_parts(events, has_pipeline)
    predicted = None if estimate is None else _predicted_parts(estimate)
    return ProfiledStep(
        file=events.file,
        device=events.device,
        steps=len(events.steps),
        has_marks=events.has_marks,
        step_seconds=sum(seconds.values()),
        predicted_seconds=None if estimate is None else float(estimate.step_seconds),
        parts=[
            ProfiledPart(
                name=name,
                seconds=seconds[name],
                predicted_seconds=None if predicted is None else predicted[name],
            )
            for name in PARTS
        ],
        dispatch=dispatch,
        operations=profiled_operations(events, estimate),
        collectives=collectives,
    )


Spans = tuple[NDArray[np.float64], NDArray[np.float64]]


def _union(start: NDArray[np.float64], end: NDArray[np.float64]) -> Spans:
    """Return the disjoint spans that cover the same time; `start` is in order."""
    reached = np.maximum.accumulate(end)
    begins = np.ones(len(start), dtype=bool)
    begins[1:] = start[1:] > reached[:-1]
    return start[begins], reached[np.append(begins[1:], True)] if len(start) else end


@dataclass
class _Window:
    """Events of a step; `add` counts time that none of those counted before covers [s]."""

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    counted: NDArray[np.bool_]

    def length(self, chosen: NDArray[np.bool_]) -> float:
        begins, ends = _union(self.start[chosen], self.end[chosen])
        return float(np.sum(ends - begins))

    def add(self, chosen: NDArray[np.bool_]) -> float:
        before = self.length(self.counted)
        self.counted = self.counted | chosen
        return self.length(self.counted) - before


def _measured_parts(
    events: DeviceEvents, has_pipeline: bool
) -> tuple[dict[str, float], ProfiledDispatch | None, list[ProfiledCollective]]:
    """Return the mean time of each part [s], dispatch by where the host was, and the collectives."""
    parts = dict.fromkeys(PARTS, 0.0)
    operators = _union(events.operators[:, 0], events.operators[:, 1])
    inside_operators = 0.0
    found: dict[str, NDArray[np.float64]] = {}
    for begin, finish in events.steps:
        inside = (events.end > begin) & (events.start < finish)
        kind = events.kind[inside]
        collective = events.collective[inside]
        start, end = (np.clip(times[inside], begin, finish) for times in (events.start, events.end))
        window = _Window(start, end, np.zeros(len(start), dtype=bool))
        for part, of_kind in KIND_OF_PART.items():
            parts[part] += window.add(kind == of_kind)
        for name in sorted(set(collective.tolist()) - {""}, key=lambda name: (name == "send-recv", name)):
            chosen = collective == name
            exposed = window.add(chosen)
            is_pipeline = has_pipeline and name == "send-recv"
            parts["pipeline and idle" if is_pipeline else "exposed communication"] += exposed
            figures = np.array([chosen.sum(), window.length(chosen), exposed])
            found[name] = found.get(name, 0.0) + figures
        parts["exposed copies"] += window.add(kind == "copy")
        dispatch_gaps, other = _gaps(start, end, events.issued[inside], begin, finish)
        parts["dispatch gaps"] += float(np.sum(dispatch_gaps[1] - dispatch_gaps[0]))
        inside_operators += _shared_seconds(dispatch_gaps, operators)
        parts["pipeline and idle"] += other
    n = len(events.steps)
    dispatch = None
    if len(events.operators):
        dispatch = ProfiledDispatch(inside_operators / n, (parts["dispatch gaps"] - inside_operators) / n)
    collectives = [ProfiledCollective(name, *(sums / n).tolist()) for name, sums in found.items()]
    collectives.sort(key=lambda each: -each.exposed_seconds)
    return {name: seconds / n for name, seconds in parts.items()}, dispatch, collectives


def _gaps(
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    issued: NDArray[np.float64],
    begin: float,
    finish: float,
) -> tuple[Spans, float]:
    """Return the gaps before work that the host launched late, and other idle time [s]."""
    begins, ends = _union(start, end)
    idle_from = np.append(begin, ends)
    idle_to = np.append(begins, finish)
    launches = issued[np.searchsorted(start, begins)]  # of the work that ends each gap but the last
    late = np.append(launches > idle_from[:-1], False)
    other = float(np.sum(idle_to[~late] - idle_from[~late]))
    return (idle_from[late], idle_to[late]), other


def _shared_seconds(spans: Spans, others: Spans) -> float:
    """Return the time that disjoint spans share with other disjoint spans in order [s]."""
    begins, ends = others
    if not len(begins):
        return 0.0
    edges = np.stack((begins, ends), axis=1).ravel()
    before_end = np.cumsum(ends - begins)
    covered = np.stack((before_end - (ends - begins), before_end), axis=1).ravel()
    until = [np.interp(times, edges, covered) for times in spans]
    return float(np.sum(until[1] - until[0]))


def _predicted_parts(estimate: "Estimate") -> dict[str, float]:
    """Return the predicted time of each part [s]; compute by the operations of the slowest device."""
    breakdown = {name: float(seconds) for name, seconds in estimate.breakdown.items()}
    work = dict.fromkeys(PARTS, 0.0)
    products, attention, vector = list(PARTS)[:3]
    for timed, seconds in predicted_operations(estimate):
        if not timed.operation.forward.flops("matrix"):
            part = vector
        elif timed.operation.weights:
            part = products
        else:
            part = attention
        work[part] += seconds
    return {
        name: work[name] + sum(breakdown[component] for component in components)
        for name, components in PARTS.items()
    }
