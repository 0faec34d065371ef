"""Models by the names that launches have for them: those of frameworks, and checkpoints of Hugging Face."""

import re
from functools import cache
from pathlib import Path
from typing import Final

from traincast.catalog.documents import catalogue, catalogue_entry, values_of_key
from traincast.core.errors import InputError
from traincast.launch.table import load_document

NAMED_MODEL: Final = "catalogue_model"  # setting that names a model, in place of the program's own
# Words of a name that do not change the sizes, and a date such as 2507.
TUNED: Final = re.compile(
    r"-(?:instruct|chat|base|hf|it|pt|fp16|bf16|bnb|4bit|8bit|thinking|unsloth|nf4|\d{4})(?=-|$)"
)


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
    name = TUNED.sub("", folder.name.lower())
    for model, names in values_of_key("models", "aliases").items():
        own = repository(model).rpartition("/")[2].lower()
        if name in (model, *names, TUNED.sub("", own)):
            return model
    raise unknown_model(setting, checkpoint)


def unknown_model(setting: str, name: str) -> InputError:
    """Return the error of a name, the value of a setting, for which the catalogue has no model."""
    problem = f"{setting} = {name[:80]}: no model of the catalogue; give --model with its config.json"
    return InputError(setting, [problem])


def catalogue_name(name: str) -> str:
    """Return the model of the catalogue of a name, whatever its punctuation or what it is tuned for.

    It is empty if there is none.

    Examples
    --------
    >>> catalogue_name("llama31_405b"), catalogue_name("meta-llama/Llama-3.1-8B"), catalogue_name("gpt1.3b")
    ('llama-3.1-405b', 'llama-3-8b', 'gpt-1.3b')
    """
    plain = name.rpartition("/")[2].removesuffix(".yaml").lower()
    known = _names_by_letters()
    return known.get(_letters(plain), known.get(_letters(TUNED.sub("", plain)), ""))


@cache
def _names_by_letters() -> dict[str, str]:
    """Return the models of the catalogue by the letters and digits of their names.

    Points of numbers may be left out where no other model has that name: gpt13b is not gpt-1.3b.
    """
    names = {name: name for name in catalogue("models")} | load_document("dialects")["models"]
    known = {_letters(name): model for name, model in names.items()}
    return {letters.replace(".", ""): model for letters, model in known.items()} | known


def _letters(name: str) -> str:
    """Return the letters and digits of a name, and the points of its numbers."""
    return re.sub(r"(?!(?<=\d)\.\d)[^a-z0-9]", "", name.lower())


def repository(model: str) -> str:
    """Return the repository on Hugging Face of a model of the catalogue; empty if it names none."""
    entry = catalogue_entry("models", model)
    match = re.match(r"([\w.-]+/[\w.-]+), config\.json", str(entry.get("source", "")) if entry else "")
    return match[1] if match else ""
