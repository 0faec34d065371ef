"""Outputs of `validate`, `calibrate` and `measure`."""

from traincast.ui.json_schema.vocabulary import (
    REPORT,
    Schema,
    by_name,
    flag,
    listed,
    number,
    or_null,
    record,
    text,
    whole_number,
)

_SUMMARY = record(
    "errors of a group of runs; relative ones are shares of the measured value",
    {
        "n": whole_number("runs predicted"),
        "skipped": whole_number("runs that cannot be"),
        "weight": number("independent runs among them"),
        "mape": or_null(number("mean absolute relative error of step times")),
        "median": or_null(number("median of the same")),
        "bias": or_null(number("mean relative error")),
        "worst": or_null(number("largest absolute relative error")),
        "groups": whole_number("sets of plans of one model on one machine"),
        "spearman": or_null(number("rank correlation within them, mean")),
        "regret": or_null(number("time lost by taking the plan predicted first, mean")),
        "best_of_three": or_null(number("the same for the best of the three predicted first")),
        "worst_regret": or_null(number("largest regret")),
        "worst_of_three": or_null(number("the same for the best of the three")),
        "memory": or_null(number("mean absolute relative error of memory")),
    },
    title="summary",
)
VALIDATION = record(
    "predictions of measured training runs",
    {
        "assumptions": text("what was assumed"),
        "rows": listed(
            "every row of the table",
            record(
                "a row",
                {
                    "id": text("what it is called"),
                    "measured_step_seconds": or_null(number("as the table says", "s")),
                    "predicted_step_seconds": or_null(number("as predicted", "s")),
                    "low": or_null(number("lower end of the 90 % interval", "s")),
                    "high": or_null(number("upper end of the 90 % interval", "s")),
                    "measured_memory_bytes": or_null(number("as the table says", "byte")),
                    "predicted_memory_bytes": or_null(
                        number("as predicted, counted as the row counts", "byte")
                    ),
                    "skipped": or_null(text("why it is not predicted")),
                },
            ),
        ),
        "summary": by_name("errors by source", _SUMMARY),
        "totals": by_name("errors of all dense models, and of all with experts", _SUMMARY),
        "coverage": or_null(number("share of measured times that lie in their intervals")),
        "skipped": by_name("rows that are not predicted, by reason", whole_number("rows")),
    },
    sometimes={"figure": text("with `--output`: the file drawn")} | REPORT,
)


def _errors(*more: str) -> dict[str, Schema]:
    """Return the schema of errors before and after a calibration."""
    return {when: or_null(number("mean absolute relative error")) for when in ("before", "after", *more)}


_CONSTANT = record(
    "a constant",
    {
        "path": text("its name"),
        "of": listed("accelerator, network or software stack", text("a name")),
        "before": number("as the catalogue says; in SI units"),
        "value": number("fitted"),
        "low": number("lower end of its 90 % interval"),
        "high": number("upper end of its 90 % interval"),
        "determined": flag("whether the measurements determine it; else it stays as it was"),
    },
)
CALIBRATION = record(
    "a system as measurements say it is",
    {
        "system": text("what it was calibrated from"),
        "runs": whole_number("training runs used"),
        "collectives": whole_number("measured collectives used"),
        "products": whole_number("measured matrix products used"),
        "errors": record("of the runs; `held out`: each predicted without itself", _errors("held out")),
        "errors_of_others": by_name(
            "of collectives and products, where there are any", record("errors", _errors())
        ),
        "constants": listed("what was fitted", _CONSTANT),
        "left_out": listed("what could not be used", text("in words")),
        "output": text("the file written"),
    },
)

_STEPS = record(
    "with `--step`: training steps and their predictions, in place of the machine",
    {
        "source": or_null(text("where and when they were measured")),
        "rows": listed(
            "every step",
            record(
                "a step",
                {
                    "id": text("what it is called: its shape, and its plan"),
                    "measured_step_seconds": or_null(number("median of the steps", "s")),
                    "spread": number("middle half of the steps over their median"),
                    "predicted_step_seconds": or_null(number("with the machine's file", "s")),
                    "calibrated_step_seconds": or_null(
                        number("with the machine calibrated to half of the shapes", "s")
                    ),
                    "half": or_null(text("whether the calibration saw it: fitted, or left out")),
                    "skipped": or_null(text("why it is not predicted")),
                },
            ),
        ),
        "shapes": by_name("errors by shape, before calibration", _SUMMARY),
        "errors": record(
            "errors in all",
            {
                "before": or_null(_SUMMARY | {"description": "with the machine's file"}),
                "fitted": or_null(_SUMMARY | {"description": "after calibration, of the rows it saw"}),
                "left_out": or_null(_SUMMARY | {"description": "after calibration, of the others"}),
            },
        ),
        "constants": listed("what the calibration fitted", _CONSTANT),
    },
)
MEASURED = record(
    "this machine as it was measured, or its training steps",
    {"files": listed("what was written, the machine file or the table of runs first", text("a path"))},
    sometimes={
        "steps": _STEPS,
        "machine": record(
            "what it says of itself",
            {
                "device": text("the accelerator, or the processor"),
                "kind": text("what kind of device that is", "cpu", "cuda"),
                "driver": text("versions of its driver and runtime, empty for a CPU"),
                "memory_bytes": number("memory of a rank", "byte"),
                "processors": whole_number("multiprocessors of the accelerator, or threads of a rank"),
                "cores": whole_number("cores of the host that a process may use"),
                "threads": whole_number("threads of a rank"),
                "ranks": whole_number("processes that measured at once"),
                "nodes": whole_number("hosts they ran on"),
                "host": text("the first of them"),
                "launcher": text("what started them"),
                "backend": text("library of collectives: nccl, gloo, or empty with one rank"),
                "torch": text("version of PyTorch"),
                "system": text("operating system"),
                "dtypes": listed("types of products that were timed, that of training first", text("a type")),
            },
        ),
        "rows": by_name("how many things were timed, by family", whole_number("rows")),
        "spread": by_name(
            "width of the middle half of the samples relative to their median, by family",
            number("median over rows"),
        ),
        "errors": listed(
            "how well the machine file tells its own tables",
            record(
                "errors of predicted times, relative to measured medians",
                {
                    "family": text("what was timed"),
                    "kind": text(
                        "type of products, operation of anything else; small and large collectives (256 KiB); or all"
                    ),
                    "rows": whole_number("how many"),
                    "mape": number("mean absolute error"),
                    "bias": number("mean error"),
                    "worst": text("where it is largest"),
                },
            ),
        ),
        "problems": by_name("what did not work", text("why")),
    },
)
