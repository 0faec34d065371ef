"""Import of PEFT's adapter_config.json: rank and targets of low-rank adapters."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from traincast.catalog.documents import read_document
from traincast.core import InputError, raise_problems, whole_number_problems
from traincast.model import FINE_TUNING_METHODS, MODULE_TARGETS, Adapters, parse_training

# Settings that would train or compute something else, with the values that do not
NEUTRAL: Final[Mapping[str, tuple[object, ...]]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "use_dora": (False, None),
    "modules_to_save": ([], None),
    "rank_pattern": ({}, None),
    "layers_to_transform": ([], None),
    "layer_replication": ([], None),
    "exclude_modules": ([], None),
    "target_parameters": ([], None),
    "trainable_token_indices": ([], {}, None),
}


def load_training(text: str) -> Adapters | None:
    """Return what a text of `--train` says is trained; None for all weights.

    It is a method with settings (`parse_training`), or PEFT's adapter_config.json, alone or after a method:
    ``qlora:adapter_config.json``.
    Raises `InputError` if the text or the file states anything else, or the file what is not modelled.
    """
    method, _, rest = text.strip().partition(":")
    if not text.strip().lower().endswith(".json"):
        return parse_training(text)
    is_method = method in FINE_TUNING_METHODS
    adapters = _of_config(Path(rest if is_method else text.strip()))
    base = FINE_TUNING_METHODS[method] if is_method else "16-bit"
    if base is None:
        raise InputError("--train", [f"{text!r}: full has no adapters"])
    return replace(adapters, base=base)


def _of_config(path: Path) -> Adapters:
    """Return the adapters of an adapter_config.json; refuse by name what is not modelled."""
    document = read_document(path)
    problems = [
        f"{name} = {document.get(name)!r}: must be {neutral[0]!r}; anything else is not modelled"
        for name, neutral in NEUTRAL.items()
        if (name in document or name == "peft_type") and document.get(name) not in neutral
    ]
    # PEFT's default
    rank = document.get("r", 8)
    modules = document.get("target_modules")
    problems += whole_number_problems("r", rank)
    names = [modules] if isinstance(modules, str) else modules
    if not isinstance(names, list) or not names:
        problems.append(f"target_modules = {modules!r}: must be a list of names, or 'all-linear'")
        names = []
    last = {name: str(name).rpartition(".")[2] for name in names}
    problems += [
        f"target_modules: {name!r} is none of {', '.join(MODULE_TARGETS)}"
        for name, module in last.items()
        if module not in MODULE_TARGETS
    ]
    dropout = document.get("lora_dropout", 0.0)
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        problems.append(f"lora_dropout = {dropout!r}: must be a number from 0 to below 1")
    raise_problems(str(path), problems)
    targets = tuple(dict.fromkeys(MODULE_TARGETS[module] for module in last.values()))
    return Adapters(rank=rank, targets=targets, dropout=bool(dropout))
