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
from traincast.launch.canonical import Facts, model_facts, model_from_facts, plan_from_facts
from traincast.launch.format import Format, complete_facts
from traincast.launch.mapping import Settings
from traincast.launch.read_bash import ambiguous_variables
from traincast.launch.read_bash import read as commands_read
from traincast.launch.unread_settings import UnreadSettings
from traincast.launch.unsupported import check_kind, check_program

MAX_FILE_BYTES: Final = 4 << 20  # bytes of a file that is read
MAX_SHOWN_CHARACTERS: Final = 80  # characters of a value that is shown
DEGREES: Final = ("gpus", "tp", "tp2", "cp", "pp")  # that say how many replicas of the data there are
REPORTED_DEFAULTS: Final = ("mbs", "recompute", "pp")  # what matters most
VOCABULARY_SIZES: Final[Mapping[str, int]] = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000}  # tokens, by tokenizer


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
    def beside(self) -> UnreadSettings:
        """Settings that no row of the table reads, by what is to be said of them."""
        return self.form.beside.sorted(self.settings, self.form.known)

    @property
    def unread(self) -> tuple[tuple[str, str, str], ...]:
        """Settings that matter and are not predicted: how they are spelled, their values, and why they matter."""
        return tuple(
            (self.form.spelled(name), value_text(self.settings[name])[:MAX_SHOWN_CHARACTERS], why)
            for name, why in self.beside.matter.items()
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
            problems = [f"{name}{f' = {value}' if value != 'on' else ''}: not read ({why})" for name, value, why in self.unread]
            raise InputError(self.path, [*problems[:-1], f"{problems[-1]}; --accept-unread answers all the same"])


def value_text(value: Any) -> str:
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
    text = read_text(Path(path))
    if form is None:
        check_program(text, str(path))
    detected = formats[form] if form else detect_format(text, str(path), formats)
    mistakes = ErrorCollector(str(path))
    settings = mistakes.settled(mistakes.of(detected.settings, text))
    commands = [word for words in commands_read(text).commands for word in words] if detected.ending == ".sh" else []
    check_kind(commands, settings, str(path), detected.spelled)
    facts = detected.facts(settings, mistakes)
    if mistakes.errors:
        raise InputError(
            str(path),
            dict.fromkeys(_spelled_problem(detected, settings, problem) for error in mistakes.errors for problem in error.problems),
        )
    if not facts or not set(settings) & detected.known:
        raise InputError(str(path), [f"holds no setting of {detected.title}"])
    return Reading(str(path), detected, settings, facts, (*_ambiguity_notes(detected, text), *detected.granted(settings)))


def _ambiguity_notes(form: Format, text: str) -> tuple[str, ...]:
    """What of a script's settings depends on variables that it sets more than once or under a condition, in words."""
    ambiguous = ambiguous_variables(text) if form.ending == ".sh" else {}
    arguments = {variable: sorted(form.spelled(name) for name in names & form.known) for variable, names in ambiguous.items()}
    return tuple(
        f"{', '.join(names)}: {variable} is set more than once or under a condition; the last is taken"
        for variable, names in arguments.items()
        if names
    )


def read_text(path: Path) -> str:
    """Text of a file.

    Raises
    ------
    InputError
        If it cannot be read, is no text, or is too large for a script or configuration.
    """
    try:
        data = raw(path)
    except ValueError as error:
        raise InputError(str(path), [str(error)]) from None
    if len(data) > MAX_FILE_BYTES:
        raise InputError(str(path), [f"{len(data):,} bytes are too many for a launch script or configuration"])
    text = data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    if not text.strip("\0 \t\r\n"):
        raise InputError(str(path), ["the file is empty"])
    if "\0" in text:
        raise InputError(str(path), ["is no text"])
    return text


def detect_format(text: str, path: str, formats: Mapping[str, Format]) -> Format:
    """What a text is: the format most of whose settings are in it.

    Raises
    ------
    InputError
        If none has any.
    """
    best, best_count = None, 0
    malformed: dict[str, None] = {}
    for form in formats.values():
        if not re.search(form.sign, text):
            continue
        try:
            count = len(set(form.settings(text)) & form.known)
        except InputError as error:
            count = 0
            malformed |= dict.fromkeys(f"as {form.title}: {problem}" for problem in error.problems)
        if count > best_count:
            best, best_count = form, count
    if best is None:
        known = ", ".join(form.title for form in formats.values())
        raise InputError(path, [f"cannot tell what this is; known are launches of {known} (--framework says which)", *malformed])
    return best


def _spelled_problem(form: Format, settings: Settings, problem: str) -> str:
    """A mistake with settings spelled as the framework does, and a word on variables that are set nowhere."""
    name = problem.partition(" = ")[0]
    spelled = form.spelled(name) + problem[len(name) :] if name in form.known else problem
    value = str(settings.get(name, ""))
    return spelled + ("; the variable in it is set nowhere in the file" if "$" in value else "")


def complete_launch(
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
    facts, assumed = dict(reading.told), list(reading.assumed)
    mistakes = ErrorCollector(reading.path)
    given = {name: value for name, value in {"gpus": gpus, "gbs": gbs, **knobs}.items() if value is not None}
    for name, value in given.items():
        if facts.get(name, value) != value:
            assumed.append(f"{name} = {value} as asked for, not {facts[name]} as in the file")
    derived = {"dp"} if given.keys() & set(DEGREES) else set()  # of the accelerators, or they of it
    derived |= {"gpus"} if "dp" in given else set()
    facts = {name: value for name, value in facts.items() if name not in derived} | given
    if {"pp", "vp"} & set(knobs):
        facts.pop("chunks", None)
    transformer = model
    if transformer is None:
        transformer = mistakes.of(_described_model, reading, facts, assumed)
    else:
        assumed += _model_conflicts(reading, facts, transformer)
    if "gpus" not in facts and "dp" not in facts:
        mistakes.errors.append(InputError(reading.path, ["does not say how many GPUs there are; give --gpus"]))
    completed = mistakes.settled(mistakes.of(complete_facts, facts))
    if completed["gpus"] != facts.get("gpus", completed["gpus"]):
        needed = f"{completed['dp']} replicas of the data with the degrees told make {completed['gpus']}"
        raise InputError(reading.path, [f"gpus = {facts['gpus']}: {needed}"])
    assert transformer is not None
    plan = plan_from_facts(completed, transformer)
    defaulted = [f"{name} = {getattr(plan, name)}" for name in REPORTED_DEFAULTS if name not in facts]
    if defaulted:
        assumed.append(f"{', '.join(defaulted)}: the file does not say")
    if "gbs" not in facts and "accumulation" not in facts:
        assumed.append(f"global batch {completed['gbs']}: one micro-batch for every replica of the data, as nothing is said")
    return Reading(reading.path, reading.form, reading.settings, completed, tuple(assumed)), transformer, plan, completed["gbs"]


def _described_model(reading: Reading, facts: Facts, assumed: list[str]) -> Model:
    """The model that a file describes; where its vocabulary is not told, that of a known model of its sizes."""
    if not reading.form.model:
        raise InputError(reading.path, [f"{reading.form.title} does not describe the model; give --model"])
    if "layers" not in facts or "hidden" not in facts:
        raise InputError(reading.path, ["does not describe a model, or none that is known: give --model"])
    mistakes = ErrorCollector(reading.path)
    candidates = models_of_same_sizes(facts)
    if "vocab" not in facts:
        facts["vocab"] = mistakes.of(_vocabulary_size, reading, facts, candidates, assumed)
    model = mistakes.of(model_from_facts, facts, Path(reading.path).stem)
    mistakes.tell()
    assert model is not None
    match = next((candidate for candidate in candidates if _same_but_sequence_length(candidate, model)), None)
    return model if match is None else model_from_facts(facts, match.name)


def _vocabulary_size(reading: Reading, facts: Facts, candidates: Sequence[Model], assumed: list[str]) -> int:
    """Size of the vocabulary that a tokenizer is known for, or that the known models of the sizes told have.

    Raises
    ------
    InputError
        If there is none, or several.
    """
    tokenizer = str(reading.settings.get("tokenizer_type"))
    if tokenizer in VOCABULARY_SIZES:
        assumed.append(f"vocabulary of {VOCABULARY_SIZES[tokenizer]:,} tokens, that of {tokenizer}")
        return VOCABULARY_SIZES[tokenizer]
    sizes = {candidate.vocab: candidate.name for candidate in candidates if candidate.vocab}
    if len(sizes) > 1:  # those that are the same in all else
        sizes = {
            candidate.vocab: candidate.name
            for candidate in candidates
            if candidate.vocab
            and _same_but_sequence_length(candidate, model_from_facts(facts | {"vocab": candidate.vocab}, candidate.name))
        }
    if len(sizes) != 1:
        others = "".join(f"; {name} has {size:,}" for size, name in sizes.items())
        raise InputError(reading.path, [f"does not say how large the vocabulary is: give --model, or add it to the file{others}"])
    ((size, name),) = sizes.items()
    assumed.append(f"vocabulary of {size:,} tokens, as of {name}, which has these sizes")
    return size


def models_of_same_sizes(facts: Facts) -> list[Model]:
    """Models of the catalogue that have the sizes told."""
    sizes = ("layers", "hidden", "heads")
    models = []
    for name, file in catalogue("models").items():
        text = file.read_text(encoding="utf-8")
        if all(re.search(rf"^{size}:.*?\b{facts.get(size)}\b", text, re.MULTILINE) for size in sizes):
            models.append(load_model(name))
    return [model for model in models if all(getattr(model, size) == facts.get(size) for size in sizes)]


def _same_but_sequence_length(model: Model, other: Model) -> bool:
    """Whether two models are the same but for the length of sequences."""
    left, right = model_facts(model), model_facts(other)
    return {**left, "seq": 0, "max_positions": 0} == {**right, "seq": 0, "max_positions": 0}


def _model_conflicts(reading: Reading, facts: Facts, model: Model) -> Sequence[str]:
    """Where a file describes another model than the one given."""
    model_values = model_facts(model)
    differ = [
        name
        for name in ("layers", "hidden", "heads", "ffn", "experts.experts")
        if facts.get(name, model_values.get(name)) != model_values.get(name)
    ]
    return [f"{name} = {model_values.get(name)} as of {model.name}, not {facts[name]} as in the file" for name in differ]
