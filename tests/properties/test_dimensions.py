"""Dimensional analysis of the formulas: bytes stay bytes, and times are seconds."""

from dataclasses import fields, replace

import pint
import pytest

import traincast as tc
from traincast.catalog.software_stacks import calibrated
from traincast.core.assumptions import PAPER
from traincast.core.knobs import STRATEGIES
from traincast.core.plan import Plans
from traincast.operations.transformer import layer, parts
from traincast.step.layer_cost import cost_part
from traincast.step.memory import Footprint, memory
from traincast.step.pipeline_stages import stages, with_load
from traincast.step.step_time import step
from traincast.times.operation_time import time_part

CALIBRATED = calibrated()

UNIT = pint.UnitRegistry()
BYTE, SECOND = UNIT.byte, UNIT.second
ATTENTION = [
    ("1d", "flash", "none"),
    ("1d", "unfused", "none"),
    ("1d", "unfused", "selective"),
    ("context", "flash", "none"),
    ("summa", "flash", "none"),
    ("summa", "unfused", "none"),
    ("summa", "summa", "none"),
]


@pytest.fixture(scope="module")
def assumed():
    return PAPER.with_values(
        {
            "memory.element_bytes": 2.0 * BYTE,
            "memory.mask_bytes": 1.0 * BYTE,
            "kernels.launch_seconds": 20e-6 * SECOND,
            "host.memory_bandwidth": 50e9 * BYTE / SECOND,
        }
    )


@pytest.fixture(scope="module")
def system():
    plain = tc.load_system("h200-nvs8")
    gpu = plain.accelerator
    chip = replace(
        gpu,
        matrix_flops=gpu.matrix_flops / SECOND,
        vector_flops=gpu.vector_flops / SECOND,
        hbm_bandwidth=gpu.hbm_bandwidth * BYTE / SECOND,
        hbm_bytes=gpu.hbm_bytes * BYTE,
    )
    tiers = [
        replace(
            tier,
            bandwidth=tier.bandwidth * BYTE / SECOND,
            latency=tier.latency * SECOND,
            **{name: getattr(tier, name) * unit for name, unit in PROTOCOLS.items()},
        )
        for tier in with_protocols(plain).tiers
    ]
    return replace(plain, accelerator=chip, tiers=tuple(tiers))


PROTOCOLS = {"launch": SECOND, "simple_latency": SECOND, "ll_bandwidth": BYTE / SECOND}


def with_protocols(system):
    """Return the system with the default protocol figures written out, so that they can be given units."""
    fast, slow = system.tiers
    inside = {
        "launch": CALIBRATED.collectives.launch_inside,
        "simple_latency": CALIBRATED.collectives.simple_hop_inside,
        "ll_bandwidth": fast.bandwidth * fast.efficiency / 2,
    }
    beyond = {
        "launch": CALIBRATED.collectives.launch_beyond,
        "simple_latency": CALIBRATED.collectives.simple_to_ll_beyond * slow.latency,
        "ll_bandwidth": CALIBRATED.collectives.ll_bandwidth,
    }
    return replace(system, tiers=(replace(fast, **inside), replace(slow, **beyond)))


@pytest.fixture(params=ATTENTION, ids="-".join)
def plan(request):
    strategy, attention, recompute = request.param
    second = {"summa": {"tp2": 2.0, "panels": 8.0}, "context": {"cp": 2.0}}.get(strategy, {})
    degrees = {"tp": 4.0, "fast_tp": 4.0, "pp": 4.0, "dp": 8.0, "fast_dp": 2.0, "mbs": 2.0} | second
    return Plans(**degrees, **STRATEGIES[strategy].choices, attention=attention, recompute=recompute)


def stepped(model, plan, system, assumed):
    """A step of a model with one kind of layer."""
    costs = {"dense": cost_part(time_part(layer(model, plan, assumed), plan, system, assumed), plan)}
    return step(costs, plan, stages(model, plan), 4096, system, assumed)


@pytest.mark.parametrize("parts", [{}, {"attention_gate": True}, {"parallel": True, "norms": 1}])
def test_counts(gpt, plan, assumed, parts):
    for op in layer(replace(gpt, **parts), plan, assumed):
        for work in (op.forward, op.backward, op.whole_backward):
            assert isinstance(work.flops("matrix") + work.flops("vector"), float)  # a number of FLOP, no unit
            assert work.nbytes.units == BYTE
            assert all(collective.nbytes.units == BYTE for collective in work.collectives)
        assert isinstance(op.weights, float | int)  # a number of parameters, no unit
        assert op.saved_bytes == 0 or op.saved_bytes.units == BYTE


def test_times_and_memory(gpt, plan, assumed, system):
    operations = layer(gpt, plan, assumed)
    for timed in time_part(operations, plan, system, assumed):
        assert all((timed.forward.total.check("[time]"), timed.backward.total.check("[time]")))
    time = stepped(gpt, plan, system, assumed)
    for field in fields(time):
        value = getattr(time, field.name)
        if field.name == "slowest":
            assert value == 0  # all stages are the same
        elif field.name in ("optimizer", "offload", "exchange", "host", "stragglers", "data_loading"):
            assert value == 0 or value.check("[time]")
        else:
            assert value.check("[time]"), field.name
    assert time.seconds.check("[time]")
    held = memory(
        {"dense": Footprint.from_operations(operations, plan)}, plan, stages(gpt, plan), 4096, assumed
    )
    for name in ("weights", "gradients", "optimizer", "activations"):
        assert held[name].units == BYTE, name
    assert all(value == 0 or value.units == BYTE for value in held.values())
    assert sum(held.values()).units == BYTE


def test_the_units_change_no_number(gpt, plan, assumed, system):
    with_units = stepped(gpt, plan, system, assumed)
    without = stepped(gpt, plan, tc.load_system("h200-nvs8"), PAPER)
    assert with_units.seconds.to(SECOND).magnitude == pytest.approx(without.seconds, rel=1e-12)


@pytest.mark.parametrize("probability", [0, 4.0 * BYTE])
def test_tokens_that_ranks_of_experts_gather_are_bytes(probability):
    model = tc.load_model("mixtral-8x7b")
    assumed = CALIBRATED.with_values(
        {
            "memory.element_bytes": 2.0 * BYTE,
            "memory.mask_bytes": 1.0 * BYTE,
            "collectives.gathers_tokens": True,
            "collectives.probability_bytes": probability,
        }
    )
    found = [
        op
        for op in layer(model, Plans(tp=2.0, ep=4.0, etp=2.0, dp=4.0), assumed, model.kinds[0])
        if op.gathered_bytes
    ]
    assert [op.name for op in found] == ["experts.permute", "experts.unpermute"]
    for op in found:
        assert op.gathered_bytes.units == BYTE
        for work in (op.forward, op.backward):
            assert work.nbytes.units == BYTE
            assert all(collective.nbytes.units == BYTE for collective in work.collectives)


MODERN = {
    "dense, ZeRO-3": ("llama-3-8b", {"cp": 2.0, "cp_kind": "ring", "zero": 3, "recompute": "full"}),
    "experts, offload": (
        "mixtral-8x7b",
        {"ep": 4.0, "offload": "optimizer+activations+weights", "precision": "fp8"},
    ),
    "latent attention": (
        "deepseek-v3",
        {"ep": 8.0, "schedule": "dualpipe", "tp": 1.0, "fast_tp": 1.0, "pp": 2.0},
    ),
    "hybrid, Muon": (
        "llama-3-8b",
        {"cp": 4.0, "cp_kind": "hybrid", "ulysses": 2.0, "optimizer_kind": "muon"},
    ),
}


@pytest.mark.parametrize(("name", "choices"), MODERN.values(), ids=MODERN)
def test_a_modern_model_with_all_its_parts(name, choices, system):
    """Embedding, head and loss, experts, the optimizer step, copies to the host, and what a framework takes
    for itself."""
    model = tc.load_model(name)
    sizes = {"memory.element_bytes": 2.0 * BYTE, "memory.mask_bytes": 1.0 * BYTE}
    sizes |= {"memory.context_bytes": 1e9 * BYTE, "memory.buffer_bytes": 1e7 * BYTE}
    sizes["memory.communication_bytes"] = 7e8 * BYTE
    sizes |= {"kernels.launch_seconds": 5e-6 * SECOND, "attention.launch_seconds": 20e-6 * SECOND}
    sizes |= {"host.step_seconds": 0.015 * SECOND, "host.memory_bandwidth": 50e9 * BYTE / SECOND}
    unpaced = {"host.expert_product_seconds": 0.0, "host.expert_dispatch_seconds": 0.0}  # by the host
    sizes |= {"host.sync_seconds": 2e-4 * SECOND, **unpaced}
    assumed = CALIBRATED.with_values(sizes)
    bare = CALIBRATED.with_values(
        {
            "kernels.launch_seconds": 5e-6,
            "host.step_seconds": 0.015,
            "host.sync_seconds": 2e-4,
            **unpaced,
            "attention.launch_seconds": 20e-6,
            "memory.context_bytes": 1e9,
            "memory.buffer_bytes": 1e7,
            "memory.communication_bytes": 7e8,
        }
    )
    with_host = replace(
        system,
        accelerator=replace(system.accelerator, host_bandwidth=50e9 * BYTE / SECOND, fp8_flops=2e15 / SECOND),
    )
    plain = tc.load_system("h200-nvs8")
    plain = replace(plain, accelerator=replace(plain.accelerator, host_bandwidth=50e9, fp8_flops=2e15))
    degrees = {"tp": 2.0, "fast_tp": 2.0, "pp": 2.0, "dp": 8.0, "fast_dp": 2.0}
    plan = with_load(Plans(**degrees | choices), model)
    totals = []
    for machine, assumptions in ((with_host, assumed), (plain, bare)):
        whole = parts(model, plan, assumptions)
        costs = {
            part: cost_part(time_part(ops, plan, machine, assumptions), plan) for part, ops in whole.items()
        }
        held = {part: Footprint.from_operations(ops, plan) for part, ops in whole.items()}
        where = stages(model, plan)
        totals.append(
            (step(costs, plan, where, 256, machine, assumptions), memory(held, plan, where, 256, assumptions))
        )
    (time, bytes_held), (time_bare, bytes_bare) = totals
    assert time.seconds.check("[time]")
    assert time.seconds.to(SECOND).magnitude == pytest.approx(time_bare.seconds, rel=1e-12)
    for component, value in bytes_held.items():
        assert value == 0 or value.units == BYTE, component
        assert (
            (value / BYTE).to("") == pytest.approx(bytes_bare[component], rel=1e-12)
            if value
            else bytes_bare[component] == 0
        )
