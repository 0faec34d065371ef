"""Changes of knobs of a plan, one at a time and combined, each re-estimated: degrees, batches, choices."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from typing import Annotated, Any, Final, Generic, TypeVar

from traincast.catalog import Stack
from traincast.core import KEY, PLACEMENTS, VIRTUAL_STAGES, Doc, InputError, Plan, Result, chunks
from traincast.model import Model
from traincast.planner.frameworks.rules import EXPERTS_ON_TENSOR_RANKS
from traincast.planner.frameworks.spaces import FRAMEWORKS, UNPIPELINED, Framework, default_framework
from traincast.planner.question import FIT_PROBABILITY
from traincast.step import LEAST_GAIN, NO_PLACEMENT_GIVEN, Estimate, estimate

# What a change of these costs, the cheapest first; of all others, degrees of parallelism among them, more.
CHEAPEST: Final = ("attention", "mbs", "recompute", "recompute_every", "zero", "offload", "offload_every")
MAX_PAIRED_CHANGES: Final = 14  # fastest single changes that are tried in pairs
MAX_TRIPLE_SHARE: Final = 0.99  # of the best pair's step; a third change is advised only below it


@dataclass(frozen=True)
class KnobChange:
    """Change of knobs of a plan: factors of degrees, and new values of other knobs and choices."""

    factors: Mapping[str, float] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)

    def combine(self, other: "KnobChange") -> "KnobChange | None":
        """Return both changes combined; None where they change the same knob (other than dp)."""
        if self.knobs & other.knobs - {"dp"}:
            return None
        factors = {**self.factors, **other.factors}
        if "dp" in self.factors and "dp" in other.factors:
            factors["dp"] = self.factors["dp"] * other.factors["dp"]
        return KnobChange(factors, {**self.chosen, **other.chosen})

    @property
    def knobs(self) -> frozenset[str]:
        """Names of the knobs and choices that change."""
        return frozenset({*self.factors, *self.chosen})

    @property
    def effort(self) -> int:
        """Place among changes by what they cost to make: the highest of the knobs that change."""
        return max(CHEAPEST.index(name) if name in CHEAPEST else len(CHEAPEST) for name in self.knobs)

    def apply_to(self, plan: Plan, layers: int) -> Plan | None:
        """Return the changed plan for a number of layers, unplaced; None where it would be invalid."""
        degrees = {name: getattr(plan, name) * factor for name, factor in self.factors.items()}
        if any(value < 1 or value != int(value) for value in degrees.values()):
            return None
        knobs: dict[str, Any] = dict(NO_PLACEMENT_GIVEN)
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


def single_changes(plan: Plan, model: Model, space: Framework) -> Iterator[KnobChange]:
    """Yield changes that a framework can run: a degree doubled or halved, another value of a choice."""
    for axis in ("tp", "pp", "cp"):
        if axis == "cp" and plan.cp == 1 and not {"ring", "ulysses", "context"} & set(space.strategies):
            continue
        yield KnobChange({axis: 2, "dp": 0.5})
        yield KnobChange({axis: 0.5, "dp": 2})
    for name in ("mbs",) if model.experts is None else ("mbs", "ep"):
        yield from (KnobChange({name: factor}) for factor in (2, 0.5, 4, 0.25))
    if model.experts is not None and EXPERTS_ON_TENSOR_RANKS in space.rules:
        for factor in (2, 0.5, 4, 0.25):
            etp = 1 if plan.ep * factor > 1 else plan.tp
            if etp != plan.etp:
                yield KnobChange({"ep": factor}, {"etp": etp})
        if plan.ep == 1 and plan.tp == 1:
            yield KnobChange({"tp": 2, "dp": 0.5}, {"etp": 2})
    choices: list[tuple[str, Iterable[object]]] = []
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
    yield from (KnobChange(chosen={name: value}) for name, values in choices for value in values)


class ChangedKnob(Result):
    """A knob or choice that differs between two plans."""

    knob: Annotated[str, Doc("name of the knob or choice")]
    old: Annotated[Any, Doc("value now", key="from", text=True)]
    new: Annotated[Any, Doc("value then", key="to", text=True)]


class ChangedPlan(Result):
    """Knobs of a plan changed together, and the estimate of the changed plan."""

    before: Estimate
    change: KnobChange
    est: Estimate

    @property
    def knobs(self) -> Annotated[list[ChangedKnob], KEY]:
        """Knobs and choices that differ, but for the placement, which is chosen anew."""
        old = self.before.plan
        new = self.est.plan
        names = [knob.name for knob in fields(Plan) if knob.name not in PLACEMENTS]
        pairs = ((name, getattr(old, name), getattr(new, name)) for name in names)
        return [ChangedKnob(name, before, then) for name, before, then in pairs if before != then]

    @property
    def gain(self) -> Annotated[float, KEY]:
        """Share of the step time that it saves."""
        return 1 - float(self.est.step_seconds / self.before.step_seconds)

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


Changed = TypeVar("Changed", bound=ChangedPlan)


class KnobTester(ABC, Generic[Changed]):
    """Estimator of changes of one plan within what a framework runs."""

    def __init__(self, est: Estimate, space: Framework):
        self.est = est
        self.space = space
        self.plan = est.plan

    def fits(self, est: Estimate) -> bool:
        """Return whether a changed plan fits, as surely as plans are recommended or as the plan does.

        Where the plan may not fit itself, whether the changed plan is said to fit.
        """
        odds = est.fits_probability
        own = self.est.fits_probability
        if odds is None or own is None:
            return bool(est.fits)
        return est.verdict == "fits" and (self.est.verdict != "fits" or odds >= min(own, FIT_PROBABILITY))

    def estimate_of(self, plan: Plan) -> Estimate | None:
        """Return the estimate of another plan; None where the framework or the machine does not run it."""
        now = self.est
        if self.space.broken(now.model, plan, now.gbs):
            return None
        try:
            return estimate(now.model, now.system, plan, gbs=now.gbs, assumptions=now.assumptions)
        except InputError:
            return None

    def try_change(self, change: KnobChange) -> Changed | None:
        """Estimate a change; None where it is invalid, or the framework does not run it."""
        plan = change.apply_to(self.plan, self.est.model.layers)
        est = None if plan is None else self.estimate_of(plan)
        return None if est is None else self.estimate_change(change, est)

    @abstractmethod
    def estimate_change(self, change: KnobChange, est: Estimate) -> Changed | None:
        """Return a change with its estimate; None where it is no change or cannot be written."""

    def try_all(self, changes: Iterable[KnobChange | None]) -> list[Changed]:
        """Return the valid changes, the fastest first."""
        tried = (self.try_change(change) for change in changes if change is not None)
        return sorted(filter(None, tried), key=lambda change: change.step_seconds)

    def best_combination(self, singles: Sequence[Changed]) -> Changed | None:
        """Return the fastest pair of changes that fits, with a third where that helps further."""
        fastest = sorted(singles, key=lambda change: change.step_seconds)[:MAX_PAIRED_CHANGES]
        pool = [single.change for single in fastest]
        best = self._best(first.combine(second) for first, second in combinations(pool, 2))
        if best is None:
            return None
        triple = self._best(best.change.combine(third) for third in pool)
        if triple is not None and triple.step_seconds < MAX_TRIPLE_SHARE * best.step_seconds:
            return triple
        return best

    def _best(self, changes: Iterable[KnobChange | None]) -> Changed | None:
        """Return the fastest change that fits."""
        return next((tried for tried in self.try_all(changes) if self.fits(tried.est)), None)


class PlanTester(KnobTester[ChangedPlan]):
    """Estimator of changes of a plan given by hand, whose knobs are written as they are."""

    @classmethod
    def from_estimate(cls, est: Estimate, framework: Framework | None = None) -> "PlanTester":
        """Return the tester of a plan; without a framework of what runs its software stack."""
        return cls(est, framework or _space(est))

    def estimate_change(self, change: KnobChange, est: Estimate) -> ChangedPlan | None:
        """Return a change with its estimate; None where it is no change."""
        tried = ChangedPlan(self.est, change, est)
        return tried if tried.knobs else None

    def helpful(self) -> tuple[list[ChangedPlan], ChangedPlan | None]:
        """Return the changes of one knob that fit and help, and the combination that gains more than any.

        The fastest is first; of several values of a knob it is the best. What saves less than `LEAST_GAIN`
        of the step is left out, unless the plan does not fit as it is.
        """
        tried = self.try_all(single_changes(self.plan, self.est.model, self.space))
        best = dict[frozenset[str], ChangedPlan]()
        for change in tried:
            if self.fits(change.est) and (change.gain >= LEAST_GAIN or self.est.verdict != "fits"):
                best.setdefault(change.change.knobs - {"dp"}, change)
        singles = list(best.values())
        together = self.best_combination(tried)
        if together is None or together.gain < LEAST_GAIN:
            return singles, None
        alone = max((change.gain for change in singles), default=0.0)
        return singles, together if together.gain >= alone + LEAST_GAIN else None


def _space(est: Estimate) -> Framework:
    """Return the framework whose stack an estimate has, if it runs the plan's strategy; else the default."""
    strategy = est.plan.strategy
    name = Stack.of_assumptions(est.assumptions.name).search_space
    if name is not None and strategy in FRAMEWORKS[name].runs:
        return FRAMEWORKS[name]
    return default_framework(est.model, est.system, [strategy])
