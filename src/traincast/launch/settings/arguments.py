"""Arguments that a program has, by its revisions: which there are, and which values they take."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from traincast.launch.settings.settings import is_off, value_text
from traincast.launch.settings.table import load_document

NUMBERS: Final[Mapping[str, type]] = {"int": int, "float": float}  # by kind of values


class Argument(NamedTuple):
    """An argument of one revision: the kind of its values, and the words that it takes, if no others."""

    kind: str  # switch, int, float or word; ints, floats or words where it takes several
    choices: tuple[str, ...] = ()

    def against(self, value: object) -> str:
        """Return what is against a value; empty if nothing is. A variable may be anything."""
        if isinstance(value, bool) and self.kind == "switch":
            return ""
        words = () if value is True else value_text(value).split()
        if any("$" in word for word in words):
            return ""
        if self.kind == "switch":
            return "takes no value" if words else ""
        if not words:
            return "needs a value"
        number = NUMBERS.get(self.kind.removesuffix("s"))
        for word in words:
            if self.choices and word not in self.choices:
                return f"must be one of {', '.join(self.choices)}"
            try:
                _ = number and number(word)
            except ValueError:
                return f"must be {'a whole' if number is int else 'a'} number"
        return ""


@dataclass(frozen=True)
class Arguments:
    """Arguments of a program, from a table that `tools/arguments.py` writes."""

    table: str  # its name among the tables
    release: str = ""  # of its revisions those of one release alone, such as ``0.17``

    @cached_property
    def revisions(self) -> Mapping[str, Mapping[str, Argument]]:
        """Arguments of each revision, by their names with underscores."""
        table = load_document(self.table)
        alike = dict(_arguments(table["all"]))
        beginning = f"core_v{self.release}." if self.release else ""
        names = [name for name in table["revisions"] if f"{name}.".startswith(beginning)]
        return {name: alike | dict(_arguments(table.get(name, {}))) for name in names}

    @property
    def title(self) -> str:
        """The program and its revisions."""
        return f"{load_document(self.table)['title']} ({', '.join(self.revisions)})"

    def has(self, name: str) -> bool:
        """Return whether there is an argument, or one that begins so, for which parsers take it."""
        return any(known.startswith(name) for arguments in self.revisions.values() for known in arguments)

    def against(self, settings: Mapping[str, object]) -> dict[str, str]:
        """Return what is against the values of arguments that no revision takes, by name."""
        result = {}
        for name, value in settings.items():
            known = [arguments[name] for arguments in self.revisions.values() if name in arguments]
            against = [argument.against(value) for argument in known if not is_off(value)]
            if against and all(against):
                result[name] = against[-1]
        return result

    def refused_by(self, release: str, settings: Mapping[str, object]) -> dict[str, str]:
        """Return what a release has against settings that some revision takes, by name.

        Parameters
        ----------
        release : str
            A release, such as ``0.17``.
        settings : mapping of str to value
            Settings, some of which may be no arguments of the program.
        """
        of_release = replace(self, release=release)
        lacking = (name for name in settings if self.has(name) and not of_release.has(name))
        return {
            **{name: "it has no such argument" for name in lacking if not is_off(settings[name])},
            **of_release.against(settings),
        }

    def find_refused(self, settings: Mapping[str, object]) -> list[str]:
        """Return a line for each setting that one of the revisions lacks or whose value it does not take."""
        return [
            f"{name}: {against}"
            for revision, arguments in self.revisions.items()
            for name, value in settings.items()
            if (
                against := arguments[name].against(value)
                if name in arguments
                else f"no argument of {revision}"
            )
        ]


def _arguments(part: Mapping[str, Any]) -> Mapping[str, Argument]:
    """Return the arguments of a part of a table."""
    choices = part.get("choices", {})
    kinds = ((kind, names.split()) for kind, names in part.items() if kind != "choices")
    return {
        name: Argument(kind, tuple(choices.get(name, "").split())) for kind, names in kinds for name in names
    }


MEGATRON: Final = Arguments("megatron_arguments")  # of Megatron-LM's own programs
