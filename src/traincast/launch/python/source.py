"""Python configurations as syntax trees: functions, calls and the values of expressions. Nothing is run."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from traincast.catalog import read_bytes
from traincast.core import InputError

MAX_CALLS: Final = 8  # of functions of a file by each other that are followed
MAX_FACTOR: Final = 1 << 64  # of products that are computed


def tree_of(text: str) -> ast.Module:
    """Return the syntax tree of a Python file; raise an `InputError` if it is malformed."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError("Python", [f"malformed Python: {getattr(error, 'msg', None) or error}"]) from None


def tree_of_file(file: Path) -> ast.Module:
    """Return the syntax tree of a file that another one imports; an `InputError` names it."""
    try:
        return tree_of(read_bytes(file).decode("utf-8-sig", errors="replace"))
    except (ValueError, InputError) as error:
        problem = error.problems[0] if isinstance(error, InputError) else error
        raise InputError("Python", [f"{file}: {problem}"]) from None


def functions_of(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Return the functions of a file by name."""
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def imports_of(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Return the names that a file imports: module, with dots before it where it is relative, and name.

    A module of which all names are imported stands under its own name behind a star.
    """
    names = {}
    for node in (node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)):
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                names[f"*{module}" if alias.name == "*" else alias.asname or alias.name] = module, alias.name
            else:
                module, _, name = (alias.name if alias.asname else alias.name.split(".")[0]).rpartition(".")
                names[alias.asname or name] = module, name
    return names


def module_file(module: str, folder: Path) -> Path | None:
    """Return the file of a module that a file of a folder imports; None where it is not on disk.

    It is looked for in the folder, in each one above, and in `src` in each.
    """
    name = module.lstrip(".")
    above = [folder.resolve(), *folder.resolve().parents]
    level = len(module) - len(name)
    bases = above[level - 1 : level] if level else [base for up in above for base in (up, up / "src")]
    places = (base.joinpath(*name.split(".")) for base in bases)
    files = (file for place in places for file in (place / "__init__.py", Path(f"{place}.py")))
    return next((file for file in files if file.is_file()), None)


def constants_of(tree: ast.Module) -> dict[str, object]:
    """Return the constants of a file by name."""
    return {
        target.id: constant(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and not isinstance(node.value, ast.Call)
    }


def defaults_of(arguments: ast.arguments) -> dict[str, ast.expr | None]:
    """Return the defaults of a function's arguments by name; None for keywords that must be given."""
    names = [*arguments.args, *arguments.kwonlyargs]
    defaults = [*arguments.defaults, *arguments.kw_defaults]
    return {name.arg: value for name, value in zip(reversed(names), reversed(defaults), strict=False)}


def called_name(node: ast.AST) -> str:
    """Return the last name of what a call calls; empty if the expression is no call."""
    return last_name(node.func) if isinstance(node, ast.Call) else ""


def last_name(node: ast.expr) -> str:
    """Return a name, or that of an attribute; empty for other expressions."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def constant(node: ast.expr, names: Mapping[str, object] | None = None) -> Any:
    """Return the value of a literal, a product of them or a known name; the source of anything else."""
    if isinstance(node, ast.Name) and names and node.id in names:
        return names[node.id]
    if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("torch."):
        return node.attr
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.FloorDiv):
        left = constant(node.left, names)
        right = constant(node.right, names)
        if isinstance(left, int) and isinstance(right, int) and right and abs(left) < MAX_FACTOR > abs(right):
            return left * right if isinstance(node.op, ast.Mult) else left // right
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ast.unparse(node)[:200]


def main_statements(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements that a program itself runs."""
    body: list[ast.stmt] = []
    for node in tree.body:
        is_main = isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        body += node.body if isinstance(node, ast.If) and is_main else [node]
    return [node for node in body if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import)]
