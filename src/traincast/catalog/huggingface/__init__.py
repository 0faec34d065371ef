"""A Hugging Face config.json as a model file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from traincast.catalog.huggingface.config import Config
from traincast.catalog.huggingface.model_types import FAMILIES
from traincast.core.errors import InputError

TOWERS = {"vision_config": "vision", "audio_config": "audio", "speech_config": "audio"}
HEADS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForImageClassification", "Model")


def is_config(document: Mapping[str, Any]) -> bool:
    """Whether the content of a file is a Hugging Face configuration."""
    return not {"architectures", "model_type"}.isdisjoint(document)


def as_model_file(document: Mapping[str, Any], path: Path, seq: int | None = None) -> dict[str, Any]:
    """The model file that says what a configuration says.

    Parameters
    ----------
    document : mapping
        Content of the configuration.
    path : Path
        Where it stands: its folder names the model where the file is called config.json.
    seq : int, optional
        Sequence length asked for; otherwise one is assumed [tokens].

    Returns
    -------
    dict
        Content of a model file, each figure with the field it comes from.

    Raises
    ------
    InputError
        If the model type is not known, or with every field that is missing, wrong or cannot be represented.
    """
    part = document.get("text_config")
    inner = part if isinstance(part, dict) else document
    model_type = _model_type(document, inner)
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise InputError(str(path), [f"model_type = {model_type!r}: not a type that can be imported; known: {known}"])
    family = FAMILIES[model_type]
    place = f"{path.name}, text_config (the text model only)" if inner is not document else path.name
    config = Config(inner, model_type, family.defaults, family.names, place, seq)
    config.problems += _wrong_head(document)
    content: dict[str, Any] = {}
    for feature in family.features:
        content |= feature(config)
    problems = config.problems or _contradictions(config, content)
    if problems:
        raise InputError(str(path), problems)
    name = path.stem if path.stem.lower() != "config" else path.resolve().parent.name or "config"
    told = {"name": name, "source": place, "left_out": _left_out(document)}
    return {key: value for key, value in (told | content).items() if value is not None}


def _left_out(document: Mapping[str, Any]) -> str | None:
    """Parts of a multimodal model beside the text model, which is all that is read; None where there are none."""
    towers = dict.fromkeys(tower for name, tower in TOWERS.items() if isinstance(document.get(name), dict))
    if towers:
        return f"{' and '.join(towers)} tower{'s' if len(towers) > 1 else ''}"
    return "parts outside of text_config" if isinstance(document.get("text_config"), dict) else None


def _model_type(document: Mapping[str, Any], inner: Mapping[str, Any]) -> Any:
    """Type of the model, or of the text part of one that takes images as well."""
    architectures = document.get("architectures")
    if isinstance(architectures, list) and architectures and str(architectures[0]).startswith("Grok1Model"):
        return "grok-1"  # is published under other types as well
    inherited = f"{document.get('model_type')}_text" if inner is not document else None
    return inner.get("model_type", inherited)


def _wrong_head(document: Mapping[str, Any]) -> list[str]:
    """What is wrong with the architecture: a model of another purpose has another head."""
    if document.get("is_encoder_decoder") is True:
        return ["is_encoder_decoder = True: only decoders and vision transformers can be imported"]
    named = document.get("architectures")
    if named is None or (isinstance(named, list) and all(isinstance(one, str) and one.endswith(HEADS) for one in named)):
        return []
    return [f"architectures = {named!r}: must be a list of names that end in {', '.join(HEADS)}"]


def _contradictions(config: Config, content: Mapping[str, Any]) -> list[str]:
    """Figures that do not go together, by the names of the configuration."""
    hidden, heads, groups, width = (_value(content, key) for key in ("hidden", "heads", "kv_heads", "head_dim"))
    h, e = config.spelled("num_attention_heads"), config.spelled("hidden_size")
    problems = []
    if width is None and "latent" not in content and hidden % heads:
        problems.append(f"{h} = {heads}: must divide {e} = {hidden}")
    if groups is not None and heads % groups:
        problems.append(f"{config.spelled('num_key_value_heads')} = {groups}: must divide {h} = {heads}")
    experts = content.get("experts") or {}
    total, used = _value(experts, "experts"), _value(experts, "topk")
    if experts and used > total:
        problems.append(f"num_experts_per_tok = {used}: must be at most {config.spelled('num_experts')} = {total}")
    return problems


def _value(content: Mapping[str, Any], key: str) -> Any:
    """Number of a figure, None where there is none."""
    return (content.get(key) or {}).get("value")
