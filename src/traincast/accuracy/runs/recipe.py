"""Facts that a row leaves open, as the recipes that its framework's release ships have them."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from traincast.accuracy.runs.cells import Cells
from traincast.catalog.framework_recipes import DEGREES, Recipe, distance, nearest, recipes, release_at
from traincast.catalog.load import load_accelerator, load_model
from traincast.core.model_blocks import Experts
from traincast.core.system import System

OF_SOFTWARE: Final = ("dispatcher", "graphs")  # columns of facts
OF_OVERLAP: Final = ("ep_overlap", "tp_overlap")
OF_LAYOUT: Final = ("recompute", "offload", "offload_every")  # right for the degrees of the recipe alone
SHAPE: Final = ("layers", "hidden", "heads")  # and experts: the width of a row is that of its MLP or of an expert


def assume_recipe(
    cells: Cells, sizes: Mapping[str, Any], system: System | None, precision: str, task: str
) -> None:
    """Fill facts that a row leaves open from the recipe of its release, and note them as assumed.

    The recipe is of the row's model (its shape), accelerator, precision and task, contradicts no fact that
    the row states, and is the nearest in degrees. Where several are, a fact is filled on which they agree.
    `sizes` are the arguments of the row's model.
    """
    framework, released = cells.text("framework"), cells.text("released")
    month = release_at(framework, released)
    if not month or system is None:
        return
    gpu = _accelerators(framework).get(system.accelerator.name, "")
    listed = recipes(framework).get((month, gpu, precision, task), ())
    degrees = {name: cells.text(name) for name in DEGREES if cells.text(name)}
    found = nearest((recipe for recipe in listed if _is_of(cells, sizes, recipe)), degrees)
    _fill(cells, found, (*OF_SOFTWARE, *OF_OVERLAP))
    if not cells.text("recompute") and all(distance(recipe, _without_batch(degrees)) == 0 for recipe in found):
        _fill(cells, [_laid_out(recipe, sizes["layers"]) for recipe in found], OF_LAYOUT)


@cache
def _accelerators(framework: str) -> dict[str, str]:
    """Return the catalogue's name of accelerators that a framework has recipes for, by their full name."""
    return {load_accelerator(gpu).name: gpu for _, gpu, *_ in recipes(framework)}


def _without_batch(degrees: Mapping[str, str]) -> dict[str, str]:
    """Return the degrees that decide what fits."""
    return {name: value for name, value in degrees.items() if name not in ("gpus", "gbs")}


def _is_of(cells: Cells, sizes: Mapping[str, Any], recipe: Recipe) -> bool:
    """Return whether a recipe is of a row's model, and says nothing else than the row."""
    model, experts = load_model(recipe["model"]), sizes.get("experts")
    same = all(sizes.get(name) == getattr(model, name) for name in SHAPE if sizes.get(name) is not None)
    if not same or _number(experts) != _number(model.experts):
        return False
    return all(cells.text(name) in ("", recipe[name]) for name in OF_SOFTWARE)


def _number(experts: Experts | None) -> int:
    return 0 if experts is None else int(experts.experts)


def _laid_out(recipe: Recipe, layers: int) -> dict[str, str]:
    """Return what a recipe recomputes and offloads, in the columns of a table of runs."""
    offloaded = int(recipe["offloaded_layers"] or 0)
    return {
        "recompute": recipe["recompute"],
        "offload": "activations" if offloaded else "",
        "offload_every": str(layers // offloaded) if offloaded else "",
    }


def _fill(cells: Cells, found: Iterable[Mapping[str, str]], columns: Iterable[str]) -> None:
    """Fill blank cells on which recipes agree, and note them."""
    found = list(found)
    for name in columns:
        values = {recipe[name] for recipe in found}
        if len(values) == 1 and "" not in values and not cells.text(name):
            (cells.row[name],) = values
            cells.assume(name)
