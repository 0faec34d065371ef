"""The explorer as tests see it: what is drawn, and when."""

from urllib.parse import parse_qs, urlsplit

import traincast as tc

SMALL = "?model=llama-3-8b&system=dgx-h100&gpus=64"  # quickly searched


def found(**changed):
    """What the library finds for `SMALL`, some of it changed."""
    question = {"model": "llama-3-8b", "system": "dgx-h100", "gpus": 64, "gbs": 512}
    return tc.search(**question | changed)


def settled(page):
    """Wait until the answer to what was asked last is drawn."""
    page.wait_for_function(
        "() => document.querySelector('#locks .field') && document.querySelector('#main').ariaBusy !== 'true'"
    )


def choose(page, field, name):
    """Type a name in a field that searches, and take what it finds."""
    box = page.get_by_role("combobox", name=field, exact=True)
    box.fill(name)
    box.press("Enter")


def complete(page):
    """Wait until the slower figures are drawn as well."""
    page.wait_for_function("() => performance.getEntriesByName('complete').length > 0")


def step(page):
    """Step time of the best plan, as it stands in the headline."""
    return page.locator(".step strong").inner_text().replace("\n", "")


def step_text(seconds):
    """A step time as the headline writes it: with four digits, zeros at the end as well."""
    return f"{seconds:#.4g}s"


def label(page):
    """The best plan, as it stands in the headline."""
    return page.locator("#headline .label").inner_text()


def column(page, name):
    """A column of the ranked plans."""
    heads = page.locator("#plans thead th").all_inner_texts()
    return page.locator(
        f"#plans tbody tr:not(:has(> .knobs)) > :nth-child({heads.index(name) + 1})"
    ).all_inner_texts()


def asked(page):
    """The query of the address."""
    return f"?{urlsplit(page.url).query}"


def query(page):
    """The query of the address, by key."""
    return {key: values[0] for key, values in parse_qs(asked(page)[1:]).items()}
