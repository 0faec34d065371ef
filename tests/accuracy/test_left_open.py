"""Which software a row of measured runs leaves open, and what is predicted of it."""

import numpy as np
import pytest

import traincast as tc
from traincast.accuracy.runs.run import load_bundled_runs, read_run
from traincast.accuracy.validation import validate
from traincast.catalog.software_stacks import Stack
from traincast.step.uncertainty import errors

ROW = {
    "id": "row", "model": "llama-3-8b", "gpu": "h100-sxm-80", "gpus": "64", "seq": "8192",
    "precision": "bf16",
    "tp": "1", "pp": "1", "cp": "1", "dp": "64", "zero": "1", "mbs": "1", "gbs": "128", "step_seconds": "2.0",
    "vocab": "128256", "layers": "32", "hidden": "4096", "ffn": "14336", "heads": "32", "kv_heads": "8",
    "mlp": "swiglu", "recompute": "none", "flash_attention": "True", "experts": "", "interconnect": "",
}  # fmt: skip


def row(**cells):
    return {**ROW, **cells}


def left_open(**cells):
    return set(read_run(row(**cells)).unsaid)


def test_a_row_leaves_open_what_its_cells_do_not_exclude():
    """By framework, release and facts: a stack closes it, a framework leaves its own open, nothing all."""
    assert left_open(stack="megatron-core-2025") == set()
    assert left_open(stack="") == set(Stack.ANY)
    assert {"torchtitan-eager", "torchtitan-2024", "torchtitan-2025"} == left_open(stack="torchtitan")
    bridge = left_open(stack="Megatron-Bridge", experts="128", topk="8", moe_ffn="768")
    assert {"megatron-bridge-2025", "megatron-bridge-26.02", "megatron-bridge-2026"} <= bridge
    assert not any(name.startswith(("nemo", "torchtitan")) for name in bridge)


def test_of_a_measured_release_those_are_open_that_its_runs_had():
    """Containers 25.09 of Megatron-Bridge ran one stack; of 26.04 several, which facts tell apart."""
    measured = errors().software.releases
    assert measured["Megatron-Bridge 2025-09"] == ("megatron-bridge-2025",)
    assert left_open(stack="Megatron-Bridge", released="2025-09") == set()
    several = set(measured["Megatron-Bridge 2026-04"])
    experts = {"experts": "128", "topk": "8", "moe_ffn": "768"}
    assert len(several) == 3
    assert left_open(stack="Megatron-Bridge", released="2026-04", **experts) == several
    fused = left_open(stack="Megatron-Bridge", released="2026-04", dispatcher="deepep", **experts)
    assert fused == set()


def test_software_of_the_release_that_has_the_stated_facts_is_left_open():
    of_release = {"torchtitan-eager", "torchtitan-2024"}
    assert left_open(framework="torchtitan", released="2024-12") == of_release
    assert read_run(row(framework="torchtitan", compiled="false")).stack == "torchtitan-eager"
    assert left_open(framework="torchtitan", compiled="false") == set()
    assert read_run(row(framework="torchtitan", released="2024-12")).stack == "torchtitan-2024"


def test_of_software_with_the_same_constants_one_is_left_open():
    """A dense model has no layer of experts, in which alone two stacks of Megatron-Bridge differ."""
    experts = {"experts": "128", "topk": "8", "moe_ffn": "768"}
    assert "megatron-core-deepep" in left_open(framework="Megatron-Core", **experts)
    assert "megatron-core-deepep" not in left_open(framework="Megatron-Core", released="2025-08")


@pytest.mark.parametrize("stack", ["", "torchtitan-2025"])
def test_the_less_a_row_states_the_wider_its_interval(stack):
    stated, less = validate([row(id="a", stack="torchtitan-2025"), row(id="b", stack=stack)]).predictions
    width, wider = (np.log(prediction.high / prediction.low) for prediction in (stated, less))
    assert (wider > width) == (stack != "torchtitan-2025")


def test_runs_without_a_release_are_compared_with_the_median_of_the_mixture():
    run = read_run(row(stack=""))
    (prediction,) = validate([row(stack="")]).predictions
    est = tc.estimate(run.model, run.system, run.plan, gbs=run.gbs, assumptions="calibrated")
    assert prediction.predicted_step_seconds == pytest.approx(est.median_seconds, rel=1e-9)
    assert est.median_seconds != est.step_seconds
    assert (prediction.low, prediction.high) == pytest.approx(est.interval, rel=1e-9)


def test_bundled_runs_keep_what_they_leave_open():
    """The tidy table has what reading published_runs.csv found: many rows name no release."""
    runs = [run for _, run in load_bundled_runs() if not isinstance(run, str)]
    assert any(run.unsaid for run in runs)
    assert any(run.released for run in runs)
    assert all(len(run.unsaid) > 1 or run.unsaid in ((), Stack.ANY) for run in runs)
