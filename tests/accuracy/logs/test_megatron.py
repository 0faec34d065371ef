"""Logs of Megatron-LM, Megatron-Bridge and NeMo, written here in the form that the tools give them;
every figure is invented."""

import pytest

import traincast as tc
from log_files import CLUSTER, example, row, written
from traincast.accuracy.logs import read
from traincast.accuracy.runs import run


def test_megatron_example():
    """Arguments read off the file by eye; the median of 17 iterations by the reader's own rule,
    counted here."""
    cells = row(CLUSTER / "megatron.log", gpu="h100-sxm-80")
    expected = {
        "stack": "Megatron-Core", "layers": "80", "hidden": "8192", "ffn": "28672", "heads": "64",
        "kv_heads": "8", "vocab": "129024", "seq": "8192", "mlp": "swiglu", "gpus": "256", "tp": "8",
        "sp": "True", "cp": "1", "ep": "1", "pp": "4", "vp": "1", "dp": "8", "zero": "1", "mbs": "1",
        "gbs": "128", "precision": "bf16", "recompute": "selective",
        "flash_attention": "True", "experts": "", "mla": "False", "memory_gb_published": "62.5",
        "memory_kind": "allocated",
    }  # fmt: skip
    assert {name: cells[name] for name in expected} == expected
    text = example("megatron.log")
    times = sorted(
        float(line.split("(ms): ")[1].split()[0]) for line in text.splitlines() if "elapsed" in line
    )[:-2]
    assert float(cells["step_seconds"]) == pytest.approx(times[len(times) // 2] / 1000, rel=0.005)
    assert cells["steps_measured"] == "17"
    assert 0 < float(cells["step_spread"]) < 0.02
    assert "3 of 20 iterations: warm-up" in cells["notes"]


ARGUMENTS = {
    "num_layers": 24, "hidden_size": 2048, "ffn_hidden_size": 8192, "num_attention_heads": 16,
    "num_query_groups": 1, "group_query_attention": False, "kv_channels": 128, "seq_length": 2048,
    "padded_vocab_size": 51200, "swiglu": False, "world_size": 16, "tensor_model_parallel_size": 2,
    "pipeline_model_parallel_size": 2, "context_parallel_size": 1, "expert_model_parallel_size": 1,
    "micro_batch_size": 2, "global_batch_size": 64, "bf16": True, "fp16": False, "fp8": None,
    "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1,
    "sequence_parallel": False, "use_distributed_optimizer": False, "num_experts": None, "moe_router_topk": 2,
    "moe_layer_freq": 1, "use_flash_attn": False, "attention_backend": "AttnBackend.unfused",
    "virtual_pipeline_model_parallel_size": None,
}  # fmt: skip


def megatron(times=(9, 5, 5, 2, 2, 2, 2.2), gbs=64, prefix="", **changed):
    dump = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in (ARGUMENTS | changed).items()]
    steps = [
        f" [2000-01-01 00:00:00] iteration {i:8d}/     100 | consumed samples: {64 * i:12d} "
        f"| elapsed time per iteration (ms): {1000 * time:.1f} | learning rate: 1.0E-05 "
        f"| global batch size: {gbs:5d} "
        "| lm loss: 1.0E+01 | number of nan iterations:   0 |"
        for i, time in enumerate(times, start=1)
    ]
    text = ["-------- arguments --------", *dump, "-------- end of arguments --------", *steps]
    return "".join(f"{prefix}{line}\n" for line in text)


def of_megatron(folder, text, **kw):
    return row(written(folder, "run.log", text), gpu="a100-sxm-80", **kw)


def test_warm_up_is_skipped_and_the_median_taken(tmp_path):
    cells = of_megatron(tmp_path, megatron())
    assert (cells["step_seconds"], cells["steps_measured"]) == ("2", "4")
    assert of_megatron(tmp_path, megatron(), warm_up=0)["step_seconds"] == "2.2"
    short = of_megatron(tmp_path, megatron(times=(9,)))
    assert (short["step_seconds"], short["step_spread"], short["steps_measured"]) == ("9", "0", "1")


def test_query_groups_count_only_where_attention_is_grouped(tmp_path):
    assert of_megatron(tmp_path, megatron())["kv_heads"] == "16"
    assert of_megatron(tmp_path, megatron(group_query_attention=True, num_query_groups=4))["kv_heads"] == "4"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, {"recompute": "full", "zero": "0", "mlp": "gelu", "flash_attention": "False"}),
        ({}, {"precision": "bf16", "head_dim": ""}),
        ({"recompute_granularity": None}, {"recompute": "none"}),
        (
            {"recompute_granularity": "selective", "recompute_modules": "['layernorm', 'moe_act']"},
            {"recompute": "layernorm+moe_act"},
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
        ({"kv_channels": 64}, {"head_dim": "64"}),
        ({"use_distributed_optimizer": True}, {"zero": "1"}),
        ({"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads"}, {"zero": "2"}),
        ({"use_torch_fsdp2": True}, {"zero": "3"}),
        ({"deepspeed": True, "zero_stage": "2.0"}, {"zero": "2", "stack": "Megatron-DeepSpeed"}),
        (
            {
                "num_experts": 8, "moe_ffn_hidden_size": 1024, "moe_router_topk": 4,
                "moe_layer_freq": "([0]*3+[1]*21)",
            },
            {"experts": "8", "topk": "4", "moe_ffn": "1024", "dense_layers": "3"},
        ),
        ({"num_experts": 8, "moe_layer_freq": 2}, {"moe_every": "2", "moe_ffn": "8192"}),
        (
            {"num_experts": 8, "moe_layer_freq": "[0, 1, 1]", "moe_shared_expert_intermediate_size": 512},
            {"shared_ffn": "512", "dense_layers": "1"},
        ),
    ],
)  # fmt: skip
def test_arguments_of_megatron(tmp_path, changed, expected):
    cells = of_megatron(tmp_path, megatron(**changed))
    assert {name: cells[name] for name in expected} == expected


def test_the_last_run_of_a_log_counts(tmp_path):
    text = megatron(times=(8,) * 9) + megatron(times=(3,) * 9, tensor_model_parallel_size=4)
    cells = of_megatron(tmp_path, text)
    assert (cells["step_seconds"], cells["tp"]) == ("3", "4")
    assert "1 earlier run in the same file" in cells["notes"]
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
    text = [line for setting in head for line in (setting, *noise)] + [
        line for line in theirs if "elapsed" in line
    ]
    cells = of_megatron(tmp_path, "\n".join(text) + "\n")
    assert (cells["layers"], cells["step_seconds"]) == ("24", "2")


def test_a_batch_that_ramps_up(tmp_path):
    ramp = [line for line in megatron(times=(1,) * 5, gbs=32).splitlines() if "elapsed" in line]
    late = megatron(times=(9,) * 5 + (2,) * 6).splitlines()
    text = (
        [line for line in late if "elapsed" not in line]
        + ramp
        + [line for line in late if "elapsed" in line][5:]
    )
    cells = of_megatron(tmp_path, "\n".join(text) + "\n", gbs=64)
    assert (cells["step_seconds"], cells["steps_measured"]) == ("2", "3")
    assert "5 iterations of another global batch than 64" in cells["notes"]


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


def test_all_missing_settings_are_reported_at_once(tmp_path):
    bare = "".join(line + "\n" for line in megatron().splitlines() if "elapsed" in line)
    with pytest.raises(tc.InputError) as error:
        read(written(tmp_path, "run.log", bare))
    assert [problem.split(":")[0] for problem in error.value.problems] == [
        "layers", "hidden", "heads", "mlp", "seq", "gpu", "gpus", "precision", "tp", "pp", "mbs", "zero",
        "recompute",
    ]  # fmt: skip
    assert "give gpu=h100-sxm-80" in str(error.value)  # each with an example, none with a list of all
    assert max(map(len, error.value.problems)) < 100
    with pytest.raises(tc.InputError, match="gups: no column of a run; did you mean gpus"):
        read(written(tmp_path, "run.log", bare), gups=8)


def test_given_values_take_precedence_over_the_log(tmp_path):
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
    f"Training epoch 0, iteration {i}/49 | lr: 3e-05 | global_batch_size: 128 | global_step: {i} "
    f"| reduced_train_loss: 1.2 | train_step_timing in s: {t}\n"
    for i, t in enumerate((20.1, 14.7, 14.6, 14.6, 14.5, 14.6))
)
BAR = "".join(
    f"Epoch 0: :  {i}%|#| {i}/50 [04:50<07:16, v_num=, global_step={i}.00, train_step_timing in s={t}]\r"
    for i, t in enumerate((20.1, 14.7, 14.6, 14.6, 14.5, 14.6))
)
STEPS = "".join(
    f"Step Time : {t}s GPU utilization: 500.1MODEL_TFLOP/s/GPU\n"
    for t in (20.1, 14.7, 14.6, 14.6, 14.5, 14.6)
)


@pytest.mark.parametrize(("progress", "stack"), [(LINES, "NeMo"), (BAR, "NeMo"), (STEPS, "Megatron-Bridge")])
def test_nemo_and_bridge(tmp_path, progress, stack):
    cells = row(written(tmp_path, "nemo.log", NEMO + progress), gpu="h100-sxm-80", gpus=16)
    expected = {
        "stack": stack, "layers": "32", "kv_heads": "8", "mlp": "swiglu", "vocab": "128256", "tp": "2",
        "dp": "8", "zero": "1", "recompute": "none", "gbs": "128", "mbs": "1", "precision": "bf16",
        "step_seconds": "14.6", "steps_measured": "3",
    }  # fmt: skip
    assert {name: cells[name] for name in expected} == expected


def test_configuration_dump_and_memory_report_of_bridge(tmp_path):
    """Lists and functions stand below their names; memory is in 10^9 bytes: 64.42 of them are 60.0 GiB."""
    dump = NEMO.replace(
        "  recompute_granularity: null",
        "  recompute_granularity: selective\n  recompute_modules:\n  - layernorm\n  - moe_act",
    )
    dump = dump.replace(
        "  seq_length",
        "  activation_func:\n    _call_: false\n    _target_: torch.nn.functional.gelu\n  seq_length",
    )
    memory = (
        "[Rank 0] (after 2 iterations) memory (GB) | mem-allocated-gigabytes: 40.1 "
        "| mem-max-allocated-gigabytes: 64.42\n"
    )
    cells = row(written(tmp_path, "bridge.log", dump + memory + STEPS), gpu="h100-sxm-80", gpus=16)
    assert (cells["recompute"], cells["mlp"], cells["seq"]) == (
        "layernorm+moe_act",
        "geglu",
        "8192",
    )
    assert float(cells["memory_gb_published"]) == pytest.approx(60.0, abs=0.01)


def test_a_separate_configuration_file(tmp_path):
    config = written(tmp_path, "config.yaml", NEMO[NEMO.index("model:") :])
    apart = row(written(tmp_path, "nemo.log", LINES), config=config, gpu="h100-sxm-80", gpus=16)
    assert apart == row(written(tmp_path, "nemo.log", NEMO + LINES), gpu="h100-sxm-80", gpus=16)


def test_recomputation_of_some_layers_only(tmp_path):
    some = megatron(recompute_method="block", recompute_num_layers=4)
    with pytest.raises(
        tc.InputError,
        match="recompute: full, on 4 layers of each chunk: give recompute=full or recompute=none",
    ):
        of_megatron(tmp_path, some)
    assert of_megatron(tmp_path, some, recompute="full")["recompute"] == "full"


def test_recomputation_by_its_name_of_2021(tmp_path):
    """Megatron-LM v2.4 to v3.0, megatron/arguments.py:
    --activations-checkpoint-method without a granularity is of whole layers."""
    old = megatron(
        recompute_granularity=None,
        activations_checkpoint_method="uniform",
        activations_checkpoint_num_layers=1,
    )
    assert of_megatron(tmp_path, old)["recompute"] == "full"
    assert (
        of_megatron(tmp_path, megatron(recompute_granularity=None, activations_checkpoint_method=None))[
            "recompute"
        ]
        == "none"
    )


@pytest.mark.parametrize(
    ("changed", "title"),
    [
        (
            {"encoder_num_layers": 24, "decoder_num_layers": 24, "decoder_seq_length": 128},
            "an encoder-decoder model",
        ),
        ({"hybrid_override_pattern": "M-M*"}, "a model with Mamba or hybrid layers"),
        ({"retro_add_retriever": True}, "a model with retrieval"),
    ],
)
def test_runs_of_other_models_are_refused(changed, title, tmp_path):
    with pytest.raises(tc.InputError, match=f"is a launch of {title}"):
        of_megatron(tmp_path, megatron(**changed))
    defaults = {
        "encoder_num_layers": 24,
        "decoder_num_layers": None,
        "decoder_seq_length": None,
        "hybrid_override_pattern": None,
    }
    more = {
        "retro_add_retriever": False,
        "mask_prob": 0.15,
        "mamba_state_dim": 128,
        "img_h": 224,
        "retro_encoder_layers": 2,
    }
    assert of_megatron(tmp_path, megatron(**defaults, **more))["layers"] == "24"


def test_software_of_a_log(tmp_path):
    """As `traincast.accuracy.runs.run` reads the framework;
    a log of Megatron-LM from before its core has an older one."""
    assert run.read_run(row(CLUSTER / "megatron.log", gpu="h100-sxm-80")).stack == "megatron-core-2025"
    assert of_megatron(tmp_path, megatron())["stack"] == "Megatron-LM"
