"""The machine and the software of a row of measured runs: a system and a stack of the catalogue."""

import re
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Final

from traincast.accuracy.runs.cells import Cells, patterns
from traincast.catalog.documents import catalogue
from traincast.catalog.load import accelerator_called, load_system
from traincast.catalog.software_stacks import stack_names
from traincast.core.assumptions import CALIBRATED
from traincast.core.errors import InputError
from traincast.core.system import System

FILES: Final = (".yaml", ".yml", ".json")  # suffixes of system files
SMALL_NODE: Final = 4  # accelerators of a node, half of the usual 8


def software(cells: Cells) -> str:
    """Return the stack that a row names, or that of its framework and era; "calibrated" without."""
    name = cells.text("stack")
    if name.lower() in stack_names():
        return name.lower()
    context = cells.joined("source notes") + (" | experts" if cells.text("experts") else "")
    for framework, eras in patterns()["stacks"].items():
        if re.search(framework, name, re.IGNORECASE):
            for era, stack in eras.items():
                if re.search(era, context, re.IGNORECASE):
                    return str(stack)
    cells.assume("stack")
    return CALIBRATED


def accelerators() -> list[str]:
    """Return the accelerators, by their names in the catalogue, that a row may name without a system."""
    return sorted(patterns()["systems"])


def machine(cells: Cells) -> System | None:
    """Return the system that a row names, or that of its accelerator and network; None, noted, without."""
    named = cells.text("system").lower()
    if named in catalogue("systems"):
        return system_of(named)
    if named.endswith(FILES):
        path = Path(cells.text("system"))
        try:
            return _system_of_file(path, path.stat().st_mtime_ns if path.is_file() else 0)
        except InputError as error:
            cells.problem(" ".join(str(error).split()))
            return None
    name, network = cells.text("gpu").lower(), cells.text("interconnect")
    gpu = accelerator_called(name)
    if gpu == "a100-sxm-40" and cells.whole("gpus_per_node", 8) == SMALL_NODE:
        cells.assume("interconnect")
        return system_of("perlmutter")  # the catalogue's nodes of four
    if networks := patterns()["systems"].get(gpu):
        if not network or cells.states("network_not_stated"):
            cells.assume("interconnect")
        matches = (system for words, system in networks.items() if re.search(words, network, re.IGNORECASE))
        return system_of(next(matches))
    close = get_close_matches(name, accelerators(), n=3, cutoff=0.4)
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    cells.problem(f"accelerator {name!r} is not known{hint}" if name else "accelerator is not known")
    return None


@lru_cache
def system_of(name: str) -> System:
    """Return a system of the catalogue, read once for all rows."""
    return load_system(name)


@lru_cache
def _system_of_file(path: Path, modified: int) -> System:  # read again once it is modified
    """Return the system of a file, read once for all rows."""
    return load_system(path)
