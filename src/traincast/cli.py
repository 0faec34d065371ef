"""The command line: `traincast plan | estimate | catalog | reproduce | study | merge | plot`, all with `--json`.

Exit code 0 for an answer, 1 where no plan fits (with what would make one fit), 2 for input that cannot be used or output that
cannot be written, 130 when interrupted.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, get_args

from cyclopts import App, CycloptsError, Parameter, Token, convert

from traincast.errors import InputError, NothingFits, TraincastError, not_whole
from traincast.plan import Plan
from traincast.version import __version__

if TYPE_CHECKING:
    from traincast.estimate import Estimate
    from traincast.search import Found


def _whole(kind: Any, tokens: Sequence[Token]) -> Any:
    """Convert arguments as usual, but never round 4.5 GPUs to 4."""
    if any("." in token.value for token in tokens) and int in (kind, *get_args(kind)):
        raise ValueError("must be a whole number")
    return convert(kind, tokens)


app = App(
    default_parameter=Parameter(converter=_whole),
    name="traincast",
    version=__version__,
    help="Forecast the training step of a large transformer, and find the parallel plan that is fastest.",
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
)

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON for machines instead of text.")]
ModelName = Annotated[str, Parameter(help="Model of the catalogue, or a YAML or JSON file.")]
SystemName = Annotated[str, Parameter(help="System of the catalogue (such as h200-nvs8), or a YAML or JSON file.")]
Batch = Annotated[int | None, Parameter(name=["--global-batch", "--gbs"], help="Global batch [sequences]; else the model's own.")]
Assumed = Annotated[str, Parameter(help="What is assumed: paper, or paper-published (with the errata of the published results).")]


@app.command
def plan(
    model: ModelName,
    /,
    *,
    system: SystemName,
    gpus: Annotated[int, Parameter(help="GPUs in the job; a plan uses all of them.")],
    global_batch: Batch = None,
    strategy: Annotated[str, Parameter(help="Strategies to search: 1d, summa, context, several with commas.")] = "1d,summa,context",
    top: Annotated[int, Parameter(help="How many plans to show.")] = 10,
    vp: Annotated[int, Parameter(help="Virtual stages of a device (interleaved 1F1B), for every candidate.")] = 1,
    assumptions: Assumed = "paper",
    json: Json = False,
) -> None:
    """Find the fastest plan by searching every candidate.

    Example: traincast plan gpt3-1t --system h200-nvs8 --gpus 2048
    """
    from traincast.load import load_model, load_system
    from traincast.search import search

    wanted, machine = load_model(model), load_system(system)
    begin = time.perf_counter()
    found = search(wanted, machine, gpus, global_batch, assumptions, strategy, top, vp)
    best = found.best
    elapsed = time.perf_counter() - begin
    explanation = found.explain()
    if json:
        _print_json(_found_dict(found) | {"explanation": explanation.to_dict()})
    elif best is not None:
        from traincast.report import console, print_found

        print_found(found, explanation, elapsed, console())
    if best is None:
        raise NothingFits(str(explanation))


@app.command
def estimate(
    model: ModelName,
    /,
    *,
    system: SystemName,
    plan: Annotated[Plan | None, Parameter(name="*")] = None,
    global_batch: Batch = None,
    operations: Annotated[bool, Parameter(negative="", help="Show every operation of a layer as well.")] = False,
    assumptions: Assumed = "paper",
    json: Json = False,
) -> None:
    """Estimate one plan: time and memory of a step. Without any --fast-* the fastest placement is chosen.

    Example: traincast estimate gpt3-1t --system h200-nvs8 --tp 8 --pp 16 --dp 16
    """
    from traincast.estimate import estimate
    from traincast.load import load_model, load_system

    est = estimate(load_model(model), load_system(system), plan or Plan(), global_batch, assumptions)
    if json:
        _print_json(_case(est) | {"estimate": est.summary()} | ({"operations": est.operations()} if operations else {}))
    else:
        from traincast.report import console, header, print_breakdowns, print_operations

        out = console()
        header(est, int(est.plan.gpus), out)
        print_breakdowns(est, out)
        if operations:
            print_operations(est, out)
    if not est.fits:
        from traincast.explain import short_of

        raise NothingFits(f"the plan does not fit: {short_of(est)}")


@app.command
def catalog(
    name: Annotated[str | None, Parameter(help="Model, system or accelerator to show, or a file; all names without it.")] = None,
    /,
    *,
    json: Json = False,
) -> None:
    """List the models, systems and accelerators known by name, or show every figure of one with its source.

    Example: traincast catalog h200-nvs8
    """
    from traincast.load import accelerator_names, figures, model_names, system_names
    from traincast.report import console, print_figures, print_names
    from traincast.units import quantity

    out = console()
    if name is None:
        names = {"models": model_names(), "systems": system_names(), "accelerators": accelerator_names()}
        if json:
            _print_json(names)
            return
        for kind, known in names.items():
            print_names(kind.capitalize(), known, out)
        return
    found = figures(name)
    if json:
        _print_json({"name": name, "figures": [{key: getattr(figure, key) for key in _FIGURE} for figure in found]})
        return
    print_figures(name, [(f.path, quantity(f.value, f.unit), f"{f.source} ({f.basis})") for f in found], out)


_FIGURE = ("path", "value", "unit", "source", "basis")


@app.command
def reproduce(
    paper: Annotated[str, Parameter(help="arXiv number of the paper: 2410.00273.")],
    /,
    *,
    figures: Annotated[Path | None, Parameter(help="Draw the paper's figures into this folder as well, as SVG.")] = None,
    json: Json = False,
) -> None:
    """Recompute the published results of a paper, say how far they agree, and draw its figures.

    Example: traincast reproduce 2410.00273 --figures figures
    """
    from traincast.reproduce import PAPER_ID, reproduce

    if paper.lower().removeprefix("arxiv:") != PAPER_ID:
        raise InputError("paper", [f"{paper!r} cannot be reproduced; known: {PAPER_ID}"])
    result = reproduce()
    drawn = [] if figures is None else _draw_paper(figures)
    if json:
        _print_json(result.to_dict() | {"figures": [str(path) for path in drawn]})
    else:
        from traincast.report import console, print_reproduction

        print_reproduction(result, console())
        for path in drawn:
            print(path)
    if not result.agrees:
        raise TraincastError("not every published figure is met")


def _draw_paper(folder: Path) -> list[Path]:
    """Draw the paper's figures into a folder."""
    from traincast.paper import paper_figures
    from traincast.plots import save

    if folder.exists() and not folder.is_dir():
        raise InputError(str(folder), ["is no folder"])
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    with _progress("figures") as told:
        for stem, figure in paper_figures():
            save(figure, folder / f"{stem}.svg")
            drawn.append(folder / f"{stem}.svg")
            told(len(drawn), 12, 0)
    return drawn


@app.command
def study(
    file: Annotated[Path, Parameter(help="The study, a YAML or JSON file.")],
    /,
    *,
    output: Annotated[Path, Parameter(help="Where the table goes: .parquet, .csv or .json.")],
    workers: Annotated[int, Parameter(help="Local processes.")] = 1,
    dask: Annotated[str | None, Parameter(help="Run on a Dask scheduler at this address, or on a 'local' cluster.")] = None,
    mpi: Annotated[bool, Parameter(negative="", help="Run on the ranks of an MPI job.")] = False,
    shard: Annotated[str, Parameter(help="Run the k-th of n parts, as k/n; traincast merge puts them together.")] = "1/1",
    force: Annotated[bool, Parameter(negative="", help="Overwrite the output, and drop parts of another study.")] = False,
    json: Json = False,
) -> None:
    """Run a study: a sweep that is optimised again at every point. Run again after an interruption, it goes on.

    Example: traincast study examples/strong_scaling.yaml --workers 2 --output scaling.parquet
    """
    from traincast import executors
    from traincast.studyfile import load_study

    asked, part = load_study(file), executors.Shard.read(shard)
    if problems := not_whole("workers", workers):
        raise InputError("study", problems)
    if dask and mpi:
        raise InputError("study", ["--dask and --mpi: give one of them"])
    where = executors.dask(dask, workers) if dask else executors.mpi() if mpi else nullcontext()
    begin = time.perf_counter()
    try:
        with where as executor, _progress(asked.name) as told:
            written = executors.run_to(asked, output, force, part, executor, workers, told)
    except KeyboardInterrupt:
        told_how = "interrupted; finished chunks are kept: the same command goes on from there"
        if dask:  # whose own way out could wait for ever
            print(f"traincast: {told_how}", file=sys.stderr, flush=True)
            os._exit(130)
        _fail(told_how, 130)
    _told(asked.name, output, written, time.perf_counter() - begin, json)


Kind = Literal["scaling", "throughput", "optima", "contour", "pareto", "tornado", "roofline", "waterfall"]


@app.command
def plot(
    file: Annotated[Path, Parameter(help="Table of a study, or a search as plan --json prints it.")],
    /,
    *,
    kind: Annotated[Kind, Parameter(help="What to draw; the last four are of a plan, the others of a study.")],
    output: Annotated[Path, Parameter(help="Where the figure goes: .svg, .pdf or .png.")],
    x: Annotated[str | None, Parameter(help="Varied field across a contour; else the first axis.")] = None,
    y: Annotated[str | None, Parameter(help="Varied field up a contour; else the second axis.")] = None,
    gpus: Annotated[int | None, Parameter(help="Number of GPUs of a contour; else the largest.")] = None,
    model: Annotated[str | None, Parameter(help="Only rows of this model.")] = None,
    system: Annotated[str | None, Parameter(help="Only rows of this system.")] = None,
    strategy: Annotated[str | None, Parameter(help="Only rows of this strategy.")] = None,
    gbs: Annotated[int | None, Parameter(help="Only rows of this global batch.")] = None,
    force: Annotated[bool, Parameter(negative="", help="Overwrite the output.")] = False,
    json: Json = False,
) -> None:
    """Draw a figure of a study or of a plan.

    Example: traincast plot cb.parquet --kind contour --output cb.svg
    """
    from traincast.plots import save
    from traincast.plots.files import OF_A_PLAN, draw_plan, draw_study

    if output.exists() and not force:
        raise InputError(str(output), ["is there already; --force overwrites it"])
    if kind in OF_A_PLAN:
        figure = draw_plan(file, kind)
    else:
        figure = draw_study(file, kind, x, y, gpus, model=model, system=system, strategy=strategy, gbs=gbs)
    save(figure, output)
    if json:
        _print_json({"figure": str(output), "kind": kind})
    else:
        print(output)


@app.command
def merge(
    file: Annotated[Path, Parameter(help="The study whose shards are merged.")],
    /,
    *,
    output: Annotated[Path, Parameter(help="The output that the shards were given.")],
    force: Annotated[bool, Parameter(negative="", help="Overwrite the output.")] = False,
    json: Json = False,
) -> None:
    """Merge the shards of a study into its table.

    Example: traincast merge examples/strong_scaling.yaml --output scaling.parquet
    """
    from traincast import executors
    from traincast.results import check_output
    from traincast.studyfile import load_study

    asked = load_study(file)
    check_output(output, force)
    begin = time.perf_counter()
    executors.Parts.of(asked, output, create=False).write(output, force)
    _told(asked.name, output, True, time.perf_counter() - begin, json)


def _told(name: str, output: Path, written: bool, elapsed: float, as_json: bool) -> None:
    """Say what a study gave."""
    from traincast.results import count

    rows, decided = count(output) if written else (None, None)
    if as_json:
        _print_json({"study": name, "output": str(output), "rows": rows, "candidates": decided, "seconds": elapsed})
    elif written:
        print(f"{name}: {decided:,} candidates decided in {elapsed:.2f} s; {rows:,} rows in {output}")
    else:
        print(f"{name}: this shard is finished; its parts lie in {output}.parts, for traincast merge")


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int, int], None]]:
    """A progress bar on standard error, silent where that is no terminal."""
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, TimeRemainingColumn

    columns: tuple[ProgressColumn | str, ...] = (*Progress.get_default_columns()[:3], "{task.fields[rate]}", TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task, begin, decided = bar.add_task(name, rate=""), time.perf_counter(), 0

        def told(done: int, total: int, candidates: int) -> None:
            nonlocal decided
            decided += candidates
            rate = f"{decided / (time.perf_counter() - begin) / 1e6:.1f} M candidates/s"
            bar.update(task, completed=done, total=total, rate=rate)

        yield told


def _case(est: "Estimate | Found") -> dict[str, Any]:
    """What was asked, for machines."""
    gpus = est.gpus if hasattr(est, "gpus") else int(est.plan.gpus)
    return {
        "model": est.model.name,
        "system": est.system.name,
        "gpus": gpus,
        "global_batch": est.gbs,
        "assumptions": est.assumptions.name,
    }


def _found_dict(found: "Found") -> dict[str, Any]:
    """A search for machines."""
    return _case(found) | {
        "strategies": found.strategies,
        "vp": int(found.outcomes[0].evaluation.space.layouts.vp),
        "candidates": found.candidates,
        "feasible": found.feasible,
        "rejected": found.rejected,
        "plans": [est.summary() for _, est in found.plans],
        "pareto": [est.summary() for _, est in found.pareto()],
    }


def _print_json(value: Mapping[str, Any]) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


def _fail(message: str, code: int) -> NoReturn:
    """One clear message on standard error, and the exit code."""
    print(f"traincast: {message}", file=sys.stderr)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    if arguments is None:
        _make_standard_output_forgiving()
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        if sys.stdout is not None:
            sys.stdout.flush()
    except CycloptsError as error:
        _fail(f"{str(error).strip()} (traincast --help)", 2)
    except TraincastError as error:
        _fail(str(error), error.exit_code)
    except OSError as error:
        sys.stdout = None  # what is left unwritten stays so
        _fail(f"cannot write: {error.strerror}", 2)
    except KeyboardInterrupt:
        _fail("interrupted", 130)


def _make_standard_output_forgiving() -> None:
    """Characters that its encoding lacks become question marks; a reader that has seen enough ends the program quietly."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


if __name__ == "__main__":
    main()
