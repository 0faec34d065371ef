"""Tasks as calls of PyTorch; `torch` is handed in, for nothing here may import it."""

from collections.abc import Iterator, Sequence
from itertools import cycle
from math import ceil
from typing import Any, Final

from traincast.accuracy.measure.tasks import Task
from traincast.accuracy.measure.timing import Call

TORCH_DTYPES: Final = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn"}
NORM_WIDTH: Final = 1024  # of a row that is normalised
ROTATION_BYTES: Final = 2**27  # of operands that take turns [byte]
MAX_COPIES: Final = 64  # copies of operands
TINY_SIDE: Final = 8  # sides of matrices whose arithmetic takes no time


def prepare_call(task: Task, torch: Any, device: Any, group: Any, members: Sequence[int]) -> Call:
    """A call that does the work of a task once.

    Parameters
    ----------
    task : Task
        The task.
    torch, device : Any
        PyTorch, and where to work.
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
    """A tensor of normally distributed numbers: zeros draw less power."""
    return torch.randn(*sizes, device=device).to(getattr(torch, TORCH_DTYPES[dtype]))


def _product(task: Task, torch: Any, device: Any) -> Call:
    """A matrix product into memory that is there; operands take turns, so that they come from memory as those of a step do."""
    m, n, k = task.sizes
    a = _random(torch, device, task.dtype, m, k)
    if task.dtype == "fp8":
        b, one = _random(torch, device, task.dtype, n, k).t(), torch.ones((), device=device)
        turns = _rotating_operands(a, b)
        return lambda: torch._scaled_mm(*next(turns), one, one, out_dtype=torch.bfloat16)
    torch.set_float32_matmul_precision("high" if task.dtype == "tf32" else "highest")
    turns = _rotating_operands(a, _random(torch, device, task.dtype, k, n), torch.empty(m, n, device=device, dtype=a.dtype))

    def product() -> None:
        left, right, out = next(turns)
        torch.mm(left, right, out=out)

    return product


def _rotating_operands(*tensors: Any) -> Iterator[Sequence[Any]]:
    """Tensors and copies of them, again and again: more than caches hold, unless they are small."""
    copies = min(ceil(ROTATION_BYTES / sum(one.nbytes for one in tensors)), MAX_COPIES)
    return cycle([tensors, *([one.clone() for one in tensors] for _ in range(copies))])


def _attention(task: Task, torch: Any, device: Any) -> Call:
    """Fused attention: with a causal mask forward and backward, or on all pairs of query and key forward."""
    fused = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (_random(torch, device, task.dtype, *task.sizes) for _ in range(3))
    if task.op != "backward":
        causal = task.op == "forward"
        return lambda: fused(q, k, v, is_causal=causal)
    inputs = tuple(one.requires_grad_() for one in (q, k, v))
    out = fused(*inputs, is_causal=True)
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)


def _memory(task: Task, torch: Any, device: Any) -> Call:
    """A kernel that reads and writes much and computes little."""
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
    """Many small operations: alone, or in a network that keeps what backward needs, and backward."""
    (n,) = task.sizes
    x = _random(torch, device, task.dtype, TINY_SIDE, TINY_SIDE)
    if task.op == "kernel":
        return _small_kernels(torch, x, n)
    weights = [_random(torch, device, task.dtype, TINY_SIDE, TINY_SIDE).requires_grad_() for _ in range(n // 2)]

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
    """Small kernels; on a GPU as a graph, so that the host does not pace them."""
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
    """A copy between pinned memory of the host and the device."""
    (n,) = task.sizes
    host, own = torch.empty(n, dtype=torch.uint8, pin_memory=True), torch.empty(n, dtype=torch.uint8, device=device)
    into, out_of = (own, host) if task.op == "to device" else (host, own)
    return lambda: into.copy_(out_of, non_blocking=True)


def _collective(task: Task, torch: Any, device: Any, group: Any, members: Sequence[int]) -> Call:
    """A collective, or a message there and back between the first and the last; sizes as of nccl-tests."""
    dist, n, first, last = torch.distributed, task.sizes[0] // 4, members[0], members[-1]
    whole = torch.zeros(n, device=device)  # sums stay what they are
    own, other = torch.zeros(n // len(members), device=device), torch.empty_like(whole)
    rank = dist.get_rank()
    gather, scatter = (  # as they are called since PyTorch 2.13, and before
        getattr(dist, new, None) or getattr(dist, old)
        for new, old in (("all_gather_single", "all_gather_into_tensor"), ("reduce_scatter_single", "reduce_scatter_tensor"))
    )

    def there_and_back() -> None:
        if rank == first:
            dist.send(whole, last, group=group)
            dist.recv(whole, last, group=group)
        elif rank == last:
            dist.recv(whole, first, group=group)
            dist.send(whole, first, group=group)

    every: dict[str, Call] = {
        "allreduce": lambda: dist.all_reduce(whole, group=group),
        "allgather": lambda: gather(whole, own, group=group),
        "reducescatter": lambda: scatter(own, whole, group=group),
        "all2all": lambda: dist.all_to_all_single(other, whole, group=group),
        "p2p": there_and_back,
    }
    return every[task.op]
