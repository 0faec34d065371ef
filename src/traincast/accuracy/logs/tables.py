"""CSV tables of matrix products and of collectives, and the parsing of CSV."""

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from traincast.accuracy.logs import nccl_tests
from traincast.accuracy.logs.rows import CollectiveRow, CollectiveRows, GemmRows, MatmulRow
from traincast.accuracy.logs.text import number, whole_number
from traincast.core import InputError, raise_problems

AnyRows = TypeVar("AnyRows", GemmRows, CollectiveRows)
PRODUCT_COLUMNS: Final = {  # column -> its names, letters and digits only; the first present counts
    "m": ("m",), "kind": ("kind",), "n": ("n",), "k": ("k",),
    "batch": ("batch", "b", "batchsize", "batchcount", "groups"),
    "dtype": ("dtype", "datatype", "precision", "type"), "gpu": ("gpu", "device", "accelerator"),
    "us": (
        "timeus", "us", "usec", "timeusec", "durationus", "latencyus", "microseconds", "timemicroseconds",
    ),
    "ms": ("timems", "ms", "msec", "durationms", "latencyms", "milliseconds", "timemilliseconds"),
    "s": ("times", "s", "sec", "seconds", "timeseconds", "timesec", "durations"),
    "ns": ("timens", "ns", "durationns", "nanoseconds"),
    "tflops": ("tflops", "tflop", "tfs", "tflopsgpu"), "gflops": ("gflops", "gflop"),
}  # fmt: skip
TO_US: Final = {"us": 1.0, "ms": 1e3, "s": 1e6, "ns": 1e-3}
TO_FLOPS: Final = {"tflops": 1e12, "gflops": 1e9}
DTYPES: Final = {  # type -> other names of it
    "fp32": ("float32", "float", "f32"),
    "tf32": (),
    "fp16": ("float16", "half", "f16"),
    "bf16": ("bfloat16",),
    "fp8": ("fp8e4m3", "float8e4m3fn", "e4m3", "float8"),
    "mxfp8": (),
    "nvfp4": (),
}
PRODUCT_GIVEN: Final = ("dtype", "gpu")  # columns of products that may be given instead
MAX_FLOPS: Final = 1e17  # above any accelerator [FLOP/s]: the time is in another unit than its column says
COLLECTIVE_COLUMNS: Final = ("op", "nodes", "gpus_per_node", "size_bytes")  # and one of `COLLECTIVE_TIMES`
COLLECTIVE_TIMES: Final = ("time_us", "algbw_gb_s", "busbw_gb_s")
BUS_FACTOR: Final = {  # times (n - 1)/n: bus over algorithm bandwidth
    "allreduce": 2.0,
    "allgather": 1.0,
    "reducescatter": 1.0,
    "all2all": 1.0,
}


def parse(text: str) -> list[list[str]]:
    """Return the cells of a CSV table, without blank lines and comments; empty where it is malformed."""
    rows = _rows(text)
    try:
        lines = "\n".join(rows).splitlines(keepends=True)
        return list(csv.reader(lines, delimiter=_delimiter(rows[0]), skipinitialspace=True))
    except csv.Error:
        return []


def header(text: str) -> list[str]:
    """Return the names of the columns of a text, as if it were a table."""
    first = next(iter(_rows(text)), "")
    return [name.strip().strip('"') for name in first.split(_delimiter(first))]


def _rows(text: str) -> list[str]:
    """Return the lines of a table, without blank lines and comments."""
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _delimiter(line: str) -> str:
    return max(",;\t", key=line.count)


def product_columns(names: Sequence[str]) -> dict[str, int]:
    """Return the index of each column of a table of products, empty if it is no such table."""
    plain = [re.sub(r"[^a-z0-9]", "", name.lower().replace("µ", "u").replace("μ", "u")) for name in names]
    indices = {
        column: plain.index(name)
        for column, aliases in PRODUCT_COLUMNS.items()
        for name in reversed(aliases)
        if name in plain
    }
    return indices if {"m", "n", "k"} <= set(indices) else {}


def _read_rows(
    kind: type[AnyRows],
    file: str,
    table: Sequence[Sequence[str]],
    indices: Mapping[str, int],
    given: Mapping[str, object],
    row_of: Callable[[dict[str, str]], object],
) -> AnyRows:
    """Read the rows of a table, given values in empty cells; `row_of` returns a row or why it is left out."""
    rows = []
    left_out = []
    for line, cells in enumerate(table[1:], start=2):
        stated = {
            name: cells[i].strip() for name, i in indices.items() if i < len(cells) and cells[i].strip()
        }
        if any(cell.strip() for cell in cells):
            row = row_of({name: str(value) for name, value in given.items()} | stated)
            if isinstance(row, str):
                left_out.append(f"line {line}: {row}")
            else:
                rows.append(row)
    thing = "product" if kind is GemmRows else "collective"
    return kind.from_rows(file, rows, left_out, f"{thing} that can be read")


def read_products(file: str, table: Sequence[Sequence[str]], given: Mapping[str, object]) -> GemmRows:
    """Read the products of a table; `dtype` and `gpu` may be given where it lacks them."""
    if "dtype" in given and _dtype(str(given["dtype"])) is None:
        problem = f"dtype = {given['dtype']!r}: must be one of {', '.join(DTYPES)}"
        raise InputError("what is given", [problem])
    indices = product_columns(table[0])
    missing = []
    if not set(indices) & (set(TO_US) | set(TO_FLOPS)):
        missing.append("time: missing; one of the columns time_us, time_ms, time_s, tflops is needed")
    if "dtype" not in indices and "dtype" not in given:
        missing.append(f"dtype: missing; add the column or give dtype= ({', '.join(DTYPES)})")
    raise_problems(file, missing)
    return _read_rows(GemmRows, file, table, indices, given, _product)


def _product(cells: Mapping[str, str]) -> MatmulRow | str:
    """Return a product, or the reason why a row is left out."""
    sizes = {name: whole_number(cells.get(name)) for name in ("m", "n", "k")}
    if wrong := [name for name, size in sizes.items() if size is None]:
        return ", ".join(f"{name} = {cells.get(name, '')!r} is no whole number" for name in wrong)
    m, n, k = (size or 0 for size in sizes.values())
    if "gemm" not in cells.get("kind", "gemm").lower():
        return f"kind = {cells['kind']!r} is no matrix product"
    dtype = _dtype(cells.get("dtype", ""))
    batch = whole_number(cells.get("batch", 1))
    if dtype is None:
        return f"dtype = {cells.get('dtype', '')!r}"
    if batch is None:
        return f"batch = {cells['batch']!r} is no whole number"
    flop = 2.0 * m * n * k * batch
    time = _product_us(cells, flop)
    if time is None:
        return "no time"
    if flop / (time * 1e-6) > MAX_FLOPS:
        return f"{time:.4g} µs is faster than any accelerator: another unit?"
    return MatmulRow(m=m, n=n, k=k, dtype=dtype, time_us=time, batch=batch, gpu=cells.get("gpu", ""))


def _dtype(name: str) -> str | None:
    plain = re.sub(r"[^a-z0-9]", "", name.lower().removeprefix("torch."))
    return next((dtype for dtype, aliases in DTYPES.items() if plain in (dtype, *aliases)), None)


def _product_us(cells: Mapping[str, str], flop: float) -> float | None:
    """Return the time, as measured or from the throughput [µs]."""
    for name, factor in (TO_US | TO_FLOPS).items():
        if (value := number(cells.get(name, ""))) and value > 0:
            return value * factor if name in TO_US else flop / (value * factor) * 1e6
    return None


def read_collectives(
    file: str, table: Sequence[Sequence[str]], given: Mapping[str, object]
) -> CollectiveRows:
    """Read collectives from a table with the columns of the bundled one; given values fill empty cells."""
    nccl_tests.check_given(given)
    indices = {name.strip(): index for index, name in enumerate(table[0])}
    return _read_rows(CollectiveRows, file, table, indices, given, _collective)


def _collective(row: Mapping[str, str]) -> CollectiveRow | str:
    """Return a collective, or the reason why a row is left out."""
    nodes = whole_number(row.get("nodes"))
    per_node = whole_number(row.get("gpus_per_node"))
    op = row.get("op", "")
    size = number(row.get("size_bytes", ""))
    ranks = whole_number(row.get("ranks")) or (nodes or 0) * (per_node or 0)
    time = _collective_us(row, size, ranks) if size and size > 0 and ranks else None
    if not (op and nodes and per_node and size and time):
        needed = f"op, nodes, gpus_per_node, size_bytes and one of {', '.join(COLLECTIVE_TIMES)}"
        return f"{needed} are needed, all above 0"
    placement = {"nodes": nodes, "gpus_per_node": per_node, "ranks": ranks}
    return CollectiveRow(op=op, **placement, size_bytes=size, time_us=time, gpu=row.get("gpu", ""))


def _collective_us(row: Mapping[str, str], size: float, ranks: int) -> float | None:
    """Return the time of a collective, as measured or from a bandwidth as nccl-tests defines it [µs]."""
    time, algorithm, bus = (number(row.get(name, "")) for name in COLLECTIVE_TIMES)
    if time is None and bus and row["op"] in BUS_FACTOR and ranks > 1:
        algorithm = algorithm or bus / BUS_FACTOR[row["op"]] * ranks / (ranks - 1)
    if time is None and algorithm and algorithm > 0:
        time = size / (algorithm * 1e9) * 1e6
    return time if time and time > 0 else None
