"""Settings of a launch that no row of its table reads: which of them matter for time or memory, and which do not."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from traincast.launch.settings import Settings, is_off

# Words in the name of a setting of the model, degrees, batch, precision, optimizer, memory or overlap.
_WORDS: Final = """
    accumulation activation activations adapter allgather async attention attn batch bf16 bucket compile
    compression cp dtype ep expert experts fp16 fp32 fp4 fp8 fsdp fused fusion graph graphs group groups
    head heads hidden int8 layer layers lora mbs micro mlp moe offload offloading optimizer overlap parallel
    parallelism pipeline pp precision quantization quantize quantized recompute rematerialization remat seq
    seqlen sequence shard sharding sparse sparsity stage stages tp vocab window zero
"""
SUSPECT_WORDS: Final = frozenset(_WORDS.split())
WORD_SEPARATOR: Final = re.compile(r"[._\-]+|(?<=[a-z])(?=[A-Z])")  # between the words of a name


@dataclass(frozen=True)
class UnreadEffect:
    """Effect on time or memory that is not predicted, and the settings that have it.

    Parameters
    ----------
    why : str
        The effect.
    settings : tuple of str
        Their names; ``*`` stands for anything.
    neutral : tuple of str
        Values besides off for which the prediction holds.
    at : tuple of str, optional
        The only values that matter; if empty, all that are neither off nor neutral.
    needs : str
        A setting without which they have no effect.
    unless : str
        A setting that replaces them: with it they have no effect.
    unlike : str
        Another setting: they matter only where its value differs from theirs.
    """

    why: str
    settings: tuple[str, ...]
    neutral: tuple[str, ...] = ()
    at: tuple[str, ...] = ()
    needs: str = ""
    unless: str = ""
    unlike: str = ""

    def applies(self, value: Any, settings: Settings) -> bool:
        """Return whether a value of one of them changes the prediction."""
        if self.needs and is_off(settings.get(self.needs)):
            return False
        if self.unless and not is_off(settings.get(self.unless)):
            return False
        if self.unlike and _equal(value, settings.get(self.unlike)):
            return False
        if self.at:
            return any(_equal(value, option) for option in self.at)
        return not is_off(value) and not any(_equal(value, option) for option in self.neutral)


@dataclass(frozen=True)
class UnreadSettings:
    """Settings that the table does not read, by their effect; for those that matter also why."""

    matter: dict[str, str] = field(default_factory=dict)
    small: list[str] = field(default_factory=list)
    harmless: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class UnreadRules:
    """Rules on the settings of a format that its table does not read.

    Parameters
    ----------
    matter : tuple of UnreadEffect
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

    def sorted(self, settings: Settings, known: frozenset[str]) -> UnreadSettings:
        """Sort the settings of a file by their effect, without harmless ones among those `known` to the table."""
        result = UnreadSettings()
        for name, value in settings.items():
            reason = self._reason(name, value, settings, name in known)
            if reason:
                result.matter[name] = reason
            elif name in known:
                continue
            elif any(self._effects(name)):  # at a value for which the prediction holds
                result.harmless.append(name)
            elif _listed(name, self.small):
                result.small.append(name)
            elif _listed(name, self.harmless):
                result.harmless.append(name)
            else:
                result.unknown.append(name)
        return result

    def _reason(self, name: str, value: Any, settings: Settings, known: bool) -> str:
        """Return why a setting matters; empty where it does not, or is not known to."""
        effects = [effect for effect in self._effects(name) if not known or name in effect.settings]
        if effects or known:
            return next((effect.why for effect in effects if effect.applies(value, settings)), "")
        if _listed(name, (*self.small, *self.harmless)) or is_off(value):
            return ""
        words = {word.lower() for word in WORD_SEPARATOR.split(name)}
        return "not understood, may matter" if words & SUSPECT_WORDS or _listed(name, self.suspect) else ""

    def _effects(self, name: str) -> Iterator[UnreadEffect]:
        """Yield the effects of a setting: those that name it, else, where no list names it, those whose pattern matches."""
        named = [effect for effect in self.matter if name in effect.settings]
        if named or name in (*self.small, *self.harmless):
            yield from named
            return
        yield from (effect for effect in self.matter if _listed(name, effect.settings))


def _listed(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a name matches one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _equal(value: Any, wanted: Any) -> bool:
    """Return whether a value is the wanted one, however it is spelled."""
    left, right = str(value).strip().lower(), str(wanted).lower()
    try:
        return left == right or float(left.replace("_", "")) == float(right)
    except ValueError:
        return False
