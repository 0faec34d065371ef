"""The scoreboard page: printed from calibration/goals_and_errors.py, every figure worked out."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from collective_benchmarks import BANDS
from goals_and_errors import (
    ATTENTION,
    COLLECTIVES,
    COVERED,
    FEW,
    GOALS,
    JAX,
    JAX_STACK,
    LEFT_OUT,
    PRODUCTS,
    STACK,
    TOTALS,
    Board,
    banded,
    board,
    covered,
    flops,
    kernel_errors,
    mean,
    perlmutter,
)
from traincast.accuracy.error_budget import BELIEVED
from traincast.accuracy.fit.residuals import NOISE
from traincast.accuracy.scores import INDEPENDENT, ErrorSummary, source_of
from traincast.core.assumptions import CALIBRATED

NAMES = {"dense": "**all dense**", "moe": "**all mixture-of-experts**"}
WORK = (0.0, 3e10, 3e11, 3e12, float("inf"))  # size bands of products [FLOP]
WORDS = ("< 3e10 FLOP", "to 3e11", "to 3e12", "> 3e12")
PEERS = (
    ("vTrain (MICRO 2024)", "its own runs on several nodes, 14.73 % (it profiles the GPU it predicts)", ("vtrain-m",), "mape"),
    ("vTrain (MICRO 2024)", "its own runs on one node, 8.37 %", ("vtrain-s",), "mape"),
    ("Calculon (SC 2023)", "eight points of Megatron, 3.65 %", ("korth",), "mape"),
    ("SimuMax (2025)", "its runs on B200, 5.62 %", ("simumax", "simumax/moe"), "mape"),
    ("SimuMax (2025)", "their memory, 0.46 %", ("simumax", "simumax/moe"), "memory"),
)


def percent(value: float | None, sign: str = "") -> str:
    """A share as percent; nothing of nothing."""
    return "" if value is None else f"{100 * value:{sign}.1f}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown, the first column to the left."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def scoreboard() -> str:
    """The page."""
    found = board()
    parts = (_intro(found), _sources(found), _goals(found), _stacks(found), _peers(found), _kernels(), _collectives())
    return "# Scoreboard\n\n" + "\n".join(parts)


def _intro(found: Board) -> str:
    """What the figures are."""
    report = found.report
    done = [one for one in report.predictions if one.skipped is None]
    (bundle, n), *_ = INDEPENDENT.items()
    composed = sum(source_of(one.id, False) == bundle for one in done)
    kernels = sum(map(len, kernel_errors().values()))
    timed = sum(map(len, perlmutter().values()))
    moved = found.moved()
    stale = f" Predictions have changed by {100 * moved:.1f} % on average since the runs were left out." if moved > 0.001 else ""
    return f"""How far `assumptions="calibrated"` is off, on {len(done):,} of {len(report.predictions):,} published training runs
([what they are, and what is skipped](validation.md)), {kernels:,} timed kernels and {timed:,} timed collectives. `make refit` fits
the constants again and writes this page; `make scoreboard` writes it without a fit.

* **Fitted**: what the package predicts now, with constants fitted to all these runs. There are few: at most 12 of an accelerator
  generation, 6 of a software stack and 6 of a network, all physical, each with a prior (`calibration/published.yaml`). None belongs
  to a run, a model or a source.
* **Left out**: every run predicted with constants fitted without its group, which is the runs of one source, model and accelerator.
  The next run you measure is expected to be off by this, if its software and accelerator are here. The structure of the model was
  chosen with all runs in sight, so even these figures are somewhat kind.{stale}
* **Noise floor**: the same configuration measured twice, by the same source, differs by 0.5 to 5 % (dense) and, where software is a
  year older, by 25 % and more (mixture of experts). Nothing that does not know the container can do better than about 5 % and 25 %
  on such rows; fits expect {100 * NOISE["dense"]:.0f} and {100 * NOISE["moe"]:.0f} %.
* **Weights**: the {composed:,} rows of {bundle} are composed of {n} independent numbers (costs of a layer, of the head and of the
  reduction, by tensor degree and micro-batch: with these alone every row is met within 0.12 %), so in all they count as {n} rows,
  and in fits too.

![Predicted against measured step times, and what errors go with](figures/scoreboard.svg)

Left: the band is ± 10 %. Right: what the errors of each source go with. For each source, measured over predicted is regressed on
the shares that the parts have in the predicted step (ridge, {100 * BELIEVED:.0f} % believed of each part); a bar is the part's mean
share times how much too long it seems, in points of the mean error; lines are the mean error that no part explains. This is
correlation: parts that go together cannot be told apart. `traincast validate --output parity.svg` draws it, of your own runs too.
"""


def _sources(found: Board) -> str:
    """Errors by source."""
    now = {one.source: one for one in (*found.report.summaries, *found.report.totals)}
    without = found.by_source(LEFT_OUT)
    header = ("source", "n", "fitted MAPE", "left out MAPE", "median", "bias", "worst", "regret", "of three", "rank", "memory")
    rows = [_row(name, one, without.get(name)) for name, one in now.items() if one.n or one.memory is not None]
    return f"""## By source

Errors of the step time are predicted over measured less 1, in percent; median, bias and worst are of runs left out. Regret, of runs
left out as well: how much slower the plan ranked first really is than the best, mean over groups of runs that differ in their plan
only; of three: the best of the three ranked first; rank: Spearman's correlation. Memory: mean absolute error as predicted now; no
constant of the fit touches it.

{table(header, rows)}"""


def _row(name: str, now: ErrorSummary, left: ErrorSummary | None) -> list[str]:
    """A source's row."""
    if left is None:
        return [NAMES.get(name, name), str(now.n), percent(now.mape), *[""] * 7, percent(now.memory)]
    rank = "" if left.spearman is None else f"{left.spearman:.2f}"
    errors = [percent(left.mape), percent(left.median), percent(left.bias, "+"), percent(left.worst)]
    return [
        NAMES.get(name, name), str(now.n), percent(now.mape), *errors, percent(left.regret), percent(left.best_of_three), rank,
        percent(now.memory),
    ]  # fmt: skip


def _goals(found: Board) -> str:
    """What was aimed at, and what is reached."""
    rows = []
    for goal in GOALS:
        reached = getattr(found.of(goal.sources, goal.column), goal.what)
        rows.append((goal.rows, *_verdict(reached, goal.most)))
    every = found.by_source(LEFT_OUT)
    rows += [(NAMES[kind], *_verdict(every[kind].mape, most)) for kind, most in TOTALS.items()]
    rows += [_worst_stack(found, jax, most) for jax, most in ((False, STACK), (True, JAX_STACK))]
    timed = [one.error for some in perlmutter().values() for one in some]
    kernels = kernel_errors()
    attention = [one.error for kind in ("attention forward", "attention backward") for one in kernels[kind]]
    rows += [
        ("Collectives on Perlmutter, as fitted", *_verdict(mean(timed), COLLECTIVES)),
        ("Matrix products, as fitted", *_verdict(mean(one.error for one in kernels["product"]), PRODUCTS)),
        ("Fused attention, as fitted", *_verdict(mean(attention), ATTENTION)),
    ]
    every_run, by_group = covered()
    low, high = COVERED
    told = "met" if low <= by_group <= high else "**missed**"
    rows.append(("Runs left out inside their 90 % interval, a group of n as √n", f"{100 * low:.0f} to {100 * high:.0f}",
                 f"{percent(by_group)} (every run alike: {percent(every_run)})", told))  # fmt: skip
    met = sum(row[-1].startswith("met") for row in rows)
    return f"""## Goals

Set before the model was built, from studies with formulas of their own; of runs left out unless a row says otherwise. {met} of
{len(rows)} are met.

{table(("rows", "goal [%]", "reached [%]", ""), rows)}"""


def _worst_stack(found: Board, jax: bool, most: float) -> tuple[str, str, str, str]:
    """The worst of the stacks left out that have enough runs."""
    stacks = {name: one for name, one in found.by_stack(moe=False).items() if one.n >= FEW and (name in JAX) == jax}
    name, worst = max(stacks.items(), key=lambda item: item[1].mape or 0.0)
    within = sum((one.mape or 0.0) <= most / 100 for one in stacks.values())
    what = "JAX" if jax else "others"
    told = f"A whole software stack left out, dense, {what}: {within} of {len(stacks)} stacks within, the worst is `{name}`"
    return told, *_verdict(worst.mape, most)


def _verdict(reached: float | None, most: float) -> tuple[str, str, str]:
    """A goal, what is reached, and by how much it is met or missed."""
    if reached is None:
        return f"{most:g}", "", "missed: no such rows"
    off = 100 * reached - most
    return f"{most:g}", percent(reached), f"met by {-off:.1f}" if off <= 0 else f"**missed by {off:.1f}**"


def _stacks(found: Board) -> str:
    """Errors with a whole software stack left out."""
    dense, moe = found.by_stack(moe=False), found.by_stack(moe=True)
    rows = [
        (f"`{name}`" if name != CALIBRATED.name else "none of these", *_stack(dense.get(name)), *_stack(moe.get(name)))
        for name in sorted({*dense, *moe})
    ]
    header = ("stack", "n, dense", "MAPE", "bias", "worst", "n, with experts", "MAPE", "bias", "worst")
    return f"""## Software that was never seen

Every stack predicted with constants fitted without any of its runs: what to expect of a framework that is not here. Its constants
are then what is believed beforehand, or those of the stack it is based on.

{table(header, rows)}"""


def _stack(one: ErrorSummary | None) -> list[str]:
    """Errors of a stack's models of one kind."""
    return [""] * 4 if one is None else [str(one.n), percent(one.mape), percent(one.bias, "+"), percent(one.worst)]


def _peers(found: Board) -> str:
    """What others publish of themselves."""
    rows = []
    now = {one.source: one for one in found.report.summaries}
    for name, told, sources, what in PEERS:
        mine = found.of(sources, LEFT_OUT)
        fitted = [now[source] for source in sources]
        n = sum(one.n for one in fitted)
        all_of_them = sum((getattr(one, what) or 0.0) * one.n for one in fitted) / n
        rows.append((name, told, percent(all_of_them), percent(mine.mape) if what == "mape" else "", str(n)))
    return f"""## Peers

What other models publish about themselves, beside this one on the runs of the same source (not always the same rows). None of them
leaves anything out; vTrain and SimuMax measure the kernels of the very GPU they then predict.

{table(("model", "publishes", "here, fitted", "left out", "n"), rows)}"""


def _kernels() -> str:
    """Errors of kernels."""
    kernels = kernel_errors()
    rows = []
    for name in sorted({one.benchmark.accelerator for one in kernels["product"]}):
        some = [one for one in kernels["product"] if one.benchmark.accelerator == name]
        rows.append((f"products, `{name}`", str(len(some)), *_bands(some)))
    rows.append(("**all products**", str(len(kernels["product"])), *_bands(kernels["product"])))
    rows.append(("experts' products", str(len(kernels["grouped"])), *_bands(kernels["grouped"])))
    others = [
        (kind, str(len(kernels[kind])), percent(mean(one.error for one in kernels[kind])))
        for kind in ("attention forward", "attention backward", "memory")
    ]
    return f"""## Kernels

Matrix products by work, from nothing but shape and accelerator; bundled microbenchmarks ([formulas](kernels.md), and errors left
out). Mean absolute errors in percent.

{table(("", "n", "all", *WORDS), rows)}
{table(("", "n", "MAPE"), others)}"""


def _bands(some: Sequence) -> list[str]:
    """Mean errors of products: of all, and by work."""
    parts = ([one.error for one in some if low <= flops(one) < high] for low, high in pairwise(WORK))
    return [percent(mean(one.error for one in some)), *(percent(mean(part)) for part in parts)]


def _collectives() -> str:
    """Errors of collectives."""
    by = perlmutter()
    rows = [
        (str(nodes), str(len(some)), percent(mean(one.error for one in some)), *map(percent, banded(some)))
        for nodes, some in by.items()
    ]
    every = [one for some in by.values() for one in some]
    rows.append(("**all**", str(len(every)), percent(mean(one.error for one in every)), *map(percent, banded(every))))
    return f"""## Collectives

nccl-tests on Perlmutter, all-gather, all-reduce and reduce-scatter, 1 to 4 GPUs in a node ([formulas, other machines, and errors
left out](collectives.md)); mean absolute errors in percent by nodes and size.

{table(("nodes", "n", "all", *(name for _, name in BANDS)), rows)}"""
