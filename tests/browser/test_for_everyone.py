"""Accessibility: keyboard only, screen reader, dark theme, phone."""

import re
from pathlib import Path

import pytest

import traincast as tc
from browsing import SMALL, complete, found, query, settled

HERE = Path(__file__).parent


def test_dark_and_light(opened):
    page = opened(SMALL, color_scheme="dark", reduced_motion="reduce")

    def light():
        colour = page.evaluate("() => getComputedStyle(document.documentElement).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3

    assert light() < 60
    page.get_by_role("button", name="Theme: system").click()
    assert light() > 200
    page.reload()
    settled(page)
    assert light() > 200
    page.get_by_role("button", name="Theme: light").click()
    assert light() < 60
    page.evaluate("() => document.querySelector('#main').setAttribute('aria-busy', 'true')")
    assert (
        page.evaluate("() => getComputedStyle(document.querySelector('#busy'), '::after').animationName")
        == "none"
    )


@pytest.mark.parametrize("width", [360, 390, 768, 1024, 1280])
def test_nothing_is_wider_than_the_screen(opened, width):
    page = opened(SMALL, viewport={"width": width, "height": 740})
    complete(page)
    for i in (0, 1):
        page.locator("#plans .pin").nth(i).click()
    page.locator("#compare table").wait_for()
    page.get_by_role("button", name="Search machines").click()
    machines = page.locator("#design .scroll")
    machines.wait_for()
    page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert not 390 <= width < 480 or machines.evaluate("box => box.scrollWidth <= box.clientWidth")
    assert width < 390 or page.locator("#compare .scroll").evaluate(
        "box => box.scrollWidth <= box.clientWidth"
    )
    ranked = page.locator("#plans .scroll")  # knobs that have no room beside the figures stand below them
    assert width < 390 or ranked.evaluate("box => box.scrollWidth <= box.clientWidth")
    assert ranked.locator("th.knob").first.is_visible() != ranked.locator("td.knobs").first.is_visible()
    assert page.locator("#bar").is_visible() == (width < 960)


@pytest.mark.parametrize("width", [390, 1024])
def test_no_label_of_a_figure_is_cut(opened, width):
    page = opened(f"{SMALL}&tp=2&pp=16", viewport={"width": width, "height": 740})
    complete(page)
    labels = page.locator("figure svg text").evaluate_all("""labels => labels.map((label) => {
        const [own, all] = [label, label.closest("svg")].map((one) => one.getBoundingClientRect());
        return [label.textContent, own.left >= all.left && own.right <= all.right];
    })""")
    assert {"TP and CP communication", "stage 15"} <= {text for text, _ in labels}
    assert not [text for text, is_inside in labels if not is_inside]


def test_with_the_keyboard_alone(opened):
    page = opened(SMALL)
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the answer"
    page.keyboard.press("Enter")
    pressed = page.locator("#plans .pin[aria-pressed=true]")
    for _ in range(3):  # the table (it scrolls), then its buttons
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.classList.contains('pin')"):
            break
    page.keyboard.press("Enter")
    pressed.wait_for()
    assert (
        page.evaluate("() => document.activeElement.getAttribute('aria-pressed')") == "true"
    )  # the focus stays
    page.locator("#space .point[tabindex='0']").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert "GiB" in page.locator("#space [data-mark=tip]").text_content()
    assert page.locator("#space g[aria-label]").count() == 0
    page.keyboard.press("Enter")
    page.locator("#compare table").wait_for()
    assert page.evaluate("() => document.activeElement.classList.contains('point')")
    page.get_by_role("slider", name="Matrix units").focus()
    page.keyboard.press("PageUp")
    settled(page)
    assert float(query(page)["accelerator.matrix_flops"]) > 989.4e12


def test_everything_has_a_name(opened):
    page = opened(SMALL)
    complete(page)
    wrong = page.evaluate((HERE / "names.js").read_text())
    assert wrong == {"unnamed": [], "twice": [], "dangling": [], "skipped": [], "unspoken": 0, "cells": 0}
    assert (
        page.get_by_role("main").count()
        == page.get_by_role("heading", level=1).count()
        == page.get_by_role("banner").count()
        == 1
    )
    assert page.get_by_role("status").inner_text().startswith("Recommended: ")
    page.locator("#memory details").click()
    page.locator("#memory table tbody tr").first.wait_for()


@pytest.fixture(params=["light", "dark", "phone"])
def unfolded(opened, request):
    """The complete page with two pinned plans and everything open."""
    width = 390 if request.param == "phone" else 1280
    scheme = "dark" if request.param == "dark" else "light"
    size = {"width": width, "height": 900}
    page = opened(SMALL, color_scheme=scheme, viewport=size, bypass_csp=True, reduced_motion="reduce")
    complete(page)
    for i in (0, 2):
        page.locator("#plans .pin").nth(i).click()
    page.locator("#compare table").wait_for()
    page.get_by_label("or MFU [%]").fill("10")
    page.locator("#measured button").click()
    page.locator("#measured table").first.wait_for()
    page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.wait_for_function("() => !document.querySelector('.stale')")
    return page


def assert_axe_finds_nothing(page):
    axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    page.evaluate((Path(axe.__file__).parent / "axe.min.js").read_text())
    seen = page.evaluate("() => axe.run()")
    assert [(rule["id"], rule["nodes"][0]["html"]) for rule in seen["violations"]] == []
    assert {rule["id"] for rule in seen["incomplete"]} <= {"color-contrast"}  # which `contrast.js` decides


def test_axe_finds_no_violation_and_text_has_contrast(unfolded):
    """Contrast of every text, also where axe does not decide since a gradient or a drawing is behind it."""
    seen = unfolded.evaluate((HERE / "contrast.js").read_text())
    assert seen["faint"] == []
    assert seen["texts"] > 500
    assert_axe_finds_nothing(unfolded)


@pytest.mark.parametrize("gpus", [64, 1])
def test_axe_finds_no_violation_in_a_report(browser, tmp_path, gpus):
    """Of a search in which plans fit, and of one in which none does."""
    pytest.importorskip("jinja2", reason="Jinja2 is not installed")
    tc.write_html(found(gpus=gpus), tmp_path / "report.html")
    page = browser.new_page()
    page.goto(f"file://{tmp_path}/report.html")
    page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate((HERE / "contrast.js").read_text())["faint"] == []
    assert_axe_finds_nothing(page)
    page.close()


def test_a_list_ends_above_the_foot_of_a_phone(opened):
    page = opened(SMALL, viewport={"width": 390, "height": 844})
    page.get_by_text("Change the question").click()
    page.get_by_role("combobox", name="System", exact=True).click()
    listed, foot = (page.locator(part).bounding_box() for part in ("#system-list", "#bar"))
    assert listed["y"] + listed["height"] <= foot["y"]
    assert listed["width"] > 300


def test_axe_finds_no_violation_where_a_list_is_open(opened):
    page = opened(SMALL, bypass_csp=True, reduced_motion="reduce")
    complete(page)
    page.locator("#tuning > summary").click()
    page.get_by_label("Train", exact=True).select_option("lora")
    settled(page)
    page.wait_for_function("() => !document.querySelector('.stale')")
    box = page.get_by_role("combobox", name="System", exact=True)
    box.fill("h100")
    assert page.evaluate((HERE / "contrast.js").read_text())["faint"] == []
    assert_axe_finds_nothing(page)
    active = f"#{box.get_attribute('aria-activedescendant')}"
    assert page.locator(active).get_attribute("role") == "option"


@pytest.fixture(scope="module", params=[("llama-3-70b", 512), ("deepseek-v3", 2048)], ids=lambda of: of[0])
def plan_report(browser, tmp_path_factory, request):
    """Open the report on a search at a width [px]."""
    pytest.importorskip("jinja2", reason="Jinja2 is not installed")
    model, gpus = request.param
    path = tmp_path_factory.mktemp("report") / "report.html"
    tc.write_html(tc.search(model, "dgx-h100", gpus=gpus), path)

    def opened_at(width):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(f"file://{path}")
        return page

    return opened_at


def test_a_report_is_at_most_four_thousand_pixels_tall(plan_report):
    """At a width of 1,280; it was 8,887 for llama-3-70b, and nobody reads that far."""
    page = plan_report(1280)
    assert page.evaluate("document.documentElement.scrollHeight") <= 4000
    assert page.locator("details table").count() >= 8, "the tables are there, folded"
    page.close()


def test_no_row_of_the_plans_is_cut_on_a_phone(plan_report):
    page = plan_report(390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    cells = page.locator("#plans .flows").first.locator("th, td")
    ends = cells.evaluate_all("(all) => all.map((cell) => cell.getBoundingClientRect().right)")
    assert len(ends) > 50
    assert max(ends) <= 390
    named = page.locator("#plans .flows td[data-label=step]").first
    assert named.evaluate("(cell) => getComputedStyle(cell, '::before').content").startswith('"step')
    page.close()


def test_folded_tables_print(plan_report):
    page = plan_report(1280)
    height = "document.documentElement.scrollHeight"
    folded = page.evaluate(height)
    page.emulate_media(media="print")
    assert page.evaluate(height) > folded + 3000, "all tables and figures"
    page.close()


def test_labels_of_figures_are_legible_in_a_report(plan_report):
    """At least 8 px on a screen and on a phone, where figures scroll rather than shrink."""
    for width in (1280, 390):
        page = plan_report(width)
        page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        sizes = page.locator("figure svg").evaluate_all(
            "(all) => all.map((svg) => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)"
        )
        assert len(sizes) == 5
        assert min(sizes) * 6.5 >= 8  # the smallest labels are of 6.5 points
        page.close()
