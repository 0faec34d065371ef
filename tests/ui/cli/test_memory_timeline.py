"""`memory --timeline`: a figure of the fullest rank over a step, and the same phases in JSON."""

import json
import re

ASKED = "memory llama-3-8b --system dgx-h100 --tp 2 --dp 4 --zero 3 --gbs 64"


def test_the_figure_has_phases_capacity_and_peak(run, folder):
    code, out, err = run(f"{ASKED} --timeline out.svg")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "out.svg"
    svg = (folder / "out.svg").read_text()
    texts = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))
    found = json.loads(run(f"{ASKED} --json").out)
    for phase in found["phases"]:
        assert all(word in texts for word in phase["phase"].split())
    assert "capacity 79.2 GiB" in texts
    peak = max(phase["memory_bytes"] for phase in found["phases"])
    assert peak == found["estimate"]["memory_bytes"]
    assert f"peak {peak / 2**30:,.1f} GiB" in texts


def test_a_figure_is_written_once_and_of_plans_that_do_not_fit_as_well(run, folder):
    (folder / "out.svg").write_text("mine")
    code, _, err = run(f"{ASKED} --timeline out.svg")
    assert (code, "--force overwrites it" in err) == (2, True)
    assert (folder / "out.svg").read_text() == "mine"
    code, _, err = run(f"{ASKED} --timeline out.txt")
    assert (code, "must be one of .svg" in err) == (2, True)
    code, _, err = run("memory llama-3-70b --system dgx-h100 --tp 8 --gbs 8 --timeline out.svg --force")
    assert code == 1
    assert "too little" in (folder / "out.svg").read_text()


def test_json_names_the_file(run, folder):
    answer = json.loads(run(f"{ASKED} --timeline out.png --json").out)
    assert answer["timeline"] == "out.png"
    assert (folder / "out.png").read_bytes().startswith(b"\x89PNG")
    assert "timeline" not in json.loads(run(f"{ASKED} --json").out)
