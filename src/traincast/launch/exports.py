"""Export of a plan as a launch script or configuration of a training framework."""

from traincast.core import InputError, require_known
from traincast.launch.formats import FORMATS
from traincast.launch.write import PLAN_FACTS, Launch, export_estimate
from traincast.planner import Found
from traincast.step import Estimate


def export(what: Estimate | Found, to: str = "megatron", *, beside: frozenset[str] = frozenset()) -> Launch:
    """Export a plan as a launch script or configuration of a training framework.

    Parameters
    ----------
    what : Estimate or Found
        An estimate, or a search: its best plan that keeps the framework's rules and that the format can
        express in full, else the best that keeps them.
    to : str
        The format: one of `FORMATS`.
    beside : set of str
        Facts of a plan that need not be expressed: what the user states beside the file.

    Returns
    -------
    Launch
        The text, and what the format cannot express.

    Raises
    ------
    InputError
        If there is no such format, the estimate is not of one plan, the plan breaks rules of the framework,
        the system has TPUs, or the format describes models and cannot express the model's adapters or kinds
        of layers.
    NothingFits
        If the search found no plan.
    """
    require_known("format", to, FORMATS)
    form = FORMATS[to]
    plans: list[Estimate] = []
    if isinstance(what, Found):
        _, best = what.require_best()
        needed = PLAN_FACTS - beside
        plans = [plan for _, plan in what.plans]
        kept = [plan for plan in plans if not form.space.broken(plan.model, plan.plan, plan.gbs)]
        # What cannot be expressed of the model does not count.
        in_full = (plan for plan in kept if not needed & set(export_estimate(plan, form).not_expressed))
        est = next(in_full, kept[0] if kept else best)
    elif isinstance(what, Estimate):
        est = what
    else:
        raise InputError("export", ["what: must be an estimate of one plan, or a search"])
    return export_estimate(est, form, plans)
