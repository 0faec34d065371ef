"""Search spaces of training frameworks, as batches of candidates that share their choices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final

from traincast.catalog.software_stacks import DEFAULT_STACK, usual_stack
from traincast.core.assumptions import Assumptions
from traincast.core.errors import InputError, unknown_name_error, whole_number_problems
from traincast.core.knobs import ALLOWED, CHOICES, KNOBS, STRATEGIES, choice_problems
from traincast.core.model import Model
from traincast.core.plan import AXES, Plans
from traincast.planner.framework_refusals import refused
from traincast.step.validity import Rule
from traincast.times.pipeline.schedules import SCHEDULES

# Choices that rules or the enumeration depend on.
SHAPING: Final = ("schedule", "attention", "sp", "order", "tp_overlap", "ep_overlap", "layout")
UNPIPELINED: Final = "1f1b"  # the schedule of a plan that names none; the only one searched where pp is 1
UNSEARCHED: Final = {f"fast_{axis}" for axis in AXES} | {"recompute_every"}
SEARCHED: Final = tuple(name for name in KNOBS if name not in UNSEARCHED)  # can be locked
LOCKABLE: Final = (*SEARCHED, "recompute_every", *CHOICES)


@dataclass(frozen=True)
class CandidateBatch:
    """Candidates that differ in numbers only."""

    strategy: str
    choices: tuple[
        tuple[str, Any], ...
    ] = ()  # besides those of the strategy; and knobs that are not searched
    vp: int | None = 1  # virtual stages of a device; None searches them
    experts: bool = False  # whether expert parallelism is searched
    hybrid: bool = False  # whether replicas of the sharded state (HSDP) are searched
    uneven: bool = False  # whether stages may differ by a layer
    ordered: bool = False  # whether ranks are placed in the framework's order only, instead of every way
    above: tuple[tuple[str, int], ...] = ()  # degrees that are searched only above a number
    locks: tuple[tuple[str, int], ...] = ()  # knobs locked to one value
    # whether tensor-parallel communication is overlapped in groups inside a fast domain, and in no others
    overlaps_in_domain: bool = False
    rules: tuple[Rule, ...] = ()  # conditions of the framework besides those of every search

    @property
    def given(self) -> dict[str, Any]:
        """All choices, as fields of `Plans`."""
        return {**STRATEGIES[self.strategy].choices, **dict(self.choices)}

    @property
    def shape(self) -> "CandidateBatch":
        """The batch with what shapes its space only: batches of one shape share it."""
        shaping = tuple(choice for choice in self.choices if choice[0] in SHAPING)
        return replace(self, choices=shaping, overlaps_in_domain=False)


@dataclass(frozen=True)
class Framework:
    """Capabilities of a training framework, and which of them are searched."""

    name: str
    about: str
    version: str  # of the software whose capabilities these are
    source: str  # where they are documented
    strategies: tuple[str, ...]  # of several, those with a second axis leave out degree 1 of it: it is 1-D
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, hash=False)  # values searched
    experts: bool = True  # whether expert parallelism is searched
    hybrid: bool = False  # whether replicas (HSDP) are
    uneven: bool = True  # whether stages may differ by a layer
    ordered: bool = True  # whether only the framework's own order of ranks is searched
    interleaved: bool = True  # whether virtual stages are searched
    overlapping: bool = (
        False  # whether degree 1 of the second axis is searched although it duplicates 1-D plans
    )
    pipeline_zero: int = 3  # highest stage of ZeRO it runs together with a pipeline
    assumptions: str = "calibrated"  # preset or software stack that suits it
    on_request: tuple[str, ...] = ()  # further strategies that it runs, searched only on request
    # Further values of choices that it runs, searched only on request: reported as held constant.
    held: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, hash=False)
    rules: tuple[Rule, ...] = ()  # conditions besides those of every plan

    def usual_assumptions(self, model: Model) -> str:
        """Return the name of the preset or software stack that suits it with a model."""
        return usual_stack(model) if self.assumptions == DEFAULT_STACK else self.assumptions

    @property
    def runs(self) -> tuple[str, ...]:
        """Every strategy that it can run."""
        return tuple(dict.fromkeys((*self.strategies, *self.on_request)))

    def batches(
        self, model: Model, locks: Mapping[str, Any], assumptions: Assumptions
    ) -> list[CandidateBatch]:
        """Return every batch of candidates, with locked choices and knobs at one value.

        Where the framework can overlap tensor-parallel communication, it is overlapped wherever that is
        possible (a group inside a fast domain) and hides any time: it takes no memory, so the same plan
        without it is never better.

        Raises
        ------
        InputError
            If the locks leave nothing of what the framework runs.
        """
        knobs = {name: locks[name] for name in SEARCHED if name in locks}
        fixed = {name: value for name, value in locks.items() if name not in knobs}
        searched = dict(self.choices)
        if "recompute" in searched:
            modules = searched["recompute"]
            searched["recompute"] = tuple(lean(model) if value == LEAN else value for value in modules)
        if not (self.experts and model.experts is not None):
            searched.pop("ep_overlap", None)
        if assumptions.overlap.tp_overlapped >= assumptions.overlap.tp_exposed:
            searched.pop("tp_overlap", None)
        searched |= {name: lock_values(name, value) for name, value in fixed.items()}
        overlapping = len(searched.get("tp_overlap", ())) > 1
        if overlapping:  # of both halves one batch, which overlaps what it can
            searched["tp_overlap"] = (False,)
        strategies = self._strategies(fixed)
        restricted = replace(self, strategies=tuple(strategies))
        stack = {"stack": assumptions.name}
        batches = []
        for strategy, values in product(strategies, product(*searched.values())):
            chosen = dict(zip(searched, values, strict=True))
            if refused(self.name, chosen | stack):
                continue
            batch = restricted._batch(model, strategy, chosen, knobs, "zero" in fixed)
            if batch is not None:
                overlaps = overlapping and not refused(self.name, chosen | stack | {"tp_overlap": True})
                batches.append(replace(batch, overlaps_in_domain=overlaps))
        if not batches:
            requested = product(*(lock_values(name, value) for name, value in fixed.items()))
            problems = [
                f"{refusal.choice} = {choices[refusal.choice]}: {refusal.why}; framework any has it"
                for choices in (dict(zip(fixed, values, strict=True)) for values in requested)
                for refusal in refused(self.name, choices | stack)
            ]
            nothing = f"the locks leave nothing of what {self.name} can run; framework any has more"
            raise InputError("search", problems or [nothing])
        return batches

    def _batch(
        self, model: Model, strategy: str, chosen: dict[str, Any], knobs: dict[str, int], held_zero: bool
    ) -> CandidateBatch | None:
        """Return the candidates of one combination of choices; None where locked knobs rule it out."""
        schedule, zero = chosen.get("schedule", UNPIPELINED), chosen.get("zero", 1)
        experts = self.experts and model.experts is not None
        hybrid = (self.hybrid or "replicas" in knobs) and zero > 0
        searched = _searched(strategy, experts, hybrid)
        if any(value > 1 and name not in searched for name, value in knobs.items()):
            return None
        vp = SCHEDULES[schedule].virtual_stages
        if vp is None:
            vp = knobs.get("vp", None if self.interleaved else 1)
        if "vp" in knobs and vp != knobs["vp"]:
            return None
        second = STRATEGIES[strategy].second
        above = ((second, 1),) if second and strategy != self.strategies[0] and not self.overlapping else ()
        if above and knobs.get(above[0][0]) == 1:
            return None
        if zero > self.pipeline_zero and not (held_zero and "pp" in knobs):
            if {knobs.get("pp", 1), knobs.get("vp", 1)} != {1} or schedule != UNPIPELINED:
                return None
            knobs, vp = knobs | {"pp": 1}, 1
        of_strategy = STRATEGIES[strategy].choices
        return CandidateBatch(
            strategy,
            choices=tuple((name, value) for name, value in chosen.items() if name not in of_strategy),
            vp=vp,
            experts=experts,
            hybrid=hybrid,
            uneven=self.uneven,
            ordered=self.ordered,
            above=above,
            locks=tuple(knobs.items()),
            rules=self.rules,
        )

    def _strategies(self, fixed: Mapping[str, Any]) -> list[str]:
        """Return the strategies that agree with locked choices: of those searched, else of all it runs."""

        def agrees(name: str) -> bool:
            choices = STRATEGIES[name].choices.items()
            return all(value in lock_values(choice, fixed.get(choice, value)) for choice, value in choices)

        return list(filter(agrees, self.strategies)) or list(filter(agrees, self.runs))


def _searched(strategy: str, experts: bool, hybrid: bool) -> set[str]:
    """Return the knobs that a batch searches; the others are 1 in it."""
    knobs = {*STRATEGIES[strategy].axes, *STRATEGIES[strategy].knobs, "mbs", "vp"}
    knobs |= {"ep", "etp"} if experts else set()
    return knobs | ({"replicas"} if hybrid else set())


def lock_values(choice: str, lock: Any) -> tuple[Any, ...]:
    """Return the values that a lock leaves of a choice: several where a sequence of them is given."""
    return tuple(lock) if choice in ALLOWED and isinstance(lock, list | tuple) else (lock,)


def check_locked_values(locks: Mapping[str, Any]) -> None:
    """Refuse locks of unknown knobs and of values that are not allowed."""
    problems = []
    for name, value in locks.items():
        if name in CHOICES:
            values = lock_values(name, value)
            problems += [] if values else [f"{name}: give at least one value"]
            problems += [wrong for one in values for wrong in choice_problems(name, one)]
        elif name in LOCKABLE:
            problems += whole_number_problems(name, value)
        else:
            problems.append(str(unknown_name_error("knob", name, LOCKABLE)))
    if problems:
        raise InputError("search", problems)


LEAN: Final = "norms"  # stands for the modules that cost least to recompute
RECOMPUTE: Final = ("none", "selective", LEAN, "full")
FP8_RECIPES: Final = ("fp8-current", "fp8-block", "mxfp8", "nvfp4")


def _interleaves_where_piped(model: Model, plan: Plans, gbs: int) -> Any:
    """Return whether plans that overlap expert communication in a pipeline have virtual stages."""
    return (not plan.ep_overlap) | (plan.pp == 1) | (plan.vp > 1)


OVERLAP_NEEDS_CHUNKS: Final = Rule(
    "ep_overlap in a pipeline needs virtual stages (vp > 1)",
    ("pp", "vp"),
    _interleaves_where_piped,
    search_only=True,
)
WHOLE_KV_HEADS: Final = Rule(  # huggingface/nanotron 00708b8, src/nanotron/config/config.py
    "nanotron needs a head of keys and values on every tensor rank",
    ("tp", "groups"),
    lambda model, plan, gbs: plan.tp <= model.groups,
    search_only=True,
)


def lean(model: Model) -> str:
    """Return the modules that cost least to recompute, of those that Megatron-Core can recompute."""
    more = {"activation": model.experts is not None, "mla_up_proj": model.latent is not None}
    return "+".join((LEAN, *(name for name, there in more.items() if there)))


FRAMEWORKS: Final = {
    framework.name: framework
    for framework in (
        Framework(
            "paper",
            "the search space of arXiv 2410.00273: no interleaving, no recomputation, every placement",
            "arXiv 2410.00273",
            "section 3, search space",
            ("1d", "summa", "context"),
            experts=False,
            uneven=False,
            ordered=False,
            interleaved=False,
            overlapping=True,
            assumptions="paper",
            on_request=tuple(STRATEGIES),
        ),
        Framework(
            "megatron",
            "Megatron-Core: ring and Ulysses context parallelism, distributed optimizer, interleaved 1F1B,"
            " experts",
            "Megatron-Core 0.16.1",
            "megatron/training/arguments.py, megatron/core/transformer/transformer_config.py",
            ("1d", "ring", "ulysses"),
            {
                "recompute": RECOMPUTE,
                "zero": (1,),
                "schedule": ("1f1b",),
                "tp_overlap": (False, True),
                "ep_overlap": (False, True),
            },
            assumptions="megatron-core-2025",
            on_request=("context", "hybrid"),
            held={
                "precision": FP8_RECIPES,
                "offload": ("optimizer",),
                "optimizer_kind": ("adam-bf16", "adam-8bit"),
                "grad_dtype": ("16-bit",),
                "zero": (2, 3),  # Megatron-FSDP
                "sp": (False,),
                "replicas": (),  # instances of the distributed optimizer
                "order": ("tp-cp-pp-dp",),
            },
            rules=(OVERLAP_NEEDS_CHUNKS,),
        ),
        Framework(
            "torchtitan",
            "torchtitan: FSDP2 and HSDP, asynchronous tensor parallelism, zero-bubble and interleaved"
            " pipelines",
            "torchtitan 0.3.0",
            "torchtitan/config/configs.py, torchtitan/distributed/activation_checkpoint.py",
            ("1d", "ring"),
            {
                "recompute": ("none", "per-op", "full"),
                "zero": (2, 3),
                "schedule": ("1f1b", "zb-v"),
                "tp_overlap": (False, True),
            },
            hybrid=True,
            pipeline_zero=2,
            assumptions="torchtitan-2025",
            on_request=("context",),
            held={
                "precision": ("fp8-current", "fp8-rowwise", "mxfp8"),
                "offload": ("optimizer+weights",),
            },
        ),
        Framework(
            "deepspeed",
            "DeepSpeed: every stage of ZeRO, Ulysses, 1F1B pipelines with ZeRO-1 at most",
            "DeepSpeed 0.19.8",
            "deepspeed/runtime/config.py, deepspeed/runtime/zero/config.py, deepspeed/runtime/pipe",
            ("1d", "ulysses"),
            {"recompute": ("none", "full"), "zero": (0, 1, 2, 3), "schedule": ("1f1b",)},
            interleaved=False,
            pipeline_zero=1,
            assumptions="deepspeed-2025",
            held={"offload": ("optimizer", "optimizer+weights"), "grad_dtype": ("16-bit",)},
        ),
        Framework(
            "nanotron",
            "nanotron: ring attention, 1F1B pipelines, ZeRO-1",
            "huggingface/nanotron 00708b8",
            "src/nanotron/config, src/nanotron/parallel",
            ("1d", "ring"),
            {
                "recompute": ("none", "full"),
                "zero": (0, 1),
                "schedule": ("1f1b",),
                "tp_overlap": (False, True),
            },
            interleaved=False,
            assumptions="nanotron-2025",
            held={"schedule": ("gpipe",), "grad_dtype": ("16-bit",), "sp": (False,)},
            rules=(WHOLE_KV_HEADS,),
        ),
        Framework(
            "any",
            "what any of them runs, put together freely: 1F1B and zero-bubble schedules, ZeRO stages, every"
            " placement",
            "traincast",
            "the frameworks above and below, put together",
            ("1d", "ring", "ulysses"),
            {
                "recompute": (*RECOMPUTE, "per-op"),
                "zero": (1, 2, 3),
                "schedule": ("1f1b", "zb-h1", "zb-v", "dualpipe"),
                "tp_overlap": (False, True),
                "ep_overlap": (False, True),
            },
            ordered=False,
            assumptions="megatron-core-2025",
            on_request=tuple(STRATEGIES),
            held={
                "precision": (*FP8_RECIPES, "fp8-rowwise"),
                "offload": ("optimizer", "optimizer+weights", "activations"),
                "optimizer_kind": ("adam-bf16", "adam-8bit"),
                "grad_dtype": ("16-bit",),
                "zero": (0,),
                "sp": (False,),
                "replicas": (),
            },
        ),
    )
}
LAUNCH_SPACES: Final = {  # of launch formats whose framework is not offered by name
    framework.name: framework
    for framework in (
        Framework(
            "accelerate",
            "Accelerate: FSDP2 and HSDP with tensor parallelism and context parallelism, no pipeline",
            "Accelerate 1.15.0",
            "accelerate/parallelism_config.py",
            ("1d", "context", "ring"),
            {"recompute": ("none", "full"), "zero": (2, 3)},
            experts=False,
            hybrid=True,
            interleaved=False,
            pipeline_zero=0,
            assumptions="torchtitan-2025",
        ),
    )
}


def framework(name: str | Framework) -> Framework:
    """Return the framework of a name, or a given framework itself."""
    if isinstance(name, Framework):
        return name
    if name not in FRAMEWORKS:
        raise unknown_name_error("framework", name, FRAMEWORKS)
    return FRAMEWORKS[name]


def default_framework(model: Model, strategies: Sequence[str] | None) -> Framework:
    """Return the default framework: the paper's for its kind of model, else Megatron-Core, else any.

    A model of the paper's kind has no vocabulary; requested `strategies` have to be among those of the
    framework.
    """
    requested = set(strategies or ())
    if model.vocab is None and requested <= set(FRAMEWORKS["paper"].strategies):
        return FRAMEWORKS["paper"]
    return FRAMEWORKS["megatron" if requested <= set(FRAMEWORKS["megatron"].runs) else "any"]
