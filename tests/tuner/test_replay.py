"""Replay of published runs, and of the training loop's recorded steps on two processes of a CPU."""

from pathlib import Path

import numpy as np
import pytest

import traincast as tc
from traincast.accuracy.runs.run import Run, load_bundled_runs, readable, rows
from traincast.tuner.belief import STOP_PROBABILITY
from traincast.tuner.replay import (
    PRIORS,
    WRONGS,
    Replay,
    Replayed,
    goals,
    replay,
    replay_all,
    runs_by_group,
    summary,
    table,
)
from traincast.tuner.running import MIDDLE_HALF
from traincast.ui.text.tuning import lessons

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS, VISITS = EXAMPLES / "measured_cpu/steps.csv", EXAMPLES / "tune/steps.csv"


@pytest.fixture(scope="module")
def replays():
    return Replay()


def test_the_table_has_the_groups_of_the_bundled_runs(replays):
    runs = [run for _, run in load_bundled_runs() if isinstance(run, Run) and run.step_seconds]
    groups = [members for members in runs_by_group(runs) if all(run.id in table() for run in members)]
    assert [run.id for members in groups for run in members] == [run.id for run in replays.runs]
    assert len(groups) >= 70
    assert all(np.isfinite(list(row.values())).all() for row in table().values())


def test_predictions_are_those_without_the_group(replays):
    group = replays.groups("left_out")[0]
    members = replays.members[0]
    plans = list(dict.fromkeys(run.plan for run in members))
    times = [np.median([run.step_seconds for run in members if run.plan == plan]) for plan in plans]
    assert group.seconds == pytest.approx(times)
    once = [run for run in members if sum(run.plan == other.plan for other in members) == 1]
    assert once
    for run in once:
        i = plans.index(run.plan)
        error = np.log(group.prior.seconds[i] / group.seconds[i])
        assert error == pytest.approx(table()[run.id]["left_out"], abs=1e-9)


def test_a_wrong_prior_is_wrong(replays):
    usual = replays.groups("left_out")[0]
    for wrong in WRONGS[1:4]:
        other = replays.groups("left_out", wrong)[0]
        moved = other.prior.seconds / usual.prior.seconds * usual.seconds / other.seconds
        assert np.abs(np.log(moved)).max() > 0.005, wrong.title


def test_groups_replayed(replays):
    # a sample: the whole replay is `traincast tune --replay`
    done = [replay(group) for group in replays.groups("left_out")[::6]]
    one = summary(PRIORS["left_out"], WRONGS[0].title, "all", done)
    assert 1 <= one.trials <= 5
    assert one.right >= 0.8
    for group in done:
        assert 1 <= group.trials <= 2 * group.plans
        assert group.regret >= 0
    assert one.regret <= np.mean([group.ranked_regret for group in done]) + 0.02
    assert len(goals([one], [])) == 5


def test_means_of_a_summary_by_hand():
    first = Replayed("a", "a", 8, 2, 0.0, True, 0.03, 2, 4, 0.04)
    second = Replayed("b", "a", 20, 6, 0.02, False, 0.0, 9, 1, 0.0)
    one = summary("p", "w", "k", [first, second])
    figures = (one.groups, one.trials, one.within_four, one.right, one.regret, one.to_best, one.reliability)
    assert figures == (2, 4.0, 0.5, 0.5, 0.01, 5.5, 1.0)


def test_lessons_of_a_replay_by_hand():
    first = Replayed("a", "vtrain", 8, 2, 0.0, True, 0.03, 2, 4, 0.04)
    second = Replayed("b", "bloom", 20, 5, 0.02, True, 0.0, 9, 1, 0.12)
    found, saved, sure = lessons([first, second])
    assert "In 2 series of 8 to 20 measured plans (1 of one source)" in found
    assert "takes 8.0% longer than the best in the mean and 12.0% at worst" in found
    assert found.endswith("the one that trials end with 1.0% and 2.0%.")
    assert (
        saved == "Trials end after 3.5 of 14.0 plans in the mean, after 5 at most: 75% of the runs are saved."
    )
    assert sure.endswith("it is so in 1 of 2 series.")


def test_progress_is_of_every_group_and_without_details_of_one_prior(monkeypatch):
    monkeypatch.setattr("traincast.tuner.replay.MIN_PLANS", 20)
    seen = []
    report = replay_all(lambda done, of: seen.append((done, of)), details=False)
    number = len(report.groups)
    assert seen == [(i + 1, number) for i in range(number)]
    assert number > 1
    assert {(row.prior, row.wrong) for row in report.summaries} == {(PRIORS["left_out"], WRONGS[0].title)}
    assert report.long_lists == []
    assert all(0 <= group.regret <= group.first_regret for group in report.groups)


def recorded():
    """Recorded steps by shape: measured on the machine of `machine.yaml`, all plans of a shape."""
    runs = [run for _, run in readable(rows(STEPS)) if isinstance(run, Run)]
    shapes = {}
    for run in runs:
        shapes.setdefault((run.model.hidden, run.model.layers, run.model.seq), []).append(run)
    return [[run for run in members if run.plan.gpus == 2] for members in shapes.values()]


@pytest.mark.parametrize("runs", recorded(), ids=lambda runs: runs[0].id)
def test_recorded_training_is_tuned_to_3_percent_in_5_trials(runs):
    first = runs[0]
    times = {run.plan: run.step_seconds for run in runs}
    tuner = tc.Tuner(
        first.model, first.system, 2, gbs=first.gbs, plans=list(times), assumptions="pytorch", trials=5
    )
    while trial := tuner.ask():
        tuner.tell(trial, times[trial.plan])
    assert tuner.best().seconds <= 1.03 * min(times.values())
    if len(tuner.trials) < 5:
        assert tuner.remaining_gain().within >= STOP_PROBABILITY


def visits(kind):
    """All plans of the small GPT with their visits of a kind, "calm" or "loaded": times and spreads."""
    table, first = {}, {}
    for cells, run in readable(rows(VISITS)):
        if run.id.split()[1].startswith(kind):
            table.setdefault(run.plan, []).append((run.step_seconds, float(cells["step_spread"])))
            first[run.plan] = run
    return next(iter(first.values())), table


@pytest.mark.parametrize("begin", [0, 1])
def test_recorded_visits_of_22_plans_are_tuned_to_3_percent_in_5_trials(begin):
    # A trial reads a visit of the plan, a repeat the other; the best is that of the mean of both.
    run, table = visits("calm")
    tuner = tc.Tuner(
        run.model, run.system, 2, gbs=run.gbs, plans=list(table), assumptions="pytorch", trials=5
    )
    while trial := tuner.ask():
        repeats = sum(other.plan == trial.plan for other in tuner.trials) - 1
        seconds, spread = table[trial.plan][(begin + repeats) % 2]
        tuner.tell(trial, seconds, error=spread / MIDDLE_HALF)
    means = {plan: np.mean([seconds for seconds, _ in times]) for plan, times in table.items()}
    assert len(table) == 22
    assert len(tuner.trials) <= 5
    assert means[tuner.best().plan] <= 1.03 * min(means.values())


@pytest.mark.parametrize("kind", ["calm", "loaded"])
def test_times_of_trials_differ_by_what_single_steps_do(kind):
    # why a trial's error is the deviation of one step, not that of the median of its steps
    times = np.array(list(visits(kind)[1].values()))
    seconds, steps = np.log(times[:, :, 0]), times[:, :, 1] / MIDDLE_HALF
    between = np.var(seconds, axis=1, ddof=1).mean() ** 0.5
    assert 0.7 < between / np.mean(steps**2) ** 0.5 < 1.6
