"""Interpreter of Python programs that build recipes, configurations of a training: parsed, never run."""

import ast
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from traincast.core.errors import InputError
from traincast.launch.python_source import MAX_CALLS, constant, constants_of, defaults_of, functions_of

CLASS: Final = "class"  # key of what a configuration is of


class Unread(str):
    """A name without a known value."""

    __slots__ = ()


class Program(ABC):
    """Functions of a program, and the recipes that they build, as nested mappings.

    Statements are followed as far as their conditions are known; a recipe names, as the setting `doubt`, what
    of it is not.
    """

    doubt: str
    follows_calls = False  # whether calls whose values are dropped are followed

    def __init__(self, tree: ast.Module, variables: Mapping[str, Any]):
        self.functions, self.names = functions_of(tree), {**constants_of(tree), **variables}

    @abstractmethod
    def is_recipe(self, built: Any) -> bool:
        """Return whether a value is a recipe."""

    @abstractmethod
    def made(self, node: ast.Call, given: dict[str, Any], names: Mapping[str, Any], depth: int) -> Any:
        """Return what a call of another program's function makes, `given` its keyword arguments."""

    def call(
        self, name: str, node: ast.Call | None = None, depth: int = 0, local: Mapping[str, Any] | None = None
    ) -> Any:
        """Return what a function of the program returns, with the arguments of a call or its defaults."""
        function, names = self.functions[name], dict(self.names)
        if depth > MAX_CALLS:
            return Unread(name)
        for argument, default in defaults_of(function.args).items():
            names[argument] = None if default is None else self.value(default, self.names, depth)
        if node is not None:
            named = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]
            words = [
                *zip(named, node.args, strict=False),
                *((word.arg, word.value) for word in node.keywords),
            ]
            names |= {word: self.value(value, local or {}, depth) for word, value in words if word}
        result = self.run(function.body, names, depth)
        return result if result is not None else next(filter(self.is_recipe, names.values()), None)

    def run(self, body: list[ast.stmt], names: dict[str, Any], depth: int = 0) -> Any:
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
                case ast.Expr(value=ast.Call() as call) if self.follows_calls:
                    self.value(call, names, depth)
                case ast.If():
                    decided = self.condition(statement.test, names)
                    if decided is None:
                        self._doubt(ast.unparse(statement.test), names)
                        continue
                    done = self.run(statement.body if decided else statement.orelse, names, depth)
                    if done is not None:
                        return done
                case ast.For() | ast.While() | ast.Try() if _sets_attributes(statement):
                    self._doubt(type(statement).__name__.lower(), names)
                case _:
                    pass
        return None

    def _doubt(self, text: str, names: Mapping[str, Any]) -> None:
        """Note in the recipes that are being built what is not followed."""
        for recipe in filter(self.is_recipe, names.values()):
            recipe[self.doubt] = text[:80]

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
                if any(isinstance(value, Unread) for value in (first, second)):
                    return None
                equal = isinstance(sign, ast.Eq | ast.Is)
                if equal or isinstance(sign, ast.NotEq | ast.IsNot):
                    return (first == second) is equal
                if isinstance(sign, ast.In) and isinstance(second, list):
                    return first in second
                return None
            case ast.Name() | ast.Attribute() | ast.Constant():
                value = self.value(test, names, MAX_CALLS)
                return None if isinstance(value, Unread) else bool(value)
        return None

    def value(self, node: ast.expr, names: Mapping[str, Any], depth: int) -> Any:
        """Return the value of an expression: a configuration as a mapping, a literal, or its source."""
        match node:
            case ast.Name(id=name):
                return names.get(name, self.names.get(name, Unread(name)))
            case ast.Attribute():
                path = ast.unparse(node).split(".")
                found = self.get(path, names) if path[0] in names else Unread(path[-1])
                return path[-1] if isinstance(found, Unread) and path[0] == "torch" else found
            case ast.List(elts=elements):
                return [self.value(element, names, depth) for element in elements]
            case ast.Call(func=ast.Attribute(value=owner, attr="lower")):
                text = self.value(owner, names, depth)
                return text.lower() if isinstance(text, str) else text
            case ast.Call(func=ast.Name(id=name)) if name in self.functions:
                return self.call(name, node, depth + 1, names)
            case ast.Call():
                given = {word.arg: self.value(word.value, names, depth) for word in node.keywords if word.arg}
                return self.made(node, given, names, depth)
            case ast.IfExp(test=test, body=body, orelse=other):
                decided = self.condition(test, names)
                chosen = body if decided else other
                return Unread("if") if decided is None else self.value(chosen, names, depth)
        return constant(node, names)

    def get(self, path: list[str], names: Mapping[str, Any]) -> Any:
        """Return the value of a path of attributes."""
        value: Any = names
        for part in path:
            value = value.get(part, Unread(part)) if isinstance(value, Mapping) else Unread(part)
        return value

    def set(self, path: list[str], value: Any, names: dict[str, Any]) -> None:
        """Set the value of a path of attributes."""
        owner: dict[str, Any] = names
        for part in path[:-1]:
            inner = owner.get(part)
            owner[part] = owner = inner if isinstance(inner, dict) else {}
        if _holds(value, owner):
            raise InputError("Python", [f"{'.'.join(path)}: a configuration cannot hold itself"])
        owner[path[-1]] = value


def _holds(value: Any, owner: Mapping[str, Any]) -> bool:
    """Return whether a value is a configuration, or holds it."""
    return value is owner or (isinstance(value, dict) and any(_holds(part, owner) for part in value.values()))


def _sets_attributes(statement: ast.stmt) -> bool:
    attributes = (node for node in ast.walk(statement) if isinstance(node, ast.Attribute))
    return any(isinstance(node.ctx, ast.Store) for node in attributes)
