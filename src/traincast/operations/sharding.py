"""Local shapes and communication of the operations of a layer on one rank, for any way to cut the layer.

The classes of `tensor_parallel` differ in where tokens and widths are cut. b micro-batch, l sequence, e hidden, f inner width, m1
and m2 the two degrees. Shapes are divided first (floor), then multiplied by b, as the reference model does (arXiv 2410.00273,
operations of a layer). Shapes are numbers or columns over plans.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from traincast.core.assumptions import Assumptions
from traincast.core.model import Model
from traincast.core.plan import Plans
from traincast.core.quantities import Column
from traincast.operations import attention, elementwise
from traincast.operations.attention import Heads, gathered
from traincast.operations.linear import Sizes
from traincast.operations.operation import Axis, Collective, Comms, Operation, PassCount


@dataclass(frozen=True)
class Sharding(ABC):
    """Local shard of a layer; the concrete classes stand in `tensor_parallel`."""

    model: Model  # the transformer, with full shapes
    plan: Plans  # plans, one or columns of them
    assumptions: Assumptions  # sizes of elements

    sequence_axis: Axis = "cp"  # group that the sequence is cut over, besides tensor parallelism

    @cached_property
    def E(self) -> Column:
        """Return the size of an element [byte]."""
        return self.plan.recipe.width * self.assumptions.memory.element_bytes

    @cached_property
    def sizes(self) -> Sizes:
        """Return the element sizes of linear layers at the rate of the precision recipe."""
        return self._sizes(low=True)

    @cached_property
    def plain_sizes(self) -> Sizes:
        """Return the element sizes of linear layers that stay at 16 bits or above: embedding, router, head."""
        return self._sizes(low=False)

    def _sizes(self, low: bool) -> Sizes:
        """Return the element sizes of a linear layer at the rate of the precision recipe (`low`) or at 16 bits."""
        recipe, plan, assumed = self.plan.recipe, self.plan, self.assumptions
        accumulated = (
            plan.gradient_bytes * assumed.traffic.accumulation_passes / (2 * recipe.width)
        )  # 2 bytes of 16 bits
        if not (low and recipe.rate in ("fp8", "int8", "fp4")):
            return Sizes(self.E, 1, accumulated)
        casts, weight_casts = (
            recipe.casts * assumed.traffic.cast_passes,
            recipe.casts * assumed.traffic.weight_cast_passes,
        )
        kept = recipe.operand if assumed.memory.saves_casts else 1
        return Sizes(self.E, recipe.operand, accumulated, casts, weight_casts, low, kept)

    @cached_property
    def tokens(self) -> Column:
        """Return the tokens of one micro-batch on the rank, T = b (l/m2)."""
        return self.plan.mbs * (self.model.seq // self.plan.context)

    @cached_property
    @abstractmethod
    def residual_shape(self) -> tuple[Column, Column]:
        """Return rows and width of the rank's part of the residual stream, the activation between blocks."""

    @abstractmethod
    def column_parallel(
        self,
        name: str,
        inputs: Column,
        outputs: Column,
        rows: Column | None = None,
        copies: Column | None = None,
    ) -> Operation:
        """Return a linear layer whose output is cut over tensor ranks; the first of a block."""

    @abstractmethod
    def row_parallel(
        self,
        name: str,
        inputs: Column,
        outputs: Column,
        rows: Column | None = None,
        copies: Column | None = None,
    ) -> Operation:
        """Return a linear layer whose input is cut over tensor ranks; the last of a block."""

    @abstractmethod
    def replicated_linear(self, name: str, inputs: Column, outputs: Column) -> Operation:
        """Return a linear layer to a narrow width: every rank has all of the weights and works on its own tokens."""

    @abstractmethod
    def projection(self, name: str, local: Column) -> Operation:
        """Return the linear layer onto the vocabulary, `local` rows of it on the rank, at 16 bits or above."""

    @abstractmethod
    def vocab_parallel_comms(self, width: Column) -> tuple[Comms, Comms]:
        """Return the communication that sums embeddings over the ranks of a vocabulary-parallel table, forward and backward."""

    @abstractmethod
    def gather_narrow(self, width: Column) -> Comms:
        """Return the communication that gathers the narrow result of `replicated_linear` for the next linear layer."""

    @abstractmethod
    def norm(self, name: str, gather: bool = True, returned: bool = True) -> Operation:
        """Return a norm of the residual stream, with the communication that gathers it for the next linear layer (if `gather`).

        Its backward pass gathers the gradient for the last linear layer of the block that follows (if `returned`).
        """

    @abstractmethod
    def row_parallel_bias_shape(self, ends_layer: bool) -> tuple[Column, Column]:
        """Return tokens and width that the bias of a row-parallel layer is added to; a layer ends with the MLP's (`ends_layer`)."""

    def row_parallel_bias(self, name: str, ends_layer: bool = False) -> Operation:
        """Return the bias of a row-parallel layer."""
        return elementwise.bias(name, self.E, *self.row_parallel_bias_shape(ends_layer))

    def column_parallel_bias(self, name: str, width: Column) -> Operation:
        """Return the bias of a column-parallel layer of full width `width`."""
        return elementwise.bias(name, self.E, self.tokens, self.local(width))

    def local(self, width: Column) -> Column:
        """Return the part of a width that is on the rank."""
        return width // self.plan.tp

    def dropout(self, name: str, elements: Column | None = None) -> Operation:
        """Return dropout on the rank."""
        rows, width = self.residual_shape
        return elementwise.dropout(
            name, self.E, self.assumptions.memory.mask_bytes, rows * width if elements is None else elements
        )

    def gate_bytes(self, elements: Column) -> Column:
        """Return the memory of the activated gate of a gated MLP, if it is saved beside gate and product [byte]."""
        return (
            self.E
            * elements
            * float(self.assumptions.memory.saves_elementwise and self.model.up_projections > 1)
        )

    def heads(self, local: bool = False) -> Heads:
        """Return the shapes of core attention on the local heads, queries cut over the sequence."""
        model, plan = self.model, self.plan
        head_ways = plan.tp * plan.ulysses
        full = model.seq * model.seq
        skipped: Any = self.assumptions.attention.causal_skipping
        share: Any = 1 if not (model.causal or local) else 1 - skipped * (1 - model.attended(local) / full)
        kv = -(-model.groups // head_ways)  # keys and values with fewer heads than ranks are replicated
        q, v = model.head_width, model.value_width
        return Heads(
            plan.mbs,
            model.heads // head_ways,
            kv,
            model.seq // plan.context * plan.ulysses,
            model.seq,
            q,
            v,
            share,
        )

    def attention(self, local: bool = False) -> Iterator[Operation]:
        """Yield core attention."""
        at, plan, assumed = self.heads(local), self.plan, self.assumptions
        recompute = "attention" in plan.recomputed
        if plan.attention == "flash":
            # The output projection saves its operand in low precision, and attention its result at 16 bits.
            kept = 1 if self.sizes.kept != 1 else assumed.memory.saves_attention_output
            comms, rounds = self._context_comms(at), self._ring_rounds()
            yield attention.flash(self.E, at, comms, rounds, kept, recompute, self.model.dropout)
        else:
            yield from attention.unfused(
                self.E,
                assumed.memory.mask_bytes,
                at,
                self.sequence_axis,
                recompute,
                self.model.dropout,
                passes=(assumed.traffic.softmax_passes, assumed.traffic.unfused_softmax_passes),
                launches=assumed.host.unfused_softmax_launches,
            )

    def _ring_rounds(self) -> Column | None:
        """Return the rounds of ring attention beyond the first; None without a ring."""
        return self.plan.cp / self.plan.ulysses - 1 if self.plan.cp_kind in ("ring", "hybrid") else None

    def _context_comms(self, at: Heads) -> tuple[Comms, Comms]:
        """Return the communication of context parallelism: keys and values gathered or sent round a ring, or heads exchanged."""
        plan, kv_bytes = self.plan, self.E * at.kv_elements
        if plan.cp_kind == "ulysses":
            elements = (
                at.b * at.lq * (at.h * (at.q + at.v) + at.kv * (at.q + at.v)) / plan.ulysses
            )  # queries, result, keys, values
            exchange = (Collective("all-to-all", self.E * elements * plan.ulysses, "ulysses"),)
            return exchange, exchange
        if plan.cp_kind in ("ring", "hybrid"):
            block = (
                kv_bytes * plan.ulysses / plan.cp
            )  # keys and values; backward sends their gradients as well
            return (Collective("send", block, "cp"),), (Collective("send", 2 * block, "cp"),)
        return gathered(kv_bytes, self.sequence_axis)

    def exchange_heads(self) -> Operation | None:
        """Return the all-to-all of heads before and after attention (Ulysses); None if it belongs to fused attention."""
        kind = self.plan.cp_kind
        if kind != "hybrid" and (kind != "ulysses" or self.plan.attention == "flash"):
            return None
        at = self.heads()
        elements = at.b * at.lq * (at.h + at.kv) * (at.q + at.v)  # queries, result, keys, values
        exchange = (Collective("all-to-all", self.E * elements, "ulysses"),)
        return Operation(
            "attention.exchange", PassCount((), 0 * self.E, exchange), PassCount((), 0 * self.E, exchange)
        )
