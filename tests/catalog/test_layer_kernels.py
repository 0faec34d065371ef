"""Constants of transformers' layers against the kernels that tools/layer_kernels.py counts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import traincast as tc
from traincast.catalog.load import load_model
from traincast.catalog.software_stacks import Stack
from traincast.catalog.training import Training
from traincast.core.plan import Plans
from traincast.operations.transformer import layer

COUNTS = json.loads((Path(__file__).parents[1] / "data" / "layer_kernels.json").read_text(encoding="utf-8"))
FROM_PYTHON = 12e-6  # to issue a kernel from Python, as assumed of eager PyTorch [s]
FROM_AUTOGRAD = 5e-6  # from the autograd engine, in C++ [s]
SINGLE, FUSED = "huggingface-eager", "huggingface-fused-loss"
ATTENTION = "lora:r=16,targets=q+k+v+proj"
ALL = "lora:r=16,targets=q+k+v+proj+gate+up+fc2"
PLAN = Plans(tp=1.0, mbs=1.0)


def tensors(name):
    """Return the tensors of the hidden size that a counted layer moves in both directions."""
    return COUNTS[name]["forward"]["tensors"] + COUNTS[name]["backward"]["tensors"]


def elementwise_tensors(model, is_adapter):
    """Return the same of the operations of a layer whose kernels are all fused."""
    fused = Stack(SINGLE).assumptions.with_values(
        {"traffic.elementwise_passes": 1.0, "traffic.adapter_passes": 0.0}
    )
    hidden_size = 2 * model.seq * model.hidden
    return sum(
        (op.forward.nbytes + op.backward.nbytes) / hidden_size
        for op in layer(model, PLAN, fused)
        if op.forward.kernels and not op.forward.gemms and op.name.endswith("_sum") == is_adapter
    )


@pytest.mark.parametrize(("stack", "counted"), [(SINGLE, "layer"), (FUSED, "fused layer")])
def test_the_host_issues_the_kernels_counted(stack, counted):
    """Kernels times the time to issue one, over the operations that a layer is counted as."""
    assumed = Stack(stack).assumptions
    operations = [op for op in layer(load_model("mistral-7b"), PLAN, assumed) if op.forward.kernels]
    issued = 2 * len(operations) * assumed.host.dispatch_seconds
    kernels = COUNTS[counted]["forward"]["kernels"], COUNTS[counted]["backward"]["kernels"]
    assert issued == pytest.approx(kernels[0] * FROM_PYTHON + kernels[1] * FROM_AUTOGRAD, rel=0.03)


def test_chains_of_operations_move_the_tensors_counted():
    """What single operations move beyond fused norms and rotations, over what fused kernels move."""
    least = elementwise_tensors(load_model("mistral-7b"), is_adapter=False)
    more = (tensors("layer") - tensors("fused layer")) / least
    # fitted to eager layers with fused norms
    eager = Stack("litgpt-2024").assumptions.traffic.elementwise_passes
    assert Stack(SINGLE).assumptions.traffic.elementwise_passes == pytest.approx(eager + more, rel=0.08)
    assert Stack(FUSED).assumptions.traffic.elementwise_passes == eager


@pytest.mark.parametrize(
    ("train", "counted"), [(ATTENTION, "adapters of attention"), (ALL, "adapters of all")]
)
def test_adapters_move_the_tensors_counted(train, counted):
    """Also where norms are fused."""
    least = elementwise_tensors(Training.read(train).apply_to(load_model("mistral-7b")), is_adapter=True)
    more = tensors(f"fused layer, {counted}") - tensors("fused layer")
    for stack in (SINGLE, FUSED):
        assert Stack(stack).assumptions.traffic.adapter_passes == pytest.approx(more / least, rel=0.05)


@pytest.mark.parametrize("stack", [SINGLE, FUSED])
def test_the_host_issues_the_kernels_of_adapters_counted(stack):
    """Four adapters of attention, each of which is three operations in two directions."""
    prefix = "fused layer" if stack == FUSED else "layer"
    more = {
        way: COUNTS[f"{prefix}, adapters of attention"][way]["kernels"] - COUNTS[prefix][way]["kernels"]
        for way in ("forward", "backward")
    }
    counted = (more["forward"] * FROM_PYTHON + more["backward"] * FROM_AUTOGRAD) / 4
    assumed = Stack(stack).assumptions
    assert assumed.host.adapter_seconds == pytest.approx(counted, rel=0.05)
    model = Training.read(ATTENTION).apply_to(load_model("mistral-7b"))
    of_adapters = [op for op in layer(model, PLAN, assumed) if op.name.endswith(("_a", "_b", "_sum"))]
    launches = sum(op.forward.launches + op.backward.launches for op in of_adapters)
    assert launches * assumed.host.dispatch_seconds == pytest.approx(4 * assumed.host.adapter_seconds)


def test_a_small_microbatch_waits_for_the_host():
    """Each of ten times as many micro-batches waits as long; the wait was that of a step."""
    model = Training.read("lora").apply_to(replace(load_model("llama-3-8b"), seq=256))
    waits = [
        tc.estimate(model, "dgx-h100", tc.Plan(), gbs=gbs, assumptions=SINGLE).step.host for gbs in (32, 320)
    ]
    step = Stack(SINGLE).assumptions.host.step_seconds
    assert waits[1] - step == pytest.approx(10 * (waits[0] - step))
    assert waits[0] / 32 > 0.015  # a micro-batch waits almost as long as a step did
