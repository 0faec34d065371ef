"""Terminal tables of a checked launch."""

import shlex
from collections.abc import Sequence
from typing import Final

from traincast.core import format_signed, gib, percent, probability_text, seconds
from traincast.launch import Checked, DifferingSetting
from traincast.planner import short_of, time_against_best
from traincast.step import Answer
from traincast.ui.text import headline
from traincast.ui.text.measured import measured_step
from traincast.ui.text.plans import Command, breakdowns, header, more_options
from traincast.ui.text.tables import Parts, heading, paragraphs, table, width

MAX_VALUE: Final = 60  # characters of a setting's value
MAX_CHANGES_LISTED: Final = 5  # changes of one setting
MAX_SETTINGS_LISTED: Final = 8  # settings of a kind


def launch(checked: Checked, command: Command | None = None, why: bool = True) -> Parts:
    """Show what was read of the launch, its estimate, the best plan, and which settings to change.

    With `why`, also all causes of the width of the interval. `command` is as in `plans.certainty`.
    """
    est = checked.est
    reading = checked.reading
    yield from headline.of_launch("This launch", est, _advice(checked), checked.measured)
    yield ""
    yield from header(est)
    if not why:
        yield from headline.narrowing_line(est)
    yield from paragraphs(f"{reading.form.title}, {len(reading.used)} settings read from {reading.path}")
    unread = [
        f"{each.setting}{f' {each.value}' if each.value != 'on' else ''} ({each.why})"
        for each in reading.unread
    ]
    yield from _names("not read though it matters", unread, len(unread))
    yield from _names("not understood, may matter", reading.not_understood, len(reading.not_understood))
    yield from _names("of small effect, not predicted", reading.small)
    yield from _names("no part of the prediction", reading.ignored)
    yield from paragraphs(*(f"assumed: {line}" for line in reading.assumed))
    yield ""
    yield from breakdowns(est, command, why)
    if checked.measured is not None:
        yield from measured_step(checked.measured)
    yield from _best(checked)
    yield from _changes(checked)
    if est.widths and not why:
        yield from more_options(["--why: all causes of the interval's width"])


def _advice(checked: Checked) -> str:
    """Return how far the best plan is, and the first setting to change, in a line."""
    change = checked.changes[0] if checked.changes else checked.together
    if checked.est.verdict == "fits" and checked.together is not None:
        change = checked.together  # it is said only where it gains more than any single change
    gap = ""
    if checked.best is not None and checked.gap is not None and checked.best is not checked.est:
        gap = f"{format_signed(checked.gap)} on the best plan; "
    if change is None and (likelier := _likelier(checked)) is not None:
        odds = probability_text(likelier[1].fits_probability or 0.0)
        return f"{gap}another plan fits with {odds} probability: below"
    if change is None and gap and checked.est.verdict == "fits":
        return f"{gap}its settings differ in more than three: below"
    if change is None:
        return _nothing_helps(checked)
    first, *more = _setting_lines(checked, change.settings)
    effect = f"gains {percent(change.gain)}" if checked.est.verdict == "fits" else "helps it fit"
    named = [f"{first} and {len(more)} more", f"{len(more) + 1} settings together"] if more else [first]
    forms = [f"{start}{setting}: {effect}" for start in (gap, "") for setting in named]
    return next((form for form in forms if len(form) <= width()), gap.removesuffix("; "))


def _nothing_helps(checked: Checked) -> str:
    """Return what no change of a few settings does."""
    helps = {"fits": "is faster and fits", "uncertain": "is likelier to fit", "does not fit": "makes it fit"}
    return f"no change of one, two or three settings {helps[checked.est.verdict]}"


def _names(title: str, names: Sequence[str], limit: int = MAX_SETTINGS_LISTED) -> Parts:
    """Show the first `limit` settings under a title, and how many more there are."""
    if names:
        more = f" and {len(names) - limit} more" if len(names) > limit else ""
        yield from paragraphs(f"{', '.join(names[:limit])}{more}", title=title)


def _best(checked: Checked) -> Parts:
    """Show how far the launch is from the best plan, and the settings of that plan that differ."""
    best = checked.best
    gap = checked.gap
    recommended = checked.found.recommended
    title = checked.reading.form.title
    if checked.est.verdict == "uncertain":
        if (likelier := _likelier(checked)) is not None:
            yield heading(f"What {title} can run on these GPUs, if this launch does not fit")
            yield from paragraphs(_instead(likelier))
        return
    yield heading(f"The best plan that {title} can run on these GPUs")
    if best is None or gap is None:
        yield "none fits"
        return
    if best is checked.est:
        chosen = ""
        if recommended is not None:
            surer = [each.fits_probability or 0.0 for each in (recommended[1], best)]
            chosen = f": the recommended plan takes {seconds(recommended[1].step_seconds)}"
            if surer[0] > surer[1]:
                odds, own = map(probability_text, surer)
                odds = f"it fits with {odds} probability, this launch with {own}"
                chosen += f", and is chosen since {odds}: {recommended[0]}"
        yield from paragraphs(f"none is faster{chosen}")
        return
    if recommended is not None and recommended[0] == checked.est.plan:
        yield from paragraphs("none is recommended before it; the fastest:")
    short = "" if checked.est.verdict == "fits" else ", and does not fit"
    time = seconds(best.step_seconds)
    yield from paragraphs(f"{time}, {best.plan}: this launch takes {format_signed(gap)}{short}")
    lines = _setting_lines(checked, checked.bench.differences(best.plan))
    yield from paragraphs(*(f"  {line}" for line in lines))


def _likelier(checked: Checked) -> Answer | None:
    """Return the recommended plan where it is likelier to fit than a launch that may, else None."""
    recommended = checked.found.recommended
    own = checked.est.fits_probability or 0.0
    if checked.est.verdict != "uncertain" or recommended is None:
        return None
    return recommended if (recommended[1].fits_probability or 0.0) > own else None


def _instead(recommended: Answer) -> str:
    """Return a plan to run in place of one that may not fit: its time, and how surely it fits."""
    plan, est = recommended
    odds = "" if est.fits_probability is None else f", fits with {probability_text(est.fits_probability)}"
    return f"{seconds(est.step_seconds)}{odds}: {plan}"


def _changes(checked: Checked) -> Parts:
    """Show the changes of one setting that help, and the best combination of two or three."""
    yield heading("What to change")
    listed = [(change, "") for change in checked.changes[:MAX_CHANGES_LISTED]]
    together = [] if checked.together is None else [(checked.together, "together:\n")]
    rows = [
        (
            *(percent(change.gain), seconds(change.est.step_seconds), gib(change.est.memory_bytes)),
            *([] if odds is None else [probability_text(odds)]),
            title + "\n".join(_setting_lines(checked, change.settings)),
        )
        for change, title in listed + together
        for odds in (change.fits_probability,)
    ]
    if rows:
        fits = [] if checked.est.fits_probability is None else ["fits"]
        last = 3 + len(fits)
        yield table(("gain", "step", "memory", *fits, "change"), rows, left=(last,), wrap=(last,))
    elif (likelier := _likelier(checked)) is not None:
        plan, est = likelier
        lines = _setting_lines(checked, checked.bench.differences(plan))
        odds = probability_text(est.fits_probability or 0.0)
        yield f"to the plan above, which fits with {odds} probability{':' if lines else ''}"
        yield from paragraphs(*(f"  {line}" for line in lines))
    else:
        yield _nothing_helps(checked)


def _setting_lines(checked: Checked, settings: Sequence[tuple[str, object, object]]) -> list[str]:
    return [_setting_line(setting) for setting in checked.spelled(tuple(settings))]


def _setting_line(setting: DifferingSetting) -> str:
    """Return a setting that is changed, added or dropped as text."""
    name, old, new = setting.setting, *map(_short, (setting.old, setting.new))
    if new is not None and name.startswith("--"):
        new = shlex.quote(new)
    if new is None:
        return f"without {name}{'' if old == 'on' else f' {old}'}"
    return f"{name}{'' if new == 'on' else f' {new}'}" + ("" if old in (None, "on") else f" (is {old})")


def _short(value: str | None) -> str | None:
    """Return a value, cut where it is a long list, such as the modules of each stage."""
    if value is None or len(value) <= MAX_VALUE:
        return value
    return f"{value[:MAX_VALUE]}… (whole with --json)"


def misfit_advice(checked: Checked) -> str:
    """Return by how much a launch does not fit, and the smallest change that makes it fit."""
    short = f"{checked.reading.path}: the launch does not fit: {short_of(checked.est)}"
    change = checked.changes[0] if checked.changes else checked.together
    if change is None:
        return f"{short}\n    {_nothing_helps(checked)}"
    settings = "; ".join(_setting_lines(checked, change.settings))
    memory = gib(change.est.memory_bytes)
    time = time_against_best(change.est, checked.est)
    settings = settings if settings.startswith("without ") else f"with {settings}"
    fits = "would fit" if change.est.verdict == "fits" else "may fit"
    odds = change.fits_probability
    sure = "" if odds is None else f" (probability {probability_text(odds)})"
    return f"{short}\n    {fits} {settings}{sure}: {memory}, {time}"
