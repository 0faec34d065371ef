"""Run by `test_gpt.py` as every rank of a job: trains sharded and on one rank, and reports differences of losses and gradients."""

import json
import sys

import torch
import torch.distributed as dist

from traincast.accuracy.measure.launcher import Rank, launched_rank, rendezvous_address
from traincast.accuracy.measure.training.gpt import GroupRank
from traincast.accuracy.measure.training.parallel_step import MeshPosition, Trainer
from traincast.core.model import Model
from traincast.core.plan import Plan

GPT = Model(
    name="tiny", layers=4, hidden=64, heads=4, ffn=256, seq=16, vocab=512, biases=("qkv", "proj", "mlp"), positions="learned",
    causal=True, dropout=False, inner_dropout=False,
)  # fmt: skip
GBS = 8
AXES = {  # axis along which a parameter is sharded
    "table": 0, "head.weight": 0, "qkv.weight": 1, "qkv.bias": 1, "proj.weight": 1, "fc1.weight": 0, "fc1.bias": 0, "fc2.weight": 1,
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
    """Return the largest differences of loss and gradients from one rank, gradients relative to their largest element."""
    place = MeshPosition.of(plan)
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


def main() -> None:
    """Compare every plan on standard input."""
    rank = launched_rank() or Rank(0, 1)
    host, port = rendezvous_address(rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{host}:{port}", rank=rank.rank, world_size=rank.size)
    reference = Trainer(GPT, Plan(mbs=GBS, zero=0, precision="fp32"), GBS, MeshPosition())
    loss = reference.forward_backward()
    for number, knobs in enumerate(json.load(sys.stdin)["plans"]):
        plan = Plan(sp=False, **{"precision": "fp32", **knobs})
        result = compared(plan, reference, loss)
        results = [None] * rank.size
        dist.all_gather_object(results, result)
        after = later(plan)
        if rank.rank == 0:
            largest = {name: max(abs(differences[name]) for differences in results) for name in result}
            print(json.dumps({"plan": number, **largest, "later": after}), flush=True)
    dist.destroy_process_group()


def later(plan: Plan) -> float:
    """Return the loss of the third step, which depends on optimizer and sharding."""
    trainer = Trainer(GPT, plan, GBS, MeshPosition.of(plan))
    for _ in range(3):
        loss = trainer.step()
    dist.all_reduce(loss)
    return float(loss) / (dist.get_world_size() // plan.gpus) / plan.tp


if __name__ == "__main__":
    main()
