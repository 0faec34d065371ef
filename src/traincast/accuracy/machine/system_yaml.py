"""Content of a measured system file: figures with unit, source, basis and interval."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, get_args

from traincast.accuracy.machine.fit_machine import Figures, Values
from traincast.catalog import (
    AcceleratorPart,
    Entry,
    MiddleTier,
    Stack,
    accelerator_called,
    catalogue_entry,
    stack_names,
)
from traincast.core import GIB, quantity

SIGNIFICANT_DIGITS: Final = 4
STACKS: Final = (Stack.DEFAULT, "pytorch")  # the default stack, and plain PyTorch
UNDETERMINED: Final = "; as far as it can go, the times do not determine it"
ACROSS_NODES: Final = {
    "source": "not measured, there was one node: taken to be as inside it",
    "basis": "assumed",
}
ONE_RANK: Final = {
    "source": "one rank: no network was measured; write in what joins yours",
    "basis": "assumed",
}
UNKNOWN_NETWORK: Final = {"bandwidth": "10 GB/s", "efficiency": 0.8, "latency": "10 us"}


def accelerator_label(about: Mapping[str, Any]) -> str:
    """Return the accelerator's name in the file: the GPU, or the CPU with the threads of a rank."""
    if about["kind"] != "cpu":
        return str(about["device"])
    return f"{about['device']}, {about['threads']} thread{'s' if about['threads'] > 1 else ''}"


def document(name: str, fits: Sequence[Figures], day: str) -> dict[str, Any]:
    """Return the content of a system file, from fits to the medians, the shorter and the longer times."""
    fit = fits[0]
    about = fits[0].about
    source = f"measured with torch {about['torch']} on {about['device']}, {day}"
    ranks = int(about["ranks"])
    nodes = int(about["nodes"])

    entries = partial(_entries, source=source, fit=fit)
    known_name = accelerator_called(str(about["device"]))
    accelerator: dict[str, object] = {"name": accelerator_label(about), "source": source}
    if known_name:
        accelerator = catalogue_entry("accelerators", known_name) or {}
    memory = {"hbm_bytes": float(about["memory_bytes"])}
    accelerator |= entries(AcceleratorPart, [memory | each.accelerator for each in fits])
    accelerator["processors"] = {"value": int(about["processors"]), "source": source, "basis": "measured"}
    tiers = [entries(MiddleTier, [each.tiers[i] for each in fits]) for i in range(len(fit.tiers))]
    unknown = {key: {"value": value} | ONE_RANK for key, value in UNKNOWN_NETWORK.items()}
    inner = tiers[0] if tiers else unknown
    outer = tiers[1] if len(tiers) > 1 else {key: entry | ACROSS_NODES for key, entry in inner.items()}
    inside = f"{about['backend']} inside a node" if about["backend"] else "inside a node"
    software = entries(object, [each.software for each in fits])
    count = f"{ranks} rank{'s' * (ranks > 1)} on {nodes} node{'s' * (nodes > 1)}"
    return {
        "name": name,
        "title": f"{about['device']}, {count}, measured on {day}",
        "source": source,
        "accelerator": accelerator,
        "network": [
            {"name": inside} | inner | {"size": max(ranks // nodes, 1)},
            {"name": "between nodes"} | outer,
        ],
        "software": [{"stack": stack} | software for stack in STACKS if stack in stack_names()],
    }


def _entries(part: type, values_of_fits: Sequence[Values], source: str, fit: Figures) -> dict[str, Any]:
    """Return figures as entries of a system file, with the units that the schema class `part` demands.

    Figures that the fit does not determine or that were not measured have no interval.
    """
    result = {}
    for name, value in values_of_fits[0].items():
        values = [values.get(name, value) for values in values_of_fits]
        origin = source
        basis = "measured"
        if name in fit.loose:
            values = [value]
            origin = source + UNDETERMINED
        if name in fit.taken:
            values = [value]
            origin = fit.taken[name]
            basis = "assumed"
        rounded = [float(f"{value:.{SIGNIFICANT_DIGITS}g}") for value in values]
        ends = {"value": rounded[0]}
        if min(rounded) < max(rounded):
            ends |= {"low": min(rounded), "high": max(rounded)}
        unit = _unit(part, name)
        texts = {end: _format_value(number, unit) for end, number in ends.items()}
        result[name] = texts | {"source": origin, "basis": basis}
    return result


def _format_value(value: float, unit: str) -> str | float:
    if unit == "byte":
        return f"{value / GIB:.{SIGNIFICANT_DIGITS}g} GiB"
    return quantity(value, unit) if unit else value


def _unit(part: type, name: str) -> str:
    entry = getattr(part, "model_fields", {}).get(name)
    kinds = get_args(entry.annotation) or (entry.annotation,) if entry else ()
    return str(next((kind.unit for kind in kinds if isinstance(kind, type) and issubclass(kind, Entry)), ""))
