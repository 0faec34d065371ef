"""What is assumed about the world, as data. A preset is a value of this class; no formula asks for a preset's name."""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from traincast.errors import unknown


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """How counts become times and bytes; the defaults are arXiv 2410.00273, corrected.

    Parameters
    ----------
    name : str
        Name of the preset.
    element_bytes : float
        Size of a weight, gradient or activation element, the paper's E [byte].
    mask_bytes : float
        Size of a dropout-mask element [byte].
    launch_seconds : float
        Fixed cost of one operation in one direction [s].
    matrix_efficiency, vector_efficiency : float
        Share of the matrix and vector peak that kernels sustain.
    gradients_per_weight : float
        Bytes of gradients per byte of weights.
    optimizer_per_weight : float
        Bytes of optimizer states per byte of weights: fp32 master copy and two Adam moments, 12 bytes per 2-byte weight.
    all_reduce_passes_in_domain : {2, 1}
        How often an all-reduce inside one network tier moves its data: reduce-scatter and all-gather make 2.
        The published results used 1 (erratum 3).
    slow_pipeline_links : {1, 0}
        Weight of the slow links of a pipeline that has several stages per fast domain.
        The published results used 0 (erratum 2).
    summa_norm_width : {"hidden", "seq"}
        The model dimension whose tp-th part is the row of a SUMMA norm.
        The published results used the sequence length (erratum 1).
    """

    name: str = "custom"
    element_bytes: float = 2.0
    mask_bytes: float = 1.0
    launch_seconds: float = 20e-6
    matrix_efficiency: float = 0.8
    vector_efficiency: float = 0.8
    gradients_per_weight: float = 1.0
    optimizer_per_weight: float = 6.0
    all_reduce_passes_in_domain: float = 2.0
    slow_pipeline_links: float = 1.0
    summa_norm_width: Literal["hidden", "seq"] = "hidden"


PAPER: Final = Assumptions(name="paper")
ERRATA: Final[dict[int, dict[str, Any]]] = {  # what each erratum of the published results changes
    1: {"summa_norm_width": "seq"},
    2: {"slow_pipeline_links": 0.0},
    3: {"all_reduce_passes_in_domain": 1.0},
}


def with_errata(*numbers: int) -> Assumptions:
    """The paper's assumptions with some of its errata put back, ``with_errata(1, 2, 3)`` being the published model."""
    changes = {field: value for number in numbers for field, value in ERRATA[number].items()}
    name = "paper-published" if set(numbers) == set(ERRATA) else "+".join(("paper", *map(str, numbers)))
    return replace(PAPER, name=name, **changes)


PRESETS: Final = {preset.name: preset for preset in (PAPER, with_errata(*ERRATA))}


def resolve(assumptions: "str | Assumptions") -> Assumptions:
    """The preset of that name, or the object itself.

    Raises
    ------
    InputError
        If no preset has that name.
    """
    if isinstance(assumptions, Assumptions):
        return assumptions
    if assumptions not in PRESETS:
        raise unknown("assumptions", assumptions, PRESETS)
    return PRESETS[assumptions]
