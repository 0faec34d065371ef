"""Core attention: what stands between the qkv and the output projection, on shapes local to the rank.

A query meets every key: the scores are A = Q K' (logits). Softmax makes each row of A sum to 1. Dropout sets some scores to 0. The
scores then mix the values: O = A V (attend). A causal mask would halve the work; it is not counted. Every formula is from
arXiv 2410.00273, operations of a layer.

Symbols are numbers or columns over plans: b sequences, h local heads of width q, lq local queries, l keys, E bytes per element.
From them follow r = b h lq rows of scores, rk = b h l rows of keys, and n, the scores (r rows of l).
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
    """Fused attention: scores never leave the chip, and backward makes them again (arXiv 2410.00273, operations of a layer).

    Parameters
    ----------
    E : Column
        Size of an element [byte].
    b, h, q : Column
        Sequences, local heads, width of a head.
    lq, l : Column
        Local queries and all keys of a sequence.
    over : {"tp", "tp2", "cp", "dp"}
        Group that the sequence is cut over; keys and values are gathered from it.

    Returns
    -------
    Operation
        One operation for the whole of core attention.
    """
    r, rk = b * h * lq, b * h * l  # rows of queries and of keys
    uq, uk, scores = r * q, rk * q, r * l  # elements
    # 2 FLOP per score forward, 3 backward, and a sum of l scores per row (arXiv 2410.00273)
    softmax, softmax_backward = Vector(2 * scores + r * (l - 1)), Vector(3 * scores + r * (l - 1))
    drop = Vector(scores)  # 1 FLOP per score
    logits, attend = Gemm(r, q, l), Gemm(r, l, q)  # A = Q K', O = A V
    dq, dk = Gemm(r, l, q), Gemm(rk, lq, q)  # dQ = dA K, dK = dA' Q
    da, dv = Gemm(r, q, l), Gemm(rk, lq, q)  # dA = dO V', dV = A' dO
    saved = E * (4 * uq + 2 * r)  # four tensors as large as the queries, two numbers per row (arXiv 2410.00273)
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
    """Attention as separate kernels (arXiv 2410.00273, operations of a layer).

    Parameters
    ----------
    E, mask : Column
        Size of an element and of an element of the dropout mask [byte].
    b, h, q : Column
        Sequences, local heads, width of a head.
    lq, l : Column
        Local queries and all keys of a sequence.
    over : {"tp", "tp2", "cp", "dp"}
        Group that the sequence is cut over; keys and values are gathered from it.
    recompute : bool
        Whether backward makes the scores again, up to dropout, instead of reading what softmax and dropout saved.

    Yields
    ------
    Operation
        Logits, softmax, dropout and attend.
    """
    r, rk = b * h * lq, b * h * l  # rows of queries and of keys
    n, uq, uk = r * l, r * q, rk * q  # elements of scores, queries, keys
    dkv = Gemm(rk, lq, q)  # gradient of keys or of values
    gather, scatter = _gathered(E * uk, over)
    forward_bytes, backward_bytes = E * (n + uq + uk), E * (2 * n + 3 * uq + uk)
    yield Operation(
        "attention.logits",
        Pass((Gemm(r, q, l),), forward_bytes, gather),  # A = Q K'
        Pass((Gemm(r, l, q), dkv), backward_bytes, scatter),  # dQ = dA K, dK = dA' Q
        saved_bytes=2 * E * uq,
        recompute=recompute,
    )
    yield _softmax(E, r, l, recompute)
    yield dropout("attention.dropout", E, mask, n, recompute)
    yield Operation(
        "attention.attend",
        Pass((Gemm(r, l, q),), forward_bytes, gather),  # O = A V
        Pass((Gemm(r, q, l), dkv), backward_bytes, scatter),  # dA = dO V', dV = A' dO
        saved_bytes=E * uq if recompute else E * (n + uq),
    )


def summa(
    E: Column, mask: Column, b: Column, h: Column, l: Column, q: Column, m1: Column, m2: Column, nb: Column
) -> Iterator[Operation]:
    """Attention as 2-D SUMMA products in nb panels (arXiv 2410.00273, operations of a layer).

    All heads are on every rank. The head width is cut over m1, the queries over m2, the keys of a score over m1.

    Parameters
    ----------
    E, mask : Column
        Size of an element and of an element of the dropout mask [byte].
    b, h, l, q : Column
        Sequences, all heads, sequence length, full width of a head.
    m1, m2 : Column
        Degrees tp and tp2.
    nb : Column
        Panels of a product.

    Yields
    ------
    Operation
        Logits, softmax, dropout and attend; collectives of a product are those of one panel.
    """
    lq, lc, qs = l // m2, l // m1, q // m1  # local queries, keys and head width
    r, rk = b * h * lq, b * h * l  # rows of queries and of keys
    n, u = r * lc, r * qs  # elements of local scores and queries
    scores = Gemm(r, qs, lc, batch=m1)  # one product for each of the m1 blocks of keys
    dkv = Gemm(rk, lq, qs)  # gradient of keys or of values
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
    """Softmax of r rows of l scores (arXiv 2410.00273: 2 FLOP per score forward, 3 backward, and a sum of l scores per row)."""
    n = r * l
    return Operation(
        "attention.softmax",
        Pass((Vector(2 * n + r * (l - 1)),), 2 * E * n, comms),
        Pass((Vector(3 * n + r * (l - 1)),), 3 * E * n, comms),
        saved_bytes=0 * E if recompute else E * n,
        recompute=recompute,
    )
