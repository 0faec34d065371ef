"""The command that advises on a plan and a model: `advise`."""

from typing import Annotated

from cyclopts import Parameter

from traincast.core.plan import Plan
from traincast.ui.cli.app import Json, app, print_json
from traincast.ui.cli.options import (
    NO_RUN_OPTIONS,
    Assumed,
    ModelName,
    PlanOptions,
    RunArguments,
    SystemName,
    estimate_of_options,
    require_fit,
)


@app.command
def advise(
    model: ModelName,
    /,
    *,
    system: SystemName,
    plan: PlanOptions = None,
    options: RunArguments = NO_RUN_OPTIONS,
    step_seconds: Annotated[
        float | None,
        Parameter(help="Measured time of a step [s], for FLOP/s and MFU; the predicted one without it."),
    ] = None,
    network_share: Annotated[
        float, Parameter(help="Share of the step that may wait for bandwidth between nodes.")
    ] = 0.05,
    assumptions: Assumed = None,
    json: Json = False,
) -> None:
    """Advise on a model and plan: bytes per parameter, FLOP/s, better sizes, micro-batch, network, and rules of thumb.

    Tiles, waves and losses of a real machine are known to calibrated assumptions, not to those of the paper.

    Example: traincast advise gpt3-175b --system dgx-a100 --tp 8 --pp 8 --dp 4
    """
    from traincast.analysis.advise import advise

    est = estimate_of_options(options, model, system, plan or Plan(), assumptions)
    advice = advise(est, step_seconds=step_seconds, network_share=network_share)
    if json:
        from traincast.ui.outputs.analyses import AdviseOutput

        print_json(AdviseOutput(job=est.job, estimate=est, advice=advice))
    else:
        from traincast.ui.text.advice import print_advice
        from traincast.ui.text.plans import console, print_header

        out = console()
        print_header(est, out, options.leaves_batch(est.model))
        print_advice(advice, out)
    require_fit(est)
