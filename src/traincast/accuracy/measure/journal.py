"""Journal of a measurement: it survives an interruption, so that tasks timed on the same machine are not timed again."""

import json
from pathlib import Path
from statistics import median
from typing import Any

from traincast.accuracy.measure.device_info import identity
from traincast.accuracy.measure.tables import Row
from traincast.accuracy.measure.tasks import Task


class Journal:
    """Messages of a measurement in a file: one line for the machine, then one for each timed task.

    Parameters
    ----------
    path : Path
        The file; existing lines are read up to the first incomplete one.
    """

    def __init__(self, path: Path):
        self.path = path
        self.about: dict[str, Any] = {}
        self.visits: dict[str, list[list[float]]] = {}
        self.problems: dict[str, str] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            try:
                self._apply(json.loads(line))
            except (ValueError, KeyError, TypeError):
                break

    @property
    def identity(self) -> str:
        """Identity of the machine; empty if the journal is."""
        return identity(self.about) if self.about else ""

    def append(self, message: dict[str, Any]) -> None:
        """Append a message; the message of another machine discards all rows."""
        machine = message.get("machine")
        if machine is not None and self.identity == identity(machine):
            return
        if machine is not None:
            self.visits, self.problems = {}, {}
        with self.path.open("w" if machine is not None else "a", encoding="utf-8") as file:
            file.write(json.dumps(message) + "\n")
        self._apply(message)

    def _apply(self, message: dict[str, Any]) -> None:
        """Update machine, samples and problems from a message."""
        if "machine" in message:
            self.about = dict(message["machine"])
        elif message["problem"]:
            self.problems[message["task"]] = str(message["problem"])
        else:
            self.visits.setdefault(message["task"], []).append(
                [float(sample) for sample in message["samples"]]
            )

    def rows(self) -> list[Row]:
        """Return one row per timed task: the visit with the lowest median, since other load only adds time."""
        return [
            Row(Task.of(key), tuple(min(visits, key=median)), len(visits))
            for key, visits in self.visits.items()
        ]

    def discard(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)
