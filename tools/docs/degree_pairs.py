"""Figure of docs/degree_pairs.md: the parts of a step where one degree takes the place of another."""

from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from traincast.core.plan import Plan
from traincast.step.estimates import Estimate, estimate
from traincast.ui.figures import style

MODEL: Final = "gpt-6.7b"
SYSTEMS: Final = ("polaris", "tg40")
GPUS: Final = 32
GLOBAL_BATCH: Final = 64  # [sequences]
PAIRS: Final = {"P0": ("pp", "dp"), "P1": ("tp", "dp"), "P2": ("tp", "pp")}
DEGREES: Final = (1, 2, 4, 8, 16, 32)  # of the first of a pair; the second is what is left of the GPUs
SHOWN: Final = ("compute", "exposed_memory", "tp_comm", "dp_comm", "pp_comm", "bubble", "host")
LONGEST: Final = 4.0  # drawn [s]; a longer step is cut, and its time written


def step_of(system: str, pair: str, degree: int) -> Estimate:
    """Return the step with a degree of the first of a pair, the other GPUs in the second."""
    first, second = PAIRS[pair]
    plan = Plan(**{first: degree, second: GPUS // degree})
    return estimate(MODEL, system, plan, gbs=GLOBAL_BATCH, assumptions="calibrated")


@style.apply_style
def degree_pairs() -> Figure:
    """Draw the parts of a step for every pair of degrees, a row of panels for each machine."""
    figure, axes = style.panel_grid(len(SYSTEMS), len(PAIRS))
    for row, system in zip(axes, SYSTEMS, strict=True):
        for ax, (pair, (first, second)) in zip(row, PAIRS.items(), strict=True):
            steps = [step_of(system, pair, degree) for degree in DEGREES]
            parts = {name: np.array([float(est.breakdown.get(name, 0.0)) for est in steps]) for name in SHOWN}
            style.stacked_bars(ax, parts, 0.75, style.component_style)
            for place, est in enumerate(steps):
                if est.step_seconds > LONGEST:
                    _write(ax, place, f"{est.step_seconds:.0f} s")
                elif not est.fits:
                    _write(ax, place, "does not fit")
            labels = [f"{degree} × {GPUS // degree}" for degree in DEGREES]
            ax.set_xticks(range(len(DEGREES)), labels)
            ax.tick_params(axis="x", rotation=45)
            title = f"{pair} on {system}"
            ax.set(title=title, xlabel=f"{first.upper()} × {second.upper()}", ylim=(0, LONGEST))
        row[0].set_ylabel("Step time [s]")
    figure.legend(handles=style.component_legend(SHOWN), loc="outside lower center", ncols=4)
    return figure


def _write(ax: Any, place: int, text: str) -> None:
    ax.annotate(
        text, (place, 0.97 * LONGEST), ha="center", va="top", rotation=90, fontsize=6,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )  # fmt: skip
