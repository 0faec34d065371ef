"""Names and types of the facts of a launch: those of its plan, its model, its batch, and what is asked of it.

A fact that is not there is one that nothing states. Words of choices are texts here; the classes of plans and
models, which declare what each may be, check them when facts become a plan and a model.
"""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict, cast

from traincast.model import Adapters, Diffusion, Documents, Shape


class PlanFacts(TypedDict, total=False):
    """Knobs and choices of a plan (`traincast.core.knobs.Knobs`), except for its placement."""

    tp: int
    tp2: int
    cp: int
    pp: int
    dp: int
    ep: int
    etp: int
    ulysses: int
    replicas: int
    mbs: int
    vp: int
    recompute_every: int
    offload_every: int
    panels: int
    tp_kind: str
    cp_kind: str
    sp: bool
    tp_overlap: bool
    ep_overlap: bool
    dp_overlap: bool
    attention: str
    recompute: str
    zero: int
    schedule: str
    precision: str
    grad_dtype: str
    master_copy: str
    optimizer_kind: str
    offload: str
    order: str


class ModelFacts(TypedDict, total=False):
    """Fields of a model (`traincast.model.architecture.Architecture`) whose blocks are facts of their own."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    seq: int
    kv_heads: int
    head_dim: int
    causal: bool
    value_dim: int
    streams: int
    layer_kinds: tuple[str, ...]
    shapes: tuple[Shape, ...]
    beside: tuple[tuple[int, int], ...]
    beside_layers: tuple[tuple[int, int], ...]
    mlp: str
    norm: str
    norms: int
    parallel: bool
    qk_norm: str | None
    biases: tuple[str, ...]
    sinks: bool
    inner_norms: bool
    small_weights: int
    channel_mix: bool
    attention_gate: bool
    gate_per_head: bool
    keys_are_values: bool
    reuses_keys: bool
    plain: bool
    shared_layers: bool
    dropout: bool
    inner_dropout: bool
    positions: str
    max_positions: int
    vocab: int | None
    embedding_norm: bool
    final_norm: bool
    token_types: int
    tied: bool
    head: bool
    head_bias: bool
    head_transform: bool
    transform_bias: bool
    small_end_weights: int
    mtp: int
    mtp_kinds: tuple[str, ...]
    patch: int
    classes: int
    diffusion: Diffusion
    adapters: Annotated[
        Adapters, "low-rank adapters on a frozen model, with the linear layers that they stand in"
    ]
    reference: Annotated[bool, "whether a reference model passes each micro-batch forward as well (DPO)"]
    documents: Annotated[Documents, "lengths of the documents that sequences are packed with or padded to"]


# Fields of the blocks of a model, by block and field.
BlockFacts = TypedDict(
    "BlockFacts",
    {
        "latent.kv_rank": int,
        "latent.nope_dim": int,
        "latent.rope_dim": int,
        "latent.value_dim": int,
        "latent.q_rank": int,
        "latent.shared": bool,
        "latent.proj_rank": int,
        "latent.proj_groups": int,
        "indexer.heads": int,
        "indexer.head_dim": int,
        "indexer.topk": int,
        "indexer.block": int,
        "compressed.rate": int,
        "compressed.indexed_rate": int,
        "local.window": int,
        "local.chunked": bool,
        "local.global_every": int,
        "local.layers": tuple[int, ...],
        "local.heads": int,
        "local.kv_heads": int,
        "local.head_dim": int,
        "local.value_dim": int,
        "local.sinks": bool,
        "local.keys_are_values": bool,
        "encoder.seq": int,
        "encoder.layers": int,
        "encoder.heads": int,
        "encoder.ffn": int,
        "encoder.width": int,
        "encoder.frame": int,
        "encoder.max_positions": int,
        "encoder.window": int,
        "encoder.small_weights": int,
        "encoder.qk_norm": bool,
        "own_width.width": int,
        "own_width.head_width": int,
        "own_width.bias": bool,
        "own_width.wide_positions": bool,
        "experts.experts": int,
        "experts.topk": int,
        "experts.ffn": int,
        "experts.width": int,
        "experts.shared_ffn": int,
        "experts.shared_gate": bool,
        "experts.first_dense": int,
        "experts.every": int,
        "experts.router_bias": bool,
        "experts.result_norm": bool,
        "experts.zero": int,
        "experts.groups": int,
        "experts.group_topk": int,
        "experts.capacity": float,
        "experts.imbalance": float,
        "experts.load": tuple[float, ...],
        "experts.routing": str,
        "mamba.width": int,
        "mamba.state": int,
        "mamba.rank": int,
        "mamba.conv": int,
        "mamba.conv_bias": bool,
        "mamba.bias": bool,
        "mamba.norm": bool,
        "mamba.norm_weights": bool,
        "mamba2.heads": int,
        "mamba2.head_dim": int,
        "mamba2.state": int,
        "mamba2.groups": int,
        "mamba2.conv": int,
        "mamba2.conv_bias": bool,
        "mamba2.bias": bool,
        "mamba2.norm": bool,
        "mamba2.chunk": int,
        "gated_delta.key_heads": int,
        "gated_delta.value_heads": int,
        "gated_delta.key_dim": int,
        "gated_delta.value_dim": int,
        "gated_delta.conv": int,
        "gated_delta.chunk": int,
        "gated_delta.channel_decay": bool,
        "gated_delta.gate_rank": int,
        "gated_linear.heads": int,
        "gated_linear.key_dim": int,
        "gated_linear.value_dim": int,
        "gated_linear.gates": int,
        "gated_linear.activated": bool,
        "gated_linear.chunk": int,
        "rg_lru.width": int,
        "rg_lru.blocks": int,
        "rg_lru.conv": int,
        "rwkv.width": int,
        "short_conv.width": int,
        "short_conv.conv": int,
        "short_conv.bias": bool,
    },
    total=False,
)


class LaunchFacts(TypedDict, total=False):
    """Facts that are neither a knob of a plan nor a field of a model."""

    gpus: Annotated[int, "accelerators of the job"]
    gbs: Annotated[int, "global batch of one optimizer step [sequences]"]
    accumulation: int  # micro-batches of a rank in one step
    shards: int  # ranks that state is sharded over
    chunks: Annotated[tuple[int, ...], "layers of every model chunk, in order"]
    placement: Annotated[str, "members of each group in one fast domain"]
    moe_layers: Annotated[tuple[int, ...], "layers that have experts, counted from 1"]
    local_layers: Annotated[tuple[int, ...], "layers with local attention, counted from 1"]
    tower: Annotated[str, "vision tower that reads the images of each sequence"]
    images: Annotated[int, "images of each sequence"]
    frozen_tower: Annotated[bool, "whether a vision tower is not trained"]
    image_size: Annotated[int, "side of an image [pixel]"]
    image_pixels: Annotated[int, "pixels of an image, at most"]
    per_node: int  # accelerators of a node
    stack: str | None  # software stack that predicts the launch
    device: str  # what a process of the job computes on: cpu or gpu
    nvlink_spans_nodes: bool  # whether a fast domain is larger than a node
    grouped_gemm: bool  # whether one kernel multiplies for all experts
    format: str  # name of the format that is written
    # Sequences of a step that its micro-batches make, of all ranks, where nothing states how many these are:
    # at least one; it goes where the accelerators are known.
    filled: int
    # Whether the ranks divide the file's global batch among them, in as many micro-batches as are
    # accumulated.
    divided: bool
    # Whether state is sharded over what ranks the other degrees leave: nothing is, where they leave one.
    left_over: bool


class Facts(PlanFacts, ModelFacts, BlockFacts, LaunchFacts, total=False):
    """All facts of a launch."""


# Of facts that are not a knob or choice of a plan, nor a field of a model.
MEANINGS: Final[Mapping[str, str]] = {
    name: hint.__metadata__[0]
    for name, hint in Facts.__annotations__.items()
    if hasattr(hint, "__metadata__")
}


def as_facts(values: Mapping[str, object]) -> Facts:
    """Return values by name as facts: those of a table's rows and of records, whose names are data.

    `tests/launch/test_facts.py` holds these names and types to the declarations above.
    """
    return cast(Facts, values)
