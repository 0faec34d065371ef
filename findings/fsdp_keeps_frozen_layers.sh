#!/usr/bin/env bash
# PyTorch 2.13.0: frozen layers that FSDP1 shards are kept to the end of backward by reentrant checkpoints.
#
# Eight layers with adapters on frozen weights, each recomputed (torch.utils.checkpoint). When backward reaches the
# first layer, 3 tensors of the hidden state are alive, whatever the kind of checkpoint, with FSDP or without. With
# FullyShardedDataParallel and use_reentrant=True there are 17: the input of every layer and its gradient. The hook that
# reshards frozen weights (torch/distributed/fsdp/_runtime_utils.py, _register_post_backward_reshard_only_hook) holds the
# gradient accumulators of the recomputed inputs, which are leaves. Activations of LoRA are twice as large as without
# it. Use use_reentrant=False or fully_shard.
#
# Seen on 2026-11-28 with Python 3.11 on two CPUs:
#   torch 2.13.0
#   fsdp False, reentrant False: 3 hidden states
#   fsdp False, reentrant True: 3 hidden states
#   fsdp True, reentrant False: 3 hidden states
#   fsdp True, reentrant True: 17 hidden states
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
cat >"$folder/alive.py" <<'PYTHON'
import gc
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.checkpoint import checkpoint

ROWS, WIDTH, LAYERS = 64, 32, 8


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(False)
        self.a, self.b = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)

    def forward(self, x):
        return x + torch.tanh(self.frozen(x) + self.b(self.a(x)))


class Model(nn.Module):
    def __init__(self, layers, reentrant):
        super().__init__()
        self.layers, self.reentrant = nn.ModuleList(layers), reentrant

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


def sharded(module):
    return FullyShardedDataParallel(module, device_id=torch.device("cpu"))


def hidden_states():
    gc.collect()
    tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor]
    tensors += [each.grad for each in tensors if each.is_leaf and each.grad is not None]
    return len({each.untyped_storage().data_ptr() for each in tensors if each.shape == (ROWS, WIDTH)})


def alive(fsdp, reentrant):
    layers = [Layer() for _ in range(LAYERS)]
    for layer in layers if fsdp else ():
        layer.a, layer.b = sharded(layer.a), sharded(layer.b)
    model = Model([sharded(layer) for layer in layers] if fsdp else layers, reentrant)
    model = sharded(model) if fsdp else model
    first, seen = torch.randn(ROWS, WIDTH).requires_grad_() * 1.0, []
    first.register_hook(lambda _: seen.append(hidden_states()))
    model(first).sum().backward()
    return seen[0]


def run(rank, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for fsdp in (False, True):
        for reentrant in (False, True):
            number = alive(fsdp, reentrant)
            if rank == 0:
                print(f"fsdp {fsdp}, reentrant {reentrant}: {number} hidden states", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    print(f"torch {torch.__version__.partition('+')[0]}", flush=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes.spawn(run, (port,), nprocs=2)
PYTHON
"$folder/venv/bin/python" "$folder/alive.py" 2>/dev/null | tee "$folder/seen"
diff "$folder/seen" - <<'SEEN'
torch 2.13.0
fsdp False, reentrant False: 3 hidden states
fsdp False, reentrant True: 3 hidden states
fsdp True, reentrant False: 3 hidden states
fsdp True, reentrant True: 17 hidden states
SEEN
