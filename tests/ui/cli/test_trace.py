"""The command `traincast trace`."""

import gzip
import json

import pytest

PLAN = "trace gpt3-1t --system h200-nvs8 --tp 8 --pp 4 --dp 4 --gbs 64 --assumptions paper"


def test_a_trace_and_its_figure_are_written_though_a_trillion_parameters_do_not_fit_on_128_gpus(run, folder):
    code, out, err = run(f"{PLAN} --output trace.json --figure timeline.svg")
    assert code == 0
    assert "does not fit" in err
    assert out.splitlines()[-2:] == ["trace.json", "timeline.svg"]
    trace = json.loads((folder / "trace.json").read_text())
    assert {event["pid"] for event in trace["traceEvents"]} == {1, 2, 3, 4}
    assert (folder / "timeline.svg").read_text().startswith("<?xml")


def test_compressed_and_in_part(run, folder):
    assert run(f"{PLAN} --output trace.json.gz --stages 0,2-3 --micro-batches 1-2").code == 0
    trace = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))
    assert {event["pid"] for event in trace["traceEvents"]} == {1, 3, 4}
    assert {
        event["args"]["micro_batch"]
        for event in trace["traceEvents"]
        if "micro_batch" in event.get("args", {})
    } == {1, 2}


def test_files_are_not_overwritten_unless_asked_for(run, folder):
    (folder / "trace.json").write_text("mine")
    code, _, err = run(f"{PLAN} --output trace.json")
    assert (code, (folder / "trace.json").read_text()) == (2, "mine")
    assert "--force overwrites it" in err
    assert run(f"{PLAN} --output trace.json --force").code == 0
    assert (folder / "trace.json").read_text().startswith("{")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("--output trace.txt", "'.txt': must be one of .json, .json.gz"),
        ("--output trace.gz", "'.gz': must be one of .json, .json.gz"),
        ("--figure timeline.bmp", "'.bmp': must be one of .svg, .pdf, .png"),
        ("--stages 1-", "'1-': write numbers and ranges"),
        ("--micro-batches 3-2", "'3-2': write numbers and ranges"),
        ("--stages 4 --output trace.json", "stages: 4: there are 0 to 3"),
        ("--micro-batches 16 --output trace.json", "micro-batches: 16: there are 0 to 15"),
        ("--pp 3", "pp"),
    ],
)
def test_untraceable_estimates_are_refused(run, folder, more, expected):
    code, out, err = run(f"{PLAN} {more}")
    assert (code, out) == (2, "")
    assert expected in err
    assert not (folder / "trace.json").exists()


def test_all_mistakes_are_reported_at_once(run, folder):
    code, _, err = run("trace gpt3-1x --system h200-nvs8 --output trace.txt --stages x")
    assert code == 2
    assert all(part in err for part in ("trace: 3 problems", "gpt3-1x", ".txt", "'x'"))
