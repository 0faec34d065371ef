"""Command on trials: `tune`."""

import signal
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from traincast.core import (
    ErrorCollector,
    InputError,
    NothingFits,
    check_folder,
    parse_whole,
    raise_problems,
    require_known,
)
from traincast.ui import outputs, text
from traincast.ui.cli.app import Force, Json, command, option, output_option, question_option
from traincast.ui.cli.completion import (
    names_of_formats,
    names_of_frameworks,
    names_of_models,
    names_of_systems,
)
from traincast.ui.cli.options import (
    NO_LOCKS,
    NO_RUN_OPTIONS,
    Assumed,
    GivenFacts,
    LockOptions,
    RunArguments,
    framework_typed,
    locked_values,
)
from traincast.ui.cli.output import print_files, print_json, progress, warn, write_html
from traincast.ui.cli.quantities import parse_duration

if TYPE_CHECKING:
    from traincast.planner import Question
    from traincast.tuner import Runner, Trial

OWN = "measure"  # launches of the training loop of `measure --step`
JOURNAL = "journal.jsonl"
REPORT = "report.html"
SYSTEM = "system.yaml"
_MODEL = "Model of the catalogue, or a file."
_SYSTEM = "System to calibrate to the trials: a name or a file."
_FRAMEWORK = "Search its plans; else those of the format."
_TO = "Launch format as of export, or measure (its --step)."
_COMMAND = (
    "Shell command of a launch, with {launch}, {log}, {trial}, {steps}, {gpus} and knobs; else the format's."
)
_LOG = "Log of a trial ({trial}); else the command's output."
_MANUAL = "Write launches to run by hand; the next call reads."
_BATCH = "With --manual: trials at a time."
_TRIALS = "Trials at most; else 8."
_BUDGET = "No trial begins after this time, such as 2h."
_STEPS = "Steps of a trial; the first three are warm-up."
_TIMEOUT = "Time after which a trial is ended, such as 20min."
_RESULT = "Results without a log: 2=3.41 [s], 3=oom, 4=failed."
_REPLAY = "Let it find the best of published runs, by few trials."
_DETAILS = "With --replay: its scorecard, also where predictions are wrong."
_FOLDER = "Folder of launches, journal, report; continued."


@command("Measure and validate", "tuning", "calibration")
def tune(
    model: Annotated[str | None, question_option(_MODEL, metavar="MODEL", completer=names_of_models)] = None,
    /,
    *,
    system: Annotated[
        str | None, question_option(_SYSTEM, metavar="SYSTEM", completer=names_of_systems)
    ] = None,
    gpus: Annotated[int | None, question_option("GPUs in the job.")] = None,
    options: RunArguments = NO_RUN_OPTIONS,
    assumptions: Assumed = None,
    facts: GivenFacts = None,
    framework: Annotated[str | None, question_option(_FRAMEWORK, completer=names_of_frameworks)] = None,
    locks: LockOptions = NO_LOCKS,
    to: Annotated[str | None, option(_TO, completer=names_of_formats)] = None,
    command: Annotated[str | None, option(_COMMAND)] = None,
    log: Annotated[str | None, option(_LOG)] = None,
    manual: Annotated[bool, option(_MANUAL)] = False,
    batch: Annotated[int, option(_BATCH)] = 1,
    trials: Annotated[int | None, option(_TRIALS)] = None,
    budget: Annotated[str | None, option(_BUDGET)] = None,
    steps: Annotated[int | None, option(_STEPS)] = None,
    timeout: Annotated[str | None, option(_TIMEOUT)] = None,
    result: Annotated[list[str] | None, option(_RESULT, consume_multiple=1)] = None,
    replay: Annotated[bool, option(_REPLAY)] = False,
    details: Annotated[bool, option(_DETAILS)] = False,
    output: Annotated[Path | None, output_option(_FOLDER, metavar="FOLDER")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Find the best plan by trials on your machine, as few as make it sure.

    Example: traincast tune examples/tune/model.yaml --gpus 2 --trials 5 --system examples/measured_cpu/machine.yaml --output out/tune
    """  # noqa: E501
    from traincast.planner import Question

    given: dict[str, object] = {
        "MODEL": model,
        "--system": system,
        "--gpus": gpus,
        "--to": to,
        "--command": command,
        "--log": log,
        "--output": output,
    }
    if replay:
        wrong = [f"{name}: not with --replay" for name, value in given.items() if value is not None]
        raise_problems("tune", wrong)
        _replay(details, json)
        return
    missing = [
        f"{name}: missing" for name in ("MODEL", "--system", "--gpus", "--output") if given[name] is None
    ]
    if details:
        missing.append("--details: goes with --replay")
    if manual and command is not None:
        missing.append("--manual: not with --command, which runs the launches")
    if batch < 1 or (batch > 1 and not manual):
        missing.append(f"--batch = {batch}: must be a whole number of at least 1, and goes with --manual")
    whole_run = {
        "--tokens": options.tokens,
        "--price": options.price,
        "--restart": options.restart,
        "--input-rate": options.input_rate,
        "--storage-bandwidth": options.storage_bandwidth,
    }
    missing += [
        f"{name} = {value}: trials are timed as they run; estimate and plan take it for the plan found"
        for name, value in whole_run.items()
        if value is not None
    ]
    if missing or model is None or system is None or gpus is None or output is None:
        raise InputError("tune", missing)
    errors = ErrorCollector("tune")
    errors.catch(check_folder, output)
    if framework is not None and (named := errors.catch(framework_typed, framework)):
        framework = named.name
    transformer, _, gbs = options.read_run(errors, model, system)
    limits = [
        None if value is None else errors.catch(parse_duration, value, name)
        for name, value in (("--budget", budget), ("--timeout", timeout))
    ]
    results = [errors.catch(_result, word) for word in result or ()]
    launched = errors.catch(_format, to, command is None and not manual)
    if command is None and not manual and launched != OWN:
        command = "bash {launch}"  # that of a folder with a training program
    errors.raise_any()
    question = Question(
        model=transformer,
        gpus=(gpus,),
        gbs=gbs,
        framework=framework,
        assumptions=assumptions,
        given=facts,
        locks=locked_values(locks),
    )
    launches = Launches(launched, command, log, steps)
    bounds = Bounds(trials, *limits)
    runner = _runner(question, system, output, launches, bounds, force)
    for number, outcome in filter(None, results):
        runner.tuner.tell(number, **outcome)
    try:
        if manual:
            _by_hand(runner, batch, json)
        else:
            _run(runner, json)
    finally:
        if runner.tuner.trials:
            _conclude(runner, output, json)
    if runner.tuner.best() is None and not runner.tuner.running:
        raise NothingFits("no trial has a time; the table has the result of each")


class Launches(NamedTuple):
    """How trials are launched."""

    to: str | None  # format, `OWN` for the training loop
    command: str | None  # shell command of a launch
    log: str | None  # its log, else what the command prints
    steps: int | None  # of a trial; None: as many as are usual


class Bounds(NamedTuple):
    """How many trials there are at most, and how long they take."""

    trials: int | None  # None: as many as are usual
    budget: float | None  # time after which no trial begins [s]
    timeout: float | None  # time after which a trial is ended [s]


def _runner(
    question: "Question", system: str, folder: Path, launches: Launches, bounds: Bounds, force: bool
) -> "Runner":
    """Return the runner of a tuner that continues what is in a folder.

    The question has one number of GPUs; the system is named apart, to be calibrated.
    """
    from traincast.accuracy import TORCH_MISSING
    from traincast.catalog import load_system
    from traincast.launch import FORMATS
    from traincast.planner import default_framework
    from traincast.tuner import TRIAL_STEPS, OwnTraining, Runner, Tuner, own_command

    model = question.model
    (gpus,) = question.gpus
    assert model is not None
    command = launches.command
    log = launches.log
    steps = TRIAL_STEPS if launches.steps is None else launches.steps
    own = launches.to == OWN
    launcher: str | OwnTraining | None = launches.to
    plans = None
    if own:
        if question.locks or question.framework or question.given:
            own_software = "the training loop has its own plans and software"
            raise InputError("tune", [f"--framework, --given and knobs: {own_software}"])
        training = OwnTraining(model, int(question.gbs or 1), steps)
        if command is None:
            command = own_command(training.command)
            log = str(folder / "{trial}.csv")
            if find_spec("torch") is None:
                raise InputError("tune", [f"the training loop {TORCH_MISSING}"])
        launcher = training  # which has its own plans and software
        plans = training.plans(gpus)
        question = replace(
            question, framework=None, locks=None, assumptions=question.assumptions or "pytorch"
        )
    elif question.framework is None:
        usual = (
            FORMATS[launches.to].framework
            if launches.to
            else default_framework(model, load_system(system)).name
        )
        question = replace(question, framework=usual)
    if force:
        (folder / JOURNAL).unlink(missing_ok=True)
    most = {} if bounds.trials is None else {"trials": bounds.trials}
    tuner = Tuner(
        model,
        system,
        gpus,
        gbs=question.gbs,
        framework=question.framework,
        assumptions=question.assumptions,
        given=question.given,
        locks=question.locks,
        plans=plans,
        to=launcher,
        budget=bounds.budget,
        steps=steps,
        journal=folder / JOURNAL,
        **most,
    )
    warm_up = {"warm_up": 0} if own and command is not None else {}
    runner = Runner(tuner, folder, command, log, steps, bounds.timeout, **warm_up)
    runner.check()
    if tuner.journal.torn:
        warn(f"{folder / JOURNAL}: its last line was cut off, and is left out")
    return runner


def _format(to: str | None, own: bool) -> str | None:
    """Return the format of launches; `OWN` by default where neither a command nor a person runs them."""
    from traincast.launch import FORMATS, TRAINING_PROGRAMS

    if to is None:
        return OWN if own else None
    require_known("format", to, (*FORMATS, OWN))
    if own and to not in (OWN, *TRAINING_PROGRAMS):
        raise InputError("--to", [f"{to}: give --command, which runs a launch, or --manual"])
    return to


def _result(word: str) -> tuple[int, dict[str, Any]]:
    """Return the number of a trial and its result, from ``3=oom``."""
    number, _, result = word.partition("=")
    wanted = "write 2=3.41 (seconds), 3=oom or 4=failed"
    trial = parse_whole(number)
    if trial is None or not result:
        raise InputError("--result", [f"{word!r}: {wanted}"])
    if result == "oom":
        return trial, {"oom": True}
    if result.startswith("failed"):
        return trial, {"failed": result.partition(":")[2] or "as given"}
    try:
        return trial, {"seconds": float(result)}
    except ValueError:
        raise InputError("--result", [f"{word!r}: {wanted}"]) from None


def _run(runner: "Runner", json: bool) -> None:
    """Run trials until the tuner stops; show each as it begins and ends."""
    from traincast.tuner import run_all

    def show(trial: "Trial") -> None:
        lines = text.tuning.begun(trial) if trial.outcome == "running" else text.tuning.show_trial(trial)
        if not json:
            text.tables.show(lines)

    # As Ctrl-C does: a job that goes on alone holds its GPUs. What nohup ignores stays ignored.
    ends = [end for end in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(end) is signal.SIG_DFL]
    for end in ends:
        signal.signal(end, signal.default_int_handler)
    try:
        run_all(runner, show)
    except KeyboardInterrupt:
        done = len(runner.tuner.trials) - len(runner.tuner.running)
        raise KeyboardInterrupt(
            f"tune interrupted after {done} trials; the same command continues it"
        ) from None
    finally:
        for end in ends:
            signal.signal(end, signal.SIG_DFL)


def _by_hand(runner: "Runner", batch: int, json: bool) -> None:
    """Read the logs of jobs that people run, ask for further trials, and say what to run."""
    states = {trial.number: runner.collect(trial) for trial in runner.tuner.running}
    while len(runner.tuner.running) < batch and (trial := runner.tuner.ask()):
        runner.write(trial)
        states[trial.number] = f"its log is {runner.log_path(trial)}"
    running = runner.tuner.running
    if running and not json:
        rows = [(trial, runner.launch_path(trial), states[trial.number]) for trial in running]
        text.tables.show(text.tuning.show_waiting(rows))


def _conclude(runner: "Runner", folder: Path, json: bool) -> None:
    """Write the report and the calibrated system, and print what was found."""
    tuner = runner.tuner
    timed = any(trial.outcome == "time" for trial in tuner.trials)
    report = tuner.report()
    calibration = tuner.calibration() if timed and find_spec("scipy") else None
    system = None
    if calibration is not None:
        calibration.write(system := folder / SYSTEM, force=True)
    html = folder / REPORT if all(map(find_spec, ("jinja2", "matplotlib", "polars"))) else None
    if html is not None:
        from traincast.ui.html import tune_report

        write_html(tune_report.page(report, calibration), html)
    files = [path for path in (html, system) if path is not None]
    if json:
        constants = None if calibration is None else calibration.constants
        print_json(outputs.tuning.TuneOutput(report, constants, None, list(map(str, files))))
    else:
        text.tables.show(text.tuning.show_tuning(report, calibration, system))
        print_files(*files)


def _replay(details: bool, json: bool) -> None:
    """Replay published runs, and print what trials would have found; with `details` the scorecard."""
    from traincast.tuner import replay_all

    with progress("replaying") as report_progress:
        report = replay_all(report_progress, details)
    if json:
        print_json(outputs.tuning.TuneOutput(None, None, report, []))
    else:
        text.tables.show(text.tuning.show_replay(report, details))
