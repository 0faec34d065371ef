"""Releases of frameworks whose checks were read."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Releases:
    """Releases of a framework whose checks were read, and the names that count them."""

    owner: str  # how its version is called
    names: tuple[str, ...]  # of `FRAMEWORKS` and of programs of the same release numbers
    known: tuple[str, ...]


RELEASES: Final = {
    "megatron": Releases(
        "Megatron-Core",
        ("megatron", "megatron-lm", "megatron-core", "mcore"),
        ("0.16", "0.17", "0.18", "0.19"),
    ),
    "torchtitan": Releases("torchtitan", ("torchtitan", "titan", "torch-titan"), ("0.2", "0.3")),
    "deepspeed": Releases("DeepSpeed", ("deepspeed",), ("0.18", "0.19")),
}


def numbers_of(release: str) -> tuple[int, ...]:
    """Return the numbers of a release such as ``0.17``, which compare as releases follow each other."""
    return tuple(int(number) for number in release.split("."))
