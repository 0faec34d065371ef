"""The measured GPT: under every plan its losses and gradients are those on one rank."""

import math
import multiprocessing
import socket
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")

PLANS = (
    {"mbs": 8, "zero": 0},
    {"mbs": 2, "zero": 0},
    {"dp": 2, "mbs": 2, "zero": 0},
    {"dp": 2, "mbs": 4, "zero": 1},
    {"tp": 2, "mbs": 4, "zero": 0},
    {"tp": 4, "mbs": 8, "zero": 0},
    {"pp": 2, "mbs": 1, "zero": 0},
    {"pp": 4, "mbs": 2, "zero": 0},
    {"tp": 2, "pp": 2, "mbs": 2, "zero": 0},
    {"tp": 2, "dp": 2, "mbs": 2, "zero": 1},
    {"dp": 2, "pp": 2, "mbs": 1, "zero": 0},
    {"tp": 2, "pp": 2, "mbs": 4, "zero": 0, "precision": "bf16-pure"},
)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_losses_and_gradients_of_every_plan_are_those_of_one_rank(monkeypatch):
    """Four ranks; smaller plans are trained side by side.

    Sums are rounded to 6e-8 of their largest term, at 16 bits to 4e-3.
    """
    monkeypatch.syspath_prepend(Path(__file__).parent)
    context = multiprocessing.get_context("forkserver")  # PyTorch is loaded once, not by every rank
    context.set_forkserver_preload(["cut_gradients"])
    from cut_gradients import run_rank

    with ProcessPoolExecutor(4, mp_context=context) as ranks:
        results, *_ = ranks.map(run_rank, range(4), [free_port()] * 4, [PLANS] * 4)
    for plan, result in zip(PLANS, results, strict=True):
        exact = "precision" not in plan
        assert result["loss"] < (2e-6 if exact else 5e-3), plan
        assert result["gradients"] < (2e-5 if exact else 5e-2), plan
    first = results[0]["later"]
    assert abs(first - math.log(512)) < 0.1  # hardly trained: the loss of a uniform guess
    for plan, result in zip(PLANS, results, strict=True):
        assert result["later"] == pytest.approx(first, abs=2e-2 if "precision" in plan else 1e-5)


def trainer(extra, mbs=4):
    """Return a trainer of a small GPT on one rank, with what stands behind its shape."""
    from traincast.accuracy.machine.training.parallel_step import MeshPosition, Trainer
    from traincast.accuracy.machine.training.timed_steps import TrainingCase, parse_shapes
    from traincast.core.plan import Plan

    (shape,) = parse_shapes(f"64x2x4x32x512x4{extra}")
    plan = Plan(mbs=mbs, precision="fp32")
    return Trainer(TrainingCase(shape, plan).model, plan, shape.gbs, MeshPosition())


def test_adapters_alone_are_trained():
    """By hand: rank 8 on layers e to 3e, e to e, e to 4e and 4e to e, 16 e of inputs and outputs in all.

    What is frozen stays as it was; B is 0 at first, so that the first loss is that without adapters.
    """
    tuned, full = trainer("+lora8"), trainer("")
    assert tuned.gradients.numel() == 2 * 8 * 16 * 64
    before = {name: x.clone() for name, x in tuned.stage.named_parameters()}
    first = tuned.step()
    assert float(first) == pytest.approx(float(full.step()), rel=1e-6)
    for name, x in tuned.stage.named_parameters():
        assert x.equal(before[name]) == (".up." not in name and ".down." not in name), name
    assert float(tuned.step()) != float(first)


def test_experts_are_those_that_a_token_is_sent_to():
    """The weighted sum over all experts with weights of 0 for those that are not among the first two."""
    import torch

    layer = trainer("+experts4").stage.layers[0].mlp
    x = torch.randn(24, 64, generator=torch.Generator().manual_seed(1))
    shares, chosen = layer.router(x).softmax(-1).topk(2)
    weights = torch.zeros(24, 4).scatter(1, chosen, shares)
    results = [down(torch.nn.functional.gelu(up(x))) for up, down in zip(layer.up, layer.down, strict=True)]
    expected = sum(weights[:, i, None] * y for i, y in enumerate(results))
    assert torch.allclose(layer(x), expected, atol=1e-6)


@pytest.mark.parametrize("extra", ["+lora8", "+experts4"])
def test_gradients_do_not_depend_on_the_micro_batches(extra):
    """Sums are rounded to 6e-8 of their largest term."""
    whole, parts = trainer(extra), trainer(extra, mbs=1)
    whole.step()
    parts.step()
    scale = float(whole.gradients.abs().max())
    assert float((whole.gradients - parts.gradients).abs().max()) < 2e-5 * scale
