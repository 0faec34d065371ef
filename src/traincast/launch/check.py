"""A launch held against what could be: what it will take, whether it fits, how far from the best plan, and what to change."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from traincast.catalog.load import as_model, as_system
from traincast.core.assumptions import Assumptions
from traincast.core.errors import ErrorCollector, InputError
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.core.plan_choices import STRATEGIES
from traincast.core.system import System
from traincast.launch.canonical import facts
from traincast.launch.format import Format, flat
from traincast.launch.formats import FORMATS
from traincast.launch.read import Reading, launch_of, read, said
from traincast.launch.suggestions import Bench, Tried, single
from traincast.planner.framework_spaces import Framework
from traincast.planner.framework_spaces import framework as known_framework
from traincast.planner.search import Found, Progress, search
from traincast.step.arguments import check_assumptions, check_size
from traincast.step.estimate import Estimate, estimate

HELD: Final = ("precision", "grad_dtype", "optimizer_kind", "attention")  # as in the file in every plan it is held against


@dataclass(frozen=True, repr=False)
class Checked:
    """What is to be said of a launch.

    Parameters
    ----------
    reading : Reading
        What was read.
    est : Estimate
        What is predicted of it.
    found : Found
        The search for better plans: same GPUs, batch and precision, what the framework can run and be told.
    """

    reading: Reading
    est: Estimate
    found: Found

    def __repr__(self) -> str:
        return f"<Checked {self.reading.path}: {self.est!r}>"

    @cached_property
    def bench(self) -> Bench:
        """Where changes are tried."""
        return Bench(self.est, self.reading.form, _stack(self.reading, self.found.framework))

    @cached_property
    def tried(self) -> list[Tried]:
        """Every change of one thing, the fastest first, those that do not fit included."""
        assert isinstance(self.est.plan, Plan)
        return self.bench.all(list(single(self.est.plan, self.est.model, self.found.framework)))

    @property
    def changes(self) -> list[Tried]:
        """Changes of one thing that fit and help, the fastest first; of several values of a setting the best.

        Where the launch fits itself, those that help are faster.
        """
        own = float(self.est.step_seconds)
        helping = [one for one in self.tried if one.est.fits and (not self.est.fits or float(one.est.step_seconds) < own)]
        best: dict[frozenset[str], Tried] = {}
        for one in helping:
            best.setdefault(frozenset(name for name, _, _ in one.settings), one)
        return list(best.values())

    @cached_property
    def together(self) -> Tried | None:
        """The best two or three changes together that fit, where they are faster than one."""
        found = self.bench.together(self.tried)
        one = self.changes[0].est.step_seconds if self.changes else self.est.step_seconds
        helps = found is not None and (float(found.est.step_seconds) < float(one) or not (self.est.fits or self.changes))
        return found if helps else None

    @property
    def gap(self) -> float | None:
        """By how much its step is longer than that of the best plan, as a share; None where no plan fits."""
        best = self.found.best
        return None if best is None else float(self.est.step_seconds / best[1].step_seconds) - 1

    def gain(self, one: Tried) -> float:
        """By how much a change makes the step shorter, as a share."""
        return 1 - float(one.est.step_seconds / self.est.step_seconds)

    def to_dict(self) -> dict[str, Any]:
        """All of it, for machines."""
        best = self.found.best
        return {
            "file": self.reading.path,
            "format": self.reading.form.name,
            "read": list(self.reading.used),
            "unread": [dict(zip(("setting", "value", "why"), one, strict=True)) for one in self.reading.unread],
            "small": list(self.reading.small),
            "not_understood": list(self.reading.not_understood),
            "ignored": list(self.reading.ignored),
            "assumed": list(self.reading.assumed),
            "estimate": self.est.summary(),
            "best": None if best is None else best[1].summary(),
            "best_settings": [] if best is None else self.spelled(self.bench.differing(best[0])),
            "longer_than_best": self.gap,
            "changes": [self._change(one) for one in self.changes],
            "together": None if self.together is None else self._change(self.together),
        }

    def spelled(self, settings: tuple[tuple[str, Any, Any], ...]) -> list[dict[str, Any]]:
        """Settings that differ, as the framework spells them."""
        names = ("setting", "from", "to")
        return [
            dict(
                zip(
                    names,
                    (self.reading.form.spelled(name), *(None if one is None else said(one) for one in (old, new))),
                    strict=True,
                )
            )
            for name, old, new in settings
        ]

    def _change(self, one: Tried) -> dict[str, Any]:
        """A change for machines."""
        return {
            "settings": self.spelled(one.settings),
            "gain": self.gain(one),
            "step_seconds": float(one.est.step_seconds),
            "memory_bytes": float(one.est.memory_bytes),
        }


def check(
    path: str | Path,
    system: str | Path | System,
    model: str | Path | Model | None = None,
    gpus: int | None = None,
    gbs: int | None = None,
    framework: str | None = None,
    assumptions: str | Assumptions | None = None,
    knobs: Mapping[str, Any] | None = None,
    told: Progress | None = None,
    accept_unread: bool = False,
) -> Checked:
    """What a launch script or configuration will take, and what to change about it.

    Parameters
    ----------
    path : str or Path
        The file: any of the formats that `export` writes, or a launch script with Megatron-LM's arguments.
    system : str, Path or System
        The machine, or its name or file.
    model : str, Path or Model, optional
        The model, where the file does not describe it; its sequence length gives way to that of the file.
    gpus, gbs : int, optional
        Accelerators and global batch [sequences], where the file does not say.
    framework : str, optional
        What the file is, where its content should not decide: a name of `FORMATS`.
    assumptions : str or Assumptions, optional
        What is assumed; the software of the framework if left out.
    knobs : mapping of str to value, optional
        Knobs and choices of the plan that the file does not say, such as ``{"recompute": "full"}``.
    told : callable, optional
        Hears of the search, as for `search`.
    accept_unread : bool
        Whether to answer although settings that matter are not read; `Reading.unread` names them.

    Returns
    -------
    Checked
        The estimate, the best plan, and changes that help.

    Raises
    ------
    InputError
        If the file cannot be read, is of a program or a training that is not supported, says nothing of how many GPUs there are,
        has settings that matter and are not read, or what it says cannot be; all mistakes at once.
    """
    mistakes = ErrorCollector(str(path))
    machine = mistakes.catch(as_system, system)
    given = None if model is None else mistakes.catch(as_model, model)
    reading = mistakes.catch(read, path, FORMATS, framework)
    space = None if reading is None else known_framework(reading.form.framework)
    assumed = mistakes.catch(check_assumptions, assumptions, "calibrated" if space is None else _stack(reading, space))
    if reading is not None and given is not None and "seq" in reading.told and given.seq != reading.told["seq"]:
        given = mistakes.catch(_with_seq, given, reading.told["seq"])
    if reading is not None and not accept_unread:
        mistakes.catch(reading.check_unread)
    whole = None if reading is None else mistakes.catch(launch_of, reading, given, gpus, gbs, knobs or {})
    if whole is not None:
        mistakes.catch(check_size, machine, whole[2].gpus)
    reading, transformer, plan, batch = mistakes.require(whole)
    sure = mistakes.require
    assert space is not None
    stack = _stack(reading, space)
    est = _estimate(reading, transformer, sure(machine), plan, batch, sure(assumed))
    reading = _doubted(reading, transformer, plan, batch, stack)
    locks = _locks(est)
    space, held = space_of(reading.form, transformer, locks | {"stack": stack})
    locks |= held
    found = search(transformer, sure(machine), plan.gpus, batch, sure(assumed), top=1, told=told, locks=locks, framework=space)
    return Checked(reading, est, found)


def _stack(reading: Reading | None, space: Framework) -> str:
    """The software that predicts a launch."""
    if reading is None or reading.form.stack is None:
        return space.assumptions
    return reading.form.stack(reading.settings)


def _doubted(reading: Reading, model: Model, plan: Plan, gbs: int, stack: str) -> Reading:
    """A reading, with what its framework refuses about it among what is taken for granted."""
    wrong = reading.form.refused(facts(model, plan, gbs) | {"stack": stack})
    lines = (f"that {reading.form.title} runs this launch, which it refuses: {one.why}" for one in wrong)
    return replace(reading, assumed=(*reading.assumed, *lines))


def _with_seq(model: Model, seq: int) -> Model:
    """A model with the length of sequences of a file."""
    return replace(model, seq=seq)


def _estimate(reading: Reading, model: Model, system: System, plan: Plan, gbs: int, assumed: Assumptions) -> Estimate:
    """The estimate of what was read; what it breaks is said of the file."""
    try:
        return estimate(model, system, plan, gbs, assumed)
    except InputError as error:
        raise InputError(reading.path, error.problems) from None


def _locks(est: Estimate) -> dict[str, Any]:
    """What is trained, and not how: the same in every plan it is held against."""
    usual = Plan()
    return {name: getattr(est.plan, name) for name in HELD if getattr(est.plan, name) != getattr(usual, name)}


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
    back = form.facts(flat(form, own), ErrorCollector(form.name))
    return bool(own.get(name) == back.get(name, getattr(Plan(), name)))
