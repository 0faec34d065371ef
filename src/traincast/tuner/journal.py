"""Journal of a tuner: a line of JSON for the question, then one for each trial begun and each result."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from traincast.core import InputError, atomic_output


class Journal:
    """Events of a tuner on disk, each there before the call that caused it returns.

    The file of `path` is continued where it exists; without one no journal is kept. `question` says what is
    tuned: a journal of another question is refused.
    """

    def __init__(self, path: Path | None, question: Mapping[str, object]):
        self.path = path
        self.events = list[dict[str, object]]()
        self.torn = False  # whether a crash cut off the last line
        if path is None:
            return
        if path.is_file() and (lines := path.read_text(encoding="utf-8").splitlines()):
            self._read_lines(path, lines, json.loads(json.dumps(dict(question))))
        else:
            self._append({"question": dict(question)})

    def _read_lines(self, path: Path, lines: list[str], question: Mapping[str, object]) -> None:
        events: list[dict[str, object]] = []
        for number, line in enumerate(lines, 1):
            try:
                events.append(dict(json.loads(line)))
            except (ValueError, TypeError):
                if number < len(lines):
                    raise InputError(str(path), [f"line {number}: is no event of a journal"]) from None
                self.torn = True
        known = events[0].get("question") if events else None
        if not isinstance(known, dict):
            raise InputError(str(path), ["is no journal of traincast tune"])
        names = dict.fromkeys((*known, *question))
        other = [name for name in names if known.get(name) != question.get(name)]
        if other and len(events) > 1:
            differing = [f"{name} = {known.get(name)!r}, not {question.get(name)!r}" for name in other]
            hint = "give another folder (--output), or the same options"
            raise InputError(str(path), [f"is a journal with other options: {'; '.join(differing)}; {hint}"])
        if other:  # of which nothing was tried
            events = [{"question": dict(question)}]
        self.events = events[1:]
        if self.torn or other:  # a torn line is left out, so that the next event begins one
            kept = "".join(f"{json.dumps(event)}\n" for event in events)
            with atomic_output(path) as partial:
                partial.write_text(kept, encoding="utf-8")

    def add(self, **event: object) -> None:
        """Write an event."""
        self.events.append(event)
        self._append(event)

    def _append(self, event: Mapping[str, object]) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
