"""The studies of arXiv 2410.00273, and its figures."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import as_file, files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from traincast.accuracy import CollectiveRow, collective_seconds
from traincast.accuracy import read_measurements as measured_on
from traincast.catalog import load_model, load_system, resolve, with_fitted_values
from traincast.core import CALIBRATED, PAPER, Assumptions, Plan
from traincast.planner import PUBLISHED_SEARCHES, Axis, Question, Study, define_study, run_study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SYSTEM: Final = "b200-nvs8"  # of the studies of one machine
GPT, VIT = PUBLISHED_SEARCHES.models.values()
GENERATIONS: Final = ("a100-nvs8", "h200-nvs8", "b200-nvs8", "b200-next-nvs8")  # of studies 4 and 5
HBM: Final = ("accelerator.hbm_bytes", "accelerator.hbm_bandwidth")
RATES: Final = ("accelerator.matrix_flops", "accelerator.vector_flops")
OPTIMA_CASES: Final = ((GPT, "1d"), (GPT, "summa"), (VIT, "summa"), (VIT, "context"))
DESIGN_PLANS: Final = {  # study 3: what the plans tried have in common
    GPT: (Plan(tp=8), Plan(tp=4, tp2=2, panels=8, tp_kind="summa")),
    VIT: (Plan(tp=4, cp=4, cp_kind="all-gather"), Plan(tp=4, tp2=4, panels=8, tp_kind="summa")),
}
IDEAL: Final = (1.0, 4.0, 12.0)  # guides of the paper's notebook, times the A100
THEORY_SYSTEM: Final = "a100-nvs4"  # whose figures the paper's notebook takes for Perlmutter
FIGURES: Final = 14  # that `paper_figures` yields
# GPUs of studies 4 and 5, and of study 3
CONTOUR_GPUS = 8192
DESIGN_GPUS = 16384


def paper_studies() -> dict[str, Study]:
    """Return studies 1, 4 and 5 of the paper by name; 2 is a part of 1, and 3 is not a search."""
    capacity = np.linspace(80e9, 1000e9, 32)
    bandwidth = np.linspace(500e9, 16000e9, 28)
    systems = [
        f"{name}-nvs{domain}"
        for name in PUBLISHED_SEARCHES.accelerators
        for domain in PUBLISHED_SEARCHES.domains
    ]
    sweeps: dict[str, tuple[Axis, ...]] = {
        "capacity-bandwidth": ({HBM[0]: capacity.tolist()}, {HBM[1]: bandwidth.tolist()}),
        "flops-capacity": (between_generations(HBM, 4), between_generations(RATES, 8)),
    }
    question = Question(gpus=PUBLISHED_SEARCHES.gpus, top=1)
    published = replace(question, assumptions=PUBLISHED_SEARCHES.assumptions)
    of_1d = replace(question, strategy=["1d"])
    batch = PUBLISHED_SEARCHES.global_batch
    models = list(PUBLISHED_SEARCHES.models.values())
    found = [
        define_study(models, systems, question, batches=batch, name="strong-scaling"),
        define_study([GPT, VIT], [SYSTEM], published, batches=batch, name="optima-published"),
    ]
    found += [
        define_study([GPT], [SYSTEM], of_1d, batches=batch, vary=vary, name=name)
        for name, vary in sweeps.items()
    ]
    return {study.name: study for study in found}


def between_generations(paths: tuple[str, ...], points: int) -> Axis:
    """Return fields that vary together between generations, `points` on each leg, its ends included."""
    figures = [load_system(name).figures() for name in GENERATIONS]
    axis = {}
    for path in paths:
        legs = [np.linspace(float(a[path]), float(b[path]), points) for a, b in pairwise(figures)]
        axis[path] = [legs[0][0], *(value for leg in legs for value in leg[1:])]
    return axis


def paper_figures() -> Iterator[tuple[str, "Figure"]]:
    """Yield every figure of the paper and its notebooks, with a name for its file."""
    from traincast.ui import figures as plots

    frames = {name: run_study(study).frame for name, study in paper_studies().items()}
    scaling = frames["strong-scaling"]
    yield "1-strong-scaling-days", plots.strong_scaling(scaling, ideal=IDEAL)
    yield "1-strong-scaling-throughput", plots.strong_scaling(scaling, "throughput", IDEAL)
    yield "1-speed-up-over-1d", plots.speedup(scaling)
    for model, strategy in OPTIMA_CASES:
        names = {"as published": frames["optima-published"], "errata corrected": scaling}
        chosen: dict[str, object] = {"model": model, "system": SYSTEM, "strategy": strategy}
        rows = {name: frame.filter(**chosen) for name, frame in names.items()}
        yield f"2-optima-{model}-{strategy}", plots.optima(rows)
    machine = load_system(SYSTEM)
    for model, plans in DESIGN_PLANS.items():
        for plan in plans:
            stem = f"3-design-space-{model}-{plan.strategy}"
            yield (
                stem,
                plots.design_space(
                    load_model(model), machine, DESIGN_GPUS, PUBLISHED_SEARCHES.global_batch, plan
                ),
            )
    marks = [load_system(name) for name in GENERATIONS]
    yield "4-capacity-bandwidth", plots.contour(frames["capacity-bandwidth"], *HBM, CONTOUR_GPUS, marks=marks)
    fields = (RATES[0], HBM[0])
    yield "5-flops-capacity", plots.contour(frames["flops-capacity"], *fields, CONTOUR_GPUS, marks=marks)
    yield "6-collectives", collectives_figure(timed_collectives(), "perlmutter", CALIBRATED)


def timed_collectives() -> tuple[CollectiveRow, ...]:
    """Return the collectives that the paper's code has timings of: two groups of 32 GPUs of Perlmutter."""
    source = files("traincast").joinpath(f"catalog/published/{PUBLISHED_SEARCHES.arxiv}-collectives.csv")
    with as_file(source) as bundled:
        return measured_on(THEORY_SYSTEM, nccl=(bundled,)).collectives


def collectives_figure(
    timings: Sequence[CollectiveRow], system: str | Path, assumptions: str | Assumptions
) -> "Figure":
    """Draw timed collectives with what assumptions predict on a system, and with the paper's theory of it."""
    from traincast.ui import figures as plots
    from traincast.ui.figures import style

    machine = load_system(system)
    assumed = resolve(assumptions)
    theory = load_system(THEORY_SYSTEM) if machine.name == "perlmutter" else machine
    if theory is not machine:  # its fast domain is a mesh: few of its members use as few of its links
        theory = replace(theory, tiers=(replace(theory.tiers[0], mesh=True), *theory.tiers[1:]))
    theories = {"theory of arXiv 2410.00273": collective_seconds(theory, PAPER, timings)}
    if assumed.name != PAPER.name:
        named = f"{assumed.name} on {machine.name}"
        theories[named] = collective_seconds(machine, with_fitted_values(machine, assumed), timings)
    title = f"Collectives measured on {machine.name}, and predicted; theory: {style.variant(PAPER.name)}"
    return plots.collectives(timings, theories, title)
