"""The best plan on the user's own machine: predict, run a trial, learn, choose the next, stop."""

from traincast.tuner.belief import GAIN, SURE
from traincast.tuner.launches import STEPS, OwnTraining
from traincast.tuner.replay import Replayed, ReplayReport, replay_all
from traincast.tuner.running import Runner, own_command, run_all
from traincast.tuner.tuner import Trial, Tuner, TuneReport

__all__ = [
    "GAIN",
    "STEPS",
    "SURE",
    "OwnTraining",
    "ReplayReport",
    "Replayed",
    "Runner",
    "Trial",
    "TuneReport",
    "Tuner",
    "own_command",
    "replay_all",
    "run_all",
]
