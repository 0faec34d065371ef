"""The formats that are written and read: each a table, and what turns settings into text and back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from traincast.core.errors import WHOLE, ErrorCollector, InputError
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.launch.canonical import Facts, as_model, as_plan, facts, model_facts
from traincast.launch.mapping import Row, Settings, understood, written
from traincast.launch.unread_settings import Beside
from traincast.planner.framework_refusals import Refusal, accepted, refused
from traincast.planner.framework_spaces import Framework
from traincast.planner.framework_spaces import framework as known_framework

BESIDE: Final = ("per_node", "stack")  # facts that are of neither model nor plan

COUNTED: Final = ("gpus", "tp", "tp2", "cp", "pp", "dp", "ep", "mbs", "gbs", "accumulation", "shards")  # at least 1 of each


@dataclass(frozen=True)
class Writing:
    """What a text is made of.

    Parameters
    ----------
    told : Facts
        All facts, accelerators of a node as `per_node`, and the software stack as `stack`.
    settings : mapping of str to Settings
        Settings by section.
    head : tuple of str
        Lines on model, plan and prediction, and on what is not expressed.
    name : str
        Name of the model.
    """

    told: Facts
    settings: Mapping[str, Settings]
    head: tuple[str, ...]
    name: str


@dataclass(frozen=True)
class Format:
    """How a framework is told what to run.

    Parameters
    ----------
    name, title : str
        What it is called as an argument, and by people.
    framework : str or Framework
        The space of plans that is searched for it.
    rows : mapping of str to tuple of Row
        The table, by section.
    why : mapping of str to str
        Facts that cannot always be said, and why.
    source : str
        Where the names stand, and when that was looked at.
    ending : str
        Of a file.
    text : callable
        The text of settings.
    settings : callable
        The settings of a text.
    sign : str
        A pattern that is in every such text.
    spelled : callable
        A setting's name as it is written.
    model : bool
        Whether it describes the model.
    comments : bool
        Whether its text can hold comments.
    stack : callable, optional
        The software stack of settings, where it is not that of the framework.
    beside : Beside
        What settings mean that the table does not read.
    granted : callable
        What is taken for granted with settings, in words.
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
    beside: Beside = field(default_factory=Beside)
    granted: Callable[[Settings], tuple[str, ...]] = lambda _: ()

    @property
    def known(self) -> frozenset[str]:
        """Names of all settings of the table."""
        return frozenset(name for several in self.rows.values() for row in several for name in row.names)

    def refused(self, told: Facts) -> tuple[Refusal, ...]:
        """What the framework refuses about facts."""
        return refused(known_framework(self.framework).name, told)

    def accepted(self, told: Facts) -> Facts:
        """Facts with what the framework refuses left out."""
        return accepted(known_framework(self.framework).name, told)

    def facts(self, settings: Settings, mistakes: ErrorCollector) -> Facts:
        """What settings say; what is wrong with them is gathered."""
        return understood(self.rows, settings, mistakes)


def flat(form: Format, told: Facts) -> Settings:
    """Settings of facts in a format, sections aside."""
    return {name: value for section in written(form.rows, told).values() for name, value in section.items()}


def completed(told: Facts) -> Facts:
    """Facts with those that follow from others: replicas of the data out of the accelerators, or the reverse.

    Raises
    ------
    InputError
        If a degree is 0, or degrees do not divide the accelerators.
    """
    found = dict(told)
    none = [name for name in COUNTED if found.get(name, 1) < 1]
    if none:
        raise InputError("launch", [f"{name} = {found[name]}: {WHOLE}" for name in none])
    of_replica = 1
    for axis in ("tp", "tp2", "cp", "pp"):
        of_replica *= found.get(axis, 1)
    if "gpus" in found and "dp" not in found:
        if found["gpus"] % of_replica:
            degrees = " × ".join(f"{axis} {found[axis]}" for axis in ("tp", "cp", "pp") if found.get(axis, 1) > 1)
            raise InputError("gpus", [f"gpus = {found['gpus']}: {degrees} do not divide it"])
        found["dp"] = found["gpus"] // of_replica
    if "dp" in found:
        found["gpus"] = found["dp"] * of_replica
    if "shards" in found and "dp" in found:
        found["replicas"] = max(found["dp"] * found.get("cp", 1) // found["shards"], 1)
    if "gbs" not in found and "dp" in found and "accumulation" in found:
        found["gbs"] = found["dp"] * found.get("mbs", 1) * found["accumulation"]
    elif "gbs" not in found and "dp" in found:
        found["gbs"] = found["dp"] * found.get("mbs", 1)
    return found


def launched(told: Facts, name: str, model: Model | None = None) -> tuple[Model, Plan, int]:
    """Model, plan and global batch of facts; the model itself where facts do not describe it.

    Raises
    ------
    InputError
        If something is missing or cannot be.
    """
    told = completed(told)
    transformer = as_model(told, name) if model is None else model
    return transformer, as_plan(told, transformer), told["gbs"]


def not_expressed(form: Format, settings: Settings, told: Facts, model: Model) -> dict[str, str]:
    """Facts that a reader of the settings would not find, and why: what is read back is held against what was to be said."""
    mistakes = ErrorCollector(form.name)
    own = form.facts(settings, mistakes)
    described = "layers" in own
    try:
        back = facts(*launched(own, model.name, None if described else model))
    except InputError:
        back = _followed(own if described else model_facts(model) | own)
    names = [name for name in (*told, *back) if name not in BESIDE and told.get(name) != back.get(name)]
    whole = {} if described else {"model": f"model = {model.name}: {form.why.get('model', f'{form.title} does not describe it')}"}
    return whole | {name: _why(form, name, told) for name in dict.fromkeys(names)}


def _followed(told: Facts) -> Facts:
    """Facts with those that follow, as far as they do."""
    try:
        return completed(told)
    except InputError:
        return told


def _why(form: Format, name: str, told: Facts) -> str:
    """A fact and why it is not expressed."""
    value = told.get(name)
    said = f"{name} = {value if not isinstance(value, tuple) else ','.join(map(str, value))}" if name in told else f"no {name}"
    why = next((one.why for one in form.refused(told) if one.choice == name), None)
    return f"{said}: {why or form.why.get(name, f'{form.title} has no setting for it')}"
