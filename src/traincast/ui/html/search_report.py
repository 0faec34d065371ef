"""HTML report on a search: the recommended plan, why the others lose, and what was rejected."""

from typing import Final

from traincast.catalog import Stack
from traincast.core import count_of, format_signed, gib, seconds
from traincast.planner import Explanation, Family, Found, compare_with_best, lock_values, time_against_best
from traincast.step import Answer, Metrics, metrics
from traincast.ui.html.plan_report import memory_content, plan_content, sensitivity_content, shortfall
from traincast.ui.html.rendering import Page, Pairs, Table
from traincast.ui.html.sources import foundations
from traincast.ui.text import plans as text
from traincast.ui.text.ranking import Ranking

REJECTED: Final = "Candidates rejected, by the first rule broken, or by memory where all rules are met"
PARETO_MEMORY_STEP: Final = 0.9  # memory of a listed plan relative to the one listed before, at most


def page(
    result: Found,
    explanation: Explanation | None = None,
    measures: Metrics | None = None,
    remarks_: list[str] | None = None,
    each: bool = False,
) -> Page:
    """Return the report on a search; with `each`, plans alike are listed one by one.

    If left out, the explanation is made, and metrics follow from the figures of model and system.
    """
    explanation = explanation or result.explain()
    result.find_lists()
    content: dict[str, object] = {"result": result, "best": result.best}
    rejected = [(reason, f"{count:,}") for reason, count in result.rejected.items() if count]
    content |= {"question": list(_question(result))}
    content["rejected"] = Table(REJECTED, ("reason", "candidates"), rejected)
    if result.best is None:
        content |= _nearest_miss(result, explanation)
        content["subjects"] = foundations(result.model, result.system, result.assumptions)
    else:
        est = result.best[1]
        content |= plan_content(est, measures or metrics(est)) | _best_plans(result, each)
        content |= sensitivity_content(explanation.sensitivity)
        content["largest_gain"] = min(explanation.sensitivity, key=explanation.sensitivity.__getitem__)
        content |= _comparisons(explanation) | _misses(explanation)
    lines = remarks_ or text.remarks(result)
    fits = result.best is not None
    return Page("Training plan", text.title(result), lines, "search.html.jinja", content, fits)


def _question(result: Found) -> Pairs:
    chip = result.system.accelerator
    model = result.model
    machine = f"{count_of(result.gpus, 'GPU')} of {result.system.name}"
    memory = f"{chip.name} with {gib(float(chip.hbm_bytes))}"
    objectives = {"time": "the least time of a step", "memory": "the least memory"}
    best = objectives.get(result.objective, f"the best {result.objective}, which is the least time")
    yield "Model", f"{model.title}, {model.parameters:,} parameters, sequences of {model.seq:,} tokens"
    yield "Machine", f"{machine}: {memory}, fast domains of {result.system.fast_domain}"
    yield "Global batch", f"{count_of(result.gbs, 'sequence')}, {result.gbs * model.seq:,} tokens"
    yield "Search space", f"{result.framework.label}, {result.framework.about}"
    yield "Strategies", ", ".join(result.strategies)
    locks = {name: map(str, lock_values(name, value)) for name, value in result.locks.items()}
    yield "Locked", ", ".join(f"{name} = {' or '.join(of)}" for name, of in locks.items()) or "nothing"
    yield "Best is", best
    yield "Assumptions", Stack(result.assumptions.name).words
    yield "Candidates", f"{result.candidates:,} meet every rule, {result.feasible:,} of them fit in memory"


def _nearest_miss(result: Found, explanation: Explanation) -> dict[str, object]:
    """Return what an answer says where nothing fits."""
    if explanation.miss is None:
        return {"nearest": None, "why_none": [line.strip() for line in explanation.lines()[1:]]}
    plan, est = explanation.miss
    enough, least = explanation.fits_from or (0, 0.0)
    nearest = {
        "plan": str(plan),
        "shortfall": shortfall(est, advice=False),
        "enough_gpus": f"{enough:,}" if enough else "",
        "least_memory": gib(least),
        "without_locks": result.describe_lock_price(),
    }
    rows = [(degree.degree, gib(degree.least_memory)) for degree in explanation.degrees]
    caption = "The least memory that any plan of a tensor-parallel degree needs (tp × tp2)"
    least_memory = Table(caption, ("degree", "memory"), rows)
    return {"nearest": nearest, "memory": memory_content(est), "least_memory": least_memory}


def _best_plans(result: Found, each: bool) -> dict[str, object]:
    """Return the recommendation, the ranking and how sure it is, the Pareto front, and the sensitivities."""
    from traincast.ui.figures import pareto, tornado

    listed = Ranking(result, each)
    return {
        "recommendation": [*text.recommendation(result), *filter(None, [result.describe_lock_price()])],
        "ranking": ranking(listed),
        "legend": list(listed.legend()),
        "confidence": "" if each else listed.equal(),
        "pareto": pareto(result),
        "pareto_table": _pareto_table(result),
        "tornado": tornado(result),
    }


def ranking(listed: Ranking) -> Table:
    """Return a table of the best plans, one a row."""
    words = ("strategy", "fast", *Family.KNOBS)
    caption = "The recommended plan and the best others"
    return Table(caption, listed.header, list(listed.rows()), words, flows=True)


def _pareto_table(result: Found) -> Table:
    """Return plans of the Pareto front, each considerably leaner than the one before."""
    listed: list[tuple[str, str, str]] = []
    limit = float("inf")
    for point in result.pareto_points:
        memory = float(point.memory_bytes)
        if memory < limit:
            limit = PARETO_MEMORY_STEP * memory
            listed.append((str(point.plan), seconds(float(point.step_seconds)), gib(memory)))
    saving = f"{1 - PARETO_MEMORY_STEP:.0%}"
    caption = f"Plans that no other beats in both; each needs at least {saving} less memory than the last"
    return Table(caption, ("plan", "step", "memory"), listed)


def _comparisons(explanation: Explanation) -> dict[str, object]:
    """Return the best alternative and the fastest plan of each degree against the recommended one."""
    best = explanation.plans[0]

    def row(degree: int, answer: Answer | None, least: float) -> tuple[object, ...]:
        if answer is None:
            return degree, "does not fit", "", "", f"needs {gib(least)} at the least"
        plan, est = answer
        change = ""
        causes = "recommended"
        if plan != best[0]:
            change = format_signed(float(est.step_seconds / best[1].step_seconds) - 1)
            _, causes = compare_with_best(answer, best)
        return degree, seconds(est.step_seconds), change, str(plan), causes

    difference = "what makes the difference"
    header = ("degree", "step", "slower by", "plan", difference)
    kinds = {
        "tensor-parallel degree (tp × tp2)": explanation.degrees,
        "context-parallel degree (cp)": explanation.context_degrees,
    }
    tables = [
        Table(
            f"The fastest plan of each {kind}",
            header,
            [row(entry.degree, entry.best, entry.least_memory) for entry in degrees],
            ("plan", difference),
        )
        for kind, degrees in kinds.items()
        if degrees
    ]
    sentences = [*explanation.next_best(), *explanation.held_constant(), *explanation.lock_lines()]
    return {"comparisons": sentences, "degrees": tables}


def _misses(explanation: Explanation) -> dict[str, object]:
    """Return the faster plans that memory excludes, and the degrees that were not tried."""
    winner = explanation.plans[0][1]
    faster = (
        ("Nearest to fitting that would be faster", explanation.faster),
        ("Fastest if memory were unlimited", explanation.unlimited),
    )
    misses = [
        {
            "title": heading,
            "plan": str(answer[0]),
            "time": time_against_best(answer[1], winner),
            "shortfall": shortfall(answer[1], advice=False),
        }
        for heading, answer in faster
        if answer is not None
    ]
    excluded = explanation.excluded.items()
    not_tried = [f"tp = {', '.join(map(str, degrees))}: {reason}." for reason, degrees in excluded]
    return {"misses": misses, "not_tried": not_tried}
