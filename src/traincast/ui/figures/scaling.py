"""Figures of the scaling of ZeRO (Cheng et al., SIGMETRICS 2024, doi 10.1145/3639034)."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from traincast.analysis import (
    MeasuredScaling,
    Scaling,
    ScalingRequest,
    activation_bytes,
    speedup,
    state_bytes,
)
from traincast.core import Floats, Plan
from traincast.step import estimate
from traincast.ui.figures import style

PARTS: Final = {  # of an iteration → colour and hatch
    "transformer kernels": (style.BLUE, ""),
    "other kernels": (style.SKY, "///"),
    "dispatch": (style.GREY, "xxx"),
    "communication": (style.ORANGE, "\\\\"),
}
Answer: TypeAlias = tuple[ScalingRequest, Sequence[Scaling]]
STAGE_COLOURS: Final = dict(zip((1, 2, 3), style.COLOURS, strict=False))
BATCHES: Final = tuple(1 << power for power in range(7))  # sequences of a GPU
MIN_BATCHES: Final = 3  # drawn, though nothing fits
MEMORY_SHOWN: Final = 3.0  # top of the axis of memory, times the capacity
STAGE_MARKERS: Final = {1: ("o", 8.0), 2: ("s", 5.5), 3: ("^", 3.5)}  # that are seen on one another
MODELS: Final = tuple(f"gpt-{size}" for size in ("125m", "1.3b", "2.7b", "6.7b", "13b", "18.4b"))


def figures(
    request: ScalingRequest,
    stages: Sequence[Scaling],
    others: Sequence[Answer],
    measured: Sequence[MeasuredScaling] = (),
) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of one question, with a name for each file.

    `others` are the same question of other models on the fewest GPUs, answered.
    """
    yield "iteration_by_gpus", iteration_by_gpus(request, stages)
    asked = () if any(other.model.name == request.model.name for other, _ in others) else ((request, stages),)
    yield "iteration_by_model", iteration_by_model(request, (*asked, *others))
    yield "scaling_speedup", scaling_speedup(request, stages, measured)
    yield "memory_by_batch", memory_by_batch(request, stages)


@style.apply_style
def iteration_by_gpus(request: ScalingRequest, stages: Sequence[Scaling]) -> Figure:
    """Draw the parts of an iteration against the number of GPUs, a panel for each ZeRO stage."""
    figure, axes = style.panel_grid(1, len(stages))
    for ax, stage in zip(axes[0], stages, strict=True):
        style.stacked_bars(ax, _parts(request, stage.compute, np.asarray(stage.comm)), 0.75, _look)
        ax.set_xticks(range(len(stage.gpus)), [f"{gpus:,.0f}" for gpus in stage.gpus])
        ax.set(title=f"ZeRO-{stage.zero}", xlabel=style.label("gpus"))
    axes[0][0].set_ylabel("Iteration [s]")
    return _finish_figure(figure, request)


@style.apply_style
def iteration_by_model(request: ScalingRequest, others: Sequence[Answer]) -> Figure:
    """Draw the shares of an iteration on the fewest GPUs by model, a panel for each ZeRO stage.

    Answers are of the same stages; that of a model which is none of the source's stands first.
    """
    _, stages = others[0]
    figure, axes = style.panel_grid(1, len(stages))
    for i, ax in enumerate(axes[0]):
        shares: dict[str, list[float]] = {name: [] for name in PARTS}
        for other, rows in others:
            comm = np.asarray(rows[i].comm)[:1]
            for name, part in _parts(other, rows[i].compute, comm).items():
                shares[name].append(100 * float(part[0] / (rows[i].compute + comm[0])))
        columns = {name: np.array(column) for name, column in shares.items()}
        style.stacked_bars(ax, columns, 0.75, _look)
        ax.set_xticks(range(len(others)), [other.model.name.removeprefix("gpt-") for other, _ in others])
        ax.set(title=f"ZeRO-{stages[i].zero}", xlabel=f"Model, on {min(request.gpus):,} GPUs", ylim=(0, 100))
        ax.tick_params(axis="x", rotation=45)
    axes[0][0].set_ylabel("Share of the iteration [%]")
    asked = [other.model.name for other, _ in others if other.model.name not in MODELS]
    return _finish_figure(figure, request, " and ".join((*asked, "the models of the source")))


@style.apply_style
def scaling_speedup(
    request: ScalingRequest, stages: Sequence[Scaling], measured: Sequence[MeasuredScaling] = ()
) -> Figure:
    """Draw the speed-up over that of ideal scaling: by the formula, the main estimator, and as measured."""
    figure, (ax,) = style.panels(1, style.COLUMN + 1.2, height=3.4)
    n = np.array(request.gpus, float)
    ideal = n / n[0]
    handles = []
    for stage in stages:
        share = np.asarray(stage.comm_share)[0]
        formula = ideal * np.asarray(speedup(1 - share, share, stage.network_efficiency))
        evaluated = _evaluate_speedup(request, stage.zero)
        colour = STAGE_COLOURS[stage.zero]
        ax.plot(n, formula / ideal, "-", color=colour)
        shape, size = STAGE_MARKERS[stage.zero]
        hollow: style.Look = {"marker": shape, "markersize": size, "markerfacecolor": "none"}
        ax.plot(n, evaluated / ideal, linestyle="", color=colour, **hollow)
        error = float(np.mean((formula / ideal - evaluated / ideal) ** 2))
        label = f"ZeRO-{stage.zero}, mean squared difference {style.power(error, 2)}"
        owners, buckets = request.owner_messages(max(request.gpus))
        if stage.zero == 2 and owners > buckets:
            label += f"; the source: a reduce to each of {owners:,} owners"
        handles.append(style.sample(label, color=colour, **hollow))
    for seen in measured:
        cross: style.Look = {"marker": "x", "markersize": 7.0, "color": STAGE_COLOURS[seen.zero]}
        places = [row.gpus for row in seen.iterations]
        ax.plot(places, [row.efficiency for row in seen.iterations], linestyle="", **cross)
        squared = style.power(seen.mean_squared_error, 2)
        label = f"ZeRO-{seen.zero} measured, mean squared error of the formula {squared}"
        handles.append(style.sample(label, "", **cross))
    style.log_axes(ax, "x")
    style.plain_ticks(ax.xaxis, n.tolist(), n.tolist())
    ax.grid(True)
    highest = max([1.0, *(row.efficiency for seen in measured for row in seen.iterations)])
    speed = f"Speed-up over {min(request.gpus):,} GPUs / ideal"
    ax.set(xlabel=style.label("gpus"), ylabel=speed, ylim=(0, 1.05 * highest))
    handles.append(style.sample("lines: formula of the source; open markers: main estimator", ""))
    figure.legend(handles=handles, loc="outside lower center", ncols=1)
    ax.set_title(_title(request))
    return figure


@style.apply_style
def memory_by_batch(request: ScalingRequest, stages: Sequence[Scaling]) -> Figure:
    """Draw memory by the source's formulas against the sequences of a GPU, on the fewest and most GPUs.

    The sequences go as far as something fits, and one further; memory beyond the capacity is hatched.
    """
    figure, (ax,) = style.panels(1, style.COLUMN + 1.2, height=3.4)
    model = request.model
    b = np.array(BATCHES, float)
    activations = np.asarray(activation_bytes(b, model.seq, model.hidden, model.layers))
    fitting = int((activations <= float(request.system.accelerator.visible_bytes)).sum())
    drawn = max(fitting + 1, MIN_BATCHES)
    b = b[:drawn]
    activations = activations[:drawn]
    ends = {min(request.gpus): "-", max(request.gpus): "--"}
    at_first = []  # memory of the fewest sequences
    for stage in stages:
        for gpus, dash in ends.items():
            memory = np.asarray(state_bytes(stage.zero, request.P, float(gpus))) + activations
            shown = style.in_unit("memory_bytes", memory)
            at_first.append(float(shown[0]))
            ax.plot(b, shown, dash, color=STAGE_COLOURS[stage.zero])
    ax.plot(b, style.in_unit("memory_bytes", activations), ":", color=style.BLACK)
    capacity = float(style.in_unit("memory_bytes", request.system.accelerator.visible_bytes))
    ax.axhline(capacity, color=style.VERMILION, linewidth=0.9)
    ax.set(xscale="log", yscale="log")
    lowest, highest = ax.get_ylim()
    top = max(min(highest, MEMORY_SHOWN * capacity), 2 * max(at_first))
    ax.set_ylim(min(lowest, capacity / MEMORY_SHOWN), top)
    ax.axhspan(capacity, top, zorder=0, **style.INFEASIBLE)
    style.log_axes(ax)
    style.plain_ticks(ax.xaxis, b.tolist(), b.tolist())
    ax.grid(True)
    ax.set(xlabel=f"Sequences of {model.seq:,} tokens a GPU", ylabel=style.label("memory_bytes"))
    handles: list[object] = [
        style.sample(f"ZeRO-{stage.zero}", color=STAGE_COLOURS[stage.zero]) for stage in stages
    ]
    handles += [style.sample(f"on {gpus:,} GPUs", dash) for gpus, dash in ends.items()]
    handles += [style.sample("activations alone", ":"), style.sample("capacity", color=style.VERMILION)]
    handles.append(Patch(label="does not fit", **style.INFEASIBLE))
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    nothing = ": not one sequence fits" if min(at_first) > capacity else ""
    ax.set_title(f"{request.model.name} on {request.system.name}, nothing recomputed{nothing}")
    return figure


def _parts(request: ScalingRequest, compute: object, comm: Floats) -> dict[str, Floats]:
    """Return the parts of iterations: k1 of compute is kernels, k2 of those the transformer's [s]."""
    compute = np.broadcast_to(np.asarray(compute, float), comm.shape)
    kernels = request.k1 * compute
    shares = request.k2 * kernels, (1 - request.k2) * kernels, compute - kernels, comm
    return dict(zip(PARTS, shares, strict=True))


def _look(part: str) -> style.Look:
    return style.bar_style(*PARTS[part])


def _evaluate_speedup(request: ScalingRequest, zero: Any) -> Floats:
    """Return the speed-up of the main estimator over the fewest GPUs."""
    per_second = []
    for gpus in request.gpus:
        plan = Plan(dp=gpus, mbs=request.mbs, zero=zero)
        gbs = gpus * request.mbs
        est = estimate(request.model, request.system, plan, gbs=gbs, assumptions=request.assumptions)
        per_second.append(gbs / est.step_seconds)
    return np.array(per_second) / per_second[0]


def _finish_figure(figure: Figure, request: ScalingRequest, models: str = "") -> Figure:
    handles = [Patch(label=part, **_look(part)) for part in PARTS]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    figure.suptitle(_title(request, models), fontsize=8)
    return figure


def _title(request: ScalingRequest, models: str = "") -> str:
    sequences = f"{request.mbs} sequence{'s' if request.mbs > 1 else ''} a GPU"
    return f"{models or request.model.name} on {request.system.name}, {sequences}"
