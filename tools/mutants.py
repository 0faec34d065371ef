"""Change the formulas in one place at a time, and see whether a test fails.

    python tools/mutants.py [--draws 200] [--seed 46] [--seconds 3600] [--again]

A mutant is one change of one line: another operator, a term left out, a constant that is larger, a condition
reversed. Of all of them the seed draws some, by a digest of their names, so that an edit of one function
leaves the draw of all others as it was. Tests run in stages in a temporary copy of the tree, those of the
package first, and of these the ones named after the module; the next stage runs with what none has caught.
What is known stands in .cache/mutants.json after each run of tests, and the next call goes on there. A mutant
that answers as the code does is named in equivalent_mutants.toml, with the reason.
"""

import argparse
import ast
import contextlib
import hashlib
import importlib.util
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = Path("src/traincast")
STATE: Final = ROOT / ".cache" / "mutants.json"
EQUIVALENT: Final = Path(__file__).with_name("equivalent_mutants.toml")
DRAWS: Final = 200
SEED: Final = 46
WANTED: Final = 0.9  # share of the mutants that tests must catch
MEMORY: Final = (
    8 << 30
)  # that a process of the tests may ask for [byte]: some mutants would take all there is
SLOWER: Final = 3  # times as long as without a mutant, and then the tests are ended: a loop that never does
LEAST_SECONDS: Final = 60  # but so long in any case, on a machine that does other work as well [s]
TEST_SECONDS: Final = 60  # of one test; the longest of these takes a third of it [s]
NOT_COPIED: Final = (".git", ".venv", ".cache", ".hypothesis", "__pycache__", "site", "dist", "build")

PACKAGES: Final[Mapping[str, Sequence[str]]] = {  # folders that are changed, and the tests beside them
    "times": ("tests/times", "tests/properties/test_pipelines.py"),
    "step": ("tests/step",),
    "operations": ("tests/operations",),
    "planner/space": (
        "tests/planner/test_space_by_hand.py",
        "tests/planner/test_search_space.py",
        "tests/planner/test_search.py",
        "tests/properties/test_bounds.py",
    ),
}
STAGES: Final[Mapping[str, Sequence[str]]] = {  # what runs after them, while nothing has failed
    "formulas": (
        "tests/properties",
        "tests/published",
        "tests/core",
        "tests/times",
        "tests/operations",
        "tests/step",
        "tests/analysis",
    ),
    "answers": ("tests/calibration", "tests/accuracy", "tests/planner", "tests/tuner"),
    "others": ("tests/catalog", "tests/launch", "tests/ui/cli"),
}
PASSED: Final = "passed"  # with the last stage of which all tests pass
NOT_RUN: Final = "not run"
EQUIVALENT_ROW: Final = "equivalent"

BINARY: Final = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
COMPARED: Final = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
OPPOSITE: Final = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "ceil": "floor",
    "floor": "ceil",
    "any": "all",
    "all": "any",
}
TERMS: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div)  # of which one may be left out


@dataclass(frozen=True)
class Mutant:
    """One change of a file."""

    path: str  # of the file, below the package
    place: str  # the function or class around it
    line: int  # from 1
    before: str  # what is replaced
    after: str
    number: int  # of those alike in the same place, from 0
    start: int  # of what is replaced [byte of the file]

    @property
    def name(self) -> str:
        """Return a name that stays as other functions change."""
        change = " ".join(f"{self.before} -> {self.after}".split())
        return f"{self.path} {self.place}: {change} #{self.number}"

    @property
    def package(self) -> str:
        """Return which of `PACKAGES` it is in."""
        return next(package for package in PACKAGES if self.path.startswith(f"{package}/"))

    def applied(self, source: bytes) -> bytes:
        """Return the text of the file with the change."""
        end = self.start + len(self.before.encode())
        return source[: self.start] + self.after.encode() + source[end:]


class _Changes(ast.NodeVisitor):
    """Finds what can be changed in a module."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.lines = [0]
        for line in source.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.places: list[str] = []
        self.found: list[tuple[str, int, int, str]] = []  # place, start and end [byte], new text

    def start(self, node: ast.expr) -> int:
        """Return where an expression starts [byte]."""
        return self.lines[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr) -> int:
        """Return where an expression ends [byte]."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.lines[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr) -> str:
        """Return an expression as it is written."""
        return self.source[self.start(node) : self.end(node)].decode()

    def replace(self, node: ast.expr, after: str) -> None:
        """Note a change of a whole expression."""
        self.found.append((".".join(self.places), self.start(node), self.end(node), after))

    def replace_between(self, left: ast.expr, right: ast.expr, before: str, after: str) -> None:
        """Note a change of an operator between two expressions, which brackets may enclose."""
        gap = self.source[self.end(left) : self.start(right)].decode()
        start = self.end(left) + len(gap[: gap.index(before)].encode())
        self.found.append((".".join(self.places), start, start + len(before.encode()), after))

    def negate(self, test: ast.expr) -> None:
        """Note a condition that is reversed, where no comparison in it is changed already."""
        if not isinstance(test, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
            self.replace(test, f"(not ({self.text(test)}))")

    # What is not changed: words, types and decorators.

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Look at defaults and statements, not at types and decorators."""
        self.places.append(node.name)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self.places.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Look at the statements."""
        self.places.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self.places.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Look at the value, not at its type."""
        if node.value is not None and ast.unparse(node.annotation) != "TypeAlias":
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave messages as they are."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave what only type checkers need."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave words as they are."""

    def visit_keyword(self, node: ast.keyword) -> None:
        """Leave `strict`, which notes an error of the programmer."""
        if node.arg != "strict":
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        """Take the opposite of an extreme, and look at the arguments; a cast has a type."""
        name = ast.unparse(node.func)
        if name == "cast":
            self.visit(node.args[1])
            return
        opposite = OPPOSITE.get(name.rpartition(".")[2])
        if opposite is not None:
            self.replace(node.func, name[: -len(name.rpartition(".")[2])] + opposite)
        self.generic_visit(node)

    # What is.

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Take another operator, or leave one of two terms out."""
        if isinstance(node.op, ast.BitOr) and not self.places:  # types
            return
        if type(node.op) in BINARY and not isinstance(node.left, ast.Constant | ast.JoinedStr):
            self.replace_between(node.left, node.right, *BINARY[type(node.op)])
        if isinstance(node.op, TERMS):
            self.replace(node, f"({self.text(node.left)})")
        if isinstance(node.op, (ast.Add, ast.Mult)):
            self.replace(node, f"({self.text(node.right)})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Take `and` for `or`, and the other way round."""
        before, after = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in itertools.pairwise(node.values):
            self.replace_between(left, right, before, after)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Move a boundary, or take the opposite."""
        for left, operator, right in zip(
            (node.left, *node.comparators), node.ops, node.comparators, strict=False
        ):
            self.replace_between(left, right, *COMPARED[type(operator)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Leave a `not` or a sign out."""
        self.replace(node, f"({self.text(node.operand)})")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """Reverse a condition."""
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.negate(node.test)
            self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Reverse a condition."""
        self.negate(node.test)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Take another number, or the other truth."""
        value = node.value
        if isinstance(value, bool):
            self.replace(node, str(not value))
        elif isinstance(value, int):
            self.replace(node, str(value + 1))
        elif isinstance(value, float):
            self.replace(node, repr(2 * value if value else 1.0))


def mutants_of(path: str, source: bytes) -> Iterator[Mutant]:
    """Yield every mutant of a file, whose path is below the package."""
    tree = ast.parse(source)
    changes = _Changes(source)
    changes.visit(tree)
    alike = Counter[tuple[str, str, str]]()
    for place, start, end, after in sorted(changes.found, key=lambda change: change[1:]):
        before = source[start:end].decode()
        line = source.count(b"\n", 0, start) + 1
        number = alike[place, before, after]
        alike[place, before, after] += 1
        yield Mutant(path, place or "(module)", line, before, after, number, start)


def all_mutants(folder: Path) -> list[Mutant]:
    """Return every mutant of the packages below a folder."""
    found = []
    for package in PACKAGES:
        for file in sorted((folder / package).rglob("*.py")):
            path = file.relative_to(folder).as_posix()
            found += list(mutants_of(path, file.read_bytes()))
    return found


def drawn(mutants: Iterable[Mutant], draws: int, seed: int) -> list[Mutant]:
    """Return so many of them: those whose digests with the seed are the smallest."""

    def digest(mutant: Mutant) -> str:
        return hashlib.sha256(f"{seed} {mutant.name}".encode()).hexdigest()

    return sorted(mutants, key=digest)[:draws]


@dataclass
class State:
    """What is known, in a file."""

    outcomes: dict[str, str]  # by name of the mutant: what caught it, or which stage it passed
    needed: dict[str, float]  # by stage and content of the tree: what its tests need without a mutant [s]

    @classmethod
    def read(cls) -> "State":
        """Return what the file says."""
        return cls(**json.loads(STATE.read_text(encoding="utf-8"))) if STATE.exists() else cls({}, {})

    def write(self) -> None:
        """Write the file beside itself, and rename: an interruption leaves the old or the new one."""
        STATE.parent.mkdir(parents=True, exist_ok=True)
        beside = STATE.with_suffix(".new")
        beside.write_text(json.dumps(vars(self), indent=1) + "\n", encoding="utf-8")
        beside.replace(STATE)


class Tests:
    """The tests, in a copy of the tree."""

    def __init__(self, copy: Path, state: State) -> None:
        self.copy = copy
        self.state = state
        files = sorted(file for part in ("src", "tests") for file in (copy / part).rglob("*.py"))
        content = b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)
        self.tree = hashlib.sha256(content).hexdigest()[:12]

    def run(self, tests: Sequence[str], seconds: float | None = None) -> str | None:
        """Return the test that failed first, or why they ended; None if all passed within the time."""
        flags = (
            "-x",
            "-q",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "--no-header",
            "--tb=no",
            f"--timeout={TEST_SECONDS}",
        )
        environment = dict(os.environ, PYTHONPATH=str(self.copy / "src"), OPENBLAS_NUM_THREADS="1")
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *flags, *tests],
            cwd=self.copy,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=_bound_memory,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"did not end within {seconds:.0f} s"
        finally:
            _end(process)
        if process.returncode == 0:
            return None
        failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed[0][:200] if failed else f"exit code {process.returncode}"

    def files(self, tests: Sequence[str]) -> list[str]:
        """Return the files of these tests, of which some are folders."""
        files = []
        for test in tests:
            path = self.copy / test
            found = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
            files += [file.relative_to(self.copy).as_posix() for file in found]
        return files

    def seconds_without_mutant(self, tests: Sequence[str]) -> float:
        """Return what these tests need; they run once, until the tree changes [s].

        Raises SystemExit if one fails: then it would fail with every mutant.
        """
        key = f"{self.tree} {' '.join(tests)}"
        if key not in self.state.needed:
            start = time.monotonic()
            failed = self.run(tests)
            if failed is not None:
                sys.exit(f"tools/mutants.py: without a mutant: {failed}")
            self.state.needed[key] = time.monotonic() - start
            self.state.write()
        return self.state.needed[key]

    def catch(self, mutant: Mutant, tests: Sequence[str]) -> str | None:
        """Return which of these tests fails with a mutant; None if none does."""
        most = max(SLOWER * self.seconds_without_mutant(tests), LEAST_SECONDS)
        file = self.copy / SOURCE / mutant.path
        original = file.read_bytes()
        try:
            _write(file, mutant.applied(original))
            return self.run(nearest_first(mutant, self.files(tests), self.copy), most)
        finally:
            _write(file, original)


def _bound_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _end(process: "subprocess.Popen[str]") -> None:
    """End what a process started; it leads a group of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _write(file: Path, content: bytes) -> None:
    """Write a module, and remove what Python compiled: it compares size and seconds alone."""
    file.write_bytes(content)
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def read_equivalent() -> dict[str, str]:
    """Return the mutants that answer as the code does, with the reason."""
    return tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))


def nearest_first(mutant: Mutant, files: Sequence[str], folder: Path) -> list[str]:
    """Return files of tests below a folder in the order in which they are likely to notice a mutant.

    First those with most words of the module in their names, then those that speak of the module.
    """
    module = Path(mutant.path).stem
    words = set(module.split("_"))

    def nearness(file: str) -> tuple[int, bool]:
        in_name = words.intersection(Path(file).stem.split("_"))
        return len(in_name), module in (folder / file).read_text(encoding="utf-8")

    return sorted(files, key=nearness, reverse=True)


def stages_of(mutant: Mutant) -> dict[str, Sequence[str]]:
    """Return the tests of each stage."""
    return {"package": PACKAGES[mutant.package], **STAGES}


def passed(stage: str) -> str:
    """Return the outcome of a mutant that no test has caught up to a stage."""
    return f"{PASSED} {stage}"


def is_caught(outcome: str | None) -> bool:
    """Return whether a test has failed."""
    return outcome is not None and not outcome.startswith(PASSED)


def run_stages(mutants: Sequence[Mutant], tests: Tests, last: float) -> None:
    """Run each stage with all mutants that passed the one before; begin none after a time of the clock."""
    before = None
    for stage in ("package", *STAGES):
        for mutant in sorted(mutants, key=lambda mutant: list(PACKAGES).index(mutant.package)):
            if tests.state.outcomes.get(mutant.name) != before:
                continue
            if time.monotonic() > last:
                return
            failed = tests.catch(mutant, stages_of(mutant)[stage])
            outcome = passed(stage) if failed is None else f"{stage}: {failed}"
            tests.state.outcomes[mutant.name] = outcome
            tests.state.write()
            print(f"{mutant.path}:{mutant.line}: {mutant.name} | {outcome}", flush=True)
        before = passed(stage)


def report(
    chosen: Sequence[Mutant], outcomes: Mapping[str, str], equivalent: Mapping[str, str]
) -> Iterator[str]:
    """Yield how many each stage caught, and those that none did, line by line."""
    rows: dict[str, Counter[str]] = {package: Counter() for package in (*PACKAGES, "all")}
    for mutant in chosen:
        column = outcomes.get(mutant.name, NOT_RUN).partition(":")[0]
        if mutant.name in equivalent:
            column = EQUIVALENT_ROW
        rows[mutant.package][column] += 1
        rows["all"][column] += 1
    columns = ["package", *STAGES, *map(passed, ("package", *STAGES)), EQUIVALENT_ROW, NOT_RUN]
    columns = [column for column in columns if rows["all"][column]]
    yield f"{'caught by':<16}" + "".join(f"{column:>18}" for column in columns)
    for package, counts in rows.items():
        yield f"{package:<16}" + "".join(f"{counts[column]:18}" for column in columns)
    for mutant in chosen:
        outcome = outcomes.get(mutant.name, NOT_RUN)
        if mutant.name in equivalent:
            yield f"equivalent: {mutant.name}: {equivalent[mutant.name]}"
        elif outcome.startswith(PASSED):
            yield f"survives ({outcome}): {SOURCE}/{mutant.path}:{mutant.line}: {mutant.name}"


def main() -> int:
    """Run the mutants that are drawn; return 1 if fewer than `WANTED` are caught."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=DRAWS, help=f"mutants to run ({DRAWS})")
    parser.add_argument("--seed", type=int, default=SEED, help=f"which are drawn ({SEED})")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no tests after so long; 0 only reports"
    )
    parser.add_argument("--again", action="store_true", help="run those again that no test has caught")
    asked = parser.parse_args()
    last = time.monotonic() + asked.seconds
    mutants = all_mutants(ROOT / SOURCE)
    chosen = drawn(mutants, asked.draws, asked.seed)
    equivalent = read_equivalent()
    state = State.read()
    print(f"{len(chosen)} of {len(mutants):,} mutants, seed {asked.seed}", flush=True)
    if asked.again:
        state.outcomes = {name: found for name, found in state.outcomes.items() if is_caught(found)}
    tried = [mutant for mutant in chosen if mutant.name not in equivalent]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
        run_stages(tried, Tests(copy, state), last)
    for line in report(chosen, state.outcomes, equivalent):
        print(line)
    caught = sum(is_caught(state.outcomes.get(mutant.name)) for mutant in tried)
    print(f"{caught} of {len(tried)} caught, {caught / max(len(tried), 1):.1%}")
    return int(caught < WANTED * len(tried))


if __name__ == "__main__":
    sys.exit(main())
