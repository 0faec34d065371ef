"""Programs on Lightning: arguments of Trainer and Fabric; expected values are by hand."""

import pytest

import traincast as tc

PROGRAM = """
import argparse
import lightning as L
import torch
from lightning.pytorch.strategies import FSDPStrategy
from torch.utils.data import DataLoader

raise SystemExit("programs are parsed, never run")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    args = parser.parse_args()
    strategy = FSDPStrategy(sharding_strategy="SHARD_GRAD_OP", activation_checkpointing_policy={Block})
    train = DataLoader(data, batch_size=args.batch_size, shuffle=True)
    trainer = L.Trainer(
        devices=8, num_nodes=2, strategy=STRATEGY, precision="bf16-mixed", accumulate_grad_batches=2
    )
    trainer.fit(model, train)
"""
FABRIC = """
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy
NODES = 2
fabric = Fabric(devices=8, num_nodes=NODES, precision="bf16-true", strategy=ModelParallelStrategy(
    tensor_parallel_size=2, data_parallel_size=8, parallelize_fn=parallelize))
"""


def est_of(tmp_path, text, **given):
    path = tmp_path / "train.py"
    path.write_text(text, encoding="utf-8")
    return tc.check(path, "dgx-h100", **{"model": "llama-3-8b", **given}).est


@pytest.mark.parametrize(
    ("strategy", "zero", "recompute", "offload"),
    [
        ("strategy", 2, "full", "none"),
        ('"fsdp"', 3, "none", "none"),
        ('"ddp"', 0, "none", "none"),
        ('"deepspeed_stage_2"', 2, "none", "none"),
        ('"deepspeed_stage_3_offload"', 3, "none", "optimizer+weights"),
    ],
)
def test_a_trainer_is_read(strategy, zero, recompute, offload, tmp_path):
    """Two nodes of 8; 4 sequences from the default of the command line, accumulated twice."""
    est = est_of(tmp_path, PROGRAM.replace("STRATEGY", strategy))
    plan = est.plan
    assert (plan.dp, plan.mbs, est.gbs, plan.precision) == (16, 4, 128, "bf16")
    assert (plan.zero, plan.recompute, plan.offload) == (zero, recompute, offload)


def test_fabric_is_read(tmp_path):
    plan = est_of(tmp_path, FABRIC, gbs=64).plan
    assert (plan.tp, plan.dp, plan.zero, plan.precision) == (2, 8, 3, "bf16-pure")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"bf16-mixed"', '"int3"', "precision = 'int3'"),
        ("devices=8", "devices=count", "give it with --set count=…"),
        ("STRATEGY", '"xla"', "strategy = 'xla': must be one of auto, ddp"),
        ("STRATEGY", 'DeepSpeedStrategy(config="ds.json")', "strategy.config = ds.json: not read"),
        ("num_nodes=2", "num_nodes=2, plugins=[X()]", "plugins"),
    ],
)
def test_what_is_not_read_is_refused_by_name(old, new, said, tmp_path):
    text = PROGRAM.replace(old, new).replace("STRATEGY", '"fsdp"')
    with pytest.raises(tc.InputError) as caught:
        est_of(tmp_path, text)
    assert said in str(caught.value)
