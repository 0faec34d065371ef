"""Configurations in Python: torchtitan's, written as a function of its config registry and read without being run."""

import ast
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from traincast.errors import InputError
from traincast.launch.formats import Writing
from traincast.launch.scripts import comments
from traincast.launch.table import Settings
from traincast.launch.torchtitan import FLOAT8

SECTIONS: Final[Mapping[str, str]] = {  # class of torchtitan.config -> section
    "TrainingConfig": "training",
    "ParallelismConfig": "parallelism",
    "ActivationCheckpointConfig": "activation_checkpoint",
    "CompileConfig": "compile",
}
CONVERTERS: Final[Mapping[str, str]] = {"Float8LinearConverter": FLOAT8[0], "MXLinearConverter": "quantize.linear.mx"}
MODULES: Final = {
    "Float8LinearConverter": "torchtitan.components.quantization.float8",
    "MXLinearConverter": "torchtitan.components.quantization.mx",
}


def torchtitan(writing: Writing) -> str:
    """A module whose function makes the configuration."""
    flat: Settings = {name: value for section in writing.settings.values() for name, value in section.items()}
    name, flavour = flat.get("model.name", "llama3"), flat.get("model.flavor", "UNKNOWN")
    known = {section: title for title, section in SECTIONS.items()}
    parts: dict[str, Settings] = {}
    for setting, value in ({"training.steps": 1000} | flat | {"compile.enable": True}).items():
        section, _, last = setting.partition(".")
        if section in known and last != "selective_ac_option":
            parts.setdefault(section, {})[last] = value
    converter = next((title for title, start in CONVERTERS.items() if f"{start}.recipe_name" in flat), None)
    function = re.sub(r"\W", "_", f"{writing.name}_{writing.told['gpus']}_gpus")
    lines = [
        f'"""A configuration for torchtitan; torchrun -m torchtitan.train --module {name} --config {function}"""',
        "",
        *comments(writing.head),
        "",
        *([f"from {MODULES[converter]} import {converter}"] if converter else []),
        f"from torchtitan.config import {', '.join(sorted(known[section] for section in parts))}",
        f"from torchtitan.models.{name} import model_registry",
        *(["from torchtitan.protocols.model_converter import ModelConvertersContainer"] if converter else []),
        "from torchtitan.trainer import Trainer",
        "",
        "",
        f"def {function}() -> Trainer.Config:",
        "    return Trainer.Config(",
        f'        model_spec=model_registry("{flavour}"),',
        *_converted(converter, flat),
        *(line for section, values in parts.items() for line in _call(section, known[section], values)),
        "    )",
    ]
    return "\n".join(lines) + "\n"


def _converted(converter: str | None, flat: Settings) -> Iterable[str]:
    """The converter of the model, if there is one."""
    if converter is not None:
        recipe = flat[f"{CONVERTERS[converter]}.recipe_name"]
        yield "        model_converters=ModelConvertersContainer.Config("
        yield f"            converters=[{converter}.Config(recipe_name={recipe!r})],"
        yield "        ),"


def _call(section: str, title: str, values: Settings) -> Iterable[str]:
    """A section as an argument."""
    yield f"        {section}={title}("
    yield from (f"            {name}={value!r}," for name, value in values.items())
    yield "        ),"


def settings_of(text: str) -> Settings:
    """Settings of a module.

    Raises
    ------
    InputError
        If it is no Python, or describes several runs.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError("Python", [f"malformed Python: {getattr(error, 'msg', None) or error}"]) from None
    nodes = list(ast.walk(tree))
    runs = [node for node in nodes if isinstance(node, ast.Call) and _title(node.func) == "model_registry"]
    if len(runs) > 1:
        raise InputError("Python", [f"describes {len(runs)} runs; leave the one that is meant"])
    found: Settings = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (match := re.match(r"torchtitan\.models\.(\w+)", node.module or "")):
            found["model.name"] = match[1]
        elif isinstance(node, ast.Call):
            found |= _of_call(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            found |= _of_assignment(node.targets[0], node.value)
    if found.get("activation_checkpoint.mode") == "selective":
        found["activation_checkpoint.selective_ac_option"] = "op"
    return found


def _of_call(node: ast.Call) -> Settings:
    """Settings of a call."""
    title = _title(node.func)
    given = {one.arg: _constant(one.value) for one in node.keywords if one.arg}
    if title == "model_registry" and node.args:
        return {"model.flavor": str(_constant(node.args[0]))}
    if title in SECTIONS:
        return {f"{SECTIONS[title]}.{name}": value for name, value in given.items()}
    if title == "Config" and isinstance(node.func, ast.Attribute) and (start := CONVERTERS.get(_title(node.func.value))):
        return {"model.converters": [start], f"{start}.recipe_name": given.get("recipe_name", "tensorwise")}
    return {}


def _of_assignment(target: ast.Attribute, value: ast.expr) -> Settings:
    """Settings of an assignment such as ``config.parallelism.tensor_parallel_degree = 8``."""
    section = target.value.attr if isinstance(target.value, ast.Attribute) else ""
    return {f"{section}.{target.attr}": _constant(value)} if section in SECTIONS.values() else {}


def _title(node: ast.expr) -> str:
    """Last name of what is called."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _constant(node: ast.expr) -> Any:
    """A value that stands there; the text of anything else."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ast.unparse(node)[:80]
