"""Commands on measured machines and runs: `measure`, `profile`, `calibrate`, `validate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from traincast.core import ErrorCollector, InputError, check_output
from traincast.ui import outputs, text
from traincast.ui.cli.app import (
    Force,
    HtmlFile,
    Json,
    command,
    given_words,
    option,
    output_option,
    question_option,
    several,
)
from traincast.ui.cli.completion import names_of_assumptions, names_of_systems
from traincast.ui.cli.options import ModelName, PlanArguments
from traincast.ui.cli.output import (
    check_figure,
    check_html,
    file_name,
    print_files,
    print_json,
    progress,
    remark,
    write_html,
)
from traincast.ui.cli.quantities import parse_duration

if TYPE_CHECKING:
    from traincast.accuracy import TrainingJob

_MACHINE_FILE = (
    "File of the machine, .yaml, for --system; tables of the timings are written next to it. With --step "
    "the table of runs, .csv; else it is written next to the machine's file."
)
_BUDGET = "Time budget for everything (10min); else 120s, and 180s with --step."
_RANKS = (
    "Processes on this computer; else one for each GPU, or 2 on a CPU. Not with torchrun, srun or mpirun."
)
_STEP = "Train small GPTs under several plans instead, and compare with what is predicted."
_MEASURED_SYSTEM = "With --step: the file of this machine, as it was measured."
_SHAPES = (
    "With --step: shapes in place of the usual ones, with commas, each hidden x layers x heads x sequence x "
    "vocabulary x sequences of a step, such as 256x4x4x128x4096x8; +lora16 or +experts8 behind it."
)
_CALIBRATED = "With --step: where the machine calibrated to half of the shapes is written, .yaml."


@command("Measure and validate", "measure")
def measure(
    *,
    output: Annotated[Path | None, output_option(_MACHINE_FILE)] = None,
    budget: Annotated[str | None, option(_BUDGET)] = None,
    ranks: Annotated[int | None, option(_RANKS)] = None,
    threads: Annotated[
        int | None, option("Threads of a rank on a CPU; else the cores divided by the ranks.")
    ] = None,
    step: Annotated[bool, option(_STEP)] = False,
    system: Annotated[str | None, option(_MEASURED_SYSTEM)] = None,
    shapes: Annotated[str | None, option(_SHAPES)] = None,
    calibrated: Annotated[Path | None, output_option(_CALIBRATED)] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Measure this machine with the installed PyTorch: GEMMs, attention, memory, launches, collectives.

    Example: traincast measure --budget 120 --output this-machine.yaml
    """
    from traincast.accuracy import DEFAULT_BUDGET_SECONDS
    from traincast.accuracy import measure as measure_machine

    errors = ErrorCollector("measure")
    limit = None if budget is None else errors.catch(parse_duration, budget, "--budget")
    if step:
        from traincast.accuracy import TrainingJob, parse_shapes

        file = errors.catch(_machine_file, system) or Path("machine.yaml")
        table = file.with_name(f"{file.stem}.steps.csv") if output is None else output
        shapes_wanted = () if shapes is None else errors.catch(parse_shapes, shapes) or ()
        seconds = limit or TrainingJob.budget
        job = TrainingJob(table, seconds, ranks, threads, shapes_wanted)
        errors.catch(job.check, calibrated, force)
        errors.raise_any()
        _measure_steps(job, file, calibrated, json)
        return
    step_options = {"--system": system, "--shapes": shapes, "--calibrated": calibrated}
    wrong = [f"{name}: goes with --step" for name, value in step_options.items() if value is not None]
    if output is None:
        wrong.insert(0, "--output: give the file that the machine is written to, such as this-machine.yaml")
    errors.add(wrong)
    path = errors.require(output)
    seconds = limit or DEFAULT_BUDGET_SECONDS
    with progress("measuring") as report_progress:
        measured = measure_machine(
            path, budget=seconds, ranks=ranks, threads=threads, force=force, progress=report_progress
        )
    if measured is None:  # not the first rank, which alone reports
        return
    if json:
        print_json(outputs.accuracy.MeasureOutput(None, measured, measured.file_names))
    else:
        text.tables.show(text.accuracy.measured_machine(measured))


def _measure_steps(job: "TrainingJob", file: Path, calibrated: Path | None, json: bool) -> None:
    """Train small GPTs under several plans, predict the same steps, and print the prediction errors."""
    from traincast.accuracy import (
        compare_with_predictions,
        measure_steps,
        partial_path,
        with_system,
        write_rows,
    )

    with progress("training steps") as report_progress:
        rows = measure_steps(job, report_progress)
    if not job.first:  # not the first rank, which alone reports
        return
    table = job.output
    write_rows(table, with_system(rows, file, table.parent))
    partial_path(table).unlink(missing_ok=True)
    comparison = compare_with_predictions(rows, file, calibrated)
    if json:
        files = [str(path) for path in (table, calibrated) if path is not None]
        print_json(outputs.accuracy.MeasureOutput(comparison, None, files))
    else:
        text.tables.show(text.accuracy.training_steps(comparison))
        print_files(table)


def _machine_file(system: str | None) -> Path:
    """Return the machine's file once it can be read."""
    from traincast.catalog import load_system

    if system is None or Path(system).suffix not in (".yaml", ".yml", ".json"):
        wanted = "give the file that traincast measure has written of this machine"
        raise InputError("--system", [f"{system!r}: {wanted}"])
    load_system(system)
    return Path(system)


_PROFILE = "Profile of one rank: torch.profiler's JSON, or an export of Nsight Systems (SQLite, CSV)."


@command("Measure and validate", "profiles")
def profile(
    model: ModelName,
    /,
    *,
    trace: Annotated[Path, option(_PROFILE)],
    question: PlanArguments,
    output: Annotated[Path | None, output_option("Figure of the parts: .svg, .pdf or .png.")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Show where a profiled step went, beside the prediction: compute, exposed communication, gaps.

    Example: traincast profile llama-3-8b --trace examples/my_cluster/profile.json --system dgx-h100 --tp 2 --dp 4 --gbs 32 --output parts.svg
    """  # noqa: E501
    from traincast.accuracy import profile

    errors = ErrorCollector("profile")
    errors.catch(check_figure, output, force)
    est = errors.require(
        errors.catch(question.estimate, model, errors=ErrorCollector("profile"), real_machine=True)
    )
    result = profile(trace, est)
    if output is not None:
        from traincast.ui.figures import profiled_step, save

        save(profiled_step(result), output)
    if json:
        print_json(outputs.accuracy.ProfileOutput(est.job, est, result, file_name(output)))
    else:
        header = text.plans.header(est, question.run.usual(est.model))
        text.tables.show(header, text.accuracy.profile(result))
        print_files(output)


FileList = list[Path] | None
_BASE_SYSTEM = "The system of the catalogue, or the file, that is most like yours."
_LOGS = "Logs of frameworks or MLPerf, a Trainer's state, exported step times, profiles."
_PRODUCTS = "Tables of timed GEMMs, CSV files with m, n, k and a time or TFLOP/s."
_LAUNCHES = "Launch scripts or configurations of the logs: one of all, or one of each."
_SET = "Values of variables that launches take from outside, such as NNODES=8."
_CALIBRATED_SYSTEM = "File of the calibrated system, .yaml, for --system; else the fit is only printed."
_HOW_TO_KEEP = "--output my.yaml keeps the calibrated system, for plan MODEL --system my.yaml"
_GIVEN = "Values that logs and tables do not hold, such as model=llama-3-8b seq=4096."


@command("Measure and validate", "calibration")
def calibrate(
    *,
    system: Annotated[str, question_option(_BASE_SYSTEM, metavar="SYSTEM", completer=names_of_systems)],
    runs: Annotated[
        FileList, several("Tables of runs, CSV: model,gpus,seq,precision,tp,gbs,step_seconds, …")
    ] = None,
    log: Annotated[FileList, several(_LOGS)] = None,
    nccl: Annotated[FileList, several("Output of nccl-tests, rccl-tests or all_reduce_bench.")] = None,
    gemm: Annotated[FileList, several(_PRODUCTS)] = None,
    config: Annotated[Path | None, option("Configuration of the runs whose logs do not hold it.")] = None,
    launch: Annotated[FileList, several(_LAUNCHES)] = None,
    variables: Annotated[list[str] | None, several(_SET, name="--set")] = None,
    given: Annotated[list[str] | None, several(_GIVEN)] = None,
    output: Annotated[Path | None, output_option(_CALIBRATED_SYSTEM)] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Calibrate a system to your own measurements: a few runs, logs, nccl-tests, GEMMs. Three runs help.

    A log and its launch are enough: what neither says is asked for at once. Without --output the fitted
    figures and errors are printed, and no file is written.

    Example: traincast calibrate --system dgx-h100 --runs examples/my_cluster/runs.csv --output my.yaml
    """
    from traincast.accuracy import fitted_to, read_measurements
    from traincast.ui.cli.quantities import pairs_of

    errors = ErrorCollector("calibrate")
    errors.catch(check_output, output, force, (".yaml", ".yml"))
    words = given_words(given or ())
    settings = errors.catch(pairs_of, "--given", words, "model=llama-3-8b")
    if settings is None:  # those that are right, so that no message requests them again
        pairs = (text.partition("=") for text in words)
        settings = {name: value for name, _, value in pairs if name and value}
    outside = errors.catch(pairs_of, "--set", variables or (), "NNODES=8", values=False)
    files = (runs or (), log or (), nccl or (), gemm or ())
    measured = errors.catch(read_measurements, system, *files, config, settings, launch or (), outside)
    with progress("calibrating"):
        result = fitted_to(system, errors.require(measured))
    if output is not None:
        result.write(output, force)
    if json:
        print_json(outputs.accuracy.CalibrateOutput(result, file_name(output)))
    else:
        text.tables.show(text.calibration.calibration(result, output))
        if output is None:
            remark(f"traincast: nothing is written; {_HOW_TO_KEEP}")


_RUNS = "Table of runs, a CSV file with the columns of the bundled one; the bundled one without it."
_ASSUMED = "What is assumed: calibrated (each run with its own software stack), a stack, or paper."
_KERNELS = "Tables of timed kernels (CSV, Parquet, folders) to predict instead of runs."
_FIGURE = "Figure of predicted against measured times, and of what errors correlate with: .svg, .pdf or .png."


@command("Measure and validate", "validation", "scoreboard")
def validate(
    *,
    runs: Annotated[Path | None, option(_RUNS)] = None,
    kernels: Annotated[tuple[Path, ...] | None, option(_KERNELS)] = None,
    assumptions: Annotated[str, option(_ASSUMED, completer=names_of_assumptions)] = "calibrated",
    output: Annotated[Path | None, output_option(_FIGURE)] = None,
    html: HtmlFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Predict measured training runs, and say by source how far the predictions are off.

    Example: traincast validate --output parity.svg
    """
    if kernels:
        given = {"--runs": runs, "--output": output, "--html": html}
        if together := [name for name, value in given.items() if value is not None]:
            raise InputError("validate", [f"{name}: not with --kernels" for name in together])
        _validate_kernels(kernels, json)
        return
    from traincast.accuracy import validate

    errors = ErrorCollector("validate")
    errors.catch(check_html, html, force)
    errors.catch(check_figure, output, force)
    errors.raise_any()
    with progress("validating"):
        report = validate(runs, assumptions, parts=output is not None or html is not None)
        if output is not None:
            from traincast.ui.figures import save

            save(text.accuracy.accuracy_figure(report), output)
        if html is not None:
            from traincast.ui.html import accuracy_report

            write_html(accuracy_report.page(report, *([] if runs is None else [str(runs)])), html)
    if json:
        print_json(outputs.accuracy.ValidateOutput(report, file_name(output), file_name(html)))
    else:
        text.tables.show(text.accuracy.validation(report))
        print_files(output, html)


def _validate_kernels(tables: tuple[Path, ...], json: bool) -> None:
    """Predict timed kernels, and show by machine and size how far the predictions are off."""
    from traincast.accuracy import validate_kernels

    with progress("validating"):
        report = validate_kernels(tables)
    if json:
        print_json(report)
    else:
        text.tables.show(text.accuracy.kernels(report))
