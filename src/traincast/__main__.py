"""`python -m traincast`."""

from traincast.cli import main

if __name__ == "__main__":  # workers of mpi4py.futures import this module under another name
    main()
