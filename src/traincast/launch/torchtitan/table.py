"""torchtitan's settings: in the TOML of 2025, and in the Python configuration that took its place.

Names are those of torchtitan/config/job_config.py (2025) and of torchtitan/config/configs.py with the config registry of its
models (2026), dotted by section. A model is a name and a flavour; known ones are in `settings.MODELS`. Any other model is
written under its own name, at which torchtitan stops unless it is registered.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from traincast.launch.canonical import Facts
from traincast.launch.mapping import (
    ANY,
    ChoiceRow,
    ComputedRow,
    Row,
    Settings,
    ValueRow,
    constant_facts,
    is_off,
)
from traincast.launch.torchtitan import settings as titan_settings

TOML: Final = "pytorch/torchtitan, torchtitan/config/job_config.py (TOML, commit 000204a and later of 2025), looked at on 2026-11-20"
PYTHON: Final = (
    "torchtitan 0.3.0 (PyPI), torchtitan/config/configs.py, torchtitan/distributed/activation_checkpoint.py and "
    "torchtitan/models/llama3/config_registry.py, looked at on 2026-11-20"
)
MODEL: Final = ComputedRow(
    ("model",),
    ("model.name", "model.flavor"),
    titan_settings.write_flavour,
    titan_settings.read_model,
    "a flavour that is in the catalogue",
)
BATCH: Final = ComputedRow(
    ("mbs", "gbs", "seq"),
    (
        *(
            "training.local_batch_size",
            "training.batch_size",
            "training.global_batch_size",
            "training.seq_len",
        ),
        f"{titan_settings.PARALLELISM}pipeline_parallel_microbatch_size",
    ),
    titan_settings.write_batch,
    titan_settings.read_batch,
    "batch of a rank; with a pipeline of all its micro-batches",
)
RECIPE_SETTINGS: Final = (
    *(f"{name}.recipe_name" for name in titan_settings.FLOAT8),
    "quantize.linear.mx.recipe_name",
)
PRECISION: Final = ComputedRow(
    ("precision",),
    ("model.converters", "training.dtype", "training.mixed_precision_param", *RECIPE_SETTINGS),
    titan_settings.write_precision,
    titan_settings.read_precision,
    "by default bf16",
)
PARALLELISM_ROWS: Final[tuple[Row, ...]] = (
    ComputedRow(
        ("dp", "zero", "replicas"),
        tuple(
            f"{titan_settings.PARALLELISM}{name}"
            for name in (
                titan_settings.DEGREES["replicate"],
                titan_settings.DEGREES["shard"],
                "fsdp_reshard_after_forward",
            )
        ),
        titan_settings.write_data,
        titan_settings.read_data,
        "DDP (0), FSDP without (2) or with resharding after forward (3), HSDP",
    ),
    ValueRow("tp", f"{titan_settings.PARALLELISM}tensor_parallel_degree", usual=1, always=True),
    ValueRow("cp", f"{titan_settings.PARALLELISM}context_parallel_degree", usual=1),
    ValueRow("pp", f"{titan_settings.PARALLELISM}pipeline_parallel_degree", usual=1),
    ValueRow("ep", f"{titan_settings.PARALLELISM}expert_parallel_degree", usual=1),
    constant_facts(etp=1, order="tp-cp-dp-pp", attention="flash", tp_kind="1d"),
)


def pipeline(head: str) -> ComputedRow:
    """Return the row of pipelines for a version of torchtitan with this name of the output projection."""
    return ComputedRow(
        ("schedule", "vp", "chunks"),
        (
            f"{titan_settings.PARALLELISM}pipeline_parallel_schedule",
            f"{titan_settings.PARALLELISM}pipeline_parallel_layers_per_stage",
            f"{titan_settings.PARALLELISM}module_fqns_per_model_part",
            f"{titan_settings.PARALLELISM}pipeline_parallel_module_fqns_per_model_part",
        ),
        partial(titan_settings.write_pipeline, head=head),
        titan_settings.read_pipeline,
        "embedding and head count as a layer each unless modules are listed",
    )


COMPILED: Final = ComputedRow(
    (),
    ("compile.enable", "compile.components", "training.compile"),
    lambda _: {},
    lambda _: {},
    "selects the software stack of the prediction: compiled or eager",
)
OFFLOAD: Final = ChoiceRow(
    "offload", (("optimizer+weights", {"training.enable_cpu_offload": True}), ("none", {}))
)
RECOMPUTATION: Final = ComputedRow(
    ("recompute", "recompute_every"),
    ("activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"),
    titan_settings.write_recompute,
    titan_settings.read_recompute,
    "by default every second layer",
)
ROWS: Final[Mapping[str, tuple[Row, ...]]] = {
    "model": (MODEL,),
    "training": (
        BATCH,
        PRECISION,
        OFFLOAD,
        COMPILED,
        ChoiceRow(
            "optimizer_kind",
            (("adam", {"optimizer.name": "AdamW"}),),
            (("adam", {"optimizer.name": "Adam"}),),
        ),
    ),
    "parallelism": (
        *PARALLELISM_ROWS,
        pipeline("output"),
        ChoiceRow(
            "cp_kind",
            (
                ("all-gather", {titan_settings.ROTATE_METHOD: "allgather"}),
                ("ring", {titan_settings.ROTATE_METHOD: "alltoall"}),
            ),
            (("all-gather", {f"{titan_settings.PARALLELISM}context_parallel_degree": ANY}),),
            others=(),
        ),
        ChoiceRow(
            "tp_overlap",
            ((True, {f"{titan_settings.PARALLELISM}enable_async_tensor_parallel": True}), (False, {})),
        ),
        constant_facts(sp=True),
    ),
    "recomputation": (RECOMPUTATION,),
}
PYTHON_ROWS: Final[Mapping[str, tuple[Row, ...]]] = {
    "model": (MODEL,),
    "training": (
        BATCH,
        ChoiceRow(
            "precision",
            (
                ("fp8-rowwise", {"model.converters": "Float8LinearConverter"}),
                ("mxfp8", {"model.converters": "MXFP8LinearConverter"}),
                ("nvfp4", {"model.converters": "NVFP4LinearConverter"}),
                ("bf16-pure", {"training.dtype": "bfloat16"}),
                ("fp32", {"training.mixed_precision_param": "float32"}),
                ("bf16", {"training.mixed_precision_param": "bfloat16"}),
            ),
            (("bf16", {}),),
        ),
        OFFLOAD,
        ComputedRow(
            ("pp", "ep"),
            ("training.disable_cuda_graphs",),
            titan_settings.write_graphs,
            lambda _: {},
            "with a pipeline or expert parallelism, for which torchtitan has no CUDA graphs",
        ),
        COMPILED,
    ),
    "parallelism": (
        *PARALLELISM_ROWS,
        pipeline("lm_head"),
        ComputedRow(
            ("sp",),
            (f"{titan_settings.PARALLELISM}enable_sequence_parallel",),
            lambda facts: (
                {}
                if facts.get("sp", True)
                else {f"{titan_settings.PARALLELISM}enable_sequence_parallel": False}
            ),
            lambda settings: {
                "sp": not is_off(settings.get(f"{titan_settings.PARALLELISM}enable_sequence_parallel", True))
            },
            "by default on",
        ),
        constant_facts(cp_kind="all-gather"),
    ),
    "compile": (
        ChoiceRow("tp_overlap", ((True, {"compile.enable_async_tensor_parallel": True}), (False, {}))),
    ),
    "recomputation": (
        ChoiceRow(
            "recompute",
            (
                ("full", {"activation_checkpoint": "FullAC"}),
                ("per-op", {"activation_checkpoint": "SelectiveAC"}),
                ("none", {"activation_checkpoint": "None"}),
            ),
            (("per-op", {}),),
        ),
    ),
}
WHY: Final[Mapping[str, str]] = {
    "model": f"no flavour known ({titan_settings.known_flavours()}) has these sizes; "
    "torchtitan stops unless one is registered by this name",
    "mtp": "flavours have no multi-token prediction",
    "recompute": "whole layers are recomputed, or every second matmul; torch.compile decides on elementwise work",
    "zero": "there are DDP, and FSDP2 with or without resharding after forward",
    "etp": "there is no tensor parallelism inside experts (apart from expert_tensor_parallel_degree of 2025)",
    "sp": "tensor parallelism includes sequence parallelism",
    "cp_kind": "keys and values are passed around a ring (alltoall) or all-gathered (allgather)",
    "ep_overlap": "expert all-to-all is not overlapped",
    "attention": "attention is always fused",
    "order": "the mesh is pp, dp_replicate, dp_shard, cp, tp, outermost first",
    "grad_dtype": "gradients are reduced in float32",
    "schedule": "supported are 1F1B, interleaved or not, GPipe and ZBV",
    "vp": "without interleaving there is one chunk per rank",
}
PYTHON_WHY: Final[Mapping[str, str]] = {
    "recompute_every": "activations are saved for all layers, for none, or for matmul outputs",
    "cp_kind": "keys and values are all-gathered",
    "precision": "bf16, float32, rowwise float8, mxfp8 or nvfp4",
    "vp": "Interleaved1F1B has two chunks per rank unless modules are listed",
}
EAGER: Final = "torchtitan-eager"


def default_settings(facts: Facts) -> Settings:
    """Return settings that the prediction assumes, and a number of steps."""
    return {"compile.enable": facts.get("stack") != EAGER, "training.steps": 1000}


def stack(settings: Settings) -> str:
    """Return the software stack: with the model compiled or eager."""
    compiled = not is_off(settings.get("compile.enable", settings.get("training.compile")))
    compiled = compiled and "model" in str(settings.get("compile.components", "model"))
    return "torchtitan-2025" if compiled else EAGER
