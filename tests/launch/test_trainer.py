"""Programs on Hugging Face's Trainer alone, and whose defaults a launch gets: those of its program, or none.

Defaults of the Trainer are those of transformers 5.23.0 (tables/defaults/transformers.toml); those of
programs are stated where they are used. Command lines are written for these tests, after the programs' own
examples.
"""

import pytest

import traincast as tc
from traincast.launch.formats import READERS
from traincast.launch.reader import read
from traincast.launch.settings.defaults import parser_defaults
from traincast.launch.settings.settings import Settings

MODEL = "--model_name_or_path mistralai/Mistral-7B-v0.1"
FSDP = "--fsdp 'full_shard auto_wrap' --fsdp_transformer_layer_cls_to_wrap MistralDecoderLayer"
BATCH = "--per_device_train_batch_size 2 --gradient_accumulation_steps 4"
ALPACA = f"torchrun --nproc_per_node=8 train.py {MODEL} --bf16 True {BATCH} --output_dir out {FSDP}"
LENGTH = " --model_max_length 2048"


@pytest.fixture
def launch(tmp_path):
    """Function that writes a script and returns its path."""

    def write(text, name="run.sh"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def reading(path):
    return read(path, READERS)


def refusal(path):
    """What a check of a file is refused with."""
    with pytest.raises(tc.InputError) as error:
        tc.check(path, "dgx-h100")
    return "; ".join(error.value.problems)


def test_misread_as_trl(launch):
    """Without recomputation, 2,048 tokens: the estimate of the plan that Alpaca's command line states."""
    checked = tc.check(launch(ALPACA + LENGTH), "dgx-a100")
    plan = tc.Plan(dp=8, zero=3, mbs=2, recompute="none")
    expected = tc.estimate(
        checked.est.model, "dgx-a100", plan, gbs=2 * 4 * 8, assumptions="huggingface-eager"
    )
    assert (checked.reading.format, checked.est.model.seq) == ("huggingface-trainer", 2048)
    assert checked.est.plan.recompute == "none"
    assert float(checked.est.step_seconds) == pytest.approx(float(expected.step_seconds))
    assert float(checked.est.memory_bytes) == pytest.approx(float(expected.memory_bytes))
    assert any(
        "gradient_checkpointing off, optim adamw_torch_fused" in note for note in checked.reading.assumed
    )


@pytest.mark.parametrize(
    ("command", "seq"),
    [
        (f"torchrun --nproc_per_node 8 fastchat/train/train_mem.py {MODEL} --model_max_length 4096", 4096),
        (f"torchrun --nproc_per_node 8 -m llava.train.train_mem {MODEL} --model_max_length 4096", 4096),
        (f"torchrun --nproc_per_node 8 run_clm.py {MODEL} --block_size 4096", 4096),
        (
            f"accelerate launch --num_processes 8 open_instruct/finetune.py {MODEL} --max_seq_length 4096",
            4096,
        ),
        (f"python -m torch.distributed.run --nproc_per_node 8 tune.py {MODEL} --cutoff_len 4096", 4096),
        # an argument of many programs, not of TRL's alone
        (f"torchrun --nproc_per_node 8 finetune.py {MODEL} --max_length 4096", 4096),
        (f"torchrun --nproc_per_node 8 train.py {MODEL} --max_length 4096 --use_peft True --lora_r 8", 4096),
        # fastchat/train/train.py and llava/train/train.py, TrainingArguments.model_max_length
        (f"torchrun --nproc_per_node 8 fastchat/train/train_mem.py {MODEL}", 512),
        (f"torchrun --nproc_per_node 8 -m llava.train.train_mem {MODEL}", 512),
        # stanford_alpaca, train.py
        (f"torchrun --nproc_per_node 8 train.py {MODEL} --data_path alpaca_data.json", 512),
        # transformers, examples/pytorch/language-modeling/run_clm.py: min(1024, max_position_embeddings)
        (f"torchrun --nproc_per_node 8 run_clm.py {MODEL}", 1024),
        (f"accelerate launch --num_processes 8 examples/run_clm_no_trainer.py {MODEL}", 1024),
    ],
)
def test_the_length_is_that_of_the_program(command, seq, launch):
    result = reading(launch(f"{command} --bf16 True --per_device_train_batch_size 1"))
    assert (result.format, result.facts["seq"]) == ("huggingface-trainer", seq)
    assert result.facts["recompute"] == "none"
    usual = result.form.usual_by_fact(result.settings)
    assert ("seq" in usual) == (seq != 4096)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (ALPACA, "does not give the sequence length"),
        (f"{ALPACA} --model_max_length 2048 --max_seq_length 512", "max_seq_length = 512: which is the"),
        (f"{ALPACA}{LENGTH} --lora_r 8", "lora_r = 8: nothing says that this program trains adapters"),
        (f"{ALPACA}{LENGTH} --max_context 4096", "max_context = 4096: not read"),
        (f"{ALPACA}{LENGTH} --data_block 4096", "data_block = 4096: not read"),
        # TRL's parser has no such argument: whose defaults it has is not known
        (f"torchrun --nproc_per_node 8 train_sft.py {MODEL} {BATCH}{LENGTH}", "model_max_length = 2048: not"),
    ],
)
def test_a_length_never_passes_unread(command, message, launch):
    assert message in refusal(launch(command))


@pytest.mark.parametrize(
    "command",
    [
        f"trl sft {MODEL} --dataset_name d",
        f"torchrun --nproc_per_node 8 trl/scripts/sft.py {MODEL} {BATCH}",
        f"accelerate launch --num_processes 8 scripts/run_sft.py {MODEL} {BATCH}",
        f"torchrun --nproc_per_node 8 train.py {MODEL} {BATCH} --packing True --max_length 4096",
    ],
)
def test_programs_of_trl_stay_so(command, launch):
    assert reading(launch(f"{command} --per_device_train_batch_size 1")).format == "trl"


def written_out():
    """Defaults of the Trainer's parser, as arguments."""
    defaults = parser_defaults("transformers", "trainer")
    return {name: value for name, value in defaults.items() if value not in (None, "", [])}


@pytest.mark.parametrize("name", sorted(written_out()))
def test_default_written_out(name, launch):
    """A launch without a setting and one with the Trainer's default of it are read alike."""
    command = ALPACA.replace(BATCH, "").replace("--bf16 True", "") + LENGTH
    without, stated = reading(launch(command)), reading(launch(f"{command} --{name} {written_out()[name]}"))
    assert stated.facts == without.facts
    assert not stated.unread


def test_defaults_are_those_of_the_parser():
    usual, values = READERS["huggingface-trainer"].usual_by_fact(Settings()), written_out()
    assert usual["mbs"] == f"per_device_train_batch_size {values['per_device_train_batch_size']}"
    assert usual["accumulation"] == f"gradient_accumulation_steps {values['gradient_accumulation_steps']}"
    assert usual["optimizer_kind"] == f"optim {values['optim']}"
    assert usual["precision"] == f"bf16 {'on' if values['bf16'] else 'off'}"


def test_weights_are_loaded_in_the_precision_of_the_checkpoint(launch):
    """transformers 5.23.0, modeling_utils.py: dtype = "auto" where none is given, and nothing mixes here."""
    command = f"torchrun --nproc_per_node 8 train.py {MODEL} {BATCH}{LENGTH}"
    usual, fp32 = reading(launch(command)), reading(launch(f"{command} --torch_dtype float32"))
    assert (usual.facts["precision"], fp32.facts["precision"]) == ("bf16-pure", "fp32")
    assert any("in the precision of the checkpoint" in note for note in usual.assumed)


@pytest.mark.parametrize(
    ("given", "replaced", "kept"),
    [
        ({"seq": 4096}, "model_max_length", "per_device_train_batch_size 8"),
        ({"gbs": 128}, "gradient_accumulation_steps", "per_device_train_batch_size 8"),
        ({"knobs": {"recompute": "full"}}, "gradient_checkpointing", "model_max_length 512"),
        ({"knobs": {"mbs": 2}}, "per_device_train_batch_size", "model_max_length 512"),
        ({"knobs": {"precision": "bf16"}}, "bf16", "model_max_length 512"),
    ],
)
def test_an_option_replaces_the_whole_default(given, replaced, kept, launch):
    command = f"torchrun --nproc_per_node 8 train.py {MODEL} --data_path data.json --fsdp full_shard"
    checked = tc.check(launch(command), "dgx-a100", **given)
    (defaults,) = (note for note in checked.reading.assumed if "defaults of Hugging Face Trainer" in note)
    assert replaced not in defaults
    assert kept in defaults
    assert not any("as in the file" in note for note in checked.reading.assumed)
    knobs = given.get("knobs", {})
    assert {name: getattr(checked.est.plan, name) for name in knobs} == knobs
    if "precision" in knobs:  # with the gradients and the optimizer of that precision
        assert (checked.est.plan.grad_dtype, checked.est.plan.optimizer_kind) == ("usual", "adam")


def test_a_given_batch_that_is_smaller_replaces_the_rows_of_a_rank(launch):
    """8 sequences on 8 GPUs are 1 each, not the Trainer's 8."""
    checked = tc.check(launch(ALPACA.replace(BATCH, "") + LENGTH), "dgx-a100", gbs=8)
    assert (checked.est.plan.mbs, checked.est.gbs) == (1, 8)


# Launches of programs that share settings with those that are read, and the names that they are refused by.
OTHERS = {
    "ms-swift, no step of training": (
        "swift export --adapters output --merge_lora true",
        "swift infer --model Qwen/Qwen3-8B --max_length 4096",
    ),
    "ms-swift in a Python program": ("from swift.llm import sft_main, TrainArguments\nsft_main(args)\n",),
    "DeepSpeed-Chat": (
        f"deepspeed --num_gpus 8 main.py {MODEL} --max_seq_len 512 --zero_stage 3 --gradient_checkpointing",
    ),
    "NeMo 1": (
        "torchrun --nproc_per_node=8 examples/megatron_gpt_pretraining.py trainer.precision=bf16"
        " trainer.devices=8 model.num_layers=32 model.hidden_size=4096 model.tensor_model_parallel_size=4",
    ),
    "axolotl": (
        "accelerate launch -m axolotl.cli.train llama.yml --micro_batch_size 2",
        "axolotl train a.yml",
    ),
    "torchtune": (
        "tune run --nproc_per_node 8 full_finetune_distributed --config llama3/8B_full batch_size=4",
    ),
    "LLaMA-Factory": ("llamafactory-cli train examples/llama3_full_sft.yaml",),
    "torchtitan": (
        "torchrun --nproc_per_node=8 -m torchtitan.train --job.config_file llama3_8b.toml",
        "CONFIG_FILE=llama3_8b.toml NGPU=16 ./run_train.sh --training.local_batch_size 2",
    ),
    "OpenRLHF (supervised": (
        "deepspeed --module openrlhf.cli.train_sft --max_len 2048 --train_batch_size 256 --bf16",
    ),
    "Megatron-Bridge in a Python program": (
        "from megatron.bridge.recipes.llama import llama3_8b_pretrain_config\n"
        "cfg = llama3_8b_pretrain_config()\ncfg.train.global_batch_size = 256",
    ),
    "Megatron-Bridge's performance scripts": (
        "python scripts/performance/setup_experiment.py -m llama3 -s 8b -ng 8 -c fp8_mx --gpu h100",
    ),
    "gpt-neox": ("python deepy.py train.py -d configs 20B.yml local_setup.yml",),
    "Composer": ("composer -n 8 train/train.py mpt-7b.yaml max_duration=100ba global_train_batch_size=512",),
    "Unsloth": (
        "python unsloth-cli.py --model_name unsloth/llama-3-8b --max_seq_length 8192"
        " --per_device_train_batch_size 4 --gradient_accumulation_steps 8 --lr_scheduler_type linear",
    ),
    "Levanter": ("python -m levanter.main.train_lm --config_path llama.yaml --trainer.train_batch_size 256",),
    "OLMo-core": ("torchrun --nproc-per-node=8 src/scripts/train/OLMo2-7B.py train run local --a.b=1",),
    "VeOmni": ("torchrun --nproc-per-node=8 tasks/train_torch.py qwen3.yaml --train.micro_batch_size 1",),
    "Lightning": ("python main.py fit --trainer.devices 8 --trainer.strategy fsdp --data.batch_size 4",),
    "LitGPT": ("litgpt finetune_full meta-llama/Llama-3-8B --devices 8 --train.micro_batch_size 1",),
    "Colossal-AI": (
        "colossalai run --nproc_per_node 8 train.py --plugin gemini --batch_size 4 --max_length 8",
    ),
    "Alpaca-LoRA": (
        "torchrun --nproc_per_node=8 finetune.py --base_model m --batch_size 128 --micro_batch_size 4"
        " --cutoff_len 512 --val_set_size 2000",
    ),
    "QLoRA": (f"python qlora.py {MODEL} --per_device_train_batch_size 1 --source_max_len 16 --bits 4",),
    "open-instruct": (f"accelerate launch --num_processes 8 open_instruct/dpo_tune.py {MODEL} {BATCH}",),
    "transformers other than causal language modelling": (
        "torchrun --nproc_per_node 8 run_glue.py --model_name_or_path bert-base-uncased --max_seq_length 128"
        " --per_device_train_batch_size 32 --num_train_epochs 3",
    ),
    "my_train.py, a program that is not known": (
        "torchrun --nproc_per_node 8 my_train.py --num-layers 32 --hidden-size 4096 --bf16 --wide 1 --deep 2",
    ),
    "cannot tell what other.py": ("srun python -u other.py --config llama.yaml",),
    # --batch_size and --lr are any program's, and date no Megatron-LM
    "starts train.py, a program that is not known": (
        "#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
        "srun python train.py --config base.yaml --batch_size 32 --lr 1e-4",
        "torchrun --nproc_per_node 8 train.py --model llama3-8b --micro-batch-size 2 --seq-len 4096 --fsdp",
    ),
}


@pytest.mark.parametrize(
    ("title", "command"), [(name, text) for name, texts in OTHERS.items() for text in texts]
)
def test_misread_programs_are_refused_by_name(title, command, launch):
    message = refusal(
        launch(f"#!/bin/bash\n# swift sft, axolotl train: a comment names no program\n{command}\n")
    )
    assert title in message


def test_a_file_of_arguments_is_of_the_program_that_has_them(launch):
    """run_clm.py takes its arguments as JSON (examples/pytorch/language-modeling); TRL has no block_size."""
    text = '{"model_name_or_path": "Qwen/Qwen3-8B", "block_size": 2048, "per_device_train_batch_size": 2}'
    result = reading(launch(text, "args.json"))
    assert (result.format, result.facts["seq"], result.facts["recompute"]) == (
        "huggingface-trainer",
        2048,
        "none",
    )


def test_defaults_of_trl_are_said(launch):
    """trl 1.16.0, SFTConfig and ModelConfig."""
    text = "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\nuse_peft: true\n"
    checked = tc.check(launch(text, "sft.yaml"), "dgx-h100", gpus=8)
    (said,) = (note for note in checked.reading.assumed if "defaults of TRL" in note)
    values = parser_defaults("trl", "sft")
    for name in ("max_length", "lora_r", "lora_dropout"):
        assert f"{name} {values[name]:,}" in said
    assert "gradient_checkpointing on" in said


def test_misread_script_around_a_program(launch):
    """A job that starts a program without settings: that file is what is to be checked."""
    job = "#!/bin/bash\n#SBATCH --nodes=8\nsrun torchrun --nproc_per_node 8 --nnodes 8 $DIR/train.py\n"
    said = refusal(launch(job, "job.slurm"))
    assert "holds no setting of train.py" in said
    assert "check train.py instead" in said
    assert "Megatron" not in said
    launch("import unsloth\n", "train.py")
    assert "train.py is a launch of Unsloth" in refusal(launch(job, "job.slurm"))


# Megatron-Bridge: a recipe whose file is not read, and what a recipe assigns.
OVERRIDES = (
    "mixed_precision=bf16_mixed train.global_batch_size=8 model.tensor_model_parallel_size=1"
    " model.pipeline_model_parallel_size=1"
)


@pytest.mark.parametrize(
    "command",
    [
        "./scripts/training/train.sh --recipe qwen3_8b_peft_3gpu_h100_bf16_config --seq_length 2048",
        "torchrun --nproc-per-node 8 run_recipe.py --recipe llama3_8b_pretrain_config model.num_layers=32",
    ],
)
def test_misread_recipe_that_is_not_there(command, launch):
    """It is named, and never taken for a run in fp32 without the distributed optimizer."""
    path = launch(command)
    with pytest.raises(tc.InputError, match=r"base_recipe = \w+_config: .*the recipe's file is needed"):
        tc.check(path, "dgx-h100", model="llama-3-8b", gpus=8)
    result = reading(path)
    assert (result.format, result.facts["precision"], result.facts["zero"]) == ("megatron-bridge", "bf16", 1)


def test_overrides_of_all_that_differs_between_recipes_need_no_recipe(launch):
    command = f"torchrun --nproc-per-node 8 run_recipe.py --recipe llama3_8b_pretrain_config {OVERRIDES}"
    assert tc.check(launch(command), "dgx-h100", model="llama-3-8b").est.plan.zero == 1


RECIPE = """
def llama3_8b_pretrain_8gpu_h100_bf16_config():
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").to_megatron_provider()
{}
    return cfg
"""


@pytest.mark.parametrize(
    ("lines", "fact", "value"),
    [
        (["cfg.model.seq_length = 8192", "cfg.dataset.seq_length = 2048"], "seq", 2048),
        (["cfg.dataset.seq_length = 2048", "cfg.model.seq_length = 8192"], "seq", 8192),
        (["cfg.dataset.seq_length = 2048", "cfg.model.seq_length = cfg.dataset.seq_length = 512"],
         "seq", 512),
        (["cfg.train.global_batch_size = 64", "cfg.train.global_batch_size *= 2"], "gbs", 128),
        (["cfg.train.global_batch_size = 64", "cfg.train.global_batch_size: int = 256"], "gbs", 256),
        ([f"cfg.model.tensor_model_parallel_size = {tp}" for tp in (2, 4)], "tp", 4),
        (["m, t = cfg.model, cfg.train", "m.tensor_model_parallel_size, t.micro_batch_size = 8, 4"], "tp", 8),
        (["with scope():", "    cfg.train.micro_batch_size = 4"], "mbs", 4),
        (["cfg.optimizer, cfg.scheduler = distributed_muon_with_cosine_annealing()"],
         "optimizer_kind", "muon"),
        (["cfg.mixed_precision = 'bf16_with_mxfp8_mixed'", "cfg.mixed_precision.grad_reduce_in_fp32 = False"],
         "precision", "mxfp8"),
    ],
)  # fmt: skip
def test_misread_assignments_of_a_recipe(lines, fact, value, launch):
    """The last assignment of a setting counts, however it is written."""
    text = RECIPE.format("\n".join(f"    {line}" for line in lines))
    assert reading(launch(text, "recipe.py")).facts[fact] == value


def test_misread_overrides_of_a_command_line(launch):
    """Bridge requires both lengths to be equal (training/config.py): the last one is meant."""
    command = f"torchrun --nproc-per-node 8 run_recipe.py --recipe a_pretrain_config {OVERRIDES}"
    path = launch(f"{command} model.seq_length=8192 dataset.seq_length=2048")
    assert reading(path).facts["seq"] == 2048


@pytest.mark.parametrize(("switch", "said"), [("", True), ("--use_peft", False)])
def test_settings_of_adapters_without_their_switch_are_said(switch, said, launch):
    """trl 1.16.0, trainer/utils.py, get_peft_config: without use_peft the model is trained in full."""
    command = f"accelerate launch --num_processes 8 sft.py {MODEL} {BATCH} --lora_r 8 {switch}"
    result = reading(launch(command))
    assert ("adapters" in result.facts) != said
    assert ("all weights are trained: lora_r has no effect without use_peft" in result.assumed) == said


def test_a_configuration_of_fsdp_is_not_misread(launch, tmp_path):
    """transformers 5.23.0, training_args.py: keys of --fsdp_config are with or without fsdp_."""
    (tmp_path / "fsdp.json").write_text('{"activation_checkpointing": true, "cpu_offload": true}')
    command = f"torchrun --nproc_per_node 8 train.py {MODEL} {BATCH}{LENGTH} --bf16 True"
    result = reading(launch(f"{command} --fsdp full_shard --fsdp_config fsdp.json"))
    assert result.facts["recompute"] == "full"
    assert result.facts["offload"] == "optimizer+weights"
    assert not result.unread


@pytest.mark.parametrize("name", ["bf16_full_eval", "max_eval_samples", "validation_split_percentage"])
def test_arguments_of_evaluation_are_not_refused(name, launch):
    result = reading(launch(f"{ALPACA}{LENGTH} --{name} 4"))
    assert not result.unread
    assert not result.not_understood


def test_other_sizes_are_not_misread(launch):
    """run_clm.py: --config_overrides changes the model that is named."""
    message = refusal(launch(f"torchrun --nproc_per_node 8 run_clm.py {MODEL} --config_overrides n_embd=10"))
    assert "config_overrides = n_embd=10: not read (other sizes of the model)" in message


def test_nodes_of_slurm_are_read(launch):
    """A directive that gives the accelerators is no setting that is not understood."""
    command = f"srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 train.py {MODEL} {BATCH}{LENGTH}"
    result = reading(launch(f"#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n{command}\n"))
    assert result.facts["gpus"] == 4 * 8
    assert not result.not_understood
