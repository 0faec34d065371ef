"""Facts of the software that a run was measured with: the columns of a table of runs that state them.

A cell is filled where the source states the fact in so many words, and is empty otherwise: what then holds is
the framework's default. docs/validation.md has this table.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from traincast.accuracy.runs.cells import Cells

DATE: Final = r"20\d\d(-(0[1-9]|1[0-2]))?"  # of a release
FRAMEWORKS: Final = (
    "AutoModel", "Composer", "DeepSpeed", "fms-fsdp", "Hugging Face Trainer", "InternEvo", "LitGPT",
    "MaxText", "MegaScale", "Megatron-Bridge", "Megatron-Core", "Megatron-DeepSpeed", "Megatron-LM", "MLPerf",
    "MLPerf-ROCm", "nanotron", "NeMo", "Pax", "Primus", "torchtitan", "torchtune", "TRL", "zero-bubble",
    "other",
)  # fmt: skip
SPELLINGS: Final = {  # of names of frameworks, in lower case without - and _ and spaces
    "nemoautomodel": "AutoModel", "llmfoundry": "Composer", "megatronlmzerobubble": "zero-bubble",
    "paxml": "Pax", "composerfsdp": "Composer", "hf": "Hugging Face Trainer",
    "trainer": "Hugging Face Trainer", "transformers": "Hugging Face Trainer",
    "huggingface": "Hugging Face Trainer", "hftrainer": "Hugging Face Trainer",
    "accelerate": "Hugging Face Trainer", "peft": "Hugging Face Trainer", "axolotl": "Hugging Face Trainer",
    "llamafactory": "Hugging Face Trainer",
}  # fmt: skip
QUALITIES: Final = {  # behind a framework in the column `stack`, after a comma -> the facts that they state
    "eager": {"compiled": "false", "loss": "whole"},  # PyTorch's own operations, neither compiled nor fused
    "compiled": {"compiled": "true"},
    "fused cross-entropy": {"loss": "fused"},
    "fused cross-entropy and norms": {"loss": "fused"},
}


@dataclass(frozen=True)
class Fact:
    """A column of facts.

    Parameters
    ----------
    meaning : str
        What it states.
    allowed : tuple of str
        Its values; empty where `pattern` says which.
    pattern : str
        Of values that no list can hold, and `form`, the same in words.
    form : str
    several : bool
        Whether values may be joined by a plus sign.
    """

    meaning: str
    allowed: tuple[str, ...] = ()
    pattern: str = ""
    form: str = ""
    several: bool = False

    @property
    def values(self) -> str:
        """What may stand in the column, in words."""
        listed = self.form or ", ".join(self.allowed)
        return f"{listed}; several are joined by +" if self.several else listed

    def read(self, text: str) -> str | None:
        """Return a value in its own spelling; None where it is not allowed."""
        if self.pattern:
            return text if re.fullmatch(self.pattern, text) else None
        words = [part.strip() for part in text.split("+")] if self.several else [text]
        names = {name.lower(): name for name in self.allowed}
        found = [names.get(word.lower()) for word in words]
        return None if None in found else "+".join(map(str, found))


FACTS: Final = {
    "framework": Fact(
        "framework that trains; `MLPerf` is NVIDIA's code of its rounds, `MLPerf-ROCm` AMD's", FRAMEWORKS
    ),
    "released": Fact(
        "date of the release or container, else of the round or paper",
        pattern=DATE,
        form="a year or a month, such as 2024 or 2024-05",
    ),
    "dispatcher": Fact(
        "what moves tokens to experts: NCCL's all-to-all or all-gather, or a fused kernel"
        " (`flex`: which one is not stated)",
        ("alltoall", "allgather", "deepep", "hybridep", "flex"),
    ),
    "grouped": Fact("products of experts in one grouped kernel", ("true", "false")),
    "graphs": Fact(
        "CUDA graphs: of whole iterations, of parts of a layer, or none", ("iteration", "layer", "none")
    ),
    "compiled": Fact("torch.compile of the layers; `false` is eager PyTorch", ("true", "false")),
    "loss": Fact(
        "cross-entropy: fused in one kernel, of chunks of the tokens, or of the whole logits",
        ("fused", "chunked", "whole"),
    ),
    "kernels": Fact(
        "kernels other than the framework's usual ones: attention of FlexAttention; gradients of weights"
        " added by a kernel of their own, or left to the end of the pipeline",
        ("flex-attention", "unfused-wgrad", "deferred-wgrad"),
        several=True,
    ),
    "update": Fact("when weights are updated: after backward, or in it", ("step", "backward")),
    "overlap": Fact("what data-parallel communication overlaps", ("none", "all")),
    "etp": Fact("tensor-parallel degree of experts", pattern=r"[1-9]\d{0,5}", form="a whole number"),
    "remat": Fact(
        "policy of rematerialisation in JAX by its name; `custom` is a choice of tensors that is not stated",
        pattern=r"[a-z0-9_]+",
        form="`custom` or a policy's name in MaxText, such as `save_qkv_proj`",
    ),
}  # fmt: skip
ALWAYS_GIVEN: Final = ("framework", "released")  # where facts are blind


def framework_called(text: str) -> str | None:
    """Return the framework of a name, whatever its case and hyphens; None if it is none."""
    names = {_letters(name): name for name in FRAMEWORKS} | SPELLINGS
    return names.get(_letters(text))


def _read_stack(cells: Cells) -> None:
    """Write the framework that the column `stack` names to its own cell, and facts behind it to theirs."""
    name, *qualities = [part.strip() for part in cells.text("stack").split(",")]
    cells.row["framework"] = framework_called(name) or ""
    if not cells.row["framework"]:
        return
    for quality in qualities:
        for fact, value in QUALITIES.get(quality.lower(), {}).items():
            cells.row[fact] = cells.text(fact) or value


def _letters(name: str) -> str:
    """Return a name in lower case without hyphens, underscores and spaces."""
    return re.sub(r"[-_ ]", "", name.lower())


def read_facts(cells: Cells, policies: Collection[str]) -> dict[str, str]:
    """Return the facts that a row states, and write them to its cells in their own spelling.

    `policies` are the names that `remat` may have. A value that is not allowed is noted with what is.
    """
    if not cells.text("framework"):
        _read_stack(cells)
    remat = replace(FACTS["remat"], allowed=tuple(sorted(policies)), pattern="", form="")
    stated = {}
    for name, fact in (FACTS | {"remat": remat}).items():
        text = cells.text(name)
        if not text:
            continue
        value = framework_called(text) if name == "framework" else fact.read(text)
        if value is None:
            one_of = "" if fact.form else "one of "
            cells.refuse(f"{name} = {text!r}: must be {one_of}{fact.values}")
            continue
        stated[name] = value
        cells.row[name] = value
    return stated
