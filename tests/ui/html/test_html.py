"""HTML reports and their elements: hostile names stay text."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from markupsafe import Markup

import traincast as tc
from html_pages import Page as Reader
from html_pages import read
from traincast.catalog import disk_cache, software_stacks
from traincast.core.units import seconds
from traincast.ui.html import notebook, plan_report, search_report, sources
from traincast.ui.html.notebook import RESULT_MODULES, register
from traincast.ui.html.notebook_cards import CARDS, card
from traincast.ui.html.rendering import Bar, Page, Table, environment, link_addresses, write_page

HOSTILE = "</style><script>alert('$x^$')</script>\"' onload=& \x08#000000 url(#p) id=\"a\" {0} %s \\frac"


@pytest.fixture(scope="module")
def found():
    """A search whose model, system, accelerator, tiers and sources have hostile names."""
    model = tc.Model(
        name=HOSTILE,
        layers=4,
        hidden=512,
        heads=8,
        ffn=2048,
        seq=256,
        global_batch=16,
        sources={"layers": HOSTILE},
    )
    chip = tc.Accelerator(
        name=HOSTILE, matrix_flops=1e14, vector_flops=1e13, hbm_bandwidth=1e12, hbm_bytes=8e9
    )
    tiers = (
        tc.Tier(name=HOSTILE, bandwidth=1e11, efficiency=0.7, latency=2.5e-6, size=4),
        tc.Tier(name="network", bandwidth=1e10, efficiency=0.7, latency=5e-6),
    )
    return tc.search(
        model,
        tc.System(name=HOSTILE, accelerator=chip, tiers=tiers, sources={"price": HOSTILE}),
        gpus=8,
        strategy="1d",
    )


def test_text_is_escaped_and_markup_is_not():
    macros = environment().globals
    escaped = "&lt;a href=&#34;&amp;&#34;&gt;&#39;"
    rows = [('<a href="&">\'', Markup("<b>d</b>"), Bar(0.25))]
    shown = macros["table"](Table('<a href="&">\'', ('<a href="&">\'', "b", "c"), rows))
    assert f'aria-label="{escaped}"' in shown
    assert f"<caption>{escaped}</caption>" in shown
    assert f'<th scope="col" class="words">{escaped}</th>' in shown
    assert f'<th scope="row" class="words">{escaped}</th>' in shown
    assert "<td><b>d</b></td>" in shown
    assert '<td><span class="bar" style="width:25.00%"></span></td>' in shown
    assert f"<li>{escaped}</li>" in macros["bullets"](['<a href="&">\''])
    assert f"<dt>{escaped}</dt><dd>{escaped}</dd>" in macros["pairs"]([('<a href="&">\'', '<a href="&">\'')])
    tile = macros["tiles"]([("<", ">", "&")])
    assert '<div><dt>&lt;</dt><dd>&gt;</dd><dd class="note">&amp;</dd></div>' in tile


def test_templates_mark_nothing_as_safe_but_an_attribute():
    """Autoescaping holds for all: no template turns it off for a value."""
    templates = Path(search_report.__file__).with_name("templates")
    for path in templates.glob("*.jinja"):
        text = path.read_text(encoding="utf-8")
        assert "autoescape" not in text
        assert all("' class=\"beside\"' | safe" in line for line in text.splitlines() if "safe" in line)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "see arXiv 2410.00273, table 1",
            'see <a href="https://arxiv.org/abs/2410.00273">arXiv 2410.00273</a>, table 1',
        ),
        (
            "at https://a.b/c?d=1&e (spec).",
            'at <a href="https://a.b/c?d=1&amp;e">https://a.b/c?d=1&amp;e</a> (spec).',
        ),
        ("javascript:alert(1) <b>", "javascript:alert(1) &lt;b&gt;"),
        ('https://x"onclick=1', '<a href="https://x">https://x</a>&#34;onclick=1'),
    ],
)
def test_addresses_become_links_and_nothing_else_does(text, shown):
    assert link_addresses(text) == shown


def test_hostile_names_stay_text(found):
    plan, est = found.best
    for page in (search_report.page(found), plan_report.page(est)):
        read_page = read(page.document("traincast plan " + HOSTILE))
        assert "<script>alert(" in read_page.said["h1"][0]
        assert HOSTILE in read_page.said["pre"][-1]
        assert (
            any("url(#p)" in text for text in read_page.said["text"]) or page.kind != "Training plan"
        )  # titles of figures
    assert str(plan) in read_page.said["code"][0]


def test_a_long_table_says_how_much_of_it_is_shown():
    shown = environment().globals["table"](Table("Rows", ("a", "b"), [(i, i) for i in range(401)]))
    assert "<caption>Rows (the first 400 of 401 rows)</caption>" in shown
    assert shown.count("<tr>") == 401  # a heading and 400 rows


def test_a_page_is_whole_or_not_there(tmp_path, monkeypatch):
    page = Page("Report", "Title", [], "page.html.jinja")
    (tmp_path / "page.html").write_text("before", encoding="utf-8")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(
        tc.InputError, match="SOURCE_DATE_EPOCH: 'yesterday': must be a time in seconds since 1970"
    ):
        write_page(page, tmp_path / "page.html")
    assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == ["before"]


def test_an_idealised_time_is_said_to_be_one():
    est = tc.estimate("gpt3-1t", "h200-nvs8", tc.Plan(tp=8, pp=16, dp=16, fast_tp=8), gbs=4096)
    page = read(plan_report.page(est).document())
    assert "that of an idealised machine" in page.said["main"][0]
    assert "arXiv 2410.00273" in page.said["a"]
    assert "pre" not in page.said  # no command line in Python


def test_columns_of_plans_make_no_report():
    est = tc.estimate("gpt3-1t", "h200-nvs8", tc.Plan(tp=8, pp=16, dp=16, fast_tp=8).columns(), gbs=4096)
    with pytest.raises(tc.InputError, match="must be an Estimate of one plan"):
        plan_report.page(est)


@pytest.fixture(scope="module")
def results():
    """One result of every kind that has a card, each with a figure that its card shows."""
    est = tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(tp=2, dp=8), gbs=64)
    sweep = tc.study(models=["gpt3-175b"], systems=["h200-nvs8"], gpus=[64, 8], strategies=["1d"], gbs=64)
    runs = Path(__file__).parents[3] / "examples" / "my_cluster" / "runs.csv"
    judged, limits = tc.validate(runs), tc.limits("h100-sxm-80")
    zero = tc.scaling("gpt-13b", "polaris", [8, 64], [2])[1][0]
    fitted = tc.calibrate("dgx-h100", runs=[runs])
    return {
        "Estimate": (est, seconds(est.step_seconds)),
        "Metrics": (tc.metrics(est), f"{tc.metrics(est).mfu['palm']:.1%}"),
        "Results": (sweep, seconds(sweep.frame["step_seconds"].max())),
        "Report": (judged, f"{judged.totals[0].mape:.1%}"),
        "Limits": (limits, seconds(limits.clusters.seconds[0])),
        "Scaling": (zero, seconds(zero.rows()[0].iteration_seconds)),
        "Advice": (tc.advise(est), tc.advise(est).rules[0].here),
        "Calibration": (fitted, f"{fitted.errors['after']:.1%}"),
    }


def test_results_show_themselves_in_notebooks(results, found):
    """Well-formed pieces without anything from outside, under one class that their style is held to."""
    shown = {name: (card(result), figure) for name, (result, figure) in results.items()}
    shown["Found"] = card(found), seconds(found.best[1].step_seconds)
    assert set(shown) == set(CARDS)
    for text, figure in shown.values():
        piece = Reader(text)
        assert piece.problems == []
        assert any(figure in text for tag in ("td", "p", "li", "caption") for text in piece.said.get(tag, []))
        assert piece.of("div")[0] == {"class": "traincast"}
        assert all(line.startswith((".traincast", "}")) for line in piece.said["style"][0].splitlines())
        assert not re.search(r"https?:|<script", text)
        assert "url(" not in piece.said["style"][0]
    assert "&lt;script&gt;" in shown["Found"][0]


def test_notebooks_know_every_card(results):
    """By the names of classes and modules, which IPython compares."""
    assert set(RESULT_MODULES) == set(CARDS)
    for name, home in RESULT_MODULES.items():
        assert getattr(import_module(home), name).__module__ == home
    formatters = pytest.importorskip("IPython.core.formatters")
    html = formatters.HTMLFormatter()
    register(html)
    for result, _ in results.values():
        assert html(result) == card(result) is not None


def test_cards_are_registered_where_ipython_runs():
    """On import, and without importing what makes them."""
    pytest.importorskip("IPython")
    code = (
        "import sys; from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "import traincast\n"
        "print(shell.display_formatter.formatters['text/html'].lookup_by_type('traincast.step.estimates.Estimate').__module__)\n"
        "assert 'traincast.ui.html.notebook_cards' not in sys.modules"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip().endswith("traincast.ui.html.notebook")


def test_columns_of_plans_have_no_card():
    plans = tc.Plans(tp=8.0, pp=np.array([16.0, 32.0]), dp=np.array([16.0, 8.0]), mbs=1.0, fast_tp=8.0)
    est = tc.estimate("gpt3-1t", "h200-nvs8", plans, gbs=4096)
    assert card(est) is None
    assert card(tc.metrics(est)) is None


def test_reports_from_python(found, tmp_path):
    tc.write_html(found, tmp_path / "found.html")
    assert "Training plan" in read((tmp_path / "found.html").read_text(encoding="utf-8")).said["p"]
    with pytest.raises(tc.InputError, match="force=True"):
        tc.write_html(found, tmp_path / "found.html")
    with pytest.raises(tc.InputError, match="must be a Found, an Estimate, Results or a Report"):
        tc.write_html(found.model, tmp_path / "model.html")


def test_without_jinja2_a_report_is_refused_and_a_card_is_text(found, tmp_path, monkeypatch):
    has = "traincast.ui.html.libraries.find_spec"
    monkeypatch.setattr(has, lambda name: None if name == "jinja2" else name)
    with pytest.raises(tc.InputError, match=r"needs jinja2: pip install 'traincast\[html\]'"):
        tc.write_html(found, tmp_path / "found.html")
    monkeypatch.setitem(sys.modules, "traincast.ui.html.notebook_cards", None)
    assert notebook._card(found) is None


def test_sources_of_a_report_are_parsed_once(tmp_path, monkeypatch):
    """The catalogue's files of a stack are not read again where a process has read them before."""
    monkeypatch.setattr(disk_cache, "_folder", lambda: tmp_path)
    assumed = software_stacks.Stack("megatron-core-2025").assumptions
    first = sources.assumptions(assumed)
    monkeypatch.setattr(software_stacks, "calibrated_file", None)
    assert sources.assumptions(assumed) == first
    assert any("megatron-core-2025" in row[-1] for row in first.figures.rows)
