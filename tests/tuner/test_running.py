"""Trials run by commands: what comes of jobs that end, fail, hang, run out of memory, or are interrupted."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import traincast as tc
from traincast.tuner.launches import OwnTraining
from traincast.tuner.running import Runner, run_all

ROOT = Path(__file__).parents[2]
MODEL, SYSTEM = ROOT / "examples/tune/model.yaml", ROOT / "examples/measured_cpu/machine.yaml"
PRETENDED = f"{shlex.quote(sys.executable)} {Path(__file__).with_name('pretended.py')} {{launch}} {{log}}"
MEGATRON_LOG = (
    " iteration {0}/ 20 | elapsed time per iteration (ms): {1} | global batch size: 32 | lm loss: 1"
)


def runner(folder, command=PRETENDED, plans=None, **more):
    """A runner of the small GPT's trials."""
    training = OwnTraining(tc.load_model(MODEL), 32)
    chosen = training.plans(2) if plans is None else plans
    tuner = tc.Tuner(MODEL, SYSTEM, 2, plans=chosen, to=training, assumptions="pytorch", trials=4,
                     journal=folder / "journal.jsonl")  # fmt: skip
    return Runner(tuner, folder, command, **{"log": str(folder / "{trial}.csv"), "warm_up": 0} | more)


def test_trials_run_until_it_stops(tmp_path):
    run, shown = runner(tmp_path), []
    run_all(run, shown.append)
    report = run.tuner.report()
    assert [trial.outcome for trial in shown[::2]] == ["running"] * len(report.trials)
    assert report.best.seconds == pytest.approx(0.345)  # of pretended.py: dp=2 mbs=16 zero=0
    assert (tmp_path / "trial-01.json").is_file()


SMALL, STAGES = {"dp": 2, "zero": 0}, {"pp": 2, "zero": 0}


@pytest.mark.parametrize(
    ("command", "plan", "outcome", "said"),
    [
        (PRETENDED, {"mbs": 1, **SMALL}, "oom", None),
        (PRETENDED, {"mbs": 4, **STAGES}, "failed", "exit code 1; RuntimeError: the second stage"),
        ("echo step", {"mbs": 4, **SMALL}, "failed", "no such log"),
        ("echo nothing > {log}", {"mbs": 4, **SMALL}, "failed", "cannot tell what this is"),
        ("kill -9 $$", {"mbs": 4, **SMALL}, "failed", "killed by signal 9"),
        ("no-such-program {launch}", {"mbs": 4, **SMALL}, "failed", "exit code 127"),
    ],
)
def test_what_goes_wrong_is_said(tmp_path, command, plan, outcome, said):
    run = runner(tmp_path, command, [tc.Plan(precision="fp32", **plan)])
    trial = run.run(run.tuner.ask())
    assert trial.outcome == outcome
    assert said is None or said in trial.failed
    assert run.tuner.ask() is None  # no candidate is left
    assert run.tuner.best() is None


def test_a_job_that_hangs_is_ended_with_its_children_and_nothing_else(tmp_path, monkeypatch):
    class Counting(subprocess.Popen):
        """Begins to count its time once the job has told of its child."""

        def wait(self, timeout=None):
            while not (tmp_path / "trial-01.csv").exists() or not (tmp_path / "trial-01.csv").read_text():
                time.sleep(0.01)
            return super().wait(timeout)

    monkeypatch.setattr("traincast.tuner.running.Popen", Counting)
    plans = [tc.Plan(mbs=4, precision="fp32", **SMALL)]
    run = runner(tmp_path, "sleep 300 & echo $! > {log}; wait", plans, timeout=1.0)
    with subprocess.Popen(["sleep", "300"]) as other:
        trial = run.run(run.tuner.ask())
        assert trial.text == "failed: no end after 1 s"
        assert other.poll() is None
        other.kill()
    child = int((tmp_path / "trial-01.csv").read_text())
    for _ in range(1200):  # a minute, on a machine that does other things as well
        if not alive(child):
            break
        time.sleep(0.05)
    assert not alive(child)


def alive(pid):
    """Whether a process runs: one that has ended may wait to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_an_interrupted_trial_is_run_again(tmp_path):
    plans = [tc.Plan(mbs=mbs, precision="fp32", **SMALL) for mbs in (4, 8)]
    run = runner(tmp_path, f"kill -INT {os.getpid()}; sleep 60", plans)
    with pytest.raises(KeyboardInterrupt):
        run_all(run)
    again = runner(tmp_path, PRETENDED, plans)
    assert [trial.number for trial in again.tuner.running] == [1]
    run_all(again)
    assert [trial.outcome for trial in again.tuner.trials] == ["time", "time"]


def test_an_interrupt_while_a_job_starts_ends_it(tmp_path, monkeypatch):
    class Interrupted(subprocess.Popen):
        """Is interrupted after the process has begun, before the caller knows of it."""

        def __init__(self, *arguments, **more):
            super().__init__(*arguments, **more)
            signal.raise_signal(signal.SIGINT)
            started.append(self.pid)

    started = []
    monkeypatch.setattr("traincast.tuner.running.Popen", Interrupted)
    run = runner(tmp_path, "sleep 300", [tc.Plan(mbs=4, precision="fp32", **SMALL)])
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run.run(run.tuner.ask())
    assert not alive(started[0])
    assert signal.getsignal(signal.SIGINT) is handler


def test_jobs_run_by_hand_are_read_once_their_log_is_complete(tmp_path):
    job = {"gpus": 8, "gbs": 32, "to": "megatron", "plans": [tc.Plan(dp=8), tc.Plan(tp=2, dp=4)]}
    tuner = tc.Tuner("llama-3-8b", "dgx-h100", **job)
    run = Runner(tuner, tmp_path, None, str(tmp_path / "{trial}.log"), steps=20)
    run.check()
    trial = tuner.ask()
    run.write(trial)
    assert "--train-iters 20\n" in run.launch_path(trial).read_text()
    assert run.collect(trial) == f"no log yet ({tmp_path / 'trial-01.log'})"
    log = run.log_path(trial)
    log.write_text("\n".join(MEGATRON_LOG.format(i, 4000.0) for i in range(1, 6)))
    assert "of 20 steps so far" in run.collect(trial)
    assert tuner.running
    log.write_text("\n".join(MEGATRON_LOG.format(i, 9000.0 if i < 3 else 4000.0) for i in range(1, 21)))
    assert run.collect(trial) == ""
    assert tuner.best().seconds == pytest.approx(4.0)  # the median, warm-up aside


def test_wrong_options_are_said_together(tmp_path):
    run = runner(tmp_path, None, log="same.log", steps=1)
    with pytest.raises(tc.InputError, match=r"(?s)must hold \{trial\}.*--steps = 1"):
        run.check()


def test_unknown_placeholders_are_refused(tmp_path):
    """Else the shell runs them as they are, once a trial."""
    run = runner(tmp_path, "train {lunch} {nope} ${HOME} '{ print }' {tp} {log} {launch}")
    with pytest.raises(tc.InputError) as refused:
        run.check()
    said = str(refused.value)
    assert "--command: unknown placeholder {lunch}; did you mean launch" in said
    assert "--command: unknown placeholder {nope}; known: " in said
    assert said.count("unknown placeholder") == 2


def test_a_log_cannot_hold_itself(tmp_path):
    run = runner(tmp_path, None, log="{trial}/{log}")
    with pytest.raises(tc.InputError, match=r"--log: unknown placeholder \{log\}"):
        run.check()
