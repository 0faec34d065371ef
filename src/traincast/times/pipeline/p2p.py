"""Transfers between pipeline stages; arguments may be columns over plans."""

from collections.abc import Callable

from traincast.core import STRATEGIES, Assumptions, Column, System, maximum, minimum
from traincast.operations import total
from traincast.times.collectives import collective, message_across, point_to_point
from traincast.times.process_groups import Group, Placement, domains, is_group


def transfer(message: Column, stages: Group, system: System, assumed: Assumptions) -> Column:
    """Return the time to send activations or gradients to the next stage (arXiv 2410.00273, pipeline) [s].

    Of the pp - 1 links, floor(pp/fast_pp) - 1 cross fast domains, some of them larger domains as well; the
    mean link counts.

    `message`: activation of one micro-batch [byte]; 0 for one stage.
    """
    links = _links(message, stages, system, assumed)
    return total(count * seconds for count, seconds in links) / maximum(stages.members - 1, 1)


def slowest_stage_link(message: Column, stages: Group, system: System, assumed: Assumptions) -> Column:
    """Return the mean time of the slowest stage's two links, which paces the pipeline [s]."""
    (inner, within), *outer = _links(message, stages, system, assumed)
    slowest: Column = within * minimum(inner, 1)
    for count, seconds in outer:
        slowest = maximum(slowest, seconds * minimum(count, 1))
    # 1 if the stage on its other side is in the same domain, else 0
    has_near_neighbour = is_group(stages.near[0])
    return (
        ((1 + (1 - has_near_neighbour)) * slowest + has_near_neighbour * within)
        / 2
        * is_group(stages.members)
    )


def _links(
    message: Column, stages: Group, system: System, assumed: Assumptions
) -> list[tuple[Column, Column]]:
    """Return the number of links across each tier, the innermost first, and the time of each [s]."""
    pp, near = stages
    # erratum 2: the published model left some out
    counted = 1 - (1 - assumed.collectives.slow_pipeline_links) * is_group(near[0])
    links = [(pp - domains(pp, near[0]), point_to_point(message, system.fast, assumed, inner=True))]
    for i, (within, beyond) in enumerate(zip(near, (*near[1:], pp), strict=True), start=1):
        seconds = message_across(message, i, near[0], system, assumed)
        links.append((domains(pp, within) - domains(pp, beyond), seconds * counted))
    return links


def stage_transfer(
    message: Column,
    placement: Placement,
    system: System,
    assumed: Assumptions,
    of: Callable[..., Column] = transfer,
) -> Column:
    """Return the time of a transfer, by each tensor rank or scattered (arXiv 2104.04473, section 4.1) [s].

    `message`: activation of one micro-batch on a rank [byte]; 0 for one stage.
    """
    plan = placement.plan
    stages = placement.group("pp")
    direct = of(message, stages, system, assumed)
    if not assumed.collectives.transfers_scattered or plan.sp or STRATEGIES[plan.strategy].second:
        return direct
    gather = collective("all-gather", message, placement.group("tp"), system, assumed)
    scattered = of(message / plan.tp, stages, system, assumed) + gather * is_group(plan.pp)
    return direct + assumed.collectives.transfers_scattered * (minimum(scattered, direct) - direct)
