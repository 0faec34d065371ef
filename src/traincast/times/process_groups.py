"""Placement of communication groups: how many members share a domain of each tier of the network.

A plan says how many members of its tp, tp2, cp, pp and dp groups share a *fast* domain, the innermost tier.
Beyond it ranks are numbered axis by axis, in the plan's order, and fill the larger domains one after the
other; the part of an axis outside a fast domain has its place in that order.
"""

import functools
from collections.abc import Sequence
from typing import Final, NamedTuple

from traincast.core import Column, Plans, Tier, ceil, common_divisor, floor, maximum, minimum, nonzero
from traincast.operations import Axis

GROUP_ORDERS: Final = {
    "tp-cp-dp-pp": ("tp", "tp2", "cp", "dp", "pp"),  # Megatron-Core, torchtitan, DeepSpeed
    "tp-cp-pp-dp": ("tp", "tp2", "cp", "pp", "dp"),  # Megatron-Core with use-tp-pp-dp-mapping
}


class Group(NamedTuple):
    """A communication group."""

    members: Column  # number of members, n
    near: tuple[Column, ...]  # members in one domain, for each tier but the outermost, innermost first


def domains(members: Column, within: Column) -> Column:
    """Count the domains that a group fills; on columns a quotient is far faster than ``//``."""
    count: Column = floor(members / within)
    return count


def is_group(members: Column) -> Column:
    """Return 1 for a group of several members, 0 for one."""
    return minimum(members - 1, 1)


class Placement:
    """Placement of the groups of plans on the tiers of a network; each group is computed once."""

    def __init__(self, plan: Plans, tiers: Sequence[Tier]):
        self.plan = plan
        self._per_domain = _members_per_domain(plan, tiers)
        self._groups: dict[Axis, Group] = {}

    def group(self, axis: Axis) -> Group:
        """Return the group of an axis."""
        if axis not in self._groups:
            n = _members(self.plan, axis)
            near = tuple(_members_in_domain(self.plan, axis, n, in_domain) for in_domain in self._per_domain)
            self._groups[axis] = Group(n, near)
        return self._groups[axis]


class AnyPlacement(Placement):
    """Groups of plans placed in any way that leaves tensor-parallel groups where the plans have them.

    `near` has the members that a group can have in a domain of each tier but the outermost.
    """

    def __init__(self, plan: Plans, near: Sequence[tuple[float, ...]]):
        self.plan = plan
        self.near = near

    def group(self, axis: Axis) -> Group:
        """Return the group of an axis, with the most members that it can have in a fast domain."""
        sizes = {inner for inner, *_ in self.near}
        most: Column = max(sizes)
        if axis in ("weights", "shards", "replicas"):
            most = floor(most / (self.plan.fast_tp * self.plan.fast_tp2))
        elif axis in ("experts", "expert shards", "expert replicas"):
            most = functools.reduce(maximum, (_expert_groups(self.plan, size)[2] for size in sizes))
        return Group(_members(self.plan, axis), (most,))


def _members(plan: Plans, axis: Axis) -> Column:
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
            return minimum(plan.expert_holders, plan.replicas)
        case "tp-ep":
            return plan.ep * plan.etp
    degree: Column = getattr(plan, axis)
    return degree


def _members_per_domain(plan: Plans, tiers: Sequence[Tier]) -> list[dict[str, Column]]:
    """Return, for each tier but the outermost, the members of every axis in one domain."""
    names = GROUP_ORDERS[plan.order]
    fast = {axis: getattr(plan, f"fast_{axis}") for axis in names}
    per_domain = [fast]
    fast["stage"] = fast["tp"] * fast["cp"] * fast["dp"]  # ranks of one pipeline stage
    for tier in tiers[1:-1]:
        in_tier = tier.fast_domains(tiers[0])
        room: Column = in_tier
        spread = {}  # fast domains that an axis extends over
        for axis in names:  # the axis takes what is left of the domain
            spread[axis] = _largest_fitting_divisor(getattr(plan, axis) / fast[axis], room)
            room = room / spread[axis]
        in_domain = {axis: spread[axis] * fast[axis] for axis in names}
        # ranks of a stage, numbered before pp, fill the domain, so experts may have all of it
        if names[-1] == "pp":
            in_domain["stage"] = _largest_fitting_divisor(plan.ep * plan.etp, in_tier * fast["stage"])
        else:
            in_domain["stage"] = spread["tp"] * spread["cp"] * spread["dp"] * fast["stage"]
        per_domain.append(in_domain)
    return per_domain


def _members_in_domain(plan: Plans, axis: Axis, n: Column, in_domain: dict[str, Column]) -> Column:
    """Return the members of a group in one domain, given those of every axis."""
    match axis:
        case "cp" | "ulysses":
            inner = _common_divisor(plan.ulysses, in_domain["cp"])  # neighbours exchange heads
            return inner if axis == "ulysses" else in_domain["cp"] / inner
        case "weights":
            return in_domain["dp"] * in_domain["cp"]
        case "shards" | "replicas":
            holders = in_domain["dp"] * in_domain["cp"]
            inner = _common_divisor(plan.shards, holders)  # shards are neighbours, replicas far apart
            return inner if axis == "shards" else holders / inner
        case "etp" | "ep" | "tp-ep" | "experts" | "expert shards" | "expert replicas":
            pool = (
                in_domain["stage"]
                if axis in ("etp", "ep", "tp-ep")
                else in_domain["tp"] * in_domain["cp"] * in_domain["dp"]
            )
            etp, ep, holders = _expert_groups(plan, pool)
            if axis == "tp-ep":
                return etp * ep
            if axis in ("etp", "ep"):
                return etp if axis == "etp" else ep
            shards = _common_divisor(plan.expert_shards, holders)  # those of one copy are neighbours
            return {"experts": holders, "expert shards": shards}.get(axis, holders / shards)
    return in_domain[axis]


def _expert_groups(plan: Plans, ranks: Column) -> tuple[Column, Column, Column]:
    """Return the members of etp, ep and expert-data-parallel groups among so many neighbours of a stage."""
    etp = _common_divisor(plan.etp, ranks)
    ep = _common_divisor(plan.ep, ranks / etp)
    return etp, ep, ranks / etp / ep


def _largest_fitting_divisor(degree: Column, room: Column) -> Column:
    """Return the largest divisor of a degree that is at most `room` (as in `System.domain`)."""
    n = maximum(degree, 1)
    parts = ceil(n / maximum(floor(room), 1))
    while nonzero(odd := n / parts != domains(n, parts)):
        parts = parts + odd
    divisor: Column = n / parts
    return divisor


def _common_divisor(degree: Column, room: Column) -> Column:
    """Return the greatest common divisor of a degree and `room`, or 1 where `room` is below 1."""
    places = maximum(floor(room), 1)
    return common_divisor(degree, places)
