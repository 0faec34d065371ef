"""Answers to the page's requests: from a state (and perhaps a plan) to a mapping for JSON."""

import json
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from traincast.analysis.trace import trace
from traincast.core.errors import InputError, close_to, is_whole, type_problems
from traincast.core.plan import Plan
from traincast.planner.search import Found
from traincast.step.estimate import Answer, Estimate, estimate
from traincast.ui.explorer.choices import catalog, model_info, state_model_info, system_info, system_summary
from traincast.ui.explorer.design_space import front, sample
from traincast.ui.explorer.limits import MOST_PASSES, MOST_SIZES
from traincast.ui.explorer.plan_rows import row_of, rows_of
from traincast.ui.explorer.question import ExplorerCase, State, check_state, read_state
from traincast.ui.explorer.snippets import KNOBS, copy_texts, knobs_of

SIZES_EACH_WAY: Final = 4  # powers of two tried below and above the state's GPUs


def search(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the best plans, the design space and the rejected candidates."""
    begin = time.perf_counter()
    case, result = _search_result(_canonical_text(content))
    plans = result.ranked
    best = _estimate(case, plans[0]) if plans else None
    return {
        "state": case.normal,
        "model": model_info(case.model),
        "system": system_summary(case.system),
        "candidates": result.candidates,
        "feasible": result.feasible,
        "rejected": result.rejected,
        "calibrated": case.question.assumptions.errors_known,
        "plans": rows_of(case, plans),
        "devices": [] if best is None else best.devices(),
        "space": sample(result),
        "pareto": front(result),
        "elapsed_seconds": time.perf_counter() - begin,
    }


def explain(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return why the best plan is the best, and with what probability."""
    case, result = _search_result(_canonical_text(content))
    explanation = result.explain()
    probabilities = result.within_3_percent or (None, None)
    misses = {
        "nearest_miss": explanation.miss,
        "nearest_faster_miss": explanation.faster,
        "unlimited_memory": explanation.unlimited,
    }
    return (
        explanation.to_dict()
        | {name: None if pair is None else row_of(case, pair[1]) for name, pair in misses.items()}
        | {"first_within_3_percent": probabilities[0], "listed_within_3_percent": probabilities[1]}
    )


def plan(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return one plan in detail."""
    case, knobs = _case_and_plan(content)
    est = _estimate(case, knobs)
    return row_of(case, est) | {"devices": est.devices(), "operations": est.operations()}


def scaling(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the best plan on each of several numbers of GPUs at the same global batch (strong scaling)."""
    state, (sizes,) = _split_request(content, "sizes")
    case = check_state(state)
    gpu_counts = _sizes(case) if sizes is None else _given_sizes(sizes)
    case_of_sizes = check_state(state, gpu_counts)
    rows = [_scaling_row(case, result) for result in case_of_sizes.question.answer()]
    per_gpu = [row["tokens_per_second_per_gpu"] for row in rows]
    first = next((value for value in per_gpu if value is not None), None)
    efficiencies = [None if value is None or first is None else value / first for value in per_gpu]
    return {
        "gpus": state.gpus,
        "rows": [row | {"efficiency": share} for row, share in zip(rows, efficiencies, strict=True)],
    }


def timeline(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the timeline of each device of one plan's pipeline."""
    case, knobs = _case_and_plan(content)
    passes = 2 * knobs.pp * knobs.vp * case.question.gbs // (knobs.dp * knobs.mbs)
    if passes > MOST_PASSES:
        raise InputError(
            "timeline", [f"{passes:,} passes: at most {MOST_PASSES:,} are drawn; take a smaller global batch"]
        )
    return trace(_estimate(case, knobs)).to_dict()


def copy(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the search, or one plan, as text to copy."""
    if content.get("plan") is None:
        state, _ = _split_request(content, "plan")
        return copy_texts(check_state(state), None)
    return copy_texts(*_case_and_plan(content))


def model(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key figures of a model."""
    return state_model_info(read_state(content))


def system(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a system with every figure that can be changed."""
    return system_info(read_state(content).system)


def table(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the best plans as flat rows."""
    _, result = _search_result(_canonical_text(content))
    return result.table()


ANSWERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "search": search,
    "explain": explain,
    "plan": plan,
    "scaling": scaling,
    "timeline": timeline,
    "copy": copy,
    "model": model,
    "system": system,
    "catalog": lambda _: catalog(),
    "table": table,
}


def _estimate(case: ExplorerCase, plan: Plan) -> Estimate:
    """Return the estimate of one plan."""
    return estimate(case.model, case.system, plan, case.question.gbs, case.question.assumptions)


def _canonical_text(content: Mapping[str, Any]) -> str:
    """Return a state as canonical JSON, used as cache key."""
    return json.dumps(content, sort_keys=True)


@lru_cache(maxsize=2)
def _search_result(text: str) -> tuple[ExplorerCase, Found]:
    """Return the case and the search result of a state; the last are cached, since explanations follow searches."""
    case = check_state(read_state(json.loads(text)))
    (result,) = case.question.answer()
    return case, result


def _split_request(content: Mapping[str, Any], *names: str) -> tuple[State, list[Any]]:
    """Split a request into its state and the named other fields."""
    state = {name: value for name, value in content.items() if name not in names}
    return read_state(state), [content.get(name) for name in names]


def _case_and_plan(content: Mapping[str, Any]) -> tuple[ExplorerCase, Plan]:
    """Return the checked state on the GPUs of the requested plan, and that plan."""
    state, (knobs,) = _split_request(content, "plan")
    if wrong := type_problems("plan", knobs, "an object of knobs and choices", Mapping):
        raise InputError("plan", wrong)
    problems = [
        f"{name}: no knob or choice of a plan; {close_to(name, KNOBS)}" for name in knobs if name not in KNOBS
    ]
    problems += [
        f"{name} = {str(value)[:60]}: must be a number, a word or a truth value"
        for name, value in knobs.items()
        if isinstance(value, list | dict)
    ]
    if problems:
        raise InputError("plan", problems)
    planned = Plan(**knobs)
    return check_state(State(**(state.to_dict() | {"gpus": planned.gpus}))), planned


def _sizes(case: ExplorerCase) -> tuple[int, ...]:
    """Return the GPUs of a state and powers of two times and fractions of them."""
    gpus, limit = case.question.gpus[0], case.system.gpus or 1 << 17
    around = {gpus * 2**i for i in range(SIZES_EACH_WAY + 1)} | {
        gpus // 2**i for i in range(SIZES_EACH_WAY + 1) if gpus % 2**i == 0
    }
    return tuple(sorted(n for n in around if n <= max(limit, gpus)))


def _given_sizes(sizes: Any) -> tuple[int, ...]:
    """Return the requested numbers of GPUs, ascending."""
    if not isinstance(sizes, list) or not 0 < len(sizes) <= MOST_SIZES or not all(map(is_whole, sizes)):
        raise InputError(
            "sizes", [f"{str(sizes)[:60]}: must be a list of 1 to {MOST_SIZES} whole numbers of at least 1"]
        )
    return tuple(sorted(set(sizes)))


def _scaling_row(case: ExplorerCase, result: Found) -> dict[str, Any]:
    """Return the best plan on one number of GPUs; nulls where nothing fits."""
    names = (
        "step_seconds",
        "step_seconds_low",
        "step_seconds_high",
        "memory_bytes",
        "tokens_per_second_per_gpu",
        "training_days",
    )
    best: Answer | None = result.best
    known = {} if best is None else best[1].summary() | {"label": str(best[0]), "knobs": knobs_of(best[0])}
    counts = {"gpus": result.gpus, "candidates": result.candidates, "feasible": result.feasible}
    per_gpu = known.get("tokens_per_second_per_gpu")
    shown = {name: known.get(name) for name in (*names, "label", "knobs")}
    return counts | shown | {"tokens_per_second": None if per_gpu is None else per_gpu * result.gpus}
