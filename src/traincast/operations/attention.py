"""Core attention (between the qkv and output projections) on shapes local to the rank (arXiv 2410.00273, no causal halving).

b sequences, h local heads of width q, lq local queries, l keys; E is the size of an element [byte].
"""

from collections.abc import Iterator

from traincast.columns import Column
from traincast.operations.base import Axis, Collective, Gemm, Operation, Pass, Vector
from traincast.operations.dense import Comms, dropout


def _gathered(nbytes: Column, over: Axis) -> tuple[Comms, Comms]:
    """Communication of keys or values split over `over`: gathered forward; gathered and their gradients scattered backward."""
    gather = Collective("all-gather", nbytes, over)
    return (gather,), (gather, Collective("reduce-scatter", nbytes, over))


def flash(E: Column, b: Column, h: Column, lq: Column, l: Column, q: Column, over: Axis) -> Operation:
    """Fused attention: scores never leave the chip, and backward makes them again."""
    r, rk = b * h * lq, b * h * l
    uq, uk, scores = r * q, rk * q, r * l
    softmax, softmax_backward = Vector(2 * scores + r * (l - 1)), Vector(3 * scores + r * (l - 1))
    drop = Vector(scores)
    logits, attend = Gemm(r, q, l), Gemm(r, l, q)  # A = Q K', O = A V
    dq, dk = Gemm(r, l, q), Gemm(rk, lq, q)
    da, dv = Gemm(r, q, l), Gemm(rk, lq, q)
    saved = E * (4 * uq + 2 * r)
    gather, scatter = _gathered(2 * E * uk, over)
    return Operation(
        "attention.flash",
        Pass((logits, softmax, drop, attend), E * (2 * uq + 2 * uk + r), gather),
        Pass((dq, dk, softmax_backward, drop, da, dv, logits, softmax, drop), E * (2 * uq + 2 * uk) + saved, scatter),
        saved_bytes=saved,
    )


def unfused(
    E: Column, mask: Column, b: Column, h: Column, lq: Column, l: Column, q: Column, over: Axis, recompute: bool
) -> Iterator[Operation]:
    """Attention as separate kernels; with `recompute`, softmax and dropout are made again in backward instead of saved."""
    r, rk = b * h * lq, b * h * l
    n, uq, uk = r * l, r * q, rk * q
    dkv = Gemm(rk, lq, q)  # gradient of keys or of values
    gather, scatter = _gathered(E * uk, over)
    forward_bytes, backward_bytes = E * (n + uq + uk), E * (2 * n + 3 * uq + uk)
    yield Operation(
        "attention.logits",
        Pass((Gemm(r, q, l),), forward_bytes, gather),
        Pass((Gemm(r, l, q), dkv), backward_bytes, scatter),
        saved_bytes=2 * E * uq,
        recompute=recompute,
    )
    yield _softmax(E, r, l, recompute)
    yield dropout("attention.dropout", E, mask, n, recompute)
    yield Operation(
        "attention.attend",
        Pass((Gemm(r, l, q),), forward_bytes, gather),
        Pass((Gemm(r, q, l), dkv), backward_bytes, scatter),
        saved_bytes=E * uq if recompute else E * (n + uq),
    )


def summa(
    E: Column, mask: Column, b: Column, h: Column, l: Column, q: Column, m1: Column, m2: Column, nb: Column
) -> Iterator[Operation]:
    """Attention as 2-D SUMMA products: all h heads on every rank, the head width split over m1, the sequence over m1 and m2."""
    lq, lc, qs = l // m2, l // m1, q // m1
    r, rk = b * h * lq, b * h * l
    n, u = r * lc, r * qs
    scores = Gemm(r, qs, lc, batch=m1)
    dkv = Gemm(rk, lq, qs)
    forward_bytes = E * (r * l + rk * qs + u * nb)
    panel = (Collective("broadcast", E * r * l / nb, "tp"), Collective("broadcast", E * rk * qs / nb, "tp2"))
    reduced = (Collective("reduce", E * r * l / nb, "tp"), panel[1])
    backward = (*panel, reduced[0], Collective("reduce", E * rk * qs / nb, "tp2"))
    yield Operation(
        "attention.logits",
        Pass((scores,), forward_bytes, reduced, panels=nb),
        Pass((Gemm(r, l, qs), dkv), 2 * forward_bytes, backward, panels=nb),
        saved_bytes=2 * E * u,
    )
    yield _softmax(E, r, lc, False, (Collective("all-reduce", E * r, "tp"),))
    yield dropout("attention.dropout", E, mask, n)
    yield Operation(
        "attention.attend",
        Pass((Gemm(r, l, qs, accumulate=True),), forward_bytes, panel, panels=nb),
        Pass((scores, dkv), 2 * forward_bytes, backward, panels=nb),
        saved_bytes=E * (n + u),
    )


def _softmax(E: Column, r: Column, l: Column, recompute: bool, comms: Comms = ()) -> Operation:
    """Softmax of r rows of l scores."""
    n = r * l
    return Operation(
        "attention.softmax",
        Pass((Vector(2 * n + r * (l - 1)),), 2 * E * n, comms),
        Pass((Vector(3 * n + r * (l - 1)),), 3 * E * n, comms),
        saved_bytes=0 * E if recompute else E * n,
        recompute=recompute,
    )
