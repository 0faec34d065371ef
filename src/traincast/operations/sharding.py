"""Sharding of a layer: 1-D tensor parallelism (Megatron), with context parallelism, and 2-D (SUMMA).

The classes differ in where tokens and widths are sharded. b micro-batch, l sequence, e hidden, f inner width,
m1 and m2 the two degrees: tp, and tp2 or cp. Shapes are divided first (floor), then multiplied by b, as the
reference model does (arXiv 2410.00273, operations of a layer). Shapes are numbers or columns over plans.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from traincast.core import Assumptions, Column, Plans
from traincast.model import Kind, Model
from traincast.operations import attention, elementwise
from traincast.operations.attention import Heads, gather_comms
from traincast.operations.linear import MatmulSizes, Routed, linear, summa_linear
from traincast.operations.operation import Axis, Collective, CollectiveKind, Comms, Operation, PassCount

ATTENTION: Final = Kind("attention", "")


@dataclass(frozen=True)
class Sharding(ABC):
    """Local shapes, communication and linear layers of a layer on one rank."""

    model: Model
    plan: Plans
    assumptions: Assumptions

    sequence_axis: Axis = "cp"  # group that the sequence is sharded over, besides tensor parallelism

    @cached_property
    def E(self) -> Column:
        """Size of an element [byte]."""
        return self.plan.recipe.width * self.assumptions.memory.element_bytes

    @cached_property
    def fp32(self) -> Column:
        """Size of an element in fp32 [byte]."""
        return 2 * self.assumptions.memory.element_bytes  # that of 16 bits

    @property
    def copies_norm_inputs(self) -> bool:
        """Whether a norm saves a copy of its input in fp32."""
        return self.assumptions.memory.norms_in_fp32 and self.model.norm.startswith("rms")

    def norm_bytes(self, rows: Column, width: Column, vectors: int) -> Column:
        """Return the memory that a norm saves, with `vectors` weights per column [byte].

        A fused one saves its input. From single operations (transformers 5.23, `LlamaRMSNorm`) the input in
        fp32, the factor of each row, and the normed input where its weights are trained.
        """
        n = rows * width
        if not self.assumptions.memory.norms_in_fp32:
            return self.E * n
        if not self.copies_norm_inputs:
            return self.E * n + 2 * self.fp32 * rows  # mean and deviation
        normed = self.E * n if vectors and self.model.adapters is None else 0 * self.E
        return self.fp32 * (n + rows) + normed

    @cached_property
    def sizes(self) -> MatmulSizes:
        """Element sizes of linear layers at the rate of the precision recipe."""
        recipe = self.plan.recipe
        assumed = self.assumptions
        if not recipe.is_low or (self.model.plain and recipe.rate == "fp4"):
            return self.plain_sizes
        casts = assumed.traffic.cast_passes
        weight_casts = assumed.traffic.weight_cast_passes
        saved_operand = recipe.operand if assumed.memory.saves_casts else 1
        accumulated = self.plain_sizes.accumulated
        casts = recipe.casts * casts
        weight_casts = recipe.casts * weight_casts
        return MatmulSizes(self.E, recipe.operand, accumulated, casts, weight_casts, True, saved_operand)

    @cached_property
    def plain_sizes(self) -> MatmulSizes:
        """Element sizes of linear layers that stay at 16 bits or above: embedding, router, head."""
        passes = self.assumptions.traffic.accumulation_passes
        width = self.plan.recipe.width
        return MatmulSizes(self.E, 1, self.plan.gradient_bytes * passes / (2 * width))  # 2 bytes of 16 bits

    @cached_property
    def tokens(self) -> Column:
        """Tokens of one micro-batch on the rank, T = b (l/m2)."""
        return self.plan.mbs * (self.model.seq // self.plan.context)

    @cached_property
    @abstractmethod
    def residual_shape(self) -> tuple[Column, Column]:
        """Rows and width of the rank's part of the residual stream, the activation between blocks."""

    @abstractmethod
    def column_parallel(self, name: str, i: Column, o: Column, routed: Routed | None = None) -> Operation:
        """Return a linear layer from width i to o, its output sharded over tensor ranks; first of a block.

        It works on the rank's tokens, or on the rows that are `routed` to its experts.
        """

    @abstractmethod
    def row_parallel(self, name: str, i: Column, o: Column, routed: Routed | None = None) -> Operation:
        """Return a linear layer from width i to o, its input sharded over tensor ranks; last of a block."""

    @abstractmethod
    def replicated_linear(self, name: str, inputs: Column, outputs: Column) -> Operation:
        """Return a linear layer to a narrow width: every rank has all weights and works on its own tokens."""

    @abstractmethod
    def projection(self, name: str, local: Column, inputs: int) -> Operation:
        """Return the linear layer onto the vocabulary, `local` rows on the rank, at 16 bits or above."""

    @abstractmethod
    def partial_sum_comms(self, width: Column) -> tuple[Comms, Comms]:
        """Return the communication that sums a result of this width over tensor ranks, in both passes."""

    @abstractmethod
    def gather_narrow(self, width: Column) -> Comms:
        """Return the communication that gathers tokens, such as the narrow result of `replicated_linear`."""

    @abstractmethod
    def norm(self, name: str, gather: bool = True, returned: bool = True) -> Operation:
        """Return a norm of the residual stream, gathered for the next linear layer (if `gather`).

        Its backward pass gathers the gradient for the last linear layer of the block that follows (if
        `returned`).
        """

    def partial_row_parallel(self, name: str, i: Column, o: Column) -> Operation:
        """Return a row-parallel layer whose partial sums are reduced with those of a parallel block."""
        return self.row_parallel(name, i, o)

    @abstractmethod
    def row_parallel_bias_shape(self, ends_layer: bool) -> tuple[Column, Column]:
        """Return tokens and width of a row-parallel layer's bias; that of the MLP `ends_layer`."""

    def row_parallel_bias(self, name: str, ends_layer: bool = False) -> Operation:
        """Return the bias of a row-parallel layer."""
        return elementwise.bias(name, self.E, *self.row_parallel_bias_shape(ends_layer))

    def column_parallel_bias(self, name: str, width: Column) -> Operation:
        """Return the bias of a column-parallel layer of full width `width`."""
        return elementwise.bias(name, self.E, self.tokens, self.local(width))

    @property
    def kv_heads(self) -> Column:
        """Heads of keys and values, counted once for each tensor rank that has them."""
        return -(-self.model.groups // self.plan.tp) * self.plan.tp

    @property
    def qkv_bias_width(self) -> Column:
        """Columns of the projections to queries, keys and values that have a bias, as `kv_heads` counts."""
        model = self.model
        kv = self.kv_heads
        if model.reuses_keys:
            return model.projection_widths[0]
        keys = kv * model.head_width if "qkv" in model.biases else 0
        values = 0 if model.keys_are_values else kv * model.value_width
        return model.projection_widths[0] + keys + values

    @property
    def qkv_width(self) -> Column:
        """Columns of the projection to queries, keys and values, as `kv_heads` counts."""
        model = self.model
        if model.reuses_keys:
            return model.projection_widths[0]
        pair = model.head_width + (0 if model.keys_are_values else model.value_width)
        return model.projection_widths[0] + self.kv_heads * pair

    def inner_norm(self, name: str, width: Column) -> Operation:
        """Return a norm of a row-parallel layer's input; ranks sum two numbers of a token."""
        sums = (Collective("all-reduce", 2 * self.E * self.tokens, "tp"),)
        vectors = self.model.norm_vectors
        return elementwise.norm(name, self.E, self.tokens, self.local(width), sums, sums, vectors)

    def local(self, width: Column) -> Column:
        """Return the part of a width that is on the rank."""
        return width // self.plan.tp

    def dropout(self, name: str, elements: Column | None = None) -> Operation:
        """Return dropout on the rank, that of the residual stream if `elements` is left out."""
        rows, width = self.residual_shape
        n = rows * width if elements is None else elements
        return elementwise.dropout(name, self.E, self.assumptions.memory.mask_bytes, n)

    def gate_bytes(self, elements: Column) -> Column:
        """Return the memory of a gated MLP's activated gate, if it is saved as well [byte]."""
        saved = self.assumptions.memory.saves_elementwise and self.model.gated
        return self.E * elements * float(saved)

    @property
    def saved_gate_share(self) -> float:
        """Saved size of the inputs of a dense MLP's activation over that of 16-bit ones."""
        narrow = self.assumptions.memory.adapters_save_8bit_gates and self.plan.recipe.is_low
        return 0.5 if narrow and self.model.adapters is not None else 1.0

    def share(self, local: bool = False) -> Any:
        """Return the share of all pairs that fused attention computes."""
        model = self.model
        skipped = self.assumptions.attention.causal_skipping
        if not (model.causal or local or model.documents):
            return 1
        return 1 - skipped * (1 - model.attended_pairs(local) / (model.seq * model.seq))

    def heads(self, kind: Kind = ATTENTION, keys: int | None = None) -> Heads:
        """Return the shapes of core attention on the local heads, queries sharded over the sequence.

        Its keys are `keys` tokens of another sequence, all of them on the rank, or those of the model's own.
        """
        model = self.model
        plan = self.plan
        head_shards = plan.tp * plan.ulysses
        selects = kind.indexed or kind.compressed
        latent = model.latent
        share = model.attention_pairs(kind) / (model.seq * model.seq) if selects else self.share(kind.local)
        if latent is not None and (kind.indexed or latent.shared):  # all heads read one, which holds values
            lq = model.seq // plan.context
            width = latent.kv_rank
            shape = plan.mbs, model.heads // plan.tp, 1, lq, model.seq
            return Heads(*shape, latent.down, width, share, values_in_keys=True)
        kv = -(-model.groups // head_shards)  # keys and values with fewer heads than ranks are replicated
        lq = model.seq // plan.context * plan.ulysses
        q = model.head_width
        v = model.value_width
        if keys is not None:
            return Heads(plan.mbs, model.heads // head_shards, kv, lq, keys, q, v, lk=keys)
        return Heads(plan.mbs, model.heads // head_shards, kv, lq, model.seq, q, v, share)

    def attention(self, kind: Kind = ATTENTION, keys: int | None = None) -> Iterator[Operation]:
        """Yield core attention, to `keys` tokens of another sequence where they are given."""
        at = self.heads(kind, keys)
        plan = self.plan
        assumed = self.assumptions
        recompute = "attention" in plan.recomputed
        is_fused = plan.attention == "flash" or kind.indexed or kind.compressed
        expanded = ("always",) if is_fused else ("always", "unfused")
        if assumed.memory.expands_keys in expanded and plan.cp_kind == "none":
            at = replace(at, kv=at.h)
        if is_fused:
            copies = self.saved_results
            comms = self._context_comms(at)
            rounds = self._ring_rounds()
            yield attention.flash(self.E, at, comms, rounds, copies, recompute, self.model.dropout)
        else:
            yield from attention.unfused_attention(
                self.E,
                assumed.memory.mask_bytes,
                at,
                self.sequence_axis,
                recompute,
                self.model.dropout,
                passes=(assumed.traffic.softmax_passes, assumed.traffic.unfused_softmax_passes),
                launches=assumed.host.unfused_softmax_launches,
                result=self.fp32 if assumed.memory.softmax_in_fp32 else None,
            )

    @property
    def saved_results(self) -> Column:
        """Copies of its result that fused attention saves, besides the input of the output projection.

        That is saved in low precision where the recipe says so, and the result of attention at 16 bits. A
        frozen projection saves no input, and an adapter its own at 16 bits.
        """
        copies = self.assumptions.memory.saves_attention_output
        if self.model.adapters is not None:
            return copies if "proj" in self.model.adapter_targets or self.model.attention_gate else 1
        return 1 if self.sizes.saved_operand != 1 else copies

    def _ring_rounds(self) -> Column | None:
        """Return the rounds of ring attention beyond the first; None without a ring."""
        return self.plan.cp / self.plan.ulysses - 1 if self.plan.cp_kind in ("ring", "hybrid") else None

    def _context_comms(self, at: Heads) -> tuple[Comms, Comms]:
        """Return the communication of context parallelism: keys and values, or heads (Ulysses)."""
        plan = self.plan
        kv_bytes = self.E * at.kv_elements
        if plan.cp_kind == "ulysses":
            elements = at.b * at.lq * (at.h * (at.q + at.v) + at.kv * (at.q + at.v)) / plan.ulysses
            return (self._exchange(elements * plan.ulysses),) * 2
        if plan.cp_kind in ("ring", "hybrid"):
            block = kv_bytes * plan.ulysses / plan.cp  # backward sends the gradients as well
            return (Collective("send", block, "cp"),), (Collective("send", 2 * block, "cp"),)
        return gather_comms(kv_bytes, self.sequence_axis)

    def exchange_heads(self) -> Operation | None:
        """Return the all-to-all of heads around attention (Ulysses); None if fused attention includes it."""
        kind = self.plan.cp_kind
        if kind != "hybrid" and (kind != "ulysses" or self.plan.attention == "flash"):
            return None
        at = self.heads()
        both_ways = PassCount((), 0 * self.E, self._exchange(at.b * at.lq * (at.h + at.kv) * (at.q + at.v)))
        return Operation("attention.exchange", both_ways, both_ways)

    def _exchange(self, elements: Column) -> Comms:
        """Return the all-to-all of the elements of queries, result, keys and values."""
        return (Collective("all-to-all", self.E * elements, "ulysses"),)


class OneD(Sharding):
    """1-D tensor parallelism (Megatron), with sequence parallelism between blocks unless `sp` is off.

    Inside a block, widths are sharded over m1. Between blocks, tokens are.
    """

    @property
    def _token_shards(self) -> Column:
        """Number of tensor ranks that the tokens between blocks are sharded over."""
        return self.plan.tp if self.plan.sp else 1.0

    @cached_property
    def residual_shape(self) -> tuple[Column, Column]:
        """Rows and width: b (l/m2/m1) rows of full width."""
        return self.plan.mbs * (self.model.seq // self.plan.context // self._token_shards), self.model.hidden

    def _scatter(self, width: Column) -> Comms:
        """Return the sum over tensor ranks of full tokens: reduce-scatter, or all-reduce without `sp`."""
        kind: CollectiveKind = "reduce-scatter" if self.plan.sp else "all-reduce"
        return (Collective(kind, self.E * self.tokens * width, "tp"),)

    def _gather(self, width: Column, operand: bool = False) -> Comms:
        """Return the all-gather of tokens at full width, none without `sp`; an operand may be cast before."""
        size = self.sizes.operand if operand and self.assumptions.collectives.gathers_operands else 1
        return (Collective("all-gather", size * self.E * self.tokens * width, "tp"),) if self.plan.sp else ()

    @property
    def _cast_share(self) -> Column:
        """Share of gathered tokens that a rank casts: its own part if casts come first."""
        return 1 / self.plan.tp if self.plan.sp and self.assumptions.collectives.gathers_operands else 1

    def column_parallel(self, name: str, i: Column, o: Column, routed: Routed | None = None) -> Operation:
        """Return w[i, o/m1]; the input gradient is reduce-scattered."""
        if routed is not None:
            return linear(name, self.sizes, routed.rows, i, o // self.plan.etp, copies=routed.experts)
        saves_all = self.assumptions.memory.saves_gathered or not self.plan.sp
        saved_tokens = self.tokens if saves_all else self.residual_shape[0]
        second_gather = () if saves_all else self._gather(i, operand=True)
        backward = (*second_gather, *self._scatter(i))
        cast = (self._cast_share, 1)
        shape = self.tokens, i, o // self.plan.tp
        return linear(name, self.sizes, *shape, backward=backward, saved_tokens=saved_tokens, cast=cast)

    def row_parallel(self, name: str, i: Column, o: Column, routed: Routed | None = None) -> Operation:
        """Return w[i/m1, o]; the output is reduce-scattered."""
        if routed is not None:
            return linear(name, self.sizes, routed.rows, i // self.plan.etp, o, copies=routed.experts)
        cast = 1, self._cast_share
        return linear(name, self.sizes, self.tokens, i // self.plan.tp, o, self._scatter(o), cast=cast)

    def partial_row_parallel(self, name: str, i: Column, o: Column) -> Operation:
        """Return w[i/m1, o] without a reduction of the output."""
        layer = self.row_parallel(name, i, o)
        return replace(layer, forward=replace(layer.forward, collectives=()))

    def replicated_linear(self, name: str, inputs: Column, outputs: Column) -> Operation:
        """Return the layer on the rank's own tokens; the norm that follows gathers the narrow result."""
        return linear(name, self.sizes, self.residual_shape[0], inputs, outputs)

    def gather_narrow(self, width: Column) -> Comms:
        """Return an all-gather over tensor ranks."""
        return self._gather(width)

    def projection(self, name: str, local: Column, inputs: int) -> Operation:
        """Return a column-parallel layer on gathered tokens."""
        saves_all = self.assumptions.memory.saves_gathered or not self.plan.sp
        saved = self.tokens if saves_all else self.residual_shape[0]
        shape = (self.tokens, inputs, local)
        backward = self._scatter(inputs)
        return linear(name, self.plain_sizes, *shape, backward=backward, saved_tokens=saved)

    def partial_sum_comms(self, width: Column) -> tuple[Comms, Comms]:
        """Return the reduce-scatter of the partial sums and the all-gather of their gradient."""
        return self._scatter(width), self._gather(width)

    def norm(self, name: str, gather: bool = True, returned: bool = True) -> Operation:
        """Return the norm of the rank's own rows; the result is gathered for the next block."""
        e = self.model.hidden
        gathers = self.assumptions.collectives.gathers_operands
        forward = self._gather(e, operand=True) if gather else ()
        backward: Comms = ()
        if returned and self.plan.sp:  # gathers the gradient of the row-parallel layer's result
            # The paper writes a reduce-scatter, its equal.
            backward = self._gather(e, operand=True) if gathers else self._scatter(e)
        vectors = self.model.norm_vectors
        shape = self.residual_shape
        saved = self.norm_bytes(*shape, vectors)
        return elementwise.norm(name, self.E, *shape, forward, backward, vectors, saved)

    def row_parallel_bias_shape(self, ends_layer: bool) -> tuple[Column, Column]:
        """Return all tokens and the full width."""
        return self.tokens, self.model.hidden


class Context(OneD):
    """2-D context parallelism: 1-D over m1, the sequence sharded over m2, keys and values exchanged."""

    def row_parallel_bias_shape(self, ends_layer: bool) -> tuple[Column, Column]:
        """Return the shapes of the reference model: the MLP's once reduce-scattered, attention's sharded."""
        e = self.model.hidden
        return (self.residual_shape[0], e) if ends_layer else (self.tokens, e // self.plan.tp)


@dataclass(frozen=True)
class Summa(Sharding):
    """2-D SUMMA: activations sharded over tokens (m2) and width (m1), products in panels on the grid."""

    sequence_axis: Axis = "tp2"

    @cached_property
    def residual_shape(self) -> tuple[Column, Column]:
        """Rows and width: b (l/m2) rows of width e/m1."""
        return self.tokens, self.model.hidden // self.plan.tp

    @property
    def _grid(self) -> tuple[Column, Column, Column]:
        """Degrees m1 and m2, and panels."""
        return self.plan.tp, self.plan.tp2, self.plan.panels

    def column_parallel(self, name: str, i: Column, o: Column, routed: Routed | None = None) -> Operation:
        """Return a SUMMA product; column- and row-parallel layers are the same."""
        rows, copies = routed or (self.tokens, None)
        return summa_linear(name, self.sizes, rows, i, o, self._grid, copies)

    row_parallel = column_parallel

    def replicated_linear(self, name: str, inputs: Column, outputs: Column) -> Operation:
        """Return a SUMMA product, as for any other layer."""
        return self.column_parallel(name, inputs, outputs)

    def gather_narrow(self, width: Column) -> Comms:
        """Return nothing: the next product broadcasts its operands."""
        return ()

    def projection(self, name: str, local: Column, inputs: int) -> Operation:
        """Return a SUMMA product, as for any other layer."""
        return self.column_parallel(name, inputs, local * self.plan.tp)

    def partial_sum_comms(self, width: Column) -> tuple[Comms, Comms]:
        """Return the reduce-scatter over the columns of the grid, and the all-gather of the gradient."""
        comms = (Collective("reduce-scatter", self.E * self.tokens * width, "tp"),)
        return comms, (Collective("all-gather", comms[0].nbytes, "tp"),)

    def norm(self, name: str, gather: bool = True, returned: bool = True) -> Operation:
        """Return the norm of rows sharded over m1: moments forward, gradients backward are all-reduced."""
        r, w = self.residual_shape
        # Erratum 1: the published model cut l.
        width = getattr(self.model, self.assumptions.traffic.summa_norm_width) // self.plan.tp
        forward = (Collective("all-reduce", 2 * self.E * r, "tp"),)  # two moments per row
        moments = 2 * r
        if self.assumptions.traffic.rounds_moments_together:
            moments = 2 * self.plan.mbs * self.model.seq // self.plan.context
        # Two weights per column, two moments per row.
        backward = (Collective("all-reduce", self.E * (2 * w + moments), "tp"),)
        return elementwise.norm(name, self.E, r, width, forward, backward, self.model.norm_vectors)

    def row_parallel_bias_shape(self, ends_layer: bool) -> tuple[Column, Column]:
        """Return all tokens and the local width."""
        return self.tokens, self.model.hidden // self.plan.tp

    def attention(self, kind: Kind = ATTENTION, keys: int | None = None) -> Iterator[Operation]:
        """Yield core attention as SUMMA products if the plan says so, else as in context parallelism."""
        if self.plan.attention != "summa":
            yield from super().attention(kind, keys)
            return
        model = self.model
        mask = self.assumptions.memory.mask_bytes
        heads = self.plan.mbs, model.heads, model.seq, model.head_width
        yield from attention.summa(self.E, mask, heads, self._grid)


def sharding_of(model: Model, plan: Plans, assumptions: Assumptions) -> Sharding:
    """Return the sharding that plans ask for."""
    if plan.tp_kind == "summa":
        return Summa(model, plan, assumptions)
    if plan.cp_kind == "none":
        return OneD(model, plan, assumptions)
    return Context(model, plan, assumptions)
