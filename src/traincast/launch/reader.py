"""Reader of launch scripts and configurations of all formats: facts, and what had to be assumed."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

from traincast.catalog import catalogue, load_model, read_bytes
from traincast.core import (
    KEY,
    Doc,
    ErrorCollector,
    InputError,
    Plan,
    Result,
    raise_problems,
    unknown_name_error,
)
from traincast.launch.frameworks.adapters import notes
from traincast.launch.frameworks.checkpoints import catalogue_name
from traincast.launch.frameworks.unsupported import (
    ACTORS,
    TRAINER,
    check_training_kind,
    format_of_script,
    program_of,
)
from traincast.launch.python.trainer import program_beside
from traincast.launch.scripts.bash import arguments as arguments_of
from traincast.launch.scripts.bash import command_lines, commands, program_of_script, undecided_variables
from traincast.launch.settings.beside import find_file, with_files_beside
from traincast.launch.settings.canonical import (
    ASSUMED_LENGTHS,
    FILLED,
    FULL_LENGTH,
    GOVERNED,
    apply_training,
    model_facts,
    model_from_facts,
    plan_from_facts,
)
from traincast.launch.settings.facts import Facts, as_facts
from traincast.launch.settings.format import MODEL_SECTIONS, Format, complete_facts
from traincast.launch.settings.given import RECIPE, Given
from traincast.launch.settings.settings import Settings, value_text
from traincast.launch.settings.table import load_document
from traincast.launch.settings.unread_settings import NOT_UNDERSTOOD, UnreadSettings
from traincast.model import Model, natural_load

MAX_FILE_BYTES: Final = 4 << 20  # of a launch script or configuration
MAX_SHOWN_CHARACTERS: Final = 80  # of a value in a message
NO_NUMBER: Final = "must be a whole number"
NAME_OF_NO_RUN: Final = "\0"  # no name has this character
NO_RUNS: Final = "chooses between runs that differ, and this file describes no two; leave it out"
ASKS_FOR_CPU: Final = ("use_cpu", "no_cuda")  # settings
DEGREES: Final = ("gpus", "tp", "tp2", "cp", "pp")  # that determine the number of data-parallel replicas
# Settings that spread tokens evenly over experts, of Megatron-Core and torchtitan.
FORCED_BALANCE: Final = (
    "moe_router_force_load_balancing",
    "debug.moe_force_load_balance",
    "training.debug_moe_force_load_balance",
)
# Knobs that matter most: their defaults are reported where the file does not set them.
REPORTED_DEFAULTS: Final = ("mbs", "recompute", "pp")
OF_LAUNCHERS: Final = ("launch", "software")  # sections of tables that say nothing of a training
PLAN_SECTIONS: Final = ("parallelism", "batch")
COMPARED_FACTS: Final = ("layers", "hidden", "heads", "ffn", "experts.experts")  # of a file and a given model
CATALOGUE_SIZES: Final = ("layers", "hidden", "heads")  # by which a model of the catalogue is recognised
TOKENIZERS: Final = load_document("tokenizers")
# Facts in which a model agrees with one of the catalogue that has its vocabulary.
FAMILY_FACTS: Final = ("ffn", "kv_heads", "mlp", "norm", "positions", "experts.experts", "layer_kinds")
TRL: Final = "trl"  # format of files with the Trainer's settings; scripts of other programs have their own
# Formats of scripts whose program, where it is beside them, says more
OF_TRAINER: Final = (None, "trl", "huggingface-trainer")
LEAST_OPTIONS: Final = 2  # of a program, by which it is told from another one
OF_MEGATRON: Final = re.compile(r"(?:pretrain|finetune)_\w+\.py$")  # names of its programs
NO_GPUS: Final = "does not give the number of GPUs; give `gpus`"
# Of Jinja and the like, but not of bash's ${{, which GitHub's workflows have.
PLACEHOLDER_OF_TEMPLATE: Final = re.compile(r"(?<![$\w])\{\{[^{}\n]{1,60}\}\}|\{%[^\n]{1,60}%\}")
# A value that somebody is to replace.
PLACEHOLDER: Final = re.compile(
    r"\{\{.{1,60}\}\}|<[\w .:/-]{1,60}>|\[[A-Z][A-Z_ ]{1,60}\]|\?\?\?|@\w{1,60}@|%\w{1,60}%|__[A-Z]\w{0,60}__"
    r"|(?:YOUR|MY)_\w{1,60}|TODO|FIXME|XXX+"
)
NO_LENGTH: Final = "does not give the sequence length; give `seq`"
VARIABLE: Final = re.compile(r"\$\{?(\w+)")


class UnreadSetting(Result):
    """A setting that matters and is not read."""

    setting: Annotated[str, Doc("name of the setting, as the framework spells it")]
    value: Annotated[str, Doc("its value; on where it has none")]
    why: Annotated[str, Doc("why it matters")]


class Reading(Result):
    """Settings and facts of a launch file, and what had to be assumed, as sentences."""

    path: Annotated[str, Doc("path of the file", key="file")]
    form: Format
    settings: Settings
    facts: Facts
    assumed: Annotated[tuple[str, ...], Doc("what is assumed because the file does not say it", place=1)] = ()
    given: Collection[str] = ()  # facts that stand beside the file

    @property
    def format(self) -> Annotated[str, KEY]:
        """Name of its format."""
        return self.form.name

    @property
    def used(self) -> Annotated[tuple[str, ...], Doc(key="read")]:
        """Settings that the prediction uses."""
        read = self.form.known | self._of_figures
        return self._spell(name for name in self.settings if name in read)

    @cached_property
    def _of_figures(self) -> frozenset[str]:
        """Settings that no row reads, and without which figures of the assumptions are others."""
        figures = self._figures(self.settings)
        unread = (name for name in self.not_in_table.harmless if name in self.settings)
        return frozenset(
            name
            for name in unread
            if self._figures({other: of for other, of in self.settings.items() if other != name}) != figures
        )

    def _figures(self, settings: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the figures of assumptions that settings state; none where one is refused."""
        return ErrorCollector("").catch(self.form.figures, Settings(settings)) or {}

    @cached_property
    def not_in_table(self) -> UnreadSettings:
        """Settings that no row of the table reads, by their effect."""
        settings = self.form.with_defaults(self.settings)
        idle = self.form.without_effect(self.settings)
        telling = Settings({name: value for name, value in settings.items() if name not in idle})
        result = self.form.unread.sort_settings(telling, self.form.known, self.given)
        return replace(result, harmless=[*result.harmless, *idle])

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """Settings of the program that the file leaves out, of those that the prediction depends on."""
        return self.form.defaults(self.settings)

    @property
    def unread(self) -> Annotated[tuple[UnreadSetting, ...], KEY]:
        """Settings that matter and are not read; refused where they change model, plan or precision."""
        arguments = self.form.arguments(self.settings)
        missing = "" if arguments is None else f"{arguments.title} has no such argument"
        return tuple(
            UnreadSetting(
                self.form.spelled(name),
                value_text({**self.settings, **self.defaults}[name])[:MAX_SHOWN_CHARACTERS],
                missing if name in self.missing else why,
            )
            for name, why in self.not_in_table.matter.items()
        )

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """Settings that nothing reads and that are no argument of the program."""
        suspect = (name for name, why in self.not_in_table.matter.items() if why == NOT_UNDERSTOOD)
        names = (*suspect, *self.not_in_table.unknown)
        known = self.form.arguments(self.settings)
        return () if known is None else tuple(name for name in names if not known.has(name))

    @property
    def small(self) -> Annotated[tuple[str, ...], KEY]:
        """Settings of small effect, which is not predicted."""
        return self._spell(self.not_in_table.small)

    @property
    def not_understood(self) -> Annotated[tuple[str, ...], KEY]:
        """Unknown settings."""
        return self._spell(self.not_in_table.unknown)

    @property
    def ignored(self) -> Annotated[tuple[str, ...], KEY]:
        """Settings that change no step: logs, data, checkpoints, learning rates."""
        return self._spell(name for name in self.not_in_table.harmless if name not in self._of_figures)

    def _spell(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(self.form.spelled, names))

    def on_cpus(self) -> "Reading":
        """Return the reading for a system of CPUs, where settings that ask for one are as predicted."""
        kept = {name: value for name, value in self.settings.items() if name not in ASKS_FOR_CPU}
        return replace(self, settings=Settings(kept))

    def check_unread(self) -> None:
        """Raise an `InputError` with every setting that matters and is not read, its value, and why."""
        raise_problems(self.path, self.problems_of_unread())

    def problems_of_unread(self) -> list[str]:
        """Return a problem for every setting that matters and is not read: its value, and why."""
        named = {self.form.spelled(name) for name in self.not_in_table.named}
        unset = self._spell(self.defaults)
        problems = list[str]()
        for each in self.unread:
            if each.setting in named:
                continue
            if each.setting in unset:
                problem = f"{each.setting} is not set, and {each.value} by default: not read ({each.why})"
            else:
                value = f" = {each.value}" if each.value != "on" else ""
                advice = _advice("" if each.setting.endswith("source") else each.value)
                problem = f"{each.setting}{value}: not read ({each.why}){advice}"
            problems.append(problem)
        if problems:
            problems[-1] += "; --accept-unread predicts without them"
        return problems


def read(
    path: str | Path,
    formats: Mapping[str, Format],
    form: str | None = None,
    beside: str | Path | None = None,
    given: Given | None = None,
    accept_unread: bool = False,
) -> Reading:
    """Read a launch script or a configuration, in the format named, or else detected from its content.

    `beside` is a configuration of Accelerate or DeepSpeed that belongs to it. What is `given` sets variables,
    chooses one of several runs, and makes up for facts that the file does not hold. An `InputError` says that
    the file is unreadable, of no known format, of a training that is not supported, or has invalid values;
    then it says at once what else is to be given, settings that are not read included unless `accept_unread`.
    """
    if form is not None and form not in formats:
        raise unknown_name_error("format", form, formats)
    given = replace(given or Given(), folder=Path(path).parent)
    text = read_text(Path(path))
    form = form or program_of(text, str(path), given.actor, given)
    if form in OF_TRAINER and (started := program_beside(text, str(path), given)):
        reading = read(started.file, formats, started.form, beside, started.given)
        note = f"settings of {started.file.name}, which it starts"
        return replace(reading, path=str(path), assumed=(note, *reading.assumed))
    if given.actor and form not in ACTORS:
        raise InputError(str(path), ["--actor: this is no launch of verl, OpenRLHF or slime"])
    detected = formats[form] if form else detect_format(text, given, str(path), formats)
    errors = ErrorCollector(str(path))
    try:
        settings = detected.read(text, given)
    except InputError as error:
        raise InputError(str(path), [*error.problems, *_template(text)]) from None
    if given.recipe is not None and not _chooses_runs(detected, text, given):
        raise InputError(str(path), [f"recipe = {given.recipe!r}: {NO_RUNS}"])
    if detected.takes_files:
        other = None if beside is None else Path(beside)
        settings = errors.catch(with_files_beside, settings, Path(path), other) or settings
    elif beside is not None:
        raise InputError(str(path), [f"--beside: a launch of {detected.title} has no file beside it"])
    is_script = detected.ending == ".sh"
    program = program_of_script(text, str(path), given)
    read_as_script = is_script or program is not None
    words = [word for command in commands(text, given) for word in command] if read_as_script else []
    if not given.actor:
        idle = detected.without_effect(settings)
        telling = {name: value for name, value in settings.items() if name not in idle}
        check_training_kind(words, telling, str(path), detected.spelled)
    if not form and (problem := _not_its_program(detected, text, str(path), given)):
        raise InputError(str(path), [problem])
    if "zero" in given.facts:  # what the other file sets is given
        settings.pop("deepspeed_config", None)
    facts = detected.facts(settings, errors, given.facts)
    problems = _said_once([problem for error in errors.errors for problem in error.problems])
    problems += _undecided_problems(text, given, detected, settings, facts) if is_script else []
    arguments = detected.arguments(settings)
    named = {problem.partition(" = ")[0] for problem in problems}
    against = {} if arguments is None else arguments.against(settings)
    against = {name: why for name, why in against.items() if name not in named}
    problems += _refused_arguments(detected, settings, against, given)
    if problems:
        reading = Reading(str(path), detected, settings, facts, given=given.facts)
        lines = [_spelled_problem(detected, settings, problem) for problem in problems]
        lines += _further_questions(reading, problems)
        lines += [] if accept_unread else reading.problems_of_unread()
        raise InputError(str(path), dict.fromkeys(lines))
    if not facts or not set(settings) & _settings_of(detected, set(detected.rows) - {*OF_LAUNCHERS}):
        read_too = f"; not beside it: {value_text(settings['source'])}" if "source" in settings else ""
        config = next((word for word in words if word.endswith((".toml", ".yaml", ".yml", ".json"))), "")
        read_too += f"; it starts a program with {config}: check that file instead" if config else ""
        of = detected.title
        if program is not None and "program" not in settings:  # none of Megatron-LM's
            of = program.file
            read_too += "" if config else _said_of(of, given)
        raise InputError(
            str(path), [f"holds no setting of {of} on model, degrees, batch or memory{read_too}"]
        )
    notes = ["degrees and batch are the program's defaults, as the script has none"]
    notes = notes if is_script and not set(settings) & _settings_of(detected, PLAN_SECTIONS) else []
    reading = Reading(
        str(path), detected, settings, facts, (*notes, *detected.assumptions(settings)), given.facts
    )
    if "documents" in reading.not_in_table.asked and FULL_LENGTH[True] not in reading.assumed:
        reading = replace(reading, assumed=(*reading.assumed, FULL_LENGTH[True]))
    lacking = [detected.spelled(name) for name in reading.missing]
    lacking += [f"{detected.spelled(name)} {value_text(settings[name])}" for name in against]
    if arguments is None or not lacking:
        return reading
    note = f"{arguments.title} has no {', '.join(lacking)}: of another version or a fork, or a mistake"
    return replace(reading, assumed=(*reading.assumed, note))


def _said_once(problems: Iterable[str]) -> list[str]:
    """Return problems without those that say of a refused value that it is no number as well.

    Several rows may read a setting: one says which values it has, others count with it.
    """
    kept = []
    refused = set[str]()  # settings with their values
    for problem in problems:
        setting, _, why = problem.partition(": ")
        if setting in refused and why.startswith(NO_NUMBER):
            continue
        refused.add(setting)
        kept.append(problem)
    return kept


def _chooses_runs(form: Format, text: str, given: Given) -> bool:
    """Return whether reading a text looks at the run that is meant: it then refuses a name that none has."""
    try:
        form.read(text, replace(given, recipe=NAME_OF_NO_RUN))
    except InputError as error:
        return error.subject == RECIPE
    return False


def _template(text: str) -> list[str]:
    """Return a problem if a text is a template whose placeholders are still to be filled in."""
    found_in = PLACEHOLDER_OF_TEMPLATE.search(text)
    return [f"{found_in[0][:MAX_SHOWN_CHARACTERS]}: this is a template; fill it in"] if found_in else []


def _further_questions(reading: Reading, problems: Sequence[str]) -> list[str]:
    """Return what is to be given besides what `problems` say, so that one answer settles all."""
    form = reading.form
    facts = reading.facts
    given = set(reading.given)
    named = {problem.partition(" = ")[0] for problem in problems}
    wrong = {fact for fact in ("gpus", "dp", "seq", "vocab") if named & set(form.names_of(fact))}
    questions = []
    if not {"gpus", "dp"} & (facts.keys() | given | wrong):
        questions.append(NO_GPUS)
    if "model" in given:
        return questions
    try:
        model = form.named_model(reading.settings)
    except InputError as error:
        return [*questions, *error.problems]
    if model:
        return questions
    if not form.model:
        return [*questions, f"{form.title} does not describe the model; give `model`"]
    if "seq" not in facts.keys() | given | wrong:
        questions.append(NO_LENGTH)
    if "vocab" not in facts.keys() | given | wrong:
        candidates = [] if set(CATALOGUE_SIZES) - facts.keys() else models_of_same_sizes(facts)
        try:
            _vocabulary_size(reading, {"seq": 1} | facts, candidates, [])
        except InputError as error:
            questions += error.problems
    return questions


def _said_of(file: str, given: Given) -> str:
    """Return what to check in place of a script: the program that it starts, or why that is not read."""
    other = None if given.folder is None else find_file(file, given.folder)
    try:
        if other is not None:
            program_of(read_text(other), str(other), given=given)
    except InputError as error:
        return f"; {file} {'; '.join(error.problems)}"
    return f": check {file} instead"


def _settings_of(form: Format, sections: Collection[str]) -> set[str]:
    """Return the settings that the rows of some sections read."""
    rows = (row for section in sections for row in form.rows.get(section, ()))
    return {setting for row in rows for setting in row.settings}


def _refused_arguments(
    form: Format, settings: Settings, against: Mapping[str, str], given: Given
) -> list[str]:
    """Return a problem for each argument that the program refuses, unless it is named as unread or given."""
    matter = form.unread.sort_settings(settings, form.known).matter if against else {}
    return [
        f"{name} = {value_text(settings[name])[:MAX_SHOWN_CHARACTERS]}: {why}"
        for name, why in against.items()
        if name in form.known and name not in matter and not set(given.facts) & set(form.facts_of(name))
    ]


def _undecided_problems(text: str, given: Given, form: Format, settings: Settings, facts: Facts) -> list[str]:
    """Return a problem for all that branches hang on which the script does not decide, where it matters.

    It does if the facts, or settings that matter and are not read, are others without these branches.
    """
    known = set(given.facts)
    if "model" in known:
        known |= {f for part in MODEL_SECTIONS for row in form.rows.get(part, ()) for f in row.facts}
    result = []
    matter = set(form.unread.sort_settings(settings, form.known).matter)
    for name, variables in undecided_variables(text, given).items():
        without = form.read(text, replace(given, without=name))
        others = form.facts(without, ErrorCollector(""), known)
        changed = {fact for fact in {*facts, *others} - known if facts.get(fact) != others.get(fact)}
        rows = (row for rows in form.rows.values() for row in rows if changed & set(row.facts))
        names = {setting for row in rows for setting in row.settings} | matter
        shown = sorted(
            form.spelled(each)
            for each in names
            if _set_words(settings.get(each)) != _set_words(without.get(each))
        )
        if shown:
            what = name if name.isidentifier() or name.isdecimal() else "|".join(sorted(variables)) or "NAME"
            hangs = "the script does not set" if what == name else f"hangs on {name!r}"
            advice = f"under a condition on {what}, which {hangs}: give it with --set {what}=…"
            result.append(f"{', '.join(shown[:6])}: {advice}")
    return result


def _set_words(value: object) -> tuple[str, ...]:
    """Return the words of a value without those of a variable that is not set."""
    return tuple(word for word in value_text(value).split() if not word.startswith("$"))


def read_text(path: Path) -> str:
    """Return the text of a file; raise an `InputError` if it is unreadable, not text, or too large."""
    try:
        data = read_bytes(path, MAX_FILE_BYTES)
    except ValueError as error:
        raise InputError(str(path), [str(error)]) from None
    text = data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    if not text.strip("\0 \t\r\n"):
        raise InputError(str(path), ["the file is empty"])
    if "\0" in text:
        raise InputError(str(path), ["is not a text file"])
    return text


def detect_format(text: str, given: Given, path: str, formats: Mapping[str, Format]) -> Format:
    """Return the format with the most known settings in a text; raise an `InputError` if none has any."""
    counts: dict[str, int] = {}
    malformed: dict[str, None] = {}
    signed = [name for name, form in formats.items() if re.search(form.sign, text)]
    if not signed:  # a script whose arguments stand in another one that it starts
        started = "\n".join(command_lines(text, path, given))
        signed = [name for name, form in formats.items() if re.search(form.sign, started)]
    for name, form in formats.items():
        if name in signed:
            try:
                counts[name] = len(set(form.read(text, given)) & form.known)
            except InputError as error:
                if error.subject == RECIPE:
                    raise InputError(path, error.problems) from None
                malformed |= dict.fromkeys(f"as {form.title}: {problem}" for problem in error.problems)
    if not any(counts.values()):
        known = ", ".join(form.title for form in formats.values())
        program = program_of_script(text, path, given)
        what = "this" if program is None else f"{program.file}, which it starts,"
        problem = f"cannot tell what {what} is; supported: {known} (choose with --framework)"
        raise InputError(path, [problem, *malformed])
    name = max(counts, key=lambda each: counts[each])
    if name == TRL:
        name = format_of_script(command_lines(text, path, given), TRAINER) or name
    return formats[name]


def _not_its_program(form: Format, text: str, path: str, given: Given) -> str:
    """Return a problem if a script's program is of another kind than a format; else none.

    It is if a third of its arguments are none of the format, or if those of Megatron-LM's that it has are too
    few to tell: `--batch_size` and `--lr` are any program's.
    """
    program = program_of_script(text, path, given)
    options = Settings() if program is None else arguments_of(program.words)
    if program is None or not options:
        return ""
    if form.ending == ".sh" and not OF_MEGATRON.match(program.file):
        telling = _settings_of(form, set(form.rows) - {*OF_LAUNCHERS}) & set(options)
        if len(telling) < LEAST_OPTIONS:
            return (
                f"starts {program.file}, a program that is not known: its arguments do not tell whose it is"
                " (choose a program with --framework)"
            )
    if len(options) < LEAST_OPTIONS:
        return ""
    unread = form.unread.sort_settings(options, form.known)
    known = form.arguments(options)
    strange = [*unread.unknown, *(name for name, why in unread.matter.items() if why == NOT_UNDERSTOOD)]
    strange = [name for name in strange if known is None or not known.has(name)]
    if 3 * len(strange) <= len(options):
        return ""
    names = ", ".join(f"--{name}" for name in strange[:3])
    return (
        f"starts {program.file}, a program that is not known: {len(strange)} of its {len(options)} arguments"
        f" are none of {form.title}, such as {names} (choose a program with --framework)"
    )


def _spelled_problem(form: Format, settings: Settings, problem: str) -> str:
    """Return a problem as the framework spells the setting, with a hint on a variable that is not set."""
    name = problem.partition(" = ")[0]
    spelled = form.spelled(name) + problem[len(name) :] if name in form.known else problem
    value = value_text(settings.get(name))
    if PLACEHOLDER.fullmatch(value.strip()):
        return f"{form.spelled(name)} = {value}: a placeholder, as this is a template; fill it in"
    if "$((" in value and (unset := _unset(value)):
        lacking = f"{' and '.join(unset)}, not set in the file"
        return f"{form.spelled(name)} is computed from {lacking}: {_to_set(unset)}"
    if advice := _advice(value):
        return f"{spelled}{advice}"
    return f"{spelled}; give `gpus`" if name in form.names_of("gpus") else spelled


def _unset(text: str) -> list[str]:
    """Return the variables that a value needs and the file does not set."""
    return list(dict.fromkeys(VARIABLE.findall(text)))


def _to_set(names: Sequence[str]) -> str:
    """Return what gives variables."""
    return f"give {'it' if len(names) == 1 else 'them'} with {' '.join(f'--set {name}=…' for name in names)}"


def _advice(value: object) -> str:
    """Return what gives the variables that a value needs and the file does not set."""
    unset = _unset(value_text(value))
    return f"; not set in the file: {_to_set(unset)}" if unset else ""


def complete_launch(
    reading: Reading,
    model: Model | None,
    gpus: int | None,
    gbs: int | None,
    knobs: Mapping[str, object],
    model_wrong: bool = False,
) -> tuple[Reading, Model, Plan, int]:
    """Return the reading with all assumptions, and its model, plan and global batch.

    Arguments take precedence over the file, except for its sequence length. All mistakes are raised at once;
    after `model_wrong`, which says that the model is named and cannot be used, those beside it.
    """
    facts = reading.facts.copy()
    assumed = list(reading.assumed)
    errors = ErrorCollector(reading.path)
    given = {name: value for name, value in {"gpus": gpus, "gbs": gbs, **knobs}.items() if value is not None}
    usual = dict(reading.form.usual_by_fact(reading.settings))
    for name, value in given.items():
        if name not in usual and facts.get(name, value) != value:
            assumed.append(f"{name} = {value} as given, not {facts.get(name)} as in the file")
    # dp follows from the accelerators, or they from it.
    derived = {"dp"} if given.keys() & set(DEGREES) else set()
    derived |= {"gpus"} if "dp" in given else set()
    derived |= {name for name, governor in GOVERNED.items() if governor in given}
    replaced = ["accumulation"] if "gbs" in given else []  # the rest of a default of which a part is given
    replaced += ["grad_dtype", "optimizer_kind"] if "precision" in given and "grad_dtype" in usual else []
    derived |= set(replaced) & usual.keys()
    usual = {name: text for name, text in usual.items() if name not in derived | given.keys()}
    kept = {name: value for name, value in facts.items() if name not in derived}
    facts = as_facts({**kept, **given})
    if {"pp", "vp", "layout"} & set(knobs):
        facts.pop("chunks", None)
    transformer = model
    if model is None and not model_wrong:
        transformer = errors.catch(_described_model, reading, facts, assumed)
    if model is not None:
        if "mtp" in facts and set(reading.form.names_of("mtp")) & set(reading.settings):
            model = replace(model, mtp=facts["mtp"])  # a choice of the training
        transformer = errors.catch(apply_training, model, facts)
        model_values = model_facts(model)
        assumed += [
            f"{name} = {model_values.get(name)} as of {model.name}, not {facts.get(name)} as in the file"
            for name in COMPARED_FACTS
            if facts.get(name, model_values.get(name)) != model_values.get(name)
        ]
        _fit_chunks(facts, model, assumed, reading.form)
        if reading.form.names_model and "seq" not in facts:
            errors.add([NO_LENGTH], reading.path)
    if transformer is not None and transformer.tower is not None:
        unknown = "how large" if "images" in given else "how many, and how large,"
        assumed.append(f"{transformer.tower.title}: the file does not say {unknown} they are")
    if "documents" in given:
        assumed = [note for note in assumed if note not in ASSUMED_LENGTHS]
    if "gpus" not in facts and "dp" not in facts:
        errors.add([NO_GPUS], reading.path)
    if "mbs" in usual and "gbs" in given and (rows := _rows_of_batch(facts)) < facts["mbs"]:
        facts["mbs"] = rows
        del usual["mbs"]
        assumed.append(f"mbs = {rows}: the given batch has no more for each data-parallel replica")
    if usual:
        texts = ", ".join(dict.fromkeys(usual.values()))
        assumed.append(f"{texts}: defaults of {reading.form.title}, not set in the file")
    completed = errors.require(errors.catch(_complete, facts, given))
    if completed["gpus"] != facts.get("gpus", completed["gpus"]):
        needed = f"{completed['dp']} data-parallel replicas with the given degrees need {completed['gpus']}"
        raise InputError(reading.path, [f"gpus = {facts['gpus']}: {needed}"])
    if transformer is None:
        raise InputError(reading.path, ())  # what is wrong with it was said before
    assumed += notes(transformer, facts.get("adapters"))
    if transformer.experts is None:
        completed.pop("ep", None)
        completed.pop("etp", None)
    plan = plan_from_facts(completed, transformer)
    defaults = [f"{name} = {getattr(plan, name)}" for name in REPORTED_DEFAULTS if name not in facts]
    if defaults:
        assumed.append(f"{', '.join(defaults)}: not set in the file")
    assumed += _routing_notes(reading.settings, transformer, int(plan.ep))
    batch = completed["gbs"]
    if not {"gbs", "accumulation", FILLED} & facts.keys():
        assumed.append(f"global batch {batch}: one micro-batch per data-parallel replica, as it is not set")
    return replace(reading, facts=completed, assumed=tuple(assumed)), transformer, plan, batch


def _rows_of_batch(facts: Facts) -> int:
    """Return the sequences of the global batch for each data-parallel replica; at least 1."""
    gpus_per_replica = facts.get("tp", 1) * facts.get("cp", 1) * facts.get("pp", 1)
    replicas = facts.get("dp") or facts.get("gpus", 1) // gpus_per_replica
    return max(int(facts["gbs"]) // max(replicas, 1), 1)


def _complete(facts: Facts, given: Collection[str]) -> Facts:
    """Return facts with those that follow; advice where the accelerators of the file do not suffice."""
    try:
        return complete_facts(facts)
    except InputError as error:
        if error.subject != "gpus" or "gpus" in given:
            raise
        problems = (f"{problem}, and the file has no more; give `gpus`" for problem in error.problems)
        raise InputError("gpus", problems) from None


def _routing_notes(settings: Settings, model: Model, ep: int) -> Iterator[str]:
    """Yield that tokens are spread evenly over the ranks of experts, where no setting has it so."""
    if model.experts is None or ep == 1 or settings.any_on(*FORCED_BALANCE):
        return
    fullest = natural_load(ep, model.experts.experts)
    if model.experts.capacity is not None:
        fullest = min(fullest, model.experts.capacity)
    if model.experts.fullest(ep) < fullest:
        yield (
            f"each of {ep} ranks of experts has as many tokens; a router that is not forced to balance them"
            f" leaves the fullest about {fullest:.2f} of the mean"
        )


def _fit_chunks(facts: Facts, model: Model, assumed: list[str], form: Format) -> None:
    """Leave out the chunks of another model, and count the ends of Megatron-LM's pipeline where it must."""
    if sum(facts.get("chunks", ())) not in (0, model.layers):
        assumed.append(f"layers of stages: even, as those of the file are not of {model.name}")
        facts.pop("chunks")
    # embedding and loss
    stages = facts.get("pp", 1) * facts.get("vp", 1)
    ends = 2
    if form.framework == "megatron" and "chunks" not in facts and model.layers % stages:
        each, rest = divmod(model.layers + ends, stages)
        if not rest:
            facts["chunks"] = (each - 1, *[each] * (stages - ends), each - 1)
            assumed.append(
                "embedding and loss each count as a layer of the pipeline: the stages divide only so"
            )


def _described_model(reading: Reading, facts: Facts, assumed: list[str]) -> Model:
    """Return the model of a file; a missing vocabulary size is that of a known model of its sizes."""
    try:
        reading.form.named_model(reading.settings)  # says that it is not known
    except InputError as error:
        raise InputError(reading.path, error.problems) from None
    if not reading.form.model:
        raise InputError(reading.path, [f"{reading.form.title} does not describe the model; give `model`"])
    if "layers" not in facts or "hidden" not in facts:
        raise InputError(reading.path, ["does not describe a known model: give `model`"])
    errors = ErrorCollector(reading.path)
    if "seq" not in facts:
        errors.add([NO_LENGTH], reading.path)
    candidates = models_of_same_sizes(facts)
    if "vocab" not in facts:
        facts["vocab"] = errors.catch(_vocabulary_size, reading, facts, candidates, assumed)
    model = errors.require(errors.catch(model_from_facts, {"seq": 1} | facts, Path(reading.path).stem))
    match = next((candidate for candidate in candidates if _equal(candidate, model)), None)
    model = model if match is None else model_from_facts(facts, match.name)
    return model.with_images(facts["images"]) if "images" in facts else model


def _vocabulary_size(reading: Reading, facts: Facts, candidates: Sequence[Model], assumed: list[str]) -> int:
    """Return the vocabulary size [tokens] of a known tokenizer, or of catalogue models of the same sizes."""
    if known := _known_tokenizer(reading.settings):
        assumed.append(f"vocabulary of {known[0]:,} tokens, that of {known[1]}")
        return known[0]
    names = {
        candidate.vocab: candidate
        for candidate in candidates
        if candidate.vocab
        and all(facts.get(name) == model_facts(candidate).get(name) for name in FAMILY_FACTS)
    }
    if len(names) > 1:  # prefer those that are equal in all else
        equal = {
            size: candidate
            for size, candidate in names.items()
            if _equal(candidate, model_from_facts(facts | {"vocab": size}, candidate.name))
        }
        names = equal or names
    if len(names) != 1:
        others = "".join(f"; {like.name} has {size:,}" for size, like in names.items())
        problem = f"does not give the vocabulary size: give `vocab` or `model`{others}"
        raise InputError(reading.path, [problem])
    ((size, like),) = names.items()
    assumed.append(f"vocabulary of {size:,} tokens, as of {like.name}, which has these sizes")
    return size


def _known_tokenizer(settings: Settings) -> tuple[int, str] | None:
    """Return the vocabulary size [tokens] and the name of the tokenizer that settings name, where known."""
    for setting in TOKENIZERS["settings"].split():
        path = value_text(settings.get(setting, "")).rstrip("/")
        for part in (path, *reversed(path.split("/"))):
            if part.lower() in TOKENIZERS["sizes"]:
                return TOKENIZERS["sizes"][part.lower()], part
            name = catalogue_name(part)
            if name and (model := load_model(name)).vocab:
                return int(model.vocab or 0), f"{name}, whose tokenizer the file names"
    if settings.is_on("vocab_file") and settings.is_on(
        "merge_file"
    ):  # of tokenizers GPT-2's alone has merges
        return TOKENIZERS["sizes"]["gpt2"], "GPT-2, whose kind of tokenizer has a vocabulary and merges"
    return None


def models_of_same_sizes(facts: Facts) -> list[Model]:
    """Return the models of the catalogue with the same number of layers, hidden size and heads.

    Those with a vision tower are others, and so are those that norm queries and keys, or do not, where some
    do as the facts say: OLMo 2 has the sizes of Llama 2.
    """
    lines = [re.compile(rf"(?m)^{size}:.*?\b{facts.get(size)}\b") for size in CATALOGUE_SIZES]
    texts = {name: file.read_text(encoding="utf-8") for name, file in catalogue("models").items()}
    # Loading every model would take seconds.
    models = [load_model(name) for name, text in texts.items() if all(line.search(text) for line in lines)]
    same = [m for m in models if all(getattr(m, size) == facts.get(size) for size in CATALOGUE_SIZES)]
    texts_only = [m for m in same if m.tower is None]
    alike = [m for m in texts_only if (m.qk_norm is None) == (facts.get("qk_norm") is None)]
    return alike or texts_only


def _equal(model: Model, other: Model) -> bool:
    """Return whether two models are equal except for the sequence length and what is trained."""
    of_run = {"seq": 0, "max_positions": 0, "adapters": None, "documents": None}
    return model_facts(model) | of_run == model_facts(other) | of_run
