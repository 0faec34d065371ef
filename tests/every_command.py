"""Every command of the command line, its documented example, and further calls whose answers show every key
it may print.

A new command needs nothing here if its example runs quickly and shows every key of its schema.
"""

import re
from importlib.util import find_spec
from pathlib import Path

from traincast.ui.cli.main import app

SCRIPTS = Path(__file__).parent / "launch" / "scripts"
PRETENDED = Path(__file__).parent / "tuner" / "pretended.py"
TUNED = (
    "examples/tune/model.yaml --system examples/measured_cpu/machine.yaml --gpus 2 --to measure "
    f"--command 'python3 {PRETENDED} {{launch}} {{log}}' --log 'out/tune/{{trial}}.csv'"
)
NAMES = sorted(name for name in app if not name.startswith("-"))
ENDLESS = {"serve"}  # commands that go on until interrupted
LACKING = {"measure"} if find_spec("torch") is None else set()  # commands that need what is not installed
EXAMPLES = {
    name: re.findall(r"^ *Example: traincast (.*)", app[name].default_command.__doc__, re.MULTILINE)
    for name in NAMES
}

SHORTER = {  # examples that take long, as they are tried here
    "validate --output parity.svg": "validate --runs examples/my_cluster/runs.csv --output parity.svg --html "
    "report.html",
    "measure --budget 120 --output this-machine.yaml": "measure --budget 6 --ranks 2 --output "
    "this-machine.yaml",
    "completion bash > traincast.bash": "completion bash",
    "tune examples/tune/model.yaml --gpus 2 --trials 5 --system examples/measured_cpu/machine.yaml --output "
    "out/tune": f"tune {TUNED} --trials 3 --output out/tune",
    "reproduce 2410.00273 --figures figures": "reproduce 2410.00273",  # tests/ui/cli/test_figures.py draws
    "study examples/strong_scaling.yaml --workers 2 --output scaling.parquet": "study study.yaml --output "
    "scaling.parquet",
    "design examples/design.yaml --output design.parquet --html design.html": "design design.yaml --output "
    "design.parquet --html design.html --figures drawn --format png",
    "merge examples/strong_scaling.yaml --output scaling.parquet": "merge study.yaml --output shards.parquet "
    "--html report.html",
}
FURTHER = {
    "tune": ["tune --replay --details"],
    "plan": [
        "plan llama-3-8b --system dgx-h100 --gpus 64 --gbs 128 --top 1 --strategy 1d --html report.html",
        "plan gpt3-1t --system h200-nvs8 --gpus 8",
        "plan gpt3-1t --system h200-nvs8 --gpus 7919",
        "plan mixtral-8x7b --system dgx-h100 --gpus 64 --gbs 256 --objective cost --top 1 --recompute full "
        "--ep 8",
    ],
    "estimate": [
        "estimate gpt3-1t --system h200-nvs8 --tp 8 --pp 16 --dp 16 --operations",
        "estimate llama-3-8b --system dgx-h100 --dp 8 --gbs 64 --restart 600 --html report.html",
        "estimate gpt3-1t --system h200-nvs8 --tp 8",
    ],
    "memory": [
        "memory mixtral-8x7b --system dgx-h100 --tp 2 --ep 8 --pp 1 --dp 32 --timeline memory.svg",
    ],
    "advise": [
        "advise gpt-1.3b --system dgx-a100 --tp 2 --dp 32 --gbs 512 --step-seconds 1.2",
        "advise gpt3-175b --system dgx-a100 --tp 8 --dp 4 --gbs 64 --assumptions calibrated",
        "advise llama-3-8b --system dgx-h100 --tp 2 --dp 4 --gbs 64 --assumptions paper",
    ],
    "measure": [
        "measure --step --system this-machine.yaml --ranks 2 --budget 60 --shapes "
        "64x2x2x32x128x2,32x2x2x32x128x2 "
        "--output steps.csv --calibrated calibrated.yaml",
    ],
    "calibrate": [
        "calibrate --system dgx-h100 --nccl all_reduce.txt --output network.yaml",
        "calibrate --system dgx-h100 --nccl all_reduce.txt",
    ],
    "limits": [
        "limits --accelerator h100-sxm-80 --layer 2x2 --batch 2 --gpus 16",
        "limits --accelerator h100-sxm-80 --tp-in 2 --gpus 16",
    ],
    "scaling": [
        "scaling --model gpt-13b --system polaris --gpus 1,8 --target 0.9",
    ],
    "check": [
        "check examples/my_cluster/pretrain.sh --system dgx-h100 --pp 1 --tp 1 --recompute none",
        f"check {SCRIPTS / 'unread.sh'} --system dgx-h100 --accept-unread",
        "check examples/my_cluster/pretrain.sh --system dgx-h100 --mfu 0.2",
    ],
    "catalog": [
        "catalog",
        "catalog llama-3-8b",
        "catalog h100",
    ],
    "study": [
        "study study.yaml --output second.csv --html report.html",
    ],
    "schema": [
        "schema",
    ],
    "docs": [
        "docs",
    ],
    "example": [
        "example",
        "example strong_scaling --output copied.yaml",
    ],
}
BEFORE = {  # what has to be run first
    "plot": ["study study.yaml --output scaling.parquet"],
    "merge": [
        "study study.yaml --output shards.parquet --shard 1/2",
        "study study.yaml --output shards.parquet --shard 2/2",
    ],
}
DESIGN = """
name: a small mix
workload:
  - {model: gpt3-175b, global_batch: 1024, tokens: 300G, runs: 2, range: [1, 3]}
gpus: [512]
refine: true
machines:
  - name: HBM
    base: b200-nvs8
    vary:
      accelerator.hbm_bytes: {linspace: [80 GB, 240 GB, 7]}
      accelerator.hbm_bandwidth: {linspace: [4 TB/s, 12 TB/s, 7]}
      network.0.size: [4, 8]
systems: [dgx-h200]
offers: [{system: dgx-b200, price: 5 $/h, low: 3 $/h, high: 6 $/h, source: a test, basis: guess}]
"""
STUDY = """
name: scaling
models: [gpt3-1t]
systems: [h200-nvs8, b200-nvs8]
gpus: [512, 1024]
strategies: [1d]
"""


def calls(name):
    """Command lines to try a command with, the documented example first."""
    return [*(SHORTER.get(example, example) for example in EXAMPLES[name]), *FURTHER.get(name, ())]
