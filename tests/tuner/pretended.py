"""A launch that takes no time: `python pretended.py LAUNCH LOG` writes the row of a run, for tests of trials.

Its time is a sum of shares of a plan's degrees; plans with a micro-batch of 1 run out of memory, and those of
two pipeline stages fail.
"""

import json
import sys
from pathlib import Path

launch, log = map(Path, sys.argv[1:])
plan = json.loads(launch.read_text())["plan"]
if plan.get("mbs", 1) == 1:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
if plan.get("pp", 1) > 1:
    sys.exit("RuntimeError: the second stage does not answer")
seconds = 0.3 + 0.02 * plan.get("tp", 1) + 0.01 * plan.get("zero", 1) + 0.4 / plan["mbs"]
log.write_text(
    "id,layers,hidden,heads,seq,mlp,gpu,gpus,precision,tp,pp,gbs,step_seconds,step_spread,steps_measured\n"
    f"trial,4,256,4,64,gelu,cpu,2,fp32,1,1,32,{seconds},0.01,20\n"
)
