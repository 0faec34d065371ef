"""Renew what depends on how far predictions are off: tests/data/scoreboard.json, and the pages that tools/docs/generate.py prints.

    python calibration/scoreboard.py        # or: make scoreboard

scoreboard.json holds the mean absolute relative error of every source of published runs, and how many of its rows are predicted. A
test compares it with what the code predicts now: no source may get worse by more than `MOST` points, or lose rows, unless a
fragment in changelog.d/ says so and why, on a line of its own:

    accuracy: mpt +0.6: traffic of sharded weights is no longer hidden by the optimizer
    accuracy: papers -2 rows: a plan that no framework can run is refused

The same rule holds here: a source whose growth nobody explains keeps its old figures, and the command fails.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypedDict

from traincast.accuracy.validate import Report, validate
from traincast.core.output_files import beside

ROOT: Final = Path(__file__).parents[1]
FILE: Final = ROOT / "tests" / "data" / "scoreboard.json"
MOST: Final = 0.3  # points by which the error of a source may grow [%]
SLACK: Final = 0.05  # points to which growth is told in a fragment
LINE: Final = re.compile(r"^accuracy: (\S+) (?:\+([\d.]+)|-(\d+) rows?): (\S.*)$", re.MULTILINE)


class Score(TypedDict):
    """Rows predicted of a source, and their mean absolute relative error [%]."""

    n: int
    mape: float


Explained = dict[tuple[str, str], float]  # source, and "mape" or "n" → how much of its growth or loss is explained


def scores(report: Report) -> dict[str, Score]:
    """Every source's score."""
    return {one.source: Score(n=one.n, mape=round(100 * one.mape, 2)) for one in report.summaries if one.mape is not None}


def explained(folder: Path = ROOT / "changelog.d") -> Explained:
    """What the changelog's fragments explain."""
    found: Explained = {}
    for file in sorted(folder.glob("*.md")):
        for source, points, rows, _ in LINE.findall(file.read_text(encoding="utf-8")) if file.name != "README.md" else ():
            what = (source, "mape" if points else "n")
            found[what] = max(found.get(what, 0.0), float(points or rows))
    return found


def worse(before: Mapping[str, Score], now: Mapping[str, Score], told: Explained) -> dict[str, str]:
    """Sources that got worse without a word, and how.

    Parameters
    ----------
    before, now : mapping of str to Score
        Scores by source.
    told : dict
        What the changelog explains.
    """
    found = {}
    for source, old in before.items():
        new = now.get(source, Score(n=0, mape=old["mape"]))
        grown, lost = new["mape"] - old["mape"], old["n"] - new["n"]
        if grown > max(MOST, told.get((source, "mape"), 0) + SLACK) + 1e-9:
            found[source] = f"error grew by {grown:.2f} points, from {old['mape']:.2f} % to {new['mape']:.2f} %"
        elif lost > told.get((source, "n"), 0):
            found[source] = f"{lost} of {old['n']} rows are no longer predicted"
    return found


def renewed(before: Mapping[str, Score], now: Mapping[str, Score], refused: Mapping[str, str]) -> dict[str, Score]:
    """Scores to keep: those of now, but the old ones where they may not get worse."""
    return dict(sorted({**now, **{source: before[source] for source in refused}}.items()))


def read(path: Path = FILE) -> dict[str, Score]:
    """The scores kept; none where there is no file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def main() -> None:
    """Write scores and pages."""
    before, now = read(), scores(validate())
    refused = worse(before, now, explained())
    lines = (f"  {json.dumps(source)}: {json.dumps(score)}" for source, score in renewed(before, now, refused).items())
    with beside(FILE) as unfinished:
        unfinished.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    subprocess.run([sys.executable, str(ROOT / "tools" / "docs" / "generate.py")], check=True)
    if refused:
        told = "\n".join(f"  {source}: {how}" for source, how in refused.items())
        raise SystemExit(f"not explained in changelog.d/ (see {Path(__file__).name}):\n{told}")


if __name__ == "__main__":
    main()
