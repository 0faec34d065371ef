"""Renew a table of the arguments or settings of a program from a checkout, which is read and not run.

    python tools/arguments.py TABLE CHECKOUT [REVISION ...]

TABLE is one of `PROGRAMS`, and the revisions are by default those of the present table. NAME=REVISION gives
one another name, and NAME=FOLDER is that of files in a folder, such as an unpacked wheel. What all of them
have alike stands once. Arguments are calls of `add_argument`, and fields of the dataclasses that an
`ArgumentGroupFactory` turns into arguments; settings are the fields of a dataclass, by dotted names.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

TABLES = Path(__file__).parents[1] / "src/traincast/launch/tables"
FILES = ("megatron/training/arguments.py", "megatron/post_training/arguments.py")
OLD_FILE = "megatron/arguments.py"  # up to Megatron-Core 0.4


class Program(NamedTuple):
    """A program whose arguments or settings stand in a table."""

    title: str
    source: str
    within: str  # folder of the classes
    root: str = ""  # class of all settings; empty where arguments are added to a parser


PROGRAMS = {
    "megatron_arguments": Program("Megatron-LM", f"NVIDIA/Megatron-LM, {' and '.join(FILES)}", "megatron"),
    "megatron_old_arguments": Program(
        "Megatron-LM before Megatron-Core 0.4", f"NVIDIA/Megatron-LM, {OLD_FILE}", "megatron"
    ),
    "torchtitan_settings": Program(
        "torchtitan", "pytorch/torchtitan, torchtitan/config/job_config.py", "torchtitan/config", "JobConfig"
    ),
    "nanotron_settings": Program(
        "nanotron", "huggingface/nanotron, src/nanotron/config", "src/nanotron/config", "Config"
    ),
}
KINDS = ("switch", "int", "ints", "float", "floats", "word", "words")
WIDTH = 150
HEAD = """\
# Arguments or settings of {program.title}, by kind of their values, and the words that some of them take;
# written by tools/arguments.py. `all` holds what the revisions have alike, each of them what it has besides.
title = "{program.title}"
source = "{program.source}"
"""


class Argument(NamedTuple):
    """An argument: the kind of its values, and the words that it takes, if it takes no others."""

    kind: str
    choices: tuple[str, ...] = ()


class Revision:
    """A revision of a checkout."""

    def __init__(self, checkout: str, name: str, within: str = "megatron"):
        self.checkout, self.name, self.title, self.within = checkout, name, name, within

    def git(self, *words: str) -> str:
        """Return what git answers; empty if it finds nothing."""
        command = ["git", "-C", self.checkout, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def tree(self, path: str) -> ast.Module:
        """Return the syntax tree of a file; empty if there is none."""
        return ast.parse(self.git("show", f"{self.name}:{path}"))

    def definition(self, name: str) -> ast.ClassDef:
        """Return the definition of a class; an empty one where the checkout has none."""
        listed = self.git("grep", "-lE", rf"^class {name}\b", self.name, "--", self.within)
        nodes = (node for line in listed.splitlines() for node in self.tree(line.partition(":")[2]).body)
        found = (node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name)
        return next(found, ast.ClassDef(name, [], [], [], []))

    def settings(self, root: str, prefix: str = "") -> dict[str, Argument]:
        """Return the fields of a dataclass, and of those that its fields are, by dotted names."""
        found: dict[str, Argument] = {}
        for name, (_, argument) in self._fields(root):
            found[f"{prefix}{name}"] = argument
        for node in (node for node in self.definition(root).body if isinstance(node, ast.AnnAssign)):
            name = f"{prefix}{ast.unparse(node.target)}"
            for inner in self._classes(ast.unparse(node.annotation)):
                found.pop(name, None)
                found |= self.settings(inner, f"{name}.")
        return found

    def _classes(self, annotation: str) -> list[str]:
        """Return the dataclasses that an annotation names; none where a list of them is meant."""
        alias = self.git("grep", "-hE", rf"^{annotation} = ", self.name, "--", self.within)
        words = re.findall(r"\w+", alias.partition("=")[2] or annotation)
        return [] if "List" in words or "list" in words else [w for w in words if self._is_dataclass(w)]

    def _is_dataclass(self, name: str) -> bool:
        """Return whether a class is a dataclass of the folder."""
        return any("dataclass" in ast.unparse(part) for part in self.definition(name).decorator_list)

    def arguments(self) -> dict[str, Argument]:
        """Return all arguments by name, with underscores."""
        found: dict[str, Argument] = {}
        for path in (*FILES, OLD_FILE):
            for function in self.tree(path).body:
                lists = {
                    target.id: ast.literal_eval(node.value)
                    for node in ast.walk(function)
                    if isinstance(node, ast.Assign) and isinstance(node.value, ast.List)
                    for target in node.targets
                    if isinstance(target, ast.Name)
                    and all(isinstance(e, ast.Constant) for e in node.value.elts)
                }
                for node in ast.walk(function):
                    if isinstance(node, ast.Call):
                        found |= self._of_call(node, lists)
        return found

    def _of_call(self, node: ast.Call, lists: dict[str, list[str]]) -> dict[str, Argument]:
        """Return the arguments that a call adds."""
        called = ast.unparse(node.func)
        if called.endswith(".add_argument"):
            names = [word.value for word in node.args if isinstance(word, ast.Constant)]
            given = {word.arg: word.value for word in node.keywords if word.arg}
            names = list(map(_underscored, names))
            if "action" in given and ast.unparse(given["action"]).endswith("BooleanOptionalAction"):
                return dict.fromkeys([*names, *(f"no_{name}" for name in names)], Argument("switch"))
            return dict.fromkeys(names, _argument(given))
        if called != "ArgumentGroupFactory":
            return {}
        left_out = next((word.value for word in node.keywords if word.arg == "exclude"), None)
        names = (
            lists[left_out.id]
            if isinstance(left_out, ast.Name)
            else ast.literal_eval(left_out or ast.List([]))
        )
        fields = dict(self._fields(ast.unparse(node.args[0])))
        return {
            name: argument
            for field, (names_of_field, argument) in fields.items()
            if field not in names
            for name in names_of_field
        }

    def _fields(self, name: str) -> Iterator[tuple[str, tuple[list[str], Argument]]]:
        """Yield the fields of a dataclass, its own last, each with its arguments."""
        definition = self.definition(name)
        for base in definition.bases:
            yield from self._fields(ast.unparse(base))
        for node in definition.body:
            inits = not (isinstance(node, ast.AnnAssign) and "init=False" in ast.unparse(node))
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and inits:
                yield node.target.id, self._of_field(node)

    def _of_field(self, node: ast.AnnAssign) -> tuple[list[str], Argument]:
        """Return the names and the kind of the arguments of a field."""
        default, meta = node.value, {}
        if isinstance(default, ast.Call):
            given = {word.arg: word.value for word in default.keywords}
            default = given.get("default")
            if isinstance(metadata := given.get("metadata"), ast.Dict):
                pairs = dict(zip(map(_text, metadata.keys), metadata.values, strict=True))
                inner = pairs.get("argparse_meta")
                assert isinstance(inner, ast.Dict)
                meta = dict(zip(map(_text, inner.keys), inner.values, strict=True))
        name = ast.unparse(node.target)
        kind, choices = self._of_type(ast.unparse(node.annotation))
        names = [name]
        if kind == "switch" and isinstance(default, ast.Constant) and default.value is True:
            names = [f"no_{name}", f"disable_{name}"]
        if "arg_names" in meta:
            names = list(map(_underscored, ast.literal_eval(meta["arg_names"])))
        changed = _argument(meta, Argument(kind, choices))
        return names, changed

    def _of_type(self, annotation: str) -> Argument:
        """Return the kind of a type."""
        plain = re.sub(r"^Optional\[(.*)\]$|\s*\|\s*None$", r"\1", annotation)
        if literal := re.match(r"Literal\[(.*)\]$", plain):
            return Argument("word", tuple(map(str, ast.literal_eval(f"[{literal[1]}]"))))
        if inner := re.match(r"[Ll]ist\[(.*)\]$", plain):
            kind, choices = self._of_type(inner[1])
            return Argument(f"{kind.rstrip('s')}s", choices)
        usual = {"bool": "switch", "int": "int", "float": "float"}
        if plain in usual or not plain.isidentifier() or plain == "str":
            return Argument(usual.get(plain, "word"))
        definition = self.definition(plain)
        is_enum = any("Enum" in ast.unparse(base) for base in definition.bases)
        members = (node.targets[0] for node in definition.body if isinstance(node, ast.Assign))
        return Argument("word", tuple(map(ast.unparse, members)) if is_enum else ())


class Folder(Revision):
    """A revision whose files stand in a folder, such as those of an unpacked wheel."""

    def git(self, *words: str) -> str:
        """Return what the few commands of git that are asked for would answer of the folder."""
        match words:
            case ("show", path):
                file = Path(self.checkout, path.removeprefix(f"{self.name}:"))
                return file.read_text(encoding="utf-8") if file.is_file() else ""
            case ("grep", how, pattern, _, _, within):
                expression = re.compile(pattern, re.MULTILINE)
                files = {
                    str(file.relative_to(self.checkout)): file.read_text(encoding="utf-8")
                    for file in sorted(Path(self.checkout, within).rglob("*.py"))
                }
                if how == "-lE":
                    found = (path for path, text in files.items() if expression.search(text))
                    return "\n".join(f"{self.name}:{path}" for path in found)
                lines = (line for text in files.values() for line in text.splitlines())
                return "\n".join(filter(expression.search, lines))
        return ""


def _argument(given: dict[str, ast.expr], usual: Argument | None = None) -> Argument:
    """Return an argument of what `add_argument` is given."""
    kind, choices = usual or Argument("word")
    action = _text(given.get("action")) or ""
    if action.startswith("store_"):
        return Argument("switch")
    if "type" in given:
        name = ast.unparse(given["type"])
        kind = name if name in ("int", "float") else "word"
    if "choices" in given:
        words = given["choices"]
        listed = isinstance(words, ast.List | ast.Tuple)
        choices = tuple(map(str, ast.literal_eval(words))) if listed else choices
        kind = "word" if choices else kind
    if "nargs" in given and _text(given["nargs"]) != "?" and not kind.endswith("s"):
        kind += "s"
    return Argument(kind, choices)


def _text(node: ast.expr | None) -> str:
    """Return the text of a constant; empty if there is none."""
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _underscored(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def lines(title: str, arguments: dict[str, Argument]) -> Iterator[str]:
    """Yield the lines of a part of the table."""
    yield f'\n["{title}"]'
    for kind in KINDS:
        names = sorted(name for name, argument in arguments.items() if argument.kind == kind)
        if names:
            yield f'{kind} = """\n{fill(" ".join(names), WIDTH, break_on_hyphens=False)}"""'
    chosen = {name: argument.choices for name, argument in sorted(arguments.items()) if argument.choices}
    if chosen:
        yield f'["{title}".choices]'
        yield from (f'"{name}" = "{" ".join(choices)}"' for name, choices in chosen.items())


def _revision(checkout: str, name: str, within: str) -> Revision:
    """Return a revision of a checkout, under another name for NAME=REVISION, or that of a folder."""
    title, _, source = name.partition("=")
    if source and Path(source).is_dir():
        return Folder(source, title, within)
    revision = Revision(checkout, source or title, within)
    revision.title = title
    return revision


def main(arguments: Sequence[str]) -> None:
    """Write the table."""
    table, checkout, *names = arguments
    program, file = PROGRAMS[table], TABLES / f"{table}.toml"
    names = names or tomllib.loads(file.read_text(encoding="utf-8"))["revisions"]
    revisions = [_revision(checkout, name, program.within) for name in names]
    names = [revision.title for revision in revisions]
    found = [rev.settings(program.root) if program.root else rev.arguments() for rev in revisions]
    alike = {name: kind for name, kind in found[0].items() if all(other.get(name) == kind for other in found)}
    dates = (revision.git("log", "-1", "--format=%cs", revision.name).strip() for revision in revisions)
    parts = [  # folders have no date
        HEAD.format(program=program),
        f"revisions = {names!r}  # of {' and '.join(filter(None, dates))}\n".replace("'", '"'),
        *("\n".join(lines("all", alike)), "\n"),
    ]
    for name, own in zip(names, found, strict=True):
        more = {argument: kind for argument, kind in own.items() if argument not in alike}
        parts += ["\n".join(lines(name, more)), "\n"] if more else []
    file.write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
