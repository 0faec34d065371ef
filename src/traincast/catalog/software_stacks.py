"""Software stacks: a framework of a year with its facts, and the assumptions that they amount to.

A stack of the catalogue has a name, a framework, a release and facts. Any other combination is named by what
differs from one of them: ``megatron-core-2025+dispatcher=deepep``.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from traincast.catalog.disk_cache import cached_on_disk
from traincast.catalog.documents import catalogue, catalogue_entry, read_document
from traincast.catalog.facts import ALWAYS_GIVEN, OF_SOFTWARE, check_fact, fact_words
from traincast.catalog.software import constants, constants_of, month, search_spaces
from traincast.core import (
    ASSUMPTIONS,
    CALIBRATED,
    OF_EXPERTS,
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
DEFAULT_STACK = "megatron-core-2025"  #: the stack that "calibrated" stands for
FINE_TUNING_STACK: Final = "huggingface-eager"  #: of transformers, with which models are fine-tuned
TPU_STACK: Final = "maxtext-2025"  # on TPUs, which run JAX
# and for models with experts: the fused dispatcher of tokens is predicted faster wherever experts are
FUSED_DISPATCHER: Final = "megatron-core-deepep"
CHANGED: Final = "+"  # before each fact that a name changes
# Fused dispatchers, `flex` being one that is not named. "DeepEP dispatcher requires TPxEP > 1" (Megatron-Core
# 0.19.2, transformer/moe/token_dispatcher.py); of HybridEP on one rank no run is known
FUSED: Final = ("deepep", "hybridep", "flex")
# Constants of a layer with all experts on every rank → whose values they have, without such a dispatcher
LOCAL: Final = {
    "traffic.local_expert_passes": "traffic.expert_passes",
    "host.local_sync_seconds": "host.sync_seconds",
}


def stack_names() -> tuple[str, ...]:
    """List the names of the stacks of the catalogue, in alphabetical order."""
    return tuple(catalogue("stacks"))


@cache
@cached_on_disk
def calibrated() -> Assumptions:
    """Return the values for all or most software (calibrated.yaml), which the files of stacks change."""
    return replace(PAPER, name=CALIBRATED).with_values(calibrated_file().changes())


def names_stack(name: str) -> bool:
    """Return whether a name is one of a stack of the catalogue, or of such a stack with facts changed."""
    return base_stack(name) in catalogue("stacks")


def base_stack(name: str) -> str:
    """Return the stack of the catalogue that a name begins with."""
    return name.lower().partition(CHANGED)[0]


@cache
@cached_on_disk
def load_stack(name: str) -> Assumptions:
    """Load the assumptions of a software stack, of the catalogue or one with facts changed.

    Parameters
    ----------
    name : str
        Name of the catalogue, such as ``"megatron-core-2025"``, and facts that differ from its own, such as
        ``"megatron-core-2025+dispatcher=deepep"``.

    Raises
    ------
    InputError
        If the catalogue has no such stack, or a fact or its value is not known.
    """
    file = stack_file(name)
    return replace(calibrated(), name=file.name).with_values(file.changes())


def stack_file(name: str) -> "StackFile":
    """Return all that the catalogue has of a stack, with sources; arguments and errors as for `load_stack`.

    Its values are those of its framework, release and facts, and its own.
    """
    from traincast.catalog.schema.messages import check
    from traincast.catalog.schema.software_stack import STACK

    if CHANGED in name:
        name = with_facts(base_stack(name), _stated_facts(name))
    own = own_file(name)
    facts = facts_of(name)
    values = _values_of(facts)
    if facts.get("dispatcher") in FUSED:
        alone = _values_of(facts | {"dispatcher": "alltoall"})
        values |= {local: alone[path] for local, path in LOCAL.items() if alone.get(path) != values.get(path)}
    stated = {path: getattr(own, path) for path in own.changes()}
    changed = [f"{fact} = {value}" for fact, value in _stated_facts(name).items()]
    title = ", ".join([own.title or own.name, *changed])
    of_software = {fact: value for fact, value in facts.items() if fact not in ALWAYS_GIVEN}
    names = {"name": name.lower(), "title": title, "facts": of_software}
    return check(STACK, own.model_dump(exclude=set(ASSUMPTIONS)) | names, name).model_copy(
        update=values | stated
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


def own_file(name: str) -> "StackFile":
    """Read and check the file of a stack, of the one that the name begins with."""
    from traincast.catalog.schema.messages import check
    from traincast.catalog.schema.software_stack import STACK

    document = catalogue_entry("stacks", base_stack(name))
    if document is None:
        raise unknown_name_error("stack", name, stack_names())
    return check(STACK, document, name)


def facts_of(name: str) -> dict[str, str]:
    """Return framework, release and facts of a software; arguments and errors as for `load_stack`.

    Facts that neither the framework nor the name settles are missing.
    """
    found = dict(_own_facts(base_stack(name))) | _stated_facts(name)
    return {fact: found[fact] for fact in OF_SOFTWARE if fact in found}


def with_facts(name: str, facts: Mapping[str, str]) -> str:
    """Return the name of a software with some of its facts changed.

    Parameters
    ----------
    name : str
        A stack, as for `load_stack`.
    facts : mapping of str to str
        New values by fact, of `traincast.catalog.facts.OF_SOFTWARE`. With another framework or release, the
        rest is as that release has it, but for facts in which `name` differs from its own release.

    Returns
    -------
    str
        The name of the catalogue of the software that has exactly these facts; else that of a release of the
        framework with the facts that differ, in the order of the table of facts.

    Raises
    ------
    InputError
        If the catalogue has no such stack, a fact or its value is not known, or no stack is of the framework.
    """
    base = base_stack(name)
    own = facts_of(base)
    stated = _stated_facts(name) | _check_facts(name, facts)
    if any(stated.get(fact, own[fact]) != own[fact] for fact in ALWAYS_GIVEN):
        wanted = own | stated
        release = stack_of(wanted["framework"], wanted["released"])
        if release is None:
            problem = f"framework = {wanted['framework']}: the catalogue has no software of it"
            raise InputError(f"software {name}", [problem])
        usual = facts_of(stack_of(own["framework"], own["released"]) or base)
        stated = {fact: value for fact, value in own.items() if value != usual.get(fact)} | stated
        base = release
    target = facts_of(base) | {fact: value for fact, value in stated.items() if fact not in ALWAYS_GIVEN}
    return _canonical(base, tuple(target.items()))


@cache
def _canonical(base: str, facts: tuple[tuple[str, str], ...]) -> str:
    """Return the name of the software with all facts of a stack of the catalogue, and others."""
    target = dict(facts)
    own = facts_of(base)
    if target == own:
        return base
    if base not in _explained_stacks():
        usual = base  # with values of its own, which no other has
    else:
        exact = [other for other in _explained_stacks() if facts_of(other) == target]
        if exact:
            return exact[0]
        alike = [
            other for other in _explained_stacks() if all(facts_of(other)[k] == own[k] for k in ALWAYS_GIVEN)
        ]
        usual = next((other for other in alike if own_file(other).stands_for), base)
    before = facts_of(usual)
    changed = [f"{fact}={target[fact]}" for fact in OF_SOFTWARE if target.get(fact) != before.get(fact)]
    return CHANGED.join([usual, *changed])


@cache
@cached_on_disk
def _explained_stacks() -> tuple[str, ...]:
    """Return the stacks all of whose constants are those of their facts."""
    return tuple(name for name in stack_names() if not own_file(name).changes())


def _stated_facts(name: str) -> dict[str, str]:
    """Return the facts that a name itself changes: what follows a stack of the catalogue in it.

    Values of one fact may be joined by a plus sign, as those of different facts are.
    """
    parts: list[str] = []
    for part in name.split(CHANGED)[1:]:
        if "=" in part or not parts:
            parts.append(part)
        else:
            parts[-1] += f"{CHANGED}{part}"
    problems = [f"{part!r}: write FACT=VALUE" for part in parts if "=" not in part]
    raise_problems(f"software {name}", problems)
    return _check_facts(name, {part.partition("=")[0]: part.partition("=")[2] for part in parts})


def _check_facts(name: str, facts: Mapping[str, str]) -> dict[str, str]:
    """Return facts in their own spelling; raise `InputError` with all that is not allowed."""
    read = {}
    problems = []
    for fact, value in facts.items():
        try:
            read[fact.strip().lower()] = check_fact(fact.strip().lower(), value)
        except ValueError as error:
            problems.append(str(error))
    raise_problems(f"software {name}", problems)
    return read


@cache
@cached_on_disk
def _own_facts(name: str) -> tuple[tuple[str, str], ...]:
    """Return framework, release and facts of a stack of the catalogue."""
    file = own_file(name)
    given = {"framework": file.framework, "released": file.released} | file.facts
    return tuple((fact, given[fact]) for fact in OF_SOFTWARE if fact in given)


@cache
@cached_on_disk
def releases_of(framework: str) -> tuple[tuple[str, str], ...]:
    """Return the stacks that stand for a framework, each with its first release, the earliest first."""
    files = map(own_file, stack_names())
    found = [(file.stands_for[framework], file.name) for file in files if framework in file.stands_for]
    return tuple((name, since) for since, name in sorted(found))


@cache
@cached_on_disk
def stack_of(framework: str, released: str = "") -> str | None:
    """Return the stack that stands for a framework at a release; without one its usual stack.

    None where the catalogue has no software of the framework. Before the first release it is the first one.
    """
    known = releases_of(framework)
    if not known:
        return None
    if not released:
        undated = [name for name, _ in known if framework in own_file(name).undated]
        return undated[0] if undated else known[-1][0]
    return next((name for name, since in reversed(known) if since <= month(released)), known[0][0])


def with_release(name: str) -> str:
    """Return a software as `stack_words` does, with the date of its release where the name has no year."""
    if not names_stack(name):
        return name
    released = facts_of(name)["released"]
    is_said = released[:4] in name or f"{released[2:4]}." in name
    words = stack_words(name)
    return words if is_said else f"{words} (released {released})"


@cache
def stack_words(name: str) -> str:
    """Return a software in words: its stack, and the facts that differ from those of the stack.

    Examples
    --------
    >>> stack_words("torchtitan-2024+compiled=false+kernels=unfused-rotation")
    'torchtitan-2024, eager layers, unfused rotation'
    """
    if CHANGED not in name:
        return name
    parts = [base_stack(name)]
    for fact, value in _stated_facts(name).items():
        words = fact_words(fact, value)
        is_bare = fact == "dispatcher" and not words.endswith(fact)  # such as all-gather
        parts.append(f"{words} {fact}" if is_bare else words)
    return ", ".join(parts)


@cache
@cached_on_disk
def same_software(name: str, experts: bool = True) -> str:
    """Return the stack of the catalogue that has the constants of a software, or the name as it is.

    Facts that change no constant make no other software; it is one of the same framework. Without `experts`
    constants of their layers do not count.
    """
    if CHANGED not in name:
        return name
    framework = facts_of(name)["framework"]
    own = values_that_count(name, experts)
    others = (other for other in _explained_stacks() if facts_of(other)["framework"] == framework)
    same = [other for other in others if values_that_count(other, experts) == own]
    year = stack_year(name)
    return min(same, key=lambda other: (stack_year(other) != year, other), default=name)


def values_that_count(name: str, experts: bool) -> tuple[object, ...]:
    """Return the values of the constants of a software; without `experts` not those of their layers."""
    left_out = frozenset() if experts else OF_EXPERTS
    return tuple(value for path, value in load_stack(name).values().items() if path not in left_out)


@cache
def runs_with(name: str) -> frozenset[str]:
    """Return what runs must train, and the host that they need, to have a stack; empty where all may."""
    file = own_file(name)
    return frozenset(word for word in (file.trains, file.host) if word)


@cache
@cached_on_disk
def owners(name: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """Return what the constants of a stack belong to, what counts first at the front, each with their paths.

    It is the stack of the catalogue itself, then its facts, release and framework (`software.constants_of`).
    """
    own = own_file(name)
    entries = ((entry.name, frozenset(entry.values.changes())) for entry in constants_of(facts_of(name)))
    return (own.name, frozenset(own.changes())), *reversed(tuple(entries))


def value_of_owner(owner: str, path: str) -> object:
    """Return the value of an assumption that belongs to a stack, or to an entry of the files of software."""
    if owner in stack_names():
        return load_stack(owner).value(path)
    values = next(entry.values for entry in constants() if entry.name == owner)
    return values.changes()[path]


@cache
@cached_on_disk
def same_experts(name: str) -> tuple[str, ...]:
    """Return a stack and those of the catalogue all of whose constants of a layer of experts it has.

    One whose layer has no constants of its framework runs a code of which nothing is known.
    """
    known = _constants_of_experts(name)
    others = (other for other in stack_names() if other != base_stack(name))
    same = [other for other in others if _constants_of_experts(other) <= known and _has_own_experts(other)]
    return (name, *same)


def _constants_of_experts(stack: str) -> frozenset[str]:
    """Return what the constants of a layer of experts of a stack belong to."""
    return frozenset(owner for owner, paths in owners(stack) if not OF_EXPERTS.isdisjoint(paths))


def _has_own_experts(stack: str) -> bool:
    """Return whether constants of a layer of experts are of the framework of a stack, not of all."""
    entries = constants_of(facts_of(stack))
    return any(entry.of_frameworks and not OF_EXPERTS.isdisjoint(entry.values.changes()) for entry in entries)


@cache
@cached_on_disk
def stack_year(name: str) -> int | None:
    """Return the year of a stack's software; None where the catalogue does not have it."""
    return own_file(name).year if names_stack(name) else None


@cache
@cached_on_disk
def has_measured_pace(name: str) -> bool:
    """Return whether measured runs say how fast the host issues the operations of a software."""
    pace = getattr(stack_file(name), "host.dispatch_seconds", None) if names_stack(name) else None
    return pace is not None and pace.basis in ("fitted", "measured")


def calibrated_file() -> "AssumptionsFile":
    """Read and check the file of the values for all or most software."""
    from traincast.catalog.schema.messages import check
    from traincast.catalog.schema.software_stack import CALIBRATED_SCHEMA

    return check(CALIBRATED_SCHEMA, read_document(CALIBRATED_FILE), CALIBRATED)


def usual_stack(model: "Model") -> str:
    """Return the stack that "calibrated" stands for with a model."""
    return DEFAULT_STACK if model.experts is None else FUSED_DISPATCHER


def fitted_stack(name: str) -> str:
    """Return the stack whose runs the constants and errors of named assumptions are fitted to.

    Of a stack with facts changed it is that of the catalogue.
    """
    return DEFAULT_STACK if name == CALIBRATED else name.partition(CHANGED)[0]


ANY_SOFTWARE: Final = ("any",)  # `Assumptions.unsaid` where no framework is stated either
# Frameworks whose models are of the same code: those of NeMo and Megatron-Bridge are Megatron-Core's
SAME_CODE: Final = (
    ("Megatron-Core", "Megatron-Bridge", "NeMo", "Megatron-LM"),
    ("MLPerf", "MLPerf-ROCm"),
    ("Transformers", "Transformers-DeepSpeed"),
)
# A framework named without a release is of its usual stack's year, the year before, or later.
YEARS_BACK: Final = 1


@cache
@cached_on_disk
def stack_framework(name: str) -> str | None:
    """Return the framework in whose space a stack's plans are searched; None where the catalogue has none."""
    return search_spaces()[own_file(name).framework] if names_stack(name) else None


@cache
@cached_on_disk
def releases(usual: str) -> tuple[str, ...]:
    """Return the stacks that a framework named without a release leaves open (`Assumptions.unsaid`).

    `usual`: its usual stack.
    """
    year = stack_year(usual)
    if year is None:
        return ()
    framework = own_file(usual).framework
    family = next((family for family in SAME_CODE if framework in family), (framework,))
    alike = [name for name in stack_names() if own_file(name).framework in family]
    return tuple(name for name in alike if (stack_year(name) or 0) >= year - YEARS_BACK)


def unstated_software(usual: str) -> tuple[str, ...]:
    """Return what is left open where no framework is stated (`Assumptions.unsaid`).

    `usual` is the stack that is usual for the question. Fine-tuning means transformers and what builds on it,
    so that its releases alone are open.
    """
    return releases(usual) if usual == FINE_TUNING_STACK else ANY_SOFTWARE


def is_fitted(system: System) -> bool:
    """Return whether times on a system are fitted to its own software, whatever that is."""
    return bool(system.software or system.calibrated_to or system.is_cpu)


def calibrated_stack(usual: str, model: "Model", system: "System | None", any_framework: bool = False) -> str:
    """Return the software of the runs that a system is calibrated to; the usual stack where it is of none.

    The constants of the machine are fitted together with it. It is of the usual stack's framework, unless
    `any_framework`, and of runs of the same kind of models, with experts or without.
    """
    kind = "dense" if model.experts is None else "experts"
    name = dict(system.calibrated_with).get(kind) if system is not None else None
    if name is None or not (any_framework or stack_framework(name) == stack_framework(usual)):
        return usual
    return name


def resolve(assumptions: str | Assumptions) -> Assumptions:
    """Return assumptions, or those of a name: a preset, a stack, or "calibrated" (the default stack)."""
    if isinstance(assumptions, Assumptions):
        return assumptions
    require_type("assumptions", assumptions, "a name or Assumptions", str)
    if assumptions == CALIBRATED:
        return replace(load_stack(DEFAULT_STACK), name=CALIBRATED, unsaid=ANY_SOFTWARE)
    if assumptions in PRESETS:
        return PRESETS[assumptions]
    if names_stack(assumptions):
        return load_stack(assumptions)
    raise unknown_name_error("assumptions", assumptions, (CALIBRATED, *PRESETS, *stack_names()))


PLAIN_LOOP: Final = "pytorch"  # the stack that `traincast measure` fits


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
    for stack in (*([PLAIN_LOOP] if system.is_cpu else []), fitted_stack(assumed.name)):
        for software in system.software:
            if software.stack == stack:
                fitted |= dict(software.figures)
    return assumed.with_values(fitted) if fitted else assumed
