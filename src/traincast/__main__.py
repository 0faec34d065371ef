"""`python -m traincast`."""

from traincast.cli import main

main()
