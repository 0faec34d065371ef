"""Run of a launch and its log: the launch says model and plan, the log the time of a step."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from traincast.accuracy.logs import read_times
from traincast.accuracy.logs.detect import log_columns
from traincast.accuracy.runs.run import Run
from traincast.catalog import as_model
from traincast.core import ErrorCollector, InputError, Plan, System, close_to, raise_problems
from traincast.launch import READERS, Given, Reading, complete_launch, read
from traincast.model import Model

EXAMPLES: Final = {"model": "llama-3-8b", "gpus": "64", "gbs": "512", "seq": "4096", "vocab": "128256"}
NAMED: Final = re.compile(r"`(\w+)`")  # an argument in a message of the library
WHOLE: Final = ("gpus", "gbs", "seq", "vocab")
OF_MODEL: Final = ("layers", "hidden", "heads")  # sizes that tell one run from another
OF_PLAN: Final = ("tp", "pp", "cp", "mbs")
# what ran is told by the log; variables of a launch may have had other values
OF_LOG: Final = ("gpus", "gbs")


class LaunchedRun(NamedTuple):
    """A measured run, and what was assumed of its launch."""

    run: Run
    assumed: tuple[str, ...]


def read_launched_run(
    log: Path, launch: Path, system: System, given: Mapping[str, object], variables: Mapping[str, str]
) -> LaunchedRun:
    """Read the run of a log whose model and plan are those of a launch.

    Parameters
    ----------
    log, launch : Path
        The log, or exported step times, and the launch script or configuration of the run.
    system : System
        The machine.
    given : mapping of str to value
        What neither says, or says otherwise: of `EXAMPLES`.
    variables : mapping of str to str
        Values of variables that the launch takes from outside.

    Raises
    ------
    InputError
        With everything that is wrong or missing, each with an example of how to give it.
    """
    errors = ErrorCollector(f"{log.name} with {launch.name}")
    others = [name for name in given if name not in EXAMPLES]
    unknown = [f"{name}: not used with a launch; {close_to(name, EXAMPLES)}" for name in others]
    errors.add(unknown, "what is given")
    stated = errors.catch(_stated_numbers, log, given) or {}
    model = errors.catch(_given_model, given)
    model_wrong = "model" in given and model is None
    names = [*stated, *(["model"] if "model" in given else [])]
    reading = errors.catch(read, launch, READERS, None, None, Given(variables, None, names))
    completed = None
    if reading is not None:
        completed = errors.catch(_complete_reading, reading, model, stated, model_wrong)
        errors.catch(reading.check_unread)
    counts = {"gbs": 1, "seq": 1, "gpus": 1}  # as good as any to see whether the log can be read
    if completed is not None:
        _, transformer, plan, gbs = completed
        errors.catch(_check_same_run, log, transformer, plan)
        counts = {"gbs": gbs, "seq": transformer.seq, "gpus": plan.gpus}
    timing = errors.catch(read_times, log, counts)
    if errors.errors:
        raise InputError(errors.subject, _with_examples(errors))
    assert completed is not None
    assert timing is not None
    reading_of, transformer, plan, gbs = completed
    run = Run(
        id=log.stem,
        source=log.name,
        stack=reading_of.form.stack(reading_of.settings),
        model=transformer,
        system=system,
        plan=plan,
        gbs=gbs,
        step_seconds=timing.seconds,
    )
    of_log = [name for name in stated if name not in given]
    return LaunchedRun(run, tuple(_with_source(line, of_log, log.name) for line in reading_of.assumed))


def _with_source(line: str, of_log: Collection[str], log: str) -> str:
    """Return a line on a value that was given, with the log where that gave it."""
    return line.replace("as given", f"as in {log}") if line.partition(" = ")[0] in of_log else line


def _check_same_run(log: Path, model: Model, plan: Plan) -> None:
    """Refuse a log whose sizes or degrees are not those of the launch."""
    columns = log_columns(log)
    own = {name: getattr(model, name) for name in OF_MODEL} | {name: getattr(plan, name) for name in OF_PLAN}
    problems = [
        f"{name} = {columns[name]}, and the launch has {value}: is it the log of another run?"
        for name, value in own.items()
        if int(columns.get(name) or value) != value
    ]
    raise_problems(str(log), problems)


def _stated_numbers(log: Path, given: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers given, and of the rest those that the log tells."""
    wrong = [
        f"{name} = {given[name]!r}: must be a whole number of at least 1, such as {EXAMPLES[name]}"
        for name in WHOLE
        if name in given and not (re.fullmatch(r"\d+", str(given[name])) and int(given[name]))
    ]
    raise_problems("what is given", wrong)
    columns = log_columns(log)
    of_log = {name: columns[name] for name in OF_LOG if columns.get(name)}
    return {name: int(value) for name, value in {**of_log, **given}.items() if name in WHOLE}


def _given_model(given: Mapping[str, Any]) -> Model | None:
    """Return the model that is given; None where the launch describes it."""
    return as_model(given["model"]) if "model" in given else None


def _complete_reading(
    reading: Reading, model: Model | None, stated: Mapping[str, int], model_wrong: bool
) -> Any:
    """Return the launch with its model, plan and batch, as `complete_launch` does."""
    if model is None and not model_wrong and (name := reading.form.named_model(reading.settings)):
        model = as_model(name)
    length = stated.get("seq") or reading.facts.get("seq")
    if model is not None and length not in (None, model.seq):
        model = replace(model, seq=length)
    knobs = {name: stated[name] for name in ("seq", "vocab") if name in stated}
    return complete_launch(reading, model, stated.get("gpus"), stated.get("gbs"), knobs, model_wrong)


def _with_examples(errors: ErrorCollector) -> list[str]:
    """Return the problems of a launch and its log, each thing to give with an example."""

    def spell_example(match: re.Match[str]) -> str:
        return f"--given {match[1]}={EXAMPLES.get(match[1], '…')}"

    problems = list[str]()
    for error in errors.errors:
        of_both = error.subject in ("what is given", errors.subject)
        about = "" if of_both else f"{Path(error.subject).name}: "
        problems += [about + NAMED.sub(spell_example, problem) for problem in error.problems]
    return list(dict.fromkeys(problems))
