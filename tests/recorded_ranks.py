"""Ranks that reply to `measure` at once, with made-up times:
what real ones reply is tested in tests/accuracy/machine."""

from traincast.accuracy.machine.tasks import tasks
from traincast.accuracy.machine.training.timed_steps import TimedShape, run_row, training_cases

ABOUT = {
    "device": "Some CPU", "kind": "cpu", "driver": "", "memory_bytes": 16e9, "processors": 2, "cores": 4,
    "threads": 2, "ranks": 2, "nodes": 1, "host": "here", "launcher": "traincast", "backend": "gloo",
    "torch": "2.13.0", "system": "Linux 6", "dtypes": ["fp32", "bf16"],
}  # fmt: skip


def run_on_all_ranks(job, request, ranks, threads, on_message):
    on_message({"machine": ABOUT})
    if job.endswith(":train_as_rank"):
        cases = training_cases("cpu", ABOUT["ranks"], [TimedShape(*sizes) for sizes in request["shapes"]])
        for left, case in reversed(list(enumerate(reversed(cases)))):
            on_message({"row": run_row(case, ABOUT, [0.2, 0.3], None), "left": left, "visits": len(cases)})
        return
    for task in tasks("cpu", ABOUT["dtypes"], ABOUT["ranks"], ABOUT["nodes"], 1e8):
        work = task.flops / 1e11 if task.family == "products" else task.nbytes / 1e10
        seconds = (1e-5 + work) * task.sizes[0] if task.family == "dispatch" else 1e-5 + work
        problem = "no such type" if task.op == "full" else ""
        samples = [] if problem else [seconds, 1.1 * seconds, 0.95 * seconds]
        on_message({"task": task.key, "samples": samples, "problem": problem, "left": 1.0})
