"""Readings of published launch files, in the folder that the variable TRAINCAST_LAUNCHES names."""

import json
import os
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from traincast.catalog.load import as_model
from traincast.core.errors import ErrorCollector, InputError
from traincast.launch.formats import READERS
from traincast.launch.reader import complete_launch, read
from traincast.launch.settings.given import Given

TABLE = tomllib.loads(Path(__file__).with_name("published_files.toml").read_text(encoding="utf-8"))
LEFT_OUT = TABLE.pop("left_out")
FOLDER = os.environ.get("TRAINCAST_LAUNCHES", "")
SIZES, OTHERS = ("vocab", "seq"), ("gpus", "gbs", "model", "recipe", "accept_unread", *("vocab", "seq"))


def reading(path, given, variables, beside=None, actor=False):
    """Return model, plan and global batch of a file as `check` reads it, without a search."""
    knobs = {name: value for name, value in given.items() if name not in OTHERS}
    names = [*given, *(["chunks"] if "layout" in given else [])]
    outside = Given(variables, given.get("recipe"), names, actor=actor)
    result = read(path, READERS, beside=beside, given=outside)
    named = given.get("model") or ErrorCollector("").catch(result.form.named_model, result.settings)
    model = as_model(named) if named else None
    if model is not None and (seq := given.get("seq", result.facts.get("seq", model.seq))) != model.seq:
        model = replace(model, seq=seq)
    if not given.get("accept_unread"):
        result.check_unread()
    sizes = {name: given[name] for name in SIZES if name in given}
    return complete_launch(result, model, given.get("gpus"), given.get("gbs"), {**knobs, **sizes})


def test_most_files_are_answered_and_the_others_are_refused_by_name():
    """Of 63 files at least 55 answer with what the table gives; a table that loses one fails here."""
    answered = [file for file, spec in TABLE.items() if "facts" in spec]
    assert len(TABLE) == 63
    assert len(answered) >= 55
    assert all(spec["refused"] for file, spec in TABLE.items() if file not in answered)


@pytest.mark.skipif(not FOLDER, reason="TRAINCAST_LAUNCHES names no folder of published launch files")
@pytest.mark.parametrize("file", TABLE)
def test_a_published_file_is_read_as_it_says(file, tmp_path):
    spec, path = TABLE[file], Path(FOLDER) / file
    given, variables = spec.get("given", {}), spec.get("variables", {})
    beside = tmp_path / "beside.json" if "beside" in spec else None
    if beside is not None:
        beside.write_text(json.dumps(spec["beside"]), encoding="utf-8")
    if "refused" in spec:
        with pytest.raises(InputError) as caught:
            reading(path, given, variables)
        assert spec["refused"] in str(caught.value)
        return
    _, model, plan, batch = reading(path, given, variables, beside, spec.get("actor", False))
    experts = model.experts.experts if model.experts else 0
    known = {**vars(model), **vars(plan), "gpus": plan.gpus, "gbs": batch, "experts": experts}
    expected = {**LEFT_OUT, **spec["facts"]}
    assert {name: known[name] for name in expected} == expected
