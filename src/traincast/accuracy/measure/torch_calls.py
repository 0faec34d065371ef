"""Tasks as PyTorch calls; `torch` is a parameter, since this module must not import it."""

from collections.abc import Iterator, Sequence
from itertools import cycle
from math import ceil
from typing import Any, Final

from traincast.accuracy.measure.tasks import Task
from traincast.accuracy.measure.timing import Call

TORCH_DTYPES: Final = {
    "fp32": "float32",
    "tf32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8_e4m3fn",
}
NORM_WIDTH: Final = 1024  # of a normalised row
ROTATION_BYTES: Final = 2**27  # of operands used in turn, so that they come from memory and not from a cache
MAX_COPIES: Final = 64  # of operands
TINY_SIDE: Final = 8  # side of matrices with negligible arithmetic


def prepare_call(task: Task, torch: Any, device: Any, group: Any, members: Sequence[int]) -> Call:
    """Return a call that runs a task once.

    Parameters
    ----------
    task : Task
        The task.
    torch, device : Any
        PyTorch, and the device to run on.
    group : Any
        Process group of a collective.
    members : sequence of int
        Its ranks.
    """
    match task.family:
        case "products":
            return _product(task, torch, device)
        case "attention":
            return _attention(task, torch, device)
        case "memory":
            return _memory(task, torch, device)
        case "dispatch":
            return _dispatch(task, torch, device)
        case "copies":
            return _copy(task, torch, device)
        case "collectives":
            return _collective(task, torch, device, group, members)


def _random(torch: Any, device: Any, dtype: str, *sizes: int) -> Any:
    """Return a tensor of normally distributed numbers (zeros would draw less power)."""
    return torch.randn(*sizes, device=device).to(getattr(torch, TORCH_DTYPES[dtype]))


def _product(task: Task, torch: Any, device: Any) -> Call:
    """Return a matmul into an allocated output; operands rotate, so that they come from memory as in a step."""
    m, n, k = task.sizes
    a = _random(torch, device, task.dtype, m, k)
    if task.dtype == "fp8":
        b, scale = _random(torch, device, task.dtype, n, k).t(), torch.ones((), device=device)
        operands = _rotating_operands(a, b)
        return lambda: torch._scaled_mm(*next(operands), scale, scale, out_dtype=torch.bfloat16)
    torch.set_float32_matmul_precision("high" if task.dtype == "tf32" else "highest")
    operands = _rotating_operands(
        a, _random(torch, device, task.dtype, k, n), torch.empty(m, n, device=device, dtype=a.dtype)
    )

    def product() -> None:
        left, right, out = next(operands)
        torch.mm(left, right, out=out)

    return product


def _rotating_operands(*tensors: Any) -> Iterator[Sequence[Any]]:
    """Cycle through tensors and copies of them that together exceed the caches, unless the tensors are tiny."""
    copies = min(ceil(ROTATION_BYTES / sum(tensor.nbytes for tensor in tensors)), MAX_COPIES)
    return cycle([tensors, *([tensor.clone() for tensor in tensors] for _ in range(copies))])


def _attention(task: Task, torch: Any, device: Any) -> Call:
    """Return fused attention: causal forward or backward, or full forward."""
    fused = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (_random(torch, device, task.dtype, *task.sizes) for _ in range(3))
    if task.op != "backward":
        causal = task.op == "forward"
        return lambda: fused(q, k, v, is_causal=causal)
    inputs = tuple(tensor.requires_grad_() for tensor in (q, k, v))
    out = fused(*inputs, is_causal=True)
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)


def _memory(task: Task, torch: Any, device: Any) -> Call:
    """Return a memory-bound kernel."""
    (n,) = task.sizes
    a = _random(torch, device, task.dtype, n)
    out = torch.empty_like(a)
    match task.op:
        case "copy":
            return lambda: out.copy_(a)
        case "add":
            b = _random(torch, device, task.dtype, n)
            return lambda: torch.add(a, b, out=out)
        case "gelu":
            return lambda: torch.nn.functional.gelu(a)
    rows, scale = a.view(-1, NORM_WIDTH), torch.ones(NORM_WIDTH, device=device, dtype=a.dtype)
    return lambda: torch.nn.functional.layer_norm(rows, (NORM_WIDTH,), scale, scale)


def _dispatch(task: Task, torch: Any, device: Any) -> Call:
    """Return many tiny operations: bare kernels, or the forward or backward pass of a network."""
    (n,) = task.sizes
    x = _random(torch, device, task.dtype, TINY_SIDE, TINY_SIDE)
    if task.op == "kernel":
        return _small_kernels(torch, x, n)
    weights = [
        _random(torch, device, task.dtype, TINY_SIDE, TINY_SIDE).requires_grad_() for _ in range(n // 2)
    ]

    def forward() -> Any:
        at = x
        for weight in weights:
            at = torch.nn.functional.gelu(at @ weight)
        return at

    if task.op == "forward":
        return forward
    end = forward().sum()
    return lambda: torch.autograd.grad(end, weights, retain_graph=True)


def _small_kernels(torch: Any, x: Any, n: int) -> Call:
    """Return tiny kernels; on a GPU as a CUDA graph, so that they are not bound by the host."""
    y = torch.empty_like(x)

    def work() -> None:
        for _ in range(n):
            torch.add(x, x, out=y)

    if x.device.type != "cuda":
        return work
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    replay: Call = graph.replay
    return replay


def _copy(task: Task, torch: Any, device: Any) -> Call:
    """Return a copy between pinned host memory and the device."""
    (n,) = task.sizes
    pinned, on_device = (
        torch.empty(n, dtype=torch.uint8, pin_memory=True),
        torch.empty(n, dtype=torch.uint8, device=device),
    )
    target, source = (on_device, pinned) if task.op == "to device" else (pinned, on_device)
    return lambda: target.copy_(source, non_blocking=True)


def _collective(task: Task, torch: Any, device: Any, group: Any, members: Sequence[int]) -> Call:
    """Return a collective, or a p2p round trip between the first and the last rank; sizes as in nccl-tests."""
    dist, n, first, last = torch.distributed, task.sizes[0] // 4, members[0], members[-1]
    full = torch.zeros(n, device=device)  # sums stay what they are
    shard, received = torch.zeros(n // len(members), device=device), torch.empty_like(full)
    rank = dist.get_rank()
    gather, scatter = (  # names since PyTorch 2.13, and before
        getattr(dist, new, None) or getattr(dist, old)
        for new, old in (
            ("all_gather_single", "all_gather_into_tensor"),
            ("reduce_scatter_single", "reduce_scatter_tensor"),
        )
    )

    def there_and_back() -> None:
        if rank == first:
            dist.send(full, last, group=group)
            dist.recv(full, last, group=group)
        elif rank == last:
            dist.recv(full, first, group=group)
            dist.send(full, first, group=group)

    calls: dict[str, Call] = {
        "allreduce": lambda: dist.all_reduce(full, group=group),
        "allgather": lambda: gather(full, shard, group=group),
        "reducescatter": lambda: scatter(shard, full, group=group),
        "all2all": lambda: dist.all_to_all_single(received, full, group=group),
        "p2p": there_and_back,
    }
    return calls[task.op]
