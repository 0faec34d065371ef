"""The command that measures the user's own machine: `measure`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from traincast.core.errors import ErrorCollector, InputError
from traincast.ui.cli.app import OUTPUT, Force, Json, app, print_json, progress


@app.command
def measure(
    *,
    output: Annotated[
        Path | None,
        Parameter(
            group=OUTPUT,
            help="File of the machine, .yaml, for --system; tables of what was timed go beside it. With --step the table of runs, "
            ".csv; else it goes beside the machine's file.",
        ),
    ] = None,
    budget: Annotated[
        float | None, Parameter(help="Time for all of it [s]; else 120, and 180 with --step.")
    ] = None,
    ranks: Annotated[
        int | None,
        Parameter(
            help="Processes on this computer; else one for each GPU, or 2 on a CPU. Not with torchrun, srun or mpirun."
        ),
    ] = None,
    threads: Annotated[
        int | None, Parameter(help="Threads of a rank on a CPU; else the cores shared out.")
    ] = None,
    step: Annotated[
        bool,
        Parameter(
            negative="",
            help="Train small GPTs under several plans instead, and compare with what is predicted.",
        ),
    ] = False,
    system: Annotated[
        str | None, Parameter(help="With --step: the file of this machine, as it was measured.")
    ] = None,
    shapes: Annotated[
        str | None,
        Parameter(
            help="With --step: shapes in place of the usual ones, with commas, each hidden x layers x heads x sequence x "
            "vocabulary x sequences of a step, such as 256x4x4x128x4096x8."
        ),
    ] = None,
    calibrated: Annotated[
        Path | None,
        Parameter(
            group=OUTPUT,
            help="With --step: where the machine calibrated to half of the shapes is written, .yaml.",
        ),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Measure this machine with the PyTorch that is installed: products, attention, memory, launches, collectives.

    Example: traincast measure --budget 120 --output this-machine.yaml
    """
    from traincast.accuracy.measure.measure import DEFAULT_BUDGET_SECONDS
    from traincast.accuracy.measure.measure import measure as measure_machine

    if step:
        judge_steps(system, ranks, threads, budget, output, calibrated, shapes, force, json)
        return
    machine = _required_output(output, {"--system": system, "--shapes": shapes, "--calibrated": calibrated})
    with progress("measuring") as report_progress:
        measured = measure_machine(
            machine,
            budget=DEFAULT_BUDGET_SECONDS if budget is None else budget,
            ranks=ranks,
            threads=threads,
            force=force,
            progress=report_progress,
        )
    if measured is None:  # not the first rank, which alone reports
        return
    if json:
        from traincast.ui.outputs.accuracy import MeasureOutput

        record = measured.record()
        print_json(MeasureOutput(None, record, record.files))
    else:
        from traincast.ui.text.machine import print_measured
        from traincast.ui.text.plans import console

        print_measured(measured, console())


def _required_output(output: Path | None, others: dict[str, object]) -> Path:
    """Return the file that the machine is written to; raise if it is missing or options of --step are given."""
    wrong = [f"{name}: goes with --step" for name, value in others.items() if value is not None]
    if output is None:
        wrong.insert(0, "--output: give the file that the machine is written to, such as this-machine.yaml")
    if wrong or output is None:
        raise InputError("measure", wrong)
    return output


def judge_steps(
    system: str | None,
    ranks: int | None,
    threads: int | None,
    budget: float | None,
    output: Path | None,
    calibrated: Path | None,
    shapes: str | None,
    force: bool,
    json: bool,
) -> None:
    """Train small GPTs under several plans, predict the same steps, and print the prediction errors."""
    from traincast.accuracy.measure.training.compare import (
        DEFAULT_BUDGET_SECONDS,
        TrainingJob,
        compare_with_predictions,
        measure_steps,
        partial_path,
        with_system,
        write_rows,
    )
    from traincast.accuracy.measure.training.shapes import parse_shapes

    errors = ErrorCollector("measure")
    file = errors.catch(_machine_file, system) or Path("machine.yaml")
    table = file.with_name(f"{file.stem}.steps.csv") if output is None else output
    shapes_wanted = () if shapes is None else errors.catch(parse_shapes, shapes) or ()
    job = TrainingJob(
        table, DEFAULT_BUDGET_SECONDS if budget is None else budget, ranks, threads, shapes_wanted
    )
    errors.catch(job.check, calibrated, force)
    errors.raise_any()
    with progress("training steps") as report_progress:
        rows = measure_steps(job, report_progress)
    if not job.first:  # not the first rank, which alone reports
        return
    write_rows(table, with_system(rows, file, table.parent))
    partial_path(table).unlink(missing_ok=True)
    judgement = compare_with_predictions(rows, file, calibrated)
    if json:
        from traincast.ui.outputs.accuracy import MeasureOutput

        files = [str(path) for path in (table, calibrated) if path is not None]
        print_json(MeasureOutput(judgement.record(), None, files))
        return
    from traincast.ui.text.plans import console
    from traincast.ui.text.training_steps import print_judgement

    print_judgement(judgement, console())
    print(table)


def _machine_file(system: str | None) -> Path:
    """Return the machine's file once it can be read."""
    from traincast.catalog.load import load_system

    if system is None or Path(system).suffix not in (".yaml", ".yml", ".json"):
        raise InputError(
            "--system", [f"{system!r}: give the file that traincast measure has written of this machine"]
        )
    load_system(system)
    return Path(system)
