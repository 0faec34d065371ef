"""Every import points down: at the top of modules, in functions, for type checkers, and by name."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "traincast"
MODULES = {
    ".".join(("traincast", *file.relative_to(SRC).with_suffix("").parts)).removesuffix(".__init__"): file
    for file in SRC.rglob("*.py")
}
FACE = ("traincast", "traincast.__main__")  # may import everything


@cache
def parsed(file):
    """Syntax tree of a file."""
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def face(package):
    """Names that a package gives, and the modules that define them: of its stub, and of its `__init__`."""
    if package not in MODULES or MODULES[package].name != "__init__.py":
        return {}
    stub = MODULES[package].with_suffix(".pyi")
    files = (MODULES[package], stub) if stub.is_file() else (MODULES[package],)
    return {
        alias.asname or alias.name: f"{package}.{node.module}" if node.level else node.module
        for file in files
        for node in parsed(file).body
        if isinstance(node, ast.ImportFrom) and node.module != package
        for alias in node.names
    }


def imported(module, through_faces=True):
    """Modules that a module imports, wherever it does so.

    `through_faces`: the modules that define what it takes from the face of a package, in place of the face.
    """
    modules = set()
    for node in ast.walk(parsed(MODULES[module])):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: imports are written in full"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if alias.name in face(node.module):
                    modules.add(face(node.module)[alias.name] if through_faces else node.module)
                else:
                    modules.add(name if name in MODULES else node.module)
    return {name for name in modules if name.split(".")[0] == "traincast"} - {module}


@cache
def imports():
    """What every module imports."""
    return {module: imported(module) for module in MODULES if module not in FACE}


@cache
def contracts():
    """Contracts of imports."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return project["tool"]["importlinter"]["contracts"]


def floors():
    """Layer of every package, from the import contract."""
    layers = next(
        contract["layers"] for contract in contracts() if contract["name"] == "Nothing imports upward"
    )
    return {name.strip(): floor for floor, names in enumerate(reversed(layers)) for name in names.split("|")}


def test_every_import_points_down():
    floor = floors()
    wrong = [
        f"{module} imports {other}"
        for module, others in imports().items()
        for other in others
        if other == "traincast"
        or (
            other.split(".")[1] != module.split(".")[1]
            and floor[other.split(".")[1]] >= floor[module.split(".")[1]]
        )
    ]
    assert wrong == []


@pytest.mark.parametrize("depth", [2, 3, 9])
def test_no_circles(depth):
    """Not among modules, nor among the rooms that a package has inside."""

    def room(module):
        return ".".join(module.split(".")[:depth])

    rooms = {room(module): set() for module in imports()}
    for module, others in imports().items():
        above = {room(module), ".".join(room(module).split(".")[:-1])}
        rooms[room(module)] |= {room(other) for other in others} - above
    tuple(TopologicalSorter(rooms).static_order())  # raises CycleError


USERS = {"torch", "transformers", "deepspeed", "IPython"}  # of the user's environment or notebook
NAMED_APART = {"ruamel": "ruamel-yaml"}  # distributions that have another name than what is imported


def normalised(distribution):
    """Name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def outside(file):
    """Packages of others that a module imports, wherever it does so."""
    roots = set()
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add(node.module.split(".")[0])
    return roots - sys.stdlib_module_names - {"traincast"} - USERS


def test_what_is_imported_is_declared():
    """A package that comes only as another's dependency may be gone with that one's next release."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: listed for name, listed in project["optional-dependencies"].items() if name != "dev"}
    requirements = [*project["dependencies"], *(entry for listed in extras.values() for entry in listed)]
    declared = {normalised(re.split(r"[\[<>=~! ]", entry)[0]) for entry in requirements}
    imported_names = set().union(*map(outside, MODULES.values()))
    distributions = {normalised(NAMED_APART.get(name, name)) for name in imported_names}
    assert distributions - declared == set()
    unused = declared - distributions - {"traincast", "huggingface-hub"}
    assert unused == set()


PACKAGES = sorted({module.split(".")[1] for module in MODULES if module.count(".") > 1})


def test_names_are_taken_from_faces():
    """A contract holds this too; here also the modules that a line names in another package."""
    inner = [
        f"{module} imports {other}"
        for module in MODULES
        for other in imported(module, through_faces=False)
        if other.count(".") > 1 and other.split(".")[1] != module.partition(".")[2].split(".")[0]
    ]
    assert inner == []


def within(module, packages):
    """Whether a module is one of some, or inside of one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def test_what_is_forbidden_is_not_taken_through_a_face():
    """The linter sees the face alone, not which module gives the name."""
    wrong = [
        f"{module} takes of {other}: {contract['name']}"
        for contract in contracts()
        if contract["type"] == "forbidden"
        for module, others in imports().items()
        if within(module, contract["source_modules"])
        for other in others
        if within(other, contract["forbidden_modules"])
    ]
    assert wrong == []


@pytest.mark.parametrize("package", PACKAGES)
def test_the_modules_of_a_package_are_its_own(package):
    """The contract of import-linter, which sees imports in functions and for type checkers as well."""
    (contract,) = (
        contract for contract in contracts() if contract.get("allowed_importers") == [f"traincast.{package}"]
    )
    assert contract["type"] == "protected"
    assert contract["protected_modules"] == [f"traincast.{package}.*"]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_face_gives_what_is_taken(package):
    """By other packages, and by `traincast` itself, whose names are the public ones."""
    taken = {name for name, module in face("traincast").items() if module == f"traincast.{package}"}
    for module, file in MODULES.items():
        if module.split(".")[1:2] != [package]:
            for node in ast.walk(parsed(file)):
                if isinstance(node, ast.ImportFrom) and node.module == f"traincast.{package}":
                    taken |= {alias.name for alias in node.names}
    assert set(import_module(f"traincast.{package}").__all__) == taken


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_does_not_use_its_own_face(package):
    """Its modules import each other, so that who imports whom can be seen."""
    own = f"traincast.{package}"
    modules = (module for module in MODULES if module.startswith(f"{own}."))
    assert [module for module in modules if own in imported(module, through_faces=False)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_name_of_a_face_is_a_module(package):
    """Importing the module would put it in place of what the face gives."""
    assert [name for name in face(f"traincast.{package}") if f"traincast.{package}.{name}" in MODULES] == []


def test_a_face_imports_nothing_before_it_is_asked():
    """Else the shortest command would wait for the longest."""
    code = (
        "import sys\n"
        f"for package in {PACKAGES}: __import__(f'traincast.{{package}}')\n"
        "print([name for name in sys.modules if name.startswith('traincast.') and name.count('.') > 1])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert loaded.strip() == "[]"


def test_nothing_is_imported_by_a_name_in_a_string():
    """A dynamic import would be an arrow that no linter sees; a face lists its names beside it."""
    named = {
        module
        for module, file in MODULES.items()
        if any(call in file.read_text(encoding="utf-8") for call in ("import_module(", "attach_stub("))
    }
    assert named == {"traincast", *(f"traincast.{package}" for package in PACKAGES)}


def test_packages_are_those_of_the_contract():
    assert {module.split(".")[1] for module in imports()} == set(floors())
