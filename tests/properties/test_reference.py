"""The whole model against a second one: arXiv 2410.00273 written down as plain scalar arithmetic, on odd
random cases.

The reference shares nothing with the package. Whole numbers stay whole, and shapes are divided by floor. Its
symbols are the paper's; `errata` are the numbers of the mistakes of the published results that are put back.
The paper describes unfused attention for 1-D and context parallelism and recomputation for 1-D; the same
formulas serve here wherever a plan may ask for them.
"""

import math
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traincast.core.assumptions import PRESETS, Assumptions
from traincast.core.knobs import STRATEGIES
from traincast.core.plan import Plans
from traincast.core.system import Accelerator, System, Tier
from traincast.model.model import Model
from traincast.operations.transformer import layer
from traincast.step.estimates import Estimate, Layers
from traincast.step.pipeline_stages import stages
from traincast.step.step_time import step
from traincast.times.collectives import collective
from traincast.times.process_groups import Group

# The reference ----------------------------------------------------------------------------------------------
# ------------------

PAPER = {"E": 2, "mask": 1, "launch": 20e-6, "matrix_share": 0.8, "vector_share": 0.8}
PAPER_RECIPE = {"precision": "bf16", "grad_dtype": "16-bit", "optimizer_kind": "adam"}
# Bytes per parameter where an element of 16 bits has two: arXiv 2410.00273 (bf16, Adam), and what other
# recipes keep
MASTER = {"bf16": 4, "fp16": 4, "bf16-pure": 0}
GRADIENT = {"16-bit": 2, "fp32": 4}
STATES = {"adam": 8, "adam-bf16": 4, "adam-8bit": 2, "adam-4bit": 1, "sgd": 4, "lion": 4}


def gemm(M, K, N):
    return M * N * (2 * K - 1)


def collective_time(c, kind, V, n, g):
    """A collective of V bytes over n ranks, g of them per fast domain."""
    if n == 1 or V == 0:
        return 0.0
    nodes, share = n // g, 1 if kind in ("broadcast", "reduce") else (n - 1) / n
    passes = 2 if kind == "all-reduce" else 1
    passes_in_domain = 1 if 3 in c.errata else passes
    if g == 1:
        return c.ls * (n - 1) + passes_in_domain * share * V / c.Bs
    if nodes == 1:
        return c.lf * (n - 1) + passes_in_domain * share * V / c.Bf
    return (
        passes * max(share * V / (c.nics * g * c.Bs), share * V / c.Bf)
        + c.ls * (nodes - 1)
        + c.lf * (n - nodes)
    )


def way(c, peak, flops, nbytes, messages=(), nb=None):
    """One direction of an operation: time by part. `messages` are (kind, volume, group); with `nb` those of
    one panel."""
    t_c, t_m = c.launch + flops / peak, nbytes / c.hbm
    comm = sum(collective_time(c, kind, V, *group) for kind, V, group in messages)
    if nb is not None:
        comm = comm + max(comm * nb - max(t_c, t_m), 0)
    return SimpleNamespace(compute=t_c, memory=max(t_m - t_c, 0), comm=comm, t=max(t_c, t_m) + comm)


def reference_layer(c):
    """Operations of one layer and micro-batch in order: name -> forward, backward, forward again or None, W,
    saved."""
    E, b, l, e, f, h, m1, m2, nb = c.E, c.b, c.l, c.e, c.f, c.h, c.m1, c.m2, c.nb
    G = E * GRADIENT[c.grad_dtype] / 2  # size of an accumulated gradient
    summa, context, q, T = c.strategy == "summa", c.strategy == "context", e // h, b * (l // m2)
    over1, over2, ops = (m1, c.t1), (m2, c.t2), {}
    matrix, vector = c.matrix * c.matrix_share, c.vector * c.vector_share
    X = matrix / vector

    def op(name, forward, backward, W=0, saved=0, again=False):
        ops[name] = SimpleNamespace(
            forward=forward, backward=backward, again=forward if again else None, W=W, saved=saved
        )

    def linear(name, i, o, row_parallel):
        if summa:
            o = o // m1
            x, w = E * T * i / nb, E * i * o / nb
            there = [("broadcast", x, over1), ("broadcast", w, over2)]
            back = [
                ("broadcast", w, over2),
                ("reduce", x, over1),
                ("broadcast", x, over1),
                ("reduce", w, over2),
            ]
            forward = way(c, matrix, 2 * T * o * i, E * (T * i + i * o + T * o * nb), there, nb)
            flops = T * i * (2 * o - 1) + i * o * (2 * T - 1)
            nbytes = (
                E * (i * o + 2 * T * o * nb + 2 * T * i) + G * i * o
            )  # the gradient of the weights is written as it is accumulated
            backward = way(c, matrix, flops, nbytes, back, nb)
            op(name, forward, backward, W=E * (i // m2) * o, saved=E * T * (i // m1))
            return
        scatter = [
            ("reduce-scatter", E * T * (o if row_parallel else i), over1)
        ]  # the full output, or the full input
        i, o = (i // m1, o) if row_parallel else (i, o // m1)
        forward = way(c, matrix, gemm(T, i, o), E * (T * i + T * o + i * o), scatter if row_parallel else [])
        flops = gemm(T, o, i) + gemm(i, T, o)
        nbytes = E * (i * o + 2 * T * i + 2 * T * o) + G * i * o  # the same
        backward = way(c, matrix, flops, nbytes, [] if row_parallel else scatter)
        op(name, forward, backward, W=E * i * o, saved=E * T * i)

    def bias(name, tokens, o):
        both = way(c, vector, tokens * o, E * (tokens * o + o))
        op(name, both, both, W=E * o)

    def dropout(name, n, again=False):
        both = way(c, vector, n, n * (2 * E + c.mask))
        op(name, both, both, saved=0 if again else c.mask * n, again=again)

    def norm(name):
        if summa:
            r, w = b * (l // m2), (l if 1 in c.errata else e) // m1
            there = [("all-reduce", 2 * E * r, over1)]
            moments = 2 * b * l // m2 if 1 in c.errata else 2 * b * (l // m2)  # as the published code rounds
            back = [("all-reduce", E * (2 * (e // m1) + moments), over1)]
        else:
            r, w = b * (l // m2 // m1), e
            there, back = [("all-gather", E * T * e, over1)], [("reduce-scatter", E * T * e, over1)]
        forward = way(c, vector, 9 * r * w, E * (2 * r * w + 2 * r + 2 * w), there)
        backward = way(c, vector, 8 * r * w + 4 * r * (w - 1), E * (5 * r * w + 2 * w), back)
        op(name, forward, backward, W=2 * E * w, saved=E * r * w)

    def softmax(r, width, messages=(), again=False):
        n = r * width
        forward = way(c, vector, 2 * n + r * (width - 1), 2 * E * n, messages)
        backward = way(c, vector, 3 * n + r * (width - 1), 3 * E * n, messages)
        op("attention.softmax", forward, backward, saved=0 if again else E * n, again=again)

    def flash():
        hl, lq, lk = h // m1, l // m2, l
        uq, uk, r = b * hl * lq * q, b * hl * lk * q, b * hl * lq
        s, d = 2 * b * hl * lq * lk + b * hl * lq * (lk - 1), b * hl * lq * lk
        there = gemm(b * hl * lq, q, lk) + X * (s + d) + gemm(b * hl * lq, lk, q)
        back = gemm(b * hl * lq, lk, q) + gemm(b * hl * lk, lq, q)  # dQ, dK
        back += X * (3 * b * hl * lq * lk + b * hl * lq * (lk - 1)) + X * d
        back += gemm(b * hl * lq, q, lk) + gemm(b * hl * lk, lq, q)  # dA, dV
        back += gemm(b * hl * lq, q, lk) + X * (s + d)  # recomputed
        saved = E * (4 * uq + 2 * r)
        gather, scatter = ("all-gather", 2 * E * uk, over2), ("reduce-scatter", 2 * E * uk, over2)
        forward = way(c, matrix, there, E * (2 * uq + 2 * uk + r), [gather])
        backward = way(c, matrix, back, E * (2 * uq + 2 * uk) + saved, [gather, scatter])
        op("attention.flash", forward, backward, saved=saved)

    def unfused(again):
        hl, lq = h // m1, l // m2
        r, rk = b * hl * lq, b * hl * l
        n, uq, uk, kv = r * l, r * q, rk * q, gemm(rk, lq, q)
        gather, scatter = ("all-gather", E * uk, over2), ("reduce-scatter", E * uk, over2)
        there, back = E * (n + uq + uk), E * (2 * n + 3 * uq + uk)
        forward = way(c, matrix, gemm(r, q, l), there, [gather])
        backward = way(c, matrix, gemm(r, l, q) + kv, back, [gather, scatter])
        op("attention.logits", forward, backward, saved=2 * E * uq, again=again)
        softmax(r, l, again=again)
        dropout("attention.dropout", n, again)
        forward = way(c, matrix, gemm(r, l, q), there, [gather])
        backward = way(c, matrix, gemm(r, q, l) + kv, back, [gather, scatter])
        op("attention.attend", forward, backward, saved=E * uq if again else E * (n + uq))

    def summa_attention():
        lq, lc, qs = l // m2, l // m1, q // m1
        r, rk = b * h * lq, b * h * l
        n, u, sd, kv = r * lc, r * qs, m1 * gemm(r, qs, lc), gemm(rk, lq, qs)
        there = E * (r * l + rk * qs + u * nb)
        x = [
            ("broadcast", E * r * l / nb, over1),
            ("broadcast", E * rk * qs / nb, over2),
        ]  # reduces cost the same
        op(
            "attention.logits",
            way(c, matrix, sd, there, x, nb),
            way(c, matrix, gemm(r, l, qs) + kv, 2 * there, 2 * x, nb),
            saved=2 * E * u,
        )
        softmax(r, lc, [("all-reduce", E * r, over1)])
        dropout("attention.dropout", n)
        op(
            "attention.attend",
            way(c, matrix, 2 * r * l * qs, there, x, nb),
            way(c, matrix, sd + kv, 2 * there, 2 * x, nb),
            saved=E * (n + u),
        )

    if summa:
        biases, rest = [(T, f // m1), (T, e // m1), (T, e // m1)], b * (l // m2) * (e // m1)
    elif context:
        biases, rest = [(T, f // m1), (b * (l // m2 // m1), e), (T, e // m1)], b * (l // (m1 * m2)) * e
    else:
        biases, rest = [(T, f // m1), (T, e), (T, e)], b * (l // m1) * e
    inner = T * (f // m1)
    linear("mlp.fc1", e, f, row_parallel=False)
    bias("mlp.fc1_bias", *biases[0])
    op(
        "mlp.gelu",
        way(c, vector, 8 * inner, 2 * E * inner),
        way(c, vector, 13 * inner, 3 * E * inner),
        saved=E * inner,
    )
    dropout("mlp.inner_dropout", inner)
    linear("mlp.fc2", f, e, row_parallel=True)
    bias("mlp.fc2_bias", *biases[1])
    dropout("mlp.dropout", rest)
    norm("mlp.norm")
    linear("attention.qkv", e, 3 * e, row_parallel=False)
    if c.attention == "flash":
        flash()
    elif c.attention == "unfused":
        unfused(c.recompute == "selective")
    else:
        summa_attention()
    linear("attention.proj", e, e, row_parallel=True)
    bias("attention.proj_bias", *biases[2])
    dropout("attention.out_dropout", rest)
    norm("attention.norm")
    return ops


NO_SECONDS = dict.fromkeys(
    ("ep_comm", "optimizer_step", "offload_comm", "host", "stragglers", "data_loading"), 0
)  # of which the paper knows nothing
NO_BYTES = dict.fromkeys(("logits", "gathered", "buffers", "workspace", "copies", "reserved"), 0)


def reference_step(c, ops):
    """Seconds of one step and bytes of one rank, both by component."""
    parts = [part for op in ops.values() for part in (op.forward, op.backward)]
    recomputed_seconds = sum(op.again.t for op in ops.values() if op.again)
    t_f = sum(op.forward.t for op in ops.values())
    t_b = sum(op.backward.t + (op.again.t if op.again else 0) for op in ops.values())
    W, saved, message = (
        sum(op.W for op in ops.values()),
        sum(op.saved for op in ops.values()),
        ops["mlp.norm"].saved,
    )
    nl, nm = c.L / c.pp, c.gbs / c.dp / c.b

    t = (t_f + t_b) * nm * nl
    pp_comm = 0.0
    if c.pp > 1:
        slow, fast = c.ls + message / c.Bs, c.lf + message / c.Bf
        average = slow
        if c.t_pp > 1:
            s = c.pp // c.t_pp - 1
            average = (s * (0 if 2 in c.errata else slow) + (c.pp - 1 - s) * fast) / (c.pp - 1)
        pp_comm = 2 * nm * average
    t += pp_comm
    bubble = (c.pp - 1) * t / nm
    t += bubble
    n, g = (c.dp * c.m2, c.t_dp * c.t2) if c.strategy == "context" else (c.dp, c.t_dp)
    gradients, optimizer = (
        GRADIENT[c.grad_dtype] / 2,
        (MASTER[c.precision] + STATES[c.optimizer_kind]) / 2,
    )  # for each byte of W
    AG, RS = (
        collective_time(c, "all-gather", W, n, g),
        collective_time(c, "reduce-scatter", gradients * W, n, g),
    )
    dp_comm = AG + max(AG - t_f, 0) * (nl - 1) + RS + max(RS - t_b, 0) * (nl - 1)
    t += dp_comm

    seconds = {
        "compute": sum(p.compute for p in parts) * nm * nl,
        "exposed_memory": sum(p.memory for p in parts) * nm * nl,
    }
    seconds |= {
        "tp_comm": sum(p.comm for p in parts) * nm * nl,
        "dp_comm": dp_comm,
        "pp_comm": pp_comm,
        "bubble": bubble,
    }
    seconds["recomputation"] = recomputed_seconds * nm * nl
    held = {"weights": W * nl, "gradients": gradients * W * nl, "optimizer": optimizer * W * nl / n}
    return t, seconds | NO_SECONDS, held | {"activations": saved * nl * min(c.pp, nm)} | NO_BYTES


# Cases ------------------------------------------------------------------------------------------------------
# ------------------

ATTENTION = {
    "1d": [("flash", "none"), ("unfused", "none"), ("unfused", "selective")],
    "context": [("flash", "none"), ("unfused", "none"), ("unfused", "selective")],
    "summa": [("flash", "none"), ("summa", "none"), ("unfused", "none")],
}
SHARES, LATENCIES = st.floats(0.1, 1), st.just(0.0) | st.floats(1e-7, 1e-3)


def decades(low, high):
    """Rates between two powers of ten, so that arithmetic, memory and network each are the bottleneck now and
    then."""
    return st.floats(low, high).map(lambda power: 10**power)


@st.composite
def cases(draw):
    """Shapes that nothing divides but what rules ask for.

    Heads divide the width, tensor ranks the heads, stages the layers, micro-batches and replicas gbs.
    """
    c = SimpleNamespace(strategy=draw(st.sampled_from(sorted(ATTENTION))))
    c.attention, c.recompute = draw(st.sampled_from(ATTENTION[c.strategy]))
    degrees = st.integers(1, 7)
    c.m1, c.m2, c.dp, c.pp, c.nb = (
        draw(degrees),
        1 if c.strategy == "1d" else draw(degrees),
        draw(degrees),
        draw(degrees),
        1,
    )
    if c.strategy == "summa":
        c.nb = draw(st.integers(1, 9))
    c.t1, c.t2, c.t_dp, c.t_pp = (draw(st.integers(1, degree)) for degree in (c.m1, c.m2, c.dp, c.pp))
    c.t_dp = math.gcd(c.t_dp, c.dp)  # those that hold the same weights are as many in every domain
    c.t2 = math.gcd(c.t2, c.m2) if c.strategy == "context" else c.t2
    c.h, c.f, c.l = c.m1 * draw(st.integers(1, 4)), draw(st.integers(7, 5000)), draw(st.integers(49, 5000))
    c.e = c.h * draw(st.integers(7, 160))
    nl, nm, c.b = draw(st.integers(1, 5)), draw(st.integers(1, 9)), draw(st.integers(1, 3))
    c.L, c.gbs = nl * c.pp, nm * c.dp * c.b
    c.matrix, c.vector, c.hbm = draw(decades(11, 15)), draw(decades(10, 14)), draw(decades(9, 13))
    c.fast, c.slow = (
        {"bandwidth": draw(decades(8, 12)), "efficiency": draw(SHARES), "latency": draw(LATENCIES)}
        for _ in range(2)
    )
    c.nics = draw(st.sampled_from([0.5, 1, 2, 4]))
    c.Bf, c.lf = c.fast["bandwidth"] * c.fast["efficiency"], c.fast["latency"]
    c.Bs, c.ls = c.slow["bandwidth"] * c.slow["efficiency"], c.slow["latency"]
    c.errata = draw(st.sampled_from([(), (1, 2, 3), (1,), (2,), (3,)]))
    other = {"E": st.sampled_from([1, 4]), "mask": st.sampled_from([2, 4]), "launch": st.floats(0, 1e-4)}
    other |= {"matrix_share": SHARES, "vector_share": SHARES}
    tables = {"precision": MASTER, "grad_dtype": GRADIENT, "optimizer_kind": STATES}
    recipes = st.fixed_dictionaries(
        {choice: st.sampled_from(sorted(table)) for choice, table in tables.items()}
    )
    c.plain = draw(st.booleans())  # the paper's constants, which the presets hold, or others
    constants, c.recipe = (
        (PAPER, PAPER_RECIPE) if c.plain else (draw(st.fixed_dictionaries(other)), draw(recipes))
    )
    return SimpleNamespace(**vars(c), **constants, **c.recipe)


def estimated(c):
    """Estimate of a case by the package; rules are not checked, as the formulas hold for every shape."""
    model = Model(name="odd", layers=c.L, hidden=c.e, heads=c.h, ffn=c.f, seq=c.l)
    gpu = Accelerator(
        name="chip", matrix_flops=c.matrix, vector_flops=c.vector, hbm_bandwidth=c.hbm, hbm_bytes=1e9
    )
    system = System(
        name="odd",
        accelerator=gpu,
        tiers=(Tier(name="in", size=8, **c.fast), Tier(name="out", ports=c.nics, **c.slow)),
    )
    second = {
        "1d": {},
        "summa": {"tp2": c.m2, "fast_tp2": c.t2, "panels": c.nb},
        "context": {"cp": c.m2, "fast_cp": c.t2},
    }[c.strategy]
    knobs = {
        "tp": c.m1,
        "dp": c.dp,
        "pp": c.pp,
        "mbs": c.b,
        "fast_tp": c.t1,
        "fast_dp": c.t_dp,
        "fast_pp": c.t_pp,
    } | second
    plan = Plans(
        **{knob: float(value) for knob, value in knobs.items()},
        **STRATEGIES[c.strategy].choices,
        attention=c.attention,
        recompute=c.recompute,
        **c.recipe,
    )
    presets = {(): PRESETS["paper"], (1, 2, 3): PRESETS["paper-published"]}
    assumed = presets[c.errata] if c.errata in presets else Assumptions.with_errata(*c.errata)
    if not c.plain:
        assumed = assumed.with_values(
            {
                "memory.element_bytes": float(c.E),
                "memory.mask_bytes": float(c.mask),
                "kernels.launch_seconds": c.launch,
                "kernels.matrix_efficiency": c.matrix_share,
                "kernels.vector_efficiency": c.vector_share,
            }
        )
    layers = Layers({"dense": layer(model, plan, assumed)}, plan, system, assumed)
    where = stages(model, plan)
    return Estimate(
        model=model,
        system=system,
        plan=plan,
        columns=plan,
        gbs=c.gbs,
        assumptions=assumed,
        layers=layers,
        stages=where,
        step=step(layers.costs, plan, where, c.gbs, system, assumed),
    )


def close(value, scale=0.0):
    """Equal to 1e-11; a difference of two times may lose that much of the time it is a part of."""
    return pytest.approx(value, rel=1e-11, abs=1e-12 * scale)


@settings(max_examples=400)
@given(cases())
def test_the_model_is_the_paper(c):
    ops, est = reference_layer(c), estimated(c)
    t, seconds, held = reference_step(c, ops)
    (timed,) = est.timed.values()
    assert [time.operation.name for time in timed] == list(ops)
    for time, (name, want) in zip(timed, ops.items(), strict=True):
        assert (time.operation.weights * c.E, time.operation.saved_bytes) == close((want.W, want.saved)), name
        assert (time.recompute is None) == (want.again is None), name
        for got, way in (
            (time.forward, want.forward),
            (time.backward, want.backward),
            (time.recompute, want.again),
        ):
            if way is not None:
                assert got.total == close(way.t), name
                parts = (way.compute, way.memory, way.comm)
                assert (got.compute, got.memory, got.comm) == close(parts, way.t), name
    assert est.step_seconds == close(t)
    assert est.breakdown == close(seconds, t)
    assert est.memory == close(held)
    assert est.memory_bytes == close(sum(held.values()))


# By hand: Bf = 1000 · 0.8 = 800 byte/s and lf = 2 s inside a domain, Bs = 125 · 0.8 = 100 byte/s and ls = 10
# s between -----------

BY_HAND = [
    # one member, or nothing to send: free, hops included
    ("all-gather", 2400, 1, 1, 1, (), 0),
    ("broadcast", 2400, 1, 1, 2, (), 0),
    ("all-reduce", 0, 6, 2, 1, (), 0),
    # each alone in its domain (g = 1): ports do not count; 5 hops · 10 s + 5/6 · 2400/100
    ("all-gather", 2400, 6, 1, 0.5, (), 50 + 20),
    ("reduce-scatter", 2400, 6, 1, 2, (), 50 + 20),
    ("broadcast", 2400, 6, 1, 2, (), 50 + 24),  # all of 2400 over every link
    ("all-reduce", 2400, 6, 1, 2, (), 50 + 2 * 20),  # twice; as published, once
    ("all-reduce", 2400, 6, 1, 2, (3,), 50 + 20),
    # one domain: 5 hops · 2 s + 5/6 · 2400/800, whatever the ports
    ("all-gather", 2400, 6, 6, 0.5, (), 10 + 2.5),
    ("reduce", 2400, 6, 6, 2, (), 10 + 3),
    ("all-reduce", 2400, 6, 6, 1, (), 10 + 2 * 2.5),
    ("all-reduce", 2400, 6, 6, 1, (3,), 10 + 2.5),
    ("all-gather", 2400, 5, 3, 1, (), 8 + 2.4),  # 5 // 3 = 1 domain: 4 hops · 2 s + 4/5 · 2400/800
    # 3 domains of 2: 2 hops · 10 s + 3 · 2 s, and 2000 bytes through nics · 2 · 100 byte/s or 800 byte/s,
    # what is slower
    ("all-gather", 2400, 6, 2, 0.5, (), 26 + 20),  # 2000/100
    ("all-gather", 2400, 6, 2, 2, (), 26 + 5),  # 2000/400
    ("reduce-scatter", 2400, 6, 2, 4, (), 26 + 2.5),  # 2000/1600 < 2000/800
    ("broadcast", 2400, 6, 2, 2, (), 26 + 6),  # 2400/400
    ("all-reduce", 2400, 6, 2, 2, (), 26 + 2 * 5),  # twice, as published too
    ("all-reduce", 2400, 6, 2, 2, (3,), 26 + 2 * 5),
    # 7 // 3 = 2 domains: 10 s + 5 · 2 s, and 6/7 · 2800 bytes through 3 · 100 byte/s
    ("all-gather", 2800, 7, 3, 1, (), 20 + 8),
]


@pytest.mark.parametrize(("kind", "V", "n", "g", "nics", "errata", "expected"), BY_HAND)
def test_collectives_by_hand(kind, V, n, g, nics, errata, expected):
    inside = Tier(name="in", bandwidth=1000.0, efficiency=0.8, latency=2.0, size=8)
    between = Tier(name="out", bandwidth=125.0, efficiency=0.8, latency=10.0, ports=nics)
    gpu = Accelerator(name="chip", matrix_flops=1.0, vector_flops=1.0, hbm_bandwidth=1.0, hbm_bytes=1.0)
    system = System(name="by hand", accelerator=gpu, tiers=(inside, between))
    c = SimpleNamespace(Bf=800.0, lf=2.0, Bs=100.0, ls=10.0, nics=nics, errata=errata)
    assert collective(
        kind, float(V), Group(float(n), (float(g),)), system, Assumptions.with_errata(*errata)
    ) == pytest.approx(expected, rel=1e-12)
    assert collective_time(c, kind, V, n, g) == pytest.approx(expected, rel=1e-12)
