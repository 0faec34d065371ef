"""The `--step` side of the command `measure`: real training steps as the judge of predictions."""

from pathlib import Path

from traincast.cli.common import print_json, progress
from traincast.core.errors import InputError, Mistakes


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
    """Train small GPTs under several plans, predict the same, and say how far predictions are off."""
    from traincast.accuracy.measure.training.compare import BUDGET, Job, judged, measured_steps, of_system, partial_of, write_rows
    from traincast.accuracy.measure.training.shapes import shapes_of

    mistakes = Mistakes("measure")
    file = mistakes.of(_machine_file, system) or Path("machine.yaml")
    table = file.with_name(f"{file.stem}.steps.csv") if output is None else output
    wanted = () if shapes is None else mistakes.of(shapes_of, shapes) or ()
    job = Job(table, BUDGET if budget is None else budget, ranks, threads, wanted)
    mistakes.of(job.check, calibrated, force)
    mistakes.tell()
    with progress("training steps") as told:
        rows = measured_steps(job, told)
    if not job.first:  # a rank that has trained for the first
        return
    write_rows(table, of_system(rows, file, table.parent))
    partial_of(table).unlink(missing_ok=True)
    found = judged(rows, file, calibrated)
    if json:
        print_json({"steps": found.to_dict(), "files": [str(one) for one in (table, calibrated) if one is not None]})
        return
    from traincast.report import console
    from traincast.report_steps import print_judgement

    print_judgement(found, console())
    print(table)


def _machine_file(system: str | None) -> Path:
    """The file of the machine, which can be read."""
    from traincast.catalog.load import load_system

    if system is None or Path(system).suffix not in (".yaml", ".yml", ".json"):
        raise InputError("--system", [f"{system!r}: give the file that traincast measure has written of this machine"])
    load_system(system)
    return Path(system)
