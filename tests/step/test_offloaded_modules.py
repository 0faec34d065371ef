"""Fine-grained offloading of activations: the inputs of modules, in a pipeline as well (Megatron-Core)."""

import pytest

import traincast as tc
from traincast.core.plan import Plans
from traincast.operations.offload import MODULES, offloaded_bytes
from traincast.operations.transformer import parts
from traincast.step.arguments import check_assumptions

MIB = 2**20
STACK = "megatron-core-2025"
ATTENTION = "core_attn+attn_proj"


def moved(model, offload, **knobs):
    """Bytes that one layer offloads of a sequence of 8,192 tokens."""
    plan = Plans(offload=offload, **knobs)
    layers = parts(tc.load_model(model), plan, check_assumptions(None, STACK, (), {}))
    kind = "moe" if "moe" in layers else "dense"
    return offloaded_bytes(layers[kind], plan)


@pytest.mark.parametrize(
    ("modules", "expected"),
    # llama-3-8b by hand: 8,192 tokens of 4,096 numbers in 2 bytes are 64 MiB; keys and values have a quarter
    [
        ("attn_norm", 64),
        ("qkv_linear", 64),
        ("core_attn", 64 + 2 * 16 + 1),  # queries, keys, values; 32 statistics of a token in 4 bytes
        (ATTENTION, 64 + 2 * 16 + 1 + 64),
        ("mlp_norm", 64),
        ("expert_fc1", 0),
    ],
)
def test_a_module_offloads_its_input(modules, expected):
    assert moved("llama-3-8b", modules) == expected * MIB


def test_experts_offload_what_they_are_given():
    """qwen3-30b-a3b: 8 experts of a token take 2,048 numbers each, their activation two times 768."""
    tokens = 4096 * 8
    assert tc.load_model("qwen3-30b-a3b").seq % 4096 == 0
    per_sequence = tc.load_model("qwen3-30b-a3b").seq // 4096
    assert moved("qwen3-30b-a3b", "expert_fc1") == per_sequence * tokens * 2048 * 2
    assert moved("qwen3-30b-a3b", "moe_act") >= per_sequence * tokens * 2 * 768 * 2


def test_what_is_recomputed_is_not_offloaded():
    assert moved("llama-3-8b", "core_attn", recompute="attention") < moved("llama-3-8b", "core_attn")
    assert set(MODULES) <= set(tc.Plan(offload="+".join(MODULES)).offload.split("+"))


def estimated(offload, **knobs):
    plan = tc.Plan(tp=2, pp=2, dp=2, mbs=2, offload=offload, **knobs)
    return tc.estimate("llama-3-8b", "dgx-h100", plan, gbs=64, assumptions=STACK)


def test_offloaded_modules_leave_the_memory_of_two_layers():
    """Of the first stage's 17 layers, as the head counts for two, and two micro-batches in flight.

    Each has two sequences, divided over two tensor ranks.
    """
    kept, offloaded = estimated("none"), estimated(ATTENTION)
    layer = 2 * (64 + 2 * 16 + 1 + 64) * MIB / 2  # two sequences
    difference = kept.memory["activations"] - offloaded.memory["activations"]
    assert difference == pytest.approx((17 * 2 - 2) * layer, rel=1e-6)
    assert offloaded.step_seconds >= kept.step_seconds
    assert estimated("none").memory.keys() == offloaded.memory.keys()


@pytest.mark.parametrize(
    ("offload", "message"),
    [
        ("attn_proj", "needs core_attn"),
        ("activations+core_attn", "leave out the names of modules"),
        ("attn_nrm", "attn_nrm"),
    ],
)
def test_what_does_not_go_together_is_refused(offload, message):
    with pytest.raises(tc.InputError, match=message):
        tc.Plan(offload=offload)


def test_a_search_finds_offloaded_modules_in_a_pipeline_and_counts_as_an_estimate():
    locks = {"offload": ["none", ATTENTION], "pp": 2, "tp": 2}
    found = tc.search("llama-3-8b", "dgx-h100", gpus=8, gbs=64, top=200, framework="megatron", locks=locks)
    offloading = [(plan, est) for plan, est in found.plans if plan.offload == ATTENTION]
    assert offloading
    plan, est = offloading[0]
    again = tc.estimate("llama-3-8b", "dgx-h100", plan, gbs=64, assumptions=est.assumptions)
    assert float(est.memory_bytes) == pytest.approx(float(again.memory_bytes), rel=1e-9)
    assert float(est.step_seconds) == pytest.approx(float(again.step_seconds), rel=1e-9)


def test_a_launch_with_offloaded_modules_is_written_and_read_back(tmp_path):
    est = estimated(ATTENTION)
    written = tc.export(est, "megatron")
    assert "--fine-grained-activation-offloading" in written.text
    assert "--offload-modules core_attn attn_proj" in written.text
    (path := tmp_path / "run.sh").write_text(written.text, encoding="utf-8")
    checked = tc.check(path, "dgx-h100")
    assert sorted(checked.est.plan.offload.split("+")) == ["attn_proj", "core_attn"]
    assert checked.est.memory_bytes == pytest.approx(est.memory_bytes)
    wrong = written.text.replace("--offload-modules core_attn attn_proj", "--offload-modules core_atn")
    path.write_text(wrong, encoding="utf-8")
    with pytest.raises(tc.InputError, match="--offload-modules = 'core_atn': must be one of"):
        tc.check(path, "dgx-h100")
