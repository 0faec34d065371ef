"""Measured iterations beside the speed-up formula of ZeRO (Cheng et al., SIGMETRICS 2024, Fig. 15)."""

import csv
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Annotated, Final

from traincast.analysis.zero_scaling import Scaling
from traincast.catalog import read_text
from traincast.core import Doc, InputError, Result, raise_problems

COLUMNS: Final = ("gpus", "seconds", "zero")  # of a file; the last may be left out


class MeasuredIteration(Result):
    """A measured iteration, and how much speed is kept from the fewest GPUs: measured, and by the formula."""

    gpus: Annotated[int, Doc("number of GPUs")]
    seconds: Annotated[float, Doc("measured time of an iteration", "s")]
    efficiency: Annotated[float, Doc("measured speed-up over the fewest GPUs, over that of ideal scaling")]
    formula: Annotated[float, Doc("the same by the formula")]


class MeasuredScaling(Result):
    """Measured iterations of one stage of ZeRO."""

    zero: Annotated[int, Doc("stage of ZeRO")]
    mean_squared_error: Annotated[
        float, Doc("mean squared difference of the two efficiencies on more than the fewest GPUs")
    ]
    iterations: Annotated[list[MeasuredIteration], Doc("iterations by number of GPUs")]


def measured_scaling(path: str | Path, stages: Sequence[Scaling]) -> list[MeasuredScaling]:
    """Compare the measured iterations of a CSV file with the stages of `scaling`.

    Parameters
    ----------
    path : str or Path
        CSV with columns ``gpus``, ``seconds`` (of an iteration) and ``zero``, which may be left out where
        there is one stage. Sequences of a GPU are those of the question (weak scaling).
    stages : sequence of Scaling
        Stages on the same numbers of GPUs, the fewest first.

    Returns
    -------
    list of MeasuredScaling
        One for each stage that the file holds, in the order of `stages`.

    Raises
    ------
    InputError
        If the file cannot be read, or does not belong to the question; all mistakes at once.
    """
    path = Path(path)
    seconds = _read_iterations(path, stages)
    compared = []
    for stage in stages:
        measured = {gpus: value for (zero, gpus), value in seconds.items() if zero == stage.zero}
        if measured:
            compared.append(_compare_stage(stage, measured))
    return compared


def _compare_stage(stage: Scaling, measured: dict[int, float]) -> MeasuredScaling:
    """Compare the iterations of one stage, those of the fewest GPUs among them [s]."""
    formula = dict(zip(map(int, stage.gpus), map(float, stage.efficiency), strict=True))
    fewest = min(formula)
    rows = [
        MeasuredIteration(gpus, measured[gpus], measured[fewest] / measured[gpus], formula[gpus])
        for gpus in sorted(measured)
    ]
    squares = [(row.efficiency - row.formula) ** 2 for row in rows if row.gpus != fewest]
    return MeasuredScaling(stage.zero, sum(squares) / len(squares), rows)


def _read_iterations(path: Path, stages: Sequence[Scaling]) -> dict[tuple[int, int], float]:
    """Read the iterations of a file by stage of ZeRO and number of GPUs [s]."""
    try:
        lines = read_text(path).splitlines()
        rows = list(csv.DictReader(lines, strict=True))
    except (ValueError, csv.Error) as error:
        raise InputError("measured", [f"{path}: {error}"]) from None
    header = list(rows[0]) if rows else []
    missing = [name for name in COLUMNS[:2] if name not in header]
    if missing:
        wanted = f"{path}: needs the columns gpus and seconds, and a row for each measurement"
        raise InputError("measured", [f"{wanted}; {' and '.join(missing)} not found"])
    if "zero" not in header and len(stages) > 1:
        of_which = "has no column zero; add it, or ask for one stage with --zero"
        raise InputError("measured", [f"{path}: {of_which}"])
    gpus = [int(n) for n in stages[0].gpus]
    problems: list[str] = []
    seconds: dict[tuple[int, int], float] = {}
    for line, row in enumerate(rows, start=2):
        allowed = {"gpus": gpus, "zero": [stage.zero for stage in stages]}
        wrong = list(_cell_problems(row, allowed))
        problems += [f"{path}: line {line}: {problem}" for problem in wrong]
        if wrong:
            continue
        key = (int(row.get("zero") or stages[0].zero), int(row["gpus"]))
        if key in seconds:
            problems.append(f"{path}: line {line}: ZeRO-{key[0]} on {key[1]:,} GPUs is given twice")
        seconds[key] = float(row["seconds"])
    raise_problems("measured", problems or _gaps(path, seconds, gpus[0]))
    return seconds


def _cell_problems(row: dict[str, str], allowed: dict[str, list[int]]) -> Iterator[str]:
    """Yield what is wrong with the cells of a row."""
    if None in row:  # csv's name of cells beyond the header
        yield "has more cells than the header"
    for name, values in allowed.items():
        text = row.get(name)
        if name in row and text not in [str(value) for value in values]:
            yield f"{name} = {text!r}: must be one of those asked for, {', '.join(map(str, values))}"
    try:
        seconds = float(row["seconds"])
    except (TypeError, ValueError):
        seconds = -1.0
    if not (isfinite(seconds) and seconds > 0):
        yield f"seconds = {row['seconds']!r}: must be a number above 0"


def _gaps(path: Path, seconds: dict[tuple[int, int], float], fewest: int) -> list[str]:
    """Return for which stages the fewest GPUs, or more than those, are not measured."""
    problems = []
    for zero in sorted({zero for zero, _ in seconds}):
        measured = {gpus for stage, gpus in seconds if stage == zero}
        if fewest not in measured:
            problems.append(f"{path}: ZeRO-{zero} has no row of {fewest:,} GPUs, to which efficiencies refer")
        elif len(measured) == 1:
            problems.append(f"{path}: ZeRO-{zero} has no row of more than {fewest:,} GPUs")
    return problems
