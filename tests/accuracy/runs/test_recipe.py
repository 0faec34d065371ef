"""Facts that rows of Megatron-Bridge leave open, as recipes of its releases have them.

Expected values were read in the repository NVIDIA-NeMo/Megatron-Bridge, in scripts/performance/configs of the
tags v0.2.0 to v0.5.1 and in src/megatron/bridge/perf_recipes of v0.6.0.
"""

import re
from importlib.resources import files

import pytest

from left_out import LATER
from normalise import published
from traincast.accuracy.runs.cells import Cells
from traincast.accuracy.runs.framework_recipes import TABLES, recipes, release_at, releases_with_recipes
from traincast.accuracy.runs.plan import recompute_choice
from traincast.accuracy.runs.run import read_run, rows
from traincast.catalog.documents import catalogue
from traincast.catalog.facts import FACTS
from traincast.core.precision import PRECISIONS

TABLE = files("traincast") / "catalog/recipes/megatron-bridge.csv"
BLIND = {name: "" for name in FACTS if name not in ("framework", "released")}
ROWS = {row["id"]: row | BLIND for row in (*published(), *rows(LATER))}


def run_of(row_id, **cells):
    return read_run(ROWS[row_id] | cells)


def test_the_table_has_versions_and_commits():
    head = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    pattern = re.compile(r"# (\d+\.\d+\.\d+): 20\d\d-\d\d, commit [0-9a-f]{40}")
    versions = {match[1] for match in map(pattern.fullmatch, head) if match}
    listed = [recipe["versions"] for found in recipes("Megatron-Bridge").values() for recipe in found]
    assert set(" ".join(listed).split()) == versions
    assert "https://github.com/NVIDIA-NeMo/Megatron-Bridge" in head[0]


def test_the_table_names_what_is_known():
    """Models, accelerators and precisions are of the catalogue, facts and modules what rows may state."""
    for (_, gpu, precision, task), found in recipes("Megatron-Bridge").items():
        assert gpu in catalogue("accelerators")
        assert precision in PRECISIONS
        assert task in ("pretrain", "sft", "lora")
        for recipe in found:
            assert recipe["model"] in catalogue("models")
            assert recipe["graphs"] in FACTS["graphs"].allowed
            assert recipe["dispatcher"] in ("", *FACTS["dispatcher"].allowed)
            cells = Cells({"recompute": recipe["recompute"]})
            assert recompute_choice(cells)
            assert not cells.problems


ALL_TO_ALL = "megatron-bridge-26.02+dispatcher=alltoall+graphs=none"


@pytest.mark.parametrize(
    ("row_id", "facts", "stack"),
    [
        # Qwen3 235B on B200, v0.4.0: no backend, so all-to-all; no graphs
        ("mbridge-074", {"dispatcher": "alltoall", "graphs": "none"}, ALL_TO_ALL),
        # GPT-OSS 120B in MXFP8, v0.5.0: graphs of attention and router on B300, of whole iterations on GB200
        ("mbridge-030", {"dispatcher": "hybridep", "graphs": "layer"}, "megatron-bridge-26.02"),
        ("mbridge-029", {"dispatcher": "hybridep", "graphs": "iteration"}, "megatron-bridge-2026"),
        # Kimi K2 on GB300, v0.5.0: HybridEP, no graphs
        ("mbridge-037", {"dispatcher": "hybridep", "graphs": "none"}, "megatron-bridge-2026+graphs=none"),
        # Llama 3 8B on B200, v0.2.0: cuda_graph_impl local, scope full_iteration
        ("mbridge-192", {"graphs": "iteration"}, "megatron-bridge-2026"),
    ],
)
def test_facts_left_open_are_those_of_the_recipe(row_id, facts, stack):
    run = run_of(row_id)
    assert run.stack == stack
    assert set(facts) <= set(run.assumed)
    assert not set(facts) & set(run.facts)  # a fact that was assumed is none that the row states
    assert run.unsaid == ()
    stated = run_of(row_id, **facts)
    assert (stated.stack, stated.plan) == (run.stack, run.plan)
    assert not set(facts) & set(stated.assumed)


def test_recipes_say_what_is_recomputed_and_overlapped():
    """Kimi K2 on GB300, v0.3.1; GPT-OSS on B300, v0.5.0, does not overlap the exchange."""
    kimi = run_of("mbridge-140", recompute="")
    assert (kimi.plan.recompute, "recompute" in kimi.assumed) == ("mla_up_proj", True)
    assert not run_of("mbridge-030").plan.ep_overlap
    assert run_of("mbridge-030", ep_overlap="true").plan.ep_overlap  # stated: as it is
    offloaded = run_of("mbridge-043", recompute="", offload="", offload_every="")
    assert (offloaded.plan.offload, offloaded.plan.offload_every) == ("activations", 4)  # 20 of 80 layers


def test_hybrids_run_without_graphs_of_whole_iterations():
    """Nemotron 3 Nano and Super, v0.3.1 to v0.6.0: HybridEP, graphs of attention, router and Mamba."""
    hybrids = [row for name, row in ROWS.items() if name.startswith("bridge-hybrid-")]
    assert len(hybrids) > 20
    for row in hybrids:
        run = read_run(row)
        assert {"dispatcher", "graphs"} <= set(run.assumed)
        graphs = run.stack.removeprefix("megatron-bridge-26.02")  # without any the host issues every kernel
        assert graphs in ("", "+graphs=none")


@pytest.mark.parametrize(
    "cells",
    [
        {"ep": "16"},  # other degrees
        {"gpu": "h800-sxm-80"},
        {"precision": "fp8-rowwise"},
        {"released": "2025-09"},  # before the first release whose recipes are known
        {"released": "2026"},  # a year is no release
        {"framework": "NeMo"},
        {"layers": "90"},  # another model
        {"trained": "lora", "model": "Qwen3_235B_a22B LoRA"},
    ],
)
def test_without_a_recipe_facts_stay_open(cells):
    run = run_of("mbridge-075", **cells)
    assert not {"dispatcher", "graphs"} & set(run.assumed)


def test_a_row_that_contradicts_a_recipe_is_not_of_it():
    """Other facts stay open, or are those of another recipe: v0.5.0 has two of GPT-OSS in MXFP8 on GB200."""
    other = run_of("mbridge-029", dispatcher="deepep")
    assert "graphs" not in other.assumed
    plain = run_of("mbridge-029", dispatcher="alltoall")
    assert ("graphs" in plain.assumed, plain.stack) == (
        True,
        "megatron-bridge-2026+dispatcher=alltoall+graphs=none",
    )


def test_recipes_that_disagree_leave_a_fact_open():
    """GPT-OSS on GB200 in BF16 in containers 26.04: all-to-all in v0.4.0, HybridEP in v0.4.2."""
    run = run_of("mbridge-062")
    assert "graphs" in run.assumed
    assert "dispatcher" not in run.assumed


def test_a_release_is_that_of_the_last_container_before():
    assert list(TABLES) == ["Megatron-Bridge"]
    assert releases_with_recipes("Megatron-Bridge") == ("2025-11", "2026-02", "2026-04", "2026-06", "2026-08")
    assert release_at("Megatron-Bridge", "2026-05") == "2026-04"
    assert release_at("Megatron-Bridge", "2025-10") == release_at("NeMo", "2026-05") == ""
