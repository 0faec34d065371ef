"""Ring collectives and point-to-point messages on two tiers of network (arXiv 2410.00273).

A group has n members, g of them in each fast domain, so it spans n // g domains. Whether a tier is crossed is a factor of 0 or 1,
so a tier that is not crossed costs nothing, and neither does a group of one.
"""

import numpy as np

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.hardware import System, Tier
from traincast.operations.base import CollectiveKind


def effective(tier: Tier) -> Column:
    """Bandwidth of one port that collectives achieve [byte/s]."""
    return tier.bandwidth * tier.efficiency


def several(members: Column) -> Column:
    """1 where there are several members, 0 where there is one."""
    return np.minimum(members - 1, 1)


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
        Supplies both tiers.
    assumed : Assumptions
        How often an all-reduce passes inside one domain.
    """
    fast, slow = system.fast, system.slow
    nodes = n // g
    between, inside = several(nodes), several(g)  # tiers crossed
    a: Column = 1.0
    if kind == "all-reduce":
        one_tier = assumed.all_reduce_passes_in_domain  # erratum 3: the published model passed once
        a = one_tier + (2.0 - one_tier) * between * inside
    c = several(n) if kind in ("broadcast", "reduce") else (n - 1) / n
    ports = 1 + (slow.ports * g - 1) * inside  # a member alone in its domain uses one port, several use the ports of all
    per_byte = np.maximum(between / (ports * effective(slow)), inside / effective(fast))
    hops = slow.latency * (nodes - 1) + fast.latency * (n - nodes)
    return a * c * V * per_byte + hops * np.sign(V)


def point_to_point(V: Column, tier: Tier) -> Column:
    """Time of one message of V bytes over one port [s]."""
    return tier.latency + V / effective(tier)
