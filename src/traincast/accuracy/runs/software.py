"""The software of a row of measured runs as a stack of the catalogue: by framework, and by the era in its source or notes."""

import re
from typing import Final

from traincast.accuracy.runs.row import Cells
from traincast.catalog.software_stacks import stack_names
from traincast.core.assumptions import CALIBRATED

CUDA_GRAPHS: Final = r"cuda graphs (local:)?full_iteration"  # "none:full_iteration" has them off
STACKS: Final = (  # patterns of framework and of source, notes or model; stack of the catalogue; the first match counts
    (r"Megatron-DeepSpeed|DeepSpeed", r"", "megatron-deepspeed-2022"),
    (r"zero-bubble", r"", "megatron-lm-2023"),
    (r"MegaScale", r", MegaScale", "megascale-2024"),
    (r"MegaScale", r"", "megatron-lm-2023"),
    (r"Megatron-LM", r"2205\.05198", "megatron-lm-2022"),
    (r"Megatron-LM", r"2104\.04473|jan2021|tables\.tex|1024 A100", "megatron-lm-2021"),
    (r"Megatron-LM", r"examples/llama", "megatron-core-2025"),
    (r"Megatron-LM", r"", "megatron-core-2024"),
    (r"MLPerf", r"", "mlperf-2023"),
    (r"NeMo/Megatron-Core", r"paxml", "pax-2024"),
    (r"NeMo/Megatron-Core", r"maxtext", "maxtext-2025"),
    (r"NeMo/Megatron-Core", r"v24\.", "megatron-core-2024"),
    (r"NeMo/Megatron-Core", r"", "megatron-core-2025"),
    (r"AutoModel", r"ModelZoo.*(?i:dispatcher (DeepEP|HybridEP))", "megatron-core-deepep"),
    (r"AutoModel", r"ModelZoo", "megatron-core-2025"),
    (r"AutoModel", r"FlexAttn", "automodel-flex-2025"),
    (r"AutoModel", r"", "automodel-2025"),
    (r"Megatron-Bridge", CUDA_GRAPHS, "megatron-bridge-2026"),
    (r"Megatron-Bridge", r"dispatcher (hybridep|deepep).*\| experts", "megatron-bridge-26.02"),
    (r"Megatron-Bridge", r"taken from \w+ at git tag.*\| experts", "megatron-bridge-2025"),
    (
        r"Megatron-Bridge",
        r"container 2(6\.(0[6-9]|1)|[7-9])|2(6\.(0[6-9]|1)|[7-9])[.\d]* container",
        "megatron-bridge-2026",
    ),
    (r"Megatron-Bridge", r"25\.11 container.*GB[23]00.*\| experts", "megatron-bridge-26.02"),
    (r"Megatron-Bridge", r"container 25\.|25\.[.\d]* container", "megatron-bridge-2025"),
    (r"Megatron-Bridge", r"container 26\.|26\.[.\d]* container", "megatron-bridge-26.02"),
    (r"Megatron-Bridge", r"", "megatron-bridge-2026"),
    (r"NeMo", r"long_sequence", "megatron-core-2025"),
    (r"NeMo", r"", "nemo-2024"),
    (r"Megatron-Core", r"SimuMax|overlap disabled", "megatron-core-plain"),
    (r"Megatron-Core", r"", "megatron-core-2025"),
    (r"Composer", r"", "composer-fsdp-2023"),
    (r"torchtitan", r"\beager\b", "torchtitan-eager"),
    (r"torchtitan", r"", "torchtitan-2025"),
    (r"fms-fsdp", r"\beager\b", "fms-fsdp-eager"),
    (r"fms-fsdp", r"", "fms-fsdp-2024"),
    (r"InternEvo", r"", "internevo-2024"),
    (r"MaxText", r"nemo", "nemo-2024"),
    (r"MaxText|Pax", r"maxtext", "maxtext-2025"),
    (r"Pax", r"README @62799732", "pax-2023"),  # of 2023; the later revision of the same table is of 2024
    (r"Pax", r"", "pax-2024"),
    (r"nanotron", r"", "nanotron-2025"),
    (r"various", r"MT-NLG", "megatron-lm-2021"),
    (r"various", r"GLM-130B|Gaudi|DeepSpeed", "megatron-deepspeed-2022"),
    (r"various", r"Nemotron-4|Primus", "megatron-core-2024"),
    (r"various", r"llm-foundry", "composer-fsdp-2023"),
    (r"various", r"TinyLlama|TransformerEngine issue|ColossalAI", "fms-fsdp-eager"),
    (r"various", r"PaLM", "pax-2024"),
    (r"various", r"DeepSeek-V3", "megatron-core-deepep"),  # its own framework, whose dispatcher is DeepEP
)


def software(cells: Cells) -> str:
    """Return the stack of a row: the one it names, or the first match; ``"calibrated"`` where none matches.

    Parameters
    ----------
    cells : Cells
        A row: `stack`, and for the era `source` and `notes`.
    """
    framework_name = cells.text("stack")
    if framework_name.lower() in stack_names():
        return framework_name.lower()
    context = f"{cells.text('source')} | {cells.text('notes')}{' | experts' if cells.text('experts') else ''}"
    for framework, era, name in STACKS:
        if re.search(framework, framework_name, re.IGNORECASE) and re.search(era, context, re.IGNORECASE):
            return name
    cells.assume("stack")
    return CALIBRATED
