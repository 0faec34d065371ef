"""Transformer models: counts of their parameters, and the vision tower they may have."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log2
from typing import Final, get_args

from traincast.core import InputError, raise_problems, whole_number_problems
from traincast.model.adapted_layers import (
    adapter_parameters,
    adapter_problems,
    adapter_ranks,
    adapter_targets,
    of_type,
)
from traincast.model.adapters import FINE_TUNING_BATCH, PACKED_BYTES, Adapters
from traincast.model.architecture import Architecture
from traincast.model.blocks import Diffusion, Experts, Kind, Projector, Routing
from traincast.model.checks import count_problems, kind_problems, part_problems, word_problems
from traincast.model.documents import Documents
from traincast.model.linear_attention import LinearAttention

TOWER_PREFIX: Final = "vision "  # of the names of a tower's kinds of layers among the parts of a model
PATCHES: Final = "vision patches"
PROJECTOR: Final = "projector"


@dataclass(frozen=True, kw_only=True)
class Model(Architecture):
    """Transformer model; `Architecture` holds the meaning of each figure.

    Raises
    ------
    InputError
        If a number or word is not allowed, or figures contradict each other; all mistakes at once.
    """

    tower: "Tower | None" = None  # vision tower, whose images take a part of each sequence

    def __post_init__(self) -> None:
        problems = [*count_problems(self), *word_problems(self)]
        if not problems and isinstance(self.hidden, int):
            problems = [*kind_problems(self)]
            problems = problems or [*part_problems(self), *adapter_problems(self), *self._tower_problems()]
        raise_problems(f"model {self.name}", problems)

    def _tower_problems(self) -> list[str]:
        """Return a line if the images of a sequence take more tokens than it has, or are made, not read."""
        tower = self.tower
        if tower is not None and self.diffusion is not None:
            return ["tower: not modelled in a diffusion model"]
        if tower is None:
            return []
        taken = tower.images * tower.tokens
        if self.encoder is not None:  # what the layers attend to is the tower's
            held = self.encoder.seq == taken and not self.encodes
            return (
                [] if held else [f"encoder.seq = {self.encoder.seq}: must be the {taken} tokens of the tower"]
            )
        if taken <= self.seq:
            return []
        return [f"seq = {self.seq}: must hold the {taken} tokens of {tower.title}"]

    @cached_property
    def adapter_targets(self) -> frozenset[str]:
        """Linear layers with an adapter; a group stands for those of its layers that the model has."""
        return adapter_targets(self)

    def adapter_ranks(self, experts: bool) -> Mapping[str, int]:
        """Return the rank of the adapter of each linear layer that has one: of experts, or of all else."""
        return adapter_ranks(self, experts)

    @property
    def title(self) -> str:
        """Name, parts left out, encoder, and what is trained, for the first line of an answer."""
        name = f"{self.name} without its {self.left_out}" if self.left_out else self.name
        if self.encoder is not None and self.tower is None:
            unit = "frames" if self.reads_audio else "tokens"
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
        parts += ["SFT of all weights"] if self.supervised else []
        parts += [self.adapters.title] if self.adapters is not None else []
        return ", ".join([*parts, *([self.documents.title(self.seq)] if self.documents is not None else [])])

    @property
    def parameters(self) -> int:
        """Weights of the layers, of the tower, and of embedding and head if `vocab` is given; no `mtp`."""
        return self.layer_parameters() + self.end_parameters + self.tower_parameters

    @property
    def tower_parameters(self) -> int:
        """Weights of the vision tower and its projectors; 0 without one."""
        return 0 if self.tower is None else self.tower.parameters

    @property
    def is_fine_tuned(self) -> bool:
        """Whether adapters are trained, or all weights go on with answers (SFT) or pairs of them (DPO)."""
        return self.adapters is not None or self.reference or self.supervised

    @property
    def usual_batch(self) -> int:
        """Global batch where none is given [sequences]: that of fine-tuning, or 4M tokens.

        Llama 2 and 3 began with 4M tokens (arXiv 2307.09288). It is a power of two, so that usual degrees
        divide it.
        """
        if self.is_fine_tuned:
            return FINE_TUNING_BATCH
        return int(2 ** max(round(log2(4 * 2**20 / self.seq)), 0))

    @property
    def is_packed(self) -> bool:
        """Whether frozen weights are packed by bitsandbytes (QLoRA)."""
        return self.adapters is not None and self.adapters.base in PACKED_BYTES

    @property
    def trained_parameters(self) -> int:
        """Weights that are trained: those of the adapters where there are any, else all, `mtp` included."""
        if self.adapters:
            return adapter_parameters(self)
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
        model = self.for_kind(kind)
        norms = self.norms if kind.is_pair else self.norms // 2
        blocks = model._mixer_parameters(kind) + model._feed_forward_parameters(kind, active)
        if kind.crosses:
            blocks += self._cross_parameters()
            norms += self.norms // 2 if kind.attends else 0
        if self.diffusion is not None and not active:  # a token meets one stream, and what samples share
            blocks += self._conditioned_parameters(self.diffusion, kind, blocks)
        beside = sum(i * o for i, o in self.beside)
        if self.streams > 1:
            blocks += (2 if kind.is_pair else 1) * (self.stream_matrices + self.stream_small_weights)
        return blocks + norms * self.norm_vectors * self.hidden + model.small_weights + beside

    @property
    def stream_matrices(self) -> int:
        """Weights of the product that mixes the copies of the residual stream around one block."""
        n = self.streams
        return n * self.hidden * n * (n + 2) if n > 1 else 0

    @property
    def stream_small_weights(self) -> int:
        """Weights of its biases and scales."""
        return self.streams * (self.streams + 2) + 3

    def _conditioned_parameters(self, diffusion: Diffusion, kind: Kind, blocks: int) -> int:
        """Count what a layer for diffusion has besides its `blocks`: those of text, and modulation."""
        e = self.hidden
        text = blocks if kind.joint else 0
        if kind.mixer == "joint-last":  # of text, keys and values alone are read afterwards
            text -= self._mlp_parameters(self.ffn) + self.heads * self.value_width * e
            text -= e if "proj" in self.biases else 0
        return text + (0 if diffusion.shared else diffusion.vectors(kind) * e * (e + 1))

    @property
    def diffusion_ends(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """Linear layers of a diffusion model outside of its layers, by whether they run for each token."""
        diffusion = self.diffusion
        e = self.hidden
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

    def _mixer_parameters(self, kind: Kind) -> int:
        """Count the weights of what mixes tokens, without the norm before it."""
        config = self.linear_attention(kind)
        attention = self._attention_parameters() if kind.attends else 0
        if kind.mixer == "indexed" and self.indexer is not None:  # with the norm of its keys
            attention += self.indexer_matrices + 2 * self.indexer.head_dim
        attention += self._compressed_matrices(kind)
        if kind.compressed and self.compressed is not None and self.latent is not None:
            attention += self.compressed.small_weights(kind, self.latent.kv_rank)
            if kind.mixer == "compressed-indexed" and self.indexer is not None:
                attention += self.compressed.small_weights(kind, self.indexer.head_dim)
        if config is None:
            return attention
        counts = config.counts
        small = counts.conv_weights + counts.small_weights + (counts.projected + self.hidden) * config.bias
        return attention + _linear_matrices(config, self.hidden) + small

    def _compressed_matrices(self, kind: Kind) -> int:
        """Count the weights of the projections to compressed keys, and of the indexer among them."""
        latent = self.latent
        config = self.compressed
        indexer = self.indexer
        if not kind.compressed or config is None or latent is None:
            return 0
        keys = self.hidden * config.columns(kind, latent.kv_rank)
        if kind.mixer == "compressed" or indexer is None:
            return keys
        queries = (latent.q_rank or 0) * indexer.heads * indexer.head_dim
        return keys + queries + self.hidden * (config.columns(kind, indexer.head_dim) + indexer.heads)

    def mixer_matrices(self, kind: Kind) -> int:
        """Count the weights of the projections of what mixes tokens, without those to an encoder."""
        config = self.linear_attention(kind)
        linear = 0 if config is None else _linear_matrices(config, self.hidden)
        index = self.indexer_matrices if kind.mixer == "indexed" else self._compressed_matrices(kind)
        return linear + index + (self.for_kind(kind).attention_matrices if kind.attends else 0)

    @property
    def indexer_matrices(self) -> int:
        """Weights of the indexer's projections: to queries, to one key of all heads, to weights of heads."""
        config = self.indexer
        latent = self.latent
        if config is None:
            return 0
        if latent is None:
            return self.hidden * (config.heads + 1) * config.head_dim
        queries = (latent.q_rank or 0) * config.heads * config.head_dim
        return queries + self.hidden * (config.head_dim + config.heads)

    def _feed_forward_parameters(self, kind: Kind, active: bool) -> int:
        """Count the weights of the MLP or the experts."""
        e = self.hidden
        moe = self.experts
        if not kind.moe or moe is None:
            inner = self.norm_vectors * self.ffn if self.inner_norms else 0
            return self._mlp_parameters(self.ffn) + inner if kind.feed_forward else 0
        experts = round(moe.routed) if active else moe.experts
        columns = moe.experts + moe.zero
        router = e * columns + (columns if moe.router_bias else 0)
        router += self.norm_vectors * e * moe.result_norm
        shared = e * moe.shared_gate + (self._mlp_parameters(moe.shared_ffn) if moe.shared_ffn else 0)
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
        e = self.hidden
        h = self.heads
        q = self.head_width
        v = self.value_width
        latent = self.latent
        gate = self.hidden * self.heads if self.attention_gate else 0
        if latent is None:
            return e * sum(self.projection_widths) + h * v * e
        queries = e * h * q if latent.q_rank is None else e * latent.q_rank + latent.q_rank * h * q
        up = 0 if latent.shared else latent.kv_rank * h * (latent.nope_dim + v)
        proj = h * v * e
        rank = latent.proj_rank
        if rank is not None:  # group by group to `rank` numbers, and from these
            proj = h * v * rank + latent.proj_groups * rank * e
        return queries + e * latent.down + up + proj + gate

    def _attention_parameters(self) -> int:
        """Count the weights of attention: matrices, biases, norms and sinks."""
        if self.latent is not None:  # the latent vectors are normed
            norms = (self.latent.q_rank or 0) + self.latent.kv_rank
            return self.attention_matrices + norms + (self.heads if self.sinks else 0)
        q = self.heads * self.head_width
        kv = self.projection_widths[1]
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
        if "qkv" in self.biases:
            return q + k + v
        return q + v if "qv" in self.biases else 0

    @property
    def cross_matrices(self) -> tuple[int, int]:
        """Weights of attention to the encoder: those the decoder's tokens meet, and the encoder's."""
        if self.encoder is None:
            return 0, 0
        q, k, v = self.projection_widths
        width = self.encoder.width or self.hidden
        return self.hidden * (q + self.heads * self.value_width), width * (k + v)

    def _cross_parameters(self) -> int:
        """Count the weights of attention to the encoder."""
        normed = 2 * self.head_width if self.encoder is not None and self.encoder.qk_norm else 0
        biases = self.qkv_bias_width + (self.hidden if "proj" in self.biases else 0)
        return sum(self.cross_matrices) + biases + normed

    @property
    def end_parameters(self) -> int:
        """Weights outside of the layers: embedding, positions, final norm, output head."""
        e = self.hidden
        norm = self.norm_vectors * self.hidden
        own = self.own_width
        weights = self.small_end_weights + sum(i * o for i, o in self.beside_layers)
        if self.streams > 1:  # before the last norm
            weights += self.streams**2 * e + self.streams + 1
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
        e = self.hidden
        norm = self.norm_vectors * self.hidden
        module = 2 * e * e + 3 * norm  # joins state and embedding, each normed, and norms the result
        return self.mtp * (module + sum(map(self.kind_parameters, self.mtp_pattern)))

    @property
    def training_tokens(self) -> float | None:
        """Tokens of the whole training [token]; None where its length is not known."""
        return None if self.training_sequences is None else self.training_sequences * self.seq

    def fine_tuned(
        self,
        objective: str,
        adapters: Adapters | None,
        documents: Documents | None,
        supervised: bool = False,
    ) -> "Model":
        """Return the model as training by an objective of `FINE_TUNING_OBJECTIVES` trains it.

        All weights of "sft" may be trained as in pre-training, or are fine-tuned on answers (`supervised`).
        Batch and length of pre-training are not those of fine-tuning.

        Raises `InputError` if the model lacks one of the adapters' targets.
        """
        if objective == "sft" and adapters is None and documents is None and not supervised:
            return self
        is_tuned = objective == "dpo" or adapters is not None or supervised or self.is_fine_tuned
        return replace(
            self,
            adapters=of_type(adapters, self.transformers_type) if adapters else self.adapters,
            reference=objective == "dpo",
            supervised=supervised and adapters is None,
            documents=documents,
            training_sequences=None,
            global_batch=None if is_tuned else self.global_batch,
        )

    def with_adapters(self, adapters: Adapters) -> "Model":
        """Return the model with adapters; batch and length of its pre-training are not those of theirs.

        Raises `InputError` if the model lacks one of their targets.
        """
        return self.fine_tuned("dpo" if self.reference else "sft", adapters, self.documents)

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
        tower = replace(tower, frozen=frozen or tower.frozen)
        read = self.encoder and replace(self.encoder, seq=tower.images * tower.tokens)
        return replace(self, tower=tower, encoder=read)

    def _with_image(
        self, diffusion: Diffusion, images: int | None, size: int | None, frozen: bool
    ) -> "Model":
        """Return a diffusion model for images of another size; a sequence is one image."""
        problems = [] if size is None else whole_number_problems("image size", size)
        if not problems and size is not None and (size < diffusion.pixels or size % diffusion.pixels):
            problems.append(f"image size = {size}: must be a multiple of {diffusion.pixels} pixels")
        if images not in (None, 1) or frozen:
            given = "frozen tower" if frozen else f"images = {images}"
            problems.append(f"{given}: a sequence of {self.name} is one image, read by no tower")
        raise_problems("images", problems)
        if size is None:
            return self
        return replace(self, seq=diffusion.text + diffusion.frames * (size // diffusion.pixels) ** 2)

    def with_load(self, load: float | Sequence[float] | Routing) -> "Model":
        """Return the model with unevenly loaded experts: the fullest rank's load, or tokens of every expert.

        In words it is that of natural routing, which grows with the ranks, or of forced balance.

        Raises
        ------
        InputError
            If the model has no experts, or the load is neither a factor of at least 1 nor one count for each
            expert.
        """
        if self.experts is None:
            raise InputError("imbalance", [f"{self.name} has no experts"])
        if isinstance(load, str):
            if load not in get_args(Routing):
                one_of = ", ".join(get_args(Routing))
                raise InputError("imbalance", [f"{load!r}: must be a number, or one of {one_of}"])
            return replace(self, experts=replace(self.experts, imbalance=1.0, load=(), routing=load))
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


def _linear_matrices(config: LinearAttention, hidden: int) -> int:
    """Count the weights of the products of linear attention."""
    counts = config.counts
    return hidden * (counts.projected + counts.replicated + counts.inner) + counts.inner_matrices


@dataclass(frozen=True, kw_only=True)
class Tower:
    """Vision tower of a language model: it reads the images of a sequence before the first layer does.

    Images are square. Each has `patches` rows in the tower, and takes `tokens` of the sequence; in a model
    with an `encoder` the layers that `layer_kinds` calls cross attend to these instead.

    Raises `InputError` if a number is not allowed, or an image does not divide into tokens; all at once.
    """

    layers: Model  # of whose sequence length and ends nothing is used
    patch: int  # values of a patch, which a linear layer embeds
    patch_size: int  # side of a patch [pixel]
    size: int  # side of an image [pixel]
    merge: int = 1  # side of the square of patches that become one token of the sequence
    tiles: int = 1  # images of `size` that a larger one is cut to, which the tower reads at once
    classes: int = 0  # rows of a tile besides its patches: class tokens, and rows that fill it up
    kept: int = 0  # those of them that are tokens of the model
    patch_bias: bool = True  # whether the embedding of patches has a bias
    # Weights whose work is not counted: tables of positions, class tokens, norms outside of the layers.
    small_weights: int = 0
    projectors: tuple[Projector, ...] = ()  # to the width of the language model
    images: int = 1  # images of a sequence
    resizable: bool = False  # whether it takes images of any size
    frozen: bool = False  # whether the tower is not trained; its projectors are

    def __post_init__(self) -> None:
        names = ("patch", "patch_size", "size", "merge", "tiles", "images")
        problems = [
            problem
            for name in names
            for problem in whole_number_problems(f"tower.{name}", getattr(self, name))
        ]
        if not problems and (self._side < self.merge or self._side % self.merge):
            cut = f"{self._side} patches of {self.patch_size} pixels a side"
            problems = [f"tower.size = {self.size}: {cut} do not divide into squares of {self.merge}"]
        problems += [
            f"tower.projectors: widths = {projector.widths}: must be of the input and one or two layers"
            for projector in self.projectors
            if len(projector.widths) not in (2, 3)
        ]
        raise_problems("tower", problems)

    @property
    def _side(self) -> int:
        """Patches along a side of an image."""
        return self.size // self.patch_size

    @property
    def patches(self) -> int:
        """Patches of an image."""
        return self.tiles * self._side**2

    @property
    def tokens(self) -> int:
        """Tokens of the sequence that an image takes, or that layers attend to."""
        return self.tiles * ((self._side // self.merge) ** 2 + self.kept)

    @cached_property
    def model(self) -> Model:
        """The tower as a model whose sequences are images."""
        return replace(self.layers, seq=self.patches + self.tiles * self.classes)

    @cached_property
    def parts(self) -> dict[str, int]:
        """Its parts, among those of the whole model, with the number of each."""
        kinds = {TOWER_PREFIX + str(kind): n for kind, n in Counter(self.layers.pattern).items()}
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
            problem
            for name, value in (("images", images), ("image size", size))
            if value is not None
            for problem in whole_number_problems(name, value)
        ]
        if size is not None and size != self.size and not self.resizable and not problems:
            fixed = f"the tower takes images of {self.size} × {self.size}, to which larger ones are cut"
            problems.append(f"image size = {size}: {fixed}; give their number as images")
        raise_problems("images", problems)
        step = self.patch_size * self.merge
        side = self.size if size is None or size == self.size else max(round(size / step), 1) * step
        return replace(self, images=self.images if images is None else images, size=side)
