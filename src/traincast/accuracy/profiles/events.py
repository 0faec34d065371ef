"""Device events of a profile: torch.profiler's (Kineto) JSON, and exports of Nsight Systems (SQLite, CSV)."""

import csv
import gzip
import io
import json
import re
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traincast.accuracy.profiles.labels import Operator, label_of, labels_of
from traincast.catalog import MAX_BYTES, read_bytes
from traincast.core import InputError, raise_problems

GZIP = b"\x1f\x8b"
SQLITE = b"SQLite format 3\0"
KINETO: Final = b'"traceEvents"'
NSYS_COLUMNS: Final = ("Start (ns)", "Duration (ns)", "Name")  # of `nsys stats --report cuda_gpu_trace`
STEP: Final = re.compile(
    r"ProfilerStep#\d+|(?:train(?:ing)?[ _])?(?:step|iteration)[ _#:]*\d+", re.IGNORECASE
)
KINDS: Final = {  # kind of work -> pattern of its kernels and CPU operators; the first counts
    "collective": r"nccl|rccl|gloo:|\bmpi:|all_?reduce|all_?gather|reduce_?scatter|deep_?ep|nvshmem|multimem",
    "copy": r"memcpy|memset|CopyHostToDevice|CopyDeviceToHost",
    "attention": r"flash|fmha|mha_|sdpa|attention|attn",
    "optimizer": r"multi_?tensor|adam|lamb|muon|addcdiv|addcmul|lerp|_foreach",
    "products": r"gemm|nvjet|cutlass|cublas|xmma|wgmma|Cijk|matmul|\b(?:aten::)?(?:add|b|baddb)?mm\b|_mm\b",
    "vector": "",
}
COLLECTIVES: Final = {  # letters of a name -> collective; the first that is found counts
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "dispatch": "all-to-all",
    "combine": "all-to-all",
    "sendrecv": "send-recv",
    "send": "send-recv",
    "recv": "send-recv",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "barrier": "barrier",
}
SNIFFED_BYTES: Final = 1 << 20  # of a file, to tell whether it is a profile
DEVICE_WORK: Final = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES: Final = ("cuda_runtime", "cuda_driver")
NO_DEVICE_WORK: Final = "c10d::"  # operators that only start a collective


@dataclass(frozen=True)
class DeviceEvents:
    """What a rank's device ran: arrays over its events, in order of their beginning.

    `start` and `end` are times [s]; `issued` is when the host launched the event [s], NaN where the profile
    does not say; `kind` is one of `KINDS`, and `collective` its name or ``""``; `label` says which operation
    of a model it is of (`profiles/labels.py`), ``""`` where nothing tells. `steps` are profiled steps as
    (beginning, end) [s]; without marks the whole profile is one. `device` and `ranks` are as it states them.
    `operators` are those that the host ran, as (beginning, end) [s] in order of their beginning, shape
    (n, 2); none where the profile does not record them beside the device.
    """

    file: str
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    issued: NDArray[np.float64]
    kind: NDArray[np.str_]
    collective: NDArray[np.str_]
    label: NDArray[np.str_]
    steps: tuple[tuple[float, float], ...]
    has_marks: bool
    operators: NDArray[np.float64]
    device: str = ""
    ranks: int | None = None


@dataclass(frozen=True)
class _Event:
    """An event [s]; `name` with the collective that its arguments name, if any."""

    name: str
    start: float
    end: float
    issued: float = float("nan")
    is_copy: bool = False
    label: str = ""


def is_profile(path: str | Path) -> bool:
    """Return whether a file looks like a profile; what cannot be read does not."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(SNIFFED_BYTES)
    except (OSError, ValueError):
        return False
    first_line = data.partition(b"\n")[0].decode("utf-8", "replace")
    return (
        data.startswith((GZIP, SQLITE)) or KINETO in data or all(name in first_line for name in NSYS_COLUMNS)
    )


def read_events(path: str | Path) -> DeviceEvents:
    """Read the events of one rank; raise `InputError` where a file is no profile or holds no device work."""
    path = Path(path)
    try:
        data = read_bytes(path)
    except ValueError as error:
        raise InputError(str(path), [str(error)]) from None
    if data.startswith(SQLITE):
        return _nsight(path)
    try:
        if data.startswith(GZIP):
            with gzip.open(io.BytesIO(data)) as compressed:
                data = compressed.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error):
        raise InputError(str(path), ["the compressed file is cut off or damaged"]) from None
    if len(data) > MAX_BYTES:
        raise InputError(str(path), [f"is larger than {MAX_BYTES:,} bytes once decompressed"])
    text = data.decode("utf-8", "replace")
    if text.lstrip()[:1] in ("{", "["):
        return _kineto(path, text)
    return _nsight_table(path, text)


def _kineto(path: Path, text: str) -> DeviceEvents:
    """Read a trace of torch.profiler, whose times are in µs."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), [f"malformed JSON, cut off? ({error})"]) from None
    if isinstance(document, list):
        document = {"traceEvents": document}
    listed = document.get("traceEvents")
    events = [
        each
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict) and each.get("ph") == "X" and "ts" in each
    ]
    properties = document.get("deviceProperties") or [{}]
    distributed = document.get("distributedInfo") or {}
    wrong = dict.fromkeys(problem for event in events for problem in _wrong_fields(event))
    if not (isinstance(properties, list) and isinstance(properties[0], dict)):
        wrong["deviceProperties: must be a list of mappings"] = None
    if not isinstance(distributed, dict):
        wrong["distributedInfo: must be a mapping"] = None
    raise_problems(str(path), wrong)
    work, steps = _events_of_trace(events)
    found = _device_events(
        path, work, steps, str(properties[0].get("name", "")), distributed.get("world_size")
    )
    categories = {str(event.get("cat", "")).lower() for event in events}
    if categories.isdisjoint(DEVICE_WORK):  # the operators are the work
        return found
    spans = sorted(_span(event) for event in events if str(event.get("cat", "")).lower() == "cpu_op")
    return replace(found, operators=np.array(spans, dtype=np.float64).reshape(-1, 2))


def _events_of_trace(
    events: Iterable[dict[str, object]],
) -> tuple[list[_Event], Sequence[tuple[float, float]]]:
    """Return the work of a device, or of the host of a trace without one, and the marked steps."""
    by_category: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        by_category[str(event.get("cat", "")).lower()].append(event)
    launched = {
        _correlation(event): event["ts"] * 1e-6 for category in LAUNCHES for event in by_category[category]
    }
    launched.pop(None, None)
    operators = by_category["cpu_op"]
    labels = labels_of(
        [Operator(str(e["name"]), *_span(e), _thread(e), e.get("args", {})) for e in operators]
    )
    by_id = {e.get("args", {}).get("External id"): label for e, label in zip(operators, labels, strict=True)}
    by_id.pop(None, None)
    work = [
        _Event(
            _kernel_name(event),
            *_span(event),
            launched.get(_correlation(event), np.nan),
            category != "kernel",
            by_id.get(event.get("args", {}).get("External id"), "") or label_of(str(event["name"])),
        )
        for category in DEVICE_WORK
        for event in by_category[category]
    ] or list(_operators(by_category, zip(operators, labels, strict=True)))
    marks = by_category["gpu_user_annotation"], by_category["user_annotation"]
    steps = next((found for group in marks if (found := _steps((e["name"], *_span(e)) for e in group))), ())
    return work, steps


def _wrong_fields(event: Mapping[str, object]) -> Iterator[str]:
    if not isinstance(event.get("name"), str):
        yield f"name = {event.get('name')!r}: must be text in every event"
    for field in ("ts", "dur"):
        if not isinstance(event.get(field, 0), (int, float)):
            yield f"{field} = {event[field]!r}: must be a number of \u00b5s in every event"
    arguments = event.get("args", {})
    if not isinstance(arguments, dict):
        yield f"args = {arguments!r}: must be a mapping in every event"
        return
    for field in ("correlation", "External id"):
        if isinstance(arguments.get(field), (list, dict)):
            yield f"args.{field} = {arguments[field]!r}: must be a number in every event"


def _correlation(event: Mapping[str, Any]) -> Any:
    """Return the number that a launch and its work share, None without."""
    return event.get("args", {}).get("correlation")


def _thread(event: Mapping[str, object]) -> tuple[str, str]:
    return str(event.get("pid")), str(event.get("tid"))


def _span(event: Mapping[str, Any]) -> tuple[float, float]:
    start = float(event["ts"]) * 1e-6
    return start, start + float(event.get("dur", 0.0)) * 1e-6


def _kernel_name(event: Mapping[str, Any]) -> str:
    """Return the name of a kernel, with the collective that torch says it is part of."""
    collective = event.get("args", {}).get("Collective name")
    return f"nccl {collective}" if collective else str(event["name"])


def _operators(
    by_category: Mapping[str, Sequence[Mapping[str, object]]],
    labelled: Iterable[tuple[Mapping[str, object], str]],
) -> Iterator[_Event]:
    """Yield what ran on the host of a profile without a device: operators' own times, gloo's collectives."""
    threads: dict[tuple[str, str], list[tuple[float, float, tuple[str, str]]]] = defaultdict(list)
    for event, label in labelled:
        if not str(event["name"]).startswith(NO_DEVICE_WORK):
            named = str(event["name"]), label
            threads[_thread(event)].append((*_span(event), named))
    for spans in threads.values():
        open_spans: list[tuple[float, tuple[str, str]]] = []
        now = 0.0
        ordered = sorted(spans, key=lambda span: (span[0], -span[1]))
        for start, end, named in [*ordered, (np.inf, np.inf, ("", ""))]:
            while open_spans and open_spans[-1][0] <= start:
                closes, (name, label) = open_spans.pop()
                yield _Event(name, now, closes, label=label)
                now = closes
            if open_spans and start > now:
                name, label = open_spans[-1][1]
                yield _Event(name, now, start, label=label)
            now = start
            open_spans.append((end, named))
    for event in by_category["user_annotation"]:
        if re.match(KINDS["collective"], str(event["name"]), re.IGNORECASE):
            yield _Event(str(event["name"]), *_span(event))


def _nsight(path: Path) -> DeviceEvents:
    """Read an export of Nsight Systems (``nsys export --type sqlite``), whose times are in ns."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        try:
            tables = {
                name for (name,) in database.execute("select name from sqlite_master where type = 'table'")
            }
            names = dict(database.execute("select id, value from StringIds")) if "StringIds" in tables else {}

            def rows(table: str, columns: str) -> list[tuple[Any, ...]]:
                if table not in tables:
                    return []
                return list(database.execute(f"select {columns} from {table} order by start"))

            launched = dict(rows("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId, start"))
            columns = "demangledName, start, end, correlationId"
            kernels = [
                (names.get(name, str(name)), *rest)
                for name, *rest in rows("CUPTI_ACTIVITY_KIND_KERNEL", columns)
            ]
            copies = [
                row
                for table in ("MEMCPY", "MEMSET")
                for row in rows(
                    f"CUPTI_ACTIVITY_KIND_{table}", f"'{table.lower()}', start, end, correlationId"
                )
            ]
            ranges = rows("NVTX_EVENTS", "text, start, end, textId")
            marks = [
                (text or names.get(key, ""), start * 1e-9, (end or start) * 1e-9)
                for text, start, end, key in ranges
            ]
            devices = rows("TARGET_INFO_GPU", "name, 0 as start")
        except sqlite3.DatabaseError as error:
            raise InputError(str(path), [f"is no export of Nsight Systems ({error})"]) from None
    work = [
        _Event(
            name,
            start * 1e-9,
            end * 1e-9,
            launched.get(key, np.nan) * 1e-9,
            name in ("memcpy", "memset"),
            label_of(name),
        )
        for name, start, end, key in [*kernels, *copies]
    ]
    return _device_events(path, work, _steps(marks), devices[0][0] if devices else "", None)


def _nsight_table(path: Path, text: str) -> DeviceEvents:
    """Read the table of ``nsys stats --report cuda_gpu_trace --format csv``, which has no marks of steps."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if all(name in line for name in NSYS_COLUMNS)), None)
    if first is None:
        known = (
            "a trace of torch.profiler (JSON), or an export of Nsight Systems (SQLite, cuda_gpu_trace as CSV)"
        )
        raise InputError(str(path), [f"is no profile; known are {known}"])
    work = []
    for row in csv.DictReader(lines[first:]):
        start, duration, name = (row[column] or "" for column in NSYS_COLUMNS)
        if start and duration:
            try:
                begins = float(start) * 1e-9
                lasts = float(duration) * 1e-9
            except ValueError:
                wrong = f"Start (ns) = {start!r}, Duration (ns) = {duration!r} of {name}: must be numbers"
                raise InputError(str(path), [wrong]) from None
            is_copy = name.startswith("[CUDA mem")
            work.append(_Event(name, begins, begins + lasts, is_copy=is_copy, label=label_of(name)))
    return _device_events(path, work, (), "", None)


def _steps(marks: Iterable[tuple[str, float, float]]) -> tuple[tuple[float, float], ...]:
    return tuple(
        sorted((start, end) for name, start, end in marks if STEP.fullmatch(str(name)) and end > start)
    )


def _device_events(
    path: Path, work: Sequence[_Event], steps: Sequence[tuple[float, float]], device: str, ranks: object
) -> DeviceEvents:
    """Put events in order and classify them; raise `InputError` where there is no work."""
    work = sorted((event for event in work if event.end > event.start), key=lambda event: event.start)
    if not work:
        raise InputError(str(path), ["holds no work of a device: was the profiler on while the step ran?"])
    kinds = {name: _kind(name) for name in {event.name for event in work}}
    collectives = {name: _collective(name) if kind == "collective" else "" for name, kind in kinds.items()}
    whole = (work[0].start, max(event.end for event in work))
    return DeviceEvents(
        file=path.name,
        start=np.array([event.start for event in work]),
        end=np.array([event.end for event in work]),
        issued=np.array([event.issued for event in work]),
        kind=np.array(["copy" if event.is_copy else kinds[event.name] for event in work]),
        collective=np.array([collectives[event.name] for event in work]),
        label=np.array([event.label for event in work]),
        steps=tuple(steps) or (whole,),
        has_marks=bool(steps),
        operators=np.empty((0, 2)),
        device=device,
        ranks=ranks if isinstance(ranks, int) else None,
    )


def _kind(name: str) -> str:
    return next(kind for kind, pattern in KINDS.items() if re.search(pattern, name, re.IGNORECASE))


def _collective(name: str) -> str:
    letters = re.sub("[^a-z]", "", name.lower())
    return next((collective for sign, collective in COLLECTIVES.items() if sign in letters), "other")
