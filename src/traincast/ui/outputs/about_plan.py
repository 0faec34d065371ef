"""Answers about one plan: the case and its estimate."""

from typing import Annotated

from traincast.core import INLINE, Doc
from traincast.step import Estimate, Job
from traincast.ui.outputs.reference import Answer


class AboutPlan(Answer):
    """Answer about one plan: the case and its estimate."""

    job: Annotated[Job, INLINE]
    estimate: Annotated[Estimate, Doc("time and memory of a step")]
