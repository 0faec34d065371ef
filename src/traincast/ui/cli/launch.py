"""Commands on launches of training frameworks: `export`, `check`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from traincast.core.errors import ErrorCollector, NothingFits, unknown_name_error
from traincast.ui.cli.app import (
    Force,
    Json,
    app,
    file_name,
    option,
    output_option,
    print_json,
    progress,
    question,
)
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
    estimate_of,
    locked_values,
    require_fit,
)

if TYPE_CHECKING:
    from traincast.launch.format import Format
    from traincast.planner.search import Found
    from traincast.step.estimate import Estimate

MAX_PLANS_TRIED: Final = 10  # best plans of a search; the first that the format can express is written
_FORMAT = "Format to write; docs/export.md lists the formats."
_SEARCH_GPUS = "GPUs of a search whose best plan is written; without it the knobs give the plan."
_LAUNCH_FILE = "Launch script or configuration, as `export` writes them or as people do."
_LAUNCH_MODEL = "Model, where the file does not describe it: a name of the catalogue, or a file."
_LAUNCH_BATCH = "Global batch [sequences], where the file does not say."
_FRAMEWORK = "Format of the file, instead of detecting it from its content."
_ACCEPT = "Answer even if settings that matter for time or memory are not read; they are listed."


@app.command
def export(
    model: ModelName,
    /,
    *,
    system: SystemName,
    to: Annotated[str, option(_FORMAT, completer=names_of_formats)] = "megatron",
    gpus: Annotated[int | None, question(_SEARCH_GPUS)] = None,
    options: RunArguments = NO_RUN_OPTIONS,
    locks: LockOptions = NO_LOCKS,
    output: Annotated[Path | None, output_option("File to write; else standard output.")] = None,
    force: Force = False,
    assumptions: Assumed = None,
    json: Json = False,
) -> None:
    """Write the best plan, or the one given, as a launch script or configuration of a training framework.

    What the framework has no setting for is named in the file and on standard error.

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
    locked = locked_values(locks)
    if gpus is None:
        subject: Estimate | Found = estimate_of(options, model, system, locked, assumptions)
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

        files = (to, file_name(output), launch.text)
        print_json(ExportOutput(subject.job, launch.est, *files, launch.not_expressed))
    elif output is None:
        print(launch.text, end="")
    require_fit(launch.est)


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
    space: Any = form.framework
    framework_locks: dict[str, Any] = {}
    if model_read is not None:
        space, framework_locks = expressible_space(form, model_read, locked | {"stack": assumptions})
    choices: dict[str, Any] = {
        "assumptions": assumptions,
        "framework": space,
        "locks": framework_locks | locked,
    }
    request = search_request(errors, model_read, machine, (gpus,), gbs, top=MAX_PLANS_TRIED, **choices)
    with progress("search") as report_progress:
        (result,) = errors.require(request).answer(report_progress)
    return result


@app.command
def check(
    file: Annotated[Path, option(_LAUNCH_FILE)],
    /,
    *,
    system: SystemName,
    model: Annotated[str | None, question(_LAUNCH_MODEL, metavar="MODEL", completer=names_of_models)] = None,
    gpus: Annotated[int | None, question("GPUs in the job, where the file does not say.")] = None,
    global_batch: Annotated[int | None, question(_LAUNCH_BATCH, name=["--global-batch", "--gbs"])] = None,
    framework: Annotated[str | None, option(_FRAMEWORK)] = None,
    accept_unread: Annotated[bool, option(_ACCEPT)] = False,
    locks: LockOptions = NO_LOCKS,
    assumptions: Assumed = None,
    json: Json = False,
) -> None:
    """Check a launch: step time, memory, distance from the best plan, and which settings to change.

    What the file does not say of the plan can be given, such as --recompute full.

    Example: traincast check examples/my_cluster/pretrain.sh --system dgx-h100
    """
    from traincast.launch.check import check as check_launch

    with progress("check") as report_progress:
        checked = check_launch(
            file, system, model, gpus, global_batch, framework, assumptions, locked_values(locks),
            report_progress, accept_unread,
        )  # fmt: skip
        record = checked.record()
    if json:
        from traincast.ui.outputs.launches import CheckOutput

        print_json(CheckOutput(checked.est.job, record))
    else:
        from traincast.ui.text.launch import launch
        from traincast.ui.text.tables import show

        show(launch(checked))
    if not checked.est.fits:
        from traincast.ui.text.launch import misfit_advice

        raise NothingFits(misfit_advice(checked))
