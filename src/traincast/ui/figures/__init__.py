"""Figures of studies, plans and searches: each function returns a matplotlib Figure, `save` writes it."""

from traincast.ui.figures.accuracy import accuracy, collectives, profiled_step
from traincast.ui.figures.design_space import design_space
from traincast.ui.figures.limits import utilisation_by_cluster, utilisation_by_compute
from traincast.ui.figures.plan import (
    memory_timeline,
    memory_waterfall,
    pareto,
    roofline,
    stage_memory,
    time_waterfall,
    tornado,
)
from traincast.ui.figures.scaling import (
    iteration_by_gpus,
    iteration_by_model,
    memory_by_batch,
    scaling_speedup,
)
from traincast.ui.figures.study import contour, optima, speedup, strong_scaling, sweep
from traincast.ui.figures.style import save, to_svg
from traincast.ui.figures.timelines import timeline

__all__ = [
    "accuracy", "collectives", "contour", "design_space", "iteration_by_gpus", "iteration_by_model",
    "memory_by_batch", "memory_timeline", "memory_waterfall", "optima", "pareto", "profiled_step", "roofline",
    "save", "scaling_speedup", "speedup", "stage_memory", "strong_scaling", "sweep", "time_waterfall",
    "timeline", "to_svg", "tornado", "utilisation_by_cluster", "utilisation_by_compute",
]  # fmt: skip
