"""Logs of torchtitan."""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from traincast.accuracy.logs import settings
from traincast.accuracy.logs.accelerator_names import accelerator
from traincast.accuracy.logs.row_columns import complete, of_model
from traincast.accuracy.logs.rows import TrainingRows
from traincast.accuracy.logs.text import lines, number, whole
from traincast.accuracy.logs.training_log import LogStep, last_run, timed, training_rows
from traincast.launch.torchtitan.settings import DEGREES as SETTINGS
from traincast.launch.torchtitan.settings import MODELS

SIGNS: Final = r"\bstep:\s*\d+\s+loss:.*tps:"
STARTS: Final = r"Starting job:|Training starts at step|Running with (?:args|configs?):"
PROGRESS: Final = re.compile(r"step:\s*([\d,]+)\s+loss:.*?\btps:\s*([\d.,'’_\u00a0\u202f]*\d)(?=\s)")
MEMORY: Final = re.compile(r"memory:\s*([\d.,]+)GiB")
BATCHES: Final = re.compile(
    r"local batch size:?\s+(\d{1,12}), global batch size:?\s+(\d{1,12}),.*?sequence length:?\s+(\d{1,12})\b"
)
DEVICE: Final = re.compile(r"capacity: (.+?) with ([\d.]+)GiB memory")
SIZES: Final = (16, 24, 32, 40, 64, 80, 96, 141, 192)  # memory of accelerators that differ in nothing else of their name [GB]
DEGREES: Final = {  # column -> names of its degree: in the settings, and of a mesh
    column: (name, f"dp_{column}" if column in ("replicate", "shard") else column) for column, name in SETTINGS.items()
}


def read(file: str, text: str, given: Mapping[str, Any], config: Mapping[str, Any], warm_up: int) -> TrainingRows:
    """The last run of a log; parameters and errors as of `traincast.accuracy.logs.megatron.read`."""
    run = last_run(lines(text), _step, STARTS)
    said = run.said()
    told = dict(config) or settings.block(said, r"Running with (?:args|configs?):")
    found = _plan(told, said, given) | {"stack": "torchtitan"}
    found |= _model(told, said, given) | _batch(told, said, found) | {"gpu": _gpu(said), "memory_gb_published": run.memory}
    found |= {"memory_kind": "reserved" if run.memory else None, "notes": _compiled(told)}
    found["vp"] = _chunks(_section(told, "parallelism"), found)
    row = complete(file, found, given)
    timing = timed(run, warm_up)
    if timing:
        rate, spread, count = timing
        tokens = math.prod(whole(row.get(name)) or 0 for name in ("gbs", "seq"))
        timing = (tokens / rate / (whole(row.get("gpus")) or 1), spread, count)
        row["tokens_per_s_per_gpu"] = f"{rate:.6g}"
    return training_rows(file, row, run, timing)


def _step(line: str) -> LogStep | None:
    """Progress of a line: tokens/s of a device."""
    match = None if re.search(r"\b(?:validat|eval)\w*:?\s+step:", line) else PROGRESS.search(line + " ")
    at, rate = (number(match[1]), number(match[2])) if match else (None, None)
    held = MEMORY.search(line)
    return LogStep(int(at), rate, memory=number(held[1]) if held else None) if at is not None and rate else None


def _section(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A section of the settings, empty if there is none."""
    found = told.get(name)
    return found if isinstance(found, Mapping) else {}


def _plan(told: Mapping[str, Any], said: list[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Degrees, what data-parallel ranks share, precision and recomputation."""
    mesh = _mesh(said)
    place = {**_section(told, "experimental"), **_section(told, "training"), **_section(told, "parallelism")}
    degree = {column: mesh.get(of_mesh) or whole(place.get(named)) for column, (named, of_mesh) in DEGREES.items()}
    if told or mesh:
        degree |= {column: degree[column] or 1 for column in ("tp", "cp", "pp", "ep", "replicate")}
    split = math.prod(degree[column] or 1 for column in ("tp", "cp", "pp", "replicate"))
    gpus = whole(given.get("gpus")) or (split * degree["shard"] if degree["shard"] else None)
    shard = degree["shard"] or (gpus // split if gpus else None)
    again = _section(told, "activation_checkpoint")
    found: dict[str, Any] = {name: degree[name] for name in ("tp", "cp", "pp", "ep")}
    return found | _recomputed(again) | {
        "gpus": gpus,
        "sp": "True" if (degree["tp"] or 1) > 1 else "False",
        "zero": _zero(shard, degree["replicate"] or 1, place, degree["pp"] or 1) if shard else None,
        "precision": _precision(told, said),
        "flash_attention": "True",
    }  # fmt: skip


def _compiled(told: Mapping[str, Any]) -> str | None:
    """That the model was not compiled, if the settings say so."""
    enabled = _section(told, "compile").get("enable", _section(told, "training").get("compile"))
    return None if enabled is None or enabled else "eager"


def _chunks(place: Mapping[str, Any], found: Mapping[str, Any]) -> int:
    """Model chunks of a rank: one, or two where the schedule interleaves and the settings give no number of layers for a stage."""
    if "Interleaved" not in str(place.get("pipeline_parallel_schedule", "")) or (found["pp"] or 1) == 1:
        return 1
    layers, each = whole(found.get("layers")), whole(place.get("pipeline_parallel_layers_per_stage"))
    return max(round((layers + 2) / each / found["pp"]), 2) if layers and each else 2  # embedding and head weigh a layer each


def _mesh(said: list[str]) -> dict[str, int]:
    """Degrees of the device mesh, as the log says when it builds one."""
    for line in said:
        if pairs := re.search(r"device mesh with parallelism: (.*)", line):
            return {name: int(size) for name, size in re.findall(r"(\w+)=(\d{1,9})\b", pairs[1])}
        if listed := re.search(r"\d-D device mesh with \[(.*?)\], \[(.*?)\]", line):
            names, sizes = re.findall(r"\w+", listed[1]), re.findall(r"\d{1,9}", listed[2])
            return {"dp_shard" if name == "dp" else name: int(size) for name, size in zip(names, sizes, strict=False)}
    return {}


def _zero(shard: int, replicate: int, place: Mapping[str, Any], pp: int) -> str:
    """What data-parallel ranks share: all, within groups, or nothing.

    Where weights stay gathered it is gradients and states; with a pipeline, which keeps gradients whole until the last micro-batch,
    states alone.
    """
    if shard == 1:
        return "0"
    if replicate > 1:
        return "hsdp"
    policy = place.get("fsdp_reshard_after_forward", "default")
    if pp > 1 and policy != "always":
        return "1"
    return "2" if policy == "never" else "3"


def _precision(told: Mapping[str, Any], said: list[str]) -> str | None:
    """What products are computed in."""
    converters = str(_section(told, "model").get("converters", "")).lower()
    swapped = any(re.search(r"Float8\w*Linear|Float8 .*active|Float8 training", line) for line in said)
    if re.search(r"\bmx|mxfp8", converters) or any("MXFP8" in line for line in said):
        return "mxfp8"
    if "float8" in converters or swapped:
        return "fp8"
    named = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    return named.get(str(_section(told, "training").get("mixed_precision_param", "bfloat16")))


def _recomputed(again: Mapping[str, Any]) -> dict[str, Any]:
    """What is computed again in backward."""
    mode, option = again.get("mode"), str(again.get("selective_ac_option", again.get("selective_ac_type", "op")))
    if mode != "selective":
        return {"recompute": mode if mode in ("none", "full") else None}
    if option == "op":
        return {"recompute": "selective", "recompute_detail": "selective (per-op SAC)"}
    return {"recompute": "custom", "recompute_detail": f"full, on one of {option} layers"}


def _model(told: Mapping[str, Any], said: list[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """The model, as the log builds it or as the catalogue knows its flavour."""
    of = _section(told, "model_spec") or _section(told, "model")
    name, flavor = str(of.get("name", "")), str(of.get("flavor", ""))
    for at, line in enumerate(said):
        if built := re.search(r"Building (?!device|\d-D)(\S+) (\S+)(?: with \w+\((.*)\))?", line):
            name, flavor = (built[1], built[2]) if not name or built[3] else (name, flavor)
            arguments = dict(re.findall(r"\"?(\w+)\"?[=:]\s*([\w.]+)", built[3] or " ".join(said[at : at + 30])))
            if "dim" in arguments and "n_layers" in arguments and not re.search(r"moe|experts|q_lora", " ".join(arguments)):
                return _dense(f"{name}-{flavor}", arguments)
    known = MODELS.get((name, flavor))
    return of_model(known) if known and "model" not in given else {}


def _dense(name: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    """A dense model out of the arguments of its class."""
    hidden, heads = whole(arguments["dim"]), whole(arguments.get("n_heads"))
    told = whole(arguments.get("hidden_dim"))
    return {
        "model": name, "layers": whole(arguments["n_layers"]), "hidden": hidden, "heads": heads, "mlp": "swiglu", "mla": "False",
        "kv_heads": whole(arguments.get("n_kv_heads")) or heads, "vocab": whole(arguments.get("vocab_size")),
        "ffn": told or (_ffn(hidden, arguments) if hidden else None),
    }  # fmt: skip


def _ffn(hidden: int, arguments: Mapping[str, str]) -> int:
    """Width of Llama's feed-forward network: 2/3 of four times the hidden size, times a factor, rounded up to a multiple."""
    factor, multiple = number(arguments.get("ffn_dim_multiplier", "")) or 1.0, whole(arguments.get("multiple_of")) or 256
    return multiple * math.ceil(int(factor * int(8 * hidden / 3)) / multiple)


def _batch(told: Mapping[str, Any], said: list[str], found: Mapping[str, Any]) -> dict[str, Any]:
    """Batch and length of sequences."""
    train, place = _section(told, "training"), _section(told, "parallelism")
    stated = next((match for line in said if (match := BATCHES.search(line))), None)
    local = int(stated[1]) if stated else whole(train.get("local_batch_size", train.get("batch_size")))
    split = math.prod(found[name] or 1 for name in ("tp", "cp", "pp"))
    gbs = int(stated[2]) if stated else whole(train.get("global_batch_size"))
    if not gbs and local and found["gpus"]:
        gbs = local * found["gpus"] // split
    pipelined = (found["pp"] or 1) > 1
    mbs = whole(place.get("pipeline_parallel_microbatch_size", 1)) if pipelined else local
    return {"mbs": mbs, "gbs": gbs, "seq": int(stated[3]) if stated else whole(train.get("seq_len"))}


def _gpu(said: list[str]) -> str | None:
    """The accelerator, as the log names it with its memory."""
    for line in said:
        if device := DEVICE.search(line):
            size = number(device[2]) or 0
            return accelerator(f"{device[1]} {next((one for one in SIZES if one >= size), '')}GB")
    return None
