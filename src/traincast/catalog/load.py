"""Models and systems by name from the catalogue, or from a YAML or JSON file of the same shape."""

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from traincast.catalog import huggingface
from traincast.catalog.documents import catalogue, known, listed, read
from traincast.catalog.software_stacks import stack_file, stack_names
from traincast.core.errors import InputError, not_a, not_whole, unknown
from traincast.core.model import Model
from traincast.core.system import Accelerator, Software, System, Tier

if TYPE_CHECKING:
    from traincast.catalog.schema.fields import Figure, Part
    from traincast.catalog.schema.model import ModelFile
    from traincast.catalog.schema.system import SystemFile

SYSTEM_KEYS: Final = {"accelerator", "network"}  # tell the two kinds of file apart
MODEL_KEYS: Final = {"layers", "hidden", "heads"}
_CHOSEN_DOMAIN = re.compile(r"(.+)-nvs([1-9]\d{0,8})")


def load_model(name_or_path: str | Path, *, seq: int | None = None) -> Model:
    """Load a model.

    Parameters
    ----------
    name_or_path : str or Path
        A name of the catalogue such as ``"gpt3-1t"``, in any case. A string that ends in .yaml, .yml or .json
        or contains a path separator, and any `Path`, is a file: a model file, or the config.json of a Hugging Face model.
    seq : int, optional
        Sequence length in place of the model's own [tokens].

    Returns
    -------
    Model
        The model, with the source of every figure.

    Raises
    ------
    InputError
        If there is no such model, or with every mistake of the file.
    """
    return _model(_model_file(name_or_path, seq), str(name_or_path))


def read_model(document: Mapping[str, Any], name: str, *, seq: int | None = None) -> Model:
    """A model from the content of a file, as text from elsewhere was parsed: no file is opened.

    Parameters
    ----------
    document : mapping
        What a model file says, or the config.json of a Hugging Face model.
    name : str
        What the content is called: in messages, and where it names no model itself.
    seq : int, optional
        Sequence length in place of the model's own [tokens].

    Raises
    ------
    InputError
        With every mistake of the content.
    """
    return _model(_checked_model(dict(document), Path(name) / "config.json", name, seq), name)


def known_model(name: str, *, seq: int | None = None) -> Model:
    """A model of the catalogue; no file of that name is looked for.

    Parameters
    ----------
    name : str
        Its name, in any case.
    seq : int, optional
        Sequence length in place of the model's own [tokens].

    Raises
    ------
    InputError
        If the catalogue has no such model, or the sequence length cannot be.
    """
    _require_name("model", name, "a name of the catalogue")
    if _model_document(name) is None:
        raise unknown("model", name, model_names())
    return load_model(name, seq=seq)


def known_system(name: str) -> System:
    """A system of the catalogue; no file of that name is looked for.

    Parameters
    ----------
    name : str
        Its name, in any case, such as ``"dgx-h100"`` or ``"h200-nvs8"``.

    Raises
    ------
    InputError
        If the catalogue has no such system.
    """
    _require_name("system", name, "a name of the catalogue")
    if _system_document(name) is None:
        raise unknown("system", name, system_names(), hint="any N in <gpu>-nvs<N>")
    return load_system(name)


def load_system(name_or_path: str | Path) -> System:
    """Load a system.

    Parameters
    ----------
    name_or_path : str or Path
        A name of the catalogue such as ``"polaris"``, in any case, or a file as for `load_model`. The fast domain of
        ``"h200-nvs8"`` and its like is chosen by the name and can be any positive number of accelerators.

    Returns
    -------
    System
        The system, with the source of every figure.

    Raises
    ------
    InputError
        If there is no such system, or with every mistake of the file.
    """
    file = _system_file(name_or_path)
    return System(
        name=file.name,
        accelerator=Accelerator(name=file.accelerator.name, **_values(file.accelerator)),
        tiers=tuple(Tier(name=tier.name, mesh=getattr(tier, "mesh", False), **_values(tier)) for tier in file.network),
        software=tuple(Software(one.stack, tuple(_values(one).items())) for one in file.software or ()),
        sources=_sources(file),
        **_values(file),
    )


def load_accelerator(name: str) -> Accelerator:
    """An accelerator of the catalogue, such as ``"h100-sxm-80"``.

    Parameters
    ----------
    name : str
        Its name, in any case.

    Raises
    ------
    InputError
        If there is no such accelerator.
    """
    from traincast.catalog.schema import system as systems

    chip = known("accelerators", name.lower())
    if chip is None:
        raise unknown("accelerator", name, accelerator_names())
    part = systems.AcceleratorPart.model_validate(chip)
    return Accelerator(name=part.name, **_values(part))


def as_model(model: str | Path | Model) -> Model:
    """The model itself, or that of a name or a file, as for `load_model`.

    Raises
    ------
    InputError
        If it is neither, or cannot be loaded.
    """
    if isinstance(model, Model):
        return model
    _require_name("model", model, "a name of the catalogue, the path of a file, or a Model")
    return load_model(model)


def as_system(system: str | Path | System) -> System:
    """The system itself, or that of a name or a file, as for `load_system`.

    Raises
    ------
    InputError
        If it is neither, or cannot be loaded.
    """
    if isinstance(system, System):
        return system
    _require_name("system", system, "a name of the catalogue, the path of a file, or a System")
    return load_system(system)


def _require_name(argument: str, value: Any, allowed: str = "a name of the catalogue, or the path of a file") -> None:
    """Refuse what is neither a name nor a path."""
    if wrong := not_a(argument, value, allowed, str, Path):
        raise InputError(argument, wrong)


def model_names() -> tuple[str, ...]:
    """Names of the catalogue's models, aliases included, in alphabetical order."""
    aliases = listed("models", "aliases")
    return tuple(sorted((*aliases, *(alias for some in aliases.values() for alias in some))))


def system_names() -> tuple[str, ...]:
    """Names of the catalogue's systems, in alphabetical order of machines; other fast domains can be chosen as well."""
    domains = listed("systems", "fast_domains")
    return tuple(full for name, sizes in domains.items() for full in ([f"{name}-nvs{n}" for n in sizes] or [name]))


def accelerator_names() -> tuple[str, ...]:
    """Names of the catalogue's accelerators, which system files may refer to, in alphabetical order."""
    return tuple(catalogue("accelerators"))


def systems_with(accelerator: str) -> tuple[str, ...]:
    """Names of the catalogue's systems that refer to an accelerator of the catalogue, in alphabetical order."""
    return tuple(name for name, used in listed("systems", "accelerator").items() if used == (accelerator.lower(),))


def figures(name_or_path: str | Path) -> "tuple[Figure, ...]":
    """Every figure of a model, system, accelerator or software stack: dotted path, value in SI, unit, source and basis.

    Parameters
    ----------
    name_or_path : str or Path
        A name of the catalogue or a file, as for `load_model` and `load_system`.

    Returns
    -------
    tuple of Figure
        The figures, in the order of the file's description.

    Raises
    ------
    InputError
        If there is no such model or system, or with every mistake of the file.
    """
    from traincast.catalog.schema import fields as entries
    from traincast.catalog.schema import system as systems

    _require_name("name_or_path", name_or_path)
    if _is_system(name_or_path):
        return entries.figures(_system_file(name_or_path))
    if not _is_file(name_or_path) and _model_document(str(name_or_path)) is None:
        if chip := known("accelerators", str(name_or_path).lower()):
            return entries.figures(systems.AcceleratorPart.model_validate(chip))
        if str(name_or_path).lower() in stack_names():
            return entries.figures(stack_file(str(name_or_path)))
        _refuse_other_file("catalogue", str(name_or_path))
        names = (*model_names(), *system_names(), *accelerator_names(), *stack_names())
        raise unknown("model, system, accelerator or software stack", str(name_or_path), names)
    file = _model_file(name_or_path)
    _model(file, str(name_or_path))  # refuses figures that contradict each other
    return entries.figures(file)


def _model(file: "ModelFile", subject: str) -> Model:
    """The model of a file; what it leaves out is as in `Model`."""
    given = {field.name: _plain(getattr(file, field.name, None)) for field in fields(Model) if field.name != "sources"}
    if file.training_tokens:
        given["training_sequences"] = file.training_tokens.value / file.seq.value
    try:
        return Model(**{name: value for name, value in given.items() if value is not None}, sources=_sources(file))
    except InputError as error:
        raise InputError(subject, error.problems) from None


def _plain(item: Any) -> Any:
    """An item of a checked file as the model holds it."""
    from traincast.catalog.schema.fields import Entry
    from traincast.catalog.schema.model import ModelPart

    if isinstance(item, Entry):
        return item.value
    if isinstance(item, ModelPart):
        values = {key: _plain(value) for key, value in item}
        return item.becomes(**{key: value for key, value in values.items() if value is not None})
    return tuple(map(_plain, item)) if isinstance(item, tuple) else item


def _model_file(name_or_path: str | Path, seq: int | None = None) -> "ModelFile":
    """A checked model file, its sequence length replaced where one is asked for."""
    _require_name("model", name_or_path)
    document = read(Path(name_or_path)) if _is_file(name_or_path) else _model_document(str(name_or_path))
    if document is None:
        _refuse_other_file("model", str(name_or_path))
        raise unknown("model", str(name_or_path), model_names())
    return _checked_model(document, Path(name_or_path), str(name_or_path), seq)


def _checked_model(document: dict[str, Any], path: Path, subject: str, seq: int | None) -> "ModelFile":
    """The checked content of a model file, or of a configuration that stands at a path."""
    from traincast.catalog.schema.messages import check
    from traincast.catalog.schema.model import ModelFile

    if seq is not None and not_whole("seq", seq):
        raise InputError(subject, not_whole("seq", seq))
    if SYSTEM_KEYS & document.keys():
        raise InputError(subject, ["describes a system, not a model"])
    if huggingface.is_config(document):
        document = huggingface.as_model_file(document, path, seq)
    if seq is not None:
        document = document | {"seq": {"value": seq, "source": "asked for", "basis": "assumed"}}
    return check(ModelFile, document, subject)


def _system_file(name_or_path: str | Path) -> "SystemFile":
    """A checked system file."""
    from traincast.catalog.schema.messages import check
    from traincast.catalog.schema.system import system_file

    document = system_document(name_or_path)
    network = document.get("network")
    tiers = len(network) if isinstance(network, list) else 0
    return check(system_file(max(tiers, 2)), document, str(name_or_path))


def system_document(name_or_path: str | Path) -> dict[str, Any]:
    """What a system's file says, unchecked; arguments and errors as for `load_system`."""
    _require_name("system", name_or_path)
    document = read(Path(name_or_path)) if _is_file(name_or_path) else _system_document(str(name_or_path))
    if document is None:
        _refuse_other_file("system", str(name_or_path))
        having = ", ".join(systems_with(str(name_or_path)))
        hint = f"that is an accelerator; systems with it: {having}" if having else "any N in <gpu>-nvs<N>"
        raise unknown("system", str(name_or_path), system_names(), hint)
    if MODEL_KEYS & document.keys():
        raise InputError(str(name_or_path), ["describes a model, not a system"])
    return document


def _is_file(name_or_path: str | Path) -> bool:
    """Whether a file is meant, not a name of the catalogue."""
    if isinstance(name_or_path, Path):
        return True
    separated = any(mark in name_or_path for mark in ("/", os.sep, os.altsep) if mark)
    return separated or name_or_path.lower().endswith((".yaml", ".yml", ".json"))


def _refuse_other_file(kind: str, name: str) -> None:
    """Say what a file must be, where an unknown name is that of another file."""
    if os.path.isfile(name) or os.path.splitext(name)[1][1:].isalpha():
        what = {"model": "a model, or the config.json of a Hugging Face model", "system": "a system"}.get(
            kind, "a model or a system"
        )
        raise InputError(name, [f"is no {kind} file: wanted is a .yaml, .yml or .json file that describes {what}"])


def _is_system(name_or_path: str | Path) -> bool:
    """Whether a name or a file describes a system."""
    if _is_file(name_or_path):
        return not SYSTEM_KEYS.isdisjoint(read(Path(name_or_path)))
    return _system_document(str(name_or_path)) is not None


def _model_document(name: str) -> dict[str, Any] | None:
    """What the catalogue holds on a model, None if nothing."""
    name = name.lower()
    return known("models", next((own for own, aliases in listed("models", "aliases").items() if name in aliases), name))


def _system_document(name: str) -> dict[str, Any] | None:
    """What the catalogue holds on a system, the fast domain filled in; None if nothing."""
    name = name.lower()
    chosen = _CHOSEN_DOMAIN.fullmatch(name)
    document = known("systems", chosen[1] if chosen else name) or {}
    by_name = document.pop("fast_domains", None) is not None
    if not document or by_name != bool(chosen):
        return None
    if chosen:
        document["name"] = name
        document["network"][0]["size"] = {"value": int(chosen[2]), "source": f"the name {name}", "basis": "assumed"}
    return document


def _values(part: "Part") -> dict[str, Any]:
    """The figures a part of a checked file holds, by name."""
    from traincast.catalog.schema.fields import Entry

    return {name: figure.value for name, figure in part if isinstance(figure, Entry)}


def _sources(file: "ModelFile | SystemFile") -> dict[str, str]:
    """Where each figure of a file comes from."""
    from traincast.catalog.schema.fields import figures

    return {figure.path: f"{figure.source} ({figure.basis})" for figure in figures(file)}
