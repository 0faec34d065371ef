"""Ask, tell, stop, resume: the tuner of a small job."""

import json

import pytest

import traincast as tc
from traincast.tuner.tuner import TRIALS

JOB = {"model": "llama-3-8b", "system": "dgx-h100", "gpus": 8, "gbs": 32, "framework": "torchtitan"}
SLOWER = 1.2  # measured over predicted
PLANS = [
    tc.Plan(tp=tp, dp=8 // tp // pp, pp=pp, mbs=mbs, zero=zero, recompute=recompute)
    for tp, pp in ((1, 1), (2, 1), (1, 2), (2, 2))
    for mbs in (1, 2)
    for zero in (1, 2)
    for recompute in ("none", "full")
]


def tuner(**more):
    """A tuner of some plans; a search takes longer."""
    return tc.Tuner(**JOB | {"trials": 4, "plans": PLANS} | more)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A tuner that has stopped, and its journal."""
    journal = tmp_path_factory.mktemp("tune") / "journal.jsonl"
    tuning = tuner(journal=journal, plans=None)
    while trial := tuning.ask():
        if trial.number == 2:
            tuning.tell(trial, oom=True, took=30.0)
        else:
            tuning.tell(trial, SLOWER * trial.predicted_seconds, memory=40e9, took=60.0)
    return tuning, journal


def test_trials_are_plans_with_launches_of_few_steps(finished):
    tuning, _ = finished
    first = tuning.trials[0]
    assert first.plan.gpus == 8
    assert "steps=20" in first.launch.text
    assert first.low < first.expected_seconds < first.high
    assert "predicted to be the fastest" in first.why
    assert len({str(trial.plan) for trial in tuning.trials}) == len(tuning.trials) == 4
    assert "limit of 4 trials is reached" in tuning.stopped
    assert tuning.ask() is None


def test_the_report_says_what_was_found_and_learnt(finished):
    report = finished[0].report()
    assert report.best.seconds == pytest.approx(min(one.seconds for one in report.trials if one.seconds))
    assert [trial.outcome for trial in report.trials] == ["time", "oom", "time", "time"]
    assert report.learnt.low < SLOWER < report.learnt.high
    assert 0 <= report.remaining.within <= 1
    assert report.remaining == finished[0].remaining_gain()
    assert json.loads(report.to_json())["trials"][1]["outcome"] == "oom"


def test_a_journal_continues_a_tuner_as_it_was(finished):
    tuning, journal = finished
    again = tuner(journal=journal, plans=None)
    assert [trial.to_dict() for trial in again.trials] == [trial.to_dict() for trial in tuning.trials]
    assert again.report().to_dict() == tuning.report().to_dict()


def test_a_line_cut_off_by_a_crash_is_left_out(tmp_path):
    torn = tmp_path / "torn.jsonl"
    first = tuner(journal=torn)
    for _ in range(2):
        first.tell(first.ask(), 3.0)
    torn.write_text(torn.read_text()[:-40])
    again = tuner(journal=torn)
    assert again.journal.torn
    assert [trial.outcome for trial in again.trials] == ["time", "running"]
    again.tell(2, 2.0)
    assert tuner(journal=torn).best() == again.best()


@pytest.mark.parametrize(
    ("more", "message"), [({"gpus": 16}, "gpus = 8, not 16"), ({"gbs": 64}, "gbs = 32, not 64"),
                          ({"locks": {"tp": 1}}, "content")]
)  # fmt: skip
def test_a_journal_of_another_question_is_refused(finished, more, message):
    with pytest.raises(tc.InputError, match=f"(?s)journal with other options.*{message}"):
        tuner(journal=finished[1], **more)


def test_a_journal_without_trials_takes_another_question(tmp_path):
    tuner(journal=tmp_path / "j.jsonl")
    assert tuner(journal=tmp_path / "j.jsonl", gbs=64).ask().number == 1
    assert tuner(journal=tmp_path / "j.jsonl", gbs=64).trials[0].outcome == "running"


@pytest.mark.parametrize("text", ['{"a": 1}\n', "what\nis\nthis\n"])
def test_a_file_that_is_no_journal_is_refused(tmp_path, text):
    file = tmp_path / "no.jsonl"
    file.write_text(text)
    with pytest.raises(tc.InputError, match="journal"):
        tuner(journal=file)
    assert file.read_text() == text


def test_several_trials_can_be_under_way():
    tuning = tuner()
    first, second = tuning.ask(), tuning.ask()
    assert first.plan != second.plan
    assert [trial.number for trial in tuning.running] == [1, 2]
    tuning.tell(second, 4.0)
    tuning.tell(1, failed="no such partition")
    assert tuning.best().trial == 2
    third = tuning.ask()
    assert third.plan not in (first.plan, second.plan)


def test_a_plan_that_was_not_asked_for_can_be_told():
    tuning = tuner()
    plan = tuning.candidates.row(7)
    told = tuning.tell(plan, 3.3)
    assert told.number == 1
    assert tuning.best().plan == plan
    with pytest.raises(tc.InputError, match="is none of the"):
        tuning.tell(tc.Plan(tp=8, pp=4), 3.3)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({}, "give one of seconds"),
        ({"seconds": 1.0, "oom": True}, "give one of seconds"),
        ({"seconds": -1.0}, "seconds = -1.0: must be a step of 1e-06 to 1,000,000 s"),
        ({"seconds": float("nan")}, "must be a step of"),
        ({"seconds": 1e300}, "must be a step of"),
        ({"seconds": 1.0, "memory": 0.0}, "memory = 0.0"),
        ({"seconds": 1.0, "error": -0.1}, "error = -0.1: must be a share"),
    ],
)
def test_nonsense_is_not_told(told, message):
    tuning = tuner()
    trial = tuning.ask()
    with pytest.raises(tc.InputError, match=message):
        tuning.tell(trial, **told)
    tuning.tell(trial, 3.0)
    with pytest.raises(tc.InputError, match="has a result already"):
        tuning.tell(trial, 3.0)
    with pytest.raises(tc.InputError, match="trial 9: is none of the 1 so far"):
        tuning.tell(9, 3.0)


def test_all_mistakes_of_a_question_are_said_at_once():
    with pytest.raises(tc.InputError) as caught:
        tc.Tuner("lama-3-8b", None, -8, gbs=0, framework="praxis", to="yaml", trials=0, budget=-1.0, steps=0)
    said = "\n".join(caught.value.problems)
    for part in ("llama-3-8b", "system = None", "gpus = -8", "gbs = 0", "praxis", "'yaml'", "trials = 0",
                 "budget = -1.0", "steps = 0"):  # fmt: skip
        assert part in said


def test_a_budget_ends_it():
    tuning = tuner(budget=100.0)
    tuning.tell(tuning.ask(), 3.0, took=101.0)
    assert "the budget is 100 s" in tuning.stopped
    assert tuning.ask() is None


def test_it_stops_when_it_is_sure():
    # two plans, the second predicted three times as slow: sure after one trial
    plans = [tc.Plan(dp=8, zero=3), tc.Plan(pp=8, zero=3)]
    tuning = tuner(plans=plans, trials=TRIALS)
    tuning.tell(tuning.ask(), 3.0)
    assert tuning.ask() is None
    assert "is within 1% of every candidate" in tuning.stopped


def test_the_calibrated_system_predicts_the_machine(finished, tmp_path):
    tuning, _ = finished
    calibration = tuning.calibration()
    assert calibration.determined
    file = tmp_path / "mine.yaml"
    calibration.write(file)
    trial = tuning.trials[0]
    est = tc.estimate(JOB["model"], file, trial.plan, gbs=32, assumptions="torchtitan-2025")
    assert abs(est.step_seconds / trial.seconds - 1) < 0.5 * (1 - 1 / SLOWER)
    narrower = [c for c in calibration.determined if c.high / c.low < (1 + 1e-9) * _prior_width(c)]
    assert narrower


def _prior_width(constant):
    """The 90 % interval of a constant's prior, high over low."""
    from math import exp

    return exp(2 * 1.645 * constant.parameter.sigma)


def test_a_system_given_as_an_object_is_not_calibrated():
    tuning = tuner(system=tc.load_system("dgx-h100"))
    with pytest.raises(tc.InputError, match="give its name or file"):
        tuning.calibration()
