"""Python programs on TRL and on Hugging Face's Trainer: what they build, followed without being run.

Defaults are those of TRL 1.16.0 (SFTConfig: 1,024 tokens, recomputation, bf16), transformers 5.23.0
(TrainingArguments: 8 rows, no recomputation, fp32) and PEFT 0.21.2 (LoraConfig: rank 8, no dropout). Programs
are written for these tests.
"""

import pytest

import traincast as tc
from traincast.launch.formats import READERS
from traincast.launch.reader import read
from traincast.launch.settings.given import Given

SFT = """
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

NAME, ROWS = "Qwen/Qwen2.5-7B", 4
model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16 MODEL)
config = SFTConfig("out", per_device_train_batch_size=ROWS, gradient_accumulation_steps=64 // ROWS ARGS)
trainer = SFTTrainer(model=model, args=config, train_dataset=load() TRAINER)
trainer.train()
"""
TRAINER = """
import argparse
import os
from dataclasses import dataclass, field
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments

def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="meta-llama/Llama-2-7b-hf")
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--use_lora", action="store_true")
    return parser.parse_args()

def main():
    args = parsed()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model)
    if args.use_lora:
        model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"]))
    def tokenize(rows):
        return tokenizer(rows["text"], truncation=True, max_length=2048)
    training = TrainingArguments(
        output_dir=f"out/{args.model}", per_device_train_batch_size=args.batch_size, bf16=True,
        fsdp="full_shard auto_wrap", learning_rate=float(os.environ.get("LR", "1e-5")), logging_steps=now(),
    )
    training.gradient_accumulation_steps = 8
    Trainer(model=model, args=training, train_dataset=load().map(tokenize)).train()

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def launch(tmp_path):
    """Function that writes a file and returns its path."""

    def write(text, name="train.py"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def sft(args="", model="", trainer=""):
    return SFT.replace(" ARGS", args).replace(" MODEL", model).replace(" TRAINER", trainer)


def checked(path, gpus=8, **options):
    return tc.check(path, "dgx-h100", gpus=gpus, **options)


def refusal(path, **options):
    with pytest.raises(tc.InputError) as error:
        checked(path, **options)
    return "; ".join(error.value.problems)


def test_a_program_of_trl(launch):
    result = checked(launch(sft(", max_length=2048, packing=True")))
    est = result.est
    assert (result.reading.format, est.model.name, est.model.seq) == ("trl-program", "qwen2.5-7b", 2048)
    assert (est.plan.mbs, est.gbs, est.plan.recompute, est.plan.precision) == (4, 512, "full", "bf16-pure")


def test_defaults_of_trl_are_said(launch):
    reading = checked(launch(sft())).reading
    assert any("max_length 1,024" in note and "gradient_checkpointing on" in note for note in reading.assumed)


def test_adapters_on_a_base_of_four_bits(launch):
    """Rank and dropout are PEFT's, not those of TRL's command line (16 and 0.05)."""
    text = sft(
        model=", quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_use_double_quant=True)",
        trainer=', peft_config=LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM")',
    )
    adapters = checked(launch(text)).est.model.adapters
    assert (adapters.rank, adapters.base, adapters.dropout) == (8, "nf4", False)


def test_pairs_of_answers(launch):
    text = sft().replace("SFT", "DPO")
    facts = read(launch(text), READERS).facts
    assert (facts["reference"], facts["mbs"]) == (True, 8)


def test_a_program_of_the_trainer(launch):
    """Through a function, defaults of a command line, a tokenizer, and an attribute that is set later."""
    est = checked(launch(TRAINER)).est
    assert (est.model.name, est.model.seq, est.model.adapters) == ("llama-2-7b", 2048, None)
    assert (est.plan.mbs, est.gbs, est.plan.zero, est.plan.recompute) == (2, 128, 3, "none")


def test_options_of_the_command_line(launch):
    given = {"use_lora": "True", "batch_size": "4"}
    est = checked(launch(TRAINER), variables=given).est
    assert (est.model.adapters.rank, est.plan.mbs) == (16, 4)


def test_a_script_and_the_program_beside_it(launch):
    """The script has launcher and options, the program all else."""
    launch(TRAINER)
    start = "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 $DIR/train.py"
    job = f"#!/bin/bash\n#SBATCH --nodes=2\n{start}"
    result = checked(launch(f"{job} --batch-size 1 --use_lora\n", "job.slurm"), gpus=None)
    assert (result.est.plan.dp, result.est.plan.mbs, result.est.model.adapters.rank) == (16, 1, 16)
    assert "settings of train.py, which it starts" in result.reading.assumed


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("args.batch_size, bf16", "rows_of(model), bf16", "per_device_train_batch_size = rows_of: computed"),
        ("bf16=True", "bf16=wanted()", "bf16 = wanted: computed by the program"),
        ("if args.use_lora", "if ready()", "condition = ready()"),
        ("max_length=2048", "padding=True", "sequence length"),
        ("train_dataset=", "optimizers=(mine(), None), train_dataset=", "another optimizer"),
        ('default="meta-llama/Llama-2-7b-hf"', "required=True", "model_name_or_path = $model"),
        (
            "(args.model)\n    if",
            '(args.model, tp_plan="auto")\n    if',
            "tensor parallelism of transformers",
        ),
        (
            "(args.model)\n    if",
            "(args.model, distributed_config=DistributedConfig(enable_expert_parallel=True))\n    if",
            "expert or tensor parallelism of transformers' DistributedConfig",
        ),
        (
            "training.gradient",
            "training.set_training(4)\n    training.gradient",
            "condition = training.set_training",
        ),
    ],
)
def test_refused_by_name(old, new, words, launch):
    assert old in TRAINER
    assert words in refusal(launch(TRAINER.replace(old, new)))


def test_what_is_computed_can_be_given(launch):
    text = TRAINER.replace("args.batch_size, bf16=True", "rows_of(model), bf16=wanted()")
    est = checked(launch(text), variables={"per_device_train_batch_size": "3", "bf16": "True"}).est
    assert (est.plan.mbs, est.plan.precision) == (3, "bf16")


def test_a_program_that_takes_all_from_the_command_line(launch):
    text = """
from transformers import HfArgumentParser, Trainer, TrainingArguments
parser = HfArgumentParser((ModelArguments, TrainingArguments))
model_args, training_args = parser.parse_args_into_dataclasses()
Trainer(model=model, args=training_args).train()
"""
    path = launch(text)
    assert "takes TrainingArguments from the command line" in refusal(path)
    command = (
        "torchrun --nproc_per_node 8 train.py --model_name_or_path mistralai/Mistral-7B-v0.1 --bf16 True"
    )
    script = launch(f"{command} --per_device_train_batch_size 2 --model_max_length 2048\n", "run.sh")
    assert read(script, READERS).format == "huggingface-trainer"


def test_one_of_several_configurations(launch):
    text = (
        sft()
        + 'SFTTrainer(model=model, args=SFTConfig("b", per_device_train_batch_size=2), train_dataset=d)\n'
    )
    path = launch(text)
    assert "describes 2 runs" in refusal(path)
    line = len(text.splitlines())
    assert read(path, READERS, given=Given(recipe=f"line {line}")).facts["mbs"] == 2


@pytest.mark.parametrize(
    ("args", "trainer", "precision"),
    [
        ("model_init_kwargs={'dtype': 'bfloat16'}", "", "bf16-pure"),
        # trainer/utils.py of TRL 1.16.0, create_model_from_path: `dtype` is float32 where it is not given,
        # and from_pretrained of transformers 5.23 takes it before `torch_dtype`
        ("model_init_kwargs={'torch_dtype': 'bfloat16'}", "", "bf16"),
        # SFTTrainer of TRL 0.11 gives both names to from_pretrained as they are
        ("", "model_init_kwargs={'torch_dtype': torch.bfloat16}", "bf16-pure"),
    ],
)
def test_trl_loads_a_model_that_is_named_in_its_own_dtype(launch, args, trainer, precision):
    text = sft(f", {args}" * bool(args), trainer=f", {trainer}" * bool(trainer))
    named = text.replace("model=model", 'model="Qwen/Qwen2.5-7B"')
    reading = checked(launch(named)).reading
    assert reading.facts["precision"] == precision
    idle = "model_init_kwargs.torch_dtype has no effect: TRL loads the model in its dtype" in reading.assumed
    assert idle is ("torch_dtype" in args)


def test_a_model_that_is_loaded_already_is_not_loaded_again(launch):
    """trainer/sft_trainer.py of TRL 1.16.0 warns: 'The `model_init_kwargs` will be ignored.'"""
    path = launch(sft(", model_init_kwargs={'dtype': 'float32', 'attn_implementation': 'eager'}"))
    facts = checked(path).reading.facts
    assert (facts["precision"], facts["attention"]) == ("bf16-pure", "flash")


ON_COMMAND_LINE = """
from trl import ModelConfig, ScriptArguments, TrlParser
from trl.experimental import {name}Config, {name}Trainer

if __name__ == "__main__":
    parser = TrlParser((ScriptArguments, {name}Config, ModelConfig))
    script, training, model = parser.parse_args_and_config()
    {name}Trainer(model.model_name_or_path, args=training).train()
"""


@pytest.mark.parametrize(
    ("name", "word", "kind"),
    [
        ("BCO", "bco", "alignment without pairs of answers"),
        ("GOLD", "gold", "distillation, in which a teacher answers as well"),
        ("NashMD", "nash_md", "reinforcement learning"),
        ("OnlineDPO", "online_dpo", "reinforcement learning"),
        ("AsyncGRPO", "async_grpo", "reinforcement learning"),
    ],
)
def test_what_else_trl_trains_by_is_named(launch, name, word, kind):
    """trl/experimental of TRL 1.10 to 1.16, and examples/scripts, whose files have these names."""
    built = f'from trl import {name}Config, {name}Trainer\n{name}Trainer("gpt2", args={name}Config("out"))\n'
    command = f"accelerate launch --num_processes 8 examples/scripts/{word}.py --model_name_or_path gpt2\n"
    derived = f"class Own({name}Config):\n    pass\n\n" + ON_COMMAND_LINE.replace("{name}Config,", "Own,", 1)
    files = {
        "parsed.py": ON_COMMAND_LINE.format(name=name),
        "derived.py": derived.format(name=name),
        "built.py": built,
        "run.sh": command,
    }
    for file, text in files.items():
        with pytest.raises(tc.InputError, match=rf"{kind}, which is not supported: .*objective {word}"):
            checked(launch(text, file), model="llama-3-8b", seq=1024)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("use_kernels=True", r"use_kernels: not read \(kernels that fuse the loss"),
        ("num_hidden_layers=4", r"num_hidden_layers = 4: not read \(other sizes of the model"),
        ("tp_size=2", r"tp_size = 2: not read \(tensor parallelism of transformers"),
    ],
)
def test_what_a_program_loads_otherwise_is_named(launch, given, named):
    """transformers 5.23, modeling_utils.py, from_pretrained, which gives the rest to the configuration."""
    with pytest.raises(tc.InputError, match=named):
        checked(launch(sft(model=f", {given}")))


def test_kernels_of_experts_that_a_program_loads_are_named(launch):
    """transformers 5.23, modeling_utils.py: grouped_mm where from_pretrained is given none."""
    assert checked(launch(sft(model=', experts_implementation="grouped_mm"'))).est.plan.dp == 8
    with pytest.raises(
        tc.InputError, match=r"experts_implementation = eager: not read \(kernels of experts\)"
    ):
        checked(launch(sft(model=', experts_implementation="eager"')))
