"""Every flag of Megatron-LM is read, refused by name, or known to change nothing.

Flags and kinds of their values: `tables/megatron_arguments.toml`, which `tools/arguments.py` writes from
megatron-core 0.19.2, megatron/training/arguments.py and the classes that it makes arguments of.
"""

import pytest

from traincast.launch.formats import READERS
from traincast.launch.settings.arguments import MEGATRON as ARGUMENTS
from traincast.launch.settings.defaults import parser_defaults
from traincast.launch.settings.settings import Settings, same_value
from traincast.launch.settings.unread_settings import NOT_UNDERSTOOD

FORM = READERS["megatron"]
NEWEST = list(ARGUMENTS.revisions)[-1]
FLAGS = ARGUMENTS.revisions[NEWEST]
USUAL = parser_defaults("megatron", "pretrain")
# What switches on the features whose options would else be without effect.
CONTEXT = Settings(
    {
        "num_experts": 8, "tensor_model_parallel_size": 2, "expert_model_parallel_size": 4,
        "fp8_format": "hybrid",
        "fp4_format": "e2m1", "perform_rl_step": True, "tp_comm_overlap": True, "moe_paged_stash": True,
        "logits_load_dir": "logits", "logits_save_dir": "logits",
    }
)  # fmt: skip


def another_value(name):
    """A value that a flag takes and that is not its default."""
    argument = FLAGS[name]
    if argument.kind == "switch":
        return True
    choices = argument.choices or ("7777", "8888")
    return next((word for word in choices if not same_value(word, USUAL.get(name))), choices[0])


def fate_of(name):
    """Where a flag ends up that has another value than its default."""
    found = FORM.unread.sort_settings(Settings({**CONTEXT, name: another_value(name)}), FORM.known)
    if name in found.matter:
        return found.matter[name]
    if name in FORM.known:
        return "read"
    return next((kind for kind in ("small", "harmless") if name in getattr(found, kind)), NOT_UNDERSTOOD)


def test_table_has_the_flags_of_the_newest_release():
    assert NEWEST == "core_v0.19.2"
    assert len(FLAGS) > 840
    assert {"tensor_model_parallel_size", "use_megatron_fsdp", "moe_ncclep_static_shape"} <= FLAGS.keys()


def test_every_flag_is_read_or_refused_by_name_or_changes_nothing():
    assert [name for name in FLAGS if fate_of(name) == NOT_UNDERSTOOD] == []


@pytest.mark.parametrize(
    ("flag", "fate"),
    [
        ("tensor_model_parallel_size", "read"),
        ("grpo_group_size", "reinforcement learning"),
        ("dino_head_hidden_size", "a model of images"),
        ("ict_head_size", "a model of retrieval"),
        ("log_interval", "harmless"),
        ("ddp_bucket_size", "small"),
    ],
)
def test_a_flag_is_sorted_by_what_it_does(flag, fate):
    assert fate_of(flag) == fate


def test_a_flag_of_no_release_is_not_understood():
    assert "no_such_layer_flag" not in FLAGS
    found = FORM.unread.sort_settings(Settings({"no_such_layer_flag": 7}), FORM.known)
    assert found.matter == {"no_such_layer_flag": NOT_UNDERSTOOD}
