"""Ranks of `test_gpt.py`: they train sharded and on one rank,
and return differences of losses and gradients."""

import os

import torch
import torch.distributed as dist

from traincast.accuracy.machine.rank_group import RankGroup
from traincast.accuracy.machine.training.gpt import GroupRank
from traincast.accuracy.machine.training.parallel_step import MeshPosition, Trainer
from traincast.core.plan import Plan
from traincast.model.model import Model

GPT = Model(
    name="tiny", layers=4, hidden=64, heads=4, ffn=256, seq=16, vocab=512, biases=("qkv", "proj", "mlp"),
    positions="learned", causal=True, dropout=False, inner_dropout=False,
)  # fmt: skip
GBS = 8
AXES = {  # axis along which a parameter is sharded
    "table": 0, "head.weight": 0, "qkv.weight": 1, "qkv.bias": 1, "proj.weight": 1, "0.weight": 0,
    "0.bias": 0, "2.weight": 1,  # the two layers of an MLP
}  # fmt: skip


def share(name: str, full: torch.Tensor, cut: GroupRank) -> torch.Tensor:
    """Return a tensor rank's shard of a full gradient; of queries, keys and values its heads."""
    kind = ".".join(name.split(".")[-2:])
    if kind not in AXES:
        return full
    blocks = full.view(3, -1, *full.shape[1:]) if kind.startswith("qkv") else full
    return (
        cut.shard(blocks, AXES[kind]).reshape(-1, *full.shape[1:])
        if kind.startswith("qkv")
        else cut.shard(blocks, AXES[kind])
    )


def whole_name(name: str, place: MeshPosition, plan: Plan) -> str:
    """Return the name of a stage's parameter in the full model."""
    parts = name.split(".")
    if parts[0] == "layers":
        parts[1] = str(int(parts[1]) + place.pp.rank * GPT.layers // plan.pp)
    return ".".join(parts)


def compared(plan: Plan, reference: Trainer, loss: torch.Tensor) -> dict[str, float]:
    """Return the largest differences of loss and gradients from one rank,
    gradients relative to their largest element."""
    place = MeshPosition.from_plan(plan)
    trainer = Trainer(GPT, plan, GBS, place)
    loss_sum = trainer.forward_backward().clone()
    dist.all_reduce(
        loss_sum
    )  # over copies, replicas and tensor ranks; only the last stage of a pipeline has a loss
    trainer.reduce()
    full_parameters = dict(reference.stage.named_parameters())
    difference = 0.0
    shard = trainer.shard.grad if plan.zero else None
    for name, parameter in trainer.stage.named_parameters():
        full = full_parameters[whole_name(name, place, plan)].grad
        expected = share(name, full, place.tp)
        assert expected.shape == parameter.shape, name
        if shard is None:
            difference = max(
                difference, float((parameter.grad.float() - expected).abs().max() / full.abs().max())
            )
    copies = dist.get_world_size() // plan.gpus
    return {"loss": float(loss_sum) / copies / plan.tp - float(loss), "gradients": difference}


torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])  # loads what optimizers need, once for all ranks


def run_rank(rank, port, plans):
    """Compare every plan as one of four ranks; rank 0 returns the results."""
    variables = {"RANK": rank, "WORLD_SIZE": 4, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in variables.items()})
    with RankGroup(threads=1) as group:
        reference = Trainer(GPT, Plan(mbs=GBS, zero=0, precision="fp32"), GBS, MeshPosition())
        loss = reference.forward_backward()
        results = []
        for knobs in plans:
            plan = Plan(sp=False, **{"precision": "fp32", **knobs})
            differences = group.all_gather(compared(plan, reference, loss))
            largest = {name: max(abs(ranks[name]) for ranks in differences) for name in differences[0]}
            results.append(largest | {"later": later(plan)})
    return results


def later(plan: Plan) -> float:
    """Return the loss of the third step, which depends on optimizer and sharding."""
    trainer = Trainer(GPT, plan, GBS, MeshPosition.from_plan(plan))
    for _ in range(3):
        loss = trainer.step()
    dist.all_reduce(loss)
    return float(loss) / (dist.get_world_size() // plan.gpus) / plan.tp
