"""Figures from files: tables of studies, and plans as `traincast plan --json` prints them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import polars as pl
from matplotlib.figure import Figure

from traincast.catalog.load import load_model, load_system
from traincast.core.errors import InputError
from traincast.planner.search import Found, search
from traincast.planner.study.results import Results, read
from traincast.ui.figures.contours import contour
from traincast.ui.figures.search import pareto, roofline, tornado
from traincast.ui.figures.step import memory_waterfall
from traincast.ui.figures.study import optima, strong_scaling

SELECT_COLUMNS: Final = ("model", "system", "strategy", "gbs")
OF_A_PLAN: Final[dict[str, Callable[[Found], Figure]]] = {
    "pareto": pareto,
    "tornado": tornado,
    "roofline": lambda result: roofline(result.plans[0][1]),
    "waterfall": lambda result: memory_waterfall(result.plans[0][1]),
}


def draw_plan(path: Path, kind: str) -> Figure:
    """Draw the best plan of a search that was printed with ``traincast plan --json``.

    Parameters
    ----------
    path : Path
        The file; its search is run again.
    kind : {"pareto", "tornado", "roofline", "waterfall"}
        What to draw.

    Raises
    ------
    InputError
        If the file is no such search, or no plan fits.
    """
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        names = {key: document[key] for key in ("gpus", "assumptions")}
        model, system = (
            load_model(document["model"], seq=document.get("seq")),
            load_system(document["system"]),
        )
        result = search(
            model,
            system,
            gbs=document["global_batch"],
            strategy=document["strategies"],
            framework=document["framework"],
            **names,
        )
    except FileNotFoundError:
        raise InputError(str(path), ["no such file"]) from None
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            str(path), [f"is no search as traincast plan --json prints it ({type(error).__name__})"]
        ) from None
    if result.best is None:
        raise InputError(str(path), ["no plan fits, so there is none to draw"])
    return OF_A_PLAN[kind](result)


def draw_study(
    path: Path,
    kind: str,
    x: str | None = None,
    y: str | None = None,
    gpus: int | None = None,
    **select: str | int | None,
) -> Figure:
    """Draw the table of a study.

    Parameters
    ----------
    path : Path
        The table.
    kind : {"scaling", "throughput", "optima", "contour"}
        What to draw.
    x, y : str, optional
        Varied fields of a contour; the first field of the first two axes, if not given.
    gpus : int, optional
        Number of GPUs of a contour; the largest, if not given.
    **select
        Rows to draw: ``model``, ``system``, ``strategy``, ``gbs``.

    Raises
    ------
    InputError
        If the file is no table of a study, or does not hold what is asked for.
    """
    results = read(path)
    frame = results.frame
    for name, value in select.items():
        if value is not None:
            frame = _rows_with(path, frame, name, value)
    if kind == "contour":
        x, y = x or _first_field(path, results, 0), y or _first_field(path, results, 1)
        largest: Any = frame["gpus"].max()
        return contour(frame, x, y, largest if gpus is None else gpus)
    if kind == "optima":
        return optima(frame)
    return strong_scaling(frame, "throughput" if kind == "throughput" else "training_days")


def _rows_with(path: Path, frame: pl.DataFrame, name: str, value: str | int) -> pl.DataFrame:
    """Return the rows with one value of a column."""
    known = frame[name].unique(maintain_order=True).to_list()
    if value not in known:
        raise InputError(str(path), [f"{name} = {value!r}: must be one of {', '.join(map(str, known))}"])
    return frame.filter(pl.col(name) == value)


def _first_field(path: Path, results: Results, axis: int) -> str:
    """Return the first field of a study's axis."""
    axes = results.metadata["study"]["vary"]
    if axis >= len(axes):
        raise InputError(
            str(path),
            [f"varies {len(axes)} axes; a contour needs two: give --x and --y of a study that has them"],
        )
    return str(next(iter(axes[axis])))
