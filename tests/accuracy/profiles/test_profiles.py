"""Profiles of a step: made-up ones in the form of CUDA's, and real ones of two processes with gloo.
Expected times are the sums of the made-up events, by hand."""

import gzip
import json
import sqlite3
import subprocess
import sys
from importlib.util import find_spec

import pytest

import traincast as tc
from log_files import written
from traincast.accuracy.logs import read as read_log
from traincast.accuracy.profiles import read_events

MS = 1000.0  # µs
KERNELS = [  # name, stream, begins, ends [ms], launched [ms]
    ("nvjet_tst_128x256_64x4_TNT", 7, 1.0, 5.0, 0.5),
    ("flash_fwd_kernel<Flash_fwd_kernel_traits>", 7, 5.0, 6.0, 0.6),
    (
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        20,
        4.0,
        8.0,
        0.4,
    ),  # 6 to 8 exposed
    ("void at::native::vectorized_elementwise_kernel<4>", 7, 10.0, 11.0, 9.5),  # issued late: 8 to 10
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 24, 12.0, 14.0, 0.9),  # idle from 11 to 12
    ("multi_tensor_apply_kernel<FusedAdamMathFunctor>", 7, 14.0, 15.0, 1.0),
]
COPY = ("Memcpy HtoD (Pinned -> Device)", 31, 14.5, 16.0, 1.1)  # 15 to 16 exposed
STEP = (0.0, 20.0)  # idle from 0 to 1, and from 16
PARTS = {
    "matrix products": 4, "attention": 1, "norms and element-wise": 1, "optimizer step": 1,
    "exposed communication": 2, "exposed copies": 1, "pipeline and idle": 2 + 1 + 1 + 4 - 1,
    "dispatch gaps": 2 + 1,
}  # fmt: skip


def kineto(marked=True, kernels=KERNELS, copies=(COPY,)):
    events = [{"ph": "M", "name": "process_name", "pid": 0}]
    for category, work in (("kernel", kernels), ("gpu_memcpy", copies)):
        for name, stream, start, end, launch in work:
            key = len(events)
            times = {"ts": start * MS, "dur": (end - start) * MS}
            about = {"args": {"correlation": key, "stream": stream}, "pid": 0, "tid": stream}
            events.append({"ph": "X", "cat": category, "name": name} | times | about)
            call = {"ts": launch * MS, "dur": 5, "args": {"correlation": key}, "pid": 1, "tid": 1}
            events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel"} | call)
    if marked:
        for first in (0, 1):
            mark = {"ts": first * STEP[1] * MS, "dur": STEP[1] * MS}
            name = f"ProfilerStep#{first + 3}"
            events.append({"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1} | mark)
        events += [
            moved(event) for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "cuda_runtime")
        ]
    properties = [{"name": "NVIDIA H100 80GB HBM3"}]
    return {"deviceProperties": properties, "distributedInfo": {"world_size": 16}, "traceEvents": events}


def moved(event):
    """The same event in the next step."""
    correlation = event["args"]["correlation"] + 1000
    return event | {"ts": event["ts"] + STEP[1] * MS, "args": event["args"] | {"correlation": correlation}}


def parts_ms(result):
    return {part.name: part.seconds * 1e3 for part in result.parts}


@pytest.fixture
def trace(tmp_path):
    return written(tmp_path, "rank0.json.gz", gzip.compress(json.dumps(kineto()).encode()))


@pytest.fixture(scope="module")
def estimate():
    return tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(tp=2, pp=2, dp=4), gbs=32)


def test_parts_of_a_step_add_up_to_it(trace, estimate):
    result = tc.profile(trace, estimate)
    assert (result.steps, result.device) == (2, "NVIDIA H100 80GB HBM3")
    assert result.step_seconds == pytest.approx(0.020)
    assert parts_ms(result) == pytest.approx(PARTS)
    of_collectives = {each.collective: each for each in result.collectives}
    gather = of_collectives["all-gather"]
    assert (gather.calls, gather.seconds, gather.exposed_seconds) == pytest.approx((1, 4e-3, 2e-3))
    assert of_collectives["send-recv"].exposed_seconds == pytest.approx(2e-3)


def test_dispatch_gaps_are_split_by_the_operators_of_the_host(tmp_path, estimate):
    """The device waits from 0 to 1 ms (launched at 0.5) and from 8 to 10 (launched at 9.5)."""
    document = kineto()
    operators = [
        ("aten::linear", 0.0, 0.25),
        ("aten::addmm", 0.125, 0.25),  # of it
        ("aten::gelu", 9.0, 9.75),
        ("aten::add", 9.5, 12.0),  # of the gap until 10; longer than what is around it, as on another thread
        ("aten::mul", 16.5, 17.0),  # no gap of dispatch
    ]
    for name, start, end in operators:
        event = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1}
        document["traceEvents"].append(event | {"ts": start * MS, "dur": (end - start) * MS, "args": {}})
    result = tc.profile(written(tmp_path, "trace.json", json.dumps(document)), estimate)
    assert parts_ms(result) == pytest.approx(PARTS)
    # operators ran in the first of two steps only
    assert result.dispatch.inside_seconds == pytest.approx((0.25 + 1.0) / 2 * 1e-3)
    assert result.dispatch.between_seconds == pytest.approx((3 - (0.25 + 1.0) / 2) * 1e-3)


def test_profiles_without_operators_do_not_split_dispatch(trace):
    assert tc.profile(trace).dispatch is None


def test_without_pipeline_stages_sends_and_receives_are_communication(trace):
    one_stage = tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(tp=2, dp=8), gbs=32)
    parts = parts_ms(tc.profile(trace, one_stage))
    assert parts["exposed communication"] == pytest.approx(PARTS["exposed communication"] + 2)


def test_predicted_parts_add_up_to_the_predicted_step(trace, estimate):
    result = tc.profile(trace, estimate)
    assert sum(part.predicted_seconds for part in result.parts) == pytest.approx(estimate.step_seconds)
    assert min(part.predicted_seconds for part in result.parts) >= 0
    assert (
        "less than predicted; what differs most: matrix products" in result.summary
    )  # 20 ms against seconds
    assert tc.profile(trace).summary == "Most of the step, 25%, is pipeline and idle."


def test_a_profile_without_marks_is_one_step(tmp_path):
    path = written(tmp_path, "trace.json", json.dumps(kineto(marked=False)))
    result = tc.profile(path)
    assert (result.steps, result.has_marks) == (1, False)
    assert result.step_seconds == pytest.approx(0.015)  # from the first kernel to the end of the copy


def test_torchs_name_of_a_collective_goes_before_the_kernels(tmp_path):
    document = kineto(marked=False, copies=())
    document["traceEvents"][9]["args"]["Collective name"] = "all_to_allv"
    assert "SendRecv" in document["traceEvents"][9]["name"]
    names = {
        each.collective for each in tc.profile(written(tmp_path, "t.json", json.dumps(document))).collectives
    }
    assert names == {"all-gather", "all-to-all"}


@pytest.fixture
def nsight(tmp_path):
    path = tmp_path / "report.sqlite"
    columns = "(start INTEGER, end INTEGER, correlationId INTEGER"
    with sqlite3.connect(path) as database:
        database.execute("create table StringIds (id INTEGER, value TEXT)")
        database.execute(f"create table CUPTI_ACTIVITY_KIND_KERNEL {columns}, demangledName INTEGER)")
        database.execute(f"create table CUPTI_ACTIVITY_KIND_MEMCPY {columns})")
        database.execute(f"create table CUPTI_ACTIVITY_KIND_RUNTIME {columns})")
        database.execute("create table NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT, textId INTEGER)")
        for key, (name, _, start, end, launch) in enumerate([*KERNELS, COPY]):
            row = (start * 1e6, end * 1e6, key)
            if name == COPY[0]:
                database.execute("insert into CUPTI_ACTIVITY_KIND_MEMCPY values (?, ?, ?)", row)
            else:
                database.execute("insert into StringIds values (?, ?)", (key, name))
                database.execute("insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?, ?, ?)", (*row, key))
            runtime = (launch * 1e6, launch * 1e6 + 5000, key)
            database.execute("insert into CUPTI_ACTIVITY_KIND_RUNTIME values (?, ?, ?)", runtime)
        database.execute("insert into NVTX_EVENTS values (0, 20000000, 'iteration 7', null)")
    database.close()
    return path


def test_an_export_of_nsight_systems_gives_the_same(nsight, estimate):
    assert parts_ms(tc.profile(nsight, estimate)) == pytest.approx(PARTS)


def test_a_table_of_nsight_systems_has_no_launches(tmp_path):
    header = "Start (ns),Duration (ns),CorrId,Device,Strm,Name\n"
    work = [*KERNELS, ("[CUDA memcpy Host-to-Device]", *COPY[1:])]
    rows = (f'{a * 1e6:.0f},{(b - a) * 1e6:.0f},1,H100,{s},"{n}"\n' for n, s, a, b, _ in work)
    parts = parts_ms(tc.profile(written(tmp_path, "gpu_trace.csv", header + "".join(rows))))
    assert parts["matrix products"] == pytest.approx(4)
    assert (parts["exposed copies"], parts["dispatch gaps"]) == pytest.approx((1, 0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"traceEvents": [', "malformed JSON, cut off"),
        ('{"traceEvents": []}', "holds no work of a device"),
        (
            '{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "args": []}]}',
            r"args = \[\]: must be a mapping",
        ),
        ('{"traceEvents": [{"ph": "X", "name": "a", "ts": "1"}]}', "ts = '1': must be a number"),
        ('{"traceEvents": [], "distributedInfo": [1]}', "distributedInfo: must be a mapping"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0)[:-6], "compressed file is cut off"),
        ("just text\n", "is no profile; known are"),
        (
            "Start (ns),Duration (ns),Name\nabc,1,gemm\n",
            r"Start \(ns\) = 'abc', Duration \(ns\) = '1' of gemm: must be numbers",
        ),
        (b"SQLite format 3\0 and no more", "is no export of Nsight Systems"),
    ],
)
def test_what_is_no_profile_is_refused(tmp_path, text, message):
    with pytest.raises(tc.InputError, match=message):
        tc.profile(written(tmp_path, "trace.json", text))


RUN = {
    "model": "llama-3-8b", "precision": "bf16", "tp": 2, "pp": 2, "mbs": 1, "gbs": 32, "seq": 8192, "zero": 1,
    "recompute": "none",
}  # fmt: skip


def test_calibrate_takes_profiled_steps(trace, tmp_path):
    row = read_log(trace, **RUN).rows[0]
    assert (row["gpu"], row["gpus"], row["step_seconds"], row["steps_measured"]) == (
        "h100-sxm-80",
        "16",
        "0.02",
        "2",
    )
    assert "the profiler makes slower" in row["notes"]
    with pytest.raises(tc.InputError, match="marks no steps"):
        read_log(written(tmp_path, "t.json", json.dumps(kineto(marked=False))), **RUN)


TWO_PROCESSES = """
import os, sys
import torch, torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}/rendezvous", rank=rank, world_size=2)
torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, dropout=0)
)
optimizer = torch.optim.AdamW(model.parameters())
write = lambda p: p.export_chrome_trace(f"{sys.argv[2]}/{rank}.json")
steps = schedule(wait=0, warmup=1, active=2)
with profile(activities=[ProfilerActivity.CPU], schedule=steps, on_trace_ready=write) as p:
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 64, 128)).square().mean().backward()
        optimizer.step()
        p.step()
dist.destroy_process_group()
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_a_real_profile_of_two_processes(tmp_path):
    script = written(tmp_path, "train.py", TWO_PROCESSES)
    command = [sys.executable, "-W", "ignore", str(script)]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path)], stderr=subprocess.PIPE) for rank in (0, 1)
    ]
    errors = [rank.communicate()[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    for rank in (0, 1):
        result = tc.profile(tmp_path / f"{rank}.json")
        parts = {part.name: part.seconds for part in result.parts}
        assert sum(parts.values()) == pytest.approx(result.step_seconds)
        assert (result.steps, read_events(tmp_path / f"{rank}.json").ranks) == (2, 2)
        assert min(parts["matrix products"], parts["norms and element-wise"], parts["optimizer step"]) > 0
        calls = {each.collective: each.calls for each in result.collectives}
        assert calls["all-reduce"] >= 1
