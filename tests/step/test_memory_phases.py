"""Memory over the phases of a step: the peak is the largest, and runs measured it.

Measured: peaks that PyTorch allocated with Mistral-7B on A100s, sequences of 4,096 tokens, recomputation,
FSDP above one GPU (foundation-model-stack/fms-acceleration, benchmark tables of January 2026) [GiB].
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traincast as tc
from traincast.accuracy.runs.reported_memory import memory_as_reported
from traincast.catalog.software_stacks import Stack, calibrated
from traincast.catalog.training import Training
from traincast.core.plan import Plans
from traincast.core.units import GIB
from traincast.operations.operation import total
from traincast.step.estimates import estimate_columns
from traincast.step.memory import PHASES, Footprint, devices_memory
from traincast.step.pipeline_stages import stages

CALIBRATED = calibrated()
MISTRAL = replace(tc.load_model("mistral-7b"), seq=4096)
PURE = {"precision": "bf16-pure", "optimizer_kind": "adam-bf16", "grad_dtype": "16-bit"}
MIXED = {"precision": "bf16", "grad_dtype": "fp32"}  # FSDP keeps weights in fp32


def fine_tuned(stack, train="full", gpus=1, mbs=1, seq=4096, **knobs):
    """The estimate of Mistral-7B with full recomputation, sharded on several GPUs."""
    zero = 3 if gpus > 1 else 0
    plan = tc.Plan(dp=gpus, mbs=mbs, recompute="full", zero=zero, **knobs)
    model = Training.read(train).apply_to(replace(MISTRAL, seq=seq))
    return tc.estimate(model, "dgx-a100", plan, gbs=gpus * mbs, assumptions=stack)


def allocated(est):
    return memory_as_reported(est.memory, "allocated") / GIB


@pytest.mark.parametrize("mbs", [1, 2, 4, 8])
def test_the_step_of_adamw_over_lists_takes_one_more_copy(mbs):
    """Weights, gradients, two moments and the roots of one: 67.46 measured at micro-batches of 4 and 8."""
    est = fine_tuned("huggingface-eager", mbs=mbs, **PURE)
    assert allocated(est) == pytest.approx(67.46, rel=2e-3)
    assert est.memory_phase == "optimizer step"
    assert est.memory["copies"] == pytest.approx(est.memory["weights"])


@pytest.mark.parametrize(
    ("train", "gpus", "mbs", "knobs", "stack", "measured", "phase"),
    [
        ("full", 1, 16, PURE, "huggingface-fused-loss", 71.85, "backward of the last layer"),
        ("full", 2, 4, PURE, "huggingface-eager", 33.74, "optimizer step"),
        ("full", 2, 8, MIXED, "huggingface-fused-loss", 67.46, "optimizer step"),
        ("full", 4, 4, MIXED, "huggingface-fused-loss", 33.74, "optimizer step"),
        ("full", 4, 16, MIXED, "huggingface-fused-loss", 52.51, "backward of the last layer"),
        ("lora", 1, 8, {}, "huggingface-eager", 36.08, "loss"),
        ("lora", 1, 16, {}, "huggingface-fused-loss", 46.68, "backward of the last layer"),
        ("lora", 2, 4, {}, "huggingface-eager", 20.45, "backward of the first layer"),
        ("lora", 2, 16, {}, "huggingface-fused-loss", 55.78, "backward of the first layer"),
        ("lora", 4, 8, {}, "huggingface-fused-loss", 28.34, "backward of the first layer"),
        ("qlora", 1, 8, {}, "huggingface-eager", 26.46, "loss"),
        ("qlora", 1, 32, {}, "huggingface-fused-loss", 69.03, "backward of the last layer"),
        ("qlora", 2, 8, {}, "huggingface-fused-loss", 26.49, "backward of the first layer"),
        ("qlora", 4, 16, {}, "huggingface-fused-loss", 49.31, "backward of the first layer"),
    ],
)
def test_peaks_of_fine_tuning(train, gpus, mbs, knobs, stack, measured, phase):
    words = train if train == "full" else f"{train}:r=16,targets=q+k+v+proj"
    est = fine_tuned(stack, words, gpus, mbs, **knobs)
    assert allocated(est) == pytest.approx(measured, rel=0.06)
    assert est.memory_phase == phase


def test_a_fused_step_takes_no_copy():
    fused = Stack("huggingface-eager").assumptions.with_values({"memory.foreach_step": False})
    est = fine_tuned(fused, mbs=1, **PURE)
    assert est.memory["copies"] == 0
    # gradients are all there at the first layer, beside what that works with
    assert est.memory_phase == "backward of the first layer"


def test_frozen_layers_keep_inputs_and_their_gradients_under_fsdp():
    """32 layers of an input and its gradient: 2 x 4,096 x 4,096 x 2 bytes each, of each sequence.

    Seen with PyTorch 2.13 on 2 CPUs as well: of 8 frozen layers with adapters, recomputed by reentrant
    checkpoints, 17 tensors of the hidden state are alive in the backward pass of the first; 3 without FSDP,
    or with checkpoints that are not reentrant (findings/fsdp_keeps_frozen_layers.sh).
    """
    each = 4096 * 4096 * 2
    words = "lora:r=16,targets=q+k+v+proj"
    kept = fine_tuned("huggingface-eager", words, gpus=2)
    stack = Stack("huggingface-eager").assumptions.with_values({"memory.keeps_frozen_layers": False})
    freed = fine_tuned(stack, words, gpus=2)
    at_first = [est.memory_phases["backward of the first layer"]["activations"] for est in (kept, freed)]
    assert at_first[0] == 2 * 32 * each
    assert at_first[1] < 4 * each


def test_recomputed_layers_keep_16_bits_of_their_input():
    """Where norms are computed in fp32 (transformers), a checkpoint keeps the input alone."""
    est = fine_tuned("huggingface-eager", mbs=1, **PURE)
    dense = est.timed["dense" if "dense" in est.timed else next(iter(est.timed))]
    footprint = Footprint.from_operations(tuple(timed.operation for timed in dense), est.columns)
    assert footprint.saved == 4096 * 4096 * 2


def test_without_a_master_copy_the_shards_of_weights_are_held():
    """FSDP casts no master copy in pure bf16: 7.24 G parameters of 2 bytes on 2 GPUs."""
    est = fine_tuned("huggingface-eager", gpus=2, **PURE)
    assert est.memory["weights"] == pytest.approx(est.model.parameters, rel=1e-3)


@pytest.mark.parametrize(("zero", "parameters"), [(3, 1e9), (2, None), (0, 0)])
def test_deepspeed_casts_gradients_of_a_sub_group(zero, parameters):
    """6 bytes of a parameter: 16 bits flattened and fp32; all of a rank's without sub-groups (ZeRO-1, 2)."""
    plan = tc.Plan(dp=4, zero=zero, recompute="full", grad_dtype="16-bit")
    est = tc.estimate(MISTRAL, "dgx-a100", plan, gbs=4, assumptions="huggingface-deepspeed")
    stepped = est.model.parameters / 4 if parameters is None else parameters
    assert est.memory_phases["optimizer step"]["copies"] == pytest.approx(6 * stepped, rel=1e-3)


@pytest.mark.parametrize(("zero", "each"), [(3, 8), (2, 6), (1, 6)])
def test_deepspeed_holds_roots_beside_gradients_in_fp32(zero, each):
    """With AdamW over lists: 4 bytes each; with ZeRO-1 and 2 without the 16-bit gradients that were cast.

    Seen with DeepSpeed 0.19.8 and PyTorch 2.13 on 2 CPUs at torch._foreach_sqrt: tensors of 24 bytes for each
    parameter of a rank with ZeRO-3, and of 20 beside whole 16-bit weights with ZeRO-2.
    """
    stack = Stack("huggingface-deepspeed").assumptions.with_values({"memory.foreach_step": True})
    plan = tc.Plan(dp=8, zero=zero, recompute="full", grad_dtype="16-bit")
    est = tc.estimate(MISTRAL, "dgx-a100", plan, gbs=8, assumptions=stack)
    copies = est.memory_phases["optimizer step"]["copies"]
    assert copies == pytest.approx(each * est.model.parameters / 8, rel=1e-3)


@pytest.mark.parametrize(("gbs", "whole"), [(8, False), (16, True)])
def test_fsdp_adds_up_whole_gradients_of_several_microbatches(gbs, whole):
    """Without synchronisation (no_sync): 2 bytes of every parameter on every rank until the last is reduced.

    FastChat's issue 407: Vicuna-7B takes about 30 GB of each of 8 A100 with micro-batches of 1, accumulated
    16 times; shards of 16 bytes for a parameter are 13.5 of these, whole gradients as much again.
    """
    plan = tc.Plan(dp=8, zero=3, recompute="full", **MIXED)
    est = tc.estimate(MISTRAL, "dgx-a100", plan, gbs=gbs, assumptions="huggingface-eager")
    phases = est.memory_phases
    sharded = est.model.parameters * 4 / 8
    assert phases["optimizer step"]["gradients"] == pytest.approx(sharded, rel=1e-3)
    expected = 2 * est.model.parameters if whole else 0
    assert phases["loss"]["gradients"] == pytest.approx(expected, rel=1e-3)


def test_autocast_keeps_no_gradients_in_16_bits():
    """Weights in fp32 under torch.autocast have gradients in fp32 alone, of 4 bytes, where nothing shards."""
    plan = tc.Plan(dp=1, recompute="full", **MIXED)
    est = tc.estimate(MISTRAL, "dgx-h100", plan, gbs=1, assumptions="huggingface-eager")
    gradients = est.memory_phases["optimizer step"]["gradients"]
    assert gradients == pytest.approx(4 * est.model.parameters, rel=1e-3)


def test_whole_gradients_are_reduced_once_in_a_step():
    """Of 4 micro-batches: weights are gathered 8 times, gradients are reduced once and not 4 times."""

    def exposed(gbs, whole):
        figures = {"overlap.dp_window": 0.0, "memory.accumulates_whole": whole}
        stack = Stack("huggingface-eager").assumptions.with_values(figures)
        plan = tc.Plan(dp=8, zero=3, recompute="full", **MIXED)
        return tc.estimate(MISTRAL, "dgx-a100", plan, gbs=gbs, assumptions=stack).breakdown["dp_comm"]

    once, whole, each = exposed(8, True), exposed(32, True), exposed(32, False)
    reduction = (each - whole) / 3
    assert reduction > 0
    assert each == pytest.approx(4 * once)
    assert whole - reduction == pytest.approx(4 * (once - reduction))


def test_vicuna_on_8_gpus_takes_what_was_seen():
    """About 30 GB of each A100 (FastChat's issue 407), whose 16 micro-batches have a sequence of 2,048."""
    model = replace(tc.load_model("llama-2-7b"), seq=2048)
    plan = tc.Plan(dp=8, zero=3, recompute="full", **MIXED)
    est = tc.estimate(model, "dgx-a100-40", plan, gbs=128, assumptions="huggingface-eager")
    assert est.memory_bytes / 1e9 == pytest.approx(30, rel=0.05)


@pytest.mark.parametrize(
    ("figures", "expected"),
    [  # weights: 218.1 M of each of 32 layers, and 131.1 M of embedding or head
        ({}, 218.1e6 + 131.1e6 + (1e9 - 2 * 131.1e6) / 2 + 5e7),
        ({"memory.reuse_distance": 0.0}, 218.1e6 + 131.1e6 + 5e7),
        ({"memory.reuse_distance": 0.0, "memory.live_parameters": 0.0}, 218.1e6 + 131.1e6),
        ({"memory.prefetched_parameters": 0.0}, 218.1e6 + 131.1e6 + (1e9 - 2 * 131.1e6) / 2),
    ],
)
def test_deepspeed_keeps_gathered_what_is_used_again_soon(figures, expected):
    """The layer at work, the head, and of the last layers what the distance of reuse has room for.

    Between two uses of a weight of the last layers lie the head's two, and those of the layers after.
    """
    stack = Stack("huggingface-deepspeed").assumptions.with_values(figures)
    plan = tc.Plan(dp=8, zero=3, recompute="full", grad_dtype="16-bit")
    est = tc.estimate(MISTRAL, "dgx-a100", plan, gbs=8, assumptions=stack)
    assert est.memory_phases["loss"]["gathered"] == pytest.approx(2 * expected, rel=1e-3)


def test_a_gradient_larger_than_the_bucket_is_whole():
    """That of the head, 32,000 x 4,096 of 2 bytes and a norm, where the bucket is smaller."""
    stack = Stack("huggingface-deepspeed").assumptions.with_values({"memory.reduce_bucket": 0.0})
    plan = tc.Plan(dp=8, zero=3, recompute="full", grad_dtype="16-bit")
    kept, freed = (
        tc.estimate(MISTRAL, "dgx-a100", plan, gbs=8, assumptions=assumed).memory_phases["forward"]
        for assumed in (stack, stack.with_values({"memory.stepped_parameters": 0.0}))
    )
    assert kept["workspace"] - freed["workspace"] == pytest.approx(
        32000 * 4096 * 2, rel=1e-4
    )  # and the norm before it


def test_deepspeed_reduces_gradients_from_a_bucket():
    """reduce_bucket_size = 5e8 elements of 2 bytes, 1.31e8 of which the head's gradient takes anyway."""
    plan = tc.Plan(dp=8, zero=3, recompute="full", grad_dtype="16-bit")
    one, other = (
        tc.estimate(
            MISTRAL,
            "dgx-a100",
            plan,
            gbs=8,
            assumptions=Stack("huggingface-deepspeed").assumptions.with_values(
                {"memory.reduce_bucket": bucket}
            ),
        ).memory["workspace"]
        for bucket in (0.0, 5e8)
    )
    assert other - one == pytest.approx(1e9 - 2 * 32000 * 4096, rel=1e-4)


def test_the_phases_of_a_step_are_its_timeline():
    plan = tc.Plan(dp=8, zero=3, recompute="full")
    est = tc.estimate("llama-3-8b", "dgx-h100", plan, gbs=8, assumptions="torchtitan-2025")
    timeline = est.memory_timeline()
    assert [row.phase for row in timeline] == list(PHASES)
    peak = max(timeline, key=lambda row: row.memory_bytes)
    assert peak.phase == est.memory_phase == est.to_dict()["memory_phase"]
    assert peak.memory_by_component_bytes == est.memory
    for row in timeline:
        assert sum(row.memory_by_component_bytes.values()) == pytest.approx(row.memory_bytes)


def test_the_phase_of_columns_is_that_of_each_plan():
    model = tc.load_model("mistral-7b")
    mbs = [1.0, 8.0, 64.0]
    plans = Plans(mbs=np.array(mbs), recompute="full", zero=0, **PURE)
    assumed = Stack("huggingface-eager").assumptions
    together = estimate_columns(model, tc.load_system("dgx-a100"), plans, 64, assumed)
    alone = [
        tc.estimate(
            model,
            "dgx-a100",
            tc.Plan(mbs=int(n), recompute="full", zero=0, **PURE),
            gbs=64,
            assumptions=assumed,
        )
        for n in mbs
    ]
    assert list(together.memory_phase) == [est.memory_phase for est in alone]
    assert together.memory_bytes == pytest.approx([est.memory_bytes for est in alone])


def test_an_embeddings_gradient_is_made_in_the_first_layers_phase():
    """Of 4 stages the first has no logits; its matrix of 128256 x 4096 fp32 elements comes last."""
    est = tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(pp=4, dp=2, recompute="full"), gbs=64)
    matrix = 4 * 128256 * 4096
    plan, parts = est.columns, est.timed
    footprints = {
        part: Footprint.from_operations(tuple(timed.operation for timed in of_part), plan)
        for part, of_part in parts.items()
    }
    without = CALIBRATED.with_values({"memory.vocabulary_gradient_bytes": 0})
    where = stages(est.model, plan)
    first, other = (
        devices_memory(footprints, plan, where, 64, assumed)[0] for assumed in (CALIBRATED, without)
    )
    assert first["workspace"] == matrix
    assert other["workspace"] < matrix
    assert first["activations"] < other["activations"]  # those of one micro-batch are gone


@st.composite
def asked(draw):
    """A plan of few GPUs and a stack."""
    stack = draw(
        st.sampled_from(
            ["calibrated", "huggingface-eager", "huggingface-deepspeed", "torchtitan-2025", "maxtext-2025"]
        )
    )
    pp = draw(st.sampled_from([1, 2, 4]))
    plan = tc.Plan(
        dp=draw(st.sampled_from([1, 2, 4])),
        tp=draw(st.sampled_from([1, 2])),
        pp=pp,
        zero=0 if pp > 1 else draw(st.sampled_from([0, 1, 2, 3])),
        recompute=draw(st.sampled_from(["none", "full"])),
    )
    return stack, plan, draw(st.sampled_from(["llama-3-8b", "gemma-2b"]))


@settings(max_examples=25, deadline=None)
@given(asked())
def test_the_peak_is_the_largest_phase(case):
    stack, plan, name = case
    est = tc.estimate(name, "dgx-h100", plan, gbs=32, assumptions=stack)
    totals = {phase: total(parts.values()) for phase, parts in est.memory_phases.items()}
    assert est.memory_bytes == max(totals.values()) == totals[est.memory_phase]
    everything = [max(of.values()) for of in zip_components(est.memory_phases)]
    for phase_total in totals.values():
        assert phase_total <= sum(everything) * (1 + 1e-12)


@settings(max_examples=15, deadline=None)
@given(asked())
def test_larger_micro_batches_take_more(case):
    """Of as many micro-batches a step: no phase of a device shrinks as they grow, nor does the peak."""
    stack, plan, name = case
    small, large = (
        tc.estimate(name, "dgx-h100", replace(plan, mbs=mbs), gbs=32 * mbs, assumptions=stack)
        for mbs in (1, 4)
    )
    assert small.memory_bytes <= large.memory_bytes
    for phase in PHASES if plan.pp == 1 else ():  # of a pipeline another device can be the fullest
        least, most = (total(est.memory_phases[phase].values()) for est in (small, large))
        assert least <= most * (1 + 1e-12), phase


def zip_components(phases):
    """Return each component over the phases."""
    first = next(iter(phases.values()))
    return [{phase: parts[name] for phase, parts in phases.items()} for name in first]


def test_scores_of_unfused_attention_have_gradients_at_work():
    """Of probabilities and of scores, 16 bits each: 2 sequences, 16 heads, 2,048 x 2,048 scores."""
    model = replace(tc.load_model("gpt3-175b"), seq=2048, layers=8, hidden=2048, heads=16, ffn=8192)
    plan = tc.Plan(mbs=2, attention="unfused", recompute="full")
    est = tc.estimate(model, "dgx-h100", plan, gbs=2, assumptions="megatron-lm-2022")
    footprints = [
        Footprint.from_operations(tuple(timed.operation for timed in timed_part), est.columns)
        for part, timed_part in est.timed.items()
        if part not in ("embedding", "head")
    ]
    scores = 2 * 16 * 2048 * 2048
    assert [part.at_work - part.live for part in footprints] == [2 * 2 * scores]


def test_data_parallel_ranks_of_pytorch_hold_gradients_twice():
    """DistributedDataParallel's buckets (gradient_as_bucket_view=False): only where there are other ranks."""
    one, several = (fine_tuned_ddp(dp) for dp in (1, 4))
    assert one.memory_phases["reduction of gradients"]["workspace"] == 0
    held = several.memory_phases["reduction of gradients"]
    assert held["workspace"] == held["gradients"] > 0


def fine_tuned_ddp(dp):
    plan = tc.Plan(dp=dp, zero=0, recompute="full", **PURE)
    return tc.estimate(MISTRAL, "dgx-a100", plan, gbs=dp, assumptions="huggingface-eager")
