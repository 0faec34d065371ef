"""Models by the names that launches have for them: those of frameworks, and checkpoints of Hugging Face."""

from functools import cache
from pathlib import Path
from typing import Final

from traincast.catalog import TUNED_SUFFIX, catalogue, normalized_name
from traincast.catalog import model_called as named_model
from traincast.core import InputError, some_of
from traincast.launch.settings.table import load_document

NAMED_MODEL: Final = "catalogue_model"  # setting that names a model, in place of the program's own


def model_called(setting: str, checkpoint: str) -> str:
    """Return the model that a checkpoint has the sizes of: a name of the catalogue, or a config.json.

    Owner, and words of what it is tuned for or held in, do not count.

    Raises
    ------
    InputError
        If the catalogue has no such model; `setting` is where the name stands.

    Examples
    --------
    >>> model_called("base_model", "NousResearch/Meta-Llama-3-8B-Instruct")
    'llama-3-8b'
    """
    folder = Path(checkpoint)
    if (folder / "config.json").is_file():
        return str(folder / "config.json")
    if model := catalogue_name(folder.name):
        return model
    raise unknown_model(setting, checkpoint)


def unknown_model(setting: str, name: str) -> InputError:
    """Return the error of a name, the value of a setting, for which the catalogue has no model."""
    problem = f"{setting} = {name[:80]}: no model of the catalogue; give --model with its config.json"
    if members := _members_of_family(name):
        problem += f", or one of this family: {some_of(members)}"
    return InputError(setting, [problem])


def _members_of_family(name: str) -> list[str]:
    """Return the models of the catalogue that a name without a size, such as ``Qwen3``, may mean.

    Examples
    --------
    >>> _members_of_family("mistralai/mixtral")
    ['mixtral-8x22b', 'mixtral-8x7b']
    """
    family = normalized_name(name.rpartition("/")[2].removesuffix(".yaml"))
    if not family:
        return []
    return [model for model in sorted(catalogue("models")) if normalized_name(model).startswith(family)]


def catalogue_name(name: str) -> str:
    """Return the model of the catalogue of a name, whatever its punctuation or what it is tuned for.

    It is empty if there is none.

    Examples
    --------
    >>> catalogue_name("llama31_405b"), catalogue_name("meta-llama/Llama-3.1-8B"), catalogue_name("gpt1.3b")
    ('llama-3.1-405b', 'llama-3-8b', 'gpt-1.3b')
    """
    plain = name.rpartition("/")[2].removesuffix(".yaml").lower()
    known = _names_of_programs()
    if model := known.get(normalized_name(plain)) or known.get(normalized_name(TUNED_SUFFIX.sub("", plain))):
        return model
    named = named_model(plain)
    return named.name if named else ""


@cache
def _names_of_programs() -> dict[str, str]:
    """Return the models of the catalogue by the letters of the names that programs have for them."""
    return {normalized_name(name): model for name, model in load_document("dialects")["models"].items()}
