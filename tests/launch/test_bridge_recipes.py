"""Recipes of Megatron-Bridge that fine-tune: the documents they pack, and the software that they run."""

import pytest

from traincast.launch.checks import check

# Begins as recipes/qwen/h100/qwen3.py of megatron-bridge 0.6.0 does.
RECIPE = """
from megatron.bridge import AutoBridge
from megatron.bridge.recipes.common import _{common}_common
def {model}_sft_4gpu_h100_bf16_config():
    cfg = _{common}_common()
    cfg.model = AutoBridge.from_hf_pretrained("{checkpoint}").to_megatron_provider(load_weights=False)
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.pipeline_model_parallel_size = 1
    cfg.model.seq_length = 2048
    cfg.train.global_batch_size = 32
    cfg.train.micro_batch_size = 1
    cfg.model.cuda_graph_impl = "none"
    {line}
    return cfg
"""
SQUAD = "packed documents have 200 tokens"


@pytest.fixture
def checked(tmp_path):
    """Return the check of a recipe, which is `RECIPE` with some parts changed."""

    def check_recipe(lengths=None, **parts):
        usual = {"common": "sft", "model": "qwen3_8b", "checkpoint": "Qwen/Qwen3-8B", "line": ""}
        path = tmp_path / "qwen3.py"
        path.write_text(RECIPE.format(**usual | parts), encoding="utf-8")
        return check(path, "dgx-h100", gpus=4, lengths=lengths)

    return check_recipe


def test_a_recipe_without_a_fused_rotation_waits_for_each_packed_document(checked):
    """Ten documents of 200 tokens in 2,048, in every layer and micro-batch."""
    found = checked()
    assumed = found.est.assumptions
    assert assumed.name == "megatron-bridge-2026+graphs=none+kernels=unfused-rotation"
    assert any(note.startswith(SQUAD) for note in found.reading.assumed)
    documents = 32 * 36 * 2048 / 200  # micro-batches, layers of Qwen3-8B, documents of a sequence
    assert found.est.step.host > documents * 0.7 * assumed.host.rotation_seconds
    assert any("lengths of packed documents" in part for part in found.est.uncertain_of)
    assert any("the host's pace" in part for part in found.est.uncertain_of)


def test_lengths_that_are_given_take_the_place_of_those_assumed(checked):
    """One document fills a sequence: a tenth of the documents, which are stated."""
    found = checked(lengths="2048")
    assert not any(note.startswith(SQUAD) for note in found.reading.assumed)
    assert found.est.step.host < 0.6 * checked().est.step.host
    assert not any("lengths of packed documents" in part for part in found.est.uncertain_of)


@pytest.mark.parametrize(
    "parts",
    [
        {"line": "cfg.model.apply_rope_fusion = True"},
        {"model": "llama3_8b", "checkpoint": "meta-llama/Meta-Llama-3-8B"},  # models/llama/llama_bridge.py
    ],
)
def test_a_fused_rotation_takes_one_kernel_for_all_documents(checked, parts):
    found = checked(**parts)
    assert found.est.assumptions.name == "megatron-bridge-2026+graphs=none"
    assert found.est.assumptions.host.rotation_seconds == 0


def test_pretraining_packs_no_documents(checked):
    """Its rotation is issued once for a micro-batch, which does not wait for it."""
    found = checked(common="pretrain")
    assert found.est.model.documents is None
    assert found.est.assumptions.host.rotation_seconds > 0
    assert not any(note.startswith(SQUAD) for note in found.reading.assumed)
    assert sum(t.forward.idle for t in found.est.timed["dense"]) == 0
