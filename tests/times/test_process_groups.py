"""Process groups on networks of several tiers, by counting ranks; times of their collectives by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traincast as tc
from traincast.catalog.software_stacks import calibrated
from traincast.core.assumptions import PAPER
from traincast.core.plan import Plans
from traincast.core.system import Tier
from traincast.times.collectives import collective
from traincast.times.nccl import distinct
from traincast.times.pipeline.p2p import transfer
from traincast.times.process_groups import GROUP_ORDERS, Group, Placement

CALIBRATED = calibrated()

SYSTEMS = {
    name: tc.load_system(name)
    for name in ("llama3-h100", "dgx-h100", "frontier", "gb200-nvl72", "perlmutter")
}
RINGS = CALIBRATED.with_values(
    {"collectives.protocols": False}
)  # latency and bandwidth only: times that can be reckoned by hand


@st.composite
def plans(draw):
    """A system, and a plan of up to 8192 ranks in powers of two that fills the fast domains in order."""
    system, order = (
        SYSTEMS[draw(st.sampled_from(sorted(SYSTEMS)))],
        draw(st.sampled_from(sorted(GROUP_ORDERS))),
    )
    degrees = {
        axis: 2 ** draw(st.integers(0, most)) for axis, most in (("tp", 4), ("cp", 3), ("dp", 4), ("pp", 3))
    }

    def part(n):
        return 2 ** draw(st.integers(0, n.bit_length() - 1))

    stage = degrees["tp"] * degrees["cp"] * degrees["dp"]
    etp = part(degrees["tp"])
    finer = {
        "etp": etp,
        "ep": part(stage // etp),
        "ulysses": part(degrees["cp"]),
        "replicas": part(degrees["cp"] * degrees["dp"]),
    }
    gpus = int(np.prod(list(degrees.values())))
    room, fast = min(system.domain(gpus), gpus), {}
    for axis in GROUP_ORDERS[order]:
        fast[f"fast_{axis}"] = int(np.gcd(degrees.get(axis, 1), room))
        room //= fast[f"fast_{axis}"]
    return system, degrees, finer, Plans(**degrees, **finer, **fast, order=order, cp_kind="hybrid")


def first_group(degrees, finer, order):
    """Ranks of the group that rank 0 is in, for every group: number all ranks, then pick those that agree in
    all else."""
    ranks = np.arange(np.prod(list(degrees.values())))
    at, rest = {}, ranks
    for axis in GROUP_ORDERS[order]:
        at[axis], rest = rest % degrees.get(axis, 1), rest // degrees.get(axis, 1)
    alike = at["cp"] + degrees["cp"] * at["dp"]  # number among those that hold the same weights
    stage = at["tp"] + degrees["tp"] * alike  # and in a stage
    each = degrees["cp"] * degrees["dp"] // finer["replicas"]
    etp, ep, u = finer["etp"], finer["ep"], finer["ulysses"]
    holder = stage // (etp * ep)  # number among those that hold the same experts
    copy_shards = max(degrees["tp"] * degrees["cp"] * degrees["dp"] // (etp * ep) // finer["replicas"], 1)
    same = {
        "tp": (alike, at["pp"]),
        "cp": (at["tp"], at["dp"], at["pp"], at["cp"] % u),
        "ulysses": (at["tp"], at["dp"], at["pp"], at["cp"] // u),
        "dp": (at["tp"], at["cp"], at["pp"]),
        "pp": (stage,),
        "weights": (at["tp"], at["pp"]),
        "shards": (at["tp"], at["pp"], alike // each),
        "replicas": (at["tp"], at["pp"], alike % each),
        "etp": (at["pp"], stage // etp),
        "ep": (at["pp"], stage % etp, holder),
        "tp-ep": (at["pp"], holder),
        "experts": (at["pp"], stage % (etp * ep)),
        "expert shards": (at["pp"], stage % (etp * ep), holder // copy_shards),
        "expert replicas": (at["pp"], stage % (etp * ep), holder % copy_shards),
    }
    return {axis: ranks[np.all([key == key[0] for key in keys], axis=0)] for axis, keys in same.items()}


@settings(max_examples=150)
@given(plans())
def test_members_of_groups_in_domains(case):
    """A job leaves part of a domain empty where its size does not divide: 64 of 72 in an NVL72, 2048 of 3072
    in a pod."""
    system, degrees, finer, plan = case
    gpus = int(np.prod(list(degrees.values())))
    sizes = [tier.size for tier in system.tiers[:-1]]
    domain = [size if gpus <= size else 2 ** (size.bit_length() - 1) for size in sizes]
    if sizes[0] == 72:
        domain = [64, 512]  # 8 racks of 64 in use
    for axis, members in first_group(degrees, finer, plan.order).items():
        placed = Placement(plan, system.tiers).group(axis)
        assert placed.members == len(members), axis
        assert [float(near) for near in placed.near] == [
            int(np.sum(members // size == 0)) for size in domain
        ], axis


def test_a_job_that_fits_a_domain_does_not_leave_it():
    """2048 of the 3072 GPUs of a Llama 3 pod, which holds 384 nodes of 8."""
    plan = Plans(tp=16.0, cp=4.0, dp=8.0, pp=4.0, fast_tp=8.0)
    assert [
        float(Placement(plan, SYSTEMS["llama3-h100"].tiers).group(axis).near[1])
        for axis in ("tp", "cp", "dp", "pp")
    ] == [16, 4, 8, 4]


def ring(system, V, n, g0, g1, passes=1):
    """All-gather or all-reduce of V over n ranks, g0 of them in each node and g1 in each larger domain.

    The slowest tier sets the pace: a link inside the node, or the NICs of all g0 members of a node, or of all
    g1 of a domain. The ring has n - n/g0 hops in nodes, n/g0 - n/g1 between those of a domain, n/g1 - 1
    beyond (0 if there is one domain).
    """
    fast, middle, outer = (
        (tier.bandwidth / (tier.taper or 1) * tier.efficiency, tier.latency, tier.ports)
        for tier in system.tiers
    )
    rates = ([fast[0]] if g0 > 1 else []) + (
        [middle[0] * (middle[2] * g0 if g0 > 1 else 1)] if g1 > g0 else []
    )
    rates += [outer[0] * (outer[2] * g1 if g1 > 1 else 1)] if n > g1 else []
    hops = (n - n // g0) * fast[1] + (n // g0 - n // g1) * middle[1] + (n // g1 - 1) * outer[1]
    return passes * (n - 1) / n * V / min(rates) + hops


GROUPS = [
    (2, 2, 2),
    (8, 8, 8),
    (16, 1, 16),
    (16, 8, 16),
    (64, 8, 32),
    (64, 1, 8),
    (64, 8, 8),
    (512, 8, 256),
    (512, 1, 1),
]


@pytest.mark.parametrize(("n", "g0", "g1"), GROUPS)
@pytest.mark.parametrize("name", ["llama3-h100", "dgx-h100", "gb200-nvl72"])
def test_rings_on_three_tiers(name, n, g0, g1):
    system, members, V = SYSTEMS[name], Group(float(n), (float(g0), float(g1))), 1e9
    for assumed in (PAPER, RINGS):
        for kind, passes in (("all-gather", 1), ("reduce-scatter", 1), ("all-reduce", 2)):
            assert collective(kind, V, members, system, assumed) == pytest.approx(
                ring(system, V, n, g0, g1, passes), rel=1e-12
            )


@pytest.mark.parametrize(
    "kind", ["all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce", "all-to-all", "send"]
)
@pytest.mark.parametrize(("n", "g0"), [(1, 1), (8, 8), (32, 8), (32, 1), (256, 4)])
@pytest.mark.parametrize("assumed", [RINGS, CALIBRATED], ids=["rings", "protocols"])
def test_a_third_tier_that_is_not_crossed_or_no_other_changes_nothing(kind, n, g0, assumed):
    three = SYSTEMS["dgx-h100"]
    fast, leaf, _ = three.tiers
    two = replace(three, tiers=(fast, replace(leaf, size=None)))
    near = Group(float(n), (float(g0), float(n)))  # all in one larger domain
    expected = float(collective(kind, 1e8, Group(float(n), (float(g0),)), two, assumed))
    assert float(collective(kind, 1e8, near, three, assumed)) == pytest.approx(expected, rel=1e-12)
    same = replace(three, tiers=(fast, leaf, replace(leaf, size=None)))
    apart = Group(float(n), (float(g0), float(g0)))  # one node in each larger domain
    assert float(collective(kind, 1e8, apart, same, assumed)) == pytest.approx(expected, rel=1e-12)


def test_all_to_all_by_hand():
    """8 ranks of a node send 7/8 of V to others over their own links, and wait for 7 partners."""
    system, V = SYSTEMS["dgx-h100"], 1e9
    fast, leaf, spine = system.tiers
    inside = 7 / 8 * V / (fast.bandwidth * fast.efficiency) + 7 * fast.latency
    assert collective("all-to-all", V, Group(8.0, (8.0, 8.0)), system, RINGS) == pytest.approx(
        inside, rel=1e-12
    )
    # 4 nodes: 3/4 of V leaves the node, over one NIC for each rank; then all of it finds its rank
    outside = 3 / 4 * V / (leaf.bandwidth * leaf.efficiency) + 3 * leaf.latency
    across = Group(32.0, (8.0, 32.0))
    assert collective("all-to-all", V, across, system, RINGS) == pytest.approx(inside + outside, rel=1e-12)
    # two domains of 4 nodes: half leaves the domain, 3/8 goes to the other nodes of it
    beyond = V / 2 / (spine.bandwidth * spine.efficiency) + spine.latency
    within = 3 / 8 * V / (leaf.bandwidth * leaf.efficiency) + 3 * leaf.latency
    wide = Group(64.0, (8.0, 32.0))
    assert collective("all-to-all", V, wide, system, RINGS) == pytest.approx(
        inside + within + beyond, rel=1e-12
    )


@pytest.mark.parametrize(("nodes", "topk"), [(2, 8), (4, 8), (8, 8), (16, 8), (4, 2), (4, 1)])
def test_a_token_crosses_once_to_each_node(nodes, topk):
    """Each of K copies is as likely in any of D nodes: D (1 - (1 - 1/D)^K) of them leave instead of K
    (DeepEP, HybridEP)."""
    system, V, n = SYSTEMS["dgx-h100"], 1e9, 8 * nodes
    at, fused = Group(float(n), (8.0, float(n))), RINGS.with_values({"collectives.node_copies": True})
    every, once = (
        collective("all-to-all", V, at, system, assumed, copies=topk) for assumed in (RINGS, fused)
    )
    rate = system.tiers[1].bandwidth * system.tiers[1].efficiency
    met = sum([1 - ((nodes - 1) / nodes) ** topk] * nodes)  # nodes that get a copy, each with its probability
    spared = V * (1 - 1 / nodes) * (1 - met / topk) / rate
    assert every - once == pytest.approx(spared, rel=1e-9, abs=1e-12)


@given(st.integers(1, 16), st.integers(1, 64))
def test_copies_reach_no_more_domains_than_there_are(topk, domains):
    met = float(distinct(float(topk), float(domains)))
    assert 1 - 1e-12 <= met <= min(topk, domains) + 1e-12
    if topk == 1 or domains == 1:
        assert met == pytest.approx(1, rel=1e-12)
    assert met <= float(distinct(topk + 1.0, float(domains))) + 1e-12


def test_two_copies_in_two_nodes():
    """Both in one node half of the time."""
    assert float(distinct(2.0, 2.0)) == pytest.approx(1.5, rel=1e-15)


@pytest.mark.parametrize(("once", "inside"), [(True, 8 * (1 - (7 / 8) ** 8) / 8), (False, 1.0)])
def test_an_all_to_all_streams_through_all_tiers_at_once(once, inside):
    """8 experts of a token on 8 H100 of a node, and on 64 of 8 nodes, where the network decides. A rank gets
    one copy."""
    system, V = SYSTEMS["dgx-h100"], 1e13  # so much that latencies do not count
    assumed = CALIBRATED.with_values({"collectives.node_copies": once})
    fast, leaf, _ = system.tiers
    near = float(collective("all-to-all", V, Group(8.0, (8.0, 8.0)), system, assumed, copies=8.0))
    sent = (7 + CALIBRATED.collectives.own_block) / 8 * V * inside  # its own block is copied
    assert near == pytest.approx(sent / (fast.bandwidth * fast.efficiency), rel=1e-3)
    far = float(collective("all-to-all", V, Group(64.0, (8.0, 64.0)), system, assumed, copies=8.0))
    assert far == pytest.approx(7 / 8 * V * inside / (leaf.bandwidth * leaf.efficiency), rel=1e-3)


def test_a_ring_of_blocks_waits_for_its_slowest_link():
    system, V = SYSTEMS["dgx-h100"], 1e8
    for members, tier in (((4.0, (4.0, 4.0)), 0), ((8.0, (4.0, 8.0)), 1), ((8.0, (1.0, 4.0)), 2)):
        crossed: Tier = system.tiers[tier]
        expected = crossed.latency + V / (crossed.bandwidth * crossed.efficiency)
        assert float(collective("send", V, Group(*members), system, RINGS)) == pytest.approx(
            expected, rel=1e-12
        )
    assert float(collective("send", V, Group(1.0, (1.0, 1.0)), system, RINGS)) == 0


def test_links_between_stages():
    """16 stages, 2 in a node and 8 in a pod: of 15 links 8 are in nodes, 6 between nodes of a pod, 1 between
    pods."""
    system, V = SYSTEMS["llama3-h100"], 1e8
    hop = [tier.latency + V / (tier.bandwidth / (tier.taper or 1) * tier.efficiency) for tier in system.tiers]
    seconds = transfer(V, Group(16.0, (2.0, 8.0)), system, RINGS)
    assert seconds == pytest.approx((8 * hop[0] + 6 * hop[1] + 1 * hop[2]) / 15, rel=1e-12)
    assert transfer(V, Group(1.0, (1.0, 1.0)), system, RINGS) == 0
