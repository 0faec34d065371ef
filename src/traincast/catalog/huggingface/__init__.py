"""Import of Hugging Face config.json files as model files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from traincast.catalog.huggingface import decoders, diffusers, encoders, features, hybrids, remote_code
from traincast.catalog.huggingface.config import Config, model_types, tables
from traincast.catalog.huggingface.encoders import head_keys, head_of
from traincast.catalog.huggingface.features import Feature
from traincast.catalog.huggingface.towers import text_defaults, tower, whole
from traincast.core import InputError, raise_problems

FEATURES: Final[Mapping[str, Feature]] = {  # by the words of model_types.yaml
    **features.FEATURES,
    **hybrids.FEATURES,
    **encoders.FEATURES,
    **decoders.FEATURES,
    **remote_code.FEATURES,
}
CONTRASTIVE = {"clip": "clip_vision_model", "siglip": "siglip_vision_model"}  # their larger tower


def is_config(document: Mapping[str, object]) -> bool:
    """Return whether the content of a file is a Hugging Face configuration."""
    return not {"architectures", "model_type", "_class_name"}.isdisjoint(document)


def as_model_file(document: Mapping[str, Any], path: Path, seq: int | None = None) -> dict[str, Any]:
    """Convert a configuration to the content of a model file."""
    if diffusers.is_diffusers(document):
        return diffusers.as_model_file(document, path, seq)
    document, text_part = _spell_text_config(document)
    text_config = document.get("text_config")
    row = whole(document)
    inner = text_config if isinstance(text_config, dict) else document
    model_type = _model_type(document, inner)
    if (seen := CONTRASTIVE.get(str(document.get("model_type")))) is not None:
        around = {name: document[name] for name in ("projection_dim", "architectures") if name in document}
        inner = around | (document.get("vision_config") or {})
        model_type = seen
    if row is not None:
        inner, model_type = _text_of(document, inner, row)
    elif inner is not document:
        inner = {**text_defaults(str(model_type)), **inner}
    if not isinstance(model_type, str) or model_type not in model_types():
        known = ", ".join(sorted(model_types(), key=str.lower))
        unknown = f"model_type = {model_type!r}: not a type that can be imported; known: {known}"
        raise InputError(str(path), [unknown])
    only = "" if row else " (the text model only)"
    place = f"{path.name}, {text_part}{only}" if isinstance(text_config, dict) else path.name
    place = f"{path.name}, vision_config" if seen else place
    config = Config(inner, model_type, place, seq)
    if inner is text_config and not _ends_known(document, config):
        document = {**document, "architectures": None}  # that of the whole, of which the text part is read
    config.problems += _architecture_problems(document, config)
    config.check_allowed()
    for name in config.features:
        config.content |= FEATURES[name](config)
    content = {**config.content, **config.same}
    if "vocab" in content and not config.problems:
        content |= head_keys(config, content, document)
    problems = list(config.problems or _contradictions(config, content))
    if row is not None and (hidden := _value(content, "hidden")):
        vision, wrong = tower(document, row, hidden, path.name)
        content = content | vision
        problems = [*problems, *wrong]
    raise_problems(str(path), problems)
    name = path.stem if path.stem.lower() != "config" else path.resolve().parent.name or "config"
    parts_left = [content.get("left_out"), None if row or seen else _left_out(document)]
    left_out = ", ".join(dict.fromkeys(filter(None, parts_left))) or None
    whole_type = str(document.get("model_type") or model_type)  # of a multimodal model that of the whole
    header = {"name": name, "source": place, "transformers_type": whole_type, "left_out": left_out}
    return {key: value for key, value in (content | header).items() if value is not None}


def _spell_text_config(document: Mapping[str, object]) -> tuple[Mapping[str, Any], str]:
    """Return a configuration with its language model under text_config, and the name of that part in it."""
    name = "text_config"
    thinker = document.get("thinker_config")  # Qwen Omni, whose other part speaks
    if isinstance(thinker, dict):
        document = {**document, **thinker}
        name = "thinker_config.text_config"
    spelling = next((part for part in tables()["text_parts"] if isinstance(document.get(part), dict)), None)
    if spelling is None or isinstance(document.get("text_config"), dict):
        return document, name
    return {**document, "text_config": document[spelling]}, spelling


def _text_of(
    document: Mapping[str, Any], inner: Mapping[str, Any], row: Mapping[str, Any]
) -> tuple[dict[str, object], object]:
    """Return the fields and the type of the language model of a configuration that is read whole.

    Whether the head shares the embedding's weights stands beside text_config, or in it.
    """
    default = row["defaults"].get("text_config.model_type", f"{document.get('model_type')}_text")
    if (
        inner is document and "text" not in row and "num_hidden_layers" in document
    ):  # taken out of text_config
        return {**text_defaults(default), **document, "model_type": default}, default
    if inner is document:  # its fields stand at the top, or all of them are left out
        inner = document if "text" in row else {}
    model_type = row["text"] if inner is document else inner.get("model_type", default)
    if model_type == document.get("model_type"):
        model_type = row.get("text", model_type)
    tied = {name: document[name] for name in ("tie_word_embeddings",) if name in document}
    return {**text_defaults(model_type), **inner, **tied}, model_type


def _left_out(document: Mapping[str, object]) -> str | None:
    """Return the parts of a multimodal model that are not read, all but the text; None if there are none."""
    if (known := tables()["parts"].get(str(document.get("model_type")))) is not None:
        return str(known[1])
    towers = dict.fromkeys(
        tower for name, tower in tables()["towers"].items() if isinstance(document.get(name), dict | str)
    )
    if towers:
        return f"{' and '.join(towers)} tower{'s' if len(towers) > 1 else ''}"
    return "parts outside of text_config" if isinstance(document.get("text_config"), dict) else None


def _model_type(document: Mapping[str, object], inner: Mapping[str, object]) -> object:
    """Return the type of the model, or of the text part of a multimodal one."""
    architectures = document.get("architectures")
    first = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    if first.startswith("Grok1"):  # published under other types as well
        return "grok-2" if "residual_moe" in document else "grok-1"
    if str(document.get("model_type")).endswith("_assistant"):  # drafts with layers of its own
        return document["model_type"]
    if first.startswith("JinaBert"):  # published as bert
        return "jina_bert"
    if document.get("model_type") == "xlm-roberta" and document.get("position_embedding_type") == "rotary":
        return "jina_embeddings_v3"
    known = _text_type(document)
    if inner is document:
        return known or inner.get("model_type") or _find_type(first)
    return inner.get("model_type", known or f"{document.get('model_type')}_text")


def _text_type(document: Mapping[str, object]) -> object:
    """Return the type of the text model in the table of parts, or by a field there; None if unknown."""
    known = tables()["parts"].get(str(document.get("model_type")), [None])[0]
    if not isinstance(known, dict):
        return known
    ((field, types),) = known.items()
    return next((name for value, name in types.items() if str(value) == str(document.get(field))), None)


def _find_type(architecture: str) -> str | None:
    """Return the type that an architecture is named after; None if there is none."""
    plain = {name.replace("-", "").replace("_", "").lower(): name for name in model_types()}
    stems = (architecture.removesuffix(end) for end in tables()["heads"] if architecture.endswith(end))
    return next((plain[stem.lower()] for stem in stems if stem.lower() in plain), None)


def _ends_known(document: Mapping[str, object], config: Config) -> bool:
    """Return whether the first architecture ends in a way that says what follows the layers."""
    names = document.get("architectures")
    if not isinstance(names, list) or not names:
        return True
    return any(str(names[0]).endswith(end) for end in config.heads)


def _architecture_problems(document: Mapping[str, object], config: Config) -> list[str]:
    """Return what is wrong with the architecture: other heads cannot be imported."""
    if document.get("is_encoder_decoder") is True and "encoder_layers" not in (
        *config.names,
        *config.defaults,
    ):
        return ["is_encoder_decoder = True: models of this type are imported as decoders or encoders alone"]
    names = document.get("architectures")
    if names is None or (
        isinstance(names, list) and all(head_of(config, name) is not None for name in names)
    ):
        return []
    return [f"architectures = {names!r}: must be a list of names that end in {', '.join(config.heads)}"]


def _contradictions(config: Config, content: Mapping[str, Any]) -> list[str]:
    """Return a line for each contradiction between figures, with the names of the configuration."""
    hidden = _value(content, "hidden")
    heads = _value(content, "heads")
    kv_heads = _value(content, "kv_heads")
    head_dim = _value(content, "head_dim")
    h = config.spell("num_attention_heads")
    e = config.spell("hidden_size")
    problems = []
    if head_dim is None and "latent" not in content and heads and hidden % heads:
        problems.append(f"{h} = {heads}: must divide {e} = {hidden}")
    if kv_heads is not None and heads % kv_heads:
        problems.append(f"{config.spell('num_key_value_heads')} = {kv_heads}: must divide {h} = {heads}")
    experts = content.get("experts") or {}
    total = _value(experts, "experts")
    topk = _value(experts, "topk")
    if experts and topk > total:
        name = config.spell("num_experts")
        problems.append(f"num_experts_per_tok = {topk}: must be at most {name} = {total}")
    return problems


def _value(content: Mapping[str, Any], key: str) -> Any:
    """Return the number of a figure; None if there is none, or 0 for all models of the type."""
    return (content.get(key) or {}).get("value")
