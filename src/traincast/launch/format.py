"""Formats of launches: each is a table of rows, and the functions that turn settings into text and back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from traincast.core.errors import WHOLE, ErrorCollector, InputError
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.launch.canonical import Facts, launch_facts, model_facts, model_from_facts, plan_from_facts
from traincast.launch.mapping import Row, Settings, read_rows, write_rows
from traincast.launch.unread_settings import UnreadRules
from traincast.planner.framework_refusals import Refusal, accepted, refused
from traincast.planner.framework_spaces import Framework
from traincast.planner.framework_spaces import framework as known_framework

CONTEXT_FACTS: Final = ("per_node", "stack")  # facts of neither model nor plan

POSITIVE_FACTS: Final = (
    "gpus",
    "tp",
    "tp2",
    "cp",
    "pp",
    "dp",
    "ep",
    "mbs",
    "gbs",
    "accumulation",
    "shards",
)  # facts that are at least 1


@dataclass(frozen=True)
class Writing:
    """Input of the functions that write a launch as text.

    Parameters
    ----------
    told : Facts
        All facts, accelerators of a node as `per_node`, and the software stack as `stack`.
    settings : mapping of str to Settings
        Settings by section.
    head : tuple of str
        Comment lines on model, plan and prediction, and on what is not expressed.
    name : str
        Name of the model.
    """

    told: Facts
    settings: Mapping[str, Settings]
    head: tuple[str, ...]
    name: str


@dataclass(frozen=True)
class Format:
    """File format in which a framework takes its settings.

    Parameters
    ----------
    name, title : str
        Its name as an argument, and in sentences.
    framework : str or Framework
        The space of plans that is searched for it.
    rows : mapping of str to tuple of Row
        The table, by section.
    why : mapping of str to str
        Facts that cannot always be expressed, and why.
    source : str
        Where the names of the settings come from, and when that was looked at.
    ending : str
        Ending of the file name.
    text : callable
        Writes settings as text.
    settings : callable
        Reads settings from text.
    sign : str
        A pattern that every such text matches.
    spelled : callable
        Returns a setting's name as the framework spells it.
    model : bool
        Whether it describes the model.
    comments : bool
        Whether its text can hold comments.
    stack : callable, optional
        Returns the software stack of settings, where that is not always the framework's.
    beside : Beside
        Effects of settings that the table does not read.
    granted : callable
        Returns what is assumed with settings, as sentences.
    """

    name: str
    title: str
    framework: str | Framework
    rows: Mapping[str, tuple[Row, ...]]
    why: Mapping[str, str]
    source: str
    ending: str
    text: Callable[[Writing], str]
    settings: Callable[[str], Settings]
    sign: str
    spelled: Callable[[str], str] = str
    model: bool = True
    comments: bool = True
    stack: Callable[[Settings], str] | None = None
    beside: UnreadRules = field(default_factory=UnreadRules)
    granted: Callable[[Settings], tuple[str, ...]] = lambda _: ()

    @property
    def known(self) -> frozenset[str]:
        """Names of all settings of the table."""
        return frozenset(name for section in self.rows.values() for row in section for name in row.names)

    def refused(self, facts: Facts) -> tuple[Refusal, ...]:
        """Return the combinations of facts that the framework refuses."""
        return refused(known_framework(self.framework).name, facts)

    def accepted(self, facts: Facts) -> Facts:
        """Return the facts without those that the framework refuses."""
        return accepted(known_framework(self.framework).name, facts)

    def facts(self, settings: Settings, mistakes: ErrorCollector) -> Facts:
        """Return the facts of settings; mistakes are collected."""
        return read_rows(self.rows, settings, mistakes)


def flat_settings(form: Format, facts: Facts) -> Settings:
    """Return the settings of facts in a format, without sections."""
    return {
        name: value for section in write_rows(form.rows, facts).values() for name, value in section.items()
    }


def complete_facts(facts: Facts) -> Facts:
    """Return facts with those that follow from others: data-parallel replicas from the number of accelerators, or the reverse.

    Raises
    ------
    InputError
        If a degree is 0, or degrees do not divide the number of accelerators.
    """
    completed = dict(facts)
    below_one = [name for name in POSITIVE_FACTS if completed.get(name, 1) < 1]
    if below_one:
        raise InputError("launch", [f"{name} = {completed[name]}: {WHOLE}" for name in below_one])
    gpus_per_replica = 1
    for axis in ("tp", "tp2", "cp", "pp"):
        gpus_per_replica *= completed.get(axis, 1)
    if "gpus" in completed and "dp" not in completed:
        if completed["gpus"] % gpus_per_replica:
            degrees = " × ".join(
                f"{axis} {completed[axis]}" for axis in ("tp", "cp", "pp") if completed.get(axis, 1) > 1
            )
            raise InputError("gpus", [f"gpus = {completed['gpus']}: must be divisible by {degrees}"])
        completed["dp"] = completed["gpus"] // gpus_per_replica
    if "dp" in completed:
        completed["gpus"] = completed["dp"] * gpus_per_replica
    if "shards" in completed and "dp" in completed:
        completed["replicas"] = max(completed["dp"] * completed.get("cp", 1) // completed["shards"], 1)
    if "gbs" not in completed and "dp" in completed and "accumulation" in completed:
        completed["gbs"] = completed["dp"] * completed.get("mbs", 1) * completed["accumulation"]
    elif "gbs" not in completed and "dp" in completed:
        completed["gbs"] = completed["dp"] * completed.get("mbs", 1)
    return completed


def launch_from_facts(facts: Facts, name: str, model: Model | None = None) -> tuple[Model, Plan, int]:
    """Return model, plan and global batch of facts; the given model where facts do not describe one.

    Raises
    ------
    InputError
        If something is missing or invalid.
    """
    facts = complete_facts(facts)
    transformer = model_from_facts(facts, name) if model is None else model
    return transformer, plan_from_facts(facts, transformer), facts["gbs"]


def not_expressed(form: Format, settings: Settings, facts: Facts, model: Model) -> dict[str, str]:
    """Return the facts that settings do not express, and why: the settings are read back and compared with the facts."""
    mistakes = ErrorCollector(form.name)
    read_facts = form.facts(settings, mistakes)
    described = "layers" in read_facts
    try:
        back = launch_facts(*launch_from_facts(read_facts, model.name, None if described else model))
    except InputError:
        back = _complete_if_possible(read_facts if described else model_facts(model) | read_facts)
    names = [
        name for name in (*facts, *back) if name not in CONTEXT_FACTS and facts.get(name) != back.get(name)
    ]
    unexpressed_model = (
        {}
        if described
        else {"model": f"model = {model.name}: {form.why.get('model', f'{form.title} does not describe it')}"}
    )
    return unexpressed_model | {name: _reason(form, name, facts) for name in dict.fromkeys(names)}


def _complete_if_possible(facts: Facts) -> Facts:
    """Return completed facts, or the facts as they are where they cannot be completed."""
    try:
        return complete_facts(facts)
    except InputError:
        return facts


def _reason(form: Format, name: str, facts: Facts) -> str:
    """Return a fact and why it is not expressed."""
    value = facts.get(name)
    fact = (
        f"{name} = {value if not isinstance(value, tuple) else ','.join(map(str, value))}"
        if name in facts
        else f"no {name}"
    )
    why = next((refusal.why for refusal in form.refused(facts) if refusal.choice == name), None)
    return f"{fact}: {why or form.why.get(name, f'{form.title} has no setting for it')}"
