"""What figures of an estimate are to a type checker: `make lint` runs mypy over it."""

import numpy as np
from numpy.typing import NDArray

import traincast as tc

est = tc.estimate("gpt3-1t", "h200-nvs8", tc.Plan(tp=8, pp=16, dp=16), gbs=4096)
seconds: float = est.step_seconds
share: float = est.breakdown["bubble"] / seconds
fits: bool = est.fits
several = tc.estimate("gpt3-1t", "h200-nvs8", est.plan.columns(), gbs=4096)
columns: NDArray[np.float64] = several.memory_bytes
