"""Validity of plans as named rules: each is a boolean column and the reason a user reads (arXiv 2410.00273, search space)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traincast.columns import Column
from traincast.errors import InputError
from traincast.model import Model
from traincast.plan import AXES, Plan, Plans

Mask = NDArray[np.bool_]
MIN_WIDTH: Final = 128  # narrowest slice of a width or of the sequence that is searched


@dataclass(frozen=True)
class Rule:
    """A condition that plans must meet.

    `broken` is what a user reads where it is not met; a rule that is `search_only` narrows the search but does not forbid a plan
    given by hand.
    """

    broken: str
    holds: Callable[[Model, Plans, int], Any]
    search_only: bool = False


def _narrowest(model: Model, plan: Plans) -> Column:
    """Width of the narrowest slice of a linear layer: of 3e for 1-D, of e otherwise."""
    one_d = plan.tp_kind == "1d" and plan.cp_kind == "none"
    return (3 * model.hidden if one_d else model.hidden) // plan.tp


RULES: Final = (
    Rule("tp does not divide the attention heads", lambda model, plan, gbs: model.heads % plan.tp == 0),
    Rule("tp does not divide the hidden width", lambda model, plan, gbs: model.hidden % plan.tp == 0),
    Rule("tp2 does not divide the hidden width", lambda model, plan, gbs: model.hidden % plan.tp2 == 0),
    Rule(f"tp cuts a width below {MIN_WIDTH}", lambda model, plan, gbs: _narrowest(model, plan) >= MIN_WIDTH, search_only=True),
    Rule(
        f"tp2 or cp cuts the sequence below {MIN_WIDTH} tokens",
        lambda model, plan, gbs: (plan.context == 1) | (model.seq // plan.context >= MIN_WIDTH),
        search_only=True,
    ),
    Rule("pp does not divide the layers", lambda model, plan, gbs: model.layers % plan.pp == 0),
    Rule("dp does not divide the global batch", lambda model, plan, gbs: gbs % plan.dp == 0),
    Rule("mbs does not divide the batch of a replica", lambda model, plan, gbs: gbs % (plan.dp * plan.mbs) == 0),
    Rule(
        "the tokens of a micro-batch do not divide over the tensor ranks",
        lambda model, plan, gbs: plan.mbs * model.seq % (plan.tp2 if plan.tp_kind == "summa" else plan.tp * plan.cp) == 0,
    ),
)


def check(model: Model, plan: Plans, gbs: int, domain: int) -> dict[str, Mask]:
    """Which rules a batch of plans breaks.

    Parameters
    ----------
    model : Model
        The transformer.
    plan : Plans
        Plans, one or columns of them.
    gbs : int
        Global batch [sequences].
    domain : int
        Accelerators in a fast domain.

    Returns
    -------
    dict of str to boolean column
        Reason → rows that break the rule; only rules that some row breaks. Rules that merely narrow the search are left out.
    """
    held = {rule.broken: np.asarray(rule.holds(model, plan, gbs)) for rule in RULES if not rule.search_only}
    for axis in AXES:
        degree, fast = plan.group(axis)
        held[f"fast_{axis} does not divide {axis}"] = np.asarray(degree % fast == 0)
    placed = plan.fast_tp * plan.fast_tp2 * plan.fast_cp * plan.fast_dp * plan.fast_pp
    held[f"the placement puts more than the {domain} members of a fast domain into one"] = np.asarray(placed <= domain)
    return {reason: ~mask for reason, mask in held.items() if not mask.all()}


def require(model: Model, plan: Plan | Plans, gbs: int, domain: int) -> None:
    """Refuse plans that break a rule.

    Raises
    ------
    InputError
        Naming every broken rule, with the values for a single plan and the number of rows for columns.
    """
    if isinstance(plan, Plan):
        problems = [f"{reason} ({_values(reason, model, plan, gbs)})" for reason in check(model, plan.columns(), gbs, domain)]
    else:
        problems = [f"{reason} ({int(rows.sum())} of {rows.size} rows)" for reason, rows in check(model, plan, gbs, domain).items()]
    if problems:
        raise InputError("plan", problems)


def _values(reason: str, model: Model, plan: Plan, gbs: int) -> str:
    """Figures a reason speaks of."""
    words = reason.replace("micro-batch", "mbs").replace("tensor ranks", "tp cp tp2").replace("replica", "gbs dp").split()
    named = [f"{knob} = {value}" for knob, value in plan.knobs().items() if knob in words]
    facts = {"heads": model.heads, "hidden": model.hidden, "layers": model.layers, "global": gbs, "gbs": gbs, "tokens": model.seq}
    labels = {"global": "gbs", "tokens": "seq"}
    return ", ".join(named + [f"{labels.get(word, word)} = {value}" for word, value in facts.items() if word in words])
