"""Shared fixtures."""

import csv
import gc
import os
import pkgutil
import shutil
import signal
import tempfile
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads wait busily; read when numpy is imported

import traincast as tc
from made_once import FOLDER
from traincast.catalog import disk_cache

settings.register_profile(
    "traincast", deadline=None, derandomize=True
)  # on a busy machine, and the same everywhere
settings.load_profile("traincast")

pytest_plugins = ["strict_skips"]
HERE = Path(__file__).parent
GOLDEN = HERE / "published"
GARBAGE = 50_000  # objects until it is collected; with Python's 700 that takes a twentieth of the tests' time
CASES_TRACED = 300  # of a test, by `--cov`: one of each type of model and format of launch
NOT_TRACED = {"browser", "calibration", "docs", "properties"}


def pytest_configure(config):
    """Let the processes of a run share results of calibration, which take long, and the catalogue.

    Those of the tests themselves read the catalogue from its files.
    """
    if not hasattr(config, "workerinput"):
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="traincast-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ[FOLDER], ignore_errors=True))
    os.environ[disk_cache.VARIABLE] = "off"
    disk_cache._folder()
    os.environ[disk_cache.VARIABLE] = os.environ[FOLDER]  # for processes that tests start
    resolve_faces()


def resolve_faces():
    """Take every name of every package, which it keeps from then on.

    Taken first while a test has put another in its place, it would be that for all later tests.
    """
    for package in pkgutil.iter_modules(tc.__path__, "traincast."):
        if package.ispkg:
            face = import_module(package.name)
            for name in face.__all__:
                getattr(face, name)


def pytest_collection_modifyitems(config, items):
    """Where reached lines are measured, do so in the first cases of each test: tracing doubles their time.

    Tests that draw their cases, and those of `NOT_TRACED`, ask much of what others reach, or another process.
    """
    if not getattr(config.option, "cov_source", None):
        return
    cases = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0]
        cases[test] += 1
        is_drawn = is_hypothesis_test(getattr(item, "obj", None)) or item.get_closest_marker("random")
        if is_drawn or cases[test] > CASES_TRACED or item.path.relative_to(HERE).parts[0] in NOT_TRACED:
            item.add_marker("no_cover")


def pytest_collection_finish():
    """Keep the garbage collector from looking through what was imported and collected, again and again."""
    gc.freeze()
    gc.set_threshold(GARBAGE)


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch):
    """Output that does not depend on the caller's terminal."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    # messages are compared unwrapped; tests/ui/cli/test_messages.py has those that are wrapped
    monkeypatch.setattr("traincast.ui.cli.output.message_columns", lambda: 10_000)


@pytest.fixture(autouse=True, scope="session")
def usual_signals():
    """Signals handled as in a terminal: what runs in the background ignores some of them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def gpt():
    """The paper's trillion-parameter GPT."""
    return tc.load_model("gpt3-1t")


@pytest.fixture(scope="session")
def h200():
    """H200 in fast domains of 8."""
    return tc.load_system("h200-nvs8")


@pytest.fixture(scope="session")
def report():
    """Predictions of the published runs, which tests of the scoreboard use as well."""
    from goals_and_errors import board

    return board().report


@pytest.fixture(scope="session")
def reproduced():
    """The published results of arXiv 2410.00273, recomputed."""
    from made_once import made_once
    from traincast.planner.paper_results import reproduce

    return made_once(reproduce)()


@pytest.fixture(scope="session")
def golden_operations():
    """Rows of the golden file of single operations."""
    with (GOLDEN / "paper_ops.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
