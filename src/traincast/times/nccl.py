"""Collectives as communication libraries run them: protocols LL and Simple, rings, trees and reduction in the switch.

NCCL and RCCL choose for every call among algorithms and protocols by estimates of latency and bandwidth (NCCL,
src/graph/tuning.cc); here the fastest is taken. Form and constants were fitted to 779 nccl-tests timings of all-gather,
reduce-scatter and all-reduce on Perlmutter (A100, Slingshot 11): 32 KiB to 8 GiB on 2 to 512 GPUs in powers of two, one group at
work, a NIC for each GPU. docs/collectives.md shows how far off it is there and on other machines.

A group has g members in each fast domain, N domains, n = N g members. V is the full tensor, k = 2 for an all-reduce and 1
otherwise; every link of a ring carries W = k (n - 1)/n V.

- LL sends a flag with every 4 bytes: hops are short, bandwidth is poor. LL128, where NCCL trusts the links of a node with it,
  has flags of 8 bytes in 128; a tier whose `ll_bandwidth` is near its bandwidth stands for that.
- Simple fills a pipeline of chunks, its hops are long, and they overlap with the data that streams over the slowest link.
- A tree has 2 log2(N) hops between domains, and the chain of a domain's members; a link carries 2 V. All-reduce only.
- With reduction in the switch (NVLink SHARP) an accelerator sends and receives (1 + 1/g) V. All-reduce only.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Final, NamedTuple

import numpy as np

from traincast.core.quantities import Column
from traincast.core.system import Tier
from traincast.operations.operation import CollectiveKind
from traincast.times.process_groups import Group, domains

# What a tier is taken for whose file says nothing, inside the fast domain and beyond; fitted to nccl-tests on Perlmutter.
LAUNCH: Final = (9.2e-6, 18.4e-6)  # [s] what a collective takes to start, and what it takes more between domains
SIMPLE_HOPS: Final = (11.9e-6, 29.7e-6)  # [s] a hop of Simple, where LL has 0.76 and 5.56 us
SIMPLE_RATIO: Final = (15.7, 5.34)  # at most so many hops of LL (NCCL's own figures: 5.7 and 5.2)
LL_BANDWIDTH: Final = 3.9e9  # [byte/s] of LL over one port
LL_SHARE: Final = 0.25  # at most, of what Simple achieves: rows over TCP
CHAINED: Final = 0.4  # a hop of Simple inside a domain to one between domains, at most, where a ring or tree crosses both
HOPS_PER_FILL: Final = 6.0  # inside one domain the pipeline fills in 1 + hops/6 hops of Simple
PEERS_AT_ONCE: Final = 8.0  # messages of an all-to-all that NCCL packs into one piece of work (src/include/device.h)


def achieved_bandwidth(tier: Tier) -> Column:
    """Bandwidth of one port that collectives achieve: peak times efficiency (arXiv 2410.00273, collectives).

    Parameters
    ----------
    tier : Tier
        The network.

    Returns
    -------
    Column
        Bandwidth, a number or a column over machines [byte/s].
    """
    return tier.bandwidth * tier.efficiency


def is_group(members: Column) -> Column:
    """Whether a group has several members, as a number.

    Parameters
    ----------
    members : Column
        Members, at least 1.

    Returns
    -------
    Column
        1 where there are several, 0 where there is one.
    """
    return np.minimum(members - 1, 1)


class Algorithm(NamedTuple):
    """One algorithm with one protocol; columns over plans.

    Parameters
    ----------
    start : Column
        Latency that is paid in full [s].
    per_byte : Column
        Time of a byte on the slowest link [s/byte].
    fill_root : Column, optional
        Pipelines fill and drain chunk by chunk: ½ √(latency · time on the link), for a volume of 1 [s/byte^½].
    hops : Column, optional
        Latency of the hops that overlaps with the data [s].
    """

    start: Column
    per_byte: Column
    fill_root: Column | None = None
    hops: Column | None = None

    def seconds(self, V: Column, root_V: Column) -> Column:
        """Time for a volume V, given its root [s].

        Of hops h and streaming s, √(h² + h s/4 + s²) is seen: half of the shorter is hidden where they are alike. The norm
        (h^1.7 + s^1.7)^(1/1.7) fits as well.
        """
        stream = V * self.per_byte
        if self.hops is not None:
            stream = np.sqrt(stream * stream + self.hops * (self.hops + stream / 4))
        if self.fill_root is not None:
            stream = stream + self.fill_root * root_V
        return self.start + stream

    def moving(self, factor: Column) -> "Algorithm":
        """The same with so many times the data."""
        return Algorithm(
            self.start, factor * self.per_byte, None if self.fill_root is None else np.sqrt(factor) * self.fill_root, self.hops
        )


class Protocols(NamedTuple):
    """Time of a collective over its volume: the fastest way, after the start.

    Parameters
    ----------
    launch : Column
        Start-up; columns over plans [s].
    ways : tuple of Algorithm
        What the library chooses among.
    """

    launch: Column
    ways: tuple[Algorithm, ...]

    def seconds(self, V: Column) -> Column:
        """Time for a volume V [byte]; nothing to send costs nothing [s]."""
        root = np.sqrt(V)
        return (self.launch + reduce(np.minimum, (way.seconds(V, root) for way in self.ways))) * np.sign(V)

    def streaming(self, V: Column) -> Column:
        """Time in which a volume V streams over the slowest link of a ring, without latency [s]."""
        return V * self.ways[1].per_byte

    def moving(self, factor: Column) -> "Protocols":
        """The same with so many times the data."""
        return Protocols(self.launch, tuple(way.moving(factor) for way in self.ways))


class _GroupPath(NamedTuple):
    """What a group of one placement crosses; columns over plans."""

    inside: Column  # whether members share a fast domain
    beyond: Column  # whether the group spans several
    launch: Column  # [s]
    fill: Column  # of a pipeline of Simple in the fast domain [s]
    chained: Column  # a hop of Simple there, where the group goes on to others [s]
    inner_hops: Column  # of a ring, inside fast domains
    ll_hops: Column  # of a ring in LL, all of them [s]
    simple_hops: Column  # of a ring in Simple [s]
    ll_tree: Column  # latency of the levels of a tree between domains [s]
    simple_tree: Column  # [s]
    per_byte: Column  # on the slowest link [s/byte]
    ll_per_byte: Column  # [s/byte]
    ll_tree_per_byte: Column  # all levels of a tree: LL does not stream through them [s/byte]


def protocols(
    kind: CollectiveKind, members: Group, tiers: Sequence[Tier], launch_share: float = 1.0, data_parallel: bool = False
) -> Protocols:
    """Time of a collective over its volume.

    Parameters
    ----------
    kind : {"all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce"}
        What it does; broadcast and reduce move V over every link of a ring.
    members : Group
        Members of the group and where they are; columns over plans.
    tiers : sequence of Tier
        The network, innermost first.
    launch_share : float
        Share of the start-up that is paid.
    data_parallel : bool
        Whether all groups of a domain are at work at once, as data-parallel ones are.

    Returns
    -------
    Protocols
        What takes no time for a group of one.
    """
    n, (g, *_) = members
    path = _path(members, tiers, data_parallel)
    passes = 2.0 if kind == "all-reduce" else 1.0
    carried = passes * (is_group(n) if kind in ("broadcast", "reduce") else (n - 1) / n)
    fill = path.fill * is_group(n)
    one = fill * (1 + passes * path.inner_hops / HOPS_PER_FILL) * (1 - path.beyond)
    link = carried * path.per_byte
    ways = [
        Algorithm(passes * path.ll_hops, carried * path.ll_per_byte),
        Algorithm(one + 2 * fill * path.beyond, link, 0.5 * np.sqrt(one * link), passes * path.simple_hops * path.beyond),
    ]
    if kind == "all-reduce":
        chain = 2 * (g - 1)
        levels = path.simple_tree + chain * path.chained
        down = 2 * path.per_byte
        ways.append(Algorithm(path.ll_tree + chain * tiers[0].latency, path.ll_tree_per_byte))
        ways.append(Algorithm(2 * fill + levels, down, 0.5 * np.sqrt(levels * down)))
        if tiers[0].switch_reduction is not None:
            ways.append(_in_switch(g, path, tiers[0].switch_reduction))
    return Protocols(launch_share * path.launch, tuple(ways))


def _in_switch(g: Column, path: _GroupPath, reduction: Column) -> Algorithm:
    """All-reduce in the switches of a fast domain; where there are several the tree is as fast.

    Switches read V from each of g accelerators and return a g-th of the sum, which goes back to all of them: (1 + 1/g) V each way.
    The bus bandwidth, 2 (g - 1)/(g + 1) of what a link carries, rises from 414 to 473 GB/s for 5 to 8 H200 as published.
    """
    per_byte = path.inside * (1 + 1 / g) / reduction
    link = np.maximum(per_byte, 2 * path.per_byte * path.beyond)
    start = 2 * path.fill * path.inside + path.beyond * (path.simple_tree + 2 * (g - 1) * path.chained)
    return Algorithm(start, link, 0.5 * np.sqrt(start * link))


def _path(members: Group, tiers: Sequence[Tier], data_parallel: bool) -> _GroupPath:
    """What a group crosses: hops of a ring tier by tier, levels of a tree, and the slowest link."""
    n, near = members
    fast, *outer = tiers
    inside, inner_hops = is_group(near[0]), n - domains(n, near[0])
    per_byte = inside / _inside(fast, near[0])
    slow = inside / _ll_inside(fast, near[0])
    tree_bytes = 2 * slow
    fill = _simple(fast, False)
    chained = np.minimum(fill, CHAINED * _simple(outer[0], True))
    ll_hops, simple_hops = inner_hops * fast.latency, inner_hops * chained
    ll_tree, simple_tree, more = 0 * ll_hops, 0 * ll_hops, 0 * ll_hops
    for tier, within, beyond in zip(outer, near, (*near[1:], n), strict=True):
        crossed, hops, levels = (
            is_group(domains(beyond, within)),
            domains(n, within) - domains(n, beyond),
            2 * np.log2(beyond / within),
        )
        wide = _between(tier, within, data_parallel)
        narrow = np.minimum(_ll(tier) * np.sqrt(within), wide / 2)
        per_byte = np.maximum(per_byte, crossed / wide)
        slow = np.maximum(slow, crossed / narrow)
        ll_hops = ll_hops + hops * tier.latency
        simple_hops = simple_hops + hops * _simple(tier, True)
        ll_tree = ll_tree + 2 * levels * tier.latency
        simple_tree = simple_tree + levels * _simple(tier, True)
        tree_bytes = tree_bytes + levels / narrow
        more = np.maximum(more, crossed * _launch(tier, True))
    launch = is_group(n) * _launch(fast, False) + more
    across = is_group(domains(n, near[0]))
    return _GroupPath(
        inside, across, launch, fill, chained, inner_hops, ll_hops, simple_hops, ll_tree, simple_tree, per_byte, slow, tree_bytes
    )


def _launch(tier: Tier, outside: bool) -> Column:
    """Start-up of a collective [s]."""
    return LAUNCH[outside] if tier.launch is None else tier.launch


def _simple(tier: Tier, outside: bool) -> Column:
    """One hop of Simple [s]."""
    if tier.simple_latency is not None:
        return tier.simple_latency
    longest: Column = np.maximum(tier.latency, np.minimum(SIMPLE_RATIO[outside] * tier.latency, SIMPLE_HOPS[outside]))
    return longest


def _ll(tier: Tier) -> Column:
    """Bandwidth of LL over one port [byte/s]."""
    return np.minimum(LL_BANDWIDTH, LL_SHARE * achieved_bandwidth(tier)) if tier.ll_bandwidth is None else tier.ll_bandwidth


def _inside(tier: Tier, members: Column) -> Column:
    """Bandwidth of an accelerator to others of its fast domain: over switches all links, in a mesh those to its group [byte/s]."""
    if not tier.mesh:
        return achieved_bandwidth(tier) * torus_axes(tier, members)
    return achieved_bandwidth(tier) * (np.maximum(members, 2) - 1) / (float(tier.size or 2) - 1)


def torus_axes(tier: Tier, members: Column) -> Column:
    """Axes of a torus that the rings of a group run along at once: log n / log s of them, at least one and at most all.

    A group of as many members as a side s of the torus lies along one axis; one of s x s has rings along two, each with half of the
    data (How to Scale Your Model, "Sharded matrices": collectives over several axes add up their bandwidths).

    Parameters
    ----------
    tier : Tier
        The network.
    members : Column
        Members of the group, n.

    Returns
    -------
    Column
        Axes; 1 where the network is no torus.
    """
    if tier.axes == 1:
        return 1.0
    axes: Column = np.clip(np.log(np.maximum(members, 1)) / np.log(tier.side), 1, tier.axes)
    return axes


def _ll_inside(tier: Tier, members: Column) -> Column:
    """Bandwidth of LL in a fast domain, where half of what links carry is flags unless the tier says otherwise [byte/s]."""
    wide = _inside(tier, members)
    return wide / 2 if tier.ll_bandwidth is None else tier.ll_bandwidth * wide / achieved_bandwidth(tier)


def _between(tier: Tier, within: Column, data_parallel: bool) -> Column:
    """Bandwidth of the ports of a group with so many members in a domain: each has its own, whoever else is at work [byte/s]."""
    ports = tier.ports * within
    if tier.lost_ports is not None:
        ports = ports * (1 - tier.lost_ports / np.maximum(ports, 1))
    share = tier.efficiency
    if data_parallel and (tier.dp_alone is not None or tier.dp_several is not None):
        alone = share if tier.dp_alone is None else tier.dp_alone
        share = alone + ((share if tier.dp_several is None else tier.dp_several) - alone) * is_group(within)
    return tier.bandwidth * share * ports


def all_to_all(V: Column, members: Group, tiers: Sequence[Tier], launch_share: float = 1.0, copies: Column | None = None) -> Column:
    """Time of an all-to-all: what leaves a domain crosses the network, and everything finds its rank inside a domain.

    Messages of Simple; fitted to groups of 2 to 8 A100 in one node. Latency between domains is an assumption. Data stream through
    all tiers at once (PXN of NCCL, forwarding of DeepEP), so the slowest decides.

    Parameters
    ----------
    V : Column
        What a rank sends, its own part included; a column over plans [byte].
    members : Group
        Members of the group and where they are; columns over plans.
    tiers : sequence of Tier
        The network, innermost first.
    launch_share : float
        Share of the start-up that is paid.
    copies : Column, optional
        How many experts each part goes to, where those of a domain, and of a rank, get one copy together.

    Returns
    -------
    Column
        Latencies, and the longest stream; 0 for a group of one [s].
    """
    n, near = members
    spans = (1.0, *near, n)
    seconds, streams = launch_share * _path(members, tiers, False).launch * np.sign(V), []
    for i, (tier, within, beyond) in enumerate(zip(tiers, spans, spans[1:], strict=False)):
        sent = V * (beyond - within) / n * (n / beyond if i == 0 else 1.0)
        if copies is not None:
            sent = sent * distinct(copies, n / within) / copies
        partners = (beyond / within - 1) / PEERS_AT_ONCE
        latency = (2 * is_group(domains(beyond, within)) * _simple(tier, i > 0) + partners * tier.latency) * np.sign(V)
        stream = sent / (_between(tier, 1.0, False) if i else _inside(tier, beyond))
        seconds = seconds + latency
        streams.append(stream + 0.5 * np.sqrt(latency * stream))
    return seconds + reduce(np.maximum, streams)


def distinct(copies: Column, domains: Column) -> Column:
    """Domains that K copies of a token go to, each of D as likely for every copy: D (1 - (1 - 1/D)^K), on average."""
    return domains * (1 - (1 - 1 / domains) ** copies)


def message(V: Column, tier: Tier, inner: bool, launch_share: float = 1.0) -> Column:
    """Time of one message to a neighbour, from accelerators that all send at once.

    Parameters
    ----------
    V : Column
        The message; a column over plans [byte].
    tier : Tier
        The network it crosses.
    inner : bool
        Whether that is the innermost.
    launch_share : float
        Share of the start-up that is paid.

    Returns
    -------
    Column
        Start-up, and a hop of LL or of Simple [s].
    """
    wide = _inside(tier, 2.0) if inner else _between(tier, 1.0, False)
    narrow = _ll_inside(tier, 2.0) if inner else np.minimum(_ll(tier), wide / 2)
    fastest: Column = np.minimum(tier.latency + V / narrow, _simple(tier, not inner) + V / wide)
    return launch_share * _launch(tier, not inner) + fastest
