"""Core attention, between the qkv and the output projection, on local shapes.

A query meets every key: the scores are A = Q K' (logits). Softmax makes each row of A sum to 1. Dropout sets
some scores to 0. The scores then weight the values: O = A V (attend). A fused kernel works on the share of
the scores in `Heads.share` and skips the masked rest; unfused kernels skip none. Every formula is from arXiv
2410.00273, operations of a layer, which counts no mask.

Symbols are numbers or columns over plans: b sequences, h local heads of width q, lq local queries, l keys, E
bytes per element. From them follow r = b h lq rows of scores, rk = b h l rows of keys, and n, the scores (r
rows of l).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from traincast.core import Column, nonzero
from traincast.operations.elementwise import dropout, with_traffic
from traincast.operations.operation import Axis, Collective, Comms, Fused, Gemm, Operation, PassCount, Vector


def gather_comms(nbytes: Column, over: Axis) -> tuple[Comms, Comms]:
    """Return the all-gather of keys or values, and in backward the gradient's reduce-scatter."""
    gather = Collective("all-gather", nbytes, over)
    return (gather,), (gather, Collective("reduce-scatter", nbytes, over))


@dataclass(slots=True)
class Heads:
    """Shapes of core attention on one rank; numbers or columns over plans."""

    b: Column  # sequences of a micro-batch
    h: Column  # local heads of queries
    kv: Column  # and of keys and values
    lq: Column  # local queries of a sequence
    l: Column  # all its keys
    q: Column  # width of a head's query and key
    v: Column  # and of its value
    share: Column = 1  # of the scores that fused kernels compute: below 1 where they skip what is masked
    lk: Column | None = None  # keys of the rank's own tokens; as many as queries if None

    @property
    def own_keys(self) -> Column:
        """Keys of the rank's own tokens of a sequence."""
        return self.lq if self.lk is None else self.lk

    values_in_keys: bool = False  # whether values are a part of the keys, stored and moved with them

    @property
    def rows(self) -> tuple[Column, Column]:
        """Rows of queries, and of keys or values, of all heads."""
        return self.b * self.h * self.lq, self.b * self.kv * self.l

    @property
    def input_elements(self) -> Column:
        """Elements of queries, keys and values of the rank's own tokens."""
        r, rk = self.rows
        beside = 0 if self.values_in_keys else rk * self.v
        return r * self.q + (rk * self.q + beside) / self.l * self.own_keys

    def fused_kernel(self, backward: bool = False) -> Fused:
        """Return the shapes of one kernel for all of core attention.

        Keys of a sharded sequence come in pieces, two from each rank, which balances the causal mask.
        """
        sequence_shards = self.l / self.own_keys
        pieces_of_rank = 1 - (1 - sequence_shards) // sequence_shards  # 1 if the sequence is whole, else 2
        return Fused(
            self.rows[0],
            self.l,
            self.share,
            sequence_shards * pieces_of_rank,
            (self.q + self.v) / 2,
            backward,
        )

    @property
    def kv_elements(self) -> Column:
        """Elements of all keys and values."""
        return self.rows[1] * (self.q if self.values_in_keys else self.q + self.v)


def flash(
    E: Column,
    at: Heads,
    comms: tuple[Comms, Comms],
    rounds: Column | None = None,
    saved_copies: Column = 1,
    recompute: bool = False,
    dropped: bool = True,
) -> Operation:
    """Return fused attention, one operation: scores stay on the chip and are recomputed in backward.

    `comms` are those of the two passes, `rounds` those of ring attention, `saved_copies` counts the copies of
    the result that it saves. With `recompute` all of it is recomputed before backward.
    """
    r = at.rows[0]
    # keys of a query and queries of a key that are not skipped
    l = at.l * at.share
    lq = at.lq * at.share
    keys = at.b * at.h * at.l  # rows of keys or values as the query heads see them
    # elements
    uq = r * at.q
    uo = r * at.v
    scores = r * l
    # 2 FLOP per score forward, 3 backward, and a sum of l scores per row (arXiv 2410.00273)
    softmax = Vector(2 * scores + r * (l - 1))
    softmax_backward = Vector(3 * scores + r * (l - 1))
    drop = (Vector(scores),) if dropped else ()  # 1 FLOP per score
    # A = Q K', O = A V
    logits = Gemm(r, at.q, l)
    attend = Gemm(r, l, at.v)
    # dQ = dA K, dK = dA' Q
    dq = Gemm(r, l, at.q)
    dk = Gemm(keys, lq, at.q)
    # dA = dO V', dV = A' dO
    da = Gemm(r, at.v, l)
    dv = Gemm(keys, lq, at.v)
    inputs = E * at.input_elements
    saved = inputs + E * (saved_copies * uo + 2 * r)  # and the result, two numbers per row (2410.00273)
    moved = E * (uq + uo + at.kv_elements)
    forward = (logits, softmax, *drop, attend)
    recomputed = (logits, softmax, *drop)
    backward = (dq, dk, softmax_backward, *drop, da, dv, *recomputed)
    return Operation(
        "attention.flash",
        PassCount(forward, moved + E * r, comms[0], rounds=rounds, fused=at.fused_kernel()),
        PassCount(backward, moved + saved, comms[1], rounds=rounds, fused=at.fused_kernel(backward=True)),
        saved_bytes=inputs if recompute else saved,
        recompute=recompute,
        role="core attention",
    )


def batched_gemm(m: Column, k: Column, n: Column) -> Gemm:
    """Return one product per head; m counts the rows of all heads."""
    return Gemm(m, k, n, layout="batched")


def unfused_attention(
    E: Column,
    mask: Column,
    at: Heads,
    over: Axis,
    recompute: bool,
    dropped: bool = True,
    passes: tuple[Column, Column] = (1, 1),
    launches: Column = 0,
    result: Column | None = None,
) -> Iterator[Operation]:
    """Yield attention as separate kernels: logits, softmax, dropout, attend; masked scores are computed too.

    E and `mask` are the sizes of an element and of one of the dropout mask, `result` that of the saved result
    of softmax (E if None) [byte]. Keys and values are gathered from the group `over`. With `recompute`
    scores, softmax and dropout are recomputed before backward instead of saved.

    `passes` are the memory traffic of softmax and dropout relative to the least possible: where the number of
    score matrices is a multiple of 4, so that Megatron-LM's fused softmax works, and where it is not; there
    softmax has `launches` more kernels in each pass.
    """
    (r, rk), lq, l = at.rows, at.lq, at.l
    traffic, unfused_traffic = passes
    softmax = _softmax(E, r, l, recompute)
    if result is not None:
        softmax = replace(softmax, saved_bytes=softmax.saved_bytes / E * result)
    if nonzero(traffic - unfused_traffic):
        matrices = at.b * at.h
        is_unfused = -(-(matrices - matrices // 4 * 4) // 4)  # 1 where the number is no multiple of 4, else 0
        traffic = traffic + (unfused_traffic - traffic) * is_unfused
        kernels = 1 + launches * is_unfused
        forward, backward = (replace(work, launches=kernels) for work in (softmax.forward, softmax.backward))
        softmax = replace(softmax, forward=forward, backward=backward)
    # A, Q, O, K, V
    n = r * l
    uq = r * at.q
    uo = r * at.v
    uk = rk * at.q
    uv = rk * at.v
    softmax = replace(softmax, gradient_bytes=2 * E * n)
    keys = at.b * at.h * l  # rows of keys or values as the query heads see them
    saves_scores = dropped or result is not None
    (gather_k, scatter_k), (gather_v, scatter_v) = gather_comms(E * uk, over), gather_comms(E * uv, over)
    yield Operation(
        "attention.logits",
        PassCount((batched_gemm(r, at.q, l),), E * (n + uq + uk), gather_k, written=E * n),  # A = Q K'
        PassCount(  # dQ = dA K, dK = dA' Q
            (batched_gemm(r, l, at.q), batched_gemm(keys, lq, at.q)),
            E * (2 * n + 3 * uq + uk),
            scatter_k,
            written=E * 2 * uq,
        ),
        saved_bytes=E * (uq + uk / at.l * at.own_keys),  # the rank's own queries and keys
        recompute=recompute,
    )
    yield with_traffic(softmax, traffic)
    if dropped:
        yield with_traffic(_dropout(E, mask, n, recompute), traffic)
    yield Operation(
        "attention.attend",
        PassCount((batched_gemm(r, l, at.v),), E * (n + uo + uv), gather_v, written=E * uo),  # O = A V
        PassCount(  # dA = dO V', dV = A' dO
            (batched_gemm(r, at.v, l), batched_gemm(keys, lq, at.v)),
            E * (2 * n + 3 * uo + uv),
            scatter_v,
            written=E * (n + uo),
        ),
        # without dropout its scores are the result of softmax, saved there, unless in other precision
        saved_bytes=E * (n * (saves_scores and not recompute) + uv / at.l * at.own_keys),
    )


def summa(
    E: Column,
    mask: Column,
    heads: tuple[Column, Column, Column, Column],
    grid: tuple[Column, Column, Column],
) -> Iterator[Operation]:
    """Yield attention as SUMMA products on m1 x m2 ranks in nb panels; collectives are those of one panel.

    b sequences, h heads, all of them on every rank, l tokens, head width q. The head width is sharded over
    m1, the queries over m2, the keys of a score over m1.
    """
    (b, h, l, q), (m1, m2, nb) = heads, grid
    # local queries, keys and head width
    lq = l // m2
    lc = l // m1
    qs = q // m1
    # rows of queries and of keys
    r = b * h * lq
    rk = b * h * l
    # elements of local scores and queries
    n = r * lc
    u = r * qs
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
    yield _dropout(E, mask, n)
    yield Operation(
        "attention.attend",
        PassCount((Gemm(r, l, qs, accumulate=True),), forward_bytes, panel, panels=nb),
        PassCount((scores, dkv), 2 * forward_bytes, backward, panels=nb),
        saved_bytes=E * (n + u),
    )


def _softmax(E: Column, r: Column, l: Column, recompute: bool, comms: Comms = ()) -> Operation:
    """Return softmax of r rows of l scores: 2 FLOP per score forward, 3 backward, and a sum for every row."""
    n = r * l
    return Operation(
        "attention.softmax",
        PassCount((Vector(2 * n + r * (l - 1)),), 2 * E * n, comms),
        PassCount((Vector(3 * n + r * (l - 1)),), 3 * E * n, comms),
        saved_bytes=0 * E if recompute else E * n,
        recompute=recompute,
        has_framework_traffic=True,
    )


def _dropout(E: Column, mask: Column, n: Column, recompute: bool = False) -> Operation:
    return replace(dropout("attention.dropout", E, mask, n, recompute), has_framework_traffic=True)
