"""Reader of all formats: examples, tables of runs, and files that are unknown, cut or damaged."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traincast as tc
from log_files import CLUSTER, example, written
from normalise import published
from traincast.accuracy.logs import TrainingRows, read
from traincast.accuracy.logs.rows import TRAINING
from traincast.accuracy.runs import run as measurements
from traincast.accuracy.runs.cells import Unreadable
from traincast.catalog.facts import FACTS

ROOT = Path(__file__).parents[3]
GIVEN = {  # what the examples' files leave open
    "megatron.log": {"gpu": "h100-sxm-80"},
    "torchtitan.log": {},
    "deepspeed.log": {"model": "llama-3-8b", "seq": 4096, "recompute": "full", "gpu": "h100-sxm-80"},
    "all_reduce.txt": {},
    "gemm.csv": {},
    "runs.csv": {},
}


def test_every_example_run_can_be_predicted():
    runs = [
        row
        for name in ("runs.csv", "megatron.log", "torchtitan.log", "deepspeed.log")
        for row in read(CLUSTER / name, **GIVEN[name]).rows
    ]
    for cells in runs:
        run = measurements.read_run(cells)
        assert run.system.name == tc.load_system("dgx-h100").name
        est = tc.estimate(run.model, run.system, run.plan, gbs=run.gbs, assumptions=run.stack)
        assert (
            0.4 < est.step_seconds / run.step_seconds < 2.5
        )  # invented from a prediction of one day, × 1.05


def test_the_example_says_that_it_is_invented():
    assert "Every figure in this folder is invented" in example("README.md")
    assert {row["notes"] for row in read(CLUSTER / "runs.csv").rows} == {"invented"}


def test_my_runs_holds_rows_that_are_skipped_with_a_reason():
    report = tc.validate(ROOT / "tests" / "data" / "my_runs.csv")
    skipped = {prediction.id: prediction.skipped for prediction in report.predictions}
    assert [name for name, reason in skipped.items() if reason is None] == [
        "mine-1",
        "mine-2",
        "mine-3",
        "mine-4",
    ]
    assert "gbs is not known" in skipped["mine-5"]
    assert "abacus-1" in skipped["mine-6"]
    reading = read(ROOT / "tests" / "data" / "my_runs.csv")
    assert [row["id"] for row in reading.rows] == ["mine-1", "mine-2", "mine-3", "mine-4"]
    assert reading.left_out == tuple(f"{name}: {skipped[name]}" for name in ("mine-5", "mine-6"))
    assert read(ROOT / "tests" / "data" / "my_runs.csv", gbs=64).rows[4]["gbs"] == "64"


@pytest.mark.parametrize("number_of_it", ["1e999", "nan", "inf", "-inf"])
def test_a_row_whose_number_is_not_finite_is_left_out(tmp_path, number_of_it):
    table = (
        (ROOT / "tests" / "data" / "my_runs.csv")
        .read_text(encoding="utf-8")
        .replace(",128256,", f",{number_of_it},", 1)
    )
    reading = read(written(tmp_path, "runs.csv", table))
    assert reading.left_out[0] == f"mine-1: row 2: vocab = '{number_of_it}' is no finite number"


@pytest.mark.parametrize("name", ["tp", "pp", "cp", "ep", "vp", "gpus", "gpus_per_node"])
def test_a_degree_of_nothing_is_left_out(tmp_path, name):
    path = ROOT / "tests" / "data" / "my_runs.csv"
    table = [row | {name: "0", "zero": "hsdp"} for row in measurements.rows(path)]
    for row in table[:4]:
        with pytest.raises(Unreadable, match=f"{name} = 0: must be at least 1"):
            measurements.read_run(row)


@pytest.mark.parametrize(
    "content",
    ["", "  \n", "hello\nworld\n", "{}", "[1]", "a,b,c\n1,2,3\n", "\0" * 64, b"\xff\xfe\xff", b"\xfe\xffa"],
)
def test_unrecognised_files_are_refused(tmp_path, content):
    with pytest.raises(tc.InputError):
        read(written(tmp_path, "x.log", content))


def test_files_that_are_not_there(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere.log"):
        with pytest.raises(tc.InputError):
            read(path)


def test_unused_given_values_are_refused(tmp_path):
    with pytest.raises(tc.InputError, match="tp: not used by this kind of file"):
        read(CLUSTER / "all_reduce.txt", tp=8)


@pytest.mark.parametrize("name", sorted(GIVEN))
@settings(max_examples=40)
@given(data=st.data())
def test_a_file_that_is_cut_or_damaged_is_read_or_refused(tmp_path_factory, name, data):
    text = example(name)
    begin = data.draw(st.integers(0, len(text) // 2))
    end = data.draw(st.integers(begin, len(text)))
    damage = data.draw(
        st.lists(
            st.tuples(st.integers(0, max(end - begin - 1, 0)), st.sampled_from('0-9.,;:{}[]"|=\n\r #x9')),
            max_size=20,
        )
    )
    cut = list(text[begin:end])
    for at, mark in damage:
        cut[at : at + 1] = mark
    path = written(tmp_path_factory.mktemp("cut"), name, "".join(cut))
    with contextlib.suppress(tc.InputError):
        reading = read(path, **GIVEN[name])
        assert reading.rows
        if isinstance(reading, TrainingRows) and name != "runs.csv":
            assert all(0 < float(row["step_seconds"]) < float("inf") for row in reading.rows)


@settings(max_examples=60)
@given(
    st.text(),
    st.sampled_from(
        [
            "SamplesPerSec=1,",
            "step: 1  loss: 1 tps: 9 ",
            "Step Time : 1s",
            "algbw busbw",
            "m,n,k,us\n",
            "id,step_seconds\n",
        ]
    ),
)
def test_noise_around_a_sign(tmp_path_factory, noise, sign):
    path = written(tmp_path_factory.mktemp("noise"), "x.log", (noise + sign + noise).encode(errors="replace"))
    with pytest.raises(tc.InputError):
        read(path)


def test_columns_are_those_of_the_published_table():
    # of the others no published run states anything
    assert set(TRAINING) - set(published()[0]) - set(FACTS) == {
        "stack",
        "step_spread",
        "steps_measured",
        "system",
    }
