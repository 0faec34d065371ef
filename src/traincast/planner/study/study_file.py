"""Read a study from a YAML or JSON file."""

import math
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import numpy as np

from traincast.catalog.documents import read
from traincast.core.errors import InputError
from traincast.core.quantities import COLUMNS
from traincast.core.units import EXAMPLES, parse
from traincast.planner.study.sweep import Study, define

MAX_SWEEP_VALUES: Final = 1_000_000  # of one field
KEYS: Final = (
    "name",
    "title",
    "models",
    "systems",
    "gpus",
    "strategies",
    "global_batch",
    "assumptions",
    "top",
    "vary",
)
SERIES: Final = {  # ways to write values besides a list, and their arguments
    "linspace": "[first, last, how many]",
    "logspace": "[first, last, how many]",
    "range": "[first, last, step]",
    "doubling": "[first, last]",
}


def load_study(path: str | Path) -> Study:
    """Load a study.

    Parameters
    ----------
    path : str or Path
        A YAML or JSON file with ``models``, ``systems`` and ``gpus``, and perhaps ``strategies``, ``global_batch``,
        ``assumptions``, ``top`` and ``vary``: a list of axes, each a mapping of fields that vary together to their values.

    Returns
    -------
    Study
        The study.

    Raises
    ------
    InputError
        With every mistake of the file.
    """
    document = read(Path(path))
    problems = [_unknown(key) for key in document if key not in KEYS]
    problems += [f"{key}: missing" for key in ("models", "systems", "gpus") if key not in document]
    lists = {key: _list(document.get(key, default)) for key, default in _DEFAULTS.items()}
    texts = [(key, text) for key, given in lists.items() for text in given]
    texts += [(key, document[key]) for key in ("assumptions",) if key in document]
    if unnamed := [f"{key} = {text!r}: must be a name" for key, text in texts if not isinstance(text, str)]:
        raise InputError(str(path), [*problems, *unnamed])
    gpus = _values("gpus", document.get("gpus", [1]), problems)
    batches = (
        _values("global_batch", document["global_batch"], problems) if "global_batch" in document else None
    )
    vary = _axes(document.get("vary", []), problems)
    try:
        study = define(
            models=lists["models"],
            systems=lists["systems"],
            gpus=_whole(gpus),
            strategies=lists["strategies"],
            gbs=None if batches is None else _whole(batches),
            assumptions=document.get("assumptions"),
            top=document.get("top", 1),
            vary=vary,
            name=str(document.get("name", Path(path).stem)),
        )
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(str(path), problems)
    return study


_DEFAULTS: Final[dict[str, list[str]]] = {
    "models": [],
    "systems": [],
    "strategies": ["1d", "summa", "context"],
}


def _unknown(key: object) -> str:
    """Return the message on an unknown key, with the nearest known one."""
    close = get_close_matches(str(key), KEYS, n=1)
    offer = f"did you mean {close[0]}?" if close else f"allowed: {', '.join(KEYS)}"
    return f"{key}: unknown key; {offer}"


def _list(raw: Any) -> list[Any]:
    """Return a list as it is, and another value as a list of one."""
    return raw if isinstance(raw, list) else [raw]


def _whole(values: list[float]) -> list[Any]:
    """Return whole numbers as integers, and other numbers unchanged, to be refused by name."""
    return [int(value) if value == int(value) else value for value in values]


def _axes(raw: Any, problems: list[str]) -> list[dict[str, list[float]]]:
    """Return the axes, each of fields that vary together."""
    axes = []
    for number, axis in enumerate(_list(raw)):
        if not isinstance(axis, Mapping) or not axis:
            problems.append(f"vary.{number} = {axis!r}: not a mapping of fields to values")
            continue
        axes.append(
            {
                str(path): _values(f"vary.{number}.{path}", values, problems, str(path))
                for path, values in axis.items()
            }
        )
    return axes


def _values(place: str, raw: Any, problems: list[str], field: str = "") -> list[float]:
    """Return values in SI from a list, a single value or a series of `SERIES`; mistakes are added to `problems`."""
    unit = COLUMNS[field].unit if field in COLUMNS else ""
    if not isinstance(raw, Mapping):
        return [_number(place, value, problems, unit) for value in _list(raw)]
    kind, written = next(iter(raw.items()), (None, []))
    if len(raw) != 1 or kind not in SERIES:
        ways = ", ".join(f"{way}: {needs}" for way, needs in SERIES.items())
        problems.append(f"{place} = {dict(raw)!r}: must be a list, or one of {ways}")
        return [1.0]
    units = (unit, unit, unit if kind == "range" else "")
    numbers = [
        _number(f"{place}.{kind}", value, problems, of)
        for value, of in zip(_list(written), units, strict=False)
    ]
    if len(_list(written)) != SERIES[kind].count(",") + 1 or min(numbers, default=0) <= 0:
        problems.append(f"{place}.{kind} = {written!r}: must be {SERIES[kind]}, all above 0")
        return [1.0]
    if numbers[1] < numbers[0] and kind in {"range", "doubling"}:
        problems.append(f"{place}.{kind} = {written!r}: the last is below the first")
        return [1.0]
    counted = kind in {"linspace", "logspace"}
    how_many = numbers[2] if counted else (numbers[1] - numbers[0]) / numbers[-1]
    if how_many > MAX_SWEEP_VALUES or (counted and how_many != int(how_many)):
        problems.append(
            f"{place}.{kind} = {written!r}: how many must be a whole number of at most {MAX_SWEEP_VALUES:,}"
        )
        return [1.0]
    return _series(kind, numbers)


def _series(kind: str, numbers: list[float]) -> list[float]:
    """Return the values of a series."""
    first, last, *rest = numbers
    if kind == "linspace":
        return [float(value) for value in np.linspace(first, last, max(int(rest[0]), 1))]
    if kind == "logspace":
        return [float(value) for value in np.geomspace(first, last, max(int(rest[0]), 1))]
    if kind == "range":
        return [first + rest[0] * step for step in range(int((last - first) / rest[0] + 1e-9) + 1)]
    return [first * 2.0**power for power in range(max(int(np.log2(last / first) + 1e-9), 0) + 1)]


def _number(place: str, raw: Any, problems: list[str], unit: str) -> float:
    """Return a number in SI; a mistake is added to `problems`."""
    try:
        if unit in EXAMPLES:
            return parse(raw, unit)
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            raise ValueError("not a number")
        if not math.isfinite(raw):
            raise ValueError("not finite")
        return float(raw)
    except ValueError as error:
        problems.append(f"{place} = {raw!r}: {error}")
        return 1.0
