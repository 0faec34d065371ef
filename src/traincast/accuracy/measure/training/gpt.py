"""A small real GPT in PyTorch, cut over tensor ranks and pipeline stages the way the estimator counts it.

Token and position embedding, layers of causal attention and a GeLU MLP with layer norms before them, a norm, a head of its own, and
the cross-entropy on logits that stay cut over the vocabulary (arXiv 1909.08053, section 3; without sequence parallelism). Backward
passes of linear layers and of the embedding add to the gradients in place, so that an accumulated gradient is read and written once
for each micro-batch. A group of one rank says nothing to itself: the same code trains on one rank.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from traincast.core.model import Model

INIT_DEVIATION: Final = 0.02  # of initial weights (GPT-2)


class GroupRank(NamedTuple):
    """Where a rank stands in its tensor group.

    Parameters
    ----------
    group : process group or None
        The group; None for one rank alone.
    rank, size : int
        Place in it, and its members.
    """

    group: Any = None
    rank: int = 0
    size: int = 1

    def summed(self, x: Tensor, largest: bool = False) -> Tensor:
        """The sum (or the largest) over the group, in place."""
        if self.group is not None:
            dist.all_reduce(x, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM, group=self.group)
        return x

    def part(self, full: Tensor, axis: int) -> Tensor:
        """The rank's share of a tensor along an axis."""
        return full.chunk(self.size, axis)[self.rank]


class _ParallelLinear(torch.autograd.Function):
    """y = x w' + b; a column-parallel layer sums the gradient of its input over the group, a row-parallel one its output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, cut: GroupRank, columns: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight, ctx.bias, ctx.cut, ctx.columns = weight, bias, cut, columns
        if columns:
            return F.linear(x, weight, bias)
        return cut.summed(F.linear(x, weight, bias if cut.rank == 0 else None))  # the bias is added once

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (dy,), (x,) = gradients, ctx.saved_tensors
        dx = dy @ ctx.weight
        if ctx.columns:
            ctx.cut.summed(dx)
        ctx.weight.grad.addmm_(dy.T, x)
        if ctx.bias is not None:
            ctx.bias.grad.add_(dy.sum(0))
        return dx, None, None, None, None


class _VocabParallelEmbedding(torch.autograd.Function):
    """Rows of the vocabulary's table, of which a rank has its share, and those of the positions."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, table: Tensor, positions: Tensor, cut: GroupRank) -> Tensor:
        ctx.local, ctx.inside = _local_rows(tokens, len(table), cut, table.dtype)
        ctx.table, ctx.positions = table, positions
        x = F.embedding(ctx.local, table)
        if ctx.inside is not None:
            x.mul_(ctx.inside[:, None])
        x = cut.summed(x)
        return (x.view(-1, *positions.shape) + positions).view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        (dx,) = gradients
        ctx.positions.grad.add_(dx.view(-1, *ctx.positions.shape).sum(0))
        ctx.table.grad.index_add_(0, ctx.local, dx if ctx.inside is None else dx * ctx.inside[:, None])
        return None, None, None, None


class _VocabParallelCrossEntropy(torch.autograd.Function):
    """Sum of the cross-entropy of rows of logits cut over the vocabulary, times a scale."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, cut: GroupRank, scale: float) -> Tensor:
        local, inside = _local_rows(targets, logits.shape[1], cut)
        ctx.dtype, logits = logits.dtype, logits.float()
        largest = cut.summed(logits.amax(1), largest=True)
        softmax = logits - largest[:, None]
        hit = softmax.gather(1, local[:, None])[:, 0]
        hit = hit if inside is None else hit * inside
        normaliser, hit = cut.summed(torch.stack((softmax.exp_().sum(1), hit)))
        softmax.div_(normaliser[:, None])
        ctx.save_for_backward(softmax, local, inside)
        ctx.scale = scale
        return (normaliser.log() - hit).sum() * scale

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        softmax, local, inside = ctx.saved_tensors
        ones = torch.ones_like(local, dtype=softmax.dtype) if inside is None else inside
        softmax.scatter_add_(1, local[:, None], -ones[:, None])  # softmax less the target
        return softmax.mul_(ctx.scale).to(ctx.dtype), None, None, None


def _local_rows(tokens: Tensor, rows: int, cut: GroupRank, dtype: Any = torch.float32) -> tuple[Tensor, Tensor | None]:
    """Places of tokens among the rank's rows of the vocabulary, and which of them are there (1 or 0); None where all are."""
    if cut.size == 1:
        return tokens, None
    local = tokens - cut.rank * rows
    inside = (local >= 0) & (local < rows)
    return local * inside, inside.to(dtype)


class Linear(nn.Module):
    """A linear layer of which a rank has some of the columns of outputs, or rows of inputs."""

    def __init__(self, weight: Tensor, bias: Tensor | None, cut: GroupRank, columns: bool):
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)
        self.cut, self.columns = cut, columns

    def forward(self, x: Tensor) -> Tensor:
        """Of rows of tokens."""
        y: Tensor = _ParallelLinear.apply(x, self.weight, self.bias, self.cut, self.columns)
        return y


class _Weights:
    """Initial weights that are the same whichever way they are cut: every one has its own seed."""

    def __init__(self, seed: int, cut: GroupRank, **where: Any):
        self.seed, self.cut, self.where = seed, cut, where

    def normal(self, place: int, *shape: int, axis: int = 0) -> Tensor:
        """The rank's share of a matrix of random numbers, cut along an axis."""
        full = torch.randn(shape, generator=torch.Generator().manual_seed(self.seed + place)) * INIT_DEVIATION
        return self.cut.part(full, axis).to(**self.where, copy=True).contiguous()

    def zeros(self, *shape: int) -> Tensor:
        """Biases."""
        return torch.zeros(shape, **self.where)

    def norm(self, width: int) -> nn.LayerNorm:
        """A layer norm."""
        return nn.LayerNorm(width, **self.where)


class Layer(nn.Module):
    """A layer: attention and MLP, each with its norm before it and its residual addition behind."""

    def __init__(self, model: Model, weights: _Weights, index: int):
        super().__init__()
        e, f, n, cut = model.hidden, model.ffn, weights.cut.size, weights.cut
        first = 8 * (index + 1)  # seeds of the layer
        self.heads = model.heads // n
        self.attention_norm, self.mlp_norm = weights.norm(e), weights.norm(e)
        qkv = weights.normal(first, 3, e, e, axis=1).reshape(-1, e)  # each rank has its heads of queries, keys and values
        self.qkv = Linear(qkv, weights.zeros(3 * e // n), cut, columns=True)
        self.proj = Linear(weights.normal(first + 1, e, e, axis=1), weights.zeros(e), cut, columns=False)
        self.fc1 = Linear(weights.normal(first + 2, f, e), weights.zeros(f // n), cut, columns=True)
        self.fc2 = Linear(weights.normal(first + 3, e, f, axis=1), weights.zeros(e), cut, columns=False)

    def forward(self, x: Tensor, seq: int) -> Tensor:
        """Of rows of tokens, whole sequences one after the other."""
        qkv = self.qkv(self.attention_norm(x)).view(-1, seq, 3, self.heads, self.head_width)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(len(x), -1)
        x = x + self.proj(mixed)
        return x + self.fc2(F.gelu(self.fc1(self.mlp_norm(x))))

    @property
    def head_width(self) -> int:
        """Width of a head."""
        return int(self.proj.weight.shape[1]) // self.heads


class Stage(nn.Module):
    """The layers of one pipeline stage; the first has the embedding, the last the head.

    Parameters
    ----------
    model : Model
        A GPT: layer norms, biases, a GeLU MLP, learned positions, no dropout, a head of its own.
    layers : range
        Layers of the stage.
    cut : GroupRank
        Its tensor group.
    seed : int
        Of the initial weights.
    **where
        Device and dtype of its tensors.
    """

    def __init__(self, model: Model, layers: range, cut: GroupRank, seed: int = 0, **where: Any):
        super().__init__()
        e, vocab, weights = model.hidden, model.vocab or 0, _Weights(seed, cut, **where)
        self.seq, self.cut = model.seq, cut
        self.first, self.last = layers.start == 0, layers.stop == model.layers
        if self.first:
            self.table = nn.Parameter(weights.normal(0, vocab, e))
            self.positions = nn.Parameter(_Weights(seed, GroupRank(), **where).normal(1, model.seq, e))
        self.layers = nn.ModuleList(Layer(model, weights, index) for index in layers)
        if self.last:
            self.norm = weights.norm(e)
            self.head = Linear(weights.normal(2, vocab, e), None, cut, columns=True)

    def forward(self, x: Tensor, targets: Tensor | None = None, scale: float = 1.0) -> Tensor:
        """Pass one micro-batch through the stage.

        Parameters
        ----------
        x : Tensor, shape (tokens,) or (tokens, hidden)
            Tokens for the first stage, what the stage before has passed on for the others.
        targets : Tensor, shape (tokens,)
            Next tokens, for the last stage.
        scale : float
            What the summed loss is multiplied by.

        Returns
        -------
        Tensor
            What the next stage gets, shape (tokens, hidden); the loss, of the last stage.
        """
        if self.first:
            x = _VocabParallelEmbedding.apply(x, self.table, self.positions, self.cut)
        for layer in self.layers:
            x = layer(x, self.seq)
        if not self.last:
            return x
        loss: Tensor = _VocabParallelCrossEntropy.apply(self.head(self.norm(x)), targets, self.cut, scale)
        return loss


def flatten_parameters(parameters: Iterable[nn.Parameter], multiple: int = 1) -> tuple[Tensor, Tensor]:
    """Weights and gradients as one row each, of which the parameters and their gradients become views.

    Parameters
    ----------
    parameters : iterable of Parameter
        Those of a stage.
    multiple : int
        The rows are padded to a multiple of this.

    Returns
    -------
    weights, gradients : Tensor, shape (n,)
        The rows; gradients are 0.
    """
    every = list(parameters)
    n = -(-sum(one.numel() for one in every) // multiple) * multiple
    weights, gradients = (torch.zeros(n, device=every[0].device, dtype=every[0].dtype) for _ in range(2))
    at = 0
    for one in every:
        place = slice(at, at + one.numel())
        weights[place] = one.data.flatten()
        one.data, one.grad = weights[place].view_as(one), gradients[place].view_as(one)
        at = place.stop
    return weights, gradients
