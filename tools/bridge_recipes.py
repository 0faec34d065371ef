"""Renew the table of what Megatron-Bridge's recipes set, from its repository.

    python tools/bridge_recipes.py REPOSITORY TAG

REPOSITORY is a clone with its tags. Each recipe of the release is read as `traincast check` reads its file,
and what the prediction depends on is written to src/traincast/launch/tables/bridge_recipes.json, for launches
that name a recipe whose file is not there. Recipes that are not read, such as those of models with vision,
are left out.
"""

import json
import re
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

from traincast.core.errors import InputError
from traincast.launch.formats import READERS
from traincast.launch.python import recipes
from traincast.launch.settings.given import Given

TABLE = Path(__file__).parents[1] / "src/traincast/launch/tables/bridge_recipes.json"
PACKAGE = "src/megatron/bridge"
FUNCTION = re.compile(r"(?m)^def ([a-z]\w*_(?:pretrain|sft|peft|finetune)\w*_config)\(")


def settings_of(text: str, name: str, folder: Path) -> dict[str, Any]:
    """Return the settings of a recipe that the prediction depends on."""
    form = READERS["bridge-recipe"]
    settings = recipes.read_recipe(text, Given(recipe=name, folder=folder))
    matter = form.unread.sort_settings(settings, form.known).matter
    kept = (*form.known, *matter, "helpers", "catalogue_model")
    return {name: value for name, value in settings.items() if name in kept}


def main(repository: str, tag: str) -> None:
    """Write the table."""
    table: dict[str, dict[str, Any]] = {}
    archive = subprocess.run(
        ["git", "archive", tag, PACKAGE], cwd=repository, stdout=subprocess.PIPE, check=True
    )
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as package:
            package.extractall(folder, filter="data")
        base = Path(folder, PACKAGE)
        for file in sorted((*base.glob("recipes/**/*.py"), *base.glob("perf_recipes/**/*.py"))):
            text = file.read_text(encoding="utf-8")
            for name in FUNCTION.findall(text):
                try:
                    table[name] = settings_of(text, name, file.parent)
                    if recipes.BENCHMARKS in file.parts:
                        table[name][recipes.BENCHMARK] = True
                except InputError as error:
                    print(f"left out: {name}: {error.problems[0]}", file=sys.stderr)
    lines = (f"{json.dumps(name)}: {json.dumps(settings)}" for name, settings in sorted(table.items()))
    version = f"Megatron-Bridge {tag.removeprefix('v')}"
    text = f'{{"version": {json.dumps(version)}, "recipes": {{\n' + ",\n".join(lines) + "\n}}\n"
    TABLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
