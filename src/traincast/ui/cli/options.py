"""Options that the commands share: model, system, batch, and the knobs of a plan."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Group, Parameter

from traincast.core import (
    ALLOWED_VALUES,
    KNOBS,
    PLACEMENTS,
    ErrorCollector,
    InputError,
    Knobs,
    NothingFits,
    make_record,
    parse_count,
    raise_problems,
    replace_fields,
    whole_number_problems,
)
from traincast.ui.cli.app import KNOB_GROUP, QUESTION, option, question_option
from traincast.ui.cli.completion import (
    names_of_assumptions,
    names_of_choices,
    names_of_facts,
    names_of_frameworks,
    names_of_models,
    names_of_systems,
)
from traincast.ui.cli.output import remark, warn
from traincast.ui.cli.quantities import parse_duration, parse_option, parse_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cyclopts import Token

    from traincast.core import Assumptions, Plan, System
    from traincast.model import Model, Routing
    from traincast.planner import Framework, Question
    from traincast.step import Estimate, Metrics
    from traincast.ui.text.plans import Usual

_MODEL = "Catalogue model, file, or Hugging Face config.json."
_SYSTEM = "System of the catalogue, or a file."
_ASSUMED = "calibrated, paper(-published), or a software stack."
ModelName = Annotated[str, question_option(_MODEL, metavar="MODEL", completer=names_of_models)]
SystemName = Annotated[str, question_option(_SYSTEM, metavar="SYSTEM", completer=names_of_systems)]
Assumed = Annotated[str | None, question_option(_ASSUMED, completer=names_of_assumptions)]
_GIVEN = "Facts of software: dispatcher=deepep,graphs=none."
GivenFacts = Annotated[
    list[str] | None,
    question_option(
        _GIVEN, name="--given", metavar="FACT=VALUE", consume_multiple=1, completer=names_of_facts
    ),
]
_BATCH = option(
    "Sequences of a step; else the model's, or 4M tokens.",
    name=["--global-batch", "--gbs"],
)
_TOKENS = "Global batch in tokens (4M; k, M, G count in 1024)."
_LOAD = "Expert load: max / mean, tokens of each expert, or natural (its router's)."
_TRAIN = (
    "full, sft, dpo, lora, qlora or dpo+lora, with settings or PEFT's config: "
    "lora:r=16,targets=q+v,base=nf4,dropout or qlora:FILE."
)
LENGTHS: Final = (
    "Document lengths (512:0.7,2048:0.3, or a file with one a line), packed; padded:512,1024 pads."
)
IMAGES: Final = "Images of a sequence for the vision tower; else 1."
_IMAGE_SIZE = "Side of an image [pixels]; else the tower's or 1024."
_FROZEN = "Freeze the vision tower; its projectors are trained."
_RULES = "Whose rules and software stack: {frameworks}, or a program that runs their plans (trl)."
_INPUT_RATE = "Data loading of a GPU (20 ktoken/s); else unlimited."
_STORAGE = "From a GPU to storage (250 MB/s); else the system's."
_RESTART = "Time to restart after a failure (10min), in goodput."
FSDP_ASSUMED: Final = "FSDP (ZeRO-3) as no plan is given (--zero; 0 is DDP)"
LENGTH: Final = "Sequence length [tokens] (8k); else the model's own."


def read_length(_: object, tokens: "Sequence[Token]") -> int:
    """Read a sequence length, of which k counts 1,024."""
    try:
        return parse_count(tokens[0].value, "--seq", 1024)
    except InputError as error:
        raise ValueError(error.problems[0].partition(": ")[2]) from None


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of the training run and of its metrics."""

    seq: Annotated[int | None, option(LENGTH, converter=read_length)] = None
    global_batch: Annotated[int | None, _BATCH] = None
    tokens_per_batch: Annotated[str | None, option(_TOKENS)] = None
    imbalance: Annotated[str | None, option(_LOAD)] = None
    images: Annotated[int | None, option(IMAGES)] = None
    image_size: Annotated[int | None, option(_IMAGE_SIZE)] = None
    frozen_tower: Annotated[bool, option(_FROZEN)] = False
    train: Annotated[str, option(_TRAIN)] = "full"
    lengths: Annotated[str | None, option(LENGTHS)] = None
    tokens: Annotated[str | None, option("Tokens of the run (15T); else the model's own.")] = None
    price: Annotated[float | None, option("Price of a GPU-hour [$]; else the system's.")] = None
    restart: Annotated[str | None, option(_RESTART)] = None
    input_rate: Annotated[str | None, option(_INPUT_RATE)] = None
    storage_bandwidth: Annotated[str | None, option(_STORAGE)] = None

    def read_run(
        self,
        errors: ErrorCollector,
        name: str,
        system_name: str,
        usual: int | None = None,
        sharding: str = "",
    ) -> "tuple[Model | None, System | None, int | None]":
        """Return model, system and global batch [sequences]; errors are collected in `errors`.

        Without a batch of the model or on the command line, it is the `usual` one, or 4M tokens. The model's
        line on what is assumed of fine-tuning ends with the `sharding` of its weights.
        """
        from traincast.catalog import Training, load_model, load_system
        from traincast.step import check_given

        seen = (self.images, self.image_size, self.frozen_tower)
        training = errors.catch(Training.read, self.train, self.lengths, *seen)
        loaded = partial(load_model, name)
        if training is None:
            model = errors.catch(loaded, seq=self.seq)
        else:
            model = errors.catch(training.load, loaded, self.seq)
        system = errors.catch(load_system, system_name)
        load = None if self.imbalance is None else errors.catch(self._load)
        if model is not None and load is not None:
            model = errors.catch(model.with_load, load) or model
        if model is not None and training is not None:
            model = errors.catch(training.apply_to, model) or model
            batches = self.global_batch, self.tokens_per_batch, usual
            has_batch = any(batch is not None for batch in batches)
            has_length = self.seq is not None
            model = training.with_assumed(
                model, has_length=has_length, has_batch=has_batch, sharding=sharding
            )
        if system is not None:
            system = errors.catch(self._with_rates, system, model) or system
        tokens = errors.catch(self._tokens)
        errors.catch(check_given, price=self.price, restart_seconds=errors.catch(self._restart))
        if model is not None and tokens:
            model = replace(model, training_sequences=tokens / model.seq)
        return model, system, errors.catch(self._batch, model, usual)

    def metrics(self, est: "Estimate") -> "Metrics":
        """Return throughput, utilisation and cost of an estimate."""
        from traincast.step import metrics

        return metrics(est, **self.metrics_arguments())

    def metrics_arguments(self) -> dict[str, Any]:
        """Return the arguments of `traincast.metrics` besides the estimate."""
        return {"price": self.price, "restart_seconds": self._restart()}

    def gpu_hour_price(self, system: "System") -> float | None:
        """Return the price of a GPU hour [$]: the one given, or the system's where it has one."""
        return system.price if self.price is None else self.price

    def asked_metrics(self) -> list[str]:
        """Return the metrics whose own options are given."""
        given = {"cost": (self.price, self.tokens), "goodput": (self.restart,)}
        return [metric for metric, values in given.items() if any(value is not None for value in values)]

    def leaves_batch(self, model: "Model") -> bool:
        """Return whether neither the command line nor the model sets the global batch."""
        return self.global_batch is None and self.tokens_per_batch is None and model.global_batch is None

    def usual(self, model: "Model", system: "System | None" = None) -> "Usual":
        """Return what the options leave out; tokens and price of the run count with a system alone."""
        from traincast.ui.text.plans import Usual

        return Usual(
            batch=self.leaves_batch(model),
            length=self.seq is None,
            tokens=system is not None and self.tokens is None,
            price=system is not None and system.price is not None and self.price is None,
        )

    def _load(self) -> "float | list[float] | Routing":
        """Return the load of the experts: a factor, tokens of every expert, or a word."""
        word = str(self.imbalance).strip().lower()
        if word == "natural":
            return "natural"
        if word == "forced":
            return "forced"
        try:
            load = [float(word) for word in str(self.imbalance).split(",")]
        except ValueError:
            wrong = f"{self.imbalance!r}: must be a number, numbers with commas, natural or forced"
            raise InputError("--imbalance", [wrong]) from None
        return load if len(load) > 1 else load[0]

    def _with_rates(self, system: "System", model: "Model | None") -> "System":
        """Return the system with the given rates of input pipeline and storage."""
        from traincast.catalog import read_input_rate

        errors = ErrorCollector("rates")
        rates = dict[str, object]()
        if self.input_rate is not None and model is not None:
            rates["input_rate"] = errors.catch(read_input_rate, self.input_rate, model)
        if (text := self.storage_bandwidth) is not None:
            rates["storage_bandwidth"] = errors.catch(parse_option, text, "byte/s", "storage bandwidth")
        errors.raise_any()
        return replace_fields(system, rates)

    def _tokens(self) -> int | None:
        return None if self.tokens is None else parse_count(self.tokens, "--tokens", 1000)

    def _restart(self) -> float | None:
        return None if self.restart is None else parse_duration(self.restart, "--restart", zero=True)

    def _batch(self, model: "Model | None", usual: int | None) -> int:
        """Return the global batch [sequences]: requested, the model's own, or the usual one."""
        from traincast.step import check_gbs

        batch = self._requested_batch(model)
        if model is not None and self.leaves_batch(model):
            batch = usual
        return check_gbs(batch, model)

    def _requested_batch(self, model: "Model | None") -> int | None:
        """Return the global batch on the command line [sequences], or None."""
        if self.tokens_per_batch is None:
            return self.global_batch
        if self.global_batch is not None:
            raise InputError("global batch", ["--global-batch and --tokens-per-batch: give one of them"])
        tokens = parse_count(self.tokens_per_batch, "--tokens-per-batch", 1024)
        if model is None:
            return None
        if tokens % model.seq or not tokens:
            near = max(round(tokens / model.seq), 1)
            are = "sequence is" if near == 1 else "sequences are"
            allowed = f"{near:,} {are} {near * model.seq:,} tokens"
            wrong = f"{tokens:,} tokens: no whole number of sequences of {model.seq:,} tokens"
            raise InputError("--tokens-per-batch", [f"{self.tokens_per_batch} is {wrong}; {allowed}"])
        return tokens // model.seq


OPTION_NAMES: Final = {  # of knobs that have several
    "optimizer_kind": ("--optimizer-kind", "--optimizer"),
}


def _knob_options(name: str, locks: bool) -> Any:
    """Make a dataclass of the table of knobs; as `locks` all but placements. Each is None where not given."""
    rows = []
    for knob in fields(Knobs):
        if locks and knob.name in PLACEMENTS:
            continue
        kind: Any = int if knob.name in KNOBS else knob.type
        if names := OPTION_NAMES.get(knob.name):
            kind = Annotated[kind | None, Parameter(name=names)]
        else:
            kind |= None
        rows.append((knob.name, kind, field(default=None, metadata=knob.metadata)))
    namespace = {"__module__": __name__}  # else it counts as one of the standard library
    return make_dataclass(name, rows, frozen=True, kw_only=True, namespace=namespace)


PlanKnobs = _knob_options("PlanKnobs", locks=False)
Locks = _knob_options("Locks", locks=True)
_SWITCHED_ON = " and ".join(
    f"--{knob.name.replace('_', '-')}" for knob in fields(Knobs) if knob.default is True
)
PLAN_GROUP: Final = Group(
    "Plan",
    help=f"Defaults: numbers 1, words the first named; {_SWITCHED_ON} are on.",
    sort_key=KNOB_GROUP.sort_key,
    default_parameter=Parameter(completer=names_of_choices, show_default=False),
)
NO_RUN_OPTIONS = RunOptions()
NO_KNOBS = PlanKnobs()
NO_LOCKS = Locks()
RunArguments = Annotated[RunOptions, Parameter(name="*", group=QUESTION)]
LockOptions = Annotated[Locks, Parameter(name="*", group=KNOB_GROUP)]  # type: ignore[valid-type]


def locked_values(locks: object) -> dict[str, object]:
    """Return the knobs and choices that the command line sets; several values of a choice with commas."""
    given = {name: value for name, value in vars(locks).items() if value is not None}
    several = {name for name, value in given.items() if name in ALLOWED_VALUES and "," in str(value)}
    return {name: tuple(value.split(",")) if name in several else value for name, value in given.items()}


@dataclass(frozen=True, kw_only=True)
class PlanQuestion:
    """Options of a question about one plan."""

    system: SystemName
    gpus: Annotated[int | None, question_option("GPUs in the job, from which --dp follows.")] = None
    knobs: Annotated[PlanKnobs, Parameter(name="*", group=PLAN_GROUP)] = NO_KNOBS  # type: ignore[valid-type]
    run: RunArguments = NO_RUN_OPTIONS
    framework: Annotated[str | None, question_option(_RULES, completer=names_of_frameworks)] = None
    assumptions: Assumed = None
    given: GivenFacts = None

    def estimate(
        self,
        model: str,
        usual: int | None = None,
        errors: ErrorCollector | None = None,
        space: "Framework | None" = None,
        real_machine: bool = False,
    ) -> "Estimate":
        """Return the estimate, with a `usual` batch of a replica and by default the stack of a framework.

        The framework is the one given on the command line, whose rules the plan must meet, or `space`.
        `errors` holds mistakes in other options. On a `real_machine`, as what is measured is, calibrated
        assumptions stand in place of the paper's.
        """
        from traincast.catalog import Stack, check_experts, read_given
        from traincast.core import CALIBRATED, PAPER, Plan
        from traincast.model import names_fine_tuning
        from traincast.planner import FRAMEWORKS, Question
        from traincast.step import check_assumptions, check_size, estimate, usual_assumptions

        errors = errors or ErrorCollector("estimate")
        knobs = {name: value for name, value in vars(self.knobs).items() if value is not None}
        named = None if self.framework is None else errors.catch(framework_typed, self.framework)
        locks = {name: value for name, value in knobs.items() if name not in PLACEMENTS}
        tunes = names_fine_tuning(self.run.train)
        gpus = self.gpus or knobs.get("dp", 1)
        trainer = FRAMEWORKS["huggingface"] if named is None else named
        if named is not None:
            space = named
            knobs = named.complete_knobs(knobs, tunes, gpus)
        elif tunes and space is None and self.assumptions is None:
            knobs = trainer.fine_tuning_knobs(knobs, gpus)
        filled = [name for name in knobs if name not in locks and name not in PLACEMENTS]
        sharding = ""
        if tunes and "zero" in filled and knobs["zero"] == trainer.usual_zero_of_fine_tuning:
            sharding = FSDP_ASSUMED
            filled.remove("zero")
        for knob in filled:
            default = f"{knob} = {knobs[knob]}, the default of {trainer.name}"
            remark(f"traincast: {default}; --{knob.replace('_', '-')} sets another")
        plan = errors.catch(Plan, **knobs)
        if plan is not None and self.gpus is not None:
            plan = errors.catch(_on_gpus, plan, self.gpus, knobs)
        batch = None if usual is None or plan is None else usual * plan.dp
        model_read, machine, gbs = self.run.read_run(errors, model, self.system, batch, sharding)
        if space is None or model_read is None:
            stack = usual_assumptions(model_read, machine)
            if real_machine and model_read is not None and stack == PAPER.name:
                stack = Stack(CALIBRATED).calibrated_on(model_read, machine, any_framework=True).name
        else:
            stack = space.usual_assumptions(model_read, machine)
        facts = errors.catch(read_given, self.given) or {}
        if model_read is not None:
            errors.catch(check_experts, facts, model_read.experts is not None)
        software = Stack(stack)
        unsaid = software.open_software if space is None else software.releases
        assumed = errors.catch(check_assumptions, self.assumptions, stack, unsaid, facts)
        if named is not None:
            question = Question(model=model_read, system=machine, gbs=gbs, framework=named.label, locks=locks)
            errors.catch(_require_run, named, question, assumed, plan)
        if plan is not None:
            errors.catch(check_size, machine, plan.gpus)
        require = errors.require
        subject = require(model_read), require(machine), require(plan)
        est = estimate(*subject, gbs=require(gbs), assumptions=require(assumed))
        if not locks and est.plan.gpus > 1 and est.verdict == "does not fit":
            taken = f"no degree is given, so DP {est.plan.dp} is taken"
            remark(f"traincast: {taken}; give yours, such as --tp 8 --pp 4, or ask plan for one that fits")
        return est


def framework_typed(name: str) -> "Framework":
    """Return the framework of a name on the command line; a line says so where it is that of a program."""
    from traincast.planner import framework

    found = framework(name)
    if found.name != name.lower():
        remark(f"traincast: --framework {name}: plans and rules of {found.name} ({found.version})")
    return found


def share_typed(word: str | None, name: str = "share") -> float | None:
    """Return a share of the command line such as ``"2%"``, and None for None."""
    return None if word is None else parse_share(word, name)


def _require_run(
    framework: "Framework", question: "Question", assumed: "Assumptions | None", plan: "Plan | None"
) -> None:
    """Raise an `InputError` with all that a framework does not run of the knobs given, and of the plan.

    Of the question its model, system, batch and locks count; what could not be read is not checked.
    """
    from traincast.planner import choose_framework

    model = question.model
    system = question.system
    if model is None or system is None:
        return
    errors = ErrorCollector("estimate")
    runs = errors.catch(choose_framework, question)
    if runs is not None and assumed is not None:
        errors.catch(runs.batches, model, question.locks or {}, assumed, len(system.tiers))
    if not errors.errors and plan is not None and question.gbs is not None:
        errors.add(framework.broken(model, plan, question.gbs))
    errors.raise_any()


def _on_gpus(plan: "Plan", gpus: int, knobs: Mapping[str, object]) -> "Plan":
    """Return the plan of `knobs` on some GPUs: with the dp its degrees leave where none is given."""
    from traincast.core import AXES, Plan

    dp_given = "dp" in knobs

    raise_problems("--gpus", whole_number_problems("gpus", gpus))
    dp, rest = divmod(gpus, plan.gpus)
    if rest or (dp_given and dp != 1):
        named = [axis for axis in AXES if getattr(plan, axis) > 1 or (dp_given and axis == "dp")]
        given = " × ".join(f"{axis} {getattr(plan, axis)}" for axis in named)
        must = "be the product of the degrees" if dp_given else "be divisible by the degrees"
        raise InputError("--gpus", [f"{gpus}: must {must}, {given} = {plan.gpus}"])
    return make_record(Plan, {**knobs, "dp": dp * plan.dp})  # placed afresh: of dp 1 fast_dp would be 1


PlanArguments = Annotated[PlanQuestion, Parameter(name="*", group=QUESTION)]
_STEP_SECONDS = "Measured time of a step [s], to compare with."
_TOKENS_PER_SECOND = "Or the measured throughput of the job [tokens/s]."
_MFU = "Or the measured MFU as Megatron-LM counts it (28%)."


@dataclass(frozen=True, kw_only=True)
class MeasuredOptions:
    """Options of what was measured of a step."""

    step_seconds: Annotated[float | None, option(_STEP_SECONDS)] = None
    tokens_per_second: Annotated[float | None, option(_TOKENS_PER_SECOND)] = None
    mfu: Annotated[str | None, option(_MFU, metavar="SHARE")] = None

    def read_measured(self) -> dict[str, float]:
        """Return what was measured, as arguments of `traincast.step.measurement.measured_step`."""
        from traincast.step import check_measured

        share = share_typed(self.mfu, "--mfu")
        given = {"step_seconds": self.step_seconds, "tokens_per_second": self.tokens_per_second, "mfu": share}
        check_measured(**given)
        return {name: value for name, value in given.items() if value is not None}


NOTHING_MEASURED = MeasuredOptions()
MeasuredArguments = Annotated[MeasuredOptions, Parameter(name="*")]


def require_fit(est: "Estimate") -> None:
    """End with exit code 1 if a plan does not fit; warn where that is uncertain."""
    if est.verdict == "does not fit":
        raise NothingFits(_misfit_text(est))
    warn_of_misfit(est)


def warn_of_misfit(est: "Estimate") -> None:
    """Warn that a plan does not fit, or may not, where the question was another."""
    if est.verdict != "fits":
        warn(_misfit_text(est))


def _misfit_text(est: "Estimate") -> str:
    """Return how much memory a plan is short of, and what would make it fit."""
    from traincast.planner import short_of

    said = "may not fit" if est.verdict == "uncertain" else "does not fit"
    return f"the plan {said}: {short_of(est, advice=True)}"
