"""HTML report on a search: the best plan, why the others lose, and what was rejected."""

from collections.abc import Iterator
from typing import Final

from traincast.core.units import count_of, gib, seconds, signed
from traincast.planner.explain import Explanation
from traincast.planner.misfit import compare, time_against_best
from traincast.planner.search import Found
from traincast.step.estimate import Answer, Estimate
from traincast.step.metrics import Metrics, metrics
from traincast.ui.html.elements import Html, Section, code, element, items, joined, pairs, paragraph, table
from traincast.ui.html.page import Page
from traincast.ui.html.plan_report import (
    foundation_and_uncertainty,
    hardware_gains,
    memory_shortfall,
    memory_used,
    plan_sections,
    step,
    summary,
    whole_run,
)
from traincast.ui.html.sources import foundations
from traincast.ui.html.svg import drawing
from traincast.ui.text.plans import (
    fast_legend,
    fast_members,
    knob_text,
    knobs_of,
    probability_text,
    remarks,
    title,
)

BEST_WORDS: Final = {"memory": "leanest"}
PARETO_MEMORY_STEP: Final = 0.9  # memory of a listed plan relative to the one listed before, at most


def page(
    result: Found,
    explanation: Explanation | None = None,
    measures: Metrics | None = None,
    remarks_: list[str] | None = None,
) -> Page:
    """Return the report on a search.

    Parameters
    ----------
    result : Found
        The search.
    explanation : Explanation, optional
        Why the best plan is the best; made if left out.
    measures : Metrics, optional
        Throughput, utilisation and cost of the best plan; those of the model's and the system's own figures if left out.
    remarks_ : list of str, optional
        Remarks on batch, assumptions and calibration; the usual ones if left out.
    """
    explanation = explanation or result.explain()
    remark_lines = remarks_ or remarks(result)
    if result.best is None:
        return Page(
            "Training plan",
            title(result),
            remark_lines,
            _no_fit_answer(result, explanation),
            tuple(_sections_without_fit(result, explanation)),
            fits=False,
        )
    _, est = result.best
    measures = measures or metrics(est)
    sentence = f"The {BEST_WORDS.get(result.objective, 'fastest')} of {result.feasible:,} plans that fit takes {step(est)} a step"
    answer = joined(
        (
            paragraph(f"{sentence}{whole_run(measures)}."),
            paragraph(code(result.best[0])),
            summary(est, measures),
        )
    )
    return Page(
        "Training plan",
        title(result),
        remark_lines,
        answer,
        tuple(_sections(result, explanation, est, measures)),
    )


def _sections(result: Found, explanation: Explanation, est: Estimate, measures: Metrics) -> Iterator[Section]:
    """Yield the sections below the answer."""
    yield _question_section(result)
    yield Section("plans", "The best plans", joined((ranking(result.plans), _pareto_section(result))))
    yield from plan_sections(est, measures)
    yield Section("why", "Why this plan", _why_section(explanation))
    yield Section("sensitivity", "What binds", _sensitivity_section(result, explanation))
    yield Section(
        "rejected",
        "What was rejected, and why",
        joined((_rejected_table(result), _misses_section(explanation))),
    )
    probabilities = result.within_3_percent
    sentence = (
        ""
        if probabilities is None
        else f"The first plan is within 3% of the best candidate with a probability of {probability_text(probabilities[0])}"
    )
    listed_text = (
        f", one of the {len(result.plans)} listed with {probability_text(probabilities[1])}"
        if probabilities is not None and len(result.plans) > 1
        else ""
    )
    yield from foundation_and_uncertainty(est, measures, *([f"{sentence}{listed_text}."] if sentence else []))


def _sections_without_fit(result: Found, explanation: Explanation) -> Iterator[Section]:
    """Yield the sections of a search in which nothing fits."""
    yield _question_section(result)
    if explanation.miss is not None:
        yield Section("memory", "Memory of the nearest miss", memory_used(explanation.miss[1]))
        rows = ((degree.degree, gib(degree.least_memory)) for degree in explanation.degrees)
        least = table(
            "The least memory that any plan of a tensor-parallel degree needs (tp × tp2 × cp)",
            ("degree", "memory"),
            rows,
        )
        yield Section("why", "What comes nearest", least)
    yield Section("rejected", "What was rejected, and why", _rejected_table(result))
    yield from foundations(result.model, result.system, result.assumptions)


def _no_fit_answer(result: Found, explanation: Explanation) -> Html:
    """Return the answer that nothing fits, with the nearest miss."""
    if explanation.miss is None:
        return joined(
            (
                paragraph(f"No plan uses exactly {count_of(result.gpus, 'GPU')}."),
                items(line.strip() for line in explanation.lines()[1:]),
            )
        )
    plan, est = explanation.miss
    head = paragraph(f"None of {count_of(result.candidates, 'candidate')} fits in memory. The nearest miss:")
    more = Html()
    if explanation.fits_from is not None:
        enough, least = explanation.fits_from
        more = paragraph(
            f"{enough:,} GPUs instead of {result.gpus:,} would do: the leanest plan then needs {gib(least)}."
        )
    return joined((head, paragraph(code(plan)), memory_shortfall(est), more))


def _question_section(result: Found) -> Section:
    """Return the section on what was searched."""
    chip, model, domain = result.system.accelerator, result.model, result.system.fast_domain
    job = f"{count_of(result.gpus, 'GPU')} of {result.system.name}"
    best = {"time": "the least time of a step", "memory": "the least memory"}
    rows: list[tuple[str, object]] = [
        ("Model", f"{model.title}, {model.parameters:,} parameters, sequences of {model.seq:,} tokens"),
        ("Machine", f"{job}: {chip.name} with {gib(float(chip.hbm_bytes))}, fast domains of {domain}"),
        ("Global batch", f"{count_of(result.gbs, 'sequence')}, {result.gbs * model.seq:,} tokens"),
        ("Search space", f"{result.framework.name}, {result.framework.about}"),
        ("Strategies", ", ".join(result.strategies)),
        ("Held", ", ".join(f"{name} = {value}" for name, value in result.locks.items()) or "nothing"),
        ("Best is", best.get(result.objective, f"the best {result.objective}, which is the least time")),
        ("Assumptions", result.assumptions.name),
        ("Candidates", f"{result.candidates:,} meet every rule, {result.feasible:,} of them fit in memory"),
    ]
    return Section("question", "The question", pairs(rows))


def ranking(plans: list[Answer]) -> Html:
    """Return a table of the best plans, one a row."""
    shown, sure = knobs_of([plan for plan, _ in plans]), plans[0][1].interval is not None
    header = (
        "#",
        "step",
        *(("90%",) if sure else ()),
        "memory",
        *(("fits",) if sure else ()),
        "strategy",
        *shown,
        "fast",
    )
    rows = [
        (
            rank,
            *_time_and_memory(est),
            plan.strategy,
            *(knob_text(plan, name) for name in shown),
            fast_members(plan),
        )
        for rank, (plan, est) in enumerate(plans, 1)
    ]
    legend = fast_legend([plan for plan, _ in plans], plans[0][1].system.fast_domain)
    return table(f"The best plans; {legend}", header, rows, ("strategy", "fast"))


def _time_and_memory(est: Estimate) -> Iterator[str]:
    """Yield time and memory of a plan, with interval and probability where errors are known."""
    yield seconds(float(est.step_seconds))
    if est.interval is not None:
        yield f"±{float(est.interval[1]) / float(est.step_seconds) - 1:.0%}"
    yield gib(float(est.memory_bytes))
    if est.fits_probability is not None:
        yield probability_text(est.fits_probability)


def _pareto_section(result: Found) -> Html:
    """Return the figure and the table of the Pareto front of time and memory."""
    from traincast.ui.figures import pareto

    alternative = f"Points: step time against memory of {result.feasible:,} plans that fit, with the plans that no other beats in both"
    caption = (
        "Time against memory of every layout that fits; the line joins plans that no other beats in both."
    )
    drawn = drawing("pareto-figure", pareto(result), caption, alternative)
    leaner: list[Answer] = []
    for answer in result.pareto():
        if not leaner or float(answer[1].memory_bytes) < PARETO_MEMORY_STEP * float(
            leaner[-1][1].memory_bytes
        ):
            leaner.append(answer)
    rows = (
        (str(plan), seconds(float(est.step_seconds)), gib(float(est.memory_bytes))) for plan, est in leaner
    )
    caption_of_table = f"Plans that no other beats in both; each needs {1 - PARETO_MEMORY_STEP:.0%} less memory than the one before, or still less"
    return joined((drawn, table(caption_of_table, ("plan", "step", "memory"), rows)))


def _why_section(explanation: Explanation) -> Html:
    """Return a table of the best plan of each tensor-parallel degree against the best of all."""
    best = explanation.plans[0]

    def row(degree: int, answer: Answer | None, least: float) -> tuple[object, ...]:
        if answer is None:
            return degree, "does not fit", "", "", f"needs {gib(least)} at the least"
        costs = "the best plan" if answer[0] == best[0] else compare(answer, best)[1]
        change = (
            "" if answer[0] == best[0] else signed(float(answer[1].step_seconds / best[1].step_seconds) - 1)
        )
        return degree, seconds(float(answer[1].step_seconds)), change, str(answer[0]), costs

    rows = [row(entry.degree, entry.best, entry.least_memory) for entry in explanation.degrees]
    degrees = joined(
        (
            *map(paragraph, explanation.held_constant()),
            table(
                "The best plan of each tensor-parallel degree (tp × tp2 × cp)",
                ("degree", "step", "slower by", "plan", "what makes the difference"),
                rows,
                ("plan", "what makes the difference"),
            ),
        )
    )
    other = next(
        (
            candidate
            for candidate in explanation.plans[1:]
            if candidate[0].columns().numbers() != best[0].columns().numbers()
        ),
        None,
    )
    if other is None:
        return degrees
    change, causes = compare(other, best)
    return joined((paragraph("Runner-up: ", code(change), f": {causes}."), degrees))


def _sensitivity_section(result: Found, explanation: Explanation) -> Html:
    """Return what better and worse hardware would change."""
    from traincast.ui.figures import tornado

    most = min(explanation.sensitivity, key=lambda name: explanation.sensitivity[name])
    alternative = (
        f"Bars: change of the step time when a figure of the machine is 10% less or more; {most} gains most"
    )
    caption = "Each figure of the machine 10% less and more, with this plan and with the best one; those that change nothing left out."
    return joined(
        (
            hardware_gains(explanation.sensitivity),
            drawing("tornado-figure", tornado(result), caption, alternative),
        )
    )


def _rejected_table(result: Found) -> Html:
    """Return a table of rejected candidates by reason."""
    rows = ((reason, f"{count:,}") for reason, count in result.rejected.items() if count)
    return table(
        "Candidates rejected, by the first rule broken, or by memory where all rules are met",
        ("reason", "candidates"),
        rows,
    )


def _misses_section(explanation: Explanation) -> Html:
    """Return the faster plans that memory excludes."""
    misses = {
        "Nearest to fitting that would be faster": explanation.faster,
        "Fastest if memory were unlimited": explanation.unlimited,
    }
    winner = explanation.plans[0][1]
    parts = [
        joined(
            (
                element("h3", heading),
                paragraph(code(plan), f": {time_against_best(est, winner)}"),
                memory_shortfall(est),
            )
        )
        for heading, pair in misses.items()
        if pair is not None
        for plan, est in (pair,)
    ]
    excluded = [
        f"tp = {', '.join(map(str, degrees))}: {reason}." for reason, degrees in explanation.excluded.items()
    ]
    not_tried = [element("h3", "Not tried"), items(excluded)] if excluded else []
    return joined((*(parts or [paragraph("Memory excludes no plan that would be faster.")]), *not_tried))
