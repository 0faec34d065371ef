"""Fitted values as YAML: entries of catalogue files, and a user's system file."""

import io
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from traincast.accuracy.fit.parameters import FittedConstant
from traincast.catalog import catalogue_entry, system_document
from traincast.core import atomic_output, quantity

LINE_WIDTH: Final = 1000  # so that lines are not wrapped
SIGNIFICANT_DIGITS: Final = 4


@cache
def _yaml() -> Any:
    """Return a reader and writer that keeps comments, quotes and layout."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = LINE_WIDTH
    yaml.preserve_quotes = True
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def load(path: Path) -> object:
    """Read a file with its comments and layout."""
    return _yaml().load(path.read_text(encoding="utf-8"))


def text_of(document: object) -> str:
    """Return the text of a document; unchanged parts as `load` read them."""
    out = io.StringIO()
    _yaml().dump(document, out)
    return out.getvalue()


def _flow(entry: Mapping[str, object]) -> Any:
    from ruamel.yaml.comments import CommentedMap

    flow = CommentedMap(entry)
    flow.fa.set_flow_style()
    return flow


def write_value(document: Any, constant: FittedConstant) -> None:
    """Write a fitted value, with interval and source, into the document of its owner, in place."""
    parameter = constant.parameter
    low, value, high = (
        float(f"{x:.{SIGNIFICANT_DIGITS}g}") for x in (constant.low, constant.value, constant.high)
    )
    entry: dict[str, Any] = {"value": value, "low": min(low, value), "high": max(high, value)}
    if unit := parameter.unit:
        entry = {name: quantity(number, unit) for name, number in entry.items()}
    part = document["network"][parameter.tier] if parameter.home == "network" else document
    part[parameter.field] = _flow(entry | {"source": constant.source, "basis": "fitted"})


def system_with(
    base: str | Path, constants: Sequence[FittedConstant], name: str, title: str
) -> dict[str, object]:
    """Return the document of a system, by name or file, with fitted values and its accelerator inlined."""
    document = system_document(base)
    if isinstance(document["accelerator"], str):
        document["accelerator"] = catalogue_entry("accelerators", document["accelerator"].lower())
    document |= {"name": name, "title": title}
    software = {entry["stack"]: dict(entry) for entry in document.pop("software", None) or []}
    for constant in constants:
        if constant.parameter.of_software:
            for stack in constant.of:
                write_value(software.setdefault(stack, {"stack": stack}), constant)
        else:
            write_value(
                document["accelerator"] if constant.parameter.home == "accelerator" else document, constant
            )
    return document | ({"software": list(software.values())} if software else {})


def write_system(path: Path, document: Mapping[str, object]) -> None:
    """Write a system file atomically, one line for each entry."""

    def with_flow_entries(item: object) -> object:
        if isinstance(item, list):
            return [with_flow_entries(value) for value in item]
        if not isinstance(item, Mapping):
            return item
        return _flow(item) if "value" in item else {k: with_flow_entries(v) for k, v in item.items()}

    with atomic_output(path) as partial:
        partial.write_text(text_of(with_flow_entries(document)), encoding="utf-8")
