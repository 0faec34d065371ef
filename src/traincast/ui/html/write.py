"""Reports in one file (`--html`, `write_html`)."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traincast.core.errors import InputError
from traincast.core.output_files import check_output

if TYPE_CHECKING:
    from traincast.ui.html.page import Page


def _page_of(result: object) -> "Callable[[Any], Page] | None":
    """Return the function that makes the report of a result, or None."""
    kinds = {kind.__name__ for kind in type(result).__mro__}
    if "Found" in kinds:
        from traincast.ui.html.search_report import page as found_page

        return found_page
    if "Estimate" in kinds:
        from traincast.ui.html.plan_report import page as estimate_page

        return estimate_page
    if "Results" in kinds:
        from traincast.ui.html.study_report import page as results_page

        return results_page
    if "Report" in kinds:
        from traincast.ui.html.accuracy_report import page as report_page

        return report_page
    return None


def write_html(result: Any, path: str | Path, force: bool = False) -> None:
    """Write a report on a result: one page that needs nothing else.

    Parameters
    ----------
    result : Found, Estimate, Results or Report
        What `search`, `estimate`, `study` or `validate` gave.
    path : str or Path
        File that ends in .html.
    force : bool
        Whether to overwrite an existing file.

    Raises
    ------
    InputError
        If the path cannot be written to, the result is no such thing, or what draws figures is not installed.
    """
    from traincast.ui.html.page import write
    from traincast.ui.html.svg import require_figures

    path = Path(path)
    check_output(path, force, (".html",))
    if (page := _page_of(result)) is None:
        raise InputError("result", [f"{result!r}: must be a Found, an Estimate, Results or a Report"])
    require_figures()
    write(page(result), path)
