"""Training step of the GPT under data, tensor and pipeline parallelism."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from traincast.accuracy.machine.rank_group import gather_and_scatter
from traincast.accuracy.machine.training.gpt import GroupRank, Stage, flatten_parameters
from traincast.core import Plan
from traincast.model import Model
from traincast.times import SCHEDULES

LEARNING_RATE: Final = 1e-4
DTYPES: Final = {"fp32": torch.float32, "bf16-pure": torch.bfloat16}  # by precision; the loss is in fp32


@dataclass(frozen=True)
class MeshPosition:
    """Position of a rank in the device mesh: in its tensor, data and pipeline group.

    A plan of fewer ranks than the job has is trained several times, side by side, so that the machine is
    fully busy. `pipeline` has the global ranks of the pipeline, stage by stage.
    """

    tp: GroupRank = field(default_factory=GroupRank)
    dp: GroupRank = field(default_factory=GroupRank)
    pp: GroupRank = field(default_factory=GroupRank)
    pipeline: tuple[int, ...] = (0,)
    device: Any = "cpu"

    @classmethod
    def from_plan(cls, plan: Plan, device: object = "cpu") -> "MeshPosition":
        """Return the rank's position in a plan (order tp, dp, pp); collective: every rank must call it."""
        if not dist.is_initialized():
            return cls(device=device)
        mesh = _mesh(torch.device(device).type, dist.get_world_size() // plan.gpus, plan.pp, plan.dp, plan.tp)

        def group_rank(name: str) -> GroupRank:
            group = mesh.get_group(name)
            size = dist.get_world_size(group)
            return GroupRank(group if size > 1 else None, dist.get_rank(group), size)

        pipeline = tuple(dist.get_process_group_ranks(mesh.get_group("pp")))
        return cls(group_rank("tp"), group_rank("dp"), group_rank("pp"), pipeline, device)


@cache
def _mesh(kind: str, *sizes: int) -> Any:
    """Return a mesh of copies, stages, replicas and tensor ranks, whose process groups are costly to make."""
    return init_device_mesh(kind, sizes, mesh_dim_names=("copy", "pp", "dp", "tp"))


class Trainer:
    """Training of a GPT on random tokens, as one rank does it: 1F1B, data parallelism, AdamW.

    The plan has tp, pp, dp, mbs and ZeRO stage 0 or 1, in fp32 or bf16-pure; `gbs` is in sequences; `seed` is
    that of weights and tokens.
    """

    def __init__(self, model: Model, plan: Plan, gbs: int, place: MeshPosition, seed: int = 0):
        self.model = model
        self.plan = plan
        self.gbs = gbs
        self.place = place
        self.seed = seed
        self.microbatches = gbs // plan.dp // plan.mbs
        self.scale = 1.0 / (gbs * model.seq)  # the loss is the mean over all tokens of the step
        layers_per_stage = model.layers // plan.pp
        layers = range(place.pp.rank * layers_per_stage, (place.pp.rank + 1) * layers_per_stage)
        self.where = {"device": place.device, "dtype": DTYPES[plan.precision]}
        self.stage = Stage(model, layers, place.tp, seed, **self.where)
        shards, index = (plan.dp, place.dp.rank) if plan.zero else (1, 0)
        self.weights, self.gradients = flatten_parameters(self.stage.parameters(), shards)
        # The rank's shard of the optimizer with ZeRO, else all weights.
        self.shard = torch.nn.Parameter(self.weights.chunk(shards)[index])
        self.shard.grad = self.gradients.chunk(shards)[index]
        self.optimizer = torch.optim.AdamW([self.shard], lr=LEARNING_RATE, fused=True)
        self.steps = 0

    def step(self) -> Tensor:
        """Run an optimizer step; return the replica's loss, 0 except on the last stage."""
        loss = self.forward_backward()
        self.reduce()
        self.optimizer.step()
        if self.plan.zero and self.place.dp.group is not None:
            all_gather, _ = gather_and_scatter()
            all_gather(self.weights, self.shard.data.clone(), group=self.place.dp.group)
        self.steps += 1
        return loss

    def forward_backward(self) -> Tensor:
        """Run all micro-batches in 1F1B order, accumulating gradients; return the loss."""
        self.gradients.zero_()
        tokens = self._tokens()
        loss = torch.zeros((), device=self.place.device)
        in_flight: dict[int, tuple[Tensor, Tensor]] = {}
        links = _StageLinks(self.place, (self.plan.mbs * self.model.seq, self.model.hidden), self.where)
        order = SCHEDULES["1f1b"].order(self.place.pp.rank, self.plan.pp, self.microbatches, 1)
        for ((kind, _, microbatch),) in order:
            if kind == "F":
                batch = tokens[microbatch * self.plan.mbs : (microbatch + 1) * self.plan.mbs]
                x = batch[:, :-1].flatten() if self.stage.first else links.receive(-1).requires_grad_()
                y = self.stage(x, batch[:, 1:].flatten(), self.scale)
                in_flight[microbatch] = x, y
                if self.stage.last:
                    loss += y.detach()
                else:
                    links.send(y.detach(), 1)
            else:
                x, y = in_flight.pop(microbatch)
                y.backward(None if self.stage.last else links.receive(1))
                if not self.stage.first:
                    links.send(x.grad, -1)
        links.wait()
        return loss

    def reduce(self) -> None:
        """Sum gradients over the replicas: all-reduce, or reduce-scatter with ZeRO."""
        group = self.place.dp.group
        if group is None:
            return
        if not self.plan.zero:
            dist.all_reduce(self.gradients, group=group)
            return
        _, reduce_scatter = gather_and_scatter()
        result = torch.empty_like(self.shard.grad)  # the shard is a view of what is reduced
        reduce_scatter(result, self.gradients, group=group)
        self.shard.grad.copy_(result)

    def _tokens(self) -> Tensor:
        """Return random tokens of the replica's sequences of this step, shape (sequences, seq + 1)."""
        generator = torch.Generator().manual_seed(1_000_003 * (self.seed + 1) + self.steps)
        tokens = torch.randint(self.model.vocab or 1, (self.gbs, self.model.seq + 1), generator=generator)
        return tokens.chunk(self.plan.dp)[self.place.dp.rank].to(self.place.device)


class _StageLinks:
    """Messages to the previous and next stage: sends are asynchronous, receives block."""

    def __init__(self, place: MeshPosition, shape: tuple[int, int], where: dict[str, object]):
        self.place = place
        self.shape = shape
        self.where = where
        self.sent: list[tuple[Any, Tensor]] = []

    def receive(self, offset: int) -> Tensor:
        """Receive from the stage at an offset."""
        x = torch.empty(self.shape, **self.where)
        dist.recv(x, self.place.pipeline[self.place.pp.rank + offset], group=self.place.pp.group)
        return x

    def send(self, x: Tensor, offset: int) -> None:
        """Send to the stage at an offset."""
        self.sent = [(request, tensor) for request, tensor in self.sent if not request.is_completed()]
        target = self.place.pipeline[self.place.pp.rank + offset]
        self.sent.append((dist.isend(x, target, group=self.place.pp.group), x))

    def wait(self) -> None:
        """Wait until all messages are sent."""
        for request, _ in self.sent:
            request.wait()
