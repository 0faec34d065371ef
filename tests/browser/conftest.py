"""A server, a browser, and for every test a page that is watched for errors and for requests elsewhere."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from browsing import settled

NAMES = ("chromium", "chromium-browser", "google-chrome")  # as distributions call it
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective}: ${event.blockedURI}`);
});
"""
REFUSED = "Failed to load resource: "  # what Chromium says of 4xx, of 5xx and of a server that is silent


@pytest.fixture(scope="session")
def programme() -> str:
    """Path of the browser, or a skip that says what is missing."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser is installed: {' or '.join(NAMES)}")
    return path


@pytest.fixture(
    scope="module"
)  # while it is there an event loop runs, which tests elsewhere want for themselves
def browser(programme):
    """The browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=programme, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server(programme) -> Iterator[str]:
    """Address of a server for the whole session."""
    pytest.importorskip("uvicorn", reason="the explorer's server is not installed")
    command = [sys.executable, "-m", "traincast", "serve", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as process:
        try:
            line = process.stdout.readline()
            yield re.search(r"http://\S+/", line)[0]
        finally:
            process.terminate()
            process.wait()


@pytest.fixture
def opened(browser, server) -> Iterator[Callable[..., SimpleNamespace]]:
    """Open the explorer at an address (its query); what the browser finds wrong fails the test."""
    contexts, errors, elsewhere, pages = [], [], [], []

    def visit(query: str = "", *, refused: bool = False, complete: bool = True, **options):
        context = browser.new_context(
            viewport=options.pop("viewport", {"width": 1280, "height": 900}), **options
        )
        context.set_default_timeout(300000)  # a machine that does other things as well
        context.add_init_script(VIOLATIONS)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.rstrip("/"))
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(f"error: {error}"))
        page.on("console", lambda said: errors.append(said.text) if _bad(said, refused) else None)
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith((server, "blob:", "data:")) else elsewhere.append(request.url)
            ),
        )
        contexts.append(context)
        pages.append(page)
        page.goto(f"{server}{query}")
        if complete:
            settled(page)
        return page

    yield visit
    violations = [
        violation
        for page in pages
        if not page.is_closed()
        for violation in page.evaluate("() => window.violations")
    ]
    for context in contexts:
        context.close()
    assert (errors, elsewhere, violations) == ([], [], [])


def _bad(said, refused: bool) -> bool:
    """Whether a line of the console is to fail the test; a refusal that the test asks for is not."""
    return said.type in ("error", "warning") and not (refused and said.text.startswith(REFUSED))
