"""The command line: output, refusals, and exit codes."""

import json
import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import traincast as tc
from traincast.planner.search_result import SearchWork
from traincast.ui.cli.main import main
from traincast.ui.text.tables import paragraphs

SNAPSHOTS = Path(__file__).parent / "snapshots"
COMMANDS = {
    "plan": "plan gpt3-1t --system h200-nvs8 --gpus 2048 --top 5",
    "plan-vit": "plan vit-era5 --system b200-nvs64 --gpus 4096 --strategy summa,context --top 5",
    "plan-modern": "plan deepseek-v3 --system dgx-h100 --gpus 512 --gbs 1024 --objective cost --top 3 "
    "--recompute full"
    " --assumptions paper",
    "estimate-modern": "estimate llama-3-70b --system dgx-h100 --tp 4 --pp 4 --vp 5 --cp 2 --cp-kind ring "
    "--dp 2 --gbs 128",
    "trace": "trace gpt3-1t --system h200-nvs8 --tp 8 --pp 16 --vp 2 --dp 16 --gbs 512",
    "memory": "memory mixtral-8x7b --system dgx-h100 --seq 4096 --tp 2 --ep 8 --pp 4 --dp 8",
    "advise": "advise gpt3-175b --system dgx-a100 --tp 8 --pp 8 --dp 4 --step-seconds 190 --assumptions "
    "calibrated",
    "estimate": "estimate gpt3-1t --system h200-nvs8 --tp 8 --pp 16 --dp 16 --operations",
    "scaling": "scaling --model gpt-13b --system polaris --gpus 8,16,64,512 --zero 1,2,3 --target 0.9",
    "catalog": "catalog",
    "catalog-system": "catalog polaris",
    "catalog-cluster": "catalog isambard-ai",
    "catalog-model": "catalog vit-era5",
    "limits": "limits --accelerator h100-sxm-80",
    "reproduce": "reproduce 2410.00273",
    "export": "export mixtral-8x7b --system dgx-h100 --seq 4096 --tp 2 --ep 8 --pp 4 --dp 8 --gbs 256 "
    "--recompute selective",
    "check": "check examples/my_cluster/pretrain.sh --system dgx-h100",
    "help": "--help",
    "help-plan": "plan --help",
}


@pytest.fixture
def run(capsys):
    """Run the command line: exit code, standard output, standard error."""

    def run(command):
        code = 0
        try:
            main(command.split() if isinstance(command, str) else command)
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run


FITTED = {
    "advise",
    "check",
    "estimate-modern",
    "export",
}  # what is fitted moves with every fit: approved is the form


def figureless(text):
    """Text with a # for every number, without bars, widths of columns and ends of lines."""
    return re.sub(r"[\s█]+", " ", re.sub(r"\d[\d.,e+]*", "#", text))


def timeless(text):
    """Text without durations and rates of this very run, and without trailing blanks."""
    text = re.sub(r"searched in [\d.]+ m?s", "searched in …", text)
    text = re.sub(r"timed in [\d.]+ m?s: [\d.]+ M", "timed in …: … M", text)
    text = re.sub(r"\d\.\de-1\d", "…e-1…", text)  # rounding errors differ between processors
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


def test_how_to_start_a_launch_is_said_where_its_plan_fits(run):
    """Sixteen bytes for each of 8 G parameters are 129 GB, more than one GPU has."""
    code, out, err = run("export llama-3-8b --system dgx-h100 --tp 1 --gbs 16 --to torchtitan")
    assert (code, "Config" in out) == (1, True)
    assert err.startswith("traincast: the plan does not fit")
    assert "start it with" not in err
    code, _, err = run("export llama-3-8b --system dgx-h100 --dp 8 --zero 3 --gbs 16 --to torchtitan")
    assert (code, err.splitlines()[0].split(":")[0]) == (0, "start it with")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_output_is_as_it_was_approved(name, run):
    """Snapshots are what was looked at and found right; delete one to approve the next output."""
    code, out, err = run(COMMANDS[name])
    # what is exported goes to a file; how it is started is said beside it
    assert (code, err) == (0, "start it with: bash FILE\n" if name == "export" else "")
    assert all(len(line) <= 80 for line in out.splitlines())
    path = SNAPSHOTS / f"{name}.txt"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(timeless(out), encoding="utf-8")
        pytest.fail(f"new snapshot {path.name}: look at it, and run again")
    approved = path.read_text(encoding="utf-8")
    if name in FITTED:
        out, approved = figureless(out), figureless(approved)
    assert timeless(out) == timeless(approved)


def test_sets_of_modules_are_explained_where_the_table_has_them(run):
    question = "plan llama-3-8b --system dgx-h100 --gpus 8 --gbs 64 --tp 1 --recompute norms+activation"
    assert "norms+1" not in run(question)[1]
    several = run(f"{question},none")[1]
    assert re.search(r"^ *\d+ .* norms\+1 ", several, re.MULTILINE)
    assert "norms+1: norms+activation" in several


def test_a_calibrated_plan_states_its_interval(run):
    _, out, _ = run("plan llama-3-8b --system dgx-h100 --gpus 64 --gbs 128 --top 3")
    assert re.search(r"^ *# +step +GiB fits strategy", out, re.MULTILINE)
    assert len(re.findall(r"^[ >][123] +\S+ m?s +[\d.]+ +>?\d+%", out, re.MULTILINE)) == 3
    assert re.search(r"^\S+ m?s a step \([\d.]+ to [\d.]+, 90%\)(;| with) ", out, re.MULTILINE)
    _, out, _ = run("plan llama-3-8b --system dgx-h100 --gpus 64 --gbs 128 --top 3 --why")
    legend = " ".join(out.split())
    assert re.search(r"> recommended; step: time of a step, 90% interval of > -\d+% to \+\d+%", legend)
    assert "fits: probability that it fits" in legend


def test_a_plan_begins_with_the_answer_and_details_are_asked_for(run):
    """The plan in knobs and in words, its step and memory, at 80 columns; tables of parts and of rules come
    with --why and --rejected."""
    question = "plan llama-3-8b --system dgx-h100 --gpus 64 --gbs 128 --top 3"
    (_, out, _), (_, why, _), (_, rejected, _) = (
        run(f"{question} {more}") for more in ("", "--why", "--rejected")
    )
    plan, step, memory, cost = out.partition("\n\n")[0].splitlines()
    assert re.fullmatch(r"Recommended: .*DP \d+, micro-batch \d+.*", plan)
    assert re.fullmatch(r"\S+ m?s a step \(\S+ to \S+, 90%\)(; ±\d+% by| with) .*", step)
    assert re.fullmatch(r"\S+ of 79.2 GiB at the .*: fits with >?\d+% probability", memory)
    run_of = r".* tokens in \S+ days for \$\S+ [kM] at \$2.8/h, [\d,]+ token/s/GPU, MFU \d+\.\d%"
    assert re.fullmatch(run_of, cost)
    assert re.search(r"^±\d+% narrows to ±\d+% with --framework megatron", out, re.MULTILINE)
    flat = " ".join(why.split())
    flat = flat.replace("\\ ", "")
    again = re.escape(f"traincast {question} --why --framework megatron")
    narrower = rf"±\d+% narrows to ±\d+% with the framework stated: {again}"
    assert re.search(rf"uncertain by software not stated: ±\d+%; .*: ±\d+% {narrower}", flat)
    assert "In words: " in why
    assert " replicas" in why.partition("In words: ")[2].partition(".")[0]
    assert all(len(line) <= 80 for text in (out, why, rejected) for line in text.splitlines())
    details = ("Memory of a rank", "Fastest plan of each tensor-parallel degree")
    assert all(detail in why and detail not in out for detail in details)
    assert "does not fit in memory" in rejected.partition("\nRejected, by the first rule")[2]
    assert "\nRejected" not in out


@pytest.mark.parametrize(
    ("text", "second"),
    [  # what would stand beyond column 80 goes to the next line with what it belongs to
        ("word " * 14 + "bubble -0.075 s", "-0.075 s"),
        ("word " * 14 + "assumptions: megatron-core-2025", "assumptions: megatron-core-2025"),
        ("word " * 14 + "grid of 11 × 8", "11 × 8"),
        ("word " * 15 + "tp=8 pp=16 dp=4", "pp=16 dp=4"),  # knobs are no units
    ],
)
def test_no_line_ends_inside_a_number_with_its_unit(text, second):
    (printed,) = paragraphs(text)
    assert printed.splitlines()[1].strip() == second


def test_acceptance_of_modern_training(run):
    """A configuration by path; a plan that does not fit ends with 1 and says what would make it fit."""
    config = Path(__file__).parents[3] / "examples" / "llama-3.1-405b" / "config.json"
    code, out, _ = run(
        f"plan {config} --system dgx-h100 --gpus 16384 --tokens-per-batch 16M --framework megatron --json "
        f"--top 1"
    )
    answer = json.loads(out)
    assert (code, answer["global_batch"], answer["framework"]) == (0, 2048, "megatron")
    assert answer["plans"][0]["fits"]
    code, out, err = run("memory mixtral-8x7b --system dgx-h100 --tp 2 --ep 8 --pp 1 --dp 32 --json")
    answer = json.loads(out)
    assert code == 1
    assert "would fit with" in err
    assert "recompute full" in err
    (device,) = answer["devices"]
    assert device["memory_bytes"] == pytest.approx(answer["estimate"]["memory_bytes"], rel=1e-12)
    assert sum(device["memory_by_component_bytes"].values()) == pytest.approx(
        device["memory_bytes"], rel=1e-12
    )


def test_memory_shows_every_stage_and_the_fullest_is_the_estimates(run):
    _, out, _ = run(
        "memory deepseek-v3 --system dgx-h100 --pp 8 --vp 2 --dp 64 --ep 64 --recompute full --gbs 4096 "
        "--json"
    )
    answer = json.loads(out)
    assert [device["stage"] for device in answer["devices"]] == list(range(8))
    assert max(device["memory_bytes"] for device in answer["devices"]) == pytest.approx(
        answer["estimate"]["memory_bytes"], rel=1e-12
    )
    assert (
        sum(device["parts"].get("dense", 0) for device in answer["devices"]) == 3
    )  # arXiv 2412.19437, section 4.2
    assert sum(device["parts"].get("moe", 0) for device in answer["devices"]) == 58


@pytest.mark.parametrize("model", ["gpt3-175b", "gpt-13b", "llama-3-8b"])
@pytest.mark.parametrize(
    "options", ["", "--assumptions calibrated", "--optimizer-kind adam-8bit", "--grad-dtype fp32 --zero 1"]
)
def test_commands_assume_the_same_of_a_model(model, options, run):
    """Without a word on it, too: what is kept of a parameter and what a rank holds is one figure, whatever
    command tells it."""
    case = f"{model} --system dgx-a100 --tp 8 --pp 8 --dp 4 --gbs 256 {options} --json"
    # advise is about a real machine: without a word it is calibrated also for models without a vocabulary
    has_same_default = model == "llama-3-8b" or "--assumptions" in options
    commands = ("memory", "advise", "estimate") if has_same_default else ("memory", "estimate")
    answers = [json.loads(run(f"{command} {case}")[1]) for command in commands]
    assert len({answer["assumptions"] for answer in answers}) == 1
    kept = [answer["bytes_per_parameter"] for answer in answers if "bytes_per_parameter" in answer]
    assert all(each == kept[0] for each in kept)
    assert len({json.dumps(answer["estimate"]) for answer in answers}) == 1


def test_default_assumptions_are_reported(run):
    for command in ("memory", "estimate"):
        command_line = f"{command} gpt3-175b --system dgx-a100 --tp 8 --pp 8 --dp 4"
        assert "paper is the default for a model without a vocabulary" in run(command_line)[1]
        assert "is the default" not in run(f"{command_line} --assumptions calibrated")[1]


def test_advice_says_what_to_change(run):
    """Advice names dimensions that do not divide, memory that does not fit, and too slow a network."""
    code, out, err = run("advise gpt-1.3b --system dgx-a100 --tp 2 --dp 32 --gbs 512")
    assert (code, err) == (0, "")
    assert re.search(r"3[24] heads of 64", out)
    assert "predicted" in out
    code, out, err = run("advise gpt3-175b --system dgx-a100 --tp 8 --dp 4 --gbs 64 --network-share 0.001")
    assert code == 1
    assert "the plan does not fit: needs" in err
    assert "not enough" in out
    _, out, _ = run("advise llama-3-8b --system dgx-h100 --tp 2 --dp 4 --gbs 64 --assumptions paper --why")
    assert "tiles and waves: not known" in out
    assert "stays inside of one node" in out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--tokens-per-batch 4M", 512),  # as batches are counted: 512 x 8192 tokens (arXiv 2407.21783)
        ("--tokens-per-batch 4194304", 512),
        ("--seq 4096 --tokens-per-batch 4M", 1024),
        ("--global-batch 96", 96),
    ],
)
def test_a_batch_in_tokens_or_in_sequences(options, expected, run):
    _, out, _ = run(f"estimate llama-3-8b --system dgx-h100 --dp 8 --cp 2 --cp-kind ring {options} --json")
    assert json.loads(out)["global_batch"] == expected


def test_the_length_of_the_run_is_that_of_its_tokens_everywhere(run):
    """Of 1T tokens: their number over the tokens of a second."""
    command = "estimate llama-3-8b --system dgx-h100 --tp 2 --dp 32 --gbs 512 --tokens 1T --restart 600"
    _, out, _ = run(f"{command} --json")
    answer = json.loads(out)
    days = answer["metrics"]["days"]
    assert answer["estimate"]["training_days"] == pytest.approx(days, rel=1e-12)
    assert days == pytest.approx(1e12 / answer["metrics"]["tokens_per_second"] / 86_400, rel=1e-12)
    _, out, _ = run(command)
    assert " ".join(out.split()).count(f"1 T tokens: {days:.3g} days,") == 1
    assert f"{days * 24 * 64:,.0f} GPU-hours" in out


def test_plan_json(run):
    code, out, _ = run("plan gpt3-1t --system h200-nvs8 --gpus 2048 --top 2 --json")
    answer = json.loads(out)
    assert code == 0
    assert [answer[key] for key in ("model", "system", "gpus", "global_batch")] == [
        "gpt3-1t",
        "h200-nvs8",
        2048,
        4096,
    ]
    assert len(answer["plans"]) == 2
    first = answer["plans"][0]
    assert sum(first["breakdown_seconds"].values()) == pytest.approx(first["step_seconds"], rel=1e-12)
    assert sum(first["memory_by_component_bytes"].values()) == pytest.approx(first["memory_bytes"], rel=1e-12)
    assert answer["candidates"] - answer["feasible"] == answer["rejected"]["does not fit in memory"]
    assert answer["pareto"][0]["step_seconds"] == first["step_seconds"]


def test_pareto_plans_in_json_are_short(run):
    answer = json.loads(
        run("plan llama-3-8b --system dgx-h100 --gpus 8 --gbs 8 --seq 4096 --top 1 --json")[1]
    )
    assert answer["seq"] == 4096
    assert {tuple(plan) for plan in answer["pareto"]} == {
        ("strategy", "plan", "step_seconds", "memory_bytes")
    }


def test_utilisation_above_all_is_explained(run):
    _, out, _ = run(
        "plan llama-3-8b --system dgx-h100 --gpus 64 --gbs 64 --seq 131072 --top 1 --assumptions paper --why"
    )
    assert "above 100%: the convention counts attention in full" in out
    assert "times are those of an idealised machine" in out
    _, out, _ = run("plan llama-3-8b --system dgx-h100 --gpus 64 --gbs 64 --top 1 --why")
    assert "above 100%" not in out
    assert "idealised" not in out


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("plan llama-3-70b --gpus 256 --top 1", 512),  # 4M tokens of 8192
        ("plan llama-3-70b --gpus 256 --top 1 --seq 3000", 1024),  # the power of two nearest to 4M
        ("estimate llama-3-8b --seq 8388608 --dp 1 --cp 64 --cp-kind ring", 1),
        ("memory llama-3-8b --dp 8", 16),  # what fills a pipeline
    ],
)
def test_models_without_a_batch_use_the_default_batch(command, expected, run):
    _, out, _ = run(f"{command} --system dgx-h100")
    assert f"step: {expected:,} sequence" in out
    assert re.search("^assumed: the global batch", out, re.MULTILINE)
    _, out, _ = run(f"{command} --system dgx-h100 --gbs {expected}")
    assert "the global batch" not in out


def test_a_single_result_is_in_the_singular(run):
    _, out, _ = run("estimate gpt-125m --system dgx-h100 --gbs 1")
    assert "on 1 GPU of dgx-h100" in out
    assert "1 sequence of" in out


def test_estimate_json_is_the_estimate(run):
    _, out, _ = run("estimate gpt3-1t --system h200-nvs8 --tp 8 --pp 16 --dp 16 --operations --json")
    answer = json.loads(out)
    assert answer["estimate"]["step_seconds"] == pytest.approx(
        41.1948, abs=5e-5
    )  # by hand in docs/tutorial.md
    assert len(answer["operations"]) == 14


def test_nothing_fits(run):
    code, out, err = run("plan gpt3-1t --system h200-nvs8 --gpus 8")
    assert code == 1
    assert out == ""
    assert "none of 1,508 candidates fits" in err
    assert "more HBM" in err
    assert "128 GPUs instead of 8" in err


def test_nothing_fits_in_json(run):
    code, out, err = run("plan gpt3-1t --system h200-nvs8 --gpus 8 --json")
    answer = json.loads(out)
    assert code == 1
    assert err
    assert answer["plans"] == []
    assert answer["explanation"]["nearest_miss"]["memory_bytes"] > 141e9
    assert answer["explanation"]["fits_from"]["gpus"] == 128


def test_a_plan_that_does_not_fit(run):
    code, out, err = run("estimate gpt3-1t --system h200-nvs8 --tp 8")
    assert code == 1
    assert "does not fit in 131.3 GiB" in out
    assert "more HBM" in err


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("estimate Qwen/Qwen3-8B --system H100-SXM --dp 8", "estimate qwen3-8b --system dgx-h100 --dp 8"),
        ("memory Llama-3.1-8B --system p5.48xlarge --dp 8", "memory llama-3-8b --system aws-p5 --dp 8"),
        ("advise llama3_8b --system a100-80gb --dp 8", "advise llama-3-8b --system dgx-a100 --dp 8"),
        ("flops meta-llama/Meta-Llama-3-8B", "flops llama-3-8b"),
        (
            "scaling --model gpt13b --system h200 --gpus 8",
            "scaling --model gpt-13b --system dgx-h200 --gpus 8",
        ),
        ("limits --accelerator h100 --tokens 1G", "limits --accelerator h100-sxm-80 --tokens 1G"),
        ("catalog mi300x", "catalog mi300x-node"),
    ],
)
def test_an_alias_is_answered_as_the_entry_and_said(command, own, run):
    """Names as they are typed for a GPU, an instance of a cloud, and a model of Hugging Face."""
    answers = [run(f"{words} --json") for words in (command, own)]
    assert answers[0][0] == answers[1][0]
    said, plain = (json.loads(out) for _, out, _ in answers)
    taken = said.pop("taken", [])
    assert plain.pop("taken", []) == []
    for output in (said, plain):
        output.pop("name", None)
    assert said == plain
    text = " ".join(run(command)[1].split())
    for line in [taken] if isinstance(taken, str) else taken:
        assert line in text


WRONG = {
    "plan gpt3-1x --system h200-nvs8 --gpus 8": ("unknown model 'gpt3-1x'", "gpt3-1t"),
    "plan gpt3-1t --system h200_nvs --gpus 8": ("unknown system 'h200_nvs'", "h200-nvs4"),
    "plan gpt3-1t --system h100-sxm-8 --gpus 8": ("unknown system 'h100-sxm-8'", "did you mean dgx-h100"),
    "plan gpt3-1t --system h200-nvs8 --gpus -8": ("gpus = -8", "at least 1"),
    "plan gpt3-1t --system h200-nvs8 --gpus 0": ("gpus = 0", "at least 1"),
    "plan gpt3-1t --system h200-nvs8 --gpus 2.5": ("--gpus", "whole number"),
    "plan gpt3-1t --system h200-nvs8 --gpus many": ("--gpus = 'many'", "whole number"),
    "plan gpt3-1t --system h200-nvs8": ("--gpus", ""),
    "plan gpt3-1t --system h200-nvs8 --gpus 8 --global-batch 0": ("gbs = 0", "at least 1"),
    "plan gpt3-1t --system h200-nvs8 --gpus 8 --top 0": ("top = 0", "at least 1"),
    "plan gpt3-1t --system h200-nvs8 --gpus 8 --strategy 3d": ("unknown strategy '3d'", "1d"),
    "plan gpt3-1t --system h200-nvs8 --gpus 8 --assumptions papper": (
        "unknown assumptions 'papper'",
        "paper",
    ),
    "plan gpt3-1t --system h200-nvs8 --gpus 8 --wibble": ("--wibble", ""),
    "plan nowhere.yaml --system h200-nvs8 --gpus 8": ("nowhere.yaml", ""),
    "plan gpt3-1t --system nowhere/else.json --gpus 8": ("nowhere/else.json", ""),
    "estimate gpt3-1t --system h200-nvs8 --tp 7 --pp 3": (
        "tp does not divide the attention heads",
        "tensor ranks (mbs = 1, tp = 7",
    ),
    "estimate gpt3-1t --system h200-nvs8 --tp 0 --dp 0": ("tp = 0", "dp = 0"),
    "estimate gpt3-1t --system h200-nvs8 --tp 8 --cp 2": ("cp > 1", "all-gather"),
    "estimate gpt3-1t --system h200-nvs8 --dp 3": ("dp does not divide the global batch", "gbs = 4096"),
    "plan llama-3-8b --system dgx-h100 --gpus 8 --gbs 8 --zero 7": ("zero", "0, 1, 2, 3"),
    "plan llama-3-8b --system dgx-h100 --gpus 8 --gbs 8 --recompute foo": ("recompute = 'foo'", "selective"),
    "plan llama-3-8b --system dgx-h100 --gpus 8 --gbs 8 --framework praxis": (
        "unknown framework 'praxis'",
        "torchtitan",
    ),
    "plan llama-3-8b --system dgx-h100 --gpus 8 --gbs 8 --precision nvfp4": ("has no fp4 rate", "fp8"),
    "plan llama-3-8b --system dgx-h100 --gpus 8 --gbs 8 --imbalance 2": ("imbalance", "has no experts"),
    "plan llama-3-8b --system dgx-h100 --gpus 8 --tokens-per-batch 1000": (
        "whole number of sequences",
        "8,192",
    ),
    "plan llama-3-8b --system dgx-h100 --gpus 8 --gbs 8 --tokens-per-batch 1M": (
        "--global-batch",
        "--tokens-per-batch",
    ),
    "plan llama-3-8b --system dgx-h100 --gpus 8 --gbs 8 --tokens many": ("--tokens", "15T"),
    "estimate mixtral-8x7b --system dgx-h100 --dp 8 --gbs 8 --imbalance 0.5": ("0.5", "at least 1"),
    "estimate llama-3-8b --system dgx-h100 --pp 2 --layout 3,4 --dp 4 --gbs 8": (
        "layout = 3,4",
        "add up to 32",
    ),
    "plan llama-3-8b --system dgx-h100 --gpus 8 --gbs 8 --vp 0": ("vp = 0", "at least 1"),
    "plan README.md --system dgx-h100 --gpus 8": ("README.md: is no model file", "config.json"),
    "plan llama-3-8b --system dgx-h100 --gpus 8 --gbs 8 --tokens 15Q": ("--tokens", "'15Q'"),
    "advise gpt3-175b --system dgx-a100 --tp 8 --pp 8 --dp 4 --step-seconds -1": (
        "step_seconds = -1",
        "above 0",
    ),
    "advise gpt3-175b --system dgx-a100 --tp 8 --pp 8 --dp 4 --gbs 1536 --step-seconds 0.5": (
        *("of the 16-bit peak (MFU, megatron)", "one of 384 micro-batches? The step takes 192 s (MFU 22.0%)"),
        *(
            "more GPUs than the 256 of the plan: at least 21,631",
            "a smaller global batch than 1,536 sequences: at most 18",
        ),
    ),
    "advise gpt3-175b --system dgx-a100 --tp 8 --pp 8 --dp 4 --network-share 5": (
        "network share: 5",
        "between 0 and 1",
    ),
    "advise gpt3-175b --system dgx-a100 --tp 7 --pp 8 --dp 4": (
        "tp does not divide the attention heads",
        "heads = 96",
    ),
    "advise gpt3-175c --system dgx-a100": ("unknown model 'gpt3-175c'", "gpt3-175b"),
    "scaling --model gpt-13b --system polaris --gpus 8,x": ("--gpus: 'x'", "whole number"),
    "scaling --model gpt-13b --system polaris --gpus 0": ("--gpus: '0'", "at least 1"),
    "scaling --model gpt-13b --system polaris --gpus 8 --zero 4": ("zero = 4", "1, 2, 3"),
    "scaling --model gpt-13b --system polaris --gpus 8 --mbs 0": ("mbs = 0", "at least 1"),
    "scaling --model gpt-13b --system polaris --gpus 8 --target 1.5": ("target = 1.5", "at most 1"),
    "scaling --model gpt-13b --system polaris --gpus 8 --comm-share 1": ("comm_share = 1.0", "below 1"),
    "scaling --model gpt-13b --system polaris --gpus 1,8 --comm-share 0.3": (
        "comm_share",
        "one GPU does not communicate",
    ),
    "scaling --model gpt-13b --system polaris --gpus 1,8 --efficiency 8=0.9": (
        "efficiency",
        "one GPU does not communicate",
    ),
    "scaling --model gpt-13b --system polaris --gpus 8,64,512 --efficiency 64=0.9": (
        "efficiency",
        "512 GPUs",
    ),
    "scaling --model gpt-13b --system polaris --gpus 8,64 --efficiency 64=2": (
        "efficiency of 64 GPUs = 2.0",
        "at most 1",
    ),
    "scaling --model gpt-13b --system polaris --gpus 8,64 --efficiency 64": ("--efficiency: '64'", "64=0.9"),
    "scaling --model mixtral-8x7b --system polaris --gpus 8": ("mixtral-8x7b", "experts"),
    "scaling --model gpt-13b --system eos --gpus 8192": ("eos has 4,608", ""),
    "catalog wibble": ("unknown name 'wibble'", ""),
    "reproduce 1234.5678": ("1234.5678", "2410.00273"),
    "wibble": ("wibble", ""),
    "plan gpt3-1t --system h200-nvs8 --gpus 99999999999999999999": ("gpus", "at most 4,194,304"),
    "plan gpt3-1t --system h200-nvs8 --gpus 8 --gbs 1000000000000": ("gbs", "at most 16,777,216"),
}


@pytest.mark.parametrize("command", sorted(WRONG))
def test_wrong_input_gets_a_single_message_and_exit_code_2(command, run):
    code, out, err = run(command)
    assert code == 2
    assert out == ""
    assert err.startswith("traincast: ")
    assert "Traceback" not in err
    for part in WRONG[command]:
        assert part in err


def test_all_mistakes_of_a_file_are_reported_at_once(run, tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text(
        "name: x\nsource: me\nlayers: 12\nhiden: 768\nheads: -3\nffn: wide\nseq: 1024\n", encoding="utf-8"
    )
    code, _, err = run(["plan", str(path), "--system", "h200-nvs8", "--gpus", "8"])
    assert code == 2
    for field in ("hiden", "hidden", "heads", "ffn"):
        assert field in err


ALL_WRONG = {
    "plan lama-3-8b --system dgx-h10 --gpus 0 --gbs 0 --framework pax --strategy 3d --tp 0 --recompute foo "
    "--tokens 15Q --price -1"
    " --restart nan --imbalance x --top 0 --assumptions foo": (
        *(
            "'lama-3-8b'",
            "'dgx-h10'",
            "gpus = 0",
            "gbs = 0",
            "'pax'",
            "'3d'",
            "tp = 0",
            "recompute = 'foo'",
            "'15Q'",
            "price = -1",
        ),
        *("--restart: 'nan'", "--imbalance: 'x'", "top = 0", "assumptions 'foo'"),
    ),
    "plan llama-3-8b --system eos --gpus 8192 --tokens-per-batch 1000 --price nan --imbalance 2": (
        *("eos has 4,608", "1 sequence is 8,192 tokens", "price = nan", "has no experts"),
    ),
    "estimate lama --system eos --dp 8192 --tokens 5x --price -1 --gbs 0 --assumptions pp": (
        *("'lama'", "eos has 4,608", "'5x'", "price = -1.0", "gbs = 0", "assumptions 'pp'"),
    ),
    "scaling --model lama --system eoss --gpus 0 --zero 4 --mbs 0 --k1 0 --k2 nan --target 2 --comm-share 1 "
    "--assumptions pp": (
        *(
            "'lama'",
            "'eoss'",
            "--gpus: '0'",
            "zero = 4",
            "mbs = 0",
            "k1 = 0.0",
            "k2 = nan",
            "target = 2.0",
            "comm_share = 1.0",
            "'pp'",
        ),
    ),
    "memory llama-3-8b --system eoss --dp 8 --price -1": ("'eoss'", "price = -1.0"),
}


@pytest.mark.parametrize("command", ALL_WRONG)
def test_all_mistakes_of_a_command_are_reported_at_once(command, run, monkeypatch):
    monkeypatch.setattr(
        import_module("traincast.planner.search_result"), "enumerate_outlines", None
    )  # nothing is searched
    code, out, err = run(command)
    assert (code, out) == (2, "")
    lines = err.splitlines()[1:]
    assert [sum(part in line for line in lines) for part in ALL_WRONG[command]] == [1] * len(lines)


def test_as_a_process():
    def traincast(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "traincast", *arguments], capture_output=True, text=True, check=False
        )

    assert traincast("--version").stdout.strip() == "0.2.0"
    wrong = traincast("plan", "gpt3-1t", "--system", "h200-nvs8", "--gpus", "x")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("traincast: ")


@pytest.mark.parametrize(("encoding", "instead"), [("utf-8", "×"), ("ascii", "?")])
def test_output_suits_the_encoding_and_the_reader(encoding, instead):
    command = [
        sys.executable,
        "-m",
        "traincast",
        "plan",
        "gpt3-1t",
        "--system",
        "h200-nvs8",
        "--gpus",
        "2048",
    ]
    env = os.environ | {"PYTHONIOENCODING": encoding}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
        lines = (line.decode(encoding) for line in process.stdout)
        assert f"SUMMA 1 {instead} 4," in next(lines)
        process.stdout.close()  # the reader has seen enough
        assert process.stderr.read() == b""
        assert process.wait() in {0, -signal.SIGPIPE}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_is_said():
    command = [sys.executable, "-m", "traincast", "catalog"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("traincast: cannot write: ")
    assert "Traceback" not in done.stderr


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, traincast; print({'numpy', 'pydantic', 'rich', 'cyclopts', 'ruamel'} & set(sys.modules))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "set()"
    )


def test_a_column_without_room_becomes_a_line(run):
    """No word of the table is broken: the columns with the fewest values are listed below it."""
    question = "plan qwen3-235b-a22b --system dgx-b200 --gpus 256 --framework torchtitan"
    _, out, _ = run(question)
    table, _, rest = out.partition("\n> recommended")
    lines = table.partition("\n #")[2].splitlines()
    rows = [line for line in lines if re.match(r"[ >]*\d+ +\S+ s ", line)]
    assert len(rows) == 10
    listed = lines[11:]
    assert all(re.fullmatch(r"\w+: .* in plan \d.*", line) for line in listed)
    assert listed
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "1d: tensor parallel" in " ".join(rest.split())
    legend = rest.partition("\n\n")[0].splitlines()
    assert len(legend) <= 5


def test_gpus_of_a_plan_give_dp_and_sequences_are_counted_in_1024(run):
    # 64 GPUs = tp 8 × pp 4 × dp 2; 8k = 8,192
    told = "--global-batch-size 64 --micro-batch-size 2 --json"
    code, out, _ = run(f"estimate llama-3-8b --system dgx-h100 --gpus 64 --tp 8 --pp 4 --seq 8k {told}")
    answer = json.loads(out)
    assert (code, answer["seq"], answer["global_batch"]) == (0, 8192, 64)
    assert (answer["estimate"]["plan"]["dp"], answer["estimate"]["plan"]["mbs"]) == (2, 2)
    of_gpus, of_degrees = (
        run(f"estimate llama-3-8b --system dgx-h100 {by} --tp 2") for by in ("--gpus 8", "--dp 4")
    )
    assert of_gpus[0] == of_degrees[0] == 0
    without_command = (re.sub(r"--(gpus 8|dp 4)", "", out) for _, out, _ in (of_gpus, of_degrees))
    assert len(set(without_command)) == 1  # placed alike, inside the node
    for given, said in (
        ("--gpus 60 --tp 8", "60: must be divisible by the degrees, tp 8 = 8"),
        ("--gpus 64 --tp 8 --dp 4", "64: must be the product of the degrees, tp 8 × dp 4 = 32"),
        ("--gpus 64 --tp 8 --dp 1", "64: must be the product of the degrees, tp 8 × dp 1 = 8"),
        ("--gpus 0", "gpus = 0: must be a whole number"),
        ("--seq 8x", "--seq = '8x'"),
    ):
        code, _, err = run(f"estimate llama-3-8b --system dgx-h100 {given}")
        assert (code, said in err) == (2, True), err


def test_a_price_is_answered_for_beside_the_plan(run, folder):
    """Dollars are hours of all GPUs times the price; without the tokens of the run they cannot be known."""
    asked = "--system dgx-h100 --gpus 8 --gbs 64 --top 1 --price"
    _, out, _ = run(f"plan llama-3-8b {asked} 3 --json")
    hours = json.loads(out)["plans"][0]["metrics"]["gpu_hours"]
    _, out, _ = run(f"plan llama-3-8b {asked} 3")
    lead = out.partition("\n\n")[0]
    assert f"${3 * hours / 1e6:.4g} M" in lead
    assert run(f"plan llama-3-8b {asked} 3 --why")[1].count("GPU-hours") == 1
    lead = run(f"plan llama-3-8b {asked.replace('--price', '')}")[1].partition("\n\n")[0]
    assert f"${2.8 * hours / 1e6:.4g} M at $2.8/h" in lead  # dgx-h100's in the catalogue
    (folder / "mine.yaml").write_text(
        "name: mine\nlayers: 2\nhidden: 256\nffn: 1024\nheads: 4\nseq: 128\nvocab: 1000\n"
    )
    _, out, _ = run(f"plan mine.yaml {asked} 2.5")
    assert "cost: not known without tokens" in out.partition("\n\n")[0]


def test_a_number_of_gpus_that_few_plans_divide_names_a_smaller_one_where_it_is_faster(run):
    """100 GPUs leave 25 pipeline stages; 96, which many plans divide, take less time."""
    asked = "plan llama-3-8b --system gb200-nvl72 --gbs 512 --top 1 --gpus"
    _, out, _ = run(f"{asked} 100")
    said = re.search(r"^96 GPUs would be faster: (.*) s a step$", out.partition("\n\n")[0], re.MULTILINE)
    best = {
        gpus: tc.search("llama-3-8b", "gb200-nvl72", gpus=gpus, gbs=512).require_best()[1].step_seconds
        for gpus in (96, 100)
    }
    assert best[96] < best[100]
    assert float(said[1]) == pytest.approx(best[96], rel=1e-3)
    assert "would be faster" not in run(f"{asked} 96")[1]
    assert "would be faster" not in run(f"{asked} 80")[1]  # that 64 are slower
    assert "would be faster" not in run(f"{asked} 100 --pp 25")[1]


def test_a_smaller_number_of_gpus_is_searched_without_evaluating_every_layout(run, monkeypatch):
    """Also where both use as much of a fast domain, of 8 GPUs here."""
    monkeypatch.delattr(SearchWork, "evaluate")
    assert run("plan llama-3-8b --system dgx-h100 --gbs 704 --top 1 --gpus 88")[0] == 0


def test_tokens_may_be_written_with_an_exponent(run):
    asked = "plan llama-3-8b --system dgx-h100 --gpus 8 --gbs 64 --top 1 --price 2 --tokens"
    leads = {given: run(f"{asked} {given}")[1].partition("\n\n")[0] for given in ("15e12", "15T", "1.5e+13")}
    assert "15 T tokens" in leads["15T"]
    assert set(leads.values()) == {leads["15T"]}


def test_the_optimizer_has_its_short_name_where_a_plan_is_given(run):
    asked = "memory llama-3-8b --system dgx-h100 --dp 8 --json"
    assert run(f"{asked} --optimizer muon") == run(f"{asked} --optimizer-kind muon")
    assert run(f"{asked} --optimizer muon") != run(asked)


def test_restarts_are_answered_for(run, tmp_path):
    """`--restart` changes nothing but goodput: it is printed, or what is missing to know it."""
    asked = "plan llama-3-8b --gpus 8 --global-batch 64 --top 1 --restart 1800 --system"
    code, out, _ = run(f"{asked} dgx-h100")
    assert code == 0
    assert re.search(r"goodput 9\d\.\d%: failures, restarts and a checkpoint", out)
    code, out, _ = run(f"{asked} h200-nvs8")  # of the paper, which has no rate of failures
    assert code == 0
    assert "goodput: not known without" in out
    assert "the system's failure_hours" in out.replace("\n ", "")
    _, out, _ = run(
        "estimate llama-3-8b --system h200-nvs8 --dp 8 --zero 3 --gbs 64 --recompute full --restart 1800"
    )
    assert "goodput: not known without" in out
    assert "the system's failure_hours" in out.replace("\n ", "")


def test_no_word_of_the_page_calls_an_interval_measured_runs():
    """A plan that no measured run is like has an interval as well, of errors of predictions."""
    folders = [Path(tc.__file__).parent / "ui", Path(tc.__file__).parent / "planner"]
    texts = (
        path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".js", ".html")
    )
    for path in texts:
        assert not re.search(r"90 ?% of (measured|others)", path.read_text(encoding="utf-8")), path
