"""What `tune` prints with `--json`."""

from typing import Annotated

from traincast.accuracy import FittedConstant
from traincast.core import INLINE, Doc
from traincast.tuner import ReplayReport, TuneReport
from traincast.ui.outputs.reference import Answer


class TuneOutput(Answer):
    """The best plan found by trials, or with `--replay` what trials of published runs would have found."""

    report: Annotated[TuneReport | None, INLINE]
    constants: Annotated[
        tuple[FittedConstant, ...] | None, Doc("constants fitted to the trials", optional=True)
    ]
    replay: Annotated[ReplayReport | None, Doc("with `--replay`: the replay", optional=True)]
    files: Annotated[list[str], Doc("files that were written")]
