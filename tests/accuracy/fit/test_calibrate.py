"""Fits of constants to measurements: planted values are recovered, undetermined ones are reported."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traincast as tc
from refit import table, write_catalogue
from traincast.accuracy.fit.calibrate import calibrate
from traincast.accuracy.fit.fit import fit
from traincast.accuracy.fit.fitted_yaml import load, text_of, write_value
from traincast.accuracy.fit.least_squares import Data, fit_linearised, solve
from traincast.accuracy.fit.measured_files import read_measurements as read_measured
from traincast.accuracy.fit.parameters import (
    Parameter,
    Setting,
    fitted_constant,
    prior_precision,
    touching_stack,
)
from traincast.accuracy.fit.residuals import MeasuredRuns, bundled_runs
from traincast.accuracy.runs.run import read_run
from traincast.catalog.documents import catalogue
from traincast.catalog.load import figures
from traincast.catalog.schema.messages import check
from traincast.catalog.schema.system import system_file
from traincast.catalog.software import FILES
from traincast.catalog.software_stacks import resolve
from traincast.core.errors import InputError
from traincast.core.quantities import nonzero
from traincast.ui.cli.main import main

pytest.importorskip("scipy", reason="calibration is an extra")
MINE = Path(__file__).parents[3] / "examples" / "my_cluster"


def accelerator(field, prior, sigma, *of, **rest):
    return Parameter(path=f"accelerator.{field}", of=of, prior=prior, sigma=sigma, **rest)


PARAMETERS = (
    accelerator("matrix_sustained", 0.8, 0.1, "a100-sxm-80", high=1.0),
    Parameter(path="stack.collectives.skew_seconds", of=("megatron-deepspeed-2022",), prior=1e-4, sigma=0.5),
    Parameter(
        path="network.0.efficiency", of=("dgx-a100", "hgx-a100-hdr-4x200"), prior=0.8, sigma=0.2, high=1.0
    ),
    Parameter(path="universal.host.straggling", prior=0.003, sigma=1.0),
    accelerator("matrix_sustained", 0.8, 0.1, "mi355x-288"),
)


@pytest.fixture(scope="module")
def runs():
    return bundled_runs()


@pytest.fixture(scope="module")
def some(runs):
    return [run for run in runs if run.id.split("-")[0] in ("korth", "zb", "vtrain", "nemo")][::12]


def test_derivatives_match_changes_of_single_parameters(runs):
    evidence = MeasuredRuns(runs[::12], PARAMETERS)
    priors = [parameter.prior for parameter in PARAMETERS]
    base = evidence.predict(priors)
    _, slopes = evidence.residuals(np.zeros(len(PARAMETERS)))
    for i, parameter in enumerate(PARAMETERS):
        moved = evidence.predict([value * (1.001 if i == j else 1) for j, value in enumerate(priors)])
        expected = np.nan_to_num(np.log(moved / base) / np.log(1.001) * parameter.sigma)
        assert slopes[:, i] == pytest.approx(expected, abs=1e-9)


def test_nearly_equal_assumptions_share_an_evaluation():
    """Formulas ask of a column whether any of its numbers is not 0."""
    assert nonzero(np.array([[0.5], [0.0]]))
    assert not nonzero(np.zeros((2, 1)))
    assert nonzero(0.5)
    assert not nonzero(0.0)


def test_a_configuration_without_a_log_is_refused(tmp_path):
    """A table of runs has all of its settings; the configuration would be ignored."""
    (tmp_path / "ds_config.json").write_text("{}")
    for files in ({"runs": [MINE / "runs.csv"]}, {"gemm": [MINE / "gemm.csv"]}):
        with pytest.raises(
            InputError, match=r"config = .*: configures runs with a training log; none is given"
        ):
            calibrate("dgx-h100", config=tmp_path / "ds_config.json", **files)


def test_planted_values_are_found_within_their_intervals(some):
    planted = (0.71, 2.3e-4, 0.62, 0.006, 0.8)
    truth = MeasuredRuns(some, PARAMETERS).predict(planted)
    noise = np.random.default_rng(1).normal(0, 0.02, len(some))
    seen = [
        replace(run, step_seconds=float(t * np.exp(e))) for run, t, e in zip(some, truth, noise, strict=True)
    ]
    done = fit(PARAMETERS, seen)
    for value, constant in zip(planted, done.constants, strict=True):
        assert not constant.determined or constant.low <= value <= constant.high
        assert not constant.determined or constant.value == pytest.approx(value, rel=0.15)
    assert done.solution.determined.tolist()[:2] == [True, True]
    assert np.abs(done.solution.residuals).mean() < 0.025 < np.abs(done.before).mean()


def test_parameters_without_runs_are_undetermined_and_keep_their_prior(some):
    done = fit(PARAMETERS, some[::8])
    assert not done.solution.determined[-1]
    assert done.constants[-1].value == pytest.approx(0.8)
    assert done.constants[-1].runs == 0
    assert "mi355x-288:accelerator.matrix_sustained" in table(done)
    assert "touches no run" in table(done)


def test_groups_left_out_are_predicted_without_them(runs):
    few = [run for run in runs if run.id.startswith(("korth", "zb"))]
    slow = [
        replace(run, step_seconds=run.step_seconds * 1.2) if run.id.startswith("zb") else run for run in few
    ]
    done = fit(PARAMETERS[:1], slow)
    sources = [run.id.split("-")[0] for run in slow]
    held_out = done.left_out(sources)
    for source in ("korth", "zb"):  # a true refit without the source says the same
        refitted = fit(
            PARAMETERS[:1], [run for run, name in zip(slow, sources, strict=True) if name != source]
        )
        rows = [i for i, name in enumerate(sources) if name == source]
        values = [constant.value for constant in refitted.constants]
        expected = MeasuredRuns(slow, PARAMETERS[:1]).predict(values)[rows] / done.measured.measured[rows]
        assert held_out[rows] == pytest.approx(np.log(expected), abs=0.01, nan_ok=True)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1.5, 1.5), min_size=3, max_size=3), st.integers(0, 1000))
def test_a_plane_is_solved(
    truth, seed
):  # without noise: the least squares solution with the prior, by the normal equations
    rng = np.random.default_rng(seed)
    slopes = rng.normal(0, 1, (40, 3))
    y0 = -slopes @ np.array(truth)
    data = Data(np.full(40, 1.0), np.full(40, 1000.0), list(range(40)))  # so wide that soft l1 is a square
    bounds = (np.full(3, -9.0), np.full(3, 9.0))
    solution = solve(lambda theta: (y0 + slopes @ theta, slopes), data, np.zeros(3), bounds)
    exact = np.linalg.solve(slopes.T @ slopes / 1e6 + np.eye(3), -slopes.T @ y0 / 1e6)
    assert solution.theta == pytest.approx(exact, abs=1e-6)
    assert not solution.determined.any()


def test_what_one_stack_tells_moves_the_like_of_others_by_the_correlation_of_their_priors():
    passes = [
        Parameter(path="stack.traffic.elementwise_passes", of=(stack,), prior=1.0, sigma=0.2)
        for stack in ("megatron-core-2024", "torchtitan-2025")
    ]
    rate = Parameter(path="accelerator.matrix_sustained", of=("h100-sxm-80",), prior=0.7, sigma=0.1)
    prior = prior_precision((*passes, rate), pooled=0.5)
    slopes = np.tile([1.0, 0.0, 0.0], (20, 1))  # rows of the first stack alone
    data = Data(np.ones(20), np.ones(20), list(range(20)))
    bounds = (np.full(3, -9.0), np.full(3, 9.0))
    # so near that soft l1 is a square
    solution = solve(lambda theta: (slopes @ theta - 0.01, slopes), data, np.zeros(3), bounds, prior=prior)
    alone = 20 * 0.01 / (20 + 1)  # the mean of a normal distribution after 20 rows, the prior's being 0
    assert solution.theta == pytest.approx([alone, 0.5 * alone, 0.0], rel=1e-3, abs=1e-6)
    assert fit_linearised(solution, data, bounds) == pytest.approx(solution.theta, rel=1e-3, abs=1e-6)


def test_a_value_of_a_framework_holds_for_its_software_unless_a_release_or_fact_says_otherwise():
    framework = Parameter(path="stack.overlap.tp_exposed", of=("megatron-core",), prior=0.9, sigma=0.1)
    everywhere = Parameter(path="universal.overlap.tp_exposed", prior=0.9, sigma=0.1)
    assert touching_stack((framework,), "megatron-core-2024") == (0,)
    assert touching_stack((framework,), "megatron-core-2025+graphs=iteration") == (0,)
    assert touching_stack((framework,), "megatron-core-plain") == ()  # the fact has a value of its own
    assert touching_stack((framework,), "calibrated") == (0,)  # stands for it
    assert touching_stack((framework,), "composer-fsdp-2023") == ()
    assert touching_stack((framework, everywhere), "composer-fsdp-2023") == (1,)
    release = Parameter(
        path="stack.overlap.tp_exposed", of=("megatron-core-until-2025",), prior=0.5, sigma=0.1
    )
    assert touching_stack((framework, release), "megatron-core-2024") == (1,)
    of_stack = Parameter(path="stack.overlap.tp_exposed", of=("megatron-core-2024",), prior=0.5, sigma=0.1)
    assert touching_stack((framework, release, of_stack), "megatron-core-2024") == (2,)
    assert touching_stack((framework, release, of_stack), "megascale-2024") == (1,)
    assert (
        Setting((framework, release), (0.9, 0.5))
        .stack_assumptions("megatron-core-2024", tc.load_system("dgx-h100"))
        .overlap.tp_exposed
        == 0.5
    )


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"path": "accelerator.speed"}, "speed"),
        ({"path": "fabric.speed"}, "fabric"),
        ({"prior": 0.0}, "above 0"),
        ({"prior": 2.0}, "not between"),
        ({"of": ()}, "constant of"),
    ],
)
def test_parameters_that_make_no_sense(changes, wrong):
    usual = {
        "path": "accelerator.matrix_sustained",
        "of": ("b200-180",),
        "prior": 0.8,
        "sigma": 0.1,
        "high": 1.0,
    }
    with pytest.raises(InputError, match=wrong):
        Parameter(**usual | changes)


@pytest.mark.parametrize("folder", ["accelerators", "systems", "stacks"])
def test_the_catalogue_is_written_as_it_was_read(folder):
    for file in catalogue(folder).values():
        assert text_of(load(file)) == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_constants_of_software_are_written_as_they_were_read(file):
    assert text_of(load(file)) == file.read_text(encoding="utf-8")


def test_fitted_values_go_to_the_entry_of_their_framework_or_fact(tmp_path):
    (tmp_path / "software").mkdir()
    for file in FILES:
        (tmp_path / "software" / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    passes = Parameter(path="stack.traffic.elementwise_passes", of=("eager",), prior=2.4, sigma=0.2)
    (written,) = write_catalogue([fitted_constant(passes, (2.5, 2.4, 2.6), source="here")], tmp_path)
    entry = "traffic.elementwise_passes: {value: 2.5, low: 2.4, high: 2.6, source: here, basis: fitted}"
    after = written.read_text(encoding="utf-8")
    assert entry in after.partition("\neager:")[2].partition("\n\n")[0]
    changed = set(after.splitlines()) ^ set((FILES[1]).read_text(encoding="utf-8").splitlines())
    assert len(changed) == 2, "the old line and the new one"


def test_what_is_left_of_a_class_is_a_factor_on_the_constant_that_it_is_like():
    """Gaussian arithmetic: the constant's sigma 0.3 and the factor's 0.4 make 0.5, of which 0.6 is shared."""
    path = "stack.traffic.elementwise_passes"
    shared = Parameter(path=path, of=("eager",), prior=2.4, sigma=0.3)
    factors = [
        Parameter(path=path, of=(name,), prior=2.4, sigma=0.5, like="eager", shared=0.6)
        for name in ("eager-fms-fsdp", "eager-internevo")
    ]
    other = Parameter(path=path, of=("xla",), prior=1.0, sigma=0.2)
    correlations = np.linalg.inv(prior_precision((shared, *factors, other), pooled=0.5))
    assert correlations == pytest.approx(
        np.array([[1, 0.6, 0.6, 0.5], [0.6, 1, 0.36, 0.3], [0.6, 0.36, 1, 0.3], [0.5, 0.3, 0.3, 1]])
    )


def test_fitted_values_go_into_the_catalogue(tmp_path):
    for folder in ("accelerators", "systems", "stacks"):
        (tmp_path / folder).mkdir()
    for folder, name in (
        ("accelerators", "h100-sxm-80"),
        ("systems", "dgx-h100"),
        ("stacks", "megatron-core-2025"),
    ):
        (tmp_path / folder / f"{name}.yaml").write_text(
            catalogue(folder)[name].read_text(encoding="utf-8"), encoding="utf-8"
        )
    share = accelerator("matrix_sustained", 0.8, 0.1, "h100-sxm-80")
    hop = Parameter(path="network.1.latency", of=("dgx-h100",), prior=5e-6, sigma=0.3)
    stack = Parameter(path="stack.overlap.tp_exposed", of=("megatron-core-2025",), prior=0.9, sigma=0.1)
    values = [
        fitted_constant(share, (0.71234, 0.7, 0.73), source="here"),
        fitted_constant(hop, (4.2e-6, 4e-6, 5e-6), source="here"),
        fitted_constant(stack, (0.8, 0.7, 0.9), source="here"),
    ]
    written = write_catalogue(values, tmp_path)
    assert [path.stem for path in written] == ["h100-sxm-80", "dgx-h100", "megatron-core-2025"]
    assert (
        "matrix_sustained: {value: 0.7123, low: 0.7, high: 0.73, source: here, basis: fitted}"
        in written[0].read_text()
    )
    assert (
        "latency: {value: 4.2 us, low: 4 us, high: 5 us, source: here, basis: fitted}"
        in written[1].read_text()
    )
    before, after = (
        catalogue("systems")["dgx-h100"].read_text().splitlines(),
        written[1].read_text().splitlines(),
    )
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1
    latency = next(figure for figure in figures(written[1]) if figure.path == "network.1.latency")
    assert (latency.value, latency.low, latency.high, latency.basis) == (4.2e-6, 4e-6, 5e-6, "fitted")


def test_an_interval_holds_its_value():
    document = load(catalogue("systems")["dgx-h100"])
    write_value(
        document,
        fitted_constant(
            Parameter(path="network.1.efficiency", of=("dgx-h100",), prior=0.9, sigma=0.1),
            (0.5, 0.4, 0.6),
            source="here",
        ),
    )
    document["network"][1]["efficiency"]["low"] = 0.55
    with pytest.raises(InputError, match="not between low and high"):
        check(system_file(3), document, "mine")


def own_runs(tmp_path, n, slower):
    """Runs of the example whose step times are the predicted ones times a factor."""
    with (MINE / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))[:n]
    evidence = MeasuredRuns(
        [replace(run, system=tc.load_system("dgx-h100")) for run in map(read_run, rows)], ()
    )
    for row, seconds in zip(rows, evidence.predict(()), strict=True):
        row["step_seconds"] = str(seconds * slower)
    path = tmp_path / "runs.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_three_runs_help(tmp_path):
    result = calibrate("dgx-h100", runs=[own_runs(tmp_path, 3, 1.15)])
    assert result.errors["before"] == pytest.approx(1 - 1 / 1.15, abs=1e-6)
    assert result.errors["after"] < 0.5 * result.errors["before"]
    assert result.errors["held out"] is None
    assert "network.2.latency" in {constant.path for constant in result.undetermined}


def test_a_calibrated_system_is_a_system_file(tmp_path, capsys):
    out = tmp_path / "my.yaml"
    given = [
        "--runs",
        str(MINE / "runs.csv"),
        "--nccl",
        str(MINE / "all_reduce.txt"),
        "--gemm",
        str(MINE / "gemm.csv"),
    ]
    main(["calibrate", "--system", "dgx-h100", *given, "--output", str(out), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert (printed["runs"], printed["collectives"]) == (7, 18)
    assert printed["errors"]["after"] < printed["errors"]["held out"] < printed["errors"]["before"]
    mine = tc.load_system(out)
    assert mine.calibrated_to.startswith("7 runs, 18 ")
    assert tc.load_system("dgx-h100").calibrated_to == ""
    main(["plan", "llama-3-8b", "--system", str(out), "--gpus", "16"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"times are calibrated to your {mine.calibrated_to}; the 90% interval is that of published" in said
    assert "calibrated to published runs" not in said
    share = next(
        constant for constant in printed["constants"] if constant["path"] == "accelerator.matrix_sustained"
    )
    assert mine.accelerator.matrix_sustained == pytest.approx(share["value"], rel=1e-3)
    assert share["low"] < share["value"] < share["high"]
    second = calibrate(out, runs=[MINE / "runs.csv"])  # its figures and intervals are what is believed now
    assert second.errors["before"] == pytest.approx(printed["errors"]["after"], abs=0.005)


def test_software_found_on_a_system_holds_for_its_stack_only(tmp_path):
    out = tmp_path / "my.yaml"
    calibrate("dgx-h100", runs=[own_runs(tmp_path, 7, 1.2)]).write(out)
    document = load(out)
    document["software"] = [{"stack": "megatron-core-2025", "overlap.dp_contention": 0.77}]
    out.write_text(text_of(document))
    plan = tc.Plan(tp=2, dp=8)
    mine = tc.estimate("llama-3-8b", out, plan, gbs=64, assumptions="megatron-core-2025")
    assert mine.assumptions.overlap.dp_contention == 0.77
    assert (
        tc.estimate(
            "llama-3-8b", out, plan, gbs=64, assumptions="calibrated"
        ).assumptions.overlap.dp_contention
        == 0.77
    )
    for other in ("torchtitan-2025", "paper"):
        assert tc.estimate("llama-3-8b", out, plan, gbs=64, assumptions=other).assumptions == resolve(other)
    found = tc.search("llama-3-8b", out, gpus=16, gbs=64, assumptions="megatron-core-2025", top=1)
    assert found.best[1].assumptions.overlap.dp_contention == 0.77


def test_a_calibration_never_overwrites_and_says_what_is_wrong(tmp_path, capsys):
    out = tmp_path / "my.yaml"
    out.write_text("mine")
    runs = ["--runs", str(MINE / "runs.csv")]
    for arguments, wrong in (
        (["--system", "dgx-h100", *runs, "--output", str(out)], "already exists"),
        (["--system", "dgx-h100", *runs, "--output", str(tmp_path / "my.csv")], "ending"),
        (["--system", "dgx-a100", *runs, "--output", str(tmp_path / "b.yaml")], "ran on h100-sxm-80"),
        (["--system", "dgx-h100", "--output", str(tmp_path / "b.yaml")], "nothing was measured"),
        (
            ["--system", "dgx-h100", *runs, "--given", "seq", "--output", str(tmp_path / "b.yaml")],
            "name=value",
        ),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["calibrate", *arguments])
        assert stop.value.code == 2
        assert wrong in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert not (tmp_path / "b.yaml").exists()


def test_a_table_names_models_of_the_catalogue_and_the_command_the_system(tmp_path):
    # as exact as the sizes, accelerator and precision written out, which examples/my_cluster/runs.csv has
    table = csv.DictReader((MINE / "runs.csv").read_text().splitlines())
    names = "model gpus tp cp ep pp vp gbs mbs seq sp recompute flash_attention stack step_seconds"
    lines = [names.replace(" ", ",")] + [",".join(row[name] for name in names.split()) for row in table]
    own = tmp_path / "own.csv"
    own.write_text("\n".join(lines) + "\n")
    given = {"precision": "bf16"}
    short, long = (read_measured("dgx-h100", runs=[path], given=given) for path in (own, MINE / "runs.csv"))
    assert [run.id for run in short.runs[:2]] == ["row 2", "row 3"]
    assert [(run.model.parameters, run.plan, run.step_seconds) for run in short.runs] == [
        (run.model.parameters, run.plan, run.step_seconds) for run in long.runs
    ]
    own.write_text("\n".join(lines).replace("llama-3-8b", "lama-3-8b") + "\n")
    assert "(did you mean llama-3-8b?)" in read_measured("dgx-h100", runs=[own], given=given).left_out[0]


def test_a_given_value_that_a_table_states_otherwise_is_refused(tmp_path, capsys):
    """Given values fill empty cells: one that fills none, and is not what the rows say, was ignored."""
    out = tmp_path / "fitted.yaml"
    runs = ["calibrate", "--system", "dgx-h100", "--runs", str(MINE / "runs.csv"), "--output", str(out)]
    for pair in ("gpus=abc", "gpus=8", "model=gpt3-1t", "recompute=full"):
        with pytest.raises(SystemExit, match="2"):
            main([*runs, "--given", pair])
        name, value = pair.split("=")
        said = " ".join(capsys.readouterr().err.split())
        assert f"{name} = '{value}': stands in every row of" in said
        assert not out.exists()
    gemm = ["--gemm", str(MINE / "gemm.csv"), "--given", "dtype=fp16", "--output", str(out)]
    with pytest.raises(SystemExit, match="2"):
        main(["calibrate", "--system", "dgx-h100", *gemm])
    assert "dtype = 'fp16': stands in every row of" in " ".join(capsys.readouterr().err.split())


def test_a_given_value_fills_empty_cells(tmp_path):
    """One row states its precision, the other has it from what is given."""
    header, first, second, *_ = (MINE / "runs.csv").read_text().splitlines()
    own = tmp_path / "own.csv"
    own.write_text("\n".join((header, first, second.replace(",bf16,", ",,"))) + "\n")
    measured = read_measured("dgx-h100", runs=[own], given={"precision": "fp8"})
    assert [run.plan.precision for run in measured.runs] == ["bf16", "fp8"]


def test_all_problems_of_given_values_are_reported_at_once(tmp_path, capsys):
    files = {
        "empty.csv": "",
        "short.csv": "id,source,layers,hidden,heads\nx,y,1,2,3\n",
        "other.csv": "name,value,third\nx,1,2\n",
        "timeless.csv": "m,n,k\n64,64,64\n",
        "nccl.csv": "op,nodes,gpus_per_node\nallreduce,2,8\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    tables = [str(tmp_path / name) for name in ("empty.csv", "short.csv", "other.csv", "nothing.csv")]
    more = [
        "--nccl",
        str(tmp_path / "nccl.csv"),
        str(MINE / "runs.csv"),
        "--gemm",
        str(tmp_path / "timeless.csv"),
    ]
    with pytest.raises(SystemExit) as stop:
        main(
            [
                "calibrate",
                "--system",
                "dgx-h10",
                "--runs",
                *tables,
                *more,
                "--given",
                "seq",
                "--output",
                "a.txt",
            ]
        )
    said = capsys.readouterr().err
    assert stop.value.code == 2
    for wrong in (
        *(
            "ending '.txt'",
            "write name=value",
            "unknown system 'dgx-h10'",
            "empty.csv: the file is empty",
            "nothing.csv: no such file",
        ),
        "short.csv: as a table of runs it lacks the columns mlp, gpus, seq, precision, gbs, one of "
        "step_seconds, ",
        "other.csv: cannot tell what this is",
        "nccl.csv: as a table of collectives it lacks the columns size_bytes, one of time_us, algbw_gb_s, "
        "busbw_gb_s",
        "runs.csv: holds runs, not collectives: give it as --runs or --log",
        "timeless.csv: time: missing",
    ):
        assert wrong in said


NCCL = """\
# nThread 1 nGpus 1 minBytes 8388608 maxBytes 134217728 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     8388608       2097152     float     sum      -1    211.4   39.68   74.40      0    210.2   39.91   74.83      0
    33554432       8388608     float     sum      -1    402.7   83.32  156.23      0    399.9   83.91  157.33      0
   134217728      33554432     float     sum      -1   1021.8  131.35  246.29      0   1018.0  131.84  247.20      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 159.3
"""  # noqa: E501


@pytest.fixture
def unsaid(tmp_path):
    """Output of nccl-tests without its ranks and program, and products without a type."""
    (tmp_path / "out.txt").write_text(NCCL)
    (tmp_path / "products.csv").write_text("m,n,k,time_us\n4096,4096,4096,210\n8192,8192,8192,1640\n")
    return ["--nccl", str(tmp_path / "out.txt"), "--gemm", str(tmp_path / "products.csv")]


def test_given_values_reach_collectives_and_products(tmp_path, capsys, unsaid):
    given = ["--given", "op=allreduce", "nodes=2", "gpus_per_node=8", "dtype=bf16", "precision=bf16"]
    files = [*unsaid, "--runs", str(MINE / "runs.csv")]
    main(
        ["calibrate", "--system", "dgx-h100", *files, *given, "--output", str(tmp_path / "my.yaml"), "--json"]
    )
    printed = json.loads(capsys.readouterr().out)
    assert [printed[name] for name in ("runs", "collectives", "products")] == [7, 3, 2]
    where = {"op": "allreduce", "nodes": 2, "gpus_per_node": 8}
    measured = calibrate("dgx-h100", nccl=[tmp_path / "out.txt"], **where).measured
    assert [
        (collective.op, collective.nodes, collective.ranks, collective.size_bytes, collective.time_us)
        for collective in measured.collectives
    ] == [
        ("allreduce", 2, 16, 8388608, 211.4),
        ("allreduce", 2, 16, 33554432, 402.7),
        ("allreduce", 2, 16, 134217728, 1021.8),
    ]
    table = tmp_path / "table.csv"  # which says it all but for one cell
    table.write_text("op,nodes,gpus_per_node,size_bytes,time_us\nallgather,,8,8388608,211\n")
    both = calibrate("dgx-h100", nccl=[tmp_path / "out.txt", table], **where).measured.collectives
    assert [(collective.op, collective.nodes) for collective in both][2:] == [
        ("allreduce", 2),
        ("allgather", 2),
    ]


@pytest.mark.parametrize(
    ("given", "expected", "unexpected"),
    [
        (["nodes=2", "dtype=bf16"], ["give op=", "give gpus_per_node="], ["give nodes=", "dtype"]),
        (
            ["op=allreduce", "nodes=two", "gpus_per_node=8", "dtype=int3"],
            ["nodes = 'two'", "dtype = 'int3'"],
            ["give nodes", "give dtype"],
        ),
        (
            ["op=sort", "nodes=2", "gpus_per_node=8", "dtype=bf16"],
            ["op = 'sort': must be one of allreduce"],
            ["give op"],
        ),
        (
            ["op=allreduce", "nodes=2", "gpus_per_node=8", "dtype=bf16", "seq=8"],
            ["seq: not used by these kinds"],
            ["give op"],
        ),
        (["op=", "nodes=2", "gpus_per_node=8", "dtype=bf16"], ["'op=': write name=value"], ["give nodes="]),
        (["dtype=bf16", "dtype=fp8"], ["dtype: given 2 times; give one"], ["give dtype"]),
    ],
)
def test_messages_do_not_request_values_that_were_given(
    tmp_path, capsys, unsaid, given, expected, unexpected
):
    with pytest.raises(SystemExit) as stop:
        main(
            [
                "calibrate",
                "--system",
                "dgx-h100",
                *unsaid,
                "--given",
                *given,
                "--output",
                str(tmp_path / "my.yaml"),
            ]
        )
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert [text for text in expected if text not in said] == []
    assert [text for text in unexpected if text in said] == []


def test_few_data_and_data_of_other_machines(tmp_path, capsys):
    """Times in another unit determine nothing; what ran on other accelerators is left out, or all
    there is."""
    products = tmp_path / "products.csv"
    products.write_text("m,n,k,dtype,ms\n4096,4096,4096,bf16,250\n")  # 250 us
    main(["calibrate", "--system", "dgx-h100", "--gemm", str(products), "--output", str(tmp_path / "a.yaml")])
    said = capsys.readouterr().out
    assert "They determine no constant" in said
    assert "Mean error of the products: 99.9% before" in said
    assert "times are in seconds" in said
    with pytest.raises(
        InputError, match=r"nothing was measured on mi300x-node .* ran on NVIDIA H100 80GB HBM3"
    ):
        calibrate("mi300x-node", nccl=[MINE / "all_reduce.txt"])
    table = tmp_path / "semicolons.csv"
    table.write_text((MINE / "runs.csv").read_text().replace(",", ";"))
    assert len(calibrate("dgx-h100", runs=[table]).measured.runs) == 7
