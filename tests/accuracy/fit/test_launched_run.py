"""Calibration to a log and its launch."""

import json
from pathlib import Path

import pytest

import traincast as tc
from traincast.accuracy.fit.calibrate import calibrate
from traincast.core.errors import InputError
from traincast.planner.frameworks.spaces import framework
from traincast.ui.cli.main import main

LAUNCH = Path(__file__).parents[3] / "examples" / "my_cluster" / "pretrain.sh"
LINE = "iteration {at:8d}/ 20 | elapsed time per iteration (ms): {ms:.1f} | global batch size: 128 |"


def write_log(path, seconds, head=""):
    """Write the lines on progress of Megatron-LM, without its block of arguments."""
    lines = [LINE.format(at=at, ms=1000 * seconds) for at in range(1, 9)]
    path.write_text("\n".join([head, *lines]))
    return path


@pytest.fixture(scope="module")
def predicted():
    return tc.check(LAUNCH, "dgx-h100").est


def test_a_log_and_its_launch_are_a_run(tmp_path, predicted):
    """The run has the model, plan and software that check reads, and the time of the log."""
    logs = [write_log(tmp_path / f"{n}.log", 9 + n / 10) for n in range(3)]
    measured = calibrate("dgx-h100", logs=logs, launches=[LAUNCH]).measured
    assert [run.step_seconds for run in measured.runs] == pytest.approx([9.0, 9.1, 9.2])
    for run in measured.runs:
        assert (run.model, run.gbs) == (predicted.model, predicted.gbs)
        assert (run.plan.tp, run.plan.pp, run.plan.dp, run.plan.recompute) == (8, 2, 2, "full")
        assert run.stack == predicted.assumptions.name
    assert any("vocabulary of 128,256 tokens" in line for line in measured.assumed)


def test_the_log_tells_how_many_gpus_ran(tmp_path):
    log = write_log(tmp_path / "my.log", 9, "using world size: 64, data-parallel size: 4")
    measured = calibrate("dgx-h100", logs=[log], launches=[LAUNCH]).measured
    assert measured.runs[0].plan.gpus == 64
    assert "gpus = 64 as in my.log, not 32 as in the file" in measured.assumed


def test_what_is_calibrated_is_what_is_asked_for_later(tmp_path, capsys):
    """The launch that was slower than predicted is met afterwards, by the same software."""
    logs = [str(write_log(tmp_path / f"{n}.log", 9 + n / 10)) for n in range(3)]
    out = str(tmp_path / "mine.yaml")
    line = ["calibrate", "--log", *logs, "--launch", str(LAUNCH), "--system", "dgx-h100", "--output", out]
    main(line)
    capsys.readouterr()
    mine = tc.load_system(out)
    assert mine.calibrated_with == (("dense", "megatron-core-2025"),)
    main(["check", str(LAUNCH), "--system", out, "--step-seconds", "9.1", "--json"])
    measured = json.loads(capsys.readouterr().out)["measured"]
    assert abs(measured["longer_than_predicted"]) < 0.05
    for asked in (["check", str(LAUNCH)], ["plan", "llama-3-8b", "--gpus", "32"]):
        main([*asked, "--system", out])
        said = " ".join(capsys.readouterr().out.split())
        assert "times are calibrated to your 3 runs with megatron-core-2025" in said
        assert "assumptions: megatron-core-2025" in said


def test_without_a_file_the_fit_is_printed_and_how_to_keep_it(tmp_path, capsys, monkeypatch):
    """The figures are those of the file that --output writes; nothing is written unasked."""
    logs = [str(write_log(tmp_path / f"{n}.log", 9 + n / 10)) for n in range(3)]
    folder = tmp_path / "empty"
    folder.mkdir()
    launch = LAUNCH.resolve()
    monkeypatch.chdir(folder)
    line = ["calibrate", "--log", *logs, "--launch", str(launch), "--system", "dgx-h100"]
    main(line)
    said, remark = capsys.readouterr()
    assert not list(folder.iterdir())
    assert "--output my.yaml keeps the calibrated system, for plan MODEL --system my.yaml" in " ".join(
        remark.split()
    )
    main([*line, "--json"])
    assert json.loads(capsys.readouterr().out)["output"] is None
    main([*line, "--output", "my.yaml"])
    kept, remark = capsys.readouterr()
    assert kept.replace(": my.yaml", "") == said
    assert "dgx-h100, calibrated to 3 runs" in said
    assert "Mean error of the runs:" in said
    assert "nothing is written" not in remark
    main(["plan", "llama-3-8b", "--gpus", "32", "--system", "my.yaml"])
    assert "calibrated to your 3 runs" in " ".join(capsys.readouterr().out.split())


def test_a_question_has_the_software_that_the_machine_is_calibrated_with(tmp_path):
    """Of the same framework, and of models of the same kind."""
    out = tmp_path / "mine.yaml"
    log = write_log(tmp_path / "my.log", 9)
    calibrate("dgx-h100", logs=[log] * 3, launches=[LAUNCH]).write(out)
    text = out.read_text()
    assert "dense: megatron-core-2025" in text
    out.write_text(text.replace("dense: megatron-core-2025", "dense: megatron-core-2024"))
    cases = [("llama-3-8b", "megatron"), ("llama-3-8b", "torchtitan"), ("mixtral-8x7b", "megatron")]

    def stacks(system):
        machine = tc.load_system(system)
        return {case: framework(case[1]).usual_assumptions(tc.load_model(case[0]), machine) for case in cases}

    found = stacks(out)
    usual = stacks("dgx-h100")
    assert found == usual | {("llama-3-8b", "megatron"): "megatron-core-2024"}
    out.write_text(text.replace("dense: megatron-core-2025", "dense: megatron-2099"))
    with pytest.raises(InputError, match="no stack of the catalogue"):
        tc.load_system(out)


def test_all_that_is_missing_is_asked_for_at_once_with_an_example(tmp_path):
    """Neither the model nor the GPUs can be read, and the log is none."""
    launch = tmp_path / "run.sh"
    log = tmp_path / "my.log"
    launch.write_text("torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --bf16 --micro-batch-size 1")
    log.write_text("nothing of a training")
    with pytest.raises(InputError) as error:
        calibrate("dgx-h100", logs=[log], launches=[launch])
    said = str(error.value)
    for words in ("--given gpus=64", "--given model=llama-3-8b", "my.log: cannot tell what this is"):
        assert words in said, said
    assert len(error.value.problems) >= 3
    assert max(map(len, error.value.problems)) < 500  # no list of the catalogue


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"gpus": "many"}, "gpus = 'many': must be a whole number"),
        ({"tp": "2"}, "tp: not used with a launch"),
        ({"model": "llama-99"}, "unknown model 'llama-99'"),
    ],
)
def test_given_values_that_cannot_be(tmp_path, given, words):
    log = write_log(tmp_path / "my.log", 9)
    with pytest.raises(InputError) as error:
        calibrate("dgx-h100", logs=[log], launches=[LAUNCH], **given)
    assert words in str(error.value)


def test_a_log_of_another_run_and_launches_without_logs_are_refused(tmp_path):
    log = LAUNCH.with_name("megatron.log")  # of Llama 3 70B
    with pytest.raises(InputError, match="layers = 80, and the launch has 32: is it the log of another run"):
        calibrate("dgx-h100", logs=[log], launches=[LAUNCH])
    with pytest.raises(InputError, match="give the log of the run with it"):
        calibrate("dgx-h100", launches=[LAUNCH])
    with pytest.raises(InputError, match="2 launches of 1 log"):
        calibrate("dgx-h100", logs=[log], launches=[LAUNCH, LAUNCH])


def test_several_values_may_stand_in_one_pair_of_quotation_marks(tmp_path, capsys):
    log = write_log(tmp_path / "my.log", 9)
    out = tmp_path / "mine.yaml"
    line = ["calibrate", "--log", str(log), "--launch", str(LAUNCH), "--system", "dgx-h100"]
    main([*line, "--given", "model=llama-3-8b gpus=16", "--output", str(out)])
    assert "gpus = 16 as given, not 32 as in the file" in capsys.readouterr().out


def test_an_answer_with_other_software_says_so(tmp_path, capsys):
    out = tmp_path / "mine.yaml"
    calibrate("dgx-h100", logs=[write_log(tmp_path / "my.log", 9)] * 3, launches=[LAUNCH]).write(out)
    main(["plan", "llama-3-8b", "--system", str(out), "--gpus", "32", "--framework", "torchtitan"])
    said = " ".join(capsys.readouterr().out.split())
    assert "your 3 runs with megatron-core-2025" in said
    assert "but for those of torchtitan-2025, a chunked loss, which is other software" in said
