"""Ring collectives and point-to-point messages on two tiers of network (arXiv 2410.00273).

A group has n members, g of them in each fast domain, so it spans n // g domains. `(x > 1)` is 1 where the condition holds and 0
elsewhere: a tier that is not crossed costs nothing, and a group of one costs nothing.
"""

import numpy as np

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.hardware import System, Tier
from traincast.operations.base import CollectiveKind


def effective(tier: Tier) -> Column:
    """Bandwidth of one port that collectives achieve [byte/s]."""
    return tier.bandwidth * tier.efficiency


def collective(kind: CollectiveKind, V: Column, n: Column, g: Column, system: System, assumed: Assumptions) -> Column:
    """Time of one collective [s].

    Parameters
    ----------
    kind : str
        Broadcast and reduce move V over every link, the others (n - 1)/n V; an all-reduce passes twice.
    V : Column
        The full tensor, not the shard [byte].
    n : Column
        Members of the group.
    g : Column
        Members in one fast domain.
    system : System
        Supplies both tiers; between domains a group uses the ports of all its g members.
    assumed : Assumptions
        How often an all-reduce passes inside one domain.
    """
    fast, slow = system.fast, system.slow
    nodes = n // g
    between, inside = nodes > 1, g > 1  # tiers crossed
    a: Column = 1.0
    if kind == "all-reduce":
        a = np.where(between & inside, 2.0, assumed.all_reduce_passes_in_domain)
    c = np.minimum(n - 1, 1) if kind in ("broadcast", "reduce") else (n - 1) / n
    per_byte = np.maximum(between / (slow.ports * g * effective(slow)), inside / effective(fast))
    hops = slow.latency * (nodes - 1) + fast.latency * (n - nodes)
    return a * c * V * per_byte + hops * (V > 0)


def point_to_point(V: Column, tier: Tier) -> Column:
    """Time of one message of V bytes over one link [s]."""
    return tier.latency + V / effective(tier)
