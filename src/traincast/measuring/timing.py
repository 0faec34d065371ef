"""Times of a call, repeated: warm-up, then samples of as many calls as a clock can tell apart."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

SAMPLE: Final = {"cpu": 50e-6, "cuda": 500e-6}  # least time of a sample [s]
FEWEST, MOST = 3, 60  # samples of one visit
Call = Callable[[], Any]


def counts(once: float, slice_seconds: float, device: str) -> tuple[int, int]:
    """Samples, and calls of each, that fit in a slice of time.

    Parameters
    ----------
    once : float
        Time of a call [s].
    slice_seconds : float
        Time there is [s].
    device : {"cpu", "cuda"}
        Where the call works.

    Returns
    -------
    tuple of int
        Samples and calls.
    """
    calls = max(1, round(SAMPLE[device] / max(once, 1e-9)))
    return int(np.clip(slice_seconds / (calls * max(once, 1e-9)), FEWEST, MOST)), calls


def sampled(call: Call, samples: int, calls: int, torch: Any, device: str) -> list[float]:
    """Times of one call, a sample each [s]."""
    if device == "cuda":
        return _on_gpu(call, samples, calls, torch)
    found = []
    for _ in range(samples):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - begin) / calls)
    return found


def _on_gpu(call: Call, samples: int, calls: int, torch: Any) -> list[float]:
    """The same by events on the device."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(samples + 1)]
    torch.cuda.synchronize()
    marks[0].record()
    for mark in marks[1:]:
        for _ in range(calls):
            call()
        mark.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) * 1e-3 / calls for begin, end in zip(marks, marks[1:], strict=False)]


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    low, middle, high = np.percentile(np.asarray(samples, float), (25, 50, 75))
    return float(low), float(middle), float(high)
