"""Trials run by a command, or by hand: the launch is written, the log is read, failures are explained."""

import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen, TimeoutExpired
from threading import current_thread, main_thread
from typing import Any, BinaryIO, Final

from traincast.accuracy import WARM_UP, StepTimes, read_times
from traincast.core import GIB, ErrorCollector, InputError, Plan, check_folder, close_to, seconds
from traincast.launch import TRAINING_PROGRAMS, Launch
from traincast.tuner.launches import TRIAL_STEPS
from traincast.tuner.tuner import Trial, Tuner

OUT_OF_MEMORY: Final = re.compile(  # as PyTorch, CUDA, HIP, XLA and DeepSpeed say it
    r"OutOfMemoryError|out of memory|RESOURCE_EXHAUSTED|\bHIP(?:BLAS)?_STATUS_ALLOC_FAILED"
    r"|CUBLAS_STATUS_ALLOC_FAILED|NCCL WARN .*[Cc]uda failure 'out of memory'",
)
START_SECONDS: Final = 900.0  # that a job may take to start, compile and end
SLOWER: Final = 10.0  # times the expected time, from which on a trial hangs
GRACE_SECONDS: Final = 15.0  # between asking a job to end and ending it
TAIL_BYTES: Final = 1 << 20  # of output that is searched for what went wrong
MIDDLE_HALF: Final = 1.349  # width of the middle half of a normal distribution, over its deviation
MOST_ERROR: Final = 0.5  # of a trial's time
LAST_LINES: Final = 3  # of output that a failure shows
PLACEHOLDER: Final = re.compile(r"(?<!\$)\{(\w+)\}")  # of a template; ${NAME} is the shell's


def placeholder_problems(option: str, template: str) -> list[str]:
    """Return a problem for each word in braces of a template that no trial fills."""
    known = {"launch", "trial", "log", "steps", "gpus", *Plan().to_dict()}
    if option == "--log":
        known -= {"log"}
    return [
        f"{option}: unknown placeholder {{{word}}}; {close_to(word, known)}"
        " (for braces of the shell, write a space after the first)"
        for word in dict.fromkeys(PLACEHOLDER.findall(template))
        if word not in known
    ]


@dataclass(frozen=True)
class Runner:
    """Runner of a tuner's trials."""

    tuner: Tuner  # with a format of launches
    folder: Path  # of launches, output and journal
    # Shell command that runs a launch, with {launch}, {trial}, {log}, {steps}, {gpus} and knobs such as {tp};
    # also in the variables TRAINCAST_LAUNCH, TRAINCAST_TRIAL, TRAINCAST_LOG and TRAINCAST_STEPS. None where
    # trials are run by hand.
    command: str | None = None
    log: str | None = None  # of a trial, with {trial}; the command's output if None
    steps: int = TRIAL_STEPS  # of a trial
    # Of a trial [s]; if None, ten times the expected time and a quarter of an hour.
    timeout: float | None = None
    warm_up: int = WARM_UP  # steps at the beginning that do not count, at most half of them

    def check(self) -> None:
        """Raise `InputError` with everything that is wrong."""
        errors = ErrorCollector("tune")
        errors.catch(check_folder, self.folder)
        problems = []
        launcher = self.tuner.launcher
        has_log = launcher is not None and launcher.name in TRAINING_PROGRAMS  # of its own
        if self.command is None and self.log is None and not has_log:
            problems.append("--log: give it with --manual: the log that each job writes, with {trial}")
        if self.log is not None and "{trial}" not in self.log:
            problems.append(f"--log = {self.log!r}: must hold {{trial}}, so that each trial has its own")
        if self.steps < 2:
            problems.append(f"--steps = {self.steps}: must be at least 2, as the first is warm-up")
        for option, template in (("--command", self.command), ("--log", self.log)):
            problems += placeholder_problems(option, template or "")
        errors.add(problems)
        errors.raise_any()

    def name(self, trial: Trial) -> str:
        """Return the name of a trial in files."""
        return f"trial-{trial.number:02d}"

    def launch_path(self, trial: Trial) -> Path:
        """Return the file of a trial's launch."""
        if trial.launch and trial.launch.files:
            return self.folder / self.name(trial) / Launch.SCRIPT
        ending = trial.launch.ending if trial.launch else ".txt"
        return self.folder / f"{self.name(trial)}{ending}"

    def output_path(self, trial: Trial) -> Path:
        """Return the file of a command's output."""
        return self.folder / f"{self.name(trial)}.out"

    def log_path(self, trial: Trial) -> Path:
        """Return the log of a trial."""
        if self.log is None and trial.launch and trial.launch.files:
            return self.launch_path(trial).with_name(Launch.LOG)
        if self.log is None:
            return self.output_path(trial)
        return Path(self._fill_template(self.log, trial))

    def _fill_template(self, text: str, trial: Trial) -> str:
        """Return a template with what it names."""
        values: dict[str, object] = {**trial.plan.to_dict(), "trial": self.name(trial), "steps": self.steps}
        values |= {"launch": shlex.quote(str(self.launch_path(trial))), "gpus": trial.plan.gpus}
        if "{log}" in text:
            values["log"] = shlex.quote(str(self.log_path(trial)))
        return PLACEHOLDER.sub(lambda match: str(values.get(match[1], match[0])), text)

    def write(self, trial: Trial) -> None:
        """Write the launch of a trial."""
        path = self.launch_path(trial)
        launch = trial.launch
        if launch is None:
            launch = Launch("", f"{trial.plan}\n", {}, path.suffix)
        launch.save(path.parent if launch.files else path)

    def run(self, trial: Trial) -> Trial:
        """Write a trial's launch, run it, and tell the tuner its result.

        An interrupt ends the job that was started, and leaves the trial under way: it is run again.
        """
        self.write(trial)
        output = self.output_path(trial)
        begin = time.monotonic()
        self.log_path(trial).unlink(missing_ok=True)  # that of an interrupted trial
        limit = self.timeout or START_SECONDS + SLOWER * self.steps * trial.expected_seconds
        values = {"STEPS": self.steps, "TRIAL": self.name(trial), "LOG": self.log_path(trial)}
        values["LAUNCH"] = self.launch_path(trial)
        variables = {"STEPS": str(self.steps)} | {f"TRAINCAST_{key}": str(values[key]) for key in values}
        command = self._fill_template(self.command or "", trial)
        with output.open("wb") as file, _job(command, variables, file) as process:
            try:
                code: int | None = process.wait(limit)
            except TimeoutExpired:
                code = None
        took = time.monotonic() - begin
        if code is None:
            return self.tuner.tell(trial, failed=f"no end after {seconds(limit)}", took=took)
        return self.tuner.tell(trial, **self.outcome(trial, code)[0], took=took)

    def outcome(self, trial: Trial, code: int = 0) -> tuple[Mapping[str, Any], int]:
        """Return what a trial's log and exit code say, as arguments of `Tuner.tell`, and its timed steps."""
        log = self.log_path(trial)
        output = self.output_path(trial)
        tails = [_tail(path) for path in dict.fromkeys((output, log)) if path.is_file()]
        if any(OUT_OF_MEMORY.search(tail) for tail in tails):
            return {"oom": True}, 0
        if code:
            last = [line.strip() for line in "\n".join(tails).splitlines() if line.strip()][-LAST_LINES:]
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            return {"failed": "; ".join((how, *last))}, 0
        try:
            times = self.read_times(trial)
        except InputError as error:
            return {"failed": " ".join(str(error).split())}, 0
        memory = None if times.memory is None else times.memory * GIB
        # As unsure as a single step: what slows a step often lasts longer than a trial (docs/tuning.md).
        of_step = min(times.spread / MIDDLE_HALF, MOST_ERROR)
        return {"seconds": times.seconds, "memory": memory, "error": of_step}, times.steps

    def read_times(self, trial: Trial) -> StepTimes:
        """Read the times of a trial's steps from its log."""
        log = self.log_path(trial)
        model = self.tuner.model
        if not log.is_file():
            raise InputError(str(log), ["no such log; --log says where the job writes it"])
        given = {"gbs": self.tuner.gbs, "seq": model.seq, "gpus": trial.plan.gpus}
        return read_times(log, given, self.warm_up)

    def collect(self, trial: Trial) -> str:
        """Tell the tuner the result in the log of a job run by hand; return what is missing, if any is."""
        log = self.log_path(trial)
        if not log.is_file():
            return f"no log yet ({log})"
        result, done = self.outcome(trial)
        if "seconds" in result and done < (self.steps - self.warm_up) // 2:
            return f"{done} of {self.steps} steps so far"
        if "failed" in result:  # it may not have begun its first step
            return str(result["failed"])
        self.tuner.tell(trial, **result)
        return ""


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - TAIL_BYTES, 0))
        return file.read().decode("utf-8", errors="replace")


@contextmanager
def _job(command: str, variables: Mapping[str, str], output: BinaryIO) -> Iterator["Popen[bytes]"]:
    """Start a command in a session of its own; at the end of the block end what still runs of it.

    An interrupt during the start waits until the process is known: otherwise nothing would end it.
    """
    held: list[int] = []
    handler = signal.getsignal(signal.SIGINT) if current_thread() is main_thread() else None
    process = None
    try:
        if handler is not None:
            signal.signal(signal.SIGINT, lambda number, _: held.append(number))
        process = Popen(
            ["bash", "-c", command],
            stdin=DEVNULL,
            stdout=output,
            stderr=STDOUT,
            env=os.environ | variables,
            start_new_session=True,
        )
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        for number in held:
            signal.raise_signal(number)
        yield process
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if process is not None and process.poll() is None:
            _end(process)


def _end(process: "Popen[bytes]") -> None:
    """End a job that was started here, with all of its processes, which are a group of their own."""
    for sent, wait in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, sent)
            process.wait(wait)
        except ProcessLookupError:
            return
        except TimeoutExpired:
            continue


def run_all(runner: Runner, show: Callable[[Trial], object] = lambda trial: None) -> None:
    """Run trials until the tuner stops, first those that were interrupted; `show` is called before and after.

    One trial runs at a time.
    """
    tuner = runner.tuner
    while trial := next(iter(tuner.running), None) or tuner.ask():
        show(trial)
        show(runner.run(trial))


def own_command(command: str) -> str:
    """Return a command of Python with this interpreter."""
    return re.sub(r"^python\b", shlex.quote(sys.executable), command)
