"""Check of a launch: step time and memory, the best plan of its framework, changes of settings that help."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

from traincast.catalog.load import as_model, as_system
from traincast.core.assumptions import Assumptions
from traincast.core.errors import ErrorCollector, InputError
from traincast.core.knobs import STRATEGIES
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.core.result import Doc, Result
from traincast.core.system import System
from traincast.launch.canonical import launch_facts
from traincast.launch.format import Format
from traincast.launch.formats import FORMATS
from traincast.launch.read import Reading, complete_launch, read
from traincast.launch.settings import value_text
from traincast.launch.suggestions import ChangeTester, Difference, EstimatedChange, single_changes
from traincast.planner.framework_spaces import Framework
from traincast.planner.search import Found, Progress, search
from traincast.step.arguments import check_assumptions, check_size
from traincast.step.estimate import Estimate, estimate

SHARED_CHOICES: Final = (
    "precision",
    "grad_dtype",
    "optimizer_kind",
    "attention",
)  # kept by every plan of the search
TRIAL_BATCH: Final = 8  # sequences; of plans that are written and read back to see what a format can express


@dataclass(frozen=True, repr=False)
class Checked:
    """Prediction of a launch, the best plan, and changes that help.

    Parameters
    ----------
    reading : Reading
        The launch that was read.
    est : Estimate
        The prediction of the launch.
    found : Found
        The search for better plans of the framework: same GPUs, batch and precision.
    """

    reading: Reading
    est: Estimate
    found: Found

    def __repr__(self) -> str:
        return f"<Checked {self.reading.path}: {self.est!r}>"

    @cached_property
    def bench(self) -> ChangeTester:
        """Estimator of changed settings."""
        form = self.reading.form
        return ChangeTester(self.est, form, form.stack(self.reading.settings))

    @cached_property
    def tried(self) -> list[EstimatedChange]:
        """Every change of a single setting, the fastest first, including those that do not fit."""
        return self.bench.try_all(single_changes(self.est.plan, self.est.model, self.found.framework))

    @property
    def changes(self) -> list[EstimatedChange]:
        """Single changes that fit and help, the fastest first; of several values of a setting the best.

        Where the launch itself fits, a change helps if it is faster.
        """
        best: dict[frozenset[str], EstimatedChange] = {}
        for change in self.tried:
            if change.est.fits and (not self.est.fits or change.step_seconds < float(self.est.step_seconds)):
                best.setdefault(frozenset(name for name, _, _ in change.settings), change)
        return list(best.values())

    @cached_property
    def together(self) -> EstimatedChange | None:
        """The best two or three changes together that fit, where they are faster than the best one."""
        combination, changes = self.bench.best_combination(self.tried), self.changes
        if combination is None:
            return None
        best_single = changes[0].step_seconds if changes else float(self.est.step_seconds)
        helps = combination.step_seconds < best_single or not (self.est.fits or changes)
        return combination if helps else None

    @property
    def gap(self) -> float | None:
        """Relative difference of its step time from that of the best plan; None where no plan fits."""
        best = self.found.best
        return None if best is None else float(self.est.step_seconds / best[1].step_seconds) - 1

    def gain(self, change: EstimatedChange) -> float:
        """Return the share of the step time that a change saves."""
        return 1 - float(change.est.step_seconds / self.est.step_seconds)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return self.record().to_dict()

    def record(self) -> "CheckRecord":
        """Return everything with meaning and unit, as `traincast check --json` prints it."""
        best, reading = self.found.best, self.reading
        return CheckRecord(
            file=reading.path,
            format=reading.form.name,
            read=list(reading.used),
            unread=[UnreadSetting(*unread) for unread in reading.unread],
            small=list(reading.small),
            not_understood=list(reading.not_understood),
            ignored=list(reading.ignored),
            assumed=list(reading.assumed),
            estimate=self.est,
            best=None if best is None else best[1],
            best_settings=[] if best is None else self.spelled(self.bench.differing(best[0])),
            longer_than_best=self.gap,
            changes=[self._change(change) for change in self.changes],
            together=None if self.together is None else self._change(self.together),
        )

    def spelled(self, settings: Iterable[Difference]) -> "list[DifferingSetting]":
        """Return settings that differ, as the framework spells them."""
        return [
            DifferingSetting(
                self.reading.form.spelled(name),
                None if old is None else value_text(old),
                None if new is None else value_text(new),
            )
            for name, old, new in settings
        ]

    def _change(self, change: EstimatedChange) -> "ChangeRecord":
        """Return a change with meaning and unit."""
        settings, memory = self.spelled(change.settings), float(change.est.memory_bytes)
        return ChangeRecord(settings, self.gain(change), change.step_seconds, memory)


@dataclass(frozen=True)
class DifferingSetting(Result):
    """A setting that differs, as the framework spells it; a switch that is set has the value on."""

    setting: Annotated[str, Doc("name of the setting, as the framework spells it")]
    old: Annotated[str | None, Doc("value now; null where it is not set, on where it has none", key="from")]
    new: Annotated[str | None, Doc("value then, the same way", key="to")]


@dataclass(frozen=True)
class UnreadSetting(Result):
    """A setting that matters and is not read."""

    setting: Annotated[str, Doc("name of the setting, as the framework spells it")]
    value: Annotated[str, Doc("its value; on where it has none")]
    why: Annotated[str, Doc("why it matters")]


@dataclass(frozen=True)
class ChangeRecord(Result):
    """Settings changed together."""

    settings: Annotated[list[DifferingSetting], Doc("settings that differ")]
    gain: Annotated[float, Doc("share of the step time that it saves")]
    step_seconds: Annotated[float, Doc("step time then", "s")]
    memory_bytes: Annotated[float, Doc("memory of the fullest rank then", "byte")]


@dataclass(frozen=True, kw_only=True)
class CheckRecord(Result):
    """A launch compared with the best plan of its framework, with meaning and unit."""

    file: Annotated[str, Doc("path of the file")]
    format: Annotated[str, Doc("name of its format")]
    read: Annotated[list[str], Doc("settings that the prediction uses")]
    unread: Annotated[
        list[UnreadSetting], Doc("settings that matter and are not read; none without `--accept-unread`")
    ]
    small: Annotated[list[str], Doc("settings of small effect, which is not predicted")]
    not_understood: Annotated[list[str], Doc("unknown settings")]
    ignored: Annotated[
        list[str], Doc("settings that change no step: logs, data, checkpoints, learning rates")
    ]
    assumed: Annotated[list[str], Doc("what is assumed because the file does not say it")]
    estimate: Annotated[Estimate, Doc("prediction of the launch")]
    best: Annotated[Estimate | None, Doc("best plan of the framework on the same GPUs; null where none fits")]
    best_settings: Annotated[list[DifferingSetting], Doc("settings of the best plan that differ")]
    longer_than_best: Annotated[
        float | None, Doc("relative difference of the step time from the best plan's")
    ]
    changes: Annotated[list[ChangeRecord], Doc("changes of one setting that fit and help, the fastest first")]
    together: Annotated[
        ChangeRecord | None, Doc("best two or three changes together, where they are better than one")
    ]


def check(
    path: str | Path,
    system: str | Path | System,
    model: str | Path | Model | None = None,
    gpus: int | None = None,
    gbs: int | None = None,
    framework: str | None = None,
    assumptions: str | Assumptions | None = None,
    knobs: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    accept_unread: bool = False,
) -> Checked:
    """Predict step time and memory of a launch script or configuration, and find settings to change.

    Parameters
    ----------
    path : str or Path
        The file: any of the formats that `export` writes, or a launch script with Megatron-LM's arguments.
    system : str, Path or System
        The machine, or its name or file.
    model : str, Path or Model, optional
        The model, where the file does not describe it; the sequence length of the file takes precedence.
    gpus, gbs : int, optional
        Accelerators and global batch [sequences], where the file does not give them.
    framework : str, optional
        Format of the file, a name of `FORMATS`; detected from its content if left out.
    assumptions : str or Assumptions, optional
        Assumptions; those of the framework's software stack if left out.
    knobs : mapping of str to value, optional
        Knobs and choices of the plan that the file does not set, such as ``{"recompute": "full"}``.
    progress : callable, optional
        Progress callback of the search, as for `search`.
    accept_unread : bool
        Whether to answer although settings that matter are not read; `Reading.unread` names them.

    Returns
    -------
    Checked
        The estimate, the best plan, and changes that help.

    Raises
    ------
    InputError
        If the file is unreadable or invalid, of an unsupported program or kind of training, does not give the
        number of GPUs, or has settings that matter and are not read; all mistakes at once.
    """
    errors = ErrorCollector(str(path))
    machine = errors.catch(as_system, system)
    given_model = None if model is None else errors.catch(as_model, model)
    reading = errors.catch(read, path, FORMATS, framework)
    stack = "calibrated" if reading is None else reading.form.stack(reading.settings)
    assumed = errors.catch(check_assumptions, assumptions, stack)
    completed = None
    if reading is not None:
        seq = reading.facts.get("seq")
        if given_model is not None and seq not in (None, given_model.seq):
            given_model = errors.catch(lambda old: replace(old, seq=seq), given_model)
        if not accept_unread:
            errors.catch(reading.check_unread)
        completed = errors.catch(complete_launch, reading, given_model, gpus, gbs, knobs or {})
    if completed is not None:
        errors.catch(check_size, machine, completed[2].gpus)
    reading, transformer, plan, batch = errors.require(completed)
    machine, assumed = errors.require(machine), errors.require(assumed)
    try:
        est = estimate(transformer, machine, plan, gbs=batch, assumptions=assumed)
    except InputError as error:
        raise InputError(reading.path, error.problems) from None
    form = reading.form
    refusals = (
        f"{form.title} runs this launch, although it should refuse it: {refusal.why}"
        for refusal in form.refused(launch_facts(transformer, plan, batch) | {"stack": stack})
    )
    reading = replace(reading, assumed=(*reading.assumed, *refusals))
    locks = {
        name: value for name in SHARED_CHOICES if (value := getattr(plan, name)) != getattr(Plan(), name)
    }
    space, pipeline_locks = expressible_space(form, transformer, locks | {"stack": stack})
    result = search(
        transformer,
        machine,
        gpus=plan.gpus,
        gbs=batch,
        assumptions=assumed,
        top=1,
        progress=progress,
        locks=locks | pipeline_locks,
        framework=space,
    )
    return Checked(reading, est, result)


def expressible_space(
    form: Format, model: Model, locked: Mapping[str, Any]
) -> tuple[Framework, dict[str, Any]]:
    """Return the choices that a format can express and its framework runs, and knobs that are locked at 1.

    `locked` has the locked choices, and the software stack by name as `stack`. Some choices can be expressed
    for models with experts only.
    """

    def runs(name: str, value: Any) -> bool:
        plan = Plan(tp=2, pp=2, dp=2, **{name: value})
        return _can_express(form, model, plan, name) and not form.refused({**locked, name: value})

    space = form.space
    choices = {
        name: tuple(value for value in values if runs(name, value)) or values
        for name, values in space.choices.items()
        if name != "schedule"
    }
    strategies = _expressible_strategies(form, model, space)
    has_pipeline = _can_express(form, model, Plan(pp=2, dp=2), "pp")
    space = replace(space, strategies=strategies, choices={**space.choices, **choices})
    return space, {} if has_pipeline else {"pp": 1}


def _expressible_strategies(form: Format, model: Model, space: Framework) -> tuple[str, ...]:
    """Return the strategies that a format can express, all-gather context parallelism in place of others."""

    def expressible(name: str) -> bool:
        kind = STRATEGIES[name].choices["cp_kind"]
        return kind == "none" or _can_express(form, model, Plan(cp=2, dp=2, cp_kind=kind), "cp_kind")

    strategies = tuple(filter(expressible, space.strategies))
    if strategies == space.strategies or not expressible("context"):
        return strategies
    return tuple(dict.fromkeys((*strategies, "context")))


def _can_express(form: Format, model: Model, plan: Plan, name: str) -> bool:
    """Return whether a format can express a knob or choice of a plan."""
    facts = launch_facts(model, plan, TRIAL_BATCH) | {"per_node": 1}
    read_back = form.facts(form.settings(facts), ErrorCollector(form.name))
    return bool(facts.get(name) == read_back.get(name, getattr(Plan(), name)))
