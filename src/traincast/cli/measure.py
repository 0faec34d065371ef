"""The command that measures the user's own machine: `measure`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from traincast.cli.common import Json, app, print_json, progress


@app.command
def measure(
    *,
    output: Annotated[Path, Parameter(help="File of the machine, .yaml, for --system; tables of what was timed go beside it.")],
    budget: Annotated[float, Parameter(help="Time for all of it [s].")] = 120.0,
    ranks: Annotated[
        int | None,
        Parameter(help="Processes on this computer; else one for each GPU, or 2 on a CPU. Not with torchrun, srun or mpirun."),
    ] = None,
    threads: Annotated[int | None, Parameter(help="Threads of a rank on a CPU; else the cores shared out.")] = None,
    force: Annotated[bool, Parameter(negative="", help="Overwrite the output.")] = False,
    json: Json = False,
) -> None:
    """Measure this machine with the PyTorch that is installed: products, attention, memory, launches, collectives.

    Example: traincast measure --budget 120 --output this-machine.yaml
    """
    from traincast import measure as measure_machine

    with progress("measuring") as told:
        found = measure_machine(output, budget=budget, ranks=ranks, threads=threads, force=force, told=told)
    if found is None:  # a rank that has measured for the first
        return
    if json:
        print_json(found.to_dict())
    else:
        from traincast.report import console
        from traincast.report_measure import print_measured

        print_measured(found, console())
