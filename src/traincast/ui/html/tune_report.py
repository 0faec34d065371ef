"""HTML report on trials: the best plan, how sure that is, every trial, and what was learnt of the machine."""

from typing import Final

from traincast.accuracy import Calibration
from traincast.core import count_of, percent, probability_text, seconds
from traincast.tuner import TuneReport
from traincast.ui.html.rendering import Page, Pairs, Table, Tiles
from traincast.ui.text.calibration import CONSTANT_COLUMNS, constant_cells
from traincast.ui.text.tuning import MOST_SHARE, TRIAL_COLUMNS, conclusion, trial_cells

CONSTANTS: Final = "Constants that the trials determine"


def page(report: TuneReport, calibration: Calibration | None = None) -> Page:
    """Return the report on trials."""
    job = report.job
    constants = [] if calibration is None else list(map(constant_cells, calibration.determined))
    trials = [(*trial_cells(trial), trial.why) for trial in report.trials]
    content: dict[str, object] = {
        "answer": conclusion(report),
        "summary": list(_summary(report)),
        "question": list(_question(report)),
        "trials": Table("Trials", (*TRIAL_COLUMNS, "why"), trials, ("plan", "measured", "why")),
        "constants": Table(CONSTANTS, CONSTANT_COLUMNS, constants),
    }
    title = f"{job.model} on {count_of(job.gpus, 'GPU')} of {job.system}"
    remarks = [f"a step of {count_of(job.global_batch, 'sequence')} of {job.seq:,} tokens"]
    remarks.append(f"predicted with {job.assumptions}")
    return Page("Trials", title, remarks, "tune.html.jinja", content, fits=report.best is not None)


def _summary(report: TuneReport) -> Tiles:
    if report.best is None:
        return
    yield "Best step", seconds(report.best.seconds), f"trial {report.best.trial}"
    within = probability_text(min(report.remaining.within, MOST_SHARE))
    yield "Within 1% of the best", within, f"of {report.candidates:,} candidates"
    yield "Remaining gain", percent(report.remaining.gain or 0.0), "expected of all further trials"
    if report.learnt is not None:
        interval = f"{report.learnt.low:.3g} to {report.learnt.high:.3g}, 90%"
        yield "Measured over predicted", f"{report.learnt.factor:.3g}", interval


def _question(report: TuneReport) -> Pairs:
    yield "Candidates", f"{report.candidates:,} plans that may fit and may be the fastest"
    yield "Launched with", report.launched or "a launch of the user"
    yield "Trials", f"{len(report.trials)}, which took {seconds(sum(trial.took for trial in report.trials))}"
    yield "No further trial", report.stopped or "there may be more"
