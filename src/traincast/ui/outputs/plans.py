"""What `plan`, `compare`, `estimate` and `memory` print with `--json`."""

from typing import Annotated

from traincast.analysis import Anatomy, PerParameter
from traincast.core import INLINE, Doc
from traincast.planner import Comparison, SearchRecord
from traincast.step import DeviceRow, GroupRow, Metrics, OperationRow, PhaseRow
from traincast.ui.outputs.about_plan import AboutPlan
from traincast.ui.outputs.reference import Answer, HtmlReport


class EstimateOutput(AboutPlan):
    """Time and memory of one plan."""

    metrics: Annotated[Metrics, Doc("throughput, utilisation and cost")]
    groups: Annotated[list[GroupRow], Doc("groups of several ranks, and where they are on the network")]
    operations: Annotated[
        list[OperationRow] | None,
        Doc("with `--operations`: every operation, once for each kind of layer it is in", optional=True),
    ] = None
    anatomy: Annotated[
        Anatomy | None,
        Doc("with `--operations`: collectives, classes, and FLOPs of a sequence", optional=True),
    ] = None
    html: HtmlReport = None


class MemoryOutput(AboutPlan):
    """Memory of every stage of the pipeline."""

    devices: Annotated[list[DeviceRow], Doc("pipeline stages, first to last")]
    phases: Annotated[list[PhaseRow], Doc("the fullest rank in every phase of a step, in their order")]
    bytes_per_parameter: Annotated[PerParameter, Doc("bytes of a parameter before sharding")]
    timeline: Annotated[str | None, Doc("with `--timeline`: the figure written", optional=True)] = None


class PlanOutput(Answer):
    """The best plans, and why the others lose."""

    search: Annotated[SearchRecord, INLINE]
    html: HtmlReport = None


class CompareOutput(Answer):
    """Alternatives side by side, and whether their times differ by more than the error."""

    comparison: Annotated[Comparison, INLINE]
