"""Goodput of a run whose machines fail: checkpoints, their interval, and lost time (Young 1974, Daly 2006).

Failures are taken to strike any time, independently (Poisson), and training to stand still while a checkpoint
is written. Every argument is a number or a column.
"""

from typing import Final

import numpy as np

from traincast.core import Column, Optimizer, Precision, plain

BYTES_OF_16_BITS: Final = 2.0


def mtbf_seconds(failure_hours: Column, gpus: Column) -> Column:
    """Return the mean time between failures of a job, which the failure of any GPU stops [s].

    `failure_hours`: mean time between failures of one accelerator and its share of the rest [h].
    """
    return failure_hours * 3600 / gpus


def bytes_per_parameter(precision: Precision, optimizer: Optimizer) -> float:
    """Return the size of a checkpoint per parameter: weight, master copy and optimizer states [byte]."""
    return BYTES_OF_16_BITS * precision.width + precision.master + optimizer.state


def checkpoint_seconds(nbytes: Column, storage_bandwidth: Column, gpus: Column) -> Column:
    """Return the time to write a checkpoint, of which every accelerator writes its share [s].

    `nbytes`: size of the checkpoint [byte]; `storage_bandwidth`: bandwidth to storage for one accelerator
    [byte/s].
    """
    return nbytes / (storage_bandwidth * gpus)


def young_interval(write: Column, mtbf: Column) -> Column:
    """Return the best time between checkpoints, to first order: √(2CM) (doi 10.1145/361147.361115) [s].

    `write`: time to write a checkpoint, C [s]; `mtbf`: mean time between failures of the job, M [s].
    """
    return plain(np.sqrt(2 * write * mtbf))


def daly_interval(write: Column, mtbf: Column) -> Column:
    """Return the best time between checkpoints, to higher order (doi 10.1016/j.future.2004.11.016) [s].

    `write`: time to write a checkpoint, C [s]; `mtbf`: mean time between failures of the job, M [s].
    """
    x = write / (2 * mtbf)
    series = np.sqrt(2 * write * mtbf) * (1 + np.sqrt(x) / 3 + x / 9) - write
    return plain(np.where(x < 1, series, mtbf))


def checkpoint_stall(step_seconds: Column, interval: Column, write: Column) -> Column:
    """Return the time of a step that checkpoints add on the mean [s]; arguments as for `goodput`."""
    return step_seconds * write / interval


def goodput(interval: Column, write: Column, restart: Column, mtbf: Column) -> Column:
    """Return the share of the time that trains: τ / (M e^(R/M) (e^((τ+C)/M) − 1)) (Daly 2006).

    `interval`: training time between checkpoints, τ [s]; `write`: time to write a checkpoint, C [s];
    `restart`: time from a failure until training goes on, R [s]; `mtbf`: mean time between failures of the
    job, M [s].
    """
    segment = (interval + write) / mtbf
    # cannot overflow
    return plain(interval / mtbf * np.exp(-(restart / mtbf + segment)) / -np.expm1(-segment))
