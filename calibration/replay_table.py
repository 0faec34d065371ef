"""Write the table that `traincast tune --replay` reads: residuals of runs in groups, from those left out."""

import csv
from importlib.resources import files
from pathlib import Path
from typing import Final

from left_out import TABLE
from traincast.accuracy.fit.residuals import bundled_runs
from traincast.core.output_files import atomic_output
from traincast.tuner.replay import PRIORS, runs_by_group

REPLAY: Final = Path(str(files("traincast"))) / "catalog" / "measured" / "replay.csv"


def write(path: Path = REPLAY) -> None:
    """Write the residuals of every bundled run in a group of plans that compete."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file) if all(row.get(name) for name in PRIORS)}
    runs = [run for run in bundled_runs() if run.id in rows and run.step_seconds]
    with atomic_output(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", *PRIORS])
        for run in (run for members in runs_by_group(runs) for run in members):
            writer.writerow([run.id, *(rows[run.id][name] for name in PRIORS)])


if __name__ == "__main__":
    write()
