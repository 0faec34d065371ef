"""Job of `test_measure.py`: rank 0 sends a message and waits, rank 1 fails then."""

import time
from pathlib import Path

from traincast.accuracy.machine.launcher import launched_rank


def run(request, send):
    rank = launched_rank()
    if rank.rank == 1:
        while not Path(request["sent"]).exists():
            time.sleep(0.05)
        raise RuntimeError(f"no such thing: {request['number']}")
    send({"rank": rank.rank, "size": rank.size, "number": request["number"]})
    Path(request["sent"]).touch()
    time.sleep(600)
