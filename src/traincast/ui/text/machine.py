"""Terminal tables of a measured machine."""

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from traincast.core.units import count_of, seconds
from traincast.ui.text.plans import borderless_table, heading, paragraphs

if TYPE_CHECKING:
    from traincast.accuracy.measure.measure import MeasuredMachine

MAX_IDLE_SPREAD = (
    0.1  # a larger spread of matrix-product samples means other load on the machine; 0.01 to 0.03 without
)
MAX_PROBLEMS_LISTED = 8  # problems printed


def print_measured(machine: "MeasuredMachine", out: Console) -> None:
    """Print the machine, its figures, and the prediction errors on its own benchmarks."""
    about = machine.about
    out.print(Text(str(machine.document["title"]), style="bold"))
    where = f"torch {about['torch']}, {count_of(int(about['threads']), 'thread')} a rank, started by {about['launcher']}"
    out.print(Text(", ".join(filter(None, (where, about["driver"], f"host {about['host']}")))))
    counts = Counter(row.task.family for row in machine.rows)
    out.print(Text("timed: " + ", ".join(f"{family} {number}" for family, number in counts.items())))
    if machine.spread["products"] > MAX_IDLE_SPREAD:
        wide = f"The middle half of a product's samples spreads over {machine.spread['products']:.0%} of its time"
        paragraphs(
            [
                f"{wide}: the machine had other work. These are its figures beside it; else stop it, and use --force."
            ],
            out,
        )
    _figures(machine, out)
    _errors(machine, out)
    for task, problem in list(machine.problems.items())[:MAX_PROBLEMS_LISTED]:
        out.print(Text(f"left out: {task}: {problem}"))
    out.print(heading("Written"))
    for path in machine.files:
        out.print(Text(str(path)))


def _figures(machine: "MeasuredMachine", out: Console) -> None:
    """Print every measured figure with its interval."""
    out.print(heading("Figures"))
    table = borderless_table(gap=2)
    for name in ("figure", "value", "low", "high"):
        table.add_column(name, justify="left" if name == "figure" else "right", no_wrap=True)
    document = machine.document
    parts = {"accelerator": document["accelerator"]}
    parts |= {f"network: {tier['name']}": tier for tier in document["network"]}
    parts |= {f"software: {stack['stack']}": stack for stack in document["software"][:1]}
    for part, entries in parts.items():
        measured = {
            name: figure
            for name, figure in entries.items()
            if isinstance(figure, dict) and figure.get("basis") == "measured"
        }
        if measured:
            table.add_row(part, style="bold")
        for name, figure in measured.items():
            table.add_row(f"  {name}", *(_cell(name, figure.get(end)) for end in ("value", "low", "high")))
    out.print(table)
    paragraphs(["Low and high: the same from the times that 5 and 95 of 100 samples are below."], out)


def _cell(name: str, value: object) -> str:
    """Return a figure as the system file spells it; durations of software, bare numbers there, get a unit."""
    if value is None:
        return ""
    return seconds(float(str(value))) if name.endswith("_seconds") else str(value)


def _errors(machine: "MeasuredMachine", out: Console) -> None:
    """Print the prediction errors of the machine file on its own benchmarks."""
    out.print(heading("How well the file tells its own tables"))
    table = borderless_table(gap=2)
    for name in ("what", "rows", "MAPE", "bias", "worst"):
        table.add_column(name, justify="left" if name in ("what", "worst") else "right", no_wrap=True)
    for error in machine.errors:
        is_total = error.kind == "all"
        cells = (
            f"{error.family} {error.kind}",
            str(error.rows),
            f"{error.mape:.1%}",
            f"{error.bias:+.1%}",
            error.worst.split("/", 1)[1],
        )
        table.add_row(*cells, style="bold" if is_total else None)
    out.print(table)
    paragraphs(
        [
            "Predicted over measured median, less 1, of kernels and collectives one by one; a training step also depends on how "
            "they follow each other. Memory: kernels that move 1 MiB and more. Collectives are large from 256 KiB."
        ],
        out,
    )
