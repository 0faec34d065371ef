"""Timeline figures draw exactly the passes of the trace."""

import numpy as np
import pytest
from matplotlib.collections import PolyCollection

import traincast as tc
from traincast.core.plan import Plan
from traincast.ui import figures


def traced(gbs, system="dgx-h100", assumptions=None, **knobs):
    """A trace of a small model."""
    return tc.trace(
        tc.estimate("llama-3-8b", system, Plan(tp=2, dp=2, **knobs), gbs=gbs, assumptions=assumptions)
    )


def spans(ax):
    """Bars of each row: start and end."""
    rows = {}
    for bars in ax.findobj(PolyCollection):
        for path in bars.get_paths():
            (low, under), (high, over) = path.vertices.min(axis=0), path.vertices.max(axis=0)
            rows.setdefault(round((under + over) / 2), []).append((low, high))
    return {row: sorted(intervals) for row, intervals in rows.items()}


@pytest.mark.parametrize(
    "trace",
    [
        traced(16, pp=4),
        traced(32, pp=4, schedule="zb-h1"),
        traced(32, pp=4, schedule="zb-h2", assumptions="paper"),
        traced(32, pp=4, schedule="dualpipe"),
        traced(8),
    ],
    ids=["1f1b", "split", "no barrier", "two ways", "one stage"],
)
def test_every_row_is_filled_from_the_start_of_its_step_to_its_end(trace):
    (ax,) = figures.timeline(trace).axes
    for device, bars in spans(ax).items():
        assert bars[0][0] == pytest.approx(trace.begin[device])
        assert [start for start, _ in bars[1:]] == pytest.approx([end for _, end in bars[:-1]], abs=1e-9)
        assert bars[-1][1] - bars[0][0] == pytest.approx(max(trace.step_seconds, trace.simulated_seconds))
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "the first stage on top"


def test_passes_have_the_numbers_of_their_micro_batches():
    trace = traced(16, pp=4)
    (ax,) = figures.timeline(trace).axes
    written = sorted(
        (round(text.get_position()[1]), text.get_position()[0], int(text.get_text())) for text in ax.texts
    )
    assert [(device, number) for device, _, number in written] == [
        (event.device, event.microbatch) for passes in trace.by_device for event in passes
    ]


def test_a_long_step_is_drawn_in_parts():
    """Without numbers, which have no room, then its beginning and the end of its pipeline with them."""
    trace = traced(256, pp=4, vp=2)
    whole, beginning, end = figures.timeline(trace).axes
    assert not whole.texts
    assert {text.get_text() for text in beginning.texts} >= {"0", "1"}
    assert str(trace.microbatches - 1) in {text.get_text() for text in end.texts}
    assert beginning.get_xlim()[0] == 0
    assert end.get_xlim()[1] >= trace.pipeline_seconds
    assert np.ptp(beginning.get_xlim()) == pytest.approx(np.ptp(end.get_xlim()))


def test_the_same_trace_gives_the_same_bytes(tmp_path):
    for name in ("a.svg", "b.svg"):
        figures.save(figures.timeline(traced(16, pp=2)), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
