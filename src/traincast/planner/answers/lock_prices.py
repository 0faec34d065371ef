"""What the knobs that a user holds cost: the recommended plan with them against that without them."""

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property
from typing import Annotated, Any, Final

from traincast.core import Doc, Result, number_text, probability_text, seconds
from traincast.model import Model
from traincast.planner.answers.described_plan import DescribedPlan
from traincast.planner.answers.differences import Ratio, ratio
from traincast.planner.answers.plan_sentences import MIN_CHANGE_REPORTED, compare_with_best, without_placement
from traincast.planner.frameworks.locks import SEARCHED, lock_values
from traincast.planner.frameworks.spaces import Framework
from traincast.step import Answer

Search = Any  # a `Found`, whose module imports this one
EXPERT_DEGREES: Final = ("ep", "etp")


class LockPrice(Result, kw_only=True):
    """What locks cost: the recommended plan of the search against that of the same search without them."""

    locks: Annotated[dict[str, Any], Doc("knobs that are let go, and the values held", kind="object")]
    held: Answer | None = field(repr=False)  # recommended with them; None where nothing fits
    free: Answer = field(repr=False)  # recommended without them

    @property
    def recommended(self) -> Annotated[DescribedPlan, Doc("the plan recommended without them")]:
        """The plan recommended without the locks."""
        return DescribedPlan.from_answer(self.free)

    @property
    def cost_seconds(
        self,
    ) -> Annotated[float | None, Doc("how much longer a step is with them; null where nothing fits", "s")]:
        """How much longer a step is with the locks, negative where it is shorter [s]."""
        if self.held is None:
            return None
        return float(self.held[1].step_seconds - self.free[1].step_seconds)

    @cached_property
    def error(
        self,
    ) -> Annotated[Ratio | None, Doc("time with them over that without, where errors are known")]:
        """The time with the locks over that without them, with its error."""
        return None if self.held is None else ratio(self.held[1], self.free[1])


def lock_names(locks: Mapping[str, object], equals: str = "=") -> str:
    """Return locks as knobs of a plan: ``tp=16, recompute=full or none``."""
    return ", ".join(
        f"{name}{equals}{' or '.join(map(str, lock_values(name, value)))}" for name, value in locks.items()
    )


def searched_locks(framework: Framework, model: Model, locks: Mapping[str, object]) -> dict[str, object]:
    """Return the locks on what a framework searches, not those that ask for another recipe or program.

    A lock on a choice of which it searches one value, such as a precision, is no limit on the search but
    another question.
    """
    fixed = set() if framework.searches_replicas(model) else {"replicas"}
    if model.experts is None or not framework.experts:
        fixed.update(EXPERT_DEGREES)
    searched = {*SEARCHED, *framework.varied} - fixed
    return {name: value for name, value in locks.items() if name in searched}


def is_cost(price: LockPrice, search: Search) -> bool:
    """Return whether locks cost time, or a plan that fits as likely as wanted.

    Times that the search counts as equally fast cost nothing.
    """
    return price.held is None or _is_slower(price, search) or _is_less_likely(price, search)


def _is_slower(price: LockPrice, search: Search) -> bool:
    """Return whether the plan with the locks takes longer than what counts as equally fast."""
    equal = max(search.within or 0.0, MIN_CHANGE_REPORTED)
    return (price.cost_seconds or 0.0) > equal * float(price.free[1].step_seconds)


def _is_less_likely(price: LockPrice, search: Search) -> bool:
    """Return whether only the plan without the locks fits as likely as wanted."""
    held = None if price.held is None else price.held[1].fits_probability
    free = price.free[1].fits_probability
    return held is not None and free is not None and bool(held < search.fit_probability <= free)


def lock_sentence(search: Search) -> str:
    """Return what all locks together cost in a sentence; empty where that is nothing, or there are none."""
    price: LockPrice | None = search.lock_price
    if price is None or not is_cost(price, search):
        return ""
    plan, est = price.free
    names = lock_names(price.locks)
    free = f"{seconds(est.step_seconds)} with {without_placement(plan)}"
    without = "without it" if len(price.locks) == 1 else "without them"
    if price.held is None or price.cost_seconds is None:
        return f"Nothing fits with {names}; {without}: {free}."
    fits = ""
    if _is_less_likely(price, search):
        likelihoods = price.held[1].fits_probability or 0.0, est.fits_probability or 0.0
        with_locks, odds = map(probability_text, likelihoods)
        fits = f", which fits with {odds} instead of {with_locks}"
    if not _is_slower(price, search):
        return f"{names}: a plan fits more surely {without}: {free}{fits}."
    costs = "costs" if len(price.locks) == 1 else "together cost"
    share = f"{_digits(price.cost_seconds / float(est.step_seconds))}{_error(price)}"
    return f"{names} {costs} {seconds(price.cost_seconds)} a step ({share}); {without}: {free}{fits}."


def _error(price: LockPrice) -> str:
    """Return the error of what locks cost, and whether it is more than that."""
    if price.error is None:
        return ""
    unsure = "" if price.error.exceeds_error else ", less than the model can tell"
    return f" ± {_digits(price.error.error)}{unsure}"


def _digits(share: float) -> str:
    """Return a share as a percentage of two digits, or all of a larger one."""
    return f"{number_text(100 * share, 2)}%"


def lock_lines(search: Search) -> Iterator[str]:
    """Yield what locks cost, all together and each alone: the plans without them, and what differs."""
    for place, price in enumerate(search.lock_prices):
        names = f"{lock_names(price.locks)} alone" if place else lock_names(price.locks)
        plan, est = price.free
        odds = "" if est.fits_probability is None else f"; fits with {probability_text(est.fits_probability)}"
        if price.held is None:
            if place and plan == search.lock_prices[0].free[0]:
                continue  # the others are no obstacle
            yield f"Without {names} a plan fits: {seconds(est.step_seconds)}  {plan}{odds}"
        elif is_cost(price, search):
            line, causes = compare_with_best(price.free, price.held)
            yield f"Without {names}: {line}"
            yield f"    {causes}{odds}"
        elif price.held[0] == plan:
            yield f"{names}: costs nothing; the same plan is recommended without."
        else:
            counts = "is no faster" if price.cost_seconds <= 0 else "counts as equally fast"
            yield f"{names}: costs nothing; {seconds(est.step_seconds)} without {counts}."
