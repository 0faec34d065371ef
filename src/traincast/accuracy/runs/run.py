"""Measured training runs: a table with one row for each, read into a model, a machine and a plan.

A row that cannot be read gives the reason. Stated values are taken as they are; open ones are filled in by
rules that hold for all rows (docs/validation.md), and the run lists what was assumed. Columns of sentences
(`notes`, `source`, `url`, the details) are not read. The bundled runs were read once, by
calibration/normalise.py.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, get_args

from traincast.accuracy.runs.cells import (
    FACT,
    ROW,
    SOFTWARE,
    Cells,
    Unreadable,
    first_match,
    is_file,
    patterns,
)
from traincast.accuracy.runs.facts import read_facts
from traincast.accuracy.runs.model import SIZES, note_unmodelled, separate_model_file, shape
from traincast.accuracy.runs.plan import DEGREES, fill_plan, fits_with_slack, plan, policies
from traincast.accuracy.runs.recipe import OF_FACTS, assume_recipe
from traincast.accuracy.runs.reported_memory import Reported
from traincast.catalog import (
    ALWAYS_GIVEN,
    MAX_TABLE_BYTES,
    OF_SOFTWARE,
    Stack,
    accelerator_called,
    catalogue,
    load_accelerator,
    load_system,
    read_text,
    stack_names,
    systems_with,
)
from traincast.core import (
    CALIBRATED,
    PRECISIONS,
    InputError,
    Plan,
    Precision,
    System,
    TraincastError,
    first_problems,
    raise_problems,
)
from traincast.launch import setting_names
from traincast.model import Experts, Latent, Local, Model
from traincast.step import errors, host_of

system_of: Final = lru_cache(load_system)  # a system of the catalogue, read once for all rows
SMALL_NODE: Final = 4  # accelerators of a node, half of the usual 8
NEEDED: Final = ("gpus", "seq", "precision", "gbs")  # columns that nothing stands for
OF_MEGATRON: Final = ("layers", "hidden", "heads", "ffn", "seq", "tp", "pp", "cp", "ep", "mbs", "gbs")
OTHER_NAMES: Final = {  # of columns: as arguments of Megatron-LM, and as tables often have them
    **{name: column for column in OF_MEGATRON for name in setting_names("megatron", column)},
    **{"micro_batch": "mbs", "global_batch": "gbs", "seq_len": "seq", "sequence_length": "seq"},
    **{"num_gpus": "gpus", "world_size": "gpus", "data_parallel_size": "dp", "step_time": "step_seconds"},
}
RATES: Final = ("step_seconds", "tokens_per_s_per_gpu", "tflops_published", "mfu_published")
MEASURED: Final = (*RATES, "memory_gb_published", "outcome")
Outcome = Literal["ran", "out-of-memory"]
MAX_MEMORY_GB: Final = 1e5  # of a rank [GB]
USUAL_POWER_LIMIT: Final = 0.75  # of the data sheet's, where a row says only that there is one
LIMITED: Final = "stated"  # `power_limit` of such a row
UNKNOWN_MACHINE: Final = frozenset({"gpus", "gpu"})  # columns without which memory alone is judged
PLAN_BY_DEFAULT: Final = frozenset({"pp", "accumulation"})  # columns that a framework's defaults fill in
LAST_RANK: Final = ("", "fullest", "last")  # whose memory it is: `memory_rank`
FULL_RECOMPUTE_FACTOR: Final = 4 / 3  # FLOPs of a layer with full recompute over those without
MODEL_PARTS: Final = {"latent": Latent, "local": Local, "experts": Experts}


def left_open(cells: Cells, stack: str, kinds: Collection[str]) -> tuple[str, ...]:
    """Return the stacks that a row may have run, where several; ("any",) without software.

    A row with a release and another fact of its software leaves none open. Of a release that was measured,
    those are open that its runs had.
    """
    if stack == CALIBRATED:
        return Stack.ANY
    stated = stated_facts(cells)
    released = cells.text("released")
    if Stack(cells.text("stack")).is_known or (released and stated):
        return ()
    measured = errors().software.releases.get(release_of(cells.text("framework"), released), ())
    found = [name for name in measured or _variants(cells) if _has(name, stated, kinds, bool(released))]
    own = Stack(stack)
    experts = "experts" in kinds
    others = {
        other.values_that_count(experts): other.name
        for other in map(Stack, found)
        if other.facts != own.facts
    }
    others.pop(own.values_that_count(experts), None)
    return tuple(sorted((stack, *others.values()))) if others else ()


def _variants(cells: Cells) -> tuple[str, ...]:
    """Return the stacks of the release that a row states, or of all releases of its framework."""
    framework = cells.text("framework")
    released = cells.text("released")
    of_date = (Stack.of_framework(framework, released),) if released else Stack.releases_of(framework)
    given = {tuple(map(stack.facts.get, ALWAYS_GIVEN)) for stack in of_date if stack}
    return tuple(name for name in stack_names() if tuple(map(Stack(name).facts.get, ALWAYS_GIVEN)) in given)


def _has(stack: str, facts: Mapping[str, str], kinds: Collection[str], is_dated: bool = True) -> bool:
    """Return whether a stack has facts, and is the one that runs of some kinds have with its facts."""
    own = Stack(stack).facts
    has_facts = all(own.get(fact) == value for fact, value in facts.items())
    return has_facts and _of_kinds(stack, kinds, is_dated) == stack


def _of_kinds(stack: str, kinds: Collection[str], is_dated: bool = True) -> str:
    """Return the stack that runs of some kinds have (`kinds_of`) of those with the facts of a stack.

    Where the row is not dated, the release may be another.
    """
    undated = () if is_dated else ("released",)
    own = Stack(stack).facts
    special = (name for name in stack_names() if set() < Stack(name).runs_with <= set(kinds))
    usual = stack if not Stack(stack).runs_with else ""
    return next((name for name in special if _alike(Stack(name).facts, own, undated)), usual)


def _alike(facts: Mapping[str, str], others: Mapping[str, str], but: Collection[str]) -> bool:
    """Return whether facts are the same, those left out that `but` names."""
    return all(facts.get(fact) == others.get(fact) for fact in OF_SOFTWARE if fact not in but)


def stated_facts(cells: Cells) -> dict[str, str]:
    """Return the facts of its software that a row states besides framework and release."""
    return {fact: cells.text(fact) for fact in OF_SOFTWARE if fact not in ALWAYS_GIVEN and cells.text(fact)}


def kinds_of(model: Mapping[str, object], system: System | None) -> set[str]:
    """Return what a run trains, and the host that it runs on, as files of stacks name them."""
    trained = {kind for kind in ("experts", "adapters", "diffusion", "mamba2") if model.get(kind) is not None}
    return trained | ({host_of(system.accelerator.name)} if system else set())


def release_of(framework: str, released: str) -> str:
    """Return framework and release, a space between them."""
    return f"{framework} {released}"


def software(cells: Cells, kinds: Collection[str] = ()) -> str:
    """Return the stack that a row names, or that of its framework, release and facts; "calibrated" without.

    `kinds`: as from `kinds_of`. Facts that change no constant of a stack make no other software.
    """
    named = Stack(cells.text("stack"))
    if named.is_known:
        return named.with_facts({}).name
    framework = cells.text("framework")
    released = cells.text("released")
    release = Stack.of_framework(framework, released) if framework else None
    if release is None:
        cells.assume("stack")
        return CALIBRATED
    usual = Stack(_of_kinds(release.name, kinds, bool(released)))
    stated = stated_facts(cells)
    cells.row["trains"] = " ".join(sorted(kinds))
    for fact in OF_FACTS:
        if fact not in stated and (usual_value := cells.choose(fact)):
            stated[fact] = usual_value
    found = _with_exactly(framework, released, stated) or usual.with_facts(stated)
    return found.same_software("experts" in kinds).name


def _with_exactly(framework: str, released: str, facts: Mapping[str, str]) -> Stack | None:
    """Return the latest stack of a framework that has all facts that an undated row states; None without."""
    usual = Stack.of_framework(framework)
    if released or not facts or usual is None:
        return None
    frameworks = {stack.facts["framework"] for stack in Stack.releases_of(framework)}
    found = (
        stack
        for stack in map(Stack, stack_names())
        if stack.facts["framework"] in frameworks and _has(stack.name, facts, ())
    )
    own = usual.facts.items()

    def likeness(stack: Stack) -> tuple[bool, str, int]:
        """Return whether a stack is the usual one, its date, and how many facts of that one it has."""
        return stack.name == usual.name, stack.month, len(own & stack.facts.items())

    return max(found, key=likeness, default=None)


def note_software(cells: Cells, stack: str) -> None:
    """Write the software that a row is predicted with, and its facts, to the cells of the row."""
    facts = Stack(stack).facts if Stack(stack).is_known else {}
    cells.row |= {SOFTWARE: stack} | {FACT + fact: value for fact, value in facts.items()}


def accelerators() -> list[str]:
    """Return the accelerators, by their names in the catalogue, that a row may name without a system."""
    return sorted(patterns()["systems"])


def machine(cells: Cells) -> System | None:
    """Return the system that a row names, or that of its accelerator and network; None, noted, without."""
    named = cells.text("system").lower()
    if named in catalogue("systems"):
        return system_of(named)
    if is_file(named):
        path = Path(cells.text("system"))
        try:
            return _system_of_file(path, path.stat().st_mtime_ns if path.is_file() else 0)
        except InputError as error:
            cells.problem(" ".join(str(error).split()))
            return None
    if not cells.text("gpu") and cells.text("memory_gb_published"):
        cells.row["gpu"] = cells.choose("gpu") or ""
    name = cells.text("gpu").lower()
    network = cells.text("interconnect")
    gpu = accelerator_called(name)
    if gpu == "a100-sxm-40" and cells.whole("gpus_per_node", 8) == SMALL_NODE:
        cells.assume("interconnect")
        return system_of("perlmutter")  # the catalogue's nodes of four
    if networks := patterns()["systems"].get(gpu):
        if not network:
            cells.assume("interconnect")
        return _limit_power(cells, _hosts_of(first_match(networks, network), gpu))
    close = get_close_matches(name, accelerators(), n=3, cutoff=0.4)
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    cells.problem(f"accelerator {name!r} is not known{hint}" if name else "accelerator is not known")
    return None


@lru_cache
def _hosts_of(name: str, accelerator: str) -> System:
    """Return a system, with the accelerator instead of its own where the catalogue has no hosts of it."""
    system = system_of(name)
    if name in systems_with(accelerator):
        return system
    return replace(system, name=f"{accelerator} in {name}", accelerator=load_accelerator(accelerator))


def _limit_power(cells: Cells, system: System) -> System:
    """Return the system at the power limit that a row states; one that says only that there is one, noted."""
    stated = cells.text("power_limit")
    full = system.accelerator.power
    if not stated or full is None:
        return system
    if stated == LIMITED:
        cells.assume("power_limit")
        limit = USUAL_POWER_LIMIT * full
    else:
        limit = cells.measurement("power_limit") or full
    return replace(
        system.with_figures({"accelerator.power_limit": limit}), name=f"{system.name} at {limit:g} W"
    )


@lru_cache
def _system_of_file(path: Path, modified: int) -> System:  # read again once it is modified
    return load_system(path)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A measured training configuration."""

    # Of a step, at least and at most: below a kernel launch and above days it is another unit or a mistake.
    STEP_SECONDS: ClassVar = (1e-6, 1e6)

    id: str
    source: str  # publication
    stack: str  # software stack of the catalogue, or "calibrated" where none matches
    model: Model
    system: System
    plan: Plan
    gbs: int  # [sequences]
    step_seconds: float | None = None  # None where only memory is measured
    memory_bytes: float | None = None  # of a rank
    reported: Reported = "device"  # kind of measured memory
    last_rank: bool = False  # whether memory is that of the last stage, not of the fullest
    outcome: Outcome = "ran"  # or why there is neither a step time nor memory
    unsaid: tuple[str, ...] = ()  # stacks that the row leaves open, as in `Assumptions`
    assumed: tuple[str, ...] = ()  # columns that the row leaves open and a rule filled in
    facts: Mapping[str, str] = field(
        default_factory=dict, hash=False
    )  # of its software, as the row states them

    @property
    def released(self) -> str:
        """Year or month of its software; empty where the row does not state it."""
        return self.facts.get("released", "")

    @property
    def states_its_plan(self) -> bool:
        """Whether degrees and accumulation are its own, so that constants can be fitted to it."""
        return PLAN_BY_DEFAULT.isdisjoint(self.assumed)

    @property
    def new_release(self) -> bool:
        """Whether its framework has measured runs, and none of its release."""
        measured = errors().software.releases
        framework = self.facts.get("framework", "")
        if not self.released or release_of(framework, self.released) in measured:
            return False
        return any(name.startswith(f"{framework} ") for name in measured)


def load_bundled_runs() -> list[tuple[str, Run | str]]:
    """Return the published runs of the package by id, or the reason why one cannot be predicted."""
    table = (files("traincast") / "catalog/measured/training_runs.csv").read_text(encoding="utf-8")
    return [(row["id"], row["skipped"] or _bundled_run(row)) for row in csv.DictReader(table.splitlines())]


def _bundled_run(row: Mapping[str, str]) -> Run:
    """Return the run of a row: columns are fields of a run, `fact.`, `model.`, `plan.` and their parts."""
    fields: dict[str, dict[str, Any]] = {part: {} for part in ("", "fact", "model", "plan", *MODEL_PARTS)}
    for column, cell in row.items():
        if cell:
            part, _, name = column.rpartition(".")
            fields[part][name] = cell if part == "fact" else _value(cell)
    run = fields[""] | {"facts": fields["fact"]}
    del run["gpus"]  # a product of the plan
    blocks = {part: kind(**fields[part]) for part, kind in MODEL_PARTS.items() if fields[part]}
    run["model"], run["plan"] = Model(**fields["model"], **blocks), Plan(**fields["plan"])
    run["system"] = system_of(run["system"])
    run |= {name: tuple(run.get(name, "").split()) for name in ("unsaid", "assumed")}
    return Run(**run)


@lru_cache(maxsize=10_000)
def _value(cell: str) -> Any:
    """Return the value of a cell: JSON where it is that, else text."""
    try:
        value = json.loads(cell)
    except ValueError:
        return cell
    return tuple(value) if isinstance(value, list) else value


def rows(path: str | Path, given: Iterable[str] = ()) -> list[dict[str, str]]:
    """Read the rows of a table of runs from a CSV file; optional columns may be missing (docs/validation.md).

    Files named in the columns `system` and `model` are relative to the folder of the table. `given` are
    columns whose values are known otherwise. Raises InputError if the file cannot be read, or columns are
    missing or repeated.
    """
    try:
        text = read_text(Path(path), MAX_TABLE_BYTES)
        first = text[:10_000].partition("\n")[0]
        reader = csv.DictReader(
            io.StringIO(text, newline=""), restval="", delimiter=max(",;\t", key=first.count)
        )
        header = reader.fieldnames = column_names(reader.fieldnames or ())
        table = list(reader)
    except (ValueError, csv.Error) as error:
        raise InputError(str(path), [f"cannot be read as a table of runs ({error})"]) from None
    missing = [
        f"{name}: missing" if " " in name else f"column {name}: missing"
        for name in missing_columns({*header, *given})
    ]
    raise_problems(str(path), repeated_names(header) or (missing if table else ["holds no run"]))
    long = [number for number, row in enumerate(table, start=2) if None in row]
    has_more = "has more cells than the header; put a text with commas in quotes"
    raise_problems(str(path), first_problems(long, lambda number: f"line {number}: {has_more}"))
    return [_numbered_row(row, number, Path(path).parent) for number, row in enumerate(table, start=2)]


def column_names(header: Iterable[str]) -> list[str]:
    """Return the names of columns, those of launch scripts replaced by the names of this table."""
    return [OTHER_NAMES.get(name.strip(), name) for name in header]


def missing_columns(header: set[str]) -> list[str]:
    """Return the columns that a table of runs needs and lacks; where one of several is enough, in words."""
    sizes = [] if "model" in header else [name for name in SIZES if name not in header]
    missing = ["model"] if len(sizes) == len(SIZES) else sizes
    missing += [name for name in NEEDED if name not in header]
    missing += ["gpu or system"] if header.isdisjoint({"gpu", "system"}) else []
    return missing + ([f"one of {', '.join(MEASURED)}"] if header.isdisjoint(MEASURED) else [])


def repeated_names(header: Iterable[str]) -> list[str]:
    """Return a problem for each name that occurs more than once among columns."""
    counts = Counter(name.strip() for name in header)
    return [
        f"column {name}: stands there {n} times; keep one" for name, n in counts.items() if name and n > 1
    ]


def _numbered_row(row: dict[str, str], number: int, folder: Path) -> dict[str, str]:
    """Return a row with its number, its id where it has none, and the full path of its system file."""
    placed = {ROW: str(number)} | row
    for column in ("system", "model"):
        if is_file(named := row.get(column) or ""):
            placed[column] = str(folder / named)
    return placed if (row.get("id") or "").strip() else placed | {"id": f"row {number}"}


def readable(table: Iterable[Mapping[str, str]]) -> Iterator[tuple[Mapping[str, str], Run | str]]:
    """Yield every row with its run, or with the reason why it has none."""
    for row in table:
        try:
            yield row, read_run(row)
        except Unreadable as reason:
            yield row, str(reason)


def read_run(row: Mapping[str, object]) -> Run:
    """Read the run of a row of a table; raise `Unreadable` with all problems if it cannot be represented."""
    cells = Cells(row)
    try:
        return _run(cells)
    except TraincastError as error:
        cells.problem(" ".join(str(error).split()))
    raise Unreadable("; ".join(cells.problems))


def _run(cells: Cells) -> Run:
    """Build the run of a row; problems are noted with the cells and raised together."""
    separate_model_file(cells)
    note_unmodelled(cells)
    cells.raise_problems()  # no other cell could make it readable
    facts = read_facts(cells, policies())
    system = machine(cells)
    sizes = shape(cells)
    assume_recipe(cells, sizes, system)
    kinds = kinds_of(sizes, system)
    stack = software(cells, kinds)
    note_software(cells, stack)
    if system is not None:
        assume_degrees(cells, sizes, system)
    arguments = plan(cells, sizes)
    gbs = batch(cells, sizes, arguments)
    memory = cells.number("memory_gb_published")
    kind = memory_kind(cells)
    for name in RATES:
        cells.measurement(name)
    if (measured_memory := cells.measurement("memory_gb_published")) and measured_memory > MAX_MEMORY_GB:
        cells.refuse(f"memory_gb_published = {cells.text('memory_gb_published')}: no rank has so much")
    ended = outcome(cells)
    cells.raise_problems()
    assert system is not None  # else there was a problem
    model = Model(**sizes)
    measured = step_seconds(cells, model, system, PRECISIONS[arguments["precision"]], gbs)
    if not UNKNOWN_MACHINE.isdisjoint(cells.assumed):
        measured = None
    is_unmeasured = measured is None and memory is None
    if is_unmeasured and ended == "ran" and not cells.text("outcome") and not cells.problems:
        cells.problem("no step time")
    cells.raise_problems()
    return Run(
        id=cells.text("id"),
        source=cells.text("source"),
        stack=stack,
        unsaid=left_open(cells, stack, kinds),
        model=model,
        system=system,
        plan=fill_plan(cells, arguments, model, system, gbs),
        gbs=gbs,
        step_seconds=measured,
        memory_bytes=None if memory is None else memory * float(cells.choose("memory_unit")),
        reported=kind,
        last_rank=cells.text("memory_rank").lower() == "last",
        outcome=ended,
        assumed=tuple(cells.assumed),
        facts=facts,
    )


def assume_degrees(cells: Cells, sizes: Mapping[str, Any], system: System) -> None:
    """Fill in `tp` and `pp` of a row that states no parallel degree, and note them as assumed.

    They are 1, the default of its framework, or the fewest ranks, in powers of two, with which the plan fits
    the memory by the model's own estimate: of tensor parallelism as far as a node goes.
    """
    if any(map(cells.text, DEGREES)) or not cells.states("data_parallel_by_default"):
        return
    node = int(system.fast_domain)
    for exponent in range(cells.positive("gpus").bit_length()):
        ranks = 1 << exponent
        tp = min(ranks, node)
        degrees = {"tp": str(tp), "pp": str(ranks // tp)}
        trial = Cells(cells.row | degrees)
        arguments = plan(trial, dict(sizes))
        gbs = batch(trial, sizes, arguments)
        if trial.problems:
            continue
        try:
            found = fill_plan(trial, arguments, Model(**sizes), system, gbs)
        except TraincastError:
            continue
        if fits_with_slack(found, Model(**sizes), system, gbs, trial.text(SOFTWARE)):
            cells.row |= degrees
            for name in degrees:
                cells.assume(name)
            return


def batch(cells: Cells, model: Mapping[str, Any], plan: Mapping[str, Any]) -> int:
    """Return the global batch of a row; if not stated, step time times rate of tokens [sequences].

    Of a row that states a rate alone it is that of all replicas' micro-batches, as many as it states, or
    else one, the default of some programs; a pipeline has more. A time of a step is not of an assumed batch.
    """
    seconds = cells.number("step_seconds")
    rate = cells.number("tokens_per_s_per_gpu")
    if cells.text("gbs"):
        return cells.positive("gbs")
    if not seconds or not rate:
        by_default = plan["pp"] == 1 and cells.states("data_parallel_by_default")
        is_stated = cells.text("accumulation") or (by_default and not seconds)
        if not cells.text("mbs") or not is_stated:
            return cells.positive("gbs")
        cells.assume("gbs")
        if not cells.text("accumulation"):
            cells.assume("accumulation")
        return int(plan["dp"]) * cells.positive("mbs") * cells.positive("accumulation", 1)
    cells.assume("gbs")
    # published rates are rounded, or means of another stretch of the run than times are
    dp: int = plan["dp"]
    of_replica: float = seconds * rate * cells.positive("gpus") / (model["seq"] * dp)
    return dp * max(round(of_replica), 1)


def outcome(cells: Cells) -> Outcome:
    """Return whether a row ran, as it says, else whether it has a measurement: a run has one.

    That a row without any ran out of memory is noted as assumed.
    """
    stated = cells.text("outcome").lower()
    measured = [name for name in (*RATES, "memory_gb_published") if cells.text(name)]
    if stated and stated not in get_args(Outcome):
        one_of = ", ".join(get_args(Outcome))
        cells.refuse(f"outcome = {cells.text('outcome')!r}: must be one of {one_of}")
    if stated == "out-of-memory" and measured:
        cells.refuse(f"outcome = {stated!r}: what ran out of memory has no {measured[0]}")
    if not stated and not measured:
        cells.assume("outcome")
    return "ran" if stated == "ran" or measured else "out-of-memory"


def memory_kind(cells: Cells) -> Reported:
    """Return how memory was measured, as `memory_kind` says, else as the framework's tools do."""
    stated = cells.text("memory_kind")
    kinds = get_args(Reported)
    if stated and stated not in kinds:
        cells.problem(f"memory_kind = {stated!r} is none of {', '.join(kinds)}")
    if cells.text("memory_rank").lower() not in LAST_RANK:
        cells.refuse(f"memory_rank = {cells.text('memory_rank')!r}: must be fullest or last")
    kind: Reported = stated or cells.choose("memory_kind")  # type: ignore[assignment]  # checked above
    return kind


def step_seconds(cells: Cells, model: Model, system: System, recipe: Precision, gbs: int) -> float | None:
    """Return the measured step time, noted as assumed if derived from FLOP/s; None without [s]."""
    seconds = cells.measurement("step_seconds")
    token_rate = cells.measurement("tokens_per_s_per_gpu")
    tokens_per_gpu = gbs * model.seq / cells.positive("gpus")
    if seconds is None and token_rate:
        seconds = tokens_per_gpu / token_rate
    elif seconds is None:
        rate = _flops_rate(cells, system, recipe)
        flops_per_token = _flops_per_token(cells, model)
        if not rate or flops_per_token is None:
            return None
        cells.assume("step_seconds")
        seconds = tokens_per_gpu * flops_per_token / rate
    least, most = Run.STEP_SECONDS
    if seconds is not None and not least <= seconds <= most:
        cells.refuse(f"a step of {seconds:.4g} s: must be {least:g} to {most:g} s")
        return None
    return seconds


def _flops_rate(cells: Cells, system: System, recipe: Precision) -> float | None:
    """Return the published rate of a GPU; None without [FLOP/s]."""
    if teraflops := cells.number("tflops_published"):
        return teraflops * 1e12
    share = cells.number("mfu_published")
    return share * float(system.accelerator.matrix_flops) if share and recipe.rate == "16-bit" else None


def _flops_per_token(cells: Cells, model: Model) -> float | None:
    """Return the work of a token as the source counts it; None where the row does not say how [FLOP].

    The usual conventions agree: 6 for every weight of a matrix product, and `attention_flops` for every key
    and unit of query width, 12, or 6 where only the causal half is counted, which for a GPT is
    72BLlh² (1 + l/6h + V/12Lh); with full recompute layers count 4/3 (`recompute_counted`).
    """
    stated = cells.measurement("attention_flops") or cells.choose("attention_flops")
    attention = None if model.experts is not None else stated
    if attention is None:
        return None
    layers: float = 6.0 * model.layers * (model.attention_matrices + model.mlp_matrices(model.ffn))
    layers += model.layers * attention * model.seq * model.heads * model.head_width
    factor = FULL_RECOMPUTE_FACTOR if cells.truth("recompute_counted") else 1.0
    return layers * factor + 6.0 * model.hidden * (model.vocab or 0)
