"""Checkpoints and failures: hand values, Daly's published optima, and properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traincast.core.precision import OPTIMIZERS, PRECISIONS
from traincast.step.goodput import (
    bytes_per_parameter,
    checkpoint_seconds,
    daly_interval,
    goodput,
    mtbf_seconds,
    young_interval,
)

MINUTE, HOUR = 60.0, 3600.0
writes = st.floats(1, 600)
mtbfs = st.floats(HOUR, 1000 * HOUR)
restarts = st.floats(0, 1800)


def test_hand_values():
    """16,384 GPUs of 50,000 h each: 10,986 s; 405e9 × 14 bytes at 1 GB/s each: 0.346 s; √(2 × 60 × 10,800) =
    1138.4 s."""
    assert mtbf_seconds(50_000, 16_384) == pytest.approx(10_986.3, abs=0.1)
    assert checkpoint_seconds(405e9 * 14, 1e9, 16_384) == pytest.approx(0.34607, abs=1e-5)
    assert young_interval(60.0, 10_800.0) == pytest.approx(1138.42, abs=0.01)
    # τ = 3000 s, C = 100 s, R = 500 s, M = 10,000 s: 0.3 / (e^0.05 × (e^0.31 − 1)) = 0.3 / (1.051271 ×
    # 0.363425) = 0.785220
    assert goodput(3000.0, 100.0, 500.0, 10_000.0) == pytest.approx(0.785220, abs=1e-6)


def test_bytes_of_a_parameter():
    """Weight 2, master 4, two moments 8 (arXiv 1910.02054, section 3.1: 16 with a gradient of 2); fp32 4 + 8;
    bf16 2 + 4."""
    assert bytes_per_parameter(PRECISIONS["bf16"], OPTIMIZERS["adam"]) == 14
    assert bytes_per_parameter(PRECISIONS["fp32"], OPTIMIZERS["adam"]) == 12
    assert bytes_per_parameter(PRECISIONS["bf16-pure"], OPTIMIZERS["adam-bf16"]) == 6
    assert bytes_per_parameter(PRECISIONS["fp8"], OPTIMIZERS["adam"]) == 14  # casts are recomputed


@pytest.mark.parametrize(("mtbf", "minutes"), [(24 * HOUR, 117), (6 * HOUR, 57), (15 * MINUTE, 9.1)])
def test_dalys_optima(mtbf, minutes):
    """Daly 2006, figures 3 to 5: checkpoints of 5 min."""
    assert daly_interval(5 * MINUTE, mtbf) / MINUTE == pytest.approx(
        minutes, abs=0.5 if minutes > 10 else 0.05
    )


def test_writes_longer_than_twice_the_mtbf_are_spaced_by_it():
    """Daly 2006, equation 37's second case."""
    assert daly_interval(3 * HOUR, HOUR) == HOUR


@given(writes, restarts, mtbfs)
def test_the_interval_loses_least(write, restart, mtbf):
    """Over a fine grid of intervals, Young's and Daly's reach the best share: Daly's to 1e-6 × C/M, both for
    C well below M."""
    grid = young_interval(write, mtbf) * np.geomspace(0.2, 5, 2001)
    best = goodput(grid, write, restart, mtbf).max()
    ratio = write / mtbf
    assert goodput(daly_interval(write, mtbf), write, restart, mtbf) >= best * (1 - 1e-3 * ratio)
    assert goodput(young_interval(write, mtbf), write, restart, mtbf) >= best * (1 - ratio)


@given(writes, mtbfs)
def test_young_is_daly_to_first_order_and_balances_two_losses(write, mtbf):
    """The waste C/τ + τ/2M is least where both are equal (Young 1974)."""
    interval = young_interval(write, mtbf)
    assert write / interval == pytest.approx(interval / (2 * mtbf))
    assert daly_interval(write, mtbf) == pytest.approx(interval, rel=1.1 * np.sqrt(write / mtbf))


@given(st.floats(60, 1e5), writes, restarts, mtbfs, st.floats(1.01, 10))
def test_worse_machines_train_less(interval, write, restart, mtbf, worse):
    share = goodput(interval, write, restart, mtbf)
    assert 0 <= goodput(interval, write, restart, mtbf / worse) < share < 1
    assert goodput(interval, write * worse, restart, mtbf) < share
    assert goodput(interval, write, (restart + 1) * worse, mtbf) < share


def test_without_failures_only_writing_is_lost_and_hopeless_runs_do_not_overflow():
    assert goodput(1000.0, 10.0, 300.0, 1e15) == pytest.approx(1000 / 1010)
    assert goodput(1e6, 10.0, 300.0, 1.0) == 0


def test_columns_equal_single_numbers():
    mtbf = np.array([1e4, 1e5, 1e6])
    share = goodput(young_interval(60.0, mtbf), 60.0, 300.0, mtbf)
    assert share.tolist() == [goodput(young_interval(60.0, m), 60.0, 300.0, m) for m in mtbf.tolist()]
    assert isinstance(young_interval(60.0, 1e4), float)
