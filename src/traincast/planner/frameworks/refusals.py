"""Combinations of choices that training frameworks refuse: data for searches, exports and advice."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from traincast.core.knobs import DEFAULTS, JOINED, MODULES, words
from traincast.core.precision import OPTIMIZERS


@dataclass(frozen=True)
class Refusal:
    """Values of a choice that a framework refuses together with other choices."""

    framework: str  # its name, as in `FRAMEWORKS`
    choice: str
    values: frozenset[Any]  # refused values; refused words of a choice that joins words with ``+``
    conditions: Mapping[
        str, Any
    ]  # choices, or a word of them, with which it is refused; ``stack`` by name, ``device`` cpu or gpu
    why: str  # the reason, in the words of the framework's users
    source: str  # where the framework refuses it

    def holds(self, choices: Mapping[str, Any]) -> bool:
        """Return whether choices are refused."""
        return self._left(choices.get(self.choice)) is not None and all(
            value in words(choices.get(name, "none")) if name in JOINED else choices.get(name) == value
            for name, value in self.conditions.items()
        )

    def without(self, value: Any) -> Any:
        """Return a value of the choice without its refused part; False, 0 or the default if none remains."""
        left = self._left(value)
        return value if left is None else left

    def _left(self, value: Any) -> Any:
        """Return what remains of a value; None where nothing of it is refused."""
        if self.choice not in JOINED:
            off = type(value)() if isinstance(value, int) else DEFAULTS[self.choice]
            return off if value in self.values else None
        if value is None or not words(value) & self.values:
            return None
        return "+".join(word for word in value.split("+") if word not in self.values) or "none"


MEGATRON: Final = "Megatron-Core 0.19.2, megatron/core/transformer/transformer_config.py"
ARGUMENTS: Final = "Megatron-Core 0.19.2, megatron/training/arguments.py"
OPTIMIZER: Final = "Megatron-Core 0.19.2, megatron/core/optimizer/optimizer_config.py"
MUON: Final = "Megatron-Core 0.19.2, megatron/core/optimizer/__init__.py"
FORKS: Final = ("megatron-deepspeed-2022",)  # stacks of software that refuses other things than its framework
TORCHTITAN: Final = "torchtitan 0.3.0, torchtitan/config/configs.py"
DEEPSPEED: Final = "DeepSpeed 0.19.8, deepspeed/runtime/config.py"
NANOTRON: Final = "huggingface/nanotron 00708b8, src/nanotron"
ON: Final = frozenset({True})
HOST: Final = "of optimizers Adam alone runs on the host"
AWARE: Final = {name for name, optimizer in OPTIMIZERS.items() if optimizer.precision_aware}
SHARDED: Final = "needs the distributed optimizer (zero 1)"
# Of Megatron: source, choice and its values, conditions, reason
MEGATRON_CORE: Final[tuple[tuple[str, str, set[Any], dict[str, Any], str], ...]] = (
    (MEGATRON, "ep_overlap", {True}, {"precision": "fp32"}, "overlapped experts need bf16 or fp16"),
    (
        MEGATRON,
        "recompute",
        {"full", *MODULES},
        {"offload": "activations"},
        "Megatron offloads or recomputes",
    ),
    (
        MEGATRON,
        "offload",
        {"expert_fc1", "moe_act"},
        {"recompute": "experts"},
        "recomputed experts (moe) have nothing to offload",
    ),
    (OPTIMIZER, "offload", {"optimizer"}, {"zero": 0}, f"Adam on the host {SHARDED}"),
    (OPTIMIZER, "offload", {"optimizer"}, {"optimizer_kind": "sgd"}, HOST),
    (OPTIMIZER, "offload", {"optimizer"}, {"optimizer_kind": "muon"}, HOST),
    (OPTIMIZER, "optimizer_kind", AWARE, {"zero": 0}, f"Adam of few bits {SHARDED}"),
    (OPTIMIZER, "master_copy", {"remainder"}, {"zero": 0}, f"a remainder of the master copy {SHARDED}"),
    *(
        (
            OPTIMIZER,
            "master_copy",
            {"remainder"},
            {"optimizer_kind": kind},
            "of optimizers Adam alone stores it",
        )
        for kind in ("sgd", "muon")
    ),
    (ARGUMENTS, "zero", {2, 3}, {"optimizer_kind": "muon"}, "Muon does not support Megatron-FSDP"),
    (MUON, "optimizer_kind", {"muon"}, {"precision": "fp16"}, "Muon does not support fp16"),
)
REFUSALS: Final = (
    Refusal(
        "megatron",
        "recompute",
        frozenset({"norms", "activation"}),
        {"precision": "fp8"},
        "delayed scaling of fp8 does not support recomputation of layernorm and moe_act",
        MEGATRON,
    ),
    Refusal(
        "megatron",
        "ep_overlap",
        ON,
        {"recompute": "full"},
        "overlap of expert communication does not support full recomputation",
        MEGATRON,
    ),
    Refusal(
        "megatron",
        "ep_overlap",
        ON,
        {"recompute": "experts"},
        "overlap of expert communication does not support recomputation of experts (moe), since 0.17",
        MEGATRON,
    ),
    Refusal(
        "megatron",
        "tp_overlap",
        ON,
        {"sp": False},
        "overlap of tensor-parallel communication needs sequence parallelism",
        ARGUMENTS,
    ),
    *(
        Refusal("megatron", choice, frozenset(values), conditions, why, source)
        for source, choice, values, conditions, why in MEGATRON_CORE
    ),
    *(
        Refusal(
            "megatron",
            "tp_overlap",
            ON,
            {"precision": precision},
            f"Transformer Engine has no user buffers for {precision}",
            "Transformer Engine 2.9, pytorch/module/base.py, fill_userbuffers_buffer_for_all_gather",
        )
        for precision in ("nvfp4", "fp8-block")
    ),
    Refusal(
        "any",
        "tp_overlap",
        ON,
        {"sp": False},
        "overlap of tensor-parallel communication needs sequence parallelism, in every framework",
        "Megatron-Core 0.19.2, torchtitan 0.3.0, nanotron 00708b8",
    ),
    Refusal(
        "nanotron",
        "tp_overlap",
        ON,
        {"sp": False},
        "asynchronous communication of row-parallel layers needs tp_mode REDUCE_SCATTER",
        f"{NANOTRON}/parallel/tensor_parallel/functional.py",
    ),
    *(
        Refusal(
            framework, choice, ON, {}, f"{owner} has no setting that overlaps {kind} communication", source
        )
        for framework, choice, owner, kind, source in (
            ("torchtitan", "ep_overlap", "torchtitan", "expert", TORCHTITAN),
            ("deepspeed", "tp_overlap", "DeepSpeed's configuration", "tensor-parallel", DEEPSPEED),
            ("deepspeed", "ep_overlap", "DeepSpeed's configuration", "expert", DEEPSPEED),
            ("nanotron", "ep_overlap", "nanotron", "expert", f"{NANOTRON}/config"),
        )
    ),
    *(
        Refusal(
            framework,
            "master_copy",
            frozenset({"remainder"}),
            {},
            f"{owner} has no setting that stores a remainder of the master copy",
            source,
        )
        for framework, owner, source in (
            ("torchtitan", "torchtitan", TORCHTITAN),
            ("deepspeed", "DeepSpeed's configuration", DEEPSPEED),
            ("nanotron", "nanotron", f"{NANOTRON}/config"),
            ("fsdp", "PyTorch's FSDP2", "PyTorch 2.9, torch.distributed.fsdp, MixedPrecisionPolicy"),
            ("huggingface", "transformers' Trainer", "transformers 5.23, transformers/training_args.py"),
            ("jax", "MaxText", "MaxText 0.2.2, src/maxtext/configs/types.py"),
        )
    ),
    *(
        Refusal(
            "torchtitan",
            "tp_overlap",
            ON,
            {"stack": stack},
            "asynchronous tensor parallelism requires torch.compile of the model",
            f"{TORCHTITAN}; until 2025 torchtitan/distributed/tensor_parallel.py",
        )
        for stack in (
            "torchtitan-eager",
            "torchtitan-2024+compiled=false+kernels=unfused-rotation",
            "torchtitan-2025+compiled=false+loss=chunked",
            "torchtitan-2025+compiled=false+loss=chunked+kernels=unfused-rotation",
        )
    ),
    *(
        Refusal(
            framework,
            "offload",
            frozenset({"weights"}),
            {"zero": stage, **stack},
            "DeepSpeed offloads weights with ZeRO-3 alone",
            "DeepSpeed 0.19.8, deepspeed/runtime/zero/config.py, offload_param",
        )
        for framework, stack in (
            ("deepspeed", {}),
            ("huggingface", {"stack": "huggingface-deepspeed"}),
            ("huggingface", {"stack": "huggingface-deepspeed+loss=chunked"}),
            ("huggingface", {"stack": "huggingface-deepspeed-fused-loss"}),
        )
        for stage in (0, 1, 2)
    ),
    Refusal(
        "fsdp",
        "zero",
        frozenset({1, 2, 3}),
        {"device": "cpu"},
        "Accelerate has FSDP for GPUs and other devices alone: on CPUs it runs DDP",
        "accelerate 1.15.0, accelerate/state.py, AcceleratorState",
    ),
    *(
        Refusal(
            "torchtitan",
            "schedule",
            frozenset({"zb-v"}),
            {"stack": stack},
            "Transformer Engine computes the gradients of inputs and weights in one node of autograd, which"
            " PyTorch's zero-bubble schedule cannot part",
            "Transformer Engine 2.9, pytorch/module/linear.py, requires_wgrad; NeMo AutoModel, linear: te",
        )
        for stack in ("automodel-2025", "automodel-flex-2025")
    ),
)


def refused(framework: str, choices: Mapping[str, Any]) -> tuple[Refusal, ...]:
    """Return the refusals of a framework that apply to choices, and to `stack`, a software stack's name.

    Examples
    --------
    >>> choices = {"precision": "fp8", "recompute": "attention+norms"}
    >>> [refusal.choice for refusal in refused("megatron", choices)]
    ['recompute']
    """
    known = () if choices.get("stack") in FORKS else REFUSALS
    return tuple(refusal for refusal in known if refusal.framework == framework and refusal.holds(choices))


def accepted(framework: str, choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choices without what a framework refuses; arguments as for `refused`.

    Examples
    --------
    >>> accepted("megatron", {"precision": "fp8", "recompute": "attention+norms"})["recompute"]
    'attention'
    """
    result = dict(choices)
    for refusal in refused(framework, choices):
        result[refusal.choice] = refusal.without(result[refusal.choice])
    return result
