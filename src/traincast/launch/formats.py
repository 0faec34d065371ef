"""Every format that is written and read, by name. A text is held against them in this order."""

from collections.abc import Mapping
from typing import Final

from traincast.launch import accelerate, deepspeed, nanotron, read_bash, text_formats, write_bash
from traincast.launch.format import Format, Writing
from traincast.launch.mapping import Settings
from traincast.launch.megatron import bridge
from traincast.launch.megatron import table as megatron
from traincast.launch.megatron.unread_arguments import BRIDGE, MEGATRON
from traincast.launch.torchtitan import python_config
from traincast.launch.torchtitan import table as torchtitan
from traincast.launch.unread_configs import ACCELERATE, DEEPSPEED, NANOTRON, TORCHTITAN


def _with(writing: Writing, beside: Settings) -> Settings:
    """Settings of all sections, and those that a program asks for as well."""
    found = {name: value for section in writing.settings.values() for name, value in section.items()}
    return found | {name: value for name, value in beside.items() if name not in found}


_MEGATRON: Final = {
    "framework": "megatron",
    "rows": megatron.ROWS,
    "why": megatron.WHY,
    "ending": ".sh",
    "stack": megatron.stack,
    "granted": megatron.granted,
}
_TITAN: Final = {"framework": "torchtitan", "stack": torchtitan.stack, "beside": TORCHTITAN}
FORMATS: Final[Mapping[str, Format]] = {
    one.name: one
    for one in (
        Format(
            "slurm",
            "Megatron-LM under Slurm",
            source=f"{megatron.SOURCE}; directives as of sbatch(1) of Slurm 24.05",
            text=write_bash.slurm,
            settings=read_bash.settings_of,
            sign=r"(?m)^#SBATCH\b(?s:.*)--[a-z]",
            spelled=write_bash.flag,
            beside=MEGATRON,
            **_MEGATRON,  # type: ignore[arg-type]
        ),
        Format(
            "megatron",
            "Megatron-LM",
            source=megatron.SOURCE,
            text=write_bash.megatron,
            settings=read_bash.settings_of,
            sign=r"--[a-z]",
            spelled=write_bash.flag,
            beside=MEGATRON,
            **_MEGATRON,  # type: ignore[arg-type]
        ),
        Format(
            "megatron-bridge",
            "Megatron-Bridge",
            source=bridge.SOURCE,
            text=write_bash.bridge,
            settings=bridge.settings_of,
            sign=r"\b(?:model|train|ddp)\.\w+=",
            spelled=bridge.spelled,
            beside=BRIDGE,
            **{**_MEGATRON, "granted": lambda settings: (*megatron.granted(settings), *bridge.granted(settings))},  # type: ignore[arg-type]
        ),
        Format(
            "torchtitan",
            "torchtitan",
            source=torchtitan.PYTHON,
            ending=".py",
            text=python_config.torchtitan,
            settings=python_config.settings_of,
            sign=r"ParallelismConfig|TrainingConfig|torchtitan",
            rows=torchtitan.PYTHON_ROWS,
            why={**torchtitan.WHY, **torchtitan.PYTHON_WHY},
            **_TITAN,  # type: ignore[arg-type]
        ),
        Format(
            "torchtitan-toml",
            "torchtitan (TOML of 2025)",
            source=torchtitan.TOML,
            ending=".toml",
            text=lambda writing: text_formats.toml(
                _with(writing, {"model.name": writing.name, "model.flavor": writing.name, **torchtitan.beside(writing.told)}),
                writing.head,
            ),
            settings=text_formats.of_toml,
            sign=r"(?m)^\s*\[(?:training|parallelism|model)\]",
            rows=torchtitan.ROWS,
            why=torchtitan.WHY,
            **_TITAN,  # type: ignore[arg-type]
        ),
        Format(
            "deepspeed",
            "DeepSpeed",
            "deepspeed",
            deepspeed.ROWS,
            deepspeed.WHY,
            deepspeed.SOURCE,
            ".json",
            lambda writing: text_formats.json_of(_with(writing, deepspeed.BESIDE)),
            text_formats.of_json,
            r"^\s*\{",
            model=False,
            comments=False,
            beside=DEEPSPEED,
            granted=deepspeed.granted,
        ),
        Format(
            "nanotron",
            "nanotron",
            nanotron.SPACE,
            nanotron.ROWS,
            nanotron.WHY,
            nanotron.SOURCE,
            ".yaml",
            lambda writing: text_formats.yaml(_with(writing, nanotron.BESIDE), writing.head),
            text_formats.of_yaml,
            r"(?m)^parallelism:",
            beside=NANOTRON,
        ),
        Format(
            "accelerate",
            "Accelerate",
            accelerate.SPACE,
            accelerate.ROWS,
            accelerate.WHY,
            accelerate.SOURCE,
            ".yaml",
            lambda writing: text_formats.yaml(_with(writing, accelerate.BESIDE), writing.head),
            text_formats.of_yaml,
            r"parallelism_config|fsdp_config|distributed_type",
            model=False,
            beside=ACCELERATE,
        ),
    )
}
