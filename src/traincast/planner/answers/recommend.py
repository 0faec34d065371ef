"""Recommend a plan: of those that the model cannot tell from the fastest, one that fits and is simple.

Predicted times are not exact to a few percent, nor is predicted memory. So the recommended plan fits with a
given probability, and of the plans within a share of the fastest of those, `PREFERENCES` decide. `families`
groups plans that differ in little, so that a list shows different ones.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from traincast.core import (
    AXES,
    CHOICES,
    DEFAULTS,
    KNOBS,
    PLACEMENTS,
    Plan,
    number_text,
    probability_text,
    seconds,
)
from traincast.planner.answers.plan_sentences import differences
from traincast.step import MODEL_RESOLUTION

VP_WITHIN: Final = 0.005  # that fewer virtual stages may cost: the bubble is known better than the rest
# Knobs in which plans of a family differ.
VARIED: Final = ("vp", "mbs", "recompute", "recompute_every", "replicas", "order")
# Modules by the work that recomputing them repeats: elementwise, one product, core attention, many products.
RECOMPUTED_WORK: Final = (
    "norms",
    "gated_norm",
    "activation",
    "latent",
    "attention",
    "per-op",
    "mlp",
    "experts",
    "full",
)
_family_of = attrgetter(*(name for name in (*KNOBS, *CHOICES) if name not in (*VARIED, *PLACEMENTS)))
_run_of = attrgetter(*(name for name in (*KNOBS, *CHOICES) if name != "zero"))


Probability: TypeAlias = Callable[["Candidate"], float]  # that a plan fits
MOST_TIGHTENINGS: Final = 5  # of the memory that a plan may need, until it fits as probably as wanted
LESS_LIKELY: Final = (0.8, 0.6, 0.4, 0.2)  # probabilities of fitting tried where no plan's is as wanted


class Candidate(NamedTuple):
    """A placed plan with the two figures that rank it."""

    plan: Plan
    seconds: float  # of the step [s]
    memory: float  # of the fullest rank [byte]


def _differs(name: str) -> Callable[[Plan], bool]:
    """Return whether plans have another value of a knob than its default."""
    return lambda plan: bool(getattr(plan, name) != DEFAULTS[name])


# Settings that few runs use: between equal plans the one without them is recommended.
UNUSUAL: Final[Mapping[str, Callable[[Plan], bool]]] = {
    "offload": _differs("offload"),  # copies compete for the host's links
    "optimizer_kind": _differs("optimizer_kind"),  # can change convergence,
    "grad_dtype": _differs("grad_dtype"),  # as can rounding of accumulated gradients
    "master_copy": _differs("master_copy"),  # of one framework's optimizer
    "tp_kind": _differs("tp_kind"),  # frameworks in use shard in one dimension
    "TP over the slow network": lambda plan: (plan.fast_tp or 1) < plan.tp,  # exposed in every layer,
    "CP over the slow network": lambda plan: (plan.fast_cp or 1) < plan.cp,  # by ring or all-to-all
    "schedule": lambda plan: plan.schedule not in ("gpipe", "1f1b"),  # a backward pass split in two
    "replicas": _differs("replicas"),  # of the sharded state (HSDP)
    "order": _differs("order"),  # launchers number ranks by default
    "layout": _differs("layout"),  # stages of different sizes are set by hand
}


def unusual_knobs(plan: Plan) -> list[str]:
    """Return the names of the unusual knobs that a plan uses."""
    return [name for name, uses in UNUSUAL.items() if uses(plan)]


def parallel_axes(plan: Plan) -> list[str]:
    """Return the axes other than data parallelism over which a plan has several ranks."""
    return [axis for axis in (*AXES, "ep") if axis != "dp" and getattr(plan, axis) > 1]


def recomputed_work(plan: Plan) -> tuple[int, int, int]:
    """Return how much a plan recomputes, as a key of an order: the costliest module, how many, how often."""
    modules = plan.recomputed
    costliest = max((RECOMPUTED_WORK.index(module) for module in modules), default=-1)
    return costliest, len(modules), -plan.recompute_every


class Preference(NamedTuple):
    """What is preferred between plans of equal time, least first, and how a plan's is said."""

    about: str
    key: Callable[[Plan], Any]
    text: Callable[[Plan], str]
    within: float = math.inf  # share of the time of the fastest plan left that it may cost


PREFERENCES: Final = (
    Preference("the smallest micro-batch", lambda plan: plan.mbs, lambda plan: str(plan.mbs)),
    Preference("the least recomputation", recomputed_work, lambda plan: plan.recompute),
    Preference(
        "the fewest unusual knobs",
        lambda plan: len(unusual_knobs(plan)),
        lambda plan: ", ".join(unusual_knobs(plan)) or "none",
    ),
    Preference(
        "the fewest parallel axes besides dp",
        lambda plan: len(parallel_axes(plan)),
        lambda plan: ", ".join(parallel_axes(plan)) or "none",
    ),
    Preference("the fewest virtual stages", lambda plan: plan.vp, lambda plan: str(plan.vp), VP_WITHIN),
)


def explain_preference(plan: Plan, other: Plan) -> str:
    """Say what a plan is preferred to another for: the first of `PREFERENCES` in which they differ."""
    differ = (row for row in PREFERENCES if row.key(plan) != row.key(other))
    return next((f"{about} ({text(plan)} against {text(other)})" for about, _, text, _ in differ), "")


def distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates that are different runs: the lowest stage of ZeRO where nothing is sharded."""
    runs: dict[object, Candidate] = {}
    for one in candidates:
        sharded = one.plan.dp * one.plan.cp > one.plan.replicas
        run = _run_of(one.plan), one.seconds, one.plan.zero if sharded else None
        if run not in runs or one.plan.zero < runs[run].plan.zero:
            runs[run] = one
    return list(runs.values())


class Choice(NamedTuple):
    """The preferred one of several candidates, and what it has over the others."""

    candidate: Candidate
    because: list[str]  # preferences that others did not meet, and its speed where that decides the rest


def choose(candidates: Sequence[Candidate]) -> Choice:
    """Return the preferred candidate by `PREFERENCES`, then by time and memory.

    Of plans that differ in the micro-batch alone the fastest counts: which of them it is can be told, however
    little they differ (docs/uncertainty.md).
    """
    least: dict[object, float] = {}
    for candidate in candidates:
        layout = candidate.plan.layout_values
        least[layout] = min(candidate.seconds, least.get(layout, math.inf))
    left = [candidate for candidate in candidates if candidate.seconds == least[candidate.plan.layout_values]]
    because: list[str] = []
    by_time = False
    for about, key, text, within in PREFERENCES:
        limit = (1 + within) * min(candidate.seconds for candidate in left)
        near = [candidate for candidate in left if candidate.seconds <= limit]
        first = min(key(candidate.plan) for candidate in near)
        kept = [candidate for candidate in near if key(candidate.plan) == first]
        if len(kept) < len(near):
            because.append(f"{about} ({text(kept[0].plan)})")
        by_time |= len(kept) == len(near) < len(left)
        left = kept
    if by_time or len(left) > 1 or (len(candidates) > 1 and not because):
        because.append("the least time")
    return Choice(min(left, key=lambda candidate: candidate[1:]), because)


@dataclass(frozen=True)
class Recommendation:
    """The recommended plan, the fastest, and why they differ."""

    plan: Plan
    fastest: Plan
    sentences: Callable[[], "Reasons"] = field(default=lambda: Reasons([], [], ""), compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Return what makes an equal recommendation, worded: what words it holds the whole search."""
        return type(self), (self.plan, self.fastest, partial(_as_worded, self._reasons))

    @cached_property
    def _reasons(self) -> "Reasons":
        return self.sentences()

    @property
    def reason(self) -> str:
        """Why they differ, in sentences, worded when it is read."""
        reasons = self._reasons
        return " ".join([*reasons.fits, *reasons.equal, reasons.fastest]).strip()

    @property
    def deciding(self) -> str:
        """What decides in a sentence: what it has over equals, or that or why it is not the fastest.

        Two where no plan fits as likely as wanted: how likely this one does, and what a surer one costs.
        """
        reasons = self._reasons
        if not reasons.is_likely and reasons.fits:
            return " ".join(reasons.fits)
        return [*reasons.equal, reasons.fastest][0]


def _as_worded(reasons: "Reasons") -> "Reasons":
    """Return reasons that are worded already."""
    return reasons


class Reasons(NamedTuple):
    """Why a plan is recommended, in sentences."""

    fits: list[str]  # how likely it fits, where that is known
    equal: list[str]  # what it has over others of equal time, where there are any
    fastest: str  # what it costs against the fastest
    is_likely: bool = True  # whether it fits as probably as wanted


def recommend(
    near: Callable[[float, float], list[Candidate]],
    memory_with: Callable[[float], float],
    least_memory: Callable[[], float],
    probability: Probability | None,
    fitting: Callable[["Candidate"], float],
    wanted: float,
    within: float,
) -> Recommendation:
    """Recommend a plan of a search.

    Parameters
    ----------
    near
        Returns the candidates within a share of the fastest of those that need at most so much memory [byte],
        fastest first, as `Found.near` does.
    memory_with
        Returns the memory with which a plan fits with a probability [byte].
    least_memory
        Returns the least memory of all plans [byte].
    probability
        Probability that a plan fits; None where errors are not known. It may be less than that of other
        plans of as much memory, where the question leaves software open.
    fitting
        Returns the memory with which a plan would fit as wanted, others like it with it [byte].
    wanted : float
        Probability of fitting of the recommended plan, at least. Where no plan reaches it, the one of the
        most expected throughput is recommended, as one that does not fit trains nothing.
    within : float
        Share of the fastest time within which plans count as equally fast.
    """
    fastest = distinct(near(0.0, math.inf))[0]
    limit = memory_with(wanted)
    for _ in range(MOST_TIGHTENINGS):
        pool = distinct(near(within, limit))
        likely = choose(pool) if pool else None
        if likely is None or probability is None or probability(likely.candidate) >= wanted:
            break
        limit = min(fitting(likely.candidate), likely.candidate.memory * (1 - 1e-9))
        likely = None
    if likely is not None:
        chosen = likely.candidate
        because = likely.because
        surest = chosen
    else:
        limits = [*(memory_with(odds) for odds in LESS_LIKELY if odds < wanted), least_memory()]
        pool = []
        because = []
        chosen, surest = _of_less_likely(near, limits, probability, within)

    def sentences() -> Reasons:
        return Reasons(
            _fit_sentences(chosen, surest, probability, wanted, bool(pool)),
            _equal_sentences(because, len(pool), probability is not None, wanted, within),
            _fastest_sentence(fastest, chosen, probability, wanted),
            is_likely=bool(pool),
        )

    return Recommendation(chosen.plan, fastest.plan, sentences)


def _of_less_likely(
    near: Callable[[float, float], list[Candidate]],
    limits: Iterable[float],
    probability: Probability | None,
    within: float,
) -> tuple[Candidate, Candidate]:
    """Return the plan of the most expected throughput, and the surest, of those within some memories.

    Of each memory the preferred plan counts and the fastest.
    """
    chosen: dict[Plan, Candidate] = {}
    for limit in limits:
        if pool := distinct(near(within, limit)):
            chosen |= {candidate.plan: candidate for candidate in (choose(pool).candidate, pool[0])}

    def odds(candidate: Candidate) -> float:
        return 1.0 if probability is None else probability(candidate)

    most = max(chosen.values(), key=lambda candidate: odds(candidate) / candidate.seconds)
    return most, max(chosen.values(), key=odds)


def _fit_sentences(
    chosen: Candidate, surest: Candidate, probability: Probability | None, wanted: float, found: bool
) -> list[str]:
    """Say how likely the recommended plan fits, and which one is surer where none is as likely as wanted."""
    if probability is None:
        return []
    fits = probability_text(probability(chosen))
    if found:
        return [f"It fits with a probability of {fits}."]
    unlikely = f"No plan fits with a probability of {_percent(wanted)}"
    if surest.plan == chosen.plan:
        return [f"{unlikely}; this one is the likeliest to, with {fits}."]
    costs = f"takes {number_text(surest.seconds / chosen.seconds, 2)} times as long"
    return [
        f"{unlikely}; this one has the most expected throughput, with {fits}.",
        f"The surest, with {probability_text(probability(surest))}, {costs}: "
        f"{differences(surest.plan, chosen.plan)}.",
    ]


def _equal_sentences(
    because: Sequence[str], equal: int, uncertain: bool, wanted: float, within: float
) -> list[str]:
    """Say what the recommended plan has over others of equal time, where there are any that fit as wanted."""
    if equal < 2:
        return []
    fit = f" that fit with at least {_percent(wanted)} and" if uncertain else ", which"
    longer = f"take at most {_percent(within)} longer than the fastest of them"
    return [f"Of {equal:,} plans{fit} {longer}, it has {', then '.join(because)}."]


def _fastest_sentence(
    fastest: Candidate, chosen: Candidate, probability: Probability | None, wanted: float
) -> str:
    """Say what the recommended plan costs against the fastest."""
    if fastest.plan == chosen.plan:
        return "It is the fastest of all that fit."
    percent = 100 * (1 - fastest.seconds / chosen.seconds)
    gain = "takes as long" if percent < 0.005 else f"is {percent:.2g}% faster ({seconds(fastest.seconds)})"
    fits = None if probability is None else probability(fastest)
    risk = ""
    if fits is not None:
        under = "less than " if fits < wanted and probability_text(fits) == probability_text(wanted) else ""
        risk = f" {'but' if fits < wanted else 'and'} fits with {under}{probability_text(fits)}"
    return f"The fastest of all {gain}{risk}: {differences(fastest.plan, chosen.plan)}."


def _percent(share: float) -> str:
    """Format a share as a percentage of up to three digits."""
    return f"{100 * share:.3g}%"


@dataclass(frozen=True)
class Family:
    """Plans that differ in `VARIED` and placement alone, and are about as fast."""

    plan: Plan  # that stands for them
    alike: tuple[Candidate, ...]  # that plan may be among them
    KNOBS: ClassVar = VARIED  # in which they differ

    def others(self, knob: str) -> list[Any]:
        """Return the values that one of `VARIED` alone can have instead, ascending."""
        same = attrgetter(*(name for name in VARIED if name != knob))
        plans = [one.plan for one in self.alike if same(one.plan) == same(self.plan)]
        values = dict.fromkeys(getattr(plan, knob) for plan in sorted(plans, key=_order_of(knob)))
        return [value for value in values if value != getattr(self.plan, knob)]

    def varied_knobs(self) -> dict[str, list[object]]:
        """Return the knobs of which another value alone is about as fast, with these values."""
        others = {knob: self.others(knob) for knob in VARIED}
        return {knob: values for knob, values in others.items() if values}


def _order_of(knob: str) -> Callable[[Plan], Any]:
    return recomputed_work if knob == "recompute" else attrgetter(knob)


def families(
    candidates: Iterable[Candidate], first: Candidate, memory_limit: float, within: float
) -> list[Family]:
    """Group candidates, fastest first, into families: the plan that stands for each, and those alike.

    The family of `first` stands first, and `first` for it. Of others it is the plan that `choose` prefers of
    those at most `within` longer than the fastest that needs no more than the limit [byte], if one does.
    Alike are those whose time differs by at most `MODEL_RESOLUTION`.
    """
    groups: dict[object, list[Candidate]] = {_family_of(first.plan): []}
    for candidate in distinct(candidates):
        groups.setdefault(_family_of(candidate.plan), []).append(candidate)
    rows: list[tuple[Candidate, Family]] = []
    for members in groups.values():
        pool = [candidate for candidate in members if candidate.memory <= memory_limit] or members or [first]
        chosen = choose([one for one in pool if one.seconds <= pool[0].seconds * (1 + within)]).candidate
        chosen = chosen if rows else first
        low = chosen.seconds / (1 + MODEL_RESOLUTION)
        high = chosen.seconds * (1 + MODEL_RESOLUTION)
        alike = tuple(one for one in members if low <= one.seconds <= high)
        rows.append((chosen, Family(chosen.plan, alike)))
    return [rows[0][1], *(family for _, family in sorted(rows[1:], key=lambda row: row[0][1:]))]
