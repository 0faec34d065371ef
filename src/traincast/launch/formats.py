"""All formats of launches, by name. To detect the format of a text they are tried in this order.

A framework is added with a table in `tables`, a module with the functions of its computed rows, and a `Format` here.
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


def _with_written_file(megatron_rules: UnreadRules, rules: UnreadRules) -> UnreadRules:
    """Return Megatron-LM's rules with those of a DeepSpeed configuration that the script itself writes."""

    def in_file(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(f"deepspeed_config.{name}" for name in names)

    offloaded = UnreadEffect("offloading to the host", tuple(deepspeed.OFFLOAD.values()), neutral=("none",))
    matter = (
        replace(
            effect, settings=in_file(effect.settings), needs="".join(in_file(filter(None, [effect.needs])))
        )
        for effect in (*rules.matter, offloaded)
    )
    return UnreadRules(
        (*megatron_rules.matter, *matter),
        (*megatron_rules.small, *in_file(rules.small)),
        (*megatron_rules.harmless, *in_file((*rules.harmless, *READ_BY_FLAGS))),
    )


def _with_fixed(
    table: Table,
    write: Callable[[Values, Iterable[str]], str],
    defaults: Callable[[Writing], Values] = lambda _: {},
) -> Callable[[Writing], str]:
    """Return a function that writes the settings of all sections, and after them what the program requires as well."""

    def text(writing: Writing) -> str:
        required = {**table.fixed, **defaults(writing)}
        return write(writing.all_settings | {**required, **writing.all_settings}, writing.head)

    return text


def _torchtitan_defaults(writing: Writing) -> Values:
    """Return the model's name and other settings that the TOML of torchtitan requires."""
    names = {"model.name": writing.name, "model.flavor": writing.name}
    return {**names, **torchtitan.default_settings(writing.facts)}


def _torchtitan_table(version: str) -> Table:
    """Return the table of a version of torchtitan."""
    table = load_table("torchtitan", torchtitan, version)
    return replace(table, why={"model": torchtitan.why_no_flavour(), **table.why})


_DEEPSPEED: Final = load_table("deepspeed", deepspeed)
_NANOTRON: Final = load_table("nanotron", nanotron)
_ACCELERATE: Final = load_table("accelerate", accelerate)
_MEGATRON_TABLE: Final = load_table("megatron", megatron)
_MEGATRON: Final = Format(
    "megatron",
    "Megatron-LM",
    "megatron",
    replace(_MEGATRON_TABLE, unread=_with_written_file(_MEGATRON_TABLE.unread, _DEEPSPEED.unread)),
    ".sh",
    sign=r"--[a-z]",
    read=read_bash.settings_of,
    write=write_bash.megatron,
    spelled=write_bash.flag,
    stack=megatron.stack,
    assumptions=megatron.assumptions,
)
_SLURM: Final = replace(
    _MEGATRON,
    name="slurm",
    title="Megatron-LM under Slurm",
    table=replace(
        _MEGATRON.table, source=f"{_MEGATRON.table.source}; directives as of sbatch(1) of Slurm 24.05"
    ),
    sign=r"(?m)^#SBATCH\b(?s:.*)--[a-z]",
    write=write_bash.slurm,
)
_BRIDGE: Final = replace(
    _MEGATRON,
    name="megatron-bridge",
    title="Megatron-Bridge",
    table=megatron_bridge.table(_MEGATRON_TABLE),
    sign=r"\b(?:model|train|ddp)\.\w+=",
    read=megatron_bridge.read,
    write=write_bash.bridge,
    spelled=megatron_bridge.spelled,
    assumptions=megatron_bridge.assumptions,
)
_TITAN: Final = Format(
    "torchtitan",
    "torchtitan",
    "torchtitan",
    _torchtitan_table("python"),
    ".py",
    sign=r"ParallelismConfig|TrainingConfig|torchtitan",
    read=torchtitan_config.read,
    write=torchtitan_config.write,
    stack=torchtitan.stack,
)
_TITAN_TOML: Final = replace(
    _TITAN,
    name="torchtitan-toml",
    title="torchtitan (TOML of 2025)",
    table=(_TITAN_TOML_TABLE := _torchtitan_table("toml")),
    ending=".toml",
    sign=r"(?m)^\s*\[(?:training|parallelism|model)\]",
    read=read_toml,
    write=_with_fixed(_TITAN_TOML_TABLE, write_toml, _torchtitan_defaults),
)
_OTHERS: Final = (
    Format(
        "deepspeed",
        "DeepSpeed",
        "deepspeed",
        _DEEPSPEED,
        ".json",
        sign=r"^\s*\{",
        read=read_json,
        write=_with_fixed(_DEEPSPEED, write_json),
        model=False,
        assumptions=deepspeed.assumptions,
    ),
    Format(
        "nanotron",
        "nanotron",
        nanotron.SPACE,
        _NANOTRON,
        ".yaml",
        sign=r"(?m)^parallelism:",
        read=read_yaml,
        write=_with_fixed(_NANOTRON, write_yaml),
    ),
    Format(
        "accelerate",
        "Accelerate",
        accelerate.SPACE,
        _ACCELERATE,
        ".yaml",
        sign=r"parallelism_config|fsdp_config|distributed_type",
        read=read_yaml,
        write=_with_fixed(_ACCELERATE, write_yaml),
        model=False,
    ),
)
FORMATS: Final[Mapping[str, Format]] = {
    form.name: form for form in (_SLURM, _MEGATRON, _BRIDGE, _TITAN, _TITAN_TOML, *_OTHERS)
}
