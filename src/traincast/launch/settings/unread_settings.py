"""Settings of a launch that no row of its table reads: which of them matter for time or memory."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from traincast.launch.settings.settings import Settings, is_off, same_value

# Words in the name of a setting of the model, degrees, batch, precision, optimizer, memory or overlap.
_WORDS: Final = """
    accumulation activation activations adapter allgather async attention attn batch bf16 bucket compile
    compression cp dtype ep expert experts fp16 fp32 fp4 fp8 fsdp fused fusion graph graphs group groups
    head heads hidden int8 layer layers lora mbs micro mlp moe offload offloading optimizer overlap parallel
    parallelism pipeline pp precision quantization quantize quantized recompute rematerialization remat seq
    seqlen sequence shard sharding sparse sparsity stage stages tp vocab window zero
"""
_LENGTHS: Final = "block context ctx cutoff len length lengths sequences"
SUSPECT_WORDS: Final = frozenset((*_WORDS.split(), *_LENGTHS.split()))
NOT_UNDERSTOOD: Final = "not understood, may matter"
# Keys of an effect with several names or values.
LISTS: Final = ("settings", "neutral", "at", "unless", "degrees")
# How a program spells the switch of the options whose names begin alike.
SWITCHES: Final = ("use_{}", "enable_{}", "{}.enabled", "{}.enable", "{}_enabled")
WORD_SEPARATOR: Final = re.compile(r"[._\-]+|(?<=[a-z])(?=[A-Z])")  # between the words of a name


@dataclass(frozen=True)
class UnreadEffect:
    """Effect on time or memory that is not predicted, and the settings that have it."""

    why: str  # the effect
    settings: tuple[str, ...]  # names; * stands for anything
    neutral: tuple[str, ...] = ()  # values, or members of lists, besides off for which the prediction holds
    at: tuple[str, ...] = ()  # the only values that matter; if empty, all that are neither off nor neutral
    needs: str = ""  # a setting without which they have no effect
    unless: tuple[str, ...] = ()  # settings that replace them: with one of these they have no effect
    degrees: tuple[str, ...] = ()  # without one of them above 1 they have no effect
    given: str = ""  # a fact that says what they ask for: given beside the file, they have no effect
    unlike: str = ""  # another setting: they matter only where its value differs from theirs
    # Whether they are named but not refused: they change neither model, plan, precision nor optimizer.
    named: bool = False

    def applies(self, value: object, settings: Settings, given: Collection[str] = ()) -> bool:
        """Return whether a value of one of them changes the prediction, with these facts given."""
        without_effect = (
            self.given in given
            or (self.needs and not settings.is_on(self.needs))
            or settings.any_on(*self.unless)
            or (self.degrees and not any(map(settings.is_degree, self.degrees)))
            or (self.unlike and same_value(value, settings.get(self.unlike)))
        )
        if without_effect:
            return False
        if self.at:
            return any(same_value(value, option) for option in self.at)
        values = value if value and isinstance(value, list | tuple) else [value]
        return any(
            not is_off(one) and not any(same_value(one, option) for option in self.neutral) for one in values
        )


@dataclass(frozen=True)
class UnreadSettings:
    """Settings that the table does not read, by their effect; for those that matter also why."""

    matter: dict[str, str] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)  # those of `matter` that are not refused
    asked: set[str] = field(default_factory=set)  # facts that those of `matter` ask for
    small: list[str] = field(default_factory=list)
    harmless: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class UnreadRules:
    """Rules on the settings of a format that its table does not read, by name; ``*`` stands for anything."""

    matter: tuple[UnreadEffect, ...] = ()  # effects that are not predicted: their settings are refused
    small: tuple[str, ...] = ()  # of small effect: reported
    harmless: tuple[str, ...] = ()  # change neither time nor memory of a step, or the prediction assumes them
    # Taken to matter where unlisted, as are names with a word of `SUSPECT_WORDS`.
    suspect: tuple[str, ...] = ()

    def __add__(self, other: "UnreadRules") -> "UnreadRules":
        """Return these rules, which come first, and others."""
        return UnreadRules(
            self.matter + other.matter,
            self.small + other.small,
            self.harmless + other.harmless,
            self.suspect + other.suspect,
        )

    def rename(self, names_of: Callable[[str], tuple[str, ...]]) -> "UnreadRules":
        """Return these rules with other names of settings, by which a format spells them."""

        def new_names(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(new for name in names for new in names_of(name))

        matter = (
            replace(
                effect, settings=new_names(effect.settings), needs=effect.needs and names_of(effect.needs)[0]
            )
            for effect in self.matter
        )
        return UnreadRules(
            tuple(matter), new_names(self.small), new_names(self.harmless), new_names(self.suspect)
        )

    def sort_settings(
        self, settings: Settings, known: frozenset[str], given: Collection[str] = ()
    ) -> UnreadSettings:
        """Sort the settings of a file by their effect; `known` ones are listed only where they matter.

        `given` has the facts that stand beside the file.
        """
        result = UnreadSettings()
        for name, value in settings.items():
            listed = name in self.small or name in self.harmless
            named = [effect for effect in self.matter if name in effect.settings]
            effects = named if named or listed or name in known else self._matching_effects(name)
            effect = next((effect for effect in effects if effect.applies(value, settings, given)), None)
            if name not in known and _is_of_what_is_off(name, settings):
                result.harmless.append(name)
            elif effect is not None:
                result.matter[name] = effect.why
                result.named.update([name] if effect.named else [])
                result.asked.update([effect.given] if effect.given else [])
            elif name in known:
                continue
            elif effects:  # at a value for which the prediction holds
                result.harmless.append(name)
            elif _is_listed(name, self.small):
                result.small.append(name)
            elif _is_listed(name, self.harmless):
                result.harmless.append(name)
            elif self._is_suspect(name) and not is_off(value):
                result.matter[name] = NOT_UNDERSTOOD
            else:
                result.unknown.append(name)
        return result

    def _matching_effects(self, name: str) -> list[UnreadEffect]:
        return [effect for effect in self.matter if _is_listed(name, effect.settings)]

    def _is_suspect(self, name: str) -> bool:
        words = {word.lower() for word in WORD_SEPARATOR.split(name)}
        return bool(words & SUSPECT_WORDS) or _is_listed(name, self.suspect)


def _is_of_what_is_off(name: str, settings: Settings) -> bool:
    """Return whether the file switches off what an option is of, as `use_galore` does `galore_rank`."""
    beginnings = (name[: place.start()] for place in re.finditer(r"[_.]", name))
    switches = (switch.format(beginning) for beginning in beginnings for switch in SWITCHES)
    return any(switch != name and str(settings.get(switch)).lower() == "false" for switch in switches)


def unread_rules(document: Mapping[str, Any]) -> UnreadRules:
    """Return the rules of a table: the content of its `unread`."""
    lists = {key: document.get(key, "") for key in ("small", "harmless", "suspect")}
    texts = {
        key: " ".join(text.values()) if isinstance(text, Mapping) else text for key, text in lists.items()
    }
    matter = []
    for effect in document.get("matter", ()):
        names = {key: tuple(text.split()) for key, text in effect.items() if key in LISTS}
        matter.append(UnreadEffect(**{**effect, **names}))
    return UnreadRules(tuple(matter), **{key: tuple(text.split()) for key, text in texts.items()})


def _is_listed(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a name matches one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
