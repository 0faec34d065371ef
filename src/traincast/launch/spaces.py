"""What is searched for a format: what its framework can run, as far as the format can say it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from traincast.core.errors import Mistakes
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.core.plan_choices import STRATEGIES
from traincast.launch.facts import facts
from traincast.launch.formats import Format, flat
from traincast.planner.framework_spaces import Framework
from traincast.planner.framework_spaces import framework as known_framework

BATCH = 8  # of the plans that are tried


def space_of(form: Format, model: Model, held: Mapping[str, Any]) -> tuple[Framework, dict[str, Any]]:
    """Choices that a format can say and its framework runs, and knobs that are held at 1 since it cannot say them.

    Parameters
    ----------
    form : Format
        The format.
    model : Model
        What is trained: some choices are said for models with experts only.
    held : mapping of str to value
        Choices that are held at one value, and `stack`, the software stack by name.

    Returns
    -------
    (Framework, dict of str to int)
        The space, and locks of a search.
    """
    space = known_framework(form.framework)
    choices = {
        name: tuple(
            value
            for value in values
            if _says(form, model, Plan(tp=2, pp=2, dp=2, **{name: value}), name) and not form.refused({**held, name: value})
        )
        or values
        for name, values in space.choices.items()
        if name != "schedule"
    }
    piped = _says(form, model, Plan(pp=2, dp=2), "pp")
    strategies = _strategies(form, model, space)
    return replace(space, strategies=strategies, choices={**space.choices, **choices}), {} if piped else {"pp": 1}


def _strategies(form: Format, model: Model, space: Framework) -> tuple[str, ...]:
    """Strategies that a format can say; where one of a framework's cannot be said, gathered keys and values if that can."""

    def says(name: str) -> bool:
        kind = STRATEGIES[name].choices["cp_kind"]
        return kind == "none" or _says(form, model, Plan(cp=2, dp=2, cp_kind=kind), "cp_kind")

    said = tuple(filter(says, space.strategies))
    return said if said == space.strategies or not says("context") else tuple(dict.fromkeys((*said, "context")))


def _says(form: Format, model: Model, plan: Plan, name: str) -> bool:
    """Whether a format can say a knob or choice of a plan."""
    own = facts(model, plan, BATCH) | {"per_node": 1}
    back = form.facts(flat(form, own), Mistakes(form.name))
    return bool(own.get(name) == back.get(name, getattr(Plan(), name)))
