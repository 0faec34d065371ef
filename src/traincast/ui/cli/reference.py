"""Commands for reference, and the explorer: `catalog`, `schema`, `docs`, `example`, `completion`, `serve`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from traincast.ui import outputs, text
from traincast.ui.cli.app import Force, Json, app, command, option, output_option
from traincast.ui.cli.completion import names_of_entries, names_of_examples, names_of_pages, with_names
from traincast.ui.cli.output import outlive_closed_pipes, print_json

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

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
    from traincast.catalog import (
        accelerator_names,
        describe_name,
        figures,
        load_model,
        model_names,
        stack_names,
        system_names,
    )
    from traincast.core import quantity

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
    taken = describe_name(name)
    if json:
        print_json(outputs.reference.CatalogOutput(name=name, taken=taken or None, figures=rows))
        return
    cells = [(row.path, quantity(row.value, row.unit), f"{row.source} ({row.basis})") for row in rows]
    header = ("figure", "value", "source")
    model = load_model(name) if any(row.path == "hidden" for row in rows) else None
    shown = model.title if model is not None and model.left_out else name
    said = tables.paragraphs(*filter(None, (taken,)))
    tables.show((tables.title_line(shown), *said, tables.table(header, cells, left=(0, 2), wrap=range(3))))


def names_of_outputs(_: "CompletionContext") -> list[str]:
    """Return the outputs that have a schema."""
    return list(outputs.output_types())


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


_PAGE = "Page to print, such as export or questions/memory; all pages without."
_PAGE_FILE = "Print the file of the page instead of its text."


@command("Reference", "recipes", "index")
def docs(
    name: Annotated[str | None, option(_PAGE, completer=names_of_pages)] = None,
    /,
    *,
    path: Annotated[bool, option(_PAGE_FILE)] = False,
    json: Json = False,
) -> None:
    """Print a page of the documentation, or list its pages.

    Example: traincast docs recipes
    """
    from traincast.ui.cli import packaged

    if name is None:
        listed = {page: packaged.title(file) for page, file in packaged.pages().items()}
        if json:
            print_json(outputs.reference.DocsOutput(pages=listed))
        else:
            text.tables.show((text.tables.table(("page", ""), listed.items(), left=(0, 1), wrap=(1,)),))
        return
    file = packaged.page(name)
    if json:
        content = file.read_text(encoding="utf-8")
        print_json(outputs.reference.DocsOutput(path=str(file), text=content))
    elif path:
        print(file)
    else:
        text.tables.show(text.markdown.page(file.read_text(encoding="utf-8").rstrip()))


_EXAMPLE = "File or folder of the examples; a list of all without."
_EXAMPLE_OUTPUT = "File or folder to copy it to, all examples without a name; else standard output."


@command("Reference", "recipes", "studies")
def example(
    name: Annotated[str | None, option(_EXAMPLE, completer=names_of_examples)] = None,
    /,
    *,
    output: Annotated[Path | None, output_option(_EXAMPLE_OUTPUT)] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Print or copy an example: a study, a design, a model's config.json, logs and launches of a cluster.

    With --output examples all are copied, so that the commands of the help pages find them.

    Example: traincast example strong_scaling
    """
    from traincast.ui.cli import packaged

    source = packaged.folder("examples") if name is None else packaged.example(name)
    written = None if output is None else packaged.copy_example(source, output, force)
    if written is not None:
        files = [str(file) for file in written]
        if json:
            print_json(outputs.reference.ExampleOutput(written=files))
        else:
            print("\n".join(files))
    elif source.is_file():
        content = source.read_text(encoding="utf-8")
        if json:
            print_json(outputs.reference.ExampleOutput(path=str(source), text=content))
        else:
            print(content.rstrip())
    else:
        inside = {each: file for each, file in packaged.examples().items() if source in file.parents}
        listed = {each: packaged.title(file) for each, file in inside.items() if file.is_file()}
        if json:
            print_json(outputs.reference.ExampleOutput(examples=listed))
        else:
            text.tables.show((text.tables.table(("example", ""), listed.items(), left=(0, 1), wrap=(1,)),))


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


_OFFERED = "File of a system to offer besides the catalogue's; give it again for another."
_SERVER_MEMORY = "For all searches together (8GiB); else a quarter of the machine's."
_HOST = "Address to listen on; the default is reached from this machine only."


@command("Explore in a browser", "explorer")
def serve(
    *,
    host: Annotated[str, option(_HOST)] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on; 0 takes any that is free.")] = 8765,
    system: Annotated[list[Path] | None, option(_OFFERED, consume_multiple=False)] = None,
    memory: Annotated[str | None, option(_SERVER_MEMORY)] = None,
    json: Json = False,
) -> None:
    """Serve the explorer, a web page that searches again at every change of model, machine and knobs.

    Ctrl-C ends it. A system of your own, such as one that `calibrate` wrote, is in its list with --system.

    Example: traincast serve --port 8765
    """
    from traincast.ui.explorer.app import listen, run
    from traincast.ui.explorer.question import offer

    files = list(map(str, system or ()))
    offer(files)
    limit = None if memory is None else _server_memory(memory)
    outlive_closed_pipes()  # a browser that hangs up ends nothing
    with listen(host, port) as socket:
        address = socket.getsockname()
        url = f"http://{f'[{address[0]}]' if ':' in address[0] else address[0]}:{address[1]}/"

        def announce() -> None:
            if json:
                print_json(outputs.reference.ServeOutput(url, address[0], address[1]))
            else:
                print(f"traincast explorer: {url}   (Ctrl-C ends it)", flush=True)

        run(socket, host, announce, files, limit)


def _server_memory(text: str) -> int:
    """Read what the searches of a server may take together [bytes]."""
    from traincast.core import InputError, gib
    from traincast.ui.cli.quantities import parse_option
    from traincast.ui.explorer.limits import LEAST_MEMORY

    memory = parse_option(text, "B", "--memory")
    if memory < LEAST_MEMORY:
        raise InputError("serve", [f"--memory = {text!r}: must be at least {gib(LEAST_MEMORY)}"])
    return int(memory)
