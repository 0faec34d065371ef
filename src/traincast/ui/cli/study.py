"""Commands on studies: `study`, `merge`, `plot`."""

import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from traincast.core.assumptions import CALIBRATED
from traincast.core.errors import ErrorCollector, InputError, whole_number_problems
from traincast.core.output_files import check_output
from traincast.ui import outputs
from traincast.ui.cli.app import Force, HtmlFile, Json, command, option, output_option
from traincast.ui.cli.output import (
    check_html,
    fail,
    file_name,
    print_failure,
    print_files,
    print_json,
    progress,
    write_html,
)

if TYPE_CHECKING:
    from traincast.planner.study.sweep import Study

_TABLE = "Where the table goes: .parquet, .csv or .json."
_DASK = "Run on a Dask scheduler at this address, or on a 'local' cluster."
_SHARD = "Run the k-th of n parts, as k/n; traincast merge puts them together."
_FORCE = "Overwrite what is written, and drop parts of another study."


@command("Sweep", "studies")
def study(
    file: Annotated[Path, option("The study, a YAML or JSON file.")],
    /,
    *,
    output: Annotated[Path, output_option(_TABLE)],
    workers: Annotated[int, option("Local processes.")] = 1,
    dask: Annotated[str | None, option(_DASK)] = None,
    mpi: Annotated[bool, option("Run on the ranks of an MPI job.")] = False,
    shard: Annotated[str, option(_SHARD)] = "1/1",
    html: HtmlFile = None,
    force: Annotated[bool, output_option(_FORCE)] = False,
    json: Json = False,
) -> None:
    """Run a study: a sweep that is optimised at every point. After an interruption it continues.

    Example: traincast study examples/strong_scaling.yaml --workers 2 --output scaling.parquet
    """
    from traincast.planner.study import executors
    from traincast.planner.study.study_file import load_study

    errors = ErrorCollector("study")
    definition_read, shard_read = errors.catch(load_study, file), errors.catch(executors.Shard.read, shard)
    problems = whole_number_problems("workers", workers)
    problems += ["--dask and --mpi: give one of them"] if dask and mpi else []
    if html is not None and shard_read is not None and shard_read.n > 1:
        problems.append("--html: a shard is not the whole study; traincast merge writes its report")
    if problems:
        errors.errors.append(InputError("study", problems))
    errors.catch(check_html, html, force)
    definition, part = errors.require(definition_read), errors.require(shard_read)
    executor_context = executors.dask(dask, workers) if dask else executors.mpi() if mpi else nullcontext()
    started = time.perf_counter()
    try:
        with executor_context as executor, progress(definition.name) as report_progress:
            written = executors.run_to(definition, output, force, part, executor, workers, report_progress)
    except KeyboardInterrupt:
        message = "interrupted; finished chunks are kept: the same command goes on from there"
        if dask:  # its normal shutdown could wait forever
            print_failure(message, 130)
            if sys.stdout is not None:
                sys.stdout.flush()
            os._exit(130)
        fail(message, 130)
    _report_outcome(definition, output, written, time.perf_counter() - started, html, json)


@command("Sweep", "studies")
def merge(
    file: Annotated[Path, option("The study whose shards are merged.")],
    /,
    *,
    output: Annotated[Path, output_option("The output that the shards were given.")],
    html: HtmlFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Merge the shards of a study into its table.

    Example: traincast merge examples/strong_scaling.yaml --output scaling.parquet
    """
    from traincast.planner.study import executors
    from traincast.planner.study.results import FORMATS
    from traincast.planner.study.study_file import load_study

    errors = ErrorCollector("merge")
    definition_read = errors.catch(load_study, file)
    errors.catch(check_output, output, force, FORMATS)
    errors.catch(check_html, html, force)
    definition, started = errors.require(definition_read), time.perf_counter()
    executors.merge(definition, output, force)
    _report_outcome(definition, output, True, time.perf_counter() - started, html, json)


def _report_outcome(
    study: "Study", output: Path, written: bool, elapsed: float, html: Path | None, as_json: bool
) -> None:
    """Print the size of a study's table, and write its report where one is wanted."""
    from traincast.planner.study import results

    rows, decided = results.count(output) if written else (None, None)
    if html is not None:
        from traincast.ui.html import study_report

        write_html(study_report.page(results.written(output, study), (*study.models, *study.systems)), html)
    if as_json:
        counts = (rows, decided, elapsed)
        print_json(outputs.reference.StudyOutput(study.name, str(output), *counts, file_name(html)))
    elif written:
        print(f"{study.name}: {decided:,} candidates decided in {elapsed:.2f} s; {rows:,} rows in {output}")
        print_files(html)
    else:
        print(f"{study.name}: this shard is finished; its parts lie in {output}.parts, for traincast merge")


Kind = Literal[
    "scaling", "throughput", "speedup", "optima", "contour", "pareto", "tornado", "roofline", "waterfall",
    "collectives",
]  # fmt: skip
_KIND = "What to draw: of a study up to contour, then of a plan; collectives of output of nccl-tests."
_PLOTTED = (
    "Table of a study, exec_*.npy of arXiv 2410.00273's code or a folder of them, a search as plan --json "
    "prints it, or output of nccl-tests."
)


@command("Sweep", "studies", "gallery")
def plot(
    file: Annotated[Path, option(_PLOTTED)],
    /,
    *,
    kind: Annotated[Kind, option(_KIND)],
    output: Annotated[Path, output_option("Where the figure goes: .svg, .pdf or .png.")],
    x: Annotated[str | None, option("Varied field across a contour; else the first axis.")] = None,
    y: Annotated[str | None, option("Varied field up a contour; else the second axis.")] = None,
    gpus: Annotated[int | None, option("Number of GPUs of a contour; else the largest.")] = None,
    model: Annotated[str | None, option("Only rows of this model.")] = None,
    system: Annotated[
        str | None, option("Only rows of this system; of collectives, the system that ran them.")
    ] = None,
    strategy: Annotated[str | None, option("Only rows of this strategy.")] = None,
    gbs: Annotated[int | None, option("Only rows of this global batch.")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Draw a figure of a study, of a plan, or of timed collectives.

    Example: traincast plot scaling.parquet --kind scaling --output scaling.svg
    """
    from traincast.ui.figures import save
    from traincast.ui.figures.from_files import OF_A_PLAN, draw_plan, draw_study
    from traincast.ui.figures.style import ENDINGS

    check_output(output, force, ENDINGS)
    if kind == "collectives":
        from traincast.accuracy.fit.measured_files import read
        from traincast.ui.figures.paper import collectives_figure

        if system is None:
            raise InputError("plot", ["--system: is missing; it says which machine ran the collectives"])
        figure = collectives_figure(read(system, nccl=(file,)).collectives, system, CALIBRATED)
    elif kind in OF_A_PLAN:
        figure = draw_plan(file, kind)
    else:
        figure = draw_study(file, kind, x, y, gpus, model=model, system=system, strategy=strategy, gbs=gbs)
    save(figure, output)
    if json:
        print_json(outputs.reference.PlotOutput(str(output), kind))
    else:
        print(output)
