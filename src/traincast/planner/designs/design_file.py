"""Read the question of a design from a YAML or JSON file."""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from traincast.catalog import as_model, as_system, read_document, resolve
from traincast.core import (
    CALIBRATED,
    CHOICES,
    ErrorCollector,
    InputError,
    System,
    close_to,
    first_problems,
    parse_count,
    parse_quantity,
    require_path,
)
from traincast.model import Model
from traincast.planner.designs.designs import Designs
from traincast.planner.designs.machines import (
    MACHINE_FIGURES,
    DesignQuestion,
    Limits,
    MachineFamily,
    Runs,
    TrainingRun,
    as_used,
)
from traincast.planner.designs.part_prices import MEMORIES, Price, check_source, load_prices
from traincast.planner.designs.refinement import find_designs
from traincast.planner.frameworks.locks import check_locked_values
from traincast.planner.frameworks.spaces import framework as framework_named
from traincast.planner.question import Question
from traincast.planner.search_arguments import check_sizes, check_strategies, choose_framework
from traincast.planner.studies.study_file import axis_values
from traincast.planner.studies.sweep import as_list, define_study
from traincast.step import check_gbs

KEYS: Final = {
    "": ("name", "title", "workload", "gpus", "limits", "framework", "strategies", "choices", "assumptions",
         "machines", "systems", "offers", "prices", "refine"),
    "workload": ("model", "global_batch", "tokens", "runs", "range"),
    "machines": ("name", "base", "memory", "vary"),
    "offers": ("system", "price", "low", "high", "source", "basis"),
    "limits": ("days", "money", "megawatts"),
}  # fmt: skip
MAX_MACHINES: Final = 100_000


def design(file: str | Path, executor: Executor | None = None) -> Designs:
    """Find the front of time, cost and energy over machines for a workload.

    Parameters
    ----------
    file : str or Path
        The question, a YAML or JSON file as ``examples/design.yaml``.
    executor : concurrent.futures.Executor, optional
        Where machines are evaluated; else in this process.

    Returns
    -------
    Designs
        All machines, with their front, what figures are worth, break-even prices and regret.

    Raises
    ------
    InputError
        With all that is wrong in the file.
    """
    found = find_designs(load_question(require_path("file", file)), Runs(executor))
    if found.feasible.any():
        _ = found.more  # searched on the executor, while there is one
    return found


def load_question(path: str | Path) -> DesignQuestion:
    """Load a question from a file; `InputError` has every mistake of the file."""
    document = read_document(Path(path))
    errors = ErrorCollector(str(path))
    problems = _unknown_keys("", document, "")
    searched = _searched_plans(document, errors)
    named = searched.framework
    framework = None if named is None else ErrorCollector("").catch(framework_named, named)
    usual = CALIBRATED if framework is None else framework.assumptions
    assumed = errors.catch(resolve, str(document.get("assumptions", usual)))
    gpus = errors.catch(check_sizes, as_list(document.get("gpus", ())))
    workload = [
        _work(f"workload.{i}", raw, searched, errors, problems)
        for i, raw in enumerate(_items(document, "workload", problems))
    ]
    problems += [] if workload else ["workload: give at least one model"]
    names = _items(document, "systems", problems)
    families = [
        _family(f"machines.{i}", raw, errors, problems)
        for i, raw in enumerate(_items(document, "machines", problems))
    ]
    sizes = gpus or (1,)
    families += [
        MachineFamily(system.name, as_used(system, sizes))
        for name in names
        if (system := errors.catch(as_system, str(name))) is not None
    ]
    families += [
        _offer(f"offers.{i}", raw, sizes, errors, problems)
        for i, raw in enumerate(_items(document, "offers", problems))
    ]
    problems += [] if families else ["machines, systems, offers: give at least one"]
    found = [family for family in families if family is not None]
    given = [family.name for family in found]
    problems += [f"machines: {name} is named twice" for name in dict.fromkeys(given) if given.count(name) > 1]
    limits = _limits(document.get("limits") or {}, problems)
    prices = document.get("prices")
    prices = errors.catch(load_prices, None if prices is None else Path(path).parent / str(prices))
    refine = document.get("refine")
    if refine is not None and not isinstance(refine, bool):
        problems.append(f"refine = {refine!r}: must be true or false")
    errors.add(problems)
    errors.raise_any()
    assert gpus is not None
    assert assumed is not None
    assert prices is not None
    return DesignQuestion(
        name=str(document.get("name") or Path(path).stem),
        workload=tuple(work for work in workload if work is not None),
        gpus=tuple(sorted(set(gpus))),
        families=tuple(found),
        prices=prices,
        limits=limits,
        assumptions=assumed,
        refine=refine,
    )


def _unknown_keys(kind: str, raw: Mapping[str, object], place: str) -> list[str]:
    """Return what is wrong with the keys of a mapping."""
    unknown = [str(key) for key in raw if key not in KEYS[kind]]
    return first_problems(unknown, lambda key: f"{place}{key}: unknown key; {close_to(key, KEYS[kind])}")


def _items(document: Mapping[str, object], key: str, problems: list[str]) -> list[Any]:
    """Return the items of a list of the file; those of mappings with known keys only."""
    items = as_list(document.get(key) or [])
    if key not in KEYS:
        return items
    for i, item in enumerate(items):
        place = f"{key}.{i}"
        if isinstance(item, Mapping):
            problems += _unknown_keys(key, item, f"{place}.")
        else:
            problems.append(f"{place} = {item!r}: must be a mapping with {', '.join(KEYS[key])}")
    return [item if isinstance(item, Mapping) else {} for item in items]


def _searched_plans(document: Mapping[str, Any], errors: ErrorCollector) -> Question:
    """Return what is asked of the plans that are searched: framework, strategies and choices."""
    choices = document.get("choices") or {}
    framework = document.get("framework")
    strategies = errors.catch(check_strategies, document.get("strategies"))
    if not isinstance(choices, Mapping):
        errors.add([f"choices = {choices!r}: must be a mapping of choices to values"])
        choices = {}
    locks = {str(name): as_list(values) if name in CHOICES else values for name, values in choices.items()}
    errors.catch(check_locked_values, locks)
    question = Question(strategy=strategies, framework=framework, locks=None if errors.errors else locks)
    errors.catch(choose_framework, question)
    return Question(strategy=strategies, framework=framework, locks=locks)


def _number(place: str, raw: object, problems: list[str]) -> float:
    """Return a number above 0, also one such as 20M; a mistake is added to `problems`."""
    if isinstance(raw, str):
        with suppress(InputError):
            return float(parse_count(raw, place, 1000))
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0 < raw < float("inf"):
        problems.append(f"{place} = {raw!r}: must be a number above 0, such as 120 or 20M")
        return 1.0
    return float(raw)


def _work(
    place: str,
    raw: Mapping[str, Any],
    searched: Question,
    errors: ErrorCollector,
    problems: list[str],
) -> TrainingRun | None:
    """Return a run of the workload."""
    model: Model | None = errors.catch(as_model, str(raw.get("model")))
    gbs = None if model is None else errors.catch(check_gbs, raw.get("global_batch"), model)
    runs = _number(f"{place}.runs", raw.get("runs", 1), problems)
    spread = raw.get("range", [runs, runs])
    if not isinstance(spread, Sequence) or isinstance(spread, str) or len(spread) != 2:
        problems.append(f"{place}.range = {spread!r}: must be two numbers of runs, the least and the most")
        spread = [runs, runs]
    low, high = (_number(f"{place}.range", value, problems) for value in spread)
    if not low <= runs <= high:
        problems.append(f"{place}.range = {list(spread)}: must contain runs = {runs:g}, the least first")
    tokens = errors.catch(parse_count, str(raw.get("tokens", "")), f"{place}.tokens", 1000)
    if model is None or gbs is None or tokens is None:
        return None
    return TrainingRun(
        model,
        gbs,
        float(tokens),
        runs,
        low,
        high,
        framework=searched.framework if isinstance(searched.framework, str) else None,
        strategies=check_strategies(searched.strategy),
        choices=searched.locks or {},
    )


def _family(
    place: str, raw: Mapping[str, object], errors: ErrorCollector, problems: list[str]
) -> MachineFamily | None:
    """Return machines that vary."""
    memory = raw.get("memory", "hbm")
    vary = raw.get("vary")
    if memory not in MEMORIES:
        problems.append(f"{place}.memory = {memory!r}: must be one of {', '.join(MEMORIES)}")
    if not isinstance(vary, Mapping) or not vary:
        problems.append(f"{place}.vary: must be a mapping of figures to values")
        vary = {}
    unknown = [str(path) for path in vary if path not in MACHINE_FIGURES]
    problems += first_problems(
        unknown, lambda path: f"{place}.vary.{path}: has no price; {close_to(path, MACHINE_FIGURES)}"
    )
    axes = {
        str(path): axis_values(f"{place}.vary.{path}", values, problems, str(path))
        for path, values in vary.items()
        if path in MACHINE_FIGURES
    }
    base: System | None = errors.catch(as_system, str(raw.get("base")))
    count = math.prod(map(len, axes.values()))
    if count > MAX_MACHINES:
        problems.append(f"{place}.vary: {count:,} machines; must be at most {MAX_MACHINES:,}")
    if base is None or not axes or count > MAX_MACHINES or memory not in MEMORIES:
        return None
    # which checks figures as those of studies
    checked = errors.catch(_check_axes, place, base, axes)
    return None if checked is None else MachineFamily(str(raw.get("name", base.name)), base, memory, checked)


def _check_axes(place: str, base: System, axes: Mapping[str, list[float]]) -> dict[str, tuple[float, ...]]:
    """Return axes whose figures a system can have, checked as those of studies."""
    vary = [{path: list(values)} for path, values in axes.items()]
    study = define_study(["gpt3-175b"], [base], Question(gpus=[1], top=1), vary=vary, name=place)
    return {path: tuple(values) for axis in study.vary for path, values in axis.items()}


def _offer(
    place: str, raw: Mapping[str, object], gpus: Sequence[int], errors: ErrorCollector, problems: list[str]
) -> MachineFamily | None:
    """Return a machine that is rented."""
    system = errors.catch(as_system, str(raw.get("system")))
    given = [raw.get(key, raw.get("price")) for key in ("price", "low", "high")]
    numbers = []
    for key, value in zip(("price", "low", "high"), given, strict=True):
        try:
            numbers.append(parse_quantity(value, "$/h"))
        except ValueError as error:
            problems.append(f"{place}.{key} = {value!r}: {error}")
    check_source(place, raw, problems)
    if len(numbers) == 3 and not 0 < numbers[1] <= numbers[0] <= numbers[2]:
        problems.append(f"{place}: low, price, high = {given}: must be above 0 and not descend")
    if system is None or len(numbers) < 3:
        return None
    name = f"{system.name}, rented"
    value, low, high = numbers
    rent = Price(name, "h", value, low, high, str(raw.get("source")), str(raw.get("basis")))
    return MachineFamily(name, as_used(system, gpus), rent=rent)


def _limits(raw: object, problems: list[str]) -> Limits:
    """Return the limits of the workload."""
    if not isinstance(raw, Mapping):
        problems.append(f"limits = {raw!r}: must be a mapping with {', '.join(KEYS['limits'])}")
        return Limits()
    problems += _unknown_keys("limits", raw, "limits.")
    return Limits(
        **{key: _number(f"limits.{key}", raw[key], problems) for key in KEYS["limits"] if key in raw}
    )
