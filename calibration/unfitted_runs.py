"""Bundled runs that no constant is fitted to, and what they tell of accelerators of another generation.

They state too little of their plan, which is then that of their framework's defaults; their accelerators are
of generations without other runs (AMD, Gaudi). So constants were never fitted to them.
"""

import math
from collections import Counter
from dataclasses import replace
from typing import Final

import numpy as np

from traincast.accuracy.fit.residuals import group_of
from traincast.accuracy.runs.run import Run, load_bundled_runs
from traincast.step.estimates import Estimate, estimate
from traincast.step.uncertainty import Errors, deviation

NOMINAL: Final = 0.9  # share of runs that intervals are to hold
DIGITS: Final = 4  # of a deviation in errors.yaml


def unfitted_runs() -> list[Run]:
    """Return the bundled runs with a step time that do not state their plan."""
    runs = (run for _, run in load_bundled_runs() if isinstance(run, Run))
    return [run for run in runs if run.step_seconds and not run.states_its_plan]


def predicted(run: Run) -> Estimate:
    """Return the estimate of a run with its own software."""
    return estimate(run.model, run.system, run.plan, gbs=run.gbs, assumptions=run.stack)


def generation_drift(known: Errors) -> float:
    """Return what an accelerator of a generation without runs adds to the deviation.

    With it 90 % of the unfitted runs lie within their intervals; configurations count alike. It is rounded up
    to the digits of the file, so that the run that decides lies within.
    """
    without = replace(known, drifts={**known.drifts, "new_generation": 0.0})
    runs = unfitted_runs()
    sizes = Counter(map(group_of, runs))
    missing = list[float]()
    weights = list[float]()
    for run in runs:
        est = predicted(run)
        distance = float(est.case.distances(known)["new_generation"])
        if not distance or not run.step_seconds:
            continue
        error = float(np.log(est.step_seconds / run.step_seconds))
        fast, slow = (known.faster_moe, known.slower_moe) if est.case.moe else (known.faster, known.slower)
        needed = abs(error) / (fast if error > 0 else slow)
        rest = float(deviation(est.case, without))
        missing.append(max(needed**2 - rest**2, 0.0) / distance**2)
        weights.append(1.0 / sizes[group_of(run)])
    needed_variance = np.quantile(missing, NOMINAL, weights=weights, method="inverted_cdf")
    return math.ceil(float(needed_variance**0.5) * 10**DIGITS) / 10**DIGITS
