"""What is read: a launch script or configuration, whatever framework it is for, as facts with all that was taken for granted."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from traincast.catalog.documents import catalogue, raw
from traincast.catalog.load import load_model
from traincast.core.errors import ErrorCollector, InputError, unknown
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.launch.canonical import Facts, as_model, as_plan, model_facts
from traincast.launch.format import Format, completed
from traincast.launch.mapping import Settings
from traincast.launch.read_bash import read as commands_read
from traincast.launch.read_bash import unsure
from traincast.launch.unread_settings import Sorted
from traincast.launch.unsupported import check_kind, check_program

LARGEST: Final = 4 << 20  # bytes of a file that is read
LONGEST: Final = 80  # characters of a value that is shown
DEGREES: Final = ("gpus", "tp", "tp2", "cp", "pp")  # that say how many replicas of the data there are
SILENT: Final = ("mbs", "recompute", "pp")  # what matters most
TOKENIZERS: Final[Mapping[str, int]] = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000}  # vocabularies that are known by name


@dataclass(frozen=True)
class Reading:
    """What a file says.

    Parameters
    ----------
    path : str
        The file.
    form : Format
        What it is.
    settings : Settings
        Every setting in it.
    told : Facts
        What they mean.
    assumed : tuple of str
        What had to be taken for granted, in words.
    """

    path: str
    form: Format
    settings: Settings
    told: Facts
    assumed: tuple[str, ...] = field(default=())

    @property
    def used(self) -> tuple[str, ...]:
        """Settings that say something of the prediction, as they are spelled."""
        return tuple(self.form.spelled(name) for name in self.settings if name in self.form.known)

    @cached_property
    def beside(self) -> Sorted:
        """Settings that no row of the table reads, by what is to be said of them."""
        return self.form.beside.sorted(self.settings, self.form.known)

    @property
    def unread(self) -> tuple[tuple[str, str, str], ...]:
        """Settings that matter and are not predicted: how they are spelled, their values, and why they matter."""
        return tuple(
            (self.form.spelled(name), said(self.settings[name])[:LONGEST], why) for name, why in self.beside.matter.items()
        )

    @property
    def small(self) -> tuple[str, ...]:
        """Settings of small effect, which is not predicted, as they are spelled."""
        return tuple(map(self.form.spelled, self.beside.small))

    @property
    def not_understood(self) -> tuple[str, ...]:
        """Settings that nothing is known of, as they are spelled; none is about what is predicted, by its name."""
        return tuple(map(self.form.spelled, self.beside.unknown))

    @property
    def ignored(self) -> tuple[str, ...]:
        """Settings that change neither time nor memory of a step, or have a value for which the prediction holds."""
        return tuple(map(self.form.spelled, self.beside.harmless))

    def check_unread(self) -> None:
        """Refuse settings that matter and are not read.

        Raises
        ------
        InputError
            With each of them, its value and why it matters.
        """
        if self.unread:
            told = [f"{name}{f' = {value}' if value != 'on' else ''}: not read ({why})" for name, value, why in self.unread]
            raise InputError(self.path, [*told[:-1], f"{told[-1]}; --accept-unread answers all the same"])


def said(value: Any) -> str:
    """A setting's value for people."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def read(path: str | Path, formats: Mapping[str, Format], form: str | None = None) -> Reading:
    """A launch script or a configuration.

    Parameters
    ----------
    path : str or Path
        The file.
    formats : mapping of str to Format
        What is known.
    form : str, optional
        What it is, where its content should not decide.

    Raises
    ------
    InputError
        If it cannot be read, is none of what is known, trains something else than a decoder, or with every value that cannot be.
    """
    if form is not None and form not in formats:
        raise unknown("format", form, formats)
    text = content(Path(path))
    if form is None:
        check_program(text, str(path))
    known = formats[form] if form else recognised(text, str(path), formats)
    mistakes = ErrorCollector(str(path))
    settings = mistakes.require(mistakes.catch(known.settings, text))
    commands = [word for words in commands_read(text).commands for word in words] if known.ending == ".sh" else []
    check_kind(commands, settings, str(path), known.spelled)
    told = known.facts(settings, mistakes)
    if mistakes.errors:
        raise InputError(
            str(path), dict.fromkeys(_told(known, settings, one) for error in mistakes.errors for one in error.problems)
        )
    if not told or not set(settings) & known.known:
        raise InputError(str(path), [f"holds no setting of {known.title}"])
    return Reading(str(path), known, settings, told, (*_unsure(known, text), *known.granted(settings)))


def _unsure(form: Format, text: str) -> tuple[str, ...]:
    """What of a script's settings depends on variables that it sets more than once or under a condition, in words."""
    doubtful = unsure(text) if form.ending == ".sh" else {}
    some = {variable: sorted(form.spelled(one) for one in names & form.known) for variable, names in doubtful.items()}
    return tuple(
        f"{', '.join(names)}: {variable} is set more than once or under a condition; the last is taken"
        for variable, names in some.items()
        if names
    )


def content(path: Path) -> str:
    """Text of a file.

    Raises
    ------
    InputError
        If it cannot be read, is no text, or is too large for a script or configuration.
    """
    try:
        found = raw(path)
    except ValueError as error:
        raise InputError(str(path), [str(error)]) from None
    if len(found) > LARGEST:
        raise InputError(str(path), [f"{len(found):,} bytes are too many for a launch script or configuration"])
    text = found.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    if not text.strip("\0 \t\r\n"):
        raise InputError(str(path), ["the file is empty"])
    if "\0" in text:
        raise InputError(str(path), ["is no text"])
    return text


def recognised(text: str, path: str, formats: Mapping[str, Format]) -> Format:
    """What a text is: the format most of whose settings are in it.

    Raises
    ------
    InputError
        If none has any.
    """
    best, most = None, 0
    malformed: dict[str, None] = {}
    for form in formats.values():
        if not re.search(form.sign, text):
            continue
        try:
            found = len(set(form.settings(text)) & form.known)
        except InputError as error:
            found = 0
            malformed |= dict.fromkeys(f"as {form.title}: {problem}" for problem in error.problems)
        if found > most:
            best, most = form, found
    if best is None:
        known = ", ".join(form.title for form in formats.values())
        raise InputError(path, [f"cannot tell what this is; known are launches of {known} (--framework says which)", *malformed])
    return best


def _told(form: Format, settings: Settings, problem: str) -> str:
    """A mistake with settings spelled as the framework does, and a word on variables that are set nowhere."""
    name = problem.partition(" = ")[0]
    spelled = form.spelled(name) + problem[len(name) :] if name in form.known else problem
    value = str(settings.get(name, ""))
    return spelled + ("; the variable in it is set nowhere in the file" if "$" in value else "")


def launch_of(
    reading: Reading, model: Model | None, gpus: int | None, gbs: int | None, knobs: Mapping[str, Any]
) -> tuple[Reading, Model, Plan, int]:
    """The model, plan and global batch of what was read, and the reading with all that was taken for granted.

    Parameters
    ----------
    reading : Reading
        What was read.
    model : Model, optional
        The model; its own sequence length gives way to that of the file.
    gpus, gbs : int, optional
        Accelerators and global batch [sequences], where the file does not say.
    knobs : mapping of str to value
        Knobs and choices of the plan, where the file does not say.

    Raises
    ------
    InputError
        If something is missing or cannot be; all of it at once.
    """
    told, assumed = dict(reading.told), list(reading.assumed)
    mistakes = ErrorCollector(reading.path)
    asked = {name: value for name, value in {"gpus": gpus, "gbs": gbs, **knobs}.items() if value is not None}
    for name, value in asked.items():
        if told.get(name, value) != value:
            assumed.append(f"{name} = {value} as asked for, not {told[name]} as in the file")
    follows = {"dp"} if asked.keys() & set(DEGREES) else set()  # of the accelerators, or they of it
    follows |= {"gpus"} if "dp" in asked else set()
    told = {name: value for name, value in told.items() if name not in follows} | asked
    if {"pp", "vp"} & set(knobs):
        told.pop("chunks", None)
    transformer = model
    if transformer is None:
        transformer = mistakes.catch(_model, reading, told, assumed)
    else:
        assumed += _contradictions(reading, told, transformer)
    if "gpus" not in told and "dp" not in told:
        mistakes.errors.append(InputError(reading.path, ["does not say how many GPUs there are; give --gpus"]))
    whole = mistakes.require(mistakes.catch(completed, told))
    if whole["gpus"] != told.get("gpus", whole["gpus"]):
        needed = f"{whole['dp']} replicas of the data with the degrees told make {whole['gpus']}"
        raise InputError(reading.path, [f"gpus = {told['gpus']}: {needed}"])
    assert transformer is not None
    plan = as_plan(whole, transformer)
    silent = [f"{name} = {getattr(plan, name)}" for name in SILENT if name not in told]
    if silent:
        assumed.append(f"{', '.join(silent)}: the file does not say")
    if "gbs" not in told and "accumulation" not in told:
        assumed.append(f"global batch {whole['gbs']}: one micro-batch for every replica of the data, as nothing is said")
    return Reading(reading.path, reading.form, reading.settings, whole, tuple(assumed)), transformer, plan, whole["gbs"]


def _model(reading: Reading, told: Facts, assumed: list[str]) -> Model:
    """The model that a file describes; where its vocabulary is not told, that of a known model of its sizes."""
    if not reading.form.model:
        raise InputError(reading.path, [f"{reading.form.title} does not describe the model; give --model"])
    if "layers" not in told or "hidden" not in told:
        raise InputError(reading.path, ["does not describe a model, or none that is known: give --model"])
    mistakes = ErrorCollector(reading.path)
    alike = like(told)
    if "vocab" not in told:
        told["vocab"] = mistakes.catch(_vocabulary, reading, told, alike, assumed)
    model = mistakes.catch(as_model, told, Path(reading.path).stem)
    mistakes.raise_any()
    assert model is not None
    same = next((one for one in alike if _same(one, model)), None)
    return model if same is None else as_model(told, same.name)


def _vocabulary(reading: Reading, told: Facts, alike: Sequence[Model], assumed: list[str]) -> int:
    """Size of the vocabulary that a tokenizer is known for, or that the known models of the sizes told have.

    Raises
    ------
    InputError
        If there is none, or several.
    """
    tokenizer = str(reading.settings.get("tokenizer_type"))
    if tokenizer in TOKENIZERS:
        assumed.append(f"vocabulary of {TOKENIZERS[tokenizer]:,} tokens, that of {tokenizer}")
        return TOKENIZERS[tokenizer]
    known = {one.vocab: one.name for one in alike if one.vocab}
    if len(known) > 1:  # those that are the same in all else
        known = {one.vocab: one.name for one in alike if one.vocab and _same(one, as_model(told | {"vocab": one.vocab}, one.name))}
    if len(known) != 1:
        others = "".join(f"; {name} has {size:,}" for size, name in known.items())
        raise InputError(reading.path, [f"does not say how large the vocabulary is: give --model, or add it to the file{others}"])
    ((size, name),) = known.items()
    assumed.append(f"vocabulary of {size:,} tokens, as of {name}, which has these sizes")
    return size


def like(told: Facts) -> list[Model]:
    """Models of the catalogue that have the sizes told."""
    sizes = ("layers", "hidden", "heads")
    found = []
    for name, file in catalogue("models").items():
        text = file.read_text(encoding="utf-8")
        if all(re.search(rf"^{size}:.*?\b{told.get(size)}\b", text, re.MULTILINE) for size in sizes):
            found.append(load_model(name))
    return [one for one in found if all(getattr(one, size) == told.get(size) for size in sizes)]


def _same(one: Model, other: Model) -> bool:
    """Whether two models are the same but for the length of sequences."""
    left, right = model_facts(one), model_facts(other)
    return {**left, "seq": 0, "max_positions": 0} == {**right, "seq": 0, "max_positions": 0}


def _contradictions(reading: Reading, told: Facts, model: Model) -> Sequence[str]:
    """Where a file describes another model than the one given."""
    own = model_facts(model)
    differ = [
        name for name in ("layers", "hidden", "heads", "ffn", "experts.experts") if told.get(name, own.get(name)) != own.get(name)
    ]
    return [f"{name} = {own.get(name)} as of {model.name}, not {told[name]} as in the file" for name in differ]
