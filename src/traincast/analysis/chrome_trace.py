"""A trace in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

A process is a device of the pipeline, its threads are streams. What fills the step of a device is on exactly one stream at a time:
compute, communication it waits for, or a wait. Beside that, passes are shown as a whole, and sends and communication that hides run
while devices work. Source: "Trace Event Format" of the Chromium project.
"""

import gzip
import json
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, NamedTuple

from traincast.analysis.trace import REMAINDER, Trace
from traincast.core.errors import InputError
from traincast.core.output_files import beside, check_output
from traincast.times.pipeline.simulation import SimulatedPass

ENDINGS: Final = (".json", ".json.gz")
MOST_EVENTS: Final = 1_000_000  # 150 MB; browsers get slow beyond
STREAMS: Final = {  # in the order in which they are drawn
    "passes": "passes",
    "compute": "compute",
    "tensor": "TP comm (tensor, context)",
    "experts": "EP comm (experts)",
    "data": "DP comm (weights, gradients)",
    "sends": "PP comm (sends)",
    "waits": "waits",
}
THREADS: Final = {stream: thread for thread, stream in enumerate(STREAMS, 1)}  # some versions of Perfetto merge 0 and 1
STREAM_OF: Final = {"tp_comm": "tensor", "ep_comm": "experts", "dp_comm": "data", "pp_comm": "sends"} | dict.fromkeys(
    ("compute", "exposed_memory", "recomputation", "optimizer_step"), "compute"
)  # component → stream; waits for all others
BESIDE: Final = ("experts", "data", "sends")  # streams on which something runs beside the work
WAIT_FOR: Final = {"bubble": "wait for other stages", "pp_comm": "wait for a transfer"}


class Event(NamedTuple):
    """Something that takes time on a stream of a device."""

    device: int
    stream: str
    name: str
    component: str  # of the breakdown; empty for what is shown a second time, or runs beside the work
    start: float  # [s]
    seconds: float  # [s]
    of: SimulatedPass | None = None  # the pass it is a part of


def events(found: Trace, device: int, microbatches: Collection[int] | None = None) -> Iterator[Event]:
    """What a device does in a step.

    Parameters
    ----------
    found : Trace
        The trace.
    device : int
        Place in the pipeline, from 0.
    microbatches : collection of int, optional
        Those whose passes are wanted; all if left out.

    Yields
    ------
    Event
        Passes and their parts, waits, and what follows the pipeline. If all micro-batches are wanted, those with a component fill
        the step of the device without gap or overlap.
    """
    for own, sent in zip(found.by_device[device], found.sent[device], strict=True):
        if microbatches is None or own.microbatch in microbatches:
            yield from _of_pass(found, own, sent)
    yield from _data_parallel(found, device, microbatches)
    for component, start, seconds in found.waits[device]:
        yield Event(device, "waits", WAIT_FOR[component], component, start, seconds)
    for name, component, start, seconds in found.after:
        yield Event(device, STREAM_OF.get(component, "waits"), name, component or REMAINDER, found.begin[device] + start, seconds)


def _of_pass(found: Trace, own: SimulatedPass, sent: float) -> Iterator[Event]:
    """A pass as a whole, what it spends its time on, and its send, which starts when the pass is `sent` [s]."""
    name = f"{own.kind} {own.microbatch}"
    yield Event(own.device, "passes", name, "", own.start, own.end - own.start, own)
    start = own.start
    for component, seconds in found.passes.spent[own.kind][own.chunk].items():
        yield Event(own.device, STREAM_OF.get(component, "waits"), f"{component} {name}", component, start, seconds, own)
        start += seconds
    if exchange := found.passes.exchange[own.kind][own.chunk]:
        yield Event(own.device, "experts", f"exchange {name}, hidden", "", own.start, exchange, own)
    reader = found.reader(own)
    if reader is not None and found.passes.beside:
        yield Event(own.device, "sends", f"{name} to stage {reader.device}", "", sent, found.passes.beside, own)


def _data_parallel(found: Trace, device: int, microbatches: Collection[int] | None) -> Iterator[Event]:
    """Data-parallel traffic that hides behind passes: beside each of them, or once in a step, after its start or before its end."""
    own, zero = found.by_device[device], int(found.estimate.plan.zero)
    ways = (("gather weights", {"F"}, zero == 3), ("reduce gradients", {"B", "BW"}, zero >= 2))
    for (name, kinds, always), seconds in zip(ways, found.passes.traffic[device], strict=True):
        beside = [one for one in own if one.kind in kinds]
        whole = sum(one.end - one.start for one in beside)
        if not seconds or not whole:
            continue
        if not always:
            start = found.begin[device] if "F" in kinds else own[-1].end - seconds
            yield Event(device, "data", f"{name}, hidden", "", start, seconds)
            continue
        for one in beside:
            if microbatches is None or one.microbatch in microbatches:
                share = seconds * (one.end - one.start) / whole
                yield Event(device, "data", f"{name} {one.kind} {one.microbatch}, hidden", "", one.start, share, one)


def write(found: Trace, path: Path, force: bool = False, stages: Collection[int] = (), microbatches: Collection[int] = ()) -> None:
    """Write a trace for Perfetto.

    Parameters
    ----------
    found : Trace
        The trace.
    path : Path
        Where to: .json, or compressed .json.gz.
    force : bool
        Whether to overwrite a file that is there.
    stages, microbatches : collection of int
        Devices, and micro-batches whose passes are written; all if empty.

    Raises
    ------
    InputError
        As for `to_chrome`; or if the ending is another, the folder is missing, or the file is there already.
    """
    check_output(path, force, ENDINGS)
    told = chrome_events(found, stages, microbatches)
    with beside(path) as partial, ExitStack() as opened:
        file: Any = opened.enter_context(partial.open("wb"))
        if path.suffix == ".gz":
            file = opened.enter_context(gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0))
        out = opened.enter_context(TextIOWrapper(file, encoding="utf-8"))
        out.write(json.dumps(_frame(found))[:-1] + ', "traceEvents": [')
        for i, event in enumerate(told):
            out.write((",\n" if i else "\n") + json.dumps(event))
        out.write("\n]}\n")


def to_chrome(found: Trace, stages: Collection[int] = (), microbatches: Collection[int] = ()) -> dict[str, Any]:
    """A trace as one object in the format, for Perfetto.

    Parameters
    ----------
    found : Trace
        The trace.
    stages, microbatches : collection of int
        Devices, and micro-batches whose passes are told; all if empty.

    Raises
    ------
    InputError
        If there are no such stages or micro-batches, or more than a million events.
    """
    return _frame(found) | {"traceEvents": list(chrome_events(found, stages, microbatches))}


def _frame(found: Trace) -> dict[str, Any]:
    """What surrounds the events."""
    est = found.estimate
    about = {"model": est.model.title, "system": est.system.name, "plan": str(est.plan), "global_batch": est.gbs}
    return {"displayTimeUnit": "ms", "otherData": about | {"assumptions": est.assumptions.name} | found.sums()}


def chrome_events(found: Trace, stages: Collection[int] = (), microbatches: Collection[int] = ()) -> Iterator[dict[str, Any]]:
    """Events of a trace in the format; arguments and errors as for `to_chrome`."""
    chosen = sorted(_chosen("stages", stages, found.timeline.pp))
    batches = _chosen("micro-batches", microbatches, found.microbatches)
    number = _number(found, chosen, batches)
    if number > MOST_EVENTS:
        most = f"about {number:,} events, at most {MOST_EVENTS:,} are written"
        raise InputError("trace", [f"{most}: choose stages (--stages 0,1) or micro-batches (--micro-batches 0-15)"])
    for device in chosen:
        yield from _process(found, device)
        yield from _complete(found, device, batches)
        yield from _flows(found, device, chosen, batches)


def _chosen(what: str, given: Collection[int], number: int) -> Collection[int]:
    """Those chosen of a number of stages or micro-batches."""
    wrong = [f"{one}: there are 0 to {number - 1}" for one in sorted(given) if not 0 <= one < number]
    if wrong:
        raise InputError(what, wrong)
    return set(given) or range(number)


def _number(found: Trace, stages: Collection[int], microbatches: Collection[int]) -> int:
    """Events, about: of each pass, its parts, a send, and the arrow to its reader."""
    parts = {kind: [len(one) + 4 for one in spent] for kind, spent in found.passes.spent.items()}
    waits = sum(len(found.waits[stage]) for stage in stages)
    return waits + sum(parts[p.kind][p.chunk] for stage in stages for p in found.by_device[stage] if p.microbatch in microbatches)


def _process(found: Trace, device: int) -> Iterator[dict[str, Any]]:
    """Name and place of a device."""
    held = ", ".join(f"{n:g} {part}" for part, n in found.passes.devices[device].stored_parts.items())
    slowest = ", sets the step" if device == found.device else ""
    yield _metadata("process_name", device, name=f"stage {device}{slowest}")
    yield _metadata("process_labels", device, labels=held)
    yield _metadata("process_sort_index", device, sort_index=device)


def _metadata(what: str, device: int, thread: int = 1, **told: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": device + 1, "tid": thread, "args": told}


def _complete(found: Trace, device: int, microbatches: Collection[int]) -> Iterator[dict[str, Any]]:
    """Events of a device on its threads, without overlap, in the whole nanoseconds that Perfetto counts.

    What runs beside the work takes a further thread where it meets something: a slow link has several sends on its way.
    """
    free: dict[int, int] = {}
    for one in sorted(events(found, device, microbatches), key=lambda one: one.start):
        start, end, thread = _ns(one.start), _ns(one.start + one.seconds), THREADS[one.stream]
        while one.stream in BESIDE and free.get(thread, 0) > start + 1:
            thread += len(THREADS)
        if thread not in free:
            yield from _thread(device, thread)
        start = max(start, free.get(thread, 0))
        free[thread] = max(start, end)
        about = {} if one.of is None else {"chunk": one.of.chunk, "micro_batch": one.of.microbatch}
        told = {"ph": "X", "name": one.name, "cat": one.component or one.stream, "pid": device + 1, "tid": thread}
        yield told | {"ts": start / 1000, "dur": (free[thread] - start) / 1000, "args": about}


def _thread(device: int, thread: int) -> Iterator[dict[str, Any]]:
    """Name and place of a thread."""
    more, stream = divmod(thread - 1, len(THREADS))
    name = list(STREAMS.values())[stream]
    yield _metadata("thread_name", device, thread, name=f"{name} {more + 1}" if more else name)
    yield _metadata("thread_sort_index", device, thread, sort_index=stream * 100 + more)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _flows(found: Trace, device: int, stages: Collection[int], microbatches: Collection[int]) -> Iterator[dict[str, Any]]:
    """Arrows from passes to those on other devices that go on with them."""
    for own in found.by_device[device]:
        reader = found.reader(own)
        if own.microbatch in microbatches and reader is not None and reader.device in stages:
            way = "forward" if own.kind == "F" else "backward"
            number = (own.microbatch * len(found.passes.parts) + own.chunk) * 2 + (way == "backward")
            for end, one in (("s", own), ("f", reader)):
                told = {"ph": end, "name": way, "cat": "sends", "id": number, "pid": one.device + 1, "tid": THREADS["passes"]}
                yield told | {"ts": _ns((one.start + one.end) / 2) / 1000} | ({"bp": "e"} if end == "f" else {})
