"""Suggestions: changes of single knobs of a plan, and combinations of them, each re-estimated."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Final

from traincast.core.errors import InputError
from traincast.core.knobs import chunks
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.launch.canonical import PLACEMENT_KNOBS, Facts, launch_facts
from traincast.launch.format import Format, flat_settings, not_expressed
from traincast.launch.mapping import Settings
from traincast.planner.framework_spaces import Framework
from traincast.step.estimate import Estimate, estimate

DEGREES: Final = ("tp", "pp", "cp", "ep", "dp", "mbs", "vp")
MAX_PAIRED_CHANGES: Final = 14  # fastest single changes that are tried in pairs
MAX_TRIPLE_SHARE: Final = 0.99  # of the best pair's step; a third change is advised only below it
Factors = Mapping[str, float]


@dataclass(frozen=True)
class SettingChange:
    """Change of one or more knobs of a plan.

    Parameters
    ----------
    factors : mapping of str to float
        Factors of degrees.
    chosen : mapping of str to value
        New values of other knobs and choices.
    """

    factors: Factors = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)

    def with_(self, other: "SettingChange") -> "SettingChange | None":
        """Return both changes combined; None where they change the same knob (other than dp)."""
        knobs = {*self.factors, *self.chosen} & {*other.factors, *other.chosen}
        if knobs - {"dp"}:
            return None
        merged = dict(self.factors)
        for name, factor in other.factors.items():
            merged[name] = merged.get(name, 1) * factor
        return SettingChange(merged, {**self.chosen, **other.chosen})

    def of(self, plan: Plan, layers: int) -> Plan | None:
        """Return the changed plan for a number of layers, without placement; None where the plan would be invalid."""
        degrees = {name: getattr(plan, name) * factor for name, factor in self.factors.items()}
        if any(value < 1 or value != int(value) for value in degrees.values()):
            return None
        knobs: dict[str, Any] = {
            **dict.fromkeys(PLACEMENT_KNOBS),
            **{name: int(value) for name, value in degrees.items()},
        }
        knobs |= self.chosen
        pp, cp, tp = (knobs.get(name, getattr(plan, name)) for name in ("pp", "cp", "tp"))
        if pp == 1:
            knobs |= {"vp": 1, "schedule": "1f1b"}
        if cp == 1:
            knobs |= {"cp_kind": "none", "ulysses": 1}
        elif plan.cp == 1:
            knobs |= {"cp_kind": "ring"}
        knobs["layout"] = _layout(plan, pp * knobs.get("vp", plan.vp), layers)
        if plan.etp > 1:
            knobs["etp"] = tp
        if knobs.get("recompute", "full") != "full":
            knobs["recompute_every"] = 1
        try:
            return replace(plan, **knobs)
        except InputError:
            return None


def _layout(plan: Plan, number: int, layers: int) -> str:
    """Return the layout of a number of chunks: unchanged where the number stays, even where it was even, else balanced."""
    current = chunks(plan.layout)
    if len(current) in (0, number):
        return plan.layout
    return (
        ",".join([str(layers // number)] * number)
        if len(set(current)) == 1 and number > 1 and layers % number == 0
        else ""
    )


@dataclass(frozen=True)
class EstimatedChange:
    """Change with its estimate and the settings that differ.

    Parameters
    ----------
    change : SettingChange
        The change.
    est : Estimate
        The changed plan.
    settings : tuple of (str, old, new)
        Settings that differ, by name; None where a setting is absent.
    """

    change: SettingChange
    est: Estimate
    settings: tuple[tuple[str, Any, Any], ...]


def single_changes(plan: Plan, model: Model, space: Framework) -> Iterator[SettingChange]:
    """Yield single changes that a framework can run: a degree doubled or halved, another value of a choice."""
    for axis in ("tp", "pp", "cp"):
        if axis == "cp" and plan.cp == 1 and not {"ring", "ulysses", "context"} & set(space.strategies):
            continue
        yield SettingChange({axis: 2, "dp": 0.5})
        yield SettingChange({axis: 0.5, "dp": 2})
    for name in ("mbs", *(("ep",) if model.experts is not None else ())):
        yield from (SettingChange({name: factor}) for factor in (2, 0.5, 4, 0.25))
    if model.experts is not None and plan.tp > 1:
        yield SettingChange(chosen={"etp": 1 if plan.etp > 1 else plan.tp})
    if plan.pp > 1 and space.interleaved and plan.schedule == "1f1b":
        layers_per_stage = model.layers // plan.pp
        yield from (
            SettingChange(chosen={"vp": vp})
            for vp in range(1, layers_per_stage + 1)
            if vp != plan.vp and layers_per_stage % vp == 0
        )
    for name, values in space.choices.items():
        yield from (SettingChange(chosen={name: value}) for value in values if value != getattr(plan, name))
    if plan.tp > 1 and not plan.sp:
        yield SettingChange(chosen={"sp": True})
    if plan.attention == "unfused":
        yield SettingChange(chosen={"attention": "flash"})


def _step_seconds(tried: EstimatedChange) -> float:
    """Return the step time [s] of a change."""
    return float(tried.est.step_seconds)


class ChangeTester:
    """Estimator of changes of one launch.

    Parameters
    ----------
    est : Estimate
        The estimate of the unchanged plan.
    form : Format
        The format of the launch.
    stack : str
        Name of the software stack that its settings choose.
    """

    def __init__(self, est: Estimate, form: Format, stack: str):
        self.est, self.form, self.plan, self.stack = est, form, est.plan, stack
        self.facts = self._facts(est.plan)
        self.settings = flat_settings(form, self.facts)
        self.unexpressed = set(not_expressed(form, self.settings, self.facts, est.model))

    def _facts(self, plan: Plan) -> Facts:
        return launch_facts(self.est.model, plan, self.est.gbs) | {"per_node": 1, "stack": self.stack}

    def differing(self, plan: Plan) -> tuple[tuple[str, Any, Any], ...]:
        """Return the settings of another plan that differ."""
        new: Settings = flat_settings(self.form, self._facts(plan))
        names = dict.fromkeys((*self.settings, *new))
        return tuple(
            (name, self.settings.get(name), new.get(name))
            for name in names
            if self.settings.get(name) != new.get(name)
        )

    def try_change(self, change: SettingChange) -> EstimatedChange | None:
        """Estimate a change; None where it is invalid, or the framework refuses it or cannot express it."""
        plan = change.of(self.plan, self.est.model.layers)
        if plan is None or self.form.refused(self._facts(plan)):
            return None
        try:
            est = estimate(
                self.est.model, self.est.system, plan, gbs=self.est.gbs, assumptions=self.est.assumptions
            )
        except InputError:
            return None
        settings = self.differing(plan)
        facts = self._facts(plan)
        if (
            not settings
            or set(not_expressed(self.form, flat_settings(self.form, facts), facts, self.est.model))
            - self.unexpressed
        ):
            return None
        return EstimatedChange(change, est, settings)

    def try_all(self, changes: Sequence[SettingChange]) -> list[EstimatedChange]:
        """Return the valid changes, the fastest first."""
        tried = (self.try_change(change) for change in changes)
        return sorted(filter(None, tried), key=_step_seconds)

    def best_combination(self, singles: Sequence[EstimatedChange]) -> EstimatedChange | None:
        """Return the fastest pair of changes that fits, with a third where that helps further."""
        pool = sorted(singles, key=_step_seconds)[:MAX_PAIRED_CHANGES]
        pairs = (first.change.with_(second.change) for first, second in combinations(pool, 2))
        best = self._best([pair for pair in pairs if pair is not None])
        if best is None:
            return None
        triples = (best.change.with_(single.change) for single in pool)
        best_triple = self._best([triple for triple in triples if triple is not None])
        if best_triple is None or _step_seconds(best_triple) >= MAX_TRIPLE_SHARE * _step_seconds(best):
            return best
        return best_triple

    def _best(self, changes: Sequence[SettingChange]) -> EstimatedChange | None:
        """Return the fastest change that fits."""
        return next((tried for tried in self.try_all(changes) if tried.est.fits), None)
