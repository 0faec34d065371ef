"""Content of a measured system file: figures with unit, source, basis and interval, as `load_system` reads it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from traincast.accuracy.measure.bounded_fit import Values
from traincast.accuracy.measure.fit_accelerator import Figures
from traincast.catalog.documents import catalogue_entry
from traincast.catalog.load import accelerator_called
from traincast.catalog.schema.fields import Entry
from traincast.catalog.schema.system import AcceleratorPart, MiddleTier
from traincast.catalog.software_stacks import DEFAULT_STACK, stack_names
from traincast.core.units import GIB, quantity

SIGNIFICANT_DIGITS: Final = 4
STACKS: Final = (DEFAULT_STACK, "pytorch")  # the default stack, and plain PyTorch
UNDETERMINED: Final = "; as far as it can go, the times do not determine it"
NOT_MEASURED_ACROSS_NODES: Final = "not measured, there was one node: taken to be as inside it"


def accelerator_label(about: Mapping[str, Any]) -> str:
    """Return the accelerator's name in the file: the GPU, or the CPU with the threads of a rank."""
    if about["kind"] != "cpu":
        return str(about["device"])
    return f"{about['device']}, {about['threads']} thread{'s' if about['threads'] > 1 else ''}"


def figure_entries(part: type, spread: Sequence[Values], source: str, fit: Figures) -> dict[str, Any]:
    """Return figures as entries of a system file.

    Parameters
    ----------
    part : type
        Schema class with the units of the figures.
    spread : sequence of dict of str to float
        Values from the medians, and from the shorter and the longer times [SI].
    source : str
        Source of the figures.
    fit : Figures
        Tells which figures are not determined or were not measured; those have no interval.
    """
    result = {}
    for name, value in spread[0].items():
        no_interval = name in fit.loose or name in fit.taken
        origin = fit.taken.get(name) or (source + UNDETERMINED if name in fit.loose else source)
        result[name] = _entry(
            _unit(part, name),
            [value] if no_interval else [values.get(name, value) for values in spread],
            origin,
        )
        if name in fit.taken:
            result[name]["basis"] = "assumed"
    return result


def _entry(unit: str, values: Sequence[float], source: str) -> dict[str, Any]:
    """Return the entry of one figure, with its interval if the ends differ."""
    rounded = [float(f"{value:.{SIGNIFICANT_DIGITS}g}") for value in values]
    interval = {"low": min(rounded), "high": max(rounded)} if min(rounded) < max(rounded) else {}
    texts = {name: _formatted(end, unit) for name, end in ({"value": rounded[0]} | interval).items()}
    return texts | {"source": source, "basis": "measured"}


def _formatted(value: float, unit: str) -> str | float:
    """Return a figure with its unit; memory in GiB."""
    return (
        f"{value / GIB:.{SIGNIFICANT_DIGITS}g} GiB"
        if unit == "byte"
        else quantity(value, unit)
        if unit
        else value
    )


def _unit(part: type, name: str) -> str:
    """Return the unit that the schema demands of a figure."""
    entry = getattr(part, "model_fields", {}).get(name)
    kinds = get_args(entry.annotation) or (entry.annotation,) if entry else ()
    return str(next((kind.unit for kind in kinds if isinstance(kind, type) and issubclass(kind, Entry)), ""))


def document(
    name: str, spread: Sequence[Figures], tiers: Sequence[Sequence[Values]], day: str
) -> dict[str, Any]:
    """Return the content of a system file.

    Parameters
    ----------
    name : str
        Name of the system.
    spread : sequence of Figures
        Fits to the medians, and to the shorter and the longer times.
    tiers : sequence of sequence of dict of str to float
        The same for each measured tier of the network; empty with one rank [SI].
    day : str
        Date of the measurement.
    """
    median_fit, about = spread[0], spread[0].about
    source = f"measured with torch {about['torch']} on {about['device']}, {day}"
    ranks, nodes = int(about["ranks"]), int(about["nodes"])
    known_name = accelerator_called(str(about["device"]))
    accelerator: dict[str, Any] = (
        (catalogue_entry("accelerators", known_name) or {})
        if known_name
        else {"name": accelerator_label(about), "source": source}
    )
    accelerator.pop("also_called", None)
    memory = {"hbm_bytes": float(about["memory_bytes"])}
    accelerator |= figure_entries(
        AcceleratorPart, [memory | fit.accelerator for fit in spread], source, median_fit
    )
    accelerator["processors"] = {"value": int(about["processors"]), "source": source, "basis": "measured"}
    network = [figure_entries(MiddleTier, fit, source, median_fit) for fit in tiers]
    if not network:
        network = [_unknown_network("one rank: no network was measured; write in what joins yours")]
    if len(network) < 2:
        network.append(
            {
                key: entry | {"source": NOT_MEASURED_ACROSS_NODES, "basis": "assumed"}
                for key, entry in network[0].items()
            }
        )
    tiers_of_file = [
        {"name": _node_tier_name(about)} | network[0] | {"size": max(ranks // nodes, 1)},
        {"name": "between nodes"} | network[1],
    ]
    stacks = [
        {"stack": stack} | figure_entries(object, [fit.software for fit in spread], source, median_fit)
        for stack in STACKS
        if stack in stack_names()
    ]
    title = f"{about['device']}, {ranks} rank{'s' * (ranks > 1)} on {nodes} node{'s' * (nodes > 1)}, measured on {day}"
    return {
        "name": name,
        "title": title,
        "source": source,
        "accelerator": accelerator,
        "network": tiers_of_file,
        "software": stacks,
    }


def _node_tier_name(about: Mapping[str, Any]) -> str:
    """Return the name of the network inside a node."""
    return f"{about['backend']} inside a node" if about["backend"] else "inside a node"


def _unknown_network(source: str) -> dict[str, Any]:
    """Return assumed entries for a network that was not measured."""
    origin = {"source": source, "basis": "assumed"}
    return {
        "bandwidth": {"value": "10 GB/s"} | origin,
        "efficiency": {"value": 0.8} | origin,
        "latency": {"value": "10 us"} | origin,
    }
