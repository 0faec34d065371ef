"""Reports in one file (`--html`, `write_html`)."""

from pathlib import Path

from traincast.core import InputError, check_output, require_path
from traincast.ui.html.libraries import require_libraries


def write_html(result: object, path: str | Path, force: bool = False) -> None:
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
        If the path cannot be written to, the result is no such thing, or a library is not installed.
    """
    path = require_path("path", path)
    check_output(path, force, (".html",))
    require_libraries()
    from traincast.accuracy import Report
    from traincast.planner import Found, Results
    from traincast.step import Estimate
    from traincast.ui.html import accuracy_report, plan_report, search_report, study_report
    from traincast.ui.html.rendering import write_page

    match result:
        case Found():
            page = search_report.page(result)
        case Estimate():
            page = plan_report.page(result)
        case Results():
            page = study_report.page(result)
        case Report():
            page = accuracy_report.page(result)
        case _:
            raise InputError("result", [f"{result!r}: must be a Found, an Estimate, Results or a Report"])
    write_page(page, path)
