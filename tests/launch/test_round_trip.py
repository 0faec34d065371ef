"""Random plans in every format: what is left out can be given to `check`, which then predicts the same."""

import json
import os
import random
from dataclasses import fields
from functools import cache

import pytest

import traincast as tc
from traincast.catalog.software_stacks import Stack
from traincast.launch.formats import FORMATS
from traincast.launch.frameworks.huggingface import ON_DEEPSPEED
from traincast.launch.reader import complete_launch, read
from traincast.launch.settings.canonical import PLACEMENT_KNOBS, launch_facts
from traincast.launch.settings.given import Given
from traincast.ui.cli.main import main

MACHINE = tc.load_system("dgx-h100")
MODELS = (
    *("gpt3-175b", "llama-3-8b", "llama-3-70b", "gemma-2-9b"),  # dense
    *("mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b", "gpt-oss-120b"),  # with experts
)
PLANS = max(int(os.environ.get("TRAINCAST_FUZZ", "40")) // 10, 40)
KNOBS = {field.name for field in fields(tc.Plan)}
CHOICES = {
    "sp": (True, False),
    "tp_overlap": (True, False),
    "ep_overlap": (False, False, True),
    "dp_overlap": (True, True, False),
    "attention": ("flash", "flash", "unfused"),
    "precision": [
        "bf16",
        "bf16",
        "fp16",
        "fp32",
        "fp8",
        "fp8-block",
        "fp8-current",
        "mxfp8",
        "nvfp4",
        "bf16-pure",
    ],
    "grad_dtype": ("usual", "usual", "16-bit", "fp32"),
    "optimizer_kind": ["adam", "adam", "adam-bf16", "adam-8bit", "sgd", "muon", "lion"],
    "offload": ["none", "none", "optimizer", "activations", "optimizer+weights"],
    "master_copy": ("usual", "usual", "remainder", "fp32"),
    "order": ("tp-cp-dp-pp", "tp-cp-dp-pp", "tp-cp-pp-dp"),
    "zero": (0, 1, 2, 3),
    "recompute": [
        "none",
        "selective",
        "norms",
        "norms+activation",
        "attention+mlp",
        "experts",
        "per-op",
        "full",
    ],
}


def drawn_plan(draw, model):
    """A plan whose knobs do not contradict each other; whether the model can be cut so is seen later."""
    degrees = {name: draw.choice((1, 1, 2, 4)) for name in ("tp", "pp", "dp", "cp")}
    knobs = {name: draw.choice(values) for name, values in CHOICES.items()} | {"mbs": draw.choice((1, 2))}
    if degrees["cp"] > 1:
        knobs["cp_kind"] = draw.choice(("ring", "ulysses", "all-gather", "hybrid"))
        knobs["ulysses"] = 2 if knobs["cp_kind"] == "hybrid" else 1
    if degrees["pp"] > 1:
        knobs["schedule"] = draw.choice(("1f1b", "1f1b", "gpipe", "zb-h1", "zb-v"))
        knobs["vp"] = {"1f1b": draw.choice((1, 2, 3)), "zb-v": 2}.get(knobs["schedule"], 1)
    if model.experts is not None:
        stage = degrees["tp"] * degrees["dp"] * degrees["cp"]
        knobs["ep"] = draw.choice([n for n in (1, 2, 4, 8) if stage % n == 0])
        knobs["etp"] = draw.choice([n for n in (1, degrees["tp"]) if stage % (n * knobs["ep"]) == 0])
    if knobs["zero"] and degrees["dp"] * degrees["cp"] > 1:
        knobs["replicas"] = draw.choice((1, 1, degrees["dp"]))
    if knobs["recompute"] == "full":
        knobs["recompute_every"] = draw.choice((1, 1, 2))
    if knobs["offload"] == "activations":
        knobs["offload_every"] = draw.choice((1, 2))
    return tc.Plan(**degrees, **knobs)


@cache
def drawn_estimates(space, dense_only):
    """Estimates of random plans that keep the framework's rules, the same for each of its formats."""
    draw, models = random.Random(2026), [tc.load_model(name) for name in MODELS]
    models = [model for model in models if model.experts is None or not dense_only]
    drawn = []
    while len(drawn) < PLANS:
        model = draw.choice(models)
        try:
            plan = drawn_plan(draw, model)
            gbs = plan.dp * plan.mbs * draw.choice((4, 8, 12))
            est = tc.estimate(model, MACHINE, plan, gbs=gbs, assumptions=space.usual_assumptions(model))
        except tc.InputError:
            continue
        if not space.broken(model, plan, gbs):
            drawn.append(est)
    return drawn


def given_back(est, written):
    """The knobs that are left out, as a user gives them, and whether the model has to be given."""
    plan, left_out = est.plan, {n for n, why in written.not_expressed.items() if not why.startswith("no ")}
    knobs = {name: getattr(plan, name) for name in left_out & KNOBS}
    if "chunks" in left_out:
        knobs["layout"] = ",".join(map(str, launch_facts(est.model, plan, est.gbs)["chunks"]))
    if "placement" in left_out:
        knobs |= {name: getattr(plan, name) for name in PLACEMENT_KNOBS}
    return knobs, left_out - KNOBS - {"chunks", "placement", "gpus", "gbs"} != set()


def read_back(est, to, path):
    """The file of an estimate as read, the knobs that are given beside it, and the estimate of both."""
    form = FORMATS[to]
    written = tc.export(est, to)
    path.write_text(written.text, encoding="utf-8")
    knobs, other_model = given_back(est, written)
    model = est.model if other_model or not form.model else None
    names = ["gpus", "gbs", *knobs]
    names += ["chunks"] if "layout" in knobs else []
    names += ["model"] if model else []
    reading = read(path, FORMATS, to, given=Given(facts=names))
    _, read_model, plan, gbs = complete_launch(reading, model, est.plan.gpus, est.gbs, knobs)
    back = tc.estimate(read_model, MACHINE, plan, gbs=gbs, assumptions=est.assumptions)
    return reading, knobs, back


@pytest.mark.random
@pytest.mark.parametrize("to", FORMATS)
def test_what_is_left_out_can_be_given_to_check(to, tmp_path):
    """Of 40 plans each, nightly 1,000: step time and memory are those of the plan that was written."""
    form = FORMATS[to]
    path = tmp_path / f"written{form.ending}"
    for est in drawn_estimates(form.space, form.dense_only):
        reading, knobs, back = read_back(est, to, path)
        predicted = [(float(e.step_seconds), float(e.memory_bytes)) for e in (est, back)]
        assert predicted[1] == pytest.approx(predicted[0], rel=1e-9), (est.model.name, est.plan, knobs)
        stack = est.assumptions.name
        other = {Stack.FUSED_DISPATCHER: Stack.DEFAULT} if est.plan.ep * est.plan.etp == 1 else ON_DEEPSPEED
        assert form.stack(reading.settings) in (stack, other.get(stack, ON_DEEPSPEED.get(stack)))


ONE_RANK = {  # format -> model and knobs of a plan whose state has no replicas, where ZeRO-1 matters
    "megatron": ("llama-3-8b", {"tp": 2, "optimizer_kind": "adam-8bit"}),
    "megatron-bridge": ("llama-3-8b", {"tp": 2, "master_copy": "remainder"}),
    "deepspeed": ("qwen3-30b-a3b", {"recompute": "full"}),
    "nanotron": ("gemma-2-9b", {"tp": 2, "pp": 2, "sp": False, "master_copy": "remainder"}),
}


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("to", ONE_RANK)
def test_the_stage_of_one_rank_is_kept_where_it_matters(to, zero, tmp_path):
    """ZeRO-1 stores the remainder of a master copy, and DeepSpeed's copies what it steps, on one rank too.

    DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py, step; Megatron-Core 0.19.2,
    core/optimizer/optimizer_config.py: use_precision_aware_optimizer needs the distributed optimizer.
    """
    name, knobs = ONE_RANK[to]
    form = FORMATS[to]
    model = tc.load_model(name)
    stages = [
        tc.estimate(
            model,
            MACHINE,
            tc.Plan(zero=stage, **knobs),
            gbs=8,
            assumptions=form.space.usual_assumptions(model),
        )
        for stage in (0, 1)
    ]
    assert float(stages[0].memory_bytes) != float(stages[1].memory_bytes)
    _, _, back = read_back(stages[zero], to, tmp_path / f"written{form.ending}")
    assert float(back.memory_bytes) == pytest.approx(float(stages[zero].memory_bytes), rel=1e-9)
    assert float(back.step_seconds) == pytest.approx(float(stages[zero].step_seconds), rel=1e-9)


def test_adam_of_few_bits_has_the_distributed_optimizer_on_one_rank():
    """Megatron-Core 0.19.2, core/optimizer/optimizer_config.py: use_precision_aware_optimizer."""
    plans = [tc.Plan(tp=2, zero=zero, optimizer_kind="adam-8bit") for zero in (0, 1)]
    written = [tc.export(tc.estimate("llama-3-8b", MACHINE, plan, gbs=8), "megatron") for plan in plans]
    assert "needs it on one rank too" in written[0].not_expressed["zero"]
    assert "zero" not in written[1].not_expressed
    assert all("--use-distributed-optimizer" in launch.text for launch in written)


def test_the_stage_of_one_rank_is_left_out_where_it_changes_nothing():
    """With a whole master copy the distributed optimizer, with nothing to shard, needs the same memory."""
    est = tc.estimate("llama-3-8b", MACHINE, tc.Plan(tp=8, zero=1), gbs=8)
    written = tc.export(est, "megatron")
    assert "zero" not in written.not_expressed
    assert "--use-distributed-optimizer" not in written.text


def test_a_given_knob_takes_its_details_with_it(tmp_path):
    """torchtitan of 2025 recomputes every second layer by default: with --recompute norms it does not."""
    est = tc.estimate("llama-3-8b", MACHINE, tc.Plan(dp=8, zero=3, recompute="norms"), gbs=64)
    written = tc.export(est, "torchtitan-toml")
    assert [line for line in written.not_expressed.values() if "recompute" in line] == [
        written.not_expressed["recompute"]
    ]
    path = tmp_path / "run.toml"
    path.write_text(written.text, encoding="utf-8")
    checked = tc.check(path, MACHINE, gpus=8, knobs={"recompute": "norms"})
    assert (checked.est.plan.recompute, checked.est.plan.recompute_every) == ("norms", 1)


def test_context_parallel_communication_is_not_overlapped_with_products():
    """`tp_overlap` is of tensor-parallel communication alone (Transformer Engine, user buffers)."""
    plans = [tc.Plan(cp=2, cp_kind="ulysses", dp=2, tp_overlap=overlaps) for overlaps in (False, True)]
    seconds = [float(tc.estimate("mixtral-8x7b", MACHINE, plan, gbs=8).step_seconds) for plan in plans]
    assert seconds[0] == seconds[1]


def test_another_software_stack_is_declared():
    """An estimate of another stack than the one that `check` takes for the file says so; others do not."""
    plan = tc.Plan(tp=2, dp=32)
    for assumptions, declared in (("megatron-core-2025", True), ("nanotron-2025", False)):
        est = tc.estimate("llama-3-8b", MACHINE, plan, gbs=256, assumptions=assumptions)
        lines = tc.export(est, "nanotron").text.replace("\n#  ", "")
        assert ("unless --assumptions says megatron-core-2025" in lines) is declared


def test_a_given_plan_is_predicted_with_the_stack_of_its_framework(tmp_path, capsys):
    """`export` without a search and `check` of its file predict the same step time."""
    path = tmp_path / "run.yaml"
    job = ["--system", "dgx-h100", "--json"]
    main(["export", "llama-3-8b", *job, "--tp", "2", "--dp", "32", "--to", "nanotron", "--output", str(path)])
    exported = json.loads(capsys.readouterr().out)["estimate"]
    main(["check", str(path), *job])
    checked = json.loads(capsys.readouterr().out)["estimate"]
    assert exported["step_seconds"] == checked["step_seconds"]
