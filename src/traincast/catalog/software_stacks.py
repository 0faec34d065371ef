"""Software stacks: a framework of a year with its facts, and the assumptions that they amount to.

A stack of the catalogue has a name, a framework, a release and facts. Any other combination is named by what
differs from one of them: ``megatron-core-2025+dispatcher=deepep``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from traincast.catalog.disk_cache import cached_on_disk
from traincast.catalog.documents import catalogue, catalogue_entry, read_document
from traincast.catalog.facts import ALWAYS_GIVEN, OF_SOFTWARE, check_fact, fact_words
from traincast.catalog.software import Constants, constants, constants_of, month, search_spaces
from traincast.core import (
    ASSUMPTIONS,
    CALIBRATED,
    EXPERT_ASSUMPTIONS,
    PAPER,
    PRESETS,
    Assumptions,
    InputError,
    System,
    raise_problems,
    require_type,
    unknown_name_error,
)

if TYPE_CHECKING:
    from traincast.catalog.schema.software_stack import AssumptionsFile, StackFile
    from traincast.model import Model

CALIBRATED_FILE: Final = Path(__file__).with_name("calibrated.yaml")
CHANGED: Final = "+"  # before each fact that a name changes
# Fused dispatchers, `flex` being one that is not named. "DeepEP dispatcher requires TPxEP > 1" (Megatron-Core
# 0.19.2, transformer/moe/token_dispatcher.py); of HybridEP on one rank no run is known
FUSED: Final = ("deepep", "hybridep", "flex")
# Constants of a layer with all experts on every rank → whose values they have, without such a dispatcher
LOCAL: Final = {
    "traffic.local_expert_passes": "traffic.expert_passes",
    "host.local_sync_seconds": "host.sync_seconds",
}
# Values of facts that state less than others: a fused dispatcher of tokens that is one of the two
WIDER: Final = {"dispatcher": {"flex": ("deepep", "hybridep")}}
# Frameworks whose models are of the same code: those of NeMo and Megatron-Bridge are Megatron-Core's
SAME_CODE: Final = (
    ("Megatron-Core", "Megatron-Bridge", "NeMo", "Megatron-LM"),
    ("MLPerf", "MLPerf-ROCm"),
    ("Transformers", "Transformers-DeepSpeed"),
)
KEPT: Final = 1024  # stacks of which is kept what was found out about them
# A framework named without a release is of its usual stack's year, the year before, or later.
YEARS_BACK: Final = 1


def stack_names() -> tuple[str, ...]:
    """List the names of the stacks of the catalogue, in alphabetical order."""
    return tuple(catalogue("stacks"))


@cache
@cached_on_disk
def calibrated() -> Assumptions:
    """Return the values for all or most software (calibrated.yaml), which the files of stacks change."""
    return replace(PAPER, name=CALIBRATED).with_values(calibrated_file().changes())


def calibrated_file() -> "AssumptionsFile":
    """Read and check the file of the values for all or most software."""
    from traincast.catalog.schema.messages import check
    from traincast.catalog.schema.software_stack import CALIBRATED_SCHEMA

    return check(CALIBRATED_SCHEMA, read_document(CALIBRATED_FILE), CALIBRATED)


@dataclass(frozen=True)
class Stack:
    """A software by its name: a stack of the catalogue, or one with facts changed.

    Assumptions that are of no software, such as those of a preset, are called by a name as well: `is_known`
    says whether it is one of a software. What else is asked of other names raises `InputError`, which says
    that the catalogue has no such stack, or that a fact or its value is not known.

    Parameters
    ----------
    name : str
        Name of the catalogue, such as ``"megatron-core-2025"``, and facts that differ from its own, such as
        ``"megatron-core-2025+dispatcher=deepep"``.

    Examples
    --------
    >>> Stack("megatron-core-2025+dispatcher=deepep").facts["dispatcher"]
    'deepep'
    """

    name: str

    DEFAULT: ClassVar[str] = "megatron-core-2025"  #: the stack that "calibrated" stands for
    FINE_TUNING: ClassVar[str] = "huggingface-eager"  #: of transformers, with which models are fine-tuned
    TPU: ClassVar[str] = "maxtext-2025"  #: on TPUs, which run JAX
    PLAIN_LOOP: ClassVar[str] = "pytorch"  #: the stack that `traincast measure` fits
    # and for models with experts: the fused dispatcher of tokens is predicted faster wherever experts are
    FUSED_DISPATCHER: ClassVar[str] = "megatron-core-deepep"
    ANY: ClassVar[tuple[str, ...]] = ("any",)  #: `Assumptions.unsaid` where no framework is stated either

    _made: ClassVar[dict[str, "Stack"]] = {}  # by name: what is found out about one is kept

    def __new__(cls, name: str) -> "Stack":
        """Return the software of a name, the same object each time as long as it is kept."""
        if len(cls._made) >= KEPT:  # a server is asked for names without end
            cls._made.clear()
        return cls._made.setdefault(name, super().__new__(cls))

    def __getnewargs__(self) -> tuple[str]:
        return (self.name,)

    @classmethod
    def of_assumptions(cls, name: str) -> "Stack":
        """Return the software of the name of assumptions: the default one of "calibrated"."""
        return cls(cls.DEFAULT if name == CALIBRATED else name)

    @classmethod
    def usual(cls, model: "Model") -> "Stack":
        """Return the stack that "calibrated" stands for with a model."""
        return cls(cls.DEFAULT if model.experts is None else cls.FUSED_DISPATCHER)

    @classmethod
    def releases_of(cls, framework: str) -> tuple["Stack", ...]:
        """Return the stacks that stand for a framework, the earliest first."""
        return tuple(cls(name) for name, _ in _releases_of(framework))

    @classmethod
    def of_framework(cls, framework: str, released: str = "") -> "Stack | None":
        """Return the stack that stands for a framework at a release; without one its usual stack.

        None where the catalogue has no software of the framework. Before the first release it is the first.
        """
        name = _stack_of(framework, released)
        return None if name is None else cls(name)

    @property
    def is_known(self) -> bool:
        """Whether it is a stack of the catalogue, or such a stack with facts changed."""
        return self.base in catalogue("stacks")

    @cached_property
    def base(self) -> str:
        """The stack of the catalogue that its name begins with."""
        return self.name.lower().partition(CHANGED)[0]

    @cached_property
    def fitted_name(self) -> str:
        """The stack whose runs the constants and errors of assumptions of this name are fitted to.

        Of a stack with facts changed it is that of the catalogue.
        """
        return self.DEFAULT if self.name == CALIBRATED else self.name.partition(CHANGED)[0]

    @cached_property
    @cached_on_disk
    def assumptions(self) -> Assumptions:
        """Its assumptions: the values for all software, and those that it changes."""
        file = self.file
        return replace(calibrated(), name=file.name).with_values(file.changes())

    @property
    def file(self) -> "StackFile":
        """All that the catalogue has of it, with sources.

        Its values are those of its framework, release and facts, and its own.
        """
        from traincast.catalog.schema.messages import check
        from traincast.catalog.schema.software_stack import STACK

        if CHANGED in self.name:
            name = Stack(self.base).with_facts(self._stated_facts).name
            if name != self.name:
                return Stack(name).file
        own = self.own_file
        values = _values_of(self.facts)
        if self.facts.get("dispatcher") in FUSED:
            alone = _values_of(self.facts | {"dispatcher": "alltoall"})
            values |= {
                local: alone[path] for local, path in LOCAL.items() if alone.get(path) != values.get(path)
            }
        stated = {path: getattr(own, path) for path in own.changes()}
        changed = [f"{fact} = {value}" for fact, value in self._stated_facts.items()]
        title = ", ".join([own.title or own.name, *changed])
        of_software = {fact: value for fact, value in self.facts.items() if fact not in ALWAYS_GIVEN}
        names = {"name": self.name.lower(), "title": title, "facts": of_software}
        document = own.model_dump(exclude=set(ASSUMPTIONS)) | names
        return check(STACK, document, self.name).model_copy(update=values | stated)

    @property
    def own_file(self) -> "StackFile":
        """The file of the stack of the catalogue that its name begins with, read and checked."""
        from traincast.catalog.schema.messages import check
        from traincast.catalog.schema.software_stack import STACK

        document = catalogue_entry("stacks", self.base)
        if document is None:
            raise unknown_name_error("stack", self.name, stack_names())
        return check(STACK, document, self.name)

    def sourced_values(self) -> dict[str, tuple[object, str]]:
        """Return each value that it sets, or that all software has, by path, with its source in words."""
        return _sourced_values(self.name)

    # Its facts

    @cached_property
    def facts(self) -> dict[str, str]:
        """Its framework, release and facts; those that neither framework nor name settles are missing."""
        found = dict(_own_facts(self.base)) | self._stated_facts
        return {fact: found[fact] for fact in OF_SOFTWARE if fact in found}

    @cached_property
    def _stated_facts(self) -> dict[str, str]:
        """The facts that its name itself changes: what follows a stack of the catalogue in it.

        Values of one fact may be joined by a plus sign, as those of different facts are.
        """
        parts: list[str] = []
        for part in self.name.split(CHANGED)[1:]:
            if "=" in part or not parts:
                parts.append(part)
            else:
                parts[-1] += f"{CHANGED}{part}"
        problems = [f"{part!r}: write FACT=VALUE" for part in parts if "=" not in part]
        raise_problems(f"software {self.name}", problems)
        return self._check_facts({part.partition("=")[0]: part.partition("=")[2] for part in parts})

    def _check_facts(self, facts: Mapping[str, str]) -> dict[str, str]:
        """Return facts in their own spelling; raise `InputError` with all that is not allowed."""
        read = {}
        problems = []
        for fact, value in facts.items():
            try:
                read[fact.strip().lower()] = check_fact(fact.strip().lower(), value)
            except ValueError as error:
                problems.append(str(error))
        raise_problems(f"software {self.name}", problems)
        return read

    def with_facts(self, facts: Mapping[str, str]) -> "Stack":
        """Return the software with some of its facts changed.

        Parameters
        ----------
        facts : mapping of str to str
            New values by fact, of `traincast.catalog.facts.OF_SOFTWARE`. With another framework or release,
            the rest is as that release has it, but for facts in which this one differs from its own release.

        Returns
        -------
        Stack
            That of the catalogue that has exactly these facts; else a release of the framework with the facts
            that differ, in the order of the table of facts.

        Raises
        ------
        InputError
            If the catalogue has no such stack, a fact or its value is not known, or no stack is of the
            framework.
        """
        base = Stack(self.base)
        own = base.facts
        stated = self._stated_facts | self._check_facts(facts)
        if any(stated.get(fact, own[fact]) != own[fact] for fact in ALWAYS_GIVEN):
            wanted = own | stated
            release = Stack.of_framework(wanted["framework"], wanted["released"])
            if release is None:
                problem = f"framework = {wanted['framework']}: the catalogue has no software of it"
                raise InputError(f"software {self.name}", [problem])
            usual = Stack.of_framework(own["framework"], own["released"]) or base
            differing = {fact: value for fact, value in own.items() if value != usual.facts.get(fact)}
            stated = differing | stated
            base = release
        of_software = {fact: value for fact, value in stated.items() if fact not in ALWAYS_GIVEN}
        target = base.facts | of_software
        return Stack(_canonical(base.name, tuple(target.items())))

    def has_fact(self, fact: str, value: str) -> bool:
        """Return whether it has a fact; of a release, whether it stands for it."""
        return _has_fact(self.name, fact, value)

    def contradicts(self, given: Mapping[str, str]) -> bool:
        """Return whether it states another value of one of some facts."""
        return any(fact in self.facts and not self.has_fact(fact, value) for fact, value in given.items())

    def with_given(self, given: Mapping[str, str]) -> "Stack":
        """Return the software with facts of a question; itself where it has them.

        Of another framework it is what stands for the release, or for the framework.

        Raises
        ------
        InputError
            Which names the facts, if the catalogue has no such software.
        """
        return Stack(_with_given(self.name, tuple(given.items())))

    # In words

    @cached_property
    def words(self) -> str:
        """Its stack, and the facts that differ from those of the stack.

        Examples
        --------
        >>> Stack("torchtitan-2024+compiled=false+kernels=unfused-rotation").words
        'torchtitan-2024, eager layers, unfused rotation'
        """
        if CHANGED not in self.name:
            return self.name
        parts = [self.base]
        for fact, value in self._stated_facts.items():
            words = fact_words(fact, value)
            is_bare = fact == "dispatcher" and not words.endswith(fact)  # such as all-gather
            parts.append(f"{words} {fact}" if is_bare else words)
        return ", ".join(parts)

    def fact_words(self, fact: str) -> str:
        """Return a fact that it has in words, such as 'eager layers'."""
        return fact_words(fact, self.facts[fact])

    @property
    def dated_words(self) -> str:
        """Its `words`, with the date of its release where the name has no year."""
        if not self.is_known:
            return self.name
        released = self.facts["released"]
        is_said = released[:4] in self.name or f"{released[2:4]}." in self.name
        return self.words if is_said else f"{self.words} (released {released})"

    # Its release

    @property
    def month(self) -> str:
        """Year and month of its release; of a year alone its middle."""
        return month(self.facts["released"])

    @cached_property
    @cached_on_disk
    def year(self) -> int | None:
        """The year of its software; None where the catalogue does not have it."""
        return self.own_file.year if self.is_known else None

    @cached_property
    @cached_on_disk
    def search_space(self) -> str | None:
        """The framework in whose space its plans are searched; None where the catalogue has none."""
        return search_spaces()[self.own_file.framework] if self.is_known else None

    @cached_property
    @cached_on_disk
    def releases(self) -> tuple[str, ...]:
        """The stacks that its framework, named without a release, leaves open (`Assumptions.unsaid`).

        The software is the usual one of the framework.
        """
        if self.year is None:
            return ()
        framework = self.own_file.framework
        family = next((family for family in SAME_CODE if framework in family), (framework,))
        alike = map(Stack, stack_names())
        years = ((stack.name, stack.year or 0) for stack in alike if stack.own_file.framework in family)
        return tuple(name for name, year in years if year >= self.year - YEARS_BACK)

    @property
    def open_software(self) -> tuple[str, ...]:
        """What is left open where no framework is stated (`Assumptions.unsaid`).

        The software is the usual one of the question. Fine-tuning means transformers and what builds on it,
        so that its releases alone are open.
        """
        return self.releases if self.name == self.FINE_TUNING else self.ANY

    def calibrated_on(self, model: "Model", system: System | None, any_framework: bool = False) -> "Stack":
        """Return the software of the runs that a system is calibrated to; this one where it is of none.

        The constants of the machine are fitted together with it. It is of the same framework, unless
        `any_framework`, and of runs of the same kind of models, with experts or without.
        """
        kind = "dense" if model.experts is None else "experts"
        name = dict(system.calibrated_with).get(kind) if system is not None else None
        if name is None:
            return self
        found = Stack(name)
        return found if any_framework or found.search_space == self.search_space else self

    # Its constants

    @cached_property
    def runs_with(self) -> frozenset[str]:
        """What runs must train, and the host that they need, to have this stack; empty where all may."""
        return frozenset(word for word in (self.own_file.trains, self.own_file.host) if word)

    @cached_property
    @cached_on_disk
    def has_measured_pace(self) -> bool:
        """Whether measured runs say how fast the host issues the operations."""
        pace = getattr(self.file, "host.dispatch_seconds", None) if self.is_known else None
        return pace is not None and pace.basis in ("fitted", "measured")

    @property
    def constants(self) -> tuple[Constants, ...]:
        """The constants of its framework, release and facts, in the order in which they are applied."""
        return constants_of(self.facts)

    @cached_property
    @cached_on_disk
    def owners(self) -> tuple[tuple[str, frozenset[str]], ...]:
        """What its constants belong to, what counts first at the front, each with their paths.

        It is the stack of the catalogue itself, then its facts, release and framework (`constants`).
        """
        own = self.own_file
        entries = ((entry.name, frozenset(entry.values.changes())) for entry in self.constants)
        return (own.name, frozenset(own.changes())), *reversed(tuple(entries))

    def values_that_count(self, experts: bool) -> tuple[object, ...]:
        """Return the values of its constants; without `experts` not those of their layers."""
        left_out = frozenset() if experts else EXPERT_ASSUMPTIONS
        return tuple(value for path, value in self.assumptions.values().items() if path not in left_out)

    def same_software(self, experts: bool = True) -> "Stack":
        """Return the stack of the catalogue that has its constants, or itself.

        Facts that change no constant make no other software; it is one of the same framework. Without
        `experts` constants of their layers do not count.
        """
        return Stack(_same_software(self.name, experts))

    @cached_property
    @cached_on_disk
    def same_experts(self) -> tuple[str, ...]:
        """Itself and the stacks of the catalogue all of whose constants of a layer of experts it has.

        One whose layer has no constants of its framework runs a code of which nothing is known.
        """
        others = (Stack(other) for other in stack_names() if other != self.base)
        same = (
            other.name
            for other in others
            if other._constants_of_experts <= self._constants_of_experts and other._has_own_experts
        )
        return (self.name, *same)

    @cached_property
    def _constants_of_experts(self) -> frozenset[str]:
        """What the constants of a layer of experts belong to."""
        return frozenset(owner for owner, paths in self.owners if not EXPERT_ASSUMPTIONS.isdisjoint(paths))

    @property
    def _has_own_experts(self) -> bool:
        """Whether constants of a layer of experts are of its framework, not of all."""
        return any(
            entry.of_frameworks and not EXPERT_ASSUMPTIONS.isdisjoint(entry.values.changes())
            for entry in self.constants
        )


def _values_of(facts: Mapping[str, str]) -> dict[str, object]:
    """Return what framework, release and facts set, by path, with sources."""
    from traincast.catalog.schema.fields import Entry

    values: dict[str, object] = {}
    for entry in constants_of(facts):
        for path in entry.values.changes():
            value = getattr(entry.values, path)
            has_source = isinstance(value, Entry) and value.source is None
            values[path] = value.model_copy(update={"source": entry.values.source}) if has_source else value
    return values


@cache
def _canonical(base: str, facts: tuple[tuple[str, str], ...]) -> str:
    """Return the name of the software with all facts of a stack of the catalogue, and others."""
    target = dict(facts)
    own = Stack(base).facts
    if target == own:
        return base
    explained = [Stack(name) for name in _explained_stacks()]
    if base not in _explained_stacks():
        usual = base  # with values of its own, which no other has
    else:
        exact = [other.name for other in explained if other.facts == target]
        if exact:
            return exact[0]
        alike = [other for other in explained if all(other.facts[k] == own[k] for k in ALWAYS_GIVEN)]
        usual = next((other.name for other in alike if other.own_file.stands_for), base)
    before = Stack(usual).facts
    changed = [f"{fact}={target[fact]}" for fact in OF_SOFTWARE if target.get(fact) != before.get(fact)]
    return CHANGED.join([usual, *changed])


@cache
@cached_on_disk
def _explained_stacks() -> tuple[str, ...]:
    """Return the stacks all of whose constants are those of their facts."""
    return tuple(name for name in stack_names() if not Stack(name).own_file.changes())


@cache
@cached_on_disk
def _own_facts(base: str) -> tuple[tuple[str, str], ...]:
    """Return framework, release and facts of a stack of the catalogue."""
    file = Stack(base).own_file
    given = {"framework": file.framework, "released": file.released} | file.facts
    return tuple((fact, given[fact]) for fact in OF_SOFTWARE if fact in given)


@cache
@cached_on_disk
def _has_fact(name: str, fact: str, value: str) -> bool:
    """Return `Stack.has_fact`."""
    stack = Stack(name)
    own = stack.facts.get(fact)
    if fact == "released":
        return own == value or stack.with_facts({fact: value}).name == name
    if own is None:
        return False
    wider = WIDER.get(fact, {})
    if value in wider.get(own, ()) or own in wider.get(value, ()):
        return True
    return set(value.split("+")) <= set(own.split("+"))


@cache
@cached_on_disk
def _with_given(name: str, facts: tuple[tuple[str, str], ...]) -> str:
    """Return the name of `Stack.with_given`."""
    given = dict(facts)
    stack = Stack(name)
    framework = given.get("framework")
    if framework not in (None, stack.facts["framework"]):
        of_it = Stack.of_framework(str(framework), given.get("released", ""))
        if of_it is None:
            raise InputError("given", [f"framework = {framework}: the catalogue has no software of it"])
        stack = of_it
    lacking = {fact: value for fact, value in given.items() if not stack.has_fact(fact, value)}
    return stack.with_facts(lacking).name if lacking else stack.name


@cache
@cached_on_disk
def _same_software(name: str, experts: bool) -> str:
    """Return the name of `Stack.same_software`."""
    if CHANGED not in name:
        return name
    stack = Stack(name)
    own = stack.values_that_count(experts)
    explained = map(Stack, _explained_stacks())
    others = (other for other in explained if other.facts["framework"] == stack.facts["framework"])
    same = [other for other in others if other.values_that_count(experts) == own]
    return min(same, key=lambda other: (other.year != stack.year, other.name), default=stack).name


@cache
@cached_on_disk
def _releases_of(framework: str) -> tuple[tuple[str, str], ...]:
    """Return the stacks that stand for a framework, each with its first release, the earliest first."""
    files = [Stack(name).own_file for name in stack_names()]
    found = [(file.stands_for[framework], file.name) for file in files if framework in file.stands_for]
    return tuple((name, since) for since, name in sorted(found))


@cache
@cached_on_disk
def _stack_of(framework: str, released: str) -> str | None:
    """Return the name of `Stack.of_framework`."""
    known = _releases_of(framework)
    if not known:
        return None
    if not released:
        undated = [name for name, _ in known if framework in Stack(name).own_file.undated]
        return undated[0] if undated else known[-1][0]
    return next((name for name, since in reversed(known) if since <= month(released)), known[0][0])


def value_of_owner(owner: str, path: str) -> object:
    """Return the value of an assumption that belongs to a stack, or to an entry of the files of software."""
    if owner in stack_names():
        return Stack(owner).assumptions.value(path)
    values = next(entry.values for entry in constants() if entry.name == owner)
    return values.changes()[path]


def resolve(assumptions: str | Assumptions) -> Assumptions:
    """Return assumptions, or those of a name: a preset, a stack, or "calibrated" (the default stack)."""
    if isinstance(assumptions, Assumptions):
        return assumptions
    require_type("assumptions", assumptions, "a name or Assumptions", str)
    if assumptions == CALIBRATED:
        return replace(Stack(Stack.DEFAULT).assumptions, name=CALIBRATED, unsaid=Stack.ANY)
    if assumptions in PRESETS:
        return PRESETS[assumptions]
    stack = Stack(assumptions)
    if stack.is_known:
        return stack.assumptions
    raise unknown_name_error("assumptions", assumptions, (CALIBRATED, *PRESETS, *stack_names()))


def with_fitted_values(system: System, assumed: Assumptions) -> Assumptions:
    """Return the assumptions of a stack with the values of its accelerator, and those fitted on a system.

    Of the accelerator they are its context and workspaces; `System.software` has those that were fitted. On
    CPUs, of which no published stack is, what was fitted of a plain loop in PyTorch holds for the others.
    """
    fitted: dict[str, object] = {}
    chip = system.accelerator
    memory = assumed.memory
    if chip.context_bytes is not None and memory.context_bytes:
        fitted["memory.context_bytes"] = chip.context_bytes
        if not chip.context_bytes:
            fitted["memory.communication_bytes"] = 0.0  # where the driver keeps both
    outside = (1 - memory.pool_share) * chip.visible_bytes
    if memory.pool_share < 1 and outside > memory.context_bytes + memory.communication_bytes:
        fitted |= {"memory.context_bytes": outside, "memory.communication_bytes": 0.0}
    if chip.workspace_bytes is not None and memory.counts_workspaces:
        fitted["memory.workspace_bytes"] = chip.workspace_bytes
    for stack in (*([Stack.PLAIN_LOOP] if system.is_cpu else []), Stack(assumed.name).fitted_name):
        for software in system.software:
            if software.stack == stack:
                fitted |= dict(software.figures)
    return assumed.with_values(fitted) if fitted else assumed


@cached_on_disk
def _sourced_values(name: str) -> dict[str, tuple[object, str]]:
    """Return the values of a stack with their sources, of all software where it sets none."""
    found: dict[str, tuple[object, str]] = {}
    for file in (calibrated_file(), Stack(name).file):
        for path, value in file.changes().items():
            entry = getattr(file, path)
            basis = getattr(entry, "basis", None)
            source = getattr(entry, "source", None) or file.source
            found[path] = value, f"{file.name}: {source}" + (f" ({basis})" if basis else "")
    return found
