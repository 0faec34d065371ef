"""First lines of an answer: the plan, its time, its memory, and what the run takes; each one line."""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from traincast.catalog import Stack
from traincast.core import (
    DEFAULTS,
    GIB,
    PRECISIONS,
    Column,
    Plan,
    gib,
    number_text,
    percent,
    probability_text,
    seconds,
    seconds_with_interval,
    total_text,
)
from traincast.step import Alternative, Estimate, MeasuredStep, Metrics, Narrower, cost_per_million_tokens
from traincast.ui.text.tables import Parts, title_line, width

ATYPICAL: Final = 0.05  # share between a time and the median of all software, from which on both are said
TIMES: Final = 2.0  # share by which a time is longer, from which on it is said to be several times another
ZERO_WORDS: Final = {0: "DDP", 2: "ZeRO-2", 3: "FSDP"}  # how replicas of these stages of ZeRO are called


def headline(
    kind: str,
    est: Estimate,
    measures: Metrics,
    price: float | None = None,
    measured: MeasuredStep | None = None,
) -> Parts:
    """Show the plan, its time, its memory, and days, dollars and throughput of the run, a line each.

    `kind` is what the plan is called; `price` that of a GPU hour [$], where it is known; `measured` a step
    that was measured, against which the time is said.
    """
    yield from _first_lines(kind, est, measured)
    yield run_line(est, measures, price)


def of_launch(kind: str, est: Estimate, advice: str, measured: MeasuredStep | None = None) -> Parts:
    """Show the plan of a launch, its time, its memory, and what to change, a line each."""
    yield from _first_lines(kind, est, measured)
    yield advice


def of_memory(kind: str, est: Estimate) -> Parts:
    """Show the plan and its memory, a line each."""
    yield from _first_lines(kind, est, timed=False)


def _first_lines(kind: str, est: Estimate, measured: MeasuredStep | None = None, timed: bool = True) -> Parts:
    """Show what is left out of a model, if anything, the plan, its time if `timed`, and its memory."""
    model = est.model
    if model.left_out:
        yield f"{model.name} without its {model.left_out} ({total_text(model.parameters)} parameters)"
    yield title_line(plan_line(kind, est.plan))
    if timed:
        yield time_line(est) if measured is None else measured_line(measured)
    yield memory_line(est)


def join_parts(start: str, parts: Iterable[str], between: str = ", ") -> str:
    """Return parts behind a start, as many as one line has room for, with an ellipsis for others."""
    line = start
    more = f"{between.rstrip()} …"
    left = list(parts)
    while left:
        longer = f"{line}{between if line != start else ''}{left.pop(0)}"
        if len(longer) + (len(more) if left else 0) > width():
            return f"{line}{more}"
        line = longer
    return line


def plan_line(kind: str, plan: Plan) -> str:
    """Return a plan as people write it: ``"Recommended: TP 4, PP 4 (VP 2), DP 8, micro-batch 1"``."""
    words = list(plan_words(plan))
    if len(f"{kind}: {', '.join(words)}") > width():
        words = [word.replace("micro-batch", "mbs") for word in words]
    return join_parts(f"{kind}: ", words)


def plan_words(plan: Plan) -> Iterator[str]:
    """Yield degrees of parallelism and what differs from the defaults, the weightiest first."""
    if plan.tp_kind == "summa":
        yield f"SUMMA {plan.tp2} × {plan.tp}"
    elif plan.tp > 1:
        yield f"TP {plan.tp}"
    if plan.cp > 1:
        yield f"CP {plan.cp} ({plan.cp_kind})"
    if plan.pp > 1:
        chunks = [f"VP {plan.vp}"] if plan.vp > 1 else []
        schedule = [plan.schedule] if plan.schedule != DEFAULTS["schedule"] else []
        also = ", ".join([*chunks, *schedule])
        yield f"PP {plan.pp} ({also})" if also else f"PP {plan.pp}"
    if plan.ep > 1:
        yield f"EP {plan.ep}"
    elif plan.etp > 1:  # ranks that share an expert exchange its tokens
        yield f"ETP {plan.etp}"
    yield _replicas(plan)
    yield f"micro-batch {plan.mbs}"
    if plan.precision != DEFAULTS["precision"]:
        yield plan.precision
    if plan.recompute != "none":
        modules = plan.recompute.split("+")
        more = f" and {len(modules) - 1} more" if len(modules) > 1 else ""
        yield f"recompute {modules[0]}{more}"
    if plan.offload != "none":
        yield f"offload {plan.offload}"
    if overlapped := [axis.upper() for axis in ("tp", "ep") if getattr(plan, f"{axis}_overlap")]:
        yield f"{' and '.join(overlapped)} overlap"
    for choice in ("optimizer_kind", "grad_dtype", "master_copy", "attention"):
        if getattr(plan, choice) != DEFAULTS[choice]:
            yield f"{choice} {getattr(plan, choice)}"


def _replicas(plan: Plan) -> str:
    """Return the degree of data parallelism, and what replicas share where that is not the optimizer."""
    holders = plan.dp * plan.cp
    if holders == 1 or plan.zero not in ZERO_WORDS:
        return f"DP {plan.dp}"
    groups = f", {plan.replicas} groups" if 1 < plan.replicas < holders else ""
    return f"DP {plan.dp} ({ZERO_WORDS[plan.zero]}{groups})"


def step_text(est: Estimate) -> str:
    """Return the time of a step, with its 90% interval where that is known."""
    if est.interval is None:
        return seconds(est.step_seconds)
    return f"{seconds_with_interval(est.step_seconds, *est.interval)}, 90%)"


def time_line(est: Estimate) -> str:
    """Return the time of a step, its interval, and the first cause of the interval's width.

    Where the time is that of software which is not typical of what the question leaves open, it says of
    which, and the time with the likeliest other.
    """
    if est.interval is None:
        return f"{step_text(est)} a step"
    line = step_text(est).replace(" (", " a step (", 1)
    if not est.widths:
        return line
    cause = est.widths[0]
    half = f"±{np.expm1(cause.half):.0%}"
    forms = [f"{line}; {half} by {cause.brief}", f"{line}; {half}"]
    if (other := likeliest_other(est)) is not None:
        mine, theirs = software_words(est.assumptions.name, other.name)
        both = f"{line} with {mine}, {seconds(float(other.seconds))} with {theirs}"
        forms = [f"{both}: {half}", both, f"{line} with {mine}; {half} by {cause.brief}", *forms]
    return next((form for form in forms if len(form) <= width()), line)


def measured_line(measured: MeasuredStep) -> str:
    """Return how far a measured step is from the predicted one, and how likely by chance."""
    off = distance(measured.longer_than_predicted)
    line = f"{seconds(measured.step_seconds)} measured, {off} {step_text(measured.est)}"
    if measured.chance is None:
        return line
    return join_parts(line, [f": {probability_text(measured.chance)} by chance"], "")


def distance(off: float) -> str:
    """Return how far a time is from another, by the share that it is longer, in words before that one.

    Examples
    --------
    >>> distance(0.5), distance(-0.1), distance(9.0)
    ('50.0% slower than', '10.0% faster than', '10 times')
    """
    if off > TIMES:
        return f"{number_text(1 + off, 3)} times"
    return f"{percent(abs(off))} {'slower' if off > 0 else 'faster'} than"


def likeliest_other(est: Estimate) -> Alternative | None:
    """Return the likeliest software that takes another time, where the estimate's is not typical of all.

    Only that of the same framework: who trains with another one says so. And only with the same dispatcher
    where every rank holds whole experts, all of them: no tokens are exchanged then, and Megatron-Core refuses
    DeepEP (0.19.2, transformer/moe/token_dispatcher.py: "DeepEP dispatcher requires TPxEP > 1").
    """
    if abs(np.log(est.median_seconds / est.step_seconds)) < ATYPICAL:
        return None
    stack = Stack(Stack(est.assumptions.name).fitted_name)
    if not stack.is_known:
        return None
    own = stack.facts
    shared = ["framework"]
    if est.model.experts is not None and est.plan.ep * est.plan.etp == 1:
        shared.append("dispatcher")
    others = [
        part
        for part in est.alternatives
        if all(Stack(part.name).facts.get(fact) == own.get(fact) for fact in shared)
        and abs(np.log(float(part.seconds) / est.step_seconds)) >= ATYPICAL
    ]
    return max(others, key=lambda part: part.weight, default=None)


def software_words(name: str, other: str) -> tuple[str, str]:
    """Return what tells two software stacks apart: dispatcher, framework, release, or another fact."""
    own = Stack.of_assumptions(name)
    if not (own.is_known and Stack(other).is_known):
        return name, other
    mine = own.facts
    theirs = Stack(other).facts
    shared = [
        fact for fact in ("dispatcher", "framework", "released", *mine) if fact in mine and fact in theirs
    ]
    fact = next((fact for fact in shared if mine[fact] != theirs[fact]), None)
    if fact is None:
        return own.name, other
    return own.fact_words(fact), Stack(other).fact_words(fact)


def memory_line(est: Estimate) -> str:
    """Return the memory of the fullest rank, in which phase, and whether and how likely it fits."""
    capacity = gib(float(est.system.accelerator.visible_bytes))
    used = f"{est.memory_bytes / GIB:,.1f} of {capacity} at the {est.memory_phase}"
    odds = est.fits_probability
    if est.verdict == "uncertain":
        unsure = f"{used}: may fit ({probability_text(odds or 0.0)})"
        forms = f"{unsure}, measure one step", f"{unsure}, measure it"
        return next((form for form in forms if len(form) <= width()), unsure)
    if est.verdict == "does not fit":
        if odds is None:
            return f"{used}: does not fit"
        likely = f"fits with {probability_text(odds)} probability"
        whole = f"{used}: does not fit ({likely})"
        return whole if len(whole) <= width() else f"{used}: {likely}"
    return f"{used}: fits" + ("" if odds is None else f" with {probability_text(odds)} probability")


def run_line(est: Estimate, measures: Metrics, price: float | None = None) -> str:
    """Return days and dollars of the run, as far as known, throughput of a GPU, and MFU."""
    per_gpu = float(measures.tokens_per_second_per_gpu)
    parts = list[str]()
    if measures.days is not None and est.model.training_tokens is not None:
        cost = "" if measures.cost is None else f" for ${total_text(float(f'{float(measures.cost):.4g}'))}"
        parts.append(f"{total_text(est.model.training_tokens)} tokens in {days(measures.days)}{cost}")
    elif price is not None:
        parts.append(f"${number_text(cost_per_million_tokens(price, per_gpu), 3)} a million tokens")
    run = f"{parts[0]}, " if parts else ""
    priced = run if price is None else f"{parts[0]} at ${price:.4g}/h, "
    rate_and_mfu = f"{per_gpu:,.0f} token/s/GPU"
    peak = ""
    if measures.mfu is not None:
        rate_and_mfu += f", MFU {float(measures.mfu['megatron']):.1%}"
        peak = of_peak(est.plan)
    short_peak = f" ({peak.removeprefix(' of the ').removesuffix(' peak')})" if peak else ""
    forms = (
        f"{priced}{rate_and_mfu}{peak}",
        f"{run}{rate_and_mfu}{peak}",
        f"{run}{rate_and_mfu}{short_peak}",
    )
    return next((form for form in forms if len(form) <= width()), forms[-1])


def narrowing_line(est: Estimate) -> Iterator[str]:
    """Yield what option narrows the interval most, where one does."""
    if est.narrower is None:
        return
    narrower = est.narrower
    others = narrower.others
    yours = f"or {' or '.join(others)}, as yours has" if others else "if yours is that"
    short = f"{describe_narrowing(narrower)} with {narrower.option}"
    whole = f"{short} ({yours})"
    yield whole if len(whole) <= width() else short


def describe_narrowing(narrower: Narrower) -> str:
    """Return how much an interval narrows: ``"±54% narrows to ±40%"``."""
    return f"±{np.expm1(narrower.of):.0%} narrows to ±{np.expm1(narrower.half):.0%}"


def of_peak(plan: Plan) -> str:
    """Return which peak a plan's MFU is a share of, where it is not the usual one of 16 bits."""
    rate_of_products = PRECISIONS[plan.precision].rate
    return "" if rate_of_products == "16-bit" else f" of the {rate_of_products} peak"


def days(number: Column) -> str:
    """Return a number of days as text, rounded to whole days from 100 on."""
    return f"{number:,.0f} days" if number >= 100 else f"{number:.3g} days"
