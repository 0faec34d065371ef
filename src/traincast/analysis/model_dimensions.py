"""Dimensions of a model that lose time to tile or wave quantisation on an accelerator, and better values near them.

Every gain is the difference of two estimates, of the model itself and of a variant. Assumptions without tiles (``"paper"``) give no
products.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from math import gcd
from typing import Annotated, Any, Final, Literal

from traincast.analysis.per_parameter import one_plan
from traincast.core.errors import InputError
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.core.result import Doc, Result
from traincast.operations.operation import Gemm, PassCount
from traincast.step.estimate import Estimate, estimate, estimate_columns
from traincast.step.model_flops import model_flops_per_token
from traincast.times.kernel_efficiency import tiled

SEARCH_RANGE: Final = 0.08  # of the size: candidates are at most this far from it
MAX_SIZES_TRIED: Final = 12  # of a dimension, the nearest first
MIN_WASTED_SHARE: Final = 0.02  # of a product's time; below it the product is not listed
MIN_GAIN: Final = 0.01  # below it a size that divides well is not replaced
GOOD_MULTIPLE: Final = 64  # good multiple of a dimension since A100 (Bekman); 8 is the minimum at 16 bits
MAX_HEAD_WIDTH: Final = 128  # of the candidates: fused attention is fast from here on


@dataclass(frozen=True, kw_only=True)
class Product(Result):
    """A matrix product that loses time to tile or wave quantisation: a local m × k matrix times a k × n one."""

    operation: Annotated[str, Doc('block and operation, such as "mlp.fc1"')]
    direction: Annotated[
        Literal["forward", "backward"], Doc("the pass; backward computes gradients of input and weights")
    ]
    m: Annotated[float, Doc("rows of the result on a rank")]
    k: Annotated[float, Doc("width that is summed over on a rank")]
    n: Annotated[float, Doc("columns of the result on a rank")]
    tiles: Annotated[float, Doc("share of its FLOPs that are tile padding")]
    waves: Annotated[float, Doc("share of the rest lost to the partial last wave of tiles")]
    share: Annotated[float, Doc("time lost here over that of all products, each counted once")]


def wasteful(est: Estimate) -> list[Product]:
    """List matrix products that lose time to tile or wave quantisation on this accelerator, the most expensive first.

    Parameters
    ----------
    est : Estimate
        Estimate of one plan.

    Returns
    -------
    list of Product
        Products that lose more than 2 % of their time. Those of equal sizes are listed once; fused attention is left out.
    """
    without_waves, gpu = est.assumptions.with_values({"kernels.wave_loss": 0.0}), est.system.accelerator
    rows: dict[tuple[float, float, float], list[Any]] = {}
    spent = 0.0
    for name, direction, kernel in _products(est):
        tile_slowdown, slowdown = (
            float(tiled(kernel, gpu, without_waves)),
            float(tiled(kernel, gpu, est.assumptions)),
        )
        work = float(kernel.flops)
        spent += work * slowdown
        if 1 - 1 / slowdown > MIN_WASTED_SHARE:
            sizes = float(kernel.m), float(kernel.k), float(kernel.n)
            rows.setdefault(sizes, [name, direction, tile_slowdown, slowdown, 0.0])[-1] += work * (
                slowdown - 1
            )
    products = [
        Product(
            **dict(zip(("m", "k", "n"), sizes, strict=True)),
            operation=name,
            direction=direction,
            tiles=1 - 1 / tile_slowdown,
            waves=1 - tile_slowdown / slowdown,
            share=lost / spent,
        )
        for sizes, (name, direction, tile_slowdown, slowdown, lost) in rows.items()
    ]
    return sorted(products, key=lambda product: -product.share)


def _products(est: Estimate) -> Iterator[tuple[str, str, Gemm]]:
    """Yield every matrix product of every part of the model, without fused attention."""
    for timed in chain.from_iterable(est.timed.values()):
        operation = timed.operation
        passes: tuple[tuple[str, PassCount], ...] = (
            ("forward", operation.forward),
            ("backward", operation.whole_backward),
        )
        for direction, work in passes:
            if work.fused is None:
                yield from (
                    (operation.name, direction, kernel) for kernel in work.kernels if isinstance(kernel, Gemm)
                )


@dataclass(frozen=True, kw_only=True)
class Better(Result):
    """A better value of a dimension, and its gain with the plan as it is."""

    value: Annotated[int, Doc("the size")]
    said: Annotated[str, Doc("other changes that come with it")]
    gain: Annotated[
        float, Doc("relative gain in model FLOP/s; of a vocabulary, which is padded, in steps per second")
    ]
    even: Annotated[
        float, Doc("part of the gain due to tiles and waves; the rest is due to the model's other size")
    ]
    step_seconds: Annotated[float, Doc("relative change of the step time; a larger model takes longer")]
    parameters: Annotated[float, Doc("relative change of the number of parameters")]


@dataclass(frozen=True, kw_only=True)
class Dimension(Result):
    """A dimension of the model, and its local shard."""

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
    """List the dimensions of the model: whether each divides well, before and after tensor parallelism, and a better value near it.

    One size changes at a time, the plan stays, and every candidate is estimated with tiles and without. The nearest size is chosen
    that gains at least nine tenths of what the best candidate gains.

    Parameters
    ----------
    est : Estimate
        Estimate of one plan.

    Returns
    -------
    list of Dimension
        Widths of layers, of heads and of the vocabulary, as far as the model has them.
    """
    rows, untiled_seconds = [], _untiled_seconds(est, est.model)
    for name, value, ranks, candidates in _dimensions_and_candidates(est.model, one_plan(est)):
        divides = gcd(value, GOOD_MULTIPLE) if value % ranks else gcd(value, value // ranks, GOOD_MULTIPLE)
        gains = [
            _gain_of(est, untiled_seconds, name, size, note, variant) for size, note, variant in candidates
        ]
        better = _best_option(name, [gain for gain in gains if gain is not None], value, divides)
        rows.append(Dimension(name=name, value=value, shard=value / ranks, multiple=divides, better=better))
    return rows


def _best_option(name: str, tried: list[Better], value: int, multiple: int) -> Better | None:
    """Return the nearest size that gains about as much as the best; where the size divides badly, the nearest good multiple.

    Widths of layers are judged by tiles and waves alone: a larger width always amortises other work better.
    """
    gains = {
        option.value: option.gain if name in ("head width", "vocabulary") else option.even for option in tried
    }
    best = max(gains.values(), default=0.0)
    if best < MIN_GAIN and multiple >= GOOD_MULTIPLE:
        return None
    good = [option for option in tried if gains[option.value] >= 0.9 * best] if best >= MIN_GAIN else tried
    return min(good, key=lambda option: abs(option.value - value), default=None)


Candidate = tuple[int, str, Model]


def _dimensions_and_candidates(model: Model, plan: Plan) -> Iterator[tuple[str, int, int, list[Candidate]]]:
    """Yield name, size, ranks that shard it, and candidates of every dimension."""
    tp, experts = plan.tp, model.experts
    yield "hidden", model.hidden, tp, _widths(model, tp)
    if experts is None or experts.first_dense or experts.every > 1:
        yield (
            "ffn",
            model.ffn,
            tp,
            [(f, "", replace(model, ffn=f)) for f in _multiples_near(model.ffn, _step_of(model.ffn, tp))],
        )
    if experts is not None:
        widths = _multiples_near(experts.ffn, _step_of(experts.ffn, plan.etp))
        yield (
            "expert ffn",
            experts.ffn,
            plan.etp,
            [(f, "", replace(model, experts=replace(experts, ffn=f))) for f in widths],
        )
    if model.latent is None:
        yield "head width", model.head_width, 1, _heads(model, tp)
    if model.vocab is not None:
        padded = sorted(
            {-(-model.vocab // (grain * tp)) * grain * tp for grain in (8, GOOD_MULTIPLE, 2 * GOOD_MULTIPLE)}
            - {model.vocab}
        )
        yield "vocabulary", model.vocab, tp, [(v, "padded", replace(model, vocab=v)) for v in padded]


def _step_of(value: int, ranks: int) -> int:
    """Return the step between sizes whose local shard is a multiple of 64, or of 8 where that is too coarse."""
    return GOOD_MULTIPLE * ranks if GOOD_MULTIPLE * ranks <= SEARCH_RANGE * value else 8 * ranks


def _multiples_near(value: int, step: int) -> list[int]:
    """Return multiples of a step around a size, the nearest first; at least the two next to it."""
    below = value // step * step
    near = {below, below + step} | {
        n
        for i in range(MAX_SIZES_TRIED)
        for n in (below - i * step, below + i * step)
        if abs(n / value - 1) <= SEARCH_RANGE
    }
    return sorted((n for n in near if n > 0 and n != value), key=lambda n: abs(n - value))[:MAX_SIZES_TRIED]


def _widths(model: Model, tp: int) -> list[Candidate]:
    """Return other hidden widths, multiples of 64 on every rank; heads keep their number or about their width."""
    near = _multiples_near(
        model.hidden, GOOD_MULTIPLE * tp if GOOD_MULTIPLE * tp <= SEARCH_RANGE * model.hidden else 8 * tp
    )
    if model.head_dim is not None or model.latent is not None:
        return [(h, "", replace(model, hidden=h)) for h in near]
    candidates = []
    for h in near:
        widths = [
            w
            for w in range(GOOD_MULTIPLE, MAX_HEAD_WIDTH + 1, 8)
            if h % w == 0 and _heads_divide(model, h // w, tp)
        ]
        if model.heads * 8 <= h and h % (model.heads * 8) == 0:
            candidates.append((h, f"heads of {h // model.heads}", replace(model, hidden=h)))
        elif widths:
            width = min(widths, key=lambda w: abs(w - model.head_width))
            candidates.append(
                (h, f"{h // width} heads of {width}", replace(model, hidden=h, heads=h // width))
            )
    return candidates


def _heads_divide(model: Model, heads: int, tp: int) -> bool:
    """Return whether the heads divide over the ranks and over the heads of keys and values."""
    return heads > 0 and heads % tp == 0 and heads % (model.kv_heads or 1) == 0


def _heads(model: Model, tp: int) -> list[Candidate]:
    """Return head widths that are a multiple of 8, at most 128: other numbers of heads, or else another hidden width."""
    total, current, candidates = model.heads * model.head_width, model.head_width, []
    for width in range(GOOD_MULTIPLE, MAX_HEAD_WIDTH + 1, 8):
        heads = max(total // width, 1)
        if heads * width == total and width != current and _heads_divide(model, heads, tp):
            candidates.append(
                (width, f"{heads} heads", replace(model, heads=heads, head_dim=model.head_dim and width))
            )
    if candidates or current % 8 == 0:
        return candidates
    around = [width for width in (current // 8 * 8, current // 8 * 8 + 8) if width]
    if model.head_dim is not None:
        return [(width, "", replace(model, head_dim=width)) for width in around]
    return [
        (width, f"hidden {model.heads * width:,}", replace(model, hidden=model.heads * width))
        for width in around
    ]


def _gain_of(est: Estimate, untiled: float, name: str, value: int, note: str, model: Model) -> Better | None:
    """Return the gain of a size; None where the plan cannot run with it."""
    try:
        variant = estimate(model, est.system, est.plan, gbs=est.gbs, assumptions=est.assumptions)
    except InputError:
        return None
    time = float(variant.step_seconds / est.step_seconds)
    flops = 1.0 if name == "vocabulary" else model_flops_per_token(model) / model_flops_per_token(est.model)
    even = _untiled_seconds(est, model) / untiled / time - 1 if est.assumptions.kernels.tile else 0.0
    parameters = model.parameters / est.model.parameters - 1
    return Better(
        value=value, said=note, gain=flops / time - 1, even=even, step_seconds=time - 1, parameters=parameters
    )


def _untiled_seconds(est: Estimate, model: Model) -> float:
    """Return the step time of a model without tile and wave quantisation [s]."""
    smooth = est.assumptions.with_values({"kernels.tile": 0.0})
    return float(estimate_columns(model, est.system, one_plan(est).columns(), est.gbs, smooth).step_seconds)
