"""The published figures that `reproduce` compares: a wrong one of any column is found."""

import pytest

from traincast.planner import paper_results

ROWS = [row for row in paper_results._published_rows("configurations") if row["strategy"] == "1d"][1::300]
FIGURES = [name for name in ROWS[0] if name.startswith(("published_", "corrected_"))]


def test_every_kind_of_figure_is_published():
    assert {"published_step_time_s", "corrected_memory_bytes", "published_flops_per_gpu"} <= set(FIGURES)


def test_rows_as_they_stand_are_met():
    assert len(ROWS) == 3
    assert paper_results._configurations("gpt3_1T", "1d", ROWS).worst_difference < 1e-9


@pytest.mark.parametrize("figure", FIGURES)
def test_a_wrong_figure_is_found(figure):
    first, *others = ROWS
    wrong = first | {figure: str(1.5 * float(first[figure]) + 1)}
    found = paper_results._configurations("gpt3_1T", "1d", [wrong, *others])
    assert found.worst_difference > 0.001
