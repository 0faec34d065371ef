"""Logs of torchtitan. Logs are written here in the form that the tool gives them;
every figure is invented."""

import pytest

import traincast as tc
from log_files import CLUSTER, example, row, written
from traincast.accuracy.logs import read
from traincast.accuracy.logs.torchtitan import KNOWN_MODELS
from traincast.accuracy.runs import run


def test_torchtitan_example():
    cells = row(CLUSTER / "torchtitan.log")
    expected = {
        "stack": "torchtitan", "model": "llama-3-8b", "layers": "32", "ffn": "14336", "gpu": "h100-sxm-80",
        "gpus": "16", "dp": "16", "tp": "1", "pp": "1", "zero": "3", "mbs": "2", "gbs": "32", "seq": "8192",
        "precision": "bf16", "recompute": "per-op",
        "memory_gb_published": "60.88", "memory_kind": "reserved", "steps_measured": "8",
    }  # fmt: skip
    assert {name: cells[name] for name in expected} == expected
    rate = float(cells["tokens_per_s_per_gpu"])
    assert float(cells["step_seconds"]) == pytest.approx(
        32 * 8192 / 16 / rate, rel=1e-5
    )  # tps is of one device


def test_torchtitan_of_another_age(tmp_path):
    """A mesh by its names, the model by its class, no settings in the log, but in a file next to it."""
    text = """
[rank0]:2025-01-01 - root - INFO - Starting job: x
[rank0]:2025-01-01 - root - INFO - CUDA capacity: NVIDIA H100 with 95.00GiB memory
[rank0]:2025-01-01 - root - INFO - Building 2-D device mesh with ['dp', 'tp'], [4, 2]
[rank0]:2025-01-01 - root - INFO - Building llama3 8B with ModelArgs(dim=4096, n_layers=32, n_heads=32, \
n_kv_heads=8, vocab_size=128256, multiple_of=1024, ffn_dim_multiplier=1.3, norm_eps=1e-05)
[rank0]:2025-01-01 - root - INFO - Training starts at step 1, with local batch size 2, global batch size 8, \
sequence length 4096, total steps 9
"""
    text += "".join(
        f"[rank0]:INFO - step: {i:2}  loss: 9.1  memory: 42.08GiB(30.10%)  tps: {6000 + i}  mfu: 8.65%\n"
        for i in range(1, 10)
    )
    config = written(
        tmp_path,
        "run.toml",
        '[training]\ntensor_parallel_degree = 2\n[activation_checkpoint]\nmode = "full"\n',
    )
    cells = row(written(tmp_path, "titan.log", text), config=config)
    expected = {
        "layers": "32", "ffn": "14336", "gpu": "h100-96-hbm2e-500w", "gpus": "8", "tp": "2", "dp": "4",
        "zero": "3", "mbs": "2", "gbs": "8", "seq": "4096", "recompute": "full",
        "tokens_per_s_per_gpu": "6006.5",
    }  # fmt: skip
    assert {name: cells[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            ("dp_replicate=1, dp_shard=16", "dp_replicate=2, dp_shard=8"),
            {"zero": "hsdp", "gpus": "16", "gbs": "32"},
        ),
        (('"fsdp_reshard_after_forward": "default"', '"fsdp_reshard_after_forward": "never"'), {"zero": "2"}),
        (("dp_replicate=1, dp_shard=16", "dp_replicate=16, dp_shard=1"), {"zero": "0"}),
        (
            ("pp=1, dp_replicate=1, dp_shard=16", "pp=4, dp_replicate=1, dp_shard=4"),
            {"zero": "1", "pp": "4", "mbs": "1", "gbs": "8"},
        ),
        (('"converters": []', '"converters": ["float8"]'), {"precision": "fp8"}),
        (
            ('"enable": true', '"enable": false'),
            {"compiled": "false", "notes": "median of 8 iterations; 3 of 11 iterations: warm-up"},
        ),
        (('"mode": "selective"', '"mode": "none"'), {"recompute": "none"}),
        (
            ("pp=1, dp_replicate=1, dp_shard=16", "pp=2, dp_replicate=1, dp_shard=8"),
            {"pp": "2", "vp": "1", "mbs": "1"},
        ),
        (('"global_batch_size": -1', '"global_batch_size": 64'), {"gbs": "64", "mbs": "2"}),
    ],
)
def test_settings_of_torchtitan(tmp_path, change, expected):
    assert change[0] in example("torchtitan.log")
    cells = row(written(tmp_path, "titan.log", example("torchtitan.log").replace(*change)))
    assert {name: cells[name] for name in expected} == expected


@pytest.mark.parametrize(("each", "vp"), [("", "2"), (', "pipeline_parallel_layers_per_stage": 4', "4")])
def test_interleaved_stages_of_torchtitan(tmp_path, each, vp):
    """34 layers with embedding and head in stages of 4 are 8.5 stages, 4 on each of 2 ranks;
    without a number, 2 on each."""
    text = example("torchtitan.log").replace(
        "pp=1, dp_replicate=1, dp_shard=16", "pp=2, dp_replicate=1, dp_shard=8"
    )
    schedule = f'"pipeline_parallel_schedule": "Interleaved1F1B"{each}, "tensor_parallel_degree": 1'
    cells = row(written(tmp_path, "titan.log", text.replace('"tensor_parallel_degree": 1', schedule)))
    assert (cells["pp"], cells["vp"]) == ("2", vp)


def test_validation_is_no_step(tmp_path):
    text = example("torchtitan.log")
    last = text.splitlines()[-2]
    other = last.replace("step:", "validate step:").replace("tps: ", "tps: 9")
    assert other != last
    assert row(written(tmp_path, "torchtitan.log", text + other + "\n" + other + "\n")) == row(
        CLUSTER / "torchtitan.log"
    )


def test_every_rank_of_torchtitan(tmp_path):
    text = "".join(
        line + "\n" + line.replace("[rank0]", "[rank1]") + "\n"
        for line in example("torchtitan.log").splitlines()
    )
    assert row(written(tmp_path, "torchtitan.log", text)) == row(CLUSTER / "torchtitan.log")


def test_models_that_torchtitan_names_are_in_the_catalogue():
    assert set(KNOWN_MODELS.values()) <= set(tc.model_names())
    # torchtitan 0.3.0, models/kimi_k2_7/__init__.py: the ModelSpec has another name than the module.
    for name in ("kimi_k2_5", "kimi_k2_7"):
        assert KNOWN_MODELS[name, "moonlight-16B-A3B"] == "moonlight-16b-a3b"


def test_recomputation_of_some_layers_only(tmp_path):
    text = example("torchtitan.log").replace('"selective_ac_option": "op"', '"selective_ac_option": "2"')
    with pytest.raises(tc.InputError, match="recompute: full, on one of 2 layers"):
        read(written(tmp_path, "titan.log", text))


def test_software_of_a_log(tmp_path):
    """As `traincast.accuracy.runs.run` reads the framework."""
    assert run.read_run(row(CLUSTER / "torchtitan.log")).stack == "torchtitan-2025"
    eager = example("torchtitan.log").replace('"enable": true', '"enable": false')
    assert run.read_run(row(written(tmp_path, "torchtitan.log", eager))).stack == "torchtitan-eager"
