"""Recompute the searches published with arXiv 2410.00273: agreement, and the effect of its errata."""

import csv
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from itertools import product
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from traincast.catalog import load_model, load_system
from traincast.core import (
    ERRATA,
    PAPER,
    PRESETS,
    STRATEGIES,
    STRATEGY_ALIASES,
    Assumptions,
    Doc,
    Floats,
    Plans,
    Result,
    describe_key,
    make_record,
)
from traincast.model import Model
from traincast.planner.searches import search_each
from traincast.step import Estimates, estimate

COMPONENTS: Final = {  # published column → component of the step time
    "published_compute_s": "compute",
    "published_exposed_memory_s": "exposed_memory",
    "published_tp_comm_s": "tp_comm",
    "published_dp_comm_s": "dp_comm",
    "published_pp_comm_s": "pp_comm",
    "published_bubble_s": "bubble",
}

MEMORY: Final = {  # end of a column, published or corrected → component of memory
    "weight_bytes": "weights",
    "gradient_bytes": "gradients",
    "optimizer_bytes": "optimizer",
    "activation_bytes": "activations",
}
KNOBS: Final = {  # knob → published column
    "dp": "dp",
    "tp": "tp1",
    "pp": "pp",
    "mbs": "micro_batch",
    "fast_dp": "nv_dp",
    "fast_tp": "nv_tp1",
    "fast_pp": "nv_pp",
}
Effect: TypeAlias = Literal["mean", "median", "lowest", "highest"]
EFFECTS: Final[dict[Effect, Callable[[Floats], Any]]] = {
    "mean": np.mean,
    "median": np.median,
    "lowest": np.min,
    "highest": np.max,
}


class PublishedSearches(NamedTuple):
    """What the published searches are of, and the assumptions of their code."""

    arxiv: str  # number of the paper
    models: dict[str, str]  # as the published files call them -> names of the catalogue
    accelerators: tuple[str, ...]
    domains: tuple[int, ...]  # accelerators of a fast domain
    gpus: tuple[int, ...]
    global_batch: int  # [sequences]
    assumptions: Assumptions


PUBLISHED_SEARCHES: Final = PublishedSearches(
    arxiv="2410.00273",
    models={"gpt3_1T": "gpt3-1t", "vit_era5": "vit-era5"},
    accelerators=("a100", "h200", "b200"),
    domains=(4, 8, 64),
    gpus=tuple(4 << power for power in range(13)),
    global_batch=4096,
    assumptions=PRESETS["paper-published"],
)


def _errata(of: str) -> Doc:
    """Return the Doc of largest relative changes by erratum."""
    numbers = {name: {"type": "number"} | describe_key(f"erratum {name}") for name in ("1", "2", "3", "all")}
    return Doc(f"largest relative change of {of} where an erratum, or all three, are corrected", keys=numbers)


class Configurations(Result):
    """Published configurations of one model and strategy, recomputed."""

    model: Annotated[str, Doc("name of the model")]
    strategy: Annotated[str, Doc("name of the strategy")]
    configurations: Annotated[int, Doc("number of configurations")]
    worst_difference: Annotated[
        float,
        Doc(
            "largest relative difference to a published figure of time, memory or FLOPs, components included"
        ),
    ]
    errata_seconds: Annotated[dict[str, float], _errata("step time")]
    errata_memory: Annotated[dict[str, float], _errata("memory")]


class Searches(Result):
    """Searches of one model and strategy on all machines and numbers of GPUs, with errata and without."""

    model: Annotated[str, Doc("name of the model")]
    strategy: Annotated[str, Doc("name of the strategy")]
    searches: Annotated[int, Doc("number of searches")]
    candidates: Annotated[int, Doc("candidates in all of them")]
    feasible: Annotated[int, Doc("candidates that fit (corrected)")]
    compared: Annotated[int, Doc("published counts and optima compared, of both variants")]
    agreeing: Annotated[int, Doc("those of them that agree (times to 1e-9)")]
    worst_difference: Annotated[
        float | None,
        Doc("largest relative difference to a published optimum; `null` where nothing is published"),
    ]
    optima_change: Annotated[
        dict[Effect, float],
        Doc("relative change of the optimal step time with corrected errata; empty where nothing fits"),
    ]
    feasibility_changes: Annotated[
        int, Doc("searches where the candidates that fit change between none and some")
    ]


class Reproduction(Result):
    """Results for all configurations and searches, and the time they took."""

    paper: Annotated[str, Doc("arXiv number")]
    agrees: Annotated[bool, Doc("whether every published figure is reproduced")]
    configurations: Annotated[list[Configurations], Doc("published configurations, by strategy")]
    searches: Annotated[list[Searches], Doc("published searches, by model and strategy")]
    candidates: Annotated[int, Doc("candidates in all searches of one variant")]
    evaluated: Annotated[int, Doc("candidates evaluated, with errata and without")]
    seconds: Annotated[float, Doc("time that the searches took", "s")]


def reproduce() -> Reproduction:
    """Recompute the published configurations, then 54 searches on 13 numbers of GPUs, in both variants."""
    by_case: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in _published_rows("configurations"):
        by_case.setdefault((row["model"], row["strategy"]), []).append(row)
    configurations = [_configurations(*case, rows) for case, rows in by_case.items()]
    begin = time.perf_counter()
    cases = [
        (load_model(model), strategy)
        for model in PUBLISHED_SEARCHES.models.values()
        for strategy in STRATEGY_ALIASES.values()
    ]
    optima = {(model.name, strategy): _optima(model, strategy) for model, strategy in cases}
    elapsed = time.perf_counter() - begin
    published = {_key(row): row for row in _published_rows("optima")}
    best = {
        _key(row | {"variant": "published"}): row
        for row in _published_rows("configurations")
        if row["rank"] == "0"
    }
    searches = [_compare(*names, found, published, best) for names, found in optima.items()]
    total = sum(row.candidates for row in searches)
    agrees = all(row.agreeing == row.compared for row in searches)
    agrees = agrees and all(row.worst_difference < 1e-9 for row in configurations)
    return Reproduction(
        f"arXiv {PUBLISHED_SEARCHES.arxiv}", agrees, configurations, searches, total, total * 2, elapsed
    )


Key = tuple[str, str, str, int, int]  # model, strategy, accelerator, fast domain, GPUs


class Optimum(NamedTuple):
    """Candidates of one search, those that fit, and the least step time [s], infinite if none fits."""

    candidates: int
    feasible: int
    seconds: float


def _optima(model: Model, strategy: str) -> dict[Key, dict[str, Optimum]]:
    """Run one strategy's searches on every machine, with published and corrected assumptions."""
    optima: dict[Key, dict[str, Optimum]] = {}
    # Domains first: machines with equal domains share the enumeration.
    for domain, gpu in product(PUBLISHED_SEARCHES.domains, PUBLISHED_SEARCHES.accelerators):
        system = load_system(f"{gpu}-nvs{domain}")
        for variant, assumed in (("published", PUBLISHED_SEARCHES.assumptions), ("corrected", PAPER)):
            searched = search_each(
                model,
                system,
                gpus=PUBLISHED_SEARCHES.gpus,
                gbs=PUBLISHED_SEARCHES.global_batch,
                assumptions=assumed,
                strategy=strategy,
                top=1,
            )
            for found in searched:
                key = model.name, strategy, gpu, domain, found.gpus
                optimum = Optimum(found.candidates, found.feasible, found.least_seconds)
                optima.setdefault(key, {})[variant] = optimum
    return optima


def _compare(
    model: str,
    strategy: str,
    optima: dict[Key, dict[str, Optimum]],
    published: dict[tuple[Key, str], dict[str, str]],
    best: dict[tuple[Key, str], dict[str, str]],
) -> Searches:
    """Compare one model's searches with the published ones, and corrected with published assumptions.

    Of ViT-ERA5 the best configurations are published, without numbers of candidates; where there is none,
    nothing fits.
    """
    agreeing = 0
    differences = list[float]()
    counted = any(key in published for key in ((key, "published") for key in optima))
    for key, variants in optima.items():
        for variant, optimum in variants.items():
            row = published.get((key, variant))
            if counted and row is not None:
                expected = float(row["step_time_s"] or "nan")
                counts_agree = optimum[:2] == (int(row["candidates"]), int(row["feasible"]))
            elif not counted and variant == "published":
                row = best.get((key, variant))
                expected = float("nan" if row is None else row["published_step_time_s"])
                counts_agree = bool(optimum.feasible) == (row is not None)
            else:
                continue
            both = optimum.feasible and np.isfinite(expected)
            differences.append(abs(optimum.seconds / expected - 1) if both else 0.0)
            agreeing += counts_agree and differences[-1] < 1e-9
    seconds = [(found["published"].seconds, found["corrected"].seconds) for found in optima.values()]
    before, after = np.array(seconds).T
    both = np.isfinite(before) & np.isfinite(after)
    change = after[both] / before[both] - 1
    corrected = [variants["corrected"] for variants in optima.values()]
    return Searches(
        model=model,
        strategy=strategy,
        searches=len(optima),
        candidates=sum(optimum.candidates for optimum in corrected),
        feasible=sum(optimum.feasible for optimum in corrected),
        compared=len(differences),
        agreeing=agreeing,
        worst_difference=max(differences, default=None),
        optima_change={name: float(of(change)) for name, of in EFFECTS.items() if len(change)},
        feasibility_changes=int((np.isfinite(before) != np.isfinite(after)).sum()),
    )


def _configurations(model: str, strategy: str, rows: list[dict[str, str]]) -> Configurations:
    """Recompute the published configurations of one model and strategy, each machine's as one batch."""
    machines: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        machines.setdefault((row["gpu"], row["nvs"]), []).append(row)
    worst = 0.0
    errata = {str(number): Assumptions.with_errata(*set(ERRATA) - {number}) for number in ERRATA} | {
        "all": PAPER
    }
    seconds = dict.fromkeys(errata, 0.0)
    memory = dict.fromkeys(errata, 0.0)
    for (gpu, nvs), batch in machines.items():
        plans = _plans(STRATEGY_ALIASES[strategy], batch)
        where = load_model(PUBLISHED_SEARCHES.models[model]), load_system(f"{gpu}-nvs{nvs}")
        published, corrected, *others = (
            estimate(*where, plans, gbs=PUBLISHED_SEARCHES.global_batch, assumptions=assumed)
            for assumed in (PUBLISHED_SEARCHES.assumptions, PAPER, *errata.values())
        )
        recomputed = {
            "published_step_time_s": published.step_seconds,
            "published_memory_bytes": published.memory_bytes,
            "corrected_step_time_s": corrected.step_seconds,
            "corrected_memory_bytes": corrected.memory_bytes,
            **{column: published.breakdown[component] for column, component in COMPONENTS.items()},
            "published_flops_per_gpu": _flops_per_gpu(published),
        }
        for column, component in MEMORY.items():
            recomputed[f"published_{column}"] = published.memory[component]
            recomputed[f"corrected_{column}"] = corrected.memory[component]
        step = published.step_seconds
        columns = ((computed, _column(batch, name)) for name, computed in recomputed.items())
        worst = max(worst, *(_difference(computed, column, step) for computed, column in columns))
        for name, other in zip(errata, others, strict=True):
            seconds[name] = max(seconds[name], _largest(other.step_seconds / step))
            memory[name] = max(memory[name], _largest(other.memory_bytes / published.memory_bytes))
    return Configurations(
        PUBLISHED_SEARCHES.models[model], STRATEGY_ALIASES[strategy], len(rows), worst, seconds, memory
    )


def _flops_per_gpu(est: Estimates) -> object:
    """Return the FLOPs of a GPU in a step, as the published code counts them: without recomputation.

    It counts the vector work of fused attention as matrix FLOPs that take as long.
    """
    accelerator = est.system.accelerator
    ratio = accelerator.matrix_flops / accelerator.vector_flops
    flops: Any = 0.0
    for part, count in est.stages.model_parts.items():
        for timed in est.timed[part]:
            weight = ratio if timed.operation.name == "attention.flash" else 1.0
            for work in (timed.operation.forward, timed.operation.whole_backward):
                flops = flops + count * (work.flops("matrix") + weight * work.flops("vector"))
    plans = est.plan
    return flops / plans.pp * est.gbs / (plans.dp * plans.mbs)


def _difference(computed: Any, published: Floats, step: Any) -> float:
    """Return the largest difference, relative to the figure, or to the step time for vanishing components.

    What is not published (NaN) differs by 0.
    """
    scale = np.where(np.abs(published) > 1e-9 * step, np.abs(published), step)
    return float(np.max(np.nan_to_num(np.abs(computed - published) / scale)))


def _largest(ratio: object) -> float:
    """Return the largest relative change, in either direction."""
    return float(np.max(np.abs(np.asarray(ratio) - 1)))


def _plans(strategy: str, rows: list[dict[str, str]]) -> Plans:
    """Return published configurations as columns."""
    second = {
        "summa": {"tp2": "tp2", "fast_tp2": "nv_tp2", "panels": "nb"},
        "context": {"cp": "tp2", "fast_cp": "nv_tp2"},
    }
    names = KNOBS | second.get(strategy, {})
    columns = {knob: _column(rows, name) for knob, name in names.items()}
    return make_record(Plans, {**columns, **STRATEGIES[strategy].choices})


def _column(rows: list[dict[str, str]], name: str) -> Floats:
    return np.array([float(row[name] or "nan") for row in rows])


def _published_rows(table: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a bundled table of published figures."""
    path = files("traincast").joinpath(f"catalog/published/{PUBLISHED_SEARCHES.arxiv}-{table}.csv")
    with path.open(encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _key(row: dict[str, str]) -> tuple[Key, str]:
    """Return the key of a published search, and its variant."""
    model = PUBLISHED_SEARCHES.models[row["model"]]
    strategy = STRATEGY_ALIASES[row["strategy"]]
    return (model, strategy, row["gpu"].lower(), int(row["nvs"]), int(row["gpus"])), row["variant"]
