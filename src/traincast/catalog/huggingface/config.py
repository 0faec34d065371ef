"""Checked access to the fields of a configuration; mistakes are collected."""

from collections.abc import Mapping
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, Final

from traincast.catalog.documents import read_document
from traincast.core import MUST_BE_WHOLE, is_whole
from traincast.model import MAX_LAYERS

NULLABLE: Final = (  # fields that may be null besides those whose default is null
    "attention_chunk_size",
    "head_dim",
    "n_routed_experts",
    "num_key_value_heads",
    "q_lora_rank",
    "sliding_window",
)
DEPTHS: Final = ("num_hidden_layers", "encoder_layers", "num_layers", "num_single_layers")
EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")  # one thing
_MISSING: Final = object()


@cache
def model_types() -> dict[str, dict[str, Any]]:
    """Read the table of model types that can be imported."""
    types: dict[str, dict[str, object]] = tables()["types"]
    return types | {name: types[known] for name, known in tables()["aliases"].items()}


@cache
def tables() -> Any:
    """Read the tables of model_types.yaml, which says what each is."""
    return read_document(Path(__file__).with_name("model_types.yaml"))


def is_factor(value: object) -> bool:
    """Return whether a value is a finite number above 0; True is not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf


class Config:
    """Fields of a configuration, with the defaults and spellings of its model type."""

    def __init__(
        self,
        fields: Mapping[str, Any],
        model_type: str,
        place: str,
        seq: int | None,
        family: Mapping[str, Any] | None = None,
    ):
        is_part = family is not None  # of a model with towers, which has fields of the same names elsewhere
        family = family or model_types()[model_type]
        self.features: list[str] = family["features"].split()
        self.allowed: Mapping[str, object] = family.get("only", {})
        self.same: Mapping[str, object] = family.get("same", {})
        self.defaults: Mapping[str, Any] = family["defaults"]
        self.names: Mapping[str, tuple[str, ...]] = family.get("names", {})
        self._is_part = is_part
        self.heads: Mapping[str, str | None] = {**tables()["heads"], **family.get("heads", {})}
        self.fields = fields
        self.model_type = model_type
        self.place = place
        self.seq = seq
        self.problems: list[str] = []
        self.content: dict[str, Any] = {}  # keys of the model file read so far

    def spell(self, name: str) -> str:
        """Return the spelling of a field in the configuration: that of the type, or the usual one.

        transformers reads both (`attribute_map`).
        """
        spellings = tuple(self.names.get(name, (name,)))
        if not self._is_part:
            spellings += (name, *(EXPERTS if name in EXPERTS else ()))
        return next((spelling for spelling in spellings if spelling in self.fields), spellings[0])

    def value(self, name: str) -> Any:
        """Return a field as written, or its default; None if it is missing, which is noted."""
        value = self.fields.get(self.spell(name), self.defaults.get(name, _MISSING))
        if value is not _MISSING:
            return value
        self._note(f"{self.spell(name)}: missing")
        return None

    def wrong(self, name: str, wanted: str) -> None:
        """Note that a field cannot be used."""
        value = self.fields.get(self.spell(name), self.defaults.get(name))
        self._note(f"{self.spell(name)} = {value!r}: {wanted}")

    def count(self, name: str, least: int = 1) -> int | None:
        """Return a whole number, or one listed for all layers; None if null, or wrong, which is noted."""
        value = self.value(name)
        layers = self.fields.get(self.spell("num_hidden_layers"))
        if isinstance(value, list) and 0 < len(value) == layers == value.count(value[0]):
            value = value[0]
        if name in DEPTHS and is_whole(value) and value > MAX_LAYERS:  # features list layers one by one
            self.wrong(name, f"must be at most {MAX_LAYERS:,}")
            return None
        if is_whole(value) or (least == 0 and value == 0 and type(value) is int):
            return int(value)
        nullable = name in NULLABLE or self.defaults.get(name, _MISSING) is None
        if value is not None or (self._present(name) and not nullable):
            self.wrong(name, MUST_BE_WHOLE if least else MUST_BE_WHOLE.replace("1", "0"))
        return None

    def size(self, name: str) -> int:
        """Return a whole number as `count` does, or 1 where that is None, so that formulas go on."""
        return self.count(name) or 1

    def figure(self, name: str) -> dict[str, Any] | None:
        """Return a whole number with its source; None if it is null or wrong."""
        number = self.count(name)
        return None if number is None else self.cite(number, name)

    def figures(self, **names: str) -> dict[str, object]:
        """Return figures as they are: key of a model file = field."""
        return {key: self.figure(name) for key, name in names.items()}

    def figure_in(self, part: str, name: str, usual: str) -> dict[str, Any] | None:
        """Return a figure by its name in a nested part, as models were published, or by its usual one."""
        inside = self.fields.get(part)
        number = inside.get(name) if isinstance(inside, dict) else None
        source = f"{self.place}: {part}.{name}"
        return {"value": number, "source": source} if is_whole(number) else self.figure(usual)

    def cite(self, number: float, *names: str) -> dict[str, Any]:
        """Return a number with the fields it comes from as its source."""
        default = f" (default of {self.model_type})"
        origins = [self.spell(name) + ("" if self._present(name) else default) for name in names]
        return {"value": number, "source": f"{self.place}: {', '.join(origins)}"}

    def factor(self, name: str) -> float:
        """Return a number above 0; 1 if it is wrong, which is noted."""
        if not is_factor(value := self.value(name)):
            self.wrong(name, "must be a number above 0")
            return 1.0
        return float(value)

    def flag(self, name: str) -> bool:
        """Return a boolean; False if it is wrong, which is noted."""
        value = self.value(name)
        if not isinstance(value, bool) and (value is not None or self._present(name)):
            self.wrong(name, "must be true or false")
        return value is True

    def word(self, name: str, meanings: Mapping[str, str]) -> str | None:
        """Return the meaning of a word; None if the word is not known, which is noted."""
        value = self.value(name)
        if isinstance(value, str) and value in meanings:
            return meanings[value]
        if value is not None or self._present(name):
            self.wrong(name, f"must be one of {', '.join(meanings)}")
        return None

    def numbers(self, name: str) -> list[int]:
        """Return a list of whole numbers; empty if it is null, or wrong, which is noted."""
        value = self.value(name)
        if value is None:
            return []
        if isinstance(value, list) and all(type(number) is int for number in value):
            return value
        self.wrong(name, "must be a list of whole numbers")
        return []

    def check_allowed(self) -> None:
        """Note fields of the type whose value is not the only one that can be represented."""
        for name, allowed in self.allowed.items():
            if self.fields.get(self.spell(name), allowed) != allowed:
                self.wrong(name, f"cannot be represented; only {allowed!r} can")

    def only(self, name: str, allowed: object) -> None:
        """Note a field whose value is not the only one that can be represented."""
        if self.value(name) != allowed:
            self.wrong(name, f"cannot be represented; only {allowed!r} can")

    def _present(self, name: str) -> bool:
        return self.spell(name) in self.fields

    def _note(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
