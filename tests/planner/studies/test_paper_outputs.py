"""Results of the reference code of arXiv 2410.00273 as tables."""

import pickle
from tokenize import TokenError

import numpy as np
import pytest

import traincast as tc
from traincast.planner.studies import paper_outputs

# exec_1d_gpt3_1T_A100-NVS4.npy of the reference code: its best plan on 512 GPUs, in its own types
BEST = (
    np.float64(6.668817027224912),
    np.float64(73.42104576),
    {"dp": np.int64(1), "tp": 16, "pp": 32, "mbs": 1},
    {
        "t": np.float64(614.2018866732147), "t_comp": np.float64(412.0667882144163),
        "t_mem": np.float64(4.444454354168635), "t_tp_comm": np.float64(189.9682669714286),
        "t_dp_comm": np.int64(0), "t_pp_comm": np.float64(3.108793782857143),
        "t_bubble": np.float64(4.613583350343992), "wts_mem": np.float64(3.93344),
        "wts_grad_mem": np.float64(3.93344), "wts_optimizer_states_mem": np.float64(23.60064),
        "acts_mem": np.float64(41.95352576), "nv_tp": 4, "nv_dp": 1, "nv_pp": 1,
    },
)  # fmt: skip


def write(path, content):
    array = np.empty((1, 5), dtype=object)
    array[0] = content
    np.save(path, array, allow_pickle=True)
    return path


@pytest.fixture
def file(tmp_path):
    """512 GPUs as published, and 256 on which nothing fits."""
    content = [4, [BEST[0]], [BEST[0]], np.array([256, 512]), [[], [BEST]]]
    return write(tmp_path / "exec_1d_gpt3_1T_A100-NVS4.npy", content)


def test_a_plan_is_that_of_the_estimator(file):
    frame = paper_outputs.read_paper_outputs(file)
    assert frame["step_seconds"].to_list() == [None, 614.2018866732147]
    row = frame.row(1, named=True)
    assert (row["model"], row["system"], row["strategy"], row["gbs"]) == ("gpt3-1t", "a100-nvs4", "1d", 4096)
    plan = tc.Plan(**{name: row[name] for name in ("tp", "pp", "dp", "mbs", "fast_tp", "fast_pp", "fast_dp")})
    est = tc.estimate("gpt3-1t", "a100-nvs4", plan, gbs=4096, assumptions="paper-published")
    assert row["memory_bytes"] == pytest.approx(float(est.memory_bytes), rel=1e-12)
    assert row["training_days"] == pytest.approx(float(est.training_days), rel=1e-12)
    for name, seconds in est.breakdown.items():
        assert row[name] == pytest.approx(float(seconds), rel=1e-9, abs=1e-9)


def test_it_can_be_drawn(file):
    from traincast.ui.figures.from_files import draw_study

    for kind in ("scaling", "throughput", "optima"):
        assert draw_study(file, kind).axes
    assert draw_study(file.parent, "scaling").axes, "a folder of files"
    with pytest.raises(tc.InputError, match="varies 0 axes"):
        draw_study(file, "contour")


def test_it_becomes_the_table_of_a_study(file, tmp_path, capsys):
    from traincast.planner.studies.results import read_results
    from traincast.ui.cli.main import main

    table = tmp_path / "table.parquet"
    main(["study", str(file), "--output", str(table)])
    assert "2 rows" in capsys.readouterr().out
    assert read_results(table).frame.equals(read_results(file).frame)
    with pytest.raises(SystemExit, match="2"):
        main(["study", str(file), "--output", str(table), "--shard", "1/2"])
    assert "--shard" in (said := capsys.readouterr().err), said


def test_an_untrusted_file_cannot_run_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return print, ("run",)

    path = write(tmp_path / "exec_1d_gpt3_1T_A100-NVS4.npy", [4, [], [], np.array([4]), [[Evil()]]])
    with pytest.raises(tc.InputError, match="none of arrays and numbers"):
        paper_outputs.read_paper_outputs(path)


@pytest.mark.parametrize("content", [b"", b"no array", pickle.dumps([1, 2])])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "exec_1d_gpt3_1T_A100-NVS4.npy"
    path.write_bytes(content)
    with pytest.raises(tc.InputError, match="cannot be read"):
        paper_outputs.read_paper_outputs(path)
    other = tmp_path / "other.npy"
    other.write_bytes(content)
    with pytest.raises(tc.InputError, match="the name must be"):
        paper_outputs.read_paper_outputs(other)


def first_of(array):
    """Save an array in place of the numbers of GPUs."""
    return [[4, [], [], array, [[]]]]


def plan_with(**changes):
    per_second, memory, degrees, stats = BEST
    return [[4, [], [], [4], [[(per_second, memory, degrees, stats | changes)]]]]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (first_of(np.zeros(1, dtype=[("a", "i8")])), "neither numbers nor objects"),
        (first_of(np.array(["4"])), "neither numbers nor objects"),
        (first_of(np.zeros((1, 1, 1))), "no array of shape"),
        (first_of(np.asfortranarray(np.ones((2, 2)))), "row by row"),
        (first_of([np.datetime64("2024-01-01")]), "neither numbers nor objects"),
        (first_of([4, 8]), "1 lists of plans for 2 numbers of GPUs"),
        (first_of([float("nan")]), "finite"),
        (first_of([0]), "greater than 0"),
        (first_of(["four"]), "valid integer"),
        (first_of(None), "valid list"),
        ([[1, 2, 3, [8], [[None]]]], "valid tuple"),
        ([[1, 2, 3, [8], {}]], "valid list"),
        ([[1, 2, 3]], "Field required"),
        (plan_with(t=float("inf")), "finite"),
        (plan_with(t_comp="a while"), "valid number"),
        ([[4, [], [], [4], [[(1.0, 1.0, {}, {})]]]], "without dp, pp, mbs, tp"),
        ([[4, [], [], [4], [[(1.0, 1.0, BEST[2], {"t": 1.0})]]]], "without nv_dp"),
    ],
)
def test_the_content_of_an_untrusted_file_is_checked(tmp_path, content, reason):
    """Harmless files with what the code never writes: each is refused with the place and the reason."""
    array = np.empty(len(content), dtype=object)
    array[:] = content
    path = tmp_path / "exec_1d_gpt3_1T_A100-NVS4.npy"
    np.save(path, array, allow_pickle=True)
    with pytest.raises(tc.InputError, match="cannot be read as results of the code") as error:
        paper_outputs.read_paper_outputs(path)
    assert reason in str(error.value)


@pytest.mark.parametrize("content", [7, None, {}, {"t": 1}, "text", [[]], 1.5])
def test_an_untrusted_file_without_rows_is_refused(tmp_path, content):
    header = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little")
    described = b"{'descr': '|O', 'fortran_order': False, 'shape': (), }".ljust(117) + b"\n"
    path = tmp_path / "exec_1d_gpt3_1T_A100-NVS4.npy"
    path.write_bytes(header + described + pickle.dumps(content))
    with pytest.raises(tc.InputError, match="cannot be read as results of the code"):
        paper_outputs.read_paper_outputs(path)


def test_a_header_that_numpy_cannot_split_into_tokens_is_refused(monkeypatch, file):
    def read_header(_):
        raise TokenError("unexpected end")

    monkeypatch.setattr(np.lib.format, "read_array_header_1_0", read_header)
    with pytest.raises(tc.InputError, match="cannot be read as results of the code"):
        paper_outputs.read_paper_outputs(file)


def test_an_untrusted_file_is_bounded(tmp_path, monkeypatch, file):
    monkeypatch.setattr(paper_outputs, "MAX_BYTES", 100)
    with pytest.raises(tc.InputError, match="larger than 100 bytes"):
        paper_outputs.read_paper_outputs(file)
