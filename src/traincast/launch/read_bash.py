"""Reader of bash launch scripts: arguments behind variables, arrays and quotes. Nothing is run."""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from traincast.launch.settings import Settings, dotted, evaluated

MAX_VALUE_CHARACTERS: Final = 1 << 16  # characters of a value
MAX_SUM_CHARACTERS: Final = 200  # of an arithmetic expression
ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
DECLARATIONS: Final = ("export", "declare", "local", "readonly", "typeset")
ARRAY: Final = re.compile(
    rf"(?:(?:{'|'.join(DECLARATIONS)})\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(\+?)=\(", re.DOTALL
)
SUBSTITUTION: Final = re.compile(
    r"""\$\(\((?P<sum>[^()]*(?:\([^()]*\)[^()]*)*)\)\)
    |\$\{(?P<name>\w+)(?P<array>\[[@*]\])?(?:(?P<how>:?[-=+?])(?P<other>[^{}]*))?\}
    |\$(?P<plain>[A-Za-z_]\w*|\d)""",
    re.VERBOSE,
)
# Before a branch's commands.
CASE_PATTERN: Final = re.compile(r"^\(?[^\s()=]+\)\s+(?=[A-Za-z_]\w*\+?=|export )")
BRANCHES: Final = {"if": 1, "case": 1, "fi": -1, "esac": -1}
KEYWORDS: Final = re.compile(r"^(?:(?:then|else|do|\{|!|time|exec)\s+)+")  # a command may follow
# A variable in braces, or another dollar sign: unambiguous, so that matching stays linear.
VARIABLE: Final = r"\$\{[^{}]*\}|\$(?!\{[^{}]*\})"
# Or escaped; without its end, up to the end of the text.
QUOTED: Final = r"""\\.|'[^']*'?|"(?:\\.|[^"\\])*"?"""
COMMENT_PARTS: Final = re.compile(
    rf"""\\\n|{QUOTED}|(?P<comment>(?<![^ \t\n;(])\#[^\n]*)|[^\\'"\#]+|.""", re.DOTALL
)
PARTS: Final = re.compile(rf"""{QUOTED}|[(){{}}\n;|&]|[^\S\n]+|[^\\'"(){{}};|&\s]+|.""", re.DOTALL)
CONTINUED_LINE: Final = re.compile(r"(\\[^\n])|\\\n")
QUOTED_PIECES: Final = re.compile(
    rf"'[^']*'|\"(?:{VARIABLE}|[^\"\\$]|\\.)*\"|(?:{VARIABLE}|[^'\"$])+|['\"]", re.DOTALL
)  # of a word, by its quotes
JSON_HERE_DOCUMENT: Final = re.compile(
    r"<<-?[ \t]*(['\"]?)(?:\w+)\1[^\n]*\n(\{.{0,9999}?\n\})[ \t]*\n", re.DOTALL
)
SLURM_VARIABLES: Final = {  # that a directive sets
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "gpus_per_node": ("SLURM_GPUS_PER_NODE",),
    "ntasks_per_node": ("SLURM_NTASKS_PER_NODE",),
}


@dataclass
class Script:
    """Variables and commands of a script, collected statement by statement."""

    values: dict[str, list[str]] = field(default_factory=dict)  # of variables and arrays
    commands: list[list[str]] = field(default_factory=list)  # words of every command
    # Variables set to different values, or under a condition.
    reassigned: set[str] = field(default_factory=set)
    depth: int = 0  # nesting depth of conditions at the statement
    first_only: str = ""  # a variable of which only the first, unconditional assignment counts

    def set(self, name: str, words: list[str], append: bool) -> None:
        """Set a variable, or append to it."""
        before = self.values.get(name, [])
        if self.depth or (not append and " ".join(before) not in " ".join(words)):
            self.reassigned.add(name)
            if name == self.first_only:
                words, append = before or [""], False
        if append:
            words = [*before, *words]
        if sum(map(len, words)) < MAX_VALUE_CHARACTERS:
            self.values[name] = words


def settings_of(text: str, first_only: str = "") -> Settings:
    """Return the arguments of a script with underscores: the last value of each; True if it has none."""
    script = read(text, first_only)
    lines = script.commands
    if sum(word.startswith("--") for words in lines for word in words) < 3:
        # The script only defines arguments; another one runs the command.
        lines = [_split_command_lines(words) for words in script.values.values()]
    settings = directives(text)
    for words in lines:
        settings |= arguments(words)
    if "deepspeed_config" in settings:
        written = _written_json(text, script)
        settings |= {f"deepspeed_config.{name}": value for name, value in written.items()}
    return settings


def _written_json(text: str, script: Script) -> Settings:
    """Return settings of JSON that a script writes with here-documents; malformed JSON is skipped."""
    settings = Settings()
    for match in JSON_HERE_DOCUMENT.finditer(text):
        # A variable that is not set stays as text.
        substituted = re.sub(r"(:\s*)(\$\{?\w+\}?)", r'\1"\2"', _substitute(match[2], script))
        with suppress(ValueError, RecursionError):
            document = json.loads(substituted)
            settings |= dotted(document) if isinstance(document, dict) else {}
    return settings


def commands(text: str) -> list[list[str]]:
    """Return the words of every command."""
    return read(text).commands


def ambiguous_variables(text: str) -> dict[str, set[str]]:
    """Return variables that are set more than once or under a condition, with the arguments they change."""
    settings, ambiguous = settings_of(text), {}
    for variable in sorted(read(text).reassigned):
        without = settings_of(text, variable)
        names = {*settings, *without}
        ambiguous[variable] = {name for name in names if settings.get(name) != without.get(name)}
    return ambiguous


def arguments(words: Sequence[str]) -> Settings:
    """Return the arguments of a command line; a script's name ends the values of the argument before it."""
    settings = Settings()
    name, taking = "", False
    for word in words:
        if match := re.match(r"--([A-Za-z][\w.-]*)(?:=(.*))?$", word, re.DOTALL):
            name, taking = match[1].replace("-", "_"), match[2] is None
            settings[name] = True if match[2] is None else match[2]
        elif re.match(r"-[A-Za-z]", word) or word.endswith((".py", ".sh")):
            taking = False
        elif taking and word not in ("$@", "$*"):
            value: Any = settings[name]
            more = value if isinstance(value, tuple) else (value,)
            settings[name] = word if value is True else (*more, word)
    return settings


def read(text: str, first_only: str = "") -> Script:
    """Read the variables and commands of a script."""
    script = Script(first_only=first_only)
    for name, value in directives(text).items():
        script.values |= {variable: [str(value)] for variable in SLURM_VARIABLES[name]}
    for statement in _split(_without_comments(text.replace("\r\n", "\n")), "\n;|&".__contains__, "(", ")"):
        _read_statement(CASE_PATTERN.sub("", KEYWORDS.sub("", statement.strip())), script)
    return script


def _read_statement(statement: str, script: Script) -> None:
    """Read an assignment of an array, or a command with the assignments before it."""
    script.depth += BRANCHES.get(statement.split(maxsplit=1)[0] if statement else "", 0)
    if array := ARRAY.match(statement):
        items = _words(statement[array.end() :].rstrip().removesuffix(")"))
        script.set(array[1], [part for item in items for part in expand_word(item, script)], bool(array[2]))
        return
    words = list(_words(statement))
    while words and (words[0] in DECLARATIONS or ASSIGNMENT.fullmatch(words[0])):
        if assignment := ASSIGNMENT.fullmatch(words.pop(0)):
            name, append, value = assignment.groups()
            before = "".join(script.values.get(name, [])) if append else ""
            script.set(name, [before + " ".join(expand_word(value, script, split=False))], False)
    command = _split_command_lines([part for word in words for part in expand_word(word, script)])
    if command:
        script.commands.append(command)


def directives(text: str) -> Settings:
    """Return the nodes, and accelerators per node, of Slurm directives."""
    settings = Settings()
    for line in text.splitlines():
        match = re.match(r"#SBATCH\s+(?:--([\w-]+)(?:=|\s+)|(-N)\s*)(\S+)", line)
        if match is None:
            continue
        name, value = (match[1] or "nodes").replace("-", "_"), match[3]
        if gpus := re.fullmatch(r"gpu:(?:\w+:)?(\d+)", value):
            name, value = "gpus_per_node", gpus[1]
        if name in SLURM_VARIABLES and value.isdecimal():
            settings[name] = value
    return settings


def _without_comments(text: str) -> str:
    """Return a script without comments and continued lines."""

    def kept(part: re.Match[str]) -> str:
        if part["comment"] or part[0][0] == "'":
            return "" if part["comment"] else part[0]
        return CONTINUED_LINE.sub(lambda match: match[1] or " ", part[0])

    return COMMENT_PARTS.sub(kept, text)


def _split(text: str, is_end: Callable[[str], bool], opening: str, closing: str) -> Iterator[str]:
    """Yield what stands between ends; quotes and brackets keep it together."""
    piece, depth = "", 0
    for part in PARTS.findall(text):
        if not depth and is_end(part):
            yield piece
            piece = ""
        else:
            depth = max(depth + (part in opening) - (part in closing), 0)
            piece += part
    yield piece


def _words(statement: str) -> Iterator[str]:
    """Yield the words of a statement with their quotes; quotes, braces and brackets keep blanks together."""
    return filter(None, _split(statement, str.isspace, "({", ")}"))


def expand_word(word: str, script: Script, split: bool = True) -> list[str]:
    """Expand a word: to an array's words, or to one text; blanks of an unquoted variable separate words."""
    variable = re.fullmatch(r"\"?\$\{(\w+)(?:\[[@*]\])?\}\"?|\"?\$(\w+)\"?", word)
    if variable and len(script.values.get(variable[1] or variable[2], ())) > 1:
        return script.values[variable[1] or variable[2]]
    expansion, has_blanks = "", False
    for piece in QUOTED_PIECES.findall(word):
        if piece[0] == "'":
            expansion += piece[1:-1] if len(piece) > 1 else ""
        elif piece[0] == '"':
            expansion += re.sub(r"\\(.)", r"\1", _substitute(piece[1:-1], script)) if len(piece) > 1 else ""
        else:
            value = _substitute(re.sub(r"\\(.)", r"\1", piece), script)
            has_blanks = has_blanks or (value != piece and bool(re.search(r"\s", value.strip())))
            expansion += value
    return expansion.split() if split and has_blanks else [expansion] if expansion or not split else []


def _substitute(text: str, script: Script, depth: int = 0) -> str:
    """Substitute the variables of a text; those that are not set stay as they are."""

    def value(match: re.Match[str]) -> str:
        if match["sum"] is not None:
            number = evaluated(
                _substitute(match["sum"], script, depth + 1)[:MAX_SUM_CHARACTERS], script.values
            )
            return str(number) if isinstance(number, int) else match[0]
        current, how = script.values.get(match["name"] or match["plain"]), match["how"] or ""
        if how and how.endswith("+") == bool(current):  # the other value counts
            if how.endswith("?"):
                return match[0]
            return _substitute(re.sub(r"^(['\"])(.*)\1$", r"\2", match["other"] or ""), script, depth + 1)
        return match[0] if current is None else " ".join(current)

    if depth > 8 or len(text) > MAX_VALUE_CHARACTERS:
        return text
    substituted = SUBSTITUTION.sub(value, text)
    return substituted if len(substituted) <= MAX_VALUE_CHARACTERS else text


def _split_command_lines(words: Sequence[str]) -> list[str]:
    """Split words that hold a whole command line."""
    parts: list[str] = []
    for word in words:
        if " --" in word or (word.startswith("--") and " " in word):
            try:
                parts += shlex.split(word, comments=False)
            except ValueError:
                parts += word.split()
        else:
            parts.append(word)
    return parts
