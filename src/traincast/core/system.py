"""The machine: an accelerator and the tiers of network that join many of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, Final

from traincast.core.errors import InputError, is_whole
from traincast.core.precision import Rate
from traincast.core.quantities import Column

OWN_FIGURES: Final = ("gpus", "price", "node_power", "pue", "carbon", "failure_hours", "storage_bandwidth")
NO_FIGURES: Final = (".name", ".size", ".processors", ".mesh", ".axes", ".side")  # no columns over machines
MAY_BE_ZERO: Final = ("latency", "launch", "lost_ports")
ATTENTION_KERNELS: Final = ("fa1", "fa2", "fa3", "cudnn")  # kernels of fused attention, each but the first a successor


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One accelerator (GPU). Every figure may be a number or a column over machines (then plans are the last axis, machines lead).

    Parameters
    ----------
    name : str
        Name it is known by.
    matrix_flops : Column
        Dense peak of the matrix units at 16 bits [FLOP/s].
    vector_flops : Column
        Peak of the vector units at 16 bits [FLOP/s].
    hbm_bandwidth : Column
        Peak memory bandwidth [byte/s].
    hbm_bytes : Column
        Memory capacity [byte].
    vector_fp32_flops : Column, optional
        Peak of the vector units in single precision [FLOP/s].
    fp32_flops, fp8_flops, int8_flops, fp4_flops : Column, optional
        Dense peak of the matrix units on 32-bit (TF32 where there is no other), 8-bit (integers apart) and 4-bit numbers [FLOP/s].
    fp32_sustained, matrix_sustained, fp8_sustained, fp4_sustained : Column, optional
        Shares of the peaks at 32, 16, 8 and 4 bits that large products sustain, step after step, under the power limit.
    matrix_burst : Column, optional
        Share of the peak at 16 bits that products sustain for a moment, before the power limit acts; where that differs.
    hbm_sustained : Column, optional
        Share of `hbm_bandwidth` that kernels which read and write achieve.
    cache_bytes, cache_bandwidth : Column, optional
        Traffic of a kernel that its caches hold [byte], and their bandwidth [byte/s]; where both are known, as much of the traffic
        of every kernel runs at that.
    attention_fa1, attention_fa2, attention_fa3, attention_cudnn : Column, optional
        Shares of the peak at 16 bits that kernels of fused attention reach forward, on long rows of 128-wide heads.
    attention_backward : Column, optional
        Rate of those kernels backward, relative to forward.
    attention_tile : Column, optional
        Queries that a multiprocessor works on at once in those kernels forward; 128 where it is not given.
    host_bandwidth : Column, optional
        Bandwidth to the host's memory, one direction [byte/s].
    host_bytes : Column, optional
        The host's memory for one accelerator [byte].
    power : Column, optional
        Power the accelerator may draw [W].
    processors : int, optional
        Multiprocessors (SMs, CUs, cores of matrix units) that share the work of a kernel.
    """

    name: str
    matrix_flops: Column
    vector_flops: Column
    hbm_bandwidth: Column
    hbm_bytes: Column
    vector_fp32_flops: Column | None = None
    fp32_flops: Column | None = None
    fp8_flops: Column | None = None
    int8_flops: Column | None = None
    fp4_flops: Column | None = None
    fp32_sustained: Column | None = None
    matrix_sustained: Column | None = None
    fp8_sustained: Column | None = None
    fp4_sustained: Column | None = None
    matrix_burst: Column | None = None
    hbm_sustained: Column | None = None
    cache_bytes: Column | None = None
    cache_bandwidth: Column | None = None
    attention_fa1: Column | None = None
    attention_fa2: Column | None = None
    attention_fa3: Column | None = None
    attention_cudnn: Column | None = None
    attention_backward: Column | None = None
    attention_tile: Column | None = None
    host_bandwidth: Column | None = None
    host_bytes: Column | None = None
    power: Column | None = None
    processors: int | None = None

    def sustained(self, rate: Rate, usual: Column) -> Column:
        """Share of a peak that large products sustain; the `usual` one where it is not known.

        Parameters
        ----------
        rate : {"fp32", "16-bit", "fp8", "int8", "fp4"}
            The rate.
        usual : Column
            Share for accelerators of which it is not known.

        Returns
        -------
        Column
            The share.
        """
        shares = {
            "fp32": self.fp32_sustained,
            "16-bit": self.matrix_sustained,
            "fp8": self.fp8_sustained,
            "int8": self.matrix_sustained,
            "fp4": self.fp4_sustained,
        }
        share = shares.get(rate)
        return usual if share is None else share

    def fused_attention(self, kernel: str, usual: Column) -> Column:
        """Share of the peak at 16 bits that a kernel of fused attention reaches.

        Parameters
        ----------
        kernel : {"fa1", "fa2", "fa3", "cudnn"}
            The generation. Where its share is not known, that of the latest before it stands for it, else of the first after it.
        usual : Column
            Share for accelerators of which none is known.

        Returns
        -------
        Column
            The share.
        """
        shares = [getattr(self, f"attention_{one}") for one in ATTENTION_KERNELS]
        own = ATTENTION_KERNELS.index(kernel)
        return next((share for share in (*shares[own::-1], *shares[own + 1 :]) if share is not None), usual)

    def peak(self, rate: Rate) -> Column:
        """Dense peak of the matrix units at a rate [FLOP/s].

        Raises
        ------
        InputError
            If the accelerator has no such rate.
        """
        peaks = {
            "fp32": self.fp32_flops,
            "16-bit": self.matrix_flops,
            "fp8": self.fp8_flops,
            "int8": self.int8_flops,
            "fp4": self.fp4_flops,
        }
        peak = peaks[rate]
        if peak is None:
            known = ", ".join(name for name, value in peaks.items() if value is not None)
            raise InputError("precision", [f"{self.name} has no {rate} rate of its matrix units; it has {known}"])
        return peak

    @property
    def host_link(self) -> Column:
        """Bandwidth to the host's memory, one direction [byte/s].

        Raises
        ------
        InputError
            If it is not known.
        """
        if self.host_bandwidth is None:
            raise InputError("offload", [f"{self.name} has no host_bandwidth; give it to offload to the host's memory"])
        return self.host_bandwidth


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
    mesh : bool
        Whether the accelerators of a domain are linked one to one rather than by switches: a group that leaves some of them out
        does not use their links.
    axes, side : int
        Axes of a torus, and accelerators along one of them: `bandwidth` is that of the two links of an accelerator along one axis.
        1 axis for links that all collectives use.
    launch : Column, optional
        Start-up of a collective that crosses the tier, in benchmarks; outside the innermost what it takes more [s].
    simple_latency : Column, optional
        Time of one hop in the Simple protocol of collectives; `latency` is that of the low-latency protocol LL [s].
    ll_bandwidth : Column, optional
        Bandwidth of the low-latency protocol over one port; in the innermost tier of an accelerator, half of what is achieved
        unless it says otherwise (LL128) [byte/s].
    switch_reduction : Column, optional
        What an accelerator sends and receives while switches of the innermost tier reduce (NVLink SHARP), if they can [byte/s].
    lost_ports : Column, optional
        Ports of a domain that a group cannot make use of, of those its members have; 0 by default.
    dp_alone, dp_several : Column, optional
        In place of `efficiency`: share of `bandwidth` that data-parallel groups reach which are at work side by side, each with one
        member in a domain, and with several; where a cluster is known to behave so.
    """

    name: str
    bandwidth: Column
    efficiency: Column
    latency: Column
    ports: Column = 1.0
    size: int | None = None
    mesh: bool = False
    axes: int = 1
    side: int = 1
    launch: Column | None = None
    simple_latency: Column | None = None
    ll_bandwidth: Column | None = None
    switch_reduction: Column | None = None
    lost_ports: Column | None = None
    dp_alone: Column | None = None
    dp_several: Column | None = None


@dataclass(frozen=True)
class Software:
    """What was found of a software stack on one system.

    Parameters
    ----------
    stack : str
        Its name in the catalogue.
    figures : tuple of (str, float)
        Fields of `Assumptions` and their values, in place of the catalogue's.
    """

    stack: str
    figures: tuple[tuple[str, float], ...]


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
        The fast domain (NVLink, NVSwitch) first; the outermost joins everything.
    gpus : int, optional
        Accelerators of the whole cluster, where it has an end.
    price : float, optional
        Price of an accelerator for an hour [$/h].
    node_power : float, optional
        Power of a node's share for an accelerator, accelerator included [W].
    pue : float
        Power of the data centre relative to that of its computers.
    carbon : float, optional
        Carbon of the grid's electricity [gCO2e/kWh].
    failure_hours : float, optional
        Mean time between failures of one accelerator and its share of the rest [h].
    storage_bandwidth : float, optional
        Bandwidth to storage for an accelerator, at which checkpoints are written [byte/s].
    software : tuple of Software
        What was found of software stacks on this very system.
    sources : mapping of str to str
        Where each figure comes from.

    Raises
    ------
    InputError
        If tiers do not nest, or a figure is not positive; all mistakes at once.
    """

    name: str
    accelerator: Accelerator
    tiers: tuple[Tier, ...]
    gpus: int | None = None
    price: float | None = None
    node_power: float | None = None
    pue: float = 1.0
    carbon: float | None = None
    failure_hours: float | None = None
    storage_bandwidth: float | None = None
    software: tuple[Software, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        sizes = [tier.size for tier in self.tiers]
        inner = [size for size in sizes[:-1] if size is not None and is_whole(size)]
        nested = all(outer > size and outer % size == 0 for size, outer in pairwise(inner))
        if len(inner) < 1 or len(inner) != len(sizes) - 1 or sizes[-1] is not None or not nested:
            wrong = (
                f"tiers of sizes {sizes}: must be at least two, each but the last with a size that is a multiple of the one before,"
                " the last without"
            )
            raise InputError(f"system {self.name}", [wrong])
        own = {name: getattr(self, name) for name in OWN_FIGURES}
        figures = {path: value for path, value in (self.figures() | own).items() if isinstance(value, int | float)}
        problems = [
            f"{path} = {value!r}: must be above 0"
            for path, value in figures.items()
            if not value > 0 and not path.endswith(MAY_BE_ZERO)
        ]
        problems += [
            f"{path} = {value!r}: must be at least 0"
            for path, value in figures.items()
            if not value >= 0 and path.endswith(MAY_BE_ZERO)
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

    def domain(self, gpus: int) -> int:
        """Accelerators of a fast domain that a job uses: all of them, or the largest divisor of the job below that.

        A job on 2048 accelerators takes 64 of the 72 of each NVL72 domain.
        """
        size = self.fast_domain
        return size if gpus <= size else next(n for n in range(size, 0, -1) if gpus % n == 0)

    def figures(self) -> dict[str, Column]:
        """Every figure by its path in a system file, such as ``"accelerator.hbm_bytes"`` or ``"network.0.bandwidth"``.

        The sizes of tiers are left out: they are no columns, since the search space depends on them.
        """
        parts = {"accelerator": self.accelerator} | {f"network.{i}": tier for i, tier in enumerate(self.tiers)}
        named = {f"{path}.{one.name}": getattr(part, one.name) for path, part in parts.items() for one in fields(part)}
        return {path: value for path, value in named.items() if value is not None and not path.endswith(NO_FIGURES)}

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
        columns = self.columns()
        return self.with_figures({path: value[index] for path, value in columns.items()}) if columns else self

    def columns(self) -> dict[str, Any]:
        """The figures that are columns over machines."""
        return {path: value for path, value in self.figures().items() if getattr(value, "ndim", 0)}
