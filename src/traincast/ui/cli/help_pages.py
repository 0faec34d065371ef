"""Help pages in the style of a manual: plain text, options by subject, an example, exit codes, references."""

import re
import textwrap
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Final

from cyclopts import App, Group

from traincast.ui.cli.app import PLACED
from traincast.ui.cli.completion import with_names

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

SECTIONS: Final[dict[str, dict[str, tuple[str, ...]]]] = {}  # of traincast --help, as `arrange` orders them
PAGES: Final[dict[str, tuple[str, ...]]] = {}  # of docs/, to read on, by command
# By command, a file that it takes: of docs/studies.md and docs/machine_design.md in short.
FILES: Final[dict[str, str]] = {
    "study": """name: llama on more and more GPUs
models: [llama-3-70b]
systems: [dgx-h100, dgx-b200]
gpus: {doubling: [64, 512]}
global_batch: 512
vary:
  - network.1.bandwidth: [25 GB/s, 50 GB/s]""",
    "design": """name: one model
workload: [{model: llama-3-70b, global_batch: 2048, tokens: 2T, runs: 1}]
gpus: 1024
machines:
  - name: HBM
    base: dgx-b200
    vary: {accelerator.hbm_bytes: [144 GB, 192 GB, 288 GB]}
systems: [dgx-h200, dgx-b200]""",
}
EXIT_CODES: Final = "0 answered, 1 nothing fits, 2 unusable input, 130 interrupted"
ALSO_READ: Final = (  # `SAME_VALUE` and its like in aliases.py, `also_called` of frameworks
    "Options of Megatron-LM, torchtitan, transformers and TRL are read as well,\n"
    "such as --tensor-model-parallel-size 8 and --lora 16; so are --framework trl,\n"
    "axolotl or nemo."
)
EXAMPLE_LINE: Final = re.compile(r"^ *Example: (traincast .*)$\n?", re.MULTILINE)
INDENT: Final = "  "
MAX_PAGE_COLUMNS: Final = 100
LABEL_COLUMNS: Final = {"command": 14, "parameter": 28}  # of the names of commands and of options
VALUE_NAMES: Final = {"INT": "N", "FLOAT": "X", "STR": "TEXT", "PATH": "FILE", "CHOICE": "WORD"}
MAX_INLINE_CHOICE_CHARACTERS: Final = 12  # shorter lists of choices stand in place of the value's name


def arrange(app: App, modules: Sequence[ModuleType]) -> None:
    """Put every command into its section, in the order of modules, and its example at the end of its help."""
    order = [module.__name__ for module in modules]
    for title, placed in PLACED.items():
        placed.sort(key=lambda place: order.index(place.module))
        SECTIONS[title] = {place.name: place.pages for place in placed}
        PAGES.update(SECTIONS[title])
    for place, (title, names) in enumerate(SECTIONS.items()):
        group = Group(title, sort_key=place)
        for name in names:
            app[name].group = group
            app[name].sort_key = list(PAGES).index(name)
    for name in app:
        if not name.startswith("-"):
            command = app[name]
            examples = [broken_into_lines(line) for line in EXAMPLE_LINE.findall(command.help)]
            first, *others = PAGES[name]
            read_on = [f"traincast docs {first}" + (f"; also {', '.join(others)}" if others else "")]
            if "examples/" in command.help:
                read_on.append("traincast example --output examples, for those files")
            if "json" in _argument_names(command):
                read_on.append(f"traincast schema {name}, for --json")
            command.help = EXAMPLE_LINE.sub("", command.help)
            shown = [line for example in examples for line in example]
            command.help_epilogue = _epilogue(shown, read_on, FILES.get(name))
    app.help_formatter = Manual(app)
    page = _epilogue(
        [f"{INDENT}traincast plan llama-3-8b --system dgx-h100 --gpus 64"],
        [
            "traincast COMMAND --help, which ends with an example",
            "traincast completion --help, for completion in bash, zsh and fish",
            "traincast docs recipes; also tutorial, commands",
            "traincast COMMAND … --debug, which shows where an error was raised",
        ],
    )
    app.help_epilogue = f"{ALSO_READ}\n\n{page}"


def _argument_names(command: App, by_position: bool = False) -> tuple[str, ...]:
    """Return the names of a command's arguments; only the positional ones `by_position`."""
    code = command.default_command.__code__  # type: ignore[union-attr]
    return code.co_varnames[: code.co_posonlyargcount + (0 if by_position else code.co_kwonlyargcount)]


def _epilogue(example: list[str], read_on: list[str], file: str | None = None) -> str:
    """Return the paragraphs at the end of a help page, with a `file` that the command takes."""
    parts = ["\n".join(("Example:", *example))] if example else []
    parts += [f"A file:\n{textwrap.indent(file, INDENT)}"] if file else []
    parts += [f"Exit codes: {EXIT_CODES}"]
    parts += ["\n".join(("See also:", *(INDENT + page for page in read_on)))]
    return "\n\n".join(parts)


def broken_into_lines(command: str) -> list[str]:
    """Return a command line as lines of at most 78 characters that can still be copied."""
    first, *words = re.split(r" (?=--)", command)
    lines = [INDENT + first]
    for word in words:
        if len(lines[-1]) + len(word) < 76:
            lines[-1] += f" {word}"
        else:
            lines[-1] += " \\"
            lines.append(INDENT * 2 + word)
    return lines


class Manual:
    """A cyclopts help formatter that writes the parts of a manual page."""

    def __init__(self, app: App):
        self.app = app

    def render_usage(self, console: "Console", options: "ConsoleOptions", usage: object) -> None:
        """Print the synopsis, positional arguments first."""
        words = _plain_text(usage).removeprefix("Usage: ").split()
        if "[OPTIONS]" in words:
            at = words.index("[OPTIONS]") + 1
            positional = words[at:]
            if "[ARGS]" in words:
                names = _argument_names(self.app[words[1]], by_position=True)
                positional = [f"[{name.upper()}]" for name in names]
            words = words[:2] + positional + words[2:at]
        synopsis = " ".join(VALUE_NAMES.get(word, word) for word in words)
        _print_wrapped(console, f"Usage: {synopsis}", INDENT * 2)

    def render_description(self, console: "Console", options: "ConsoleOptions", description: object) -> None:
        """Print what a command does."""
        for paragraph in re.split(r"\n\s*\n", _plain_text(description)):
            console.print()
            _print_wrapped(console, " ".join(paragraph.split()))

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        """Print a group of commands or of options: labels in bold, texts in a column next to them."""
        from rich.text import Text

        if panel.entries:
            console.print(Text(f"\n{_plain_text(panel.title)}:", style="bold"))
        if panel.entries and (about := _plain_text(panel.description)):
            _print_wrapped(console, INDENT + about, INDENT)
        column = LABEL_COLUMNS.get(panel.format, LABEL_COLUMNS["parameter"])
        for entry in panel.entries:
            label = Text(INDENT + _label(entry), style="bold")
            lines = textwrap.wrap(_entry_text(entry), _width(console) - column, break_on_hyphens=False)
            if len(label) + len(INDENT) > column:
                console.print(label)
                label = Text()
            for start, line in zip((label, *[Text()] * len(lines)), lines, strict=False):
                console.print(start + " " * (column - len(start)) + line)


def _print_wrapped(console: "Console", text: str, indent: str = "") -> None:
    wrapped = textwrap.fill(text, _width(console), subsequent_indent=indent, break_on_hyphens=False)
    console.print(wrapped, markup=False, highlight=False)


def _width(console: "Console") -> int:
    """Return the width to write in [characters]."""
    return min(console.width, MAX_PAGE_COLUMNS)


def _plain_text(renderable: object) -> str:
    """Return the plain text of a rich renderable that cyclopts passes."""
    renderable = getattr(renderable, "primary_renderable", renderable)
    return str(getattr(renderable, "plain", renderable or "")).strip()


def _label(entry: "HelpEntry") -> str:
    """Return how an option is written, or a command called."""
    if entry.positional_label:
        return entry.positional_label
    names = ", ".join((*entry.shorts, *entry.names))
    names = re.sub(r"--([\w-]+), --no-\1$", r"--[no-]\1", names)
    names = re.sub(r"--([\w-]+)(-\w+), --\1$", r"--\1[\2]", names)
    choices = "|".join(entry.choices or ())
    kind = re.sub("[A-Z]+", lambda word: VALUE_NAMES.get(word[0], word[0]), entry.metavar or "")
    value = choices if 0 < len(choices) <= MAX_INLINE_CHOICE_CHARACTERS else kind
    return f"{names} {value}" if entry.metavar else names


def _entry_text(entry: "HelpEntry") -> str:
    """Return the description of an entry, with choices and default where the description lacks them."""
    about = with_names(_plain_text(entry.description))
    choices = entry.choices or ()
    inline = len("|".join(choices)) <= MAX_INLINE_CHOICE_CHARACTERS
    named = set(re.findall(r"[\w-]+", about)) >= set(choices)
    rest = [] if inline or named else [", ".join(choices)]
    rest += [] if entry.default in (None, "False", "True") else [f"default {entry.default}"]
    rest += ["required"] if entry.required and entry.names else []
    return f"{about} [{'; '.join(rest)}]" if rest else about
