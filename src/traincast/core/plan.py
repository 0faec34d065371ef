"""A parallel plan: one of them (`Plan`, whole numbers) or a column of many (`Plans`, float64 columns)."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import numpy as np

from traincast.core.assumptions import Assumptions
from traincast.core.errors import WHOLE, InputError, is_whole
from traincast.core.plan_choices import (
    MODULES,
    STRATEGIES,
    Attention,
    CpKind,
    Order,
    ScheduleName,
    TpKind,
    Zero,
    not_allowed,
    words,
)
from traincast.core.precision import GRADIENTS, OPTIMIZERS, PRECISIONS, Optimizer, Precision
from traincast.core.quantities import CHOICES, COLUMNS, KNOBS, Column

AXES: Final = ("tp", "tp2", "cp", "dp", "pp")  # the degrees whose product is the number of GPUs


def _knob(name: str, default: Any) -> Any:
    """Field of a knob; the column table says what it means."""
    return field(default=default, metadata={"help": COLUMNS[name].meaning})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One parallel plan. Degrees multiply to the number of GPUs; `fast_*` says how many members of a group share a fast domain.

    What is left out of the placement (`fast_*`) an estimate chooses: the fastest that fills the fast domains. The meaning of each
    knob stands in `traincast.core.quantities.COLUMNS`.

    Raises
    ------
    InputError
        If a knob is no positive whole number, or a choice is unknown; all of them at once.

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
        given: Any = self.layout
        if isinstance(given, tuple | list):  # one number for each chunk
            object.__setattr__(self, "layout", ",".join(map(str, given)))
        if self.cp_kind == "ulysses":
            object.__setattr__(self, "ulysses", self.cp)
        values = {knob: value for knob in KNOBS if (value := getattr(self, knob)) is not None or not knob.startswith("fast_")}
        problems = [f"{knob} = {value!r}: {WHOLE}" for knob, value in values.items() if not is_whole(value)]
        problems += [wrong for choice in CHOICES for wrong in not_allowed(choice, getattr(self, choice))]
        problems += self._contradictions({knob for knob, value in values.items() if is_whole(value) and value > 1})
        if problems:
            raise InputError("plan", problems)
        for knob, value in values.items():
            object.__setattr__(self, knob, int(value))  # numpy's whole numbers as Python's
        for axis in AXES:
            if getattr(self, axis) == 1 and getattr(self, f"fast_{axis}") is None:
                object.__setattr__(self, f"fast_{axis}", 1)

    def _contradictions(self, several: set[str]) -> list[str]:
        """Choices that cannot stand together; `several` are the knobs above 1."""
        summa = self.tp_kind == "summa"
        cases = {
            "vp > 1: needs pp > 1": "vp" in several and "pp" not in several,
            "vp > 1: needs schedule 1f1b, or zb-v with vp = 2": "vp" in several and self.schedule not in ("1f1b", "zb-v"),
            "schedule zb-v: needs vp = 2": self.schedule == "zb-v" and self.vp != 2,
            "cp > 1: needs cp_kind all-gather, ring, ulysses or hybrid": "cp" in several and self.cp_kind == "none",
            "ulysses > 1: needs cp_kind ulysses or hybrid": "ulysses" in several and self.cp_kind not in ("ulysses", "hybrid"),
            "tp2 > 1: needs tp_kind summa": "tp2" in several and not summa,
            "panels > 1: needs tp_kind summa": "panels" in several and not summa,
            "tp_kind summa: cannot be combined with context parallelism": summa and self.cp_kind != "none",
            "attention summa: needs tp_kind summa": self.attention == "summa" and not summa,
            "recompute_every > 1: needs recompute full": "recompute_every" in several and self.recompute != "full",
            "replicas > 1: needs zero above 0": "replicas" in several and self.zero == 0,
        }
        return [message for message, wrong in cases.items() if wrong]

    @property
    def gpus(self) -> int:
        """World size: the product of all degrees."""
        return self.tp * self.tp2 * self.cp * self.dp * self.pp

    @property
    def placed(self) -> bool:
        """Whether the placement is given in full (a group of one has nothing to place)."""
        return all(getattr(self, f"fast_{axis}") is not None for axis in AXES)

    @property
    def strategy(self) -> str:
        """Name of the strategy this plan belongs to."""
        return _strategy(self)

    def columns(self) -> "Plans":
        """The same plan as numbers for the formulas; parts of the placement not given are 1."""
        return Plans(**{knob: float(getattr(self, knob) or 1) for knob in KNOBS} | self.choices())

    def choices(self) -> dict[str, Any]:
        """The choices by name."""
        return {choice: getattr(self, choice) for choice in CHOICES}

    def knobs(self) -> dict[str, int | str]:
        """The knobs that differ from their default, for people; who is alone in a domain goes without saying."""
        default = {knob.name: knob.default for knob in fields(self)}
        values = {name: getattr(self, name) for name in default}
        shared = any((values[f"fast_{axis}"] or 1) > 1 for axis in AXES)
        alone = {f"fast_{axis}" for axis in AXES if values[f"fast_{axis}"] == 1 and (shared or values[axis] == 1)}
        return {name: value for name, value in values.items() if value != default[name] and value is not None and name not in alone}

    def __str__(self) -> str:
        shown = {name: value for name, value in self.knobs().items() if name not in STRATEGIES["1d"].choices}
        return " ".join((self.strategy, *(f"{name}={value}" for name, value in shown.items())))


@dataclass(frozen=True, kw_only=True)
class Plans:
    """Plans as columns: every knob a number or a float64 array (of any shapes that broadcast); choices are common to all."""

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
    placed_on: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)  # what `group` worked out
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
        """What is kept in which precision."""
        return PRECISIONS[self.precision]

    @property
    def optimizer(self) -> Optimizer:
        """What the optimizer keeps."""
        return OPTIMIZERS[self.optimizer_kind]

    @property
    def gradient_bytes(self) -> float:
        """Bytes of an accumulated gradient, at least those of a weight; 16 bits until `ready` says what is usual."""
        return max(GRADIENTS["16-bit" if self.grad_dtype == "usual" else self.grad_dtype], 2 * self.recipe.width)

    def ready(self, assumed: Assumptions) -> "Plans":
        """The plans with what they leave to the assumptions."""
        return replace(self, grad_dtype=self.recipe.accumulation or assumed.grad_dtype) if self.grad_dtype == "usual" else self

    @property
    def recomputed(self) -> frozenset[str]:
        """Modules that are made again in backward; ``full`` stands for all."""
        chosen = words(self.recompute)
        return chosen if "full" in chosen else frozenset[str]().union(*(MODULES[word] for word in chosen))

    @property
    def gpus(self) -> Column:
        """World size."""
        return self.tp * self.tp2 * self.cp * self.dp * self.pp

    def microbatches(self, gbs: Column) -> Column:
        """Micro-batches a replica works through in a step, nm."""
        return gbs / self.dp / self.mbs

    @property
    def strategy(self) -> str:
        """Name of the strategy these plans belong to."""
        return _strategy(self)

    @property
    def placed(self) -> Column:
        """Members of all groups that share a fast domain."""
        return self.fast_tp * self.fast_tp2 * self.fast_cp * self.fast_dp * self.fast_pp

    @property
    def context(self) -> Column:
        """Ways the sequence is cut before tensor parallelism, the paper's m2 (1 for 1-D)."""
        return self.tp2 * self.cp

    @property
    def holders(self) -> Column:
        """Ranks that hold the same weights, those of experts aside."""
        return self.dp * self.cp

    @property
    def shards(self) -> Column:
        """Of the ranks that hold the same weights those that share one copy, where it is sharded."""
        return self.holders / self.replicas

    @property
    def expert_holders(self) -> Column:
        """Ranks that hold the same experts: expert parallelism cuts the ranks of a stage (folding)."""
        return self.tp * self.cp * self.dp / (self.ep * self.etp)

    @property
    def expert_shards(self) -> Column:
        """Of the ranks that hold the same experts those that share one copy, where it is sharded."""
        return np.maximum(self.expert_holders / self.replicas, 1)

    def numbers(self) -> dict[str, Any]:
        """The numeric knobs by name."""
        return {knob: getattr(self, knob) for knob in KNOBS}

    def choices(self) -> dict[str, Any]:
        """The choices by name."""
        return {choice: getattr(self, choice) for choice in CHOICES}

    def take(self, index: Any) -> "Plans":
        """Rows of the columns; knobs that are plain numbers stay."""
        numbers = self.numbers() | {"load": self.load}
        columns = {knob: column for knob, column in numbers.items() if isinstance(column, np.ndarray) and column.ndim}
        return replace(self, **{knob: column[index] for knob, column in columns.items()})

    def row(self, index: int) -> Plan:
        """One plan out of the columns."""
        one = self.take(index)
        return Plan(**{knob: int(value) for knob, value in one.numbers().items()} | self.choices())


def _strategy(plan: Plan | Plans) -> str:
    """Name of the strategy a plan belongs to."""
    return next(one.name for one in STRATEGIES.values() if all(getattr(plan, k) == v for k, v in one.choices.items()))
