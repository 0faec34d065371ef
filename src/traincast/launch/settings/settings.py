"""Settings of a launch file by name, a dotted path where a configuration has sections."""

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from traincast.core import InputError

MAX_LIST: Final = 1 << 16  # entries of a list in an expression
ARITHMETIC: Final[dict[type, Callable[[object, object], object]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARISONS: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Settings(dict[str, Any]):
    """Settings of a file, by name."""

    def is_on(self, name: str) -> bool:
        """Return whether a setting is present, and neither off nor automatic."""
        return not is_off(self.get(name))

    def any_on(self, *names: str) -> bool:
        """Return whether any of some settings is on."""
        return any(map(self.is_on, names))

    def is_degree(self, name: str) -> bool:
        """Return whether a setting is on and not 1."""
        return self.is_on(name) and not same_value(self[name], 1)

    def number(self, *names: str, default: int = 1, least: int = 1) -> int:
        """Return the first setting that is on as a whole number, the first of a list; else the default."""
        for name in filter(self.is_on, names):
            value = whole_number(name, self[name], least)
            return int(value[0] if isinstance(value, tuple) else value)
        return default

    def count(self, *names: str) -> int:
        """Return the first of some settings that is on as a whole number; 0 if none is."""
        return self.number(*names, default=0, least=0)

    def size(self, name: str, default: int = 0) -> int:
        """Return a setting as a whole number; the default where it is off or -1 (automatic)."""
        return default if str(self.get(name)) == "-1" else self.number(name, default=default)

    def choice(self, name: str, allowed: Collection[str], default: str = "") -> str:
        """Return the text of a setting; raise an `InputError` unless it is one of those allowed."""
        value = str(self.get(name, default))
        if value not in allowed:
            raise not_allowed(name, value, allowed)
        return value


def not_allowed(name: str, value: object, allowed: Collection[object]) -> InputError:
    """Return the error of a value that is none of those allowed."""
    return InputError(name, [f"{name} = {str(value)[:60]!r}: must be one of {', '.join(map(str, allowed))}"])


def is_off(value: object) -> bool:
    """Return whether a value is absent, off, or automatic."""
    return (
        value is None
        or value is False
        or (isinstance(value, str) and value.lower() in ("", "none", "null", "false", "auto"))
    )


def same_value(value: object, wanted: object) -> bool:
    """Return whether a value is the wanted one, however it is spelled."""
    left = str(value).strip().lower()
    right = str(wanted).lower()
    try:
        return left == right or float(left.replace("_", "")) == float(right)
    except ValueError:
        return False


def whole_number(name: str, value: object, least: int = 0) -> Any:
    """Return a value as a whole number, a list as a tuple of them; refuse others, and any below `least`."""
    if isinstance(value, list | tuple):
        return tuple(whole_number(name, item, least) for item in value)
    text = str(value).strip().replace("_", "")
    is_whole = re.fullmatch(r"\d{1,15}(?:\.0*)?", text) and not isinstance(value, bool)
    number = int(text.partition(".")[0]) if is_whole else -1
    if number < least:
        raise InputError(name, [f"{name} = {str(value)[:60]!r}: must be a whole number of at least {least}"])
    return number


def evaluate_text(text: str, names: Mapping[str, Sequence[str]] | None = None) -> Any:
    """Return the value of an expression of whole numbers, lists of them and names; None if it is none."""
    try:
        return _evaluate_node(ast.parse(text.strip(), mode="eval").body, names or {})
    except (SyntaxError, ValueError, TypeError, ArithmeticError, KeyError, RecursionError, MemoryError):
        return None


def _evaluate_node(node: ast.expr, names: Mapping[str, Sequence[str]]) -> Any:
    """Return the value of a part of an expression."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name():
            return int(names[node.id][0])
        case ast.List():
            return [_evaluate_node(part, names) for part in node.elts]
        case ast.UnaryOp(op=ast.USub() | ast.Not() as sign):
            value = _evaluate_node(node.operand, names)
            return -value if isinstance(sign, ast.USub) else int(not value)
        case ast.BoolOp():
            values = [_evaluate_node(part, names) for part in node.values]
            return int(all(values) if isinstance(node.op, ast.And) else any(values))
        case ast.Compare(left=first, ops=[sign], comparators=[second]) if type(sign) in COMPARISONS:
            return int(COMPARISONS[type(sign)](_evaluate_node(first, names), _evaluate_node(second, names)))
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            left = _evaluate_node(node.left, names)
            right = _evaluate_node(node.right, names)
            for part, times in ((left, right), (right, left)):
                if isinstance(part, list) and isinstance(times, int) and len(part) * times > MAX_LIST:
                    raise ValueError("too long")
            return ARITHMETIC[type(node.op)](left, right)
    raise ValueError("not an arithmetic expression")


def value_text(value: object) -> str:
    """Return a value as text for a message."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def flatten(document: Mapping[str, object], prefix: str = "") -> Settings:
    """Return nested sections as settings with dotted names."""
    settings = Settings()
    for name, value in document.items():
        if isinstance(value, Mapping):
            settings |= flatten(value, f"{prefix}{name}.")
        else:
            settings[f"{prefix}{name}"] = value
    return settings


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with dotted names as nested sections."""
    document: dict[str, Any] = {}
    for name, value in settings.items():
        *sections, last = name.split(".")
        table = document
        for section in sections:
            table = table.setdefault(section, {})
        table[last] = value
    return document
