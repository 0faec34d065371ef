"""Predictions against tables of timed kernels: products, attention, experts and collectives.

Tables are those of NVIDIA's aiconfigurator (systems/data), as CSV or Parquet files: one kernel a row, with
its sizes, `latency_ms`, `system` and the library (`kernel_source`). Its columns tell what a table holds.
Kernels run alone, at rest before each: they are faster than in steady training, whose rates the catalogue
has. So errors are stated three times: with the catalogue's rate, with one rate for the group (an accelerator,
type and library), and with that of the other accelerators.
"""

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import numpy as np

from traincast.accuracy.fit.parameters import Setting
from traincast.accuracy.fit.residuals import REPEATED_COLLECTIVE, REPEATED_KERNEL, pass_seconds
from traincast.catalog.load import load_accelerator, load_system
from traincast.catalog.software_stacks import calibrated
from traincast.core.assumptions import CALIBRATED
from traincast.core.errors import InputError
from traincast.core.precision import PRECISIONS
from traincast.core.quantities import Column, Floats
from traincast.core.result import KEY, Doc, Result
from traincast.core.system import ATTENTION_KERNELS as ATTENTION
from traincast.core.system import PEAKS, Accelerator, System
from traincast.operations.attention import Heads, flash
from traincast.operations.operation import CollectiveKind, Gemm, PassCount
from traincast.times.collectives import collective
from traincast.times.process_groups import Group as Members

MACHINES: Final = {  # name of a machine in the tables → accelerator and system of the catalogue
    "a100_sxm": ("a100-sxm-80", "dgx-a100"),
    "h100_sxm": ("h100-sxm-80", "dgx-h100"),
    "h200_sxm": ("h200-sxm-141", "dgx-h200"),
    "b200_sxm": ("b200-180", "dgx-b200"),
    "b300_sxm": ("b300-288", "dgx-b300"),
    "gb200": ("gb200-186", "gb200-nvl72"),
    "gb300": ("gb300-288", "gb300-nvl72"),
    "rtx_pro_6000_server": ("rtx-pro-6000-96", ""),
}
AS_IT_IS: Final = Setting((), ())  # no value of the catalogue is replaced
RECIPES: Final = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8-block", "nvfp4": "nvfp4"}
COLLECTIVES: Final[dict[str, CollectiveKind]] = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all",
}
ATTENTION_KERNELS: Final = (("fa3", "fa3"), ("fa4", "fa3"), ("trtllm", "cudnn"), ("flash_attn", "fa2"))
# One kernel in a loop of a few: no power limit acts, so that the group's rate is the whole rate. Fitted to
# 90,000 products of six accelerators: 2.4 µs a kernel (1.8 to 4.2), 0.2 of a wave lost (0.05 to 0.3).
ALONE: Final = REPEATED_KERNEL | {
    "kernels.burst_seconds": 2e-3,
    "kernels.launch_seconds": 2.4e-6,
    "kernels.wave_loss": 0.2,
}
BURST: Final = 1.17  # rate of 16-bit products far shorter than 2 ms over that of longer ones: 1.0 to 1.23
# Products at 4 bits take tiles of 256 x 128, whose last wave is lost: 5.1 % instead of 7.4 % on a B200. At 8
# and 16 bits such tiles gain 0.2 points, which is no reason to leave those of 128 x 128.
WIDE_TILES: Final = {"kernels.tile_aspect": 2.0, "kernels.wave_loss": 0.7}
# The engine casts activations in a kernel of its own: start-up of both [s], and passes over what it moves.
CASTING: Final = {"fp8": (15e-6, 2.1), "fp8_block": (5.8e-6, 1.35), "nvfp4": (8.4e-6, 1.2)}
# Prefill kernels read paged keys and values of sequences of any length; medians of fits to six accelerators.
PREFILL: Final = {
    "attention.launch_seconds": 10e-6,
    "attention.start": 450.0,
    "attention.tail": 0.55,
}
SOFTMAX: Final = {
    "cudnn": 90.0
}  # of kernels for Blackwell, whose exponentials take longer: 98 to 132; else 22
BANDS: Final = (0.0, 3e10, 3e11, 3e12)  # least arithmetic of a band [FLOP]
BYTE_BANDS: Final = (0.0, 2.0**16, 2.0**20, 50e6)  # the same of collectives [byte]
ORDINARY: Final = 1  # bands from this one on count in the mean
MIN_SIDE: Final = 512  # of the result of an ordinary product
MIN_ROWS: Final = 20  # of a group
RATE_STEPS: Final = 8  # of the secant that finds a group's rate
MAX_RATE: Final = 8.0  # of a group, relative to the catalogue's, or its inverse


@dataclass(frozen=True)
class KernelErrors(Result):
    """Errors of the kernels of one kind, machine, type and library; by band, smallest first."""

    kind: Annotated[str, Doc("products, attention, windowed attention, experts or collectives")]
    machine: Annotated[str, Doc("accelerator of the catalogue, of collectives the system")]
    dtype: Annotated[str, Doc("type of the operands, and what else sets kernels apart: loads, a window")]
    library: Annotated[str, Doc("what ran them, as the table says")]
    n: Annotated[int, Doc("kernels of ordinary size: the smallest band left out")]
    rate: Annotated[float, Doc("rate of the group relative to the catalogue's")]
    catalogue: Annotated[float, Doc("mean absolute relative error with the catalogue's rate")]
    own: Annotated[float, Doc("the same with the group's rate")]
    left_out: Annotated[float | None, Doc("the same with the rate of the other machines; null without any")]
    bands: Annotated[
        tuple[float | None, ...],
        Doc(
            "errors with the group's rate by size: up to 3e10, 3e11, 3e12 FLOP or 64 KiB, 1 MiB, 50 MB, above"
        ),
    ]


@dataclass(frozen=True, repr=False)
class KernelReport(Result):
    """Predictions of tables of timed kernels."""

    groups: Annotated[tuple[KernelErrors, ...], KEY]
    left_out_rows: Annotated[dict[str, int], Doc("rows that are not predicted, by reason")]

    def mean(self, kind: str, figure: str = "own") -> float:
        """Return the mean error of the groups of a kind."""
        values = [getattr(group, figure) for group in self.groups if group.kind == kind]
        return float(np.mean([value for value in values if value is not None]))


class Group(NamedTuple):
    """Timed kernels that share a rate; `predict` gives their times at a rate, the catalogue's being 1 [s].

    Its second argument holds values of constants that replace those of the catalogue.
    """

    key: tuple[str, str, str, str]  # kind, machine, type, library
    measured: Floats
    size: Floats  # FLOP, of collectives byte
    ordinary: Any  # which rows count
    predict: Callable[..., Floats]


def validate_kernels(tables: Sequence[str | Path]) -> KernelReport:
    """Predict the kernels of tables, and compare with their measured times.

    Parameters
    ----------
    tables : sequence of str or Path
        CSV or Parquet files, or folders of such files.

    Raises
    ------
    InputError
        If a file cannot be read, or no table holds kernels that are predicted.
    """
    groups, left_out = groups_of(tables)
    if not groups:
        raise InputError("kernels", [f"{reason}: {n} rows" for reason, n in left_out.items()] or ["no rows"])
    rates = [_own_rate(group) for group in groups]
    errors = (_errors(group, i, groups, rates) for i, group in enumerate(groups))
    return KernelReport(tuple(sorted(errors, key=lambda each: each.kind)), left_out)


def groups_of(tables: Sequence[str | Path]) -> tuple[list[Group], dict[str, int]]:
    """Return the groups of tables, and the numbers of rows that are not predicted by reason."""
    groups, left_out = [], dict[str, int]()
    for path in _files(tables):
        for group, reason, n in _groups(_columns(path), path):
            if group is None:
                left_out[reason] = left_out.get(reason, 0) + n
            else:
                groups.append(group)
    return groups, left_out


def _files(tables: Sequence[str | Path]) -> list[Path]:
    """Return the files of a list of files and folders."""
    paths = [Path(table) for table in tables]
    if missing := [f"{path}: no such file or folder" for path in paths if not path.exists()]:
        raise InputError("kernels", missing)
    found = [
        sorted(file for file in path.iterdir() if file.suffix in (".csv", ".parquet"))
        if path.is_dir()
        else [path]
        for path in paths
    ]
    return [file for files in found for file in files]


def _columns(path: Path) -> dict[str, Any]:
    """Return the columns of a table; numbers where all cells are."""
    try:
        if path.suffix == ".parquet":
            import polars as pl

            frame = pl.read_parquet(path)
            return {
                name: frame[name].fill_null(0).to_numpy()
                for name in frame.columns
                if not frame[name].is_null().all()
            }
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except ImportError as error:
        raise InputError("kernels", [f"{path}: Parquet files need traincast[results]"]) from error
    except Exception as error:  # of polars: no common class
        raise InputError("kernels", [f"{path}: {error}"]) from error
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise InputError("kernels", [f"{path}: row {number} has other cells than the header's columns"])
    return {name: _numbers([row[name] or "0" for row in rows]) for name in (rows[0] if rows else ())}


def _numbers(cells: list[str]) -> Any:
    try:
        return np.array([float(cell) for cell in cells])
    except ValueError:
        return np.array(cells)


def _groups(table: dict[str, Any], path: Path) -> Iterable[tuple[Group | None, str, int]]:
    """Yield the groups of a table, or why rows are left out, with their number."""
    kind = next((kind for kind, needed in KINDS.items() if set(needed.columns) | SHARED <= set(table)), None)
    if kind is None:
        n = len(next(iter(table.values()), ()))
        yield None, f"{path.name}: its columns are those of no kernel that is predicted", n
        return
    reader = KINDS[kind]
    by_key: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, key in enumerate(
        zip(table["system"], *(table[name] for name in reader.split if name in table), strict=True)
    ):
        by_key[tuple(map(str, key))].append(i)
    for (machine, *split), rows in by_key.items():
        part = {name: column[rows] for name, column in table.items()}
        accelerator, system = MACHINES.get(machine, ("", ""))
        if not (system if kind == "collectives" else accelerator):
            yield (
                None,
                f"{machine}: no such {'system' if kind == 'collectives' else 'accelerator'} here",
                len(rows),
            )
            continue
        try:
            group = reader.read(part, accelerator, system, tuple(split))
        except InputError as error:  # a precision that the accelerator lacks, say
            yield None, " ".join(str(error).split()), len(rows)
            continue
        if group.ordinary.sum() < MIN_ROWS:
            yield (
                None,
                f"fewer than {MIN_ROWS} of a kind, machine, type and library of ordinary size",
                len(rows),
            )
        else:
            yield group, "", len(rows)


def _figures(part: dict[str, Any], *names: str) -> tuple[Floats, ...]:
    return tuple(np.asarray(part[name], float) for name in (*names, "latency_ms"))


def _products(part: dict[str, Any], accelerator: str, _: str, split: tuple[str, ...]) -> Group:
    """Return matrix products; at 8 bits and less with the cast of the activations."""
    (dtype, library), gpu = split, load_accelerator(accelerator)
    recipe = PRECISIONS[RECIPES[dtype]]
    m, n, k, ms = _figures(part, "m", "n", "k")
    written, byte = 2 * m * n, 2 * recipe.operand
    start, passes = CASTING.get(dtype, (ALONE["kernels.launch_seconds"], 0.0))
    cast = passes * m * k * (2 + byte)
    nbytes = byte * (m * k + k * n) + written + cast
    work = PassCount((Gemm(m, k, n, 1.0, low=recipe.is_low),), nbytes, written=written, cast=cast)
    assumed = calibrated().with_values(ALONE | {"kernels.launch_seconds": start})
    if recipe.rate == "fp4":
        assumed = assumed.with_values(WIDE_TILES)
    gpu.peak(recipe.rate)

    def predict(rate: float) -> Floats:
        return _as_rows(pass_seconds(work, _scaled(gpu, rate), assumed, recipe), ms)

    size = 2 * m * n * k
    ordinary = (np.minimum(m, n) >= MIN_SIDE) & (size >= BANDS[ORDINARY])
    return Group(("products", accelerator, dtype, library), ms * 1e-3, size, ordinary, predict)


def _attention(part: dict[str, Any], accelerator: str, _: str, split: tuple[str, ...]) -> Group:
    """Return causal fused attention, forward; keys and values at 16 bits."""
    (library, cached, windowed), gpu = split, load_accelerator(accelerator)
    kernel = next((kernel for word, kernel in ATTENTION_KERNELS if word in library), None)
    if kernel is None or cached != "bfloat16":
        raise InputError("attention", [f"{library}, keys and values in {cached}: not modelled"])
    b, s, h, kv, d, ms = _figures(part, "batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim")
    window = np.asarray(part.get("window_size", 0 * s), float)
    keys = np.where(window > 0, np.minimum(window, s), s)
    pairs = keys * s - keys * (keys - 1) / 2
    work = flash(2.0, Heads(b, h, kv, s, s, d, d, pairs / s**2), ((), ()), dropped=False).forward
    softmax = SOFTMAX.get(kernel, calibrated().attention.softmax)
    assumed = calibrated().with_values(PREFILL | {"attention.kernel": kernel, "attention.softmax": softmax})

    def predict(rate: float) -> Floats:
        return _as_rows(pass_seconds(work, _scaled(gpu, rate), assumed, PRECISIONS["bf16"]), ms)

    size = 4 * b * h * pairs * d
    full = windowed in ("0", "0.0")
    kind, dtype = (
        ("attention", kernel) if full else ("windowed attention", f"{kernel}, {float(windowed):g} keys")
    )
    return Group((kind, accelerator, dtype, library), ms * 1e-3, size, size >= BANDS[ORDINARY], predict)


def _experts(part: dict[str, Any], accelerator: str, _: str, split: tuple[str, ...]) -> Group:
    """Return the experts of a layer on one rank: grouped products in two, with gates, and routing.

    Loads that follow a power law are taken to be balanced: what their errors show.
    """
    (dtype, library, loads), gpu = split, load_accelerator(accelerator)
    recipe = PRECISIONS[RECIPES[dtype]]
    tokens, e, f, topk, experts, tp, ep, ms = _figures(
        part, "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"
    )
    rows, f = tokens * topk / ep, f / tp
    used = np.maximum(np.minimum(experts / ep, rows), 1)  # experts of the rank that have tokens
    low, byte = recipe.is_low, 2 * recipe.operand
    assumed = calibrated().with_values(ALONE)
    gpu.peak(recipe.rate)

    def product(k: Floats, n: Floats) -> PassCount:
        written = 2 * rows * n
        nbytes = byte * (rows * k + used * k * n) + written
        gemm = Gemm(rows / used, k, n, used, low=low, layout="grouped")
        return PassCount((gemm,), nbytes, written=written)

    first, second = product(e, 2 * f), product(f, e)
    moved = PassCount((), 2 * rows * (2 * e + 3 * f))  # tokens permuted and summed, activation

    def predict(rate: float) -> Floats:
        works = (first, second, moved)
        return _as_rows(sum(pass_seconds(work, _scaled(gpu, rate), assumed, recipe) for work in works), ms)

    size = 6 * rows * e * f
    key = "experts", accelerator, f"{dtype}, {loads}", library
    return Group(key, ms * 1e-3, size, size >= BANDS[ORDINARY], predict)


def _collectives(part: dict[str, Any], _: str, system: str, split: tuple[str, ...]) -> Group:
    """Return collectives inside a fast domain; the rate is that of its links."""
    op, dtype = split
    machine, byte = load_system(system), 1.0 if dtype == "int8" else 2.0
    if op not in COLLECTIVES:
        raise InputError("collectives", [f"{op}: not modelled"])
    n, message, ms = _figures(part, "num_gpus", "message_size")
    V = byte * message

    def predict(rate: float, setting: Setting = AS_IT_IS) -> Floats:
        assumed = setting.assumed(CALIBRATED, machine).with_values(REPEATED_COLLECTIVE)
        now, near = _faster(setting.system(machine), rate), tuple(n for _ in machine.tiers[:-1])
        return _as_rows(collective(COLLECTIVES[op], V, Members(n, near), now, assumed), ms)

    key = "collectives", system, f"{op}, {dtype}", "NCCL"
    return Group(key, ms * 1e-3, V, BYTE_BANDS[ORDINARY] <= V, predict)


def _as_rows(seconds: Column, like: Floats) -> Floats:
    return np.broadcast_to(np.asarray(seconds, float), like.shape)


class _Reader(NamedTuple):
    """Columns that tell a kind of table, those that split its rows into groups, and what reads a group."""

    columns: tuple[str, ...]
    split: tuple[str, ...]
    read: Callable[[dict[str, Any], str, str, tuple[str, ...]], Group]


SHARED: Final = {"system", "latency_ms"}
KINDS: Final = {
    "products": _Reader(("m", "n", "k", "gemm_dtype"), ("gemm_dtype", "kernel_source"), _products),
    "experts": _Reader(
        ("num_tokens", "inter_size", "topk", "moe_dtype", "distribution"),
        ("moe_dtype", "kernel_source", "distribution"),
        _experts,
    ),
    "attention": _Reader(
        ("batch_size", "isl", "num_heads", "num_key_value_heads", "kv_cache_dtype"),
        ("kernel_source", "kv_cache_dtype", "window_size"),
        _attention,
    ),
    "collectives": _Reader(("num_gpus", "message_size", "op_name"), ("op_name", "nccl_dtype"), _collectives),
}


def _scaled(gpu: Accelerator, rate: float) -> Any:
    """Return an accelerator whose products and attention run at another rate."""
    usual = calibrated().kernels.matrix_efficiency
    rates = {share: gpu.sustained(kind, usual) for kind, (_, share) in PEAKS.items()}
    names = [f"attention_{kernel}" for kernel in ATTENTION]
    known = {name: getattr(gpu, name) for name in names if getattr(gpu, name) is not None}
    fused = known or {"attention_fa1": calibrated().attention.efficiency}
    known = {name: rate * share for name, share in {**rates, **fused}.items()}
    if gpu.matrix_burst is not None:
        known["matrix_burst"] = BURST * known["matrix_sustained"]
    return _unchecked(gpu, known)


def _faster(system: System, rate: float) -> Any:
    """Return a system whose innermost links run at another rate."""
    fast = system.fast
    # captured in CUDA graphs: a longer start-up is the host's
    launch = min(fast.launch or np.inf, calibrated().collectives.launch_inside)
    changes = {"efficiency": rate * fast.efficiency, "launch": launch}
    if fast.switch_reduction is not None:
        changes["switch_reduction"] = rate * fast.switch_reduction
    return _unchecked(system, {"tiers": (_unchecked(fast, changes), *system.tiers[1:])})


def _unchecked(record: Any, changes: dict[str, Any]) -> Any:
    """Return a record with changes that its bounds need not hold for: a rate at rest may be above 1."""
    copy: Any = object.__new__(type(record))
    for name, value in {**vars(record), **changes}.items():
        object.__setattr__(copy, name, value)
    return copy


def _own_rate(group: Group) -> float:
    """Return the rate, relative to the catalogue's, at which the median error of a group is 0."""
    log_rate, rows = 0.0, group.ordinary
    for _ in range(RATE_STEPS):
        ratio = np.median(np.log(group.predict(float(np.exp(log_rate)))[rows] / group.measured[rows]))
        log_rate = float(np.clip(log_rate + ratio, -np.log(MAX_RATE), np.log(MAX_RATE)))
    return float(np.exp(log_rate))


def _errors(group: Group, index: int, groups: Sequence[Group], rates: Sequence[float]) -> KernelErrors:
    """Return the errors of a group; its rate left out is the mean of the logarithms of the others'."""
    kind, machine, dtype, library = group.key
    others = [
        rate
        for i, (other, rate) in enumerate(zip(groups, rates, strict=True))
        if i != index and (other.key[0], other.key[2]) == (kind, dtype) and other.key[1] != machine
    ]
    rate_of_others = float(np.exp(np.mean(np.log(others)))) if others else None
    wrong = {
        rate: np.abs(group.predict(rate) / group.measured - 1)
        for rate in (1.0, rates[index], rate_of_others)
        if rate is not None
    }
    edges = BYTE_BANDS if kind == "collectives" else BANDS
    band = np.digitize(group.size, edges[1:])
    own, rows = wrong[rates[index]], group.ordinary
    return KernelErrors(
        kind,
        machine,
        dtype,
        library,
        int(rows.sum()),
        rates[index],
        float(wrong[1.0][rows].mean()),
        float(own[rows].mean()),
        None if rate_of_others is None else float(wrong[rate_of_others][rows].mean()),
        tuple(float(own[band == i].mean()) if (band == i).any() else None for i in range(len(edges))),
    )
