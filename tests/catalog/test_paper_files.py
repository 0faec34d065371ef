"""Machines and models as the reference code of arXiv 2410.00273 writes them."""

import json

import pytest

import traincast as tc
from traincast.core.errors import InputError

# systems/config-A100.json and models.py of the reference code
A100 = {
    "matrix_flops_fp16": 312, "vector_flops_fp32": 19.5, "vector_flops_fp16": 78, "hbm_bandwidth": 1555,
    "hbm_capacity": 80, "nvlink_bandwidth": 300, "nvlink_eff": 0.7, "nvlink_latency": 2.5e-06,
    "ib_bandwidth": 25, "ib_eff": 0.7, "ib_latency": 5e-06, "nvlink_size": 4, "nic_factor": 1,
    "empirical": False, "summa_nb": 4, "element_size": 2e-09, "mask_element_size": 1e-09,
    "flops_units": 1e-12,
}  # fmt: skip
GPT3_1T = {"l": 2048, "e": 25600, "h": 160, "depth": 128}


def write(folder, name, content):
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def test_a_machine_equals_that_of_the_catalogue(tmp_path):
    read = tc.load_system(write(tmp_path, "config-A100.json", A100))
    assert read.name == "a100-nvs4"
    assert read.figures() == tc.load_system("a100-nvs4").figures()


def test_a_model_equals_that_of_the_catalogue(tmp_path):
    read, known = tc.load_model(write(tmp_path, "gpt.json", GPT3_1T)), tc.load_model("gpt3-1t")
    assert (read.parameters, read.seq, read.ffn) == (known.parameters, known.seq, known.ffn)


def test_the_published_optimum_with_both_files(tmp_path):
    """The first configuration of exec_1d_gpt3_1T_A100-NVS4.npy: 512 GPUs, 614.2018866732147 s."""
    model, system = write(tmp_path, "gpt.json", GPT3_1T), write(tmp_path, "config-A100.json", A100)
    found = tc.search(model, system, gpus=512, gbs=4096, strategy="1d", assumptions="paper-published")
    assert found.least_seconds == pytest.approx(614.2018866732147, rel=1e-12)


def test_mistakes_are_all_named(tmp_path):
    wrong = A100 | {"empirical": True, "cows": 3, "nvlink_eff": "fast"}
    del wrong["hbm_capacity"]
    with pytest.raises(InputError) as error:
        tc.load_system(write(tmp_path, "config-A100.json", wrong))
    parts = ("hbm_capacity: is missing", "cows: unknown", "nvlink_eff = 'fast'", "empirical = True")
    assert all(part in str(error.value) for part in parts)
    with pytest.raises(InputError, match=r"depth = 1.5: must be a whole number"):
        tc.load_model(write(tmp_path, "model.json", GPT3_1T | {"depth": 1.5}))
