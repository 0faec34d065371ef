"""Megatron-Bridge's recipes: functions that change a configuration, read without being run."""

import ast
import re
from collections.abc import Mapping
from typing import Any, Final

from traincast.core.errors import InputError
from traincast.launch.checkpoints import NAMED_MODEL
from traincast.launch.given import NOTHING, Given, chosen
from traincast.launch.megatron_bridge import megatron_settings
from traincast.launch.python_source import MAX_CALLS, called, constant, constants_of, functions_of, tree_of
from traincast.launch.settings import Settings

PRECISIONS: Final[Mapping[str, str]] = {  # perf_recipes/_common.py, _perf_precision
    "bf16": "bf16_mixed",
    "fp8_cs": "bf16_with_fp8_current_scaling_mixed",
    "fp8_ds": "bf16_with_fp8_delayed_scaling_mixed",
    "fp8_mx": "bf16_with_mxfp8_mixed",
    "fp8_sc": "bf16_with_fp8_subchannel_scaling_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
# What recipes begin with (recipes/common.py, _pretrain_common), and what the benchmarks' functions set.
DEFAULTS: Final[Mapping[str, Any]] = {
    "mixed_precision": "bf16_mixed",
    "ddp.use_distributed_optimizer": True,
    "ddp.overlap_grad_reduce": True,
    "ddp.overlap_param_gather": True,
    "ddp.grad_reduce_in_fp32": True,
}
OF_BENCHMARKS: Final[Mapping[str, Any]] = {"ddp.grad_reduce_in_fp32": False}
RENAMED: Final = {
    "ddp.use_megatron_fsdp": "dist.use_megatron_fsdp",
    "mixed_precision.grad_reduce_in_fp32": "ddp.grad_reduce_in_fp32",
}
HARMLESS: Final = ("_enable_overlap_param_gather_with_optimizer_step", "apply_determinism_overrides")
RECIPE: Final = re.compile(r"^(?P<model>\w+?)_(?P<kind>pretrain|sft|peft|finetune)(?:_|$)")
GPUS: Final = re.compile(r"_(\d+)gpus?_")
SET_BY_RECIPES: Final = {  # else by the recipe that they begin with
    "train.global_batch_size", "model.tensor_model_parallel_size", "model.pipeline_model_parallel_size"
}  # fmt: skip


def read(text: str, given: Given = NOTHING) -> Settings:
    """Read the recipe that is meant as settings of Megatron-LM; others keep their names."""
    tree = tree_of(text)
    functions = functions_of(tree)
    recipes = [name for name in functions if not name.startswith("_") and RECIPE.match(name)]
    if not recipes:
        raise InputError("Python", ["has no recipe: a function such as llama3_8b_pretrain_config"])
    name = chosen(recipes, given.recipe, "recipes")
    overrides = _Recipe(functions, constants_of(tree)).settings(name)
    for own, usual in RENAMED.items():
        if own in overrides:
            overrides[usual] = overrides.pop(own)
    settings = Settings(megatron_settings({key: _text(value) for key, value in overrides.items()}))
    base = str(overrides.get("recipe", ""))
    if base and (GPUS.search(base) or not overrides.keys() >= SET_BY_RECIPES):
        settings["base_recipe"] = base
    if gpus := GPUS.search(name):
        settings["world_size"] = gpus[1]
    return settings


def _text(value: Any) -> str:
    """Return a value as an override spells it."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(str, value))}]"
    return "" if value is None else str(value)


class _Recipe:
    """Settings of a recipe: those of the recipe that it begins with, and its own assignments."""

    def __init__(self, functions: Mapping[str, ast.FunctionDef], names: Mapping[str, Any]):
        self.functions, self.names = functions, names

    def settings(self, name: str, depth: int = 0) -> dict[str, Any]:
        """Return the settings of a recipe of the file, or of the kind that the name of another one tells."""
        function = self.functions.get(name)
        if function is None or depth > MAX_CALLS:
            recipe = RECIPE.match(name)
            result = dict(DEFAULTS)
            if recipe:
                result |= {NAMED_MODEL: recipe["model"], "recipe": name}
                result |= {"peft_scheme": "lora"} if recipe["kind"] == "peft" else {}
            return result
        result, local = {}, dict(self.names)
        for node in ast.walk(ast.Module(function.body, [])):
            if isinstance(node, ast.If | ast.For | ast.While | ast.Try):
                result["helpers"] = "if"  # which branch is run is not known
        for statement in function.body:
            self._apply(statement, result, local, depth)
        return result

    def _apply(self, statement: ast.stmt, result: dict[str, Any], local: dict[str, Any], depth: int) -> None:
        """Add what a statement sets."""
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if called(value):
                    result |= self._called(value, depth)
                else:
                    local[name] = constant(value, local)
            case ast.Assign(targets=[ast.Attribute() as target], value=value):
                path = ast.unparse(target).partition(".")[2]
                self._set(path, value, result, local)
            case ast.Expr(value=ast.Call() as call):
                self._helper(call, result)
            case ast.Return(value=ast.Call() as call):
                result |= self._called(call, depth)
            case _:
                pass

    def _called(self, node: ast.expr, depth: int) -> dict[str, Any]:
        """Return the settings of a call: of a recipe, or of a function that changes one."""
        assert isinstance(node, ast.Call)
        result: dict[str, Any] = {}
        inner = next((argument for argument in node.args if called(argument)), None)
        if inner is not None:
            result = self._called(inner, depth + 1)
            for argument in node.args:
                if isinstance(argument, ast.Constant) and "global_batch_size" in called(node):
                    result["train.global_batch_size"] = argument.value
        elif RECIPE.match(called(node)) or called(node) in self.functions:
            result = self.settings(called(node), depth + 1)
        elif called(node).endswith("_common"):  # _pretrain_common and its like
            result = dict(DEFAULTS) | ({"peft_scheme": "lora"} if "peft" in called(node) else {})
        return result

    def _set(self, path: str, value: ast.expr, result: dict[str, Any], local: dict[str, Any]) -> None:
        """Set a field, or the fields that a call of a class sets."""
        if path == "mixed_precision":
            argument = constant(value.args[0], local) if isinstance(value, ast.Call) and value.args else ""
            preset = PRECISIONS.get(str(argument), str(argument) or called(value))
            result[path] = preset if isinstance(value, ast.Call) else constant(value, local)
        elif path == "model" and isinstance(value, ast.Call):
            literals = [node.value for node in ast.walk(value) if isinstance(node, ast.Constant)]
            result[NAMED_MODEL] = next((text for text in literals if isinstance(text, str)), "")
        elif isinstance(value, ast.Call):
            fields = {word.arg: constant(word.value, local) for word in value.keywords if word.arg}
            result |= {f"{path}.{name}": entry for name, entry in fields.items()}
        elif path != "env_vars":
            result[path] = constant(value, local)
            if path == "comm_overlap.tp_comm_overlap_cfg" and result[path]:
                result.setdefault("comm_overlap.tp_comm_overlap", True)

    def _helper(self, call: ast.Call, result: dict[str, Any]) -> None:
        """Add what a function sets that changes the configuration; one that is not known is named."""
        name = called(call)
        if name.endswith("benchmark_common"):
            result |= OF_BENCHMARKS
        elif name in self.functions:
            inner: dict[str, Any] = {}
            for statement in self.functions[name].body:
                self._apply(statement, inner, dict(self.names), MAX_CALLS)
            result |= inner
        elif name not in HARMLESS:
            result["helpers"] = f"{result['helpers']} {name}" if "helpers" in result else name
