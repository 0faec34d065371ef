"""What software issues and copies beside products, and how sure the host's pace is."""

from dataclasses import replace

import numpy as np
import pytest

import traincast as tc
from traincast.catalog.load import load_model
from traincast.catalog.software_stacks import Stack
from traincast.catalog.training import Training
from traincast.core.plan import Plans
from traincast.launch.frameworks import torchtitan
from traincast.launch.settings.settings import Settings
from traincast.model.documents import Documents
from traincast.operations.transformer import layer
from traincast.step.layer_cost import PartCosts
from traincast.step.step_time import device_time
from traincast.step.uncertainty import ISSUE_DEVIATION, LENGTH_DEVIATION, deviation, errors

EAGER = "torchtitan-eager"
ROTATING = "torchtitan-2024+compiled=false+kernels=unfused-rotation"  # the same release, by its facts
QWEN = load_model("qwen3-8b")
DGX = tc.load_system("dgx-h100")


def test_separate_projections_add_the_gradients_of_their_input():
    """Queries, keys and values are three products of one input, gate and up projection two.

    Each addition reads two gradients and writes one, of all tokens of the tensor group in 16 bits.
    """
    operations = layer(QWEN, Plans(tp=4.0, mbs=2.0), Stack(EAGER).assumptions)
    added = {op.name: op for op in operations if op.name.endswith("input_gradients")}
    one = 3 * 2 * 2 * QWEN.seq * QWEN.hidden
    moved = {name: float(op.backward.nbytes) for name, op in added.items()}
    assert moved == {"attention.qkv.input_gradients": 2 * one, "mlp.fc1.input_gradients": one}
    assert all(float(op.forward.nbytes) == 0 for op in added.values())
    compiled = layer(QWEN, Plans(tp=4.0), Stack("torchtitan-2025").assumptions)
    assert not any(op.name.endswith("input_gradients") for op in compiled)


def test_compiled_layers_rotate_in_the_kernel_that_norms():
    """Queries and keys of Qwen3 are normed; those of Llama 3 are not, and are read and written once."""
    moved = {}
    for name in ("qwen3-8b", "llama-3-8b"):
        model = load_model(name)
        plain = Stack("torchtitan-2025").assumptions.with_values({"traffic.elementwise_passes": 1.0})
        (op,) = (op for op in layer(model, Plans(tp=1.0), plain) if op.name == "attention.rotary")
        own = 2 * model.seq * (model.heads + model.kv_heads) * model.head_width
        moved[name] = float(op.forward.nbytes + op.backward.nbytes) / own
    assert moved == {"qwen3-8b": 0, "llama-3-8b": 4}


def test_dtensor_copies_what_several_sequences_gather():
    """Two copies a block in each direction, read and written at the memory's rate.

    There are none of one sequence, whose tokens come in their order.
    """
    plain = Stack(EAGER).assumptions.with_values({"collectives.copy_passes": 0.0})
    copies = {}
    for mbs in (1, 2):
        plan = tc.Plan(tp=8, fast_tp=8, zero=2, mbs=mbs)
        seconds = [
            tc.estimate(QWEN, "dgx-h100", plan, gbs=8, assumptions=assumed).breakdown["exposed_memory"]
            for assumed in (Stack(EAGER).assumptions, plain)
        ]
        copies[mbs] = seconds[0] - seconds[1]
    assert copies[1] == 0
    tensor = 2 * 8 * QWEN.seq * QWEN.hidden  # all sequences of the step, in 16 bits
    at_least = 2 * 8 * QWEN.layers * tensor / tc.load_system("dgx-h100").accelerator.hbm_bandwidth
    assert at_least < copies[2] < 1.5 * at_least


@pytest.mark.parametrize(
    ("name", "compiled", "stack"),
    [
        ("qwen3", False, ROTATING),
        ("gpt_oss", False, ROTATING),
        ("llama3", False, EAGER),
        ("qwen3", True, "torchtitan-2025"),
    ],
)
def test_models_of_torchtitan_rotate_halves_or_pairs(name, compiled, stack):
    """torchtitan 0.3.0, models/*/__init__.py: CosSinRoPE of Qwen3 and gpt-oss, ComplexRoPE of Llama 3."""
    settings = Settings({"model.name": name, "compile.enable": compiled, "compile.components": "model,loss"})
    assert torchtitan.stack(settings) == stack


def test_the_loss_of_nanotron_moves_what_its_operations_read_and_write():
    """nanotron 0.4, tensor_parallel/functional.py: casts to fp32 and back have 6 bytes each.

    Largest and sum read 4; difference, exponential, quotient and gradient read and write 4.
    """
    assert Stack("nanotron-2025").assumptions.traffic.loss_bytes == 2 * 6 + 2 * 4 + 4 * 8


def test_waits_for_a_pace_that_no_run_has_widen_the_interval():
    """A deviation for all of the wait, and one more where its documents have no stated lengths."""
    known = errors()
    model = Training.read("lora").apply_to(replace(load_model("llama-3-8b"), seq=512))
    case = tc.estimate(model, "dgx-h100", tc.Plan(), gbs=32, assumptions="megatron-core-2025").case
    assert 0.2 < case.waiting < 0.8
    calm = replace(case, waiting=0.0)
    added = deviation(case, known) ** 2 - deviation(calm, known) ** 2
    assert added == pytest.approx((ISSUE_DEVIATION * case.waiting) ** 2)
    unstated = replace(case, has_stated_lengths=False)
    more = deviation(unstated, known) ** 2 - deviation(case, known) ** 2
    assert more == pytest.approx((LENGTH_DEVIATION * case.waiting) ** 2)
    columns = replace(case, waiting=np.array([0.0, case.waiting]))
    assert deviation(columns, known)[1] > deviation(columns, known)[0]


def test_a_pace_that_runs_were_measured_with_adds_nothing():
    """Megatron-DeepSpeed's is fitted to a thousand runs that wait for it."""
    assert Stack("megatron-deepspeed-2022").has_measured_pace
    assert not Stack("megatron-core-2025").has_measured_pace
    model = replace(load_model("gpt3-175b"), seq=256, layers=8)
    est = tc.estimate(model, "dgx-a100", tc.Plan(tp=8), gbs=8, assumptions="megatron-deepspeed-2022")
    assert est.step.host > 0.01 * est.step_seconds
    assert est.case.waiting == 0


def test_assumed_lengths_are_documents_like_others():
    documents = Documents(((200, 1.0),), assumed=True)
    assert documents.mean(2048) == 200
    assert documents.title(2048) == Documents(((200, 1.0),)).title(2048)


def test_a_schedule_that_puts_off_gradients_waits_in_each_of_three_passes():
    """Forward, gradients of inputs and those of weights: 3, 4 and 5 s of the host beside 4, 3 and 2 s.

    Each takes about the longer, a norm of order 4; in one backward pass 9 s of the host stand beside 5.
    """
    assumed = Stack("megatron-core-2025").assumptions.with_values({"host.microbatch_seconds": 0.0})
    part = PartCosts(
        forward=4.0,
        backward=5.0,
        weight=2.0,
        weights=0.0,
        expert_weights=0.0,
        message=0.0,
        saved=0.0,
        dispatch=12.0,
        dispatch_forward=3.0,
        dispatch_weight=5.0,
    )
    together, apart = (
        device_time({"layer": part}, {"layer": 1.0}, Plans(schedule=schedule), DGX, assumed)
        for schedule in ("1f1b", "zb-h1")
    )
    assert together.busy + together.host_wait == pytest.approx((12**4 + 9**4) ** (1 / 4))
    assert apart.busy + apart.host_wait == pytest.approx(
        (3**4 + 4**4) ** (1 / 4) + (4**4 + 3**4) ** (1 / 4) + (5**4 + 2**4) ** (1 / 4)
    )


def with_rates(system, factor, *rates):
    """Return the machine with some rates of its accelerator so many times as high."""
    gpu = system.accelerator
    return replace(system, accelerator=replace(gpu, **{rate: factor * getattr(gpu, rate) for rate in rates}))


def test_faster_memory_does_not_lengthen_the_bubble_where_the_host_sets_the_pace():
    """Gradients of weights that the host issues one by one are no shorter with a faster device."""
    plan = tc.Plan(
        tp=8,
        pp=8,
        dp=2,
        ep=8,
        vp=2,
        fast_tp=4,
        schedule="zb-v",
        zero=0,
        precision="fp16",
        offload="optimizer+activations",
        offload_every=2,
        order="tp-cp-pp-dp",
    )
    model = replace(load_model("qwen3-30b-a3b"), seq=4096)
    system = tc.load_system("h200-nvl-node")
    seconds = [
        tc.estimate(
            model, with_rates(system, factor, "hbm_bandwidth"), plan, gbs=32, assumptions="calibrated"
        ).step_seconds
        for factor in (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
    ]
    assert seconds == sorted(seconds, reverse=True)


def test_transfers_between_stages_hide_behind_copies_to_the_host():
    """Weights that come from the host set the pace, and arrive whether or not activations do.

    With products four times as fast the last stage, which has the head, is not slower than the other.
    """
    plan = tc.Plan(tp=4, pp=2, dp=4, mbs=4, fast_tp=4, offload="weights", precision="fp8-block", sp=False)
    system = tc.load_system("tpu-v7x-pod")
    usual, faster = (
        tc.estimate(
            "llama-2-70b",
            with_rates(system, factor, "matrix_flops"),
            plan,
            gbs=1024,
            assumptions="calibrated",
        )
        for factor in (1.0, 4.0)
    )
    assert usual.breakdown["offload_comm"] > 0.3 * usual.step_seconds
    assert faster.breakdown["pp_comm"] == usual.breakdown["pp_comm"]
