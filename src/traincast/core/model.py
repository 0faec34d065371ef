"""The transformer to be trained."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd
from typing import Final, get_args

from traincast.core.errors import WHOLE, InputError, is_whole
from traincast.core.model_blocks import GATED, Biased, Experts, Kind, Latent, Local, Mlp, Norm, Positions, QkNorm

WORDS: Final[Mapping[str, tuple[str | None, ...]]] = {
    "mlp": get_args(Mlp),
    "norm": get_args(Norm),
    "positions": get_args(Positions),
    "qk_norm": (*get_args(QkNorm), None),
}
COUNTS: Final[Mapping[str, tuple[str, ...]]] = {  # whole numbers of at least 1, where given
    "": ("layers", "hidden", "heads", "ffn", "seq", "kv_heads", "head_dim", "vocab", "max_positions", "patch", "classes"),
    "latent": ("kv_rank", "q_rank", "nope_dim", "rope_dim", "value_dim"),
    "local": ("window",),
    "experts": ("experts", "topk", "ffn", "every"),
}


@dataclass(frozen=True, kw_only=True)
class Model:
    """A transformer. The defaults are the GPT of arXiv 2410.00273, which counts neither embeddings nor a causal mask.

    Parameters
    ----------
    name : str
        Name it is known by.
    layers : int
        Number of transformer layers, L.
    hidden : int
        Embedding width, e.
    heads : int
        Attention heads, h.
    ffn : int
        Width of the MLP's inner layer, f.
    seq : int
        Sequence length, l [tokens].
    kv_heads : int, optional
        Heads of keys and values (grouped-query attention; 1 is multi-query); as many as `heads` if left out.
    head_dim : int, optional
        Width of a head; hidden / heads if left out.
    causal : bool
        Whether a token attends only to those before it.
    latent : Latent, optional
        Multi-head latent attention.
    local : Local, optional
        Sliding-window or chunked attention.
    mlp : {"gelu", "relu", "relu2", "swiglu", "geglu"}
        Activation of the MLP; the last two are gated.
    experts : Experts, optional
        Mixture of experts.
    norm : {"layernorm", "rmsnorm"}
        Kind of norm.
    norms : int
        Norms of a layer: 2, or 4 where the blocks' results are normed as well (Gemma 2 and 3).
    qk_norm : {"head", "full", "plain"}, optional
        How queries and keys are normed, if they are: head by head with one head's weights (Qwen 3, Gemma 3), over all heads with
        weights for each (OLMo 2), or head by head without weights (Llama 4).
    biases : tuple of {"qkv", "proj", "mlp"}
        Linear layers that have a bias.
    sinks : bool
        Whether each head has a learned attention sink (GPT-OSS).
    dropout : bool
        Whether there is dropout.
    inner_dropout : bool
        Whether there is dropout behind the MLP's activation as well, as in arXiv 2410.00273; most models have none there.
    positions : {"none", "rotary", "learned"}
        How positions are told.
    max_positions : int, optional
        Length of the table of learned positions; the sequence length if left out.
    vocab : int, optional
        Tokens of the vocabulary; without it neither embedding nor head is counted.
    tied : bool
        Whether the head shares the embedding's weights.
    mtp : int
        Modules that predict further tokens (DeepSeek-V3, arXiv 2412.19437, section 2.2).
    patch : int, optional
        Values of an image patch, embedded by a linear layer (ViT); takes the place of the token embedding.
    classes : int, optional
        Width of an image classifier's head.
    global_batch : int, optional
        Batch of one optimizer step used where none is given [sequences].
    training_sequences : float, optional
        Length of the whole training run [sequences].
    left_out : str
        Parts that are not described and not counted, such as ``"vision tower"`` where a multimodal model's text part is taken.
    sources : mapping of str to str
        Where each figure comes from.

    Raises
    ------
    InputError
        If a number or word is not allowed, or heads do not divide; all mistakes at once.
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
    latent: Latent | None = None
    local: Local | None = None
    mlp: Mlp = "gelu"
    experts: Experts | None = None
    norm: Norm = "layernorm"
    norms: int = 2
    qk_norm: QkNorm | None = None
    biases: tuple[Biased, ...] = ("proj", "mlp")
    sinks: bool = False
    dropout: bool = True
    inner_dropout: bool = True
    positions: Positions = "none"
    max_positions: int | None = None
    vocab: int | None = None
    tied: bool = False
    mtp: int = 0
    patch: int | None = None
    classes: int | None = None
    global_batch: int | None = None
    training_sequences: float | None = None
    left_out: str = field(default="", compare=False)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        problems = self._no_counts()
        problems += [
            f"{name} = {getattr(self, name)!r}: must be one of {', '.join(map(str, allowed))}"
            for name, allowed in WORDS.items()
            if getattr(self, name) not in allowed
        ]
        if self.norms not in (2, 4):
            problems.append(f"norms = {self.norms!r}: must be 2 or 4")
        if not problems and isinstance(self.hidden, int):
            problems = self._contradictions() + self._uneven_experts()
        if problems:
            raise InputError(f"model {self.name}", problems)

    def _no_counts(self) -> list[str]:
        """Numbers that should be whole and are not; columns and symbols pass."""
        found = []
        for part, names in COUNTS.items():
            owner = getattr(self, part) if part else self
            for name in names:
                value = getattr(owner, name, None)
                if isinstance(value, int | float) and not is_whole(value):
                    found.append(f"{part + '.' if part else ''}{name} = {value!r}: {WHOLE}")
        return found

    def _contradictions(self) -> list[str]:
        """Numbers of attention that do not go together."""
        problems = []
        if self.head_dim is None and self.latent is None and self.hidden % self.heads:
            close = gcd(self.hidden, self.heads)
            problems.append(f"heads = {self.heads}: must divide hidden = {self.hidden}; write for instance {close}")
        if self.head_dim is not None and self.latent is not None:
            problems.append(f"head_dim = {self.head_dim}: latent gives the widths of a head; keep one of the two")
        if self.kv_heads is not None and self.heads % self.kv_heads:
            problems.append(f"kv_heads = {self.kv_heads}: must divide heads = {self.heads}")
        if self.positions == "learned" and self.max_positions is not None and self.max_positions < self.seq:
            problems.append(f"seq = {self.seq}: must be at most max_positions = {self.max_positions}, which are learned")
        far = [layer for layer in self.local.layers if not 1 <= layer <= self.layers] if self.local else []
        if far:
            problems.append(f"local.layers: {far[0]} is none of the layers 1 to {self.layers}")
        return problems

    def _uneven_experts(self) -> list[str]:
        """Numbers of experts that do not go together."""
        one, problems = self.experts, []
        if one is None:
            return []
        if one.topk > one.experts:
            problems.append(f"experts.topk = {one.topk}: must be at most experts = {one.experts}")
        if one.load and len(one.load) != one.experts:
            problems.append(f"experts.load: holds {len(one.load)} numbers; one for each of the {one.experts} experts is wanted")
        if one.load and not sum(one.load):
            problems.append("experts.load: all are 0; at least one expert must get tokens")
        if not 1 <= one.imbalance < float("inf"):
            problems.append(f"experts.imbalance = {one.imbalance!r}: must be a factor of at least 1")
        return problems

    @property
    def title(self) -> str:
        """The name, and what is left out of the model, for the first line of an answer."""
        return f"{self.name} without its {self.left_out}" if self.left_out else self.name

    @property
    def head_width(self) -> int:
        """Width of a head's query and key, q = e/h unless given."""
        if self.latent is not None:
            return self.latent.nope_dim + self.latent.rope_dim
        return self.hidden // self.heads if self.head_dim is None else self.head_dim

    @property
    def value_width(self) -> int:
        """Width of a head's value."""
        return self.head_width if self.latent is None else self.latent.value_dim

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def gated(self) -> bool:
        """Whether the MLP is gated, so that its first layer has twice the width."""
        return self.mlp in GATED

    @property
    def up_projections(self) -> int:
        """Matrices that widen in an MLP: 2 where one gates the other, else 1."""
        return 2 if self.gated else 1

    @property
    def norm_vectors(self) -> int:
        """Weight vectors of a norm: scale and shift of a layer norm, scale of an RMS norm."""
        return 2 if self.norm == "layernorm" else 1

    @cached_property
    def pattern(self) -> tuple[Kind, ...]:
        """Kind of every layer, first to last."""
        return tuple(Kind(self._is_local(i), self._is_moe(i)) for i in range(self.layers))

    def _is_local(self, i: int) -> bool:
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
        """Kind of the last layer, and of the layer inside a multi-token-prediction module."""
        return self.pattern[-1]

    def attended(self, local: bool) -> float:
        """Pairs of query and key that a sequence of `seq` tokens needs in one head, the mask counted."""
        l, near = self.seq, self.local
        if near is None or not local or near.window >= l:
            return l * (l + 1) / 2 if self.causal else float(l * l)
        w = near.window
        if near.chunked:
            whole, rest = l // w, l % w  # chunks, and tokens of the last one where it is shorter
            return (whole * w * (w + 1) + rest * (rest + 1)) / 2 if self.causal else float(whole * w * w + rest * rest)
        return l * w - w * (w - 1) / 2 if self.causal else float(l * w)

    @property
    def parameters(self) -> int:
        """Weights of the model: layers, and embedding and head where they are counted; multi-token prediction left out."""
        return self.layer_parameters() + self.end_parameters

    @property
    def active_parameters(self) -> int:
        """Weights a token meets: of the experts only those it goes to."""
        return self.layer_parameters(active=True) + self.end_parameters

    def layer_parameters(self, active: bool = False) -> int:
        """Weights of the layers, biases and norms included."""
        return sum(n * self.kind_parameters(kind, active) for kind, n in Counter(self.pattern).items())

    def kind_parameters(self, kind: Kind, active: bool = False) -> int:
        """Weights of one layer of a kind."""
        e, one = self.hidden, self.experts
        held = self._attention_parameters() + self.norms * self.norm_vectors * e
        if not kind.moe or one is None:
            return held + self._mlp_parameters(self.ffn)
        used = one.topk if active else one.experts
        router = e * one.experts + (one.experts if one.router_bias else 0)
        shared = (self._mlp_parameters(one.shared_ffn) if one.shared_ffn else 0) + (e if one.shared_gate else 0)
        return held + router + shared + used * self._mlp_parameters(one.ffn)

    def mlp_matrices(self, f: int) -> int:
        """Weights of the matrices of an MLP of inner width f: widen (twice where gated), narrow."""
        return (self.up_projections + 1) * self.hidden * f

    def _mlp_parameters(self, f: int) -> int:
        """Weights of an MLP of inner width f, biases included."""
        return self.mlp_matrices(f) + (self.up_projections * f + self.hidden if "mlp" in self.biases else 0)

    @property
    def attention_matrices(self) -> int:
        """Weights of the matrices that make queries, keys and values, and project the result."""
        e, h, q, v = self.hidden, self.heads, self.head_width, self.value_width
        one = self.latent
        if one is None:
            return e * (h * q + 2 * self.groups * q) + h * q * e
        queries = e * h * q if one.q_rank is None else e * one.q_rank + one.q_rank * h * q
        keys = e * (one.kv_rank + one.rope_dim) + one.kv_rank * h * (one.nope_dim + v)
        return queries + keys + h * v * e

    def _attention_parameters(self) -> int:
        """Weights of attention: matrices, biases, norms and sinks."""
        if self.latent is not None:  # the narrow vectors are normed
            return self.attention_matrices + (self.latent.q_rank or 0) + self.latent.kv_rank
        q, kv = self.heads * self.head_width, self.groups * self.head_width
        bias = (q + 2 * kv if "qkv" in self.biases else 0) + (self.hidden if "proj" in self.biases else 0)
        normed = {None: 0, "head": 2 * self.head_width, "full": q + kv, "plain": 0}[self.qk_norm]
        return self.attention_matrices + bias + normed + (self.heads if self.sinks else 0)

    @property
    def end_parameters(self) -> int:
        """Weights before the first and after the last layer: embedding, positions, final norm, head."""
        e, norm = self.hidden, self.norm_vectors * self.hidden
        ends = (self.max_positions or self.seq) * e if self.positions == "learned" else 0
        if self.patch is not None:
            ends += self.patch * e + e + norm + (self.classes or 0) * (e + 1)
        if self.vocab is not None:
            ends += self.vocab * e * (1 if self.tied else 2) + norm
        return ends

    @property
    def mtp_parameters(self) -> int:
        """Weights of multi-token prediction, which published counts leave out: embedding and head are the main model's."""
        e, norm = self.hidden, self.norm_vectors * self.hidden
        module = 2 * e * e + 3 * norm  # joins state and embedding, each normed, and norms the result
        return self.mtp * (module + self.kind_parameters(self.last_kind))

    def with_load(self, load: float | Sequence[float]) -> "Model":
        """The model with experts loaded unevenly: the fullest rank relative to the mean, or tokens of every expert.

        Raises
        ------
        InputError
            If the model has no experts, or the load is no factor of at least 1 nor one count for each expert.
        """
        if self.experts is None:
            raise InputError("imbalance", [f"{self.name} has no experts"])
        if isinstance(load, int | float):
            if not 1 <= load < float("inf"):
                raise InputError("imbalance", [f"{load!r}: must be a factor of at least 1, the fullest rank relative to the mean"])
            return replace(self, experts=replace(self.experts, imbalance=float(load), load=()))
        if any(not 0 <= one < float("inf") for one in load) or not sum(load):
            raise InputError("imbalance", ["tokens of experts must be finite, none below 0, and not all 0"])
        return replace(self, experts=replace(self.experts, load=tuple(map(float, load))))
