"""Commands on plans: `plan`, `estimate`, `memory`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from traincast.core.errors import ErrorCollector
from traincast.ui.cli.app import (
    Force,
    HtmlFile,
    Json,
    app,
    check_html,
    file_name,
    output_option,
    print_files,
    print_json,
    progress,
    search_option,
    write_html,
)
from traincast.ui.cli.app import question as question_option
from traincast.ui.cli.completion import names_of_frameworks, names_of_strategies
from traincast.ui.cli.options import (
    NO_LOCKS,
    NO_RUN_OPTIONS,
    Assumed,
    LockOptions,
    ModelName,
    PlanArguments,
    RunArguments,
    RunOptions,
    SystemName,
    locked_values,
    require_fit,
)

if TYPE_CHECKING:
    from traincast.planner.explain import Explanation
    from traincast.planner.search import Found

_FRAMEWORK = "Search what this framework can run: megatron, torchtitan, deepspeed, paper, or any."
_STRATEGY = "Ways to cut a layer: 1d, summa, context, ring, ulysses, hybrid, several with commas."
Objective = Literal["time", "throughput", "cost", "memory"]


@app.command
def plan(
    model: ModelName,
    /,
    *,
    system: SystemName,
    gpus: Annotated[int, question_option("GPUs in the job; a plan uses all of them.")],
    options: RunArguments = NO_RUN_OPTIONS,
    framework: Annotated[str | None, search_option(_FRAMEWORK, completer=names_of_frameworks)] = None,
    strategy: Annotated[str | None, search_option(_STRATEGY, completer=names_of_strategies)] = None,
    objective: Annotated[
        Objective, search_option("What is best; all but memory rank as time does.")
    ] = "time",
    top: Annotated[int, search_option("How many plans to show.")] = 10,
    locks: LockOptions = NO_LOCKS,
    assumptions: Assumed = None,
    html: HtmlFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Find the best plan that a framework can run.

    Any knob can be held to one value, such as --tp 8 or --zero 3.

    Example: traincast plan llama-3-70b --system dgx-h100 --gpus 512 --global-batch 512
    """
    from traincast.planner.search import search_request

    errors = ErrorCollector("search")
    errors.catch(check_html, html, force)
    model_read, machine, gbs = options.read(errors, model, system)
    choices: dict[str, Any] = {
        "assumptions": assumptions,
        "strategy": strategy,
        "framework": framework,
        "locks": locked_values(locks),
    }
    request = errors.require(
        search_request(errors, model_read, machine, (gpus,), gbs, top=top, objective=objective, **choices)
    )
    with progress("search") as report_progress:
        begin = time.perf_counter()
        (result,) = request.answer(report_progress)
        best = result.best
        elapsed = time.perf_counter() - begin
    explanation = result.explain()
    if html is not None:
        _report_search(result, explanation, options, html)
    if json:
        from traincast.ui.outputs.plans import SearchOutput

        print_json(SearchOutput(result.record(**options.metrics_arguments()), file_name(html)))
    elif best is not None:
        from traincast.ui.text import plans as text
        from traincast.ui.text.tables import show

        show(
            text.header(result, options.leaves_batch(result.model)),
            text.search(result, explanation, elapsed, options.metrics(best[1])),
        )
    if not json:
        print_files(html)
    result.require_best()


def _report_search(result: "Found", explanation: "Explanation", options: RunOptions, html: Path) -> None:
    from traincast.ui.html import search_report
    from traincast.ui.text.plans import remarks

    measures = None if result.best is None else options.metrics(result.best[1])
    notes = remarks(result, options.leaves_batch(result.model))
    write_html(search_report.page(result, explanation, measures, notes), html)


@app.command
def estimate(
    model: ModelName,
    /,
    *,
    question: PlanArguments,
    operations: Annotated[bool, output_option("Show every operation of a layer as well.")] = False,
    html: HtmlFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Estimate one plan: time and memory of a step. Without any --fast-* the fastest placement is chosen.

    Example: traincast estimate gpt3-1t --system h200-nvs8 --tp 8 --pp 16 --dp 16
    """
    from traincast.ui.text import plans as text

    errors = ErrorCollector("estimate")
    errors.catch(check_html, html, force)
    est = question.estimate(model, errors=errors)
    measures, usual_batch = question.run.metrics(est), question.run.leaves_batch(est.model)
    if html is not None:
        from traincast.ui.html import plan_report

        write_html(plan_report.page(est, measures, text.remarks(est, usual_batch)), html)
    if json:
        from traincast.ui.outputs.plans import EstimateOutput

        rows = est.operation_rows() if operations else None
        print_json(EstimateOutput(est.job, est, measures, rows, file_name(html)))
    else:
        from traincast.ui.text.tables import show

        show(text.header(est, usual_batch), text.breakdowns(est), text.utilisation(measures))
        if operations:
            show(text.operations(est))
        print_files(html)
    require_fit(est)


@app.command
def memory(model: ModelName, /, *, question: PlanArguments, json: Json = False) -> None:
    """Show the memory of every stage of the pipeline by component, and what to change where it does not fit.

    Without a global batch of the model or on the command line, as many micro-batches are taken as fill the
    pipeline.

    Example: traincast memory mixtral-8x7b --system dgx-h100 --seq 4096 --tp 2 --ep 8 --dp 32
    """
    knobs = vars(question.knobs)
    est = question.estimate(model, usual=knobs["dp"] * knobs["mbs"] * 2 * knobs["pp"])
    if json:
        from traincast.analysis.per_parameter import bytes_per_parameter_of
        from traincast.ui.outputs.plans import MemoryOutput

        print_json(MemoryOutput(est.job, est, est.device_rows(), bytes_per_parameter_of(est)))
    else:
        from traincast.ui.text import plans as text
        from traincast.ui.text.analysis import bytes_per_parameter
        from traincast.ui.text.tables import show

        usual_batch = question.run.leaves_batch(est.model)
        show(text.header(est, usual_batch, timed=False), text.stage_memory(est), bytes_per_parameter(est))
    require_fit(est)
