"""The tables of what parsers have where a launch leaves a setting out."""

import pytest

from traincast.launch.settings.defaults import parser_defaults, release


@pytest.mark.parametrize(
    ("program", "parser", "setting", "default"),
    [  # as the documentation of these releases states them
        ("megatron", "pretrain", "moe_token_dispatcher_type", "allgather"),
        ("megatron", "pretrain", "data_parallel_sharding_strategy", "optim_grads_params"),
        ("transformers", "trainer", "per_device_train_batch_size", 8),
        ("trl", "sft", "max_length", 1024),
        ("trl", "dpo", "beta", 0.1),
        ("accelerate", "launch", "fsdp_sharding_strategy", "FULL_SHARD"),
        ("torchtitan", "trainer", "parallelism.tensor_parallel_degree", 1),
    ],
)
def test_default_written_out_of_a_parser(program, parser, setting, default):
    assert parser_defaults(program, parser)[setting] == default


def test_unset_settings_are_none():
    assert parser_defaults("megatron", "pretrain")["micro_batch_size"] is None


def test_a_table_names_its_release():
    assert release("megatron") == "megatron-core 0.19.2"
