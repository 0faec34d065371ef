"""Which machine to build or buy for the page's job: machines around the one that it shows."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from traincast.planner import Designs, Progress, find_machines_around
from traincast.ui.explorer.question import check_state, read_state

MOST_LISTED: Final = 10  # machines of the front


def design(request: Mapping[str, object], progress: Progress) -> dict[str, Any]:
    """Return machines around the page's with time and cost of its run, the front, and the answer in words."""
    case = check_state(read_state(request))
    found = find_machines_around(case.question, progress)
    (run,) = found.question.workload
    front = found.front_rows[:MOST_LISTED]
    return {
        "tokens": run.tokens,
        "sentences": found.sentences(),
        "front": [
            _point(found, row) | _figures(found, row) | {"plan": str(plans[0])}
            for row, plans in zip(front, found.plans(front), strict=True)
        ],
        "machines": [_point(found, int(row)) for row in np.flatnonzero(found.feasible)],
    }


def _point(found: Designs, row: int) -> dict[str, object]:
    """Return a machine as the chart draws it."""
    kind = "cheapest" if row == found.cheapest else "machine"
    if not found.designed[row]:
        kind = "page"
    return {"days": float(found.hours[row] / 24), "cost": float(found.cost[row]), "kind": kind}


def _figures(found: Designs, row: int) -> dict[str, Any]:
    """Return what the table of the front shows besides."""
    energy = float(found.energy[row])
    regret = float(found.regret[row])
    return {"name": found.name(row), "energy_kwh": energy, "regret": regret}
