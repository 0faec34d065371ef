"""Ring collectives and point-to-point messages on two tiers of network (arXiv 2410.00273, collectives).

A group has n members, g of them in each fast domain, so it spans n // g domains. Whether a tier is crossed is a factor of 0 or 1,
so a tier that is not crossed costs nothing, and neither does a group of one.
"""

import numpy as np

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.hardware import System, Tier
from traincast.operations.base import CollectiveKind


def effective(tier: Tier) -> Column:
    """Bandwidth of one port that collectives achieve: peak times efficiency (arXiv 2410.00273, collectives).

    Parameters
    ----------
    tier : Tier
        The network.

    Returns
    -------
    Column
        Bandwidth, a number or a column over machines [byte/s].
    """
    return tier.bandwidth * tier.efficiency


def several(members: Column) -> Column:
    """Whether a group has several members, as a number.

    Parameters
    ----------
    members : Column
        Members, at least 1.

    Returns
    -------
    Column
        1 where there are several, 0 where there is one.
    """
    return np.minimum(members - 1, 1)


def collective(kind: CollectiveKind, V: Column, n: Column, g: Column, system: System, assumed: Assumptions) -> Column:
    """Time of one collective (arXiv 2410.00273, collectives).

    Parameters
    ----------
    kind : {"all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce"}
        Broadcast and reduce move V over every link, the others (n - 1)/n V; an all-reduce passes twice.
    V : Column
        The full tensor, not the shard; a column over plans [byte].
    n : Column
        Members of the group; a column over plans.
    g : Column
        Members in one fast domain; a column over plans.
    system : System
        Supplies both tiers.
    assumed : Assumptions
        How often an all-reduce passes inside one domain.

    Returns
    -------
    Column
        Data over the slower tier, and one latency per hop; 0 for a group of one [s].
    """
    fast, slow = system.fast, system.slow
    nodes = n // g
    between, inside = several(nodes), several(g)  # tiers crossed
    a: Column = 1.0
    if kind == "all-reduce":
        one_tier = assumed.all_reduce_passes_in_domain  # erratum 3: the published model passed once
        a = one_tier + (2.0 - one_tier) * between * inside  # 2 passes over two tiers: reduce-scatter, then all-gather
    c = several(n) if kind in ("broadcast", "reduce") else (n - 1) / n
    ports = 1 + (slow.ports * g - 1) * inside  # a member alone in its domain uses one port, several use the ports of all
    per_byte = np.maximum(between / (ports * effective(slow)), inside / effective(fast))
    hops = slow.latency * (nodes - 1) + fast.latency * (n - nodes)  # the ring has n - 1 of them
    return a * c * V * per_byte + hops * np.sign(V)  # nothing to send costs nothing


def point_to_point(V: Column, tier: Tier) -> Column:
    """Time of one message over one port (arXiv 2410.00273, point to point).

    Parameters
    ----------
    V : Column
        The message; a column over plans [byte].
    tier : Tier
        The network it crosses.

    Returns
    -------
    Column
        Latency and V over the effective bandwidth [s].
    """
    return tier.latency + V / effective(tier)
