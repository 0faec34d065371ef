"""Mixture of experts: router, tokens sent to their experts, the experts' products, and the way back.

A rank has n = T/m1 tokens of its own. Each goes to K experts, so the ranks of an expert-parallel group exchange n K rows, and a
rank works on n K rows of its E/ep experts: more by the load of the fullest rank. With expert tensor parallelism etp ranks share an
expert's width and see each other's rows.
"""

from collections.abc import Iterator
from dataclasses import replace

from traincast.core.model import Model
from traincast.core.model_blocks import Experts
from traincast.core.quantities import Column
from traincast.operations import elementwise, linear
from traincast.operations.mlp import mlp
from traincast.operations.operation import Collective, Operation, PassCount
from traincast.operations.sharding import Sharding


def experts(model: Model, rank: Sharding) -> Iterator[Operation]:
    """Mixture of experts of one layer.

    Parameters
    ----------
    model : Model
        The transformer; it has experts.
    rank : Sharding
        What one rank holds.

    Yields
    ------
    Operation
        In execution order, shared experts last.
    """
    one = model.experts
    if one is None:
        raise TypeError(f"{model.name} has no experts")
    n, width = rank.boundary
    router = _router(model, one, rank, n)
    yield replace(router, saved_bytes=0 * router.saved_bytes) if one.shared_ffn else router  # shared experts keep the same input
    static = one.capacity is not None  # experts' inputs are padded to their capacity, so the host need not know how many come
    yield _sent("experts.permute", rank, n * one.topk, width, one.topk, 2, 3, static)
    yield from _products(model, one, rank, n * one.topk * rank.plan.etp * rank.plan.load)
    yield replace(_sent("experts.unpermute", rank, n * one.topk, width, one.topk, 3, 3), module="")  # as fc2, it ends the block
    if one.shared_ffn:
        gate = model.hidden if one.shared_gate else 0
        yield from (
            replace(op, weights=op.weights + gate * op.name.endswith("fc2")) for op in mlp(model, rank, one.shared_ffn, "shared")
        )


def _router(model: Model, one: Experts, rank: Sharding, n: Column) -> Operation:
    """Scores of all experts for every token, at 16 bits or above; every rank has all of the router."""
    scores = linear.linear("experts.router", rank.plain_sizes, n, model.hidden, one.experts)
    return replace(
        scores, weights=scores.weights + (one.experts if one.router_bias else 0), module="experts", recomputed_with="norms"
    )


def _sent(
    name: str, rank: Sharding, rows: Column, width: Column, topk: int, forward: int, backward: int, static: bool = False
) -> Operation:
    """Rows put in the order of their experts and sent to them, or the way back: so many elements are moved for each of a row's.

    The fullest rank receives more than its share, and all wait for it.
    """
    nbytes = rank.E * rows * width * rank.plan.load
    comms = (
        Collective("all-to-all", nbytes, "ep", copies=topk),
        Collective("all-gather" if name.endswith(".permute") else "reduce-scatter", nbytes * rank.plan.etp, "etp"),
    )
    back = (comms[0], Collective("reduce-scatter" if name.endswith(".permute") else "all-gather", comms[1].nbytes, "etp"))
    elements = rank.assumptions.expert_passes * rows * width
    moved = elementwise.moved(name, rank.E, forward * elements, backward * elements, module="experts")
    return replace(
        moved,
        synchronises=name.endswith(".permute") and not static,
        forward=PassCount(moved.forward.kernels, moved.forward.nbytes, comms),
        backward=PassCount(moved.backward.kernels, moved.backward.nbytes, back),
    )


def _products(model: Model, one: Experts, rank: Sharding, rows: Column) -> Iterator[Operation]:
    """The experts' MLPs on the rows of a rank, experts side by side."""
    e, f, local = model.hidden, one.ffn, one.experts / rank.plan.ep
    wide = model.up_projections * f
    first = rank.linear_in("experts.fc1", e, wide, rows, local)
    second = rank.linear_out("experts.fc2", f, e, rows, local)
    inner = second.saved_bytes / (rank.sizes.kept * rank.E)  # elements of the activation on the rank
    yield replace(first, experts=True, module="experts", recomputed_with="experts")
    if "mlp" in model.biases:
        yield _bias("experts.fc1_bias", rank, rows, wide / rank.plan.etp, local)
    made = elementwise.activation(f"experts.{model.mlp}", rank.E * rank.assumptions.expert_passes, inner, model.up_projections)
    kept = rank.plan.recipe.gates * made.saved_bytes / rank.assumptions.expert_passes + rank.gate_bytes(inner)
    yield replace(made, saved_bytes=kept, recomputed_with="experts")
    yield replace(second, experts=True, recomputed_with="activation")
    if "mlp" in model.biases:
        yield _bias("experts.fc2_bias", rank, rows, e, local)


def _bias(name: str, rank: Sharding, rows: Column, width: Column, local: Column) -> Operation:
    """Bias of every local expert, of a width on the rank, added to all rows."""
    return replace(
        elementwise.bias(name, rank.E * rank.assumptions.expert_bias_passes, rows, width), weights=local * width, experts=True
    )
