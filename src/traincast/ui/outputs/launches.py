"""What `export` and `check` print with `--json`."""

from collections.abc import Mapping
from typing import Annotated

from traincast.core import INLINE, Doc
from traincast.launch import Checked
from traincast.step import Job
from traincast.ui.outputs.about_plan import AboutPlan
from traincast.ui.outputs.reference import Answer


class ExportOutput(AboutPlan):
    """Launch of a plan in the settings of a training framework."""

    to: Annotated[str, Doc("name of the format")]
    output: Annotated[str | None, Doc("file that was written; null where it is printed")]
    text: Annotated[str, Doc("launch script or configuration")]
    not_expressed: Annotated[
        Mapping[str, str], Doc("what the framework has no setting for: the value, and why, by fact")
    ]
    left_at_default: Annotated[
        Mapping[str, str],
        Doc("settings of the model that no prediction depends on, left at the framework's defaults"),
    ]
    command: Annotated[
        str, Doc("what starts the file on every machine; empty of a folder, whose launch.sh does")
    ]


class CheckOutput(Answer):
    """A launch compared with the best plan of its framework."""

    job: Annotated[Job, INLINE]
    check: Annotated[Checked, INLINE]
