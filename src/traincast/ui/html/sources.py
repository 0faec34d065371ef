"""What an answer rests on: every assumption and every figure of the model and the machine, with where it comes from."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from inspect import cleandoc
from typing import Any, Final

from traincast.catalog.software_stacks import USUAL, on, stack_file, stack_names
from traincast.core.assumptions import CALIBRATED, ERRATA, PAPER, Assumptions
from traincast.core.model import Model
from traincast.core.quantities import COLUMNS
from traincast.core.system import System
from traincast.core.units import quantity
from traincast.ui.html.elements import Html, Section, joined, linked, paragraph, table

UNITS: Final = {  # of figures that are no columns
    "price": "$/h", "node_power": "W", "carbon": "g/kWh", "failure_hours": "h", "storage_bandwidth": "byte/s",
    "training_tokens": "token", "seq": "token", "global_batch": "sequence",
}  # fmt: skip
PAPER_SOURCE: Final = "arXiv 2410.00273, or neutral where it counts nothing"
CALIBRATED_SOURCE: Final = "preset calibrated, for all software (docs/kernels.md, docs/validation.md)"


def foundations(model: Model, system: System, assumed: Assumptions) -> tuple[Section, ...]:
    """The sections on what an answer rests on."""
    return (
        Section("model", f"The model: {model.title}", figures_of(model)),
        Section("machine", f"The machine: {system.name}", figures_of(system)),
        Section("assumptions", f"What is assumed: {assumed.name}", assumptions(assumed, system)),
    )


def figures_of(one: Model | System) -> Html:
    """Figures of a model or a machine, each with its source."""
    if isinstance(one, Model):
        return _figures(one, one.sources, "Figures of the model")
    tiers = ", ".join(f"network.{i} is {tier.name}" for i, tier in enumerate(one.tiers))
    known = dict.fromkeys(one.figures(), "not told") | dict(one.sources)
    about = paragraph(f"The accelerator is {one.accelerator.name}; {tiers}.")
    return joined((about, _figures(one, known, "Figures of the machine")))


def assumptions(assumed: Assumptions, system: System | None = None) -> Html:
    """Every assumption, on a system where one is given: its value, what it means and where it comes from."""
    here = assumed if system is None else on(system, assumed)
    meanings, origins = _meanings(), _origins(here, system)
    rows = (
        (one.name, _said(getattr(here, one.name)), meanings.get(one.name, ""), linked(origins.get(one.name, "given by hand")))
        for one in fields(Assumptions)
        if one.name != "name"
    )
    return table(
        "How counts become seconds and bytes (SI units)", ("assumption", "value", "meaning", "source"), rows, ("meaning", "source")
    )


def _figures(of: Model | System, sources: Mapping[str, str], caption: str) -> Html:
    """Figures by their paths."""
    rows = ((path, _quantity(of, path), linked(source)) for path, source in sources.items())
    return table(caption, ("figure", "value", "source"), rows, ("source",))


def _quantity(of: Model | System, path: str) -> str:
    """A figure with its unit; empty where the path leads nowhere."""
    if path == "training_tokens" and isinstance(of, Model) and of.training_sequences is not None:
        return quantity(of.training_sequences * of.seq, "token")
    value: Any = of
    for step in path.replace("network.", "tiers.").split("."):
        value = value[int(step)] if step.isdigit() and isinstance(value, tuple) else getattr(value, step, None)
    unit = COLUMNS[path].unit if path in COLUMNS else UNITS.get(path, "")
    return quantity(value, unit) if isinstance(value, int | float) else _said(value)


def _said(value: object) -> str:
    """A value for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _meanings() -> dict[str, str]:
    """What each assumption means, as its class says it."""
    text = cleandoc(Assumptions.__doc__ or "")
    parts = re.findall(r"^([\w, ]+) : .*\n((?: {4}.*\n?|\n)*)", text.partition("----------\n")[2], re.MULTILINE)
    return {name: " ".join(said.replace("`", "").split()) for names, said in parts for name in names.split(", ")}


def _origins(assumed: Assumptions, system: System | None) -> dict[str, str]:
    """Where each assumption that has its preset's, its stack's or the machine's own value comes from."""
    stack = USUAL if assumed.name == CALIBRATED.name else assumed.name
    base, source = (CALIBRATED, CALIBRATED_SOURCE) if stack in stack_names() else (PAPER, PAPER_SOURCE)
    known: dict[str, tuple[object, str]] = {one.name: (getattr(base, one.name), source) for one in fields(Assumptions)}
    if base is PAPER:
        known |= {
            name: (value, f"arXiv 2410.00273, erratum {n}")
            for n, changed in ERRATA.items()
            for name, value in changed.items()
            if getattr(assumed, name) == value
        }
    else:
        known |= dict(_of_stack(stack))
    if system is not None:
        found = (one for one in system.software if one.stack == stack)
        known |= {name: (value, f"found on {system.name}") for one in found for name, value in one.figures}
    return {name: told for name, (value, told) in known.items() if getattr(assumed, name) == value}


def _of_stack(name: str) -> Iterator[tuple[str, tuple[object, str]]]:
    """Values of a software stack and of those it is based on, with their sources; its own last."""
    file = stack_file(name)
    if file.based_on:
        yield from _of_stack(file.based_on)
    for field, value in file.changes().items():
        entry = getattr(file, field)
        basis = getattr(entry, "basis", None)
        source = getattr(entry, "source", None) or file.source
        yield field, (value, f"{file.name}: {source}" + (f" ({basis})" if basis else ""))
