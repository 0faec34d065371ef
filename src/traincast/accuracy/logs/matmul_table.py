"""Tables of matrix products: CSV with a column for each of M, N and K, and one of time or throughput."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from traincast.accuracy.logs.rows import GemmRows, MatmulRow
from traincast.accuracy.logs.text import number, whole_number
from traincast.core.errors import InputError

COLUMN_NAMES: Final = {  # column -> its names, lower case, letters and digits only; the first that is present counts
    "m": ("m",), "kind": ("kind",), "n": ("n",), "k": ("k",), "batch": ("batch", "b", "batchsize", "batchcount", "groups"),
    "dtype": ("dtype", "datatype", "precision", "type"), "gpu": ("gpu", "device", "accelerator"),
    "us": ("timeus", "us", "usec", "timeusec", "durationus", "latencyus", "microseconds", "timemicroseconds"),
    "ms": ("timems", "ms", "msec", "durationms", "latencyms", "milliseconds", "timemilliseconds"),
    "s": ("times", "s", "sec", "seconds", "timeseconds", "timesec", "durations"),
    "ns": ("timens", "ns", "durationns", "nanoseconds"),
    "tflops": ("tflops", "tflop", "tfs", "tflopsgpu"), "gflops": ("gflops", "gflop"),
}  # fmt: skip
TO_US: Final = {"us": 1.0, "ms": 1e3, "s": 1e6, "ns": 1e-3}
TO_FLOPS: Final = {"tflops": 1e12, "gflops": 1e9}
DTYPES: Final = {
    "fp32": "fp32", "float32": "fp32", "float": "fp32", "f32": "fp32", "tf32": "tf32",
    "fp16": "fp16", "float16": "fp16", "half": "fp16", "f16": "fp16", "bf16": "bf16", "bfloat16": "bf16",
    "fp8": "fp8", "fp8e4m3": "fp8", "float8e4m3fn": "fp8", "e4m3": "fp8", "float8": "fp8", "mxfp8": "mxfp8", "nvfp4": "nvfp4",
}  # fmt: skip
GIVEN: Final = ("dtype", "gpu")  # columns that may be given instead
MAX_FLOPS: Final = 1e17  # above any accelerator [FLOP/s]: the time is in another unit than its column says


def columns(header: Sequence[str]) -> dict[str, int]:
    """Return the index of each column of a table of products, empty if it is no such table.

    Parameters
    ----------
    header : sequence of str
        Names of the columns, as written.
    """
    plain = [re.sub(r"[^a-z0-9]", "", name.lower().replace("µ", "u").replace("μ", "u")) for name in header]
    indices = {
        column: plain.index(name)
        for column, names in COLUMN_NAMES.items()
        for name in reversed(names)
        if name in plain
    }
    return indices if {"m", "n", "k"} <= set(indices) else {}


def read(file: str, table: Sequence[Sequence[str]], given: Mapping[str, Any]) -> GemmRows:
    """Read the products of a table.

    Parameters
    ----------
    file : str
        Name of the file.
    table : sequence of sequence of str
        Its cells; the first row names the columns.
    given : mapping of str to Any
        ``dtype`` and ``gpu`` where the table lacks them.

    Raises
    ------
    InputError
        If a column is missing, a given value is invalid, or no row can be read.
    """
    if "dtype" in given and _dtype(str(given["dtype"])) is None:
        raise InputError(
            "what is given",
            [f"dtype = {given['dtype']!r}: must be one of {', '.join(dict.fromkeys(DTYPES.values()))}"],
        )
    indices = columns(table[0])
    missing = []
    if not set(indices) & (set(TO_US) | set(TO_FLOPS)):
        missing.append("time: missing; one of the columns time_us, time_ms, time_s, tflops is needed")
    if "dtype" not in indices and "dtype" not in given:
        missing.append(
            f"dtype: missing; add the column or give dtype= ({', '.join(dict.fromkeys(DTYPES.values()))})"
        )
    if missing:
        raise InputError(file, missing)
    rows, left_out = [], []
    for line, cells in enumerate(table[1:], start=2):
        row = _gemm(
            {name: cells[index].strip() for name, index in indices.items() if index < len(cells)}, given
        )
        if isinstance(row, MatmulRow):
            rows.append(row)
        elif any(cell.strip() for cell in cells):
            left_out.append(f"line {line}: {row}")
    if not rows:
        raise InputError(file, ["holds no product that can be read", *left_out[:5]])
    return GemmRows(file=file, rows=tuple(rows), left_out=tuple(left_out))


def _gemm(cells: Mapping[str, str], given: Mapping[str, Any]) -> MatmulRow | str:
    """Return a product, or the reason why a row is left out."""
    shape = {name: whole_number(cells.get(name)) for name in ("m", "n", "k")}
    if wrong := [name for name, size in shape.items() if size is None]:
        return ", ".join(f"{name} = {cells.get(name, '')!r} is no whole number" for name in wrong)
    if "gemm" not in cells.get("kind", "gemm").lower():
        return f"kind = {cells['kind']!r} is no matrix product"
    type_name = cells.get("dtype") or str(given.get("dtype", ""))
    dtype = _dtype(type_name)
    if dtype is None:
        return f"dtype = {type_name!r}"
    batch = whole_number(cells["batch"]) if cells.get("batch") else 1
    if batch is None:
        return f"batch = {cells['batch']!r} is no whole number"
    sizes = {name: size for name, size in shape.items() if size}
    flop = 2.0 * sizes["m"] * sizes["n"] * sizes["k"] * batch
    time = _time_us(cells, flop)
    if time is None:
        return "no time"
    if flop / (time * 1e-6) > MAX_FLOPS:
        return f"{time:.4g} µs is faster than any accelerator: another unit?"
    return MatmulRow(
        **sizes, dtype=dtype, time_us=time, batch=batch, gpu=cells.get("gpu") or str(given.get("gpu", ""))
    )


def _dtype(name: str) -> str | None:
    """Return the data type of a table's name for it; None where it is unknown."""
    return DTYPES.get(re.sub(r"[^a-z0-9]", "", name.lower().removeprefix("torch.")))


def _time_us(cells: Mapping[str, str], flop: float) -> float | None:
    """Return the time, as measured or from the throughput [µs]."""
    for name, factor in TO_US.items():
        if (value := number(cells.get(name, ""))) and value > 0:
            return value * factor
    for name, factor in TO_FLOPS.items():
        if (value := number(cells.get(name, ""))) and value > 0:
            return flop / (value * factor) * 1e6
    return None
