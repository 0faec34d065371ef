"""The machine file: figures with unit, source, basis and spread, as `load_system` reads it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from traincast.accuracy.fit.parameters import accelerator_name
from traincast.accuracy.logs.accelerator_names import accelerator as table_name
from traincast.accuracy.measure.bounded_fit import Values
from traincast.accuracy.measure.fit_accelerator import Figures
from traincast.accuracy.runs.run import MACHINES
from traincast.catalog.documents import known
from traincast.catalog.load import load_system
from traincast.catalog.schema.fields import Entry
from traincast.catalog.schema.system import AcceleratorPart, MiddleTier
from traincast.catalog.software_stacks import USUAL, stack_names
from traincast.core.units import GIB, quantity

SIGNIFICANT_DIGITS: Final = 4
STACKS: Final = (USUAL, "pytorch")  # what "calibrated" stands for, and PyTorch as it is
UNDETERMINED: Final = "; as far as it can go, the times do not determine it"
NOT_MEASURED_ACROSS_NODES: Final = "not measured, there was one node: taken to be as inside it"


def catalogue_name(device: str) -> str | None:
    """The catalogue's name of an accelerator that calls itself so, None if it has none of it."""
    told = table_name(device)
    machine = next((system for gpu, _, system in MACHINES if gpu == told), None) if told else None
    return accelerator_name(load_system(machine)) if machine else None


def accelerator_label(about: Mapping[str, Any]) -> str:
    """What the file calls the accelerator: a GPU, or the part of a CPU that a rank has."""
    if about["kind"] != "cpu":
        return str(about["device"])
    return f"{about['device']}, {about['threads']} thread{'s' if about['threads'] > 1 else ''}"


def figure_entries(part: type, spread: Sequence[Values], source: str, it: Figures) -> dict[str, Any]:
    """Figures as a file writes them.

    Parameters
    ----------
    part : type
        What the file's schema says of them.
    spread : sequence of dict of str to float
        Their values from medians, and from shorter and longer times [SI].
    source : str
        Where they come from.
    it : Figures
        Says which of them the times do not determine, and which were not measured; those have no interval.
    """
    found = {}
    for name, value in spread[0].items():
        alone = name in it.loose or name in it.taken
        told = it.taken.get(name) or (source + UNDETERMINED if name in it.loose else source)
        found[name] = _entry(_unit(part, name), [value] if alone else [one.get(name, value) for one in spread], told)
        if name in it.taken:
            found[name]["basis"] = "assumed"
    return found


def _entry(unit: str, values: Sequence[float], source: str) -> dict[str, Any]:
    """One figure with the ends of its spread, where they differ."""
    short = [float(f"{value:.{SIGNIFICANT_DIGITS}g}") for value in values]
    ends = {"low": min(short), "high": max(short)} if min(short) < max(short) else {}
    told = {name: _formatted(one, unit) for name, one in ({"value": short[0]} | ends).items()}
    return told | {"source": source, "basis": "measured"}


def _formatted(value: float, unit: str) -> str | float:
    """A figure as a file has it; of memory all digits."""
    return f"{value / GIB:.{SIGNIFICANT_DIGITS}g} GiB" if unit == "byte" else quantity(value, unit) if unit else value


def _unit(part: type, name: str) -> str:
    """Unit that a file has to write behind a figure."""
    entry = getattr(part, "model_fields", {}).get(name)
    kinds = get_args(entry.annotation) or (entry.annotation,) if entry else ()
    return str(next((one.unit for one in kinds if isinstance(one, type) and issubclass(one, Entry)), ""))


def document(name: str, spread: Sequence[Figures], tiers: Sequence[Sequence[Values]], day: str) -> dict[str, Any]:
    """Content of a machine file.

    Parameters
    ----------
    name : str
        Name of the machine.
    spread : sequence of Figures
        Its figures from medians, and from shorter and longer times.
    tiers : sequence of sequence of dict of str to float
        The same of each tier of the network that was measured; none with one rank [SI].
    day : str
        When.
    """
    it, about = spread[0], spread[0].about
    source = f"measured with torch {about['torch']} on {about['device']}, {day}"
    ranks, nodes = int(about["ranks"]), int(about["nodes"])
    own = catalogue_name(str(about["device"]))
    base: dict[str, Any] = (known("accelerators", own) or {}) if own else {"name": accelerator_label(about), "source": source}
    told = {"hbm_bytes": float(about["memory_bytes"])}
    base |= figure_entries(AcceleratorPart, [told | one.accelerator for one in spread], source, it)
    base["processors"] = {"value": int(about["processors"]), "source": source, "basis": "measured"}
    network = [figure_entries(MiddleTier, one, source, it) for one in tiers]
    if not network:
        network = [_unknown_network("one rank: no network was measured; write in what joins yours")]
    if len(network) < 2:
        network.append(
            {key: entry | {"source": NOT_MEASURED_ACROSS_NODES, "basis": "assumed"} for key, entry in network[0].items()}
        )
    named = [
        {"name": _node_tier_name(about)} | network[0] | {"size": max(ranks // nodes, 1)},
        {"name": "between nodes"} | network[1],
    ]
    stacks = [
        {"stack": stack} | figure_entries(object, [one.software for one in spread], source, it)
        for stack in STACKS
        if stack in stack_names()
    ]
    title = f"{about['device']}, {ranks} rank{'s' * (ranks > 1)} on {nodes} node{'s' * (nodes > 1)}, measured on {day}"
    return {"name": name, "title": title, "source": source, "accelerator": base, "network": named, "software": stacks}


def _node_tier_name(about: Mapping[str, Any]) -> str:
    """What the network inside a node is called."""
    return f"{about['backend']} inside a node" if about["backend"] else "inside a node"


def _unknown_network(source: str) -> dict[str, Any]:
    """A network that is not known."""
    told = {"source": source, "basis": "assumed"}
    return {"bandwidth": {"value": "10 GB/s"} | told, "efficiency": {"value": 0.8} | told, "latency": {"value": "10 us"} | told}
