"""Studies on the real engines: array jobs of Slurm, and MPI and Dask of which a part is killed.

Each ends with the bytes of one process. Engines that are not installed are skipped, with what installs them.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "scale_out.md").read_text(encoding="utf-8")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"  # where Debian has Slurm's daemons
PYTHON = shlex.quote(sys.executable)
SHORT = "models: [gpt3-175b]\nsystems: [h200-nvs8]\ngpus: [64, 256]\nglobal_batch: [256, 512]\n"
LONG = (
    "models: [gpt3-1t]\nsystems: [b200-nvs64]\ngpus: [64]\nstrategies: [summa]\n"
    "vary: [{accelerator.hbm_bandwidth: {linspace: [1 TB/s, 8 TB/s, 6400]}}]\n"
)  # a hundred chunks
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes as Linux does")


def study(folder, text):
    """Write a study, and return the bytes of its table as one process makes it."""
    (folder / "my-study.yaml").write_text(text)
    command = [sys.executable, "-m", "traincast", "study", "my-study.yaml", "--output", "expected.parquet"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "expected.parquet").read_bytes()


def await_parts(folder, process, name="my-study.parquet"):
    """Wait until a chunk of a study is finished, and the study is not."""
    while not list((folder / f"{name}.parts").glob("*.parquet")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


@contextmanager
def started(*command, **how):
    """A process that runs meanwhile."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **how)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("distributed") is None, reason="there is no Dask: pip install distributed")
def test_a_dask_scheduler_is_killed(tmp_path):
    """The command ends with a sentence; the same one without Dask goes on to the same bytes."""
    expected, where = study(tmp_path, LONG), tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    file = ["--scheduler-file", str(where)]
    command = [sys.executable, "-m", "traincast", "study", "my-study.yaml", "--output", "my-study.parquet"]
    with ExitStack() as stack:
        scheduler = stack.enter_context(started(*dask, "scheduler", "--port", "0", "--no-dashboard", *file))
        while not where.exists():
            assert scheduler.poll() is None
            time.sleep(0.1)
        (address,) = re.findall(r"tcp://[\d.:]+", where.read_text())[:1]
        stack.enter_context(started(*dask, "worker", *file, "--nworkers", "2", "--nthreads", "1"))
        process = subprocess.Popen(
            [*command, "--dask", address], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        await_parts(tmp_path, process)
        scheduler.kill()
        _, err = process.communicate()
    assert process.returncode == 2
    assert "the same command goes on from there" in " ".join(err.split())
    assert "Traceback" not in err
    assert not (tmp_path / "my-study.parquet").exists()
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "my-study.parquet").read_bytes() == expected


MPI = next(line for line in PAGE.splitlines() if line.startswith("mpiexec -n 33"))


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="there is no MPI: apt-get install openmpi-bin")
@pytest.mark.skipif(find_spec("mpi4py") is None, reason="there is no mpi4py: pip install 'traincast[mpi]'")
def test_a_rank_of_mpi_is_killed(tmp_path):
    """The line of docs/scale_out.md, which ends with the rank; the same line goes on to the same bytes."""
    expected = study(tmp_path, LONG)
    line = MPI.replace("-n 33", "-n 3").replace(" python ", f" {PYTHON} ")
    names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe")
    how = {"cwd": tmp_path, "env": os.environ | dict.fromkeys(names, "1")}
    process = subprocess.Popen(shlex.split(line), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)
    await_parts(tmp_path, process)
    os.kill(rank(process.pid, 2), signal.SIGKILL)
    process.communicate()
    assert process.returncode != 0
    assert not (tmp_path / "my-study.parquet").exists()
    subprocess.run(shlex.split(line), check=True, capture_output=True, **how)
    assert (tmp_path / "my-study.parquet").read_bytes() == expected


def rank(parent, number):
    """Number of the process that is a rank of an MPI job."""
    wanted = f"OMPI_COMM_WORLD_RANK={number}".encode()
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return int(pid)
    raise AssertionError(f"{parent} has no rank {number}")


def free_port():
    """A port of this machine that nobody listens to."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


@pytest.fixture
def slurm(tmp_path):
    """Environment in which sbatch gives jobs to a cluster of this machine alone."""
    folder, host, user = tmp_path / "slurm", socket.gethostname().split(".")[0], Path("/proc/self").owner()
    (folder / "spool").mkdir(parents=True)
    memory = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 0.9) >> 20  # [MiB]
    settings = {
        "ClusterName": "one", "SlurmctldHost": f"{host}(127.0.0.1)", "SlurmUser": user, "SlurmdUser": user,
        "SlurmctldPort": free_port(), "SlurmdPort": free_port(), "AuthType": "auth/none",
        "CredType": "cred/none", "ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none",
        "MpiDefault": "none", "ReturnToService": 2, "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU", "SchedulerParameters": "sched_interval=1",
        "StateSaveLocation": folder, "SlurmdSpoolDir": folder / "spool",
        "SlurmctldPidFile": folder / "ctld.pid", "SlurmdPidFile": folder / "d.pid",
        "SlurmctldLogFile": folder / "ctld.log", "SlurmdLogFile": folder / "d.log",
        "NodeName": f"{host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} RealMemory={memory} State=UNKNOWN",
        "PartitionName": "all Nodes=ALL Default=YES State=UP",
    }  # fmt: skip
    conf = folder / "slurm.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    binaries = tmp_path / "traincast" / ".venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "activate").write_text(f'export PATH="{binaries}:$PATH"\n')
    (binaries / "traincast").write_text(f'#!/bin/sh\nexec {PYTHON} -m traincast "$@"\n')
    (binaries / "traincast").chmod(0o755)
    env = os.environ | {
        "PATH": PATH,
        "SLURM_CONF": str(conf),
        "HOME": str(tmp_path),
        "SCRATCH": str(tmp_path),
    }
    control, node = (shutil.which(name, path=PATH) for name in ("slurmctld", "slurmd"))
    with started(control, "-D", "-f", str(conf)), started(node, "-D", "-f", str(conf), "-N", host):
        yield env


@pytest.mark.skipif(
    None in (shutil.which("slurmctld", path=PATH), shutil.which("sbatch")),
    reason="there is no Slurm: apt-get install slurmctld slurmd slurm-client",
)
def test_slurm_array_and_merge_as_documented(tmp_path, slurm):
    """Both scripts of docs/scale_out.md, with an array of four; the merge waits for all of it."""
    expected = study(tmp_path, SHORT)
    for script in re.findall(r"```bash\n(#!/bin/bash\n# (\w+\.sbatch)\n.*?)```", PAGE, re.DOTALL):
        (tmp_path / script[1]).write_text(script[0].replace("--array=1-16", "--array=1-4"))
    (lines,) = re.findall(r"```text\n(array=\$\(sbatch .*?)```", PAGE, re.DOTALL)
    how = {"cwd": tmp_path, "env": slurm, "capture_output": True, "text": True}
    while not subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%n"], check=False, **how).stdout:
        time.sleep(0.5)
    subprocess.run(["bash", "-euc", lines], check=True, **how)
    while reasons := subprocess.run(["squeue", "-h", "-o", "%r"], check=True, **how).stdout:
        assert "Never" not in reasons  # an array job failed, so the merge will not start
        time.sleep(0.5)
    logs = "".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert "Traceback" not in logs
    assert (tmp_path / "my-study.parquet").read_bytes() == expected, logs
