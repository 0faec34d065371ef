"""`tune` on the command line: what is refused, what is said of trials, and what is written."""

import os
import signal

import pytest

from every_command import TUNED
from traincast.catalog.load import load_system
from traincast.tuner.replay import WRONGS

MANUAL = "tune llama-3-8b --system dgx-h100 --gpus 8 --gbs 32 --framework torchtitan --manual --output out"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("tune", ("MODEL: missing", "--system: missing", "--gpus: missing", "--output: missing")),
        ("tune --details", ("--details: goes with --replay",)),
        ("tune --replay --gpus 8 --to megatron", ("--gpus: not with --replay", "--to: not with --replay")),
        (f"tune {TUNED} --output out --manual", ("--manual: not with --command",)),
        (f"tune {TUNED} --output out --batch 3", ("--batch = 3",)),
        (
            f"tune {TUNED} --output out --budget -3h --timeout 0s",
            ("--budget: '-3h': must be a duration above 0", "--timeout: '0s'"),
        ),
        (f"tune {TUNED} --output out --result 1", ("--result", "write 2=3.41 (seconds)")),
        (f"tune {TUNED} --output out --result 9=oom", ("trial 9: is none of the 0 so far",)),
        (f"tune {TUNED} --output out --trials 0", ("trials = 0",)),
        (
            f"tune {TUNED} --output out --price 2 --input-rate 1GB/s",
            ("--price = 2.0: trials are timed as they run", "--input-rate = 1GB/s"),
        ),
        (
            "tune gpt3-1t --system dgx-h100 --gpus 8 --given dispatcher=deepep --output out",
            ("--framework, --given and knobs: the training loop has its own plans and software",),
        ),
        (MANUAL, ("--log", "give it with --manual")),
        (f"{MANUAL} --log same.log", ("must hold {trial}",)),
        (
            "tune llama-3-8b --system dgx-h100 --gpus 8 --gbs 32 --output out",
            ("positions = 'rotary'", "--command"),
        ),
        (
            "tune llama-3-8b --system dgx-h100 --gpus 8 --to nanotron --output o",
            ("nanotron: give --command",),
        ),
    ],
)
def test_what_is_refused(command, said, run, folder):
    if "--command" in said:  # what its own training loop, of PyTorch, cannot run
        pytest.importorskip("torch")
    code, out, err = run(command)
    assert (code, out) == (2, "")
    for part in said:
        assert part in err


def test_trials_continue_and_another_question_is_refused(run, folder):
    command = f"tune {TUNED} --output out/tune"
    first = run(f"{command} --trials 2")
    assert first.code == 0
    assert "limit of 2 trials is reached" in " ".join(first.out.split())
    second = run(f"{command} --trials 3")
    assert "Trial 3" in second.out
    assert "Trial 2:" not in second.out
    assert load_system("out/tune/system.yaml").name == "system"
    assert "small-gpt on 2 GPUs" in (folder / "out/tune/report.html").read_text()
    code, _, err = run(f"{command} --gbs 16")
    assert code == 2
    assert "journal with other options: gbs = 32, not 16" in err
    assert run(f"{command} --gbs 16 --trials 1 --force").code == 0


def test_without_any_time_it_says_what_came_of_each_trial(run, folder):
    command = f"tune {TUNED.replace('python3', 'false')} --output out/tune --trials 2"
    code, out, err = run(command)
    assert code == 1
    assert "no trial has a time" in err
    assert "failed: exit code 1" in " ".join(out.split())


def test_jobs_by_hand_are_written_and_told(run, folder):
    command = f"{MANUAL} --log out/{{trial}}.log --batch 2 --trials 3"
    code, out, _ = run(command)
    assert code == 0
    assert "run out/trial-02.py" in out
    code, out, _ = run(f"{command} --result 1=3.5 2=oom")
    assert code == 0
    assert "The best plan is that of trial 1" in out
    assert "run out/trial-03.py" in out


def test_a_replay_ends_with_what_it_teaches_and_details_have_the_scorecard(run, monkeypatch):
    small = {"MIN_PLANS": 20, "WRONGS": WRONGS[:1], "SPACE_DRAWS": 1, "SPACE_TRIALS": 2}
    for name, value in small.items():
        monkeypatch.setattr(f"traincast.tuner.replay.{name}", value)
    code, out, err = run("tune --replay")
    assert (code, err) == (0, "")
    sentences = [line.split()[0] for line in out.splitlines()[1:] if line and line[0] != " "]
    assert sentences == ["In", "Trials", "Where", "--details:"]
    assert "Goals" not in out
    assert "--details: " in out
    code, details, _ = run("tune --replay --details")
    assert code == 0
    assert details.startswith(out[: out.index("--details")].rstrip())
    assert "Goals" in details
    assert "--details" not in details


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_ends_the_job_and_loses_nothing(run, folder, sent):
    job, log = TUNED.split("--command")[0], "--log 'out/{trial}.csv' --trials 1 --output out"
    stopped = f"'echo $$ > job; sleep 1; kill -{sent:d} {os.getpid()}; exec sleep 60'"
    code, _, err = run(f"tune {job} {log} --command {stopped}")
    assert (code, signal.getsignal(sent)) == (130, signal.SIG_DFL)
    assert "tune interrupted after 0 trials; the same command continues it" in err
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "job").read_text()), 0)
    again = run(f"tune {job} {log} --command {TUNED.split('--command')[1].split('--log')[0]}")
    assert again.code == 0
    assert "The best plan is that of trial 1" in again.out
