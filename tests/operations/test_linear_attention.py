"""Mamba-2 and the gated delta net, against chunked implementations that equal the recurrence, and by hand."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traincast.catalog.software_stacks import calibrated
from traincast.core.plan import Plans
from traincast.model.blocks import KINDS, Experts
from traincast.model.linear_attention import (
    LINEAR_ATTENTIONS,
    GatedDelta,
    GatedLinear,
    LinearAttention,
    Mamba,
    Mamba2,
    RgLru,
    Rwkv,
    ShortConv,
)
from traincast.model.model import Model
from traincast.operations.linear_attention import SCAN_TOKENS
from traincast.operations.operation import Gemm, Operation, PassCount
from traincast.operations.transformer import layer

CALIBRATED = calibrated()
MAMBA = Mamba2(heads=8, head_dim=16, state=32, groups=4, chunk=8)
NET = GatedDelta(key_heads=4, value_heads=8, key_dim=16, value_dim=32, chunk=8)
LIGHTNING = GatedLinear(heads=8, key_dim=16, value_dim=32, activated=True, chunk=8)
KIMI = replace(NET, key_heads=8, channel_decay=True, gate_rank=16)
SELECTIVE = Mamba(width=64, state=16, rank=4)
LRU = RgLru(width=64, blocks=4)
CONFIGS = pytest.mark.parametrize("config", [MAMBA, NET], ids=["mamba2", "gated_delta"])
SCANS = pytest.mark.parametrize("config", [MAMBA, NET, KIMI, LIGHTNING, SELECTIVE, LRU], ids=str)


def model_of(config: LinearAttention, block: str = "only", **fields: Any) -> Model:
    """Return a model of layers with linear attention."""
    part = next(name for name, kind in LINEAR_ATTENTIONS.items() if kind is type(config))
    sizes: dict[str, Any] = {"layers": 2, "hidden": 64, "heads": 0, "ffn": 0, "seq": 32, "norm": "rmsnorm"}
    return Model(name="m", **sizes | {part: config, "layer_kinds": (f"{part} {block}",)} | fields)


def operation(config: LinearAttention, name: str, plan: Plans | None = None, **fields: Any) -> Operation:
    """Return the operation of a layer that is called so."""
    operations = layer(model_of(config, **fields), plan or Plans(), CALIBRATED)
    return next(op for op in operations if op.name.endswith(f".{name}"))


def products(work: PassCount) -> float:
    """Count multiplications and additions of the products of a pass, two for each [FLOP]."""
    gemms = (kernel for kernel in work.kernels if isinstance(kernel, Gemm))
    return float(sum(2 * gemm.batch * gemm.m * gemm.k * gemm.n for gemm in gemms))


def mamba2_recurrence(torch: Any, x: Any, a: Any, b: Any, c: Any) -> Any:
    """Return y of S = a S + b' x, y = c S, token by token; heads first, shape (h, l, ...)."""
    state, results = 0, []
    for t in range(x.shape[1]):
        state = a[:, t, None, None] * state + b[:, t, :, None] * x[:, t, None, :]
        results.append((c[:, t, None, :] @ state)[:, 0])
    return torch.stack(results, 1)


def mamba2_chunked(torch: Any, x: Any, a: Any, b: Any, c: Any, groups: int, chunk: int) -> Any:
    """Return the same chunk by chunk (arXiv 2405.21060, listing 1), scores once for each group of heads."""
    h, l, _ = x.shape
    states, results = 0, []
    for start in range(0, l, chunk):
        xs, bs, cs = (tensor[:, start : start + chunk] for tensor in (x, b, c))
        sums = a[:, start : start + chunk].log().cumsum(1)
        mask = torch.exp(sums[:, :, None] - sums[:, None, :]).tril()
        each = h // groups
        scores = torch.bmm(cs[::each], bs[::each].mT).repeat_interleave(each, 0)
        inside = torch.bmm(scores * mask, xs)
        if start == 0:
            states = torch.zeros(h, b.shape[2], x.shape[2], dtype=x.dtype)
        across = torch.bmm(cs, states) * sums.exp()[:, :, None]
        added = torch.bmm((bs * (sums[:, -1:] - sums).exp()[:, :, None]).mT, xs)
        states = sums[:, -1].exp()[:, None, None] * states + added
        results.append(inside + across)
    return torch.cat(results, 1)


def delta_recurrence(torch: Any, q: Any, k: Any, v: Any, a: Any, strength: Any) -> Any:
    """Return o of S = a S, S += β k' (v - k S), o = q S, token by token (arXiv 2412.06464, equation 10)."""
    state, results = torch.zeros(k.shape[0], k.shape[2], v.shape[2], dtype=v.dtype), []
    for t in range(q.shape[1]):
        state = a[:, t, None, None] * state
        error = v[:, t] - (k[:, t, None, :] @ state)[:, 0]
        state = state + strength[:, t, None, None] * k[:, t, :, None] * error[:, None, :]
        results.append((q[:, t, None, :] @ state)[:, 0])
    return torch.stack(results, 1)


def delta_chunked(torch: Any, q: Any, k: Any, v: Any, a: Any, strength: Any, chunk: int) -> Any:
    """Return the same chunk by chunk, with the inverse of a triangular matrix (section 3.3)."""
    state, results = torch.zeros(k.shape[0], k.shape[2], v.shape[2], dtype=v.dtype), []
    for start in range(0, q.shape[1], chunk):
        qs, ks, vs, s = (tensor[:, start : start + chunk] for tensor in (q, k, v, strength))
        sums = a[:, start : start + chunk].log().cumsum(1)
        mask = torch.exp(sums[:, :, None] - sums[:, None, :]).tril()
        scores = (torch.bmm(ks, ks.mT) * mask * s[:, :, None]).tril(-1)
        one = torch.eye(qs.shape[1], dtype=v.dtype).expand_as(scores)
        inverse = torch.linalg.solve_triangular(one + scores, one, upper=False)
        values = torch.bmm(inverse, s[:, :, None] * vs)
        keys = torch.bmm(inverse, (s * sums.exp())[:, :, None] * ks)
        corrected = values - torch.bmm(keys, state)
        across = torch.bmm(qs * sums.exp()[:, :, None], state)
        results.append(across + torch.bmm(torch.bmm(qs, ks.mT) * mask, corrected))
        added = torch.bmm((ks * (sums[:, -1:] - sums).exp()[:, :, None]).mT, corrected)
        state = sums[:, -1].exp()[:, None, None] * state + added
    return torch.cat(results, 1)


def linear_recurrence(torch: Any, q: Any, k: Any, v: Any, a: Any) -> Any:
    """Return o of S = a S + k' v, o = q S, token by token, with one decay for each head."""
    state, results = torch.zeros(k.shape[0], k.shape[2], v.shape[2], dtype=v.dtype), []
    for t in range(q.shape[1]):
        state = a[:, None, None] * state + k[:, t, :, None] * v[:, t, None, :]
        results.append((q[:, t, None, :] @ state)[:, 0])
    return torch.stack(results, 1)


def linear_chunked(torch: Any, q: Any, k: Any, v: Any, a: Any, chunk: int) -> Any:
    """Return the same chunk by chunk (arXiv 2401.04658, algorithm 1)."""
    state, results = torch.zeros(k.shape[0], k.shape[2], v.shape[2], dtype=v.dtype), []
    steps = torch.arange(chunk, dtype=v.dtype)
    mask = (a[:, None, None] ** (steps[:, None] - steps[None, :])).tril()
    rises = a[:, None, None] ** (steps[None, :, None] + 1)
    falls = a[:, None, None] ** (chunk - 1 - steps[None, :, None])
    for start in range(0, q.shape[1], chunk):
        qs, ks, vs = (tensor[:, start : start + chunk] for tensor in (q, k, v))
        inside = torch.bmm(torch.bmm(qs, ks.mT) * mask, vs)
        results.append(inside + torch.bmm(qs * rises, state))
        state = a[:, None, None] ** chunk * state + torch.bmm((ks * falls).mT, vs)
    return torch.cat(results, 1)


def counted(torch: Any, run: Callable[[], Any], expected: Any) -> int:
    """Return the FLOPs that torch counts of a function whose result is as expected."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        result = run()
    torch.testing.assert_close(result, expected)
    return int(counter.get_total_flops())


def test_products_of_mamba2_are_those_of_a_chunked_scan() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    h, l, each = MAMBA.heads, 32, MAMBA.heads // MAMBA.groups
    x = torch.randn(h, l, MAMBA.head_dim, dtype=torch.float64)
    b, c = (torch.randn(4, l, 32, dtype=torch.float64).repeat_interleave(each, 0) for _ in "bc")
    a = torch.rand(h, l, dtype=torch.float64) * 0.5 + 0.5
    flops = counted(
        torch,
        lambda: mamba2_chunked(torch, x, a, b, c, MAMBA.groups, MAMBA.chunk),
        mamba2_recurrence(torch, x, a, b, c),
    )
    assert products(operation(MAMBA, "scan").forward) == flops


def test_products_of_the_gated_delta_net_are_those_of_a_chunked_scan() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    h, l = NET.value_heads, 32
    q, k = (torch.randn(h, l, NET.key_dim, dtype=torch.float64) / 4 for _ in "qk")
    v = torch.randn(h, l, NET.value_dim, dtype=torch.float64)
    a, strength = (torch.rand(h, l, dtype=torch.float64) * 0.5 + 0.5 for _ in "as")
    flops = counted(
        torch,
        lambda: delta_chunked(torch, q, k, v, a, strength, NET.chunk),
        delta_recurrence(torch, q, k, v, a, strength),
    )
    assert products(operation(NET, "scan").forward) == flops


def test_products_of_lightning_attention_are_those_of_a_chunked_scan() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    h, l = LIGHTNING.heads, 32
    q, k = (torch.randn(h, l, LIGHTNING.key_dim, dtype=torch.float64) for _ in "qk")
    v = torch.randn(h, l, LIGHTNING.value_dim, dtype=torch.float64)
    a = torch.rand(h, dtype=torch.float64) * 0.5 + 0.5
    flops = counted(
        torch,
        lambda: linear_chunked(torch, q, k, v, a, LIGHTNING.chunk),
        linear_recurrence(torch, q, k, v, a),
    )
    assert products(operation(LIGHTNING, "scan").forward) == flops


def test_decays_by_channel_cost_traffic_and_memory_but_no_products() -> None:
    """Of 32 tokens and 8 heads of 16 rows: 15 decays more for each head, saved in fp32."""
    heads, channels = (operation(replace(KIMI, channel_decay=flag), "scan") for flag in (False, True))
    assert products(heads.forward) == products(channels.forward)
    assert channels.saved_bytes - heads.saved_bytes == 4 * 32 * 8 * 15
    assert channels.forward.nbytes > heads.forward.nbytes
    assert channels.weights - heads.weights == 8 * 15


def test_narrow_gates_are_on_every_rank_and_their_heads_are_cut() -> None:
    """From 64 columns to 2 x 16, and from 16 to 8 x 32 of the gate and 8 x 16 of the decay."""
    for tp in (1.0, 2.0):
        down, up = (operation(KIMI, name, Plans(tp=tp)) for name in ("gates_down", "gates_up"))
        assert (down.weights, up.weights) == (64 * 32, 16 * (256 + 128) / tp)


def test_mamba_by_hand() -> None:
    """Of 32 tokens, 64 channels with states of 16, dt through a width of 4: 9 FLOP for an element."""
    scan, select, step = (operation(SELECTIVE, name) for name in ("scan", "x_proj", "dt_proj"))
    assert scan.forward.flops("vector") == 32 * 64 * (9 * 16 + 2 + 8)
    assert (products(select.forward), products(step.forward)) == (2 * 32 * 64 * 36, 2 * 32 * 4 * 64)
    kept = sum(op.saved_bytes for op in (operation(SELECTIVE, "conv"), scan, select, step))
    assert kept == 2 * 32 * (64 + 64 + 36) + 4 * 2 * 16 * 64 * 32 / 2048  # x; z; dt, B and C; states
    half = operation(SELECTIVE, "x_proj", Plans(tp=2.0))
    (summed,) = half.forward.collectives
    assert (summed.kind, summed.nbytes) == ("all-reduce", 2 * 32 * 36)


@pytest.mark.parametrize(
    ("config", "channels", "recomputed"),
    [(MAMBA, 8 * 16 + 2 * 4 * 32, 2), (SELECTIVE, 64, 2), (NET, 2 * 4 * 16 + 8 * 32, 0)],
    ids=["mamba2", "mamba", "gated_delta"],
)
def test_the_causal_convolution_by_hand(config: LinearAttention, channels: int, recomputed: int) -> None:
    """Of 32 tokens: 4 products and sums of a channel, twice as many for both gradients, and SiLU, of 8 FLOP.

    Forward reads x and writes y; backward reads x and dy, writes dx, and Mamba's makes y again.
    """
    conv = operation(config, "conv")
    n, passes = 32 * channels, CALIBRATED.traffic.conv_passes
    assert conv.forward.flops("vector") == n * (2 * 4 + 8)
    assert conv.backward.flops("vector") == n * (2 * 2 * 4 + 8)
    assert conv.forward.nbytes == pytest.approx(passes * 2 * 2 * n)
    assert conv.backward.nbytes == pytest.approx(passes * 2 * (3 + recomputed) * n)
    assert conv.saved_bytes == 2 * n


def test_attention_and_mamba2_side_by_side() -> None:
    """Falcon-H1: the operations of both, whose partial sums are reduced together; 2 norms."""
    fields: dict[str, Any] = {"mamba2": MAMBA, "ffn": 96, "heads": 4, "biases": ()}
    sizes: dict[str, Any] = {"layers": 2, "hidden": 64, "seq": 32, "norm": "rmsnorm", "dropout": False}
    model = Model(name="m", layer_kinds=("attention+mamba2 dense",), **sizes | fields)
    operations = {op.name: op for op in layer(model, Plans(tp=2.0), CALIBRATED)}
    assert not operations["attention.proj"].forward.collectives
    assert operations["mamba2.out_proj"].forward.collectives
    (kind,) = model.kinds
    attention = replace(model, mamba2=None, layer_kinds=("dense",))
    alone = replace(model, layer_kinds=("mamba2 dense",), heads=0)
    shared = 3 * 64 * 96 + 2 * 64 if model.gated else 2 * 64 * 96 + 2 * 64
    both = attention.kind_parameters(attention.kinds[0]) + alone.kind_parameters(alone.kinds[0])
    assert model.kind_parameters(kind) == both - shared
    assert sum(op.weights for op in layer(model, Plans(), CALIBRATED)) == model.kind_parameters(kind)


def test_rwkv_by_hand() -> None:
    """Of 32 tokens and 64 channels: three inputs are mixed for time mixing, two for the MLP."""
    fields: dict[str, Any] = {"ffn": 96, "channel_mix": True, "mlp": "relu2", "biases": (), "dropout": False}
    model = model_of(Rwkv(width=64), "dense", **fields)
    assert model.layer_parameters() == 2 * (4 * 64**2 + 5 * 64 + 2 * 64 * 96 + 64**2 + 2 * 64 + 2 * 64)
    found = {op.name: op for op in layer(model, Plans(), CALIBRATED)}
    assert sum(op.weights for op in found.values()) == model.kind_parameters(model.kinds[0])
    shift = found["rwkv.token_shift"]
    assert shift.forward.nbytes == 2 * (1 + 3) * 32 * 64  # reads x, writes three mixtures
    assert shift.backward.nbytes == 2 * (2 + 3) * 32 * 64  # reads their gradients and x, writes dx
    assert shift.weights == 3 * 64
    assert shift.saved_bytes == 2 * 3 * 32 * 64
    assert found["mlp.token_shift"].saved_bytes == 2 * 2 * 32 * 64
    assert found["rwkv.scan"].saved_bytes == 2 * 4 * 32 * 64


def test_scan_by_hand() -> None:
    """Of 32 tokens in 4 chunks of 8: 4 groups, 8 heads of 16 with a state of 32 x 16."""
    scan = operation(MAMBA, "scan")
    scores, inside, state = 8 * 32 * 8, 8 * 8 * 16, 32 * 8 * 16
    forward = 2 * 4 * (4 * scores + 8 * (inside + 2 * state))
    recomputed = 2 * 4 * (4 * scores + 8 * (state + inside))
    assert products(scan.forward) == forward
    assert products(scan.backward) == 2 * forward + recomputed
    # Backward, kernel by kernel (mamba_ssm, _mamba_chunk_scan_combined_bwd): tensors as wide as x, as B, and
    # states at 16 bits; states and scores in fp32.
    x, b, states, cb = 32 * 128, 32 * 4 * 32, 4 * 8 * 32 * 16, 32 * 4 * 8
    moved = 2 * (17 * x + 15 * b + 5 * states) + 4 * (6 * states + 6 * cb)
    assert scan.backward.nbytes == pytest.approx(CALIBRATED.traffic.scan_passes * moved)
    assert scan.saved_bytes == 2 * 32 * (128 + 128 + 8)  # z, the result and dt, 2 bytes each
    assert scan.weights == 3 * 8


def test_traffic_of_the_rg_lru_by_hand() -> None:
    """Of 32 tokens and 64 channels in 16 bits, tensor by tensor (arXiv 2402.19427, section 4.2).

    Forward: x and two gates read, h written; h and y read, the result written. Backward: x, two gates, h
    and dh read, dx and those of the gates written; h, y and dz read, dh and dy written.
    """
    scan = operation(LRU, "scan")
    tensor, passes = 2 * 32 * 64, CALIBRATED.traffic.scan_passes
    assert scan.forward.nbytes == pytest.approx(passes * (4 + 3) * tensor)
    assert scan.backward.nbytes == pytest.approx(passes * (5 + 3 + 3 + 2) * tensor)
    # sigmoids of both gates and GELU, 8 each; products and sums; 8 for the decay and its square root
    assert scan.forward.flops("vector") == 32 * 64 * (3 * 8 + 3 + 8)


def test_traffic_of_the_scan_of_delta_nets_by_hand() -> None:
    """Of 32 tokens in 4 chunks of 8: 8 heads with keys of 16, values of 32 and a state of 16 x 32.

    The tensors of keys, values, scores and states in 16 bits; A, the matrix that is inverted, in fp32.
    """
    scan = operation(NET, "scan")
    k, v, score, state = 32 * 8 * 16, 32 * 8 * 32, 32 * 8 * 8, 32 * 16 * 32
    written = k + v + v + state  # W, U, V' and S
    recomputed = 2 * (score + 3 * k + 2 * v + written)  # reads A, K and V, K and W, and U
    inverted = 2 * (k + score) + 2 * 4 * score  # from K in fp32, written and read
    result = 2 * (2 * k + 2 * v + state)  # from Q, K, V' and S
    moved = recomputed + inverted + result
    passes = CALIBRATED.traffic.scan_passes
    assert scan.forward.nbytes == pytest.approx(passes * moved)
    assert scan.backward.nbytes == pytest.approx(passes * (2 * moved + recomputed))
    assert scan.saved_bytes == 2 * (2 * k + v + score) + (2 + 4) * 32 * 8  # decays in both sizes
    assert scan.forward.flops("vector") == pytest.approx(32 * (8**3 / 3 + 4 * 8 * 8 + 2 * 16 * 32))


def test_traffic_of_the_scan_of_lightning_attention_by_hand() -> None:
    """Of 32 tokens in 4 chunks of 8: 8 heads with keys of 16, values of 32 and a state of 16 x 32."""
    scan = operation(LIGHTNING, "scan")
    k, v, state = 32 * 8 * 16, 32 * 8 * 32, 32 * 16 * 32
    states = 2 * (k + v + state)  # reads K and V, writes S
    moved = states + 2 * (2 * k + v + state + v)  # reads Q, K, V and S, writes the result
    passes = CALIBRATED.traffic.scan_passes
    assert scan.forward.nbytes == pytest.approx(passes * moved)
    assert scan.backward.nbytes == pytest.approx(passes * (2 * moved + states))
    assert scan.forward.flops("vector") == pytest.approx(32 * (3 * 8 * 8 + 2 * 16 * 32))


def test_traffic_of_the_scan_of_mamba_1_by_hand() -> None:
    """Of 32 tokens and 64 channels: x, dt and z, and B and C of 16; states of stretches in fp32."""
    scan = operation(SELECTIVE, "scan")
    n, bc, states = 32 * 64, 2 * 32 * 16, 4 * 2 * 16 * 32 * 64 / SCAN_TOKENS
    passes = CALIBRATED.traffic.scan_passes
    # x, dt and z read, the result written before and after the gate
    assert scan.forward.nbytes == pytest.approx(passes * (2 * (5 * n + bc) + states))
    # and dy read; the result, dx, ddt and dz written; gradients of B and C added up in fp32
    assert scan.backward.nbytes == pytest.approx(passes * (2 * (9 * n + bc) + 4 * 2 * bc + states))
    assert scan.weights == 64 * (16 + 2)


def test_a_convolution_by_hand() -> None:
    """Of 4 tokens and SiLU, forward; two gradients of as many tokens, backward. Mamba makes y again."""
    for config, again in ((NET, 0), (MAMBA, 2)):
        conv = operation(config, "conv")
        n = 32 * config.counts.conv_width
        assert conv.forward.flops("vector") == n * (2 * 4 + 8)
        assert conv.backward.flops("vector") == n * (4 * 4 + 8)
        passes = CALIBRATED.traffic.conv_passes
        assert conv.forward.nbytes == pytest.approx(passes * 2 * 2 * n)
        assert conv.backward.nbytes == pytest.approx(passes * 2 * (3 + again) * n)


@SCANS
@pytest.mark.parametrize("degree", [{"tp": 2.0}, {"cp": 2.0, "cp_kind": "all-gather"}])
def test_ranks_share_the_work(config: LinearAttention, degree: Any) -> None:
    whole, half = (operation(config, "scan", plan) for plan in (Plans(), Plans(**degree)))
    for name in ("forward", "backward"):
        one, other = getattr(whole, name), getattr(half, name)
        if config != SELECTIVE or "cp" in degree:  # tensor ranks read the same B and C
            assert other.nbytes == pytest.approx(one.nbytes / 2)
        assert [kernel.flops for kernel in other.kernels] == pytest.approx(
            [kernel.flops / 2 for kernel in one.kernels]
        )
    assert half.saved_bytes == whole.saved_bytes / 2
    assert half.weights == whole.weights / degree.get("tp", 1)


@CONFIGS
def test_context_parallel_ranks_exchange_tokens_for_heads(config: LinearAttention) -> None:
    """Each of 2 ranks has 16 tokens, all columns of the projection before, all of the result after.

    Megatron-Core 0.19.2 norms the result of a delta net first (gated_delta_net/common.py)."""
    plan, last = Plans(cp=2.0, cp_kind="ring"), "norm" if isinstance(config, GatedDelta) else "scan"
    sent = {name: operation(config, name, plan).forward.collectives[0] for name in ("conv", last)}
    assert {call.kind for call in sent.values()} == {"all-to-all"}
    assert sent["conv"].nbytes == 2 * 16 * config.counts.projected
    assert sent[last].nbytes == 2 * 16 * config.counts.inner
    assert last == "scan" or not operation(config, "scan", plan).forward.collectives


def test_a_gated_convolution_by_hand() -> None:
    """Of 32 tokens and 64 channels: b, c and x are read, y written; tensor ranks halve it."""
    whole, half = (operation(ShortConv(width=64), "conv", Plans(tp=tp)) for tp in (1.0, 2.0))
    passes = CALIBRATED.traffic.conv_passes
    assert whole.forward.nbytes == pytest.approx(passes * 2 * 4 * 32 * 64)
    assert whole.saved_bytes == 2 * half.saved_bytes == 2 * 3 * 32 * 64
    assert whole.weights == 2 * half.weights == 3 * 64
    assert whole.forward.collectives == ()


@CONFIGS
@given(data=st.data())
def test_longer_sequences_are_more_work_in_proportion(config: LinearAttention, data: Any) -> None:
    seq, factor = data.draw(st.integers(1, 100)) * 8, data.draw(st.integers(2, 9))
    short, long = (operation(config, "scan", seq=length) for length in (seq, factor * seq))
    assert products(long.forward) == pytest.approx(factor * products(short.forward))
    assert long.backward.nbytes == pytest.approx(factor * short.backward.nbytes)


VARIANTS = (
    MAMBA,
    replace(MAMBA, bias=True),
    replace(MAMBA, conv_bias=False, conv=3),
    NET,
    replace(NET, conv=2, key_heads=8),
    replace(MAMBA, norm=False),
    KIMI,
    replace(KIMI, gate_rank=None),
    LIGHTNING,
    replace(LIGHTNING, gates=2),
    SELECTIVE,
    replace(SELECTIVE, norm=True, bias=True, conv_bias=False),
    replace(SELECTIVE, norm=True, norm_weights=False),
    LRU,
    Rwkv(width=64),
    ShortConv(width=64),
    ShortConv(width=64, conv=4, bias=True),
)


@pytest.mark.parametrize("config", VARIANTS)
@pytest.mark.parametrize("block", ["only", "dense", "moe"])
def test_weights_of_operations_are_those_of_the_model(config: LinearAttention, block: str) -> None:
    experts = Experts(experts=4, topk=2, ffn=16, shared_ffn=32) if block == "moe" else None
    model = model_of(config, block, ffn=48 if block == "dense" else 0, experts=experts)
    assert model.kinds == (KINDS[model.layer_kinds[0]],)
    weights = sum(op.weights for op in layer(model, Plans(), CALIBRATED))
    assert weights == model.kind_parameters(model.kinds[0])


def test_a_layer_of_one_block_has_half_of_the_norms() -> None:
    names = [op.name for op in layer(model_of(MAMBA), Plans(), CALIBRATED)]
    assert [name for name in names if name.endswith("norm")] == ["mamba2.norm", "attention.norm"]
    assert sum(op.saves_layer_input for op in layer(model_of(MAMBA), Plans(), CALIBRATED)) == 1
