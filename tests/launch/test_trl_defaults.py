"""What TRL, Accelerate and LLaMA-Factory do where a launch says nothing, and names that mean the same."""

import json

import pytest

import traincast as tc
from traincast.core.errors import InputError
from traincast.launch.formats import READERS
from traincast.launch.reader import complete_launch, read
from traincast.launch.settings.defaults import parser_defaults
from traincast.launch.settings.format import launch_from_facts

TRL = "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\nnum_processes: 8\n"
LORA = f"{TRL}use_peft: true\nlora_target_modules: [q_proj]\n"
TRL_LAUNCHES = {
    "full": (TRL, "sft"),
    "LoRA": (LORA, "sft"),
    "QLoRA": (f"{LORA}load_in_4bit: true\n", "sft"),
    "bf16 weights": (f"{TRL}dtype: bfloat16\n", "sft"),
    "DPO": (f"{TRL}beta: 0.1\n", "dpo"),
    "FSDP2": (f"{TRL}accelerate_config: fsdp2\n", "sft"),
    "ZeRO-3": (f"{TRL}accelerate_config: zero3\n", "sft"),
}
FACTORY = (
    "model_name_or_path: Qwen/Qwen3-8B\nfinetuning_type: {}\ncutoff_len: 1024\nlora_target: all\nbf16: true\n"
    "per_device_train_batch_size: 2\n"
)
SCRIPT = (
    "accelerate launch --num_processes 8 {} sft.py --model_name_or_path Qwen/Qwen3-8B"
    " --per_device_train_batch_size 2 --max_length 1024"
)
FILES = {  # of Accelerate
    "FSDP": {"distributed_type": "FSDP", "mixed_precision": "bf16", "num_processes": 8, "fsdp_config": {}},
    "FSDP2": {
        "distributed_type": "FSDP",
        "mixed_precision": "bf16",
        "num_processes": 8,
        "fsdp_config": {"fsdp_version": 2},
    },
    "DeepSpeed": {
        "distributed_type": "DEEPSPEED",
        "mixed_precision": "bf16",
        "num_processes": 8,
        "deepspeed_config": {"zero_stage": 2},
    },
    "DDP": {"distributed_type": "MULTI_GPU", "num_processes": 8},
}
FSDP, DEEPSPEED = "fsdp_config", "deepspeed_config"
PARTS = {  # beginnings of names -> part of a file that has them
    "fsdp_": FSDP,
    "fp8_": "fp8_config",
    "dynamo_": "dynamo_config",
    **dict.fromkeys(("zero", "offload_", "deepspeed_", "gradient_"), DEEPSPEED),
    "megatron_lm_": "megatron_lm_config",
}
GIB = 1 << 30


@pytest.fixture
def reading(tmp_path):
    """Reader of a text, or of a document as JSON, which is YAML too."""

    def reading_of(text, ending=".yaml", form=None):
        path = tmp_path / f"run{ending}"
        path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
        return read(path, READERS, form)

    return reading_of


def answered(reading):
    """What the answer hangs on: facts with effect, the software stack, and settings that stop it."""
    facts = {
        name: value for name, value in reading.facts.items() if name != "cp_kind" or reading.facts["cp"] > 1
    }
    refused = [each for each in reading.unread if each.setting not in reading.not_in_table.named]
    return facts, reading.form.name, reading.form.stack(reading.settings), refused


def differing(answer, plain, launches):
    """Defaults whose launch is answered otherwise than the plain one, or refused."""
    different = {}
    for name, launch in launches.items():
        try:
            written = answer(launch)
        except InputError as error:
            written = error.problems
        if written != plain:
            different[name] = written
    return different


@pytest.mark.parametrize("name", TRL_LAUNCHES)
def test_default_written_out_of_trl(name, reading):
    """A file of TRL without a setting, and with its default written out, null where it has none."""
    text, parser = TRL_LAUNCHES[name]
    launches = {
        setting: f"{text}{setting}: {json.dumps(default)}\n"
        for setting, default in parser_defaults("trl", parser).items()
        if f"\n{setting}:" not in f"\n{text}"
    }
    assert len(launches) > 100
    assert not differing(lambda text: answered(reading(text)), answered(reading(text)), launches)


@pytest.mark.parametrize(
    "further", ["", "--use_peft --lora_target_modules q_proj", "--bf16 True --dtype bfloat16"]
)
def test_default_written_out_of_trl_on_a_command_line(further, reading):
    """The same of a script; options on its command line have a value."""
    text = f"{SCRIPT.format('')} {further}"
    launches = {
        setting: f"{text} --{setting} {default}"
        for setting, default in parser_defaults("trl", "sft").items()
        if default not in (None, "") and not isinstance(default, list) and f"--{setting} " not in f"{text} "
    }
    assert not differing(
        lambda text: answered(reading(text, ".sh")), answered(reading(text, ".sh")), launches
    )


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--multi_gpu",
        "--use_fsdp",
        "--use_deepspeed --zero_stage 2",
        "--use_fsdp --fsdp_version 2 --use_parallelism_config --parallelism_config_dp_shard_size 8",
    ],
)
def test_default_written_out_of_accelerate_launch(options, reading):
    """An argument of `accelerate launch` without effect turns nothing on, a mesh of one rank no mesh."""
    launches = {
        setting: SCRIPT.format(f"{options} --{setting} {default}")
        for setting, default in parser_defaults("accelerate", "launch").items()
        if default not in (None, "")
        and not isinstance(default, list)
        and f"--{setting} " not in f"{options} "
    }
    plain = answered(reading(SCRIPT.format(options), ".sh"))
    assert not differing(lambda text: answered(reading(text, ".sh")), plain, launches)


@pytest.mark.parametrize("name", FILES)
def test_default_written_out_of_accelerate_file(name, reading):
    """The same of its configuration, whose parts have arguments of `accelerate launch`; null as absent."""
    document, launches = FILES[name], {}
    defaults = {**parser_defaults("accelerate", "launch"), **parser_defaults("accelerate", "config")}
    for setting, default in defaults.items():
        part = next((part for start, part in PARTS.items() if setting.startswith(start)), "")
        inner = document.get(part, {})
        is_other = part in (FSDP, DEEPSPEED) and part not in document
        if is_other or setting in (*document, *inner, *PARTS.values()) or setting.startswith("parallelism_"):
            continue
        written = {part: {**inner, setting: default}} if part else {setting: default}
        launches[setting] = {**document, **written}
    plain = answered(reading(document, form="accelerate"))
    assert len(launches) > 20
    assert not differing(lambda file: answered(reading(file, form="accelerate")), plain, launches)


@pytest.mark.parametrize("kind", ["lora", "full", "full\nfsdp: full_shard auto_wrap"])
def test_default_written_out_of_transformers_in_llama_factory(kind, reading):
    """LLaMA-Factory takes TrainingArguments; it recomputes layers itself, whatever the Trainer is told."""
    text = FACTORY.format(kind)
    launches = {
        setting: f"{text}{setting}: {json.dumps(default)}\n"
        for setting, default in parser_defaults("transformers", "trainer").items()
        if f"\n{setting}:" not in f"\n{text}"
    }
    plain = answered(reading(text))
    assert plain[0]["recompute"] == "full"
    assert not differing(lambda text: answered(reading(text)), plain, launches)


# Weights [GiB] of Qwen3-8B, 8.19e9 parameters, and LoRA of rank 16: trl 1.16.0, trainer/model_config.py and
# trainer/utils.py, create_model_from_path. DeepSpeed 0.19.8 casts the model to bf16, FSDP shards it as it is.
@pytest.mark.parametrize(
    ("further", "dtype", "weights"),
    [
        ("", "fp32", 30.5),
        ("dtype: float32\n", "fp32", 30.5),
        ("torch_dtype: float32\n", "fp32", 30.5),
        ("dtype: bfloat16\n", "16-bit", 15.3),
        ("dtype: auto\n", "16-bit", 15.3),
        ("model_init_kwargs: {dtype: bfloat16}\n", "16-bit", 15.3),
        ("dtype: bfloat16\nmodel_init_kwargs: {dtype: float32}\n", "fp32", 30.5),
        ("accelerate_config: fsdp2\n", "fp32", 30.5 / 8),
        ("accelerate_config: fsdp2\ndtype: bfloat16\n", "16-bit", 15.3 / 8),
        ("accelerate_config: zero1\n", "16-bit", 15.3),
        ("accelerate_config: zero3\n", "16-bit", 15.3 / 8),
    ],
)
def test_default_written_out_of_the_dtype_of_a_frozen_model(further, dtype, weights, reading):
    text = f"{TRL}use_peft: true\nlora_target_modules: all-linear\nmax_length: 2048\n{further}"
    found = reading(text)
    assert found.facts["adapters"].dtype == dtype
    says = "the model is loaded in fp32, the default of dtype"
    assert (says in found.assumed) == ("dtype" not in text)
    model, plan, gbs = complete_launch(found, tc.load_model("qwen3-8b"), None, None, {})[1:]
    est = tc.estimate(model, "dgx-h200", plan, gbs=gbs, assumptions=found.form.stack(found.settings))
    assert est.memory["weights"] / GIB == pytest.approx(weights, rel=0.02)


def test_misread_dtype_of_what_qlora_does_not_pack(reading):
    """Embedding, head and norms are as loaded: 2 bytes more of 151,936 × 4,096 weights twice."""
    memory = []
    for further in ("dtype: float32\n", "dtype: bfloat16\n"):
        found = reading(f"{LORA}load_in_4bit: true\n{further}")
        model, plan, gbs = complete_launch(found, tc.load_model("qwen3-8b"), None, None, {})[1:]
        est = tc.estimate(model, "dgx-h200", plan, gbs=gbs, assumptions="huggingface-eager")
        memory.append(float(est.memory["weights"]))
    assert memory[0] - memory[1] == pytest.approx(2 * 2 * 151_936 * 4096, rel=0.01)


def test_default_written_out_of_the_dtype_of_a_reference_model(reading):
    """trl 1.16.0, trainer/dpo_trainer.py: that of the model. It is counted in 16 bits, which is said."""
    note = "the reference model is counted in 16 bits; it is held in fp32, as the model is loaded"
    said = {
        further: note in reading(f"{TRL}beta: 0.1\n{further}").assumed
        for further in (
            "",
            "dtype: float32\n",
            "dtype: bfloat16\n",
            "accelerate_config: zero3\n",
            "use_peft: true\n",
        )
    }
    assert [*said.values()] == [True, True, False, False, False]


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_misread_dtype_that_trl_does_not_have(name, reading):
    """trl 1.16.0, trainer/utils.py: auto, bfloat16, float16 or float32."""
    with pytest.raises(InputError, match=f"{name} = 'bf16': must be one of float32, bfloat16, float16, auto"):
        reading(f"{TRL}{name}: bf16\n")


def test_default_written_out_of_mixed_precision_is_the_trainers(reading):
    """transformers 5.23.0, training_args.py: bf16, which TRL has on, counts before `accelerate launch`."""
    assert reading(f"{TRL}mixed_precision: fp16\n").facts["precision"] == "bf16"
    assert reading(f"{TRL}mixed_precision: 'no'\n").facts["precision"] == "bf16"
    assert reading(f"{TRL}bf16: false\nmixed_precision: fp16\n").facts["precision"] == "fp16"
    assert reading(f"{TRL}bf16: false\n").facts["precision"] == "fp32"


# transformers 5.23.0, training_args.py: the old name counts where the new one is not set; SFTConfig sets it.
@pytest.mark.parametrize(
    ("settings", "recompute"),
    [
        ("", "full"),
        ("activation_checkpointing: true\n", "full"),
        ("activation_checkpointing: false\n", "none"),
        ("gradient_checkpointing: false\n", "none"),
        ("activation_checkpointing: true\ngradient_checkpointing: false\n", "full"),
        ("activation_checkpointing: false\ngradient_checkpointing: true\n", "none"),
    ],
)
def test_alias_of_gradient_checkpointing(settings, recompute, reading):
    assert reading(TRL + settings).facts["recompute"] == recompute


@pytest.mark.parametrize("name", ["activation_checkpointing", "gradient_checkpointing"])
def test_alias_of_what_belongs_to_checkpointing(name, reading):
    """transformers 5.23.0, modeling_utils.py: every n-th layer, its input on the host."""
    text = f"{TRL}{name}_kwargs: {{every_n_layers: 2, offload: true, use_reentrant: false}}\n"
    found = reading(text)
    found.check_unread()
    assert (found.facts["recompute_every"], found.facts["offload"]) == (2, "activations")
    line = f"{SCRIPT.format('')} --{name}_kwargs '{{\"every_n_layers\": 3}}'"
    assert reading(line, ".sh").facts["recompute_every"] == 3
    both = f"{text}activation_checkpointing_kwargs: {{every_n_layers: 4}}\n"
    if name == "gradient_checkpointing":  # those of the new name count alone
        assert reading(both).facts["recompute_every"] == 4
        assert reading(both).facts["offload"] == "none"


def test_misread_checkpointing_of_some_operations(reading):
    """trl 1.16.0, trainer/sft_trainer.py: `selective` keeps results of products."""
    with pytest.raises(InputError, match="selective: not read"):
        reading(f"{TRL}gradient_checkpointing_kwargs: {{selective: true}}\n").check_unread()


# As accelerate 1.15.0 makes its plugin of what `accelerate launch` sets (utils/dataclasses.py): FSDP1 is the
# default and has a strategy, FSDP2 reshards or not; each leaves what is the other's alone.
@pytest.mark.parametrize(
    ("part", "zero"),
    [
        ({}, 3),
        ({"fsdp_sharding_strategy": 1}, 3),
        ({"fsdp_sharding_strategy": 2}, 2),
        ({"fsdp_sharding_strategy": "3"}, 0),
        ({"fsdp_sharding_strategy": 4}, 3),
        ({"fsdp_sharding_strategy": 5}, 2),
        ({"fsdp_sharding_strategy": "shard_grad_op"}, 2),
        ({"fsdp_version": 1, "fsdp_reshard_after_forward": "SHARD_GRAD_OP"}, 3),
        ({"fsdp_version": 2}, 3),
        ({"fsdp_version": 2, "fsdp_reshard_after_forward": False}, 2),
        ({"fsdp_version": 2, "fsdp_reshard_after_forward": "no"}, 2),
        ({"fsdp_version": 2, "fsdp_sharding_strategy": "SHARD_GRAD_OP"}, 3),
    ],
)
def test_misread_sharding_of_fsdp(part, zero, reading):
    found = reading({**FILES["FSDP"], "num_machines": 2, FSDP: part}, form="accelerate")
    assert found.facts["zero"] == zero
    assert found.facts.get("replicas", 1) == (2 if part.get("fsdp_sharding_strategy") in (4, 5) else 1)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"fsdp_sharding_strategy": 7}, "must be one of FULL_SHARD, .*, or 1 to 5"),
        ({"fsdp_version": 2, "fsdp_reshard_after_forward": "FULL_SHARD"}, "must be one of true, false"),
        ({"fsdp_activation_checkpointing_offload": True}, "needs fsdp_config.fsdp_activation_checkpointing"),
    ],
)
def test_misread_options_that_accelerate_refuses(part, message, reading):
    with pytest.raises(InputError, match=message):
        reading({**FILES["FSDP"], FSDP: part}, form="accelerate")


# accelerate 1.15.0, utils/dataclasses.py, DistributedType and SageMakerDistributedType
@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        *((f"MULTI_{kind}", 8) for kind in ("CPU", "GPU", "NPU", "MLU", "SDAA", "MUSA", "XPU", "HPU")),
        ("MULTI_NEURON", 8),
        ("XLA", 8),
        ("NO", 1),  # commands/launch.py: one process, whatever num_processes says
    ],
)
def test_misread_distributed_type(name, gpus, reading):
    found = reading({"distributed_type": name, "num_processes": 8}, form="accelerate")
    assert (found.facts["zero"], found.facts["gpus"]) == (0, gpus)


@pytest.mark.parametrize("name", ["MEGATRON_LM", "DATA_PARALLEL", "MODEL_PARALLEL"])
def test_misread_distributed_type_that_is_refused_by_name(name, reading):
    with pytest.raises(InputError, match=f"distributed_type = {name}: .* not read"):
        reading({"distributed_type": name, "num_processes": 8}, form="accelerate")


@pytest.mark.parametrize(
    ("document", "defaults"),
    [
        (FILES["FSDP"], "fsdp_version 1, fsdp_sharding_strategy FULL_SHARD, dynamo_backend no"),
        (FILES["FSDP2"], "fsdp_reshard_after_forward true, dynamo_backend no"),
        ({**FILES["FSDP"], FSDP: {"fsdp_sharding_strategy": 2}}, "fsdp_version 1, dynamo_backend no"),
        (
            {**FILES["FSDP2"], "dynamo_config": {"dynamo_backend": "INDUCTOR"}},
            "fsdp_reshard_after_forward true",
        ),
        (FILES["DeepSpeed"], None),
    ],
)
def test_default_written_out_of_accelerate_is_assumed(document, defaults, reading):
    said = [line for line in reading(document, form="accelerate").assumed if "defaults of Accelerate" in line]
    assert said == ([f"{defaults}: defaults of Accelerate, not set in the file"] if defaults else [])


@pytest.mark.parametrize("mixed", [{}, {"mixed_precision": "no"}, {"mixed_precision": False}])
def test_default_written_out_of_mixed_precision(mixed, reading):
    """The dtype that the program loads the model in, with gradients and moments like it: said, not silent."""
    document = {key: value for key, value in FILES["FSDP2"].items() if key != "mixed_precision"}
    found = reading({**document, **mixed}, form="accelerate")
    names = ("precision", "grad_dtype", "optimizer_kind")
    assert tuple(found.facts[name] for name in names) == ("bf16-pure", "16-bit", "adam-bf16")
    assert any("in the dtype that the program loads the model in" in line for line in found.assumed)
    sharded = reading({**FILES["DeepSpeed"], "mixed_precision": "no"}, form="accelerate")
    assert sharded.facts["precision"] == "fp32"
    assert any("loads the model in fp32" in line for line in sharded.assumed)


@pytest.mark.parametrize(
    ("dynamo", "stack", "memory"),
    [  # Llama 3 8B on 16 H100, two micro-batches, whose gradients are whole; what eager layers save
        ({}, "huggingface-eager", 94.0),
        ({"dynamo_config": {"dynamo_backend": "NO"}}, "huggingface-eager", 94.0),
        ({"dynamo_config": {"dynamo_backend": "INDUCTOR"}}, "torchtitan-2025", 50.5),
    ],
)
def test_default_written_out_of_compilation(dynamo, stack, memory, reading):
    """Accelerate compiles nothing unless `dynamo_backend` says so (1.15.0, commands/launch.py)."""
    found = reading({**FILES["FSDP2"], "num_processes": 16, "num_machines": 2, **dynamo}, form="accelerate")
    found.check_unread()
    assert found.form.stack(found.settings) == stack
    model, plan, gbs = complete_launch(found, tc.load_model("llama-3-8b"), None, 32, {})[1:]
    est = tc.estimate(model, "dgx-h100", plan, gbs=gbs, assumptions=stack)
    assert sum(est.memory.values()) / GIB == pytest.approx(memory, abs=0.3)


def test_misread_compiler_that_is_not_predicted(reading):
    document = {**FILES["FSDP2"], "dynamo_config": {"dynamo_backend": "TENSORRT"}}
    with pytest.raises(InputError, match=r"another backend of torch\.compile"):
        reading(document, form="accelerate").check_unread()
    with pytest.raises(InputError, match=r"torch\.compile fuses kernels"):
        reading(f"{TRL}dynamo_backend: INDUCTOR\n").check_unread()


def test_exports_for_accelerate_say_whether_they_are_compiled():
    plan = tc.Plan(dp=8, zero=3)
    for stack, compiled in (("torchtitan-2025", True), ("huggingface-eager", False)):
        text = tc.export(
            tc.estimate("llama-3-8b", "dgx-h100", plan, gbs=8, assumptions=stack), "accelerate"
        ).text
        assert ('dynamo_backend: "INDUCTOR"' in text) == compiled


@pytest.mark.parametrize(("tp", "batch"), [(1, 64), (2, None)])
def test_misread_batch_of_deepspeed_with_tensor_parallelism(tp, batch, reading):
    """DeepSpeed 0.19.8, runtime/config.py: without an mpu it counts the batch over all ranks."""
    est = tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(tp=tp, dp=8, zero=1, mbs=2), gbs=64)
    written = tc.export(est, "deepspeed")
    document = json.loads(written.text)
    assert document.get("train_batch_size") == batch
    assert (document["train_micro_batch_size_per_gpu"], document["gradient_accumulation_steps"]) == (2, 4)
    assert ("gpus" in written.not_expressed) == (tp > 1)
    stated = {**document, "train_batch_size": 2 * 4 * 8 * tp}  # as an engine of 8 × tp ranks demands it
    model, plan, gbs = launch_from_facts(reading(stated, ".json", "deepspeed").facts, "", est.model)
    assert (model, plan.dp, plan.tp, plan.mbs, gbs) == (est.model, 8, tp, 2, 64)


def test_misread_batch_that_does_not_divide(reading):
    document = {
        "train_batch_size": 9,
        "tensor_parallel": {"autotp_size": 2},
        "train_micro_batch_size_per_gpu": 1,
    }
    with pytest.raises(InputError, match="train_batch_size = 9: must be divisible by autotp_size 2"):
        reading(document, ".json", "deepspeed")


FMS = (
    "accelerate launch --use_fsdp --num_processes 2 -m tuning.sft_trainer"
    " --model_name_or_path mistralai/Mistral-7B-v0.1"
)
# foundation-model-stack/fms-hf-tuning 007d276, tuning/config/configs.py and peft_config.py: as the Trainer,
# with bf16 weights and 4,096 tokens.
FMS_DEFAULTS = {
    "torch_dtype": "bfloat16",
    "use_flash_attn": "True",
    "max_seq_length": 4096,
    "packing": "False",
    "bf16": "False",
    "gradient_checkpointing": "False",
    "per_device_train_batch_size": 8,
}


def test_default_written_out_of_fms_hf_tuning(reading):
    """A program on TRL with defaults of its own."""
    plain = answered(reading(FMS, ".sh"))
    launches = {name: f"{FMS} --{name} {value}" for name, value in FMS_DEFAULTS.items()}
    assert not differing(lambda text: answered(reading(text, ".sh")), plain, launches)
    names = ("seq", "mbs", "precision", "recompute", "zero")
    assert (plain[1], *(plain[0][name] for name in names)) == (
        "fms-hf-tuning",
        4096,
        8,
        "bf16-pure",
        "none",
        3,
    )
    tuned = reading(f"{FMS} --peft_method lora --r 4 --target_modules q_proj v_proj", ".sh").facts["adapters"]
    assert (tuned.rank, tuned.targets, tuned.dtype, tuned.dropout) == (4, ("q", "v"), "16-bit", True)


@pytest.mark.parametrize("further", ["--peft_method pt", "--fused_lora auto_gptq True"])
def test_misread_method_of_fms_hf_tuning(further, reading):
    with pytest.raises(InputError, match="not read"):
        reading(f"{FMS} {further}", ".sh").check_unread()


@pytest.mark.parametrize(("zero", "kind"), [(0, "MULTI_GPU"), (2, "FSDP"), (3, "FSDP")])
def test_misread_mesh_without_shards(zero, kind):
    """FSDP2 stops at one: accelerate 1.15.0, parallelism_config.py, _validate_accelerator."""
    est = tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(dp=8, zero=zero), gbs=8)
    assert f'distributed_type: "{kind}"' in tc.export(est, "accelerate").text
