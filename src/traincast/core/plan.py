"""Parallel plans: a single one (`Plan`, whole numbers) or many as columns (`Plans`, float64 arrays)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Final

import numpy as np

from traincast.core.assumptions import Assumptions
from traincast.core.columns import maximum
from traincast.core.errors import InputError, is_whole, raise_problems, whole_number_problems
from traincast.core.json_schema import closed_object, describe_key
from traincast.core.knobs import (
    ALLOWED_VALUES,
    CHOICES,
    DEFAULTS,
    JOINED_CHOICES,
    KNOB_SPECS,
    KNOBS,
    OFFLOADED_MODULES,
    PLACEMENTS,
    RECOMPUTED_MODULES,
    STRATEGIES,
    VIRTUAL_STAGES,
    Knobs,
    Number,
    Placement,
    choice_problems,
    split_choice,
)
from traincast.core.precision import GRADIENTS, OPTIMIZERS, PRECISIONS, REMAINDER, Optimizer, Precision
from traincast.core.quantities import NO_NUMBERS, Bools, Column, ColumnsEqual, Floats, Ints
from traincast.core.records import make_record

AXES: Final = ("tp", "tp2", "cp", "dp", "pp")  # the degrees whose product is the number of GPUs
COLUMNS: Final = (*KNOBS, "load")
TAKEN_COLUMNS: Final = (*COLUMNS, "tp_overlap")  # what a row of columns takes one value of
ROW_TYPES: Final[dict[str, type]] = dict.fromkeys(KNOBS, int) | {
    "tp_overlap": bool
}  # knobs that rows may differ in
_columns_of = attrgetter(*COLUMNS)
_taken_of = attrgetter(*TAKEN_COLUMNS)
_layout_of = attrgetter(*(name for name in (*KNOBS, *CHOICES) if name not in ("mbs", *PLACEMENTS)))


@dataclass(frozen=True, kw_only=True)
class Plan(Knobs[int, int | None]):
    """Parallel plan. Degrees multiply to the number of GPUs; `fast_*` count members in one fast domain.

    An estimate chooses the parts of the placement (`fast_*`) that are left out: the fastest that fills the
    fast domains. `traincast.core.knobs.Knobs` holds the meaning of each knob.

    Raises
    ------
    InputError
        If a knob is not a positive whole number, is too large for any plan, or a choice is unknown; all
        mistakes at once.

    Examples
    --------
    >>> Plan(tp=8, pp=16, dp=16, fast_tp=8).gpus
    2048
    """

    def __post_init__(self) -> None:
        layout: object = self.layout
        if isinstance(layout, tuple | list):  # one number for each chunk
            object.__setattr__(self, "layout", ",".join(map(str, layout)))
        if self.cp_kind == "ulysses":
            object.__setattr__(self, "ulysses", self.cp)
        values = {knob: getattr(self, knob) for knob in KNOBS}
        values = {knob: n for knob, n in values.items() if n is not None or DEFAULTS[knob] is not None}
        problems = [
            problem for knob, value in values.items() for problem in whole_number_problems(knob, value)
        ]
        for choice, value in self.choices().items():
            if value is not DEFAULTS[choice]:
                problems += choice_problems(choice, value)
        above_one = {knob for knob, value in values.items() if is_whole(value) and value > 1}
        problems += self._contradictions(above_one)
        raise_problems("plan", problems)
        for knob, value in values.items():
            object.__setattr__(self, knob, int(value))  # numpy integers as Python's
        for axis in AXES:
            if getattr(self, axis) == 1 and getattr(self, f"fast_{axis}") is None:
                object.__setattr__(self, f"fast_{axis}", 1)

    def _contradictions(self, above_one: set[str]) -> list[str]:
        """Return the combinations of knobs that are not possible; `above_one` are the knobs above 1."""
        schedule: Any = str(self.schedule)  # of any type, where it is refused
        summa = self.tp_kind == "summa"
        stages = VIRTUAL_STAGES.get(schedule)
        cases = {
            "vp > 1: needs pp > 1": "vp" in above_one and "pp" not in above_one,
            f"vp > 1: needs schedule {_interleaved_schedules()}": "vp" in above_one and stages == 1,
            f"schedule {self.schedule}: needs vp = {stages}": stages not in (None, 1, self.vp),
            "cp > 1: needs cp_kind all-gather, ring, ulysses or hybrid": "cp" in above_one
            and self.cp_kind == "none",
            "ulysses > 1: needs cp_kind ulysses or hybrid": "ulysses" in above_one
            and self.cp_kind not in ("ulysses", "hybrid"),
            "tp2 > 1: needs tp_kind summa": "tp2" in above_one and not summa,
            "panels > 1: needs tp_kind summa": "panels" in above_one and not summa,
            "tp_kind summa: cannot be combined with context parallelism": summa and self.cp_kind != "none",
            **dict.fromkeys(contradicting_choices(self.choices() | dict.fromkeys(above_one, 2)), True),
            "replicas > 1: needs zero above 0": "replicas" in above_one and self.zero == 0,
        }
        return [message for message, wrong in cases.items() if wrong]

    @property
    def gpus(self) -> int:
        """World size: the product of all degrees."""
        return self.tp * self.tp2 * self.cp * self.dp * self.pp

    @property
    def layout_values(self) -> tuple[object, ...]:
        """Its knobs and choices but for those that a layout is run with: micro-batch and places of groups."""
        values: tuple[object, ...] = _layout_of(self)
        return values

    @property
    def recomputed(self) -> frozenset[str]:
        """Modules that backward repeats; ``full`` means all."""
        return recomputed_modules(self.recompute)

    @property
    def placed(self) -> bool:
        """Whether the whole placement is given (a group of one has nothing to place)."""
        return all(getattr(self, place) is not None for place in PLACEMENTS)

    def to_dict(self) -> dict[str, int | str]:
        """Return every knob and choice by name; parts of the placement not given are 1."""
        return {knob: getattr(self, knob) or 1 for knob in KNOBS} | self.choices()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> dict[str, object]:
        return {"type": "any", "ref": f"{cls.__module__}.{cls.__qualname__}:{id(cls)}"}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: object, handler: object) -> dict[str, object]:
        kinds: dict[str, dict[str, object]] = {knob: {"type": "integer"} for knob in KNOBS}
        for choice in CHOICES:
            is_text = choice in JOINED_CHOICES or choice not in ALLOWED_VALUES
            kinds[choice] = {"type": "string"} if is_text else {"enum": list(ALLOWED_VALUES[choice])}
        return closed_object(
            {name: kind | describe_key(KNOB_SPECS[name].meaning) for name, kind in kinds.items()}
        )

    def columns(self) -> "Plans":
        """Return the plan as numbers for the formulas; parts of the placement not given are 1."""
        numbers = {knob: float(getattr(self, knob) or 1) for knob in KNOBS}
        return make_record(Plans, {**numbers, **self.choices()})

    def knobs(self, placement: bool = False) -> dict[str, int | str]:
        """Return the knobs that differ from their default, for display, or with the full `placement`.

        A `fast_*` of 1 is left out if its group has one member, or if another group shares a fast domain.
        """
        values = {name: getattr(self, name) for name in DEFAULTS}
        shared = not placement and any((values[place] or 1) > 1 for place in PLACEMENTS)
        implied = {
            f"fast_{axis}" for axis in AXES if values[f"fast_{axis}"] == 1 and (shared or values[axis] == 1)
        }
        return {
            name: value
            for name, value in values.items()
            if value != DEFAULTS[name] and value is not None and name not in implied
        }

    def __str__(self) -> str:
        shown = {name: value for name, value in self.knobs().items() if name not in STRATEGIES["1d"].choices}
        return " ".join((self.strategy, *(f"{name}={value}" for name, value in shown.items())))


# For `get_type_hints`, which does not resolve the type variables of a base class.
Plan.__annotations__ = {
    name: {Number: int, Placement: int | None}.get(kind, kind) for name, kind in Knobs.__annotations__.items()
}


def contradicting_choices(values: Mapping[str, Any]) -> list[str]:
    """Return a line for each choice that needs another one: SUMMA's attention, and layers to count."""
    needs_grid = values.get("attention") == "summa" != values.get("tp_kind")
    offloaded = set(split_choice(str(values.get("offload", "none"))))
    problems = ["attention summa: needs tp_kind summa"] * needs_grid
    if "attn_proj" in offloaded and "core_attn" not in offloaded:
        problems.append("offload attn_proj: needs core_attn, whose backward pass needs its result as well")
    if "activations" in offloaded and offloaded & set(OFFLOADED_MODULES):
        problems.append("offload activations: has those of all modules; leave out the names of modules")
    return problems + [
        f"{name}_every > 1: needs {name} {needed}"
        for name, needed in (("recompute", "full"), ("offload", "activations"))
        if values.get(f"{name}_every", 1) > 1 and needed not in split_choice(str(values.get(name, "none")))
    ]


def _interleaved_schedules() -> str:
    """Return the schedules that run several virtual stages, for a message."""
    stages = {name: n for name, n in VIRTUAL_STAGES.items() if n != 1}
    return ", or ".join(name if n is None else f"{name} with vp = {n}" for name, n in stages.items())


@dataclass(frozen=True, kw_only=True, eq=False)
class Plans(ColumnsEqual, Knobs[Column, Column]):
    """Plans as columns: knobs are numbers or float64 arrays (shapes must broadcast); choices are shared.

    Raises
    ------
    InputError
        If a knob is neither a number nor an array, or the arrays have different lengths.
    """

    load: Column = 1.0  # of the fullest expert-parallel rank relative to the mean
    # The one choice that may be a column: whether a tensor group is overlapped depends on its placement.
    tp_overlap: bool | Bools = False  # type: ignore[assignment]

    def __post_init__(self) -> None:
        shapes = {}
        for name, value in zip(COLUMNS, _columns_of(self), strict=True):
            if type(value) is float:
                continue
            if value is None or type(value) is int:
                object.__setattr__(self, name, 1.0 if value is None else float(value))
            elif isinstance(value, np.ndarray):
                if value.dtype.kind in "iu":  # whose products overflow silently
                    object.__setattr__(self, name, value.astype(np.float64))
                shapes[name] = value.shape
            elif isinstance(value, NO_NUMBERS):
                raise InputError("plans", [f"{name} = {value!r}: must be a number or an array of numpy"])
        if len(set(shapes.values())) > 1:
            _check_shapes(shapes)

    @property
    def recipe(self) -> Precision:
        """Precision recipe."""
        return PRECISIONS[self.precision]

    @property
    def optimizer(self) -> Optimizer:
        """Optimizer recipe."""
        return OPTIMIZERS[self.optimizer_kind]

    @property
    def gradient_bytes(self) -> float:
        """Size of an accumulated gradient, at least that of a weight; "usual" counts as 16 bits [byte]."""
        dtype = "16-bit" if self.grad_dtype == "usual" else self.grad_dtype
        return max(GRADIENTS[dtype], 2 * self.recipe.width)

    def master_bytes(self, assumed: Assumptions) -> float:
        """Return the size of the master copy of a parameter [byte].

        A remainder is the half that bf16 weights lack (Transformer Engine 2.20.2,
        pytorch/optimizers/fused_adam.py). Megatron-FSDP (ZeRO 2 and 3) keeps the copy itself, and Adam on the
        host has it in fp32 (Megatron-Core 0.19.2, core/optimizer/cpu_offloading/hybrid_optimizer.py).
        """
        stored = self.master_copy
        if stored == "usual" and assumed.memory.stores_remainders and self.optimizer.precision_aware:
            stored = "remainder"
        on_device = self.zero == 1 and "optimizer" not in split_choice(self.offload)
        halved = stored == "remainder" and on_device and self.recipe.splits_master
        return REMAINDER if halved else self.recipe.master

    def ready(self, assumed: Assumptions) -> "Plans":
        """Return the plans with a `grad_dtype` of "usual" replaced by that of recipe or assumptions."""
        if self.grad_dtype != "usual":
            return self
        return self._copy(grad_dtype=self.recipe.accumulation or assumed.memory.grad_dtype)

    def replace_columns(self, **values: object) -> "Plans":
        """Return the plans with other values of knobs and choices: `replace`, in half the time."""
        plans = self._copy(**values)
        plans.__post_init__()
        return plans

    def _copy(self, **values: object) -> "Plans":
        """Return the plans with values that need no check."""
        plans = object.__new__(Plans)
        plans.__dict__.update(self.__dict__, **values)
        return plans

    @property
    def recomputed(self) -> frozenset[str]:
        """Modules that are recomputed in backward; ``full`` means all."""
        return recomputed_modules(self.recompute)

    @property
    def gpus(self) -> Column:
        """World size."""
        return self.tp * self.tp2 * self.cp * self.dp * self.pp

    @property
    def stages_before_replicas(self) -> bool:
        """Whether ranks are numbered by stages before replicas, so that degrees of stages place replicas."""
        return self.order == "tp-cp-pp-dp"

    def microbatches(self, gbs: Column) -> Column:
        """Count the micro-batches of a data-parallel replica in a step, nm."""
        return gbs / self.dp / self.mbs

    @property
    def placed(self) -> Column:
        """Ranks in a fast domain: the product of all `fast_*`."""
        return self.fast_tp * self.fast_tp2 * self.fast_cp * self.fast_dp * self.fast_pp

    @property
    def context(self) -> Column:
        """Shards of the sequence before tensor parallelism, the paper's m2 (1 for 1-D)."""
        return self.tp2 * self.cp

    @property
    def holders(self) -> Column:
        """Ranks with the same weights (those of experts aside): dp times cp."""
        return self.dp * self.cp

    @property
    def shards(self) -> Column:
        """Ranks that one sharded copy of the weights is spread over."""
        return self.holders / self.replicas

    @property
    def expert_holders(self) -> Column:
        """Ranks with the same experts: expert parallelism divides all ranks of a stage (parallel folding)."""
        return self.tp * self.cp * self.dp / (self.ep * self.etp)

    @property
    def expert_shards(self) -> Column:
        """Ranks that one sharded copy of the experts' weights is spread over."""
        return maximum(self.expert_holders / self.replicas, 1)

    def numbers(self) -> dict[str, Column]:
        """Return the numeric knobs by name."""
        return {knob: getattr(self, knob) for knob in KNOBS}

    def take(self, index: Any) -> "Plans":
        """Return some rows of the columns; knobs that are plain numbers stay as they are."""
        columns = {
            name: column[index]
            for name, column in zip(TAKEN_COLUMNS, _taken_of(self), strict=True)
            if isinstance(column, np.ndarray) and column.ndim
        }
        return self._copy(**columns)

    def row(self, index: int) -> Plan:
        """Return one row as a plan."""
        return self.take(np.array([index])).rows()[0]

    def rows(self) -> list[Plan]:
        """Return every row as a plan; one where no knob is a column. Rows are not checked again."""
        same = dict[str, object](self.choices())
        columns = dict[str, Floats | Ints | Bools]()
        for name, kind in ROW_TYPES.items():
            value = getattr(self, name)
            if isinstance(value, np.ndarray) and value.ndim:
                columns[name] = value.astype(kind)
            else:
                same[name] = kind(value)
        together = np.broadcast_arrays(*columns.values())
        rows = zip(*(column.tolist() for column in together), strict=True) if columns else [()]
        plans = []
        for row in rows:
            plan = object.__new__(Plan)
            plan.__dict__.update(same, **dict(zip(columns, row, strict=True)))
            plans.append(plan)
        return plans


@cache
def recomputed_modules(recompute: str) -> frozenset[str]:
    """Return the modules that a value of `recompute` repeats in backward; ``full`` means all."""
    chosen = split_choice(recompute)
    return (
        chosen if "full" in chosen else frozenset[str]().union(*(RECOMPUTED_MODULES[word] for word in chosen))
    )


def _check_shapes(shapes: dict[str, tuple[int, ...]]) -> None:
    """Raise an error if the shapes of columns do not broadcast."""
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError:
        lengths = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes.items())
        raise InputError("plans", [f"columns of different lengths: {lengths}"]) from None
