"""Facts that a row leaves open, as the recipes that its framework's release ships have them."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from traincast.accuracy.runs.cells import Cells
from traincast.accuracy.runs.framework_recipes import Recipe, distance, nearest, recipes, release_at
from traincast.accuracy.runs.plan import precision_of
from traincast.catalog import load_accelerator, load_model
from traincast.core import System
from traincast.model import Experts

OF_FACTS: Final = ("dispatcher", "graphs")  # which patterns.yaml has rules for as well
OF_OVERLAP: Final = ("ep_overlap", "tp_overlap")
OF_MEMORY: Final = ("recompute", "recompute_every", "offload", "offload_every")
DEGREES: Final = ("tp", "pp", "cp", "vp", "ep", "mbs")
OF_SCALE: Final = ("gpus", "gbs")  # the launcher of recipes changes both alike
UNSCALED: Final = {"fp8": "fp8-current"}  # a row that says no more; no recipe has scales of earlier steps
# and experts: the width of a row is that of its MLP or of an expert
SHAPE: Final = ("layers", "hidden", "heads")


def assume_recipe(cells: Cells, sizes: Mapping[str, Any], system: System | None) -> None:
    """Fill facts that a row leaves open from the recipe of its release, and note them as assumed.

    The recipe is of the row's model (its shape), accelerator, precision and task, has its degrees (a run
    with others is not of the recipe), and contradicts no fact that the row states. Where several are as near
    in GPUs and batch, facts are filled on which they agree. `sizes` are the arguments of the row's model.
    """
    framework = cells.text("framework")
    month = release_at(framework, cells.text("released"))
    if not month or system is None:
        return
    gpu = _accelerators(framework).get(system.accelerator.name, "")
    precision = precision_of(cells)
    scaled = UNSCALED.get(precision, precision)
    listed = recipes(framework).get((month, gpu, scaled, _task(cells, sizes)), ())
    fitting = [recipe for recipe in listed if _is_of(cells, sizes, recipe)]
    found = nearest(fitting, _stated_cells(cells, OF_SCALE))
    _fill(cells, found, (*OF_FACTS, *OF_OVERLAP))
    if not cells.text("recompute"):
        _fill(cells, [_memory_saved(recipe, sizes["layers"]) for recipe in found], OF_MEMORY)


def _task(cells: Cells, sizes: Mapping[str, object]) -> str:
    """Return the task of a row by its name in recipes; those of fine-tuning alone pack sequences."""
    if sizes.get("adapters") is not None:
        return "lora"
    return "sft" if cells.truth("packed") else "pretrain"


def _stated_cells(cells: Cells, columns: Iterable[str]) -> dict[str, str]:
    """Return the cells of columns that are not blank."""
    return {name: cells.text(name) for name in columns if cells.text(name)}


@cache
def _accelerators(framework: str) -> dict[str, str]:
    """Return the catalogue's name of accelerators that a framework has recipes for, by their full name."""
    return {load_accelerator(gpu).name: gpu for _, gpu, *_ in recipes(framework)}


def _is_of(cells: Cells, sizes: Mapping[str, Any], recipe: Recipe) -> bool:
    """Return whether a recipe is of a row's model, and says nothing else than the row."""
    model = load_model(recipe["model"])
    experts = sizes.get("experts")
    same = all(sizes.get(name) == getattr(model, name) for name in SHAPE if sizes.get(name) is not None)
    if not same or _number(experts) != _number(model.experts):
        return False
    stated = _stated_cells(cells, OF_FACTS)
    return distance(recipe, _stated_cells(cells, DEGREES)) == 0 and stated.items() <= recipe.items()


def _number(experts: Experts | None) -> int:
    return 0 if experts is None else int(experts.experts)


def _memory_saved(recipe: Recipe, layers: int) -> dict[str, str]:
    """Return what a recipe recomputes and offloads, in the columns of a table of runs."""
    offloaded, recomputed = (int(recipe[name] or 0) for name in ("offloaded_layers", "recomputed_layers"))
    of_chunk = layers // (int(recipe["pp"]) * int(recipe["vp"] or 1))
    return {
        "recompute": recipe["recompute"],
        "recompute_every": str(of_chunk // recomputed) if recomputed else "",
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
