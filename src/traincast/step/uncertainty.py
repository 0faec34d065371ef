"""Uncertainty of predicted times: their errors, intervals, and what these are made of.

The error is that of the logarithm of predicted over measured time. Its variance is a sum: an error common to
all runs and one of the single plan; that of a short step; the errors of the step's components (communication,
bubble, host), weighted with their share of the step; and terms for software, accelerators, layers and sizes
without measured runs.
The constants stand in ``catalog/errors.yaml``, estimated (`errors_yaml`) from runs predicted with constants
fitted without their group (docs/uncertainty.md).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np

from traincast.catalog import Stack, error_figures
from traincast.core import Bools, Column, Floats, Plans, plain, rate_text
from traincast.model import LINEAR_ATTENTIONS, Model
from traincast.step.model_flops import forward_flops

# Of the fastest time: differences that the model cannot tell (docs/uncertainty.md)
MODEL_RESOLUTION: Final = 0.02
NORMAL_90_PERCENT: Final = 1.6449  # standard deviations of a normal distribution that 90 % lie within
LEAST_SHARE: Final = 0.05  # of the largest share: what is rarer changes intervals by less than 1 %
NEVER_MEASURED: Final = "never measured: "  # before a respect in which a plan lies outside of measured runs
LEAST_WIDTH: Final = 0.01  # of what an interval is said to be made of
# Deviation of the logarithm of the time in which a host issues a kernel, where no run was measured that waits
# for it: that of torch.nn.Linear takes 13 us with the Xeon 8480C of a DGX H100, and 33 to 37 us with Grace
# (NVIDIA/TransformerEngine, issue 2053).
ISSUE_DEVIATION: Final = 0.35
# The same of the mean length of documents that nobody stated: those of instructions have 100 to 800 tokens.
LENGTH_DEVIATION: Final = 0.5
STUDENT_90_PERCENT: Final = 2.1318468  # the same of Student's t with four degrees of freedom, as errors have
BISECTIONS: Final = 30  # of the logarithm of a time: to 1e-9
LEAST_HALF: Final = 1e-9  # of the width of an error, of the logarithm: that of a step over itself
# parts of a step that have an error each, and the components they add up
COMPONENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "communication": ("tp_comm", "ep_comm", "dp_comm", "pp_comm", "offload_comm"),
    "bubble": ("bubble",),
    "host": ("host", "stragglers"),
}


@dataclass(frozen=True)
class CoveredSize:
    """Size of which measured runs have a range: how to call more and less of it, and its unit, in words."""

    more: str
    fewer: str
    unit: str = ""
    linear: bool = False  # distances are differences, else logarithms of ratios
    prefixed: str = ""  # unit that follows the number, with a decimal prefix

    def text(self, value: float) -> str:
        """Return a value in words."""
        if self.prefixed:
            return rate_text(value, self.prefixed)
        if self.linear:
            return f"{self.unit}{value:g}"
        number = f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
        return self.unit + number


SIZES: Final[Mapping[str, CoveredSize]] = {
    "gpus": CoveredSize("more GPUs", "fewer GPUs"),
    "hidden": CoveredSize("a wider model", "a narrower model", "hidden size "),
    "layers": CoveredSize("more layers", "fewer layers"),
    "seq": CoveredSize("longer sequences", "shorter sequences", "tokens "),
    "pp": CoveredSize("a deeper pipeline", "a shallower pipeline", "pp "),
    "ep": CoveredSize("wider expert parallelism", "narrower expert parallelism", "ep "),
    "mbs": CoveredSize("a larger micro-batch", "a smaller micro-batch", "mbs "),
    "work": CoveredSize("more work a micro-batch", "less work a micro-batch", prefixed="FLOP"),
    "seconds": CoveredSize("longer steps", "shorter steps", "seconds "),
    "year": CoveredSize("newer software", "older software", "year ", linear=True),
}
# what a plan can have that no run of the fit has, beside sizes outside of their range
FIRSTS: Final = ("stack", "cell", "accelerator", "generation", "precision", "layers")
BRIEF: Final = {  # the same in few words
    "new_stack": "software without a fitted run",
    "new_cell": "few measured runs of its kind",
    "new_accelerator": "an unmeasured accelerator",
    "new_generation": "an unmeasured generation",
    "new_precision": "an unmeasured precision",
    "new_layers": "layers without a measured run",
}
FEW: Final = 3  # configurations (source, model, accelerator) from which on a cell counts as measured
DISTANCES: Final = (*(f"new_{name}" for name in FIRSTS), *SIZES)
SHORT_STEP: Final = 0.5  # shorter steps are less certain, waits and launches being a larger part [s]
UNLIKE: Final = 2.0  # deviation over that of measured runs, from which on no measured run is like a plan


def cell_name(stack: str, host: str, pipelined: bool, across: bool) -> str:
    """Return the name of a kind of run, of which few configurations predict another badly.

    `across`: whether the ranks of a group of experts are in several fast domains.
    """
    return (
        f"{stack}, {host}, {'pipelined' if pipelined else 'one stage'}{', experts across' if across else ''}"
    )


def host_of(accelerator: str) -> str:
    """Return what issues an accelerator's work: Grace, the host of a TPU, the graphs of a Gaudi, or x86."""
    if accelerator.startswith(("GB", "GH")):
        return "Grace"
    if accelerator.startswith("Gaudi"):
        return "Gaudi"
    return "TPU" if accelerator.startswith("TPU") else "x86"


@dataclass(frozen=True)
class Span:
    """Measured range of a size."""

    least: float
    most: float

    def beyond(self, value: Column, linear: bool = False) -> Column:
        """Return by how many factors of e (or units, if `linear`) a value lies outside."""
        if linear:
            return np.maximum(np.maximum(value - self.most, self.least - value), 0.0)
        return np.maximum(np.maximum(np.log(value / self.most), np.log(self.least / value)), 0.0)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the runs have that constants are fitted to."""

    stacks: frozenset[str]  # software
    experts: frozenset[str]  # the same of runs of mixtures of experts, whose code of experts they run
    layers: frozenset[str]  # what mixes tokens in their layers (`Kind.mixing`)
    precisions: Mapping[str, frozenset[str]]  # accelerator → precisions of its runs
    cells: Mapping[str, float]  # `cell_name` → configurations of its runs
    kin: frozenset[str]  # accelerators of a generation of which one has runs
    dense: Mapping[str, Span]  # ranges of `SIZES`, by kind of model
    moe: Mapping[str, Span]


@dataclass(frozen=True, kw_only=True)
class SoftwareShares:
    """How many configurations of measured runs, alike in what a question states, ran on which software.

    Runs of one source, model and accelerator are one configuration, however many they are. A question is
    alike in its kind of model, generation of accelerator, width of numbers and attention (`Asked`).
    """

    configurations: Mapping["Asked", Mapping[str, float]]  # of runs, by software
    releases: Mapping[str, tuple[str, ...]]  # framework and release → stacks that its measured runs had
    generations: Mapping[str, str]  # accelerator → its generation, of those with several accelerators
    prior: float  # configurations that shares among runs alike in one respect less count as
    # what is added to the deviation where nothing is said of the software, which may be none of them,
    spread: float
    open: float  # where its framework or release is and the facts of it are not: with dense models
    open_moe: float  # and with mixtures of experts
    release: float  # and by a release without measured runs
    release_moe: float

    def left_open(self, moe: bool, unsaid: Collection[str]) -> float:
        """Return what software that a question leaves open adds to the deviation, beside its alternatives.

        `unsaid`: as in `Assumptions`.
        """
        if not unsaid:
            return 0.0
        if tuple(unsaid) == Stack.ANY:
            return self.spread
        return self.open_moe if moe else self.open

    def of_new_release(self, moe: bool) -> float:
        """Return what a release without measured runs adds to the deviation."""
        return self.release_moe if moe else self.release

    @property
    def stacks(self) -> list[str]:
        """Every measured software, in alphabetical order."""
        return sorted({name for by_stack in self.configurations.values() for name in by_stack})

    def shares_with_facts(
        self, asked: "Asked", unsaid: Collection[str] | None, facts: Mapping[str, str]
    ) -> dict[str, float]:
        """Return the share of each software that a question leaves open and that has the facts it states.

        Software that states none of a fact is taken with it; where all state another value, so is all.

        `unsaid`: software that the question leaves open, all if None; `facts`: as of `read_given`.
        """
        if not facts:
            return self.shares_like(asked, unsaid)
        left = [name for name in (unsaid or self.stacks) if not Stack(name).contradicts(facts)]
        found = self.shares_like(asked, left) or self.shares_like(asked, unsaid)
        shares = dict[str, float]()
        for name, share in found.items():
            changed = Stack(name).with_given(facts).name
            shares[changed] = shares.get(changed, 0.0) + share
        return shares

    def shares_like(self, asked: "Asked", allowed: Collection[str] | None = None) -> dict[str, float]:
        """Return the share of each software among runs like a question, most of all those alike in most.

        What is rarer than `LEAST_SHARE` is left out.

        `allowed`: software that the question allows; all if left out. Empty where it allows none with runs.
        """
        counts = {
            key: {name: n for name, n in by_stack.items() if allowed is None or name in allowed}
            for key, by_stack in self.configurations.items()
        }
        names = sorted({name for by_stack in counts.values() for name in by_stack})
        shares = np.full(len(names), 1.0 / max(len(names), 1))
        for n in range(len(asked) + 1):  # alike in the first n respects
            alike = [by_stack for key, by_stack in counts.items() if key[:n] == asked[:n]]
            found = np.array([sum(by_stack.get(name, 0.0) for by_stack in alike) for name in names])
            prior = self.prior if n else 0.0
            if found.sum():
                shares = (found + prior * shares) / (found.sum() + prior)
        least = LEAST_SHARE * shares.max(initial=0.0)
        return {name: n for name, n in zip(names, shares.tolist(), strict=True) if n >= least}


ADDED: Final = ("spread", "open", "open_moe", "release", "release_moe")  # figures of `SoftwareShares`


class Asked(NamedTuple):
    """What a question states that says which software runs."""

    kind: str  # of the model: dense, experts, adapters or diffusion
    generation: str  # of the accelerator; its own name where it is of none
    width: str  # of the numbers in products: low (8 bits and less), fp16 or 16
    attention: str

    @classmethod
    def from_plans(
        cls, model: Model, accelerator: str, plans: Plans, generations: Mapping[str, str]
    ) -> "Asked":
        """Return what is asked of plans of a model on an accelerator."""
        kinds = {"experts": model.experts, "diffusion": model.diffusion, "adapters": model.adapters}
        kind = next((name for name, part in kinds.items() if part is not None), "dense")
        half = "fp16" if plans.precision.startswith("fp16") else "16"
        width = "low" if plans.recipe.is_low else half
        return cls(kind, generations.get(accelerator, accelerator), width, plans.attention)


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Errors of predictions: standard deviations of the logarithm of predicted over measured."""

    common: float  # error that runs of a model on a machine share
    own: float  # error of a single plan
    experts: float  # what mixtures of experts add
    scans: float  # what layers with linear attention add
    short: float  # what each factor of e adds that a step is shorter than `SHORT_STEP`
    communication: float  # relative error of these components of a step
    bubble: float
    host: float
    stacks: Mapping[str, float]  # how uncertain predictions of a software stack are, relative to all
    other_stacks: float  # the same of software without runs
    drifts: Mapping[str, float]  # what each of `DISTANCES` adds, of sizes for each unit of distance
    # standard deviations that 5 % of runs are faster, or slower, than predicted by: of dense models
    faster: float
    slower: float
    faster_moe: float  # and of mixtures of experts
    slower_moe: float
    apart: float  # the same of the differences between two plans
    reach: float  # `plan_distance` at which the errors of single plans are correlated by 1/e
    ranking_slope: float  # log-odds that the first plan is near the best, over those drawn
    ranking_shift: float
    ranking_layouts: float  # over the logarithm of the layouts compared
    ranking_most: float  # layouts measured side by side, at most
    evidence: Evidence
    software: SoftwareShares
    # what 90 % of the errors of memory are within, by software whose memory was measured
    memory_stacks: Mapping[str, float]
    memory: float  # the same of all measured software together
    # the median logarithm of measured over predicted memory, around which they lie: by software, and of all
    memory_shifts: Mapping[str, float]
    memory_shift: float
    memory_new_stack: float  # what software without measured memory adds


@cache
def errors() -> Errors:
    """Return the errors of predictions that the catalogue has."""
    file = error_figures()
    measured = file["measured"]
    dense, moe = ({name: Span(**span) for name, span in measured[kind].items()} for kind in ("dense", "moe"))
    evidence = Evidence(
        stacks=frozenset(measured["stacks"]),
        experts=frozenset(measured["experts"]),
        layers=frozenset(measured["layers"]),
        precisions={name: frozenset(runs) for name, runs in measured["precisions"].items()},
        cells=measured["cells"],
        kin=frozenset(measured["kin"]),
        dense=dense,
        moe=moe,
    )
    memory = {
        "memory": "ninety",
        "memory_stacks": "stacks",
        "memory_new_stack": "new_stack",
        "memory_shift": "shift",
        "memory_shifts": "shifts",
    }
    return Errors(
        **file["time"],
        **{name: file["memory"][key] for name, key in memory.items()},
        drifts=file["drifts"],
        stacks=file["stacks"],
        evidence=evidence,
        software=_software(file["software"]),
    )


def _software(part: Mapping[str, Any]) -> SoftwareShares:
    """Return the configurations of measured software as the file has them."""
    return SoftwareShares(
        configurations={
            Asked(*(row[name] for name in Asked._fields)): row["stacks"] for row in part["configurations"]
        },
        releases={name: tuple(stacks) for name, stacks in part["releases"].items()},
        generations={name: kind for kind, names in part["generations"].items() for name in names},
        prior=part["prior"],
        **{name: part[name] for name in ADDED},
    )


@dataclass(frozen=True)
class ErrorCase:
    """Properties of an estimate that its error depends on; numbers, or columns over plans."""

    stack: str  # names of the software stack and of the accelerator
    accelerator: str
    moe: bool  # whether the model has experts
    sizes: Mapping[str, Column]  # what `SIZES` names
    shares: Mapping[str, Column]  # share of the step that is spent on each of `COMPONENTS`
    layers: frozenset[str] = frozenset({"attention"})  # what mixes tokens in layers (`Kind.mixing`)
    tower_share: float = 0.0  # of the model's FLOPs in a vision tower, which no measured run has
    precision: str = "bf16"
    across: Bools | bool = False  # whether the ranks of a group of experts are in several fast domains
    # whether ranks of experts gather all of their tokens, as in no measured run
    gathers_tokens: Bools | bool = False
    # share of the step that the accelerator waits for the host's pace, where that is assumed, not measured
    waiting: Column = 0.0
    has_stated_lengths: bool = True  # of packed documents, which the wait is for

    @classmethod
    def from_step(
        cls,
        model: Model,
        accelerator: str,
        stack: str,
        plans: Plans,
        breakdown: Mapping[str, Column],
        seconds: Column,
        domain: float = np.inf,
        waiting: Column = 0.0,
        gathers_tokens: bool = False,
    ) -> "ErrorCase":
        """Return the case of an estimate; `breakdown` and `seconds` are of its time [s].

        `domain`: accelerators of a fast domain; `waiting`: share of the step that they wait for the host;
        `gathers_tokens`: whether the software has the all-gather dispatcher.
        """
        sizes = {
            **{name: getattr(plans, name) for name in ("gpus", "pp", "ep", "mbs")},
            **{name: getattr(model, name) for name in ("hidden", "layers", "seq")},
            "work": layer_work(model, plans),
            "seconds": seconds,
        }
        software = Stack(Stack(stack).fitted_name)
        if year := software.year:
            sizes["year"] = year
        shares = {
            name: sum(breakdown[component] for component in parts) / seconds
            for name, parts in COMPONENTS.items()
        }
        has_experts = model.experts is not None
        layers = frozenset(kind.mixing for kind in model.kinds if kind.mixing)
        tower_share = 0.0
        if model.tower is not None:
            forward = forward_flops(model)
            tower_share = (forward.tower + forward.projector) / sum(forward)
        across = plans.ep * plans.etp > domain if has_experts else False
        gathers = plans.ep * plans.etp > 1 if has_experts and gathers_tokens else False
        own = (has_experts, sizes, shares, layers, tower_share, plans.precision)
        has_lengths = model.documents is None or not model.documents.assumed
        paced = 0.0 if software.has_measured_pace else waiting
        return cls(software.name, accelerator, *own, across, gathers, paced, has_lengths)

    def spans(self, known: Errors) -> Mapping[str, Span]:
        """Return the sizes of measured runs of models of this kind."""
        return known.evidence.moe if self.moe else known.evidence.dense

    def factor(self, known: Errors) -> float:
        """Return how uncertain predictions of this software are, relative to all."""
        return known.stacks.get(self.stack, known.other_stacks)

    @property
    def scans(self) -> bool:
        """Whether layers have linear attention, of whose scans no backward pass was timed alone."""
        return not self.layers.isdisjoint(LINEAR_ATTENTIONS)

    @property
    def shortness(self) -> Column:
        """By how many factors of e the step is shorter than `SHORT_STEP`."""
        return np.maximum(np.log(SHORT_STEP / self.sizes["seconds"]), 0.0)

    @property
    def products_share(self) -> Column:
        """Share of the step that is not spent on any of `COMPONENTS`."""
        return 1.0 - sum(self.shares.values())

    def in_few(self, evidence: Evidence) -> Column:
        """Return 1 where fewer than `FEW` configurations of runs are in the cell, else 0."""
        found: Column = 0.0
        for pipelined, across in product((False, True), repeat=2):
            if evidence.cells.get(cell_name(self.stack, self.host, pipelined, across), 0) < FEW:
                found = found + ((self.sizes["pp"] > 1) == pipelined) * (self.across == across) * 1.0
        return found

    @property
    def host(self) -> str:
        """What issues the accelerator's work."""
        return host_of(self.accelerator)

    def firsts(self, evidence: Evidence) -> tuple[Column, ...]:
        """Return the distances in each of `FIRSTS`: 1 for what no measured run has; of layers a share.

        Of software without runs no cell has any, which is no further distance.
        """
        runs = evidence.precisions.get(self.accelerator)
        new_stack = self.stack not in (evidence.experts if self.moe else evidence.stacks)
        return (
            np.maximum(float(new_stack), self.gathers_tokens),
            0.0 if new_stack else self.in_few(evidence),
            float(runs is None) * self.products_share,
            float(runs is None and self.accelerator not in evidence.kin),
            float(runs is not None and self.precision not in runs),
            1.0 if self.layers - evidence.layers else self.tower_share,
        )

    def distances(self, known: Errors) -> dict[str, Column]:
        """Return how far outside of measured runs the case lies, in each of `DISTANCES`."""
        spans = {
            name: span.beyond(self.sizes[name], SIZES[name].linear)
            for name, span in self.spans(known).items()
            if name in self.sizes
        }
        return {
            **{f"new_{name}": d for name, d in zip(FIRSTS, self.firsts(known.evidence), strict=True)},
            **spans,
        }


def layer_work(model: Model, plans: Plans) -> Column:
    """Return the forward work of a rank in a layer and a micro-batch, of the mean layer [FLOP].

    What issues kernels, and what they need beside their products, is a larger part where it is small.
    """
    forward = forward_flops(model)
    tokens = plans.mbs * model.seq / (plans.tp * plans.tp2 * plans.cp)
    return (forward.layers + forward.attention) / model.layers * tokens


def measured_deviation(case: ErrorCase, known: Errors) -> Column:
    """Return the deviation of `deviation` as if the case lay inside of measured runs."""
    variance: Column = known.common**2 + known.own**2 + case.moe * known.experts**2
    variance = variance + case.scans * known.scans**2
    variance = variance + (known.short * case.shortness) ** 2
    for name in COMPONENTS:
        variance = variance + (getattr(known, name) * case.shares[name]) ** 2
    return case.factor(known) * variance**0.5


def host_deviation(case: ErrorCase) -> Column:
    """Return what a pace of the host adds to the deviation that no measured run has."""
    return ISSUE_DEVIATION * case.waiting


def length_deviation(case: ErrorCase) -> Column:
    """Return what lengths of documents that nobody stated add to the deviation, by the waits for them."""
    return 0.0 if case.has_stated_lengths else LENGTH_DEVIATION * case.waiting


def deviation(case: ErrorCase, known: Errors) -> Column:
    """Return the standard deviation of the logarithm of predicted over measured time."""
    variance = measured_deviation(case, known) ** 2
    variance = variance + host_deviation(case) ** 2 + length_deviation(case) ** 2
    for name, distance in case.distances(known).items():
        variance = variance + (known.drifts[name] * distance) ** 2
    return variance**0.5


def interval(
    seconds: Column, case: ErrorCase, known: Errors | None = None, spread: float = 0.0
) -> tuple[Column, Column]:
    """Return the 90 % interval of a predicted time [s].

    What a prediction leaves out takes time, so that it reaches further above than below.

    `seconds`: predicted times [s]; `spread`: deviation that something else adds.
    """
    known = known or errors()
    faster, slower = (known.faster_moe, known.slower_moe) if case.moe else (known.faster, known.slower)
    size = (deviation(case, known) ** 2 + spread**2) ** 0.5
    return plain(seconds * np.exp(-faster * size)), plain(seconds * np.exp(slower * size))


class Alternative(NamedTuple):
    """Software that a question leaves open, with what it would take."""

    weight: float
    seconds: Column  # predicted times [s]
    case: ErrorCase
    name: str = ""  # of the stack, with facts that the question states


def student_below(ends: Floats) -> Floats:
    """Return the probability that an error is below so many ends of its 90 % interval.

    Errors have Student's t distribution with four degrees of freedom, whose tails are those of left-out runs.
    """
    t = STUDENT_90_PERCENT * ends
    s = t / (4 + t**2) ** 0.5
    return np.asarray(0.5 + s * (3 - s**2) / 4)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Time, or ratio of times, that is one of several.

    Parameters
    ----------
    weights : array, shape (parts, ...)
        Share of each part.
    middle, low, high : array, shape (parts, ...)
        Logarithms of the predicted times and of the ends of their intervals [ln s].
    """

    weights: Floats
    middle: Floats
    low: Floats
    high: Floats

    @classmethod
    def from_parts(
        cls, parts: Sequence["Alternative"], known: Errors | None = None, spread: float = 0.0
    ) -> "Mixture":
        """Return the mixture of parts.

        `spread`: deviation that is added to that of each part, as software may be none of these.
        """
        known = known or errors()
        weights = np.array([part.weight for part in parts])
        columns = [(part.seconds, *interval(part.seconds, part.case, known, spread)) for part in parts]
        rows = np.broadcast_shapes(*(np.shape(figure) for column in columns for figure in column))
        logs = np.log([[np.broadcast_to(figure, rows) for figure in column] for column in columns])
        return cls((weights / weights.sum()).reshape(-1, *(1,) * len(rows)), *logs.swapaxes(0, 1))

    @cached_property
    def _below(self) -> Floats:
        """What 90 % of faster times are within, at least `LEAST_HALF` [ln s]."""
        return np.maximum(self.middle - self.low, LEAST_HALF)

    @cached_property
    def _above(self) -> Floats:
        """The same of slower times [ln s]."""
        return np.maximum(self.high - self.middle, LEAST_HALF)

    def share_below(self, x: Floats) -> Floats:
        """Return the probability that the logarithm of the time is below x, shape of x.

        Its last axes are those of the columns.
        """
        x = np.asarray(x)
        down = slice(None), *(None,) * (1 + x.ndim - self.middle.ndim)  # parts, then the further axes of x
        off = x - self.middle[down]
        end = np.where(off < 0, self._below[down], self._above[down])
        return np.asarray((self.weights[down] * student_below(off / end)).sum(axis=0))

    def quantiles(self, *shares: float) -> tuple[Column, ...]:
        """Return the times that are above the true one with some probabilities [s]."""
        rows = self.middle.shape[1:]
        wanted = np.reshape(shares, (-1, *(1,) * len(rows)))
        below = np.broadcast_to(np.min(2 * self.low - self.middle, axis=0), (len(shares), *rows))
        above = np.broadcast_to(np.max(2 * self.high - self.middle, axis=0), (len(shares), *rows))
        for _ in range(BISECTIONS):
            x = (below + above) / 2
            is_below = self.share_below(x) < wanted
            below = np.where(is_below, x, below)
            above = np.where(is_below, above, x)
        return tuple(map(plain, np.exp((below + above) / 2)))


def mixture_interval(
    parts: Sequence["Alternative"], known: Errors | None = None, spread: float = 0.0
) -> tuple[Column, Column, Column]:
    """Return the ends of the 90 % interval of a time that is one of several, and its median [s].

    `spread`: deviation that is added to that of each part.
    """
    low, high, median = Mixture.from_parts(parts, known, spread).quantiles(0.05, 0.95, 0.5)
    return low, high, median


@dataclass(frozen=True)
class Width:
    """What a part of an interval is due to."""

    due_to: str  # in words
    half: float  # half of the width of the interval that it alone would have, of the logarithm
    brief: str  # the same in few words, for the first line of an answer

    def __str__(self) -> str:
        return f"{self.due_to}: ±{np.expm1(self.half):.0%}"


def widths(
    case: ErrorCase,
    alternatives: Sequence[Alternative] = (),
    software: str = "",
    spread: float = 0.0,
    release: float = 0.0,
) -> list[Width]:
    """Return what the interval of one plan is made of, the largest first; less than 1 % is left out.

    `alternatives`: software that the question leaves open; `software`: what it does not state of it;
    `spread`: what it adds to the deviation beside them; `release`: what a new release adds.
    """
    known = errors()
    ends = (known.faster_moe, known.slower_moe) if case.moe else (known.faster, known.slower)
    scale = sum(ends) / 2
    found = list[Width]()
    if alternatives:
        weights = np.array([part.weight for part in alternatives])
        logs = np.log([float(part.seconds) for part in alternatives])
        variance = np.average((logs - np.average(logs, weights=weights)) ** 2, weights=weights)
        among = float(np.hypot(NORMAL_90_PERCENT * variance**0.5, scale * spread))
        found.append(Width(software, among, software))
    found.append(
        Width(f"{NEVER_MEASURED}this release of the software", scale * release, "an unmeasured release")
    )
    never = _respects(case)
    for name, distance in case.distances(known).items():
        if distance:
            half = scale * float(known.drifts[name] * distance)
            found.append(Width(NEVER_MEASURED + never[name], half, _in_brief(name, case, known)))
    waits = f"{NEVER_MEASURED}the host's pace, which {float(case.waiting):.0%} of the step waits for"
    found.append(Width(waits, scale * float(host_deviation(case)), "the host's pace"))
    lengths = "lengths of packed documents, which nothing states"
    found.append(Width(lengths, scale * float(length_deviation(case)), "unstated lengths of documents"))
    half = scale * float(measured_deviation(case, known))
    found.append(Width("errors of runs that were measured", half, "errors of measured runs"))
    return sorted((width for width in found if width.half >= LEAST_WIDTH), key=lambda width: -width.half)


def _in_brief(name: str, case: ErrorCase, known: Errors) -> str:
    """Return a respect in which a case of one plan lies outside of measured runs in few words."""
    if name in BRIEF:
        return BRIEF[name]
    more = float(case.sizes[name]) > case.spans(known)[name].most
    return f"{SIZES[name].more if more else SIZES[name].fewer} than measured"


def outside_measured_range(case: ErrorCase) -> list[str]:
    """Return the respects in which a case of one plan lies outside of measured runs, in words."""
    known = errors()
    distances = case.distances(known)
    respects = list(_respects(case).values())
    is_new = distances["new_generation"] > 0 or distances["new_layers"] > 0.5  # of most of its FLOPs
    if respects and (is_new or deviation(case, known) > UNLIKE * measured_deviation(case, known)):
        return ["no measured run is like this one", *respects]
    return respects


def _respects(case: ErrorCase) -> dict[str, str]:
    """Return the distances of one plan from measured runs that are not 0, in words."""
    known = errors()
    kind = "mixture-of-experts run" if case.moe else "dense run"
    of_experts = " of experts" if case.moe else ""
    new_layers = [*sorted(case.layers - known.evidence.layers), *(["vision tower"] * (case.tower_share > 0))]
    software = Stack(case.stack).words
    new_stack = f"software without a run{of_experts} that constants are fitted to ({software})"
    if case.gathers_tokens:
        new_stack = "the all-gather dispatcher of tokens"
    words = {
        "new_stack": new_stack,
        "new_cell": f"fewer than {FEW} measured configurations of {software} on {case.host}, "
        + ("pipelined" if case.sizes["pp"] > 1 else "in one stage")
        + (" and with experts across fast domains" if case.across else ""),
        "new_accelerator": f"accelerator without a measured run ({case.accelerator})",
        "new_generation": "no accelerator of its generation has one",
        "new_precision": f"precision without a measured run on {case.accelerator} ({case.precision})",
        "new_layers": f"layers without a measured run ({', '.join(new_layers)})",
    }
    respects = dict[str, str]()
    for name, distance in case.distances(known).items():
        if not distance:
            continue
        if name in words:
            respects[name] = words[name]
            continue
        size = SIZES[name]
        span = case.spans(known)[name]
        value = float(case.sizes[name])
        which, end = (size.more, span.most) if value > span.most else (size.fewer, span.least)
        against = size.text(end).removeprefix(size.unit)
        respects[name] = f"{which} than any {kind} ({size.text(value)} against {against})"
    return respects
