"""Which machine to build or buy for the page's job: machines around the one that it shows."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from traincast.core import InputError
from traincast.planner import (
    SIZE,
    DesignQuestion,
    Designs,
    Limits,
    MachineFamily,
    Progress,
    Runs,
    TrainingRun,
    as_used,
    find_designs,
    fits_in,
    load_prices,
)
from traincast.ui.explorer.question import check_state, read_state

VARIED: Final = {  # figure -> what of that of the page's machine
    "accelerator.matrix_flops": (1.0, 2.0),
    "accelerator.hbm_bytes": (0.5, 1.0, 2.0),
    "accelerator.hbm_bandwidth": (0.5, 1.0, 2.0),
}
DOMAINS: Final = (1, 2, 8)  # times the size of its fast domain, as far as the tier around it allows
USUAL_TOKENS: Final = 1e12  # of a run, where neither the page nor the model says
MOST_LISTED: Final = 10  # machines of the front


def design(request: Mapping[str, object], progress: Progress) -> dict[str, Any]:
    """Return machines around the page's with time and cost of its run, the front, and the answer in words."""
    case = check_state(read_state(request))
    asked = case.question
    model = case.model
    base = as_used(case.system, asked.gpus)
    tokens = model.training_tokens or USUAL_TOKENS
    if base.fast.axes > 1:
        problem = f"{base.name}: its fast domain is a torus, whose size is not varied here"
        raise InputError("design", [problem])
    space = asked.framework.name, asked.framework.strategies
    figures = base.figures()
    outer = base.tiers[1].size
    vary = {
        path: tuple(float(figures[path]) * factor for factor in factors) for path, factors in VARIED.items()
    }
    size = float(base.fast.size or 1)
    vary[SIZE] = tuple(size * times for times in DOMAINS if times == 1 or fits_in(outer, size * times))
    question = DesignQuestion(
        name=f"{model.name} on {asked.gpus[0]:,} GPUs",
        workload=(TrainingRun(model, asked.gbs, tokens, 1, 1, 1, *space, asked.locks),),
        gpus=(asked.gpus[0],),
        families=(MachineFamily("machine", base, vary=vary), MachineFamily(base.name, base)),
        prices=load_prices(),
        limits=Limits(),
        assumptions=asked.assumptions,
    )
    found = find_designs(question, Runs(progress=progress))
    front = found.front_rows[:MOST_LISTED]
    return {
        "tokens": tokens,
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
