"""Better dimensions of a model for a plan and an accelerator: which sizes waste tiles or waves, and what a neighbour gains.

Every gain is the estimator's own: a neighbour is estimated like the model itself and compared with it. Where the assumptions know
no tiles (``"paper"``), none are told.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, Final

from traincast.analysis.per_parameter import one_plan
from traincast.core.errors import InputError
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.operations.operation import Gemm, PassCount
from traincast.step.estimate import Estimate, estimate, estimate_columns
from traincast.step.model_flops import model_flops_per_token
from traincast.times.kernel_efficiency import tiled

NEAR: Final = 0.08  # a better size is looked for this far around, relative to the size
MOST: Final = 12  # sizes tried of a dimension, the nearest
WASTED: Final = 0.02  # share of a product's time from which its waste is told
WORTH: Final = 0.01  # gain from which a size that divides well is told to be better
COARSE: Final = 64  # good multiple of a dimension on A100 and after (Bekman); 8 is the least at 16 bits
WIDEST: Final = 128  # width of heads from which fused attention is fast


@dataclass(frozen=True, kw_only=True)
class Product:
    """A matrix product that tiles or waves waste.

    Parameters
    ----------
    operation : str
        Block and operation, such as ``"mlp.fc1"``.
    direction : {"forward", "backward"}
        The pass; backward is the gradients of input and weights.
    m, k, n : float
        Sizes on a rank: an m × k matrix by a k × n one.
    tiles : float
        Share of its arithmetic that pads tiles.
    waves : float
        Share of the rest that waits for the last wave of tiles.
    share : float
        Share of the arithmetic of all products of the model's parts, each once, that is wasted here.
    """

    operation: str
    direction: str
    m: float
    k: float
    n: float
    tiles: float
    waves: float
    share: float


def wasteful(est: Estimate) -> list[Product]:
    """Matrix products that waste tiles or waves on this accelerator, the most expensive first.

    Parameters
    ----------
    est : Estimate
        Of one plan.

    Returns
    -------
    list of Product
        Those that waste more than 2 % of their time. Products with the same sizes are told once; fused attention is none.
    """
    even, gpu = replace(est.assumptions, wave_loss=0.0), est.system.accelerator
    rows: dict[tuple[float, float, float], list[Any]] = {}
    spent = 0.0
    for name, direction, kernel in _products(est):
        padded, whole = float(tiled(kernel, gpu, even)), float(tiled(kernel, gpu, est.assumptions))
        work = float(kernel.flops)
        spent += work * whole
        if 1 - 1 / whole > WASTED:
            sizes = float(kernel.m), float(kernel.k), float(kernel.n)
            rows.setdefault(sizes, [name, direction, padded, whole, 0.0])[-1] += work * (whole - 1)
    found = [
        Product(
            **dict(zip(("m", "k", "n"), sizes, strict=True)),
            operation=name,
            direction=direction,
            tiles=1 - 1 / padded,
            waves=1 - padded / whole,
            share=lost / spent,
        )
        for sizes, (name, direction, padded, whole, lost) in rows.items()
    ]
    return sorted(found, key=lambda one: -one.share)


def _products(est: Estimate) -> Iterator[tuple[str, str, Gemm]]:
    """Every matrix product of every part of the model, fused attention aside."""
    for one in (one for timed in est.timed.values() for one in timed):
        passes: tuple[tuple[str, PassCount], ...] = (("forward", one.operation.forward), ("backward", one.operation.whole_backward))
        for direction, work in passes:
            if work.fused is None:
                yield from ((one.operation.name, direction, kernel) for kernel in work.kernels if isinstance(kernel, Gemm))


@dataclass(frozen=True, kw_only=True)
class Better:
    """A better size, and what it gains with the plan as it is.

    Parameters
    ----------
    value : int
        The size.
    said : str
        What else changes with it, in words.
    gain : float
        Model FLOPs in a second, relative to now; for a vocabulary, which is only padded, steps in a second.
    even : float
        The part of it that is due to tiles and waves; the rest a larger or smaller model gains or loses anyway.
    step_seconds, parameters : float
        Relative change of both; a larger model takes longer.
    """

    value: int
    said: str
    gain: float
    even: float
    step_seconds: float
    parameters: float


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """One of the model's sizes, and what a rank has of it.

    Parameters
    ----------
    name : {"hidden", "ffn", "head width", "expert ffn", "vocabulary"}
        Which.
    value : int
        The size.
    shard : float
        What is left of it on a rank after tensor parallelism.
    multiple : int
        Largest power of two, up to 64, that divides both: 64 is good, below 8 is bad.
    better : Better, optional
        A better size near it, where the estimate gains by one; the nearest good multiple where it is none itself.
    """

    name: str
    value: int
    shard: float
    multiple: int
    better: Better | None


def dimensions(est: Estimate) -> list[Dimension]:
    """Every size of the model: whether it divides well, before and after tensor parallelism, and a better one near it.

    One size changes at a time, the plan stays, and every candidate is estimated, with tiles and without. Told is the nearest size
    that gains at least nine tenths of what the best candidate does.

    Parameters
    ----------
    est : Estimate
        Of one plan.

    Returns
    -------
    list of Dimension
        Widths of layers, of heads and of the vocabulary, as far as the model has them.
    """
    found, untiled = [], _untiled(est, est.model)
    for name, value, over, candidates in _sizes(est.model, one_plan(est)):
        divides = gcd(value, COARSE) if value % over else gcd(value, value // over, COARSE)
        tried = [_tried(est, untiled, name, size, said, other) for size, said, other in candidates]
        better = _chosen(name, [one for one in tried if one is not None], value, divides)
        found.append(Dimension(name=name, value=value, shard=value / over, multiple=divides, better=better))
    return found


def _chosen(name: str, tried: list[Better], value: int, divides: int) -> Better | None:
    """The nearest of the sizes that gain about as much as the best; a good multiple all the same where the size is none.

    Widths of layers are judged by tiles and waves alone: any larger one makes better use of what surrounds its products.
    """
    gains = {one.value: one.gain if name in ("head width", "vocabulary") else one.even for one in tried}
    most = max(gains.values(), default=0.0)
    if most < WORTH and divides >= COARSE:
        return None
    enough = [one for one in tried if gains[one.value] >= 0.9 * most] if most >= WORTH else tried
    return min(enough, key=lambda one: abs(one.value - value), default=None)


Candidate = tuple[int, str, Model]


def _sizes(model: Model, plan: Plan) -> Iterator[tuple[str, int, int, list[Candidate]]]:
    """Name, size, ranks that share it, and candidates of every dimension."""
    tp, one = plan.tp, model.experts
    yield "hidden", model.hidden, tp, _widths(model, tp)
    if one is None or one.first_dense or one.every > 1:
        yield "ffn", model.ffn, tp, [(f, "", replace(model, ffn=f)) for f in _near(model.ffn, _grain(model.ffn, tp))]
    if one is not None:
        widths = _near(one.ffn, _grain(one.ffn, plan.etp))
        yield "expert ffn", one.ffn, plan.etp, [(f, "", replace(model, experts=replace(one, ffn=f))) for f in widths]
    if model.latent is None:
        yield "head width", model.head_width, 1, _heads(model, tp)
    if model.vocab is not None:
        wide = sorted({-(-model.vocab // (grain * tp)) * grain * tp for grain in (8, COARSE, 2 * COARSE)} - {model.vocab})
        yield "vocabulary", model.vocab, tp, [(v, "padded", replace(model, vocab=v)) for v in wide]


def _grain(value: int, ranks: int) -> int:
    """Step between sizes that leave every rank a multiple of 64, or of 8 where that is too coarse."""
    return COARSE * ranks if COARSE * ranks <= NEAR * value else 8 * ranks


def _near(value: int, step: int) -> list[int]:
    """Multiples of a step around a size, the nearest; those on both sides of it at least."""
    below = value // step * step
    near = {below, below + step} | {
        n for i in range(MOST) for n in (below - i * step, below + i * step) if abs(n / value - 1) <= NEAR
    }
    return sorted((n for n in near if n > 0 and n != value), key=lambda n: abs(n - value))[:MOST]


def _widths(model: Model, tp: int) -> list[Candidate]:
    """Other hidden widths, multiples of 64 on every rank; where heads share the width, as many of them or as wide ones."""
    near = _near(model.hidden, COARSE * tp if COARSE * tp <= NEAR * model.hidden else 8 * tp)
    if model.head_dim is not None or model.latent is not None:
        return [(h, "", replace(model, hidden=h)) for h in near]
    found = []
    for h in near:
        widths = [w for w in range(COARSE, WIDEST + 1, 8) if h % w == 0 and _can_have(model, h // w, tp)]
        if model.heads * 8 <= h and h % (model.heads * 8) == 0:
            found.append((h, f"heads of {h // model.heads}", replace(model, hidden=h)))
        elif widths:
            width = min(widths, key=lambda w: abs(w - model.head_width))
            found.append((h, f"{h // width} heads of {width}", replace(model, hidden=h, heads=h // width)))
    return found


def _can_have(model: Model, heads: int, tp: int) -> bool:
    """Whether so many heads divide over the ranks and the heads of keys and values."""
    return heads > 0 and heads % tp == 0 and heads % (model.kv_heads or 1) == 0


def _heads(model: Model, tp: int) -> list[Candidate]:
    """Heads a multiple of 8 wide and no wider than 128: other numbers of them, or where none divides another hidden width."""
    whole, own, found = model.heads * model.head_width, model.head_width, []
    for width in range(COARSE, WIDEST + 1, 8):
        heads = max(whole // width, 1)
        if heads * width == whole and width != own and _can_have(model, heads, tp):
            found.append((width, f"{heads} heads", replace(model, heads=heads, head_dim=model.head_dim and width)))
    if found or own % 8 == 0:
        return found
    around = [width for width in (own // 8 * 8, own // 8 * 8 + 8) if width]
    if model.head_dim is not None:
        return [(width, "", replace(model, head_dim=width)) for width in around]
    return [(width, f"hidden {model.heads * width:,}", replace(model, hidden=model.heads * width)) for width in around]


def _tried(est: Estimate, untiled: float, name: str, value: int, said: str, model: Model) -> Better | None:
    """What a size gains; None where the plan cannot be kept."""
    try:
        other = estimate(model, est.system, est.plan, est.gbs, est.assumptions)
    except InputError:
        return None
    time = float(other.step_seconds / est.step_seconds)
    flops = 1.0 if name == "vocabulary" else model_flops_per_token(model) / model_flops_per_token(est.model)
    even = _untiled(est, model) / untiled / time - 1 if est.assumptions.tile else 0.0
    more = model.parameters / est.model.parameters - 1
    return Better(value=value, said=said, gain=flops / time - 1, even=even, step_seconds=time - 1, parameters=more)


def _untiled(est: Estimate, model: Model) -> float:
    """Time of a step of a model, were there neither tiles nor waves [s]."""
    smooth = replace(est.assumptions, tile=0.0)
    return float(estimate_columns(model, est.system, one_plan(est), est.gbs, smooth).step_seconds)
