"""Settings of a launch that no row of its table reads: which of them matter for time or memory, and which do not."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from traincast.launch.mapping import Settings, is_off


def split_names(text: str) -> tuple[str, ...]:
    """Return the names in a text, separated by blanks."""
    return tuple(text.split())


# Words in the name of a setting of the model, degrees, batch, precision, optimizer, memory or overlap.
SUSPECT_WORDS: Final = frozenset(
    split_names("""
    accumulation activation activations adapter allgather async attention attn batch bf16 bucket compile compression cp dtype ep
    expert experts fp16 fp32 fp4 fp8 fsdp fused fusion graph graphs group groups head heads hidden int8 layer layers lora mbs
    micro mlp moe offload offloading optimizer overlap parallel parallelism pipeline pp precision quantization quantize
    quantized recompute rematerialization remat seq seqlen sequence shard sharding sparse sparsity stage stages tp vocab window
    zero
""")
)
WORD_SEPARATOR: Final = re.compile(r"[._\-]+|(?<=[a-z])(?=[A-Z])")  # between the words of a name


@dataclass(frozen=True)
class UnreadEffect:
    """Effect on time or memory that is not predicted, and the settings that have it.

    Parameters
    ----------
    why : str
        The effect.
    names : tuple of str
        Their names; ``*`` stands for anything.
    neutral : tuple
        Values besides off for which the prediction holds.
    at : tuple, optional
        The only values that matter; if empty, all that are neither off nor neutral.
    given : str
        A setting without which they have no effect.
    unless : str
        A setting that replaces them: with it they have no effect.
    unlike : str
        Another setting: they matter only where its value differs from theirs.
    """

    why: str
    names: tuple[str, ...]
    neutral: tuple[Any, ...] = ()
    at: tuple[Any, ...] = ()
    given: str = ""
    unless: str = ""
    unlike: str = ""

    def applies(self, value: Any, settings: Settings) -> bool:
        """Return whether a value of one of them changes the prediction."""
        if (self.given and is_off(settings.get(self.given))) or (
            self.unless and not is_off(settings.get(self.unless))
        ):
            return False
        if self.unlike and _equal(value, settings.get(self.unlike)):
            return False
        if self.at:
            return any(_equal(value, option) for option in self.at)
        return not is_off(value) and not any(_equal(value, option) for option in self.neutral)


@dataclass(frozen=True)
class UnreadRules:
    """Rules on the settings of a format that its table does not read.

    Parameters
    ----------
    matter : tuple of Matter
        Effects that are not predicted: their settings are refused.
    small : tuple of str
        Names of settings whose effect is small: they are reported.
    harmless : tuple of str
        Names of settings that change neither time nor memory of a step, or that the prediction assumes.
    suspect : tuple of str
        Patterns of names: an unlisted setting that matches is taken to matter, as are names with a word of `SUSPECT_WORDS`.
    """

    matter: tuple[UnreadEffect, ...] = ()
    small: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()
    suspect: tuple[str, ...] = ()

    def sorted(self, settings: Settings, known: frozenset[str]) -> "UnreadSettings":
        """Sort settings by their effect.

        Parameters
        ----------
        settings : Settings
            All settings of a file.
        known : frozenset of str
            Those that the table reads.
        """
        result = UnreadSettings({}, [], [], [])
        for name, value in settings.items():
            reason = self._reason(name, value, settings, name in known)
            if reason:
                result.matter[name] = reason
            elif name in known:
                continue
            elif any(self._rows(name)):  # at a value for which the prediction holds
                result.harmless.append(name)
            elif self._listed(name, self.small):
                result.small.append(name)
            elif self._listed(name, self.harmless):
                result.harmless.append(name)
            else:
                result.unknown.append(name)
        return result

    def _reason(self, name: str, value: Any, settings: Settings, known: bool) -> str:
        """Return why a setting matters; empty where it does not, or is not known to."""
        rows = [row for row in self._rows(name) if not known or name in row.names]
        if rows or known:
            return next((row.why for row in rows if row.applies(value, settings)), "")
        if self._listed(name, (*self.small, *self.harmless)) or is_off(value):
            return ""
        words = {word.lower() for word in WORD_SEPARATOR.split(name)}
        suspect = bool(words & SUSPECT_WORDS) or any(fnmatchcase(name, pattern) for pattern in self.suspect)
        return "not understood, may matter" if suspect else ""

    def _rows(self, name: str) -> Iterator[UnreadEffect]:
        """Yield the effects of a setting: those that name it, else, where no list names it, those whose pattern matches."""
        named = [row for row in self.matter if name in row.names]
        if named or name in (*self.small, *self.harmless):
            yield from named
            return
        yield from (row for row in self.matter if any(fnmatchcase(name, pattern) for pattern in row.names))

    @staticmethod
    def _listed(name: str, patterns: tuple[str, ...]) -> bool:
        """Return whether a name matches one of the patterns."""
        return any(fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True)
class UnreadSettings:
    """Settings that the table does not read, by their effect.

    Parameters
    ----------
    matter : dict of str to str
        Settings that matter, and why.
    small : list of str
        Settings of small effect.
    harmless : list of str
        Settings without effect on a step.
    unknown : list of str
        Unknown settings.
    """

    matter: dict[str, str]
    small: list[str]
    harmless: list[str]
    unknown: list[str]


def _equal(value: Any, wanted: Any) -> bool:
    """Return whether a value is the wanted one, however it is spelled."""
    left, right = str(value).strip().lower(), str(wanted).lower()
    try:
        return left == right or float(left.replace("_", "")) == float(right)
    except ValueError:
        return False
