"""Tables of timed kernels: what is read, which rate is found, and how far predictions are off."""

import csv

import numpy as np
import pytest

from traincast.accuracy.kernels import ENGINE, engine, groups_of, validate_kernels
from traincast.catalog.documents import read_document
from traincast.catalog.load import load_accelerator, load_system
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


def experts(tmp_path, **changed):
    """Predicted times of experts of one layer on an H100 [s]."""
    table = {"num_tokens": 4096, "hidden_size": 4096, "inter_size": 2048, "topk": 8, "num_experts": 128}
    table |= {"moe_tp_size": 1, "moe_ep_size": 1, "moe_dtype": "bfloat16", "distribution": "balanced"}
    table |= {"kernel_source": "triton", "system": "h100_sxm", "latency_ms": 1.0} | changed
    (group,), _ = groups_of(
        [write(tmp_path / "moe.csv", {name: [value] * 20 for name, value in table.items()})]
    )
    return group


def moved(group, **passes):
    """Return the time of some passes over a group's data alone [s]."""
    known = dict(engine("experts", "triton bfloat16 sm90")) | dict.fromkeys(("tokens", "copies", "rows"), 0.0)
    return (group.predict(1.0, known | passes) - group.predict(1.0, known))[0]


def test_the_hottest_rank_has_most_of_a_power_law(tmp_path):
    """Drawn by hand: 8 ranks of 2 experts, loads x^-1.2 from 1 to 0.8 of 4096 tokens."""
    draws = np.random.default_rng(1).random((20_000, 16))
    law = ((0.8 * 4096) ** -0.2 - 1) * draws + 1
    loads = (law**-5).reshape(-1, 8, 2).sum(axis=2)
    most = 8 * (loads.max(axis=1) / loads.sum(axis=1)).mean()
    shape = {"hidden_size": 8192, "num_experts": 16, "topk": 1, "moe_ep_size": 8}
    balanced, skewed = (
        moved(experts(tmp_path, distribution=loads, **shape), rows=1.0)
        for loads in ("balanced", "power_law_1.2")
    )
    assert skewed / balanced == pytest.approx(most, rel=0.05)


def test_traffic_of_all_tokens_does_not_shrink_with_the_ranks(tmp_path):
    """2 T e (tokens + 8 copies) bytes on one rank of 2 as on one alone."""
    expected = 2 * 4096 * 4096 * (3 + 8 * 0.5) / load_accelerator("h100-sxm-80").hbm_bandwidth
    for ranks in (1, 2):
        group = experts(tmp_path, moe_ep_size=ranks)
        assert moved(group, tokens=3.0, copies=0.5) == pytest.approx(expected, rel=1e-9)


def test_attention_writes_keys_and_values_to_a_cache(tmp_path):
    """By hand: 64 sequences of 8192 tokens, 8 heads of 64 that count as 128 wide, 2 passes of 8 bytes."""
    table = {"batch_size": 64, "isl": 8192, "num_heads": 8, "num_key_value_heads": 8, "head_dim": 64}
    table |= {"kernel_source": "vllm_flash_attn_fa3", "kv_cache_dtype": "bfloat16", "window_size": 0}
    table |= {"attn_dtype": "bfloat16", "system": "h100_sxm", "latency_ms": 1.0}
    columns = {name: [value] * 20 for name, value in table.items()}
    (group,), _ = groups_of([write(tmp_path / "attention.csv", columns)])
    known = dict(engine("attention", "fa3 sm90"))
    without = known | {"token_bytes": 0.0, "cache_passes": 0.0}
    written = group.predict(1.0, known | {"token_bytes": 1e3, "cache_passes": 2.0}) - group.predict(
        1.0, without
    )
    nbytes = 64 * 8192 * (1e3 + 2 * 8 * 8 * 128)
    assert written[0] == pytest.approx(nbytes / load_accelerator("h100-sxm-80").hbm_bandwidth, rel=1e-9)


def test_every_constant_of_the_engine_has_an_interval():
    for families in read_document(ENGINE).values():
        for constants in families.values():
            for entry in constants.values():
                assert set(entry) == {"value"} or entry["low"] <= entry["value"] <= entry["high"]


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
