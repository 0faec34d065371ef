"""Launches that are written keep the rules that Megatron-Core 0.19.2 checks at its start."""

import re

import pytest

import traincast as tc
from traincast.launch.export import FORMATS, launch

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
    assert not any("should refuse" in line for line in checked.reading.assumed)


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


@pytest.mark.parametrize(("zero", "name"), [(0, "muon"), (1, "dist_muon"), (2, "muon")])
@pytest.mark.parametrize("to", ["megatron", "megatron-bridge"])
def test_muon_shards_its_state_itself_and_overlaps_nothing(zero, name, to):
    """megatron/training/arguments.py, Muon optimizer check; layer_wise_optimizer.py is that of dist_muon."""
    launched = written(zero=zero, optimizer_kind="muon", to=to)
    assert re.search(rf"--optimizer {name}$|optimizer.optimizer={name}$", launched.text, re.MULTILINE)
    assert not re.search(r"distributed.optimizer|overlap.(grad|param)|fsdp\b", launched.text)
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
