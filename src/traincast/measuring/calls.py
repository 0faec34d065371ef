"""Tasks as calls of PyTorch."""

from typing import Any, Final

from traincast.measuring.tasks import Task
from traincast.measuring.timing import Call

TYPES: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
WIDTH: Final = 1024  # of a row that is normalised


def prepared(task: Task, torch: Any, device: Any) -> Call:
    """A call that does the work of a task once."""
    dtype = getattr(torch, TYPES[task.dtype])
    match task.family:
        case "products":
            m, n, k = task.sizes
            a, b = torch.randn(m, k, device=device).to(dtype), torch.randn(k, n, device=device).to(dtype)
            out = torch.empty(m, n, device=device, dtype=dtype)
            return lambda: torch.mm(a, b, out=out)
        case "attention":
            return _attention(task, torch, device, dtype)
        case "memory":
            return _memory(task, torch, device, dtype)
        case "dispatch":
            return _dispatch(task, torch, device, dtype)
        case "copies":
            return _copy(task, torch, device)
        case "collectives":
            return _collective(task, torch, device)


def _attention(task: Task, torch: Any, device: Any, dtype: Any) -> Call:
    """Fused attention with a causal mask, forward or backward."""
    fused = torch.nn.functional.scaled_dot_product_attention
    backward = task.op == "backward"
    q, k, v = (torch.randn(task.sizes, device=device).to(dtype).requires_grad_(backward) for _ in range(3))
    if not backward:
        return lambda: fused(q, k, v, is_causal=True)
    out = fused(q, k, v, is_causal=True)
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)


def _memory(task: Task, torch: Any, device: Any, dtype: Any) -> Call:
    """A kernel that reads and writes much and computes little."""
    (n,) = task.sizes
    a = torch.randn(n, device=device).to(dtype)
    out = torch.empty_like(a)
    match task.op:
        case "copy":
            return lambda: out.copy_(a)
        case "add":
            b = torch.randn(n, device=device).to(dtype)
            return lambda: torch.add(a, b, out=out)
        case "gelu":
            return lambda: torch.nn.functional.gelu(a)
    rows = a.view(-1, WIDTH)
    scale = torch.ones(WIDTH, device=device, dtype=dtype)
    return lambda: torch.nn.functional.layer_norm(rows, (WIDTH,), scale, scale)


def _dispatch(task: Task, torch: Any, device: Any, dtype: Any) -> Call:
    """Many small operations, whose time is that to issue or to start them."""
    (n,) = task.sizes
    x = torch.randn(8, 8, device=device).to(dtype)
    if task.op in ("kernel", "host"):
        y = torch.empty_like(x)
        return lambda: [torch.add(x, x, out=y) for _ in range(n)]
    w = [torch.randn(8, 8, device=device).to(dtype).requires_grad_() for _ in range(n // 2)]

    def forward() -> Any:
        at = x
        for one in w:
            at = torch.nn.functional.gelu(at @ one)
        return at

    if task.op == "forward":
        return forward
    end = forward().sum()
    return lambda: torch.autograd.grad(end, w, retain_graph=True)


def _copy(task: Task, torch: Any, device: Any) -> Call:
    """A copy between pinned memory of the host and the device."""
    (n,) = task.sizes
    host, own = torch.empty(n, dtype=torch.uint8, pin_memory=True), torch.empty(n, dtype=torch.uint8, device=device)
    if task.op == "to device":
        return lambda: own.copy_(host, non_blocking=True)
    return lambda: host.copy_(own, non_blocking=True)


def _collective(task: Task, torch: Any, device: Any) -> Call:
    """A collective over all ranks, or a message there and back between the first and the last; sizes as of nccl-tests."""
    dist = torch.distributed
    n = task.sizes[0] // 4
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = torch.ones(n, device=device)
    match task.op:
        case "allreduce":
            return lambda: dist.all_reduce(whole)
        case "allgather":
            own = whole[: n // size].clone()
            return lambda: dist.all_gather_into_tensor(whole, own)
        case "reducescatter":
            own = whole[: n // size].clone()
            return lambda: dist.reduce_scatter_tensor(own, whole)
        case "all2all":
            other = torch.empty_like(whole)
            return lambda: dist.all_to_all_single(other, whole)

    def there_and_back() -> None:
        if rank == 0:
            dist.send(whole, size - 1)
            dist.recv(whole, size - 1)
        elif rank == size - 1:
            dist.recv(whole, 0)
            dist.send(whole, 0)

    return there_and_back
