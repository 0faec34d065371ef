"""Tensor parallelism: what one rank holds of each operation of a layer, and what it says to its group.

The classes differ in where tokens and widths are cut. b micro-batch, l sequence, e hidden, f inner width, m1 and m2 the two
degrees. Shapes are divided first (floor), then multiplied by b, as the reference model does (arXiv 2410.00273, operations of a
layer). Shapes are numbers or columns over plans.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.model import Model
from traincast.operations import attention, dense
from traincast.operations.base import Axis, Collective, Operation
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

    @property
    def E(self) -> Column:
        """Size of an element [byte]."""
        return self.assumptions.element_bytes

    @property
    def tokens(self) -> Column:
        """Tokens of one micro-batch on the rank, T = b (l/m2)."""
        return self.plan.mbs * (self.model.seq // self.plan.context)

    @property
    def inner(self) -> Column:
        """Elements of the MLP's inner activation on the rank."""
        return self.tokens * (self.model.ffn // self.plan.tp)

    @property
    @abstractmethod
    def boundary(self) -> tuple[Column, Column]:
        """Rows and width of the activation between blocks, on the rank."""

    @abstractmethod
    def linear_in(self, name: str, inputs: Column, outputs: Column) -> Operation:
        """Linear layer that enters a block; its output is cut over tensor ranks.

        Parameters
        ----------
        name : str
            Name of the operation.
        inputs, outputs : Column
            Full widths.

        Returns
        -------
        Operation
            The layer on the rank's shapes, with its communication.
        """

    @abstractmethod
    def linear_out(self, name: str, inputs: Column, outputs: Column) -> Operation:
        """Linear layer that leaves a block; its input is cut over tensor ranks.

        Parameters
        ----------
        name : str
            Name of the operation.
        inputs, outputs : Column
            Full widths.

        Returns
        -------
        Operation
            The layer on the rank's shapes, with its communication.
        """

    @abstractmethod
    def norm(self, name: str) -> Operation:
        """Norm at the end of a block, with its communication; `name` is that of the operation."""

    @abstractmethod
    def bias_shapes(self) -> dict[str, tuple[Column, Column]]:
        """Tokens and width that each bias is added to, by the name of its linear layer."""

    def bias(self, name: str) -> Operation:
        """Bias of the linear layer `name`."""
        return dense.bias(f"{name}_bias", self.E, *self.bias_shapes()[name])

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

    def attention(self) -> Iterator[Operation]:
        """Core attention of the local heads, queries cut over m2 and keys gathered.

        Yields
        ------
        Operation
            One for flash attention, four for unfused.
        """
        model, plan = self.model, self.plan
        b, h, l, q = plan.mbs, model.heads // plan.tp, model.seq, model.head_width
        lq = l // plan.context
        if plan.attention == "flash":
            yield attention.flash(self.E, b, h, lq, l, q, self.sequence_axis)
        else:
            mask, recompute = self.assumptions.mask_bytes, plan.recompute == "selective"
            yield from attention.unfused(self.E, mask, b, h, lq, l, q, self.sequence_axis, recompute)


class OneD(Sharding):
    """1-D tensor parallelism (Megatron) with sequence parallelism between blocks.

    Inside a block, widths are cut over m1. Between blocks, tokens are.
    """

    @property
    def boundary(self) -> tuple[Column, Column]:
        """b (l/m2/m1) rows of full width."""
        return self.plan.mbs * (self.model.seq // self.plan.context // self.plan.tp), self.model.hidden

    def _scatter(self, width: Column) -> tuple[Collective]:
        """Reduce-scatter over tensor ranks of this rank's tokens at full width."""
        return (Collective("reduce-scatter", self.E * self.tokens * width, "tp"),)

    def linear_in(self, name: str, inputs: Column, outputs: Column) -> Operation:
        """Column-parallel: w[inputs, outputs/m1]; the input gradient is reduce-scattered."""
        return dense.linear(name, self.E, self.tokens, inputs, outputs // self.plan.tp, backward=self._scatter(inputs))

    def linear_out(self, name: str, inputs: Column, outputs: Column) -> Operation:
        """Row-parallel: w[inputs/m1, outputs]; the output is reduce-scattered."""
        return dense.linear(name, self.E, self.tokens, inputs // self.plan.tp, outputs, forward=self._scatter(outputs))

    def norm(self, name: str) -> Operation:
        """Norm of the rank's own rows; the result is gathered for the next block."""
        gather = (Collective("all-gather", self.E * self.tokens * self.model.hidden, "tp"),)
        return dense.norm(name, self.E, *self.boundary, forward=gather, backward=self._scatter(self.model.hidden))

    def bias_shapes(self) -> dict[str, tuple[Column, Column]]:
        """The inner bias is cut over its width; the others are added to every token."""
        T, e, f, m1 = self.tokens, self.model.hidden, self.model.ffn, self.plan.tp
        return {"mlp.fc1": (T, f // m1), "mlp.fc2": (T, e), "attention.proj": (T, e)}


class Context(OneD):
    """2-D context parallelism: 1-D tensor parallelism over m1, the sequence cut over m2, keys and values gathered."""

    def bias_shapes(self) -> dict[str, tuple[Column, Column]]:
        """As the reference model adds them: fc2's after the reduce-scatter, the projection's cut over its width."""
        T, e, f, m1 = self.tokens, self.model.hidden, self.model.ffn, self.plan.tp
        return {"mlp.fc1": (T, f // m1), "mlp.fc2": (self.boundary[0], e), "attention.proj": (T, e // m1)}


@dataclass(frozen=True)
class Summa(Sharding):
    """2-D SUMMA: activations cut over tokens (m2) and width (m1), every product in panels on the m1 x m2 grid."""

    sequence_axis: Axis = "tp2"

    @property
    def boundary(self) -> tuple[Column, Column]:
        """b (l/m2) rows of width e/m1."""
        return self.tokens, self.model.hidden // self.plan.tp

    def linear_in(self, name: str, inputs: Column, outputs: Column) -> Operation:
        """SUMMA product; both linear layers of a block are the same."""
        plan = self.plan
        return dense.summa_linear(name, self.E, self.tokens, inputs, outputs, plan.tp, plan.tp2, plan.panels)

    linear_out = linear_in

    def norm(self, name: str) -> Operation:
        """Norm of rows cut over m1: moments forward, their gradients and the weights' backward, are all-reduced."""
        r, w = self.boundary
        cut = getattr(self.model, self.assumptions.summa_norm_width) // self.plan.tp  # erratum 1: the published model cut l
        forward = (Collective("all-reduce", 2 * self.E * r, "tp"),)  # two moments per row
        backward = (Collective("all-reduce", self.E * (2 * w + 2 * r), "tp"),)  # two weights per column, two moments per row
        return dense.norm(name, self.E, r, cut, forward, backward)

    def bias_shapes(self) -> dict[str, tuple[Column, Column]]:
        """Every bias is cut over its width."""
        T, e, f, m1 = self.tokens, self.model.hidden, self.model.ffn, self.plan.tp
        return {"mlp.fc1": (T, f // m1), "mlp.fc2": (T, e // m1), "attention.proj": (T, e // m1)}

    def attention(self) -> Iterator[Operation]:
        """Core attention as SUMMA products where asked for, else as for context parallelism."""
        if self.plan.attention != "summa":
            yield from super().attention()
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
    kind = Summa if plan.tp_kind == "summa" else Context if plan.cp_kind == "all-gather" else OneD
    return kind(model, plan, assumptions)
