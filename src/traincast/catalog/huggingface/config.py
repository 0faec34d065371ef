"""Reads the fields of a configuration one by one and gathers what is wrong with them."""

from collections.abc import Mapping
from typing import Any, Final

from traincast.core.errors import WHOLE, is_whole

NULLABLE: Final = frozenset(  # beside those whose default is null
    {"attention_chunk_size", "head_dim", "n_routed_experts", "num_key_value_heads", "q_lora_rank", "sliding_window"}
)
_MISSING: Final = object()


class Config:
    """Fields of a configuration.

    Parameters
    ----------
    fields : mapping
        The fields as written.
    model_type : str
        Its model type.
    defaults : mapping
        What the model type takes for fields that are left out.
    names : mapping
        How the model type spells a field, where not as most do; several spellings are tried in turn.
    place : str
        What the fields are read from, for their sources.
    seq : int or None
        Sequence length asked for [tokens].
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        model_type: str,
        defaults: Mapping[str, Any],
        names: Mapping[str, tuple[str, ...]],
        place: str,
        seq: int | None,
    ):
        self.fields, self.model_type, self.defaults, self.names = fields, model_type, defaults, names
        self.place, self.seq = place, seq
        self.problems: list[str] = []

    def spelled(self, name: str) -> str:
        """How the configuration spells a field."""
        spellings = self.names.get(name, (name,))
        return next((one for one in spellings if one in self.fields), spellings[0])

    def value(self, name: str) -> Any:
        """A field as written, or its default; None where it is missing, which is noted."""
        found = self.fields.get(self.spelled(name), self.defaults.get(name, _MISSING))
        if found is not _MISSING:
            return found
        self._note(f"{self.spelled(name)}: missing")
        return None

    def wrong(self, name: str, wanted: str) -> None:
        """Note that a field cannot be used."""
        self._note(f"{self.spelled(name)} = {self.fields.get(self.spelled(name), self.defaults.get(name))!r}: {wanted}")

    def count(self, name: str, least: int = 1) -> int | None:
        """A whole number; None where it is null, or wrong, which is noted."""
        found = self.value(name)
        if is_whole(found) or (least == 0 and found == 0 and type(found) is int):
            return int(found)
        nullable = name in NULLABLE or self.defaults.get(name, _MISSING) is None
        if found is not None or (self._present(name) and not nullable):
            self.wrong(name, WHOLE if least else WHOLE.replace("1", "0"))
        return None

    def figure(self, name: str) -> dict[str, Any] | None:
        """A whole number with its source; None where it is null or wrong."""
        found = self.count(name)
        return None if found is None else self.sourced(found, name)

    def sourced(self, number: float, *names: str) -> dict[str, Any]:
        """A number made from fields, and which."""
        origins = [f"{self.spelled(name)}{'' if self._present(name) else f' (default of {self.model_type})'}" for name in names]
        return {"value": number, "source": f"{self.place}: {', '.join(origins)}"}

    def flag(self, name: str) -> bool:
        """A truth value."""
        found = self.value(name)
        if not isinstance(found, bool) and (found is not None or self._present(name)):
            self.wrong(name, "must be true or false")
        return found is True

    def word(self, name: str, meanings: Mapping[str, str]) -> str | None:
        """What a word means; None where it is none of those known, which is noted."""
        found = self.value(name)
        if isinstance(found, str) and found in meanings:
            return meanings[found]
        if found is not None or self._present(name):
            self.wrong(name, f"must be one of {', '.join(meanings)}")
        return None

    def numbers(self, name: str) -> list[int]:
        """A list of whole numbers; empty where it is null."""
        found = self.value(name)
        if found is None:
            return []
        if isinstance(found, list) and all(type(one) is int for one in found):
            return found
        self.wrong(name, "must be a list of whole numbers")
        return []

    def only(self, name: str, allowed: object) -> None:
        """Refuse a field that has any value but the one that can be represented."""
        if self.value(name) != allowed:
            self.wrong(name, f"cannot be represented; only {allowed!r} can")

    def _present(self, name: str) -> bool:
        return self.spelled(name) in self.fields

    def _note(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
