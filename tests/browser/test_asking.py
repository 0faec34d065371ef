"""Questions to the explorer in a real browser; expected numbers are computed by the library in Python."""

import json
import re
from pathlib import Path
from urllib.parse import parse_qs

import pytest

import traincast as tc
from browsing import SMALL, asked, choose, column, complete, found, label, query, settled, step, step_text
from traincast.catalog.load import load_accelerator
from traincast.core.nomenclature import COLUMNS
from traincast.planner.answers.lock_prices import lock_sentence

QWEN = Path(__file__).parents[1] / "data" / "hf" / "qwen2.5-7b.json"
UNFIT = "?model=llama-3-70b&system=perlmutter&gpus=8"  # 1.1 TB of weights and optimizer states on 8 × 40 GB


def test_the_answer_is_the_librarys(opened):
    page = opened(SMALL)
    best, est = found().best
    assert label(page) == str(best)
    assert step(page) == step_text(est.step_seconds)
    assert len(column(page, "#")) == 10
    low, high = est.interval
    assert f"{low:.2f} to {high:.2f} s" in page.locator("#headline").inner_text()
    complete(page)
    assert found().confidence in page.locator("#sure").inner_text()
    assert found().recommendation.reason in page.locator("#headline").inner_text()


def test_another_model(opened):
    page = opened(SMALL)
    choose(page, "Model", "llama-2-7b")
    page.wait_for_function(
        "() => document.querySelector('#model-facts').textContent"
        ".includes('32 layers, hidden 4,096, sequence 4,096')"
    )
    settled(page)
    gbs = page.locator("#global_batch").get_attribute("placeholder")
    assert label(page) == str(
        tc.search("llama-2-7b", "dgx-h100", gpus=64, gbs=int(gbs.replace(",", ""))).best[0]
    )
    assert query(page)["model"] == "llama-2-7b"


def test_a_slider_searches_again_while_the_old_drawing_stays(opened):
    page = opened(SMALL)
    before = label(page), page.locator("#plans-says").inner_text()
    page.evaluate("""() => {
        window.emptied = 0;
        const plot = document.querySelector("#time .plot");
        const count = () => { window.emptied += !plot.querySelector("svg"); };
        new MutationObserver(count).observe(plot, { childList: true });
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
    # what a process sees of it: the driver has its share
    visible = float(query(page)["accelerator.hbm_bytes"]) - load_accelerator("h100-sxm-80").driver_bytes
    assert f"{visible / 2**30:.3g} GiB" in page.locator("#memory .says").inner_text()
    assert page.evaluate("() => window.emptied") == 0
    page.get_by_role("button", name=re.compile("Reset memory capacity to 79.6 GiB")).click()
    settled(page)
    assert (label(page), page.locator("#plans-says").inner_text()) == before


def test_a_figure_can_be_typed_with_its_unit(opened):
    page = opened(SMALL)
    figure = page.locator(".slider:has([id='figure-network.1.bandwidth']) .value")
    figure.fill("800 Gb/s")
    figure.press("Enter")
    settled(page)
    assert query(page)["network.1.bandwidth"] == "800 Gb/s"
    page.wait_for_function(
        "() => document.getElementById('figure-network.1.bandwidth').parentElement.matches('.changed')"
    )
    assert not page.locator("#question .error").count()


def test_a_lock_has_its_price_and_none_is_left_without_one(opened):
    page = opened(f"{SMALL}&tp=8")
    price = page.locator("#lock-price")
    price.wait_for()
    assert price.inner_text() == lock_sentence(found(locks={"tp": 8}))
    page = opened(SMALL)
    complete(page)
    assert page.locator("#lock-price").is_hidden()


def test_a_lock_holds_a_knob(opened):
    page = opened(SMALL)
    page.locator("#locks-all > summary").click()
    page.get_by_label(re.compile(r"^tp:")).fill("8")
    page.get_by_label(re.compile(r"^tp:")).press("Enter")
    settled(page)
    assert set(column(page, "tp")) == {"8"}
    assert label(page) == str(found(locks={"tp": 8}).best[0])
    assert query(page)["tp"] == "8"
    assert page.locator("#locks-count").inner_text() == "1 locked"
    page.get_by_label(re.compile(r"^recompute:")).fill("full")
    page.get_by_label(re.compile(r"^recompute:")).press("Enter")
    settled(page)
    assert label(page) == str(found(locks={"tp": 8, "recompute": "full"}).best[0])


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
    page.wait_for_function(
        "() => document.querySelector('#model-facts').textContent.includes('28 layers, hidden 3,584')"
    )
    settled(page)
    model = tc.load_model(QWEN)
    gbs = int(page.locator("#global_batch").get_attribute("placeholder").replace(",", ""))
    best = str(tc.search(model, "dgx-h100", gpus=64, gbs=gbs).best[0])
    assert label(page) == best
    shared = opened(asked(page))  # the address holds the model itself
    assert label(shared) == best


def test_back_and_forward(opened):
    page = opened(SMALL)
    before = step(page)
    page.get_by_role("button", name="Twice as many GPUs").click()
    page.wait_for_function(
        "before => document.querySelector('.step strong').textContent !== before", arg=before
    )
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


def test_nothing_fits(opened):
    page = opened(UNFIT)
    explanation = tc.search("llama-3-70b", "perlmutter", gpus=8, gbs=512).explain()
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


def test_problems_appear_next_to_their_fields(opened):
    page = opened(SMALL, refused=True)
    page.get_by_label("GPUs", exact=True).fill("0")
    error = page.locator(".field:has(#gpus) .error")
    error.wait_for()
    field = page.get_by_label("GPUs", exact=True)
    assert field.get_attribute("aria-invalid") == "true"
    assert field.get_attribute("aria-describedby") == error.get_attribute("id")
    assert page.locator("#trouble").inner_text()
    field.fill("64")
    error.wait_for(state="detached")
    assert page.locator("#trouble").inner_text() == ""


def test_a_wrong_address_is_reported(opened):
    page = opened("?model=llama-3-9b&system=dgx-h100&gpus=64", refused=True)
    page.locator(".field:has(#model) .error", has_text="llama-3-9b").wait_for()
    assert "last answer" not in page.locator("#trouble").inner_text()  # there is none
    choose(page, "Model", "llama-3-8b")
    page.locator(".step").wait_for()
    assert not page.locator("#question .error").count()


def test_a_refused_search_is_not_announced_as_under_way(opened):
    page = opened(SMALL, refused=True)
    page.route(
        "**/api/search", lambda route: route.fulfill(status=422, content_type="application/json", body="{")
    )
    choose(page, "System", "dgx-a100")
    page.locator("#trouble", has_text="status 422").wait_for()
    page.wait_for_timeout(1200)  # longer than it takes until a search under way is announced
    assert page.locator("#status").inner_text() == ""


def test_the_machine_is_drawn_where_its_figures_come_after_the_page(opened):
    """A loaded server sends the page without them, and with an answer that it knows."""
    page = opened(SMALL)

    def without_figures(route):
        before, first, after = re.split(
            r'(?<=id="first">)(.*?)(?=</script>)', route.fetch().text(), maxsplit=1
        )
        content = json.loads(first)
        assert content["answer"] is not None
        body = before + json.dumps(content | {"system": None}).replace("<", "\\u003c") + after
        route.fulfill(body=body, content_type="text/html")

    page.route(re.compile(re.escape(SMALL) + "$"), without_figures)
    page.reload()
    settled(page)
    page.get_by_label("Memory capacity", exact=True).wait_for()


def test_no_slider_writes_the_figure_of_the_machine_before(opened):
    """A DGX B200 has 8 TB/s; until its figures are there the sliders are those of the H100, of 3.35 TB/s."""
    page = opened(SMALL)
    held = []
    page.route("**/api/system*", lambda route: held.append(route))
    slider = page.get_by_role("slider", name="Memory bandwidth")
    slider.focus()
    choose(page, "System", "dgx-b200")
    page.evaluate("() => document.querySelector('input[id=\"figure-accelerator.hbm_bandwidth\"]').focus()")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('#figures').inert", timeout=20000)
    assert not [name for name in query(page) if name.startswith("accelerator.")]
    assert page.locator("#figures-reset").is_disabled()
    held[0].continue_()
    page.wait_for_function("() => !document.querySelector('#figures').inert")
    settled(page)
    assert page.get_by_label("Memory bandwidth", exact=True).get_attribute("aria-valuetext").startswith("8")
    slider.focus()
    page.keyboard.press("ArrowRight")
    settled(page)
    assert 8e12 < float(query(page)["accelerator.hbm_bandwidth"]) < 8.5e12


def test_the_old_answer_is_dimmed_while_a_new_one_is_searched(opened):
    page = opened(SMALL)
    opacity = """() => ["#headline", "#plans", "#time"]
        .map((part) => getComputedStyle(document.querySelector(part)).opacity).join(" ")"""
    assert page.evaluate(opacity) == "1 1 1"
    held = []
    page.route("**/api/search", lambda route: held.append(route))
    page.get_by_label("GPUs", exact=True).fill("32")
    page.wait_for_function(f"() => ({opacity})() === '0.55 0.55 0.55'", timeout=20000)
    page.wait_for_function("() => document.querySelector('#bar').classList.contains('stale')")
    page.wait_for_timeout(500)  # an animation frame and the delay of a slow search
    held[0].continue_()
    page.unroute("**/api/search")
    settled(page)
    page.wait_for_function(f"() => ({opacity})() === '1 1 1'")


def test_a_cancelled_search_leaves_the_old_answer_dimmed(opened):
    page = opened(SMALL)
    page.route("**/api/search", lambda route: None)  # never answered
    page.get_by_label("GPUs", exact=True).fill("32")
    page.locator("#searching").get_by_role("button", name="Cancel").click()
    page.locator("#trouble", has_text="cancelled").wait_for()
    assert page.locator("#headline.stale").count() == 1


def test_requests_to_a_busy_server_are_repeated(opened):
    page = opened(SMALL, refused=True)
    before, refusals = step(page), []

    def busy(route):
        refusals.append(1)
        content = {"error": {"message": "the server is busy", "problems": ["the server is busy"]}}
        route.fulfill(status=503, headers={"Retry-After": "0.2"}, json=content) if len(
            refusals
        ) < 3 else route.continue_()

    page.route("**/api/search", busy)
    page.get_by_role("button", name="Half as many GPUs").click()
    page.locator("#trouble", has_text="the server is busy. Trying again").wait_for()
    page.wait_for_function(
        "before => document.querySelector('.step strong').textContent !== before", arg=before
    )
    assert len(refusals) == 3
    assert page.locator("#trouble").inner_text() == ""


def test_a_long_search_shows_its_progress_and_can_be_cancelled(opened):
    page = opened(SMALL)
    before = step(page)
    status = {"done": 1800, "total": 2400, "candidates": 1234567}
    page.route("**/api/search", lambda route: None)  # never answered
    page.route("**/api/progress", lambda route: route.fulfill(json=status))
    page.get_by_role("button", name="Twice as many GPUs").click()
    bar = page.get_by_role("progressbar", name="Search")
    page.locator("#searching", has_text="1,800 of 2,400 steps, 1,234,567 candidates").wait_for()
    assert bar.evaluate("bar => bar.position") == 0.75
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/api/search")):
        page.get_by_role("button", name="Cancel", exact=True).click()
    bar.wait_for(state="hidden")
    assert "The search was cancelled." in page.locator("#trouble").inner_text()
    assert step(page) == before  # the last answer stays
    page.unroute("**/api/search")
    page.get_by_role("button", name="Search again").click()
    page.wait_for_function(
        "before => document.querySelector('.step strong').textContent !== before", arg=before
    )
    assert page.locator("#trouble").inner_text() == ""


def test_progress_is_shown_after_half_a_second(opened):
    page = opened(SMALL)
    page.route("**/api/search", lambda route: None)  # never answered
    page.clock.install(time=0)
    page.clock.pause_at(10_000)
    page.get_by_role("button", name="Twice as many GPUs").click()
    shown = page.locator("#searching:not([hidden])")
    page.clock.run_for(400)
    assert not shown.count()
    page.clock.run_for(300)
    shown.wait_for(timeout=10_000)


@pytest.mark.parametrize(
    ("name", "words"), [("space", "Design space, reasons and scaling"), ("timeline", "Timeline")]
)
def test_what_follows_a_long_search_shows_its_progress_and_can_be_cancelled(opened, name, words):
    page = opened(SMALL)
    before = step(page)
    status = {"done": 3, "total": 4, "candidates": 5}
    page.route(f"**/api/{name}", lambda route: None)  # never answered
    page.route("**/api/progress", lambda route: route.fulfill(json=status))
    page.get_by_role("button", name="Twice as many GPUs").click()
    page.locator("#searching", has_text=f"{words} … 3 of 4 steps").wait_for()
    after = step(page)
    assert after != before  # the answer is there already
    with page.expect_event("requestfailed", lambda request: request.url.endswith(f"/api/{name}")):
        page.get_by_role("button", name="Cancel", exact=True).click()
    page.locator("#searching").wait_for(state="hidden")
    assert "The figures that follow the answer were cancelled." in page.locator("#trouble").inner_text()
    page.unroute(f"**/api/{name}")
    page.get_by_role("button", name="Search again").click()
    page.locator(f"#{name}:not(.stale)").wait_for()
    assert (step(page), page.locator("#trouble").inner_text()) == (after, "")


def test_a_search_of_machines_shows_its_progress_and_can_be_cancelled(opened):
    page = opened(SMALL)
    page.route("**/api/design", lambda route: None)  # never answered
    page.route(
        "**/api/progress", lambda route: route.fulfill(json={"done": 1, "total": 2, "candidates": 1234567})
    )
    page.get_by_role("button", name="Search machines").click()
    page.locator("#design-body", has_text="1,234,567 candidates").wait_for()
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/api/design")):
        page.locator("#design-body").get_by_role("button", name="Cancel").click()
    assert page.locator("#design-body").inner_text() == "Search machines"


def test_facts_of_another_model_are_not_shown_while_searching(opened):
    page = opened(SMALL)
    page.route("**/api/search", lambda route: None)  # never answered
    choose(page, "Model", "llama-2-7b")
    assert page.locator("#model-facts").inner_text() == "…"


def test_the_latest_answer_wins(opened):
    page = opened(SMALL)
    wanted = found(gpus=32).best[1].step_seconds
    page.route(
        "**/api/search",
        lambda route: None if route.request.post_data_json["gpus"] == 128 else route.continue_(),
    )  # never answered
    page.get_by_role("button", name="Twice as many GPUs").click()
    page.get_by_label("GPUs", exact=True).fill("32")
    page.wait_for_function(
        "text => document.querySelector('.step strong').textContent === text", arg=step_text(wanted)
    )


def test_a_newcomer_finds_examples_and_what_words_mean(opened):
    page = opened(SMALL)
    assert "how to split the training" in page.locator("#purpose").inner_text()
    addresses = [link.get_attribute("href") for link in page.locator("#examples a").all()]
    assert len(addresses) == 4
    for address in addresses:  # each is a question that the library knows
        asked_for = {name: values[0] for name, values in parse_qs(address[1:]).items()}
        tc.load_model(asked_for["model"]), tc.load_system(asked_for["system"])
    heads = page.locator("#plans thead th:not(:nth-child(-n+2))")
    assert all(heads.evaluate_all("heads => heads.map((head) => head.title)"))
    assert page.locator("#headline dt").evaluate_all("terms => terms.every((term) => term.title)")
    page.get_by_text("What the columns mean").click()
    words, meanings = (page.locator(f"#terms {tag}").all_inner_texts() for tag in ("dt", "dd"))
    assert meanings[words.index("pp")] == COLUMNS["pp"].meaning
    page.get_by_role("link", name="Does Llama 3.1 405B fit on 64?").click()
    page.locator("#headline", has_text="Nothing fits").wait_for()
    assert "llama-3.1-405b on 64 GPUs of dgx-h100, " in page.locator("#headline").inner_text()


def test_the_answer_comes_first_on_a_phone(opened):
    page = opened(SMALL, viewport={"width": 390, "height": 844})
    assert page.locator(".step strong").bounding_box()["y"] < 600
    assert page.get_by_label("GPUs", exact=True).is_hidden()
    page.get_by_text("Change the question").click()
    page.get_by_label("GPUs", exact=True).fill("32")
    page.wait_for_function("() => document.querySelector('#headline').textContent.includes('on 32 GPUs')")


def test_a_server_that_is_started_again_is_found(opened):
    page = opened(SMALL, refused=True)
    before, silences = step(page), []

    def silent(route):
        silences.append(1)
        route.abort() if len(silences) < 3 else route.continue_()

    page.route("**/api/search", silent)
    page.get_by_role("button", name="Half as many GPUs").click()
    page.locator("#trouble", has_text="still running? Trying again").wait_for()
    page.wait_for_function(
        "before => document.querySelector('.step strong').textContent !== before", arg=before
    )
    assert page.locator("#trouble").inner_text() == ""


def test_a_mistake_is_told_in_the_words_of_its_field(opened):
    page = opened(SMALL, refused=True)
    figure = page.locator(".slider:has([id='figure-network.1.bandwidth']) .value")
    figure.fill("-5")
    figure.press("Enter")
    error = page.locator(".slider:has([id='figure-network.1.bandwidth']) .error")
    assert error.inner_text() == "Not a finite number above 0; write for instance '400 Gb/s'"
    page.get_by_label("GPUs", exact=True).fill("0")
    assert page.locator(".field:has(#gpus) .error").inner_text() == "Must be a whole number of at least 1"


def test_a_machine_is_found_by_any_of_its_names(opened):
    page = opened(SMALL)
    box = page.get_by_role("combobox", name="System", exact=True)
    box.click()
    options = page.get_by_role("listbox", name="Systems").get_by_role("option")
    assert options.count() == len(tc.system_names())
    assert page.locator("#system-list .active").inner_text().startswith("dgx-h100")  # the list opens there
    h200 = page.locator("#system-list").get_by_role("group", name="H200", exact=True)
    of_chip = {
        name for name in tc.system_names() if tc.load_system(name).accelerator.name.startswith("H200 ")
    }
    listed = h200.locator(".choice").evaluate_all("all => all.map((one) => one.firstChild.textContent)")
    assert set(listed) == {name for name in of_chip if "-nvs" not in name}
    box.fill("a100")  # a name of the usual node, which stands beside 17 others of this GPU
    active = page.locator(f"#{box.get_attribute('aria-activedescendant')}")
    assert active.inner_text().startswith("dgx-a100\n")
    box.press("Escape")
    assert (box.input_value(), options.count()) == ("dgx-h100", 0)
    box.fill("p5.48xlarge")  # that of a cloud
    box.press("ArrowDown")
    box.press("Enter")
    settled(page)
    assert query(page)["system"] == "aws-p5"
    assert label(page) == str(found(system="aws-p5").best[0])


def test_a_model_is_found_by_words_and_asked_for_as_typed_where_no_list_has_it(opened):
    page = opened(SMALL, refused=True)
    box = page.get_by_role("combobox", name="Model", exact=True)
    box.fill("qwen3 vl")
    names = page.locator("#model-list .choice").evaluate_all(
        "all => all.map((one) => one.firstChild.textContent)"
    )
    assert names == [name for name in tc.model_names(aliases=False) if name.startswith("qwen3-vl")]
    page.mouse.click(5, 5)  # nothing was taken
    assert box.input_value() == "llama-3-8b"
    box.fill("llama-3-9b")
    assert "Nothing in the list" in page.locator("#model-list").inner_text()
    box.press("Enter")
    page.locator(".field:has(#model) .error", has_text="llama-3-9b").wait_for()
    choose(page, "Model", "Llama 3 8B")
    settled(page)
    assert not page.locator("#question .error").count()
    assert query(page)["model"] == "llama-3-8b"


def test_a_framework_is_found_by_the_programs_that_run_its_plans(opened):
    page = opened(SMALL)
    for program in ("trl", "axolotl"):
        choose(page, "Framework", program)
        assert query(page)["framework"] == "huggingface"
        choose(page, "Framework", "")  # what it was
        assert "framework" not in query(page)
    settled(page)
    assert page.get_by_label("Framework", exact=True).get_attribute("placeholder") == "default: megatron"


def test_fine_tuning_is_chosen(opened):
    """The form asks what `--train` says."""
    page = opened(SMALL)
    page.locator("#tuning > summary").click()
    rank, layers = page.get_by_label("Rank of the adapters"), page.get_by_label("Layers with adapters")
    assert not rank.is_visible()
    train = page.get_by_label("Train", exact=True)
    train.select_option(label="DPO with LoRA")
    assert query(page)["train"] == "dpo+lora"
    rank.fill("64")
    rank.press("Enter")
    layers.fill("q+v")
    layers.press("Enter")
    settled(page)
    assert query(page)["train"] == "dpo+lora:r=64,targets=q+v"
    complete(page)
    command = page.locator("#take-text", has_text="--train dpo+lora:r=64,targets=q+v")
    command.wait_for()
    said = page.locator("#headline").inner_text()
    assert "64 sequences, 32 pairs of a chosen and a rejected answer, of 1,024 tokens a step" in said
    assert "Assumed for fine-tuning: 64 sequences a step, 1,024 tokens a sequence" in said
    train.select_option(label="SFT, supervised fine-tuning")
    settled(page)
    assert query(page)["train"] == "sft"
    assert not layers.is_visible()
    train.select_option(label="Pretraining")
    settled(page)
    assert "train" not in query(page)
    assert label(page) == str(found().best[0])


def test_an_address_fills_the_controls_of_fine_tuning(opened):
    page = opened(f"{SMALL}&global_batch=64&train=qlora:r=8,targets=q%2Bv,base=int8")
    page.locator("#tuning > summary").click()
    assert page.get_by_label("Train", exact=True).input_value() == "qlora"
    assert page.get_by_label("Rank of the adapters").input_value() == "8"
    assert page.get_by_label("Layers with adapters").input_value() == "q+v"
    assert page.locator("#adapters-more").inner_text() == "And base=int8"
    page.get_by_label("Rank of the adapters").fill("4")
    page.get_by_label("Rank of the adapters").press("Enter")
    settled(page)
    assert query(page)["train"] == "qlora:r=4,targets=q+v,base=int8"


def test_nothing_fits_for_the_reason_that_the_command_line_gives_and_leaves_no_older_figure(opened):
    page = opened("?model=llama-3-8b&system=dgx-h100&gpus=32")
    complete(page)
    assert page.locator("#scaling").is_visible()
    page.locator("#locks-all > summary").click()
    tp = page.get_by_label(re.compile(r"^tp:"))
    tp.fill("7")
    tp.press("Enter")
    page.locator("#headline", has_text="Nothing fits").wait_for()
    explanation = found(gpus=32, locks={"tp": 7}).explain()
    head, reason = explanation.to_dict()["text"][:2]
    said = page.locator("#headline").inner_text()
    assert "No plan uses exactly 32 GPUs with tp = 7: tp = 7 does not divide 32 GPUs." in said
    assert "no plan uses exactly so many GPUs with tp = 7" in head
    assert reason.strip() == "tp = 7 does not divide 32 GPUs"
    page.locator("#lock-price", has_text="without it: ").wait_for()
    assert page.locator("#miss li").count() == 0  # which would say both once more
    for figure in ("time", "memory", "space", "scaling", "sensitivity", "timeline"):
        assert page.locator(f"#{figure}").is_hidden(), figure
    places = [page.locator(part).bounding_box() for part in ("#headline", "#design")]
    assert places[1]["y"] < places[0]["y"] + places[0]["height"] + 100  # and no hole where they were
    tp.fill("8")
    tp.press("Enter")
    page.locator(".step").wait_for()
    page.locator("#sensitivity:not(.stale) svg").wait_for()


def test_figures_whose_question_is_refused_do_not_stay(opened):
    page = opened(SMALL, refused=True)
    complete(page)
    refusal = {"error": {"message": "no", "problems": ["no"]}}
    for name in ("scaling", "explain"):
        page.route(f"**/api/{name}", lambda route: route.fulfill(status=422, json=refusal))
    page.get_by_label("GPUs", exact=True).fill("32")
    page.locator("#scaling").wait_for(state="hidden")
    page.locator("#sensitivity").wait_for(state="hidden")
