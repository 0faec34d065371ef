"""Changes of one plan: what would make it fit, and what knobs held constant would bring."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

from traincast.catalog import Stack, stack_names
from traincast.core import CHOICES, GIB, OPTIMIZERS, PRECISIONS, STRATEGIES, Doc, Result
from traincast.planner.frameworks.locks import lock_values
from traincast.planner.frameworks.spaces import Framework, lean
from traincast.step import NO_PLACEMENT_GIVEN, Answer, Estimate, divisors, estimate, estimate_with

ACCURACY: Final = {  # choice -> value -> what it may cost in accuracy
    "precision": {name: recipe.accuracy for name, recipe in PRECISIONS.items() if recipe.accuracy},
    "optimizer_kind": {name: recipe.accuracy for name, recipe in OPTIMIZERS.items() if recipe.accuracy},
    "grad_dtype": {
        "16-bit": "many micro-batches lose small gradients: DeepSeek-V3 adds up in fp32 for stability"
        " (arXiv 2412.19437, section 3.3.3)"
    },
}


def leaner_plans(est: Estimate) -> list[tuple[str, Estimate]]:
    """Return single changes of a plan, in words, that save memory: what costs least to change is first.

    That is a smaller micro-batch, then the loss, recomputation, sharding by ZeRO, offloading, other degrees,
    and more GPUs.
    """
    changed: list[tuple[str, Estimate]] = []
    for words, other in _leaner(est):
        if other is not None and other.memory_bytes < est.memory_bytes:
            changed.append((words, other))
    return changed


def _leaner(est: Estimate) -> Iterator[tuple[str, Estimate | None]]:
    """Yield changes that may save memory, in words and with their estimate."""
    plan = est.plan
    model = est.model

    def with_knobs(**knobs: object) -> Estimate | None:
        return estimate_with(est, {**NO_PLACEMENT_GIVEN, **knobs})

    smaller = plan.mbs
    while smaller % 2 == 0:
        smaller //= 2
        yield f"mbs {smaller}", with_knobs(mbs=smaller)
    yield "a loss fused into the head", _with_fused_loss(est)
    for modules in ("selective", lean(model), "full"):
        if plan.recompute not in (modules, "full"):
            yield f"recompute {modules}", with_knobs(recompute=modules)
    for zero in range(plan.zero + 1, 4):
        yield f"zero {zero}", with_knobs(zero=zero)
    if plan.offload == "none":
        for states in ("optimizer", "activations"):
            yield f"offload {states}", with_knobs(offload=states)
    if plan.dp % 2 == 0:
        for axis in ("tp", "pp", "cp", "tp2"):
            if axis in STRATEGIES[plan.strategy].axes or (axis == "cp" and plan.strategy == "1d"):
                kind = {"cp_kind": "ring"} if axis == "cp" and plan.cp_kind == "none" else {}
                degree = getattr(plan, axis) * 2
                yield f"{axis} {degree}", with_knobs(**{axis: degree, "dp": plan.dp // 2, **kind})
    if model.experts is not None:
        yield f"ep {plan.ep * 2}", with_knobs(ep=plan.ep * 2)
        if plan.etp < plan.tp:
            yield f"etp {plan.tp}", with_knobs(etp=plan.tp)
    yield f"{2 * plan.gpus:,} GPUs", with_knobs(dp=2 * plan.dp)


def _with_fused_loss(est: Estimate) -> Estimate | None:
    """Return the estimate with the loss fused into the head; None where its software has none."""
    name = f"{Stack(est.assumptions.name).fitted_name.removesuffix('-eager')}-fused-loss"
    if name not in stack_names():
        return None
    logits = Stack(name).assumptions.memory.logit_bytes
    fused = est.assumptions.with_values({"memory.logit_bytes": logits})
    return estimate(est.model, est.system, est.plan, gbs=est.gbs, assumptions=fused)


def accuracy_costs(locks: Mapping[str, object]) -> dict[str, str]:
    """Return what each recipe that locks ask for may cost in accuracy, by choice and value."""
    return {
        f"{name}={value}": costs[value]
        for name, costs in ACCURACY.items()
        for value in lock_values(name, locks.get(name))
        if value in costs
    }


class HeldKnob(Result):
    """A knob held constant, and its best other value at one plan: the fastest of those that fit, if any."""

    knob: Annotated[str, Doc("name of the knob")]
    value: Annotated[Any, Doc("its value in the plan", text=True)]
    other: Annotated[Any, Doc("the other value", text=True)]
    step_seconds_change: Annotated[float, Doc("relative change of the step time with the other value")]
    memory_bytes_change: Annotated[float, Doc("change of the memory of the fullest rank", "byte")]
    fits: Annotated[bool, Doc("whether the plan fits with the other value")]

    @property
    def speed(self) -> str:
        """How the step time changes, in words."""
        change = self.step_seconds_change
        direction = "slower" if change > 0 else "faster"
        return f"{abs(change):.1%} {direction}" if abs(change) >= 5e-4 else "as fast"

    def __str__(self) -> str:
        nbytes = self.memory_bytes_change
        memory = ""
        if abs(nbytes) >= 0.05 * GIB:
            memory = f", {abs(nbytes) / GIB:,.1f} GiB {'more' if nbytes > 0 else 'less'}"
        misfit = "" if self.fits else ", does not fit"
        return f"{self.knob}={self.value} ({self.other}: {self.speed}{memory}{misfit})"


def held_knobs(framework: Framework, locks: Mapping[str, object], answer: Answer) -> list[HeldKnob]:
    """Try other values of every knob that the search holds constant, one knob at a time.

    The largest gain of time is first. Locked knobs, and those without another value that the plan and the
    machine can have, are left out.
    """
    held = _held_values(framework, locks, answer).items()
    knobs = [_best_other(framework, name, values, answer) for name, values in held]
    return sorted((knob for knob in knobs if knob is not None), key=lambda knob: knob.step_seconds_change)


def held_choices(framework: Framework, locks: Mapping[str, object], answer: Answer) -> list[str]:
    """Return the choices that the search holds constant, with what another precision would bring.

    That one is tried because it may gain most; `held_knobs` tries all. Choices of which some values are
    searched are left out.
    """
    plan = answer[0]
    words = list[str]()
    for name, values in _held_values(framework, locks, answer).items():
        if name in CHOICES and name not in framework.varied and getattr(plan, name) != "":
            other = _best_other(framework, name, values, answer) if name == "precision" else None
            words.append(str(other or f"{name}={getattr(plan, name)}"))
    return words


def _held_values(
    framework: Framework, locks: Mapping[str, object], answer: Answer
) -> dict[str, tuple[object, ...]]:
    """Return the values of each knob that the search holds constant, but for those that are locked."""
    searched = {"replicas"} if framework.searches_replicas(answer[1].model) else set()
    return {name: of for name, of in framework.held.items() if name not in {*locks, *searched}}


def _best_other(framework: Framework, name: str, values: tuple[Any, ...], answer: Answer) -> HeldKnob | None:
    """Return the best other value of a knob; None where there is none, or it has no effect on this plan."""
    plan, est = answer
    current = getattr(plan, name)
    placement = NO_PLACEMENT_GIVEN if name == "order" else {}
    others = list[HeldKnob]()
    generated = {"replicas": _replicas, "layout": _layouts}.get(name)
    tried: Iterable[object] = values if generated is None else generated(est)
    given = plan.choices() | {"stack": est.assumptions.name}
    for value in tried:
        if value == current or framework.find_refusals(given | {name: value}):
            continue
        other = estimate_with(est, {**placement, name: value})
        if other is None:
            continue
        slower = float(other.step_seconds) / float(est.step_seconds) - 1
        memory = float(other.memory_bytes) - float(est.memory_bytes)
        if slower or memory:  # a value may change nothing of this model, as that of experts of a dense one
            others.append(HeldKnob(name, current, value, slower, memory, bool(other.fits)))
    return min(others, key=lambda knob: (not knob.fits, knob.step_seconds_change), default=None)


def _replicas(est: Estimate) -> list[int]:
    """Return the numbers of replicas of sharded state that a plan can have."""
    return [int(number) for number in divisors(est.plan.dp)]


def _layouts(est: Estimate) -> Iterator[str]:
    """Yield layouts that count the head, or embedding and head, as a layer of the last and first chunk."""
    chunks = est.plan.pp * est.plan.vp
    layers = est.model.layers
    for first in (1, 0) if chunks > 2 else ():
        most, left = divmod(layers + 1 + first, chunks)
        if not left:
            yield f"{most - first},{most}*{chunks - 2},{most - 1}"
