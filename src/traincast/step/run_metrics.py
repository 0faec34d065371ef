"""Metrics of a step time: throughput, utilisation, days, cost, energy, and goodput after failures.

Every metric is a formula of named figures (`FORMULAS`), numbers or columns over plans. Where one is not
known, metrics that need it are None and `Metrics.missing` says what to give: nothing is assumed silently.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import numpy as np

from traincast.core import (
    OPTIMIZERS,
    PRECISIONS,
    Column,
    Doc,
    InputError,
    Plan,
    Plans,
    Result,
    maximum,
    minimum,
    plain,
    raise_problems,
    require_known,
    type_problems,
)
from traincast.step.estimates import Estimate, Estimates
from traincast.step.goodput import (
    bytes_per_parameter,
    checkpoint_seconds,
    checkpoint_stall,
    goodput,
    mtbf_seconds,
    young_interval,
)
from traincast.step.model_flops import CONVENTIONS, RECOMPUTE, hardware_flops_per_token, model_flops_per_token
from traincast.step.peak_check import require_below_peak

Formula = Callable[..., Column]
SECONDS_OF_MILLION: Final = 1e6 / 3600  # a million tokens, and the seconds of an hour


class Metrics(Result, kw_only=True):
    """Throughput, utilisation and cost of a step and a run; None where `missing` says what is not known.

    Figures of many plans are columns.
    """

    tokens_per_second: Annotated[Column, Doc("throughput of the job", "token/s")]
    tokens_per_second_per_gpu: Annotated[Column, Doc("throughput of one GPU", "token/s")]
    flops_per_second_per_gpu: Annotated[
        Mapping[str, Column], Doc("model FLOP/s of one GPU by convention", "FLOP/s")
    ]
    mfu: Annotated[Mapping[str, Column] | None, Doc("share of the dense peak by convention")]
    hfu: Annotated[Mapping[str, Column] | None, Doc("the same with recomputed FLOPs")]
    steps: Annotated[Column | None, Doc("optimizer steps of the whole run")]
    days: Annotated[Column | None, Doc("length of the whole run, failures aside", "day")]
    gpu_hours: Annotated[Column | None, Doc("GPU-hours of the whole run, failures aside", "h")]
    cost: Annotated[Column | None, Doc("price of the whole run", "$")]
    energy_kwh: Annotated[Column | None, Doc("electricity of the whole run at its mean power", "kWh")]
    carbon_kg: Annotated[Column | None, Doc("emissions of the whole run", "kg of CO2 equivalent")]
    mtbf_seconds: Annotated[Column | None, Doc("mean time between failures of the job", "s")]
    checkpoint_bytes: Annotated[Column, Doc("size of a checkpoint", "byte")]
    checkpoint_seconds: Annotated[Column | None, Doc("time that training stands still for a checkpoint", "s")]
    checkpoint_interval: Annotated[Column | None, Doc("time between two checkpoints that loses least", "s")]
    checkpoint_stall: Annotated[
        Column | None, Doc("time that checkpoints add to a step on the mean; no part of its time", "s")
    ]
    goodput: Annotated[Column | None, Doc("share of the time that trains, failures and checkpoints counted")]
    effective_days: Annotated[
        Column | None,
        Doc("length of the whole run with failures; cost and energy grow by the same factor", "day"),
    ]
    missing: Annotated[Mapping[str, tuple[str, ...]], Doc("what is not known, for every metric that is null")]


def tokens_per_second(gbs: Column, seq: Column, step_seconds: Column) -> Column:
    """Return the throughput of a job [token/s]."""
    return gbs * seq / step_seconds


def utilisation(flops_per_token: Column, tokens_per_second_per_gpu: Column, peak: Column) -> Column:
    """Return MFU or HFU (arXiv 2204.02311, appendix B), of a peak in FLOP/s."""
    return flops_per_token * tokens_per_second_per_gpu / peak


def training_steps(tokens: Column, gbs: Column, seq: Column) -> Column:
    """Return the optimizer steps in which so many tokens are seen; the last may be a fraction."""
    return tokens / (gbs * seq)


def training_days(steps: Column, step_seconds: Column) -> Column:
    """Return the length of a run without failures [day]."""
    return steps * step_seconds / 86_400


def gpu_hours(days: Column, gpus: Column) -> Column:
    """Return the GPU-hours of a run [h]."""
    return days * 24 * gpus


def cost(gpu_hours: Column, price: Column) -> Column:
    """Return the cost [$] of GPU-hours [h] at a price [$/h]."""
    return gpu_hours * price


def cost_per_million_tokens(price: float, tokens_per_second_per_gpu: float) -> float:
    """Return the cost of a million tokens [$] at a price of a GPU [$/h] and its throughput [token/s]."""
    return price * SECONDS_OF_MILLION / tokens_per_second_per_gpu


def energy_kwh(gpu_hours: Column, power: Column, pue: Column) -> Column:
    """Return the electricity [kWh] at a power per GPU [W] and a power usage effectiveness."""
    return gpu_hours * power * pue / 1000


def carbon_kg(energy_kwh: Column, carbon: Column) -> Column:
    """Return the emissions [kgCO2e] of electricity [kWh] from a grid of so much carbon [gCO2e/kWh]."""
    return energy_kwh * carbon / 1000


def effective_days(days: Column, goodput: Column) -> Column:
    """Return the length of a run with failures [day], infinite where they leave no time to train."""
    with np.errstate(divide="ignore"):
        return plain(np.divide(days, goodput))


FORMULAS: Final[tuple[tuple[str, Formula, tuple[str, ...]], ...]] = (  # metric, formula, the figures it takes
    ("tokens_per_second", tokens_per_second, ("gbs", "seq", "step_seconds")),
    ("steps", training_steps, ("tokens", "gbs", "seq")),
    ("days", training_days, ("steps", "step_seconds")),
    ("gpu_hours", gpu_hours, ("days", "gpus")),
    ("cost", cost, ("gpu_hours", "price")),
    ("energy_kwh", energy_kwh, ("gpu_hours", "power", "pue")),
    ("carbon_kg", carbon_kg, ("energy_kwh", "carbon")),
    ("mtbf_seconds", mtbf_seconds, ("failure_hours", "gpus")),
    ("checkpoint_seconds", checkpoint_seconds, ("checkpoint_bytes", "storage_bandwidth", "gpus")),
    ("checkpoint_interval", young_interval, ("checkpoint_seconds", "mtbf_seconds")),
    ("checkpoint_stall", checkpoint_stall, ("step_seconds", "checkpoint_interval", "checkpoint_seconds")),
    ("goodput", goodput, ("checkpoint_interval", "checkpoint_seconds", "restart_seconds", "mtbf_seconds")),
    ("effective_days", effective_days, ("days", "goodput")),
)
INPUTS: Final = {  # inputs that may not be known, and where to give them
    "tokens": "tokens (or the model's training_sequences)",
    "price": "price (or the system's)",
    "power": "the system's node_power (or accelerator.power)",
    "carbon": "the system's carbon",
    "failure_hours": "the system's failure_hours",
    "storage_bandwidth": "the system's storage_bandwidth (or checkpoint_seconds)",
    "restart_seconds": "restart_seconds",
}
UNBOUNDED: Final = {"effective_days": "time to train between failures"}  # what infinite metrics lack


@dataclass
class _Sheet:
    """Figures by name as they become known, and what is missing for those that do not."""

    known: dict[str, Column]
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def fill(self, metric: str, formula: Formula, inputs: tuple[str, ...]) -> None:
        """Compute one metric, unless it is known or one of its inputs is not."""
        if metric in self.known:
            return
        unknown_inputs = [name for name in inputs if name not in self.known]
        needed = [
            cause for name in unknown_inputs for cause in self.missing.get(name, (INPUTS.get(name, name),))
        ]
        if needed:
            self.missing[metric] = tuple(dict.fromkeys(needed))
        else:
            value = plain(formula(*(self.known[name] for name in inputs)))
            if metric in UNBOUNDED and np.ndim(value) == 0 and np.isinf(value):
                self.missing[metric] = (UNBOUNDED[metric],)
            else:
                self.known[metric] = value


def metrics(
    est: Estimate | Estimates,
    *,
    step_seconds: Column | None = None,
    tokens: Column | None = None,
    price: Column | None = None,
    restart_seconds: Column | None = None,
    checkpoint_seconds: Column | None = None,
    checkpoint_interval: Column | None = None,
) -> Metrics:
    """Return throughput, utilisation, cost and goodput of an estimate.

    Parameters
    ----------
    est : Estimate or Estimates
        The step of a plan, or of columns of plans.
    step_seconds : Column, optional
        Measured time of a step, in place of the estimated one [s].
    tokens : Column, optional
        Tokens of the whole run; those of the model's `training_sequences` if left out [token].
    price : Column, optional
        Price of a GPU for an hour; the system's if left out [$/h].
    restart_seconds : Column, optional
        Time from a failure until training goes on: detection, restart, reading the checkpoint [s].
    checkpoint_seconds : Column, optional
        How long training stands still for a checkpoint; if left out, until it is written at the system's
        `storage_bandwidth` [s].
    checkpoint_interval : Column, optional
        Training time between two checkpoints; √(2CM) if left out (Young 1974) [s].

    Raises
    ------
    InputError
        If what is given is no finite number above 0 (a price or restart may be 0), if a measured time would
        need more than the dense peak, or if the plan's precision or optimizer is unknown.

    Examples
    --------
    >>> import traincast as tc
    >>> plan = tc.Plan(tp=8, pp=16, dp=16, fast_tp=8)
    >>> est = tc.estimate(tc.load_model("gpt3-1t"), tc.load_system("h200-nvs8"), plan, gbs=4096)
    >>> result = tc.metrics(est, tokens=1e12, price=3.0)
    >>> round(result.mfu["megatron-full"], 3), round(result.days, 1), round(result.cost / 1e6, 1)
    (0.615, 56.8, 8.4)
    >>> result.missing["energy_kwh"]
    ("the system's node_power (or accelerator.power)",)
    """
    given = {
        "step_seconds": step_seconds,
        "tokens": tokens,
        "price": price,
        "restart_seconds": restart_seconds,
        "checkpoint_seconds": checkpoint_seconds,
        "checkpoint_interval": checkpoint_interval,
    }
    raise_problems("metrics", type_problems("est", est, "an Estimate or Estimates", Estimate, Estimates))
    check_given(**given)
    given_values = {name: value for name, value in given.items() if value is not None}
    sheet = _Sheet(_figures(est) | given_values)
    for metric, formula, inputs in FORMULAS:
        sheet.fill(metric, formula, inputs)
    per_gpu = plain(sheet.known["tokens_per_second"] / est.plan.gpus)
    mfu, hfu = _utilisation(est, per_gpu, sheet.missing)
    if step_seconds is not None:
        require_below_peak(est, step_seconds, mfu, hfu)
    values = {metric: sheet.known.get(metric) for metric, _, _ in FORMULAS}
    flops = {name: plain(model_flops_per_token(est.model, name) * per_gpu) for name in CONVENTIONS}
    return Metrics(
        **values,  # type: ignore[arg-type]  # tokens_per_second is always known
        tokens_per_second_per_gpu=per_gpu,
        flops_per_second_per_gpu=flops,
        mfu=mfu,
        hfu=hfu,
        checkpoint_bytes=sheet.known["checkpoint_bytes"],
        missing=sheet.missing,
    )


MOST_OF_ANY: Final = 1e24  # in the figure's own unit; what is larger is a slip of units or digits
MOST_GIVEN: Final = {
    "price": 1e6,  # $/h of an accelerator
    "restart_seconds": 3e7,  # a year
    "step_seconds": 1e7,  # four months
}
LEAST_GIVEN: Final = {"step_seconds": 1e-6}  # s; one kernel takes longer


def check_given(**given: object) -> None:
    """Refuse figures given to `metrics` that are impossible; None is not given.

    Raises `InputError` if one is no number above 0 (a price or restart may be 0), or beyond what is possible;
    all of them at once.
    """
    problems = [
        wrong for name, value in given.items() if value is not None for wrong in _not_a_figure(name, value)
    ]
    raise_problems("metrics", problems)


def _not_a_figure(name: str, value: object) -> list[str]:
    """Return what is wrong with a figure; empty where nothing is."""
    if (
        not isinstance(value, int | float | np.number | np.ndarray)
        or np.asarray(value).dtype.kind not in "iuf"
    ):
        return [f"{name} = {value!r}: must be a number, or an array of them"]
    may_be_zero = name in ("price", "restart_seconds")
    if not (np.all(np.isfinite(value)) and np.all(value >= 0 if may_be_zero else value > 0)):
        return [f"{name} = {value!r}: must be a finite number {'of at least' if may_be_zero else 'above'} 0"]
    most = MOST_GIVEN.get(name, MOST_OF_ANY)
    least = LEAST_GIVEN.get(name, 0.0)
    if np.all(value <= most) and np.all(value >= least):
        return []
    return [f"{name} = {value!r}: must be from {least:g} to {most:g}"]


def mean_power(est: Estimate | Estimates) -> Column | None:
    """Return the mean power of an accelerator with its share of the node [W]; None where it is not known.

    While products and attention run it draws its limit, less while memory traffic is exposed, less still
    while it communicates or waits; the node around it draws a share of what it may.
    """
    system = est.system
    shares = est.assumptions.power
    spent = est.breakdown
    gpu = system.accelerator
    full = system.accelerator.power
    if full is None:
        return system.node_power
    limit = full if gpu.power_limit is None else minimum(full, gpu.power_limit)
    computing = spent["compute"] + spent["recomputation"]
    waiting = est.step.seconds - computing - spent["exposed_memory"]
    active = computing + shares.streaming * spent["exposed_memory"] + shares.waiting * waiting
    around = 0.0 if system.node_power is None else shares.host * maximum(system.node_power - full, 0)
    drawn: Column = limit * active / est.step.seconds + around
    return drawn


def _figures(est: Estimate | Estimates) -> dict[str, Column]:
    model = est.model
    system = est.system
    precision = _recipe(est, "precision", PRECISIONS)
    optimizer = _recipe(est, "optimizer_kind", OPTIMIZERS)
    figures = {
        "gbs": est.gbs,
        "seq": model.seq,
        "gpus": est.plan.gpus,
        "step_seconds": est.step_seconds,
        "tokens": model.training_tokens,
        "price": system.price,
        "power": mean_power(est),
        "pue": system.pue,
        "carbon": system.carbon,
        "failure_hours": system.failure_hours,
        "storage_bandwidth": system.storage_bandwidth,
        "checkpoint_bytes": model.trained_parameters * bytes_per_parameter(precision, optimizer),
    }
    return {name: value for name, value in figures.items() if value is not None}


def _recipe(est: Estimate | Estimates, kind: str, recipes: Mapping[str, object]) -> Any:
    """Return the precision or optimizer of the plan."""
    name = getattr(est.plan, kind)
    require_known(kind, name, recipes)
    return recipes[name]


def _recomputed_products(plan: Plan | Plans) -> str:
    """Return the kind of recomputation as far as matrix products are recomputed."""
    columns = plan if isinstance(plan, Plans) else plan.columns()
    products = columns.recomputed - {"norms", "activation"}
    return {frozenset(): "none", frozenset({"attention"}): "selective", frozenset({"full"}): "full"}.get(
        products, plan.recompute
    )


def _utilisation(
    est: Estimate | Estimates, per_gpu: Column, missing: dict[str, tuple[str, ...]]
) -> tuple[dict[str, Column] | None, dict[str, Column] | None]:
    """Return MFU and HFU by convention; where one is None, `missing` gets what it lacks."""
    rate = _recipe(est, "precision", PRECISIONS).rate
    try:
        peak = est.system.accelerator.peak(rate)
    except InputError:
        missing["mfu"] = missing["hfu"] = (f"the accelerator's {rate} peak",)
        return None, None
    mfu = {
        name: plain(utilisation(model_flops_per_token(est.model, name), per_gpu, peak))
        for name in CONVENTIONS
    }
    recompute = _recomputed_products(est.plan)
    if recompute not in RECOMPUTE or np.any(est.plan.recompute_every != 1):
        missing["hfu"] = (f"FLOPs of recompute {est.plan.recompute}",)
        return mfu, None
    hfu = {
        name: plain(utilisation(hardware_flops_per_token(est.model, recompute, name), per_gpu, peak))
        for name in CONVENTIONS
    }
    return mfu, hfu
