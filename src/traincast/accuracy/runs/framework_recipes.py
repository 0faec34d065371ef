"""What the recipes that a framework ships set: a table of its releases (recipes/megatron-bridge.csv).

tools/recipes.py writes it from the framework's repository; the head of the file has versions and commits.
"""

import csv
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Final

TABLES: Final = {"Megatron-Bridge": "megatron-bridge.csv"}  # by framework
Recipe = Mapping[str, str]


@cache
def recipes(framework: str) -> Mapping[tuple[str, ...], tuple[Recipe, ...]]:
    """Return the recipes of a framework by release, accelerator, precision and task; none if it is unknown.

    Releases are months; accelerators, precisions and the models in the recipes are those of the catalogue.
    """
    if framework not in TABLES:
        return {}
    text = (files("traincast") / "catalog/recipes" / TABLES[framework]).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found: dict[tuple[str, ...], list[Recipe]] = {}
    for row in csv.DictReader(lines):
        key = (row["released"], row["gpu"], row["precision"], row["task"])
        found.setdefault(key, []).append(row)
    return {key: tuple(rows) for key, rows in found.items()}


@cache
def releases_with_recipes(framework: str) -> tuple[str, ...]:
    """Return the months of the releases of a framework whose recipes are known, the oldest first."""
    return tuple(sorted({key[0] for key in recipes(framework)}))


def release_at(framework: str, released: str) -> str:
    """Return the last release whose recipes are known by a month; empty without one, or without a month."""
    if "-" not in released:
        return ""
    return max((month for month in releases_with_recipes(framework) if month <= released), default="")


def nearest(found: Iterable[Recipe], cells: Mapping[str, str]) -> tuple[Recipe, ...]:
    """Return the recipes that differ least from a row in some columns."""
    apart = [(distance(recipe, cells), recipe) for recipe in found]
    least = min((steps for steps, _ in apart), default=0)
    return tuple(recipe for steps, recipe in apart if steps == least)


def distance(recipe: Recipe, cells: Mapping[str, str]) -> int:
    """Return in how many columns of whole numbers, of which blank is 1, a recipe differs from a row."""
    return sum((recipe[name] or "1") != value for name, value in cells.items())
