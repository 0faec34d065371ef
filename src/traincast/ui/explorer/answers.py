"""Answers to the page's requests: from a state (and perhaps a plan) to a mapping for JSON."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from traincast.analysis import trace
from traincast.core import (
    DEFAULTS,
    InputError,
    Plan,
    close_to,
    first_problems,
    is_whole,
    raise_problems,
    type_problems,
)
from traincast.planner import Compared, Comparison, Found, Progress, advise
from traincast.step import check_measured
from traincast.ui.explorer.choices import catalog, model_info, system_info, system_summary
from traincast.ui.explorer.designs import design
from traincast.ui.explorer.limits import MOST_PASSES, MOST_SIZES
from traincast.ui.explorer.plan_rows import front, phases_of, row_of, row_with_advice, sample
from traincast.ui.explorer.question import (
    MEASURED,
    ExplorerCase,
    State,
    canonical_text,
    check_state,
    model_of,
    nested_values,
    read_state,
)
from traincast.ui.explorer.snippets import copy_texts
from traincast.ui.text.analysis import CHANGES, changes
from traincast.ui.text.comparison import figures as comparison_table
from traincast.ui.text.measured import CAUSE_COLUMNS, CAUSES, causes, sentences
from traincast.ui.text.plans import recommendation
from traincast.ui.text.ranking import Ranking

MOST_LAYOUTS: Final = 500_000  # all evaluated; of more, as few as decide
DOUBLINGS: Final = 4  # of the state's GPUs that strong scaling shows, up and down
MAX_GPUS: Final = 1 << 17  # of a system without a fixed size
SCALING_FIELDS: Final = (
    *("step_seconds", "step_seconds_low", "step_seconds_high", "memory_bytes"),
    *("tokens_per_second_per_gpu", "training_days", "label", "knobs"),
)
NUMBER: Final = ("a number", int, float)
Request = Mapping[str, Any]


def search(request: Request, progress: Progress) -> dict[str, Any]:
    """Return the best plans and the rejected candidates."""
    begin = time.perf_counter()
    case, result = _search_result(canonical_text(request), progress)
    return {
        "state": case.normal,
        "model": model_info(case.model),
        "system": system_summary(case.system),
        "candidates": result.candidates,
        "feasible": result.feasible,
        "rejected": result.rejected,
        "reasons": [] if result.candidates else result.explain().broken_locks(),
        "calibrated": case.question.assumptions.errors_known,
        **_ranking(case, result),
        "recommendation": recommendation(result),
        "devices": result.recommended[1].devices() if result.recommended else [],
        "phases": phases_of(result.recommended[1]) if result.recommended else [],
        "elapsed_seconds": time.perf_counter() - begin,
    }


def space(request: Request, progress: Progress) -> dict[str, Any]:
    """Return a sample of what fits, and the Pareto front of time and memory."""
    _, result = _search_result(canonical_text(request), progress)
    return {"space": sample(result), "pareto": front(result)}


def explain(request: Request, progress: Progress) -> dict[str, Any]:
    """Return why the recommended plan is, which plans are equal within errors, and what locks cost."""
    case, result = _search_result(canonical_text(request), progress)
    explanation = result.explain()
    misses = {
        "nearest_miss": explanation.miss,
        "nearest_faster_miss": explanation.faster,
        "unlimited_memory": explanation.unlimited,
    }
    rows = {name: answer and row_with_advice(case, answer[1]) for name, answer in misses.items()}
    said = {"confidence": result.confidence, "lock_price": result.describe_lock_price()}
    return explanation.to_dict() | rows | said


def _ranking(case: ExplorerCase, result: Found) -> dict[str, object]:
    """Return the plan of each family as a row, with the cells of the columns of the terminal's table.

    What narrows its interval is worked out for the recommended plan alone, of others by the request `plan`.
    """
    ranked = Ranking(result, by_time=False)
    first = ranked.header.index("strategy")
    lines = zip(ranked.answers, ranked.rows(), strict=True)
    plans = [
        row_of(case, est, ("narrowed_by",) if place else ()) | {"cells": line[first:]}
        for place, ((_, est), line) in enumerate(lines)
    ]
    return {"columns": ranked.header[first:], "plans": plans}


def plan(request: Request) -> dict[str, Any]:
    """Return one plan in detail."""
    case, knobs = _case_and_plan(request)
    est = case.estimate(knobs)
    memory = {"devices": est.devices(), "phases": phases_of(est)}
    return row_with_advice(case, est) | memory | {"operations": est.operations()}


def compare(request: Request) -> dict[str, Any]:
    """Return two or more plans as the table of alternatives, and how their times differ."""
    state, plans = _split_request(request, "plans")
    most = len(Comparison.LABELS)
    if not isinstance(plans, list) or not 2 <= len(plans) <= most:
        raise InputError("plans", [f"{str(plans)[:60]}: must be a list of 2 to {most} plans"])
    rows = []
    for letter, knobs in zip(Comparison.LABELS, plans, strict=False):
        case, planned = _of_plan(state, knobs)
        figures = {"price": case.state.price, "restart_seconds": case.state.restart}
        framework = case.question.framework.name
        est = case.estimate(planned)
        rows.append(Compared.from_estimate(letter, str(planned), est, framework, figures, timed=True))
    found = Comparison(rows)
    columns, cells = comparison_table(rows)
    return {"columns": columns[2:], "rows": [row[2:] for row in cells], "sentences": found.sentences()}


def answer_measured(request: Request) -> dict[str, object]:
    """Return how far a measured step of a plan is from the predicted, why that may be, and what to change."""
    seen = {name: request[name] for name in MEASURED if request.get(name) is not None}
    if len(seen) != 1:
        raise InputError("measured", ["step_seconds or mfu: give one of them"])
    raise_problems(
        "measured", [line for name, value in seen.items() for line in type_problems(name, value, *NUMBER)]
    )
    check_measured(**seen)
    case, planned = _case_and_plan({name: value for name, value in request.items() if name not in MEASURED})
    advice = advise(case.estimate(planned), framework=case.question.framework, **seen)
    assert advice.measured is not None
    columns, rows = changes(advice)
    return {
        "step_seconds": advice.measured.step_seconds,
        "sentences": sentences(advice.measured),
        "causes": {"title": CAUSES, "columns": CAUSE_COLUMNS, "rows": causes(advice.measured)},
        "changes": {"title": CHANGES, "columns": columns, "rows": rows},
    }


def scaling(request: Request, progress: Progress) -> dict[str, Any]:
    """Return the best plan on each of several numbers of GPUs at the same global batch (strong scaling)."""
    state, requested = _split_request(request, "sizes")
    case = check_state(state)
    sizes = _default_sizes(case) if requested is None else _checked_sizes(requested)
    rows = [_scaling_row(result) for result in check_state(state, sizes).question.answer(progress)]
    rates = [row["tokens_per_second_per_gpu"] for row in rows]
    first = next((rate for rate in rates if rate is not None), None)
    for row, rate in zip(rows, rates, strict=True):
        row["efficiency"] = None if rate is None or first is None else rate / first
    return {"gpus": state.gpus, "rows": rows}


def timeline(request: Request) -> dict[str, Any]:
    """Return the timeline of each device of one plan's pipeline."""
    case, knobs = _case_and_plan(request)
    passes = 2 * knobs.pp * knobs.vp * case.question.gbs // (knobs.dp * knobs.mbs)
    if passes > MOST_PASSES:
        limit = f"at most {MOST_PASSES:,} are drawn; take a smaller global batch"
        raise InputError("timeline", [f"{passes:,} passes: {limit}"])
    return trace(case.estimate(knobs)).to_dict()


def copy(request: Request) -> dict[str, Any]:
    """Return the search, or one plan, as text to copy."""
    if request.get("plan") is None:
        state, _ = _split_request(request, "plan")
        return copy_texts(check_state(state), None)
    return copy_texts(*_case_and_plan(request))


def table(request: Request, progress: Progress) -> list[dict[str, Any]]:
    """Return the best plans as flat rows."""
    _, result = _search_result(canonical_text(request), progress)
    return result.table()


SEARCHES: Final[Mapping[str, Callable[[Request, Progress], Any]]] = {
    function.__name__: function for function in (search, space, explain, scaling, table, design)
}
LOOK_UPS: Final[Mapping[str, Callable[[Request], Any]]] = {
    "plan": plan,
    "timeline": timeline,
    "compare": compare,
    "measured": answer_measured,
    "copy": copy,
    "model": lambda request: model_info(model_of(read_state(request))),
    "system": lambda request: system_info(read_state(request).system),
    "catalog": lambda _: catalog(),
}


@lru_cache(maxsize=2)
def _search_result(text: str, progress: Progress) -> tuple[ExplorerCase, Found]:
    """Return the case and the search result of a state, cached since explanations follow design spaces."""
    case = check_state(read_state(json.loads(text)))
    (result,) = case.question.answer(progress, MOST_LAYOUTS)
    return case, result


def _split_request(request: Request, name: str) -> tuple[State, Any]:
    """Split a request into its state and one other field."""
    state = {key: value for key, value in request.items() if key != name}
    return read_state(state), request.get(name)


def _case_and_plan(request: Request) -> tuple[ExplorerCase, Plan]:
    """Return the checked state on the GPUs of the requested plan, and that plan."""
    return _of_plan(*_split_request(request, "plan"))


def _of_plan(state: State, knobs: Any) -> tuple[ExplorerCase, Plan]:
    """Return the checked state on the GPUs of a plan, and the plan of its knobs."""
    problems = type_problems("plan", knobs, "an object of knobs and choices", Mapping)
    if not problems:
        unknown = [name for name in knobs if name not in DEFAULTS]
        problems = first_problems(
            unknown, lambda name: f"{name}: no knob or choice of a plan; {close_to(name, DEFAULTS)}"
        )
        problems += nested_values(knobs)
    raise_problems("plan", problems)
    planned = Plan(**knobs)
    return check_state(replace(state, gpus=planned.gpus)), planned


def _default_sizes(case: ExplorerCase) -> tuple[int, ...]:
    """Return the GPUs of a state, doubled and halved several times."""
    gpus = case.question.gpus[0]
    limit = max(case.system.gpus or MAX_GPUS, gpus)
    doubled = {gpus << i for i in range(DOUBLINGS + 1)}
    halved = {gpus >> i for i in range(DOUBLINGS + 1) if gpus % (1 << i) == 0}
    return tuple(sorted(size for size in doubled | halved if size <= limit))


def _checked_sizes(sizes: object) -> tuple[int, ...]:
    """Return the requested numbers of GPUs, ascending."""
    if not isinstance(sizes, list) or not 0 < len(sizes) <= MOST_SIZES or not all(map(is_whole, sizes)):
        allowed = f"a list of 1 to {MOST_SIZES} whole numbers of at least 1"
        raise InputError("sizes", [f"{str(sizes)[:60]}: must be {allowed}"])
    return tuple(sorted(set(sizes)))


def _scaling_row(result: Found) -> dict[str, Any]:
    """Return the best plan on one number of GPUs; nulls where nothing fits."""
    known: dict[str, Any] = {}
    if result.best is not None:
        planned, est = result.best
        known = est.to_dict() | {"label": str(planned), "knobs": planned.knobs(placement=True)}
    row: dict[str, Any] = {"gpus": result.gpus, "candidates": result.candidates, "feasible": result.feasible}
    row |= {name: known.get(name) for name in SCALING_FIELDS}
    rate = row["tokens_per_second_per_gpu"]
    return row | {"tokens_per_second": None if rate is None else rate * result.gpus}
