"""Predictions of published kernel benchmarks by the formulas of a step (docs/kernels.md)."""

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from traincast.accuracy.fit.benchmark_times import REPEATED_KERNEL, pass_seconds
from traincast.catalog.load import accelerator_called, load_accelerator
from traincast.catalog.software_stacks import Stack, calibrated
from traincast.core.assumptions import Assumptions
from traincast.core.errors import InputError
from traincast.core.precision import PRECISIONS
from traincast.core.quantities import Column, Floats
from traincast.core.system import Accelerator
from traincast.operations.attention import Heads, flash
from traincast.operations.operation import Gemm, Layout, PassCount
from traincast.times.roofline import memory_rate

Kind = Literal["product", "grouped", "attention forward", "attention backward", "memory"]
TABLE: Final = Path(__file__).with_name("measured") / "gemm.csv"
EXCLUDED: Final = (  # rows that do not measure an ordinary kernel: kind, notes, reason
    (r"max achievable", r"", "the best of many shapes: an upper bound"),
    (r"gemm bwd", r"", "on gradients near zero, which draw little power"),
    (r"attention", r"not stated|standard attention", "forward and backward mixed, causality not stated"),
)
XLA: Final = "maxtext-2025"  # the stack that the kernels of TPUs are timed with
ELEMENT_BYTES: Final = {"bf16": 2.0, "fp32": 4.0}  # of an element of a product's result [byte]


@dataclass(frozen=True)
class Benchmark:
    """A measured kernel.

    Parameters
    ----------
    id, source : str
        Name of the row, and its publication.
    accelerator : str
        Name of the catalogue.
    kind : {"product", "grouped", "attention forward", "attention backward", "memory"}
        What was measured.
    family : str
        Rows of one source and machine that differ in shape only.
    dtype : {"16-bit", "fp8"}
        Type of the operands.
    sizes : mapping of str to float
        Products: m, k, n and batch, and written, the traffic of an element of the result [byte]. Attention:
        sequences b, heads h and kv, length s, widths q and v, causal. Memory: nbytes.
    seconds : float
        Time [s].
    """

    id: str
    source: str
    accelerator: str
    kind: Kind
    family: str
    dtype: str
    sizes: Mapping[str, float]
    seconds: float


@dataclass(frozen=True)
class KernelPrediction:
    """A measured kernel and its predicted time [s]."""

    benchmark: Benchmark
    seconds: float

    @property
    def error(self) -> float:
        """Predicted over measured time, less 1."""
        return self.seconds / self.benchmark.seconds - 1


def read(table: str | Path | None = None) -> tuple[tuple[Benchmark, ...], dict[str, str]]:
    """Read a table of microbenchmarks.

    Parameters
    ----------
    table : str or Path, optional
        A CSV file with the columns of the bundled table of published microbenchmarks; that table itself if
        left out.

    Returns
    -------
    tuple of tuple of Benchmark, dict of str to str
        Rows that can be predicted, and why the others cannot, by their id.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    try:
        path = Path(table or TABLE)
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    except OSError as error:
        raise InputError("microbenchmarks", [str(error)]) from error
    rows_by_id = {row["id"]: _benchmark(row) for row in rows}
    return tuple(row for row in rows_by_id.values() if isinstance(row, Benchmark)), {
        name: reason for name, reason in rows_by_id.items() if isinstance(reason, str)
    }


def _benchmark(row: Mapping[str, str]) -> Benchmark | str:
    """Return a row as a benchmark, or the reason why it is left out."""
    reason = next(
        (
            reason
            for kind, notes, reason in EXCLUDED
            if re.search(kind, row["kind"]) and re.search(notes, row["notes"])
        ),
        None,
    )
    name = accelerator_called(row["gpu"])
    if reason or name is None:
        return reason or f"accelerator {row['gpu']} is not in the catalogue"
    detail = dict(re.findall(r"([\w-]+)=(\w+)", row["shape_detail"]))
    if row["kind"].startswith("attention"):
        kind: Kind = "attention backward" if row["kind"].endswith("bwd") else "attention forward"
        sizes, flops, family = _heads(row, detail, kind)
    elif row["kind"].startswith("hbm"):
        rate = float(row["bandwidth_tb_s"]) * 1e12
        return Benchmark(
            row["id"], row["source"], name, "memory", row["kind"], "16-bit", {"nbytes": rate}, 1.0
        )
    else:
        kind = "grouped" if row["kind"].startswith("grouped") else "product"
        sizes, family = _shape(row, detail)
        flops = 2 * sizes["batch"] * sizes["m"] * sizes["k"] * sizes["n"]
    seconds = float(row["time_us"]) * 1e-6 if row["time_us"] else flops / (float(row["tflops"]) * 1e12)
    if "half chip" in row["gpu"]:  # the other half runs another meanwhile
        sizes["batch"] *= 2
    return Benchmark(
        row["id"],
        row["source"],
        name,
        kind,
        family,
        "fp8" if "8" in row["dtype"] else "16-bit",
        sizes,
        seconds,
    )


def _shape(row: Mapping[str, str], detail: Mapping[str, str]) -> tuple[dict[str, float], str]:
    """Return sizes and family of a product; every stage of a grouped one states the sizes forward."""
    m, n, k = (float(row[size]) for size in "mnk")
    stage = detail.get("stage", "")
    added = detail.get("accumulate") == "True"
    result = detail.get("main_grad_dtype" if stage == "bwd_grad_w" else "out_dtype", "bf16")
    if stage:
        m, k, n = {"fwd": (m, k, n), "bwd_grad_act": (m, n, k), "bwd_grad_w": (k, m, n)}[stage]
    family = "-".join((stage or detail.get("layout", ""), result, "added" if added else ""))
    if "mp" in detail:
        family = "wide" if n > k else "narrow"
    sizes = {
        "m": m,
        "k": k,
        "n": n,
        "batch": float(row["batch"] or 1),
        "written": ELEMENT_BYTES[result] * (2 if added else 1),
    }
    return sizes, family


def _heads(
    row: Mapping[str, str], detail: Mapping[str, str], kind: Kind
) -> tuple[dict[str, float], float, str]:
    """Return sizes, the FLOPs that the table counts (of the full square), and family of attention."""
    s = float(detail.get("seq_len") or detail["seq"])
    h = float(detail.get("head_num") or detail["heads"])
    q, v = (float(detail.get(f"{side}_head_dim") or detail["head_dim"]) for side in ("qk", "v"))
    b, kv = float(row["batch"] or detail.get("batch", 1)), float(detail.get("kv_head_num", h))
    causal = 0.0 if "non-causal" in row["shape_detail"] else 1.0
    sizes = {"b": b, "h": h, "kv": kv, "s": s, "q": q, "v": v, "causal": causal}
    products_over_forward = 2.5 if kind == "attention backward" else 1.0  # five products instead of two
    return sizes, products_over_forward * 2 * b * h * s * s * (q + v), f"{kind}-{q:g}"


def predict(
    benchmarks: Iterable[Benchmark],
    assumptions: Assumptions | None = None,
    accelerators: Mapping[str, Accelerator] | None = None,
) -> tuple[KernelPrediction, ...]:
    """Predict measured kernels with the formulas of a step.

    Parameters
    ----------
    benchmarks : iterable of Benchmark
        Measured kernels.
    assumptions : Assumptions, optional
        By default the calibrated ones, on TPUs those of XLA, for a kernel repeated on an accelerator that
        starts at rest.
    accelerators : mapping of str to Accelerator, optional
        Accelerators that replace the catalogue's.

    Returns
    -------
    tuple of KernelPrediction
        In the order of the benchmarks.
    """
    on_gpus, on_tpus = (
        assumptions or software.with_values(REPEATED_KERNEL)
        for software in (calibrated(), Stack(XLA).assumptions)
    )
    order, groups = {}, defaultdict(list)
    for index, benchmark in enumerate(benchmarks):
        order[benchmark.id] = index
        groups[benchmark.accelerator, benchmark.kind, benchmark.dtype].append(benchmark)
    predictions = []
    for (name, kind, dtype), group in groups.items():
        gpu = (accelerators or {}).get(name) or load_accelerator(name)
        sizes = {size: np.array([benchmark.sizes[size] for benchmark in group]) for size in group[0].sizes}
        assumed = on_tpus if name.startswith("tpu") else on_gpus
        seconds = np.broadcast_to(_seconds(kind, dtype, sizes, gpu, assumed), len(group))
        predictions += [
            KernelPrediction(benchmark, float(time)) for benchmark, time in zip(group, seconds, strict=True)
        ]
    return tuple(sorted(predictions, key=lambda prediction: order[prediction.benchmark.id]))


def _seconds(
    kind: Kind, dtype: str, sizes: Mapping[str, Floats], gpu: Accelerator, assumed: Assumptions
) -> Column:
    """Return the times of kernels of one kind [s]."""
    if kind == "memory":
        return sizes["nbytes"] / memory_rate(gpu, assumed)
    if kind in ("attention forward", "attention backward"):
        at = Heads(
            sizes["b"], sizes["h"], sizes["kv"], sizes["s"], sizes["s"], sizes["q"], sizes["v"], _share(sizes)
        )
        kernel: Literal["fa2", "cudnn"] = (
            "cudnn" if sizes["causal"].any() else "fa2"
        )  # as the sources of the table ran them
        op = flash(assumed.memory.element_bytes, at, ((), ()), dropped=False)
        work = op.backward if kind == "attention backward" else op.forward
        return pass_seconds(work, gpu, assumed.with_values({"attention.kernel": kernel}), PRECISIONS["bf16"])
    layout: Layout = "grouped" if kind == "grouped" else "one"
    m, k, n, b = (sizes[size] for size in ("m", "k", "n", "batch"))
    low = dtype == "fp8"
    written = b * m * n * sizes["written"]
    operand_bytes = b * (m * k + k * n) * (1.0 if low else 2.0)
    work = PassCount((Gemm(m, k, n, b, low=low, layout=layout),), operand_bytes + written, written=written)
    return pass_seconds(work, gpu, assumed, PRECISIONS["fp8" if low else "bf16"])


def _share(sizes: Mapping[str, Floats]) -> Column:
    """Return the share of query-key pairs that a causal mask leaves."""
    return 1 - sizes["causal"] * (1 - (1 + 1 / sizes["s"]) / 2)


def mape(predictions: Sequence[KernelPrediction]) -> float:
    """Return the mean absolute relative error."""
    return float(np.mean([abs(prediction.error) for prediction in predictions]))
