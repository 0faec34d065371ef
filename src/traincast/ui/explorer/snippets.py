"""A search or a plan as text to copy: Python, command line, framework flags."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from traincast.core.plan import Plan
from traincast.launch.export import FORMATS, export
from traincast.step.estimate import estimate
from traincast.ui.explorer.question import PASTED, ExplorerCase

KNOBS: Final = {knob.name: knob.default for knob in fields(Plan)}
STATE_ARGUMENTS: Final = (
    "seq",
    "global_batch",
    "framework",
    "strategy",
    "assumptions",
    "tokens",
    "price",
    "restart",
)


def copy_texts(case: ExplorerCase, plan: Plan | None) -> dict[str, Any]:
    """Return a search or a plan as texts to copy.

    Parameters
    ----------
    case : ExplorerCase
        Model, machine and search.
    plan : Plan or None
        One plan, or the search.

    Returns
    -------
    dict
        ``"python"``, ``"cli"``, and ``"launch"``: flags by framework.
    """
    return {
        "python": _python(case, plan),
        "cli": _command(case, plan),
        "launch": [] if plan is None else _launches(case, plan),
    }


def _launches(case: ExplorerCase, plan: Plan) -> list[dict[str, Any]]:
    """Return the plan as the flags of each framework, and what these cannot express."""
    est = estimate(case.model, case.system, plan, case.question.gbs, case.question.assumptions)
    launches = [(form, export(est, name)) for name, form in FORMATS.items()]
    return [
        {
            "name": form.name,
            "title": form.title,
            "text": launch.text,
            "unsaid": list(launch.not_expressed.values()),
        }
        for form, launch in launches
    ]


def _python(case: ExplorerCase, plan: Plan | None) -> str:
    """Return a Python script for the same search or plan."""
    state, lines = case.state, ["import traincast as tc"]
    system = f"tc.load_system({state.system!r})"
    if state.figures:
        lines += ["from traincast.planner.study.sweep import varied"]
        figures = {path: case.normal["figures"][path] for path in state.figures}
        system = f"varied({system}, {figures!r})"
    if isinstance(state.model, str):
        model = f"tc.load_model({state.model!r}, seq={case.model.seq})"
    else:
        lines += ["from traincast.catalog.load import read_model"]
        model = f"read_model({dict(state.model)!r}, {PASTED!r}, seq={case.model.seq})"
    lines += ["", f"model = {model}", f"system = {system}"]
    if plan is None:
        arguments = {"gpus": state.gpus, "gbs": case.question.gbs} | _search_arguments(case)
        lines += [f"found = tc.search(model, system, {_arguments(arguments)})"]
        lines += ["for _, est in found.plans:", "    print(est)", "print(found.explain())"]
    else:
        settings = f"gbs={case.question.gbs}, assumptions={case.question.assumptions.name!r}"
        lines += [
            f"plan = tc.Plan({_arguments(knobs_of(plan))})",
            f"est = tc.estimate(model, system, plan, {settings})",
            "print(est)",
        ]
    return "\n".join(lines) + "\n"


def _search_arguments(case: ExplorerCase) -> dict[str, Any]:
    """Return the arguments of a search other than GPUs and batch."""
    state = case.state
    names = ("framework", "strategy", "assumptions")
    arguments = {name: getattr(state, name) for name in names if getattr(state, name) is not None}
    locks = {"locks": dict(state.locks)} if state.locks else {}
    objective = {} if state.objective == "time" else {"objective": state.objective}
    return arguments | locks | objective | {"top": state.top}


def _arguments(values: Mapping[str, Any]) -> str:
    """Return keyword arguments as source text."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _command(case: ExplorerCase, plan: Plan | None) -> str:
    """Return the command line for the same search or plan, with comments on what it cannot express."""
    state, notes = case.state, []
    model = str(state.model)
    if not isinstance(state.model, str):
        model = "config.json"
        notes.append("config.json holds the model that was pasted:\n" + json.dumps(state.model, indent=2))
    if state.figures:
        figures = ", ".join(f"{path} = {case.normal['figures'][path]:.15g}" for path in state.figures)
        notes.append(f"not said by this command: {figures}; write them into a system file")
    words = ["traincast", "plan" if plan is None else "estimate", model, "--system", str(state.system)]
    if plan is None:
        words += [
            "--gpus",
            str(state.gpus),
            *_flags({name: getattr(state, name) for name in STATE_ARGUMENTS}),
            *_flags(state.locks),
        ]
        words += [
            *(["--objective", state.objective] if state.objective != "time" else []),
            "--top",
            str(state.top),
        ]
    else:
        arguments = {
            "seq": state.seq,
            "global_batch": case.question.gbs,
            "assumptions": case.question.assumptions.name,
        }
        words += [*_flags(arguments), *_flags(knobs_of(plan))]
    comments = "".join(f"# {line}\n" for note in notes for line in note.splitlines())
    return comments + shlex.join(words) + "\n"


def _flags(values: Mapping[str, Any]) -> list[str]:
    """Return values as command-line options; None is left out."""
    words = []
    for name, value in values.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else f"--no-{name.replace('_', '-')}")
        elif value is not None:
            words += [option, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return words


def knobs_of(plan: Plan) -> dict[str, Any]:
    """Return the knobs and choices of a plan that differ from the default, including the full placement."""
    knobs = {name: getattr(plan, name) for name in KNOBS}
    unplaced = {name for name in KNOBS if name.startswith("fast_") and knobs[name.removeprefix("fast_")] == 1}
    return {
        name: value
        for name, value in knobs.items()
        if value != KNOBS[name] and value is not None and name not in unplaced
    }
