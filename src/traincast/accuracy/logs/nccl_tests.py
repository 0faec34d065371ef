"""Output of nccl-tests and rccl-tests: the table on the screen, and the file written with ``-J``."""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from traincast.accuracy.logs.rows import CollectiveRow, CollectiveRows
from traincast.accuracy.logs.text import lines, number, whole_number
from traincast.core.errors import WHOLE, InputError

SIGNS: Final = r"#\s+size\s+count\s+type\b|# nThread \d+ nGpus \d+|\balgbw\s+busbw\b"
OPERATIONS: Final = {  # letters of the program's name -> operation of the table of collectives; the first match counts
    "allreduce": "allreduce", "allgather": "allgather", "reducescatter": "reducescatter", "alltoall": "all2all",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter", "sendrecv": "p2p",
}  # fmt: skip
GIVEN: Final = ("op", "nodes", "gpus_per_node")  # values that the output may lack
MAX_GPUS_PER_PROCESS: Final = 4096  # bound on counts in a file
COLUMNS: Final = (
    "size",
    "count",
    "type",
    "redop",
    "root",
    "time",
    "algbw",
    "busbw",
    "#wrong",
    "time",
    "algbw",
    "busbw",
    "#wrong",
)
RANK: Final = re.compile(
    r"#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*?)\s*$"
)
LINE: Final = re.compile(r"(?<!\S)\d+\s+\d+\s+(?:u?int\d+|half|float|double|bfloat16|fp?8\w*|f8e\dm\d)\s.*")


@dataclass
class _Test:
    """State of a test while its output is read."""

    op: str | None = None
    columns: tuple[str, ...] = COLUMNS
    hosts: list[tuple[str, str]] = field(default_factory=list)  # (group, host) of each rank
    gpu: str = ""


def read(file: str, text: str, given: Mapping[str, Any]) -> CollectiveRows:
    """Read all tests of a text.

    Parameters
    ----------
    file : str
        Name of the file; the operation may be part of it.
    text : str
        Its content.
    given : mapping of str to Any
        ``op``, ``nodes`` and ``gpus_per_node`` where the text lacks them.

    Raises
    ------
    InputError
        If there is no row, or operation or placement are unknown.
    """
    check(given)
    test, rows, left_out, missing = _Test(), [], [], set()
    for line_number, (_, line) in enumerate(lines(text), start=1):
        if "#" in line and _read_comment(test, line):
            continue
        if not (match := LINE.search(line)):
            continue
        measured = _size_and_time(match[0].split(), test.columns)
        if isinstance(measured, str):
            left_out.append(f"line {line_number}: {measured}")
            continue
        placement = _placement(file, test, given)
        missing |= {name for name, value in placement.items() if not value}
        if all(placement.values()):
            rows.append(CollectiveRow(**placement, size_bytes=measured[0], time_us=measured[1], gpu=test.gpu))
    return _collective_rows(file, rows, left_out, missing)


def check(given: Mapping[str, Any]) -> None:
    """Raise for given values of collectives that are invalid.

    Parameters
    ----------
    given : mapping of str to Any
        ``op``, ``nodes`` and ``gpus_per_node``, as far as they are given.

    Raises
    ------
    InputError
        With every invalid value.
    """
    wrong = [
        f"{name} = {given[name]!r}: {WHOLE}"
        for name in GIVEN[1:]
        if name in given and whole_number(given[name]) is None
    ]
    if "op" in given and operation(str(given["op"])) is None and given["op"] not in OPERATIONS.values():
        wrong.insert(0, f"op = {given['op']!r}: must be one of {', '.join(OPERATIONS.values())}")
    if wrong:
        raise InputError("what is given", wrong)


def _collective_rows(
    file: str, rows: Sequence[CollectiveRow], left_out: Sequence[str], missing: set[str]
) -> CollectiveRows:
    """Return the rows; raise with all that is missing."""
    allowed = {
        "op": f"one of {', '.join(OPERATIONS.values())}",
        "nodes": "how many ran",
        "gpus_per_node": "GPUs that ran on each",
    }
    if missing:  # ranks follow from the others
        raise InputError(
            file,
            [
                f"{name}: the output does not say; give {name}= ({allowed[name]})"
                for name in allowed
                if name in missing
            ],
        )
    if not rows:
        raise InputError(file, ["holds no finished measurement", *left_out[:5]])
    return CollectiveRows(file=file, rows=tuple(rows), left_out=tuple(left_out))


def _read_comment(test: _Test, line: str) -> bool:
    """Update a test from a comment line; return whether the line is a comment."""
    if program := re.search(r"# Collective test starting: (\S+)", line):
        test.op = operation(program[1])
    if re.search(r"# nThread \d+ nGpus \d+", line):
        test.hosts, test.gpu = [], ""
    if rank := RANK.search(line):
        test.hosts.append((rank[2] or "0", rank[3]))
        test.gpu = rank[4]
        return True
    if re.search(r"#\s+size\s+count\s+type\b", line):
        test.columns = tuple(line[line.index("#") + 1 :].split())
    return line.lstrip().startswith("#")


def operation(name: str) -> str | None:
    """Return the operation in the name of a program or file, None without."""
    letters = re.sub("[^a-z]", "", name.lower())
    return next((op for program, op in OPERATIONS.items() if program in letters), None)


def _placement(file: str, test: _Test, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return operation, nodes, GPUs per node, and ranks; of the first group where several ran at once."""
    hosts = Counter(host for group, host in test.hosts if group == test.hosts[0][0])
    stated = str(given["op"]) if "op" in given else None
    op = (
        (stated if stated in OPERATIONS.values() else operation(stated))
        if stated
        else test.op or operation(file)
    )
    nodes = whole_number(given.get("nodes")) or len(hosts) or None
    per_node = whole_number(given.get("gpus_per_node")) or (
        math.ceil(hosts.total() / nodes) if hosts and nodes else None
    )
    ranks = hosts.total() if hosts and "gpus_per_node" not in given else (nodes or 0) * (per_node or 0)
    return {"op": op, "nodes": nodes, "gpus_per_node": per_node, "ranks": ranks}


def _size_and_time(words: Sequence[str], columns: Sequence[str]) -> tuple[float, float] | str:
    """Return size [byte] and time [µs] of a line, or the reason why it is left out."""
    if "time" not in columns:
        return "the time of the host, not of the operation"
    if len(words) < len(columns) - ("timestamp" in columns):
        return "cut off"
    times = [index for index, name in enumerate(columns) if name == "time"]
    error_counts = [
        words[index]
        for index, name in enumerate(columns)
        if name in ("#wrong", "error") and index < len(words)
    ]
    if any((number(count) or 0) > 0 for count in error_counts) and "#wrong" in columns:
        return "wrong results"
    time = next((value for index in times if (value := number(words[index]))), None)
    size = number(words[0])
    if not size:
        return "of no byte"
    return (size, time) if time and time > 0 else "no time"


def read_json(file: str, text: str, given: Mapping[str, Any]) -> CollectiveRows:
    """Read the test of a file written with ``-J``; parameters and errors as of `read`."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(file, [f"malformed JSON: {error}"]) from None
    results = document.get("results") if isinstance(document, dict) else None
    if not isinstance(results, list):
        raise InputError(file, ["results: missing; this is no file that nccl-tests writes with -J"])
    check(given)
    test, rows, left_out = _test_of_json(document), [], []
    placement = _placement(file, test, given)
    for index, result in enumerate(results, start=1):
        measured = _size_and_time_of_result(result)
        if isinstance(measured, str):
            left_out.append(f"result {index}: {measured}")
        elif all(placement.values()):
            rows.append(CollectiveRow(**placement, size_bytes=measured[0], time_us=measured[1], gpu=test.gpu))
    return _collective_rows(file, rows, left_out, {name for name, value in placement.items() if not value})


def _test_of_json(document: Mapping[str, Any]) -> _Test:
    """Return the test of a JSON file, which lists one device of each process, not all of them."""
    section = document.get("config")
    config = section if isinstance(section, dict) else {}
    listed = config.get("devices") or document.get("devices")
    devices = [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []
    gpus_per_process = (whole_number(config.get("nthreads")) or 1) * (whole_number(config.get("ngpus")) or 1)
    hosts = [
        (str(device.get("group", "0")), str(device.get("hostname")))
        for device in devices
        for _ in range(min(gpus_per_process, MAX_GPUS_PER_PROCESS))
    ]
    arguments = document.get("args")
    program = str(arguments[0]).rsplit("/", 1)[-1] if isinstance(arguments, list) and arguments else ""
    return _Test(
        op=operation(program), hosts=hosts, gpu=str(devices[-1].get("device_info", "")) if devices else ""
    )


def _size_and_time_of_result(result: Any) -> tuple[float, float] | str:
    """Return size [byte] and time [µs] of a result, or the reason why it is left out."""
    if not isinstance(result, dict):
        return "no mapping"
    timings = [
        timing for name in ("out_of_place", "in_place") if isinstance(timing := result.get(name), dict)
    ]
    if any((number(str(timing.get("nwrong"))) or 0) > 0 for timing in timings):
        return "wrong results"
    if any("cpu_time" in timing for timing in timings):
        return "the time of the host, not of the operation"
    time = next(
        (value for timing in timings if (value := number(str(timing.get("time")))) and value > 0), None
    )
    size = number(str(result.get("size")))
    return (size, time) if size and time else "of no byte" if not size else "no time"
