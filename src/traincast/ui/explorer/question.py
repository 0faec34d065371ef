"""Requests of the page: a state, as JSON or in the address, checked into a model, a machine and a search."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, cast

from pydantic import ValidationError

from traincast.catalog import (
    AcceleratorPart,
    Entry,
    InnerTier,
    MiddleTier,
    OuterTier,
    Part,
    Quantity,
    Training,
    known_name,
    load_model,
    load_system,
    parse_document,
    read_model,
)
from traincast.core import (
    COLUMNS,
    ErrorCollector,
    InputError,
    Plan,
    System,
    close_to,
    first_problems,
    is_whole,
    parse_count,
    raise_problems,
    type_problems,
    whole_number_problems,
)
from traincast.model import Model
from traincast.planner import LOCKABLE, Question, SearchRequest, search_request, vary_system
from traincast.step import Estimate, Estimates, check_gbs, check_given, estimate, metrics
from traincast.ui.explorer.limits import MOST_PLANS

LOCKS: Final = LOCKABLE  # knobs and choices that can be locked to one value
PAGE_ONLY: Final = ("pin", "view")  # keys of the address that only the page reads
MEASURED: Final = ("step_seconds", "mfu")  # fields of a request on a plan that was run
PASTED: Final = "pasted-model"
BESIDE_STATE: Final = (
    "plan",
    "plans",
    "sizes",
    *MEASURED,
)  # fields of a request that are no fields of a state
MAX_WHOLE: Final = 1e18  # beyond it a float is a mistake, not a count
CACHED_FILES: Final = 64
CACHED_QUESTIONS: Final = 256
_offered: dict[str, System] = {}  # systems of files that the server offers besides the catalogue's


@lru_cache(CACHED_FILES)
def _catalogue_model(name: str, *, seq: int | None = None) -> Model:
    """Load a model of the catalogue; a file of that name is not considered."""
    return load_model(known_name("model", name), seq=seq)


@lru_cache(CACHED_FILES)
def _catalogue_system(name: str) -> System:
    """Load a system of the catalogue; a file of that name is not considered."""
    return load_system(known_name("system", name))


@dataclass(frozen=True)
class State:
    """The state of the page; fields as received, None where model, framework or assumptions decide."""

    model: Any = "llama-3-70b"
    system: Any = "dgx-h100"
    figures: Any = field(default_factory=dict)
    gpus: Any = 512
    global_batch: Any = None
    seq: Any = None
    framework: Any = None
    strategy: Any = None
    objective: Any = "time"
    assumptions: Any = None
    given: Any = None
    locks: Any = field(default_factory=dict)
    top: Any = 10
    tokens: Any = None
    price: Any = None
    restart: Any = None
    train: Any = None
    lengths: Any = None
    images: Any = None
    image_size: Any = None
    frozen_tower: Any = False


FIELDS: Final = tuple(entry.name for entry in fields(State))
MAX_KEYS: Final = 200  # of the figures and the locks of a question; there are fewer of either


def read_state(content: Mapping[str, object]) -> State:
    """Return a state from JSON; fields left out or null have their default, and 1e3 is 1000."""
    unknown = [name for name in content if name not in FIELDS]
    if unknown:
        raise InputError(
            "state",
            first_problems(unknown, lambda name: f"{name}: no field of a state; {close_to(name, FIELDS)}"),
        )
    for name in ("figures", "locks"):
        given = content.get(name)
        if isinstance(given, Mapping) and len(given) > MAX_KEYS:
            raise InputError("state", [f"{name}: {len(given):,} keys; at most {MAX_KEYS} are read"])
    return State(**{name: _plain(value) for name, value in content.items() if value is not None})


def _plain(value: Any) -> Any:
    """Return whole floats as int, also where they are values of an object."""
    if isinstance(value, dict):
        return {name: item if isinstance(item, dict) else _plain(item) for name, item in value.items()}
    is_whole_float = isinstance(value, float) and value.is_integer() and abs(value) < MAX_WHOLE
    return int(value) if is_whole_float else value


def read_address(query: Iterable[tuple[str, str]]) -> tuple[State, list[str]]:
    """Return a state from the query of an address (fields, locks and paths of figures), and what is wrong."""
    state_fields: dict[str, object] = {}
    figures: dict[str, object] = {}
    locks: dict[str, object] = {}
    problems = []
    for key, text in query:
        if key in PAGE_ONLY:
            continue
        target = figures if "." in key else locks
        if key in FIELDS:
            target = state_fields
        if key in target:
            problems.append(f"{key}: stands twice in the address")
        elif key in ("figures", "locks") or (target is locks and key not in LOCKS):
            problems.append(f"{key}: no key of an address; {close_to(key, (*FIELDS, *LOCKS))}")
        else:
            try:
                target[key] = _parsed_value(key, text)
            except InputError as error:
                problems += error.problems
    return read_state(state_fields | {"figures": figures, "locks": locks}), problems


def read_pins(query: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return what only the page reads of an address: the pinned plans, and which plan it shows."""
    page: dict[str, Any] = {"pins": [], "view": "best"}
    for key, text in query:
        if key == "view":
            page["view"] = text
        elif key == "pin":
            parts = (part.partition("-") for part in text.split())
            page["pins"].append({name: _parsed_value(name, value) for name, _, value in parts})
    return page


def _parsed_value(key: str, text: str) -> Any:
    """Return a value of the address: a number, boolean or model where it reads as one."""
    if key == "model" and text.lstrip().startswith("{"):
        return parse_document(text, "json")
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text) if len(text) < 32 else text
        except ValueError:
            continue
    return text


def canonical_text(request: Mapping[str, object]) -> str:
    """Return a request as JSON with sorted keys."""
    return json.dumps(request, sort_keys=True)


@lru_cache(CACHED_QUESTIONS)
def normal_text(text: str) -> str:
    """Return a request as JSON that is the same for every spelling of its question: a key of caches.

    Defaults are filled in; those of a pasted model by the worker alone, whose memory is limited. What cannot
    be answered stays as it is, for the worker to refuse.
    """
    request = json.loads(text)
    beside = {name: request.pop(name) for name in BESIDE_STATE if request.get(name) is not None}
    try:
        state = read_state(request)
        is_pasted = not isinstance(state.model, str)
        if is_pasted:
            return canonical_text(asdict(state) | beside)
        case = check_state(state)
        # software that is not stated stays so: its interval is another one
        kept = ["framework", "assumptions"]
        if case.model.taken:  # and what is assumed of the job, which the answer says
            kept += ["global_batch", "seq"]
        unsaid = {name: None for name in kept if getattr(state, name) is None}
        return canonical_text(case.normal | unsaid | beside)
    except MemoryError:
        raise
    except Exception:
        return text


@dataclass(frozen=True)
class ExplorerCase:
    """A valid state with its model, its machine and its search request."""

    state: State
    model: Model
    system: System
    question: SearchRequest

    @property
    def normal(self) -> dict[str, Any]:
        """The state with defaults filled in."""
        question = self.question
        of_catalogue = isinstance(self.state.model, str)
        known = {
            "model": known_name("model", self.state.model) if of_catalogue else self.state.model,
            "system": _known_system_name(self.state.system),
            "global_batch": question.gbs,
            "seq": self.model.seq,
            "framework": question.framework.label,
            "strategy": list(question.framework.strategies),
            "assumptions": question.assumptions.name,
            "given": ",".join(f"{fact}={value}" for fact, value in question.assumptions.given) or None,
            "figures": {path: figure_at(self.system, path) for path in self.state.figures},
            "tokens": tokens_of(self.state),
        }
        return asdict(self.state) | known

    def estimate(self, plan: Plan) -> Estimate:
        """Return the estimate of a plan."""
        return estimate(
            self.model, self.system, plan, gbs=self.question.gbs, assumptions=self.question.assumptions
        )

    def metrics(self, est: Estimate | Estimates) -> dict[str, Any]:
        """Return throughput, utilisation and cost of an estimate."""
        state = self.state
        return vars(metrics(est, price=state.price, restart_seconds=state.restart))


def _known_system_name(name: str) -> str:
    """Return a system's own name in the catalogue, or the path under which it is offered."""
    return name if name in _offered else known_name("system", name)


def figure_at(system: System, path: str) -> float:
    """Return a figure of a machine by its path, including sizes of tiers."""
    size = next((tier.size for i, tier in enumerate(system.tiers) if path == f"network.{i}.size"), None)
    return float(system.figures()[path] if size is None else size)


def check_state(state: State, sizes: tuple[int, ...] | None = None) -> ExplorerCase:
    """Return a state as a search request, on its own number of GPUs or on several."""
    errors = ErrorCollector("search")
    model = errors.catch(model_of, state)
    system = errors.catch(system_of, state)
    gbs = errors.catch(check_gbs, state.global_batch, model)
    errors.catch(_check_types, state)
    tokens = errors.catch(tokens_of, state)
    errors.catch(check_given, price=state.price, restart_seconds=state.restart)
    if model is not None and tokens:
        model = replace(model, training_sequences=tokens / model.seq)
    question = Question(
        model=model,
        system=system,
        gpus=sizes or (state.gpus,),
        gbs=gbs,
        assumptions=state.assumptions,
        given=state.given,
        strategy=state.strategy,
        top=state.top,
        framework=state.framework,
        locks=state.locks,
        objective=state.objective,
    )
    checked = search_request(errors, question)
    require = errors.require
    return ExplorerCase(state, require(model), require(system), require(checked))


def model_of(state: State) -> Model:
    """Return the model of a state: one of the catalogue, or a pasted one, and what of it is trained."""
    training = _training(state)
    model = training.apply_to(training.load(partial(_describe_model, state), state.seq))
    has_batch = state.global_batch is not None
    return training.with_assumed(model, has_length=state.seq is not None, has_batch=has_batch)


def _training(state: State) -> Training:
    """Return the adapters, reference, documents and images of a state; files are not read."""
    texts = {"train": state.train, "lengths": state.lengths}
    numbers = {"images": state.images, "image_size": state.image_size}
    problems = [
        line for name, text in texts.items() for line in type_problems(name, text, "a text", str, type(None))
    ]
    problems += [
        problem
        for name, value in numbers.items()
        if value is not None
        for problem in whole_number_problems(name, value)
    ]
    problems += type_problems("frozen_tower", state.frozen_tower, "true or false", bool)
    if problems:
        raise InputError("search", problems)
    seen = (state.images, state.image_size, state.frozen_tower)
    return Training.read(state.train, state.lengths, *seen, files=False)


def _describe_model(state: State, seq: Any) -> Model:
    """Return the model of a state as it is described, with sequences of a length [tokens]."""
    if wrong := type_problems("model", state.model, "a name of the catalogue, or an object", str, Mapping):
        raise InputError("search", wrong)
    if seq is not None:
        raise_problems("search", whole_number_problems("seq", seq))
    if isinstance(state.model, str):
        return _catalogue_model(state.model, seq=seq)
    return read_model(state.model, PASTED, seq=seq)


def offer(files: Iterable[str]) -> None:
    """Offer the systems of files, such as calibrated ones, under their paths; the page opens no other file.

    Raises `InputError` if a file describes no system; all mistakes at once.
    """
    errors = ErrorCollector("serve")
    read = {file: errors.catch(load_system, Path(file)) for file in files}
    errors.raise_any()
    _offered.clear()
    _offered.update({file: system for file, system in read.items() if system is not None})


def offered_systems() -> Mapping[str, System]:
    """Return the systems that the server offers besides the catalogue's, by the paths of their files."""
    return _offered


def catalogue_system(name: object) -> System:
    """Return a system of the catalogue, read once, or one that the server offers."""
    if wrong := type_problems("system", name, "a name of the catalogue", str):
        raise InputError("search", wrong)
    return _offered[name] if name in _offered else _catalogue_system(name)


def system_of(state: State) -> System:
    """Return the system of a state, with the given figures in place of the catalogue's."""
    system = catalogue_system(state.system)
    if wrong := type_problems("figures", state.figures, "an object of paths and values", Mapping):
        raise InputError("search", wrong)
    known = entries(system)
    unknown = [path for path in state.figures if path not in known]
    problems = first_problems(
        unknown, lambda path: f"{path}: no figure of {system.name}; {close_to(path, known)}"
    )
    values = {}
    for path, raw in state.figures.items():
        if path not in known:
            continue
        try:
            values[path] = known[path].model_validate({"value": _with_unit(raw, known[path])}).value
        except ValidationError as error:
            detail = error.errors()[0]
            problems.append(
                f"{path} = {str(raw)[:60]!r}: {detail.get('ctx', {}).get('error', detail['msg'])}"
            )
    if problems:
        raise InputError("figures", problems)
    return vary_system(system, values)


def _with_unit(raw: Any, entry: type[Entry]) -> Any:
    """Return a bare number as text in SI, where a file has to spell the unit."""
    number = issubclass(entry, Quantity) and isinstance(raw, int | float) and not isinstance(raw, bool)
    return f"{float(raw)!r} {entry.unit}" if number and abs(raw) < 1e300 else raw


def entries(system: System) -> dict[str, type[Entry]]:
    """Return the schema type of each figure of a machine by its path."""
    outer = len(system.tiers) - 1
    parts: list[type[Part]] = [InnerTier, *[MiddleTier] * (outer - 1), OuterTier]
    sizes = [f"network.{i}.size" for i in range(outer)]
    kinds = {}
    for path in (*system.figures(), *sizes):
        *_, place, name = path.split(".")
        part = AcceleratorPart if path.startswith("accelerator.") else parts[int(place)]
        if path in COLUMNS and name in part.model_fields:
            annotation = part.model_fields[name].annotation  # a type, or the union of a type with None
            kinds[path] = cast(type[Entry], getattr(annotation, "__args__", (annotation,))[0])
    return kinds


def tokens_of(state: State) -> int | None:
    """Return the tokens of the whole run, if given."""
    if state.tokens is None:
        return None
    return parse_count(str(state.tokens)[:40], "tokens", 1000)


def _check_types(state: State) -> None:
    """Refuse what no argument of a search can be, beyond what the search itself refuses."""
    problems = type_problems("locks", state.locks, "an object of knobs and values", Mapping)
    problems += type_problems("objective", state.objective, "a name", str)
    problems += type_problems("given", state.given, "a text", str, type(None))
    problems += type_problems("strategy", state.strategy, "a name or a list of names", str, list, type(None))
    if is_whole(state.top) and state.top > MOST_PLANS:
        problems.append(f"top = {state.top}: must be at most {MOST_PLANS}")
    problems += nested_values(state.locks if isinstance(state.locks, Mapping) else {})
    if problems:
        raise InputError("search", problems)


def nested_values(values: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with knobs and choices that are lists or objects."""
    nested = {name: str(value)[:60] for name, value in values.items() if isinstance(value, list | dict)}
    return [f"{name} = {value}: must be a number, a word or a truth value" for name, value in nested.items()]
