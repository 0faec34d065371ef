"""`estimate --framework`: a framework's stack and rules, as `plan` has them; GPUs and degrees; cost, MFU."""

import json
import re

import pytest

from traincast.planner.frameworks.spaces import FRAMEWORKS

JOB = "llama-3-8b --system dgx-h100 --gpus 8 --gbs 64"


def estimated(run, options):
    code, out, err = run(f"estimate {JOB} {options} --json")
    assert code in (0, 1), err
    return json.loads(out), err


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_gives_the_stack_that_plan_assumes(name, run):
    answer, _ = estimated(run, f"--framework {name}")
    planned = json.loads(run(f"plan {JOB} --framework {name} --json --top 1").out)
    assert answer["assumptions"] == planned["assumptions"]


@pytest.mark.parametrize(
    ("options", "zero"),
    [
        ("--framework torchtitan", 3),  # fsdp_reshard_after_forward = "default" (torchtitan 0.3.0)
        ("--framework torchtitan --pp 2", 2),  # which does not reshard in a pipeline
        ("--framework fsdp", 3),  # reshard_after_forward of fully_shard
        ("--framework trl", 0),  # DDP: TrainingArguments without fsdp and deepspeed
        ("--framework megatron", 1),
        ("--framework torchtitan --zero 2 --dp 8", 2),
        ("", 1),
    ],
)
def test_absent_means_the_stage_of_zero_of_the_framework(options, zero, run):
    answer, err = estimated(run, options)
    assert answer["estimate"]["plan"].get("zero", 1) == zero
    assert (f"zero = {zero}, the default of" in err) == (zero != 1 and "--zero" not in options)


@pytest.mark.parametrize(
    ("options", "words"),
    [  # each is what plan says of the same locks, or what check says of such a launch
        ("--framework torchtitan --zero 1", "zero = 1: torchtitan does not run it; it runs 0, 2, 3"),
        ("--framework axolotl --pp 2", "pp = 2: huggingface runs no pipeline"),
        ("--framework deepspeed --pp 2 --zero 3", "zero = 3: deepspeed runs ZeRO-1 at most in a pipeline"),
        ("--framework nanotron --pp 2 --vp 2", "vp = 2: nanotron runs no virtual stages"),
        ("--framework megatron --schedule zb-v --pp 2", "schedule = zb-v: megatron does not run it"),
        ("--framework megatron --offload activations --pp 2", "offloads activations without a pipeline only"),
        ("--framework nowhere", "unknown framework 'nowhere'"),
        ("--gpus 16 --dp 8 --framework megatron", "--gpus: given more than once"),
    ],
)
def test_a_broken_rule_of_a_framework_is_refused(options, words, run):
    for command in ("estimate", "memory"):
        code, out, err = run(f"{command} {JOB} {options}")
        assert (code, out, words in err) == (2, "", True), err
        assert err.startswith("traincast: ")


def test_a_model_that_a_framework_does_not_run_is_refused(run):
    code, _, err = run(
        "estimate llama-3-8b --system dgx-h100 --gpus 8 --gbs 8 --framework megatron --train qlora:r=16"
    )
    assert (code, "Megatron-Core has no weights that bitsandbytes packs" in err) == (2, True)


def test_gpus_and_degrees_agree_or_are_refused(run):
    given = "llama-3-8b --system dgx-h100 --framework torchtitan --zero 3 --gbs 64"
    one, other, wrong, rest = (
        run(f"estimate {given} {options} --json")
        for options in ("--gpus 8 --dp 8", "--gpus 8", "--gpus 16 --dp 8", "--gpus 8 --tp 3")
    )
    assert json.loads(one.out)["estimate"] == json.loads(other.out)["estimate"]
    assert (wrong.code, "16: must be the product of the degrees, dp 8 = 8" in wrong.err) == (2, True)
    assert (rest.code, "8: must be divisible by the degrees, tp 3 = 3" in rest.err) == (2, True)


def test_a_measured_mfu_is_a_measured_step(run):
    """Model FLOPs, as Megatron-LM counts them, over peak and MFU are the time of a step."""
    line = "advise llama-3-8b --system dgx-h100 --tp 4 --pp 2 --dp 8 --gbs 512"
    predicted = json.loads(run(f"estimate {line.partition(' ')[2]} --json").out)
    step = predicted["estimate"]["step_seconds"] * predicted["metrics"]["mfu"]["megatron"] / 0.28
    for option in ("--mfu 0.28", "--measured-mfu 28%"):
        answer = json.loads(run(f"{line} {option} --json").out)
        assert answer["measured_step_seconds"] == pytest.approx(step, rel=1e-12)
    for option, words in {
        "--mfu 28": "must be a share above 0",
        "--mfu 0": "must be a share above 0",
        "--mfu x": "must be a share",
        "--mfu 0.3 --step-seconds 3": "step_seconds and mfu: give one of them",
    }.items():
        code, _, err = run(f"{line} {option}")
        assert (code, words in err) == (2, True), err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--tokens 1T", " tokens: "),
        ("--cost", "15 T tokens: "),
        ("--cost --price 3", "$"),
    ],
)
def test_dollars_are_shown_where_the_run_is_asked_for(options, words, run):
    """15 T tokens are those of Llama 3 (arXiv 2407.21783); the system has a price."""
    for command in ("plan --top 1", "estimate"):
        name, _, more = command.partition(" ")
        out = run(f"{name} {JOB} {more} {options}").out
        assert words in out
        totals = " ".join(out.split())
        assert " GPU-hours, " in totals
        assert len(re.findall(r" tokens in [\d,.]+ days for \$", totals)) == 1
        assert ("GPU-hours, $" in totals) == (name == "estimate")  # `plan` has said days and dollars above
        assert bool(re.search(r" tokens: [\d,.]+ days, ", totals)) == (name == "estimate")
    assert "GPU-hours" not in run(f"plan {JOB} --top 1").out


def test_a_cost_that_is_not_known_says_what_is_missing(run):
    out = run("plan gpt3-1t --system h200-nvs8 --gpus 2048 --top 1 --cost").out
    assert "cost: not known without" in out


def test_what_looks_at_runs_assumes_a_calibrated_machine(run):
    """GPT3-1T has no vocabulary: `estimate` takes the paper's machine, `advise` and `profile` a real one."""
    line = "gpt3-1t --system dgx-h100 --tp 8 --pp 16 --dp 8 --gbs 1024 --recompute full --json"
    assumed = {
        command: json.loads(run(f"{command} {line}").out)["assumptions"] for command in ("estimate", "advise")
    }
    assert assumed == {"estimate": "paper", "advise": "calibrated"}
    stated = run(f"advise {line} --assumptions paper")
    assert json.loads(stated.out)["assumptions"] == "paper"
    trace = "--trace examples/my_cluster/profile.json"
    profiled = run(f"profile {line} {trace}")
    assert json.loads(profiled.out)["assumptions"] == "calibrated"
