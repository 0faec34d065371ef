"""Tensor parallelism: what one rank holds of each operation of a layer, and what it says to its group.

The classes differ in where tokens and widths are cut. b micro-batch, l sequence, e hidden, f inner width, m1 and m2 the two
degrees. Shapes are divided first (floor), then multiplied by b, as the reference model does (arXiv 2410.00273, operations of a
layer). Shapes are numbers or columns over plans.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.model import Model
from traincast.operations import attention, dense
from traincast.operations.attention import Heads, gathered
from traincast.operations.base import Axis, Collective, Operation, Pass
from traincast.operations.dense import Comms, Sizes
from traincast.plan import Plans


@dataclass(frozen=True)
class Sharding(ABC):
    """How one rank sees a layer; the concrete classes are `OneD`, `Context` and `Summa`.

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
        recipe, plan = self.plan.recipe, self.plan
        accumulated = plan.gradient_bytes * self.assumptions.accumulation_passes / (2 * recipe.width)  # 2 bytes of 16 bits
        low = low and recipe.rate in ("fp8", "fp4")
        return Sizes(self.E, recipe.operand if low else 1, accumulated, recipe.casts if low else 0, low)

    @property
    def vectors(self) -> int:
        """Weight vectors of a norm."""
        return 2 if self.model.norm == "layernorm" else 1

    @cached_property
    def tokens(self) -> Column:
        """Tokens of one micro-batch on the rank, T = b (l/m2)."""
        return self.plan.mbs * (self.model.seq // self.plan.context)

    @cached_property
    @abstractmethod
    def boundary(self) -> tuple[Column, Column]:
        """Rows and width of the activation between blocks, on the rank."""

    @abstractmethod
    def linear_in(self, name: str, inputs: Column, outputs: Column, rows: Column | None = None, copies: Column = 1) -> Operation:
        """Linear layer that enters a block; its output is cut over tensor ranks.

        Parameters
        ----------
        name : str
            Name of the operation.
        inputs, outputs : Column
            Full widths.
        rows : Column, optional
            Tokens on the rank, where they are not all of its own (experts).
        copies : Column
            Weight matrices that share the tokens evenly (experts).

        Returns
        -------
        Operation
            The layer on the rank's shapes, with its communication.
        """

    @abstractmethod
    def linear_out(self, name: str, inputs: Column, outputs: Column, rows: Column | None = None, copies: Column = 1) -> Operation:
        """Linear layer that leaves a block; its input is cut over tensor ranks.

        Parameters
        ----------
        name : str
            Name of the operation.
        inputs, outputs : Column
            Full widths.
        rows : Column, optional
            Tokens on the rank, where they are not all of its own (experts).
        copies : Column
            Weight matrices that share the tokens evenly (experts).

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
        return dense.bias(f"{name}_bias", self.E, *shape)

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
        return dense.dropout(name, self.E, self.assumptions.mask_bytes, rows * width if elements is None else elements)

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
            kept, dropped = assumed.keeps_attention_output, self.model.dropout
            yield attention.flash(self.E, at, self._exchange(at), self._rounds(), kept, again, dropped)
        else:
            yield from attention.unfused(self.E, assumed.mask_bytes, at, self.sequence_axis, again, self.model.dropout)

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
        return Operation("attention.exchange", Pass((), 0 * self.E, heads), Pass((), 0 * self.E, heads))


class OneD(Sharding):
    """1-D tensor parallelism (Megatron), with sequence parallelism between blocks unless the plan leaves it out.

    Inside a block, widths are cut over m1. Between blocks, tokens are.
    """

    @property
    def _between(self) -> Column:
        """Ways the tokens are cut between blocks."""
        return self.plan.tp if self.plan.sp else 1.0

    @cached_property
    def boundary(self) -> tuple[Column, Column]:
        """b (l/m2/m1) rows of full width."""
        return self.plan.mbs * (self.model.seq // self.plan.context // self._between), self.model.hidden

    def _scatter(self, width: Column) -> Comms:
        """Sum over tensor ranks of this rank's tokens at full width: each rank keeps its tokens, or all of them without `sp`."""
        return (Collective("reduce-scatter" if self.plan.sp else "all-reduce", self.E * self.tokens * width, "tp"),)

    def _gather(self, width: Column) -> Comms:
        """All tokens of the group at full width; nothing to do without `sp`."""
        return (Collective("all-gather", self.E * self.tokens * width, "tp"),) if self.plan.sp else ()

    def linear_in(self, name: str, inputs: Column, outputs: Column, rows: Column | None = None, copies: Column = 1) -> Operation:
        """Column-parallel: w[inputs, outputs/m1]; the input gradient is reduce-scattered."""
        if rows is not None:
            return dense.linear(name, self.sizes, rows, inputs, outputs // self.plan.etp, copies=copies)
        keeps = self.assumptions.keeps_gathered or not self.plan.sp
        kept = self.tokens if keeps else self.tokens // self.plan.tp
        again = () if keeps else self._gather(inputs)
        backward = (*again, *self._scatter(inputs))
        return dense.linear(name, self.sizes, self.tokens, inputs, outputs // self.plan.tp, backward=backward, kept=kept)

    def linear_out(self, name: str, inputs: Column, outputs: Column, rows: Column | None = None, copies: Column = 1) -> Operation:
        """Row-parallel: w[inputs/m1, outputs]; the output is reduce-scattered."""
        if rows is not None:
            return dense.linear(name, self.sizes, rows, inputs // self.plan.etp, outputs, copies=copies)
        own = inputs // self.plan.tp
        return dense.linear(name, self.sizes, self.tokens, own, outputs, forward=self._scatter(outputs))

    def narrow(self, name: str, inputs: Column, outputs: Column) -> Operation:
        """The rank's own tokens; the narrow result is gathered by the layer that follows."""
        return dense.linear(name, self.sizes, self.boundary[0], inputs, outputs)

    def handed_on(self, width: Column) -> Comms:
        """Gathered over tensor ranks."""
        return self._gather(width)

    def projection(self, name: str, local: Column) -> Operation:
        """Column-parallel, on gathered tokens."""
        e = self.model.hidden
        kept = self.tokens if self.assumptions.keeps_gathered or not self.plan.sp else self.boundary[0]
        return dense.linear(name, self.plain_sizes, self.tokens, e, local, backward=self._scatter(e), kept=kept)

    def summed(self, width: Column) -> tuple[Comms, Comms]:
        """As a row-parallel layer's result, and its gradient gathered."""
        return self._scatter(width), self._gather(width)

    def norm(self, name: str, gather: bool = True, returned: bool = True) -> Operation:
        """Norm of the rank's own rows; the result is gathered for the next block."""
        forward = self._gather(self.model.hidden) if gather else ()
        backward = self._scatter(self.model.hidden) if returned and self.plan.sp else ()
        return dense.norm(name, self.E, *self.boundary, forward=forward, backward=backward, vectors=self.vectors)

    def outer_bias(self, name: str) -> tuple[Column, Column]:
        """Added to every token."""
        return self.tokens, self.model.hidden


class Context(OneD):
    """2-D context parallelism: 1-D tensor parallelism over m1, the sequence cut over m2, keys and values exchanged."""

    def outer_bias(self, name: str) -> tuple[Column, Column]:
        """As the reference model adds them: fc2's after the reduce-scatter, the projection's cut over its width."""
        e = self.model.hidden
        return (self.boundary[0], e) if name == "mlp.fc2" else (self.tokens, e // self.plan.tp)


@dataclass(frozen=True)
class Summa(Sharding):
    """2-D SUMMA: activations cut over tokens (m2) and width (m1), every product in panels on the m1 x m2 grid."""

    sequence_axis: Axis = "tp2"

    @cached_property
    def boundary(self) -> tuple[Column, Column]:
        """b (l/m2) rows of width e/m1."""
        return self.tokens, self.model.hidden // self.plan.tp

    def linear_in(self, name: str, inputs: Column, outputs: Column, rows: Column | None = None, copies: Column = 1) -> Operation:
        """SUMMA product; both linear layers of a block are the same."""
        plan, tokens = self.plan, self.tokens if rows is None else rows
        return dense.summa_linear(name, self.sizes, tokens, inputs, outputs, plan.tp, plan.tp2, plan.panels, copies)

    linear_out = linear_in

    def narrow(self, name: str, inputs: Column, outputs: Column) -> Operation:
        """A product as any other."""
        return self.linear_in(name, inputs, outputs)

    def handed_on(self, width: Column) -> Comms:
        """Nothing: the next product fetches what it needs."""
        return ()

    def projection(self, name: str, local: Column) -> Operation:
        """A product as any other."""
        return self.linear_in(name, self.model.hidden, local * self.plan.tp)

    def summed(self, width: Column) -> tuple[Comms, Comms]:
        """Reduced over the columns of the grid."""
        comms = (Collective("reduce-scatter", self.E * self.tokens * width, "tp"),)
        return comms, (Collective("all-gather", comms[0].nbytes, "tp"),)

    def norm(self, name: str, gather: bool = True, returned: bool = True) -> Operation:
        """Norm of rows cut over m1: moments forward, their gradients and the weights' backward, are all-reduced."""
        r, w = self.boundary
        cut = getattr(self.model, self.assumptions.summa_norm_width) // self.plan.tp  # erratum 1: the published model cut l
        forward = (Collective("all-reduce", 2 * self.E * r, "tp"),)  # two moments per row
        backward = (Collective("all-reduce", self.E * (2 * w + 2 * r), "tp"),)  # two weights per column, two moments per row
        return dense.norm(name, self.E, r, cut, forward, backward, self.vectors)

    def outer_bias(self, name: str) -> tuple[Column, Column]:
        """Cut over its width."""
        return self.tokens, self.model.hidden // self.plan.tp

    def attention(self, local: bool = False) -> Iterator[Operation]:
        """Core attention as SUMMA products where asked for, else as for context parallelism."""
        if self.plan.attention != "summa":
            yield from super().attention(local)
            return
        model, plan, mask = self.model, self.plan, self.assumptions.mask_bytes
        yield from attention.summa(self.E, mask, plan.mbs, model.heads, model.seq, model.head_width, plan.tp, plan.tp2, plan.panels)


def sharding(model: Model, plan: Plans, assumptions: Assumptions) -> Sharding:
    """The sharding a batch of plans asks for.

    Parameters
    ----------
    model : Model
        The transformer.
    plan : Plans
        Plans, one or columns of them; their choices select the class.
    assumptions : Assumptions
        Sizes of elements.

    Returns
    -------
    Sharding
        `Summa`, `Context` or `OneD`.
    """
    kind = Summa if plan.tp_kind == "summa" else OneD if plan.cp_kind == "none" else Context
    return kind(model, plan, assumptions)
