"""Traffic between pipeline stages (arXiv 2410.00273, one training step: pipeline); arguments may be columns over plans."""

import numpy as np

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.hardware import System
from traincast.times.collectives import point_to_point, several


def transfer(message: Column, pp: Column, fast_pp: Column, system: System, assumed: Assumptions) -> Column:
    """Time of activations or gradients passed to the next stage (arXiv 2410.00273, one training step: pipeline).

    Of the pp - 1 links, floor(pp/fast_pp) - 1 cross fast domains; this is the average link.

    Parameters
    ----------
    message : Column
        Activation of one micro-batch [byte].
    pp, fast_pp : Column
        Stages, and those in one fast domain.
    system : System
        Supplies both tiers.
    assumed : Assumptions
        Whether slow links of a pipeline with several stages per fast domain are paid.

    Returns
    -------
    Column
        Time; 0 for one stage [s].
    """
    slow, fast = point_to_point(message, system.slow), point_to_point(message, system.fast)
    crossing = pp // fast_pp - 1
    priced = 1 - (1 - assumed.slow_pipeline_links) * several(fast_pp)  # erratum 2: the published model left some out
    links = crossing * slow * priced + (pp - 1 - crossing) * fast
    return links / np.maximum(pp - 1, 1)
