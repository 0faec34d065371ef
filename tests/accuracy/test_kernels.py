"""Tables of timed kernels: what is read, which rate is found, and how far predictions are off."""

import csv

import numpy as np
import pytest

from traincast.accuracy.kernels import validate_kernels
from traincast.catalog.load import load_system
from traincast.catalog.software_stacks import calibrated
from traincast.core.errors import InputError
from traincast.times.collectives import collective
from traincast.times.process_groups import Group

# products of an A100 and an H100: NVIDIA aiconfigurator, systems/data, TensorRT-LLM 1.0 and 1.3
PRODUCTS = "tests/data/kernels.csv"


@pytest.fixture(scope="module")
def products():
    return {(group.machine, group.dtype): group for group in validate_kernels([PRODUCTS]).groups}


def test_products_of_an_engine_are_predicted_within_the_target(products):
    """Target: 6 % with one rate for an accelerator and type; 1.5 times that with the other's rate."""
    hopper = products["h100-sxm-80", "bfloat16"], products["h100-sxm-80", "fp8"]
    for group in hopper:
        assert group.own < 0.06
        assert group.own <= group.catalogue
    assert products["h100-sxm-80", "bfloat16"].rate > 1.1  # at rest, no power limit acts
    assert set(products) == {("a100-sxm-80", "bfloat16"), *((group.machine, group.dtype) for group in hopper)}


def test_small_kernels_stand_apart(products):
    group = products["h100-sxm-80", "bfloat16"]
    assert group.bands[0] > group.own  # of less than 3e10 FLOP: start-up, and tiles that fill no wave


def write(path, columns):
    names, rows = list(columns), zip(*columns.values(), strict=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def test_the_rate_of_links_is_found(tmp_path):
    """All-gathers of a machine whose links carry half: long ones take twice as long, so the rate is 0.5."""
    system, n = load_system("dgx-b200"), 25
    V = np.geomspace(1e9, 8e9, n)
    assumed = calibrated().with_values({"collectives.launch_share": 1.0, "collectives.skew_seconds": 0.0})
    group = Group(np.full(n, 8.0), tuple(np.full(n, 8.0) for _ in system.tiers[:-1]))
    seconds = 2 * np.asarray(collective("all-gather", V, group, system, assumed))
    table = {
        "system": ["b200_sxm"] * n,
        "op_name": ["all_gather"] * n,
        "nccl_dtype": ["half"] * n,
        "num_gpus": [8] * n,
        "message_size": V / 2,
        "latency_ms": 1e3 * seconds,
    }
    (found,) = validate_kernels([write(tmp_path / "nccl.csv", table)]).groups
    assert found.rate == pytest.approx(0.5, rel=0.02)
    assert found.own < 0.01 < found.catalogue
    assert found.left_out is None  # no other machine


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InputError, match="no such file or folder"):
        validate_kernels([tmp_path / "none.csv"])
    with pytest.raises(InputError, match=r"other\.csv: its columns are those of no kernel"):
        validate_kernels([write(tmp_path / "other.csv", {"system": ["h100_sxm"], "latency_ms": [1.0]})])
    unknown = {"system": ["x9"], "op_name": ["all_gather"], "nccl_dtype": ["half"], "num_gpus": [2]}
    unknown |= {"message_size": [4096], "latency_ms": [0.01]}
    with pytest.raises(InputError, match="x9: no such system here"):
        validate_kernels([write(tmp_path / "unknown.csv", unknown)])
    for rows in ("1,2,3", "1"):
        (tmp_path / "ragged.csv").write_text(f"system,latency_ms\nh100_sxm,1.0\n{rows}\n")
        with pytest.raises(InputError, match=r"ragged\.csv: row 3 has other cells than the header's columns"):
            validate_kernels([tmp_path / "ragged.csv"])
