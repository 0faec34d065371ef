"""Readings of the settings of published launches, which stand in published_settings.toml."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from traincast.catalog.load import as_model
from traincast.core.errors import ErrorCollector
from traincast.launch.formats import READERS
from traincast.launch.reader import complete_launch, read
from traincast.launch.settings.given import Given

TABLE = tomllib.loads(Path(__file__).with_name("published_settings.toml").read_text(encoding="utf-8"))
LEFT_OUT = TABLE.pop("left_out")
SIZES = ("vocab", "seq")
OTHERS = ("gpus", "gbs", "model", "accept_unread", *SIZES)


def reading(path, given):
    """Return model, plan and global batch of a file as `check` reads it, without a search."""
    knobs = {name: value for name, value in given.items() if name not in OTHERS}
    names = [*given, *(["chunks"] if "layout" in given else [])]
    result = read(path, READERS, given=Given({}, None, names))
    named = given.get("model") or ErrorCollector("").catch(result.form.named_model, result.settings)
    model = as_model(named) if named else None
    if model is not None and (seq := given.get("seq", result.facts.get("seq", model.seq))) != model.seq:
        model = replace(model, seq=seq)
    if not given.get("accept_unread"):
        result.check_unread()
    sizes = {name: given[name] for name in SIZES if name in given}
    return complete_launch(result, model, given.get("gpus"), given.get("gbs"), {**knobs, **sizes})


@pytest.mark.parametrize("file", TABLE)
def test_a_published_launch_is_read_as_it_says(file, tmp_path):
    spec = TABLE[file]
    path = tmp_path / file
    path.write_text(spec["text"], encoding="utf-8")
    _, model, plan, batch = reading(path, spec.get("given", {}))
    experts = model.experts.experts if model.experts else 0
    known = {**vars(model), **vars(plan), "gpus": plan.gpus, "gbs": batch, "experts": experts}
    expected = {**LEFT_OUT, **spec["facts"]}
    assert {name: known[name] for name in expected} == expected
