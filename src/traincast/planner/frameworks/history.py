"""Since when training frameworks have what is searched: a run is compared with what its software had."""

from dataclasses import dataclass, replace
from typing import Any, Final

from traincast.core.knobs import JOINED, STRATEGIES, words
from traincast.planner.frameworks.spaces import Framework
from traincast.step.validity import Rule

Month = tuple[int, int]  # year and month


@dataclass(frozen=True)
class Feature:
    """What a framework has since some month."""

    framework: str  # its name, as in `FRAMEWORKS`; or that with which the names of its software stacks begin
    name: str  # a choice, a field of `Framework` that is on or off, or the knob that `until` is about
    since: Month  # when it was merged; containers follow within weeks, releases within months
    source: str
    values: frozenset[Any] = frozenset()  # of a choice; words of one whose words can be joined
    until: Rule | None = None  # condition before

    def younger(self, value: Any) -> bool:
        """Return whether a value of the choice has it."""
        of_value = words(value) if value and self.name in JOINED else {value}
        return bool(of_value & self.values)


MEGATRON: Final = "NVIDIA/Megatron-LM"
AUTOMODEL: Final = "NVIDIA-NeMo/Automodel"
MODULES: Final = frozenset({"norms", "activation", "mlp", "experts", "mla_up_proj"})
ONE_TP: Final = Rule(  # until experts got ranks of their own (MoE parallel folding)
    "experts have the tensor-parallel degree of attention",
    ("tp", "etp"),
    lambda model, plan, gbs: True if model.experts is None else plan.etp == plan.tp,
    search_only=True,
)
DATA_PARALLEL_ATTENTION: Final = Rule(
    "models with experts run without tensor and context parallelism",
    ("tp", "cp"),
    lambda model, plan, gbs: True if model.experts is None else (plan.tp == 1) & (plan.cp == 1),
    search_only=True,
)
EVEN_CHUNKS: Final = Rule(  # get_num_layers_to_build in transformer_block.py: first and last stage may differ
    "virtual stages are equally long, embedding and head counted or not",
    ("pp", "vp"),
    lambda model, plan, gbs: (model.layers % plan.vp == 0) | (-model.layers % (plan.pp * plan.vp) <= 2),
    search_only=True,
)
NO_CONTEXT: Final = Rule(
    "Megatron-Core runs the gated delta net without context parallelism before 0.18",
    ("cp",),
    lambda model, plan, gbs: model.gated_delta is None or plan.cp == 1,
    search_only=True,
)
PIPED_PREDICTION: Final = Rule(
    "Megatron-Core overlaps exchanges with experts beside multi-token prediction in a pipeline before 0.18",
    ("pp",),
    lambda model, plan, gbs: not (plan.ep_overlap and model.mtp) or plan.pp > 1,
    search_only=True,
)
FEATURES: Final = (
    Feature(
        "megatron", "order", (2024, 4), f"{MEGATRON} 6513cde7b2, use-tp-pp-dp-mapping",
        frozenset({"tp-cp-pp-dp"}),
    ),
    Feature("megatron", "uneven", (2024, 9), f"{MEGATRON} fa8bb5921b, decoder-first-pipeline-num-layers"),
    Feature(
        "megatron", "cp_kind", (2024, 11), f"{MEGATRON} 645c329d07, cp-comm-type",
        frozenset({"ulysses", "hybrid"}),
    ),
    Feature(
        "megatron", "etp", (2024, 11), f"{MEGATRON} 7f22e210cd, expert-tensor-parallel-size", until=ONE_TP
    ),
    Feature("megatron", "hybrid", (2024, 11), f"{MEGATRON} bb84eb93fa, num-distributed-optimizer-instances"),
    Feature("megatron", "recompute", (2025, 4), f"{MEGATRON} 3b141a2471, recompute-modules", MODULES),
    Feature(
        "megatron", "ep_overlap", (2025, 8), f"{MEGATRON} ae1c88296f, overlap-moe-expert-parallel-comm",
        frozenset({True}),
    ),
    Feature(
        "megatron", "layout", (2025, 6), f"{MEGATRON} 77732c3628, pipeline-model-parallel-layout",
        until=EVEN_CHUNKS,
    ),
    Feature(  # in 0.19.0, of August 2026
        "megatron", "recompute", (2026, 6), f"{MEGATRON} ff5264c33d, gdn_norm_out, #4715",
        frozenset({"gdn_norm_out"}),
    ),
    Feature(  # in 0.18.0, of June 2026
        "megatron", "cp", (2026, 4), f"{MEGATRON} 20ba03fec0, context parallel gated delta net, #2642",
        until=NO_CONTEXT,
    ),
    Feature(  # in 0.18.0 as well
        "megatron", "pp", (2026, 5), f"{MEGATRON} 286445c28a, ep_overlap and MTP without pp, #4796",
        until=PIPED_PREDICTION,
    ),
    Feature("torchtitan", "schedule", (2025, 2), "pytorch/torchtitan 3996b634a, #817", frozenset({"zb-v"})),
    Feature("automodel", "tp_overlap", (2026, 4), f"{AUTOMODEL} 2013a4dd6, #1711", frozenset({True})),
    Feature("automodel", "recompute", (2026, 6), f"{AUTOMODEL} 02c0077f6, #2389", frozenset({"per-op"})),
    Feature("automodel", "tp", (2026, 7), f"{AUTOMODEL} 8a83fdcee, #2995", until=DATA_PARALLEL_ATTENTION),
)  # fmt: skip


def as_of(space: Framework, month: Month, stack: str = "") -> Framework:
    """Return a framework as it was in a month: without what is younger.

    Parameters
    ----------
    space : Framework
        The framework as it is.
    month : tuple of int
        Year and month.
    stack : str, optional
        Software stack, where another framework of the catalogue's runs on this one.

    Examples
    --------
    >>> from traincast.planner.frameworks.spaces import FRAMEWORKS
    >>> as_of(FRAMEWORKS["megatron"], (2024, 7)).choices["recompute"]
    ('none', 'selective', 'full')
    """
    for feature in FEATURES:
        concerned = feature.framework == space.name or stack.startswith(feature.framework)
        if concerned and feature.since > month:
            space = _without(space, feature)
    return space


def _without(space: Framework, feature: Feature) -> Framework:
    """Return a framework without a feature."""
    if feature.until is not None:
        return replace(space, rules=(*space.rules, feature.until))
    if not feature.values:
        return replace(space, **{feature.name: False})  # type: ignore[arg-type]  # a field that is on or off

    def older(name: str) -> bool:
        return not feature.younger(STRATEGIES[name].choices.get(feature.name))

    searched, held = (
        {
            choice: tuple(value for value in values if choice != feature.name or not feature.younger(value))
            for choice, values in choices.items()
        }
        for choices in (space.choices, space.held)
    )
    strategies, on_request = (tuple(filter(older, names)) for names in (space.strategies, space.on_request))
    return replace(space, choices=searched, held=held, strategies=strategies, on_request=on_request)
