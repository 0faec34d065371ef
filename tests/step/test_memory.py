"""Memory of a rank: activations after the formulas of published papers, states after tables by hand."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest

import traincast as tc
from traincast.accuracy.runs.reported_memory import memory_as_reported
from traincast.catalog.load import model_names
from traincast.catalog.software_stacks import Stack, calibrated
from traincast.core.assumptions import PAPER
from traincast.core.plan import Plans
from traincast.operations.transformer import layer, parts
from traincast.step.memory import (
    Footprint,
    GrowingMemory,
    StoredWeights,
    WorkingMemory,
    devices_memory,
    states,
)
from traincast.step.pipeline_stages import stages

CALIBRATED = calibrated()

# The GPT of arXiv 2205.05198: b = 2 sequences of s = 512 tokens, width h = 1024, a = 16 heads, biases and
# dropout.
GPT = tc.Model(
    name="gpt",
    layers=4,
    hidden=1024,
    heads=16,
    ffn=4096,
    seq=512,
    biases=("qkv", "proj", "mlp"),
    inner_dropout=False,
)
s, b, h, a = 512, 2, 1024, 16
SCORES = 5 * a * s / h


def saved(model, kind=None, assumed=CALIBRATED, **knobs):
    """Activations of a layer that a micro-batch keeps on a rank [byte]."""
    plan = Plans(**knobs)
    return Footprint.from_operations(layer(model, plan, assumed, kind), plan)


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ({}, 34 + SCORES),  # equation 1
        ({"tp": 4.0, "sp": False}, 10 + 24 / 4 + SCORES / 4),  # equation 2
        ({"tp": 4.0}, (34 + SCORES) / 4),  # equation 4
        ({"tp": 4.0, "recompute": "selective"}, 34 / 4),  # equation 6
        ({"recompute": "selective"}, 34),
        ({"sp": False, "tp": 4.0, "recompute": "selective"}, 10 + 24 / 4),  # table 2
    ],
)
def test_activations_of_a_gpt(knobs, expected):
    """Per layer, in units of s b h (arXiv 2205.05198, table 2).

    The GPT of arXiv 2410.00273 has a dropout behind the activation that Megatron's has not: 4h elements with
    a mask of one byte.
    """
    bytes_per_element = saved(GPT, attention="unfused", mbs=float(b), **knobs).saved / (s * b * h)
    assert bytes_per_element == pytest.approx(expected, rel=1e-12)
    more = saved(replace(GPT, inner_dropout=True), attention="unfused", mbs=float(b), **knobs).saved / (
        s * b * h
    )
    assert more == pytest.approx(expected + 4 / knobs.get("tp", 1), rel=1e-12)


def test_the_published_model_saves_gathered_inputs():
    """arXiv 2410.00273 keeps the inputs of qkv and fc1 gathered: 2 x 2 s b h instead of 4 s b h/t
    (2205.05198, section 4.2.2)."""
    saved_bytes = [
        saved(GPT, assumed=assumed, attention="unfused", mbs=float(b), tp=4.0).saved
        for assumed in (PAPER, CALIBRATED)
    ]
    assert saved_bytes[0] - saved_bytes[1] == (4 - 4 / 4) * s * b * h


@pytest.mark.parametrize(("tp", "every"), [(1, 1), (4, 1), (4, 2), (4, 3)])
def test_full_recomputation_keeps_inputs(tp, every):
    """2 s b h of a layer (arXiv 2205.05198, table 2), cut over t; of the layers in between all; one layer is
    live in backward."""
    plain = saved(GPT, attention="unfused", mbs=float(b), tp=float(tp)).saved
    full = saved(
        GPT, attention="unfused", mbs=float(b), tp=float(tp), recompute="full", recompute_every=float(every)
    )
    message = 2 * s * b * h / tp
    assert full.saved == pytest.approx(message / every + plain * (1 - 1 / every), rel=1e-12)
    assert full.live == plain - message


@pytest.mark.parametrize("tp", [1, 2, 8])
@pytest.mark.parametrize("name", ["llama-3-8b", "llama-3-70b", "mistral-7b", "llama-2-7b"])
def test_activations_of_a_llama(name, tp):
    """[8h + 2(2q + 2k) + 2(g + 1)f + 4 heads]/t per token: 23 measured runs of Megatron-LM on B200 within 1
    %.

    Two norms and what they give, queries and result, keys and values, inputs and result of the activation (g
    = 2), fp32 statistics.
    """
    model = tc.load_model(name)
    q, k = model.heads * 128, model.kv_heads * 128 if model.kv_heads else model.hidden
    by_hand = (8 * model.hidden + 2 * (2 * q + 2 * k) + 2 * 3 * model.ffn + 4 * model.heads) / tp
    assert saved(model, tp=float(tp)).saved / model.seq == pytest.approx(by_hand, rel=1e-9)


def latent(model):
    """Bytes of multi-head latent attention for each token, by what backward needs.

    Input of the norm and of both projections down; both narrow results before and after their norms; query,
    key, value; result; two 16-bit statistics for each head. Measured: 2(2h + 2·1536 + 192a + 576 + 512 + 256a
    + 192a + 128a), which also has the rotary part of kv_down's result beside the keys made of it (2·64), and
    for 256a instead of 128a the result of kv_up, of which the values are a view (2·128a), but no statistics
    (4a).
    """
    latent, heads = model.latent, model.heads
    width = latent.nope_dim + latent.rope_dim
    ours = (
        2
        * (
            2 * model.hidden
            + 2 * latent.q_rank
            + 2 * latent.kv_rank
            + heads * (2 * width + 2 * latent.value_dim)
        )
        + 4 * heads
    )
    measured = 2 * (
        2 * model.hidden + 2 * latent.q_rank + heads * (2 * width + latent.nope_dim + 2 * latent.value_dim)
    )
    measured += 2 * (2 * latent.kv_rank + latent.rope_dim)
    assert measured - ours == 2 * latent.rope_dim + 2 * latent.nope_dim * heads - 4 * heads
    return ours


def test_activations_of_deepseek():
    """Latent attention; a dense MLP 4h + 6f; experts 4h + 6 f_shared + K 6 f_e, and the K rows sent to
    experts, K 2h.

    The fit to measured runs has no such rows, but 4E of routing, and lies 0.4 % below the one large run; with
    them 0.9 % above.
    """
    model = tc.load_model("deepseek-v3")
    dense, moe = model.kinds
    experts, e = model.experts, model.hidden
    assert saved(model, dense).saved / model.seq == latent(model) + 4 * e + 6 * model.ffn
    sent = experts.topk * 2 * e
    assert (
        saved(model, moe).saved / model.seq
        == latent(model) + 4 * e + 6 * experts.shared_ffn + experts.topk * 6 * experts.ffn + sent
    )


def test_activations_of_experts():
    """Mixtral: attention as a Llama's; a router and two experts of the norm's result."""
    model = tc.load_model("mixtral-8x7b")
    e, f = 4096, 14336
    by_hand = 8 * e + 2 * (2 * 4096 + 2 * 1024) + 4 * 32 + 2 * (6 * f + 2 * e)
    assert saved(model).saved / model.seq == by_hand
    assert saved(model, tp=4.0, ep=2.0, dp=2.0, etp=1.0).saved / model.seq == by_hand / 4
    # two ranks share an expert and see each other's rows: each keeps their inputs, and half of the inner
    # width
    assert saved(model, tp=4.0, etp=2.0).saved / model.seq == (by_hand + 2 * 2 * e) / 4


@pytest.mark.parametrize(
    ("recompute", "dropped"),
    [
        ("norms", 2 * 2 * 4096),  # the norms' results, which qkv and fc1 read
        ("activation", 2 * 14336),  # the activation's result, which fc2 reads
        ("mlp", 6 * 14336),  # fc1's result as well
        (
            "attention",
            4 * 32,
        ),  # statistics; queries, keys and values are inputs, the result is the projection's
        ("norms+activation", 2 * 2 * 4096 + 2 * 14336),
        ("mlp+norms+attention", 6 * 14336 + 2 * 2 * 4096 + 4 * 32),
        (
            "per-op",
            3 * 2 * 4096 + 2 * 1024 + 4 * 14336,
        ),  # the norms' results and the input of one, keys, gate or up, the activation's result
    ],
)
def test_recomputed_modules_save_less(recompute, dropped):
    """Llama 3 8B, bytes of a token."""
    model = tc.load_model("llama-3-8b")
    assert (saved(model).saved - saved(model, recompute=recompute).saved) / model.seq == dropped


def test_every_second_product_by_hand():
    """What torchtitan's policy saves of a layer, in the order of products q, k, v, o, w1, w3, w2: the 1st,
    3rd, 5th, and without torch.compile the 7th, which backward does not read.

    With the layer's input and the result of attention with its statistics: 2(h + q + v + f + q) bytes a
    token, and 2h for the 7th.
    """
    model = tc.load_model("llama-3-8b")
    plan = Plans(recompute="per-op")
    operations = layer(model, plan, CALIBRATED)
    assert (
        saved(model, recompute="per-op").saved / model.seq == 2 * (4096 + 4096 + 1024 + 14336 + 4096) + 4 * 32
    )
    eager = Footprint.from_operations(layer(model, plan, Stack("torchtitan-eager").assumptions), plan).saved
    assert eager / model.seq == 2 * (4096 + 4096 + 1024 + 14336 + 4096 + 4096) + 4 * 32
    recomputed = sum(
        op.recompute * op.forward.flops("matrix") for op in operations if op.weight is not None
    ) / (2 * model.seq)
    assert recomputed == pytest.approx(4096 * (1024 + 4096 + 14336), rel=1e-3)  # k, o, w3
    assert all(op.recompute == 1 for op in operations if op.weight is None and op.name != "attention.flash")
    assert next(op for op in operations if op.name == "attention.flash").recompute == 0


def test_every_second_product_of_an_mlp_without_gate():
    """q, v and fc1's result, the layer's input, and attention's result with its statistics; masks of dropout
    are recomputed."""
    saved_bytes = 2 * (1024 + 1024 + 4096 + 1024 + 1024) + 2 * 2 * 16
    assert saved(GPT, recompute="per-op").saved / s == saved_bytes


def test_saved_tensors_of_software_stacks():
    """Activated gate, queries and keys before their positions; operands of fp8 products in 16 bits, where
    they are cast again."""
    model = tc.load_model("llama-3-8b")
    for name, elements in {"saves_elementwise": 14336, "saves_rotated": 4096 + 1024}.items():
        eager = CALIBRATED.with_values({f"memory.{name}": True})
        assert (saved(model, assumed=eager).saved - saved(model).saved) / model.seq == 2 * elements
    assumed = CALIBRATED.with_values({"memory.saves_casts": False})
    assert saved(model, assumed=assumed, precision="fp8").saved == saved(model).saved
    saved_bytes = (
        4096 + 4096 + 4096 + 14336
    )  # inputs of qkv, fc1, proj (beside attention's own copy) and fc2, a byte each
    assert (saved(model).saved - saved(model, precision="fp8").saved) / model.seq == saved_bytes - 2 * 4096


def test_recomputed_experts_save_the_input_of_the_block():
    """All that Mixtral's experts keep goes: rows sent, results of fc1 and of the activation."""
    model = tc.load_model("mixtral-8x7b")
    assert (saved(model).saved - saved(model, recompute="experts").saved) / model.seq == 2 * (
        6 * 14336 + 2 * 4096
    )


WEIGHTS = {
    "fp32": 4,
    "fp16": 2,
    "bf16": 2,
    "bf16-pure": 2,
    "fp8": 3,
    "fp8-current": 3,
    "fp8-rowwise": 3,
    "fp8-block": 3.03,
}
WEIGHTS |= {"mxfp8": 2 + 33 / 32, "int8": 2}
MASTER = {"fp32": 0, "bf16-pure": 0}  # else a copy of 4 bytes
MOMENTS = {
    "adam": 8,
    "adam-bf16": 4,
    "adam-8bit": 2,
    "adam-4bit": 1,
    "sgd": 4,
    "lion": 4,
    "adafactor": 4,
    "muon": 4,
}


@pytest.mark.parametrize("precision", [*WEIGHTS, "nvfp4"])
def test_bytes_of_a_parameter(precision):
    """Weights, gradients, master copy and moments of every recipe; ZeRO cuts one after the other (arXiv
    1910.02054, section 5)."""
    weight, master = WEIGHTS.get(precision, 2 + 9 / 16), MASTER.get(precision, 4)
    held = {"part": Footprint(1e9, 0.0, 0.0, 0.0, 0.0)}
    for (optimizer, moments), grad, zero, replicas in product(
        MOMENTS.items(), ("16-bit", "fp32"), range(4), (1, 4)
    ):
        plan = Plans(dp=8.0, cp=2.0, replicas=float(replicas), zero=zero, precision=precision)
        given = replace(plan, optimizer_kind=optimizer, grad_dtype=grad)
        parts = states(held, given, StoredWeights.for_device({"part": 2.0}, held), CALIBRATED)
        n = 16 / replicas
        gradient = 4 if grad == "fp32" or precision == "fp32" else 2
        table = {"weights": (weight, 3), "gradients": (gradient, 2), "optimizer": (master + moments, 1)}
        for what, (each, from_stage) in table.items():
            assert parts[what] == pytest.approx(2e9 * each / (n if zero >= from_stage else 1), rel=2e-3)


def test_activations_are_proportional_to_the_micro_batch_where_tp_and_cp_do_not_divide_the_sequence():
    model, assumed = tc.load_model("llama-3.1-8b"), CALIBRATED.with_values({"memory.saves_gathered": False})
    one, four = (
        saved(model, assumed=assumed, tp=4.0, cp=3.0, cp_kind="ring", mbs=mbs).saved for mbs in (1.0, 4.0)
    )
    assert four == 4 * one


def states_of_part(plan, **weights):
    """States of one part of the model [byte]."""
    footprint = {
        "part": Footprint(**{"weights": 0.0, "expert_weights": 0.0} | weights, saved=0.0, live=0.0, peak=0.0)
    }
    return states(footprint, plan, StoredWeights.for_device({"part": 1.0}, footprint), CALIBRATED)


def held_by(zero=1, precision="bf16", parts=None, assumed=None, stack=CALIBRATED, offload="none"):
    """States of 1e9 parameters on each of 8 ranks [byte a parameter]."""
    assumed = stack.with_values(assumed or {})
    plan = Plans(dp=8.0, zero=zero, precision=precision, offload=offload).ready(assumed)
    footprints = dict.fromkeys(("dense", "head"), Footprint(1e9, 0.0, 0.0, 0.0, 0.0))
    result = states(footprints, plan, StoredWeights.for_device(parts or {"dense": 1.0}, footprints), assumed)
    return {name: value / 1e9 for name, value in result.items()}


def test_states_of_other_software():
    """Bytes of a parameter on 8 ranks, by what each framework keeps."""
    megatron = held_by()
    assert megatron == {
        "weights": 2,
        "gradients": 4,
        "optimizer": 12 / 8,
    }  # gradients in fp32, added to by the products
    assert held_by(precision="fp16") == megatron | {
        "gradients": 2
    }  # Megatron-LM and DeepSpeed leave those of fp16 in 16 bits
    deepspeed = {"memory.gradient_copy_bytes": 2.0}
    assert held_by(assumed=deepspeed) == megatron | {"gradients": 6}  # BF16_Optimizer: 16 bits and fp32
    assert held_by(precision="fp16", assumed=deepspeed)["gradients"] == 2
    assert held_by(zero=2, assumed=deepspeed)["gradients"] == 4 / 8
    assert (
        sum(held_by(zero=3).values()) == 18 / 8
    )  # DeepSpeed: a shard of 16-bit weights next to the master copy
    assert sum(held_by(zero=3, assumed={"memory.stores_sharded_copy": False}).values()) == 16 / 8  # FSDP


@pytest.mark.parametrize(
    ("stack", "zero", "offload", "weights", "gradients", "optimizer"),
    [  # on the GPU; DeepSpeed 0.19, deepspeed/runtime/zero/stage_1_and_2.py and stage3.py
        ("deepspeed-2025", 1, "none", 2, 2, 12 / 8),
        ("deepspeed-2025", 2, "none", 2, 2 / 8, 12 / 8),
        ("deepspeed-2025", 3, "none", 2 / 8, 2 / 8, 12 / 8),  # shards in 16 bits beside fp32 ones
        ("deepspeed-2025", 1, "optimizer", 2, 2, 0),  # param.grad is reduced after the last micro-batch
        ("deepspeed-2025", 2, "optimizer", 2, 0, 0),  # accumulated_grads_in_cpu
        ("deepspeed-2025", 3, "optimizer", 2 / 8, 0, 0),  # grad_partitions_flat_buffer is on self.device
        ("deepspeed-2025", 3, "optimizer+weights", 0, 0, 0),
        # torch.distributed.fsdp, CPUOffloadPolicy: parameters, gradients and optimizer states
        ("torchtitan-2025", 3, "optimizer+weights", 0, 0, 0),
        # Megatron-Core, HybridDeviceOptimizer: copies the gradients of the buffer when it updates
        ("megatron-core-2025", 1, "optimizer", 2, 4, 0),
    ],
)
def test_what_stays_on_the_gpu(stack, zero, offload, weights, gradients, optimizer):
    held = held_by(zero, stack=Stack(stack).assumptions, offload=offload)
    assert held == {"weights": weights, "gradients": gradients, "optimizer": optimizer}


def test_weights_in_low_precision():
    """Transformer Engine: 16 bits and a copy in 8; with fp8_param_gather rows and columns in 8 bits; torchao
    casts when it uses."""
    assert held_by(precision="fp8")["weights"] == 3
    assert held_by(precision="fp8", assumed={"memory.stores_16bit_weights": False})["weights"] == 2
    assert held_by(precision="mxfp8", assumed={"memory.stores_16bit_weights": False})[
        "weights"
    ] == pytest.approx(2 * 33 / 32, rel=2e-3)
    assert (
        held_by(precision="nvfp4", assumed={"memory.stores_16bit_weights": False})["weights"]
        == held_by(precision="nvfp4")["weights"]
    )
    assert held_by(precision="fp8", assumed={"memory.saves_casts": False})["weights"] == 2
    at_ends = held_by(
        precision="fp8", assumed={"memory.stores_16bit_weights": False}, parts={"dense": 1.0, "head": 1.0}
    )
    assert at_ends["weights"] == 2 + 2  # the vocabulary's matrix is not multiplied in 8 bits
    assert held_by(precision="fp8", assumed={"memory.element_bytes": 4.0})["weights"] == 2 * 3


@pytest.mark.parametrize(
    ("precision", "optimizer", "grad", "expected"),
    [  # Bekman, "Software tune up for the best performance": bytes of a parameter in training
        ("bf16", "adam", "fp32", 18),  # 11 B parameters take 198 GB
        ("bf16", "adam-bf16", "fp32", 14),
        ("bf16", "adam-8bit", "fp32", 12),
        ("bf16", "sgd", "fp32", 14),
        ("bf16-pure", "adam-bf16", "16-bit", 8),  # AnyPrecisionAdamW
        ("fp32", "adam", "16-bit", 16),  # weight, gradient and two moments of 4 bytes
        ("fp16", "adam", "16-bit", 16),  # arXiv 1910.02054, section 3.1
    ],
)
def test_published_bytes_of_a_parameter(precision, optimizer, grad, expected):
    plan = Plans(zero=0, precision=precision, optimizer_kind=optimizer, grad_dtype=grad)
    result = states_of_part(plan, weights=11e9)
    assert sum(result.values()) == 11e9 * expected


@pytest.mark.parametrize(("zero", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_as_published(zero, gigabytes):
    """7.5 B parameters on 64 ranks (arXiv 1910.02054, figure 1)."""
    result = states_of_part(Plans(dp=64.0, zero=zero), weights=7.5e9)
    assert sum(result.values()) / 1e9 == pytest.approx(gigabytes, abs=0.05)


@pytest.mark.parametrize(
    ("knobs", "holders"), [({"ep": 8.0}, 8), ({"ep": 8.0, "etp": 2.0}, 4), ({"ep": 64.0}, 1)]
)
@pytest.mark.parametrize("replicas", [1, 2])
def test_states_of_experts_are_cut_over_those_that_hold_the_same(knobs, holders, replicas):
    """64 ranks of a stage (tp 4, dp 16); an expert is on 64/(ep etp) of them, and replicas (HSDP) keep a copy
    each."""
    plan = Plans(tp=4.0, dp=16.0, zero=1, replicas=float(replicas), grad_dtype="fp32", **knobs)
    result = states_of_part(plan, expert_weights=1e9)
    assert result == {"weights": 2e9, "gradients": 4e9, "optimizer": 12e9 / max(holders / replicas, 1)}


@pytest.mark.parametrize(("ep", "held"), [(8.0, 1.0), (4.0, 1 / 2 + 1 / 2), (2.0, 1 / 4 + 1 / 2)])
def test_zero_2_keeps_gradients_of_a_chunk_only_where_they_are_sharded(ep, held):
    """8 ranks of a stage with two chunks; an expert is on 8 / ep of them."""
    plan = Plans(pp=2.0, vp=2.0, dp=8.0, zero=2, grad_dtype="fp32", ep=ep)
    assert states_of_part(plan, expert_weights=1e9)["gradients"] == 4e9 * held


def device_by_device(model, gbs=64, **knobs):
    plan = Plans(**knobs)
    costs = {"dense": Footprint(10.0, 0.0, 6.0, 0.0, 0.0), "embedding": Footprint(7.0, 0.0, 1.0, 0.0, 0.0)}
    costs |= {"head": Footprint(7.0, 0.0, 2.0, 0.0, 100.0), "tied": Footprint(7.0, 0.0, 0.0, 0.0, 0.0)}
    return devices_memory(
        costs,
        plan,
        stages(model, plan),
        gbs,
        CALIBRATED.with_values(
            {
                "memory.context_bytes": 0,
                "memory.allocator_share": 0,
                "memory.vocabulary_gradient_bytes": 0,
                "memory.counts_gradients_at_work": False,
            }
        ),
    )


def test_without_a_pipeline_gradients_are_accumulated_over_micro_batches_one_at_a_time():
    """Whatever schedule a plan names: GPipe has all in flight only where there are stages."""
    plans = (tc.Plan(dp=2, schedule=name) for name in ("1f1b", "gpipe"))
    one, other = (tc.estimate(GPT, "dgx-a100", plan, gbs=16).memory_bytes for plan in plans)
    assert other == one


def test_activations_in_flight():
    """14 layers and the head, which weighs 2, on 4 stages: 1F1B holds 4 micro-batches on the first; the last
    holds one."""
    model = replace(tc.load_model("llama-3-8b"), layers=14)
    first, *_, last = device_by_device(model, pp=4.0, dp=1.0)
    assert first["activations"] == 4 * (4 * 6 + 1)
    assert (last["activations"], last["logits"]) == (2 * 6 + 2, 100)
    both, *_ = device_by_device(
        model, pp=4.0, dp=1.0, schedule="dualpipe"
    )  # arXiv 2412.19437, table 2: pp + 1
    assert both["activations"] == 5 * (3 * 6 + 1.5)  # half of the micro-batches have each end here
    assert both["logits"] == 100  # one of them at a time
    assert both["weights"] == 2 * (6 * 10 + 14)


def test_overlapped_exchanges_keep_a_chunk_more():
    """Megatron-Core runs one chunk ahead, so that both passes at work are of different micro-batches."""
    model = replace(tc.load_model("llama-3-8b"), layers=30)
    knobs = {"pp": 4.0, "dp": 2.0, "ep": 2.0, "vp": 2.0, "layout": "4*7,2"}
    first, later = (
        device_by_device(model, ep_overlap=overlap, **knobs)[0]["activations"] for overlap in (False, True)
    )
    layers = 8 * 6  # of a device
    # (2 (pp - 1) + (v - 1) pp + 1) / v of them in flight (arXiv 2205.05198, 4.2.3), and half of them
    assert first == pytest.approx(11 / 2 * (layers + 1))
    assert later - first == pytest.approx((layers + 1) / 2)


@pytest.mark.parametrize("name", model_names(aliases=False))
@pytest.mark.parametrize("recompute", ["none", "selective", "full", "per-op"])
def test_memory_of_a_part_is_proportional_to_the_micro_batch(name, recompute):
    """Counts of what fits rely on it; 16 sequences and 48 cut evenly over 2 x 2 ranks."""
    model = tc.load_model(name)
    if recompute == "per-op" and model.encoder is not None:
        return  # which is not modelled
    small, large = (
        {
            part: Footprint.from_operations(operations, plan)
            for plan in [Plans(mbs=mbs, tp=2.0, cp=2.0, cp_kind="all-gather", recompute=recompute)]
            for part, operations in parts(model, plan, CALIBRATED, {}).items()
        }
        for mbs in (16.0, 48.0)
    )
    for part, footprint in large.items():
        for figure in ("saved", "live"):
            assert getattr(footprint, figure) == pytest.approx(3 * getattr(small[part], figure), rel=1e-12)
        if part in ("head", "mtp"):
            assert footprint.peak == pytest.approx(3 * small[part].peak, rel=1e-12)


def test_logits_are_freed_before_a_layer_is_recomputed():
    """The head's peak and the live layer are not there at once: the larger of the two counts."""
    model = replace(tc.load_model("llama-3-8b"), layers=14)
    for live, expected in ((40.0, (100, 0)), (130.0, (0, 130))):
        costs = {"dense": Footprint(10.0, 0.0, 6.0, live, 0.0), "head": Footprint(7.0, 0.0, 2.0, 0.0, 100.0)}
        costs |= {"embedding": Footprint(7.0, 0.0, 1.0, 0.0, 0.0)}
        plan = Plans(pp=4.0, recompute="full")
        assumed = CALIBRATED.with_values(
            {"memory.vocabulary_gradient_bytes": 0, "memory.counts_gradients_at_work": False}
        )
        first, *_, last = devices_memory(costs, plan, stages(model, plan), 64, assumed)
        assert (last["logits"], last["workspace"]) == expected
        assert (first["logits"], first["workspace"]) == (0, live)


def test_ways_of_measuring():
    """Tensors; with what the allocator holds; with what is outside of it. Only the last is all of
    the memory."""
    model, system = tc.load_model("llama-3-8b"), tc.load_system("dgx-h100")
    used = tc.estimate(model, system, tc.Plan(dp=8), gbs=64).memory
    allocated, reserving, device = (
        memory_as_reported(used, kind) for kind in ("allocated", "reserved", "device")
    )
    assert device == pytest.approx(sum(used.values()))
    assert device - reserving == used["buffers"] > 0
    assert reserving - allocated == pytest.approx(used["reserved"])
    assert used["reserved"] == pytest.approx(CALIBRATED.memory.allocator_share * allocated)


def test_offloaded_states_and_activations():
    model = replace(tc.load_model("llama-3-8b"), layers=14)
    plain, moved = (
        device_by_device(model, pp=4.0, offload=words)[0] for words in ("none", "optimizer+activations")
    )
    assert plain["optimizer"] == 12 * (4 * 10 + 7)
    assert moved["optimizer"] == 0
    assert moved["activations"] == 2 * 6  # of two layers: at work, and on its way
    assert moved["weights"] == plain["weights"]
    gone = device_by_device(model, pp=4.0, offload="weights")[0]
    assert (gone["weights"], gone["gathered"]) == (
        0,
        2 * (2 * 10 + 7),
    )  # two layers and the embedding are on the device
    lonely = device_by_device(replace(model, layers=4), pp=4.0, offload="weights")
    # a layer and the embedding; two layers; the head
    assert [device["gathered"] for device in lonely] == [2 * (10 + 7), 2 * 2 * 10, 2 * 7]


def test_deepseek_v3_fits_as_it_was_trained():
    """16 stages, 64-way expert parallelism, DualPipe, block-scaled fp8, bf16 moments; norms, activations and
    up-projections made
    again, on 2,048 H800 of 80 GB (arXiv 2412.19437, sections 3.2 and 3.3): it did fit, and left little."""
    plan = tc.Plan(
        pp=16, ep=64, dp=128, schedule="dualpipe", precision="fp8-block", optimizer_kind="adam-bf16",
        recompute="norms+activation+mla_up_proj",
    )  # fmt: skip
    est = tc.estimate(tc.load_model("deepseek-v3"), tc.load_system("hgx-h800"), plan, gbs=15360)
    assert 0.9 < est.memory_bytes / est.system.accelerator.hbm_bytes <= 1


def test_recomputed_up_projections_save_the_latent_vectors():
    """Queries, keys and values of latent attention: 128 heads of 192, 192 and 128 numbers in 16 bits for
    every token."""
    model, system = tc.load_model("deepseek-v3"), tc.load_system("dgx-h100")
    plans = (tc.Plan(dp=8, ep=8, recompute=kind) for kind in ("none", "mla_up_proj"))
    saved_memory, recomputed_memory = (tc.estimate(model, system, plan, gbs=64).memory for plan in plans)
    per_layer = 2 * model.seq * 128 * (192 + 192 + 128)
    assert (
        saved_memory["activations"] - recomputed_memory["activations"] == 61 * per_layer + per_layer
    )  # and of multi-token prediction
    assert recomputed_memory["workspace"] >= per_layer


def test_zero_2_sums_the_gradients_of_a_chunk_over_the_micro_batches_it_works_through_in_a_row():
    # Llama 3 405B on 8,192 GPUs (arXiv 2407.21783, section 3.3.2): ranks hold gradients of one of 8 chunks
    # and reduce them 2 times for 32 micro-batches
    plan = tc.Plan(tp=8, pp=16, dp=64, vp=8, layout="0,1*126,0")
    whole, sharded = (
        tc.estimate("llama-3.1-405b", "llama3-h100", replace(plan, zero=zero), gbs=2048) for zero in (1, 2)
    )
    gradients = whole.memory["gradients"]
    assert sharded.memory["gradients"] == pytest.approx(gradients / 64 + gradients / 8)
    assert sharded.step_seconds < 1.03 * whole.step_seconds
    assert sharded.fits_probability > 0.1


@pytest.mark.parametrize(
    ("last", "gbs", "kept"), [("step", 8, 1.0), ("backward", 16, 1.0), ("backward", 8, None)]
)
def test_gradients_take_the_place_of_activations(last, gbs, kept):
    """Of one micro-batch gradients come as activations go: the larger of the two counts beside the states."""
    assumed = CALIBRATED.with_values({"memory.gradients_last": last})
    est = tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(dp=8), gbs=gbs, assumptions=assumed)
    held = est.memory
    states_alone = held["weights"] + held["optimizer"]
    all_gradients = 4 * est.model.parameters
    if kept is None:
        larger = max(all_gradients, held["activations"] + held["logits"])
        assert states_alone + held["activations"] + held["logits"] + held["gradients"] == pytest.approx(
            states_alone + larger, rel=1e-3
        )
    else:
        assert held["gradients"] == pytest.approx(kept * all_gradients, rel=1e-3)


def test_gradients_of_a_layer_at_work():
    """An optimizer that runs in backward holds those of the largest part: here a matrix of the vocabulary."""
    assumed = CALIBRATED.with_values({"memory.gradients_last": "layer"})
    est = tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(), gbs=1, assumptions=assumed)
    assert est.memory["gradients"] == pytest.approx(4 * 128256 * 4096, rel=1e-3)


def test_sharded_gradients_are_reduced_from_memory_of_their_own():
    """Llama 3 8B on 8 ranks; the vocabulary's matrices have 128256 x 4096 elements, as fp32 1.96 GiB each.

    One unit of FSDP has both in 2024; the head alone is the largest unit later.
    """
    plan = tc.Plan(dp=8, zero=3, recompute="per-op", grad_dtype="fp32")
    matrix = 4 * 128256 * 4096
    system = tc.load_system("dgx-h100")
    for software, reduced in (("torchtitan-2024", 2 * matrix), ("torchtitan-2025", matrix)):
        est = tc.estimate("llama-3-8b", system, plan, gbs=8, assumptions=software)
        assert est.memory["reserved"] == pytest.approx(reduced, rel=1e-3)
    alone = tc.estimate(
        "llama-3-8b", system, tc.Plan(zero=3, recompute="full"), gbs=1, assumptions="torchtitan-2025"
    )
    assert alone.memory["reserved"] == 0


def test_a_paged_optimizer_is_not_pytorchs():
    used = {"weights": 4.0, "optimizer": 2.0, "reserved": 1.0, "buffers": 1.0}
    assert memory_as_reported(used, "paged") == 4
    assert memory_as_reported(used, "allocated") == 6


def test_muon_leaves_embedding_and_head_to_adam():
    """megatron-core 0.19.2, emerging_optimizers.py: by name, not by shape; Adam has 4 bytes more of each."""
    model = replace(tc.load_model("llama-3-8b"), vocab=128 * 1024)
    state = tc.estimate(model, "dgx-h100", tc.Plan(dp=8, optimizer_kind="muon"), gbs=8).memory["optimizer"]
    embedding_and_head = 2 * 128 * 1024 * 4096
    assert state == pytest.approx((8 * model.parameters + 4 * embedding_and_head) / 8, rel=1e-6)


def test_how_much_larger_a_micro_batch_fits_by_hand():
    """20 bytes are free beside 4 of activations and 2 of logits: 26/6 times as large.

    Where all activations of the step are 6, that of logits alone grows from then on: (26 - 6)/2 times.
    """
    assert GrowingMemory(4.0, 30.0, 2.0).largest_microbatch(20.0) == 26 / 6
    assert GrowingMemory(4.0, 6.0, 2.0).largest_microbatch(20.0) == 10


def test_what_activations_leave_for_states_by_hand():
    """100 bytes; 8 of activations of 4 of 16 micro-batches, 3 of a layer at work, 10 at the first backward.

    While passes run 100 - 8 - 3 are left, and in the first layer's backward pass 100 - 10 - 3: half of the
    activations stay, and it needs 10 - 4 beside them.
    """
    assumed = CALIBRATED.with_values(
        {
            "memory.allocator_share": 0.0,
            "memory.library_bytes": 0.0,
            "memory.workspace_bytes": 0.0,
            "memory.gradients_last": "backward",
        }
    )
    beside = SimpleNamespace(buffers=0.0, logits=2.0, head_matrix=0.0, in_flight=4.0, others=0.5, matrix=0.0)
    early, late, step = WorkingMemory(8.0, 10.0, 3.0, beside).left_for_states(16.0, 100.0, assumed)
    ((passes,), (at_layer,), (whole,)) = (left.phases for left in (early, late, step))
    assert (passes.most, at_layer.most, whole.most) == (89, 87, 100)
    assert passes.growing == GrowingMemory(8.0, 8 / 4 * 16, 3.0)
    assert at_layer.growing == GrowingMemory(4.0, 16.0, 6.0 + 3.0, 2.0, 32.0)


def test_what_the_head_and_offloaded_activations_leave_for_states_by_hand():
    """As above, without gradients that come anew, and with the gradient of a head's matrix of 20 bytes.

    Passes leave 100 - 8 - 3 - 5, of which the matrix takes 5. At the first layer 100 - 10 - 20 are left
    beside that gradient, and 100 - 10 - 3 beside the layer at work. Freed until then are 8 - 4 + 3 - 6 bytes
    with the smallest micro-batches, and 32 - 16 + 16 * (3 - 6) with the largest: with 5 more they are under
    20, so that the first layer may decide. It does not where the matrix takes 53 of passes, as -32 + 53 are
    above 20.
    """
    assumed = CALIBRATED.with_values(
        {"memory.allocator_share": 0.0, "memory.library_bytes": 0.0, "memory.workspace_bytes": 0.0}
    )
    assert assumed.memory.gradients_last != "backward"
    beside = SimpleNamespace(buffers=0.0, logits=2.0, head_matrix=5.0, in_flight=4.0, others=0.5, matrix=20.0)
    working = WorkingMemory(8.0, 10.0, 3.0, beside)
    (whole, _) = working.left_for_states(16.0, 100.0, assumed)
    passes, with_matrix, at_work = whole.phases
    assert (passes.most, with_matrix.most, at_work.most) == (84, 70, 87)
    assert with_matrix.growing == GrowingMemory(4.0, 16.0, 6.0, 2.0, 32.0)
    assert at_work.growing == GrowingMemory(4.0, 16.0, 6.0 + 3.0, 2.0, 32.0)
    assert (with_matrix.may_decide, at_work.may_decide) == (True, None)
    beside.head_matrix = 53.0
    (whole, _) = working.left_for_states(16.0, 100.0, assumed)
    assert not whole.phases[1].may_decide
