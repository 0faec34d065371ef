"""Terminal tables of a measured step against the predicted one."""

from typing import Final

from traincast.core import number_text, percent, probability_text, seconds
from traincast.step import MeasuredStep
from traincast.ui.text.headline import distance
from traincast.ui.text.tables import Parts, heading, paragraphs, table

CAUSES: Final = "What alone would make it as slow, the smallest change first"
CAUSE_COLUMNS: Final = ("", "predicted", "needed", "in a profile")
SURELY_NO_CHANCE: Final = 0.05  # probability below which something else than chance is likelier


def measured_step(measured: MeasuredStep) -> Parts:
    """Show how far a measured step is from what is expected, how likely by chance, and what explains it."""
    mfu = "" if measured.mfu is None else f", {percent(measured.mfu)} MFU as Megatron-LM counts it"
    yield heading(f"Measured: {seconds(measured.step_seconds)} a step{mfu}")
    yield from paragraphs(*sentences(measured))
    if not measured.causes:
        return
    yield heading(CAUSES)
    yield table(CAUSE_COLUMNS, causes(measured), left=(0, 3), wrap=(3,))


def sentences(measured: MeasuredStep) -> list[str]:
    """Return how far a measured step is from what is expected, and how likely by chance, in sentences."""
    off = distance(measured.longer_than_predicted)
    said = [f"{off} the {seconds(measured.est.step_seconds)} predicted: {_likelihood(measured)}"]
    if measured.est.verdict == "does not fit":
        said.append(
            "A plan that was measured fits: here memory is predicted too large, or what ran is another plan."
        )
    return said


def causes(measured: MeasuredStep) -> list[tuple[str, str, str, str]]:
    """Return the causes that alone would make a step as slow, with the cells of `CAUSE_COLUMNS`."""
    rows = []
    for cause in measured.causes:
        times = ("not known", "")
        if cause.factor is not None and cause.predicted_seconds is not None:
            times = (seconds(cause.predicted_seconds), f"{number_text(cause.factor, 3)} ×")
        rows.append((cause.cause, *times, cause.sign))
    return rows


def _likelihood(measured: MeasuredStep) -> str:
    """Return how likely it is that a measured step is so far off by chance, in words."""
    chance = measured.chance
    interval = measured.est.interval
    if chance is None or interval is None:
        return "how likely that is by chance is not known, as errors of these assumptions are not"
    low, high = map(seconds, interval)
    side = "slow" if measured.est.median_seconds < measured.step_seconds else "fast"
    odds = f"a run with nothing wrong is at least as {side} with {probability_text(chance)} probability"
    if measured.within_interval:
        return f"{odds}. That is within the 90% interval ({low} to {high}): as can be expected."
    if chance < SURELY_NO_CHANCE:
        return f"{odds}. That is outside the 90% interval ({low} to {high}): hardly by chance."
    return f"{odds}."
