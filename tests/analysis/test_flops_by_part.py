"""FLOPs by part: sums against the counts by convention and the model's parameters, parts against hand
arithmetic.
"""

import json
from pathlib import Path

import pytest

import traincast as tc
from traincast.analysis.part_flops import flops_by_part

HYBRID = Path(__file__).parents[2] / "examples" / "nemotron-3-nano" / "config.json"
MTP = "multi-token prediction"
COUNTED = json.loads(
    (HYBRID.parents[2] / "tests" / "data" / "transformers_counts.json").read_text(encoding="utf-8")
)
SPARSE = ("deepseek_v32", "deepseek_v4", "switch_transformers")  # with an indexer, streams, two stacks


def forward(result, convention):
    """FLOPs of the parts that have any."""
    return {row.part: row.forward_flops[convention] for row in result.parts if row.forward_flops[convention]}


@pytest.mark.parametrize("name", [*tc.model_names(), str(HYBRID)])
def test_parts_add_up_to_the_counts_by_convention_and_to_the_parameters(name):
    result = flops_by_part(name)
    model = result.model
    # A classifier, 2 FLOP for each weight and sequence, is no product of an operation.
    classifier = 6 * (model.classes or 0) * model.hidden / model.seq
    for row in result.totals:
        left_out = classifier if row.convention.startswith("megatron") else 0
        expected = tc.model_flops_per_token(model, row.convention) - left_out
        assert row.token == pytest.approx(expected, rel=1e-12)
        assert row.token == pytest.approx(row.forward + row.backward, rel=1e-12)
        assert row.sequence == pytest.approx(row.token * model.seq, rel=1e-12)
    parts = [part for part in result.parts if part.part != MTP]
    assert sum(part.parameters for part in parts) == model.parameters
    assert sum(part.active_parameters for part in parts) == model.active_parameters


@pytest.mark.parametrize("model_type", SPARSE)
def test_parts_of_sparse_models_add_up(model_type, tmp_path):
    """Indexers, whose scores have no backward pass, copies of the residual stream, experts in both stacks."""
    path = tmp_path / "config.json"
    fields = next(entry["config"] for entry in COUNTED if entry["config"]["model_type"] == model_type)
    path.write_text(json.dumps(fields), encoding="utf-8")
    test_parts_add_up_to_the_counts_by_convention_and_to_the_parameters(str(path))


def test_gpt3_175b_by_hand():
    """96 layers of width 12288, 4 of it wide inside: 24 h² FLOP forward a token and layer, of which 16 in the
    MLP, and 4 s h for scores in full.
    """
    result = flops_by_part("gpt3-175b", seq=2048)
    model, layers, h, s = result.model, 96, 12288, 2048
    assert (model.layers, model.hidden, model.ffn, model.causal) == (layers, h, 4 * h, False)
    head = {} if model.vocab is None else {"head": 2 * model.vocab * h}
    by_hand = {
        "attention projections": layers * 8 * h**2,
        "attention scores": layers * 4 * s * h,
        "MLP": layers * 16 * h**2,
        **head,
    }
    assert forward(result, "megatron-full") == pytest.approx(by_hand, rel=1e-12)
    (full,) = (row for row in result.totals if row.convention == "megatron-full")
    assert full.mlp_to_attention == pytest.approx(16 * h / (8 * h + 4 * s), rel=1e-12)


def test_a_mixture_of_experts_by_hand():
    """Mixtral 8x7B: 32 layers of width 4096, 32 heads of 128 with 8 of keys and values, 2 of 8 experts of
    3 matrices of 4096 x 14336.
    """
    result = flops_by_part("mixtral-8x7b", seq=4096)
    layers, h, f, s, vocab = 32, 4096, 14336, 4096, 32000
    by_hand = {
        "attention projections": layers * 2 * (2 * h * h + 2 * h * 1024),
        "attention scores": layers * 4 * h * (s + 1) / 2,
        "experts": layers * 2 * 2 * 3 * h * f,
        "head": 2 * vocab * h,
    }
    assert forward(result, "megatron") == pytest.approx(by_hand, rel=1e-12)
    weights = {row.part: (row.parameters, row.active_parameters) for row in result.parts}
    assert weights["experts"] == (layers * 8 * 3 * h * f, layers * 2 * 3 * h * f)
    assert weights["router"] == (layers * 8 * h,) * 2


def test_intensity_of_a_matmul_by_hand():
    """Llama 3 8B: fc2 multiplies 8192 x 14336 by 14336 x 4096 and moves all three matrices in 16 bits."""
    (fc2,) = (row for row in flops_by_part("llama-3-8b").matmuls if row.operation == "mlp.fc2")
    m, k, n = 8192, 14336, 4096
    assert fc2.forward_intensity == pytest.approx(m * n * (2 * k - 1) / (2 * (m * k + k * n + m * n)))


def test_a_sequence_of_no_token_is_refused():
    with pytest.raises(tc.InputError, match="seq"):
        flops_by_part("gpt3-175b", seq=0)
