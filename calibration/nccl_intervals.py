"""Print the 90 % intervals of the NCCL constants in calibrated.yaml.

    python calibration/nccl_intervals.py

Gauss-Newton covariance of the logarithms at the catalogue's values, fitted to nccl-tests on Perlmutter, and
robust against errors that all sizes of one collective on one group share (a sandwich over these clusters).
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from collective_benchmarks import Timing, predicted_on, read, rows
from traincast.catalog.load import load_system
from traincast.catalog.software_stacks import resolve
from traincast.core.quantities import Floats

PERLMUTTER: Final = load_system("perlmutter")
BENCHMARK: Final = resolve("calibrated").with_values({"collectives.launch_share": 1.0})
OF_TIERS: Final = tuple(
    (tier, name)
    for tier, names in enumerate(
        (
            ("launch", "simple_latency", "latency", "efficiency"),
            ("launch", "simple_latency", "latency", "efficiency", "ll_bandwidth", "lost_ports"),
        )
    )
    for name in names
)
OF_ALL: Final = ("inner_hop_share", "hops_per_fill")
NORMAL_90_PERCENT: Final = 1.645  # standard deviations


def intervals() -> dict[str, tuple[float, float, float]]:
    """Return value, low and high of every constant: "tier.figure" in SI units, or a name of `Collectives`."""
    values = {
        f"{PERLMUTTER.tiers[i].name}.{name}": getattr(PERLMUTTER.tiers[i], name) for i, name in OF_TIERS
    }
    values |= {name: getattr(BENCHMARK.collectives, name) for name in OF_ALL}
    groups: dict[str, list[Timing]] = defaultdict(list)
    for timing in map(read, rows()):
        if timing.skipped is None and timing.source.startswith("transformer-perf"):
            groups[timing.kind].append(timing)

    def log_errors(**changed: float) -> Floats:
        now = values | changed
        figures: list[dict[str, Any]] = [{}, {}]
        for (tier, name), value in zip(OF_TIERS, now.values(), strict=False):
            figures[tier][name] = value
        tiers = tuple(replace(tier, **of) for tier, of in zip(PERLMUTTER.tiers, figures, strict=True))
        assumed = BENCHMARK.with_values({f"collectives.{name}": now[name] for name in OF_ALL})
        system = replace(PERLMUTTER, tiers=tiers)
        predicted = [timing for of in groups.values() for timing in predicted_on(system, of, False, assumed)]
        return np.log1p([timing.error for timing in predicted])

    slopes = np.stack([_slope(log_errors, values, name) for name in values], axis=1)
    gradients: dict[Any, Floats] = defaultdict(lambda: np.zeros(len(values)))
    timings = (timing for of in groups.values() for timing in of)
    for timing, gradient in zip(timings, slopes * log_errors()[:, None], strict=True):
        gradients[timing.kind, timing.nodes, timing.per_node] += gradient
    shared, inverse = np.stack(list(gradients.values())), np.linalg.inv(slopes.T @ slopes)
    width = np.exp(NORMAL_90_PERCENT * np.sqrt(np.diag(inverse @ shared.T @ shared @ inverse)))
    return {
        name: (value, value / w, value * w) for (name, value), w in zip(values.items(), width, strict=True)
    }


def _slope(log_errors: Any, values: Mapping[str, float], name: str, h: float = 1e-3) -> Floats:
    """Return d log(predicted) / d log(constant) of every timing."""
    up, down = (log_errors(**{name: values[name] * (1 + sign * h)}) for sign in (1, -1))
    return np.asarray((up - down) / (2 * h))


if __name__ == "__main__":
    for constant, figures in intervals().items():
        print(f"{constant:28}", *(f"{figure:12.4g}" for figure in figures))
