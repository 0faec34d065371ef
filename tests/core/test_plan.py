"""Plans: contradictions, text, and columns."""

from dataclasses import asdict, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traincast.catalog.load import load_system
from traincast.core.errors import InputError
from traincast.core.knobs import CHOICES, KNOBS, STRATEGIES, chunks
from traincast.core.nomenclature import COLUMNS
from traincast.core.plan import AXES, Plan, Plans
from traincast.planner.searches import search
from traincast.times.process_groups import Placement

WHOLE = "must be a whole number of at least 1"
PLACES = tuple(f"fast_{axis}" for axis in AXES)
CONTRADICTORY = (
    "vp",
    "cp",
    "ulysses",
    "tp2",
    "panels",
    "recompute_every",
    "offload_every",
    "replicas",
)  # above 1


def problems(**knobs):
    """Return the problems of a plan that is refused."""
    with pytest.raises(InputError) as caught:
        Plan(**knobs)
    assert caught.value.subject == "plan"
    return list(caught.value.problems)


@st.composite
def plans(draw, placed=None):
    """Draw a plan without contradictions, with all, none or parts of its placement."""
    degrees = st.integers(1, 2**20)
    strategy = draw(st.sampled_from(sorted(STRATEGIES)))
    knobs = {knob: draw(degrees) for knob in ("tp", "pp", "dp", "mbs")}
    if strategy == "summa":
        knobs |= {
            "tp2": draw(degrees),
            "panels": draw(degrees),
            "attention": draw(st.sampled_from(["flash", "summa"])),
        }
    else:
        knobs["attention"] = draw(st.sampled_from(["flash", "unfused"]))
        knobs["recompute"] = draw(st.sampled_from(["none", "selective", "full", "norms+activation"]))
    if STRATEGIES[strategy].second == "cp":
        knobs["cp"] = draw(degrees)
    if strategy == "ulysses":
        knobs["ulysses"] = knobs["cp"]  # set for us in any case
    if strategy == "hybrid":
        knobs["ulysses"] = draw(degrees)
    knobs |= {knob: draw(degrees) for knob in draw(st.sampled_from([(), ("ep", "etp"), ("replicas",)]))}
    knobs |= draw(
        st.sampled_from(
            [{}, {"zero": 3}, {"sp": False, "tp_overlap": True}, {"precision": "fp8", "grad_dtype": "fp32"}]
        )
    )
    places = {True: degrees, False: st.none(), None: degrees | st.none()}[placed]
    return Plan(**knobs, **{place: draw(places) for place in PLACES}, **STRATEGIES[strategy].choices)


# What is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("knob", KNOBS)
@pytest.mark.parametrize("value", [0, -1, 1.0, 2.5, True, False, "4", float("nan"), [4]], ids=repr)
def test_a_knob_is_a_positive_whole_number(knob, value):
    assert f"{knob} = {value!r}: {WHOLE}" in problems(**{knob: value})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (2**30 + 1, "1073741825"),
        (10**400, "100000000000000000...0000000000000000000"),
        (10**5000, "int too long to be written"),  # Python writes 4,300 digits at most
    ],
    ids=["2^30 + 1", "10^400", "10^5000"],
)
@pytest.mark.parametrize("knob", KNOBS)
def test_a_knob_is_no_larger_than_any_use(knob, value, said):
    assert f"{knob} = {said}: must be at most 1,073,741,824" in problems(**{knob: value})


@pytest.mark.parametrize("knob", [knob for knob in KNOBS if knob not in PLACES])
def test_only_the_placement_may_be_left_open(knob):
    assert problems(**{knob: None}) == [f"{knob} = None: {WHOLE}"]


@pytest.mark.parametrize(
    ("choice", "allowed"),
    [
        ("tp_kind", "1d, summa"),
        ("cp_kind", "none, all-gather, ring, ulysses, hybrid"),
        ("attention", "flash, unfused, summa"),
        ("schedule", "1f1b, gpipe, zb-h1, zb-h2, zb-2p, zb-v, dualpipe, dualpipe-v"),
        ("grad_dtype", "usual, 16-bit, fp32"),
        ("master_copy", "usual, remainder, fp32"),
        ("order", "tp-cp-dp-pp, tp-cp-pp-dp"),
        (
            "recompute",
            "none, full, selective, attention, activation, norms, mlp, experts, per-op, mla_up_proj"
            ", gdn_norm_out, or several of them but none and full joined by +",
        ),
        (
            "offload",
            "none, optimizer, activations, weights, attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm,"
            " expert_fc1, moe_act, or several of them but none joined by +",
        ),
    ],
)
@pytest.mark.parametrize("value", ["", "Flash", None, 1, ["flash"], {}], ids=repr)
@pytest.mark.parametrize("others", [{}, dict.fromkeys(CONTRADICTORY, 2)], ids=["alone", "with others"])
def test_a_choice_is_an_allowed_value(choice, allowed, value, others):
    assert f"{choice} = {value!r}: must be one of {allowed}" in problems(**others | {choice: value})


@pytest.mark.parametrize("value", [-1, 4, "1", None, 1.5])
def test_zero_has_four_stages(value):
    assert problems(zero=value) == [f"zero = {value!r}: must be one of 0, 1, 2, 3"]


def test_all_mistakes_at_once():
    """Wrong numbers, unknown choices, and contradictions between values that are allowed."""
    assert problems(tp=0, mbs=1.5, fast_dp=-2, tp2=2, attention="quick") == [
        f"tp = 0: {WHOLE}",
        f"mbs = 1.5: {WHOLE}",
        f"fast_dp = -2: {WHOLE}",
        "attention = 'quick': must be one of flash, unfused, summa",
        "tp2 > 1: needs tp_kind summa",
    ]


CONTRADICTIONS = {
    "vp > 1: needs pp > 1": {"vp": 2},
    "cp > 1: needs cp_kind all-gather, ring, ulysses or hybrid": {"cp": 2},
    "ulysses > 1: needs cp_kind ulysses or hybrid": {"ulysses": 2},
    "tp2 > 1: needs tp_kind summa": {"tp2": 2},
    "panels > 1: needs tp_kind summa": {"panels": 2},
    "tp_kind summa: cannot be combined with context parallelism": {
        "tp_kind": "summa",
        "cp_kind": "all-gather",
    },
    "attention summa: needs tp_kind summa": {"attention": "summa"},
    "recompute_every > 1: needs recompute full": {"recompute_every": 2, "recompute": "selective"},
    "offload_every > 1: needs offload activations": {"offload_every": 2, "offload": "optimizer"},
    "replicas > 1: needs zero above 0": {"replicas": 2, "zero": 0},
}
OF_SCHEDULES = {
    "vp > 1: needs schedule 1f1b, or zb-v with vp = 2, or dualpipe-v with vp = 2": {
        "vp": 2,
        "pp": 2,
        "schedule": "zb-h1",
    },
    "schedule zb-v: needs vp = 2": {"pp": 2, "schedule": "zb-v"},
}


@pytest.mark.parametrize(("said", "knobs"), (CONTRADICTIONS | OF_SCHEDULES).items())
def test_contradictions(said, knobs):
    assert problems(**knobs) == [said]


@pytest.mark.parametrize("layout", ["3,-1", "4*", "a,b", "4.5,3", (3, -1), 8, None, "1*99999999"])
def test_a_layout_holds_whole_numbers(layout):
    with pytest.raises(InputError, match=r"layout = .*layers of every model chunk"):
        Plan(layout=layout)


def test_layouts_repeat():
    assert chunks(Plan(layout="4*3, 1").layout) == (4, 4, 4, 1) == chunks(Plan(layout=[4, 4, 4, 1]).layout)


def test_contradictions_come_together():
    knobs = {
        "cp": 2,
        "tp2": 2,
        "panels": 2,
        "attention": "summa",
        "ulysses": 2,
        "vp": 2,
        "recompute_every": 2,
        "offload_every": 2,
    }
    knobs |= {"replicas": 2, "zero": 0}
    assert problems(**knobs) == [said for said in CONTRADICTIONS if not said.startswith("tp_kind summa")]


@pytest.mark.parametrize(
    "knobs",
    [
        {"cp": 2, "cp_kind": "all-gather"},
        {"tp2": 2, "panels": 2, "tp_kind": "summa"},
        {"attention": "summa", "tp_kind": "summa"},
        {"recompute": "selective", "attention": "unfused"},
        {"recompute": "selective"},  # flash attention may be recomputed as a whole
        {"cp": 4, "cp_kind": "ulysses", "ulysses": 4},
        {"cp": 4, "cp_kind": "hybrid", "ulysses": 2},
        {"vp": 2, "pp": 2, "schedule": "zb-v"},
        {"recompute": "norms+activation"},
        {"pp": 2, "layout": "3,4"},
        {"cp_kind": "all-gather"},  # context parallelism of degree 1
        {"fast_tp": 8},  # more than tp: a rule for a machine to say, not the plan
    ],
)
def test_combinations_that_are_allowed(knobs):
    assert asdict(Plan(**knobs)).items() >= knobs.items()


# How it reads -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (Plan(), "1d"),
        (Plan(tp=8, pp=16, dp=16, fast_tp=8), "1d tp=8 pp=16 dp=16 fast_tp=8"),
        (
            Plan(tp=8, dp=2, mbs=4, fast_tp=4, fast_dp=1),
            "1d tp=8 dp=2 mbs=4 fast_tp=4",
        ),  # 1 in a domain: nothing to say
        (Plan(tp=2, tp2=4, panels=8, tp_kind="summa", fast_tp2=4), "summa tp=2 tp2=4 panels=8 fast_tp2=4"),
        (Plan(tp=2, cp=4, cp_kind="all-gather"), "context tp=2 cp=4"),
        (
            Plan(tp=2, attention="unfused", recompute="selective"),
            "1d tp=2 attention=unfused recompute=selective",
        ),
        (Plan(tp_kind="summa", attention="summa"), "summa attention=summa"),
        (Plan(cp=4, cp_kind="hybrid", ulysses=2, zero=3), "hybrid cp=4 ulysses=2 zero=3"),
        (Plan(cp=4, cp_kind="ulysses", precision="fp8"), "ulysses cp=4 ulysses=4 precision=fp8"),
    ],
    ids=str,
)
def test_text_is_the_strategy_and_what_differs_from_the_default(plan, text):
    assert str(plan) == text


def parsed(word):
    """Return the value of a word of a plan's text."""
    return int(word) if word.isdigit() else {"True": True, "False": False}.get(word, word)


@given(plans())
def test_text_has_all_knobs_but_those_without_effect(plan):
    """A plan rebuilt from its text is the same, except for groups with one member in a domain that other
    groups share.
    """
    strategy, *words = str(plan).split()
    knobs = dict(word.split("=") for word in words)
    rebuilt = Plan(**{knob: parsed(value) for knob, value in knobs.items()}, **STRATEGIES[strategy].choices)
    shared = any((getattr(plan, place) or 1) > 1 for place in PLACES)
    assert rebuilt == (
        replace(plan, **{place: None for place in PLACES if getattr(plan, place) == 1}) if shared else plan
    )
    assert plan.knobs() == {
        knob: parsed(value)
        for knob, value in (
            knobs | {k: v for k, v in STRATEGIES[strategy].choices.items() if v != getattr(Plan(), k)}
        ).items()
    }


@given(plans())
def test_strategy_gpus_and_placed(plan):
    assert {choice: getattr(plan, choice) for choice in ("tp_kind", "cp_kind")} == STRATEGIES[
        plan.strategy
    ].choices
    assert plan.gpus == plan.tp * plan.tp2 * plan.cp * plan.pp * plan.dp  # whole numbers: exact however large
    assert plan.placed == all(getattr(plan, place) is not None for place in PLACES)


def test_equal_plans_are_deduplicated_in_a_set():
    assert len({Plan(tp=2), Plan(tp=2), Plan(tp=2, fast_tp=1), Plan(tp=2, fast_tp=2)}) == 3


# Columns ----------------------------------------------------------------------------------------------------


def test_the_column_table_has_every_knob_and_no_other():
    named = {field.name for field in fields(Plan)}
    assert named == {*KNOBS, *CHOICES}
    follows = {"load"}  # from the model's experts
    assert {field.name for field in fields(Plans)} == named | follows
    for field in fields(Plan):
        assert field.metadata["help"] == COLUMNS[field.name].meaning != ""


def test_defaults_of_plan_and_plans_agree():
    assert Plan().columns() == Plans()


@given(plans(placed=True))
def test_columns_of_a_placed_plan_give_the_plan(plan):
    columns = plan.columns()
    assert all(type(value) is float for value in columns.numbers().values())
    assert columns.row(0) == plan
    assert columns.choices() == plan.choices()
    assert columns.gpus == plan.gpus or plan.gpus > 2**53


@given(plans())
def test_missing_placement_becomes_one_in_columns(plan):
    assert plan.columns().row(0) == replace(plan, **{place: getattr(plan, place) or 1 for place in PLACES})


@given(st.lists(plans(placed=True), min_size=1, max_size=6), st.data())
def test_rows_of_columns_are_the_plans(many, data):
    first = many[0]
    rows = [
        replace(first, **{knob: getattr(plan, knob) for knob in ("pp", "dp", "mbs", *PLACES)})
        for plan in many
    ]
    columns = replace(
        first.columns(),
        **{
            knob: np.array([float(getattr(row, knob)) for row in rows])
            for knob in ("pp", "dp", "mbs", *PLACES)
        },
    )
    assert [columns.row(i) for i in range(len(rows))] == rows
    picked = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
    taken = columns.take(np.array(picked))
    assert [taken.row(i) for i in range(len(picked))] == [rows[i] for i in picked]
    assert columns.take(np.array([len(rows) - 1])).row(0) == rows[-1]


def test_groups_and_context():
    columns = Plans(tp=4.0, tp2=np.array([1.0, 2.0]), fast_tp2=np.array([1.0, 2.0]), tp_kind="summa")
    tiers = load_system("h200-nvs8").tiers
    assert Placement(columns, tiers).group("tp") == (4.0, (1.0,))
    degree, (fast,) = Placement(columns, tiers).group("tp2")
    assert degree.tolist() == fast.tolist() == [1.0, 2.0]
    assert columns.context.tolist() == [1.0, 2.0]  # m2: tp2 of SUMMA, cp of context
    assert Plans(cp=8.0, cp_kind="all-gather").context == 8.0
    assert columns.gpus.tolist() == [4.0, 8.0]


def test_rows_of_columns_are_plans_as_they_are_written():
    """Rows of a search are not checked again, so they must be what a checked plan is."""
    found = search("llama-3-8b", "dgx-h100", gpus=16, gbs=32, framework="any")
    plans = [candidate.plan for candidate in found.near(0.5)]
    assert len({plan.strategy for plan in plans}) > 2
    for plan in plans:
        written = Plan(**{knob.name: getattr(plan, knob.name) for knob in fields(plan)})
        assert vars(plan) == vars(written)
        assert hash(plan) == hash(written)
