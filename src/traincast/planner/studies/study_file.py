"""Read a study from a YAML or JSON file."""

import math
from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, StrictBool, StrictInt, ValidationError
from pydantic_core import ErrorDetails

from traincast.catalog import Training, load_model, read_document
from traincast.core import COLUMNS, UNIT_EXAMPLES, InputError, parse_count, parse_quantity, raise_problems
from traincast.model import Model
from traincast.planner.question import Question
from traincast.planner.studies.sweep import Study, as_list, define_study

MAX_SWEEP_VALUES: Final = 1_000_000  # values of one field
SERIES: Final = {  # ways to write values besides a list, and their arguments
    "linspace": "[first, last, how many]",
    "logspace": "[first, last, how many]",
    "range": "[first, last, step]",
    "doubling": "[first, last]",
}
Names = Annotated[list[str], BeforeValidator(as_list)]


class StudyFile(BaseModel):
    """Keys of a study file; numbers are as written, in a list, alone or as one of `SERIES`."""

    model_config = ConfigDict(extra="forbid")

    models: Names
    systems: Names
    gpus: Any
    framework: str | None = None
    strategies: Names = []
    global_batch: Any = None
    assumptions: str | None = None
    train: str = "full"  # what is trained, as of `--train`; the next are options as well
    lengths: str | None = None
    images: StrictInt | None = None
    image_size: StrictInt | None = None
    frozen_tower: StrictBool = False
    top: Any = 1
    vary: Any = ()  # axes, each a mapping of fields that vary together to their values
    name: Annotated[str | None, BeforeValidator(str)] = None
    title: object = None


def load_study(path: str | Path) -> Study:
    """Load a study from a file with the keys of `StudyFile`; `InputError` has every mistake of the file."""
    document = read_document(Path(path))
    problems: list[str] = []
    try:
        file = StudyFile.model_validate(document)
    except ValidationError as error:
        problems += [_problem(detail) for detail in error.errors()]
        if any(detail["type"] == "string_type" for detail in error.errors()):
            raise InputError(str(path), problems) from None
        known = {key: value for key, value in document.items() if key in StudyFile.model_fields}
        file = StudyFile.model_construct(**{"models": [], "systems": [], "gpus": [1], **known})
    batches = None if file.global_batch is None else axis_values("global_batch", file.global_batch, problems)
    try:
        seen = (file.images, file.image_size, file.frozen_tower)
        training = Training.read(file.train, file.lengths, *seen, files=False)
        models = [_apply_training(name, training) for name in file.models]
        question = Question(
            gpus=_whole(axis_values("gpus", file.gpus, problems)),
            framework=file.framework,
            strategy=file.strategies if "strategies" in document else None,
            assumptions=file.assumptions,
            top=file.top,
        )
        study = define_study(
            models,
            file.systems,
            question,
            batches=None if batches is None else _whole(batches),
            vary=[_axis(number, axis, problems) for number, axis in enumerate(as_list(file.vary))],
            name=file.name or Path(path).stem,
        )
    except InputError as error:
        missing = {problem.partition(":")[0] for problem in problems if problem.endswith(": missing")}
        problems += [problem for problem in error.problems if problem.partition(":")[0] not in missing]
    raise_problems(str(path), problems)
    return study


def _apply_training(name: Any, training: Training) -> Model | str:
    """Return a model as it is trained; if there is none its name, which `define_study` refuses."""
    try:
        model = training.load(partial(load_model, name), None)
    except InputError:
        return str(name)
    return training.apply_to(model)


def _problem(detail: ErrorDetails) -> str:
    """Return the line of a mistake that pydantic found."""
    key = str(detail["loc"][0])
    if detail["type"] == "missing":
        return f"{key}: missing"
    if detail["type"] == "extra_forbidden":
        close = get_close_matches(key, StudyFile.model_fields, n=1)
        allowed = f"did you mean {close[0]}?" if close else f"allowed: {', '.join(StudyFile.model_fields)}"
        varied = [name for name in COLUMNS if name.endswith(f".{key}")]
        allowed = f"write it under vary, as {' or '.join(varied[:2])}" if varied else allowed
        return f"{key}: unknown key; {allowed}"
    return f"{key} = {detail['input']!r}: must be a name"


def _whole(values: list[float]) -> list[Any]:
    """Return whole numbers as integers, and other numbers unchanged, to be refused by name."""
    return [int(value) if value == int(value) else value for value in values]


def _axis(number: int, raw: Any, problems: list[str]) -> Any:
    """Return an axis with its values in SI; what is no mapping stays as it is, to be refused by name."""
    if not isinstance(raw, Mapping):
        return raw
    return {
        str(path): axis_values(f"vary.{number}.{path}", values, problems, str(path))
        for path, values in raw.items()
    }


def axis_values(place: str, raw: object, problems: list[str], field: str = "") -> list[float]:
    """Return values in SI from a list, a value or one of `SERIES`; mistakes are added to `problems`."""
    unit = COLUMNS[field].unit if field in COLUMNS else ""
    if not isinstance(raw, Mapping):
        return [_number(place, value, problems, unit) for value in as_list(raw)]
    kind, written = next(iter(raw.items()), (None, []))
    if len(raw) != 1 or kind not in SERIES:
        forms = ", ".join(f"{name}: {arguments}" for name, arguments in SERIES.items())
        problems.append(f"{place} = {dict(raw)!r}: must be a list, or one of {forms}")
        return [1.0]
    place = f"{place}.{kind}"
    arguments = as_list(written)
    units = (unit, unit, unit if kind == "range" else "")
    numbers = [_number(place, value, problems, of) for value, of in zip(arguments, units, strict=False)]
    if wrong := _series_problem(kind, numbers, len(arguments)):
        problems.append(f"{place} = {written!r}: {wrong}")
        return [1.0]
    first, last, *rest = numbers
    match kind:
        case "linspace":
            return [float(value) for value in np.linspace(first, last, int(rest[0]))]
        case "logspace":
            return [float(value) for value in np.geomspace(first, last, int(rest[0]))]
        case "range":
            return [first + rest[0] * step for step in range(int((last - first) / rest[0] + 1e-9) + 1)]
    return [first * 2.0**power for power in range(int(np.log2(last / first) + 1e-9) + 1)]


def _series_problem(kind: str, numbers: list[float], given: int) -> str | None:
    """Return what is wrong with the arguments of a series, or None."""
    if given != SERIES[kind].count(",") + 1 or min(numbers, default=0) <= 0:
        return f"must be {SERIES[kind]}, all above 0"
    counted = kind in {"linspace", "logspace"}
    if not counted and numbers[1] < numbers[0]:
        return "the last is below the first"
    values = numbers[2] if counted else (numbers[1] - numbers[0]) / numbers[-1]
    if values > MAX_SWEEP_VALUES or (counted and values != int(values)):
        return f"how many must be a whole number of at most {MAX_SWEEP_VALUES:,}"
    return None


def _number(place: str, raw: object, problems: list[str], unit: str) -> float:
    """Return a number in SI; a mistake is added to `problems`."""
    try:
        if unit in UNIT_EXAMPLES:
            return parse_quantity(raw, unit)
        if isinstance(raw, str) and ".model.seq" in place:
            return parse_count(raw, place, 1024)  # as --seq
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            raise ValueError("not a number")
        if not math.isfinite(raw):
            raise ValueError("not finite")
        return float(raw)
    except InputError as error:
        problems.append(f"{place} = {error.problems[0]}")
    except ValueError as error:
        problems.append(f"{place} = {raw!r}: {error}")
    return 1.0
