"""One plan in an answer: its time and memory, and the plan in words."""

from typing import Annotated

from traincast.core import Column, Doc, Plan, Result
from traincast.planner.answers.plan_sentences import plan_in_words
from traincast.step import Answer


class ParetoPlan(Result):
    """Time and memory of one plan."""

    strategy: Annotated[str, Doc("strategy that shards a layer")]
    plan: Annotated[Plan, Doc("every knob and choice of the plan by name")]
    step_seconds: Annotated[Column, Doc("time of one optimizer step", "s")]
    memory_bytes: Annotated[Column, Doc("memory of the fullest rank", "byte")]


class DescribedPlan(ParetoPlan):
    """Time and memory of one plan, and the plan in words."""

    in_words: Annotated[str, Doc("the plan in words")]
    fits_probability: Annotated[
        Column | None, Doc("probability that it fits, where errors are known", optional=True)
    ] = None

    @classmethod
    def from_answer(cls, answer: Answer) -> "DescribedPlan":
        """Return the description of a plan with its estimate."""
        plan, est = answer
        words = plan_in_words(plan, est.system.tiers)
        figures = plan, est.step_seconds, est.memory_bytes, words, est.fits_probability
        return cls(est.strategy, *figures)
