"""Limits of requests and of the queue, which make the server safe to share."""

from typing import Final

REQUEST_BYTES: Final = 256 << 10
REQUEST_SECONDS: Final = 20.0  # in which a request, headers and body, has to arrive
SECONDS: Final = 120.0  # that a worker may spend on a request that somebody waits for
MEMORY: Final = 6 << 30  # bytes of address space of a worker, at most
LEAST_MEMORY: Final = 2 << 30  # bytes of address space that a worker needs to start and to search
MAX_WAITING: Final = 256  # requests that may wait for a worker
MOST_WAIT: Final = 60.0  # for one, as far as can be told: browsers and proxies give up a little later [s]
MOST_PLANS: Final = 50  # of a ranking
MOST_POINTS: Final = 800  # of the sample of a design space
MOST_SIZES: Final = 16  # numbers of GPUs of strong scaling
MOST_PASSES: Final = 1 << 16  # of a timeline
