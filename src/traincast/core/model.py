"""Transformer models: shapes, checks, and counts of parameters and attended pairs."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from math import gcd
from reprlib import repr as shortened
from typing import Any, Final, Literal, get_args, get_type_hints

from traincast.core.adapters import GROUPS, JOINED, TARGETS, Adapters
from traincast.core.documents import Documents
from traincast.core.errors import WHOLE, InputError, is_whole
from traincast.core.model_blocks import (
    DECODER,
    ENCODER,
    GATED,
    KINDS,
    LINEAR,
    NORM_VECTORS,
    Biased,
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
    Projector,
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
    "local": Local,
    "encoder": Encoder,
    "own_width": OwnWidth,
    "experts": Experts,
    **LINEAR,
}
# Numbers that may be 0, and the layers that need them.
UNUSED: Final[Mapping[str, Callable[[Kind], bool]]] = {
    "heads": lambda kind: kind.attends,
    "ffn": lambda kind: kind.feed_forward == "dense",
}
# Fields of parts that say in which layers they are, with their defaults.
SELECTS_LAYERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "local": {"global_every": 0, "layers": ()},
    "experts": {"first_dense": 0, "every": 1},
}
PREFIX: Final = "vision "  # of the names of a tower's kinds of layers among the parts of a model
PATCHES: Final = "vision patches"
PROJECTOR: Final = "projector"
LISTED: Final = ("layers", "mtp")  # numbers of what is listed one by one
MAX_LAYERS: Final = 10_000  # ten times the deepest that was trained (DeepNet, arXiv 2203.00555)
MAX_SIZE: Final = 1 << 30  # of any other number
REQUIRED: Final = ("layers", "hidden", "heads", "ffn", "seq")


@dataclass(frozen=True, kw_only=True)
class Model:
    """Transformer model. The defaults are the GPT of arXiv 2410.00273, without embeddings and causal mask.

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
    tower : Tower, optional
        Vision tower, whose images take a part of each sequence.
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
    tower: "Tower | None" = None
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
            problems = self._kind_problems() or [
                *self._attention_problems(),
                *self._encoder_problems(),
                *self._expert_problems(),
                *self._adapter_problems(),
                *self._tower_problems(),
                *self._diffusion_problems(),
            ]
        if problems:
            raise InputError(f"model {self.name}", problems)

    def _count_problems(self) -> list[str]:
        """Return a line for each number that must be whole and is not; columns and symbols pass."""
        problems = []
        for part, kind in {"": Model, **PARTS}.items():
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
        for part in (*LINEAR, "indexer", "local", "experts"):
            has_layers = any(
                part
                in (kind.mixer, kind.linear, "experts" if kind.moe else "", "indexer" if kind.indexed else "")
                for kind in kinds
            )
            if has_layers and getattr(self, part) is None:
                problems.append(f"{part}: missing; layer_kinds names layers that have it")
            implied = not self.layer_kinds and part in ("local", "experts")
            if getattr(self, part) is not None and not (has_layers or implied):
                problems.append(f"{part}: no layer has it; name its layers in layer_kinds")
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
            "experts": self.experts,
            "mtp": self.mtp,
        }
        given |= {"parallel": self.parallel, "layer_kinds": self.layer_kinds, "adapters": self.adapters}
        others = [name for name, value in given.items() if value]
        return problems + [f"{name}: not modelled in a model with an encoder" for name in others]

    def _indexer_problems(self) -> list[str]:
        """Return a line for each contradiction between the indexer and the attention that it selects for."""
        config, latent = self.indexer, self.latent
        if config is None:
            return []
        problems = [] if self.causal else ["indexer: needs causal attention"]
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

    def _adapter_problems(self) -> list[str]:
        """Return a line for each target of an adapter that the model lacks or that stands in another one."""
        if self.adapters is None:
            return []
        if self.keys_are_values:
            return ["adapters: not modelled where values are the projected keys"]
        if self.shapes:
            return ["adapters: not modelled where layers have shapes of their own"]
        if self.experts is not None and self.experts.width:
            return ["adapters: not modelled where experts have a width of their own"]
        has, given = self.adaptable, self.adapters.targets
        known = [word for word in TARGETS if word in has]
        lacking = [word for word in given if word not in GROUPS and word not in has]
        problems = [f"adapters.targets: {word!r} is none of its {', '.join(known)}" for word in lacking]
        for joined, parts in JOINED.items():
            if joined in self.adapter_targets and (twice := self.adapter_targets & set(parts)):
                problems.append(f"adapters.targets: {joined} includes {', '.join(sorted(twice))}; keep one")
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
        others |= {"vocab": self.vocab, "patch": self.patch, "tower": self.tower, "norms": self.norms == 4}
        problems = [f"{name}: not modelled in a diffusion model" for name, value in others.items() if value]
        if joint and not 0 < self.diffusion.text < self.seq:
            problems.append(f"seq = {self.seq}: must hold {self.diffusion.text} tokens of text and an image")
        return problems

    def _tower_problems(self) -> list[str]:
        """Return a line if the images of a sequence take more tokens than it has."""
        tower = self.tower
        if tower is None or tower.images * tower.tokens <= self.seq:
            return []
        taken = tower.images * tower.tokens
        return [f"seq = {self.seq}: must hold the {taken} tokens of {tower.title}"]

    @cached_property
    def adaptable(self) -> frozenset[str]:
        """Names of the linear layers that can have an adapter."""
        names = {"head"} if self.vocab is not None and self.head else set()
        for kind in self.kinds:
            names |= self._mixer_targets(kind).keys()
            names |= self._mlp_targets(self.ffn).keys() if kind.feed_forward else set()
        return frozenset(names)

    def _mixer_targets(self, kind: Kind) -> dict[str, tuple[int, int]]:
        """Return the widths of input and output of the linear layers of what mixes tokens."""
        e, latent, config = self.hidden, self.latent, self.linear_attention(kind)
        linear = {} if config is None else {"in_proj": (e, config.projected), "proj": (config.inner, e)}
        if not kind.attends:
            return linear
        beside = linear.get("proj", (0, 0))  # its output projection has an adapter of its own
        widths = linear | {"proj": (self.heads * self.value_width + beside[0], e + beside[1])}
        if latent is None:
            q, k, v = self.projection_widths
            return widths | {"q": (e, q), "k": (e, k), "v": (e, v), "qkv": (e, q + k + v)}
        kv_up = self.heads * (latent.nope_dim + latent.value_dim)
        widths["q_up"] = latent.q_rank or e, self.heads * self.head_width
        widths["kv_down"] = e, latent.kv_rank + latent.rope_dim
        if not kind.indexed:  # else it is no linear layer of its own
            widths["kv_up"] = latent.kv_rank, kv_up
        return widths if latent.q_rank is None else widths | {"q_down": (e, latent.q_rank)}

    def _mlp_targets(self, f: int) -> dict[str, tuple[int, int]]:
        """Return the widths of input and output of the linear layers of an MLP of inner width f."""
        e = self.hidden
        gate = {"gate": (e, f)} if self.gated else {}
        return {"up": (e, f), "fc1": (e, self.up_projections * f), "fc2": (f, e)} | gate

    @cached_property
    def adapter_targets(self) -> frozenset[str]:
        """Linear layers with an adapter; a group stands for those of its layers that the model has."""
        given = () if self.adapters is None else self.adapters.targets
        words = {part for word in given for part in GROUPS.get(word, (word,))}
        return frozenset(words & self.adaptable)

    def adapter_parameters(self, active: bool = False) -> int:
        """Count the weights of the adapters: rank × (input + output) of each; without `mtp`."""
        if self.adapters is None:
            return 0
        layers = sum(n * self._layer_adapters(kind, active) for kind, n in Counter(self.pattern).items())
        head = self.hidden + (self.vocab or 0) if "head" in self.adapter_targets else 0
        return self.adapters.rank * (layers + head)

    def _layer_adapters(self, kind: Kind, active: bool) -> int:
        """Return the sum of the widths of the adapted linear layers of a layer."""

        def widths(layers: Mapping[str, tuple[int, int]]) -> int:
            return sum(sum(pair) for name, pair in layers.items() if name in self.adapter_targets)

        mixer = widths(self._mixer_targets(kind))
        if not kind.moe or self.experts is None:
            return mixer + (widths(self._mlp_targets(self.ffn)) if kind.feed_forward else 0)
        experts = self.experts.topk if active else self.experts.experts
        shared = widths(self._mlp_targets(self.experts.shared_ffn)) if self.experts.shared_ffn else 0
        return mixer + experts * widths(self._mlp_targets(self.experts.ffn)) + shared

    @property
    def title(self) -> str:
        """Name, parts left out, encoder, and what is trained, for the first line of an answer."""
        name = f"{self.name} without its {self.left_out}" if self.left_out else self.name
        if self.encoder is not None:
            unit = "frames" if self.hears else "tokens"
            name += (
                f" of {self.encoder.seq:,} tokens"
                if self.left_out
                else f", encoder of {self.encoder.seq:,} {unit}"
            )
        name += f", {self.tower.title}" if self.tower else ""
        return ", ".join(filter(None, (name, self.training)))

    @property
    def training(self) -> str:
        """What is trained, beside what reference and on what documents; empty for all, as in pre-training."""
        parts = ["DPO with a reference model"] if self.reference else []
        parts += [self.adapters.title] if self.adapters is not None else []
        return ", ".join([*parts, *([self.documents.title(self.seq)] if self.documents is not None else [])])

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

    def of(self, kind: Kind) -> "Model":
        """Return the model with the sequence, the heads and the widths that the layers of a kind have."""
        model = self._variants.get(kind.mixer, self)
        return model._shaped.get(kind.shape, model)

    @cached_property
    def _shaped(self) -> dict[str, "Model"]:
        """Models with the figures of shapes, by name."""
        given = {
            shape.name: {key: value for key, value in vars(shape).items() if value and key != "name"}
            for shape in self.shapes
        }
        return {name: replace(self, **figures) for name, figures in given.items()}

    @cached_property
    def _variants(self) -> dict[str, "Model"]:
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
                kv_heads=None if encoder.heads else self.kv_heads,
            )
        if local is not None:
            names = ("heads", "kv_heads", "head_dim", "value_dim", "sinks", "keys_are_values")
            given = {name: value for name in names if (value := getattr(local, name)) is not None}
            if given:
                same: Any = dict.fromkeys(names)
                variants["local"] = replace(self, local=replace(local, **same), **given)
        return variants

    def cut_to(self, seq: int) -> "Model":
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
    def variants(self) -> tuple["Model", ...]:
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

        Those that the mask leaves if `masked`.
        """
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
    def parameters(self) -> int:
        """Weights of the layers, of the tower, and of embedding and head if `vocab` is given; no `mtp`."""
        return self.layer_parameters() + self.end_parameters + self.tower_parameters

    @property
    def tower_parameters(self) -> int:
        """Weights of the vision tower and its projectors; 0 without one."""
        return 0 if self.tower is None else self.tower.parameters

    @property
    def trained_parameters(self) -> int:
        """Weights that are trained: those of the adapters where there are any, else all, `mtp` included."""
        if self.adapters:
            return self.adapter_parameters()
        frozen = self.tower.tower_parameters if self.tower and self.tower.frozen else 0
        return self.parameters + self.mtp_parameters - frozen

    @property
    def active_parameters(self) -> int:
        """Weights that a token uses: of the experts only those it is routed to."""
        return self.layer_parameters(active=True) + self.end_parameters + self.tower_parameters

    def layer_parameters(self, active: bool = False) -> int:
        """Count the weights of the layers, biases and norms included."""
        weights = sum(n * self.kind_parameters(kind, active) for kind, n in Counter(self.pattern).items())
        return weights // self.layers if self.shared_layers else weights

    def kind_parameters(self, kind: Kind, active: bool = False) -> int:
        """Count the weights of one layer of a kind."""
        model = self.of(kind)
        norms = self.norms if kind.is_pair else self.norms // 2
        blocks = model._mixer_parameters(kind) + model._feed_forward_parameters(kind, active)
        if kind.mixer == "decoder":
            blocks += self._cross_parameters()
            norms += self.norms // 2
        if self.diffusion is not None and not active:  # a token meets one stream, and what samples share
            blocks += self._conditioned_parameters(self.diffusion, kind, blocks)
        beside = sum(i * o for i, o in self.beside)
        return blocks + norms * self.norm_vectors * self.hidden + self.small_weights + beside

    def _conditioned_parameters(self, diffusion: Diffusion, kind: Kind, blocks: int) -> int:
        """Count what a layer for diffusion has besides its `blocks`: those of text, and modulation."""
        e = self.hidden
        text = blocks if kind.joint else 0
        if kind.mixer == "joint-last":  # of text, keys and values alone are read afterwards
            text -= self._mlp_parameters(self.ffn) + self.heads * self.value_width * e
            text -= e if "proj" in self.biases else 0
        return text + (0 if diffusion.shared else diffusion.vectors(kind) * e * (e + 1))

    @property
    def has_ends(self) -> bool:
        """Whether what is before the first and after the last layer is counted."""
        return not (self.vocab is None and self.patch is None and self.diffusion is None)

    @property
    def diffusion_ends(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """Linear layers of a diffusion model outside of its layers, by whether they run for each token."""
        diffusion, e = self.diffusion, self.hidden
        if diffusion is None:
            return {}
        sample = [pair for width in diffusion.conditions for pair in ((width, e), (e, e))]
        sample += [(e, 6 * e)] * diffusion.shared + [(e, 2 * e)] * diffusion.final
        text = [(diffusion.text_width, e), *[(e, e)] * (diffusion.text_layers - 1)]
        return {
            "image": ((diffusion.inputs, e), (e, diffusion.outputs)),
            "text": tuple(text) if diffusion.text_width else (),
            "sample": tuple(sample),
        }

    def linear_attention(self, kind: Kind) -> LinearAttention | None:
        """Return what takes the place of attention in layers of a kind, or is beside it; None for nothing."""
        config: LinearAttention | None = getattr(self, kind.linear) if kind.linear else None
        return config

    def _mixer_parameters(self, kind: Kind) -> int:
        """Count the weights of what mixes tokens, without the norm before it."""
        config = self.linear_attention(kind)
        attention = self._attention_parameters() if kind.attends else 0
        if kind.mixer == "indexed" and self.indexer is not None:  # with the norm of its keys
            attention += self.indexer_matrices + 2 * self.indexer.head_dim
        if config is None:
            return attention
        biases = (config.projected + self.hidden) * config.bias
        small = config.conv_weights + config.small_weights + biases
        return attention + _linear_matrices(config, self.hidden) + small

    def mixer_matrices(self, kind: Kind) -> int:
        """Count the weights of the projections of what mixes tokens, without those to an encoder."""
        config = self.linear_attention(kind)
        linear = 0 if config is None else _linear_matrices(config, self.hidden)
        index = self.indexer_matrices if kind.mixer == "indexed" else 0
        return linear + index + (self.of(kind).attention_matrices if kind.attends else 0)

    @property
    def indexer_matrices(self) -> int:
        """Weights of the indexer's projections: to queries, to one key of all heads, to weights of heads."""
        config, latent = self.indexer, self.latent
        if config is None:
            return 0
        if latent is None:
            return self.hidden * (config.heads + 1) * config.head_dim
        return (latent.q_rank or 0) * config.heads * config.head_dim + self.hidden * (
            config.head_dim + config.heads
        )

    def _feed_forward_parameters(self, kind: Kind, active: bool) -> int:
        """Count the weights of the MLP or the experts."""
        e, moe = self.hidden, self.experts
        if not kind.moe or moe is None:
            inner = self.norm_vectors * self.ffn if self.inner_norms else 0
            return self._mlp_parameters(self.ffn) + inner if kind.feed_forward else 0
        experts = round(moe.routed) if active else moe.experts
        columns = moe.experts + moe.zero
        router = e * columns + (columns if moe.router_bias else 0)
        router += self.norm_vectors * e * moe.result_norm
        shared = (self._mlp_parameters(moe.shared_ffn) if moe.shared_ffn else 0) + (
            e if moe.shared_gate else 0
        )
        return router + shared + self.latent_matrices + experts * self._expert_parameters(moe)

    @property
    def latent_matrices(self) -> int:
        """Weights of the projections to the width of experts and back; 0 where it is the model's."""
        return 0 if self.experts is None else 2 * self.hidden * (self.experts.width or 0)

    def expert_matrices(self, experts: Experts) -> int:
        """Count the weights of the products of one expert."""
        return (self.up_projections + 1) * (experts.width or self.hidden) * experts.ffn

    def _expert_parameters(self, experts: Experts) -> int:
        """Count the weights of one expert, biases included."""
        biases = self.up_projections * experts.ffn + (experts.width or self.hidden)
        return self.expert_matrices(experts) + ("mlp" in self.biases) * biases

    def mlp_matrices(self, f: int) -> int:
        """Count the weights of the up- and down-projections of an MLP of inner width f."""
        receptance = self.hidden * self.hidden if self.channel_mix else 0
        return (self.up_projections + 1) * self.hidden * f + receptance

    def _mlp_parameters(self, f: int) -> int:
        """Count the weights of an MLP of inner width f, biases included."""
        biases = self.up_projections * f + self.hidden if "mlp" in self.biases else 0
        return self.mlp_matrices(f) + biases + (2 * self.hidden if self.channel_mix else 0)

    @property
    def attention_matrices(self) -> int:
        """Weights of the projections of queries, keys, values and the output."""
        e, h, q, v = self.hidden, self.heads, self.head_width, self.value_width
        latent, gate = self.latent, self.hidden * self.heads if self.attention_gate else 0
        if latent is None:
            return e * sum(self.projection_widths) + h * v * e
        queries = e * h * q if latent.q_rank is None else e * latent.q_rank + latent.q_rank * h * q
        keys = e * (latent.kv_rank + latent.rope_dim) + latent.kv_rank * h * (latent.nope_dim + v)
        return queries + keys + h * v * e + gate

    def _attention_parameters(self) -> int:
        """Count the weights of attention: matrices, biases, norms and sinks."""
        if self.latent is not None:  # the latent vectors are normed
            return self.attention_matrices + (self.latent.q_rank or 0) + self.latent.kv_rank
        q, kv = self.heads * self.head_width, self.projection_widths[1]
        bias = self.qkv_bias_width + (self.hidden if "proj" in self.biases else 0)
        norms = {None: 0, "head": (2 - self.reuses_keys) * self.head_width, "full": q + kv, "plain": 0}[
            self.qk_norm
        ]
        norms += self.norm_vectors * self.heads * self.value_width if self.inner_norms else 0
        return self.attention_matrices + bias + norms + (self.heads if self.sinks else 0)

    @property
    def qkv_bias_width(self) -> int:
        """Columns of the projections to queries, keys and values that have a bias."""
        q, k, v = self.projection_widths
        return q + k + v if "qkv" in self.biases else q + v if "qv" in self.biases else 0

    @property
    def cross_matrices(self) -> tuple[int, int]:
        """Weights of attention to the encoder: those the decoder's tokens meet, and the encoder's."""
        if self.encoder is None:
            return 0, 0
        q, k, v = self.projection_widths
        return self.hidden * (q + self.heads * self.value_width), (self.encoder.width or self.hidden) * (
            k + v
        )

    def _cross_parameters(self) -> int:
        """Count the weights of attention to the encoder."""
        return sum(self.cross_matrices) + self.qkv_bias_width + (self.hidden if "proj" in self.biases else 0)

    @property
    def end_parameters(self) -> int:
        """Weights outside of the layers: embedding, positions, final norm, output head."""
        e, norm, own = self.hidden, self.norm_vectors * self.hidden, self.own_width
        weights = self.small_end_weights + sum(i * o for i, o in self.beside_layers)
        weights += sum((i + 1) * o for layers in self.diffusion_ends.values() for i, o in layers)
        if self.patch is not None:
            weights += self._positions + self.patch * e + e + (self.classes or 0) * (e + 1)
            weights += norm * (self.final_norm + self.embedding_norm)
        elif self.vocab is None:
            weights += self._positions
        if self.vocab is None:
            return weights
        wide, head = (e, e) if own is None else (own.width, own.head_width or own.width)
        if self.patch is None:
            weights += self._positions if own is None or own.wide_positions else self._positions // e * wide
        weights += self.vocab * (wide + head * (self.head and not self.tied)) + norm * self.final_norm
        weights += self.norm_vectors * wide * self.embedding_norm + self.token_types * wide
        weights += 0 if own is None else wide * e + e * own.bias
        if not self.head:
            return weights + self.encoder_end_parameters
        weights += self.vocab if self.head_bias else 0
        if self.head_transform:
            weights += e * head + head * self.transform_bias + self.norm_vectors * head
        elif own is not None:
            weights += e * head + head * own.bias
        return weights + self.encoder_end_parameters

    @property
    def _positions(self) -> int:
        """Weights of the table of learned positions, of the width of the layers."""
        return (self.max_positions or self.seq) * self.hidden if self.positions == "learned" else 0

    @property
    def frame_matrices(self) -> tuple[int, int]:
        """Weights of both convolutions that embed sound; the first meets two frames for each token."""
        frame = None if self.encoder is None else self.encoder.frame
        return (0, 0) if frame is None else (3 * frame * self.hidden, 3 * self.hidden**2)

    @property
    def encoder_end_parameters(self) -> int:
        """Weights around the encoder's layers: convolutions, positions, norms; the embedding is shared."""
        if self.encoder is None or not self.encoder.layers:
            return 0
        norms = self.norm_vectors * self.hidden * (self.final_norm + self.embedding_norm)
        frames = 0 if self.encoder.frame is None else sum(self.frame_matrices) + 2 * self.hidden
        return norms + frames + self._variants["encoder"]._positions

    @property
    def mtp_parameters(self) -> int:
        """Weights of multi-token prediction, which published counts leave out, without embedding and head."""
        e, norm = self.hidden, self.norm_vectors * self.hidden
        module = 2 * e * e + 3 * norm  # joins state and embedding, each normed, and norms the result
        return self.mtp * (module + self.kind_parameters(self.last_kind))

    def fine_tuned(self, objective: str, adapters: Adapters | None, documents: Documents | None) -> "Model":
        """Return the model as fine-tuning by an objective of `OBJECTIVES` trains it.

        Raises `InputError` if the model lacks one of the adapters' targets.
        """
        if objective == "sft" and adapters is None and documents is None:
            return self
        reference = objective == "dpo"
        return replace(
            self,
            adapters=adapters or self.adapters,
            reference=reference,
            documents=documents,
            training_sequences=None,
        )

    def with_adapters(self, adapters: Adapters) -> "Model":
        """Return the model with adapters; the length of its pre-training is not that of their training.

        Raises `InputError` if the model lacks one of their targets.
        """
        return replace(self, adapters=adapters, training_sequences=None)

    def with_images(
        self, images: int | None = None, size: int | None = None, frozen: bool = False
    ) -> "Model":
        """Return the model with other images in each sequence, or with its tower frozen.

        Raises `InputError` if it has no tower, or cannot take them (`Tower.with_images`).
        """
        if self.diffusion is not None:
            return self._with_image(self.diffusion, images, size, frozen)
        if self.tower is None:
            raise InputError("images", [f"{self.name} has no vision tower"])
        tower = self.tower.with_images(images, size)
        return replace(self, tower=replace(tower, frozen=frozen or tower.frozen))

    def _with_image(
        self, diffusion: Diffusion, images: int | None, size: int | None, frozen: bool
    ) -> "Model":
        """Return a diffusion model for images of another size; a sequence is one image."""
        problems = [] if size is None or is_whole(size) else [f"image size = {size!r}: {WHOLE}"]
        if not problems and size is not None and (size < diffusion.pixels or size % diffusion.pixels):
            problems.append(f"image size = {size}: must be a multiple of {diffusion.pixels} pixels")
        if images not in (None, 1) or frozen:
            given = "frozen tower" if frozen else f"images = {images}"
            problems.append(f"{given}: a sequence of {self.name} is one image, read by no tower")
        if problems:
            raise InputError("images", problems)
        if size is None:
            return self
        return replace(self, seq=diffusion.text + diffusion.frames * (size // diffusion.pixels) ** 2)

    def with_load(self, load: float | Sequence[float]) -> "Model":
        """Return the model with unevenly loaded experts: the fullest rank's load, or tokens of every expert.

        Raises
        ------
        InputError
            If the model has no experts, or the load is neither a factor of at least 1 nor one count for each
            expert.
        """
        if self.experts is None:
            raise InputError("imbalance", [f"{self.name} has no experts"])
        if isinstance(load, int | float):
            if not 1 <= load < float("inf"):
                raise InputError(
                    "imbalance",
                    [f"{load!r}: must be a factor of at least 1, the fullest rank relative to the mean"],
                )
            return replace(self, experts=replace(self.experts, imbalance=float(load), load=()))
        if any(not 0 <= tokens < float("inf") for tokens in load) or not sum(load):
            raise InputError("imbalance", ["tokens of experts must be finite, none below 0, and not all 0"])
        return replace(self, experts=replace(self.experts, load=tuple(map(float, load))))


@cache
def _counts(kind: type) -> tuple[str, ...]:
    """Return the fields of a dataclass that are whole numbers of at least 1, or None."""
    hints = get_type_hints(kind)
    return tuple(
        item.name for item in fields(kind) if hints[item.name] in (int, int | None) and item.default != 0
    )


def _linear_matrices(config: LinearAttention, hidden: int) -> int:
    """Count the weights of the products of linear attention."""
    return hidden * (config.projected + config.replicated + config.inner) + config.inner_matrices


@dataclass(frozen=True, kw_only=True)
class Tower:
    """Vision tower of a language model: it reads the images of a sequence before the first layer does.

    Images are square. Each has `patches` rows in the tower, and takes `tokens` of the sequence.

    Parameters
    ----------
    layers : Model
        The layers; of this model's sequence length and ends nothing is used.
    patch : int
        Values of a patch, which a linear layer embeds.
    patch_size : int
        Side of a patch [pixel].
    size : int
        Side of an image [pixel].
    merge : int
        Side of the square of patches that become one token of the sequence.
    classes : int
        Rows of an image besides its patches: class tokens.
    patch_bias : bool
        Whether the embedding of patches has a bias.
    small_weights : int
        Weights whose work is not counted: tables of positions, class tokens, norms outside of the layers.
    projectors : tuple of Projector
        What leads to the width of the language model.
    images : int
        Images of a sequence.
    resizable : bool
        Whether it takes images of any size.
    frozen : bool
        Whether the tower is not trained; its projectors are.

    Raises
    ------
    InputError
        If a number is not allowed, or an image does not divide into tokens; all mistakes at once.
    """

    layers: Model
    patch: int
    patch_size: int
    size: int
    merge: int = 1
    classes: int = 0
    patch_bias: bool = True
    small_weights: int = 0
    projectors: tuple[Projector, ...] = ()
    images: int = 1
    resizable: bool = False
    frozen: bool = False

    def __post_init__(self) -> None:
        names = ("patch", "patch_size", "size", "merge", "images")
        problems = [
            f"tower.{name} = {getattr(self, name)!r}: {WHOLE}"
            for name in names
            if not is_whole(getattr(self, name))
        ]
        if not problems and (self._side < self.merge or self._side % self.merge):
            cut = f"{self._side} patches of {self.patch_size} pixels a side"
            problems = [f"tower.size = {self.size}: {cut} do not divide into squares of {self.merge}"]
        problems += [
            f"tower.projectors: widths = {projector.widths}: must be of the input and one or two layers"
            for projector in self.projectors
            if len(projector.widths) not in (2, 3)
        ]
        if problems:
            raise InputError("tower", problems)

    @property
    def _side(self) -> int:
        """Patches along a side of an image."""
        return self.size // self.patch_size

    @property
    def patches(self) -> int:
        """Patches of an image."""
        return self._side**2

    @property
    def tokens(self) -> int:
        """Tokens of the sequence that an image takes."""
        return (self._side // self.merge) ** 2

    @cached_property
    def model(self) -> Model:
        """The tower as a model whose sequences are images."""
        return replace(self.layers, seq=self.patches + self.classes)

    @cached_property
    def parts(self) -> dict[str, int]:
        """Its parts, among those of the whole model, with the number of each."""
        kinds = {PREFIX + str(kind): n for kind, n in Counter(self.layers.pattern).items()}
        return {PATCHES: 1} | kinds | ({PROJECTOR: 1} if self.projectors else {})

    @property
    def tower_parameters(self) -> int:
        """Weights without the projectors."""
        e = self.layers.hidden
        embedding = (self.patch + self.patch_bias) * e
        return embedding + self.layers.layer_parameters() + self.small_weights

    @property
    def projector_parameters(self) -> int:
        """Weights of the projectors."""
        return sum(projector.parameters for projector in self.projectors)

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.tower_parameters + self.projector_parameters

    @property
    def title(self) -> str:
        """What it reads, in a few words."""
        images = f"{self.images} image{'s' if self.images > 1 else ''}"
        frozen = ", its tower frozen" if self.frozen else ""
        return f"{images} of {self.size} × {self.size} in each sequence{frozen}"

    def with_images(self, images: int | None = None, size: int | None = None) -> "Tower":
        """Return the tower with other images: how many in each sequence, and their side [pixel].

        The side is rounded to whole tokens, as image processors do.

        Raises `InputError` if a number is not allowed, or the tower takes images of one size alone.
        """
        problems = [
            f"{name} = {value!r}: {WHOLE}"
            for name, value in (("images", images), ("image size", size))
            if value is not None and not is_whole(value)
        ]
        if size is not None and size != self.size and not self.resizable and not problems:
            fixed = f"the tower takes images of {self.size} × {self.size}, to which larger ones are cut"
            problems.append(f"image size = {size}: {fixed}; give their number as images")
        if problems:
            raise InputError("images", problems)
        step = self.patch_size * self.merge
        side = self.size if size is None or size == self.size else max(round(size / step), 1) * step
        return replace(self, images=self.images if images is None else images, size=side)
