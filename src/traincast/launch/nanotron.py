"""nanotron's configuration: a Qwen2 model, which is a Llama model by default."""

from collections.abc import Mapping
from typing import Final

from traincast.launch.canonical import Facts
from traincast.launch.mapping import (
    ChoiceRow,
    ComputedRow,
    Row,
    Settings,
    ValueRow,
    constant_facts,
    is_off,
    whole_number,
)
from traincast.planner.framework_spaces import Framework

SOURCE: Final = (
    "huggingface/nanotron, src/nanotron/config: parallelism_config.py (commit 19f88fb), config.py (00708b8) and "
    "models_config.py (025f314), looked at on 2026-11-20"
)
SPACE: Final = Framework(
    "nanotron",
    "nanotron: ring attention, 1F1B pipelines, ZeRO-1",
    ("1d", "ring"),
    {"recompute": ("none", "full"), "zero": (0, 1), "schedule": ("1f1b",), "tp_overlap": (False, True)},
    interleaved=False,
    uneven=True,
    assumptions="nanotron-2025",
)
DTYPES: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
MODEL: Final = "model.model_config."
PARALLELISM: Final = "parallelism."
EXPERTS: Final = f"{MODEL}moe_config."


def _size(settings: Settings, name: str, usual: int = 1) -> int:
    """Return a setting as a whole number."""
    return usual if is_off(settings.get(name)) else int(whole_number(name, settings[name], 1))


def _write_data(facts: Facts) -> Settings:
    """Write the data-parallel replicas; expert parallelism has its own axis."""
    ep = facts.get("ep", 1)
    if facts["dp"] % ep:
        return {f"{PARALLELISM}dp": facts["dp"]}
    return {f"{PARALLELISM}dp": facts["dp"] // ep} | (
        {f"{PARALLELISM}expert_parallel_size": ep} if ep > 1 else {}
    )


def _read_data(settings: Settings) -> Facts:
    """Read the data-parallel replicas, with and without the axis of expert parallelism."""
    ep = _size(settings, f"{PARALLELISM}expert_parallel_size")
    facts: Facts = {"ep": ep} if f"{EXPERTS}num_experts" in settings else {}
    return {"dp": _size(settings, f"{PARALLELISM}dp") * ep, **facts}


def _write_batch(facts: Facts) -> Settings:
    """Write micro-batch, accumulation steps and sequence length."""
    steps = max(facts["gbs"] // facts["dp"] // facts["mbs"], 1)
    return {
        "tokens.sequence_length": facts["seq"],
        "tokens.micro_batch_size": facts["mbs"],
        "tokens.batch_accumulation_per_replica": steps,
        "tokens.train_steps": 100,
    }


def _read_batch(settings: Settings) -> Facts:
    """Read micro-batch, accumulation steps and sequence length."""
    facts: Facts = {
        "mbs": _size(settings, "tokens.micro_batch_size"),
        "accumulation": _size(settings, "tokens.batch_accumulation_per_replica"),
    }
    return facts | (
        {"seq": _size(settings, "tokens.sequence_length")} if "tokens.sequence_length" in settings else {}
    )


def _write_experts(facts: Facts) -> Settings:
    """Write the experts; layers are counted from 0."""
    if "experts.experts" not in facts:
        return {}
    every = len(facts["moe_layers"]) == facts["layers"]
    return {
        f"{EXPERTS}num_experts": facts["experts.experts"],
        f"{EXPERTS}top_k": facts["experts.topk"],
        f"{EXPERTS}layers": [-1] if every else [layer - 1 for layer in facts["moe_layers"]],
    }


def _read_experts(settings: Settings) -> Facts:
    """Read the experts, each as wide as the MLP."""
    if is_off(settings.get(f"{EXPERTS}num_experts")):
        return {}
    indices, layers = settings.get(f"{EXPERTS}layers", [-1]), _size(settings, f"{MODEL}num_hidden_layers", 0)
    chosen = (
        indices if isinstance(indices, list) and all(isinstance(index, int) for index in indices) else [-1]
    )
    return {
        "experts.experts": _size(settings, f"{EXPERTS}num_experts"),
        "experts.topk": _size(settings, f"{EXPERTS}top_k", 2),
        "experts.ffn": _size(settings, f"{MODEL}intermediate_size", 11008),
        "moe_layers": tuple(range(1, layers + 1)) if chosen == [-1] else tuple(index + 1 for index in chosen),
        "etp": 1,
    }


def _write_recompute(facts: Facts) -> Settings:
    """Write what is recomputed: whole layers, or MoE layers."""
    mode = facts["recompute"]
    if facts.get("recompute_every", 1) > 1:
        return {}
    return {
        "full": {f"{PARALLELISM}recompute_layer": True},
        "experts": {f"{PARALLELISM}moe_layer_recompute": True},
    }.get(mode, {})


def _read_recompute(settings: Settings) -> Facts:
    """Read what is recomputed."""
    if not is_off(settings.get(f"{PARALLELISM}recompute_layer")):
        return {"recompute": "full"}
    return {"recompute": "none" if is_off(settings.get(f"{PARALLELISM}moe_layer_recompute")) else "experts"}


ROWS: Final[Mapping[str, tuple[Row, ...]]] = {
    "parallelism": (
        ComputedRow(
            ("dp", "ep"),
            (f"{PARALLELISM}dp", f"{PARALLELISM}expert_parallel_size"),
            _write_data,
            _read_data,
            "traincast's dp is nanotron's dp times ep",
        ),
        ValueRow("pp", f"{PARALLELISM}pp", usual=1, always=True),
        ValueRow("tp", f"{PARALLELISM}tp", usual=1, always=True),
        ValueRow("cp", f"{PARALLELISM}context_parallel_size", usual=1),
        ChoiceRow(
            "schedule",
            (("1f1b", {f"{PARALLELISM}pp_engine": "1f1b"}), ("gpipe", {f"{PARALLELISM}pp_engine": "afab"})),
            (("gpipe", {}),),
            others=(),
        ),
        ChoiceRow(
            "sp",
            (
                (True, {f"{PARALLELISM}tp_mode": "REDUCE_SCATTER"}),
                (False, {f"{PARALLELISM}tp_mode": "ALL_REDUCE"}),
            ),
            ((False, {}),),
            others=(),
        ),
        ChoiceRow("tp_overlap", ((True, {f"{PARALLELISM}tp_linear_async_communication": True}), (False, {}))),
        ComputedRow(
            ("recompute",),
            (f"{PARALLELISM}recompute_layer", f"{PARALLELISM}moe_layer_recompute"),
            _write_recompute,
            _read_recompute,
            "whole layers, or MoE layers",
        ),
        constant_facts(order="tp-cp-dp-pp", vp=1, cp_kind="ring", tp_kind="1d", attention="flash"),
    ),
    "model": (
        ChoiceRow(
            "precision",
            tuple((one, {"model.dtype": name}) for one, name in DTYPES.items()),
            (("bf16", {}),),
            others=(),
        ),
        ValueRow("hidden", f"{MODEL}hidden_size"),
        ValueRow("ffn", f"{MODEL}intermediate_size"),
        ValueRow("layers", f"{MODEL}num_hidden_layers"),
        ValueRow("heads", f"{MODEL}num_attention_heads"),
        ValueRow("kv_heads", f"{MODEL}num_key_value_heads"),
        ValueRow("vocab", f"{MODEL}vocab_size"),
        ChoiceRow(
            "mlp",
            (("swiglu", {f"{MODEL}hidden_act": "silu"}), ("geglu", {f"{MODEL}hidden_act": "gelu"})),
            (("swiglu", {}),),
            others=(),
        ),
        ChoiceRow(
            "tied",
            ((True, {f"{MODEL}tie_word_embeddings": True}), (False, {f"{MODEL}tie_word_embeddings": False})),
        ),
        ChoiceRow(
            "biases", ((("qkv",), {f"{MODEL}attention_bias": True}), ((), {f"{MODEL}attention_bias": False}))
        ),
        ComputedRow(
            ("experts.experts", "experts.topk", "experts.ffn", "moe_layers"),
            (f"{EXPERTS}num_experts", f"{EXPERTS}top_k", f"{EXPERTS}layers"),
            _write_experts,
            _read_experts,
            "each as wide as the MLP; layers from 0, or -1 for all",
        ),
        constant_facts(
            causal=True, norm="rmsnorm", norms=2, positions="rotary", dropout=False, inner_dropout=False
        ),
    ),
    "batch": (
        ComputedRow(
            ("mbs", "gbs", "seq"),
            ("tokens.sequence_length", "tokens.micro_batch_size", "tokens.batch_accumulation_per_replica"),
            _write_batch,
            _read_batch,
            "the global batch is that of a replica times dp",
        ),
    ),
    "optimizer": (
        ChoiceRow(
            "zero",
            ((1, {"optimizer.zero_stage": 1}), (0, {"optimizer.zero_stage": 0})),
            ((0, {}),),
            others=(),
        ),
        ChoiceRow(
            "grad_dtype",
            (
                ("usual", {"optimizer.accumulate_grad_in_fp32": True}),
                ("16-bit", {"optimizer.accumulate_grad_in_fp32": False}),
            ),
        ),
        ChoiceRow(
            "optimizer_kind",
            (
                ("adam", {"optimizer.optimizer_factory.name": "adamW"}),
                ("sgd", {"optimizer.optimizer_factory.name": "sgd"}),
            ),
            others=(),
        ),
        constant_facts(offload="none"),
    ),
}
WHY: Final[Mapping[str, str]] = {
    "zero": "optimizer.zero_stage is 0 or 1",
    "vp": "pipelines have one chunk per rank",
    "chunks": "the pipeline is split by the cost of its blocks",
    "recompute": "whole layers or MoE layers are recomputed",
    "norm": "a Qwen2 model has RMSNorm",
    "positions": "a Qwen2 model has rotary positions",
    "dropout": "a Qwen2 model has no dropout",
    "experts.ffn": "an expert is as wide as the MLP",
    "experts.shared_ffn": "there is no setting for the width of shared experts",
    "head_dim": "a head is as wide as hidden size over heads",
    "biases": "queries, keys and values have biases, or none",
    "mlp": "the MLP is gated",
    "precision": "bfloat16, float16 or float32",
    "grad_dtype": "gradients are accumulated in fp32 (the default) or in 16 bits",
    "cp_kind": "context parallelism is ring attention",
    "etp": "there is no tensor parallelism inside experts",
}
FIXED_SETTINGS: Final[Settings] = {  # further settings that the program requires
    "general.project": "traincast", "general.run": "plan", "general.seed": 42,
    f"{MODEL}is_qwen2_config": True, "model.init_method.std": 0.02,
    "optimizer.weight_decay": 0.1, "optimizer.clip_grad": 1.0,
    "optimizer.optimizer_factory.adam_beta1": 0.9, "optimizer.optimizer_factory.adam_beta2": 0.95,
    "optimizer.optimizer_factory.adam_eps": 1e-08, "optimizer.optimizer_factory.torch_adam_is_fused": True,
    "optimizer.learning_rate_scheduler.learning_rate": 1e-4,
    "optimizer.learning_rate_scheduler.lr_warmup_style": "linear",
    "optimizer.learning_rate_scheduler.lr_decay_style": "cosine",
}  # fmt: skip
