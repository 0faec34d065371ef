"""Logs of torchtitan."""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from traincast.accuracy.logs import settings
from traincast.accuracy.logs.rows import of_model
from traincast.accuracy.logs.settings import section
from traincast.accuracy.logs.text import number, whole_number
from traincast.accuracy.logs.training_log import UNREAD, Log, LogFormat
from traincast.catalog import accelerator_called
from traincast.launch import DEGREE_SETTINGS as SETTINGS
from traincast.launch import KNOWN_MODELS

CONFIG_DUMP: Final = r"Running with (?:args|configs?):"
BATCHES: Final = re.compile(
    r"local batch size:?\s+(\d{1,12}), global batch size:?\s+(\d{1,12}),.*?sequence length:?\s+(\d{1,12})\b"
)
DEVICE: Final = re.compile(r"capacity: (.+?) with ([\d.]+)GiB memory")
MEMORY_SIZES: Final = (16, 24, 32, 40, 64, 80, 96, 141, 192)  # of accelerators of the same name [GB]
DEGREE_NAMES: Final = {  # column -> names of its degree: in the settings, and of a mesh
    column: (name, f"dp_{column}" if column in ("replicate", "shard") else column)
    for column, name in SETTINGS.items()
}
PRECISIONS: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
FFN_MULTIPLE: Final = 256  # that Llama's MLP width is rounded up to, where not set


def columns(log: Log) -> dict[str, Any]:
    """Return columns from the settings in the log or its configuration file, and from its other lines."""
    config = dict(log.config) or settings.block(log.header, CONFIG_DUMP)
    result = _plan(config, log) | {
        "stack": "torchtitan",
        "compiled": _compile_flag(config),
        "gpu": _gpu(log.header),
    }
    result |= _model(config, log) | _batch(config, log.header, result)
    return result | {"vp": _chunks(section(config, "parallelism"), result)}


def _plan(config: Mapping[str, object], log: Log) -> dict[str, object]:
    mesh = _mesh(log.header)
    sections: dict[str, object] = {}
    for name in ("experimental", "training", "parallelism"):
        sections |= section(config, name)
    degree = {
        column: mesh.get(mesh_name) or whole_number(sections.get(name))
        for column, (name, mesh_name) in DEGREE_NAMES.items()
    }
    if config or mesh:
        degree |= {column: degree[column] or 1 for column in ("tp", "cp", "pp", "ep", "replicate")}
    split = math.prod(degree[column] or 1 for column in ("tp", "cp", "pp", "replicate"))
    gpus = whole_number(log.given.get("gpus")) or (split * degree["shard"] if degree["shard"] else None)
    shard = degree["shard"] or (gpus // split if gpus else None)
    return {name: degree[name] for name in ("tp", "cp", "pp", "ep")} | {
        "gpus": gpus,
        "sp": str((degree["tp"] or 1) > 1),
        "zero": _zero(shard, degree["replicate"] or 1, sections, degree["pp"] or 1) if shard else None,
        "precision": _precision(config, log.header),
        "flash_attention": "True",
        **_recompute_columns(section(config, "activation_checkpoint")),
    }


def _compile_flag(config: Mapping[str, object]) -> str | None:
    """Return ``"false"`` if the settings state that the model was not compiled."""
    enabled = section(config, "compile").get("enable", section(config, "training").get("compile"))
    return None if enabled is None or enabled else "false"


def _chunks(parallelism: Mapping[str, Any], columns: Mapping[str, Any]) -> int:
    """Return the model chunks of a rank: more than one where the schedule interleaves stages."""
    schedule = str(parallelism.get("pipeline_parallel_schedule", ""))
    pp = columns["pp"] or 1
    if "Interleaved" not in schedule or pp == 1:
        return 1
    layers = whole_number(columns.get("layers"))
    layers_per_stage = whole_number(parallelism.get("pipeline_parallel_layers_per_stage"))
    if not (layers and layers_per_stage):
        return 2
    return max(round((layers + 2) / layers_per_stage / pp), 2)  # embedding and head weigh a layer each


def _mesh(header: list[str]) -> dict[str, int]:
    """Return the degrees of the device mesh that the log reports."""
    for line in header:
        if pairs := re.search(r"device mesh with parallelism: (.*)", line):
            return {name: int(size) for name, size in re.findall(r"(\w+)=(\d{1,9})\b", pairs[1])}
        if listed := re.search(r"\d-D device mesh with \[(.*?)\], \[(.*?)\]", line):
            names = ["dp_shard" if name == "dp" else name for name in re.findall(r"\w+", listed[1])]
            return dict(zip(names, map(int, re.findall(r"\d{1,9}", listed[2])), strict=False))
    return {}


def _zero(shard: int, replicate: int, sections: Mapping[str, object], pp: int) -> str:
    """Return the ZeRO stage that data-parallel sharding amounts to.

    Where weights stay gathered, gradients and states are sharded; with a pipeline, which keeps unsharded
    gradients until the last micro-batch, states alone.
    """
    policy = sections.get("fsdp_reshard_after_forward", "default")
    if shard == 1:
        return "0"
    if replicate > 1:
        return "hsdp"
    if pp > 1 and policy != "always":
        return "1"
    return "2" if policy == "never" else "3"


def _precision(config: Mapping[str, object], header: list[str]) -> str | None:
    converters = str(section(config, "model").get("converters", "")).lower()
    if re.search(r"\bmx|mxfp8", converters) or any("MXFP8" in line for line in header):
        return "mxfp8"
    swapped = any(re.search(r"Float8\w*Linear|Float8 .*active|Float8 training", line) for line in header)
    if "float8" in converters or swapped:
        return "fp8"
    return PRECISIONS.get(str(section(config, "training").get("mixed_precision_param", "bfloat16")))


def _recompute_columns(checkpointing: Mapping[str, object]) -> dict[str, object]:
    mode = checkpointing.get("mode")
    option = str(checkpointing.get("selective_ac_option", checkpointing.get("selective_ac_type", "op")))
    if mode != "selective":
        return {"recompute": mode if mode in ("none", "full") else None}
    if option == "op":
        return {"recompute": "per-op"}
    return {"recompute": "custom", UNREAD: f"full, on one of {option} layers"}


def _model(config: Mapping[str, object], log: Log) -> dict[str, object]:
    """Return columns of the model, as the log builds it or as the catalogue has its flavor."""
    spec = section(config, "model_spec") or section(config, "model")
    name = str(spec.get("name", ""))
    flavor = str(spec.get("flavor", ""))
    for index, line in enumerate(log.header):
        if built := re.search(r"Building (?!device|\d-D)(\S+) (\S+)(?: with \w+\((.*)\))?", line):
            name, flavor = (built[1], built[2]) if not name or built[3] else (name, flavor)
            text = built[3] or " ".join(log.header[index : index + 30])
            arguments = dict(re.findall(r"\"?(\w+)\"?[=:]\s*([\w.]+)", text))
            is_dense = not re.search(r"moe|experts|q_lora", " ".join(arguments))
            if is_dense and {"dim", "n_layers"} <= set(arguments):
                return _dense(f"{name}-{flavor}", arguments)
    catalogue_name = KNOWN_MODELS.get((name, flavor))
    return of_model(catalogue_name) if catalogue_name and "model" not in log.given else {}


def _dense(name: str, arguments: Mapping[str, str]) -> dict[str, object]:

    def whole(argument: str) -> int | None:
        return whole_number(arguments.get(argument))

    hidden = whole("dim")
    heads = whole("n_heads")
    ffn = whole("hidden_dim")
    if not ffn and hidden:  # 2/3 of four times the hidden size, times a factor, rounded up to a multiple
        factor = number(arguments.get("ffn_dim_multiplier", ""))
        multiple = whole("multiple_of") or FFN_MULTIPLE
        ffn = multiple * math.ceil(int((factor or 1.0) * int(8 * hidden / 3)) / multiple)
    return {
        "model": name,
        "layers": whole("n_layers"),
        "hidden": hidden,
        "heads": heads,
        "mlp": "swiglu",
        "mla": "False",
        "kv_heads": whole("n_kv_heads") or heads,
        "vocab": whole("vocab_size"),
        "ffn": ffn,
    }


def _batch(config: Mapping[str, Any], header: list[str], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of batch and sequence length, as the log states them or from the settings."""
    train = section(config, "training")
    parallelism = section(config, "parallelism")
    stated = next((match.groups() for line in header if (match := BATCHES.search(line))), None)
    local, gbs, seq = stated or (
        train.get("local_batch_size", train.get("batch_size")),
        train.get("global_batch_size"),
        train.get("seq_len"),
    )
    local = whole_number(local)
    gbs = whole_number(gbs)
    if not gbs and local and columns["gpus"]:
        gbs = local * columns["gpus"] // math.prod(columns[name] or 1 for name in ("tp", "cp", "pp"))
    mbs = local
    if (columns["pp"] or 1) > 1:
        mbs = whole_number(parallelism.get("pipeline_parallel_microbatch_size", 1))
    return {"mbs": mbs, "gbs": gbs, "seq": whole_number(seq)}


def _gpu(header: list[str]) -> str | None:
    """Return the accelerator that the log names with its memory; None without."""
    device = next((match for line in header if (match := DEVICE.search(line))), None)
    if device is None:
        return None
    size = next((memory for memory in MEMORY_SIZES if memory >= (number(device[2]) or 0)), "")
    return accelerator_called(f"{device[1]} {size}GB")


FORMAT: Final = LogFormat(
    signs=r"\bstep:\s*\d+\s+loss:.*[tw]ps:",
    starts=rf"Starting job:|Training starts at step|{CONFIG_DUMP}",
    progress=(
        r"^(?!.*\b(?:validat|eval)\w*:?\s+step:).*?"
        r"step:\s*(?P<at>[\d,]+)\s+loss:.*?\b[tw]ps:\s*(?P<tokens>[\d.,'’_\u00a0\u202f]*\d)(?=\s|$)",
    ),
    memory=r"memory:\s*([\d.,]+)GiB",
    memory_kind="reserved",
    columns=columns,
)
