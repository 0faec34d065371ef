"""Limits of data movement: the source's check value, properties of the formulas, clusters and runs."""

from dataclasses import replace

import numpy as np
import pint
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traincast as tc
from traincast.analysis.data_movement import (
    MovementDevice,
    MovementWork,
    all_reduce_words,
    best_shardings,
    end_of_batch,
    layer_seconds,
    micro_batch,
    seconds_by_bound,
    shardings,
    utilisation,
)
from traincast.analysis.training_limits import LARGEST_RUN, batch_tokens, device_of, training
from traincast.catalog.load import accelerator_names
from traincast.ui import figures

# H100 SXM as in Epoch AI's notebook: dense peak at 8 bits, HBM3, NVLink 4 in both directions
H100 = MovementDevice(name="H100 SXM", flops8=1979e12, memory_bandwidth=3352e9, network_bandwidth=900e9)
CHECK = MovementWork(d_in=16384, d_out=5 * 16384, tokens=2048**2 / 128, tp_in=8, tp_out=40, dp=32, width=2)
DEGREE = st.integers(1, 4096).map(float)
WIDTHS = st.floats(64, 1e6)
RATE = st.floats(1e9, 1e16)


@st.composite
def works(draw):
    """Draw a sharded layer."""
    names = {
        "d_in": WIDTHS,
        "d_out": WIDTHS,
        "tokens": st.floats(1e3, 1e9),
        "tp_in": DEGREE,
        "tp_out": DEGREE,
        "dp": DEGREE,
    }
    chosen = {name: draw(values) for name, values in names.items()}
    return MovementWork(**chosen, micro_batches=draw(DEGREE), width=draw(st.sampled_from([1.0, 2.0, 4.0])))


@st.composite
def devices(draw):
    """Draw a device."""
    return MovementDevice(
        name="any",
        flops8=draw(RATE),
        memory_bandwidth=draw(RATE),
        network_bandwidth=draw(RATE),
        sustained=0.8,
    )


def test_the_check_value_of_the_source():
    """Epoch AI's notebook for this device and layer; the three times and which of them is the largest."""
    limit = micro_batch(H100, CHECK)
    assert limit.total == pytest.approx(3.2554072481051035e-05, rel=1e-12)
    assert limit.flop == limit.total
    assert limit.memory == pytest.approx(2.2757727923627685e-05, rel=1e-12)
    assert limit.network == pytest.approx(2.5864874666666665e-05, rel=1e-12)


def test_the_end_of_a_batch_by_hand():
    """2048 x 2048 weights of 2 bytes over 32 replicas, three times what a device does not hold: 900 GB/s of
    network bind.
    """
    limit = end_of_batch(H100, CHECK)
    assert limit.total == pytest.approx(3 * 31 / 32 * 2048**2 * 2 / 900e9, rel=1e-12)
    assert limit.memory == pytest.approx(3 * 31 / 32 * 2048**2 * 2 / (0.8 * 3352e9), rel=1e-12)
    assert limit.flop == 0


@given(works(), devices())
def test_a_number_is_what_a_column_holds(work, device):
    """One line of arithmetic for a plan and for many."""
    names = ("tp_in", "tp_out", "dp", "micro_batches")
    columns = replace(work, **{name: np.array([getattr(work, name), 3.0]) for name in names})
    assert layer_seconds(device, columns)[0] == layer_seconds(device, work)
    assert utilisation(device, columns)[0] == utilisation(device, work)
    machines = replace(device, network_bandwidth=np.array([[device.network_bandwidth], [1e9]]))
    assert layer_seconds(machines, columns)[0, 0] == layer_seconds(device, work)


@given(
    works(),
    devices(),
    st.sampled_from(["flops8", "memory_bandwidth", "network_bandwidth"]),
    st.floats(1, 100),
)
def test_a_better_device_is_never_slower(work, device, figure, times):
    better = replace(device, **{figure: getattr(device, figure) * times})
    assert layer_seconds(better, work) <= layer_seconds(device, work)


@given(works(), devices())
def test_degree_1_moves_nothing(work, device):
    """Alone, a device sends nothing, and there are no gradients to reduce."""
    alone = replace(work, tp_in=1.0, tp_out=1.0, dp=1.0)
    assert micro_batch(device, alone).network == 0
    assert end_of_batch(device, alone).total == 0
    assert all_reduce_words(1e6, 1) == 0


@given(works(), devices())
def test_the_time_is_counted_once_under_the_binding_limit(work, device):
    parts = np.array(seconds_by_bound(device, work))
    assert (parts >= 0).all()
    assert parts.sum() == pytest.approx(layer_seconds(device, work), rel=1e-12)
    assert utilisation(device, work) <= device.sustained * (1 + 1e-12)


def test_seconds_come_out_of_bytes_and_flops():
    """As in tests/properties/test_dimensions.py; numbers of FLOP and of words have no unit."""
    unit = pint.UnitRegistry()
    rate = unit.byte / unit.second
    device = MovementDevice(
        name="H100", flops8=1979e12 * rate, memory_bandwidth=3352e9 * rate, network_bandwidth=900e9 * rate
    )
    work = replace(CHECK, width=2 * unit.byte)
    assert micro_batch(device, work).total.to(unit.second).magnitude == pytest.approx(
        3.2554072481051035e-05, rel=1e-12
    )
    assert layer_seconds(device, work).check("[time]")
    assert all(seconds_of_bound.check("[time]") for seconds_of_bound in seconds_by_bound(device, work))
    assert utilisation(device, work).to("").magnitude == pytest.approx(utilisation(H100, CHECK), rel=1e-12)


@pytest.mark.parametrize("gpus", [1, 7, 12, 64, 360])
def test_shardings_are_all_there_are(gpus):
    """Against three loops."""
    numbers = range(1, gpus + 1)
    wanted = [(i, o, gpus // i // o) for i in numbers if gpus % i == 0 for o in numbers if gpus // i % o == 0]
    assert list(zip(*shardings(gpus), strict=True)) == wanted


def test_the_best_sharding_is_the_fastest_of_all():
    best = best_shardings(H100, 16384, 81920, 2048**2, [48, 10240, 65536])
    for i, gpus in enumerate((48, 10240, 65536)):
        tp_in, tp_out, dp = shardings(gpus)
        times = layer_seconds(H100, replace(CHECK, tokens=2048**2, tp_in=tp_in, tp_out=tp_out, dp=dp))
        assert best.seconds[i] == min(times)
        assert best.tp_in[i] * best.tp_out[i] * best.dp[i] == gpus
        assert sum(row[i] for row in best.spent) == pytest.approx(1)
    assert (np.diff(best.utilisation) < 0).all()


def test_a_layer_is_cut_no_finer_than_weights_and_tokens():
    """2 x 2 weights and 2 tokens: 8 devices at the most."""
    shardings = best_shardings(H100, 2, 2, 2, [8, 16])
    assert (shardings.tp_in[0], shardings.tp_out[0], shardings.dp[0]) == (2, 2, 2)
    assert np.isnan(shardings.seconds[1])
    assert shardings.binds[1] is None


def test_the_network_of_an_accelerator_is_that_of_its_fastest_domain():
    assert (
        device_of("h100-sxm-80").network_bandwidth == 900e9
    )  # 18 NVLinks of 25 GB/s each way (NVIDIA H100 data sheet)
    assert device_of("H100-SXM-80", network=1e11).network_bandwidth == 1e11
    assert (
        device_of(system="gb200-nvl72").network_bandwidth == 1.8e12
    )  # NVLink 5: 1.8 TB/s (NVIDIA GB200 data sheet)
    assert (
        device_of(system="tpu-v5p-pod").network_bandwidth == 1.2e12
    )  # 4,800 Gb/s of ICI for a chip, each way (Google Cloud)
    assert device_of("a100-sxm-80").flops8 == 2 * 312e12  # no 8-bit floats: twice the rate at 16 bits


@pytest.mark.parametrize("name", accelerator_names())
def test_every_accelerator_of_the_catalogue(name):
    limits = tc.limits(name, network=500e9, gpus=[64])
    assert 0 < limits.clusters.utilisation[0] <= 0.8


def test_runs_finish_in_time_on_the_fewest_accelerators():
    """What is trained in the time is what was asked for; more network, larger runs."""
    runs = training(H100, days=90.0)
    there = ~np.isnan(runs.gpus)
    done = runs.gpus * runs.utilisation * 1979e12 / 2 * 90 * 86400
    assert done[there] == pytest.approx(runs.flops[there], rel=1e-12)
    assert (np.diff(runs.utilisation[there]) < 1e-3).all()
    assert (runs.gpus[there][1:] > runs.gpus[there][:-1]).all()
    slow = training(replace(H100, network_bandwidth=100e9), days=90.0)
    assert slow.falls_to(0.4) < runs.falls_to(0.4)
    assert training(H100, batch_growth=1 / 3).falls_to(0.4) > runs.falls_to(0.4)
    assert training(H100, days=180.0).falls_to(0.4) > runs.falls_to(0.4)
    assert runs.falls_to(0.9) is None
    assert runs.falls_to(1e-6) is None


def test_half_the_utilisation_takes_twice_the_accelerators():
    """At the compute where utilisation halves, a grid of its own meets 40 %."""
    at = training(H100).falls_to(0.4)
    assert training(H100, flops=np.array([at])).utilisation[0] == pytest.approx(0.4, rel=0.02)


def test_batches_grow_from_the_largest_known():
    known, tokens = LARGEST_RUN
    assert batch_tokens(np.array([known]))[0] == tokens
    assert batch_tokens(np.array([64 * known]))[0] == pytest.approx(2 * tokens)


def test_all_mistakes_are_reported_at_once():
    with pytest.raises(tc.InputError) as error:
        tc.limits("h101", layer=(0, 5), tokens=1.5, gpus=[0], days=-1.0, batch_growth=2.0, network=-1.0)
    text = str(error.value)
    for problem in (
        "layer[0] = 0",
        "tokens = 1.5",
        "gpus = 0",
        "days = -1.0",
        "batch_growth = 2.0",
        "network = -1.0",
        "'h101'",
    ):
        assert problem in text
    with pytest.raises(tc.InputError, match="give one of them"):
        tc.limits("h100-sxm-80", system="dgx-h100")
    with pytest.raises(tc.InputError, match="give network"):
        tc.limits("mi250x-128")


def test_figures_show_the_limits(tmp_path):
    limits = tc.limits("h100-sxm-80", network=100e9)
    for draw in (figures.utilisation_by_cluster, figures.utilisation_by_compute):
        figure = draw(limits)
        (ax,) = figure.axes
        assert ax.get_ylabel() == "Utilisation of the dense peak"
        figures.save(figure, tmp_path / "figure.svg")
        assert (tmp_path / "figure.svg").stat().st_size > 5000
    line = figures.utilisation_by_cluster(limits).axes[0].lines[0]
    assert list(line.get_ydata()) == list(limits.clusters.utilisation)
    words = " ".join(text.get_text() for text in figures.utilisation_by_compute(limits).axes[0].texts)
    for word, at in (("halves", limits.halves), ("collapses", limits.collapses)):
        exponent = int(np.floor(np.log10(at)))
        superscript = "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(exponent))
        assert f"{word}\n{at / 10**exponent:.0f}×10{superscript}" in words


def test_text_needs_a_unit_where_a_number_is_taken_in_si():
    assert device_of("h100-sxm-80", network="900 GB/s") == device_of("h100-sxm-80", network=9e11)
    with pytest.raises(tc.InputError, match="network = '900': has no unit"):
        tc.limits("h100-sxm-80", network="900")
