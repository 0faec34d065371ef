"""What `tuner` gives to other packages; each name is imported when it is first used."""

from .belief import STOP_PROBABILITY as STOP_PROBABILITY
from .belief import TRIAL_GAIN as TRIAL_GAIN
from .launches import TRIAL_STEPS as TRIAL_STEPS
from .launches import OwnTraining as OwnTraining
from .replay import Replayed as Replayed
from .replay import ReplayReport as ReplayReport
from .replay import replay_all as replay_all
from .running import Runner as Runner
from .running import own_command as own_command
from .running import run_all as run_all
from .tuner import Trial as Trial
from .tuner import Tuner as Tuner
from .tuner import TuneReport as TuneReport
