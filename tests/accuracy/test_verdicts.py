"""Verdicts of fit against what happened: counts by hand, and tables that say what ran out of memory."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traincast.accuracy.runs.run import Unreadable, read_run
from traincast.accuracy.validation import validate, verdicts_of
from traincast.accuracy.verdicts import MIN_ROWS_OF_BIN, Judged, reliability_bins, sharpest, verdict_errors
from traincast.ui.cli.main import main

# Mistral 7B on A100s of 80 GB in pure bf16: weights, gradients and two moments alone take 4 x 7.24e9 x 2
# bytes, 54 GiB, on one of them; on eight with everything sharded 7 GiB
MISTRAL = {
    "id": "own-1",
    "model": "mistral-7b",
    "seq": "4096",
    "gpu": "a100-sxm-80",
    "gpus": "8",
    "tp": "1",
    "zero": "3",
    "precision": "bf16-pure",
    "mbs": "1",
    "gbs": "8",
    "recompute": "full",
    "framework": "Hugging Face Trainer",
    "tokens_per_s_per_gpu": "3000",
}
WITHOUT_SPEED = MISTRAL | {"id": "own-2", "tokens_per_s_per_gpu": ""}
TOO_LARGE = WITHOUT_SPEED | {"id": "own-3", "gpus": "1", "zero": "0", "mbs": "128", "gbs": "128"}


def judged(ran, probability, share=1.0, framework="a", accelerator="b"):
    return Judged(framework, accelerator, ran, probability, share)


ROWS = st.lists(
    st.builds(
        judged,
        ran=st.booleans(),
        probability=st.floats(0, 1),
        share=st.floats(0.01, 100),
        framework=st.sampled_from("abc"),
    ),
    max_size=200,
)


def test_verdicts_by_hand():
    """Of four that ran two are called no, one of them surely; of two that ran out one is called fits."""
    rows = [judged(True, chance) for chance in (0.9, 0.6, 0.3, 0.01)]
    rows += [judged(False, chance) for chance in (0.7, 0.1)]
    found = verdict_errors(rows)
    assert (found.rows, found.ran, found.out_of_memory) == (6, 4, 2)
    assert (found.ran_called_no, found.out_of_memory_called_fits) == (2, 1)
    assert (found.ran_called_no_share, found.out_of_memory_called_fits_share) == (0.5, 0.5)
    assert (found.uncertain, found.certain_and_wrong) == (3, 1)
    squares = 0.1**2 + 0.4**2 + 0.7**2 + 0.99**2 + 0.7**2 + 0.1**2
    assert found.brier == pytest.approx(squares / 6)


def test_no_rows_have_no_shares():
    found = verdict_errors([])
    assert (found.rows, found.brier, found.ran_called_no_share) == (0, None, None)
    assert not list(reliability_bins([]))


@given(ROWS)
def test_verdicts_of_any_rows(rows):
    found = verdict_errors(rows)
    assert found.ran + found.out_of_memory == found.rows == len(rows)
    assert found.brier is None or 0 <= found.brier <= 1
    assert found.certain_and_wrong <= found.ran_called_no + found.out_of_memory_called_fits
    groups = [verdict_errors([row for row in rows if row.framework == name]) for name in "abc"]
    assert sum(group.ran_called_no for group in groups) == found.ran_called_no
    assert sum(group.rows for group in groups) == found.rows


@given(ROWS)
def test_bins_hold_every_row_once(rows):
    bins = list(reliability_bins(rows))
    if len(rows) < MIN_ROWS_OF_BIN:
        assert not bins
        return
    assert sum(each.rows for each in bins) == len(rows)
    assert all(each.rows >= MIN_ROWS_OF_BIN for each in bins)
    assert all(each.low <= each.stated <= each.high for each in bins)
    assert sum(each.ran * each.rows for each in bins) == pytest.approx(sum(row.ran for row in rows))


def test_the_sharpest_are_nearest_to_capacity():
    """Of ten the three nearest: half of the capacity is as far from it as twice."""
    shares = (0.1, 0.5, 0.9, 1.05, 1.2, 2.1, 3, 4, 5, 6)
    assert [row.share for row in sharpest([judged(True, 0.5, share) for share in shares])] == [1.05, 0.9, 1.2]


def test_a_row_without_a_measurement_ran_out_of_memory():
    report = validate([MISTRAL, WITHOUT_SPEED, TOO_LARGE])
    assert [row.outcome for row in report.predictions] == ["ran", "out-of-memory", "out-of-memory"]
    assert report.predictions[0].fits_probability > 0.95
    assert report.predictions[2].fits_probability < 0.05
    assert report.predictions[2].measured_step_seconds is None
    total = report.fits.total
    assert (total.rows, total.ran, total.out_of_memory) == (3, 1, 2)
    assert (total.ran_called_no, total.out_of_memory_called_fits, total.certain_and_wrong) == (0, 1, 1)
    assert list(report.fits.by_framework) == ["Transformers"]
    assert list(report.fits.by_accelerator) == ["A100 SXM4 80 GB"]
    assert report.assumed_out == 2
    assert report.summaries[0].n == 1  # a verdict is no error of the step time


def test_outcomes_that_a_row_states():
    assert read_run(WITHOUT_SPEED).outcome == "out-of-memory"
    assert read_run(WITHOUT_SPEED | {"outcome": "Ran"}).outcome == "ran"
    assert read_run(MISTRAL | {"outcome": "ran"}).outcome == "ran"
    assert read_run(WITHOUT_SPEED | {"memory_gb_published": "20"}).outcome == "ran"
    stated = read_run(WITHOUT_SPEED | {"outcome": "out-of-memory"})
    assert stated.outcome == "out-of-memory"
    assert "outcome" not in stated.assumed


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"outcome": "crashed"}, "outcome = 'crashed': must be one of ran, out-of-memory"),
        ({"outcome": "out-of-memory"}, "what ran out of memory has no tokens_per_s_per_gpu"),
    ],
)
def test_outcomes_that_no_row_has(cells, reason):
    with pytest.raises(Unreadable, match=reason):
        read_run(MISTRAL | cells)


def test_what_is_filled_in_so_that_it_fits_is_not_judged():
    report = validate(
        [MISTRAL, MISTRAL | {"id": "own-4", "mbs": ""}, MISTRAL | {"id": "own-5", "recompute": ""}]
    )
    assert report.fits.total.rows == 1
    (n,) = report.fits.not_judged.values()
    assert n == 2


def test_verdicts_of_several_tables_add_up():
    reports = [validate([MISTRAL]), validate([WITHOUT_SPEED | {"id": "other-1"}])]
    both = verdicts_of(reports).total
    assert (both.rows, both.ran, both.out_of_memory) == (2, 1, 1)


def test_validate_prints_verdicts(tmp_path, capsys):
    table = tmp_path / "runs.csv"
    lines = [",".join(MISTRAL), *(",".join(row.values()) for row in (MISTRAL, WITHOUT_SPEED, TOO_LARGE))]
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    main(["validate", "--runs", str(table), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["fits"]["ran"] == 1
    assert printed["fits"]["out_of_memory"] == 2
    assert printed["rows"][2]["outcome"] == "out-of-memory"
    main(["validate", "--runs", str(table)])
    text = " ".join(capsys.readouterr().out.split())
    assert "0 of 1 rows that ran are called no, 1 of 2 that ran out of memory fit" in text
    assert "2 rows, which count as out of memory" in text
