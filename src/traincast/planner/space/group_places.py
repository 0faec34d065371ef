"""Members of the groups of a job that share a domain of its machine, whatever its plan."""

from typing import Final

import numpy as np

from traincast.core import System
from traincast.step import divisors

MOST_NEAR: Final = 1 << 10  # ways to place a group up to which layouts are bounded


def near_members(system: System, gpus: int) -> list[tuple[float, ...]]:
    """Return the members that a group of a job can have in a domain of each tier but the outermost.

    A placement fills the fast domains, or the part of them that the job uses, and every group its share.
    """
    found: list[tuple[int, ...]] = [(1,)]
    filled = {system.fast_domain, min(system.domain(gpus), gpus)}
    for i, tier in enumerate(system.tiers[:-1]):
        sizes = [int(n) for n in divisors(gpus) if n <= float(np.max(tier.size or 1))]
        if i == 0:
            sizes = [n for n in sizes if any(domain % n == 0 for domain in filled)]
        found = [(*inner, n) for inner in found for n in sizes if n >= inner[-1]]
    return [tuple(map(float, members[1:])) for members in found]
