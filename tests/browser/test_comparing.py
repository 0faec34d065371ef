"""Two plans side by side, and exports: commands, Python, the table, figures."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import traincast as tc
from browsing import SMALL, asked, complete, found, label, step, step_text


def test_a_measured_step_is_set_against_the_plan_shown(opened):
    """Twice the time of the recommended plan, as a time and as half of its MFU."""
    page = opened(SMALL)
    best = found().recommended[1]
    page.get_by_label("Time of a step [s]").fill(str(2 * best.step_seconds))
    page.locator("#measured button").click()
    body = page.locator("#measured-body")
    body.locator("table").first.wait_for()
    said = body.inner_text().replace("\xa0", " ")
    assert said.startswith("100.0% slower than the ")
    assert "slow GPU" in said
    page.get_by_label("or MFU [%]").fill("0.1")
    assert page.get_by_label("Time of a step [s]").input_value() == ""
    page.locator("#measured button").click()
    page.wait_for_function("() => /times/.test(document.querySelector('#measured-body p')?.textContent)")


def test_two_plans_side_by_side(opened):
    page = opened(SMALL)
    result = found()
    first, fifth = (result.answer(result.families[i].plan)[1] for i in (0, 4))
    for i in (0, 4):
        page.locator("#plans .pin").nth(i).click()
    table = page.locator("#compare table")
    table.wait_for()
    assert [head.inner_text() for head in page.locator("#compare .heads .mono").all()] == [
        str(first.plan),
        str(fifth.plan),
    ]
    knobs = table.locator("th.mono")
    assert any(name.startswith("fast_") for name in knobs.all_inner_texts())
    assert all(knobs.evaluate_all("heads => heads.map((head) => head.title)"))
    cells = table.locator("tr", has_text="GiB").locator("td").all_inner_texts()
    assert [float(cell.split("/")[0]) for cell in cells[:2]] == [
        pytest.approx(est.memory_bytes / 2**30, abs=0.05) for est in (first, fifth)
    ]
    slower, faster = "BA" if fifth.step_seconds > first.step_seconds else "AB"
    ratio = max(fifth.step_seconds, first.step_seconds) / min(fifth.step_seconds, first.step_seconds) - 1
    said = page.locator("#compare .says").inner_text().replace("\xa0", " ")
    assert said.startswith(f"{slower} takes {100 * ratio:.1f}% longer than {faster}, within its error of ")
    assert page.locator("#space .letter").all_text_contents() == ["★", "A", "B"]
    page.get_by_role("button", name="Pinned plan B").click()
    assert f"{fifth.step_seconds:.4g}".rstrip("0") in page.locator("#time .says").inner_text()
    shared = opened(asked(page))
    shared.locator("#compare table").wait_for()
    assert shared.locator("#compare-body").inner_text() == page.locator("#compare-body").inner_text()
    assert shared.get_by_role("button", name="Pinned plan B").get_attribute("aria-pressed") == "true"
    page.locator("#plans .pin").nth(2).click()  # a third: the oldest goes
    page.wait_for_function("() => document.querySelectorAll('#plans .pin[aria-pressed=true]').length === 2")
    assert [pin.get_attribute("aria-pressed") for pin in page.locator("#plans .pin").all()[:5]] == [
        "false",
        "false",
        "true",
        "false",
        "true",
    ]


def test_a_pinned_plan_of_another_size_is_marked(opened):
    page = opened(f"{SMALL}&pin=dp-64&pin=tp-2+dp-16")
    heads = page.locator("#compare .heads > div")
    heads.nth(1).locator(".error").wait_for()
    assert heads.nth(1).locator(".error").inner_text() == "on 32 GPUs, not 64"
    assert not heads.nth(0).locator(".error").count()


def test_the_command_finds_the_first_plan(opened):
    page = opened(f"{SMALL}&tp=2&seq=4096")
    complete(page)
    page.get_by_role("button", name="Copy", exact=True).click()
    command = shlex.split(page.evaluate("() => navigator.clipboard.readText()"))
    assert command[:2] == ["traincast", "plan"]
    ran = subprocess.run(
        [sys.executable, "-m", *command, "--json"], capture_output=True, text=True, check=True
    )
    content = json.loads(ran.stdout)
    assert content["seq"] == 4096
    assert step_text(content["plans"][0]["step_seconds"]) == step(page)
    assert str(tc.Plan(**content["plans"][0]["plan"])) == label(page)


def test_python_finds_the_first_plan(opened):
    page = opened(f"{SMALL}&accelerator.hbm_bandwidth=5e12")
    complete(page)
    page.locator("#take-what").select_option("best")
    page.locator("#take-text", has_text="estimate").wait_for()
    page.locator("#take-as").select_option("Python")
    names: dict = {}
    exec(page.locator("#take-text").inner_text().replace("print(est)", ""), names)
    assert step_text(names["est"].step_seconds) == step(page)


def test_table_and_figures_as_files(opened):
    page = opened(f"{SMALL}&tp=2")
    complete(page)
    with page.expect_download() as table:
        page.get_by_role("link", name="Download the table").click()
    rows = Path(table.value.path()).read_text().splitlines()
    assert len(rows) == 11
    assert rows[0].startswith("rank,strategy,tp")
    for name in ("time", "memory", "space", "scaling", "sensitivity", "timeline"):
        with page.expect_download() as figure:
            page.locator(f"#{name} .save").click()
        root = ElementTree.parse(figure.value.path()).getroot()
        assert root.tag.endswith("svg")
        assert {"class", "style"}.isdisjoint({key for element in root.iter() for key in element.attrib})
        fills = {shape.get("fill") for shape in root.iter() if shape.tag.endswith(("rect", "path", "circle"))}
        assert len(fills) >= 2
        key = page.locator(f"#{name} .legend li").all_inner_texts()
        texts = {text.text: text.get("text-anchor") for text in root.iter("{http://www.w3.org/2000/svg}text")}
        assert all(texts.get(words) == "start" for words in key)


def test_the_timeline_is_the_traces(opened):
    page = opened(f"{SMALL}&pp=4&tp=2")
    complete(page)
    trace = tc.trace(found(locks={"pp": 4, "tp": 2}).best[1])
    assert f"4 devices, {trace.microbatches} micro-batches" in page.locator("#timeline .says").inner_text()
    page.locator("#timeline details").click()
    row = page.locator("#timeline tbody tr").first
    row.wait_for()
    cells = row.locator("td").all_inner_texts()
    expected = [seconds for seconds in trace.totals_of(0).values() if seconds > 1e-4 * trace.step_seconds]
    assert [float(cell) for cell in cells] == pytest.approx(expected, rel=5e-3)
    lane = page.locator("#timeline svg").bounding_box()
    page.mouse.move(lane["x"] + 60, lane["y"] + 8)
    assert re.match(r"forward of micro-batch \d+\nstage 0, ", page.locator("#timeline .tip").inner_text())
    page.get_by_role("button", name="4×").click()
    assert page.locator("#timeline svg").bounding_box()["width"] > 3 * lane["width"]


def test_flags_of_a_framework(opened):
    page = opened(f"{SMALL}&tp=2&pp=2")
    complete(page)
    page.locator("#take-what").select_option("best")
    page.locator("#take-as option[value='launch: megatron']").wait_for(state="attached")
    page.locator("#take-as").select_option("launch: megatron")
    text = page.locator("#take-text").inner_text()
    assert re.search(r"--tensor-model-parallel-size[ =]2\b", text)
    assert re.search(r"--pipeline-model-parallel-size[ =]2\b", text)
    page.locator("#take-as").select_option("launch: accelerate")
    assert page.locator("#take-unsaid").inner_text() == "FSDP2 alone runs no pipeline (pp = 2)"
    assert page.locator("#take-text").is_hidden()
    assert page.get_by_role("button", name="Copy", exact=True).is_disabled()


def test_a_zoomed_timeline_prints_at_its_whole_width(opened):
    page = opened(f"{SMALL}&pp=4&tp=2")
    complete(page)
    page.get_by_role("button", name="16×").click()
    drawing = page.locator("#timeline svg")
    shown = drawing.bounding_box()
    page.emulate_media(media="print")
    page.wait_for_function("() => document.querySelector('#timeline svg').clientHeight > 60", timeout=20000)
    printed = drawing.bounding_box()
    assert printed["width"] <= page.viewport_size["width"]
    assert printed["height"] > 0.5 * shown["height"]
    page.emulate_media(media="screen")
    page.wait_for_function(
        "width => document.querySelector('#timeline svg').clientWidth === width",
        arg=round(shown["width"]),
        timeout=20000,
    )
