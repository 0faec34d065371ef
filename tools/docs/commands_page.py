"""Page of the command line: the output of `--help`, by command."""

import contextlib
import io
import os

from traincast.ui.cli.help_pages import SECTIONS
from traincast.ui.cli.main import main

INTRO = """# Command line

`traincast COMMAND --help` prints the text below. All mistakes in a command line or a file are reported at once, with exit
code 2; exit code 1 means that nothing fits, and 130 that the command was interrupted. With `--json` each command prints one
JSON object ([keys, units and schemas](json.md)). Files are written completely or not at all, into folders that are created
where they are missing, and never over others without `--force`.

## Completion

Commands, options, choices and the names of the catalogue are completed with the tabulator key:

    traincast completion bash > ~/.local/share/bash-completion/completions/traincast
    traincast completion zsh > ~/.zfunc/_traincast       # with fpath+=~/.zfunc before compinit in ~/.zshrc
    traincast completion fish > ~/.config/fish/completions/traincast.fish

"""


def printed(*arguments: str) -> str:
    """Return the output of a command at a width of 80 columns."""
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    try:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            main(arguments)
    finally:
        os.environ.pop("COLUMNS") if columns is None else os.environ.update(COLUMNS=columns)
    return output.getvalue()


def page() -> str:
    """Return the page."""
    text = INTRO
    for title, names in SECTIONS.items():
        text += f"## {title}\n\n"
        for name in names:
            text += f"### traincast {name}\n\n```text\n{printed(name, '--help')}```\n\n"
    return text
