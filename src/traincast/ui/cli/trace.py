"""The command that simulates a step: `trace`."""

import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from traincast.core.errors import ErrorCollector, InputError
from traincast.core.plan import Plan
from traincast.ui.cli.app import OUTPUT, Force, Json, app, print_json
from traincast.ui.cli.options import (
    NO_RUN_OPTIONS,
    Assumed,
    ModelName,
    PlanOptions,
    RunArguments,
    SystemName,
    estimate_of_options,
    warn_of_misfit,
)


@app.command
def trace(
    model: ModelName,
    /,
    *,
    system: SystemName,
    plan: PlanOptions = None,
    options: RunArguments = NO_RUN_OPTIONS,
    output: Annotated[
        Path | None,
        Parameter(group=OUTPUT, help="Where the trace goes, for Perfetto: .json, or compressed .json.gz."),
    ] = None,
    figure: Annotated[
        Path | None, Parameter(group=OUTPUT, help="Where a drawing of it goes: .svg, .pdf or .png.")
    ] = None,
    stages: Annotated[
        str | None, Parameter(group=OUTPUT, help="Only these stages in the output, such as 0,1,6-7.")
    ] = None,
    micro_batches: Annotated[
        str | None,
        Parameter(group=OUTPUT, help="Only passes of these micro-batches in the output, such as 0-15."),
    ] = None,
    assumptions: Assumed = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Show the step of one plan as it runs: every pass of every micro-batch on every stage, and every wait.

    Example: traincast trace llama-3-70b --system dgx-h100 --tp 4 --pp 8 --vp 5 --dp 4 --gbs 128 --output trace.json
    """
    from traincast.analysis import chrome_trace
    from traincast.analysis.trace import trace
    from traincast.core.output_files import check_output

    errors = ErrorCollector("trace")
    if output is not None:
        errors.catch(check_output, output, force, chrome_trace.ENDINGS)
    if figure is not None:
        errors.catch(check_output, figure, force, (".svg", ".pdf", ".png"))
    selection = [
        errors.catch(_numbers, name, text) or ()
        for name, text in (("--stages", stages), ("--micro-batches", micro_batches))
    ]
    est = errors.require(
        errors.catch(estimate_of_options, options, model, system, plan or Plan(), assumptions)
    )
    step_trace = trace(est)
    if output is not None:
        chrome_trace.write(step_trace, output, force, *selection)
    if figure is not None:
        from traincast.ui.figures import save, timeline

        save(timeline(step_trace), figure)
    files = {
        name: None if path is None else str(path) for name, path in (("output", output), ("figure", figure))
    }
    if json:
        from traincast.ui.outputs.analyses import TraceOutput

        print_json(TraceOutput(job=est.job, estimate=est, trace=step_trace.record(), **files))
    else:
        from traincast.ui.text.plans import console, print_header
        from traincast.ui.text.trace import print_trace

        out = console()
        print_header(est, out, options.leaves_batch(est.model))
        print_trace(step_trace, out)
        for path in filter(None, files.values()):
            print(path)
    warn_of_misfit(est)


def _numbers(name: str, text: str | None) -> tuple[int, ...]:
    """Read whole numbers and ranges separated by commas, such as 0,1,6-7."""
    numbers: list[int] = []
    for word in [] if text is None else text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", word, re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise InputError(name, [f"{text!r}: write numbers and ranges with commas, such as 0,1,6-7"])
        numbers += range(first, last + 1)
    return tuple(numbers)
