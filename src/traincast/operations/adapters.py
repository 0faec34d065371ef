"""Fine-tuning: the frozen model, and the low-rank adapters beside its linear layers.

A frozen layer has the gradient of its input, but none of its weights, so a frozen linear layer saves nothing.
An adapter adds x A B to x W (arXiv 2106.09685), with A[i, r] and B[r, o]. With tensor parallelism A is
replicated and B sharded where W is column-parallel, A is sharded and B replicated where W is row-parallel;
the narrow x A is what ranks exchange. (Megatron-Bridge, `ParallelLinearAdapter`, shards A of column-parallel
layers over r instead and gathers x A, which is as much; B of row-parallel ones over o, and gathers the
result.) Adapters and their sums with the frozen result are at 16 bits or above.

Not counted: that the first layer needs no gradient of its input.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from traincast.core import Column, nonzero, replace
from traincast.model import PACKED_BYTES, ROUTING_TARGETS
from traincast.operations.elementwise import dropout, elementwise_operation, with_traffic
from traincast.operations.linear import linear
from traincast.operations.operation import Collective, Gemm, Operation, PassCount, Vector
from traincast.operations.sharding import Sharding

ROW_PARALLEL: Final = ("output projection", "down projection")
WHOLE: Final = ("q_down", "kv_down", *ROUTING_TARGETS)  # every tensor rank has all of it
# Of other roles: their name.
TARGETS: Final = {"output projection": "proj", "down projection": "fc2", "input projection": "in_proj"}


def add_adapters(
    sharding: Sharding, operations: Iterable[Operation], packs: bool = False
) -> Iterator[Operation]:
    """Yield operations as they are where all is trained; else frozen, each with its adapters.

    With `packs` linear layers are held as `Adapters.base` says, and dequantised in both passes.
    """
    adapters = sharding.model.adapters
    if adapters is None:
        yield from (_with_reference(op, sharding) for op in operations)
        return
    scale = sharding.assumptions.memory.element_bytes / 2
    recipe = sharding.plan.recipe
    base = adapters.base if packs else "16-bit"
    for op in operations:
        held = _activation_gradients(_frozen(op, sharding.E * op.weights), op, sharding)
        if op.weight is not None and base in PACKED_BYTES:
            held = replace(held, frozen_bytes=PACKED_BYTES[base] * scale * op.weights)
            yield _with_reference(_dequantisation(op, sharding, held.frozen_bytes), sharding)
        elif op.weight is not None and base == "operand":
            casts = sharding.sizes.cast_weights(op.weights)  # there is nothing to cast
            forward = replace(op.forward, nbytes=op.forward.nbytes - casts, cast=op.forward.cast - casts)
            held = replace(held, forward=forward, frozen_bytes=recipe.copies * scale * op.weights)
        elif any(gemm.low for gemm in op.forward.gemms) and sharding.assumptions.memory.saves_casts:
            copies = recipe.copies  # by rows and by columns in the place of 16 bits, or beside them
            if recipe.rate == "fp8" and not sharding.assumptions.memory.stores_16bit_weights:
                copies = 2 * (recipe.copies - recipe.width)
            held = replace(held, frozen_bytes=held.frozen_bytes + copies * scale * op.weights)
        if adapters.dtype == "fp32" and (op.weight is None or base not in PACKED_BYTES):
            held = _in_fp32(held, op, sharding)
        yield _with_reference(_widen_saved(held, sharding), sharding)
        yield from (_widen_saved(part, sharding) for part in _adapters(op, sharding))


def freeze(sharding: Sharding, operations: Iterable[Operation], always: bool = False) -> Iterator[Operation]:
    """Yield operations that run forward alone: those before the first adapter of a model, or `always`."""
    for op in operations:
        if sharding.model.adapters is None and not always:
            yield _with_reference(op, sharding)
        else:
            held = _frozen(op, sharding.E * op.weights)
            adapters = sharding.model.adapters
            if adapters is not None and adapters.dtype == "fp32":
                held = _in_fp32(held, op, sharding)
            yield _with_reference(without_backward(held), sharding)


def without_backward(op: Operation, keeps_weights: bool = False) -> Operation:
    """Return an operation whose input needs no gradient; its weights have one if it `keeps_weights`."""
    held = replace(op, backward=_no_work(op))
    if keeps_weights:
        return held
    nothing = 0 * op.saved_bytes
    return replace(held, weight=None, saved_bytes=nothing, recompute=0.0, recomputed_bytes=nothing)


def _with_reference(op: Operation, sharding: Sharding) -> Operation:
    """Return an operation that a reference model runs as well: a frozen copy, or the base of adapters."""
    if not sharding.model.reference:
        return op
    copy = sharding.E * op.weights if sharding.model.adapters is None else 0 * op.frozen_bytes
    return replace(op, is_reference=True, frozen_bytes=op.frozen_bytes + copy)


def _widen_saved(op: Operation, sharding: Sharding) -> Operation:
    """Return an operation that saves fp32 in place of 16 bits, where a packed base widens activations."""
    adapters = sharding.model.adapters
    assumed = sharding.assumptions.memory
    is_norm_or_mask = (op.module == "norms" and assumed.norms_in_fp32) or op.is_mask
    if not assumed.widens_packed or adapters is None or adapters.base not in PACKED_BYTES or is_norm_or_mask:
        return op
    return replace(op, saved_bytes=op.saved_bytes * sharding.fp32 / sharding.E)


def _no_work(op: Operation) -> PassCount:
    return PassCount((), 0 * op.forward.nbytes)


def _frozen(op: Operation, nbytes: Column) -> Operation:
    """Return an operation whose weights, of `nbytes` bytes, are not trained."""
    op = replace(op, weights=0 * op.weights, frozen_bytes=nbytes)
    if op.only_trains:
        return replace(op, backward=_no_work(op))
    if op.weight is None:
        return op
    # Backward gathers x for the gradient of the weights alone.
    needed = tuple(call for call in op.backward.collectives if call.kind != "all-gather")
    backward = replace(op.backward, collectives=needed)
    return replace(op, backward=backward, weight=None, saved_bytes=0 * op.saved_bytes)


def _activation_gradients(held: Operation, op: Operation, sharding: Sharding) -> Operation:
    """Return the frozen down projection `held` with the gradients of the activation before it.

    Where `op` is trained, these take the place of the input that it saves.
    """
    ranks = sharding.model.adapter_ranks(op.experts)
    if op.role != "down projection" or "fc2" in ranks:
        return held
    gradients = (
        op.gradient_bytes + sharding.model.up_projections * op.saved_bytes / sharding.sizes.saved_operand
    )
    return replace(held, gradient_bytes=gradients)


def _in_fp32(held: Operation, op: Operation, sharding: Sharding) -> Operation:
    """Return the frozen operation `held` with the weights of `op` in fp32; nothing more where all is in fp32.

    FSDP (ZeRO-2 and 3) shards them in fp32, and gathers 16 bits: with ZeRO-2 a whole copy stays. Elsewhere
    autocast casts a matrix in each forward pass, and keeps the result for the gradient of the input: it
    caches copies of trained weights alone (PyTorch 2.13, ATen/autocast_mode.cpp, cached_cast).
    """
    sharded = sharding.plan.zero >= 2
    further = sharding.fp32 - (0 if sharding.plan.zero == 2 else sharding.E)
    if sharding.plan.recipe.width >= 2:
        return held
    held = replace(held, frozen_fp32_bytes=further * op.weights)
    if sharded or op.weight is None:
        return held
    casts = (sharding.fp32 + sharding.E) * op.weights
    forward = replace(held.forward, nbytes=held.forward.nbytes + casts, cast=held.forward.cast + casts)
    return replace(held, forward=forward, saved_bytes=held.saved_bytes + sharding.E * op.weights)


def _dequantisation(op: Operation, sharding: Sharding, nbytes: Column) -> Operation:
    """Return the dequantisation of a linear layer's weights before each product: read packed, written wide.

    A weight is multiplied by its scale (arXiv 2305.14314, equation 6). One matrix at a time is wide.
    """
    work = PassCount((Vector(op.weights),), nbytes + sharding.E * op.weights)
    matrices = len(_outputs(op, sharding, joined=False)) or 1
    return Operation(
        f"{op.name}.dequantise",
        work,
        work,
        module=op.module,
        peak_bytes=sharding.E * op.weights / matrices,
        has_framework_traffic=True,
    )


def _product(op: Operation) -> Gemm:
    """Return the product of a linear layer's forward pass."""
    (gemm,) = op.forward.gemms
    return gemm


def _outputs(op: Operation, sharding: Sharding, joined: bool) -> dict[str, Column]:
    """Return the local output widths of the matrices of a linear layer by target, `joined` or apart."""
    model = sharding.model
    role = op.role
    if not role or op.weight is None:
        return {}
    n = _product(op).n
    if role == "qkv":
        kv = sharding.local(sharding.kv_heads * model.head_width)
        return {"qkv": n} if joined else {"q": n - 2 * kv, "k": kv, "v": kv}
    if role == "up projection":
        each = n / model.up_projections
        if joined:
            return {"fc1": n}
        return {"up": each, "gate": each} if model.gated else {"up": each}
    return {} if joined else {TARGETS.get(role, role): n}


def _adapters(op: Operation, sharding: Sharding) -> Iterator[Operation]:
    """Yield the adapters of a linear layer: the first saves the input that all share, or each a copy."""
    ranks = sharding.model.adapter_ranks(op.experts)
    outputs = _outputs(op, sharding, joined=True) | _outputs(op, sharding, joined=False)
    shared: Column = 0.0
    # The adapter of the queries saves the same input, if there is one.
    if op.role == "kv_down" and not ranks.keys() & {"q_down", "q_up"}:
        product = _product(op)
        shared = sharding.E * product.m * product.k
    sizes = sharding.plain_sizes if op.role in ROUTING_TARGETS else sharding.sizes
    saved = op.saved_bytes / sizes.saved_operand + shared
    gathers = tuple(call for call in op.backward.collectives if call.kind == "all-gather")
    for target, o in outputs.items():
        if target in ranks:
            yield from _adapter(op, sharding, target, o, ranks[target], saved, gathers)
            gathers = ()
            if sharding.assumptions.memory.shares_adapter_inputs:
                saved = 0 * saved


def _adapter(
    op: Operation,
    sharding: Sharding,
    target: str,
    o: Column,
    r: int,
    saved: Column,
    gathers: tuple[Collective, ...],
) -> Iterator[Operation]:
    """Yield an adapter of rank r and local output width o, which saves `saved` bytes of its input.

    Its result is added to the frozen one; backward adds the gradients of the input.
    """
    adapters = sharding.model.adapters
    product = _product(op)
    sizes = sharding.plain_sizes
    assert adapters is not None
    rows = product.m * product.batch
    i = product.k
    copies = None if product.layout == "one" else product.batch
    summed: tuple[Collective, ...] = ()
    returned: tuple[Collective, ...] = ()
    out_rows = rows
    if op.role in ROW_PARALLEL and not op.experts:
        summed, returned = sharding.partial_sum_comms(r)
        out_rows = sharding.residual_shape[0]
    elif op.role not in (*ROW_PARALLEL, *WHOLE):  # B is sharded: its gradient is a partial sum
        returned = (Collective("all-reduce", sizes.E * rows * r, "etp" if op.experts else "tp"),)
    name = f"{op.name}.{target}"
    if adapters.dropout:
        masked = dropout(f"{name}_dropout", sizes.E, sharding.assumptions.memory.mask_bytes, rows * i)
        yield replace(masked, module=op.module)
        saved = sizes.E * rows * i
    down = linear(f"{name}_a", sizes, rows, i, r, summed, gathers, copies)
    up = linear(f"{name}_b", sizes, out_rows, r, o, (), returned, copies)
    addition = elementwise_operation(
        f"{name}_sum", sizes.E, 3 * out_rows * o, 2 * out_rows * o + 3 * rows * i
    )
    passes = sharding.assumptions.traffic.adapter_passes
    if nonzero(passes):
        addition = replace(with_traffic(addition, passes), has_framework_traffic=True)
    down = replace(down, saved_bytes=saved, recomputed_with=op.recomputed_with)
    yield _count_launches(replace(down, module=op.module, experts=op.experts), sharding)
    for part in (replace(up, recomputed_with=op.module, experts=op.experts), addition):
        yield _count_launches(
            replace(part, only_makes_output=op.only_makes_output, module=op.module), sharding
        )


def _count_launches(part: Operation, sharding: Sharding) -> Operation:
    """Return an operation of an adapter that is launched as long as adapters are, in units of others.

    An adapter has three operations in two directions.
    """
    host = sharding.assumptions.host
    if not (nonzero(host.adapter_seconds) and nonzero(host.dispatch_seconds)):
        return part
    launches = host.adapter_seconds / (6 * host.dispatch_seconds)
    forward = replace(part.forward, launches=launches)
    return replace(part, forward=forward, backward=replace(part.backward, launches=launches))
