"""The table of Megatron-Bridge's recipes against what the recipes set when they are run.

`catalog/recipes/megatron-bridge.csv` is written by tools/recipes.py, which runs each benchmark of a release;
`launch/tables/bridge_recipes.json` by tools/bridge_recipes.py, which reads them without running them.
"""

import csv
import json
import re
from importlib.resources import files

from traincast.core.errors import ErrorCollector
from traincast.launch.formats import READERS
from traincast.launch.settings.settings import Settings

RELEASE = "0.6.0"
PRECISIONS = {"bf16": "bf16", "fp8cs": "fp8-current", "fp8mx": "mxfp8", "nvfp4": "nvfp4"}
GPUS = {
    "h100": "h100-sxm-80",
    "b200": "b200-180",
    "b300": "b300-288",
    "gb200": "gb200-186",
    "gb300": "gb300-288",
}
NAME = re.compile(
    r"(?P<model>\w+)_(?P<task>pretrain|sft|lora)_(?P<gpus>\d+)gpu_(?P<gpu>[gb]+\d+|h100)_"
    r"(?P<precision>bf16|fp8cs|fp8mx|nvfp4)_config"
)
COMPARED = ("tp", "pp", "cp", "vp", "ep", "mbs", "gbs")


def letters(name):
    return re.sub(r"\W|_", "", name)


def test_recipes_read_are_as_those_run():
    """Degrees and batch of each benchmark are those of one that was run, of its model and machine."""
    text = (files("traincast") / "catalog/recipes/megatron-bridge.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    run = {}
    for row in rows:
        if RELEASE in row["versions"]:
            key = tuple(row[name] for name in ("task", "gpu", "precision", "gpus"))
            values = tuple(int(row[name] or 1) for name in COMPARED)
            run.setdefault((letters(row["model"]), *key), set()).add(values)
    table = json.loads((files("traincast") / "launch/tables/bridge_recipes.json").read_text(encoding="utf-8"))
    form, compared, other = READERS["bridge-recipe"], 0, []
    for name, settings in table["recipes"].items():
        match = NAME.fullmatch(name)
        if match is None or not settings.get("benchmark_recipe"):
            continue
        key = (match["task"], GPUS.get(match["gpu"]), PRECISIONS[match["precision"]], match["gpus"])
        known = run.get((letters(match["model"]), *key))
        if known is None:
            continue
        facts = form.facts(Settings(settings), ErrorCollector(""), {"model"})
        values = tuple(facts.get(fact, 1) for fact in COMPARED)
        compared += 1
        if values not in known:
            other.append((name, values, known))
    assert compared > 100, compared
    assert other == []
