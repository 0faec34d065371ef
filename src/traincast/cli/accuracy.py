"""Commands on measured runs: `validate`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from traincast.cli.common import Json, app, print_json


@app.command
def validate(
    *,
    runs: Annotated[
        Path | None, Parameter(help="Table of runs, a CSV file with the columns of the bundled one; the bundled one without it.")
    ] = None,
    assumptions: Annotated[
        str, Parameter(help="What is assumed: calibrated (each run with its own software stack), a stack, or paper.")
    ] = "calibrated",
    json: Json = False,
) -> None:
    """Predict measured training runs, and say by source how far the predictions are off.

    Example: traincast validate
    """
    from traincast.validate import validate

    report = validate(runs, assumptions)
    if json:
        print_json(report.to_dict())
    else:
        from traincast.report import console, print_validation

        print_validation(report, console())
