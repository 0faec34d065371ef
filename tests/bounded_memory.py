"""A bound on the memory of the tests' own process, so that no random input can take the machine's."""

import resource
import sys
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def bounded_memory(more):
    """Let allocations fail beyond `more` bytes above what this process has; on Linux, which counts them."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
