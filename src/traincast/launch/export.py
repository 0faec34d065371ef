"""What is written: the launch of a plan for a framework."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final

from traincast.core.errors import InputError, NothingFits, unknown
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.core.system import System
from traincast.core.units import gib, many, within
from traincast.core.version import __version__
from traincast.launch.canonical import facts
from traincast.launch.format import Format, Writing, not_expressed
from traincast.launch.formats import FORMATS as FORMATS
from traincast.launch.mapping import written
from traincast.planner.search import Found
from traincast.step.estimate import Estimate

PLANNED: Final = frozenset((*(one.name for one in fields(Plan)), "chunks", "placement"))  # facts of a plan
HOST: Final = 8  # accelerators of a node whose fast domain is larger; 4 in domains of 36 and 72


@dataclass(frozen=True)
class Launch:
    """A plan as a framework is told it.

    Parameters
    ----------
    to : str
        The format.
    text : str
        The file.
    not_expressed : dict of str to str
        What the framework cannot be told: a fact by name, its value and why.
    ending : str
        The ending of a file's name.
    settings : dict of str to value
        Every setting with a meaning for the prediction, by name.
    est : Estimate or None
        What is predicted of it.
    """

    to: str
    text: str
    not_expressed: dict[str, str]
    ending: str
    settings: dict[str, object] = field(default_factory=dict, repr=False)
    est: Estimate | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.text


def export(what: Estimate | Found, to: str = "megatron") -> Launch:
    """A plan as a launch script or configuration of a training framework.

    Parameters
    ----------
    what : Estimate or Found
        An estimate of one plan, or a search, of whose plans the best is taken that the format can say in full (else the best).
    to : str
        The format: one of `FORMATS`.

    Returns
    -------
    Launch
        The text, and what the framework cannot express.

    Raises
    ------
    InputError
        If there is no such format, or the estimate is of columns of plans.
    NothingFits
        If the search found no plan.
    """
    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    est = _one(what, FORMATS[to])
    assert isinstance(est.plan, Plan)
    return replace(
        launch(FORMATS[to], est.model, est.plan, est.gbs, est.system, _predicted(est, what), est.assumptions.name), est=est
    )


def launch(
    form: Format, model: Model, plan: Plan, gbs: int, system: System, head: Sequence[str] = (), stack: str | None = None
) -> Launch:
    """A plan in a format.

    Parameters
    ----------
    form : Format
        The format.
    model, plan, gbs, system : Model, Plan, int, System
        What is trained, how, the global batch [sequences], and where.
    head : sequence of str
        Lines that stand above.
    stack : str, optional
        The software stack by name, where the framework has several.
    """
    told = facts(model, plan, gbs, system) | {"per_node": per_node(system, plan.gpus), "stack": stack}
    settings = written(form.rows, form.accepted(told))
    flat = {name: value for section in settings.values() for name, value in section.items()}
    draft = form.text(Writing(told, settings, (), model.name))
    unsaid = not_expressed(form, form.settings(draft), told, model)
    batch = f"{many(gbs, 'sequence')} of {model.seq:,} tokens"
    above = (
        f"{model.title} on {many(plan.gpus, 'GPU')} of {system.name} with {form.title}, by traincast {__version__}",
        f"plan: {plan}; a step: {batch}",
        *head,
        f"names: {form.source}",
        *(("not expressed:", *(f"  {line}" for line in unsaid.values())) if unsaid else ()),
    )
    return Launch(form.name, form.text(Writing(told, settings, above, model.name)), unsaid, form.ending, flat)


def _one(what: Estimate | Found, form: Format) -> Estimate:
    """The estimate of one plan: of a search the best that the format can say in full, or else the best."""
    if isinstance(what, Found):
        if what.best is None:
            raise NothingFits(str(what.explain()))
        said = (est for plan, est in what.plans if _is_said(form, est, plan))
        return next(said, what.best[1])
    if not isinstance(what, Estimate) or not isinstance(what.plan, Plan):
        raise InputError("export", ["what: must be an estimate of one plan, or a search"])
    return what


def _is_said(form: Format, est: Estimate, plan: Plan) -> bool:
    """Whether a format can say a plan in full, whatever it cannot say of the model."""
    return not set(launch(form, est.model, plan, est.gbs, est.system, stack=est.assumptions.name).not_expressed) & PLANNED


def per_node(system: System, gpus: int) -> int:
    """Accelerators of a node: as many as a fast domain has, but at most 8, that divide those of the job."""
    host = 4 if system.fast_domain % 36 == 0 else HOST
    return next(n for n in range(min(system.domain(gpus), host), 0, -1) if gpus % n == 0)


def _predicted(est: Estimate, what: Estimate | Found) -> tuple[str, ...]:
    """What is predicted, in a line, and one on faster plans that cannot be said in full."""
    faster = [one for _, one in what.plans if one.step_seconds < est.step_seconds] if isinstance(what, Found) else []
    more = f"{many(len(faster), 'plan')} of the search are faster (the best {faster[0].step_seconds:.4g} s)" if faster else ""
    without = (f"{more}, and cannot be said in full",) if faster else ()
    time, limits = float(est.step_seconds), est.interval
    span = f"{within(time, float(limits[0]), float(limits[1]))}, 90%)" if limits else f"{time:.4g} s"
    memory = f"{gib(float(est.memory_bytes))} of {gib(float(est.system.accelerator.hbm_bytes))}"
    return (f"predicted: {span} a step, {memory}{'' if est.fits else ', which does not fit'}", *without)
