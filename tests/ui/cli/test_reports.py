"""Reports on the command line: `--html` on the commands that take it."""

import json
import re

import polars as pl

from html_pages import read
from traincast.core.units import gib, rate_text, seconds
from traincast.core.version import __version__

PLAN = "plan llama-3-8b --system dgx-h100 --gpus 16 --gbs 64 --strategy 1d --top 3"
ESTIMATE = "estimate llama-3-8b --system dgx-h100 --tp 2 --pp 2 --dp 4 --gbs 64"


def test_a_plan_as_a_report(run, tmp_path):
    """The summary says what --json says, the sections what was asked, what else was tried and what it all
    rests on."""
    path = tmp_path / "plan.html"
    code, out, err = run(f"{PLAN} --html {path} --json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer["html"] == str(path)
    page = read(path.read_text(encoding="utf-8"))
    best = answer["plans"][0]
    tiles = page.tiles()
    assert tiles["Time of a step"] == seconds(best["step_seconds"])
    assert tiles["Memory of a GPU"] == gib(best["memory_bytes"])
    assert tiles["Throughput of a GPU"] == f"{best['tokens_per_second_per_gpu']:,.0f} token/s"
    assert tiles["Utilisation (MFU)"] == f"{best['metrics']['mfu']['megatron']:.1%}"
    assert tiles["The whole run"] == f"{best['metrics']['days']:,.0f} days"
    assert tiles["Its price"] == f"${rate_text(best['metrics']['cost'], '')}".strip()
    assert tiles["Its electricity"] == rate_text(best["metrics"]["energy_kwh"] * 1000, "Wh")
    text = " ".join(page.said["body"][0].split())
    for parts, form in (("breakdown_seconds", seconds), ("memory_by_component_bytes", gib)):
        assert all(form(value) in text for value in best[parts].values() if value)
    assert all(f"{count:,}" in text for count in answer["rejected"].values())
    assert f"90%: {seconds(best['step_seconds_low'])} to {seconds(best['step_seconds_high'])}" in text
    assert f"traincast {__version__}" in text
    assert f"traincast {PLAN} --html {path} --json" in page.said["pre"]
    assert [figure["id"] for figure in page.of("figure")] == [
        "pareto-figure",
        "time-figure",
        "tornado-figure",
        "memory-figure",
        "stages-figure",
    ]
    assert (
        "NVIDIA DGX H100 data sheet: 10.2 kW for 8 GPUs (spec)" in page.said["td"]
    )  # source of the catalogue's node_power
    assert any(
        "dispatch_seconds" in cell for cell in page.said["th"]
    )  # the last assumptions are there as well


def test_a_held_knob_is_priced_in_report_text_and_json(run, tmp_path):
    path = tmp_path / "plan.html"
    held = f"{PLAN} --tp 8"
    said = " ".join(run(f"{held} --html {path}").out.split())
    answer = json.loads(run(f"{held} --json").out)
    (price,) = answer["lock_prices"]
    free = json.loads(run(f"{PLAN} --json").out)
    assert free["lock_prices"] == []
    assert price["recommended"]["plan"] == free["recommended"]["plan"]
    cost = answer["recommended"]["step_seconds"] - free["recommended"]["step_seconds"]
    assert (price["locks"], price["cost_seconds"]) == ({"tp": 8}, cost)
    sentence = f"tp=8 costs {seconds(cost)} a step ("
    without = f"without it: {seconds(free['recommended']['step_seconds'])} with "
    text = " ".join(read(path.read_text(encoding="utf-8")).said["body"][0].split())
    for where in (said, text):
        assert sentence in where
        assert without in where
    assert "; by you: tp=8." in " ".join(answer["explanation"]["text"])
    assert "Without tp=8: " in text


def test_a_report_is_repeatable_and_never_overwrites(run, tmp_path, monkeypatch):
    """With a date given (reproducible-builds.org) the same bytes; 1767225600 is the first of January 2026."""
    path = tmp_path / "estimate.html"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    code, out, _ = run(f"{ESTIMATE} --html {path}")
    assert code == 0
    assert out.splitlines()[-1] == str(path)
    first = path.read_bytes()
    page = read(first.decode())
    assert {"datetime": "2026-01-01"} in page.of("time")
    code, _, err = run(f"{ESTIMATE} --html {path}")
    assert code == 2
    assert "--force overwrites it" in err
    assert run(f"{ESTIMATE} --html {path} --force")[0] == 0
    assert path.read_bytes().replace(b" --force", b"") == first
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_fits_and_the_report_says_so(run, tmp_path):
    path = tmp_path / "none.html"
    code, out, err = run(f"plan llama-3-70b --system dgx-h100 --gpus 8 --gbs 64 --strategy 1d --html {path}")
    assert code == 1
    assert out.strip() == str(path)
    page = read(path.read_text(encoding="utf-8"))
    text = " ".join(page.said["body"][0].split())
    assert "fits in memory. The nearest miss:" in text
    nearest = err.splitlines()[3].strip()  # "needs … of …; … more HBM would make it fit"
    assert nearest.startswith("needs")
    assert nearest in text
    assert [figure["id"] for figure in page.of("figure")] == ["memory-figure"]
    needed, there = re.search(r"needs ([\d.]+ GiB) of ([\d.]+ GiB)", err).groups()
    assert f"shares of the {needed} it needs; {there} are there" in text


def test_mistakes_are_reported_at_once_and_before_any_work(run, tmp_path):
    code, out, err = run(f"plan no-such-model --system dgx-h100 --gpus 8 --html {tmp_path / 'report.txt'}")
    assert (code, out) == (2, "")
    assert "must be one of .html" in err
    assert "no-such-model" in err
    (tmp_path / "mine.html").write_text("mine", encoding="utf-8")
    code, _, err = run(f"estimate gpt3-1t --system no-such-machine --html {tmp_path / 'mine.html'}")
    assert code == 2
    assert "--force overwrites it" in err
    assert "no-such-machine" in err
    assert (tmp_path / "mine.html").read_text(encoding="utf-8") == "mine"


SWEEP = """
name: memory & <bandwidth>
models: [gpt3-175b]
systems: [h200-nvs8]
gpus: [64, 128]
strategies: [1d]
vary:
  - accelerator.hbm_bytes: [40 GB, 282 GB]
  - accelerator.hbm_bandwidth: [1 TB/s, 8 TB/s]
"""


def test_a_study_as_a_report(run, folder):
    """The table's own rows, in words; figures are those that the table allows."""
    code, out, err = run(
        "study study.yaml --output table.csv --html study.html --json"
    )  # STUDY of every_command.py
    assert (code, err) == (0, "")
    assert json.loads(out)["html"] == "study.html"
    page = read((folder / "study.html").read_text(encoding="utf-8"))
    rows = pl.read_csv(folder / "table.csv").rows(named=True)
    best = min(rows, key=lambda row: row["step_seconds"])
    assert page.tiles()["The fastest step"] == seconds(best["step_seconds"])
    assert page.tiles()["Points"] == "4"
    assert {seconds(row["step_seconds"]) for row in rows} <= set(page.said["td"])
    assert [figure["id"] for figure in page.of("figure")] == [
        "scaling-figure",
        "throughput-figure",
        "optima-0-figure",
    ]
    (folder / "sweep.yaml").write_text(SWEEP, encoding="utf-8")
    assert run("study sweep.yaml --output sweep.json --html sweep.html").code == 0
    page = read((folder / "sweep.html").read_text(encoding="utf-8"))
    assert page.said["h1"] == ["memory & <bandwidth>"]
    assert [figure["id"] for figure in page.of("figure")] == ["contour-0-figure"]
    assert "does not fit" in page.said["td"]  # a 64th of 175e9 parameters at 16 bytes each is 44 GB
    code, _, err = run("study study.yaml --output part.parquet --shard 1/2 --html part.html")
    assert (code, "traincast merge writes its report" in err) == (2, True)


def test_a_validation_as_a_report(run, folder):
    code, out, _ = run("validate --runs examples/my_cluster/runs.csv --html validation.html --json")
    assert code == 0
    answer = json.loads(out)
    page = read((folder / "validation.html").read_text(encoding="utf-8"))
    done = [row for row in answer["rows"] if row["skipped"] is None]
    assert page.said["h1"] == [f"{len(done)} of {len(answer['rows'])} measured runs predicted"]
    assert page.tiles()["Error of dense models"] == f"{answer['totals']['dense']['mape']:.1%}"
    assert page.tiles()["Inside their intervals"] == f"{answer['coverage']:.0%}"
    assert {seconds(row["predicted_step_seconds"]) for row in done} <= set(page.said["td"])
    assert [figure["id"] for figure in page.of("figure")] == ["accuracy-figure"]


def test_what_a_format_leaves_no_choice_of_is_not_said_to_be_locked_by_who_asks(run, tmp_path):
    """TRL's configuration of Accelerate has no degree of tensor parallelism, nor has the program."""
    question = "export llama-3-70b --system dgx-h100 --gpus 8 --gbs 64"
    for options in ("--to trl", f"--to deepspeed --output {tmp_path / 'job'}"):
        code, _, err = run(f"{question} {options}")
        held = " ".join(err.split())
        assert code == 1
        assert re.search(r"by the format: ([a-z]+=1, )*tp=1\b", held)
        assert "by you" not in held
    held = " ".join(run(f"{question} --to trl --cp 1").err.split())
    assert re.search(r"by the format: tp=1, pp=1; by you: cp=1\.$", held)
