"""Commands on plans: `plan`, `estimate`, `memory`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from traincast.core.errors import ErrorCollector
from traincast.core.plan import Plan
from traincast.ui.cli.app import (
    OUTPUT,
    QUESTION,
    SEARCH,
    Force,
    HtmlFile,
    Json,
    app,
    check_html,
    file_name,
    print_json,
    progress,
    write_html,
)
from traincast.ui.cli.completion import names_of_frameworks, names_of_strategies
from traincast.ui.cli.options import (
    NO_LOCKS,
    NO_RUN_OPTIONS,
    Assumed,
    LockOptions,
    ModelName,
    PlanOptions,
    RunArguments,
    RunOptions,
    SystemName,
    estimate_of_options,
    require_fit,
)

if TYPE_CHECKING:
    from traincast.planner.explain import Explanation
    from traincast.planner.search import Found


@app.command
def plan(
    model: ModelName,
    /,
    *,
    system: SystemName,
    gpus: Annotated[int, Parameter(group=QUESTION, help="GPUs in the job; a plan uses all of them.")],
    options: RunArguments = NO_RUN_OPTIONS,
    framework: Annotated[
        str | None,
        Parameter(
            group=SEARCH,
            completer=names_of_frameworks,
            help="Search what this framework can run: megatron, torchtitan, deepspeed, paper, or any.",
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        Parameter(
            group=SEARCH,
            completer=names_of_strategies,
            help="Ways to cut a layer: 1d, summa, context, ring, ulysses, hybrid, several with commas.",
        ),
    ] = None,
    objective: Annotated[
        Literal["time", "throughput", "cost", "memory"],
        Parameter(group=SEARCH, help="What is best; all but memory rank as time does."),
    ] = "time",
    top: Annotated[int, Parameter(group=SEARCH, help="How many plans to show.")] = 10,
    locks: LockOptions = NO_LOCKS,
    assumptions: Assumed = None,
    html: HtmlFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Find the best plan that a framework can run. Any knob can be held to one value, such as --tp 8 or --zero 3.

    Example: traincast plan llama-3-70b --system dgx-h100 --gpus 512 --global-batch 512
    """
    from traincast.planner.search import search_request

    errors = ErrorCollector("search")
    errors.catch(check_html, html, force)
    model_read, machine, gbs = options.read(errors, model, system)
    locked = {name: value for name, value in vars(locks).items() if value is not None}
    choices: dict[str, Any] = {
        "assumptions": assumptions,
        "strategy": strategy,
        "framework": framework,
        "locks": locked,
    }
    question = errors.require(
        search_request(errors, model_read, machine, (gpus,), gbs, top=top, objective=objective, **choices)
    )
    with progress("search") as report_progress:
        begin = time.perf_counter()
        (result,) = question.answer(report_progress)
        best = result.best
        elapsed = time.perf_counter() - begin
    explanation = result.explain()
    if html is not None:
        _report_search(result, explanation, options, html)
    if json:
        from traincast.ui.outputs.plans import SearchOutput

        print_json(SearchOutput(result.record(**options.metrics_arguments()), file_name(html)))
    elif best is not None:
        from traincast.ui.text.plans import console, print_header, print_search

        out = console()
        print_header(result, out, options.leaves_batch(result.model))
        print_search(result, explanation, elapsed, options.metrics(best[1]), out)
    if html is not None and not json:
        print(html)
    result.require_best()


def _report_search(result: "Found", explanation: "Explanation", options: RunOptions, html: Path) -> None:
    """Write the report on a search."""
    from traincast.ui.html import search_report
    from traincast.ui.text.plans import remarks

    measures = None if result.best is None else options.metrics(result.best[1])
    write_html(
        search_report.page(
            result, explanation, measures, remarks(result, options.leaves_batch(result.model))
        ),
        html,
    )


@app.command
def estimate(
    model: ModelName,
    /,
    *,
    system: SystemName,
    plan: PlanOptions = None,
    options: RunArguments = NO_RUN_OPTIONS,
    operations: Annotated[
        bool, Parameter(negative="", group=OUTPUT, help="Show every operation of a layer as well.")
    ] = False,
    assumptions: Assumed = None,
    html: HtmlFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Estimate one plan: time and memory of a step. Without any --fast-* the fastest placement is chosen.

    Example: traincast estimate gpt3-1t --system h200-nvs8 --tp 8 --pp 16 --dp 16
    """
    errors = ErrorCollector("estimate")
    errors.catch(check_html, html, force)
    est = estimate_of_options(options, model, system, plan or Plan(), assumptions, errors=errors)
    if html is not None:
        from traincast.ui.html import plan_report
        from traincast.ui.text.plans import remarks

        write_html(
            plan_report.page(est, options.metrics(est), remarks(est, options.leaves_batch(est.model))), html
        )
    if json:
        from traincast.ui.outputs.plans import EstimateOutput

        rows = est.operation_rows() if operations else None
        print_json(
            EstimateOutput(
                job=est.job,
                estimate=est,
                metrics=options.metrics(est),
                operations=rows,
                html=file_name(html),
            )
        )
    else:
        from traincast.ui.text.plans import (
            console,
            print_breakdowns,
            print_header,
            print_metrics,
            print_operations,
        )

        out = console()
        print_header(est, out, options.leaves_batch(est.model))
        print_breakdowns(est, out)
        print_metrics(options.metrics(est), out)
        if operations:
            print_operations(est, out)
        if html is not None:
            print(html)
    require_fit(est)


@app.command
def memory(
    model: ModelName,
    /,
    *,
    system: SystemName,
    plan: PlanOptions = None,
    options: RunArguments = NO_RUN_OPTIONS,
    assumptions: Assumed = None,
    json: Json = False,
) -> None:
    """Show the memory of every stage of the pipeline by component, and what to change where it does not fit.

    Without a global batch of the model or on the command line, as many micro-batches are taken as fill the pipeline.

    Example: traincast memory mixtral-8x7b --system dgx-h100 --seq 4096 --tp 2 --ep 8 --dp 32
    """
    given = plan or Plan()
    est = estimate_of_options(
        options, model, system, given, assumptions, usual=given.dp * given.mbs * 2 * given.pp
    )
    if json:
        from traincast.analysis.per_parameter import bytes_per_parameter_of
        from traincast.ui.outputs.plans import MemoryOutput

        print_json(
            MemoryOutput(
                job=est.job,
                estimate=est,
                devices=est.device_rows(),
                bytes_per_parameter=bytes_per_parameter_of(est),
            )
        )
    else:
        from traincast.ui.text.advice import print_bytes_per_parameter
        from traincast.ui.text.plans import console, print_devices, print_header

        out = console()
        print_header(est, out, options.leaves_batch(est.model), timed=False)
        print_devices(est, out)
        print_bytes_per_parameter(est, out)
    require_fit(est)
