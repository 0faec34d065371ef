"""The basis of an answer: every assumption, and every figure of model and machine, with its source."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from traincast.catalog import Stack, with_fitted_values
from traincast.core import ASSUMPTIONS, COLUMNS, ERRATA, PAPER, Assumptions, System, quantity
from traincast.model import Model
from traincast.ui.html.rendering import Table, link_addresses

FIGURE_UNITS: Final = {  # of figures that are no columns
    "price": "$/h",
    "node_power": "W",
    "carbon": "g/kWh",
    "failure_hours": "h",
    "storage_bandwidth": "byte/s",
    "input_rate": "sequence/s",
    "training_tokens": "token",
    "seq": "token",
    "global_batch": "sequence",
}
PAPER_SOURCE: Final = "arXiv 2410.00273, or neutral where it counts nothing"


class Subject(NamedTuple):
    """A section on what an answer rests on: a model, a machine, or the assumptions."""

    key: str
    title: str
    figures: Table
    remark: str = ""


def foundations(model: Model, system: System, assumed: Assumptions) -> list[Subject]:
    """Return the sections on model, machine and assumptions."""
    return [model_figures(model), system_figures(system), assumptions(assumed, system)]


def model_figures(model: Model, key: str = "model") -> Subject:
    """Return the figures of a model, each with its source."""
    table = _figure_table(model, model.sources, "Figures of the model")
    return Subject(key, f"The model: {model.title}", table)


def system_figures(system: System, key: str = "machine") -> Subject:
    """Return the figures of a machine, each with its source."""
    tiers = ", ".join(f"network.{i} is {tier.name}" for i, tier in enumerate(system.tiers))
    sources = dict.fromkeys(system.figures(), "not given") | dict(system.sources)
    table = _figure_table(system, sources, "Figures of the machine")
    remark = f"The accelerator is {system.accelerator.name}; {tiers}."
    return Subject(key, f"The machine: {system.name}", table, remark)


def assumptions(assumed: Assumptions, system: System | None = None, remark: str = "") -> Subject:
    """Return every assumption, as it applies to the system if there is one: value, meaning and source."""
    applied = assumed if system is None else with_fitted_values(system, assumed)
    origins = _origins(applied, system)
    rows = []
    for path, value in applied.values().items():
        about = ASSUMPTIONS[path].metadata
        source = link_addresses(origins.get(path, "set by the user"))
        meaning = f"{about['meaning']} [{about['unit']}]" if about["unit"] else about["meaning"]
        rows.append((path, _value_text(value), meaning, source))
    header = ("assumption", "value", "meaning", "source")
    table = Table("How counts become seconds and bytes (SI units)", header, rows, ("meaning", "source"))
    return Subject("assumptions", f"What is assumed: {assumed.name}", table, remark)


def _figure_table(subject: Model | System, sources: Mapping[str, str], caption: str) -> Table:
    rows = [(path, _figure_text(subject, path), link_addresses(source)) for path, source in sources.items()]
    return Table(caption, ("figure", "value", "source"), rows, ("source",))


def _figure_text(subject: Model | System, path: str) -> str:
    """Return a figure with its unit; empty where the path leads nowhere."""
    if path == "training_tokens" and isinstance(subject, Model) and subject.training_tokens is not None:
        return quantity(subject.training_tokens, "token")
    value: Any = subject
    for part in path.replace("network.", "tiers.").split("."):
        is_index = part.isdigit() and isinstance(value, tuple)
        value = value[int(part)] if is_index else getattr(value, part, None)
    unit = COLUMNS[path].unit if path in COLUMNS else FIGURE_UNITS.get(path, "")
    return quantity(value, unit) if isinstance(value, int | float) else _value_text(value)


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _origins(assumed: Assumptions, system: System | None) -> dict[str, str]:
    """Return the source of each assumption that the preset, the software stack or the system sets."""
    stack = Stack.of_assumptions(assumed.name)
    known: dict[str, tuple[object, str]] = {path: (x, PAPER_SOURCE) for path, x in PAPER.values().items()}
    if stack.is_known:
        known |= stack.sourced_values()
    else:
        for n, changed in ERRATA.items():
            applied = {path: value for path, value in changed.items() if assumed.value(path) == value}
            known |= {path: (value, f"arXiv 2410.00273, erratum {n}") for path, value in applied.items()}
    for entry in () if system is None else system.software:
        if system is not None and entry.stack == Stack(assumed.name).fitted_name:
            known |= {path: (value, f"found on {system.name}") for path, value in entry.figures}
    return {path: source for path, (value, source) in known.items() if assumed.value(path) == value}
