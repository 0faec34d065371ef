"""A parallel plan: one of them (`Plan`, whole numbers) or a column of many (`Plans`, float64 columns)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, get_args

import numpy as np

from traincast.columns import CHOICES, COLUMNS, KNOBS, Column
from traincast.errors import WHOLE, InputError, is_whole

TpKind = Literal["1d", "summa"]
CpKind = Literal["none", "all-gather"]
Attention = Literal["flash", "unfused", "summa"]
Recompute = Literal["none", "selective"]
ALLOWED: Final = {  # what each choice may be
    name: get_args(kind)
    for name, kind in (("tp_kind", TpKind), ("cp_kind", CpKind), ("attention", Attention), ("recompute", Recompute))
}
AXES: Final = ("tp", "tp2", "cp", "dp", "pp")  # the degrees whose product is the number of GPUs


@dataclass(frozen=True)
class Strategy:
    """A way to cut a layer over GPUs: what one batch of plans has in common.

    Parameters
    ----------
    name : str
        Name users give it.
    second : str or None
        The axis that cuts a layer beside tp.
    choices : mapping of str to str
        Its choices of a plan.
    alias : str
        What the paper's reference code calls it.
    """

    name: str
    second: str | None
    choices: Mapping[str, Any]
    alias: str

    @property
    def layer_axes(self) -> tuple[str, ...]:
        """Axes that cut a layer."""
        return ("tp",) if self.second is None else ("tp", self.second)

    @property
    def axes(self) -> tuple[str, ...]:
        """All axes, whose degrees multiply to the number of GPUs, in enumeration order."""
        return (*self.layer_axes, "pp", "dp")


STRATEGIES: Final = {
    strategy.name: strategy
    for strategy in (
        Strategy("1d", None, {"tp_kind": "1d", "cp_kind": "none"}, "1d"),
        Strategy("summa", "tp2", {"tp_kind": "summa", "cp_kind": "none"}, "2d"),
        Strategy("context", "cp", {"tp_kind": "1d", "cp_kind": "all-gather"}, "2d-seqp"),
    )
}
ALIASES: Final = {strategy.alias: strategy.name for strategy in STRATEGIES.values()}


def _knob(name: str, default: Any) -> Any:
    """Field of a knob; the column table says what it means."""
    return field(default=default, metadata={"help": COLUMNS[name].meaning})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One parallel plan. Degrees multiply to the number of GPUs; `fast_*` says how many members of a group share a fast domain.

    What is left out of the placement (`fast_*`) an estimate chooses: the fastest that fills the fast domains. The meaning of each
    knob stands in `traincast.columns.COLUMNS`.

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
    mbs: int = _knob("mbs", 1)
    vp: int = _knob("vp", 1)
    panels: int = _knob("panels", 1)
    fast_tp: int | None = _knob("fast_tp", None)
    fast_tp2: int | None = _knob("fast_tp2", None)
    fast_cp: int | None = _knob("fast_cp", None)
    fast_pp: int | None = _knob("fast_pp", None)
    fast_dp: int | None = _knob("fast_dp", None)
    tp_kind: TpKind = _knob("tp_kind", "1d")
    cp_kind: CpKind = _knob("cp_kind", "none")
    attention: Attention = _knob("attention", "flash")
    recompute: Recompute = _knob("recompute", "none")

    def __post_init__(self) -> None:
        values = {knob: value for knob in KNOBS if (value := getattr(self, knob)) is not None or not knob.startswith("fast_")}
        problems = [f"{knob} = {value!r}: {WHOLE}" for knob, value in values.items() if not is_whole(value)]
        problems += [
            f"{choice} = {getattr(self, choice)!r}: must be one of {', '.join(allowed)}"
            for choice, allowed in ALLOWED.items()
            if getattr(self, choice) not in allowed
        ]
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
            "cp > 1: needs cp_kind all-gather": "cp" in several and self.cp_kind == "none",
            "tp2 > 1: needs tp_kind summa": "tp2" in several and not summa,
            "panels > 1: needs tp_kind summa": "panels" in several and not summa,
            "tp_kind summa: cannot be combined with context parallelism": summa and self.cp_kind != "none",
            "attention summa: needs tp_kind summa": self.attention == "summa" and not summa,
            "recompute selective: needs attention unfused (flash attention always recomputes)": self.recompute == "selective"
            and self.attention != "unfused",
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
        return {name: value for name, value in values.items() if value not in (default[name], None) and name not in alone}

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
    mbs: Column = 1.0
    vp: Column = 1.0
    panels: Column = 1.0
    fast_tp: Column = 1.0
    fast_tp2: Column = 1.0
    fast_cp: Column = 1.0
    fast_pp: Column = 1.0
    fast_dp: Column = 1.0
    tp_kind: TpKind = "1d"
    cp_kind: CpKind = "none"
    attention: Attention = "flash"
    recompute: Recompute = "none"

    def group(self, axis: str) -> tuple[Column, Column]:
        """Degree of a communication group and how many of its members share a fast domain."""
        return getattr(self, axis), getattr(self, f"fast_{axis}")

    @property
    def gpus(self) -> Column:
        """World size."""
        return self.tp * self.tp2 * self.cp * self.dp * self.pp

    def microbatches(self, gbs: Column) -> Column:
        """Micro-batches a replica works through in a step, nm."""
        return gbs / self.dp / self.mbs

    def layers_per_stage(self, layers: Column) -> Column:
        """Layers of a pipeline stage, nl."""
        return layers / self.pp

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

    def numbers(self) -> dict[str, Any]:
        """The numeric knobs by name."""
        return {knob: getattr(self, knob) for knob in KNOBS}

    def choices(self) -> dict[str, Any]:
        """The choices by name."""
        return {choice: getattr(self, choice) for choice in CHOICES}

    def take(self, index: Any) -> "Plans":
        """Rows of the columns; knobs that are plain numbers stay."""
        columns = {knob: column for knob, column in self.numbers().items() if isinstance(column, np.ndarray) and column.ndim}
        return replace(self, **{knob: column[index] for knob, column in columns.items()})

    def row(self, index: int) -> Plan:
        """One plan out of the columns."""
        one = self.take(index)
        return Plan(**{knob: int(value) for knob, value in one.numbers().items()} | self.choices())


def _strategy(plan: Plan | Plans) -> str:
    """Name of the strategy a plan belongs to."""
    return next(one.name for one in STRATEGIES.values() if all(getattr(plan, k) == v for k, v in one.choices.items()))
