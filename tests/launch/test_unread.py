"""Launches that cannot be predicted, and settings that matter and are not read: all of them are named."""

import json
import re
from pathlib import Path

import pytest

import traincast as tc
from traincast.launch.formats import FORMATS
from traincast.launch.frameworks.unsupported import keys_of
from traincast.launch.reader import read
from traincast.ui.cli.main import main

MEGATRON = (
    "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096"
    " --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 --vocab-size 32000"
    " --tensor-model-parallel-size 2 --sequence-parallel"
    " --micro-batch-size 1 --global-batch-size 64 --bf16"
)
MOE = MEGATRON + " --num-experts 8 --expert-model-parallel-size 8"
DEEPSPEED = '{{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1, "bf16": {{"enabled": true}}, {}}}'
NANOTRON = """parallelism:
  dp: 8
  tp: 2
{parallelism}model:
  dtype: bfloat16
  model_config:
    hidden_size: 2048
    intermediate_size: 8192
    num_hidden_layers: 24
    num_attention_heads: 32
    num_key_value_heads: 32
    vocab_size: 49152
{model}tokens:
  sequence_length: 2048
  micro_batch_size: 2
  batch_accumulation_per_replica: 4
optimizer:
{optimizer}  optimizer_factory:
    name: adamW
"""
TITAN = (
    "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n{}\n"
    "[parallelism]\n{}\n"
    "tensor_parallel_degree = 2\n"
)
ACCELERATE = (
    "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 16\n{}fsdp_config:\n  fsdp_version: 2\n{}"
)
GIVEN = {
    "deepspeed": "--model llama-3-8b --gpus 16",
    "accelerate": "--model llama-3-8b --gbs 64",
    "torchtitan-toml": "--gpus 16",
}


@pytest.fixture
def check(capsys, tmp_path):
    """Check a text: exit code, answer or nothing, standard error."""

    def check(text, form=None, *more):
        path = tmp_path / "file"
        path.write_text(text, encoding="utf-8")
        code = 0
        chosen = ["--framework", form] if form else []
        try:
            main(
                [
                    "check",
                    str(path),
                    "--system",
                    "dgx-h100",
                    "--json",
                    *chosen,
                    *GIVEN.get(form, "").split(),
                    *more,
                ]
            )
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        answer = json.loads(out)
        return code, None if "error" in answer else answer, err

    return check


@pytest.fixture
def reading(tmp_path):
    """Read a text."""

    def reading(text, form=None):
        path = tmp_path / "file"
        path.write_text(text, encoding="utf-8")
        return read(path, FORMATS, form)

    return reading


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (
            "python3 -m verl.trainer.main_ppo trainer.critic_warmup=0 actor_rollout_ref.model.path=m",
            "verl (reinforcement learning)",
        ),
    ],
)
def test_files_of_other_programs_are_refused_by_name(text, title, check):
    code, _, err = check(text, None, "--model", "llama-3-8b", "--gpus", "64", "--gbs", "64")
    assert code == 2
    assert f"is a launch of {title}, which is not supported yet" in err


def test_a_key_stands_before_a_colon_an_equals_sign_or_a_value():
    text = 'a-b: 1  # c: 2\n"d": {"e": 3}\nexport F=4\n--g-h 5\n// i: 6\n  - j: 7\n'
    assert keys_of(text) == {"a_b", "d", "e", "F", "g_h", "j"}


GPT = MEGATRON.replace("pretrain_gpt.py", "{}")


@pytest.mark.parametrize(
    ("text", "form", "title", "sign"),
    [
        (
            GPT.format("pretrain_bart.py"),
            None,
            "an encoder-decoder model whose sizes cannot be read",
            "pretrain_bart.py",
        ),
        (
            GPT.format("tools/run_text_generation_server.py"),
            None,
            "text generation, not training",
            "run_text_generation_server.py",
        ),
        (
            GPT.format("examples/multimodal/train.py")
            + " --decoder-seq-length 512 --img-h 448 --vision-model-type radio",
            None,
            "a multimodal, vision or diffusion model",
            "--img-h",
        ),
        (GPT.format("pretrain_vlm.py"), None, "a multimodal, vision or diffusion model", "pretrain_vlm.py"),
        (
            TITAN.format("img_size = 256", ""),
            "torchtitan-toml",
            "a multimodal, vision or diffusion model",
            "training.img_size",
        ),
        (
            TITAN.replace("llama3", "flux").format("", ""),
            "torchtitan-toml",
            "a multimodal, vision or diffusion model",
            "model.name flux",
        ),
        (
            MEGATRON + " --retro-project-dir x --retro-add-retriever",
            None,
            "a model with retrieval (RETRO, ICT)",
            "--retro-project-dir",
        ),
        (
            GPT.format("train.py") + " --rollout-num-gpus 4 --advantage-estimator grpo",
            None,
            "reinforcement learning",
            "--rollout-num-gpus",
        ),
        (GPT.format("train_rl.py"), None, "reinforcement learning", "train_rl.py"),
        (
            DEEPSPEED.format('"hybrid_engine": {"enabled": true}'),
            "deepspeed",
            "reinforcement learning",
            "hybrid_engine.enabled",
        ),
        (
            MEGATRON + " --hybrid-attention-ratio 0.1",
            None,
            "a model with Mamba-1 or hybrid layers by ratio",
            "--hybrid-attention-ratio",
        ),
    ],
)
def test_training_of_other_models_is_refused_in_one_sentence(text, form, title, sign, check):
    code, _, err = check(text, form, "--accept-unread")
    assert code == 2
    assert f"is a launch of {title}, which is not supported: " in err
    assert sign in err
    assert "problems" not in err


def test_commands_in_comments_are_ignored(reading):
    assert (
        reading("# like pretrain_t5.py, with pipe-parallel-size: 2 and pos-emb: rotary\n" + MEGATRON).facts[
            "tp"
        ]
        == 2
    )


UNREAD = [
    (MEGATRON + " --deepspeed --deepspeed_config ds.json", None, "--deepspeed-config", "ds.json"),
    (MEGATRON + " --ds-sequence-parallel-fpdt", None, "--ds-sequence-parallel-fpdt", "on"),
    (MEGATRON + " --is-hybrid-model", None, "--is-hybrid-model", "on"),
    (
        MEGATRON + " --heterogeneous-layers-config-path a.json",
        None,
        "--heterogeneous-layers-config-path",
        "a.json",
    ),
    (MEGATRON + " --spec my.module layers", None, "--spec", "my.module layers"),
    (MEGATRON + " --offload-optimizer-states", None, "--offload-optimizer-states", "on"),
    (MEGATRON + " --lora-rank 8", None, "--lora-rank", "8"),
    (MEGATRON + " --main-grads-dtype fp16", None, "--main-grads-dtype", "fp16"),
    (
        MEGATRON + " --optimizer-cpu-offload --optimizer-offload-fraction 0.5",
        None,
        "--optimizer-offload-fraction",
        "0.5",
    ),
    (MEGATRON + " --optimizer lamb", None, "--optimizer", "lamb"),
    (MEGATRON + " --use-precision-aware-optimizer --exp-avg-dtype bf16", None, "--exp-avg-dtype", "bf16"),
    (MEGATRON + " --curriculum-learning", None, "--curriculum-learning", "on"),
    (MEGATRON + " --fp8-format hybrid --first-last-layers-bf16", None, "--first-last-layers-bf16", "on"),
    (MEGATRON + " --some-new-parallel-size 4", None, "--some-new-parallel-size", "4"),
    (MOE + " --moe-extended-tp", None, "--moe-extended-tp", "on"),
    (DEEPSPEED.format('"optimizer": {"type": "OneBitAdam"}'), "deepspeed", "optimizer.type", "OneBitAdam"),
    (DEEPSPEED.format('"optimizer": {"type": "ZeroOneAdam"}'), "deepspeed", "optimizer.type", "ZeroOneAdam"),
    (
        DEEPSPEED.replace('"enabled": true', '"enabled": true, "bf16_optimizer_states": true').format(
            '"seed": 1'
        ),
        "deepspeed",
        "bf16.bf16_optimizer_states",
        "on",
    ),
    (
        DEEPSPEED.replace('"enabled": true', '"enabled": true, "bf16_master_weights_and_grads": true').format(
            '"seed": 1'
        ),
        "deepspeed",
        "bf16.bf16_master_weights_and_grads",
        "on",
    ),
    (
        DEEPSPEED.format('"sparse_attention": {"mode": "fixed"}'),
        "deepspeed",
        "sparse_attention.mode",
        "fixed",
    ),
    (
        DEEPSPEED.format('"curriculum_learning": {"enabled": true}'),
        "deepspeed",
        "curriculum_learning.enabled",
        "on",
    ),
    *(
        (
            DEEPSPEED.format(f'"zero_optimization": {{"stage": 3, {more}}}'),
            "deepspeed",
            f"zero_optimization.{name}",
            value,
        )
        for more, name, value in (
            ('"zenflow": {"topk_ratio": 0.1}', "zenflow.topk_ratio", "0.1"),
            ('"zero_hpz_partition_size": 8', "zero_hpz_partition_size", "8"),
            ('"zero_quantized_weights": true', "zero_quantized_weights", "on"),
            ('"some_new_stage": 2', "some_new_stage", "2"),
        )
    ),
    (
        NANOTRON.format(parallelism="", model="    moe_num_experts: 4\n", optimizer=""),
        "nanotron",
        "model.model_config.moe_num_experts",
        "4",
    ),
    (
        NANOTRON.format(parallelism="", model="    num_experts_per_tok: 1\n", optimizer=""),
        "nanotron",
        "model.model_config.num_experts_per_tok",
        "1",
    ),
    (
        NANOTRON.format(parallelism="  tp_recompute_allgather: false\n", model="", optimizer=""),
        "nanotron",
        "parallelism.tp_recompute_allgather",
        "off",
    ),
    (
        TITAN.format("", "disable_loss_parallel = true"),
        "torchtitan-toml",
        "parallelism.disable_loss_parallel",
        "on",
    ),
    (
        TITAN.format("mixed_precision_reduce = 'bfloat16'", ""),
        "torchtitan-toml",
        "training.mixed_precision_reduce",
        "bfloat16",
    ),
    (TITAN.format("new_switch = 3", ""), "torchtitan-toml", "training.new_switch", "3"),
    (
        ACCELERATE.format("", "  fsdp_backward_prefetch: NO_PREFETCH\n"),
        "accelerate",
        "fsdp_config.fsdp_backward_prefetch",
        "NO_PREFETCH",
    ),
    # DeepSpeed 0.19.8, runtime/tensor_parallel/config.py; axolotl 0.19.0, utils/schemas/fp8.py
    *(
        (
            DEEPSPEED.format(f'"tensor_parallel": {{"autotp_size": 2, "{name}": true}}'),
            "deepspeed",
            f"tensor_parallel.{name}",
            "on",
        )
        for name in ("vocab_parallel_lm_head", "tp_overlap_comm")
    ),
    # transformers 5.23, modeling_utils.py, get_correct_experts_implementation: grouped_mm by default
    (
        "base_model: Qwen/Qwen3-30B-A3B\nsequence_len: 4096\nsample_packing: true\nmicro_batch_size: 1\n"
        "gradient_accumulation_steps: 2\nbf16: true\nexperts_implementation: scattermoe\n",
        "axolotl",
        "experts_implementation",
        "scattermoe",
    ),
    (
        "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\nsample_packing: true\nmicro_batch_size: 1\n"
        "gradient_accumulation_steps: 2\nbf16: true\nfp8: true\nfp8_config: {recipe: rowwise}\n",
        "axolotl",
        "fp8_config.recipe",
        "rowwise",
    ),
]


@pytest.mark.parametrize(("text", "form", "setting", "value"), UNREAD)
def test_a_setting_that_matters_and_is_not_read_stops_the_answer(text, form, setting, value, check):
    code, _, err = check(text, form)
    assert code == 2
    message = f"{setting}{f' = {value}' if value != 'on' else ''}: "
    assert message in err
    assert "--accept-unread" in err


@pytest.mark.parametrize(("text", "form", "setting", "value"), [UNREAD[5], UNREAD[13]])
def test_accepted_it_is_answered_and_named(text, form, setting, value, check):
    code, answer, _ = check(text, form, "--accept-unread")
    assert code in (0, 1)
    assert [(unread["setting"], unread["value"]) for unread in answer["unread"]] == [(setting, value)]
    assert setting not in answer["ignored"]


def test_what_changes_neither_model_nor_plan_is_named_without_being_refused(check):
    code, answer, _ = check(MEGATRON + " --enable-cuda-graph --deterministic-mode", None)
    assert code in (0, 1)
    assert [unread["setting"] for unread in answer["unread"]] == [
        "--enable-cuda-graph",
        "--deterministic-mode",
    ]


@pytest.mark.parametrize(
    ("text", "form", "setting"),
    [
        (MEGATRON + " --reset-attention-mask", None, "--reset-attention-mask"),
        (
            NANOTRON.format(parallelism="", model="    _use_doc_masking: true\n", optimizer=""),
            "nanotron",
            "model.model_config._use_doc_masking",
        ),
    ],
)
def test_attention_within_documents_is_named_and_every_document_has_full_length(text, form, setting, check):
    code, answer, _ = check(text, form)
    assert code in (0, 1)
    assert [unread["setting"] for unread in answer["unread"]] == [setting]
    assert (
        "every sequence is one document of full length, as none of their lengths is known"
        in answer["assumed"]
    )


def test_accepted_it_is_named_in_the_first_lines(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a long path is broken between lines
    path = Path("run.sh")
    path.write_text(MEGATRON + " --enable-cuda-graph --strange-flag 3 --use-nccl-ub --log-interval 1")
    main(["check", str(path), "--system", "dgx-h100", "--accept-unread"])
    first = " ".join(capsys.readouterr().out.split("settings read")[1].split())
    assert re.match(
        r"from run\.sh not read though it matters: --enable-cuda-graph \(.*\) "
        r"not understood, may matter: --strange-flag "
        r"of small effect, not predicted: --use-nccl-ub no part of the prediction: --log-interval\b",
        first,
    )


def test_a_heading_before_long_names_is_one_line(capsys, tmp_path):
    """LLaMA-Factory reads DeepSpeed's configuration; names of its keys are longer than half a line."""
    zero = {"stage": 3, "stage3_param_persistence_threshold": 0, "contiguous_gradients": True}
    (tmp_path / "zero.json").write_text(json.dumps({"zero_optimization": zero, "bf16": {"enabled": True}}))
    lines = ["model_name_or_path: meta-llama/Meta-Llama-3-8B", "stage: sft", "finetuning_type: full"]
    lines += ["deepspeed: zero.json", "cutoff_len: 1024", "per_device_train_batch_size: 1", "bf16: true"]
    (tmp_path / "train.yaml").write_text("\n".join(lines))
    main(["check", str(tmp_path / "train.yaml"), "--system", "dgx-h100", "--gpus", "8"])
    out = capsys.readouterr().out
    assert "\nof small effect, not predicted:\n  deepspeed.zero_optimization." in out


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (
            MEGATRON + " --zero-stage 0 --optimizer adam --main-grads-dtype fp32 --moe-shared-expert-overlap",
            None,
        ),
        (
            MEGATRON
            + " --ds-sequence-parallel-size 1 --optimizer-offload-fraction 1.0 --cuda-graph-impl none",
            None,
        ),
        (MEGATRON + " --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", None),
        (
            MOE + " --moe-token-dispatcher-type alltoall --moe-router-dtype fp32 --moe-aux-loss-coeff 1e-2",
            None,
        ),
        (DEEPSPEED.format('"optimizer": {"type": "FusedAdam"}').replace("Fused", ""), "deepspeed"),
        (
            DEEPSPEED.format(
                '"zero_optimization": {"stage": 2, "overlap_comm": true, "zero_hpz_partition_size": 1}'
            ),
            "deepspeed",
        ),
        (DEEPSPEED.format('"zero_optimization": {"stage": 3, "mics_shard_size": -1}'), "deepspeed"),
        (DEEPSPEED.format('"curriculum_learning": {"enabled": false, "min_difficulty": 8}'), "deepspeed"),
        # compression/bert/config/XTC (deepspeedai/DeepSpeedExamples 45b4b71), with all of it off
        (
            DEEPSPEED.format(
                '"compression_training": {"layer_reduction": {"enabled": false, "keep_number_layer": 6}}'
            ),
            "deepspeed",
        ),
        (
            NANOTRON.format(
                parallelism="  tp_recompute_allgather: true\n", model="    moe_config: null\n", optimizer=""
            ),
            "nanotron",
        ),
        (
            TITAN.format("mixed_precision_reduce = 'float32'", "expert_tensor_parallel_degree = 1"),
            "torchtitan-toml",
        ),
        (ACCELERATE.format("debug: false\n", "  fsdp_backward_prefetch: BACKWARD_PRE\n"), "accelerate"),
    ],
)
def test_usual_settings_are_accepted(text, form, reading):
    result = reading(text, form)
    assert (result.unread, result.not_understood) == ((), ())
    result.check_unread()


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_lists_of_settings_do_not_overlap(name):
    """A name stands in one list; no row of the table, or its pattern, is said to be harmless or small."""
    form, rules = FORMATS[name], FORMATS[name].unread
    names = {setting for effect in rules.matter for setting in effect.settings if "*" not in setting}
    assert not set(rules.small) & set(rules.harmless)
    assert not names & {*rules.small, *rules.harmless}
    assert not form.known & set(rules.harmless)


@pytest.mark.parametrize("to", sorted(FORMATS))
def test_exported_files_can_be_read(to, tmp_path):
    model = "mixtral-8x7b" if FORMATS[to].model and not to.startswith("torchtitan") else "llama-3-8b"
    plan = tc.Plan(tp=2, dp=8, ep=4 if model == "mixtral-8x7b" else 1, zero=3 if to == "accelerate" else 1)
    path = tmp_path / f"run{FORMATS[to].ending}"
    path.write_text(tc.export(tc.estimate(model, "dgx-h100", plan, gbs=64), to).text, encoding="utf-8")
    reading = read(path, FORMATS)
    assert (reading.unread, reading.not_understood) == ((), ())


@pytest.mark.parametrize(
    ("text", "form", "message"),
    [
        *(
            (
                DEEPSPEED.format(f'"zero_optimization": {{"stage": {stage}}}'),
                "deepspeed",
                f"zero_optimization.stage = '{stage}'",
            )
            for stage in (9, -1)
        ),
        (
            DEEPSPEED.format('"zero_optimization": {"stage": "x"}'),
            "deepspeed",
            "zero_optimization.stage = 'x'",
        ),
        (
            NANOTRON.format(parallelism="", model="", optimizer="  zero_stage: 3\n"),
            "nanotron",
            "optimizer.zero_stage = '3'",
        ),
        (
            DEEPSPEED.format('"zero_optimization": {"stage": "auto"}'),
            "deepspeed",
            "zero_optimization.stage = 'auto'",
        ),
        (ACCELERATE.replace("bf16", "int8").format("", ""), "accelerate", "mixed_precision = 'int8'"),
        (MEGATRON + " --zero-stage 4", None, "--zero-stage = '4'"),
        (MEGATRON + " --normalization GroupNorm", None, "--normalization = 'GroupNorm'"),
    ],
)
def test_a_value_that_is_none_of_those_allowed_is_refused(text, form, message, check):
    code, _, err = check(text, form)
    assert code == 2
    assert message in err
    assert "must be one of " in err


@pytest.mark.parametrize(
    ("text", "form", "setting"),
    [
        *(
            (f"{MOE} {flag} 0", None, flag)
            for flag in (
                *(
                    "--tensor-model-parallel-size",
                    "--pipeline-model-parallel-size",
                    "--context-parallel-size",
                    "--micro-batch-size",
                ),
                *(
                    "--expert-model-parallel-size",
                    "--expert-tensor-parallel-size",
                    "--global-batch-size",
                    "--nnodes",
                ),
            )
        ),
        (NANOTRON.format(parallelism="  pp: 0\n", model="", optimizer=""), "nanotron", "parallelism.pp"),
        (
            NANOTRON.replace("dp: 8", "dp: 0").format(parallelism="", model="", optimizer=""),
            "nanotron",
            "parallelism.dp",
        ),
        (
            TITAN.format("", "pipeline_parallel_degree = 0"),
            "torchtitan-toml",
            "parallelism.pipeline_parallel_degree",
        ),
        (
            TITAN.format("", "data_parallel_shard_degree = 0"),
            "torchtitan-toml",
            "parallelism.data_parallel_shard_degree",
        ),
        (
            DEEPSPEED.format('"tensor_parallel": {"autotp_size": 0}'),
            "deepspeed",
            "tensor_parallel.autotp_size",
        ),
        (DEEPSPEED.format('"gradient_accumulation_steps": 0'), "deepspeed", "gradient_accumulation_steps"),
        (
            ACCELERATE.format("", "parallelism_config:\n  parallelism_config_tp_size: 0\n"),
            "accelerate",
            "parallelism_config.parallelism_config_tp_size",
        ),
    ],
)
def test_a_degree_of_0_is_refused(text, form, setting, check):
    code, _, err = check(text, form)
    assert code == 2
    assert f"{setting} = '0': must be a whole number of at least 1" in err


WRITTEN = """DEVICE=cpu
cat <<EOT > ds.json
{
  "train_batch_size": $BATCH,
  "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "$DEVICE", "pin_memory": true}},
  "fp16": {"enabled": true, "loss_scale_window": 500},
  "steps_per_print": 2000
}
EOT
"""


def test_a_configuration_that_the_script_writes(reading):
    result = reading(WRITTEN + MEGATRON + " --deepspeed --deepspeed_config ds.json --zero-stage 1")
    assert (result.facts["offload"], result.unread, result.not_understood) == ("optimizer", (), ())
    without = reading(
        WRITTEN.replace("=cpu", "=none") + MEGATRON + " --deepspeed --deepspeed_config ds.json --zero-stage 1"
    )
    assert (without.facts["offload"], without.unread, without.not_understood) == ("none", (), ())


def test_what_is_offloaded_by_flags_and_by_old_switches(reading):
    """deepspeed/runtime/zero/config.py has the old switches, megatron/arguments.py (4efb479) the flags."""
    flags = reading(MEGATRON + " --cpu-optimizer --checkpoint-in-cpu --partition-activations")
    assert flags.facts["offload"] == "activations+optimizer"
    assert [unread.setting for unread in flags.unread] == ["--partition-activations"]
    flags.check_unread()  # it is named, not refused
    old = '"zero_optimization": {"stage": 3, "cpu_offload": true, "cpu_offload_param": true}'
    assert reading(DEEPSPEED.format(old), "deepspeed").facts["offload"] == "optimizer+weights"
    with pytest.raises(tc.InputError, match=r"offload_param\.device = 'disk': must be one of none, cpu"):
        reading(DEEPSPEED.format('"zero_optimization": {"offload_param": {"device": "disk"}}'), "deepspeed")


def test_a_precision_that_another_program_fills_in(reading):
    text = DEEPSPEED.replace("true", '"auto"').format('"fp16": {"enabled": "auto"}')
    result = reading(text, "deepspeed")
    assert result.facts["precision"] == "bf16"
    assert result.assumed == ("bf16.enabled = true: another program fills in bf16.enabled and fp16.enabled",)


BRIDGE = (
    "torchrun --nnodes 2 --nproc-per-node 8 run_recipe.py --recipe {}"
    " model.num_layers=32 model.hidden_size=4096 {}"
)


def test_overrides_of_a_recipe(reading):
    overrides = (
        "ddp.overlap_grad_reduce=true optimizer.lr=1e-4 model.moe_latent_size=512"
        " checkpoint.save=x model.new_layers=3 model.knob=1"
    )
    result = reading(BRIDGE.format("llama3_8b_pretrain_config", overrides), "megatron-bridge")
    settings = [unread.setting for unread in result.unread]
    assert settings == ["base_recipe", "model.moe_latent_size", "model.new_layers"]
    assert result.not_understood == ("model.knob",)
    assert set(result.ignored) == {"optimizer.lr", "checkpoint.save", "recipe"}
    assert result.assumed == (
        "what the recipe llama3_8b_pretrain_config sets besides the overrides is not read",
    )


@pytest.mark.parametrize(
    "recipe", ["qwen25_vl_3b_pretrain_config", "t5_220m_pretrain_config", "mamba_8b_pretrain_config"]
)
def test_recipes_of_other_models(recipe, reading):
    with pytest.raises(tc.InputError, match=f"recipe {recipe}"):
        reading(BRIDGE.format(recipe, "train.micro_batch_size=1"), "megatron-bridge")


def test_settings_of_megatron_deepspeed(tmp_path):
    """megatron/arguments.py of Megatron-DeepSpeed (4efb479); --pad-vocab-size-to is BigScience's."""
    path = tmp_path / "run.sh"
    flags = (
        " --deepspeed --deepspeed_config ds.json --zero-stage 2"
        " --num-key-value-heads 8 --pad-vocab-size-to 33024"
    )
    path.write_text(MEGATRON.replace(" --vocab-size 32000", "") + flags)
    result = tc.check(path, "dgx-h100")
    assert (result.est.plan.zero, result.est.model.kv_heads, result.est.model.vocab) == (2, 8, 33024)
    assert result.est.assumptions.name == "megatron-deepspeed-2022"
    assert any("Megatron-DeepSpeed does not have all" in line for line in result.reading.assumed)


@pytest.mark.parametrize(
    ("flags", "fact", "value"),
    [
        (
            "--activations-checkpoint-method uniform",
            "recompute",
            "full",
        ),  # Megatron-LM v2.4 to v3.0, megatron/arguments.py
        (
            "--use-precision-aware-optimizer --main-grads-dtype bf16",
            "grad_dtype",
            "16-bit",
        ),  # its validate_args: not in fp32 then
    ],
)
def test_flags_that_say_it_in_another_way(flags, fact, value, reading):
    assert reading(f"{MEGATRON} {flags}").facts[fact] == value


def test_the_gate_of_attention_is_read(reading):
    result = reading(f"{MEGATRON} --attention-output-gate")
    result.check_unread()
    assert result.facts["attention_gate"]


@pytest.mark.parametrize(
    ("text", "stack"),
    [
        (TITAN.format("", ""), "torchtitan-eager"),
        (TITAN.format("", "") + "[compile]\nenable = true\n", "torchtitan-2025"),
        (TITAN.format("", "") + "[compile]\nenable = true\ncomponents = ['loss']\n", "torchtitan-eager"),
        (MEGATRON, "megatron-core-2025"),
        (MEGATRON + " --deepspeed --zero-stage 1", "megatron-deepspeed-2022"),
        (MOE + " --moe-token-dispatcher-type flex --moe-enable-deepep", "megatron-core-deepep"),
        (MEGATRON + " --moe-token-dispatcher-type flex", "megatron-core-2025"),
        (MEGATRON + " --moe-token-dispatcher-type allgather", "megatron-core-2025"),
        (MOE + " --moe-token-dispatcher-type allgather", "megatron-core-2025+dispatcher=allgather"),
        (MOE + " --moe-token-dispatcher-type alltoall", "megatron-core-2025"),
    ],
)
def test_the_software_that_predicts_a_launch(text, stack, reading):
    result = reading(text)
    assert result.form.stack(result.settings) == stack
    assert not any("compile" in name for name in result.ignored)


@pytest.mark.parametrize(
    ("flags", "overlapped"), [("", False), (" --overlap-grad-reduce", True), (" --use-megatron-fsdp", True)]
)
def test_gradients_overlap_where_a_flag_says_so(flags, overlapped, reading):
    """Megatron-LM overlaps the reduction of gradients only with `--overlap-grad-reduce`; its FSDP always
    does."""
    assert reading(MEGATRON + flags).facts["dp_overlap"] is overlapped


def test_overlap_of_deepspeed(reading):
    """`overlap_comm` of a configuration; where it is missing nothing is said."""
    text = DEEPSPEED.format('"zero_optimization": {"stage": 2, "overlap_comm": false}')
    assert reading(text, "deepspeed").facts["dp_overlap"] is False


def test_what_nemo_says_of_offloading_in_another_setting(reading):
    """NVIDIA/NeMo-Framework-Launcher training/gpt3/mlperf-24n.yaml (26e42fa) has it off, with 95 layers."""
    flags = " --cpu-offloading-num-layers 2 --cpu-offloading={}"
    assert reading(MEGATRON + flags.format("true")).facts["offload"] == "activations"
    assert reading(MEGATRON + flags.format("false")).facts["offload"] == "none"
