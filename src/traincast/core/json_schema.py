"""Parts of a JSON Schema that describe results and plans."""

from collections.abc import Mapping
from typing import Any, Final

UNIT: Final = "x-unit"  # key of a JSON Schema that holds the unit of a number


def describe_key(meaning: str, unit: str = "") -> dict[str, str]:
    """Return the part of a JSON Schema that holds meaning and unit."""
    return {"description": meaning} | ({UNIT: unit} if unit else {})


def closed_object(keys: Mapping[str, object]) -> dict[str, Any]:
    """Return the JSON Schema of an object with these keys and no others."""
    return {"type": "object", "properties": keys, "required": list(keys), "additionalProperties": False}
