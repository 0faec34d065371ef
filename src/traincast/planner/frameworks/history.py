"""Since when training frameworks have what is searched, and what earlier releases had instead."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Protocol, TypeVar

from traincast.core import JOINED_CHOICES, STRATEGIES, Bools, InputError, Plans, split_choice
from traincast.model import Model
from traincast.planner.frameworks.releases import RELEASES, numbers_of
from traincast.step import Rule

Month = tuple[int, int]  # year and month


class Released(Protocol):
    """What a release changes of a framework, which `spaces.Framework` has; that stands above."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """Name of the framework."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """What it cannot run."""

    @property
    def choices(self) -> Mapping[str, tuple[Any, ...]]:
        """Values that are searched, by knob."""

    @property
    def held(self) -> Mapping[str, tuple[object, ...]]:
        """Values of knobs that are held constant."""

    @property
    def strategies(self) -> tuple[str, ...]:
        """Strategies that are searched."""

    @property
    def on_request(self) -> tuple[str, ...]:
        """Strategies that are searched where they are asked for."""


Space = TypeVar("Space", bound=Released)


@dataclass(frozen=True)
class Feature:
    """What a framework has since some month."""

    framework: str  # its name, as in `FRAMEWORKS`; or that with which the names of its software stacks begin
    name: str  # a choice, a field of `Framework` that is on or off, or the knob that `until` is about
    since: Month  # when it was merged; containers follow within weeks, releases within months
    source: str
    values: frozenset[Any] = frozenset()  # of a choice; words of one whose words can be joined
    until: Rule | None = None  # condition before
    release: str = ""  # the first with it; every release of `RELEASES` has it where empty

    def younger(self, value: Any) -> bool:
        """Return whether a value of the choice has it."""
        of_value = split_choice(value) if value and self.name in JOINED_CHOICES else {value}
        return bool(of_value & self.values)


@dataclass(frozen=True)
class Former:
    """What a framework had up to a release, and has no more."""

    framework: str  # its name, as in `FRAMEWORKS`
    release: str  # the last with it
    source: str
    values: Mapping[str, object] = field(default_factory=dict)  # of fields of `Framework`
    rules: tuple[Rule, ...] = ()  # conditions that the next release lifts


MEGATRON: Final = "NVIDIA/Megatron-LM"
AUTOMODEL: Final = "NVIDIA-NeMo/Automodel"
MODULES: Final = frozenset({"norms", "activation", "mlp", "experts", "mla_up_proj"})


def _shards_experts_as_attention(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether experts have the tensor-parallel degree of attention."""
    return True if model.experts is None else plan.etp == plan.tp


def _has_data_parallel_attention(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether models with experts run without tensor and context parallelism."""
    return True if model.experts is None else (plan.tp == 1) & (plan.cp == 1)


def _has_even_chunks(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether virtual stages are equally long, embedding and head counted or not."""
    return (model.layers % plan.vp == 0) | (-model.layers % (plan.pp * plan.vp) <= 2)


def _keeps_delta_net_whole(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether a gated delta net runs without context parallelism."""
    return model.gated_delta is None or plan.cp == 1


def _pipes_overlapped_prediction(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether exchanges overlap beside multi-token prediction in a pipeline only."""
    return not (plan.ep_overlap and model.mtp) or plan.pp > 1


def _recomputes_no_exchange(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether DualPipeV recomputes nothing where experts are on several ranks."""
    return (plan.schedule != "dualpipe-v") | (plan.ep == 1) | (plan.recompute == "none")


ONE_TP: Final = Rule(  # until experts got ranks of their own (MoE parallel folding)
    "experts have the tensor-parallel degree of attention",
    ("tp", "etp"),
    _shards_experts_as_attention,
    search_only=True,
)
DATA_PARALLEL_ATTENTION: Final = Rule(
    "models with experts run without tensor and context parallelism",
    ("tp", "cp"),
    _has_data_parallel_attention,
    search_only=True,
)
EVEN_CHUNKS: Final = Rule(  # get_num_layers_to_build in transformer_block.py: first and last stage may differ
    "virtual stages are equally long, embedding and head counted or not",
    ("pp", "vp"),
    _has_even_chunks,
    search_only=True,
)
NO_CONTEXT: Final = Rule(
    "Megatron-Core runs the gated delta net without context parallelism before 0.18",
    ("cp",),
    _keeps_delta_net_whole,
    search_only=True,
)
PIPED_PREDICTION: Final = Rule(
    "Megatron-Core overlaps exchanges with experts beside multi-token prediction in a pipeline before 0.18",
    ("pp",),
    _pipes_overlapped_prediction,
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
        until=NO_CONTEXT, release="0.18",
    ),
    Feature(  # in 0.18.0 as well
        "megatron", "pp", (2026, 5), f"{MEGATRON} 286445c28a, ep_overlap and MTP without pp, #4796",
        until=PIPED_PREDICTION, release="0.18",
    ),
    Feature("torchtitan", "schedule", (2025, 2), "pytorch/torchtitan 3996b634a, #817", frozenset({"zb-v"})),
    Feature("automodel", "tp_overlap", (2026, 4), f"{AUTOMODEL} 2013a4dd6, #1711", frozenset({True})),
    Feature("automodel", "recompute", (2026, 6), f"{AUTOMODEL} 02c0077f6, #2389", frozenset({"per-op"})),
    Feature("automodel", "tp", (2026, 7), f"{AUTOMODEL} 8a83fdcee, #2995", until=DATA_PARALLEL_ATTENTION),
)  # fmt: skip


RECOMPUTED_DUALPIPE: Final = Rule(
    "torchtitan runs experts of several ranks under DualPipeV without recomputation before 0.3",
    ("ep",),
    _recomputes_no_exchange,
    search_only=True,
)
FORMER: Final = (
    Former(  # components/loss.py of 0.2 has no loss of chunks of the tokens
        "torchtitan",
        "0.2",
        "torchtitan 0.2.2, torchtitan/components/loss.py",
        values={"assumptions": "torchtitan-2025"},
    ),
    Former(
        "torchtitan",
        "0.2",
        "torchtitan 0.2.2, torchtitan/distributed/dual_pipe_v.py, get_dual_pipe_v_flag",
        rules=(RECOMPUTED_DUALPIPE,),
    ),
    Former(  # lowest stage that replicas can be locked with
        "deepspeed",
        "0.18",
        "DeepSpeed 0.18.9, deepspeed/runtime/zero/mics.py, which 0.19 has no more",
        values={"hybrid_zero": 3},
    ),
)


def at_release(space: Space, release: str, name: str) -> Space:
    """Return a framework as one of its releases is: without what is younger, with what went later.

    Parameters
    ----------
    space : Framework
        The framework as its newest known release is.
    release : str
        A release, such as ``0.17`` or ``0.17.1``; numbers after the second do not count.
    name : str
        The name that the release was given with.

    Raises
    ------
    InputError
        If the name has other release numbers than the framework, or the release is not known.

    Examples
    --------
    >>> from traincast.planner.frameworks.spaces import FRAMEWORKS
    >>> at_release(FRAMEWORKS["megatron"], "0.17", "megatron").version
    'Megatron-Core 0.17'
    """
    asked = f"framework = {name}@{release}"
    releases = RELEASES.get(space.name)
    if releases is None or name not in releases.names:
        named = ", ".join(f"{one} ({', '.join(each.known)})" for one, each in RELEASES.items())
        raise InputError("search", [f"{asked}: no releases of {name} are known, only of {named}"])
    wanted = ".".join(release.split(".")[:2])
    if wanted not in releases.known:
        known = ", ".join(releases.known)
        raise InputError("search", [f"{asked}: the known releases of {releases.owner} are {known}"])
    for feature in FEATURES:
        is_younger = feature.release and numbers_of(feature.release) > numbers_of(wanted)
        if feature.framework == space.name and is_younger:
            space = _drop_feature(space, feature)
    for former in FORMER:
        if former.framework == space.name and numbers_of(former.release) >= numbers_of(wanted):
            space = replace(space, rules=(*space.rules, *former.rules), **former.values)
    if wanted == releases.known[-1]:
        return space
    return replace(space, version=f"{releases.owner} {wanted}", release=wanted)


def as_of(space: Space, month: Month, stack: str = "") -> Space:
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
            space = _drop_feature(space, feature)
    return space


def _drop_feature(space: Space, feature: Feature) -> Space:
    """Return a framework without a feature."""
    if feature.until is not None:
        return replace(space, rules=(*space.rules, feature.until))
    if not feature.values:
        return replace(space, **{feature.name: False})  # a field that is on or off

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
