"""Estimate of a plan: parts add up, placements are chosen or given, invalid plans are refused."""

import json
import pickle
from dataclasses import fields, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traincast as tc
from traincast.catalog.software_stacks import Stack, calibrated
from traincast.core.errors import InputError
from traincast.core.knobs import KNOBS, STRATEGIES
from traincast.core.nomenclature import COLUMNS
from traincast.core.plan import AXES, Plans
from traincast.model.linear_attention import GatedLinear, ShortConv
from traincast.step.validity import broken_rules

CALIBRATED = calibrated()
HYBRID = Path(__file__).parents[2] / "examples" / "nemotron-3-nano" / "config.json"

MODEL = tc.Model(name="small", layers=6, hidden=1536, heads=12, ffn=6144, seq=1024)
GBS = 24
MACHINE = tc.System(
    name="by hand",
    accelerator=tc.Accelerator(
        name="chip", matrix_flops=100e12, vector_flops=10e12, hbm_bandwidth=1e12, hbm_bytes=4e9
    ),
    tiers=(
        tc.Tier(name="links", bandwidth=100e9, efficiency=0.7, latency=2.5e-6, size=4),
        tc.Tier(name="network", bandwidth=10e9, efficiency=0.7, latency=5e-6),
    ),
)
PLAN = tc.Plan(tp=2, pp=3, dp=4, mbs=2, fast_tp=2, fast_dp=2, fast_pp=1)


def test_recomputation_without_the_last_product_is_faster():
    """A forward pass of fc2, of a layer: 2 * tokens * 4096 * 14336 FLOP less, and the addition to the
    residual stream."""
    model, system = tc.load_model("llama-3-8b"), tc.load_system("dgx-h100")
    plan = tc.Plan(dp=8, zero=3, recompute="full")
    whole, less = (
        tc.estimate(
            model,
            system,
            plan,
            gbs=8,
            assumptions=CALIBRATED.with_values({"memory.recomputes_last": remade, "host.straggling": 0.0}),
        )
        for remade in (True, False)
    )
    spared = (
        sum(
            row["forward_seconds"]
            for row in whole.operations()
            if row["operation"] in ("mlp.fc2", "mlp.residual")
        )
        * model.layers
    )
    assert float(whole.step_seconds - less.step_seconds) == pytest.approx(float(spared), rel=1e-6)
    assert float(whole.memory_bytes) == float(less.memory_bytes)


def test_products_of_integers_have_a_peak_of_their_own():
    """TPU v5p: int8 at 918 TFLOP/s, twice bf16, less what quantising costs; a GPU whose figure is not given
    refuses."""
    model = tc.load_model("llama-3-8b")
    tpu, gpu = tc.load_system("tpu-v5p-pod"), tc.load_system("dgx-h100")
    plans = [tc.Plan(dp=8, zero=3, precision=precision) for precision in ("bf16", "int8")]
    whole, less = (
        {row["operation"]: row for row in tc.estimate(model, tpu, plan, gbs=8).operations()} for plan in plans
    )
    product = [
        rows["mlp.fc1"]["forward_compute_seconds"] - Stack("maxtext-2025").assumptions.kernels.launch_seconds
        for rows in (whole, less)
    ]
    assert product[0] / product[1] == pytest.approx(2 * 0.75, rel=1e-6)
    assert whole["head.projection"]["forward_seconds"] == less["head.projection"]["forward_seconds"]
    with pytest.raises(InputError, match="int8"):
        tc.estimate(model, gpu, plans[1], gbs=8)


def test_only_inputs_of_recomputed_layers_are_offloaded():
    """Of a fully recomputed layer the input goes to the host and back: 8192 tokens of 4096 wide at
    16 bits, 1 GB/s."""
    model = tc.load_model("llama-3-8b")
    system = tc.load_system("dgx-h100").with_figures({"accelerator.host_bandwidth": 1e9})
    plan = tc.Plan(dp=8, zero=3, recompute="full")
    moved, resident = (
        tc.estimate(model, system, replace(plan, offload=what), gbs=8) for what in ("activations", "none")
    )
    parts = {row["operation"]: row for row in resident.operations() if row["part"] == "dense"}
    forward = sum(row["forward_seconds"] for row in parts.values())
    backward = sum(row["backward_seconds"] + (row["again_seconds"] or 0) for row in parts.values())
    copied = 8192 * 4096 * 2 / 1e9
    layers = model.layers * (max(copied - forward, 0) + max(copied - backward, 0))
    assert float(moved.breakdown["offload_comm"]) == pytest.approx(float(layers), rel=0.1)  # and the head's


@st.composite
def valid_plans(draw, placed=True):
    """Plans that meet every rule for MODEL (6 layers, 12 heads, 1536 wide, 1024 tokens) and MACHINE (domains
    of 4)."""
    strategy = draw(st.sampled_from(sorted(STRATEGIES)))
    pp, dp = draw(st.sampled_from([1, 2, 3, 6])), draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24]))
    batches = [b for b in range(1, GBS + 1) if GBS % (dp * b) == 0]
    knobs = {
        "tp": draw(st.sampled_from([1, 2, 4])),
        "pp": pp,
        "dp": dp,
        "mbs": draw(st.sampled_from(batches)),
    }
    if strategy == "summa":
        knobs |= {"tp2": draw(st.sampled_from([1, 2, 4, 8])), "panels": draw(st.sampled_from([1, 2, 4, 16]))}
        knobs["attention"] = draw(st.sampled_from(["flash", "summa"]))
    else:
        knobs["attention"] = draw(st.sampled_from(["flash", "unfused"]))
        knobs["recompute"] = draw(st.sampled_from(["none", "selective"]))
    if STRATEGIES[strategy].second == "cp":
        knobs["cp"] = draw(st.sampled_from([1, 2, 4, 8]))
    if strategy == "ulysses":  # heads are cut over tp and exchanged over cp
        knobs["cp"] = draw(
            st.sampled_from([d for d in (1, 2, 3, 4, 6) if 12 % (d * knobs["tp"]) == 0 and 1024 % d == 0])
        )
    if strategy == "hybrid":
        knobs["ulysses"] = draw(
            st.sampled_from([d for d in (1, 2, 4) if knobs["cp"] % d == 0 and 12 % (d * knobs["tp"]) == 0])
        )
    if placed:
        room = 4
        for axis in AXES:
            fast = draw(
                st.sampled_from([d for d in (1, 2, 3, 4) if d <= room and knobs.get(axis, 1) % d == 0])
            )
            knobs[f"fast_{axis}"], room = fast, room // fast
    return tc.Plan(**knobs, **STRATEGIES[strategy].choices)


def estimate(plan, **changes):
    return tc.estimate(**{"model": MODEL, "system": MACHINE, "plan": plan, "gbs": GBS} | changes)


# Parts and wholes
# ------------------------------------------------------------------------------------------------------------
# -


@given(valid_plans())
@settings(max_examples=150)
def test_seconds_add_up_to_the_step_and_bytes_to_the_memory(plan):
    est = estimate(plan)
    assert sum(est.breakdown.values()) == pytest.approx(est.step_seconds, rel=1e-12)
    assert sum(est.memory.values()) == pytest.approx(est.memory_bytes, rel=1e-12)
    assert list(est.breakdown) == [name for name, info in COLUMNS.items() if info.kind == "time"]
    assert list(est.memory) == [name for name, info in COLUMNS.items() if info.kind == "memory"]
    assert min(est.breakdown.values()) >= 0
    for (
        component,
        value,
    ) in est.memory.items():  # of what frameworks take for themselves the paper's assumptions count nothing
        assert (value > 0) == (component in ("weights", "gradients", "optimizer", "activations")), component
    assert (est.breakdown["recomputation"] > 0) == (plan.recompute != "none")
    assert {
        est.breakdown[component]
        for component in ("ep_comm", "optimizer_step", "offload_comm", "host", "stragglers", "data_loading")
    } == {0.0}
    assert (est.breakdown["pp_comm"] > 0) == (est.breakdown["bubble"] > 0) == (plan.pp > 1)
    assert (est.breakdown["tp_comm"] > 0) == (plan.tp * plan.tp2 * plan.cp > 1)
    assert (est.breakdown["dp_comm"] > 0) == (plan.dp * plan.cp > 1)  # context ranks hold the same weights


@given(valid_plans())
@settings(max_examples=100)
def test_operations_add_up_to_the_estimate(plan):
    """A step runs each operation once per micro-batch and layer of a stage: gbs/dp/mbs · L/pp times."""
    est = estimate(plan)
    rows = est.operations()
    repeats = GBS // plan.dp // plan.mbs * MODEL.layers // plan.pp
    for component, part in {"compute": "compute", "exposed_memory": "memory", "tp_comm": "comm"}.items():
        row_seconds = sum(row[f"forward_{part}_seconds"] + row[f"backward_{part}_seconds"] for row in rows)
        assert row_seconds * repeats == pytest.approx(est.breakdown[component], rel=1e-12, abs=1e-18)
    row_seconds = sum(row["again_seconds"] for row in rows)  # the core of attention runs forward twice
    assert row_seconds * repeats == pytest.approx(est.breakdown["recomputation"], rel=1e-12, abs=1e-18)
    for row in rows:
        for name in ("forward", "backward") if row["operation"] != "attention.exchange" else ():
            parts = [row[f"{name}_{part}_seconds"] for part in ("compute", "memory", "comm")]
            assert sum(parts) == pytest.approx(row[f"{name}_seconds"], rel=1e-12)
            assert (
                row[f"{name}_compute_seconds"] >= 20e-6
            )  # the paper's launch cost, per operation and direction
            assert row[f"{name}_matrix_flops"] + row[f"{name}_vector_flops"] > 0
        assert row["again_seconds"] in (0.0, row["forward_seconds"])
    stage = MODEL.layers / plan.pp
    assert sum(row["weight_bytes"] for row in rows) * stage == pytest.approx(est.memory["weights"], rel=1e-12)
    flights = min(plan.pp, GBS // plan.dp // plan.mbs)
    assert sum(row["saved_bytes"] for row in rows) * stage * flights == pytest.approx(
        est.memory["activations"], rel=1e-12
    )


def test_operations_are_those_of_the_paper_in_order():
    """MLP, then attention, each ended by its norm; one row each, numbers only, ready for a table."""
    rows = estimate(PLAN).operations()
    assert [row["operation"] for row in rows] == [
        *(
            "mlp.fc1",
            "mlp.fc1_bias",
            "mlp.gelu",
            "mlp.inner_dropout",
            "mlp.fc2",
            "mlp.fc2_bias",
            "mlp.dropout",
            "mlp.norm",
        ),
        *(
            "attention.qkv",
            "attention.flash",
            "attention.proj",
            "attention.proj_bias",
            "attention.out_dropout",
            "attention.norm",
        ),
    ]
    assert {row["part"] for row in rows} == {"dense"}
    assert all(
        type(value) is float
        for row in rows
        for name, value in row.items()
        if name not in ("operation", "part")
    )
    assert len({tuple(row) for row in rows}) == 1  # the same columns in every row
    fc1 = rows[0]  # GEMM(M, K, N) = M N (2K − 1) with M = b·l, K = e, N = f/m1
    assert fc1["forward_matrix_flops"] == 2 * 1024 * (6144 // 2) * (2 * 1536 - 1)
    assert fc1["weight_bytes"] == 2 * 1536 * 6144 // 2
    assert fc1["saved_bytes"] == 2 * 2 * 1024 * 1536


def test_only_selective_recomputation_repeats_the_attention_core():
    plain = replace(PLAN, attention="unfused")
    selective = replace(plain, recompute="selective")
    assert {row["again_seconds"] for row in estimate(plain).operations()} == {0.0}
    repeated = [row["operation"] for row in estimate(selective).operations() if row["again_seconds"]]
    assert repeated == [
        "attention.logits",
        "attention.softmax",
        "attention.dropout",
    ]  # spec: these add their forward time
    assert estimate(selective).step_seconds > estimate(plain).step_seconds
    assert estimate(selective).memory_bytes < estimate(plain).memory_bytes


def test_throughput_days_and_whether_it_fits():
    est = estimate(PLAN)
    assert est.tokens_per_second_per_gpu == pytest.approx(24 * 1024 / est.step_seconds / 24)  # 2·3·4 GPUs
    assert est.training_days is None
    trained = estimate(PLAN, model=replace(MODEL, training_sequences=1e6))
    assert trained.training_days == pytest.approx(1e6 / 24 * est.step_seconds / 86400)
    assert est.fits
    tight = replace(MACHINE, accelerator=replace(MACHINE.accelerator, hbm_bytes=est.memory_bytes))
    assert estimate(PLAN, system=tight).fits  # to the byte
    tighter = replace(MACHINE, accelerator=replace(MACHINE.accelerator, hbm_bytes=est.memory_bytes - 1))
    assert not estimate(PLAN, system=tighter).fits
    assert (
        estimate(PLAN, system=tighter).step_seconds == est.step_seconds
    )  # what does not fit is estimated all the same


@given(valid_plans(), st.booleans())
@settings(max_examples=40)
def test_summary_is_json_and_says_what_the_estimate_says(plan, trained):
    est = estimate(plan, model=replace(MODEL, training_sequences=1e6 if trained else None))
    summary = est.to_dict()
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert tc.Plan(**summary["plan"]) == plan
    assert summary["strategy"] == plan.strategy
    assert summary["breakdown_seconds"] == est.breakdown
    assert summary["memory_by_component_bytes"] == est.memory
    assert summary["fits"] is bool(est.memory_bytes <= 4e9)
    for figure in ("step_seconds", "memory_bytes", "tokens_per_second_per_gpu", "training_days"):
        assert summary[figure] == getattr(est, figure)


def test_figures_of_one_plan_are_floats_and_those_of_many_arrays():
    """At run time; `make lint` lets mypy check the same in typed_estimates.py."""
    est = estimate(PLAN)
    assert type(est.step_seconds) is type(est.memory["weights"]) is type(est.breakdown["bubble"]) is float
    several = estimate(replace(PLAN.columns(), mbs=np.array([1.0, 2.0])))
    assert several.step_seconds[1] == est.step_seconds
    assert all(column.shape == (2,) for column in (*several.breakdown.values(), *several.memory.values()))


def test_an_estimate_as_frame_and_json_and_what_it_is_equal_to():
    est, same, other = estimate(PLAN), estimate(PLAN), estimate(replace(PLAN, mbs=1))
    assert json.loads(est.to_json()) == est.to_dict()
    frame = est.to_polars()
    assert frame.height == 1
    assert frame["step_seconds"][0] == est.step_seconds
    assert frame["bubble"][0] == est.breakdown["bubble"]
    assert estimate(replace(PLAN.columns(), mbs=np.array([1.0, 2.0]))).to_polars().height == 2
    assert est == same != other
    assert len({est, same, other}) == 2
    assert pickle.loads(pickle.dumps(est)) == est
    assert repr(est).endswith(f"assumptions {est.assumptions.name}>")


# Placement
# ------------------------------------------------------------------------------------------------------------
# --------


def every_placement(plan, domain):
    """The plan with every placement that fills domains exactly, by trying all."""
    degrees = {axis: getattr(plan, axis) for axis in AXES}
    if plan.gpus <= domain:
        return [replace(plan, **{f"fast_{axis}": degree for axis, degree in degrees.items()})]
    shares = product(
        *([d for d in range(1, min(degree, domain) + 1) if degree % d == 0] for degree in degrees.values())
    )
    named = [
        dict(zip((f"fast_{axis}" for axis in degrees), share, strict=True))
        for share in shares
        if np.prod(share) == domain
    ]
    return [replace(plan, **places) for places in named]


def used_of(domain, gpus):
    """Accelerators of each domain that a job uses: as many as divide it."""
    return domain if gpus <= domain else max(n for n in range(1, domain + 1) if gpus % n == 0)


@given(valid_plans(placed=False), st.sampled_from([1, 2, 4, 6, 8, 12]))
@settings(max_examples=100)
def test_a_plan_without_placement_gets_the_fastest(plan, domain):
    machine = replace(MACHINE, tiers=(replace(MACHINE.fast, size=domain), MACHINE.slow))
    every = every_placement(plan, used_of(domain, plan.gpus))
    assert every
    est = estimate(plan, system=machine)
    assert est.plan in every
    assert est.step_seconds == min(estimate(plan, system=machine).step_seconds for plan in every)


def test_a_given_placement_is_used():
    """Both placements of tp 2 × pp 3 × dp 4 over domains of 4 differ in time; each is taken as given."""
    open_plan = replace(PLAN, fast_tp=None, fast_dp=None)
    every = every_placement(open_plan, 4)
    assert {(plan.fast_tp, plan.fast_pp, plan.fast_dp) for plan in every} == {
        (1, 1, 4),
        (2, 1, 2),
    }  # 3 stages share nothing with 4
    times = [estimate(plan).step_seconds for plan in every]
    assert len(set(times)) == 2
    assert [estimate(plan).plan for plan in every] == every
    assert estimate(open_plan).step_seconds == min(times)


def test_a_placement_given_in_part_is_completed():
    """What is said is kept, and what is not fills the rest of the domains of 4."""
    open_plan = replace(PLAN, fast_tp=None, fast_dp=None)
    for part in ({"fast_dp": 4}, {"fast_dp": 2}, {"fast_tp": 2}, {"fast_tp": 1}):
        fitting = [plan for plan in every_placement(open_plan, 4) if part.items() <= vars(plan).items()]
        assert estimate(replace(open_plan, **part)).plan in fitting
    with pytest.raises(tc.InputError, match=r"no placement of .* fills fast domains of 4"):
        estimate(replace(open_plan, fast_dp=1))  # 2 tensor ranks and 3 stages do not make 4


def test_a_job_that_does_not_fill_domains_uses_a_part_of_each():
    """6 GPUs take 3 of the 4 of each domain: two tensor ranks have no place in one together, three replicas
    do."""
    assert estimate(tc.Plan(tp=2, dp=3)).plan == tc.Plan(tp=2, dp=3, fast_tp=1, fast_dp=3)
    with pytest.raises(tc.InputError, match=r"fills fast domains of 3: give fast_\* for every group by hand"):
        estimate(tc.Plan(tp=2, dp=3, fast_tp=2))
    assert estimate(tc.Plan(tp=2, dp=3, fast_tp=2, fast_dp=1)).step_seconds > 0  # by hand it is possible


# What is refused
# ------------------------------------------------------------------------------------------------------------
# --

ROOM = "the placement puts more members into a fast domain than the 4 it has"


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"tp": 8}, ["tp does not divide the attention heads (tp = 8, heads = 12)"]),
        ({"pp": 8}, ["there are more model chunks than layers (pp = 8, vp = 1, layers = 6)"]),
        (
            {"cp": 5, "cp_kind": "ulysses", "tp": 8},
            [
                "tp does not divide the attention heads (tp = 8, heads = 12)",
                "tp and ulysses together do not divide the attention heads (tp = 8, ulysses = 5, heads = 12)",
                "the tokens of a micro-batch do not divide over the tensor ranks (mbs = 1, tp = 8, cp = 5, "
                "tp2 = 1, seq = 1024)",
            ],
        ),
        ({"mbs": 5, "dp": 4}, ["mbs does not divide the batch of a replica (mbs = 5, dp = 4, gbs = 24)"]),
        (
            {"tp_kind": "summa", "tp2": 1024, "tp": 1, "mbs": 1},
            ["tp2 does not divide the hidden width (tp2 = 1024, hidden = 1536)"],
        ),
        ({"tp": 2, "fast_tp": 4}, ["fast_tp does not divide tp (fast_tp = 4, tp = 2)"]),
    ],
    ids=str,
)
def test_a_broken_rule_is_named_with_its_values(knobs, said):
    with pytest.raises(tc.InputError) as caught:
        estimate(tc.Plan(**{"fast_dp": 1} | knobs))
    assert caught.value.subject == "plan"
    assert list(caught.value.problems) == said


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"tp": 16}, "tp does not divide the heads of linear attention, groups of them"),
        (
            {"tp": 4, "cp": 32, "cp_kind": "ring"},
            "tp and cp together do not divide the heads of linear attention",
        ),
        ({"tp2": 2, "tp_kind": "summa"}, "linear attention is not modelled with 2-D"),
    ],
)
def test_what_linear_attention_forbids(knobs, said):
    with pytest.raises(InputError, match=said):
        tc.estimate(HYBRID, "dgx-h100", tc.Plan(**knobs), gbs=128)


def test_every_kind_of_linear_attention_is_asked():
    """8 ranks divide 1536 channels of short convolutions, and not 12 heads of GatedLinear beside them."""
    model = replace(
        MODEL,
        gated_linear=GatedLinear(heads=12, key_dim=64, value_dim=128),
        short_conv=ShortConv(width=1536),
        layer_kinds=("gated_linear dense", "short_conv dense") * 3,
    )
    said = "tp does not divide the heads of linear attention, groups of them, or channels"
    for tp, refused in ((4, False), (8, True)):
        broken = broken_rules(model, Plans(tp=float(tp)), GBS, domain=8)
        assert (said in [rule.broken for rule in broken]) is refused


def test_layers_of_one_block_add_up_in_a_hybrid():
    """To the step, in every device of a pipeline; runs of Nemotron 3 Nano have such layers."""
    est = tc.estimate(HYBRID, "dgx-h100", tc.Plan(tp=2, pp=2, dp=8, ep=8), gbs=128)
    assert not any("layers without a measured run" in respect for respect in est.outside)
    assert sum(est.breakdown.values()) == pytest.approx(est.step_seconds)
    parts = {part for device in est.stages.executed_parts for part in device}
    assert {"mamba2 only", "moe only", "attention only"} <= parts


@pytest.mark.parametrize(
    ("knobs", "reason", "values"),
    [
        ({"tp": 4, "dp": 2, "fast_tp": 4, "fast_dp": 2}, ROOM, ("fast_tp = 4", "fast_dp = 2")),
        ({"fast_tp": 2}, "fast_tp does not divide tp", ("fast_tp = 2", "tp = 1")),
        ({"dp": 4, "fast_pp": 2}, "fast_pp does not divide pp", ("fast_pp = 2", "pp = 1")),
    ],
    ids=str,
)
def test_a_broken_placement_is_named_with_its_values(knobs, reason, values):
    """Also where a value is the default: what does not divide what must be readable."""
    with pytest.raises(tc.InputError, match=reason) as caught:
        estimate(tc.Plan(**knobs))
    words = str(caught.value).replace("(", ", ").replace(")", ", ").split(", ")
    assert set(values) <= set(words), str(caught.value)
    assert "()" not in str(caught.value)


def test_every_broken_rule_at_once():
    """5 divides none of heads 12, width 1536, batch 24; 1024 tokens do not divide over 5 ranks; 5 > 4 in a
    domain; 7 > 6 layers."""
    with pytest.raises(tc.InputError) as caught:
        estimate(tc.Plan(tp=5, pp=7, dp=5, fast_tp=5))
    reasons = [problem.partition(" (")[0] for problem in caught.value.problems]
    assert reasons == [
        "tp does not divide the attention heads",
        "tp does not divide the hidden width",
        "tp does not divide the MLP's width",
        "there are more model chunks than layers",
        "dp does not divide the global batch",
        "mbs does not divide the batch of a replica",
        "the tokens of a micro-batch do not divide over the tensor ranks",
        ROOM,
    ]
    for value in (
        "tp = 5",
        "pp = 7",
        "dp = 5",
        "heads = 12",
        "hidden = 1536",
        "layers = 6",
        "gbs = 24",
        "seq = 1024",
    ):
        assert value in str(caught.value)


def test_rules_that_narrow_the_search_do_not_forbid_a_plan():
    """Slices below 128: 600/8 = 75 wide for context, 1024/16 = 64 tokens; not searched, but estimated when
    asked."""
    narrow = replace(MODEL, hidden=600, heads=24)
    assert estimate(tc.Plan(tp=8, dp=1, cp=1, cp_kind="all-gather"), model=narrow).step_seconds > 0
    assert estimate(tc.Plan(cp=16, cp_kind="all-gather")).step_seconds > 0
    assert 16 not in {
        plan.cp
        for plan, _ in tc.search(MODEL, MACHINE, gpus=16, gbs=GBS, strategy="context", top=10**6).plans
    }


@pytest.mark.parametrize("gbs", [0, -1, 1.5, 24.0, True, "24", "many", float("nan"), float("inf")], ids=repr)
def test_a_batch_that_is_no_positive_whole_number(gbs):
    with pytest.raises(tc.InputError, match="must be a whole number of at least 1") as caught:
        estimate(PLAN, gbs=gbs)
    assert repr(gbs) in str(caught.value)


def test_the_batch_is_the_models_or_else_one_of_four_million_tokens():
    assert estimate(PLAN, gbs=None).gbs * MODEL.seq == 2**22
    model = replace(MODEL, global_batch=48)
    assert estimate(PLAN, model=model, gbs=None).gbs == 48
    assert estimate(PLAN, model=model).gbs == 24


def test_unknown_assumptions():
    with pytest.raises(
        tc.InputError, match="unknown assumptions 'paper_published': did you mean paper-published"
    ):
        estimate(PLAN, assumptions="paper_published")


# Columns of plans
# ------------------------------------------------------------------------------------------------------------
# -


def columns_of(plans):
    """Plans of one strategy as columns."""
    return replace(
        plans[0].columns(),
        **{knob: np.array([float(getattr(plan, knob) or 1) for plan in plans]) for knob in KNOBS},
    )


def test_columns_give_columns_row_by_row():
    plans = [PLAN, replace(PLAN, mbs=6), tc.Plan(tp=4, fast_tp=4), tc.Plan(pp=6, fast_pp=3), tc.Plan()]
    many = estimate(columns_of(plans))
    for i, plan in enumerate(plans):
        est = estimate(columns_of([plan]).row(0))  # placed, so that none is chosen
        assert many.step_seconds[i] == est.step_seconds
        assert many.memory_bytes[i] == est.memory_bytes
        assert many.fits[i] == est.fits
        assert many.tokens_per_second_per_gpu[i] == est.tokens_per_second_per_gpu
        assert {name: column[i] for name, column in many.breakdown.items()} == est.breakdown


def test_columns_of_shapes_that_broadcast():
    """tp down, dp across: a table of both."""
    table = estimate(tc.Plans(tp=np.array([[1.0], [2.0], [4.0]]), dp=np.array([1.0, 2.0])))
    assert table.step_seconds.shape == table.memory_bytes.shape == (3, 2)
    for (i, tp), (j, dp) in product(enumerate([1, 2, 4]), enumerate([1, 2])):
        est = estimate(tc.Plan(tp=tp, dp=dp, fast_tp=1, fast_dp=1))
        assert (table.step_seconds[i, j], table.memory_bytes[i, j]) == (est.step_seconds, est.memory_bytes)


def test_columns_with_bad_rows_say_how_many_break_which_rule():
    columns = columns_of([PLAN, replace(PLAN, tp=8, fast_tp=8), replace(PLAN, pp=8), replace(PLAN, tp=8)])
    with pytest.raises(tc.InputError) as caught:
        estimate(columns)
    assert list(caught.value.problems) == [
        "tp does not divide the attention heads (2 of 4 rows)",
        "there are more model chunks than layers (1 of 4 rows)",
        f"{ROOM} (1 of 4 rows)",
    ]


@pytest.mark.parametrize("bad", [-2.0, 0.0, 0.5])
@pytest.mark.parametrize("knob", ["tp", "dp", "mbs", "fast_dp"])
def test_columns_hold_positive_whole_numbers(knob, bad):
    """−2 divides everything that 2 divides, and 0.5 all that is whole: neither may pass for a degree, nor 0
    end in a warning."""
    columns = replace(tc.Plans(dp=4.0), **{knob: np.array([1.0, bad])})
    with pytest.raises(tc.InputError, match=knob):
        estimate(columns)


def test_an_estimate_says_what_it_was_made_of():
    est = estimate(PLAN, assumptions="paper-published")
    assert (est.model, est.system, est.plan, est.gbs, est.assumptions.name) == (
        MODEL,
        MACHINE,
        PLAN,
        GBS,
        "paper-published",
    )
    assert {field.name for field in fields(est)} >= {
        "model",
        "system",
        "plan",
        "gbs",
        "assumptions",
    }
    assert sum(est.memory.values()) == pytest.approx(est.memory_bytes)


def test_summa_attention_needs_tp_to_divide_what_it_cuts():
    """SUMMA attention cuts the head's width (1536/12 = 128) and the sequence (1024) over tp; 1000 tokens are
    not cut by 16."""
    plan = tc.Plan(tp=4, tp2=1, panels=4, tp_kind="summa", attention="summa", fast_tp=4)
    assert estimate(plan).step_seconds > 0
    with pytest.raises(tc.InputError, match="as SUMMA attention needs"):
        estimate(replace(plan, mbs=2), model=replace(MODEL, seq=1022))


def test_columns_of_machines_take_columns_of_plans():
    machines = MACHINE.with_figures({"accelerator.hbm_bandwidth": np.array([1e12, 2e12])})
    for plan in (PLAN, replace(PLAN, fast_tp=None)):
        with pytest.raises(tc.InputError, match=r"one plan on columns of machines; give plan\.columns\(\)"):
            estimate(plan, system=machines)
    both = estimate(PLAN.columns(), system=machines)
    assert both.step_seconds.tolist() == [
        estimate(PLAN, system=machines.take(i)).step_seconds for i in range(2)
    ]


def test_facts_of_a_layer_of_experts_are_refused_of_a_model_without():
    facts = {"dispatcher": "deepep"}
    with pytest.raises(tc.InputError, match="is of a layer of experts, and the model has none"):
        tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(tp=8), gbs=8, given=facts)
    assert tc.estimate("mixtral-8x7b", "dgx-h100", tc.Plan(tp=8, zero=3), gbs=8, given=facts).step_seconds > 0


def test_software_left_open_is_timed_without_its_memory(monkeypatch):
    """Memory is worked out when it is asked for: its interval of times needs none."""
    plan = tc.Plan(tp=4, dp=2)
    whole = tc.estimate("llama-3-8b", "dgx-h100", plan)
    asked = tc.estimate("llama-3-8b", "dgx-h100", plan)
    with monkeypatch.context() as patch:
        patch.setattr("traincast.step.estimates.memory", None)
        assert len(asked.alternatives) > 1
        assert asked.interval == whole.interval
    assert asked.memory == whole.memory
