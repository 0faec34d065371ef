"""Megatron-LM's arguments.

Names are those of megatron/training/arguments.py, spelled as the program stores them, so that its logs have the same names;
scripts add `--` and dashes. A row from elsewhere has its own source.
"""

from collections.abc import Mapping
from typing import Final

from traincast.core.errors import InputError
from traincast.launch.canonical import Facts
from traincast.launch.mapping import ANY, ChoiceRow, ComputedRow, Row, Settings, ValueRow, constant_facts
from traincast.launch.megatron import model_settings, plan_settings
from traincast.launch.pipeline_layout import layout_chunks, layout_text

SOURCE: Final = (
    "NVIDIA/Megatron-LM, megatron/training/arguments.py (commit 000c4ac, late 2025), looked at on 2026-11-20"
)
SHARED_GATE_SOURCE: Final = (
    "NVIDIA-NeMo/Megatron-Bridge and NVIDIA/Megatron-LM scripts of 2026, looked at on 2026-11-20"
)

FLEX_DISPATCHER_FLAGS: Final = (
    "moe_enable_deepep",
    "moe_flex_dispatcher_backend",
)  # with --moe-token-dispatcher-type flex


def _write_chunks(facts: Facts) -> Settings:
    """Write model chunks: their number where all have the same number of layers, else a layout."""
    chunks, vp = facts.get("chunks", ()), facts["vp"]
    if chunks and (len(set(chunks)) > 1 or chunks[0] * len(chunks) != facts["layers"]):
        return {"pipeline_model_parallel_layout": layout_text(chunks, facts.get("mtp", 0))}
    return {"num_virtual_stages_per_pipeline_rank": vp} if vp > 1 else {}


def _read_chunks(settings: Settings) -> Facts:
    """Read the model chunks of a rank, and their layers from a layout or the split settings."""
    pp = model_settings.size(settings, "pipeline_model_parallel_size") or 1
    layers = model_settings.size(settings, "num_layers", "encoder_num_layers")
    layout = settings.get("pipeline_model_parallel_layout")
    if layout is not None:
        chunks = layout_chunks(str(layout))
        if len(chunks) % pp:
            problem = f"pipeline_model_parallel_layout = {str(layout)[:60]!r}: has {len(chunks)} stages, not a multiple of pp = {pp}"
            raise InputError("layout", [problem])
        return {"chunks": chunks, "vp": max(len(chunks) // pp, 1)}
    vp = model_settings.size(
        settings, "num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size"
    )
    layers_per_chunk = model_settings.size(settings, "num_layers_per_virtual_pipeline_stage")
    ends = [
        plan_settings.is_on(settings, f"account_for_{end}_in_pipeline_split") for end in ("embedding", "loss")
    ]
    if vp is None:
        vp = max((layers + sum(ends)) // pp // layers_per_chunk, 1) if layers_per_chunk and layers else 1
    return {
        "vp": vp,
        **(
            {"chunks": plan_settings.stage_layers(settings, layers, pp, vp, ends)}
            if layers and pp > 1
            else {}
        ),
    }


ROWS: Final[Mapping[str, tuple[Row, ...]]] = {
    "launch": (
        ComputedRow(
            ("gpus",),
            plan_settings.LAUNCHER_SETTINGS,
            plan_settings.write_gpus,
            plan_settings.read_gpus,
            "from torchrun or Slurm; dp follows",
        ),
    ),
    "model": (
        ValueRow("layers", "num_layers", ("encoder_num_layers",)),
        ValueRow("hidden", "hidden_size"),
        ValueRow("heads", "num_attention_heads"),
        ComputedRow(
            ("kv_heads", "head_dim"),
            model_settings.HEAD_SETTINGS,
            model_settings.write_heads,
            model_settings.read_heads,
            "GQA; width of a head where it is not hidden size over heads",
        ),
        ComputedRow(
            ("ffn",),
            ("ffn_hidden_size",),
            lambda facts: {"ffn_hidden_size": facts["ffn"]},
            model_settings.read_ffn,
            "by default 4 × hidden",
        ),
        ValueRow("seq", "seq_length", ("encoder_seq_length",)),
        ComputedRow(
            ("max_positions",),
            ("max_position_embeddings",),
            model_settings.write_positions,
            model_settings.read_positions,
            "the sequence length unless positions are learned",
        ),
        ValueRow("vocab", "vocab_size", ("padded_vocab_size", "pad_vocab_size_to")),
        ChoiceRow("tied", ((False, {"untie_embeddings_and_output_weights": True}), (True, {}))),
        ChoiceRow(
            "mlp",
            (("swiglu", {"swiglu": True}), ("relu2", {"squared_relu": True}), ("gelu", {})),
            (("geglu", {"quick_geglu": True}),),
        ),
        ChoiceRow(
            "norm", (("rmsnorm", {"normalization": "RMSNorm"}), ("layernorm", {})), others=("LayerNorm",)
        ),
        ChoiceRow("qk_norm", (("head", {"qk_layernorm": True}), ("plain", {"qk_l2_norm": True}))),
        ComputedRow(
            ("biases", "experts.router_bias"),
            ("disable_bias_linear", "add_qkv_bias"),
            model_settings.write_bias,
            model_settings.read_bias,
            "of all linear layers (including the router), of queries, keys and values only, or none",
        ),
        ChoiceRow(
            "sinks", ((True, {"softmax_type": "learnable"}), (False, {})), others=("vanilla", "off-by-one")
        ),
        ComputedRow(
            ("dropout",),
            ("attention_dropout", "hidden_dropout"),
            lambda facts: {} if facts["dropout"] else {"attention_dropout": 0, "hidden_dropout": 0},
            model_settings.read_dropout,
            "by default 0.1",
        ),
        ChoiceRow(
            "positions",
            (
                ("rotary", {"position_embedding_type": "rope"}),
                ("none", {"position_embedding_type": "none"}),
                ("learned", {}),
            ),
            (
                ("rotary", {"use_rotary_position_embeddings": True}),
                ("rotary", {"position_embedding_type": "mrope"}),
                ("rotary", {"position_embedding_type": "yarn"}),
                ("none", {"position_embedding_type": "relative"}),
                ("none", {"position_embedding_type": "alibi"}),
            ),
            others=("learned_absolute",),
        ),
        ComputedRow(
            ("local.window", "local_layers"),
            ("window_size", "window_attn_skip_freq"),
            model_settings.write_local,
            model_settings.read_local,
            "tokens before and after the query; layers that have it",
        ),
        ValueRow("mtp", "mtp_num_layers", usual=0, least=0),
        constant_facts(causal=True, inner_dropout=False, norms=2),
    ),
    "latent attention": (
        ComputedRow(
            (),
            ("multi_latent_attention",),
            lambda facts: {"multi_latent_attention": True} if "latent.kv_rank" in facts else {},
            lambda _: {},
            "with the widths below",
        ),
        ValueRow("latent.q_rank", "q_lora_rank", least=0),
        ValueRow("latent.kv_rank", "kv_lora_rank", usual=32, given="multi_latent_attention", always=True),
        ValueRow("latent.nope_dim", "qk_head_dim", usual=128, given="multi_latent_attention", always=True),
        ValueRow(
            "latent.rope_dim", "qk_pos_emb_head_dim", usual=64, given="multi_latent_attention", always=True
        ),
        ValueRow("latent.value_dim", "v_head_dim", usual=128, given="multi_latent_attention", always=True),
    ),
    "experts": (
        ValueRow("experts.experts", "num_experts"),
        ValueRow("experts.topk", "moe_router_topk", usual=2, given="num_experts", always=True),
        ComputedRow(
            ("experts.ffn",),
            ("moe_ffn_hidden_size",),
            lambda facts: {"moe_ffn_hidden_size": facts["experts.ffn"]} if "experts.ffn" in facts else {},
            model_settings.read_expert_width,
            "by default that of the MLP",
        ),
        ValueRow(
            "experts.shared_ffn", "moe_shared_expert_intermediate_size", usual=0, given="num_experts", least=0
        ),
        ChoiceRow(
            "experts.shared_gate", ((True, {"moe_shared_expert_gate": True}),), source=SHARED_GATE_SOURCE
        ),
        ComputedRow(
            ("moe_layers",),
            ("moe_layer_freq",),
            model_settings.write_moe_layers,
            model_settings.read_moe_layers,
            "a mark for each layer; a number n is read as the last of every n layers, of which Megatron-LM takes the first",
        ),
        ComputedRow(
            ("experts.capacity",),
            ("moe_expert_capacity_factor",),
            model_settings.write_capacity,
            model_settings.read_capacity,
        ),
    ),
    "parallelism": (
        ValueRow("tp", "tensor_model_parallel_size", ("model_parallel_size",), usual=1, always=True),
        ValueRow("pp", "pipeline_model_parallel_size", usual=1, always=True),
        ValueRow("cp", "context_parallel_size", usual=1),
        ValueRow(
            "ep", "expert_model_parallel_size", ("moe_expert_parallel_size",), usual=1, given="num_experts"
        ),
        ComputedRow(
            ("etp",),
            ("expert_tensor_parallel_size",),
            plan_settings.write_expert_tp,
            plan_settings.read_expert_tp,
            "by default tp",
        ),
        ComputedRow(
            ("vp", "chunks"),
            plan_settings.CHUNK_SETTINGS,
            _write_chunks,
            _read_chunks,
            "their number where all have the same number of layers, else the layout",
        ),
        ComputedRow(
            ("cp_kind", "ulysses"),
            ("cp_comm_type", "hierarchical_context_parallel_sizes"),
            plan_settings.write_context,
            plan_settings.read_context,
            "p2p (ring), a2a (Ulysses), allgather, a2a+p2p",
        ),
        ChoiceRow("sp", ((True, {"sequence_parallel": True}), (False, {}))),
        ChoiceRow("tp_overlap", ((True, {"tp_comm_overlap": True}), (False, {}))),
        ChoiceRow("ep_overlap", ((True, {"overlap_moe_expert_parallel_comm": True}), (False, {}))),
        ChoiceRow("order", (("tp-cp-pp-dp", {"use_tp_pp_dp_mapping": True}), ("tp-cp-dp-pp", {}))),
        ComputedRow(
            ("zero", "replicas"),
            plan_settings.ZERO_SETTINGS,
            plan_settings.write_zero,
            plan_settings.read_zero,
            "distributed optimizer (1), Megatron-FSDP (2, 3), stage of Megatron-DeepSpeed",
        ),
        constant_facts(schedule="1f1b", tp_kind="1d"),
    ),
    "batch": (
        ValueRow("mbs", "micro_batch_size", usual=1, always=True),
        ComputedRow(
            ("gbs",),
            ("global_batch_size",),
            lambda facts: {"global_batch_size": facts["gbs"]},
            plan_settings.read_batch,
        ),
    ),
    "precision and optimizer": (
        ChoiceRow(
            "precision",
            (
                ("nvfp4", {"bf16": True, "fp4_format": "e2m1"}),
                ("mxfp8", {"bf16": True, "fp8_format": "e4m3", "fp8_recipe": "mxfp8"}),
                ("fp8-block", {"bf16": True, "fp8_format": "e4m3", "fp8_recipe": "blockwise"}),
                ("fp8-current", {"bf16": True, "fp8_format": "hybrid", "fp8_recipe": "tensorwise"}),
                ("fp8", {"bf16": True, "fp8_format": "hybrid", "fp8_recipe": "delayed"}),
                ("bf16", {"bf16": True}),
                ("fp16", {"fp16": True}),
                ("fp32", {}),
            ),
            (
                ("mxfp8", {"bf16": True, "fp8_format": ANY, "fp8_recipe": "mxfp8"}),
                ("fp8-block", {"bf16": True, "fp8_format": ANY, "fp8_recipe": "blockwise"}),
                ("fp8-current", {"bf16": True, "fp8_format": ANY, "fp8_recipe": "tensorwise"}),
                ("fp8", {"bf16": True, "fp8_format": ANY}),
                ("nvfp4", {"bf16": True, "fp4_format": ANY}),
            ),
        ),
        ChoiceRow(
            "grad_dtype",
            (
                ("16-bit", {"grad_reduce_in_bf16": True}),
                ("fp32", {"accumulate_allreduce_grads_in_fp32": True}),
                ("usual", {}),
            ),
            (("16-bit", {"bf16": True, "main_grads_dtype": "bf16"}),),
        ),
        ChoiceRow(
            "optimizer_kind",
            (
                (
                    "adam-8bit",
                    {
                        "use_precision_aware_optimizer": True,
                        "exp_avg_dtype": "fp8",
                        "exp_avg_sq_dtype": "fp8",
                    },
                ),
                (
                    "adam-bf16",
                    {
                        "use_precision_aware_optimizer": True,
                        "exp_avg_dtype": "bf16",
                        "exp_avg_sq_dtype": "bf16",
                    },
                ),
                ("sgd", {"optimizer": "sgd"}),
                ("muon", {"optimizer": "muon"}),
                ("adam", {}),
            ),
            (("muon", {"optimizer": "dist_muon"}),),
        ),
        ComputedRow(
            ("attention",),
            ("attention_backend", "use_flash_attn", "transformer_impl"),
            lambda facts: {"attention_backend": "unfused"} if facts["attention"] == "unfused" else {},
            plan_settings.read_attention,
            "auto (fused) or unfused",
        ),
    ),
    "memory": (
        ComputedRow(
            ("recompute", "recompute_every"),
            plan_settings.RECOMPUTE_SETTINGS,
            plan_settings.write_recompute,
            plan_settings.read_recompute,
            "whole layers, or modules",
        ),
        ComputedRow(
            ("offload",),
            ("optimizer_cpu_offload", "cpu_offloading_num_layers"),
            plan_settings.write_offload,
            plan_settings.read_offload,
            "activations only without a pipeline",
        ),
    ),
    "software": (
        ComputedRow(
            (),
            ("deepspeed", "moe_token_dispatcher_type", *FLEX_DISPATCHER_FLAGS),
            lambda _: {},
            lambda _: {},
            "selects the software stack of the prediction: Megatron-DeepSpeed, DeepEP and HybridEP, or Megatron-Core",
        ),
    ),
}
WHY: Final[Mapping[str, str]] = {  # facts that cannot always be expressed
    "recompute": "--recompute-modules has no module for the activation of a dense MLP, nor for every second matmul",
    "mlp": "there is no flag for GeGLU; --quick-geglu is another function",
    "biases": "biases are in all linear layers, in queries, keys and values only, or in none",
    "causal": "Megatron-LM's GPT is causal",
    "inner_dropout": "there is no dropout inside the MLP",
    "vocab": "Megatron-LM needs a vocabulary: add --vocab-size or a tokenizer",
    "schedule": "1F1B, interleaved or not, is the only schedule",
    "placement": "ranks are numbered tp-cp-dp-pp, or tp-cp-pp-dp",
    "tp_kind": "tensor parallelism has one dimension",
    "norms": "a layer has two norms",
    "local.chunked": "there are sliding windows, but no chunked attention",
    "experts.imbalance": "it depends on the data",
    "experts.load": "it depends on the data",
    "experts.router_bias": "the router has a bias if all linear layers have one",
    "patch": "pretrain_gpt.py trains on tokens",
    "classes": "pretrain_gpt.py trains on tokens",
    "offload": "weights stay on the device, and with a pipeline activations too",
    "recompute_every": "--recompute-num-layers is one number for all chunks, and chunks differ",
}


FSDP_FLAGS: Final = (
    "use_megatron_fsdp",
    "use_custom_fsdp",
    "use_torch_fsdp2",
)  # overlap without a flag of their own


def granted(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed: of a fork that lacks some flags, and of behaviour that no flag sets."""
    notes = []
    if stack(settings) == "megatron-deepspeed-2022":
        notes.append(
            "changes are named by the flags of Megatron-LM; Megatron-DeepSpeed does not have all of them"
        )
    if plan_settings.is_on(settings, "deepspeed_config") and not any(
        name.startswith("deepspeed_config.") for name in settings
    ):
        notes.append("what the file of --deepspeed-config sets besides the ZeRO stage is not read")
    if plan_settings.is_on(settings, "fp8_format") and not plan_settings.is_on(settings, "fp8_param_gather"):
        notes.append(
            "whether a 16-bit copy of 8-bit weights is kept follows the assumptions, as fp8_param_gather is not set"
        )
    if not any(plan_settings.is_on(settings, name) for name in ("overlap_grad_reduce", *FSDP_FLAGS)):
        notes.append(
            "gradients are reduced while backward runs, although the launch does not set --overlap-grad-reduce"
            " (--assumptions megatron-core-plain overlaps nothing)"
        )
    return tuple(notes)


def stack(settings: Settings) -> str:
    """Return the software stack: Megatron-DeepSpeed, Megatron-Core with DeepEP or HybridEP, or Megatron-Core."""
    if plan_settings.is_on(settings, "deepspeed") or plan_settings.is_on(settings, "zero_stage"):
        return "megatron-deepspeed-2022"
    flex = settings.get("moe_token_dispatcher_type") == "flex" or any(
        plan_settings.is_on(settings, name) for name in FLEX_DISPATCHER_FLAGS
    )
    return (
        "megatron-core-deepep"
        if flex and plan_settings.is_on(settings, "num_experts")
        else "megatron-core-2025"
    )
