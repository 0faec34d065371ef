"""Results for people: tables and bars that read well at 80 columns and in a pipe."""

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from traincast.columns import Column
from traincast.estimate import Estimate
from traincast.explain import Explanation, label
from traincast.plan import STRATEGIES, Plan
from traincast.reproduce import Reproduction
from traincast.search import Found
from traincast.units import gib, rate, seconds

WIDTH: Final = 80
BAR: Final = 32


def console() -> Console:
    """A console on standard output: as wide as the terminal, never under 80 columns (a table is not cut), and 80 in a pipe."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    width = max(WIDTH, shutil.get_terminal_size().columns) if terminal else WIDTH
    return Console(width=width, highlight=False)


def print_found(found: Found, explanation: Explanation, elapsed: float, out: Console) -> None:
    """The best plans, the winner in detail, and why the alternatives lose."""
    header(found, found.gpus, out)
    share = found.feasible / max(found.candidates, 1)
    out.print(f"{found.candidates:,} candidates, {found.feasible:,} fit ({share:.0%}); searched in {seconds(elapsed)}\n")
    if found.best is not None:
        out.print(ranking(found.plans))
        out.print(Text(f"fast: members of tp·(tp2 or cp)·pp·dp groups in one domain of {found.system.fast_domain}\n", style="dim"))
        print_breakdowns(found.best[1], out)
        out.print(heading("Why"))
    paragraphs(explanation.lines(), out)
    out.print(heading(f"Rejected by a rule, or by memory (of {found.candidates:,} candidates that met the rules)"))
    out.print(rejections(found.rejected))


def header(est: Found | Estimate, gpus: int, out: Console) -> None:
    """What is being answered."""
    model = est.model
    out.print(Text(f"{model.name} ({rate(model.parameters, ' parameters')}) on {gpus:,} × {est.system.name}", style="bold"))
    out.print(f"a step: {est.gbs:,} sequences of {model.seq:,} tokens; assumptions: {est.assumptions.name}")


def heading(text: str) -> Text:
    """Title of a part."""
    return Text(f"\n{text}", style="bold")


def ranking(plans: list[tuple[Plan, Estimate]]) -> Table:
    """The best plans, one a row; `fast` is how many members of tp · tp2 or cp · pp · dp groups share a fast domain."""
    table = _table(gap=1)  # twelve columns in 80
    for name in ("#", "step", "memory", "strategy", "tp", "tp2", "cp", "pp", "dp", "mbs", "panels", "fast"):
        table.add_column(name, justify="left" if name in {"strategy", "fast"} else "right", no_wrap=True)
    for rank, (plan, est) in enumerate(plans, 1):
        degrees = {"tp": plan.tp, "tp2": plan.tp2, "cp": plan.cp, "pp": plan.pp, "dp": plan.dp, "mbs": plan.mbs, "nb": plan.panels}
        second = STRATEGIES[plan.strategy].second
        unused = {"tp2", "cp", "nb"} - ({second, "nb"} if second == "tp2" else {second})
        cells = ("" if name in unused else str(degree) for name, degree in degrees.items())
        table.add_row(str(rank), seconds(float(est.step_seconds)), gib(float(est.memory_bytes)), plan.strategy, *cells, _fast(plan))
    return table


def _fast(plan: Plan) -> str:
    """Members in one fast domain."""
    return "·".join(str(getattr(plan, f"fast_{axis}")) for axis in STRATEGIES[plan.strategy].axes)


def print_breakdowns(est: Estimate, out: Console) -> None:
    """Where the step's time and the rank's memory go."""
    plan = est.plan
    out.print(Text(f"Plan: {plan}", style="bold"))
    title = f"Time of a step: {seconds(float(est.step_seconds))}, {float(est.tokens_per_second_per_gpu):,.0f} token/s/GPU"
    days = est.training_days
    out.print(heading(title if days is None else f"{title}, {_days(days)} in all"))
    out.print(bars(est.breakdown, seconds, float(est.step_seconds)))
    capacity = float(est.system.accelerator.hbm_bytes)
    fits = "fits in" if est.fits else "does not fit in"
    out.print(heading(f"Memory of a rank: {gib(float(est.memory_bytes))}, {fits} {gib(capacity)}"))
    out.print(bars(est.memory, gib, max(capacity, float(est.memory_bytes))))


def _days(days: Column) -> str:
    """A number of days, in whole days where there are many."""
    return f"{days:,.0f} days" if days >= 100 else f"{days:.3g} days"


def bars(parts: Mapping[str, Column], form: Callable[[float], str], whole: float) -> Table:
    """Parts of a whole, each with its share as a bar."""
    table = _table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for name, value in parts.items():
        share = float(value) / whole
        table.add_row(label(name), form(float(value)), f"{share:.1%}", Text("█" * round(share * BAR), style="cyan"))
    return table


def rejections(rejected: Mapping[str, int]) -> Table:
    """Candidates rejected, by reason."""
    table = _table(show_header=False)
    table.add_column(justify="right")
    table.add_column()
    for reason, count in rejected.items():
        table.add_row(f"{count:,}", reason)
    return table


def print_operations(est: Estimate, out: Console) -> None:
    """Every operation of a layer: FLOPs, bytes and seconds of one micro-batch."""
    table = _table(gap=1)
    for name in ("operation", "forward", "backward", "work", "traffic", "comm", "saved"):
        table.add_column(name, justify="left" if name == "operation" else "right", no_wrap=True)
    for row in est.operations():
        flops = sum(row[f"{way}_{unit}_flops"] for way in ("forward", "backward") for unit in ("matrix", "vector"))
        table.add_row(
            *(row["operation"], seconds(row["forward_seconds"]), seconds(row["backward_seconds"] + row["again_seconds"])),
            *(rate(flops, "FLOP"), gib(row["forward_bytes"] + row["backward_bytes"])),
            *(seconds(row["forward_comm_seconds"] + row["backward_comm_seconds"]), gib(row["saved_bytes"])),
        )
    out.print(heading("One layer, one micro-batch"))
    out.print(table)


def print_reproduction(result: Reproduction, out: Console) -> None:
    """How far the published searches are met, and what the errata change."""
    out.print(Text("arXiv 2410.00273 recomputed", style="bold"))
    rate = result.evaluated / result.seconds / 1e6
    out.print(
        f"{result.candidates:,} candidates in each of two variants enumerated, fitted and\n"
        f"timed in {seconds(result.seconds)}: {rate:.1f} M candidates/s"
    )
    out.print(heading("Published configurations (GPT3-1T): step time, memory and components"))
    table = _table()
    for name in ("strategy", "plans", "worst difference", "errata 1+2+3: time", "memory"):
        table.add_column(name, justify="left" if name == "strategy" else "right")
    for row in result.configurations:
        moved = (f"up to {row.errata_seconds['all']:.2%}", f"up to {row.errata_memory['all']:.2%}")
        table.add_row(row.strategy, str(row.configurations), f"{row.worst_difference:.1e}", *moved)
    out.print(table)
    out.print(heading("Searches: 9 machines × 13 numbers of GPUs each"))
    table = _table()
    for name in ("model", "strategy", "candidates", "fit", "agree", "worst difference"):
        table.add_column(name, justify="left" if name in {"model", "strategy"} else "right")
    for line in result.searches:
        met = f"{line.agreeing}/{line.compared}" if line.compared else "-"
        worst = "-" if line.worst_difference is None else f"{line.worst_difference:.1e}"
        table.add_row(line.model, line.strategy, f"{line.candidates:,}", f"{line.feasible:,}", met, worst)
    out.print(table)
    out.print(heading("Optimal step time, errata corrected against published"))
    table = _table()
    for name in ("model", "strategy", "mean", "median", "lowest", "highest", "feasibility changed"):
        table.add_column(name, justify="left" if name in {"model", "strategy"} else "right")
    for line in result.searches:
        change = [f"{value:+.1%}" for value in line.optima_change.values()] or ["nothing fits", "", "", ""]
        table.add_row(line.model, line.strategy, *change, str(line.feasibility_changes))
    out.print(table)
    out.print(Text("\nEvery published figure is met." if result.agrees else "\nNot every published figure is met.", style="bold"))


def print_figures(title: str, rows: Iterable[tuple[str, str, str]], out: Console) -> None:
    """Figures of a catalogue entry: path, value with unit, source."""
    out.print(Text(title, style="bold"))
    table = _table()
    for name in ("figure", "value", "source"):
        table.add_column(name, justify="right" if name == "value" else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    out.print(table)


def print_names(title: str, names: Iterable[str], out: Console) -> None:
    """A list of names."""
    out.print(heading(title))
    paragraphs([", ".join(names)], out)


def paragraphs(lines: Iterable[str], out: Console) -> None:
    """Sentences wrapped to the width, each further line indented a little deeper than its first."""
    for line in "\n".join(lines).splitlines():
        indent = len(line) - len(line.lstrip())
        wrapped = textwrap.wrap(line.strip(), out.width - indent, subsequent_indent="  ", break_on_hyphens=False)
        out.print("\n".join(" " * indent + part for part in wrapped), markup=False)


def _table(show_header: bool = True, gap: int = 2) -> Table:
    return Table(box=None, show_header=show_header, header_style="dim", pad_edge=False, padding=(0, gap, 0, 0))
