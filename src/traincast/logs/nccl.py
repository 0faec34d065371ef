"""Output of nccl-tests and rccl-tests: the table on the screen, and the file written with ``-J``."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from traincast.errors import InputError
from traincast.logs.tables import Collective, CollectiveRows
from traincast.logs.text import lines, number, whole

SIGNS: Final = r"#\s+size\s+count\s+type\b|# nThread \d+ nGpus \d+|\balgbw\s+busbw\b"
OPS: Final = {  # program without _perf -> operation of the table of collectives
    "all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter", "alltoall": "all2all",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter", "sendrecv": "p2p",
}  # fmt: skip
COLUMNS: Final = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong")
RANK: Final = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*?)\s*$")
LINE: Final = re.compile(r"(?<!\S)\d+\s+\d+\s+(?:u?int\d+|half|float|double|bfloat16|fp?8\w*|f8e\dm\d)\s.*")
PROGRAM: Final = re.compile(
    r"\b(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|sendrecv|reduce|gather|scatter)(?:_perf)?\b"
)


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
        op, nodes, per_node = _where(file, test, given)
        missing |= {name for name, value in (("op", op), ("nodes", nodes), ("gpus_per_node", per_node)) if not value}
        if op and nodes and per_node:
            rows.append(_row(op, nodes, per_node, measured, test.gpu))
    return _found(file, rows, left_out, missing)


def _found(file: str, rows: Sequence[Collective], left_out: Sequence[str], missing: set[str]) -> CollectiveRows:
    """The rows, or all that is missing."""
    allowed = {"op": f"one of {', '.join(OPS.values())}", "nodes": "how many ran", "gpus_per_node": "GPUs that ran on each"}
    if missing:
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
    match = PROGRAM.search(re.sub(r"[-.\s]", "_", name).lower().replace("_perf", " ").replace("__", "_"))
    if match is None:
        match = re.search(PROGRAM.pattern.replace(r"\b", ""), re.sub(r"[-.\s]", "_", name).lower())
    plain = {known.replace("_", ""): op for known, op in OPS.items()}
    return plain.get(match[1].replace("_", "")) if match else None


def _where(file: str, test: _Test, given: Mapping[str, Any]) -> tuple[str | None, int | None, int | None]:
    """Operation, nodes and GPUs of each; of several groups side by side, the first."""
    group = [host for one, host in test.hosts if one == test.hosts[0][0]]
    hosts = Counter(group)
    told = str(given["op"]) if "op" in given else None
    op = (told if told in OPS.values() else operation(told)) if told else test.op or operation(file)
    nodes = whole(given.get("nodes")) or len(hosts) or None
    return op, nodes, whole(given.get("gpus_per_node")) or (max(hosts.values()) if hosts else None)


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


def _row(op: str, nodes: int, per_node: int, measured: tuple[float, float], gpu: str) -> Collective:
    """A row."""
    return Collective(
        op=op, nodes=nodes, gpus_per_node=per_node, ranks=nodes * per_node, size_bytes=measured[0], time_us=measured[1], gpu=gpu
    )


def read_json(file: str, text: str, given: Mapping[str, Any]) -> CollectiveRows:
    """The test of a file written with ``-J``; parameters and errors as of `read`."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(file, [f"malformed JSON: {error}"]) from None
    results = told.get("results") if isinstance(told, dict) else None
    if not isinstance(results, list):
        raise InputError(file, ["results: missing; this is no file that nccl-tests writes with -J"])
    config = told.get("config") if isinstance(told.get("config"), dict) else {}
    devices = [one for one in config.get("devices") or told.get("devices") or [] if isinstance(one, dict)]
    each = (whole(config.get("nthreads")) or 1) * (
        whole(config.get("ngpus")) or 1
    )  # GPUs of a process; a device is listed for each process
    hosts = [(str(one.get("group", "0")), str(one.get("hostname"))) for one in devices for _ in range(min(each, 1 << 12))]
    test = _Test(hosts=hosts, gpu=str(devices[-1].get("device_info", "")) if devices else "")
    arguments = told.get("args")
    test.op = operation(str(arguments[0]).rsplit("/", 1)[-1]) if isinstance(arguments, list) and arguments else None
    op, nodes, per_node = _where(file, test, given)
    missing = {name for name, value in (("op", op), ("nodes", nodes), ("gpus_per_node", per_node)) if not value}
    rows, left_out = [], []
    for at, result in enumerate(results, start=1):
        measured = _measured_json(result)
        if isinstance(measured, str):
            left_out.append(f"result {at}: {measured}")
        elif op and nodes and per_node:
            rows.append(_row(op, nodes, per_node, measured, test.gpu))
    return _found(file, rows, left_out, missing)


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
