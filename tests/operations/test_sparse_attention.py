"""Attention to selected keys by hand: 64 tokens, 8 selected, 4 heads over latent vectors of 16 + 8."""

from dataclasses import replace
from typing import Any

import pytest

from traincast.catalog.software_stacks import calibrated
from traincast.core.errors import InputError
from traincast.core.plan import Plans
from traincast.model.blocks import Compressed, Experts, Indexer, Latent, Local
from traincast.model.model import Model
from traincast.operations.operation import Gemm, Operation, PassCount
from traincast.operations.transformer import layer

CALIBRATED = calibrated()
SEQ, TOPK = 64, 8
PAIRS = 8 * 9 // 2 + (64 - 8) * 8  # the first 8 tokens have 1 to 8 before them
LATENT = Latent(kv_rank=16, q_rank=24, nope_dim=12, rope_dim=8, value_dim=12)


def model_of(kinds: tuple[str, ...] = ("indexed dense",), **fields: Any) -> Model:
    """Return a model of layers with an indexer of 2 heads of 8."""
    sizes: dict[str, Any] = {"layers": len(kinds), "hidden": 32, "heads": 4, "ffn": 48, "seq": SEQ}
    parts: dict[str, Any] = {"latent": LATENT, "indexer": Indexer(heads=2, head_dim=8, topk=TOPK)}
    words: dict[str, Any] = {"norm": "rmsnorm", "biases": (), "dropout": False, "causal": True}
    return Model(name="m", layer_kinds=kinds, **sizes | parts | words | fields)


def operations(model: Model, plan: Plans | None = None) -> dict[str, Operation]:
    """Return the operations of the last layer by name."""
    return {op.name: op for op in layer(model, plan or Plans(), CALIBRATED, model.last_kind)}


def products(work: PassCount) -> float:
    """Count multiplications and additions of the products of a pass, two for each [FLOP]."""
    gemms = (kernel for kernel in work.kernels if isinstance(kernel, Gemm))
    return float(sum(2 * gemm.batch * gemm.m * gemm.k * gemm.n for gemm in gemms))


def test_pairs_are_those_of_selected_keys() -> None:
    model = model_of()
    assert model.attention_pairs(model.last_kind) == PAIRS
    assert model.attention_pairs(model.last_kind, masked=False) == SEQ * TOPK
    short = replace(model, seq=4)
    assert short.attention_pairs(short.last_kind) == 4 * 5 / 2


def test_attention_meets_latent_vectors() -> None:
    """Queries of 16 + 8 meet keys as wide and values of 16: for each pair 2 FLOP an element."""
    found = operations(model_of())
    assert products(found["attention.flash"].forward) == pytest.approx(2 * 4 * PAIRS * (24 + 16))
    assert products(found["attention.k_up"].forward) == 2 * SEQ * 4 * 12 * 16
    assert products(found["attention.v_up"].forward) == 2 * SEQ * 4 * 16 * 12
    # Queries, one latent vector for all heads, and two numbers for each row.
    assert found["attention.flash"].saved_bytes == 2 * SEQ * (4 * 24 + 24 + 2 * 4)


def test_the_indexer_scores_all_earlier_tokens() -> None:
    """2 heads of 8 over half of the pairs, the diagonal included."""
    score = operations(model_of())["attention.index_scores"]
    assert products(score.forward) == pytest.approx(2 * 2 * 8 * SEQ * (SEQ + 1) / 2)
    assert products(score.backward) == 0


def test_the_indexer_learns_from_attention_on_selected_keys() -> None:
    loss = operations(model_of())["attention.index_loss"]
    assert products(loss.forward) == pytest.approx(2 * 4 * PAIRS * 24)
    assert products(loss.backward) == pytest.approx(3 * 2 * 2 * 8 * PAIRS)


def test_traffic_of_the_indexer_by_hand() -> None:
    """64 queries of 2 heads of 8, keys of 8 and a weight for each head, in 16 bits; scores in fp32."""
    found = operations(model_of())
    narrow = 2 * (64 * 2 * 8 + 64 * 8 + 64 * 2)
    score = found["attention.index_scores"]
    keys, selected = (SEQ + 1) / 2, 64 * TOPK
    assert score.forward.nbytes == pytest.approx(narrow + 4 * (2 * 64 * keys + selected))
    assert score.forward.flops("vector") == pytest.approx(3 * 64 * 2 * keys)  # relu, weight and sum
    assert score.saved_bytes == narrow + 4 * selected
    loss = found["attention.index_loss"]
    attended = 2 * 64 * (4 + 1) * 24  # queries of 4 heads, and the latent vectors that they meet
    assert loss.forward.nbytes == pytest.approx(attended + 2 * 4 * PAIRS)
    assert loss.forward.flops("vector") == pytest.approx(4 * 4 * PAIRS)
    assert loss.backward.nbytes == pytest.approx(2 * narrow + 2 * 4 * PAIRS)
    assert loss.saved_bytes == pytest.approx(4 * PAIRS)
    turned = found["attention.index_rotary"]  # of 2 heads of queries and one of keys, read and written
    assert turned.forward.nbytes == turned.backward.nbytes == 2 * 2 * 64 * 3 * 8


def test_the_indexer_trains_its_weights_alone() -> None:
    found = operations(model_of())
    for name in ("index_q", "index_k"):
        assert products(found[f"attention.{name}"].backward) == 0
        assert found[f"attention.{name}"].weight is not None


def test_tensor_ranks_repeat_the_indexer_and_share_heads() -> None:
    whole, half = (operations(model_of(), Plans(tp=tp)) for tp in (1.0, 2.0))
    for name in ("index_q", "index_k", "index_scores"):
        assert half[f"attention.{name}"].forward.flops("matrix") == whole[f"attention.{name}"].forward.flops(
            "matrix"
        )
    assert products(half["attention.flash"].forward) == products(whole["attention.flash"].forward) / 2
    assert half["attention.k_up"].weights == whole["attention.k_up"].weights / 2


def test_layers_that_share_an_index_have_no_indexer() -> None:
    model = model_of(("indexed dense", "index-shared dense"))
    assert not [name for name in operations(model) if "index" in name]
    first, second = (model.kind_parameters(kind) for kind in model.pattern)
    assert first - second == 24 * 16 + 32 * (8 + 2) + 2 * 8


def blocks_of(seq: int, topk: int = 8, block: int = 4) -> Model:
    """Return a model whose indexer selects blocks of keys for heads with keys of their own."""
    config = Indexer(heads=2, head_dim=8, topk=topk, block=block)
    return model_of(latent=None, indexer=config, kv_heads=2, seq=seq)


@pytest.mark.parametrize(("seq", "topk", "block"), [(64, 8, 4), (63, 8, 4), (5, 8, 4), (7, 4, 4), (64, 8, 1)])
def test_pairs_of_blocks_are_those_met_token_by_token(seq: int, topk: int, block: int) -> None:
    """A token meets the earlier ones of its own block, and all of the other blocks that it selects."""
    model = model_of(seq=seq) if block == 1 else blocks_of(seq, topk, block)
    expected = sum((min(topk // block, t // block + 1) - 1) * block + t % block + 1 for t in range(seq))
    assert model.attention_pairs(model.last_kind) == expected


def test_blocks_of_keys() -> None:
    """Attention of 4 heads of 8 meets the selected pairs; the indexer's product is that of all earlier."""
    model = blocks_of(SEQ)
    found, met = operations(model), model.attention_pairs(model.last_kind)
    assert products(found["attention.flash"].forward) == pytest.approx(2 * 4 * met * (8 + 8))
    assert products(found["attention.index_scores"].forward) == pytest.approx(2 * 2 * 8 * SEQ * (SEQ + 1) / 2)
    assert "attention.index_loss" not in found
    # two heads of queries and one of keys of each token are normed, 8 numbers read and written each
    normed = found["attention.index_norm"]
    assert normed.forward.flops("vector") == 9 * 64 * 3 * 8
    assert normed.weights == 2 * 8
    assert sum(op.weights for op in found.values()) == model.kind_parameters(model.last_kind)


@pytest.mark.parametrize("kinds", [("indexed dense",), ("indexed dense", "index-shared dense")])
def test_weights_of_operations_are_those_of_the_model(kinds: tuple[str, ...]) -> None:
    model = model_of(kinds)
    weights = sum(op.weights for op in layer(model, Plans(), CALIBRATED, model.last_kind))
    assert weights == model.kind_parameters(model.last_kind)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"latent": None}, "indexer: needs latent attention with a q_rank, unless it selects blocks"),
        ({"latent": replace(LATENT, q_rank=None)}, "indexer: needs latent attention with a q_rank"),
        ({"causal": False}, "indexer: needs causal attention"),
        ({"indexer": Indexer(heads=2, head_dim=8, topk=8, block=3)}, "must be a multiple of block = 3"),
        ({"indexer": Indexer(heads=2, head_dim=8, topk=8, block=4)}, "not modelled with latent attention"),
        ({"kinds": ("index-shared dense",)}, "an index-shared layer needs an indexed one before it"),
        ({"indexer": None}, "indexer: missing; layer_kinds names layers that have it"),
    ],
)
def test_contradictions(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        model_of(**fields)


SHARED = Latent(
    kv_rank=16, q_rank=24, nope_dim=8, rope_dim=8, value_dim=16, shared=True, proj_rank=12, proj_groups=2
)


def compressed_model(kind: str, **fields: Any) -> Model:
    """Return a model whose tokens see 8 tokens before them and compressed keys of 16, or best 3 of 4."""
    parts: dict[str, Any] = {"latent": SHARED, "local": Local(window=8), "streams": 2, "sinks": True}
    parts["compressed"] = Compressed(rate=16, indexed_rate=4)
    parts["indexer"] = Indexer(heads=2, head_dim=8, topk=3) if kind == "compressed-indexed" else None
    return model_of((f"{kind} dense",), **parts | fields)


WINDOW = SEQ * 8 - 8 * 7 // 2


def test_tokens_meet_a_window_and_the_compressed_keys_behind_them() -> None:
    """Keys of 16 tokens: 0 before token 16, then 1, 2, 3, and 4 for the last token of 64; of 4, at most 3."""
    model = compressed_model("compressed")
    assert model.attention_pairs(model.last_kind) == WINDOW + sum(t // 16 for t in range(1, SEQ + 1))
    best = compressed_model("compressed-indexed")
    assert best.attention_pairs(best.last_kind) == WINDOW + sum(min(t // 4, 3) for t in range(1, SEQ + 1))
    assert best.compressed_pairs(best.last_kind, all_keys=True) == sum(t // 4 for t in range(1, SEQ + 1))
    assert model.attention_pairs(model.last_kind, masked=False) == SEQ * (8 + 4)


def test_products_of_compressed_attention() -> None:
    """As the modules of transformers' DeepSeek-V4 have them, token by token: inputs times outputs, twice."""
    found = operations(compressed_model("compressed"))
    assert products(found["attention.kv_down"].forward) == 2 * SEQ * 32 * 16
    assert products(found["attention.q_up"].forward) == 2 * SEQ * 24 * 4 * 16
    assert products(found["attention.compress"].forward) == 2 * SEQ * 32 * 2 * 16
    assert products(found["attention.group_proj"].forward) == 2 * SEQ * 2 * (2 * 16) * 12
    assert products(found["attention.proj"].forward) == 2 * SEQ * 2 * 12 * 32
    assert {"attention.kv_up", "attention.k_up", "attention.v_up"}.isdisjoint(found)
    best = operations(compressed_model("compressed-indexed"))
    assert products(best["attention.compress"].forward) == 2 * SEQ * 32 * 4 * 16
    assert products(best["attention.index_k"].forward) == 2 * SEQ * 32 * (4 * 8 + 2)
    assert products(best["attention.index_q"].forward) == 2 * SEQ * 24 * 2 * 8


def test_copies_of_the_residual_stream() -> None:
    """A product of both copies makes 2 + 2 + 4 weights; the copies are saved, and a stage sends them on."""
    found = operations(compressed_model("compressed"))
    for block in ("attention", "mlp"):
        assert products(found[f"{block}.stream_weights"].forward) == 2 * SEQ * 64 * 8
        assert products(found[f"{block}.streams"].forward) == 2 * SEQ * 4 * 32
    sent = [op.saved_bytes for op in found.values() if op.saves_layer_input]
    assert sent == [2 * SEQ * 64]


@pytest.mark.parametrize("kind", ["local", "compressed", "compressed-indexed"])
def test_weights_of_compressed_attention(kind: str) -> None:
    """Those of the operations are those of the model."""
    unused: dict[str, Any] = {"compressed": None} if kind == "local" else {}
    moe = Experts(experts=4, topk=2, ffn=16, shared_ffn=16)
    for fields in ({}, {"experts": moe, "layer_kinds": (f"{kind} moe",)}):
        model = compressed_model(kind, **unused)
        model = replace(model, **fields)
        counted = sum(op.weights for op in layer(model, Plans(), CALIBRATED, model.last_kind))
        assert counted == model.layer_parameters()


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"latent": replace(SHARED, shared=False)}, "compressed: needs causal"),
        ({"latent": replace(SHARED, value_dim=8)}, "latent.shared = True: needs"),
        ({"latent": replace(SHARED, proj_groups=3)}, "proj_groups = 3: must divide heads = 4"),
        ({"compressed": None}, "compressed: missing"),
        ({"dropout": True}, "streams = 2: not modelled"),
    ],
)
def test_compressed_attention_says_what_it_needs(fields: dict[str, Any], wanted: str) -> None:
    with pytest.raises(InputError, match=wanted):
        compressed_model("compressed", **fields)
