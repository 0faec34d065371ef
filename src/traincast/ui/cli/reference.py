"""Commands for reference, and the explorer: `catalog`, `schema`, `completion`, `serve`."""

from typing import Annotated, Any, Literal

from traincast.ui import outputs, text
from traincast.ui.cli.app import Json, app, command, option
from traincast.ui.cli.completion import names_of_entries, names_of_outputs, with_names
from traincast.ui.cli.output import outlive_closed_pipes, print_json

_NAME = "Name or file of the entry to show, or models, systems, accelerators or stacks; all names without."
_KINDS = {"stacks": "software_stacks", "gpus": "accelerators", "machines": "systems", "hardware": "systems"}
_OUTPUT = "Command, or error for the object printed instead of an answer; without it, all names."


@command("Reference", "catalogue", "machines", "models")
def catalog(
    name: Annotated[str | None, option(_NAME, completer=names_of_entries)] = None, /, *, json: Json = False
) -> None:
    """List models, systems, accelerators and software stacks, or show every figure of one with its source.

    Example: traincast catalog h200-nvs8
    """
    from traincast.catalog.load import (
        accelerator_names,
        figures,
        load_model,
        model_names,
        system_names,
        taken_for,
    )
    from traincast.catalog.software_stacks import stack_names
    from traincast.core.units import quantity

    tables = text.tables
    names: dict[str, Any] = {"models": model_names(aliases=False), "systems": system_names()}
    names |= {"accelerators": accelerator_names(), "software_stacks": stack_names()}
    kind = _KINDS.get(str(name).lower(), str(name).lower())
    if name is None or kind in names:
        names = names if name is None else {kind: names[kind]}
        if json:
            print_json(outputs.reference.CatalogOutput(**names))
            return
        for listed, known in names.items():
            title = tables.heading(listed.replace("_", " ").capitalize())
            tables.show((title,), tables.paragraphs(", ".join(known)))
        return
    rows = [
        outputs.reference.CatalogFigure(figure.path, figure.value, figure.unit, figure.source, figure.basis)
        for figure in figures(name)
    ]
    taken = taken_for(name)
    if json:
        print_json(outputs.reference.CatalogOutput(name=name, taken=taken or None, figures=rows))
        return
    cells = [(row.path, quantity(row.value, row.unit), f"{row.source} ({row.basis})") for row in rows]
    header = ("figure", "value", "source")
    model = load_model(name) if any(row.path == "hidden" for row in rows) else None
    shown = model.title if model is not None and model.left_out else name
    said = tables.paragraphs(*filter(None, (taken,)))
    tables.show((tables.title_line(shown), *said, tables.table(header, cells, left=(0, 2), wrap=range(3))))


@command("Reference", "json")
def schema(
    name: Annotated[str | None, option(_OUTPUT, completer=names_of_outputs)] = None, /, *, json: Json = False
) -> None:
    """Print the JSON Schema (draft 2020-12) of what a command prints with --json.

    Example: traincast schema plan
    """
    if name is not None:
        print_json(outputs.schema(name))
    elif json:
        print_json({"outputs": list(outputs.output_types())})
    else:
        print("\n".join(outputs.output_types()))


@command("Reference", "commands")
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], option("Shell to write it for.")],
    /,
    *,
    json: Json = False,
) -> None:
    """Print the script that completes commands, options and names of the catalogue in a shell.

    bash reads it from ~/.local/share/bash-completion/completions/traincast, zsh from a file _traincast in a
    folder of its fpath, fish from ~/.config/fish/completions/traincast.fish.

    Example: traincast completion bash > traincast.bash
    """
    script = with_names(app.generate_completion(shell=shell))
    if shell == "bash":  # complete file names where no name matches
        script = script.replace("\ncomplete -F ", "\ncomplete -o bashdefault -o default -F ")
    if json:
        print_json(outputs.reference.CompletionOutput(shell, script))
    else:
        print(script)


_HOST = "Address to listen on; the default is reached from this machine only."


@command("Explore in a browser", "explorer")
def serve(
    *,
    host: Annotated[str, option(_HOST)] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on; 0 takes any that is free.")] = 8765,
    json: Json = False,
) -> None:
    """Serve the explorer, a web page that searches again at every change of model, machine and knobs.

    Ctrl-C ends it.

    Example: traincast serve --port 8765
    """
    from traincast.ui.explorer.app import listen, run

    outlive_closed_pipes()  # a browser that hangs up ends nothing
    with listen(host, port) as socket:
        address = socket.getsockname()
        url = f"http://{f'[{address[0]}]' if ':' in address[0] else address[0]}:{address[1]}/"

        def announce() -> None:
            if json:
                print_json(outputs.reference.ServeOutput(url, address[0], address[1]))
            else:
                print(f"traincast explorer: {url}   (Ctrl-C ends it)", flush=True)

        run(socket, host, announce)
