"""Search spaces of training frameworks, as batches of candidates that share their choices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final

from traincast.core.assumptions import Assumptions
from traincast.core.errors import InputError, unknown_name_error, whole_number_problems
from traincast.core.model import Model
from traincast.core.plan import Plans
from traincast.core.plan_choices import STRATEGIES, choice_problems
from traincast.core.quantities import CHOICES, KNOBS
from traincast.planner.framework_refusals import refused
from traincast.step.validity import Rule
from traincast.times.pipeline.schedules import SCHEDULES

SHAPING: Final = (
    "schedule",
    "attention",
    "sp",
    "order",
    "tp_overlap",
    "ep_overlap",
    "layout",
)  # choices that rules or the enumeration depend on
UNPIPELINED: Final = "1f1b"  # the schedule of a plan that names none; the only one searched where pp is 1
SEARCHED: Final = tuple(
    name for name in KNOBS if not name.startswith("fast_") and name != "recompute_every"
)  # can be locked


@dataclass(frozen=True)
class CandidateBatch:
    """Candidates that differ in numbers only.

    Parameters
    ----------
    strategy : str
        How a layer is sharded.
    choices : tuple of (str, value)
        Choices besides those of the strategy, and knobs that are not searched.
    vp : int or None
        Virtual stages of a device; None searches them.
    experts : bool
        Whether expert parallelism is searched.
    hybrid : bool
        Whether replicas of the sharded state (HSDP) are searched.
    uneven : bool
        Whether stages may differ by a layer.
    ordered : bool
        Whether ranks are placed in the order a framework numbers them, instead of every way that fills the fast domains.
    above : tuple of (str, int)
        Degrees that are searched only above a number.
    locks : tuple of (str, int)
        Knobs locked to one value.
    tp_in_domain : bool or None
        True: only candidates whose tensor-parallel group has several members, all in one fast domain. False: only the others.
        None: all.
    rules : tuple of Rule
        Conditions of the framework besides those of every search.
    """

    strategy: str
    choices: tuple[tuple[str, Any], ...] = ()
    vp: int | None = 1
    experts: bool = False
    hybrid: bool = False
    uneven: bool = False
    ordered: bool = False
    above: tuple[tuple[str, int], ...] = ()
    locks: tuple[tuple[str, int], ...] = ()
    tp_in_domain: bool | None = None
    rules: tuple[Rule, ...] = ()

    @property
    def given(self) -> dict[str, Any]:
        """All choices, as fields of `Plans`."""
        return {**STRATEGIES[self.strategy].choices, **dict(self.choices)}

    @property
    def shape(self) -> "CandidateBatch":
        """The batch without what no rule and no enumeration depends on: batches of one shape share their space."""
        shaping = tuple((name, value) for name, value in self.choices if name in SHAPING)
        return replace(self, choices=shaping)


@dataclass(frozen=True)
class Framework:
    """Capabilities of a training framework, and which of them are searched.

    Parameters
    ----------
    name, about : str
        Name users give it, and its description.
    strategies : tuple of str
        How layers are sharded; of several, those with a second axis leave out degree 1 of it, where they are the same as 1-D.
    choices : mapping of str to tuple
        Values of every choice that is searched.
    experts, hybrid, uneven, interleaved : bool
        Whether expert parallelism, replicas (HSDP), uneven stages and virtual stages are searched.
    ordered : bool
        Whether only the framework's own order of ranks is searched.
    overlapping : bool
        Whether degree 1 of the second axis is kept although it duplicates 1-D plans, as the paper does.
    pipeline_zero : int
        Highest stage of ZeRO it runs together with a pipeline.
    assumptions : str
        Preset or software stack that suits it.
    on_request : tuple of str
        Further strategies that it runs, searched only on request.
    unsearched : mapping of str to tuple
        Values of choices (and of ``replicas``) that it can run but that are not searched: a search reports them as held constant.
    rules : tuple of Rule
        Conditions besides those of every plan.
    """

    name: str
    about: str
    strategies: tuple[str, ...]
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    experts: bool = True
    hybrid: bool = False
    uneven: bool = True
    ordered: bool = True
    interleaved: bool = True
    overlapping: bool = False
    pipeline_zero: int = 3
    assumptions: str = "calibrated"
    on_request: tuple[str, ...] = ()
    unsearched: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()

    @property
    def runs(self) -> tuple[str, ...]:
        """Every strategy that it can run."""
        return tuple(dict.fromkeys((*self.strategies, *self.on_request)))

    def batches(
        self, model: Model, locks: Mapping[str, Any] | None = None, assumptions: Assumptions | None = None
    ) -> list[CandidateBatch]:
        """Return every batch of candidates, with locked choices and knobs at one value.

        Where the framework can overlap tensor-parallel communication, it is overlapped wherever that is possible (a group inside a
        fast domain) and hides any time: it takes no memory, so the same plan without it is never better.

        Parameters
        ----------
        model : Model
            The transformer; expert parallelism is searched where it has experts.
        locks : mapping of str to value
            Knobs and choices by name.
        assumptions : Assumptions, optional
            Decide whether overlapping tensor-parallel communication hides any of it; if left out, it does.

        Returns
        -------
        list of CandidateBatch
            In the order candidates of equal time are ranked.

        Raises
        ------
        InputError
            If a lock is no knob or choice, or has a value that is not allowed; all of them at once.
        """
        locks = dict(locks or {})
        _check(locks)
        knobs = {name: locks[name] for name in SEARCHED if name in locks}
        fixed = {name: value for name, value in locks.items() if name not in knobs}
        searched = dict(self.choices)
        if "recompute" in searched:
            searched["recompute"] = tuple(
                lean(model) if value == LEAN else value for value in searched["recompute"]
            )
        if not (self.experts and model.experts is not None):
            searched.pop("ep_overlap", None)
        if assumptions is not None and assumptions.tp_overlapped >= assumptions.tp_exposed:
            searched.pop("tp_overlap", None)
        searched |= {name: (value,) for name, value in fixed.items()}
        strategies = self._strategies(fixed)
        restricted = replace(self, strategies=tuple(strategies))
        stack = {} if assumptions is None else {"stack": assumptions.name}
        batches = []
        for strategy, values in product(strategies, product(*searched.values())):
            chosen = dict(zip(searched, values, strict=True))
            if not refused(self.name, chosen | stack):
                batches.append(restricted._batch(model, strategy, chosen, knobs, "zero" in fixed))
        return _overlapped_where_possible([batch for batch in batches if batch is not None])

    def _batch(
        self, model: Model, strategy: str, chosen: dict[str, Any], knobs: dict[str, int], held_zero: bool
    ) -> CandidateBatch | None:
        """Return the candidates of one combination of choices; None where locked knobs rule it out."""
        schedule, zero = chosen.get("schedule", UNPIPELINED), chosen.get("zero", 1)
        experts, hybrid = (
            self.experts and model.experts is not None,
            (self.hybrid or "replicas" in knobs) and zero > 0,
        )
        if any(
            value > 1 and name not in _searched(strategy, experts, hybrid) for name, value in knobs.items()
        ):
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
        """Return the strategies whose choices agree with the locked ones: of those searched, else of all the framework runs."""

        def agrees(name: str) -> bool:
            return all(
                fixed.get(choice, value) == value for choice, value in STRATEGIES[name].choices.items()
            )

        return list(filter(agrees, self.strategies)) or list(filter(agrees, self.runs))


def _overlapped_where_possible(batches: list[CandidateBatch]) -> list[CandidateBatch]:
    """Split the candidates of batches that differ only in `tp_overlap`: groups inside a fast domain overlap, others do not."""

    def rest(batch: CandidateBatch) -> CandidateBatch:
        return replace(batch, choices=tuple(choice for choice in batch.choices if choice[0] != "tp_overlap"))

    overlaps: dict[CandidateBatch, set[Any]] = {}
    for batch in batches:
        overlaps.setdefault(rest(batch), set()).add(batch.given.get("tp_overlap", False))
    return [
        replace(batch, tp_in_domain=bool(batch.given["tp_overlap"]))
        if len(overlaps[rest(batch)]) > 1
        else batch
        for batch in batches
    ]


def _searched(strategy: str, experts: bool, hybrid: bool) -> set[str]:
    """Return the knobs that a batch searches; the others are 1 in it."""
    second = STRATEGIES[strategy].second
    inside = ({"ulysses"} if strategy in ("ulysses", "hybrid") else set()) | (
        {"panels"} if second == "tp2" else set()
    )
    return {
        *STRATEGIES[strategy].axes,
        "mbs",
        "vp",
        *inside,
        *(("ep", "etp") if experts else ()),
        *(("replicas",) if hybrid else ()),
    }


def _check(locks: Mapping[str, Any]) -> None:
    """Refuse locks of unknown knobs and of values that are not allowed."""
    problems = []
    for name, value in locks.items():
        if name in CHOICES:
            problems += choice_problems(name, value)
        elif name in KNOBS and (name in SEARCHED or name == "recompute_every"):
            problems += whole_number_problems(name, value)
        else:
            problems.append(str(unknown_name_error("knob", name, (*SEARCHED, "recompute_every", *CHOICES))))
    if problems:
        raise InputError("search", problems)


LEAN: Final = "norms"  # stands for the modules that cost least to recompute
RECOMPUTE: Final = ("none", "selective", LEAN, "full")
FP8_RECIPES: Final = ("fp8-current", "fp8-block", "mxfp8", "nvfp4")


def _interleaves_where_piped(model: Model, plan: Plans, gbs: int) -> Any:
    """Return whether plans that overlap expert communication in a pipeline have virtual stages, as Megatron-Core demands."""
    return (not plan.ep_overlap) | (plan.pp == 1) | (plan.vp > 1)


OVERLAP_NEEDS_CHUNKS: Final = Rule(
    "ep_overlap in a pipeline needs virtual stages (vp > 1)",
    ("pp", "vp"),
    _interleaves_where_piped,
    search_only=True,
)


def lean(model: Model) -> str:
    """Return the modules that cost least to recompute, of those Megatron-Core can recompute: activations only of experts.

    Parameters
    ----------
    model : Model
        The transformer.

    Returns
    -------
    str
        A value of `recompute`.
    """
    more = {"activation": model.experts is not None, "mla_up_proj": model.latent is not None}
    return "+".join((LEAN, *(name for name, there in more.items() if there)))


FRAMEWORKS: Final = {
    framework.name: framework
    for framework in (
        Framework(
            "paper",
            "the search space of arXiv 2410.00273: no interleaving, no recomputation, every placement",
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
            "Megatron-Core: ring and Ulysses context parallelism, distributed optimizer, interleaved 1F1B, experts",
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
            unsearched={
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
            "torchtitan: FSDP2 and HSDP, asynchronous tensor parallelism, zero-bubble and interleaved pipelines",
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
            unsearched={
                "precision": ("fp8-current", "fp8-rowwise", "mxfp8"),
                "offload": ("optimizer+weights",),
            },
        ),
        Framework(
            "deepspeed",
            "DeepSpeed: every stage of ZeRO, Ulysses, 1F1B pipelines with ZeRO-1 at most",
            ("1d", "ulysses"),
            {"recompute": ("none", "full"), "zero": (0, 1, 2, 3), "schedule": ("1f1b",)},
            interleaved=False,
            pipeline_zero=1,
            assumptions="deepspeed-2025",
            unsearched={"offload": ("optimizer", "optimizer+weights"), "grad_dtype": ("16-bit",)},
        ),
        Framework(
            "any",
            "what any of them runs, put together freely: 1F1B and zero-bubble schedules, ZeRO stages, every placement",
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
            unsearched={
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


def framework(name: str | Framework) -> Framework:
    """Return a framework by name.

    Parameters
    ----------
    name : str or Framework
        Its name, or the object itself.

    Returns
    -------
    Framework
        The framework.

    Raises
    ------
    InputError
        If none has that name.
    """
    if isinstance(name, Framework):
        return name
    if name not in FRAMEWORKS:
        raise unknown_name_error("framework", name, FRAMEWORKS)
    return FRAMEWORKS[name]


def default_framework(model: Model, strategies: Sequence[str] | None) -> Framework:
    """Return the framework searched by default: the paper's space for its kind of model, else Megatron-Core's, else any.

    Parameters
    ----------
    model : Model
        The transformer; one without a vocabulary is of the paper's kind.
    strategies : sequence of str, optional
        Requested strategies.

    Returns
    -------
    Framework
        The framework.
    """
    requested = set(strategies or ())
    if model.vocab is None and requested <= set(FRAMEWORKS["paper"].strategies):
        return FRAMEWORKS["paper"]
    return FRAMEWORKS["megatron" if requested <= set(FRAMEWORKS["megatron"].runs) else "any"]
