"""Memory that Megatron-LM's own functional tests log, against that of the last stage of their pipelines.

The tests log the most that PyTorch allocated on the last rank. Most models are tiny (12 layers of width 512),
so that a fixed part of some 0.1 GiB counts (`memory.library_bytes`), which stands in what is allocated
between steps as well.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from made_once import made_once
from traincast.accuracy.runs.run import Run, readable, rows
from traincast.accuracy.validation import validate
from traincast.core.quantities import Floats
from traincast.core.units import GIB

FILE: Final = Path(__file__).with_name("measured") / "megatron_memory.csv"
LARGE: Final = GIB  # below, the fixed part decides [byte]
# flags that change memory and that no knob expresses
UNMODELLED: Final = re.compile("cuda-?graph|muon", re.IGNORECASE)


@dataclass(frozen=True)
class MemoryTest:
    """Run of a test, and the memory of its last rank: measured and predicted [byte]."""

    run: Run
    measured: float
    predicted: float
    modelled: bool  # whether it has no flag of `UNMODELLED`


@made_once
def memory_tests() -> tuple[MemoryTest, ...]:
    """Return the tests that can be read and state their plan: what is assumed is no error of memory."""
    table = {row["id"]: (row, run) for row, run in readable(rows(FILE)) if isinstance(run, Run)}
    table = {name: (row, run) for name, (row, run) in table.items() if run.states_its_plan}
    modelled = {
        name: UNMODELLED.search(f"{row['model']} {row['notes']}") is None for name, (row, _) in table.items()
    }
    return tuple(
        MemoryTest(table[row.id][1], row.measured_memory_bytes, row.predicted_memory_bytes, modelled[row.id])
        for row in validate(FILE).predictions
        if row.measured_memory_bytes and row.predicted_memory_bytes and row.id in table
    )


def mean_error(moe: bool | None = None) -> float:
    """Return the mean absolute error above 1 GiB, each test counted once for all machines and containers."""
    of_test: dict[str, list[float]] = {}
    for test in memory_tests():
        if test.measured >= LARGE and moe in (None, test.run.model.experts is not None):
            of_test.setdefault(test.run.model.name, []).append(abs(test.predicted / test.measured - 1))
    return float(np.mean([np.mean(found) for found in of_test.values()]))


def errors(moe: bool | None = None, large: bool = True, modelled: bool = False) -> Floats:
    """Return predicted over measured less 1: of dense models or those with experts, above 1 GiB or below.

    `modelled`: without tests that have a flag of `UNMODELLED`.
    """
    return np.array(
        [
            test.predicted / test.measured - 1
            for test in memory_tests()
            if (test.modelled or not modelled)
            and (test.measured >= LARGE) == large
            and moe in (None, test.run.model.experts is not None)
        ]
    )
