"""What one rank holds of each operation of a layer, and what it says to its groups, whichever way the layer is cut.

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
    """How one rank sees a layer; the concrete classes stand in `tensor_parallel`.

    Parameters
    ----------
    model : Model
        The transformer, with full shapes.
    plan : Plans
        Plans, one or columns of them.
    assumptions : Assumptions
        Sizes of elements.
    sequence_axis : {"cp", "tp2"}
        Group that the sequence is cut over.
    """

    model: Model
    plan: Plans
    assumptions: Assumptions

    sequence_axis: Axis = "cp"  # the group that the sequence is cut over before tensor parallelism

    @cached_property
    def E(self) -> Column:
        """Size of an element [byte]."""
        return self.plan.recipe.width * self.assumptions.element_bytes

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of what linear layers move."""
        return self._sizes(low=True)

    @cached_property
    def plain_sizes(self) -> Sizes:
        """The same for layers that stay at 16 bits or above: embedding, router, head."""
        return self._sizes(low=False)

    def _sizes(self, low: bool) -> Sizes:
        """Sizes of what a linear layer moves, at the rate of the precision recipe or at 16 bits."""
        recipe, plan, assumed = self.plan.recipe, self.plan, self.assumptions
        accumulated = plan.gradient_bytes * assumed.accumulation_passes / (2 * recipe.width)  # 2 bytes of 16 bits
        if not (low and recipe.rate in ("fp8", "int8", "fp4")):
            return Sizes(self.E, 1, accumulated)
        casts, weight_casts = recipe.casts * assumed.cast_passes, recipe.casts * assumed.weight_cast_passes
        kept = recipe.operand if assumed.keeps_casts else 1
        return Sizes(self.E, recipe.operand, accumulated, casts, weight_casts, low, kept)

    @cached_property
    def tokens(self) -> Column:
        """Tokens of one micro-batch on the rank, T = b (l/m2)."""
        return self.plan.mbs * (self.model.seq // self.plan.context)

    @cached_property
    @abstractmethod
    def boundary(self) -> tuple[Column, Column]:
        """Rows and width of the activation between blocks, on the rank."""

    @abstractmethod
    def linear_in(
        self, name: str, inputs: Column, outputs: Column, rows: Column | None = None, copies: Column | None = None
    ) -> Operation:
        """Linear layer that enters a block; its output is cut over tensor ranks.

        Parameters
        ----------
        name : str
            Name of the operation.
        inputs, outputs : Column
            Full widths.
        rows : Column, optional
            Tokens on the rank, where they are not all of its own (experts).
        copies : Column, optional
            Weight matrices that share the tokens evenly (experts); one matrix if left out.

        Returns
        -------
        Operation
            The layer on the rank's shapes, with its communication.
        """

    @abstractmethod
    def linear_out(
        self, name: str, inputs: Column, outputs: Column, rows: Column | None = None, copies: Column | None = None
    ) -> Operation:
        """Linear layer that leaves a block; its input is cut over tensor ranks.

        Parameters
        ----------
        name : str
            Name of the operation.
        inputs, outputs : Column
            Full widths.
        rows : Column, optional
            Tokens on the rank, where they are not all of its own (experts).
        copies : Column, optional
            Weight matrices that share the tokens evenly (experts); one matrix if left out.

        Returns
        -------
        Operation
            The layer on the rank's shapes, with its communication.
        """

    @abstractmethod
    def narrow(self, name: str, inputs: Column, outputs: Column) -> Operation:
        """Linear layer onto a narrow width that no rank cuts: every rank has its own tokens and all of the weights."""

    @abstractmethod
    def projection(self, name: str, local: Column) -> Operation:
        """Linear layer onto the vocabulary, `local` rows of it on the rank, at 16 bits or above."""

    @abstractmethod
    def summed(self, width: Column) -> tuple[Comms, Comms]:
        """Communication that sums parts of the embedded tokens over the ranks that cut the vocabulary, forward and backward."""

    @abstractmethod
    def handed_on(self, width: Column) -> Comms:
        """Communication that hands a narrow result of the rank's own tokens to the next linear layer."""

    @abstractmethod
    def norm(self, name: str, gather: bool = True, returned: bool = True) -> Operation:
        """Norm of the activation between blocks, with the communication that hands it to the next linear layer (if `gather`).

        Backward stands for the gradient handed to the last linear layer of the block that follows (if `returned`).
        """

    @abstractmethod
    def outer_bias(self, name: str) -> tuple[Column, Column]:
        """Tokens and width that the bias of a linear layer that leaves a block is added to."""

    def bias(self, name: str, width: Column | None = None) -> Operation:
        """Bias of the linear layer `name`: of its full width if that is cut over tensor ranks, else that leaving a block."""
        shape = self.outer_bias(name) if width is None else (self.tokens, self.cut(width))
        return elementwise.bias(f"{name}_bias", self.E, *shape)

    def cut(self, width: Column) -> Column:
        """The part of a width that is on the rank."""
        return width // self.plan.tp

    def dropout(self, name: str, elements: Column | None = None) -> Operation:
        """Dropout on the rank.

        Parameters
        ----------
        name : str
            Name of the operation.
        elements : Column, optional
            Elements it works on; those of the activation between blocks if left out.

        Returns
        -------
        Operation
            The dropout.
        """
        rows, width = self.boundary
        return elementwise.dropout(name, self.E, self.assumptions.mask_bytes, rows * width if elements is None else elements)

    def gate_bytes(self, elements: Column) -> Column:
        """Memory of the activated gate of a gated MLP, where it is kept beside gate and product [byte]."""
        return self.E * elements * float(self.assumptions.keeps_elementwise and self.model.up_projections > 1)

    def heads(self, local: bool = False) -> Heads:
        """Core attention of the local heads, queries cut over the sequence."""
        model, plan = self.model, self.plan
        cut = plan.tp * plan.ulysses
        full = model.seq * model.seq
        skipped: Any = self.assumptions.causal_skipping
        share: Any = 1 if not (model.causal or local) else 1 - skipped * (1 - model.attended(local) / full)
        kv = -(-model.groups // cut)  # heads of keys and values that do not divide are on several ranks
        q, v = model.head_width, model.value_width
        return Heads(plan.mbs, model.heads // cut, kv, model.seq // plan.context * plan.ulysses, model.seq, q, v, share)

    def attention(self, local: bool = False) -> Iterator[Operation]:
        """Core attention.

        Parameters
        ----------
        local : bool
            Whether the layer attends to a window or a chunk only.

        Yields
        ------
        Operation
            One for flash attention, three or four for unfused.
        """
        at, plan, assumed = self.heads(local), self.plan, self.assumptions
        again = "attention" in plan.recomputed
        if plan.attention == "flash":
            # The output projection keeps its operand in low precision, beside what attention needs.
            kept = 1 if self.sizes.kept != 1 else assumed.keeps_attention_output
            dropped = self.model.dropout
            yield attention.flash(self.E, at, self._exchange(at), self._rounds(), kept, again, dropped)
        else:
            passes = assumed.softmax_passes, assumed.unfused_softmax_passes
            launches, dropped = assumed.unfused_softmax_launches, self.model.dropout
            yield from attention.unfused(self.E, assumed.mask_bytes, at, self.sequence_axis, again, dropped, passes, launches)

    def _rounds(self) -> Column | None:
        """Rounds of ring attention beyond the first, if it is a ring."""
        return self.plan.cp / self.plan.ulysses - 1 if self.plan.cp_kind in ("ring", "hybrid") else None

    def _exchange(self, at: Heads) -> tuple[Comms, Comms]:
        """What context parallelism sends either way: keys and values gathered or passed round a ring, heads exchanged."""
        plan, moved = self.plan, self.E * at.kv_elements
        if plan.cp_kind == "ulysses":
            own = at.b * at.lq * (at.h * (at.q + at.v) + at.kv * (at.q + at.v)) / plan.ulysses  # queries, result, keys, values
            heads = (Collective("all-to-all", self.E * own * plan.ulysses, "ulysses"),)
            return heads, heads
        if plan.cp_kind in ("ring", "hybrid"):
            block = moved * plan.ulysses / plan.cp  # keys and values; backward passes their gradients as well
            return (Collective("send", block, "cp"),), (Collective("send", 2 * block, "cp"),)
        return gathered(moved, self.sequence_axis)

    def exchange_heads(self) -> Operation | None:
        """All-to-all of queries, keys, values and results where it is no part of fused attention, as a hybrid's with a ring."""
        kind = self.plan.cp_kind
        if kind != "hybrid" and (kind != "ulysses" or self.plan.attention == "flash"):
            return None
        at = self.heads()
        own = at.b * at.lq * (at.h + at.kv) * (at.q + at.v)
        heads = (Collective("all-to-all", self.E * own, "ulysses"),)
        return Operation("attention.exchange", PassCount((), 0 * self.E, heads), PassCount((), 0 * self.E, heads))
