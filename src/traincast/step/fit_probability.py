"""Probability that a plan fits in memory: errors of predicted memory, and what the allocator loses.

The constants stand in ``catalog/errors.yaml`` (docs/uncertainty.md).
"""

import math
from typing import Final, Literal, NamedTuple

import numpy as np

from traincast.catalog import Stack
from traincast.core import GIB, Column, plain
from traincast.step.uncertainty import BISECTIONS, Errors, errors

# 90 % of the errors of what is allocated whatever the plan: resumed runs hold so much more [byte]
FIXED_MEMORY_ERROR: Final = 0.06 * GIB  # in Megatron-LM's functional tests, 2025 and 2026
# How much memory is lost to fragmentation, as a multiple of the share that is counted, and how likely that
# is. Of 60 messages of PyTorch about memory that ran out, which name what is reserved and not allocated, with
# more than 10 GiB allocated: half at most 0.5 %, 30 % up to 2.6 %, 13 % some 6 % and 7 % above 10 %; on
# average 2.3 % where 3 % are counted. With expandable segments nothing is counted.
FRAGMENTATION: Final = ((0.1, 0.5), (0.4, 0.3), (2.0, 0.13), (5.0, 0.07))
Verdict = Literal["fits", "uncertain", "does not fit"]
UNCERTAIN: Final = (0.2, 0.8)  # probabilities of fitting between which a plan is to be measured


class OpenMemory(NamedTuple):
    """Software that a question leaves open, with the memory that it would take."""

    weight: float
    stack: str
    nbytes: Column  # predicted memory [byte]
    allocator_share: float  # of it that is counted as lost to fragmentation


def fits_probability(
    nbytes: Column,
    capacity: Column,
    stack: str,
    known: Errors | None = None,
    allocator_share: float = 0.0,
) -> Column:
    """Return the probability that a plan fits.

    The logarithm of memory has Student's t distribution with 2 degrees of freedom around the prediction and
    what measured memory usually is above it, times what the allocator loses to fragmentation in one run and
    another (`FRAGMENTATION`).

    Parameters
    ----------
    nbytes, capacity : float or array
        Predicted memory, and that of the accelerator [byte].
    stack : str
        Software, whose errors of memory may be known.
    known : Errors, optional
        Errors of predictions; those of the catalogue if left out.
    allocator_share : float
        Share of memory lost to fragmentation that the prediction counts; 0 where none is.
    """
    scale = _memory_scale(stack, nbytes, known)
    room = np.log(np.maximum(capacity, 1.0) / nbytes) - _memory_shift(stack, known)
    probability: Column = 0.0
    for weight, ratio in _fragmentation_factors(allocator_share):
        probability = probability + weight * _student_below((room - np.log(ratio)) / scale)
    return plain(probability)


def verdict(probability: float | None, fits: bool) -> Verdict:
    """Return what is said of a plan that fits with a probability; None where only `fits` is known."""
    if probability is None:
        return "fits" if fits else "does not fit"
    low, high = UNCERTAIN
    if probability > high:
        return "fits"
    return "uncertain" if probability >= low else "does not fit"


def _fragmentation_factors(allocator_share: float) -> list[tuple[float, float]]:
    """Return what memory may be relative to the prediction by fragmentation, and how likely that is."""
    if not allocator_share:
        return [(1.0, 1.0)]
    return [
        (weight, (1 + multiple * allocator_share) / (1 + allocator_share))
        for multiple, weight in FRAGMENTATION
    ]


def memory_that_fits(probability: float, capacity: float, stack: str, allocator_share: float = 0.0) -> float:
    """Return the most memory with which a plan fits with a probability between 0 and 1 [byte].

    `capacity`: memory of the accelerator [byte]; the inverse of `fits_probability`, whose `allocator_share`
    the last argument is.
    """
    room = _memory_shift(stack) + student_point(probability) * _memory_scale(stack, capacity)
    alone = float(capacity * np.exp(-room))
    below = np.log(alone) - 1.0
    above = np.log(alone) + 1.0
    for _ in range(BISECTIONS):
        middle = (below + above) / 2
        fits = fits_probability(np.exp(middle), capacity, stack, allocator_share=allocator_share)
        below, above = (middle, above) if fits >= probability else (below, middle)
    return float(np.exp(below))


def _memory_scale(stack: str, nbytes: Column, known: Errors | None = None) -> Column:
    """Return the scale of the distribution of the logarithm of memory."""
    known = known or errors()
    ninety = known.memory_stacks.get(
        Stack(stack).fitted_name, float(np.hypot(known.memory, known.memory_new_stack))
    )
    return np.hypot(ninety, FIXED_MEMORY_ERROR / nbytes) / student_point(0.95)


def _student_below(size: Column) -> Column:
    """Return the probability that Student's t with 2 degrees of freedom is below a size."""
    return 0.5 + 0.5 * size / np.sqrt(2 + size * size)


def student_point(probability: float) -> float:
    """Return the size that Student's t with 2 degrees of freedom is below with a probability between 0 and 1.

    Errors of memory have such tails: half of those of 407 runs lie within 0.28 of what 90 % lie within.
    """
    balance = 2 * probability - 1
    return balance * math.sqrt(2 / (1 - balance * balance))


def _memory_shift(stack: str, known: Errors | None = None) -> float:
    """Return the median of the logarithm of measured over predicted memory."""
    known = known or errors()
    return known.memory_shifts.get(Stack(stack).fitted_name, known.memory_shift)
