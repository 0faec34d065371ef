"""Parallel plans: a single one (`Plan`, whole numbers) or many as columns (`Plans`, float64 arrays)."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import numpy as np

from traincast.core.assumptions import Assumptions
from traincast.core.errors import WHOLE, InputError, is_whole
from traincast.core.plan_choices import (
    ALLOWED,
    JOINED,
    MODULES,
    STRATEGIES,
    Attention,
    CpKind,
    Order,
    ScheduleName,
    TpKind,
    Zero,
    choice_problems,
    words,
)
from traincast.core.precision import GRADIENTS, OPTIMIZERS, PRECISIONS, Optimizer, Precision
from traincast.core.quantities import CHOICES, COLUMNS, KNOBS, Column
from traincast.core.result import closed_object, described

AXES: Final = ("tp", "tp2", "cp", "dp", "pp")  # the degrees whose product is the number of GPUs


def _knob(name: str, default: Any) -> Any:
    """Return the dataclass field of a knob, with its meaning from the table of quantities as help."""
    return field(default=default, metadata={"help": COLUMNS[name].meaning})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Parallel plan. Degrees multiply to the number of GPUs; `fast_*` are the members of a group that share a fast domain.

    An estimate chooses the parts of the placement (`fast_*`) that are left out: the fastest that fills the fast domains.
    `traincast.core.quantities.COLUMNS` holds the meaning of each knob.

    Raises
    ------
    InputError
        If a knob is not a positive whole number, or a choice is unknown; all mistakes at once.

    Examples
    --------
    >>> Plan(tp=8, pp=16, dp=16, fast_tp=8).gpus
    2048
    """

    tp: int = _knob("tp", 1)
    tp2: int = _knob("tp2", 1)
    cp: int = _knob("cp", 1)
    pp: int = _knob("pp", 1)
    dp: int = _knob("dp", 1)
    ep: int = _knob("ep", 1)
    etp: int = _knob("etp", 1)
    ulysses: int = _knob("ulysses", 1)
    replicas: int = _knob("replicas", 1)
    mbs: int = _knob("mbs", 1)
    vp: int = _knob("vp", 1)
    recompute_every: int = _knob("recompute_every", 1)
    panels: int = _knob("panels", 1)
    fast_tp: int | None = _knob("fast_tp", None)
    fast_tp2: int | None = _knob("fast_tp2", None)
    fast_cp: int | None = _knob("fast_cp", None)
    fast_pp: int | None = _knob("fast_pp", None)
    fast_dp: int | None = _knob("fast_dp", None)
    tp_kind: TpKind = _knob("tp_kind", "1d")
    cp_kind: CpKind = _knob("cp_kind", "none")
    sp: bool = _knob("sp", True)
    tp_overlap: bool = _knob("tp_overlap", False)
    ep_overlap: bool = _knob("ep_overlap", False)
    attention: Attention = _knob("attention", "flash")
    recompute: str = _knob("recompute", "none")
    zero: Zero = _knob("zero", 1)
    schedule: ScheduleName = _knob("schedule", "1f1b")
    precision: str = _knob("precision", "bf16")
    grad_dtype: str = _knob("grad_dtype", "usual")
    optimizer_kind: str = _knob("optimizer_kind", "adam")
    offload: str = _knob("offload", "none")
    order: Order = _knob("order", "tp-cp-dp-pp")
    layout: str = _knob("layout", "")

    def __post_init__(self) -> None:
        layout: Any = self.layout
        if isinstance(layout, tuple | list):  # one number for each chunk
            object.__setattr__(self, "layout", ",".join(map(str, layout)))
        if self.cp_kind == "ulysses":
            object.__setattr__(self, "ulysses", self.cp)
        values = {
            knob: value
            for knob in KNOBS
            if (value := getattr(self, knob)) is not None or not knob.startswith("fast_")
        }
        problems = [f"{knob} = {value!r}: {WHOLE}" for knob, value in values.items() if not is_whole(value)]
        problems += [wrong for choice in CHOICES for wrong in choice_problems(choice, getattr(self, choice))]
        problems += self._contradictions(
            {knob for knob, value in values.items() if is_whole(value) and value > 1}
        )
        if problems:
            raise InputError("plan", problems)
        for knob, value in values.items():
            object.__setattr__(self, knob, int(value))  # numpy integers as Python's
        for axis in AXES:
            if getattr(self, axis) == 1 and getattr(self, f"fast_{axis}") is None:
                object.__setattr__(self, f"fast_{axis}", 1)

    def _contradictions(self, above_one: set[str]) -> list[str]:
        """Return the combinations of knobs and choices that are not possible; `above_one` are the knobs above 1."""
        summa = self.tp_kind == "summa"
        cases = {
            "vp > 1: needs pp > 1": "vp" in above_one and "pp" not in above_one,
            "vp > 1: needs schedule 1f1b, or zb-v with vp = 2": "vp" in above_one
            and self.schedule not in ("1f1b", "zb-v"),
            "schedule zb-v: needs vp = 2": self.schedule == "zb-v" and self.vp != 2,
            "cp > 1: needs cp_kind all-gather, ring, ulysses or hybrid": "cp" in above_one
            and self.cp_kind == "none",
            "ulysses > 1: needs cp_kind ulysses or hybrid": "ulysses" in above_one
            and self.cp_kind not in ("ulysses", "hybrid"),
            "tp2 > 1: needs tp_kind summa": "tp2" in above_one and not summa,
            "panels > 1: needs tp_kind summa": "panels" in above_one and not summa,
            "tp_kind summa: cannot be combined with context parallelism": summa and self.cp_kind != "none",
            "attention summa: needs tp_kind summa": self.attention == "summa" and not summa,
            "recompute_every > 1: needs recompute full": "recompute_every" in above_one
            and self.recompute != "full",
            "replicas > 1: needs zero above 0": "replicas" in above_one and self.zero == 0,
        }
        return [message for message, wrong in cases.items() if wrong]

    @property
    def gpus(self) -> int:
        """World size: the product of all degrees."""
        return self.tp * self.tp2 * self.cp * self.dp * self.pp

    @property
    def placed(self) -> bool:
        """Whether the whole placement is given (a group of one has nothing to place)."""
        return all(getattr(self, f"fast_{axis}") is not None for axis in AXES)

    @property
    def strategy(self) -> str:
        """Name of the strategy this plan belongs to."""
        return _strategy(self)

    def to_dict(self) -> dict[str, Any]:
        """Return every knob and choice by name; parts of the placement not given are 1."""
        return {knob: getattr(self, knob) or 1 for knob in KNOBS} | self.choices()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> dict[str, Any]:
        return {"type": "any", "ref": f"{cls.__module__}.{cls.__qualname__}:{id(cls)}"}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        kinds: dict[str, dict[str, Any]] = {knob: {"type": "integer"} for knob in KNOBS}
        for choice in CHOICES:
            free_text = choice in JOINED or choice not in ALLOWED
            kinds[choice] = {"type": "string"} if free_text else {"enum": list(ALLOWED[choice])}
        return closed_object({name: kind | described(COLUMNS[name].meaning) for name, kind in kinds.items()})

    def columns(self) -> "Plans":
        """Return the plan as numbers for the formulas; parts of the placement not given are 1."""
        return Plans(**{knob: float(getattr(self, knob) or 1) for knob in KNOBS} | self.choices())

    def choices(self) -> dict[str, Any]:
        """Return the choices by name."""
        return {choice: getattr(self, choice) for choice in CHOICES}

    def knobs(self) -> dict[str, int | str]:
        """Return the knobs that differ from their default, for display.

        A `fast_*` of 1 is left out if its group has one member, or if another group shares a fast domain.
        """
        defaults = {knob.name: knob.default for knob in fields(self)}
        values = {name: getattr(self, name) for name in defaults}
        shared = any((values[f"fast_{axis}"] or 1) > 1 for axis in AXES)
        implied = {
            f"fast_{axis}" for axis in AXES if values[f"fast_{axis}"] == 1 and (shared or values[axis] == 1)
        }
        return {
            name: value
            for name, value in values.items()
            if value != defaults[name] and value is not None and name not in implied
        }

    def __str__(self) -> str:
        shown = {name: value for name, value in self.knobs().items() if name not in STRATEGIES["1d"].choices}
        return " ".join((self.strategy, *(f"{name}={value}" for name, value in shown.items())))


@dataclass(frozen=True, kw_only=True)
class Plans:
    """Plans as columns: every knob is a number or a float64 array (shapes must broadcast); all plans share their choices."""

    tp: Column = 1.0
    tp2: Column = 1.0
    cp: Column = 1.0
    pp: Column = 1.0
    dp: Column = 1.0
    ep: Column = 1.0
    etp: Column = 1.0
    ulysses: Column = 1.0
    replicas: Column = 1.0
    mbs: Column = 1.0
    vp: Column = 1.0
    recompute_every: Column = 1.0
    panels: Column = 1.0
    fast_tp: Column = 1.0
    fast_tp2: Column = 1.0
    fast_cp: Column = 1.0
    fast_pp: Column = 1.0
    fast_dp: Column = 1.0
    load: Column = 1.0  # of the fullest expert-parallel rank relative to the mean
    placed_on: dict[Any, Any] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )  # cache of `group`
    tp_kind: TpKind = "1d"
    cp_kind: CpKind = "none"
    sp: bool = True
    tp_overlap: bool = False
    ep_overlap: bool = False
    attention: Attention = "flash"
    recompute: str = "none"
    zero: Zero = 1
    schedule: ScheduleName = "1f1b"
    precision: str = "bf16"
    grad_dtype: str = "usual"
    optimizer_kind: str = "adam"
    offload: str = "none"
    order: Order = "tp-cp-dp-pp"
    layout: str = ""

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
        """Size of an accumulated gradient, at least that of a weight; "usual" counts as 16 bits until `ready` [byte]."""
        return max(
            GRADIENTS["16-bit" if self.grad_dtype == "usual" else self.grad_dtype], 2 * self.recipe.width
        )

    def ready(self, assumed: Assumptions) -> "Plans":
        """Return the plans with a `grad_dtype` of "usual" replaced by that of the precision recipe or the assumptions."""
        return (
            replace(self, grad_dtype=self.recipe.accumulation or assumed.memory.grad_dtype)
            if self.grad_dtype == "usual"
            else self
        )

    @property
    def recomputed(self) -> frozenset[str]:
        """Modules that are recomputed in backward; ``full`` means all."""
        chosen = words(self.recompute)
        return chosen if "full" in chosen else frozenset[str]().union(*(MODULES[word] for word in chosen))

    @property
    def gpus(self) -> Column:
        """World size."""
        return self.tp * self.tp2 * self.cp * self.dp * self.pp

    def microbatches(self, gbs: Column) -> Column:
        """Count the micro-batches of a data-parallel replica in a step, nm."""
        return gbs / self.dp / self.mbs

    @property
    def strategy(self) -> str:
        """Name of the strategy these plans belong to."""
        return _strategy(self)

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
        return np.maximum(self.expert_holders / self.replicas, 1)

    def numbers(self) -> dict[str, Any]:
        """Return the numeric knobs by name."""
        return {knob: getattr(self, knob) for knob in KNOBS}

    def choices(self) -> dict[str, Any]:
        """Return the choices by name."""
        return {choice: getattr(self, choice) for choice in CHOICES}

    def take(self, index: Any) -> "Plans":
        """Return some rows of the columns; knobs that are plain numbers stay as they are."""
        numbers = self.numbers() | {"load": self.load}
        columns = {
            knob: column for knob, column in numbers.items() if isinstance(column, np.ndarray) and column.ndim
        }
        return replace(self, **{knob: column[index] for knob, column in columns.items()})

    def row(self, index: int) -> Plan:
        """Return one row as a plan."""
        row = self.take(index)
        return Plan(**{knob: int(value) for knob, value in row.numbers().items()} | self.choices())


def _strategy(plan: Plan | Plans) -> str:
    """Return the name of the strategy whose choices a plan has."""
    return next(
        strategy.name
        for strategy in STRATEGIES.values()
        if all(getattr(plan, choice) == value for choice, value in strategy.choices.items())
    )
