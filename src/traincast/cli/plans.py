"""Commands on plans: `plan`, `estimate`, `memory`."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from cyclopts import Parameter

from traincast.cli.common import Json, app, print_json
from traincast.errors import InputError, NothingFits
from traincast.frameworks import SEARCHED
from traincast.plan import Plan
from traincast.units import counted

if TYPE_CHECKING:
    from traincast.estimate import Estimate
    from traincast.metrics import Metrics
    from traincast.model import Model
    from traincast.search import Found

ModelName = Annotated[str, Parameter(help="Model of the catalogue, a YAML or JSON file, or a Hugging Face config.json.")]
SystemName = Annotated[str, Parameter(help="System of the catalogue (such as dgx-h100 or h200-nvs8), or a YAML or JSON file.")]
Assumed = Annotated[
    str | None,
    Parameter(help="What is assumed: typical, paper, or paper-published (with the errata of the published results)."),
]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is trained, and what its figures are turned into."""

    seq: Annotated[int | None, Parameter(help="Sequence length [tokens]; else the model's own.")] = None
    global_batch: Annotated[
        int | None, Parameter(name=["--global-batch", "--gbs"], help="Global batch [sequences]; else the model's own.")
    ] = None
    tokens_per_batch: Annotated[
        str | None, Parameter(help="Global batch in tokens; k, M and G count in 1024: 4M is 512 sequences of 8192.")
    ] = None
    imbalance: Annotated[
        str | None, Parameter(help="Load of experts: the fullest rank relative to the mean, or tokens of every expert with commas.")
    ] = None
    tokens: Annotated[str | None, Parameter(help="Tokens of the whole run, such as 15T; else the model's own.")] = None
    price: Annotated[float | None, Parameter(help="Price of a GPU for an hour [$]; else the system's.")] = None

    restart: Annotated[float | None, Parameter(help="Time from a failure until training goes on [s]; with it goodput is told.")] = (
        None
    )

    def model(self, name: str) -> "Model":
        """The model, as it is to be trained."""
        from traincast.load import load_model

        model = load_model(name, seq=self.seq)
        if self.imbalance is None:
            return model
        try:
            load = [float(one) for one in self.imbalance.split(",")]
        except ValueError:
            raise InputError("--imbalance", [f"{self.imbalance!r}: a number, or numbers with commas, are wanted"]) from None
        return model.with_load(load if len(load) > 1 else load[0])

    def batch(self, model: "Model") -> int | None:
        """The global batch [sequences], where one is given."""
        if self.tokens_per_batch is None:
            return self.global_batch
        if self.global_batch is not None:
            raise InputError("global batch", ["--global-batch and --tokens-per-batch: give one of them"])
        tokens = counted(self.tokens_per_batch, "--tokens-per-batch", 1024)
        if tokens % model.seq or not tokens:
            near = max(round(tokens / model.seq), 1)
            allowed = f"{near:,} sequences are {near * model.seq:,} tokens"
            wrong = f"{self.tokens_per_batch} is {tokens:,} tokens: no whole number of sequences of {model.seq:,} tokens"
            raise InputError("--tokens-per-batch", [f"{wrong}; {allowed}"])
        return tokens // model.seq

    def metrics(self, est: "Estimate") -> "Metrics":
        """Throughput, utilisation and cost."""
        from traincast.metrics import metrics

        tokens = None if self.tokens is None else counted(self.tokens, "--tokens", 1000)
        return metrics(est, tokens=tokens, price=self.price, restart_seconds=self.restart)


def _locks() -> Any:
    """A class whose fields are the knobs and choices a search can be held to, all left out."""
    kinds = get_type_hints(Plan)
    locked = [one for one in fields(Plan) if one.name in (*SEARCHED, "recompute_every") or one.name in Plan().choices()]
    return make_dataclass(
        "Locks",
        [(one.name, kinds[one.name] | None, field(default=None, metadata=one.metadata)) for one in locked],
        frozen=True,
        kw_only=True,
        namespace={"__module__": __name__},  # else it counts as one of the standard library
    )


Locks = _locks()
ASKED, UNLOCKED = Asked(), Locks()


@app.command
def plan(
    model: ModelName,
    /,
    *,
    system: SystemName,
    gpus: Annotated[int, Parameter(help="GPUs in the job; a plan uses all of them.")],
    asked: Annotated[Asked, Parameter(name="*")] = ASKED,
    framework: Annotated[
        str | None, Parameter(help="Search what this framework can run: megatron, torchtitan, deepspeed, paper, or any.")
    ] = None,
    strategy: Annotated[
        str | None, Parameter(help="Ways to cut a layer: 1d, summa, context, ring, ulysses, hybrid, several with commas.")
    ] = None,
    objective: Annotated[
        Literal["time", "throughput", "cost", "memory"], Parameter(help="What is best; all but memory rank as time does.")
    ] = "time",
    top: Annotated[int, Parameter(help="How many plans to show.")] = 10,
    locks: Annotated[Locks, Parameter(name="*")] = UNLOCKED,  # type: ignore[valid-type]
    assumptions: Assumed = None,
    json: Json = False,
) -> None:
    """Find the best plan by searching every candidate. Any knob can be held to one value, such as --tp 8 or --zero 3.

    Example: traincast plan llama-3-70b --system dgx-h100 --gpus 512 --global-batch 512
    """
    from traincast.load import load_system
    from traincast.search import search

    wanted, machine = asked.model(model), load_system(system)
    held = {name: value for name, value in vars(locks).items() if value is not None}
    begin = time.perf_counter()
    batch = asked.batch(wanted)
    found = search(wanted, machine, gpus, batch, assumptions, strategy, top, framework=framework, locks=held, objective=objective)
    best = found.best
    elapsed = time.perf_counter() - begin
    explanation = found.explain()
    if json:
        print_json(_found_dict(found, asked) | {"explanation": explanation.to_dict()})
    elif best is not None:
        from traincast.report import console, print_found

        print_found(found, explanation, elapsed, asked.metrics(best[1]), console())
    if best is None:
        raise NothingFits(str(explanation))


@app.command
def estimate(
    model: ModelName,
    /,
    *,
    system: SystemName,
    plan: Annotated[Plan | None, Parameter(name="*")] = None,
    asked: Annotated[Asked, Parameter(name="*")] = ASKED,
    operations: Annotated[bool, Parameter(negative="", help="Show every operation of a layer as well.")] = False,
    assumptions: Assumed = None,
    json: Json = False,
) -> None:
    """Estimate one plan: time and memory of a step. Without any --fast-* the fastest placement is chosen.

    Example: traincast estimate gpt3-1t --system h200-nvs8 --tp 8 --pp 16 --dp 16
    """
    from traincast.estimate import estimate
    from traincast.load import load_system

    wanted = asked.model(model)
    est = estimate(wanted, load_system(system), plan or Plan(), asked.batch(wanted), assumptions)
    if json:
        told = {"estimate": est.summary(), "metrics": vars(asked.metrics(est))}
        print_json(_case(est) | told | ({"operations": est.operations()} if operations else {}))
    else:
        from traincast.report import console, header, print_breakdowns, print_metrics, print_operations

        out = console()
        header(est, int(est.plan.gpus), out)
        print_breakdowns(est, out)
        print_metrics(asked.metrics(est), out)
        if operations:
            print_operations(est, out)
    _require_fit(est)


@app.command
def memory(
    model: ModelName,
    /,
    *,
    system: SystemName,
    plan: Annotated[Plan | None, Parameter(name="*")] = None,
    asked: Annotated[Asked, Parameter(name="*")] = ASKED,
    assumptions: Assumed = None,
    json: Json = False,
) -> None:
    """Show the memory of every stage of the pipeline by component, and what to change where it does not fit.

    Without a global batch of the model or on the command line, as many micro-batches are taken as fill the pipeline.

    Example: traincast memory mixtral-8x7b --system dgx-h100 --tp 2 --ep 8 --dp 32
    """
    from traincast.estimate import estimate
    from traincast.load import load_system

    wanted, given = asked.model(model), plan or Plan()
    batch = asked.batch(wanted) or wanted.global_batch or given.dp * given.mbs * 2 * given.pp
    est = estimate(wanted, load_system(system), given, batch, assumptions)
    if json:
        print_json(_case(est) | {"estimate": est.summary(), "devices": est.devices()})
    else:
        from traincast.report import console, header, print_devices

        out = console()
        header(est, int(est.plan.gpus), out)
        print_devices(est, out)
    _require_fit(est)


def _require_fit(est: "Estimate") -> None:
    """End with exit code 1 if a plan does not fit."""
    if not est.fits:
        from traincast.advice import short_of

        raise NothingFits(f"the plan does not fit: {short_of(est, advice=True)}")


def _case(est: "Estimate | Found") -> dict[str, Any]:
    """What was asked, for machines."""
    gpus = est.gpus if hasattr(est, "gpus") else int(est.plan.gpus)
    return {
        "model": est.model.name,
        "system": est.system.name,
        "gpus": gpus,
        "global_batch": est.gbs,
        "assumptions": est.assumptions.name,
    }


def _found_dict(found: "Found", asked: Asked) -> dict[str, Any]:
    """A search for machines."""

    def told(est: "Estimate") -> Mapping[str, Any]:
        return est.summary() | {"metrics": vars(asked.metrics(est))}

    return _case(found) | {
        "framework": found.framework.name,
        "objective": found.objective,
        "strategies": found.strategies,
        "candidates": found.candidates,
        "feasible": found.feasible,
        "rejected": found.rejected,
        "plans": [told(est) for _, est in found.plans],
        "pareto": [est.summary() for _, est in found.pareto()],
    }
