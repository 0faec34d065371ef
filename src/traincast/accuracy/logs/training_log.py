"""Training logs of any format: the last run of a file, its step time, and the row of a table of runs."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf, prod
from statistics import median, quantiles
from typing import Any, Final

from traincast.accuracy.logs.rows import TRAINING, TrainingRows, complete
from traincast.accuracy.logs.text import lines, number, whole_number
from traincast.accuracy.runs import run as measurements
from traincast.accuracy.runs.cells import Unreadable
from traincast.core import InputError

WARM_UP: Final = 3  # progress lines: compilation, allocation and cold caches
NEVER: Final = r"(?!)"  # a pattern that nothing matches
SECONDS: Final = {"s": 1.0, "ms": 1e-3}  # of the groups of progress patterns that hold times
NOT_SAID: Final = "the log does not say"
UNREAD: Final = "recomputed"  # what a log says of recompute that no column can
NEEDED_COLUMNS: Final = {  # column that a prediction needs -> how it may be given
    "layers": "layers=32, or model=llama-3-8b",
    "hidden": "hidden=4096, or model=llama-3-8b",
    "heads": "heads=32, or model=llama-3-8b",
    "mlp": "mlp=swiglu (gelu, geglu, relu, relu2), or model=llama-3-8b",
    "seq": "seq=4096, tokens of a sequence",
    "gpu": "gpu=h100-sxm-80",
    "gpus": "gpus=64, how many ran",
    "precision": "precision=bf16 (fp32, fp16, fp8, mxfp8, nvfp4)",
    "tp": "tp=8, the tensor-parallel degree",
    "pp": "pp=4, the pipeline-parallel degree",
    "mbs": "mbs=1, sequences of a micro-batch",
    "gbs": "gbs=512, sequences of a step",
    "zero": "zero=1 (0, 2, 3, hsdp)",
    "recompute": "recompute=none (selective, full)",
}


@dataclass(frozen=True)
class LogFormat:
    """Patterns of a training log, and the function of its columns.

    `signs` tell the format, `starts` begin a run. Of the `progress` patterns the first that is found counts;
    their groups are the iteration (at, at2; lines are counted without), and its time (s, ms, in parts ms2 …)
    or rate (samples per second, tokens per second of a device). `batch` and `memory` [GiB] may be on the same
    line.
    """

    signs: str
    starts: str
    progress: tuple[str, ...]
    columns: "Callable[[Log], dict[str, Any]]"
    batch: str = NEVER
    memory: str = NEVER
    memory_kind: str = "allocated"


@dataclass(frozen=True)
class LogStep:
    """A progress line: iteration, its time [s] or rate, and global batch and memory [GiB] if stated."""

    at: int
    value: float
    gbs: int | None = None
    memory: float | None = None


@dataclass
class LastRun:
    """The last run of a log that made progress: header as (rank, line), steps, and what was left out."""

    header: list[tuple[str, str]] = field(default_factory=list)
    steps: list[LogStep] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def memory(self) -> float | None:
        """Memory of the fullest rank that logs it [GiB]."""
        return max((step.memory for step in self.steps if step.memory), default=None)

    @property
    def header_by_rank(self) -> list[str]:
        """The lines of the header: those of no rank first, then rank by rank."""
        return [line for _, line in sorted(self.header, key=lambda ranked_line: int(ranked_line[0] or -1))]


@dataclass(frozen=True)
class Log:
    """A log with its last run; `config` is its configuration file, `given` are the caller's columns.

    `header` has the lines before and between progress lines: those of no rank first, then rank by rank.
    """

    file: str
    text: str
    run: LastRun
    header: list[str]
    config: Mapping[str, object]
    given: Mapping[str, object]


def read_log(
    log_format: LogFormat,
    file: str,
    text: str,
    config: Mapping[str, object],
    given: Mapping[str, object],
    warm_up: int,
) -> TrainingRows:
    """Read the last run of a log, without its first `warm_up` iterations."""
    run, rate = last_run(log_format, text)
    columns = log_format.columns(Log(file, text, run, run.header_by_rank, config, given))
    columns.setdefault("memory_gb_published", run.memory)
    if columns["memory_gb_published"]:
        columns["memory_kind"] = log_format.memory_kind
    return training_rows(file, columns, given, run, warm_up, rate)


def last_run(log_format: LogFormat, text: str) -> tuple[LastRun, str | None]:
    """Return the last run of a log, and what its steps' values are a rate of: tokens, samples, or None."""
    patterns = [re.compile(pattern, re.MULTILINE) for pattern in log_format.progress]
    progress = next((pattern for pattern in patterns if pattern.search(text)), None)
    run = _last_run(lines(text), _step_reader(log_format, progress), log_format.starts)
    rate = next((name for name in ("tokens", "samples") if progress and name in progress.groupindex), None)
    return run, rate


def training_rows(
    file: str,
    columns: Mapping[str, object],
    given: Mapping[str, object],
    run: LastRun,
    warm_up: int,
    rate: str | None = None,
) -> TrainingRows:
    """Return the row of a run without its first `warm_up` steps.

    The steps' values are seconds, or a rate: samples per second, or tokens per second of a device.
    """
    row = complete(file, columns, given)
    timing = iteration_times(run, warm_up)
    if timing and rate == "tokens":
        row["tokens_per_s_per_gpu"] = f"{timing[0]:.6g}"
    return _training_row(file, row, run, timing and in_seconds(timing, rate, row))


def in_seconds(
    timing: tuple[float, float, int], rate: str | None, row: Mapping[str, object]
) -> tuple[float, float, int]:
    """Return the timing of `iteration_times` as seconds, where its values are a rate of the row's work."""
    if rate is None:
        return timing
    names = ("gbs", "seq") if rate == "tokens" else ("gbs",)
    gpus = whole_number(row.get("gpus")) or 1 if rate == "tokens" else 1
    work = prod(whole_number(row.get(name)) or 0 for name in names)
    return work / timing[0] / gpus, *timing[1:]


def _step_reader(log_format: LogFormat, progress: re.Pattern[str] | None) -> Callable[[str], LogStep | None]:
    numbers = count()
    batch = re.compile(log_format.batch)
    memory = re.compile(log_format.memory)

    def step(line: str) -> LogStep | None:
        match = progress.search(line) if progress else None
        if match is None:
            return None
        texts = {name: text for name, text in match.groupdict().items() if text}
        value = sum(
            (number(text) or 0.0) * SECONDS.get(name.rstrip("23"), 1.0)
            for name, text in texts.items()
            if not name.startswith("at")
        )
        if not value:
            return None
        at = next((number(text) for name, text in texts.items() if name.startswith("at")), None)
        if at is None:
            if any(name.startswith("at") for name in match.groupdict()):
                return None
            at = next(numbers)
        stated_batch = batch.search(line)
        stated_memory = memory.search(line)
        return LogStep(
            int(at),
            value,
            int(stated_batch[1]) if stated_batch else None,
            number(stated_memory[1]) if stated_memory else None,
        )

    return step


def _last_run(
    lines: Sequence[tuple[str, str]], step_of: Callable[[str], LogStep | None], starts: str
) -> LastRun:
    """Return the last run of (rank, line) that made progress.

    A line that `starts` a run, or an iteration that a rank has passed, begins another one.
    """
    begins = re.compile(starts)
    runs = [LastRun()]
    reached: dict[str, int] = {}
    for rank, line in lines:
        step = step_of(line)
        if step is None:
            if begins.search(line) and runs[-1].steps:
                runs = [*runs, LastRun()]
                reached = {}
            runs[-1].header.append((rank, line))
            continue
        if step.at < reached.get(rank, step.at):
            runs = [*runs, LastRun(runs[-1].header)]
            reached = {}
        reached[rank] = step.at
        runs[-1].steps.append(step)
    finished = [run for run in runs if run.steps]
    if not finished:
        return LastRun()
    if earlier := len(finished) - 1:
        runs_text = f"{earlier} earlier run{'s' * (earlier > 1)}"
        finished[-1].left_out.append(f"{runs_text} in the same file: only the last is read")
    if not runs[-1].steps:
        finished[-1].left_out.append("a later run without a finished iteration")
    return finished[-1]


def iteration_times(run: LastRun, warm_up: int) -> tuple[float, float, int] | None:
    """Return median over iterations, width of their middle half over it, and their number; None without any.

    Iterations of another global batch than the last one are left out: the batch was ramped up. At least half
    of the rest stays after the warm-up. What is left out is noted with the run.
    """
    if not run.steps:
        return None
    by_step: dict[int, list[float]] = defaultdict(list)
    gbs = run.steps[-1].gbs
    for step in run.steps:
        if step.gbs == gbs:
            by_step[step.at].append(step.value)
    other_batches = len({step.at for step in run.steps} - set(by_step))
    if other_batches:
        run.left_out.append(f"{other_batches} iterations of another global batch than {gbs}")
    values = [median(by_step[at]) for at in sorted(by_step)]
    skipped = min(max(warm_up, 0), len(values) // 2)
    if skipped:
        run.left_out.append(f"{skipped} of {len(values)} iterations: warm-up")
    return *median_and_spread(values[skipped:]), len(values) - skipped


def median_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the median of values, and the width of their middle half over it."""
    middle = median(values)
    quarters = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [middle] * 3
    return middle, (quarters[2] - quarters[0]) / middle


def _training_row(
    file: str, cells: Mapping[str, object], run: LastRun, timing: tuple[float, float, int] | None
) -> TrainingRows:
    """Build the row of a run from columns and times in seconds, or raise with all that is missing."""
    stated = {name: str(value) for name, value in cells.items() if value not in (None, "")}
    missing = [
        f"{name}: {NOT_SAID}; give {how}"
        for name, how in NEEDED_COLUMNS.items()
        if name not in stated and not (name == "gpu" and "system" in stated)
    ]
    if timing is None or not 0 < timing[0] < inf:
        missing.append("step_seconds: no finished iteration")
    if stated.get("recompute") == "custom":
        detail = stated.get(UNREAD)
        missing.append(f"recompute: {detail}: give recompute=full or recompute=none, what is closer")
    if missing or timing is None:
        raise InputError(file, missing)
    seconds, spread, number_of_steps = timing
    stated |= {"step_seconds": f"{seconds:.9g}", "step_spread": f"{spread:.3g}"}
    stated["steps_measured"] = str(number_of_steps)
    notes = [stated.get("notes"), f"median of {number_of_steps} iterations", *run.left_out]
    stated["notes"] = "; ".join(filter(None, notes))
    row = {name: stated.get(name, "") for name in TRAINING}
    try:
        measurements.read_run(row)
    except Unreadable as reason:
        raise InputError(file, [str(reason)]) from None
    return TrainingRows(file=file, rows=(row,), left_out=tuple(run.left_out))
