"""What people do in the explorer, in a real browser. Expected numbers are the library's own, asked in Python or by the command line."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import pytest

import traincast as tc

QWEN = Path(__file__).parents[1] / "data" / "hf" / "qwen2.5-7b.json"
SMALL = "?model=llama-3-8b&system=dgx-h100&gpus=64"  # quickly searched
UNFIT = "?model=llama-3-70b&system=perlmutter&gpus=8"  # 1.1 TB of weights and optimizer states on 8 × 40 GB


def settled(page):
    page.wait_for_function("() => document.querySelector('#locks .field') && document.querySelector('#main').ariaBusy !== 'true'")


def complete(page):
    """Wait until the slower figures are drawn as well."""
    page.wait_for_function("() => performance.getEntriesByName('complete').length > 0")


def step(page):
    return page.locator(".step strong").inner_text().replace("\n", "")


def label(page):
    return page.locator("#headline .label").inner_text()


def query(page):
    return {key: values[0] for key, values in parse_qs(urlsplit(page.url).query).items()}


def column(page, name):
    heads = page.locator("#plans thead th").all_inner_texts()
    return page.locator(f"#plans tbody tr > :nth-child({heads.index(name) + 1})").all_inner_texts()


def found(**asked):
    """What the library finds for `SMALL`, some of it changed."""
    asked = {"model": "llama-3-8b", "system": "dgx-h100", "gpus": 64} | asked
    return tc.search(asked.pop("model"), asked.pop("system"), gbs=512, **asked)


def test_the_answer_is_the_librarys(opened):
    page = opened(SMALL)
    best, est = found().best
    assert label(page) == str(best)
    assert step(page) == f"{est.step_seconds:.4g}s"
    assert len(column(page, "#")) == 10
    low, high = est.interval
    assert f"{low:.3g} to {high:.3g} s" in page.locator("#headline").inner_text()


def test_another_model(opened):
    page = opened(SMALL)
    page.get_by_label("Model", exact=True).select_option("llama-2-7b")
    page.wait_for_function("() => document.querySelector('#model-facts').textContent.includes('32 layers, hidden 4,096, sequence 4,096')")
    settled(page)
    gbs = page.locator("#global_batch").get_attribute("placeholder")
    assert label(page) == str(tc.search("llama-2-7b", "dgx-h100", 64, int(gbs.replace(",", ""))).best[0])
    assert query(page)["model"] == "llama-2-7b"


def test_a_slider_searches_again_while_the_old_drawing_stays(opened):
    page = opened(SMALL)
    before = label(page), page.locator("#plans-says").inner_text()
    page.evaluate("""() => {
        window.emptied = 0;
        const plot = document.querySelector("#time .plot");
        new MutationObserver(() => { window.emptied += !plot.querySelector("svg"); }).observe(plot, { childList: true });
    }""")
    slider = page.get_by_role("slider", name="Memory capacity")
    box = slider.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.3, middle, steps=8)
    assert "accelerator.hbm_bytes" not in query(page)  # the address waits for the end of a drag
    page.mouse.up()
    settled(page)
    assert (label(page), page.locator("#plans-says").inner_text()) != before
    bytes_ = float(query(page)["accelerator.hbm_bytes"])
    assert f"{bytes_ / 2**30:.3g} GiB" in page.locator("#memory .says").inner_text()
    assert page.evaluate("() => window.emptied") == 0
    page.get_by_role("button", name=re.compile("Reset memory capacity to 79.6 GiB")).click()
    settled(page)
    assert (label(page), page.locator("#plans-says").inner_text()) == before


def test_a_figure_can_be_typed_with_its_unit(opened):
    page = opened(SMALL)
    figure = page.locator("[data-field='network.1.bandwidth'] .value")
    figure.fill("800 Gb/s")
    figure.press("Enter")
    settled(page)
    assert query(page)["network.1.bandwidth"] == "800 Gb/s"
    page.wait_for_function("() => document.querySelector(\"[data-field='network.1.bandwidth']\").classList.contains('changed')")
    assert not page.locator("#question .error").count()


def test_a_lock_holds_a_knob(opened):
    page = opened(SMALL)
    page.locator("#locks-all > summary").click()
    page.get_by_label(re.compile(r"^tp:")).fill("8")
    page.get_by_label(re.compile(r"^tp:")).press("Enter")
    settled(page)
    assert set(column(page, "tp")) == {"8"}
    assert label(page) == str(found(locks={"tp": 8}).best[0])
    assert query(page)["tp"] == "8"
    assert page.locator("#locks-count").inner_text() == "1 held"
    page.get_by_label(re.compile(r"^recompute:")).fill("full")
    page.get_by_label(re.compile(r"^recompute:")).press("Enter")
    settled(page)
    assert label(page) == str(found(locks={"tp": 8, "recompute": "full"}).best[0])


def test_two_plans_side_by_side(opened):
    page = opened(SMALL)
    (_, first), *_, (_, fifth) = found().plans[:5]
    for i in (0, 4):
        page.locator("#plans .pin").nth(i).click()
    table = page.locator("#compare table")
    table.wait_for()
    assert [one.inner_text() for one in page.locator("#compare .heads .mono").all()] == [str(first.plan), str(fifth.plan)]
    told = table.locator("tr", has_text="memory of").locator("td").all_inner_texts()
    assert told[:2] == [f"{est.memory_bytes / 2**30:.3g} GiB" for est in (first, fifth)]
    ratio = fifth.step_seconds / first.step_seconds - 1
    assert f"B takes {100 * ratio:.2g}" in page.locator("#compare .says").inner_text().replace("\xa0", " ")
    assert page.locator("#space .letter").all_text_contents() == ["A", "B"]
    page.get_by_role("button", name="Pinned plan B").click()
    assert f"{fifth.step_seconds:.4g}".rstrip("0") in page.locator("#time .says").inner_text()
    shared = opened(urlsplit(page.url).query and f"?{urlsplit(page.url).query}")
    shared.locator("#compare table").wait_for()
    assert shared.locator("#compare-body").inner_text() == page.locator("#compare-body").inner_text()
    assert shared.get_by_role("button", name="Pinned plan B").get_attribute("aria-pressed") == "true"
    page.locator("#plans .pin").nth(2).click()  # a third: the oldest goes
    page.wait_for_function("() => document.querySelectorAll('#plans .pin[aria-pressed=true]').length === 2")
    assert [one.get_attribute("aria-pressed") for one in page.locator("#plans .pin").all()[:5]] == ["false", "false", "true", "false", "true"]


def test_a_pasted_config(opened):
    page = opened(SMALL, refused=True)
    page.get_by_role("button", name="Paste a config.json").click()
    text, use = page.locator("#config-text"), page.get_by_role("button", name="Use it")
    text.fill('{"model_type": "llama", ')
    use.click()
    assert "This is not JSON" in page.locator("#config [role=alert]").inner_text()
    text.fill('{"model_type": "resnet"}')
    use.click()
    page.locator("#config [role=alert]", has_text="resnet").wait_for()
    text.fill(QWEN.read_text())
    use.click()
    page.locator("#config").wait_for(state="hidden")
    page.wait_for_function("() => document.querySelector('#model-facts').textContent.includes('28 layers, hidden 3,584')")
    settled(page)
    model = tc.load_model(QWEN)
    gbs = int(page.locator("#global_batch").get_attribute("placeholder").replace(",", ""))
    best = str(tc.search(model, "dgx-h100", 64, gbs).best[0])
    assert label(page) == best
    again = opened(f"?{urlsplit(page.url).query}")  # the address holds the model itself
    assert label(again) == best


def test_back_and_forward(opened):
    page = opened(SMALL)
    before = step(page)
    page.get_by_role("button", name="Twice as many GPUs").click()
    page.wait_for_function("before => document.querySelector('.step strong').textContent !== before", arg=before)
    after = step(page)
    assert page.get_by_label("GPUs", exact=True).input_value() == "128"
    page.go_back()
    page.wait_for_function("() => document.querySelector('#gpus').value === '64'")
    settled(page)
    assert step(page) == before
    page.go_forward()
    page.wait_for_function("() => document.querySelector('#gpus').value === '128'")
    settled(page)
    assert step(page) == after


def test_the_command_finds_the_first_plan(opened):
    page = opened(f"{SMALL}&tp=2&seq=4096")
    complete(page)
    page.get_by_role("button", name="Copy", exact=True).click()
    command = shlex.split(page.evaluate("() => navigator.clipboard.readText()"))
    assert command[:2] == ["traincast", "plan"]
    ran = subprocess.run([sys.executable, "-m", *command, "--json"], capture_output=True, text=True, check=True)
    told = json.loads(ran.stdout)
    assert told["seq"] == 4096
    assert f"{told['plans'][0]['step_seconds']:.4g}s" == step(page)
    assert str(tc.Plan(**told["plans"][0]["plan"])) == label(page)


def test_python_finds_the_first_plan(opened):
    page = opened(f"{SMALL}&accelerator.hbm_bandwidth=5e12")
    complete(page)
    page.locator("#take-what").select_option("best")
    page.locator("#take-text", has_text="estimate").wait_for()
    page.locator("#take-as").select_option("Python")
    names: dict = {}
    exec(page.locator("#take-text").inner_text().replace("print(est)", ""), names)
    assert f"{names['est'].step_seconds:.4g}s" == step(page)


def test_nothing_fits(opened):
    page = opened(UNFIT)
    explanation = tc.search("llama-3-70b", "perlmutter", 8, 512).explain()
    gpus, _ = explanation.fits_from
    page.get_by_role("button", name=f"{gpus} GPUs").wait_for()
    said = page.locator("#headline").inner_text()
    assert "Nothing fits" in said
    assert str(explanation.miss[0]) in said
    assert f"{explanation.miss[1].memory_bytes / 2**30:.3g} GiB" in said
    assert page.locator("#plans").is_hidden()
    assert page.get_by_role("status").inner_text().startswith("Nothing fits")
    page.get_by_role("button", name=f"{gpus} GPUs").click()
    page.locator(".step").wait_for()
    assert page.get_by_label("GPUs", exact=True).input_value() == str(gpus)


def test_problems_stand_beside_their_fields(opened):
    page = opened(SMALL, refused=True)
    page.get_by_label("GPUs", exact=True).fill("0")
    error = page.locator("[data-field=gpus] .error")
    error.wait_for()
    field = page.get_by_label("GPUs", exact=True)
    assert field.get_attribute("aria-invalid") == "true"
    assert field.get_attribute("aria-describedby") == error.get_attribute("id")
    assert page.locator("#trouble").inner_text()
    field.fill("64")
    error.wait_for(state="detached")
    assert page.locator("#trouble").inner_text() == ""


def test_a_wrong_address_is_told(opened):
    page = opened("?model=llama-3-9b&system=dgx-h100&gpus=64", refused=True)
    page.locator("[data-field=model] .error", has_text="llama-3-9b").wait_for()
    page.get_by_label("Model", exact=True).select_option("llama-3-8b")
    page.locator(".step").wait_for()
    assert not page.locator("#question .error").count()


def test_a_busy_server_is_asked_again(opened):
    page = opened(SMALL, refused=True)
    before, refusals = step(page), []

    def busy(route):
        refusals.append(1)
        told = {"error": {"message": "the server is busy", "problems": ["the server is busy"]}}
        route.fulfill(status=503, headers={"Retry-After": "0.2"}, json=told) if len(refusals) < 3 else route.continue_()

    page.route("**/api/search", busy)
    page.get_by_role("button", name="Half as many GPUs").click()
    page.locator("#trouble", has_text="the server is busy. Trying again").wait_for()
    page.wait_for_function("before => document.querySelector('.step strong').textContent !== before", arg=before)
    assert len(refusals) == 3
    assert page.locator("#trouble").inner_text() == ""


def test_the_latest_answer_wins(opened):
    page = opened(SMALL)
    wanted = found(gpus=32).best[1].step_seconds
    page.route("**/api/search", lambda route: None if route.request.post_data_json["gpus"] == 128 else route.continue_())  # never answered
    page.get_by_role("button", name="Twice as many GPUs").click()
    page.get_by_label("GPUs", exact=True).fill("32")
    page.wait_for_function("text => document.querySelector('.step strong').textContent === text", arg=f"{wanted:.4g}s")


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
    assert page.evaluate("() => getComputedStyle(document.querySelector('#busy'), '::after').animationName") == "none"


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_wider_than_the_screen(opened, width):
    page = opened(SMALL, viewport={"width": width, "height": 740})
    complete(page)
    for i in (0, 1):
        page.locator("#plans .pin").nth(i).click()
    page.locator("#compare table").wait_for()
    page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert page.locator("#bar").is_visible() == (width < 960)


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
    assert page.evaluate("() => document.activeElement.getAttribute('aria-pressed')") == "true"  # the focus stays
    page.locator("#space .point[tabindex='0']").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert "GiB" in page.locator("#space .tip").inner_text()
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
    wrong = page.evaluate(r"""() => {
        const named = (one) => one.ariaLabel || one.labels?.[0]?.textContent.trim() || one.textContent.trim() || one.getAttribute("aria-labelledby");
        const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
        const levels = [...document.querySelectorAll("h1, h2, h3")].filter((one) => one.checkVisibility()).map((one) => Number(one.tagName[1]));
        return {
            unnamed: [...document.querySelectorAll("input, select, textarea, button, a[href], [role=button], [role=region], [role=img], dialog, nav, form, section")].filter((one) => !named(one) && !one.closest("dialog form")).map((one) => one.outerHTML.slice(0, 80)),
            twice: ids.filter((id, i) => ids.indexOf(id) !== i),
            dangling: [...document.querySelectorAll("[aria-labelledby], [aria-describedby], label[for]")].flatMap((one) => (one.getAttribute("aria-labelledby") ?? one.getAttribute("aria-describedby") ?? one.htmlFor).split(" ")).filter((id) => !document.getElementById(id)),
            skipped: levels.filter((level, i) => i && level > levels[i - 1] + 1),
            unspoken: [...document.querySelectorAll("figure svg")].filter((one) => one.checkVisibility() && !one.ariaLabel).length,
            cells: [...document.querySelectorAll("table")].filter((one) => !one.caption || !one.querySelector("th[scope=row]")).length,
        };
    }""")
    assert wrong == {"unnamed": [], "twice": [], "dangling": [], "skipped": [], "unspoken": 0, "cells": 0}
    assert page.get_by_role("main").count() == page.get_by_role("heading", level=1).count() == page.get_by_role("banner").count() == 1
    assert page.get_by_role("status").inner_text().startswith("Best plan")
    page.locator("#memory details").click()
    assert page.locator("#memory table tbody tr").count() >= 1


def test_text_has_contrast(opened):
    """Ratios by WCAG 2.2: at least 4.5 of text to its ground."""
    ratio = r"""() => {
        const part = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
        const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        const light = (colour) => {
            canvas.fillStyle = colour;
            canvas.fillRect(0, 0, 1, 1);
            const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
            return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
        };
        const probe = document.body.appendChild(document.createElement("i"));
        const of = (name) => { probe.style.color = `var(--${name})`; return light(getComputedStyle(probe).color); };
        const pairs = [["ink", "ground"], ["soft", "ground"], ["soft", "raised"], ["accent", "ground"], ["accent", "raised"], ["bad", "bad-tint"], ["on-accent", "accent"], ["on-accent", "pin-a"], ["on-accent", "pin-b"]];
        const ratios = pairs.map(([a, b]) => [of(a), of(b)].sort((x, y) => y - x)).map(([x, y]) => (x + 0.05) / (y + 0.05));
        probe.remove();
        return pairs.map((pair, i) => [pair.join(" on "), ratios[i]]).filter(([, value]) => value < 4.5);
    }"""
    for scheme in ("light", "dark"):
        assert opened(SMALL, color_scheme=scheme).evaluate(ratio) == []


def test_table_and_figures_as_files(opened):
    page = opened(f"{SMALL}&tp=2")
    complete(page)
    with page.expect_download() as table:
        page.get_by_role("link", name="Download the table").click()
    rows = Path(table.value.path()).read_text().splitlines()
    assert len(rows) == 11
    assert rows[0].startswith("rank,strategy,tp")
    for name in ("time", "memory", "space", "scaling", "sensitivity"):
        with page.expect_download() as figure:
            page.locator(f"#{name} .save").click()
        root = ElementTree.parse(figure.value.path()).getroot()
        assert root.tag.endswith("svg")
        assert {"class", "style"}.isdisjoint({key for one in root.iter() for key in one.attrib})
        fills = {one.get("fill") for one in root.iter() if one.tag.endswith(("rect", "path", "circle"))}
        assert len(fills) >= 2
