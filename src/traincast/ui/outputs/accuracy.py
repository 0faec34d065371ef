"""What `validate`, `calibrate`, `measure` and `profile` print with `--json`."""

from typing import Annotated

from traincast.accuracy import Calibration, MeasuredMachine, ProfiledStep, Report, StepComparison
from traincast.core import INLINE, Doc, Result
from traincast.ui.outputs.about_plan import AboutPlan
from traincast.ui.outputs.reference import Answer, HtmlReport


class ValidateOutput(Answer):
    """Predictions of measured training runs."""

    report: Annotated[Report, INLINE]
    figure: Annotated[str | None, Doc("with `--output`: the figure drawn", optional=True)] = None
    html: HtmlReport = None


class CalibrateOutput(Answer):
    """A system calibrated to measurements."""

    calibration: Annotated[Calibration, INLINE]
    output: Annotated[str | None, Doc("file that was written; null without `--output`")]


class MeasureOutput(Result):
    """The machine as it was measured, or its training steps with `--step`."""

    steps: Annotated[
        StepComparison | None, Doc("with `--step`: training steps and their predictions", optional=True)
    ]
    machine: Annotated[MeasuredMachine | None, INLINE]
    files: Annotated[list[str], Doc("files written: the machine file, or the table of runs, first")]


class ProfileOutput(AboutPlan):
    """A profiled step beside its prediction."""

    profile: Annotated[ProfiledStep, INLINE]
    figure: Annotated[str | None, Doc("figure that was drawn")]
