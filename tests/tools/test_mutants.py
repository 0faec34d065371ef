"""What `tools/mutants.py` changes, on a function of a few lines, and what it makes of outcomes."""

import ast
import importlib.util
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "mutants.py"
SOURCE = '''"""Words - and 1 number - stay."""

from typing import Final

MOST: Final[int] = 3


def area(width: int, height: int, *, flat: bool = True) -> float:
    """Return 2 * that."""
    if not flat and width <= height:
        raise ValueError(f"{width + 1} is wrong")
    return min(width, MOST) * height / 2.0
'''


@pytest.fixture(scope="module")
def mutants():
    """Return the tool as a module."""
    spec = importlib.util.spec_from_file_location("mutants_of_formulas", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def found(mutants):
    return list(mutants.mutants_of("times/area.py", SOURCE.encode()))


def test_each_change_is_of_arithmetic_conditions_or_constants(found):
    """Neither words, types nor messages are changed; the list is made by hand."""
    assert Counter((mutant.line, mutant.before, mutant.after) for mutant in found) == Counter(
        [
            (5, "3", "4"),
            (8, "True", "False"),
            (10, "and", "or"),
            (10, "not flat", "(flat)"),
            (10, "<=", "<"),
            (12, "min", "max"),
            (12, "*", "/"),
            (12, "/", "*"),
            (12, "2.0", "4.0"),
            (12, "min(width, MOST) * height", "(min(width, MOST))"),
            (12, "min(width, MOST) * height", "(height)"),
            (12, "min(width, MOST) * height / 2.0", "(min(width, MOST) * height)"),
        ]
    )


def test_a_mutant_differs_in_its_line_alone_and_is_python(found):
    lines = SOURCE.splitlines()
    for mutant in found:
        changed = mutant.applied(SOURCE.encode()).decode()
        ast.parse(changed)
        differing = [
            i for i, pair in enumerate(zip(lines, changed.splitlines(), strict=True), 1) if pair[0] != pair[1]
        ]
        assert differing == [mutant.line]


def test_a_draw_is_that_of_its_seed_and_stays_where_other_functions_change(mutants, found):
    more = list(mutants.mutants_of("times/area.py", b"X = 1 + 2\n" + SOURCE.encode()))
    drawn = [mutant.name for mutant in mutants.drawn(found, 5, seed=46)]
    assert drawn == [mutant.name for mutant in mutants.drawn(reversed(found), 5, seed=46)]
    assert drawn != [mutant.name for mutant in mutants.drawn(found, 5, seed=47)]
    of_area = [mutant.name for mutant in mutants.drawn(more, len(more), seed=46) if "area: " in mutant.name]
    ranked = [mutant.name for mutant in mutants.drawn(found, len(found), seed=46) if "area: " in mutant.name]
    assert of_area == ranked


def test_every_mutant_of_the_package_is_python_and_has_a_name_of_its_own(mutants):
    every = mutants.all_mutants(mutants.ROOT / mutants.SOURCE)
    assert {mutant.package for mutant in every} == set(mutants.PACKAGES)
    assert len({mutant.name for mutant in every}) == len(every) > 10_000
    sources = {path: (mutants.ROOT / mutants.SOURCE / path).read_bytes() for path in {m.path for m in every}}
    for mutant in mutants.drawn(every, 200, mutants.SEED):
        ast.parse(mutant.applied(sources[mutant.path]))


def test_equivalent_mutants_exist_and_have_a_reason(mutants):
    """A line of the table whose code has changed says nothing any more."""
    names = {mutant.name for mutant in mutants.all_mutants(mutants.ROOT / mutants.SOURCE)}
    equivalent = mutants.read_equivalent()
    assert equivalent.keys() <= names
    assert all(len(reason) > 20 for reason in equivalent.values())


def test_only_what_no_stage_caught_survives(mutants, found):
    first, second, third, *_ = found
    outcomes = {first.name: "package: FAILED tests/a.py::b", second.name: mutants.passed("others")}
    lines = list(mutants.report(found[:3], outcomes, {third.name: "the same"}))
    assert lines[-2].startswith("survives (passed others): src/traincast/times/area.py:")
    assert lines[-1] == f"equivalent: {third.name}: the same"
    assert [mutants.is_caught(outcomes.get(mutant.name)) for mutant in found[:3]] == [True, False, False]


def test_tests_of_the_module_run_first(mutants, found, tmp_path):
    """Most mutants are caught by those, and -x ends the run there; all others keep their order."""
    texts = {
        "test_moe.py": "",
        "test_towers.py": "",
        "test_search.py": "from traincast.operations import sparse_attention",
        "test_linear_attention.py": "",
        "test_sparse_attention.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    mutant = replace(found[0], path="operations/sparse_attention.py")
    ordered = mutants.nearest_first(mutant, list(texts), tmp_path)
    assert ordered == [*reversed(list(texts)[2:]), "test_moe.py", "test_towers.py"]


def test_folders_of_tests_are_their_files(mutants, tmp_path):
    for name in ("a/test_moe.py", "a/b/test_area.py", "a/helpers.py", "test_one.py"):
        file = tmp_path / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    tests = mutants.Tests(tmp_path, mutants.State({}, {}))
    files = tests.files(("tests/a", "tests/test_one.py"))
    assert files == ["tests/a/b/test_area.py", "tests/a/test_moe.py", "tests/test_one.py"]
