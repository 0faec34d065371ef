"""Total scores, error budgets, the parity figure, and the scoreboard of left-out runs."""

import json
import math

import numpy as np
import pytest

import traincast as tc
from error_model import reliability
from goals_and_errors import (
    FIT_GOALS,
    GOALS,
    SPLIT_GOALS,
    Board,
    board,
    calibration,
    fit_figure,
    flops,
    kernel_errors,
    perlmutter,
)
from left_out import SPLITS, later_runs
from traincast.accuracy.fit.residuals import group_of
from traincast.accuracy.runs.run import load_bundled_runs
from traincast.accuracy.scores import INDEPENDENT, Prediction, Subject, budgets, family_of, reasons, summary
from traincast.accuracy.validation import validate
from traincast.ui.cli.main import main
from traincast.ui.figures import accuracy
from traincast.ui.text.accuracy import accuracy_figure

DENSE = Subject(moe=False, stack="s", setting="a", plan=1)


def made(name, measured, predicted, **parts):
    return Prediction(name, measured_step_seconds=measured, predicted_step_seconds=predicted, parts=parts)


def test_the_best_of_three_by_hand():
    """Ranked first are the plans measured 3.0, 2.0, 2.5; the best of all took 1.0 and is ranked fourth."""
    some = [made(f"x-{i}", measured, 1.0 + i) for i, measured in enumerate((3.0, 2.0, 2.5, 1.0))]
    of = {prediction.id: Subject(False, "s", "a", i) for i, prediction in enumerate(some)}
    row = summary("x", some, of)
    assert (row.groups, row.regret, row.best_of_three) == (1, 2.0, 1.0)
    assert (row.worst_regret, row.worst_of_three) == (2.0, 1.0)
    assert summary("x", some[:2], of).regret is None


def test_composed_rows_count_as_what_they_are_composed_of():
    """2,060 rows with 10 % error count as 206; with 103 rows of 40 % the mean is 20 %, the median 10 %."""
    composed = [made(f"vtrain-s-{i}", 1.0, 1.1) for i in range(2060)]
    others = [made(f"mpt-{i}", 1.0, 1.4) for i in range(103)]
    row = summary("dense", composed + others, {prediction.id: DENSE for prediction in composed + others})
    assert row.weight == pytest.approx(309)
    assert row.mape == pytest.approx(0.2)
    assert row.median == pytest.approx(0.1)
    assert row.n == 2163
    few = summary("dense", composed[:3], {prediction.id: DENSE for prediction in composed})
    assert few.weight == 3  # fewer rows than numbers count one each


def test_totals_are_of_all_rows_of_a_kind():
    report = board().report
    dense, moe = report.totals
    assert (dense.source, moe.source) == ("dense", "moe")
    assert dense.n + moe.n == sum(row.n for row in report.summaries)
    assert dense.weight == pytest.approx(dense.n - 1020 + INDEPENDENT["vtrain-s"])
    experts = [row for row in report.summaries if row.source.endswith("/moe")]
    assert moe.mape == pytest.approx(sum(row.mape * row.n for row in experts) / moe.n)


def test_reasons_are_summed_up_without_numbers():
    rows = [
        "gbs is not known; tp is not known",
        "gbs is not known",
        "plan: breaks a rule (tp = 3; dp = 2)",
        "plan: breaks a rule (tp = 4)",
    ]
    counts = reasons([Prediction("x", skipped=row) for row in rows] + [Prediction("y", 1.0, 1.0)])
    assert counts == {"gbs is not known": 2, "tp is not known": 1, "plan: breaks a rule": 2}


def test_a_budget_finds_the_part_that_is_wrong():
    """Planted: transfers take a third of what is said, all else is right."""
    rng = np.random.default_rng(0)
    parts = rng.uniform(0.2, 1.0, (40, 3))
    some = [
        made(
            f"x-{i}",
            float(a + b / 3 + c),
            float(a + b + c),
            compute=float(a),
            dp_comm=float(b),
            bubble=float(c),
        )
        for i, (a, b, c) in enumerate(parts)
    ]
    (budget,) = budgets(some)
    assert (budget.source, budget.n) == ("x", 40)
    assert budget.bias == pytest.approx(np.mean([prediction.error for prediction in some]))
    assert budget.causes["dp_comm"] == pytest.approx(
        parts[:, 1].mean() / parts.sum(axis=1).mean() * 2 / 3, rel=0.25
    )
    assert abs(budget.causes["compute"]) + abs(budget.causes["bubble"]) < budget.causes["dp_comm"] / 3
    assert budget.unexplained < 0.03


def test_parts_add_up_to_the_step():
    report = validate(parts=True)
    done = [prediction for prediction in report.predictions if prediction.skipped is None]
    for prediction in done[::50]:
        assert sum(prediction.parts.values()) == pytest.approx(prediction.predicted_step_seconds, rel=1e-9)
    assert {budget.source for budget in budgets(report.predictions, report.moe)} == {
        row.source for row in report.summaries if row.n
    }
    assert [prediction.predicted_step_seconds for prediction in done] == pytest.approx(
        [
            prediction.predicted_step_seconds
            for prediction in board().report.predictions
            if prediction.skipped is None
        ],
        rel=1e-12,
    )
    figure = accuracy_figure(report)
    left, right = figure.axes
    assert len(right.get_yticks()) == len(budgets(report.predictions, report.moe))
    assert sum(len(line.get_xdata()) for line in left.lines[1:]) == len(
        [prediction for prediction in done if prediction.measured_step_seconds]
    )


def test_families():
    assert family_of("mbridge/moe") == family_of("dgxc")
    assert family_of("my-cluster") == "my-cluster"
    known = {row.source for row in board().report.summaries}
    assert all(
        family_of(source) != source.removesuffix("/moe") for source in known - {"papers", "papers/moe"}
    )


def test_nothing_to_draw():
    with pytest.raises(tc.InputError, match="no run"):
        accuracy(np.array([]), np.array([]), [], np.array([], bool), [], "")


@pytest.mark.parametrize("ending", [".svg", ".png", ".pdf"])
def test_the_command_draws(tmp_path, capsys, ending):
    table = "tests/data/my_runs.csv"
    path = tmp_path / f"parity{ending}"
    main(["validate", "--runs", table, "--output", str(path)])
    assert capsys.readouterr().out.rstrip().endswith(path.name)
    assert path.stat().st_size > 1000
    with pytest.raises(SystemExit):
        main(["validate", "--runs", table, "--output", str(path)])
    assert "already exists" in capsys.readouterr().err
    main(["validate", "--runs", table, "--output", str(path), "--force", "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["figure"] == str(path)
    assert set(printed) == {
        "assumptions",
        "rows",
        "unsaid",
        "summary",
        "totals",
        "coverage",
        "skipped",
        "facts",
        "fits",
        "version",
        "figure",
    }
    assert all("parts" not in row for row in printed["rows"])


def test_residuals_become_predictions():
    known = next(name for name, y in board().residuals.items() if name.startswith("korth"))
    planted = Board((board().report,), {known: {"fitted": 0.0, "left_out": math.log(1.25)}})
    row = planted.of(("korth",), "left_out")
    assert (row.n, row.mape, row.bias) == (1, pytest.approx(0.25), pytest.approx(0.25))
    (now,) = [prediction for prediction in board().report.predictions if prediction.id == known]
    assert planted.moved() == pytest.approx(abs(math.log(1 + now.error)))
    assert planted.by_source()["dense"].mape == pytest.approx(0.25)


def test_every_goal_can_be_judged():
    for goal in GOALS:
        assert getattr(board().of(goal.sources, goal.column), goal.what) is not None, goal.rows
    assert all(board().split(column, moe) for moe, column in SPLIT_GOALS)
    bundled_runs = [run for _, run in load_bundled_runs() if not isinstance(run, str)]
    runs = {run.id: run for run in (*bundled_runs, *later_runs()) if run.step_seconds}
    assert set(board().residuals) <= set(runs)
    dense, moe = board().by_stack(moe=False), board().by_stack(moe=True)
    assert {run.stack for run in runs.values()} >= {*dense, *moe}
    assert sum(row.n for row in (*dense.values(), *moe.values())) == len(board().residuals)


@pytest.mark.parametrize("goal", FIT_GOALS, ids=lambda goal: goal["rows"])
def test_verdicts_of_fit_meet_their_goals_or_get_no_worse(goal):
    """Where a goal is missed, goals.yaml says why, and what it is held to until it is met."""
    reached = fit_figure(board(), goal)
    if reached is None:
        assert board().fits.total.out_of_memory == 0
        return
    assert 100 * reached <= goal.get("held", goal["most"])
    assert 100 * reached <= goal["most"] or goal["why"]


def test_a_split_is_the_mean_over_its_families():
    """By hand: one family is 10 % too long in both of two rows, the other 30 % too short in its one row."""
    names = [name for name in board().residuals if name.startswith("korth")][:2]
    (other,) = [name for name in board().residuals if name.startswith("zb")][:1]
    planted = {name: {"left_out": math.log(1.1)} for name in names} | {other: {"left_out": math.log(0.7)}}
    split = Board(board().reports, planted).split("left_out", moe=False)
    assert (split.families, split.n, split.worst_family) == (2, 3, "zb")
    assert split.mape == pytest.approx((0.1 + 0.3) / 2)
    assert split.bias == pytest.approx((0.1 - 0.3) / 2)
    assert Board(board().reports, planted).split("without_stack", moe=False) is None


def test_left_out_groups_are_no_better_than_fitted_ones_on_the_whole():
    """A group's constants without it cannot suit it better, but by luck: the mean over groups is larger."""
    runs = {run.id: run for _, run in load_bundled_runs() if not isinstance(run, str) and run.step_seconds}
    groups = {}
    for name in board().residuals.keys() & runs.keys():
        y = board().residuals[name]
        groups.setdefault(group_of(runs[name]), []).append(abs(y["left_out"]) - abs(y["fitted"]))
    assert np.mean([np.mean(differences) for differences in groups.values()]) > 0


def test_benchmarks_of_kernels_and_collectives():
    kernels = kernel_errors()
    assert {"product", "grouped", "attention forward", "attention backward", "memory"} == set(kernels)
    kernel = kernels["product"][0]
    sizes = kernel.benchmark.sizes
    assert flops(kernel) == 2 * sizes["batch"] * sizes["m"] * sizes["n"] * sizes["k"]
    assert list(perlmutter()) == [1, 2, 4, 8, 16, 32, 64, 128]
    assert sum(map(len, perlmutter().values())) == 779  # as docs/collectives.md counts them


def test_intervals_cover_left_out_runs():
    """90 % intervals that know nothing of a run's group hold in every split, dense and with experts."""
    known = calibration()
    for moe in (False, True):
        assert 0.87 <= known.splits["left_out", moe].share <= 0.93
        assert 0.87 <= known.blind["blind", moe].share <= 0.93
    assert {column for column, _ in known.splits} == set(SPLITS)
    # those of accelerators left out are as wide as Gaudi and AMD need, which is too wide for others
    too_sure = [split for split, item in known.splits.items() if item.rejected and item.share < 0.9]
    assert not too_sure
    assert not [name for name, item in known.families.items() if item.n >= 20 and item.rejected]


def test_what_is_stated_holds_in_every_bin():
    """Intervals of five levels, with facts and blind, and the first plan, in bins of at least 30 cases."""
    known = calibration()
    assert set(known.levels) == {(column, moe) for column in ("left_out", "blind") for moe in (False, True)}
    bins = [item for found in known.levels.values() for item in found] + reliability(known.rankings)
    assert min(item.n for item in bins) >= 30
    # a bin holds with a probability of 90 %: of 24, two or three outside are no surprise
    assert sum(not item.holds for item in bins) <= 3
