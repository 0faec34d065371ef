"""One rank of a job: `python -m traincast.measuring.worker` reads what to do and tells what it found, line by line."""

import json
import sys
from typing import Any

from traincast.errors import TraincastError


def main() -> None:
    """Do what standard input asks for."""
    from traincast.measuring.bench import measure_here

    out, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no message

    def told(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=out, flush=True)

    try:
        measure_here(json.load(sys.stdin), told)
    except TraincastError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
