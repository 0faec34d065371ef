"""torchtitan's Python configurations: written as a function of its config registry, read without being run."""

import ast
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from traincast.core.errors import InputError
from traincast.launch.format import Writing
from traincast.launch.mapping import Settings
from traincast.launch.torchtitan.table import default_settings
from traincast.launch.write_bash import comments

SECTIONS: Final[Mapping[str, str]] = {  # class of torchtitan.config -> section
    "TrainingConfig": "training",
    "ParallelismConfig": "parallelism",
    "CompileConfig": "compile",
}
RECOMPUTATION_CLASSES: Final[Mapping[str, str]] = {
    "full": "FullAC",
    "selective": "SelectiveAC",
    "none": "None",
}  # by mode of ActivationCheckpointConfig
CONVERTERS: Final = ("Float8LinearConverter", "MXFP8LinearConverter", "NVFP4LinearConverter")


def torchtitan(writing: Writing) -> str:
    """Write a module with a function that returns the configuration."""
    settings: Settings = {
        name: value for section in writing.settings.values() for name, value in section.items()
    }
    function_prefix = identifier(writing.name)
    name, flavour = settings.get("model.name", function_prefix), settings.get("model.flavor", writing.name)
    class_names = {section: title for title, section in SECTIONS.items()}
    parts: dict[str, Settings] = {}
    compiled = default_settings(writing.told)["compile.enable"]
    for setting, value in ({"training.steps": 1000} | settings | {"compile.enable": compiled}).items():
        section, _, last = setting.partition(".")
        if section in class_names and last:
            parts.setdefault(section, {})[last] = value
    recompute, converter = settings.get("activation_checkpoint"), settings.get("model.converters")
    function = f"{function_prefix}_{writing.told['gpus']}_gpus"
    lines = [
        f'"""A configuration for torchtitan: its registry names it {function}."""',
        "",
        *comments(writing.head),
        "",
        "from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss",
        "from torchtitan.components.optimizer import default_adamw",
        *([f"from torchtitan.components.quantization import {converter}"] if converter else []),
        f"from torchtitan.config import {', '.join(sorted(class_names[section] for section in parts))}",
        *(
            [f"from torchtitan.distributed.activation_checkpoint import {recompute}"]
            if recompute not in (None, "None")
            else []
        ),
        f"from torchtitan.models.{name} import model_registry",
        "from torchtitan.models.common.config_utils import decoder_vocab_size",
        "from torchtitan.trainer import Trainer",
        "",
        "",
        f"def {function}() -> Trainer.Config:",
        f"    model_spec = model_registry({json.dumps(flavour)}{_converted(converter, compiled)})",
        "    return Trainer.Config(",
        "        loss=ChunkedLossWrapper.Config(",
        "            loss_fn=CrossEntropyLoss.Config(",
        "                global_vocab_size=decoder_vocab_size(model_spec),",
        "            ),",
        "        ),",
        "        model_spec=model_spec,",
        "        optimizer=default_adamw(lr=1e-4),",
        *(line for section, values in parts.items() for line in _call(section, class_names[section], values)),
        *(
            [f"        activation_checkpoint={'None' if recompute == 'None' else f'{recompute}.Config()'},"]
            if recompute
            else []
        ),
        "    )",
    ]
    return "\n".join(lines) + "\n"


def identifier(name: str) -> str:
    """Return a name as a Python identifier."""
    identifier_text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return identifier_text if identifier_text.isidentifier() else f"_{identifier_text}"


def _converted(converter: str | None, compiled: bool) -> str:
    """Return the model converter as an argument, if there is one."""
    if converter is None:
        return ""
    argument = f"model_compile_enabled={compiled}" if converter != "NVFP4LinearConverter" else ""
    return f", converters=[{converter}.Config({argument})]"


def _call(section: str, title: str, values: Settings) -> Iterable[str]:
    """Yield the lines of a section as an argument."""
    yield f"        {section}={title}("
    yield from (f"            {name}={value!r}," for name, value in values.items())
    yield "        ),"


def settings_of(text: str) -> Settings:
    """Read the settings of a module.

    Raises
    ------
    InputError
        If it is not Python, or describes more than one run.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError("Python", [f"malformed Python: {getattr(error, 'msg', None) or error}"]) from None
    nodes = list(ast.walk(tree))
    runs = [node for node in nodes if isinstance(node, ast.Call) and _title(node.func) == "model_registry"]
    if len(runs) > 1:
        raise InputError("Python", [f"describes {len(runs)} runs; keep only one"])
    settings: Settings = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (
            match := re.match(r"torchtitan\.models\.(?!common)(\w+)", node.module or "")
        ):
            settings["model.name"] = match[1]
        elif isinstance(node, ast.Call):
            settings |= _of_call(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            settings |= _of_assignment(node.targets[0], node.value)
    return settings


def _of_call(node: ast.Call) -> Settings:
    """Return the settings of a call."""
    title = _title(node.func)
    given = {keyword.arg: _constant(keyword.value) for keyword in node.keywords if keyword.arg}
    if title == "model_registry" and node.args:
        return {"model.flavor": str(_constant(node.args[0]))}
    if title == "ActivationCheckpointConfig":  # until 2026
        return {
            "activation_checkpoint": RECOMPUTATION_CLASSES.get(
                str(given.get("mode", "selective")), str(given.get("mode"))
            )
        }
    if title in SECTIONS:
        return {f"{SECTIONS[title]}.{name}": value for name, value in given.items()}
    if title == "Config" and isinstance(node.func, ast.Attribute):
        owner = _title(node.func.value)
        not_recomputed = "activation_checkpoint" in given and given["activation_checkpoint"] is None
        recompute = "None" if not_recomputed else owner if owner in RECOMPUTATION_CLASSES.values() else None
        converted = {"model.converters": owner} if owner in CONVERTERS else {}
        return converted | ({"activation_checkpoint": recompute} if recompute else {})
    return {}


def _of_assignment(target: ast.Attribute, value: ast.expr) -> Settings:
    """Return the settings of an assignment such as ``config.parallelism.tensor_parallel_degree = 8``."""
    section = target.value.attr if isinstance(target.value, ast.Attribute) else ""
    return {f"{section}.{target.attr}": _constant(value)} if section in SECTIONS.values() else {}


def _title(node: ast.expr) -> str:
    """Return the last name of a called expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _constant(node: ast.expr) -> Any:
    """Return a literal's value; the source text of anything else."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ast.unparse(node)[:80]
