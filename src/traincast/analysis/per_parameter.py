"""Bytes per parameter by recipe, and FLOP/s and utilisation of a step time by every convention.

Bytes per parameter and the rules of thumb are those of S. Bekman, "Software tune up for the best performance"
(Machine Learning Engineering), unless another source is named.
"""

from collections.abc import Collection
from typing import Annotated, Final

import numpy as np

from traincast.core import (
    GRADIENTS,
    KEY,
    OPTIMIZERS,
    PRECISIONS,
    Doc,
    InputError,
    Plan,
    Plans,
    Result,
    require_known,
    split_choice,
)
from traincast.model import Model
from traincast.operations import parts
from traincast.step import CONVENTIONS, Estimate, Footprint, StoredWeights, metrics, stages, with_defaults

STATES: Final = ("weights", "gradients", "optimizer")  # components of memory in proportion to the parameters
BEKMAN: Final = "bekman"  # name of the rule of thumb among the conventions


class PerParameter(Result):
    """Bytes per parameter before sharding."""

    weights: Annotated[float, Doc("working copy", "byte")]
    master: Annotated[float, Doc("master copy in fp32, where there is one", "byte")]
    gradients: Annotated[float, Doc("accumulated gradient", "byte")]
    moments: Annotated[float, Doc("states of the optimizer", "byte")]
    frozen: Annotated[float, Doc("frozen weights beside each one that is trained", "byte")] = 0.0

    @property
    def training(self) -> Annotated[float, KEY]:
        """Sum of all parts of what is trained [byte]."""
        return self.weights + self.master + self.gradients + self.moments

    @property
    def inference(self) -> Annotated[float, KEY]:
        """Weights, frozen ones included, and master copy: the model without training states [byte]."""
        return self.weights + self.master + self.frozen


def per_parameter(precision: str = "bf16", optimizer: str = "adam", grad_dtype: str = "fp32") -> PerParameter:
    """Return the bytes per parameter of a recipe, without casts to low precision, which are temporary.

    Examples
    --------
    >>> per_parameter().training, per_parameter().inference  # mixed precision, AdamW
    (18.0, 6.0)
    """
    known: tuple[Collection[str], ...] = PRECISIONS, OPTIMIZERS, GRADIENTS
    given = {"precision": precision, "optimizer": optimizer, "grad_dtype": grad_dtype}
    for (kind, name), names in zip(given.items(), known, strict=True):
        require_known(kind, name, names)
    return _bytes_of(Plans(precision=precision, optimizer_kind=optimizer, grad_dtype=grad_dtype))


def bytes_per_parameter_of(est: Estimate) -> PerParameter:
    """Return the bytes per parameter of the plan of an estimate, before sharding."""
    model = est.model
    frozen = 0.0 if model.adapters is None else _frozen_bytes(est) / model.trained_parameters
    return _bytes_of(est.columns, frozen)


def _frozen_bytes(est: Estimate) -> float:
    """Return the frozen weights of the whole model, as the software of an estimate holds them [byte]."""
    plan = with_defaults(Plan(precision=est.plan.precision).columns(), est.model, est.assumptions)
    counted = parts(est.model, plan, est.assumptions)
    footprints = {part: Footprint.from_operations(operations, plan) for part, operations in counted.items()}
    stored = StoredWeights.for_device(stages(est.model, plan).stored_parts[0], footprints)
    kinds = stored.frozen, stored.expert_frozen, stored.frozen_fp32, stored.expert_frozen_fp32
    return float(sum(np.max(column) for column in kinds))


def _bytes_of(plan: Plans, frozen: float = 0.0) -> PerParameter:
    """Return the bytes per parameter of plans whose gradient data type is set; `frozen` as of the result."""
    recipe = plan.recipe
    moments = plan.optimizer.state
    return PerParameter(2 * recipe.width, recipe.master, plan.gradient_bytes, moments, frozen)


class Throughput(Result):
    """FLOP/s and utilisation of one GPU by one convention; None where they are not known."""

    convention: Annotated[str, Doc("how FLOPs are counted")]
    model_flops_per_second: Annotated[float, Doc("model FLOP/s", "FLOP/s")]
    hardware_flops_per_second: Annotated[float | None, Doc("with recomputed FLOPs", "FLOP/s")]
    mfu: Annotated[float | None, Doc("model FLOP/s over the dense peak")]
    hfu: Annotated[float | None, Doc("hardware FLOP/s over the dense peak")]
    source: Annotated[str, Doc("origin of the convention")]


def throughput(est: Estimate, step_seconds: float | None = None) -> list[Throughput]:
    """Return FLOP/s and utilisation of one GPU by every convention, and by the rule of thumb ``"bekman"``.

    The step time may be a measured one [s]; one that would need more than the dense peak is refused.
    """
    result = metrics(est, step_seconds=step_seconds)
    mfu = result.mfu or {}
    hfu = result.hfu or {}
    peak = _peak(est)
    rows = []
    for name, convention in CONVENTIONS.items():
        model = float(result.flops_per_second_per_gpu[name])
        hardware = None if peak is None or name not in hfu else float(hfu[name]) * peak
        of_model, of_hardware = (float(table[name]) if name in table else None for table in (mfu, hfu))
        rows.append(Throughput(name, model, hardware, of_model, of_hardware, convention.source))
    seconds = float(est.step_seconds if step_seconds is None else step_seconds)
    model, full = (
        flops_of_thumb(est.model, est.gbs, recomputed) / seconds / int(est.plan.gpus)
        for recomputed in (False, recomputes_all(est))
    )
    of_model, of_hardware = (None, None) if peak is None else (model / peak, full / peak)
    source = "Bekman: parameters × 3 (4 with checkpointing) × 2 × tokens"
    return [*rows, Throughput(BEKMAN, model, full, of_model, of_hardware, source)]


def flops_of_thumb(model: Model, gbs: int, recomputed: bool) -> float:
    """Return the FLOPs of a step as active parameters × 2 × 3 (4 with full recompute) × tokens.

    Of a frozen model it is one product less, the gradient of the weights.
    """
    products = (4 if recomputed else 3) - (model.adapters is not None)
    return model.active_parameters * products * 2.0 * model.seq * gbs


def recomputes_all(est: Estimate) -> bool:
    """Return whether the plan recomputes the whole forward pass."""
    return "full" in split_choice(est.plan.recompute)


def _peak(est: Estimate) -> float | None:
    """Return the dense peak of one GPU at the plan's precision, None if it is not known [FLOP/s]."""
    try:
        return float(est.system.accelerator.peak(PRECISIONS[est.plan.precision].rate))
    except InputError:
        return None
