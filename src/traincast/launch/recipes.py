"""Megatron-Bridge's recipes: functions that change a configuration, read without being run."""

import ast
import re
from collections.abc import Mapping
from typing import Any, Final

from traincast.core.errors import InputError
from traincast.launch.checkpoints import NAMED_MODEL
from traincast.launch.given import NOTHING, Given, chosen
from traincast.launch.megatron_bridge import megatron_settings
from traincast.launch.python_program import CLASS, Program
from traincast.launch.python_source import called, tree_of
from traincast.launch.settings import Settings, dotted, nested

PRECISIONS: Final[Mapping[str, str]] = {  # perf_recipes/_common.py, _perf_precision
    "bf16": "bf16_mixed", "fp8_mx": "bf16_with_mxfp8_mixed", "nvfp4": "bf16_with_nvfp4_mixed",
    "fp8_cs": "bf16_with_fp8_current_scaling_mixed", "fp8_ds": "bf16_with_fp8_delayed_scaling_mixed",
    "fp8_sc": "bf16_with_fp8_subchannel_scaling_mixed",
}  # fmt: skip
# What recipes begin with (recipes/common.py, _pretrain_common).
DEFAULTS: Final[Mapping[str, Any]] = {
    f"mixed_precision.{CLASS}": "bf16_mixed",
    "ddp.use_distributed_optimizer": True, "ddp.overlap_grad_reduce": True,
    "ddp.overlap_param_gather": True, "ddp.grad_reduce_in_fp32": True,
}  # fmt: skip
DTYPES: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
CONTAINER: Final = "ConfigContainer"
TEXT: Final = "()"  # key of the text that a call is given
RENAMED: Final = {
    "ddp.use_megatron_fsdp": "dist.use_megatron_fsdp",
    "mixed_precision.grad_reduce_in_fp32": "ddp.grad_reduce_in_fp32",
    **{f"comm_overlap.{name}": f"ddp.{name}" for name in ("overlap_grad_reduce", "overlap_param_gather")},
}
PARTS: Final = {  # functions that set a field of a part of a recipe, their first argument, to the second
    "apply_flex_dispatcher_backend": "moe_flex_dispatcher_backend",
    "set_cuda_graph_modules": "cuda_graph_modules",
    "set_deepseek_v3_pipeline_model_parallel_layout": "pipeline_model_parallel_layout",
}
HARMLESS: Final = ("_enable_overlap_param_gather_with_optimizer_step", "apply_determinism_overrides")
RECIPE: Final = re.compile(r"^(?P<model>\w+?)_(?P<kind>pretrain|sft|peft|finetune)(?:_|$)")
GPUS: Final = re.compile(r"_(\d+)gpus?_")
SET_BY_RECIPES: Final = {  # else by the recipe that they begin with
    "train.global_batch_size", "model.tensor_model_parallel_size", "model.pipeline_model_parallel_size"
}  # fmt: skip


def read(text: str, given: Given = NOTHING) -> Settings:
    """Read the recipe that is meant as settings of Megatron-LM; others keep their names."""
    program = _Recipes(tree_of(text), given.variables)
    recipes = [name for name in program.functions if not name.startswith("_") and RECIPE.match(name)]
    if not recipes:
        raise InputError("Python", ["has no recipe: a function such as llama3_8b_pretrain_config"])
    name = chosen(recipes, given.recipe, "recipes")
    recipe = program.call(name)
    built = dotted(recipe) if isinstance(recipe, dict) else {}
    if preset := built.get(f"mixed_precision.{TEXT}") or built.get(f"mixed_precision.{CLASS}"):
        built["mixed_precision"] = PRECISIONS.get(str(preset), preset)
    overrides = {path: value for path, value in built.items() if path.rpartition(".")[2] not in (CLASS, TEXT)}
    overrides |= {  # what another function returns, which is not known
        path.removesuffix(f".{CLASS}"): f"{value}()"
        for path, value in built.items()
        if path.count(".") > 1 and path.endswith(f".{CLASS}") and not str(value)[:1].isupper()
    }
    overrides.pop("env_vars", None)
    for own, usual in RENAMED.items():
        if own in overrides:
            overrides[usual] = overrides.pop(own)
    helpers = [overrides.pop(path) for path in [*overrides] if path.rpartition(".")[2] == "helpers"]
    settings = Settings(megatron_settings({key: _text(value) for key, value in overrides.items()}))
    settings |= {"helpers": ", ".join(helpers)} if helpers else {}
    if settings.is_on("recompute_modules"):  # as the recipe that this one begins with
        settings.setdefault("recompute_granularity", "selective")
    base = str(overrides.get("recipe", ""))
    if base and (GPUS.search(base) or not overrides.keys() >= SET_BY_RECIPES):
        settings["base_recipe"] = base
    if gpus := GPUS.search(name):
        settings["world_size"] = gpus[1]
    return settings


def _text(value: Any) -> str:
    """Return a value as an override spells it; types of PyTorch have the names of Megatron-LM's arguments."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(str, value))}]"
    return "" if value is None else DTYPES.get(str(value), str(value))


class _Recipes(Program):
    """Recipes of a file, each of which begins with another one of the file or of Megatron-Bridge."""

    doubt, follows_calls = "helpers", True

    def is_recipe(self, built: Any) -> bool:
        """Return whether a value is a recipe."""
        return isinstance(built, dict) and built.get(CLASS) == CONTAINER

    def made(self, node: ast.Call, given: dict[str, Any], names: Mapping[str, Any], depth: int) -> Any:
        """Return what a call of Megatron-Bridge makes: a recipe, one that is changed, or a configuration."""
        name, words = called(node), [self.value(word, names, depth) for word in node.args]
        if recipe := next(filter(self.is_recipe, words), None):
            self._change(recipe, name, words)
            return recipe
        if words and isinstance(words[0], dict) and CLASS not in words[0]:  # a part of a recipe
            if name in PARTS and len(words) > 1:
                words[0][PARTS[name]] = words[1]
            else:
                _name_helper(words[0], name)
        if begun := RECIPE.match(name):
            peft = begun["kind"] == "peft"
            return _recipe({NAMED_MODEL: begun["model"], "recipe": name}, peft)
        if name.endswith("_common"):  # _pretrain_common and its like
            return _recipe({}, "peft" in name)
        literals = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
        texts = (text for text in (*words[:1], *literals) if isinstance(text, str))
        return {CLASS: name, TEXT: next(texts, ""), **given}

    def _change(self, recipe: dict[str, Any], name: str, words: list[Any]) -> None:
        """Change a recipe as a function of Megatron-Bridge does; one that is not known is named."""
        batch = next((word for word in words if not isinstance(word, dict)), None)
        if name.endswith("benchmark_common"):
            super().set(["ddp", "grad_reduce_in_fp32"], False, recipe)
        elif "global_batch_size" in name and batch is not None:
            super().set(["train", "global_batch_size"], batch, recipe)
        elif name not in HARMLESS:
            _name_helper(recipe, name)

    def set(self, path: list[str], value: Any, names: dict[str, Any]) -> None:
        """Set a field of a recipe."""
        if path[1:] == ["model"] and isinstance(value, dict) and TEXT in value:
            path, value = [path[0], NAMED_MODEL], value[TEXT]
        super().set(path, value, names)
        if path[1:] == ["comm_overlap", "tp_comm_overlap_cfg"] and value:
            self.get(path[:-1], names).setdefault("tp_comm_overlap", True)


def _name_helper(part: dict[str, Any], name: str) -> None:
    """Name a function that changes a part of a recipe, and that is not known."""
    part["helpers"] = f"{part['helpers']}, {name}" if "helpers" in part else name


def _recipe(settings: Mapping[str, Any], peft: bool) -> dict[str, Any]:
    """Return a recipe of Megatron-Bridge that a file does not hold."""
    return {CLASS: CONTAINER, **nested(DEFAULTS), **settings} | ({"peft_scheme": "lora"} if peft else {})
