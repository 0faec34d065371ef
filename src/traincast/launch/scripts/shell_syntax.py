"""Statements and words of a script of bash, as they are written."""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

REDIRECTION: Final = re.compile(r"\d*>{1,2}[|&]?(.*)", re.DOTALL)  # and the file it names
HERE_STRING: Final = "<<<"

NESTED = "[^()]{0,999}"  # of round brackets, with three levels more
for _ in range(3):
    NESTED = rf"(?:[^()]|\({NESTED}\)){{0,999}}"
BACKQUOTED: Final = re.compile(r"`((?:\\.|[^`\\\n]){1,999})`")
# What `cat` prints, or `read` takes, of a here-document.
PRINTED: Final = re.compile(
    r"\"?\$\(\s*cat\s*<<-?\s*(?P<quote>['\"]?)(?P<end>\w+)(?P=quote)[ \t]*\n(?P<body>.{0,9999}?)\n"
    r"[ \t]*(?P=end)[ \t]*\n\s*\)\"?",
    re.DOTALL,
)
TAKEN: Final = re.compile(
    r"(?<![\w-])read[ \t]+(?:-\w+[ \t]+|''[ \t]+|\"\"[ \t]+)*(?P<name>[A-Za-z_]\w*)[ \t]*"
    r"<<-?[ \t]*(?P<quote>['\"]?)(?P<end>\w+)(?P=quote)[ \t]*\n(?P<body>.{0,9999}?)\n"
    r"[ \t]*(?P=end)[ \t]*(?=\n|$)",
    re.DOTALL,
)
# A variable in braces, or another dollar sign: unambiguous, so that matching stays linear.
VARIABLE: Final = r"\$\{(?:[^{}]|\{[^{}]{0,999}\}){0,999}\}|\$(?!\{)|\$\{"
_COMMAND: Final = rf"\$\({NESTED}\)"
# Or escaped; without its end, up to the end of the text.
QUOTED: Final = rf"""\\.|'[^']*'?|"(?:\\.|{_COMMAND}|[^"\\])*+"?"""
COMMENT_PARTS: Final = re.compile(
    rf"""\\\n|{QUOTED}|\$\#|\$\{{\#|(?P<comment>(?<![^ \t\n;(])\#[^\n]*)|[^\\'"\#$]+|.""", re.DOTALL
)
PARTS: Final = re.compile(
    rf"""{QUOTED}|\[\[\s[^\n;]{{0,999}}?\s\]\]|;;&?|&&|\|\||[(){{}}\n;|&]|[^\S\n]+
    |[^\\'"(){{}};|&\s\[]+|.""",
    re.DOTALL | re.VERBOSE,
)
CONTINUED_LINE: Final = re.compile(r"(\\[^\n])|\\\n")
QUOTED_PIECES: Final = re.compile(
    rf"'[^']*'|\"(?:{_COMMAND}|{VARIABLE}|\\.|[^\"\\$])*+\"|(?:{_COMMAND}|{VARIABLE}|[^'\"$])+|['\"]",
    re.DOTALL,
)  # of a word, by its quotes
ENDS: Final = ("\n", ";", "|", "&", "&&", "||", ";;", ";;&")


def statements_of(text: str) -> list[tuple[str, str]]:
    """Return the statements of a script, each with the sign before it, without comments.

    Continued lines are one, here-documents that variables get are text in quotes, and commands in backquotes
    stand in $( ).
    """
    plain = _without_here_documents(_without_comments(text.replace("\r\n", "\n")))
    return list(_split_statements(_without_backquotes(plain)))


def _without_comments(text: str) -> str:
    """Return a script without comments and continued lines."""

    def keep_code(part: re.Match[str]) -> str:
        if part["comment"] or part[0][0] == "'":
            return "" if part["comment"] else part[0]
        return CONTINUED_LINE.sub(lambda match: match[1] or " ", part[0])

    return COMMENT_PARTS.sub(keep_code, text)


def _without_here_documents(text: str) -> str:
    """Return a script whose variables are assigned the here-documents that `cat` or `read` puts in them."""

    def quote_body(match: re.Match[str]) -> str:
        body = " ".join(match["body"].split()).replace('"', r"\"")
        return f"'{body}'" if match["quote"] and "'" not in body else f'"{body}"'

    if "<<" not in text:
        return text
    text = PRINTED.sub(quote_body, text)
    return TAKEN.sub(lambda match: f"{match['name']}={quote_body(match)}", text)


def _without_backquotes(text: str) -> str:
    """Return a script whose commands in backquotes stand in $( ) instead."""

    def replace_backquotes(part: re.Match[str]) -> str:
        if part[1] is not None:
            return f"$({part[1]})"
        return BACKQUOTED.sub(r"$(\1)", part[0]) if part[0][0] == '"' else part[0]

    if "`" not in text:
        return text
    return re.sub(rf"{BACKQUOTED.pattern}|{QUOTED}", replace_backquotes, text, flags=re.DOTALL)


def _split_statements(text: str) -> Iterator[tuple[str, str]]:
    """Yield statements, each with the sign before it; quotes and brackets keep them together."""
    piece = ""
    depth = 0
    before = "\n"
    for part in PARTS.findall(text):
        if not depth and part in ENDS:
            if piece.strip() or before.startswith(";;"):
                yield before, piece
                before = part
            elif part not in ("\n", ";") or before not in ("&&", "||"):
                before = part
            piece = ""
        else:
            depth = max(depth + (part == "(") - (part == ")"), 0)
            piece += part
    yield before, piece


def words_of(statement: str) -> Iterator[str]:
    """Yield the words of a statement with their quotes; quotes, braces and brackets keep blanks together."""
    piece = ""
    depth = 0
    for part in PARTS.findall(statement):
        if not depth and part.isspace():
            if piece:
                yield piece
            piece = ""
        else:
            depth = max(depth + (part in ("(", "{")) - (part in (")", "}")), 0)
            piece += part
    if piece:
        yield piece


def split_command_lines(words: Sequence[str]) -> list[str]:
    """Split words that hold a whole command line."""
    parts: list[str] = []
    for word in words:
        if " --" in word or (word.startswith("--") and " " in word):
            try:
                parts += shlex.split(word.replace("\\\n", " "), comments=False)
            except ValueError:
                parts += word.split()
        else:
            parts.append(word)
    return parts


def drop_redirections(words: Iterator[str]) -> Iterator[str]:
    """Yield words without redirections such as `2> FILE`."""
    for word in words:
        if redirection := REDIRECTION.fullmatch(word):
            _ = redirection[1] or next(words, "")
        else:
            yield word
