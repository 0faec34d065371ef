"""Parts of data-parallel traffic, each by hand."""

from types import SimpleNamespace

import pytest

import traincast as tc
from traincast.catalog.software_stacks import Stack
from traincast.core.plan import Plans
from traincast.step.data_parallelism import LeastTraffic, Traffic, _broadcasts, _free_of_exchanges
from traincast.step.layer_cost import PartCosts
from traincast.times import AnyPlacement, Placement, least_streaming

DGX = tc.load_system("dgx-h100")
STACK = Stack("megatron-core-2025").assumptions


def part(**figures):
    names = ("forward", "backward", "weight", "weights", "expert_weights", "message", "saved")
    return PartCosts(**(dict.fromkeys(names, 0.0) | figures))


def test_one_after_the_other_both_times_add_up():
    assert Traffic(1.0, 2.0).add_after(Traffic(3.0, 5.0)) == Traffic(4.0, 7.0)


def test_exchanges_that_passes_hide_are_taken_from_both_in_proportion():
    """1.5 s of 1 + 2 s are half of each pass."""
    left = _free_of_exchanges(part(forward=1.0, backward=2.0, hidden=1.5))
    assert (left.forward, left.backward) == (0.5, 1.0)


@pytest.mark.parametrize(("dp", "seconds"), [(8.0, 0.0), (16.0, 16 * 1e-3)])
def test_ranks_broadcast_one_after_the_other_beyond_a_node(dp, seconds):
    slow = STACK.with_values({"host.broadcast_seconds": 1e-3})
    placement = Placement(Plans(dp=dp, fast_dp=8.0, zero=1), DGX.tiers)
    assert _broadcasts(placement, slow) == seconds


def test_the_least_traffic_of_a_device_by_hand():
    """Two layers with experts and a head without: 2 · 10 + 6 weights, and 2 · 4 in experts.

    A weight is gathered in two bytes, a gradient reduced in four.
    """
    plan = Plans(dp=16.0, ep=2.0, zero=3, grad_dtype="fp32")
    near = tuple((n, *[16.0] * (len(DGX.tiers) - 2)) for n in (8.0, 4.0))
    placement = AnyPlacement(plan, near)
    costs = {"layer": part(weights=10.0, expert_weights=4.0), "head": part(weights=6.0)}
    stages = SimpleNamespace(executed_parts=[{"layer": 2.0, "head": 1.0}])
    least = LeastTraffic.for_devices(costs, stages, placement, DGX, STACK)

    def byte(kind, axis):
        return float(least_streaming(kind, placement.group(axis), near, DGX, STACK))

    for of, kind, size in ((least.gathered, "all-gather", 2), (least.reduced, "reduce-scatter", 4)):
        expected = size * (26 * byte(kind, "shards") + 8 * byte(kind, "expert shards"))
        assert float(of[0]) == pytest.approx(expected)
        assert expected > 0
