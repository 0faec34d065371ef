"""Dimensions of a model that lose time to tile or wave quantisation, and better values near them.

Every gain is the difference of two estimates, of the model itself and of a variant. Assumptions without tiles
(``"paper"``) give no products.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from math import gcd
from typing import Annotated, ClassVar, Final, NamedTuple

from traincast.core import Doc, InputError, Plan, Result
from traincast.model import Model
from traincast.operations import Direction, Gemm
from traincast.step import Estimate, estimate, estimate_columns, model_flops_per_token
from traincast.times import tile_cost

SEARCH_RANGE: Final = 0.08  # of the size: candidates are at most this far from it
MAX_SIZES_TRIED: Final = 12  # of a dimension, the nearest first
MIN_WASTED_SHARE: Final = 0.02  # of a product's time; below it the product is not listed
MIN_GAIN: Final = 0.01  # below it a size that divides well is not replaced
GOOD_MULTIPLE: Final = 64  # good multiple of a dimension since A100 (Bekman); 8 is the minimum at 16 bits
HEAD_WIDTHS: Final = range(GOOD_MULTIPLE, 128 + 1, 8)  # of the candidates: fused attention is fast up to 128


class Product(Result):
    """A matrix product, local m × k by k × n, that loses time to tile or wave quantisation."""

    operation: Annotated[str, Doc('block and operation, such as "mlp.fc1"')]
    direction: Annotated[Direction, Doc("the pass; backward computes gradients of input and weights")]
    m: Annotated[float, Doc("rows of the result on a rank")]
    k: Annotated[float, Doc("width that is summed over on a rank")]
    n: Annotated[float, Doc("columns of the result on a rank")]
    tiles: Annotated[float, Doc("share of its FLOPs that are tile padding")]
    waves: Annotated[float, Doc("share of the rest lost to the partial last wave of tiles")]
    share: Annotated[float, Doc("time lost here over that of all products, each counted once")]


def wasteful(est: Estimate) -> list[Product]:
    """List matrix products that lose more than 2 % to tile or wave quantisation, the most expensive first.

    Those of equal sizes are listed once; fused attention is left out.
    """
    without_waves = est.assumptions.with_values({"kernels.wave_loss": 0.0})
    gpu = est.system.accelerator
    products: dict[tuple[float, float, float], Product] = {}
    lost: dict[tuple[float, float, float], float] = {}
    spent = 0.0
    for name, direction, kernel in _products(est):
        tile_slowdown = float(tile_cost(kernel, gpu, without_waves))
        slowdown = float(tile_cost(kernel, gpu, est.assumptions))
        work = float(kernel.flops)
        spent += work * slowdown
        if 1 - 1 / slowdown > MIN_WASTED_SHARE:
            sizes = float(kernel.m), float(kernel.k), float(kernel.n)
            lost[sizes] = lost.get(sizes, 0.0) + work * (slowdown - 1)
            waste = 1 - 1 / tile_slowdown, 1 - tile_slowdown / slowdown
            products.setdefault(sizes, Product(name, direction, *sizes, *waste, share=0.0))
    listed = [replace(product, share=lost[sizes] / spent) for sizes, product in products.items()]
    return sorted(listed, key=lambda product: -product.share)


def _products(est: Estimate) -> Iterator[tuple[str, Direction, Gemm]]:
    """Yield every matrix product of every part of the model, without fused attention."""
    for timed in chain.from_iterable(est.timed.values()):
        for direction, work in timed.operation.passes.items():
            for product in work.gemms if work.fused is None else ():
                yield timed.operation.name, direction, product


class Better(Result):
    """A better value of a dimension, and its gain with the plan as it is."""

    value: Annotated[int, Doc("the size")]
    said: Annotated[str, Doc("other changes that come with it")]
    gain: Annotated[
        float,
        Doc(
            "relative gain in model FLOP/s; of a vocabulary, which is padded, in steps per second; what"
            " alignment gains beside tiles and waves is not measured, and not in it"
        ),
    ]
    even: Annotated[
        float, Doc("part of the gain due to tiles and waves; the rest is due to the model's other size")
    ]
    step_seconds: Annotated[float, Doc("relative change of the step time; a larger model takes longer")]
    parameters: Annotated[float, Doc("relative change of the number of parameters")]


class Dimension(Result):
    """A dimension of the model, and its local shard."""

    good_multiple: ClassVar[int] = GOOD_MULTIPLE
    name: Annotated[str, Doc("hidden, ffn, head width, expert ffn or vocabulary")]
    value: Annotated[int, Doc("the size")]
    shard: Annotated[float, Doc("local size after tensor parallelism")]
    multiple: Annotated[
        int, Doc("largest power of two up to 64 that divides size and shard: 64 is good, below 8 is bad")
    ]
    better: Annotated[
        Better | None, Doc("faster size near it; the nearest good multiple where the size itself is none")
    ]


def dimensions(est: Estimate) -> list[Dimension]:
    """List the dimensions of the model: whether each divides well, also on a rank, and a better value.

    One size changes at a time, the plan stays, and every candidate is estimated with tiles and without. The
    nearest size is chosen that gains at least nine tenths of what the best candidate gains.
    """
    rows = []
    untiled_seconds = _untiled_seconds(est, est.model)
    for sized in _sized_dimensions(est.model, est.plan):
        value = sized.value
        ranks = sized.ranks
        divides = gcd(value, GOOD_MULTIPLE) if value % ranks else gcd(value, value // ranks, GOOD_MULTIPLE)
        gains = [_gain_of(est, untiled_seconds, sized, *candidate) for candidate in sized.candidates]
        better = _best_option(sized, [gain for gain in gains if gain is not None], divides)
        rows.append(Dimension(sized.name, value, value / ranks, divides, better))
    return rows


Candidate = tuple[int, str, Model]  # the size, other changes that come with it, and the changed model


class _Sized(NamedTuple):
    """A dimension of the model, and sizes to try in its place."""

    name: str
    value: int
    ranks: int  # that shard it
    candidates: list[Candidate]
    by_flops: bool = False  # whether sizes are judged by model FLOP/s, not by tiles and waves alone
    padding: bool = False  # whether a larger size is padding, so that model FLOPs stay


def _best_option(sized: _Sized, tried: list[Better], multiple: int) -> Better | None:
    """Return the nearest size that gains about as much as the best, or a good multiple for a bad size.

    Widths of layers are judged by tiles and waves alone: a larger width always amortises other work better.
    """
    if any(option.even for option in tried):  # tiles are known: none that is slower
        tried = [option for option in tried if option.gain >= 0]
    gains = {option.value: option.gain if sized.by_flops else option.even for option in tried}
    best = max(gains.values(), default=0.0)
    if best < MIN_GAIN and multiple >= GOOD_MULTIPLE:
        return None
    even = [option for option in tried if option.value % (GOOD_MULTIPLE * sized.ranks) == 0] or tried
    good = [option for option in tried if gains[option.value] >= 0.9 * best] if best >= MIN_GAIN else even
    return min(good, key=lambda option: abs(option.value - sized.value), default=None)


def _sized_dimensions(model: Model, plan: Plan) -> Iterator[_Sized]:
    tp = plan.tp
    experts = model.experts
    yield _Sized("hidden", model.hidden, tp, _widths(model, tp))
    if any(kind.feed_forward == "dense" for kind in model.kinds):
        variants = [(f, "", replace(model, ffn=f)) for f in _multiples_near(model.ffn, tp)]
        yield _Sized("ffn", model.ffn, tp, variants)
    if experts is not None:
        sized = [replace(experts, ffn=f) for f in _multiples_near(experts.ffn, plan.etp)]
        variants = [(other.ffn, "", replace(model, experts=other)) for other in sized]
        yield _Sized("expert ffn", experts.ffn, plan.etp, variants)
    if model.latent is None and model.heads:
        yield _Sized("head width", model.head_width, 1, _heads(model, tp), by_flops=True)
    if model.vocab is not None:
        grains = [grain * tp for grain in (8, GOOD_MULTIPLE, 2 * GOOD_MULTIPLE)]
        padded = {-(-model.vocab // grain) * grain for grain in grains} - {model.vocab}
        variants = [(v, "padded", replace(model, vocab=v)) for v in sorted(padded)]
        yield _Sized("vocabulary", model.vocab, tp, variants, by_flops=True, padding=True)


def _multiples_near(value: int, ranks: int) -> list[int]:
    """Return sizes around one, the nearest first, at least the two next to it.

    Local shards are multiples of 64, or of 8 where that is too coarse.
    """
    step = GOOD_MULTIPLE * ranks if GOOD_MULTIPLE * ranks <= SEARCH_RANGE * value else 8 * ranks
    below = value // step * step
    around = {below + i * step for i in range(1 - MAX_SIZES_TRIED, MAX_SIZES_TRIED)}
    near = {below, below + step} | {n for n in around if abs(n / value - 1) <= SEARCH_RANGE}
    return sorted((n for n in near if n > 0 and n != value), key=lambda n: abs(n - value))[:MAX_SIZES_TRIED]


def _widths(model: Model, tp: int) -> list[Candidate]:
    """Return hidden widths, multiples of 64 on every rank; heads keep their number or about their width."""
    near = _multiples_near(model.hidden, tp)
    if model.head_dim is not None or model.latent is not None or not model.heads:
        return [(h, "", replace(model, hidden=h)) for h in near]
    candidates = []
    for h in near:
        widths = [w for w in HEAD_WIDTHS if h % w == 0 and _heads_divide(model, h // w, tp)]
        if model.heads * 8 <= h and h % (model.heads * 8) == 0:
            candidates.append((h, f"heads of {h // model.heads}", replace(model, hidden=h)))
        elif widths:
            width = min(widths, key=lambda w: abs(w - model.head_width))
            note = f"{h // width} heads of {width}"
            variant = replace(model, hidden=h, heads=h // width)
            candidates.append((h, note, variant))
    return candidates


def _heads_divide(model: Model, heads: int, tp: int) -> bool:
    """Return whether the heads divide over the ranks and over the heads of keys and values."""
    return heads > 0 and heads % tp == 0 and heads % (model.kv_heads or 1) == 0


def _heads(model: Model, tp: int) -> list[Candidate]:
    """Return head widths, multiples of 8: with other numbers of heads, or else another hidden width."""
    total = model.heads * model.head_width
    current = model.head_width
    candidates = []
    for width in HEAD_WIDTHS:
        heads = max(total // width, 1)
        if heads * width == total and width != current and _heads_divide(model, heads, tp):
            variant = replace(model, heads=heads, head_dim=model.head_dim and width)
            candidates.append((width, f"{heads} heads", variant))
    if candidates or current % 8 == 0:
        return candidates
    around = [width for width in (current // 8 * 8, current // 8 * 8 + 8) if width]
    if model.head_dim is not None:
        return [(width, "", replace(model, head_dim=width)) for width in around]
    hidden = {width: model.heads * width for width in around}
    return [(width, f"hidden {h:,}", replace(model, hidden=h)) for width, h in hidden.items()]


def _gain_of(
    est: Estimate, untiled: float, sized: _Sized, value: int, note: str, model: Model
) -> Better | None:
    """Return the gain of a size; None where the plan cannot run with it."""
    try:
        variant = estimate(model, est.system, est.plan, gbs=est.gbs, assumptions=est.assumptions)
    except InputError:
        return None
    time = float(variant.step_seconds / est.step_seconds)
    flops = 1.0 if sized.padding else model_flops_per_token(model) / model_flops_per_token(est.model)
    even = _untiled_seconds(est, model) / untiled / time - 1 if est.assumptions.kernels.tile else 0.0
    return Better(value, note, flops / time - 1, even, time - 1, model.parameters / est.model.parameters - 1)


def _untiled_seconds(est: Estimate, model: Model) -> float:
    """Return the step time of a model without tile and wave quantisation [s]."""
    smooth = est.assumptions.with_values({"kernels.tile": 0.0})
    return float(estimate_columns(model, est.system, est.plan.columns(), est.gbs, smooth).step_seconds)
