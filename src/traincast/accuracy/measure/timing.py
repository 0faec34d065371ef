"""Times of a call, repeated: samples of as many calls as a clock can tell apart."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

MIN_SAMPLE_SECONDS: Final = {"cpu": 50e-6, "cuda": 500e-6}  # least time of a sample [s]
MIN_COLLECTIVE_SAMPLE_SECONDS: Final = (
    5e-3  # the same of what ranks do together: longer than a scheduler lets another thread work [s]
)
FEWEST, MOST = 3, 60  # samples of one visit
Call = Callable[[], Any]


def sample_counts(once: float, seconds: float, shortest: float) -> tuple[int, int]:
    """Samples, and calls of each, that fit in some time.

    Parameters
    ----------
    once : float
        Time of a call [s].
    seconds : float
        Time there is [s].
    shortest : float
        Least time of a sample [s].

    Returns
    -------
    tuple of int
        Samples and calls.
    """
    calls = max(1, round(shortest / max(once, 1e-9)))
    return min(max(int(seconds / (calls * max(once, 1e-9))), FEWEST), MOST), calls


def time_call(call: Call, samples: int, calls: int, torch: Any, device: str) -> list[float]:
    """Times of one call, a sample each: of the host on a CPU, of the device on a GPU [s]."""
    if device == "cuda":
        return _time_with_events(call, samples, calls, torch)
    found = []
    for _ in range(samples):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - begin) / calls)
    return found


def _time_with_events(call: Call, samples: int, calls: int, torch: Any) -> list[float]:
    """The same between marks in the device's queue."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(samples + 1)]
    torch.cuda.synchronize()
    marks[0].record()
    for mark in marks[1:]:
        for _ in range(calls):
            call()
        mark.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) * 1e-3 / calls for begin, end in pairwise(marks)]
