"""Facts of software: framework, release and what else tells one from another, with the values of each.

They are columns of a table of measured runs (docs/validation.md) and conditions of the constants of software
(software.py).
"""

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

Words: TypeAlias = str | bool | int  # a value as YAML may have it: true and 2025 need no quotes
DATE: Final = r"20\d\d(-(0[1-9]|1[0-2]))?"  # of a release
FRAMEWORKS: Final = (
    "AutoModel", "Composer", "DeepSpeed", "fms-fsdp", "InternEvo", "LitGPT", "MaxText", "MegaScale",
    "Megatron-Bridge", "Megatron-Core", "Megatron-DeepSpeed", "Megatron-LM", "MLPerf", "MLPerf-ROCm",
    "nanotron", "NeMo", "Pax", "Primus", "PyTorch", "torchtitan", "torchtune", "Transformers",
    "Transformers-DeepSpeed", "zero-bubble", "other",
)  # fmt: skip
SPELLINGS: Final = {  # of names of frameworks, in lower case without - and _ and spaces
    "nemoautomodel": "AutoModel",
    "llmfoundry": "Composer",
    "megatronlmzerobubble": "zero-bubble",
    "paxml": "Pax",
    "composerfsdp": "Composer",
    "huggingface": "Transformers",
    "huggingfacetrainer": "Transformers",
    "trainer": "Transformers",
    "hf": "Transformers",
    "hftrainer": "Transformers",
    "accelerate": "Transformers",
    "peft": "Transformers",
    "trl": "Transformers",
    "axolotl": "Transformers",
    "llamafactory": "Transformers",
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
    of_plan : bool
        Whether it is a knob of a plan, which no constant of software depends on.
    """

    meaning: str
    allowed: tuple[str, ...] = ()
    pattern: str = ""
    form: str = ""
    several: bool = False
    of_plan: bool = False

    @property
    def values(self) -> str:
        """What may stand in the column, in words."""
        listed = self.form or ", ".join(self.allowed)
        return f"{listed}; several are joined by +" if self.several else listed

    def spell(self, text: str) -> str | None:
        """Return a value in its own spelling; None where it is not allowed."""
        if self.pattern:
            return text if re.fullmatch(self.pattern, text) else None
        words = {part.strip().lower() for part in text.split("+")} if self.several else {text.lower()}
        names = {name.lower(): name for name in self.allowed}
        return "+".join(names[name] for name in names if name in words) if words <= names.keys() else None

    def check(self, name: str, text: str) -> str:
        """Return a value in its own spelling; raise `ValueError` with what is allowed if it is not.

        `name`: that of the fact, for the message.
        """
        read = self.spell(text)
        if read is None:
            one_of = "" if self.form else "one of "
            raise ValueError(f"{name} = {text!r}: must be {one_of}{self.values}")
        return read


class Framework(Fact):
    """The framework that trains, whose names are spelt in several ways."""

    def spell(self, text: str) -> str | None:
        """Return the framework of a name, whatever its case and hyphens; None if it is none."""
        names = {_letters(name): name for name in self.allowed} | SPELLINGS
        return names.get(_letters(text))


FACTS: Final = {
    "framework": Framework(
        "framework that trains; `MLPerf` is NVIDIA's code of its rounds, `MLPerf-ROCm` AMD's, `PyTorch` a"
        " plain loop",
        FRAMEWORKS,
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
        " added by a kernel of their own, or left to the end of the pipeline; queries and keys rotated by a"
        " chain of operations",
        ("flex-attention", "unfused-wgrad", "deferred-wgrad", "unfused-rotation"),
        several=True,
    ),
    "update": Fact("when weights are updated: after backward, or in it", ("step", "backward")),
    "overlap": Fact("what data-parallel communication overlaps", ("none", "all")),
    "etp": Fact(
        "tensor-parallel degree of experts", pattern=r"[1-9]\d{0,5}", form="a whole number", of_plan=True
    ),
    "routing": Fact(
        "who decides on the experts of a token: `forced` balance, as benchmarks have it, or the router, whose"
        " fullest rank has more tokens the more ranks there are",
        ("forced", "natural"),
        of_plan=True,
    ),
    "remat": Fact(
        "policy of rematerialisation in JAX by its name; `custom` is a choice of tensors that is not stated",
        pattern=r"[a-z0-9_]+",
        form="`custom` or a policy's name in MaxText, such as `save_qkv_proj`",
        of_plan=True,
    ),
}
OF_SOFTWARE: Final = {name: fact for name, fact in FACTS.items() if not fact.of_plan}
ALWAYS_GIVEN: Final = ("framework", "released")  # where facts are blind

FACT_WORDS: Final = {  # fact of software -> how each value is called
    "dispatcher": {
        "alltoall": "all-to-all",
        "allgather": "all-gather",
        "deepep": "DeepEP",
        "hybridep": "HybridEP",
        "flex": "a fused dispatcher",
    },
    "overlap": {"all": "DP overlap", "none": "no DP overlap"},
    "compiled": {"true": "torch.compile", "false": "eager layers"},
    "grouped": {"true": "grouped experts", "false": "experts one by one"},
    "graphs": {"iteration": "full CUDA graphs", "layer": "CUDA graphs of layers", "none": "no CUDA graphs"},
    "loss": {"fused": "a fused loss", "chunked": "a chunked loss", "whole": "a loss of whole logits"},
    "kernels": {
        "flex-attention": "FlexAttention",
        "unfused-wgrad": "unfused weight gradients",
        "deferred-wgrad": "deferred weight gradients",
        "unfused-rotation": "unfused rotation",
    },
    "update": {"step": "an update after backward", "backward": "an update in backward"},
}


def fact_words(fact: str, value: str) -> str:
    """Return a fact of software in words, each of several values that a plus sign joins.

    Examples
    --------
    >>> fact_words("compiled", "false")
    'eager layers'
    """
    if fact in ALWAYS_GIVEN:
        return value
    known = FACT_WORDS.get(fact, {})
    return ", ".join(known.get(part.lower(), f"{fact}={part}") for part in str(value).split("+"))


def _letters(name: str) -> str:
    """Return a name in lower case without hyphens, underscores and spaces."""
    return re.sub(r"[-_ ]", "", name.lower())


def check_fact(name: str, value: Words) -> str:
    """Return a value of a fact of software in its own spelling.

    Raises
    ------
    ValueError
        If it is no fact of software, or a value that is not allowed.
    """
    if name not in OF_SOFTWARE:
        raise ValueError(f"{name}: no fact of software; known: {', '.join(OF_SOFTWARE)}")
    return OF_SOFTWARE[name].check(name, word(value))


def word(value: Words) -> str:
    """Return a word as a table of runs has it."""
    return str(value).lower() if isinstance(value, bool) else str(value).strip()
