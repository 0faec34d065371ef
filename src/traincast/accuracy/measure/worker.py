"""One rank of a job: `python -m traincast.accuracy.measure.worker` reads what to do and tells what it found, line by line."""

import json
import sys
from typing import Any

from traincast.core.errors import TraincastError


def main() -> None:
    """Do what standard input asks for."""
    from traincast.accuracy.measure.rank_loop import measure_as_rank
    from traincast.accuracy.measure.training.timed_steps import train_as_rank

    out, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no message

    def told(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=out, flush=True)

    try:
        request = json.load(sys.stdin)
        work = train_as_rank if request.get("job") == "steps" else measure_as_rank
        work(request, told)
    except TraincastError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
