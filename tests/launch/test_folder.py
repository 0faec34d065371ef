"""Folders that can be launched: what is written, and what is refused. tests/frameworks launches them."""

import json
import stat
from dataclasses import replace

import pytest

import traincast as tc
from traincast.catalog.load import read_model
from traincast.core.errors import InputError
from traincast.launch.folder import export_folder
from traincast.launch.frameworks.model_config import config_of
from traincast.launch.settings.canonical import model_facts
from traincast.launch.training_programs import TRAINING_PROGRAMS
from traincast.model.adapters import parse_training
from traincast.ui.cli.main import main

MACHINE = "examples/measured_cpu/machine.yaml"
PLAN = tc.Plan(dp=2, mbs=2, zero=1)
LLAMA = tc.Model(
    name="m", layers=2, hidden=64, heads=4, kv_heads=2, ffn=176, seq=32, vocab=512, causal=True, mlp="swiglu",
    norm="rmsnorm", biases=(), positions="rotary", dropout=False, inner_dropout=False,
)  # fmt: skip
GPT = replace(
    LLAMA,
    kv_heads=None,
    ffn=256,
    mlp="gelu",
    norm="layernorm",
    biases=("qkv", "proj", "mlp"),
    positions="learned",
)


def folder(to, model=LLAMA, plan=PLAN, system=MACHINE, gbs=8):
    return export_folder(tc.estimate(model, system, plan, gbs=gbs), to)


@pytest.mark.parametrize(
    ("name", "model_type"),  # as published: model_type of the model's config.json on Hugging Face
    [
        ("llama-3-8b", "llama"),
        ("qwen2.5-7b", "qwen2"),
        ("qwen3-8b", "qwen3"),
        ("mistral-7b", "mistral"),
        ("mixtral-8x7b", "mixtral"),
        ("qwen3-30b-a3b", "qwen3_moe"),
    ],
)
def test_a_model_is_written_in_the_words_of_its_type_and_read_back(name, model_type):
    model = tc.load_model(name)
    config = config_of(model)
    assert config["model_type"] == model_type
    read = read_model(config, name, seq=model.seq)
    assert model_facts(read) == model_facts(model)


def test_a_gpt_is_a_gpt2():
    config = config_of(GPT)
    assert (config["model_type"], config["n_embd"], config["n_inner"]) == ("gpt2", 64, 256)


@pytest.mark.parametrize("name", ["deepseek-v3", "gpt-oss-20b", "nemotron-3-nano"])
def test_a_model_that_no_type_has_is_refused(name):
    with pytest.raises(InputError, match="transformers builds no such model"):
        config_of(tc.load_model(name))


def test_a_model_without_a_vocabulary_is_refused():
    with pytest.raises(InputError, match="vocab: missing"):
        config_of(replace(LLAMA, vocab=None))


def test_a_deepspeed_folder_for_cpus():
    written = folder("deepspeed")
    assert list(written.files) == ["ds_config.json", "config.json", "train.py", "launch.sh"]
    settings = json.loads(written.files["ds_config.json"])
    # PyTorch's AdamW needs no compiler; each step is printed
    assert (settings["optimizer"]["params"], settings["steps_per_print"]) == ({"torch_adam": True}, 1)
    script = written.files["launch.sh"]
    assert "export OMP_NUM_THREADS=1\nexport DS_ACCELERATOR=cpu\n" in script
    assert "torchrun --standalone --nproc-per-node 2" in script
    assert "train.py --seq=32 --attention=sdpa" in script
    assert written.not_expressed == {}


def test_an_accelerate_folder_for_cpus_runs_ddp():
    written = folder("accelerate", plan=replace(PLAN, zero=2, recompute="full"))
    assert "fsdp" not in written.files["accelerate.yaml"].partition("num_machines")[2]
    assert 'distributed_type: "MULTI_GPU"' in written.text
    assert "use_cpu: true" in written.text
    assert "--mbs=2 --accumulation=2 --cpu --recompute" in written.files["launch.sh"]
    # accelerate/state.py: FSDP is made of MULTI_GPU and the like, not of MULTI_CPU
    assert "on CPUs it runs DDP" in written.not_expressed["zero"]


def test_on_gpus_fsdp_recomputes_and_several_nodes_are_told_apart():
    plan = tc.Plan(dp=16, zero=3, mbs=1, recompute="full")
    written = folder("accelerate", tc.load_model("llama-3-8b"), plan, "dgx-h100", gbs=32)
    assert "fsdp_activation_checkpointing: true" in written.text
    script = written.files["launch.sh"]
    assert "--recompute" not in script
    assert "--cpu" not in script
    assert '--machine_rank "${NODE_RANK:-0}"' in script
    assert "OMP_NUM_THREADS" not in script


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        (tc.Plan(tp=2, mbs=2), "tp = 2: must be 1"),
        (tc.Plan(pp=2, mbs=2), "runs no pipeline"),
        (tc.Plan(dp=2, mbs=2, recompute="attention"), "recompute = attention"),
        (tc.Plan(dp=2, mbs=2, optimizer_kind="lion"), "optimizer_kind = lion"),
    ],
)
def test_what_the_program_does_not_run_is_refused(plan, named):
    with pytest.raises(InputError, match=named):
        folder("accelerate", plan=plan)


def test_all_that_is_wrong_is_said_at_once():
    model = replace(LLAMA, vocab=None, adapters=parse_training("lora:r=8"))
    with pytest.raises(InputError) as caught:
        folder("deepspeed", model, replace(PLAN, recompute="norms"))
    assert len(caught.value.problems) == 3


def test_a_format_without_a_program_has_no_folder():
    with pytest.raises(InputError, match=r"deepspeed|accelerate"):
        folder("megatron")
    assert set(TRAINING_PROGRAMS) == {"deepspeed", "accelerate"}


def test_the_command_writes_a_folder_whose_script_can_be_run(tmp_path, capsys):
    model = tmp_path / "config.json"
    model.write_text(json.dumps(config_of(LLAMA)))
    arguments = ["export", str(model), "--system", MACHINE, "--gpus", "2", "--gbs", "8", "--to", "deepspeed"]
    main([*arguments, "--output", str(tmp_path / "run")])
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {"ds_config.json", "config.json", "train.py", "launch.sh"}
    assert (tmp_path / "run" / "launch.sh").stat().st_mode & stat.S_IXUSR
    assert json.loads((tmp_path / "run" / "config.json").read_text()) == config_of(LLAMA)
    assert capsys.readouterr().err == ""
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--output", str(tmp_path / "run")])
    assert ended.value.code == 2
    assert "already exists" in capsys.readouterr().err


def test_what_is_written_for_cpus_is_checked_on_them(tmp_path):
    written = folder("accelerate", plan=replace(PLAN, zero=0))
    file = tmp_path / "accelerate.yaml"
    file.write_text(written.text)
    checked = tc.check(file, MACHINE, LLAMA, gbs=8)
    assert (checked.est.plan.dp, checked.est.plan.zero) == (2, 0)
    with pytest.raises(InputError, match="use_cpu: not read"):
        tc.check(file, "dgx-h100", LLAMA, gbs=8)


def test_every_stack_has_what_was_measured_on_cpus():
    """As the machine file has it for the stack pytorch: a CPU issues nothing ahead of time."""
    for stack in ("deepspeed-2025", "huggingface-eager", "pytorch"):
        est = tc.estimate(LLAMA, MACHINE, PLAN, gbs=8, assumptions=stack)
        assumed = est.assumptions
        assert (assumed.host.dispatch_seconds, assumed.kernels.launch_seconds) == (0, 4.167e-6)
        assert assumed.collectives.reduce_scatter_factor == 2.479
