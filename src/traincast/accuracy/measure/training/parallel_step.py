"""Training steps of the GPT under data, tensor and pipeline parallelism, timed on every rank."""

from dataclasses import dataclass, field
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from traincast.accuracy.measure.training.gpt import GroupRank, Stage, flatten_parameters
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.times.pipeline.pass_order import one_forward_one_backward

LEARNING_RATE: Final = 1e-4  # learning rate
DTYPES: Final = {"fp32": torch.float32, "bf16-pure": torch.bfloat16}  # by precision of a plan, of everything but the loss


@dataclass(frozen=True)
class MeshPosition:
    """Where a rank stands: its groups, and where it is in them.

    A plan of fewer ranks than there are is trained several times, side by side, so that all of the machine is busy.

    Parameters
    ----------
    tp, dp, pp : GroupRank
        Its tensor, data and pipeline group.
    pipeline : tuple of int
        Global ranks of the pipeline, stage by stage.
    device : str or torch.device
        Where it trains.
    """

    tp: GroupRank = field(default_factory=GroupRank)
    dp: GroupRank = field(default_factory=GroupRank)
    pp: GroupRank = field(default_factory=GroupRank)
    pipeline: tuple[int, ...] = (0,)
    device: Any = "cpu"

    @classmethod
    def of(cls, plan: Plan, device: Any = "cpu") -> "MeshPosition":
        """The rank's place in a plan, tensor ranks numbered first, then data, then pipeline; every rank has to ask."""
        if not dist.is_initialized():
            return cls(device=device)
        world = dist.get_world_size()
        shape = (world // plan.gpus, plan.pp, plan.dp, plan.tp)
        mesh = DeviceMesh(torch.device(device).type, torch.arange(world).view(shape), mesh_dim_names=("copy", "pp", "dp", "tp"))

        def cut(name: str) -> GroupRank:
            group = mesh.get_group(name)
            size = dist.get_world_size(group)
            return GroupRank(group if size > 1 else None, dist.get_rank(group), size)

        pipeline = tuple(dist.get_process_group_ranks(mesh.get_group("pp")))
        return cls(cut("tp"), cut("dp"), cut("pp"), pipeline, device)


class Trainer:
    """One rank's share of training a GPT on random tokens: 1F1B, gradients added up over micro-batches and replicas, AdamW.

    Parameters
    ----------
    model : Model
        The GPT.
    plan : Plan
        How it is trained: tp, pp, dp, mbs, ZeRO stage 0 or 1, in fp32 or bf16-pure.
    gbs : int
        Sequences of a step.
    place : MeshPosition
        Where the rank stands.
    seed : int
        Of weights and tokens.
    """

    def __init__(self, model: Model, plan: Plan, gbs: int, place: MeshPosition, seed: int = 0):
        self.model, self.plan, self.gbs, self.place, self.seed = model, plan, gbs, place, seed
        self.microbatches = gbs // plan.dp // plan.mbs
        self.scale = 1.0 / (gbs * model.seq)  # the loss is the mean over all tokens of the step
        each = model.layers // plan.pp
        layers = range(place.pp.rank * each, (place.pp.rank + 1) * each)
        self.where = {"device": place.device, "dtype": DTYPES[plan.precision]}
        self.stage = Stage(model, layers, place.tp, seed, **self.where)
        shards = plan.dp if plan.zero else 1
        self.weights, self.gradients = flatten_parameters(self.stage.parameters(), shards)
        own = self.weights.chunk(shards)[place.dp.rank if plan.zero else 0]
        self.own = torch.nn.Parameter(own)  # what this rank updates
        self.own.grad = self.gradients.chunk(shards)[place.dp.rank if plan.zero else 0]
        self.optimizer = torch.optim.AdamW([self.own], lr=LEARNING_RATE, fused=True)
        self.steps = 0

    def step(self) -> Tensor:
        """One optimizer step.

        Returns
        -------
        Tensor
            The rank's share of the loss: of its replica's micro-batches, on the last stage; else 0.
        """
        loss = self.passes()
        self.reduce()
        self.optimizer.step()
        if self.plan.zero and self.place.dp.group is not None:
            _all_gather(self.weights, self.own.data, self.place.dp.group)
        self.steps += 1
        return loss

    def passes(self) -> Tensor:
        """Forward and backward passes of all micro-batches, in the order of 1F1B; the gradients of this rank are there then."""
        self.gradients.zero_()
        tokens = self._tokens()
        loss = torch.zeros((), device=self.place.device)
        held: dict[int, tuple[Tensor, Tensor]] = {}
        links = _StageLinks(self.place, self._shape, self.where)
        for ((kind, _, microbatch),) in one_forward_one_backward(self.place.pp.rank, self.plan.pp, self.microbatches, 1):
            if kind == "F":
                own = tokens[microbatch * self.plan.mbs : (microbatch + 1) * self.plan.mbs]
                x = own[:, :-1].flatten() if self.stage.first else links.receive(-1).requires_grad_()
                y = self.stage(x, own[:, 1:].flatten(), self.scale)
                held[microbatch] = x, y
                if self.stage.last:
                    loss += y.detach()
                else:
                    links.send(y.detach(), 1)
            else:
                x, y = held.pop(microbatch)
                y.backward(None if self.stage.last else links.receive(1))
                if not self.stage.first:
                    links.send(x.grad, -1)
        links.wait()
        return loss

    def reduce(self) -> None:
        """Sum gradients over the replicas: of all weights, or with ZeRO of the rank's share."""
        if self.place.dp.group is None:
            return
        if self.plan.zero:
            _reduce_scatter(self.own.grad, self.gradients, self.place.dp.group)
        else:
            dist.all_reduce(self.gradients, group=self.place.dp.group)

    @property
    def _shape(self) -> tuple[int, int]:
        """Of what stages pass on."""
        return self.plan.mbs * self.model.seq, self.model.hidden

    def _tokens(self) -> Tensor:
        """Random tokens of the replica's sequences of the step, and of each the one that follows; shape (sequences, seq + 1)."""
        source = torch.Generator().manual_seed(1_000_003 * (self.seed + 1) + self.steps)
        whole = torch.randint(self.model.vocab or 1, (self.gbs, self.model.seq + 1), generator=source)
        return whole.chunk(self.plan.dp)[self.place.dp.rank].to(self.place.device)


class _StageLinks:
    """Messages to the stages before and behind: sends go on in the background, receives wait."""

    def __init__(self, place: MeshPosition, shape: tuple[int, int], where: dict[str, Any]):
        self.place, self.shape, self.where = place, shape, where
        self.sent: list[tuple[Any, Tensor]] = []

    def receive(self, step: int) -> Tensor:
        """What the stage so many behind sends."""
        x = torch.empty(self.shape, **self.where)
        dist.recv(x, self.place.pipeline[self.place.pp.rank + step], group=self.place.pp.group)
        return x

    def send(self, x: Tensor, step: int) -> None:
        """Send to the stage so many behind."""
        self.sent = [(one, tensor) for one, tensor in self.sent if not one.is_completed()]
        self.sent.append((dist.isend(x, self.place.pipeline[self.place.pp.rank + step], group=self.place.pp.group), x))

    def wait(self) -> None:
        """Until all has been sent."""
        for one, _ in self.sent:
            one.wait()


def _reduce_scatter(own: Tensor, whole: Tensor, group: Any) -> None:
    """Sum a row over a group, of which each rank keeps its part (in place: the part may be of the row itself)."""
    part = torch.empty_like(own)
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor  # the name since PyTorch 2.13
    scatter(part, whole, group=group)
    own.copy_(part)


def _all_gather(whole: Tensor, own: Tensor, group: Any) -> None:
    """All parts of a row, each rank having its own."""
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(whole, own.clone(), group=group)
