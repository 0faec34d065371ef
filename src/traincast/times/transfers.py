"""Traffic between pipeline stages (arXiv 2410.00273, one training step: pipeline); arguments may be columns over plans."""

import numpy as np

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.hardware import System
from traincast.times.collectives import point_to_point, several
from traincast.times.placement import Group


def transfer(message: Column, stages: Group, system: System, assumed: Assumptions) -> Column:
    """Time of activations or gradients passed to the next stage (arXiv 2410.00273, one training step: pipeline).

    Of the pp - 1 links, floor(pp/fast_pp) - 1 cross fast domains, some of them larger domains as well; this is the average link.

    Parameters
    ----------
    message : Column
        Activation of one micro-batch [byte].
    stages : Group
        Stages, and those in one domain of each tier.
    system : System
        Supplies the tiers.
    assumed : Assumptions
        Whether slow links of a pipeline with several stages per fast domain are paid, and the library's protocols modelled.

    Returns
    -------
    Column
        Time; 0 for one stage [s].
    """
    pp, near = stages
    priced = 1 - (1 - assumed.slow_pipeline_links) * several(near[0])  # erratum 2: the published model left some out
    links = (pp - pp // near[0]) * point_to_point(message, system.fast, assumed, inner=True)
    for tier, within, beyond in zip(system.tiers[1:], near, (*near[1:], pp), strict=True):
        links = links + (pp // within - pp // beyond) * point_to_point(message, tier, assumed) * priced
    return links / np.maximum(pp - 1, 1)
