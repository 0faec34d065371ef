"""Common parts of training-log readers: the last run of a file, the step time, and a row of the table of runs."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf
from statistics import median, quantiles
from typing import Any, Final

from traincast.accuracy.logs.rows import TRAINING, TrainingRows
from traincast.accuracy.runs import run as measurements
from traincast.accuracy.runs.cells import Unreadable
from traincast.accuracy.runs.system import accelerators
from traincast.core.errors import InputError

WARM_UP: Final = 3  # progress lines: compilation, allocation and cold caches
NEEDED_COLUMNS: Final = {  # column that a prediction needs -> values that may be given
    "layers": "a whole number, or model=",
    "hidden": "a whole number, or model=",
    "heads": "a whole number, or model=",
    "mlp": "gelu, swiglu, geglu, relu or relu2, or model=",
    "seq": "tokens of a sequence",
    "gpu": f"one of {', '.join(accelerators())}",
    "gpus": "how many ran",
    "precision": "fp32, fp16, bf16, fp8, mxfp8 or nvfp4",
    "tp": "tensor-parallel degree",
    "pp": "pipeline-parallel degree",
    "mbs": "sequences of a micro-batch",
    "gbs": "sequences of a step",
    "zero": "0, 1, 2, 3 or hsdp",
    "recompute": "none, selective or full",
}


@dataclass(frozen=True)
class LogStep:
    """A progress line.

    Parameters
    ----------
    at : int
        Number of the iteration.
    value : float
        Its time [s], or its throughput in the log's unit.
    gbs : int or None
        Sequences of the step, where stated.
    memory : float or None
        Memory of the rank [GiB], where stated.
    """

    at: int
    value: float
    gbs: int | None = None
    memory: float | None = None


@dataclass
class LastRun:
    """The last run of a log that made progress.

    Parameters
    ----------
    header : list of (str, str)
        Rank and text of the lines before and between progress lines.
    steps : list of LogStep
        Progress, one entry for each iteration and rank that wrote it.
    left_out : list of str
        Lines not used, and why.
    """

    header: list[tuple[str, str]] = field(default_factory=list)
    steps: list[LogStep] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def memory(self) -> float | None:
        """Memory of the fullest rank that logs it [GiB]."""
        return max((step.memory for step in self.steps if step.memory), default=None)

    def said(self) -> list[str]:
        """Return the lines of `header` without their ranks: those of no rank first, then rank by rank."""
        return [line for _, line in sorted(self.header, key=lambda ranked_line: int(ranked_line[0] or -1))]


def numbered_by_line(
    pattern: re.Pattern[str], seconds: Callable[[re.Match[str]], float | None]
) -> Callable[[str], LogStep | None]:
    """Return a reader of progress lines without iteration numbers, which counts lines.

    Parameters
    ----------
    pattern : Pattern
        Pattern of a progress line.
    seconds : callable
        Step time from a match [s].
    """
    numbers = count()

    def step(line: str) -> LogStep | None:
        match = pattern.search(line)
        value = seconds(match) if match else None
        return LogStep(next(numbers), value) if value else None

    return step


def last_run(
    lines: Sequence[tuple[str, str]], step_of: Callable[[str], LogStep | None], starts: str
) -> LastRun:
    """Return the last run of a log.

    A line that `starts` a run, or an iteration that a rank has passed, begins another one; a run without progress does not count.

    Parameters
    ----------
    lines : sequence of (str, str)
        Rank and text of each line.
    step_of : callable
        Progress of a line, None for any other line.
    starts : str
        Pattern of a line that begins a run.
    """
    begins, runs = re.compile(starts), [LastRun()]
    reached: dict[str, int] = {}
    for rank, line in lines:
        step = step_of(line)
        if step is None:
            if begins.search(line) and runs[-1].steps:
                runs, reached = [*runs, LastRun()], {}
            runs[-1].header.append((rank, line))
            continue
        if step.at < reached.get(rank, step.at):
            runs, reached = [*runs, LastRun(runs[-1].header)], {}
        reached[rank] = step.at
        runs[-1].steps.append(step)
    finished = [run for run in runs if run.steps]
    if not finished:
        return LastRun()
    if len(finished) > 1:
        finished[-1].left_out.append(
            f"{len(finished) - 1} earlier run{'s' * (len(finished) > 2)} in the same file: only the last is read"
        )
    if not runs[-1].steps:
        finished[-1].left_out.append("a later run without a finished iteration")
    return finished[-1]


def iteration_times(run: LastRun, warm_up: int) -> tuple[float, float, int] | None:
    """Return median over iterations after warm-up, width of the middle half over the median, and number; None without any.

    Iterations of another global batch than the last one are left out: the batch was ramped up. At least half of the rest stays.

    Parameters
    ----------
    run : LastRun
        The logged run; lines not used are added to its `left_out`.
    warm_up : int
        Lines to skip at the beginning.
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
    values = values[skipped:]
    middle = median(values)
    quarters = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [middle] * 3
    return middle, (quarters[2] - quarters[0]) / middle, len(values)


def training_rows(
    file: str, cells: Mapping[str, Any], run: LastRun, timing: tuple[float, float, int] | None
) -> TrainingRows:
    """Build the row of a run.

    Parameters
    ----------
    file : str
        Name of the file.
    cells : mapping of str to Any
        Columns; None and ``""`` where not known.
    run : LastRun
        The logged run, for its `left_out`.
    timing : (float, float, int) or None
        What `iteration_times` returned, in seconds; None if there is no finished iteration.

    Raises
    ------
    InputError
        If columns that a prediction needs are missing, all at once; or the run cannot be predicted.
    """
    stated = {name: str(value) for name, value in cells.items() if value not in (None, "")}
    missing = [
        f"{name}: the log does not say; give {name}= ({allowed})"
        for name, allowed in NEEDED_COLUMNS.items()
        if name not in stated
    ]
    if timing is None or not 0 < timing[0] < inf:
        missing.append("step_seconds: no finished iteration")
    if stated.get("recompute") == "custom":
        missing.append(
            f"recompute: {stated.get('recompute_detail')}: give recompute=full or recompute=none, what is closer"
        )
    if missing or timing is None:
        raise InputError(file, missing)
    seconds, spread, count = timing
    stated |= {"step_seconds": f"{seconds:.9g}", "step_spread": f"{spread:.3g}", "steps_measured": str(count)}
    stated["notes"] = "; ".join(
        filter(None, [stated.get("notes"), f"median of {count} iterations", *run.left_out])
    )
    row = {name: stated.get(name, "") for name in TRAINING}
    try:
        measurements.read(row)
    except Unreadable as reason:
        raise InputError(file, [str(reason)]) from None
    return TrainingRows(file=file, rows=(row,), left_out=tuple(run.left_out))
