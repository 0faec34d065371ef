"""Process of one rank: `python -m traincast.accuracy.measure.worker` reads a request and writes its results line by line."""

import json
import sys
from typing import Any

from traincast.core.errors import TraincastError


def main() -> None:
    """Run the request on standard input."""
    from traincast.accuracy.measure.rank_loop import measure_as_rank
    from traincast.accuracy.measure.training.timed_steps import train_as_rank

    messages, sys.stdout = sys.stdout, sys.stderr  # so that libraries cannot print between the messages

    def send(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=messages, flush=True)

    try:
        request = json.load(sys.stdin)
        run = train_as_rank if request.get("job") == "steps" else measure_as_rank
        run(request, send)
    except TraincastError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
