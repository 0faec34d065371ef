"""Figures from files: tables of studies, and plans as `traincast plan --json` prints them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import polars as pl
from matplotlib.figure import Figure

from traincast.catalog import MAX_JSON_BYTES, load_model, load_system, parse_document, read_bytes
from traincast.core import InputError
from traincast.planner import Found, Results, possible_software, read_results, search
from traincast.ui.figures.plan import memory_waterfall, pareto, roofline, tornado
from traincast.ui.figures.study import contour, optima, speedup, strong_scaling, sweep, unique

EVERY_ROW: Final[Mapping[str, str | int | None]] = {}  # of a table: no column has a selected value
OF_A_PLAN: Final[dict[str, Callable[[Found], Figure]]] = {
    "pareto": pareto,
    "tornado": tornado,
    "roofline": lambda result: roofline(result.plans[0][1]),
    "waterfall": lambda result: memory_waterfall(result.plans[0][1]),
}


def draw_plan(path: Path, kind: str) -> Figure:
    """Draw the best plan of a search printed with ``traincast plan --json``, which is run again."""
    try:
        text = read_bytes(path, MAX_JSON_BYTES)
    except ValueError as error:
        raise InputError(str(path), [str(error)]) from None
    try:
        document = parse_document(text.decode("utf-8-sig"), "json")
    except InputError as error:
        raise InputError(str(path), error.problems) from None
    except UnicodeDecodeError:
        raise InputError(str(path), ["is no search as traincast plan --json prints it"]) from None
    try:
        model = load_model(document["model"], seq=document.get("seq"))
        system = load_system(document["system"])
        expected = document["recommended"]
        results = (
            search(
                model,
                system,
                gpus=document["gpus"],
                gbs=document["global_batch"],
                strategy=document["strategies"],
                locks=document.get("locks"),
                framework=document["framework"],
                objective=document["objective"],
                assumptions=assumed,
            )
            for assumed in possible_software(document)
        )
        result = next((r for r in results if r.record().to_dict()["recommended"] == expected), None)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError):
        raise InputError(str(path), ["is no search as traincast plan --json prints it"]) from None
    if result is None:
        # Of LoRA, of packed documents, or of a model or machine that has changed.
        problem = "searching its model and machine again does not recommend its plan"
        raise InputError(str(path), [f"{problem}; plan --html draws a search with all of its options"])
    if result.best is None:
        raise InputError(str(path), ["no plan fits, so there is none to draw"])
    return OF_A_PLAN[kind](result)


def draw_study(
    path: Path,
    kind: str,
    x: str | None = None,
    y: str | None = None,
    gpus: int | None = None,
    select: Mapping[str, str | int | None] = EVERY_ROW,
) -> Figure:
    """Draw the table of a study, of the rows with the selected values (of ``model``, ``system``, …).

    The table may be a file of results of the reference code of arXiv 2410.00273, or a folder of them.

    A contour is over the first fields of the first two axes, on the largest number of GPUs, if not given; a
    sweep over that of the first axis.
    """
    results = read_results(path)
    frame = results.frame
    for name, value in select.items():
        if value is None:
            continue
        known = unique(frame, name)
        if value not in known:
            allowed = ", ".join(map(str, known))
            raise InputError(str(path), [f"{name} = {value!r}: must be one of {allowed}"])
        frame = frame.filter(pl.col(name) == value)
    if kind == "contour":
        x = x or _first_field(path, results, 0)
        y = y or _first_field(path, results, 1)
        return contour(frame, x, y, max(frame["gpus"]) if gpus is None else gpus)
    if kind == "sweep":
        return sweep(frame, x or _first_field(path, results, 0, "sweep"), gpus)
    if kind in ("optima", "speedup"):
        return optima(frame) if kind == "optima" else speedup(frame)
    return strong_scaling(frame, "throughput" if kind == "throughput" else "training_days")


def _first_field(path: Path, results: Results, axis: int, kind: str = "contour") -> str:
    axes = results.metadata["study"]["vary"]
    if axis >= len(axes) and kind == "sweep":
        raise InputError(str(path), ["varies no field; a sweep needs one: a study with `vary`"])
    if axis >= len(axes):
        problem = f"varies {len(axes)} axes; a contour needs two: give --x and --y of a study that has them"
        raise InputError(str(path), [problem])
    return str(next(iter(axes[axis])))
