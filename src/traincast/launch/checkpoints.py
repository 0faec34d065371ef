"""Checkpoints of Hugging Face by name: the model of the catalogue that each has the sizes of."""

import re
from pathlib import Path
from typing import Final

from traincast.catalog.documents import catalogue_entry, values_of_key
from traincast.core.errors import InputError

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
    raise InputError(
        setting,
        [f"{setting} = {checkpoint[:80]}: no model of the catalogue; give --model with its config.json"],
    )


def repository(model: str) -> str:
    """Return the repository on Hugging Face of a model of the catalogue; empty if it names none."""
    entry = catalogue_entry("models", model)
    match = re.match(r"([\w.-]+/[\w.-]+), config\.json", str(entry.get("source", "")) if entry else "")
    return match[1] if match else ""
