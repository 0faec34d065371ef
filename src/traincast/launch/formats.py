"""All formats of launches, by name. To detect the format of a text they are tried in this order."""

from collections.abc import Mapping
from typing import Final

from traincast.launch import accelerate, deepspeed, nanotron, read_bash, text_formats, write_bash
from traincast.launch.format import Format, Writing
from traincast.launch.mapping import Settings
from traincast.launch.megatron import bridge
from traincast.launch.megatron import table as megatron_table
from traincast.launch.megatron.unread_arguments import BRIDGE, MEGATRON
from traincast.launch.torchtitan import python_config
from traincast.launch.torchtitan import table as torchtitan_table
from traincast.launch.unread_configs import ACCELERATE, DEEPSPEED, NANOTRON, TORCHTITAN


def _with_settings(writing: Writing, fixed: Settings) -> Settings:
    """Return the settings of all sections, and fixed ones that the program requires as well."""
    settings = {name: value for section in writing.settings.values() for name, value in section.items()}
    return settings | {name: value for name, value in fixed.items() if name not in settings}


_MEGATRON: Final = {
    "framework": "megatron",
    "rows": megatron_table.ROWS,
    "why": megatron_table.WHY,
    "ending": ".sh",
    "stack": megatron_table.stack,
    "granted": megatron_table.granted,
}
_TORCHTITAN: Final = {"framework": "torchtitan", "stack": torchtitan_table.stack, "beside": TORCHTITAN}
FORMATS: Final[Mapping[str, Format]] = {
    form.name: form
    for form in (
        Format(
            "slurm",
            "Megatron-LM under Slurm",
            source=f"{megatron_table.SOURCE}; directives as of sbatch(1) of Slurm 24.05",
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
            source=megatron_table.SOURCE,
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
            **{
                **_MEGATRON,
                "granted": lambda settings: (*megatron_table.granted(settings), *bridge.granted(settings)),
            },  # type: ignore[arg-type]
        ),
        Format(
            "torchtitan",
            "torchtitan",
            source=torchtitan_table.PYTHON,
            ending=".py",
            text=python_config.torchtitan,
            settings=python_config.settings_of,
            sign=r"ParallelismConfig|TrainingConfig|torchtitan",
            rows=torchtitan_table.PYTHON_ROWS,
            why={**torchtitan_table.WHY, **torchtitan_table.PYTHON_WHY},
            **_TORCHTITAN,  # type: ignore[arg-type]
        ),
        Format(
            "torchtitan-toml",
            "torchtitan (TOML of 2025)",
            source=torchtitan_table.TOML,
            ending=".toml",
            text=lambda writing: text_formats.toml(
                _with_settings(
                    writing,
                    {
                        "model.name": writing.name,
                        "model.flavor": writing.name,
                        **torchtitan_table.default_settings(writing.told),
                    },
                ),
                writing.head,
            ),
            settings=text_formats.toml_settings,
            sign=r"(?m)^\s*\[(?:training|parallelism|model)\]",
            rows=torchtitan_table.ROWS,
            why=torchtitan_table.WHY,
            **_TORCHTITAN,  # type: ignore[arg-type]
        ),
        Format(
            "deepspeed",
            "DeepSpeed",
            "deepspeed",
            deepspeed.ROWS,
            deepspeed.WHY,
            deepspeed.SOURCE,
            ".json",
            lambda writing: text_formats.json_text(_with_settings(writing, deepspeed.FIXED_SETTINGS)),
            text_formats.json_settings,
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
            lambda writing: text_formats.yaml(_with_settings(writing, nanotron.FIXED_SETTINGS), writing.head),
            text_formats.yaml_settings,
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
            lambda writing: text_formats.yaml(
                _with_settings(writing, accelerate.FIXED_SETTINGS), writing.head
            ),
            text_formats.yaml_settings,
            r"parallelism_config|fsdp_config|distributed_type",
            model=False,
            beside=ACCELERATE,
        ),
    )
}
