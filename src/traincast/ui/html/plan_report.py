"""HTML report on one plan, and the sections that all reports on plans share: time, memory, cost and uncertainty."""

from collections.abc import Callable, Iterator, Mapping

from traincast.core.errors import InputError
from traincast.core.plan import Plan
from traincast.core.quantities import COLUMNS, Column
from traincast.core.units import gib, rate, seconds, seconds_with_interval, signed
from traincast.planner.explain import sensitivity
from traincast.planner.misfit import MIN_CHANGE_REPORTED, short_of, whole_memory
from traincast.step.estimate import Estimate
from traincast.step.metrics import Metrics, metrics
from traincast.ui.html.elements import (
    Html,
    Section,
    bars,
    code,
    element,
    items,
    joined,
    pairs,
    paragraph,
    table,
    tiles,
)
from traincast.ui.html.page import Page
from traincast.ui.html.sources import foundations
from traincast.ui.html.svg import drawing
from traincast.ui.text.plans import days, knob_text, knobs_of, probability_text, remarks, title


def page(est: Estimate, measures: Metrics | None = None, remarks_: list[str] | None = None) -> Page:
    """Return the report on one plan.

    Parameters
    ----------
    est : Estimate
        Of one plan.
    measures : Metrics, optional
        Throughput, utilisation and cost; those of the model's and the system's own figures if left out.
    remarks_ : list of str, optional
        Remarks on batch, assumptions and calibration; the usual ones if left out.

    Raises
    ------
    InputError
        If the estimate is of columns of plans.
    """
    measures = metrics(est) if measures is None else measures
    sentence = (
        paragraph(f"A step takes {step(est)}{whole_run(measures)}.")
        if est.fits
        else paragraph("The plan does not fit in memory.")
    )
    shortfall = Html() if est.fits else memory_shortfall(est, advice=True)
    answer = joined((sentence, paragraph(code(est.plan)), shortfall, summary(est, measures)))
    sections = (
        *plan_sections(est, measures),
        Section("sensitivity", "What binds", hardware_gains(sensitivity(est))),
        operations(est),
        *foundation_and_uncertainty(est, measures),
    )
    return Page("Estimate of a plan", title(est), remarks_ or remarks(est), answer, sections, bool(est.fits))


def _plan(est: Estimate) -> Plan:
    """Return the plan of an estimate; raise for columns of plans."""
    if not isinstance(est.plan, Plan):
        raise InputError("report", ["the estimate is of columns of plans: give one plan"])
    return est.plan


def step(est: Estimate) -> str:
    """Return the step time, with its 90% interval where it is known."""
    time = float(est.step_seconds)
    if est.interval is None:
        return seconds(time)
    return f"{seconds_with_interval(time, *map(float, est.interval))} with a probability of 90%)"


def whole_run(measures: Metrics) -> str:
    """Return length and cost of the whole run, where known, as the end of a sentence."""
    if measures.days is None:
        return ""
    return f", the whole run {days(measures.days)}" + (
        "" if measures.cost is None else f" and {money(float(measures.cost))}"
    )


def money(value: float) -> str:
    """Return a sum of money [$] as text: ``"$11.4 M"``."""
    return f"${rate(value, '')}".strip()


def memory_shortfall(est: Estimate, advice: bool = False) -> Html:
    """Return how much memory a plan is short of, and what would make it fit."""
    return items(line.strip() for line in short_of(est, advice).splitlines())


def summary(est: Estimate, measures: Metrics) -> Html:
    """Return the key figures as tiles."""
    return tiles(_summary(est, measures))


def _summary(est: Estimate, measures: Metrics) -> Iterator[tuple[str, object, object]]:
    """Yield name, value and remark of each key figure."""
    off = "" if est.interval is None else f"90%: {' to '.join(seconds(float(end)) for end in est.interval)}"
    yield "Time of a step", seconds(float(est.step_seconds)), off
    every = f"{float(measures.tokens_per_second):,.0f} token/s in all"
    yield "Throughput of a GPU", f"{float(est.tokens_per_second_per_gpu):,.0f} token/s", every
    sure = "" if est.fits_probability is None else f", {probability_text(est.fits_probability)} likely to fit"
    yield (
        "Memory of a GPU",
        gib(float(est.memory_bytes)),
        f"of {gib(float(est.system.accelerator.hbm_bytes))}{sure}",
    )
    if measures.mfu is not None:
        flops = rate(float(measures.flops_per_second_per_gpu["megatron"]), "FLOP/s")
        yield (
            "Utilisation (MFU)",
            f"{float(measures.mfu['megatron']):.1%}",
            f"{flops} of a GPU, Megatron's convention",
        )
    if measures.days is not None:
        yield (
            "The whole run",
            days(measures.days),
            f"{rate(float(measures.gpu_hours or 0), '')} GPU-hours, failures aside",
        )
    if measures.cost is not None and measures.gpu_hours:
        yield (
            "Its price",
            money(float(measures.cost)),
            f"at ${float(measures.cost) / float(measures.gpu_hours):,.2f} for a GPU and hour",
        )
    if measures.energy_kwh is not None:
        carbon = "" if measures.carbon_kg is None else f"{float(measures.carbon_kg) / 1000:,.0f} t CO2e"
        yield "Its electricity", rate(float(measures.energy_kwh) * 1000, "Wh"), carbon


def plan_sections(est: Estimate, measures: Metrics) -> tuple[Section, ...]:
    """Return the sections on a plan's knobs, time, memory and metrics."""
    return (
        Section("plan", "The plan", knobs(est)),
        Section("time", "Where the time goes", time_spent(est)),
        Section("memory", "Where the memory goes", memory_used(est)),
        Section("metrics", "Throughput, utilisation and cost", all_metrics(measures)),
    )


def knobs(est: Estimate) -> Html:
    """Return a table of every knob that differs from its default."""
    plan, summary = _plan(est), est.summary()["plan"]
    named = [name for name in knobs_of([plan]) if knob_text(plan, name)]
    named += ["precision", *(name for name in summary if name.startswith("fast_") and summary[name] > 1)]
    rows = ((name, str(summary[name]), COLUMNS[name].meaning) for name in named)
    knobs_table = table(
        "What the plan sets, other than the usual", ("knob", "value", "meaning"), rows, ("value", "meaning")
    )
    return joined((paragraph(code(plan)), knobs_table))


def time_spent(est: Estimate) -> Html:
    """Return the step time by component."""
    from traincast.ui.figures import time_waterfall

    largest = max(est.breakdown, key=lambda name: float(est.breakdown[name]))
    alternative = f"Bars: the components of a step of {seconds(float(est.step_seconds))}, one after the other; {largest} is the largest"
    drawn = drawing(
        "time-figure", time_waterfall(est), "The parts of a step, one after the other.", alternative
    )
    table_of_times = bars(
        "Time of a step by what it is spent on", "time", est.breakdown, seconds, float(est.step_seconds)
    )
    return element("div", drawn, table_of_times, class_="beside")


def memory_used(est: Estimate) -> Html:
    """Return the memory by component, of the fullest rank and of every stage."""
    from traincast.ui.figures import memory_waterfall, stage_memory

    capacity, stages = float(est.system.accelerator.hbm_bytes), int(est.plan.pp)
    figure, caption = (
        (
            stage_memory(est),
            "Memory of every stage of the pipeline; the dashed line is what an accelerator has.",
        )
        if stages > 1
        else (
            memory_waterfall(est),
            "Memory of a rank, part on part; the dashed line is what an accelerator has.",
        )
    )
    memory = gib(float(est.memory_bytes))
    drawn = drawing(
        "memory-figure",
        figure,
        caption,
        f"Stacked bars: the fullest of {stages} stages holds {memory} of {gib(capacity)}",
    )
    scale, capacity_text = whole_memory(est)
    bars_of_memory = bars(f"Memory of the fullest rank, {capacity_text}", "memory", est.memory, gib, scale)
    return element("div", drawn, bars_of_memory, class_="beside")


def all_metrics(measures: Metrics) -> Html:
    """Return metrics as tables, and which input is missing for the others."""
    shares = {name: values for name, values in (("MFU", measures.mfu), ("HFU", measures.hfu)) if values}
    rows = (
        (name, rate(float(flops), "FLOP/s"), *(f"{float(values[name]):.1%}" for values in shares.values()))
        for name, flops in measures.flops_per_second_per_gpu.items()
    )
    flops_table = table(
        "Model FLOPs and utilisation of a GPU, by convention", ("convention", "FLOP/s", *shares), rows
    )
    job_table = table(
        "The job and the whole run, failures aside where nothing else is said",
        ("metric", "value"),
        _job_rows(measures),
    )
    unknown = [
        f"{name.replace('_', ' ')}: give {' and '.join(needed)}" for name, needed in measures.missing.items()
    ]
    unknown_list = (element("h3", "Not known"), items(unknown)) if unknown else ()
    return joined((element("div", flops_table, job_table, class_="beside"), *unknown_list))


def _job_rows(measures: Metrics) -> Iterator[tuple[str, str]]:
    """Return the known metrics of the job and of the whole run."""
    metrics_shown: tuple[tuple[str, Column | None, Callable[[float], str]], ...] = (
        ("throughput of all GPUs", measures.tokens_per_second, lambda value: f"{value:,.0f} token/s"),
        ("optimizer steps", measures.steps, lambda value: f"{value:,.0f}"),
        ("length", measures.days, days),
        ("GPU-hours", measures.gpu_hours, lambda value: f"{value:,.0f}"),
        ("price", measures.cost, money),
        ("electricity", measures.energy_kwh, lambda value: rate(value * 1000, "Wh")),
        ("emissions", measures.carbon_kg, lambda value: f"{value / 1000:,.0f} t CO2e"),
        ("a checkpoint", measures.checkpoint_bytes, gib),
        ("time to write it", measures.checkpoint_seconds, seconds),
        ("time between two", measures.checkpoint_interval, _long_duration),
        ("mean time between failures", measures.mtbf_seconds, _long_duration),
        ("share of the time that trains (goodput)", measures.goodput, lambda value: f"{value:.1%}"),
        ("length with failures", measures.effective_days, days),
    )
    return ((name, form(float(value))) for name, value, form in metrics_shown if value is not None)


def _long_duration(value: float) -> str:
    """Return a duration as text, in days, hours or minutes where it is long."""
    for size, name in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if value >= 2 * size:
            return f"{value / size:.3g} {name}"
    return seconds(value)


def hardware_gains(moved: Mapping[str, float]) -> Html:
    """Return what better hardware would gain."""
    rows = [
        (name, signed(change))
        for name, change in sorted(moved.items(), key=lambda item: item[1])
        if abs(change) > MIN_CHANGE_REPORTED
    ]
    gains_table = table(
        "Change of the step time where one figure is 10% better, the plan as it is",
        ("figure", "step time"),
        rows,
    )
    idle = [name for name, change in moved.items() if abs(change) <= MIN_CHANGE_REPORTED]
    return joined((gains_table, *([paragraph(f"Nothing is gained by: {', '.join(idle)}.")] if idle else [])))


def operations(est: Estimate) -> Section:
    """Return the section on every operation of a layer."""
    from traincast.ui.figures import roofline

    alternative = "Points under the roofline of the accelerator, one for each operation of a layer and direction; larger ones take longer"
    caption = "Operations of one micro-batch under the accelerator's roofs; the area of a point is its time."
    drawn = drawing("roofline-figure", roofline(est), caption, alternative)
    rows = (
        (
            row["operation"],
            row["part"],
            seconds(row["forward_seconds"]),
            seconds(row["backward_seconds"] + row["again_seconds"]),
            rate(
                sum(
                    row[f"{way}_{unit}_flops"]
                    for way in ("forward", "backward")
                    for unit in ("matrix", "vector")
                ),
                "FLOP",
            ),
            gib(row["forward_bytes"] + row["backward_bytes"]),
            seconds(row["forward_comm_seconds"] + row["backward_comm_seconds"]),
            gib(row["saved_bytes"]),
        )
        for row in est.operations()
    )
    names = ("operation", "layer", "forward", "backward", "work", "traffic", "communication", "saved")
    operations_table = table(
        "Operations of one micro-batch, once for each kind of layer", names, rows, ("layer",)
    )
    return Section("operations", "Operations of a layer", joined((drawn, operations_table)))


def foundation_and_uncertainty(est: Estimate, measures: Metrics, *more: str) -> tuple[Section, ...]:
    """Return the sections on uncertainty, model, machine and assumptions."""
    return (
        Section("uncertainty", "How sure this is", interval_and_outside(est, *more)),
        *foundations(est.model, est.system, est.assumptions),
    )


def interval_and_outside(est: Estimate, *more: str) -> Html:
    """Return intervals, and in which respects the plan lies outside of measured runs."""
    if est.interval is None:
        idealised = "The step time is that of an idealised machine, a bound for comparing plans and machines: no interval is known for it."
        known = "No interval is known for these assumptions."
        return joined(
            (paragraph(known if est.assumptions.sustained_rates else idealised), *map(paragraph, more))
        )
    low, high = (seconds(float(end)) for end in est.interval)
    rows: list[tuple[str, object]] = [
        ("Time of a step", f"90% of measured times of such predictions lie within {low} and {high}"),
        ("Memory", f"the plan fits with a probability of {probability_text(est.fits_probability or 0)}"),
    ]
    outside = (
        [paragraph("The interval is wider, being outside of measured runs:"), items(est.outside)]
        if est.outside
        else []
    )
    return joined((pairs(rows), *map(paragraph, more), *outside))
