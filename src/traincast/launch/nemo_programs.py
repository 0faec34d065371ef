"""NeMo 2's programs: recipes that functions build of `run.Config` and `run.Partial`, read without being run.

A function's statements are followed as far as their conditions are known. Factories of NeMo itself, such as
``llm.llama3_8b.pretrain_recipe``, begin with the values of `tables/dialects.toml`; others are refused.
"""

import ast
import re
from collections.abc import Mapping
from typing import Any, Final

from traincast.core.errors import InputError
from traincast.launch.checkpoints import NAMED_MODEL
from traincast.launch.dialects import TABLE
from traincast.launch.given import NOTHING, Given, chosen
from traincast.launch.megatron_bridge import PRESETS
from traincast.launch.python_source import (
    MAX_CALLS,
    called,
    constant,
    constants_of,
    defaults_of,
    functions_of,
    tree_of,
)
from traincast.launch.settings import Settings, nested

CLASS: Final = "class"  # key of what a configuration is of
MODEL_CLASS: Final = re.compile(r"^(\w*?)Config(\w*)$")  # Llama3Config8B
RECIPE: Final = re.compile(r"(?:^|\.)(\w+)\.(pretrain_recipe|finetune_recipe)$")
BUILDERS: Final = ("Config", "Partial", "Experiment")
UNKNOWN: Final = "condition"  # setting that says that a branch is not decided
# Functions of recipes/precision/mixed_precision.py -> settings of Megatron-LM.
PLUGINS: Final[Mapping[str, Mapping[str, Any]]] = {
    **PRESETS,
    "MegatronMixedPrecision": PRESETS["bf16_mixed"],
    "bf16_with_fp8_mixed": PRESETS["bf16_with_fp8_delayed_scaling_mixed"],
}
CALLBACKS: Final = {"DeepEPCallback": {"moe_token_dispatcher_type": "flex", "moe_enable_deepep": True}}
OVERLAP: Final = "MegatronCommOverlapCallback"
PREFIXES: Final = ("trainer.strategy.ddp.", "trainer.strategy.", "model.config.", "optim.config.", "data.")
OF_TRAINER: Final = {"trainer.num_nodes": "nnodes", "trainer.devices": "nproc_per_node"}


def read(text: str, given: Given = NOTHING) -> Settings:
    """Return the settings of the recipe that is meant as Megatron-LM's; others keep their names."""
    tree = tree_of(text)
    program = _Program(functions_of(tree), {**constants_of(tree), **given.variables})
    recipes: dict[str, Any] = {}
    for name in program.functions:
        try:
            recipes[name] = program.call(name, None, 0)
        except InputError as error:
            recipes[name] = error
    names = dict(program.names)
    program.run(_main(tree), names, 0)
    recipes["the program itself"] = next((value for value in names.values() if _is_recipe(value)), None)
    recipes = {
        name: built for name, built in recipes.items() if isinstance(built, InputError) or _is_recipe(built)
    }
    begun_by_others = {
        called(node) for name in recipes if name in program.functions
        for node in ast.walk(program.functions[name]) if called(node) != name
    }  # fmt: skip
    kept = {name: built for name, built in recipes.items() if name not in begun_by_others} or recipes
    if not kept:
        raise InputError(
            "Python", ["builds no recipe that is known: of run.Partial, or of a factory of NeMo"]
        )
    recipe = kept[chosen(kept, given.recipe, "recipes")]
    if isinstance(recipe, InputError):
        raise recipe
    return _flat(recipe)


def _is_recipe(built: Any) -> bool:
    """Return whether a value is a recipe."""
    return isinstance(built, dict) and "trainer" in built


def _main(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements that a program itself runs."""
    body: list[ast.stmt] = []
    for node in tree.body:
        is_main = isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        body += node.body if isinstance(node, ast.If) and is_main else [node]
    return [node for node in body if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import)]


class _Program:
    """Functions of a program, and what they build."""

    def __init__(self, functions: Mapping[str, ast.FunctionDef], names: Mapping[str, Any]):
        self.functions, self.names = functions, names

    def call(
        self, name: str, node: ast.Call | None, depth: int, local: Mapping[str, Any] | None = None
    ) -> Any:
        """Return what a function of the program returns, with the arguments of a call or its defaults."""
        function, names = self.functions[name], dict(self.names)
        if depth > MAX_CALLS:
            return None
        for argument, default in defaults_of(function.args).items():
            names[argument] = None if default is None else self.value(default, self.names, depth)
        if node is not None:
            named = [*function.args.args, *function.args.kwonlyargs]
            names |= {
                argument.arg: self.value(value, local or {}, depth)
                for argument, value in zip(named, node.args, strict=False)
            }
            names |= {
                word.arg: self.value(word.value, local or {}, depth) for word in node.keywords if word.arg
            }
        result = self.run(function.body, names, depth)
        return result if result is not None else next((v for v in names.values() if _is_recipe(v)), None)

    def run(self, body: list[ast.stmt], names: dict[str, Any], depth: int) -> Any:
        """Follow statements; return the value of the first `return` that is reached."""
        for statement in body:
            match statement:
                case ast.Return(value=ast.expr() as value):
                    return self.value(value, names, depth)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    names[name] = self.value(value, names, depth)
                case ast.Assign(targets=[ast.Attribute() as target], value=value):
                    self.set(ast.unparse(target).split("."), self.value(value, names, depth), names)
                case ast.Expr(
                    value=ast.Call(func=ast.Attribute(value=owner, attr="append" | "extend")) as call
                ):
                    added = self.value(call.args[0], names, depth) if call.args else []
                    path = ast.unparse(owner).split(".")
                    old = self.get(path, names)
                    old = old if isinstance(old, list) else []
                    self.set(path, [*old, *(added if isinstance(added, list) else [added])], names)
                case ast.If():
                    decided = self.condition(statement.test, names)
                    if decided is None:
                        self.doubt(ast.unparse(statement.test), names)
                        continue
                    done = self.run(statement.body if decided else statement.orelse, names, depth)
                    if done is not None:
                        return done
                case _:
                    pass
        return None

    def doubt(self, text: str, names: Mapping[str, Any]) -> None:
        """Note in the recipes that are being built that a branch is not decided."""
        for value in names.values():
            if isinstance(value, dict) and "trainer" in value:
                value[UNKNOWN] = text[:80]

    def condition(self, test: ast.expr, names: Mapping[str, Any]) -> bool | None:
        """Return whether a condition holds; None if it is not known."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                decided = self.condition(inner, names)
                return None if decided is None else not decided
            case ast.BoolOp(op=sign, values=values):
                parts = [self.condition(value, names) for value in values]
                decisive = isinstance(sign, ast.Or)
                if decisive in parts:
                    return decisive
                return None if None in parts else not decisive
            case ast.Compare(left=left, ops=[sign], comparators=[right]):
                first, second = (self.value(node, names, MAX_CALLS) for node in (left, right))
                if any(isinstance(value, _Unread) for value in (first, second)):
                    return None
                equal = isinstance(sign, ast.Eq | ast.Is)
                if equal or isinstance(sign, ast.NotEq | ast.IsNot):
                    return (first == second) is equal
                if isinstance(sign, ast.In) and isinstance(second, list):
                    return first in second
                return None
            case ast.Name() | ast.Attribute() | ast.Constant():
                value = self.value(test, names, MAX_CALLS)
                return None if isinstance(value, _Unread) else bool(value)
        return None

    def value(self, node: ast.expr, names: Mapping[str, Any], depth: int) -> Any:
        """Return the value of an expression: a configuration as a mapping, a literal, or its source."""
        match node:
            case ast.Name(id=name):
                return names.get(name, self.names.get(name, _Unread(name)))
            case ast.Attribute():
                path = ast.unparse(node).split(".")
                found = self.get(path, names) if path[0] in names else _Unread(path[-1])
                return path[-1] if isinstance(found, _Unread) and path[0] == "torch" else found
            case ast.List(elts=elements):
                return [self.value(element, names, depth) for element in elements]
            case ast.Call(func=ast.Attribute(value=owner, attr="lower")):
                text = self.value(owner, names, depth)
                return text.lower() if isinstance(text, str) else text
            case ast.Call():
                return self.built(node, names, depth)
            case ast.IfExp(test=test, body=body, orelse=other):
                decided = self.condition(test, names)
                return (
                    _Unread("if") if decided is None else self.value(body if decided else other, names, depth)
                )
        return constant(node, names)

    def built(self, node: ast.Call, names: Mapping[str, Any], depth: int) -> Any:
        """Return what a call builds."""
        name = called(node)
        given = {word.arg: self.value(word.value, names, depth) for word in node.keywords if word.arg}
        if name in BUILDERS and node.args:
            of = node.args[0]
            title = self.value(of.slice, names, depth) if isinstance(of, ast.Subscript) else ast.unparse(of)
            return {CLASS: str(title).rpartition(".")[2], **given}
        if name in self.functions and isinstance(node.func, ast.Name):
            return self.call(name, node, depth + 1, names)
        if factory := RECIPE.search(ast.unparse(node.func)):
            return _factory(f"{factory[1]}.{factory[2]}", given)
        if name == "default_finetune_recipe":
            words = [self.value(word, names, depth) for word in node.args]
            nodes = dict(zip(("num_nodes", "num_gpus_per_node"), words[4:6], strict=False))
            packed = {UNKNOWN: "packed_sequence"} if words[6:7] not in ([], [False]) else {}
            return (
                _factory("default.finetune_recipe", nodes) | {"model": words[0], NAMED_MODEL: None} | packed
            )
        if name.endswith("_recipe"):
            problem = f"{ast.unparse(node.func)}: the defaults of this factory are not known"
            raise InputError("Python", [f"{problem}; give the file that defines it"])
        recipe = next(
            (names.get(ast.unparse(word)) for word in node.args if _is_recipe(names.get(ast.unparse(word)))),
            None,
        )
        if recipe is not None:  # it may change the recipe
            recipe[UNKNOWN] = name
            return recipe
        return {CLASS: name, **given}

    def get(self, path: list[str], names: Mapping[str, Any]) -> Any:
        """Return the value of a path of attributes."""
        value: Any = names
        for part in path:
            value = value.get(part, _Unread(part)) if isinstance(value, Mapping) else _Unread(part)
        return value

    def set(self, path: list[str], value: Any, names: dict[str, Any]) -> None:
        """Set the value of a path of attributes."""
        owner: dict[str, Any] = names
        for part in path[:-1]:
            inner = owner.get(part)
            owner[part] = owner = inner if isinstance(inner, dict) else {}
        owner[path[-1]] = value


class _Unread(str):
    """A name without a known value."""

    __slots__ = ()


def _factory(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe of NeMo with its defaults."""
    factories = TABLE["nemo2"]["factories"]
    if name not in factories:
        known = ", ".join(factories)
        problem = f"llm.{name}: the defaults of this factory are not known; give its own file, or use {known}"
        raise InputError("Python", [problem])
    usual = {
        "model.config": {}, "data": {}, "optim.config": {}, NAMED_MODEL: name.partition(".")[0],
        f"trainer.plugins.{CLASS}": "bf16_mixed", "trainer.strategy.ddp.overlap_grad_reduce": True,
        "trainer.strategy.ddp.grad_reduce_in_fp32": True,
    }  # fmt: skip
    recipe = nested({**usual, **factories[name]})
    recipe["trainer"] |= {"num_nodes": given.get("num_nodes", recipe["trainer"].get("num_nodes", 1))}
    recipe["trainer"] |= {"devices": given.get("num_gpus_per_node", recipe["trainer"].get("devices", 8))}
    if given.get("performance_mode"):
        recipe[UNKNOWN] = "performance_mode"
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
            settings |= _flat(value, f"{path}.")
        elif name != CLASS and value is not None:
            group = next((group for group in PREFIXES if path.startswith(group)), "")
            setting = OF_TRAINER.get(path, path.removeprefix(group))
            settings[setting] = f"${value}" if isinstance(value, _Unread) else value
    return settings
