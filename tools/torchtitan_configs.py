"""Renew the table of the configurations that come with torchtitan, from the installed package.

    python tools/torchtitan_configs.py

Run by the Python that torchtitan is installed in. `torchrun -m torchtitan.train --module M --config C` starts
from what a function C of the module M's registry returns: each is called, and what it sets of batch, degrees,
compilation, recomputation, converters and loss is written, where that is not the default.
"""

import importlib
import importlib.abc
import inspect
import json
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import MagicMock

TABLE = Path(__file__).parents[1] / "src/traincast/launch/tables/torchtitan_configs.toml"
SECTIONS = ("training", "parallelism", "compile")
# Packages of kernels and readers of images, which no configuration needs
STAND_INS = ("torchvision", "av", "fla")
ADAM = {"Adam", "AdamW"}
CONVERTERS = ("Float8LinearConverter", "MXFP8LinearConverter", "NVFP4LinearConverter")
HEAD = """\
# Configurations that come with torchtitan, by module and function, written by tools/torchtitan_configs.py.
title = "torchtitan"
version = "torchtitan {version}"
source = "torchtitan/models/*/config_registry.py"
"""


class StandIn(types.ModuleType):
    """Module of any names."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock()


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder of stand-ins for packages that are not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the place of a stand-in."""
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in STAND_INS else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """Return a stand-in."""
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing."""


def class_name(config: Any) -> str:
    """Return the name of the class that a configuration is of: that which its class stands in."""
    return "None" if config is None else type(config).__qualname__.split(".")[-2]


def settings_of(config: Any, converters: list[Any]) -> Mapping[str, Any]:
    """Return the settings of a configuration, in the names that traincast has for those of its registry."""
    found = {"model.name": config.model_spec.name, "model.flavor": config.model_spec.flavor}
    for section in SECTIONS:
        part = getattr(config, section)
        for field in fields(part):
            value = getattr(part, field.name)
            default = field.default_factory() if callable(field.default_factory) else field.default
            if value != default and value is not None:
                found[f"{section}.{field.name}"] = value
    found["activation_checkpoint"] = class_name(config.activation_checkpoint)
    if class_name(config.loss) == "ChunkedLossWrapper":
        found["loss.num_chunks"] = config.loss.num_chunks
    optimizers = {group.optimizer_name for group in config.optimizer.param_groups} - ADAM
    if optimizers:
        found["optimizer.name"] = sorted(optimizers)[0]
    for converter in converters:
        name = class_name(converter)
        if name in CONVERTERS:
            found["model.converters"] = name
            if getattr(converter, "fqns", None):
                found["model.converted_layers"] = str(list(converter.fqns))
            if getattr(converter, "emulate", False):
                found["float8.emulate"] = "True"
        elif name != "LMHeadCastConverter" and "GroupedExperts" not in name:
            found["model.converter"] = name
    return found


def configurations(module: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the configurations of a registry by name, with their settings."""
    registry = module.model_registry
    for name, function in inspect.getmembers(module, inspect.isfunction):
        is_own = function.__module__ == module.__name__ and not name.startswith("_")
        if not is_own or any(p.default is p.empty for p in inspect.signature(function).parameters.values()):
            continue
        asked: list[dict[str, Any]] = []

        def recorded(*words: Any, asked: list[dict[str, Any]] = asked, **given: Any) -> Any:
            asked.append(dict(given))
            given.pop("converters", None)  # some need a GPU
            return registry(*words, **given)

        module.model_registry = recorded
        try:
            config = function()
        except ValueError as error:  # it needs a GPU
            print(f"left out: {name}: {error}", file=sys.stderr)
            continue
        finally:
            module.model_registry = registry
        given = asked[-1] if asked else {}
        settings = settings_of(config, list(given.pop("converters", None) or ()))
        yield name, {**settings, **{f"model.{key}": value for key, value in given.items()}}


def main() -> None:
    """Write the table."""
    importlib.import_module("datasets")  # which asks whether they are installed
    sys.meta_path.append(Finder())
    from torchtitan.models import _supported_models

    lines = [HEAD.format(version=version("torchtitan"))]
    for name in sorted(_supported_models - {"flux"}):
        module = importlib.import_module(f"torchtitan.models.{name}.config_registry")
        for function, settings in configurations(module):
            lines.append(f"[{name}.{function}]")
            lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in settings.items()]
            lines.append("")
    TABLE.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
