"""Terminal tables of predictions against measurements, calibrations, measured machines and training steps."""

from collections import Counter
from typing import TYPE_CHECKING, Final

from traincast.core import count_of, quantity, seconds
from traincast.ui.text.calibration import ERRORS_STILL_LARGE, LARGE_MEAN_ERROR
from traincast.ui.text.tables import Parts, heading, paragraphs, table, title_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from traincast.accuracy import (
        ErrorSummary,
        KernelReport,
        MeasuredMachine,
        ProfiledStep,
        Report,
        StepComparison,
    )

NAME_WIDTH: Final = 24  # characters of the type and library of kernels
MAX_SKIPPED_LISTED: Final = 20  # more rows are summarised by reason
MAX_PROBLEMS_LISTED: Final = 8  # of a measured machine
MAX_IDLE_SPREAD: Final = 0.1  # of samples of a product; wider with other load (idle: 0.01 to 0.03)
COLUMNS: Final = ("source", "n", "MAPE", "median", "bias", "worst", "rank", "regret", "of 3", "memory")
FORMS: Final = {  # figure of a summary -> its format, in the order of `COLUMNS`
    "mape": ".1%",
    "median": ".1%",
    "bias": "+.1%",
    "worst": ".0%",
    "spearman": ".2f",
    "regret": ".1%",
    "best_of_three": ".1%",
    "memory": ".1%",
}
STEP_ERRORS: Final = (
    "Errors are predicted over measured step time, less 1; the spread is the middle half of the steps over "
    "their median. Of the plans of one shape that compete: rank correlation, how much slower the one ranked "
    "first really is (regret), and the best of the three ranked first. The machine is calibrated to the "
    "steps of every other shape; those of the others are left out."
)
KERNEL_ERRORS: Final = (
    "Errors are the mean of predicted over measured time, less 1, in absolute value, of ordinary sizes: with "
    "the rate that the catalogue states, that of steady training; with one rate for the group, relative "
    "to it (own); with the rate of the other machines. Then by size, with the group's rate: up to 3e10, "
    "3e11 and 3e12 FLOP (collectives: 64 KiB, 1 MiB, 50 MB), and above."
)
MACHINE_TITLES: Final = {
    "before": "as measured",
    "fitted": "calibrated: fitted",
    "left_out": "calibrated: left out",
}


def validation(report: "Report") -> Parts:
    """Show the errors of predictions by source and in total, and why rows were skipped."""
    skipped = [prediction for prediction in report.predictions if prediction.skipped is not None]
    predicted = len(report.predictions) - len(skipped)
    runs = f"{predicted:,} of {len(report.predictions):,} measured runs predicted"
    yield title_line(f"{runs}; assumptions: {report.assumptions}")
    rows = [(summary.source, *summary_cells(summary)) for summary in report.summaries]
    rows += [(f"all {summary.source}", *summary_cells(summary)) for summary in report.totals]
    first_total = len(report.summaries)
    yield table(COLUMNS, rows, gap=1, style=lambda row: "bold" if row >= first_total else None)
    yield ""
    yield from paragraphs(*error_explanations(report), *fit_verdicts(report), stated_facts(report))
    if 0 < len(skipped) <= MAX_SKIPPED_LISTED:
        yield heading("Skipped")
        yield from paragraphs(*(f"{prediction.id}: {prediction.skipped}" for prediction in skipped))
    elif skipped:
        yield heading(f"Skipped: {len(skipped)} rows, each for all its reasons")
        yield from paragraphs(*(f"{count:>4}: {reason}" for reason, count in report.skipped.items()))


def fit_verdicts(report: "Report") -> list[str]:
    """Return sentences on how right the verdicts of fit are; none where no row has one."""
    total = report.fits.total
    near = report.fits.near_capacity
    if total.brier is None:
        return []
    called = [f"{total.ran_called_no:,} of {total.ran:,} rows that ran are called no"]
    if total.out_of_memory:
        wrong = f"{total.out_of_memory_called_fits:,} of {total.out_of_memory:,}"
        called.append(f"{wrong} that ran out of memory fit")
    certain = f"{total.certain_and_wrong:,} verdicts are wrong with more than 95% certainty"
    brier = f"Brier score {total.brier:.3f}"
    if near.brier is not None:
        brier += f", {near.brier:.3f} of {near.rows:,} rows within 20% of capacity"
    lines = [f"Does it fit: {', '.join(called)}; {certain}; {brier}."]
    if report.assumed_out:
        what = f"Without a speed and without memory: {count_of(report.assumed_out, 'row')}"
        lines.append(f"{what}, which count as out of memory unless the column outcome says ran.")
    lines += [f"No verdict on {count_of(n, 'row')}: {why}." for why, n in report.fits.not_judged.items()]
    return lines


def stated_facts(report: "Report") -> str:
    """Return how many of the rows read state each fact of their software."""
    shares = ", ".join(f"{fact} {share:.1%}" for fact, share in report.stated.items() if share)
    return f"Rows that state facts of their software: {shares or 'none'}. The others have defaults."


def kernels(report: "KernelReport") -> Parts:
    """Show the errors of timed kernels by machine, type and library, and of each kind in the mean."""
    heads = ("machine", "type, library", "n", "stated", "rate", "own", "others'", "by", "size", "[%]", "")
    for kind in dict.fromkeys(group.kind for group in report.groups):
        groups = [group for group in report.groups if group.kind == kind]
        yield heading(f"{kind}: {report.mean(kind):.1%} with one rate for each group of {len(groups)}")
        rows = [
            (
                group.machine,
                f"{group.dtype}, {group.library.rpartition('_')[2]}"[:NAME_WIDTH],
                str(group.n),
                f"{group.catalogue:.0%}",
                f"{group.rate:.2f}",
                f"{group.own:.1%}",
                "" if group.left_out is None else f"{group.left_out:.0%}",
                *("" if error is None else f"{100 * error:.0f}" for error in group.bands),
            )
            for group in groups
        ]
        yield table(heads, rows, gap=1)
        yield ""
    yield from paragraphs(KERNEL_ERRORS)
    if report.left_out_rows:
        yield heading("Left out")
        yield from paragraphs(*(f"{n:>7,}: {reason}" for reason, n in report.left_out_rows.items()))


def summary_cells(summary: "ErrorSummary") -> list[str]:
    """Return the cells of a summary: errors of step time, of ranking and of memory."""
    figures = ((getattr(summary, name), form) for name, form in FORMS.items())
    return [str(summary.n), *("" if value is None else format(value, form) for value, form in figures)]


def error_explanations(report: "Report") -> list[str]:
    """Return sentences that explain the table of errors."""
    lines = [
        "Errors are predicted over measured step time, less 1. Of plans that differ in nothing else: rank "
        "correlation, how much slower the one ranked first really is (regret), and the best of the three "
        "ranked first."
    ]
    for summary in report.summaries:
        if summary.weight < summary.n:
            composed = f"are composed of {summary.composed_of} numbers and count as so many in all."
            lines.append(f"The {summary.n} rows of {summary.source} {composed}")
    if report.coverage is not None:
        limits = "lie in the 90% limits of their predictions (docs/uncertainty.md)"
        lines.append(f"{report.coverage:.0%} of the measured times {limits}.")
    if (left := report.unsaid) is not None:
        rows = f"{left.n:,} of these rows leave" if left.n > 1 else "1 of these rows leaves"
        fare = f"{left.coverage:.0%} of their times lie in the limits, {left.mape:.1%} off in the mean"
        lines.append(f"{rows} open what software ran, fully or in part: {fare}.")
    if any((total.mape or 0) > LARGE_MEAN_ERROR for total in report.totals):
        lines.append(ERRORS_STILL_LARGE)
    return lines


def accuracy_figure(report: "Report") -> "Figure":
    """Draw predicted against measured step times, and the parts of the step that errors correlate with.

    The predictions have to know their parts (``validate(..., parts=True)``).
    """
    import numpy as np

    from traincast.ui.figures import accuracy

    timed = report.timed
    measured = np.array([run.measured_step_seconds for run in timed])
    predicted = np.array([run.predicted_step_seconds for run in timed])
    families = [run.family for run in timed]
    moe = np.array([run.id in report.moe for run in timed], bool)
    causes = [(part.source, part.n, part.causes, part.unexplained) for part in report.budgets()]
    title = f"{len(timed):,} measured runs, assumptions: {report.assumptions}"
    return accuracy(measured, predicted, families, moe, causes, title)


def profile(step: "ProfiledStep") -> Parts:
    """Show the parts of a profiled step beside the predicted ones, and its collectives."""
    device = f" on {step.device}" if step.device else ""
    yield title_line(f"{step.file}: {count_of(step.steps, 'step')}{device}")
    if not step.has_marks:
        yield from paragraphs("It marks no steps (ProfilerStep, or an NVTX range): all of it counts as one.")
    parts = [(each.name, each.seconds, each.predicted_seconds) for each in step.parts]
    rows = [
        (name, seconds(time), f"{time / step.step_seconds:.1%}", *_against(time, predicted))
        for name, time, predicted in [*parts, ("step", step.step_seconds, step.predicted_seconds)]
        if time or predicted
    ]
    yield table(("", "measured", "share", "predicted", "difference"), rows)
    if step.dispatch is not None and step.dispatch.seconds:
        inside = seconds(step.dispatch.inside_seconds)
        between = seconds(step.dispatch.between_seconds)
        yield from paragraphs(
            f"Of the dispatch gaps {inside} are inside operators (intra-operator dispatch), {between} between"
            " them (inter-operator: Python, hooks)."
        )
    if step.operations:
        yield heading("Operations")
        operations = [
            (each.name, seconds(each.seconds), *_against(each.seconds, each.predicted_seconds))
            for each in step.operations
        ]
        yield table(("", "measured", "predicted", "difference"), operations)
    if step.collectives:
        yield heading("Collectives")
        names = ("", "calls a step", "running", "exposed")
        collectives = [
            (each.collective, f"{each.calls:g}", seconds(each.seconds), seconds(each.exposed_seconds))
            for each in step.collectives
        ]
        yield table(names, collectives)
    yield from paragraphs(step.summary)


def _against(measured: float, predicted: float | None) -> tuple[str, str]:
    """Return the cells of a predicted time [s], and of what the measured one is above it."""
    return ("", "") if predicted is None else (seconds(predicted), seconds(measured - predicted))


def measured_machine(machine: "MeasuredMachine") -> Parts:
    """Show the machine, its figures, and the prediction errors on its own benchmarks."""
    about = machine.about
    spread = machine.spread["products"]
    yield title_line(str(machine.document["title"]))
    started = f"{count_of(int(about['threads']), 'thread')} a rank, started by {about['launcher']}"
    facts = (f"torch {about['torch']}, {started}", about["driver"], f"host {about['host']}")
    yield ", ".join(filter(None, facts))
    counts = Counter(row.task.family for row in machine.rows)
    yield "timed: " + ", ".join(f"{family} {number}" for family, number in counts.items())
    if spread > MAX_IDLE_SPREAD:
        wide = f"The middle half of a product's samples spreads over {spread:.0%} of its time"
        shared = "the machine had other work, and these figures include it; else stop it, and use --force."
        yield from paragraphs(f"{wide}: {shared}")
    yield from _measured_figures(machine)
    yield heading("Prediction errors of the file on its own tables")
    errors = [
        (
            *(f"{error.family} {error.kind}", str(error.rows), f"{error.mape:.1%}", f"{error.bias:+.1%}"),
            error.worst.split("/", 1)[1],
        )
        for error in machine.errors
    ]
    totals = [error.kind == "all" for error in machine.errors]
    names = ("what", "rows", "MAPE", "bias", "worst")
    yield table(names, errors, left=(0, 4), style=lambda row: "bold" if totals[row] else None)
    yield from paragraphs(
        "Predicted over measured median, less 1, of kernels and collectives one by one; a training step also "
        "depends on how they follow each other. Memory: kernels that move 1 MiB and more. Collectives are "
        "large from 256 KiB."
    )
    for task, problem in list(machine.problems.items())[:MAX_PROBLEMS_LISTED]:
        yield f"left out: {task}: {problem}"
    yield heading("Written")
    yield from map(str, machine.files)


def _measured_figures(machine: "MeasuredMachine") -> Parts:
    document = machine.document
    parts = {"accelerator": document["accelerator"]}
    parts |= {f"network: {tier['name']}": tier for tier in document["network"]}
    parts |= {f"software: {stack['stack']}": stack for stack in document["software"][:1]}
    rows: list[tuple[str, ...]] = []
    for part, entries in parts.items():
        measured = [
            (f"  {name}", *(_figure_text(name, figure.get(end)) for end in ("value", "low", "high")))
            for name, figure in entries.items()
            if isinstance(figure, dict) and figure.get("basis") == "measured"
        ]
        rows += [(part,), *measured] if measured else []
    yield heading("Figures")
    names = ("figure", "value", "low", "high")
    yield table(names, rows, style=lambda row: "bold" if len(rows[row]) == 1 else None)
    yield from paragraphs("Low and high: the same from the times that 5 and 95 of 100 samples are below.")


def _figure_text(name: str, value: object) -> str:
    """Return a figure as the system file spells it; durations of software, bare numbers there, get a unit."""
    if value is None:
        return ""
    return seconds(float(str(value))) if name.endswith("_seconds") else str(value)


def training_steps(comparison: "StepComparison") -> Parts:
    """Show every step, errors by shape, and total errors before and after calibration."""
    yield title_line(f"{len(comparison.table)} training steps measured: {comparison.source}")
    rows = []
    for row, step in zip(comparison.table, comparison.rows, strict=True):
        measured = float(row["step_seconds"])
        cells = [step.id, quantity(measured, "s"), f"{step.spread:.0%}"]
        cells += _prediction_cells(step.predicted_step_seconds, measured, step.skipped)
        if step.half:
            calibrated = _prediction_cells(step.calibrated_step_seconds, measured, step.skipped)
            cells += [*calibrated, step.half]
        rows.append(cells)
    calibrated_names = ("calibrated", "error", "") if comparison.calibration else ()
    names = ("step", "measured", "spread", "predicted", "error", *calibrated_names)
    yield table(names, rows, left=(0, 7), gap=1)
    shapes = [(summary.source, *summary_cells(summary)) for summary in comparison.before.summaries]
    yield table(("shape", *COLUMNS[1:]), shapes, gap=1)
    totals = [
        (MACHINE_TITLES[name], *summary_cells(summary))
        for name, summary in vars(comparison.errors).items()
        if summary is not None
    ]
    yield table(("machine", *COLUMNS[1:]), totals, gap=1)
    yield ""
    yield from paragraphs(STEP_ERRORS)


def _prediction_cells(predicted: float | None, measured: float, skipped: str | None) -> tuple[str, str]:
    """Return the cells of a prediction: its step time, or why it was skipped, and its error."""
    if predicted is None:
        return skipped or "", ""
    return quantity(predicted, "s"), f"{predicted / measured - 1:+.1%}"
