"""Layers of transformers as torch counts them: FLOPs of products, and bytes that autograd saves for backward.

Without torch and transformers the tests are skipped; `make oracle` installs both and runs them, as does the
nightly run.
"""

import json
from collections import Counter
from importlib.util import find_spec

import pytest

import traincast as tc
from traincast.catalog.software_stacks import Stack
from traincast.core.plan import Plans
from traincast.model.adapters import parse_training
from traincast.operations.operation import Gemm
from traincast.operations.transformer import layer, parts
from traincast.step.memory import Footprint

LACKING = [name for name in ("torch", "transformers") if find_spec(name) is None]
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(bool(LACKING), reason=f"not installed: {' '.join(LACKING)}; `make oracle` does it"),
]

EAGER = Stack("huggingface-eager").assumptions.with_values({"memory.vocab_multiple": 1})
B, S = 2, 64  # sequences of a micro-batch, tokens of a sequence
SIZES = {"hidden_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 512}
KV, FFN = {"num_key_value_heads": 2}, {"intermediate_size": 320}
MLA = {"kv_lora_rank": 32, "q_lora_rank": 48, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 96, "num_experts": 4, "norm_topk_prob": True}
CONFIGS = {  # model type -> fields: one of each kind of block
    "llama": {**KV, **FFN},
    "mistral": {**KV, **FFN},
    "qwen2": {**KV, **FFN},  # biases of queries, keys and values
    "qwen3": {**KV, **FFN, "head_dim": 32},  # their norms
    "phi3": {**KV, **FFN, "pad_token_id": None},  # joined products
    "gpt_neox": {**FFN, "hidden_act": "gelu"},  # LayerNorm, biases, MLP beside attention
    "starcoder2": {**KV, **FFN},
    "gemma2": {**KV, **FFN, "head_dim": 32},  # norms after the blocks, tied
    "mixtral": {**KV, **FFN, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {**KV, **FFN, **MOE, "shared_expert_intermediate_size": 160},  # with a gate of the shared
    "deepseek_v3": {
        **KV, **FFN, **MLA, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
        "num_key_value_heads": 4,
    },
}  # fmt: skip
# Not with fused attention: joined products, of which the values are a view that keeps all of the result
# (Phi-3, GPT-NeoX). Nor Gemma, whose norms multiply by the weight in fp32.
SAVED = [
    *((name, "sdpa", "flash") for name in ("llama", "mistral", "qwen2", "qwen3", "starcoder2")),
    *((name, "eager", "unfused") for name in ("llama", "qwen2", "qwen3", "phi3", "gpt_neox", "starcoder2")),
]
DROPOUTS = ("attention_dropout", "hidden_dropout", "residual_dropout", "embedding_dropout", "resid_pdrop")


def both(model_type, tmp_path, attention, train="full", **more):
    """The model that transformers builds, and ours of the same configuration."""
    import torch
    import transformers

    default = transformers.AutoConfig.for_model(model_type).to_dict()
    fields = {**SIZES, "max_position_embeddings": S, **CONFIGS.get(model_type, {}), **more}
    fields |= {name: 0.0 for name in (*DROPOUTS, "embd_pdrop") if name in default}
    fields |= (
        {"sliding_window": None}
        if "sliding_window" in {*default} - {*more} and model_type != "gemma2"
        else {}
    )
    config = transformers.AutoConfig.for_model(model_type, **fields)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config.to_dict(), default=str), encoding="utf-8")
    torch.manual_seed(0)
    built = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation=attention, experts_implementation="eager", dtype=torch.bfloat16
    )
    model, adapters = tc.load_model(path, seq=S), parse_training(train)
    return built.train(), model if adapters is None else model.with_adapters(adapters)


def saved_by_torch(built, place):
    """Bytes of unique storages that the layer of a place saves, without weights and what it is given."""
    import torch

    given, kept, held = set(), {}, []
    inner = next(module for name, module in built.named_modules() if name.endswith(f"layers.{place}"))
    recording = []

    def storage(tensor):
        return tensor.untyped_storage().data_ptr()

    def start(module, args, kwargs):
        tensors = [*args, *kwargs.values(), *kwargs.get("position_embeddings", ())]
        given.update(storage(t) for t in tensors if isinstance(t, torch.Tensor) and not t.requires_grad)
        recording.append(True)

    def stop(*_):
        recording.clear()

    def pack(tensor):
        held.append(tensor)  # so that no address is used again
        if recording:
            kept[storage(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    handles = [inner.register_forward_pre_hook(start, with_kwargs=True), inner.register_forward_hook(stop)]
    given |= {storage(tensor) for tensor in (*built.parameters(), *built.buffers())}
    embedded = built.get_input_embeddings()(torch.randint(0, 100, (B, S))).detach().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        built(inputs_embeds=embedded, use_cache=False)
    for handle in handles:
        handle.remove()
    return sum(size for address, size in kept.items() if address not in given)


def saved(model, attention, place):
    """Bytes that our layer of a place saves."""
    plan = Plans(mbs=float(B), attention=attention)
    return Footprint.from_operations(layer(model, plan, EAGER, model.pattern[place]), plan).saved


@pytest.mark.parametrize(("model_type", "implementation", "attention"), SAVED)
def test_a_layer_saves_what_autograd_saves(model_type, implementation, attention, tmp_path):
    """To the byte: norms and softmax in fp32, the gate of SwiGLU, the statistics of norms and attention."""
    built, model = both(model_type, tmp_path, implementation)
    expected = saved(model, attention, 1)
    if model.norm == "layernorm":  # two statistics of a row are in 16 bits on the CPU, and in fp32 on GPUs
        expected -= model.norms * 2 * (4 - 2) * B * S
    assert expected == saved_by_torch(built, 1)


def matrix_flops(model):
    """FLOPs of products of a step with unfused attention, forward and backward, 2 m k n each."""
    plan = Plans(mbs=float(B), attention="unfused")
    operations = parts(model, plan, EAGER)
    counts = Counter(map(str, model.pattern)) | Counter(("embedding", "head"))

    def of(work):
        kernels = work.kernels if work else ()
        return sum(2 * k.batch * k.m * k.k * k.n for k in kernels if isinstance(k, Gemm))

    ways = [("forward",), ("backward", "weight")]
    return [
        sum(
            n * of(getattr(op, way)) for part, n in counts.items() for op in operations[part] for way in names
        )
        for names in ways
    ]


@pytest.mark.parametrize("model_type", CONFIGS)
def test_products_are_those_that_torch_counts(model_type, tmp_path):
    """To the last FLOP, of a whole model, forward and backward (torch.utils.flop_counter)."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    built, model = both(model_type, tmp_path, "eager")
    tokens = torch.randint(0, 100, (B, S))
    with FlopCounterMode(display=False) as forward:
        logits = built(input_ids=tokens, use_cache=False).logits
    with FlopCounterMode(display=False) as backward:
        logits.float().sum().backward()
    assert matrix_flops(model) == [forward.get_total_flops(), backward.get_total_flops()]


def test_products_of_compressed_attention_are_those_that_torch_counts(tmp_path):
    """DeepSeek-V4's forward pass; eager attention and its indexer score all keys, compressed ones as well."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    heads, width, index_heads, index_width = 4, 64, 2, 32
    layers = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 16}
    built, model = both(
        "deepseek_v4", tmp_path, "eager", num_key_value_heads=1, head_dim=width, q_lora_rank=48, o_groups=2,
        o_lora_rank=24, moe_intermediate_size=80, n_routed_experts=4, num_experts_per_tok=2, hc_mult=2,
        index_n_heads=index_heads, index_head_dim=index_width, index_topk=4, sliding_window=16,
        layer_types=[*layers], compress_rates=layers, mlp_layer_types=["moe"] * 2,
    )  # fmt: skip
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        built(torch.randint(0, 100, (B, S)))
    operations = parts(model, Plans(mbs=float(B)), EAGER)
    scored = {"attention.flash", "attention.index_scores", "attention.index_loss"}
    ours = sum(
        2 * kernel.batch * kernel.m * kernel.k * kernel.n
        for part in (*map(str, model.pattern), "head")
        for op in operations[part]
        if op.name not in scored
        for kernel in op.forward.kernels
        if isinstance(kernel, Gemm)
    )
    all_scores = sum(2 * 2 * heads * width * B * S * (S + S // rate) for rate in layers.values())
    all_scores += 2 * index_heads * index_width * B * S * (S // 4)
    assert ours + all_scores == counter.get_total_flops()
