"""Software stacks and their terms: host pace, waits for slow ranks, sliding windows, broadcasts."""

import copy
import csv
import json
import pickle
from dataclasses import asdict, replace
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traincast as tc
from traincast.catalog.load import figures, system_document
from traincast.catalog.schema import fields as entries
from traincast.catalog.software import constants
from traincast.catalog.software_stacks import (
    KEPT,
    Stack,
    calibrated,
    calibrated_file,
    resolve,
    stack_names,
    with_fitted_values,
)
from traincast.core.assumptions import EXPERT_ASSUMPTIONS, PAPER, Assumptions
from traincast.planner.frameworks.spaces import FRAMEWORKS
from traincast.step.arguments import check_assumptions
from traincast.step.uncertainty import ErrorCase, deviation, errors
from traincast.times.overlap import paced_by

CALIBRATED = calibrated()

MODEL = tc.Model(
    name="small", layers=8, hidden=1024, ffn=4096, heads=16, seq=1024, vocab=51200, dropout=False
)
PLAN = tc.Plan(dp=8, mbs=1)


def seconds(plan=PLAN, gbs=64, model=MODEL, system="dgx-a100", assumed=None):
    """Return the step time and its breakdown with some assumptions changed."""
    est = tc.estimate(model, system, plan, gbs=gbs, assumptions=CALIBRATED.with_values(assumed or {}))
    return est.step_seconds, est.breakdown


# The catalogue ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", stack_names())
def test_every_stack_loads_and_differs_from_calibrated_only_where_it_says_so(name):
    stack, file = Stack(name).assumptions, Stack(name).file
    changed = {path for path, value in stack.values().items() if value != CALIBRATED.value(path)}
    assert changed <= set(file.changes())
    assert (stack.name, file.name) == (name, name)
    assert Stack(name).search_space in FRAMEWORKS
    assert all(figure.source != "the file itself" for figure in figures(name))


def test_calibrated_is_the_usual_stack_and_that_of_a_framework_where_there_is_one():
    open_to_any = replace(Stack(Stack.DEFAULT).assumptions, name="calibrated", unsaid=Stack.ANY)
    assert resolve("calibrated") == open_to_any
    titan = Stack("torchtitan-2025").assumptions
    assert check_assumptions("calibrated", "torchtitan-2025") == replace(titan, unsaid=Stack.ANY)
    stated = check_assumptions(None, "torchtitan-2025", Stack("torchtitan-2025").releases)
    assert stated == replace(titan, unsaid=("torchtitan-2024", "torchtitan-2025", "torchtitan-eager"))
    assert check_assumptions("torchtitan-2025", "paper") == titan
    of_megatron = Stack("megatron-core-2025").releases
    assert {"nemo-2025", "megatron-bridge-2026"} < set(of_megatron)
    assert not any(name.startswith(("torch", "megatron-lm", "nanotron")) for name in of_megatron)
    frameworks = {Stack(name).file.framework for name in of_megatron}
    assert frameworks == {"Megatron-Core", "Megatron-Bridge", "NeMo"}
    assert "nemo-diffusion-2025" in Stack("mlperf-2025").releases, "by its facts, whatever its name"
    assert check_assumptions(None, "paper") == resolve("paper")
    assert resolve("Torchtitan-2025").name == "torchtitan-2025"


# Layers of experts ------------------------------------------------------------------------------------------


def with_runs_of_experts():
    """Return the stacks of the table that have a measured run of experts."""
    table = (files("traincast") / "catalog/measured/training_runs.csv").read_text(encoding="utf-8")
    runs = csv.DictReader(table.splitlines())
    timed = (run for run in runs if run["experts.experts"] and run["step_seconds"] and not run["skipped"])
    return {run["stack"] for run in timed} & set(stack_names())  # one of unknown software has none


def test_fitted_constants_of_experts_have_runs_of_experts():
    """Constants of a framework or a fact are fitted only where a measured run of experts has them."""
    measured = {owner for run in with_runs_of_experts() for owner, _ in Stack(run).owners}
    for entry in constants():
        for figure in entries.figures(entry.values):
            if figure.path in EXPERT_ASSUMPTIONS and figure.basis == "fitted":
                assert entry.name in measured, f"{entry.name}: {figure.path}"


def test_all_software_of_which_nothing_is_known_runs_experts_as_plain_pytorch():
    assert not CALIBRATED.collectives.node_copies
    assert not CALIBRATED.kernels.groups_experts
    assert CALIBRATED.overlap.ep_exposed == CALIBRATED.overlap.ep_overlapped == 1


def test_code_of_experts_is_that_of_the_same_program_only():
    """Programs of Megatron-Core run its layer; nanotron, LitGPT and DeepSpeed have none of its constants."""
    same = {name for name in stack_names() if "megatron-core-2025" in Stack(name).same_experts}
    programs = ("megatron-core-", "megatron-bridge-", "nemo-", "mlperf-", "megascale-", "primus-")
    loops = {"megatron-core-unfused", "megatron-core-wide-loss"}  # products of one expert after the other
    assert same == {name for name in stack_names() if name.startswith(programs)} - loops
    alone = ("nanotron-2025", "litgpt-2024", "deepspeed-2025", "torchtune-2025", "automodel-2025")
    of_megatron = {
        path for owner, paths in Stack("megatron-core-2025").owners for path in paths & EXPERT_ASSUMPTIONS
    }
    for name in alone:
        assert not any(other.startswith(programs) for other in Stack(name).same_experts)
        sets = {owner for owner, paths in Stack(name).owners if paths & of_megatron}
        assert not any(owner.startswith("megatron") for owner in sets)


MIXTURES = {"qwen3-30b-a3b": 32, "deepseek-v2-lite": 64, "deepseek-v3": 256, "gpt-oss-20b": 32}


@pytest.mark.parametrize(("name", "gpus"), MIXTURES.items())
def test_deepspeed_runs_experts_one_after_the_other(name, gpus):
    """Its plan of the review, on the software of which experts are a loop and on one that groups them.

    DeepSpeed 0.19.8, deepspeed/moe/experts.py: `for chunk, expert in zip(chunks, self.deepspeed_experts)`.
    """
    model = tc.load_model(name)
    plan = tc.Plan(dp=gpus, ep=min(8, gpus), mbs=1, zero=1, recompute="full")
    slow = Stack("deepspeed-2025").assumptions
    grouped = slow.with_values({"kernels.groups_experts": True})

    def took(assumed):
        return tc.estimate(model, "dgx-h100", plan, gbs=gpus, assumptions=assumed).step_seconds

    before = slow.with_values({path: PAPER.value(path) for path in EXPERT_ASSUMPTIONS})
    assert took(slow) > took(grouped) > took(before)


def test_deepspeed_is_predicted_slower_than_megatron_where_the_review_found_it_faster():
    """11.36 s against 11.41 s on 32 GPUs; no rule compares them, and a mixture of 8 experts was slower."""
    found = {
        framework: tc.search("qwen3-30b-a3b", "dgx-h100", gpus=32, framework=framework, top=1).plans[0][1]
        for framework in ("megatron", "deepspeed")
    }
    assert found["deepspeed"].step_seconds > 1.1 * found["megatron"].step_seconds


def test_a_loop_over_experts_launches_a_product_for_each_by_hand():
    """Six products of a layer, fc1 and fc2 with two gradients each, of E / ep experts.

    The host paces the step where it takes long enough: the more experts a rank has, the longer.
    """
    model = tc.load_model("mixtral-8x7b", seq=128)
    loop = {"kernels.groups_experts": False, "host.dispatch_seconds": 0.0}

    def took(ep, seconds):
        changed = CALIBRATED.with_values(loop | {"host.expert_product_seconds": seconds})
        return tc.estimate(model, "dgx-h100", tc.Plan(dp=8, ep=ep), gbs=8, assumptions=changed).step_seconds

    more = 1.0  # s: far longer than anything else
    assert took(8, more) == pytest.approx(model.layers * 6 * more, rel=0.01)
    assert took(2, more) == pytest.approx(model.layers * 6 * 4 * more, rel=0.01)


def test_intervals_of_experts_are_those_of_unmeasured_software_where_no_run_had_them():
    """torchtitan has dense runs only: of a mixture it is software without a run, and the answer says so."""
    model, plan = tc.load_model("mixtral-8x7b"), tc.Plan(dp=64, ep=8, zero=3)
    est = tc.estimate(model, "dgx-h100", plan, gbs=256, assumptions="torchtitan-2025")
    assert any("without a run of experts" in line and "torchtitan-2025" in line for line in est.outside)
    case = ErrorCase.from_step(
        model, "H100 SXM5 80 GB", "torchtitan-2025", plan.columns(), est.breakdown, est.step_seconds
    )
    known = errors()
    measured = replace(known, evidence=replace(known.evidence, experts=frozenset({"torchtitan-2025"})))
    wide, narrow = deviation(case, known), deviation(case, measured)
    assert wide**2 == pytest.approx(narrow**2 + known.drifts["new_stack"] ** 2)
    dense = tc.estimate(
        "llama-3-8b", "dgx-h100", tc.Plan(dp=8, zero=3), gbs=64, assumptions="torchtitan-2025"
    )
    assert not any("without a run" in line for line in dense.outside)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(
        tc.InputError, match=r"unknown assumptions 'wibble': known: automodel-2025.*calibrated.* and \d+ more"
    ):
        resolve("wibble")


# The host ---------------------------------------------------------------------------------------------------


@given(st.floats(1e-9, 1), st.floats(1e-9, 1))
def test_the_pace_is_at_least_that_of_the_slower_side_and_at_most_a_fifth_more(host, device):
    both = paced_by(host, device)
    assert max(host, device) * (1 - 1e-12) <= both <= 2**0.25 * max(host, device) + 1e-12


def test_a_small_model_takes_as_long_as_its_host_needs_to_issue_it():
    """By hand: the operations of a layer are counted; each takes the host 1 ms, far more than the GPU."""
    free, _ = seconds()
    bound, parts = seconds(assumed={"host.dispatch_seconds": 1e-3})
    est = tc.estimate(
        MODEL, "dgx-a100", PLAN, gbs=64, assumptions=CALIBRATED.with_values({"host.dispatch_seconds": 1e-3})
    )
    issued = 0
    for part, n in est.stages.model_parts.items():
        for time in est.timed[part]:
            issued += n * (bool(time.operation.forward.kernels) + bool(time.operation.backward.kernels))
            issued += n * (time.operation.weight is not None)
    assert bound > 10 * free
    assert 8 * issued * 1e-3 == pytest.approx(bound, rel=0.05)  # 8 micro-batches
    assert parts["host"] == pytest.approx(bound, rel=0.1)


def test_overhead_between_steps_counts_once():
    assert seconds(assumed={"host.step_seconds": 0.5})[0] == pytest.approx(
        seconds(assumed={"host.step_seconds": 0})[0] + 0.5, rel=1e-12
    )


# Slow ranks -------------------------------------------------------------------------------------------------


def test_one_node_has_no_stragglers_and_each_doubling_adds_its_share():
    assert seconds(assumed={"host.straggling": 0.01})[0] == seconds(assumed={"host.straggling": 0})[0]
    free, parts = seconds(tc.Plan(dp=32), assumed={"host.straggling": 0})
    slow, _ = seconds(tc.Plan(dp=32), assumed={"host.straggling": 0.01})
    assert slow == pytest.approx(free + 0.01 * 2 * (free - parts["optimizer_step"]), rel=1e-12)  # 32 = 8 · 2²


def test_weights_broadcast_rank_by_rank_cost_a_share_of_every_rank_beyond_a_node():
    wide = tc.Plan(dp=32)
    assert seconds(wide, assumed={"host.broadcast_seconds": 1e-3})[1]["dp_comm"] == pytest.approx(
        seconds(wide)[1]["dp_comm"] + 0.032
    )
    assert seconds(assumed={"host.broadcast_seconds": 1e-3})[0] == seconds()[0], "the group is inside a node"
    grouped = tc.Plan(dp=32, replicas=4)
    assert seconds(grouped, assumed={"host.broadcast_seconds": 1e-3})[0] == seconds(grouped)[0], (
        "so is each copy"
    )


# Windows ----------------------------------------------------------------------------------------------------


def test_traffic_that_cannot_overlap_is_fully_exposed():
    wide = tc.Plan(dp=32, mbs=2)
    hidden, apart = seconds(wide)[1]["dp_comm"], seconds(wide, assumed={"overlap.dp_window": 0})[1]["dp_comm"]
    assert apart > hidden
    est = tc.estimate(
        MODEL,
        "dgx-a100",
        wide,
        gbs=64,
        assumptions=CALIBRATED.with_values({"overlap.dp_window": 0, "overlap.dp_contention": 0}),
    )
    assert apart == pytest.approx(est.breakdown["dp_comm"], rel=1e-12), "there is nothing hidden to contend"


def test_interleaved_chunks_hide_traffic_behind_pp_micro_batches():
    model = replace(MODEL, layers=16)
    plain, interleaved = tc.Plan(pp=4, dp=16, vp=1), tc.Plan(pp=4, dp=16, vp=4)
    assert (
        seconds(plain, model=model, assumed={"overlap.interleaved_window": 0})[0]
        == seconds(plain, model=model, assumed={"overlap.interleaved_window": 1})[0]
    )
    shorter, longer = (
        seconds(interleaved, 256, model, assumed={"overlap.interleaved_window": share})[1]["dp_comm"]
        for share in (1, 0)
    )
    assert shorter <= longer


# Experts ----------------------------------------------------------------------------------------------------


def test_layers_of_experts_wait_for_the_host_once_in_forward():
    model, system, plan = tc.load_model("mixtral-8x7b"), tc.load_system("dgx-h100"), tc.Plan(ep=8, dp=8)
    calm = tc.estimate(
        model, system, plan, gbs=8, assumptions=CALIBRATED.with_values({"host.sync_seconds": 0})
    )
    late = tc.estimate(
        model, system, plan, gbs=8, assumptions=CALIBRATED.with_values({"host.sync_seconds": 1e-3})
    )
    assert np.isclose(late.step_seconds - calm.step_seconds, 32e-3, rtol=0.02)  # 32 layers, one micro-batch
    moved = tc.estimate(
        model,
        system,
        plan,
        gbs=8,
        assumptions=CALIBRATED.with_values({"host.sync_seconds": 0, "traffic.expert_passes": 4}),
    )
    assert moved.breakdown["exposed_memory"] > calm.breakdown["exposed_memory"]
    assert moved.memory == pytest.approx(calm.memory), "traffic is no memory"


def test_a_layer_of_experts_takes_as_long_as_its_host_needs_to_issue_it():
    """By hand: 32 layers of 5 s each, one micro-batch; the host is far slower than the GPU."""
    model, plan = tc.load_model("mixtral-8x7b"), tc.Plan(ep=8, dp=8)

    def took(issue, capacity=None):
        experts = replace(model.experts, capacity=capacity)
        assumed = CALIBRATED.with_values({"host.expert_dispatch_seconds": issue})
        return tc.estimate(
            replace(model, experts=experts), "dgx-h100", plan, gbs=8, assumptions=assumed
        ).step_seconds

    assert took(5) == pytest.approx(32 * 5, rel=0.01)
    assert took(1e-6) == pytest.approx(took(0), rel=1e-6), "a stage is as slow as the slower of the two"
    assert took(5, capacity=1.0) == took(0, capacity=1.0), "padded inputs: shapes are known, graphs captured"


def test_what_hides_an_exchange_hides_no_gradients():
    """One budget: of two plans with the same passes, that with a hidden exchange exposes more of dp."""
    model, plan = tc.load_model("mixtral-8x7b", seq=512), tc.Plan(ep=8, dp=64, ep_overlap=True)

    def dp_comm(share):
        assumed = CALIBRATED.with_values({"overlap.ep_overlapped": share})
        return tc.estimate(model, "dgx-h100", plan, gbs=64, assumptions=assumed).breakdown["dp_comm"]

    assert dp_comm(0.0) > dp_comm(1.0) > 0


def test_tokens_cast_before_they_are_gathered_take_half_the_bytes():
    def waited(precision, cast):
        plan = tc.Plan(tp=8, precision=precision)
        return seconds(plan, system="dgx-h100", assumed={"collectives.gathers_operands": cast})[1]["tp_comm"]

    assert waited("fp8", cast=True) < waited("fp8", cast=False)
    assert waited("bf16", cast=True) == pytest.approx(waited("bf16", cast=False), rel=1e-12)


# Names ------------------------------------------------------------------------------------------------------


def test_every_fitted_value_of_all_software_has_a_source():
    figures = entries.figures(calibrated_file())
    assert len(figures) > 50
    assert all(figure.source != calibrated_file().source for figure in figures if figure.basis == "fitted")


def test_values_fitted_on_a_system_replace_those_of_the_stack(tmp_path):
    document = system_document("dgx-h100") | {"name": "mine"}
    document["software"] = [{"stack": Stack.DEFAULT, "host.dispatch_seconds": 1e-5, "attention.softmax": 11}]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(document))
    system = tc.load_system(path)
    assert system.software[0].figures == (("attention.softmax", 11), ("host.dispatch_seconds", 1e-5))
    assumed = with_fitted_values(system, resolve("calibrated"))
    assert (assumed.host.dispatch_seconds, assumed.attention.softmax) == (1e-5, 11)


def test_saved_assumptions_are_read():
    stack = Stack(Stack.DEFAULT).assumptions
    assert Assumptions.from_dict(asdict(stack)) == stack


def test_an_unknown_assumption_is_refused():
    with pytest.raises(
        tc.InputError, match=r"unknown assumption 'overlap.tp_expose': did you mean overlap.tp_exp"
    ):
        CALIBRATED.with_values({"overlap.tp_expose": 0.5})


@pytest.mark.parametrize("degrees", [{"dp": 32, "ep": 8}, {"dp": 32, "ep": 32}])  # on a node of 8, on four
def test_the_default_dispatcher_of_experts_is_fused_and_no_slower_than_all_to_all(degrees):
    plan = tc.Plan(**degrees)
    est, all_to_all = (
        tc.estimate("qwen3-30b-a3b", "dgx-h100", plan, gbs=256, assumptions=name)
        for name in (None, "megatron-core-2025")
    )
    assert est.assumptions.name == Stack.FUSED_DISPATCHER
    assert est.step_seconds < all_to_all.step_seconds
    for estimate, flag in ((est, "flex"), (all_to_all, "alltoall")):
        assert f"--moe-token-dispatcher-type {flag}" in tc.export(estimate, to="megatron").text
    in_a_rack = tc.estimate("qwen3-30b-a3b", "gb200-nvl72", plan, gbs=256)  # NVLink spans its nodes
    for estimate, backend in ((est, "deepep"), (in_a_rack, "hybridep")):
        assert f"--moe-flex-dispatcher-backend {backend}" in tc.export(estimate, to="megatron").text


def test_a_dense_model_has_the_usual_stack():
    assert tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(), gbs=8).assumptions.name == Stack.DEFAULT


def test_deepseek_v3_as_it_was_trained_meets_its_throughput_with_the_default_stack():
    plan = tc.Plan(
        pp=16, dp=128, ep=64, schedule="dualpipe", ep_overlap=True, precision="fp8-block",
        recompute="mla_up_proj+norms",
    )  # fmt: skip
    est = tc.estimate("deepseek-v3", "hgx-h800", plan, gbs=15360)
    measured = 1e12 / (180e3 * 3600)  # 180K GPU hours for 1T tokens (arXiv 2412.19437, section 1)
    assert est.tokens_per_second_per_gpu == pytest.approx(measured, rel=0.1)


def test_software_is_copied_and_pickled_and_names_without_end_are_not_kept():
    stack = Stack("megatron-core-2025+dispatcher=deepep")
    assert copy.deepcopy(stack) == pickle.loads(pickle.dumps(stack)) == stack
    assert Stack(stack.name) is stack
    for number in range(2 * KEPT):
        Stack(f"unknown-{number}")
    assert len(Stack._made) <= KEPT
    assert Stack(stack.name) == stack
    assert Stack(stack.name).facts == stack.facts
