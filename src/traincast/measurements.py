"""Measured training runs: a table with one row for each configuration, read into a model, a machine and a plan.

A row that cannot be read says why; nothing is guessed of what decides the time: machine, degrees, batch, what is recomputed. What a
row leaves open and the field settles alike is filled in: a model without a vocabulary has that of GPT-2's tokenizer, padded, and a
GPT whose attention is not named has the unfused kernels of its years.
"""

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from traincast.assumptions import CALIBRATED
from traincast.blocks import Experts, Latent, Local
from traincast.errors import InputError, TraincastError
from traincast.hardware import System
from traincast.load import load_system
from traincast.memory import LEFT_OUT, Reported
from traincast.model import Model
from traincast.plan import Plan
from traincast.stacks import stack_names
from traincast.units import GIB

NEEDED: Final = ("id", "layers", "hidden", "heads", "seq", "mlp", "gpu", "gpus", "precision", "tp", "pp", "gbs", "step_seconds")
VOCAB: Final = 51200  # GPT-2's 50257 tokens, padded
MACHINES: Final = (  # accelerator, what its network is called, system of the catalogue; the first that fits
    ("a100-sxm-80", r"4x200Gb/s HDR", "hgx-a100-hdr-4x200"),
    ("a100-sxm-80", r"Jean Zay", "jean-zay-a100"),
    ("a100-sxm-80", r"8x200Gb/s RoCE|1600Gbps", "hgx-a100-roce-8x200"),
    ("a100-sxm-80", r"RoCE|400Gb/s per node", "hgx-a100-roce"),
    ("a100-sxm-80", r"Selene", "selene"),
    ("a100-sxm-80", r"NDm A100", "azure-ndm-a100-v4"),
    ("a100-sxm-80", r"", "dgx-a100"),
    ("a100-sxm-40", r"", "dgx-a100-40"),
    ("h100-sxm-80", r"EFA", "aws-p5"),
    ("h100-sxm-80", r"Arista", "llama3-h100"),
    ("h100-sxm-80", r"ND H100 v5", "azure-nd-h100-v5"),
    ("h100-sxm-80", r"Eos", "eos"),
    ("h100-sxm-80", r"", "dgx-h100"),
    ("h100-96-hbm2e-500w", r"", "grand-teton-h100-96"),
    ("h200", r"", "dgx-h200"),
    ("h800-sxm-80", r"", "hgx-h800"),
    ("b200", r"GCP A4", "gcp-a4"),
    ("b200", r"", "dgx-b200"),
    ("b300", r"", "dgx-b300"),
    ("gb200", r"", "gb200-nvl72"),
    ("gb300", r"", "gb300-nvl72"),
    ("gh200-96", r"", "gh200-node4"),
    ("v100-sxm-32", r"", "dgx-2"),
    ("mi250x-gcd", r"", "frontier"),
    ("mi300x", r"", "mi300x-node"),
    ("mi325x", r"", "mi325x-node"),
    ("mi355x", r"", "mi355x-node"),
    ("tpuv4", r"", "tpu-v4-pod"),
    ("tpuv5e", r"", "tpu-v5e-pod"),
    ("tpuv5p", r"", "tpu-v5p-pod"),
    ("tpuv6e", r"", "tpu-v6e-pod"),
    ("gaudi2", r"", "gaudi2-node"),
)
STACKS: Final = (  # framework of a row, what its source or notes say, software stack of the catalogue; the first that fits
    (r"Megatron-DeepSpeed|DeepSpeed", r"", "megatron-deepspeed-2022"),
    (r"zero-bubble", r"", "megatron-lm-2023"),
    (r"Megatron-LM", r"2205.05198", "megatron-lm-2022"),
    (r"Megatron-LM", r"2104.04473|jan2021|tables.tex|1024 A100", "megatron-lm-2021"),
    (r"Megatron-LM", r"", "megatron-core-2024"),
    (r"MLPerf", r"", "mlperf-2023"),
    (r"NeMo/Megatron-Core", r"paxml", "pax-2024"),
    (r"NeMo/Megatron-Core", r"maxtext", "maxtext-2025"),
    (r"NeMo/Megatron-Core", r"v24.11", "megatron-core-2024"),
    (r"NeMo/Megatron-Core", r"", "megatron-core-2025"),
    (r"AutoModel", r"ModelZoo", "megatron-core-2025"),
    (r"AutoModel", r"", "automodel-2025"),
    (r"NeMo", r"", "nemo-2024"),
    (r"Megatron-Bridge", r"container 25", "megatron-bridge-2025"),
    (r"Megatron-Bridge", r"container 26.0[1-5]", "megatron-bridge-26.02"),
    (r"Megatron-Bridge", r"", "megatron-bridge-2026"),
    (r"Megatron-Core", r"SimuMax", "megatron-core-plain"),
    (r"Megatron-Core", r"", "megatron-core-2025"),
    (r"Composer", r"", "composer-fsdp-2023"),
    (r"torchtitan", r"eager|Table 1 \(eager", "torchtitan-eager"),
    (r"torchtitan", r"", "torchtitan-2025"),
    (r"fms-fsdp", r"@4ffb9bd|@6dc80d2", "fms-fsdp-eager"),
    (r"fms-fsdp", r"", "fms-fsdp-2024"),
    (r"InternEvo", r"", "internevo-2024"),
    (r"MaxText", r"nemo", "nemo-2024"),
    (r"MaxText", r"", "maxtext-2025"),
    (r"Pax", r"", "pax-2024"),
    (r"nanotron", r"", "nanotron-2025"),
)
REPORTED: Final[tuple[tuple[str, str, Reported], ...]] = (  # framework, notes, how memory is measured; the first that fits
    (r"", r"max_allocated", "allocated"),
    (r"Megatron-DeepSpeed", r"", "device"),  # nvidia-smi
    (r"", r"", "reserved"),  # what PyTorch holds, as torchtitan and nanotron log it
)
PRECISION: Final = {name: name for name in ("fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")} | {"16-bit": "fp16"}
SCHEDULES: Final = {"1F1B": "1f1b", "1F1B-I": "1f1b", "ZB-1p": "zb-h1", "ZB-2p": "zb-h2"}  # as Zero Bubble's tables call them
SELECTIVE: Final = {"torchtitan": "per-op"}  # every second product and what is elementwise
ZERO: Final = {"": 1, "0": 0, "1": 1, "2": 2, "3": 3, "hsdp": 3}


class Unreadable(Exception):
    """A row that cannot be turned into a run; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A measured training configuration.

    Parameters
    ----------
    id, source : str
        What the row is called, and the publication it is from.
    stack : str
        The software that ran it: a stack of the catalogue, or ``"calibrated"`` where it is none of them.
    model, system, plan : Model, System, Plan
        What ran.
    gbs : int
        Global batch [sequences].
    step_seconds : float or None
        Measured time of a step [s]; None where only memory is measured.
    memory_bytes : float or None
        Measured memory of a rank [byte].
    reported : {"allocated", "reserved", "device"}
        What was measured of it: tensors, what the allocator holds, all that the device has in use.
    """

    id: str
    source: str
    stack: str
    model: Model
    system: System
    plan: Plan
    gbs: int
    step_seconds: float | None
    memory_bytes: float | None
    reported: Reported = "device"


Row = Mapping[str, str]


def rows(path: str | Path | None = None) -> list[dict[str, str]]:
    """Rows of a table of runs; the bundled ones without a path.

    Parameters
    ----------
    path : str or Path, optional
        A CSV file with the columns of the bundled table; those not needed may be missing.

    Raises
    ------
    InputError
        If it cannot be read, or columns are missing.
    """
    file = files("traincast").joinpath("catalog", "measured", "training_runs.csv") if path is None else Path(path)
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:  # type: ignore[call-overload]
            found = list(csv.DictReader(opened, restval=""))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(str(path), [f"cannot be read as a table of runs ({error})"]) from None
    missing = [name for name in NEEDED if not found or name not in found[0]]
    if missing:
        raise InputError(str(path), [f"column {name}: missing" for name in missing] if found else ["holds no run"])
    return found


def read(row: Row) -> Run:
    """The run of a row.

    Parameters
    ----------
    row : mapping of str to str
        A row of the table.

    Raises
    ------
    Unreadable
        If something is missing or cannot be represented; the message says what.
    """
    try:
        memory = _number(row, "memory_gb_published")
        seconds = _seconds(row, needed=memory is None)
        model = _model(row)
        return Run(
            id=row["id"],
            source=row.get("source", ""),
            stack=_stack(row),
            model=model,
            system=_system(row),
            plan=_plan(row, model),
            gbs=_whole(row, "gbs"),
            step_seconds=seconds,
            memory_bytes=None if memory is None else memory * GIB,  # frameworks report GiB and write GB
            reported=_reported(row),
        )
    except TraincastError as error:
        raise Unreadable(" ".join(str(error).split())) from None


def _number(row: Row, name: str) -> float | None:
    """A number, None where the cell is empty."""
    text = row.get(name, "") or ""
    try:
        value = float(text) if text.strip() else None
    except ValueError:
        value = math.nan
    if value is not None and not math.isfinite(value):
        raise Unreadable(f"{name} = {text!r} is no number")
    return value


def _seconds(row: Row, needed: bool) -> float | None:
    """Time of a step, as published or from the throughput [s]."""
    seconds, rate = _number(row, "step_seconds"), _number(row, "tokens_per_s_per_gpu")
    if seconds is None and rate:
        seconds = _whole(row, "gbs") * _whole(row, "seq") / rate / _whole(row, "gpus")
    if (seconds is None and needed) or (seconds is not None and seconds <= 0):
        raise Unreadable("no step time")
    return seconds


def _reported(row: Row) -> Reported:
    """How the memory of a row was measured, as the column `memory_kind` or its notes say."""
    told = row.get("memory_kind", "") or ""
    if told and told not in LEFT_OUT:
        raise Unreadable(f"memory_kind = {told!r} is none of {', '.join(LEFT_OUT)}")
    if told:
        return next(kind for kind in LEFT_OUT if kind == told)
    stack, notes = row.get("stack", ""), row.get("notes", "")
    return next(kind for name, hint, kind in REPORTED if re.search(name, stack) and re.search(hint, notes))


def _whole(row: Row, name: str, default: int | None = None) -> int:
    """A whole number."""
    value = _number(row, name)
    if value is None:
        if default is None:
            raise Unreadable(f"{name} is not known")
        return default
    if value != round(value):
        raise Unreadable(f"{name} = {value} is no whole number")
    return int(value)


def _positive(row: Row, name: str, default: int | None = None) -> int:
    """A whole number of at least 1."""
    value = _whole(row, name, default)
    if value < 1:
        raise Unreadable(f"{name} = {value} is not at least 1")
    return value


def _system(row: Row) -> System:
    """The machine of a row."""
    for gpu, network, name in MACHINES:
        if row["gpu"] == gpu and re.search(network, row.get("interconnect", "")):
            return load_system(name)
    raise Unreadable(f"accelerator {row['gpu'] or 'not known'}")


def _stack(row: Row) -> str:
    """The software of a row: a stack's own name, or the first that fits."""
    told = row.get("stack", "")
    if told in stack_names():
        return told
    context = f"{row.get('source', '')} {row.get('notes', '')}"
    return next((name for stack, era, name in STACKS if re.search(stack, told) and re.search(era, context)), CALIBRATED.name)


def _model(row: Row) -> Model:
    """The model of a row."""
    mlp = row["mlp"].lower()
    if mlp not in ("gelu", "relu", "relu2", "swiglu", "geglu"):
        raise Unreadable(f"mlp = {row['mlp']!r}")
    hidden, heads, layers = _whole(row, "hidden"), _whole(row, "heads"), _whole(row, "layers")
    modern, detail = mlp == "swiglu", row.get("moe_detail", "")
    width = re.search(r"head_dim=(\d+)", detail)
    shape: dict[str, Any] = {
        "ffn": _whole(row, "ffn", 4 * hidden),
        "kv_heads": _whole(row, "kv_heads", heads),
        "norm": "rmsnorm" if modern else "layernorm",
        "biases": () if mlp != "gelu" else ("qkv", "proj", "mlp"),
        "positions": "learned" if mlp == "gelu" else "rotary",
        "head_dim": int(width[1]) if width else None if heads > 0 and hidden % heads == 0 else 128,
    }
    if row.get("mla") == "True":
        shape |= {"latent": Latent(kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128, q_rank=1536), "kv_heads": None}
        shape |= {"head_dim": None, "mtp": 1 if re.search(r"MTP=?1", detail) else 0}
    if row.get("experts"):
        shape |= {"experts": _experts(row, detail), "local": _local(detail)}
    return Model(
        name=row.get("model", "") or row["id"],
        layers=layers,
        hidden=hidden,
        heads=heads,
        seq=_whole(row, "seq"),
        vocab=_whole(row, "vocab", VOCAB),
        causal=True,
        mlp=mlp,  # type: ignore[arg-type]
        dropout=mlp == "gelu",
        inner_dropout=False,
        **shape,
    )


def _experts(row: Row, detail: str) -> Experts:
    """The experts of a row."""
    ffn = _whole(row, "moe_ffn", _whole(row, "ffn"))
    shared = re.search(r"shared_ffn=(\d+)", detail)
    return Experts(
        experts=_whole(row, "experts"),
        topk=_whole(row, "topk"),
        ffn=ffn,
        shared_ffn=int(shared[1]) if shared else _whole(row, "shared_experts", 0) * ffn,
        first_dense=_whole(row, "dense_layers", 0),
        every=2 if "alternate layers" in detail else 1,
    )


def _local(detail: str) -> Local | None:
    """Attention to a stretch, as the details of a row say."""
    if sliding := re.search(r"alternating sliding window (\d+)", detail):
        return Local(window=int(sliding[1]), global_every=2)
    if chunked := re.search(r"chunked attention (\d+) on 3 of 4", detail):
        return Local(window=int(chunked[1]), chunked=True, global_every=4)
    return None


def _plan(row: Row, model: Model) -> Plan:
    """The plan of a row; stages are even where they divide, as frameworks split them."""
    if row["precision"] not in PRECISION:
        raise Unreadable(f"precision {row['precision'] or 'not known'}")
    recompute, zero = row.get("recompute", ""), row.get("zero", "")
    if recompute not in ("none", "selective", "full"):
        raise Unreadable(f"recompute {recompute or 'not known'}")
    if zero not in ZERO:
        raise Unreadable(f"zero = {zero!r}")
    degrees = {name: _positive(row, name, 1) for name in ("tp", "pp", "cp", "ep", "vp")}
    gpus, split = _positive(row, "gpus"), degrees["tp"] * degrees["pp"] * degrees["cp"]
    if gpus % split:
        raise Unreadable(f"tp × pp × cp = {split} does not divide {gpus} GPUs")
    dp = _whole(row, "dp", gpus // split)
    if dp * split != gpus:
        raise Unreadable(f"dp × tp × pp × cp = {dp * split}, not the {gpus} GPUs")
    # FSDP2 with a pipeline keeps weights gathered and gradients whole until the last micro-batch, as ZeRO-1 does (torchtitan).
    modern = row.get("flash_attention") != "False" and row["mlp"] != "gelu"
    vp = degrees["vp"] if degrees["pp"] > 1 else 1
    node = _positive(row, "gpus_per_node", 8)
    told = re.search(r"schedule=([\w-]+)", row.get("notes", ""))
    return Plan(
        tp=degrees["tp"],
        pp=degrees["pp"],
        cp=degrees["cp"],
        ep=degrees["ep"],
        dp=dp,
        vp=vp,
        mbs=_whole(row, "mbs"),
        cp_kind="ring" if degrees["cp"] > 1 else "none",
        sp=row.get("sp") == "True" or degrees["tp"] == 1,
        zero=1 if row.get("stack") == "torchtitan" and degrees["pp"] > 1 else ZERO[zero],  # type: ignore[arg-type]
        replicas=max(gpus // node, 1) if zero == "hsdp" and split == 1 else 1,
        recompute=SELECTIVE.get(row.get("stack", ""), recompute) if recompute == "selective" else recompute,
        attention="flash" if row.get("flash_attention") == "True" or modern else "unfused",
        precision=PRECISION[row["precision"]],
        schedule=SCHEDULES.get(told[1], "1f1b") if told else "1f1b",  # type: ignore[arg-type]
        layout="" if model.layers % (degrees["pp"] * vp) else f"{model.layers // (degrees['pp'] * vp)}*{degrees['pp'] * vp}",
    )


def readable(table: list[dict[str, str]]) -> Iterator[tuple[dict[str, str], Run | str]]:
    """Every row with its run, or with the reason it has none."""
    for row in table:
        try:
            yield row, read(row)
        except Unreadable as reason:
            yield row, str(reason)
