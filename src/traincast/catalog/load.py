"""Loading of models and systems by name from the catalogue, or from YAML or JSON files of the same schema."""

import os
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from traincast.catalog import huggingface, names, paper_files
from traincast.catalog.disk_cache import cached_on_disk
from traincast.catalog.documents import catalogue, catalogue_entry, read_document, values_of_key
from traincast.catalog.software_stacks import Stack, stack_names
from traincast.core import (
    Accelerator,
    InputError,
    Software,
    System,
    Tier,
    make_record,
    require_type,
    unknown_name_error,
    whole_number_problems,
)
from traincast.model import Model

if TYPE_CHECKING:
    from traincast.catalog.schema.fields import Figure, Part
    from traincast.catalog.schema.model import ModelKeys
    from traincast.catalog.schema.system import SystemKeys

Kind: TypeAlias = Literal["model", "system"]
KEYS: Final[Mapping[Kind, set[str]]] = {  # that tell the files of one kind from those of the other
    "model": {"layers", "hidden", "heads"},
    "system": {"accelerator", "network"},
}
DESCRIBES: Final = {"model": "a model, or the config.json of a Hugging Face model", "system": "a system"}
ENDINGS: Final = (".yaml", ".yml", ".json")
NAME: Final = "a name of the catalogue, or the path of a file"


def load_model(name_or_path: str | Path, *, seq: int | None = None) -> Model:
    """Load a model.

    Parameters
    ----------
    name_or_path : str or Path
        A name of the catalogue such as ``"gpt3-1t"``, or one of Hugging Face such as ``"Qwen/Qwen3-8B"``;
        case and punctuation do not count. A path that exists, a string that ends in .yaml, .yml or .json, and
        any `Path` is a file: a model file, or the config.json of a Hugging Face model.
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
    require_type("model", name_or_path, NAME, str, Path)
    named = _find_name("model", name_or_path)
    if named is None:
        return _read_model(name_or_path, seq)
    model = cached_on_disk(_read_model)(named.name, seq)
    return replace(model, taken=_with_length(named.taken, model, seq)) if named.taken else model


def _with_length(taken: str, model: Model, seq: int | None) -> str:
    """Return what is said of a model's name, with the length of its sequences where none is given."""
    return taken if seq is not None else f"{taken}; sequences of {model.seq:,} tokens unless others are given"


def _read_model(name_or_path: str | Path, seq: int | None) -> Model:
    return _model(_model_file(name_or_path, seq), str(name_or_path))


def read_model(document: Mapping[str, Any], name: str, *, seq: int | None = None) -> Model:
    """Make a model of the parsed content of a model file or a config.json; `name` names it in messages."""
    return _model(_checked_model(dict(document), Path(name) / "config.json", name, seq), name)


def known_name(kind: Kind, name: str) -> str:
    """Return the catalogue's own name of a model or system that is called by any of its names."""
    require_type(kind, name, "a name of the catalogue", str)
    if (named := _look_up_name(kind, name)) is None:
        raise names.unknown_model(name) if kind == "model" else names.unknown_system(name)
    return named.name


def load_system(name_or_path: str | Path) -> System:
    """Load a system.

    Parameters
    ----------
    name_or_path : str or Path
        A name of the catalogue such as ``"polaris"``, an instance of a cloud such as ``"p5.48xlarge"``, a
        GPU such as ``"h100"``, which means its usual node, or a file as for `load_model`; case and
        punctuation do not count. The number in names such as ``"h200-nvs8"`` is the size of the fast domain
        and can be any positive number of accelerators.

    Returns
    -------
    System
        The system, with the source of every figure.

    Raises
    ------
    InputError
        If there is no such system, or with every mistake of the file.
    """
    require_type("system", name_or_path, NAME, str, Path)
    named = _find_name("system", name_or_path)
    if named is None:
        return _read_system(name_or_path)
    system = cached_on_disk(_read_system)(named.name)
    return replace(system, taken=named.taken) if named.taken else system


def _read_system(name_or_path: str | Path) -> System:
    file = _system_file(name_or_path)
    accelerator: Any = file.accelerator
    return System(
        name=file.name,
        accelerator=Accelerator(name=accelerator.name, **_values(accelerator)),
        tiers=tuple(
            Tier(name=tier.name, mesh=getattr(tier, "mesh", False), **_values(tier)) for tier in file.network
        ),
        calibrated_to=file.calibrated_to or "",
        calibrated_with=tuple((file.calibrated_with or {}).items()),
        software=tuple(Software(part.stack, tuple(_values(part).items())) for part in file.software or ()),
        sources=_sources(file),
        **_values(file),
    )


def load_accelerator(name: str) -> Accelerator:
    """Load an accelerator of the catalogue, such as ``"h100-sxm-80"``, or ``"h100"`` for short."""
    from traincast.catalog.schema.system import AcceleratorPart

    called = names.accelerator_named(name)
    if called is None:
        raise unknown_name_error("accelerator", name, accelerator_names())
    document = catalogue_entry("accelerators", called)
    part = AcceleratorPart.model_validate(document)
    return Accelerator(name=part.name, **_values(part))


def as_model(model: str | Path | Model) -> Model:
    """Return a model itself, or load that of a name or a file as `load_model` does."""
    require_type("model", model, "a name of the catalogue, the path of a file, or a Model", str, Path, Model)
    return model if isinstance(model, Model) else load_model(model)


def as_system(system: str | Path | System) -> System:
    """Return a system itself, or load that of a name or a file as `load_system` does."""
    require_type(
        "system", system, "a name of the catalogue, the path of a file, or a System", str, Path, System
    )
    return system if isinstance(system, System) else load_system(system)


def model_names(*, aliases: bool = True) -> tuple[str, ...]:
    """List the names of the models of the catalogue, by default with aliases, in alphabetical order."""
    known = values_of_key("models", "aliases")
    return tuple(sorted(chain(known, chain.from_iterable(known.values() if aliases else ()))))


def system_names() -> tuple[str, ...]:
    """List the names of the systems of the catalogue, in alphabetical order of machines.

    Of systems with a choice of fast domains only some sizes are listed; others can be loaded as well.
    """
    domains = values_of_key("systems", "fast_domains").items()
    return tuple(chain.from_iterable([f"{name}-nvs{n}" for n in sizes] or [name] for name, sizes in domains))


def accelerator_names() -> tuple[str, ...]:
    """List the names of the accelerators of the catalogue, in alphabetical order."""
    return tuple(catalogue("accelerators"))


@lru_cache
def accelerator_called(device: str) -> str | None:
    """Return the accelerator of the catalogue that a device name means; None if it is unknown or ambiguous.

    The longest name (or alias, `also_called`) whose words are all in the device name counts: "NVIDIA H100
    80GB HBM3" is `h100-sxm-80`.
    """
    if device.lower() in catalogue("accelerators"):
        return device.lower()
    words = _words(device)
    lengths = dict.fromkeys(catalogue("accelerators"), 0)
    for key in ("name", "also_called"):
        for accelerator, called in values_of_key("accelerators", key).items():
            matches = [len(_words(name)) for name in called if _words(name) <= words]
            lengths[accelerator] = max(lengths[accelerator], *matches, 0)
    longest = max(lengths.values())
    best = [accelerator for accelerator, length in lengths.items() if length == longest > 0]
    return best[0] if len(best) == 1 else None


def _words(name: str) -> frozenset[str]:
    """Split a device name into words, in lower case; "80 GB" is one word."""
    return frozenset(re.findall(r"[a-z0-9]+", re.sub(r"(\d) gb", r"\1gb", name.lower())))


def systems_with(accelerator: str) -> tuple[str, ...]:
    """List the systems of the catalogue that have an accelerator, in alphabetical order."""
    called = names.accelerator_named(accelerator)
    accelerators = values_of_key("systems", "accelerator")
    return tuple(name for name, value in accelerators.items() if value == (called,))


def system_document(name_or_path: str | Path) -> dict[str, Any]:
    """Read the file of a system without checking it; arguments and errors as for `load_system`."""
    return _document("system", name_or_path)


def figures(name_or_path: str | Path) -> "tuple[Figure, ...]":
    """Return every figure of a model, system, accelerator or software stack, in the order of its schema.

    The argument is a name of the catalogue or a file, as for `load_model` and `load_system`.
    """
    from traincast.catalog.schema import fields as entries
    from traincast.catalog.schema.system import AcceleratorPart

    require_type("name_or_path", name_or_path, NAME, str, Path)
    name = str(name_or_path)
    system = _find_name("system", name_or_path)
    model = _find_name("model", name_or_path)
    is_file = _is_file(name_or_path) and not (system or model)
    if is_file and _is_owned(name_or_path):
        raise names.unknown_model(name)
    if accelerator := catalogue_entry("accelerators", name.lower()):
        return entries.figures(AcceleratorPart.model_validate(accelerator))
    if Stack(name).is_known:
        return entries.figures(Stack(name).file)
    if _is_system(read_document(Path(name))) if is_file else system:
        return entries.figures(_system_file(name_or_path))
    if is_file or model:
        file = _model_file(name_or_path)
        _model(file, name)  # refuses figures that contradict each other
        return entries.figures(file)
    _refuse_other_file(name, "catalogue", "a model or a system")
    raise names.unknown_entry(name, (*accelerator_names(), *stack_names()))


def describe_name(name: str) -> str:
    """Return a sentence on what a name of an entry is taken for; empty where it is one of the catalogue."""
    if name.lower() in accelerator_names() or Stack(name).is_known:
        return ""
    named = _find_name("system", name) or _find_name("model", name)
    return named.taken if named else ""


def _is_system(document: dict[str, object]) -> bool:
    return bool(KEYS["system"] & document.keys()) or paper_files.is_system(document)


def _is_file(name_or_path: str | Path) -> bool:
    """Return whether the argument is the path of a file, not a name of the catalogue."""
    name = str(name_or_path)
    separators = filter(None, ("/", os.sep, os.altsep))
    is_path = isinstance(name_or_path, Path) or any(mark in name for mark in separators)
    return is_path or name.lower().endswith(ENDINGS)


def _is_owned(name_or_path: str | Path) -> bool:
    """Return whether the argument is owner/name, as on Hugging Face, and no path that exists."""
    owned = isinstance(name_or_path, str) and names.OWNER.fullmatch(name_or_path) is not None
    return owned and not str(name_or_path).lower().endswith(ENDINGS) and not os.path.exists(name_or_path)


def _find_name(kind: Kind, name_or_path: str | Path) -> names.Named | None:
    """Return what a name of the catalogue means; None for a file, and for a name that it does not have."""
    if _is_file(name_or_path) and not _is_owned(name_or_path):
        return None
    return _look_up_name(kind, str(name_or_path))


def _look_up_name(kind: Kind, name: str) -> names.Named | None:
    """Return what a name of the catalogue means; None for one that it does not have."""
    called = names.model_called if kind == "model" else names.system_called
    is_own = name.lower() in catalogue("models" if kind == "model" else "systems")
    return called(name) if is_own else cached_on_disk(called)(name)  # the keys of all files are read


def _document(kind: Kind, name_or_path: str | Path) -> dict[str, object]:
    """Read the file of a model or a system, unchecked: that of a path, or of a name of the catalogue."""
    require_type(kind, name_or_path, NAME, str, Path)
    if _find_name(kind, name_or_path) or not _is_file(name_or_path):
        return _known_document(kind, str(name_or_path))
    if kind == "model" and _is_owned(name_or_path):
        raise names.unknown_model(str(name_or_path))
    path = Path(name_or_path)
    document = read_document(path)
    if kind == "system" and paper_files.is_system(document):
        return paper_files.as_system_file(document, path)
    if kind == "model" and paper_files.is_model(document):
        return paper_files.as_model_file(document, path)
    other: Kind = "system" if kind == "model" else "model"
    if KEYS[other] & document.keys():
        raise InputError(str(name_or_path), [f"describes a {other}, not a {kind}"])
    return document


def _known_document(kind: Kind, name: str) -> dict[str, object]:
    """Return the entry of the catalogue of a name; raise if there is none, or if it is another file."""
    if _look_up_name(kind, name) is None:
        _refuse_other_file(name, kind, DESCRIBES[kind])
    return _catalogue_document(kind, known_name(kind, name))


def _catalogue_document(kind: Kind, name: str) -> dict[str, object]:
    """Return a copy of the entry of the catalogue of its own name for a model or a system."""
    if kind == "model":
        return catalogue_entry("models", name) or {}
    match = names.DOMAIN.fullmatch(name)
    document = catalogue_entry("systems", match[1] if match else name) or {}
    document.pop("fast_domains", None)
    if match:
        size = {"value": int(match[2]), "source": f"the name {name}", "basis": "assumed"}
        document["name"], document["network"][0]["size"] = name, size
    return document


def _refuse_other_file(name: str, kind: str, describes: str) -> None:
    """Raise an error that says which files are allowed, if a name is that of another kind of file."""
    if os.path.isfile(name) or os.path.splitext(name)[1][1:].isalpha():
        wrong = f"is no {kind} file: wanted is a .yaml, .yml or .json file that describes {describes}"
        raise InputError(name, [wrong])


def _model_file(name_or_path: str | Path, seq: int | None = None) -> "ModelKeys":
    """Read and check a model file, with its sequence length replaced if one is given."""
    return _checked_model(_document("model", name_or_path), Path(name_or_path), str(name_or_path), seq)


def _checked_model(document: dict[str, object], path: Path, subject: str, seq: int | None) -> "ModelKeys":
    """Check the content of a model file, or of a Hugging Face configuration at a path."""
    from traincast.catalog.schema.messages import check
    from traincast.catalog.schema.model import ModelFile

    if seq is not None and (problems := whole_number_problems("seq", seq)):
        raise InputError(subject, problems)
    if KEYS["system"] & document.keys():
        raise InputError(subject, ["describes a system, not a model"])
    if huggingface.is_config(document):
        document = huggingface.as_model_file(document, path, seq)
    if seq is not None:
        document = document | {"seq": {"value": seq, "source": "requested", "basis": "assumed"}}
    return check(ModelFile, document, subject)


def _system_file(name_or_path: str | Path) -> "SystemKeys":
    from traincast.catalog.schema.messages import check
    from traincast.catalog.schema.system import system_file

    document = system_document(name_or_path)
    network = document.get("network")
    tiers = len(network) if isinstance(network, list) else 0
    return check(system_file(max(tiers, 2)), document, str(name_or_path))


def _model(file: "ModelKeys", subject: str) -> Model:
    """Make the model of a checked file; fields that are left out take the default of `Model`."""
    values = {item.name: _as_field(getattr(file, item.name, None)) for item in fields(Model)}
    values["sources"] = _sources(file)
    if file.training_tokens:
        values["training_sequences"] = file.training_tokens.value / file.seq.value
    try:
        return make_record(Model, {name: value for name, value in values.items() if value is not None})
    except InputError as error:
        raise InputError(subject, error.problems) from None


def _as_field(item: object) -> object:
    """Convert an item of a checked file to the value of a field of `Model`."""
    from traincast.catalog.schema.fields import Entry
    from traincast.catalog.schema.model import ModelPart

    if isinstance(item, Entry):
        return item.value
    if isinstance(item, ModelPart):
        values = {key: _as_field(value) for key, value in item}
        given = {key: value for key, value in values.items() if value is not None}
        return type(item).becomes(**given)  # of the class: since Python 3.14 partial() binds as methods do
    return tuple(map(_as_field, item)) if isinstance(item, tuple) else item


def _values(part: "Part") -> dict[str, Any]:
    """Return the values of the figures of a part of a checked file, by name."""
    from traincast.catalog.schema.fields import Entry

    return {name: figure.value for name, figure in part if isinstance(figure, Entry)}


def _sources(file: "ModelKeys | SystemKeys") -> dict[str, str]:
    """Return the source of each figure of a checked file, by path."""
    from traincast.catalog.schema.fields import figures

    return {figure.path: f"{figure.source} ({figure.basis})" for figure in figures(file)}
