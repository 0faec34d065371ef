"""Terminal tables of a checked launch."""

from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console

from traincast.core.units import gib, percent, seconds, signed
from traincast.launch.check import Checked, DifferingSetting
from traincast.launch.suggestions import EstimatedChange
from traincast.planner.misfit import short_of, time_against_best
from traincast.ui.text.plans import borderless_table, heading, paragraphs, print_breakdowns, print_header

MAX_CHANGES_LISTED: Final = 5  # changes of one setting
MAX_SETTINGS_LISTED: Final = 8  # settings of a kind


def print_checked(checked: Checked, out: Console) -> None:
    """Print what was read of the launch, its estimate, the best plan, and which settings to change."""
    est, reading = checked.est, checked.reading
    print_header(est, out)
    out.print(f"{reading.path}: {reading.form.title}; {len(reading.used)} settings read")
    unread = [f"{name}{f' {value}' if value != 'on' else ''} ({why})" for name, value, why in reading.unread]
    _print_names("not read though it matters", unread, out, len(unread))
    _print_names("not understood, may matter", reading.not_understood, out, len(reading.not_understood))
    _print_names("of small effect, not predicted", reading.small, out)
    _print_names("no part of the prediction", reading.ignored, out)
    paragraphs([f"assumed: {line}" for line in reading.assumed], out)
    out.print()
    print_breakdowns(est, out)
    _print_best(checked, out)
    _print_changes(checked, out)


def _print_names(title: str, names: Sequence[str], out: Console, limit: int = MAX_SETTINGS_LISTED) -> None:
    """Print the first `limit` settings under a title, and how many more there are."""
    if names:
        more = f" and {len(names) - limit} more" if len(names) > limit else ""
        paragraphs([f"{title}: {', '.join(names[:limit])}{more}"], out)


def _print_best(checked: Checked, out: Console) -> None:
    """Print how far the launch is from the best plan, and the settings of that plan that differ."""
    best, gap = checked.found.best, checked.gap
    out.print(heading(f"The best plan that {checked.reading.form.title} can run on these GPUs"))
    if best is None or gap is None:
        out.print("none fits")
        return
    if gap <= 0 and checked.est.fits:
        out.print(f"none is faster: the best of the search takes {seconds(float(best[1].step_seconds))}")
        return
    short = "" if checked.est.fits else ", and does not fit"
    out.print(f"{seconds(float(best[1].step_seconds))}, {best[0]}: this launch takes {signed(gap)}{short}")
    paragraphs([f"  {line}" for line in _setting_lines(checked, checked.bench.differing(best[0]))], out)


def _print_changes(checked: Checked, out: Console) -> None:
    """Print the changes of one setting that help, and the best combination of two or three."""
    out.print(heading("What to change"))
    if not checked.changes and checked.together is None:
        out.print(
            "no change of one, two or three settings is faster and fits"
            if checked.est.fits
            else "no change makes it fit"
        )
        return
    table = borderless_table()
    for name, justify in (("gain", "right"), ("step", "right"), ("memory", "right"), ("change", "left")):
        table.add_column(name, justify=justify, no_wrap=name != "change")  # type: ignore[arg-type]
    together = [] if checked.together is None else [checked.together]
    for change in (*checked.changes[:MAX_CHANGES_LISTED], *together):
        gain = percent(checked.gain(change))
        memory = gib(float(change.est.memory_bytes))
        table.add_row(
            gain,
            seconds(float(change.est.step_seconds)),
            memory,
            "\n".join(_setting_lines(checked, change.settings)),
        )
    out.print(table)


def _setting_lines(checked: Checked, settings: Sequence[tuple[str, Any, Any]]) -> list[str]:
    """Return the settings that differ, a line each."""
    return [_setting_line(setting) for setting in checked.spelled(tuple(settings))]


def _setting_line(setting: DifferingSetting) -> str:
    """Return a setting that is changed, added or dropped as text."""
    name, old, new = setting.setting, setting.old, setting.new
    if new is None:
        return f"without {name}{'' if old == 'on' else f' {old}'}"
    return f"{name}{'' if new == 'on' else f' {new}'}" + ("" if old in (None, "on") else f" (is {old})")


def misfit_advice(checked: Checked) -> str:
    """Return by how much a launch does not fit, and the smallest change that makes it fit."""
    short = f"{checked.reading.path}: the launch does not fit: {short_of(checked.est)}"
    change: EstimatedChange | None = checked.changes[0] if checked.changes else checked.together
    if change is None:
        return f"{short}\n    no change of one, two or three settings makes it fit"
    settings = "; ".join(_setting_lines(checked, change.settings))
    memory, time = gib(float(change.est.memory_bytes)), time_against_best(change.est, checked.est)
    return f"{short}\n    would fit with {settings}: {memory}, {time}"
