"""Help pages in the style of a manual: plain text, options by subject, an example, exit codes and references."""

import re
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from cyclopts import App, Group

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

SECTIONS: Final = {  # of traincast --help
    "Ask about a run": ("plan", "estimate", "memory", "advise", "trace"),
    "Take a plan to a framework": ("export", "check"),
    "Sweep": ("study", "merge", "plot"),
    "Measure and validate": ("measure", "calibrate", "validate"),
    "Explore in a browser": ("serve",),
    "Companion models": ("limits", "scaling", "reproduce"),
    "Reference": ("catalog", "schema", "completion"),
}
PAGES: Final = {  # of docs/, by command
    "plan": ("tutorial", "training", "nomenclature"),
    "estimate": ("tutorial", "metrics", "nomenclature"),
    "memory": ("training", "nomenclature"),
    "advise": ("advise",),
    "trace": ("trace",),
    "export": ("export",),
    "check": ("export",),
    "measure": ("measure",),
    "study": ("studies",),
    "merge": ("studies",),
    "plot": ("studies", "gallery"),
    "calibrate": ("calibration",),
    "validate": ("validation", "scoreboard"),
    "limits": ("limits",),
    "scaling": ("scaling",),
    "reproduce": ("errata", "gallery"),
    "catalog": ("catalogue", "machines", "models"),
    "serve": ("explorer",),
    "schema": ("json",),
    "completion": ("commands",),
}
EXIT_CODES: Final = "0 an answer, 1 nothing fits, 2 input that cannot be used, 130 interrupted"
EXAMPLE_LINE: Final = re.compile(r"^ *Example: (traincast .*)$\n?", re.MULTILINE)
MAX_PAGE_COLUMNS, OPTION_COLUMNS, COMMAND_COLUMNS, INDENT = (
    100,
    26,
    14,
    "  ",
)  # columns of a page, of names of options, and of commands
VALUE_NAMES: Final = {
    "INT": "N",
    "FLOAT": "X",
    "STR": "TEXT",
    "PATH": "FILE",
    "CHOICE": "WORD",
}  # names of values by type
MAX_INLINE_CHOICE_CHARACTERS: Final = 12  # shorter lists of choices stand in place of the value's name
ROOT_EPILOGUE: Final = f"""Example:
{INDENT}traincast plan llama-3-8b --system dgx-h100 --gpus 64

Exit codes:
{INDENT}{EXIT_CODES}

See also:
{INDENT}traincast COMMAND --help, which ends with an example
{INDENT}traincast completion --help, for completion in bash, zsh and fish
{INDENT}docs/tutorial.md, docs/commands.md"""


def arrange(app: App) -> None:
    """Put every command into its section, and its example at the end of its help."""
    groups = {title: Group(title, sort_key=place) for place, title in enumerate(SECTIONS)}
    sections = {name: groups[title] for title, names in SECTIONS.items() for name in names}
    order = list(sections)
    for name in app:
        if not name.startswith("-"):
            command, written = app[name], app[name].help
            if name in sections:
                command.group, command.sort_key = sections[name], order.index(name)
            command.help = EXAMPLE_LINE.sub("", written)
            command.help_epilogue = "\n\n".join(
                _epilogue(name, EXAMPLE_LINE.findall(written), "json" in _argument_names(command))
            )
    app.help_epilogue, app.help_formatter = ROOT_EPILOGUE, Manual(app)


def _argument_names(command: App, by_position: bool = False) -> tuple[str, ...]:
    """Return the names of a command's arguments; only the positional ones `by_position`."""
    code = command.default_command.__code__  # type: ignore[union-attr]
    return code.co_varnames[: code.co_posonlyargcount + (0 if by_position else code.co_kwonlyargcount)]


def _epilogue(name: str, examples: list[str], takes_json: bool) -> Iterator[str]:
    """Yield the paragraphs at the end of a command's help."""
    lines = [line for example in examples for line in broken_into_lines(example)]
    yield "\n".join(("Example:", *lines))
    yield f"Exit codes:\n{INDENT}{EXIT_CODES}"
    places = [f"docs/{page}.md" for page in PAGES.get(name, ())] + [
        f"traincast schema {name}, for --json"
    ] * takes_json
    if places:
        yield "\n".join(("See also:", *(INDENT + place for place in places)))


def broken_into_lines(command: str) -> list[str]:
    """Return a command line as lines of at most 78 characters that can still be copied."""
    words = re.split(r" (?=--)", command)
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) < 72:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [
        INDENT * (1 if i == 0 else 2) + line + (" \\" if i < len(lines) - 1 else "")
        for i, line in enumerate(lines)
    ]


class Manual:
    """A cyclopts help formatter that writes the parts of a manual page."""

    def __init__(self, app: App):
        self.app = app

    def render_usage(self, console: "Console", options: "ConsoleOptions", usage: Any) -> None:
        """Print the synopsis, positional arguments first."""
        words = _plain_text(usage).removeprefix("Usage: ").split()
        if "[OPTIONS]" in words:
            at = words.index("[OPTIONS]") + 1
            positional = [
                f"[{name.upper()}]" for name in _argument_names(self.app[words[1]], by_position=True)
            ]
            words = words[:2] + (positional if "[ARGS]" in words else words[at:]) + words[2:at]
        self._paragraph(
            console, "Usage: " + " ".join(VALUE_NAMES.get(word, word) for word in words), INDENT * 2
        )

    def render_description(self, console: "Console", options: "ConsoleOptions", description: Any) -> None:
        """Print what a command does."""
        for paragraph in re.split(r"\n\s*\n", _plain_text(description)):
            console.print()
            self._paragraph(console, paragraph)

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        """Print a group of commands or of options."""
        from rich.text import Text

        if panel.entries:
            console.print(Text(f"\n{_plain_text(panel.title)}:", style="bold"))
        column = COMMAND_COLUMNS if panel.format == "command" else OPTION_COLUMNS
        for entry in panel.entries:
            label = Text(INDENT + _label(entry), style="bold")
            fits_beside = len(label) + len(INDENT) <= column
            lines = textwrap.wrap(_entry_text(entry), _width(console) - column, break_on_hyphens=False)
            if not fits_beside:
                console.print(label)
            for i, line in enumerate(lines):
                start = label if i == 0 and fits_beside else Text()
                start.pad_right(column - len(start))
                console.print(start + line)

    def _paragraph(self, console: "Console", words: str, indent: str = "") -> None:
        """Print a paragraph, wrapped."""
        lines = textwrap.wrap(
            " ".join(words.split()), _width(console), subsequent_indent=indent, break_on_hyphens=False
        )
        console.print("\n".join(lines), markup=False, highlight=False)


def _width(console: "Console") -> int:
    """Return the width to write in [characters]."""
    return min(console.width, MAX_PAGE_COLUMNS)


def _plain_text(renderable: Any) -> str:
    """Return the plain text of a rich renderable that cyclopts passes."""
    renderable = getattr(renderable, "primary_renderable", renderable)
    return str(getattr(renderable, "plain", renderable or "")).strip()


def _label(entry: "HelpEntry") -> str:
    """Return how an option is written, or a command called."""
    if entry.positional_label:
        return entry.positional_label
    names = ", ".join((*entry.shorts, *entry.names))
    choices = "|".join(entry.choices or ())
    kind = re.sub("[A-Z]+", lambda word: VALUE_NAMES.get(word[0], word[0]), entry.metavar or "")
    value = choices if 0 < len(choices) <= MAX_INLINE_CHOICE_CHARACTERS else kind
    return f"{names} {value}" if entry.metavar else names


def _entry_text(entry: "HelpEntry") -> str:
    """Return the description of an entry, with choices and default where the description lacks them."""
    about, choices = _plain_text(entry.description), entry.choices or ()
    known = (
        set(re.findall(r"[\w-]+", about)) >= set(choices)
        or len("|".join(choices)) <= MAX_INLINE_CHOICE_CHARACTERS
    )
    rest = [] if known else [", ".join(choices)]
    rest += [] if entry.default in (None, "False", "True") else [f"default {entry.default}"]
    rest += ["required"] if entry.required and entry.names else []
    return f"{about} [{'; '.join(rest)}]" if rest else about
