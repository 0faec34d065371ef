"""Terminal output of trials, and of replays of published runs."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from traincast.core import count_of, probability_text, seconds, seconds_with_interval
from traincast.tuner import STOP_PROBABILITY, TRIAL_GAIN
from traincast.ui.text.calibration import calibration as show_calibration
from traincast.ui.text.tables import Parts, heading, note, paragraphs, table, title_line

if TYPE_CHECKING:
    from traincast.accuracy import Calibration
    from traincast.tuner import Replayed, ReplayReport, Trial, TuneReport

TRIAL_COLUMNS: Final = ("trial", "plan", "predicted", "expected", "measured")
SUMMARY_COLUMNS: Final = (
    "groups",
    "n",
    "trials",
    "≤ 4",
    "in 1%",
    "regret",
    "ranked",
    "to 1%",
    "ranked",
    "right",
)
MOST_SHARE: Final = 0.995  # greater probabilities are shown as above it
REPLAY_NOTE: Final = (
    "Trials at which the tuner stops by itself, the share of groups where that is within 4, where it ends "
    "within 1% of the best, and its regret, beside that of as many plans in the order of the ranking "
    "(ranked). To 1%: trials until a plan within 1% of the best was tried, and in the order of the ranking. "
    "Right: how often a stop that was sure (95%) is within 1%."
)


def begun(trial: "Trial") -> Parts:
    """Show a trial that begins."""
    expected = seconds_with_interval(trial.expected_seconds, trial.low, trial.high)
    words = f"  {expected}, 90%) a step expected; {trial.why}"
    yield from paragraphs(f"Trial {trial.number}: {trial.plan}", words)


def show_trial(trial: "Trial") -> Parts:
    """Show the result of a trial."""
    yield from paragraphs(f"  → {trial.text}")


def trial_cells(trial: "Trial") -> tuple[str, ...]:
    """Return the cells of a trial, as `TRIAL_COLUMNS`."""
    times = (seconds(trial.predicted_seconds), seconds(trial.expected_seconds))
    measured = seconds(trial.seconds) if trial.seconds is not None else trial.text
    return str(trial.number), str(trial.plan), *times, measured


def conclusion(report: "TuneReport") -> list[str]:
    """Return the answer in sentences: the best plan, how sure it is, why it stopped, what was learnt."""
    if report.best is None:
        under_way = sum(trial.outcome == "running" for trial in report.trials)
        ended = count_of(len(report.trials) - under_way, "trial")
        return [f"No plan was measured: {ended} ended without a time, {under_way} under way."]
    best = report.best
    remaining = report.remaining
    lines = [f"The best plan is that of trial {best.trial}: {best.plan}, {seconds(best.seconds)} a step."]
    if report.first_seconds and best.trial > 1:
        gain = report.first_seconds / best.seconds - 1
        compared = f"takes {gain:.1%} longer" if gain >= 0 else f"took {-gain:.1%} less, within the noise"
        lines.append(f"The plan predicted to be the fastest {compared}.")
    within = probability_text(min(remaining.within, MOST_SHARE))
    lines.append(
        f"It is within 1% of all {report.candidates:,} candidates with a probability of {within}; further "
        f"trials are expected to gain {remaining.gain or 0.0:.1%}."
    )
    if report.stopped:
        lines.append(f"No further trial: {report.stopped}.")
    if (learnt := report.learnt) is not None:
        repeats = learnt.repeats
        repeated = f"and {count_of(repeats, 'repeat')}" if repeats else "as no trial was repeated"
        lines.append(
            f"Steps take {learnt.factor:.3g} ({learnt.low:.3g} to {learnt.high:.3g}, 90%) times what is "
            f"predicted; a trial's noise is {learnt.noise:.1%} by the spread of steps, {repeated}."
        )
    return lines


def show_tuning(report: "TuneReport", calibration: "Calibration | None", system: Path | None) -> Parts:
    """Show what trials found."""
    job = report.job
    yield title_line(f"{job.model} on {count_of(job.gpus, 'GPU')} of {job.system}")
    yield from paragraphs(*conclusion(report))
    if report.trials:
        yield heading("Trials")
        yield table(TRIAL_COLUMNS, [trial_cells(trial) for trial in report.trials], left=(1,), wrap=(1, 4))
    if calibration is not None:
        yield ""
        yield from show_calibration(calibration, system)


def show_waiting(launches: Sequence[tuple["Trial", Path, str]]) -> Parts:
    """Show trials that are run by hand: what to submit, and what is missing."""
    for trial, path, state in launches:
        yield from begun(trial)
        yield from paragraphs(f"  run {path}: {state}")
    yield note("Run the same command again once the logs are there.")


def lessons(groups: "Sequence[Replayed]") -> list[str]:
    """Return what the replay teaches: what trials find, how many they save, how sure they are."""
    number = len(groups)
    most_of_one = max(Counter(group.source for group in groups).values())
    plans = [group.plans for group in groups]
    trials = [group.trials for group in groups]
    predicted = [group.first_regret for group in groups]
    ended = [group.regret for group in groups]
    sure = [group.regret for group in groups if group.sure]
    right = sum(regret <= TRIAL_GAIN for regret in sure)
    return [
        f"In {number} series of {min(plans)} to {max(plans)} measured plans ({most_of_one} of one source), "
        f"predicted without the runs of their model on their accelerator, the plan predicted to be the "
        f"fastest takes {_mean(predicted):.1%} longer than the best in the mean and {max(predicted):.1%} at "
        f"worst, the one that trials end with {_mean(ended):.1%} and {max(ended):.1%}.",
        f"Trials end after {_mean(trials):.1f} of {_mean(plans):.1f} plans in the mean, after {max(trials)} "
        f"at most: {1 - sum(trials) / sum(plans):.0%} of the runs are saved.",
        f"Where they end since a plan is within {TRIAL_GAIN:.0%} of the best with a probability of "
        f"{STOP_PROBABILITY:.0%}, it is so in {right} of {len(sure)} series.",
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def show_replay(report: "ReplayReport", details: bool = False) -> Parts:
    """Show what the replay of published runs teaches; with `details` the scorecard: errors, lists, goals."""
    yield title_line("Trials of published runs, replayed")
    yield from paragraphs(*lessons(report.groups))
    if not details:
        yield note("\n--details: by source, with wrong predictions, in long lists, and the tuner's goals")
        return
    for prior in dict.fromkeys(row.prior for row in report.summaries):
        yield heading(f"Predictions fitted {prior}")
        rows = [
            (
                row.kind if row.wrong == report.summaries[0].wrong else row.wrong,
                str(row.groups),
                f"{row.trials:.2f}",
                f"{row.within_four:.0%}",
                f"{row.right:.0%}",
                f"{row.regret:.2%}",
                f"{row.ranked_regret:.2%}",
                f"{row.to_best:.2f}",
                f"{row.ranked_to_best:.2f}",
                "" if row.reliability is None else f"{row.reliability:.0%}",
            )
            for row in report.summaries
            if row.prior == prior
        ]
        yield table(SUMMARY_COLUMNS, rows, gap=1)
    yield from paragraphs(REPLAY_NOTE)
    yield heading("Long lists, simulated: trials in the median")
    cells = [
        (line.truth, f"{line.within:.0%}", f"{line.trials:g}", f"{line.ranked:g}")
        for line in report.long_lists
    ]
    yield table(("truth drawn from", "to", "learning", "ranked"), cells)
    yield heading("Goals")
    goals = [(line.goal, line.reached, "yes" if line.met else "no") for line in report.goals]
    yield table(("goal", "reached", "met"), goals, wrap=(0,))
