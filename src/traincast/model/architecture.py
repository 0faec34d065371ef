"""Architecture of a model: its shapes, the layers they make, and the pairs of tokens that attend."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, Self

from traincast.model.adapters import Adapters
from traincast.model.blocks import (
    DECODER,
    ENCODER,
    GATED_ACTIVATIONS,
    NORM_VECTORS,
    Biased,
    Compressed,
    Diffusion,
    Encoder,
    Experts,
    Indexer,
    Kind,
    Latent,
    Local,
    Mlp,
    Norm,
    OwnWidth,
    Positions,
    QkNorm,
    Shape,
    kind_of,
)
from traincast.model.documents import Documents
from traincast.model.linear_attention import (
    GatedDelta,
    GatedLinear,
    LinearAttention,
    Mamba,
    Mamba2,
    RgLru,
    Rwkv,
    ShortConv,
)

# Numbers that may be 0, and the layers that need them.
UNUSED: Final[Mapping[str, Callable[[Kind], bool]]] = {
    "heads": lambda kind: kind.scores,
    "ffn": lambda kind: kind.feed_forward == "dense",
}


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Architecture of a model; by default the GPT of arXiv 2410.00273, without embeddings and causal mask."""

    name: str
    layers: int  # number of transformer layers, L
    hidden: int  # embedding width, e
    heads: int  # attention heads, h; 0 if no layer has attention
    ffn: int  # width of the MLP's inner layer, f; 0 if no layer has an MLP
    seq: int  # sequence length, l [token]
    kv_heads: int | None = None  # heads of keys and values (GQA; 1 is multi-query); `heads` if None
    head_dim: int | None = None  # width of a head; hidden / heads if None
    causal: bool = False  # whether a token attends only to itself and earlier ones
    value_dim: int | None = None  # width of the value of a head; `head_dim` if None
    latent: Latent | None = None  # multi-head latent attention
    # Lightning indexer of the layers that `layer_kinds` calls indexed, whose attention is latent; those it
    # calls index-shared meet the keys of the indexed layer before.
    indexer: Indexer | None = None
    # Compressed keys of the layers that `layer_kinds` calls compressed, and of those it calls
    # compressed-indexed, where the indexer selects among them.
    compressed: Compressed | None = None
    # Copies of the residual stream; each block reads a mix of them, and adds to each (manifold-constrained
    # hyper-connections, arXiv 2512.24880).
    streams: int = 1
    local: Local | None = None  # sliding-window or chunked attention
    # In the layers that `layer_kinds` names, as are the other parts in place of attention.
    mamba: Mamba | None = None
    encoder: Encoder | None = None  # the first of the layers; the others attend to its result as well
    mamba2: Mamba2 | None = None
    gated_delta: GatedDelta | None = None
    gated_linear: GatedLinear | None = None
    rg_lru: RgLru | None = None
    rwkv: Rwkv | None = None
    short_conv: ShortConv | None = None
    # Kind of every layer, of `KINDS`, or of every layer of a stretch that is repeated; if left out, `local`
    # and `experts` say which layers they are in. ``@name`` after a kind names one of `shapes`.
    layer_kinds: tuple[str, ...] = ()
    shapes: tuple[Shape, ...] = ()  # figures in which some layers differ from the others
    # Input and output width of linear layers that each layer has besides its blocks, and of those outside
    # of the layers, which each token meets once.
    beside: tuple[tuple[int, int], ...] = ()
    beside_layers: tuple[tuple[int, int], ...] = ()
    mlp: Mlp = "gelu"  # activation of the MLP; those of `GATED_ACTIVATIONS` have a gate
    experts: Experts | None = None  # mixture of experts
    norm: Norm = "layernorm"  # with scale and shift, with a scale alone, or without weights
    # Norms of a layer: 4 if the outputs of attention and MLP are normed as well (Gemma 2 and 3); 1 if
    # attention and MLP share the norm of their input (`parallel` alone).
    norms: Literal[1, 2, 4] = 2
    # Whether attention and MLP read the same input, and their results are added at once (GPT-J, GPT-NeoX,
    # PaLM: arXiv 2204.02311, section 2).
    parallel: bool = False
    # Norm of queries and keys: per head with weights shared by all heads (Qwen 3, Gemma 3), over all heads
    # with separate weights ("full", OLMo 2), or per head without weights ("plain", Llama 4).
    qk_norm: QkNorm | None = None
    biases: tuple[Biased, ...] = ("proj", "mlp")  # linear layers with a bias; "qv": not the keys
    sinks: bool = False  # whether each head has a learned attention sink (GPT-OSS)
    # Whether the inputs of the output projection and of the MLP's second layer are normed (BitNet: arXiv
    # 2504.12285, section 2).
    inner_norms: bool = False
    small_weights: int = 0  # other weights of a layer, of negligible work, such as slopes of an activation
    # Whether the MLP's input is mixed with the token before, and the sigmoid of a projection of the input
    # multiplies its result (RWKV, arXiv 2305.13048, section 3.1.2).
    channel_mix: bool = False
    # Whether a gate, the sigmoid of a projection of the input, multiplies each element of each head's
    # result (Qwen3-Next, arXiv 2505.06708), or, with `gate_per_head`, each head's result as a whole.
    attention_gate: bool = False
    gate_per_head: bool = False
    keys_are_values: bool = False  # whether values are the projected keys (Gemma 4)
    reuses_keys: bool = False  # whether keys and values are those of a layer before (of a shape: Gemma 3n)
    plain: bool = False  # whether products stay at 16 bits in a recipe with 4-bit ones (of a shape)
    shared_layers: bool = False  # whether all layers have the same weights (ALBERT: arXiv 1909.11942, 3.1)
    dropout: bool = True
    inner_dropout: bool = True  # whether dropout follows the MLP's activation as well; in most models not
    positions: Positions = "none"
    max_positions: int | None = None  # length of the table of learned positions; the sequence's if None
    vocab: int | None = None  # size of the vocabulary; neither embedding nor head is counted if None
    own_width: OwnWidth | None = None  # of embedding and head, where it is not that of the layers
    embedding_norm: bool = False  # whether the embedding is normed before the first layer (BLOOM)
    final_norm: bool = True  # whether a norm follows the last layer; False where each layer ends with one
    token_types: int = 0  # rows of a second embedding, of token types (BERT)
    tied: bool = False  # whether the output head shares the weights of the embedding
    head: bool = True  # whether there is an output head; else a backbone, of negligible loss
    head_bias: bool = False  # whether the output head has a bias
    head_transform: bool = False  # whether a dense layer with activation and norm precedes it (BERT)
    transform_bias: bool = True  # whether that dense layer has a bias
    small_end_weights: int = 0  # other weights outside of the layers, of negligible work
    mtp: int = 0  # modules for multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2)
    mtp_kinds: tuple[
        str, ...
    ] = ()  # kinds of the layers of each such module; if empty, that of the last layer
    patch: int | None = None  # values of an image patch, embedded by a linear layer (ViT) in place of tokens
    classes: int | None = None  # classes of an image classifier, the width of its head
    global_batch: int | None = None  # batch of one optimizer step, if no other is given [sequence]
    training_sequences: float | None = None  # length of the complete training run [sequence]
    diffusion: Diffusion | None = None  # of a diffusion transformer: a sequence is a latent image, and text
    adapters: Adapters | None = None  # low-rank adapters, which alone are trained; all weights if None
    # Whether a frozen copy of the model, or the model without its adapters, passes each micro-batch forward
    # as well (DPO, arXiv 2305.18290). A pair of answers is two sequences.
    reference: bool = False
    # Whether all weights are fine-tuned on answers (SFT): a step as of pre-training; what is usual differs.
    supervised: bool = False
    documents: Documents | None = None  # packed into sequences or padded to them; each is one if None
    # Its type in transformers, the word `model_type` of its config.json; empty if not known.
    transformers_type: str = ""
    # Parts that are not modelled, such as ``"vision tower"`` if only the text part of a multimodal model is.
    left_out: str = field(default="", compare=False)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)  # of each figure
    # What a name was taken for, and what is assumed of a run, in sentences.
    taken: str = field(default="", compare=False, repr=False)

    @property
    def most_chunks(self) -> int:
        """Largest number of chunks of a pipeline: embedding and head can be chunks without a layer."""
        return self.layers + (2 if self.vocab is not None else 0)

    @property
    def head_width(self) -> int:
        """Width of the query and key of a head, q = e/h unless given."""
        if self.latent is not None:
            return self.latent.nope_dim + self.latent.rope_dim
        if self.head_dim is not None:
            return self.head_dim
        return 0 if is_unused("heads", self.layer_kinds) else self.hidden // self.heads

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
        gate = 0
        if self.attention_gate:
            gate = self.heads * (1 if self.gate_per_head else self.value_width)
        queries = self.heads * self.head_width + gate
        if self.reuses_keys:
            return queries, 0, 0
        values = 0 if self.keys_are_values else self.groups * self.value_width
        return queries, self.groups * self.head_width, values

    @property
    def gated(self) -> bool:
        """Whether the MLP is gated, so that its first layer has twice the width."""
        return self.mlp in GATED_ACTIVATIONS

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

    def for_kind(self, kind: Kind) -> Self:
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
        variants = {}
        encoder = self.encoder
        local = self.local
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
    def reads_audio(self) -> bool:
        """Whether its encoder reads frames of audio, not tokens."""
        return self.encoder is not None and self.encoder.frame is not None

    @cached_property
    def variants(self) -> tuple[Self, ...]:
        """The model as each kind of its layers has it."""
        return tuple(dict.fromkeys(map(self.for_kind, self.kinds)))

    def _is_local(self, i: int) -> bool:
        """Return whether layer i (from 0) has local attention."""
        if self.local is None:
            return False
        if self.local.layers:
            return i + 1 in self.local.layers
        return not self.local.global_every or (i + 1) % self.local.global_every != 0

    def _is_moe(self, i: int) -> bool:
        if self.experts is None or i < self.experts.first_dense:
            return False
        return (i - self.experts.first_dense + 1) % self.experts.every == 0

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The distinct kinds of layers, in the order they first appear."""
        return tuple(dict.fromkeys(self.pattern))

    @property
    def last_kind(self) -> Kind:
        """Kind of the last layer."""
        return self.pattern[-1]

    @property
    def mtp_pattern(self) -> tuple[Kind, ...]:
        """Kinds of the layers inside a multi-token-prediction module."""
        return tuple(kind for name in self.mtp_kinds if (kind := kind_of(name))) or (self.last_kind,)

    def attended_pairs(self, local: bool) -> float:
        """Count the query-key pairs of a sequence of `seq` tokens in one head that the mask leaves."""
        if self.documents is None:
            return self._document_pairs(self.seq, local)
        return sum(n * self._document_pairs(l, local) for l, n in self.documents.in_sequence(self.seq))

    def _document_pairs(self, l: int, local: bool) -> float:
        """Count the pairs of a document of l tokens."""
        attention = self.local
        if attention is None or not local or attention.window >= l:
            return l * (l + 1) / 2 if self.causal else float(l * l)
        w = attention.window
        if attention.chunked:
            # full chunks, and tokens of the shorter last one
            chunks = l // w
            rest = l % w
            return (
                (chunks * w * (w + 1) + rest * (rest + 1)) / 2
                if self.causal
                else float(chunks * w * w + rest * rest)
            )
        return l * w - w * (w - 1) / 2 if self.causal else float(l * w)

    def attention_pairs(self, kind: Kind, masked: bool = True) -> float:
        """Count the query-key pairs of a sequence in one head of a layer, of the selected keys if indexed.

        Those that the mask leaves if `masked`. Compressed keys count as keys.
        """
        if kind.compressed and self.compressed is not None:
            window = self._document_pairs(self.seq, True) if masked else float(self.seq * self._window)
            return window + self.compressed_pairs(kind, masked)
        if not kind.indexed or self.indexer is None:
            return self.attended_pairs(kind.local) if masked else float(self.seq**2)
        block = self.indexer.block
        # full blocks, and tokens of the last one
        blocks = self.seq // block
        rest = self.seq % block
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

    def compressed_pairs(self, kind: Kind, masked: bool = True, all_keys: bool = False) -> float:
        """Count the pairs of queries and compressed keys that are met, or scored (`all_keys`)."""
        if self.compressed is None or not kind.compressed:
            return 0.0
        rate = self.compressed.tokens_per_key(kind)
        keys = self.seq // rate
        if kind.mixer == "compressed-indexed" and self.indexer is not None and not all_keys:
            keys = min(keys, self.indexer.topk)
        # Key n is met by the tokens from n rate on, counted from 1.
        return keys * (self.seq + 1 - rate * (keys + 1) / 2) if masked else float(self.seq * keys)

    @property
    def has_ends(self) -> bool:
        """Whether what is before the first and after the last layer is counted."""
        return not (self.vocab is None and self.patch is None and self.diffusion is None)

    def scan_flops(self, kind: Kind) -> int:
        """Return the forward FLOPs of the scan of a layer for one token, whatever chunks it is cut into."""
        config = self.linear_attention(kind)
        return 0 if config is None else config.counts.scan_flops

    def tokens_share(self, kind: Kind) -> float:
        """Return the tokens that the layers of a kind see for each token of the model's sequence."""
        return self.for_kind(kind).seq / self.seq

    def linear_attention(self, kind: Kind) -> LinearAttention | None:
        """Return what takes the place of attention in layers of a kind, or is beside it; None for nothing."""
        config: LinearAttention | None = getattr(self, kind.linear) if kind.linear else None
        return config


def is_unused(figure: str, layer_kinds: Sequence[str]) -> bool:
    """Return whether no layer has the block that a width or number of heads belongs to."""
    kinds = map(kind_of, layer_kinds)
    return bool(layer_kinds) and not any(kind and UNUSED[figure](kind) for kind in kinds)
