"""All formats of launches, by name. To detect the format of a text they are tried in this order.

A framework is added with a table in `tables`, a module of functions of computed rows, and a `Format` here.
"""

from collections.abc import Callable, Iterable, Mapping
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
from traincast.launch.format import Format, Writing
from traincast.launch.table import Table, Values, load_table
from traincast.launch.text_formats import read_json, read_toml, read_yaml, write_json, write_toml, write_yaml
from traincast.launch.unread_settings import UnreadEffect, UnreadRules

# Settings of DeepSpeed's configuration that Megatron-DeepSpeed's flags give as well.
READ_BY_FLAGS: Final = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "zero_optimization.stage",
    "fp16.enabled",
    "bf16.enabled",
    "data_types.grad_accum_dtype",
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


def _with_fixed(
    write: Callable[[Values, Iterable[str]], str],
    table: Table,
    defaults: Callable[[Writing], Values] = lambda _: {},
) -> Callable[[Writing], str]:
    """Return a function that writes the settings of all sections, then what the program requires as well."""

    def text(writing: Writing) -> str:
        required = {**table.fixed, **defaults(writing)}
        return write(writing.all_settings | {**required, **writing.all_settings}, writing.head)

    return text


def _torchtitan(name: str) -> Table:
    """Return the table of a format of torchtitan."""
    table = load_table("torchtitan", torchtitan, name)
    return replace(table, why={"model": torchtitan.why_no_flavour(), **table.why})


def _torchtitan_defaults(writing: Writing) -> Values:
    """Return the model's name and other settings that the TOML of torchtitan requires."""
    names = {"model.name": writing.name, "model.flavor": writing.name}
    return {**names, **torchtitan.default_settings(writing.facts)}


_DEEPSPEED: Final = load_table("deepspeed", deepspeed, "deepspeed")
_NANOTRON: Final = load_table("nanotron", nanotron, "nanotron")
_ACCELERATE: Final = load_table("accelerate", accelerate, "accelerate")
_TITAN_PYTHON: Final = _torchtitan("torchtitan")
_TITAN_TOML: Final = _torchtitan("torchtitan-toml")
_MEGATRON: Final = load_table("megatron", megatron, "megatron")
_SLURM: Final = load_table("megatron", megatron, "slurm")
_BRIDGE: Final = load_table("megatron", megatron, "megatron-bridge")
_SCRIPT: Final = Format(
    "megatron",
    "megatron",
    replace(_MEGATRON, unread=_with_written_file(_MEGATRON.unread, _DEEPSPEED.unread)),
    read_bash.settings_of,
    write_bash.megatron,
    spelled=write_bash.flag,
    stack=megatron.stack,
    assumptions=megatron.assumptions,
)
FORMATS: Final[Mapping[str, Format]] = {
    form.name: form
    for form in (
        replace(
            _SCRIPT, name="slurm", table=replace(_SLURM, unread=_SCRIPT.table.unread), write=write_bash.slurm
        ),
        _SCRIPT,
        replace(
            _SCRIPT,
            name="megatron-bridge",
            table=replace(_BRIDGE, unread=megatron_bridge.unread_rules(_MEGATRON.unread)),
            read=megatron_bridge.read,
            write=write_bash.bridge,
            spelled=megatron_bridge.spelled,
            assumptions=megatron_bridge.assumptions,
        ),
        Format(
            "torchtitan",
            "torchtitan",
            _TITAN_PYTHON,
            torchtitan_config.read,
            torchtitan_config.write,
            stack=torchtitan.stack,
        ),
        Format(
            "torchtitan-toml",
            "torchtitan",
            _TITAN_TOML,
            read_toml,
            _with_fixed(write_toml, _TITAN_TOML, _torchtitan_defaults),
            stack=torchtitan.stack,
        ),
        Format(
            "deepspeed",
            "deepspeed",
            _DEEPSPEED,
            read_json,
            _with_fixed(write_json, _DEEPSPEED),
            model=False,
            assumptions=deepspeed.assumptions,
        ),
        Format("nanotron", "nanotron", _NANOTRON, read_yaml, _with_fixed(write_yaml, _NANOTRON)),
        Format(
            "accelerate",
            "accelerate",
            _ACCELERATE,
            read_yaml,
            _with_fixed(write_yaml, _ACCELERATE),
            model=False,
        ),
    )
}
