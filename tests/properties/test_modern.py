"""What holds for every plan of today's models: columns agree with numbers, better hardware never hurts, parts
add up."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import traincast as tc
from traincast.catalog.software_stacks import stack_names
from traincast.core.knobs import OFFLOADED, VIRTUAL_STAGES
from traincast.core.plan import Plans
from traincast.core.precision import PRECISIONS
from traincast.core.system import PEAK_FIELDS
from traincast.planner.space.evaluation import rank
from traincast.step.validity import broken_rules

MODELS = {
    name: tc.load_model(name) for name in ("llama-3-8b", "mixtral-8x7b", "deepseek-v2-lite", "gemma-2-9b")
}
MODELS = {name: replace(model, seq=4096) for name, model in MODELS.items()}
SYSTEMS = {name: tc.load_system(name) for name in ("dgx-h100", "llama3-h100", "frontier", "gb200-nvl72")}
BATCH = 128
CHOICES = {
    "sp": [True, True, False],
    "tp_overlap": [False, True],
    "attention": ["flash", "unfused"],
    "recompute": ["none", "selective", "norms+activation", "mlp", "experts", "full"],
    "zero": [0, 1, 2, 3],
    "schedule": ["1f1b", "gpipe", "zb-h1", "dualpipe"],
    "precision": ["bf16", "bf16-pure", "fp16"],
    "grad_dtype": ["16-bit", "fp32"],
    "optimizer_kind": ["adam", "muon"],
    "offload": ["none", "none", "optimizer", "activations", "activations+weights"],
    "order": ["tp-cp-dp-pp", "tp-cp-pp-dp"],
    "cp_kind": ["none", "ring", "ulysses", "hybrid", "all-gather"],
}
ALL = {  # every schedule, every precision, everything that can be offloaded
    **CHOICES,
    "schedule": list(VIRTUAL_STAGES),
    "precision": list(PRECISIONS),
    "offload": [
        "none",
        *sorted(set(OFFLOADED) - {"attn_proj"}),
        "core_attn+attn_proj",
        "optimizer+activations",
        "activations+weights",
        "optimizer+weights",
    ],
    "ep_overlap": [False, False, True],
    "dp_overlap": [True, True, False],
}
ALL_SYSTEMS = {name: tc.load_system(name) for name in (*SYSTEMS, "h200-nvl-node", "tpu-v7x-pod", "dgx-a100")}


@st.composite
def knobs(draw, model, system, choices):
    """Numbers of a plan, each group placed as ranks are numbered."""

    def power(most):
        return 2 ** draw(st.integers(0, most))

    degrees = {
        "tp": power(3),
        "cp": power(2) if choices["cp_kind"] != "none" else 1,
        "dp": power(4),
        "pp": power(2),
        "mbs": power(1),
    }
    stage = degrees["tp"] * degrees["cp"] * degrees["dp"]
    if model.experts:
        degrees["etp"] = min(power(1), degrees["tp"])
        degrees["ep"] = min(power(3), stage // degrees["etp"])
    if choices["cp_kind"] in ("ulysses", "hybrid"):
        degrees["ulysses"] = (
            degrees["cp"] if choices["cp_kind"] == "ulysses" else min(power(1), degrees["cp"])
        )
    if choices["zero"]:
        degrees["replicas"] = min(power(2), degrees["dp"] * degrees["cp"])
    if choices["schedule"] == "1f1b" and degrees["pp"] > 1:
        degrees["vp"] = power(1)
    elif VIRTUAL_STAGES[choices["schedule"]] == 2:
        degrees["vp"] = 2
    if choices["recompute"] == "full":
        degrees["recompute_every"] = power(1)
    if "activations" in choices.get("offload", "none"):
        degrees["offload_every"] = power(2)
    room = 8 if system.fast_domain >= 8 else system.fast_domain
    for axis in ("tp", "cp", "dp", "pp") if choices["order"] == "tp-cp-dp-pp" else ("tp", "cp", "pp", "dp"):
        degrees[f"fast_{axis}"] = int(np.gcd(degrees[axis], room))
        room //= degrees[f"fast_{axis}"]
    plan = Plans(**{name: float(value) for name, value in degrees.items()}, **choices)
    assume(not broken_rules(model, plan, BATCH, system.fast_domain))
    return degrees


@st.composite
def cases(draw, rows=1, every=False):
    """A model, a system, choices, and numbers of several plans; of `every` choice and system if asked."""
    model = MODELS[draw(st.sampled_from(sorted(MODELS)))]
    systems = ALL_SYSTEMS if every else SYSTEMS
    system = systems[draw(st.sampled_from(sorted(systems)))]
    drawn = ALL if every else CHOICES
    choices = {name: draw(st.sampled_from(values)) for name, values in drawn.items()}
    if choices["recompute"] == "experts" and not model.experts:
        choices["recompute"] = "none"
    return model, system, choices, [draw(knobs(model, system, choices)) for _ in range(rows)]


def run(model, system, choices, numbers, assumptions="calibrated"):
    return tc.estimate(model, system, tc.Plan(**numbers, **choices), gbs=BATCH, assumptions=assumptions)


@settings(max_examples=50)
@given(cases(rows=3))
def test_a_plan_alone_equals_its_row_in_a_batch(case):
    model, system, choices, rows = case
    names = sorted(set().union(*rows))
    columns = {name: np.array([float(row.get(name, 1)) for row in rows]) for name in names}
    many = tc.estimate(model, system, Plans(**columns, **choices), gbs=BATCH, assumptions="calibrated")
    for i, numbers in enumerate(rows):
        est = run(model, system, choices, numbers)
        assert np.broadcast_to(many.step_seconds, len(rows))[i] == est.step_seconds  # to the last bit
        assert np.broadcast_to(many.memory_bytes, len(rows))[i] == est.memory_bytes
        assert {
            name: np.broadcast_to(value, len(rows))[i] for name, value in many.breakdown.items()
        } == est.breakdown
        assert {
            name: np.broadcast_to(value, len(rows))[i] for name, value in many.memory.items()
        } == est.memory


@settings(max_examples=50)
@given(cases())
def test_components_add_up(case):
    model, system, choices, (numbers,) = case
    est = run(model, system, choices, numbers)
    assert sum(est.breakdown.values()) == pytest.approx(est.step_seconds, rel=1e-9)
    assert all(value >= 0 for value in (*est.breakdown.values(), *est.memory.values()))
    for axes, component in (
        (("pp",), "bubble"),
        (("pp",), "pp_comm"),
        (("tp", "cp"), "tp_comm"),
        (("ep", "etp"), "ep_comm"),
    ):
        if all(numbers.get(axis, 1) == 1 for axis in axes):
            assert est.breakdown[component] == 0, component
    if numbers["dp"] * numbers["cp"] == 1 and (not model.experts or numbers["tp"] == 1):
        assert est.breakdown["dp_comm"] == 0


def faster(system, figure, factor):
    """Return the machine with one figure so many times as good; a number is a tier."""
    if isinstance(figure, int):
        tiers = list(system.tiers)
        tiers[figure] = replace(tiers[figure], bandwidth=tiers[figure].bandwidth * factor)
        return replace(system, tiers=tuple(tiers))
    gpu = system.accelerator
    names = {
        "matrix": [peak for peak, _ in PEAK_FIELDS.values()],
        "vector": ["vector_flops"],
        "hbm": ["hbm_bandwidth"],
        "host": ["host_bandwidth"],
    }[figure]
    rates = {name: getattr(gpu, name) for name in names}
    more = {name: rate * factor for name, rate in rates.items() if rate is not None}
    return replace(system, accelerator=replace(gpu, **more))


@settings(max_examples=150)
@given(
    cases(every=True),
    st.sampled_from(["matrix", "vector", "hbm", "host", 0, 1, -1]),
    st.floats(1.0, 10.0),
    st.sampled_from(["calibrated", *stack_names()]),
)
def test_step_time_is_monotone_in_every_figure_of_hardware(case, figure, factor, assumptions):
    """Better hardware never hurts, with any schedule, precision, offload and software.

    But for what waits for the host cost, which are divided among the kinds of layers: up to 1e-5.
    """
    model, system, choices, (numbers,) = case
    recipe = PRECISIONS[choices["precision"]]
    needed = "fp4" if recipe.microscaling else recipe.rate
    assume(getattr(system.accelerator, PEAK_FIELDS[needed][0]) is not None)
    before, after = (
        run(model, machine, choices, numbers, assumptions).step_seconds
        for machine in (system, faster(system, figure, factor))
    )
    assert after <= before * (1 + 1e-5)


@settings(max_examples=40)
@given(cases())
def test_sharding_states_never_takes_more_memory(case):
    model, system, choices, (numbers,) = case
    held = []
    for zero in (1, 2, 3) if "replicas" in numbers else (0, 1, 2, 3):
        est = run(model, system, choices | {"zero": zero}, numbers)
        held.append(sum(est.memory[part] for part in ("weights", "gradients", "optimizer")))
    assert held == sorted(held, reverse=True)


@settings(max_examples=40)
@given(cases(), st.floats(1.0, 4.0))
def test_uneven_experts_cost_time_and_memory_only_where_they_are_spread(case, factor):
    model, system, choices, (numbers,) = case
    assume(model.experts is not None)
    even, uneven = (run(variant, system, choices, numbers) for variant in (model, model.with_load(factor)))
    if numbers["ep"] == 1 or factor == 1:
        assert (uneven.step_seconds, uneven.memory_bytes) == (even.step_seconds, even.memory_bytes)
    else:
        assert uneven.breakdown["compute"] >= even.breakdown["compute"]
        assert uneven.memory_bytes >= even.memory_bytes
        assert (
            uneven.breakdown["ep_comm"] >= even.breakdown["ep_comm"]
        )  # the fullest rank receives so many times its share


def agree(found, top):
    """Check that each plan of a search equals its estimate."""
    for outcome in found.outcomes:
        ranked = rank([outcome], top)
        for i, (seconds, memory) in enumerate(zip(ranked.seconds, ranked.memory, strict=True)):
            space, evaluation = outcome.space, outcome.evaluation
            est = tc.estimate(
                space.model,
                evaluation.system,
                ranked.plans.row(i),
                gbs=space.gbs,
                assumptions=evaluation.assumptions,
            )
            assert (est.step_seconds, est.memory_bytes) == (seconds, memory), est.plan


@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "deepspeed"])
@pytest.mark.parametrize(("name", "gpus"), [("gemma-2-9b", 64), ("mixtral-8x7b", 4096)])
def test_a_search_gives_what_the_estimate_gives(name, gpus, framework):
    """Also on three tiers, with experts, replicas, stages that differ, and interleaving."""
    agree(
        tc.search(
            MODELS[name],
            SYSTEMS["llama3-h100"],
            gpus=gpus,
            gbs=8192,
            framework=framework,
            locks={"mbs": 1, "recompute": "full"},
        ),
        3,
    )


@pytest.mark.parametrize("order", ["tp-cp-dp-pp", "tp-cp-pp-dp"])
def test_a_search_places_experts_in_either_order(order):
    """Stages between the ranks of an expert-parallel group move it to another tier."""
    locks = {"order": order, "pp": 4, "mbs": 1, "recompute": "selective"}
    agree(
        tc.search(
            MODELS["deepseek-v2-lite"],
            SYSTEMS["frontier"],
            gpus=512,
            gbs=512,
            framework="megatron",
            locks=locks,
        ),
        10,
    )
