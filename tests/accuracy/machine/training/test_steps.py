"""Grid of training steps, and comparison of recorded steps with predictions."""

import csv
import json
import math
import re
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import traincast as tc
from traincast.accuracy.machine.tables import write_rows
from traincast.accuracy.machine.training import compare
from traincast.accuracy.machine.training.compare import (
    TrainingJob,
    compare_with_predictions,
    measure_steps,
    partial_path,
    with_system,
)
from traincast.accuracy.machine.training.timed_steps import (
    CPU_SHAPES,
    TimedShape,
    TrainingCase,
    _next_case,
    faster_visit,
    parse_shapes,
    plans_of_shape,
    run_row,
    same_machine,
    training_cases,
)
from traincast.accuracy.runs.run import read_run, rows
from traincast.accuracy.scores import spearman
from traincast.catalog.load import load_system
from traincast.core.errors import InputError
from traincast.step.estimates import estimate
from traincast.step.validity import require_valid
from traincast.ui.cli.main import main

DATA = Path(__file__).parents[4] / "examples" / "measured_cpu"
MACHINE = DATA / "machine.yaml"  # two ranks of one thread on two cores of an AMD EPYC, measured 2026-11-20
STEPS = rows(DATA / "steps.csv")  # what they took to train the grid


@cache
def comparison():
    """The comparison of all recorded steps."""
    return compare_with_predictions(STEPS, MACHINE)


ABOUT = {"kind": "cpu", "device": "a CPU", "threads": 1, "ranks": 2, "torch": "2.13.0"}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_case_of_the_grid_can_be_trained_and_estimated(device, ranks):
    grid = training_cases(device, ranks)
    assert len({case_.id for case_ in grid}) == len(grid)
    for case in grid:
        plan, shape = case.plan, case.shape
        assert plan.gpus in (1, ranks)
        assert shape.gbs % (plan.dp * plan.mbs) == 0
        require_valid(case.model, plan, shape.gbs, ranks)
        assert shape.heads % plan.tp == shape.layers % plan.pp == shape.vocab % (128 * plan.tp) == 0


def test_plans_of_two_ranks():
    """By hand: gbs 8 over two replicas is one micro-batch of 4 or two of 2;
    a pipeline of two has 4 or 8 micro-batches."""
    candidates = list(plans_of_shape(TimedShape(256, 4, 4, 128, 4096, 8), 2))
    assert [(plan.dp, plan.tp, plan.pp, plan.mbs, plan.zero) for plan in candidates] == [
        (2, 1, 1, 4, 0),
        (2, 1, 1, 2, 0),
        (2, 1, 1, 4, 1),
        (1, 2, 1, 8, 0),
        (1, 2, 1, 4, 0),
        (1, 1, 2, 2, 0),
        (1, 1, 2, 1, 0),
        (1, 1, 1, 8, 0),
    ]
    odd = list(plans_of_shape(TimedShape(256, 5, 3, 128, 4096, 8), 2))  # neither heads nor layers divide
    assert all(plan.tp == plan.pp == 1 for plan in odd)
    assert len(odd) == 4


def test_parameters_of_the_estimate_are_those_of_the_gpt():
    """By hand: 12 e² of matrices, 13 e of biases and norms in a layer; table, positions, head, last norm.

    Experts have 4 e² + 3 e each in place of the MLP's 8 e² + 5 e, and a router e.
    """
    for shape in CPU_SHAPES:
        e = shape.hidden
        layer = 12 * e * e + 13 * e
        if n := shape.experts:
            layer += n * (4 * e * e + 4 * e) - (8 * e * e + 5 * e)
        total = shape.layers * layer + 2 * shape.vocab * e + shape.seq * e + 2 * e
        assert TrainingCase(shape, next(plans_of_shape(shape, 2))).model.parameters == total


def test_shapes_with_adapters_or_experts_are_not_cut():
    """Names of rows tell them apart; what is trained stands in the columns that `validate` reads."""
    adapted, mixed = parse_shapes("256x4x4x128x4096x8+lora16, 256x4x4x128x4096x8+experts4")
    assert (adapted.rank, adapted.experts, adapted.name) == (16, 0, "256x4s128r16")
    assert (mixed.rank, mixed.experts, mixed.name) == (0, 4, "256x4s128e4")
    for shape in (adapted, mixed):
        assert all(plan.tp == plan.pp == 1 for plan in plans_of_shape(shape, 4))
        case = TrainingCase(shape, next(plans_of_shape(shape, 2)))
        row = run_row(case, ABOUT, [1.0, 1.1, 1.2], None)
        run = read_run(with_system([row], MACHINE)[0])
        if adapters := case.model.adapters:
            assert run.model.adapters.rank == adapters.rank
            assert run.model.adapters.targets == adapters.targets
        assert run.model.experts == case.model.experts
        assert run.model.parameters == case.model.parameters
    assert training_cases("cpu", 1, (adapted,))[0].model.trained_parameters == 4 * 16 * 16 * 256


def test_shapes_are_parsed_and_all_mistakes_reported_at_once():
    assert parse_shapes("256x4x4x128x4096x8, 64X2x2x32x128x4") == (
        TimedShape(256, 4, 4, 128, 4096, 8),
        TimedShape(64, 2, 2, 32, 128, 4),
    )
    with pytest.raises(InputError) as caught:
        parse_shapes(
            "256x4,256x4x3x128x4096x8,256x4x4x128x4000x8,64x2x2x32x128x4+lora,64x2x2x32x128x4+experts1"
        )
    message = str(caught.value)
    assert "'256x4': write hidden x layers" in message
    assert "3 heads do not divide 256" in message
    assert "vocabulary 4000: must be a multiple of 128" in message
    assert "'64x2x2x32x128x4+lora': behind + write lora and a rank" in message
    assert "a token goes to 2 experts" in message


def test_a_row_is_read_as_what_was_trained():
    for case in training_cases("cpu", 2)[:8]:
        cells = run_row(case, ABOUT, [0.3, 0.1, 0.2], None)
        run = read_run(cells | {"system": str(MACHINE)})
        assert run.model == case.model
        assert replace(run.plan, layout="") == case.plan  # rows spell out the layers of each stage
        assert (run.gbs, run.stack, run.step_seconds, run.memory_bytes) == (
            case.shape.gbs,
            "pytorch",
            0.2,
            None,
        )
        assert run.assumed == ()
        assert float(cells["step_spread"]) == pytest.approx(
            0.1 / 0.2
        )  # quartiles of three values: 0.15 and 0.25
        assert run.plan.layout in ("", f"{case.shape.layers // 2}*2")
    gpu = read_run(run_row(training_cases("cuda", 2)[0], ABOUT, [0.2], 2.0**30) | {"system": "dgx-h100"})
    assert (gpu.memory_bytes, gpu.reported, gpu.plan.precision) == (2.0**30, "allocated", "bf16-pure")


def test_rows_of_another_machine_or_another_pytorch_are_not_continued():
    measured_rows = [run_row(case, ABOUT, [0.2], None) for case in training_cases("cpu", 2)[:2]]
    assert same_machine(measured_rows, ABOUT)
    assert same_machine([], ABOUT)
    assert not same_machine(measured_rows, ABOUT | {"torch": "2.14.0"})
    assert not same_machine(measured_rows, ABOUT | {"threads": 2})


def test_predictions_are_those_of_the_engine_on_the_machine_file():
    result = comparison()
    system = load_system(MACHINE)
    for prediction, cells in zip(result.before.predictions, STEPS, strict=True):
        run = read_run(cells)
        est = estimate(run.model, system, run.plan, gbs=run.gbs, assumptions="pytorch")
        assert prediction.predicted_step_seconds == pytest.approx(est.step_seconds, rel=1e-12)
        assert prediction.measured_step_seconds == float(cells["step_seconds"])


def test_recorded_steps_are_met_within_the_goal():
    """The goal is 15 % after calibration, also for the shapes left out."""
    pytest.importorskip("scipy", reason="scipy is not installed")
    result = comparison()
    assert result.calibration is not None
    assert {item.id for item in (*result.fitted.predictions, *result.left_out.predictions)} == {
        item["id"] for item in STEPS
    }
    for half in (result.before, result.fitted, result.left_out):
        (total,) = half.totals
        assert total.mape < (0.25 if half is result.before else 0.15)
        errors = [abs(item.error) for item in half.predictions]
        assert total.mape == pytest.approx(np.mean(errors), rel=1e-12)
    assert result.fitted.totals[0].mape <= result.before.totals[0].mape + 0.02
    assert math.isfinite(result.left_out.totals[0].worst)


def test_the_documentation_states_the_errors_of_the_recorded_steps():
    """Its table, line by line: rows, mean error, bias, worst error, rank correlation, regret."""
    pytest.importorskip("scipy", reason="scipy is not installed")
    text = (Path(__file__).parents[4] / "docs" / "measure.md").read_text(encoding="utf-8")
    errors = vars(comparison().errors)
    labels = {
        "before": "machine file alone",
        "fitted": "calibrated, shapes fitted",
        "left_out": "calibrated, shapes left out",
    }
    for name, label in labels.items():
        cells = re.search(rf"\| {label} \|(.*)\|", text)[1].split("|")
        stated = [float(cell.strip(" +%")) / (100 if "%" in cell else 1) for cell in cells]
        summary = errors[name]
        assert stated == pytest.approx(
            [summary.n, summary.mape, summary.bias, summary.worst, summary.spearman, summary.regret],
            abs=0.006,
        ), name


def test_plans_of_a_shape_are_ranked_together():
    result = comparison()
    name = STEPS[0]["id"].split("-")[0]
    plans = [
        item for item in result.before.predictions if item.id.startswith(f"{name}-") and "-one" not in item.id
    ]
    measured, predicted = (
        np.array([getattr(item, f"{which}_step_seconds") for item in plans])
        for which in ("measured", "predicted")
    )
    summary = next(item for item in result.before.summaries if item.source == name)
    assert summary.groups == 1
    assert summary.spearman == pytest.approx(spearman(predicted, measured))
    assert summary.regret == pytest.approx(measured[np.argmin(predicted)] / measured.min() - 1)


def test_a_table_names_its_machine_file_from_where_it_stands(tmp_path):
    (tmp_path / "out").mkdir()
    machine = tmp_path / "cpu.yaml"
    machine.write_bytes(MACHINE.read_bytes())
    table = tmp_path / "out" / "steps.csv"
    write_rows(table, with_system(STEPS[:2], machine, table.parent))
    with table.open(encoding="utf-8", newline="") as file:
        assert next(csv.DictReader(file))["system"] == str(Path("..") / "cpu.yaml")
    assert read_run(rows(table)[0]).system == load_system(machine)
    assert partial_path(table).name == "steps.partial.csv"


def test_a_machine_file_that_is_missing_is_the_reason_of_a_row(tmp_path):
    write_rows(tmp_path / "steps.csv", with_system(STEPS[:2], tmp_path / "gone.yaml", tmp_path))
    with pytest.raises(tc.InputError) as error:
        tc.validate(tmp_path / "steps.csv")
    assert len(error.value.problems) == 2
    assert all("gone.yaml" in problem for problem in error.value.problems)


def test_to_dict_is_json():
    document = json.loads(json.dumps(compare_with_predictions(STEPS[:6], MACHINE).to_dict(), allow_nan=False))
    assert list(document) == ["source", "rows", "shapes", "errors", "constants"]
    assert len(document["rows"]) == 6
    assert (document["errors"]["fitted"], document["constants"]) == (None, [])  # one shape only


def test_an_interrupted_grid_is_continued(tmp_path, monkeypatch):
    """With fake ranks: they continue where the table ends, and start a new table on another machine."""
    requests = []

    def play(about, cases):
        def run_on_all_ranks(job, request, ranks, threads, on_message):
            requests.append((job, len(request["rows"]), ranks, threads))
            on_message({"machine": about})
            for index, case in enumerate(cases):
                on_message({"row": run_row(case, about, [0.2], None), "left": 8 - index, "visits": 9})
                if len(requests) == 1 and index == 1:
                    raise KeyboardInterrupt

        monkeypatch.setattr(compare, "run_on_all_ranks", run_on_all_ranks)

    job, seen = TrainingJob(tmp_path / "steps.csv", ranks=2, threads=3), []
    some = training_cases("cpu", 2)[:3]
    play(ABOUT, some)
    with pytest.raises(KeyboardInterrupt):
        measure_steps(job)
    assert [row["id"] for row in rows(partial_path(job.output))] == [case.id for case in some[:2]]
    play(ABOUT, some[2:])
    assert [row["id"] for row in measure_steps(job, lambda *done: seen.append(done))] == [
        case.id for case in some
    ]
    assert seen == [(1, 9)]
    play(ABOUT | {"torch": "3"}, some[:1])
    assert [row["id"] for row in measure_steps(job)] == [some[0].id]
    job_name = "traincast.accuracy.machine.training.timed_steps:train_as_rank"
    assert requests == [(job_name, earlier, 2, 3) for earlier in (0, 2, 3)]


def test_cases_are_visited_in_turn_and_the_fastest_visit_counts():
    first_cases = training_cases("cpu", 2)[:3]
    visits = {}
    for chosen in (0, 1, 2, 0, 1, 2, 0, 1, 2):
        assert _next_case(first_cases, visits, math.inf) == chosen
        visits[first_cases[chosen].id] = visits.get(first_cases[chosen].id, 0) + 1
    assert _next_case(first_cases, visits, math.inf) is None
    assert _next_case(first_cases, {first_cases[0].id: 1}, 0) is None
    assert _next_case(first_cases, {}, 0) == 0  # at least one case is measured
    slow, fast = (
        run_row(first_cases[0], ABOUT, taken, None) for taken in ([0.3, 0.3, 0.4], [0.2, 0.25, 0.9])
    )
    for both in ((slow, fast), (fast, slow)):
        assert faster_visit(*both) == fast | {"visits": "2"}


def test_all_mistakes_are_reported_before_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("traincast.accuracy.machine.measure.find_spec", lambda _: None)
    (tmp_path / "there.csv").write_text("")
    files = ["--output", str(tmp_path / "there.csv"), "--calibrated", str(tmp_path / "mine.txt")]
    with pytest.raises(SystemExit) as stop:
        main(["measure", "--step", *files, "--budget", "1", "--ranks", "0", "--shapes", "1x2"])
    assert stop.value.code == 2
    output = capsys.readouterr().err
    parts = (
        "--system: None: give the file",
        "already exists",
        "ending '.txt'",
        "budget = 1",
        "ranks = 0",
        "'1x2': write hidden",
    )
    assert [part for part in (*parts, "needs PyTorch") if part not in output] == []


@pytest.mark.parametrize("option", ["--system=a.yaml", "--shapes=1x2", "--calibrated=b.yaml"])
def test_options_of_steps_go_with_step(option, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["measure", option])
    assert stop.value.code == 2
    output = capsys.readouterr().err
    assert f"{option.split('=')[0]}: goes with --step" in output
    assert "--output: give the file" in output


@pytest.mark.skipif(
    find_spec("torch") is None, reason="needs PyTorch, which is the user's: pip install torch"
)
def test_real_steps_of_small_shapes(tmp_path, capsys):
    """Two ranks train two shapes for a moment; how well steps of milliseconds are met says nothing."""
    table, mine = tmp_path / "steps.csv", tmp_path / "mine.yaml"
    shapes = "64x2x2x32x128x4,32x2x2x32x128x4"
    files = ["--output", str(table), "--calibrated", str(mine)]
    main(
        [
            "measure",
            "--step",
            "--system",
            str(MACHINE),
            "--ranks",
            "2",
            "--budget",
            "60",
            "--shapes",
            shapes,
            *files,
            "--json",
        ]
    )
    printed = json.loads(capsys.readouterr().out)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine.yaml", "steps.csv"]
    wanted = [case.id for case in training_cases("cpu", 2, parse_shapes(shapes))]
    assert [row["id"] for row in printed["steps"]["rows"]] == wanted
    for row in printed["steps"]["rows"]:
        seconds = [row[f"{which}_step_seconds"] for which in ("measured", "predicted", "calibrated")]
        assert all(0 < value < math.inf for value in seconds), row
    assert {row["half"] for row in printed["steps"]["rows"]} == {"fitted", "left out"}
    for name in ("before", "fitted", "left_out"):
        assert math.isfinite(printed["steps"]["errors"][name]["mape"])
    assert {
        prediction.id for prediction in tc.validate(table).predictions if prediction.skipped is None
    } == set(wanted)
    assert tc.calibrate(MACHINE, runs=[table]).errors["before"] == pytest.approx(
        printed["steps"]["errors"]["before"]["mape"]
    )
    assert load_system(mine).name == "mine"
