"""Bounds on step times, and searches that time only what these bounds leave, against timing everything."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import traincast as tc
from traincast.core.knobs import STRATEGIES, VIRTUAL_STAGES
from traincast.model.blocks import Experts
from traincast.planner import search_result
from traincast.planner.frameworks.candidate_batch import CandidateBatch
from traincast.planner.space import evaluation, layouts, least_times
from traincast.planner.space.enumeration import enumerate_outlines, enumerate_space
from traincast.planner.space.evaluation import evaluate
from traincast.planner.space.evaluation import least_times as times_of
from traincast.planner.space.fits_in_memory import Census, Searched
from traincast.planner.space.least_times import LeastTimes
from traincast.planner.space.search_space import Rungs
from traincast.planner.space.shortlist import TimeBounds
from traincast.step.arguments import check_assumptions
from traincast.step.estimates import SharedLayers, estimate_placed
from traincast.step.step_time import ROUNDING

DENSE = tc.Model(
    name="dense", layers=8, hidden=2048, heads=16, kv_heads=4, ffn=5632, seq=2048, vocab=32000, causal=True,
    mlp="swiglu", norm="rmsnorm", biases=(), dropout=False, positions="rotary",
)  # fmt: skip
MOE = replace(DENSE, name="moe", experts=Experts(experts=8, topk=2, ffn=1024))
LIMITED = replace(MOE, name="limited", experts=Experts(experts=8, topk=2, ffn=1024, groups=4, group_topk=1))
PAPERS = tc.Model(name="gpt", layers=8, hidden=2048, heads=16, ffn=8192, seq=2048)
MODELS = (DENSE, MOE, LIMITED, PAPERS, tc.load_model("gemma-2b"))
SYSTEMS = (
    *(tc.load_system(name) for name in ("dgx-h100", "h200-nvs8", "llama3-h100", "polaris", "gb200-nvl72")),
    tc.load_system("h200-nvl-node").with_figures({"network.1.bandwidth": 6.4e9}),  # slower than outside it
)
PRESETS = (
    "paper",
    "paper-published",
    "calibrated",
    "megatron-core-2025",
    "megatron-lm-2022",
    "torchtitan-2025",
)
CHOICES = {
    "zero": (0, 1, 2, 3),
    "schedule": tuple(VIRTUAL_STAGES),
    "recompute": ("none", "selective", "full", "per-op"),
    "offload": ("none", "optimizer", "activations", "optimizer+weights"),
    "ep_overlap": (False, True),
    "tp_overlap": (False, True),
    "dp_overlap": (True, False),
    "sp": (True, False),
    "order": ("tp-cp-dp-pp", "tp-cp-pp-dp"),
    "precision": ("bf16", "fp8-current"),
    "optimizer_kind": ("adam", "muon"),
}


# The bound --------------------------------------------------------------------------------------------------


def unlimited(system):
    """The machine with unlimited memory, and a link to the host."""
    return replace(system, accelerator=replace(system.accelerator, hbm_bytes=np.inf, host_bandwidth=50e9))


@st.composite
def batches(draw):
    """A batch of candidates: a strategy and any value of each choice."""
    schedule = draw(st.sampled_from(CHOICES["schedule"]))
    choices = {name: draw(st.sampled_from(values)) for name, values in CHOICES.items() if name != "schedule"}
    stages = VIRTUAL_STAGES[schedule]
    return CandidateBatch(
        draw(st.sampled_from(sorted(STRATEGIES))),
        choices=(("schedule", schedule), *choices.items()),
        vp=stages,
        experts=draw(st.booleans()),
        hybrid=choices["zero"] > 0 and draw(st.booleans()),
        uneven=draw(st.booleans()),
        ordered=draw(st.booleans()),
    )


@settings(max_examples=100)
@given(
    batch=batches(),
    model=st.sampled_from(MODELS),
    system=st.sampled_from(SYSTEMS),
    assumptions=st.sampled_from(PRESETS),
    gpus=st.sampled_from((4, 16, 24, 64)),
)
def test_bounds_are_not_above_the_times_of_any_candidate(batch, model, system, assumptions, gpus):
    assume(batch.given["precision"] == "bf16" or system.accelerator.fp8_flops is not None)
    assumed = check_assumptions(assumptions, "calibrated")
    space = enumerate_space(
        model, (gpus,), system.domain(gpus) if batch.ordered else system.fast_domain, 96, batch
    )
    assume(len(space.counts))
    evaluation = evaluate(space, unlimited(system), assumed)
    (bounds,) = times_of([evaluation], [evaluation.fitting], bound=True)
    assert (bounds > 0).all()
    assert (bounds <= evaluation.least_seconds[0]).all()


def test_a_bound_with_zero_3_reads_the_placement_of_its_own_candidate():
    """With tp = cp = 4 on domains of 8 the placement of tp decides how many shards are neighbours."""
    batch = CandidateBatch("context", choices=(("zero", 3),))
    evaluated = evaluate(
        enumerate_space(DENSE, (16,), 8, 96, batch), unlimited(SYSTEMS[0]), check_assumptions("paper", "")
    )
    (bounds,) = times_of([evaluated], [evaluated.fitting], bound=True)
    assert (bounds <= evaluated.least_seconds[0]).all()


@settings(max_examples=60)
@given(
    batch=batches(),
    model=st.sampled_from(MODELS),
    system=st.sampled_from(SYSTEMS),
    assumptions=st.sampled_from(PRESETS),
    gpus=st.sampled_from((4, 16, 24, 64, 512)),
)
def test_bounds_of_a_shortlist_are_not_above_the_times_of_any_candidate(
    batch, model, system, assumptions, gpus
):
    """Also those without recomputation, of layouts that recompute, with any replicas, and of ladders."""
    assume(batch.given["precision"] == "bf16" or system.accelerator.fp8_flops is not None)
    assumed = check_assumptions(assumptions, "calibrated")
    domain = system.domain(gpus) if batch.ordered else system.fast_domain
    outlines = enumerate_outlines(model, (gpus,), domain, 96, (batch,))
    searched = Searched(outlines, [batch], system, assumed)
    (outline,) = searched.ladders.values()
    rows = np.arange(outline.rows)
    assume(len(rows))
    ladder, _ = outline.ladders(rows)
    evaluation = evaluate(enumerate_space(model, (gpus,), domain, 96, batch), unlimited(system), assumed)
    rungs = Rungs(np.zeros_like(outline.size), outline.size)
    every = TimeBounds(searched, {0: rungs})
    (alike,) = every.alike
    least, ((_, _, bounds),) = every.of_rows(alike, rows), every.of_batches(alike, rows)
    row = rows if outline.replicas is None else outline.replicas.expand(ladder)[0]
    assert (least > 0).all()
    assert (least * (1 - ROUNDING) <= bounds).all()
    of_ladders = every.of_ladders(alike, np.arange(len(outline.size)), rungs)[ladder]
    assert ((of_ladders > 0) & (of_ladders * (1 - ROUNDING) <= least)).all()
    assert (bounds[row] <= evaluation.least_seconds[0]).all()


LARGE_VOCABULARY = replace(DENSE, name="large vocabulary", vocab=256000)


def equal_leanest(model, system, assumptions, gpus, batch):
    """Compare the leanest layout of each ladder with the memory of all its layouts; return these.

    Rows are the layouts with the smallest micro-batch of each ladder, and with any [byte].
    """
    assumed = check_assumptions(assumptions, "calibrated")
    domain = system.domain(gpus) if batch.ordered else system.fast_domain
    searched = Searched(enumerate_outlines(model, (gpus,), domain, 96, (batch,)), [batch], system, assumed)
    (outline,) = searched.ladders.values()
    rows = np.arange(outline.rows)
    memory = evaluate(enumerate_space(model, (gpus,), domain, 96, batch), system, assumed).memory
    least = np.full((2, len(outline.size)), np.inf)
    of_layouts = outline.ladders_of_layouts(rows)
    ladder, rung = outline.ladders(rows)
    is_first = rung == 0
    if outline.replicas is not None:
        is_first = is_first[outline.replicas.expand(ladder)[0]]
    np.minimum.at(least[0], of_layouts[is_first], memory[is_first])
    np.minimum.at(least[1], of_layouts, memory)
    census = Census(searched)
    assert census.least_memory_of(0) == pytest.approx(memory.min(initial=np.inf), rel=0, abs=census.rounding)
    of_degree = outline.space.degree
    found = census.least_memory(lambda space: space.degree)
    assert found == {
        degree: pytest.approx(memory_of.min(), rel=0, abs=census.rounding)
        for degree in np.unique(of_degree).tolist()
        if len(memory_of := least[1][of_degree == degree])
    }
    of_rows = np.full(outline.rows, np.inf)
    layout_row = rows if outline.replicas is None else rows[outline.replicas.expand(ladder)[0]]
    np.minimum.at(of_rows, layout_row, memory)
    ladder, times = outline.times_smallest(rows)
    if not outline.rows:
        return least
    # those of the whole machine, and of one whose memory some rows of a ladder exceed
    of_driver = system.accelerator.hbm_bytes - system.accelerator.visible_bytes
    limited = with_memory(system, np.median(memory) + of_driver)
    for found in (census, Census(replace(searched, system=limited))):
        bounds = found.least_memory_with(found.room_bounds((0,)).left_by(ladder, times))
        fits = of_rows <= found.capacity
        assert (bounds[fits] <= of_rows[fits]).all()
    return least


@settings(max_examples=60)
@given(
    batch=batches(),
    model=st.sampled_from((*MODELS, LARGE_VOCABULARY)),
    system=st.sampled_from(SYSTEMS),
    assumptions=st.sampled_from(PRESETS),
    gpus=st.sampled_from((4, 16, 24, 64)),
)
def test_the_leanest_layout_of_a_ladder_is_that_of_all_its_rows(batch, model, system, assumptions, gpus):
    assume(batch.given["precision"] == "bf16" or system.accelerator.fp8_flops is not None)
    with_host = replace(system, accelerator=replace(system.accelerator, host_bandwidth=50e9))
    equal_leanest(model, with_host, assumptions, gpus, batch)


def test_larger_micro_batches_may_need_less():
    """The gradient of a large vocabulary is the peak, beside fewer micro-batches the larger they are."""
    batch = CandidateBatch("1d", choices=(("schedule", "gpipe"), ("zero", 1), ("recompute", "none")))
    smallest, least = equal_leanest(LARGE_VOCABULARY, SYSTEMS[0], "megatron-core-2025", 16, batch)
    assert (least < 0.99 * smallest).any()


def test_counts_have_offloaded_activations_of_two_layers_at_the_first_layer():
    """Of large micro-batches these are more than what was in flight before, which is offloaded."""
    choices = (("schedule", "1f1b"), ("recompute", "none"), ("offload", "activations"), ("sp", True))
    batch = CandidateBatch("1d", choices=choices)
    accelerator = replace(SYSTEMS[0].accelerator, host_bandwidth=50e9)
    system = replace(SYSTEMS[0], accelerator=accelerator)
    assumed = check_assumptions("calibrated", "")
    space = enumerate_space(DENSE, (64,), 8, 96, batch)
    memory = evaluate(space, system, assumed).memory
    outlines = enumerate_outlines(DENSE, (64,), 8, 96, (batch,))
    of_driver = accelerator.hbm_bytes - accelerator.visible_bytes
    for nbytes in np.unique(memory)[1::4] - 1e6:
        machine = with_memory(system, nbytes + of_driver)
        fitting = space.counts[memory <= machine.accelerator.visible_bytes].sum()
        assert Census(Searched(outlines, [batch], machine, assumed)).candidates == fitting


@pytest.mark.parametrize("model", [DENSE, MOE], ids=["dense", "experts"])
def test_batches_of_one_shape_have_bounds_of_their_own_recomputation_and_stage_of_zero(model):
    system, assumed = unlimited(SYSTEMS[0]), check_assumptions("megatron-core-2025", "")
    together = [
        CandidateBatch("1d", choices=(("zero", zero), ("recompute", what)), vp=None, experts=True)
        for zero in (0, 1, 2, 3)
        for what in ("none", "full")
    ]
    searched = Searched(enumerate_outlines(model, (16,), 8, 96, tuple(together)), together, system, assumed)
    (outline,) = searched.ladders.values()
    rungs = Rungs(np.zeros_like(outline.size), outline.size)
    every = TimeBounds(searched, dict.fromkeys(range(len(together)), rungs))
    (alike,) = every.alike
    found = {}
    for _, indices, bounds in every.of_batches(alike, np.arange(outline.rows)):
        (index,) = indices
        job = enumerate_space(model, (16,), 8, 96, together[index])
        assert (bounds <= evaluate(job, system, assumed).least_seconds[0]).all()
        found[together[index].given["zero"], together[index].given["recompute"]] = float(bounds.mean())
    assert len(found) == len(together)
    assert found[3, "none"] > found[2, "none"] > found[1, "none"] > found[0, "none"]
    assert all(found[zero, "full"] > found[zero, "none"] for zero in (0, 1, 2, 3))


@pytest.mark.parametrize("model", [DENSE, MOE], ids=["dense", "experts"])
def test_estimates_that_share_layers_are_those_of_each_plan_alone(model):
    """Of batches that differ in one choice, of layers or around them."""
    system = unlimited(SYSTEMS[3])
    assumed = check_assumptions("calibrated", "calibrated")
    shared = SharedLayers()
    for name, values in CHOICES.items():
        if name in ("schedule", "precision"):  # those that need other virtual stages, or another machine
            continue
        batch = CandidateBatch("1d", choices=((name, values[-1]),), experts=True)
        space = enumerate_space(model, (16,), system.fast_domain, 96, batch)
        layout, fill = space.candidates(np.arange(len(space.counts)))
        for plan in space.plans(layout[::20], fill[::20]).rows():
            alone = estimate_placed(model, system, plan, 96, assumed)
            together = estimate_placed(model, system, plan, 96, assumed, shared)
            assert (together.step, together.components) == (alone.step, alone.components), plan


def test_experts_of_stages_numbered_before_replicas_share_no_layers_across_degrees_of_stages():
    """Their ranks lie further apart with more stages, so that the same layer takes longer."""
    system = unlimited(SYSTEMS[5])
    assumed = check_assumptions("calibrated", "calibrated")
    shared = SharedLayers()
    for pp in (1, 2):
        plan = tc.Plan(pp=pp, dp=32 // pp, ep=8, fast_dp=4, order="tp-cp-pp-dp")
        alone = estimate_placed(MOE, system, plan, 256, assumed)
        assert estimate_placed(MOE, system, plan, 256, assumed, shared).timed == alone.timed


def test_bounds_are_close_where_nothing_is_left_out():
    """One GPU sends nothing; without an optimizer and clipping only the margin for rounding is left."""
    assumed = check_assumptions("paper", "paper")
    space = enumerate_space(PAPERS, (1,), 1, 8, CandidateBatch("1d"))
    evaluation = evaluate(space, unlimited(SYSTEMS[0]), assumed)
    (bounds,) = times_of([evaluation], [evaluation.fitting], bound=True)
    assert bounds == pytest.approx(evaluation.least_seconds[0], rel=1e-9)


# Questions about known times --------------------------------------------------------------------------------


class Known(LeastTimes):
    """Layouts whose times are drawn instead of computed; it counts what is timed."""

    true: np.ndarray

    def _time(self, rows):
        assert not self.timed[rows].any()  # nothing is timed twice
        self.seconds[rows] = self.true[rows]
        self.timed[rows] = True

    @property
    def _candidates(self):
        return np.full(len(self.true), 5)


def asked(times, top, limit, slowdown, group):
    """Answers to all questions."""
    yield "best", times.best(top)
    yield "leanest", times.best(top, by_memory=True)
    yield "close to the best", times.best(top, slowdown=slowdown)
    yield "all close to the best", times.best(max(len(group), 1), slowdown=slowdown)
    yield "best of each group", times.best_of(group)[0]
    yield "leanest below a time", times.leanest_below(limit)
    yield "front", times.front()
    yield "front up to a time and a memory", times.front(slowdown - 1, limit)


def drawn(random, rows):
    """Layouts with times, memory and bounds from few values, so that many tie, and the same exhaustively."""
    true = random.integers(1, random.integers(2, 40), rows).astype(float)
    memory = random.integers(1, random.integers(2, 40), rows).astype(float)
    bounds = np.where(random.random(rows) < random.random(), true, true * random.random(rows))
    index, none = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
    questions = (
        Known([], index, np.arange(rows), memory, bounds, none, np.arange(rows)),
        Known([], index, np.arange(rows), memory, true.copy(), ~none, np.arange(rows)),
    )
    for question in questions:
        question.true = true
    return questions


@pytest.mark.parametrize("seed", range(40))
def test_thousands_of_questions_have_the_answers_of_timing_all(seed, monkeypatch):
    random = np.random.default_rng(seed)
    monkeypatch.setattr(least_times, "FIRST_ROUND", int(random.integers(1, 60)))
    shares = []
    for _ in range(15):
        rows = int(random.integers(0, 120))
        group = np.unique(random.integers(0, 6, rows), return_inverse=True)[1]
        question = int(random.integers(1, 30)), random.random() * 40, 1 + random.random(), group
        lazy, exhaustive = drawn(random, rows)
        answers = zip(asked(lazy, *question), asked(exhaustive, *question), strict=True)
        for (name, rows_found), (_, rows_expected) in answers:
            assert rows_found.tolist() == rows_expected.tolist(), name
            assert lazy.timed[rows_found].all()  # an answer is never a bound
            shares += [lazy.timed.mean()] if rows and name == "best" else []
        assert (lazy.all() == lazy.true).all()
    assert 0 < np.mean(shares) < 0.9  # bounds spare something


# Searches ---------------------------------------------------------------------------------------------------

LOCKS = (
    {"mbs": 1}, {"pp": 1}, {"recompute": "none"}, {"schedule": "1f1b", "zero": 1}, {"tp": 2},
    {"vp": 1, "cp": 1},
)  # fmt: skip


def compare(random, monkeypatch, sizes, batches, explained=True):
    """Search a question drawn at random, and the same timing everything: all that is reported is equal."""
    monkeypatch.setattr(least_times, "FIRST_ROUND", int(random.integers(100, 3000)))
    monkeypatch.setattr(search_result, "FEW_CANDIDATES", random.choice([0, np.inf]))
    model, system = MODELS[random.integers(len(MODELS))], SYSTEMS[random.integers(len(SYSTEMS))]
    memory = float(np.max(system.accelerator.hbm_bytes)) * random.choice([0.02, 0.1, 0.4, 1.0])
    frameworks = ("paper",) if model is PAPERS else ("megatron", "torchtitan", "deepspeed", "any")
    question = {
        "gpus": int(random.choice(sizes)),
        "gbs": int(random.choice(batches)),
        "framework": random.choice(frameworks).item(),
        "top": int(random.choice([1, 3, 40])),
        "objective": random.choice(["time", "memory"], p=[0.8, 0.2]).item(),
    }
    question["locks"] = {} if model is PAPERS else LOCKS[random.integers(len(LOCKS))]
    if question["framework"] == "torchtitan" and "zero" in question["locks"]:
        question["locks"] = question["locks"] | {"zero": 2}  # its FSDP has no stage 1
    return equal_answers(model, with_memory(system, memory), question, explained)


def with_memory(system, nbytes):
    """The machine with so much memory."""
    return replace(system, accelerator=replace(system.accelerator, hbm_bytes=nbytes))


def reported(found, explained):
    """All that a search reports, or what it finds before it explains that."""
    if explained:
        return found.to_dict()
    return found.ranked, found.candidates, found.rejected, found.pareto_plans


def equal_answers(model, machine, question, explained=True):
    """Search, and again timing everything: plans, counts, reasons, front and explanation agree."""
    found = tc.search(model, machine, **question)
    exhaustive = tc.search(model, machine, **question, exhaustive=True)
    assert reported(found, explained) == reported(exhaustive, explained)
    assert found.least_seconds == exhaustive.least_seconds
    assert exhaustive.layouts.times.timed.all()
    return found


@pytest.mark.parametrize("seed", [*range(4), 165])
def test_a_search_equals_one_that_times_all(seed, monkeypatch):
    """Plans, counts, reasons, front, probabilities and explanation, to the last bit.

    In the last one, layouts of a batch near the best are evaluated in several rounds.
    """
    assert compare(np.random.default_rng(seed), monkeypatch, (8, 16, 32), (16, 96)).candidates > 0


def test_the_best_of_each_degree_and_the_front_need_few_layouts_besides(monkeypatch):
    """Each list has a threshold: together they evaluate a tenth more than the answer, not twice as many."""
    monkeypatch.setattr(search_result, "FEW_CANDIDATES", 0)
    found = tc.search("llama-3-70b", "dgx-h100", gpus=512)
    assert found.plans
    before = len(found.layouts.times.layout)
    found.find_lists()
    assert found.explain().degrees
    assert found.pareto_plans
    assert before < len(found.layouts.times.layout) < 1.1 * before


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(40))
def test_thousands_of_searches_equal_those_that_time_all(seed, monkeypatch):
    """2,400 small questions, of which 240 are explained, which takes most of the time.

    With some nothing is possible, or nothing fits.
    """
    random = np.random.default_rng((1, seed))
    found = [
        compare(random, monkeypatch, (2, 4, 6, 8), (4, 8, 12), explained=number % 10 == 0)
        for number in range(60)
    ]
    assert np.mean([result.feasible > 0 for result in found]) > 0.3


@pytest.mark.parametrize(
    ("name", "gpus", "memory"),
    [
        pytest.param("deepseek-v3", 16, 1280e9, marks=pytest.mark.nightly),
        ("deepseek-v2", 64, 100e9),
    ],
)
def test_a_published_model_that_routes_to_some_groups_alone(name, gpus, memory):
    """DeepSeek's models route a token to experts of 4 of 8 groups, or 3: groups of experts across nodes."""
    question = {"gpus": gpus, "gbs": 32, "locks": {"mbs": (1, 2)[gpus < 32]}}
    found = equal_answers(name, with_memory(SYSTEMS[0], memory), question)
    assert found.model.experts.group_topk < found.model.experts.groups
    assert 0 < found.feasible < found.candidates
    assert any(plan.ep > SYSTEMS[0].fast_domain for plan, _ in found.plans)


GROWING = {"recompute": "none", "zero": 1, "tp_overlap": False}
QUESTIONS = {
    "misses that are equally near": (
        replace(tc.load_model("mistral-7b"), layers=5, seq=256),
        ("hgx-h800", {"accelerator.hbm_bytes": 8.5e9}),
        {"gpus": 1, "gbs": 4, "strategy": ("hybrid", "context", "ring"), "locks": {"mbs": 2}},
    ),
    "tp that ep does not divide, on three tiers": (
        replace(MOE, layers=4, experts=replace(MOE.experts, experts=6)),
        ("dgx-h100", {}),
        {"gpus": 12, "gbs": 24, "framework": "megatron", "locks": {"tp": 4}},
    ),
    # the gradient of the vocabulary is the peak, beside fewer micro-batches the larger they are
    "gpipe that needs less with larger micro-batches": (
        MOE,
        ("dgx-h100", {"accelerator.hbm_bytes": 6e9}),
        {"gpus": 8, "gbs": 16, "framework": "any", "locks": GROWING | {"schedule": "gpipe"}},
    ),
    "1f1b that needs less with larger micro-batches": (
        MOE,
        ("dgx-h100", {"accelerator.hbm_bytes": 6e9}),
        {"gpus": 8, "gbs": 16, "framework": "any", "locks": GROWING | {"schedule": "1f1b"}},
    ),
    "many ways to place a group": (MOE, ("gb200-nvl72", {}), {"gpus": 720, "gbs": 720}),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_are_those_of_timing_all_with(name, monkeypatch):
    monkeypatch.setattr(search_result, "FEW_CANDIDATES", 0)
    model, (system, figures), question = QUESTIONS[name]
    equal_answers(model, tc.load_system(system).with_figures(figures), question)


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_has_layouts_of_all(seed, monkeypatch):
    """Its memories and times are those of all, and the fastest are among them: no others are evaluated."""
    random = np.random.default_rng((2, seed))
    monkeypatch.setattr(search_result, "FEW_CANDIDATES", 0)
    monkeypatch.setattr(search_result, "SAMPLED", int(random.integers(20, 200)))
    monkeypatch.setattr(layouts, "FASTEST_SAMPLED", 5)
    question = {"gpus": 16, "gbs": 32, "framework": random.choice(["megatron", "deepspeed"]).item()}
    found = tc.search(MODELS[1], SYSTEMS[0], **question)
    every = tc.search(MODELS[1], SYSTEMS[0], **question, exhaustive=True).sample
    sample = found.sample
    most = 2 * search_result.SAMPLED + layouts.FASTEST_SAMPLED  # even distances are whole numbers
    assert 0 < len(sample.seconds) < min(len(every.seconds), most)
    sample.all()
    assert sample.seconds.min() == every.seconds.min()
    figures = set(zip(every.memory.tolist(), every.seconds.tolist(), strict=True))
    assert figures >= set(zip(sample.memory.tolist(), sample.seconds.tolist(), strict=True))


def test_a_search_times_a_small_share_of_the_candidates_that_fit():
    found = tc.search("llama-3-70b", "dgx-h100", gpus=512, gbs=512)
    assert found.best is not None
    assert 0 < found.share_timed < 0.2


@pytest.mark.parametrize(
    "model",
    [pytest.param(model, marks=[pytest.mark.nightly] if model in (MOE, LIMITED) else []) for model in MODELS],
    ids=lambda model: model.name,
)
def test_a_search_in_small_blocks_equals_one_in_large_blocks(model, monkeypatch):
    """Also where batches that recompute differently do not share shards, as in very large searches."""
    question = {"gpus": 8, "gbs": 32, "locks": {"mbs": 1}}
    found = tc.search(model, SYSTEMS[0], **question).to_dict()
    monkeypatch.setattr(evaluation, "CANDIDATES_PER_BLOCK", 7)
    monkeypatch.setattr(evaluation, "LAYOUTS_SHARING_SHARDS", 0)
    evaluation._timed_candidates.cache_clear()
    assert tc.search(model, SYSTEMS[0], **question).to_dict() == found
