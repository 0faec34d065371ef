"""Readers of what people already have. Logs are written here in the form the tools give them; every figure is invented."""

import contextlib
import csv
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traincast as tc
from traincast import measurements
from traincast.logs import CollectiveRows, GemmRows, TrainingRows, read
from traincast.logs.devices import KNOWN, NAMES, accelerator
from traincast.logs.nccl import operation
from traincast.logs.tables import TRAINING
from traincast.logs.text import lines, number, whole
from traincast.logs.torchtitan import MODELS

ROOT = Path(__file__).parents[1]
CLUSTER = ROOT / "examples" / "my_cluster"
GIVEN = {  # what the examples' files leave open
    "megatron.log": {"gpu": "h100-sxm-80"},
    "torchtitan.log": {},
    "deepspeed.log": {"model": "llama-3-8b", "seq": 4096, "recompute": "full", "gpu": "h100-sxm-80"},
    "all_reduce.txt": {},
    "gemm.csv": {},
    "runs.csv": {},
}


def written(folder, name, text):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def example(name):
    return (CLUSTER / name).read_text(encoding="utf-8")


def row(path, **kw):
    found = read(path, **kw)
    assert isinstance(found, TrainingRows)
    assert len(found.rows) == 1
    assert set(found.rows[0]) == set(TRAINING)
    return found.rows[0]


# Numbers


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("6,667", 6667), ("1,234.5", 1234.5), ("1.234,5", 1234.5), ("1 234,5", 1234.5),
        ("1\u202f234.5", 1234.5), ("1'234.5", 1234.5),
        ("12,5", 12.5), ("0,123", 0.123), ("1234,5", 1234.5), ("1.5e3", 1500), (" 7 ", 7), ("1.234", 1.234), (".5", 0.5),
        ("nan", None), ("inf", None), ("1e999", None), ("", None), ("x", None), ("1,2,3", None), ("1.2.3", None),
    ],
)  # fmt: skip
def test_numbers_of_any_locale(text, value):
    assert number(text) == value


def test_whole_numbers():
    assert [whole(one) for one in ("8", 8, "8.0", 8.5, "0", "-1", None, True, "1e300", "x")] == [8, 8, 8] + [None] * 7


def test_prefixes_of_ranks_and_progress_bars():
    text = "[rank3]:[titan] a\r\n[default7]: b\n5: c\n[1,12]<stdout>:d\nplain: e\rbar"
    assert lines(text) == [("3", "[titan] a"), ("7", "b"), ("5", "c"), ("12", "d"), ("", "plain: e"), ("", "bar")]


# Examples


def test_megatron_example():
    """Arguments read off the file by eye; the median of 17 iterations by the reader's own rule, counted here."""
    found = row(CLUSTER / "megatron.log", **GIVEN["megatron.log"])
    expected = {
        "stack": "Megatron-Core", "layers": "80", "hidden": "8192", "ffn": "28672", "heads": "64", "kv_heads": "8",
        "vocab": "129024",
        "seq": "8192", "mlp": "swiglu", "gpus": "256", "tp": "8", "sp": "True", "cp": "1", "ep": "1", "pp": "4", "vp": "1",
        "dp": "8",
        "zero": "1", "mbs": "1", "gbs": "128", "precision": "bf16", "recompute": "selective", "recompute_detail": "",
        "flash_attention": "True", "experts": "", "mla": "False", "memory_gb_published": "62.5", "memory_kind": "allocated",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    text = example("megatron.log")
    times = sorted(float(line.split("(ms): ")[1].split()[0]) for line in text.splitlines() if "elapsed" in line)[:-2]
    assert float(found["step_seconds"]) == pytest.approx(times[len(times) // 2] / 1000, rel=0.005)
    assert found["steps_measured"] == "17"
    assert 0 < float(found["step_spread"]) < 0.02
    assert "3 of 20 iterations: warm-up" in found["notes"]


def test_torchtitan_example():
    found = row(CLUSTER / "torchtitan.log")
    expected = {
        "stack": "torchtitan", "model": "llama-3-8b", "layers": "32", "ffn": "14336", "gpu": "h100-sxm-80", "gpus": "16",
        "dp": "16", "tp": "1", "pp": "1", "zero": "3", "mbs": "2", "gbs": "32", "seq": "8192",
        "precision": "bf16", "recompute": "selective", "recompute_detail": "selective (per-op SAC)",
        "memory_gb_published": "60.88", "memory_kind": "reserved", "steps_measured": "8",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    rate = float(found["tokens_per_s_per_gpu"])
    assert float(found["step_seconds"]) == pytest.approx(32 * 8192 / 16 / rate, rel=1e-5)  # tps is of one device


def test_deepspeed_example():
    found = row(CLUSTER / "deepspeed.log", **GIVEN["deepspeed.log"])
    expected = {
        "stack": "deepspeed-2025", "model": "llama-3-8b", "hidden": "4096", "gpus": "16", "dp": "16",
        "tp": "1", "pp": "1", "zero": "3",
        "mbs": "2", "gbs": "128", "seq": "4096", "precision": "bf16", "recompute": "full",
        "memory_gb_published": "57.92", "memory_kind": "allocated",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    rates = [
        float(line.split("CurrSamplesPerSec=")[1].split(",")[0]) for line in example("deepspeed.log").splitlines() if "Curr" in line
    ]
    assert min(rates[3:]) <= 128 / float(found["step_seconds"]) <= max(rates[3:])
    same = row(CLUSTER / "deepspeed.log", config=CLUSTER / "ds_config.json", **GIVEN["deepspeed.log"])
    assert same == found


def test_nccl_example():
    found = read(CLUSTER / "all_reduce.txt")
    assert isinstance(found, CollectiveRows)
    assert len(found.rows) == 18
    first, last = found.rows[0], found.rows[-1]
    assert (first.op, first.nodes, first.gpus_per_node, first.ranks, first.size_bytes) == ("allreduce", 2, 8, 16, 65536)
    assert (first.time_us, last.time_us) == (32.6, 45399.9)  # out of place, off the file by eye
    assert (last.size_bytes, last.gpu) == (2.0**33, "NVIDIA H100 80GB HBM3")


def test_gemm_example():
    found = read(CLUSTER / "gemm.csv")
    assert isinstance(found, GemmRows)
    assert len(found.rows) == 18
    one = found.rows[8]
    assert (one.m, one.n, one.k, one.batch, one.dtype, one.time_us) == (512, 4096, 14336, 8, "bf16", 722.0)


def test_every_example_run_can_be_predicted():
    runs = [
        one
        for name in ("runs.csv", "megatron.log", "torchtitan.log", "deepspeed.log")
        for one in read(CLUSTER / name, **GIVEN[name]).rows
    ]
    for one in runs:
        run = measurements.read(one)
        assert run.system.name == tc.load_system("dgx-h100").name
        est = tc.estimate(run.model, run.system, run.plan, run.gbs, run.stack)
        assert 0.4 < est.step_seconds / run.step_seconds < 2.5  # invented from a prediction of one day, × 1.05


def test_the_example_says_that_it_is_invented():
    assert "Every figure in this folder is invented" in example("README.md")
    assert {one["notes"] for one in read(CLUSTER / "runs.csv").rows} == {"invented"}


def test_my_runs_holds_rows_that_are_skipped_with_a_reason():
    report = tc.validate(ROOT / "tests" / "data" / "my_runs.csv")
    told = {one.id: one.skipped for one in report.predictions}
    assert [name for name, reason in told.items() if reason is None] == ["mine-1", "mine-2", "mine-3", "mine-4"]
    assert "gbs is not known" in told["mine-5"]
    assert "abacus-1" in told["mine-6"]
    found = read(ROOT / "tests" / "data" / "my_runs.csv")
    assert [one["id"] for one in found.rows] == ["mine-1", "mine-2", "mine-3", "mine-4"]
    assert found.left_out == tuple(f"{name}: {told[name]}" for name in ("mine-5", "mine-6"))
    assert read(ROOT / "tests" / "data" / "my_runs.csv", gbs=64).rows[4]["gbs"] == "64"


# Megatron and what comes of it

ARGUMENTS = {
    "num_layers": 24, "hidden_size": 2048, "ffn_hidden_size": 8192, "num_attention_heads": 16, "num_query_groups": 1,
    "group_query_attention": False, "kv_channels": 128, "seq_length": 2048, "padded_vocab_size": 51200, "swiglu": False,
    "world_size": 16, "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "context_parallel_size": 1,
    "expert_model_parallel_size": 1, "micro_batch_size": 2, "global_batch_size": 64, "bf16": True, "fp16": False, "fp8": None,
    "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1, "sequence_parallel": False,
    "use_distributed_optimizer": False, "num_experts": None, "moe_router_topk": 2, "moe_layer_freq": 1, "use_flash_attn": False,
    "attention_backend": "AttnBackend.unfused", "virtual_pipeline_model_parallel_size": None,
}  # fmt: skip


def megatron(times=(9, 5, 5, 2, 2, 2, 2.2), gbs=64, prefix="", **changed):
    dump = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in (ARGUMENTS | changed).items()]
    steps = [
        f" [2000-01-01 00:00:00] iteration {i:8d}/     100 | consumed samples: {64 * i:12d} "
        f"| elapsed time per iteration (ms): {1000 * time:.1f} | learning rate: 1.0E-05 | global batch size: {gbs:5d} "
        "| lm loss: 1.0E+01 | number of nan iterations:   0 |"
        for i, time in enumerate(times, start=1)
    ]
    text = ["-------- arguments --------", *dump, "-------- end of arguments --------", *steps]
    return "".join(f"{prefix}{line}\n" for line in text)


def of_megatron(folder, text, **kw):
    return row(written(folder, "run.log", text), gpu="a100-sxm-80", **kw)


def test_warm_up_is_skipped_and_the_median_taken(tmp_path):
    found = of_megatron(tmp_path, megatron())
    assert (found["step_seconds"], found["steps_measured"]) == ("2", "4")
    assert of_megatron(tmp_path, megatron(), warm_up=0)["step_seconds"] == "2.2"
    short = of_megatron(tmp_path, megatron(times=(9,)))
    assert (short["step_seconds"], short["step_spread"], short["steps_measured"]) == ("9", "0", "1")


def test_query_groups_count_only_where_attention_is_grouped(tmp_path):
    assert of_megatron(tmp_path, megatron())["kv_heads"] == "16"
    assert of_megatron(tmp_path, megatron(group_query_attention=True, num_query_groups=4))["kv_heads"] == "4"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, {"recompute": "full", "zero": "0", "mlp": "gelu", "flash_attention": "False", "precision": "bf16", "moe_detail": ""}),
        ({"recompute_granularity": None}, {"recompute": "none"}),
        (
            {"recompute_granularity": "selective", "recompute_modules": "['layernorm', 'moe_act']"},
            {"recompute_detail": "selective:layernorm+moe_act"},
        ),
        ({"recompute_method": "block", "recompute_num_layers": 12}, {"recompute": "full"}),
        ({"num_layers_per_virtual_pipeline_stage": 3}, {"vp": "4"}),
        ({"virtual_pipeline_model_parallel_size": 6}, {"vp": "6"}),
        ({"fp8": "hybrid"}, {"precision": "fp8"}),
        ({"fp8": "e4m3", "fp8_recipe": "mxfp8"}, {"precision": "mxfp8"}),
        ({"bf16": False, "fp16": True}, {"precision": "fp16"}),
        ({"bf16": False}, {"precision": "fp32"}),
        ({"swiglu": True}, {"mlp": "swiglu"}),
        ({"squared_relu": True}, {"mlp": "relu2"}),
        ({"kv_channels": 64}, {"moe_detail": "head_dim=64"}),
        ({"use_distributed_optimizer": True}, {"zero": "1"}),
        ({"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads"}, {"zero": "2"}),
        ({"use_torch_fsdp2": True}, {"zero": "3"}),
        ({"deepspeed": True, "zero_stage": "2.0"}, {"zero": "2", "stack": "Megatron-DeepSpeed"}),
        (
            {"num_experts": 8, "moe_ffn_hidden_size": 1024, "moe_router_topk": 4, "moe_layer_freq": "([0]*3+[1]*21)"},
            {"experts": "8", "topk": "4", "moe_ffn": "1024", "dense_layers": "3"},
        ),
        ({"num_experts": 8, "moe_layer_freq": 2}, {"moe_detail": "alternate layers", "moe_ffn": "8192"}),
        (
            {"num_experts": 8, "moe_layer_freq": "[0, 1, 1]", "moe_shared_expert_intermediate_size": 512},
            {"moe_detail": "shared_ffn=512", "dense_layers": "1"},
        ),
    ],
)  # fmt: skip
def test_arguments_of_megatron(tmp_path, changed, expected):
    found = of_megatron(tmp_path, megatron(**changed))
    assert {name: found[name] for name in expected} == expected


def test_what_is_computed_again_of_some_layers_only(tmp_path):
    some = megatron(recompute_method="block", recompute_num_layers=4)
    with pytest.raises(tc.InputError, match="recompute: full, on 4 layers of each chunk: give recompute=full or recompute=none"):
        of_megatron(tmp_path, some)
    assert of_megatron(tmp_path, some, recompute="full")["recompute"] == "full"
    text = example("torchtitan.log").replace('"selective_ac_option": "op"', '"selective_ac_option": "2"')
    with pytest.raises(tc.InputError, match="recompute: full, on one of 2 layers"):
        read(written(tmp_path, "titan.log", text))


def test_software_of_logs_is_a_stack_of_the_catalogue(tmp_path):
    """As `traincast.measurements` reads the framework; a log of Megatron-LM from before its core has an older one."""
    told = {
        name: measurements.read(read(CLUSTER / name, **GIVEN[name]).rows[0]).stack
        for name in ("megatron.log", "torchtitan.log", "deepspeed.log")
    }
    assert told == {"megatron.log": "megatron-core-2025", "torchtitan.log": "torchtitan-2025", "deepspeed.log": "deepspeed-2025"}
    eager = example("torchtitan.log").replace('"enable": true', '"enable": false')
    assert measurements.read(row(written(tmp_path, "torchtitan.log", eager))).stack == "torchtitan-eager"
    assert of_megatron(tmp_path, megatron())["stack"] == "Megatron-LM"


def test_the_last_run_of_a_log_counts(tmp_path):
    text = megatron(times=(8,) * 9) + megatron(times=(3,) * 9, tensor_model_parallel_size=4)
    found = of_megatron(tmp_path, text)
    assert (found["step_seconds"], found["tp"]) == ("3", "4")
    assert "1 earlier run in the same file" in found["notes"]
    crashed = of_megatron(tmp_path, text + megatron(times=(), tensor_model_parallel_size=8))
    assert (crashed["step_seconds"], crashed["tp"]) == ("3", "4")
    assert "a later run without a finished iteration" in crashed["notes"]


def test_a_run_that_starts_over_is_another_run(tmp_path):
    resumed = [line for line in megatron(times=(4,) * 8).splitlines() if "elapsed" in line]
    assert of_megatron(tmp_path, megatron(times=(8,) * 9) + "\n".join(resumed) + "\n")["step_seconds"] == "4"


def test_ranks_between_each_other(tmp_path):
    """Arguments of the first rank, iterations of the last, and noise of all between them."""
    mine = megatron(prefix="[default0]:").splitlines()
    theirs = megatron(prefix="[default7]:", num_layers=99).splitlines()
    head = [line for line in mine if "elapsed" not in line]
    noise = ["[default3]:NCCL INFO  num_layers: 7", "Traceback is no word of ours"]
    text = [line for one in head for line in (one, *noise)] + [line for line in theirs if "elapsed" in line]
    found = of_megatron(tmp_path, "\n".join(text) + "\n")
    assert (found["layers"], found["step_seconds"]) == ("24", "2")


def test_a_batch_that_ramps_up(tmp_path):
    ramp = [line for line in megatron(times=(1,) * 5, gbs=32).splitlines() if "elapsed" in line]
    late = megatron(times=(9,) * 5 + (2,) * 6).splitlines()
    text = [line for line in late if "elapsed" not in line] + ramp + [line for line in late if "elapsed" in line][5:]
    found = of_megatron(tmp_path, "\n".join(text) + "\n", gbs=64)
    assert (found["step_seconds"], found["steps_measured"]) == ("2", "3")
    assert "5 iterations of another global batch than 64" in found["notes"]


@pytest.mark.parametrize("change", [lambda text: text.replace("\n", "\r\n"), lambda text: "\ufeff" + text])
def test_line_ends_and_byte_order_marks(tmp_path, change):
    assert of_megatron(tmp_path, change(megatron())) == of_megatron(tmp_path, megatron())
    assert of_megatron(tmp_path, change(megatron()).encode("utf-16")) == of_megatron(tmp_path, megatron())


def test_thousands_in_times(tmp_path):
    assert of_megatron(tmp_path, megatron().replace("2000.0 |", "2,000.0 |"))["step_seconds"] == "2"
    assert of_megatron(tmp_path, megatron().replace("2000.0 |", "2000,0 |"))["step_seconds"] == "2"


def test_a_number_that_is_cut_off_does_not_count(tmp_path):
    """``(ms): 2`` is what is left of 2000.0."""
    cut = megatron().rstrip("\n")
    cut = cut[: cut.rindex("(ms): 2") + len("(ms): 2")]
    assert of_megatron(tmp_path, cut)["steps_measured"] == "3"


def test_all_that_is_missing_is_told_at_once(tmp_path):
    bare = "".join(line + "\n" for line in megatron().splitlines() if "elapsed" in line)
    with pytest.raises(tc.InputError) as told:
        read(written(tmp_path, "run.log", bare))
    assert [problem.split(":")[0] for problem in told.value.problems] == [
        "layers", "hidden", "heads", "mlp", "seq", "gpu", "gpus", "precision", "tp", "pp", "mbs", "zero", "recompute",
    ]  # fmt: skip
    assert "a100-sxm-80" in str(told.value)
    with pytest.raises(tc.InputError, match="gups: no column of a run; did you mean gpus"):
        read(written(tmp_path, "run.log", bare), gups=8)


def test_what_is_given_goes_before_what_the_log_says(tmp_path):
    assert of_megatron(tmp_path, megatron(), gpus=32)["dp"] == "8"


NEMO = """
[NeMo I 2000-01-01] Experiments will be logged at /results
model:
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  num_query_groups: 8
  gated_linear_unit: true
  seq_length: 8192
  vocab_size: null
  padded_vocab_size: 128256
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 1
  bf16: true
  recompute_granularity: null
train:
  micro_batch_size: 1
  global_batch_size: 128
ddp:
  use_distributed_optimizer: true
"""
LINES = "".join(
    f"Training epoch 0, iteration {i}/49 | lr: 3e-05 | global_batch_size: 128 | global_step: {i} | reduced_train_loss: 1.2 "
    f"| train_step_timing in s: {t}\n"
    for i, t in enumerate((20.1, 14.7, 14.6, 14.6, 14.5, 14.6))
)
BAR = "".join(
    f"Epoch 0: :  {i}%|#| {i}/50 [04:50<07:16, v_num=, global_step={i}.00, train_step_timing in s={t}]\r"
    for i, t in enumerate((20.1, 14.7, 14.6, 14.6, 14.5, 14.6))
)
STEPS = "".join(f"Step Time : {t}s GPU utilization: 500.1MODEL_TFLOP/s/GPU\n" for t in (20.1, 14.7, 14.6, 14.6, 14.5, 14.6))


@pytest.mark.parametrize(("progress", "stack"), [(LINES, "NeMo"), (BAR, "NeMo"), (STEPS, "Megatron-Bridge")])
def test_nemo_and_bridge(tmp_path, progress, stack):
    found = row(written(tmp_path, "nemo.log", NEMO + progress), gpu="h100-sxm-80", gpus=16)
    expected = {
        "stack": stack, "layers": "32", "kv_heads": "8", "mlp": "swiglu", "vocab": "128256", "tp": "2", "dp": "8", "zero": "1",
        "recompute": "none", "gbs": "128", "mbs": "1", "precision": "bf16", "step_seconds": "14.6", "steps_measured": "3",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_what_bridge_dumps_and_says_of_memory(tmp_path):
    """Lists and functions stand below their names; memory is in 10^9 bytes: 64.42 of them are 60.0 GiB."""
    dump = NEMO.replace(
        "  recompute_granularity: null", "  recompute_granularity: selective\n  recompute_modules:\n  - layernorm\n  - moe_act"
    )
    dump = dump.replace(
        "  seq_length", "  activation_func:\n    _call_: false\n    _target_: torch.nn.functional.gelu\n  seq_length"
    )
    memory = "[Rank 0] (after 2 iterations) memory (GB) | mem-allocated-gigabytes: 40.1 | mem-max-allocated-gigabytes: 64.42\n"
    found = row(written(tmp_path, "bridge.log", dump + memory + STEPS), gpu="h100-sxm-80", gpus=16)
    assert (found["recompute_detail"], found["mlp"], found["seq"]) == ("selective:layernorm+moe_act", "geglu", "8192")
    assert float(found["memory_gb_published"]) == pytest.approx(60.0, abs=0.01)


def test_a_configuration_beside_the_log(tmp_path):
    config = written(tmp_path, "config.yaml", NEMO[NEMO.index("model:") :])
    apart = row(written(tmp_path, "nemo.log", LINES), config=config, gpu="h100-sxm-80", gpus=16)
    assert apart == row(written(tmp_path, "nemo.log", NEMO + LINES), gpu="h100-sxm-80", gpus=16)


# torchtitan


def test_torchtitan_of_another_age(tmp_path):
    """A mesh by its names, the model by its class, no settings in the log but a file beside it."""
    text = """
[rank0]:2025-01-01 - root - INFO - Starting job: x
[rank0]:2025-01-01 - root - INFO - CUDA capacity: NVIDIA H100 with 95.00GiB memory
[rank0]:2025-01-01 - root - INFO - Building 2-D device mesh with ['dp', 'tp'], [4, 2]
[rank0]:2025-01-01 - root - INFO - Building llama3 8B with ModelArgs(dim=4096, n_layers=32, n_heads=32, n_kv_heads=8, \
vocab_size=128256, multiple_of=1024, ffn_dim_multiplier=1.3, norm_eps=1e-05)
[rank0]:2025-01-01 - root - INFO - Training starts at step 1, with local batch size 2, global batch size 8, \
sequence length 4096, total steps 9
"""
    text += "".join(
        f"[rank0]:INFO - step: {i:2}  loss: 9.1  memory: 42.08GiB(30.10%)  tps: {6000 + i}  mfu: 8.65%\n" for i in range(1, 10)
    )
    config = written(tmp_path, "run.toml", '[training]\ntensor_parallel_degree = 2\n[activation_checkpoint]\nmode = "full"\n')
    found = row(written(tmp_path, "titan.log", text), config=config)
    expected = {
        "layers": "32", "ffn": "14336", "gpu": "h100-96-hbm2e-500w", "gpus": "8", "tp": "2", "dp": "4", "zero": "3", "mbs": "2",
        "gbs": "8", "seq": "4096", "recompute": "full", "tokens_per_s_per_gpu": "6006.5",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("dp_replicate=1, dp_shard=16", "dp_replicate=2, dp_shard=8"), {"zero": "hsdp", "gpus": "16", "gbs": "32"}),
        (('"fsdp_reshard_after_forward": "default"', '"fsdp_reshard_after_forward": "never"'), {"zero": "2"}),
        (("dp_replicate=1, dp_shard=16", "dp_replicate=16, dp_shard=1"), {"zero": "0"}),
        (
            ("pp=1, dp_replicate=1, dp_shard=16", "pp=4, dp_replicate=1, dp_shard=4"),
            {"zero": "1", "pp": "4", "mbs": "1", "gbs": "8"},
        ),
        (('"converters": []', '"converters": ["float8"]'), {"precision": "fp8"}),
        (('"enable": true', '"enable": false'), {"notes": "eager; median of 8 iterations; 3 of 11 iterations: warm-up"}),
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
    found = row(written(tmp_path, "titan.log", example("torchtitan.log").replace(*change)))
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(("each", "vp"), [("", "2"), (', "pipeline_parallel_layers_per_stage": 4', "4")])
def test_interleaved_stages_of_torchtitan(tmp_path, each, vp):
    """34 layers with embedding and head in stages of 4 are 8.5 stages, 4 on each of 2 ranks; without a number, 2 on each."""
    text = example("torchtitan.log").replace("pp=1, dp_replicate=1, dp_shard=16", "pp=2, dp_replicate=1, dp_shard=8")
    schedule = f'"pipeline_parallel_schedule": "Interleaved1F1B"{each}, "tensor_parallel_degree": 1'
    found = row(written(tmp_path, "titan.log", text.replace('"tensor_parallel_degree": 1', schedule)))
    assert (found["pp"], found["vp"]) == ("2", vp)


def test_validation_is_no_step(tmp_path):
    text = example("torchtitan.log")
    last = text.splitlines()[-2]
    other = last.replace("step:", "validate step:").replace("tps: ", "tps: 9")
    assert other != last
    assert row(written(tmp_path, "torchtitan.log", text + other + "\n" + other + "\n")) == row(CLUSTER / "torchtitan.log")


def test_every_rank_of_torchtitan(tmp_path):
    text = "".join(line + "\n" + line.replace("[rank0]", "[rank1]") + "\n" for line in example("torchtitan.log").splitlines())
    assert row(written(tmp_path, "torchtitan.log", text)) == row(CLUSTER / "torchtitan.log")


def test_models_that_torchtitan_names_are_in_the_catalogue():
    assert set(MODELS.values()) <= set(tc.model_names())


# DeepSpeed


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("[INFO] [timer.py:189:stop] 0/{i}, SamplesPerSec=32.0, MemAllocated=0.26GB, MaxMemAllocated=9.02GB", "4"),
        ("step:  {i:>5} /  1000 loss: 2.3456 iter time (s): 3.500 samples/sec: 36.571 eta: 1h", "3.5"),
        ("steps: {i} loss: 2.3456 iter time (s): 3.500 samples/sec: 36.571", "3.5"),
        ("time (ms) | fwd: 900.10 | bwd: 2000.20 | bwd_inner: 1900.00 | bwd_allreduce: 100.00 | step: 99.70", "3"),
    ],
)
def test_other_lines_of_deepspeed(tmp_path, line, seconds):
    text = "".join(line.format(i=10 * i) + "\n" for i in range(1, 9))
    config = CLUSTER / "ds_config.json"
    found = row(written(tmp_path, "ds.log", text), config=config, gpus=16, gbs=128, pp=1, **GIVEN["deepspeed.log"])
    assert (found["step_seconds"], found["zero"], found["mbs"], found["precision"]) == (seconds, "3", "2", "bf16")


@pytest.mark.parametrize(
    ("config", "listed", "precision"),
    [
        ({"bf16": {"enabled": True}}, "", "bf16"),
        ({"fp16": {"enabled": True}}, "", "fp16"),
        ({}, "", "fp32"),
        ({"bf16": {"enabled": "auto"}}, "[config.py:1:print]   bfloat16_enabled ............. True", "bf16"),
        ({"bf16": {"enabled": "auto"}}, "[config.py:1:print]   float16_config ............... enabled=True auto_cast=False", None),
        ({"bf16": {"enabled": "auto"}}, "", None),
    ],
)
def test_precision_of_deepspeed(tmp_path, config, listed, precision):
    text = listed + "\n" + "".join(f"steps: {i} loss: 2.0 iter time (s): 3.5 samples/sec: 36\n" for i in range(1, 9))
    path = written(tmp_path, "ds.json", json.dumps(json.loads(example("ds_config.json")) | {"bf16": {"enabled": False}} | config))
    given_here = GIVEN["deepspeed.log"] | {"gpus": 16, "gbs": 128, "pp": 1}
    if precision:
        assert row(written(tmp_path, "ds.log", text), config=path, **given_here)["precision"] == precision
    else:
        with pytest.raises(tc.InputError, match="precision: the log does not say"):
            read(written(tmp_path, "ds.log", text), config=path, **given_here)


def test_deepspeed_does_not_know_the_model(tmp_path):
    with pytest.raises(tc.InputError) as told:
        read(CLUSTER / "deepspeed.log")
    assert [problem.split(":")[0] for problem in told.value.problems] == [
        "layers",
        "hidden",
        "heads",
        "mlp",
        "seq",
        "gpu",
        "recompute",
    ]


# Collectives

RANKS = "".join(f"#  Rank {r:2} Group  0 Pid  {r} on node{r // 4} device {r % 4} [0x07] NVIDIA A100-SXM4-40GB\n" for r in range(8))
HEADER = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
LINE = "     1048576        262144     float     sum      -1    88.10   11.90   20.83      0    86.20   12.16   21.29      0\n"


def of_nccl(folder, text, name="out.txt", **kw):
    found = read(written(folder, name, text), **kw)
    assert isinstance(found, CollectiveRows)
    return found


def test_the_operation_comes_from_the_output_the_name_or_what_is_given(tmp_path):
    assert of_nccl(tmp_path, RANKS + HEADER + LINE, "2x4-reduce_scatter.txt").rows[0].op == "reducescatter"
    assert of_nccl(tmp_path, "# Collective test starting: alltoall_perf\n" + RANKS + HEADER + LINE).rows[0].op == "all2all"
    assert of_nccl(tmp_path, RANKS + HEADER + LINE, op="allgather").rows[0].op == "allgather"
    with pytest.raises(tc.InputError, match="op: the output does not say"):
        of_nccl(tmp_path, RANKS + HEADER + LINE)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("all_reduce_perf", "allreduce"), ("AllReduce.txt", "allreduce"), ("reduce-scatter-16.log", "reducescatter"),
        ("reduce_perf", "reduce"), ("alltoall_perf", "all2all"), ("all-to-all", "all2all"), ("sendrecv_perf", "p2p"),
        ("broadcast", "broadcast"), ("out", None),
        ("all_gather_perf_mpi", "allgather"),
    ],
)  # fmt: skip
def test_names_of_operations(name, op):
    assert operation(name) == op


def test_where_it_ran(tmp_path):
    one = of_nccl(tmp_path, RANKS + HEADER + LINE, "all_reduce.txt").rows[0]
    assert (one.nodes, one.gpus_per_node, one.ranks, one.time_us, one.gpu) == (2, 4, 8, 88.1, "NVIDIA A100-SXM4-40GB")
    with pytest.raises(tc.InputError) as told:
        of_nccl(tmp_path, HEADER + LINE)
    assert [problem.split(":")[0] for problem in told.value.problems] == ["op", "nodes", "gpus_per_node"]
    assert of_nccl(tmp_path, HEADER + LINE, op="allreduce", nodes=4, gpus_per_node=8).rows[0].ranks == 32


def test_groups_side_by_side(tmp_path):
    """Tests split into groups: ranks of one of them."""
    split = "".join(line.replace("Group  0", f"Group  {at % 4}") + "\n" for at, line in enumerate(RANKS.splitlines()))
    one = of_nccl(tmp_path, split + HEADER + LINE, "all_reduce.txt").rows[0]
    assert (one.nodes, one.gpus_per_node, one.ranks) == (2, 1, 2)


def test_what_is_left_out_of_a_table(tmp_path):
    wrong = LINE.replace("20.83      0", "20.83      7")
    nothing = LINE.replace("1048576", "      0", 1)
    torn = "[1,0]<stdout>:" + LINE.rstrip() + "\n"
    found = of_nccl(tmp_path, RANKS + HEADER + LINE + wrong + nothing + torn + LINE[:60] + "\n", "all_reduce.txt")
    assert len(found.rows) == 2
    assert found.left_out == ("line 11: wrong results", "line 12: of no byte", "line 14: cut off")


def test_tables_without_a_root_or_with_more_columns(tmp_path):
    old = HEADER.replace("    root ", " ").replace("#wrong", " error")
    found = of_nccl(tmp_path, RANKS + old + LINE.replace("      -1 ", " ").replace("      0", "  4e-07"), "all_reduce.txt")
    assert (found.rows[0].time_us, found.left_out) == (88.1, ())
    host = HEADER.replace(" time ", " cputime ")
    with pytest.raises(tc.InputError, match="time of the host"):
        of_nccl(tmp_path, RANKS + host + LINE, "all_reduce.txt")


def test_ranks_that_nodes_share_unevenly(tmp_path):
    uneven = "".join(line + "\n" for line in RANKS.splitlines()[:-1])
    one = of_nccl(tmp_path, uneven + HEADER + LINE, "all_reduce.txt").rows[0]
    assert (one.nodes, one.gpus_per_node, one.ranks) == (2, 4, 7)
    one = of_nccl(tmp_path, RANKS + HEADER + LINE, "all_reduce.txt", nodes=4).rows[0]  # containers that share a host's name
    assert (one.nodes, one.gpus_per_node, one.ranks) == (4, 2, 8)


def test_several_tests_in_one_file(tmp_path):
    start = "# Collective test starting: {}_perf\n# nThread 1 nGpus 1 minBytes 8 maxBytes 8\n"
    text = start.format("all_reduce") + RANKS + HEADER + LINE + start.format("all_gather") + RANKS + HEADER + LINE
    assert [(one.op, one.ranks) for one in of_nccl(tmp_path, text).rows] == [("allreduce", 8), ("allgather", 8)]


def nccl_json(**changed):
    devices = [
        {"rank": r, "group": 0, "hostname": f"node{r // 8}", "device": r % 8, "device_info": "NVIDIA H100 80GB HBM3"}
        for r in range(16)
    ]
    result = {
        "size": 1024, "count": 256, "type": "float", "redop": "sum", "root": "    -1",
        "out_of_place": {"time": 30.5, "alg_bw": 0.03, "bus_bw": 0.06, "nwrong": 0.0},
        "in_place": {"time": 29.5, "alg_bw": 0.03, "bus_bw": 0.06, "nwrong": None},
    }  # fmt: skip
    told = {"version": 2, "args": ["/opt/nccl-tests/build/all_reduce_perf", "-b", "1K"], "nccl_version": 22805}
    return told | {"config": {"nthreads": 1, "ngpus": 1, "devices": devices}, "results": [result]} | changed


def test_json_of_nccl_tests(tmp_path):
    one = of_nccl(tmp_path, json.dumps(nccl_json())).rows[0]
    assert (one.op, one.nodes, one.gpus_per_node, one.ranks, one.size_bytes, one.time_us) == ("allreduce", 2, 8, 16, 1024, 30.5)
    alone = nccl_json(config={"nthreads": 1, "ngpus": 8, "devices": nccl_json()["config"]["devices"][:1]})
    assert of_nccl(tmp_path, json.dumps(alone)).rows[0].ranks == 8  # one process of eight GPUs lists the first of them
    base = nccl_json()["results"][0]
    some = [base | {"out_of_place": None}, base | {"in_place": {"nwrong": 3}}, 7, base | {"size": 0}]
    found = of_nccl(tmp_path, json.dumps(nccl_json(results=some)))
    assert [one.time_us for one in found.rows] == [29.5]
    assert found.left_out == ("result 2: wrong results", "result 3: no mapping", "result 4: of no byte")


@pytest.mark.parametrize(
    "text", [json.dumps(nccl_json())[:-20], json.dumps(nccl_json(results=None)), json.dumps(nccl_json(config=7, devices=7))]
)
def test_json_that_is_broken(tmp_path, text):
    with pytest.raises(tc.InputError):
        read(written(tmp_path, "out.json", text))


def test_a_table_of_collectives(tmp_path):
    path = written(
        tmp_path,
        "mine.csv",
        "op,nodes,gpus_per_node,ranks,size_bytes,time_us\nallreduce,2.0,8.0,16.0,1024.0,30.5\nallreduce,,8,16,1,1\n",
    )
    found = read(path)
    assert (found.rows[0].op, found.rows[0].ranks, found.rows[0].time_us) == ("allreduce", 16, 30.5)
    assert len(found.left_out) == 1


def test_collectives_out_of_their_bandwidth(tmp_path):
    """1 GB at 100 GB/s are 10 ms; bus bandwidth of an all-reduce of 16 ranks is 2 · 15/16 of it, of an all-gather 15/16."""
    header = "op,nodes,gpus_per_node,size_bytes,algbw_gb_s,busbw_gb_s\n"
    lines_here = [
        "allreduce,2,8,1e9,100,",
        "allreduce,2,8,1e9,,187.5",
        "allgather,2,8,1e9,,93.75",
        "p2p,2,1,1e9,,100",
        "allreduce,2,8,1e9,0,",
    ]
    found = read(written(tmp_path, "mine.csv", header + "\n".join(lines_here)))
    assert [one.time_us for one in found.rows] == pytest.approx([1e4, 1e4, 1e4])
    assert [one.split(":")[0] for one in found.left_out] == ["line 5", "line 6"]
    with pytest.raises(tc.InputError, match="op: not used"):
        read(tmp_path / "mine.csv", op="allreduce")


# Products


def of_gemm(folder, text, **kw):
    found = read(written(folder, "gemm.csv", text), **kw)
    assert isinstance(found, GemmRows)
    return found


@pytest.mark.parametrize(
    "text",
    [
        "m,n,k,dtype,time_us\n1024,2048,4096,bf16,100.0\n",
        "M,N,K,Precision,Time (ms)\n1024,2048,4096,bfloat16,0.1\n",
        "K,M,N,dtype,us\n4096,1024,2048,torch.bfloat16,100\n",
        "m;n;k;dtype;time_ms\n1024;2048;4096;bf16;0,1\n",
        'm,n,k,dtype,time_us\n"1,024","2,048","4,096",BF16,100\n',
        "m\tn\tk\tdtype\tTFLOPS\n1024\t2048\t4096\tbf16\t171.79869184\n",
        "\ufeffM, N, K, dtype, time [µs]\r\n1024, 2048, 4096, bf16, 100.0\r\n",
        "id,m,n,k,dtype,batch,time_us,tflops\nx,1024.0,2048.0,4096.0,bf16,,,171.79869184\n",
    ],
)
def test_headers_of_products(tmp_path, text):
    """2 × 1024 × 2048 × 4096 operations in 100 µs are 171.8 TFLOP/s."""
    (one,) = of_gemm(tmp_path, text).rows
    assert (one.m, one.n, one.k, one.batch, one.dtype) == (1024, 2048, 4096, 1, "bf16")
    assert one.time_us == pytest.approx(100)


def test_what_is_left_out_of_products(tmp_path):
    text = "m,n,k,dtype,time_us\n8,8,8,bf16,1\n8,8,x,bf16,1\n8,8,8,int4,1\n8,8,8,bf16,\n8192,8192,8192,bf16,1.1\n\n"
    found = of_gemm(tmp_path, text)
    assert len(found.rows) == 1
    assert [one.split(":")[0] for one in found.left_out] == ["line 3", "line 4", "line 5", "line 6"]
    assert "another unit?" in found.left_out[3]


def test_what_is_no_product(tmp_path):
    found = of_gemm(tmp_path, "kind,m,n,k,dtype,us\ngemm fwd,8,8,8,bf16,1\nattention fwd,8,8,8,bf16,1\n")
    assert (len(found.rows), found.left_out) == (1, ("line 3: kind = 'attention fwd' is no matrix product",))


def test_products_without_a_type_or_time(tmp_path):
    assert of_gemm(tmp_path, "m,n,k,us\n8,8,8,1\n", dtype="fp8").rows[0].dtype == "fp8"
    with pytest.raises(tc.InputError) as told:
        of_gemm(tmp_path, "m,n,k\n8,8,8\n")
    assert [problem.split(":")[0] for problem in told.value.problems] == ["time", "dtype"]


# Anything


@pytest.mark.parametrize("name", ["tp", "pp", "cp", "ep", "vp", "gpus", "gpus_per_node"])
def test_a_degree_of_nothing_is_left_out(tmp_path, name):
    path = ROOT / "tests" / "data" / "my_runs.csv"
    table = [one | {name: "0", "zero": "hsdp"} for one in measurements.rows(path)]
    for one in table[:4]:
        with pytest.raises(measurements.Unreadable, match=f"{name} = 0 is not at least 1"):
            measurements.read(one)


@pytest.mark.parametrize("number_of_it", ["1e999", "nan", "inf", "-inf"])
def test_a_row_whose_number_is_not_finite_is_left_out(tmp_path, number_of_it):
    table = (ROOT / "tests" / "data" / "my_runs.csv").read_text(encoding="utf-8").replace(",128256,", f",{number_of_it},", 1)
    found = read(written(tmp_path, "runs.csv", table))
    assert found.left_out[0] == f"mine-1: vocab = '{number_of_it}' is no number"


@pytest.mark.parametrize(
    "content", ["", "  \n", "hello\nworld\n", "{}", "[1]", "a,b,c\n1,2,3\n", "\0" * 64, b"\xff\xfe\xff", b"\xfe\xffa"]
)
def test_what_is_none_of_it(tmp_path, content):
    with pytest.raises(tc.InputError):
        read(written(tmp_path, "x.log", content))


def test_files_that_are_not_there(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere.log"):
        with pytest.raises(tc.InputError):
            read(path)


def test_what_is_given_must_have_a_meaning(tmp_path):
    with pytest.raises(tc.InputError, match="tp: not used by this kind of file"):
        read(CLUSTER / "all_reduce.txt", tp=8)


@pytest.mark.parametrize("name", sorted(GIVEN))
@settings(max_examples=40)
@given(data=st.data())
def test_a_file_that_is_cut_or_damaged_is_read_or_refused(tmp_path_factory, name, data):
    text = example(name)
    begin = data.draw(st.integers(0, len(text) // 2))
    end = data.draw(st.integers(begin, len(text)))
    damage = data.draw(
        st.lists(st.tuples(st.integers(0, max(end - begin - 1, 0)), st.sampled_from('0-9.,;:{}[]"|=\n\r #x9')), max_size=20)
    )
    cut = list(text[begin:end])
    for at, mark in damage:
        cut[at : at + 1] = mark
    path = written(tmp_path_factory.mktemp("cut"), name, "".join(cut))
    with contextlib.suppress(tc.InputError):
        found = read(path, **GIVEN[name])
        assert found.rows
        if isinstance(found, TrainingRows) and name != "runs.csv":
            assert all(0 < float(one["step_seconds"]) < float("inf") for one in found.rows)


@settings(max_examples=60)
@given(
    st.text(),
    st.sampled_from(
        ["SamplesPerSec=1,", "step: 1  loss: 1 tps: 9 ", "Step Time : 1s", "algbw busbw", "m,n,k,us\n", "id,step_seconds\n"]
    ),
)
def test_noise_around_a_sign(tmp_path_factory, noise, sign):
    path = written(tmp_path_factory.mktemp("noise"), "x.log", (noise + sign + noise).encode(errors="replace"))
    with pytest.raises(tc.InputError):
        read(path)


# Accelerators


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80"), ("NVIDIA H100 PCIe", "h100-pcie-80"), ("NVIDIA A100-SXM4-80GB", "a100-sxm-80"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40"), ("NVIDIA A100 80GB PCIe", "a100-pcie-80"), ("NVIDIA GH200 480GB", "gh200-96"),
        ("NVIDIA GB200", "gb200"), ("NVIDIA B200", "b200"), ("NVIDIA H200", "h200"), ("AMD Instinct MI300X", "mi300x"),
        ("Abacus", None),        ("NVIDIA A100", None),
    ],
)  # fmt: skip
def test_accelerators_by_what_they_call_themselves(name, known):
    assert accelerator(name) == known


def test_accelerators_that_are_named_can_be_read():
    table = next(one for one in measurements.rows() if one["id"] == "korth-008")
    for name in KNOWN:
        assert measurements.read(table | {"gpu": name}).system
    assert {known for _, known in NAMES} >= set(KNOWN)


def test_columns_are_those_of_the_bundled_table():
    with (ROOT / "src/traincast/catalog/measured/training_runs.csv").open(encoding="utf-8", newline="") as file:
        header = next(csv.reader(file))
    assert set(TRAINING) - set(header) == {"memory_kind", "step_spread", "steps_measured"}
