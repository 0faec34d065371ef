"""Job of `test_measure.py`: rank 0 sends a message and waits, rank 1 fails."""

import time

from traincast.accuracy.measure.launcher import launched_rank


def run(request, send):
    rank = launched_rank()
    if rank.rank == 1:
        time.sleep(0.5)
        raise RuntimeError(f"no such thing: {request['number']}")
    send({"rank": rank.rank, "size": rank.size, "number": request["number"]})
    time.sleep(60)
