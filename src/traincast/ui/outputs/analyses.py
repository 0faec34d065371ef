"""What `trace`, `advise`, `flops`, `limits`, `scaling` and `reproduce` print with `--json`."""

from typing import Annotated

from traincast.analysis import FlopsByPart, Limits, MeasuredScaling, ScalingRecord, Trace
from traincast.core import INLINE, Doc
from traincast.planner import Advice, Reproduction
from traincast.ui.outputs.about_plan import AboutPlan
from traincast.ui.outputs.reference import Answer


class TraceOutput(AboutPlan):
    """The simulated step of one plan."""

    trace: Annotated[Trace, Doc("the step as it runs")]
    output: Annotated[str | None, Doc("trace file that was written")]
    figure: Annotated[str | None, Doc("figure that was drawn")]


class AdviseOutput(AboutPlan):
    """Advice on a plan and a model."""

    advice: Annotated[Advice, INLINE]


class LimitsOutput(Answer):
    """How far moving data lets a cluster and a training run grow; what cannot be reached is `null`."""

    limits: Annotated[Limits, INLINE]
    figures: Annotated[list[str], Doc("figures that were drawn")]


FlopsOutput = FlopsByPart


class ScalingOutput(Answer):
    """How data parallelism with ZeRO scales."""

    scaling: Annotated[ScalingRecord, INLINE]
    measured: Annotated[
        list[MeasuredScaling] | None,
        Doc("measured iterations beside the formula, by stage; `null` without `--measured`"),
    ]
    figures: Annotated[list[str], Doc("figures that were drawn")]


class ReproduceOutput(Answer):
    """Published results recomputed."""

    reproduction: Annotated[Reproduction, INLINE]
    figures: Annotated[list[str], Doc("figures that were drawn")]
