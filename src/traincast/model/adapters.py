"""Fine-tuning with low-rank adapters: which linear layers have one, and how the frozen model is held."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from traincast.core import (
    MUST_BE_WHOLE,
    InputError,
    parse_whole,
    raise_problems,
    unknown_name_error,
    whole_number_problems,
)

# Linear layers that can have an adapter. "qkv" and "fc1" are those that Megatron joins into one product, with
# one adapter; "gate" and "up" are the parts of fc1, "fc2" is the down projection. The next four are those of
# multi-head latent attention, "in_proj" is the input projection of what takes the place of attention. Beside
# experts stand "router" and "shared_gate", the gate of the result of the shared experts.
Target = Literal[
    "q", "k", "v", "qkv", "proj", "gate", "up", "fc1", "fc2", "head", "q_down", "q_up", "kv_down", "kv_up",
    "in_proj", "router", "shared_gate",
]  # fmt: skip
ExpertAdapters = Literal["peft", "each", "none"]
Base = Literal["16-bit", "operand", "int8", "nf4", "nf4-single"]
Loaded = Literal["16-bit", "fp32"]
ADAPTER_TARGETS: Final = get_args(Target)
JOINED_TARGETS: Final[Mapping[str, tuple[str, ...]]] = {"qkv": ("q", "k", "v"), "fc1": ("gate", "up")}
ATTENTION: Final = ("q", "k", "v", "proj", "q_down", "q_up", "kv_down", "kv_up", "in_proj")
MLP: Final = ("gate", "up", "fc2")
ROUTING_TARGETS: Final = ("router", "shared_gate")
# Layers of a group, those of them that a model has. "all" and "linear" include routers where PEFT does: all
# that "all-linear" stands for, or the names of the linear modules, as axolotl lists them for PEFT.
TARGET_GROUPS: Final = {"attention": ATTENTION, "mlp": MLP, "all": ATTENTION + MLP, "linear": ATTENTION + MLP}
PEFT_DEFAULT: Final = "default"  # PEFT's targets for the type of the model, where a launch names none
MODULE_TARGETS: Final[Mapping[str, str]] = {  # linear layers of transformers, Megatron, torchtune -> target
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "query": "q", "key": "k", "value": "v",
    "qkv_proj": "qkv", "query_key_value": "qkv", "c_attn": "qkv", "Wqkv": "qkv", "linear_qkv": "qkv",
    "q_a_proj": "q_down", "q_b_proj": "q_up", "kv_a_proj_with_mqa": "kv_down", "kv_b_proj": "kv_up",
    "o_proj": "proj", "out_proj": "proj", "output_proj": "proj", "dense": "proj", "linear_proj": "proj",
    "in_proj": "in_proj",
    "gate_proj": "gate", "up_proj": "up", "down_proj": "fc2", "gate_up_proj": "fc1", "w1": "gate", "w3": "up",
    "w2": "fc2", "fc1": "fc1", "fc2": "fc2", "c_fc": "fc1", "dense_h_to_4h": "fc1", "dense_4h_to_h": "fc2",
    "linear_q_proj": "q", "linear_q_down_proj": "q_down", "linear_q_up_proj": "q_up",
    "linear_kv_down_proj": "kv_down", "linear_kv_up_proj": "kv_up",
    "linear_fc1": "fc1", "linear_fc2": "fc2", "lm_head": "head", "all-linear": "all",
    "gate": "router", "router": "router", "shared_expert_gate": "shared_gate",
}  # fmt: skip
# Bytes of a weight of a packed linear layer; 16-bit and operand are not packed. int8: a scale for each row is
# left out.
# nf4: 4 bits and, for every 64 weights, a scale in 8 bits, of which 256 share one in fp32: 0.127 bits (QLoRA,
# arXiv 2305.14314, section 3, double quantisation). nf4-single: that scale in fp32, 0.5 bits.
PACKED_BYTES: Final[Mapping[str, float]] = {
    "int8": 1.0,
    "nf4": (4 + 8 / 64 + 32 / (64 * 256)) / 8,
    "nf4-single": (4 + 32 / 64) / 8,
}
FINE_TUNING_METHODS: Final[Mapping[str, Base | None]] = {"full": None, "lora": "16-bit", "qlora": "nf4"}
FINE_TUNING_OBJECTIVES: Final = ("sft", "dpo")  # as TRL calls them; before a plus sign
SAMPLING: Final = ("grpo", "ppo", "rloo", "online-dpo")  # objectives of answers that the model samples
SAMPLING_TAKES_TIME: Final = "not modelled, as sampling takes most of its time; full is its training alone"
HOW: Final = (
    "full, sft, dpo, or lora or qlora with settings such as lora:r=16,targets=q+v,base=nf4,dtype=fp32,dropout"
    ", also after dpo+"
)
# Of a fine-tuning run that states no other. Sequences of a step: 8 on each of eight accelerators, the
# per_device_train_batch_size of TrainingArguments (transformers 5.23); of DPO they are 32 pairs.
FINE_TUNING_BATCH: Final = 64
# [tokens] max_length of TRL 1.16.0 (trainer/sft_config.py, trainer/dpo_config.py): longer ones are cut to it
FINE_TUNING_LENGTH: Final = 1024


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """Low-rank adapters, the only part of a model that is trained: y = x W + x A B (arXiv 2106.09685).

    Raises `InputError` if a number or word is not allowed; all mistakes at once.
    """

    rank: int = 16  # inner width r of A and B
    # Linear layers with an adapter: words of `ADAPTER_TARGETS` and of `TARGET_GROUPS`; "all" are those of
    # the layers, as PEFT's "all-linear", which includes routers.
    targets: tuple[str, ...] = ("all",)
    # How the linear layers of the layers are held. "operand": as products of low precision take them, without
    # a copy at 16 bits (fp8 primary weights of Transformer Engine). Packed ones, the last three, are
    # dequantised to 16 bits for each product (arXiv 2305.14314). Embedding, head and norms are as loaded.
    base: Base = "16-bit"
    # How all that is not packed is loaded and held. What is in fp32 is cast to 16 bits for each product, and
    # gathered in 16 bits where FSDP shards it.
    dtype: Loaded = "16-bit"
    dropout: bool = False  # whether the input of an adapter passes dropout
    # Which weights of experts have adapters. "peft": as PEFT finds them (`model.peft`), by the type of the
    # model. "each": each matrix of each expert has its own, as other linear layers have (Megatron-Bridge,
    # torchtune); so too where the type is not known. "none": none of them, but an MLP beside them has (NeMo
    # AutoModel, whose stacked experts are no linear layers).
    experts: ExpertAdapters = "peft"

    def __post_init__(self) -> None:
        problems = whole_number_problems("rank", self.rank)
        allowed = (*TARGET_GROUPS, *ADAPTER_TARGETS, PEFT_DEFAULT)
        words = self.targets or ("",)
        problems += [
            f"targets: {word!r} is none of {', '.join(allowed[:-1])}" for word in words if word not in allowed
        ]
        if self.base not in get_args(Base):
            problems.append(f"base = {self.base!r}: must be one of {', '.join(get_args(Base))}")
        if self.dtype not in get_args(Loaded):
            problems.append(f"dtype = {self.dtype!r}: must be one of {', '.join(get_args(Loaded))}")
        if self.base == "operand" and self.dtype != "16-bit":
            problems.append("dtype = 'fp32': base = 'operand' holds no copy above 16 bits")
        raise_problems("adapters", problems)

    @property
    def title(self) -> str:
        """What is trained, in a few words."""
        held: list[str] = [] if self.base == "16-bit" else [self.base]
        if self.dtype == "fp32":
            held.append("fp32 elsewhere" if held else "fp32")
        base = f", base in {', '.join(held)}" if held else ""
        return f"LoRA of rank {self.rank} on {'+'.join(self.targets)} layers{base}"


def split_objective(text: str) -> tuple[str, str]:
    """Return the objective of a text of `--train`, and the rest of it: what is trained.

    >>> split_objective("dpo+lora:r=16"), split_objective("dpo"), split_objective("qlora:targets=q+v")
    (('dpo', 'lora:r=16'), ('dpo', 'full'), ('sft', 'qlora:targets=q+v'))
    """
    first, _, rest = text.strip().partition("+")
    return (first, rest or "full") if first in FINE_TUNING_OBJECTIVES else ("sft", text)


def names_fine_tuning(text: str) -> bool:
    """Return whether a text of `--train` names more than training of all weights."""
    return text.strip() not in ("", "full")


def parse_training(text: str) -> Adapters | None:
    """Return the adapters that a text such as ``"lora:r=16,targets=q+v"`` states; None for ``"full"``.

    Targets have the names of `Adapters`, or those of a framework's modules: ``q_proj+v_proj``,
    ``all-linear``.

    Raises `InputError` if the method, a setting or its value is not known.

    >>> parse_training("qlora:r=64").base
    'nf4'
    """
    method, _, rest = text.strip().partition(":")
    if method not in FINE_TUNING_METHODS:
        if method.lower() in SAMPLING:
            raise InputError(f"training {method!r}", [SAMPLING_TAKES_TIME])
        raise unknown_name_error("training", method, (*FINE_TUNING_METHODS, *FINE_TUNING_OBJECTIVES), HOW)
    base = FINE_TUNING_METHODS[method]
    problems = []
    values = {}
    settings = [word.partition("=") for word in rest.split(",") if word.strip()]
    if base is None:
        if settings or ":" in text:
            raise InputError("--train", [f"{text!r}: full has no settings"])
        return None
    for key, _, value in ((key.strip(), sign, value.strip()) for key, sign, value in settings):
        if key in values:
            problems.append(f"{key}: stands there twice; keep one")
        elif key not in ("r", "rank", "targets", "base", "dtype", "dropout"):
            problems.append(f"{key!r} is no setting; write {HOW}")
        values[key] = value
    rank = values.get("r", values.get("rank", "16"))
    if not parse_whole(rank):
        problems.append(f"r = {rank}: {MUST_BE_WHOLE}")
    if values.get("dropout"):
        problems.append(f"dropout = {values['dropout']}: takes no value; its probability does not matter")
    raise_problems("--train", problems)
    words = values.get("targets", "all").split("+")
    own = (*TARGET_GROUPS, *ADAPTER_TARGETS)
    targets = tuple(dict.fromkeys(word if word in own else MODULE_TARGETS.get(word, word) for word in words))
    chosen: Base = values.get("base", base)  # type: ignore[assignment]  # checked by `Adapters`
    loaded: Loaded = values.get("dtype", "16-bit")  # type: ignore[assignment]  # checked by `Adapters`
    return Adapters(
        rank=int(rank),
        targets=targets,
        base=chosen,
        dtype=loaded,
        dropout="dropout" in values,
        experts=expert_adapters(targets),
    )


def expert_adapters(targets: Iterable[str]) -> ExpertAdapters:
    """Return which weights of experts have adapters, by targets: joined layers are Megatron's."""
    return "each" if JOINED_TARGETS.keys() & set(targets) else "peft"
