"""What Megatron-LM's parser makes of command lines: its arguments after `validate_args`."""

import dataclasses
import os
import random
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import draws

TABLE = "megatron"
PACKAGE = "megatron-core"
CLASSES = "megatron/training/arguments.py: parse_args, validate_args, core_transformer_config_from_args"
PROGRAM = "pretrain_gpt.py"
GPUS_OF_NODE = 8
# Of models of a few sizes; what else rows read is drawn.
SIZES = {
    "num_layers": (16, 32),
    "hidden_size": (4096,),
    "num_attention_heads": (32,),
    "seq_length": (2048, 4096, 8192),
    "ffn_hidden_size": (11008, 14336),
    "vocab_size": (32000,),
    "micro_batch_size": (1, 2, 4),
    "global_batch_size": (64, 128, 256, 512),
}
OF_EXPERTS = {"num_experts": (8, 16), "moe_ffn_hidden_size": (1408, 2048), "moe_router_topk": (2, 4)}
# Names of earlier releases, which this one refuses or takes for the encoder's, and a kind that is not drawn.
GONE = (
    *(
        "batch_size",
        "model_parallel_size",
        "encoder_num_layers",
        "encoder_seq_length",
        "checkpoint_activations",
    ),
    *("recompute_activations", "hierarchical_context_parallel_sizes"),
)
REQUIRED = (
    "micro_batch_size",
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "seq_length",
    "vocab_size",
)
FACTS_DRAWN = (  # those whose settings are drawn: of the plan, and of a GPT's layers
    *("layers", "hidden", "heads", "kv_heads head_dim", "ffn", "seq", "vocab", "tied", "norm", "qk_norm"),
    *("experts.experts", "experts.topk", "experts.ffn", "experts.shared_ffn"),
    *(
        "tp",
        "pp",
        "cp",
        "ep",
        "etp",
        "vp chunks",
        "cp_kind ulysses",
        "sp",
        "order",
        "zero replicas",
        "dp_overlap",
    ),
    *("mbs", "gbs", "precision", "grad_dtype", "optimizer_kind", "recompute recompute_every"),
)
MODULES = {  # of --recompute-modules -> what traincast calls them
    "core_attn": "attention",
    "layernorm": "norms",
    "moe_act": "activation",
    "mlp": "mlp",
    "moe": "experts",
}
MOMENTS = {"float32": "adam", "bfloat16": "adam-bf16", "uint8": "adam-8bit"}  # of the moments
KINDS_OF_CONTEXT = {"p2p": "ring", "a2a": "ulysses", "allgather": "all-gather"}
FP8 = {"mxfp8": "mxfp8", "blockwise": "fp8-block", "tensorwise": "fp8-current", "delayed": "fp8"}


def values() -> draws.Values:
    """Return the values of each argument that rows of the table read."""
    import argparse

    from accepts import _megatron_arguments

    parser = _megatron_arguments().add_megatron_arguments(argparse.ArgumentParser())
    actions = {action.dest: action for action in parser._actions}
    flags = {
        name: action
        for name, action in actions.items()
        if f"--{name.replace('_', '-')}" in action.option_strings
    }
    words: dict[str, Sequence[Any]] = {
        **SIZES,
        **OF_EXPERTS,
        "num_query_groups": (4, 8),
        "kv_channels": (64, 128),
        "recompute_num_layers": (1, 2),
        "recompute_modules": tuple(MODULES),
        "cp_comm_type": tuple(KINDS_OF_CONTEXT),
        "num_layers_per_virtual_pipeline_stage": (1, 2, 4),
        "num_virtual_stages_per_pipeline_rank": (2, 4),
        "decoder_first_pipeline_num_layers": (3, 4, 7),
        "decoder_last_pipeline_num_layers": (3, 4, 7),
        "moe_shared_expert_intermediate_size": (1408, 2816),
        "exp_avg_dtype": ("fp32", "bf16", "fp8"),
        "exp_avg_sq_dtype": ("fp32", "bf16", "fp8"),
        "optimizer": ("adam", "sgd"),
        "position_embedding_type": ("rope",),
        "num_distributed_optimizer_instances": (1, 1, 1, 2),
        "ckpt_format": ("torch_dist",),
    }
    found = {}
    for name in sorted({*draws.names_read(TABLE, "megatron", FACTS_DRAWN)} - {*GONE}):
        if name in words:
            found[name] = words[name]
        elif name in flags:
            found[name] = draws.values_of(flags[name], (1, 2, 4))
    return found


def draw(chance: random.Random, known: draws.Values) -> draws.Case:
    """Return a script that starts a GPT, dense or with experts, on some nodes."""
    chosen = draws.choose(known, chance)
    chosen |= {name: chance.choice(SIZES[name]) for name in REQUIRED}
    if chance.random() < 0.5:
        chosen |= {name: chance.choice(of) for name, of in OF_EXPERTS.items()} | {"disable_bias_linear": True}
    else:
        chosen = {name: value for name, value in chosen.items() if "expert" not in name and "moe" not in name}
    if chosen.get("pipeline_model_parallel_size", 1) == 1:
        gone = ("virtual", "decoder_", "account_for", "pipeline_model_parallel_layout")
        chosen = {
            name: value
            for name, value in chosen.items()
            if not name.startswith(gone) and "virtual" not in name
        }
    if chance.random() < 0.7:
        chosen.pop("num_layers_per_virtual_pipeline_stage", None)
    if chance.random() < 0.8:
        splits = ("decoder_", "account_for")
        chosen = {name: value for name, value in chosen.items() if not name.startswith(splits)}
    if "num_query_groups" in chosen:
        chosen["group_query_attention"] = True
    if chosen.get("recompute_granularity") == "full":
        chosen |= {"recompute_method": chance.choice(("uniform", "block")), "recompute_num_layers": 1}
    else:
        for name in ("recompute_method", "recompute_num_layers"):
            chosen.pop(name, None)
    for name in ("fp8_format", "fp8_recipe", "fp4_format", "fp4_recipe"):
        if not chosen.get("bf16") or chance.random() < 0.7:
            chosen.pop(name, None)
    if not chosen.get("use_precision_aware_optimizer") or not chosen.get("use_distributed_optimizer"):
        gone = ("use_precision_aware", "exp_avg", "main_grads_dtype", "store_param")
        chosen = {name: value for name, value in chosen.items() if not name.startswith(gone)}
    if chosen.get("exp_avg_dtype") != chosen.get("exp_avg_sq_dtype"):
        chosen = {name: value for name, value in chosen.items() if not name.startswith("exp_avg")}
    if not chosen.get("use_megatron_fsdp"):
        chosen.pop("megatron_fsdp_main_grads_dtype", None)
    further = ("use_megatron_fsdp", "use_torch_fsdp2", "data_parallel_sharding_strategy", "optimizer")
    for name in further:
        if chance.random() < 0.8:
            chosen.pop(name, None)
    fixed = {
        "max_position_embeddings": 8192,
        "train_iters": 100,
        "lr": 0.0001,
        "tokenizer_type": "NullTokenizer",
    }
    words = []
    for name, value in {**chosen, **fixed}.items():
        if value is not False:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    nodes = chance.choice((1, 2, 4, 8))
    text = f"torchrun --nnodes {nodes} --nproc-per-node {GPUS_OF_NODE} {PROGRAM} {shlex.join(words)}\n"
    return draws.Case(text, {})


def read(case: draws.Case) -> Mapping[str, Any]:
    """Return what the parser makes of a command line."""
    from accepts import _megatron_arguments

    arguments = _megatron_arguments()
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig

    words = shlex.split(case.text)
    launcher = words[: words.index(PROGRAM)]
    nodes = int(launcher[launcher.index("--nnodes") + 1])
    environment = {"WORLD_SIZE": str(nodes * GPUS_OF_NODE), "RANK": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    os.environ.update(environment)
    before = sys.argv
    sys.argv = words[words.index(PROGRAM) :]
    try:
        args = arguments.validate_args(arguments.parse_args(), {})
        config = arguments.core_transformer_config_from_args(args)
        for kind in (OptimizerConfig, DistributedDataParallelConfig):  # training.py; they refuse some
            fields = {field.name for field in dataclasses.fields(kind) if field.init}
            kind(**{name: value for name, value in vars(args).items() if name in fields})
    finally:
        sys.argv = before
    facts = {
        "gpus": args.world_size,
        "tp": args.tensor_model_parallel_size,
        "pp": args.pipeline_model_parallel_size,
        "cp": args.context_parallel_size,
        "dp": args.data_parallel_size,
        "vp": args.virtual_pipeline_model_parallel_size or 1,
        "mbs": args.micro_batch_size,
        "gbs": args.global_batch_size,
        "seq": args.seq_length,
        "layers": args.num_layers,
        "hidden": args.hidden_size,
        "heads": args.num_attention_heads,
        "kv_heads": config.num_query_groups,
        "ffn": args.ffn_hidden_size,
        "tied": not args.untie_embeddings_and_output_weights,
        "norm": args.normalization.lower(),
        "dp_overlap": bool(args.overlap_grad_reduce),
        **_precision(args),
        **_recomputed(config),
        **_sharded(args),
    }
    if args.tensor_model_parallel_size > 1:
        facts["sp"] = args.sequence_parallel
    if args.use_precision_aware_optimizer and args.optimizer == "adam":
        facts["optimizer_kind"] = MOMENTS[str(args.exp_avg_dtype).removeprefix("torch.")]
    if args.context_parallel_size > 1:
        kind = args.cp_comm_type[0] if isinstance(args.cp_comm_type, list) else args.cp_comm_type
        facts["cp_kind"] = KINDS_OF_CONTEXT[kind]
    if args.num_experts:
        facts |= {
            "ep": args.expert_model_parallel_size,
            "etp": args.expert_tensor_parallel_size,
            "experts.experts": args.num_experts,
            "experts.topk": args.moe_router_topk,
            "experts.ffn": config.moe_ffn_hidden_size,
            "experts.shared_ffn": config.moe_shared_expert_intermediate_size or 0,
        }
    return facts


def _precision(args: Any) -> dict[str, Any]:
    """Return the precision of products and of gradients."""
    precision = "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32"
    if args.fp8:
        precision = FP8[args.fp8_recipe]
    elif args.fp4:
        precision = "nvfp4"
    return {"precision": precision}


def _recomputed(config: Any) -> dict[str, Any]:
    """Return the modules that are recomputed, by name in alphabetical order, or all layers."""
    if config.recompute_granularity is None:
        return {"recompute": "none"}
    if config.recompute_granularity == "full":
        return {"recompute": "full"}
    return {"recompute": "+".join(sorted({MODULES[name] for name in config.recompute_modules}))}


def _sharded(args: Any) -> dict[str, Any]:
    """Return what is sharded over data-parallel ranks, as a stage of ZeRO."""
    if args.num_distributed_optimizer_instances > 1:  # the parser takes what means nothing
        assert args.use_distributed_optimizer, "instances of a distributed optimizer without one"
    stages = ("no_shard", "optim", "optim_grads", "optim_grads_params")
    if args.use_torch_fsdp2:
        return {"zero": 2 if args.torch_fsdp2_no_reshard_after_forward else 3}
    if args.use_megatron_fsdp:
        return {"zero": stages.index(args.data_parallel_sharding_strategy)}
    return {"zero": int(args.use_distributed_optimizer)}
