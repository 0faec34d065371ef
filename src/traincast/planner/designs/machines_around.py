"""Machines around the one of a search: faster matrix units, other memory, larger fast domains."""

from typing import Final

from traincast.core import InputError
from traincast.planner.designs.designs import SIZE, Designs, fits_in
from traincast.planner.designs.machines import (
    DesignQuestion,
    Limits,
    MachineFamily,
    Runs,
    TrainingRun,
    as_used,
)
from traincast.planner.designs.part_prices import load_prices
from traincast.planner.designs.refinement import find_designs
from traincast.planner.searches import SearchRequest
from traincast.planner.space.search_space import Progress

VARIED: Final = {  # figure -> what of that of the machine
    "accelerator.matrix_flops": (1.0, 2.0),
    "accelerator.hbm_bytes": (0.5, 1.0, 2.0),
    "accelerator.hbm_bandwidth": (0.5, 1.0, 2.0),
}
DOMAINS: Final = (1, 2, 8)  # times the size of its fast domain, as far as the tier around it allows
USUAL_TOKENS: Final = 1e12  # of a run, where the model does not say


def find_machines_around(asked: SearchRequest, progress: Progress | None = None) -> Designs:
    """Search machines around the one of a question for one run of its model, on its first number of GPUs.

    Raises
    ------
    InputError
        If the fast domain of the machine is a torus.
    """
    model = asked.model
    base = as_used(asked.system, asked.gpus)
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
    return find_designs(question, Runs(progress=progress))
