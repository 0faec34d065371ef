"""Helpers of tests of log readers: example files, written files, and the row of a log."""

from pathlib import Path

from traincast.accuracy.logs import TrainingRows, read
from traincast.accuracy.logs.rows import TRAINING

CLUSTER = Path(__file__).parents[1] / "examples" / "my_cluster"


def example(name):
    return (CLUSTER / name).read_text(encoding="utf-8")


def written(folder, name, text):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def row(path, **given):
    """The row of a log."""
    reading = read(path, **given)
    assert isinstance(reading, TrainingRows)
    assert len(reading.rows) == 1
    assert set(reading.rows[0]) == set(TRAINING)
    return reading.rows[0]
