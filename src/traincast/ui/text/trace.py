"""Terminal tables of a simulated step."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from traincast.analysis.trace import Trace
from traincast.core.units import seconds
from traincast.planner.misfit import label
from traincast.ui.text.plans import borderless_table, heading, paragraphs


def print_trace(trace: Trace, out: Console) -> None:
    """Print the step by component, simulated and estimated, and the passes and waits of every stage."""
    out.print(Text(f"Plan: {trace.estimate.plan}", style="bold"))
    out.print(
        heading(
            f"A step as it runs: {seconds(trace.simulated_seconds)}; the estimate: {seconds(trace.step_seconds)}"
        )
    )
    out.print(_component_table(trace))
    paragraphs([f"Seconds are those of stage {trace.device}, which sets the step."], out)
    out.print(heading("Every stage: its passes, what it waits for, micro-batches in flight"))
    out.print(_stage_table(trace))


def _component_table(trace: Trace) -> Table:
    """Return a table of seconds by component."""
    table = borderless_table()
    for i, name in enumerate(("", "trace", "estimate", "closed form less simulation")):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    for name, simulated in trace.totals.items():
        estimated, difference = float(trace.estimate.breakdown[name]), trace.remainder.get(name, 0.0)
        if simulated or estimated:
            table.add_row(
                label(name),
                seconds(simulated),
                seconds(estimated),
                _difference_text(difference, trace) if name in trace.remainder else "",
            )
    return table


def _difference_text(value: float, trace: Trace) -> str:
    """Return a difference of times with its sign; rounding errors count as 0 s."""
    return (
        f"{'+' if value > 0 else '-'}{seconds(abs(value))}"
        if abs(value) > 1e-9 * trace.step_seconds
        else "0 s"
    )


def _stage_table(trace: Trace) -> Table:
    """Return a table of the passes, waits and micro-batches in flight (of the whole stage) of every pipeline stage."""
    table = borderless_table()
    for name in ("stage", "first pass", "passes", "for stages", "for transfers", "in flight"):
        table.add_column(name, justify="right", no_wrap=True)
    for device, passes in enumerate(trace.by_device):
        waits = {
            component: sum(wait.seconds for wait in trace.waits[device] if wait.component == component)
            for component in ("bubble", "pp_comm")
        }
        busy = sum(simulated.end - simulated.start for simulated in passes)
        times = (passes[0].start, busy, waits["bubble"], waits["pp_comm"])
        table.add_row(str(device), *map(seconds, times), f"{trace.timeline.peak_in_flight[device]:.3g}")
    return table
