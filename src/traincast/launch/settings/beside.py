"""Configurations beside a launch: files of Accelerate, DeepSpeed or FSDP that it names, or that are given."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from traincast.catalog import read_document
from traincast.core import InputError, raise_problems
from traincast.launch.settings.settings import Settings, flatten, is_off

DEEPSPEED: Final = "deepspeed_config."  # before DeepSpeed's names in files of other programs
FSDP: Final = "fsdp_config.fsdp_"  # before Accelerate's names of settings of FSDP
REFERENCES: Final[Mapping[str, str]] = {  # setting that names a file -> what its names begin with
    f"{DEEPSPEED}deepspeed_config_file": DEEPSPEED,
    "deepspeed_config_file": DEEPSPEED,
    "deepspeed": DEEPSPEED,
    "fsdp_config": FSDP,
    "config_file": "",  # of Accelerate
    "accelerate_config": "",
    "config": "",  # of TRL
}
MODEL: Final = "model_name_or_path"  # setting that names a checkpoint, on the Hub or in a folder
ENDINGS: Final = (".json", ".yaml", ".yml")
OF_DEEPSPEED: Final = ("zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu")  # its keys
HOW: Final = "give it with --beside FILE"


def with_files_beside(settings: Settings, path: Path, beside: Path | None = None) -> Settings:
    """Return settings with those of the files that they name, and of `beside`, one that is given.

    A name is that of a file in the folder of `path` or in one above; `beside` stands for one that is not
    there. So is that of a checkpoint's folder, whose path becomes the setting. Settings of the launch take
    precedence.

    Raises
    ------
    InputError
        If a file that is named is not there, or `beside` is no configuration of Accelerate or DeepSpeed.
    """
    problems = []
    merged = Settings(settings)
    if settings.is_on(MODEL) and (config := find_file(f"{settings[MODEL]}/config.json", path.parent)):
        merged[MODEL] = str(config.parent)
    for name, prefix in REFERENCES.items():
        value = settings.get(name)
        if not isinstance(value, str) or is_off(value) or not value.lower().endswith(ENDINGS):
            continue
        file = found_by_suffix(value, path.parent)
        if file is None and beside is not None and prefix == _prefix(beside):
            file = beside
            beside = None
        if file is None:
            problems.append(f"{name} = {value}: there is no such file beside this one; {HOW}")
            continue
        try:
            merged = Settings({**_of_file(file, prefix), **merged})
        except InputError as error:
            problems += error.problems
    if beside is not None and not problems:
        merged = Settings({**_of_file(beside, _prefix(beside)), **merged})
    raise_problems(str(path), problems)
    return merged


def _of_file(file: Path, prefix: str) -> Settings:
    """Return the settings of a configuration, and of those that it names."""
    inner = flatten(_content(file))
    if prefix == FSDP:
        inner = Settings({fsdp_setting(name): value for name, value in inner.items()})
    else:
        inner = Settings({f"{prefix}{name}": value for name, value in inner.items()})
    return with_files_beside(inner, file) if not prefix else inner


def fsdp_setting(name: str) -> str:
    """Return a setting of the Trainer's `fsdp_config` in Accelerate's words, of which it may lack `fsdp_`."""
    return f"{FSDP}{'offload_params' if name == 'cpu_offload' else name.removeprefix('fsdp_')}"


def _content(file: Path) -> Mapping[str, object]:
    """Return the content of a configuration."""
    try:
        return read_document(file)
    except InputError as error:
        raise InputError(str(file), [f"{file}: {problem}" for problem in error.problems]) from None


def _prefix(file: Path) -> str:
    """Return the beginning of the names of the settings of a file: DeepSpeed's, or none for Accelerate's."""
    return DEEPSPEED if any(key in _content(file) for key in OF_DEEPSPEED) else ""


def find_file(name: str, folder: Path) -> Path | None:
    """Return the file of a name, as a path from a folder or from one above it."""
    parents = folder.absolute().parents
    return next((file for base in (folder, *parents) if (file := base / name).is_file()), None)


def found_by_suffix(name: str, folder: Path) -> Path | None:
    """Return the file of a name, or of the end of one, as a path from a folder or from one above it.

    So `examples/deepspeed/z3.json` of a repository is found where a copy of it has `deepspeed/z3.json`. A
    name without folders is one of the folder itself.
    """
    parts = Path(name).parts
    ends = (find_file(str(Path(*parts[start:])), folder) for start in range(len(parts) - 1))
    alone = folder / parts[-1] if parts else folder
    return next(filter(None, ends), alone if alone.is_file() else find_file(name, folder))


def deepspeed_settings(settings: Settings, names: Mapping[str, str]) -> Settings:
    """Return the settings of DeepSpeed in its own names; `names` maps others to these."""
    inner = {name.removeprefix(DEEPSPEED): settings[name] for name in settings if name.startswith(DEEPSPEED)}
    return Settings({names.get(name, name): value for name, value in inner.items()})
