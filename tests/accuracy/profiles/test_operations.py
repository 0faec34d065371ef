"""Operations of a profiled step: made-up events whose times are summed by hand, and a real model's."""

import json
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest

import traincast as tc
from log_files import written
from traincast.accuracy.profiles.labels import label_of

MS = 1000.0  # µs
GPT = tc.Model(
    name="gpt", layers=2, hidden=128, heads=4, ffn=512, seq=64, vocab=1000, causal=True, mlp="gelu",
    biases=("qkv", "proj", "mlp"), positions="learned", dropout=False, inner_dropout=False,
)  # fmt: skip
LLAMA = replace(
    GPT, kv_heads=2, ffn=352, mlp="swiglu", norm="rmsnorm", biases=(), positions="rotary", head_dim=64
)
# name, begins, ends [ms], number, thread of the forward pass, shapes; a gate (352 wide) and its gradients
GATE = [
    ("aten::linear", 1, 3, 5, 0, [[4, 64, 128], [352, 128], []]),
    ("aten::mm", 1, 2, 6, 0, [[256, 128], [128, 352]]),
    ("aten::mul", 3, 4, 7, 0, [[4, 64, 352], [4, 64, 352]]),
    ("autograd::engine::evaluate_function: MulBackward0", 10, 11, 7, 1, []),
    ("aten::mul", 10, 11, None, 0, [[4, 64, 352], [4, 64, 352]]),
    ("autograd::engine::evaluate_function: MmBackward0", 11, 20, 6, 1, []),
    ("MmBackward0", 11, 20, 6, 1, [[256, 352]]),
    ("aten::linear", 11, 14, 40, 0, [[4, 64, 352], [128, 352], []]),  # recomputed: the down projection
    ("aten::mm", 14, 16, None, 0, [[256, 352], [352, 128]]),  # as wide as a down projection, but a gradient
    ("aten::mm", 16, 20, None, 0, [[352, 256], [256, 128]]),
]


def host(operators=GATE):
    events = []
    for index, (name, start, end, number, forward, shapes) in enumerate(operators):
        arguments = {"External id": 100 + index, "Fwd thread id": forward, "Input Dims": shapes}
        arguments |= {} if number is None else {"Sequence number": number}
        times = {"ts": start * MS, "dur": (end - start) * MS, "pid": 1, "tid": 1 + forward * 0}
        events.append({"ph": "X", "cat": "cpu_op", "name": name, "args": arguments} | times)
    mark = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0.0, "dur": 25 * MS}
    return [*events, mark]


def milliseconds(folder, events, model=LLAMA, predicted=False):
    trace = written(folder, "trace.json", json.dumps({"traceEvents": events}))
    estimate = tc.estimate(model, "dgx-h100", tc.Plan(mbs=4), gbs=4)
    operations = tc.profile(trace, estimate).operations
    field = "predicted_seconds" if predicted else "seconds"
    return {each.name: getattr(each, field) * 1e3 for each in operations}


def test_gradients_are_of_the_operator_with_their_number(tmp_path):
    measured = milliseconds(tmp_path, host())
    # forward 1 to 3, gradients 14 to 20; 11 to 14 is recomputed; what multiplies is of no operation
    assert measured == pytest.approx({"mlp.fc1": 8, "mlp.fc2": 3, "others": 2})


def test_kernels_are_of_the_operator_that_launched_them(tmp_path):
    kernels = [
        {"ph": "X", "cat": "kernel", "name": name, "ts": start * MS, "dur": 2 * MS, "pid": 0, "tid": 7}
        | {"args": {"External id": number, "correlation": number}}
        for name, start, number in (
            ("nvjet_a", 2, 101),
            ("nvjet_b", 15, 108),
            ("nvjet_c", 18, 107),
            ("k", 21, 9),
        )
    ]
    measured = milliseconds(tmp_path, [*host(), *kernels])
    assert measured == pytest.approx({"mlp.fc1": 4, "mlp.fc2": 2, "others": 2})


def test_operations_with_the_same_shape_stand_together(tmp_path):
    """Queries and the output projection of a model with as many heads as its width are both h x h."""
    square = replace(LLAMA, head_dim=None)
    operators = [
        ("aten::mm", at, at + 1, at, 0, [[256, 128], [128, width]]) for at, width in ((1, 128), (2, 64))
    ]
    measured = milliseconds(tmp_path, host(operators), square)
    assert measured == pytest.approx({"attention.qkv, attention.proj": 2, "others": 0})


def test_predictions_add_up_to_the_compute_of_the_step(tmp_path):
    estimate = tc.estimate(LLAMA, "dgx-h100", tc.Plan(mbs=4), gbs=4)
    compute = sum(estimate.breakdown[name] for name in ("compute", "exposed_memory", "recomputation"))
    predicted = milliseconds(tmp_path, host(), predicted=True)
    assert sum(predicted.values()) == pytest.approx(float(compute) * 1e3)
    assert min(predicted.values()) > 0


def test_a_profile_that_names_nothing_has_no_operations(tmp_path):
    kernel = {"ph": "X", "cat": "kernel", "name": "nvjet_a", "ts": 1.0, "dur": 2.0, "pid": 0, "tid": 7}
    trace = written(tmp_path, "trace.json", json.dumps({"traceEvents": [kernel]}))
    assert tc.profile(trace).operations == []


@pytest.mark.parametrize(
    ("name", "label"),  # operators of torch 2.13, and kernels as published profiles name them
    [
        ("aten::_log_softmax_backward_data", "loss"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("flash_bwd_kernel<Flash_bwd_kernel_traits>", "attention"),
        ("aten::native_layer_norm", "norm"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel", "norm"),
        ("aten::silu", "activation"),
        ("aten::embedding_dense_backward", "embedding"),
        ("aten::mul", ""),
    ],
)
def test_names_tell(name, label):
    assert label_of(name) == label


TRAIN = """
import sys, torch, torch.nn as nn, torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, schedule
torch.set_num_threads(1)
class Layer(nn.Module):
    def __init__(self, h=128, f=512):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(h), nn.LayerNorm(h)
        self.qkv, self.proj = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.fc1, self.fc2 = nn.Linear(h, f), nn.Linear(f, h)
    def forward(self, x):
        q, k, v = (y.view(4, 64, 4, 32).transpose(1, 2) for y in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(4, 64, 128)
        x = x + self.proj(y)
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))
table, position = nn.Embedding(1000, 128), nn.Embedding(64, 128)
norm, head = nn.LayerNorm(128), nn.Linear(128, 1000, bias=False)
layers = nn.Sequential(Layer(), Layer())
modules = nn.ModuleList([table, position, norm, head, layers])
optimizer = torch.optim.AdamW(modules.parameters())
when = schedule(wait=1, warmup=1, active=2)
with profile(activities=[ProfilerActivity.CPU], schedule=when, record_shapes=True,
             on_trace_ready=lambda p: p.export_chrome_trace(sys.argv[1])) as p:
    for _ in range(4):
        tokens = torch.randint(1000, (4, 64))
        logits = head(norm(layers(table(tokens) + position(torch.arange(64)))))
        F.cross_entropy(logits.view(-1, 1000), tokens.view(-1)).backward()
        optimizer.step()
        optimizer.zero_grad()
        p.step()
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_a_real_step_of_a_gpt_operation_by_operation(tmp_path):
    script, trace = written(tmp_path, "train.py", TRAIN), tmp_path / "trace.json"
    command = [sys.executable, "-W", "ignore", str(script), str(trace)]
    subprocess.run(command, check=True, capture_output=True)
    estimate = tc.estimate(GPT, "examples/measured_cpu/machine.yaml", tc.Plan(mbs=4, precision="fp32"), gbs=4)
    step = tc.profile(trace, estimate)
    measured = {each.name: each.seconds for each in step.operations}
    products = {"attention.qkv", "attention.proj", "mlp.fc1", "mlp.fc2", "head.projection"}
    told = {*products, "attention.flash", "mlp.gelu", "head.loss", "mlp.norm, attention.norm, head.norm"}
    assert told <= set(measured)
    assert any(name.startswith("embedding") for name in measured)
    assert min(measured.values()) > 0
    # one thread: nothing overlaps, so that operations add up to the parts that are no optimizer nor idle time
    parts = {part.name: part.seconds for part in step.parts}
    busy = sum(parts[name] for name in ("matrix products", "attention", "norms and element-wise"))
    assert sum(measured.values()) == pytest.approx(busy, rel=0.01)
    assert sum(measured[name] for name in products) >= 0.95 * parts["matrix products"]
