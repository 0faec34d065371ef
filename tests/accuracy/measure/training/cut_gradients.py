"""Run by `test_gpt.py` as every rank of a job: trains cut and whole, and tells how far losses and gradients are apart."""

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
AXES = {  # the axis along which a rank's share of a parameter is cut, and the shape that has it
    "table": 0, "head.weight": 0, "qkv.weight": 1, "qkv.bias": 1, "proj.weight": 1, "fc1.weight": 0, "fc1.bias": 0, "fc2.weight": 1,
}  # fmt: skip


def share(name: str, whole: torch.Tensor, cut: GroupRank) -> torch.Tensor:
    """A tensor rank's share of a whole gradient: of queries, keys and values the heads it has."""
    kind = ".".join(name.split(".")[-2:])
    if kind not in AXES:
        return whole
    blocks = whole.view(3, -1, *whole.shape[1:]) if kind.startswith("qkv") else whole
    return cut.shard(blocks, AXES[kind]).reshape(-1, *whole.shape[1:]) if kind.startswith("qkv") else cut.shard(blocks, AXES[kind])


def whole_name(name: str, place: MeshPosition, plan: Plan) -> str:
    """What a parameter of a stage is called in the whole model."""
    parts = name.split(".")
    if parts[0] == "layers":
        parts[1] = str(int(parts[1]) + place.pp.rank * GPT.layers // plan.pp)
    return ".".join(parts)


def compared(plan: Plan, reference: Trainer, loss: torch.Tensor) -> dict[str, float]:
    """Largest differences of a plan's loss and gradients from those of one rank, the latter relative to each one's largest."""
    place = MeshPosition.of(plan)
    trainer = Trainer(GPT, plan, GBS, place)
    own = trainer.forward_backward().clone()
    dist.all_reduce(own)  # of all copies, replicas and tensor ranks; of a pipeline only the last stage has one
    trainer.reduce()
    of = dict(reference.stage.named_parameters())
    apart = 0.0
    shard = trainer.shard.grad if plan.zero else None
    for name, one in trainer.stage.named_parameters():
        whole = of[whole_name(name, place, plan)].grad
        expected = share(name, whole, place.tp)
        assert expected.shape == one.shape, name
        if shard is None:
            apart = max(apart, float((one.grad.float() - expected).abs().max() / whole.abs().max()))
    copies = dist.get_world_size() // plan.gpus
    return {"loss": float(own) / copies / plan.tp - float(loss), "gradients": apart}


def main() -> None:
    """Compare every plan that standard input names."""
    rank = launched_rank() or Rank(0, 1)
    host, port = rendezvous_address(rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{host}:{port}", rank=rank.rank, world_size=rank.size)
    reference = Trainer(GPT, Plan(mbs=GBS, zero=0, precision="fp32"), GBS, MeshPosition())
    loss = reference.forward_backward()
    for number, knobs in enumerate(json.load(sys.stdin)["plans"]):
        plan = Plan(sp=False, **{"precision": "fp32", **knobs})
        found = compared(plan, reference, loss)
        every = [None] * rank.size
        dist.all_gather_object(every, found)
        after = later(plan)
        if rank.rank == 0:
            apart = {name: max(abs(one[name]) for one in every) for name in found}
            print(json.dumps({"plan": number, **apart, "later": after}), flush=True)
    dist.destroy_process_group()


def later(plan: Plan) -> float:
    """The loss of the third step: optimizer, sharding and all have to be right."""
    trainer = Trainer(GPT, plan, GBS, MeshPosition.of(plan))
    for _ in range(3):
        loss = trainer.step()
    dist.all_reduce(loss)
    return float(loss) / (dist.get_world_size() // plan.gpus) / plan.tp


if __name__ == "__main__":
    main()
