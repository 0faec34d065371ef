"""Interpreter of bash scripts: variables, arrays, branches and loops, and the commands they lead to.

Nothing is run. A condition whose value the script does not tell (of a file, of a variable from outside)
leaves all of its branches active, one after the other, and is kept in `Script.undecided`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

from traincast.launch.scripts.shell_syntax import (
    HERE_STRING,
    NESTED,
    QUOTED_PIECES,
    drop_redirections,
    split_command_lines,
    statements_of,
    words_of,
)
from traincast.launch.settings.beside import found_by_suffix
from traincast.launch.settings.settings import evaluate_text

MAX_VALUE_CHARACTERS: Final = 1 << 16  # characters of a value
MAX_SUM_CHARACTERS: Final = 200  # of an arithmetic expression
MAX_SHOWN_CHARACTERS: Final = 60  # of a condition in a message
MAX_STATEMENTS: Final = 20_000  # that are interpreted: loops end
MAX_DEPTH: Final = 8  # of substitutions in each other, and of files that read each other
ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
DECLARATIONS: Final = ("export", "declare", "local", "readonly", "typeset")
ARRAY: Final = re.compile(
    rf"(?:(?:{'|'.join(DECLARATIONS)})\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(\+?)=\(", re.DOTALL
)
_INNER: Final = r"(?:[^{}]|\{[^{}]{0,999}\}){0,9999}"  # of braces, with one level more
SUBSTITUTION: Final = re.compile(
    rf"""\$\(\((?P<sum>[^()]*(?:\([^()]*\)[^()]*)*)\)\)
    |\$\((?P<command>{NESTED})\)
    |\$\{{(?P<count>\#?)(?P<indirect>!?)(?P<name>\w+)(?P<index>\[[^\]\n]{{1,40}}\])?
      (?:(?P<how>:?[-=+?]|%%?|\#\#?|//?|,,|\^\^)(?P<other>{_INNER}))?\}}
    |\$(?P<plain>[A-Za-z_]\w*|[\d\#@*])""",
    re.VERBOSE,
)
# An assignment to a member of an array, and a member among the words of an array with keys.
MEMBER: Final = re.compile(r"([A-Za-z_]\w*)\[([^\]\n]{1,99})\](\+?)=(.*)", re.DOTALL)
KEYED: Final = re.compile(r"\[([^\]\n]{1,99})\]=(.*)", re.DOTALL)
FUNCTION: Final = re.compile(
    r"(?:function\s+([\w-]+)\s*(?:\(\s*\))?|([\w-]+)\s*\(\s*\))\s*(?:\{|$)", re.DOTALL
)
OPERAND: Final = re.compile(r"(?<![\w${])[A-Za-z_]\w*")  # of an arithmetic expression, without a dollar sign
# Before a branch's commands.
KEYWORD: Final = re.compile(r"^(?:(then|else|do)\b|(?:\{|!|time\b|exec\b|\w+\s*\(\)\s*\{))\s*")
COUNT: Final = re.compile(r"^\(\(\s*(\w+)\s*(\+\+|--|[-+*/]?=)\s*(.*?)\)\)$", re.DOTALL)
FOR_COUNT: Final = re.compile(r"^for\s+\(\((.*?);(.*?);(.*?)\)\)$", re.DOTALL)
FOR_WORDS: Final = re.compile(r"^for\s+(\w+)(?:\s+in\b(.*))?$", re.DOTALL)
CASE: Final = re.compile(r"^case\s+(.+?)\s+in\b\s*(.*)$", re.DOTALL)
PATTERN: Final = re.compile(r"^\(?\s*([^()]*?)\s*\)\s*(.*)$", re.DOTALL)
COMPARISONS: Final = {
    "-eq": "==",
    "-ne": "!=",
    "-lt": "<",
    "-le": "<=",
    "-gt": ">",
    "-ge": ">=",
}
OF_INPUT: Final = ("read", "mapfile", "readarray")  # commands that set variables
# Commands that print the value of an expression of whole numbers.
CALCULATIONS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"^\s*echo\s+[\"']?([^\"'|]{1,200}?)[\"']?\s*\|\s*bc\s*$",
        r"^\s*bc\s*<<<\s*[\"']?([^\"'|]{1,200}?)[\"']?\s*$",
        r"^\s*python3?\s+-c\s+[\"']\s*print\(([^\"']{1,200})\)\s*[\"']\s*$",
        r"^\s*expr\s+([^\"'|]{1,200})$",
    )
)
NODES_OF_SLURM: Final = re.compile(r"^\s*scontrol\s+show\s+hostnames?\b[^|]*\|\s*wc\s+(?:-l|--lines)\s*$")
SCRIPT: Final = re.compile(r"[\w./-]+\.(?:sh|bash|slurm|sbatch)")  # its name
OF_SCRIPTS: Final = re.compile(r"(?:.*/)?(?:bash|sh|srun|sbatch|exec|nohup|time|env)")  # that start one
ALL_PARAMETERS: Final = re.compile(r"\$\{?[@*](?::\d{1,3})?\}?")  # that the script is started with
OF_FILES: Final = ("-f", "-d", "-e", "-s", "-r", "-x", "-L", "-h", "-t", "-v")  # tests: not known


class Command(NamedTuple):
    """A command: its words, and the variables that it is given."""

    words: list[str]
    variables: Mapping[str, str]
    certain: bool  # whether no unknown condition stands before it


@dataclass
class _Frame:
    """A branch or loop that the interpreter is in."""

    kind: str
    active: bool | None  # whether its commands are run; None: not known
    taken: bool | None = False  # whether an earlier branch was
    header: bool = True  # whether its condition is being read
    word: str | None = None  # of a case; of a loop, its variable
    patterns: list[str] = field(default_factory=list)  # of a case, up to the closing bracket
    start: int = -1  # of a loop's body
    items: list[str] = field(default_factory=list)  # of a loop, still to come
    condition: str = ""  # of a loop
    step: str = ""
    unknown: set[str] = field(default_factory=set)  # what its condition hangs on, where it is not known


@dataclass
class Script:
    """Variables and commands of a script, collected statement by statement."""

    values: dict[str, list[str]] = field(default_factory=dict)  # of variables and arrays
    commands: list[Command] = field(default_factory=list)
    # What conditions hang on that are not known (a variable, else their text): variables set under them.
    undecided: dict[str, set[str]] = field(default_factory=dict)
    without: str = ""  # one of these, whose branches are left out
    fixed: frozenset[str] = frozenset()  # variables given from outside, which no statement changes
    not_read: list[str] = field(default_factory=list)  # files that it reads and that are not beside it
    empty_arrays: set[str] = field(default_factory=set)  # that are expanded and not set
    from_input: set[str] = field(default_factory=set)  # variables that commands such as mapfile set
    missed: set[str] = field(default_factory=set)  # variables without a value in the present condition
    passed: dict[str, str] = field(default_factory=dict)  # of single commands, whose launchers pass them on
    keys: dict[str, list[str]] = field(
        default_factory=dict
    )  # of arrays with keys, in the order of their values
    functions: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # statements of their bodies
    called: set[str] = field(default_factory=set)  # functions that a command has called
    folder: Path | None = None
    frames: list[_Frame] = field(default_factory=list)
    steps: int = 0

    @property
    def certain(self) -> bool:
        """Whether all conditions around the present statement are known."""
        return all(frame.active is not None for frame in self.frames)

    @property
    def active(self) -> bool:
        """Whether the present statement is run, as far as is known."""
        return not any(frame.active is False or self.without in frame.unknown for frame in self.frames)

    def is_empty(self, name: str) -> bool:
        """Return whether an array is empty: the environment has none, so that those not set are."""
        if name in self.values or name in self.from_input:
            return name in self.values and not self.values[name]
        self.empty_arrays.add(name)
        return True

    def note_branch(self, frame: _Frame, text: str) -> None:
        """Keep what a branch hangs on whose condition, of this text, is not known."""
        if frame.active is None:
            frame.unknown |= self.missed or {" ".join(text.split())[:MAX_SHOWN_CHARACTERS]}
            for name in frame.unknown:
                self.undecided.setdefault(name, set())
        self.missed = set()

    def assign(self, name: str, words: list[str], append: bool) -> None:
        """Set a variable, or append to it."""
        if name in self.fixed:
            return
        for frame in self.frames:
            for unknown in frame.unknown:
                self.undecided[unknown].add(name)
        if append:
            words = [*self.values.get(name, []), *words]
        if sum(map(len, words)) < MAX_VALUE_CHARACTERS:
            self.values[name] = words

    def set_member(self, name: str, key: str, value: str, append: bool = False) -> None:
        """Set a member of an array, or append to it; one with keys that are no numbers has them all."""
        words = list(self.values.get(name, []))
        keys = self.keys.get(name, [str(number) for number in range(len(words))])
        if key not in keys:
            keys = [*keys, key]
            words = [*words, ""]
        place = keys.index(key)
        words[place] = words[place] + value if append else value
        self.assign(name, words, False)
        self.keys[name] = keys

    def member(self, name: str, key: str) -> list[str] | None:
        """Return the member of an array as a list of one; None if it has none of this key."""
        words = self.values.get(name)
        if words is None:
            return None
        if name in self.keys:
            key = key.strip("'\"")
            return [words[self.keys[name].index(key)]] if key in self.keys[name] else None
        place = self.number(key)
        return None if place is None or not -len(words) <= place < len(words) else [words[place]]

    def mark_missing_names(self, text: str) -> str:
        """Return an arithmetic expression with the names that it needs and that have no value in braces."""

        def value(match: re.Match[str]) -> str:
            known = self.values.get(match[0])
            return f"${{{match[0]}}}" if known is None else " ".join(known)

        return OPERAND.sub(value, substitute(text, self)[:MAX_SUM_CHARACTERS])

    def number(self, text: str) -> int | None:
        """Return the value of an arithmetic expression; None if it is not known."""
        text = substitute(text, self)[:MAX_SUM_CHARACTERS]
        text = text.replace("&&", " and ").replace("||", " or ").replace("/", "//").replace("////", "//")
        condition, asks, choices = text.partition("?")
        if asks:
            holds = self.number(condition)
            (yes, _, no) = choices.partition(":")
            if holds is None:
                return None
            return self.number(yes if holds else no)
        value = evaluate_text(re.sub(r"!(?!=)", " not ", text), self.values)
        if value is None and "$(" not in text:
            self.missed |= {name for name in re.findall(r"[A-Za-z_]\w*", text) if name not in self.values}
        return int(value) if isinstance(value, int) else None


def interpret(text: str, script: Script, depth: int = 0) -> None:
    """Collect the variables and commands of a text in a script."""
    _interpret(statements_of(text), script, depth)
    if depth == 0:  # what another script calls
        for name, body in list(script.functions.items()):
            if name not in script.called:
                _interpret(body, script, depth + 1)


def _interpret(statements: Sequence[tuple[str, str]], script: Script, depth: int) -> None:
    """Collect the variables and commands of statements in a script."""
    position = 0
    status = None
    outer = len(script.frames)
    while position < len(statements) and script.steps < MAX_STATEMENTS:
        operator, statement = statements[position]
        position += 1
        script.steps += 1
        frame = script.frames[-1] if len(script.frames) > outer else None
        function = FUNCTION.match(statement.strip())
        if function is not None and (end := _end_of_function(statements, position - 1)) is not None:
            if script.active:
                first = ("\n", statement.strip()[function.end() :])
                script.functions[function[1] or function[2]] = [first, *statements[position:end]]
            position = end + 1
            continue
        if operator.startswith(";;") and frame is not None and frame.kind == "case":
            frame.header = True
            frame.active = False
        jump, status = _step(operator, statement.strip(), position, script, outer, status, depth)
        position = position if jump is None else jump
    del script.frames[outer:]


def _end_of_function(statements: Sequence[tuple[str, str]], start: int) -> int | None:
    """Return the place of the statement that ends a function; None if none does."""
    depth = 0
    for place in range(start, len(statements)):
        text = statements[place][1].strip()
        header = FUNCTION.match(text)
        opens = header[0].endswith("{") if header is not None else re.match(r"\{(\s|$)", text) is not None
        depth += opens
        if re.match(r"\}(\s|$)", text):
            depth -= 1
            if depth <= 0:
                return place
    return None


def _call(name: str, words: Sequence[str], script: Script, depth: int) -> None:
    """Interpret a function with its positional parameters."""
    outer = {key: value for key, value in script.values.items() if key.isdecimal() or key in ("@", "*")}
    script.called.add(name)
    _set_parameters(words, script)
    _interpret(script.functions[name], script, depth + 1)
    _set_parameters((), script)
    for key in ("@", "*"):
        del script.values[key]
    script.values |= outer


def _set_parameters(words: Sequence[str], script: Script) -> None:
    """Set the positional parameters, in place of those there are."""
    for key in [key for key in script.values if key.isdecimal()]:
        del script.values[key]
    script.values |= {str(number): [word] for number, word in enumerate(words, 1)}
    script.values |= {"@": list(words), "*": list(words)}


def _step(
    operator: str, text: str, position: int, script: Script, outer: int, status: bool | None, depth: int
) -> tuple[int | None, bool | None]:
    """Interpret a statement: return where to go on if not behind it, and whether it succeeds."""
    if operator not in ("&&", "||"):
        script.missed = set()
    while text:
        frame = script.frames[-1] if len(script.frames) > outer else None
        word = re.split(r"[\s(]", text, maxsplit=1)[0]
        if frame is not None and frame.kind == "case" and frame.header and word != "esac":
            pattern = PATTERN.match(text)
            if pattern is None:  # one of several, before |
                frame.patterns.append(text)
                return None, None
            _enter_branch(frame, [*frame.patterns, pattern[1]], script)
            text = pattern[2]
        elif word in ("if", "while", "until", "elif"):
            if word == "elif" and frame is not None:
                frame.taken = _either(frame.taken, frame.active)
                frame.header = True
                frame.active = True
            else:
                frame = _Frame("if" if word == "if" else "while", True)
                script.frames.append(frame)
            if script.active:  # the commands of a loop are read once
                holds = _test(text.removeprefix(word), script)
                frame.active = None if word == "until" else holds
                script.note_branch(frame, text)
            return None, None
        elif word == "for":
            _enter_loop(text, script)
            return None, None
        elif word == "case" and (case := CASE.match(text)):
            frame = _Frame("case", None, word=_known_text(case[1], script))
            if frame.word is None and script.active:
                script.note_branch(frame, text)
            script.frames.append(frame)
            frame.active = False
            text = case[2]
        elif word in ("fi", "esac", "done"):
            if frame is None:
                return None, None
            if word == "done" and (again := _next_round(frame, script)) is not None:
                return again, None
            script.frames.pop()
            return None, None
        elif keyword := KEYWORD.match(text):
            if keyword[1] and frame is not None:
                _open(keyword[1], frame, position)
            text = text[keyword.end() :]
        elif frame is not None and frame.header and frame.kind in ("if", "while"):
            more = _test(text, script)  # a further part of the condition
            both = {"&&": _both, "||": _either}.get(operator)
            frame.active = both(frame.active, more) if both else more
            script.note_branch(frame, text)
            return None, None
        else:
            skipped = (operator == "&&" and status is False) or (operator == "||" and status is True)
            if not script.active or skipped:
                return None, status if skipped else None
            if word == "break":
                for loop in reversed(script.frames[outer:]):
                    loop.active = False if loop.active else loop.active
                    if loop.kind in ("for", "while"):
                        loop.items = []
                        loop.condition = ""
                        break
                return None, None
            if word in ("[", "[[", "test", "((") or text.startswith("(("):
                return None, True if _count(text, script) else _test(text, script)
            undecided = operator in ("&&", "||") and status is None
            if undecided:
                script.note_branch(frame := _Frame("if", None), text)
                script.frames.append(frame)
            if script.active:
                _run(text, script, depth)
            del script.frames[len(script.frames) - undecided :]
            return None, True
    return None, status


def _both(left: bool | None, right: bool | None) -> bool | None:
    if False in (left, right):
        return False
    return None if None in (left, right) else True


def _either(left: bool | None, right: bool | None) -> bool | None:
    if True in (left, right):
        return True
    return None if None in (left, right) else False


def _enter_branch(frame: _Frame, patterns: Sequence[str], script: Script) -> None:
    """Enter the branch of a case where one of its patterns matches."""
    frame.patterns = []
    frame.header = False
    if frame.word is None:
        frame.active = None
        return
    wanted = [_unquote(part.strip(), script) for pattern in patterns for part in pattern.split("|")]
    matches = not frame.taken and any(fnmatchcase(frame.word, pattern) for pattern in wanted)
    frame.active, frame.taken = matches, frame.taken or matches


def _open(keyword: str, frame: _Frame, position: int) -> None:
    """Begin the commands of a branch or loop."""
    if frame.kind in ("if", "while") and keyword in ("then", "do"):
        frame.header = False
        if frame.taken is True:
            frame.active = False
        elif frame.taken is None and frame.active is not False:
            frame.active = None
    elif keyword == "else" and frame.kind == "if":
        before = _either(frame.taken, frame.active)
        frame.active = None if before is None else not before
        frame.taken = True
    elif keyword == "do":
        frame.header = False
        frame.start = position - 1


def _enter_loop(text: str, script: Script) -> None:
    """Enter a loop over words, or with a counter."""
    if counter := FOR_COUNT.match(text):
        _count(f"(({counter[1]}))", script)
        frame = _Frame("for", None, condition=counter[2], step=f"(({counter[3].strip()}))")
        holds = script.number(counter[2])
        frame.active = None if holds is None else bool(holds)
        script.note_branch(frame, text)
        script.frames.append(frame)
    elif words := FOR_WORDS.match(text):
        items = [part for word in words_of(words[2] or "$@") for part in expand_word(word, script)]
        frame = _Frame("for", bool(items) and script.active, word=words[1], items=items[1:])
        if items and "$" not in items[0]:
            script.values[words[1]] = [items[0]]
        script.frames.append(frame)
    else:
        script.note_branch(frame := _Frame("for", None), text)
        script.frames.append(frame)


def _next_round(frame: _Frame, script: Script) -> int | None:
    """Return where the body of a loop begins if it is run again."""
    if frame.start < 0 or not frame.active:
        return None
    if frame.kind == "for" and frame.condition:
        _count(frame.step, script)
        return frame.start if script.number(frame.condition) else None
    if frame.kind == "for" and frame.items:
        script.values[frame.word or ""] = [frame.items.pop(0)]
        return frame.start
    return None


def _count(text: str, script: Script) -> bool:
    """Carry out an arithmetic assignment such as ((i++)); return whether it is one."""
    match = COUNT.match(text.strip())
    if match is None:
        return False
    name, sign, more = match.groups()
    old = script.number(name) if sign != "=" else 0
    change = 1 if sign in ("++", "--") else script.number(more)
    if old is not None and change is not None:
        results = {"=": change, "*=": old * change, "/=": old // (change or 1)}
        new = results.get(sign, old - change if sign[0] == "-" else old + change)
        script.values[name] = [str(new)]
    return True


def _test(text: str, script: Script) -> bool | None:
    """Return whether a condition holds; None if that is not known."""
    text = text.strip()
    if text.startswith("!"):
        inner = _test(text[1:], script)
        return None if inner is None else not inner
    if text in ("true", ":", "false"):
        return text != "false"
    if text.startswith("(("):
        value = script.number(text[2:].rstrip().removesuffix("))"))
        return None if value is None else bool(value)
    for opening, closing in (("[[", "]]"), ("[", "]"), ("test ", "")):
        if text.startswith(opening) and text.endswith(closing):
            return _any_of(list(words_of(text[len(opening) : len(text) - len(closing)])), script)
    return None


def _any_of(words: list[str], script: Script) -> bool | None:
    """Return whether conditions with -o, -a, || and && between them hold."""
    for signs, join in ((("||", "-o"), _either), (("&&", "-a"), _both)):
        for i, word in enumerate(words):
            if word in signs and 0 < i < len(words) - 1:
                return join(_any_of(words[:i], script), _any_of(words[i + 1 :], script))
    if words and words[0] == "!":
        inner = _any_of(words[1:], script)
        return None if inner is None else not inner
    match words:
        case [sign, word] if sign in ("-z", "-n"):
            value = _known_text(word, script)
            if value is None and re.fullmatch(r'"?\$(?:\w+|\{\w+\})"?', word):
                value = ""  # not set
            return None if value is None else (value == "") == (sign == "-z")
        case [sign, _] if sign in OF_FILES:
            return None
        case [word]:
            value = _known_text(word, script)
            return None if value is None else value != ""
        case [left, sign, right]:
            return _compare_words(left, sign, right, script)
    return None


def _compare_words(left: str, sign: str, right: str, script: Script) -> bool | None:
    """Return whether two words compare as a sign says."""
    first = _known_text(left, script)
    if sign == "=~" and first is not None:
        try:
            return re.search(_unquote(right, script)[:200], first[:1000]) is not None
        except re.error:
            return None
    second = _known_text(right, script)
    if first is None or second is None:
        return None
    if sign in COMPARISONS:
        value = script.number(f"({first or 0}) {COMPARISONS[sign]} ({second or 0})")
        return None if value is None else bool(value)
    if sign in ("=", "=="):
        return fnmatchcase(first, second)
    if sign == "!=":
        return not fnmatchcase(first, second)
    return None


def _known_text(word: str, script: Script) -> str | None:
    """Return the text of a word; None if a variable or a command in it is not known."""
    text = _unquote(word, script)
    if re.search(r"[$`]", text):
        roots = re.findall(r"\$(?:\{|\(\([\s(]*\$?\{?)?([A-Za-z_]\w*)", text)
        names = roots or re.findall(r"\$\{?(\w+)", word)
        script.missed.update(name for name in names if "$" in substitute(f"${{{name}}}", script))
        return None
    return text


def _unquote(word: str, script: Script) -> str:
    return " ".join(expand_word(word, script, split=False))


def _run(text: str, script: Script, depth: int) -> None:
    """Read an assignment of an array, or a command with the assignments before it."""
    if array := ARRAY.match(text):
        items = list(words_of(text[array.end() :].rstrip().removesuffix(")")))
        keyed = [KEYED.fullmatch(item) for item in items]
        if items and all(keyed):
            if not array[2]:
                script.values.pop(array[1], None)
                script.keys.pop(array[1], None)
            for pair in filter(None, keyed):
                key, value = (_unquote(part, script) for part in pair.groups())
                script.set_member(array[1], key, value)
            return
        script.keys.pop(array[1], None)
        script.assign(
            array[1], [part for item in items for part in expand_word(item, script)], bool(array[2])
        )
        return
    if member := MEMBER.fullmatch(text.strip()):
        key = _unquote(member[2], script)
        value = _unquote(member[4], script)
        script.set_member(member[1], key, value, bool(member[3]))
        return
    words = list(drop_redirections(words_of(text)))
    variables = {}
    declares = False
    while words and (words[0] in DECLARATIONS or ASSIGNMENT.fullmatch(words[0]) or declares):
        word = words.pop(0)
        declares = declares or word in DECLARATIONS
        if assignment := ASSIGNMENT.fullmatch(word):
            name, append, value = assignment.groups()
            before = "".join(script.values.get(name, [])) if append else ""
            variables[name] = before + " ".join(expand_word(value, script, split=False))
    expanded = [part for word in words for part in expand_word(word, script)]
    if not expanded or expanded[0] in (":", "source", "."):
        for name, value in variables.items():
            script.assign(name, [value], False)
    if not expanded or expanded[0] == ":":
        return
    if expanded[0] in ("source", ".") and len(expanded) > 1 and depth < MAX_DEPTH:
        _source(expanded[1], script, depth)
    elif expanded[0] == "printf" and expanded[1:2] == ["-v"] and len(expanded) > 3:
        script.assign(expanded[2], [_format_words(expanded[3], expanded[4:])], False)
    elif expanded[0] in OF_INPUT:
        _read_input(expanded, variables.get("IFS"), script)
    elif expanded[0] == "unset":
        for name in expanded[1:]:
            script.values.pop(name, None)
    elif expanded[0] == "set" and expanded[1:2] == ["--"]:
        script.values |= {str(number): [word] for number, word in enumerate(expanded[2:], 1)}
    elif expanded[0] == "shift" and "@" in script.values:
        count = int(expanded[1]) if len(expanded) > 1 and expanded[1].isdecimal() else 1
        _set_parameters(script.values["@"][count:], script)
    elif expanded[0] in script.functions:
        if depth < MAX_DEPTH:
            given = [word for word in expanded[1:] if not ALL_PARAMETERS.fullmatch(word)]
            _call(expanded[0], given, script, depth)
    elif command := split_command_lines(expanded):
        everything = {name: " ".join(value) for name, value in script.values.items()} | variables
        script.passed = variables | script.passed
        script.commands.append(Command(command, everything if variables else {}, script.certain))
        if depth < MAX_DEPTH:
            _start(command, variables, script, depth)


def _start(words: Sequence[str], variables: Mapping[str, str], script: Script, depth: int) -> None:
    """Interpret a script beside this one that a command starts, with its parameters."""
    place = next((number for number, word in enumerate(words) if SCRIPT.fullmatch(word)), None)
    starts = place == 0 or OF_SCRIPTS.fullmatch(words[0]) is not None
    if place is None or not starts or any(word.endswith(".py") for word in words[:place]):
        return
    text = _text_beside(words[place], script)
    if text is None:
        return
    outer = dict(script.values)
    script.values |= {name: [value] for name, value in variables.items() if name not in script.fixed}
    _set_parameters(words[place + 1 :], script)
    interpret(text, script, depth + 1)
    script.values = outer  # what it sets is its own


def _read_input(words: Sequence[str], separators: str | None, script: Script) -> None:
    """Set the variables of `read` to the words of its here-string; those of other input are not known."""
    place = next((number for number, word in enumerate(words) if word.startswith(HERE_STRING)), len(words))
    text = " ".join(words[place:]).removeprefix(HERE_STRING).strip()
    options = "".join(word for word in words[1:place] if word.startswith("-"))
    names = [word for word in words[1:place] if word.isidentifier()]
    if words[0] != "read" or place == len(words) or not names or re.search(r"[$`]", text):
        script.from_input.update(names)
        return
    pattern = rf"[{re.escape(separators)}]" if separators else r"\s+"
    if "a" in options:
        script.assign(names[-1], re.split(pattern, text), False)
        return
    values = re.split(pattern, text, maxsplit=len(names) - 1) if len(names) > 1 else [text]
    for number, name in enumerate(names):  # the last has the rest
        script.assign(name, values[number : number + 1], False)


def _format_words(form: str, words: Sequence[str]) -> str:
    """Return words in the form of printf."""
    return re.sub(r"%[sd]", lambda _: next(rest, ""), form) if (rest := iter(words)) else form


def _source(path: str, script: Script, depth: int) -> None:
    """Interpret a file beside the script."""
    text = _text_beside(path, script)
    if text is None:
        script.not_read.append(path)
    else:
        interpret(text, script, depth + 1)


def _text_beside(path: str, script: Script) -> str | None:
    """Return the text of a file that a script names, beside it or above; None if it is not there."""
    name = re.sub(r"^.*[$`)\"]\S*?/", "", path)
    try:
        file = None if script.folder is None or not name else found_by_suffix(name, script.folder)
        if file is None or file.stat().st_size > MAX_VALUE_CHARACTERS * 8:
            return None
        return file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return None


def expand_word(word: str, script: Script, split: bool = True) -> list[str]:
    """Expand a word: to an array's words, or to one text; blanks of an unquoted variable separate words."""
    variable = re.fullmatch(r"\"?\$\{(\w+)(?:\[[@*]\])?\}\"?|\"?\$(\w+)\"?", word)
    joined = word.startswith('"') and "[*]" in word
    if split and re.fullmatch(r'"?\$\{\w+\[[@*]\]\}"?', word) and variable and script.is_empty(variable[1]):
        return []
    if split and variable and not joined and len(script.values.get(variable[1] or variable[2], ())) > 1:
        return script.values[variable[1] or variable[2]]
    expansion = ""
    has_blanks = False
    for piece in QUOTED_PIECES.findall(word):
        if piece[0] == "'":
            expansion += piece[1:-1] if len(piece) > 1 else ""
        elif piece[0] == '"':
            inner = substitute(piece[1:-1], script) if len(piece) > 1 else ""
            expansion += re.sub(r"\\([\\\"$`])", r"\1", inner)
        else:
            value = substitute(re.sub(r"\\(.)", r"\1", piece), script)
            separable = value != piece and "$((" not in value
            has_blanks = has_blanks or (separable and bool(re.search(r"\s", value.strip())))
            expansion += value
    if split and has_blanks:
        return expansion.split()
    return [expansion] if expansion or not split else []


def substitute(text: str, script: Script, depth: int = 0) -> str:
    """Substitute the variables of a text; those that are not set stay as they are."""

    def value(match: re.Match[str]) -> str:
        if match["sum"] is not None:
            number = script.number(match["sum"]) if depth < MAX_DEPTH else None
            return str(number) if number is not None else f"$(({script.mark_missing_names(match['sum'])}))"
        if match["command"] is not None:
            return _output(match["command"], script, depth, match[0])
        name = match["name"] or match["plain"]
        if name == "#":
            return str(sum(known.isdecimal() for known in script.values))
        words = script.values.get(name)
        how = match["how"] or ""
        index = (match["index"] or "[@]")[1:-1]
        if match["indirect"]:  # the keys of an array, or the variable that this one names
            if match["index"] in ("[@]", "[*]"):
                keys = script.keys.get(name, [str(number) for number in range(len(words or ()))])
                return " ".join(keys)
            target = None if words is None else "".join(words)
            words = None if target is None else script.values.get(target)
        if match["index"] in ("[@]", "[*]") and not how and script.is_empty(name):
            return "0" if match["count"] else ""
        if match["count"]:
            return str(len(words)) if words is not None and match["index"] else match[0]
        if index not in ("@", "*") and words is not None:
            words = script.member(name, substitute(index, script, depth + 1) if "$" in index else index)
        separator = _separator(script) if index == "*" else " "
        current = None if words is None else separator.join(words)
        other = match["other"] or ""
        if how in ("%", "%%", "#", "##", "/", "//", ",,", "^^"):
            return match[0] if current is None else _transform_value(current, how, other, script, depth)
        if how and how.endswith("+") == (bool(current) or (current is not None and ":" not in how)):
            if how.endswith("?"):  # the other value counts
                return match[0]
            result = substitute(re.sub(r"^(['\"])(.*)\1$", r"\2", other), script, depth + 1)
            if how.endswith("=") and "$" not in result:
                script.assign(name, [result], False)
            return result
        if how.endswith("+"):
            return ""
        return match[0] if current is None else current

    if depth > MAX_DEPTH or len(text) > MAX_VALUE_CHARACTERS:
        return text
    substituted = SUBSTITUTION.sub(value, text)
    return substituted if len(substituted) <= MAX_VALUE_CHARACTERS else text


def _separator(script: Script) -> str:
    """Return what joins the words of an array: the first character of IFS."""
    return "".join(script.values.get("IFS", [" "]))[:1]


def _transform_value(value: str, how: str, other: str, script: Script, depth: int) -> str:
    """Return a value without a beginning or an end, with a part replaced, or in another case."""
    if how in (",,", "^^"):
        return value.lower() if how == ",," else value.upper()
    if how[0] == "/":
        old, _, new = substitute(other, script, depth + 1).partition("/")
        if how == "//":
            return value.replace(old, new)
        return value.replace(old, new, 1) if old else value
    pattern = substitute(other, script, depth + 1)
    lengths = range(len(value) + 1)
    longest = len(how) == 2
    for length in reversed(lengths) if longest else lengths:
        part = value[:length] if how[0] == "#" else value[len(value) - length :]
        if fnmatchcase(part, pattern):
            return value[length:] if how[0] == "#" else value[: len(value) - length]
    return value


def _output(command: str, script: Script, depth: int, unknown: str) -> str:
    """Return what a command prints, if it is one of few; else `unknown`."""
    inner = Script(dict(script.values), fixed=script.fixed, steps=script.steps, keys=dict(script.keys))
    if depth >= MAX_DEPTH - 2:
        return unknown
    if calculation := next(filter(None, (form.match(command) for form in CALCULATIONS)), None):
        expression = re.sub(r"\bint\(", "(", calculation[1].replace("\\*", "*"))
        number = script.number(expression)
        return str(number) if number is not None else f"$(({script.mark_missing_names(expression)}))"
    if NODES_OF_SLURM.match(command):
        return " ".join(script.values.get("SLURM_JOB_NUM_NODES", [unknown]))
    if "|" in command:
        return unknown
    interpret(command, inner, depth=MAX_DEPTH)
    script.steps = inner.steps + 1
    words = inner.commands[-1].words if len(inner.commands) == 1 else []
    match words:
        case ["echo", *texts] if texts and not any("$" in text for text in texts):
            return " ".join(texts[1:] if texts[0] in ("-n", "-e") else texts)
        case ["printf", form, *texts]:
            return _format_words(form, texts)
        case ["seq", *numbers] if 1 <= len(numbers) <= 2 and all(map(str.isdecimal, numbers)):
            first, last = (1, numbers[0]) if len(numbers) == 1 else numbers
            return " ".join(map(str, range(int(first), min(int(last), int(first) + 999) + 1)))
        case ["expr", *parts]:
            number = evaluate_text(" ".join(part.strip("'\"\\") for part in parts))
            return unknown if number is None else str(number)
        case ["basename", path] if "$" not in path:
            return path.rpartition("/")[2]
    return unknown
