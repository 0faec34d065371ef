"""Core attention by hand: the elements that each kernel moves and saves, and the shapes of the fused one."""

from dataclasses import replace

import pytest

import traincast as tc
from traincast.catalog.software_stacks import calibrated
from traincast.core.assumptions import PAPER
from traincast.core.plan import Plans
from traincast.operations.attention import Heads, summa, unfused_attention
from traincast.operations.transformer import layer

CALIBRATED = calibrated()
LLAMA = tc.load_model("llama-3-8b", seq=4096)
# 2 sequences; 4 heads of queries and 2 of keys, 16 wide, and values 8 wide; 32 queries of 32 keys.
WHOLE = Heads(b=2.0, h=4.0, kv=2.0, lq=32.0, l=32.0, q=16.0, v=8.0)


def test_unfused_attention_by_hand():
    """Elements of 2 bytes: scores and queries of 4 heads, keys and values of 2, and the result, 8 wide."""
    scores, queries, keys = 2 * 4 * 32 * 32, 2 * 4 * 32 * 16, 2 * 2 * 32 * 16
    values, result = keys / 2, queries / 2
    operations = {op.name: op for op in unfused_attention(2.0, 1.0, WHOLE, "tp", recompute=False)}
    logits = operations["attention.logits"]
    attend = operations["attention.attend"]
    softmax = operations["attention.softmax"]
    assert logits.forward.nbytes == 2 * (queries + keys + scores)
    assert attend.forward.nbytes == 2 * (scores + values + result)
    # Each of the two products of a gradient reads scores; queries are read, and their gradients are added up.
    assert logits.backward.nbytes == 2 * (2 * scores + 3 * queries + keys)
    assert attend.backward.nbytes == 2 * (2 * scores + 3 * result + values)
    assert (logits.saved_bytes, attend.saved_bytes) == (2 * (queries + keys), 2 * (scores + values))
    assert softmax.saved_bytes == 2 * scores
    # The gradients of the result and of what softmax reads are there at once.
    assert softmax.gradient_bytes == 2 * 2 * scores


@pytest.mark.parametrize(("ranks", "pieces"), [(1, 1), (2, 4), (4, 8)])
def test_keys_of_a_sharded_sequence_come_in_two_pieces_of_a_rank(ranks, pieces):
    """A rank has one of the first and one of the last pieces, which balances the causal mask."""
    fused = replace(WHOLE, lq=32.0 / ranks).fused_kernel()
    assert fused.starts == pieces
    assert (fused.queries, fused.keys, fused.width) == (2 * 4 * 32 / ranks, 32, 12)


def test_attention_of_summa_by_hand():
    """3 sequences of 64 tokens, 8 heads of 16, on 4 x 2 ranks in 2 panels, 2 bytes each (arXiv 2410.00273).

    A rank has 32 queries of each head, 16 keys of a score and 4 columns of a head. A panel is half of the
    scores of all 64 keys, which the ranks of a column add up, or half of the keys of all tokens.
    """
    b, h, tokens, own, keys, columns = 3, 8, 64, 32, 16, 4
    operations = {op.name: op for op in summa(2.0, 1.0, (b, h, tokens, 16.0), (4.0, 2.0, 2.0))}
    logits = operations["attention.logits"]
    attend = operations["attention.attend"]
    scores = b * h * own * tokens
    of_keys = b * h * tokens * columns
    queries = b * h * own * columns
    sent = [(call.kind, call.nbytes, call.over) for call in logits.forward.collectives]
    assert sent == [("reduce", 2 * scores / 2, "tp"), ("broadcast", 2 * of_keys / 2, "tp2")]
    sent = [(call.kind, call.nbytes, call.over) for call in attend.forward.collectives]
    assert sent == [("broadcast", 2 * scores / 2, "tp"), ("broadcast", 2 * of_keys / 2, "tp2")]
    # scores of all keys, the keys themselves, and the queries once in each panel
    assert logits.forward.nbytes == 2 * (scores + of_keys + 2 * queries)
    assert logits.saved_bytes == 2 * 2 * queries
    assert attend.saved_bytes == 2 * (b * h * own * keys + queries)
    (product,) = logits.forward.gemms
    assert (product.m, product.k, product.n, product.batch) == (b * h * own, columns, keys, 4)


def test_the_rotation_of_latent_attention_by_hand():
    """DeepSeek-V3 on 2 ranks: 64 columns of 64 heads and of one key are read and written, 2 bytes each."""
    model = tc.load_model("deepseek-v3", seq=4096)
    operations = layer(model, Plans(tp=2.0), PAPER)
    (rotary,) = [op for op in operations if op.name == "attention.rotary"]
    assert rotary.forward.nbytes == 2 * 2 * 4096 * (64 * 64 + 64)
    assert rotary.backward.nbytes == rotary.forward.nbytes


@pytest.mark.parametrize(
    ("knobs", "rounds"),
    [
        ({"cp": 4.0, "cp_kind": "ring"}, 3),
        ({"cp": 8.0, "ulysses": 2.0, "cp_kind": "hybrid"}, 3),  # four ranks exchange keys, two each heads
        ({"cp": 4.0, "cp_kind": "all-gather"}, None),
    ],
)
def test_keys_of_a_ring_come_in_rounds(knobs, rounds):
    """Every other rank of the ring sends its keys and values once in each pass (arXiv 2310.01889)."""
    (flash,) = (op for op in layer(LLAMA, Plans(**knobs), CALIBRATED) if op.name == "attention.flash")
    assert (flash.forward.rounds, flash.backward.rounds) == (rounds, rounds)


@pytest.mark.parametrize("tp", [1, 2])
def test_norms_of_queries_and_keys_by_hand(tp):
    """4096 tokens, 32 heads of queries and 8 of keys, 128 wide: each head of a token is a row."""
    model = replace(LLAMA, qk_norm="head")
    operations = layer(model, Plans(tp=float(tp)), CALIBRATED)
    (norm,) = (op for op in operations if op.name == "attention.qk_norm")
    rows = 4096 * (32 + 8) / tp
    assert norm.saved_bytes == 2 * rows * 128
    assert norm.forward.flops("vector") == 9 * rows * 128
    assert norm.weights == 2 * 128  # every rank has those of queries and of keys
