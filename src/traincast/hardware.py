"""The machine: an accelerator and the tiers of network that join many of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from traincast.columns import Column
from traincast.errors import InputError, is_whole


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One accelerator (GPU). Every figure may be a number or a column over machines (then plans are the last axis, machines lead).

    Parameters
    ----------
    name : str
        Name it is known by.
    matrix_flops : Column
        Dense peak of the matrix units at the training precision [FLOP/s].
    vector_flops : Column
        Peak of the vector units at the training precision [FLOP/s].
    hbm_bandwidth : Column
        Peak memory bandwidth [byte/s].
    hbm_bytes : Column
        Memory capacity [byte].
    vector_fp32_flops : Column, optional
        Peak of the vector units in single precision [FLOP/s].
    """

    name: str
    matrix_flops: Column
    vector_flops: Column
    hbm_bandwidth: Column
    hbm_bytes: Column
    vector_fp32_flops: Column | None = None


@dataclass(frozen=True, kw_only=True)
class Tier:
    """One tier of the network.

    Parameters
    ----------
    name : str
        For instance ``"nvlink"`` or ``"infiniband"``.
    bandwidth : Column
        Peak of one port, one direction [byte/s].
    efficiency : Column
        Share of `bandwidth` that collectives achieve.
    latency : Column
        Time of one hop [s].
    ports : Column
        Ports (NICs) per accelerator.
    size : int, optional
        Accelerators one domain of the tier joins; None for the outermost tier.
    """

    name: str
    bandwidth: Column
    efficiency: Column
    latency: Column
    ports: Column = 1.0
    size: int | None = None


@dataclass(frozen=True, kw_only=True)
class System:
    """A cluster: `accelerator` joined by `tiers` of network, innermost (fastest) first.

    Parameters
    ----------
    name : str
        Name it is known by.
    accelerator : Accelerator
        The accelerator.
    tiers : tuple of Tier
        Two tiers: the fast domain (NVLink, NVSwitch) and the network between domains.
    sources : mapping of str to str
        Where each figure comes from.

    Raises
    ------
    InputError
        If there are not two tiers, the inner one with a size, or a figure is not positive; all mistakes at once.
    """

    name: str
    accelerator: Accelerator
    tiers: tuple[Tier, ...]
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        sizes = [tier.size for tier in self.tiers]
        if len(sizes) != 2 or not is_whole(sizes[0]) or sizes[1] is not None:
            wrong = f"tiers of sizes {sizes}: must be two, the fast domain with its size and the network between domains without"
            raise InputError(f"system {self.name}", [wrong])
        figures = {path: value for path, value in self.figures().items() if isinstance(value, int | float)}
        problems = [
            f"{path} = {value!r}: must be above 0" for path, value in figures.items() if not value > 0 and "latency" not in path
        ]
        problems += [
            f"{path} = {value!r}: must be at least 0" for path, value in figures.items() if not value >= 0 and "latency" in path
        ]
        if problems:
            raise InputError(f"system {self.name}", problems)

    @property
    def fast(self) -> Tier:
        """Network inside a fast domain."""
        return self.tiers[0]

    @property
    def slow(self) -> Tier:
        """Network between fast domains."""
        return self.tiers[-1]

    @property
    def fast_domain(self) -> int:
        """Accelerators in one fast domain (the paper's NVS)."""
        return int(self.tiers[0].size or 1)

    def figures(self) -> dict[str, Column]:
        """Every figure by its path in a system file, such as ``"accelerator.hbm_bytes"`` or ``"network.0.bandwidth"``.

        The sizes of tiers are left out: they are no columns, since the search space depends on them.
        """
        parts = {"accelerator": self.accelerator} | {f"network.{i}": tier for i, tier in enumerate(self.tiers)}
        named = {f"{path}.{one.name}": getattr(part, one.name) for path, part in parts.items() for one in fields(part)}
        return {path: value for path, value in named.items() if value is not None and not path.endswith((".name", ".size"))}

    def with_figures(self, figures: Mapping[str, Any]) -> "System":
        """The system with some figures replaced, each under its path in a system file."""

        def changed(part: Any, path: str) -> Any:
            names = {one.name for one in fields(part)}
            return replace(part, **{name: figures[f"{path}.{name}"] for name in names if f"{path}.{name}" in figures})

        tiers = tuple(changed(tier, f"network.{i}") for i, tier in enumerate(self.tiers))
        return replace(self, accelerator=changed(self.accelerator, "accelerator"), tiers=tiers)

    def machines(self) -> int:
        """How many machines this is: the length of the figures that are columns, or 1."""
        return max(getattr(value, "size", 1) for value in self.figures().values())

    def take(self, index: Any) -> "System":
        """Rows of the figures that are columns."""
        return self.with_figures({path: value[index] for path, value in self.columns().items()})

    def columns(self) -> dict[str, Any]:
        """The figures that are columns over machines."""
        return {path: value for path, value in self.figures().items() if getattr(value, "ndim", 0)}
