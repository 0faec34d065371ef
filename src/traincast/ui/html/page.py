"""Reports as self-contained pages: one HTML file without scripts and external resources."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from traincast.core.errors import InputError
from traincast.core.output_files import atomic_output, check_output
from traincast.core.version import __version__
from traincast.ui.html.elements import Html, Section, element, items, joined, listing, pairs, paragraph


@dataclass(frozen=True)
class Page:
    """The content of a report.

    Parameters
    ----------
    kind : str
        Kind of report, above the title.
    title : str
        Model, machine and number of GPUs, or what else the report is on.
    remarks : sequence of str
        Remarks below the title: batch, assumptions, calibration.
    answer : Html
        The answer in a sentence, with key figures.
    sections : tuple of Section
        Sections below the answer.
    fits : bool
        Whether the plan fits; otherwise the answer is marked.
    """

    kind: str
    title: str
    remarks: list[str]
    answer: Html
    sections: tuple[Section, ...]
    fits: bool = True

    def document(self, command: str | None = None) -> str:
        """Return the page as HTML; `command` is the command line that repeats it."""
        parts = (*self.sections, _provenance(command))
        head = element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="generator", content=f"traincast {__version__}"),
            element("title", f"{self.title}: {self.kind.lower()}"),
            element(
                "style", Html(files("traincast.ui.html").joinpath("page.css").read_text(encoding="utf-8"))
            ),
        )
        body = element("body", self._header(), element("main", *self._main(parts)), _footer())
        return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"

    def _header(self) -> Html:
        """Return the header: kind, title and remarks."""
        return element(
            "header", paragraph(self.kind, class_="kind"), element("h1", self.title), items(self.remarks)
        )

    def _main(self, parts: tuple[Section, ...]) -> Iterator[Html]:
        """Yield the answer, the links to the sections, and the sections."""
        yield element("div", self.answer, class_="answer" if self.fits else "answer short")
        links = items(element("a", section.title, href=f"#{section.key}") for section in parts)
        yield element("nav", links, aria_label="Sections")
        for section in parts:
            yield element("section", element("h2", section.title), section.content, id=section.key)


def write(page: Page, path: Path, command: str | None = None) -> None:
    """Write a report atomically; an existing file is replaced.

    Parameters
    ----------
    page : Page
        The report.
    path : Path
        File that ends in .html.
    command : str, optional
        The command line that repeats it.

    Raises
    ------
    InputError
        If the path cannot be written to.
    """
    check_output(path, True, (".html",))
    with atomic_output(path) as partial:
        partial.write_bytes(page.document(command).encode("utf-8", errors="replace"))


def _provenance(command: str | None) -> Section:
    """Return the section on version, date and the command that repeats the report."""
    today = _today()
    facts = pairs(
        [("Made with", f"traincast {__version__}"), ("Written", element("time", today, datetime=today))]
    )
    if command is None:
        return Section("provenance", "Provenance", facts)
    note = paragraph("This command repeats it; the same version with the same inputs gives the same figures.")
    return Section("provenance", "Provenance", joined((facts, note, listing(command))))


def _today() -> str:
    """Return today's date (UTC), or that of SOURCE_DATE_EPOCH, which makes reports reproducible."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", str(int(time.time())))
    try:
        return datetime.fromtimestamp(int(epoch), UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        raise InputError(
            "SOURCE_DATE_EPOCH", [f"{epoch!r}: must be a time in seconds since 1970, such as 1767225600"]
        ) from None


def _footer() -> Html:
    """Return the footer."""
    return element(
        "footer",
        f"traincast {__version__}: forecasts of training steps, from counts, measured rates and a search.",
    )
