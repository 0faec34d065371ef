"""Measured iterations beside the speed-up formula; expected values by hand from the file's seconds."""

import pytest

import traincast as tc
from log_files import written
from traincast.analysis.measured_iterations import measured_scaling

GPUS = [8, 64, 512]


@pytest.fixture(scope="module")
def stages():
    return tc.scaling("gpt-13b", "polaris", gpus=GPUS, zero=[1, 3])[1]


def test_efficiency_is_that_of_weak_scaling_and_the_error_leaves_out_the_fewest_gpus(tmp_path, stages):
    text = "zero,gpus,seconds\n1,64,5\n1,8,4\n1,512,8\n3,8,4\n3,64,4.5\n"
    first, third = measured_scaling(written(tmp_path, "m.csv", text), stages)
    assert [(row.gpus, row.efficiency) for row in first.iterations] == [(8, 1), (64, 0.8), (512, 0.5)]
    formula = stages[0].efficiency
    expected = ((0.8 - formula[1]) ** 2 + (0.5 - formula[2]) ** 2) / 2
    assert first.mean_squared_error == pytest.approx(expected)
    assert third.mean_squared_error == pytest.approx((4 / 4.5 - stages[1].efficiency[1]) ** 2)


def test_a_column_of_stages_is_not_needed_for_one(tmp_path, stages):
    path = written(tmp_path, "m.csv", "gpus,seconds\n8,4\n64,5\n")
    (only,) = measured_scaling(path, stages[:1])
    assert (only.zero, len(only.iterations)) == (1, 2)


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("", ["gpus and seconds"]),
        ("gpus\n8\n", ["seconds not found"]),
        ("gpus,seconds\n8,4\n64,5\n", ["no column zero", "--zero"]),
        ("zero,gpus,seconds\n2,8,4\n", ["line 2", "zero = '2'", "1, 3"]),
        ("zero,gpus,seconds\n1,9,4\n1,8,-1\n", ["gpus = '9'", "8, 64, 512", "line 3", "seconds = '-1'"]),
        ("zero,gpus,seconds\n1,8,nan\n1,8,inf\n1,8\n", ["'nan'", "'inf'", "seconds = None"]),
        ("zero,gpus,seconds\n1,8,4\n1,8,5\n", ["line 3", "given twice"]),
        ("zero,gpus,seconds\n1,8,4,5\n", ["line 2: has more cells than the header"]),
        ("zero,gpus,seconds\n1,64,5\n3,8,4\n", ["no row of 8 GPUs", "no row of more than 8 GPUs"]),
        ('zero,gpus,seconds\n1,8,"4\n', ["unexpected end of data"]),
    ],
)
def test_files_that_do_not_belong_to_the_question_are_refused(tmp_path, stages, text, messages):
    with pytest.raises(tc.InputError) as refused:
        measured_scaling(written(tmp_path, "m.csv", text), stages)
    for message in messages:
        assert message in str(refused.value)


def test_a_missing_file_is_named(tmp_path, stages):
    with pytest.raises(tc.InputError, match="no such file"):
        measured_scaling(tmp_path / "none.csv", stages)
