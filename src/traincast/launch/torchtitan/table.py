"""torchtitan's settings: in the TOML of 2025, and in the Python configuration that took its place.

Names are those of torchtitan/config/job_config.py (2025) and of torchtitan/config/configs.py with the config registry of its models
(2026), dotted by section. A model is a name and a flavour; those that the catalogue knows are in `torchtitan_forms.MODELS`. Any
other model is written under its own name, at which torchtitan stops where nobody has registered it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from traincast.launch.canonical import Facts
from traincast.launch.mapping import ANY, Made, Row, Same, Settings, Words, constant_facts, is_off
from traincast.launch.torchtitan import settings as titan_settings

TOML: Final = (
    "pytorch/torchtitan, torchtitan/config/job_config.py (TOML, commit 000204a and later of 2025), looked at on 2026-11-20"
)
PYTHON: Final = (
    "torchtitan 0.3.0 (PyPI), torchtitan/config/configs.py, torchtitan/distributed/activation_checkpoint.py and "
    "torchtitan/models/llama3/config_registry.py, looked at on 2026-11-20"
)
MODEL: Final = Made(
    ("model",),
    ("model.name", "model.flavor"),
    titan_settings.write_flavour,
    titan_settings.read_model,
    "a flavour that the catalogue knows",
)
BATCH: Final = Made(
    ("mbs", "gbs", "seq"),
    (
        *("training.local_batch_size", "training.batch_size", "training.global_batch_size", "training.seq_len"),
        f"{titan_settings.PARALLELISM}pipeline_parallel_microbatch_size",
    ),
    titan_settings.write_batch,
    titan_settings.read_batch,
    "a rank's batch; of all micro-batches with a pipeline",
)
RECIPE_SETTINGS: Final = (*(f"{name}.recipe_name" for name in titan_settings.FLOAT8), "quantize.linear.mx.recipe_name")
PRECISION: Final = Made(
    ("precision",),
    ("model.converters", "training.dtype", "training.mixed_precision_param", *RECIPE_SETTINGS),
    titan_settings.write_precision,
    titan_settings.read_precision,
    "bf16 where nothing is said",
)
PARALLELISM_ROWS: Final[tuple[Row, ...]] = (
    Made(
        ("dp", "zero", "replicas"),
        tuple(
            f"{titan_settings.PARALLELISM}{name}"
            for name in (titan_settings.DEGREES["replicate"], titan_settings.DEGREES["shard"], "fsdp_reshard_after_forward")
        ),
        titan_settings.write_data,
        titan_settings.read_data,
        "DDP (0), FSDP with weights that stay gathered (2) or not (3), HSDP",
    ),
    Same("tp", f"{titan_settings.PARALLELISM}tensor_parallel_degree", usual=1, always=True),
    Same("cp", f"{titan_settings.PARALLELISM}context_parallel_degree", usual=1),
    Same("pp", f"{titan_settings.PARALLELISM}pipeline_parallel_degree", usual=1),
    Same("ep", f"{titan_settings.PARALLELISM}expert_parallel_degree", usual=1),
    constant_facts(etp=1, order="tp-cp-dp-pp", attention="flash", tp_kind="1d"),
)


def pipeline(head: str) -> Made:
    """The row of pipelines, for a version that gives the output projection a name."""
    return Made(
        ("schedule", "vp", "chunks"),
        (
            f"{titan_settings.PARALLELISM}pipeline_parallel_schedule",
            f"{titan_settings.PARALLELISM}pipeline_parallel_layers_per_stage",
            f"{titan_settings.PARALLELISM}module_fqns_per_model_part",
            f"{titan_settings.PARALLELISM}pipeline_parallel_module_fqns_per_model_part",
        ),
        partial(titan_settings.write_pipeline, head=head),
        titan_settings.read_pipeline,
        "embedding and head weigh a layer each where modules are not listed",
    )


COMPILED: Final = Made(
    (),
    ("compile.enable", "compile.components", "training.compile"),
    lambda _: {},
    lambda _: {},
    "stack that predicts it: compiled or not",
)
OFFLOAD: Final = Words("offload", (("optimizer+weights", {"training.enable_cpu_offload": True}), ("none", {})))
RECOMPUTATION: Final = Made(
    ("recompute", "recompute_every"),
    ("activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"),
    titan_settings.write_recompute,
    titan_settings.read_recompute,
    "every second layer where nothing is said",
)
ROWS: Final[Mapping[str, tuple[Row, ...]]] = {
    "model": (MODEL,),
    "training": (
        BATCH,
        PRECISION,
        OFFLOAD,
        COMPILED,
        Words("optimizer_kind", (("adam", {"optimizer.name": "AdamW"}),), (("adam", {"optimizer.name": "Adam"}),)),
    ),
    "parallelism": (
        *PARALLELISM_ROWS,
        pipeline("output"),
        Words(
            "cp_kind",
            (("all-gather", {titan_settings.ROTATE_METHOD: "allgather"}), ("ring", {titan_settings.ROTATE_METHOD: "alltoall"})),
            (("all-gather", {f"{titan_settings.PARALLELISM}context_parallel_degree": ANY}),),
            others=(),
        ),
        Words("tp_overlap", ((True, {f"{titan_settings.PARALLELISM}enable_async_tensor_parallel": True}), (False, {}))),
        constant_facts(sp=True),
    ),
    "recomputation": (RECOMPUTATION,),
}
PYTHON_ROWS: Final[Mapping[str, tuple[Row, ...]]] = {
    "model": (MODEL,),
    "training": (
        BATCH,
        Words(
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
        Made(
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
        Made(
            ("sp",),
            (f"{titan_settings.PARALLELISM}enable_sequence_parallel",),
            lambda facts: {} if facts.get("sp", True) else {f"{titan_settings.PARALLELISM}enable_sequence_parallel": False},
            lambda settings: {"sp": not is_off(settings.get(f"{titan_settings.PARALLELISM}enable_sequence_parallel", True))},
            "on where nothing is said",
        ),
        constant_facts(cp_kind="all-gather"),
    ),
    "compile": (Words("tp_overlap", ((True, {"compile.enable_async_tensor_parallel": True}), (False, {}))),),
    "recomputation": (
        Words(
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
    "mtp": "flavours come without multi-token prediction",
    "recompute": "whole layers are recomputed, or every second product; torch.compile decides on elementwise work",
    "zero": "there is DDP, and FSDP2 with weights that stay gathered or not",
    "etp": "experts are not cut (expert_tensor_parallel_degree of 2025 aside)",
    "sp": "tensor parallelism comes with sequence parallelism",
    "cp_kind": "keys and values go around (alltoall) or are gathered (allgather)",
    "ep_overlap": "exchanges with experts are not overlapped",
    "attention": "attention is fused",
    "order": "the mesh is pp, dp_replicate, dp_shard, cp, tp, outermost first",
    "grad_dtype": "gradients are reduced in float32",
    "schedule": "predicted are 1F1B, interleaved or not, GPipe and ZBV",
    "vp": "without interleaving a rank has one chunk",
}
PYTHON_WHY: Final[Mapping[str, str]] = {
    "recompute_every": "activations are kept of all layers, of none, or of products",
    "cp_kind": "keys and values are gathered",
    "precision": "bf16, float32, float8 by rows, mxfp8 or nvfp4",
    "vp": "Interleaved1F1B has two chunks where modules are not listed",
}
EAGER: Final = "torchtitan-eager"


def default_settings(facts: Facts) -> Settings:
    """What the prediction takes for granted, and a length."""
    return {"compile.enable": facts.get("stack") != EAGER, "training.steps": 1000}


def stack(settings: Settings) -> str:
    """The software that predicts it: with the model compiled or not."""
    compiled = not is_off(settings.get("compile.enable", settings.get("training.compile")))
    compiled = compiled and "model" in str(settings.get("compile.components", "model"))
    return "torchtitan-2025" if compiled else EAGER
