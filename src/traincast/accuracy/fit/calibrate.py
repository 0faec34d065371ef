"""Calibrate a system to measured runs, collectives and matrix products; catalogue values are priors."""

from pathlib import Path

from traincast.accuracy.fit.calibration import Calibration, fitted_to
from traincast.accuracy.fit.measured_files import Files, read_measurements


def calibrate(
    system: str | Path,
    *,
    runs: Files = (),
    logs: Files = (),
    nccl: Files = (),
    gemm: Files = (),
    config: str | Path | None = None,
    launches: Files = (),
    **given: object,
) -> Calibration:
    """Fit the constants of a system to measurements on it.

    Parameters
    ----------
    system : str or Path
        The most similar system of the catalogue, or a file.
    runs, logs, nccl, gemm : sequence of str or Path
        Tables of runs, logs of training, output of nccl-tests, and tables of matrix products
        (docs/calibration.md).
    config : str or Path, optional
        Configuration of runs whose logs do not contain it.
    launches : sequence of str or Path, optional
        Launch scripts or configurations of the logs, one of all or one of each: they say model and plan, the
        logs the time of a step, the GPUs and the batch that ran.
    **given
        Values missing in logs and tables of runs, such as ``model="llama-3-8b"`` or ``recompute="full"``.

    Returns
    -------
    Calibration
        Constants with intervals, errors before and after; constants that the data do not determine keep the
        catalogue's values.

    Raises
    ------
    InputError
        If a file cannot be read, or none has measurements of this system: all problems at once.
    """
    return fitted_to(system, read_measurements(system, runs, logs, nccl, gemm, config, given, launches))
