"""The floors of pyproject.toml, as tools/lowest.py reads them; `make lowest` installs them."""

from pathlib import Path

import pytest

import lowest

ROOT = Path(__file__).parents[1]


def test_lowest_versions_are_those_that_work():
    """Reports need np.unique of numpy 2.1, tables the metadata that polars 1.30 writes.

    Each pydantic needs one pydantic_core: 2.7.0 has "pydantic-core==2.18.1" in its metadata.
    """
    floors = lowest.floors((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert tuple(map(int, floors["numpy"].split("."))) >= (2, 1)
    assert tuple(map(int, floors["polars"].split("."))) >= (1, 30)
    assert (floors["pydantic"], floors["pydantic_core"]) == ("2.7", "2.18.1")
    assert "pytest" not in floors


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ('["numpy"]', "numpy: is not written"),
        ('["numpy~=2.1"]', "numpy~=2.1: is not written"),
        ('["numpy>=2.1", "numpy>=2.0"]', "numpy>=2.1 is declared elsewhere"),
    ],
)
def test_lowest_refuses_what_has_no_floor(declared, said):
    with pytest.raises(ValueError, match=said):
        lowest.floors(f"[project]\ndependencies = {declared}\n[project.optional-dependencies]\n")


def test_lowest_runs_tests_that_are_there():
    assert all((ROOT / test).exists() for test in lowest.TESTS)
