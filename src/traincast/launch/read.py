"""Reader of launch scripts and configurations of all formats: facts, and what had to be assumed."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from traincast.catalog.documents import catalogue, raw
from traincast.catalog.load import load_model
from traincast.core.errors import ErrorCollector, InputError, unknown_name_error
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.launch.canonical import Facts, model_facts, model_from_facts, plan_from_facts
from traincast.launch.format import Format, complete_facts
from traincast.launch.mapping import Settings
from traincast.launch.read_bash import ambiguous_variables
from traincast.launch.read_bash import read as commands_read
from traincast.launch.unread_settings import UnreadSettings
from traincast.launch.unsupported import check_program, check_training_kind

MAX_FILE_BYTES: Final = 4 << 20  # of a launch script or configuration
MAX_SHOWN_CHARACTERS: Final = 80  # of a value in a message
DEGREES: Final = ("gpus", "tp", "tp2", "cp", "pp")  # that determine the number of data-parallel replicas
# Knobs that matter most: their defaults are reported where the file does not set them.
REPORTED_DEFAULTS: Final = ("mbs", "recompute", "pp")
VOCABULARY_SIZES: Final[Mapping[str, int]] = {
    "GPT2BPETokenizer": 50257,
    "Llama2Tokenizer": 32000,
}  # tokens, by tokenizer


@dataclass(frozen=True)
class Reading:
    """Settings and facts of a launch file.

    Parameters
    ----------
    path : str
        The file.
    form : Format
        Its format.
    settings : Settings
        Every setting in it.
    told : Facts
        Facts of the settings.
    assumed : tuple of str
        What had to be assumed, as sentences.
    """

    path: str
    form: Format
    settings: Settings
    told: Facts
    assumed: tuple[str, ...] = field(default=())

    @property
    def used(self) -> tuple[str, ...]:
        """Settings that the prediction depends on, as the framework spells them."""
        return tuple(self.form.spelled(name) for name in self.settings if name in self.form.known)

    @cached_property
    def beside(self) -> UnreadSettings:
        """Settings that no row of the table reads, by their effect."""
        return self.form.beside.sorted(self.settings, self.form.known)

    @property
    def unread(self) -> tuple[tuple[str, str, str], ...]:
        """Settings that matter and are not predicted: spelling, value, and why they matter."""
        return tuple(
            (self.form.spelled(name), value_text(self.settings[name])[:MAX_SHOWN_CHARACTERS], why)
            for name, why in self.beside.matter.items()
        )

    @property
    def small(self) -> tuple[str, ...]:
        """Settings of small effect, which is not predicted, as the framework spells them."""
        return tuple(map(self.form.spelled, self.beside.small))

    @property
    def not_understood(self) -> tuple[str, ...]:
        """Unknown settings, as the framework spells them, whose names do not suggest an effect on the prediction."""
        return tuple(map(self.form.spelled, self.beside.unknown))

    @property
    def ignored(self) -> tuple[str, ...]:
        """Settings that change neither time nor memory of a step, or have a value for which the prediction holds."""
        return tuple(map(self.form.spelled, self.beside.harmless))

    def check_unread(self) -> None:
        """Raise if settings that matter are not read.

        Raises
        ------
        InputError
            With each of them, its value and why it matters.
        """
        if self.unread:
            problems = [
                f"{name}{f' = {value}' if value != 'on' else ''}: not read ({why})"
                for name, value, why in self.unread
            ]
            raise InputError(
                self.path, [*problems[:-1], f"{problems[-1]}; --accept-unread predicts without them"]
            )


def value_text(value: Any) -> str:
    """Return a setting's value as text for a message."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def read(path: str | Path, formats: Mapping[str, Format], form: str | None = None) -> Reading:
    """Read a launch script or a configuration.

    Parameters
    ----------
    path : str or Path
        The file.
    formats : mapping of str to Format
        The known formats.
    form : str, optional
        Name of its format; detected from the content if left out.

    Raises
    ------
    InputError
        If it cannot be read, is of no known format, trains something other than a decoder, or has invalid values (all are named).
    """
    if form is not None and form not in formats:
        raise unknown_name_error("format", form, formats)
    text = read_text(Path(path))
    if form is None:
        check_program(text, str(path))
    detected = formats[form] if form else detect_format(text, str(path), formats)
    mistakes = ErrorCollector(str(path))
    settings = mistakes.require(mistakes.catch(detected.settings, text))
    commands = (
        [word for words in commands_read(text).commands for word in words] if detected.ending == ".sh" else []
    )
    check_training_kind(commands, settings, str(path), detected.spelled)
    facts = detected.facts(settings, mistakes)
    if mistakes.errors:
        raise InputError(
            str(path),
            dict.fromkeys(
                _spelled_problem(detected, settings, problem)
                for error in mistakes.errors
                for problem in error.problems
            ),
        )
    if not facts or not set(settings) & detected.known:
        raise InputError(str(path), [f"holds no setting of {detected.title}"])
    return Reading(
        str(path), detected, settings, facts, (*_ambiguity_notes(detected, text), *detected.granted(settings))
    )


def _ambiguity_notes(form: Format, text: str) -> tuple[str, ...]:
    """Return sentences on settings that depend on variables which a script sets more than once or under a condition."""
    ambiguous = ambiguous_variables(text) if form.ending == ".sh" else {}
    arguments = {
        variable: sorted(form.spelled(name) for name in names & form.known)
        for variable, names in ambiguous.items()
    }
    return tuple(
        f"{', '.join(names)}: {variable} is set more than once or under a condition; the last value is used"
        for variable, names in arguments.items()
        if names
    )


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises
    ------
    InputError
        If it cannot be read, is not text, or is too large for a script or configuration.
    """
    try:
        data = raw(path)
    except ValueError as error:
        raise InputError(str(path), [str(error)]) from None
    if len(data) > MAX_FILE_BYTES:
        raise InputError(str(path), [f"{len(data):,} bytes: too large for a launch script or configuration"])
    text = data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    if not text.strip("\0 \t\r\n"):
        raise InputError(str(path), ["the file is empty"])
    if "\0" in text:
        raise InputError(str(path), ["is not a text file"])
    return text


def detect_format(text: str, path: str, formats: Mapping[str, Format]) -> Format:
    """Return the format of a text: the one with the most known settings in it.

    Raises
    ------
    InputError
        If no format has any.
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
        raise InputError(
            path, [f"cannot tell what this is; supported: {known} (choose with --framework)", *malformed]
        )
    return best


def _spelled_problem(form: Format, settings: Settings, problem: str) -> str:
    """Return a problem with the setting as the framework spells it, and a hint on variables that are not set in the file."""
    name = problem.partition(" = ")[0]
    spelled = form.spelled(name) + problem[len(name) :] if name in form.known else problem
    value = str(settings.get(name, ""))
    return spelled + ("; the variable in it is not set in the file" if "$" in value else "")


def complete_launch(
    reading: Reading, model: Model | None, gpus: int | None, gbs: int | None, knobs: Mapping[str, Any]
) -> tuple[Reading, Model, Plan, int]:
    """Return the reading with all assumptions, and its model, plan and global batch.

    Parameters
    ----------
    reading : Reading
        What was read.
    model : Model, optional
        The model; the sequence length of the file takes precedence.
    gpus, gbs : int, optional
        Accelerators and global batch [sequences], where the file does not give them.
    knobs : mapping of str to value
        Knobs and choices of the plan that the file does not set.

    Raises
    ------
    InputError
        If something is missing or invalid; all mistakes at once.
    """
    facts, assumed = dict(reading.told), list(reading.assumed)
    mistakes = ErrorCollector(reading.path)
    given = {name: value for name, value in {"gpus": gpus, "gbs": gbs, **knobs}.items() if value is not None}
    for name, value in given.items():
        if facts.get(name, value) != value:
            assumed.append(f"{name} = {value} as given, not {facts[name]} as in the file")
    derived = (
        {"dp"} if given.keys() & set(DEGREES) else set()
    )  # dp follows from the accelerators, or they from it
    derived |= {"gpus"} if "dp" in given else set()
    facts = {name: value for name, value in facts.items() if name not in derived} | given
    if {"pp", "vp"} & set(knobs):
        facts.pop("chunks", None)
    transformer = model
    if transformer is None:
        transformer = mistakes.catch(_described_model, reading, facts, assumed)
    else:
        assumed += _model_conflicts(reading, facts, transformer)
    if "gpus" not in facts and "dp" not in facts:
        mistakes.errors.append(InputError(reading.path, ["does not give the number of GPUs; give --gpus"]))
    completed = mistakes.require(mistakes.catch(complete_facts, facts))
    if completed["gpus"] != facts.get("gpus", completed["gpus"]):
        needed = f"{completed['dp']} data-parallel replicas with the given degrees need {completed['gpus']}"
        raise InputError(reading.path, [f"gpus = {facts['gpus']}: {needed}"])
    assert transformer is not None
    plan = plan_from_facts(completed, transformer)
    defaulted = [f"{name} = {getattr(plan, name)}" for name in REPORTED_DEFAULTS if name not in facts]
    if defaulted:
        assumed.append(f"{', '.join(defaulted)}: not set in the file")
    if "gbs" not in facts and "accumulation" not in facts:
        assumed.append(
            f"global batch {completed['gbs']}: one micro-batch per data-parallel replica, as it is not set"
        )
    return (
        Reading(reading.path, reading.form, reading.settings, completed, tuple(assumed)),
        transformer,
        plan,
        completed["gbs"],
    )


def _described_model(reading: Reading, facts: Facts, assumed: list[str]) -> Model:
    """Return the model that a file describes; a missing vocabulary size is that of a known model of its sizes."""
    if not reading.form.model:
        raise InputError(reading.path, [f"{reading.form.title} does not describe the model; give --model"])
    if "layers" not in facts or "hidden" not in facts:
        raise InputError(reading.path, ["does not describe a known model: give --model"])
    mistakes = ErrorCollector(reading.path)
    candidates = models_of_same_sizes(facts)
    if "vocab" not in facts:
        facts["vocab"] = mistakes.catch(_vocabulary_size, reading, facts, candidates, assumed)
    model = mistakes.catch(model_from_facts, facts, Path(reading.path).stem)
    mistakes.raise_any()
    assert model is not None
    match = next((candidate for candidate in candidates if _same_but_sequence_length(candidate, model)), None)
    return model if match is None else model_from_facts(facts, match.name)


def _vocabulary_size(reading: Reading, facts: Facts, candidates: Sequence[Model], assumed: list[str]) -> int:
    """Return the vocabulary size [tokens] of a known tokenizer, or of the catalogue's models of the same sizes.

    Raises
    ------
    InputError
        If there is none, or more than one.
    """
    tokenizer = str(reading.settings.get("tokenizer_type"))
    if tokenizer in VOCABULARY_SIZES:
        assumed.append(f"vocabulary of {VOCABULARY_SIZES[tokenizer]:,} tokens, that of {tokenizer}")
        return VOCABULARY_SIZES[tokenizer]
    sizes = {candidate.vocab: candidate.name for candidate in candidates if candidate.vocab}
    if len(sizes) > 1:  # models that are equal in all else
        sizes = {
            candidate.vocab: candidate.name
            for candidate in candidates
            if candidate.vocab
            and _same_but_sequence_length(
                candidate, model_from_facts(facts | {"vocab": candidate.vocab}, candidate.name)
            )
        }
    if len(sizes) != 1:
        others = "".join(f"; {name} has {size:,}" for size, name in sizes.items())
        raise InputError(
            reading.path, [f"does not give the vocabulary size: give --model, or add it to the file{others}"]
        )
    ((size, name),) = sizes.items()
    assumed.append(f"vocabulary of {size:,} tokens, as of {name}, which has these sizes")
    return size


def models_of_same_sizes(facts: Facts) -> list[Model]:
    """Return the models of the catalogue with the same number of layers, hidden size and heads."""
    sizes = ("layers", "hidden", "heads")
    models = []
    for name, file in catalogue("models").items():
        text = file.read_text(encoding="utf-8")
        if all(re.search(rf"^{size}:.*?\b{facts.get(size)}\b", text, re.MULTILINE) for size in sizes):
            models.append(load_model(name))
    return [model for model in models if all(getattr(model, size) == facts.get(size) for size in sizes)]


def _same_but_sequence_length(model: Model, other: Model) -> bool:
    """Return whether two models are equal except for the sequence length."""
    left, right = model_facts(model), model_facts(other)
    return {**left, "seq": 0, "max_positions": 0} == {**right, "seq": 0, "max_positions": 0}


def _model_conflicts(reading: Reading, facts: Facts, model: Model) -> Sequence[str]:
    """Return sentences on sizes in which a file differs from the given model."""
    model_values = model_facts(model)
    differ = [
        name
        for name in ("layers", "hidden", "heads", "ffn", "experts.experts")
        if facts.get(name, model_values.get(name)) != model_values.get(name)
    ]
    return [
        f"{name} = {model_values.get(name)} as of {model.name}, not {facts[name]} as in the file"
        for name in differ
    ]
