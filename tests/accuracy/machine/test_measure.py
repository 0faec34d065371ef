"""Measuring a machine: ranks, budget, tables, fits to synthetic times, system file;
a real run if PyTorch is installed."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import traincast as tc
from recorded_ranks import ABOUT
from traincast.accuracy.logs import read as read_table
from traincast.accuracy.machine import launcher, system_yaml
from traincast.accuracy.machine.fit_machine import (
    RATES,
    Figures,
    errors_by_family,
    fit_constants,
    fit_machine,
    fit_network,
    one_protocol,
)
from traincast.accuracy.machine.measure import check_arguments, fit_and_write
from traincast.accuracy.machine.tables import Journal, Row, table_paths, write_tables
from traincast.accuracy.machine.tasks import (
    FAMILIES,
    MAX_VISITS,
    Task,
    TimeBudget,
    sample_counts,
    tasks,
)
from traincast.catalog.load import accelerator_called
from traincast.core.output_files import check_output
from traincast.ui.cli.main import main

EVERY = tasks("cpu", ("fp32", "bf16"), 2, 1, 16e9)

needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="needs PyTorch, which is the user's: pip install torch"
)

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "16", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
SRUN = {
    "SLURM_PROCID": "9",
    "SLURM_STEP_NUM_TASKS": "16",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "gpu[03-04]",
}
HYDRA = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, None),
        (TORCHRUN, launcher.Rank(3, 16, 3, 8, "torchrun")),
        (OPEN_MPI, launcher.Rank(1, 4, 1, 0, "Open MPI")),
        (SRUN, launcher.Rank(9, 16, 1, 0, "srun")),
        (HYDRA, launcher.Rank(0, 2, 0, 2, "MPI")),
        (
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "16", "SLURM_LOCALID": "0"},
            None,
        ),  # a batch script, which srun did not start
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        (TORCHRUN | SRUN, launcher.Rank(3, 16, 3, 8, "torchrun")),  # torchrun inside a job step
    ],
)
def test_the_launcher_tells_the_rank(environment, rank):
    assert launcher.launched_rank(environment) == rank


@pytest.mark.parametrize(
    ("change", "wrong"),
    [({"RANK": "first"}, "RANK = 'first': not a whole number"), ({"RANK": "16"}, "RANK = 16: must be below")],
)
def test_variables_that_contradict_each_other_are_refused(change, wrong):
    with pytest.raises(tc.InputError, match=wrong):
        launcher.launched_rank(TORCHRUN | change)


@pytest.mark.parametrize(
    ("environment", "where"),
    [
        (TORCHRUN | {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1234"}, ("10.0.0.1", 1234)),
        (SRUN, ("gpu03", launcher.DEFAULT_PORT)),
        (HYDRA, ("127.0.0.1", launcher.DEFAULT_PORT)),
    ],
)
def test_ranks_find_each_other(environment, where):
    assert launcher.rendezvous_address(launcher.launched_rank(environment), environment) == where


def test_ranks_on_several_nodes_need_an_address():
    with pytest.raises(
        tc.InputError,
        match="MASTER_ADDR: missing; set it to the host of rank 0, which Open MPI does not tell",
    ):
        launcher.rendezvous_address(launcher.launched_rank(OPEN_MPI), OPEN_MPI)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("node7", "node7"), ("a1,a2", "a1"), ("n[03-07,12],x", "n03"), ("n[1,5]", "n1"), ("n2,m[1-3]", "n2")],
)
def test_first_host_of_a_list_of_slurm(nodes, first):
    assert launcher.first_host(nodes) == first


@needs_torch
def test_every_rank_gets_the_request_and_a_failing_rank_stops_the_others(monkeypatch, tmp_path):
    """Rank 0 sends what it gets and waits for long, the other fails."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    messages, request = [], {"threads": 1, "number": 7, "sent": str(tmp_path / "sent")}
    with pytest.raises(launcher.RankFailed, match=r"measure: rank 1 failed\n(.*\n)*.*no such thing: 7"):
        launcher.launch("failing_job:run", request, 2, messages.append)
    assert messages == [{"rank": 0, "size": 2, "number": 7}]


class Clock:
    """Clock that is moved by hand."""

    now = 0.0

    def __call__(self):
        return self.now


def spend(every, seconds, cost=0.3):
    """Return the tasks that a budget chooses if each visit takes `cost` seconds,
    and the time at the end [s]."""
    clock, done = Clock(), []
    budget = TimeBudget(every, (), seconds, clock)
    while task := budget.next():
        clock.now += cost
        budget.record(task)
        done.append(task)
    return done, clock.now


def test_a_time_budget_holds_and_is_shared_by_all_families():
    done, end = spend(EVERY, 120)
    assert 0.98 * 120 <= end <= 120
    families = {task.family for task in EVERY}
    total = sum(FAMILIES[family].share for family in families)
    for family in families - {"dispatch"}:  # which has too few tasks to fill its share
        assert sum(task.family == family for task in done) * 0.3 >= 0.9 * 120 * FAMILIES[family].share / total


def test_coarse_comes_before_fine_and_both_before_repetitions():
    done, _ = spend(EVERY, 1e9)
    assert len(done) == MAX_VISITS * len(EVERY)
    for family in FAMILIES:
        of_family = [task for task in EVERY if task.family == family]
        assert [task for task in done if task.family == family] == MAX_VISITS * of_family


@pytest.mark.parametrize(("seconds", "end"), [(5, 5), (0.1, 1)])
def test_a_short_budget_sees_every_family(seconds, end):
    """With hardly any time each of five families gets one visit."""
    done, now = spend(EVERY, seconds, cost=0.2)
    assert {task.family for task in done} == {task.family for task in EVERY}
    assert now == pytest.approx(end)


def test_a_task_that_does_not_fit_any_more_is_left_to_shorter_ones():
    clock, (long, short) = Clock(), (Task("products", "mm", "fp32", (n, n, n)) for n in (4096, 64))
    budget = TimeBudget([long, short], (), 10, clock)
    for task, cost in ((long, 6), (short, 1), (short, 1)):
        assert budget.next() == task
        clock.now += cost
        budget.record(task)


def test_failed_and_known_tasks_are_not_measured_again():
    budget = TimeBudget(EVERY[:2], {EVERY[1].key}, 10, Clock())
    budget.record(budget.next(), failed=True)
    assert budget.next() is None


@pytest.mark.parametrize(
    ("once", "seconds", "expected"), [(1.0, 0.5, (3, 1)), (1e-6, 0.01, (60, 50)), (1e-3, 0.02, (20, 1))]
)
def test_samples_fill_their_time(once, seconds, expected):
    """At least 3 samples and at most 60, each of at least 50 us."""
    assert sample_counts(once, seconds, 50e-6) == expected


def test_keys_are_read_back():
    assert [Task.from_key(task.key) for task in EVERY] == EVERY
    assert len({task.key for task in EVERY}) == len(EVERY)


def test_sizes_on_a_gpu_are_larger_and_fit():
    gpu = tasks("cuda", ("bf16", "tf32", "fp8"), 16, 2, 80e9)
    assert {task.scope for task in gpu if task.family == "collectives"} == {"all", "node"}
    assert {task.op for task in gpu if task.family == "copies"} == {"to device", "to host"}
    assert max(task.flops for task in gpu if task.family == "products") > 1e3 * 2 * 2048**3 / 8
    assert all(size % 16 == 0 for task in gpu if task.dtype == "fp8" for size in task.sizes)
    assert max(task.nbytes for task in tasks("cpu", ("fp32",), 2, 1, 1e9)) < 1e9 / 4


def timed(every, seconds):
    """Return rows with the same time in every sample."""
    return [Row(task, (float(time),) * 3) for task, time in zip(every, seconds, strict=True)]


def of(family, *ops):
    return [task for task in EVERY if task.family == family and (not ops or task.op in ops)]


def test_a_row_returns_percentiles_of_its_samples():
    row = Row(EVERY[0], (5.0, 1.0, 2.0, 4.0, 3.0))
    assert [row.percentile(percent) for percent in (25, 50, 75)] == [2, 3, 4]


def test_constants_are_fitted_to_exact_times():
    """alpha = 3 us and beta = 1/(2 GB/s) from a distant start;
    c has no effect, and d is bounded below by 2 us."""
    V = np.geomspace(1e3, 1e9, 13)
    values, undetermined, _ = fit_constants(
        lambda constants: constants["a"] + V / constants["b"],
        3e-6 + V / 2e9,
        {"a": 1e-4, "b": 1e8, "c": 1.0},
        {},
    )
    assert (values["a"], values["b"], undetermined) == (
        pytest.approx(3e-6, rel=0.01),
        pytest.approx(2e9, rel=0.01),
        {"c"},
    )
    values, undetermined, _ = fit_constants(
        lambda constants: constants["d"] + V / 2e9, 1e-6 + V / 2e9, {"d": 1e-4}, {"d": (2e-6, 1.0)}
    )
    assert (values, undetermined) == ({"d": pytest.approx(2e-6)}, {"d"})


FACTORS = {
    "collectives.all_gather_factor": 1.2,
    "collectives.reduce_scatter_factor": 1.7,
    "collectives.all_to_all_factor": 0.6,
    "collectives.message_factor": 0.3,
}


def test_a_network_is_fitted_to_synthetic_times():
    """Ring formulas with known alpha, beta and factors; the fit predicts all times within 3 %."""
    collectives = of("collectives")
    rows = timed(collectives, np.ones(len(collectives)))
    source = Figures(ABOUT, rows, software=dict(FACTORS), tiers=[one_protocol(2e9, 40e-6)])
    fit = Figures(ABOUT, timed(collectives, source.predict(rows)))
    fit_network(fit)
    (tier,) = fit.tiers
    assert max(error.mape for error in errors_by_family(fit)) < 0.03
    assert (tier["bandwidth"], tier["efficiency"]) == (pytest.approx(2e9, rel=0.02), 1)
    assert (tier["launch"], tier["latency"]) == (0, pytest.approx(40e-6, rel=0.05))
    assert fit.software == pytest.approx(FACTORS, rel=0.1)


def test_a_ring_of_two_takes_alpha_and_beta():
    """By hand: an all-reduce of 8 MB over 2 ranks moves 8 MB over a link of 2 GB/s, 4 ms,
    over two hops of 40 us."""
    rows = timed([Task("collectives", "allreduce", "fp32", (8_000_000,))], [1.0])
    tiers = [one_protocol(2e9, 40e-6)]
    figures = Figures(ABOUT, rows, software={"collectives.launch_share": 1.0}, tiers=tiers)
    assert figures.predict(rows) == pytest.approx(4e-3 + 80e-6)


def synthetic():
    """Return figures of a machine, and rows with times that the engine predicts."""
    gpu = {
        "matrix_flops": 400e9, "fp32_flops": 100e9, "matrix_sustained": 0.9, "fp32_sustained": 0.95,
        "hbm_bandwidth": 20e9, "hbm_sustained": 0.9, "cache_bandwidth": 100e9, "cache_bytes": 8e6,
        "vector_flops": 40e9, "attention_fa2": 0.7, "attention_backward": 0.9,
    }  # fmt: skip
    software = {
        "kernels.tile": 16.0, "attention.causal_skipping": 0.4, "attention.start": 0.0,
        "attention.softmax": 10.0, "attention.tail": 0.0, "attention.launch_seconds": 1e-5,
        "kernels.launch_seconds": 4e-6,
    }  # fmt: skip
    blank, tiers = [Row(task, (1.0,)) for task in EVERY], [one_protocol(2e9, 40e-6)]
    figures = Figures(ABOUT, blank, accelerator=gpu, software=software, kernel_seconds=1e-6, tiers=tiers)
    rows = []
    for family in ("products", "memory", "attention", "collectives"):
        rows += timed(of(family), figures.predict(figures.rows_of_family(family)))
    dispatch = {"kernel": 1e-6, "forward": 4e-6, "backward": 9e-6}
    rows += timed(of("dispatch"), [task.sizes[0] * dispatch[task.op] for task in of("dispatch")])
    return gpu, rows


def test_a_machine_is_fitted_to_synthetic_times():
    gpu, rows = synthetic()
    fit = fit_machine(ABOUT, rows, {})
    sustained = {
        name: fit.accelerator[name] * fit.accelerator[share]
        for name, (share, _) in RATES.items()
        if name in gpu
    }
    assert sustained == pytest.approx({"matrix_flops": 360e9, "fp32_flops": 95e9}, rel=0.05)
    assert fit.accelerator["hbm_bandwidth"] * fit.accelerator["hbm_sustained"] == pytest.approx(18e9, rel=0.1)
    assert fit.accelerator["cache_bandwidth"] == pytest.approx(100e9, rel=0.1)
    assert fit.accelerator["cache_bytes"] == pytest.approx(8e6, rel=0.2)
    assert fit.software["kernels.launch_seconds"] == 4e-6
    assert fit.software["kernels.tile"] == 16
    totals = {error.family: error.mape for error in errors_by_family(fit) if error.kind == "all"}
    assert set(totals) == {"products", "memory", "attention", "collectives"}
    assert max(totals.values()) < 0.06


def test_shorter_times_make_a_faster_machine():
    """The interval of a figure comes from the spread of its samples."""
    _, rows = synthetic()
    wide = [replace(row, samples=tuple(row.samples[0] * f for f in (0.9, 0.95, 1, 1.1, 1.3))) for row in rows]
    fast, usual, slow = (fit_machine(ABOUT, wide, {}, percent) for percent in (5, 50, 95))
    rates = [fit.accelerator["fp32_flops"] * fit.accelerator["fp32_sustained"] for fit in (slow, usual, fast)]
    assert rates == sorted(rates)


def test_a_budget_that_was_too_short_is_an_error():
    _, rows = synthetic()
    with pytest.raises(tc.InputError, match="no times of memory: give a longer `budget`"):
        fit_machine(ABOUT, [row for row in rows if row.task.family != "memory"], {})


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A machine file and its tables, from synthetic times."""
    path = tmp_path_factory.mktemp("machine") / "mine.yaml"
    _, rows = synthetic()
    some_rows = [row for i, row in enumerate(rows) if i % 4 == 0 or row.task.family == "dispatch"]
    return fit_and_write(ABOUT, some_rows, {}, path)


def test_the_file_is_a_system(written):
    system = tc.load_system(written.files[0])
    assert (system.name, system.accelerator.name, system.fast_domain) == ("mine", "Some CPU, 2 threads", 2)
    assert system.sources["accelerator.fp32_flops"].startswith("measured with torch 2.13.0 on Some CPU, ")
    assert system.sources["accelerator.fp32_flops"].endswith("(measured)")
    assert system.sources["network.1.bandwidth"].endswith("(assumed)")
    model = tc.load_model("gpt-125m")
    done = tc.estimate(model, system, tc.Plan(dp=2, precision="fp32"), gbs=8)
    assert (
        done.step_seconds > 8 * model.seq * tc.model_flops_per_token(model) / 2 / 100e9
    )  # no faster than the peak allows


def test_calibrate_reads_the_tables(written):
    tables = table_paths(written.files[0])
    products, collectives = (read_table(tables[name]) for name in ("products", "collectives"))
    counts = {
        family: sum(row.task.family == family for row in written.rows)
        for family in ("products", "collectives")
    }
    assert counts == {"products": len(products.rows), "collectives": len(collectives.rows)}
    assert (products.left_out, collectives.left_out) == ((), ())
    done = tc.calibrate(written.files[0], gemm=[tables["products"]], nccl=[tables["collectives"]])
    assert done.others["products"]["before"] < 0.06
    assert done.others["collectives"]["before"] < 0.06


def test_an_accelerator_of_the_catalogue_keeps_its_data_sheet(tmp_path):
    about = ABOUT | {
        "device": "NVIDIA H100 80GB HBM3",
        "kind": "cuda",
        "memory_bytes": 85e9,
        "processors": 132,
        "backend": "nccl",
    }
    assert accelerator_called(about["device"]) == "h100-sxm-80"
    figures = Figures(about, [], accelerator={"matrix_sustained": 0.66}, loose={"matrix_sustained"})
    file = system_yaml.document("mine", [figures] * 3, "2026-11-20")
    assert file["accelerator"]["matrix_flops"]["value"] == "989.4 TFLOP/s"
    assert file["accelerator"]["matrix_sustained"]["source"].endswith(
        "as far as it can go, the times do not determine it"
    )
    assert file["accelerator"]["hbm_bytes"]["value"] == "79.16 GiB"  # 85e9 / 2^30


def test_tables_are_complete_or_absent(tmp_path, monkeypatch):
    _, rows = synthetic()
    monkeypatch.setattr("csv.DictWriter.writerows", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_tables(tmp_path / "mine.yaml", rows, ABOUT, "2026-11-20")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_measurement_is_continued_on_the_same_machine(tmp_path):
    path = tmp_path / "mine.partial.jsonl"
    first = Journal(path)
    first.append({"machine": ABOUT})
    first.append({"task": EVERY[0].key, "samples": [1.0, 2.0], "problem": "", "left": 1})
    first.append({"task": EVERY[1].key, "samples": [], "problem": "no such type", "left": 1})
    with path.open("a") as file:
        file.write('{"task": "cut o')
    second = Journal(path)
    assert second.identity == first.identity != ""
    assert second.rows() == [Row(EVERY[0], (1.0, 2.0))]
    second.append({"task": EVERY[0].key, "samples": [1.25, 1.0, 9.0], "problem": "", "left": 1})
    second.append({"task": EVERY[0].key, "samples": [5.0, 0.5, 4.0], "problem": "", "left": 1})
    assert second.rows() == [Row(EVERY[0], (1.25, 1.0, 9.0), 3)]  # medians are 1.5, 1.25 and 4
    assert second.problems == {EVERY[1].key: "no such type"}
    second.append({"machine": ABOUT | {"host": "elsewhere"}})
    assert len(second.rows()) == 1
    second.append({"machine": ABOUT | {"threads": 4}})
    assert second.rows() == []


def test_without_pytorch_the_message_says_how_to_install_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("traincast.accuracy.machine.measure.find_spec", lambda _: None)
    with pytest.raises(SystemExit) as stop:
        main(["measure", "--output", str(tmp_path / "mine.yaml")])
    assert stop.value.code == 2
    assert "needs PyTorch, which traincast does not bring: pip install torch" in capsys.readouterr().err


def test_all_mistakes_are_reported_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("traincast.accuracy.machine.measure.find_spec", lambda _: None)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(tc.InputError) as caught:
        check_arguments(tmp_path / "mine.txt", 1, 0, 2, False)
    parts = (
        "ending '.txt'",
        "budget = 1",
        "ranks = 0: must be a whole",
        "torchrun has started 2 already",
        "needs PyTorch",
    )
    assert all(part in str(caught.value) for part in parts)


def test_only_measuring_loads_pytorch():
    code = (
        "import sys, traincast.ui.cli.main, traincast.accuracy.machine.measure; print('torch' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "False"
    )


@needs_torch
def test_a_real_machine(tmp_path, capsys):
    """A few seconds with two ranks: the file predicts, calibrate reads the tables,
    and no other file is left."""
    path = tmp_path / "out" / "here.yaml"
    main(["measure", "--budget", "6", "--ranks", "2", "--output", str(path), "--json"])
    reply = json.loads(capsys.readouterr().out)
    assert sorted(path_of_file.name for path_of_file in path.parent.iterdir()) == sorted(
        str(path_of_file).rsplit("/", 1)[-1] for path_of_file in reply["files"]
    )
    assert {"products", "memory", "dispatch", "collectives"} <= set(reply["rows"])
    assert reply["machine"]["ranks"] == 2
    assert tc.estimate("gpt-125m", path, tc.Plan(dp=2, precision="fp32"), gbs=8).step_seconds > 0
    tables = table_paths(path)
    assert (
        tc.calibrate(path, gemm=[tables["products"]], nccl=[tables["collectives"]]).errors["before"] is None
    )


def test_a_missing_directory_is_created(tmp_path):
    """As `--output out/mine.yaml` in a fresh checkout; there can be no directory below a file."""
    check_output(tmp_path / "out" / "deep" / "mine.yaml", False, (".yaml",))
    (tmp_path / "file").touch()
    with pytest.raises(tc.InputError, match="file is not a folder"):
        check_output(tmp_path / "file" / "mine.yaml", False, (".yaml",))


GPU = ABOUT | {
    "device": "NVIDIA H100 80GB HBM3", "kind": "cuda", "memory_bytes": 85e9, "processors": 132,
    "backend": "nccl", "ranks": 16, "nodes": 2, "dtypes": ["bf16", "tf32"],
}  # fmt: skip


def test_gpus_of_the_catalogue_are_fitted_to_synthetic_times():
    """Two nodes of 8 H100 with predicted times: shares of the peaks, and both tiers with NCCL's protocols."""
    all_tasks = tasks("cuda", GPU["dtypes"], 16, 2, 85e9)
    known = {
        name: value
        for name, value in vars(tc.load_system("dgx-h100").accelerator).items()
        if isinstance(value, float)
    }
    true = {
        "matrix_sustained": 0.65,
        "fp32_sustained": 0.7,
        "hbm_sustained": 0.88,
        "attention_fa2": 0.5,
        "attention_backward": 0.8,
    }
    source = Figures(
        GPU, [Row(task, (1.0,)) for task in all_tasks], known=known, accelerator=true, kernel_seconds=3e-6
    )
    node = {
        "bandwidth": 450e9,
        "efficiency": 0.8,
        "latency": 1e-6,
        "launch": 9e-6,
        "simple_latency": 12e-6,
        "ll_bandwidth": 150e9,
    }
    net = {
        "bandwidth": 50e9,
        "efficiency": 0.9,
        "latency": 5e-6,
        "launch": 15e-6,
        "simple_latency": 25e-6,
        "ll_bandwidth": 3e9,
    }
    source.tiers = [node, net]
    rows = []
    for family in ("products", "memory", "attention", "collectives"):
        rows += timed(
            [row.task for row in source.rows_of_family(family)], source.predict(source.rows_of_family(family))
        )
    for row in source.rows_of_family("copies"):
        rows += timed([row.task], [5e-6 + row.task.sizes[0] / 50e9])
    for row in source.rows_of_family("dispatch"):
        rows += timed([row.task], [row.task.sizes[0] * {"kernel": 3e-6}.get(row.task.op, 8e-6)])
    fit = fit_machine(GPU, rows, known)
    assert {name: fit.accelerator[name] for name in true} == pytest.approx(true, rel=0.03)
    assert fit.software == {"kernels.launch_seconds": 3e-6, "host.dispatch_seconds": 8e-6}
    assert fit.accelerator["host_bandwidth"] == pytest.approx(50e9, rel=0.02)
    assert not {"matrix_flops", "hbm_bandwidth", "vector_flops"} & set(fit.accelerator)  # the data sheet's
    tiers = fit.tiers
    errors = {
        error.kind: error.mape
        for error in errors_by_family(fit)
        if error.family == "collectives" and error.kind != "p2p"
    }
    assert max(errors.values()) < 0.1  # where protocols cross over they are hard to tell apart
    assert [tier["bandwidth"] * tier["efficiency"] for tier in tiers] == pytest.approx([360e9, 45e9], rel=0.1)
    file = system_yaml.document("mine", [fit] * 3, "2026-11-20")
    assert (file["network"][0]["size"], file["network"][1]["bandwidth"]["basis"]) == (8, "measured")


def test_an_unknown_gpu_states_its_assumptions():
    rows = timed(
        [*of("products"), *of("memory"), *of("dispatch")],
        [1e-3] * len([*of("products"), *of("memory"), *of("dispatch")]),
    )
    fit = fit_machine(GPU | {"device": "Some GPU", "backend": "", "ranks": 1, "nodes": 1}, rows, {})
    file = system_yaml.document("mine", [fit] * 3, "2026-11-20")
    assert file["accelerator"]["vector_flops"]["basis"] == "assumed"
    assert file["accelerator"]["fp32_flops"]["basis"] == "measured"
    assert file["network"][0]["bandwidth"]["source"].startswith("one rank: no network was measured")
    assert file["network"][0]["size"] == 1
