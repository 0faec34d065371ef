"""The `--step` side of the command `measure`: real training steps as the judge of predictions."""

from pathlib import Path
from typing import Final

from traincast.cli.common import print_json, progress
from traincast.errors import InputError, Mistakes

SECONDS: Final = 180.0  # budget where none is given


def judge_steps(
    system: str | None,
    ranks: int,
    threads: int,
    seconds: float | None,
    output: Path | None,
    calibrated: Path | None,
    shapes: str | None,
    force: bool,
    json: bool,
) -> None:
    """Train small GPTs under several plans, predict the same, and say how far predictions are off."""
    from traincast.load import load_system
    from traincast.measuring.grid import shapes_of
    from traincast.measuring.judge import judged, measured_steps, of_system, partial_of, write_rows
    from traincast.measuring.ranks import detected
    from traincast.written import check_output

    mistakes = Mistakes("measure --step")
    if system is None or not system.endswith((".yaml", ".yml", ".json")):
        mistakes.errors.append(
            InputError("--system", [f"{system!r}: give the file that traincast measure has written of this machine"])
        )
    else:
        mistakes.of(load_system, system)
    file = Path(system or "machine.yaml")
    output = file.with_name(f"{file.stem}.steps.csv") if output is None else output
    rank = detected()
    first = rank is None or rank.rank == 0
    if first:
        mistakes.of(check_output, output, force, (".csv",))
        if calibrated is not None:
            mistakes.of(check_output, calibrated, force, (".yaml", ".yml"))
    wanted = () if shapes is None else mistakes.of(shapes_of, shapes) or ()
    mistakes.tell()
    with progress("training steps") as told:
        table = measured_steps(
            output, ranks, threads, seconds or SECONDS, shapes=wanted, rank=rank, told=lambda done, of: told(done, of, 0)
        )
    if not first:
        return
    write_rows(output, of_system(table, file, output.parent))
    partial_of(output).unlink(missing_ok=True)
    found = judged(table, file, calibrated)
    if json:
        print_json(found.to_dict() | {"output": str(output), "calibrated": None if calibrated is None else str(calibrated)})
        return
    from traincast.report import console
    from traincast.report_steps import print_judgement

    print_judgement(found, console())
    print(output)
