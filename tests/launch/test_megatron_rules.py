"""Launches that are written keep the rules that Megatron-Core 0.16.1 checks at its start."""

import re

import pytest

import traincast as tc
from traincast.launch.export import FORMATS, launch

MACHINE = tc.load_system("dgx-h100")


def written(model="llama-3-8b", system=MACHINE, stack=None, to="megatron", **knobs):
    plan = tc.Plan(**{"tp": 2, "dp": 8} | knobs)
    return launch(FORMATS[to], tc.load_model(model, seq=4096), plan, 64, system, stack=stack)


def flags(launched):
    """The arguments that a script gives, each with its value."""
    return {line.split()[0]: line.strip() for line in re.findall(r"(?m)^    (--.*)$", launched.text)}


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
