"""Figures: they draw the table, labels have units, files are reproducible."""

from dataclasses import replace
from itertools import combinations, pairwise

import matplotlib as mpl
import numpy as np
import polars as pl
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Annotation

import traincast as tc
from traincast.core.nomenclature import COLUMNS
from traincast.core.units import GIB
from traincast.planner.question import Question
from traincast.planner.search_result import Found
from traincast.planner.studies.executors import run_study
from traincast.planner.studies.sweep import define_study
from traincast.step.placement import placements
from traincast.ui import figures
from traincast.ui.figures import paper, style
from traincast.ui.figures.plan import _changed_seconds
from traincast.ui.figures.study import groups_of_lines

HBM, BANDWIDTH = "accelerator.hbm_bytes", "accelerator.hbm_bandwidth"
MODEL = tc.Model(
    name="small", layers=8, hidden=2048, heads=16, ffn=8192, seq=1024, global_batch=64, training_sequences=1e6
)
GPUS = (1, 2, 4, 8, 16)


def machine(hbm_bytes=6e9, name="chip-nvs4"):
    """A machine on which few GPUs are not enough."""
    return tc.System(
        name=name,
        accelerator=tc.Accelerator(
            name="chip", matrix_flops=1e14, vector_flops=1e13, hbm_bandwidth=1e12, hbm_bytes=hbm_bytes
        ),
        tiers=(
            tc.Tier(name="links", bandwidth=1e11, efficiency=0.7, latency=2.5e-6, size=4),
            tc.Tier(name="network", bandwidth=1e10, efficiency=0.7, latency=5e-6),
        ),
    )


@pytest.fixture(scope="module")
def scaling():
    """A study over numbers of GPUs: nothing fits on the smallest."""
    machines = [machine(), machine(2e10, "roomy-nvs4")]
    return run_study(define_study([MODEL], machines, Question(gpus=GPUS, top=1))).frame


@pytest.fixture(scope="module")
def swept():
    """A study over capacity with vector rate, and bandwidth; the least memory holds nothing on few GPUs."""
    paired = {HBM: [1e9, 4e9, 8e9, 32e9], "accelerator.vector_flops": [1e12, 5e12, 1e13, 2e13]}
    return run_study(
        define_study(
            [MODEL],
            [machine()],
            Question(gpus=(4, 16), strategy="1d", top=1),
            vary=[paired, {BANDWIDTH: [1e11, 1e12, 4e12]}],
        )
    ).frame


@pytest.fixture(scope="module")
def found():
    """A search whose winner nearly fills the memory."""
    return tc.search(MODEL, machine(), gpus=16)


@pytest.fixture(scope="module")
def every(scaling, swept, found):
    """One figure of each kind."""
    rows = scaling.filter(pl.col("system") == "roomy-nvs4", pl.col("strategy") == "summa")
    est = found.best[1]
    return {
        "days": figures.strong_scaling(scaling),
        "throughput": figures.strong_scaling(scaling, "throughput"),
        "optima": figures.optima(rows, capacity=2e10),
        "design": figures.design_space(MODEL, machine(), 16, 64, tc.Plan(tp=2)),
        "contour": figures.contour(swept, HBM, BANDWIDTH, (4, 16), marks=[machine()]),
        "sweep": figures.sweep(swept, BANDWIDTH, 16),
        "roofline": figures.roofline(est),
        "memory": figures.memory_waterfall(est),
        "pareto": figures.pareto(found),
        "tornado": figures.tornado(found),
    }


def words(figure):
    """All texts of a figure."""
    return [text.get_text() for text in figure.findobj(mpl.text.Text)]


def line(ax, name):
    """Data of a line by its label."""
    return next(line for line in ax.lines if line.get_label() == name).get_xydata()


def test_a_sweep_has_the_best_of_each_value_and_a_line_for_each_of_a_further_field(swept, every):
    """Never silently the best of a further field: those are lines."""
    (ax,) = every["sweep"].axes
    best = swept.filter(pl.col("rank") == 1, pl.col("gpus") == 16).drop_nulls("step_seconds")
    expected = best.group_by(HBM, BANDWIDTH).agg(pl.col("step_seconds").min()).sort(HBM, BANDWIDTH)
    drawn = [row for drawn in ax.lines for row in drawn.get_xydata()]
    assert [seconds for _, seconds in drawn] == pytest.approx(expected["step_seconds"].to_list())
    assert len(ax.lines) == expected[HBM].n_unique()
    with pytest.raises(tc.InputError, match="has fewer than two values"):
        figures.sweep(swept.filter(pl.col(BANDWIDTH) == 1e12), BANDWIDTH, 16)


@pytest.mark.parametrize(
    ("figure", "x", "y"),
    [
        ("days", "gpus", "training_days"),
        ("throughput", "gpus", None),
        ("design", None, "step_seconds"),
        ("contour", HBM, BANDWIDTH),
        ("sweep", BANDWIDTH, "step_seconds"),
        ("memory", None, "memory_bytes"),
        ("pareto", "memory_bytes", "step_seconds"),
    ],
)
def test_axes_say_what_the_column_table_says(every, figure, x, y):
    units = {"byte": " [GiB]", "byte/s": " [GB/s]", "s": " [s]", "day": " [day]", "": ""}
    ax = every[figure].axes[0]
    for name, text in ((x, ax.get_xlabel()), (y, ax.get_ylabel())):
        if name is not None:
            meaning = COLUMNS[name].meaning.split(",")[0]
            assert text == f"{meaning[0].upper()}{meaning[1:]}{units[COLUMNS[name].unit]}"


def test_labels_of_every_column_have_units():
    for name, info in COLUMNS.items():
        assert style.label(name)[0].isupper() or not info.meaning[0].isalpha()
        assert ("[" in style.label(name)) == bool(info.unit), name
    assert style.label("network.0.latency").endswith("[µs]")
    assert style.in_unit("memory_bytes", 3 * GIB) == 3


def test_other_labels_carry_units(every):
    roofline, optima, tornado = (every[name].axes for name in ("roofline", "optima", "tornado"))
    assert (roofline[0].get_xlabel(), roofline[0].get_ylabel()) == (
        "Arithmetic intensity [FLOP/byte]",
        "Achieved [TFLOP/s]",
    )
    assert [ax.get_ylabel() for ax in optima] == ["", "Memory [GiB]", "Share of step time [%]"]
    assert tornado[0].get_xlabel().startswith("Time of one optimizer step,\nchange [%]")
    assert every["design"].axes[1].get_ylabel() == "Memory [GiB]"
    assert "Length of the whole training run [day]" in [ax.get_ylabel() for ax in every["contour"].axes]


def test_strong_scaling_draws_the_table(scaling, every):
    for figure, column in (("days", "training_days"), ("throughput", "tokens_per_second_per_gpu")):
        axes = {ax.get_title(): ax for ax in every[figure].axes}
        first = scaling.filter(pl.col("system") == "chip-nvs4").drop_nulls(column)
        least = first.filter(pl.col("gpus") == first["gpus"].min())
        size = 1 if column == "training_days" else least[column].max()
        drawn = 0
        for (system, strategy), rows in scaling.drop_nulls(column).group_by("system", "strategy"):
            points = line(axes[f"small, {strategy}"], f"{system} {strategy}")
            rows = rows.sort("gpus")
            np.testing.assert_allclose(
                points, np.column_stack((rows["gpus"], rows[column] / size)), rtol=1e-12
            )
            drawn += len(points)
        assert drawn < len(scaling), "some point does not fit"


def test_strong_scaling_draws_distinct_lines(every):
    for ax in every["days"].axes:
        lines = [line for line in ax.lines if line.get_label() != "ideal scaling"]
        assert len({(line.get_color(), line.get_marker()) for line in lines}) == len(lines) == 2
    assert {"chip", "roomy", "domain of 4", "ideal scaling"} <= set(words(every["days"]))


def test_ideal_scaling_starts_at_the_first_run(scaling, every):
    """From the best run of the first system on the fewest GPUs, half the days on twice the GPUs."""
    first = scaling.filter(pl.col("system") == "chip-nvs4").drop_nulls("training_days")
    base = first.filter(pl.col("gpus") == first["gpus"].min()).sort("step_seconds").row(0, named=True)
    ideal = line(every["days"].axes[0], "ideal scaling")
    np.testing.assert_allclose(ideal[:, 0] * ideal[:, 1], base["gpus"] * base["training_days"])


def test_systems_look_the_same_in_every_figure():
    """Whatever else is drawn: colours of accelerators, markers of domains."""
    pairs = [("b200-nvs8", "a100-nvs4"), ("b200-nvs8", "h200-nvs64", "v100-nvs8"), ("dgx-h100", "b200-nvs8")]
    looks = [style.system_looks(names) for names in pairs]
    assert len({str(look["b200-nvs8"]) for look in looks}) == 1
    everything = style.system_looks(tc.catalog.load.system_names()[:9])
    assert len({str(look) for look in everything.values()}) == len(everything)


def test_speed_up_draws_the_table(scaling):
    roomy = scaling.filter(pl.col("system") == "roomy-nvs4")
    figure = figures.speedup(scaling)
    for ax in figure.axes:
        strategy = ax.get_title().removeprefix("small, ")
        points = dict(line(ax, f"roomy-nvs4 {strategy}"))
        for gpus, speed in points.items():
            rows = roomy.filter(pl.col("gpus") == gpus)
            times = {
                name: rows.filter(pl.col("strategy") == name)["step_seconds"][0] for name in ("1d", strategy)
            }
            assert speed == pytest.approx(times["1d"] / times[strategy], rel=1e-12)
        assert points
    with pytest.raises(tc.InputError, match="nothing to compare"):
        figures.speedup(scaling.filter(pl.col("strategy") == "1d"))


def test_optima_of_two_tables_mark_what_differs(scaling):
    """Two tables with one degree changed: that cell is red in both, and no other."""
    rows = scaling.filter(pl.col("system") == "roomy-nvs4", pl.col("strategy") == "1d").drop_nulls(
        "step_seconds"
    )
    changed = rows.with_columns(
        pl.when(pl.col("gpus") == rows["gpus"].max())
        .then(pl.col("mbs") * 2)
        .otherwise(pl.col("mbs"))
        .alias("mbs")
    )
    figure = figures.optima({"published": rows, "corrected": changed}, capacity=2e10)
    assert len(figure.axes) == 6
    tables = figure.axes[::3]
    first, second = (ax.get_position() for ax in tables)
    assert first.y0 > second.y1, "below each other: side by side, their digits are too small to read"
    assert [ax.get_title().split(",")[0] for ax in tables] == ["published", "corrected"]
    for ax in tables:
        red = [text for text in ax.texts if text.get_color() == style.VERMILION]
        assert len(red) == 2, "mbs, and micro-batches with it"


def test_collectives_draw_measured_and_predicted():
    timings = paper.timed_collectives()
    figure = paper.collectives_figure(timings, "perlmutter", "calibrated")
    drawn = next(axis for axis in figure.axes if axis.get_title() == "allreduce").lines
    measured = sorted(row.time_us / 1e3 for row in timings if row.op == "allreduce")
    np.testing.assert_allclose(sorted(drawn[0].get_ydata()), measured)
    assert {"measured", "theory of arXiv 2410.00273", "calibrated on perlmutter"} <= set(words(figure))


def test_theory_of_a_large_all_gather_by_hand():
    """The notebook's formula: 31/32 of 8 GiB at 25 GB/s x 0.7 x 4 NICs, and 7 x 5 + 24 x 2.5 us."""
    rows = [row for row in paper.timed_collectives() if row.op == "allgather" and row.gpus_per_node == 4]
    largest = max(rows, key=lambda row: row.size_bytes)
    figure = paper.collectives_figure([largest], "perlmutter", "paper")
    expected = 31 / 32 * largest.size_bytes / (25e9 * 0.7 * 4) + 7 * 5e-6 + 24 * 2.5e-6
    assert figure.axes[0].lines[1].get_ydata()[0] == pytest.approx(1e3 * expected, rel=1e-9)


# How the colour-blind see linear RGB: Machado et al. 2009, doi 10.1109/TVCG.2009.113, severity 1
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}


@pytest.mark.parametrize("sight", BLINDNESS)
def test_colours_are_distinct(sight):
    seen = [
        (BLINDNESS[sight] @ np.power(to_rgb(colour), 2.2)).clip(0, 1) ** (1 / 2.2) for colour in style.COLOURS
    ]
    assert min(np.linalg.norm(first - other) for first, other in combinations(seen, 2)) > 0.14
    assert min(np.linalg.norm(first - other) for first, other in combinations(seen[:3], 2)) > 0.25, (
        "most figures need no more"
    )


def test_markers_and_hatches_are_distinct():
    assert len(set(style.MARKERS)) == len(style.MARKERS) >= 7
    for kind in ("time", "memory"):
        looks = [style.COMPONENTS[name] for name, info in COLUMNS.items() if info.kind == kind]
        assert len({colour for colour, _ in looks}) == len(looks)
        for (_, hatch), (_, next_hatch) in pairwise(looks):
            assert hatch != next_hatch, "neighbours differ without colour"


def test_optima_draw_the_table(scaling, every):
    rows = scaling.filter(pl.col("system") == "roomy-nvs4", pl.col("strategy") == "summa").sort("gpus")
    grid, memory, split = every["optima"].axes
    table = [text.get_text() for text in grid.texts]
    for row in rows.drop_nulls("step_seconds").iter_rows(named=True):
        assert f"{row['fast_tp']}·{row['fast_tp2']}·{row['fast_pp']}·{row['fast_dp']}" in table
        assert f"{row['gbs'] / row['dp'] / row['mbs']:.0f}" in table
    heights = [bar.get_height() for bar in memory.patches[: len(rows)]]
    np.testing.assert_allclose(heights, rows["memory_bytes"].to_numpy() / GIB)
    assert memory.lines[0].get_ydata()[0] == 2e10 / GIB
    compute = next(bars for bars in split.containers if bars.get_label() == "compute")
    shares = (100 * rows["compute"] / rows["step_seconds"]).fill_null(0)
    np.testing.assert_allclose([bar.get_height() for bar in compute], shares)
    spent = [name for name, info in COLUMNS.items() if info.kind == "time" and rows[name].sum() > 0]
    assert (
        [bars.get_label() for bars in split.containers] == spent == ["compute", "exposed_memory", "dp_comm"]
    )  # no other there is
    fitting = rows["step_seconds"].is_not_null().to_numpy()
    tops = [bar.get_y() + bar.get_height() for bar in split.containers[-1]]
    np.testing.assert_allclose(tops, np.where(fitting, 100, 0))


def test_optima_without_a_capacity(scaling):
    rows = scaling.filter(pl.col("system") == "chip-nvs4", pl.col("strategy") == "1d")
    figure = figures.optima(rows)
    assert not figure.axes[1].lines, "a machine by hand is not in the catalogue"
    assert "does not fit" in words(figure), "nothing fits on one GPU"


@pytest.mark.parametrize(
    "base",
    [
        tc.Plan(tp=2),
        tc.Plan(tp=2, cp=2, cp_kind="all-gather"),
        tc.Plan(tp=2, tp2=2, panels=2, tp_kind="summa"),
    ],
)
def test_design_space_draws_every_placement(base):
    small = machine(1.2e9)
    top, bottom = figures.design_space(MODEL, small, 16, 64, base).axes
    points = [points for points in bottom.lines if points.get_marker() == "o"]
    assert points
    for place, (point, tick) in enumerate(zip(points, bottom.get_xticklabels(), strict=True)):
        pp, dp, _ = tick.get_text().split("\n")
        plan = tc.Plan(**(base.knobs() | {"pp": int(pp), "dp": int(dp)}))
        est = tc.estimate(MODEL, small, placements(plan, 4), gbs=64)
        drawn = [bar for bar in top.patches if abs(bar.get_x() + bar.get_width() / 2 - place) < 0.45]
        heights: dict[float, float] = {}
        for bar in drawn:
            heights[round(bar.get_x(), 9)] = heights.get(round(bar.get_x(), 9), 0) + bar.get_height()
        seconds = np.sort(np.atleast_1d(est.step_seconds))
        np.testing.assert_allclose(list(heights.values()), seconds[: len(heights)], rtol=2e-3)
        assert max(heights.values()) <= top.get_ylim()[1], "no bar is cut by the axis"
        counted = [text.get_text() for text in top.texts if text.xy[0] == place]
        slower = len(seconds) - len(heights)
        assert counted == ([f"{slower} slower,\nto {seconds[-1]:,.0f} s"] if slower else [])
        assert point.get_ydata()[0] == pytest.approx(np.max(est.memory_bytes) / GIB)
        assert (point.get_markerfacecolor() == "white") != bool(np.all(est.fits))


def test_design_space_needs_a_plan():
    with pytest.raises(tc.InputError, match="no number of pipeline stages"):
        figures.design_space(MODEL, machine(), 16, 64, tc.Plan(tp=32))


def test_contour_draws_the_table(swept, every):
    figure = every["contour"]
    for ax, gpus in zip(figure.axes, (4, 16), strict=False):
        assert ax.get_title() == f"small, {gpus} GPUs"
    xs, ys, z = figures.study._fastest_grid(
        swept.filter(pl.col("gpus") == 4), HBM, BANDWIDTH, "training_days"
    )
    assert np.isnan(z[:, 0]).all(), "1 GB is too little"
    for row in swept.filter(pl.col("gpus") == 4).iter_rows(named=True):
        value = z[ys.tolist().index(row[BANDWIDTH] / 1e9), xs.tolist().index(row[HBM] / GIB)]
        assert value == pytest.approx(
            np.nan if row["training_days"] is None else row["training_days"], nan_ok=True
        )
    assert "does not fit" in words(figure)
    assert "chip" in words(figure)
    tops = [child.get_xlabel() for child in figure.findobj(mpl.axes._secondary_axes.SecondaryAxis)]
    assert tops == ["Peak of the vector units [TFLOP/s]"] * 2


def three_axes(most):
    """A study over capacity, bandwidth of the memory, and as many bandwidths of the network."""
    return run_study(
        define_study(
            [MODEL],
            [machine()],
            Question(gpus=(16,), strategy="1d", top=1),
            vary=[
                {HBM: [4e9, 8e9, 32e9]},
                {BANDWIDTH: [1e11, 1e12]},
                {"network.1.bandwidth": [1e9 * 2**i for i in range(most)]},
            ],
        )
    ).frame


def test_contour_of_a_further_axis_has_a_panel_for_each_of_its_values():
    """Not the best of them: each panel has the days of the table's rows with its value, as its title says."""
    table = three_axes(2)
    figure = figures.contour(table, HBM, BANDWIDTH, 16)
    titled = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title().split("\n")[1].rpartition(": ")[2] for ax in titled] == ["1 GB/s", "2 GB/s"]
    parts = figures.study._by_further_fields(table.filter(pl.col("rank") == 1), HBM, BANDWIDTH)
    slow, fast = (figures.study._fastest_grid(part, HBM, BANDWIDTH, "training_days")[2] for _, part in parts)
    assert np.nanmax(slow - fast) > 0
    for (_, part), bandwidth in zip(parts, (1e9, 2e9), strict=True):
        assert part["network.1.bandwidth"].unique().to_list() == [bandwidth]


def test_contour_refuses_more_values_of_a_further_axis_than_panels():
    with pytest.raises(tc.InputError, match=r"network\.1\.bandwidth \(7 values\).*more than 6 panels"):
        figures.contour(three_axes(7), HBM, BANDWIDTH, 16)


def test_contour_where_nothing_fits(swept):
    figure = figures.contour(
        swept.with_columns(pl.lit(None, pl.Float64).alias("training_days")), HBM, BANDWIDTH, 4
    )
    assert "does not fit" in words(figure)


def test_levels_enclose_all_values():
    for low, high in ((3.0, 40.0), (7.0, 17.0), (0.02, 900.0), (5.0, 5.1), (5.0, 5.0)):
        levels = figures.study._contour_levels(np.array([low, np.nan, high]))
        assert levels[0] <= low
        assert high <= levels[-1]
        assert (np.diff(levels) > 0).all()
        assert 2 <= len(levels) <= 30


def test_roofline_draws_operations(found, every):
    est = found.best[1]
    ax = every["roofline"].axes[0]
    offsets = np.concatenate([points.get_offsets() for points in ax.collections])
    row = next(row for row in est.operations() if row["forward_matrix_flops"] > 0)
    flops = row["forward_matrix_flops"] + row["forward_vector_flops"]
    seconds = row["forward_compute_seconds"] + row["forward_memory_seconds"]
    expected = flops / row["forward_bytes"], flops / seconds / 1e12
    assert np.isclose(offsets, expected).all(axis=1).any()
    assert len(offsets) == 2 * len(est.operations())


def test_roofline_labels_do_not_overlap(every):
    figure = every["roofline"]
    figure.draw_without_rendering()
    notes = [
        text for text in figure.axes[0].texts if isinstance(text, Annotation) and text.arrow_patch is not None
    ]
    assert len(notes) == 8
    boxes = [mpl.text.Text.get_window_extent(note) for note in notes]
    assert not any(box.overlaps(other) for box, other in combinations(boxes, 2))


def test_memory_waterfall_adds_up(found, every):
    est = found.best[1]
    ax = every["memory"].axes[0]
    bars = ax.patches
    assert (
        bars[-2].get_y() + bars[-2].get_height()
        == pytest.approx(bars[-1].get_height())
        == pytest.approx(est.memory_bytes / GIB)
    )
    held = {name: value for name, value in est.memory.items() if value}  # what there is none of has no bar
    assert list(held) == ["weights", "gradients", "optimizer", "activations"]
    assert [bar.get_height() for bar in bars[:-1]] == pytest.approx([value / GIB for value in held.values()])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == [*held, "total"]
    tight = figures.memory_waterfall(tc.estimate(MODEL, machine(1e9), found.best[0]))
    assert any("too little" in text for text in words(tight))


def timeline_of(**knobs):
    plan = tc.Plan(**{"tp": 2, "dp": 4, "zero": 3, "mbs": 2} | knobs)
    return tc.estimate("llama-3-8b", "dgx-h100", plan, gbs=64)


@pytest.mark.parametrize("knobs", [{}, {"recompute": "full"}, {"zero": 1, "pp": 2, "dp": 2}, {"mbs": 8}])
def test_a_memory_timeline_is_the_phases_of_the_fullest_rank(knobs):
    """Tops of the areas are the phases' memory, each a level; the highest is the peak of the estimate."""
    est = timeline_of(**knobs)
    phases = est.memory_timeline()
    figure = figures.memory_timeline(est)
    (ax,) = figure.axes
    outline = ax.lines[0].get_xydata()
    totals = np.array([phase.memory_bytes for phase in phases]) / GIB
    assert outline[:, 1] == pytest.approx(np.repeat(totals, 2))
    assert outline[:, 1].max() == pytest.approx(est.memory_bytes / GIB)
    held = {n for phase in phases for n, size in phase.memory_by_component_bytes.items() if size}
    assert len(ax.collections) == len(held)
    names = [tick.get_text().replace("\n", " ") for tick in ax.get_xticklabels()]
    assert names == [phase.phase for phase in phases]
    bold = [
        name for name, tick in zip(names, ax.get_xticklabels(), strict=True) if tick.get_weight() == "bold"
    ]
    assert bold == [est.memory_phase]
    assert f"peak {est.memory_bytes / GIB:,.1f} GiB" in words(figure)
    capacity = f"capacity {est.system.accelerator.visible_bytes / GIB:,.1f} GiB"
    assert any(text.startswith(capacity) for text in words(figure))
    assert any("too little" in text for text in words(figure)) == (not est.fits)


def test_a_memory_timeline_has_the_same_bytes_each_time(tmp_path):
    for name in ("one", "two"):
        figures.save(figures.memory_timeline(timeline_of()), tmp_path / f"{name}.svg")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_no_label_of_a_waterfall_is_struck_by_the_capacity(tp):
    """Also where bars end near the line, or cross it."""
    plan = tc.Plan(tp=tp, pp=4, vp=5, dp=2)
    figure = figures.memory_waterfall(tc.estimate("llama-3-70b", "dgx-h100", plan, gbs=128))
    figure.draw_without_rendering()
    (ax,) = figure.axes
    capacity = ax.transData.transform((0, ax.get_lines()[-1].get_ydata()[0]))[1]
    for text in ax.texts:
        box = text.get_window_extent()
        assert not box.y0 < capacity < box.y1, text.get_text()


def test_a_panel_has_at_most_eight_lines():
    """Nine machines of three accelerators are two rows of panels; machines alike stay together."""
    names = [f"{chip}-nvs{size}" for chip in ("a100", "b200", "h200") for size in (4, 8, 64)]
    assert groups_of_lines(names) == [names[:6], names[6:]]
    assert [len(group) for group in groups_of_lines([f"h100-nvs{i}" for i in range(10)])] == [8, 2]


def test_speedups_of_many_machines_are_in_rows_of_panels(scaling):
    one = scaling.filter(pl.col("system") == scaling["system"][0])
    names = [f"h100-nvs{i}" for i in range(1, 11)]
    figure = figures.speedup(pl.concat([one.with_columns(pl.lit(name).alias("system")) for name in names]))
    equally_fast = 1  # the dashed line of every panel
    assert {len(ax.lines) - equally_fast for ax in figure.axes} == {8, 2}


def test_pareto_marks_front_and_winner(found, every):
    ax = every["pareto"].axes[0]
    front = [(est.memory_bytes / GIB, est.step_seconds) for _, est in found.pareto()]
    np.testing.assert_allclose(line(ax, f"Pareto front, {len(front)} plans"), front)
    np.testing.assert_allclose(
        line(ax, f"recommended: {found.best[0]}"),
        [(found.best[1].memory_bytes / GIB, found.best[1].step_seconds)],
    )
    assert line(ax, "capacity")[0, 0] == 6e9 / GIB


def test_pareto_where_nothing_fits():
    nothing = tc.search(MODEL, machine(1e8), gpus=4)
    assert any("candidates fits" in text for text in words(figures.pareto(nothing)))
    with pytest.raises(tc.InputError, match="candidates fits"):
        figures.tornado(nothing)


def test_tornado_changes_each_figure(found, every):
    ax = every["tornado"].axes[0]
    order = [tick.get_text() for tick in ax.get_yticklabels()]
    system = found.system
    for path, name in (
        ("accelerator.matrix_flops", "Dense peak of the matrix units"),
        ("network.1.bandwidth", "network: bandwidth between domains"),
    ):
        place = order.index(name)
        for column, factor in enumerate((0.9, 1.1)):
            other = system.with_figures({path: system.figures()[path] * factor})
            fixed = tc.estimate(MODEL, other, found.best[0]).step_seconds
            reoptimised = tc.search(MODEL, other, gpus=16).least_seconds
            bars = (ax.containers[column][place], ax.containers[2 + column][place])
            changes = fixed / found.best[1].step_seconds - 1, reoptimised / found.least_seconds - 1
            assert [bar.get_width() for bar in bars] == pytest.approx([100 * x for x in changes], abs=1e-9)
            assert reoptimised <= fixed * (1 + 1e-12), "re-optimised is never slower"


def test_a_search_that_evaluates_few_is_optimised_again_as_one_that_evaluates_all():
    """Each figure 10 % less and more, capacity included: the least times are those of searches of all."""
    question = {"gpus": 16, "gbs": 32}
    few, every = (tc.search("llama-3-8b", "dgx-h100", **question, exhaustive=all_) for all_ in (False, True))
    paths = ["accelerator.matrix_flops", "accelerator.hbm_bytes", "network.1.bandwidth"]
    few, every = (_changed_seconds(found, paths)[1] for found in (few, every))
    assert few.tolist() == every.tolist()
    machine = tc.load_system("dgx-h100")
    for i, path in enumerate(paths):
        for j, ratio in enumerate((0.9, 1.1)):
            system = machine.with_figures({path: ratio * float(machine.figures()[path])})
            assert few[i, j] == tc.search("llama-3-8b", system, **question).least_seconds


def test_a_tornado_searches_once_more_however_many_figures_give_more_memory(monkeypatch):
    """Capacity and what the driver keeps of it: what fits with less fits with the most of any."""
    found = tc.search("llama-3-8b", "dgx-h100", gpus=16, gbs=32)
    paths = ["accelerator.hbm_bytes", "accelerator.driver_bytes"]
    search_again = Found.on
    capacities = []

    def counted(result, system):
        capacities.append(float(system.accelerator.visible_bytes))
        return search_again(result, system)

    monkeypatch.setattr(Found, "on", counted)
    _changed_seconds(found, paths)
    chip = found.system.accelerator
    assert capacities == [pytest.approx(1.1 * chip.hbm_bytes - chip.driver_bytes)]


def test_tornado_leaves_out_figures_without_effect(found):
    every = figures.tornado(found, 0.0).axes[0]
    some = figures.tornado(found).axes[0]
    names = [[tick.get_text() for tick in ax.get_yticklabels()] for ax in (every, some)]
    widths = np.abs([[bar.get_width() for bar in bars] for bars in every.containers]).max(axis=0)  # [%]
    assert names[1] == [name for name, width in zip(names[0], widths, strict=True) if width >= 0.05]
    assert len(names[1]) < len(names[0])
    assert f"\n{len(names[0]) - len(names[1])} more: below 0.05%" in some.get_xlabel()
    assert len(figures.tornado(found, 1e9).axes[0].get_yticklabels()) == 1


def test_tornado_leaves_out_figures_without_effect_on_a_plan_that_is_not_the_fastest():
    """A recommended plan may be slower than the fastest: that is no effect of the accelerator's power."""
    slower = tc.search("llama-3-70b", "dgx-h100", gpus=256, gbs=512)
    assert slower.best[1].step_seconds > slower.least_seconds * 1.001
    drawn = [tick.get_text() for tick in figures.tornado(slower).axes[0].get_yticklabels()]
    assert not any("ower of the accelerator" in name for name in drawn)
    assert "Memory bandwidth" in drawn


def test_tornado_says_what_no_longer_fits(found):
    held = found.best[1].memory_bytes
    brim = tc.search(MODEL, machine(held * 1.05), gpus=16)
    assert brim.best[1].memory_bytes > 0.9 * held * 1.05
    assert any("does not fit" in text for text in words(figures.tornado(brim)))


@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_save_gives_the_same_bytes(tmp_path, scaling, every, ending):
    figures.save(every["days"], tmp_path / f"a.{ending}")
    figures.save(every["days"], tmp_path / f"b.{ending}")
    figures.save(figures.strong_scaling(scaling), tmp_path / f"c.{ending}")
    first, second, anew = ((tmp_path / f"{name}.{ending}").read_bytes() for name in "abc")
    assert first == second == anew
    assert len(list(tmp_path.iterdir())) == 3


def test_every_figure_can_be_saved(tmp_path, every):
    for name, figure in every.items():
        figures.save(figure, str(tmp_path / f"{name}.svg"))
        assert "</svg>" in (tmp_path / f"{name}.svg").read_text(encoding="utf-8")


def test_save_is_whole_or_not_at_all(tmp_path, every, monkeypatch):
    path = tmp_path / "figure.svg"
    path.write_text("before", encoding="utf-8")

    def half(self, target, **options):
        target.write_text("half", encoding="utf-8")
        raise OSError("disk full")

    monkeypatch.setattr(mpl.figure.Figure, "savefig", half)
    with pytest.raises(OSError, match="disk full"):
        figures.save(every["days"], path)
    assert path.read_text(encoding="utf-8") == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_save_refuses(tmp_path, every):
    with pytest.raises(tc.InputError, match=r"ending '.jpg'.*\.svg, \.pdf, \.png"):
        figures.save(every["days"], tmp_path / "figure.jpg")
    (tmp_path / "file").write_text("")
    with pytest.raises(tc.InputError, match="file is not a folder"):
        figures.save(every["days"], tmp_path / "file" / "figure.svg")


def test_settings_of_the_caller_stay(scaling):
    with mpl.rc_context({"font.size": 30, "axes.grid": True}):
        before = dict(mpl.rcParams)
        figure = figures.strong_scaling(scaling)
        assert dict(mpl.rcParams) == before
    assert figure.axes[0].xaxis.label.get_fontsize() == 8


def test_tables_that_cannot_be_drawn(scaling, swept, found):
    with pytest.raises(tc.InputError, match="did you mean throughput"):
        figures.strong_scaling(scaling, "throughputs")
    with pytest.raises(tc.InputError, match="one point, the table has 12"):
        figures.strong_scaling(swept)
    with pytest.raises(tc.InputError, match="no plan fits"):
        figures.strong_scaling(scaling.filter(pl.col("feasible") == 0))
    with pytest.raises(tc.InputError, match="one system, the table has 2") as error:
        figures.optima(scaling)
    assert len(error.value.problems) == 2
    with pytest.raises(tc.InputError, match="no rows"):
        figures.optima(scaling.clear())
    with pytest.raises(tc.InputError, match="no plan fits"):
        figures.optima(
            scaling.filter(pl.col("gpus") == 1, pl.col("system") == "chip-nvs4", pl.col("strategy") == "1d")
        )
    with pytest.raises(tc.InputError, match="unknown column"):
        figures.contour(swept, HBM, "accelerator.hbm_bandwith", 4)
    with pytest.raises(tc.InputError, match="nothing on 5 GPUs"):
        figures.contour(swept, HBM, BANDWIDTH, 5)
    with pytest.raises(tc.InputError, match="has one value"):
        figures.contour(swept.filter(pl.col(HBM) == 8e9), HBM, BANDWIDTH, 4)
    many = tc.estimate(MODEL, machine(), placements(tc.Plan(tp=2, dp=8), 4))
    for draw in (figures.roofline, figures.memory_waterfall):
        with pytest.raises(tc.InputError, match="an Estimate of one plan"):
            draw(many)


def test_paper_studies_are_the_papers():
    studies = paper.paper_studies()
    scaling, published, memory, rates = studies.values()
    assert published.assumptions.name == "paper-published"
    assert (len(scaling.models), len(scaling.systems), len(scaling.gpus), len(scaling.strategies)) == (
        2,
        9,
        13,
        3,
    )
    assert (memory.points, rates.points) == (32 * 28, 10 * 22)
    assert (memory.vary[0][HBM][0], memory.vary[0][HBM][-1]) == (80e9, 1000e9)
    assert (memory.vary[1][BANDWIDTH][0], memory.vary[1][BANDWIDTH][-1]) == (500e9, 16000e9)
    paired, flops = rates.vary
    assert paired[HBM][::3] == pytest.approx((80e9, 141e9, 192e9, 384e9))
    assert paired[BANDWIDTH][::3] == pytest.approx((1555e9, 4800e9, 8000e9, 16000e9))
    assert flops["accelerator.matrix_flops"][::7] == pytest.approx((312e12, 989.4e12, 2500e12, 3750e12))
    assert flops["accelerator.vector_flops"][::7] == pytest.approx((78e12, 133.8e12, 339e12, 508.5e12))


def titles(figure):
    """Titles of a figure and of its panels."""
    heading = figure._suptitle.get_text() if figure._suptitle else ""
    return " ".join([heading, *(ax.get_title() for ax in figure.axes)])


@pytest.mark.parametrize(
    ("assumptions", "said"), [("paper", "errata corrected"), ("paper-published", "as published")]
)
def test_titles_say_whether_errata_are_corrected(assumptions, said):
    """The paper prints a speed-up of 1.43 where its code, corrected, gives 0.79: a title says which it is."""
    machines = [machine(2e10, "roomy-nvs4")]
    question = Question(gpus=GPUS, assumptions=assumptions, top=1)
    table = run_study(define_study([MODEL], machines, question)).frame
    one = table.filter(pl.col("strategy") == "1d")
    vary = [{HBM: [4e9, 8e9]}, {BANDWIDTH: [1e11, 1e12]}]
    on_16 = replace(question, gpus=(16,), strategy="1d")
    varied = run_study(define_study([MODEL], machines, on_16, vary=vary)).frame
    found = tc.search(MODEL, machine(), gpus=16, assumptions=assumptions)
    est = found.best[1]
    drawn = {
        "scaling": figures.strong_scaling(table),
        "throughput": figures.strong_scaling(table, "throughput"),
        "speedup": figures.speedup(table),
        "optima": figures.optima(one),
        "contour": figures.contour(varied, HBM, BANDWIDTH, 16),
        "design space": figures.design_space(
            MODEL, machine(), 16, 64, tc.Plan(tp=2), assumptions=assumptions
        ),
        "roofline": figures.roofline(est),
        "waterfall": figures.memory_waterfall(est),
        "memory over a step": figures.memory_timeline(est),
        "pareto": figures.pareto(found),
        "tornado": figures.tornado(found),
    }
    assert [name for name, figure in drawn.items() if said not in titles(figure)] == []


def test_ideal_scaling_starts_at_the_first_point_of_each_strategy(scaling, every):
    """Of the first system on the fewest GPUs on which that strategy fits, not of another strategy."""
    first = scaling.filter(pl.col("system") == "chip-nvs4").drop_nulls("training_days")
    starts = set()
    for ax in every["days"].axes:
        strategy = ax.get_title().removeprefix("small, ")
        run_ = first.filter(pl.col("strategy") == strategy).sort("gpus", "step_seconds").row(0, named=True)
        guide = line(ax, "ideal scaling")
        assert guide[0].tolist() == pytest.approx([run_["gpus"], run_["training_days"]])
        starts.add(tuple(guide[0]))
    assert len(starts) > 1, "strategies differ in their first points"


def test_panels_of_a_model_share_order_and_axes(scaling):
    """Also where the lines are in two rows of panels, and where a strategy fits nowhere."""
    one = scaling.filter(pl.col("system") == scaling["system"][0])
    days = pl.col("training_days")
    machines = [
        one.with_columns(pl.lit(f"h100-nvs{i}").alias("system"), days * factor)
        for i, factor in enumerate([*[1.0] * 8, 0.1, 0.1], 1)
    ]
    table = pl.concat(machines)
    none_in_1d = (pl.col("model") == "other") & (pl.col("strategy") == "1d")
    other = table.with_columns(pl.lit("other").alias("model"))
    figure = figures.strong_scaling(pl.concat([table, other.filter(~none_in_1d)]))
    strategies = one["strategy"].unique(maintain_order=True).to_list()
    for model in (MODEL.name, "other"):
        of_model = [ax for ax in figure.axes if ax.get_title().startswith(f"{model},")]
        assert [ax.get_title().split(", ")[1] for ax in of_model] == strategies * 2
        assert len({(ax.get_xlim(), ax.get_ylim()) for ax in of_model}) == 1


def test_rows_of_panels_say_whose_lines_they_have(scaling):
    """Nine machines of three accelerators are in two rows, whose titles differ."""
    one = scaling.filter(pl.col("system") == scaling["system"][0])
    names = [f"{chip}-nvs{size}" for chip in ("a100", "h200", "b200") for size in (4, 8, 64)]
    figure = figures.strong_scaling(pl.concat([one.with_columns(pl.lit(n).alias("system")) for n in names]))
    titles = [ax.get_title() for ax in figure.axes]
    assert len(set(titles)) == len(titles) > len(one["strategy"].unique())
    assert {title.split(", ")[2] for title in titles} == {"a100 and h200", "b200"}


def test_small_bars_of_a_tornado_have_their_values(found, every):
    ax = every["tornado"].axes[0]
    fixed = [np.array([bar.get_width() for bar in bars]) for bars in ax.containers[:2]]
    largest = np.max(np.abs([[bar.get_width() for bar in bars] for bars in ax.containers]))
    small = np.max(np.abs(fixed), axis=0) < style.SMALL_BAR * largest
    assert small.any()
    for place in np.flatnonzero(small & (np.max(np.abs(fixed), axis=0) > 0)):
        low, high = (f"{end[place]:+.2f}".replace("-", "−") for end in fixed)
        assert any(low in text.get_text() and high in text.get_text() for text in ax.texts)


def test_no_bar_of_an_error_budget_is_cut():
    """The longest bar was the end of the axis, as the base of an empty bar on it."""
    budgets = [
        ("long", 9, {"compute": 0.18, "bubble": -0.17, "host": 0.0}, 0.01),
        ("short", 9, {"compute": 0.02}, 0.01),
    ]
    measured = np.geomspace(1, 10, 9)
    figure = figures.accuracy(measured, measured, ["a"] * 9, measured < 0, budgets, "errors")
    low, high = figure.axes[1].get_xlim()
    assert low < -17
    assert high > 18


def test_memory_of_scaling_ends_near_the_capacity():
    """70B: one sequence of 8,192 tokens saves 34 x 8192 x 8192 x 80 bytes, more than a GPU has."""
    figure = figures.memory_by_batch(*tc.scaling("llama-3-70b", "dgx-h100", gpus=[8, 512]))
    (ax,) = figure.axes
    assert "not one sequence fits" in ax.get_title()
    assert ax.get_ylim()[1] < 2000
    assert "does not fit" in words(figure)
    fitting = figures.memory_by_batch(*tc.scaling("gpt-1.3b", "dgx-h100", gpus=[8, 512]))
    assert "not one" not in fitting.axes[0].get_title()
    assert fitting.axes[0].get_ylim()[1] <= 3 * 79.2


def test_markers_of_zero_stages_are_seen_on_one_another():
    figure = figures.scaling_speedup(*tc.scaling("llama-3-8b", "dgx-h100", gpus=[8, 64, 512]))
    markers = [
        (line.get_marker(), line.get_markersize())
        for line in figure.axes[0].lines
        if line.get_linestyle() == "None"
    ]
    assert len({marker for marker, _ in markers}) == len({size for _, size in markers}) == 3
    assert any("a reduce to each of 512 owners" in text for text in words(figure))


def test_the_model_asked_for_is_among_those_of_the_source():
    question = {"system": "dgx-h100", "gpus": [8]}
    asked, source = (tc.scaling(model, **question) for model in ("llama-3-8b", "gpt-13b"))
    by_name = dict(figures.scaling.figures(*asked, [source]))
    assert "llama-3-8b" in [
        tick.get_text() for tick in by_name["iteration_by_model"].axes[0].get_xticklabels()
    ]
