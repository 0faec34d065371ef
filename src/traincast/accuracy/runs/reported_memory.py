"""Memory as tools report it, which leave out components that a device holds."""

from collections.abc import Mapping
from typing import Final, Literal

from traincast.core import Column
from traincast.operations import total

Reported = Literal["allocated", "paged", "reserved", "device"]
LEFT_OUT: Final[Mapping[Reported, tuple[str, ...]]] = {  # what a tool reports -> components it leaves out
    "allocated": ("reserved", "buffers"),  # torch.cuda.max_memory_allocated
    "paged": ("optimizer", "reserved", "buffers"),  # the same, where bitsandbytes allocates paged moments
    "reserved": ("buffers",),  # torch.cuda.max_memory_reserved
    "device": (),  # nvidia-smi
}


def memory_as_reported(used: Mapping[str, Column], kind: Reported) -> Column:
    """Return the memory of a rank as a tool reports it [byte].

    `used`: memory by component [byte].
    """
    return total(column for name, column in used.items() if name not in LEFT_OUT[kind])
