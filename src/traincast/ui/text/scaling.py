"""Terminal tables of ZeRO scaling."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from traincast.core.units import count_of, gib, rate, seconds
from traincast.ui.text.plans import borderless_table, paragraphs

if TYPE_CHECKING:
    from traincast.analysis.zero_scaling import Scaling, ScalingRequest


def print_scaling(request: "ScalingRequest", stages: "list[Scaling]", out: Console) -> None:
    """Print the iteration of every ZeRO stage on every number of GPUs, and which network is enough."""
    model, system = request.model, request.system
    out.print(
        Text(
            f"{model.title} ({rate(request.P, ' parameters')}) on {system.name}, data parallel with ZeRO",
            style="bold",
        )
    )
    batch = f"{count_of(request.mbs, 'sequence')} of {model.seq:,} tokens a GPU"
    out.print(f"{batch}, {request.flops / 1e12:.1f} TFLOP; assumptions: {request.assumptions.name}")
    products = f"{rate(request.rate, 'FLOP/s')}, k1 {request.k1:g}, k2 {request.k2:g}"
    out.print(f"computes for {seconds(stages[0].compute)} ({products}), then communicates\n")
    out.print(_table(request, stages))
    first, capacity = request.gpus[0], system.accelerator.hbm_bytes
    eff = "as given" if request.efficiency is not None else "of its times"
    lines = [f"network: eff({first}→n), {eff}; efficiency: speed kept from {count_of(first, 'GPU')}"]
    if any(memory > capacity for stage in stages for memory in stage.memory):
        lines.append(f"!: more than the {gib(float(capacity))} of a GPU, nothing recomputed")
    if request.target is not None:
        lines += _target(request, stages)
    paragraphs(lines, out)


def _table(request: "ScalingRequest", stages: "list[Scaling]") -> Table:
    """Return a table with a row for every stage and number of GPUs."""
    table = borderless_table(gap=1)
    asks = request.target is not None and request.efficiency is None
    names = ("ZeRO", "GPUs", "iteration", "comm", "share", "network", "efficiency", "memory")
    for name in (*names, *(["enough"] if asks else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for stage in stages:
        for row in stage.rows():
            full = "!" if row.memory_bytes > request.system.accelerator.hbm_bytes else " "
            cells = [
                str(stage.zero),
                f"{row.gpus:,}",
                seconds(row.iteration_seconds),
                seconds(row.comm_seconds),
            ]
            kept = row.network_efficiency
            cells += [
                f"{row.comm_share:.1%}",
                "" if kept is None else f"{kept:.3f}",
                f"{row.efficiency:.1%}",
            ]
            cells.append(gib(row.memory_bytes) + full)
            table.add_row(*cells, *([_enough(row.enough_bandwidth)] if asks else []))
        table.add_section()
    return table


def _enough(bandwidth: float | None) -> str:
    """Return a sufficient bandwidth as text."""
    if bandwidth is None:
        return "none"
    return rate(bandwidth, "B/s") if bandwidth else "any"


def _target(request: "ScalingRequest", stages: "list[Scaling]") -> list[str]:
    """Return sentences on the network that is enough for the target efficiency."""
    first = count_of(request.gpus[0], "GPU")
    lines = []
    if request.efficiency is None:
        domain, now = request.system.fast_domain, rate(request.node_bandwidth, "B/s")
        lines.append(
            f"enough: bandwidth of {domain} GPUs of a fast domain to all others, one direction (now {now}), at which the efficiency"
            f" is {request.target:.0%} of {first} as they are now"
        )
        lines.append(
            "any: that network is not used; none: latency, or the network inside a domain, takes too long already"
        )
    needed = [
        f"{stage.needed_efficiency:.3f} for ZeRO-{stage.zero}"
        for stage in stages
        if stage.needed_efficiency is not None
    ]
    if needed:
        lines.append(f"network efficiency that is enough for {request.target:.0%}: {', '.join(needed)}")
    return lines
