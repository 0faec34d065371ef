"""Screenshots of the explorer in `docs/screens/`: `python tools/docs/screenshots.py`, with its own server and
browser."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

SCREENS = Path(__file__).parents[2] / "docs" / "screens"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUESTION = "?model=llama-3-70b&system=dgx-h100&gpus=512"
COMPLETE = "() => performance.getEntriesByName('complete').length > 0"


def opened(browser: Browser, url: str, **options: Any) -> Page:
    """Open the page and wait until it is complete."""
    page = browser.new_page(reduced_motion="reduce", **options)
    page.goto(url)
    page.wait_for_function(COMPLETE, timeout=120_000)
    return page


def light(browser: Browser, url: str) -> None:
    """Take the top of the page, and the design space, in the light theme."""
    page = opened(browser, url + QUESTION, viewport={"width": 1360, "height": 1320}, color_scheme="light")
    page.screenshot(path=SCREENS / "light.png")
    page.locator("#space .point").nth(12).focus()
    page.locator("#space").screenshot(path=SCREENS / "space.png")


def dark(browser: Browser, url: str) -> None:
    """Take two plans side by side in the dark theme."""
    page = opened(browser, url + QUESTION, viewport={"width": 1360, "height": 1500}, color_scheme="dark")
    for i in (0, 4):
        page.locator("#plans .pin").nth(i).click()
    page.locator("#compare table").wait_for()
    page.wait_for_function("() => !document.querySelector('.stale')", timeout=120_000)
    page.mouse.move(0, 0)
    page.evaluate("() => document.querySelector('#compare').scrollIntoView()")
    page.screenshot(path=SCREENS / "dark.png")


def phone(browser: Browser, url: str) -> None:
    """Take the answer on a phone."""
    page = opened(browser, url + QUESTION, viewport={"width": 390, "height": 844}, color_scheme="light")
    page.screenshot(path=SCREENS / "phone.png")


def main() -> None:
    SCREENS.mkdir(exist_ok=True)
    server = [sys.executable, "-m", "traincast", "serve", "--port", "0"]
    with (
        subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as process,
        sync_playwright() as playwright,
    ):
        try:
            url = re.search(r"http://\S+/", process.stdout.readline())[0]
            executable = next(filter(None, map(shutil.which, BROWSERS)))
            browser = playwright.chromium.launch(
                executable_path=executable, args=["--no-sandbox", "--disable-gpu"]
            )
            for draw in (light, dark, phone):
                draw(browser, url)
            browser.close()
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
