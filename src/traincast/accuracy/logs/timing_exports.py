"""Step times without a configuration: MLPerf's logs, states of the Trainer, exports of dashboards."""

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any, Final

from traincast.accuracy.logs.rows import TRAINING, TrainingRows
from traincast.accuracy.logs.settings import parse_mapping
from traincast.accuracy.logs.text import number
from traincast.accuracy.logs.training_log import LastRun, LogStep, training_rows
from traincast.accuracy.profiles import events as profiles
from traincast.catalog import accelerator_called
from traincast.core import InputError

MLLOG: Final = re.compile(r":::MLLOG\s+(\{.*\})\s*$", re.MULTILINE)
MLLOG_COLUMNS: Final = {"global_batch_size": "gbs", "max_sequence_length": "seq"}
STEP_TIME: Final = re.compile(
    r"step[ _-]?tim(?:e|ing)|iter(?:ation)?[ _-]?time|time[ _-]per[ _-](?:step|iter)|end_to_end\(s\)",
    re.IGNORECASE,
)
MILLISECONDS: Final = re.compile(r"\(ms\)|[ _-]ms\b")
STEPS: Final = ("trainer/global_step", "train/global_step", "global_step", "_step", "step", "iteration")
# Columns of clocks [s].
CLOCKS: Final = ("wall time", "_timestamp", "_runtime", "relative time (process)", "relative time (wall)")
OF_A_PANEL: Final = ("__min", "__max")  # W&B's range of a point
TRAINER_SIGNS: Final = r'"train_steps_per_second"|"log_history"'
TRAINER_LINE: Final = re.compile(r"^(\{'(?:loss|train_runtime)':.*\})\s*$", re.MULTILINE)  # that it prints
RUN_LINE: Final = re.compile(r"^run: (\{.*\})\s*$", re.MULTILINE)  # of the programs that `export` writes
TENSORBOARD_JSON: Final = r"\s*\[\s*\[\s*\d{9,}(?:\.\d*)?\s*,\s*\d+\s*,"
PROFILED: Final = "profiled steps, which the profiler makes slower"
WHOLE_TRAINING: Final = "the mean of the whole training, with its warm-up, evaluations and checkpoints"


def holds(text: str, names: Sequence[str]) -> bool:
    """Return whether `read_step_times` knows a text, a table of these columns or none, as a series."""
    lower = [name.lower() for name in names]
    is_table = any(name in STEPS for name in lower) and (
        any(STEP_TIME.search(name) for name in names) or any(name in CLOCKS for name in lower)
    )
    is_json = text.lstrip()[:1] == "{" and re.search(TRAINER_SIGNS, text) is not None
    signs = MLLOG.search(text) or re.match(TENSORBOARD_JSON, text) or TRAINER_LINE.search(text)
    return is_table or is_json or signs is not None


def stated_run(path: Path, text: str) -> dict[str, object]:
    """Return the columns that the program of an exported folder states in its log; its model is beside it."""
    line = RUN_LINE.search(text)
    stated = _load_series(line[1]) if line else None
    columns = {name: value for name, value in stated.items() if name in TRAINING} if stated else {}
    if "model" in columns:
        columns["model"] = str(path.parent / columns["model"])
    return columns


def read_step_times(file: str, text: str, given: Mapping[str, object], warm_up: int) -> TrainingRows:
    """Read a series; the run's columns must be `given`, but for the few that the file states."""
    run, columns = series(file, text, given)
    return training_rows(file, columns, given, run, warm_up)


def series(file: str, text: str, given: Mapping[str, object]) -> tuple[LastRun, dict[str, object]]:
    """Return the steps of a series, and the columns of the run that it states."""
    if MLLOG.search(text):
        return _mllog(text)
    if printed := TRAINER_LINE.findall(text):
        return _trainer(file, {"log_history": [parse_mapping(line) for line in printed]})
    if text.lstrip()[:1] in "{[":
        return _json(file, text)
    return LastRun(steps=_table(file, text, given)), {}


def read_profile(path: Path, given: Mapping[str, object]) -> TrainingRows:
    """Read the steps of a profile; accelerator and number of GPUs as it states them."""
    events = profiles.read_events(path)
    if not events.has_marks:
        raise InputError(path.name, ["marks no steps: profile with a schedule, or with NVTX ranges of steps"])
    steps = [LogStep(i, end - start) for i, (start, end) in enumerate(events.steps)]
    columns = {"gpu": accelerator_called(events.device) if events.device else None, "gpus": events.ranks}
    return training_rows(path.name, columns, given, LastRun(steps=steps, left_out=[PROFILED]), warm_up=0)


def _mllog(text: str) -> tuple[LastRun, dict[str, object]]:
    """Return the steps of an MLPerf log, whose ``tracked_stats`` are by samples, and what it states."""
    events = [event for line in MLLOG.findall(text) if isinstance(event := _load_series(line), dict)]
    stated = {event.get("key"): event.get("value") for event in events}
    columns = {column: stated.get(key) for key, column in MLLOG_COLUMNS.items()}
    run = LastRun()
    gbs = number(str(columns["gbs"])) or 0.0
    for event in events:
        statistics = event.get("value")
        if event.get("key") != "tracked_stats" or not isinstance(statistics, dict):
            continue
        seconds = next((value for name, value in statistics.items() if STEP_TIME.search(name)), None)
        if seconds is None and (rate := number(str(statistics.get("throughput")))):
            seconds = gbs / rate
        if seconds:
            run.steps.append(LogStep(len(run.steps), float(seconds)))
    platform = stated.get("submission_platform")
    return run, columns | {"source": " ".join(filter(None, [stated.get("submission_org"), platform]))}


def _json(file: str, text: str) -> tuple[LastRun, dict[str, object]]:
    """Return the steps of TensorBoard's JSON, or the mean step of a Trainer's state or results."""
    document = _load_series(text)
    if isinstance(document, list):
        return LastRun(
            steps=_series(file, [(row[1], row[0], row[2]) for row in document if len(row) == 3])
        ), {}
    if not isinstance(document, dict):
        raise InputError(file, ["malformed JSON"])
    return _trainer(file, document)


def _trainer(file: str, document: Mapping[str, Any]) -> tuple[LastRun, dict[str, Any]]:
    """Return the steps that a Trainer logs the time of, else the mean step of its training."""
    history = document.get("log_history")
    stack = {"stack": "huggingface-eager"}
    if steps := list(_timed_steps(history or [])):
        return LastRun(steps=steps), stack
    last = [entry for entry in [*(history or []), document] if "train_steps_per_second" in entry]
    if not last or not (rate := float(last[0]["train_steps_per_second"])):
        raise InputError(
            file,
            ["train_steps_per_second: missing; the Trainer writes it, with the time, where training ends"],
        )
    samples = float(last[0].get("train_samples_per_second", 0.0))
    run = LastRun(steps=[LogStep(int(document.get("global_step", 0)), 1 / rate)], left_out=[WHOLE_TRAINING])
    return run, stack | {"gbs": round(samples / rate) or None, "mbs": document.get("train_batch_size")}


def _timed_steps(history: Sequence[Mapping[str, Any]]) -> Iterator[LogStep]:
    """Yield the steps of a Trainer's entries that hold a step time [s]."""
    for index, entry in enumerate(history):
        name = next((name for name in entry if STEP_TIME.search(name)), None)
        if name and (seconds := number(str(entry[name]))):
            yield LogStep(int(entry.get("step", index)), seconds)


def _load_series(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _table(file: str, text: str, given: Mapping[str, object]) -> list[LogStep]:
    """Return the steps of a table of a dashboard: by a column of step times, else by its clock."""
    header, *rows = csv.reader(text.splitlines())
    lower = [name.lower().strip() for name in header]
    at = next(lower.index(name) for name in STEPS if name in lower)
    times = [
        index
        for index, name in enumerate(lower)
        if STEP_TIME.search(name) and index != at and not name.endswith(OF_A_PANEL)
    ]
    chosen = [index for index in times if str(given.get("id", "")).lower() in lower[index]] or times
    if len(chosen) > 1:
        runs = ", ".join(header[index] for index in chosen)
        raise InputError(
            file, [f"has the step times of {len(chosen)} runs ({runs}): give id= with the name of one"]
        )
    clock = next((lower.index(name) for name in CLOCKS if name in lower), None)
    value = lower.index("value") if "value" in lower else None
    if chosen:
        value = chosen[0]
    unit = 1e-3 if value is not None and MILLISECONDS.search(f"{lower[value]} {PurePath(file).stem}") else 1.0

    def cell(row: Sequence[str], index: int | None) -> float | None:
        return number(row[index]) if index is not None and index < len(row) else None

    points = [(cell(row, at), cell(row, clock), cell(row, value)) for row in rows]
    if chosen:
        return [LogStep(int(step), each * unit) for step, _, each in points if step is not None and each]
    return _series(file, points, unit)


def _series(file: str, points: Sequence[tuple[Any, Any, Any]], unit: float = 1.0) -> list[LogStep]:
    """Return steps of (step, clock [s], value): values of a file named for step times, else by clock."""
    if STEP_TIME.search(PurePath(file).stem):
        return [
            LogStep(int(step), float(value) * unit) for step, _, value in points if step is not None and value
        ]
    ticks = [(step, clock) for step, clock, _ in points if step is not None and clock is not None]
    return [
        LogStep(int(step), (clock - before) / (step - previous))
        for (previous, before), (step, clock) in pairwise(ticks)
        if step > previous and clock > before
    ]
