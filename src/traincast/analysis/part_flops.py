"""FLOPs and parameters of a model by part, and arithmetic intensity of its matmuls, from its operations.

One rank holds the whole model and computes one sequence; every figure is a sum over its operations. Products
are counted as the conventions of `traincast.step.model_flops` do, with 2 FLOP for a multiplication and an
addition, and backward as twice the forward pass.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Final, NamedTuple

from traincast.catalog import calibrated, load_model
from traincast.core import KEY, Column, Doc, Plans, Result
from traincast.model import PATCHES, PROJECTOR, Kind, Model, Tower
from traincast.operations import (
    Operation,
    Sharding,
    attention_operations,
    cross_attention,
    experts,
    head,
    layer,
    layers_outside_blocks,
    linear_attention_operations,
    mlp_operations,
    mtp,
    parts,
    sharding_of,
    total,
)
from traincast.step import CONVENTIONS, index_flops

PROJECTIONS: Final = "attention projections"
SCORES: Final = "attention scores"
LINEAR: Final = "linear attention"
SCANS: Final = "scans of linear attention"
MLPS: Final = ("MLP", "experts", "shared experts")
MTP: Final = "multi-token prediction"
LATENT: Final = "projections of experts"
BESIDE: Final = "beside the blocks"
STREAMS: Final = "residual streams"
ROUTER: Final = "router"  # whose products Megatron-LM does not count
TEXT: Final = "text and modulation"  # of a diffusion model, besides what each token meets
TOWER: Final = (PATCHES, "vision tower", PROJECTOR)
OUTSIDE: Final = ("embedding", "decoder embedding", "head", MTP)  # of the layers


class PartFlops(Result):
    """A part of a model, over all its layers."""

    part: Annotated[str, Doc("name of the part")]
    parameters: Annotated[float, Doc("weights")]
    active_parameters: Annotated[float, Doc("weights that a token meets")]
    forward_flops: Annotated[
        Mapping[str, float], Doc("forward pass of a token, by convention; backward is twice it", "FLOP")
    ]


class ConventionFlops(Result):
    """FLOPs of the whole model as a convention counts them."""

    convention: Annotated[str, Doc("name of the convention")]
    about: Annotated[str, Doc("what it counts")]
    seq: int
    forward: Annotated[float, Doc("forward pass of a token", "FLOP")]
    mlp_to_attention: Annotated[float, Doc("FLOPs of MLPs and experts over those of attention")]

    @property
    def backward(self) -> Annotated[float, KEY]:
        """Backward pass of a token [FLOP]."""
        return 2 * self.forward

    @property
    def token(self) -> Annotated[float, KEY]:
        """Both passes of a token [FLOP]."""
        return 3 * self.forward

    @property
    def sequence(self) -> Annotated[float, KEY]:
        """Both passes of a sequence [FLOP]."""
        return self.token * self.seq


class Matmul(Result):
    """A product of a layer: arithmetic and memory traffic of one sequence on one accelerator."""

    layer: Annotated[str, Doc("kind of layer")]
    operation: Annotated[str, Doc("name of the operation")]
    forward_intensity: Annotated[float, Doc("arithmetic intensity of the forward pass", "FLOP/byte")]
    backward_intensity: Annotated[float, Doc("arithmetic intensity of the backward pass", "FLOP/byte")]


class FlopsByPart(Result):
    """FLOPs, parameters and arithmetic intensity of a model."""

    model: Model
    parts: Annotated[list[PartFlops], Doc("every part of the model")]
    totals: Annotated[list[ConventionFlops], Doc("the whole model, by convention")]
    matmuls: Annotated[list[Matmul], Doc("products of each kind of layer, one sequence on one accelerator")]

    @property
    def name(self) -> Annotated[str, KEY]:
        """Name of the model."""
        return self.model.name

    @property
    def left_out(self) -> Annotated[str | None, KEY]:
        """Parts of the model that are not counted; null for none."""
        return self.model.left_out or None

    @property
    def seq(self) -> Annotated[int, KEY]:
        """Length of a sequence [token]."""
        return self.model.seq

    @property
    def parameters(self) -> Annotated[int, KEY]:
        """Weights, multi-token prediction left out."""
        return self.model.parameters

    @property
    def active_parameters(self) -> Annotated[int, KEY]:
        """Weights that a token meets, multi-token prediction left out."""
        return self.model.active_parameters


class _Count(NamedTuple):
    """Weights of a part, those that a token meets, and the products of a sequence's forward pass [FLOP]."""

    weights: Column = 0.0
    active: Column = 0.0
    products: Column = 0.0
    met: Column = 0.0  # weights that a token of the model's sequence meets, times its tokens of the encoder

    def plus(self, other: "_Count", times: int = 1) -> "_Count":
        """Return the sum with the other count, taken several times."""
        return _Count(*(mine + times * theirs for mine, theirs in zip(self, other, strict=True)))


def flops_by_part(model: str | Model, seq: int | None = None) -> FlopsByPart:
    """Count FLOPs and parameters of a model by part.

    `model` may be a name of the catalogue or a file; `seq` replaces its sequence length [tokens].
    """
    if isinstance(model, str):
        read = load_model(model, seq=seq)
    else:
        read = model if seq is None else replace(model, seq=seq)
        read = read if read.adapters is None else replace(read, adapters=None)  # of the model alone
    masked = _parts(read, skipped=1.0)
    full = _parts(read, skipped=0.0)
    rows = [_part(name, masked[name], full[name], read.seq) for name in masked]
    totals = []
    for name, convention in CONVENTIONS.items():
        by_part = {row.part: row.forward_flops[name] for row in rows}
        mixing = sum(by_part.get(part, 0.0) for part in (PROJECTIONS, SCORES, LINEAR, SCANS))
        ratio = sum(by_part.get(part, 0.0) for part in MLPS) / mixing
        totals.append(ConventionFlops(name, convention.about, read.seq, sum(by_part.values()), ratio))
    return FlopsByPart(read, rows, totals, list(_matmuls(read)))


def _part(name: str, masked: _Count, full: _Count, seq: int) -> PartFlops:
    """Return a part as every convention counts it; `full` is without a mask."""
    published = 0.0 if name == MTP else 2.0 * full.met  # multi-token prediction is in no published N
    scores = full.products if name in (SCORES, SCANS) else 0.0
    forward = {
        "megatron": 0.0 if name == ROUTER else masked.products / seq,
        "megatron-full": 0.0 if name == ROUTER else full.products / seq,
        "palm": published + scores / seq,
        "6n": 0.0 if name in OUTSIDE else published,
    }
    if name in TOWER:  # not every token meets it: its products, whatever the convention; masks are windows
        forward = dict.fromkeys(forward, masked.products / seq)
    return PartFlops(name, float(full.weights), float(full.active), {k: float(v) for k, v in forward.items()})


def _parts(model: Model, skipped: float) -> dict[str, _Count]:
    """Count every part of a model; attention leaves out a share `skipped` of the scores that are masked."""
    assumed = calibrated().with_values({"memory.vocab_multiple": 1, "attention.causal_skipping": skipped})
    sharding = sharding_of(model, Plans(), assumed)
    result: dict[str, _Count] = {}
    for kind, n in Counter(model.pattern).items():
        share = model.tokens_share(kind)
        for part, count in _layer_parts(sharding, kind).items():
            met = count._replace(met=share * count.active)
            result[part] = result.get(part, _Count()).plus(met, n)
    operations = parts(model, Plans(), assumed)
    for part in ("embedding", "decoder embedding", "head"):
        if part in operations:
            result[part] = _count(operations[part], model)
    if model.tower is not None:
        result |= _tower_parts(model, model.tower, sharding)
    if model.mtp:
        ends = (*mtp(sharding), *head(sharding, shared=True))
        module = _count(ends, model)
        for kind in model.mtp_pattern:
            for part, count in _layer_parts(sharding, kind).items():
                module = module.plus(count._replace(products=0.0) if part == ROUTER else count)
        result[MTP] = _Count().plus(module, model.mtp)
    return result


def _tower_parts(model: Model, tower: Tower, sharding: Sharding) -> dict[str, _Count]:
    """Count the parts of a vision tower, trained whole, over the images of a sequence."""
    trained = replace(model, tower=replace(tower, frozen=False))
    operations = parts(trained, sharding.plan, sharding.assumptions)
    result = {PATCHES: _count(operations[PATCHES], model), "vision tower": _Count()}
    for name, n in tower.parts.items():
        if name not in (PATCHES, PROJECTOR):
            result["vision tower"] = result["vision tower"].plus(_count(operations[name], model), n)
    return result | {PROJECTOR: _count(operations.get(PROJECTOR, ()), model)}


def _layer_parts(sharding: Sharding, kind: Kind) -> dict[str, _Count]:
    whole = _count(layer(sharding.model, sharding.plan, sharding.assumptions, kind), sharding.model)
    model = sharding.model.for_kind(kind)
    result = dict[str, _Count]()
    sharding = replace(sharding, model=model)
    linear = model.linear_attention(kind)
    config = model.experts if kind.moe else None
    if linear is not None:
        mixed = _count(linear_attention_operations(sharding, kind.linear, linear), model)
        attention_matrices = model.attention_matrices if kind.attends else 0
        matrices = model.mixer_matrices(kind) - attention_matrices
        result[LINEAR] = mixed._replace(products=2 * matrices * model.seq)
        result[SCANS] = _Count(products=model.scan_flops(kind) * model.seq)
    if kind.scores:
        core = list(attention_operations(sharding, kind)) if kind.attends else []
        if kind.crosses and model.encoder is not None:
            core += cross_attention(sharding, model.encoder)
        result[PROJECTIONS] = _count((op for op in core if op.weights), model)
        result[SCORES] = _count((op for op in core if not op.weights), model)
        if kind.indexed or kind.compressed:  # not the wider products of selected latent vectors
            is_masked = sharding.assumptions.attention.causal_skipping > 0
            per_pair = 2 * model.heads * (model.head_width + model.value_width)
            scores = per_pair * model.attention_pairs(kind, is_masked)
            index = index_flops(model, kind, is_masked) * model.seq
            result[SCORES] = _Count(products=scores + index)
    if config is None and kind.feed_forward:
        result["MLP"] = _count(mlp_operations(sharding, model.ffn), model)
    elif config is not None:
        inner = list(experts(sharding, config))
        routed = len(list(experts(sharding, replace(config, shared_ffn=0))))  # shared experts come last
        around = [op for op in inner[:routed] if not op.experts]
        if config.width:
            result[LATENT] = _count((op for op in around if "latent" in op.name), model)
        result[ROUTER] = _count((op for op in around if "latent" not in op.name), model)
        result["experts"] = _count((op for op in inner[:routed] if op.experts), model)
        if config.shared_ffn:  # Megatron-LM counts their gate as little as the router
            gates = [op for op in inner[routed:] if op.name == "shared.gate"]
            result[ROUTER] = result[ROUTER].plus(_count(gates, model))
            result["shared experts"] = _count((op for op in inner[routed:] if op not in gates), model)
    if model.beside:
        result[BESIDE] = _count(layers_outside_blocks(sharding, "layer", model.beside), model)
    if model.streams > 1:
        weights = float((2 if kind.is_pair else 1) * model.stream_matrices)
        result[STREAMS] = _Count(weights, weights, 2 * weights * model.seq, weights)
    for count in result.values():
        whole = whole.plus(count, -1)
    if model.diffusion is not None:
        return result | {TEXT: whole._replace(active=0.0)}
    return result | {"norms": whole._replace(products=0.0)}


def _count(operations: Iterable[Operation], model: Model) -> _Count:
    """Count operations of one sequence: weights, those that a token meets, and products."""
    share = 1.0 if model.experts is None else model.experts.routed / model.experts.experts
    result = _Count()
    for op in operations:
        products = total(2 * gemm.batch * gemm.m * gemm.k * gemm.n for gemm in op.forward.gemms)
        active = op.weights * (share if op.experts else 1.0)
        result = result.plus(_Count(op.weights, active, products, active))
    return result


def _matmuls(model: Model) -> Iterator[Matmul]:
    for kind in model.kinds:
        for op in layer(model, Plans(), calibrated(), kind):
            if op.forward.gemms:
                intensities = (
                    total(gemm.flops for gemm in work.gemms) / work.nbytes if work.nbytes else 0.0
                    for work in op.passes.values()  # an indexer's scores have no backward pass
                )
                yield Matmul(str(kind), op.name, *map(float, intensities))
