"""Logs of DeepSpeed, with its configuration (``ds_config.json``)."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from traincast.accuracy.logs import settings
from traincast.accuracy.logs.row_columns import complete
from traincast.accuracy.logs.rows import TrainingRows
from traincast.accuracy.logs.text import lines, number, truth, whole_number
from traincast.accuracy.logs.training_log import (
    LogStep,
    iteration_times,
    last_run,
    numbered_by_line,
    training_rows,
)

NUMBER: Final = r"([\d.,]*\d(?:[eE][+-]?\d+)?)"
SIGNS: Final = r"SamplesPerSec=|iter time \(s\):.*samples/sec:|time \(ms\) \| (?:fwd|forward): "
STARTS: Final = r"DeepSpeed info: version=|\[launch\.py"
PIPELINE: Final = re.compile(rf"steps?:?\s*=?\s*(\d{{1,12}})\b.*?iter time \(s\):\s*{NUMBER}\s+samples/sec:")
CURRENT: Final = re.compile(rf"(?:global_step=|\b\d+/)(\d{{1,12}}),.*?CurrSamplesPerSec={NUMBER}(?=[,\s])")
AVERAGE: Final = re.compile(rf"(?:global_step=|\b\d+/)(\d{{1,12}}),.*?\bSamplesPerSec={NUMBER}(?=[,\s])")
WALL_CLOCK: Final = re.compile(
    rf"time \(ms\) \| (?:fwd|forward): {NUMBER} \| (?:bwd|backward): {NUMBER} \|.*\bstep: {NUMBER}(?=\s|$)"
)
MEMORY: Final = re.compile(rf"MaxMemAllocated={NUMBER}GB")


def read(
    file: str, text: str, given: Mapping[str, Any], config: Mapping[str, Any], warm_up: int
) -> TrainingRows:
    """Read the last run of a log; parameters and errors as of `traincast.accuracy.logs.megatron.read`.

    DeepSpeed logs neither the model nor what is recomputed: both must be given.
    """
    by_rate = CURRENT if CURRENT.search(text) else AVERAGE if AVERAGE.search(text) else None
    by_rate = None if PIPELINE.search(text) else by_rate
    run = last_run(lines(text), _throughput(by_rate) if by_rate else _seconds(text), STARTS)
    header = run.said()
    listed = settings.listed(line for line in header if ":print]" in line or ". " in line)
    configuration = dict(config) or settings.block(header, r"\bjson = ") or _one_line_json(header)
    columns = _columns(configuration, listed) | {"stack": "deepspeed-2025", "memory_gb_published": run.memory}
    columns["memory_kind"] = "allocated" if run.memory else None
    if not PIPELINE.search(text):
        columns |= {"pp": columns.get("pp") or 1}
    row = complete(file, columns, given)
    timing = iteration_times(run, warm_up)
    if timing and by_rate:
        timing = ((whole_number(row.get("gbs")) or 0) / timing[0], *timing[1:])
    return training_rows(file, row, run, timing)


def _seconds(text: str) -> Callable[[str], LogStep | None]:
    """Return a reader of progress lines in seconds: of the pipeline engine, else the sum of the timers of a step."""
    if not PIPELINE.search(text):
        return numbered_by_line(
            WALL_CLOCK, lambda match: sum(number(group) or 0 for group in match.groups()) / 1000
        )

    def step(line: str) -> LogStep | None:
        match = PIPELINE.search(line)
        seconds = number(match[2]) if match else None
        return LogStep(int(match[1]), seconds) if match and seconds else None

    return step


def _throughput(pattern: re.Pattern[str]) -> Callable[[str], LogStep | None]:
    """Return a reader of progress lines in samples/s: of the last step, or their mean in old logs."""

    def step(line: str) -> LogStep | None:
        match = pattern.search(line)
        rate = number(match[2]) if match else None
        memory = MEMORY.search(line)
        return (
            LogStep(int(match[1]), rate, memory=number(memory[1]) if memory else None)
            if match and rate
            else None
        )

    return step


def _one_line_json(header: list[str]) -> dict[str, Any]:
    """Return a configuration printed on one line, empty without."""
    for line in header:
        if "train_micro_batch_size_per_gpu" in line and "{" in line:
            try:
                configuration = json.loads(line[line.index("{") : line.rindex("}") + 1])
            except (ValueError, RecursionError):
                continue
            return configuration if isinstance(configuration, dict) else {}
    return {}


def _columns(configuration: Mapping[str, Any], listed: Mapping[str, str]) -> dict[str, Any]:
    """Return columns from the configuration, and from the settings that DeepSpeed lists at start."""

    def section(name: str) -> Mapping[str, Any]:
        value = configuration.get(name)
        return value if isinstance(value, Mapping) else {}

    micro = whole_number(
        listed.get("train_micro_batch_size_per_gpu", configuration.get("train_micro_batch_size_per_gpu"))
    )
    steps = whole_number(
        listed.get("gradient_accumulation_steps", configuration.get("gradient_accumulation_steps"))
    )
    gbs = whole_number(listed.get("train_batch_size", configuration.get("train_batch_size")))
    ranks = whole_number(listed.get("world_size"))
    dp = ranks or (gbs // (micro * steps) if gbs and micro and steps else None)
    tp = whole_number(section("tensor_parallel").get("autotp_size")) or 1
    stage = listed.get("zero_optimization_stage", section("zero_optimization").get("stage"))
    return {
        "mbs": micro,
        "gbs": gbs or (micro * steps * dp if micro and steps and dp else None),
        "gpus": dp * tp if dp else None,
        "tp": tp,
        "cp": 1,
        "vp": 1,
        "zero": stage if str(stage) in ("0", "1", "2", "3") else "0" if configuration or listed else None,
        "precision": _precision(configuration, listed) if configuration or listed else None,
    }


def _precision(configuration: Mapping[str, Any], listed: Mapping[str, str]) -> str | None:
    """Return the precision of matrix products; None where the configuration leaves it to another program (``"auto"``)."""
    for name, flags, sections in (
        ("bf16", ("bfloat16_enabled", "bfloat16_config"), ("bf16", "bfloat16")),
        ("fp16", ("fp16_enabled", "float16_config"), ("fp16",)),
    ):
        enabled = [
            part.get("enabled")
            for section in sections
            if isinstance(part := configuration.get(section), Mapping)
        ]
        if any(re.match(r"(?:enabled=)?True\b", listed.get(flag, "")) for flag in flags) or any(
            map(truth, enabled)
        ):
            return name
        if "auto" in enabled and not any(flag in listed for flag in flags):
            return None
    return "fp32"
