"""What runs that no constant is fitted to say of accelerators of another generation."""

from dataclasses import replace

import numpy as np
import pytest

from traincast.step.uncertainty import errors, interval
from unfitted_runs import generation_drift, predicted, unfitted_runs


def test_accelerators_without_runs_have_the_interval_that_their_runs_need():
    """Gaudi 2 and MI325X (Intel's and AMD's pages): 90 % lie within, and with less the MI325X does not."""
    known = errors()
    # the file has other errors to four digits, of which this one follows
    assert known.drifts["new_generation"] == pytest.approx(generation_drift(known), abs=2e-4)

    def inside(drift):
        """Return the share of the runs within their intervals."""
        given = replace(known, drifts={**known.drifts, "new_generation": drift})
        within = []
        for run in unfitted_runs():
            est = predicted(run)
            low, high = interval(est.step_seconds, est.case, given)
            within.append(low <= run.step_seconds <= high)
        return np.mean(within)

    assert inside(generation_drift(known)) >= 0.9 > inside(0.083)
