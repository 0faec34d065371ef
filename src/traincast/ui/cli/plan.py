"""Commands on plans and their launches: `plan`, `estimate`, `memory`, `export`, `check`."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from traincast.core import ErrorCollector, NothingFits, require_known
from traincast.ui import outputs, text
from traincast.ui.cli.app import (
    Force,
    HtmlFile,
    Json,
    command,
    option,
    output_option,
    question_option,
    search_option,
)
from traincast.ui.cli.combinations import search_combinations, several_names, show_comparison
from traincast.ui.cli.completion import (
    names_of_formats,
    names_of_frameworks,
    names_of_models,
    names_of_strategies,
)
from traincast.ui.cli.options import (
    IMAGES,
    LENGTHS,
    NO_LOCKS,
    NO_RUN_OPTIONS,
    NOTHING_MEASURED,
    Assumed,
    GivenFacts,
    LockOptions,
    MeasuredArguments,
    ModelName,
    PlanArguments,
    PlanKnobs,
    PlanQuestion,
    RunArguments,
    RunOptions,
    SystemName,
    framework_typed,
    locked_values,
    read_length,
    require_fit,
    share_typed,
)
from traincast.ui.cli.output import (
    check_figure,
    check_html,
    command_with,
    file_name,
    print_files,
    print_json,
    progress,
    remark,
    write_html,
)

if TYPE_CHECKING:
    from traincast.analysis import Anatomy
    from traincast.launch import Format
    from traincast.planner import Explanation, Found
    from traincast.step import Estimate

MAX_PLANS_TRIED: Final = 10  # best plans of a search; the first that the format can express is written
_FRAMEWORK = (
    "Its plans: {frameworks}; else megatron or any, jax on TPUs, huggingface to tune, paper without vocab."
)
_STRATEGY = "Sharding: {strategies}."
_FIT_PROBABILITY = "Least probability that the plan fits; else 90%."
_WITHIN = "How much slower than the fastest it may be; else 2%."
_ALL = "Show every plan, not the best of each family."
_WHY = "Show time and memory by part, and why others lose."
_CAUSES = "Show all causes of the width of the interval, and what narrows it."
_COST = "Show what the whole run costs: GPU-hours, $, energy."
_TIMELINE = "Draw the memory of the fullest rank over a step: .svg, .pdf or .png."
_REJECTED = "Show how many candidates break each rule."
Objective = Literal["time", "throughput", "cost", "memory"]


@command("Ask about a run", "tutorial", "training", "nomenclature")
def plan(
    model: ModelName,
    /,
    *,
    system: SystemName,
    gpus: Annotated[int, question_option("GPUs in the job; a plan uses all of them.")],
    options: RunArguments = NO_RUN_OPTIONS,
    framework: Annotated[str | None, search_option(_FRAMEWORK, completer=names_of_frameworks)] = None,
    strategy: Annotated[str | None, search_option(_STRATEGY, completer=names_of_strategies)] = None,
    objective: Annotated[Objective, search_option("time, throughput, cost or memory.")] = "time",
    top: Annotated[int, search_option("How many plans to show.")] = 10,
    exhaustive: Annotated[bool, search_option("Time every plan that fits: no bounds on time.")] = False,
    fit_probability: Annotated[str | None, search_option(_FIT_PROBABILITY, metavar="SHARE")] = None,
    within: Annotated[str | None, search_option(_WITHIN, metavar="SHARE")] = None,
    all_: Annotated[bool, search_option(_ALL, name="--all", negative="")] = False,
    why: Annotated[bool, output_option(_WHY)] = False,
    cost: Annotated[bool, output_option(_COST)] = False,
    rejected: Annotated[bool, output_option(_REJECTED)] = False,
    locks: LockOptions = NO_LOCKS,
    assumptions: Assumed = None,
    given: GivenFacts = None,
    html: HtmlFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Recommend the plan to run: likely to fit, and as fast as any.

    Any knob can be locked, such as --tp 8. Systems with commas are compared.

    Example: traincast plan llama-3-70b --system dgx-h100 --gpus 512 --global-batch 512
    """
    from traincast.planner import Question, report_progress_to, search_request

    if several := several_names(model, system, framework):
        not_there = {
            "--objective": objective != "time",
            "--top": top != MAX_PLANS_TRIED,
            "--exhaustive": exhaustive,
            "--all": all_,
            "--why": why,
            "--rejected": rejected,
            "--html": html is not None,
            "--force": force,
        }
        errors = ErrorCollector("plan")
        one = "of one model on one system; compare takes several"
        errors.add([f"{name}: {one}" for name, is_given in not_there.items() if is_given])
        shared = Question(
            strategy=strategy,
            locks=locked_values(locks),
            fit_probability=errors.catch(share_typed, fit_probability),
            within=errors.catch(share_typed, within),
        )
        typed = replace(several, gpus=[gpus], assumptions=[assumptions])
        show_comparison(search_combinations(errors, options, typed, shared), json)
        return
    errors = ErrorCollector("search")
    errors.catch(check_html, html, force)
    if framework is not None and (named := ErrorCollector("").catch(framework_typed, framework)):
        framework = named.label
    model_read, machine, gbs = options.read_run(errors, model, system)
    question = Question(
        model=model_read,
        system=machine,
        gpus=(gpus,),
        gbs=gbs,
        assumptions=assumptions,
        strategy=strategy,
        framework=framework,
        locks=locked_values(locks),
        top=top,
        objective=objective,
        exhaustive=exhaustive,
        fit_probability=errors.catch(share_typed, fit_probability),
        within=errors.catch(share_typed, within),
        given=given,
    )
    request = errors.require(search_request(errors, question))
    rounder = _rounder(gpus) if objective == "time" and not (request.locks or json or html) else []
    with progress("search") as report_progress:
        begin = time.perf_counter()
        # to enumerate, count and bound is about half of the work
        (result,) = request.answer(lambda done, total, n: report_progress(done, 2 * total, n))
        with report_progress_to(lambda share: report_progress(1 + share, 2)):
            best = result.recommended
            elapsed = time.perf_counter() - begin
            # what will be shown is computed now, while progress is
            explanation = result.explain()
            _ = result.lock_price, result.recommendation and result.recommendation.reason
            # apart: searches of several sizes at once evaluate every layout
            at_fewer = [replace(request, gpus=(size,)).answer()[0].recommended for size in rounder]
            if json or html is not None:
                result.find_lists()
            _ = explanation.lines() if why or json or html is not None or best is None else None
            record = result.record(**options.metrics_arguments()) if json else None
            if html is not None:
                _report_search(result, explanation, options, html, all_)
    if record is not None:
        print_json(outputs.plans.PlanOutput(record, file_name(html)))
    else:
        if best is not None:
            measures = options.metrics(best[1])
            usual = options.usual(result.model, result.system)
            faster = [
                found[1] for found in at_fewer if found and found[1].step_seconds < best[1].step_seconds
            ]
            asked = list(dict.fromkeys([*options.asked_metrics(), *(["cost"] if cost else [])]))
            answer = text.plans.search(
                result,
                elapsed,
                measures,
                usual,
                text.plans.Shown(each=all_, why=why, rejected=rejected, metrics=asked),
                price=options.gpu_hour_price(result.system),
                faster=faster,
                command=command_with,
            )
            text.tables.show(answer)
        if rejected:
            text.tables.show(text.plans.show_rejected(result))
        print_files(html)
    result.require_best()


def _rounder(gpus: int) -> list[int]:
    """Return the next smaller 2ⁿ or 3 × 2ⁿ where a number of GPUs has other factors, which suit few plans."""
    power = 1 << gpus.bit_length() - 1
    has_others = 6 ** gpus.bit_length() % gpus > 0
    return [max(size for size in (power, 3 * power // 2) if size < gpus)] if has_others else []


def _report_search(
    result: "Found", explanation: "Explanation", options: RunOptions, html: Path, each: bool
) -> None:
    from traincast.ui.html import search_report

    measures = None if result.best is None else options.metrics(result.best[1])
    notes = text.plans.remarks(result, options.usual(result.model, result.system))
    write_html(search_report.page(result, explanation, measures, notes, each), html)


@command("Ask about a run", "tutorial", "metrics", "nomenclature")
def estimate(
    model: ModelName,
    /,
    *,
    question: PlanArguments,
    operations: Annotated[bool, output_option("Show every operation of a layer as well.")] = False,
    why: Annotated[bool, output_option(_CAUSES)] = False,
    cost: Annotated[bool, output_option(_COST)] = False,
    html: HtmlFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Estimate one plan: time and memory of a step. Without any --fast-* the fastest placement is chosen.

    Example: traincast estimate gpt3-1t --system h200-nvs8 --tp 8 --pp 16 --dp 16
    """
    errors = ErrorCollector("estimate")
    errors.catch(check_html, html, force)
    est = question.estimate(model, errors=errors)
    seen = _anatomy(est) if operations else None
    measures = question.run.metrics(est)
    usual = question.run.usual(est.model, est.system)
    if html is not None:
        from traincast.ui.html import plan_report

        write_html(plan_report.page(est, measures, text.plans.remarks(est, usual)), html)
    if json:
        rows = est.operation_rows() if operations else None
        figures = (measures, est.group_rows(), rows, seen)
        print_json(outputs.plans.EstimateOutput(est.job, est, *figures, file_name(html)))
    else:
        show = text.tables.show
        plans = text.plans
        asked = list(dict.fromkeys([*question.run.asked_metrics(), *(["cost"] if cost else [])]))
        run = plans.utilisation(measures, est, asked)
        price = question.run.gpu_hour_price(est.system)
        lead = text.headline.headline("Plan", est, measures, price)
        header = plans.header(est, usual)
        narrowing = () if why else text.headline.narrowing_line(est)
        show(lead, [""], header, narrowing, plans.breakdowns(est, command_with, why), run)
        if seen is not None:
            show(plans.operations(est, seen))
        if est.widths and not why:
            show(plans.more_options(["--why: all causes of the interval's width"]))
        print_files(html)
    require_fit(est)


def _anatomy(est: "Estimate") -> "Anatomy":
    """Return the anatomy of a plan's operations; analyses are imported where they are asked for."""
    from traincast.analysis import anatomy

    return anatomy(est)


@command("Ask about a run", "training", "nomenclature")
def memory(
    model: ModelName,
    /,
    *,
    question: PlanArguments,
    timeline: Annotated[Path | None, output_option(_TIMELINE)] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Show the memory of every stage of the pipeline by component, and what to change where it does not fit.

    Without a global batch of the model or on the command line, as many micro-batches are taken as fill the
    pipeline.

    Example: traincast memory mixtral-8x7b --system dgx-h100 --seq 4096 --tp 2 --ep 8 --dp 32
    """
    knobs = vars(question.knobs)
    usual = (knobs["mbs"] or 1) * 2 * (knobs["pp"] or 1)
    errors = ErrorCollector("memory")
    errors.catch(check_figure, timeline, force)
    est = question.estimate(model, usual, errors)
    if timeline is not None:
        from traincast.ui.figures import memory_timeline, save

        save(memory_timeline(est), timeline)
    if json:
        from traincast.analysis import bytes_per_parameter_of

        rows = est.device_rows(), est.memory_timeline(), bytes_per_parameter_of(est)
        print_json(outputs.plans.MemoryOutput(est.job, est, *rows, file_name(timeline)))
    else:
        lead = text.headline.of_memory("Plan", est)
        header = text.plans.header(est, question.run.usual(est.model), timed=False)
        of_parameters = text.analysis.bytes_per_parameter(est)
        text.tables.show(lead, [""], header, text.plans.stage_memory(est), of_parameters)
        print_files(timeline)
    require_fit(est)


_FORMAT = "Format (traincast docs export lists them); else megatron, or trl to fine-tune."
_EXPORT_OUTPUT = "File, or a folder that can be launched (deepspeed, accelerate); else standard output."
_SEARCH_GPUS = "GPUs to search the best plan for; without it the knobs give the plan."
_LAUNCH_FILE = "Launch script or configuration, as `export` writes them or as people do."
_LAUNCH_MODEL = "Model, where the file does not describe it: a name of the catalogue, or a file."
_LAUNCH_BATCH = "Global batch [sequences], where the file does not say."
_LAUNCH_FORMAT = "Format of the file, else detected; or a release that it is held to (megatron@0.17)."
_LAUNCH_SET = "Values of variables that a script takes from outside: TP=8 PP=2; positional ones by number."
_LAUNCH_RECIPE = "The run that is meant, where the file describes several: its name, or a part of it."
_LAUNCH_VOCABULARY = "Size of the vocabulary [tokens], where the file does not say."
_LAUNCH_LENGTH = "Sequence length [tokens] (8k), in place of the file's."
_ACCEPT = "Answer even if settings that matter for time or memory are not read; they are listed."
_BESIDE = "Configuration of Accelerate or DeepSpeed that belongs to the file, where it names none."
_ACTOR = "Of reinforcement learning (verl, OpenRLHF, slime), read the actor's training step."


@command("Take a plan to a framework", "export")
def export(
    model: ModelName,
    /,
    *,
    system: SystemName,
    to: Annotated[str | None, option(_FORMAT, completer=names_of_formats)] = None,
    gpus: Annotated[int | None, question_option(_SEARCH_GPUS)] = None,
    options: RunArguments = NO_RUN_OPTIONS,
    locks: LockOptions = NO_LOCKS,
    output: Annotated[Path | None, output_option(_EXPORT_OUTPUT)] = None,
    force: Force = False,
    assumptions: Assumed = None,
    given: GivenFacts = None,
    json: Json = False,
) -> None:
    """Write the best plan, or the one given, as a launch script or configuration of a training framework.

    What the framework has no setting for is named in the file and on standard error. A model whose adapters
    or kinds of layers it cannot express is refused. A folder gets a training program besides, and `launch.sh`
    that starts it.

    Example: traincast export llama-3-70b --system dgx-h100 --gpus 512 --to megatron --output run.sh
    """
    from traincast.core import check_output
    from traincast.launch import DATA_PARALLEL, FORMATS, TRAINING_PROGRAMS, export_folder
    from traincast.launch import export as launch_of
    from traincast.model import names_fine_tuning

    if to is None:
        to = "trl" if names_fine_tuning(options.train) else "megatron"
    require_known("format", to, FORMATS)
    is_folder = output is not None and to in TRAINING_PROGRAMS and (output.is_dir() or not output.suffix)
    if output is not None and is_folder:
        TRAINING_PROGRAMS[to].check_folder(output, force)
    else:
        check_output(output, force, (FORMATS[to].ending,))
    of_program = DATA_PARALLEL if is_folder and gpus is not None else {}
    locked = {**of_program, **locked_values(locks)}
    question = PlanQuestion(
        system=system, knobs=PlanKnobs(**locked), run=options, assumptions=assumptions, given=given
    )
    form = FORMATS[to]
    if gpus is None:
        subject: Estimate | Found = question.estimate(model, space=form.space)
    else:
        subject = _best(question, model, gpus, form, locked, of_program)
    launch = export_folder(subject, to) if is_folder else launch_of(subject, to)
    assert launch.est is not None
    if subject.model.left_out:
        remark(text.plans.title(subject))
    for line in launch.prediction[1:] if launch.prediction[0] not in launch.text else ():
        remark(line)
    for line in launch.not_expressed.values():
        remark(f"not expressed: {line}")
    misfits = launch.est.verdict == "does not fit"  # which is said instead of how to start it
    if launch.command and not is_folder and not misfits:
        remark(f"start it with: {launch.command_for(output)}")
    if output is not None and launch.left_at_default and not json:  # else printed with the file, or a key
        remark(f"left at the framework's defaults: {', '.join(launch.left_at_default)}")
    if output is not None:
        launch.save(output)
    if json:
        files = (to, file_name(output), launch.text)
        print_json(
            outputs.launches.ExportOutput(
                subject.job,
                launch.est,
                *files,
                launch.not_expressed,
                launch.left_at_default,
                "" if is_folder else launch.command_for(output),
            )
        )
    elif output is None:
        print(launch.text, end="")
    require_fit(launch.est)


def _best(
    question: PlanQuestion,
    model: str,
    gpus: int,
    form: "Format",
    locked: dict[str, object],
    of_program: Mapping[str, object],
) -> "Found":
    """Search the plans that a framework can run and its launch format can express.

    `locked` are the locks of who asks and of the training program that is written; `of_program` the latter.
    """
    from traincast.launch import device, expressible_space
    from traincast.planner import Question, search_request

    errors = ErrorCollector("export")
    model_read, machine, gbs = question.run.read_run(errors, model, question.system)
    space = form.space
    framework_locks: dict[str, object] = {}
    context = {"stack": question.assumptions, "device": None if machine is None else device(machine)}
    if model_read is not None:
        errors.catch(form.require_expressible, model_read)
        space, framework_locks = expressible_space(form, model_read, context | locked)
        space = replace(space, fixed={**of_program, **space.fixed})
    asked = Question(
        model=model_read,
        system=machine,
        gpus=(gpus,),
        gbs=gbs,
        top=MAX_PLANS_TRIED,
        assumptions=question.assumptions,
        given=question.given,
        framework=space,
        locks=framework_locks | locked,
    )
    request = errors.require(search_request(errors, asked))
    with progress("search") as report_progress:
        (result,) = request.answer(report_progress)
    return result


@command("Take a plan to a framework", "export")
def check(
    file: Annotated[Path, option(_LAUNCH_FILE)],
    /,
    *,
    system: SystemName,
    model: Annotated[
        str | None, question_option(_LAUNCH_MODEL, metavar="MODEL", completer=names_of_models)
    ] = None,
    gpus: Annotated[int | None, question_option("GPUs in the job, where the file does not say.")] = None,
    global_batch: Annotated[
        int | None, question_option(_LAUNCH_BATCH, name=["--global-batch", "--gbs"])
    ] = None,
    seq: Annotated[int | None, question_option(_LAUNCH_LENGTH, converter=read_length)] = None,
    vocab: Annotated[int | None, question_option(_LAUNCH_VOCABULARY)] = None,
    variables: Annotated[list[str] | None, option(_LAUNCH_SET, name="--set", consume_multiple=1)] = None,
    recipe: Annotated[str | None, option(_LAUNCH_RECIPE)] = None,
    framework: Annotated[str | None, option(_LAUNCH_FORMAT)] = None,
    beside: Annotated[Path | None, option(_BESIDE)] = None,
    accept_unread: Annotated[bool, option(_ACCEPT)] = False,
    actor: Annotated[bool, option(_ACTOR)] = False,
    lengths: Annotated[str | None, option(LENGTHS)] = None,
    images: Annotated[int | None, option(IMAGES)] = None,
    locks: LockOptions = NO_LOCKS,
    measured: MeasuredArguments = NOTHING_MEASURED,
    assumptions: Assumed = None,
    given: GivenFacts = None,
    why: Annotated[bool, output_option(_CAUSES)] = False,
    json: Json = False,
) -> None:
    """Check a launch: step time, memory, distance from the best plan, and which settings to change.

    What the file does not say of the plan can be given, such as --recompute full. A measured step is compared
    with what is expected of it.

    Example: traincast check examples/my_cluster/pretrain.sh --system dgx-h100
    """
    from traincast.launch import check as check_launch
    from traincast.ui.cli.quantities import pairs_of

    values = pairs_of("--set", variables or (), "TP=4", values=False)
    given_step = measured.read_measured()
    with progress("check") as report_progress:
        checked = check_launch(
            file, system, model, gpus, global_batch, framework, assumptions, locked_values(locks),
            report_progress, accept_unread, beside, values, recipe, vocab, seq, actor, lengths, images, given,
            **given_step,
        )  # fmt: skip
        _ = checked.together  # compute now, while progress is shown
    if json:
        print_json(outputs.launches.CheckOutput(checked.est.job, checked))
    else:
        text.tables.show(text.launch.launch(checked, command_with, why))
    if checked.est.verdict == "does not fit":
        raise NothingFits(text.launch.misfit_advice(checked))
