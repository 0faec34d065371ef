"""The command compare: what it takes, and what it shows on a terminal of 80 columns."""

import json
import re

import polars as pl
import pytest

import traincast as tc

ASKED = "compare llama-3-70b --system dgx-h100,mi300x-node --gpus 64"


def test_two_systems_side_by_side(run):
    code, out, err = run(ASKED)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    found = tc.compare("llama-3-70b", ["dgx-h100", "mi300x-node"], gpus=64)
    assert " ".join(found.differences[0].sentence.split()) in " ".join(out.split())
    for row in found.alternatives:
        line = next(line for line in out.splitlines() if line.startswith(f"{row.label} {row.name}"))
        assert f"{row.tokens_per_second_per_gpu:,.0f}" in line
        assert f"{100 * row.mfu:.1f}%" in line
        assert f"${row.cost / 1e6:.3g} M" in line
        assert row.in_words in " ".join(out.split())
        assert row.binding() in " ".join(out.split())


def test_plan_of_several_systems_is_the_same_table(run):
    assert run("plan llama-3-70b --system dgx-h100,mi300x-node --gpus 64").out == run(ASKED).out
    code, _, err = run("plan llama-3-70b --system dgx-h100,mi300x-node --gpus 64 --why --top 3")
    assert code == 2
    assert "--top: of one model on one system; compare takes several" in err
    assert "--why: of one model on one system" in err


def test_json_is_that_of_the_library(run):
    found = json.loads(run(f"{ASKED} --json").out)
    expected = tc.compare("llama-3-70b", ["dgx-h100", "mi300x-node"], gpus=64).to_dict()
    assert {name: found[name] for name in expected} == json.loads(json.dumps(expected))


@pytest.mark.parametrize(
    "command",
    [
        "compare llama-3-8b --system dgx-h100 --gpus 8,16,64 --sort throughput",
        "compare llama-3-8b,qwen3-8b h100 --gpus 8 --framework megatron,torchtitan",
        "compare llama-3-8b --system h100 --gpus 64 --plan 'tp=8 pp=2' --plan tp=2 --plan tp=7",
        "compare qwen2.5-vl-7b --system a100,h100 --gpus 8 --train lora:r=16 --gbs 32 --seq 2k",
        "compare llama-3-8b --system dgx-a100,dgx-h100 --gpus 8 --tokens 1T --price 2 --recompute full",
        "compare gpt3-1t --system h200-nvs8,b200-nvs8 --gpus 1024",
    ],
)
def test_other_alternatives(command, run):
    code, out, _ = run(command)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert re.search(r"^B .* takes |B takes|of B takes|of A takes|A takes", out, re.MULTILINE)


def test_an_order_is_by_a_figure(run):
    lines = run("compare llama-3-8b --system dgx-h100,dgx-b200 --gpus 8 --sort time").out.splitlines()
    assert [line[0] for line in lines if re.match(r"[AB] dgx", line)] == ["B", "A"]


def test_one_that_does_not_fit_is_in_the_table_and_none_is_an_error(run):
    code, out, err = run("compare llama-3-70b --system dgx-h100 --gpus 8,64 --gbs 64")
    assert (code, err) == (0, "")
    assert re.search(r"^A 8 GPUs +none fits", out, re.MULTILINE)
    code, out, err = run("compare llama-3-70b --system rtx-4090,l4 --gpus 2 --gbs 64")
    assert code == 1
    assert "nothing fits:\n  A rtx-4090: the nearest to fitting needs " in err
    assert max(map(len, out.splitlines())) <= 80


WRONG = {
    "compare llama-3-8b --gpus 8": "--system: is missing",
    "compare llama-3-8b --system h100": "--gpus: is missing; how many GPUs the job has, such as 64 or 64,128",
    "compare llama-3-8b --system h100 --gpus 8": "1 alternative: give 2 to 26",
    "compare llama-3-8b --system h100,a100 --gpus 8,x": "--gpus = '8,x': must be whole numbers",
    "compare llama-3-8b --system h100,h1000 --gpus 8": "unknown system 'h1000'",
    "compare llama-3-8b,lama --system h100 --gpus 8": "unknown model 'lama'",
    "compare llama-3-8b --system h100 --gpus 8 --plan tp=8 --plan tq=8": "tq",
    "compare llama-3-8b --system h100 --gpus 8 --plan tp=8 --plan tp=4 --tp 2": (
        "tp = 8 of a plan contradicts 2 of all"
    ),
    "compare nowhere.json": "compare: nowhere.json: no such file",
    "compare nowhere.json nothing.json": "nowhere.json: no such file nothing.json: no such file",
    "compare nowhere.json --system h100 --gpus 8": "compare: nowhere.json: no such file",
    "compare llama-3-8b --system h100,a100 --gpus 8 --framework megatron,praxis": "unknown framework",
}


@pytest.mark.parametrize("command", WRONG)
def test_wrong_words_are_named(command, run):
    code, out, err = run(command)
    assert (code, out) == (2, "")
    assert WRONG[command] in " ".join(err.split())


def test_saved_answers(run, folder):
    for system in ("dgx-h100", "mi300x-node"):
        answer = run(f"plan llama-3-8b --system {system} --gpus 8 --top 1 --json").out
        (folder / f"{system}.json").write_text(answer)
    code, out, _ = run("compare dgx-h100.json mi300x-node.json")
    assert code == 0
    fresh = run("compare llama-3-8b --system dgx-h100,mi300x-node --gpus 8").out
    assert out.splitlines()[4:] == fresh.splitlines()[4:]
    code, _, err = run("compare dgx-h100.json llama-3-8b")
    assert (code, "llama-3-8b: is no answer of plan or estimate --json" in " ".join(err.split())) == (2, True)
    code, _, err = run("compare dgx-h100.json mi300x-node.json --gpus 8")
    assert (code, "--gpus: saved answers have their own" in err) == (2, True)


def test_a_study_ends_with_its_points_side_by_side_and_what_to_draw(run, folder):
    (folder / "two.yaml").write_text(
        "name: two\nmodels: [llama-3-8b]\nsystems: [dgx-a100, dgx-h100]\ngpus: [8, 16]\n"
    )
    code, out, _ = run("study two.yaml --output two.csv")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert re.findall(r"^([A-F]) (\S+), (\d+)", out, re.MULTILINE) == [
        ("A", "dgx-a100", "8"), ("B", "dgx-a100", "16"), ("C", "dgx-h100", "8"), ("D", "dgx-h100", "16"),
    ]  # fmt: skip
    (command,) = re.findall(r"^To draw it: traincast (.*)", out, re.MULTILINE)
    assert command == "plot two.csv --kind scaling --output two.svg"
    assert run(command).code == 0
    (folder / "one.yaml").write_text(
        "models: [llama-3-8b]\nsystems: [dgx-h100]\ngpus: [8]\nstrategies: [1d]\nvary:\n"
        "  - accelerator.hbm_bandwidth: [3 TB/s, 6 TB/s]\n"
    )
    (command,) = re.findall(
        r"^To draw it: traincast (.*)", run("study one.yaml --output one.csv").out, re.MULTILINE
    )
    assert command == "plot one.csv --kind sweep --output one.svg"
    assert run(command).code == 0
    (folder / "vary.yaml").write_text(
        "models: [llama-3-8b]\nsystems: [dgx-h100]\ngpus: [8]\nstrategies: [1d]\nvary:\n"
        "  - accelerator.hbm_bytes: [60 GB, 80 GB]\n  - accelerator.hbm_bandwidth: [3 TB/s, 6 TB/s]\n"
    )
    code, out, _ = run("study vary.yaml --output vary.parquet")
    assert code == 0
    rows = pl.read_parquet(folder / "vary.parquet").sort("point")["step_seconds"].to_list()
    shown = re.findall(r"^[A-D] hbm_bytes .*? (\d\S*) s ", out, re.MULTILINE)
    assert [float(cell) for cell in shown] == pytest.approx(rows, rel=1e-3)
    assert run(re.findall(r"^To draw it: traincast (.*)", out, re.MULTILINE)[0]).code == 0
