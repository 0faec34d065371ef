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


def forward_passes(text):
    """Forward pass of each operation of a layer in fp8, by name."""
    tuned = LLAMA.with_adapters(parse_training(text))
    return {op.name: op.forward for op in parts(tuned, Plans(precision="fp8"), calibrated())["dense"]}


def test_a_base_held_as_operands_is_not_cast():
    """The operands of fp8 stand there: each product moves what it did, without the cast of its matrix."""
    held = forward_passes("lora:r=8,base=operand")
    cast = forward_passes("lora:r=8")
    for name in ("attention.qkv", "attention.proj", "mlp.fc1", "mlp.fc2"):
        assert held[name].cast < cast[name].cast
        moved = cast[name].nbytes - cast[name].cast
        assert held[name].nbytes - held[name].cast == pytest.approx(moved, rel=1e-12)


@pytest.mark.parametrize(("zero", "beside"), [(0, 2), (2, 4), (3, 2)])
def test_what_a_base_in_fp32_holds_beside_16_bits(zero, beside):
    """4 bytes of a weight in all; with ZeRO-2 the 2 bytes of the gathered copy stay beside them."""
    tuned = LLAMA.with_adapters(parse_training("lora:r=8,dtype=fp32"))
    operations = parts(tuned, Plans(dp=8.0, zero=zero), calibrated())["dense"]
    held = {op.name: op for op in operations if op.frozen_bytes}
    widths = {"attention.qkv": 6144, "attention.proj": 4096, "mlp.fc1": 2 * 14336, "mlp.fc2": 14336}
    for name, width in widths.items():
        assert held[name].frozen_bytes == 2 * 4096 * width
        assert held[name].frozen_fp32_bytes == beside * 4096 * width
