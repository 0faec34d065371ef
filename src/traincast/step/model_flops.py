"""Model FLOPs per token, forward and backward, under the conventions that published figures follow.

Forward, a token costs 2 FLOP for every weight it is multiplied by and every element of the keys and values it
attends to; backward costs twice as much. Conventions differ in the weights they count and in whether the mask
counts: no figure without its convention.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, NamedTuple

from traincast.core import require_known, require_type
from traincast.model import ENCODER, Diffusion, Kind, Model, Tower, adapter_parameters


@dataclass(frozen=True)
class Convention:
    """A way to count the FLOPs of a model."""

    name: str  # name users give it
    about: str  # what it counts, in one line
    source: str  # who counts so
    forward: Callable[[Model], "Forward"]  # FLOPs of one token's forward pass


RECOMPUTE: Final = ("none", "selective", "full")  # kinds of recomputation that are counted


class Forward(NamedTuple):
    """FLOPs of one token's forward pass."""

    layers: float  # products with weights inside the layers [FLOP]
    attention: float  # queries by keys, scores by values [FLOP]
    ends: float  # before the first and after the last layer [FLOP]
    tower: float = 0.0  # vision tower [FLOP]
    projector: float = 0.0  # its projectors [FLOP]


def forward_flops(model: Model, convention: str = "megatron") -> Forward:
    """Return the FLOPs of one token's forward pass [FLOP].

    Raises `InputError` if the convention is unknown.
    """
    require_type("model", model, "a Model", Model)
    require_known("convention", convention, CONVENTIONS)
    return _forward_flops(model, convention)


@lru_cache(maxsize=256)
def _forward_flops(model: Model, convention: str) -> Forward:
    """Return `forward_flops` of checked arguments."""
    forward = CONVENTIONS[convention].forward(model)
    return forward if model.tower is None else forward._replace(**_tower(model.tower, model.seq))


def _tower(tower: Tower, seq: int) -> dict[str, float]:
    """Return the forward FLOPs of a vision tower and of its projectors for a token of the sequence [FLOP]."""
    model = tower.model
    images = tower.images / seq
    products = sum(n * _layer_weights(model, kind) for kind, n in Counter(model.pattern).items())
    of_row = 2.0 * products + _attention(model, model.pattern, masked=True)
    patches = 2.0 * tower.patches * tower.patch * model.hidden
    matrices = sum(projector.matrices for projector in tower.projectors)
    return {
        "tower": images * (model.seq * of_row + patches),
        "projector": images * 2.0 * tower.tokens * matrices,
    }


def model_flops_per_token(model: Model, convention: str = "megatron") -> float:
    """Return the model FLOPs per token, forward and backward, without recomputation.

    Where adapters are trained, what is frozen counts 4 for every weight instead of 6.

    Parameters
    ----------
    model : Model
        The transformer.
    convention : {"megatron", "megatron-full", "palm", "6n"}
        What is counted; see `CONVENTIONS`.

    Returns
    -------
    float
        FLOPs of one token [FLOP].

    Raises
    ------
    InputError
        If the convention is unknown.

    Examples
    --------
    >>> gpt = Model(name="GPT-175B", layers=96, hidden=12288, heads=96, ffn=49152, seq=2048, vocab=51200)
    >>> L, h, s, V = 96, 12288, 2048, 51200
    >>> published = 72 * L * h**2 * (1 + s / (6 * h) + V / (12 * h * L))
    >>> round(model_flops_per_token(gpt, "megatron-full") / published, 12)
    1.0
    """
    return _both_passes(model, forward_flops(model, convention))


def _both_passes(model: Model, forward: Forward) -> float:
    """Return the FLOPs of a token's forward and backward pass [FLOP].

    Backward makes the gradients of input and weights, each as costly as forward; that of frozen weights is
    left out: 4 N, and 6 for every weight of the adapters. What is frozen before all that is trained has no
    backward pass. A reference model adds its forward pass.
    """
    text = forward.layers + forward.attention + forward.ends
    reference = text + forward.tower + forward.projector if model.reference else 0.0
    if model.adapters is None:
        passes = 1 if model.tower is not None and model.tower.frozen else 3
        return 3 * (text + forward.projector) + passes * forward.tower + reference
    products = forward.layers + forward.ends
    frozen = 2 * products + forward.tower + forward.projector
    return frozen + 3 * forward.attention + 6.0 * adapter_parameters(model, active=True) + reference


def hardware_flops_per_token(model: Model, recompute: str = "none", convention: str = "megatron") -> float:
    """Return the FLOPs a run executes per token: those of the model, and the forward passes it recomputes.

    Full recomputation executes the layers once more, but not the head: 96BLsh²(1 + s/6h + V/16Lh) for a GPT
    (arXiv 2104.04473, equation 3). Selective recomputation executes attention once more (arXiv 2205.05198,
    section 5). No convention counts what a fused attention kernel recomputes internally.

    `recompute` is "none", "selective" or "full"; all else is as for `model_flops_per_token`.
    """
    require_known("recomputation", recompute, RECOMPUTE)
    forward = forward_flops(model, convention)
    inside = forward.layers + forward.attention + 2.0 * adapter_parameters(model, active=True)
    if model.tower is not None and not (model.tower.frozen or model.adapters):
        inside += forward.tower
    recomputed = {"none": 0.0, "selective": forward.attention, "full": inside}
    return _both_passes(model, forward) + recomputed[recompute]


def _attention(model: Model, layers: tuple[Kind, ...], masked: bool) -> float:
    """Return the forward FLOPs of attention for one token: QK and AV for each pair that is met, and scans.

    Heads are those of the model, however latent vectors are read; an indexer's scores count as well.
    """
    counted = Counter(layers)
    flops = sum(n * _scores(model.for_kind(kind), kind, masked) for kind, n in counted.items() if kind.scores)
    scans = sum(n * model.scan_flops(kind) for kind, n in counted.items())
    index = sum(n * index_flops(model, kind, masked) for kind, n in counted.items())
    return flops / model.seq + index + scans


def _scores(model: Model, kind: Kind, masked: bool) -> float:
    """Return the forward FLOPs of attention of a layer for one sequence."""
    pairs = model.attention_pairs(kind, masked) if kind.attends else 0.0
    if kind.crosses and model.encoder is not None:
        pairs += model.seq * model.encoder.seq
    return 2 * model.heads * (model.head_width + model.value_width) * pairs


def index_flops(model: Model, kind: Kind, masked: bool) -> float:
    """Return the forward FLOPs of an indexer's scores of all earlier tokens, for one token."""
    config = model.indexer
    if config is None or kind.mixer not in ("indexed", "compressed-indexed"):
        return 0.0
    pairs = model.attended_pairs(local=False) if masked else model.seq**2
    if kind.compressed:
        pairs = model.compressed_pairs(kind, masked, all_keys=True)
    return 2 * config.heads * config.head_dim * pairs / model.seq


def _layer_weights(model: Model, kind: Kind) -> float:
    """Return the weights of a layer's products that a token meets, without routers as in Megatron-LM."""
    own = model.for_kind(kind)
    share = model.tokens_share(kind)
    mixer = float(own.mixer_matrices(kind) + sum(i * o for i, o in model.beside))
    experts = own.experts
    mixer += (2 if kind.is_pair else 1) * model.stream_matrices
    if kind.crosses:
        mixer += cross_weights(model)
    if model.diffusion is not None:
        mixer += _conditioned_weights(model, model.diffusion, kind)
    if not kind.moe or experts is None:
        return share * (mixer + (own.mlp_matrices(own.ffn) if kind.feed_forward else 0))
    return share * (
        mixer
        + own.latent_matrices
        + experts.routed * own.expert_matrices(experts)
        + own.mlp_matrices(experts.shared_ffn)
    )


def _conditioned_weights(model: Model, diffusion: Diffusion, kind: Kind) -> float:
    """Return the weights of products of a layer for diffusion that a token meets besides, of its share."""
    e = model.hidden
    weights = 0.0
    if not diffusion.shared:  # one row for each sample
        weights += diffusion.vectors(kind) * e**2 / model.seq
    if kind.mixer == "joint-last":
        unused = model.heads * model.value_width * e + model.mlp_matrices(model.ffn)
        weights -= unused * diffusion.text / model.seq
    return weights


def cross_weights(model: Model) -> float:
    """Return the weights of the projections of attention to the encoder, per token of the decoder."""
    queries, keys_values = model.cross_matrices
    return queries + keys_values * (0 if model.encoder is None else model.encoder.seq / model.seq)


def _end_weights(model: Model) -> float:
    """Return the weights of products outside the layers, per token: head, image patches, frames of sound."""
    e = model.hidden
    own = model.own_width
    width = e if own is None else own.head_width or own.width
    head = 0 if model.vocab is None or not model.head else model.vocab * width * (1 + model.mtp)
    head += e * width if head and (model.head_transform or own is not None) else 0
    head += 0 if own is None else e * own.width
    image = 0.0 if model.patch is None else model.patch * e + (model.classes or 0) * e / model.seq
    first, second = model.frame_matrices
    frames = 0.0 if not model.encodes else (2 * first + second) * model.tokens_share(ENCODER)
    beside = sum(i * o for i, o in model.beside_layers)
    streams = model.streams**2 * e if model.streams > 1 else 0
    return head + image + frames + beside + streams + _diffusion_weights(model)


def _diffusion_weights(model: Model) -> float:
    """Return the weights of products outside of the layers of a diffusion model, for a token."""
    if model.diffusion is None:
        return 0.0
    text = model.diffusion.text or (0 if model.encoder is None else model.encoder.seq)
    rows = {"image": model.seq - model.diffusion.text, "text": text, "sample": 1}
    ends = model.diffusion_ends.items()
    return sum(rows[name] * i * o for name, layers in ends for i, o in layers) / model.seq


def _of_products(model: Model, masked: bool) -> Forward:
    """Count the products that a token meets, head included, and attention, `masked` or in full."""
    passed = model.pattern + model.mtp_pattern * model.mtp
    weights = sum(n * _layer_weights(model, kind) for kind, n in Counter(passed).items())
    weights += model.mtp * 2 * model.hidden**2  # joins state and embedding
    return Forward(2.0 * weights, _attention(model, passed, masked), 2.0 * _end_weights(model))


def _of_parameters(model: Model) -> Forward:
    """Count all parameters that a token meets, and attention in full; no published N has mtp modules."""
    attention = _attention(model, model.pattern, masked=False)
    return Forward(_of_layer_parameters(model).layers, attention, 2.0 * model.end_parameters)


def _of_layer_parameters(model: Model) -> Forward:
    """Count the parameters of the layers that a token meets."""
    counted = Counter(model.pattern).items()
    layers = sum(
        n * model.tokens_share(kind) * model.kind_parameters(kind, active=True) for kind, n in counted
    )
    return Forward(2.0 * layers, 0.0, 0.0)


CONVENTIONS: Final[Mapping[str, Convention]] = {
    convention.name: convention
    for convention in (
        Convention(
            "megatron",
            "6 × the weights of matrix products a token meets, head included, + attention after the mask",
            "Megatron-LM, num_floating_point_operations, since 2025",
            partial(_of_products, masked=True),
        ),
        Convention(
            "megatron-full",
            "the same with attention in full; 72BLsh²(1 + s/6h + V/12hL) for a GPT",
            "arXiv 2104.04473, appendix; arXiv 2205.05198, appendix A",
            partial(_of_products, masked=False),
        ),
        Convention(
            "palm",
            "6 × all parameters a token can meet, embedding included, + 12LHQT: attention in full",
            "arXiv 2204.02311, appendix B",
            _of_parameters,
        ),
        Convention(
            "6n",
            "6 × the parameters of the layers a token meets, without embedding and head",
            "arXiv 2001.08361, section 2.1",
            _of_layer_parameters,
        ),
    )
}
