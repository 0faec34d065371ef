"""Protocols of the scoreboard: facts blind, first contact, and what was measured once."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import first_contact
import software
from error_model import levels_reliability
from goals_and_errors import PROTOCOLS, board, calibration, error_model, held_intervals
from left_out import BLIND, FIRST, HEADLINE, blind_runs, earlier_runs, later_runs, releases_before
from measured_cells import Cell, cell_of, facts_of_one_source, thin_cells
from software import left_open
from traincast.accuracy.fit.residuals import bundled_runs
from traincast.catalog.facts import ALWAYS_GIVEN
from traincast.step.uncertainty import FEW
from traincast.step.uncertainty import errors as stated


@pytest.fixture(scope="module")
def runs():
    """The bundled runs and those collected later; the latter are predicted to see which can be."""
    return [*bundled_runs(), *later_runs()]


def test_blind_runs_have_framework_and_release_alone(runs):
    blind = blind_runs(runs)
    assert [run.id for run in blind] == [run.id for run in runs]
    assert {name for run in blind for name in run.facts} == set(ALWAYS_GIVEN)
    changed = [(run, other) for run, other in zip(runs, blind, strict=True) if run.stack != other.stack]
    assert changed
    assert all(set(run.facts) - set(ALWAYS_GIVEN) for run, _ in changed)  # only rows that state a fact differ
    eager = next(other for run, other in changed if run.stack == "torchtitan-eager")
    assert eager.stack == "torchtitan-2024"  # compiled unless stated


def test_every_run_left_out_is_so_blind_too():
    for name, line in board().residuals.items():
        for column, split in BLIND.items():
            assert (column in line) == (split in line), (name, column)
    for kind in ("dense", "moe"):
        errors = {column: board().by_source(column)[kind] for column in PROTOCOLS}
        assert len({item.n for item in errors.values()}) == 1
        assert errors["blind"].mape >= errors["left_out"].mape - 0.01  # facts help, or hardly matter
        assert 0.87 <= calibration().blind["blind", kind == "moe"].share <= 0.93


def test_rows_that_leave_software_open_are_wider_where_it_differs_and_the_others_are_not():
    """Facts blind, the interval is that of the mixture over what is left open; else fewer lie inside."""
    data = error_model()[0]
    of, of_blind = held_intervals()
    blind = of_blind[HEADLINE]
    is_open = np.isin(of.rows, left_open(data, HEADLINE).rows) & (of.columns == "left_out")
    moe = np.array([data.cases[i].moe for i in of.rows])
    width = of.faster + of.slower
    wide = blind.faster + blind.slower
    assert is_open[moe].sum() >= 10
    assert np.median((wide / width)[is_open]) > 1.1
    assert (wide == width)[~is_open].all()
    as_stated = replace(of, errors=blind.errors)  # as if their software were known
    used = (of.columns == "left_out") & moe & ~np.isnan(blind.errors)
    assert as_stated.inside[used].mean() <= blind.inside[used].mean()
    assert 0.86 <= blind.inside[used].mean() <= 0.94
    # no level holds fewer than it states
    found = levels_reliability(data, blind, used)
    assert all(item.holds or item.happened > item.stated for item in found)


def test_first_contact_is_of_the_release_before(runs):
    before = releases_before(runs)
    assert before["Megatron-Bridge 2026-02"] == "2025-11"
    assert "Megatron-Bridge 2025-09" not in before  # the first of them
    earlier = dict(zip((run.id for run in runs), earlier_runs(runs), strict=True))
    own = next(run for run in runs if run.facts.get("framework") == "NeMo" and run.released == "2025-05")
    assert earlier[own.id].released == before["NeMo 2025-05"]
    assert earlier[own.id].plan == own.plan
    data = error_model()[0]
    i = next(i for i, run in enumerate(data.runs) if run.id == own.id)
    newer = {run.released for run, out in zip(data.runs, software.newer(data, i), strict=True) if out}
    assert min(newer) == "2025-05"


def test_90_percent_of_first_contacts_lie_in_intervals_of_a_new_release():
    """A release of n runs counts as √n; without what a new release adds fewer dense runs do."""
    data, known = error_model()
    first = left_open(data, FIRST)
    share = {}
    for moe, added in ((False, stated().software.release), (True, stated().software.release_moe)):
        found = software.of_kind(data, first, moe)
        assert len(found.rows) > 80
        names = [(data.runs[i].facts["framework"], data.runs[i].released) for i in found.rows]
        weights = [names.count(name) ** -0.5 for name in names]
        left = software.SoftwareShares.left_open
        beside = [left(stated().software, moe, "open") * (len(parts) > 1) for parts in found.parts]
        for spread in (0.0, added):
            ends = software.intervals(found, known, np.hypot(spread, beside))
            share[moe, bool(spread)] = np.average(software.inside(data, found, ends), weights=weights)
        assert 0.88 <= share[moe, True] <= 0.96
    assert share[False, False] < 0.86


def test_cells_are_of_stack_host_pipeline_and_experts(runs):
    deepseek = next(run for run in runs if run.id == "papers-023")  # ep 64 in nodes of 8, 16 stages
    assert cell_of(deepseek) == Cell(deepseek.stack, "x86", True, True)
    grace = next(run for run in runs if run.system.name == "gb200-nvl72" and run.plan.pp == 1)
    assert (cell_of(grace).host, cell_of(grace).pipelined) == ("Grace", False)


def test_a_cell_is_thin_below_three_configurations(runs):
    run = next(run for run in runs if run.model.experts is None and run.plan.pp == 1 and run.plan.dp > 4)
    same, others = (
        [run, replace(run, id=f"{run.id} again")],
        [replace(run, model=replace(run.model, name=f"other {n}")) for n in range(FEW)],
    )
    assert thin_cells(same) == {cell_of(run): 1}  # of one source, model and accelerator
    assert thin_cells(others) == {}


def test_a_fact_of_one_source_is_named(runs):
    facts = facts_of_one_source(runs)
    assert facts["kernels", "flex-attention"] == "nvmoe"
    assert ("framework", "NeMo") not in facts  # of several sources
    other = replace(runs[0], id="mine-1", facts={"kernels": "flex-attention"})
    assert ("kernels", "flex-attention") not in facts_of_one_source([*runs, other])


def test_first_contact_is_kept():
    """Figures of the second round of rows, written once from the history: they never change."""
    lines = {(line["batch"], line["source"]): line for line in first_contact.read()}
    assert {batch for batch, _ in lines} == {batch.name for batch in first_contact.BATCHES}
    later = {source: line["mape"] for (batch, source), line in lines.items() if batch == "later runs"}
    assert (later["mlperf-405b"], later["mlperf-8b"], later["mlperf-lora"]) == ("0.0319", "0.1274", "1.0436")
    assert lines["published runs", "all"]["predicted"] == "0"  # no version before them could read a table


def test_the_readme_quotes_the_headline():
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    blind, stack = (board().by_source(column) for column in ("blind", "blind_without_stack"))
    dense, moe = (f"{100 * blind[kind].mape:.1f} %" for kind in ("dense", "moe"))
    assert f"{dense} off on average for dense models and {moe} for mixtures of experts" in " ".join(
        readme.split()
    )
    assert f"left out, {100 * stack['dense'].mape:.1f} and {100 * stack['moe'].mape:.1f} %" in " ".join(
        readme.split()
    )
