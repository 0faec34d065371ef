"""Pieces of HTML, and reports: whatever a name holds, the page stays what it is."""

import pytest

import traincast as tc
from html_pages import read
from traincast.pages import estimates, searches
from traincast.pages.markup import Html, element, joined, linked
from traincast.pages.page import Page, write
from traincast.pages.parts import Section, table

HOSTILE = "</style><script>alert('$x^$')</script>\"' onload=& \x08#000000 url(#p) id=\"a\" {0} %s \\frac"


@pytest.fixture(scope="module")
def found():
    """A search whose model, system, accelerator, tiers and sources have hostile names."""
    model = tc.Model(name=HOSTILE, layers=4, hidden=512, heads=8, ffn=2048, seq=256, global_batch=16, sources={"layers": HOSTILE})
    chip = tc.Accelerator(name=HOSTILE, matrix_flops=1e14, vector_flops=1e13, hbm_bandwidth=1e12, hbm_bytes=8e9)
    tiers = (
        tc.Tier(name=HOSTILE, bandwidth=1e11, efficiency=0.7, latency=2.5e-6, size=4),
        tc.Tier(name="network", bandwidth=1e10, efficiency=0.7, latency=5e-6),
    )
    return tc.search(model, tc.System(name=HOSTILE, accelerator=chip, tiers=tiers, sources={"price": HOSTILE}), 8, strategy="1d")


def test_text_is_escaped_and_markup_is_not():
    assert element("p", "a < b & c", element("b", "d")) == "<p>a &lt; b &amp; c<b>d</b></p>"
    assert element("p", class_='x"y', aria_label="'", hidden=None) == '<p class="x&quot;y" aria-label="&#x27;"></p>'
    assert element("br") == "<br>"
    assert joined([Html("<i>"), "<i>"], between=" & ") == "<i> &amp; &lt;i&gt;"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see arXiv 2410.00273, table 1", 'see <a href="https://arxiv.org/abs/2410.00273">arXiv 2410.00273</a>, table 1'),
        ("at https://a.b/c?d=1&e (spec).", 'at <a href="https://a.b/c?d=1&amp;e">https://a.b/c?d=1&amp;e</a> (spec).'),
        ("javascript:alert(1) <b>", "javascript:alert(1) &lt;b&gt;"),
        ('https://x"onclick=1', '<a href="https://x">https://x</a>&quot;onclick=1'),
    ],
)
def test_addresses_become_links_and_nothing_else_does(text, shown):
    assert linked(text) == shown


def test_hostile_names_stay_text(found):
    plan, est = found.best
    for page in (searches.page(found), estimates.page(est)):
        read_page = read(page.document("traincast plan " + HOSTILE))
        assert "<script>alert(" in read_page.said["h1"][0]
        assert HOSTILE in read_page.said["pre"][-1]
        assert any("url(#p)" in text for text in read_page.said["text"]) or page.kind != "Training plan"  # titles of figures
    assert str(plan) in read_page.said["code"][0]


def test_a_long_table_says_how_much_of_it_is_shown():
    shown = table("Rows", ("a", "b"), ([i, i] for i in range(401)))
    assert "<caption>Rows (the first 400 of 401 rows)</caption>" in shown
    assert shown.count("<tr>") == 401  # a heading and 400 rows


def test_a_page_is_whole_or_not_there(tmp_path, monkeypatch):
    page = Page("Report", "Title", [], Html("<p>yes</p>"), (Section("one", "One", Html("<p>1</p>")),))
    (tmp_path / "page.html").write_text("before", encoding="utf-8")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(tc.InputError, match="SOURCE_DATE_EPOCH: 'yesterday': must be a time in seconds since 1970"):
        write(page, tmp_path / "page.html")
    assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == ["before"]


def test_an_idealised_time_is_said_to_be_one():
    est = tc.estimate("gpt3-1t", "h200-nvs8", tc.Plan(tp=8, pp=16, dp=16, fast_tp=8), gbs=4096)
    page = read(estimates.page(est).document())
    assert "that of an idealised machine" in page.said["main"][0]
    assert "arXiv 2410.00273" in page.said["a"]
    assert "pre" not in page.said  # no command line in Python


def test_columns_of_plans_make_no_report():
    est = tc.estimate("gpt3-1t", "h200-nvs8", tc.Plan(tp=8, pp=16, dp=16, fast_tp=8).columns(), gbs=4096)
    with pytest.raises(tc.InputError, match="columns of plans"):
        estimates.page(est)
