"""Errors and core values: clear refusals; errors survive pickling; values compare, hash and copy."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

import traincast as tc
from traincast.core.errors import MissingExtra

TIER = {"name": "links", "bandwidth": 4.5e11, "efficiency": 0.7, "latency": 2e-6}
CHIP = {"name": "chip", "matrix_flops": 1e15, "vector_flops": 1e14, "hbm_bandwidth": 3e12, "hbm_bytes": 8e10}


@pytest.mark.parametrize(
    "error",
    [
        tc.InputError("plan", ["tp = 0: must be a whole number of at least 1", "dp = x"]),
        tc.NothingFits("nothing fits"),
        MissingExtra("polars is not installed"),
    ],
)
def test_errors_survive_pickle_and_are_caught_by_their_base(error):
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert getattr(other, "problems", None) == getattr(error, "problems", None)
    assert isinstance(error, tc.TraincastError)
    assert isinstance(error, ValueError) == isinstance(error, tc.InputError)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: tc.Tier(**TIER | {"bandwidth": -1}), "bandwidth = -1: must be above 0"),
        (lambda: tc.Tier(**TIER | {"bandwidth": float("nan")}), "bandwidth = nan: must be above 0"),
        (lambda: tc.Tier(**TIER | {"bandwidth": "450 GB/s"}), "'450 GB/s': must be a number in byte/s"),
        (lambda: tc.Tier(**TIER | {"bandwidth": None}), "bandwidth = None: must be a number in byte/s"),
        (lambda: tc.Tier(**TIER | {"latency": -1e-9}), "latency = -1e-09: must be at least 0"),
        (lambda: tc.Accelerator(**CHIP | {"hbm_bytes": 0}), "hbm_bytes = 0: must be above 0"),
        (lambda: tc.Accelerator(**CHIP | {"processors": 1.5}), "processors = 1.5: must be a whole number"),
        (lambda: tc.Accelerator(**CHIP | {"power": np.array([7e2, -1.0])}), "power = array.*: must be above"),
        (lambda: replace(tc.load_model("gpt3-1t"), layers="8"), "layers = '8': must be a whole number"),
        (lambda: replace(tc.load_model("gpt3-1t"), layers=None), "layers = None: must be a whole number"),
        (lambda: replace(tc.load_model("gpt3-1t"), experts={"experts": 8}), "experts = .*must be Experts"),
        (lambda: replace(tc.load_system("dgx-h100"), price="x"), "price = 'x': must be a number in"),
        (lambda: replace(tc.load_system("dgx-h100"), pue=0.9), "pue = 0.9: must be at least 1"),
        (lambda: tc.Plans(tp=[1, 2]), "tp = .*: must be a number or an array"),  # type: ignore[arg-type]
        (lambda: tc.Plans(tp=np.ones(2), dp=np.ones(3)), "columns of different lengths: tp 2, dp 3"),
    ],
)  # fmt: skip
def test_wrong_types_and_impossible_values_are_input_errors(make, problem):
    with pytest.raises(tc.InputError, match=problem):
        make()


def test_whole_numbers_in_columns_become_floats():
    plans = tc.Plans(tp=np.array([2, 4]), dp=3)
    assert plans.tp.dtype == np.float64
    assert type(plans.dp) is float
    assert plans.fast_tp == 1.0


def test_core_values_compare_hash_copy_and_pickle():
    system = tc.load_system("dgx-h100")
    columns = system.with_figures({"accelerator.power": np.array([600.0, 700.0])})
    plans = tc.Plans(tp=np.array([2.0, 4.0]))
    for value in (
        system,
        columns,
        system.accelerator,
        system.fast,
        tc.load_model("deepseek-v3"),
        tc.Plan(tp=8),
        plans,
    ):
        for other in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
            assert other == value
            assert hash(other) == hash(value)
    assert columns != system
    assert plans != tc.Plans(tp=np.array([2.0, 8.0]))
    assert plans != tc.Plans(tp=np.ones(3))
