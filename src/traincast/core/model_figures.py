"""Figures of a model: shapes, checks, the layers they make, and the pairs of tokens that attend."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from math import gcd
from reprlib import repr as shortened
from typing import Any, Final, Literal, Self, get_args, get_type_hints

from traincast.core.adapters import Adapters
from traincast.core.documents import Documents
from traincast.core.errors import WHOLE, is_whole, raise_problems
from traincast.core.model_blocks import (
    DECODER,
    ENCODER,
    GATED,
    KINDS,
    LINEAR,
    NORM_VECTORS,
    Biased,
    Compressed,
    Diffusion,
    Encoder,
    Experts,
    GatedDelta,
    GatedLinear,
    Indexer,
    Kind,
    Latent,
    LinearAttention,
    Local,
    Mamba,
    Mamba2,
    Mlp,
    Norm,
    OwnWidth,
    Positions,
    QkNorm,
    RgLru,
    Rwkv,
    Shape,
    ShortConv,
    kind_of,
)
from traincast.core.quantities import NO_NUMBERS

WORDS: Final[Mapping[str, tuple[str | None, ...]]] = {
    "mlp": get_args(Mlp),
    "norm": get_args(Norm),
    "positions": get_args(Positions),
    "qk_norm": (*get_args(QkNorm), None),
}
PARTS: Final[Mapping[str, type]] = {
    "latent": Latent,
    "indexer": Indexer,
    "compressed": Compressed,
    "local": Local,
    "encoder": Encoder,
    "own_width": OwnWidth,
    "experts": Experts,
    **LINEAR,
}
# Numbers that may be 0, and the layers that need them.
UNUSED: Final[Mapping[str, Callable[[Kind], bool]]] = {
    "heads": lambda kind: kind.scores,
    "ffn": lambda kind: kind.feed_forward == "dense",
}
# Fields of parts that say in which layers they are, with their defaults.
SELECTS_LAYERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "local": {"global_every": 0, "layers": ()},
    "experts": {"first_dense": 0, "every": 1},
}
LISTED: Final = ("layers", "mtp")  # numbers of what is listed one by one
MAX_LAYERS: Final = 10_000  # ten times the deepest that was trained (DeepNet, arXiv 2203.00555)
MAX_SIZE: Final = 1 << 30  # of any other number
REQUIRED: Final = ("layers", "hidden", "heads", "ffn", "seq")


@dataclass(frozen=True, kw_only=True)
class ModelFigures:
    """Figures of a model. The defaults are the GPT of arXiv 2410.00273, without embeddings and causal mask.

    Parameters
    ----------
    name : str
        Name of the model.
    layers : int
        Number of transformer layers, L.
    hidden : int
        Embedding width, e.
    heads : int
        Attention heads, h; 0 if no layer has attention.
    ffn : int
        Width of the MLP's inner layer, f; 0 if no layer has an MLP.
    seq : int
        Sequence length, l [tokens].
    kv_heads : int, optional
        Heads of keys and values (grouped-query attention; 1 is multi-query); the number of `heads` if left
        out.
    head_dim : int, optional
        Width of a head; hidden / heads if left out.
    value_dim : int, optional
        Width of the value of a head; `head_dim` if left out.
    causal : bool
        Whether attention is causal: a token attends only to itself and earlier ones.
    latent : Latent, optional
        Multi-head latent attention.
    indexer : Indexer, optional
        Lightning indexer of the layers that `layer_kinds` calls indexed, whose attention is latent; those it
        calls index-shared meet the keys of the indexed layer before.
    compressed : Compressed, optional
        Compressed keys of the layers that `layer_kinds` calls compressed, and of those it calls
        compressed-indexed, where the indexer selects among them.
    streams : int
        Copies of the residual stream; each block reads a mix of them, and adds to each (manifold-constrained
        hyper-connections, arXiv 2512.24880).
    local : Local, optional
        Sliding-window or chunked attention.
    mamba : Mamba, optional
        Mamba-1 in the layers that `layer_kinds` names.
    encoder : Encoder, optional
        Encoder, whose layers are the first of `layers`; the others attend to its result as well.
    mamba2 : Mamba2, optional
        Mamba-2 in the layers that `layer_kinds` names.
    gated_delta : GatedDelta, optional
        Gated delta net in the layers that `layer_kinds` names.
    gated_linear : GatedLinear, optional
        Linear attention with decays, such as lightning attention, in the layers that `layer_kinds` names.
    rg_lru : RgLru, optional
        Real-gated linear recurrent unit in the layers that `layer_kinds` names.
    rwkv : Rwkv, optional
        Time mixing of RWKV-4 in the layers that `layer_kinds` names; as wide as the model.
    short_conv : ShortConv, optional
        Gated short convolution in the layers that `layer_kinds` names.
    layer_kinds : tuple of str
        Kind of every layer, of `KINDS`, or of every layer of a stretch that is repeated; if left out, `local`
        and `experts` say which layers they are in. ``@name`` after a kind names one of `shapes`.
    shapes : tuple of Shape
        Figures in which some layers differ from the others.
    beside : tuple of pair of int
        Input and output width of linear layers that each layer has besides its blocks.
    beside_layers : tuple of pair of int
        Those outside of the layers, which each token meets once.
    mlp : {"gelu", "relu", "relu2", "silu", "xielu", "swiglu", "geglu", "reglu2"}
        Activation of the MLP; the last three are gated.
    experts : Experts, optional
        Mixture of experts.
    norm : {"layernorm", "layernorm-scale", "layernorm-plain", "rmsnorm", "rmsnorm-plain"}
        Kind of norm: with scale and shift, with a scale alone, or without weights.
    norms : int
        Norms of a layer: 2; 4 if the outputs of attention and MLP are normed as well (Gemma 2 and 3); 1 if
        attention and MLP share the norm of their input (`parallel` alone).
    parallel : bool
        Whether attention and MLP read the same input, and their results are added at once (GPT-J, GPT-NeoX,
        PaLM: arXiv 2204.02311, section 2).
    qk_norm : {"head", "full", "plain"}, optional
        Norm of queries and keys: per head with weights shared by all heads (Qwen 3, Gemma 3), over all heads
        with separate weights (OLMo 2), or per head without weights (Llama 4).
    biases : tuple of {"qkv", "qv", "proj", "mlp"}
        Linear layers that have a bias; "qv": of queries and values alone.
    sinks : bool
        Whether each head has a learned attention sink (GPT-OSS).
    gate_per_head : bool
        Whether one number for each head gates its result, instead of one for each element.
    keys_are_values : bool
        Whether values are the projected keys, not projected themselves (Gemma 4).
    reuses_keys : bool
        Whether keys and values are those of a layer before (of a shape alone: Gemma 3n).
    shared_layers : bool
        Whether all layers have the same weights (ALBERT: arXiv 1909.11942, section 3.1).
    inner_norms : bool
        Whether the inputs of the output projection and of the MLP's second layer are normed (BitNet:
        arXiv 2504.12285, section 2).
    small_weights : int
        Weights of a layer besides these, whose work is negligible, such as trained slopes of an activation.
    channel_mix : bool
        Whether the MLP's input is mixed with the token before, and the sigmoid of a projection of the input
        multiplies its result (RWKV, arXiv 2305.13048, section 3.1.2).
    attention_gate : bool
        Whether a gate, the sigmoid of a projection of the input, multiplies each element of each head's
        result (Qwen3-Next, arXiv 2505.06708).
    dropout : bool
        Whether the model has dropout.
    inner_dropout : bool
        Whether dropout follows the MLP's activation function as well, as in arXiv 2410.00273; most models
        have none there.
    positions : {"none", "rotary", "learned"}
        Position encoding.
    max_positions : int, optional
        Length of the table of learned positions; the sequence length if left out.
    vocab : int, optional
        Size of the vocabulary; if left out, neither embedding nor output head is counted.
    own_width : OwnWidth, optional
        Another width of embedding and head than that of the layers.
    embedding_norm : bool
        Whether the embedding is normed before the first layer (BLOOM).
    final_norm : bool
        Whether a norm follows the last layer; False where each layer ends with one.
    token_types : int
        Rows of a second embedding, of token types (BERT); 0 for none.
    tied : bool
        Whether the output head shares the weights of the embedding.
    head : bool
        Whether there is an output head; False for a backbone, whose loss is taken for negligible.
    head_bias : bool
        Whether the output head has a bias.
    head_transform : bool
        Whether a dense layer with activation and norm comes before the output head (BERT).
    transform_bias : bool
        Whether that dense layer has a bias.
    small_end_weights : int
        Weights outside of the layers besides these, whose work is negligible, such as a table of relative
        positions.
    mtp : int
        Modules for multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2).
    patch : int, optional
        Values of an image patch, embedded by a linear layer (ViT) instead of a token embedding.
    classes : int, optional
        Classes of an image classifier, the width of its head.
    global_batch : int, optional
        Batch of one optimizer step, used if no other is given [sequences].
    training_sequences : float, optional
        Length of the complete training run [sequences].
    diffusion : Diffusion, optional
        What a transformer for diffusion has besides; its sequences are a latent image, and text beside it.
    adapters : Adapters, optional
        Low-rank adapters, which alone are trained; all weights are if left out.
    reference : bool
        Whether a frozen copy of the model, or the model without its adapters, passes each micro-batch forward
        as well (DPO, arXiv 2305.18290). A pair of answers is two sequences.
    documents : Documents, optional
        Documents that sequences are packed with or padded to; each is one document if left out.
    left_out : str
        Parts that are not modelled, such as ``"vision tower"`` if only the text part of a multimodal model
        is.
    sources : mapping of str to str
        Source of each figure.

    Raises
    ------
    InputError
        If a number or word is not allowed, or the heads do not divide the width; all mistakes at once.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    ffn: int
    seq: int
    kv_heads: int | None = None
    head_dim: int | None = None
    causal: bool = False
    value_dim: int | None = None
    latent: Latent | None = None
    indexer: Indexer | None = None
    compressed: Compressed | None = None
    streams: int = 1
    local: Local | None = None
    mamba: Mamba | None = None
    encoder: Encoder | None = None
    mamba2: Mamba2 | None = None
    gated_delta: GatedDelta | None = None
    gated_linear: GatedLinear | None = None
    rg_lru: RgLru | None = None
    rwkv: Rwkv | None = None
    short_conv: ShortConv | None = None
    layer_kinds: tuple[str, ...] = ()
    shapes: tuple[Shape, ...] = ()
    beside: tuple[tuple[int, int], ...] = ()
    beside_layers: tuple[tuple[int, int], ...] = ()
    mlp: Mlp = "gelu"
    experts: Experts | None = None
    norm: Norm = "layernorm"
    norms: Literal[1, 2, 4] = 2
    parallel: bool = False
    qk_norm: QkNorm | None = None
    biases: tuple[Biased, ...] = ("proj", "mlp")
    sinks: bool = False
    inner_norms: bool = False
    small_weights: int = 0
    channel_mix: bool = False
    attention_gate: bool = False
    gate_per_head: bool = False
    keys_are_values: bool = False
    reuses_keys: bool = False
    shared_layers: bool = False
    dropout: bool = True
    inner_dropout: bool = True
    positions: Positions = "none"
    max_positions: int | None = None
    vocab: int | None = None
    own_width: OwnWidth | None = None
    embedding_norm: bool = False
    final_norm: bool = True
    token_types: int = 0
    tied: bool = False
    head: bool = True
    head_bias: bool = False
    head_transform: bool = False
    transform_bias: bool = True
    small_end_weights: int = 0
    mtp: int = 0
    patch: int | None = None
    classes: int | None = None
    global_batch: int | None = None
    training_sequences: float | None = None
    diffusion: Diffusion | None = None
    adapters: Adapters | None = None
    reference: bool = False
    documents: Documents | None = None
    left_out: str = field(default="", compare=False)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        problems = self._count_problems()
        problems += [
            f"{name} = {getattr(self, name)!r}: must be one of {', '.join(map(str, allowed))}"
            for name, allowed in WORDS.items()
            if getattr(self, name) not in allowed
        ]
        allowed_norms = (1, 2) if self.parallel else (2, 4)
        if self.norms not in allowed_norms:
            of = " of a layer whose attention and MLP are parallel" if self.parallel else ""
            problems.append(f"norms = {self.norms!r}{of}: must be {allowed_norms[0]} or {allowed_norms[1]}")
        if not problems and isinstance(self.hidden, int):
            problems = self._kind_problems() or self._part_problems()
        raise_problems(f"model {self.name}", problems)

    def _part_problems(self) -> list[str]:
        """Return a line for each contradiction inside of a part or between two."""
        return [
            *self._attention_problems(),
            *self._encoder_problems(),
            *self._expert_problems(),
            *self._diffusion_problems(),
        ]

    def _count_problems(self) -> list[str]:
        """Return a line for each number that must be whole and is not; columns and symbols pass."""
        problems = []
        for part, kind in {"": type(self), **PARTS}.items():
            owner = getattr(self, part) if part else self
            if part and not isinstance(owner, PARTS[part] | None):
                problems.append(f"{part} = {shortened(owner)}: must be {PARTS[part].__name__} or None")
                continue
            for name in _counts(kind):
                value = getattr(owner, name, None)
                if not part and name in UNUSED and value == 0 and self._is_unused(name):
                    continue
                is_missing = value is None and name in REQUIRED and not part
                given = f"{part + '.' if part else ''}{name} = {shortened(value)}"
                most = MAX_LAYERS if name in LISTED else MAX_SIZE
                if is_missing or (isinstance(value, (int, float, *NO_NUMBERS)) and not is_whole(value)):
                    problems.append(f"{given}: {WHOLE}")
                elif type(value) is int and value > most:
                    problems.append(f"{given}: must be at most {most:,}")
        return problems

    def _is_unused(self, name: str) -> bool:
        """Return whether no layer has the block that a width or number of heads belongs to."""
        return bool(self.layer_kinds) and not any(
            (kind := kind_of(name_of)) and UNUSED[name](kind) for name_of in self.layer_kinds
        )

    def _kind_problems(self) -> list[str]:
        """Return a line for each contradiction between the kinds of layers and the parts they need."""
        unknown = [kind for kind in self.layer_kinds if kind_of(kind) is None]
        if unknown:
            return [f"layer_kinds: {unknown[0]!r}: must be one of {', '.join(KINDS)}"]
        problems, kinds = [], {kind for name in self.layer_kinds if (kind := kind_of(name))}
        shapes = {shape.name for shape in self.shapes}
        if missing := sorted({kind.shape for kind in kinds} - shapes - {""}):
            problems.append(f"shapes: {missing[0]!r} is missing; layer_kinds names layers that have it")
        if unused := sorted(shapes - {kind.shape for kind in kinds}):
            problems.append(f"shapes: no layer has {unused[0]!r}; name its layers in layer_kinds")
        if self.layer_kinds and self.layers % len(self.layer_kinds):
            number = len(self.layer_kinds)
            problems.append(f"layer_kinds: {number} of them must divide layers = {self.layers}")
        for part in (*LINEAR, "indexer", "compressed", "local", "experts"):
            has_layers = any(part in kind.parts for kind in kinds)
            if has_layers and getattr(self, part) is None:
                problems.append(f"{part}: missing; layer_kinds names layers that have it")
            implied = not self.layer_kinds and part in ("local", "experts")
            if getattr(self, part) is not None and not (has_layers or implied):
                problems.append(f"{part}: no layer has it; name its layers in layer_kinds")
        if self.encoder is None and any(kind.crosses for kind in kinds):
            problems.append("encoder: missing; layer_kinds names layers that attend to its result")
        for part, unset in SELECTS_LAYERS.items():
            block = getattr(self, part)
            given = [name for name in unset if block is not None and getattr(block, name) != unset[name]]
            if self.layer_kinds and given:
                problems.append(f"{part}.{given[0]}: layer_kinds is given as well; keep one of the two")
        if self.layer_kinds and (self.parallel and not all(kind.is_pair for kind in kinds)):
            problems.append("parallel = True: every layer must have two blocks")
        if self.mamba2 is not None and self.mamba2.heads % self.mamba2.groups:
            problems.append(
                f"mamba2.groups = {self.mamba2.groups}: must divide mamba2.heads = {self.mamba2.heads}"
            )
        net = self.gated_delta
        if net is not None and net.value_heads % net.key_heads:
            problems.append(
                f"gated_delta.key_heads = {net.key_heads}: must divide value_heads = {net.value_heads}"
            )
        if self.rwkv is not None and self.rwkv.width != self.hidden:
            problems.append(f"rwkv.width = {self.rwkv.width}: must be hidden = {self.hidden}")
        if self.rg_lru is not None and self.rg_lru.width % self.rg_lru.blocks:
            problems.append(
                f"rg_lru.blocks = {self.rg_lru.blocks}: must divide rg_lru.width = {self.rg_lru.width}"
            )
        return problems

    def _attention_problems(self) -> list[str]:
        """Return a line for each contradiction between figures of attention."""
        problems: list[str] = []
        if not self.heads:
            return problems
        if self.head_dim is None and self.latent is None and self.hidden % self.heads:
            divisor = gcd(self.hidden, self.heads)
            problems.append(
                f"heads = {self.heads}: must divide hidden = {self.hidden}; write for instance {divisor}"
            )
        if self.head_dim is not None and self.latent is not None:
            problems.append(
                f"head_dim = {self.head_dim}: latent gives the widths of a head; keep one of the two"
            )
        if self.streams > 1 and (self.parallel or self.norms == 4 or self.dropout or self.diffusion):
            others = "parallel blocks, four norms of a layer, dropout or diffusion"
            problems.append(f"streams = {self.streams}: not modelled with {others}")
        latent = self.latent
        if (
            latent is not None
            and latent.shared
            and (
                latent.q_rank is None
                or latent.kv_rank != self.head_width
                or latent.value_dim != latent.kv_rank
            )
        ):
            wanted = "q_rank, and a kv_rank as wide as value_dim and as nope_dim and rope_dim together"
            problems.append(f"latent.shared = True: needs {wanted}")
        if latent is not None and latent.proj_rank is not None and self.heads % latent.proj_groups:
            problems.append(f"latent.proj_groups = {latent.proj_groups}: must divide heads = {self.heads}")
        if self.attention_gate and self.latent is not None and not self.gate_per_head:
            wanted = "not modelled with latent attention, unless gate_per_head"
            problems.append(f"attention_gate = True: {wanted}")
        problems += self._indexer_problems()
        mixers = [kind.mixer for name in self.layer_kinds if (kind := kind_of(name))]
        if "index-shared" in mixers and "indexed" not in mixers[: mixers.index("index-shared")]:
            problems.append("layer_kinds: an index-shared layer needs an indexed one before it")
        if self.kv_heads is not None and self.heads % self.kv_heads:
            problems.append(f"kv_heads = {self.kv_heads}: must divide heads = {self.heads}")
        if self.positions == "learned" and self.max_positions is not None and self.max_positions < self.seq:
            problems.append(
                f"seq = {self.seq}: must be at most max_positions = {self.max_positions}, which are learned"
            )
        outside = (
            [layer for layer in self.local.layers if not 1 <= layer <= self.layers] if self.local else []
        )
        if outside:
            problems.append(f"local.layers: {outside[0]} is none of the layers 1 to {self.layers}")
        return problems

    def _encoder_problems(self) -> list[str]:
        """Return a line for each contradiction between the encoder and other parts."""
        encoder = self.encoder
        if encoder is None:
            return []
        problems = []
        if not 0 <= encoder.layers < self.layers:
            problems.append(
                f"encoder.layers = {encoder.layers}: must be at least 0 and below layers = {self.layers}"
            )
        heads = encoder.heads or self.heads
        if self.head_dim is None and self.hidden % heads:
            problems.append(f"encoder.heads = {heads}: must divide hidden = {self.hidden}")
        given: dict[str, Any] = {
            "latent": self.latent,
            "local": self.local,
            "mtp": self.mtp,
        }
        given |= {"parallel": self.parallel, "adapters": self.adapters}
        stacks = ["encoder"] * encoder.layers + ["decoder"] * (self.layers - encoder.layers)
        mixers = [kind.mixer for kind in self.pattern]
        is_pairs = all(kind.is_pair for kind in self.pattern)
        crossed = not encoder.layers and is_pairs and set(mixers) == {"attention", "cross"}
        if self.layer_kinds and mixers != stacks and not crossed:
            wanted = "must name the encoder's layers encoder …, all others decoder …"
            problems.append(f"layer_kinds: {wanted}, or, with encoder.layers 0, dense and cross dense alone")
        if self.experts is not None and not self.layer_kinds:
            problems.append("experts: beside an encoder, layer_kinds must name their layers")
        others = [name for name, value in given.items() if value]
        return problems + [f"{name}: not modelled in a model with an encoder" for name in others]

    def _indexer_problems(self) -> list[str]:
        """Return a line for each contradiction between the indexer and the attention that it selects for."""
        config, latent = self.indexer, self.latent
        problems = []
        if self.compressed is not None and not (self.causal and self.local and latent and latent.shared):
            problems.append("compressed: needs causal attention, local, and latent with shared: true")
        if config is None:
            return problems
        problems += [] if self.causal else ["indexer: needs causal attention"]
        if config.block == 1 and (latent is None or latent.q_rank is None):
            problems.append("indexer: needs latent attention with a q_rank, unless it selects blocks")
        if config.block > 1 and latent is not None:
            problems.append(f"indexer.block = {config.block}: not modelled with latent attention")
        if config.topk % config.block:
            problems.append(f"indexer.topk = {config.topk}: must be a multiple of block = {config.block}")
        return problems

    def _expert_problems(self) -> list[str]:
        """Return a line for each contradiction between figures of the experts."""
        experts, problems = self.experts, []
        if experts is None:
            return []
        if experts.topk > experts.experts:
            problems.append(f"experts.topk = {experts.topk}: must be at most experts = {experts.experts}")
        if experts.load and len(experts.load) != experts.experts:
            wanted = f"one for each of the {experts.experts} experts is wanted"
            problems.append(f"experts.load: holds {len(experts.load)} numbers; {wanted}")
        if experts.load and not sum(experts.load):
            problems.append("experts.load: all are 0; at least one expert must get tokens")
        if not 1 <= experts.imbalance < float("inf"):
            problems.append(f"experts.imbalance = {experts.imbalance!r}: must be a factor of at least 1")
        return problems

    def _diffusion_problems(self) -> list[str]:
        """Return a line for each contradiction between diffusion and other parts."""
        joint = any(kind.joint for name in self.layer_kinds if (kind := kind_of(name)))
        if self.diffusion is None:
            return ["diffusion: missing; layer_kinds names joint layers"] if joint else []
        others: dict[str, Any] = {
            "latent": self.latent,
            "experts": self.experts,
            "adapters": self.adapters,
            "mtp": self.mtp,
        }
        others |= {"vocab": self.vocab, "patch": self.patch, "norms": self.norms == 4}
        problems = [f"{name}: not modelled in a diffusion model" for name, value in others.items() if value]
        if joint and not 0 < self.diffusion.text < self.seq:
            problems.append(f"seq = {self.seq}: must hold {self.diffusion.text} tokens of text and an image")
        return problems

    @property
    def head_width(self) -> int:
        """Width of the query and key of a head, q = e/h unless given."""
        if self.latent is not None:
            return self.latent.nope_dim + self.latent.rope_dim
        if self.head_dim is not None:
            return self.head_dim
        return 0 if self._is_unused("heads") else self.hidden // self.heads

    @property
    def value_width(self) -> int:
        """Width of the value of a head."""
        return (self.value_dim or self.head_width) if self.latent is None else self.latent.value_dim

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def projection_widths(self) -> tuple[int, int, int]:
        """Columns of the projections to queries (with their gate), keys and values, all heads together."""
        gate = self.heads * (1 if self.gate_per_head else self.value_width) if self.attention_gate else 0
        queries = self.heads * self.head_width + gate
        if self.reuses_keys:
            return queries, 0, 0
        values = 0 if self.keys_are_values else self.groups * self.value_width
        return queries, self.groups * self.head_width, values

    @property
    def gated(self) -> bool:
        """Whether the MLP is gated, so that its first layer has twice the width."""
        return self.mlp in GATED

    @property
    def up_projections(self) -> int:
        """Up-projections of an MLP: 2 if it is gated, else 1."""
        return 2 if self.gated else 1

    @property
    def norm_vectors(self) -> int:
        """Weight vectors of a norm: scale and shift, scale alone, or none."""
        return NORM_VECTORS[self.norm]

    @cached_property
    def pattern(self) -> tuple[Kind, ...]:
        """Kind of every layer, first to last."""
        if self.layer_kinds:
            repeats = self.layers // len(self.layer_kinds)
            return tuple(kind for name in self.layer_kinds if (kind := kind_of(name))) * repeats
        if self.encoder is not None:
            encoded = self.encoder.layers
            return (ENCODER,) * encoded + (DECODER,) * (self.layers - encoded)
        return tuple(
            Kind("local" if self._is_local(i) else "attention", "moe" if self._is_moe(i) else "dense")
            for i in range(self.layers)
        )

    def of(self, kind: Kind) -> Self:
        """Return the model with the sequence, the heads and the widths that the layers of a kind have."""
        model = self._variants.get(kind.mixer, self)
        return model._shaped.get(kind.shape, model)

    @cached_property
    def _shaped(self) -> dict[str, Self]:
        """Models with the figures of shapes, by name."""
        given = {
            shape.name: {key: value for key, value in vars(shape).items() if value and key != "name"}
            for shape in self.shapes
        }
        return {name: replace(self, **figures) for name, figures in given.items()}

    @cached_property
    def _variants(self) -> dict[str, Self]:
        """Models with the sequence and heads of layers that differ from the others, by what mixes tokens."""
        variants, encoder, local = {}, self.encoder, self.local
        if self.diffusion is not None and self.diffusion.single:
            beside = replace(self.diffusion, single=False)  # both end in one linear layer with one bias
            biases = tuple(word for word in self.biases if word != "proj")
            variants["attention"] = replace(self, parallel=True, norms=1, biases=biases, diffusion=beside)
        if encoder is not None:
            own = {
                name: value for name in ("heads", "ffn", "max_positions") if (value := getattr(encoder, name))
            }
            variants["encoder"] = replace(
                self,
                **own,
                seq=encoder.seq,
                causal=False,
                encoder=None,
                layer_kinds=(),
                local=Local(window=encoder.window) if encoder.window else None,
                small_weights=encoder.small_weights or self.small_weights,
                kv_heads=None if encoder.heads else self.kv_heads,
            )
        if local is not None:
            names = ("heads", "kv_heads", "head_dim", "value_dim", "sinks", "keys_are_values")
            given = {name: value for name in names if (value := getattr(local, name)) is not None}
            if given:
                same: Any = dict.fromkeys(names)
                variants["local"] = replace(self, local=replace(local, **same), **given)
        return variants

    def cut_to(self, seq: int) -> Self:
        """Return the model with sequences of some of its tokens, which have weights of their own."""
        return replace(self, seq=seq, diffusion=None, layer_kinds=())

    @property
    def encodes(self) -> bool:
        """Whether some of its layers are those of an encoder."""
        return self.encoder is not None and self.encoder.layers > 0

    @property
    def hears(self) -> bool:
        """Whether its encoder reads frames of sound, not tokens."""
        return self.encoder is not None and self.encoder.frame is not None

    @cached_property
    def variants(self) -> tuple[Self, ...]:
        """The model as each kind of its layers has it."""
        return tuple(dict.fromkeys(map(self.of, self.kinds)))

    def _is_local(self, i: int) -> bool:
        """Return whether layer i (from 0) has local attention."""
        if self.local is None:
            return False
        if self.local.layers:
            return i + 1 in self.local.layers
        return not self.local.global_every or (i + 1) % self.local.global_every != 0

    def _is_moe(self, i: int) -> bool:
        """Return whether layer i (from 0) has experts."""
        if self.experts is None or i < self.experts.first_dense:
            return False
        return (i - self.experts.first_dense + 1) % self.experts.every == 0

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The distinct kinds of layers, in the order they first appear."""
        return tuple(dict.fromkeys(self.pattern))

    @property
    def last_kind(self) -> Kind:
        """Kind of the last layer, and of the layer inside a multi-token-prediction module."""
        return self.pattern[-1]

    def attended(self, local: bool) -> float:
        """Count the query-key pairs of a sequence of `seq` tokens in one head that the mask leaves."""
        if self.documents is None:
            return self._attended(self.seq, local)
        return sum(n * self._attended(l, local) for l, n in self.documents.in_sequence(self.seq))

    def _attended(self, l: int, local: bool) -> float:
        """Count the pairs of a document of l tokens."""
        attention = self.local
        if attention is None or not local or attention.window >= l:
            return l * (l + 1) / 2 if self.causal else float(l * l)
        w = attention.window
        if attention.chunked:
            chunks, rest = l // w, l % w  # full chunks, and tokens of the shorter last one
            return (
                (chunks * w * (w + 1) + rest * (rest + 1)) / 2
                if self.causal
                else float(chunks * w * w + rest * rest)
            )
        return l * w - w * (w - 1) / 2 if self.causal else float(l * w)

    def met(self, kind: Kind, masked: bool = True) -> float:
        """Count the query-key pairs of a sequence in one head of a layer, of the selected keys if indexed.

        Those that the mask leaves if `masked`. Compressed keys count as keys.
        """
        if kind.compressed and self.compressed is not None:
            window = self._attended(self.seq, True) if masked else float(self.seq * self._window)
            return window + self.met_compressed(kind, masked)
        if not kind.indexed or self.indexer is None:
            return self.attended(kind.local) if masked else float(self.seq**2)
        block = self.indexer.block
        blocks, rest = self.seq // block, self.seq % block  # full blocks, and tokens of the last one
        most = min(self.indexer.topk // block, blocks + (rest > 0))  # blocks of a query
        if not masked:
            return float(most * block * self.seq)
        earlier = min(most, blocks)  # the first blocks have fewer before them
        before = earlier * (earlier - 1) / 2 + (blocks - earlier) * (most - 1)
        own = (blocks * block * (block + 1) + rest * (rest + 1)) / 2
        return block * (block * before + rest * (most - 1)) + own

    @property
    def _window(self) -> int:
        """Tokens of the window of local attention that a sequence fills."""
        return self.seq if self.local is None else min(self.local.window, self.seq)

    def met_compressed(self, kind: Kind, masked: bool = True, all_keys: bool = False) -> float:
        """Count the pairs of queries and compressed keys that are met, or scored (`all_keys`)."""
        if self.compressed is None or not kind.compressed:
            return 0.0
        rate = self.compressed.of(kind)
        keys = self.seq // rate
        if kind.mixer == "compressed-indexed" and self.indexer is not None and not all_keys:
            keys = min(keys, self.indexer.topk)
        # Key n is met by the tokens from n rate on, counted from 1.
        return keys * (self.seq + 1 - rate * (keys + 1) / 2) if masked else float(self.seq * keys)

    @property
    def has_ends(self) -> bool:
        """Whether what is before the first and after the last layer is counted."""
        return not (self.vocab is None and self.patch is None and self.diffusion is None)

    def linear_attention(self, kind: Kind) -> LinearAttention | None:
        """Return what takes the place of attention in layers of a kind, or is beside it; None for nothing."""
        config: LinearAttention | None = getattr(self, kind.linear) if kind.linear else None
        return config


@cache
def _counts(kind: type) -> tuple[str, ...]:
    """Return the fields of a dataclass that are whole numbers of at least 1, or None."""
    hints = get_type_hints(kind)
    return tuple(
        item.name for item in fields(kind) if hints[item.name] in (int, int | None) and item.default != 0
    )
