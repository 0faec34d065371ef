"""Refit of the catalogue to published runs: inputs, outputs, and the gate on the errors of every source."""

import csv
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import left_out
import published
import refit
import scoreboard
from goals_and_errors import board
from traincast.accuracy.fit.parameters import Parameter, fitted_constant
from traincast.accuracy.fit.residuals import bundled_runs, group_of
from traincast.catalog.documents import read_document
from traincast.catalog.software_stacks import calibrated
from traincast.core.errors import InputError

CALIBRATED = calibrated()

ROOT = Path(__file__).parents[2]
BLACKWELL = '  - {{path: {}, of: [{}], prior: 0.5, sigma: 0.1, why: "x"}}\n'
SEVEN = (
    *(f"{rate}_sustained" for rate in ("matrix", "fp8", "fp4", "hbm")),
    *(f"attention_fa{i}" for i in (1, 2, 3)),
)
FITTED = "fitted to 9 published runs, 2026-01-02"


def test_what_is_fitted_is_little_and_has_reasons():
    constants = published.parameters()
    assert all(constant.meaning for constant in constants)
    assert len(constants) < 140
    stacks = Counter(name for constant in constants if constant.home == "stack" for name in constant.of)
    assert max(stacks.values()) <= published.MAX_CONSTANTS["stack"]


def test_all_constants_fitted_to_published_runs_are_listed(tmp_path):
    """Else a run left out would be predicted with constants that have seen it."""
    assert published.unlisted() == []
    (tmp_path / "nothing.yaml").write_text("generations: {}\n")
    missing = published.unlisted(tmp_path / "nothing.yaml")
    assert len(missing) > 10
    homes = {name.split(":")[1].split(".")[0] for name in missing}
    assert homes <= {"accelerator", "network", "stack", "universal"}


def test_strained_constants_are_explained():
    """And nothing else is: an explanation goes when the strain does."""
    strained = published.strained()
    assert {item.name for item in strained if not item.why} == set()
    lines = [line for home in published.HOMES for line in read_document(published.FILE)[home]]
    assert len(strained) == sum("strain" in line for line in lines)
    assert all(item.at_bound or abs(item.sigmas) > published.STRAIN for item in strained)


def test_constants_set_apart_count():
    """Two of Megatron-DeepSpeed's are fitted to memory by itself."""
    fitted = [c for c in published.parameters() if "megatron-deepspeed" in c.of]
    assert len(fitted) > 1
    assert published.counts()["stack", "megatron-deepspeed"] == len(fitted) + 2


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ("software:\n  - {path: host.dispatch_seconds, of: [eager], prior: 1.0e-5, sigma: 0.1}\n", "why"),
        (
            'software:\n  - {path: host.dispatch_seconds, of: [eager], like: fsdp2, sigma: 0.1, why: "x"}\n',
            "host.dispatch_seconds: like fsdp2, which has none",
        ),
        (
            "universal:\n" + 2 * '  - {path: traffic.loss_bytes, prior: 12, sigma: 0.1, why: "x"}\n',
            "listed 2 times",
        ),
        (
            "accelerators:\n"
            + "".join(BLACKWELL.format(field, name) for name in ("b200-180", "gb300-288") for field in SEVEN),
            "generation blackwell: 14 constants, at most 12",
        ),
    ],
)
def test_lists_that_are_refused(tmp_path, lines, wrong):
    path = tmp_path / "published.yaml"
    path.write_text("generations: {blackwell: [b200-180, gb300-288]}\n" + lines)
    with pytest.raises(InputError, match=wrong):
        published.parameters(path)


def test_the_catalogue_is_read_where_constants_live():
    values = {
        parameter.name: published.in_catalogue(
            replace(parameter, of=parameter.of[:1]) if parameter.of else parameter
        )
        for parameter in (
            Parameter(path="accelerator.matrix_sustained", of=("a100-sxm-80",), prior=0.8, sigma=0.1),
            Parameter(path="network.1.bandwidth", of=("jean-zay-a100",), prior=1e10, sigma=0.1),
            Parameter(path="stack.traffic.loss_bytes", of=("nemo-2024",), prior=1.0, sigma=0.1),
            Parameter(path="universal.traffic.loss_bytes", prior=1.0, sigma=0.1),
        )
    }
    assert 0.7 < values["a100-sxm-80:accelerator.matrix_sustained"] < 0.9
    assert values["jean-zay-a100:network.1.bandwidth"] == 12.5e9  # Omni-Path, 100 Gb/s
    assert (
        values["nemo-2024:stack.traffic.loss_bytes"]
        == values["universal.traffic.loss_bytes"]
        == CALIBRATED.traffic.loss_bytes
    )


def test_universal_values_go_into_the_file_of_calibrated(tmp_path):
    path = tmp_path / "calibrated.yaml"
    path.write_text("# all\ntraffic.loss_bytes: {value: 13, source: fits}  # logits\nhost.straggling: 0.1\n")
    loss = fitted_constant(
        Parameter(path="universal.traffic.loss_bytes", prior=12, sigma=0.2),
        (14.20004, 12.0, 16.0),
        source=FITTED,
    )
    assert refit.write_catalogue([loss], tmp_path) == [path]
    text = path.read_text()
    assert text.startswith("# all\n")
    assert (
        f"traffic.loss_bytes: {{value: 14.2, low: 12.0, high: 16.0, source: '{FITTED}', basis: fitted}}"
        in text
    )
    assert text.endswith("host.straggling: 0.1\n")
    refit.write_catalogue([loss], tmp_path)
    assert path.read_text() == text
    slow = fitted_constant(
        Parameter(path="universal.host.straggling", prior=0.003, sigma=0.2), (0.003, 0.002, 0.004), source="x"
    )
    refit.write_catalogue([slow], tmp_path)
    assert read_document(path)["host.straggling"] == {
        "value": 0.003,
        "low": 0.002,
        "high": 0.004,
        "source": "x",
        "basis": "fitted",
    }


@pytest.fixture(scope="module")
def runs():
    """The runs that constants are fitted to."""
    return {run.id: run for run in (*bundled_runs(), *left_out.later_runs()) if run.step_seconds}


def test_the_table_of_runs_left_out_is_of_the_bundled_runs(runs):
    with left_out.TABLE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "source", "group", "fitted", *left_out.WITHOUT, *left_out.BLIND]
    assert len(rows) > 1890
    for row in rows:
        assert row["group"] == " / ".join(group_of(runs[row["id"]]))
        assert abs(float(row["fitted"])) < 3
        assert math.isfinite(float(row["left_out"]))
        assert math.isfinite(float(row["without_stack"]))
        assert all(math.isfinite(float(row[column])) for column in left_out.BLIND)
        run = runs[row["id"]]
        assert bool(row["without_short_steps"]) == (run.step_seconds < left_out.SHORT_STEP)
        assert bool(row["without_many_gpus"]) == (run.plan.gpus > left_out.MANY_GPUS)
        assert bool(row["without_size"]) == (row["source"] == "vtrain-s")
        assert bool(row["without_strategy"]) == (row["source"] == "internevo")


def test_strategies_of_internevo(runs):
    """Four of its tables' five: ZeRO-1 over all ranks or in groups, for tensor degrees of 1 and 2; one node
    is one group."""
    groups = Counter(
        left_out.WITHOUT["without_strategy"](run)
        for name, run in runs.items()
        if name.startswith("internevo")
    )
    assert set(groups) == {(1, False), (1, True), (2, False), (2, True)}
    assert left_out.WITHOUT["without_strategy"](runs["korth-001"]) is None


def test_no_source_gets_worse_without_a_word():
    """The gate: see calibration/scoreboard.py for how growth is explained, and how the file is renewed."""
    scores = scoreboard.scores(*board().reports)
    wrong = scoreboard.worse(scoreboard.read(), scores, scoreboard.explained())
    assert not wrong, "say why in changelog.d/, then `make scoreboard`"


def test_growth_is_distinguished_from_noise(tmp_path):
    before = {"mpt": {"n": 10, "mape": 4.0}, "zb": {"n": 5, "mape": 3.0}, "papers": {"n": 7, "mape": 9.0}}
    now = {
        "mpt": {"n": 10, "mape": 4.6},
        "zb": {"n": 5, "mape": 3.3},
        "papers": {"n": 5, "mape": 8.0},
        "new": {"n": 1, "mape": 99.0},
    }
    wrong = scoreboard.worse(before, now, {})
    assert set(wrong) == {"mpt", "papers"}
    assert "grew by 0.60 points" in wrong["mpt"]
    assert "2 of 7 rows" in wrong["papers"]
    assert scoreboard.renewed(before, now, wrong) == now | {name: before[name] for name in wrong}
    (tmp_path / "1.changed.md").write_text(
        "A term.\n\naccuracy: mpt +0.6: it was hidden before\naccuracy: papers -2 rows: refused\n"
    )
    (tmp_path / "README.md").write_text("accuracy: zb +9: an example is no explanation\n")
    reasons = scoreboard.explained(tmp_path)
    assert reasons == {("mpt", "mape"): 0.6, ("papers", "n"): 2.0}
    assert scoreboard.worse(before, now, reasons) == {}
    assert set(scoreboard.worse(before, now | {"mpt": {"n": 10, "mape": 4.7}}, reasons)) == {"mpt"}
    assert set(scoreboard.worse(before, {}, {})) == {"mpt", "zb", "papers"}


def test_stored_scores_are_readable():
    scores = json.loads(scoreboard.FILE.read_text())
    assert {"mpt", "zb", "vtrain-m", "simumax/moe"} < set(scores)
    assert all(score["n"] > 0 and score["mape"] > 0 for score in scores.values())
