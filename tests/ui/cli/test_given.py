"""Facts of the software on the command line, and the command that an answer says narrows its interval."""

import json
import re
import shlex

import numpy as np
import pytest

import traincast as tc
from traincast.ui.cli.main import main
from traincast.ui.text.plans import shell_lines

EXPERTS = ["estimate", "qwen3-30b-a3b", "--system", "dgx-h100", "--tp", "1", "--dp", "16", "--ep", "8"]
DENSE = ["estimate", "llama-3-8b", "--system", "dgx-h100", "--tp", "2", "--dp", "8"]


def answered(capsys, *words):
    main([*words, "--json"])
    return json.loads(capsys.readouterr().out)


def half(estimate):
    return np.log(estimate["step_seconds_high"] / estimate["step_seconds_low"]) / 2


def as_shell(text):
    """Return the words of a command of several lines: a shell takes out a backslash and the line's end."""
    return shlex.split(text.replace("\\\n", ""))


def pasted(text):
    """Return the widths that an answer promises, of the logarithm, and the words of the command."""
    percent, command = re.search(
        r"±\d+% narrows to ±(\d+)% with [^:]*:\n((?:.*\\\n)*.*)\n", re.sub(r"\n +(?=\(|if|stated)", " ", text)
    ).groups()
    return np.log1p(int(percent) / 100), as_shell(command)


@pytest.mark.parametrize("words", [EXPERTS, [*EXPERTS, "--framework", "megatron"], DENSE])
def test_the_command_of_an_answer_narrows_its_interval_as_it_says(words, capsys):
    """Pasted until nothing narrows any more, each answer being the one that the last promised."""
    words = [*words, "--why"]
    before = answered(capsys, *words)["estimate"]
    steps = 0
    while before.get("narrowed_by"):
        main(words)
        promised, again = pasted(capsys.readouterr().out)
        assert again[: len(words) + 1] == ["traincast", *words]
        assert " ".join(again[len(words) + 1 :]) == before["narrowed_by"]
        words = again[1:]
        after = answered(capsys, *words)["estimate"]
        assert half(after) == pytest.approx(promised, abs=0.01)
        assert half(after) < half(before)
        assert after["step_seconds"] == before["step_seconds"]
        before = after
        steps += 1
        assert steps < 5
    assert steps


def test_a_fact_changes_the_software_and_narrows_what_is_open(capsys):
    """By the files of stacks: of Megatron's alternatives two have all-to-all, and the usual one DeepEP."""
    stated = [*EXPERTS, "--framework", "megatron"]
    usual, deepep, alltoall = (
        answered(capsys, *stated, *given)
        for given in ([], ["--given", "dispatcher=deepep"], ["--given", "dispatcher=alltoall,grouped=true"])
    )
    names = [answer["assumptions"] for answer in (usual, deepep, alltoall)]
    assert names == ["megatron-core-deepep", "megatron-core-deepep", "megatron-core-2025"]
    assert deepep["estimate"]["step_seconds"] == usual["estimate"]["step_seconds"]
    assert alltoall["estimate"]["step_seconds"] > usual["estimate"]["step_seconds"]
    assert half(deepep["estimate"]) < half(usual["estimate"])
    assert half(alltoall["estimate"]) < half(usual["estimate"])


def test_the_library_takes_the_same(capsys):
    plan = tc.Plan(tp=1, dp=16, ep=8)
    given = {"dispatcher": "alltoall"}
    est = tc.estimate("qwen3-30b-a3b", "dgx-h100", plan, given=given)
    answer = answered(capsys, *EXPERTS, "--given", "dispatcher=alltoall")["estimate"]
    assert est.step_seconds == answer["step_seconds"]
    assert est.interval == (answer["step_seconds_low"], answer["step_seconds_high"])
    asked = {"gpus": 16, "gbs": 64, "top": 1, "locks": {"tp": 1, "pp": 1}}
    found = tc.search("qwen3-30b-a3b", "dgx-h100", given=given, **asked)
    assert found.assumptions.name == "megatron-core-2025"
    assert {part.name for part in found.best[1].alternatives} >= {"megatron-core-2024", "nemo-2025"}
    assert not any("deepep" in part.name for part in found.best[1].alternatives)
    of_torch = tc.search("llama-3-8b", "dgx-h100", gpus=8, gbs=64, top=1, given={"framework": "torchtitan"})
    assert of_torch.framework.name == "torchtitan"
    assert of_torch.assumptions.name == "torchtitan-2025+loss=chunked"
    assert {part.name for part in of_torch.best[1].alternatives} <= {
        "torchtitan-2024",
        "torchtitan-2025",
        "torchtitan-eager",
    }


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            [*EXPERTS, "--given", "dispatcher=x"],
            "dispatcher = 'x': must be one of alltoall, allgather, deepep, hybridep",
        ),
        ([*DENSE, "--given", "dispatcher=deepep"], "is of a layer of experts, and the model has none"),
        ([*DENSE, "--given", "dispatchr=deepep"], "did you mean dispatcher?"),
        ([*DENSE, "--given", "graphs"], "'graphs': write FACT=VALUE"),
        (
            [*DENSE, "--framework", "megatron", "--given", "framework=torchtitan"],
            "the framework named besides runs Megatron-Bridge, Megatron-Core, NeMo",
        ),
        (
            [*DENSE, "--assumptions", "paper", "--given", "graphs=none"],
            "paper is no software of the catalogue",
        ),
        (
            ["plan", "llama-3-8b", "--system", "dgx-h100", "--gpus", "8", "--given", "loss=x"],
            "loss = 'x': must be one of fused, chunked, whole",
        ),
    ],
)
def test_what_cannot_be_given_is_named_with_exit_code_2(words, problem, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert problem in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("command", ["memory", "advise", "export"])
def test_the_commands_on_a_plan_take_facts(command, capsys):
    words = [command, *EXPERTS[1:], "--global-batch", "64"]
    assert answered(capsys, *words, "--given", "dispatcher=alltoall")["assumptions"] == "megatron-core-2025"


def test_a_checked_launch_takes_facts(capsys, tmp_path):
    main(["export", *EXPERTS[1:], "--global-batch", "64"])
    script = tmp_path / "run.sh"
    script.write_text(capsys.readouterr().out)
    words = ["check", str(script), "--system", "dgx-h100"]
    usual, changed = (
        answered(capsys, *words, *given) for given in ([], ["--given", "graphs=iteration,overlap=none"])
    )
    assert changed["estimate"]["step_seconds"] != usual["estimate"]["step_seconds"]
    assert "graphs=iteration" in changed["assumptions"]


def test_a_long_command_is_read_by_a_shell_as_one(monkeypatch):
    monkeypatch.setattr("traincast.ui.text.plans.width", lambda: 40)
    words = ["traincast", "check", shlex.quote("a file.sh"), "--set", shlex.quote("A=-B C"), "--given", "x=y"]
    lines = list(shell_lines(words, "  "))
    assert all(len(line) <= 40 for line in lines)
    assert len(lines) > 1
    assert as_shell("\n".join(lines)) == shlex.split(" ".join(words))
