"""Fitted values in files: written into the catalogue with their intervals, or as a user's system file."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args

from traincast.accuracy.fit.parameters import Parameter
from traincast.catalog.documents import catalogue_entry
from traincast.catalog.load import system_document
from traincast.catalog.schema.fields import Entry, Part
from traincast.catalog.schema.system import AcceleratorPart, MiddleTier
from traincast.core.assumptions import CALIBRATED
from traincast.core.output_files import atomic_output
from traincast.core.units import quantity

LINE_WIDTH: Final = 1000  # so that lines are not wrapped
SIGNIFICANT_DIGITS: Final = 4
FOLDERS: Final = {"accelerator": "accelerators", "network": "systems", "stack": "stacks"}


@dataclass(frozen=True)
class FittedValue:
    """A fitted value.

    Parameters
    ----------
    parameter : Parameter
        Fitted parameter.
    value, low, high : float
        Value and 90 % interval.
    source : str
        Data of the fit, and its date.
    """

    parameter: Parameter
    value: float
    low: float
    high: float
    source: str

    def entry(self) -> dict[str, Any]:
        """Return the entry of a catalogue file, with interval and source."""
        unit = _unit(self.parameter)
        low, value, high = (
            float(f"{number:.{SIGNIFICANT_DIGITS}g}") for number in (self.low, self.value, self.high)
        )
        numbers = {"value": value, "low": min(low, value), "high": max(high, value)}
        quantities = {name: quantity(number, unit) if unit else number for name, number in numbers.items()}
        return quantities | {"source": self.source, "basis": "fitted"}


def _unit(parameter: Parameter) -> str:
    """Return the unit of a figure in files; empty for figures of software."""
    parts: dict[str, type[Part]] = {"accelerator": AcceleratorPart, "network": MiddleTier}
    part = parts.get(parameter.home)
    if part is None:
        return ""
    kind = part.model_fields[parameter.field].annotation
    return str(
        next(
            (
                type_
                for type_ in (kind, *get_args(kind))
                if isinstance(type_, type) and issubclass(type_, Entry)
            ),
            Entry,
        ).unit
    )


@cache
def _yaml() -> Any:
    """Return a reader and writer that keeps comments, quotes and layout."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width, yaml.preserve_quotes = LINE_WIDTH, True
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def load(path: Path) -> Any:
    """Read a file with its comments and layout."""
    return _yaml().load(path.read_text(encoding="utf-8"))


def text_of(document: Any) -> str:
    """Return the text of a document; unchanged parts as `load` read them."""
    out = io.StringIO()
    _yaml().dump(document, out)
    return out.getvalue()


def _flow(entry: Mapping[str, Any]) -> Any:
    """Return an entry in flow style, on one line."""
    from ruamel.yaml.comments import CommentedMap

    flow = CommentedMap(entry)
    flow.fa.set_flow_style()
    return flow


def put(document: Any, fitted: FittedValue) -> None:
    """Write a value into the document of the accelerator, system or stack it belongs to, in place."""
    parameter = fitted.parameter
    part = document["network"][int(parameter.path.split(".")[1])] if parameter.home == "network" else document
    part[parameter.field] = _flow(fitted.entry())


def write_catalogue(values: list[FittedValue], folder: Path) -> list[Path]:
    """Write values into the files of the catalogue they belong to.

    Parameters
    ----------
    values : list of FittedValue
        The values.
    folder : Path
        The catalogue, with its folders ``accelerators``, ``systems`` and ``stacks``, and ``calibrated.yaml``.

    Returns
    -------
    list of Path
        The files that were written.
    """
    documents: dict[Path, Any] = {}
    for fitted in values:
        for name in fitted.parameter.of or (CALIBRATED,):
            path = folder / FOLDERS.get(fitted.parameter.home, "") / f"{name}.yaml"
            if path not in documents:
                documents[path] = load(path)
            put(documents[path], fitted)
    for path, document in documents.items():
        with atomic_output(path) as partial:
            partial.write_text(text_of(document), encoding="utf-8")
    return list(documents)


def system_with(base: str | Path, values: list[FittedValue], name: str, title: str) -> dict[str, Any]:
    """Return a system file with fitted values: the document of a system, with its accelerator inlined.

    Parameters
    ----------
    base : str or Path
        Name or file of the system that was calibrated.
    values : list of FittedValue
        Fitted values of its accelerator, its network and its software.
    name, title : str
        Name and title of the new system.

    Returns
    -------
    dict
        Content of the file.
    """
    document = system_document(base)
    if isinstance(document["accelerator"], str):
        document["accelerator"] = catalogue_entry("accelerators", document["accelerator"].lower())
    document |= {"name": name, "title": title}
    software = {entry["stack"]: dict(entry) for entry in document.pop("software", None) or []}
    for fitted in values:
        entry, parameter = fitted.entry(), fitted.parameter
        if parameter.home == "accelerator":
            document["accelerator"][parameter.field] = entry
        elif parameter.home == "network":
            document["network"][int(parameter.path.split(".")[1])][parameter.field] = entry
        else:
            for stack in parameter.of:
                software.setdefault(stack, {"stack": stack})[parameter.field] = entry
    return document | ({"software": list(software.values())} if software else {})


def write_system(path: Path, document: Mapping[str, Any]) -> None:
    """Write a system file atomically, one line for each entry."""

    def with_flow_entries(item: Any) -> Any:
        if isinstance(item, Mapping):
            return (
                _flow(item)
                if "value" in item
                else {key: with_flow_entries(value) for key, value in item.items()}
            )
        return [with_flow_entries(value) for value in item] if isinstance(item, list) else item

    with atomic_output(path) as partial:
        partial.write_text(text_of(with_flow_entries(document)), encoding="utf-8")
