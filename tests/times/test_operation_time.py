"""What the host issues, and what is recomputed or copied, operation by operation and by hand."""

from dataclasses import replace

import pytest

import traincast as tc
from traincast.catalog.software_stacks import Stack
from traincast.core.plan import Plans
from traincast.operations.transformer import layer
from traincast.times.operation_time import ROTATION_FORWARD, OperationTimer

DGX = tc.load_system("dgx-h100")
QWEN = replace(tc.load_model("qwen3-8b"), seq=4096)
MIXTRAL = replace(tc.load_model("mixtral-8x7b"), seq=4096)


def test_collectives_of_a_single_rank_are_not_timed(monkeypatch):
    """Of tensor parallelism of one rank; with two they are."""
    assumed = Stack("megatron-core-2025").assumptions
    expected = timed(QWEN, Plans(tp=1.0), assumed)
    with monkeypatch.context() as patch:
        patch.setattr("traincast.times.operation_time.collective_curve", None)
        assert timed(QWEN, Plans(tp=1.0), assumed) == expected
        with pytest.raises(TypeError):
            timed(QWEN, Plans(tp=2.0), assumed)


def timed(model, plan, assumed):
    """Return the passes of the operations of a layer, by name."""
    operations = tuple(layer(model, plan, assumed))
    part = OperationTimer(plan, DGX, assumed).time_part(operations)
    return {one.operation.name: one for one in part}


def test_a_rotation_in_pieces_is_issued_forward_for_the_most_part():
    """All of the host's time for the pieces is in the two passes, `ROTATION_FORWARD` of it in the first."""
    slow = Stack("torchtitan-2024+compiled=false+kernels=unfused-rotation").assumptions
    slow = slow.with_values({"host.rotation_seconds": 1e-4})
    plain = slow.with_values({"host.rotation_seconds": 0.0})
    (rotary,) = (op for op in layer(QWEN, Plans(), slow) if op.name == "attention.rotary")
    rotary = replace(rotary, pieces=3.0)
    passes, without = (
        OperationTimer(Plans(), DGX, assumed).time_part((rotary,))[0] for assumed in (slow, plain)
    )
    seconds = 3 * 1e-4
    forward = passes.forward.dispatch + passes.forward.idle - without.forward.dispatch
    assert forward == pytest.approx(ROTATION_FORWARD * seconds)
    backward = passes.backward.dispatch - without.backward.dispatch
    assert backward == pytest.approx((1 - ROTATION_FORWARD) * seconds)


def test_the_host_issues_a_layer_of_experts_a_third_of_the_time_forward():
    plan = Plans(ep=8.0, dp=8.0)
    usual = Stack("megatron-core-2025").assumptions.with_values({"host.expert_dispatch_seconds": 0.0})
    slow = usual.with_values({"host.expert_dispatch_seconds": 3e-3})
    fast_part, slow_part = (timed(MIXTRAL, plan, assumed) for assumed in (usual, slow))
    for name, share in (("forward", 1 / 3), ("backward", 2 / 3)):
        added = sum(
            getattr(slow_part[op], name).dispatch - getattr(fast_part[op], name).dispatch for op in slow_part
        )
        assert added == pytest.approx(share * 3e-3)


def test_a_recomputed_norm_does_not_gather_what_the_next_layer_gathers():
    """Recomputed alone it takes its work; with the whole layer it gathers as well."""
    assumed = Stack("megatron-core-2025").assumptions.with_values({"memory.saves_gathered": False})
    alone, whole = (
        timed(QWEN, Plans(tp=4.0, fast_tp=4.0, recompute=recompute), assumed)
        for recompute in ("norms", "full")
    )
    norms = [name for name, one in alone.items() if one.recompute is not None and one.forward.comm > 0]
    assert norms
    assert all(alone[name].recompute.comm == 0 < alone[name].recompute.total for name in norms)
    assert all(whole[name].recompute.comm == whole[name].forward.comm for name in norms)


@pytest.mark.parametrize(("tp", "mbs", "copies"), [(1.0, 2.0, False), (2.0, 1.0, False), (2.0, 2.0, True)])
def test_several_sequences_of_several_tensor_ranks_are_copied_where_they_are_gathered(tp, mbs, copies):
    plan = Plans(tp=tp, mbs=mbs, fast_tp=tp)
    usual = Stack("megatron-core-2025").assumptions.with_values({"collectives.copy_passes": 0.0})
    copying = usual.with_values({"collectives.copy_passes": 2.0})
    without, with_copies = (
        sum(float(one.forward.memory + one.backward.memory) for one in timed(QWEN, plan, assumed).values())
        for assumed in (usual, copying)
    )
    assert (with_copies > without) == copies


def test_gradients_of_weights_take_the_hosts_time_for_their_kernels():
    """Of a linear layer one of three products is that of its weights; a norm's are part of its kernel."""
    assumed = Stack("megatron-core-2025").assumptions.with_values(
        {"host.dispatch_seconds": 1e-5, "kernels.joint_backward": False}
    )
    part = timed(QWEN, Plans(), assumed)
    projection = part["mlp.fc2"]
    assert projection.forward.dispatch == pytest.approx(1e-5)
    assert projection.backward.dispatch == pytest.approx(2e-5)
    assert projection.weight_dispatch == pytest.approx(1e-5)
    joint = timed(QWEN, Plans(), assumed.with_values({"kernels.joint_backward": True}))["mlp.fc2"]
    assert joint.weight_dispatch == pytest.approx(joint.backward.dispatch / 2)
