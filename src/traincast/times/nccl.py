"""Collectives as NCCL runs them: protocols LL and Simple, rings, trees and reduction in the switch.

NCCL and RCCL choose for every call among algorithms and protocols by estimates of latency and bandwidth
(NCCL, src/graph/tuning.cc); here the fastest is taken. Form and constants were fitted to 779 nccl-tests
timings of all-gather, reduce-scatter and all-reduce on Perlmutter (A100, Slingshot 11): 32 KiB to 8 GiB on 2
to 512 GPUs in powers of two, one group at work, a NIC for each GPU. docs/collectives.md shows how far off it
is there and on other machines.

A group has g members in each fast domain, N domains, n = N g members. V is the full tensor, k = 2 for an
all-reduce and 1 otherwise; every link of a ring carries W = k (n - 1)/n V.

- LL sends a flag with every 4 bytes: hops are short, bandwidth is poor. LL128, where NCCL trusts the links of
  a node, has flags of 8 bytes in 128; a tier whose `ll_bandwidth` is near its bandwidth stands for that.
- Simple fills a pipeline of chunks; its hops are long and overlap with the data on the slowest link.
- Inside one fast domain of NVLink the protocol is the one that NCCL's own estimates prefer, not always the
  fastest: times jump where it leaves LL or LL128 too early.
- A tree has 2 log2(N) hops between domains, and the chain of a domain's members; a link carries 2 V.
- With reduction in the switch (NVLink SHARP) an accelerator sends and receives (1 + 1/g) V.

The last two are for all-reduces only.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Final, NamedTuple

import numpy as np

from traincast.core import Collectives, Column, Tier, log2, maximum, minimum, nonzero, sign, sqrt, where
from traincast.operations import CollectiveKind
from traincast.times.process_groups import Group, domains, is_group

PEERS_PER_WORK: Final = 8.0  # messages of an all-to-all in one work item of NCCL (src/include/device.h)


class _Estimate(NamedTuple):
    """NCCL's estimate inside a node: baseLatencies and hwLatencies of NVLink (src/graph/tuning.cc).

    Those of rings are the same from version 2.18 to 2.30.
    """

    base: float  # [s]
    hop: float  # [s]
    share: float  # of the bandwidth that NCCL takes the rings of a node to have


# llMaxBws over it: 87.7 of 240 GB/s (Ampere), 141 of 360 (Hopper, from 2.21 on) and 282 of 720 (Blackwell)
_LL: Final = _Estimate(6.6e-6, 0.6e-6, 0.39)
_LL128: Final = _Estimate(14.0e-6, 1.9e-6, 0.92)
_SIMPLE: Final = _Estimate(8.4e-6, 3.4e-6, 1.0)


def _peak_bandwidth(tier: Tier) -> Column:
    """Return the peak bandwidth that one port has across a tier: its own, divided by the taper [byte/s]."""
    return tier.bandwidth if tier.taper is None else tier.bandwidth / tier.taper


def achieved_bandwidth(tier: Tier) -> Column:
    """Return the bandwidth of one port that collectives achieve: peak times efficiency [byte/s]."""
    return _peak_bandwidth(tier) * tier.efficiency


def congestion_factor(tier: Tier, domains: Column) -> Column:
    """Return the time across a tier relative to that without congestion, for a group in several domains."""
    return 1.0 if tier.congestion is None else 1 + tier.congestion * log2(maximum(domains, 1))


def rail_climb_share(tiers: Sequence[Tier], i: int, fitted: Collectives) -> Column:
    """Return the share of what goes from rail to rail in a tier that takes the tier above.

    A rail joins accelerators at one place of their fast domains. What is forwarded inside a fast domain
    (NCCL's PXN) stays on its rail; so does all of it where no tier is above (Rail-only, arXiv 2307.12169).
    """
    return 0.0 if tiers[i].rails is None or i + 1 == len(tiers) else 1 - fitted.rail_forwarding


def with_rails(
    sent: Column, up: Column, tiers: Sequence[Tier], i: int, near: Column, fitted: Collectives
) -> tuple[Column, Column]:
    """Return what an accelerator sends across a tier in an all-to-all, and what of it takes the tier above.

    `sent`: to other domains of the tier inside [byte]; `up`: from rail to rail in that tier [byte]; `near`:
    members in a fast domain, each at a place of its own.
    """
    rails = tiers[i].rails
    share = rail_climb_share(tiers, i, fitted)
    return sent + up, 0.0 if rails is None else share * (1 - 1 / minimum(near, rails)) * sent


class Algorithm(NamedTuple):
    """One algorithm with one protocol; columns over plans."""

    start: Column  # latency that is exposed in full [s]
    per_byte: Column  # time of a byte on the slowest link [s/byte]
    # fill and drain of the pipeline of chunks: ½ √(latency · time on the link), for a volume of 1 [s/byte^½]
    fill_root: Column | None = None
    hops: Column | None = None  # latency of the hops that overlaps with the data [s]

    def seconds(self, V: Column, root_V: Column) -> Column:
        """Return the time for a volume V, given its root [s].

        Hops h and streaming s together take √(h² + h s/4 + s²): half of the shorter is hidden if they are
        alike. The norm (h^1.7 + s^1.7)^(1/1.7) fits as well.
        """
        stream = V * self.per_byte
        if self.hops is not None:
            stream = sqrt(stream * stream + self.hops * (self.hops + stream / 4))
        if self.fill_root is not None:
            stream = stream + self.fill_root * root_V
        return self.start + stream

    def scale_data(self, factor: Column) -> "Algorithm":
        """Return the time with `factor` times the data."""
        fill_root = None if self.fill_root is None else sqrt(factor) * self.fill_root
        return Algorithm(self.start, factor * self.per_byte, fill_root, self.hops)


class ChosenRing(NamedTuple):
    """A ring inside a fast domain, in the protocol that the library's estimates prefer; fastest last."""

    estimates: tuple[Algorithm, ...]  # what the library expects, of growing latency and bandwidth
    rings: tuple[Algorithm, ...]  # what its protocols take
    reduction: Algorithm | None = None  # in the switch, beside the last protocol

    def seconds(self, V: Column, root_V: Column) -> Column:
        """Return the time for a volume V, given its root [s].

        A protocol that is given up too late counts as the fastest, so that no larger volume takes less time.
        """
        *narrow, widest = self.rings
        seconds = widest.seconds(V, root_V)
        if self.reduction is not None:
            seconds = minimum(seconds, self.reduction.seconds(V, root_V))
        expected = [estimate.seconds(V, root_V) for estimate in self.estimates]
        for i in reversed(range(len(narrow))):
            preferred = expected[i] <= reduce(minimum, expected[i + 1 :])
            seconds = where(preferred, minimum(narrow[i].seconds(V, root_V), seconds), seconds)
        return seconds

    def scale_data(self, factor: Column) -> "ChosenRing":
        """Return the time with `factor` times the data."""
        estimates, rings = (
            tuple(algorithm.scale_data(factor) for algorithm in part) for part in (self.estimates, self.rings)
        )
        return ChosenRing(estimates, rings, self.reduction and self.reduction.scale_data(factor))


class Protocols(NamedTuple):
    """Time of a collective over its volume: start-up and the fastest algorithm."""

    launch: Column  # start-up [s]
    algorithms: tuple[Algorithm, ...]  # those that the library chooses among
    beyond: Column = 1.0  # whether the group spans several fast domains
    chosen: ChosenRing | None = None  # what replaces the fastest inside one fast domain, if it is known

    def seconds(self, V: Column) -> Column:
        """Return the time for a volume V [byte]; 0 for an empty one [s]."""
        root = sqrt(V)
        fastest = reduce(minimum, (algorithm.seconds(V, root) for algorithm in self.algorithms))
        if self.chosen is not None:
            fastest = where(self.beyond > 0, fastest, self.chosen.seconds(V, root))
        return (self.launch + fastest) * sign(V)

    def streaming_time(self, V: Column) -> Column:
        """Return the time of a volume V over the slowest link of a ring, without latency [s]."""
        return V * self.algorithms[1].per_byte

    def scale_data(self, factor: Column) -> "Protocols":
        """Return the time with `factor` times the data."""
        return self._replace(
            algorithms=tuple(algorithm.scale_data(factor) for algorithm in self.algorithms),
            chosen=self.chosen and self.chosen.scale_data(factor),
        )


class _GroupPath(NamedTuple):
    """Hops and links that a group crosses; columns over plans."""

    inside: Column  # whether members share a fast domain
    beyond: Column  # whether the group spans several fast domains
    launch: Column  # [s]
    fill: Column  # fill of a pipeline of Simple in the fast domain [s]
    chained: Column  # a hop of Simple in the fast domain, if the group spans several [s]
    inner_hops: Column  # number of hops of a ring inside fast domains
    ll_hops: Column  # latency of all hops of a ring in LL [s]
    simple_hops: Column  # the same in Simple [s]
    per_byte: Column  # time on the slowest link in Simple [s/byte]
    ll_per_byte: Column  # the same in LL [s/byte]


class _Tree(NamedTuple):
    """Levels of a tree between the domains of a group; columns over plans."""

    ll: Column  # latency of its levels in LL [s]
    simple: Column  # the same in Simple [s]
    ll_per_byte: Column  # sum over all levels: LL does not stream through them [s/byte]


def protocols(
    kind: CollectiveKind,
    members: Group,
    tiers: Sequence[Tier],
    fitted: Collectives,
    data_parallel: bool = False,
) -> Protocols:
    """Return the time of a collective over its volume."""
    n, (g, *_) = members
    path = _path(members, tiers, fitted, data_parallel)
    passes = 2.0 if kind == "all-reduce" else 1.0
    rooted = kind in ("broadcast", "reduce")
    carried = passes * (is_group(n) if rooted else (n - 1) / n)
    if not rooted:
        carried = carried + _own_block(n, tiers[0], fitted) * (1 - path.beyond)
    fill = path.fill * is_group(n)
    inner_fill = fill * (1 + passes * path.inner_hops / fitted.hops_per_fill) * (1 - path.beyond)
    link = carried * path.per_byte
    start = inner_fill + 2 * fill * path.beyond
    hops = passes * path.simple_hops * path.beyond
    algorithms = [
        Algorithm(passes * path.ll_hops, carried * path.ll_per_byte),
        Algorithm(start, link, 0.5 * sqrt(inner_fill * link), hops),
    ]
    if kind == "all-reduce":
        chain = 2 * (g - 1)
        tree = _tree(members, tiers, fitted, data_parallel)
        levels = tree.simple + chain * path.chained
        tree_link = 2 * path.per_byte
        algorithms.append(Algorithm(tree.ll + chain * tiers[0].latency, tree.ll_per_byte))
        algorithms.append(Algorithm(2 * fill + levels, tree_link, 0.5 * sqrt(levels * tree_link)))
        if tiers[0].switch_reduction is not None:
            algorithms.append(_switch_reduction(g, path, tree, tiers[0].switch_reduction))
    launch = fitted.launch_share * path.launch
    chosen = _chosen_ring(passes, n, carried, path, tiers[0], fitted)
    if chosen is not None and tiers[0].switch_reduction is not None and kind == "all-reduce":
        chosen = chosen._replace(reduction=algorithms[-1])
    return Protocols(launch, tuple(algorithms), path.beyond, chosen)


def _own_block(n: Column, fast: Tier, fitted: Collectives) -> Column:
    """Return the share of V that a member's own block costs beside what links carry: copied as it is sent."""
    return 0 * n if fast.expected_bandwidth is None else fitted.own_block * is_group(n) / n


def _chosen_ring(
    passes: float, n: Column, carried: Column, path: _GroupPath, fast: Tier, fitted: Collectives
) -> ChosenRing | None:
    """Return the ring that NCCL chooses inside a fast domain; None where its estimates are not known."""
    expected = fast.expected_bandwidth
    if expected is None:
        return None
    hops = passes * path.inner_hops
    simple_hops = (hops + 1) * path.fill * is_group(n)  # the first chunk fills the pipeline
    rings = [(_LL, Algorithm(passes * path.ll_hops, carried * path.ll_per_byte))]
    if fast.ll128_bandwidth is not None:
        narrow = Algorithm(fitted.ll128_to_ll * passes * path.ll_hops, carried / fast.ll128_bandwidth)
        rings.append((_LL128, narrow))
    rings.append((_SIMPLE, Algorithm(0 * hops, carried * path.per_byte, None, simple_hops)))
    estimates = (
        Algorithm(known.base + known.hop * hops, passes * (n - 1) / n / (known.share * expected))
        for known, _ in rings
    )
    return ChosenRing(tuple(estimates), tuple(ring for _, ring in rings))


def _switch_reduction(g: Column, path: _GroupPath, tree: _Tree, reduction: Column) -> Algorithm:
    """Return the all-reduce in the switches of a fast domain; with several domains the tree is as fast.

    Switches read V from each of g accelerators and return a g-th of the sum, which goes back to all of them:
    (1 + 1/g) V each way. The bus bandwidth, 2 (g - 1)/(g + 1) of what a link carries, rises from 414 to 473
    GB/s for 5 to 8 H200 as published.
    """
    per_byte = path.inside * (1 + 1 / g) / reduction
    link = maximum(per_byte, 2 * path.per_byte * path.beyond)
    start = 2 * path.fill * path.inside + path.beyond * (tree.simple + 2 * (g - 1) * path.chained)
    return Algorithm(start, link, 0.5 * sqrt(start * link))


def _path(
    members: Group, tiers: Sequence[Tier], fitted: Collectives, data_parallel: bool = False
) -> _GroupPath:
    """Return the hops of a ring tier by tier, and the slowest link of a group."""
    n, near = members
    fast, *outer = tiers
    inside = is_group(near[0])
    inner_hops = n - domains(n, near[0])
    per_byte = inside / _inner_bandwidth(fast, near[0])
    slow = inside / _ll_inner_bandwidth(fast, near[0])
    fill = _simple_hop(fast, False, fitted)
    chained = minimum(fill, fitted.inner_hop_share * _simple_hop(outer[0], True, fitted))
    ll_hops = inner_hops * fast.latency
    simple_hops = inner_hops * chained
    for tier, within, beyond in zip(outer, near, (*near[1:], n), strict=True):
        crossed = is_group(domains(beyond, within))
        hops = domains(n, within) - domains(n, beyond)
        wide, narrow = _both_bandwidths(tier, within, beyond, fitted, data_parallel)
        per_byte = maximum(per_byte, crossed / wide)
        slow = maximum(slow, crossed / narrow)
        ll_hops = ll_hops + hops * tier.latency
        simple_hops = simple_hops + hops * _simple_hop(tier, True, fitted)
    launch = _start_up(members, tiers, fitted)
    across = is_group(domains(n, near[0]))
    return _GroupPath(inside, across, launch, fill, chained, inner_hops, ll_hops, simple_hops, per_byte, slow)


def _tree(members: Group, tiers: Sequence[Tier], fitted: Collectives, data_parallel: bool) -> _Tree:
    """Return the levels of a tree between domains, tier by tier."""
    n, near = members
    fast, *outer = tiers
    ll = simple = 0 * n
    per_byte = 2 * (is_group(near[0]) / _ll_inner_bandwidth(fast, near[0]))
    for tier, within, beyond in zip(outer, near, (*near[1:], n), strict=True):
        levels = 2 * log2(beyond / within)
        _, narrow = _both_bandwidths(tier, within, beyond, fitted, data_parallel)
        ll = ll + 2 * levels * tier.latency
        simple = simple + levels * _simple_hop(tier, True, fitted)
        per_byte = per_byte + levels / narrow
    return _Tree(ll, simple, per_byte)


def _both_bandwidths(
    tier: Tier, within: Column, beyond: Column, fitted: Collectives, data_parallel: bool
) -> tuple[Column, Column]:
    """Return the bandwidths of Simple and of LL across a tier, for so many members inside it [byte/s]."""
    wide = _outer_bandwidth(tier, within, data_parallel, beyond / within)
    return wide, minimum(_ll_bandwidth(tier, fitted) * sqrt(within), wide / 2)


def _start_up(members: Group, tiers: Sequence[Tier], fitted: Collectives) -> Column:
    """Return the start-up of a collective: that in a fast domain and the longest of the tiers crossed [s]."""
    n, near = members
    fast, *outer = tiers
    longest: Column = 0.0
    for tier, within, beyond in zip(outer, near, (*near[1:], n), strict=True):
        longest = maximum(longest, is_group(domains(beyond, within)) * _launch(tier, True, fitted))
    return is_group(n) * _launch(fast, False, fitted) + longest


def _launch(tier: Tier, outside: bool, fitted: Collectives) -> Column:
    """Return the start-up of a collective [s]."""
    if tier.launch is not None:
        return tier.launch
    return fitted.launch_beyond if outside else fitted.launch_inside


def _simple_hop(tier: Tier, outside: bool, fitted: Collectives) -> Column:
    """Return the latency of one hop of Simple [s]."""
    if tier.simple_latency is not None:
        return tier.simple_latency
    ratio = fitted.simple_to_ll_beyond if outside else fitted.simple_to_ll_inside
    longest = fitted.simple_hop_beyond if outside else fitted.simple_hop_inside
    return maximum(tier.latency, minimum(ratio * tier.latency, longest))


def _ll_bandwidth(tier: Tier, fitted: Collectives) -> Column:
    """Return the bandwidth of LL over one port [byte/s]."""
    return (
        minimum(fitted.ll_bandwidth, fitted.max_ll_share * achieved_bandwidth(tier))
        if tier.ll_bandwidth is None
        else tier.ll_bandwidth
    )


def _inner_bandwidth(tier: Tier, members: Column) -> Column:
    """Return the bandwidth in a fast domain: all links over switches, the group's in a mesh [byte/s]."""
    if not tier.mesh:
        return achieved_bandwidth(tier) * torus_axes(tier, members)
    return achieved_bandwidth(tier) * (maximum(members, 2) - 1) / (max(tier.size or 2, 2) - 1)


def torus_axes(tier: Tier, members: Column) -> Column:
    """Return the axes of a torus that the rings of a group use at once: log n / log s, clipped to 1 and all.

    A group of as many members as a side s of the torus lies along one axis; one of s x s has rings along two,
    each with half of the data (How to Scale Your Model, "Sharded matrices": collectives over several axes add
    up their bandwidths).

    1 for a network that is no torus.
    """
    if tier.axes == 1:
        return 1.0
    axes: Column = np.clip(np.log(maximum(members, 1)) / np.log(tier.side), 1, tier.axes)
    return axes


def _ll_inner_bandwidth(tier: Tier, members: Column) -> Column:
    """Return the bandwidth of LL in a fast domain: the tier's, or half (the rest is flags) [byte/s]."""
    wide = _inner_bandwidth(tier, members)
    return wide / 2 if tier.ll_bandwidth is None else tier.ll_bandwidth * wide / achieved_bandwidth(tier)


def _outer_bandwidth(
    tier: Tier, within: Column, data_parallel: bool = False, domains: Column = 2.0
) -> Column:
    """Return the bandwidth between some domains of a group with `within` members in each [byte/s]."""
    ports = tier.ports * within
    if tier.lost_ports is not None:
        ports = ports * (1 - tier.lost_ports / maximum(ports, 1))
    share = tier.efficiency
    if data_parallel and (tier.dp_alone is not None or tier.dp_several is not None):
        single = share if tier.dp_alone is None else tier.dp_alone  # efficiency of one member in a domain
        share = single + ((share if tier.dp_several is None else tier.dp_several) - single) * is_group(within)
    wide = _peak_bandwidth(tier) * share * ports
    return wide if tier.congestion is None else wide / congestion_factor(tier, domains)


def all_to_all(
    V: Column,
    members: Group,
    tiers: Sequence[Tier],
    fitted: Collectives,
    copies: Column | None = None,
    groups: tuple[int, int] = (1, 1),
) -> Column:
    """Return the time of an all-to-all: over the network to the target domain, then to the target rank [s].

    Every message goes by the faster protocol: LL, or Simple with a hop of start-up, as timed in CUDA graphs
    on 2 to 8 GPUs. Latency between domains is an assumption. Data stream through all tiers at once (PXN of
    NCCL, forwarding of DeepEP), so the slowest decides.

    `V`: size of a rank's tensor, its own part included [byte]; 0 for a group of one.
    """
    n, near = members
    spans = (1.0, *near, n)
    seconds = fitted.launch_share * _start_up(members, tiers, fitted) * sign(V)
    streams = []
    up: Column = 0.0  # from rail to rail, over the tier above theirs
    for i, (tier, within, beyond) in enumerate(zip(tiers, spans, spans[1:], strict=False)):
        sent = V * (beyond - within) / n * (n / beyond if i == 0 else 1.0)
        if i == 0:
            sent = sent + V * _own_block(n, tier, fitted) * (1 - is_group(n / beyond))
        if copies is not None:
            sent = sent * distinct(copies, n / within, groups) / copies
        partners = (beyond / within - 1) / PEERS_PER_WORK
        crossed = is_group(domains(beyond, within)) * sign(V)
        crossed = maximum(crossed, sign(up)) if nonzero(up) else crossed
        sent, up = with_rails(sent, up, tiers, i, near[0], fitted)
        wide = _outer_bandwidth(tier, 1.0, domains=beyond / within) if i else _inner_bandwidth(tier, beyond)
        narrow = minimum(_ll_bandwidth(tier, fitted), wide / 2) if i else _ll_inner_bandwidth(tier, beyond)
        start = crossed * _simple_hop(tier, i > 0, fitted)
        stream = sent / wide
        if i == 0 and tier.expected_bandwidth is not None:  # a message to each peer has channels of its own
            narrow = minimum(fitted.ll_message_bandwidth * beyond, wide / 2)
            start = fitted.message_hop_share * start
        seconds = seconds + partners * tier.latency * sign(V)
        streams.append(
            minimum(crossed * tier.latency + sent / narrow, start + stream + 0.5 * sqrt(start * stream))
        )
    return seconds + reduce(maximum, streams)


def distinct(copies: Column, domains: Column, groups: tuple[int, int] = (1, 1)) -> Column:
    """Return the mean number of D equally likely domains that K copies go to: D (1 - (1 - 1/D)^K).

    Where they go to M of N `groups` of the domains, D are those that these fill, D M/N; or, where a domain
    holds g groups, those that hold one of them, D (1 - (1 - g/N) (1 - g/(N - 1)) …), M factors.
    """
    number, most = groups
    if most < number:
        held = maximum(number / domains, 1)
        missed: Column = 1.0
        for chosen in range(most):
            missed = missed * maximum(1 - held / (number - chosen), 0)
        domains = domains * (1 - missed)
    return domains * (1 - (1 - 1 / domains) ** copies)


def message(V: Column, tier: Tier, inner: bool, fitted: Collectives) -> Column:
    """Return the time of one message to a neighbour, while all accelerators send at once [s].

    `V`: size of the message [byte].
    """
    wide = _inner_bandwidth(tier, 2.0) if inner else _outer_bandwidth(tier, 1.0)
    narrow = _ll_inner_bandwidth(tier, 2.0) if inner else minimum(_ll_bandwidth(tier, fitted), wide / 2)
    fastest: Column = minimum(tier.latency + V / narrow, _simple_hop(tier, not inner, fitted) + V / wide)
    return fitted.launch_share * _launch(tier, not inner, fitted) + fastest
