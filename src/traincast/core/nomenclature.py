"""Table of every knob, figure and result: symbol, unit and meaning, for help, docs and axis labels."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from traincast.core.json_schema import describe_key
from traincast.core.knobs import CHOICES, KNOB_SPECS, KNOBS
from traincast.core.quantities import figure_specs
from traincast.core.system import Accelerator, Tier

Kind: TypeAlias = Literal[
    "model", "knob", "choice", "result", "interval", "time", "memory", "point", "figure"
]


@dataclass(frozen=True, slots=True)
class Info:
    """Symbol, unit and meaning of a knob, figure or result."""

    name: str
    symbol: str  # of arXiv 2410.00273; empty if the paper has none
    unit: str
    kind: Kind
    meaning: str


TIERS: Final = (  # words for {inside}, {tier} and {domain} in the meaning of a tier's figure
    ("inside a fast domain", "a fast domain", "a fast domain"),
    ("between domains", "the second tier", "a domain of the second tier"),
    ("of the third tier", "the third tier", "a domain of the third tier"),
    ("of the fourth tier", "the fourth tier", "a domain of the fourth tier"),
)
# Names that models have in several tables: symbol, unit, meaning.
_MODEL: Final = {
    "layers": ("L", "", "transformer layers"),
    "hidden": ("e", "", "embedding width"),
    "heads": ("h", "", "attention heads"),
    "ffn": ("f", "", "width of the MLP's inner layer"),
    "seq": ("l", "token", "sequence length"),
}
_JOB: Final[tuple[Info, ...]] = (
    Info("gpus", "n", "", "knob", "accelerators in the job, the product of all degrees"),
    Info("gbs", "gbs", "sequence", "knob", "global batch of one optimizer step"),
)
_RESULTS: Final[dict[Kind, tuple[tuple[str, str, str], ...]]] = {  # name, unit, meaning
    "result": (
        ("step_seconds", "s", "time of one optimizer step"),
        ("memory_bytes", "byte", "memory of the fullest rank"),
        ("tokens_per_second_per_gpu", "token/s", "training throughput of one GPU"),
        ("training_days", "day", "length of the whole training run"),
    ),
    "interval": (
        ("step_seconds_low", "s", "time that measured steps are above with 95 % probability"),
        ("step_seconds_high", "s", "time that measured steps are below with 95 % probability"),
        ("fits_probability", "", "probability that the plan fits in memory"),
    ),
    "point": (
        ("model", "", "model"),
        ("system", "", "system"),
        ("strategy", "", "how a layer is sharded: 1d, summa, context, ring, ulysses or hybrid"),
        ("assumptions", "", "what is assumed"),
        ("point", "", "number of the point on the varied axes, the last axis running fastest"),
        ("candidates", "", "candidate plans that meet every rule"),
        ("feasible", "", "candidates that fit in memory"),
        ("rank", "", "place among the best plans of the point"),
        ("plan", "", "the plan by strategy, knobs and choices that are not at their defaults"),
    ),
    "time": (
        ("compute", "s", "arithmetic, launches included"),
        ("exposed_memory", "s", "memory traffic not hidden behind arithmetic"),
        ("recomputation", "s", "forward passes recomputed for backward"),
        ("tp_comm", "s", "tensor- and context-parallel communication, exposed"),
        ("ep_comm", "s", "tokens sent to experts and back, exposed"),
        ("dp_comm", "s", "weight gathering and gradient reduction, exposed"),
        ("pp_comm", "s", "activations passed between stages"),
        ("bubble", "s", "waiting for the pipeline to fill and drain"),
        ("optimizer_step", "s", "optimizer step and gradient clipping"),
        ("offload_comm", "s", "copies to and from the host's memory, exposed"),
        ("host", "s", "waiting for the host to issue work, and what it does between steps"),
        ("stragglers", "s", "waiting for the slowest of many ranks"),
        ("data_loading", "s", "waiting for the input pipeline"),
    ),
    "memory": (
        ("weights", "byte", "weights"),
        ("gradients", "byte", "gradients"),
        ("optimizer", "byte", "optimizer states and master weights"),
        ("activations", "byte", "activations kept for backward"),
        ("logits", "byte", "logits and their gradients in the loss"),
        ("gathered", "byte", "weights gathered for the layers at work (FSDP)"),
        ("buffers", "byte", "outside the allocator: device context, libraries, buffers of communicators"),
        ("workspace", "byte", "activations of the layer at work, and temporary buffers"),
        ("copies", "byte", "what the optimizer's step takes beside its states"),
        ("reserved", "byte", "what the allocator holds and cannot use"),
    ),
}
_SYMBOLS: Final = {"step_seconds": "t", "weights": "W"}


def _results(*kinds: Kind) -> tuple[Info, ...]:
    """Return the rows of results of some kinds."""
    return tuple(
        Info(name, _SYMBOLS.get(name, ""), unit, kind, meaning)
        for kind in kinds
        for name, unit, meaning in _RESULTS[kind]
    )


def _knobs(names: tuple[str, ...], kind: Kind) -> tuple[Info, ...]:
    """Return the rows of knobs or choices of a plan."""
    specs = {name: KNOB_SPECS[name] for name in names}
    return tuple(Info(name, spec.symbol, spec.unit, kind, spec.meaning) for name, spec in specs.items())


def _figures() -> tuple[Info, ...]:
    """Return the rows of the figures that a sweep can vary, by their path."""
    rows = [
        Info(f"accelerator.{name}", "", spec.unit, "figure", spec.meaning)
        for name, spec in figure_specs(Accelerator).items()
        if spec.varies
    ]
    for i, (inside, tier, domain) in enumerate(TIERS):
        for name, spec in figure_specs(Tier).items():
            if not (spec.outer_only if i == 0 else spec.inner_only):
                meaning = spec.meaning.format(
                    inside=inside, tier=tier, domain=domain, port="one port (NIC), " if i else ""
                )
                rows.append(Info(f"network.{i}.{name}", "", spec.unit, "figure", meaning))
    vp = KNOB_SPECS["vp"]
    rows.append(Info("plan.vp", vp.symbol, vp.unit, "figure", vp.meaning))
    return (*rows, *_model("model.", "figure"))


def _model(prefix: str, kind: Kind) -> tuple[Info, ...]:
    return tuple(Info(f"{prefix}{name}", *row[:2], kind, row[2]) for name, row in _MODEL.items())


COLUMNS: Final = {
    info.name: info
    for info in (
        *_model("", "model"),
        *_JOB,
        *_knobs(KNOBS, "knob"),
        *_knobs(CHOICES, "choice"),
        *_results("result", "interval", "point"),
        *_figures(),
        *_results("time", "memory"),
    )
}
INTERVALS: Final = tuple(name for name, _, _ in _RESULTS["interval"])


def number_keys(kind: str) -> dict[str, object]:
    """Return the JSON Schemas of numbers of one kind in the nomenclature, such as components of a time."""
    return {
        name: {"type": "number"} | describe_key(info.meaning, info.unit)
        for name, info in COLUMNS.items()
        if info.kind == kind
    }
