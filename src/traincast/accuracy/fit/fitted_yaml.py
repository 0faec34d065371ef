"""Fitted values in files: put into the catalogue with their intervals, or written as a system file of one's own."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args

from traincast.accuracy.fit.parameters import Parameter
from traincast.catalog.documents import known
from traincast.catalog.load import system_document
from traincast.catalog.schema.fields import Entry, Part
from traincast.catalog.schema.system import AcceleratorPart, MiddleTier
from traincast.core.output_files import beside
from traincast.core.units import quantity

WIDTH: Final = 1000  # lines are not broken
DIGITS: Final = 4
FOLDERS: Final = {"accelerator": "accelerators", "network": "systems", "stack": "stacks"}


@dataclass(frozen=True)
class FittedValue:
    """A fitted value.

    Parameters
    ----------
    parameter : Parameter
        What was fitted.
    value, low, high : float
        Its value, and the 90 % interval around it.
    source : str
        What it was fitted to, and when.
    """

    parameter: Parameter
    value: float
    low: float
    high: float
    source: str

    def entry(self) -> dict[str, Any]:
        """As a file writes it, with the interval and where it comes from."""
        unit = _unit(self.parameter)
        low, value, high = (float(f"{one:.{DIGITS}g}") for one in (self.low, self.value, self.high))
        ends = {"value": value, "low": min(low, value), "high": max(high, value)}
        told = {name: quantity(one, unit) if unit else one for name, one in ends.items()}
        return told | {"source": self.source, "basis": "fitted"}


def _unit(parameter: Parameter) -> str:
    """Unit a file has to write behind a figure; none behind those of software."""
    parts: dict[str, type[Part]] = {"accelerator": AcceleratorPart, "network": MiddleTier}
    part = parts.get(parameter.home)
    if part is None:
        return ""
    kind = part.model_fields[parameter.field].annotation
    return str(next((one for one in (kind, *get_args(kind)) if isinstance(one, type) and issubclass(one, Entry)), Entry).unit)


@cache
def _yaml() -> Any:
    """Reader and writer that keep comments, quotes and layout."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width, yaml.preserve_quotes = WIDTH, True
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def load(path: Path) -> Any:
    """A file with its comments and layout."""
    return _yaml().load(path.read_text(encoding="utf-8"))


def text_of(document: Any) -> str:
    """The text of a document, as `load` read it where nothing was changed."""
    out = io.StringIO()
    _yaml().dump(document, out)
    return out.getvalue()


def _flow(entry: Mapping[str, Any]) -> Any:
    """An entry on one line."""
    from ruamel.yaml.comments import CommentedMap

    flow = CommentedMap(entry)
    flow.fa.set_flow_style()
    return flow


def put(document: Any, found: FittedValue) -> None:
    """Write a value into the document of the accelerator, system or stack it belongs to, in place."""
    one = found.parameter
    part = document["network"][int(one.path.split(".")[1])] if one.home == "network" else document
    part[one.field] = _flow(found.entry())


def write_catalogue(values: list[FittedValue], folder: Path) -> list[Path]:
    """Put values into the files of the catalogue they belong to; universal ones have none.

    Parameters
    ----------
    values : list of FittedValue
        The values.
    folder : Path
        The catalogue, with its folders ``accelerators``, ``systems`` and ``stacks``.

    Returns
    -------
    list of Path
        The files that were written.
    """
    documents: dict[Path, Any] = {}
    for found in values:
        for name in found.parameter.of:
            path = folder / FOLDERS[found.parameter.home] / f"{name}.yaml"
            if path not in documents:
                documents[path] = load(path)
            put(documents[path], found)
    for path, document in documents.items():
        with beside(path) as partial:
            partial.write_text(text_of(document), encoding="utf-8")
    return list(documents)


def system_with(base: str | Path, values: list[FittedValue], name: str, title: str) -> dict[str, Any]:
    """A system file with fitted values: the document of a system, its accelerator written out.

    Parameters
    ----------
    base : str or Path
        Name or file of the system that was calibrated.
    values : list of FittedValue
        What was found of its accelerator, its network and the software on it.
    name, title : str
        Name and title of the new system.

    Returns
    -------
    dict
        Content of the file.
    """
    document = system_document(base)
    if isinstance(document["accelerator"], str):
        document["accelerator"] = known("accelerators", document["accelerator"].lower())
    document |= {"name": name, "title": title}
    software = {one["stack"]: dict(one) for one in document.pop("software", None) or []}
    for found in values:
        entry, one = found.entry(), found.parameter
        if one.home == "accelerator":
            document["accelerator"][one.field] = entry
        elif one.home == "network":
            document["network"][int(one.path.split(".")[1])][one.field] = entry
        else:
            for stack in one.of:
                software.setdefault(stack, {"stack": stack})[one.field] = entry
    return document | ({"software": list(software.values())} if software else {})


def write_system(path: Path, document: Mapping[str, Any]) -> None:
    """Write a system file, entries on one line each, beside its place and then there."""

    def laid_out(item: Any) -> Any:
        if isinstance(item, Mapping):
            return _flow(item) if "value" in item else {key: laid_out(one) for key, one in item.items()}
        return [laid_out(one) for one in item] if isinstance(item, list) else item

    with beside(path) as partial:
        partial.write_text(text_of(laid_out(document)), encoding="utf-8")
