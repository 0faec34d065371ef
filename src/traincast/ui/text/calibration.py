"""Show a calibrated system: constants before and after, and errors."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from traincast.core import quantity
from traincast.ui.text.tables import Parts, heading, paragraphs, table, title_line

if TYPE_CHECKING:
    from traincast.accuracy import Calibration, FittedConstant

LARGE_MEAN_ERROR: Final = 0.3  # a larger mean error points to a mistake in the input
CONSTANT_COLUMNS: Final = ("constant", "before", "after", "90% interval")
MORE_DATA_HELPS: Final = (
    "More runs help, of several plans, and so do nccl-tests (--nccl) and tables of matrix products (--gemm)."
)
ERRORS_STILL_LARGE: Final = (
    "Runs of one machine are usually closer. Check the system and its network, that times are in seconds "
    "and that they are those of whole steps."
)


def calibration(result: "Calibration", output: Path | None = None) -> Parts:
    """Show constants before and after, errors, and what the data do not determine."""
    written = "" if output is None else f": {output}"
    yield title_line(f"{result.system}, calibrated to {result.measured.counts()}{written}")
    any_determined = bool(result.determined)
    if any_determined:
        yield table(CONSTANT_COLUMNS, map(constant_cells, result.determined))
    else:
        unchanged = f"They determine no constant, and the file holds {result.system} as it was."
        yield from paragraphs(f"{unchanged} {MORE_DATA_HELPS}")
    old, new, held_out = result.errors.values()
    if old is not None and new is not None:
        alone = "" if held_out is None else f"; {held_out:.1%} where each run is predicted without itself"
        yield from paragraphs(f"Mean error of the runs: {old:.1%} before, {new:.1%} after{alone}.")
    for kind, errors in result.others.items():
        change = f"{errors['before']:.1%} before, {errors['after']:.1%} after"
        yield from paragraphs(f"Mean error of the {kind}: {change}.")
    if any((errors["after"] or 0) > LARGE_MEAN_ERROR for errors in (result.errors, *result.others.values())):
        yield from paragraphs(ERRORS_STILL_LARGE)
    if any_determined and result.undetermined:
        names = ", ".join(map(_constant_name, result.undetermined))
        yield from paragraphs(f"Not determined by these data, and left as they were: {names}.")
    yield from paragraphs(*(f"assumed: {line}" for line in result.measured.assumed))
    if result.measured.left_out:
        yield heading("Left out")
        yield from paragraphs(*result.measured.left_out)


def constant_cells(constant: "FittedConstant") -> tuple[str, ...]:
    """Return the cells of a fitted constant, as `CONSTANT_COLUMNS`."""
    numbers = (constant.before, constant.value, constant.low, constant.high)
    unit = constant.parameter.unit
    before, value, low, high = (quantity(n, unit) if unit else f"{n:.3g}" for n in numbers)
    return _constant_name(constant), before, value, f"{low} to {high}"


def _constant_name(constant: "FittedConstant") -> str:
    """Return the path of a constant in a system file, or its field of a software stack."""
    parameter = constant.parameter
    return f"{parameter.field} of {constant.of[0]}" if parameter.of_software else constant.path
