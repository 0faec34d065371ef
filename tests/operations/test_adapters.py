"""What frozen operations do: the counts are by hand, for Llama 3 8B."""

import pytest

import traincast as tc
from traincast.catalog.software_stacks import calibrated
from traincast.core.plan import Plans
from traincast.model.adapters import parse_training
from traincast.operations.transformer import parts

TOKENS = 2048  # of a micro-batch
WIDTH = 4096
LLAMA = tc.load_model("llama-3-8b", seq=TOKENS)


@pytest.mark.parametrize("text", ["lora:r=8", "lora:r=8,targets=head"])
def test_a_frozen_embedding_moves_nothing_in_backward(text):
    """Forward reads a row of 2 bytes each and writes it; no gradient is computed before the first adapter."""
    tuned = LLAMA.with_adapters(parse_training(text))
    (rows,) = parts(tuned, Plans(), calibrated())["embedding"]
    assert rows.forward.nbytes == 2 * 2 * TOKENS * WIDTH
    assert rows.backward.nbytes == 0
    assert rows.backward.kernels == ()
    assert rows.backward.collectives == ()
