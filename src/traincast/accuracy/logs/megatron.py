"""Logs of Megatron-LM, Megatron-Core and Megatron-DeepSpeed, of Megatron-Bridge, and of NeMo."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from traincast.accuracy.logs import settings
from traincast.accuracy.logs.megatron_args import cells
from traincast.accuracy.logs.row_columns import complete
from traincast.accuracy.logs.rows import TrainingRows
from traincast.accuracy.logs.text import lines, number, truth
from traincast.accuracy.logs.training_log import (
    LastRun,
    LogStep,
    iteration_times,
    last_run,
    numbered_by_line,
    training_rows,
)
from traincast.launch.unsupported import UNAMBIGUOUS_SETTINGS, check_training_kind

NUMBER: Final = r"([\d.,'’_\u00a0\u202f]*\d)"
ITERATION: Final = re.compile(
    rf"iteration\s+{NUMBER}\s*/\s*[\d.,]+\s*\|.*?elapsed time per iteration \(ms\):\s*{NUMBER}\s*\|"
)
NEMO: Final = re.compile(
    rf"(?:iteration (\d{{1,12}})/\d+ \||\| (\d{{1,12}})/\d+ \[).*?train_step_timing in s[:=]\s*{NUMBER}\s*(?=[|,\]\s]|$)"
)
BRIDGE: Final = re.compile(rf"Step Time\s*:\s*{NUMBER}\s*s\b")
BATCH: Final = re.compile(r"global[ _]batch[ _]size:\s*(\d{1,12})\s*\|")
MEMORY: Final = re.compile(rf"memory \(([MG])B\).*?max[ -]allocated(?:-gigabytes)?:\s*{NUMBER}")
SIGNS: Final = r"elapsed time per iteration \(ms\):|train_step_timing in s[:=]|Step Time\s*:\s*[\d.]+\s*s\b"
STARTS: Final = r"-{3,} arguments -{3,}|using world size: \d|Experiments will be logged at"
GIB: Final = {"M": 1 / 1024, "G": 1e9 / 2**30}  # Megatron-LM counts MiB, Megatron-Bridge 10^9 bytes


def read(
    file: str, text: str, given: Mapping[str, Any], config: Mapping[str, Any], warm_up: int
) -> TrainingRows:
    """Read the last run of a log.

    Parameters
    ----------
    file : str
        Name of the file.
    text : str
        Its content.
    given : mapping of str to Any
        Columns given by the caller.
    config : mapping of str to Any
        Configuration of the run, empty if the log contains it.
    warm_up : int
        Iterations to skip.

    Raises
    ------
    InputError
        If something is missing, or the run is not that of a decoder-only model.
    """
    run = last_run(lines(text), _step(text), STARTS)
    header = run.said()
    arguments = settings.flat(config) | settings.listed(_arguments(header))
    if "distributed_fused_adam" in text or "distributed_fused_adam" in str(config):
        arguments["use_distributed_optimizer"] = True  # named so by NeMo
    check_training_kind(
        (), {name: arguments[name] for name in UNAMBIGUOUS_SETTINGS if name in arguments}, file
    )
    columns = {name: value for name, value in cells(arguments).items() if value is not None} | _stated(header)
    gbs = run.steps[-1].gbs if run.steps else None
    columns |= {
        "stack": _stack(text, arguments),
        "gbs": gbs or columns.get("gbs"),
        "memory_gb_published": _memory(run),
    }
    columns["memory_kind"] = "allocated" if columns["memory_gb_published"] else None
    row = complete(file, columns, given)
    return training_rows(file, row, run, iteration_times(run, warm_up))


def _step(text: str) -> Callable[[str], LogStep | None]:
    """Return the reader of progress of this log: lines of Megatron, else of NeMo, else Bridge's step times."""
    if ITERATION.search(text):
        return _iteration
    if NEMO.search(text):
        return _nemo
    return numbered_by_line(BRIDGE, lambda match: number(match[1]))


def _iteration(line: str) -> LogStep | None:
    """Read a progress line of Megatron."""
    match = ITERATION.search(line)
    iteration, milliseconds = (number(match[1]), number(match[2])) if match else (None, None)
    return (
        LogStep(int(iteration), milliseconds / 1000, _batch(line))
        if iteration is not None and milliseconds
        else None
    )


def _nemo(line: str) -> LogStep | None:
    """Read a progress line or bar of NeMo."""
    match = NEMO.search(line)
    seconds = number(match[3]) if match else None
    return LogStep(int(match[1] or match[2]), seconds, _batch(line)) if match and seconds else None


def _batch(line: str) -> int | None:
    """Return the global batch of a progress line; None without."""
    match = BATCH.search(line)
    return int(match[1]) if match else None


def _arguments(header: list[str]) -> list[str]:
    """Return the lines of the block of arguments; all lines where there is none or it does not end."""
    begin = next((index for index, line in enumerate(header) if re.search(r"-{3,} arguments -{3,}", line)), 0)
    end = next(
        (index for index, line in enumerate(header) if re.search(r"-{3,} end of arguments -{3,}", line)),
        len(header),
    )
    return header[begin:end] if begin < end else header


def _stated(header: list[str]) -> dict[str, Any]:
    """Return what a log states besides its settings: the padded vocabulary and the number of GPUs."""
    columns: dict[str, Any] = {}
    for line in header:
        if padded := re.search(r"padded vocab .*new size: (\d{1,12})\b", line):
            columns["vocab"] = int(padded[1])
        if world := re.search(r"using world size: (\d{1,12})\b", line):
            columns["gpus"] = int(world[1])
    return columns


def _stack(text: str, arguments: Mapping[str, Any]) -> str:
    """Return the framework of a log."""
    if truth(arguments.get("deepspeed")):
        return "Megatron-DeepSpeed"
    if "train_step_timing" in text:
        return "NeMo"
    if BRIDGE.search(text) or "megatron.bridge" in text:
        return "Megatron-Bridge"
    return (
        "Megatron-Core" if "transformer_impl" in arguments else "Megatron-LM"
    )  # an argument since Megatron-Core


def _memory(run: LastRun) -> float | None:
    """Return the memory of the fullest rank that logs it [GiB]; None without."""
    matches = (MEMORY.search(line) for _, line in run.header)
    gibibytes = [(number(match[2]) or 0.0) * GIB[match[1]] for match in matches if match]
    return round(max(gibibytes), 3) or None if gibibytes else None
