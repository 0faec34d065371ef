"""Terminal tables of the limits of moving data."""

from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from traincast.analysis.training_limits import EXCESS, HALF_OF_LARGEST, TENTH_OF_LARGEST, Limits
from traincast.core.units import count_of, rate, seconds
from traincast.ui.text.plans import borderless_table, heading, paragraphs

RIGHT: Final = "right"
SHARES: Final = ("FLOP", "memory", "network")


def print_limits(limits: Limits, out: Console) -> None:
    """Print the best shardings, training runs of a fixed length, and where utilisation falls."""
    device = limits.device
    out.print(Text(f"Limits of moving data: {device.name}", style="bold"))
    peaks = (rate(float(device.flops8) / 2, "FLOP/s"), rate(float(device.memory_bandwidth), "B/s"))
    out.print(
        f"{peaks[0]} at 16 bits and {peaks[1]} of memory, of which {float(device.sustained):.0%} are sustained"
    )
    out.print(f"{rate(float(device.network_bandwidth), 'B/s')} of network ({device.network})")
    d_in, d_out = limits.layer
    cut = f" in {count_of(limits.micro_batches, 'micro-batch').replace('batchs', 'batches')}"
    out.print(heading(f"One layer of {d_in:,} x {d_out:,}, {limits.tokens:,} tokens a batch{cut}"))
    out.print(_clusters(limits))
    out.print(Text("FLOP, memory, network: share of the time in which each binds", style="dim"))
    out.print(heading(f"Training runs of {limits.training.days:.0f} days"))
    out.print(_training(limits))
    out.print()
    paragraphs(utilisation_sentences(limits), out)


def _clusters(limits: Limits) -> Table:
    """Return a table of the best sharding on each number of accelerators."""
    names = ("GPUs", "tp_in", "tp_out", "dp", "time", "utilisation", *SHARES)
    table, clusters = _table(names), limits.clusters
    columns = (
        clusters.gpus,
        clusters.tp_in,
        clusters.tp_out,
        clusters.dp,
        clusters.seconds,
        clusters.utilisation,
    )
    for *row, flop, memory, network in zip(*columns, *clusters.spent, strict=True):
        gpus, tp_in, tp_out, dp, time, used = row
        if np.isnan(time):
            table.add_row(f"{gpus:,.0f}", "cannot be cut so")
            continue
        cuts = (f"{degree:,.0f}" for degree in (gpus, tp_in, tp_out, dp))
        table.add_row(
            *cuts, seconds(time), f"{used:.1%}", *(f"{share:.0%}" for share in (flop, memory, network))
        )
    return table


def _training(limits: Limits) -> Table:
    """Return a table of training runs, one row a decade of compute, as far as they finish in time."""
    names = ("FLOP", "parameters", "batch", "GPUs", "utilisation", *SHARES)
    table, runs = _table(names), limits.training
    columns = (runs.flops, runs.parameters, runs.tokens, runs.gpus, runs.utilisation)
    for *row, flop, memory, network in list(zip(*columns, *runs.spent, strict=True))[::2]:
        if np.isnan(row[-1]):
            table.add_row(f"{row[0]:.0e}", "does not", "finish in", "time")
            break
        cells = (f"{row[0]:.0e}", f"{row[1]:.1e}", f"{row[2]:.1e}", f"{row[3]:.1e}", f"{row[4]:.1%}")
        table.add_row(*cells, *(f"{share:.0%}" for share in (flop, memory, network)))
    return table


def _table(names: tuple[str, ...]) -> Table:
    """Return an empty table with a column of numbers for each name."""
    table = borderless_table(gap=1)
    for name in names:
        table.add_column(name, justify=RIGHT, no_wrap=True)
    return table


def utilisation_sentences(limits: Limits) -> list[str]:
    """Return sentences on where utilisation falls, and on what is left out."""
    largest = limits.largest
    lines = [f"The largest utilisation there can be is {largest:.0%}."]
    for share, at, verb in (
        (HALF_OF_LARGEST, limits.halves, "halves"),
        (TENTH_OF_LARGEST, limits.collapses, "collapses"),
    ):
        where = f"at {at:.1e} FLOP" if at is not None else "nowhere on the range looked at"
        lines.append(f"Utilisation {verb} (to {share * largest:.0%}) {where}.")
    if np.isnan(limits.training.utilisation).any():
        first = limits.training.flops[np.isnan(limits.training.utilisation)][0]
        lines.append(
            f"From {first:.1e} FLOP on, {EXCESS[-1]:.0f} times the accelerators of full utilisation are not enough."
        )
    lines.append(
        "Latency, attention, the optimizer and a slower network between nodes are left out: these are ceilings."
    )
    return lines
