"""Output of nccl-tests and rccl-tests: the table on the screen, and the file written with ``-J``."""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from traincast.accuracy.logs.rows import CollectiveRow, CollectiveRows
from traincast.accuracy.logs.text import lines, number, whole
from traincast.core.errors import WHOLE, InputError

SIGNS: Final = r"#\s+size\s+count\s+type\b|# nThread \d+ nGpus \d+|\balgbw\s+busbw\b"
OPS: Final = {  # letters of the program's name -> operation of the table of collectives; the first that is in a name
    "allreduce": "allreduce", "allgather": "allgather", "reducescatter": "reducescatter", "alltoall": "all2all",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter", "sendrecv": "p2p",
}  # fmt: skip
GIVEN: Final = ("op", "nodes", "gpus_per_node")  # what the output may leave open
MANY: Final = 4096  # GPUs of a process, at most
COLUMNS: Final = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong")
RANK: Final = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*?)\s*$")
LINE: Final = re.compile(r"(?<!\S)\d+\s+\d+\s+(?:u?int\d+|half|float|double|bfloat16|fp?8\w*|f8e\dm\d)\s.*")


@dataclass
class _Test:
    """A test while its output is read."""

    op: str | None = None
    columns: tuple[str, ...] = COLUMNS
    hosts: list[tuple[str, str]] = field(default_factory=list)  # (group, host) of each rank
    gpu: str = ""


def read(file: str, text: str, given: Mapping[str, Any]) -> CollectiveRows:
    """All tests of a text.

    Parameters
    ----------
    file : str
        Name of the file; the operation may be part of it.
    text : str
        Its content.
    given : mapping of str to Any
        ``op``, ``nodes`` and ``gpus_per_node`` where the text does not say.

    Raises
    ------
    InputError
        If there is no row, or it is not known what ran where.
    """
    check(given)
    test, rows, left_out, missing = _Test(), [], [], set()
    for at, (_, line) in enumerate(lines(text), start=1):
        if "#" in line and _header(test, line):
            continue
        if not (match := LINE.search(line)):
            continue
        measured = _measured(match[0].split(), test.columns)
        if isinstance(measured, str):
            left_out.append(f"line {at}: {measured}")
            continue
        where = _where(file, test, given)
        missing |= {name for name, value in where.items() if not value}
        if all(where.values()):
            rows.append(CollectiveRow(**where, size_bytes=measured[0], time_us=measured[1], gpu=test.gpu))
    return _found(file, rows, left_out, missing)


def check(given: Mapping[str, Any]) -> None:
    """Refuse what is given of collectives and cannot be.

    Parameters
    ----------
    given : mapping of str to Any
        ``op``, ``nodes`` and ``gpus_per_node``, as far as they are given.

    Raises
    ------
    InputError
        With every value that is none of those allowed.
    """
    wrong = [f"{name} = {given[name]!r}: {WHOLE}" for name in GIVEN[1:] if name in given and whole(given[name]) is None]
    if "op" in given and operation(str(given["op"])) is None and given["op"] not in OPS.values():
        wrong.insert(0, f"op = {given['op']!r}: must be one of {', '.join(OPS.values())}")
    if wrong:
        raise InputError("what is given", wrong)


def _found(file: str, rows: Sequence[CollectiveRow], left_out: Sequence[str], missing: set[str]) -> CollectiveRows:
    """The rows, or all that is missing."""
    allowed = {"op": f"one of {', '.join(OPS.values())}", "nodes": "how many ran", "gpus_per_node": "GPUs that ran on each"}
    if missing:  # ranks, too, where the others are
        raise InputError(
            file, [f"{name}: the output does not say; give {name}= ({allowed[name]})" for name in allowed if name in missing]
        )
    if not rows:
        raise InputError(file, ["holds no finished measurement", *left_out[:5]])
    return CollectiveRows(file=file, rows=tuple(rows), left_out=tuple(left_out))


def _header(test: _Test, line: str) -> bool:
    """Take in a line of comment; whether it was one that says something of a test."""
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
    """The operation that a program or a file is called for, None if the name does not say."""
    plain = re.sub("[^a-z]", "", name.lower())
    return next((op for program, op in OPS.items() if program in plain), None)


def _where(file: str, test: _Test, given: Mapping[str, Any]) -> dict[str, Any]:
    """Operation, nodes, GPUs of each, and ranks; of several groups side by side, the first."""
    hosts = Counter(host for group, host in test.hosts if group == test.hosts[0][0])
    told = str(given["op"]) if "op" in given else None
    op = (told if told in OPS.values() else operation(told)) if told else test.op or operation(file)
    nodes = whole(given.get("nodes")) or len(hosts) or None
    per_node = whole(given.get("gpus_per_node")) or (math.ceil(hosts.total() / nodes) if hosts and nodes else None)
    ranks = hosts.total() if hosts and "gpus_per_node" not in given else (nodes or 0) * (per_node or 0)
    return {"op": op, "nodes": nodes, "gpus_per_node": per_node, "ranks": ranks}


def _measured(words: Sequence[str], columns: Sequence[str]) -> tuple[float, float] | str:
    """Size [byte] and time [µs] of a line, or why it is left out."""
    if "time" not in columns:
        return "the time of the host, not of the operation"
    if len(words) < len(columns) - ("timestamp" in columns):
        return "cut off"
    times = [at for at, name in enumerate(columns) if name == "time"]
    wrong = [words[at] for at, name in enumerate(columns) if name in ("#wrong", "error") and at < len(words)]
    if any((number(one) or 0) > 0 for one in wrong) and "#wrong" in columns:
        return "wrong results"
    found = next((value for at in times if (value := number(words[at]))), None)
    size = number(words[0])
    if not size:
        return "of no byte"
    return (size, found) if found and found > 0 else "no time"


def read_json(file: str, text: str, given: Mapping[str, Any]) -> CollectiveRows:
    """The test of a file written with ``-J``; parameters and errors as of `read`."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(file, [f"malformed JSON: {error}"]) from None
    results = told.get("results") if isinstance(told, dict) else None
    if not isinstance(results, list):
        raise InputError(file, ["results: missing; this is no file that nccl-tests writes with -J"])
    check(given)
    test, rows, left_out = _described(told), [], []
    where = _where(file, test, given)
    for at, result in enumerate(results, start=1):
        measured = _measured_json(result)
        if isinstance(measured, str):
            left_out.append(f"result {at}: {measured}")
        elif all(where.values()):
            rows.append(CollectiveRow(**where, size_bytes=measured[0], time_us=measured[1], gpu=test.gpu))
    return _found(file, rows, left_out, {name for name, value in where.items() if not value})


def _described(told: Mapping[str, Any]) -> _Test:
    """What a JSON file says of its test; it lists one device of each process, not all of them."""
    section = told.get("config")
    config = section if isinstance(section, dict) else {}
    listed = config.get("devices") or told.get("devices")
    devices = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    each = (whole(config.get("nthreads")) or 1) * (whole(config.get("ngpus")) or 1)
    hosts = [(str(one.get("group", "0")), str(one.get("hostname"))) for one in devices for _ in range(min(each, MANY))]
    arguments = told.get("args")
    program = str(arguments[0]).rsplit("/", 1)[-1] if isinstance(arguments, list) and arguments else ""
    return _Test(op=operation(program), hosts=hosts, gpu=str(devices[-1].get("device_info", "")) if devices else "")


def _measured_json(result: Any) -> tuple[float, float] | str:
    """Size [byte] and time [µs] of a result, or why it is left out."""
    if not isinstance(result, dict):
        return "no mapping"
    ways = [one for name in ("out_of_place", "in_place") if isinstance(one := result.get(name), dict)]
    if any((number(str(one.get("nwrong"))) or 0) > 0 for one in ways):
        return "wrong results"
    if any("cpu_time" in one for one in ways):
        return "the time of the host, not of the operation"
    time = next((value for one in ways if (value := number(str(one.get("time")))) and value > 0), None)
    size = number(str(result.get("size")))
    return (size, time) if size and time else "of no byte" if not size else "no time"
