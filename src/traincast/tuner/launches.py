"""Launches of trials: a plan in the words of a framework, with few steps, or for the loop of `measure`."""

import re
from dataclasses import dataclass, replace
from typing import Final

from traincast.accuracy import TRAINING_MODULE, plan_file_text, trainable_plans, trained_shape
from traincast.core import Plan, System
from traincast.launch import FORMATS, Launch, write_in_full
from traincast.model import Model

TRIAL_STEPS: Final = 20  # of a trial: the first are warm-up (`logs.training_log.WARM_UP`)
# how formats say the number of steps, where a launch has it
STEPS_SAID: Final = re.compile(r"(--train-iters |train\.train_iters\s*=\s*|train_steps: |\bsteps ?= ?)\d+")


@dataclass(frozen=True)
class Exported:
    """Launches in a format of `traincast.export`."""

    name: str
    model: Model
    system: System
    gbs: int
    stack: str
    steps: int = TRIAL_STEPS

    def write(self, plan: Plan) -> Launch | None:
        """Return the launch of a plan; None where the framework refuses it or the format cannot express it.

        It is a folder where a training program goes with the format.
        """
        form = FORMATS[self.name]
        written = write_in_full(form, self.model, plan, self.gbs, self.system, self.stack)
        if written is None or written.files:
            return written
        return replace(written, text=STEPS_SAID.sub(rf"\g<1>{self.steps}", written.text))


@dataclass(frozen=True)
class OwnTraining:
    """Launches of the training loop of `measure --step`, on this machine."""

    model: Model
    gbs: int
    steps: int = TRIAL_STEPS
    name: str = "measure --step"
    command: str = f"python -m {TRAINING_MODULE}.one_plan {{launch}} {{log}}"

    def plans(self, gpus: int) -> list[Plan]:
        """Return every plan that the loop can train."""
        return list(trainable_plans(trained_shape(self.model, self.gbs), gpus))

    def write(self, plan: Plan) -> Launch:
        """Return the launch of a plan."""
        return Launch(
            self.name, plan_file_text(trained_shape(self.model, self.gbs), plan, self.steps), {}, ".json"
        )


Launcher = Exported | OwnTraining  # writes the launch of a plan: None where it cannot be launched as it is
