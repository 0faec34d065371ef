"""Tensor parallelism: 1-D (Megatron), with context parallelism, and 2-D (SUMMA).

m1 and m2 are the two degrees: tp, and tp2 or cp.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from traincast.core.assumptions import Assumptions
from traincast.core.model import Model
from traincast.core.plan import Plans
from traincast.core.quantities import Column
from traincast.operations import attention, elementwise, linear
from traincast.operations.operation import Axis, Collective, Comms, Operation
from traincast.operations.sharding import Sharding


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

    def _gather(self, width: Column, operand: bool = False) -> Comms:
        """All tokens of the group at full width; nothing to do without `sp`. What a product reads may be cast before it is sent."""
        size = self.sizes.operand if operand and self.assumptions.gathers_operands else 1
        return (Collective("all-gather", size * self.E * self.tokens * width, "tp"),) if self.plan.sp else ()

    @property
    def _own_casts(self) -> Column:
        """Share of gathered tokens that a rank casts: its own, where they are cast before they are gathered."""
        return 1 / self.plan.tp if self.plan.sp and self.assumptions.gathers_operands else 1

    def linear_in(
        self, name: str, inputs: Column, outputs: Column, rows: Column | None = None, copies: Column | None = None
    ) -> Operation:
        """Column-parallel: w[inputs, outputs/m1]; the input gradient is reduce-scattered."""
        if rows is not None:
            return linear.linear(name, self.sizes, rows, inputs, outputs // self.plan.etp, copies=copies)
        keeps = self.assumptions.keeps_gathered or not self.plan.sp
        kept = self.tokens if keeps else self.tokens // self.plan.tp
        again = () if keeps else self._gather(inputs, operand=True)
        backward = (*again, *self._scatter(inputs))
        cast = self._own_casts, 1
        return linear.linear(name, self.sizes, self.tokens, inputs, outputs // self.plan.tp, (), backward, kept=kept, cast=cast)

    def linear_out(
        self, name: str, inputs: Column, outputs: Column, rows: Column | None = None, copies: Column | None = None
    ) -> Operation:
        """Row-parallel: w[inputs/m1, outputs]; the output is reduce-scattered."""
        if rows is not None:
            return linear.linear(name, self.sizes, rows, inputs // self.plan.etp, outputs, copies=copies)
        own = inputs // self.plan.tp
        return linear.linear(name, self.sizes, self.tokens, own, outputs, self._scatter(outputs), cast=(1, self._own_casts))

    def narrow(self, name: str, inputs: Column, outputs: Column) -> Operation:
        """The rank's own tokens; the narrow result is gathered by the layer that follows."""
        return linear.linear(name, self.sizes, self.boundary[0], inputs, outputs)

    def handed_on(self, width: Column) -> Comms:
        """Gathered over tensor ranks."""
        return self._gather(width)

    def projection(self, name: str, local: Column) -> Operation:
        """Column-parallel, on gathered tokens."""
        e = self.model.hidden
        kept = self.tokens if self.assumptions.keeps_gathered or not self.plan.sp else self.boundary[0]
        return linear.linear(name, self.plain_sizes, self.tokens, e, local, backward=self._scatter(e), kept=kept)

    def summed(self, width: Column) -> tuple[Comms, Comms]:
        """As a row-parallel layer's result, and its gradient gathered."""
        return self._scatter(width), self._gather(width)

    def norm(self, name: str, gather: bool = True, returned: bool = True) -> Operation:
        """Norm of the rank's own rows; the result is gathered for the next block."""
        forward = self._gather(self.model.hidden, operand=True) if gather else ()
        backward: Comms = ()
        if returned and self.plan.sp:  # gradient of the row-parallel layer's result: gathered, written as its equal in the paper
            gathers = self.assumptions.gathers_operands
            backward = self._gather(self.model.hidden, operand=True) if gathers else self._scatter(self.model.hidden)
        return elementwise.norm(name, self.E, *self.boundary, forward=forward, backward=backward, vectors=self.model.norm_vectors)

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

    def linear_in(
        self, name: str, inputs: Column, outputs: Column, rows: Column | None = None, copies: Column | None = None
    ) -> Operation:
        """SUMMA product; both linear layers of a block are the same."""
        plan, tokens = self.plan, self.tokens if rows is None else rows
        return linear.summa_linear(name, self.sizes, tokens, inputs, outputs, plan.tp, plan.tp2, plan.panels, copies)

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
        return elementwise.norm(name, self.E, r, cut, forward, backward, self.model.norm_vectors)

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
