"""Timing of a repeated call: each sample has as many calls as the clock needs."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

MIN_SAMPLE_SECONDS: Final = {"cpu": 50e-6, "cuda": 500e-6}  # of calls on one rank
MIN_COLLECTIVE_SAMPLE_SECONDS: Final = 5e-3  # longer than a time slice of the scheduler
MIN_SAMPLES, MAX_SAMPLES = 3, 60  # of one visit
Call = Callable[[], Any]


def sample_counts(call_seconds: float, seconds: float, shortest: float) -> tuple[int, int]:
    """Return the number of samples, and of calls in each, that fit in a time.

    Parameters
    ----------
    call_seconds : float
        Time of a call [s].
    seconds : float
        Time available [s].
    shortest : float
        Minimum time of a sample [s].

    Returns
    -------
    tuple of int
        Samples and calls.
    """
    calls = max(1, round(shortest / max(call_seconds, 1e-9)))
    return min(max(int(seconds / (calls * max(call_seconds, 1e-9))), MIN_SAMPLES), MAX_SAMPLES), calls


def time_call(call: Call, samples: int, calls: int, torch: Any, device: str) -> list[float]:
    """Return the time per call of each sample: host time on a CPU, device time on a GPU [s]."""
    if device == "cuda":
        return _time_with_events(call, samples, calls, torch)
    seconds = []
    for _ in range(samples):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        seconds.append((time.perf_counter() - start) / calls)
    return seconds


def _time_with_events(call: Call, samples: int, calls: int, torch: Any) -> list[float]:
    """Return the time per call of each sample, from CUDA events [s]."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(samples + 1)]
    torch.cuda.synchronize()
    events[0].record()
    for event in events[1:]:
        for _ in range(calls):
            call()
        event.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1e-3 / calls for start, end in pairwise(events)]
