"""Alternatives side by side, from the library."""

import json

import pytest

import traincast as tc
from traincast.core.errors import NothingFits
from traincast.planner.answers.differences import ratio
from traincast.planner.comparison import MOST, parse_plan

H100 = "dgx-h100"
MI300X = "mi300x-node"


@pytest.fixture(scope="module")
def systems():
    return tc.compare("llama-3-70b", [H100, MI300X], gpus=64)


def test_each_alternative_is_a_search_of_its_own(systems):
    for row, system in zip(systems.alternatives, (H100, MI300X), strict=True):
        plan, est = tc.search("llama-3-70b", system, gpus=64).recommended
        assert (row.name, row.step_seconds, row.memory_bytes) == (system, est.step_seconds, est.memory_bytes)
        assert row.interval == est.interval
        assert tc.Plan(**row.plan) == plan
        measures = tc.metrics(est)
        assert (row.mfu, row.cost) == (measures.mfu["megatron"], measures.cost)
        per_token = row.cost / est.model.training_tokens
        assert row.cost_per_million_tokens == pytest.approx(1e6 * per_token)
        assert sum(row.shares.values()) == pytest.approx(1)
        assert list(row.shares.values()) == sorted(row.shares.values(), reverse=True)


def test_a_difference_is_set_against_its_error(systems):
    first, second = systems.alternatives
    (difference,) = systems.differences
    assert (difference.label, difference.against, difference.per) == ("B", "A", "step")
    assert difference.value == second.step_seconds / first.step_seconds
    assert difference.error == ratio(second.est, first.est)
    assert not difference.error.exceeds_error
    assert "within its error of" in difference.sentence
    assert difference.error.error > difference.value - 1  # as the sentence says
    b200 = tc.compare("llama-3-70b", [H100, "dgx-b200"], gpus=64)
    (difference,) = b200.differences
    assert difference.error.exceeds_error
    assert f"{100 * (difference.value - 1):.1f}% longer than B, more than its error" in difference.sentence


def test_gpus_are_compared_by_the_time_of_one():
    found = tc.compare("llama-3-8b", H100, gpus=[8, 64], gbs=64, framework="megatron")
    assert [row.name for row in found.alternatives] == ["8 GPUs", "64 GPUs"]
    (difference,) = found.differences
    rates = [row.tokens_per_second_per_gpu for row in found.alternatives]
    assert difference.per == "GPU"
    assert difference.value == pytest.approx(max(rates) / min(rates))


def test_plans_and_locks_are_searched_within():
    found = tc.compare("llama-3-8b", H100, gpus=64, gbs=64, plans=["tp=2 pp=2", {"tp": 8}, "ring cp=2"])
    plans = [tc.Plan(**row.plan) for row in found.alternatives]
    assert [(plan.tp, plan.pp) for plan in plans[:2]] == [(2, 2), (8, plans[1].pp)]
    assert (plans[2].cp, plans[2].cp_kind) == (2, "ring")
    assert [row.name for row in found.alternatives] == ["tp=2 pp=2", "tp=8", "strategy=ring cp=2"]


def test_names_say_what_sets_alternatives_apart():
    found = tc.compare(["llama-3-8b", "qwen3-8b"], H100, gpus=8, framework=["megatron", "torchtitan"])
    names = [row.name for row in found.alternatives]
    assert names == [f"{m}, {f}" for m in ("llama-3-8b", "qwen3-8b") for f in ("megatron", "torchtitan")]


def test_one_that_does_not_fit_is_a_line_of_the_table():
    found = tc.compare("llama-3-70b", H100, gpus=[8, 64], gbs=64)
    small, large = found.alternatives
    assert (small.fits, small.step_seconds, large.fits) == (False, None, True)
    assert small.memory_bytes > small.capacity_bytes
    assert small.in_words.startswith("the nearest to fitting needs ")
    assert found.differences == []
    found.require_any()
    with pytest.raises(NothingFits, match="nothing fits:\n  A rtx-4090: the nearest to fitting needs"):
        tc.compare("llama-3-70b", ["rtx-4090", "l4"], gpus=2, gbs=64).require_any()


def test_an_order_keeps_the_letters(systems):
    assert [row.label for row in systems.ordered("cost").alternatives] == ["B", "A"]
    assert [row.label for row in systems.ordered("time").alternatives] == ["A", "B"]
    assert [row.label for row in systems.ordered("throughput").alternatives] == ["A", "B"]
    assert systems.ordered("cost").differences == systems.differences


WRONG = {
    "2 to 26, such as two systems with a comma": {"system": H100},
    "unknown system": {"system": [H100, "dgx-h1000"]},
    "gpus: is missing": {"gpus": None},
    "unknown framework 'praxis'": {"framework": ["megatron", "praxis"]},
    "'pp': write name=value": {"plans": ["tp=8 pp", "tp=4"]},
    "is empty; write knobs": {"plans": ["", "tp=4"]},
    "gpus = 0": {"gpus": [0, 8]},
    f"{MOST + 1} alternatives": {"system": H100, "gpus": list(range(8, 8 * (MOST + 2), 8))},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments_are_named(message):
    good = {"model": "llama-3-8b", "system": [H100, MI300X], "gpus": 8}
    with pytest.raises(tc.InputError, match=message):
        tc.compare(**good | WRONG[message])


def test_a_plan_is_read_as_it_is_printed():
    plan = tc.Plan(tp=4, cp=2, cp_kind="ring", pp=4, dp=2, fast_tp=4, fast_cp=2, tp_overlap=True)
    assert tc.Plan(**parse_plan(str(plan))) == plan
    assert parse_plan("tp=8,zero=3,sp=off,recompute=full") == {
        "tp": 8, "zero": 3, "sp": False, "recompute": "full",
    }  # fmt: skip


def saved(path, result):
    path.write_text(json.dumps(result))
    return path


@pytest.fixture(scope="module")
def answers(run_json, tmp_path_factory):
    """Answers of the command line to one question on two systems, and to another that has adapters."""
    commands = {
        "h100": f"plan llama-3-8b --system {H100} --gpus 8 --top 1 --json",
        "mi300x": f"plan llama-3-8b --system {MI300X} --gpus 8 --top 1 --json",
        "lora": f"estimate llama-3-8b --system {H100} --dp 8 --gbs 64 --train lora:r=16 --json",
    }
    folder = tmp_path_factory.mktemp("answers")
    return {name: saved(folder / f"{name}.json", run_json(command)) for name, command in commands.items()}


@pytest.fixture(scope="module")
def run_json():
    """Run a command line in this process, and return what it prints with --json."""
    import contextlib
    import io
    import shlex

    from traincast.ui.cli.main import main

    def run(command):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            main(shlex.split(command))
        return json.loads(out.getvalue())

    return run


def test_saved_answers_compare_as_the_searches_do(answers):
    found = tc.compare([answers["h100"], answers["mi300x"]])
    fresh = tc.compare("llama-3-8b", [H100, MI300X], gpus=8)
    assert [row.name for row in found.alternatives] == ["h100", "mi300x"]
    for row, same in zip(found.alternatives, fresh.alternatives, strict=True):
        assert row.step_seconds == pytest.approx(same.step_seconds, rel=1e-9)
        assert row.cost == pytest.approx(same.cost)
    assert found.differences[0].error.low == pytest.approx(fresh.differences[0].error.low, rel=1e-6)


def test_a_saved_answer_says_what_was_left_open_and_given(run_json, tmp_path):
    """With facts given it is none of the three that older files leave possible."""
    question = f"plan qwen3-30b-a3b --system {H100} --gpus 32 --top 1 --framework megatron"
    answer = run_json(f"{question} --given dispatcher=alltoall --json")
    assert answer["given"] == {"dispatcher": "alltoall"}
    assert "megatron-core-2025" in answer["unsaid"]
    row, _ = tc.compare([saved(tmp_path / f"{i}.json", answer) for i in range(2)]).alternatives
    assert row.est.assumptions.given == (("dispatcher", "alltoall"),)
    assert row.interval == (answer["plans"][0]["step_seconds_low"], answer["plans"][0]["step_seconds_high"])


def test_a_saved_answer_of_a_version_that_did_not_say_what_was_left_open_is_read(answers, tmp_path):
    older = json.loads(answers["h100"].read_text())
    del older["unsaid"], older["given"]
    row, same = tc.compare([saved(tmp_path / "older.json", older), answers["h100"]]).alternatives
    assert row.est.step_seconds == same.est.step_seconds
    assert row.est.assumptions.unsaid == ("any",)


def test_a_saved_answer_of_other_inputs_keeps_its_figures(answers):
    """It cannot be estimated again from the file alone: its error counts as independent."""
    found = tc.compare([answers["h100"], answers["lora"]])
    lora = json.loads(answers["lora"].read_text())["estimate"]
    row = found.alternatives[1]
    assert row.est is None
    assert (row.step_seconds, row.memory_bytes) == (lora["step_seconds"], lora["memory_bytes"])
    assert row.interval == (lora["step_seconds_low"], lora["step_seconds_high"])
    assert found.differences[0].error is not None


def test_other_files_are_refused_by_name(answers, tmp_path):
    other = saved(tmp_path / "other.json", {"a": 1})
    with pytest.raises(tc.InputError, match=r"other\.json: is no answer that `traincast plan`"):
        tc.compare([answers["h100"], other])
    with pytest.raises(tc.InputError, match=r"none\.json: no such file"):
        tc.compare([answers["h100"], tmp_path / "none.json"])
