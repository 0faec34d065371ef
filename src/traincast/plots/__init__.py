"""Figures of studies, plans and searches: each function returns a matplotlib Figure, `save` writes it."""

from traincast.plots.accuracy import accuracy
from traincast.plots.contours import contour
from traincast.plots.designs import design_space
from traincast.plots.limits import utilisation_by_cluster, utilisation_by_compute
from traincast.plots.plans import pareto, roofline, tornado
from traincast.plots.steps import memory_waterfall, stage_memory, time_waterfall
from traincast.plots.studies import optima, strong_scaling
from traincast.plots.style import save, to_svg
from traincast.plots.timelines import timeline

__all__ = [
    "accuracy",
    "contour",
    "design_space",
    "memory_waterfall",
    "optima",
    "pareto",
    "roofline",
    "save",
    "stage_memory",
    "strong_scaling",
    "time_waterfall",
    "timeline",
    "to_svg",
    "tornado",
    "utilisation_by_cluster",
    "utilisation_by_compute",
]
