"""A trace in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

A process is a device of the pipeline, its threads are streams. At any time of the step exactly one stream of
a device is busy: compute, exposed communication, or a wait. Passes are drawn a second time as one block each;
sends and overlapped communication run on streams of their own. Source: "Trace Event Format" of the Chromium
project.
"""

import gzip
import json
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from traincast.analysis.step_trace import REMAINDER, Trace
from traincast.core import InputError, atomic_output, check_output, raise_problems
from traincast.times import SimulatedPass

TRACE_ENDINGS: Final = (".json", ".json.gz")
MAX_EVENTS: Final = 1_000_000  # 150 MB; browsers get slow beyond
STREAMS: Final = {  # in the order in which they are drawn
    "passes": "passes",
    "compute": "compute",
    "tensor": "TP comm (tensor, context)",
    "experts": "EP comm (experts)",
    "data": "DP comm (weights, gradients)",
    "sends": "PP comm (sends)",
    "waits": "waits",
}
THREADS: Final = {stream: thread for thread, stream in enumerate(STREAMS, 1)}  # Perfetto may merge 0 and 1
COMPUTED: Final = ("compute", "exposed_memory", "recomputation", "optimizer_step")
STREAM_OF: Final = dict.fromkeys(COMPUTED, "compute") | {  # component → stream; waits for all others
    "tp_comm": "tensor",
    "ep_comm": "experts",
    "dp_comm": "data",
    "pp_comm": "sends",
}
OVERLAPPED_STREAMS: Final = ("experts", "data", "sends")  # run while the device computes
WAIT_NAMES: Final = {"bubble": "wait for other stages", "pp_comm": "wait for a transfer"}


class Event(NamedTuple):
    """An interval of time on a stream of a device."""

    device: int
    stream: str
    name: str
    component: str  # of the breakdown; empty for blocks drawn a second time and for overlapped communication
    start: float  # [s]
    seconds: float  # [s]
    of: SimulatedPass | None = None  # the pass it is a part of


def events(trace: Trace, device: int, microbatches: Collection[int] | None = None) -> Iterator[Event]:
    """Yield what a device does in a step: passes and their parts, waits, and what follows the pipeline.

    With all micro-batches, the events that have a component fill the step of the device without gap or
    overlap.
    """
    for pass_, sent_at in zip(trace.by_device[device], trace.send_times[device], strict=True):
        if microbatches is None or pass_.microbatch in microbatches:
            yield from _pass_events(trace, pass_, sent_at)
    yield from _data_parallel_events(trace, device, microbatches)
    for component, start, seconds in trace.waits[device]:
        yield Event(device, "waits", WAIT_NAMES[component], component, start, seconds)
    for interval in trace.after:
        stream = STREAM_OF.get(interval.component, "waits")
        start = trace.begin[device] + interval.start
        component = interval.component or REMAINDER
        yield Event(device, stream, interval.name, component, start, interval.seconds)


def _pass_events(trace: Trace, pass_: SimulatedPass, sent_at: float) -> Iterator[Event]:
    """Yield a pass as one block, its components, its hidden exchange, and its send from `sent_at` [s]."""
    name = f"{pass_.kind} {pass_.microbatch}"
    yield Event(pass_.device, "passes", name, "", pass_.start, pass_.end - pass_.start, pass_)
    start = pass_.start
    for component, seconds in trace.passes.spent[pass_.kind][pass_.chunk].items():
        stream = STREAM_OF.get(component, "waits")
        yield Event(pass_.device, stream, f"{component} {name}", component, start, seconds, pass_)
        start += seconds
    if exchange := trace.passes.exchange[pass_.kind][pass_.chunk]:
        yield Event(pass_.device, "experts", f"exchange {name}, hidden", "", pass_.start, exchange, pass_)
    reader = trace.reader(pass_)
    if reader is not None and trace.passes.overlapped_transfer:
        send = f"{name} to stage {reader.device}"
        yield Event(pass_.device, "sends", send, "", sent_at, trace.passes.overlapped_transfer, pass_)


def _data_parallel_events(trace: Trace, device: int, microbatches: Collection[int] | None) -> Iterator[Event]:
    """Yield data-parallel traffic that overlaps passes: each of them, or the start or end of the step."""
    passes = trace.by_device[device]
    zero = int(trace.estimate.plan.zero)
    collectives = (("gather weights", {"F"}, zero == 3), ("reduce gradients", {"B", "BW"}, zero >= 2))
    for (name, kinds, per_pass), seconds in zip(collectives, trace.passes.traffic[device], strict=True):
        overlapping = [pass_ for pass_ in passes if pass_.kind in kinds]
        busy = sum(pass_.end - pass_.start for pass_ in overlapping)
        if not seconds or not busy:
            continue
        if not per_pass:
            start = trace.begin[device] if "F" in kinds else passes[-1].end - seconds
            yield Event(device, "data", f"{name}, hidden", "", start, seconds)
            continue
        for pass_ in overlapping:
            if microbatches is None or pass_.microbatch in microbatches:
                share = seconds * (pass_.end - pass_.start) / busy
                of_pass = f"{name} {pass_.kind} {pass_.microbatch}, hidden"
                yield Event(device, "data", of_pass, "", pass_.start, share, pass_)


def write_chrome_trace(
    trace: Trace,
    path: Path,
    force: bool = False,
    stages: Collection[int] = (),
    microbatches: Collection[int] = (),
) -> None:
    """Write a trace for Perfetto as .json or compressed .json.gz, otherwise as `to_chrome`."""
    check_output(path, force, TRACE_ENDINGS)
    json_events = chrome_events(trace, stages, microbatches)
    with atomic_output(path) as partial, ExitStack() as opened:
        file: BinaryIO | gzip.GzipFile = opened.enter_context(partial.open("wb"))
        if path.suffix == ".gz":
            file = opened.enter_context(gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0))
        out = opened.enter_context(TextIOWrapper(file, encoding="utf-8"))
        out.write(json.dumps(_metadata_of_file(trace))[:-1] + ', "traceEvents": [')
        for i, event in enumerate(json_events):
            out.write((",\n" if i else "\n") + json.dumps(event))
        out.write("\n]}\n")


def to_chrome(
    trace: Trace, stages: Collection[int] = (), microbatches: Collection[int] = ()
) -> dict[str, object]:
    """Return a trace, or some stages or micro-batches of it, in the trace event format, for Perfetto."""
    return _metadata_of_file(trace) | {"traceEvents": list(chrome_events(trace, stages, microbatches))}


def _metadata_of_file(trace: Trace) -> dict[str, object]:
    """Return the keys of the file besides its events."""
    est = trace.estimate
    about = {
        "model": est.model.title,
        "system": est.system.name,
        "plan": str(est.plan),
        "global_batch": est.gbs,
        "assumptions": est.assumptions.name,
        "step_seconds": trace.step_seconds,
        "simulated_seconds": trace.simulated_seconds,
        "breakdown_seconds": trace.breakdown_seconds,
        "totals_seconds": trace.totals,
        "remainder_seconds": trace.remainder,
    }
    return {"displayTimeUnit": "ms", "otherData": about}


def chrome_events(
    trace: Trace, stages: Collection[int] = (), microbatches: Collection[int] = ()
) -> Iterator[dict[str, object]]:
    """Yield events in the trace event format; arguments and errors as for `to_chrome`."""
    devices = sorted(_select_indices("stages", stages, trace.timeline.pp))
    batches = _select_indices("micro-batches", microbatches, trace.microbatches)
    number = _approximate_count(trace, devices, batches)
    if number > MAX_EVENTS:
        limit = f"about {number:,} events, at most {MAX_EVENTS:,} are written"
        advice = "choose stages (--stages 0,1) or micro-batches (--micro-batches 0-15)"
        raise InputError("trace", [f"{limit}: {advice}"])
    for device in devices:
        yield from _process_metadata(trace, device)
        yield from _complete_events(trace, device, batches)
        yield from _flow_events(trace, device, devices, batches)
        yield from _counter_events(trace, device)


def _select_indices(subject: str, indices: Collection[int], number: int) -> Collection[int]:
    """Return the selected indices, all if none is given; raise for those that do not exist."""
    wrong = [f"{index}: there are 0 to {number - 1}" for index in sorted(indices) if not 0 <= index < number]
    raise_problems(subject, wrong)
    return set(indices) or range(number)


def _approximate_count(trace: Trace, stages: Collection[int], microbatches: Collection[int]) -> int:
    """Count the events about: each pass, its components, its send, its count, and the arrow to its reader."""
    events_of = {kind: [len(parts) + 5 for parts in chunks] for kind, chunks in trace.passes.spent.items()}
    number = 0
    for stage in stages:
        selected = (pass_ for pass_ in trace.by_device[stage] if pass_.microbatch in microbatches)
        number += len(trace.waits[stage]) + sum(events_of[pass_.kind][pass_.chunk] for pass_ in selected)
    return number


def _process_metadata(trace: Trace, device: int) -> Iterator[dict[str, object]]:
    parts = ", ".join(f"{n:g} {name}" for name, n in trace.passes.devices[device].stored_parts.items())
    slowest = ", sets the step" if device == trace.device else ""
    yield _metadata_event("process_name", device, name=f"stage {device}{slowest}")
    yield _metadata_event("process_labels", device, labels=parts)
    yield _metadata_event("process_sort_index", device, sort_index=device)


def _metadata_event(kind: str, device: int, thread: int = 1, **arguments: object) -> dict[str, object]:
    return {"ph": "M", "name": kind, "pid": device + 1, "tid": thread, "args": arguments}


def _complete_events(trace: Trace, device: int, microbatches: Collection[int]) -> Iterator[dict[str, object]]:
    """Yield the events of a device on its threads, without overlap, in whole nanoseconds, Perfetto's unit.

    An overlapped event takes a further thread where its own is busy: a slow link has several sends in flight.
    """
    free: dict[int, int] = {}
    for event in sorted(events(trace, device, microbatches), key=lambda event: event.start):
        start = _ns(event.start)
        end = _ns(event.start + event.seconds)
        thread = THREADS[event.stream]
        while event.stream in OVERLAPPED_STREAMS and free.get(thread, 0) > start + 1:
            thread += len(THREADS)
        if thread not in free:
            yield from _thread_metadata(device, thread)
        start = max(start, free.get(thread, 0))
        free[thread] = max(start, end)
        arguments = {} if event.of is None else {"chunk": event.of.chunk, "micro_batch": event.of.microbatch}
        record = {"ph": "X", "name": event.name, "cat": event.component or event.stream, "pid": device + 1}
        time = {"ts": start / 1000, "dur": (free[thread] - start) / 1000}
        yield record | {"tid": thread} | time | {"args": arguments}


def _thread_metadata(device: int, thread: int) -> Iterator[dict[str, object]]:
    copy, stream = divmod(thread - 1, len(THREADS))
    name = list(STREAMS.values())[stream]
    yield _metadata_event("thread_name", device, thread, name=f"{name} {copy + 1}" if copy else name)
    yield _metadata_event("thread_sort_index", device, thread, sort_index=stream * 100 + copy)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _flow_events(
    trace: Trace, device: int, stages: Collection[int], microbatches: Collection[int]
) -> Iterator[dict[str, object]]:
    """Yield arrows from passes to the passes on other devices that read their output."""
    for sender in trace.by_device[device]:
        reader = trace.reader(sender)
        if sender.microbatch in microbatches and reader is not None and reader.device in stages:
            direction = "forward" if sender.kind == "F" else "backward"
            sent = sender.microbatch * len(trace.passes.parts) + sender.chunk
            number = sent * 2 + (direction == "backward")
            for end, pass_ in (("s", sender), ("f", reader)):
                record = {"ph": end, "name": direction, "cat": "sends", "id": number, "pid": pass_.device + 1}
                middle = _ns((pass_.start + pass_.end) / 2) / 1000
                yield record | {"tid": THREADS["passes"], "ts": middle} | ({"bp": "e"} if end == "f" else {})


def _counter_events(trace: Trace, device: int) -> Iterator[dict[str, object]]:
    """Yield the micro-batches whose activations a device holds, from the start of F to the end of W."""
    holding = [pass_ for pass_ in trace.by_device[device] if pass_.kind != "B"]
    held = 0
    for time, step in sorted((run.start, 1) if run.kind == "F" else (run.end, -1) for run in holding):
        held += step
        record = {"ph": "C", "name": "in flight", "pid": device + 1, "tid": THREADS["passes"]}
        yield record | {"ts": _ns(time) / 1000, "args": {"micro-batches": held / trace.timeline.v}}
