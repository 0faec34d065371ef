"""MaxText's configurations and commands; expected values are by hand, from configs/base.yml (e591f30)."""

import pytest

import traincast as tc

CONFIG = """
base_config: "base.yml"
hardware: "gpu"
model_name: "llama3-8b"
per_device_batch_size: 2
max_target_length: 4096
remat_policy: "minimal_with_context"
attention: "cudnn_flash_te"
"""
COMMAND = "python3 -m maxtext.trainers.pre_train.train $PWD/configs/{} run_name=$RUN {}\n"


def plan_of(tmp_path, text, name="run.yml", **given):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return tc.check(path, "dgx-h100", **{"gpus": 16, **given}).est


def test_a_configuration_is_read(tmp_path):
    """FSDP takes the 8 GPUs of a node, data parallelism the 2 nodes; 2 sequences for each GPU."""
    est = plan_of(tmp_path, CONFIG)
    plan = est.plan
    assert (est.model.name, est.model.seq, est.gbs) == ("llama-3-8b", 4096, 32)
    assert (plan.dp, plan.tp, plan.zero, plan.replicas, plan.mbs) == (16, 1, 3, 2, 2)
    assert (plan.recompute, plan.precision) == ("activation+norms", "bf16")


def test_a_command_replaces_what_the_file_beside_it_says(tmp_path):
    """Four sequences of a pair of tensor-parallel GPUs in two steps; the sharded state has no replicas."""
    (tmp_path / "model.yml").write_text(CONFIG, encoding="utf-8")
    settings = "dcn_data_parallelism=1 ici_tensor_parallelism=2 dcn_fsdp_parallelism=2 quantization=fp8"
    text = COMMAND.format("models/model.yml", f"{settings} gradient_accumulation_steps=2")
    est = plan_of(tmp_path, text, "run.sh")
    plan = est.plan
    assert (plan.dp, plan.tp, plan.replicas, plan.mbs, est.gbs) == (8, 2, 1, 4, 64)
    assert plan.precision == "fp8-current"


def test_sizes_are_those_of_the_base_configuration_scaled(tmp_path):
    """64 = 4³: each of heads, widths and layers of base.yml four times (configs/types.py)."""
    text = COMMAND.format("base.yml", "hardware=gpu global_parameter_scale=64 per_device_batch_size=1")
    model = plan_of(tmp_path, text, "run.sh").model
    assert (model.layers, model.hidden, model.heads, model.ffn) == (64, 8192, 64, 28672)
    assert model.causal


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("remat_policy: proj", "remat_policy = 'proj': must be one of none, custom, full"),
        (
            "remat_policy: custom\nquery_proj: host",
            "query_proj = 'host': must be one of remat, device, offload",
        ),
        (
            "remat_policy: custom\ndecoder_layer_input: remat",
            "decoder_layer_input = remat: must be device or",
        ),
        ("moe_mlpwi_0: offload", "moe_mlpwi_0 = offload: not read (tensors are kept one by one)"),
        ("expert_shard_attention_option: tensor", "expert_shard_attention_option = 'tensor'"),
        (
            "ici_tensor_parallelism: -1",
            "ici_tensor_parallelism = -1: must be a whole number above 0; data and fsdp",
        ),
        ("ici_tensor_parallelism: two", "ici_tensor_parallelism = two"),
        (
            "per_device_batch_size: 0.5",
            "per_device_batch_size = 0.5: must be a multiple of 1",
        ),
        ("ici_pipeline_parallelism: 4", "num_pipeline_repeats = -1: must be 1 with 4 stages"),
        ("model_name: llama9-1b", "model_name = llama9-1b: no model of the catalogue"),
        ("use_dpo: true", "use_dpo"),
        ("quantization: fp3", "quantization = 'fp3'"),
        ("mu_dtype: bfloat16", "precision of the moments"),
    ],
)
def test_what_is_not_read_is_refused_by_name(more, said, tmp_path):
    with pytest.raises(tc.InputError) as caught:
        plan_of(tmp_path, f"{CONFIG}{more}\n")
    assert said in str(caught.value)


def test_a_file_that_is_not_beside_the_script_is_asked_for(tmp_path):
    with pytest.raises(tc.InputError, match=r"source = .*other\.yml: not read"):
        plan_of(tmp_path, COMMAND.format("other.yml", "hardware=gpu per_device_batch_size=1"), "run.sh")


def test_a_program_that_does_not_train_is_refused(tmp_path):
    text = "python3 -m maxtext.decode configs/base.yml per_device_batch_size=1 remat_policy=full\n"
    with pytest.raises(tc.InputError, match="runs decode, which does not train"):
        plan_of(tmp_path, text, "run.sh")


QKV = "query_proj=offload key_proj=offload value_proj=offload"


@pytest.mark.parametrize(
    ("settings", "recompute", "offload", "said"),
    [  # by hand, from the names that configs/types.py (RematAndOffload) gives tensors of a layer
        ("", "full", "none", ""),
        ("decoder_layer_input=offload", "full", "activations", ""),
        (f"decoder_layer_input=offload {QKV}", "attention+mlp+norms", "activations", ""),
        (f"decoder_layer_input=offload out_proj=offload {QKV}", "attention+mlp+norms", "activations", ""),
        (f"decoder_layer_input=offload context=offload {QKV}", "mlp+norms", "activations", ""),
        ("qkv_proj=device context=device mlpwi=device", "activation+norms", "none", ""),
        ("qkv_proj=device mlpwi_0=device mlpwi_1=device", "activation+attention+norms", "none", ""),
        (
            "decoder_layer_input=offload context=offload",
            "full",
            "activations",
            "context: counted as recomputed with all else of a layer, though kept",
        ),
        (
            "decoder_layer_input=offload qkv_proj=device",
            "attention+mlp+norms",
            "activations",
            "key_proj, query_proj, value_proj: counted in the host's memory, as what else is kept",
        ),
        (
            "optimizer_memory_host_offload=true decoder_layer_input=offload",
            "full",
            "optimizer+activations",
            "",
        ),
    ],
)
def test_tensors_that_a_custom_policy_keeps(settings, recompute, offload, said, tmp_path):
    text = COMMAND.format(
        "base.yml", f"model_name=llama3-8b per_device_batch_size=1 remat_policy=custom {settings}"
    )
    path = tmp_path / "run.sh"
    path.write_text(text, encoding="utf-8")
    checked = tc.check(path, "tpu-v6e-pod", gpus=16)
    assert (checked.est.plan.recompute, checked.est.plan.offload) == (recompute, offload)
    assert [note for note in checked.reading.assumed if "counted" in note] == ([said] if said else [])


@pytest.mark.parametrize(
    ("policy", "widths"),
    [  # beside the layer's input of 4,096: queries, keys and values, and the result of the projection
        ("save_qkv_proj", 4096 + 2 * 1024),
        ("save_dot_except_mlp", 4096 + 2 * 1024 + 4096),
        ("save_dot_with_context_except_mlp", 4096 + 2 * 1024 + 4096 + 4096),
    ],
)
def test_a_policy_keeps_the_tensors_it_names_and_no_others(policy, widths, tmp_path):
    """2 sequences of 4,096 tokens, 32 layers, 2 bytes; the norms' statistics of fused attention are small."""
    saved = {
        name: plan_of(tmp_path, CONFIG.replace("minimal_with_context", name)).memory["activations"]
        for name in ("full", policy)
    }
    expected = 2 * 4096 * 32 * 2 * widths
    assert saved[policy] - saved["full"] == pytest.approx(expected, rel=0.02)


def test_recomputation_from_projections_runs_attention_and_its_projection_again(tmp_path):
    """Of a layer of Llama 3 8B: 4,096 squared of its 218 M weights are the projection; queries, keys and
    values, 4,096 x 6,144, are kept, and the last product of the MLP, 4,096 x 14,336, restores nothing."""
    text = CONFIG.replace("minimal_with_context", "save_qkv_proj")
    operations = {row["operation"]: row for row in plan_of(tmp_path, text).operations()}
    again = {name for name, row in operations.items() if row["again_seconds"]}
    assert "attention.proj" in again
    assert not again & {"attention.qkv", "mlp.fc2"}


def test_offloaded_projections_are_the_policy_of_that_name(tmp_path):
    """`qkv_proj_offloaded` keeps what a custom policy with them keeps (layers/decoders.py)."""
    plans = [
        plan_of(
            tmp_path,
            COMMAND.format("base.yml", f"model_name=llama3-8b per_device_batch_size=1 {more}"),
            "run.sh",
        ).plan
        for more in ("remat_policy=qkv_proj_offloaded", f"remat_policy=custom {QKV}")
    ]
    assert plans[0] == plans[1]
    assert (plans[0].recompute, plans[0].offload) == ("attention+mlp+norms", "activations")


@pytest.mark.parametrize(
    ("settings", "cp", "dp"),
    [  # an eighth of a sequence a device: 8 devices share one
        ("ici_tensor_parallelism=8", 1, 8),
        ("ici_context_parallelism=8", 8, 8),
        ("ici_expert_parallelism=8 expert_shard_attention_option=context", 8, 8),
    ],
)
def test_devices_may_have_a_part_of_a_sequence(settings, cp, dp, tmp_path):
    model = "mixtral-8x7b" if "expert" in settings else "llama3-8b"
    text = COMMAND.format("base.yml", f"model_name={model} per_device_batch_size=0.125 {settings}")
    path = tmp_path / "run.sh"
    path.write_text(text, encoding="utf-8")
    est = tc.check(path, "tpu-v6e-pod", gpus=64).est
    assert (est.plan.mbs, est.gbs, est.plan.cp, est.plan.dp) == (1, 8, cp, dp)


@pytest.mark.parametrize(
    ("line", "share"),
    [  # as MaxText/configs/a3/llama_2_7b/1vm.sh has it; without it the pool grows (JAX of 2026)
        ("export XLA_PYTHON_CLIENT_MEM_FRACTION=0.85", 0.85),
        ("export XLA_CLIENT_MEM_FRACTION=.9", 0.9),
        ("", None),
    ],
)
def test_xla_has_the_share_of_a_gpu_that_is_stated(line, share, tmp_path):
    """What is outside of it counts as taken, in place of the context and of communication."""
    more = "hardware=gpu model_name=llama3-8b per_device_batch_size=1"
    est = plan_of(tmp_path, f"{line}\n{COMMAND.format('base.yml', more)}", "run.sh")
    visible = est.system.accelerator.visible_bytes
    outside = est.memory["buffers"] - est.assumptions.memory.buffer_bytes  # of one group
    if share is None:
        assert outside < 0.02 * visible
    else:
        assert outside == pytest.approx((1 - share) * visible)


def test_a_share_that_is_no_number_is_refused(tmp_path):
    more = "hardware=gpu model_name=llama3-8b per_device_batch_size=1"
    text = f"export XLA_PYTHON_CLIENT_MEM_FRACTION=most\n{COMMAND.format('base.yml', more)}"
    with pytest.raises(tc.InputError, match="XLA_CLIENT_MEM_FRACTION = 'most': must be a number above 0"):
        plan_of(tmp_path, text, "run.sh")
