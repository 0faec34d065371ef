"""Published collective benchmarks against predictions, by row and in summary.

A table has one row per timing, with the columns of `measured/collectives.csv`. A row that
cannot be predicted states why: no message size, a forced algorithm, times that the machine cannot reach.
"""

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from traincast.catalog.load import load_system
from traincast.catalog.software_stacks import resolve
from traincast.core.assumptions import Assumptions
from traincast.core.errors import InputError
from traincast.core.system import System
from traincast.operations.operation import CollectiveKind
from traincast.times.collectives import collective
from traincast.times.process_groups import Group

LARGE: Final = 50e6  # messages in which latencies do not matter [byte]
RESAMPLES: Final = 1000

TABLE: Final = Path(__file__).with_name("measured") / "collectives.csv"
NEEDED: Final = ("id", "source", "system", "op", "nodes", "gpus_per_node", "size_bytes")
KINDS: Final[dict[str, CollectiveKind]] = {
    "allgather": "all-gather",
    "allreduce": "all-reduce",
    "reducescatter": "reduce-scatter",
    "all2all": "all-to-all",
    "p2p": "send",
}
BUS_FACTOR: Final = {
    "all-reduce": 2.0,
    "send": math.nan,
}  # bus bytes over (n - 1)/n V, as nccl-tests count; 1 for the others
MACHINES: Final = (  # pattern of source and system, system of the catalogue; the first match counts
    (r"nccl-tests, Perlmutter|Perlmutter 1 node", "perlmutter"),
    (r"Perlmutter", "TCP: far below what the network carries"),
    (r"Vista", "dgx-h200"),  # the same network; one GPU in a node
    (r"P6-B200|8xB200", "aws-p6-b200"),
    (r"p5en|8xH200", "aws-p5en"),
    (r"8xA100 SXM|A100-class", "dgx-a100"),
    (r"ND_A100_v4", "azure-nd-a100-v4"),
    (r"ND_H100_v5", "azure-nd-h100-v5"),
    (r"ND_H200_v5", "azure-nd-h200-v5"),
    (r"MI300X", "mi300x-node"),
)
MIN_BUS_BANDWIDTH: Final = 0.1  # lowest usable bandwidth, as they are published to 0.01 [GB/s]
BANDS: Final = ((0.0, "< 64 KiB"), (2.0**16, "64 KiB to 1 MiB"), (2.0**20, "1 to 50 MB"), (50e6, "> 50 MB"))


@dataclass(frozen=True, slots=True)
class Timing:
    """Timed collective, predicted or skipped.

    Parameters
    ----------
    id : str
        Name of the row.
    source, system, kind : str
        Short name of the source, system of the catalogue, and collective; empty if unknown.
    nodes, per_node : int
        Fast domains the group spans, and its members in each.
    nbytes : float
        The full tensor [byte].
    measured, predicted : float or None
        Time [s].
    skipped : str or None
        Reason why it is not predicted.
    """

    id: str
    source: str = ""
    system: str = ""
    kind: str = ""
    nodes: int = 0
    per_node: int = 0
    nbytes: float = 0.0
    measured: float | None = None
    predicted: float | None = None
    skipped: str | None = None

    @property
    def error(self) -> float:
        """Predicted over measured time, less 1."""
        return (
            math.nan
            if self.measured is None or self.predicted is None
            else self.predicted / self.measured - 1
        )

    @property
    def band(self) -> str:
        """Size band of the tensor."""
        return next(name for least, name in reversed(BANDS) if self.nbytes >= least)


@dataclass(frozen=True)
class Summary:
    """Errors of predictions for one system and collective.

    Parameters
    ----------
    source, system, kind : str
        Source of the timings, system of the catalogue, and collective.
    n : int
        Number of timings.
    mape, median, bias, worst : float
        Mean and median of the absolute relative error, mean of the error, largest absolute value.
    bands : dict of str to float
        Mean absolute relative error by size.
    """

    source: str
    system: str
    kind: str
    n: int
    mape: float
    median: float
    bias: float
    worst: float
    bands: Mapping[str, float]


@dataclass(frozen=True, repr=False)
class Collectives:
    """Predictions of a table of timed collectives."""

    timings: tuple[Timing, ...]
    summaries: tuple[Summary, ...]

    def __repr__(self) -> str:
        predicted = sum(timing.skipped is None for timing in self.timings)
        return f"<{predicted} timings of collectives, {len(self.timings) - predicted} skipped>"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object with every row and the summaries."""
        return {
            "rows": [asdict(item) for item in self.timings],
            "summary": [asdict(item) for item in self.summaries],
        }


def check_collectives(
    path: str | Path | None = None, assumptions: str | Assumptions = "calibrated"
) -> Collectives:
    """Predict every timed collective of a table, and compare.

    The launch overhead is counted in full, as in a benchmark, also where a step hides a part of it.

    Parameters
    ----------
    path : str or Path, optional
        CSV file with the columns of the bundled table; default: the bundled table.
    assumptions : str or Assumptions
        Assumptions about software.

    Returns
    -------
    Collectives
        Timings in the order of the table, and errors by source, system and collective.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    assumed = resolve(assumptions).with_values({"collectives.launch_share": 1.0})
    table = [(row, read(row)) for row in rows(path)]
    groups: dict[Any, list[Timing]] = defaultdict(list)
    for row, timing in table:
        if timing.skipped is None:
            groups[timing.system, timing.kind, "ring" in row.get("algo", "").lower()].append(timing)
    predictions = {
        timing.id: timing
        for key, timings in groups.items()
        for timing in _predicted(timings, key[2], assumed)
    }
    all_timings = tuple(predictions.get(timing.id, timing) for _, timing in table)
    return Collectives(all_timings, tuple(_summaries(all_timings)))


def rows(path: str | Path | None = None) -> list[dict[str, str]]:
    """Read a table of timed collectives; default: the bundled one. Raises InputError if there are no rows."""
    file = Path(path or TABLE)
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            table = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(str(path), [f"cannot be read as a table of collectives ({error})"]) from None
    missing = [name for name in NEEDED if not table or name not in table[0]]
    if missing:
        raise InputError(
            str(path), [f"column {name}: missing" for name in missing] if table else ["holds no timing"]
        )
    return table


def read(row: Mapping[str, str]) -> Timing:
    """Return the timing of a row, or the reason why it cannot be predicted."""
    source = re.split(r" network README| comm_validation| NCCL| hardware_config|:", row["source"])[0]
    known = Timing(row["id"], source, kind=KINDS.get(row["op"].split()[0], ""))
    system = next(
        (name for pattern, name in MACHINES if re.search(pattern, f"{row['source']} {row['system']}")), ""
    )
    nodes, per_node, V = (_number(row.get(name, "")) for name in ("nodes", "gpus_per_node", "size_bytes"))
    if not known.kind or not system or " " in system:
        return replace(
            known,
            skipped=system if " " in system else f"{row['op']} on {row['system']}: not in the catalogue",
        )
    if math.isnan(nodes * per_node * V):
        return replace(known, system=system, skipped="no message size, or no size of the group")
    if "tree" in row.get("algo", "") and "ring" not in row.get("algo", ""):
        return replace(known, system=system, skipped=f"an algorithm that was forced: {row['algo']}")
    if known.kind in ("all-to-all", "send") and nodes == 1:
        per_node = min(per_node, _number(row.get("ranks", "")))
    timing = replace(known, system=system, nodes=int(nodes), per_node=int(per_node), nbytes=V)
    seconds = _seconds(row, timing)
    problem = _implausible(row, timing, seconds, load_system(system))
    return replace(timing, skipped=problem) if problem else replace(timing, measured=seconds)


def _number(text: str) -> float:
    """Return a number, or NaN."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _carried(timing: Timing) -> float:
    """Return the bytes that each link of a ring carries."""
    n = timing.nodes * timing.per_node
    return timing.nbytes * (1.0 if timing.kind == "send" else BUS_FACTOR.get(timing.kind, 1.0) * (n - 1) / n)


def _seconds(row: Mapping[str, str], timing: Timing) -> float:
    """Return the time of a row, from its bandwidth if it has no time [s]."""
    time, algorithm, bus = (_number(row.get(name, "")) for name in ("time_us", "algbw_gb_s", "busbw_gb_s"))
    if not math.isnan(time):
        return time * 1e-6
    if not math.isnan(algorithm):
        return timing.nbytes / (algorithm * 1e9)
    return _carried(timing) / (bus * 1e9) if bus >= MIN_BUS_BANDWIDTH else math.nan


def _implausible(row: Mapping[str, str], timing: Timing, seconds: float, system: System) -> str | None:
    """Return the reason why a time is impossible on the machine, or None."""
    if math.isnan(seconds):
        return "no time, or a bandwidth rounded to nothing"
    fast, slow = system.tiers[0], system.tiers[1]
    inside = fast.bandwidth * (2.0 if timing.kind == "all-reduce" and fast.switch_reduction else 1.0)
    limit = inside if timing.nodes == 1 else min(inside, slow.bandwidth * slow.ports * timing.per_node)
    if timing.nodes > 1 and timing.per_node == 1:
        limit = slow.bandwidth * slow.ports
    too_fast = "BROKEN" in row.get("notes", "") or _carried(timing) / seconds > limit
    return "faster than the links of the machine" if too_fast else None


def _predicted(timings: Sequence[Timing], ring: bool, assumed: Assumptions) -> Iterable[Timing]:
    """Yield timings of one system and kind with their predictions; `ring` disables reduction in switches."""
    yield from predicted_on(load_system(timings[0].system), timings, ring, assumed)


def predicted_on(
    system: System, timings: Sequence[Timing], ring: bool, assumed: Assumptions
) -> Iterable[Timing]:
    """Yield timings of one kind with their predictions on a system."""
    if ring:
        system = replace(system, tiers=(replace(system.fast, switch_reduction=None), *system.tiers[1:]))
    g = np.array([float(timing.per_node) for timing in timings])
    n = g * np.array([float(timing.nodes) for timing in timings])
    members_within = [
        g,
        *(np.minimum(n, g * tier.fast_domains(system.fast)) for tier in system.tiers[1:-1]),
    ]
    kind: CollectiveKind = timings[0].kind  # type: ignore[assignment]
    V = np.array([timing.nbytes for timing in timings])
    seconds = np.broadcast_to(
        np.asarray(collective(kind, V, Group(n, tuple(members_within)), system, assumed)), len(timings)
    )
    for timing, time in zip(timings, seconds, strict=True):
        yield replace(timing, predicted=float(time))


def congestion(timings: Iterable[Timing]) -> tuple[float, float, float]:
    """Return the growth of measured over predicted times with a doubling of nodes, and its 90 % limits.

    Of large messages between nodes; collectives and numbers of GPUs in a node have a level each. The limits
    are of a bootstrap over collectives, nodes and GPUs.
    """
    large = [timing for timing in timings if timing.nodes > 1 and timing.nbytes > LARGE]
    level = np.unique([(t.kind, str(t.per_node)) for t in large], axis=0, return_inverse=True)[1]
    case = np.unique([(t.kind, str(t.per_node), str(t.nodes)) for t in large], axis=0, return_inverse=True)[1]
    doublings = np.log2([timing.nodes for timing in large])
    design = np.column_stack((doublings, np.eye(level.max() + 1)[level.ravel()]))
    ratio = np.log([math.exp(-math.log1p(timing.error)) for timing in large])
    cases = [np.flatnonzero(case.ravel() == k) for k in range(case.max() + 1)]

    def slope(rows: Any) -> float:
        return float(np.linalg.lstsq(design[rows], ratio[rows], rcond=None)[0][0])

    draws = np.random.default_rng(0).integers(0, len(cases), (RESAMPLES, len(cases)))
    drawn = [slope(np.concatenate([cases[k] for k in draw])) for draw in draws]
    low, high = np.quantile(drawn, (0.05, 0.95))
    return slope(np.arange(len(large))), float(low), float(high)


def _summaries(timings: Iterable[Timing]) -> Iterable[Summary]:
    """Yield errors by source, system and collective."""
    groups: dict[tuple[str, str, str], list[Timing]] = defaultdict(list)
    for timing in timings:
        if timing.skipped is None:
            groups[timing.source, timing.system, timing.kind].append(timing)
    for key, members in sorted(groups.items()):
        errors = np.array([timing.error for timing in members])
        sizes = np.abs(errors)
        bands = {name: [abs(timing.error) for timing in members if timing.band == name] for _, name in BANDS}
        yield Summary(
            *key,
            len(members),
            float(sizes.mean()),
            float(np.median(sizes)),
            float(errors.mean()),
            float(sizes.max()),
            {name: float(np.mean(values)) for name, values in bands.items() if values},
        )
