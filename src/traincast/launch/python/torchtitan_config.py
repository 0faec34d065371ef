"""torchtitan's Python configurations: a function of its config registry, read without being run."""

import ast
import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from traincast.launch.frameworks.torchtitan import (
    FLAVOURS,
    LOSS_CHUNKS,
    USUAL_CHUNKS,
    default_settings,
    in_sequences,
)
from traincast.launch.python.source import MAX_CALLS, called_name, constant, functions_of, last_name, tree_of
from traincast.launch.settings.format import Writing
from traincast.launch.settings.given import NOTHING, Given, choose_run
from traincast.launch.settings.settings import Settings
from traincast.launch.settings.table import Values, load_document
from traincast.launch.settings.text_formats import comments

SECTIONS: Final[Mapping[str, str]] = {  # class of torchtitan.config -> section
    "TrainingConfig": "training",
    "ParallelismConfig": "parallelism",
    "CompileConfig": "compile",
}
CLASSES: Final = {section: title for title, section in SECTIONS.items()}
# By mode until 2026.
RECOMPUTATION_CLASSES: Final = {"full": "FullAC", "selective": "SelectiveAC", "none": "None"}
CONVERTERS: Final = ("Float8LinearConverter", "MXFP8LinearConverter", "NVFP4LinearConverter")
# torchtitan 0.3.0, components/loss.py
CHUNKED_LOSS: Final = "ChunkedLossWrapper"
ADAM: Final = ("AdamW", "Adam")  # of optimizers, the kinds that are as predicted
OTHER_CONVERTERS: Final = r"(?!LMHeadCast|ModelConfig|\w*GroupedExperts)\w+Converter"
MODULE: Final = '''"""A configuration for torchtitan: its registry names it {function}."""

{head}

from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
{imports}
from torchtitan.models.{model} import model_registry
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.trainer import Trainer


def {function}() -> Trainer.Config:
    model_spec = model_registry({flavour}{converted})
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(
            loss_fn=CrossEntropyLoss.Config(
                global_vocab_size=decoder_vocab_size(model_spec),
            ),
        ),
        model_spec=model_spec,
        optimizer=default_adamw(lr=1e-4),
{sections}
    )
'''


def write(writing: Writing) -> str:
    """Write a module with a function that returns the configuration."""
    settings = writing.all_settings
    prefix = identifier(writing.name)
    compiled = default_settings(writing.facts)["compile.enable"]
    sections: dict[str, dict[str, object]] = {}
    for setting, value in {"training.steps": 1000, **settings, "compile.enable": compiled}.items():
        section, _, name = setting.partition(".")
        if section in CLASSES and name:
            sections.setdefault(section, {})[name] = value
    recompute = settings.get("activation_checkpoint")
    converter = settings.get("model.converters")
    imports = [f"from torchtitan.components.quantization import {converter}"] if converter else []
    imports += [
        f"from torchtitan.config import {', '.join(sorted(CLASSES[section] for section in sections))}"
    ]
    if recompute not in (None, "None"):
        imports += [f"from torchtitan.distributed.activation_checkpoint import {recompute}"]
    lines = [line for section, values in sections.items() for line in _call(section, values)]
    if recompute:
        value = "None" if recompute == "None" else f"{recompute}.Config()"
        lines += [f"        activation_checkpoint={value},"]
    return MODULE.format(
        function=f"{prefix}_{writing.facts['gpus']}_gpus",
        head="\n".join(comments(writing.head)),
        imports="\n".join(imports),
        model=settings.get("model.name", prefix),
        flavour=json.dumps(settings.get("model.flavor", writing.name)),
        converted=_converter_argument(converter, compiled),
        sections="\n".join(lines),
    )


def identifier(name: str) -> str:
    """Return a name as a Python identifier."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return text if text.isidentifier() else f"_{text}"


def _converter_argument(converter: str | None, compiled: bool) -> str:
    """Return the model converter as an argument, if there is one."""
    if converter is None:
        return ""
    argument = f"model_compile_enabled={compiled}" if converter != "NVFP4LinearConverter" else ""
    return f", converters=[{converter}.Config({argument})]"


def _call(section: str, values: Values) -> Iterable[str]:
    """Yield the lines of a section as an argument."""
    yield f"        {section}={CLASSES[section]}("
    yield from (f"            {name}={value!r}," for name, value in values.items())
    yield "        ),"


def read_module(text: str, given: Given = NOTHING) -> Settings:
    """Read the settings of a module, of the function that is meant where it describes several runs.

    Raises
    ------
    InputError
        If it is not Python, or describes several runs of which none is named.
    """
    tree = tree_of(text)
    functions = functions_of(tree)
    runs = [
        name for name, function in functions.items() if _describes_run(function, functions) and name[0] != "_"
    ]
    settings = Settings()
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (
            model := re.match(r"torchtitan\.models\.(?!common)(\w+)", node.module or "")
        ):
            settings["model.name"] = model[1]
    if len(runs) > 1:
        name = choose_run(runs, given.recipe)
        nodes = _nodes_of(name, functions)
        if model_name := _model_of(name, given):
            settings["model.name"] = model_name
    elif runs and given.recipe is not None:
        choose_run(runs, given.recipe)  # its name may be given although there is no other
    for node in nodes:
        match node:
            case ast.Call():
                settings |= _of_call(node)
            case ast.Assign(targets=[ast.Attribute(value=ast.Attribute(attr=section), attr=name), *_]):
                if section in CLASSES:  # config.parallelism.tensor_parallel_degree = 8
                    settings[f"{section}.{name}"] = constant(node.value)
    return in_sequences(settings)


def _model_of(function: str, given: Given) -> str:
    """Return the model of a function of a registry: that of its folder, or that its name begins with."""
    folder = "" if given.folder is None else given.folder.resolve().name
    known = (name for name in FLAVOURS if function.startswith(f"{name}_"))
    return folder if folder in load_document("torchtitan_configs") else next(known, "")


def _describes_run(function: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef]) -> bool:
    """Return whether a function returns a configuration: whether it, or one that it calls, names a model."""
    return any(called_name(node) == "model_registry" for node in _nodes_of(function.name, functions))


def _nodes_of(name: str, functions: Mapping[str, ast.FunctionDef], depth: int = 0) -> list[ast.AST]:
    """Return the nodes of a function, behind those of the functions of the module that it calls."""
    own = [node for statement in functions[name].body for node in ast.walk(statement)]
    if depth == MAX_CALLS:
        return own
    inner = (other for other in dict.fromkeys(map(called_name, own)) if other in functions and other != name)
    return [node for other in inner for node in _nodes_of(other, functions, depth + 1)] + own


def _of_call(node: ast.Call) -> Values:
    """Return the settings of a call."""
    title = called_name(node)
    given = {keyword.arg: constant(keyword.value) for keyword in node.keywords if keyword.arg}
    if title == "model_registry" and node.args:
        more = {f"model.{name}": value for name, value in given.items() if name != "converters"}
        return {"model.flavor": str(constant(node.args[0])), **more}
    if title == "ActivationCheckpointConfig":  # until 2026
        mode = str(given.get("mode", "selective"))
        return {"activation_checkpoint": RECOMPUTATION_CLASSES.get(mode, mode)}
    if title == "ParamGroupConfig" and given.get("optimizer_name", ADAM[0]) not in ADAM:
        return {"optimizer.name": str(given["optimizer_name"])}
    if title in SECTIONS:
        return {f"{SECTIONS[title]}.{name}": value for name, value in given.items()}
    if title != "Config" or not isinstance(node.func, ast.Attribute):
        return {}
    owner = last_name(node.func.value)
    if owner == CHUNKED_LOSS:
        return {LOSS_CHUNKS: given.get("num_chunks", USUAL_CHUNKS)}
    settings = {"model.converters": owner} if owner in CONVERTERS else {}
    more = {"fqns": "model.converted_layers", "emulate": "float8.emulate"}
    settings |= {more[name]: str(given[name]) for name in more if settings and given.get(name)}
    if re.fullmatch(OTHER_CONVERTERS, owner) and not settings:
        settings["model.converter"] = owner
    if given.get("activation_checkpoint", ...) is None:
        settings["activation_checkpoint"] = "None"
    elif owner in RECOMPUTATION_CLASSES.values():
        settings["activation_checkpoint"] = owner
    return settings
