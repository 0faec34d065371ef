"""Studies equal single searches, give the same bytes on every executor, and survive interruptions."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import traincast as tc
from traincast.planner.question import Question
from traincast.planner.studies import executors
from traincast.planner.studies.results import fingerprint, read_results
from traincast.planner.studies.study_file import load_study
from traincast.planner.studies.sweep import define_study

ROOT = Path(__file__).parents[3]
GPUS = [64, 256]
VARY = [
    {"accelerator.hbm_bytes": [80e9, 141e9, 400e9]},
    {
        "accelerator.hbm_bandwidth": [1e12, 4.8e12],
        "network.1.bandwidth": [25e9, 50e9],
    },  # these two vary together
]


@pytest.fixture(scope="module")
def small():
    """A study of 2 strategies × 2 batches × 6 machines × 2 numbers of GPUs."""
    return define_study(
        ["gpt3-175b"],
        ["h200-nvs8"],
        Question(gpus=GPUS, strategy=["1d", "summa"], top=3),
        batches=[256, 512],
        vary=VARY,
        name="small",
    )


@pytest.fixture
def pieces(monkeypatch):
    """Chunks of two machines, so that even a small study has many."""
    monkeypatch.setattr(sys.modules["traincast.planner.studies.sweep"], "MACHINES_PER_CHUNK", 2)


def test_every_point_is_what_a_search_finds(small):
    frame = executors.run_study(small).frame
    model, base = small.models[0], small.systems[0]
    fields = small.fields()
    assert small.points == 6
    assert fields["accelerator.hbm_bytes"].tolist() == [
        80e9,
        80e9,
        141e9,
        141e9,
        400e9,
        400e9,
    ]  # the last axis runs fastest
    assert fields["network.1.bandwidth"].tolist() == [25e9, 50e9] * 3
    seen = 0
    for (gbs, strategy, point, gpus), rows in frame.group_by(
        "gbs", "strategy", "point", "gpus", maintain_order=True
    ):
        machine = base.with_figures({path: values[point] for path, values in fields.items()})
        found = tc.search(model, machine, gpus=gpus, gbs=gbs, strategy=strategy, top=3)
        assert set(rows["candidates"]) == {found.candidates}
        assert set(rows["feasible"]) == {found.feasible}
        assert rows["rank"].to_list() == list(range(1, max(len(found.plans), 1) + 1))
        if not found.plans:
            assert rows["step_seconds"].to_list() == [None]
            continue
        seen += 1
        assert rows["step_seconds"].to_list() == [est.step_seconds for _, est in found.plans]
        assert rows["memory_bytes"].to_list() == [est.memory_bytes for _, est in found.plans]
        assert rows["bubble"].to_list() == [est.breakdown["bubble"] for _, est in found.plans]
        assert rows["activations"].to_list() == [est.memory["activations"] for _, est in found.plans]
        for knob, value in found.plans[0][0].columns().numbers().items():
            assert rows[knob][0] == value
    assert seen > 10
    assert frame.height == frame.select("gbs", "strategy", "point", "gpus", "rank").unique().height


def test_fields_that_change_the_space():
    """The fast domain and the sequence length are no columns: each value has a space of its own."""
    vary = [
        {"network.0.size": [4, 8]},
        {"model.seq": [1024, 2048]},
        {"accelerator.hbm_bytes": [100e9, 200e9]},
    ]
    frame = tc.study(
        models=["gpt3-175b"], systems=["h200-nvs8"], gpus=[64], strategies=["1d"], gbs=64, vary=vary
    ).frame
    assert frame["point"].to_list() == list(range(8))
    for row in frame.iter_rows(named=True):
        model = replace(tc.load_model("gpt3-175b"), seq=int(row["model.seq"]))
        system = tc.load_system(f"h200-nvs{row['network.0.size']:.0f}").with_figures(
            {"accelerator.hbm_bytes": row["accelerator.hbm_bytes"]}
        )
        assert (
            row["step_seconds"]
            == tc.search(model, system, gpus=64, gbs=64, strategy="1d").plans[0][1].step_seconds
        )


def test_the_table_says_what_its_columns_mean_and_what_it_was_made_from(small, tmp_path):
    results = executors.run_study(small)
    results.write(tmp_path / "small.parquet")
    reread = read_results(tmp_path / "small.parquet")
    assert reread.frame.equals(results.frame)
    assert reread.metadata == results.metadata
    assert set(reread.metadata["columns"]) == set(results.frame.columns)
    assert reread.metadata["columns"]["accelerator.hbm_bandwidth"] == {
        "unit": "byte/s",
        "meaning": "memory bandwidth",
    }
    assert reread.metadata["traincast"] == tc.__version__
    assert set(reread.metadata["inputs"]) == {"gpt3-175b", "h200-nvs8"}
    assert reread.metadata["study"]["assumptions"]["name"] == "paper"


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_other_formats(small, tmp_path, ending):
    results = executors.run_study(small)
    path = tmp_path / f"small.{ending}"
    results.write(path)
    back = pl.read_csv(path) if ending == "csv" else read_results(path).frame
    assert back["step_seconds"].to_list() == results.frame["step_seconds"].to_list()


def run_to(study, path, **how):
    executors.run_study_to(study, path, **how)
    assert not Path(f"{path}.parts").exists()
    return path.read_bytes()


def test_a_table_is_put_together_in_blocks(small, tmp_path, monkeypatch):
    """Its content is the one that is made in memory, however small the blocks."""
    monkeypatch.setattr(executors, "ROWS_PER_BLOCK", 7)
    run_to(small, tmp_path / "blocks.parquet")
    blocks, memory = read_results(tmp_path / "blocks.parquet"), executors.run_study(small)
    assert blocks.frame.equals(memory.frame)
    assert blocks.metadata == memory.metadata


def test_shards_merge_to_the_same_bytes(small, tmp_path, pieces):
    whole, apart = tmp_path / "whole.parquet", tmp_path / "apart.parquet"
    expected = run_to(small, whole)
    chunks = small.chunks()
    assert len(chunks) == 12
    for k in (3, 1):
        assert not executors.run_study_to(small, apart, shard=executors.Shard(k, 3))
    with pytest.raises(tc.InputError, match="4 of 12 chunks are missing"):
        executors.Parts.for_output(fingerprint(small), apart).write(small, apart, force=False)
    executors.run_study_to(small, apart, shard=executors.Shard(2, 3))
    executors.Parts.for_output(fingerprint(small), apart).write(small, apart, force=False)
    assert apart.read_bytes() == expected


def test_an_interrupted_study_resumes_to_the_same_bytes(small, tmp_path, pieces):
    expected, path, ran = run_to(small, tmp_path / "whole.parquet"), tmp_path / "part.parquet", []

    def stop(done, total, candidates):
        ran.append(done)
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executors.run_study_to(small, path, progress=stop)
    assert not path.exists()
    executors.run_study_to(small, path, progress=lambda done, total, candidates: ran.append(done))
    assert ran == list(range(1, 13))  # nothing twice, nothing lost
    assert path.read_bytes() == expected


def test_parts_of_another_study_are_not_taken_over(small, tmp_path, pieces):
    path = tmp_path / "part.parquet"
    executors.run_study_to(small, path, shard=executors.Shard(1, 2))
    other = replace(small, top=1)
    with pytest.raises(tc.InputError, match="parts of another study, or of another version of traincast"):
        executors.run_study_to(other, path)
    executors.run_study_to(other, path, force=True)
    assert read_results(path).metadata["study"]["top"] == 1


def test_shards_may_start_at_once(small, tmp_path):
    for attempt in range(20):
        path = tmp_path / f"{attempt}.parquet"
        with ThreadPoolExecutor(8) as pool:
            of = partial(executors.Parts.for_output, fingerprint(small), path)
            results = list(pool.map(lambda _, of=of: of(), range(8)))
        assert len({parts.folder for parts in results}) == 1


def test_a_damaged_part_is_recomputed(small, tmp_path, pieces):
    expected, path = run_to(small, tmp_path / "whole.parquet"), tmp_path / "part.parquet"
    executors.run_study_to(small, path, shard=executors.Shard(1, 2))
    parts = sorted(Path(f"{path}.parts").glob("*.parquet"))
    parts[0].write_bytes(b"")
    parts[1].write_bytes(parts[1].read_bytes()[:100])
    assert run_to(small, path) == expected


def test_two_writers_of_one_study_are_told_of_each_other(small, tmp_path, pieces):
    """The second names the process that has it; shards may run at once."""
    path, said = tmp_path / "part.parquet", []

    def second(done, total, candidates):
        if done == 1:
            with pytest.raises(tc.InputError) as refused:
                executors.run_study_to(small, path)
            said.append(str(refused.value))

    executors.run_study_to(small, path, progress=second)
    assert f"is being written by process {os.getpid()} on " in said[0]
    assert not Path(f"{path}.parts").exists()
    shards = [executors.Parts.for_output(fingerprint(small), path) for _ in range(2)]
    with shards[0].lock(shared=True), shards[1].lock(shared=True):
        pass


def test_a_product_of_axes_that_no_table_holds_is_refused_before_any_work():
    axes = ["network.0.bandwidth", "network.1.bandwidth", "accelerator.hbm_bandwidth"]
    values = [1e12 + i for i in range(1000)]
    vary = [{axis: values} for axis in axes]
    with pytest.raises(tc.InputError, match=r"3,000,000,000 rows; must be at most 10,000,000"):
        tc.study(models=["gpt3-1t"], systems=["h200-nvs8"], gpus=[8], vary=vary)


class Lost(ThreadPoolExecutor):
    """An executor that loses its workers, as a Dask client does whose scheduler is killed."""

    def submit(self, function, *args):
        future = super().submit(time.sleep, 0)
        future.result()
        lost = Future()
        lost.cancel()
        lost.set_running_or_notify_cancel()
        return lost


def test_workers_that_are_lost_are_told(small, tmp_path):
    with (
        Lost(1) as executor,
        pytest.raises(executors.WorkersLost, match="the same command goes on from there"),
    ):
        executors.run_study_to(small, tmp_path / "part.parquet", executor=executor)


def test_foreign_folders_are_left_alone(small, tmp_path):
    path, folder = tmp_path / "out.parquet", tmp_path / "out.parquet.parts"
    folder.mkdir()
    (folder / "notes.txt").write_text("precious")
    with pytest.raises(tc.InputError, match="holds other files: move it"):
        executors.run_study_to(small, path)
    (folder / "notes.txt").unlink()
    executors.run_study_to(small, path, shard=executors.Shard(1, 2))
    (folder / "notes.txt").write_text("precious")
    executors.run_study_to(small, path)
    assert [file.name for file in folder.iterdir()] == ["notes.txt"]


def test_outputs_are_checked_before_any_work(small, tmp_path):
    taken = tmp_path / "taken.parquet"
    taken.write_text("mine")
    for path, wrong in (
        (taken, "`force=True` overwrites"),
        (tmp_path / "a.xls", "must be one of"),
        (taken / "a.csv", "taken.parquet is not a folder"),
    ):
        with pytest.raises(tc.InputError, match=wrong):
            executors.run_study_to(small, path)
    assert taken.read_text() == "mine"
    with pytest.raises(tc.InputError, match="no table of results"):
        read_results(taken)
    with pytest.raises(tc.InputError, match="is no file but a device or pipe"):
        read_results(Path("/dev/zero"))


@pytest.mark.skipif(sys.platform == "win32", reason="files there have no holes")
def test_a_huge_file_that_is_no_table_is_refused_by_its_first_bytes(tmp_path):
    """It is not read: a terabyte of zeros would take hours, and more memory than there is."""
    huge = tmp_path / "huge.csv"
    with huge.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(tc.InputError, match="no table of results"):
        read_results(huge)


def test_local_workers_give_the_same_bytes_even_if_one_is_killed(small, tmp_path, pieces):
    expected, killed = run_to(small, tmp_path / "whole.parquet"), []

    def kill_one(done, total, candidates):
        if not killed:
            children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
            workers = [
                int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
            ]
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])

    assert run_to(small, tmp_path / "local.parquet", workers=2, progress=kill_one) == expected
    assert killed


@pytest.mark.filterwarnings("default")  # dask's own, when a worker dies
def test_dask_gives_the_same_bytes_even_if_a_worker_is_killed(small, tmp_path, pieces):
    """A real cluster of two processes, one of which is killed while the study runs."""
    distributed = pytest.importorskip("distributed")
    expected, killed = run_to(small, tmp_path / "whole.parquet"), []
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):

        def kill_one(done, total, candidates):
            if not killed:
                pid = next(iter(client.run(os.getpid).values()))
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)

        with executors.dask_executor(client.scheduler.address, 2) as executor:
            assert run_to(small, tmp_path / "dask.parquet", executor=executor, progress=kill_one) == expected
    assert killed


def test_mpi_without_its_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py.futures", None)
    with pytest.raises(tc.InputError, match="mpi4py and an MPI library are needed"), executors.mpi_executor():
        pass


MPI = [
    line
    for line in (ROOT / "docs" / "scale_out.md").read_text().splitlines()
    if "mpiexec" in line and line.endswith("--mpi")
]


@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="there is no mpiexec")
@pytest.mark.skipif(find_spec("mpi4py") is None, reason="there is no mpi4py")
@pytest.mark.parametrize(
    "documented", MPI, ids=["workers started with the master", "workers started by the master"]
)
def test_mpi_as_documented(documented, tmp_path):
    """Either line of docs/scale_out.md, with two workers, writes the same bytes as one process."""
    command = re.sub(r"\b33\b", "3", re.sub(r"\b32\b", "2", documented)).replace(
        " python ", f" {shlex.quote(sys.executable)} "
    )
    study = tmp_path / "my-study.yaml"
    study.write_text(
        "models: gpt3-175b\nsystems: h200-nvs8\ngpus: [64, 256]\n"
        "strategies: [1d, summa]\nglobal_batch: [256, 512]\n"
    )
    allowed = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    ran = subprocess.run(
        command,
        shell=True,
        cwd=tmp_path,
        env={**os.environ, **allowed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    printed = ran.stdout.splitlines()
    found = [line for line in printed if "candidates decided" in line]
    assert printed[:1] == found  # what the study found stands first, and once: the workers print nothing
    run_to(load_study(study), tmp_path / "serial.parquet")
    assert (tmp_path / "my-study.parquet").read_bytes() == (tmp_path / "serial.parquet").read_bytes()


# As files and commands --------------------------------------------------------------------------------------


def test_the_example_studies_load():
    contours = load_study(ROOT / "examples" / "capacity_bandwidth.yaml")
    assert contours.points == 32 * 28  # arXiv 2410.00273
    assert contours.gpus == tuple(4 << power for power in range(13))
    assert np.allclose(contours.fields()["accelerator.hbm_bytes"][::28], np.linspace(80e9, 1000e9, 32))
    assert len(load_study(ROOT / "examples" / "strong_scaling.yaml").systems) == 9


def test_ways_to_write_values(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(
        "models: gpt3-1t\nsystems: [h200-nvs8]\ngpus: {range: [8, 24, 8]}\nstrategies: 1d\n"
        "global_batch: {doubling: [8, 32]}\n"
        "vary:\n  - accelerator.hbm_bytes: {logspace: [10 GB, 1 TB, 3]}\n"
        "  - network.0.latency: [1 us, 2.5 us]\n"
        "  - model.seq: [2k, 3000]\n"  # k is 1024, as in --seq
    )
    study = load_study(path)
    assert (study.name, study.gpus, study.batches) == ("study", (8, 16, 24), (8, 16, 32))
    assert np.allclose(study.vary[0]["accelerator.hbm_bytes"], [1e10, 1e11, 1e12])
    assert study.vary[1]["network.0.latency"] == (1e-6, 2.5e-6)
    assert study.vary[2]["model.seq"] == (2048, 3000)
    path.write_text(path.read_text().replace("2k", "2x"))
    with pytest.raises(tc.InputError, match=r"vary.2.model.seq = '2x': must be a whole number"):
        load_study(path)


def test_all_mistakes_of_a_study_are_reported_at_once(tmp_path):
    path = tmp_path / "study.json"
    wrong = {
        "models": ["gpt3-1x"],
        "systems": ["h200-nvs8"],
        "gpu": [8],
        "top": 0,
        "vary": [
            {"accelerator.hbm_byte": ["80 GB"]},
            {"accelerator.hbm_bytes": [80], "network.1.latency": ["1 us", "2 GB"]},
            3,
        ],
    }
    path.write_text(json.dumps(wrong))
    with pytest.raises(tc.InputError) as caught:
        load_study(path)
    text = str(caught.value)
    for part in (
        "gpu: unknown key; did you mean gpus",
        "gpus: missing",
        "has no unit",
        "vary.2 = 3",
        "gpt3-1x",
    ):
        assert part in text
    path.write_text(json.dumps({"model": "gpt3-1t", "system": "h200-nvs8", "gpus": 8, "seq": 4096}))
    with pytest.raises(tc.InputError) as caught:
        load_study(path)
    assert list(caught.value.problems) == [
        "models: missing",
        "systems: missing",
        "model: unknown key; did you mean models?",
        "system: unknown key; did you mean systems?",
        "seq: unknown key; write it under vary, as model.seq",
    ]
    path.write_text(json.dumps(wrong | {"models": ["gpt3-1t"]}))
    with pytest.raises(tc.InputError) as caught:
        load_study(path)
    for part in (
        "top = 0",
        "did you mean accelerator.hbm_bytes",
        "need equally many values: accelerator.hbm_bytes 1, network.1.latency 2",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("global_batch: .inf", "not finite"),
        ("global_batch: {range: [4096, 1024, 1024]}", "the last is below the first"),
        ("assumptions: 3", "assumptions = 3: must be a name"),
        ("models: [3]", "models = 3: must be a name"),
        ("systems: [h200-nvs8, h200-nvs8]", "h200-nvs8 is given twice"),
        ("vary: [{network.1.efficiency: [0.7, 1.5]}]", "a share is at most 1"),
        ("vary: [{model.heads: [160, 7]}]", "heads = 7: must divide hidden = 25600"),
        ("vary: [{accelerator.hbm_bytes: {linspace: [80 GB, 90 GB, 1.0e9]}}]", "at most 1,000,000"),
        ("vary: [{accelerator.hbm_bytes: {linspace: [80 GB, 90 GB, 2.5]}}]", "must be a whole number"),
    ],
)
def test_wrong_values_of_a_study(tmp_path, line, said):
    given = {"models": "[gpt3-1t]", "systems": "[h200-nvs8]", "gpus": "[1024]"}
    given |= dict([line.split(": ", 1)])
    path = tmp_path / "study.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in given.items()))
    with pytest.raises(tc.InputError) as caught:
        load_study(path)
    assert said in str(caught.value)


def test_a_range_ends_where_it_says(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(
        "models: [gpt3-1t]\nsystems: [h200-nvs8]\ngpus: [1024]\n"
        "vary:\n  - network.1.bandwidth: {range: [100 GB/s, 180 GB/s, 50 GB/s]}\n"
        "  - network.0.bandwidth: {range: [1 TB/s, 2 TB/s, 0.5 TB/s]}\n"
    )
    study = load_study(path)
    assert study.vary[0]["network.1.bandwidth"] == (100e9, 150e9)
    assert study.vary[1]["network.0.bandwidth"] == (1e12, 1.5e12, 2e12)


def traincast(*arguments, **how):
    return subprocess.Popen(
        [sys.executable, "-m", "traincast", *map(str, arguments)], stderr=subprocess.PIPE, text=True, **how
    )


@pytest.mark.parametrize("how", [[], ["--dask", "local", "--workers", "2"]], ids=["serial", "dask"])
def test_control_c_leaves_a_resumable_study(tmp_path, how):
    study, out = tmp_path / "long.yaml", tmp_path / "long.parquet"
    study.write_text(
        "models: [gpt3-1t]\nsystems: [b200-nvs64]\ngpus: [64]\nstrategies: [summa]\n"
        "vary:\n  - accelerator.hbm_bandwidth: {linspace: [1 TB/s, 9 TB/s, 30000]}\n"
    )
    with traincast("study", study, "--output", out, *how, start_new_session=True) as process:
        parts = Path(f"{out}.parts")
        while not list(parts.glob("[0-9]*.parquet")):
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of its processes
        try:
            said = process.communicate(timeout=600)[1]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 130
    assert "the same command goes on from there" in " ".join(said.split())
    assert list(parts.glob("[0-9]*.parquet"))
    assert not out.exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="lists processes as Linux does")
def test_workers_end_with_the_process_that_started_them(tmp_path):
    study = tmp_path / "long.yaml"
    study.write_text(
        "models: [gpt3-1t]\nsystems: [b200-nvs64]\ngpus: [64]\nstrategies: [summa]\n"
        "vary: [{accelerator.hbm_bandwidth: {linspace: [1 TB/s, 8 TB/s, 50000]}}]\n"
    )
    process = traincast("study", study, "--output", tmp_path / "long.parquet", "--workers", 2)
    children, listed = [], Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while len(children) < 2:
        assert process.poll() is None
        children = [
            Path(f"/proc/{pid}")
            for pid in listed.read_text().split()
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        time.sleep(0.1)
    while not list(tmp_path.glob("long.parquet.parts/*.parquet")):  # so the workers are at work
        time.sleep(0.1)
    process.kill()
    process.communicate()  # waits until the last process that holds its standard error has ended
    for child in children:
        with suppress(OSError):
            assert b"spawn_main" not in (child / "cmdline").read_bytes()


def test_control_c_is_not_lost_in_a_finalizer(small, pieces, tmp_path):
    """Python prints and drops what a ``__del__`` raises; Dask's futures have one."""

    class Finalized:
        def __del__(self):
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *arguments):
            Finalized()
            return super().submit(*arguments)

    before = signal.getsignal(signal.SIGINT)
    with Interrupted(1) as pool, pytest.raises(KeyboardInterrupt):
        executors.run_study_to(small, tmp_path / "out.parquet", executor=pool)
    assert signal.getsignal(signal.SIGINT) is before
    assert list((tmp_path / "out.parquet.parts").glob("[0-9]*.parquet"))


def test_default_assumptions_of_a_study():
    """An idealised machine for the paper's models; for others what their usual framework makes of one."""
    paper, llama = (
        define_study(["gpt3-1t"], ["h200-nvs8"], Question(gpus=[1024])),
        define_study(["llama-3-8b"], ["dgx-h100"], Question(gpus=[8], strategy="1d"), batches=8),
    )
    on_many = Question(gpus=[1024], strategy="1d")
    both = define_study(["gpt3-1t", "llama-3-8b"], ["dgx-h100"], on_many, batches=1024)
    assert [study.assumptions.name for study in (paper, llama, both)] == [
        "paper",
        "megatron-core-2025",
        "calibrated",
    ]


def test_varied_figures_take_text_with_a_unit():
    given = {"accelerator.hbm_bytes": ["80 GiB", 160e9], "network.1.latency": ["2 us", 5e-6]}
    question = Question(gpus=[64], strategy="1d")
    study = define_study(["gpt3-175b"], ["h200-nvs8"], question, batches=64, vary=[given])
    assert study.vary[0] == {
        "accelerator.hbm_bytes": (80 * 2.0**30, 160e9),
        "network.1.latency": (2e-6, 5e-6),
    }


def test_varied_figures_without_a_unit_are_refused_at_once():
    given = {"accelerator.hbm_bytes": ["192", "80 GB/s"], "model.seq": ["2k", 1024]}
    with pytest.raises(tc.InputError) as caught:
        tc.study(
            models=["gpt3-175b"], systems=["h200-nvs8"], gpus=[64], strategies=["1d"], gbs=64, vary=[given]
        )
    for problem in (
        "hbm_bytes = '192': has no unit",
        "'80 GB/s': unit 'GB/s' measures byte/s",
        "model.seq = '2k': must be a number",
    ):
        assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"vary": "x"}, "vary.0 = 'x': not a mapping of fields to values"),
        ({"vary": [{"accelerator.hbm_bytes": []}]}, "hbm_bytes: give at least one value"),
        ({"vary": [{3: [1.0]}]}, "unknown field '3'"),
        ({"gpus": 8}, "gpus = 8: must be a sequence of whole numbers"),
        ({"gpus": []}, "gpus: give at least one number"),
        ({"models": []}, "models: give at least one"),
        ({"systems": [3]}, "system = 3"),
        ({"strategies": "1d, sumna"}, "did you mean summa"),
        ({"gbs": "many"}, "gbs = 'many'"),
    ],
)
def test_arguments_of_a_study_that_are_wrong(wrong, said):
    good = {"models": ["gpt3-175b"], "systems": ["h200-nvs8"], "gpus": [64], "strategies": ["1d"], "gbs": 64}
    with pytest.raises(tc.InputError) as caught:
        tc.study(**good | wrong)
    assert said in str(caught.value)


def test_arguments_of_a_study_may_be_arrays_and_single_names():
    vary = {"accelerator.hbm_bytes": np.array([80e9, 160e9]), "network.1.latency": ["2 us", 5e-6]}
    question = Question(gpus=np.array([8, 64]), strategy="1d", top=1)
    study = define_study("gpt3-175b", "h200-nvs8", question, batches=64, vary=vary)
    assert (study.gpus, study.strategies, study.points) == ((8, 64), ("1d",), 2)


def test_a_study_takes_keywords_only():
    with pytest.raises(TypeError, match="positional"):
        tc.study(["gpt3-175b"], ["h200-nvs8"], [64])


def test_a_study_searches_what_plan_searches():
    # of megatron by default, of the framework named, and where jobs use a part of a fast domain (64 of 72)
    for framework, system, gpus in (
        (None, "dgx-h100", [64, 576]),
        ("torchtitan", "dgx-h100", [64]),
        (None, "gb200-nvl72", [64, 288]),
    ):
        studied = tc.study(
            models=["llama-3-70b"], systems=[system], gpus=gpus, gbs=1152, framework=framework
        ).frame
        for n in gpus:
            found = tc.search("llama-3-70b", system, gpus=n, gbs=1152, framework=framework)
            rows = studied.filter(pl.col("gpus") == n)
            best = rows.sort("step_seconds", nulls_last=True).row(0, named=True)
            assert (best["plan"], best["step_seconds"]) == (
                str(found.fastest[0]),
                pytest.approx(found.fastest[1].step_seconds, rel=1e-12),
            )
            assert rows["candidates"].sum() == found.candidates
            assert rows["feasible"].sum() == found.feasible
