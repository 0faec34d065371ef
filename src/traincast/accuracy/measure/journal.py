"""Rows as they come in, in a file that outlives an interruption: what was timed on the same machine is not timed again."""

import json
from pathlib import Path
from statistics import median
from typing import Any

from traincast.accuracy.measure.device_info import identity
from traincast.accuracy.measure.tables import Row
from traincast.accuracy.measure.tasks import Task


class Journal:
    """Messages of a measurement, in a file: a line for the machine, then one for each task that was timed.

    Parameters
    ----------
    path : Path
        The file; what it holds is read, a line that was cut off left out.
    """

    def __init__(self, path: Path):
        self.path = path
        self.about: dict[str, Any] = {}
        self.visits: dict[str, list[list[float]]] = {}
        self.problems: dict[str, str] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            try:
                self._read(json.loads(line))
            except (ValueError, KeyError, TypeError):
                break

    @property
    def identity(self) -> str:
        """The machine of the rows; empty where there are none."""
        return identity(self.about) if self.about else ""

    def take(self, message: dict[str, Any]) -> None:
        """Keep what a message says; rows of another machine are forgotten."""
        machine = message.get("machine")
        if machine is not None and self.identity == identity(machine):
            return
        if machine is not None:
            self.visits, self.problems = {}, {}
        with self.path.open("w" if machine is not None else "a", encoding="utf-8") as file:
            file.write(json.dumps(message) + "\n")
        self._read(message)

    def _read(self, message: dict[str, Any]) -> None:
        """Take in a message."""
        if "machine" in message:
            self.about = dict(message["machine"])
        elif message["problem"]:
            self.problems[message["task"]] = str(message["problem"])
        else:
            self.visits.setdefault(message["task"], []).append([float(one) for one in message["samples"]])

    def rows(self) -> list[Row]:
        """What was timed: of the visits to each task the one whose median is least, for the machine's other work only adds."""
        return [Row(Task.of(key), tuple(min(visits, key=median)), len(visits)) for key, visits in self.visits.items()]

    def discard(self) -> None:
        """Remove the file, once its rows are written elsewhere."""
        self.path.unlink(missing_ok=True)
