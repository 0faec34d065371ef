"""The machine a row of measured runs names: accelerator and network, as a system of the catalogue."""

import re
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Final

from traincast.accuracy.runs.row import Cells
from traincast.catalog.documents import catalogue
from traincast.catalog.load import accelerator_called, load_system
from traincast.core.errors import InputError
from traincast.core.system import System

FILES: Final = (".yaml", ".yml", ".json")  # suffixes of system files
SMALL_NODE: Final = 4  # accelerators of a node, half of the usual 8
MACHINES: Final = (  # accelerator, pattern of its network, system of the catalogue; the first match counts
    ("a100-sxm-80", r"4x200Gb/s HDR", "hgx-a100-hdr-4x200"),
    ("a100-sxm-80", r"Jean Zay", "jean-zay-a100"),
    ("a100-sxm-80", r"8x200Gb/s RoCE|1600 ?Gbps", "hgx-a100-roce-8x200"),
    ("a100-sxm-80", r"RoCE|400Gb/s per node", "hgx-a100-roce"),
    ("a100-sxm-80", r"Selene", "selene"),
    ("a100-sxm-80", r"NDm A100", "azure-ndm-a100-v4"),
    ("a100-sxm-80", r"", "dgx-a100"),
    ("a100-sxm-40", r"RoCE|1600 ?Gbps", "hgx-a100-40-roce-8x200"),
    ("a100-sxm-40", r"", "dgx-a100-40"),
    ("h100-sxm-80", r"EFA|p5", "aws-p5"),
    ("h100-sxm-80", r"Arista", "llama3-h100"),
    ("h100-sxm-80", r"ND H100 v5", "azure-nd-h100-v5"),
    ("h100-sxm-80", r"Eos(?!-class)", "eos"),
    ("h100-sxm-80", r"TCPX|A3 Mega", "gcp-a3-mega"),
    ("h100-sxm-80", r"800Gb/s per node", "hgx-h100-roce-8x100"),
    ("h100-sxm-80", r"", "dgx-h100"),
    ("h100-96-hbm2e-500w", r"", "grand-teton-h100-96"),
    ("h200-sxm-141", r"A3 Ultra", "gcp-a3-ultra"),
    ("h200-sxm-141", r"ND H200 v5", "azure-nd-h200-v5"),
    ("h200-sxm-141", r"EFA|p5en", "aws-p5en"),
    ("h200-sxm-141", r"", "dgx-h200"),
    ("h800-sxm-80", r"", "hgx-h800"),
    ("b200-180", r"GCP A4", "gcp-a4"),
    ("b200-180", r"EFA|p6", "aws-p6-b200"),
    ("b200-180", r"", "dgx-b200"),
    ("b300-288", r"", "dgx-b300"),
    ("gb200-186", r"", "gb200-nvl72"),
    ("gb300-288", r"", "gb300-nvl72"),
    ("gh200-96", r"", "gh200-node4"),
    ("v100-sxm-32", r"", "dgx-2"),
    ("mi250x-gcd", r"", "frontier"),
    ("mi250-gcd", r"", "mi250-node"),
    ("mi300x-192", r"", "mi300x-node"),
    ("mi325x-256", r"", "mi325x-node"),
    ("mi355x-288", r"", "mi355x-node"),
    ("tpu-v4", r"", "tpu-v4-pod"),
    ("tpu-v5e", r"", "tpu-v5e-pod"),
    ("tpu-v5p", r"", "tpu-v5p-pod"),
    ("tpu-v6e", r"", "tpu-v6e-pod"),
    ("gaudi2-96", r"", "gaudi2-node"),
)
ACCELERATORS: Final = tuple(sorted({accelerator for accelerator, _, _ in MACHINES}))


@lru_cache
def _system(name: str) -> System:
    """Return a system of the catalogue, cached for all rows."""
    return load_system(name)


@lru_cache
def _system_of_file(path: Path, changed: int) -> System:
    """Return the system of a file, cached until its modification time `changed` differs."""
    return load_system(path)


def _named_file(cells: Cells, path: Path) -> System | None:
    """Return the system of a file; None where it cannot be read, which is noted."""
    try:
        return _system_of_file(path, path.stat().st_mtime_ns if path.is_file() else 0)
    except InputError as error:
        cells.problem(" ".join(str(error).split()))
        return None


def machine(cells: Cells) -> System | None:
    """Return the machine of a row: the system or file it names, or the first with its accelerator and network.

    A row that names only the accelerator gets its usual machine: a DGX, or the vendor's own.

    Parameters
    ----------
    cells : Cells
        A row. `system` may hold a name of the catalogue, or the path of a system file; else `gpu` and `interconnect` decide.

    Returns
    -------
    System or None
        None where there is none, which is noted.
    """
    named = cells.text("system").lower()
    if named in catalogue("systems"):
        return _system(named)
    if named.endswith(FILES):
        return _named_file(cells, Path(cells.text("system")))
    name, network = cells.text("gpu").lower(), cells.text("interconnect")
    gpu = accelerator_called(name)
    if gpu == "a100-sxm-40" and cells.whole("gpus_per_node", 8) == SMALL_NODE:
        cells.assume("interconnect")
        return _system("perlmutter")  # the catalogue's nodes of four
    for accelerator, pattern, system in MACHINES:
        if gpu == accelerator and re.search(pattern, network, re.IGNORECASE):
            if not network or re.search("not stated", network):
                cells.assume("interconnect")
            return _system(system)
    close = get_close_matches(name, ACCELERATORS, n=3, cutoff=0.4)
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    cells.problem(f"accelerator {name!r} is not known{hint}" if name else "accelerator is not known")
    return None
