"""Renew the tables of the defaults that parsers of frameworks have, from the installed frameworks.

    python tools/defaults.py [TABLE ...]

Run by the Python that the frameworks are installed in (`make frameworks`); TABLE is one of `TABLES`, by
default all. A table has a section for each parser: `values` are the defaults that can be written out, and
`unset` names the settings whose default is None, which the program decides later. A switch has no value to
write: it is left out.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "src/traincast/launch/tables/defaults"
WIDTH = 150
HEAD = """\
# Defaults of the parsers of {title}, written by tools/defaults.py: `values` to write out, and settings
# that are `unset`, which the program decides later. Switches have no value to write, and are left out.
title = "{title}"
version = "{package} {version}"
source = "{source}"
"""

Defaults = Mapping[str, Any]


class Table(NamedTuple):
    """A table: where its defaults come from, and a function that returns them by parser."""

    title: str
    package: str
    source: str
    sections: Callable[[], Mapping[str, Defaults]]


def of_parser(parser: argparse.ArgumentParser) -> Defaults:
    """Return the defaults of arguments that take a value, by their first name with underscores."""
    found = {}
    for action in parser._actions:
        long = [name for name in action.option_strings if name.startswith("--")]
        takes_value = action.nargs != 0 or isinstance(action, argparse.BooleanOptionalAction)
        if long and takes_value:
            found[long[0].removeprefix("--").replace("-", "_")] = action.default
    return found


def of_dataclass(kind: Any, prefix: str = "") -> Defaults:
    """Return the defaults of the fields of a dataclass, and of dataclasses in them by dotted names."""
    found: dict[str, Any] = {}
    for field in fields(kind):
        if not field.init or (field.default is MISSING and field.default_factory is MISSING):
            continue
        value = field.default if field.default_factory is MISSING else field.default_factory()
        if is_dataclass(value):
            found |= of_dataclass(value, f"{prefix}{field.name}.")
        else:
            found[prefix + field.name] = value
    return found


def megatron() -> Mapping[str, Defaults]:
    """Return the defaults of Megatron-LM's arguments."""
    sys.path.insert(0, str(Path(sys.prefix) / "parsers/megatron"))
    sys.path.insert(0, str(ROOT / "tests/frameworks"))
    import typing

    from accepts import _stub

    if not hasattr(typing, "override"):  # before Python 3.12
        typing.override = lambda method: method
    _stub("transformer_engine", version="2.20.2")
    from megatron.training.arguments import add_megatron_arguments

    return {"pretrain": of_parser(add_megatron_arguments(argparse.ArgumentParser()))}


def transformers() -> Mapping[str, Defaults]:
    """Return the defaults of the Trainer's arguments."""
    from transformers import TrainingArguments

    return {"trainer": of_dataclass(TrainingArguments)}


def trl() -> Mapping[str, Defaults]:
    """Return the defaults of TRL's programs: of the trainer, the model and the script."""
    from trl import DPOConfig, ModelConfig, ScriptArguments, SFTConfig

    common = {**of_dataclass(ScriptArguments), **of_dataclass(ModelConfig)}
    return {
        "sft": {**common, **of_dataclass(SFTConfig)},
        "dpo": {**common, **of_dataclass(DPOConfig)},
    }


def accelerate() -> Mapping[str, Defaults]:
    """Return the defaults of `accelerate launch` and of its configuration file."""
    from accelerate.commands.config.config_args import ClusterConfig
    from accelerate.commands.launch import launch_command_parser

    return {"launch": of_parser(launch_command_parser()), "config": of_dataclass(ClusterConfig)}


def torchtitan() -> Mapping[str, Defaults]:
    """Return the defaults of torchtitan's configuration."""
    from torchtitan.trainer import Trainer

    return {"trainer": of_dataclass(Trainer.Config)}


TABLES = {
    "megatron": Table("Megatron-LM", "megatron-core", "megatron/training/arguments.py", megatron),
    "transformers": Table(
        "Hugging Face Trainer", "transformers", "src/transformers/training_args.py", transformers
    ),
    "trl": Table("TRL", "trl", "trl/trainer/sft_config.py, dpo_config.py, model_config.py", trl),
    "accelerate": Table(
        "Accelerate", "accelerate", "accelerate/commands/launch.py, config_args.py", accelerate
    ),
    "torchtitan": Table("torchtitan", "torchtitan", "torchtitan/trainer.py, config/configs.py", torchtitan),
}


def plain(value: Any) -> Any:
    """Return a default as TOML holds it; None where it holds no such value."""
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple | set) and all(
        isinstance(item, str | bool | int | float) for item in value
    ):
        return list(value)
    return None


def lines(table: Table, release: str) -> Iterator[str]:
    """Yield the lines of a table."""
    title, package, source = table.title, table.package, table.source
    yield HEAD.format(title=title, package=package, version=release, source=source)
    for name, found in table.sections().items():
        values = {setting: plain(default) for setting, default in sorted(found.items())}
        unset = " ".join(setting for setting, value in values.items() if value is None)
        filled = fill(unset, WIDTH, break_long_words=False, break_on_hyphens=False)
        yield f'\n[{name}]\nunset = """\n{filled}"""\n'
        yield f"\n[{name}.values]\n"
        for setting, value in values.items():
            if value is not None:
                yield f"{json.dumps(setting)} = {json.dumps(value)}\n"


def release_of(package: str) -> str:
    """Return the version of an installed package, that of a parser included."""
    folders = (Path(sys.prefix) / "parsers").glob(f"*/{package.replace('-', '_')}-*.dist-info")
    found = next(folders, None)
    return found.name.removesuffix(".dist-info").rpartition("-")[2] if found else version(package)


def write(name: str) -> None:
    """Write a table, beside the present one and then in its place."""
    table = TABLES[name]
    text = "".join(lines(table, release_of(table.package)))
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.toml"
    beside = path.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def main() -> int:
    """Write the table that is named, or each in its own process, as frameworks change what others see."""
    if len(sys.argv) == 2:
        write(sys.argv[1])
        return 0
    names = sys.argv[1:] or list(TABLES)
    results = [subprocess.run([sys.executable, __file__, name], check=False).returncode for name in names]
    return max(results)


if __name__ == "__main__":
    sys.exit(main())
