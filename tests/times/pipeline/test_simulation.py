"""Simulated timelines that are small enough to draw by hand."""

import pytest

from traincast.core.errors import InputError
from traincast.times.pipeline.schedules import SCHEDULES, Action
from traincast.times.pipeline.simulation import run, simulate


def drawn(timeline, unit=1.0):
    """One row per device, one letter per unit of time: a forward pass 0-9, B a-j, W A-J, BW a-j; a
    dot waits."""
    rows = [["."] * round(timeline.seconds / unit) for _ in range(timeline.pp)]
    letters = {"F": "0123456789", "B": "abcdefghij", "BW": "abcdefghij", "W": "ABCDEFGHIJ"}
    for task in timeline.passes:
        for cell in range(round(task.start / unit), round(task.end / unit)):
            rows[task.device][cell] = letters[task.kind][task.microbatch]
    return ["".join(row) for row in rows]


def test_gpipe_by_hand():
    """2 stages, 3 micro-batches, backward twice as long: 3 + 1 units to fill and drain each way (arXiv
    1811.06965, figure 2c)."""
    assert drawn(simulate("gpipe", [1, 1], [1, 1], [1, 1], 3)) == [
        "012...ccbbaa",
        ".012ccbbaa..",
    ]


def test_1f1b_by_hand():
    """3 stages, 4 micro-batches, backward as long as forward: (4 + 2) · 2 units (arXiv 2104.04473, figure 3,
    top)."""
    timeline = simulate("1f1b", [1, 1, 1], [1, 1, 1], [0, 0, 0], 4)
    assert drawn(timeline) == [
        "012..a3b.c.d",
        ".01.a2b3c.d.",
        "..0a1b2c3d..",
    ]
    assert timeline.peak_in_flight.tolist() == [3, 2, 1]
    assert timeline.busy.tolist() == [8, 8, 8]
    assert timeline.idle.tolist() == [4, 4, 4]


def test_interleaved_by_hand():
    """2 devices of 2 chunks, 2 micro-batches: 8 units of work, and half of a micro-batch's 4 lost (arXiv
    2104.04473, figure 4)."""
    timeline = simulate("1f1b", [1] * 4, [1] * 4, [0] * 4, 2, v=2)
    assert drawn(timeline) == [
        "0101.a.bab",  # chunks 0 0 2 2, then backward 2 2 0 0
        ".010a1bab.",  # chunks 1 1 3, backward 3, 3 and back, 1 1
    ]
    assert timeline.peak_in_flight.tolist() == [2.0, 1.5]  # (2 · 1 + 2 + 1)/2 capped at 2, and (0 + 2 + 1)/2


def test_zb_h1_by_hand():
    """2 stages, F = B = W: the last device puts the first W off, one unit lost (arXiv 2401.10241, table 2: F
    + B - W)."""
    assert drawn(simulate("zb-h1", [1, 1], [1, 1], [1, 1], 3)) == [
        "01.aA2bBcC",
        ".0a1bA2cBC",
    ]


def test_zb_h2_by_hand():
    """2 stages, F = B = W: no device waits within its own step (arXiv 2401.10241, figure 3)."""
    timeline = simulate("zb-h2", [1, 1], [1, 1], [1, 1], 4)
    assert drawn(timeline) == [
        "012aA3bBcCdD.",
        ".0a1b2cA3dBCD",
    ]
    assert (timeline.seconds, timeline.period) == (13, 12)


@pytest.mark.parametrize("pp", [2, 3, 4])
def test_zb_h2_holds_2_pp_minus_1_micro_batches(pp):
    """On every device, of which the last ones wait for W alone (arXiv 2401.10241, table 2)."""
    ones, nm = [1] * pp, 2 * pp + 1
    timeline = simulate("zb-h2", ones, ones, ones, nm)
    assert timeline.peak_in_flight.tolist() == [2 * pp - 1] * pp
    assert [SCHEDULES["zb-h2"].in_flight(pp, stage, nm, 1) for stage in range(pp)] == [2 * pp - 1] * pp
    assert SCHEDULES["zb-h2"].in_flight(pp, 0, 1, 1) == 1  # no more than there are


def test_a_transfer_delays_what_follows_it():
    """2 stages, 1 micro-batch: F, hop, F, B, hop, B."""
    assert simulate("1f1b", [1, 1], [2, 2], [0, 0], 1, transfer=0.25).seconds == 6.5


def test_devices_that_wait_for_each_other_are_named():
    backward_first = [[(Action("BW", 0, 0),), (Action("F", 0, 0),)]]
    with pytest.raises(InputError, match="device 0 waits for ever before"):
        run(backward_first, {"F": [1.0], "BW": [1.0]}, lambda key, device, end: end)
