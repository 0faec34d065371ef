"""What `tools/size.py` counts, on a package of four modules whose doors are counted by hand."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "size.py"
FILES = {
    "__init__.py": "",
    "low/__init__.py": '"""Face."""\n\nfrom traincast.low.inner import face\n',
    "low/__init__.pyi": "from .inner import other as other\n",
    "low/inner.py": "face = 1\nother: Any = 2\nthird = 3\nleft, right = 1, 2\n",
    # `face` by the face and by its module is one door; `other` is taken in a function of a face
    # that is a stub, `third` as an attribute
    "high/__init__.py": "",
    "high/a.py": "from traincast.low import face\n\n\ndef f():\n    from traincast.low import other\n",
    "high/b.py": (
        '"""Text."""\n\n'
        "from traincast.high.a import f\n"
        "from traincast.low import inner\n"
        "from traincast.low.inner import face\n\n"
        "x = 1 if f else (2 if face else inner.third) + 1\n"
    ),
}


@pytest.fixture(scope="module")
def size():
    """Return the tool as a module."""
    spec = importlib.util.spec_from_file_location("size_of_house", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def house(size, tmp_path):
    """Return the small package."""
    for name, text in FILES.items():
        file = tmp_path / "traincast" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return size.House.read(tmp_path / "traincast")


def test_doors_are_names_where_they_are_defined(house):
    inner = "traincast.low.inner"
    assert house.given() == {"low": {f"{inner}.face", f"{inner}.other", f"{inner}.third"}}
    assert house.received() == {"high": house.given()["low"]}


def test_density(size, house):
    # statements: 4 in low.inner, 1 in low, 3 in high.a and 4 in high.b
    assert size.density(house) == {
        "tuple assignments": pytest.approx(1000 / 12),
        "fmt: skip": 0,
        "nested conditionals": 1,
        "lines with Any": 1,
    }


def test_longest_chain(house):
    # `face` is taken of the face, but it is its module that is imported
    chain = ["traincast.high.b", "traincast.high.a", "traincast.low.inner"]
    assert house.longest_chain() == chain


def test_tokens_are_code_alone(house):
    # from traincast . low . inner import face
    assert house.modules["traincast.low"].tokens == 8


def test_check_names_what_is_above_its_limit(size, house):
    most = dict.fromkeys(size.MOST, 1)
    enough = most | {"tuple assignments": 100, "longest import chain": 3}
    assert size.excesses(house, {"low": 3}, enough) == []
    assert size.excesses(house, {"low": 2}, most) == [
        "low gives 3 names to other packages, 2 allowed",
        "tuple assignments: 83.33, 1 allowed",
        "longest import chain: 3, 1 allowed: high.b > high.a > low.inner",
    ]


MANY = "traincast.wide.Made.__init__"
WIDE = """
class Made:
    def __init__(self, a, b, c, d, e, f, g, h, i): ...

    def inner(self, a, b, c, d, e, f, *, g, h): ...

def nine(a, b, c, d, /, e, *f, g, h, **i): ...

def hidden(name, **options):
    return Made(1, **options)

def shown(name, **options):
    return print(**options)
"""


def test_functions_with_many_parameters_are_named(size, tmp_path):
    folder = tmp_path / "traincast"
    for name in ("__init__.py", "wide.py", "ui/__init__.py", "ui/cli/__init__.py", "ui/cli/command.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(WIDE if name == "wide.py" else "", encoding="utf-8")
    (folder / "ui/cli/command.py").write_text("def plan(a, b, c, d, e, f, g, h, i): ...", encoding="utf-8")
    wide = size.House.read(folder)
    # `self` does not count, `*f` and `**i` do; a command may have many
    assert size.long_signatures(wide, {MANY, "traincast.wide.shown"}) == [
        "traincast.wide.nine has 9 parameters, 8 allowed",
        "traincast.wide.shown needs no leave for many parameters",
        "traincast.wide.hidden hides arguments of Made",
    ]


def test_house_is_within_its_limits():
    checked = subprocess.run([sys.executable, TOOL, "--check"], capture_output=True, text=True)
    assert checked.stderr == ""
    assert checked.returncode == 0
