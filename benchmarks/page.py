"""Speed of the explorer's page in a browser on this machine: `python benchmarks/page.py`. Medians and worst
of several runs."""

import re
import shutil
import statistics
import subprocess
import sys

from playwright.sync_api import Browser, Page, sync_playwright

RUNS = 9
STEPS = 24
NAMES = ("chromium", "chromium-browser", "google-chrome")
COMPLETE = "() => performance.getEntriesByName('complete').length > 0"
ANSWERS = "() => performance.getEntriesByName('answer').map((one) => one.duration)"


def report(name: str, seconds: list[float], goal: str) -> None:
    print(
        f"{name:44} median {statistics.median(seconds):4.0f} ms   worst {max(seconds):4.0f} ms   goal {goal}"
    )


def cold(browser: Browser, url: str, mark: str) -> float:
    """Return the time from requesting the page, without a cache, until a mark [ms]."""
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.goto(url)
        page.wait_for_function(COMPLETE)
        return float(page.evaluate("(name) => performance.getEntriesByName(name)[0].startTime", mark))


def slid(page: Page, url: str, path: str) -> list[float]:
    """Return the time from each step of a slider to a new figure until its answer is painted [ms]."""
    page.goto(url)
    page.wait_for_function(COMPLETE)
    page.locator(f"[id='figure-{path}']").focus()
    for step in range(STEPS):
        page.keyboard.press("ArrowRight")
        page.wait_for_function("(count) => performance.getEntriesByName('answer').length > count", arg=step)
    return list(page.evaluate(ANSWERS))


def main() -> None:
    executable = next(filter(None, map(shutil.which, NAMES)))
    server = [sys.executable, "-m", "traincast", "serve", "--port", "0"]
    with (
        subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as process,
        sync_playwright() as playwright,
    ):
        url = re.search(r"http://\S+/", process.stdout.readline())[0]
        browser = playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-gpu"]
        )
        cold(browser, url, "painted")
        for mark, goal in (("painted", "200 ms"), ("complete", "none")):
            report(f"cold load until {mark}", [cold(browser, url, mark) for _ in range(RUNS)], goal)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        for path in ("accelerator.hbm_bandwidth", "accelerator.hbm_bytes", "network.1.bandwidth"):
            report(f"slider {path}", slid(page, url, path), "100 ms")
        browser.close()
        process.terminate()


if __name__ == "__main__":
    main()
