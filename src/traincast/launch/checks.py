"""Check of a launch: step time and memory, the best plan of its framework, changes of settings that help."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

from traincast.catalog import as_model, as_system, check_experts, read_given, stack_names
from traincast.core import (
    INLINE,
    KEY,
    STRATEGIES,
    Assumptions,
    Doc,
    ErrorCollector,
    InputError,
    Plan,
    Result,
    System,
    require_path,
    whole_number_problems,
)
from traincast.launch.formats import READERS
from traincast.launch.reader import Reading, complete_launch, read
from traincast.launch.settings.canonical import device, launch_facts
from traincast.launch.settings.facts import Facts, as_facts
from traincast.launch.settings.format import Format
from traincast.launch.settings.given import Given
from traincast.launch.settings.suggestions import (
    ChangeTester,
    Difference,
    DifferingSetting,
    EstimatedChange,
)
from traincast.model import Model, parse_lengths
from traincast.planner import Found, Framework, Progress, Question, search_request, single_changes
from traincast.planner import framework as framework_named
from traincast.step import (
    Estimate,
    MeasuredStep,
    check_assumptions,
    check_measured,
    check_size,
    estimate,
    measured_step,
)

# Kept by every plan of the search.
SHARED_CHOICES: Final = ("precision", "grad_dtype", "master_copy", "optimizer_kind", "attention")
# Searched with the launch's own value besides those of its framework, where the format expresses both.
OWN_CHOICES: Final = ("offload", "zero", "sp", "recompute")
DIGITS: Final = 9  # after the point of seconds; times that differ by less are equal
TRIAL_BATCH: Final = 8  # sequences; of plans that are written and read back to see what a format can express


class Checked(Result, repr=False):
    """Prediction of a launch, the best plan of its framework, and changes that help."""

    reading: Annotated[Reading, INLINE]  # the launch that was read
    est: Annotated[Estimate, Doc("prediction of the launch", key="estimate")]
    found: Found  # the search for better plans of the framework: same GPUs, batch and precision
    measured: Annotated[MeasuredStep | None, Doc("what was measured; null where nothing was given")] = None

    def __repr__(self) -> str:
        return f"<Checked {self.reading.path}: {self.est!r}>"

    @cached_property
    def bench(self) -> ChangeTester:
        """Estimator of changed settings."""
        form = self.reading.form
        own = self.reading.settings
        return ChangeTester(self.est, form, form.stack(own), own)

    @cached_property
    def tried(self) -> list[EstimatedChange]:
        """Every change of a single setting, the fastest first, including those that do not fit."""
        return self.bench.try_all(single_changes(self.est.plan, self.est.model, self.found.framework))

    @cached_property
    def best(self) -> Annotated[Estimate | None, KEY]:
        """Best plan of the framework on the same GPUs; None where none fits.

        It is the recommended one, unless the launch or a listed change is faster.
        """
        compared = [self.est] if self.est.fits else []
        compared += [] if self.found.best is None else [self.found.best[1]]
        compared += [change.est for change in (*self.changes[:1], self.together) if change is not None]
        return min(compared, key=lambda est: round(float(est.step_seconds), DIGITS), default=None)

    @property
    def best_settings(self) -> Annotated[list[DifferingSetting], KEY]:
        """Settings of the best plan that differ."""
        return [] if self.best is None else self.spelled(self.bench.differences(self.best.plan))

    @property
    def gap(self) -> Annotated[float | None, Doc(key="longer_than_best")]:
        """Relative difference of the step time from the best plan's."""
        return None if self.best is None else float(self.est.step_seconds / self.best.step_seconds) - 1

    @cached_property
    def changes(self) -> Annotated[list[EstimatedChange], KEY]:
        """Changes of one setting that fit and help, the fastest first; the cheapest where it may not fit.

        They fit as surely as a plan that is recommended, or as the launch does. Of several values of a
        setting it is the best. Where the launch itself fits, a change helps if it is faster; else if it is
        said to fit, or, where none is, if it may fit and is likelier to than the launch.
        """
        if self.est.verdict == "fits":
            own = float(self.est.step_seconds)
            helping = [one for one in self.tried if self.bench.fits(one.est) and one.step_seconds < own]
        else:
            now = self.est.fits_probability or 0.0
            likelier = [one for one in self.tried if (one.fits_probability or 0.0) > now]
            helping = [one for one in self.tried if self.bench.fits(one.est)]
            helping = helping or [one for one in likelier if one.est.verdict == "uncertain"]
            helping.sort(key=lambda one: one.change.effort)  # of equal effort the fastest first
        best: dict[frozenset[str], EstimatedChange] = {}
        for change in helping:
            best.setdefault(frozenset(name for name, _, _ in change.settings), change)
        return list(best.values())

    @cached_property
    def together(self) -> Annotated[EstimatedChange | None, KEY]:
        """Best two or three changes together, where they are better than one."""
        combination = self.bench.best_combination(self.tried)
        changes = self.changes
        if combination is None:
            return None
        best_single = changes[0].step_seconds if changes else float(self.est.step_seconds)
        helps = combination.step_seconds < best_single or not (self.est.verdict == "fits" or changes)
        return combination if helps else None

    def spelled(self, settings: Iterable[Difference]) -> list[DifferingSetting]:
        """Return settings that differ, as the framework spells them."""
        return self.bench.spell_settings(settings)


def check(
    path: str | Path,
    system: str | Path | System,
    model: str | Path | Model | None = None,
    gpus: int | None = None,
    gbs: int | None = None,
    framework: str | None = None,
    assumptions: str | Assumptions | None = None,
    knobs: Mapping[str, object] | None = None,
    progress: Progress | None = None,
    accept_unread: bool = False,
    beside: str | Path | None = None,
    variables: Mapping[str, str] | None = None,
    recipe: str | None = None,
    vocab: int | None = None,
    seq: int | None = None,
    actor: bool = False,
    lengths: str | None = None,
    images: int | None = None,
    given: Mapping[str, str] | Sequence[str] | None = None,
    step_seconds: float | None = None,
    tokens_per_second: float | None = None,
    mfu: float | None = None,
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
        Format of the file, a name of `READERS`; detected from its content if left out. Or a framework with
        its release, such as ``"megatron@0.17"``: the launch and the plans searched are held to what that
        release takes and refuses.
    assumptions : str or Assumptions, optional
        Assumptions; those of the framework's software stack if left out.
    knobs : mapping of str to value, optional
        Knobs and choices of the plan that the file does not set, such as ``{"recompute": "full"}``.
    progress : callable, optional
        Progress callback of the search, as for `search`.
    accept_unread : bool
        Whether to answer although settings that matter are not read; `Reading.unread` names them.
    beside : str or Path, optional
        A configuration of Accelerate or DeepSpeed that belongs to the file, where it does not name one.
    variables : mapping of str to str, optional
        Values of variables that the file takes from outside; positional parameters by number.
    recipe : str, optional
        The run that is meant, where the file describes several: its name or a part of it.
    vocab, seq : int, optional
        Size of the vocabulary, and sequence length [tokens], where the file does not give them.
    actor : bool
        Whether of reinforcement learning (verl, OpenRLHF, slime) the actor's training step is meant.
    lengths : str, optional
        Lengths of the documents that sequences are packed with or padded to, as for `plan`; else every
        sequence is one document.
    images : int, optional
        Images of a sequence that the vision tower reads; 1 if left out.
    given : mapping of str to str, optional
        Facts of the software that the file does not state, as for `traincast.search`.
    step_seconds, tokens_per_second, mfu : float, optional
        What was measured, one of them: the time of a step [s], the throughput of the job [token/s], or the
        MFU as Megatron-LM counts it.

    Returns
    -------
    Checked
        The estimate, the best plan, and changes that help.

    Raises
    ------
    InputError
        If the file is unreadable or invalid, of an unsupported program or kind of training, does not give the
        number of GPUs, or has settings that matter and are not read; all mistakes at once. Or if what was
        measured needs more than the dense peak.
    """
    require_path("path", path)
    errors = ErrorCollector(str(path))
    machine = errors.catch(as_system, system)
    given_model = None if model is None else errors.catch(as_model, model)
    documents = None if lengths is None else errors.catch(parse_lengths, lengths)
    numbers = {"gpus": gpus, "gbs": gbs, "vocab": vocab, "seq": seq, "images": images}.items()
    if wrong := [text for item in numbers if item[1] is not None for text in whole_number_problems(*item)]:
        errors.add(wrong)
        errors.raise_any()
    further = {"vocab": vocab, "seq": seq, "documents": documents, "images": images}
    stated = {**(knobs or {}), **{name: value for name, value in further.items() if value is not None}}
    named = {"gpus": gpus, "gbs": gbs, "model": model, **stated, "documents": lengths}  # wrong ones as well
    names = [name for name, value in named.items() if value is not None]
    names += ["chunks"] if {"layout", "pp", "vp"} & set(names) else []
    outside = Given(variables or {}, recipe, names, actor=actor)
    formats = READERS
    asked = framework if framework is not None and "@" in framework else ""
    if asked:
        formats = errors.catch(formats_at_release, asked) or READERS
        framework = None  # the name is that of the framework, some of whose formats the file may have
    reading = errors.catch(read, path, formats, framework, beside, outside, accept_unread)
    if reading is not None and formats is not READERS and reading.form.asked is None:
        problem = f"framework = {asked}: this is a launch of {reading.form.title}"
        errors.add([problem], reading.path)
    if reading is not None and machine is not None and machine.is_cpu:
        reading = reading.on_cpus()
    name = None if reading is None else ErrorCollector("").catch(reading.form.named_model, reading.settings)
    if reading is not None and model is None and name:
        reading = replace(reading, assumed=(f"model = {name}, which the file names", *reading.assumed))
        given_model = errors.catch(as_model, name)
    stack = "calibrated" if reading is None else reading.form.stack(reading.settings)
    of_grace = machine is not None and re.match("G[BH]", machine.accelerator.name)
    stack += "-grace" if of_grace and f"{stack}-grace" in stack_names() else ""
    facts = errors.catch(read_given, given) or {}
    assumed = errors.catch(check_assumptions, assumptions, stack, (), facts)  # the file states the software
    if reading is not None and assumed is not None and assumptions is None:
        assumed = assumed.with_values(errors.catch(reading.form.figures, reading.settings) or {})
    completed = None
    if reading is not None:
        length = seq or reading.facts.get("seq")
        if given_model is not None and length not in (None, given_model.seq):
            given_model = errors.catch(lambda old: replace(old, seq=length), given_model) or given_model
        if not accept_unread:
            errors.catch(reading.check_unread)
        wrong_model = given_model is None and bool(model or name)
        completed = errors.catch(complete_launch, reading, given_model, gpus, gbs, stated, wrong_model)
    if completed is not None:
        errors.catch(check_size, machine, completed[2].gpus)
        errors.catch(check_experts, facts, completed[1].experts is not None)
    errors.catch(check_measured, step_seconds, tokens_per_second, mfu)
    reading, transformer, plan, batch = errors.require(completed)
    machine = errors.require(machine)
    assumed = errors.require(assumed)
    try:
        est = estimate(transformer, machine, plan, gbs=batch, assumptions=assumed)
    except InputError as error:
        more = "" if gpus else f"; on {plan.gpus:,} GPUs (`gpus` takes another number)"
        raise InputError(reading.path, [p + more * ("dp = " in p) for p in error.problems]) from None
    measured = measured_step(est, step_seconds=step_seconds, tokens_per_second=tokens_per_second, mfu=mfu)
    form = reading.form
    context: Facts = {"stack": stack, "device": device(machine)}
    refusals = (
        refusal.why for refusal in form.find_refusals(launch_facts(transformer, plan, batch) | context)
    )
    program = form.title
    held: tuple[str, ...] = ()
    if form.asked is not None:
        program = form.asked.version
        held = (f"rules and arguments are those of {program}, as asked",)
    against = (
        f"{program} refuses this launch; the answer is as if it ran: {why}"
        for why in (
            *form.refused_by_release(reading.settings),
            *refusals,
            *form.space.broken(transformer, plan, batch),
        )
    )
    reading = replace(reading, assumed=(*reading.assumed, *held, *against))
    locks = {
        name: value for name in SHARED_CHOICES if (value := getattr(plan, name)) != getattr(Plan(), name)
    }
    own = {name: getattr(plan, name) for name in OWN_CHOICES}
    space, further_locks = expressible_space(form, transformer, locks | context, own)
    question = Question(
        model=transformer,
        system=machine,
        gpus=(plan.gpus,),
        gbs=batch,
        assumptions=assumed,
        top=1,
        locks=locks | further_locks,
        framework=space,
    )
    searched = ErrorCollector("search")
    (result,) = searched.require(search_request(searched, question)).answer(progress)
    return Checked(reading, est, result, measured)


def formats_at_release(asked: str) -> Mapping[str, Format]:
    """Return all formats that are read, those of a framework as one of its releases takes them.

    Parameters
    ----------
    asked : str
        Framework and release, such as ``"megatron@0.17"``.

    Raises
    ------
    InputError
        If there is no such framework, or nothing is known of the release.
    """
    space = framework_named(asked)
    return {
        name: replace(form, asked=space) if form.framework == space.name else form
        for name, form in READERS.items()
    }


def expressible_space(
    form: Format, model: Model, locked: Mapping[str, object], own: Mapping[str, object] | None = None
) -> tuple[Framework, dict[str, object]]:
    """Return the choices that a format can express and its framework runs, and what else is locked.

    `locked` has the locked choices, the software stack by name as `stack`, and the `device`. Some choices can
    be expressed for models with experts only. Of `own` choices the value of a launch is searched as well,
    or alone where the format cannot express it; a degree without a setting is locked at 1.
    These further locks are `fixed` in the space.
    """
    defaults = Plan()
    beside = as_facts({"per_node": 1, "stack": locked["stack"]})

    def expresses(name: str, **knobs: Any) -> bool:
        facts = launch_facts(model, Plan(dp=2, **knobs), TRIAL_BATCH) | beside
        read_back = form.facts(form.settings(facts), ErrorCollector(form.name))
        return bool(facts.get(name) == read_back.get(name, getattr(defaults, name)))

    locks: dict[str, object] = {axis: 1 for axis in ("tp", "pp") if not expresses(axis, **{axis: 2})}
    degrees = {"tp": 2, "pp": 2, **locks}

    def runs(name: str, value: object) -> bool:
        return expresses(name, **degrees, **{name: value}) and not form.find_refusals(
            as_facts({**locked, name: value})
        )

    def without_refused(name: str, values: tuple[object, ...]) -> tuple[object, ...]:
        left = (form.drop_refused(as_facts({**locked, name: value})).get(name) for value in values)
        return tuple(dict.fromkeys(left))

    def has_strategy(name: str) -> bool:
        kind = STRATEGIES[name].choices["cp_kind"]
        return kind == "none" or expresses("cp_kind", cp=2, cp_kind=kind)

    space = form.space
    choices = {
        name: tuple(value for value in values if runs(name, value)) or without_refused(name, values)
        for name, values in space.choices.items()
        if name != "schedule"
    }
    strategies = tuple(filter(has_strategy, space.strategies))
    if strategies != space.strategies and has_strategy("context"):  # all-gather in place of others
        strategies = tuple(dict.fromkeys((*strategies, "context")))
    choices = {**space.choices, **choices}
    for name, value in (own or {}).items():
        if value in (searched := choices.get(name, (getattr(defaults, name),))):
            continue
        if runs(name, value):
            choices[name] = (*searched, value)
        else:
            locks[name] = value
    return replace(space, strategies=strategies, choices=choices, fixed=locks), locks
