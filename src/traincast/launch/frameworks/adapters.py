"""Adapters in launches: which linear layers have one, in the names of PEFT and of Megatron-Bridge."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from traincast.core import InputError
from traincast.launch.settings.settings import Settings
from traincast.model import (
    MODULE_TARGETS,
    PEFT_DEFAULT,
    PEFT_VERSION,
    Adapters,
    Model,
    Target,
    adapter_ranks,
    expert_rule,
)

BRIDGE_NAMES: Final[Mapping[Target, str]] = {
    "qkv": "linear_qkv",
    "proj": "linear_proj",
    "fc1": "linear_fc1",
    "fc2": "linear_fc2",
}
BRIDGE_RANK: Final = 32  # megatron/bridge/peft/lora.py, LoRA: dim, and all of the layers above


def module_names(adapters: Adapters, names: Mapping[Target, str]) -> list[str] | None:
    """Return the layers with an adapter in a framework's names; None if it has no name for one of them."""
    known = [names.get(target) for target in adapters.targets]  # type: ignore[call-overload]  # words of `Target`
    return None if None in known else known


def targets_of(setting: str, modules: Any) -> tuple[str, ...]:
    """Return the targets of a list of modules; the last part of each name counts.

    Raises
    ------
    InputError
        If a module is not known.
    """
    listed = modules if isinstance(modules, list | tuple) else [modules]
    last = [str(module).rpartition(".")[2] for module in listed]
    if unknown := [module for module in last if module not in MODULE_TARGETS]:
        raise InputError(setting, [f"{setting}: {unknown[0]!r} is none of {', '.join(MODULE_TARGETS)}"])
    return tuple(dict.fromkeys(MODULE_TARGETS[module] for module in last))


def notes(model: Model, given: Adapters | None) -> Iterator[str]:
    """Yield what is assumed of adapters `given` in a launch on a model: PEFT's targets, and dropout."""
    adapters = model.adapters
    if given is None or adapters is None:
        return
    if PEFT_DEFAULT in given.targets:
        layers = "+".join(adapters.targets)
        kind = model.transformers_type
        yield f"adapters of {layers}, the default of {PEFT_VERSION} for models of type {kind}"
    if adapters.dropout and expert_rule(model) == "joined" and adapter_ranks(model, experts=True):
        yield f"adapters of experts pass dropout, at which {PEFT_VERSION} stops: set lora_dropout to 0"


def probability(settings: Settings, name: str) -> bool:
    """Return whether there is dropout: whether its probability is above 0."""
    try:
        value = float(settings.get(name) or 0)
    except (TypeError, ValueError):
        value = -1.0
    if not 0 <= value < 1:
        raise InputError(name, [f"{name} = {settings[name]!r}: must be a number from 0 to below 1"])
    return value > 0
