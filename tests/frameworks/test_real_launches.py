"""Folders that `export` writes for two processes on CPUs, launched as they are by the frameworks themselves.

`make frameworks` installs the frameworks; TRAINCAST_FRAMEWORKS names the folder of their executables, by
default that of this interpreter. Where one is missing its tests are skipped.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from traincast.accuracy.fit.measured_files import read_measurements as read_measured
from traincast.ui.cli.main import main

EXECUTABLES = Path(os.environ.get("TRAINCAST_FRAMEWORKS") or Path(sys.executable).parent)
MACHINE = Path(__file__).parents[2] / "examples" / "measured_cpu" / "machine.yaml"
STEPS = 3
SECONDS = 540  # DeepSpeed compiles its shared-memory collectives at the first start, for one to four minutes
LLAMA = """name: tiny-llama
layers: 2
hidden: 128
heads: 4
kv_heads: 2
ffn: 352
seq: 64
vocab: 512
causal: true
mlp: swiglu
norm: rmsnorm
biases: []
positions: rotary
dropout: false
"""
GPT = """name: tiny-gpt
layers: 2
hidden: 128
heads: 4
ffn: 512
seq: 64
vocab: 512
causal: true
mlp: gelu
norm: layernorm
biases: [qkv, proj, mlp]
positions: learned
dropout: false
inner_dropout: false
"""
NEEDED = {"deepspeed": "torch deepspeed transformers", "accelerate": "torch accelerate transformers"}
LAUNCHES = {  # format, model, plan -> what is read back of the log
    "zero0": ("deepspeed", LLAMA, "--zero 0", {"zero": 0, "precision": "bf16"}),
    "zero1": ("deepspeed", LLAMA, "--zero 1 --precision fp32", {"zero": 1, "precision": "fp32"}),
    "zero2": ("deepspeed", GPT, "--zero 2 --recompute full", {"zero": 2, "recompute": "full"}),
    "zero3": ("deepspeed", LLAMA, "--zero 3 --attention unfused", {"zero": 3, "attention": "unfused"}),
    "ddp": ("accelerate", GPT, "--zero 0 --precision fp32", {"zero": 0, "precision": "fp32"}),
    "ddp-bf16": (
        "accelerate",
        LLAMA,
        "--zero 0 --recompute full",
        {"recompute": "full", "precision": "bf16"},
    ),
}


@cache
def missing(packages):
    """Packages that the frameworks' interpreter does not have."""
    program = "import sys, importlib.util as u; print(*(p for p in sys.argv[1:] if not u.find_spec(p)))"
    found = subprocess.run(
        [EXECUTABLES / "python", "-c", program, *packages.split()], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


@pytest.mark.parametrize("name", LAUNCHES)
def test_an_exported_folder_takes_three_steps_and_its_log_is_read(tmp_path, name):
    to, model, knobs, expected = LAUNCHES[name]
    if absent := missing(NEEDED[to]):
        pytest.skip(f"{absent}: not installed beside {EXECUTABLES / 'python'}; `make frameworks` does")
    if to == "deepspeed" and shutil.which("c++") is None:
        pytest.skip("no C++ compiler: DeepSpeed compiles its collectives of CPUs at the first start")
    file, folder = tmp_path / "model.yaml", tmp_path / "run"
    file.write_text(model)
    plan = ["--dp", "2", "--mbs", "2", "--gbs", "8", *knobs.split()]
    main(["export", str(file), "--system", str(MACHINE), "--to", to, *plan, "--output", str(folder)])

    path = f"{EXECUTABLES}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "STEPS": str(STEPS), "HF_HUB_OFFLINE": "1"}
    run = subprocess.run(
        ["bash", folder / "launch.sh"], env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    counted = r"\bstep=3, skipped=0" if to == "deepspeed" else r"'step_time':"
    assert len(re.findall(counted, run.stdout)) == (1 if to == "deepspeed" else STEPS - 1)

    (measured,) = read_measured(str(MACHINE), logs=[folder / "training.log"]).runs
    knobs_read = {knob: getattr(measured.plan, knob) for knob in expected}
    assert (measured.model.name, measured.gbs, measured.plan.dp, measured.plan.mbs) == ("run", 8, 2, 2)
    assert (measured.model.layers, measured.model.hidden, measured.model.seq) == (2, 128, 64)
    assert knobs_read == expected
    assert 1e-3 < measured.step_seconds < 60


REFUSED = {  # what a framework refuses on CPUs, as docs/export.md says: packages, program, its last words
    "accelerate: FSDP2 becomes DDP": (
        "torch accelerate",
        "from accelerate import Accelerator, FullyShardedDataParallelPlugin as P;"
        " raise SystemExit(str(Accelerator(cpu=True, fsdp_plugin=P(fsdp_version=2)).distributed_type))",
        "DistributedType.MULTI_CPU",
    ),
    "accelerate: FSDP1": (
        "torch accelerate",
        "from accelerate import FullyShardedDataParallelPlugin as P;"
        " P(fsdp_version=1, sync_module_states=True)",
        "RuntimeError: There are currently no available devices found",
    ),
    "accelerate: ParallelismConfig": (
        "torch accelerate",
        "from accelerate import Accelerator, ParallelismConfig as P;"
        " Accelerator(cpu=True, parallelism_config=P(dp_replicate_size=1, dp_shard_size=2))",
        "but got DistributedType.MULTI_CPU",
    ),
    "lightning: FSDP": (
        "torch lightning",
        "from lightning import Trainer; Trainer(accelerator='cpu', devices=2, strategy='fsdp')",
        "requires a GPU accelerator",
    ),
    "torchtitan": (
        "torch torchtitan",
        "from torchtitan.tools.utils import device_module as d; d.set_device(0)",
        "_cuda_setDevice",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_on_cpus_is_refused_by_the_framework(what):
    packages, program, words = REFUSED[what]
    if absent := missing(packages):
        pytest.skip(f"{absent}: not installed beside {EXECUTABLES / 'python'}")
    two_processes = [
        "torchrun",
        "--standalone",
        "--nproc-per-node",
        "2",
        "--no-python",
        "python",
        "-c",
        program,
    ]
    path = f"{EXECUTABLES}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        two_processes,
        env=os.environ | {"PATH": path, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert run.returncode
    assert words in run.stderr + run.stdout


@pytest.mark.parametrize("to", NEEDED)
def test_trials_of_tune_are_launched_and_their_logs_read(tmp_path, monkeypatch, to):
    if absent := missing(NEEDED[to]):
        pytest.skip(f"{absent}: not installed beside {EXECUTABLES / 'python'}; `make frameworks` does")
    if to == "deepspeed" and shutil.which("c++") is None:
        pytest.skip("no C++ compiler: DeepSpeed compiles its collectives of CPUs at the first start")
    monkeypatch.setenv("PATH", f"{EXECUTABLES}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    file, folder = tmp_path / "model.yaml", tmp_path / "tuned"
    file.write_text(GPT)
    job = ["--system", str(MACHINE), "--gpus", "2", "--gbs", "8", "--to", to, "--precision", "fp32"]
    main(["tune", str(file), *job, "--trials", "2", "--steps", "6", "--output", str(folder)])
    told = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()[1:]]
    times = [event["seconds"] for event in told if "told" in event]
    assert len(times) == 2
    assert all(1e-3 < seconds < 60 for seconds in times)
    assert (folder / "system.yaml").is_file()
