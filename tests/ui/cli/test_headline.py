"""The first lines of an answer are what one acts on, each in one line of the terminal."""

import json
import os
import re
from types import SimpleNamespace

import numpy as np
import pytest

import traincast as tc
from traincast.catalog.software_stacks import Stack
from traincast.core.plan import Plan
from traincast.core.units import GIB
from traincast.step.run_metrics import metrics
from traincast.ui.cli import output
from traincast.ui.cli.output import message_columns  # the fixture of all tests replaces it in its module
from traincast.ui.text import headline
from traincast.ui.text import launch as launch_text
from traincast.ui.text.ranking import Ranking

COLUMNS = 80
LEGEND = 5  # lines, at most
PLANS = [
    "plan llama-3-70b --system dgx-h100 --gpus 64",
    "plan llama-3-70b --system b200 --gpus 1024 --tokens 15T --price 4.25",
    "plan qwen3-30b-a3b --system dgx-h100 --gpus 32",
    "plan gpt2-xl --system l4 --gpus 8",
    "plan gpt3-1t --system h200-nvs8 --gpus 2048",
    "plan llama-3-8b --system dgx-h100 --gpus 8 --framework torchtitan --precision fp8-current",
    "plan llama-3-8b --system dgx-h100 --gpus 8 --framework huggingface --gbs 64",
    "plan llama-3-8b --system rtx-4090 --gpus 1 --global-batch 8 --seq 2048 --train qlora",
    "plan gpt-1.3b --system dgx-a100 --gpus 8 --global-batch 8 --assumptions calibrated",
]


@pytest.mark.parametrize("command", PLANS)
def test_four_lines_a_table_by_time_and_one_reason(command, run):
    code, out, _ = run(command)
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    plan, step, memory, _, *asked = out.partition("\n\n")[0].splitlines()
    assert len(asked) <= 2 * ("--price" in command)
    assert re.match(r"(Recommended|Fastest): .*DP \d+", plan)
    assert re.match(r"[\d.,]+ m?s a step", step)
    assert re.match(r"[\d.,]+ of [\d.,]+ GiB at the [a-z ]+: (may )?fits?\b", memory)
    rows = [re.match(r"([ >])+\d+ +([\d.,]+) (m?s) ", line) for line in lines]
    seconds = [float(row[2].replace(",", "")) * (1 if row[3] == "s" else 1e-3) for row in rows if row]
    assert seconds == sorted(seconds)
    (marked,) = (line for line in lines if re.match(r" ?>\d", line))
    assert step.split(" s ")[0].split(" ms ")[0] in marked
    legend = out[out.index("\n> recommended") + 1 :].partition("\n\n")[0]
    assert len(legend.splitlines()) <= LEGEND
    assert out.count("\nassumed: ") <= 1


def test_the_two_plans_to_measure_are_numbers_of_the_table():
    """One is the recommended plan, wherever it stands; said once, above the table."""
    found = tc.search("llama-3-70b", "dgx-h100", gpus=64, gbs=512, locks={"tp": 16})
    listed = Ranking(found)
    plans = [family.plan for family in listed.families]
    recommended, _ = found.recommended
    assert plans[listed.recommended] == recommended
    one, other = map(int, re.search(r"measure (\d+) and (\d+)", listed.equal()).groups())
    assert one < other
    assert listed.recommended + 1 in (one, other)
    times = [est.step_seconds for _, est in listed.answers]
    assert times == sorted(times)


def test_a_time_at_the_edge_of_its_interval_says_of_which_software_it_is():
    """That of a fused dispatcher, and the time with the likeliest software of another."""
    found = tc.search("deepseek-v3", "dgx-h100", gpus=512, gbs=2048, framework="megatron", locks={"tp": 1})
    _, est = found.recommended
    assert est.median_seconds > 1.05 * est.step_seconds
    of_megatron = [
        part for part in est.alternatives if Stack(part.name).facts["framework"] == "Megatron-Core"
    ]
    likely = max(
        (part for part in of_megatron if part.seconds > 1.05 * est.step_seconds),
        key=lambda part: part.weight,
    )
    line = headline.time_line(est)
    assert " with DeepEP, " in line
    said = float(re.search(r", ([\d.]+) s with all-to-all", line)[1])
    assert said == pytest.approx(float(likely.seconds), rel=1e-3)


@pytest.mark.parametrize("degrees", [{"tp": 8}, {"dp": 8, "zero": 3}])
def test_without_an_exchange_of_tokens_no_dispatcher_is_said(degrees):
    """Megatron-Core 0.19.2 refuses DeepEP there: "DeepEP dispatcher requires TPxEP > 1". So its time is not
    that of a fused dispatcher, with which the median of all software was more than 5 % above it."""
    plan = Plan(recompute="full", **degrees)
    est = tc.estimate("qwen3-30b-a3b", "dgx-h100", plan, gbs=1024)
    assert est.median_seconds < 1.05 * est.step_seconds
    assert not re.search("DeepEP|all-to-all", headline.time_line(est))


def test_ranks_that_share_experts_are_in_the_first_line():
    assert headline.plan_line("Plan", Plan(tp=8, etp=8)) == "Plan: TP 8, ETP 8, DP 1, micro-batch 1"
    assert "ETP" not in headline.plan_line("Plan", Plan(tp=8, ep=8))


def test_a_time_of_stated_software_has_its_first_cause():
    est = tc.estimate("llama-3-8b", "dgx-h100", Plan(dp=8), gbs=64, assumptions="megatron-core-2025")
    half = np.expm1(est.widths[0].half)
    assert headline.time_line(est).endswith(f"; ±{half:.0%} by {est.widths[0].brief}")


def test_dollars_are_said_for_the_run_or_for_tokens():
    est = tc.estimate("llama-3-8b", "dgx-h100", Plan(dp=8), gbs=64)
    of_run = headline.run_line(est, metrics(est, price=3.0), 3.0)
    assert f"for ${3 * metrics(est).gpu_hours / 1e6:.4g} M at $3/h" in of_run
    unknown = tc.estimate("gpt3-175b", "dgx-a100", Plan(tp=8, pp=8), gbs=64)
    per_token = 2 * 64 / 3600 / (unknown.gbs * unknown.model.seq / unknown.step_seconds) * 1e6  # 64 GPUs
    said = headline.run_line(unknown, metrics(unknown, price=2.0), 2.0)
    assert float(re.match(r"\$([\d.]+) a million tokens at \$2/h", said)[1]) == pytest.approx(
        per_token, rel=0.01
    )


def test_a_long_plan_is_one_line_with_its_degrees():
    plan = Plan(
        tp=8, cp=4, cp_kind="ring", pp=16, vp=2, dp=64, ep=256, zero=3, mbs=2, precision="fp8-current",
        recompute="norms+activation", offload="optimizer", tp_overlap=True, ep_overlap=True,
    )  # fmt: skip
    line = headline.plan_line("Recommended", plan)
    assert len(line) <= COLUMNS
    assert line.startswith("Recommended: TP 8, CP 4 (ring), PP 16 (VP 2), EP 256, DP 64 (FSDP)")
    assert line.endswith("…")


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("estimate llama-3-8b --system dgx-h100 --gpus 8", "Plan: DP 8, micro-batch 1"),
        ("advise llama-3-8b --system dgx-h100 --gpus 8", "Plan: DP 8, micro-batch 1"),
        ("memory llama-3-8b --system dgx-h100 --gpus 8 --tp 2", "Plan: TP 2, DP 4, micro-batch 1"),
        ("check examples/my_cluster/pretrain.sh --system dgx-h100", "This launch: TP 8, PP 2, DP 2"),
    ],
)
def test_other_answers_begin_alike(command, first, run, folder):
    out = run(command).out
    lead = out.partition("\n\n")[0].splitlines()
    assert lead[0].startswith(first)
    assert len(lead) <= 4
    assert max(map(len, out.splitlines())) <= COLUMNS
    if command.startswith("check"):
        assert re.fullmatch(r"\+\d+% on the best plan; .+: gains [\d.]+%", lead[3])


TITAN = """
[model]
name = "qwen3"
flavor = "32B"
[training]
local_batch_size = 2
seq_len = 4096
[activation_checkpoint]
mode = "full"
[compile]
enable = true
components = ["model", "loss"]
"""


def test_what_several_settings_gain_is_not_said_of_one(run, tmp_path):
    (tmp_path / "run.toml").write_text(TITAN, encoding="utf-8")
    question = f"check {tmp_path / 'run.toml'} --system dgx-h100 --gpus 16"
    answer = json.loads(run(f"{question} --json").out)
    assert not answer["changes"]
    assert len(answer["together"]["settings"]) > 1
    advice = run(question).out.splitlines()[3]
    assert re.search(r"(and \d+ more|\d+ settings together): gains [\d.]+%$", advice)
    assert len(advice) <= COLUMNS


def test_the_change_that_gains_most_is_in_the_first_lines(run):
    """Where several settings together gain more than any one, the advice is theirs."""
    question = "check examples/my_cluster/pretrain.sh --system dgx-h100"
    answer = json.loads(run(f"{question} --json").out)
    assert answer["changes"]
    together = answer["together"]
    assert together["step_seconds"] < min(change["step_seconds"] for change in answer["changes"])
    gain = 1 - together["step_seconds"] / answer["estimate"]["step_seconds"]
    assert run(question).out.splitlines()[3].endswith(f"settings together: gains {gain:.1%}")


@pytest.mark.parametrize(
    ("verdict", "advice"),
    [
        ("fits", "+25% on the best plan; its settings differ in more than three: below"),
        ("uncertain", "no change of one, two or three settings is likelier to fit"),
        ("does not fit", "no change of one, two or three settings makes it fit"),
    ],
)
def test_no_faster_plan_is_promised_where_no_change_helps(verdict, advice):
    """What may not fit is not told how much faster another plan is, and that nothing helps, in one line."""
    est = SimpleNamespace(verdict=verdict, fits_probability=0.5)
    found = SimpleNamespace(recommended=None)
    checked = SimpleNamespace(est=est, best=object(), gap=0.25, changes=[], together=None, found=found)
    assert launch_text._advice(checked) == advice


AXOLOTL = """
base_model: mistralai/Mistral-7B-v0.1
datasets:
  - path: documents
    type: alpaca
sequence_len: 4096
sample_packing: true
gradient_accumulation_steps: 1
micro_batch_size: 4
gradient_checkpointing: true
optimizer: adamw_torch
bf16: auto
flash_attention: true
"""


def test_a_plan_that_is_likelier_to_fit_is_what_to_change(run, tmp_path):
    (tmp_path / "full.yml").write_text(AXOLOTL, encoding="utf-8")
    out = run(f"check {tmp_path / 'full.yml'} --system dgx-a100 --gpus 8").out
    lead = out.splitlines()
    assert "may fit (" in lead[2]
    odds = re.search(r"if this launch does not fit\n[^,]+, fits with (\S+):", out)[1]
    assert lead[3].endswith(f"; another plan fits with {odds} probability: below")
    assert f"What to change\nto the plan above, which fits with {odds} probability" in out
    assert "no change" not in out


def test_plans_that_differ_much_are_not_called_equal(run):
    """Plans of LoRA on A100 take up to a fifth longer than each other, within what errors tell."""
    out = " ".join(run("plan llama-3-70b --system dgx-a100 --gpus 8 --train lora:r=16").out.split())
    (apart,) = re.findall(r"Plans [^;]* are up to (\d+)% apart, less than the model can tell; measure", out)
    assert 5 < int(apart) < 50
    assert "are equal" not in out


def test_a_plan_that_nobody_gave_and_does_not_fit_is_said_to_be_none(run):
    """Data parallelism alone is taken where no degree is given; 70B does not fit so."""
    question = "advise llama-3-70b --system dgx-h100 --gpus 64"
    said = "no degree is given, so DP 64 is taken; give yours, such as --tp 8 --pp 4, or ask plan"
    assert said in " ".join(run(question).err.split())
    assert "no degree" not in run(f"{question} --tp 2").err


def test_what_a_question_leaves_out_is_said(run):
    """The batch, the length and the tokens of the run are the model's or usual ones; those given are not."""
    question = "plan llama-3-8b --system dgx-h100 --gpus 8"
    said = " ".join(run(question).out.split())
    assert (
        "assumed: the global batch (--global-batch), the length of sequences (--seq), 15 T tokens of " in said
    )
    stated = " ".join(run(f"{question} --gbs 64 --seq 4k --tokens 1T --price 2").out.split())
    assert "assumed:" not in stated


@pytest.mark.parametrize("used", [9.4, 29.4, 175.4])
def test_an_uncertain_fit_is_one_line(used):
    """Of the longest phase, and of large memory."""
    accelerator = SimpleNamespace(visible_bytes=1.06 * used * GIB)
    est = SimpleNamespace(
        system=SimpleNamespace(accelerator=accelerator), memory_bytes=used * GIB, verdict="uncertain",
        memory_phase="backward of the first layer", fits_probability=0.75,
    )  # fmt: skip
    line = headline.memory_line(est)
    assert "may fit (75%), measure" in line
    assert len(line) <= COLUMNS


def test_facts_of_software_are_said_in_words():
    assert headline.software_words("megatron-core-2025", "megatron-core-plain") == (
        "DP overlap",
        "no DP overlap",
    )


def test_a_measured_step_is_said_against_the_predicted_one(run, folder):
    """Twice the time of the estimate is 100 % slower, in place of the line on its time."""
    question = "llama-3-8b --system dgx-h100 --gpus 8 --gbs 64"
    predicted = json.loads(run(f"estimate {question} --json").out)["estimate"]["step_seconds"]
    lead = run(f"advise {question} --step-seconds {2 * predicted}").out.partition("\n\n")[0].splitlines()
    assert re.match(r"[\d.]+ s measured, 100\.0% slower than [\d.]+ s \(.*, 90%\): ", lead[1])
    assert len(lead) <= 4
    lead = run(f"advise {question} --step-seconds {10 * predicted}").out.partition("\n\n")[0].splitlines()
    assert re.match(r"[\d.]+ s measured, 10 times [\d.]+ s \(.*, 90%\): <1% by chance", lead[1])


@pytest.mark.parametrize(("plan", "fits"), [("--dp 8", False), ("--tp 2 --dp 4", True)])
def test_a_measured_plan_that_is_said_not_to_fit_is_no_silent_contradiction(plan, fits, run):
    out = run(f"advise llama-3-8b --system dgx-h100 {plan} --mfu 0.4").out
    assert (": does not fit" in out) is not fits
    assert ("A plan that was measured fits" in out) is not fits


WRONG = [
    "plan nosuch --system dgx-h100 --gpus 8",
    "plan llama-3-8b --system nosuch --gpus 8",
    "plan llama-3-8b --system dgx-h100 --gpus 8 --framework nosuch",
    "plan llama-3-8b --system dgx-h100 --gpus 8 --assumptions nosuch",
    "plan llama-3-8b --system dgx-h100 --gpus 8 --given dispatcher=nosuch",
    "plan llama-3-8b --system dgx-h100 --gpus 8 --precision nosuch --recompute nosuch",
    "plan llama-3-8b --system dgx-h100 --gpus 8 --train nosuch",
    "plan llama-3-8b --system dgx-h100 --gpus 8 --tp 7",
    f"plan /{'a-folder/' * 15}config.json --system dgx-h100 --gpus 8",
    "memory llama-3-70b --system dgx-h100 --dp 8",
    "calibrate --system dgx-h100 --given model=nosuch",
    "check Makefile --system dgx-h100",
    "export llama-3-8b --system dgx-h100 --gpus 8 --to nosuch",
    "limits --accelerator nosuch",
    "catalog nosuch",
    "compare llama-3-8b --system dgx-h100",
]


@pytest.mark.parametrize("command", WRONG)
def test_messages_are_no_wider_than_the_terminal_and_list_no_catalogue(command, run, folder, monkeypatch):
    monkeypatch.setattr(output, "message_columns", message_columns)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((COLUMNS, 24)))
    code, out, err = run(command)
    assert code in (1, 2)
    assert max(map(len, (out + err).splitlines())) <= COLUMNS
    assert len(err.splitlines()) <= 14


@pytest.mark.parametrize(
    "question",
    [
        "estimate llama-3-70b --system dgx-h100 --gpus 64 --tp 8 --pp 4",
        "advise llama-3-8b --system dgx-h100 --tp 4 --pp 2 --dp 8 --mfu 0.28",
        "check examples/my_cluster/pretrain.sh --system dgx-h100",
        "plan llama-3-8b --system dgx-h100 --gpus 16",
    ],
)
def test_all_causes_of_a_width_stand_under_why(question, run):
    """The first line of a cause is the headline's; `--why` lists all, and the short answer names `--why`."""
    code, short, _ = run(question)
    assert code == 0
    assert "uncertain by" not in short
    assert re.search(r"^--why: all causes", short, re.MULTILINE)
    _, out, _ = run(f"{question} --why")
    assert re.search(r"^uncertain by .*: ±\d+%", out, re.MULTILINE)
    assert out.partition("\n")[0] == short.partition("\n")[0]


def test_a_narrower_interval_is_said_beside_the_width_that_it_narrows(run):
    """The headline has the largest cause alone, which may be less than what is left of all of them."""
    _, out, _ = run("plan qwen3-30b-a3b --system dgx-h100 --gpus 32")
    of, left = map(int, re.search(r"^±(\d+)% narrows to ±(\d+)% with --", out, re.MULTILINE).groups())
    low, high = map(float, re.search(r"\((\S+) to (\S+), 90%\)", out).groups())
    assert of == pytest.approx(100 * (np.sqrt(high / low) - 1), abs=1)
    assert left < of
