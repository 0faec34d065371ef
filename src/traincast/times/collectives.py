"""Ring collectives, all-to-all and point-to-point messages on network tiers (arXiv 2410.00273).

A group has n members, g of them in each fast domain, so it spans n // g domains; larger domains hold more of
them. Whether a tier is crossed is a factor of 0 or 1, so a tier that is not crossed costs nothing, and
neither does a group of one. With `Collectives.protocols` times are those of `traincast.times.nccl`, the
fastest of a library's algorithms and protocols.
"""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from traincast.core import Assumptions, Column, System, Tier, distinct, maximum, minimum, nonzero, sign
from traincast.operations import CollectiveKind, total
from traincast.times import nccl
from traincast.times.nccl import Protocols, achieved_bandwidth, congestion_factor
from traincast.times.process_groups import Group, domains, is_group


def collective(
    kind: CollectiveKind,
    V: Column,
    members: Group,
    system: System,
    assumed: Assumptions,
    copies: Column = 1.0,
    groups: tuple[int, int] = (1, 1),
) -> Column:
    """Return the time of one collective (arXiv 2410.00273; each tier is a term of every sum and maximum) [s].

    `V`: size of the full tensor, not of the shard (all-to-all: of a rank's tensor; send: of the block)
    [byte]; 0 for a group of one.
    """
    if kind == "all-to-all":
        return all_to_all(
            V if assumed.collectives.all_to_all_factor == 1 else assumed.collectives.all_to_all_factor * V,
            members,
            system,
            assumed,
            copies,
            groups,
        )
    if kind == "send":
        return _send_to_neighbour(V, members, system, assumed)
    return collective_curve(kind, members, system, assumed).seconds(V)


class AlphaBeta(NamedTuple):
    """Time of a collective as a line over its volume; columns over plans."""

    hops: Column  # one latency per hop [s]
    per_byte: Column  # time of a byte [s/byte]

    def seconds(self, V: Column) -> Column:
        """Return the time for a volume V [byte]; 0 for an empty one [s]."""
        return V * self.per_byte + self.hops * sign(V)

    def streaming_time(self, V: Column) -> Column:
        """Return the time in which a volume V streams over the slowest link, without latency [s]."""
        return V * self.per_byte

    def scale_data(self, factor: Column) -> "AlphaBeta":
        """Return the time with `factor` times the data."""
        return AlphaBeta(self.hops, factor * self.per_byte)


Curve = AlphaBeta | Protocols


def collective_curve(
    kind: CollectiveKind,
    members: Group,
    system: System,
    assumed: Assumptions,
    data_parallel: bool = False,
) -> Curve:
    """Return the time of a collective over its volume; arguments as for `collective`.

    With `data_parallel` all groups of a domain communicate at once.
    """
    curve = _unscaled_curve(kind, members, system, assumed, data_parallel)
    factor = {
        "all-gather": assumed.collectives.all_gather_factor,
        "reduce-scatter": assumed.collectives.reduce_scatter_factor,
    }.get(kind, 1.0)
    return curve if factor == 1 else curve.scale_data(factor)


def least_streaming(
    kind: CollectiveKind,
    members: Group,
    near: Sequence[tuple[float, ...]],
    system: System,
    assumed: Assumptions,
) -> Column:
    """Return the least time of a byte over the slowest link, however a group is placed [s/byte].

    `members` has the most members that it can have in a fast domain, `near` those that a group can have in a
    domain of each tier.
    """
    n, most = np.broadcast_arrays(members.members, members.near[0])
    first, row = distinct([n.ravel(), most.ravel()], n.size)
    of_group = n.ravel()[first]
    most = most.ravel()[first]
    inner, *outer = (minimum(of_group, within[:, None]) for within in np.array(near).T)
    placed = Group(of_group, (minimum(inner, most), *outer))
    per_byte = collective_curve(kind, placed, system, assumed, data_parallel=True).streaming_time(1.0)
    return np.asarray(np.min(per_byte, axis=0)[row].reshape(n.shape))


def _unscaled_curve(
    kind: CollectiveKind, members: Group, system: System, assumed: Assumptions, data_parallel: bool
) -> Curve:
    """Return the time of a collective before the factors of the volume in the assumptions."""
    if assumed.collectives.protocols:
        return nccl.protocols(kind, members, system.tiers, assumed.collectives, data_parallel)
    n, near = members
    fast, *outer = system.tiers
    inside = is_group(near[0])
    per_byte = inside / achieved_bandwidth(fast)
    hops = fast.latency * (n - domains(n, near[0]))  # the ring has n - 1 of them
    for tier, within, beyond in zip(outer, near, (*near[1:], n), strict=True):
        crossed = is_group(domains(beyond, within))
        # a member alone in its domain uses one port, several use all
        ports = 1 + (tier.ports * within - 1) * is_group(within)
        busy = crossed if tier.congestion is None else crossed * congestion_factor(tier, beyond / within)
        per_byte = maximum(per_byte, busy / (ports * achieved_bandwidth(tier)))
        hops = hops + tier.latency * (domains(n, within) - domains(n, beyond))
    a: Column = 1.0
    if kind == "all-reduce":
        # erratum 3: the published model passed once
        one_tier = assumed.collectives.all_reduce_passes_in_domain
        # 2 passes: reduce-scatter, then all-gather
        a = one_tier + (2.0 - one_tier) * is_group(domains(n, near[0])) * inside
    c = is_group(n) if kind in ("broadcast", "reduce") else (n - 1) / n
    return AlphaBeta(hops, a * c * per_byte)


def all_to_all(
    V: Column,
    members: Group,
    system: System,
    assumed: Assumptions,
    copies: Column = 1.0,
    groups: tuple[int, int] = (1, 1),
) -> Column:
    """Return the time of an all-to-all: over the network to the target domain, then to the target rank [s].

    `V`: size of a rank's tensor, its own part included [byte]; 0 for a group of one.
    """
    n, near = members
    distinct_copies = copies if assumed.collectives.node_copies else None
    if assumed.collectives.protocols:
        return nccl.all_to_all(V, members, system.tiers, assumed.collectives, distinct_copies, groups)
    up: Column = 0.0
    spans = (1.0, *near, n)
    seconds = list[Column]()
    for i, tier in enumerate(system.tiers):
        within = spans[i]
        beyond = spans[i + 1]
        domains = n / within
        sent = V * (beyond - within) / n * (n / beyond if i == 0 else 1.0)
        if i and distinct_copies is not None:
            sent = sent * nccl.distinct(distinct_copies, domains, groups) / distinct_copies
        sent, up = nccl.with_rails(sent, up, system.tiers, i, near[0], assumed.collectives)
        ports = tier.ports if i else 1.0
        busy = sent if tier.congestion is None else sent * congestion_factor(tier, beyond / within)
        seconds.append(
            busy / (ports * achieved_bandwidth(tier)) + tier.latency * (beyond / within - 1) * sign(V)
        )
    return total(seconds)


def _send_to_neighbour(V: Column, members: Group, system: System, assumed: Assumptions) -> Column:
    """Return the time to send a block to the neighbour in a ring, over its outermost tier [s]."""
    n, near = members
    spans = zip((1.0, *near), (*near, n), strict=True)
    return reduce(
        maximum,
        (
            is_group(domains(beyond, within)) * message_across(V, i, near[0], system, assumed)
            for i, (within, beyond) in enumerate(spans)
        ),
    )


def message_across(V: Column, i: int, near: Column, system: System, assumed: Assumptions) -> Column:
    """Return the time of a message to the neighbour in a group across a tier, given by its number [s].

    Where several neighbours share a fast domain the next one in another has another place in it, so that the
    message changes its rail.

    `V`: size of the message [byte]; `near`: members in a fast domain.
    """
    direct = point_to_point(V, system.tiers[i], assumed, inner=i == 0)
    share = nccl.rail_climb_share(system.tiers, i, assumed.collectives)
    if not nonzero(share):
        return direct
    climbs = share * is_group(near)
    return maximum(direct, sign(climbs) * point_to_point(climbs * V, system.tiers[i + 1], assumed))


def point_to_point(V: Column, tier: Tier, assumed: Assumptions, inner: bool = False) -> Column:
    """Return the time of one message over one port (arXiv 2410.00273, point to point) [s].

    `V`: size of the message [byte].
    """
    volume = V if assumed.collectives.message_factor == 1 else assumed.collectives.message_factor * V
    if assumed.collectives.protocols:
        return nccl.message(volume, tier, inner, assumed.collectives)
    return tier.latency + volume / achieved_bandwidth(tier)
