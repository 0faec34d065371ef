"""Pipeline schedules: bubble, micro-batches in flight and traffic between stages (arXiv 2410.00273, one training step).

The schedule is 1F1B: a stage alternates one forward with one backward pass. With v virtual stages on each device it is interleaved
1F1B, in the closed form of arXiv 2104.04473 (section 2.2: bubble and traffic) and arXiv 2205.05198 (section 4: activations).
Arguments may be columns over plans.
"""

import numpy as np

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.hardware import System
from traincast.times.collectives import point_to_point, several


def bubble(busy: Column, pp: Column, microbatches: Column, v: Column) -> Column:
    """Idle time of a stage while the pipeline fills and drains (arXiv 2410.00273, one training step: bubble).

    Parameters
    ----------
    busy : Column
        Time a stage works in a step, traffic between stages included [s].
    pp : Column
        Stages.
    microbatches : Column
        Micro-batches of a replica, nm.
    v : Column
        Virtual stages of a device.

    Returns
    -------
    Column
        pp - 1 micro-batches of busy/nm each, cut by interleaving to their v-th part [s].
    """
    return (pp - 1) * busy / microbatches / v


def in_flight(pp: Column, microbatches: Column, v: Column) -> Column:
    """Micro-batches whose activations the first stage holds at once (arXiv 2410.00273, one training step: memory).

    Parameters
    ----------
    pp, microbatches, v : Column
        Stages, micro-batches of a replica, nm, and virtual stages of a device.

    Returns
    -------
    Column
        min(pp, nm); interleaved, (pp - 1)/v more of them.
    """
    return np.minimum(pp + several(v) * (pp - 1) / v, microbatches)


def transfers(
    message: Column, pp: Column, fast_pp: Column, microbatches: Column, v: Column, system: System, assumed: Assumptions
) -> Column:
    """Time of activations and gradients passed between stages (arXiv 2410.00273, one training step: pipeline).

    Of the pp - 1 links, floor(pp/fast_pp) - 1 cross fast domains. Each micro-batch pays the average link, forward and backward.

    Parameters
    ----------
    message : Column
        Activation of one micro-batch [byte].
    pp, fast_pp : Column
        Stages, and those in one fast domain.
    microbatches, v : Column
        Micro-batches of a replica, nm, and virtual stages of a device: each passes every link v times.
    system : System
        Supplies both tiers.
    assumed : Assumptions
        Whether slow links of a pipeline with several stages per fast domain are paid.

    Returns
    -------
    Column
        Time in a step; 0 for one stage [s].
    """
    slow, fast = point_to_point(message, system.slow), point_to_point(message, system.fast)
    crossing = pp // fast_pp - 1
    priced = 1 - (1 - assumed.slow_pipeline_links) * several(fast_pp)  # erratum 2: the published model left some out
    links = crossing * slow * priced + (pp - 1 - crossing) * fast
    return 2 * microbatches * v * links / np.maximum(pp - 1, 1)  # 2: forward and backward
