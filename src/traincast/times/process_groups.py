"""Where the members of a communication group are: how many share a domain of each tier of the network.

A plan says how many members of its tp, tp2, cp, pp and dp groups share a *fast* domain, the innermost tier. Beyond it ranks are
numbered axis by axis, in the plan's order, and fill the larger domains one after the other: whatever part of an axis lies outside a
fast domain takes its place in that order.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from traincast.core.plan import Plans
from traincast.core.quantities import Column
from traincast.core.system import Tier
from traincast.operations.operation import Axis

ORDERS: Final = {
    "tp-cp-dp-pp": ("tp", "tp2", "cp", "dp", "pp"),  # Megatron-Core, torchtitan, DeepSpeed
    "tp-cp-pp-dp": ("tp", "tp2", "cp", "pp", "dp"),  # Megatron-Core with use-tp-pp-dp-mapping
}


class Group(NamedTuple):
    """A communication group.

    Parameters
    ----------
    members : Column
        Its members, n.
    near : tuple of Column
        Those in one domain, for each tier but the outermost, innermost first.
    """

    members: Column
    near: tuple[Column, ...]


def domains(members: Column, within: Column) -> Column:
    """How many domains with so many members each a group fills; on columns a quotient is far faster than ``//``.

    Parameters
    ----------
    members, within : Column
        Members of the group, and those in one domain.

    Returns
    -------
    Column
        A whole number.
    """
    found: Column = np.floor(members / within)
    return found


def group(plan: Plans, axis: Axis, tiers: Sequence[Tier]) -> Group:
    """A group of a plan and its placement.

    Parameters
    ----------
    plan : Plans
        The plans.
    axis : Axis
        Which group: an axis of the plan; ``"cp"`` is what ``"ulysses"`` leaves of it; ``"weights"`` holds the same weights,
        ``"shards"`` shares one copy of them and ``"replicas"`` holds the same share; ``"ep"``, ``"etp"``, ``"experts"`` are those
        of the experts, the last holding the same ones, with ``"expert shards"`` and ``"expert replicas"`` of it.
    tiers : sequence of Tier
        The network, innermost first.

    Returns
    -------
    Group
        Columns over plans.
    """
    n, sizes = _members(plan, axis), tuple(tier.size for tier in tiers)
    if sizes not in plan.placed_on:
        plan.placed_on[sizes] = _held(plan, tiers)
    return Group(n, tuple(_near(plan, axis, n, held) for held in plan.placed_on[sizes]))


def _members(plan: Plans, axis: Axis) -> Column:
    """Degree of a group."""
    match axis:
        case "cp":
            return plan.cp / plan.ulysses
        case "weights":
            return plan.holders
        case "shards":
            return plan.shards
        case "experts":
            return plan.expert_holders
        case "expert shards":
            return plan.expert_shards
        case "expert replicas":
            return np.minimum(plan.expert_holders, plan.replicas)
    degree: Column = getattr(plan, axis)
    return degree


def _held(plan: Plans, tiers: Sequence[Tier]) -> list[dict[str, Column]]:
    """Members of every axis in a domain of each tier but the outermost."""
    names = ORDERS[plan.order]
    fast = {axis: getattr(plan, f"fast_{axis}") for axis in names}
    held = [fast]
    fast["stage"] = fast["tp"] * fast["cp"] * fast["dp"]  # ranks of one pipeline stage
    for tier in tiers[1:-1]:
        whole = float(tier.size or 1) / float(tiers[0].size or 1)
        room: Column = whole
        here = {}
        for axis in names:  # the axis takes what is left of the domain
            here[axis] = _fitting(getattr(plan, axis) / fast[axis], room)
            room = room / here[axis]
        held.append({axis: here[axis] * fast[axis] for axis in names})
        # Numbered before pp, ranks of a stage have all of the domain: neighbours of an expert need not know how many there are.
        stage = here["tp"] * here["cp"] * here["dp"] * fast["stage"]
        held[-1]["stage"] = _fitting(plan.ep * plan.etp, whole * fast["stage"]) if names[-1] == "pp" else stage
    return held


def _near(plan: Plans, axis: Axis, n: Column, held: dict[str, Column]) -> Column:
    """Members of a group in a domain that holds so many of every axis."""
    match axis:
        case "cp" | "ulysses":
            inner = _common(plan.ulysses, held["cp"])  # neighbours exchange heads
            return inner if axis == "ulysses" else held["cp"] / inner
        case "weights":
            return held["dp"] * held["cp"]
        case "shards" | "replicas":
            together = held["dp"] * held["cp"]
            inner = _common(plan.shards, together)  # shards are neighbours, replicas far apart
            return inner if axis == "shards" else together / inner
        case "etp" | "ep" | "experts" | "expert shards" | "expert replicas":
            pool = held["stage"] if axis in ("etp", "ep") else held["tp"] * held["cp"] * held["dp"]
            etp = _common(plan.etp, pool)
            if axis == "etp":
                return etp
            ep = _common(plan.ep, pool / etp)
            if axis == "ep":
                return ep
            alike = pool / etp / ep  # holders of the same experts, those that share a copy neighbours
            shards = _common(plan.expert_shards, alike)
            return {"experts": alike, "expert shards": shards}.get(axis, alike / shards)
    return held[axis]


def _fitting(degree: Column, room: Column) -> Column:
    """Largest divisor of a degree that fits into a room: what is left of a domain stays empty (as `System.domain` leaves it)."""
    n = np.maximum(degree, 1)
    parts = np.ceil(n / np.maximum(np.floor(room), 1))
    while np.any(odd := n / parts != domains(n, parts)):
        parts = parts + odd
    whole: Column = n / parts
    return whole


def _common(degree: Column, room: Column) -> Column:
    """Members that fit into a room and divide the degree: their greatest common divisor, 1 where there is no room."""
    whole = np.maximum(np.floor(room), 1)
    return np.gcd(np.asarray(degree, np.int64), np.asarray(whole, np.int64)) * 1.0
