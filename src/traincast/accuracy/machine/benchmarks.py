"""Benchmarks of one rank: tasks as PyTorch calls, timed on all ranks at once as rank 0 chooses them."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from math import ceil
from timeit import repeat
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils import benchmark

from traincast.accuracy.machine.device_info import describe_machine, identity
from traincast.accuracy.machine.launcher import Send
from traincast.accuracy.machine.rank_group import RankGroup, gather_and_scatter
from traincast.accuracy.machine.tasks import Family, Task, TimeBudget, sample_counts, tasks

Call = Callable[[], Any]
MIN_SAMPLE_SECONDS: Final = {"cpu": 50e-6, "cuda": 5e-3}  # on a GPU each sample ends with a wait for it
MIN_COLLECTIVE_SAMPLE_SECONDS: Final = 5e-3  # on CPUs: longer than a time slice of the scheduler
WARM_UP_CALLS: Final = 2  # the faster of them is taken for the time of a call
DTYPES: Final = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.float8_e4m3fn,
}
NORM_WIDTH: Final = 1024  # of a normalised row
ROTATION_BYTES: Final = 2**27  # of operands used in turn, so that they come from memory and not from a cache
MAX_COPIES: Final = 64  # of operands
TINY_SIDE: Final = 8  # side of matrices with negligible arithmetic


def measure_as_rank(request: dict[str, Any], send: Send) -> None:
    """Measure as one rank of a job.

    The request has ``until``, the end in wall-clock time [s]; ``threads`` of a rank, 0 for PyTorch's default;
    ``done``, keys of tasks timed already, and ``identity`` of the machine they were timed on. Rank 0 sends a
    message for the machine, and one for each task: samples or problem, and time left.
    """
    with RankGroup(request["threads"]) as group:
        about = group.from_rank_zero(lambda: describe_machine(group))
        budget = None
        if group.rank.rank == 0:
            send({"machine": about})
            done = request["done"] if request["identity"] == identity(about) else ()
            every_task = tasks(
                group.device.type, about["dtypes"], group.rank.size, about["nodes"], about["memory_bytes"]
            )
            budget = TimeBudget(every_task, done, request["until"] - time.time())
        while choice := group.from_rank_zero(lambda: _next_task(budget)):
            task = Task.from_key(choice[0])
            samples, problem = time_task(task, choice[1], group)
            if budget is not None:
                budget.record(task, failed=bool(problem))
                send({"task": task.key, "samples": samples, "problem": problem, "left": budget.seconds_left})


def _next_task(budget: TimeBudget | None) -> tuple[str, float] | None:
    """Return the key of the next task and the time for its samples [s]; None at the end."""
    task = budget.next() if budget is not None else None
    return (task.key, budget.samples_seconds(task)) if budget is not None and task is not None else None


def time_task(task: Task, seconds: float, group: RankGroup) -> tuple[list[float], str]:
    """Time a task on all ranks; return samples of all ranks [s], and the reason if there are none."""
    call_seconds = 0.0
    problem = ""
    try:
        call = CALLS[task.family](task, group)
        call_seconds = min(time_call(call, WARM_UP_CALLS, 1))
    except (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError) as error:
        problem = (str(error) or type(error).__name__).splitlines()[0]
    problems = [text for text in group.all_gather(problem) if text]
    if problems:
        return [], problems[0]
    kind = group.device.type
    together = task.family == "collectives" and kind == "cpu"
    shortest = MIN_COLLECTIVE_SAMPLE_SECONDS if together else MIN_SAMPLE_SECONDS[kind]
    samples, calls = group.from_rank_zero(lambda: sample_counts(call_seconds, seconds, shortest))
    samples_of_ranks = group.all_gather(time_call(call, samples, calls))
    if task.op == "p2p":  # a message goes there and back between two ranks
        _, members = group.groups[task.scope]
        return [sample / 2 for rank in (members[0], members[-1]) for sample in samples_of_ranks[rank]], ""
    return [sample for samples in samples_of_ranks for sample in samples], ""


def time_call(call: Call, samples: int, calls: int) -> list[float]:
    """Return the time per call of each sample, by a clock that waits for a GPU [s]."""
    return [seconds / calls for seconds in repeat(call, timer=benchmark.timer, repeat=samples, number=calls)]


def _random(group: RankGroup, dtype: str, *sizes: int) -> Any:
    """Return a tensor of normally distributed numbers (zeros would draw less power)."""
    return torch.randn(*sizes, device=group.device).to(DTYPES[dtype])


def _product(task: Task, group: RankGroup) -> Call:
    """Return a matmul; operands rotate, so that they come from memory as in a step."""
    m, n, k = task.sizes
    a = _random(group, task.dtype, m, k)
    if task.dtype == "fp8":
        scale = torch.ones((), device=group.device)
        operands = _rotating_operands(a, _random(group, task.dtype, n, k).t())
        return lambda: torch._scaled_mm(*next(operands), scale, scale, out_dtype=torch.bfloat16)
    torch.set_float32_matmul_precision("high" if task.dtype == "tf32" else "highest")
    b = _random(group, task.dtype, k, n)
    product = torch.empty(m, n, device=group.device, dtype=a.dtype)
    operands = _rotating_operands(a, b, product)

    def call() -> None:
        left, right, out = next(operands)
        torch.mm(left, right, out=out)

    return call


def _rotating_operands(*tensors: Any) -> Iterator[Sequence[Any]]:
    """Cycle through copies of tensors that together exceed the caches, unless the tensors are tiny."""
    copies = min(ceil(ROTATION_BYTES / sum(tensor.nbytes for tensor in tensors)), MAX_COPIES)
    return cycle([tensors, *([tensor.clone() for tensor in tensors] for _ in range(copies))])


def _attention(task: Task, group: RankGroup) -> Call:
    q, k, v = (_random(group, task.dtype, *task.sizes) for _ in range(3))
    if task.op != "backward":
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=task.op == "forward")
    inputs = [tensor.requires_grad_() for tensor in (q, k, v)]
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)


def _memory(task: Task, group: RankGroup) -> Call:
    (n,) = task.sizes
    a = _random(group, task.dtype, n)
    b = _random(group, task.dtype, n) if task.op == "add" else a
    out = torch.empty_like(a)
    rows = a.view(-1, NORM_WIDTH)
    scale = torch.ones(NORM_WIDTH, device=group.device, dtype=a.dtype)
    calls: dict[str, Call] = {
        "copy": lambda: out.copy_(a),
        "add": lambda: torch.add(a, b, out=out),
        "gelu": lambda: F.gelu(a),
        "norm": lambda: F.layer_norm(rows, (NORM_WIDTH,), scale, scale),
    }
    return calls[task.op]


def _dispatch(task: Task, group: RankGroup) -> Call:
    """Return many tiny operations: bare kernels, or the forward or backward pass of a network."""
    (n,) = task.sizes
    x = _random(group, task.dtype, TINY_SIDE, TINY_SIDE)
    if task.op == "kernel":
        return _small_kernels(x, n)
    weights = [_random(group, task.dtype, TINY_SIDE, TINY_SIDE).requires_grad_() for _ in range(n // 2)]

    def forward() -> Any:
        y = x
        for weight in weights:
            y = F.gelu(y @ weight)
        return y

    if task.op == "forward":
        return forward
    end = forward().sum()
    return lambda: torch.autograd.grad(end, weights, retain_graph=True)


def _small_kernels(x: Any, n: int) -> Call:
    """Return tiny kernels; on a GPU as a CUDA graph, so that they are not bound by the host."""
    y = torch.empty_like(x)

    def call() -> None:
        for _ in range(n):
            torch.add(x, x, out=y)

    if x.device.type != "cuda":
        return call
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    replay: Call = graph.replay
    return replay


def _copy(task: Task, group: RankGroup) -> Call:
    (n,) = task.sizes
    pinned = torch.empty(n, dtype=torch.uint8, pin_memory=True)
    on_device = torch.empty(n, dtype=torch.uint8, device=group.device)
    target, source = (on_device, pinned) if task.op == "to device" else (pinned, on_device)
    return lambda: target.copy_(source, non_blocking=True)


def _collective(task: Task, group: RankGroup) -> Call:
    """Return a collective, or a p2p round trip between first and last rank; sizes as in nccl-tests."""
    process_group, members = group.groups[task.scope]
    n = task.sizes[0] // 4
    first = members[0]
    last = members[-1]
    full = torch.zeros(n, device=group.device)  # sums stay what they are
    shard = torch.zeros(n // len(members), device=group.device)
    received = torch.empty_like(full)
    all_gather, reduce_scatter = gather_and_scatter()

    def round_trip() -> None:
        if group.rank.rank == first:
            dist.send(full, last, group=process_group)
            dist.recv(full, last, group=process_group)
        elif group.rank.rank == last:
            dist.recv(full, first, group=process_group)
            dist.send(full, first, group=process_group)

    calls: dict[str, Call] = {
        "allreduce": lambda: dist.all_reduce(full, group=process_group),
        "allgather": lambda: all_gather(full, shard, group=process_group),
        "reducescatter": lambda: reduce_scatter(shard, full, group=process_group),
        "all2all": lambda: dist.all_to_all_single(received, full, group=process_group),
        "p2p": round_trip,
    }
    return calls[task.op]


CALLS: Final[dict[Family, Callable[[Task, RankGroup], Call]]] = {  # family -> a call that runs a task once
    "products": _product,
    "attention": _attention,
    "memory": _memory,
    "dispatch": _dispatch,
    "copies": _copy,
    "collectives": _collective,
}
