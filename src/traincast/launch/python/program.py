"""Interpreter of Python programs that build recipes, configurations of a training: parsed, never run."""

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from traincast.core import InputError
from traincast.launch.python.source import (
    MAX_CALLS,
    called_name,
    constant,
    constants_of,
    defaults_of,
    functions_of,
    imports_of,
    module_file,
    tree_of_file,
)
from traincast.launch.settings.settings import ARITHMETIC

MAX_ITEMS: Final = 500  # of a list that is joined or repeated
MAX_NESTED: Final = 50  # configurations and lists in each other
MAX_PARTS: Final = 20_000  # of a value
MAX_STEPS: Final = 200_000  # statements and expressions that are followed
NONE: Final[Mapping[str, object]] = {}
CLASS: Final = "class"  # key of what a configuration is of
REST: Final = "**"  # key of a mapping that is passed or copied whole, and is not known


class Unread(str):
    """A name without a known value."""

    __slots__ = ()


class PythonProgram(ABC):
    """Functions of a program, and the recipes that they build, as nested mappings.

    Statements are followed as far as their conditions are known; a recipe names, as the setting `doubt`, what
    of it is not.
    """

    doubt: str
    follows_calls = False  # whether calls whose values are dropped are followed

    def __init__(self, tree: ast.Module, variables: Mapping[str, object], folder: Path | None = None):
        self.functions = functions_of(tree)
        self.names = {**constants_of(tree), **variables}
        self.imports = imports_of(tree)
        self.folder = folder
        self.others: dict[Path, Self] = {}  # files that this one and those of it import from
        self.open: dict[str, set[str]] = {}  # what is not followed -> settings that it may set
        self.steps = [0]  # statements and expressions that were followed, in all files

    @abstractmethod
    def is_recipe(self, built: object) -> bool:
        """Return whether a value is a recipe."""

    def follows(self, name: str, words: list[object]) -> bool:
        """Return whether a function of another file is followed: one that may change a recipe."""
        return any(map(self.is_recipe, words))

    def home(self, named: ast.expr, depth: int = 0) -> tuple[Self, str] | None:
        """Return the file that defines a name, and its name there; None where that is not on disk."""
        self._count()
        first, *rest = ast.unparse(named).split(".")
        if (first in self.functions or first in self.names) and not rest:
            return self, first
        if self.folder is None or depth > MAX_CALLS:
            return None
        all_of = [(module, first) for star, (module, _) in self.imports.items() if star[0] == "*"]
        for module, name in [self.imports[first]] if first in self.imports else all_of:
            for part in rest:
                module = f"{module}.{name}" if module.strip(".") else module + name
                name = part
            file = module_file(module, self.folder)
            if file is not None and file not in self.others:
                other = self.others[file] = type(self)(tree_of_file(file), {}, file.parent)
                other.others = self.others
                other.open = self.open
                other.steps = self.steps
            if file is not None and (found := self.others[file].home(ast.Name(name), depth + 1)):
                return found
        return None

    @abstractmethod
    def evaluate_call(
        self, node: ast.Call, words: list[object], given: dict[str, object], names: Mapping[str, object]
    ) -> object:
        """Return what a call of another program's function makes; `words` and `given` are its arguments."""

    def call(
        self, name: str, words: Iterable[object] = (), given: Mapping[str, object] = NONE, depth: int = 0
    ) -> Any:
        """Return what a function of the program returns, with arguments or its defaults."""
        function = self.functions[name]
        names = dict(self.names)
        if depth > MAX_CALLS:
            return Unread(name)
        for argument, default in defaults_of(function.args).items():
            names[argument] = None if default is None else self.value(default, self.names, depth)
        if REST in given:
            names |= {argument: Unread(argument) for argument in defaults_of(function.args)}
        names |= zip((argument.arg for argument in function.args.args), words, strict=False)
        names |= given
        if further := function.args.kwarg:
            own = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
            names[further.arg] = {name: value for name, value in given.items() if name not in own}
        result = self.run(function.body, names, depth)
        return result if result is not None else next(filter(self.is_recipe, names.values()), None)

    def run(self, body: list[ast.stmt], names: dict[str, object], depth: int = 0) -> object:
        """Follow statements; return the value of the first `return` that is reached."""
        for statement in body:
            self._count()
            match statement:
                case ast.Return(value=ast.expr() as value):
                    return self.value(value, names, depth)
                case ast.Return():
                    return Unread("return")
                case ast.Assign(targets=targets, value=value):
                    made = self.value(value, names, depth)
                    for target in targets:
                        self.assign(target, made, called_name(value) or "if", names, depth)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self.assign(
                        target, self.value(value, names, depth), called_name(value) or "if", names, depth
                    )
                case ast.AugAssign(target=target, op=sign, value=value):
                    old, more = (self.value(part, names, depth) for part in (target, value))
                    made = Unread(ast.unparse(statement))
                    if isinstance(old, list) and isinstance(more, list) and isinstance(sign, ast.Add):
                        made = [*old, *more]
                    elif isinstance(old, int) and isinstance(more, int) and type(sign) in ARITHMETIC:
                        made = ARITHMETIC[type(sign)](old, more) if more else old
                    self.assign(target, made, "", names, depth)
                case ast.With(body=body):
                    if (done := self.run(body, names, depth)) is not None:
                        return done
                case ast.Expr(
                    value=ast.Call(func=ast.Attribute(value=owner, attr="append" | "extend")) as call
                ):
                    added = self.value(call.args[0], names, depth) if call.args else []
                    path = ast.unparse(owner).split(".")
                    old = self.get(path, names)
                    old = old if isinstance(old, list) else []
                    self.set_path(path, [*old, *(added if isinstance(added, list) else [added])], names)
                case ast.Expr(value=ast.Call() as call) if self.follows_calls:
                    self.value(call, names, depth)
                case ast.If():
                    decided = self.condition(statement.test, names)
                    if decided is None:
                        self.doubts(ast.unparse(statement.test), statement, names)
                        continue
                    done = self.run(statement.body if decided else statement.orelse, names, depth)
                    if done is not None:
                        return done
                case ast.Try(body=[ast.Assign(targets=[ast.Attribute() as target], value=value)]) if (
                    not isinstance(made := self.value(value, names, depth), Unread)
                ):
                    self.set_path(ast.unparse(target).split("."), made, names)
                case ast.For(target=ast.Name(id=name), iter=every, body=body, orelse=[]) if isinstance(
                    rows := self.value(every, names, depth), list
                ) and not any(isinstance(node, ast.Break | ast.Continue) for node in ast.walk(statement)):
                    for row in rows:
                        names[name] = row
                        if (done := self.run(body, names, depth)) is not None:
                            return done
                case ast.For() | ast.While() | ast.Try() if set_attributes(statement):
                    self.doubts(type(statement).__name__.lower(), statement, names)
                case _:
                    pass
        return None

    def assign(
        self, target: ast.expr, value: Any, made_by: str, names: dict[str, object], depth: int
    ) -> None:
        """Give a name, an attribute, a key of a mapping, or several of them what `made_by` makes."""
        match target:
            case ast.Name(id=name):
                PythonProgram.set_path(self, [name], value, names)
            case ast.Attribute():
                self.set_path(ast.unparse(target).split("."), value, names)
            case ast.Subscript(value=owner, slice=ast.Constant(value=str(key))):
                if isinstance(table := self.value(owner, names, depth), dict):
                    self.set_path(["", key], value, {"": table})
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                is_known = isinstance(value, list) and len(value) == len(targets)
                parts = value if is_known else [Unread(made_by)] * len(targets)
                for part, one in zip(targets, parts, strict=True):
                    self.assign(part, one, made_by, names, depth)

    def doubts(self, text: str, statement: ast.stmt, names: Mapping[str, Any]) -> None:
        """Note in the recipes that are being built that a statement is not followed."""
        for recipe in filter(self.is_recipe, names.values()):
            recipe[self.doubt] = text[:80]

    def condition(self, test: ast.expr, names: Mapping[str, object]) -> bool | None:
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
                if isinstance(sign, ast.In | ast.NotIn) and isinstance(second, list | dict):
                    found = (str(first) if isinstance(second, dict) else first) in second
                    return found is isinstance(sign, ast.In)
                return None
            case ast.Call(func=ast.Name(id="isinstance"), args=[owner, ast.Name(id="str")]):
                value = self.value(owner, names, MAX_CALLS)
                return None if isinstance(value, Unread) else isinstance(value, str)
            case ast.Name() | ast.Attribute() | ast.Constant():
                value = self.value(test, names, MAX_CALLS)
                return None if isinstance(value, Unread) else bool(value)
        return None

    def value(self, node: ast.expr, names: Mapping[str, Any], depth: int) -> Any:
        """Return the value of an expression: a configuration as a mapping, a literal, or its source."""
        self._count()
        match node:
            case ast.Name(id=name):
                home = None if name in names else self.home(node)
                return home[0].names.get(home[1], Unread(name)) if home else names.get(name, Unread(name))
            case ast.Attribute():
                path = ast.unparse(node).split(".")
                found = self.get(path, names) if path[0] in names else Unread(path[-1])
                return path[-1] if isinstance(found, Unread) and path[0] == "torch" else found
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return [self.value(element, names, depth) for element in elements]
            case ast.Call(func=ast.Attribute(value=owner, attr="lower")):
                text = self.value(owner, names, depth)
                return text.lower() if isinstance(text, str) else text
            case ast.Dict(keys=keys, values=values):
                table: dict[str, object] = {}
                for key, entry in zip(keys, values, strict=True):
                    value = self.value(entry, names, depth)
                    if key is not None:
                        table[str(self.value(key, names, depth))] = value
                    else:
                        table |= value if isinstance(value, dict) else {REST: value}
                return table
            case ast.Subscript(value=owner, slice=key):
                rows = self.value(owner, names, depth)
                of = str(self.value(key, names, depth))
                return rows.get(of, Unread(of)) if isinstance(rows, dict) else constant(node, names)
            case ast.BinOp(left=left, op=ast.Add() | ast.Mult() as sign, right=right):
                first, second = (self.value(side, names, depth) for side in (left, right))
                if isinstance(first, list) and isinstance(second, list if isinstance(sign, ast.Add) else int):
                    times = len(first) * second if isinstance(second, int) else len(first) + len(second)
                    if times <= MAX_ITEMS:
                        return first + second if isinstance(second, list) else first * second
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                decided = self.condition(node, names)
                return Unread("if") if decided is None else decided
            case ast.BoolOp(op=sign, values=[*others, last]):
                for other in others:
                    first = self.value(other, names, depth)
                    if isinstance(first, Unread) or bool(first) is isinstance(sign, ast.Or):
                        return first
                return self.value(last, names, depth)
            case ast.Call(func=ast.Attribute(value=owner, attr="get"), args=[key, *usual]) if isinstance(
                rows := self.value(owner, names, depth), dict
            ):
                default = rows.get(REST, self.value(usual[0], names, depth) if usual else None)
                of = self.value(key, names, depth)
                is_known = not isinstance(of, Unread) and of != ast.unparse(key)  # else its source
                return rows.get(str(of), default) if is_known else Unread(of)
            case ast.ListComp(
                elt=item, generators=[ast.comprehension(target=ast.Name(id=name), iter=every, ifs=[])]
            ):
                rows = self.value(every, names, depth)
                if isinstance(rows, list):
                    return [self.value(item, {**names, name: row}, depth) for row in rows]
            case ast.Call(func=ast.Name(id="range"), args=ends):
                numbers = [self.value(end, names, depth) for end in ends]
                if not all(isinstance(number, int) for number in numbers) or len(numbers) not in (1, 2):
                    return Unread("range")
                span = range(*numbers)
                return list(span) if span.stop - span.start <= MAX_ITEMS else Unread("range")
            case ast.Call(func=ast.Name(id="list"), args=[inner]):
                return self.value(inner, names, depth)
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name)), *_]):
                return self.value(ast.Attribute(owner, name), names, depth)
            case ast.Call():
                options: list[Any] = [ast.Constant(word.arg) if word.arg else None for word in node.keywords]
                given = self.value(ast.Dict(options, [word.value for word in node.keywords]), names, depth)
                words = [self.value(word, names, depth) for word in node.args]
                home = self.home(node.func)
                program, name = home or (self, "")
                known = name in program.functions
                if known and (program is self or self.follows(called_name(node), [*words, *given.values()])):
                    return program.call(name, words, given, depth + 1)
                return self.evaluate_call(node, words, given, names)
            case ast.IfExp(test=test, body=body, orelse=other):
                decided = self.condition(test, names)
                chosen = body if decided else other
                return Unread("if") if decided is None else self.value(chosen, names, depth)
        return constant(node, names)

    def _count(self) -> None:
        """Count a statement, an expression or a look-up of a name; refuse a program that has too many."""
        self.steps[0] += 1
        if self.steps[0] > MAX_STEPS:
            problem = f"has more than {MAX_STEPS:,} steps to follow, each pass of a loop counted"
            raise InputError("Python", [problem])

    def get(self, path: list[str], names: Mapping[str, object]) -> Any:
        """Return the value of a path of attributes."""
        value: object = names
        for part in path:
            value = value.get(part, Unread(part)) if isinstance(value, Mapping) else Unread(part)
        return value

    def set_path(self, path: list[str], value: object, names: dict[str, object]) -> None:
        """Set the value of a path of attributes."""
        owner: dict[str, object] = names
        for part in path[:-1]:
            inner = owner.get(part)
            owner[part] = owner = inner if isinstance(inner, dict) else {}
        if _holds(value, owner):
            raise InputError("Python", [f"{'.'.join(path)}: a configuration cannot hold itself"])
        owner[path[-1]] = value


def _holds(value: object, owner: Mapping[str, object]) -> bool:
    """Return whether a value is a configuration, or holds it; refuse one that is too deep or too large."""
    parts = [value]
    number = 0
    depth = 0
    while parts and not any(part is owner for part in parts):
        held = [part for part in parts if isinstance(part, dict | list)]
        parts = [inner for part in held for inner in (part.values() if isinstance(part, dict) else part)]
        number = number + len(parts)
        depth = depth + 1
        if number > MAX_PARTS or depth > MAX_NESTED:
            raise InputError("Python", [f"a value has over {MAX_PARTS:,} parts or {MAX_NESTED} levels"])
    return bool(parts)


def set_attributes(statement: ast.stmt) -> list[str]:
    """Return the attributes that a statement sets."""
    attributes = (node for node in ast.walk(statement) if isinstance(node, ast.Attribute))
    return [ast.unparse(node) for node in attributes if isinstance(node.ctx, ast.Store)]
