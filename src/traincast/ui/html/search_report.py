"""The report on a search: the best plan, why the others lose, and what was rejected."""

from collections.abc import Iterator
from typing import Final

from traincast.core.units import gib, many, seconds, signed
from traincast.planner.explain import Explanation
from traincast.planner.misfit import against, compare
from traincast.planner.search import Found
from traincast.step.estimate import Answer, Estimate
from traincast.step.metrics import Metrics, metrics
from traincast.ui.html.elements import Html, Section, code, element, items, joined, pairs, paragraph, table
from traincast.ui.html.page import Page
from traincast.ui.html.plan_report import gains, memory_held, of_a_plan, rests_on, short, step, summary, whole_run
from traincast.ui.html.sources import foundations
from traincast.ui.html.svg import drawing
from traincast.ui.text.plans import cell, fast, knobs_of, likely, remarks, title

BEST: Final = {"memory": "leanest"}
LEANER: Final = 0.9  # steps of memory in which the front is told


def page(
    found: Found, explanation: Explanation | None = None, measures: Metrics | None = None, remarks_: list[str] | None = None
) -> Page:
    """The report on a search.

    Parameters
    ----------
    found : Found
        The search.
    explanation : Explanation, optional
        Why the best plan is the best; made if left out.
    measures : Metrics, optional
        Throughput, utilisation and cost of the best plan; those of the model's and the system's own figures if left out.
    remarks_ : list of str, optional
        What is to be known about the question; what is usually said if left out.
    """
    explanation = explanation or found.explain()
    said = remarks_ or remarks(found)
    if found.best is None:
        return Page(
            "Training plan", title(found), said, _nothing(found, explanation), tuple(_without(found, explanation)), fits=False
        )
    _, est = found.best
    measures = measures or metrics(est)
    best = f"The {BEST.get(found.objective, 'fastest')} of {found.feasible:,} plans that fit takes {step(est)} a step"
    answer = joined((paragraph(f"{best}{whole_run(measures)}."), paragraph(code(found.best[0])), summary(est, measures)))
    return Page("Training plan", title(found), said, answer, tuple(_sections(found, explanation, est, measures)))


def _sections(found: Found, explanation: Explanation, est: Estimate, measures: Metrics) -> Iterator[Section]:
    """All that stands below the answer."""
    yield _question(found)
    yield Section("plans", "The best plans", joined((ranking(found.plans), _front(found))))
    yield from of_a_plan(est, measures)
    yield Section("why", "Why this plan", _why(explanation))
    yield Section("sensitivity", "What binds", _sensitivities(found, explanation))
    yield Section("rejected", "What was rejected, and why", joined((_rejected(found), _misses(explanation))))
    sure = found.within_3_percent
    told = "" if sure is None else f"The first plan is within 3% of the best candidate with a probability of {likely(sure[0])}"
    more = f", one of the {len(found.plans)} listed with {likely(sure[1])}" if sure is not None and len(found.plans) > 1 else ""
    yield from rests_on(est, measures, *([f"{told}{more}."] if told else []))


def _without(found: Found, explanation: Explanation) -> Iterator[Section]:
    """What stands below the answer that nothing fits."""
    yield _question(found)
    if explanation.miss is not None:
        yield Section("memory", "Memory of the nearest miss", memory_held(explanation.miss[1]))
        rows = ((one.degree, gib(one.least_memory)) for one in explanation.degrees)
        least = table(
            "The least memory that any plan of a tensor-parallel degree needs (tp × tp2 × cp)", ("degree", "memory"), rows
        )
        yield Section("why", "What comes nearest", least)
    yield Section("rejected", "What was rejected, and why", _rejected(found))
    yield from foundations(found.model, found.system, found.assumptions)


def _nothing(found: Found, explanation: Explanation) -> Html:
    """The answer that nothing fits, and the nearest miss."""
    if explanation.miss is None:
        return joined(
            (paragraph(f"No plan uses exactly {many(found.gpus, 'GPU')}."), items(line.strip() for line in explanation.lines()[1:]))
        )
    plan, est = explanation.miss
    head = paragraph(f"None of {many(found.candidates, 'candidate')} fits in memory. The nearest miss:")
    more = Html()
    if explanation.fits_from is not None:
        enough, least = explanation.fits_from
        more = paragraph(f"{enough:,} GPUs instead of {found.gpus:,} would do: the leanest plan then needs {gib(least)}.")
    return joined((head, paragraph(code(plan)), short(est), more))


def _question(found: Found) -> Section:
    """What was asked."""
    chip, model, domain = found.system.accelerator, found.model, found.system.fast_domain
    job = f"{many(found.gpus, 'GPU')} of {found.system.name}"
    best = {"time": "the least time of a step", "memory": "the least memory"}
    rows: list[tuple[str, object]] = [
        ("Model", f"{model.title}, {model.parameters:,} parameters, sequences of {model.seq:,} tokens"),
        ("Machine", f"{job}: {chip.name} with {gib(float(chip.hbm_bytes))}, fast domains of {domain}"),
        ("Global batch", f"{many(found.gbs, 'sequence')}, {found.gbs * model.seq:,} tokens"),
        ("Search space", f"{found.framework.name}, {found.framework.about}"),
        ("Strategies", ", ".join(found.strategies)),
        ("Held", ", ".join(f"{name} = {value}" for name, value in found.locks.items()) or "nothing"),
        ("Best is", best.get(found.objective, f"the best {found.objective}, which is the least time")),
        ("Assumptions", found.assumptions.name),
        ("Candidates", f"{found.candidates:,} meet every rule, {found.feasible:,} of them fit in memory"),
    ]
    return Section("question", "The question", pairs(rows))


def ranking(plans: list[Answer]) -> Html:
    """The best plans, one a row."""
    shown, sure = knobs_of([plan for plan, _ in plans]), plans[0][1].interval is not None
    header = ("#", "step", *(("90%",) if sure else ()), "memory", *(("fits",) if sure else ()), "strategy", *shown, "fast")
    rows = [
        (rank, *_figures(est), plan.strategy, *(cell(plan, name) for name in shown), fast(plan))
        for rank, (plan, est) in enumerate(plans, 1)
    ]
    said = f"The best plans; fast: members of tp·(tp2 or cp)·pp·dp groups in one domain of {plans[0][1].system.fast_domain}"
    return table(said, header, rows, ("strategy", "fast"))


def _figures(est: Estimate) -> Iterator[str]:
    """Time and memory of a plan, and how sure they are."""
    yield seconds(float(est.step_seconds))
    if est.interval is not None:
        yield f"±{float(est.interval[1]) / float(est.step_seconds) - 1:.0%}"
    yield gib(float(est.memory_bytes))
    if est.fits_probability is not None:
        yield likely(est.fits_probability)


def _front(found: Found) -> Html:
    """Time against memory."""
    from traincast.ui.figures import pareto

    alternative = (
        f"Points: step time against memory of {found.feasible:,} plans that fit, with the plans that no other beats in both"
    )
    caption = "Time against memory of every layout that fits; the line joins plans that no other beats in both."
    drawn = drawing("pareto-figure", pareto(found), caption, alternative)
    leaner: list[Answer] = []
    for answer in found.pareto():
        if not leaner or float(answer[1].memory_bytes) < LEANER * float(leaner[-1][1].memory_bytes):
            leaner.append(answer)
    rows = ((str(plan), seconds(float(est.step_seconds)), gib(float(est.memory_bytes))) for plan, est in leaner)
    told = f"Plans that no other beats in both; each needs {1 - LEANER:.0%} less memory than the one before, or still less"
    return joined((drawn, table(told, ("plan", "step", "memory"), rows)))


def _why(explanation: Explanation) -> Html:
    """The best plan of each tensor-parallel degree against the best of all."""
    best = explanation.plans[0]

    def row(degree: int, answer: Answer | None, least: float) -> tuple[object, ...]:
        if answer is None:
            return degree, "does not fit", "", "", f"needs {gib(least)} at the least"
        costs = "the best plan" if answer[0] == best[0] else compare(answer, best)[1]
        change = "" if answer[0] == best[0] else signed(float(answer[1].step_seconds / best[1].step_seconds) - 1)
        return degree, seconds(float(answer[1].step_seconds)), change, str(answer[0]), costs

    rows = [row(one.degree, one.best, one.least_memory) for one in explanation.degrees]
    told = joined(
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
    other = next((one for one in explanation.plans[1:] if one[0].columns().numbers() != best[0].columns().numbers()), None)
    if other is None:
        return told
    said, causes = compare(other, best)
    return joined((paragraph("Runner-up: ", code(said), f": {causes}."), told))


def _sensitivities(found: Found, explanation: Explanation) -> Html:
    """What better and worse hardware would change."""
    from traincast.ui.figures import tornado

    most = min(explanation.sensitivity, key=lambda name: explanation.sensitivity[name])
    alternative = f"Bars: change of the step time when a figure of the machine is 10% less or more; {most} gains most"
    caption = (
        "Each figure of the machine 10% less and more, with this plan and with the best one; those that change nothing left out."
    )
    return joined((gains(explanation.sensitivity), drawing("tornado-figure", tornado(found), caption, alternative)))


def _rejected(found: Found) -> Html:
    """Candidates rejected, by reason."""
    rows = ((reason, f"{count:,}") for reason, count in found.rejected.items() if count)
    return table(
        "Candidates rejected, by the first rule broken, or by memory where all rules are met", ("reason", "candidates"), rows
    )


def _misses(explanation: Explanation) -> Html:
    """What memory excludes that would be faster."""
    told = {
        "Nearest to fitting that would be faster": explanation.faster,
        "Fastest if memory were unlimited": explanation.unlimited,
    }
    winner = explanation.plans[0][1]
    parts = [
        joined((element("h3", heading), paragraph(code(plan), f": {against(est, winner)}"), short(est)))
        for heading, pair in told.items()
        if pair is not None
        for plan, est in (pair,)
    ]
    out = [f"tp = {', '.join(map(str, degrees))}: {reason}." for reason, degrees in explanation.excluded.items()]
    untried = [element("h3", "Not tried"), items(out)] if out else []
    return joined((*(parts or [paragraph("Memory excludes no plan that would be faster.")]), *untried))
