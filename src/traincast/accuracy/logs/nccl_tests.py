"""Output of nccl-tests and rccl-tests: the table on the screen, and the file written with ``-J``."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from traincast.accuracy.logs.rows import CollectiveRow, CollectiveRows
from traincast.accuracy.logs.text import lines, number, whole_number
from traincast.core import MUST_BE_WHOLE, InputError, raise_problems

TABLE_HEADER: Final = r"#\s+size\s+count\s+type\b"
TEST_START: Final = r"# nThread \d+ nGpus \d+"
SIGNS: Final = rf"{TABLE_HEADER}|{TEST_START}|\balgbw\s+busbw\b"
JSON_SIGNS: Final = r'"(?:out_of_place|in_place|nccl_version)"'
OPERATIONS: Final = {  # letters of the program's name -> operation; the first match counts
    "allreduce": "allreduce",
    "allgather": "allgather",
    "reducescatter": "reducescatter",
    "alltoall": "all2all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "p2p",
}
GIVEN: Final = {  # values that the output may lack -> what may be given; ranks follow from them
    "op": f"one of {', '.join(OPERATIONS.values())}",
    "nodes": "how many ran",
    "gpus_per_node": "GPUs that ran on each",
}
MAX_GPUS_PER_PROCESS: Final = 4096  # bound on counts in a file
COLUMNS: Final = tuple(
    "size count type redop root time algbw busbw #wrong time algbw busbw #wrong".split()  # noqa: SIM905
)
RANK: Final = re.compile(
    r"#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*?)\s*$"
)
LINE: Final = re.compile(r"(?<!\S)\d+\s+\d+\s+(?:u?int\d+|half|float|double|bfloat16|fp?8\w*|f8e\dm\d)\s.*")
HOST_TIME: Final = "the time of the host, not of the operation"
WRONG_RESULTS: Final = "wrong results"


@dataclass
class CollectiveTest:
    """A test while its output is read; `hosts` has group and host of each rank, `ranks` only their number."""

    op: str | None = None
    columns: tuple[str, ...] = COLUMNS
    hosts: list[tuple[str, str]] = field(default_factory=list)
    gpu: str = ""
    ranks: int | None = None


Found: TypeAlias = tuple[
    str, CollectiveTest, tuple[float, float] | str
]  # where, and size [byte] and time [µs] or why not


def rows_of(file: str, given: Mapping[str, object], found: Iterable[Found]) -> CollectiveRows:
    """Return the rows of a file, and what was left out of them; raise with all that is missing."""
    rows: list[CollectiveRow] = []
    left_out: list[str] = []
    missing: set[str] = set()
    for where, test, measured in found:
        if isinstance(measured, str):
            left_out.append(f"{where}: {measured}")
            continue
        placement = _placement(test, file, given)
        missing |= {name for name, value in placement.items() if not value}
        if all(placement.values()):
            size, time = measured
            rows.append(CollectiveRow(**placement, size_bytes=size, time_us=time, gpu=test.gpu))
    if missing:
        problem = "the output does not say; give"
        raise InputError(
            file, [f"{n}: {problem} {n}= ({allowed})" for n, allowed in GIVEN.items() if n in missing]
        )
    return CollectiveRows.from_rows(file, rows, left_out, "finished measurement")


def _placement(test: CollectiveTest, file: str, given: Mapping[str, object]) -> dict[str, Any]:
    """Return operation, nodes, GPUs per node, and ranks; of the first group where several ran at once."""
    hosts = Counter(host for group, host in test.hosts if group == test.hosts[0][0])
    given_op = str(given.get("op", ""))
    op = given_op if given_op in OPERATIONS.values() else operation(given_op)
    nodes = whole_number(given.get("nodes")) or len(hosts) or None
    per_node = whole_number(given.get("gpus_per_node"))
    ranks = hosts.total() or test.ranks or 0
    if ranks and nodes and not per_node:
        per_node = math.ceil(ranks / nodes)
    elif ranks and per_node and not nodes:
        nodes = math.ceil(ranks / per_node)
    if "gpus_per_node" in given or not ranks:
        ranks = (nodes or 0) * (per_node or 0)
    op = op or test.op or operation(file)
    return {"op": op, "nodes": nodes, "gpus_per_node": per_node, "ranks": ranks}


def check_given(given: Mapping[str, object]) -> None:
    """Raise `InputError` for given values of collectives that are invalid, all at once."""
    problems = [
        f"{name} = {given[name]!r}: {MUST_BE_WHOLE}"
        for name in ("nodes", "gpus_per_node")
        if name in given and whole_number(given[name]) is None
    ]
    if "op" in given and operation(str(given["op"])) is None and given["op"] not in OPERATIONS.values():
        problems.insert(0, f"op = {given['op']!r}: must be {GIVEN['op']}")
    raise_problems("what is given", problems)


def operation(name: str) -> str | None:
    """Return the operation in the name of a program or file, None without."""
    letters = re.sub("[^a-z]", "", name.lower())
    return next((op for program, op in OPERATIONS.items() if program in letters), None)


def read_nccl_tests(file: str, text: str, given: Mapping[str, object]) -> CollectiveRows:
    """Read all tests of a text; `given` stands for what it lacks, the operation may be in the file's name."""
    check_given(given)
    return rows_of(file, given, _measurements(text))


def _measurements(text: str) -> Iterator[Found]:
    programs = {operation(name) for name in re.findall(r"\b(\w+)_perf\b", text)}
    test = CollectiveTest(programs.pop() if len(programs) == 1 else None)
    for line_number, (_, line) in enumerate(lines(text), start=1):
        if not ("#" in line and _read_comment(test, line)) and (match := LINE.search(line)):
            yield f"line {line_number}", test, _size_and_time(match[0].split(), test.columns)


def _read_comment(test: CollectiveTest, line: str) -> bool:
    """Update a test from a comment line; return whether the line is a comment."""
    if program := re.search(r"# Collective test starting: (\S+)", line):
        test.op = operation(program[1])
    if re.search(TEST_START, line):
        test.hosts = []
        test.gpu = ""
    if rank := RANK.search(line):
        test.hosts.append((rank[2] or "0", rank[3]))
        test.gpu = rank[4]
        return True
    if re.search(TABLE_HEADER, line):
        test.columns = tuple(line[line.index("#") + 1 :].split())
    return line.lstrip().startswith("#")


def _size_and_time(words: Sequence[str], columns: Sequence[str]) -> tuple[float, float] | str:
    """Return size [byte] and time [µs] of a line, or the reason why it is left out."""
    if "time" not in columns:
        return HOST_TIME
    if len(words) < len(columns) - ("timestamp" in columns):
        return "cut off"
    cells = list(zip(columns, words, strict=False))
    if any(name == "#wrong" and (number(word) or 0) > 0 for name, word in cells):
        return WRONG_RESULTS
    times = [number(word) for name, word in cells if name == "time"]
    return _positive(number(words[0]), next((time for time in times if time), None))


def _positive(size: float | None, time: float | None) -> tuple[float, float] | str:
    if not size:
        return "of no byte"
    return (size, time) if time and time > 0 else "no time"


def read_json(file: str, text: str, given: Mapping[str, object]) -> CollectiveRows:
    """Read the test of a file written with ``-J``; arguments and errors as of `read_nccl_tests`."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(file, [f"malformed JSON: {error}"]) from None
    listed = document.get("results") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise InputError(file, ["results: missing; this is no file that nccl-tests writes with -J"])
    check_given(given)
    test = _test_of_json(document)
    found = ((f"result {i}", test, _size_and_time_of_result(one)) for i, one in enumerate(listed, start=1))
    return rows_of(file, given, found)


def _test_of_json(document: Mapping[str, Any]) -> CollectiveTest:
    """Return the test of a JSON file, which lists one device of each process, not all of them."""
    config = document["config"] if isinstance(document.get("config"), dict) else {}
    listed = config.get("devices") or document.get("devices")
    devices = [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []
    gpus_per_process = (whole_number(config.get("nthreads")) or 1) * (whole_number(config.get("ngpus")) or 1)
    hosts = [(str(device.get("group", "0")), str(device.get("hostname"))) for device in devices]
    arguments = document.get("args")
    program = str(arguments[0]).rsplit("/", 1)[-1] if isinstance(arguments, list) and arguments else ""
    gpu = str(devices[-1].get("device_info", "")) if devices else ""
    return CollectiveTest(
        operation(program), hosts=hosts * min(gpus_per_process, MAX_GPUS_PER_PROCESS), gpu=gpu
    )


def _size_and_time_of_result(result: object) -> tuple[float, float] | str:
    """Return size [byte] and time [µs] of a result, or the reason why it is left out."""
    if not isinstance(result, dict):
        return "no mapping"
    timings = [result[name] for name in ("out_of_place", "in_place") if isinstance(result.get(name), dict)]
    if any((number(str(timing.get("nwrong"))) or 0) > 0 for timing in timings):
        return WRONG_RESULTS
    if any("cpu_time" in timing for timing in timings):
        return HOST_TIME
    times = [number(str(timing.get("time"))) or 0.0 for timing in timings]
    return _positive(number(str(result.get("size"))), next((time for time in times if time > 0), None))
