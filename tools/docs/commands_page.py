"""Page of the command line: the output of `--help`, by command."""

import contextlib
import io
import os
from collections.abc import Iterable

from traincast.planner.frameworks.spaces import FRAMEWORKS
from traincast.ui.cli import aliases
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


OTHER_TOOLS = """## Options of other tools

Options of Megatron-LM, torchtitan, transformers, TRL, PEFT, Accelerate, DeepSpeed, torchrun and the tools of clouds are read as
those that say the same, in every command that has these; underscores, capitals and a section before a dot
(`--training.seq_len`) do not matter. What is read in one of two meanings is said on standard error, and what may mean more
than one thing is refused with the option to write.

| read as | written |
| --- | --- |
"""


def other_tools() -> str:
    """Return the table of the options of other tools, and the names of frameworks."""
    rows = {option: list(names) for option, names in aliases.SAME_VALUE.items()}
    for name, (words, _) in aliases.SWITCHES.items():
        rows.setdefault(words.replace("=", " "), []).append(name)
    for name, method in aliases.TRAINED.items():
        rows.setdefault(f"--train {'dpo+…' if method == 'dpo' else method}", []).append(name)
    rows["--gpus, those of all nodes"] = [*aliases.NODES, *aliases.OF_NODE]
    table = "".join(f"| `{option}` | {_listed(names)} |\n" for option, names in rows.items())
    programs = "".join(
        f"| `--framework {framework.name}` | {_listed(framework.also_called)} |\n"
        for framework in FRAMEWORKS.values()
        if framework.also_called
    )
    return f"{OTHER_TOOLS}{table}{programs}\n"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def page() -> str:
    """Return the page."""
    text = INTRO + other_tools()
    for title, names in SECTIONS.items():
        text += f"## {title}\n\n"
        for name in names:
            text += f"### traincast {name}\n\n```text\n{printed(name, '--help')}```\n\n"
    return text
