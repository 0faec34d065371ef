"""Launches with random settings are read as the frameworks' own classes read them.

`oracle/FORMAT.json` is what these make of the files (tools/launch_oracle): a few dozen of each format are
kept, and `make frameworks` compares a thousand, those of a folder that TRAINCAST_READINGS names.
"""

import json
import os
from functools import cache
from pathlib import Path

import pytest

from traincast.catalog.load import load_model
from traincast.core.errors import InputError
from traincast.launch.formats import READERS
from traincast.launch.reader import complete_launch, read

FOLDER = Path(os.environ.get("TRAINCAST_READINGS") or Path(__file__).with_name("oracle"))
FORMATS = sorted(path.stem for path in FOLDER.glob("*.json"))
SUFFIXES = {"deepspeed": ".json", "megatron": ".sh", "torchtitan-command": ".sh"}
MOST_REFUSED = 0.25  # of the files of a format: settings that frameworks take and traincast does not predict
NOT_READ = ": not read ("


@cache
def readings(form):
    return json.loads((FOLDER / f"{form}.json").read_text(encoding="utf-8"))


def facts_of(model, plan, gbs):
    """Return facts under the names that the tables of readings have."""
    facts = {**vars(model), **vars(plan), "gbs": gbs, "gpus": plan.gpus, "kv_heads": model.groups}
    facts |= {"replicas": plan.replicas if plan.zero else 1}
    if model.adapters is not None:
        facts |= {f"adapters.{name}": value for name, value in vars(model.adapters).items()}
    if model.experts is not None:
        facts |= {f"experts.{name}": value for name, value in vars(model.experts).items()}
    return facts


def differences(form, case, file):
    """Return the facts that traincast reads in another way, or why it refuses the file."""
    file.write_text(case["text"], encoding="utf-8")
    given = dict(case["given"])
    named = given.pop("model", "")
    try:
        reading = read(file, READERS)
        reading.check_unread()
        named = named or reading.form.named_model(reading.settings)
        model = load_model(named) if named else None
        completed, model, plan, gbs = complete_launch(reading, model, given.pop("gpus", None), None, given)
    except InputError as error:
        others = [problem for problem in error.problems if NOT_READ not in problem]
        return ({"refused": others} if others else None), "; ".join(error.problems)
    ours = facts_of(model, plan, gbs) | {"seq": completed.facts.get("seq", model.seq)}
    wrong = {
        name: (ours.get(name), value) for name, value in case["facts"].items() if ours.get(name) != value
    }
    return wrong, ""


@pytest.mark.parametrize("form", FORMATS)
def test_files_are_read_as_the_framework_reads_them(form, tmp_path):
    cases = readings(form)["cases"]
    file = tmp_path / f"launch{SUFFIXES.get(form, '.yaml')}"
    found = [(case, *differences(form, case, file)) for case in cases]
    wrong = [f"{facts} (ours, theirs) in\n{case['text']}" for case, facts, _ in found if facts]
    refused = [f"{why} in\n{case['text']}" for case, facts, why in found if facts is None]
    assert not wrong, "\n".join((f"{len(wrong)} of {len(cases)} files:", *wrong[:10]))
    assert len(refused) <= MOST_REFUSED * len(cases), "\n".join(refused[:10])
