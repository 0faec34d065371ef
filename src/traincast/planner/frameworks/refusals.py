"""Combinations of choices that training frameworks refuse: data for searches, exports and advice."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from traincast.catalog import Stack
from traincast.core import DEFAULTS, JOINED_CHOICES, OPTIMIZERS, RECOMPUTED_MODULES, split_choice
from traincast.planner.frameworks.releases import numbers_of


@dataclass(frozen=True)
class Refusal:
    """Values of a choice that a framework refuses together with other choices."""

    framework: str  # its name, as in `FRAMEWORKS`
    choice: str
    values: frozenset[Any]  # refused values; refused words of a choice that joins words with ``+``
    conditions: Mapping[str, object]  # choices, or a word of them, with which it is; ``device`` is cpu or gpu
    why: str  # the reason, in the words of the framework's users
    source: str  # where the framework refuses it
    software: Mapping[str, str] = field(default_factory=dict)  # facts of the software stack that refuses it
    since: str = ""  # first release that refuses it; every known one where empty
    until: str = ""  # last release that refuses it; the newest does as well where empty

    def is_of(self, release: str) -> bool:
        """Return whether a release refuses it; the newest that is known where empty."""
        if not release:
            return not self.until
        asked = numbers_of(release)
        is_early = bool(self.since) and asked < numbers_of(self.since)
        is_late = bool(self.until) and asked > numbers_of(self.until)
        return not (is_early or is_late)

    def holds(self, choices: Mapping[str, Any]) -> bool:
        """Return whether choices are refused."""
        if self._remaining_part(choices.get(self.choice)) is None:
            return False
        for name, value in self.conditions.items():
            given = choices.get(name)
            if not (value in split_choice(given or "none") if name in JOINED_CHOICES else given == value):
                return False
        software = _software(choices.get("stack", ""))
        return all(software.get(fact) == value for fact, value in self.software.items())

    def drop_refused_part(self, value: object) -> object:
        """Return a value of the choice without its refused part; False, 0 or the default if none remains."""
        left = self._remaining_part(value)
        return value if left is None else left

    def _remaining_part(self, value: Any) -> Any:
        """Return what remains of a value; None where nothing of it is refused."""
        if self.choice not in JOINED_CHOICES:
            off = type(value)() if isinstance(value, int) else DEFAULTS[self.choice]
            return off if value in self.values else None
        if value is None or not split_choice(value) & self.values:
            return None
        return "+".join(word for word in value.split("+") if word not in self.values) or "none"


MEGATRON: Final = "Megatron-Core 0.19.2, megatron/core/transformer/transformer_config.py"
ARGUMENTS: Final = "Megatron-Core 0.19.2, megatron/training/arguments.py"
OPTIMIZER: Final = "Megatron-Core 0.19.2, megatron/core/optimizer/optimizer_config.py"
MUON: Final = "Megatron-Core 0.19.2, megatron/core/optimizer/__init__.py"
FORKS: Final = ("Megatron-DeepSpeed",)  # software that refuses other things than the framework it came from
TORCHTITAN: Final = "torchtitan 0.3.0, torchtitan/config/configs.py"
DEEPSPEED: Final = "DeepSpeed 0.19.8, deepspeed/runtime/config.py"
NANOTRON: Final = "huggingface/nanotron 00708b8, src/nanotron"
ON: Final = frozenset({True})
HOST: Final = "of optimizers Adam alone runs on the host"
MEGATRON_LACKS: Final = {"adam-4bit", "adafactor"}
AWARE: Final = {name for name, optimizer in OPTIMIZERS.items() if optimizer.precision_aware} - MEGATRON_LACKS
SHARDED: Final = "needs the distributed optimizer (zero 1)"
# Of Megatron: source, choice and its values, conditions, reason
MEGATRON_CORE: Final[tuple[tuple[str, str, set[Any], dict[str, Any], str], ...]] = (
    (MEGATRON, "ep_overlap", {True}, {"precision": "fp32"}, "overlapped experts need bf16 or fp16"),
    (
        MEGATRON,
        "recompute",
        {"full", *RECOMPUTED_MODULES},
        {"offload": "activations"},
        "Megatron offloads or recomputes",
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
# Framework, its owner, optimizers that it lacks, what it has, source, software. PyTorch's FSDP2 steps any
# optimizer of a program, and transformers, with what trains on it, has them all.
LACKING_OPTIMIZERS: Final[tuple[tuple[str, str, set[str], str, str, dict[str, str]], ...]] = (
    (
        "megatron",
        "Megatron-Core",
        MEGATRON_LACKS,
        "Adam, with moments of 32, 16 or 8 bits, SGD, Lion and Muon and its like (--optimizer)",
        f"{ARGUMENTS}, --optimizer and --exp-avg-dtype",
        {},
    ),
    (
        "torchtitan",
        "torchtitan",
        {"adam-8bit", "adam-4bit", "sgd", "lion", "adafactor"},
        "Adam, AdamW, with moments of 32 or 16 bits, and Muon",
        "torchtitan 0.3.0, torchtitan/components/optimizer/optimizer.py, _resolve_optimizer_factory",
        {"framework": "torchtitan"},
    ),
    (
        "deepspeed",
        "DeepSpeed's configuration",
        {"adam-8bit", "adam-4bit"},
        "no optimizer of 8 or 4 bits",
        "DeepSpeed 0.19.8, deepspeed/runtime/engine.py, _configure_basic_optimizer",
        {},
    ),
    (
        "nanotron",
        "nanotron",
        {"adam-8bit", "adam-4bit", "lion", "adafactor", "muon"},
        "AdamW and SGD",
        f"{NANOTRON}/config/config.py, OptimizerArgs",
        {},
    ),
    (
        "jax",
        "MaxText",
        {"adam-8bit", "adam-4bit", "lion", "adafactor"},
        "AdamW, SGD and Muon (opt_type)",
        "MaxText 0.2.2, src/maxtext/optimizers/optimizers.py, get_optimizer",
        {},
    ),
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
        since="0.17",
    ),
    Refusal(
        "megatron",
        "recompute",
        frozenset({"gdn_norm_out"}),
        {},
        "the norm of the gated delta net is recomputed alone (gdn_norm_out) since 0.19",
        MEGATRON,
        until="0.18",
    ),
    Refusal(
        "megatron",
        "offload",
        frozenset({"expert_fc1", "moe_act"}),
        {"recompute": "experts"},
        "recomputed experts (moe) have nothing to offload",
        MEGATRON,
        since="0.19",
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
            ("deepspeed", "ep_overlap", "DeepSpeed's configuration", "expert", DEEPSPEED),
            ("nanotron", "ep_overlap", "nanotron", "expert", f"{NANOTRON}/config"),
        )
    ),
    Refusal(
        "deepspeed",
        "tp_overlap",
        ON,
        {},
        "of tensor-parallel communication DeepSpeed overlaps the all-reduce of gradients alone"
        " (tensor_parallel.tp_overlap_comm), which is not predicted",
        "DeepSpeed 0.19.8, deepspeed/module_inject/layers.py, AsyncColumnParallel",
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
            framework, "optimizer_kind", frozenset(lacking), {}, f"{owner} has {having}", source, software
        )
        for framework, owner, lacking, having, source, software in LACKING_OPTIMIZERS
    ),
    Refusal(
        "megatron",
        "optimizer_kind",
        frozenset({"lion"}),
        {},
        "Megatron-Core has Lion since 0.17",
        "Megatron-Core 0.17.1, megatron/training/arguments.py, --optimizer",
        until="0.16",
    ),
    Refusal(
        "torchtitan",
        "optimizer_kind",
        frozenset({"muon"}),
        {},
        "torchtitan has Muon since 0.3",
        "torchtitan 0.2.2, torchtitan/components/optimizer.py, build_optimizers",
        until="0.2",
    ),
    Refusal(
        "torchtitan",
        "tp_overlap",
        ON,
        {},
        "asynchronous tensor parallelism requires torch.compile of the model",
        f"{TORCHTITAN}; until 2025 torchtitan/distributed/tensor_parallel.py",
        software={"compiled": "false"},
    ),
    *(
        Refusal(
            framework,
            "offload",
            frozenset({"weights"}),
            {"zero": stage},
            "DeepSpeed offloads weights with ZeRO-3 alone",
            "DeepSpeed 0.19.8, deepspeed/runtime/zero/config.py, offload_param",
            software=software,
        )
        for framework, software in (
            ("deepspeed", {}),
            ("huggingface", {"framework": "Transformers-DeepSpeed"}),
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
    Refusal(
        "torchtitan",
        "schedule",
        frozenset({"zb-v"}),
        {},
        "Transformer Engine computes the gradients of inputs and weights in one node of autograd, which"
        " PyTorch's zero-bubble schedule cannot part",
        "Transformer Engine 2.9, pytorch/module/linear.py, requires_wgrad; NeMo AutoModel, linear: te",
        software={"framework": "AutoModel"},
    ),
)


@cache
def _software(stack: str) -> dict[str, str]:
    """Return the facts of a software stack; none of other assumptions."""
    if not stack or not Stack(stack).is_known:
        return {}
    return Stack(stack).facts


def find_refusals(framework: str, choices: Mapping[str, object], release: str = "") -> tuple[Refusal, ...]:
    """Return the refusals of a framework that apply to choices.

    Parameters
    ----------
    framework : str
        Its name.
    choices : mapping
        Values of choices, and of `stack`, a software stack's name, and `device`.
    release : str, optional
        An earlier release, such as ``0.17``; by default the newest that is known.

    Examples
    --------
    >>> choices = {"precision": "fp8", "recompute": "attention+norms"}
    >>> [refusal.choice for refusal in find_refusals("megatron", choices)]
    ['recompute']
    """
    if _software(choices.get("stack", "")).get("framework") in FORKS:
        return ()
    return tuple(
        refusal
        for refusal in REFUSALS
        if refusal.framework == framework and refusal.is_of(release) and refusal.holds(choices)
    )


def drop_refused(framework: str, choices: Mapping[str, object], release: str = "") -> dict[str, object]:
    """Return the choices without what a framework refuses; arguments as for `find_refusals`.

    Examples
    --------
    >>> drop_refused("megatron", {"precision": "fp8", "recompute": "attention+norms"})["recompute"]
    'attention'
    """
    result = dict(choices)
    for refusal in find_refusals(framework, choices, release):
        result[refusal.choice] = refusal.drop_refused_part(result[refusal.choice])
    return result
