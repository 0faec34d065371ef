"""Work bound by memory traffic, by hand."""

from dataclasses import replace

import pytest

import traincast as tc
from traincast.catalog.software_stacks import calibrated
from traincast.core.assumptions import PAPER
from traincast.core.plan import Plans
from traincast.operations import parts
from traincast.operations.elementwise import norm


@pytest.mark.parametrize("vectors", [1, 2])
def test_a_norm_by_hand(vectors):
    """3 rows of 8 numbers of 2 bytes: 9 operations each forward; 8 backward, and 4 sums of a row's 8.

    Forward reads and writes them, two moments of a row and the weights; backward moves five such tensors.
    """
    op = norm("norm", 2.0, 3.0, 8.0, vectors=vectors)
    assert op.forward.flops("vector") == 9 * 24
    assert op.backward.flops("vector") == 8 * 24 + 3 * 4 * 7
    assert op.forward.nbytes == 2 * (2 * 24 + 2 * 3 + vectors * 8)
    assert op.backward.nbytes == 2 * (5 * 24 + vectors * 8)
    assert (op.weights, op.saved_bytes) == (vectors * 8, 2 * 24)


def test_a_layer_norm_in_fp32_saves_two_numbers_of_a_row():
    """Beside 4096 numbers of 2 bytes: the mean and the deviation, in fp32 (PyTorch, native_layer_norm)."""
    model = replace(tc.load_model("llama-3-8b"), norm="layernorm")
    assumed = calibrated().with_values({"memory.norms_in_fp32": True})
    norms = [op for op in parts(model, Plans(), assumed)["dense"] if op.module == "norms"]
    assert len(norms) == 2
    assert {op.saved_bytes for op in norms} == {model.seq * (4096 * 2 + 2 * 4)}


def test_the_loss_by_hand():
    """4 operations of a logit forward, 2 backward; three numbers of a token in fp32 are summed."""
    model = tc.load_model("llama-3-8b")
    head = parts(model, Plans(tp=2.0), PAPER)["head"]
    loss = next(op for op in head if op.name == "head.loss")
    logits = model.seq * model.vocab / 2
    assert loss.forward.flops("vector") == 4 * logits
    assert loss.backward.flops("vector") == 2 * logits
    assert [call.nbytes for call in loss.forward.collectives] == [3 * 4 * model.seq]
