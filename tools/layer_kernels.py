"""Count the kernels that a layer of transformers issues, and the tensors that its elementwise ones move.

    python tools/layer_kernels.py           # print the counts
    python tools/layer_kernels.py --write   # renew tests/data/layer_kernels.json

A model of three layers less one of two is a layer. Every operation that PyTorch dispatches in a forward and a
backward pass counts as a kernel, unless it only views or allocates memory. Eager PyTorch issues the same
operations on a CPU and on a GPU; of the layers here none is decomposed on one alone. Gradients are there, so
that a pass adds to them. `tensors` are read and written by all kernels but products and attention, and but
for gradients of weights that are added: in tensors of the hidden size at 16 bits. The shapes are those of
Mistral-7B with every width divided by eight.

With `fused` a norm and a rotation of queries and keys are one kernel in each direction, as with
Liger-Kernel. These operations do no work here; only their tensors count.
"""

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import peft
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers.models.mistral import modeling_mistral as mistral

COUNTS: Final = Path(__file__).parents[1] / "tests" / "data" / "layer_kernels.json"
HIDDEN: Final = 512
TOKENS: Final = 512
HEADS: Final = 32
KV_HEADS: Final = 8
FFN: Final = 1792
ALLOCATIONS: Final = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "_unsafe_view",
     "lift_fresh", "_local_scalar_dense"}
)  # fmt: skip
ATTENTION: Final = ("q_proj", "k_proj", "v_proj", "o_proj")
LINEAR: Final = (*ATTENTION, "gate_proj", "up_proj", "down_proj")


@torch.library.custom_op("layer_kernels::norm", mutates_args=())
def _norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("layer_kernels::norm_backward", mutates_args=())
def _norm_backward(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), torch.empty_like(weight)


@torch.library.custom_op("layer_kernels::rotate", mutates_args=())
def _rotate(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(q), torch.empty_like(k)


def _rotate_backward(ctx: Any, of_q: torch.Tensor, of_k: torch.Tensor) -> tuple[Any, ...]:
    return (*_rotate(of_q, of_k, *ctx.saved_tensors), None, None)


_norm.register_autograd(
    lambda ctx, gradient: _norm_backward(gradient, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
_rotate.register_autograd(
    _rotate_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[2:])
)


class Kernels(TorchDispatchMode):
    """Count dispatched operations, and the bytes of their tensors, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.nbytes: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        if not func.is_view and name not in ALLOCATIONS:
            read = {id(x): x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
            written = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
            self.calls[name] += 1
            self.nbytes[name] += sum(map(_nbytes, [*read.values(), *written]))
        return result


def _nbytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor in memory; expanded dimensions have none."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride else 1
    return elements * tensor.element_size()


def _model(layers: int, targets: Sequence[str]) -> torch.nn.Module:
    """Return a model in 16 bits, with adapters on `targets` if there are any."""
    config = transformers.MistralConfig(
        hidden_size=HIDDEN,
        intermediate_size=FFN,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HIDDEN // HEADS,
        num_hidden_layers=layers,
        vocab_size=256,
        attn_implementation="sdpa",
        use_cache=False,
    )
    model: Any = mistral.MistralForCausalLM(config).to(torch.bfloat16)
    if targets:
        model = peft.get_peft_model(model, peft.LoraConfig(r=16, target_modules=list(targets)))
    return model.train()


def _passes(layers: int, targets: Sequence[str]) -> tuple[Kernels, Kernels]:
    """Return the counts of the second forward and backward pass of a model."""
    model = _model(layers, targets)
    tokens = torch.zeros(1, TOKENS, dtype=torch.long)
    model(input_ids=tokens).logits.sum().backward()
    forward = Kernels()
    backward = Kernels()
    with forward:
        result = model(input_ids=tokens).logits.sum()
    with backward:
        result.backward()
    return forward, backward


def count(targets: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    """Return the kernels of a layer in each direction, and the tensors that its elementwise ones move."""
    found = {}
    for direction, more, fewer in zip(
        ("forward", "backward"), _passes(3, targets), _passes(2, targets), strict=True
    ):
        moved = {name: nbytes - fewer.nbytes[name] for name, nbytes in more.nbytes.items()}
        elementwise = sum(
            nbytes
            for name, nbytes in moved.items()
            if name not in ("mm", "add_") and "scaled_dot_product" not in name
        )
        kernels = more.calls.total() - fewer.calls.total()
        found[direction] = {"kernels": kernels, "tensors": round(elementwise / (2 * TOKENS * HIDDEN), 1)}
    return found


def main() -> None:
    """Print the counts, or write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew tests/data/layer_kernels.json")
    arguments = parser.parse_args()
    cases = {"layer": (), "layer, adapters of attention": ATTENTION, "layer, adapters of all": LINEAR}
    counts: dict[str, Any] = {name: count(targets) for name, targets in cases.items()}
    mistral.MistralRMSNorm.forward = lambda self, x: _norm(x, self.weight)
    mistral.apply_rotary_pos_emb = lambda q, k, cos, sin, unsqueeze_dim=1: _rotate(q, k, cos, sin)
    counts |= {f"fused {name}": count(targets) for name, targets in cases.items()}
    counts["versions"] = {package.__name__: package.__version__ for package in (torch, transformers, peft)}
    text = json.dumps(counts, indent=2) + "\n"
    if arguments.write:
        COUNTS.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
