"""Sections on the basis of an answer: every assumption, and every figure of model and machine, with its source."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from inspect import cleandoc
from typing import Any, Final

from traincast.catalog.software_stacks import DEFAULT_STACK, stack_file, stack_names, with_fitted_values
from traincast.core.assumptions import CALIBRATED, ERRATA, PAPER, Assumptions
from traincast.core.model import Model
from traincast.core.quantities import COLUMNS
from traincast.core.system import System
from traincast.core.units import quantity
from traincast.ui.html.elements import Html, Section, joined, linked, paragraph, table

FIGURE_UNITS: Final = {  # of figures that are no columns
    "price": "$/h", "node_power": "W", "carbon": "g/kWh", "failure_hours": "h", "storage_bandwidth": "byte/s",
    "training_tokens": "token", "seq": "token", "global_batch": "sequence",
}  # fmt: skip
PAPER_SOURCE: Final = "arXiv 2410.00273, or neutral where it counts nothing"
CALIBRATED_SOURCE: Final = "preset calibrated, for all software (docs/kernels.md, docs/validation.md)"


def foundations(model: Model, system: System, assumed: Assumptions) -> tuple[Section, ...]:
    """Return the sections on model, machine and assumptions."""
    return (
        Section("model", f"The model: {model.title}", figures_of(model)),
        Section("machine", f"The machine: {system.name}", figures_of(system)),
        Section("assumptions", f"What is assumed: {assumed.name}", assumptions(assumed, system)),
    )


def figures_of(subject: Model | System) -> Html:
    """Return the figures of a model or a machine, each with its source."""
    if isinstance(subject, Model):
        return _figure_table(subject, subject.sources, "Figures of the model")
    tiers = ", ".join(f"network.{i} is {tier.name}" for i, tier in enumerate(subject.tiers))
    known = dict.fromkeys(subject.figures(), "not told") | dict(subject.sources)
    about = paragraph(f"The accelerator is {subject.accelerator.name}; {tiers}.")
    return joined((about, _figure_table(subject, known, "Figures of the machine")))


def assumptions(assumed: Assumptions, system: System | None = None) -> Html:
    """Return a table of every assumption (as it applies to a system, if given): value, meaning and source."""
    applied = assumed if system is None else with_fitted_values(system, assumed)
    meanings, origins = _meanings(), _origins(applied, system)
    rows = (
        (
            field.name,
            _value_text(getattr(applied, field.name)),
            meanings.get(field.name, ""),
            linked(origins.get(field.name, "given by hand")),
        )
        for field in fields(Assumptions)
        if field.name != "name"
    )
    return table(
        "How counts become seconds and bytes (SI units)",
        ("assumption", "value", "meaning", "source"),
        rows,
        ("meaning", "source"),
    )


def _figure_table(of: Model | System, sources: Mapping[str, str], caption: str) -> Html:
    """Return a table of figures by their paths."""
    rows = ((path, _figure_text(of, path), linked(source)) for path, source in sources.items())
    return table(caption, ("figure", "value", "source"), rows, ("source",))


def _figure_text(of: Model | System, path: str) -> str:
    """Return a figure with its unit; empty where the path leads nowhere."""
    if path == "training_tokens" and isinstance(of, Model) and of.training_sequences is not None:
        return quantity(of.training_sequences * of.seq, "token")
    value: Any = of
    for step in path.replace("network.", "tiers.").split("."):
        value = (
            value[int(step)] if step.isdigit() and isinstance(value, tuple) else getattr(value, step, None)
        )
    unit = COLUMNS[path].unit if path in COLUMNS else FIGURE_UNITS.get(path, "")
    return quantity(value, unit) if isinstance(value, int | float) else _value_text(value)


def _value_text(value: object) -> str:
    """Return a value as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _meanings() -> dict[str, str]:
    """Return the meaning of each assumption, read from the class docstring."""
    docstring = cleandoc(Assumptions.__doc__ or "")
    parts = re.findall(
        r"^([\w, ]+) : .*\n((?: {4}.*\n?|\n)*)", docstring.partition("----------\n")[2], re.MULTILINE
    )
    return {
        name: " ".join(meaning.replace("`", "").split())
        for names, meaning in parts
        for name in names.split(", ")
    }


def _origins(assumed: Assumptions, system: System | None) -> dict[str, str]:
    """Return the source of each assumption whose value is that of the preset, the software stack or the system."""
    stack = DEFAULT_STACK if assumed.name == CALIBRATED.name else assumed.name
    base, source = (CALIBRATED, CALIBRATED_SOURCE) if stack in stack_names() else (PAPER, PAPER_SOURCE)
    known: dict[str, tuple[object, str]] = {
        field.name: (getattr(base, field.name), source) for field in fields(Assumptions)
    }
    if base is PAPER:
        known |= {
            name: (value, f"arXiv 2410.00273, erratum {n}")
            for n, changed in ERRATA.items()
            for name, value in changed.items()
            if getattr(assumed, name) == value
        }
    else:
        known |= dict(_stack_values(stack))
    if system is not None:
        measured_here = (entry for entry in system.software if entry.stack == stack)
        known |= {
            name: (value, f"found on {system.name}")
            for entry in measured_here
            for name, value in entry.figures
        }
    return {
        name: source_text for name, (value, source_text) in known.items() if getattr(assumed, name) == value
    }


def _stack_values(name: str) -> Iterator[tuple[str, tuple[object, str]]]:
    """Yield the values of a software stack and its base stacks, with their sources; its own come last."""
    file = stack_file(name)
    if file.based_on:
        yield from _stack_values(file.based_on)
    for field, value in file.changes().items():
        entry = getattr(file, field)
        basis = getattr(entry, "basis", None)
        source = getattr(entry, "source", None) or file.source
        yield field, (value, f"{file.name}: {source}" + (f" ({basis})" if basis else ""))
