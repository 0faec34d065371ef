"""Arguments of the Python API: names resolve, and invalid ones are refused with the allowed ones."""

from dataclasses import fields, replace
from inspect import signature
from pathlib import Path

import pytest

import traincast as tc
from traincast.planner.question import Question

PLAN = tc.Plan(tp=8)
MODEL, SYSTEM = "llama-3-8b", "dgx-h100"
FILE = Path(__file__).parents[1] / "src" / "traincast" / "catalog" / "models" / "llama-3-8b.yaml"


@pytest.mark.parametrize(
    "model", [MODEL, FILE, str(FILE), tc.load_model(MODEL)], ids=["name", "Path", "path", "Model"]
)
def test_models_and_systems_are_given_by_name_file_or_object(model):
    for system in (SYSTEM, tc.load_system(SYSTEM)):
        assert tc.estimate(model, system, PLAN, gbs=8).model == tc.load_model(MODEL)
    assert (
        tc.search(model, SYSTEM, gpus=8, gbs=8, top=1).best
        == tc.search(tc.load_model(MODEL), tc.load_system(SYSTEM), gpus=8, gbs=8, top=1).best
    )


@pytest.mark.parametrize("function", [tc.search, tc.search_each, tc.compare])
def test_every_part_of_a_question_can_be_asked(function):
    """Names and defaults are those of `Question`; a comparison has several plans and a price besides."""
    named = signature(function).parameters
    usual = {field.name: field.default for field in fields(Question)}
    assert set(named) - {"progress", "plans", "price"} == set(usual)
    for name in set(usual) - {"model", "system", "gpus"}:
        assert named[name].default == usual[name], name


SEARCHES = {
    "model = None": {"model": None},
    "model = 5": {"model": 5},
    "system = \\['dgx-h100'\\]": {"system": [SYSTEM]},
    "gpus = '8'": {"gpus": "8"},
    "gpus = None": {"gpus": None},
    "gbs = '8'": {"gbs": "8"},
    "framework = 3: must be a name or a Framework": {"framework": 3},
    "unknown framework 'praxis'": {"framework": "praxis"},
    "strategy = 1: must be a name or a sequence": {"strategy": 1},
    "strategy = 1: must be a name": {"strategy": [1]},
    "assumptions = 1: must be a name or Assumptions": {"assumptions": 1},
    "locks = \\['tp'\\]: must be a mapping": {"locks": ["tp"]},
    "locks = 3: must be a mapping": {"locks": {3: 4}},
    "tp = 'many'": {"locks": {"tp": "many"}},
    "vp = 2 contradicts locks, where vp = 4": {"vp": 2, "locks": {"vp": 4}},
    "unknown objective": {"objective": 3},
}


@pytest.mark.parametrize("message", SEARCHES)
def test_a_search_names_the_argument_that_is_wrong(message):
    good = {"model": MODEL, "system": SYSTEM, "gpus": 8, "gbs": 8}
    with pytest.raises(tc.InputError, match=message):
        tc.search(**good | SEARCHES[message])


def test_a_search_reports_all_mistakes_at_once():
    with pytest.raises(tc.InputError) as caught:
        tc.search(
            "lama-3-8b",
            None,
            gpus=-8,
            gbs=0,
            framework="praxis",
            strategy="3d",
            locks={"zero": 7, "tpp": 2},
            top=0,
            objective="fun",
        )
    said = "\n".join(caught.value.problems)
    for part in (
        "did you mean llama-3-8b",
        "system = None",
        "gpus = -8",
        "gbs = 0",
        "praxis",
        "'3d'",
        "zero",
        "tpp",
        "top = 0",
        "fun",
    ):
        assert part in said


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        ("model = None", {"model": None}),
        ("system = 5", {"system": 5}),
        ("plan = 'tp=8': must be a Plan", {"plan": "tp=8"}),
        ("plan = \\{'tp': 8\\}", {"plan": {"tp": 8}}),
        ("gbs = 1.5", {"gbs": 1.5}),
        ("assumptions = 5", {"assumptions": 5}),
        ("unknown assumptions", {"assumptions": "papper"}),
    ],
)
def test_an_estimate_names_the_argument_that_is_wrong(message, wrong):
    with pytest.raises(tc.InputError, match=message):
        tc.estimate(**{"model": MODEL, "system": SYSTEM, "plan": PLAN, "gbs": 8} | wrong)


def test_an_estimate_reports_all_mistakes_at_once():
    with pytest.raises(
        tc.InputError, match=r"(?s)plan = 3.*unknown model.*system = None.*gbs = 0.*assumptions = 3"
    ):
        tc.estimate("nope", None, 3, gbs=0, assumptions=3)


@pytest.mark.parametrize("tokens", ["15T", True, [1e12], -1, float("nan"), float("inf")])
def test_figures_of_metrics_are_numbers(tokens):
    est = tc.estimate(MODEL, SYSTEM, PLAN, gbs=8)
    with pytest.raises(tc.InputError, match=r"tokens = .*: must be a .*number"):
        tc.metrics(est, tokens=tokens)
    with pytest.raises(tc.InputError, match="price = 'two'"):
        tc.metrics(est, price="two")
    with pytest.raises(tc.InputError, match="est = 3"):
        tc.metrics(3)


@pytest.mark.parametrize("load", [tc.load_model, tc.load_system])
@pytest.mark.parametrize("name", [None, 5, ["gpt3-1t"], b"gpt3-1t"])
def test_only_names_and_paths_are_loaded(load, name):
    with pytest.raises(tc.InputError, match="must be a name of the catalogue, or the path of a file"):
        load(name)


@pytest.mark.parametrize("load", [tc.load_model, tc.load_system])
@pytest.mark.parametrize("name", ["notes.md", "config.toml", "config.json.txt"])
def test_a_file_of_the_wrong_kind_names_the_expected_kind(load, name):
    with pytest.raises(tc.InputError, match=r"is no (model|system) file: wanted is a \.yaml"):
        load(name)


def test_a_job_is_no_larger_than_its_machine():
    small = replace(tc.load_system(SYSTEM), gpus=4)
    with pytest.raises(tc.InputError, match="gpus: 8 requested, dgx-h100 has 4"):
        tc.search(MODEL, small, gpus=8, gbs=8)
    with pytest.raises(tc.InputError, match="gpus: 8 requested, dgx-h100 has 4"):
        tc.estimate(MODEL, small, PLAN, gbs=8)


def test_progress_reaches_every_batch():
    reports = []
    found = tc.search(MODEL, SYSTEM, gpus=8, gbs=8, progress=lambda *said: reports.append(said))
    steps = [done for done, _, _ in reports]
    assert steps == sorted(set(steps))
    assert {total for _, total, _ in reports} == {steps[-1]}
    assert steps[-1] > len(found.outcomes)  # besides batches, what is enumerated
    assert sum(candidates for _, _, candidates in reports) == found.candidates


EXAMPLES = Path(__file__).parents[1] / "examples"
ESTIMATE = tc.estimate("gpt-125m", SYSTEM, tc.Plan(dp=8), gbs=64)
CALLS = {
    "advise": {"est": ESTIMATE, "step_seconds": 0.5},
    "calibrate": {"system": "dgx-h100", "runs": [], "logs": [], "nccl": [], "gemm": []},
    "check": {"path": EXAMPLES / "my_cluster/pretrain.sh", "system": "dgx-h100", "gpus": 64, "seq": 2048},
    "design": {"file": EXAMPLES / "design.yaml"},
    "estimate": {"model": "gpt-125m", "system": "dgx-h100", "plan": tc.Plan(dp=8), "gbs": 64},
    "export": {"what": ESTIMATE, "to": "megatron"},
    "hardware_flops_per_token": {"model": ESTIMATE.model, "recompute": "none", "convention": "palm"},
    "limits": {"accelerator": "h100-sxm-80", "network": "400 Gb/s"},
    "load_model": {"name_or_path": "gpt-125m", "seq": 1024},
    "load_system": {"name_or_path": "dgx-h100"},
    "metrics": {"est": ESTIMATE, "step_seconds": 1.0, "tokens": 1e9, "price": 2.0},
    "model_flops_per_token": {"model": ESTIMATE.model, "convention": "palm"},
    "profile": {"path": "trace.json"},
    "scaling": {"model": "gpt-13b", "system": "polaris", "gpus": [8], "zero": [1]},
    "search": {"model": "gpt-125m", "system": "dgx-h100", "gpus": 8, "gbs": 64, "framework": "any"},
    "study": {"models": ["gpt-125m"], "systems": ["dgx-h100"], "gpus": [8], "gbs": 64},
    "trace": {"est": ESTIMATE},
    "validate": {"runs": EXAMPLES / "my_cluster/runs.csv", "assumptions": "calibrated"},
    "write_html": {"result": ESTIMATE, "path": "report.html"},
}


@pytest.mark.parametrize("wrong", [object(), 2j, {"a": 1}], ids=["object", "complex", "dict"])
@pytest.mark.parametrize(("function", "argument"), [(f, argument) for f in CALLS for argument in CALLS[f]])
def test_an_argument_of_the_wrong_type_is_refused_in_words(function, argument, wrong):
    with pytest.raises(tc.InputError):
        getattr(tc, function)(**CALLS[function] | {argument: wrong})
