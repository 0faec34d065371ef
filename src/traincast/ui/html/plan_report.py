"""HTML report on one plan, and what all reports on plans show: time, memory, cost and uncertainty."""

from collections.abc import Callable, Iterator, Mapping

from traincast.core import (
    COLUMNS,
    Column,
    format_signed,
    gib,
    long_duration,
    probability_text,
    rate_text,
    seconds,
    seconds_with_interval,
)
from traincast.planner import MIN_CHANGE_REPORTED, sensitivity, short_of
from traincast.step import Estimate, Metrics, metrics, require_one_plan
from traincast.ui.html.rendering import Page, Table, Tiles, share_table
from traincast.ui.html.sources import foundations
from traincast.ui.text import headline
from traincast.ui.text import plans as text
from traincast.ui.text.plans import whole_memory
from traincast.ui.text.ranking import knob_text, knobs_of


def page(est: Estimate, measures: Metrics | None = None, remarks_: list[str] | None = None) -> Page:
    """Return the report on one plan.

    Metrics are those of the model's and the system's own figures, and remarks the usual ones, if left out.
    """
    require_one_plan(est, "report")
    content = plan_content(est, metrics(est) if measures is None else measures)
    content |= sensitivity_content(sensitivity(est)) | _operations(est)
    content["shortfall"] = [] if est.verdict == "fits" else shortfall(est)
    lines = remarks_ or text.remarks(est)
    return Page("Estimate of a plan", text.title(est), lines, "plan.html.jinja", content, bool(est.fits))


def plan_content(est: Estimate, measures: Metrics) -> dict[str, object]:
    """Return what the answer, `plan_sections` and `foundations` show of one plan."""
    from traincast.ui.figures import time_waterfall

    time = est.step_seconds
    step = seconds(time)
    if est.interval is not None:
        step = f"{seconds_with_interval(time, *map(float, est.interval))} with a probability of 90%)"
    return {
        "est": est,
        "plan": str(est.plan),
        "step": step,
        "whole_run": _whole_run(measures),
        "summary": list(_summary(est, measures)),
        "knobs": _knobs(est),
        "step_time": seconds(time),
        "largest": max(est.breakdown, key=lambda name: float(est.breakdown[name])),
        "time_figure": time_waterfall(est),
        "time_table": share_table(
            "Time of a step by what it is spent on", "time", est.breakdown, seconds, time, est.plan
        ),
        "memory": memory_content(est),
        "metric_tables": metric_tables(measures),
        "unknown_metrics": unknown_metrics(measures),
        "subjects": foundations(est.model, est.system, est.assumptions),
        **_uncertainty(est),
    }


def _whole_run(measures: Metrics) -> str:
    """Return length and cost of the whole run, where known, as the end of a sentence."""
    if measures.days is None:
        return ""
    cost = "" if measures.cost is None else f" and {_money(float(measures.cost))}"
    return f", the whole run {headline.days(measures.days)}{cost}"


def _money(value: float) -> str:
    """Return a sum of money [$] as text: ``"$11.4 M"``."""
    return f"${rate_text(value, '')}".strip()


def shortfall(est: Estimate, advice: bool = True) -> list[str]:
    """Return how much memory a plan is short of and, as advice, single changes that would make it fit."""
    return [line.strip() for line in short_of(est, advice).splitlines()]


def _summary(est: Estimate, measures: Metrics) -> Tiles:
    ends = " to ".join(seconds(float(end)) for end in est.interval or ())
    yield "Time of a step", seconds(est.step_seconds), ends and f"90%: {ends}"
    all_gpus = f"{float(measures.tokens_per_second):,.0f} token/s in all"
    yield "Throughput of a GPU", f"{est.tokens_per_second_per_gpu:,.0f} token/s", all_gpus
    capacity = f"of {gib(float(est.system.accelerator.visible_bytes))}"
    if est.fits_probability is not None:
        capacity += f", {probability_text(est.fits_probability)} likely to fit"
    yield "Memory of a GPU", gib(est.memory_bytes), capacity
    if measures.mfu is not None:
        flops = rate_text(float(measures.flops_per_second_per_gpu["megatron"]), "FLOP/s")
        mfu = f"{float(measures.mfu['megatron']):.1%}"
        yield (
            f"Utilisation{headline.of_peak(est.plan)} (MFU)",
            mfu,
            f"{flops} of a GPU, Megatron's convention",
        )
    if measures.days is not None:
        gpu_hours = f"{rate_text(float(measures.gpu_hours or 0), '')} GPU-hours, failures aside"
        yield "The whole run", headline.days(measures.days), gpu_hours
    if measures.cost is not None and measures.gpu_hours:
        price = float(measures.cost) / float(measures.gpu_hours)
        yield "Its price", _money(float(measures.cost)), f"at ${price:,.2f} for a GPU and hour"
    if measures.energy_kwh is not None:
        carbon = "" if measures.carbon_kg is None else f"{float(measures.carbon_kg) / 1000:,.0f} t CO2e"
        yield "Its electricity", rate_text(float(measures.energy_kwh) * 1000, "Wh"), carbon


def _knobs(est: Estimate) -> Table:
    plan = est.plan
    values = est.to_dict()["plan"]
    names = [name for name in knobs_of([plan]) if knob_text(plan, name)]
    names += ["precision", *(name for name in values if name.startswith("fast_") and values[name] > 1)]
    rows = [(name, str(values[name]), COLUMNS[name].meaning) for name in names]
    header = ("knob", "value", "meaning")
    return Table("What the plan sets, other than the default", header, rows, header[1:])


def memory_content(est: Estimate) -> dict[str, object]:
    """Return the memory of every stage as a figure, and of the fullest rank as a table."""
    from traincast.ui.figures import memory_timeline, stage_memory

    stages = int(est.plan.pp)
    (whole, words) = whole_memory(est)
    memory = gib(est.memory_bytes)
    capacity = gib(float(est.system.accelerator.visible_bytes))
    line = "the dashed line is what an accelerator has"
    return {
        "stages": stage_memory(est) if stages > 1 else None,
        "stages_caption": f"Memory of every stage of the pipeline; {line}.",
        "stages_alternative": f"Stacked bars: the fullest of {stages} stages holds {memory} of {capacity}",
        "figure": memory_timeline(est),
        "caption": f"Memory of the fullest rank over a step, a level for each phase; {line}.",
        "alternative": f"Stacked areas: most memory, {memory} of {capacity}, in phase {est.memory_phase}",
        "table": share_table(
            f"Memory of the fullest rank, {words}", "memory", est.memory, gib, whole, est.plan
        ),
    }


def metric_tables(measures: Metrics) -> list[Table]:
    """Return utilisation by convention, and the metrics of the job and of the whole run."""
    shares = {name: values for name, values in (("MFU", measures.mfu), ("HFU", measures.hfu)) if values}
    flops_rows = [
        (
            name,
            rate_text(float(flops), "FLOP/s"),
            *(f"{float(values[name]):.1%}" for values in shares.values()),
        )
        for name, flops in measures.flops_per_second_per_gpu.items()
    ]
    header = ("convention", "FLOP/s", *shares)
    job = "The job and the whole run, failures aside where nothing else is said"
    return [
        Table("Model FLOPs and utilisation of a GPU, by convention", header, flops_rows),
        Table(job, ("metric", "value"), list(_job_rows(measures))),
    ]


def unknown_metrics(measures: Metrics) -> list[str]:
    """Return which input is missing for each metric that is not known."""
    missing = measures.missing.items()
    return [f"{name.replace('_', ' ')}: give {' and '.join(needed)}" for name, needed in missing]


def _job_rows(measures: Metrics) -> Iterator[tuple[str, str]]:
    """Yield the known metrics of the job and of the whole run."""
    job_metrics: tuple[tuple[str, Column | None, Callable[[float], str]], ...] = (
        ("throughput of all GPUs", measures.tokens_per_second, lambda value: f"{value:,.0f} token/s"),
        ("optimizer steps", measures.steps, lambda value: f"{value:,.0f}"),
        ("length", measures.days, headline.days),
        ("GPU-hours", measures.gpu_hours, lambda value: f"{value:,.0f}"),
        ("price", measures.cost, _money),
        ("electricity", measures.energy_kwh, lambda value: rate_text(value * 1000, "Wh")),
        ("emissions", measures.carbon_kg, lambda value: f"{value / 1000:,.0f} t CO2e"),
        ("a checkpoint", measures.checkpoint_bytes, gib),
        ("time to write it", measures.checkpoint_seconds, seconds),
        ("time between two", measures.checkpoint_interval, long_duration),
        ("time of checkpoints in a step, on the mean", measures.checkpoint_stall, seconds),
        ("mean time between failures", measures.mtbf_seconds, long_duration),
        ("share of the time that trains (goodput)", measures.goodput, lambda value: f"{value:.1%}"),
        ("length with failures", measures.effective_days, headline.days),
    )
    return ((name, form(float(value))) for name, value, form in job_metrics if value is not None)


def sensitivity_content(gains: Mapping[str, float]) -> dict[str, object]:
    """Return what better hardware would gain."""
    relevant = {name: change for name, change in gains.items() if abs(change) > MIN_CHANGE_REPORTED}
    rows = [(name, format_signed(relevant[name])) for name in sorted(relevant, key=relevant.__getitem__)]
    caption = "Change of the step time where one figure is 10% better, the plan as it is"
    return {
        "gains": Table(caption, ("figure", "step time"), rows),
        "no_gains": [name for name in gains if name not in relevant],
    }


def _operations(est: Estimate) -> dict[str, object]:
    from traincast.ui.figures import roofline

    caption = "Operations of one micro-batch, once for each kind of layer"
    header = ("operation", "layer", "forward", "backward", "work", "traffic", "communication", "saved")
    table = Table(caption, header, list(text.operation_rows(est)), ("layer",))
    return {"roofline": roofline(est), "operations": table}


def _uncertainty(est: Estimate) -> dict[str, object]:
    """Return intervals, and in which respects the plan lies outside of measured runs."""
    interval = None
    if est.interval is not None:
        ends = " to ".join(seconds(float(end)) for end in est.interval)
        probability = probability_text(est.fits_probability or 0)
        interval = [
            ("Time of a step", f"90% interval: {ends}"),
            *([("Uncertain by", "; ".join(map(str, est.widths)))] if est.widths else []),
            ("Memory", f"the plan fits with a probability of {probability}"),
        ]
    idealised = not est.assumptions.kernels.sustained_rates
    return {"interval": interval, "idealised": idealised, "outside": est.outside}
