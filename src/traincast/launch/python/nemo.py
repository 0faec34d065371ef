"""NeMo 2's programs: recipes that functions build of `run.Config` and `run.Partial`, read without being run.

A function's statements are followed as far as their conditions are known. Factories of NeMo itself, such as
``llm.llama3_8b.pretrain_recipe``, begin with the values of `tables/dialects.toml`; others are refused.
"""

import ast
import re
from collections.abc import Mapping
from typing import Any, Final

from traincast.core import InputError
from traincast.launch.frameworks.checkpoints import NAMED_MODEL
from traincast.launch.frameworks.dialects import TABLE
from traincast.launch.frameworks.megatron_bridge import PRESETS
from traincast.launch.python.program import CLASS, REST, PythonProgram, Unread
from traincast.launch.python.source import called_name, main_statements, tree_of
from traincast.launch.settings.given import NOTHING, Given, choose_run
from traincast.launch.settings.settings import Settings, nested

MODEL_CLASS: Final = re.compile(r"^(\w*?)Config(\w*)$")  # Llama3Config8B
RECIPE: Final = re.compile(r"(?:^|\.)(\w+)\.(pretrain_recipe|finetune_recipe)$")
BUILDERS: Final = ("Config", "Partial", "Experiment")
UNKNOWN: Final = "condition"  # setting that says that a branch is not decided
# Functions of recipes/precision/mixed_precision.py -> settings of Megatron-LM.
PLUGINS: Final[Mapping[str, Mapping[str, object]]] = {
    **PRESETS,
    "MegatronMixedPrecision": PRESETS["bf16_mixed"],
    "bf16_with_fp8_mixed": PRESETS["bf16_with_fp8_delayed_scaling_mixed"],
}
CALLBACKS: Final = {"DeepEPCallback": {"moe_token_dispatcher_type": "flex", "moe_enable_deepep": True}}
OVERLAP: Final = "MegatronCommOverlapCallback"
PREFIXES: Final = ("trainer.strategy.ddp.", "trainer.strategy.", "model.config.", "optim.config.", "data.")
OF_TRAINER: Final = {"trainer.num_nodes": "nnodes", "trainer.devices": "nproc_per_node"}


def read_recipe(text: str, given: Given = NOTHING) -> Settings:
    """Return the settings of the recipe that is meant as Megatron-LM's; others keep their names."""
    tree = tree_of(text)
    program = _NemoProgram(tree, given.variables, given.folder)
    recipes: dict[str, Any] = {}
    for name in program.functions:
        try:
            recipes[name] = program.call(name)
        except InputError as error:
            recipes[name] = error
    names = dict(program.names)
    program.run(main_statements(tree), names)
    recipes["the program itself"] = next(filter(program.is_recipe, names.values()), None)
    known = ((n, r) for n, r in recipes.items() if isinstance(r, InputError) or program.is_recipe(r))
    recipes = dict(known)
    begun_by_others = {
        called_name(node)
        for name in recipes
        if name in program.functions
        for node in ast.walk(program.functions[name])
        if called_name(node) != name
    }
    kept = {name: built for name, built in recipes.items() if name not in begun_by_others} or recipes
    if not kept:
        raise InputError("Python", ["builds no recipe that is known: of run.Partial or a factory of NeMo"])
    recipe = kept[choose_run(kept, given.recipe, "recipes")]
    if isinstance(recipe, InputError):
        raise recipe
    return _flat(recipe)


class _NemoProgram(PythonProgram):
    """A program of NeMo, whose recipes have a trainer."""

    doubt = UNKNOWN

    def is_recipe(self, built: object) -> bool:
        """Return whether a value is a recipe."""
        return isinstance(built, dict) and "trainer" in built

    def follows(self, name: str, words: list[object]) -> bool:
        """Return whether a function of another file is followed: all but presets of precision."""
        return name not in PLUGINS

    def evaluate_call(
        self, node: ast.Call, words: list[Any], given: dict[str, object], names: Mapping[str, Any]
    ) -> object:
        """Return what a call of NeMo makes: a configuration, or the recipe of a factory that is known."""
        name = called_name(node)
        if name in BUILDERS and node.args:
            of = node.args[0]
            title = self.value(of.slice, names, 0) if isinstance(of, ast.Subscript) else ast.unparse(of)
            return {CLASS: str(title).rpartition(".")[2], **given}
        if factory := RECIPE.search(ast.unparse(node.func)):
            return _factory(f"{factory[1]}.{factory[2]}", given)
        if name == "default_finetune_recipe":
            nodes = dict(zip(("num_nodes", "num_gpus_per_node"), words[4:6], strict=False))
            packed = {UNKNOWN: "packed_sequence"} if words[6:7] not in ([], [False]) else {}
            tuned = _factory("default.finetune_recipe", nodes)
            return tuned | {"model": words[0], NAMED_MODEL: None} | packed
        if name.endswith("_recipe"):
            problem = f"{ast.unparse(node.func)}: the defaults of this factory are not known"
            raise InputError("Python", [f"{problem}; give the file that defines it"])
        passed = (names.get(ast.unparse(word)) for word in node.args)
        if recipe := next(filter(self.is_recipe, passed), None):  # it may change the recipe
            recipe[UNKNOWN] = name
            return recipe
        return {CLASS: name, **given}


def _factory(name: str, given: Mapping[str, object]) -> dict[str, object]:
    """Return a recipe of NeMo with its defaults."""
    factories = TABLE["nemo2"]["factories"]
    if name not in factories:
        known = ", ".join(factories)
        problem = f"llm.{name}: the defaults of this factory are not known; give its own file, or use {known}"
        raise InputError("Python", [problem])
    usual = {
        "model.config": {},
        "data": {},
        "optim.config": {},
        NAMED_MODEL: name.partition(".")[0],
        f"trainer.plugins.{CLASS}": "bf16_mixed",
        "trainer.strategy.ddp.overlap_grad_reduce": True,
        "trainer.strategy.ddp.grad_reduce_in_fp32": True,
    }
    recipe = nested({**usual, **factories[name]})
    recipe["trainer"] |= {"num_nodes": given.get("num_nodes", recipe["trainer"].get("num_nodes", 1))}
    recipe["trainer"] |= {"devices": given.get("num_gpus_per_node", recipe["trainer"].get("devices", 8))}
    if unknown := next((name for name in ("performance_mode", REST) if given.get(name)), None):
        recipe[UNKNOWN] = unknown
    return recipe


def _flat(recipe: Mapping[str, Any], prefix: str = "") -> Settings:
    """Return the settings of a recipe: paths, or Megatron-LM's names where a group has them."""
    settings = Settings()
    for name, value in recipe.items():
        path = f"{prefix}{name}"
        if path == "trainer.plugins" and isinstance(value, dict):
            known = PLUGINS.get(str(value.get(CLASS)), {"plugins": value.get(CLASS)})
            settings |= known
            settings |= {"fp16": True, "bf16": False} if str(value.get("precision")).startswith("16") else {}
            own = {name: entry for name, entry in value.items() if name not in (CLASS, "precision")}
            settings |= _flat(own, "trainer.strategy.ddp.")
        elif path == "trainer.callbacks" and isinstance(value, list):
            for callback in (entry for entry in value if isinstance(entry, dict)):
                settings |= CALLBACKS.get(str(callback.get(CLASS)), {})
                if callback.get(CLASS) == OVERLAP:
                    settings |= {k: v for k, v in callback.items() if k != CLASS}
        elif path == "peft" and isinstance(value, dict):
            settings |= {"peft_scheme": str(value.get(CLASS, "lora")).lower()}
            settings |= {f"peft.{k}": v for k, v in value.items() if k != CLASS}
        elif path == f"model.config.{CLASS}" and (match := MODEL_CLASS.match(str(value))):
            settings[NAMED_MODEL] = match[1] + match[2]
        elif isinstance(value, dict):
            if path == "trainer" and str(value.get(CLASS))[:1].islower():
                settings[UNKNOWN] = value[CLASS]
            settings |= _flat(value, f"{path}.")
        elif name != CLASS and value is not None:
            group = next((group for group in PREFIXES if path.startswith(group)), "")
            setting = OF_TRAINER.get(path, path.removeprefix(group))
            settings[setting] = f"${value}" if isinstance(value, Unread) else value
    return settings
