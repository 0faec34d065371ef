"""One plan trained by the loop of `measure --step`, as a launch: a file of shape and plan in, a row out.

python -m traincast.accuracy.machine.training.one_plan trial-01.json trial-01.csv
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from traincast.accuracy.machine.launcher import launch
from traincast.accuracy.machine.tables import write_rows
from traincast.accuracy.machine.training.timed_steps import VOCAB_MULTIPLE, TimedShape, TrainingCase, knobs_of
from traincast.core import InputError, Plan, TraincastError, make_record
from traincast.model import Model

TRAINING_MODULE: Final = "traincast.accuracy.machine.training"
UNTRAINED: Final = ("global_batch", "training_sequences", "sources", "taken")  # no step depends on them


def trained_shape(model: Model, gbs: int) -> TimedShape:
    """Return the shape that trains a model with a global batch [sequences].

    Raises `InputError` where the loop cannot train it: it trains GPTs with biases and learned positions.
    """
    shape = TimedShape(model.hidden, model.layers, model.heads, model.seq, model.vocab or 0, gbs)
    trained = replace(TrainingCase(shape, Plan()).model, name=model.name)
    given = replace(model, kv_heads=model.kv_heads or model.heads)
    names = [field.name for field in fields(Model) if field.name not in UNTRAINED]
    values = ((name, getattr(given, name), getattr(trained, name)) for name in names)
    other = [
        f"{name} = {value!r}: the training loop has {own!r}" for name, value, own in values if value != own
    ]
    if shape.vocab % VOCAB_MULTIPLE or not shape.vocab:
        other.append(f"vocab = {model.vocab}: must be a multiple of {VOCAB_MULTIPLE}")
    if other:
        raise InputError(
            f"model {model.name}", [*other, "give --command to launch it, or --manual to do so by hand"]
        )
    return shape


def trainable_plans(shape: TimedShape, ranks: int) -> Iterator[Plan]:
    """Yield every plan of a shape on all ranks that the loop can train."""
    for tp in _divisors(ranks):
        for pp in _divisors(ranks // tp):
            dp = ranks // tp // pp
            if (knobs := knobs_of(shape, "cpu", dp, tp, pp)) is None:
                continue
            for mbs in _divisors(shape.gbs // dp):
                for zero in (0, 1) if dp > 1 else (0,):
                    yield make_record(Plan, {"mbs": mbs, "zero": zero, **knobs})


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def plan_file_text(shape: TimedShape, plan: Plan, steps: int) -> str:
    """Return the file that `main` trains, for a plan and some timed steps."""
    return json.dumps({"shape": list(shape), "plan": plan.knobs(), "ranks": plan.gpus, "steps": steps})


def main() -> None:
    """Train the plan of the file that the first argument names; write its row to the second."""
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    output = Path(sys.argv[2])

    def on_message(message: dict[str, Any]) -> None:
        write_rows(output, [message["row"]])

    try:
        launch(
            f"{TRAINING_MODULE}.timed_steps:train_plan_as_rank",
            request | {"threads": 1},
            request["ranks"],
            on_message,
        )
    except TraincastError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
