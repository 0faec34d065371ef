"""Which operation of a model an operator of PyTorch is of: by its shapes, its name, and autograd's numbers.

A label is ``product k n`` for a product of an (m, k) and a (k, n) matrix, or a word of `NAMES`. What runs in
the backward pass has the label of the operator whose gradient it computes: both have the same number.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

NAMES: Final = {  # label -> pattern of operators and kernels; the first counts
    "loss": r"cross_entropy|log_?softmax|nll_loss",
    "attention": r"scaled_dot_product|flash|fmha|sdpa|softmax",
    "batched": r"\baten::(?:bmm|baddbmm)\b",  # of attention, unless experts are batched
    "norm": r"layer_?norm|rms_?norm",
    "activation": r"gelu|silu|swiglu|\baten::relu",
    "embedding": r"embedding",
}
PRODUCTS: Final = {"aten::mm": 0, "aten::addmm": 1, "aten::linear": 0}  # -> place of the first matrix
BACKWARD: Final = "autograd::engine::evaluate_function"


class Operator(NamedTuple):
    """An operator of the host: when it ran [s], on which thread, and what the profiler recorded of it."""

    name: str
    start: float
    end: float
    thread: object
    arguments: Mapping[str, object]

    @property
    def number(self) -> int | None:
        """Number that an operator shares with its gradient; None without."""
        number = self.arguments.get("Sequence number")
        return number if isinstance(number, int) and number >= 0 else None


def label_of(name: str) -> str:
    """Return the label of an operator or kernel by its name alone; empty where it does not tell."""
    return next((label for label, pattern in NAMES.items() if re.search(pattern, name, re.IGNORECASE)), "")


def labels_of(operators: Sequence[Operator]) -> list[str]:
    """Return the label of each operator, that of one around it where it has none of its own."""
    labels = [""] * len(operators)
    forward: dict[int, str] = {}  # labels by number
    threads: dict[object, list[int]] = defaultdict(list)
    for index, operator in enumerate(operators):
        threads[operator.thread].append(index)
    # Forward passes may be on another thread than backward ones: these come second.
    for is_backward in (False, True):
        for indices in threads.values():
            around: list[tuple[float, str, bool]] = []  # end, label, whether it is of a backward pass
            for index in sorted(indices, key=lambda i: (operators[i].start, -operators[i].end)):
                operator = operators[index]
                while around and around[-1][0] <= operator.start:
                    around.pop()
                _, outer, inside = around[-1] if around else (0.0, "", False)
                begins = operator.name.startswith(BACKWARD)
                if begins:
                    label = forward.get(-1 if operator.number is None else operator.number, "")
                    inside = True
                elif inside and not _is_recomputed(operator):
                    label = outer
                else:
                    label = outer if outer in NAMES else _own(operator) or outer
                    inside = False
                    if operator.number is not None and label:
                        forward.setdefault(operator.number, label)
                around.append((operator.end, label, inside))
                if is_backward or not inside:
                    labels[index] = label
    return labels


def _is_recomputed(operator: Operator) -> bool:
    """Return whether an operator inside a backward pass is one of a forward pass: it has a number itself."""
    return operator.number is not None and "Fwd thread id" not in _set_arguments(operator.arguments)


def _set_arguments(arguments: Mapping[str, object]) -> set[str]:
    """Return the arguments that are set: the profiler writes 0 for a thread that there is none of."""
    return {name for name, value in arguments.items() if value}


def _own(operator: Operator) -> str:
    """Return the label of an operator of a forward pass: a product's widths, or what its name says."""
    place = PRODUCTS.get(operator.name)
    shapes = operator.arguments.get("Input Dims") or []
    if place is not None and isinstance(shapes, list) and len(shapes) >= place + 2:
        weight = shapes[place + 1]
        if isinstance(weight, list) and len(weight) == 2:
            k, n = reversed(weight) if operator.name == "aten::linear" else weight
            return f"product {k} {n}"
    return label_of(operator.name)
