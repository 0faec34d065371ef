"""Measure the house: doors between packages, density of statements, size and depth of imports.

A door is a name that a package gives to another: imported from it, at the top of a module or in a function,
or taken as an attribute of one of its modules. A name that the face of a package (its ``__init__.pyi``) gives
is the same door as the name where it is defined.

`make lint` runs it with ``--check``, which fails where doors, density or parameters of functions are above
their limits. Tokens and lines are for information: they are no goal.
"""

import argparse
import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "src" / "traincast"
TOP = "(top)"  # `traincast` itself, whose names are the public ones
TEXT = (".js", ".css", ".html", ".jinja", ".yaml", ".toml")
MEASURED = ("vendor/", "catalog/measured/")  # others' code; measured data

# What is allowed at most. Lower a number when the code allows it; raise one only with a reason in the commit.
MOST_DOORS = {  # names that a package gives to others
    "core": 121,
    "model": 58,
    "catalog": 59,
    "operations": 27,
    "times": 34,
    "step": 79,
    "planner": 84,
    "analysis": 30,
    "launch": 26,
    "accuracy": 38,
    "tuner": 13,
    "ui": 2,
}
MOST = {
    "tuple assignments": 5.0,  # `a, b = x, y` per 1,000 statements
    "fmt: skip": 30,
    "nested conditionals": 0,  # `a if b else c if d else e`, at any depth
    "lines with Any": 681,  # what no type is known of
    "longest import chain": 25,  # modules of which each imports the next, imports in functions counted
}
MOST_PARAMETERS = 8  # of a function outside of the command line, whose commands have one for each option
# Functions with more: public ones, whose keyword arguments are a promise, and formulas of many quantities.
MANY_PARAMETERS = {
    "traincast.accuracy.fit.measured_files.read_measurements",
    "traincast.analysis.training_limits.limits",
    "traincast.analysis.zero_scaling.scaling",
    "traincast.launch.checks.check",
    "traincast.operations.attention.unfused_attention",
    "traincast.operations.linear.linear",
    "traincast.planner.comparison.compare",
    "traincast.planner.searches.search",
    "traincast.planner.searches.search_each",
    "traincast.planner.studies.executors.study",
    "traincast.step.uncertainty.ErrorCase.from_step",
    "traincast.tuner.tuner.Tuner.__init__",
}
COMMAND_LINE = "traincast.ui.cli."
ASKED_BY = "Question"  # of all that is asked: no function hides its fields in `**options`

NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def package_of(module: str) -> str:
    """Return the package of a module: the second word of its name."""
    words = module.split(".")
    return words[1] if len(words) > 1 and words[1] != "__main__" else TOP


@dataclass(frozen=True)
class Module:
    """A parsed module."""

    name: str
    text: str
    tree: ast.Module
    is_package: bool
    stub: ast.Module | None = None  # the face of a package, `__init__.pyi`

    @cached_property
    def face(self) -> dict[str, tuple[str, str]]:
        """Names that a package gives: module and name of what each is."""
        found = dict[str, tuple[str, str]]()
        if self.is_package:
            for node in (*self.tree.body, *(self.stub.body if self.stub else ())):
                if isinstance(node, ast.ImportFrom) and node.module:
                    origin = f"{self.name}.{node.module}" if node.level else node.module
                    found |= {alias.asname or alias.name: (origin, alias.name) for alias in node.names}
        return found

    @cached_property
    def lines(self) -> int:
        """Lines of the file."""
        return len(self.text.splitlines())

    @cached_property
    def tokens(self) -> int:
        """Tokens of code: without comments, docstrings and layout."""
        docstrings = set[tuple[int, int]]()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0] if node.body else None
                if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                    docstrings.add((first.lineno, first.col_offset))
        found = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return sum(token.type not in NOT_CODE and token.start not in docstrings for token in found)

    @cached_property
    def statements(self) -> int:
        """Statements, without docstrings."""
        return sum(
            isinstance(node, ast.stmt)
            and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
            for node in ast.walk(self.tree)
        )

    @cached_property
    def tuple_assignments(self) -> int:
        """Statements that assign several values to several names."""
        return sum(
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and isinstance(node.value, ast.Tuple)
            for node in ast.walk(self.tree)
        )

    @cached_property
    def nested_conditionals(self) -> int:
        """Conditional expressions with another inside, at any depth."""
        return sum(
            sum(isinstance(inner, ast.IfExp) for inner in ast.walk(outer)) > 1
            for outer in ast.walk(self.tree)
            if isinstance(outer, ast.IfExp)
        )

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        """Functions and methods by their whole names."""
        found = dict[str, ast.FunctionDef | ast.AsyncFunctionDef]()

        def note(node: ast.AST, name: str) -> None:
            for child in ast.iter_child_nodes(node):
                inner = f"{name}.{child.name}" if isinstance(child, NAMED) else name
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    found[inner] = child
                note(child, inner)

        note(self.tree, self.name)
        return found

    @cached_property
    def lines_with_any(self) -> int:
        """Lines that name `Any`."""
        named = ((node.lineno, node.id) for node in ast.walk(self.tree) if isinstance(node, ast.Name))
        imported = (
            (alias.lineno, alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        )
        return len({line for line, name in (*named, *imported) if name == "Any"})

    @cached_property
    def skips_of_format(self) -> int:
        """Comments that keep the formatter away."""
        return self.text.count("# fmt: skip")

    @cached_property
    def imports_in_functions(self) -> int:
        """Import statements inside of functions."""
        inside = set[ast.stmt]()
        for function in ast.walk(self.tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                inside |= {n for n in ast.walk(function) if isinstance(n, ast.Import | ast.ImportFrom)}
        return len(inside)


@dataclass
class House:
    """All modules of the package, and what they take from each other.

    Attributes
    ----------
    taken : dict
        Module → names that it takes, as (module that defines it, name).
    imported : dict
        Module → modules that it imports.
    """

    modules: Mapping[str, Module]
    taken: dict[str, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))
    imported: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        for module in self.modules.values():
            self._note_imports(module)

    @classmethod
    def read(cls, root: Path = ROOT) -> "House":
        """Parse every module below a folder that is a package."""
        modules = dict[str, Module]()
        for file in sorted(root.rglob("*.py")):
            name = ".".join((root.name, *file.relative_to(root).with_suffix("").parts))
            text = file.read_text(encoding="utf-8")
            is_package = file.name == "__init__.py"
            name = name.removesuffix(".__init__")
            stub = file.with_suffix(".pyi")
            face = ast.parse(stub.read_text(encoding="utf-8")) if stub.is_file() else None
            modules[name] = Module(name, text, ast.parse(text), is_package, face)
        return cls(modules)

    def origin(self, module: str, name: str) -> tuple[str, str]:
        """Return where a name is defined that the face of a package gives."""
        where, given = self.modules[module].face.get(name, (module, name))
        if where in self.modules and where != module and f"{where}.{given}" not in self.modules:
            return self.origin(where, given)
        return module, name

    def _note_imports(self, module: Module) -> None:
        """Note what a module imports, and the attributes it takes of imported modules."""
        known = dict[str, str]()  # local name → module
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name in self.modules:
                        self.imported[module.name].add(alias.name)
                        if alias.asname:
                            known[alias.asname] = alias.name
            elif isinstance(node, ast.ImportFrom) and node.module in self.modules:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    origin = self.origin(node.module, alias.name)
                    if inner in self.modules and origin[0] == node.module:
                        self.imported[module.name].add(inner)
                        known[alias.asname or alias.name] = inner
                    else:  # through a face, what defines the name is imported
                        self.imported[module.name].add(origin[0])
                        self.taken[module.name].add(origin)
        for node in ast.walk(module.tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in known
            ):
                self.taken[module.name].add(self.origin(known[node.value.id], node.attr))
        self.imported[module.name].discard(module.name)

    def doors(self) -> Iterator[tuple[str, str, str]]:
        """Yield each name that crosses, with the package that gives it and one that takes it."""
        for taker, names in self.taken.items():
            for module, name in names:
                if package_of(module) != package_of(taker):
                    yield package_of(module), package_of(taker), f"{module}.{name}"

    def given(self) -> dict[str, set[str]]:
        """Return the names that each package gives to others."""
        names = defaultdict(set)
        for giver, _, name in self.doors():
            names[giver].add(name)
        return names

    def received(self) -> dict[str, set[str]]:
        """Return the names that each package takes from others."""
        names = defaultdict(set)
        for _, taker, name in self.doors():
            names[taker].add(name)
        return names

    def longest_chain(self) -> list[str]:
        """Return the longest chain of modules of which each imports the next."""
        chains = dict[str, list[str]]()

        def chain(module: str) -> list[str]:
            if module not in chains:
                chains[module] = []  # a circle ends here
                below = max((chain(other) for other in self.imported[module]), key=len, default=[])
                chains[module] = [module, *below]
            return chains[module]

        return max((chain(module) for module in self.modules), key=len)

    def rooms(self, package: str) -> int:
        """Return how many modules and packages stand directly inside of a package."""
        return len({n.split(".")[2] for n in self.modules if package_of(n) == package and n.count(".") > 1})


def other_lines(package: str) -> int:
    """Return the lines of text other than Python that people maintain in a package."""
    folder = ROOT if package == TOP else ROOT / package
    files = folder.glob("*") if package == TOP else folder.rglob("*")
    return sum(
        len(file.read_text(encoding="utf-8").splitlines())
        for file in files
        if file.suffix in TEXT and not any(part in file.as_posix() for part in MEASURED)
    )


def density(house: House) -> dict[str, float]:
    """Return how dense statements are, by the measures of `MOST`."""
    modules = house.modules.values()
    statements = sum(module.statements for module in modules)
    return {
        "tuple assignments": 1000 * sum(module.tuple_assignments for module in modules) / max(statements, 1),
        "fmt: skip": sum(module.skips_of_format for module in modules),
        "nested conditionals": sum(module.nested_conditionals for module in modules),
        "lines with Any": sum(module.lines_with_any for module in modules),
    }


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how many parameters a function has; ``*values`` and ``**values`` are one each."""
    given = function.args
    named = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    bound = named[:1] in (["self"], ["cls"])
    return len(named) - bound + (given.vararg is not None) + (given.kwarg is not None)


def passed_on(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names of functions that a function calls with its own ``**values``."""
    own = function.args.kwarg
    if own is None:
        return set()
    return {
        call.func.id if isinstance(call.func, ast.Name) else call.func.attr
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name | ast.Attribute)
        for given in call.keywords
        if given.arg is None
        and own.arg in {name.id for name in ast.walk(given.value) if isinstance(name, ast.Name)}
    }


def long_signatures(house: House, many: Collection[str]) -> list[str]:
    """Return functions with too many parameters or with some that are hidden, in words.

    `many` may have more; one of them that has not, or is gone, is named as well.
    """
    functions = {
        name: function
        for module in house.modules.values()
        for name, function in module.functions.items()
        if not name.startswith(COMMAND_LINE)
    }
    counts = {name: parameters(function) for name, function in functions.items()}
    long = {name: count for name, count in counts.items() if count > MOST_PARAMETERS}
    asking = {name.removesuffix(".__init__").rpartition(".")[2] for name in many} | {ASKED_BY}
    return [
        *(
            f"{name} has {count} parameters, {MOST_PARAMETERS} allowed"
            for name, count in long.items()
            if name not in many
        ),
        *(f"{name} needs no leave for many parameters" for name in sorted(many) if name not in long),
        *(
            f"{name} hides arguments of {called}"
            for name, function in functions.items()
            for called in sorted(passed_on(function) & asking)
        ),
    ]


def excesses(house: House, most_doors: Mapping[str, int], most: Mapping[str, float]) -> list[str]:
    """Return what is above its limit, in words."""
    given = house.given()
    doors = [
        f"{package} gives {len(names)} names to other packages, {most_doors.get(package, 0)} allowed"
        for package, names in sorted(given.items())
        if len(names) > most_doors.get(package, 0)
    ]
    dense = [
        f"{name}: {value:.4g}, {most[name]:g} allowed"
        for name, value in density(house).items()
        if value > most[name]
    ]
    chain = house.longest_chain()
    long = []
    if len(chain) > most["longest import chain"]:
        path = " > ".join(name[10:] or name for name in chain)
        long = [f"longest import chain: {len(chain)}, {most['longest import chain']:g} allowed: {path}"]
    return doors + dense + long


def show(house: House, *, names: bool = False) -> None:
    """Print the table, and the names that cross if asked."""
    given = house.given()
    received = house.received()
    totals = Counter[str]()
    head = ("tokens", "Python", "other", "given", "taken", "rooms", "in functions")
    print(f"{'package':<12}" + "".join(f"{word:>14}" for word in head))
    for package in sorted({package_of(name) for name in house.modules}):
        modules = [m for name, m in house.modules.items() if package_of(name) == package]
        row = {
            "tokens": sum(module.tokens for module in modules),
            "Python": sum(module.lines for module in modules),
            "other": other_lines(package),
            "given": len(given.get(package, ())),
            "taken": len(received.get(package, ())),
            "rooms": house.rooms(package),
            "in functions": sum(module.imports_in_functions for module in modules),
        }
        totals.update(row)
        print(f"{package:<12}" + "".join(f"{value:>14,}" for value in row.values()))
    print(f"{'all':<12}" + "".join(f"{totals[word]:>14,}" for word in head))
    print()
    for name, value in density(house).items():
        print(f"{name:<22}{value:8.4g}  (at most {MOST[name]:g})")
    chain = house.longest_chain()
    path = " > ".join(name[10:] or name for name in chain)
    print(f"{'longest import chain':<22}{len(chain):8}  (at most {MOST['longest import chain']})  {path}")
    if names:
        takers = defaultdict(set)
        for _, taker, name in house.doors():
            takers[name].add(taker)
        for giver in sorted(given):
            print(f"\n{giver} gives")
            for name in sorted(given[giver]):
                print(f"  {name.removeprefix('traincast.'):<58}{' '.join(sorted(takers[name]))}")


def main() -> int:
    """Print the measures; with ``--check`` only what is above its limit, and then return 1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="fail above the limits of doors, density or parameters"
    )
    parser.add_argument("--names", action="store_true", help="list every name that crosses, with its takers")
    asked = parser.parse_args()
    house = House.read()
    if not asked.check:
        show(house, names=asked.names)
        return 0
    found = excesses(house, MOST_DOORS, MOST) + long_signatures(house, MANY_PARAMETERS)
    for line in found:
        print(f"tools/size.py: {line}", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
