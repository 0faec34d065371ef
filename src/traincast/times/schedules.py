"""Pipeline schedules: bubble, micro-batches in flight and traffic between stages. Here 1F1B (arXiv 2410.00273)."""

import numpy as np

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.hardware import System
from traincast.times.collectives import point_to_point, several


def bubble(busy: Column, pp: Column, microbatches: Column) -> Column:
    """Idle time of a stage while the pipeline fills and drains [s]: pp - 1 micro-batches of `busy`/microbatches each."""
    return (pp - 1) * busy / microbatches


def in_flight(pp: Column, microbatches: Column) -> Column:
    """Micro-batches whose activations the first stage holds at once."""
    return np.minimum(pp, microbatches)


def transfers(message: Column, pp: Column, fast_pp: Column, microbatches: Column, system: System, assumed: Assumptions) -> Column:
    """Time of activations and gradients passed between stages [s].

    Of the pp - 1 links, floor(pp/fast_pp) - 1 cross fast domains; each micro-batch pays the average link, forward and backward.
    """
    slow, fast = point_to_point(message, system.slow), point_to_point(message, system.fast)
    crossing = pp // fast_pp - 1
    priced = 1 - (1 - assumed.slow_pipeline_links) * several(fast_pp)  # erratum 2: the published model left some out
    links = crossing * slow * priced + (pp - 1 - crossing) * fast
    return 2 * microbatches * links / np.maximum(pp - 1, 1)
