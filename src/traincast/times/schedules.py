"""Pipeline schedules: bubble, micro-batches in flight and traffic between stages (arXiv 2410.00273, one training step).

The schedule is 1F1B: a stage alternates one forward with one backward pass. Arguments may be columns over plans.
"""

import numpy as np

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.hardware import System
from traincast.times.collectives import point_to_point, several


def bubble(busy: Column, pp: Column, microbatches: Column) -> Column:
    """Idle time of a stage while the pipeline fills and drains (arXiv 2410.00273, one training step: bubble).

    Parameters
    ----------
    busy : Column
        Time a stage works in a step, traffic between stages included [s].
    pp : Column
        Stages.
    microbatches : Column
        Micro-batches of a replica, nm.

    Returns
    -------
    Column
        pp - 1 micro-batches of busy/nm each [s].
    """
    return (pp - 1) * busy / microbatches


def in_flight(pp: Column, microbatches: Column) -> Column:
    """Micro-batches whose activations the first stage holds at once (arXiv 2410.00273, one training step: memory).

    Parameters
    ----------
    pp, microbatches : Column
        Stages, and micro-batches of a replica, nm.

    Returns
    -------
    Column
        min(pp, nm).
    """
    return np.minimum(pp, microbatches)


def transfers(message: Column, pp: Column, fast_pp: Column, microbatches: Column, system: System, assumed: Assumptions) -> Column:
    """Time of activations and gradients passed between stages (arXiv 2410.00273, one training step: pipeline).

    Of the pp - 1 links, floor(pp/fast_pp) - 1 cross fast domains. Each micro-batch pays the average link, forward and backward.

    Parameters
    ----------
    message : Column
        Activation of one micro-batch [byte].
    pp, fast_pp : Column
        Stages, and those in one fast domain.
    microbatches : Column
        Micro-batches of a replica, nm.
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
    return 2 * microbatches * links / np.maximum(pp - 1, 1)  # 2: forward and backward
