"""Predictions against tables of timed kernels: products, attention, experts and collectives.

Tables are those of NVIDIA's aiconfigurator (systems/data), as CSV or Parquet files: one kernel a row, with
its sizes, `latency_ms`, `system` and the library (`kernel_source`). Its columns tell what a table holds.
Kernels run alone, at rest before each: they are faster than in steady training, whose rates the catalogue
has. So errors are stated three times: with the catalogue's rate, with one rate for the group (an accelerator,
type and library), and with that of the other accelerators.
"""

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import numpy as np

from traincast.accuracy.fit.benchmark_times import REPEATED_COLLECTIVE, REPEATED_KERNEL, pass_seconds
from traincast.accuracy.fit.parameters import Setting
from traincast.catalog import (
    MAX_TABLE_BYTES,
    calibrated,
    load_accelerator,
    load_system,
    read_bytes,
    read_document,
)
from traincast.core import ATTENTION_KERNELS as ATTENTION
from traincast.core import (
    CALIBRATED,
    KEY,
    PEAK_FIELDS,
    PRECISIONS,
    Accelerator,
    Column,
    Doc,
    Floats,
    InputError,
    Result,
    System,
    raise_problems,
)
from traincast.operations import CollectiveKind, Gemm, Heads, PassCount, flash
from traincast.times import Group as Members
from traincast.times import collective

MACHINES: Final = {  # name of a machine in the tables → accelerator, its kernels' generation, and system
    "a100_sxm": ("a100-sxm-80", "sm80", "dgx-a100"),
    "h100_sxm": ("h100-sxm-80", "sm90", "dgx-h100"),
    "h200_sxm": ("h200-sxm-141", "sm90", "dgx-h200"),
    "b200_sxm": ("b200-180", "sm100", "dgx-b200"),
    "b300_sxm": ("b300-288", "sm103", "dgx-b300"),
    "gb200": ("gb200-186", "sm100", "gb200-nvl72"),
    "gb300": ("gb300-288", "sm103", "gb300-nvl72"),
    "rtx_pro_6000_server": ("rtx-pro-6000-96", "sm120", ""),
}
ENGINE: Final = Path(__file__).with_name("engine.yaml")  # fitted constants of the engine's kernels
AS_IT_IS: Final = Setting((), ())  # no value of the catalogue is replaced
RECIPES: Final = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8-block", "nvfp4": "nvfp4"}
COLLECTIVES: Final[dict[str, CollectiveKind]] = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all",
}
ATTENTION_KERNELS: Final = (("fa3", "fa3"), ("fa4", "fa3"), ("trtllm", "cudnn"), ("flash_attn", "fa2"))
# One kernel in a loop of a few: no power limit acts, so that the group's rate is the whole rate.
ALONE: Final = REPEATED_KERNEL | {"kernels.burst_seconds": 2e-3, "kernels.sustained_bandwidth": False}
BURST: Final = 1.17  # rate of 16-bit products far shorter than 2 ms over that of longer ones: 1.0 to 1.23
EXPERT_LIBRARIES: Final = ("triton", "cutlass", "trtllm")  # by a word in the names of kernels; else Triton
MIN_CACHED_WIDTH: Final = 128  # heads this narrow and less take the same time to be written to the cache
LOADS: Final = 200  # draws of a power law
BANDS: Final = (0.0, 3e10, 3e11, 3e12)  # least arithmetic of a band [FLOP]
BYTE_BANDS: Final = (0.0, 2.0**16, 2.0**20, 50e6)  # the same of collectives [byte]
ORDINARY: Final = 1  # bands from this one on count in the mean
MIN_SIDE: Final = 512  # of the result of an ordinary product
MIN_ROWS: Final = 20  # of a group
BALANCED: Final = "balanced"
RATE_STEPS: Final = 8  # of the secant that finds a group's rate
MAX_RATE: Final = 8.0  # of a group, relative to the catalogue's, or its inverse


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


class KernelReport(Result, repr=False):
    """Predictions of tables of timed kernels."""

    groups: Annotated[tuple[KernelErrors, ...], KEY]
    left_out_rows: Annotated[dict[str, int], Doc("rows that are not predicted, by reason")]

    def mean(self, kind: str, figure: str = "own") -> float:
        """Return the mean error of the groups of a kind."""
        values = [getattr(group, figure) for group in self.groups if group.kind == kind]
        return float(np.mean([value for value in values if value is not None]))


class KernelGroup(NamedTuple):
    """Timed kernels that share a rate; `predict` gives their times at a rate, the catalogue's being 1 [s].

    Its second argument holds values of constants: of collectives a `Setting`, else those of `engine`.
    """

    key: tuple[str, str, str, str]  # kind, machine, type, library
    measured: Floats
    size: Floats  # FLOP, of collectives byte
    ordinary: Any  # which rows count
    predict: Callable[..., Floats]
    family: str = ""  # kernels that share constants of the engine


def validate_kernels(tables: Sequence[str | Path]) -> KernelReport:
    """Predict the kernels of tables (CSV, Parquet, folders of them), and compare with measured times.

    Raises `InputError` if a file cannot be read, or no table holds kernels that are predicted.
    """
    groups, left_out = groups_of(tables)
    if not groups:
        raise InputError("kernels", [f"{reason}: {n} rows" for reason, n in left_out.items()] or ["no rows"])
    rates = [own_rate(group) for group in groups]
    errors = (_errors(group, i, groups, rates) for i, group in enumerate(groups))
    return KernelReport(tuple(sorted(errors, key=lambda each: each.kind)), left_out)


def groups_of(tables: Sequence[str | Path]) -> tuple[list[KernelGroup], dict[str, int]]:
    """Return the groups of tables, and the numbers of rows that are not predicted by reason."""
    groups = []
    left_out = dict[str, int]()
    for path in _files(tables):
        for group, reason, n in _groups(_columns(path), path):
            if group is None:
                left_out[reason] = left_out.get(reason, 0) + n
            else:
                groups.append(group)
    return groups, left_out


def _files(tables: Sequence[str | Path]) -> list[Path]:
    paths = [Path(table) for table in tables]
    raise_problems("kernels", [f"{path}: no such file or folder" for path in paths if not path.exists()])
    found = [
        sorted(file for file in path.iterdir() if file.suffix in (".csv", ".parquet"))
        if path.is_dir()
        else [path]
        for path in paths
    ]
    return [file for files in found for file in files]


def _columns(path: Path) -> dict[str, object]:
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
        rows = list(
            csv.DictReader(io.StringIO(read_bytes(path, MAX_TABLE_BYTES).decode("utf-8"), newline=""))
        )
    except ImportError as error:
        raise InputError("kernels", [f"{path}: Parquet files need traincast[results]"]) from error
    except Exception as error:  # of polars: no common class
        raise InputError("kernels", [f"{path}: {error}"]) from error
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise InputError("kernels", [f"{path}: row {number} has other cells than the header's columns"])
    return {name: _numbers([row[name] or "0" for row in rows]) for name in (rows[0] if rows else ())}


def _numbers(cells: list[str]) -> object:
    try:
        return np.array([float(cell) for cell in cells])
    except ValueError:
        return np.array(cells)


def _groups(table: dict[str, Any], path: Path) -> Iterable[tuple[KernelGroup | None, str, int]]:
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
        accelerator, generation, system = MACHINES.get(machine, ("", "", ""))
        if not (system if kind == "collectives" else accelerator):
            yield (
                None,
                f"{machine}: no such {'system' if kind == 'collectives' else 'accelerator'} here",
                len(rows),
            )
            continue
        try:
            place = system if kind == "collectives" else generation
            group = reader.read(part, accelerator, place, tuple(split))
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


def _figures(part: dict[str, object], *names: str) -> tuple[Floats, ...]:
    return tuple(np.asarray(part[name], float) for name in (*names, "latency_ms"))


@cache
def engine(kind: str, family: str) -> Mapping[str, float]:
    """Return the constants of a family of an engine's kernels; those of the first one if it is not known."""
    families = read_document(ENGINE)[kind]
    found = families.get(family) or next(iter(families.values()))
    return {name: float(entry["value"]) for name, entry in found.items()}


def _products(
    part: dict[str, object], accelerator: str, generation: str, split: tuple[str, ...]
) -> KernelGroup:
    """Return matrix products; at 8 bits and less with the cast of the activations."""
    (dtype, library), gpu = split, load_accelerator(accelerator)
    recipe = PRECISIONS[RECIPES[dtype]]
    family = f"{dtype} {generation}"
    m, n, k, ms = _figures(part, "m", "n", "k")
    written = 2 * m * n
    byte = 2 * recipe.operand
    gpu.peak(recipe.rate)

    def predict(rate: float, values: Mapping[str, float] | None = None) -> Floats:
        known = values or engine("products", family)
        assumed = calibrated().with_values(
            ALONE
            | {
                "kernels.launch_seconds": known["start"],
                "kernels.wave_loss": known["wave_loss"],
                "kernels.tile_aspect": known["tile_aspect"],
                "kernels.outputs_exposed": known["outputs"],
                "kernels.memory_efficiency": known["memory"],
            }
        )
        cast = known["casts"] * m * k * (2 + byte) if recipe.is_low else 0 * m
        nbytes = byte * (m * k + k * n) + written + cast
        work = PassCount((Gemm(m, k, n, 1.0, low=recipe.is_low),), nbytes, written=written, cast=cast)
        return _as_rows(pass_seconds(work, _scale_rate(gpu, rate), assumed, recipe), ms)

    size = 2 * m * n * k
    ordinary = (np.minimum(m, n) >= MIN_SIDE) & (size >= BANDS[ORDINARY])
    return KernelGroup(("products", accelerator, dtype, library), ms * 1e-3, size, ordinary, predict, family)


def _attention(
    part: dict[str, object], accelerator: str, generation: str, split: tuple[str, ...]
) -> KernelGroup:
    """Return causal fused attention, forward, and the writing of keys and values to a paged cache."""
    (library, cached, windowed), gpu = split, load_accelerator(accelerator)
    word, kernel = next((known for known in ATTENTION_KERNELS if known[0] in library), ("", None))
    if kernel is None or cached != "bfloat16":
        raise InputError("attention", [f"{library}, keys and values in {cached}: not modelled"])
    b, s, h, kv, d, ms = _figures(part, "batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim")
    window = np.asarray(part.get("window_size", 0 * s), float)
    keys = np.where(window > 0, np.minimum(window, s), s)
    pairs = keys * s - keys * (keys - 1) / 2
    work = flash(2.0, Heads(b, h, kv, s, s, d, d, pairs / s**2), ((), ()), dropped=False).forward
    family = f"{word} {generation}"

    def predict(rate: float, values: Mapping[str, float] | None = None) -> Floats:
        known = values or engine("attention", family)
        changes: dict[str, object] = {
            f"attention.{name}": known[name] for name in ("start", "tail", "softmax")
        }
        changes |= {"attention.launch_seconds": known["launch"], "attention.kernel": kernel}
        seconds = pass_seconds(
            work, _scale_rate(gpu, rate), calibrated().with_values(changes), PRECISIONS["bf16"]
        )
        token = known["token_bytes"] + known["cache_passes"] * 8 * kv * np.maximum(d, MIN_CACHED_WIDTH)
        return _as_rows(seconds + b * s * token / gpu.hbm_bandwidth, ms)

    size = 4 * b * h * pairs * d
    full = windowed in ("0", "0.0")
    kind, dtype = (
        ("attention", kernel) if full else ("windowed attention", f"{kernel}, {float(windowed):g} keys")
    )
    key = kind, accelerator, dtype, library
    return KernelGroup(key, ms * 1e-3, size, size >= BANDS[ORDINARY], predict, family)


def _experts(
    part: dict[str, object], accelerator: str, generation: str, split: tuple[str, ...]
) -> KernelGroup:
    """Return the experts of a layer on one rank: grouped products in two, with gates, and routing.

    Where loads follow a power law the timed rank is the one with most tokens. Every rank of a group has all
    tokens before it, whichever experts they go to: some of its traffic is that of all of them.
    """
    (dtype, library, loads), gpu = split, load_accelerator(accelerator)
    recipe = PRECISIONS[RECIPES[dtype]]
    tokens, e, f, topk, experts, tp, ep, ms = _figures(
        part, "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"
    )
    rows = tokens * topk / ep * _hottest(loads, tokens, experts, ep)
    f = f / tp
    used = np.maximum(np.minimum(experts / ep, rows), 1)  # experts of the rank that have tokens
    name = next((name for name in EXPERT_LIBRARIES if name in library), EXPERT_LIBRARIES[0])
    family = f"{name} {dtype} {generation}"
    gpu.peak(recipe.rate)

    def predict(rate: float, values: Mapping[str, float] | None = None) -> Floats:
        known = values or engine("experts", family)
        changes = {
            "kernels.launch_seconds": 0.0,
            "kernels.inputs_exposed": known["weights"],
            "kernels.grouped_exposed": known["weights"],
            "kernels.wave_loss": 0.0,
            "kernels.tile": 0.0,
        }
        assumed = calibrated().with_values(ALONE | changes)
        chip = _scale_rate(gpu, rate)
        # rows of an expert; the last tile of unequal loads is half full
        m = rows / used
        tile = known["tile"]
        m = np.ceil(m / tile) * tile if loads == BALANCED else m + tile / 2
        products = (
            PassCount(
                (Gemm(m, k, n, used, low=recipe.is_low, layout="grouped"),),
                2 * recipe.operand * used * k * n,
            )
            for k, n in ((e, 2 * f), (f, e))
        )
        seconds = sum(pass_seconds(work, chip, assumed, recipe) for work in products)
        moved = 2 * tokens * e * (known["tokens"] + known["copies"] * topk)
        moved = moved + 2 * rows * (known["rows"] * e + known["activations"] * f)
        return _as_rows(known["start"] + seconds + moved / gpu.hbm_bandwidth, ms)

    size = 6 * tokens * topk / ep * e * f
    key = "experts", accelerator, f"{dtype}, {loads}", library
    return KernelGroup(key, ms * 1e-3, size, size >= BANDS[ORDINARY], predict, family)


def _hottest(loads: str, tokens: Floats, experts: Floats, ep: Floats) -> Floats:
    """Return the expected tokens of the rank that has most, relative to the mean rank's.

    Loads of a power law are drawn as by the tables' authors: x^-a from 1 to 0.8 of the tokens.
    """
    if loads == BALANCED:
        return np.ones_like(tokens)
    exponent = 1 - float(loads.rsplit("_", 1)[-1])
    share = np.empty_like(tokens)
    for n in np.unique(experts):
        draws = np.random.default_rng(0).random((LOADS, int(n)))
        for most in np.unique(tokens[experts == n]):
            law = ((0.8 * most) ** exponent - 1) * draws + 1
            drawn = law ** (1 / exponent)
            drawn /= drawn.sum(axis=1, keepdims=True)
            here = (experts == n) & (tokens == most)
            for ranks in np.unique(ep[here]):
                sums = drawn.reshape(LOADS, int(ranks), -1).sum(axis=2)
                share[here & (ep == ranks)] = ranks * sums.max(axis=1).mean()
    return share


def _collectives(part: dict[str, object], _: str, system: str, split: tuple[str, ...]) -> KernelGroup:
    """Return collectives inside a fast domain; the rate is that of its links."""
    op, dtype = split
    machine = load_system(system)
    byte = 1.0 if dtype == "int8" else 2.0
    if op not in COLLECTIVES:
        raise InputError("collectives", [f"{op}: not modelled"])
    n, message, ms = _figures(part, "num_gpus", "message_size")
    V = byte * message

    def predict(rate: float, setting: Setting = AS_IT_IS) -> Floats:
        assumed = setting.stack_assumptions(CALIBRATED, machine).with_values(REPEATED_COLLECTIVE)
        now = _faster(setting.system(machine), rate)
        near = tuple(n for _ in machine.tiers[:-1])
        return _as_rows(collective(COLLECTIVES[op], V, Members(n, near), now, assumed), ms)

    key = "collectives", system, f"{op}, {dtype}", "NCCL"
    return KernelGroup(key, ms * 1e-3, V, BYTE_BANDS[ORDINARY] <= V, predict)


def _as_rows(seconds: Column, like: Floats) -> Floats:
    return np.broadcast_to(np.asarray(seconds, float), like.shape)


class _Reader(NamedTuple):
    """Columns that tell a kind of table, those that split its rows into groups, and what reads a group."""

    columns: tuple[str, ...]
    split: tuple[str, ...]
    read: Callable[[dict[str, object], str, str, tuple[str, ...]], KernelGroup]


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


def _scale_rate(gpu: Accelerator, rate: float) -> Any:
    """Return an accelerator whose products and attention run at another rate."""
    usual = calibrated().kernels.matrix_efficiency
    rates = {share: gpu.sustained_share(kind, usual) for kind, (_, share) in PEAK_FIELDS.items()}
    names = [f"attention_{kernel}" for kernel in ATTENTION]
    known = {name: getattr(gpu, name) for name in names if getattr(gpu, name) is not None}
    fused = known or {"attention_fa1": calibrated().attention.efficiency}
    known = {name: rate * share for name, share in {**rates, **fused}.items()}
    if gpu.matrix_burst is not None:
        known["matrix_burst"] = BURST * known["matrix_sustained"]
    return _replace_unchecked(gpu, known)


def _faster(system: System, rate: float) -> Any:
    """Return a system whose innermost links run at another rate."""
    fast = system.fast
    # captured in CUDA graphs: a longer start-up is the host's
    launch = min(fast.launch or np.inf, calibrated().collectives.launch_inside)
    changes = {"efficiency": rate * fast.efficiency, "launch": launch}
    if fast.switch_reduction is not None:
        changes["switch_reduction"] = rate * fast.switch_reduction
    return _replace_unchecked(system, {"tiers": (_replace_unchecked(fast, changes), *system.tiers[1:])})


def _replace_unchecked(record: Any, changes: dict[str, Any]) -> Any:
    """Return a record with changes that its bounds need not hold for: a rate at rest may be above 1."""
    copy: object = object.__new__(type(record))
    for name, value in {**vars(record), **changes}.items():
        object.__setattr__(copy, name, value)
    return copy


def own_rate(group: KernelGroup, values: object = None) -> float:
    """Return the rate, relative to the catalogue's, at which the median error of a group is 0.

    `values`: constants of its kernels instead of the fitted ones.
    """
    log_rate = 0.0
    rows = group.ordinary
    given = () if values is None else (values,)
    for _ in range(RATE_STEPS):
        predicted = group.predict(float(np.exp(log_rate)), *given)
        ratio = np.median(np.log(predicted[rows] / group.measured[rows]))
        log_rate = float(np.clip(log_rate + ratio, -np.log(MAX_RATE), np.log(MAX_RATE)))
    return float(np.exp(log_rate))


def _errors(
    group: KernelGroup, index: int, groups: Sequence[KernelGroup], rates: Sequence[float]
) -> KernelErrors:
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
    own = wrong[rates[index]]
    rows = group.ordinary
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
