"""Logs of DeepSpeed. Logs are written here in the form that the tool gives them; every figure is invented."""

import json

import pytest

import traincast as tc
from log_files import CLUSTER, example, row, written
from traincast.accuracy.logs import read
from traincast.accuracy.runs import run

GIVEN = {
    "model": "llama-3-8b",
    "seq": 4096,
    "recompute": "full",
    "gpu": "h100-sxm-80",
}  # what the example leaves open


def test_deepspeed_example():
    cells = row(CLUSTER / "deepspeed.log", **GIVEN)
    expected = {
        "stack": "deepspeed-2025", "model": "llama-3-8b", "hidden": "4096", "gpus": "16", "dp": "16",
        "tp": "1", "pp": "1", "zero": "3", "mbs": "2", "gbs": "128", "seq": "4096", "precision": "bf16",
        "recompute": "full", "memory_gb_published": "57.92", "memory_kind": "allocated",
    }  # fmt: skip
    assert {name: cells[name] for name in expected} == expected
    rates = [
        float(line.split("CurrSamplesPerSec=")[1].split(",")[0])
        for line in example("deepspeed.log").splitlines()
        if "Curr" in line
    ]
    assert min(rates[3:]) <= 128 / float(cells["step_seconds"]) <= max(rates[3:])
    same = row(CLUSTER / "deepspeed.log", config=CLUSTER / "ds_config.json", **GIVEN)
    assert same == cells


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        (
            "[INFO] [timer.py:189:stop] 0/{i}, SamplesPerSec=32.0, MemAllocated=1GB, MaxMemAllocated=9.02GB",
            "4",
        ),
        ("step:  {i:>5} /  1000 loss: 2.3456 iter time (s): 3.500 samples/sec: 36.571 eta: 1h", "3.5"),
        ("steps: {i} loss: 2.3456 iter time (s): 3.500 samples/sec: 36.571", "3.5"),
        (
            "time (ms) | fwd: 900.10 | bwd: 2000.20 | bwd_inner: 1900.0 | bwd_allreduce: 100.0 | step: 99.70",
            "3",
        ),
    ],
)
def test_other_lines_of_deepspeed(tmp_path, line, seconds):
    text = "".join(line.format(i=10 * i) + "\n" for i in range(1, 9))
    config = CLUSTER / "ds_config.json"
    cells = row(written(tmp_path, "ds.log", text), config=config, gpus=16, gbs=128, pp=1, **GIVEN)
    assert (cells["step_seconds"], cells["zero"], cells["mbs"], cells["precision"]) == (
        seconds,
        "3",
        "2",
        "bf16",
    )


@pytest.mark.parametrize(
    ("config", "listed", "precision"),
    [
        ({"bf16": {"enabled": True}}, "", "bf16"),
        ({"fp16": {"enabled": True}}, "", "fp16"),
        ({}, "", "fp32"),
        ({"bf16": {"enabled": "auto"}}, "[config.py:1:print]   bfloat16_enabled ............. True", "bf16"),
        (
            {"bf16": {"enabled": "auto"}},
            "[config.py:1:print]   float16_config ............... enabled=True auto_cast=False",
            None,
        ),
        ({"bf16": {"enabled": "auto"}}, "", None),
    ],
)
def test_precision_of_deepspeed(tmp_path, config, listed, precision):
    text = (
        listed
        + "\n"
        + "".join(f"steps: {i} loss: 2.0 iter time (s): 3.5 samples/sec: 36\n" for i in range(1, 9))
    )
    path = written(
        tmp_path,
        "ds.json",
        json.dumps(json.loads(example("ds_config.json")) | {"bf16": {"enabled": False}} | config),
    )
    given_here = GIVEN | {"gpus": 16, "gbs": 128, "pp": 1}
    if precision:
        assert row(written(tmp_path, "ds.log", text), config=path, **given_here)["precision"] == precision
    else:
        with pytest.raises(tc.InputError, match="precision: the log does not say"):
            read(written(tmp_path, "ds.log", text), config=path, **given_here)


def test_a_configuration_printed_on_one_line(tmp_path):
    printed = f"[INFO] configuration: {json.dumps(json.loads(example('ds_config.json')))}\n"
    steps = "".join(f"steps: {i} loss: 2.0 iter time (s): 3.5 samples/sec: 36\n" for i in range(1, 9))
    cells = row(written(tmp_path, "ds.log", printed + steps), gpus=16, gbs=128, pp=1, **GIVEN)
    assert (cells["zero"], cells["mbs"], cells["precision"]) == ("3", "2", "bf16")


def test_deepspeed_does_not_know_the_model(tmp_path):
    with pytest.raises(tc.InputError) as error:
        read(CLUSTER / "deepspeed.log")
    assert [problem.split(":")[0] for problem in error.value.problems] == [
        "layers",
        "hidden",
        "heads",
        "mlp",
        "seq",
        "gpu",
        "recompute",
    ]


def test_software_of_a_log():
    assert run.read_run(row(CLUSTER / "deepspeed.log", **GIVEN)).stack == "deepspeed-2025"
