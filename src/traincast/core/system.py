"""Machines: accelerators, and the network tiers that connect them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, Final

from traincast.core.errors import InputError, is_whole
from traincast.core.precision import Rate
from traincast.core.quantities import Column

CLUSTER_FIGURES: Final = (
    "gpus",
    "price",
    "node_power",
    "pue",
    "carbon",
    "failure_hours",
    "storage_bandwidth",
)
NON_FIGURES: Final = (
    ".name",
    ".size",
    ".processors",
    ".mesh",
    ".axes",
    ".side",
)  # cannot be columns over machines
MAY_BE_ZERO: Final = ("latency", "launch", "lost_ports")
ATTENTION_KERNELS: Final = ("fa1", "fa2", "fa3", "cudnn")  # kernels of fused attention, oldest first


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """Accelerator (GPU). Every figure is a number or a column over machines (machines are the leading axes, plans the last).

    Parameters
    ----------
    name : str
        Name of the accelerator.
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
        Dense peak of the matrix units on 32-bit (TF32 if there is no other), 8-bit (floats, integers) and 4-bit numbers [FLOP/s].
    fp32_sustained, matrix_sustained, fp8_sustained, fp4_sustained : Column, optional
        Shares of the peaks at 32, 16, 8 and 4 bits that large products sustain in steady training, under the power limit.
    matrix_burst : Column, optional
        Share of the peak at 16 bits that products reach briefly, before the power limit acts; if that differs.
    hbm_sustained : Column, optional
        Share of `hbm_bandwidth` that kernels which read and write achieve.
    cache_bytes, cache_bandwidth : Column, optional
        Traffic of a kernel that caches hold [byte], and their bandwidth [byte/s]; if both are known, that part of the traffic of
        every kernel runs at this bandwidth.
    attention_fa1, attention_fa2, attention_fa3, attention_cudnn : Column, optional
        Shares of the peak at 16 bits that kernels of fused attention reach forward, on long sequences with heads of width 128.
    attention_backward : Column, optional
        Rate of these kernels backward, relative to forward.
    attention_tile : Column, optional
        Queries in a tile of these kernels forward; 128 if left out.
    host_bandwidth : Column, optional
        Bandwidth to the host's memory, one direction [byte/s].
    host_bytes : Column, optional
        Host memory per accelerator [byte].
    power : Column, optional
        Power limit [W].
    processors : int, optional
        Multiprocessors (SMs, CUs, cores of matrix units).
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
        """Return the share of a peak that large products sustain; `usual` if it is not known.

        Parameters
        ----------
        rate : {"fp32", "16-bit", "fp8", "int8", "fp4"}
            Which peak.
        usual : Column
            Share for accelerators whose own is not known.
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
        """Return the share of the peak at 16 bits that a kernel of fused attention reaches.

        Parameters
        ----------
        kernel : {"fa1", "fa2", "fa3", "cudnn"}
            Generation of the kernel. If its share is not known, that of the latest older kernel is taken, else of the next one.
        usual : Column
            Share for accelerators with none known.
        """
        shares = [getattr(self, f"attention_{generation}") for generation in ATTENTION_KERNELS]
        i = ATTENTION_KERNELS.index(kernel)
        return next((share for share in (*shares[i::-1], *shares[i + 1 :]) if share is not None), usual)

    def peak(self, rate: Rate) -> Column:
        """Return the dense peak of the matrix units at a rate [FLOP/s].

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
            raise InputError(
                "precision", [f"{self.name} has no {rate} rate of its matrix units; it has {known}"]
            )
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
            raise InputError(
                "offload", [f"{self.name} has no host_bandwidth; give it to offload to the host's memory"]
            )
        return self.host_bandwidth


@dataclass(frozen=True, kw_only=True)
class Tier:
    """Tier of the network.

    Parameters
    ----------
    name : str
        Name, for instance ``"nvlink"`` or ``"infiniband"``.
    bandwidth : Column
        Peak of one port, one direction [byte/s].
    efficiency : Column
        Share of `bandwidth` that collectives achieve.
    latency : Column
        Time of one hop [s].
    ports : Column
        Ports (NICs) per accelerator.
    size : int, optional
        Accelerators in one domain of the tier; None for the outermost tier.
    mesh : bool
        Whether the accelerators of a domain are linked directly (full mesh) rather than by switches: a group of only some of them
        does not use the links to the others.
    axes, side : int
        Axes of a torus, and accelerators along one axis; `bandwidth` is that of the two links of an accelerator along one axis.
        1 axis if all collectives use all links.
    launch : Column, optional
        Start-up time of a collective over the tier, in benchmarks; for outer tiers the time added to that of the tiers inside [s].
    simple_latency : Column, optional
        Time of one hop with the Simple protocol of NCCL; `latency` is that of the low-latency protocol LL [s].
    ll_bandwidth : Column, optional
        Bandwidth of the low-latency protocol over one port, in the innermost tier over all links of an accelerator; half of the
        achieved bandwidth if left out. LL128 reaches more [byte/s].
    switch_reduction : Column, optional
        Bandwidth of an accelerator for reductions in the switches of the innermost tier (NVLink SHARP), if they can [byte/s].
    lost_ports : Column, optional
        Ports of the members of a group that the group cannot use; 0 by default.
    dp_alone, dp_several : Column, optional
        Replaces `efficiency` for data-parallel groups that communicate at the same time: share of `bandwidth` they achieve with one
        member in a domain, and with several; if known for a cluster.
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
    """Assumptions of a software stack that were fitted to measurements on one system.

    Parameters
    ----------
    stack : str
        Name of the stack in the catalogue.
    figures : tuple of (str, float)
        Paths of `Assumptions` and their values, which replace the catalogue's.
    """

    stack: str
    figures: tuple[tuple[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class System:
    """Cluster: accelerators connected by network tiers, innermost (fastest) first.

    Parameters
    ----------
    name : str
        Name of the system.
    accelerator : Accelerator
        Type of all accelerators.
    tiers : tuple of Tier
        The fast domain (NVLink, NVSwitch) first; the outermost tier connects everything.
    gpus : int, optional
        Accelerators of the whole cluster; unlimited if left out.
    price : float, optional
        Price of an accelerator per hour [$/h].
    node_power : float, optional
        Power of a node per accelerator, the accelerator included [W].
    pue : float
        Power usage effectiveness: power of the data centre relative to that of its computers.
    carbon : float, optional
        Carbon intensity of the electricity [gCO2e/kWh].
    failure_hours : float, optional
        Mean time between failures of one accelerator with its share of the node and network [h].
    storage_bandwidth : float, optional
        Bandwidth to storage per accelerator, at which checkpoints are written [byte/s].
    software : tuple of Software
        Assumptions of software stacks fitted on this system.
    sources : mapping of str to str
        Source of each figure.

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
        cluster = {name: getattr(self, name) for name in CLUSTER_FIGURES}
        figures = {
            path: value
            for path, value in (self.figures() | cluster).items()
            if isinstance(value, int | float)
        }
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
        """Innermost tier, inside a fast domain."""
        return self.tiers[0]

    @property
    def slow(self) -> Tier:
        """Outermost tier."""
        return self.tiers[-1]

    @property
    def fast_domain(self) -> int:
        """Accelerators in one fast domain (the paper's NVS)."""
        return int(self.tiers[0].size or 1)

    def domain(self, gpus: int) -> int:
        """Count the accelerators of a fast domain that a job uses: the largest divisor of the job's size that the domain holds.

        A job on 2048 accelerators takes 64 of the 72 of each NVL72 domain.
        """
        size = self.fast_domain
        return size if gpus <= size else next(n for n in range(size, 0, -1) if gpus % n == 0)

    def figures(self) -> dict[str, Column]:
        """Return every figure by its path in a system file, such as ``"accelerator.hbm_bytes"`` or ``"network.0.bandwidth"``.

        The sizes of tiers are left out: they cannot be columns, since the search space depends on them.
        """
        parts = {"accelerator": self.accelerator} | {
            f"network.{i}": tier for i, tier in enumerate(self.tiers)
        }
        values = {
            f"{path}.{figure.name}": getattr(part, figure.name)
            for path, part in parts.items()
            for figure in fields(part)
        }
        return {
            path: value
            for path, value in values.items()
            if value is not None and not path.endswith(NON_FIGURES)
        }

    def with_figures(self, figures: Mapping[str, Any]) -> "System":
        """Return the system with some figures replaced, each under its path in a system file."""

        def changed(part: Any, path: str) -> Any:
            names = {figure.name for figure in fields(part)}
            return replace(
                part, **{name: figures[f"{path}.{name}"] for name in names if f"{path}.{name}" in figures}
            )

        tiers = tuple(changed(tier, f"network.{i}") for i, tier in enumerate(self.tiers))
        return replace(self, accelerator=changed(self.accelerator, "accelerator"), tiers=tiers)

    def machines(self) -> int:
        """Count the machines: the length of the figures that are columns, or 1."""
        return max(getattr(value, "size", 1) for value in self.figures().values())

    def take(self, index: Any) -> "System":
        """Return the system with some rows of the figures that are columns."""
        columns = self.columns()
        return self.with_figures({path: value[index] for path, value in columns.items()}) if columns else self

    def columns(self) -> dict[str, Any]:
        """Return the figures that are columns over machines, by path."""
        return {path: value for path, value in self.figures().items() if getattr(value, "ndim", 0)}
