"""Fits of constants to runs: planted values are found again, and what data do not determine is said."""

import numpy as np
import pytest

from traincast.calibrate import Evidence, bundled_runs, fit
from traincast.errors import InputError
from traincast.parameters import Parameter, Setting, touching_stack
from traincast.stacks import resolve

pytest.importorskip("scipy", reason="calibration is an extra")
RUNS = bundled_runs()
SOME = [run for run in RUNS if run.id.split("-")[0] in ("korth", "zb", "vtrain", "mlperf", "nemo")][::4]


def accelerator(field, prior, sigma, *of, **rest):
    return Parameter(path=f"accelerator.{field}", of=of, prior=prior, sigma=sigma, **rest)


PARAMETERS = (
    accelerator("matrix_sustained", 0.8, 0.1, "a100-sxm-80", high=1.0),
    Parameter(path="stack.collective_seconds", of=("megatron-deepspeed-2022",), prior=1e-4, sigma=0.5),
    Parameter(path="network.0.efficiency", of=("dgx-a100", "hgx-a100-hdr-4x200"), prior=0.8, sigma=0.2, high=1.0),
    Parameter(path="universal.straggling", prior=0.003, sigma=1.0),
    accelerator("matrix_sustained", 0.8, 0.1, "mi355x-288"),
)


def test_derivatives_are_those_of_one_change_at_a_time():
    evidence = Evidence(RUNS[::3], PARAMETERS)
    priors = [one.prior for one in PARAMETERS]
    base = evidence.predict(priors)
    _, slopes = evidence.residuals(np.zeros(len(PARAMETERS)))
    for i, one in enumerate(PARAMETERS):
        moved = evidence.predict([value * (1.001 if i == j else 1) for j, value in enumerate(priors)])
        expected = np.nan_to_num(np.log(moved / base) / np.log(1.001) * one.sigma)
        assert slopes[:, i] == pytest.approx(expected, abs=1e-12)
