"""Logs of torchtitan."""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from traincast.accuracy.logs import settings
from traincast.accuracy.logs.row_columns import complete, of_model
from traincast.accuracy.logs.rows import TrainingRows
from traincast.accuracy.logs.text import lines, number, whole_number
from traincast.accuracy.logs.training_log import LogStep, iteration_times, last_run, training_rows
from traincast.catalog.load import accelerator_called
from traincast.launch.torchtitan import DEGREES as SETTINGS
from traincast.launch.torchtitan import MODELS

SIGNS: Final = r"\bstep:\s*\d+\s+loss:.*tps:"
STARTS: Final = r"Starting job:|Training starts at step|Running with (?:args|configs?):"
PROGRESS: Final = re.compile(r"step:\s*([\d,]+)\s+loss:.*?\btps:\s*([\d.,'’_\u00a0\u202f]*\d)(?=\s)")
MEMORY: Final = re.compile(r"memory:\s*([\d.,]+)GiB")
BATCHES: Final = re.compile(
    r"local batch size:?\s+(\d{1,12}), global batch size:?\s+(\d{1,12}),.*?sequence length:?\s+(\d{1,12})\b"
)
DEVICE: Final = re.compile(r"capacity: (.+?) with ([\d.]+)GiB memory")
MEMORY_SIZES: Final = (16, 24, 32, 40, 64, 80, 96, 141, 192)  # memory of accelerators of the same name [GB]
DEGREE_NAMES: Final = {  # column -> names of its degree: in the settings, and of a mesh
    column: (name, f"dp_{column}" if column in ("replicate", "shard") else column)
    for column, name in SETTINGS.items()
}


def read(
    file: str, text: str, given: Mapping[str, Any], config: Mapping[str, Any], warm_up: int
) -> TrainingRows:
    """Read the last run of a log; parameters and errors as of `traincast.accuracy.logs.megatron.read`."""
    run = last_run(lines(text), _step, STARTS)
    header = run.said()
    configuration = dict(config) or settings.block(header, r"Running with (?:args|configs?):")
    columns = _plan(configuration, header, given) | {"stack": "torchtitan"}
    columns |= (
        _model(configuration, header, given)
        | _batch(configuration, header, columns)
        | {"gpu": _gpu(header), "memory_gb_published": run.memory}
    )
    columns |= {"memory_kind": "reserved" if run.memory else None, "notes": _compiled(configuration)}
    columns["vp"] = _chunks(_section(configuration, "parallelism"), columns)
    row = complete(file, columns, given)
    timing = iteration_times(run, warm_up)
    if timing:
        rate, spread, count = timing
        tokens = math.prod(whole_number(row.get(name)) or 0 for name in ("gbs", "seq"))
        timing = (tokens / rate / (whole_number(row.get("gpus")) or 1), spread, count)
        row["tokens_per_s_per_gpu"] = f"{rate:.6g}"
    return training_rows(file, row, run, timing)


def _step(line: str) -> LogStep | None:
    """Read a progress line: tokens/s of a device."""
    match = None if re.search(r"\b(?:validat|eval)\w*:?\s+step:", line) else PROGRESS.search(line + " ")
    step, rate = (number(match[1]), number(match[2])) if match else (None, None)
    memory = MEMORY.search(line)
    return (
        LogStep(int(step), rate, memory=number(memory[1]) if memory else None)
        if step is not None and rate
        else None
    )


def _section(configuration: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a section of the settings, empty without."""
    value = configuration.get(name)
    return value if isinstance(value, Mapping) else {}


def _plan(configuration: Mapping[str, Any], header: list[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of degrees, sharding, precision and recompute."""
    mesh = _mesh(header)
    sections = {
        **_section(configuration, "experimental"),
        **_section(configuration, "training"),
        **_section(configuration, "parallelism"),
    }
    degree = {
        column: mesh.get(mesh_name) or whole_number(sections.get(name))
        for column, (name, mesh_name) in DEGREE_NAMES.items()
    }
    if configuration or mesh:
        degree |= {column: degree[column] or 1 for column in ("tp", "cp", "pp", "ep", "replicate")}
    split = math.prod(degree[column] or 1 for column in ("tp", "cp", "pp", "replicate"))
    gpus = whole_number(given.get("gpus")) or (split * degree["shard"] if degree["shard"] else None)
    shard = degree["shard"] or (gpus // split if gpus else None)
    checkpointing = _section(configuration, "activation_checkpoint")
    columns: dict[str, Any] = {name: degree[name] for name in ("tp", "cp", "pp", "ep")}
    return columns | _recomputed(checkpointing) | {
        "gpus": gpus,
        "sp": "True" if (degree["tp"] or 1) > 1 else "False",
        "zero": _zero(shard, degree["replicate"] or 1, sections, degree["pp"] or 1) if shard else None,
        "precision": _precision(configuration, header),
        "flash_attention": "True",
    }  # fmt: skip


def _compiled(configuration: Mapping[str, Any]) -> str | None:
    """Return ``"eager"`` if the settings state that the model was not compiled."""
    enabled = _section(configuration, "compile").get(
        "enable", _section(configuration, "training").get("compile")
    )
    return None if enabled is None or enabled else "eager"


def _chunks(parallelism: Mapping[str, Any], columns: Mapping[str, Any]) -> int:
    """Return the model chunks of a rank: one; two where the schedule interleaves and the layers of a stage are not set."""
    if (
        "Interleaved" not in str(parallelism.get("pipeline_parallel_schedule", ""))
        or (columns["pp"] or 1) == 1
    ):
        return 1
    layers, layers_per_stage = (
        whole_number(columns.get("layers")),
        whole_number(parallelism.get("pipeline_parallel_layers_per_stage")),
    )
    return (
        max(round((layers + 2) / layers_per_stage / columns["pp"]), 2) if layers and layers_per_stage else 2
    )  # embedding and head weigh a layer each


def _mesh(header: list[str]) -> dict[str, int]:
    """Return the degrees of the device mesh that the log reports."""
    for line in header:
        if pairs := re.search(r"device mesh with parallelism: (.*)", line):
            return {name: int(size) for name, size in re.findall(r"(\w+)=(\d{1,9})\b", pairs[1])}
        if listed := re.search(r"\d-D device mesh with \[(.*?)\], \[(.*?)\]", line):
            names, sizes = re.findall(r"\w+", listed[1]), re.findall(r"\d{1,9}", listed[2])
            return {
                "dp_shard" if name == "dp" else name: int(size)
                for name, size in zip(names, sizes, strict=False)
            }
    return {}


def _zero(shard: int, replicate: int, sections: Mapping[str, Any], pp: int) -> str:
    """Return the ZeRO stage that data-parallel sharding amounts to.

    Where weights stay gathered, gradients and states are sharded; with a pipeline, which keeps unsharded gradients until the last
    micro-batch, states alone.
    """
    if shard == 1:
        return "0"
    if replicate > 1:
        return "hsdp"
    policy = sections.get("fsdp_reshard_after_forward", "default")
    if pp > 1 and policy != "always":
        return "1"
    return "2" if policy == "never" else "3"


def _precision(configuration: Mapping[str, Any], header: list[str]) -> str | None:
    """Return the precision of matrix products."""
    converters = str(_section(configuration, "model").get("converters", "")).lower()
    swapped = any(re.search(r"Float8\w*Linear|Float8 .*active|Float8 training", line) for line in header)
    if re.search(r"\bmx|mxfp8", converters) or any("MXFP8" in line for line in header):
        return "mxfp8"
    if "float8" in converters or swapped:
        return "fp8"
    named = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    return named.get(str(_section(configuration, "training").get("mixed_precision_param", "bfloat16")))


def _recomputed(checkpointing: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of recompute."""
    mode, option = (
        checkpointing.get("mode"),
        str(checkpointing.get("selective_ac_option", checkpointing.get("selective_ac_type", "op"))),
    )
    if mode != "selective":
        return {"recompute": mode if mode in ("none", "full") else None}
    if option == "op":
        return {"recompute": "selective", "recompute_detail": "selective (per-op SAC)"}
    return {"recompute": "custom", "recompute_detail": f"full, on one of {option} layers"}


def _model(configuration: Mapping[str, Any], header: list[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of the model, as the log builds it or as the catalogue has its flavor."""
    section = _section(configuration, "model_spec") or _section(configuration, "model")
    name, flavor = str(section.get("name", "")), str(section.get("flavor", ""))
    for index, line in enumerate(header):
        if built := re.search(r"Building (?!device|\d-D)(\S+) (\S+)(?: with \w+\((.*)\))?", line):
            name, flavor = (built[1], built[2]) if not name or built[3] else (name, flavor)
            arguments = dict(
                re.findall(r"\"?(\w+)\"?[=:]\s*([\w.]+)", built[3] or " ".join(header[index : index + 30]))
            )
            if (
                "dim" in arguments
                and "n_layers" in arguments
                and not re.search(r"moe|experts|q_lora", " ".join(arguments))
            ):
                return _dense(f"{name}-{flavor}", arguments)
    catalogue_name = MODELS.get((name, flavor))
    return of_model(catalogue_name) if catalogue_name and "model" not in given else {}


def _dense(name: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return columns of a dense model from the arguments of its class."""
    hidden, heads = whole_number(arguments["dim"]), whole_number(arguments.get("n_heads"))
    ffn = whole_number(arguments.get("hidden_dim"))
    return {
        "model": name, "layers": whole_number(arguments["n_layers"]), "hidden": hidden, "heads": heads,
        "mlp": "swiglu", "mla": "False",
        "kv_heads": whole_number(arguments.get("n_kv_heads")) or heads, "vocab": whole_number(arguments.get("vocab_size")),
        "ffn": ffn or (_ffn(hidden, arguments) if hidden else None),
    }  # fmt: skip


def _ffn(hidden: int, arguments: Mapping[str, str]) -> int:
    """Return the width of Llama's MLP: 2/3 of four times the hidden size, times a factor, rounded up to a multiple."""
    factor, multiple = (
        number(arguments.get("ffn_dim_multiplier", "")) or 1.0,
        whole_number(arguments.get("multiple_of")) or 256,
    )
    return multiple * math.ceil(int(factor * int(8 * hidden / 3)) / multiple)


def _batch(configuration: Mapping[str, Any], header: list[str], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of batch and sequence length."""
    train, parallelism = _section(configuration, "training"), _section(configuration, "parallelism")
    stated = next((match for line in header if (match := BATCHES.search(line))), None)
    local = int(stated[1]) if stated else whole_number(train.get("local_batch_size", train.get("batch_size")))
    split = math.prod(columns[name] or 1 for name in ("tp", "cp", "pp"))
    gbs = int(stated[2]) if stated else whole_number(train.get("global_batch_size"))
    if not gbs and local and columns["gpus"]:
        gbs = local * columns["gpus"] // split
    pipelined = (columns["pp"] or 1) > 1
    mbs = whole_number(parallelism.get("pipeline_parallel_microbatch_size", 1)) if pipelined else local
    return {"mbs": mbs, "gbs": gbs, "seq": int(stated[3]) if stated else whole_number(train.get("seq_len"))}


def _gpu(header: list[str]) -> str | None:
    """Return the accelerator that the log names with its memory; None without."""
    for line in header:
        if device := DEVICE.search(line):
            size = number(device[2]) or 0
            return accelerator_called(
                f"{device[1]} {next((memory for memory in MEMORY_SIZES if memory >= size), '')}GB"
            )
    return None
