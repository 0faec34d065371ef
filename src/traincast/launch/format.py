"""Formats of launches: each has a table of settings, and functions that turn settings into text and back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from traincast.core.errors import WHOLE, ErrorCollector, InputError
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.launch.canonical import Facts, launch_facts, model_facts, model_from_facts, plan_from_facts
from traincast.launch.settings import Settings
from traincast.launch.table import Table, Values
from traincast.planner.framework_refusals import Refusal, accepted, refused
from traincast.planner.framework_spaces import FRAMEWORKS, LAUNCH_SPACES, Framework

CONTEXT_FACTS: Final = ("per_node", "stack")  # facts of neither model nor plan
REPLICA_AXES: Final = (
    "tp",
    "tp2",
    "cp",
    "pp",
)  # whose degrees multiply to the accelerators of a data-parallel replica
POSITIVE_FACTS: Final = ("gpus", *REPLICA_AXES, "dp", "ep", "mbs", "gbs", "accumulation", "shards")


@dataclass(frozen=True)
class Writing:
    """Input of the functions that write a launch as text."""

    facts: Facts  # all of them, accelerators of a node as `per_node`, and the software stack as `stack`
    sections: Mapping[str, Values]  # settings
    head: tuple[str, ...]  # comment lines on model, plan and prediction, and on what is not expressed
    name: str  # of the model

    @property
    def all_settings(self) -> dict[str, Any]:
        """Settings of all sections."""
        return {name: value for section in self.sections.values() for name, value in section.items()}


@dataclass(frozen=True)
class Format:
    """File format in which a framework takes its settings."""

    name: str  # as an argument
    framework: str  # whose space of plans is searched for it, in `FRAMEWORKS` or `LAUNCH_SPACES`
    table: Table
    read: Callable[[str], Settings]  # from text
    write: Callable[[Writing], str]
    spelled: Callable[[str], str] = str  # a setting's name as the framework spells it
    model: bool = True  # whether it describes the model
    stack: Callable[[Settings], str] | None = None  # software stack, where that is not always the framework's
    assumptions: Callable[[Settings], tuple[str, ...]] = (
        lambda _: ()
    )  # what is assumed with settings, as sentences

    @property
    def title(self) -> str:
        """Its name in sentences."""
        return self.table.title

    @property
    def ending(self) -> str:
        """Ending of the file name."""
        return self.table.ending

    @property
    def known(self) -> frozenset[str]:
        """Names of all settings that a row of the table reads."""
        return self.table.known

    @property
    def space(self) -> Framework:
        """The space of plans that is searched for it."""
        return (FRAMEWORKS | LAUNCH_SPACES)[self.framework]

    def stack_of(self, settings: Settings) -> str:
        """Return the name of the software stack that predicts a launch with these settings."""
        return self.space.assumptions if self.stack is None else self.stack(settings)

    def refused(self, facts: Facts) -> tuple[Refusal, ...]:
        """Return the combinations of facts that the framework refuses."""
        return refused(self.space.name, facts)

    def accepted(self, facts: Facts) -> Facts:
        """Return the facts without those that the framework refuses."""
        return accepted(self.space.name, facts)

    def settings(self, facts: Facts) -> Settings:
        """Return the settings of facts, without sections."""
        sections = self.table.write(facts).values()
        return Settings({name: value for section in sections for name, value in section.items()})

    def facts(self, settings: Values, errors: ErrorCollector) -> Facts:
        """Return the facts of settings; invalid values are collected in `errors`."""
        return self.table.read(Settings(settings), errors)


def complete_facts(facts: Facts) -> Facts:
    """Return facts with those that follow: data-parallel replicas or accelerators, and the batch."""
    completed = dict(facts)
    below_one = [name for name in POSITIVE_FACTS if completed.get(name, 1) < 1]
    if below_one:
        raise InputError("launch", [f"{name} = {completed[name]}: {WHOLE}" for name in below_one])
    gpus_per_replica = prod(completed.get(axis, 1) for axis in REPLICA_AXES)
    if "gpus" in completed and "dp" not in completed:
        completed["dp"], remainder = divmod(completed["gpus"], gpus_per_replica)
        if remainder:
            axes = (axis for axis in ("tp", "cp", "pp") if completed.get(axis, 1) > 1)
            degrees = " × ".join(f"{axis} {completed[axis]}" for axis in axes)
            raise InputError("gpus", [f"gpus = {completed['gpus']}: must be divisible by {degrees}"])
    if "dp" in completed:
        completed["gpus"] = completed["dp"] * gpus_per_replica
        if "shards" in completed:
            sharded_ranks = completed["dp"] * completed.get("cp", 1)
            completed["replicas"] = max(sharded_ranks // completed["shards"], 1)
        micro_batches = completed.get("mbs", 1) * completed.get("accumulation", 1)
        completed.setdefault("gbs", completed["dp"] * micro_batches)
    return completed


def launch_from_facts(facts: Facts, name: str, model: Model | None = None) -> tuple[Model, Plan, int]:
    """Return model, plan and global batch of facts; the given model where facts do not describe one."""
    facts = complete_facts(facts)
    transformer = model_from_facts(facts, name) if model is None else model
    return transformer, plan_from_facts(facts, transformer), facts["gbs"]


def not_expressed(form: Format, settings: Settings, facts: Facts, model: Model) -> dict[str, str]:
    """Return the facts that settings do not express, and why: settings are read back and compared."""
    read_facts = form.facts(settings, ErrorCollector(form.name))
    described = "layers" in read_facts
    try:
        read_back = launch_facts(*launch_from_facts(read_facts, model.name, None if described else model))
    except InputError:
        read_back = _complete_if_possible(read_facts if described else model_facts(model) | read_facts)
    reasons = {}
    if not described:
        why = form.table.why.get("model", f"{form.title} does not describe it")
        reasons["model"] = f"model = {model.name}: {why}"
    for name in dict.fromkeys((*facts, *read_back)):
        if name not in CONTEXT_FACTS and facts.get(name) != read_back.get(name):
            reasons[name] = _reason(form, name, facts)
    return reasons


def _complete_if_possible(facts: Facts) -> Facts:
    """Return completed facts, or the facts as they are where they cannot be completed."""
    try:
        return complete_facts(facts)
    except InputError:
        return facts


def _reason(form: Format, name: str, facts: Facts) -> str:
    """Return a fact and why it is not expressed."""
    value = facts.get(name)
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    refusals = (refusal.why for refusal in form.refused(facts) if refusal.choice == name)
    why = form.table.why.get(name, f"{form.title} has no setting for it")
    return f"{f'{name} = {text}' if name in facts else f'no {name}'}: {next(refusals, why)}"
