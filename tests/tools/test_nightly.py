"""What `make nightly` runs and writes, with a Makefile of four stages that take no time."""

import json
import re
from pathlib import Path

import pytest

import nightly

ROOT = Path(__file__).parents[2]
MAKEFILE = """
first:
\ttrue || echo 'torch: not installed, tests are skipped' >&2
\t@echo 'MPI: not installed, the tests of studies under MPI are skipped.' >&2
bad:
\t@echo '1 failed, 2 passed, 3 errors in 0.10s'; exit 3
beside:
\t@echo '=== 5 passed, 1 skipped, 7 deselected in 61.20s (0:01:01) ==='; echo '4 passed in 1.00s'
last:
\t@echo 'nothing of tests: 9 passed'
"""


@pytest.fixture
def night(tmp_path, monkeypatch):
    """Let the tool run the stages above in a folder, which is returned."""
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    monkeypatch.setattr(nightly, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(nightly, "REPORT", tmp_path / "nightly.json")
    monkeypatch.setattr(nightly, "GROUPS", (("first",), ("bad", "beside"), ("last",)))
    monkeypatch.setattr(nightly, "STAGES", ("first", "bad", "beside", "last"))
    monkeypatch.setattr("sys.argv", ["nightly.py"])
    return tmp_path


def test_a_stage_that_fails_is_named_and_the_others_run(night, capsys):
    assert nightly.main() == 1
    written = json.loads((night / "nightly.json").read_text())
    names = [stage["name"] for stage in written["stages"]]
    assert names == ["first", "bad", "beside", "last"]
    by_name = dict(zip(names, written["stages"], strict=True))
    assert by_name["bad"]["exit_code"] == 2  # that of make
    # errors are failures; two runs of pytest are summed; only the closing line of one counts
    assert [by_name["bad"][key] for key in ("passed", "failed", "skipped")] == [2, 4, 0]
    assert [by_name["beside"][key] for key in ("passed", "failed", "skipped")] == [9, 0, 1]
    assert by_name["last"]["passed"] == 0
    assert by_name["first"]["missing"] == ["MPI"]
    assert (written["passed"], written["failed"], written["skipped"]) == (11, 4, 1)
    assert written["failed_stages"] == ["bad"]
    assert all(stage["seconds"] >= 0 for stage in written["stages"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", written["date"])
    assert written["commit"] is None  # the folder is no repository
    assert list(night.glob("*.partial")) == []
    printed = capsys.readouterr()
    assert "nightly: failed: bad" in printed.err
    assert "1 failed, 2 passed, 3 errors" in printed.out  # what a stage that fails said
    assert "5 passed, 1 skipped" not in printed.out
    assert "61.20s" in (night / "logs" / "beside.log").read_text()


def test_named_stages_write_no_report(night, monkeypatch):
    monkeypatch.setattr("sys.argv", ["nightly.py", "beside", "last"])
    assert nightly.main() == 0
    assert not (night / "nightly.json").exists()
    monkeypatch.setattr("sys.argv", ["nightly.py", "tea"])
    assert nightly.main() == 2


def test_the_stages_are_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE))
    assert set(nightly.STAGES) <= targets
    described = re.search(r"^nightly:.*\((.*)\)", makefile, re.MULTILINE)[1]
    assert described.split(", ") == list(nightly.STAGES)
