"""Texts of every figure: plain, whole, apart from each other; ticks enough to read a value."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.path import Path as Outline
from matplotlib.text import Text
from matplotlib.transforms import Affine2D

import traincast as tc
from traincast.planner.question import Question
from traincast.planner.studies.executors import run_study
from traincast.planner.studies.sweep import define_study
from traincast.ui import figures
from traincast.ui.figures import paper
from traincast.ui.figures.style import STYLE, _style, power, round_ticks

PROFILE = Path(__file__).parents[3] / "examples" / "my_cluster" / "profile.json"
HBM, BANDWIDTH = "accelerator.hbm_bytes", "accelerator.hbm_bandwidth"
MODEL = tc.Model(
    name="small",
    layers=16,
    hidden=2048,
    heads=16,
    ffn=8192,
    seq=1024,
    global_batch=64,
    training_sequences=1e6,
)


def estimate(**knobs):
    """A plan of a modern model."""
    return tc.estimate(
        "llama-3-70b", "dgx-h100", tc.Plan(tp=4, pp=8, dp=4, **knobs), gbs=128, assumptions="calibrated"
    )


def scaling(gpus, models=(MODEL,), systems=("h200-nvs8",), strategies=("1d", "summa"), gbs=64):
    """The table of a study over numbers of GPUs."""
    return run_study(
        define_study(models, systems, Question(gpus=gpus, strategy=strategies, top=1), batches=gbs)
    ).frame


def swept():
    """The table of a study over two figures of a machine."""
    vary = [{HBM: [8e9, 40e9, 80e9, 192e9]}, {BANDWIDTH: [5e11, 1e12, 4e12, 1.6e13]}]
    return run_study(
        define_study(
            [MODEL], ["h200-nvs8"], Question(gpus=(16, 64), strategy="1d", top=1), batches=64, vary=vary
        )
    ).frame


def errors(low, high):
    """Predicted against measured times between two ends [s]."""
    measured = np.geomspace(low, high, 9)
    budgets = [(f"source-{i}", 3, {"compute": 0.02 * i, "bubble": -0.01}, 0.01) for i in range(1, 12)]
    return figures.accuracy(
        measured, measured * 1.05, ["a", "b", "c"] * 3, np.arange(9) % 2 == 0, budgets, "errors"
    )


def zero(model="gpt-13b"):
    """ZeRO on Polaris."""
    return tc.scaling(model, "polaris", gpus=[8, 16, 64, 512])


FIGURES = {
    "strong_scaling": lambda: figures.strong_scaling(scaling((1, 2, 4, 8, 16, 32, 64))),
    "strong_scaling large": lambda: figures.strong_scaling(
        scaling(tuple(2**k for k in range(8, 17)), ("gpt3-1t", "gpt3-175b")), "throughput"
    ),
    "strong_scaling one": lambda: figures.strong_scaling(scaling((64,))),
    "strong_scaling narrow": lambda: figures.strong_scaling(scaling((64, 96), gbs=192)),
    "speedup": lambda: figures.speedup(scaling((1, 2, 4, 8, 16, 32, 64))),
    "collectives": lambda: paper.collectives_figure(paper.timed_collectives(), "perlmutter", "calibrated"),
    "optima": lambda: figures.optima(
        scaling(tuple(2**k for k in range(1, 7)), strategies=("1d",)), capacity=8e10
    ),
    "optima many": lambda: figures.optima(
        scaling(tuple(2**k for k in range(8, 17)), ("gpt3-1t",), strategies=("1d",))
    ),
    "design_space": lambda: figures.design_space(MODEL, tc.load_system("h200-nvs8"), 64, 64, tc.Plan(tp=2)),
    "design_space large": lambda: figures.design_space(
        tc.load_model("gpt3-1t"), tc.load_system("b200-nvs8"), 16384, 4096, tc.Plan(tp=8)
    ),
    "contour": lambda: figures.contour(
        swept(), HBM, BANDWIDTH, (16, 64), marks=[tc.load_system("h200-nvs8")]
    ),
    "sweep": lambda: figures.sweep(swept(), BANDWIDTH, 64),
    "contour one": lambda: figures.contour(swept(), BANDWIDTH, HBM, 64),
    "roofline": lambda: figures.roofline(estimate()),
    "memory_waterfall": lambda: figures.memory_waterfall(estimate(recompute="full")),
    "memory_timeline": lambda: figures.memory_timeline(estimate(recompute="full")),
    "memory_timeline over": lambda: figures.memory_timeline(
        tc.estimate("llama-3-70b", "dgx-h100", tc.Plan(tp=4, pp=4, dp=4, vp=5), gbs=128)
    ),
    "time_waterfall": lambda: figures.time_waterfall(estimate()),
    "stage_memory": lambda: figures.stage_memory(estimate()),
    "pareto": lambda: figures.pareto(tc.search(MODEL, "h200-nvs8", gpus=64)),
    "pareto large": lambda: figures.pareto(tc.search("gpt3-175b", "dgx-a100", gpus=1024, strategy="1d")),
    "pareto long": lambda: figures.pareto(tc.search("mixtral-8x22b", "dgx-h200", gpus=128, gbs=512)),
    "tornado": lambda: figures.tornado(tc.search(MODEL, "h200-nvs8", gpus=64)),
    "profiled_step": lambda: figures.profiled_step(tc.profile(PROFILE, estimate())),
    "timeline": lambda: figures.timeline(tc.trace(estimate())),
    "timeline deep": lambda: figures.timeline(
        tc.trace(tc.estimate("gpt3-1t", "h200-nvs8", tc.Plan(tp=8, pp=32, dp=8, fast_tp=8), gbs=512))
    ),
    "accuracy": lambda: errors(0.5, 40.0),
    "accuracy wide": lambda: errors(0.003, 900.0),
    "accuracy narrow": lambda: errors(2.0, 2.1),
    "iteration_by_gpus": lambda: figures.iteration_by_gpus(*zero()),
    "iteration_by_model": lambda: figures.iteration_by_model(zero()[0], [zero("gpt-1.3b"), zero()]),
    "scaling_speedup": lambda: figures.scaling_speedup(*zero()),
    "memory_by_batch": lambda: figures.memory_by_batch(*zero()),
    "utilisation_by_cluster": lambda: figures.utilisation_by_cluster(tc.limits("h100-sxm-80")),
    "utilisation_by_cluster few": lambda: figures.utilisation_by_cluster(
        tc.limits("a100-sxm-80", gpus=[64, 100])
    ),
    "utilisation_by_compute": lambda: figures.utilisation_by_compute(
        tc.limits("h100-sxm-80", network="100 GB/s")
    ),
    "utilisation_by_compute slow": lambda: figures.utilisation_by_compute(
        tc.limits("v100-sxm-32", days=700.0)
    ),
}


def test_every_figure_is_here():
    assert {name.split()[0] for name in FIGURES} == set(figures.__all__) - {"save", "to_svg"}


def shown(axis):
    """Visible tick labels, and their boxes on the canvas."""
    low, high = sorted(axis.get_view_interval())
    slack = 1e-9 * (high - low)
    ticks = [
        tick
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        if low - slack <= tick.get_loc() <= high + slack
    ]
    return [
        label
        for tick in ticks
        for label in (tick.label1, tick.label2)
        if label.get_visible() and label.get_text().strip()
    ]


OVERLAP_SEEN = 1.0  # of texts [pt]; boxes have some room around the letters
CUT_SEEN = 0.5  # beyond the canvas [pt]


def outlines(figure):
    """Every visible text with the four corners of its box on the canvas [pixel]."""
    ticks = {
        id(label)
        for ax in figure.axes
        for axis in (ax.xaxis, ax.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        for label in (tick.label1, tick.label2)
    }
    shown_ticks = {
        id(label)
        for ax in figure.axes
        if ax.get_visible() and ax.axison
        for axis in (ax.xaxis, ax.yaxis)
        if axis.get_visible()
        for label in shown(axis)
    }
    for text in figure.findobj(Text):
        hidden = id(text) in ticks and id(text) not in shown_ticks
        if hidden or not text.get_visible() or not text.get_text().strip():
            continue
        angle = text.get_rotation()
        box = Text.get_window_extent(text)  # that of an annotation has its arrow
        if angle % 90 == 0:
            yield text, box.corners()[[0, 1, 3, 2]]
            continue
        middle = box.get_points().mean(axis=0)
        text.set_rotation(0)
        box = Text.get_window_extent(text)
        text.set_rotation(angle)
        corners = box.translated(*(middle - box.get_points().mean(axis=0))).corners()[[0, 1, 3, 2]]
        yield text, Affine2D().rotate_deg_around(*middle, angle).transform(corners)


def shrunk(corners, by):
    """Outline of a box with less room around it."""
    middle = corners.mean(axis=0)
    reach = np.abs(corners - middle).max()
    return Outline(middle + (corners - middle) * max(1 - by / reach, 0.1), closed=False)


def text_problems(figure):
    """Reasons why texts of a figure cannot be read: cut off, on one another, or struck through by a guide."""
    pixels = figure.dpi / 72
    width, height = figure.canvas.get_width_height()
    found = [(text, corners) for text, corners in outlines(figure)]
    for text, corners in found:
        beyond = max(-corners.min(), *(corners.max(axis=0) - (width, height)))
        if beyond > CUT_SEEN * pixels:
            yield f"{text.get_text()!r} is cut off by {beyond / pixels:.1f} pt"
    boxes = [(text, shrunk(corners, OVERLAP_SEEN * pixels)) for text, corners in found]
    ends = np.array([box.get_extents().extents for _, box in boxes])  # x0, y0, x1, y1
    apart = (ends[:, None, :2] >= ends[None, :, 2:]).any(axis=2)
    for i, j in zip(*np.nonzero(np.triu(~(apart | apart.T), 1)), strict=True):
        (text, box), (other, near) = boxes[i], boxes[j]
        if box.intersects_path(near, filled=True):
            yield f"{text.get_text()!r} and {other.get_text()!r} overlap"
    for text, box in boxes:
        if text.axes is None or text.get_bbox_patch() is not None or text.get_path_effects():
            continue
        for line in text.axes.lines:
            if len(line.get_xydata()) == 2 and line.get_visible():
                path = line.get_transform().transform_path(line.get_path())
                if path.intersects_path(box, filled=False):
                    yield f"{text.get_text()!r} is struck through"


def problems(figure):
    """Reasons why texts of a figure cannot be read."""
    with _style():
        FigureCanvasAgg(figure)
        figure.draw_without_rendering()  # texts are laid out as where they are drawn
        yield from text_problems(figure)
    for at, ax in enumerate(figure.axes):
        for name, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
            if not (ax.get_visible() and axis.get_visible()):
                continue
            labels = [(label.get_text(), label.get_window_extent()) for label in shown(axis)]
            where = f"axes {at} {name}"
            for text, _ in labels:
                if set("$\\") & set(text):
                    yield f"{where}: {text!r} is markup"
            labels.sort(key=lambda label: label[1].x0 if name == "x" else label[1].y0)
            for (before, box), (after, other) in pairwise(labels):
                if box.overlaps(other):
                    yield f"{where}: {before!r} and {after!r} overlap"
            texts = [text for text, _ in labels]
            if len(set(texts)) < len(texts):
                yield f"{where}: {texts} say the same of several values"
            low, high = sorted(ax.dataLim.intervalx if name == "x" else ax.dataLim.intervaly)
            if len(texts) == 1 and high - low > 1e-9 * abs(high):
                yield f"{where}: {texts[0]!r} alone does not tell a range"


@pytest.mark.parametrize("name", FIGURES)
def test_texts_can_be_read(name):
    assert list(problems(FIGURES[name]())) == []


def test_paper_figures():
    stems = []
    for stem, figure in paper.paper_figures():
        stems.append(stem)
        assert list(problems(figure)) == [], stem
    assert len(stems) == paper.FIGURES
    numbers = [stem.partition("-")[0] for stem in stems]
    assert {number: numbers.count(number) for number in numbers} == dict(
        zip("123456", (3, 4, 4, 1, 1, 1), strict=True)
    )


def test_texts_that_cannot_be_read_are_detected():
    """What the check is for: a text on another, one beyond the canvas, and one under a line."""
    with _style():
        from matplotlib.figure import Figure

        figure = Figure((3, 2))
        ax = figure.subplots()
        ax.set(xlim=(0, 1), ylim=(0, 1))
        ax.axhline(0.5)
        for text, place in {
            "one": (0.1, 0.8),
            "two": (0.11, 0.8),
            "cut": (1.1, 0.2),
            "struck": (0.4, 0.48),
        }.items():
            ax.text(*place, text)
    found = list(problems(figure))
    assert any("'one' and 'two' overlap" in problem for problem in found)
    assert any("'cut' is cut off" in problem for problem in found)
    assert any("'struck' is struck through" in problem for problem in found)


def test_labels_of_matplotlib_alone_are_detected():
    """What the check is for: matplotlib's own labels of a logarithmic axis are markup."""
    with _style():
        from matplotlib.figure import Figure

        figure = Figure((3, 2))
        figure.subplots().semilogx([1, 1e6], [0, 1])
    assert STYLE["text.parse_math"] is False
    assert any("is markup" in problem for problem in problems(figure))


@pytest.mark.parametrize(
    ("value", "text"),
    [(16384, "16,384"), (0.5, "0.5"), (1e24, "10²⁴"), (3e-7, "3×10⁻⁷"), (4194304, "4.1943×10⁶")],
)
def test_tick_labels_of_an_axis(value, text):
    assert power(value, 5) == text


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (5e23, 3e30, [10.0**k for k in range(24, 31)]),
        (1e24, 1e36, [10.0**k for k in range(24, 37, 2)]),
        (0.02, 15.0, [0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]),
    ],
)
def test_ticks_are_evenly_spaced(low, high, ticks):
    assert round_ticks(low, high) == pytest.approx(ticks, rel=1e-12)
