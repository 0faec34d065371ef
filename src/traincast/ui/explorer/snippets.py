"""A search or a plan as text to copy: Python, command line, framework flags."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from traincast.core import InputError, Plan
from traincast.launch import FORMATS, export
from traincast.ui.explorer.question import PASTED, ExplorerCase

SEARCH_ARGUMENTS: Final = ("framework", "strategy", "assumptions")
SEARCH_OPTIONS: Final = ("gpus", "seq", "global_batch", *SEARCH_ARGUMENTS, "tokens", "price", "restart")
TRAINING_OPTIONS: Final = ("train", "lengths", "images", "image_size", "frozen_tower")
TRAINING_IMPORTS: Final = (
    "from traincast.model.adapters import Adapters",
    "from traincast.model.documents import Documents",
)


def copy_texts(case: ExplorerCase, plan: Plan | None) -> dict[str, object]:
    """Return a plan, or the search, as Python, as a command, and as the flags of each framework."""
    launch = [] if plan is None else list(_launches(case, plan))
    return {"python": _python(case, plan), "cli": _command(case, plan), "launch": launch}


def _launches(case: ExplorerCase, plan: Plan) -> Iterator[dict[str, object]]:
    """Yield the plan as the flags of each framework, and what these cannot express."""
    est = case.estimate(plan)
    for name, form in FORMATS.items():
        try:
            launch = export(est, name)
        except InputError as error:  # the format cannot express the model
            yield {"name": form.name, "title": form.title, "text": "", "unsaid": list(error.problems)}
            continue
        unsaid = list(launch.not_expressed.values())
        yield {"name": form.name, "title": form.title, "text": launch.text, "unsaid": unsaid}


def _python(case: ExplorerCase, plan: Plan | None) -> str:
    """Return a Python script for the same search or plan."""
    state = case.state
    lines = ["import traincast as tc"]
    system = f"tc.load_system({state.system!r})"
    if state.figures:
        lines.append("from traincast.planner import vary_system")
        figures = {path: case.normal["figures"][path] for path in state.figures}
        system = f"vary_system({system}, {figures!r})"
    model = f"tc.load_model({state.model!r}, seq={case.model.seq})"
    if not isinstance(state.model, str):
        lines.append("from traincast.catalog.load import read_model")
        model = f"read_model({dict(state.model)!r}, {PASTED!r}, seq={case.model.seq})"
    lines += ["", f"model = {model}", f"system = {system}"]
    seen = {"images": state.images, "size": state.image_size, "frozen": state.frozen_tower or None}
    if given := {name: value for name, value in seen.items() if value is not None}:
        lines.append(f"model = model.with_images({_keywords(given)})")
    if case.model.training:  # adapters, a reference, answers, documents
        named = ("adapters", "reference", "supervised", "documents")
        changed = {name: value for name in named if (value := getattr(case.model, name))}
        lines[:1] = ["from dataclasses import replace", "", lines[0], *TRAINING_IMPORTS]
        lines.append(f"model = replace(model, {_keywords(changed)})")
    if plan is None:
        lines += [f"found = tc.search(model, system, {_keywords(_search_arguments(case))})"]
        lines += ["for _, est in found.plans:", "    print(est)", "print(found.explain())"]
    else:
        settings = {"gbs": case.question.gbs, "assumptions": case.question.assumptions.name}
        lines += [f"plan = tc.Plan({_keywords(plan.knobs(placement=True))})"]
        lines += [f"est = tc.estimate(model, system, plan, {_keywords(settings)})", "print(est)"]
    return "\n".join(lines) + "\n"


def _search_arguments(case: ExplorerCase) -> dict[str, Any]:
    state = case.state
    arguments = {"gpus": state.gpus, "gbs": case.question.gbs}
    arguments |= {name: getattr(state, name) for name in SEARCH_ARGUMENTS if getattr(state, name) is not None}
    if state.given is not None:
        arguments["given"] = dict(case.question.assumptions.given)
    if state.locks:
        arguments["locks"] = dict(state.locks)
    if state.objective != "time":
        arguments["objective"] = state.objective
    return arguments | {"top": state.top}


def _keywords(values: Mapping[str, object]) -> str:
    """Return keyword arguments as source text."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _command(case: ExplorerCase, plan: Plan | None) -> str:
    """Return the command line for the same search or plan, with comments on what it cannot express."""
    state = case.state
    notes = []
    model = case.state.model
    if not isinstance(model, str):
        model = "config.json"
        notes.append("config.json holds the model that was pasted:\n" + json.dumps(state.model, indent=2))
    if state.figures:
        figures = ", ".join(f"{path} = {case.normal['figures'][path]:.15g}" for path in state.figures)
        notes.append(f"not part of this command: {figures}; write them into a system file")
    if plan is None:
        options = {name: getattr(state, name) for name in SEARCH_OPTIONS} | dict(state.locks)
        options["given"] = state.given
        options["objective"] = None if state.objective == "time" else state.objective
        options["top"] = state.top
    else:
        settings = (state.seq, case.question.gbs, case.question.assumptions.name)
        options = dict(zip(("seq", "global_batch", "assumptions"), settings, strict=True))
        options |= plan.knobs(placement=True)
    options |= {name: getattr(state, name) or None for name in TRAINING_OPTIONS}
    command = "plan" if plan is None else "estimate"
    words = ["traincast", command, model, "--system", str(state.system), *_flags(options)]
    comments = "".join(f"# {line}\n" for note in notes for line in note.splitlines())
    return comments + shlex.join(words) + "\n"


def _flags(values: Mapping[str, object]) -> Iterator[str]:
    """Yield values as command-line options; None is left out."""
    for name, value in values.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{option}" if value else f"--no-{option}"
        elif value is not None:
            yield f"--{option}"
            yield ",".join(map(str, value)) if isinstance(value, list) else str(value)
