"""Search spaces of training frameworks, as batches of candidates that share their choices."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final

import numpy as np

from traincast.catalog import Stack
from traincast.core import (
    ALLOWED_VALUES,
    DEFAULTS,
    JOINED_CHOICES,
    RECOMPUTED_MODULES,
    STRATEGIES,
    Assumptions,
    Bools,
    InputError,
    Plan,
    Plans,
    System,
    chunks,
    contradicting_choices,
    split_choice,
    unknown_name_error,
)
from traincast.model import Model
from traincast.planner.frameworks.candidate_batch import ORDER, CandidateBatch, axes_above_one, join_batches
from traincast.planner.frameworks.history import at_release
from traincast.planner.frameworks.locks import SEARCHED, lock_values
from traincast.planner.frameworks.refusals import Refusal, drop_refused, find_refusals
from traincast.planner.frameworks.rules import (
    ALL_FORWARD_FIRST,
    EQUAL_SHARDS,
    EXPERTS_OF_REPLICAS,
    EXPERTS_ON_TENSOR_RANKS,
    MEGATRON_LINEAR,
    MEGATRON_RULES,
    SHARDED_KV_HEADS,
    UNPACKED_SHARDS,
    UNTIED_PIPELINE,
    WHOLE_EXPERTS,
    WHOLE_KV_HEADS,
    WHOLE_PAIRS,
    no_packed_weights,
    no_pipeline,
    shared_lengths,
)
from traincast.step import Rule, rule_problems
from traincast.times import SCHEDULES

UNPIPELINED: Final = "1f1b"  # the schedule of a plan that names none; the only one searched where pp is 1
MEANT_UNPIPELINED: Final = (UNPIPELINED, "gpipe")  # schedules that have plans without a pipeline if locked
BEYOND: Final = "; framework any has it"  # ends a message on what a framework does not run
# Choices that a framework has a program for or has none; others are recipes, kernels, or kept anywhere.
PROGRAMMED: Final = (
    *STRATEGIES["1d"].choices,
    "sp",
    "tp_overlap",
    "ep_overlap",
    "recompute",
    "zero",
    "schedule",
    "order",
)
# Knobs that say how the weights of a model are split: with one of them a plan is given.
SHARDING: Final = ("tp", "tp2", "cp", "pp", "ep", "replicas", "zero")


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
    hybrid_experts: bool = True  # whether they are for models with experts
    hybrid_zero: int | None = 1  # lowest stage of ZeRO that they can be locked with; None for none
    uneven: bool = True  # whether stages may differ by a layer
    ordered: bool = True  # whether only the framework's own orders of ranks are searched
    partial: bool = False  # whether, besides every placement that fills the fast domains, those in order are
    interleaved: bool = True  # whether virtual stages are searched
    overlapping: bool = (
        False  # whether degree 1 of the second axis is searched although it duplicates 1-D plans
    )
    pipeline_zero: int | None = 3  # highest stage of ZeRO that it runs with a pipeline; None: it runs none
    searched_pipeline_zero: int = 3  # highest that is searched there unless it is locked with pp
    assumptions: str = "calibrated"  # preset or software stack that suits it
    on_request: tuple[str, ...] = ()  # further strategies that it runs, searched only on request
    # Further values of choices that it runs, searched only on request: reported as held constant.
    held: Mapping[str, tuple[object, ...]] = field(default_factory=dict, hash=False)
    # Values of knobs that a launch format, or the program it starts, leaves no choice of.
    fixed: Mapping[str, Any] = field(default_factory=dict, hash=False)
    rules: tuple[Rule, ...] = ()  # conditions besides those of every plan
    also_called: tuple[str, ...] = ()  # programs that run its plans, or other names of it, in small letters
    # Stage of ZeRO of a plan given by hand that names none, where it does not search the usual one.
    usual_zero: int | None = None
    # Values of choices with which its trainers fine-tune unless told otherwise; others only where locked.
    of_fine_tuning: Mapping[str, object] = field(default_factory=dict, hash=False)
    about_fine_tuning: str = ""  # the same in words, with their source
    # Stage of ZeRO of fine-tuning on several GPUs where no plan is given; that of any plan for None.
    usual_zero_of_fine_tuning: int | None = None
    # Frameworks whose combinations of choices are searched besides its own, placed and ruled as its own are.
    includes: tuple[str, ...] = ()
    release: str = ""  # the release asked for, such as ``0.17``; the one of `version` where empty

    @property
    def label(self) -> str:
        """Name, with the release where one is asked for: ``"megatron@0.17"``."""
        return f"{self.name}@{self.release}" if self.release else self.name

    def find_refusals(self, choices: Mapping[str, object]) -> tuple[Refusal, ...]:
        """Return what its release refuses of choices; arguments as for `refusals.find_refusals`."""
        return find_refusals(self.name, choices, self.release)

    def drop_refused(self, choices: Mapping[str, object]) -> dict[str, object]:
        """Return the choices without what its release refuses."""
        return drop_refused(self.name, choices, self.release)

    @property
    def runs_all(self) -> bool:
        """Whether it is no software but a space of every strategy, to which any choice can be added.

        It remains one where a search is restricted to some of them.
        """
        whole = FRAMEWORKS.get(self.name, self)
        return set(whole.runs) == set(STRATEGIES)

    @property
    def varied(self) -> set[str]:
        """Choices of which it, or a framework that it includes, searches several values."""
        several = {name for name, values in self.choices.items() if len(values) > 1}
        of_strategies = set(STRATEGIES["1d"].choices)
        return several.union(of_strategies, *(FRAMEWORKS[name].varied for name in self.includes))

    @property
    def runs_on_tpus(self) -> bool:
        """Whether it runs on TPUs."""
        return self.runs_all or self.assumptions == Stack.TPU

    def not_run(self, locks: Mapping[str, object]) -> list[str]:
        """Return a line for each value of a locked choice that it does not run."""
        lines = []
        for name in () if self.runs_all else filter(locks.__contains__, PROGRAMMED):
            runs = self._values(name)
            parts = frozenset().union(*(_parts(name, value) for value in runs))
            for value in lock_values(name, locks[name]):
                if not _parts(name, value) <= parts:
                    others = sorted(runs) if isinstance(value, int) else runs
                    listed = "" if isinstance(value, bool) else f"; it runs {', '.join(map(str, others))}"
                    listed = f"{self.name} does not run it{listed}"
                    why = next((refusal.why for refusal in self.find_refusals({name: value})), listed)
                    lines.append(f"{name} = {value}: {why}{BEYOND}")
        return lines

    def _values(self, name: str) -> tuple[Any, ...]:
        """Return the values of a choice that it runs."""
        if name in STRATEGIES["1d"].choices:
            return tuple(dict.fromkeys(STRATEGIES[strategy].choices[name] for strategy in self.runs))
        if name == "order" and not self.ordered:
            return ALLOWED_VALUES[name]
        values = (*self.choices.get(name, (DEFAULTS[name],)), *self.held.get(name, ()))
        if name == "recompute" and "selective" in values:  # Megatron's, of any modules
            values += tuple(word for word in RECOMPUTED_MODULES if word != "per-op")
        return tuple(dict.fromkeys(values))

    def usual_assumptions(self, model: Model, system: System | None = None) -> str:
        """Return the name of the preset or software stack that suits it with a model on a system."""
        usual = Stack(self.assumptions)
        if not usual.is_known:
            return self.assumptions
        if usual.name == Stack.DEFAULT:
            usual = Stack.usual(model) if system is None or not system.is_tpu else Stack(Stack.TPU)
        return usual.calibrated_on(model, system).name

    @property
    def runs(self) -> tuple[str, ...]:
        """Every strategy that it can run."""
        return tuple(dict.fromkeys((*self.strategies, *self.on_request)))

    @property
    def kept(self) -> tuple[Rule, ...]:
        """Its rules, and that on ZeRO in a pipeline, which a search keeps by the batches that it makes."""
        highest = self.pipeline_zero
        if highest in (None, 3):  # None: another rule says that it runs no pipeline
            return self.rules
        rule = Rule(
            f"{self.name} runs ZeRO-{highest} at most in a pipeline",
            ("pp",),
            lambda model, plan, gbs: (plan.pp == 1) | (plan.zero <= highest),
            search_only=True,
        )
        return (*self.rules, rule)

    def training(self, model: Model) -> "Framework":
        """Return it as it trains a model: where that is fine-tuned, with choices as its trainers set them."""
        if not model.is_fine_tuned or not self.of_fine_tuning:
            return self
        held = {name: self.choices.get(name, ()) for name in self.of_fine_tuning}
        return replace(
            self,
            about=f"{self.about}; {self.about_fine_tuning}",
            choices={**self.choices, **{name: (value,) for name, value in self.of_fine_tuning.items()}},
            held={**self.held, **held},
        )

    def fine_tuning_knobs(self, knobs: Mapping[str, object], gpus: int) -> dict[str, Any]:
        """Return the knobs of a plan given by hand, with the choices of its trainers where it names none.

        A plan of several GPUs without a degree other than dp and without a stage of ZeRO is sharded as people
        fine-tune, `usual_zero_of_fine_tuning`.
        """
        filled = {**self.of_fine_tuning, **knobs}
        if self.usual_zero_of_fine_tuning is None or gpus == 1 or any(name in knobs for name in SHARDING):
            return filled
        return {**filled, "zero": self.usual_zero_of_fine_tuning}

    def complete_knobs(
        self, knobs: Mapping[str, Any], fine_tunes: bool = False, gpus: int = 1
    ) -> dict[str, object]:
        """Return the knobs of a plan given by hand, with what it takes where the plan names none.

        That is the stage of ZeRO and, where it `fine_tunes` on a number of GPUs, the choices of its trainers.
        """
        filled = self.fine_tuning_knobs(knobs, gpus) if fine_tunes else dict(knobs)
        if "zero" in filled or self.usual_zero is None:
            return filled
        highest = self.searched_pipeline_zero if filled.get("pp", 1) > 1 else 3
        return {**filled, "zero": min(self.usual_zero, highest)}

    def broken(self, model: Model, plan: Plan, gbs: int) -> list[str]:
        """Return a line for each of its rules that a plan breaks, given by hand or changed."""
        columns = plan.columns()
        return rule_problems(
            (rule for rule in self.kept if not np.all(rule.holds(model, columns, gbs))), model, plan, gbs
        )

    def batches(
        self, model: Model, locks: Mapping[str, Any], assumptions: Assumptions, tiers: int = 2
    ) -> list[CandidateBatch]:
        """Return every batch on a network of some tiers, with locked choices and knobs at their values.

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
        if fixed.get("attention") == "summa":  # which only SUMMA has
            fixed = {"tp_kind": "summa", **fixed}
        layout = fixed.get("layout")
        if layout and (layers := sum(chunks(layout))) != model.layers:
            problem = f"its numbers add up to {layers} layers, not to the {model.layers} of the model"
            raise InputError("search", [f"layout = {layout}: {problem}"])
        searched = dict(self.choices)
        if "recompute" in searched:
            modules = searched["recompute"]
            searched["recompute"] = tuple(lean(model) if value == LEAN else value for value in modules)
        overlap = assumptions.overlap
        hides = overlap.tp_overlapped < overlap.tp_exposed
        if not (self.experts and model.experts is not None) or overlap.ep_overlapped >= overlap.ep_exposed:
            searched.pop("ep_overlap", None)
        if self.experts and model.experts is not None and "sp" in searched:
            searched["sp"] = (True,)  # which experts need
        elif any(length % 2 for length in shared_lengths(model)) and False in self.held.get("sp", ()):
            searched["sp"] = (False,)  # no usual degree of tp cuts an odd sequence
        if not self.ordered and tiers == 2:
            searched.pop("order", None)  # a placement on the fast domains says it all
        if not hides:
            searched.pop("tp_overlap", None)
        searched |= {name: lock_values(name, value) for name, value in fixed.items()}
        overlapping = hides and len(searched.get("tp_overlap", ())) > 1
        if overlapping:  # of both halves one batch, which overlaps what it can
            searched["tp_overlap"] = (False,)
        strategies = self._strategies(fixed)
        needed = tuple(rule for name, rule in SEVERAL_RANKS.items() if _is_meant(name, fixed))
        restricted = replace(self, strategies=tuple(strategies), rules=self.rules + needed)
        stack = {"stack": assumptions.name}
        batches = list[CandidateBatch]()
        reasons = list[str]()
        for strategy, values in product(strategies, product(*searched.values())):
            chosen = dict(zip(searched, values, strict=True))
            if self.find_refusals(chosen | stack):
                continue
            if wrong := contradicting_choices({**chosen, **STRATEGIES[strategy].choices}):
                reasons += wrong
                continue
            above = axes_above_one(chosen, searched)
            batch = restricted._batch(model, strategy, chosen, knobs, "zero" in fixed, above)
            if isinstance(batch, str):
                reasons.append(batch)
                continue
            overlaps = overlapping and not self.find_refusals(chosen | stack | {"tp_overlap": True})
            batches.append(replace(batch, overlaps_in_domain=overlaps))
        batches = join_batches([*batches, *self._included_batches(model, locks, assumptions, tiers)])
        if not batches:
            requested = product(*(lock_values(name, value) for name, value in fixed.items()))
            problems = [
                f"{refusal.choice} = {choices[refusal.choice]}: {refusal.why}{self._beyond}"
                for choices in (dict(zip(fixed, values, strict=True)) for values in requested)
                for refusal in self.find_refusals(choices | stack)
            ]
            problems += filter(None, dict.fromkeys(reasons))
            together = ", ".join(f"{name} = {value}" for name, value in locks.items())
            nothing = f"{together}: {self.name} runs no such plan of strategies {', '.join(self.strategies)}"
            if self.name != "any" and not FRAMEWORKS["any"].has_batches(model, locks, assumptions, tiers):
                problems = [problem.removesuffix(BEYOND) for problem in problems]
            raise InputError("search", problems or [nothing])
        return batches

    def has_batches(
        self, model: Model, locks: Mapping[str, object], assumptions: Assumptions, tiers: int = 2
    ) -> bool:
        """Return whether locks leave anything of what it runs."""
        try:
            return bool(self.batches(model, locks, assumptions, tiers))
        except InputError:
            return False

    @property
    def _beyond(self) -> str:
        """The end of a message on what it does not run; of several frameworks there is none beyond."""
        return "" if self.includes else BEYOND

    def searches_replicas(self, model: Model) -> bool:
        """Return whether replicas are searched for a model."""
        return self.hybrid and (self.hybrid_experts or model.experts is None)

    def _included_batches(
        self, model: Model, locks: Mapping[str, object], assumptions: Assumptions, tiers: int
    ) -> Iterator[CandidateBatch]:
        """Yield the batches of the combinations of choices of the frameworks that it includes.

        A locked choice that one of them does not search has its default there, or leaves nothing of it.
        """
        for other in (FRAMEWORKS[name] for name in self.includes):
            strategies = tuple(name for name in other.strategies if name in self.runs)
            choices = {**other.choices, "tp_overlap": self.choices["tp_overlap"]}
            if "sp" in choices:  # of a group of one rank this framework has the default already
                choices["sp"] = ALLOWED_VALUES["sp"]
            unsearched = {
                name: DEFAULTS[name] for name in self.choices if name in locks and name not in choices
            }
            if any(default not in lock_values(name, locks[name]) for name, default in unsearched.items()):
                continue
            joined = replace(
                self,
                strategies=strategies,
                choices=choices,
                hybrid=other.hybrid,
                hybrid_experts=other.hybrid_experts,
                includes=(),
            )
            with suppress(InputError):  # where the locks leave nothing of it
                yield from joined.batches(model, {**locks, **unsearched}, assumptions, tiers)

    def _batch(
        self,
        model: Model,
        strategy: str,
        chosen: dict[str, Any],
        knobs: dict[str, int],
        held_zero: bool,
        above: tuple[str, ...],
    ) -> CandidateBatch | str:
        """Return the candidates of one combination of choices, or why locked knobs rule it out.

        They have more than one rank on the axes that `above` names. The reason is empty where it is not the
        whole one: with other choices the same locks may leave some.
        """
        schedule = chosen.get("schedule", UNPIPELINED)
        zero = chosen.get("zero", 1)
        experts = self.experts and model.experts is not None
        hybrid = self.hybrid_zero is not None and zero >= self.hybrid_zero
        hybrid &= self.searches_replicas(model) or "replicas" in knobs
        searched = _searched_knobs(strategy, experts, hybrid)
        for name, value in knobs.items():
            if value > 1 and name not in searched:
                why = self._lacks(model, name)
                return why and f"{name} = {value}: {why}"
        if knobs.get("vp", 1) > 1 and not (self.interleaved or self.runs_all):
            return f"vp = {knobs['vp']}: {self.name} runs no virtual stages{self._beyond}"
        vp = SCHEDULES[schedule].virtual_stages
        if vp is None:
            vp = knobs.get("vp", None if self.interleaved else 1)
        if "vp" in knobs and vp != knobs["vp"]:
            return f"vp = {knobs['vp']}: schedule {schedule} needs vp = {vp}"
        second = STRATEGIES[strategy].second
        if second and strategy != self.strategies[0] and not self.overlapping:
            above = (*above, second)
        if any(knobs.get(axis) == 1 for axis in above):
            return ""
        if schedule not in MEANT_UNPIPELINED:
            above = (*above, "pp")
            if knobs.get("pp") == 1:
                return f"pp = 1: schedule {schedule} is of a pipeline"
        requested = held_zero and "pp" in knobs
        most = -1 if self.pipeline_zero is None else self.pipeline_zero
        highest = min(most, 3 if requested else self.searched_pipeline_zero)
        if zero > highest:
            if {knobs.get("pp", 1), knobs.get("vp", 1)} != {1} or schedule != UNPIPELINED or "pp" in above:
                if self.pipeline_zero is None:
                    return f"pp = {knobs.get('pp', 2)}: {self.name} runs no pipeline{self._beyond}"
                more = self._beyond if zero > most else " unless zero and pp are both given"
                return f"zero = {zero}: {self.name} runs ZeRO-{highest} at most in a pipeline{more}"
            knobs = knobs | {"pp": 1}
            vp = 1
        of_strategy = STRATEGIES[strategy].choices
        return CandidateBatch(
            strategy,
            choices=tuple((name, value) for name, value in chosen.items() if name not in of_strategy),
            vp=vp,
            experts=experts,
            hybrid=hybrid,
            uneven=self.uneven,
            ordered=self.ordered,
            partial=self.partial,
            above=tuple((axis, 1) for axis in dict.fromkeys(above)),
            locks=tuple(knobs.items()),
            rules=self.rules,
        )

    def _lacks(self, model: Model, knob: str) -> str:
        """Return why a knob is not searched that was locked above 1; empty where another strategy has it."""
        if knob == "replicas":
            least = f" below ZeRO-{self.hybrid_zero}" if self.hybrid_zero else ""
            return f"{self.name} keeps no replicas of what is sharded{least}{self._beyond}"
        if knob in ("ep", "etp"):
            no_experts = f"{self.name} does not shard experts{self._beyond}"
            return "the model has no experts" if model.experts is None else no_experts
        having = [name for name in STRATEGIES if knob in _searched_knobs(name, experts=False, hybrid=False)]
        if set(having) & set(self.strategies):
            return ""
        beyond = "" if set(having) & set(FRAMEWORKS.get(self.name, self).runs) else self._beyond
        return f"needs a strategy of {', '.join(having)}, not {', '.join(self.strategies)}{beyond}"

    def _strategies(self, fixed: Mapping[str, object]) -> list[str]:
        """Return the strategies that agree with locked choices: of those searched, else of all it runs."""

        def agrees(name: str) -> bool:
            choices = STRATEGIES[name].choices.items()
            return all(value in lock_values(choice, fixed.get(choice, value)) for choice, value in choices)

        return list(filter(agrees, self.strategies)) or list(filter(agrees, self.runs))


def _is_meant(choice: str, fixed: Mapping[str, object]) -> bool:
    """Return whether locks leave a kind of parallelism no value but others than its default."""
    return choice in fixed and DEFAULTS[choice] not in lock_values(choice, fixed[choice])


def _searched_knobs(strategy: str, experts: bool, hybrid: bool) -> set[str]:
    """Return the knobs that a batch searches; the others are 1 in it."""
    knobs = {*STRATEGIES[strategy].axes, *STRATEGIES[strategy].knobs, "mbs", "vp"}
    knobs |= {"ep", "etp"} if experts else set()
    return knobs | ({"replicas"} if hybrid else set())


def _parts(choice: str, value: Any) -> frozenset[Any]:
    """Return the words of a value of a choice that joins them, else the value alone."""
    return split_choice(value) if choice in JOINED_CHOICES else frozenset({value})


LEAN: Final = "norms"  # stands for the modules that cost least to recompute
RECOMPUTE: Final = ("none", "selective", LEAN, "full")
FP8_RECIPES: Final = ("fp8-current", "fp8-block", "mxfp8", "nvfp4")


def _has_context_ranks(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether there are several context ranks."""
    return plan.cp > 1


def _has_tensor_ranks(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether there are several tensor ranks."""
    return plan.tp * plan.tp2 > 1


SEVERAL_RANKS: Final = {  # of a kind of parallelism that is asked for: on one rank there is nothing of it
    "cp_kind": Rule(
        "the locked cp_kind needs several context ranks",
        ("cp",),
        _has_context_ranks,
        search_only=True,
    ),
    "tp_kind": Rule(
        "the locked tp_kind needs several tensor ranks",
        ("tp", "tp2"),
        _has_tensor_ranks,
        search_only=True,
    ),
}


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
            "Megatron-Core 0.19.2",
            "megatron/training/arguments.py, megatron/core/transformer/transformer_config.py",
            ("1d", "ring", "ulysses"),
            {
                "recompute": RECOMPUTE,
                "zero": (1,),
                "schedule": ("1f1b",),
                "tp_overlap": (False, True),
                "ep_overlap": (False, True),
                "order": (ORDER, "tp-cp-pp-dp"),
            },
            hybrid=True,  # instances of the distributed optimizer
            hybrid_experts=False,
            assumptions="megatron-core-2025",
            also_called=(
                *("megatron-lm", "megatron-core", "mcore", "megatron-bridge", "nemo", "nemo2"),
                *("nemo-framework", "nvidia-nemo"),
            ),
            on_request=("context", "hybrid"),
            held={
                "precision": FP8_RECIPES,
                "offload": ("optimizer", "activations"),
                "optimizer_kind": ("adam-bf16", "adam-8bit"),
                "master_copy": ("remainder",),
                "grad_dtype": ("16-bit",),
                "zero": (0, 2, 3),  # the last two of Megatron-FSDP
                "sp": (False,),
                "replicas": (),  # of models with experts
                "layout": (),  # embedding and head counted as layers
                "cp_kind": ("all-gather",),
                "attention": ("unfused",),
                "recompute_every": (2, 3, 4),
                "offload_every": (2, 4),
            },
            rules=MEGATRON_RULES,
        ),
        Framework(
            "torchtitan",
            "torchtitan: FSDP2 and HSDP, asynchronous tensor parallelism, zero-bubble and interleaved"
            " pipelines",
            "torchtitan 0.3.0",
            "torchtitan/config/configs.py, torchtitan/distributed/activation_checkpoint.py",
            ("1d", "context"),
            {
                "recompute": ("none", "per-op", "full"),
                "zero": (2, 3),
                "schedule": ("1f1b", "gpipe", "zb-v"),
                "tp_overlap": (False, True),
            },
            hybrid=True,
            searched_pipeline_zero=2,  # with a pipeline it does not reshard unless told to
            assumptions="torchtitan-2025+loss=chunked",  # components/loss.py, in every configuration of 0.3
            also_called=("titan", "torch-titan"),
            usual_zero=3,  # fsdp_reshard_after_forward = "default": no stage 2 without a pipeline
            rules=(
                no_packed_weights("torchtitan"),
                SHARDED_KV_HEADS,
                UNTIED_PIPELINE,
                EXPERTS_ON_TENSOR_RANKS,
                WHOLE_EXPERTS,
                EQUAL_SHARDS,
            ),
            on_request=("ring",),  # releases before 0.3 could exchange keys and values so
            held={
                "precision": ("fp8-current", "fp8-rowwise", "mxfp8"),
                "offload": ("optimizer+weights",),
                "zero": (0,),  # DDP
                "sp": (False,),
                "schedule": ("dualpipe-v",),
                "cp_kind": ("ring",),
                "recompute_every": (2, 3, 4),
                "layout": (),
            },
        ),
        Framework(
            "deepspeed",
            "DeepSpeed: every stage of ZeRO, Ulysses, 1F1B pipelines with ZeRO-1 at most",
            "DeepSpeed 0.19.8",
            "deepspeed/runtime/config.py, deepspeed/runtime/zero/config.py, deepspeed/runtime/pipe",
            ("1d", "ulysses"),
            {"recompute": ("none", "full"), "zero": (0, 1, 2, 3), "schedule": ("1f1b",), "sp": (True, False)},
            interleaved=False,
            hybrid_zero=None,  # MiCS went with 0.19: deepspeed@0.18 has it
            pipeline_zero=1,  # deepspeed/runtime/pipe/engine.py, PipelineEngine.__init__
            assumptions="deepspeed-2025",
            held={"offload": ("optimizer", "optimizer+weights"), "grad_dtype": ("16-bit",)},
            rules=(EQUAL_SHARDS,),
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
                "schedule": ("1f1b", "gpipe"),
                "sp": (True, False),
                "tp_overlap": (False, True),
            },
            hybrid_zero=None,
            interleaved=False,
            assumptions="nanotron-2025",
            held={"grad_dtype": ("16-bit",)},
            rules=(no_packed_weights("nanotron"), WHOLE_KV_HEADS, EXPERTS_OF_REPLICAS, EQUAL_SHARDS),
        ),
        Framework(
            "fsdp",
            "PyTorch: FSDP2 and HSDP with tensor and context parallelism, no pipeline",
            "PyTorch 2.9",
            "torch.distributed.fsdp.fully_shard, torch.distributed.tensor.parallel",
            ("1d", "context", "ring"),
            {"recompute": ("none", "full"), "zero": (2, 3), "sp": (True, False)},
            experts=False,
            hybrid=True,
            interleaved=False,
            pipeline_zero=None,
            # torchtune, LitGPT and Composer shard with FSDP, and have no pipeline either
            also_called=(
                *("fsdp2", "fsdp1", "pytorch", "pytorch-fsdp", "torchtune", "litgpt", "composer"),
                *("llm-foundry", "lightning", "pytorch-lightning"),
            ),
            usual_zero=3,  # reshard_after_forward of fully_shard
            rules=(no_pipeline("FSDP2 alone"), EQUAL_SHARDS),
            assumptions="torchtitan-2025",
            held={
                "precision": ("fp8-current", "fp8-rowwise", "mxfp8"),
                "offload": ("optimizer+weights",),
                "zero": (0,),  # DDP
            },
        ),
        Framework(
            "huggingface",
            "transformers' Trainer with Accelerate, and TRL, PEFT and axolotl on it: DDP, FSDP2 and ZeRO, no"
            " pipeline",
            "transformers 5.23, accelerate 1.15",
            "transformers/training_args.py, accelerate/parallelism_config.py",
            ("1d",),
            {"recompute": ("none", "full"), "zero": (0, 2, 3), "sp": (False,)},
            experts=False,
            hybrid=True,
            interleaved=False,
            pipeline_zero=None,
            assumptions=Stack.FINE_TUNING,
            also_called=(
                *("hf", "hf-trainer", "huggingface-trainer", "trainer", "transformers", "accelerate", "peft"),
                *("trl", "axolotl", "llama-factory", "llamafactory", "deepspeed-hf", "hf-deepspeed"),
                "alignment-handbook",
            ),
            usual_zero=0,  # DDP: TrainingArguments without fsdp and deepspeed
            of_fine_tuning={"recompute": "full"},
            about_fine_tuning="gradient checkpointing on, as TRL 1.16 has it",  # trl/trainer/base_config.py
            # What `plan` recommends for a large model. Without a configuration Accelerate runs DDP, where
            # each GPU holds all frozen weights.
            usual_zero_of_fine_tuning=3,
            on_request=("context", "ring"),
            held={
                "offload": ("optimizer", "optimizer+weights"),
                "optimizer_kind": ("adam-8bit",),
                "zero": (1,),  # of DeepSpeed
                "sp": (True,),
                "attention": ("unfused",),
                "precision": ("bf16-pure", "fp8-current"),
            },
            rules=(no_pipeline("transformers' Trainer"), UNPACKED_SHARDS, WHOLE_PAIRS, EQUAL_SHARDS),
        ),
        Framework(
            "jax",
            "MaxText on JAX: sharding by XLA, all-gather and ring context parallelism, experts, GPipe",
            "MaxText 0.2.2",
            "src/maxtext/configs/base.yml, src/maxtext/configs/types.py, src/maxtext/layers/pipeline.py",
            ("1d", "context", "ring"),
            {
                "recompute": ("none", "full"),
                "zero": (1, 3),
                "schedule": ("1f1b", "gpipe"),
                "sp": (True, False),
            },
            hybrid=True,
            ordered=False,
            interleaved=False,
            assumptions=Stack.TPU,
            also_called=("maxtext",),
            held={
                "precision": ("fp8-current", "int8"),
                "offload": ("optimizer", "activations"),
                "zero": (0,),
            },
            rules=(ALL_FORWARD_FIRST, EQUAL_SHARDS),
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
                "schedule": ("1f1b", "zb-h1", "zb-v", "dualpipe", "dualpipe-v"),
                "tp_overlap": (False, True),
                "ep_overlap": (False, True),
            },
            ordered=False,
            partial=True,
            assumptions="megatron-core-2025",
            on_request=tuple(STRATEGIES),
            rules=(EQUAL_SHARDS,),
            # What the frameworks combine with other choices is searched with those.
            held={
                "precision": (*FP8_RECIPES, "fp8-rowwise"),
                "offload": ("optimizer", "optimizer+weights", "activations"),
                "optimizer_kind": ("adam-bf16", "adam-8bit"),
                "grad_dtype": ("16-bit",),
                "zero": (0,),
                "sp": (False,),
                "schedule": ("gpipe", "zb-2p"),  # than which zb-h2 is never faster
                "replicas": (),
                "order": ("tp-cp-pp-dp",),
                "cp_kind": ("all-gather",),
                "attention": ("unfused",),
                "recompute_every": (2, 3, 4),
                "offload_every": (2, 4),
            },
            includes=(
                "paper",
                "megatron",
                "torchtitan",
                "deepspeed",
                "nanotron",
                "fsdp",
                "jax",
                "huggingface",
            ),
        ),
    )
}


CALLED: Final = {
    other: framework.name for framework in FRAMEWORKS.values() for other in framework.also_called
}


def framework(name: str | Framework) -> Framework:
    """Return the framework of a name, in any case, or a given framework itself.

    The name of a program whose plans it runs names it as well: those of TRL are those of huggingface. A
    release after ``@`` searches what that release runs: ``"megatron@0.17"``.

    Raises
    ------
    InputError
        If there is no such framework, or nothing is known of the release.
    """
    if isinstance(name, Framework):
        return name
    program, at, release = str(name).partition("@")
    written = program.strip().lower().replace("_", "-").replace(" ", "-")
    known = CALLED.get(written, written)
    if known not in FRAMEWORKS:
        raise unknown_name_error("framework", program, FRAMEWORKS)
    return at_release(FRAMEWORKS[known], release.strip(), written) if at else FRAMEWORKS[known]


def default_framework(model: Model, system: System | None, strategies: Sequence[str] = ()) -> Framework:
    """Return the paper's framework, JAX, transformers, Megatron-Core or any: the first that suits.

    A model of the paper's kind has no vocabulary. TPUs run JAX. Models are fine-tuned with transformers, TRL
    and PEFT, which alone hold weights that bitsandbytes packs (QLoRA).
    """
    requested = set(strategies)
    megatron = FRAMEWORKS["megatron"]
    if model.vocab is None and model.diffusion is None and requested <= set(FRAMEWORKS["paper"].strategies):
        return FRAMEWORKS["paper"]
    if system is not None and system.is_tpu:
        return FRAMEWORKS["jax" if requested <= set(FRAMEWORKS["jax"].runs) else "any"]
    transformers = FRAMEWORKS["huggingface"]
    if model.is_fine_tuned and requested <= set(transformers.runs):
        return transformers
    has_layers = MEGATRON_LINEAR.holds(model, Plans(), 1)
    return megatron if has_layers and requested <= set(megatron.runs) else FRAMEWORKS["any"]
