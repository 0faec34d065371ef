"""The formulas on quantities with units: bytes stay bytes, and times come out in seconds."""

from dataclasses import fields, replace

import pint
import pytest

import traincast as tc
from traincast.assumptions import PAPER
from traincast.memory import Footprint, memory
from traincast.operations.layers import layer
from traincast.plan import STRATEGIES, Plans
from traincast.step import cost_layer, step, time_layer

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
    return replace(PAPER, element_bytes=2.0 * BYTE, mask_bytes=1.0 * BYTE, launch_seconds=20e-6 * SECOND)


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
    tiers = [replace(tier, bandwidth=tier.bandwidth * BYTE / SECOND, latency=tier.latency * SECOND) for tier in plain.tiers]
    return replace(plain, accelerator=chip, tiers=tuple(tiers))


@pytest.fixture(params=ATTENTION, ids="-".join)
def plan(request):
    strategy, attention, recompute = request.param
    second = {"summa": {"tp2": 2.0, "panels": 8.0}, "context": {"cp": 2.0}}.get(strategy, {})
    degrees = {"tp": 4.0, "fast_tp": 4.0, "pp": 4.0, "dp": 8.0, "fast_dp": 2.0, "mbs": 2.0} | second
    return Plans(**degrees, **STRATEGIES[strategy].choices, attention=attention, recompute=recompute)


def test_counts(gpt, plan, assumed):
    for op in layer(gpt, plan, assumed):
        for work in (op.forward, op.backward):
            assert isinstance(work.flops("matrix") + work.flops("vector"), float)  # a number of FLOP, no unit
            assert work.nbytes.units == BYTE
            assert all(one.nbytes.units == BYTE for one in work.collectives)
        for held in (op.weight_bytes, op.saved_bytes):
            assert held == 0 or held.units == BYTE


def test_times_and_memory(gpt, plan, assumed, system):
    operations = layer(gpt, plan, assumed)
    timed = time_layer(operations, plan, system, assumed)
    for one in timed:
        assert all((one.forward.total.check("[time]"), one.backward.total.check("[time]")))
    time = step(cost_layer(timed), plan, gpt.layers, 4096, system, assumed)
    for field in fields(time):
        assert getattr(time, field.name).check("[time]"), field.name
    held = memory(Footprint.of(operations), plan, gpt.layers, 4096, assumed)
    assert all(value.units == BYTE for value in held.values())


def test_the_units_change_no_number(gpt, plan, assumed, system):
    with_units = step(
        cost_layer(time_layer(layer(gpt, plan, assumed), plan, system, assumed)), plan, gpt.layers, 4096, system, assumed
    )
    bare = tc.load_system("h200-nvs8")
    without = step(cost_layer(time_layer(layer(gpt, plan, PAPER), plan, bare, PAPER)), plan, gpt.layers, 4096, bare, PAPER)
    assert with_units.seconds.to(SECOND).magnitude == pytest.approx(without.seconds, rel=1e-12)
