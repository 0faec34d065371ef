"""The program `traincast`, and `python -m traincast`."""

import atexit
import gc
import signal


def main() -> None:
    """Run the command line; Ctrl-C while its modules are imported is answered once they are."""
    gc.set_threshold(200_000)  # new objects: a short command makes few cycles, its modules many objects
    atexit.register(gc.freeze)  # the interpreter need not look for cycles in what ends with it
    noted: list[int] = []
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else a parent wants it ignored
        signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    from traincast.ui import main as run

    run(interrupts=noted)


if __name__ == "__main__":  # workers of mpi4py.futures import this module under another name
    main()
