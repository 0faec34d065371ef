"""Bytes per parameter by recipe, and FLOP/s and utilisation of a step time by every convention.

Bytes per parameter and the rules of thumb are those of S. Bekman, "Software tune up for the best performance" (Machine Learning
Engineering), unless another source is named.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from traincast.core.errors import InputError, type_problems, unknown_name_error
from traincast.core.knobs import words
from traincast.core.model import Model
from traincast.core.plan import Plan, Plans
from traincast.core.precision import GRADIENTS, OPTIMIZERS, PRECISIONS
from traincast.core.result import KEY, Doc, Result
from traincast.step.estimate import Estimate
from traincast.step.metrics import metrics
from traincast.step.model_flops import CONVENTIONS

STATES: Final = ("weights", "gradients", "optimizer")  # components of memory in proportion to the parameters
BEKMAN: Final = "bekman"  # name of the rule of thumb among the conventions


def one_plan(est: Estimate) -> Plan:
    """Return the plan of an estimate; refuse anything else, such as `Estimates`."""
    if wrong := type_problems("est", est, "an Estimate of one plan on one machine", Estimate):
        raise InputError("advice", wrong)
    return est.plan


@dataclass(frozen=True, kw_only=True)
class PerParameter(Result):
    """Bytes per parameter before sharding."""

    weights: Annotated[float, Doc("working copy", "byte")]
    master: Annotated[float, Doc("master copy in fp32, where there is one", "byte")]
    gradients: Annotated[float, Doc("accumulated gradient", "byte")]
    moments: Annotated[float, Doc("states of the optimizer", "byte")]

    @property
    def training(self) -> Annotated[float, KEY]:
        """Sum of all parts [byte]."""
        return self.weights + self.master + self.gradients + self.moments

    @property
    def inference(self) -> Annotated[float, KEY]:
        """Weights and master copy: the model without training states [byte]."""
        return self.weights + self.master


def per_parameter(precision: str = "bf16", optimizer: str = "adam", grad_dtype: str = "fp32") -> PerParameter:
    """Return the bytes per parameter of a recipe, without casts to low precision, which are temporary.

    Parameters
    ----------
    precision : str
        Recipe of precision, as ``Plan.precision``.
    optimizer : str
        Optimizer, as ``Plan.optimizer_kind``.
    grad_dtype : {"fp32", "16-bit"}
        Data type of accumulated gradients; at least the precision of the weights.

    Returns
    -------
    PerParameter
        Weights, master copy, gradients and moments [byte].

    Raises
    ------
    InputError
        If a name is unknown.

    Examples
    --------
    >>> per_parameter().training, per_parameter().inference  # mixed precision, AdamW
    (18.0, 6.0)
    """
    for kind, name, names in (
        ("precision", precision, PRECISIONS),
        ("optimizer", optimizer, OPTIMIZERS),
        ("grad_dtype", grad_dtype, GRADIENTS),
    ):
        if name not in names:
            raise unknown_name_error(kind, name, names)
    return _bytes_of(Plans(precision=precision, optimizer_kind=optimizer, grad_dtype=grad_dtype))


def bytes_per_parameter_of(est: Estimate) -> PerParameter:
    """Return the bytes per parameter of the plan of an estimate, before sharding."""
    return _bytes_of(est.columns)


def _bytes_of(plan: Plans) -> PerParameter:
    """Return the bytes per parameter of plans whose gradient data type is set."""
    recipe = plan.recipe
    return PerParameter(
        weights=2 * recipe.width,
        master=recipe.master,
        gradients=plan.gradient_bytes,
        moments=plan.optimizer.state,
    )


@dataclass(frozen=True, kw_only=True)
class Throughput(Result):
    """FLOP/s and utilisation of one GPU by one convention; None where the convention or the dense peak does not give them."""

    convention: Annotated[str, Doc("how FLOPs are counted")]
    model_flops_per_second: Annotated[float, Doc("model FLOP/s", "FLOP/s")]
    hardware_flops_per_second: Annotated[float | None, Doc("with recomputed FLOPs", "FLOP/s")]
    mfu: Annotated[float | None, Doc("model FLOP/s over the dense peak")]
    hfu: Annotated[float | None, Doc("hardware FLOP/s over the dense peak")]
    source: Annotated[str, Doc("origin of the convention")]


def throughput(est: Estimate, step_seconds: float | None = None) -> list[Throughput]:
    """Return FLOP/s and utilisation of one GPU by every convention, and by the rule of thumb.

    Parameters
    ----------
    est : Estimate
        Estimate of one plan: supplies model, batch, GPUs, recomputation and peak.
    step_seconds : float, optional
        Measured time of a step; the predicted one without it [s].

    Returns
    -------
    list of Throughput
        One for each of `traincast.step.model_flops.CONVENTIONS`, and ``"bekman"``.

    Raises
    ------
    InputError
        If the step time is no finite number above 0, or so short that it would need more than the dense peak.
    """
    result = metrics(est, step_seconds=step_seconds)
    mfu, hfu = result.mfu or {}, result.hfu or {}
    peak = _peak(est)
    rows = [
        Throughput(
            convention=name,
            model_flops_per_second=float(result.flops_per_second_per_gpu[name]),
            hardware_flops_per_second=None if peak is None or name not in hfu else float(hfu[name]) * peak,
            mfu=_number(mfu, name),
            hfu=_number(hfu, name),
            source=convention.source,
        )
        for name, convention in CONVENTIONS.items()
    ]
    seconds = float(est.step_seconds if step_seconds is None else step_seconds)
    model, hardware = (
        flops_of_thumb(est.model, est.gbs, recomputed) / seconds / int(est.plan.gpus)
        for recomputed in (False, recomputes_all(est))
    )
    shares = (None, None) if peak is None else (model / peak, hardware / peak)
    thumb = Throughput(
        convention=BEKMAN,
        model_flops_per_second=model,
        hardware_flops_per_second=hardware,
        mfu=shares[0],
        hfu=shares[1],
        source="Bekman: parameters × 3 (4 with checkpointing) × 2 × tokens",
    )
    return [*rows, thumb]


def flops_of_thumb(model: Model, gbs: int, recomputed: bool) -> float:
    """Return the FLOPs of a step by the rule of thumb: parameters × 2 × 3 × tokens; 4 in place of 3 with full recompute.

    Parameters
    ----------
    model : Model
        Supplies the active parameters, embedding included, and the tokens of a sequence.
    gbs : int
        Global batch [sequences].
    recomputed : bool
        Whether the forward pass is recomputed.

    Returns
    -------
    float
        Over all GPUs [FLOP].
    """
    return model.active_parameters * (4 if recomputed else 3) * 2.0 * model.seq * gbs


def recomputes_all(est: Estimate) -> bool:
    """Return whether the plan recomputes the whole forward pass."""
    return "full" in words(est.plan.recompute)


def _peak(est: Estimate) -> float | None:
    """Return the dense peak of one GPU at the plan's precision, None if it is not known [FLOP/s]."""
    try:
        return float(est.system.accelerator.peak(PRECISIONS[est.plan.precision].rate))
    except InputError:
        return None


def _number(shares: Mapping[str, Any], name: str) -> float | None:
    """Return a share as a number, None if it is not known."""
    return float(shares[name]) if name in shares else None
