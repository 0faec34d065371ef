"""Constants of Megatron-Core and torchtitan against the kernels that tools/framework_kernels.py counts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import traincast as tc
from traincast.catalog.load import load_model
from traincast.catalog.software_stacks import Stack
from traincast.catalog.training import Training
from traincast.core.plan import Plans
from traincast.model.documents import Documents
from traincast.operations.transformer import layer
from traincast.times.operation_time import ROTATION_FORWARD

COUNTS = json.loads(
    (Path(__file__).parents[1] / "data" / "framework_kernels.json").read_text(encoding="utf-8")
)
FROM_PYTHON = 12e-6  # to issue a kernel from Python, as assumed of eager PyTorch [s]
FROM_AUTOGRAD = 5e-6  # from the autograd engine, in C++ [s]
FUSED_TENSORS = 4  # that a fused rotation reads and writes in both directions
PLAIN = "megatron-core-2025"
UNFUSED = "megatron-core-2025+kernels=unfused-rotation"
EAGER_TITAN = "torchtitan-eager"
HALVES = "torchtitan-eager+kernels=unfused-rotation"


@pytest.mark.parametrize(
    ("stack", "counted"),
    [
        (UNFUSED, "Megatron-Core, rotation"),
        (EAGER_TITAN, "torchtitan, ComplexRoPE"),
        (HALVES, "torchtitan, CosSinRoPE"),
    ],
)
def test_chains_that_rotate_move_the_tensors_counted(stack, counted):
    """The rotation's traffic is what its chain of operations reads and writes, whatever else kernels move."""
    tensors = sum(COUNTS[counted][direction]["tensors"] for direction in ("forward", "backward"))
    assumed = Stack(stack).assumptions
    assert assumed.traffic.rotation_passes == pytest.approx(tensors / FUSED_TENSORS, rel=0.02)
    model = load_model("qwen3-8b")
    (op,) = (op for op in layer(model, Plans(tp=1.0), assumed) if op.name == "attention.rotary")
    own = 2 * model.seq * (model.heads + model.kv_heads) * model.head_width  # queries and keys in 16 bits
    assert (op.forward.nbytes + op.backward.nbytes) / own == pytest.approx(tensors, rel=0.02)


def test_a_document_is_rotated_by_the_kernels_counted():
    """Queries and keys of each packed document have kernels of their own, most of the time forward."""
    kernels = COUNTS["Megatron-Core, rotation of a document"]
    forward = 2 * kernels["forward"] * FROM_PYTHON
    backward = 2 * kernels["backward"] * FROM_AUTOGRAD
    assert Stack(UNFUSED).assumptions.host.rotation_seconds == pytest.approx(forward + backward, rel=0.02)
    assert pytest.approx(forward / (forward + backward), abs=0.005) == ROTATION_FORWARD


def test_a_layer_of_megatron_core_waits_for_the_host_about_as_long_as_for_the_kernels_counted():
    """Its operations stand for fewer kernels than the local layer has, whose norms are chains."""
    kernels = COUNTS["Megatron-Core, local layer"]
    local = kernels["forward"] * FROM_PYTHON + kernels["backward"] * FROM_AUTOGRAD
    assumed = Stack(PLAIN).assumptions
    operations = [op for op in layer(load_model("qwen3-8b"), Plans(tp=1.0), assumed) if op.forward.kernels]
    assert 0.6 * local < 2 * len(operations) * assumed.host.dispatch_seconds < local


def host_seconds(stack, gbs=32, train="lora", **changes):
    """Return what a step of Llama 3 8B with short sequences waits for the host on one GPU [s]."""
    model = Training.read(train).apply_to(replace(load_model("llama-3-8b"), seq=512, **changes))
    return float(tc.estimate(model, "dgx-h100", tc.Plan(), gbs=gbs, assumptions=stack).step.host)


@pytest.mark.parametrize(
    "stack", [PLAIN, "torchtitan-2025", EAGER_TITAN, "nanotron-2025", "deepspeed-2025", "huggingface-eager"]
)
def test_waits_for_the_host_follow_the_microbatches(stack):
    """Ten times as many micro-batches wait ten times as long, beside what a step costs once."""
    once = Stack(stack).assumptions.host.step_seconds
    few, many = host_seconds(stack) - once, host_seconds(stack, gbs=320) - once
    assert few > 0
    assert many == pytest.approx(10 * few)


def test_graphs_wait_for_nothing():
    """A layer in a CUDA graph is launched as one."""
    for graphs in ("iteration", "layer"):
        stack = f"{PLAIN}+graphs={graphs}"
        assert host_seconds(stack) == Stack(stack).assumptions.host.step_seconds


def test_the_accelerator_waits_for_the_lengths_of_packed_documents():
    """In every layer and micro-batch forward issues the documents while nothing else is there to do."""
    packed = {"documents": Documents(((64, 1.0),))}
    assumed = Stack(UNFUSED).assumptions
    more = host_seconds(UNFUSED, train="full", **packed) - host_seconds(PLAIN, train="full", **packed)
    # micro-batches, layers, documents of a sequence
    documents = 32 * load_model("llama-3-8b").layers * 512 / 64
    forward = documents * ROTATION_FORWARD * assumed.host.rotation_seconds
    assert forward < more < documents * assumed.host.rotation_seconds
    fused = host_seconds(PLAIN, train="full", **packed)
    assert fused == pytest.approx(host_seconds(PLAIN, train="full"), rel=0.1)
