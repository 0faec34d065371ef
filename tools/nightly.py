"""Run what takes long, stage after stage, and write nightly.json: the commit, what passed, and in which time.

    python tools/nightly.py [STAGE ...]

A stage is a target of the Makefile. One that fails is named, and the others run all the same; what each of
them says is kept in .venv/nightly. With stages named only these run, and nightly.json stays as it is. The
exit code is 0 where every stage passed, 1 where one failed, 2 for a name that is no stage, 130 after Ctrl-C.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Final

from environments import ROOT
from traincast.core.output_files import atomic_output

# Stages of a group run beside each other: frameworks that are installed and launched leave a core to tests.
# Trials on this computer are timed, so that nothing runs beside them.
GROUPS: Final = (
    ("engines",),
    ("lowest",),
    ("pythons",),
    ("trials",),
    ("frameworks", "random"),
)
STAGES: Final = tuple(stage for group in GROUPS for stage in group)
LOGS: Final = ROOT / ".venv" / "nightly"
REPORT: Final = ROOT / "nightly.json"
# The last line of a run of pytest, with and without -q: "= 3 passed, 1 skipped in 2.10s (0:00:02) =".
CLOSING: Final = re.compile(r"^=*\s*((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s\b", re.MULTILINE)
COUNT: Final = re.compile(r"(\d+) (passed|failed|errors?|skipped)")
# "Python 3.14: not installed, …", and not the command of a recipe that may say so
MISSING: Final = re.compile(r"^([^'\"\n]+?): not installed", re.MULTILINE)
DRAWN: Final = ("TRAINCAST_FUZZ", "MAKEFLAGS", "PYTEST_ADDOPTS")  # variables that make a night shorter


@dataclass(frozen=True)
class Stage:
    """What a stage came to."""

    name: str
    exit_code: int
    seconds: float
    passed: int  # tests
    failed: int  # tests, with those that could not be set up
    skipped: int  # tests
    missing: list[str]  # what could not be installed, so that its tests were skipped


def counts(said: str) -> Counter[str]:
    """Return how many tests passed, failed and were skipped in all runs of pytest whose output this is."""
    total: Counter[str] = Counter()
    for closing in CLOSING.findall(said):
        for number, outcome in COUNT.findall(closing):
            name = "failed" if outcome.startswith("error") else outcome
            total[name] += int(number)
    return total


def run_stage(name: str) -> Stage:
    """Run a target of the Makefile, keep what it says, and return what it came to."""
    log = LOGS / f"{name}.log"
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(
            ["make", name], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )
    said = log.read_text(encoding="utf-8", errors="replace")
    total = counts(said)
    stage = Stage(
        name,
        done.returncode,
        round(time.monotonic() - started, 1),
        total["passed"],
        total["failed"],
        total["skipped"],
        sorted(set(MISSING.findall(said))),
    )
    if done.returncode:
        print(said, flush=True)
    print(line(stage), flush=True)
    return stage


def line(stage: Stage) -> str:
    """Return a stage in words."""
    outcome = f"FAILED with exit code {stage.exit_code}" if stage.exit_code else "passed"
    tests = f"{stage.passed} tests passed, {stage.failed} failed, {stage.skipped} skipped"
    without = f"; not installed: {', '.join(stage.missing)}" if stage.missing else ""
    return f"nightly: {stage.name} {outcome} in {stage.seconds:.0f} s: {tests}{without}"


def git(*arguments: str) -> str | None:
    """Return what git prints; None outside of a repository."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return None if done.returncode else done.stdout.strip()


def report(stages: Sequence[Stage], began: datetime, seconds: float) -> dict[str, object]:
    """Return the content of nightly.json."""
    return {
        "date": began.isoformat(timespec="seconds"),
        "commit": git("rev-parse", "HEAD"),
        "changed_files": (git("status", "--porcelain") or "").splitlines(),
        "python": sys.version.split()[0],
        "variables": {name: os.environ.get(name, "") for name in DRAWN},
        "seconds": round(seconds, 1),
        "passed": sum(stage.passed for stage in stages),
        "failed": sum(stage.failed for stage in stages),
        "skipped": sum(stage.skipped for stage in stages),
        "failed_stages": [stage.name for stage in stages if stage.exit_code],
        "stages": [asdict(stage) for stage in stages],
    }


def run_stages(wanted: Sequence[str]) -> list[Stage]:
    """Run stages, group after group."""
    stages: list[Stage] = []
    for group in GROUPS:
        names = [name for name in group if name in wanted]
        with ThreadPoolExecutor(max_workers=len(group)) as threads:
            stages += threads.map(run_stage, names)
    return stages


def main() -> int:
    """Run the stages, and write the report where all of them ran."""
    wanted = sys.argv[1:] or STAGES
    unknown = [name for name in wanted if name not in STAGES]
    if unknown:
        print(f"nightly: {', '.join(unknown)}: must be one of {', '.join(STAGES)}", file=sys.stderr)
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    began = datetime.now(UTC)
    started = time.monotonic()
    stages = run_stages(wanted)
    content = report(stages, began, time.monotonic() - started)
    if len(stages) == len(STAGES):
        with atomic_output(REPORT) as partial:
            partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    failed = [stage.name for stage in stages if stage.exit_code]
    tests = f"{content['passed']} tests passed, {content['failed']} failed, {content['skipped']} skipped"
    print(f"nightly: {len(stages)} stages in {content['seconds']:.0f} s: {tests}")
    if failed:
        print(f"nightly: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # the terminal interrupts the stages as well
        sys.exit(130)
