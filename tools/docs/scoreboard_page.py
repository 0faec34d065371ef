"""Scoreboard page: every figure is computed by calibration/goals_and_errors.py."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import ceil

import numpy as np
from matplotlib.figure import Figure

from collective_benchmarks import BANDS
from error_model import MIN_GROUPS, Coverage, Reliability, reliability
from first_contact import read as first_contact
from goals_and_errors import (
    DOUBTED,
    HEADLINE,
    KIND_NAMES,
    LEFT_OUT,
    PROTOCOLS,
    TRUSTED,
    Board,
    Verdict,
    banded,
    board,
    calibration,
    flops,
    kernel_errors,
    mean,
    perlmutter,
    verdicts,
)
from left_out import SPLITS, later_runs
from measured_cells import facts_of_one_source, thin_cells
from published import MAX_CONSTANTS, STRAIN, counts, strained
from traincast.accuracy.fit.residuals import NOISE, bundled_runs
from traincast.accuracy.scores import BELIEVED, INDEPENDENT, ErrorSummary, source_of
from traincast.accuracy.verdicts import (
    CERTAIN,
    LIKELY,
    MIN_ROWS_OF_BIN,
    NEAR,
    SHARPEST,
    VerdictErrors,
)
from traincast.catalog.facts import FACTS
from traincast.core.assumptions import CALIBRATED
from traincast.step.fit_probability import UNCERTAIN
from traincast.step.uncertainty import FEW
from traincast.ui.figures import style

StatedChances = Mapping[str, list[Reliability]]  # by title: stated probabilities, and how often it happened
PANELS_IN_A_ROW = 3
READ = {LEFT_OUT: "with facts", HEADLINE: "facts blind"}
MIN_RUNS_OF_FAMILY = 20  # a family with fewer runs says little of its intervals
NAMES = {"dense": "**all dense**", "moe": "**all mixture-of-experts**"}
WORK = (0.0, 3e10, 3e11, 3e12, float("inf"))  # size bands of products [FLOP]
WORDS = ("< 3e10 FLOP", "to 3e11", "to 3e12", "> 3e12")
PEERS = (
    (
        "vTrain (MICRO 2024)",
        "its own runs on several nodes, 14.73 % (it profiles the GPU it predicts)",
        ("vtrain-m",),
        "mape",
    ),
    ("vTrain (MICRO 2024)", "its own runs on one node, 8.37 %", ("vtrain-s",), "mape"),
    ("Calculon (SC 2023)", "eight points of Megatron, 3.65 %", ("korth",), "mape"),
    ("SimuMax (2025)", "its runs on B200, 5.62 %", ("simumax", "simumax/moe"), "mape"),
    ("SimuMax (2025)", "their memory, 0.46 %", ("simumax", "simumax/moe"), "memory"),
)


def percent(value: float | None, sign: str = "") -> str:
    """Return a share in percent; empty for None."""
    return "" if value is None else f"{100 * value:{sign}.1f}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, the first column aligned left."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def scoreboard() -> str:
    """Return the page."""
    scores = board()
    parts = (
        _intro(scores),
        _headline(scores),
        _first_contact(scores),
        _once(),
        _splits(scores),
        _goals(verdicts()),
        _fits(scores),
        _uncertainty(),
        _sources(scores),
        _stacks(scores),
        _strain(),
        _peers(scores),
        _kernels(),
        _collectives(),
    )
    return "# Scoreboard\n\n" + "\n".join(parts)


def _intro(scores: Board) -> str:
    """Return the introduction."""
    report = scores.report
    done = [prediction for prediction in report.predictions if prediction.skipped is None]
    (bundle, n), *_ = INDEPENDENT.items()
    composed = sum(source_of(prediction.id, False) == bundle for prediction in done)
    kernels = sum(map(len, kernel_errors().values()))
    timed = sum(map(len, perlmutter().values()))
    moved = scores.moved()
    stale = (
        f" Predictions have changed by {100 * moved:.1f} % on average since the runs were left out."
        if moved > 0.001
        else ""
    )
    return f"""How far `assumptions="calibrated"` is off, on {len(done):,} of {len(report.predictions):,} published training runs
([what they are, and what is skipped](validation.md)), {kernels:,} timed kernels and {timed:,} timed collectives. `make refit` fits
the constants again and writes this page; `make scoreboard` writes it without a fit.

* **Fitted**: what the package predicts now, with constants fitted to all these runs. There are few: at most 12 of an accelerator
  generation, 8 of a software stack and 6 of a network, all physical, each with a prior (`calibration/published.yaml`). None belongs
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


def _headline(scores: Board) -> str:
    """Return the section of the headline, and of what stands beside it."""
    held = {**calibration().splits, **calibration().blind}
    rows = []
    for column, title in PROTOCOLS.items():
        for kind, name in KIND_NAMES.items():
            item, covered = scores.by_source(column)[kind], held[column, kind == "moe"]
            cells = (
                str(item.n),
                percent(item.mape),
                percent(item.bias, "+"),
                percent(item.worst),
                *_held(covered),
            )
            rows.append((title, name, *cells))
    header = ("read and left out", "models", "n", "MAPE", "bias", "worst", "inside", "± median", "score")
    stated = ", ".join(f"{fact} {100 * share:.0f}" for fact, share in scores.report.stated.items())
    return f"""## Headline

Expect this of a run that is not here, whose framework and release are known and nothing else of its software. Predictions read no
sentences: [facts of software](validation.md#facts-of-software) are columns, and a cell is filled where its source states the fact. Means over rows, [%];
inside: share of the measured times in their 90 % intervals, of the mixture over the software that a row leaves open.

{table(header, rows)}
Share of the bundled rows that state each fact [%]: {stated}.
"""


def _first_contact(scores: Board) -> str:
    """Return the section of first contact."""
    now = scores.by_source(LEFT_OUT)
    rows = []
    for line in first_contact():
        later = now.get(line["source"])
        is_timed = line["mape"] and not line["batch"].startswith("memory")  # of tests times say nothing
        figures = [
            percent(float(line[name])) if line[name] and (is_timed or name == "memory") else ""
            for name in ("mape", "inside", "memory")
        ]
        version = f"`{line['version']}`, {line['date']}" if line["version"] else "none could read it"
        found = percent(later.mape) if later and is_timed else ""
        rows.append(
            (line["batch"], version, line["source"], line["rows"], line["predicted"], *figures, found)
        )
    header = (
        "batch",
        "version before it",
        "source",
        "rows",
        "predicted",
        "MAPE",
        "inside",
        "memory",
        "now, left out",
    )
    return f"""## First contact

The strictest figure: the error of the version before a batch of rows came, which nobody had looked at. It is written once, from
the history (`calibration/first_contact.py`), and stays. Beside it what the page says of the same source today [%].

{table(header, rows)}"""


def _once() -> str:
    """Return the section of what was measured seldom."""
    runs = [*bundled_runs(), *later_runs()]
    cells = [
        (
            f"`{cell.stack}`",
            cell.host,
            "yes" if cell.pipelined else "no",
            "yes" if cell.experts_across else "no",
            str(n),
        )
        for cell, n in thin_cells(runs).items()
    ]
    facts = [(f"`{fact}`", value, source) for (fact, value), source in facts_of_one_source(runs).items()]
    return f"""## Measured once or never

Cells of stack, host, pipeline and experts across fast domains with fewer than {FEW} configurations. Runs that nobody here had seen
were 6 % off in cells with more, and 13 % in these and in cells that are not here at all.

{table(("stack", "host", "pipelined", "experts across", "configurations"), cells)}
Values of facts ({len(FACTS)} columns) that rows of one source alone state, so that leaving the source out leaves nothing of them:

{table(("fact", "value", "source"), facts)}"""


def _sources(scores: Board) -> str:
    """Return the section of errors by source."""
    now = {
        summary.source: summary
        for report in scores.reports
        for summary in (*report.summaries, *(report.totals if report is scores.report else ()))
    }
    without = scores.by_source(LEFT_OUT)
    header = (
        "source",
        "n",
        "fitted MAPE",
        "left out MAPE",
        "median",
        "bias",
        "worst",
        "regret",
        "of three",
        "rank",
        "memory",
    )
    rows = [
        _row(name, summary, without.get(name))
        for name, summary in now.items()
        if summary.n or summary.memory is not None
    ]
    return f"""## By source

Errors of the step time are predicted over measured less 1, in percent; median, bias and worst are of runs left out. Regret, of runs
left out as well: how much slower the plan ranked first really is than the best, mean over groups of runs that differ in their plan
only, a search preferring the smaller micro-batch within 2 %; of three: the best of the three ranked first; rank: Spearman's correlation.
The families of `calibration/measured/later_runs.csv` (automodel, bridge-hybrid, bridge-lora, ironwood, litgpt, mlperf-…, titan-lowp,
torchtune) are fitted and left out like the others, but are not in the package. Memory: mean absolute error as predicted now; no
constant of the fit touches it.

{table(header, rows)}"""


def _row(name: str, fitted: ErrorSummary, left_out: ErrorSummary | None) -> list[str]:
    """Return the row of a source."""
    if left_out is None:
        return [NAMES.get(name, name), str(fitted.n), percent(fitted.mape), *[""] * 7, percent(fitted.memory)]
    rank = "" if left_out.spearman is None else f"{left_out.spearman:.2f}"
    errors = [
        percent(left_out.mape),
        percent(left_out.median),
        percent(left_out.bias, "+"),
        percent(left_out.worst),
    ]
    return [
        NAMES.get(name, name), str(fitted.n), percent(fitted.mape), *errors, percent(left_out.regret),
        percent(left_out.best_of_three), rank, percent(fitted.memory),
    ]  # fmt: skip


def _goals(found: Sequence[Verdict]) -> str:
    """Return the section of goals."""
    rows = [(item.rows, item.goal, item.reached, "met" if item.met else "**missed**") for item in found]
    missed = [
        f"* {item.rows}: {item.reached} instead of {item.goal}; {item.why}." for item in found if not item.met
    ]
    return f"""## Goals

They stand in `calibration/goals.yaml`; `make scoreboard` fails where one is missed. Of runs left out by source × model × accelerator
unless a row says otherwise. {len(found) - len(missed)} of {len(found)} are met.

{table(("rows", "goal [%]", "reached [%]", ""), rows)}
Why the others are missed:

{chr(10).join(missed)}
"""


def _fits(scores: Board) -> str:
    """Return the section of verdicts of fit."""
    fits = scores.fits
    apart = {
        "**all**": fits.total,
        f"within {100 * NEAR:.0f} % of capacity": fits.near_capacity,
        f"the {100 * SHARPEST:.0f} % nearest to capacity": fits.sharpest,
    }
    header = ("rows", "n", "ran", "called no", "ran out", "called fits", "uncertain", "sure, wrong", "Brier")
    bins = [
        (
            f"{100 * each.low:.0f} to {100 * each.high:.0f}",
            str(each.rows),
            percent(each.stated),
            percent(each.ran),
        )
        for each in fits.reliability
    ]
    left_out = "; ".join(f"{n:,} {why}" for why, n in fits.not_judged.items())
    return f"""## Does it fit

What every row says without saying it: its plan ran. A row of [a table of runs](validation.md#outcomes) without a speed ran out of
memory. The verdict is "no" where the probability that a plan fits is below {100 * LIKELY:.0f} %; uncertain: between {100 * UNCERTAIN[0]:.0f} and {100 * UNCERTAIN[1]:.0f} %, which
either count includes; sure, wrong: wrong with more than {100 * CERTAIN:.0f} % certainty. Of the bundled runs and those collected later, as
predicted now; no table here has a run that ran out of memory, so that these are one half of the question. Without a verdict: {left_out}.

{table(header, [(name, *_verdict_cells(item)) for name, item in apart.items()])}
{table(("framework", *header[1:]), [(name, *_verdict_cells(item)) for name, item in fits.by_framework.items()])}
{table(("accelerator", *header[1:]), [(name, *_verdict_cells(item)) for name, item in fits.by_accelerator.items()])}
What is said of runs against what happened, in bins of at least {MIN_ROWS_OF_BIN} rows:

{table(("probability that it fits [%]", "n", "stated [%]", "ran [%]"), bins)}"""


def _verdict_cells(item: VerdictErrors) -> list[str]:
    """Return the cells of verdicts."""
    counts = (
        item.rows, item.ran, item.ran_called_no, item.out_of_memory, item.out_of_memory_called_fits,
        item.uncertain, item.certain_and_wrong,
    )  # fmt: skip
    return [*map(str, counts), "" if item.brier is None else f"{item.brier:.3f}"]


def _splits(scores: Board) -> str:
    """Return the section of ways of leaving runs out."""
    rows, doubtful = [], []
    for column, split in SPLITS.items():
        for moe in (False, True):
            item, held = scores.split(column, moe), calibration().splits.get((column, moe))
            if item is None or held is None:
                continue
            kind = "experts" if moe else "dense"
            trust = "yes" if item.mape <= TRUSTED else "with care" if item.mape <= DOUBTED else "**no**"
            if item.mape > TRUSTED:
                doubtful.append(
                    f"{kind}, without {split.title}: {percent(item.mape)} %, the worst family is {item.worst_family}"
                )
            rows.append(
                (
                    split.title, kind, str(item.n), str(item.families), percent(item.mape), percent(item.bias, "+"),
                    percent(item.worst), *_held(held), trust,
                )
            )  # fmt: skip
    header = (
        "left out", "models", "n", "families", "MAPE", "bias", "worst", "inside", "± median", "score", "trusted",
    )  # fmt: skip
    return f"""## By what is left out

The kindest way to leave runs out keeps the same model on another machine, and the same machine with another model; a new cluster, a
new release or a new kind of model is none of that. MAPE and bias are means over families (a source; experts apart), so that 1,020
rows of one source weigh as much as three of another; [%]. Inside: share of the measured times in their 90 % intervals; ±: half their
median width; score: mean interval score (Winkler), of logarithms; all in percent. An asterisk: 90 % are rejected at 5 % by a bootstrap
over groups; in brackets: fewer than {MIN_GROUPS} groups, which is too few to tell. Trusted: yes up to {100 * TRUSTED:.0f} %, no above {100 * DOUBTED:.0f} %.

{table(header, rows)}
Not to be trusted, or with care:

{chr(10).join(f"* {line}" for line in doubtful) or "* none"}
"""


def _held(item: Coverage) -> tuple[str, str, str]:
    """Return the cells of a coverage."""
    share = percent(item.share)
    inside = f"({share})" if item.rejected is None else f"{share} *" if item.rejected else share
    return inside, percent(item.width), percent(item.score)


def _uncertainty() -> str:
    """Return the section of stated uncertainty."""
    known = calibration()
    families = [
        (name, str(item.n), str(item.groups), *_held(item))
        for name, item in known.families.items()
        if item.n >= MIN_RUNS_OF_FAMILY
    ]
    rejected = sum(bool(item.rejected) for item in (*known.families.values(), *known.splits.values()))
    parts = []
    for title, chances in (
        (
            "the first plan is within 3 % of the best (measured rankings of at least three plans)",
            known.rankings,
        ),
        ("a run fits (measured memory, in capacities around it)", known.fits),
        ("one of Megatron-LM's own tests fits (the same, each test left out)", known.tests_fit),
    ):
        brier = float(np.mean((chances.stated - chances.happened) ** 2))
        mean_happened = float(np.mean(chances.happened))
        constant = mean_happened * (1 - mean_happened)
        cells = [_reliable(item) for item in reliability(chances)]
        parts.append(
            f"Probability that {title}; Brier score {brier:.3f}, of always saying the mean {constant:.3f}:\n\n"
            + table(("stated [%]", "happened [%]", "90 % of samples", "in", "cases", "groups"), cells)
        )
    levels = [
        (READ[column], "experts" if moe else "dense", *_reliable(item))
        for (column, moe), found in known.levels.items()
        for item in found
    ]
    return f"""## Stated uncertainty

Of families with at least {MIN_RUNS_OF_FAMILY} runs; columns as above. Bootstraps reject 90 % in {rejected or "none"} of the splits and families.

{table(("family", "n", "groups", "inside", "± median", "score"), families)}
Intervals of several levels, of runs left out by source × model × accelerator: the level, and the share of the measured times
inside. Here and below, 90 % of samples: of bootstraps over groups; in: whether what was stated lies among them.

{table(("read", "models", "stated [%]", "happened [%]", "90 % of samples", "in", "runs", "groups"), levels)}
![Stated probabilities against what happened](figures/reliability.svg)

{chr(10).join(parts)}"""


def _reliable(item: Reliability) -> tuple[str, ...]:
    """Return the cells of what was stated and what happened."""
    band = f"{percent(item.low)} to {percent(item.high)}"
    is_in = "yes" if item.holds else "**no**"
    return percent(item.stated), percent(item.happened), band, is_in, str(item.n), str(item.groups)


def stated_probabilities() -> StatedChances:
    """Return probabilities that the error model states, and whether what they are of happened, by title.

    Those of intervals are their levels, of runs left out by their group and read with facts blind.
    """
    known = calibration()
    return {
        **{
            f"Time in its interval, {'experts' if moe else 'dense'}": known.levels[HEADLINE, moe]
            for moe in (False, True)
        },
        "First plan within 3 % of the best": reliability(known.rankings),
        "Run fits in memory": reliability(known.fits),
        "One of Megatron-LM's tests fits": reliability(known.tests_fit),
    }


@style.apply_style
def reliability_figure(chances: StatedChances) -> Figure:
    """Draw stated probabilities against what happened, with what 90 % of samples lie within."""
    columns = min(len(chances), PANELS_IN_A_ROW)
    figure, grid = style.panel_grid(ceil(len(chances) / columns), columns)
    axes = grid.ravel()
    for ax in axes[len(chances) :]:
        ax.remove()
    for ax, (title, bins), colour in zip(axes, chances.items(), style.COLOURS, strict=False):
        said, true, low, high = (
            100 * np.array([getattr(item, name) for item in bins])
            for name in ("stated", "happened", "low", "high")
        )
        spread = np.maximum((true - low, high - true), 0)
        ax.plot((0, 100), (0, 100), color=style.GREY, linewidth=0.8)
        ax.errorbar(said, true, spread, fmt="o-", color=colour, elinewidth=0.7, capsize=2)
        ax.set(title=title, xlabel="Stated [%]", ylabel="Happened [%]", xlim=(0, 100), ylim=(0, 105))
        ax.grid(True)
    return figure


def _strain() -> str:
    """Return the section of constants under strain."""
    rows = [
        (f"`{item.name}`", f"{item.prior:.4g}", f"{item.value:.4g}", f"{item.sigmas:+.1f}", item.why)
        for item in strained()
    ]
    most = Counter[str]()
    for (what, _), n in counts().items():
        most[what] = max(most[what], n)
    used = ", ".join(f"{most[what]} of {limit} for a {what}" for what, limit in MAX_CONSTANTS.items())
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return f"""## Constants under strain

A constant at a bound, or more than {STRAIN:g} sigma from its physical prior, takes up something that is not modelled. All constants that
runs decide are counted against limits, those set apart from the joint fit included; the most that are used: {used}.

| constant | prior | value | sigma | what it takes up |
| --- | ---: | ---: | ---: | --- |
{chr(10).join(lines)}
"""


def _stacks(scores: Board) -> str:
    """Return the section of software stacks left out."""
    dense, moe = scores.by_stack(moe=False), scores.by_stack(moe=True)
    rows = [
        (
            f"`{name}`" if name != CALIBRATED else "none of these",
            *_stack(dense.get(name)),
            *_stack(moe.get(name)),
        )
        for name in sorted({*dense, *moe})
    ]
    header = ("stack", "n, dense", "MAPE", "bias", "worst", "n, with experts", "MAPE", "bias", "worst")
    return f"""## Software that was never seen

Every stack predicted with constants fitted without any of its runs: what to expect of a framework that is not here. Its constants
are then what is believed beforehand, or those of the stack it is based on.

{table(header, rows)}"""


def _stack(summary: ErrorSummary | None) -> list[str]:
    """Return the cells of a stack's errors."""
    return (
        [""] * 4
        if summary is None
        else [str(summary.n), percent(summary.mape), percent(summary.bias, "+"), percent(summary.worst)]
    )


def _peers(scores: Board) -> str:
    """Return the section of peers."""
    rows = []
    now = {summary.source: summary for summary in scores.report.summaries}
    for name, publishes, sources, what in PEERS:
        mine = scores.of(sources, LEFT_OUT)
        fitted = [now[source] for source in sources]
        n = sum(summary.n for summary in fitted)
        all_of_them = sum((getattr(summary, what) or 0.0) * summary.n for summary in fitted) / n
        rows.append(
            (name, publishes, percent(all_of_them), percent(mine.mape) if what == "mape" else "", str(n))
        )
    return f"""## Peers

What other models publish about themselves, beside this one on the runs of the same source (not always the same rows). None of them
leaves anything out; vTrain and SimuMax measure the kernels of the very GPU they then predict.

{table(("model", "publishes", "here, fitted", "left out", "n"), rows)}"""


def _kernels() -> str:
    """Return the section of kernels."""
    kernels = kernel_errors()
    rows = []
    for name in sorted({prediction.benchmark.accelerator for prediction in kernels["product"]}):
        predictions = [
            prediction for prediction in kernels["product"] if prediction.benchmark.accelerator == name
        ]
        rows.append((f"products, `{name}`", str(len(predictions)), *_bands(predictions)))
    rows.append(("**all products**", str(len(kernels["product"])), *_bands(kernels["product"])))
    rows.append(("experts' products", str(len(kernels["grouped"])), *_bands(kernels["grouped"])))
    others = [
        (kind, str(len(kernels[kind])), percent(mean(prediction.error for prediction in kernels[kind])))
        for kind in ("attention forward", "attention backward", "memory")
    ]
    return f"""## Kernels

Matrix products by work, from nothing but shape and accelerator; bundled microbenchmarks ([formulas](kernels.md), and errors left
out). Mean absolute errors in percent.

{table(("", "n", "all", *WORDS), rows)}
{table(("", "n", "MAPE"), others)}"""


def _bands(predictions: Sequence) -> list[str]:
    """Return the mean errors of matmuls, of all and by work."""
    parts = (
        [prediction.error for prediction in predictions if low <= flops(prediction) < high]
        for low, high in pairwise(WORK)
    )
    return [
        percent(mean(prediction.error for prediction in predictions)),
        *(percent(mean(part)) for part in parts),
    ]


def _collectives() -> str:
    """Return the section of collectives."""
    groups = perlmutter()
    rows = [
        (
            str(nodes),
            str(len(timings)),
            percent(mean(timing.error for timing in timings)),
            *map(percent, banded(timings)),
        )
        for nodes, timings in groups.items()
    ]
    all_timings = [timing for timings in groups.values() for timing in timings]
    rows.append(
        (
            "**all**",
            str(len(all_timings)),
            percent(mean(timing.error for timing in all_timings)),
            *map(percent, banded(all_timings)),
        )
    )
    return f"""## Collectives

nccl-tests on Perlmutter, all-gather, all-reduce and reduce-scatter, 1 to 4 GPUs in a node ([formulas, other machines, and errors
left out](collectives.md)); mean absolute errors in percent by nodes and size.

{table(("nodes", "n", "all", *(name for _, name in BANDS)), rows)}"""
