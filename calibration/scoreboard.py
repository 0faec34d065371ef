"""Renew what depends on predictions: the tidy table of runs, tests/data/scoreboard.json, generated pages.

    python calibration/scoreboard.py            # or: make scoreboard
    python calibration/scoreboard.py --renew    # without judging the goals

scoreboard.json has the mean absolute relative error and the number of predicted rows of every source of
published runs. A test compares it with what the code predicts now: no source may get worse by more than
`MAX_GROWTH` points, or lose rows, unless a fragment in changelog.d/ says so and why, on a line of its own:

    accuracy: mpt +0.6: traffic of sharded weights is no longer hidden by the optimizer
    accuracy: papers -2 rows: a plan that no framework can run is refused

Then it prints the page of the scoreboard and judges the goals of goals.yaml. It exits with 1 where one is
missed or an error grew without a word: such a source keeps its old figures.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypedDict

import normalise
from goals_and_errors import verdicts
from left_out import LATER
from traincast.accuracy.validation import Report, validate
from traincast.core.output_files import atomic_output

ROOT: Final = Path(__file__).parents[1]
FILE: Final = ROOT / "tests" / "data" / "scoreboard.json"
MAX_GROWTH: Final = 0.3  # points by which the error of a source may grow unexplained [%]
ROUNDING: Final = 0.05  # rounding of the growth stated in a fragment [%]
LINE: Final = re.compile(r"^accuracy: (\S+) (?:\+([\d.]+)|-(\d+) rows?): (\S.*)$", re.MULTILINE)


class Score(TypedDict):
    """Predicted rows of a source, and their mean absolute relative error [%]."""

    n: int
    mape: float


Explained = dict[
    tuple[str, str], float
]  # source, and "mape" or "n" → how much of its growth or loss is explained


def scores(*reports: Report) -> dict[str, Score]:
    """Return the score of every source."""
    return {
        summary.source: Score(n=summary.n, mape=round(100 * summary.mape, 2))
        for report in reports
        for summary in report.summaries
        if summary.mape is not None
    }


def explained(folder: Path = ROOT / "changelog.d") -> Explained:
    """Read the growth of errors and loss of rows that changelog fragments explain."""
    result: Explained = {}
    for file in sorted(folder.glob("*.md")):
        for source, points, rows, _ in (
            LINE.findall(file.read_text(encoding="utf-8")) if file.name != "README.md" else ()
        ):
            what = (source, "mape" if points else "n")
            result[what] = max(result.get(what, 0.0), float(points or rows))
    return result


def worse(before: Mapping[str, Score], now: Mapping[str, Score], reasons: Explained) -> dict[str, str]:
    """Return the sources that got worse without an explanation, and how.

    Parameters
    ----------
    before, now : mapping of str to Score
        Scores by source.
    reasons : dict
        Growth and losses that the changelog explains.
    """
    result = {}
    for source, old in before.items():
        new = now.get(source, Score(n=0, mape=old["mape"]))
        grown, lost = new["mape"] - old["mape"], old["n"] - new["n"]
        if grown > max(MAX_GROWTH, reasons.get((source, "mape"), 0) + ROUNDING) + 1e-9:
            result[source] = (
                f"error grew by {grown:.2f} points, from {old['mape']:.2f} % to {new['mape']:.2f} %"
            )
        elif lost > reasons.get((source, "n"), 0):
            result[source] = f"{lost} of {old['n']} rows are no longer predicted"
    return result


def renewed(
    before: Mapping[str, Score], now: Mapping[str, Score], refused: Mapping[str, str]
) -> dict[str, Score]:
    """Return the new scores, but the old ones of refused sources."""
    return dict(sorted({**now, **{source: before[source] for source in refused}}.items()))


def read(path: Path = FILE) -> dict[str, Score]:
    """Read the stored scores; empty without a file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def main() -> None:
    """Write scores and pages."""
    normalise.write()
    before, now = read(), scores(validate(), validate(LATER))
    refused = worse(before, now, explained())
    lines = (
        f"  {json.dumps(source)}: {json.dumps(score)}"
        for source, score in renewed(before, now, refused).items()
    )
    with atomic_output(FILE) as unfinished:
        unfinished.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    subprocess.run([sys.executable, str(ROOT / "tools" / "docs" / "generate.py")], check=True)
    print((ROOT / "docs" / "scoreboard.md").read_text(encoding="utf-8"))
    missed = [item for item in verdicts() if not item.met]
    for item in missed:
        print(f"missed: {item.rows}: {item.reached} % instead of {item.goal} %; {item.why}")
    if refused:
        reasons = "\n".join(f"  {source}: {how}" for source, how in refused.items())
        raise SystemExit(f"not explained in changelog.d/ (see {Path(__file__).name}):\n{reasons}")
    if missed and "--renew" not in sys.argv[1:]:
        raise SystemExit(f"{len(missed)} goals of goals.yaml are missed (docs/scoreboard.md)")


if __name__ == "__main__":
    main()
