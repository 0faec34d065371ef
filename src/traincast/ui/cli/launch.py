"""Commands on launches of training frameworks: `export`, `check`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from traincast.core.errors import ErrorCollector, NothingFits, unknown_name_error
from traincast.core.plan import Plan
from traincast.ui.cli.app import OUTPUT, QUESTION, Force, Json, app, file_name, print_json, progress
from traincast.ui.cli.completion import names_of_formats, names_of_models
from traincast.ui.cli.options import (
    NO_LOCKS,
    NO_RUN_OPTIONS,
    Assumed,
    LockOptions,
    ModelName,
    RunArguments,
    RunOptions,
    SystemName,
    estimate_of_options,
    require_fit,
)

if TYPE_CHECKING:
    from traincast.launch.format import Format
    from traincast.planner.search import Found
    from traincast.step.estimate import Estimate


MAX_PLANS_TRIED = 10  # best plans of a search; the first that the format can express is written


@app.command
def export(
    model: ModelName,
    /,
    *,
    system: SystemName,
    to: Annotated[
        str, Parameter(completer=names_of_formats, help="What to write; docs/export.md lists the formats.")
    ] = "megatron",
    gpus: Annotated[
        int | None,
        Parameter(
            group=QUESTION,
            help="GPUs of a search whose best plan is written; else the plan is what its knobs say.",
        ),
    ] = None,
    options: RunArguments = NO_RUN_OPTIONS,
    locks: LockOptions = NO_LOCKS,
    output: Annotated[
        Path | None, Parameter(group=OUTPUT, help="File to write; else standard output.")
    ] = None,
    force: Force = False,
    assumptions: Assumed = None,
    json: Json = False,
) -> None:
    """Write the best plan, or the one given, as a launch script or configuration of a training framework.

    What the framework cannot be told is said in the file and on standard error.

    Example: traincast export llama-3-70b --system dgx-h100 --gpus 512 --to megatron --output run.sh
    """
    from traincast.core.output_files import atomic_output, check_output
    from traincast.launch.export import FORMATS
    from traincast.launch.export import export as launch_of
    from traincast.ui.text.plans import title

    if to not in FORMATS:
        raise unknown_name_error("format", to, FORMATS)
    if output is not None:
        check_output(output, force, (FORMATS[to].ending,))
    locked = {name: value for name, value in vars(locks).items() if value is not None}
    if gpus is None:
        subject: Estimate | Found = estimate_of_options(options, model, system, Plan(**locked), assumptions)
    else:
        subject = _best(options, model, system, gpus, FORMATS[to], locked, assumptions)
    launch = launch_of(subject, to)
    assert launch.est is not None
    if subject.model.left_out:
        print(title(subject), file=sys.stderr)
    for line in launch.not_expressed.values():
        print(f"not expressed: {line}", file=sys.stderr)
    if output is not None:
        with atomic_output(output) as partial:
            partial.write_text(launch.text, encoding="utf-8")
    if json:
        from traincast.ui.outputs.launches import ExportOutput

        print_json(
            ExportOutput(
                job=subject.job,
                estimate=launch.est,
                to=to,
                output=file_name(output),
                text=launch.text,
                not_expressed=launch.not_expressed,
            )
        )
    elif output is None:
        print(launch.text, end="")
    require_fit(launch.est)


@app.command
def check(
    file: Annotated[
        Path, Parameter(help="Launch script or configuration, as `export` writes them or as people do.")
    ],
    /,
    *,
    system: SystemName,
    model: Annotated[
        str | None,
        Parameter(
            group=QUESTION,
            metavar="MODEL",
            completer=names_of_models,
            help="Model, where the file does not describe it: a name of the catalogue, or a file.",
        ),
    ] = None,
    gpus: Annotated[
        int | None, Parameter(group=QUESTION, help="GPUs in the job, where the file does not say.")
    ] = None,
    global_batch: Annotated[
        int | None,
        Parameter(
            group=QUESTION,
            name=["--global-batch", "--gbs"],
            help="Global batch [sequences], where the file does not say.",
        ),
    ] = None,
    framework: Annotated[
        str | None, Parameter(help="What the file is, where its content should not decide.")
    ] = None,
    accept_unread: Annotated[
        bool,
        Parameter(
            negative="",
            help="Answer although settings that matter for time or memory are not read; they are named.",
        ),
    ] = False,
    locks: LockOptions = NO_LOCKS,
    assumptions: Assumed = None,
    json: Json = False,
) -> None:
    """Check a launch: its step time, whether it fits, how far from the best plan it is, and which settings to change.

    What the file does not say of the plan can be given, such as --recompute full.

    Example: traincast check examples/my_cluster/pretrain.sh --system dgx-h100
    """
    from traincast.launch.check import check as check_launch

    locked = {name: value for name, value in vars(locks).items() if value is not None}
    with progress("check") as report_progress:
        checked = check_launch(
            file,
            system,
            model,
            gpus,
            global_batch,
            framework,
            assumptions,
            locked,
            report_progress,
            accept_unread,
        )
        content = checked.record()
    if json:
        from traincast.ui.outputs.launches import CheckOutput

        print_json(CheckOutput(checked.est.job, content))
    else:
        from traincast.ui.text.launch import print_checked
        from traincast.ui.text.plans import console

        print_checked(checked, console())
    if not checked.est.fits:
        from traincast.ui.text.launch import misfit_advice

        raise NothingFits(misfit_advice(checked))


def _best(
    options: RunOptions,
    model: str,
    system: str,
    gpus: int,
    form: "Format",
    locked: dict[str, Any],
    assumptions: str | None,
) -> "Found":
    """Search the plans that a framework can run and its launch format can express."""
    from traincast.launch.check import expressible_space
    from traincast.planner.search import search_request

    errors = ErrorCollector("export")
    model_read, machine, gbs = options.read(errors, model, system)
    space, framework_locks = (
        (form.framework, {})
        if model_read is None
        else expressible_space(form, model_read, locked | {"stack": assumptions})
    )
    choices: dict[str, Any] = {
        "assumptions": assumptions,
        "framework": space,
        "locks": framework_locks | locked,
    }
    request = search_request(errors, model_read, machine, (gpus,), gbs, top=MAX_PLANS_TRIED, **choices)
    with progress("search") as report_progress:
        (result,) = errors.require(request).answer(report_progress)
    return result
