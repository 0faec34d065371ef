"""Count kernels that Megatron-Core and torchtitan issue, and the tensors that their rotations move.

    PYTHONPATH=FOLDER python tools/framework_kernels.py           # print the counts; FOLDER has Megatron-Core
    PYTHONPATH=FOLDER python tools/framework_kernels.py --write   # renew tests/data/framework_kernels.json

Counted as by tools/layer_kernels.py. A rotation's `tensors` are what it reads and writes over the queries and
keys themselves, in 16 bits, of which a fused kernel has 2 in each direction. Packed documents are those of
Megatron-Core's `thd` format: the counts are of one document more. The layer is Megatron-Core's local one
(without Transformer Engine), whose norms are chains and whose attention is not fused.
"""

import argparse
import contextlib
import json
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch

from layer_kernels import Kernels

COUNTS: Final = Path(__file__).parents[1] / "tests" / "data" / "framework_kernels.json"
TOKENS: Final = 2048
HEADS: Final = 40  # of queries and keys, which are few beside the table of angles
WIDTH: Final = 128


class _Alone:
    """Group of context-parallel ranks that has one."""

    def size(self) -> int:
        """Return the number of ranks."""
        return 1

    def rank(self) -> int:
        """Return the rank."""
        return 0


def _both(rotate: Callable[[torch.Tensor], torch.Tensor], *shape: int) -> tuple[Kernels, Kernels]:
    """Return the counts of both passes of a rotation of tensors of a shape."""
    x = torch.randn(*shape, dtype=torch.bfloat16, requires_grad=True)
    forward = Kernels()
    backward = Kernels()
    with forward:
        result = rotate(x)
    gradient = torch.ones_like(result)
    with backward:
        result.backward(gradient)
    return forward, backward


def _counts(passes: tuple[Kernels, Kernels]) -> dict[str, dict[str, float]]:
    """Return kernels and tensors of each pass over a tensor of `TOKENS`, `HEADS` and `WIDTH`."""
    own = 2 * TOKENS * HEADS * WIDTH
    return {
        name: {"kernels": of_pass.calls.total(), "tensors": round(sum(of_pass.nbytes.values()) / own, 1)}
        for name, of_pass in zip(("forward", "backward"), passes, strict=True)
    }


def megatron_rotation() -> dict[str, dict[str, float]]:
    """Return the counts of Megatron-Core's rotation of a tensor without documents."""
    from megatron.core.models.common.embeddings import rope_utils

    angles = torch.randn(TOKENS, 1, 1, WIDTH)
    shape = TOKENS, 1, HEADS, WIDTH
    return _counts(_both(lambda x: rope_utils._apply_rotary_pos_emb_bshd(x, angles), *shape))


def megatron_document() -> dict[str, float]:
    """Return the kernels of one packed document more, of a tensor."""
    from megatron.core.models.common.embeddings import rope_utils

    def of_documents(n: int) -> tuple[Kernels, Kernels]:
        ends = torch.arange(0, TOKENS + 1, TOKENS // n, dtype=torch.int32)
        angles = torch.randn(TOKENS // n, 1, 1, WIDTH)
        alone: Any = _Alone()
        return _both(
            lambda x: rope_utils._apply_rotary_pos_emb_thd(x * 1, ends, angles, cp_group=alone),
            *(TOKENS, HEADS, WIDTH),
        )

    more, fewer = of_documents(8), of_documents(4)
    names = "forward", "backward"
    return {
        name: (a.calls.total() - b.calls.total()) / 4 for name, a, b in zip(names, more, fewer, strict=True)
    }


def megatron_layer() -> dict[str, int]:
    """Return the kernels of Megatron-Core's local layer with gated MLP and norms of queries and keys."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.transformer_config import TransformerConfig

    torch.cuda.current_device = lambda: torch.device("cpu")  # there is none
    random.CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29531")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    parallel_state.initialize_model_parallel()

    def passes(layers: int) -> tuple[Kernels, Kernels]:
        config = TransformerConfig(
            num_layers=layers, hidden_size=512, num_attention_heads=32, num_query_groups=8,
            ffn_hidden_size=1792, kv_channels=16, qk_layernorm=True, normalization="RMSNorm",
            gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False,
            bias_activation_fusion=True, bias_dropout_fusion=True, hidden_dropout=0, attention_dropout=0,
            masked_softmax_fusion=False, gradient_accumulation_fusion=False, use_cpu_initialization=True,
            bf16=True, params_dtype=torch.bfloat16,
        )  # fmt: skip
        spec = get_gpt_layer_local_spec(qk_layernorm=True, normalization="RMSNorm")
        ends = {"position_embedding_type": "rope", "share_embeddings_and_output_weights": False}
        model = GPTModel(config, spec, 256, 512, **ends).bfloat16()
        tokens = torch.zeros(1, 512, dtype=torch.long)
        inputs = tokens, torch.arange(512)[None], torch.ones(1, 1, 512, 512).triu(1).bool()
        model(*inputs).sum().backward()
        forward = Kernels()
        backward = Kernels()
        with forward:
            result = model(*inputs).sum()
        with backward:
            result.backward()
        return forward, backward

    pairs = zip(("forward", "backward"), passes(3), passes(2), strict=True)
    return {name: more.calls.total() - fewer.calls.total() for name, more, fewer in pairs}


def torchtitan_rotation(kind: str) -> dict[str, dict[str, float]]:
    """Return the counts of torchtitan's rotation of a tensor; `kind` is the class."""
    from torchtitan.models.common import rope

    halves = torch.rand(1, TOKENS, 1, 2 * WIDTH)
    pairs = torch.polar(torch.ones(1, TOKENS, 1, WIDTH // 2), torch.rand(1, TOKENS, 1, WIDTH // 2))
    table = halves if kind == "CosSinRoPE" else pairs
    few = torch.zeros(1, TOKENS, 1, WIDTH, dtype=torch.bfloat16)  # of keys, which are the same once more
    rotate = getattr(rope, kind).apply_rotary_emb
    forward, backward = _both(lambda x: rotate(x, few, table)[0], 1, TOKENS, HEADS, WIDTH)
    beside = Kernels()
    with beside:
        rotate(few, few, table)
    for name, calls in beside.calls.items():
        forward.calls[name] -= calls // 2
        forward.nbytes[name] -= beside.nbytes[name] // 2
    return _counts((forward, backward))


def main() -> None:
    """Print the counts, or write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew tests/data/framework_kernels.json")
    arguments = parser.parse_args()
    import megatron.core

    counts: dict[str, Any] = {
        "Megatron-Core, rotation": megatron_rotation(),
        "Megatron-Core, rotation of a document": megatron_document(),
        "Megatron-Core, local layer": megatron_layer(),
        **{f"torchtitan, {kind}": torchtitan_rotation(kind) for kind in ("ComplexRoPE", "CosSinRoPE")},
        "versions": {
            "torch": torch.__version__,
            "megatron-core": megatron.core.__version__.partition("+")[0],
            "torchtitan": version("torchtitan"),
        },
    }
    text = json.dumps(counts, indent=2) + "\n"
    if arguments.write:
        COUNTS.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
