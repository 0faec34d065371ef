"""Terminal tables and bars of plans, estimates and searches, readable at 80 columns and in a pipe."""

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from traincast.analysis.paper_results import Reproduction
from traincast.core.assumptions import PAPER
from traincast.core.knobs import CHOICES, STRATEGIES
from traincast.core.plan import Plan
from traincast.core.quantities import Column
from traincast.core.units import GIB, count_of, gib, rate, seconds, seconds_with_interval
from traincast.planner.explain import Explanation
from traincast.planner.misfit import label, whole_memory
from traincast.planner.search import Found
from traincast.step.estimate import Estimate, usual_assumptions
from traincast.step.metrics import Metrics

WIDTH: Final = 80
BAR_CHARACTERS: Final = 32  # length of a full bar
ALWAYS_SHOWN: Final = ("tp", "pp", "dp", "mbs")
RANKING_KNOBS: Final = (
    *("tp", "tp2", "cp", "ulysses", "pp", "vp", "dp", "replicas", "ep", "etp", "mbs", "panels"),
    *("zero", "schedule", "recompute", "offload", "tp_overlap", "ep_overlap", "order"),
)
SHORT_KNOBS: Final = {"tp_overlap": "overlap", "ep_overlap": "ep ov", "ulysses": "uly", "replicas": "repl"}
SHORT_COMPONENTS: Final = {  # column titles of memory components
    "gradients": "grads",
    "optimizer": "optim.",
    "activations": "activ.",
    "gathered": "gath.",
    "workspace": "work.",
}
DEFAULT_PLAN: Final = Plan()


def console() -> Console:
    """Return a console on standard output: as wide as the terminal, at least 80 columns so that no table is cut; 80 in a pipe."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    width = max(WIDTH, shutil.get_terminal_size().columns) if terminal else WIDTH
    return Console(width=width, highlight=False)


def print_search(
    result: Found, explanation: Explanation, elapsed: float, measures: Metrics, out: Console
) -> None:
    """Print the best plans, the fastest in detail, and why the alternatives lose."""
    share = result.feasible / max(result.candidates, 1)
    out.print(f"search space: {result.framework.name}, {result.framework.about}")
    out.print(
        f"{result.candidates:,} candidates, {result.feasible:,} fit ({share:.0%}); searched in {seconds(elapsed)}\n"
    )
    if result.best is not None:
        out.print(ranking_table(result.plans, _gpu_hour_price(result, measures)))
        listed = [plan for plan, _ in result.plans]
        out.print(Text(fast_legend(listed, result.system.fast_domain), style="dim"))
        if result.best[1].interval is not None:
            out.print(
                Text("90%: how far a measured step may be off; fits: how likely the plan fits", style="dim")
            )
        out.print()
        if result.within_3_percent is not None:
            first, any_of = map(probability_text, result.within_3_percent)
            more = f", {any_of} for one of these {len(result.plans)}" if len(result.plans) > 1 else ""
            paragraphs(
                [f"Probability of being within 3% of the best candidate: {first} for the first{more}."], out
            )
            out.print()
        print_breakdowns(result.best[1], out)
        print_metrics(measures, out)
        out.print(heading("Why"))
    paragraphs(explanation.lines(), out)
    out.print(heading("Rejected, by the first rule broken, or by memory where all rules are met"))
    out.print(rejection_table(result.rejected))


def print_header(est: Found | Estimate, out: Console, usual_batch: bool = False, timed: bool = True) -> None:
    """Print the title of an answer and the remarks on it."""
    out.print(Text(title(est), style="bold"))
    for line in remarks(est, usual_batch, timed):
        out.print(line)


def title(est: Found | Estimate) -> str:
    """Return model, parameters, number of GPUs and system in a line."""
    gpus = est.gpus if isinstance(est, Found) else int(est.plan.gpus)
    return f"{est.model.title} ({rate(est.model.parameters, ' parameters')}) on {count_of(gpus, 'GPU')} of {est.system.name}"


def remarks(est: Found | Estimate, usual_batch: bool = False, timed: bool = True) -> list[str]:
    """Return remarks on the batch, the assumptions and the calibration; `usual_batch` if the model has no batch of its own."""
    model = est.model
    batch = (
        f"{count_of(est.gbs, 'sequence')} of {model.seq:,} tokens ({rate(est.gbs * model.seq, ' tokens')})"
    )
    lines = [f"a step: {batch}; assumptions: {est.assumptions.name}"]
    if usual_batch:
        lines.append(
            f"{model.name} has no global batch of its own: this one is taken unless --global-batch says otherwise"
        )
    if est.assumptions.name == PAPER.name == usual_assumptions(model):
        lines.append("paper is the default for a model without a vocabulary (see --assumptions)")
    if timed and est.assumptions.errors_known:
        lines.append("times are calibrated to published runs; 90% of other runs lie within the limits")
    elif timed and not est.assumptions.kernels.sustained_rates:
        lines.append("times are those of an idealised machine, not calibrated to a real one")
    return lines


def heading(text: str) -> Text:
    """Return the title of a section, in bold, after an empty line."""
    return Text(f"\n{text}", style="bold")


def _gpu_hour_price(result: Found, measures: Metrics) -> float | None:
    """Return the price of a GPU hour [$] where plans are ranked by cost and it is known."""
    if result.objective != "cost" or measures.cost is None or not measures.gpu_hours:
        return None
    return float(measures.cost) / float(measures.gpu_hours)


def ranking_table(plans: list[tuple[Plan, Estimate]], price: float | None = None) -> Table:
    """Return a table of the best plans, one a row, with the knobs and choices that any of them uses.

    `90%` is by how much a measured step may be off; `fast` is how many members of each axis' group share a fast domain.
    With a price [$/h of a GPU] it shows the cost of a million tokens.
    """
    table = borderless_table(gap=1)
    shown = knobs_of([plan for plan, _ in plans])
    limits = plans[0][1].interval is not None
    for name in ("#", *(("step", "90%", "GiB", "fits") if limits else ("step", "memory")), "strategy"):
        table.add_column(name, justify="left" if name == "strategy" else "right", no_wrap=True)
    for name in shown:
        table.add_column(
            SHORT_KNOBS.get(name, name),
            justify="left" if name in CHOICES else "right",
            no_wrap=name not in CHOICES,
        )
    table.add_column("fast", no_wrap=True)
    if price is not None:
        table.add_column("$/Mtoken", justify="right", no_wrap=True)
    for rank, (plan, est) in enumerate(plans, 1):
        cells = (knob_text(plan, name) for name in shown)
        row_cells = (str(rank), *_time_and_memory(est), plan.strategy, *cells, fast_members(plan))
        cost = () if price is None else (f"{price / 3600 / float(est.tokens_per_second_per_gpu) * 1e6:.3f}",)
        table.add_row(*row_cells, *cost)
    return table


def knobs_of(plans: Sequence[Plan]) -> list[str]:
    """Return the knobs and choices that any of the plans uses."""
    return [
        name for name in RANKING_KNOBS if name in ALWAYS_SHOWN or any(knob_text(plan, name) for plan in plans)
    ]


def _time_and_memory(est: Estimate) -> tuple[str, ...]:
    """Return time and memory of a plan, with interval and probability that it fits where errors are known."""
    time, memory = seconds(float(est.step_seconds)), gib(float(est.memory_bytes))
    if est.interval is None or est.fits_probability is None:
        return time, memory
    high = float(est.interval[1])
    return (
        time,
        f"±{high / float(est.step_seconds) - 1:.0%}",
        memory.removesuffix(" GiB"),
        probability_text(est.fits_probability),
    )


def probability_text(share: Column) -> str:
    """Return a probability as text, never 0% or 100%."""
    return "<1%" if share < 0.005 else ">99%" if share > 0.995 else f"{float(share):.0%}"


def knob_text(plan: Plan, name: str) -> str:
    """Return a knob or choice of a plan as text; empty where it has its default value or does not apply."""
    value, second = getattr(plan, name), STRATEGIES[plan.strategy].second
    if name == "order":  # only the axes that differ from the default
        value = "" if value == DEFAULT_PLAN.order else value.removeprefix("tp-cp-")
    if isinstance(value, bool):
        value = "" if value == getattr(DEFAULT_PLAN, name) else "on" if value else "off"
    in_strategy = {"tp2": second == "tp2", "cp": second == "cp", "panels": second == "tp2"}
    return (
        str(value)
        if in_strategy.get(name, name in ALWAYS_SHOWN or value not in ("", getattr(DEFAULT_PLAN, name)))
        else ""
    )


def fast_members(plan: Plan) -> str:
    """Return how many members of the group of each axis share a fast domain."""
    return "·".join(str(getattr(plan, f"fast_{axis}")) for axis in STRATEGIES[plan.strategy].axes)


def fast_legend(plans: Sequence[Plan], domain: int) -> str:
    """Return the legend of the column `fast`: which fields it has for each strategy listed."""
    fields = {plan.strategy: "·".join(STRATEGIES[plan.strategy].axes) for plan in plans}
    groups = ", ".join(f"{axes} ({strategy})" for strategy, axes in fields.items())
    return f"fast: members of {groups} groups in one domain of {domain}"


def print_breakdowns(est: Estimate, out: Console) -> None:
    """Print step time and memory by component."""
    plan = est.plan
    out.print(Text(f"Plan: {plan}", style="bold"))
    time = float(est.step_seconds)
    time_text = (
        seconds(time)
        if est.interval is None
        else f"{seconds_with_interval(time, *map(float, est.interval))}, 90%)"
    )
    title = f"Time of a step: {time_text}, {float(est.tokens_per_second_per_gpu):,.0f} token/s/GPU"
    training_days = est.training_days
    out.print(heading(title if training_days is None else f"{title}, {days(training_days)} in all"))
    out.print(bar_table(est.breakdown, seconds, float(est.step_seconds)))
    if est.outside:
        paragraphs([f"Limits are wider, being outside of measured runs: {'; '.join(est.outside)}."], out)
    print_memory(est, out)


def print_memory(est: Estimate, out: Console) -> None:
    """Print the memory of the fullest rank by component."""
    capacity = float(est.system.accelerator.hbm_bytes)
    fits = "fits in" if est.fits else "does not fit in"
    probability = (
        "" if est.fits_probability is None else f" (probability {probability_text(est.fits_probability)})"
    )
    out.print(
        heading(f"Memory of a rank: {gib(float(est.memory_bytes))}, {fits} {gib(capacity)}{probability}")
    )
    scale, sentence = whole_memory(est)
    if not est.fits:
        out.print(sentence)
    out.print(bar_table(est.memory, gib, scale))


def print_metrics(measures: Metrics, out: Console) -> None:
    """Print throughput, utilisation by convention, and totals of the whole run."""
    lines = []
    flops = {name: rate(float(value), "FLOP/s") for name, value in measures.flops_per_second_per_gpu.items()}
    if measures.mfu is None:
        lines.append(
            f"{flops['megatron']} per GPU (megatron); MFU: not known, {measures.missing['mfu'][0]} is missing"
        )
    else:
        shares = ", ".join(
            f"{float(value):.1%} ({name})" for name, value in measures.mfu.items() if name != "6n"
        )
        lines.append(f"{flops['megatron']} per GPU (megatron); MFU {shares}")
        if any(float(value) > 1 for name, value in measures.mfu.items() if name != "6n"):
            lines.append(
                "above 100%: the convention counts attention in full, of which a causal kernel skips the masked half"
            )
    run_totals = [
        f"{float(measures.gpu_hours):,.3g} GPU-hours" if measures.gpu_hours is not None else "",
        f"${float(measures.cost):,.3g}" if measures.cost is not None else "",
        f"{float(measures.energy_kwh) / 1000:,.3g} MWh" if measures.energy_kwh is not None else "",
        f"{float(measures.carbon_kg) / 1000:,.3g} tCO2e" if measures.carbon_kg is not None else "",
    ]
    if any(run_totals):
        lines.append(f"the whole run: {', '.join(filter(None, run_totals))}, failures aside")
    if measures.goodput is not None and measures.checkpoint_interval is not None:
        often = seconds(float(measures.checkpoint_interval))
        whole_run = "" if measures.effective_days is None else f", {days(measures.effective_days)} with them"
        lines.append(
            f"goodput {float(measures.goodput):.1%}: failures, restarts and a checkpoint every {often}{whole_run}"
        )
    out.print(heading("Utilisation and cost"))
    paragraphs(lines, out)


def print_devices(est: Estimate, out: Console) -> None:
    """Print the memory of every pipeline stage by component; equal stages share a line."""
    plan = est.plan
    out.print(Text(f"Plan: {plan}", style="bold"))
    stages = est.devices()
    named = [
        name
        for name in stages[0]["memory_by_component_bytes"]
        if any(stage_row["memory_by_component_bytes"][name] for stage_row in stages)
    ]
    table = borderless_table(gap=1)
    for name in ("stage", *named, "all"):
        table.add_column(SHORT_COMPONENTS.get(name, name), justify="right", no_wrap=True)
    for first, last in _equal_runs([stage_row["memory_by_component_bytes"] for stage_row in stages]):
        memory = stages[first]["memory_by_component_bytes"]
        stage = str(first) if first == last else f"{first}-{last}"
        table.add_row(
            stage,
            *(f"{memory[name] / GIB:.2f}" for name in named),
            f"{stages[first]['memory_bytes'] / GIB:.2f}",
        )
    capacity = float(est.system.accelerator.hbm_bytes)
    out.print(heading(f"Memory of every stage [GiB]; the accelerator has {capacity / GIB:.1f}"))
    out.print(table)
    print_memory(est, out)


def _equal_runs(rows: Sequence[Mapping[str, Column]]) -> Iterator[tuple[int, int]]:
    """Yield the first and last index of each run of equal rows."""
    first = 0
    for i in range(1, len(rows) + 1):
        if i == len(rows) or rows[i] != rows[first]:
            yield first, i - 1
            first = i


def days(number: Column) -> str:
    """Return a number of days as text, rounded to whole days from 100 on."""
    return f"{number:,.0f} days" if number >= 100 else f"{number:.3g} days"


def bar_table(parts: Mapping[str, Column], form: Callable[[float], str], total: float) -> Table:
    """Return a table of parts of a total, each with its share as a bar."""
    table = borderless_table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for name, value in parts.items():
        if not value:
            continue
        share = float(value) / total
        table.add_row(
            label(name),
            form(float(value)),
            f"{share:.1%}",
            Text("█" * round(share * BAR_CHARACTERS), style="cyan"),
        )
    return table


def rejection_table(rejected: Mapping[str, int]) -> Table:
    """Return a table of rejected candidates by reason."""
    table = borderless_table(show_header=False)
    table.add_column(justify="right")
    table.add_column()
    for reason, count in rejected.items():
        table.add_row(f"{count:,}", reason)
    return table


def print_operations(est: Estimate, out: Console) -> None:
    """Print FLOPs, bytes and seconds of every operation of a layer for one micro-batch."""
    table = borderless_table(gap=1)
    for name in ("operation", "forward", "backward", "work", "traffic", "comm", "saved"):
        table.add_column(name, justify="left" if name == "operation" else "right", no_wrap=True)
    for row in est.operations():
        flops = sum(
            row[f"{way}_{unit}_flops"] for way in ("forward", "backward") for unit in ("matrix", "vector")
        )
        table.add_row(
            *(
                row["operation"],
                seconds(row["forward_seconds"]),
                seconds(row["backward_seconds"] + row["again_seconds"]),
            ),
            *(rate(flops, "FLOP"), gib(row["forward_bytes"] + row["backward_bytes"])),
            *(seconds(row["forward_comm_seconds"] + row["backward_comm_seconds"]), gib(row["saved_bytes"])),
        )
    out.print(heading("One layer, one micro-batch"))
    out.print(table)


def print_reproduction(result: Reproduction, out: Console) -> None:
    """Print how well the published searches are reproduced, and what the errata change."""
    out.print(Text("arXiv 2410.00273 recomputed", style="bold"))
    rate = result.evaluated / result.seconds / 1e6
    out.print(
        f"{result.candidates:,} candidates in each of two variants enumerated, fitted and\n"
        f"timed in {seconds(result.seconds)}: {rate:.1f} M candidates/s"
    )
    out.print(heading("Published configurations (GPT3-1T): step time, memory and components"))
    table = borderless_table()
    for name in ("strategy", "plans", "worst difference", "errata 1+2+3: time", "memory"):
        table.add_column(name, justify="left" if name == "strategy" else "right")
    for row in result.configurations:
        moved = (f"up to {row.errata_seconds['all']:.2%}", f"up to {row.errata_memory['all']:.2%}")
        table.add_row(row.strategy, str(row.configurations), f"{row.worst_difference:.1e}", *moved)
    out.print(table)
    out.print(heading("Searches: 9 machines × 13 numbers of GPUs each"))
    table = borderless_table()
    for name in ("model", "strategy", "candidates", "fit", "agree", "worst difference"):
        table.add_column(name, justify="left" if name in {"model", "strategy"} else "right")
    for line in result.searches:
        met = f"{line.agreeing}/{line.compared}" if line.compared else "-"
        worst = "-" if line.worst_difference is None else f"{line.worst_difference:.1e}"
        table.add_row(line.model, line.strategy, f"{line.candidates:,}", f"{line.feasible:,}", met, worst)
    out.print(table)
    out.print(heading("Optimal step time, errata corrected against published"))
    table = borderless_table()
    for name in ("model", "strategy", "mean", "median", "lowest", "highest", "feasibility changed"):
        table.add_column(name, justify="left" if name in {"model", "strategy"} else "right")
    for line in result.searches:
        change = [f"{value:+.1%}" for value in line.optima_change.values()] or ["nothing fits", "", "", ""]
        table.add_row(line.model, line.strategy, *change, str(line.feasibility_changes))
    out.print(table)
    out.print(
        Text(
            "\nEvery published figure is met." if result.agrees else "\nNot every published figure is met.",
            style="bold",
        )
    )


def print_figures(title: str, rows: Iterable[tuple[str, str, str]], out: Console) -> None:
    """Print the figures of a catalogue entry: path, value with unit, source."""
    out.print(Text(title, style="bold"))
    table = borderless_table()
    for name in ("figure", "value", "source"):
        table.add_column(name, justify="right" if name == "value" else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    out.print(table)


def print_names(title: str, names: Iterable[str], out: Console) -> None:
    """Print a list of names under a title."""
    out.print(heading(title))
    paragraphs([", ".join(names)], out)


def paragraphs(lines: Iterable[str], out: Console) -> None:
    """Print sentences wrapped to the width, further lines indented slightly deeper than the first."""
    for line in "\n".join(lines).splitlines():
        indent = len(line) - len(line.lstrip())
        wrapped = textwrap.wrap(
            line.strip(), out.width - indent, subsequent_indent="  ", break_on_hyphens=False
        )
        out.print("\n".join(" " * indent + part for part in wrapped), markup=False)


def borderless_table(show_header: bool = True, gap: int = 2) -> Table:
    """Return an empty table without borders."""
    return Table(
        box=None, show_header=show_header, header_style="dim", pad_edge=False, padding=(0, gap, 0, 0)
    )
