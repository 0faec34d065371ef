"""HTML report on a search: the best plan, why the others lose, and what was rejected."""

from typing import Any, Final

from traincast.core.units import count_of, gib, seconds, signed
from traincast.planner.explain import Explanation
from traincast.planner.framework_spaces import lock_values
from traincast.planner.plan_sentences import compare, time_against_best
from traincast.planner.search import Found
from traincast.step.estimate import Answer
from traincast.step.metrics import Metrics, metrics
from traincast.ui.html.plan_report import memory_content, plan_content, sensitivity_content, shortfall
from traincast.ui.html.rendering import Page, Pairs, Table
from traincast.ui.html.sources import foundations
from traincast.ui.text import plans as text
from traincast.ui.text.plans import probability_text, remarks, title

BEST_WORDS: Final = {"memory": "leanest"}
PARETO_MEMORY_STEP: Final = 0.9  # memory of a listed plan relative to the one listed before, at most


def page(
    result: Found,
    explanation: Explanation | None = None,
    measures: Metrics | None = None,
    remarks_: list[str] | None = None,
) -> Page:
    """Return the report on a search.

    If left out, the explanation is made, and metrics follow from the figures of model and system.
    """
    explanation = explanation or result.explain()
    content: dict[str, Any] = {"result": result, "best": result.best}
    content |= {"question": list(_question(result)), "rejected": _rejected(result)}
    if result.best is None:
        content |= _nearest_miss(result, explanation)
        content["subjects"] = foundations(result.model, result.system, result.assumptions)
    else:
        est = result.best[1]
        content |= plan_content(est, measures or metrics(est)) | _best_plans(result)
        content |= sensitivity_content(explanation.sensitivity)
        content["largest_gain"] = min(explanation.sensitivity, key=explanation.sensitivity.__getitem__)
        content |= _comparisons(explanation) | _misses(explanation)
    lines = remarks_ or remarks(result)
    return Page("Training plan", title(result), lines, "search.html.jinja", content, result.best is not None)


def _question(result: Found) -> Pairs:
    chip, model = result.system.accelerator, result.model
    machine = f"{count_of(result.gpus, 'GPU')} of {result.system.name}"
    memory = f"{chip.name} with {gib(float(chip.hbm_bytes))}"
    objectives = {"time": "the least time of a step", "memory": "the least memory"}
    best = objectives.get(result.objective, f"the best {result.objective}, which is the least time")
    yield "Model", f"{model.title}, {model.parameters:,} parameters, sequences of {model.seq:,} tokens"
    yield "Machine", f"{machine}: {memory}, fast domains of {result.system.fast_domain}"
    yield "Global batch", f"{count_of(result.gbs, 'sequence')}, {result.gbs * model.seq:,} tokens"
    yield "Search space", f"{result.framework.name}, {result.framework.about}"
    yield "Strategies", ", ".join(result.strategies)
    locks = {name: lock_values(name, value) for name, value in result.locks.items()}
    yield (
        "Locked",
        ", ".join(f"{name} = {' or '.join(map(str, values))}" for name, values in locks.items()) or "nothing",
    )
    yield "Best is", best
    yield "Assumptions", result.assumptions.name
    yield "Candidates", f"{result.candidates:,} meet every rule, {result.feasible:,} of them fit in memory"


def _nearest_miss(result: Found, explanation: Explanation) -> dict[str, Any]:
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
    }
    rows = [(degree.degree, gib(degree.least_memory)) for degree in explanation.degrees]
    caption = "The least memory that any plan of a tensor-parallel degree needs (tp × tp2 × cp)"
    least_memory = Table(caption, ("degree", "memory"), rows)
    return {"nearest": nearest, "memory": memory_content(est), "least_memory": least_memory}


def _best_plans(result: Found) -> dict[str, Any]:
    """Return the ranking, the probability that it is right, the Pareto front, and the sensitivities."""
    from traincast.ui.figures import pareto, tornado

    return {
        "best_word": BEST_WORDS.get(result.objective, "fastest"),
        "ranking": ranking(result.plans),
        "pareto": pareto(result),
        "pareto_table": _pareto_table(result),
        "tornado": tornado(result),
        "best_probability": _best_probability(result),
    }


def ranking(plans: list[Answer]) -> Table:
    """Return a table of the best plans, one a row."""
    legend = text.fast_legend([plan for plan, _ in plans], plans[0][1].system.fast_domain)
    return Table(f"The best plans; {legend}", *text.ranking(plans), ("strategy", "fast"))


def _pareto_table(result: Found) -> Table:
    """Return plans of the Pareto front, each considerably leaner than the one before."""
    listed: list[tuple[str, str, str]] = []
    limit = float("inf")
    for plan, est in result.pareto():
        memory = float(est.memory_bytes)
        if memory < limit:
            limit = PARETO_MEMORY_STEP * memory
            listed.append((str(plan), seconds(float(est.step_seconds)), gib(memory)))
    saving = f"{1 - PARETO_MEMORY_STEP:.0%}"
    caption = f"Plans that no other beats in both; each needs at least {saving} less memory than the last"
    return Table(caption, ("plan", "step", "memory"), listed)


def _best_probability(result: Found) -> str:
    """Return how probably the first plan is among the best; empty where errors are not known."""
    if result.within_3_percent is None:
        return ""
    first, listed = map(probability_text, result.within_3_percent)
    of_listed = f", one of the {len(result.plans)} listed with {listed}" if len(result.plans) > 1 else ""
    return f"The first plan is within 3% of the best candidate with a probability of {first}{of_listed}."


def _comparisons(explanation: Explanation) -> dict[str, Any]:
    """Return the runner-up and the best plan of each tensor-parallel degree against the best of all."""
    best = explanation.plans[0]

    def row(degree: int, answer: Answer | None, least: float) -> tuple[object, ...]:
        if answer is None:
            return degree, "does not fit", "", "", f"needs {gib(least)} at the least"
        plan, est = answer
        change, causes = "", "the best plan"
        if plan != best[0]:
            change = signed(float(est.step_seconds / best[1].step_seconds) - 1)
            _, causes = compare(answer, best)
        return degree, seconds(float(est.step_seconds)), change, str(plan), causes

    rows = [row(entry.degree, entry.best, entry.least_memory) for entry in explanation.degrees]
    difference = "what makes the difference"
    header = ("degree", "step", "slower by", "plan", difference)
    caption = "The best plan of each tensor-parallel degree (tp × tp2 × cp)"
    numbers = best[0].columns().numbers()
    others = (answer for answer in explanation.plans[1:] if answer[0].columns().numbers() != numbers)
    other = next(others, None)
    runner_up = None if other is None else dict(zip(("change", "causes"), compare(other, best), strict=True))
    return {
        "runner_up": runner_up,
        "held_constant": explanation.held_constant(),
        "degrees": Table(caption, header, rows, ("plan", difference)),
    }


def _rejected(result: Found) -> Table:
    rows = [(reason, f"{count:,}") for reason, count in result.rejected.items() if count]
    caption = "Candidates rejected, by the first rule broken, or by memory where all rules are met"
    return Table(caption, ("reason", "candidates"), rows)


def _misses(explanation: Explanation) -> dict[str, Any]:
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
