"""Why the best plan is the best: what binds it, how the alternatives differ, what does not fit and what would make it fit."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from traincast.estimate import Estimate, estimate
from traincast.evaluation import Outcome, evaluate, layout_memory
from traincast.hardware import System
from traincast.plan import STRATEGIES, Plan, Plans
from traincast.rules import RULES
from traincast.space import divisors, enumerate_space
from traincast.units import gib, seconds

if TYPE_CHECKING:
    from traincast.search import Found

MORE: Final = 1.1  # a hardware figure is tried 10 % better
LARGEST_JOB: Final = 1 << 20  # GPUs up to which a size that fits is looked for


@dataclass(frozen=True)
class Degree:
    """The best plan of one tensor-parallel degree (tp tp2 cp), or the least memory any of its plans needs [byte]."""

    degree: int
    best: tuple[Plan, Estimate] | None
    least_memory: float


@dataclass(frozen=True)
class Explanation:
    """The answer to "why this plan?".

    Parameters
    ----------
    found : Found
        The search.
    sensitivity : dict of str to float
        Hardware figure → relative change of the best plan's step time when the figure is 10 % better.
    degrees : list of Degree
        Every tensor-parallel degree that has candidates.
    excluded : dict of str to list of int
        Reason → tp degrees that divide the GPUs but have no candidate for it.
    miss : (Plan, Estimate) or None
        The plan that comes nearest to fitting without fitting.
    faster : (Plan, Estimate) or None
        The plan faster than the best that comes nearest to fitting without fitting.
    unlimited : (Plan, Estimate) or None
        The best plan if memory were unlimited, where that is another one.
    fits_from : (int, float) or None
        Where nothing fits: the fewest GPUs, doubling, on which something does, and the least memory there [byte].
    """

    found: "Found"
    sensitivity: dict[str, float]
    degrees: list[Degree]
    excluded: dict[str, list[int]]
    miss: tuple[Plan, Estimate] | None
    faster: tuple[Plan, Estimate] | None
    unlimited: tuple[Plan, Estimate] | None
    fits_from: tuple[int, float] | None

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The explanation as sentences."""
        if self.found.best is None:
            return self._nothing_fits()
        return [*self._binding(), *self._runner_up(), *self._degrees(), *self._excluded(), *self._misses()]

    def _binding(self) -> list[str]:
        assert self.found.best is not None
        _, best = self.found.best
        shares = sorted(((float(value / best.step_seconds), name) for name, value in best.breakdown.items()), reverse=True)
        spent = ", ".join(f"{_percent(share)} {_label(name)}" for share, name in shares if share > 5e-4)
        gains = sorted(self.sensitivity.items(), key=lambda item: item[1])
        moved = [f"{name} {_signed(change)}" for name, change in gains if change < -5e-4]
        return [
            f"Spends its step on: {spent}.",
            f"10 % better hardware would change its step time by: {', '.join(moved) or 'nothing'}.",
        ]

    def _runner_up(self) -> list[str]:
        if len(self.found.plans) < 2:
            return []
        plan, causes = _compare(self.found.plans[1], self.found.plans[0])
        return [f"Runner-up: {plan}", f"    {causes}"]

    def _degrees(self) -> list[str]:
        assert self.found.best is not None
        best, capacity = self.found.best, float(self.found.system.accelerator.hbm_bytes)
        lines = []
        for row in self.degrees:
            if row.best is None:
                lines.append(f"  {row.degree:>4}: does not fit, needs {gib(row.least_memory)} of {gib(capacity)}")
            elif row.best[0] == best[0]:
                lines.append(f"  {row.degree:>4}: the best plan")
            else:
                plan, causes = _compare(row.best, best)
                lines += [f"  {row.degree:>4}: {plan}", f"        {causes}"]
        return ["Best plan of each tensor-parallel degree (tp × tp2 × cp):", *lines]

    def _excluded(self) -> list[str]:
        return [f"Not tried: tp {', '.join(map(str, degrees))}: {reason}." for reason, degrees in self.excluded.items()]

    def _misses(self) -> list[str]:
        assert self.found.best is not None
        told = {
            "Nearest plan that does not fit": self.miss,
            "Nearest that would be faster": self.faster,
            "Fastest if memory were unlimited": self.unlimited,
        }
        lines, seen = [], set()
        for title, pair in told.items():
            if pair is not None and pair[0] not in seen:
                seen.add(pair[0])
                lines += [f"{title}: {_against(pair[1], self.found.best[1])}", f"    {pair[0]}", f"    {short_of(pair[1])}"]
        return lines or ["Memory excludes nothing."]

    def _nothing_fits(self) -> list[str]:
        found = self.found
        head = f"{found.model.name} on {found.gpus} × {found.system.name}: none of {found.candidates:,} candidates fits in memory"
        if self.miss is None:
            reasons = "; ".join(f"{reason} ({count:,})" for reason, count in found.rejected.items() if count)
            return [f"{found.model.name} on {found.gpus} × {found.system.name}: no plan meets the rules: {reasons}."]
        plan, est = self.miss
        lines = [f"{head}.", "Nearest miss:", f"    {plan}", f"    {short_of(est)}"]
        if self.fits_from is not None:
            gpus, least = self.fits_from
            lines.append(f"    Or {gpus:,} GPUs instead of {found.gpus:,}: the leanest plan then needs {gib(least)}.")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The same facts for machines."""

        def plain(pair: tuple[Plan, Estimate] | None) -> dict[str, Any] | None:
            return None if pair is None else pair[1].summary()

        return {
            "sensitivity_10_percent_better": self.sensitivity,
            "degrees": [
                {"degree": row.degree, "best": plain(row.best), "least_memory_bytes": row.least_memory} for row in self.degrees
            ],
            "excluded_tp": self.excluded,
            "nearest_miss": plain(self.miss),
            "nearest_faster_miss": plain(self.faster),
            "unlimited_memory": plain(self.unlimited),
            "fits_from": None if self.fits_from is None else {"gpus": self.fits_from[0], "memory_bytes": self.fits_from[1]},
            "text": self.lines(),
        }


def explain(found: "Found") -> Explanation:
    """Gather what there is to say about a search."""
    misses = _misses(found)
    sensitivity = {} if found.best is None else _sensitivity(found.best[1])
    fits_from = None if found.best is not None or not found.candidates else _fits_from(found)
    return Explanation(found, sensitivity, _by_degree(found), _excluded(found), fits_from=fits_from, **misses)


def _sensitivity(est: Estimate) -> dict[str, float]:
    """Relative change of the step time when each hardware figure is 10 % better, the plan as it is."""
    system, gpu = est.system, est.system.accelerator
    fast, slow = system.tiers
    better: dict[str, System] = {
        "matrix FLOP/s": replace(system, accelerator=replace(gpu, matrix_flops=gpu.matrix_flops * MORE)),
        "vector FLOP/s": replace(system, accelerator=replace(gpu, vector_flops=gpu.vector_flops * MORE)),
        "HBM bandwidth": replace(system, accelerator=replace(gpu, hbm_bandwidth=gpu.hbm_bandwidth * MORE)),
        f"{fast.name} bandwidth": replace(system, tiers=(replace(fast, bandwidth=fast.bandwidth * MORE), slow)),
        f"{slow.name} bandwidth": replace(system, tiers=(fast, replace(slow, bandwidth=slow.bandwidth * MORE))),
    }
    again = {name: estimate(est.model, other, est.plan, est.gbs, est.assumptions) for name, other in better.items()}
    return {name: float(other.step_seconds / est.step_seconds) - 1 for name, other in again.items()}


def _by_degree(found: "Found") -> list[Degree]:
    """The best plan of each tensor-parallel degree."""
    best: dict[int, tuple[float, float, int, Outcome]] = {}
    least: dict[int, float] = {}
    for outcome in found.outcomes:
        evaluation, rows = outcome.evaluation, outcome.layouts
        layouts = evaluation.space.layouts
        degree = np.asarray(layouts.tp * layouts.context)
        for value in map(int, np.unique(degree[rows])):
            held = float(evaluation.memory[rows][degree[rows] == value].min())
            least[value] = min(held, least.get(value, held))
        fitting, held_by, times, numbers = outcome.best_of_layouts()
        for value in map(int, np.unique(degree[fitting])):
            of_degree = np.flatnonzero(degree[fitting] == value)
            i = of_degree[np.lexsort((numbers[of_degree], held_by[of_degree], times[of_degree]))[0]]
            entry = (float(times[i]), float(held_by[i]), int(numbers[i]), outcome)
            if value not in best or entry[:2] < best[value][:2]:
                best[value] = entry
    rows_of = {value: _pair(found, best[value][3], best[value][2]) if value in best else None for value in sorted(least)}
    return [Degree(value, pair, least[value]) for value, pair in rows_of.items()]


def _pair(found: "Found", outcome: Outcome, number: int) -> tuple[Plan, Estimate]:
    plan = outcome.plan(number)
    return plan, found.estimate(plan)


def _excluded(found: "Found") -> dict[str, list[int]]:
    """Degrees of tp that divide the GPUs but break a rule under every strategy, by the first rule broken."""
    tp = divisors(found.gpus).astype(float)
    reasons: dict[str, list[int]] = {}
    for value in tp:
        broken = []
        for name in found.strategies:
            plan = Plans(tp=value, mbs=float(found.gbs), **STRATEGIES[name])
            broken.append(next((rule.broken for rule in RULES if not rule.holds(found.model, plan, found.gbs)), None))
        if all(broken) and broken[0] is not None:
            reasons.setdefault(broken[0], []).append(int(value))
    return reasons


def _misses(found: "Found") -> dict[str, tuple[Plan, Estimate] | None]:
    """What memory excludes: the nearest miss, the nearest that would be faster than the best plan, and the fastest of all."""
    rows: list[tuple[float, float, int, int]] = []  # memory, time, outcome, number
    everything = [_unlimited(outcome) for outcome in found.outcomes]
    for which, outcome in enumerate(everything):
        _, held, times, numbers = outcome.best_of_layouts()
        over = held > found.system.accelerator.hbm_bytes
        rows += zip(held[over].tolist(), times[over].tolist(), [which] * int(over.sum()), numbers[over].tolist(), strict=True)
    limit = found.best[1].step_seconds if found.best else 0.0
    faster = [row for row in rows if row[1] < limit]
    picked = {
        "miss": min(rows, default=None),
        "faster": min(faster, default=None),
        "unlimited": min(faster, key=lambda row: (row[1], row[0], *row[2:]), default=None),
    }
    return {name: None if row is None else _pair(found, everything[row[2]], row[3]) for name, row in picked.items()}


def _unlimited(outcome: Outcome) -> Outcome:
    """The same search with unlimited memory."""
    one = outcome.evaluation
    gpus = (one.space.gpus[outcome.job],)
    space = enumerate_space(one.model, gpus, one.system.fast_domain, one.gbs, one.space.strategy)
    return evaluate(space, one.model, one.system, one.gbs, one.assumptions, capacity=float("inf")).outcomes()[0]


def _fits_from(found: "Found") -> tuple[int, float] | None:
    """The fewest GPUs, doubling from the search's, on which some plan fits."""
    gpus = found.gpus * 2
    capacity = float(found.system.accelerator.hbm_bytes)
    while gpus <= LARGEST_JOB:
        for name in found.strategies:
            space = enumerate_space(found.model, (gpus,), found.system.fast_domain, found.gbs, name)
            held = layout_memory(space, found.model, found.gbs, found.assumptions)
            if len(held) and held.min() <= capacity:
                return gpus, float(held.min())
        gpus *= 2
    return None


def short_of(est: Estimate) -> str:
    """By how much a plan misses memory, and what would make it fit."""
    capacity = float(est.system.accelerator.hbm_bytes)
    most, name = max((float(value), name) for name, value in est.memory.items())
    missing = float(est.memory_bytes) - capacity
    levers = {
        "weights": "more tp or pp would cut them",
        "gradients": "more tp or pp would cut them",
        "optimizer": "more tp, pp or dp would cut it",
        "activations": "more tp or cp, or a smaller micro-batch, would cut them",
    }
    short = f"{gib(missing)} more HBM ({_signed(missing / capacity)}) would make it fit"
    return (
        f"needs {gib(capacity + missing)} of {gib(capacity)}; {short}\n"
        f"    most of it is {_label(name)}, {gib(most)}; {levers[name]}"
    )


def _compare(pair: tuple[Plan, Estimate], best: tuple[Plan, Estimate]) -> tuple[str, str]:
    """A plan against the best: its time and knobs, and what costs it."""
    (plan, est), (_, winner) = pair, best
    change = float(est.step_seconds - winner.step_seconds)
    parts = {name: float(est.breakdown[name]) - float(winner.breakdown[name]) for name in est.breakdown}
    causes = sorted((item for item in parts.items() if abs(item[1]) > 0.05 * abs(change) + 1e-12), key=lambda item: -abs(item[1]))
    said = ", ".join(f"{_label(name)} {value:+.3g} s" for name, value in causes[:3])
    return f"{_against(est, winner)}  {plan}", said or "the same components"


def _against(est: Estimate, winner: Estimate) -> str:
    """Step time, and by how much it differs from the best plan's."""
    return f"{seconds(float(est.step_seconds))} ({_signed(float(est.step_seconds / winner.step_seconds) - 1)})"


def _label(component: str) -> str:
    """How a component is called in a sentence."""
    names = {"tp_comm": "TP communication", "dp_comm": "DP communication", "pp_comm": "pipeline transfers"}
    return names.get(component, {"memory": "exposed memory traffic", "bubble": "pipeline bubble"}.get(component, component))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _signed(share: float) -> str:
    return f"{100 * share:+.2g} %" if abs(share) < 0.0995 else f"{100 * share:+.0f} %"
