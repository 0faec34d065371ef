"""Process of one local rank: it runs the job of a request file, and writes messages line by line."""

import json
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from traincast.core.errors import TraincastError


def main() -> None:
    """Run the job of the file that the first argument names."""
    messages, sys.stdout = sys.stdout, sys.stderr  # so that libraries cannot print between the messages

    def send(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=messages, flush=True)

    content = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        resolve_name(content["job"])(content["request"], send)
    except TraincastError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
