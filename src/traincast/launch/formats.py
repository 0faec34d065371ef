"""All formats of launches, by name. To detect the format of a text they are tried in this order.

A framework is added with a table in `tables`, a module of functions of computed rows, and a line here.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from traincast.launch import (
    accelerate,
    deepspeed,
    megatron,
    megatron_bridge,
    nanotron,
    read_bash,
    torchtitan,
    torchtitan_config,
    write_bash,
)
from traincast.launch.format import Format, load_format
from traincast.launch.unread_settings import UnreadEffect, UnreadRules

# Settings of DeepSpeed's configuration that Megatron-DeepSpeed's flags give as well.
READ_BY_FLAGS: Final = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    *("zero_optimization.stage", "fp16.enabled", "bf16.enabled", "data_types.grad_accum_dtype"),
)


def _with_written_file(rules: UnreadRules, deepspeed_rules: UnreadRules) -> UnreadRules:
    """Return Megatron-LM's rules with those of a DeepSpeed configuration that the script itself writes."""
    offloaded = UnreadEffect("offloading to the host", tuple(deepspeed.OFFLOAD.values()), neutral=("none",))
    written = replace(
        deepspeed_rules,
        matter=(*deepspeed_rules.matter, offloaded),
        harmless=(*deepspeed_rules.harmless, *READ_BY_FLAGS),
    ).renamed(lambda name: (f"deepspeed_config.{name}",))
    return UnreadRules(
        (*rules.matter, *written.matter),
        (*rules.small, *written.small),
        (*rules.harmless, *written.harmless),
    )


_DEEPSPEED: Final = load_format("deepspeed", "deepspeed", deepspeed)
_BRIDGE: Final = load_format(
    "megatron-bridge", "megatron", megatron,
    read=megatron_bridge.read, write=write_bash.bridge, spelled=megatron_bridge.spelled,
    assumptions=megatron_bridge.assumptions,
)  # fmt: skip
_SCRIPTS: Final = (
    load_format(
        name, "megatron", megatron,
        read=read_bash.settings_of, write=write, spelled=write_bash.flag,
        unread=_with_written_file(_BRIDGE.unread, _DEEPSPEED.unread),
    )
    for name, write in (("slurm", write_bash.slurm), ("megatron", write_bash.megatron))
)  # fmt: skip
FORMATS: Final[Mapping[str, Format]] = {
    form.name: form
    for form in (
        *_SCRIPTS,
        replace(_BRIDGE, unread=megatron_bridge.unread_rules(_BRIDGE.unread)),
        load_format(
            "torchtitan", "torchtitan", torchtitan, read=torchtitan_config.read, write=torchtitan_config.write
        ),
        load_format("torchtitan-toml", "torchtitan", torchtitan),
        _DEEPSPEED,
        load_format("nanotron", "nanotron", nanotron),
        load_format("accelerate", "fsdp", accelerate, table="accelerate"),
    )
}
