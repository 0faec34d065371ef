"""Sentences about plans: what one is, how far it exceeds memory, what makes it fit, how two compare."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Final

from traincast.core import (
    CHOICES,
    DEFAULTS,
    KNOBS,
    PLACEMENTS,
    Plan,
    Tier,
    count_of,
    format_signed,
    number_text,
    seconds,
)
from traincast.operations import Axis
from traincast.step import Answer, Estimate
from traincast.times import Placement

MIN_CHANGE_REPORTED: Final = 5e-4  # smallest change that is reported, as a share of the step time
MAX_KNOBS_COMPARED: Final = 4  # in which two plans differ; with more the whole plan is said
LARGEST_NODE: Final = 16  # accelerators; a larger domain is no single machine
SHARDED: Final = {  # by stage of ZeRO, over data-parallel ranks
    0: "nothing sharded over them",
    1: "distributed optimizer",
    2: "gradients and optimizer sharded (ZeRO-2)",
    3: "weights, gradients and optimizer sharded (FSDP)",
}
OTHERWISE: Final = {  # choice -> how a value other than the default is said, after the degrees
    "dp_overlap": "DP communication not overlapped",
    "order": "ranks in order {}",
    "attention": "{} attention",
    "precision": "{}",
    "optimizer_kind": "{}",
    "grad_dtype": "{} gradients",
    "master_copy": "{} of the master copy",
}
COMPONENT_NAMES: Final = {
    "exposed_memory": "exposed memory traffic",
    "tp_comm": "TP and CP communication",
    "ep_comm": "EP communication",
    "optimizer_step": "optimizer step",
    "offload_comm": "copies to the host",
    "host": "wait for the host",
    "stragglers": "wait for stragglers",
    "data_loading": "wait for data",
    "dp_comm": "DP communication",
    "pp_comm": "pipeline transfers",
    "bubble": "pipeline bubble",
}


def component_label(component: str, *plans: Plan) -> str:
    """Return the name of a component of time or memory in a sentence, on some plans or in general."""
    if component == "tp_comm" and plans and all(plan.cp == 1 for plan in plans):
        return "TP communication"
    if component == "tp_comm" and plans and all(plan.tp * plan.tp2 == 1 for plan in plans):
        return "CP communication"
    return COMPONENT_NAMES.get(component, component)


def plan_in_words(plan: Plan, tiers: Sequence[Tier]) -> str:
    """Say what a placed plan is, on a network of some tiers.

    The largest domain of at most `LARGEST_NODE` accelerators is a node. A smaller one, such as that of the
    two dies of a package, has the name of its tier.
    """
    return ", ".join(_parts(plan, tiers))


def _parts(plan: Plan, tiers: Sequence[Tier]) -> Iterator[str]:
    placement = Placement(plan.columns(), tiers)
    sizes = [int(tier.used or tier.size or 1) for tier in tiers[:-1]]
    outer = max((i for i, size in enumerate(sizes) if size <= LARGEST_NODE), default=None)
    node = 0 if outer is None else outer
    large = f"fast domain of {sizes[node]:,}", f"fast domains of {sizes[node]:,}"
    domain, domains = large if outer is None else ("node", "nodes")

    def where(degree: int, *axes: Axis) -> str:
        groups = [placement.group(axis).near[: node + 1] for axis in axes]
        near = [int(prod(members)) for members in zip(*groups, strict=True)]
        if node and near[0] == degree:
            return f"inside a domain of {tiers[0].name}"
        return f"inside a {domain}" if near[node] == degree else f"over {degree // near[node]} {domains}"

    if plan.tp_kind == "summa":
        yield f"SUMMA tensor parallel on a grid of {plan.tp2} × {plan.tp}"
    elif plan.tp > 1:
        without = "" if plan.sp else " without sequence parallelism"
        yield f"{plan.tp}-way tensor parallel {where(plan.tp, 'tp')}{without}"
    if plan.cp > 1:
        place = where(plan.cp, "cp", "ulysses")  # a group of those that pass keys, in each of those of heads
        yield f"{plan.cp}-way context parallel ({plan.cp_kind}) {place}"
    if plan.pp > 1:
        chunks = f" of {count_of(plan.vp, 'chunk')}" if plan.vp > 1 else ""
        schedule = "" if plan.schedule == DEFAULTS["schedule"] else f" ({plan.schedule})"
        yield f"{plan.pp} pipeline stages{chunks}{schedule}"
    if plan.ep > 1:
        yield f"{plan.ep}-way expert parallel {where(plan.ep, 'ep')}"
    yield count_of(plan.dp, "replica")
    if (holders := plan.dp * plan.cp) > 1:
        within = f" within each of {plan.replicas} groups" if 1 < plan.replicas < holders else ""
        yield f"{SHARDED[plan.zero if plan.replicas < holders else 0]}{within}"
    yield f"micro-batches of {count_of(plan.mbs, 'sequence')}"
    if plan.recompute != "none":
        whole = plan.recompute in ("full", "selective")
        yield f"{plan.recompute} recomputation" if whole else f"recomputation of {plan.recompute}"
    if plan.offload != "none":
        yield f"{plan.offload} in the host's memory"
    if overlapped := [axis.upper() for axis in ("tp", "ep") if getattr(plan, f"{axis}_overlap")]:
        yield f"{' and '.join(overlapped)} communication overlapped"
    for choice, words in OTHERWISE.items():
        if (value := getattr(plan, choice)) != DEFAULTS[choice]:
            yield words.format(value)


def changed_knobs(plan: Plan, other: Plan) -> list[str]:
    """Return the knobs, placement aside, in which a plan differs from another."""
    names = (name for name in (*KNOBS, *CHOICES) if name not in PLACEMENTS)
    return [name for name in names if getattr(plan, name) != getattr(other, name)]


def without_placement(plan: Plan) -> str:
    """Return the knobs of a plan, placement aside, as `str` has them."""
    return " ".join(word for word in str(plan).split() if not word.startswith("fast_"))


def differences(plan: Plan, other: Plan) -> str:
    """Say in which knobs a plan differs from another, or the whole plan where it differs in many."""
    changed = changed_knobs(plan, other)
    if len(changed) > MAX_KNOBS_COMPARED:
        return str(plan)
    values = (f"{name} {getattr(plan, name)} instead of {getattr(other, name)}" for name in changed)
    return ", ".join(values) or "another placement"


def what_decides(est: Estimate) -> str:
    """Say what to do where it is uncertain whether a plan fits, and which phase decides; else nothing."""
    if est.verdict != "uncertain":
        return ""
    return f"Uncertain: measure one step. Its peak is the {est.memory_phase}."


def compare_with_best(pair: Answer, best: Answer) -> tuple[str, str]:
    """Compare a plan with the best: its time and knobs, and the components that differ most."""
    (plan, est), (_, winner) = pair, best
    change = float(est.step_seconds - winner.step_seconds)
    parts = {name: float(est.breakdown[name]) - float(winner.breakdown[name]) for name in est.breakdown}
    causes = [item for item in parts.items() if abs(item[1]) > 0.05 * abs(change) + 1e-12]
    largest = sorted(causes, key=lambda item: -abs(item[1]))[:3]
    changes = ((component_label(name, plan, best[0]), value) for name, value in largest)
    differences = ", ".join(f"{name} {'+' * (value > 0)}{number_text(value, 3)} s" for name, value in changes)
    return f"{time_against_best(est, winner)}  {plan}", differences or "the same components"


def time_against_best(est: Estimate, winner: Estimate) -> str:
    """Return the step time in words, and by how much it differs from the best plan's."""
    slower = float(est.step_seconds / winner.step_seconds) - 1
    return f"{seconds(float(est.step_seconds))} ({format_signed(slower)})"
