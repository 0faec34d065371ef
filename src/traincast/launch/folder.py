"""Export of a plan as a folder that can be launched."""

from traincast.core import require_known
from traincast.launch.exports import export
from traincast.launch.training_programs import TAKEN, TRAINING_PROGRAMS, add_program
from traincast.launch.write import Launch
from traincast.planner import Found
from traincast.step import Estimate


def export_folder(what: Estimate | Found, to: str = "deepspeed") -> Launch:
    """Export a plan as a folder that can be launched, with ``bash launch.sh``.

    Parameters
    ----------
    what : Estimate or Found
        An estimate, or a search: its best plan that the format and the program can express in full.
    to : str
        The format: one of `TRAINING_PROGRAMS`.

    Returns
    -------
    Launch
        The files of the folder, and what neither the format nor the program can express.

    Raises
    ------
    InputError
        If no program goes with the format, or the program does not run such a plan or train such a model.
    NothingFits
        If the search found no plan.
    """
    require_known("format of a folder", to, TRAINING_PROGRAMS)
    return add_program(export(what, to, beside=frozenset((*TAKEN, *TRAINING_PROGRAMS[to].takes))))
