"""Scores in all, error budgets, the figure of predicted against measured, and the scoreboard of runs left
out."""

import json
import math

import numpy as np
import pytest

import traincast as tc
from goals_and_errors import GOALS, TOTALS, Board, board, covered, flops, kernel_errors, perlmutter
from traincast.accuracy.fit.residuals import group_of
from traincast.accuracy.runs.run import bundled
from traincast.accuracy.scores import INDEPENDENT, Prediction, Subject, budgets, family_of, reasons, summary
from traincast.accuracy.validate import validate
from traincast.ui.cli.main import main
from traincast.ui.figures import accuracy
from traincast.ui.text.accuracy import accuracy_figure

DENSE = Subject(moe=False, stack="s", setting="a", plan=1)


def made(name, measured, predicted, **parts):
    return Prediction(name, measured_step_seconds=measured, predicted_step_seconds=predicted, parts=parts)


def test_the_best_of_three_by_hand():
    """Ranked first are the plans measured 3.0, 2.0, 2.5; the best of all took 1.0 and is ranked fourth."""
    some = [made(f"x-{i}", measured, 1.0 + i) for i, measured in enumerate((3.0, 2.0, 2.5, 1.0))]
    of = {one.id: Subject(False, "s", "a", i) for i, one in enumerate(some)}
    found = summary("x", some, of)
    assert (found.groups, found.regret, found.best_of_three) == (1, 2.0, 1.0)
    assert (found.worst_regret, found.worst_of_three) == (2.0, 1.0)
    assert summary("x", some[:2], of).regret is None


def test_composed_rows_count_as_what_they_are_composed_of():
    """2,060 rows with an error of 10 % count as 206 beside 103 rows with 40 %: the mean is 20 %, and half has
    at most 10 %."""
    composed = [made(f"vtrain-s-{i}", 1.0, 1.1) for i in range(2060)]
    others = [made(f"mpt-{i}", 1.0, 1.4) for i in range(103)]
    found = summary("dense", composed + others, {one.id: DENSE for one in composed + others})
    assert found.weight == pytest.approx(309)
    assert found.mape == pytest.approx(0.2)
    assert found.median == pytest.approx(0.1)
    assert found.n == 2163
    few = summary("dense", composed[:3], {one.id: DENSE for one in composed})
    assert few.weight == 3  # fewer rows than numbers count one each


def test_totals_are_of_all_rows_of_a_kind():
    report = board().report
    dense, moe = report.totals
    assert (dense.source, moe.source) == ("dense", "moe")
    assert dense.n + moe.n == sum(one.n for one in report.summaries)
    assert dense.weight == pytest.approx(dense.n - 1020 + INDEPENDENT["vtrain-s"])
    experts = [one for one in report.summaries if one.source.endswith("/moe")]
    assert moe.mape == pytest.approx(sum(one.mape * one.n for one in experts) / moe.n)


def test_reasons_are_summed_up_without_numbers():
    rows = [
        "gbs is not known; tp is not known",
        "gbs is not known",
        "plan: breaks a rule (tp = 3; dp = 2)",
        "plan: breaks a rule (tp = 4)",
    ]
    told = reasons([Prediction("x", skipped=row) for row in rows] + [Prediction("y", 1.0, 1.0)])
    assert told == {"gbs is not known": 2, "tp is not known": 1, "plan: breaks a rule": 2}


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
    (found,) = budgets(some)
    assert (found.source, found.n) == ("x", 40)
    assert found.bias == pytest.approx(np.mean([one.error for one in some]))
    assert found.causes["dp_comm"] == pytest.approx(
        parts[:, 1].mean() / parts.sum(axis=1).mean() * 2 / 3, rel=0.25
    )
    assert abs(found.causes["compute"]) + abs(found.causes["bubble"]) < found.causes["dp_comm"] / 3
    assert found.unexplained < 0.03


def test_parts_add_up_to_the_step():
    own = validate(parts=True)
    done = [one for one in own.predictions if one.skipped is None]
    for one in done[::50]:
        assert sum(one.parts.values()) == pytest.approx(one.predicted_step_seconds, rel=1e-9)
    assert {one.source for one in budgets(own.predictions, own.moe)} == {
        one.source for one in own.summaries if one.n
    }
    assert [one.predicted_step_seconds for one in done] == pytest.approx(
        [one.predicted_step_seconds for one in board().report.predictions if one.skipped is None], rel=1e-12
    )
    figure = accuracy_figure(own)
    left, right = figure.axes
    assert len(right.get_yticks()) == len(budgets(own.predictions, own.moe))
    assert sum(len(line.get_xdata()) for line in left.lines[1:]) == len(
        [one for one in done if one.measured_step_seconds]
    )


def test_families():
    assert family_of("mbridge/moe") == family_of("dgxc")
    assert family_of("my-cluster") == "my-cluster"
    known = {one.source for one in board().report.summaries}
    assert all(
        family_of(source) != source.removesuffix("/moe") for source in known - {"papers", "papers/moe"}
    )


def test_nothing_to_draw():
    with pytest.raises(tc.InputError, match="no run"):
        accuracy(np.array([]), np.array([]), [], np.array([], bool), [], "")


@pytest.mark.parametrize("ending", [".svg", ".png", ".pdf"])
def test_the_command_draws(tmp_path, capsys, ending):
    own = "tests/data/my_runs.csv"
    path = tmp_path / f"parity{ending}"
    main(["validate", "--runs", own, "--output", str(path)])
    assert capsys.readouterr().out.rstrip().endswith(path.name)
    assert path.stat().st_size > 1000
    with pytest.raises(SystemExit):
        main(["validate", "--runs", own, "--output", str(path)])
    assert "already exists" in capsys.readouterr().err
    main(["validate", "--runs", own, "--output", str(path), "--force", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["figure"] == str(path)
    assert set(told) == {"assumptions", "rows", "summary", "totals", "coverage", "skipped", "figure"}
    assert all("parts" not in row for row in told["rows"])


def test_residuals_become_predictions():
    known = next(name for name, y in board().residuals.items() if name.startswith("korth"))
    planted = Board(board().report, {known: {"fitted": 0.0, "left_out": math.log(1.25)}})
    found = planted.of(("korth",), "left_out")
    assert (found.n, found.mape, found.bias) == (1, pytest.approx(0.25), pytest.approx(0.25))
    (now,) = [one for one in board().report.predictions if one.id == known]
    assert planted.moved() == pytest.approx(abs(math.log(1 + now.error)))
    assert planted.by_source()["dense"].mape == pytest.approx(0.25)


def test_every_goal_can_be_judged():
    for goal in GOALS:
        assert getattr(board().of(goal.sources, goal.column), goal.what) is not None, goal.rows
    assert set(TOTALS) <= set(board().by_source())
    runs = {run.id: run for _, run in bundled() if not isinstance(run, str) and run.step_seconds}
    assert set(board().residuals) <= set(runs)
    dense, moe = board().by_stack(moe=False), board().by_stack(moe=True)
    assert {run.stack for run in runs.values()} >= {*dense, *moe}
    assert sum(one.n for one in (*dense.values(), *moe.values())) == len(board().residuals)


def test_left_out_groups_are_no_better_than_fitted_ones_on_the_whole():
    """A group's constants without it cannot suit it better, but by luck: the mean over groups is larger."""
    runs = {run.id: run for _, run in bundled() if not isinstance(run, str) and run.step_seconds}
    groups = {}
    for name, y in board().residuals.items():
        groups.setdefault(group_of(runs[name]), []).append(abs(y["left_out"]) - abs(y["fitted"]))
    assert np.mean([np.mean(differences) for differences in groups.values()]) > 0


def test_benchmarks_of_kernels_and_collectives():
    kernels = kernel_errors()
    assert {"product", "grouped", "attention forward", "attention backward", "memory"} == set(kernels)
    one = kernels["product"][0]
    sizes = one.benchmark.sizes
    assert flops(one) == 2 * sizes["batch"] * sizes["m"] * sizes["n"] * sizes["k"]
    assert list(perlmutter()) == [1, 2, 4, 8, 16, 32, 64, 128]
    assert sum(map(len, perlmutter().values())) == 779  # as docs/collectives.md counts them


def test_intervals_hold_what_was_left_out():
    """90 % intervals that know nothing of a run's group: neither far too narrow nor so wide that all lies in
    them."""
    for share in covered():
        assert 0.8 < share < 0.98
