"""Encoder-decoders, and parts that few models have: counts by hand, and weights of operations against the
parameters of the model.
"""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import traincast as tc
from traincast.analysis.part_flops import flops_by_part
from traincast.catalog.software_stacks import calibrated
from traincast.core.errors import InputError
from traincast.core.plan import Plan, Plans
from traincast.model.blocks import Encoder, Experts, Local, OwnWidth, Shape
from traincast.model.model import Model
from traincast.operations.operation import Gemm, Operation, total
from traincast.operations.transformer import layer, parts
from traincast.step.pipeline_stages import contents, devices

HF = Path(__file__).parents[1] / "data" / "hf"
ASSUMED = calibrated().with_values({"memory.vocab_multiple": 1, "attention.causal_skipping": 0.0})
T5 = tc.load_model(HF / "t5-small.json")
WHISPER = tc.load_model(HF / "whisper-tiny.json")
SMALL = Model(
    name="small", layers=4, hidden=64, heads=4, ffn=128, seq=32, vocab=1000, causal=True, norm="rmsnorm"
)
RARE = {
    "t5": T5,
    "bart": tc.load_model(HF / "bart-large.json"),
    "whisper": WHISPER,
    "encoder of its own shape": replace(SMALL, encoder=Encoder(seq=48, layers=1, heads=2, ffn=96)),
    "encoder with a window": replace(SMALL, encoder=Encoder(seq=48, layers=1, window=9, small_weights=7)),
    "experts in both stacks": replace(
        SMALL,
        encoder=Encoder(seq=48, layers=2),
        experts=Experts(experts=4, topk=1, ffn=128),
        layer_kinds=("encoder dense", "encoder moe", "decoder moe", "decoder dense"),
    ),
    "decoder alone": replace(SMALL, encoder=Encoder(seq=48, width=32), biases=("qv", "proj", "mlp")),
    "layers that attend to an encoder alone": replace(
        SMALL,
        encoder=Encoder(seq=48, width=32, qk_norm=True),
        kv_heads=2,
        layer_kinds=("dense", "cross dense"),
    ),
    "own width": replace(SMALL, own_width=OwnWidth(width=16), tied=True, head_transform=True),
    "own widths": replace(
        SMALL, own_width=OwnWidth(width=16, head_width=24, bias=False, wide_positions=True)
    ),
    "inner norms": replace(SMALL, inner_norms=True, final_norm=False, small_weights=3, small_end_weights=5),
    "shared layers": replace(SMALL, shared_layers=True),
    "backbone": replace(SMALL, head=False, tied=True, own_width=OwnWidth(width=16)),
    "keys are values": replace(SMALL, keys_are_values=True, kv_heads=2),
    "a gate for each head": replace(SMALL, attention_gate=True, gate_per_head=True),
    "experts with a norm": replace(SMALL, experts=Experts(experts=4, topk=2, ffn=32, result_norm=True)),
    "shapes": replace(
        SMALL,
        qk_norm="head",
        biases=("qkv",),
        kv_heads=2,
        layer_kinds=("dense", "dense @narrow", "attention only @reusing", "dense only @narrow"),
        shapes=(
            Shape(name="narrow", heads=4, kv_heads=2, head_dim=8, ffn=48),
            Shape(name="reusing", reuses_keys=True),
        ),
    ),
    "beside": replace(SMALL, beside=((64, 8), (8, 64)), beside_layers=((64, 32),), small_weights=64),
    "experts of another width": replace(
        SMALL, experts=Experts(experts=4, topk=2, ffn=32, width=16, shared_ffn=48), biases=("mlp",)
    ),
    "local heads": replace(
        SMALL, local=Local(window=8, global_every=2, kv_heads=2, head_dim=32, value_dim=16, sinks=True)
    ),
}


def operations(model: Model, plan: Plans | None = None) -> list[tuple[int, Operation]]:
    """All operations of a model, each with the number of times it runs."""
    plan = Plans() if plan is None else plan
    counted = Counter(map(str, model.pattern)) + Counter({"embedding": 1, "head": 1})
    counted += Counter({"decoder embedding": int(model.encodes)})
    by_part = parts(model, plan, ASSUMED)
    return [(n, op) for part, n in counted.items() for op in by_part[part]]


def forward_flops(model: Model) -> float:
    """Products of the forward pass, 2 FLOP for a multiplication and an addition."""
    return sum(
        2 * n * gemm.batch * gemm.m * gemm.k * gemm.n
        for n, op in operations(model)
        for gemm in op.forward.kernels
        if isinstance(gemm, Gemm)
    )


@pytest.mark.parametrize("name", RARE)
def test_weights_of_operations_are_the_parameters(name: str) -> None:
    assert total(n * op.weights for n, op in operations(RARE[name])) == RARE[name].parameters


@pytest.mark.parametrize("name", RARE)
def test_flops_of_operations_are_those_of_the_convention(name: str) -> None:
    model = RARE[name]
    expected = tc.model_flops_per_token(model, "megatron-full") * model.seq / 3
    router = 0 if model.experts is None else 2 * model.hidden * model.experts.experts  # in no convention
    routed = sum(model.for_kind(kind).seq for kind in model.pattern if kind.moe)
    assert forward_flops(model) == pytest.approx(expected + routed * router, rel=1e-12)


@pytest.mark.parametrize("name", RARE)
def test_tensor_ranks_share_the_weights_of_products(name: str) -> None:
    """Two ranks together have every product's weights once, but those of narrow layers twice."""
    whole, half = operations(RARE[name]), operations(RARE[name], Plan(tp=2).columns())
    for (_, op), (_, part) in zip(whole, half, strict=True):
        if op.weight is not None and op.name.partition(".")[0] in ("attention", "cross", "mlp"):
            assert 2 * part.weights == op.weights, op.name


def test_t5_small_by_hand() -> None:
    """6 + 6 layers of width 512 and 8 heads of 64, an MLP of 2048, sequences of 512 tokens on both sides.

    A layer has 4 matrices of attention and 2 of the MLP, a decoder's layer 4 more; both sides score all
    pairs, the decoder also those with the encoder.
    """
    e, f, s, vocab = 512, 2048, 512, 32128
    encoder = s * 2 * (4 * e * e + 2 * e * f) + 4 * s * s * e
    decoder = s * 2 * (8 * e * e + 2 * e * f) + 2 * 4 * s * s * e
    assert forward_flops(T5) == 6 * (encoder + decoder) + 2 * s * e * vocab
    assert [str(kind) for kind in T5.kinds] == ["encoder dense", "decoder dense"]


def test_whisper_embeds_sound_by_two_convolutions() -> None:
    """3,000 frames of 80 values, then 1,500 of width 384: three frames to each result."""
    products = {
        op.name: [(gemm.m, gemm.k, gemm.n) for gemm in op.forward.kernels if isinstance(gemm, Gemm)]
        for op in parts(WHISPER, Plans(), ASSUMED)["embedding"]
    }
    assert products["embedding.conv1"] == [(3000, 240, 384)]
    assert products["embedding.conv2"] == [(1500, 1152, 384)]


def test_keys_of_attention_to_the_encoder_are_gathered_and_saved_once() -> None:
    """With 2 tensor ranks and sequence parallelism each gathers the 512 tokens in every layer."""
    plan = Plan(tp=2, sp=True).columns()
    decoder = layer(T5, plan, ASSUMED, T5.last_kind)
    (to_kv,) = (op for op in decoder if op.name == "cross.kv")
    (gather,) = to_kv.forward.collectives
    assert (gather.kind, gather.nbytes, gather.over) == ("all-gather", 2 * 512 * 512, "tp")
    assert 6 * to_kv.saved_bytes == to_kv.passed_bytes == 2 * 512 * 512 / 2


def test_stages_hold_the_embedding_where_they_use_it() -> None:
    """Four stages of T5, the last with the head alone; the second has a copy of the embedding's matrix."""
    first, second, third, last = contents(T5, 4, 1)
    assert (first["embedding"], first["encoder dense"]) == (1, 4)
    assert (second["encoder dense"], second["decoder dense"], second["decoder embedding"]) == (2, 2, 1)
    assert (second["tied"], third["tied"], last["tied"], last["head"]) == (1, 0, 1, 1)
    one, two = (device.stored_parts for device in devices(T5, 2, 1, layout="6,6"))
    assert (one.get("tied"), two["tied"]) == (None, 1)  # of the decoder's embedding and the head


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"layers": 4}, "encoder.layers = 6: must be at least 0 and below layers = 4"),
        ({"parallel": True, "norms": 1}, "parallel: not modelled in a model with an encoder"),
        ({"layer_kinds": ("decoder dense",)}, "layer_kinds: must name the encoder's layers"),
        ({"experts": Experts(experts=4, topk=1, ffn=64)}, "experts: beside an encoder, layer_kinds must"),
    ],
)
def test_contradictions_are_refused(change: dict[str, object], wrong: str) -> None:
    with pytest.raises(tc.InputError, match=wrong):
        replace(T5, **change)


def test_shared_layers_are_refused_in_a_pipeline() -> None:
    system = tc.load_system("dgx-h100")
    with pytest.raises(tc.InputError, match="layers with shared weights are not modelled in a pipeline"):
        tc.estimate(RARE["shared layers"], system, tc.Plan(pp=2, tp=1), gbs=8)


def test_context_parallelism_is_refused() -> None:
    system = tc.load_system("dgx-h100")
    with pytest.raises(tc.InputError, match="attention to an encoder is not modelled with context"):
        tc.estimate(T5, system, tc.Plan(cp=2, cp_kind="ring"), gbs=8)


@pytest.mark.parametrize("to", ["megatron", "torchtitan", "nanotron"])
@pytest.mark.parametrize(
    "name", ["t5", "decoder alone", "own width", "inner norms", "backbone", "local heads"]
)
def test_export_refuses_what_a_format_cannot_express(name: str, to: str) -> None:
    est = tc.estimate(RARE[name], tc.load_system("dgx-h100"), tc.Plan(dp=8), gbs=64)
    with pytest.raises(tc.InputError, match=f"cannot express the layers of {RARE[name].name}"):
        tc.export(est, to)


def test_the_encoder_costs_time_and_widens_the_interval() -> None:
    system = tc.load_system("dgx-h100")
    short, long = (
        tc.estimate(replace(T5, encoder=replace(T5.encoder, seq=seq)), system, tc.Plan(dp=8), gbs=64)
        for seq in (512, 1024)
    )
    assert long.step_seconds > short.step_seconds
    assert "encoder of 1,024 tokens" in long.model.title


def test_layers_with_shapes_by_hand() -> None:
    """e = 64, queries and output of 4 heads, keys and values of 2, of width 16; then 8, and an MLP of 48."""
    model = RARE["shapes"]
    e, norm = 64, 64
    full = e * (4 + 2 + 2 + 4) * 16 + (4 + 2 + 2) * 16 + 2 * 16 + 2 * e * 128 + 2 * norm
    narrow = e * (4 + 2 + 2 + 4) * 8 + (4 + 2 + 2) * 8 + 2 * 8 + 2 * e * 48 + 2 * norm
    reusing = e * (4 + 4) * 16 + 4 * 16 + 16 + norm  # queries and output alone; one norm, of queries
    assert model.layer_parameters() == full + narrow + reusing + 2 * e * 48 + norm


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"layer_kinds": ("dense @wide",)},
            "'wide' is missing; layer_kinds names layers that have it",
        ),
        (
            {"shapes": (Shape(name="wide", ffn=96),)},
            "no layer has 'wide'; name its layers in layer_kinds",
        ),
    ],
)
def test_shapes_and_layers_fit_each_other(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        replace(SMALL, **change)
    assert caught.value.problems == (f"shapes: {said}",)


def test_products_beside_the_blocks_are_a_part() -> None:
    """64 × 8 and 8 × 64 weights in each of 4 layers."""
    rows = {row.part: row.parameters for row in flops_by_part(RARE["beside"]).parts}
    assert rows["beside the blocks"] == 4 * 2 * 64 * 8
    assert sum(rows.values()) == RARE["beside"].parameters


def test_a_token_of_the_encoder_meets_its_window() -> None:
    """9 of 48 tokens; all of them without a window, and in the decoder those before."""
    near, far = (RARE[name] for name in ("encoder with a window", "encoder of its own shape"))
    met = {str(kind): near.for_kind(kind).attention_pairs(kind) for kind in near.kinds}
    assert met == {"encoder dense": 48 * 9, "decoder dense": 32 * 33 / 2}
    assert far.for_kind(far.pattern[0]).attention_pairs(far.pattern[0]) == 48 * 48


def test_stacks_have_experts_where_their_configuration_says(tmp_path: Path) -> None:
    """Of Switch, layers 1, 3, … of a stretch of 2; of NLLB-MoE, each 4th layer of both stacks."""
    switch = {"model_type": "switch_transformers", "d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4}
    switch |= {"num_layers": 4, "num_decoder_layers": 2, "num_sparse_encoder_layers": 2, "vocab_size": 1000}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(switch | {"num_sparse_decoder_layers": 2, "num_experts": 4}), "utf-8")
    words = [str(kind).split()[1] for kind in tc.load_model(path).pattern]
    assert words == ["dense", "moe", "dense", "moe", "moe", "moe"]
    nllb = {
        "model_type": "nllb-moe",
        "d_model": 64,
        "encoder_layers": 4,
        "decoder_layers": 5,
        "vocab_size": 1000,
    }
    nllb |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128}
    nllb |= {"vocab_size": 1000}
    path.write_text(json.dumps(nllb | {"decoder_ffn_dim": 128, "num_experts": 4}), "utf-8")
    words = [str(kind).split()[1] for kind in tc.load_model(path).pattern]
    assert words == ["dense", "dense", "dense", "moe"] * 2 + ["dense"]
    path.write_text(json.dumps(nllb | {"decoder_ffn_dim": 96, "num_experts": 4}), "utf-8")
    with pytest.raises(tc.InputError, match="encoder_ffn_dim = 128: cannot be represented; only 96 can"):
        tc.load_model(path)
