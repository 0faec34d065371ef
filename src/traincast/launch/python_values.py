"""Values of Python expressions in configurations that are read without being run."""

import ast
from collections.abc import Mapping
from typing import Any


def constant(node: ast.expr, names: Mapping[str, Any] | None = None) -> Any:
    """Return the value of a literal, a product of them or a known name; the source of anything else."""
    if isinstance(node, ast.Name) and names and node.id in names:
        return names[node.id]
    if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("torch."):
        return node.attr
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.FloorDiv):
        left, right = constant(node.left, names), constant(node.right, names)
        if isinstance(left, int) and isinstance(right, int) and right:
            return left * right if isinstance(node.op, ast.Mult) else left // right
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ast.unparse(node)[:200]
