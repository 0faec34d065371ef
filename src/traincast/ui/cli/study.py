"""Commands on many machines or jobs: `study`, `merge`, `design`, `plot`."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from traincast.core import (
    CALIBRATED,
    ErrorCollector,
    InputError,
    check_folder,
    check_output,
    whole_number_problems,
)
from traincast.ui import outputs, text
from traincast.ui.cli.app import Force, HtmlFile, Json, command, given_words, option, output_option, several
from traincast.ui.cli.figure_files import FigureFormat, FiguresFolder, save_figures
from traincast.ui.cli.output import (
    check_figure,
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
    from concurrent.futures import Executor

    import polars as pl

    from traincast.planner import Designs, Study

_STUDY = (
    "The study, a YAML or JSON file; or exec_*.npy of arXiv 2410.00273's code or a folder of them, which "
    "become a table."
)
_TABLE = "Where the table goes: .parquet, .csv or .json."
_DASK = "Run on a Dask scheduler at this address, or on a 'local' cluster."
Workers = Annotated[int, option("Local processes.")]
Dask = Annotated[str | None, option(_DASK)]
Mpi = Annotated[bool, option("Run on the ranks of an MPI job.")]
_SHARD = "Run the k-th of n parts, as k/n; traincast merge puts them together."
_FORCE = "Overwrite what is written, and drop parts of another study or version."


@command("Sweep", "studies")
def study(
    file: Annotated[Path, option(_STUDY)],
    /,
    *,
    output: Annotated[Path, output_option(_TABLE)],
    workers: Workers = 1,
    dask: Dask = None,
    mpi: Mpi = False,
    shard: Annotated[str, option(_SHARD)] = "1/1",
    html: HtmlFile = None,
    force: Annotated[bool, output_option(_FORCE)] = False,
    json: Json = False,
) -> None:
    """Run a study: a sweep that is optimised at every point. After an interruption it continues.

    Example: traincast study examples/strong_scaling.yaml --workers 2 --output scaling.parquet
    """
    from traincast.planner import Results, Shard, is_results, load_study, run_study_to

    errors = ErrorCollector("study")
    if is_results(file):
        if dask is not None or mpi or shard != "1/1" or workers != 1 or html is not None:
            unused = "--workers, --dask, --mpi, --shard and --html are of studies that run"
            errors.add([f"{file} holds results: {unused}"])
        errors.catch(check_output, output, force, Results.FORMATS)
        errors.raise_any()
        _write_results(file, output, force, json)
        return
    definition_read = errors.catch(load_study, file)
    shard_read = errors.catch(Shard.parse, shard)
    problems = _worker_problems(workers, dask, mpi)
    if html is not None and shard_read is not None and shard_read.n > 1:
        problems.append("--html: a shard is not the whole study; traincast merge writes its report")
    errors.add(problems)
    errors.catch(check_html, html, force)
    definition = errors.require(definition_read)
    part = errors.require(shard_read)
    started = time.perf_counter()
    with _open_executor(definition.name, workers, dask, mpi) as (executor, report_progress):
        written = run_study_to(definition, output, force, part, executor, workers, report_progress)
    _report_outcome(definition, output, written, time.perf_counter() - started, html, json)


def _worker_problems(workers: int, dask: str | None, mpi: bool) -> list[str]:
    """Return what is wrong with where searches shall run."""
    both = ["--dask and --mpi: give one of them"] if dask is not None and mpi else []
    empty = ["dask = '': must be an address, or local"] if dask == "" else []
    return whole_number_problems("workers", workers) + both + empty


@contextmanager
def _open_executor(
    name: str, workers: int, dask: str | None, mpi: bool, kept: bool = True
) -> "Iterator[tuple[Executor | None, Callable[..., None]]]":
    """Open where searches run, with progress on a terminal; `kept`: whether finished ones are saved."""
    from traincast.planner import dask_executor, mpi_executor

    executor_context = mpi_executor() if mpi else nullcontext()
    if dask:
        executor_context = dask_executor(dask, workers)
    try:
        with executor_context as executor, progress(name) as report_progress:
            yield executor, report_progress
    except KeyboardInterrupt:
        goes_on = "; finished chunks are kept: the same command goes on from there"
        message = f"interrupted{goes_on if kept else ''}"
        if dask:  # its normal shutdown could wait forever
            print_failure(message, 130)
            if sys.stdout is not None:
                sys.stdout.flush()
            os._exit(130)
        fail(message, 130)


@command("Sweep", "machine_design", "studies")
def design(
    file: Annotated[Path, option("The question, a YAML or JSON file as examples/design.yaml.")],
    /,
    *,
    output: Annotated[Path | None, output_option(_TABLE)] = None,
    workers: Workers = 1,
    dask: Dask = None,
    mpi: Mpi = False,
    html: HtmlFile = None,
    figures: FiguresFolder = None,
    form: FigureFormat = "svg",
    force: Annotated[bool, output_option(_FORCE)] = False,
    json: Json = False,
) -> None:
    """Find the machine to build or buy for a workload: Pareto front, worth of each figure, break-even prices.

    With --output it continues after an interruption.

    Example: traincast design examples/design.yaml --output design.parquet --html design.html
    """
    from traincast.planner import Parts, Results, Runs, find_designs, load_question

    errors = ErrorCollector("design")
    read = errors.catch(load_question, file)
    errors.add(_worker_problems(workers, dask, mpi))
    errors.catch(check_output, output, force, Results.FORMATS)
    errors.catch(check_html, html, force)
    errors.catch(check_folder, figures)
    question = errors.require(read)
    parts = None if output is None else Parts.for_output(question.fingerprint, output, force)
    with (
        nullcontext() if parts is None else parts.lock(shared=False),
        _open_executor(question.name, workers, dask, mpi, parts is not None) as (executor, report_progress),
    ):
        found = find_designs(question, Runs(executor, workers, parts, report_progress))
        if parts is not None and not found.feasible.any():
            parts.drop()  # nothing to go on with
        found.sentences()  # further searches that it needs, while the workers are there
        if output is not None and parts is not None:
            found.results().write(output, force)
        drawn = _draw_design(found, html, figures, form)
        if parts is not None:
            parts.drop()
    if json:
        written = file_name(output), file_name(html), None if figures is None else list(map(str, drawn))
        print_json(outputs.designs.design_output(found, *written))
    else:
        text.tables.show(text.designs.answer(found))
        print_files(output, html, *drawn)


def _draw_design(found: "Designs", html: Path | None, figures: Path | None, form: str) -> list[Path]:
    """Write the report and the requested figures of a design; return the paths of the figures."""
    if html is not None:
        from traincast.ui.html import design_report

        write_html(design_report.page(found), html)
    if figures is None:
        return []
    from traincast.ui.figures.designs import figures_of

    return save_figures(((stem, figure) for stem, _, figure, _ in figures_of(found)), figures, form)


def _write_results(file: Path, output: Path, force: bool, as_json: bool) -> None:
    """Write results of the code of arXiv 2410.00273 as the table of a study, and print its size."""
    from traincast.planner import read_results

    started = time.perf_counter()
    results = read_results(file)
    results.write(output, force)
    rows = len(results.frame)
    elapsed = time.perf_counter() - started
    if as_json:
        print_json(outputs.reference.StudyOutput(file.stem, str(output), rows, None, elapsed))
    else:
        print(f"{file.stem}: {rows:,} rows in {output}")


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
    from traincast.planner import Results, load_study, merge_shards

    errors = ErrorCollector("merge")
    definition_read = errors.catch(load_study, file)
    errors.catch(check_output, output, force, Results.FORMATS)
    errors.catch(check_html, html, force)
    definition = errors.require(definition_read)
    started = time.perf_counter()
    merge_shards(definition, output, force)
    _report_outcome(definition, output, True, time.perf_counter() - started, html, json)


def _report_outcome(
    study: "Study", output: Path, written: bool, elapsed: float, html: Path | None, as_json: bool
) -> None:
    """Print the size of a study's table, and write its report where one is requested."""
    from traincast.planner import count_rows, read_study_table

    rows, decided = count_rows(output) if written else (None, None)
    if html is not None:
        from traincast.ui.html import study_report

        write_html(study_report.page(read_study_table(output, study), (*study.models, *study.systems)), html)
    if as_json:
        counts = (rows, decided, elapsed)
        print_json(outputs.reference.StudyOutput(study.name, str(output), *counts, file_name(html)))
    elif written:
        print(f"{study.name}: {decided:,} candidates decided in {elapsed:.2f} s; {rows:,} rows in {output}")
        _show_points(study, output, rows or 0)
        print_files(html)
    else:
        print(f"{study.name}: this shard is finished; its parts lie in {output}.parts, for traincast merge")


def _show_points(study: "Study", output: Path, rows: int) -> None:
    """Print points of a study side by side, and the command that draws them; of very large tables none."""
    from traincast.planner import MOST_ROWS, read_study_table, side_by_side

    if rows > MOST_ROWS:
        return
    frame = read_study_table(output, study).frame
    found, number = side_by_side(study, frame)
    if found is not None:
        shown = len(found.alternatives)
        which = "" if number == shown else f", of which {shown} on the most GPUs"
        print(f"Side by side at the fastest point of each, {number:,} that fit{which}:\n")
        text.tables.show(text.comparison.comparison(found, plans=False))
    if command_line := next_figure(study, frame, output):
        print(f"\nTo draw it: {command_line}")


def next_figure(study: "Study", frame: "pl.DataFrame", output: Path) -> str:
    """Return the command that draws what a table has most of; empty where a table of one point is."""
    fitting = frame.drop_nulls("step_seconds")
    if not len(fitting):
        return ""
    if len(study.vary) > 1:
        kind = "contour"
    elif study.vary and fitting["point"].n_unique() > 1:
        kind = "sweep"
    elif frame["gpus"].n_unique() > 1 and frame["point"].n_unique() == 1:
        kind = "scaling" if len(fitting.drop_nulls("training_days")) else "throughput"
    else:
        return ""
    several = [name for name in ("model", "gbs") if frame[name].n_unique() > 1]
    only = "".join(f" --{name} {frame[name][0]}" for name in several if kind == "contour" or name == "gbs")
    return f"traincast plot {output} --kind {kind}{only} --output {output.with_suffix('.svg')}"


Kind = Literal[
    "scaling",
    "throughput",
    "speedup",
    "optima",
    "contour",
    "sweep",
    "pareto",
    "tornado",
    "roofline",
    "waterfall",
    "collectives",
]
_KIND = "What to draw: of a study up to sweep, then of a plan; collectives of output of nccl-tests."
_GIVEN = "What output of nccl-tests does not hold, such as op=allreduce nodes=2 gpus_per_node=8."
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
    x: Annotated[str | None, option("Varied field across a contour or sweep; else the first axis.")] = None,
    y: Annotated[str | None, option("Varied field up a contour; else the second axis.")] = None,
    gpus: Annotated[int | None, option("Only this number of GPUs; else the largest of a contour.")] = None,
    model: Annotated[str | None, option("Only rows of this model.")] = None,
    system: Annotated[
        str | None, option("Only rows of this system; of collectives, the system that ran them.")
    ] = None,
    strategy: Annotated[str | None, option("Only rows of this strategy.")] = None,
    gbs: Annotated[int | None, option("Only rows of this global batch.")] = None,
    point: Annotated[int | None, option("Only rows of this point of the varied fields.")] = None,
    given: Annotated[list[str] | None, several(_GIVEN)] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Draw a figure of a study, of a plan, or of timed collectives.

    Example: traincast plot scaling.parquet --kind scaling --output scaling.svg
    """
    from traincast.ui.figures import save
    from traincast.ui.figures.from_files import OF_A_PLAN, draw_plan, draw_study

    check_figure(output, force)
    if given and kind != "collectives":
        raise InputError("plot", [f"--given: belongs to --kind collectives; --kind is {kind}"])
    if kind == "collectives":
        from traincast.accuracy import read_measurements
        from traincast.ui.cli.quantities import pairs_of
        from traincast.ui.figures.paper import collectives_figure

        if system is None:
            raise InputError("plot", ["--system: is missing; it says which machine ran the collectives"])
        settings = pairs_of("--given", given_words(given or ()), "op=allreduce")
        measured = read_measurements(system, nccl=(file,), given=settings)
        figure = collectives_figure(measured.collectives, system, CALIBRATED)
    elif kind in OF_A_PLAN:
        figure = draw_plan(file, kind)
    else:
        select = {"model": model, "system": system, "strategy": strategy, "gbs": gbs, "point": point}
        figure = draw_study(file, kind, x, y, gpus, select)
    save(figure, output)
    if json:
        print_json(outputs.reference.PlotOutput(str(output), kind))
    else:
        print(output)
