"""Accelerate's configurations, with those of DeepSpeed that they name or that are given beside them."""

import json

import pytest

import traincast as tc
from traincast.launch.formats import FORMATS
from traincast.launch.reader import complete_launch, read

NAMES = ("gpus", "tp", "cp", "cp_kind", "zero", "replicas", "mbs", "precision", "recompute", "offload")
# Plans of public files, by hand from their text: see `NAMES`. Files of huggingface/accelerate 16cb6eb,
# huggingface/trl f2cd577, huggingface/alignment-handbook 925acdf and hiyouga/LLaMA-Factory ff6d4d1; here
# written again with what decides of them.
PLAIN = (1, 1, "none")  # tp, cp, cp_kind
PUBLISHED = {
    "accelerate: examples/config_yaml_templates/multi_node.yaml": (
        {"distributed_type": "MULTI_GPU", "num_machines": 2, "num_processes": 8},
        (8, *PLAIN, 0, 1, 1, "bf16-pure", "none", "none"),  # as transformers 5 loads most checkpoints
    ),
    "accelerate: examples/torch_native_parallelism/configs/tp_hsdp.yaml": (
        {
            "distributed_type": "FSDP", "mixed_precision": "bf16", "num_machines": 1, "num_processes": 8,
            "fsdp_config": {"fsdp_version": 2, "fsdp_reshard_after_forward": True},
            "parallelism_config": {
                "parallelism_config_dp_replicate_size": 2, "parallelism_config_dp_shard_size": 2,
                "parallelism_config_tp_size": 2,
            },
        },
        (8, 2, 1, "none", 3, 2, 1, "bf16", "none", "none"),
    ),
    "alignment-handbook: recipes/accelerate_configs/fsdp.yaml": (
        {
            "distributed_type": "FSDP", "mixed_precision": "bf16", "num_processes": 8,
            "fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_backward_prefetch": "BACKWARD_PRE"},
        },
        (8, *PLAIN, 3, 1, 1, "bf16", "none", "none"),
    ),
    "LLaMA-Factory: examples/accelerate/fsdp2_config.yaml": (
        {
            "distributed_type": "FSDP", "mixed_precision": "bf16", "num_processes": 2,
            "fsdp_config": {"fsdp_version": 2, "fsdp_reshard_after_forward": True},
        },
        (2, *PLAIN, 3, 1, 1, "bf16", "none", "none"),
    ),
    "trl: trl/accelerate_configs/zero2.yaml": (
        {
            "distributed_type": "DEEPSPEED", "mixed_precision": "bf16", "num_processes": 8,
            "deepspeed_config": {"zero_stage": 2, "offload_optimizer_device": "none"},
        },
        (8, *PLAIN, 2, 1, 1, "bf16", "none", "none"),
    ),
    "trl: examples/accelerate_configs/alst_ulysses_4gpu.yaml": (
        {
            "distributed_type": "DEEPSPEED", "mixed_precision": "bf16", "num_processes": 4,
            "deepspeed_config": {"zero_stage": 3, "seq_parallel_communication_data_type": "bf16"},
            "parallelism_config": {
                "parallelism_config_dp_shard_size": 2, "parallelism_config_sp_size": 2,
                "parallelism_config_sp_backend": "deepspeed",
                "parallelism_config_sp_seq_length_is_variable": True,
            },
        },
        (4, 1, 2, "ulysses", 3, 1, 1, "bf16", "none", "none"),
    ),
    "accelerate: examples/config_yaml_templates/fp8.yaml": (  # DelayedScaling in utils/transformer_engine.py
        {"distributed_type": "NO", "num_processes": 1, "mixed_precision": "fp8",
         "fp8_config": {"backend": "TE"}},
        (1, 1, 1, "none", 0, 1, 1, "fp8", "none", "none"),
    ),
    "trl: examples/accelerate_configs/context_parallel_2gpu.yaml": (
        {
            "distributed_type": "FSDP", "mixed_precision": "bf16", "num_processes": 2,
            "fsdp_config": {"fsdp_activation_checkpointing": True, "fsdp_version": 2},
            "parallelism_config": {"parallelism_config_cp_size": 2},
        },
        (2, 1, 2, "all-gather", 3, 1, 1, "bf16", "full", "none"),
    ),
}  # fmt: skip


def plan_of(document, tmp_path, beside=None):
    """Plan of a document, written as JSON, which is YAML too, for Llama 3 8B."""
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    reading = read(path, FORMATS, "accelerate", beside)
    reading.check_unread()
    return complete_launch(reading, tc.load_model("llama-3-8b"), None, 64, {})[2]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_are_read(name, tmp_path):
    """Every figure of the plan, and no setting that matters left unread."""
    document, wanted = PUBLISHED[name]
    plan = plan_of(document, tmp_path)
    assert tuple(getattr(plan, knob) for knob in NAMES) == wanted


DEEPSPEED = {
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
    "train_micro_batch_size_per_gpu": 2,
    "bf16": {"enabled": True},
    "tensor_parallel": {"autotp_size": 2},
}
NAMED = {
    "distributed_type": "DEEPSPEED",
    "num_processes": 8,
    "deepspeed_config": {"deepspeed_config_file": "configs/ds.json", "zero3_init_flag": True},
}


@pytest.mark.parametrize("folder", ["run/configs", "configs"])
def test_a_configuration_of_deepspeed_that_is_named_is_read(folder, tmp_path):
    """Its path is relative to the folder of the file, or to one above, such as that of a repository."""
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "ds.json").write_text(json.dumps(DEEPSPEED), encoding="utf-8")
    (tmp_path / "run").mkdir(exist_ok=True)
    plan = plan_of(NAMED, tmp_path / "run")
    assert (plan.zero, plan.offload, plan.mbs, plan.precision, plan.tp, plan.dp, plan.dp_overlap) == (
        *(3, "optimizer", 2, "bf16", 2, 4),
        True,  # DeepSpeed's default with ZeRO-3: deepspeed/runtime/zero/config.py, overlap_comm_valid
    )


def test_a_configuration_that_is_not_there_is_asked_for_and_can_be_given(tmp_path):
    """The error names the option; with it the answer is that of the file."""
    with pytest.raises(tc.InputError, match=r"configs/ds.json: there is no such file .*--beside FILE"):
        plan_of(NAMED, tmp_path)
    other = tmp_path / "other.json"
    other.write_text(json.dumps(DEEPSPEED), encoding="utf-8")
    assert plan_of(NAMED, tmp_path, other).zero == 3


def test_advice_on_deepspeed_is_in_its_names(tmp_path):
    """Nothing is advised of FSDP, nor is anything to go that does not state what changes."""
    config = {**DEEPSPEED, "tensor_parallel": {}, "zero_optimization": {"stage": 1}}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    path = tmp_path / "run.yaml"
    document = {**NAMED, "deepspeed_config": {"deepspeed_config_file": "ds.json"}}
    path.write_text(json.dumps(document), encoding="utf-8")
    checked = tc.check(path, "dgx-h100", "llama-3-8b", gbs=64)
    named = {(each.setting, each.new) for change in checked.tried for each in change.spelled}
    assert {
        ("deepspeed_config.zero_stage", "2"), ("deepspeed_config.zero_optimization.stage", None),
    } <= named  # fmt: skip
    assert not any("fsdp" in name or "parallelism_config" in name or "bf16" in name for name, _ in named)
    assert not any("fsdp" in each.setting for each in checked.best_settings)


def test_the_stage_is_by_default_that_of_accelerates_plugin(tmp_path):
    """DeepSpeedPlugin of Accelerate 1.15.0 has stage 2 (utils/dataclasses.py)."""
    assert plan_of(NAMED | {"deepspeed_config": {"zero3_init_flag": False}}, tmp_path).zero == 2
    assert any("zero_stage 2" in note for note in read(tmp_path / "run.yaml", FORMATS, "accelerate").assumed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"deepspeed_config": {"zero_stage": 7}}, "stage = '7'"),
        (
            {"deepspeed_config": {"zero_stage": 2}, "fp8_config": {"backend": "XX"}},
            "fp8_config.backend = 'XX': must be one of AO, TE, MSAMP",
        ),
        ({"distributed_type": "GPU", "deepspeed_config": {}}, "must be one of FSDP, DEEPSPEED"),
        ({"deepspeed_config": {"zero_stage": 2, "new_offloading": 1}}, "new_offloading = 1: not read"),
    ],
)
def test_what_is_wrong_is_named(change, message, tmp_path):
    with pytest.raises(tc.InputError, match=message):
        plan_of(NAMED | change, tmp_path)


def test_the_batch_is_left_to_the_training_program():
    """Accelerate 1.15.0 stops at a configuration with a key that its ``ClusterConfig`` has not."""
    written = tc.export(tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(dp=8, zero=3), gbs=64), "accelerate")
    assert "gradient_accumulation_steps" not in written.text.partition("num_machines")[2]
    assert "gbs" in written.not_expressed


@pytest.mark.parametrize("version", [1, 2])
def test_offloaded_checkpoints_are_of_fsdp2_alone(version, tmp_path):
    """accelerate 1.15.0, utils/dataclasses.py: FullyShardedDataParallelPlugin raises a ValueError."""
    document = {
        "distributed_type": "FSDP",
        "mixed_precision": "bf16",
        "num_machines": 1,
        "num_processes": 8,
        "fsdp_config": {
            "fsdp_version": version,
            "fsdp_activation_checkpointing": True,
            "fsdp_activation_checkpointing_offload": True,
        },
    }
    path = tmp_path / "accelerate.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    checked = tc.check(path, "dgx-h100", model="llama-3-8b", gbs=8)
    refused = [line for line in checked.reading.assumed if "refuses this launch" in line]
    assert len(refused) == (version == 1)
    assert all(line.endswith("activation_checkpointing_offload needs fsdp_version: 2") for line in refused)
