"""Results as HTML: reports in one file (`--html`, `write_html`), and cards in notebooks."""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

from traincast.core.errors import InputError
from traincast.core.output_files import check_output

HOMES: Final = {"Found": "searches", "Estimate": "estimates", "Results": "studies", "Report": "validations"}


def write_html(result: Any, path: str | Path, force: bool = False) -> None:
    """Write a report on a result: one page that needs nothing else.

    Parameters
    ----------
    result : Found, Estimate, Results or Report
        What `search`, `estimate`, `study` or `validate` gave.
    path : str or Path
        Where to: a file that ends in .html.
    force : bool
        Whether a file that is there already is replaced.

    Raises
    ------
    InputError
        If the path cannot be written to, the result is no such thing, or what draws figures is not installed.
    """
    from traincast.pages.drawings import require_figures
    from traincast.pages.page import write

    path = Path(path)
    check_output(path, force, (".html",))
    home = next((HOMES[kind.__name__] for kind in type(result).__mro__ if kind.__name__ in HOMES), None)
    if home is None:
        raise InputError("result", [f"{result!r}: must be a Found, an Estimate, Results or a Report"])
    require_figures()
    write(import_module(f"traincast.pages.{home}").page(result), path)
