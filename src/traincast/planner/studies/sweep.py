"""Studies: a declared sweep over models, machines, GPUs, strategies, batches and any figure.

Machines are columns: a varied figure is another axis of the same evaluation. A study is split into chunks,
which any `concurrent.futures.Executor` can run in any order; the table is the same, byte for byte, however
they were run.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traincast.catalog import as_model, as_system, resolve
from traincast.core import (
    CALIBRATED,
    CAPACITY_PATH,
    COLUMNS,
    INTERVALS,
    KNOBS,
    Assumptions,
    ErrorCollector,
    Floats,
    InputError,
    Ints,
    System,
    changes_accelerator,
    raise_problems,
    replace_fields,
    to_si,
    unknown_name_error,
)
from traincast.model import Model
from traincast.planner.frameworks.candidate_batch import CandidateBatch
from traincast.planner.frameworks.spaces import Framework
from traincast.planner.question import Question
from traincast.planner.search_arguments import (
    check_machine,
    check_ranking,
    check_sizes,
    check_strategies,
    choose_framework,
)
from traincast.planner.space.enumeration import enumerate_space
from traincast.planner.space.evaluation import Evaluation, RankedCandidates, evaluate_all, groups, rank
from traincast.planner.space.search_space import by_domain
from traincast.step import check_assumptions, check_gbs, estimate

Axis = Mapping[str, Sequence[float]]  # fields that vary together: path → values, all of one length
Table = dict[str, NDArray[Any]]
MACHINES_PER_CHUNK: Final = 64  # bounds the memory of a chunk, and the work lost to an interruption
JOB_SIZES_PER_CHUNK: Final = 16
MAX_ROWS: Final = 10_000_000  # of a table: 4 GB
EVERY: Final = "every"  # in place of a strategy: all are searched together


@dataclass(frozen=True)
class Study:
    """A sweep."""

    name: str
    models: tuple[Model, ...]
    systems: tuple[System, ...]
    gpus: tuple[int, ...]  # ascending
    strategies: tuple[str, ...] | None  # each is optimised separately; None: those of the framework
    batches: tuple[int, ...]  # global batches [sequences]
    assumptions: Assumptions
    top: int = 1  # plans listed at each point
    # Axes are crossed; each maps paths of fields (``"accelerator.hbm_bytes"``, ``"network.0.size"``,
    # ``"model.seq"``) that vary together to their values in SI.
    vary: tuple[Axis, ...] = ()
    framework: str | None = None  # what is searched; None: of each model what `search` does by default
    locks: Mapping[str, Any] = field(default_factory=dict, hash=False)  # values of choices of every plan
    apart: bool = True  # whether each strategy is optimised on its own

    def space(self, model: Model, system: System) -> Framework:
        """Return what is searched for a model on a system."""
        locks = self.locks if self.framework else {}  # else each machine keeps the framework usual on it
        question = Question(
            model=model, system=system, strategy=self.strategies, framework=self.framework, locks=locks
        )
        return choose_framework(question)

    @cached_property
    def has_choices(self) -> bool:
        """Whether plans differ in more than numbers."""
        return any(self.space(*case).choices for case in product(self.models, self.systems))

    @property
    def points(self) -> int:
        """Points of the axes, for each model, system, number of GPUs, strategy and batch."""
        return math.prod(len(next(iter(axis.values()))) for axis in self.vary)

    def fields(self) -> dict[str, Floats]:
        """Return every varied field at every point; the last axis varies fastest."""
        lengths = [len(next(iter(axis.values()))) for axis in self.vary]
        index = np.indices(lengths).reshape(len(lengths), self.points)
        return {
            path: np.asarray(values, float)[index[i]]
            for i, axis in enumerate(self.vary)
            for path, values in axis.items()
        }

    def chunks(self) -> list["Chunk"]:
        """Return the study in chunks, in the order of its table."""
        cases = product(self.models, self.systems, self.batches)
        series = [
            (*case, strategy)
            for case in cases
            for strategy in (self.space(*case[:2]).strategies if self.apart else (EVERY,))
        ]
        return [chunk for number, case in enumerate(series) for chunk in self._series(number, *case)]

    def _series(
        self, number: int, model: Model, system: System, gbs: int, strategy: str
    ) -> Iterator["Chunk"]:
        """Yield the chunks of a series: machines with one space, those with equal times adjacent."""
        check_machine(system, self.locks)
        fields = self.fields()
        columns = {path: values for path, values in fields.items() if is_column(path)}
        shaping = {path: values for path, values in fields.items() if path not in columns}
        shapes = np.array([np.zeros(self.points), *shaping.values()])
        _, first, group = np.unique(shapes, axis=1, return_index=True, return_inverse=True)
        timing = [values for path, values in columns.items() if path != CAPACITY_PATH]
        for shape, first_point in enumerate(first):
            points = np.flatnonzero(group == shape)
            points = points[np.lexsort([values[points] for values in timing])] if timing else points
            shape_fields = {path: float(values[first_point]) for path, values in shaping.items()}
            vp = {"vp": int(shape_fields["plan.vp"])} if "plan.vp" in shape_fields else {}
            shaped = with_fields(model, shape_fields)
            machine = with_shape(system, shape_fields)
            tiers = len(machine.tiers)
            batches = self.space(model, system).batches(shaped, {**self.locks, **vp}, self.assumptions, tiers)
            for low, size in product(
                range(0, len(points), MACHINES_PER_CHUNK), range(0, len(self.gpus), JOB_SIZES_PER_CHUNK)
            ):
                chunk_points = points[low : low + MACHINES_PER_CHUNK]
                figures = {path: values[chunk_points] for path, values in columns.items()}
                yield Chunk(
                    series=number,
                    points=chunk_points,
                    model=shaped,
                    system=machine.with_figures(figures),
                    gpus=self.gpus[size : size + JOB_SIZES_PER_CHUNK],
                    gbs=gbs,
                    strategy=strategy,
                    batches=tuple(batch for batch in batches if strategy in (batch.strategy, EVERY)),
                    assumptions=self.assumptions,
                    top=self.top,
                    has_choices=self.has_choices,
                )


@dataclass(frozen=True, eq=False)
class Chunk:
    """A piece of a study: machines that share a search space."""

    series: int
    points: Ints
    model: Model
    system: System
    gpus: tuple[int, ...]
    gbs: int
    strategy: str
    batches: tuple[CandidateBatch, ...]
    assumptions: Assumptions
    top: int
    has_choices: bool

    def evaluations(self) -> Iterator[Evaluation]:
        """Yield the evaluation of each batch, on numbers of GPUs that use as much of a fast domain."""
        domains = by_domain(self.system, self.gpus, self.batches[0]) if self.batches else {}
        for domain, gpus in domains.items():
            spaces = [enumerate_space(self.model, gpus, domain, self.gbs, batch) for batch in self.batches]
            for group in groups(spaces):
                found = evaluate_all(tuple(spaces[i] for i in group), self.system, self.assumptions)
                while found:  # which lets go of each before the next
                    yield found.pop(0)

    def run(self) -> Table:
        """Return the best plans of every point as columns; one row without a plan where nothing fits."""
        shape = len(self.points), len(self.gpus)
        counts = {name: np.zeros(shape, np.int64) for name in ("candidates", "feasible")}
        rankings: list[RankedCandidates] = []
        for evaluation in self.evaluations():
            outcomes = [one for machine in range(shape[0]) for one in evaluation.outcomes(machine)]
            places = [(outcome.machine, self.gpus.index(outcome.gpus)) for outcome in outcomes]
            for at, outcome in zip(places, outcomes, strict=True):
                counts["candidates"][at] += outcome.candidates
                counts["feasible"][at] += outcome.feasible
            flat = np.array([machine * shape[1] + size for machine, size in places])
            ranking = rank(outcomes, self.top)
            rankings.append(ranking._replace(outcome=flat[ranking.outcome]))
        place, number, row = self._best(rankings)
        rows_at = np.bincount(place, minlength=shape[0] * shape[1])
        of_rows = np.repeat(np.arange(len(rows_at)), np.maximum(rows_at, 1))
        machine, size = np.divmod(of_rows, shape[1])
        named = {
            "model": self.model.name,
            "system": self.system.name,
            "strategy": self.strategy,
            "assumptions": self.assumptions.name,
            "gbs": self.gbs,
        }
        table: Table = {"series": np.full(len(of_rows), self.series), "point": self.points[machine]}
        table |= {name: np.full(len(of_rows), value) for name, value in named.items()}
        table |= {"gpus": np.array(self.gpus)[size]}
        table |= {name: values.ravel()[of_rows] for name, values in counts.items()}
        table |= {"rank": np.arange(len(of_rows)) - np.searchsorted(of_rows, of_rows) + 1}
        fits = rows_at[of_rows] > 0
        table |= {name: np.full(len(of_rows), np.nan) for name in self._results()}
        if self.has_choices:
            table["plan"] = np.full(len(of_rows), None)
        for index in range(len(rankings)):
            of_batch = number == index
            if of_batch.any():
                columns = self._plan_columns(rankings[index], row[of_batch], place[of_batch] // shape[1])
                for name, values in columns.items():
                    table[name][np.flatnonzero(fits)[of_batch]] = values
        return table

    def _best(self, rankings: Sequence[RankedCandidates]) -> tuple[Ints, Ints, Ints]:
        """Return the best of several rankings at each place: place, number of the ranking and row of it."""
        if not rankings:
            return (np.zeros(0, np.int64),) * 3
        number = np.repeat(np.arange(len(rankings)), [len(ranking.outcome) for ranking in rankings])
        row = np.concatenate([np.arange(len(ranking.outcome)) for ranking in rankings])
        place, seconds, memory = (
            np.concatenate([getattr(ranking, name) for ranking in rankings])
            for name in ("outcome", "seconds", "memory")
        )
        order = np.lexsort((row, number, memory, seconds, place))
        order = order[np.arange(len(order)) - np.searchsorted(place[order], place[order]) < self.top]
        return place[order], number[order], row[order]

    def _plan_columns(self, ranking: RankedCandidates, row: Ints, machine: Ints) -> Table:
        """Return the columns of some plans of a ranking, and of their estimates on machines."""
        system = self.system.take(machine)
        plans = ranking.plans.take(row)
        est = estimate(self.model, system, plans, gbs=self.gbs, assumptions=self.assumptions)
        columns = plans.numbers() | {
            "step_seconds": est.step_seconds,
            "memory_bytes": est.memory_bytes,
            "tokens_per_second_per_gpu": est.tokens_per_second_per_gpu,
            "training_days": np.nan if est.training_days is None else est.training_days,
            **est.uncertainty(),
            **est.breakdown,
            **est.memory,
        }
        found: Table = {name: np.broadcast_to(columns[name], len(row)) for name in self._results()}
        if self.has_choices:
            found["plan"] = np.array([str(plans.row(i)) for i in range(len(row))], object)
        return found

    def _results(self) -> tuple[str, ...]:
        """Return the names of the columns of plans and estimates; with intervals where errors are known."""
        return (*RESULTS, *(INTERVALS if self.assumptions.errors_known else ()))


RESULTS: Final = tuple(
    name for name, info in COLUMNS.items() if info.kind in {"result", "time", "memory"} or name in KNOBS
)


SHAPE: Final = (".size", ".used")  # figures that the search space depends on


def is_column(path: str) -> bool:
    """Return whether a field varies as a column of machines; the others change the search space."""
    return not path.startswith(("model.", "plan.")) and not path.endswith(SHAPE)


def with_shape(system: System, fields: Mapping[str, float]) -> System:
    """Return the system with the given sizes of tiers, or what a job uses of them."""
    tiers = []
    for i, tier in enumerate(system.tiers):
        paths = {end[1:]: f"network.{i}{end}" for end in SHAPE}
        found = {name: int(fields[path]) for name, path in paths.items() if path in fields}
        tiers.append(replace_fields(tier, found) if found else tier)
    return replace(system, tiers=tuple(tiers))


def vary_system(system: System, figures: Mapping[str, float]) -> System:
    """Return the system with some figures (and sizes of domains) replaced, by path, in SI.

    Where the accelerator then differs in more than its memory, its name says so: no run was measured on it,
    and errors are larger.
    """
    if not figures:
        return system
    changed = with_shape(system, figures).with_figures(figures)
    name = system.accelerator.name
    name = f"{name}, varied" if changes_accelerator(figures) else name
    return replace(changed, accelerator=replace(changed.accelerator, name=name))


def with_fields(model: Model, fields: Mapping[str, float]) -> Model:
    """Return the model with the given fields, all whole numbers."""
    changed: dict[str, object] = {}
    for path, value in fields.items():
        part, _, name = path.partition(".")
        if part == "model":
            changed[name] = int(value)
    return replace_fields(model, changed)


def define_study(
    models: Sequence[Model | str],
    systems: Sequence[System | str],
    question: Question,
    *,
    batches: int | Sequence[int] | None = None,
    vary: Sequence[Mapping[str, Sequence[float | str]]] = (),
    name: str = "study",
) -> Study:
    """Return a study from names or objects, checked: `InputError` has every mistake.

    Parameters
    ----------
    models, systems : sequence
        Models and systems, or their names.
    question : Question
        What is asked at every point: its numbers of GPUs, strategies, framework, assumptions and number of
        plans. The fastest of each strategy is found; a study has no locks, facts or thresholds.
    batches : int or sequence of int, optional
        Global batches [sequences]; the model's own if left out.
    vary : sequence of mapping
        Axes, as of `Study`, also with text that has a unit.
    name : str
        Name of the study.

    Raises
    ------
    InputError
        With all that is wrong.
    """
    errors = ErrorCollector("search")
    loaded = [model for item in as_list(models) if (model := errors.catch(as_model, item)) is not None]
    machines = [system for item in as_list(systems) if (system := errors.catch(as_system, item)) is not None]
    sizes = errors.catch(check_sizes, question.gpus)
    names = errors.catch(check_strategies, question.strategy)
    errors.catch(check_ranking, question.top)
    cases = list(product(loaded, machines))
    spaces = [
        errors.catch(choose_framework, replace(question, model=model, system=system, strategy=names))
        for model, system in cases
    ]
    checked = [errors.catch(check_gbs, batch, model) for model, batch in product(loaded, as_list(batches))]
    axes = errors.catch(_read_axes, vary, machines)
    given = [model.name for model in loaded] + [system.name for system in machines]
    errors.catch(_check_names, as_list(models), as_list(systems), given)
    try:
        searched = list(filter(None, spaces))
        alike = len({(space.label, space.strategies) for space in searched}) == 1
        study = Study(
            name=name,
            models=tuple(loaded),
            systems=tuple(machines),
            gpus=tuple(sorted(set(errors.require(sizes)))),
            strategies=searched[0].strategies if alike else names,
            batches=tuple(dict.fromkeys(batch for batch in checked if batch is not None)),
            assumptions=_shared_assumptions(question.assumptions, zip(cases, searched, strict=True)),
            top=question.top,
            vary=errors.require(axes),
            framework=searched[0].label if alike else _label(question.framework),
        )
        _check_size(study)
        study.chunks()  # which makes every model and machine
    except InputError as error:
        raise InputError(name, error.problems if error.subject == "search" else [str(error)]) from None
    return study


def _label(framework: str | Framework | None) -> str | None:
    """Return the name of a framework."""
    return framework.label if isinstance(framework, Framework) else framework


def _check_size(study: Study) -> None:
    """Refuse a study whose table no one could hold, before any of it is made."""
    counts = {
        "models": len(study.models),
        "systems": len(study.systems),
        "gpus": len(study.gpus),
        "strategies": max(
            len(study.space(*case).strategies) for case in product(study.models, study.systems)
        ),
        "global batches": len(study.batches),
        "top": study.top,
    } | {"and ".join(axis): len(next(iter(axis.values()))) for axis in study.vary}
    rows = math.prod(counts.values())
    if rows > MAX_ROWS:
        factors = " x ".join(f"{count:,} {name}" for name, count in counts.items() if count > 1)
        raise InputError("search", [f"{factors}: {rows:,} rows; must be at most {MAX_ROWS:,}"])


def as_list(value: Any) -> list[Any]:
    """Return the items of a list, a tuple or an array, and any other value as a list of one."""
    return list(value) if isinstance(value, list | tuple | np.ndarray) else [value]


def _check_names(models: Sequence[object], systems: Sequence[object], names: Sequence[str]) -> None:
    """Refuse empty lists, and two models or systems of one name."""
    given = {"models": models, "systems": systems}
    problems = [f"{what}: give at least one" for what, values in given.items() if not values]
    problems += [f"{name} is given twice" for name, count in Counter(names).items() if count > 1]
    raise_problems("search", problems)


def _shared_assumptions(
    assumptions: str | Assumptions | None, spaces: Iterable[tuple[tuple[Model, System], Framework]]
) -> Assumptions:
    """Return the assumptions; by default those of the frameworks if they agree, else calibrated ones."""
    if assumptions is not None:
        return resolve(assumptions)
    usual = {space.usual_assumptions(*case) for case, space in spaces}
    return check_assumptions(None, usual.pop() if len(usual) == 1 else CALIBRATED)


def _read_axes(vary: object, systems: Sequence[System]) -> tuple[Axis, ...]:
    """Return the axes with their quantities in SI."""
    given = as_list(vary)
    axes = []
    problems = list[str]()
    known = {path for system in systems for path in fields_of(system)}
    for number, axis in enumerate(given):
        if not isinstance(axis, Mapping) or not axis:
            problems.append(f"vary.{number} = {axis!r}: not a mapping of fields to values")
            continue
        axes.append({path: _read_values(path, values, problems) for path, values in axis.items()})
        for path, values in axes[-1].items():
            problems += _field_problems(path, values, known) if values else []
        lengths = {path: len(as_list(values)) for path, values in axis.items()}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{path} {length}" for path, length in lengths.items())
            problems.append(f"vary: fields that vary together need equally many values: {counts}")
    times_given = Counter(path for axis in axes for path in axis)
    problems += [f"vary: {path} stands in two axes" for path, count in times_given.items() if count > 1]
    raise_problems("search", problems)
    return tuple(axes)


def _read_values(path: Any, values: Any, problems: list[str]) -> tuple[float, ...]:
    """Return the values of a field in SI; nothing where one is wrong, and `problems` then has why."""
    unit = COLUMNS[path].unit if path in COLUMNS else ""
    numbers: list[float] = []
    if not len(as_list(values)):
        problems.append(f"vary: {path}: give at least one value")
    for value in as_list(values):
        try:
            numbers.append(to_si(value, unit))
        except ValueError as error:
            problems.append(f"vary: {path} = {value!r}: {error}")
    return tuple(numbers)


def _field_problems(path: str, values: Sequence[float], known: Collection[str]) -> list[str]:
    """Return what is wrong with a varied field and its values."""
    if path not in known:
        return [f"vary: {unknown_name_error('field', str(path), known)}"]
    if not all(math.isfinite(value) and value > 0 for value in values):
        return [f"vary: {path}: every value must be a finite number above 0"]
    if path.endswith(".efficiency") and max(values) > 1:
        return [f"vary: {path}: a share is at most 1"]
    if not is_column(path) and any(value != int(value) for value in values):
        return [f"vary: {path}: every value must be a whole number"]
    return []


def fields_of(system: System) -> list[str]:
    """Return the paths of the fields that can be varied, also those that the system's file leaves out."""
    inner = [i for i, tier in enumerate(system.tiers) if tier.size is not None]
    sizes = [f"network.{i}{end}" for i in inner for end in SHAPE]
    shapes = [f"model.{name}" for name in ("layers", "hidden", "heads", "ffn", "seq")]
    return [path for path in (*system.specs(), *sizes, *shapes, "plan.vp") if path in COLUMNS]
