"""The step of a plan as it runs, for people."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from traincast.analysis.trace import Trace
from traincast.core.units import seconds
from traincast.planner.misfit import label
from traincast.ui.text.plans import heading, paragraphs, table_of


def print_trace(found: Trace, out: Console) -> None:
    """What the step is spent on, as simulated and as estimated, and what every stage does."""
    out.print(Text(f"Plan: {found.estimate.plan}", style="bold"))
    out.print(heading(f"A step as it runs: {seconds(found.simulated_seconds)}; the estimate: {seconds(found.step_seconds)}"))
    out.print(_components(found))
    paragraphs([f"Seconds are those of stage {found.device}, which sets the step."], out)
    out.print(heading("Every stage: its passes, what it waits for, micro-batches in flight"))
    out.print(_stages(found))


def _components(found: Trace) -> Table:
    """Seconds by component."""
    table = table_of()
    for i, name in enumerate(("", "trace", "estimate", "closed form less simulation")):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    for name, simulated in found.totals.items():
        estimated, less = float(found.estimate.breakdown[name]), found.remainder.get(name, 0.0)
        if simulated or estimated:
            table.add_row(
                label(name), seconds(simulated), seconds(estimated), _difference(less, found) if name in found.remainder else ""
            )
    return table


def _difference(value: float, found: Trace) -> str:
    """A difference; what is rounding is none."""
    return f"{'+' if value > 0 else '-'}{seconds(abs(value))}" if abs(value) > 1e-9 * found.step_seconds else "0 s"


def _stages(found: Trace) -> Table:
    """What every stage does in the pipeline; in flight is what it holds of activations, in micro-batches of the whole stage."""
    table = table_of()
    for name in ("stage", "first pass", "passes", "for stages", "for transfers", "in flight"):
        table.add_column(name, justify="right", no_wrap=True)
    for device, own in enumerate(found.by_device):
        waits = {what: sum(one.seconds for one in found.waits[device] if one.component == what) for what in ("bubble", "pp_comm")}
        busy = sum(one.end - one.start for one in own)
        told = (own[0].start, busy, waits["bubble"], waits["pp_comm"])
        table.add_row(str(device), *map(seconds, told), f"{found.timeline.peak_in_flight[device]:.3g}")
    return table
