"""Formats of launches: each has a table of settings, and functions that turn settings into text and back."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

from traincast.core import MUST_BE_WHOLE, ErrorCollector, InputError, Plan
from traincast.launch.settings.arguments import Arguments
from traincast.launch.settings.canonical import (
    DIVIDED,
    FILLED,
    GOVERNED,
    LEFT_OVER,
    apply_training,
    launch_facts,
    model_facts,
    model_from_facts,
    plan_from_facts,
    with_effect,
    without_training,
)
from traincast.launch.settings.facts import Facts, as_facts
from traincast.launch.settings.given import NOTHING, Given
from traincast.launch.settings.settings import Settings, flatten, same_value, value_text
from traincast.launch.settings.table import (
    ComputedRow,
    Conversions,
    Row,
    Values,
    load_document,
    of_format,
    rows_of,
)
from traincast.launch.settings.text_formats import TEXT_FORMATS
from traincast.launch.settings.unread_settings import UnreadRules, unread_rules
from traincast.model import LINEAR_ATTENTIONS, Model
from traincast.planner import FRAMEWORKS, Framework, Refusal
from traincast.step import Rule

# Facts of neither model nor plan
CONTEXT_FACTS: Final = ("per_node", "stack", "device", "nvlink_spans_nodes", "grouped_gemm")
ReplicaAxis: TypeAlias = Literal["tp", "tp2", "cp", "pp"]
PositiveFact: TypeAlias = Literal[
    "gpus", "tp", "tp2", "cp", "pp", "dp", "ep", "mbs", "gbs", "accumulation", "shards"
]
REPLICA_AXES: Final[tuple[ReplicaAxis, ...]] = get_args(ReplicaAxis)  # product: accelerators of a replica
# Facts of a model that a file must express where it describes the model: else it is of another training.
ESSENTIAL: Final = (  # beginnings of their names
    "adapters", "reference", "tower", "layer_kinds", *(f"{part}." for part in LINEAR_ATTENTIONS), "encoder.",
    "streams", "compressed.", "latent.shared",
    "own_width.", "shared_layers", "inner_norms", "keys_are_values", "value_dim", "beside", "beside_layers",
    *(f"local.{name}" for name in ("heads", "kv_heads", "head_dim", "value_dim", "keys_are_values")),
)  # fmt: skip
MODEL_SECTIONS: Final = ("model", "latent attention", "experts")  # of tables
POSITIVE_FACTS: Final[tuple[PositiveFact, ...]] = get_args(PositiveFact)


@dataclass(frozen=True)
class Writing:
    """Input of the functions that write a launch as text."""

    # All of them; accelerators of a node as `per_node`, the software stack as `stack`, `device` cpu or gpu.
    facts: Facts
    sections: Mapping[str, Values]  # settings
    name: str = ""  # of the model
    head: tuple[str, ...] = ()  # comment lines on model, plan and prediction, and on what is not expressed

    @property
    def all_settings(self) -> Settings:
        """Settings of all sections."""
        return Settings(pair for section in self.sections.values() for pair in section.items())


class Reader(Protocol):
    """Reader of the settings of a text, with what is given beside it."""

    def __call__(self, text: str, given: Given = ..., /) -> Settings:
        """Return the settings."""


def alone(read: Callable[[str], Settings]) -> Reader:
    """Return a reader of a text that needs nothing beside it."""
    return lambda text, _=NOTHING: read(text)


@dataclass(frozen=True)
class Format:
    """File format in which a framework takes its settings: a table, and functions from and to text."""

    name: str  # as an argument
    framework: str  # whose space of plans is searched for it, in `FRAMEWORKS`
    title: str  # its name in sentences
    ending: str  # of the file name
    sign: str  # pattern that each of its files matches
    source: str  # of the names of settings
    rows: Mapping[str, tuple[Row, ...]]  # by section
    why: Mapping[str, str]  # facts that cannot always be expressed
    left: Mapping[str, Mapping[str, str]]  # settings of models that are left at the defaults; see `table`
    unread: UnreadRules  # on settings that no row reads
    read: Reader  # from text
    write: Callable[[Writing], str]
    spelled: Callable[[str], str] = str  # a setting's name as the framework spells it
    stack: Callable[[Settings], str] = lambda _: ""  # name of the software stack that predicts a launch
    assumptions: Callable[[Settings], tuple[str, ...]] = lambda _: ()  # with settings, as sentences
    # What the program has where a file leaves it out, of what rows and rules read.
    defaults: Callable[[Settings], Values] = lambda _: {}
    # All defaults of the program: a setting that no row reads says nothing at its own.
    parser_defaults: Callable[[Settings], Values] = lambda _: {}
    # Figures of assumptions that settings state, by path.
    figures: Callable[[Settings], Values] = lambda _: {}
    # Texts of the program's defaults of what a file leaves out, by the fact that each gives.
    usual_by_fact: Callable[[Settings], Mapping[str, str]] = lambda _: {}
    takes_files: bool = False  # whether it names configurations of Accelerate or DeepSpeed beside it
    # Name of the model that settings speak of without its sizes.
    named_model: Callable[[Settings], str] = lambda _: ""
    names_model: bool = False  # whether each file names its model: what is trained of it is in the file
    # Of the program, where a table has them.
    arguments: Callable[[Settings], Arguments | None] = lambda _: None
    own_stack: str = ""  # software stack of a plain launch, where it is not the framework's
    dense_only: bool = False  # whether it builds the model itself, from attention and an MLP
    # Command that starts a file that is written, FILE, on every machine; names in braces: `launch_command`.
    starts: str = ""
    lifted: tuple[Rule, ...] = ()  # rules of the framework that its releases with this format did not have
    asked: Framework | None = None  # the framework as a release that is asked for has it
    releases: tuple[str, ...] = ()  # of the framework, those that take such files; all known where empty

    @property
    def model(self) -> bool:
        """Whether it describes the model."""
        return "model" in self.rows

    @cached_property
    def known(self) -> frozenset[str]:
        """Names of all settings that a row reads."""
        return frozenset(name for rows in self.rows.values() for row in rows for name in row.settings)

    @property
    def computed_rows(self) -> Iterator[ComputedRow]:
        """Rows that functions compute, several settings of which may say the same."""
        return (row for rows in self.rows.values() for row in rows if isinstance(row, ComputedRow))

    @property
    def space(self) -> Framework:
        """The space of plans that is searched for it."""
        space = self._framework
        if self.lifted:
            space = replace(space, rules=tuple(rule for rule in space.rules if rule not in self.lifted))
        return replace(space, assumptions=self.own_stack) if self.own_stack else space

    def facts_of(self, setting: str) -> tuple[str, ...]:
        """Return the facts of the rows that read a setting."""
        rows = (row for rows in self.rows.values() for row in rows if setting in row.settings)
        return tuple(fact for row in rows for fact in row.facts)

    def names_of(self, fact: str) -> tuple[str, ...]:
        """Return the settings of the row that converts one fact alone."""
        rows = (row for rows in self.rows.values() for row in rows if row.facts == (fact,))
        return next((row.settings for row in rows), ())

    def require_expressible(self, model: Model) -> None:
        """Raise an `InputError` if it describes models, but cannot say what this one is or trains.

        A program that is given its model has adapters and kinds of layers from there.
        """
        facts = launch_facts(model, Plan(), 1) | {"per_node": 1}
        wanted = [name for name in facts if name == "head" or name.startswith(ESSENTIAL)]
        trained = ("adapters", "reference", "head")
        if self.dense_only and (model.experts or model.latent or not set(wanted) <= set(trained)):
            raise InputError(self.name, [f"{self.title} cannot express {model.name}: {self.why['model']}"])
        if not self.model or not wanted:
            return
        read = self.facts(self.settings(facts), ErrorCollector(self.name))
        if "adapters" in read:
            read |= {"adapters": model_facts(model.with_adapters(read["adapters"]))["adapters"]}
        if name := next((name for name in wanted if read.get(name) != facts.get(name)), ""):
            if model.encoder is not None:
                problem = f"{self.title} cannot express the layers of {model.name}"
                raise InputError(self.name, [f"{problem}: exports for it have no encoder to attend to"])
            titles = {"tower": f"the vision tower of {model.name}"}
            titles |= dict.fromkeys(("adapters", "reference"), model.training)
            what = titles.get(name, f"the layers of {model.name}")
            part = name if name in titles else "layer_kinds"
            why = self.why.get(part, "it has no setting for them")
            raise InputError(self.name, [f"{self.title} cannot express {what}: {why}"])

    def left_at_default(self, facts: Facts) -> dict[str, str]:
        """Return what a model of these facts has settings for that are left at the framework's defaults."""
        return {
            name: row["default"]
            for name, row in self.left.items()
            if facts.get(row["fact"]) is not None and row.get("value") in (None, facts.get(row["fact"]))
        }

    def find_refusals(self, facts: Facts) -> tuple[Refusal, ...]:
        """Return the combinations of facts that the framework's release refuses."""
        return self._framework.find_refusals(with_effect(facts))

    def drop_refused(self, facts: Facts) -> Facts:
        """Return facts without what the framework's release refuses."""
        return as_facts({**facts, **self._framework.drop_refused(with_effect(facts))})

    @property
    def _framework(self) -> Framework:
        """The framework, as the release that is asked for has it."""
        return self.asked or FRAMEWORKS[self.framework]

    def refused_by_release(self, settings: Settings) -> Iterator[str]:
        """Yield a line for each thing of a file that the release asked for does not take.

        That is the file itself where the release takes no such files, arguments that it does not have, and
        values that they do not take.
        """
        if self.asked is None:
            return
        release = self.asked.version.rpartition(" ")[2]
        if self.releases and not any(f"{release}.".startswith(f"{taking}.") for taking in self.releases):
            yield f"files of this kind are of release {', '.join(self.releases)}"
        known = self.arguments(settings)
        against = {} if known is None else known.refused_by(release, settings)
        for name, why in against.items():
            value = value_text(settings[name])
            said = f" {value}" if value != "on" else ""
            yield f"{self.spelled(name)}{said}: {why}"

    def sections(self, facts: Facts) -> dict[str, dict[str, object]]:
        """Return the settings of facts by section.

        Rows are given the format's name as `format`, and micro-batches of a step as `accumulation`.
        """
        micro_batches = max(facts["gbs"] // facts["dp"] // facts["mbs"], 1)
        facts = facts | {"format": self.name, "accumulation": micro_batches}
        return {
            section: {name: value for row in rows for name, value in row.write(facts).items()}
            for section, rows in self.rows.items()
        }

    def settings(self, facts: Facts) -> Settings:
        """Return the settings of facts, without sections."""
        return Writing(facts, self.sections(facts)).all_settings

    def without_effect(self, settings: Settings) -> tuple[str, ...]:
        """Return the settings that no row reads and that are at the program's default."""
        usual = self.parser_defaults(settings)
        unread = (name for name in settings if name in usual and name not in self.known)
        return tuple(
            name for name in unread if same_value(value_text(settings[name]), value_text(usual[name]))
        )

    def with_defaults(self, settings: Settings) -> Settings:
        """Return settings with what the program has by default."""
        return Settings({**settings, **self.defaults(settings)})

    def facts(self, settings: Values, errors: ErrorCollector, known: Collection[str] = ()) -> Facts:
        """Return the facts of settings; invalid values are collected in `errors`.

        Those of facts that are `known` from elsewhere, or of all facts of a model where "model" is, are not.
        """
        values = self.with_defaults(Settings(settings))
        facts = Facts()
        for section, rows in self.rows.items():
            for row in rows:
                needless = (section in MODEL_SECTIONS and "model" in known) or bool(
                    set(row.facts) & set(known)
                )
                if not row.needs or values.is_on(row.needs):
                    facts |= (ErrorCollector("") if needless else errors).catch(row.read, values) or {}
        return facts


def load_format(
    name: str,
    framework: str,
    conversions: Conversions,
    table: str = "",
    *,
    required: Callable[[Writing], Values] = lambda _: {},
    why: Mapping[str, str] = MappingProxyType({}),
    **functions: object,
) -> Format:
    """Return a format of a framework, from the table of its name or another.

    `conversions` has the functions of computed rows, `required` gives the settings that a program requires
    besides `fixed` of the table, and `why` further facts that cannot always be expressed. `functions` are
    fields of the format; without `read` and `write` its text is what the ending says.
    """
    document = load_document(table or framework)

    def write(writing: Writing) -> str:
        settings = writing.all_settings
        further = {**flatten(document.get("fixed", {})), **required(writing)}
        return TEXT_FORMATS[texts["ending"]].write(settings | further | settings, writing.head)

    sections = {
        section: tuple(rows_of(rows, name, conversions)) for section, rows in document["rows"].items()
    }
    own_why = {fact: of_format(text, name) for fact, text in document["why"].items()}
    texts = {key: of_format(document[key], name) for key in ("title", "ending", "sign", "source")}
    parts: dict[str, Any] = {
        "rows": {section: rows for section, rows in sections.items() if rows},
        "why": {**why, **{fact: text for fact, text in own_why.items() if text}},
        "left": document.get("left", {}),
        "unread": unread_rules(document["unread"]),
        "starts": of_format(document.get("starts", ""), name) or "",
        "read": alone(TEXT_FORMATS[texts["ending"]].read) if texts["ending"] in TEXT_FORMATS else None,
        "write": write,
        "stack": lambda _: FRAMEWORKS[framework].assumptions,
    }
    return Format(name, framework, **texts, **parts | functions)


def complete_facts(facts: Facts) -> Facts:
    """Return facts with those that follow: data-parallel replicas or accelerators, and the batch."""
    completed = facts.copy()
    below_one = [name for name in POSITIVE_FACTS if completed.get(name, 1) < 1]
    if below_one:
        raise InputError("launch", [f"{name} = {completed[name]}: {MUST_BE_WHOLE}" for name in below_one])
    gpus_per_replica = prod(completed.get(axis, 1) for axis in REPLICA_AXES)
    if "gpus" in completed and "dp" not in completed:
        completed["dp"], remainder = divmod(completed["gpus"], gpus_per_replica)
        if remainder:
            axes: tuple[ReplicaAxis, ...] = ("tp", "cp", "pp")
            above_one = (axis for axis in axes if completed.get(axis, 1) > 1)
            degrees = " × ".join(f"{axis} {completed[axis]}" for axis in above_one)
            raise InputError("gpus", [f"{completed['gpus']}: must be divisible by {degrees}"])
    if "dp" in completed:
        completed["gpus"] = completed["dp"] * gpus_per_replica
        if "shards" in completed:
            sharded_ranks = completed["dp"] * completed.get("cp", 1)
            completed["replicas"] = max(sharded_ranks // completed["shards"], 1)
        sharding_ranks = completed["dp"] * completed.get("cp", 1)
        if completed.pop(LEFT_OVER, False) and completed.get("replicas") == sharding_ranks > 1:
            completed |= {"zero": 0, "replicas": 1}
        if completed.pop(DIVIDED, False) and "mbs" not in completed:
            micro_batches = completed["dp"] * completed.get("accumulation", 1)
            completed["mbs"] = max(completed["gbs"] // micro_batches, 1)
        rows = completed.get("mbs", 1)
        least = completed.pop(FILLED, 0)
        usual = max(-(-least // (rows * completed["gpus"])), 1)
        completed.setdefault("gbs", completed["dp"] * rows * completed.get("accumulation", usual))
    return completed


def launch_from_facts(facts: Facts, name: str, model: Model | None = None) -> tuple[Model, Plan, int]:
    """Return model, plan and global batch of facts; the given model where facts do not describe one."""
    facts = complete_facts(facts)
    transformer = model_from_facts(facts, name) if model is None else apply_training(model, facts)
    return transformer, plan_from_facts(facts, transformer), facts["gbs"]


def not_expressed(
    form: Format, settings: Settings, facts: Facts, model: Model, *, keeps_stage: bool = False
) -> dict[str, str]:
    """Return the facts that settings do not express, and why: settings are read back and compared.

    `keeps_stage` is as of the facts (`launch_facts`).
    """
    read_facts = form.facts(settings, ErrorCollector(form.name))
    described = "layers" in read_facts
    reasons = {}
    if not read_facts.keys() & {"gpus", "dp"}:  # the launcher decides, and with them of the batch
        read_facts |= {"gpus": facts["gpus"]}
        reasons["gpus"] = _reason(form, "gpus", facts)
    try:
        given = without_training(model) if form.names_model else model
        given = replace(given, seq=read_facts.get("seq", given.seq)) if form.names_model else given
        read_launch = launch_from_facts(read_facts, model.name, None if described else given)
        read_back = launch_facts(*read_launch, keeps_stage=keeps_stage)
    except InputError:
        read_back = read_facts if described else model_facts(model) | read_facts
        with suppress(InputError):
            read_back = complete_facts(read_back)
    if not described and ErrorCollector("").catch(form.named_model, settings) != model.name:
        why = form.why.get("model", f"{form.title} does not describe it")
        reasons["model"] = f"model = {model.title}: {why}"
    for name in dict.fromkeys((*facts, *read_back)):
        if name not in CONTEXT_FACTS and facts.get(name) != read_back.get(name):
            reasons[name] = _reason(form, name, facts)
    return {name: why for name, why in reasons.items() if name in facts or GOVERNED.get(name) not in reasons}


def _reason(form: Format, name: str, facts: Facts) -> str:
    """Return a fact and why it is not expressed."""
    value = facts.get(name)
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    refusals = (refusal.why for refusal in form.find_refusals(facts) if refusal.choice == name)
    why = form.why.get(name, f"{form.title} has no setting for it")
    documents = facts.get("documents")
    if name == "documents" and documents is not None:
        text = documents.title(facts["seq"]).removeprefix("documents of ")
    knob = "layout" if name == "chunks" else name
    return f"{f'{knob} = {text}' if name in facts else f'no {knob}'}: {next(refusals, why)}"
