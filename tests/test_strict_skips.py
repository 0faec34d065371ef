"""Continuous integration that is strict is not green by absence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = """
import sys
import pytest

def test_of_a_package():
    pytest.importorskip("no_such_package")

@pytest.mark.skipif(True, reason="there is no mpiexec")
def test_of_a_program():
    pass

@pytest.mark.skipif(True, reason="finds processes as Linux does")
def test_of_a_system():
    pass

@pytest.mark.xfail
def test_of_what_is_known():
    raise ValueError
"""
MODULE = "import pytest\nno = pytest.importorskip('no_such_package')"


@pytest.mark.parametrize(
    ("ci", "outcomes"),
    [("strict", "1 failed, 1 skipped, 1 xfailed, 2 errors"), ("true", "4 skipped, 1 xfailed")],
)
def test_what_is_not_installed_fails_where_ci_is_strict(ci, outcomes, tmp_path):
    (tmp_path / "test_cases.py").write_text(CASES)
    (tmp_path / "test_module.py").write_text(MODULE)
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "strict_skips",
            "--continue-on-collection-errors",
            tmp_path,
        ],
        env=os.environ | {"CI": ci, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert outcomes in run.stdout, run.stdout + run.stderr
    assert run.returncode == (ci == "strict")
    assert ("CI=strict does not let pass: there is no mpiexec" in run.stdout) == (ci == "strict")
