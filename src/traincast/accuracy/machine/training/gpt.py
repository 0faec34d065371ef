"""Small GPT in PyTorch with the tensor and pipeline parallelism that the estimator counts.

Token and position embedding, pre-norm layers of causal attention and a GeLU MLP, a final norm, an untied
head, and the vocabulary-parallel cross-entropy (arXiv 1909.08053, section 3; without sequence parallelism).
Backward passes of linear layers and of the embedding accumulate into the gradients in place, so that a
gradient is read and written once per micro-batch. A group of one rank communicates nothing: the same code
trains on one rank.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from traincast.model import Experts as ExpertsConfig
from traincast.model import Model

EXPERT_SEEDS: Final = 100_000  # between those of layers' experts
INIT_DEVIATION: Final = 0.02  # standard deviation of initial weights (GPT-2)


class GroupRank(NamedTuple):
    """Rank in a process group; the group is None for one rank alone."""

    group: Any = None
    rank: int = 0
    size: int = 1

    def all_reduce(self, x: Tensor, largest: bool = False) -> Tensor:
        """All-reduce a tensor over the group, in place: sum, or maximum."""
        if self.group is not None:
            dist.all_reduce(x, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM, group=self.group)
        return x

    def shard(self, full: Tensor, axis: int) -> Tensor:
        """Return the rank's shard of a tensor along an axis."""
        return full.chunk(self.size, axis)[self.rank]


class _ParallelLinear(torch.autograd.Function):
    """Linear layer y = x w' + b; column-parallel reduces its input's gradient, row-parallel its output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: object, cut: GroupRank, columns: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight = weight
        ctx.bias = bias
        ctx.cut = cut
        ctx.columns = columns
        if columns:
            return F.linear(x, weight, bias)
        return cut.all_reduce(F.linear(x, weight, bias if cut.rank == 0 else None))  # the bias is added once

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (dy,), (x,) = gradients, ctx.saved_tensors
        dx = dy @ ctx.weight
        if ctx.columns:
            ctx.cut.all_reduce(dx)
        if ctx.weight.requires_grad:
            ctx.weight.grad.addmm_(dy.T, x)
        if ctx.bias is not None and ctx.bias.requires_grad:
            ctx.bias.grad.add_(dy.sum(0))
        return dx, None, None, None, None


class _VocabParallelEmbedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, table: Tensor, positions: Tensor, cut: GroupRank) -> Tensor:
        ctx.local, ctx.inside = _local_rows(tokens, len(table), cut, table.dtype)
        ctx.table = table
        ctx.positions = positions
        x = F.embedding(ctx.local, table)
        if ctx.inside is not None:
            x.mul_(ctx.inside[:, None])
        x = cut.all_reduce(x)
        return (x.view(-1, *positions.shape) + positions).view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        (dx,) = gradients
        ctx.positions.grad.add_(dx.view(-1, *ctx.positions.shape).sum(0))
        ctx.table.grad.index_add_(0, ctx.local, dx if ctx.inside is None else dx * ctx.inside[:, None])
        return None, None, None, None


class _VocabParallelCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy of vocabulary-parallel logits, times a scale."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, cut: GroupRank, scale: float) -> Tensor:
        local, inside = _local_rows(targets, logits.shape[1], cut)
        ctx.dtype = logits.dtype
        logits = logits.float()
        largest = cut.all_reduce(logits.amax(1), largest=True)
        softmax = logits - largest[:, None]
        hit = softmax.gather(1, local[:, None])[:, 0]
        hit = hit if inside is None else hit * inside
        normaliser, hit = cut.all_reduce(torch.stack((softmax.exp_().sum(1), hit)))
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


def _local_rows(
    tokens: Tensor, rows: int, cut: GroupRank, dtype: object = torch.float32
) -> tuple[Tensor, Tensor | None]:
    """Return local rows of tokens, and a mask (1 or 0) of those in the rank's shard; None if all are."""
    if cut.size == 1:
        return tokens, None
    local = tokens - cut.rank * rows
    inside = (local >= 0) & (local < rows)
    return local * inside, inside.to(dtype)


class Linear(nn.Module):
    """Column-parallel or row-parallel linear layer."""

    def __init__(self, weight: Tensor, bias: Tensor | None, cut: GroupRank, columns: bool):
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)
        self.cut = cut
        self.columns = columns

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for x, shape (tokens, in)."""
        y: Tensor = _ParallelLinear.apply(x, self.weight, self.bias, self.cut, self.columns)
        return y


class Adapted(nn.Module):
    """Frozen linear layer with an adapter: y = x w' + b + x A' B' (arXiv 2106.09685), B zero at first."""

    def __init__(self, base: Linear, down: Tensor):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = Linear(down, None, GroupRank(), columns=True)
        up = torch.zeros(len(base.weight), len(down), device=down.device, dtype=down.dtype)
        self.up = Linear(up, None, GroupRank(), columns=True)

    @property
    def weight(self) -> Tensor:
        """The frozen weights."""
        return self.base.weight

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for x, shape (tokens, in)."""
        y: Tensor = self.base(x) + self.up(self.down(x))
        return y


class Experts(nn.Module):
    """Mixture of experts in place of the MLP: a router, and a loop over experts for the tokens of each."""

    def __init__(self, config: ExpertsConfig, router: Linear, experts: Iterable[tuple[Linear, Linear]]):
        super().__init__()
        self.topk = config.topk
        self.router = router
        self.up, self.down = map(nn.ModuleList, zip(*experts, strict=True))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for x, shape (tokens, hidden): of each token the weighted sum of its experts'."""
        shares, chosen = self.router(x).softmax(-1).topk(self.topk)
        result = torch.zeros_like(x)
        for index, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            token, place = (chosen == index).nonzero(as_tuple=True)
            y = down(F.gelu(up(x[token]))) * shares[token, place, None]
            result = result.index_add(0, token, y)
        return result


class _Weights(NamedTuple):
    """Initial weights that do not depend on the sharding: every matrix has its own seed."""

    seed: int
    cut: GroupRank
    where: dict[str, object]

    def normal(self, place: int, *shape: int, axis: int = 0) -> Tensor:
        """Return the rank's shard of a random matrix, cut along an axis."""
        full = torch.randn(shape, generator=torch.Generator().manual_seed(self.seed + place)) * INIT_DEVIATION
        return self.cut.shard(full, axis).to(**self.where, copy=True).contiguous()

    def linear(self, place: int, *shape: int, columns: bool) -> Linear:
        """Return a linear layer with a bias of zeros, cut along its outputs (`columns`) or inputs."""
        weight = self.normal(place, *shape, axis=len(shape) - (2 if columns else 1)).flatten(0, -2)
        return Linear(weight, torch.zeros(len(weight), **self.where), self.cut, columns)


class Layer(nn.Module):
    """Transformer layer: attention and MLP, each with a norm before it and a residual addition after it."""

    def __init__(self, model: Model, weights: _Weights, index: int):
        super().__init__()
        # seeds of the layer
        e = model.hidden
        f = model.ffn
        first = 8 * (index + 1)
        self.heads = model.heads // weights.cut.size
        self.attention_norm, self.mlp_norm = (nn.LayerNorm(e, **weights.where) for _ in range(2))
        # each rank has its heads of q, k and v
        self.qkv = self._trained_linear(
            weights.linear(first, 3, e, e, columns=True), model, weights, first + 4
        )
        self.proj = self._trained_linear(
            weights.linear(first + 1, e, e, columns=False), model, weights, first + 5
        )
        self.mlp: nn.Module
        if model.experts is not None:
            self.mlp = _experts(model.experts, e, weights, EXPERT_SEEDS * (index + 1))
        else:
            up = self._trained_linear(
                weights.linear(first + 2, f, e, columns=True), model, weights, first + 6
            )
            down = self._trained_linear(
                weights.linear(first + 3, e, f, columns=False), model, weights, first + 7
            )
            self.mlp = nn.Sequential(up, nn.GELU(), down)

    @staticmethod
    def _trained_linear(base: Linear, model: Model, weights: _Weights, place: int) -> "Linear | Adapted":
        """Return a linear layer that is trained, or frozen with an adapter."""
        if model.adapters is None:
            return base
        return Adapted(base, weights.normal(place, model.adapters.rank, base.weight.shape[1]))

    def forward(self, x: Tensor, seq: int) -> Tensor:
        """Return the output for x, shape (tokens, hidden), full sequences one after the other."""
        qkv = self.qkv(self.attention_norm(x)).view(-1, seq, 3, self.heads, self.head_width)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(len(x), -1)
        x = x + self.proj(mixed)
        return x + self.mlp(self.mlp_norm(x))

    @property
    def head_width(self) -> int:
        """Width of an attention head."""
        return int(self.proj.weight.shape[1]) // self.heads


def _experts(config: ExpertsConfig, hidden: int, weights: _Weights, first: int) -> Experts:
    """Return the experts of a layer, whose seeds begin with `first`."""
    router = Linear(weights.normal(first, config.experts, hidden), None, weights.cut, columns=True)
    experts = (
        (
            weights.linear(first + 2 * i + 1, config.ffn, hidden, columns=True),
            weights.linear(first + 2 * i + 2, hidden, config.ffn, columns=False),
        )
        for i in range(config.experts)
    )
    return Experts(config, router, experts)


class Stage(nn.Module):
    """Pipeline stage with some of the layers; the first has the embedding, the last the head.

    The model is a GPT: layer norms, biases, a GeLU MLP or experts, learned positions, no dropout, an untied
    head; with adapters these alone are trained. `cut` is the rank in the tensor group; `where` holds device
    and dtype.
    """

    def __init__(self, model: Model, layers: range, cut: GroupRank, seed: int = 0, **where: object):
        super().__init__()
        e = model.hidden
        vocab = model.vocab or 0
        weights = _Weights(seed, cut, where)
        self.seq = model.seq
        self.cut = cut
        self.first = layers.start == 0
        self.last = layers.stop == model.layers
        if self.first:
            self.table = nn.Parameter(weights.normal(0, vocab, e))
            self.positions = nn.Parameter(_Weights(seed, GroupRank(), where).normal(1, model.seq, e))
        self.layers = nn.ModuleList(Layer(model, weights, index) for index in layers)
        if self.last:
            self.norm = nn.LayerNorm(e, **where)
            self.head = Linear(weights.normal(2, vocab, e), None, cut, columns=True)
        if model.adapters is not None:
            for name, weight in self.named_parameters():
                weight.requires_grad_(".down." in name or ".up." in name)

    def forward(self, x: Tensor, targets: Tensor | None = None, scale: float = 1.0) -> Tensor:
        """Pass a micro-batch through the stage; return activations, or the summed loss times `scale`.

        x holds tokens (tokens,) for the first stage, activations (tokens, hidden) for the others; targets are
        next tokens (tokens,) for the last one.
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
    """Flatten trained weights and gradients into a buffer each, padded to a multiple of elements.

    Gradients are 0. The parameters and their gradients become views of the buffers.
    """
    every = [parameter for parameter in parameters if parameter.requires_grad]
    size = -(-sum(parameter.numel() for parameter in every) // multiple) * multiple
    weights = torch.zeros(size, device=every[0].device, dtype=every[0].dtype)
    gradients = torch.zeros_like(weights)
    start = 0
    for parameter in every:
        view = slice(start, start + parameter.numel())
        weights[view] = parameter.data.flatten()
        parameter.data, parameter.grad = weights[view].view_as(parameter), gradients[view].view_as(parameter)
        start = view.stop
    return weights, gradients
