"""What PEFT adapts of models of transformers, by their type: the word `model_type` of a config.json.

All of it is what PEFT 0.21.2 does on transformers 5.23, whose experts are stacked in one tensor for each
projection: utils/constants.py, utils/transformers_weight_conversion.py and tuners/tuners_utils.py, run on
weights of PyTorch's meta device.
"""

from collections.abc import Mapping
from typing import Final

PEFT_VERSION: Final = "PEFT 0.21.2"
# Linear layers with an adapter where a configuration names none, by utils/constants.py,
# TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING. Its row for mixtral is lost in the conversion to stacked
# experts, and PEFT stops.
DEFAULT_TARGETS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        (
            "bart", "opt", "gptj", "gpt_neo", "bert", "roberta", "xlm-roberta", "electra", "deberta-v2",
            "layoutlm", "llama", "llama4", "mistral", "stablelm", "gemma", "gemma2", "gemma3_text", "gemma4",
            "qwen2", "qwen3",
        ),
        ("q", "v"),
    ),
    **dict.fromkeys(
        (
            "gpt2", "gpt-sw3", "bloom", "gpt_neox", "gpt_bigcode", "chatglm", "mpt", "RefinedWeb",
            "RefinedWebModel", "falcon", "codegen",
        ),
        ("qkv",),
    ),
    "phi": ("q", "v", "fc1", "fc2"),
    "nemotron_h": ("q", "k", "v", "proj"),
}  # fmt: skip
# Types whose experts get adapters by the names of their layers: one for gate and up projection together, of
# twice the rank, and one for the down projection; and the router by that of `gate`. No MLP beside the experts
# (shared experts, dense layers) then has any: its names have been taken to mean the experts.
JOINED_EXPERTS: Final = frozenset({
    "mixtral", "minimax", "minimax_m2", "Dots3NoteTextModel", "UnlimitedOcrTextModel", "afmoe", "beam",
    "cohere2_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5_moe", "exaone_moe",
    "flex_olmo", "glm4_moe", "glm4_moe_lite", "glm4v_moe", "glm_moe_dsa", "hunyuan_v1_moe", "longcat_flash",
    "mellum", "olmoe", "qwen3_moe", "qwen3_next", "qwen3_omni_moe", "qwen3_omni_moe_text",
    "qwen3_omni_moe_thinker", "solar_open",
})  # fmt: skip
# Types whose experts have none, as they are no linear modules; MLPs beside them have.
UNREACHED_EXPERTS: Final = frozenset({
    "aria", "aria_text", "axk1", "bailing_hybrid", "dbrx", "deepseek_v4", "flint", "gemma4", "gemma4_text",
    "glm4v_moe_text", "gpt_oss", "granitemoe", "granitemoe_swa", "granitemoehybrid", "granitemoeshared",
    "hy_v3", "jamba", "kimi_linear", "kolibri1", "laguna", "lfm2_moe", "llama4", "llama4_text",
    "mimo_v2_flash", "minimax_m3_vl_text", "mistral4", "nemotron_h", "phimoe", "qwen2_moe", "qwen3_5_moe",
    "qwen3_5_moe_text", "qwen3_vl_moe", "qwen3_vl_moe_text",
})  # fmt: skip
LINEAR_ROUTERS: Final = frozenset({"llama4", "llama4_text", "phimoe"})  # of those, with a router that has one
# Linear layers that are one module in transformers, which "all-linear" finds as one.
JOINED_LAYERS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("phi3", "modernbert"), ("qkv", "fc1")),
    **dict.fromkeys(
        ("glm", "glm4", "glm4v_text", "glm_ocr_text", "minimax_m3_vl_text", "modernbert-decoder"), ("fc1",)
    ),
    **dict.fromkeys(
        (
            "bloom",
            "codegen",
            "falcon",
            "gpt2",
            "gpt-sw3",
            "gpt_bigcode",
            "gpt_neox",
            "gpt_neox_japanese",
            "mpt",
            "openai-gpt",
            "persimmon",
        ),
        ("qkv",),
    ),
}
# Types whose Mamba layers take no adapter of their output projection, out_proj: PEFT stops.
WITHOUT_OUT_PROJ: Final = frozenset({"falcon_h1", "mamba", "mamba2", "falcon_mamba", "nemotron_h"})
