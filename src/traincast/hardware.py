"""The machine: an accelerator and the tiers of network that join many of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from traincast.columns import Column


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One accelerator (GPU). Every figure may be a number or a column over machines.

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
    """

    name: str
    accelerator: Accelerator
    tiers: tuple[Tier, ...]
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

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
        size = self.tiers[0].size
        assert size is not None, "the loader requires it of every tier but the outermost"
        return size
