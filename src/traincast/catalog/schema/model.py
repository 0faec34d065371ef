"""Schema of a model file."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import StrictBool, ValidationInfo, field_validator

from traincast.catalog.schema.fields import (
    Amount,
    Count,
    Factor,
    File,
    Number,
    Part,
    Sequences,
    Size,
    Text,
    Tokens,
    Whole,
)
from traincast.core.adapters import Adapters, Base
from traincast.core.model import Model, Tower
from traincast.core.model_blocks import (
    Biased,
    Diffusion,
    Encoder,
    Experts,
    GatedDelta,
    GatedLinear,
    Indexer,
    Latent,
    Local,
    Mamba,
    Mamba2,
    Mlp,
    Norm,
    OwnWidth,
    Positions,
    Projector,
    QkNorm,
    RgLru,
    Rwkv,
    Shape,
    ShortConv,
)


class ModelPart(Part):
    """Mapping inside a model file; `becomes` makes what it is converted to."""

    becomes: ClassVar[Callable[..., Any]]


class LatentPart(ModelPart):
    """Multi-head latent attention."""

    becomes = Latent

    kv_rank: Count
    q_rank: Count | None = None
    nope_dim: Count
    rope_dim: Count
    value_dim: Count


class IndexerPart(ModelPart):
    """Lightning indexer, which selects keys."""

    becomes = Indexer

    heads: Count
    head_dim: Count
    topk: Count
    block: Count | None = None


class LocalPart(ModelPart):
    """Sliding-window or chunked attention."""

    becomes = Local

    window: Tokens
    chunked: StrictBool | None = None
    global_every: Count | None = None
    layers: tuple[Count, ...] | None = None
    heads: Count | None = None
    kv_heads: Count | None = None
    head_dim: Count | None = None
    value_dim: Count | None = None
    sinks: StrictBool | None = None
    keys_are_values: StrictBool | None = None

    @field_validator("layers")
    @classmethod
    def _one_pattern(cls, layers: tuple[Count, ...] | None, info: ValidationInfo) -> tuple[Count, ...] | None:
        """Refuse `layers` together with `global_every`."""
        if layers and info.data.get("global_every"):
            raise ValueError("global_every is given as well; keep one of the two")
        return layers


class ShapePart(ModelPart):
    """Figures in which some layers differ from the others."""

    becomes = Shape

    name: Text
    heads: Count | None = None
    kv_heads: Count | None = None
    head_dim: Count | None = None
    ffn: Count | None = None
    reuses_keys: StrictBool | None = None


class EncoderPart(ModelPart):
    """Encoder to whose result the other layers attend."""

    becomes = Encoder

    seq: Tokens
    layers: Whole | None = None
    heads: Count | None = None
    ffn: Count | None = None
    width: Count | None = None
    frame: Count | None = None
    max_positions: Tokens | None = None


class OwnWidthPart(ModelPart):
    """Embedding and head of another width than the layers."""

    becomes = OwnWidth

    width: Count
    head_width: Count | None = None
    bias: StrictBool | None = None
    wide_positions: StrictBool | None = None


class ExpertsPart(ModelPart):
    """Mixture of experts."""

    becomes = Experts

    experts: Count
    topk: Count
    ffn: Count
    shared_ffn: Whole | None = None
    shared_gate: StrictBool | None = None
    first_dense: Whole | None = None
    every: Count | None = None
    router_bias: StrictBool | None = None
    result_norm: StrictBool | None = None
    zero: Whole | None = None
    groups: Count | None = None
    group_topk: Count | None = None
    capacity: Amount | None = None
    imbalance: Factor | None = None
    load: tuple[Number, ...] | None = None


class MambaPart(ModelPart):
    """Mamba-1 in place of attention."""

    becomes = Mamba

    width: Count
    state: Count | None = None
    rank: Count
    conv: Count | None = None
    conv_bias: StrictBool | None = None
    bias: StrictBool | None = None
    norm: StrictBool | None = None
    norm_weights: StrictBool | None = None


class Mamba2Part(ModelPart):
    """Mamba-2 in place of attention."""

    becomes = Mamba2

    heads: Count
    head_dim: Count
    state: Count
    groups: Count | None = None
    conv: Count | None = None
    conv_bias: StrictBool | None = None
    bias: StrictBool | None = None
    norm: StrictBool | None = None
    chunk: Tokens | None = None


class GatedDeltaPart(ModelPart):
    """Gated delta net in place of attention."""

    becomes = GatedDelta

    key_heads: Count
    value_heads: Count
    key_dim: Count
    value_dim: Count
    conv: Count | None = None
    chunk: Tokens | None = None
    channel_decay: StrictBool | None = None
    gate_rank: Count | None = None


class GatedLinearPart(ModelPart):
    """Linear attention with a decay for each head in place of attention."""

    becomes = GatedLinear

    heads: Count
    key_dim: Count
    value_dim: Count
    gates: Whole | None = None
    activated: StrictBool | None = None
    chunk: Tokens | None = None


class RgLruPart(ModelPart):
    """Real-gated linear recurrent unit in place of attention."""

    becomes = RgLru

    width: Count
    blocks: Count
    conv: Count | None = None


class RwkvPart(ModelPart):
    """Time mixing of RWKV-4 in place of attention."""

    becomes = Rwkv

    width: Count


class ShortConvPart(ModelPart):
    """Gated short convolution in place of attention."""

    becomes = ShortConv

    width: Count
    conv: Count | None = None
    bias: StrictBool | None = None


class DiffusionPart(ModelPart):
    """What a transformer for diffusion has besides."""

    becomes = Diffusion

    inputs: Count
    outputs: Count
    pixels: Count
    frames: Count | None = None
    text: Whole | None = None
    text_width: Whole | None = None
    text_layers: Count | None = None
    single: StrictBool | None = None
    shared: StrictBool | None = None
    final: StrictBool | None = None
    conditions: tuple[Count, ...] | None = None


class TowerLayersPart(ModelPart):
    """Layers of a vision tower; its sequences are images."""

    becomes = partial(Model, name="vision tower", seq=1, dropout=False)

    layers: Count
    hidden: Count
    heads: Count
    head_dim: Count | None = None
    local: LocalPart | None = None
    ffn: Count
    mlp: Mlp | None = None
    norm: Norm | None = None
    norms: Literal[2, 4] | None = None
    qk_norm: QkNorm | None = None
    biases: tuple[Biased, ...] | None = None
    positions: Literal["none", "rotary"] | None = None


class ProjectorPart(ModelPart):
    """Linear layers between a tower and the language model."""

    becomes = Projector

    widths: tuple[Count, ...]
    biased: StrictBool | None = None
    gated: StrictBool | None = None
    norm: Whole | None = None


class TowerPart(ModelPart):
    """Vision tower."""

    becomes = Tower

    layers: TowerLayersPart
    patch: Count
    patch_size: Count
    size: Count
    merge: Count | None = None
    classes: Whole | None = None
    patch_bias: StrictBool | None = None
    small_weights: Whole | None = None
    projectors: tuple[ProjectorPart, ...] | None = None
    images: Count | None = None
    resizable: StrictBool | None = None
    frozen: StrictBool | None = None


class AdaptersPart(ModelPart):
    """Low-rank adapters, which alone are trained."""

    becomes = Adapters

    rank: Count | None = None
    targets: tuple[Text, ...] | None = None
    base: Base | None = None
    dropout: StrictBool | None = None


class ModelFile(File):
    """Model file. Its keys are fields of `Model`; those left out or null take the default there."""

    aliases: tuple[Text, ...] = ()
    layers: Count
    hidden: Count
    heads: Size
    kv_heads: Count | None = None
    head_dim: Count | None = None
    value_dim: Count | None = None
    latent: LatentPart | None = None
    indexer: IndexerPart | None = None
    local: LocalPart | None = None
    mamba: MambaPart | None = None
    encoder: EncoderPart | None = None
    mamba2: Mamba2Part | None = None
    gated_delta: GatedDeltaPart | None = None
    gated_linear: GatedLinearPart | None = None
    rg_lru: RgLruPart | None = None
    rwkv: RwkvPart | None = None
    short_conv: ShortConvPart | None = None
    layer_kinds: tuple[Text, ...] | None = None
    shapes: tuple[ShapePart, ...] | None = None
    beside: tuple[tuple[Count, Count], ...] | None = None
    beside_layers: tuple[tuple[Count, Count], ...] | None = None
    ffn: Size
    experts: ExpertsPart | None = None
    vocab: Count | None = None
    mtp: Whole | None = None
    patch: Count | None = None
    classes: Count | None = None
    seq: Tokens
    max_positions: Tokens | None = None
    causal: StrictBool | None = None
    mlp: Mlp | None = None
    norm: Norm | None = None
    norms: Literal[1, 2, 4] | None = None
    parallel: StrictBool | None = None
    qk_norm: QkNorm | None = None
    biases: tuple[Biased, ...] | None = None
    sinks: StrictBool | None = None
    channel_mix: StrictBool | None = None
    attention_gate: StrictBool | None = None
    gate_per_head: StrictBool | None = None
    keys_are_values: StrictBool | None = None
    shared_layers: StrictBool | None = None
    inner_norms: StrictBool | None = None
    small_weights: Whole | None = None
    dropout: StrictBool | None = None
    inner_dropout: StrictBool | None = None
    positions: Positions | None = None
    own_width: OwnWidthPart | None = None
    embedding_norm: StrictBool | None = None
    final_norm: StrictBool | None = None
    token_types: Whole | None = None
    tied: StrictBool | None = None
    head: StrictBool | None = None
    head_bias: StrictBool | None = None
    head_transform: StrictBool | None = None
    transform_bias: StrictBool | None = None
    small_end_weights: Whole | None = None
    diffusion: DiffusionPart | None = None
    tower: TowerPart | None = None
    global_batch: Sequences | None = None
    adapters: AdaptersPart | None = None
    left_out: Text | None = None
    training_sequences: Sequences | None = None
    training_tokens: Tokens | None = None

    @field_validator("training_tokens")
    @classmethod
    def _one_length(cls, tokens: Tokens | None, info: ValidationInfo) -> Tokens | None:
        """Refuse `training_tokens` together with `training_sequences`."""
        if tokens and info.data.get("training_sequences"):
            raise ValueError("training_sequences is given as well; keep one of the two")
        return tokens
