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
    """1-D tensor parallelism (Megatron), with sequence parallelism between blocks unless the plan turns it off.

    Inside a block, widths are cut over m1. Between blocks, tokens are.
    """

    @property
    def _token_ways(self) -> Column:
        """Return how many tensor ranks the tokens between blocks are cut over."""
        return self.plan.tp if self.plan.sp else 1.0

    @cached_property
    def residual_shape(self) -> tuple[Column, Column]:
        """Return b (l/m2/m1) rows of full width."""
        return self.plan.mbs * (self.model.seq // self.plan.context // self._token_ways), self.model.hidden

    def _scatter(self, width: Column) -> Comms:
        """Return the sum over tensor ranks of tokens at full width: a reduce-scatter, or an all-reduce without `sp`."""
        return (
            Collective(
                "reduce-scatter" if self.plan.sp else "all-reduce", self.E * self.tokens * width, "tp"
            ),
        )

    def _gather(self, width: Column, operand: bool = False) -> Comms:
        """Return the all-gather of tokens at full width, none without `sp`; an operand of a product may be cast before."""
        size = self.sizes.operand if operand and self.assumptions.collectives.gathers_operands else 1
        return (Collective("all-gather", size * self.E * self.tokens * width, "tp"),) if self.plan.sp else ()

    @property
    def _cast_share(self) -> Column:
        """Return the share of gathered tokens that a rank casts: its own part if they are cast before they are gathered."""
        return 1 / self.plan.tp if self.plan.sp and self.assumptions.collectives.gathers_operands else 1

    def column_parallel(
        self,
        name: str,
        inputs: Column,
        outputs: Column,
        rows: Column | None = None,
        copies: Column | None = None,
    ) -> Operation:
        """Return w[inputs, outputs/m1]; the input gradient is reduce-scattered."""
        if rows is not None:
            return linear.linear(name, self.sizes, rows, inputs, outputs // self.plan.etp, copies=copies)
        keeps = self.assumptions.memory.saves_gathered or not self.plan.sp
        kept = self.tokens if keeps else self.tokens // self.plan.tp
        second_gather = () if keeps else self._gather(inputs, operand=True)
        backward = (*second_gather, *self._scatter(inputs))
        cast = self._cast_share, 1
        return linear.linear(
            name, self.sizes, self.tokens, inputs, outputs // self.plan.tp, (), backward, kept=kept, cast=cast
        )

    def row_parallel(
        self,
        name: str,
        inputs: Column,
        outputs: Column,
        rows: Column | None = None,
        copies: Column | None = None,
    ) -> Operation:
        """Return w[inputs/m1, outputs]; the output is reduce-scattered."""
        if rows is not None:
            return linear.linear(name, self.sizes, rows, inputs // self.plan.etp, outputs, copies=copies)
        local = inputs // self.plan.tp
        return linear.linear(
            name, self.sizes, self.tokens, local, outputs, self._scatter(outputs), cast=(1, self._cast_share)
        )

    def replicated_linear(self, name: str, inputs: Column, outputs: Column) -> Operation:
        """Return the layer on the rank's own tokens; the norm that follows gathers the narrow result."""
        return linear.linear(name, self.sizes, self.residual_shape[0], inputs, outputs)

    def gather_narrow(self, width: Column) -> Comms:
        """Return an all-gather over tensor ranks."""
        return self._gather(width)

    def projection(self, name: str, local: Column) -> Operation:
        """Return a column-parallel layer on gathered tokens."""
        e = self.model.hidden
        kept = (
            self.tokens
            if self.assumptions.memory.saves_gathered or not self.plan.sp
            else self.residual_shape[0]
        )
        return linear.linear(
            name, self.plain_sizes, self.tokens, e, local, backward=self._scatter(e), kept=kept
        )

    def vocab_parallel_comms(self, width: Column) -> tuple[Comms, Comms]:
        """Return the reduce-scatter of the embeddings and the all-gather of their gradient."""
        return self._scatter(width), self._gather(width)

    def norm(self, name: str, gather: bool = True, returned: bool = True) -> Operation:
        """Return the norm of the rank's own rows; the result is gathered for the next block."""
        forward = self._gather(self.model.hidden, operand=True) if gather else ()
        backward: Comms = ()
        if (
            returned and self.plan.sp
        ):  # gradient of the row-parallel layer's result: gathered, written as its equal in the paper
            gathers = self.assumptions.collectives.gathers_operands
            backward = (
                self._gather(self.model.hidden, operand=True) if gathers else self._scatter(self.model.hidden)
            )
        return elementwise.norm(
            name,
            self.E,
            *self.residual_shape,
            forward=forward,
            backward=backward,
            vectors=self.model.norm_vectors,
        )

    def row_parallel_bias_shape(self, ends_layer: bool) -> tuple[Column, Column]:
        """Return all tokens and the full width."""
        return self.tokens, self.model.hidden


class Context(OneD):
    """2-D context parallelism: 1-D tensor parallelism over m1, the sequence cut over m2, keys and values exchanged."""

    def row_parallel_bias_shape(self, ends_layer: bool) -> tuple[Column, Column]:
        """Return the shapes of the reference model: the MLP's bias after the reduce-scatter, attention's cut over its width."""
        e = self.model.hidden
        return (self.residual_shape[0], e) if ends_layer else (self.tokens, e // self.plan.tp)


@dataclass(frozen=True)
class Summa(Sharding):
    """2-D SUMMA: activations cut over tokens (m2) and width (m1), every product in panels on the m1 x m2 grid."""

    sequence_axis: Axis = "tp2"

    @cached_property
    def residual_shape(self) -> tuple[Column, Column]:
        """Return b (l/m2) rows of width e/m1."""
        return self.tokens, self.model.hidden // self.plan.tp

    def column_parallel(
        self,
        name: str,
        inputs: Column,
        outputs: Column,
        rows: Column | None = None,
        copies: Column | None = None,
    ) -> Operation:
        """Return a SUMMA product; column- and row-parallel layers are the same."""
        plan, tokens = self.plan, self.tokens if rows is None else rows
        return linear.summa_linear(
            name, self.sizes, tokens, inputs, outputs, plan.tp, plan.tp2, plan.panels, copies
        )

    row_parallel = column_parallel

    def replicated_linear(self, name: str, inputs: Column, outputs: Column) -> Operation:
        """Return a SUMMA product, as for any other layer."""
        return self.column_parallel(name, inputs, outputs)

    def gather_narrow(self, width: Column) -> Comms:
        """Return nothing: the next product broadcasts its operands."""
        return ()

    def projection(self, name: str, local: Column) -> Operation:
        """Return a SUMMA product, as for any other layer."""
        return self.column_parallel(name, self.model.hidden, local * self.plan.tp)

    def vocab_parallel_comms(self, width: Column) -> tuple[Comms, Comms]:
        """Return the reduce-scatter over the columns of the grid, and the all-gather of the gradient."""
        comms = (Collective("reduce-scatter", self.E * self.tokens * width, "tp"),)
        return comms, (Collective("all-gather", comms[0].nbytes, "tp"),)

    def norm(self, name: str, gather: bool = True, returned: bool = True) -> Operation:
        """Return the norm of rows cut over m1: moments (forward), their gradients and the weights' (backward) are all-reduced."""
        r, w = self.residual_shape
        width = (
            getattr(self.model, self.assumptions.traffic.summa_norm_width) // self.plan.tp
        )  # erratum 1: the published model cut l
        forward = (Collective("all-reduce", 2 * self.E * r, "tp"),)  # two moments per row
        backward = (
            Collective("all-reduce", self.E * (2 * w + 2 * r), "tp"),
        )  # two weights per column, two moments per row
        return elementwise.norm(name, self.E, r, width, forward, backward, self.model.norm_vectors)

    def row_parallel_bias_shape(self, ends_layer: bool) -> tuple[Column, Column]:
        """Return all tokens and the local width."""
        return self.tokens, self.model.hidden // self.plan.tp

    def attention(self, local: bool = False) -> Iterator[Operation]:
        """Yield core attention as SUMMA products if the plan asks for them, else as with context parallelism."""
        if self.plan.attention != "summa":
            yield from super().attention(local)
            return
        model, plan, mask = self.model, self.plan, self.assumptions.memory.mask_bytes
        yield from attention.summa(
            self.E, mask, plan.mbs, model.heads, model.seq, model.head_width, plan.tp, plan.tp2, plan.panels
        )


def sharding_of(model: Model, plan: Plans, assumptions: Assumptions) -> Sharding:
    """Return the sharding that plans ask for."""
    kind = Summa if plan.tp_kind == "summa" else OneD if plan.cp_kind == "none" else Context
    return kind(model, plan, assumptions)
