"""Core attention: what stands between the qkv and the output projection, on shapes local to the rank.

A query meets every key: the scores are A = Q K' (logits). Softmax makes each row of A sum to 1. Dropout sets some scores to 0. The
scores then mix the values: O = A V (attend). Of masked scores a fused kernel skips what `Heads.share` leaves out; unfused ones skip
none. Every formula is from arXiv 2410.00273, operations of a layer, which counts no mask.

Symbols are numbers or columns over plans: b sequences, h local heads of width q, lq local queries, l keys, E bytes per element.
From them follow r = b h lq rows of scores, rk = b h l rows of keys, and n, the scores (r rows of l).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from traincast.core.quantities import Column
from traincast.operations.elementwise import dropout, with_traffic
from traincast.operations.operation import Axis, Collective, Comms, Fused, Gemm, Operation, PassCount, Vector


def gathered(nbytes: Column, over: Axis) -> tuple[Comms, Comms]:
    """Communication of keys or values split over `over`: gathered forward; gathered and their gradients scattered backward."""
    gather = Collective("all-gather", nbytes, over)
    return (gather,), (gather, Collective("reduce-scatter", nbytes, over))


@dataclass(frozen=True, slots=True)
class Heads:
    """Core attention on one rank; numbers or columns over plans.

    Parameters
    ----------
    b : Column
        Sequences of a micro-batch.
    h, kv : Column
        Local heads of queries, and of keys and values.
    lq, l : Column
        Local queries, and all keys of a sequence.
    q, v : Column
        Width of a head's query and key, and of its value.
    share : Column
        Share of the pairs of query and key that kernels work on: below 1 for masks that are skipped.
    """

    b: Column
    h: Column
    kv: Column
    lq: Column
    l: Column
    q: Column
    v: Column
    share: Column = 1

    @property
    def rows(self) -> tuple[Column, Column]:
        """Rows of queries, and of keys or values, one for each head."""
        return self.b * self.h * self.lq, self.b * self.kv * self.l

    @property
    def own(self) -> Column:
        """Elements of the rank's queries, and of keys and values of its own tokens."""
        r, rk = self.rows
        return r * self.q + (rk * self.q + rk * self.v) / self.l * self.lq

    def fused(self, backward: bool = False) -> Fused:
        """What decides the rate of one kernel for all of it.

        A sequence that is cut comes in pieces: those of the other ranks, and two of each rank, which balances the mask.
        """
        ways = self.l / self.lq
        twice = 1 - (1 - ways) // ways  # 1 where it is not cut, else 2
        return Fused(self.rows[0], self.l, self.share, ways * twice, (self.q + self.v) / 2, backward)

    @property
    def kv_elements(self) -> Column:
        """Elements of all keys and values."""
        return self.rows[1] * (self.q + self.v)


def flash(
    E: Column,
    at: Heads,
    comms: tuple[Comms, Comms],
    rounds: Column | None = None,
    kept: Column = 1,
    again: bool = False,
    dropped: bool = True,
) -> Operation:
    """Fused attention: scores never leave the chip, and backward makes them again (arXiv 2410.00273, operations of a layer).

    Parameters
    ----------
    E : Column
        Size of an element [byte].
    at : Heads
        Shapes.
    comms : pair of tuple of Collective
        Communication of the two directions.
    rounds : Column, optional
        Rounds of ring attention.
    kept : Column
        Copies of the result that it keeps itself.
    again : bool
        Whether it is made again before backward as a whole.
    dropped : bool
        Whether there is dropout.

    Returns
    -------
    Operation
        One operation for the whole of core attention.
    """
    r, rk = at.rows
    l, lq = at.l * at.share, at.lq * at.share  # keys of a query and queries of a key that are worked on
    keys = at.b * at.h * at.l  # rows of keys or values as the query heads see them
    uq, uo, uk, scores = r * at.q, r * at.v, rk * at.q, r * l  # elements
    uv = rk * at.v
    # 2 FLOP per score forward, 3 backward, and a sum of l scores per row (arXiv 2410.00273)
    softmax, softmax_backward = Vector(2 * scores + r * (l - 1)), Vector(3 * scores + r * (l - 1))
    drop = (Vector(scores),) if dropped else ()  # 1 FLOP per score
    logits, attend = Gemm(r, at.q, l), Gemm(r, l, at.v)  # A = Q K', O = A V
    dq, dk = Gemm(r, l, at.q), Gemm(keys, lq, at.q)  # dQ = dA K, dK = dA' Q
    da, dv = Gemm(r, at.v, l), Gemm(keys, lq, at.v)  # dA = dO V', dV = A' dO
    own = E * at.own
    saved = own + E * (kept * uo + 2 * r)  # the result, and two numbers per row (arXiv 2410.00273)
    moved = E * (uq + uo + uk + uv)
    return Operation(
        "attention.flash",
        PassCount((logits, softmax, *drop, attend), moved + E * r, comms[0], rounds=rounds, fused=at.fused()),
        PassCount(
            (dq, dk, softmax_backward, *drop, da, dv, logits, softmax, *drop),
            moved + saved,
            comms[1],
            rounds=rounds,
            fused=at.fused(backward=True),
        ),
        saved_bytes=own if again else saved,
        recompute=again,
    )


def of_heads(m: Column, k: Column, n: Column) -> Gemm:
    """A product for every head, the heads' rows counted together."""
    return Gemm(m, k, n, layout="batched")


def unfused(
    E: Column,
    mask: Column,
    at: Heads,
    over: Axis,
    recompute: bool,
    dropped: bool = True,
    passes: tuple[Column, Column] = (1, 1),
    launches: Column = 0,
) -> Iterator[Operation]:
    """Attention as separate kernels (arXiv 2410.00273, operations of a layer).

    Parameters
    ----------
    E, mask : Column
        Size of an element and of an element of the dropout mask [byte].
    at : Heads
        Shapes; every pair is worked on, masked or not.
    over : Axis
        Group that the sequence is cut over; keys and values are gathered from it.
    recompute : bool
        Whether backward makes the scores again, up to dropout, instead of reading what softmax and dropout saved.
    dropped : bool
        Whether there is dropout.
    passes : pair of Column
        Traffic of softmax and dropout relative to what they must move, where the matrices of scores are a multiple of 4 and the
        fused kernel works (Megatron-LM), and where they are not.
    launches : Column
        Operations more of softmax in each direction where they are not.

    Yields
    ------
    Operation
        Logits, softmax, dropout and attend.
    """
    (r, rk), lq, l = at.rows, at.lq, at.l
    moves, beside = passes
    softmax = _softmax(E, r, l, recompute)
    if moves != beside:
        matrices = at.b * at.h
        rest = -(-(matrices - matrices // 4 * 4) // 4)  # 1 where 4 leaves a rest, else 0
        moves = moves + (beside - moves) * rest
        issued = 1 + launches * rest
        softmax = replace(
            softmax, forward=replace(softmax.forward, launches=issued), backward=replace(softmax.backward, launches=issued)
        )
    n, uq, uo, uk, uv = r * l, r * at.q, r * at.v, rk * at.q, rk * at.v  # elements of scores, queries, result, keys, values
    keys = at.b * at.h * l  # rows of keys or values as the query heads see them
    (gather_k, scatter_k), (gather_v, scatter_v) = gathered(E * uk, over), gathered(E * uv, over)
    yield Operation(
        "attention.logits",
        PassCount((of_heads(r, at.q, l),), E * (n + uq + uk), gather_k, written=E * n),  # A = Q K'
        PassCount(  # dQ = dA K, dK = dA' Q
            (of_heads(r, l, at.q), of_heads(keys, lq, at.q)), E * (2 * n + 3 * uq + uk), scatter_k, written=E * 2 * uq
        ),
        saved_bytes=E * (uq + uk / at.l * at.lq),  # the rank's own queries and keys
        recompute=recompute,
    )
    yield with_traffic(softmax, moves)
    if dropped:
        yield with_traffic(dropout("attention.dropout", E, mask, n, recompute), moves)
    yield Operation(
        "attention.attend",
        PassCount((of_heads(r, l, at.v),), E * (n + uo + uv), gather_v, written=E * uo),  # O = A V
        PassCount(  # dA = dO V', dV = A' dO
            (of_heads(r, at.v, l), of_heads(keys, lq, at.v)), E * (2 * n + 3 * uo + uv), scatter_v, written=E * (n + uo)
        ),
        saved_bytes=E * (uv / at.l * at.lq) if recompute else E * (n + uv / at.l * at.lq),
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
        PassCount((scores,), forward_bytes, reduced, panels=nb),
        PassCount((Gemm(r, l, qs), dkv), 2 * forward_bytes, backward, panels=nb),
        saved_bytes=2 * E * u,
    )
    yield _softmax(E, r, lc, False, (Collective("all-reduce", E * r, "tp"),))
    yield dropout("attention.dropout", E, mask, n)
    yield Operation(
        "attention.attend",
        PassCount((Gemm(r, l, qs, accumulate=True),), forward_bytes, panel, panels=nb),
        PassCount((scores, dkv), 2 * forward_bytes, backward, panels=nb),
        saved_bytes=E * (n + u),
    )


def _softmax(E: Column, r: Column, l: Column, recompute: bool, comms: Comms = ()) -> Operation:
    """Softmax of r rows of l scores (arXiv 2410.00273: 2 FLOP per score forward, 3 backward, and a sum of l scores per row)."""
    n = r * l
    return Operation(
        "attention.softmax",
        PassCount((Vector(2 * n + r * (l - 1)),), 2 * E * n, comms),
        PassCount((Vector(3 * n + r * (l - 1)),), 3 * E * n, comms),
        saved_bytes=0 * E if recompute else E * n,
        recompute=recompute,
    )
