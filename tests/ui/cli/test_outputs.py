"""JSON outputs: every command with --json prints one object that matches its published schema."""

import json

import pytest

import recorded_ranks
from every_command import BEFORE, ENDLESS, EXAMPLES, LACKING, NAMES, SHORTER, calls
from traincast.tuner.replay import WRONGS
from traincast.ui.outputs import output_types, schema

jsonschema = pytest.importorskip("jsonschema", reason="a development tool")
OUTPUTS = output_types()


def validator(name):
    return jsonschema.Draft202012Validator(schema(name))


def test_examples_that_take_long_are_those_that_are_shortened():
    assert SHORTER.keys() <= {example for examples in EXAMPLES.values() for example in examples}


def test_every_command_has_a_schema():
    assert set(OUTPUTS) - {"error"} == set(NAMES)


@pytest.mark.parametrize("name", sorted(OUTPUTS))
def test_schemas_are_schemas(name):
    jsonschema.Draft202012Validator.check_schema(schema(name))


def keys(value):
    """Every key in an object, however deep."""
    if isinstance(value, list):
        return {key for item in value for key in keys(item)}
    if isinstance(value, dict):
        return {*value} | {key for item in value.values() for key in keys(item)}
    return set()


def described_keys(part):
    """Every key that a schema describes; each has a meaning, and an object has no others."""
    if isinstance(part, list):
        return {key for item in part for key in described_keys(item)}
    if not isinstance(part, dict):
        return set()
    properties = part.get("properties", {})
    assert all(key["description"] for key in properties.values())
    assert not properties or part["additionalProperties"] is False
    return {*properties} | {key for item in part.values() for key in described_keys(item)}


@pytest.mark.parametrize("name", sorted(set(OUTPUTS) - {"error"} - ENDLESS - LACKING))
def test_answers_are_as_the_schema_says_and_show_every_key_of_it(name, run, folder, monkeypatch):
    for module in ("measure", "training.compare"):
        ranks = f"traincast.accuracy.machine.{module}.run_on_all_ranks"
        monkeypatch.setattr(ranks, recorded_ranks.run_on_all_ranks)
    # a small part of the replay, which shows the same keys
    for figure, value in {"MIN_PLANS": 20, "WRONGS": WRONGS[:1], "SPACE_DRAWS": 1, "SPACE_TRIALS": 2}.items():
        monkeypatch.setattr(f"traincast.tuner.replay.{figure}", value)
    for command in BEFORE.get(name, ()):
        assert run(command).code == 0
    seen = set()
    for command in calls(name):
        code, out, err = run(f"{command} --json")
        assert code in (0, 1), err
        said = err.replace("start it with: bash run.sh\n", "")  # beside what is exported
        assert (code == 0) == (said == "")
        validator(name).validate(json.loads(out))
        seen |= keys(json.loads(out))
    hidden = {  # a launch file states its software; a short table has no bins of 30 rows
        "check": {"narrowed_by"},
        "export": {"narrowed_by"},
        "validate": {"stated"},
    }
    assert described_keys(schema(name)) - seen == hidden.get(name, set())


BAD = {
    "plan": ("plan gpt3-1x --system h20x-nvs --gpus 0", "plan", 3),
    "estimate": ("estimate gpt3-1t --system h200-nvs8 --tp 0 --dp 0", "estimate", 2),
    "catalog": ("catalog wibble", "unknown name 'wibble'", 1),
    "study": ("study nowhere.yaml --output a.parquet", "nowhere.yaml", 1),
    "design": ("design nowhere.yaml --workers 0 --output a.txt", "design", 3),
    "reproduce": ("reproduce 1234.5678", "paper", 1),
}


@pytest.mark.parametrize("name", BAD)
def test_all_that_is_wrong_is_reported_to_machines_as_well(name, run):
    command, subject, problems = BAD[name]
    code, out, err = run(f"{command} --json")
    answer = json.loads(out)
    validator("error").validate(answer)
    assert (
        code,
        answer["error"]["exit_code"],
        answer["error"]["subject"],
        len(answer["error"]["problems"]),
    ) == (
        2,
        2,
        subject,
        problems,
    )
    assert err == f"traincast: {answer['error']['message']}\n"


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_option_is_reported_to_machines(name, run):
    code, out, err = run(f"{name} --wibble --json")
    answer = json.loads(out)["error"]
    validator("error").validate(json.loads(out))
    assert (code, answer["exit_code"], answer["subject"]) == (2, 2, name)
    assert err == f"traincast: {answer['message']}\n"
