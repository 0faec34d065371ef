"""The program `traincast`, and `python -m traincast`."""

import gc
import signal
from typing import Final

YOUNG_OBJECTS: Final = 50_000  # before a collection: a short command makes few cycles, modules many objects


def main() -> None:
    """Run the command line; Ctrl-C while its modules are imported is answered once they are."""
    gc.set_threshold(YOUNG_OBJECTS)
    noted: list[int] = []
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else a parent wants it ignored
        signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    from traincast.ui.cli.main import main as run

    run(interrupts=noted)


if __name__ == "__main__":  # workers of mpi4py.futures import this module under another name
    main()
