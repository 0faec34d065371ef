"""Commands on the catalogue, the published results and the command line itself: `catalog`, `reproduce`, `schema`, `completion`."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from traincast.core.errors import InputError
from traincast.ui.cli.app import OUTPUT, Json, app, fail, print_json, progress
from traincast.ui.cli.completion import names_of_entries, names_of_outputs


@app.command
def catalog(
    name: Annotated[
        str | None,
        Parameter(completer=names_of_entries, help="What to show, by name, or a file; all names without it."),
    ] = None,
    /,
    *,
    json: Json = False,
) -> None:
    """List the models, systems, accelerators and software stacks known by name, or show every figure of one with its source.

    Example: traincast catalog h200-nvs8
    """
    from traincast.catalog.load import accelerator_names, figures, model_names, system_names
    from traincast.catalog.software_stacks import stack_names
    from traincast.core.units import quantity
    from traincast.ui.outputs.reference import CatalogFigure, CatalogOutput
    from traincast.ui.text.plans import console, print_figures, print_names

    out = console()
    if name is None:
        names = {"models": model_names(), "systems": system_names(), "accelerators": accelerator_names()}
        names["software_stacks"] = stack_names()
        if json:
            output: dict[str, Any] = {kind: list(known) for kind, known in names.items()}
            print_json(CatalogOutput(**output))
            return
        for kind, known in names.items():
            print_names(kind.replace("_", " ").capitalize(), known, out)
        return
    entries = figures(name)
    if json:
        rows = [
            CatalogFigure(figure.path, figure.value, figure.unit, figure.source, figure.basis)
            for figure in entries
        ]
        print_json(CatalogOutput(name=name, figures=rows))
        return
    print_figures(
        name,
        [
            (figure.path, quantity(figure.value, figure.unit), f"{figure.source} ({figure.basis})")
            for figure in entries
        ],
        out,
    )


@app.command
def reproduce(
    paper: Annotated[str, Parameter(help="arXiv number of the paper: 2410.00273.")],
    /,
    *,
    figures: Annotated[
        Path | None,
        Parameter(group=OUTPUT, help="Draw the paper's figures into this folder as well, as SVG."),
    ] = None,
    json: Json = False,
) -> None:
    """Recompute the published results of a paper, say how far they agree, and draw its figures.

    Example: traincast reproduce 2410.00273 --figures figures
    """
    from traincast.analysis.paper_results import PAPER_ID, reproduce
    from traincast.core.output_files import check_folder

    if paper.lower().removeprefix("arxiv:") != PAPER_ID:
        raise InputError("paper", [f"{paper!r} cannot be reproduced; known: {PAPER_ID}"])
    if figures is not None:
        check_folder(figures)
    result = reproduce()
    drawn = [] if figures is None else _draw_paper(figures)
    if json:
        from traincast.ui.outputs.analyses import ReproduceOutput

        print_json(ReproduceOutput(result, [str(path) for path in drawn]))
    else:
        from traincast.ui.text.plans import console, print_reproduction

        print_reproduction(result, console())
        for path in drawn:
            print(path)
    if not result.agrees:
        fail("not every published figure is met", 1)


def _draw_paper(folder: Path) -> list[Path]:
    """Draw the paper's figures into a folder."""
    from traincast.ui.figures import save
    from traincast.ui.figures.paper import paper_figures

    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    with progress("figures") as report_progress:
        for stem, figure in paper_figures():
            save(figure, folder / f"{stem}.svg")
            drawn.append(folder / f"{stem}.svg")
            report_progress(len(drawn), 12, 0)
    return drawn


@app.command
def schema(
    name: Annotated[
        str | None,
        Parameter(
            completer=names_of_outputs,
            help="Command, or error for what stands in place of an answer; all names without it.",
        ),
    ] = None,
    /,
    *,
    json: Json = False,
) -> None:
    """Print the JSON Schema (draft 2020-12) of what a command prints with --json.

    Example: traincast schema plan
    """
    from traincast.ui.outputs import output_types
    from traincast.ui.outputs import schema as describe

    if name is not None:
        print_json(describe(name))
    elif json:
        print_json({"outputs": list(output_types())})
    else:
        print("\n".join(output_types()))


@app.command
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Shell to write it for.")],
    /,
    *,
    json: Json = False,
) -> None:
    """Print the script that completes commands, options and names of the catalogue in a shell.

    bash reads it from ~/.local/share/bash-completion/completions/traincast, zsh from a file _traincast in a folder of its fpath,
    fish from ~/.config/fish/completions/traincast.fish.

    Example: traincast completion bash > traincast.bash
    """
    script = app.generate_completion(shell=shell)
    if shell == "bash":  # complete file names where no name matches
        script = script.replace("\ncomplete -F ", "\ncomplete -o bashdefault -o default -F ")
    if json:
        from traincast.ui.outputs.reference import CompletionOutput

        print_json(CompletionOutput(shell, script))
    else:
        print(script)
