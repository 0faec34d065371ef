"""Logs of DeepSpeed, with its configuration (``ds_config.json``); neither has the model or recompute."""

import re
from collections.abc import Mapping
from typing import Final

from traincast.accuracy.logs import settings
from traincast.accuracy.logs.settings import section
from traincast.accuracy.logs.text import truth, whole_number
from traincast.accuracy.logs.training_log import Log, LogFormat

NUMBER: Final = r"[\d.,]*\d(?:[eE][+-]?\d+)?"
PIPELINE: Final = rf"steps?:?\s*=?\s*(?P<at>\d{{1,12}})\b.*?iter time \(s\):\s*(?P<s>{NUMBER})\s+samples/sec:"
CURRENT: Final = (  # of the last step
    rf"(?:global_step=|\b\d+/)(?P<at>\d{{1,12}}),.*?CurrSamplesPerSec=(?P<samples>{NUMBER})(?=[,\s])"
)
AVERAGE: Final = (  # of all steps so far, in old logs
    rf"(?:global_step=|\b\d+/)(?P<at>\d{{1,12}}),.*?\bSamplesPerSec=(?P<samples>{NUMBER})(?=[,\s]|$)"
)
WALL_CLOCK: Final = (
    rf"time \(ms\) \| (?:fwd|forward): (?P<ms>{NUMBER}) \| (?:bwd|backward): (?P<ms2>{NUMBER}) \|"
    rf".*\bstep: (?P<ms3>{NUMBER})(?=\s|$)"
)
# printed as json, or on one line
CONFIG: Final = r"(?:\bjson = |^(?=.*\{.*train_micro_batch_size_per_gpu)[^{]*)"
PRECISIONS: Final = {  # precision -> names of its flag where settings are listed, and of its section
    "bf16": (("bfloat16_enabled", "bfloat16_config"), ("bf16", "bfloat16")),
    "fp16": (("fp16_enabled", "float16_config"), ("fp16",)),
}


def columns(log: Log) -> dict[str, object]:
    """Return columns from the configuration, and from the settings that DeepSpeed lists at start."""
    listed = settings.settings_in_lines(line for line in log.header if ":print]" in line or ". " in line)
    config = dict(log.config) or settings.block(log.header, CONFIG)

    def whole(name: str) -> int | None:
        return whole_number(listed.get(name, config.get(name)))

    micro = whole("train_micro_batch_size_per_gpu")
    steps = whole("gradient_accumulation_steps")
    gbs = whole("train_batch_size")
    dp = whole_number(listed.get("world_size"))
    dp = dp or (gbs // (micro * steps) if gbs and micro and steps else None)
    tp = whole_number(section(config, "tensor_parallel").get("autotp_size")) or 1
    stage = str(listed.get("zero_optimization_stage", section(config, "zero_optimization").get("stage")))
    known = bool(config or listed)
    zero = "0" if known else None
    if stage in ("0", "1", "2", "3"):
        zero = stage
    return {
        "stack": "deepspeed-2025",
        "mbs": micro,
        "gbs": gbs or (micro * steps * dp if micro and steps and dp else None),
        "gpus": dp * tp if dp else None,
        "tp": tp,
        "cp": 1,
        "vp": 1,
        "pp": None if re.search(PIPELINE, log.text) else 1,
        "zero": zero,
        "precision": _precision(config, listed) if known else None,
    }


def _precision(config: Mapping[str, object], listed: Mapping[str, str]) -> str | None:
    """Return the precision of matmuls; None where it is left to another program (``"auto"``)."""
    for name, (flags, sections) in PRECISIONS.items():
        enabled = [section(config, part).get("enabled") for part in sections]
        flagged = any(re.match(r"(?:enabled=)?True\b", listed.get(flag, "")) for flag in flags)
        if flagged or any(map(truth, enabled)):
            return name
        if "auto" in enabled and not any(flag in listed for flag in flags):
            return None
    return "fp32"


FORMAT: Final = LogFormat(
    signs=r"SamplesPerSec=|iter time \(s\):.*samples/sec:|time \(ms\) \| (?:fwd|forward): ",
    starts=r"DeepSpeed info: version=|\[launch\.py",
    progress=(PIPELINE, CURRENT, AVERAGE, WALL_CLOCK),
    memory=rf"MaxMemAllocated=({NUMBER})GB",
    columns=columns,
)
