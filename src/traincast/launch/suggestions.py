"""Suggestions: changes of single knobs of a plan, and combinations of them, each re-estimated."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Annotated, Any, Final, TypeAlias

from traincast.core.errors import InputError
from traincast.core.knobs import VIRTUAL_STAGES, chunks
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.core.result import KEY, Doc, Result
from traincast.launch.canonical import PLACEMENT_KNOBS, Facts, launch_facts
from traincast.launch.format import Format, not_expressed
from traincast.launch.settings import Settings, value_text
from traincast.planner.framework_spaces import EXPERTS_ON_TENSOR_RANKS, UNPIPELINED, Framework
from traincast.planner.recommend import FIT_PROBABILITY
from traincast.step.estimate import Estimate, estimate

# What a change of these costs, the cheapest first; of all others, degrees of parallelism among them, more.
CHEAPEST: Final = ("attention", "mbs", "recompute", "recompute_every", "zero", "offload", "offload_every")
MAX_PAIRED_CHANGES: Final = 14  # fastest single changes that are tried in pairs
MAX_TRIPLE_SHARE: Final = 0.99  # of the best pair's step; a third change is advised only below it
Difference: TypeAlias = tuple[str, Any, Any]  # setting, old and new value; None where it is absent


@dataclass(frozen=True)
class SettingChange:
    """Change of knobs of a plan: factors of degrees, and new values of other knobs and choices."""

    factors: Mapping[str, float] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)

    def with_(self, other: "SettingChange") -> "SettingChange | None":
        """Return both changes combined; None where they change the same knob (other than dp)."""
        if {*self.factors, *self.chosen} & {*other.factors, *other.chosen} - {"dp"}:
            return None
        factors = {**self.factors, **other.factors}
        if "dp" in self.factors and "dp" in other.factors:
            factors["dp"] = self.factors["dp"] * other.factors["dp"]
        return SettingChange(factors, {**self.chosen, **other.chosen})

    @property
    def effort(self) -> int:
        """Place among changes by what they cost to make: the highest of the knobs that change."""
        knobs = {*self.factors, *self.chosen}
        return max(CHEAPEST.index(name) if name in CHEAPEST else len(CHEAPEST) for name in knobs)

    def of(self, plan: Plan, layers: int) -> Plan | None:
        """Return the changed plan for a number of layers, unplaced; None where it would be invalid."""
        degrees = {name: getattr(plan, name) * factor for name, factor in self.factors.items()}
        if any(value < 1 or value != int(value) for value in degrees.values()):
            return None
        knobs: dict[str, Any] = dict.fromkeys(PLACEMENT_KNOBS)
        knobs |= {name: int(value) for name, value in degrees.items()}
        knobs |= self.chosen
        pp, cp, tp = (knobs.get(name, getattr(plan, name)) for name in ("pp", "cp", "tp"))
        if pp == 1:
            knobs |= {"vp": 1, "schedule": UNPIPELINED}
        if cp == 1:
            knobs |= {"cp_kind": "none", "ulysses": 1}
        elif plan.cp == 1:
            knobs |= {"cp_kind": "ring"}
        knobs["layout"] = _layout(plan, pp * knobs.get("vp", plan.vp), layers)
        if plan.etp > 1:
            knobs.setdefault("etp", tp)
        if knobs.get("recompute", "full") != "full":
            knobs["recompute_every"] = 1
        try:
            return replace(plan, **knobs)
        except InputError:
            return None


def _layout(plan: Plan, number: int, layers: int) -> str:
    """Return the layout of a number of chunks: unchanged if the number is, even if it was, else balanced."""
    layout = chunks(plan.layout)
    if len(layout) in (0, number):
        return plan.layout
    even = len(set(layout)) == 1 and number > 1 and layers % number == 0
    return ",".join([str(layers // number)] * number) if even else ""


class DifferingSetting(Result):
    """A setting that differs, as the framework spells it; a switch that is set has the value on."""

    setting: Annotated[str, Doc("name of the setting, as the framework spells it")]
    old: Annotated[str | None, Doc("value now; null where it is not set, on where it has none", key="from")]
    new: Annotated[str | None, Doc("value then, the same way", key="to")]


class EstimatedChange(Result):
    """Settings changed together, and the estimate of the changed plan."""

    tester: "ChangeTester"
    change: SettingChange
    est: Estimate
    settings: tuple[Difference, ...]

    @property
    def spelled(self) -> Annotated[list[DifferingSetting], Doc(key="settings")]:
        """Settings that differ."""
        return self.tester.spelled(self.settings)

    @property
    def gain(self) -> Annotated[float, KEY]:
        """Share of the step time that it saves."""
        return 1 - float(self.est.step_seconds / self.tester.est.step_seconds)

    @property
    def step_seconds(self) -> Annotated[float, KEY]:
        """Step time then [s]."""
        return float(self.est.step_seconds)

    @property
    def memory_bytes(self) -> Annotated[float, KEY]:
        """Memory of the fullest rank then [byte]."""
        return float(self.est.memory_bytes)

    @property
    def fits_probability(self) -> Annotated[float | None, KEY]:
        """Probability that it fits then; null where errors are not known."""
        return self.est.fits_probability


def single_changes(plan: Plan, model: Model, space: Framework) -> Iterator[SettingChange]:
    """Yield changes that a framework can run: a degree doubled or halved, another value of a choice."""
    for axis in ("tp", "pp", "cp"):
        if axis == "cp" and plan.cp == 1 and not {"ring", "ulysses", "context"} & set(space.strategies):
            continue
        yield SettingChange({axis: 2, "dp": 0.5})
        yield SettingChange({axis: 0.5, "dp": 2})
    for name in ("mbs",) if model.experts is None else ("mbs", "ep"):
        yield from (SettingChange({name: factor}) for factor in (2, 0.5, 4, 0.25))
    if model.experts is not None and EXPERTS_ON_TENSOR_RANKS in space.rules:
        for factor in (2, 0.5, 4, 0.25):
            etp = 1 if plan.ep * factor > 1 else plan.tp
            if etp != plan.etp:
                yield SettingChange({"ep": factor}, {"etp": etp})
        if plan.ep == 1 and plan.tp == 1:
            yield SettingChange({"tp": 2, "dp": 0.5}, {"etp": 2})
    choices: list[tuple[str, Iterable[Any]]] = []
    if model.experts is not None and plan.tp > 1:
        choices += [("etp", [1 if plan.etp > 1 else plan.tp])]
    if plan.pp > 1 and space.interleaved and VIRTUAL_STAGES[plan.schedule] is None:
        layers = model.layers // plan.pp
        choices += [("vp", [vp for vp in range(1, layers + 1) if vp != plan.vp and layers % vp == 0])]
    for name, values in space.choices.items():
        choices += [(name, [value for value in values if value != getattr(plan, name)])]
    if plan.tp > 1 and not plan.sp:
        choices += [("sp", [True])]
    if plan.dp > 1 and not plan.dp_overlap:
        choices += [("dp_overlap", [True])]
    if plan.attention == "unfused":
        choices += [("attention", ["flash"])]
    yield from (SettingChange(chosen={name: value}) for name, values in choices for value in values)


class ChangeTester:
    """Estimator of changes of one launch, which its format writes and a software stack, by name, runs.

    `own` are the settings of the launch, which may spell a knob in another way than the format writes it.
    """

    def __init__(self, est: Estimate, form: Format, stack: str, own: Settings):
        self.est, self.form, self.plan, self.stack, self.own = est, form, est.plan, stack, own
        facts = self._facts(est.plan)
        self.settings = form.settings(facts)
        self.unexpressed = set(not_expressed(form, self.settings, facts, est.model))

    def _facts(self, plan: Plan) -> Facts:
        """Return the facts of a plan in this launch."""
        return launch_facts(self.est.model, plan, self.est.gbs) | {"per_node": 1, "stack": self.stack}

    def differing(self, plan: Plan) -> tuple[Difference, ...]:
        """Return the settings of another plan that differ, without those that spell a changed knob now.

        What those stood for is written in full: without --recompute-activations nothing is recomputed.
        """
        old, new = self.settings, self.form.settings(self._facts(plan))
        names = dict.fromkeys((*old, *new))
        changed = {name: old.get(name) for name in names if old.get(name) != new.get(name)}
        replaced: list[Difference] = []
        for row in self.form.computed_rows:
            others = [name for name in row.settings if name not in names and self.own.is_on(name)]
            if others and changed.keys() & {*row.settings}:
                replaced += [(name, self.own[name], None) for name in others]
                changed |= {name: None for name in row.settings if name in names and name not in self.own}
        differences = ((name, value, new.get(name)) for name, value in changed.items())
        return (*(pair for pair in differences if pair[1] != pair[2]), *replaced)

    def spelled(self, settings: Iterable[Difference]) -> list[DifferingSetting]:
        """Return settings that differ, as the framework spells them."""

        def text(value: Any) -> str | None:
            return None if value is None else value_text(value)

        return [
            DifferingSetting(self.form.spelled(name), text(old), text(new)) for name, old, new in settings
        ]

    def fits(self, est: Estimate) -> bool:
        """Return whether a changed plan fits, as surely as plans are recommended or as the launch does.

        Where the launch may not fit itself, whether the changed plan is said to fit.
        """
        odds, own = est.fits_probability, self.est.fits_probability
        if odds is None or own is None:
            return bool(est.fits)
        return est.verdict == "fits" and (self.est.verdict != "fits" or odds >= min(own, FIT_PROBABILITY))

    def try_change(self, change: SettingChange) -> EstimatedChange | None:
        """Estimate a change; None where it is invalid, or the framework refuses it or cannot express it."""
        plan = change.of(self.plan, self.est.model.layers)
        now = self.est
        if plan is None or self.form.refused(self._facts(plan)):
            return None
        if self.form.space.broken(now.model, plan, now.gbs):
            return None
        try:
            est = estimate(now.model, now.system, plan, gbs=now.gbs, assumptions=now.assumptions)
        except InputError:
            return None
        facts, settings = self._facts(plan), self.differing(plan)
        unexpressed = not_expressed(self.form, self.form.settings(facts), facts, self.est.model)
        if not settings or set(unexpressed) - self.unexpressed:
            return None
        return EstimatedChange(self, change, est, settings)

    def try_all(self, changes: Iterable[SettingChange | None]) -> list[EstimatedChange]:
        """Return the valid changes, the fastest first."""
        tried = (self.try_change(change) for change in changes if change is not None)
        return sorted(filter(None, tried), key=lambda change: change.step_seconds)

    def best_combination(self, singles: Sequence[EstimatedChange]) -> EstimatedChange | None:
        """Return the fastest pair of changes that fits, with a third where that helps further."""
        fastest = sorted(singles, key=lambda change: change.step_seconds)[:MAX_PAIRED_CHANGES]
        pool = [single.change for single in fastest]
        best = self._best(first.with_(second) for first, second in combinations(pool, 2))
        if best is None:
            return None
        triple = self._best(best.change.with_(third) for third in pool)
        if triple is not None and triple.step_seconds < MAX_TRIPLE_SHARE * best.step_seconds:
            return triple
        return best

    def _best(self, changes: Iterable[SettingChange | None]) -> EstimatedChange | None:
        """Return the fastest change that fits."""
        return next((tried for tried in self.try_all(changes) if self.fits(tried.est)), None)
