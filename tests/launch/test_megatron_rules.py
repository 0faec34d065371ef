"""Launches that are written keep the rules that Megatron-Core 0.19.2 checks at its start."""

import re
from pathlib import Path

import pytest

import traincast as tc
from traincast.launch.formats import FORMATS
from traincast.launch.write import launch

MACHINE = tc.load_system("dgx-h100")
DISTRIBUTED, AWARE = "--use-distributed-optimizer", "--use-precision-aware-optimizer"


def written(model="llama-3-8b", system=MACHINE, stack=None, to="megatron", **knobs):
    plan = tc.Plan(**{"tp": 2, "dp": 8} | knobs)
    return launch(FORMATS[to], tc.load_model(model, seq=4096), plan, 64, system, stack=stack)


def flags(launched):
    """The arguments that a script gives, each with its value."""
    return {line.split()[0]: line.strip() for line in re.findall(r"(?m)^    (--.*)$", launched.text)}


@pytest.mark.parametrize("knobs", [{"dp": 8}, {"dp": 1, "tp": 8}])
@pytest.mark.parametrize("choice", [{"offload": "optimizer"}, {"optimizer_kind": "adam-8bit"}])
def test_adam_aware_of_precision(choice, knobs):
    """megatron/training/arguments.py: an optimizer on the host needs the precision-aware one;
    megatron/core/optimizer/optimizer_config.py: this one needs the distributed one, on one rank as well."""
    launched = written(**choice, **knobs)
    assert launched.not_expressed == {}
    assert {DISTRIBUTED, AWARE} <= set(flags(launched))
    bridge = written(**choice, **knobs, to="megatron-bridge")
    assert "optimizer.use_precision_aware_optimizer=true" in bridge.text


@pytest.mark.parametrize(
    ("choice", "name"),
    [({"offload": "optimizer"}, "offload"), ({"optimizer_kind": "adam-bf16"}, "optimizer_kind")],
)
def test_adam_aware_of_precision_is_not_written_without_the_distributed_optimizer(choice, name):
    """megatron/core/optimizer/optimizer_config.py: use_precision_aware_optimizer."""
    launched = written(**choice, zero=0)
    assert "needs the distributed optimizer" in launched.not_expressed[name]
    assert not {AWARE, "--optimizer-cpu-offload", "--exp-avg-dtype"} & set(flags(launched))


@pytest.mark.parametrize(("every", "moved"), [(1, 31), (2, 16)])
def test_fewer_layers_than_there_are_are_offloaded(every, moved):
    """megatron/core/transformer/transformer_config.py: cpu_offloading_num_layers < num_layers (32)."""
    launched = written(offload="activations", offload_every=every)
    assert flags(launched)["--cpu-offloading-num-layers"].endswith(f" {moved}")
    assert launched.not_expressed == {}


@pytest.mark.parametrize("recompute", ["full", "norms+attention"])
def test_nothing_is_recomputed_beside_offloaded_activations(recompute):
    """megatron/core/transformer/transformer_config.py: cpu_offloading and recompute_granularity."""
    launched = written(offload="activations", recompute=recompute)
    assert "--recompute-granularity" not in flags(launched)
    assert "recompute" in launched.not_expressed


def test_searches_with_offloaded_activations_recompute_nothing():
    found = tc.search(
        "llama-3-8b", MACHINE, gpus=8, gbs=64, framework="megatron", locks={"offload": "activations"}
    )
    assert {plan.recompute for plan, _ in found.plans} == {"none"}


def test_megatron_deepspeed_offloads_what_it_recomputes(tmp_path):
    """Megatron-DeepSpeed 4efb479, arguments.py: --checkpoint-in-cpu moves what recomputation saves."""
    further = ("--bf16", "--deepspeed", "--zero-stage 1", "--checkpoint-activations", "--checkpoint-in-cpu")
    text = written().text.replace("--bf16\n", "\n    ".join((*further, "")))
    (path := tmp_path / "run.sh").write_text(text, encoding="utf-8")
    checked = tc.check(path, MACHINE, accept_unread=True)
    assert (checked.est.plan.recompute, checked.est.plan.offload) == ("full", "activations")
    assert not any("refuses this launch" in line for line in checked.reading.assumed)


@pytest.mark.parametrize("zero", [2, 3])
def test_megatron_fsdp_has_what_it_requires(zero):
    """docs/discussions/megatron-fsdp-user-guide/megatron-fsdp-user-guide.md, required configurations."""
    launched = written(zero=zero)
    required = {"--use-megatron-fsdp", "--no-gradient-accumulation-fusion", DISTRIBUTED, "--ckpt-format"}
    assert required <= set(flags(launched))
    assert launched.not_expressed == {}
    bridge = written(zero=zero, to="megatron-bridge")
    assert "model.gradient_accumulation_fusion=false" in bridge.text
    assert bridge.not_expressed == {}


@pytest.mark.parametrize(("zero", "sharded"), [(0, False), (1, True), (2, False)])
@pytest.mark.parametrize("to", ["megatron", "megatron-bridge"])
def test_the_distributed_optimizer_shards_the_state_of_muon_which_overlaps_nothing(zero, sharded, to):
    """megatron/training/arguments.py of 0.19.2, emerging optimizer check: dist_muon is deprecated."""
    launched = written(zero=zero, optimizer_kind="muon", to=to)
    assert re.search(r"--optimizer muon$|optimizer.optimizer=muon$", launched.text, re.MULTILINE)
    assert bool(re.search(r"use.distributed.optimizer", launched.text)) == sharded
    assert not re.search(r"overlap.(grad|param)|fsdp\b", launched.text)
    assert set(launched.not_expressed) == {"dp_overlap", *(["zero"] if zero == 2 else [])}
    assert written(zero=min(zero, 1), optimizer_kind="muon", dp_overlap=False, to=to).not_expressed == {}


def test_sgd_is_not_sharded():
    """megatron/core/optimizer/distrib_optimizer.py: only Adam and the optimizer on the host are supported."""
    launched = written(optimizer_kind="sgd")
    assert not {DISTRIBUTED, "--overlap-param-gather"} & set(flags(launched))
    assert "zero" in launched.not_expressed


@pytest.mark.parametrize(
    ("knobs", "dispatcher"),
    [({}, "alltoall"), ({"ep": 8}, "flex"), ({"etp": 2}, "flex"), ({"tp": 1, "ep": 8}, "flex")],
)
def test_the_fused_dispatcher_has_several_ranks(knobs, dispatcher):
    """megatron/core/transformer/moe/token_dispatcher.py: flex requires TP of experts x EP > 1."""
    launched = written("mixtral-8x7b", stack="megatron-core-deepep", **knobs)
    assert flags(launched)["--moe-token-dispatcher-type"].endswith(f" {dispatcher}")
    assert ("--moe-flex-dispatcher-backend" in flags(launched)) == (dispatcher == "flex")


@pytest.mark.parametrize(("name", "topk"), [("llama-4-scout", 1), ("mixtral-8x7b", 2)])
def test_of_one_expert_the_softmax_comes_first(name, topk):
    """megatron/core/transformer/transformer_config.py: moe_router_topk 1 needs moe_router_pre_softmax."""
    launched = flags(written(name, ep=8))
    assert launched["--moe-router-topk"].endswith(f" {topk}")
    assert ("--moe-router-pre-softmax" in launched) == (topk == 1)


@pytest.mark.parametrize(("system", "grouped"), [("dgx-v100", False), ("dgx-a100", True), ("dgx-h100", True)])
def test_experts_in_one_kernel_need_ampere(system, grouped):
    """megatron/training/arguments.py: moe_grouped_gemm needs compute capability 8, which a V100 lacks;
    transformer_config.py: recomputation of moe_act needs moe_grouped_gemm."""
    knobs = {"ep": 8, "precision": "fp16", "recompute": "activation+norms"}
    launched = written("mixtral-8x7b", tc.load_system(system), **knobs)
    assert ("--moe-grouped-gemm" in flags(launched)) == grouped
    assert ("moe_act" in launched.text) == grouped
    assert ("compute capability 8" in launched.not_expressed.get("grouped_gemm", "")) is not grouped


def test_overlapped_experts_have_16_bits():
    """megatron/core/transformer/transformer_config.py: overlap_moe_expert_parallel_comm has bf16 or fp16."""
    for precision, overlaps in (("bf16", True), ("fp16", True), ("fp32", False)):
        launched = written("mixtral-8x7b", ep=8, ep_overlap=True, precision=precision)
        assert ("--overlap-moe-expert-parallel-comm" in flags(launched)) is overlaps


GATED_DELTA = (Path(__file__).parent / "scripts/gated_delta.sh").read_text(encoding="utf-8")


def checked_with(folder, text, *further):
    """The check of a script with further arguments, which nothing is searched for."""
    (path := folder / "run.sh").write_text(f"{text.rstrip()} {' '.join(further)}\n", encoding="utf-8")
    return tc.check(path, "dgx-h100")


def refusals(checked):
    return [line for line in checked.reading.assumed if "refuses this launch" in line]


@pytest.mark.parametrize(
    ("further", "refused"),
    [
        (("--context-parallel-size 2", "--cp-comm-type a2a"), False),
        (("--context-parallel-size 2", "--cp-comm-type p2p"), False),
        (("--context-parallel-size 8", "--tensor-model-parallel-size 2"), False),
        (("--context-parallel-size 4", "--tensor-model-parallel-size 8"), True),
    ],
)
def test_a_delta_net_with_context_parallelism_is_no_misread_launch(further, refused, tmp_path):
    """megatron/core/transformer/transformer_config.py, tp_cp_size: it divides 16 heads of keys; the parser of
    0.19.2 accepts the first three and refuses the last."""
    if refused:  # and so does every plan: 32 ranks are more than there are
        further = (*further, "--global-batch-size 16")
        text = GATED_DELTA.replace("--nnodes 2", "--nnodes 4")
    else:
        text = GATED_DELTA
    assert [line for line in refusals(checked_with(tmp_path, text, *further)) if "delta net" in line] == (
        [
            "Megatron-LM refuses this launch; the answer is as if it ran: in Megatron-Core tp × cp divides"
            " the heads of keys and of values of the gated delta net (tp = 8, cp = 4)"
        ]
        if refused
        else []
    )


def test_the_gated_norm_of_a_delta_net_is_recomputed(tmp_path):
    """megatron/core/ssm/gated_delta_net/common.py, _gated_norm_and_a2a: the input of the output projection is
    made again: 32 heads of 128 elements of 2 bytes for each of 32,768 tokens of a rank, in 9 of 12 layers."""
    further = ("--recompute-granularity selective", "--recompute-modules")
    without = checked_with(tmp_path, GATED_DELTA, *further, "layernorm").est
    checked = checked_with(tmp_path, GATED_DELTA, *further, "layernorm gdn_norm_out").est
    assert checked.plan.recompute == "gdn_norm_out+norms"
    freed = without.memory["activations"] - checked.memory["activations"]
    assert freed == pytest.approx(9 * 32768 * 32 * 128 * 2)
    assert (
        0
        < checked.breakdown["recomputation"] - without.breakdown["recomputation"]
        < 0.02 * checked.step_seconds
    )


def test_the_gated_norm_is_written_for_a_delta_net_only():
    """megatron/core/transformer/transformer_config.py: gdn_norm_out needs gated_delta_net."""
    launched = written(recompute="gdn_norm_out+attention")
    assert flags(launched)["--recompute-modules"].endswith(" core_attn")
    assert "recompute" in launched.not_expressed


def test_recomputed_experts_beside_their_overlap_are_refused(tmp_path):
    """megatron/core/transformer/transformer_config.py: disable moe in recompute_modules, since 0.17."""
    launched = written("mixtral-8x7b", ep=8, ep_overlap=True, recompute="experts")
    assert "--overlap-moe-expert-parallel-comm" not in flags(launched)
    assert "recomputation of experts" in launched.not_expressed["ep_overlap"]
    beside = written("mixtral-8x7b", ep=8, ep_overlap=True).text.replace(
        "--overlap-moe-expert-parallel-comm",
        "--overlap-moe-expert-parallel-comm --recompute-granularity selective --recompute-modules moe",
    )
    (line,) = refusals(checked_with(tmp_path, beside))
    assert "recomputation of experts" in line


@pytest.mark.parametrize(
    ("further", "refused"),
    [
        (("--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl te"), True),
        (("--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl native"), False),
        (("--cross-entropy-fusion-impl te",), False),
    ],
)
def test_the_fused_loss_of_transformer_engine_is_refused(further, refused, tmp_path):
    """megatron/training/arguments.py of 0.19.2, line 1643: disabled due to stability issues."""
    assert bool(refusals(checked_with(tmp_path, GATED_DELTA, *further))) is refused


AWARE_FLAGS = {
    (): (4, 8),
    (AWARE,): (2, 8),
    (AWARE, "--exp-avg-dtype bf16", "--exp-avg-sq-dtype bf16"): (2, 4),
    (AWARE, "--exp-avg-dtype fp8", "--exp-avg-sq-dtype fp8"): (2, 2),
    (AWARE, "--fp8-format hybrid"): (2, 8),
    (AWARE, "--fp8-format e4m3", "--fp8-recipe blockwise"): (4, 8),
    (AWARE, "--use-megatron-fsdp", "--data-parallel-sharding-strategy optim_grads"): (4, 8),
}


@pytest.mark.parametrize("further", AWARE_FLAGS, ids=" ".join)
def test_the_master_copy_of_the_precision_aware_optimizer_is_not_misread(further, tmp_path):
    """Transformer Engine 2.20.2, pytorch/optimizers/fused_adam.py, store_param_remainders: 16 bits of the
    master copy beside bf16 weights. megatron/core/optimizer/optimizer_config.py: not where a recipe scales
    weights; megatron_fsdp has the copy itself."""
    checked = checked_with(tmp_path, written(tp=1).text, *further)
    master, moments = AWARE_FLAGS[further]
    parameters = checked.est.model.parameters
    assert checked.est.memory["optimizer"] == pytest.approx((master + moments) * parameters / 8, rel=1e-3)
    again = launch(FORMATS["megatron"], checked.est.model, checked.est.plan, 64, MACHINE)
    assert (AWARE in again.text) is (AWARE in further)
    assert not {"optimizer_kind", "master_copy"} & set(again.not_expressed)


def test_optimizer_memory_of_llama_3_on_eight_ranks():
    """6 + 6/8, 8 + ... bytes: (2 + moments) / 8 of 8.03e9 parameters are 9.35, 5.61 and 3.74 GiB."""
    sizes = {
        ("adam", "usual"): 11.22, ("adam", "remainder"): 9.35, ("adam-bf16", "usual"): 5.61,
        ("adam-8bit", "usual"): 3.74, ("adam-8bit", "remainder"): 3.74, ("adam-8bit", "fp32"): 5.61,
    }  # fmt: skip
    for (kind, copy), size in sizes.items():
        plan = tc.Plan(dp=8, optimizer_kind=kind, master_copy=copy)
        est = tc.estimate("llama-3-8b", "dgx-h200", plan, gbs=64)
        assert est.memory["optimizer"] / 2**30 == pytest.approx(size, abs=0.01)


def test_adam_of_other_frameworks_has_whole_master_copies():
    """Their optimizers are bitsandbytes' or PyTorch's, which store 4 bytes; so does Adam on the host."""
    plan = tc.Plan(dp=8, zero=1, optimizer_kind="adam-8bit")
    for stack in ("deepspeed-2025", "torchtitan-2025", "nanotron-2025", "megatron-core-2024"):
        est = tc.estimate("llama-3-8b", "dgx-h200", plan, gbs=64, assumptions=stack)
        assert est.memory["optimizer"] / 2**30 == pytest.approx(6 / 8 * 8.03e9 / 2**30, rel=1e-3)


MOMENTS_IN_BF16 = ("optimizer.exp_avg_dtype=torch.bfloat16", "optimizer.exp_avg_sq_dtype=torch.bfloat16")


@pytest.mark.parametrize(
    ("further", "stored"),
    [
        ((), "remainder"),
        (("optimizer.store_param_remainders=true",), "remainder"),
        (("optimizer.store_param_remainders=false",), "usual"),
        (("optimizer.optimizer_cpu_offload=true",), "usual"),
        (MOMENTS_IN_BF16, "usual"),
        ((*MOMENTS_IN_BF16, "optimizer.store_param_remainders=false"), "fp32"),
    ],
)
def test_whole_master_copies_of_megatron_bridge_are_no_misread(further, stored, tmp_path):
    """megatron/core/optimizer/optimizer_config.py: store_param_remainders is True unless it is set."""
    text = written(master_copy="remainder", to="megatron-bridge").text
    plan = checked_with(tmp_path, text, *further).est.plan
    assert plan.optimizer_kind == ("adam-bf16" if MOMENTS_IN_BF16[0] in further else "adam")
    assert plan.master_copy == stored


@pytest.mark.parametrize("framework", ["torchtitan", "deepspeed", "nanotron", "fsdp", "huggingface"])
def test_a_remainder_of_the_master_copy_is_of_megatron(framework):
    """Megatron-Core 0.19.2, megatron/core/optimizer/optimizer_config.py; the others' settings have none."""
    asked = {"gpus": 8, "gbs": 64, "locks": {"master_copy": "remainder", "pp": 1, "tp": 1}}
    found = tc.search("llama-3-8b", MACHINE, framework="megatron", **asked)
    assert {plan.master_copy for plan, _ in found.plans} == {"remainder"}
    with pytest.raises(tc.InputError, match="has no setting that stores a remainder of the master copy"):
        tc.search("llama-3-8b", MACHINE, framework=framework, **asked)
