"""Machines: accelerators and the network tiers between them. Their fields declare every hardware figure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Annotated, Any, Final, TypeAlias

from traincast.core.errors import InputError, is_whole, raise_problems
from traincast.core.precision import Precision, Rate
from traincast.core.quantities import (
    Bound,
    Column,
    ColumnsEqual,
    FigureSpec,
    document_figures,
    figure_problems,
    figure_specs,
)
from traincast.core.records import replace_fields

ATTENTION_KERNELS: Final = ("fa1", "fa2", "fa3", "cudnn")  # kernels of fused attention, oldest first
CLOCK_ROOF: Final = 0.948  # share of the peak at a given clock: products of idle data, 0.938 to 0.970
# rate -> its peak, and the share of it that products sustain
PEAK_FIELDS: Final[Mapping[Rate, tuple[str, str]]] = {
    "fp32": ("fp32_flops", "fp32_sustained"),
    "16-bit": ("matrix_flops", "matrix_sustained"),
    "fp8": ("fp8_flops", "fp8_sustained"),
    "int8": ("int8_flops", "matrix_sustained"),
    "fp4": ("fp4_flops", "fp4_sustained"),
}


Known: TypeAlias = Column | None  # a figure that may not be known
_flops, _bytes, _rate = (partial(FigureSpec, unit) for unit in ("FLOP/s", "byte", "byte/s"))


def _share(meaning: str, spread: float | None = None) -> FigureSpec:
    return FigureSpec("", meaning, "share", spread=spread)


def _sustained_spec(bits: int) -> FigureSpec:
    return _share(f"share of the peak at {bits} bits that large GEMMs sustain", 0.1)


def _attention(kernel: str, spread: float | None = None) -> FigureSpec:
    return _share(f"share of the peak at 16 bits that {kernel} reaches forward", spread)


@document_figures
@dataclass(frozen=True, kw_only=True, eq=False)
class Accelerator(ColumnsEqual):
    """Accelerator (GPU). Every figure is a number or a column over machines (the leading axes; plans last).

    Raises
    ------
    InputError
        If a figure is not a number, or impossible; all mistakes at once.
    """

    name: str
    matrix_flops: Annotated[Column, _flops("dense peak of the matrix units")]  # at 16 bits
    vector_flops: Annotated[Column, _flops("peak of the vector units")]  # at 16 bits
    vector_fp32_flops: Annotated[Known, _flops("peak of the vector units in single precision")] = None
    fp32_flops: Annotated[Known, _flops("dense peak of the matrix units on 32-bit numbers")] = None  # or TF32
    fp8_flops: Annotated[Known, _flops("dense peak of the matrix units on 8-bit numbers")] = None
    int8_flops: Annotated[Known, _flops("dense peak of the matrix units on 8-bit integers")] = None
    fp4_flops: Annotated[Known, _flops("dense peak of the matrix units on 4-bit numbers")] = None
    # In steady training, under the power limit.
    fp32_sustained: Annotated[Known, _sustained_spec(32)] = None
    matrix_sustained: Annotated[Known, _sustained_spec(16)] = None
    fp8_sustained: Annotated[Known, _sustained_spec(8)] = None
    fp4_sustained: Annotated[Known, _sustained_spec(4)] = None
    # Before the power limit acts, if that differs.
    matrix_burst: Annotated[
        Known, _share("share of the peak at 16 bits that large products reach for a moment")
    ] = None
    hbm_sustained: Annotated[Known, _share("share of the memory bandwidth that kernels achieve", 0.08)] = None
    # If both are known, that part of the traffic of every kernel runs at this bandwidth.
    cache_bytes: Annotated[Known, _bytes("traffic of a kernel that caches hold")] = None
    cache_bandwidth: Annotated[Known, _rate("bandwidth of caches")] = None
    # Of fused attention on long sequences with heads of width 128; a tile of 128 if left out.
    attention_fa1: Annotated[Known, _attention("FlashAttention")] = None
    attention_fa2: Annotated[Known, _attention("FlashAttention-2", 0.1)] = None
    attention_fa3: Annotated[Known, _attention("FlashAttention-3", 0.1)] = None
    attention_cudnn: Annotated[Known, _attention("cuDNN's fused attention", 0.1)] = None
    attention_backward: Annotated[Known, _share("rate of fused attention backward, relative to forward")] = (
        None
    )
    attention_tile: Annotated[
        Known, FigureSpec("", "queries that fused attention works on at once", "count")
    ] = None
    attention_tile_backward: Annotated[Known, FigureSpec("", "the same backward", "count")] = None
    hbm_bandwidth: Annotated[Column, _rate("memory bandwidth")]
    hbm_bytes: Annotated[Column, _bytes("memory capacity")]
    # None where it is not known, which counts as 0; PyTorch and XLA report capacities without it.
    driver_bytes: Annotated[
        Known, FigureSpec("byte", "memory that the driver keeps, which no process can have", "zero")
    ] = None
    # If left out, that of the software (`memory.context_bytes`); 0 of TPUs, where it is the driver's.
    context_bytes: Annotated[Known, FigureSpec("byte", "context of a process and its libraries", "zero")] = (
        None
    )
    # Of cuBLAS and Transformer Engine; counted where software says so (`memory.counts_workspaces`).
    workspace_bytes: Annotated[
        Known, FigureSpec("byte", "workspaces of matrix products that the allocator holds", "zero")
    ] = None
    host_bandwidth: Annotated[Known, _rate("bandwidth to the host's memory, one direction")] = None
    host_bytes: Annotated[Known, _bytes("the host's memory for one accelerator")] = None
    power: Annotated[Known, FigureSpec("W", "power of the accelerator")] = None  # the limit
    # Set by an operator; the data sheet's if left out.
    power_limit: Annotated[Known, FigureSpec("W", "power limit set below that of the data sheet")] = None
    clock_limit: Annotated[
        Known, _share("clock set below the one that the data sheet's peaks are given for, relative to it")
    ] = None
    processors: Annotated[
        int | None, FigureSpec("", "multiprocessors (SMs, CUs, cores of matrix units)", "count", varies=False)
    ] = None

    def __post_init__(self) -> None:
        raise_problems(f"accelerator {self.name}", figure_problems(self))

    @property
    def visible_bytes(self) -> Column:
        """Memory that processes can have: the capacity without what the driver keeps [byte]."""
        return self.hbm_bytes - (0.0 if self.driver_bytes is None else self.driver_bytes)

    def sustained_share(self, rate: Rate, usual: Column) -> Column:
        """Return the share of a peak that large products sustain; `usual` if it is not known."""
        share: Column | None = getattr(self, PEAK_FIELDS[rate][1])
        return usual if share is None else share

    def power_limited_share(self, power_exponent: Column, usual: Column) -> Column:
        """Return the share of the sustained rates that limits of power and clock leave; 1 without.

        Below its power limit a chip's rate grows with a power of it; a clock that is set acts where it is
        below the one that the power limit leaves, at which matrix units reach `CLOCK_ROOF` of their peak.
        """
        left: Column = 1.0
        if self.power_limit is None and self.clock_limit is None:
            return left
        from traincast.core.columns import minimum  # with numpy, which reading a file does not need

        if self.power_limit is not None and self.power is not None:
            left = minimum(self.power_limit / self.power, 1.0) ** power_exponent
        if self.clock_limit is not None:
            left = minimum(left, CLOCK_ROOF * self.clock_limit / self.sustained_share("16-bit", usual))
        return left

    def fused_attention(self, kernel: str, usual: Column) -> Column:
        """Return the share of the 16-bit peak that fused attention ("fa1", "fa2", "fa3", "cudnn") reaches.

        If it is not known, that of the latest older kernel is taken, else of the next one, else `usual`.
        """
        shares = [getattr(self, f"attention_{generation}") for generation in ATTENTION_KERNELS]
        i = ATTENTION_KERNELS.index(kernel)
        return next((share for share in (*shares[i::-1], *shares[i + 1 :]) if share is not None), usual)

    def peak(self, rate: Rate) -> Column:
        """Return the dense peak of the matrix units at a rate [FLOP/s]; `InputError` if there is none."""
        peak: Column | None = getattr(self, PEAK_FIELDS[rate][0])
        if peak is None:
            known = ", ".join(
                name for name, (figure, _) in PEAK_FIELDS.items() if getattr(self, figure) is not None
            )
            raise InputError(
                "precision", [f"{self.name} has no {rate} rate of its matrix units; it has {known}"]
            )
        return peak

    def require(self, recipe: Precision) -> None:
        """Refuse a recipe that the matrix units have no rate for, or no scales: those came with 4 bits."""
        self.peak(recipe.rate)
        if recipe.microscaling and self.fp4_flops is None:
            others = "accelerators with a 4-bit rate do"
            raise InputError("precision", [f"{self.name} has no microscaling for {recipe.name}; {others}"])

    @property
    def host_link(self) -> Column:
        """Bandwidth to the host's memory, one direction [byte/s]; raises `InputError` if it is not known."""
        if self.host_bandwidth is None:
            raise InputError(
                "offload", [f"{self.name} has no host_bandwidth; give it to offload to the host's memory"]
            )
        return self.host_bandwidth


CAPACITY_PATH: Final = "accelerator.hbm_bytes"  # path of the memory capacity, on which no time depends
_INNERMOST = "the innermost tier has"
_ALL_LINKS = "the innermost tier's bandwidth is that of all links of an accelerator"
_LOST_PORTS = "ports that a group cannot make use of on {tier}"
_TAPER = "bandwidth offered to {tier} from below, relative to that upward (oversubscription)"
_RAILS = "switches of {tier} that the ports of a fast domain are spread over (rails)"
_CONGESTION = "time that each doubling of the domains of a group adds on {tier}, relative to it"


def _data_parallel(members: str) -> FigureSpec:
    meaning = f"achieved share for data-parallel groups with {members}, {{tier}}"
    return FigureSpec("", meaning, "share", outer_only=f"{_INNERMOST} no ports to share")


def _torus(meaning: str) -> FigureSpec:
    return FigureSpec("", meaning, "count", varies=False, inner_only="only the innermost tier can be a torus")


def _outer(meaning: str, bound: Bound, why: str) -> FigureSpec:
    return FigureSpec("", meaning, bound, outer_only=why)


def _accelerators(meaning: str) -> FigureSpec:
    return FigureSpec("", f"accelerators {meaning}", "count", varies=False)


@document_figures
@dataclass(frozen=True, kw_only=True, eq=False)
class Tier(ColumnsEqual):
    """Tier of the network. Every figure is a number or a column over machines.

    `size` is that of one domain of the tier; None for the outermost tier. In a `mesh` the accelerators of a
    domain are linked directly rather than by switches: a group of only some of them does not use the links to
    the others. In a torus of `axes` axes, `bandwidth` is that of the two links of an accelerator along one
    axis; 1 axis if all collectives use all links.

    Raises
    ------
    InputError
        If a figure is not a number, or impossible; all mistakes at once.
    """

    name: str
    bandwidth: Annotated[Column, _rate("bandwidth {inside}, {port}one direction")]  # the peak
    efficiency: Annotated[Column, _share("achieved share of the bandwidth {inside}", 0.2)]
    latency: Annotated[Column, FigureSpec("s", "one hop {inside}", "zero", spread=0.5)]  # NCCL's protocol LL
    # In benchmarks; of outer tiers the time added to that of the tiers inside.
    launch: Annotated[Known, FigureSpec("s", "start-up of a collective over {tier}", "zero", spread=0.5)] = (
        None
    )
    simple_latency: Annotated[
        Known, FigureSpec("s", "one hop of the Simple protocol over {tier}", "zero")
    ] = None
    # Over one port, in the innermost tier over all links of an accelerator; half of what is achieved if left
    # out. LL128 reaches more.
    ll_bandwidth: Annotated[Known, _rate("bandwidth of the LL protocol over {tier}")] = None
    ll128_bandwidth: Annotated[Known, _rate("bandwidth of the LL128 protocol {inside}")] = None
    # NCCL chooses protocols by it; if left out, the fastest is taken.
    expected_bandwidth: Annotated[
        Known,
        _rate(
            "bandwidth that NCCL takes {tier} to have, when it chooses a protocol",
            inner_only="only choices inside the innermost tier are modelled",
        ),
    ] = None
    switch_reduction: Annotated[  # NVLink SHARP
        Known,
        _rate(
            "bandwidth of reduction in the switches, one direction",
            inner_only="only switches of the innermost tier are modelled to reduce",
        ),
    ] = None
    ports: Annotated[Column, _outer("ports (NICs) of an accelerator {inside}", "positive", _ALL_LINKS)] = 1.0
    lost_ports: Annotated[Known, _outer(_LOST_PORTS, "zero", f"{_INNERMOST} no ports")] = None
    # 2 for a fat tree of 2:1; 1 if left out.
    taper: Annotated[Known, _outer(_TAPER, "factor", f"{_INNERMOST} no switches below it")] = None
    # Accelerators at one place of their fast domains share one of these switches.
    rails: Annotated[Known, _outer(_RAILS, "count", f"{_INNERMOST} no ports")] = None
    # Flows of several groups on one link; 0 if left out: nccl-tests on Perlmutter say 0.004 (0.000 to 0.008).
    congestion: Annotated[
        Known, _outer(_CONGESTION, "zero", f"{_INNERMOST} switches that no other traffic shares")
    ] = None
    # These two replace `efficiency` where data-parallel groups communicate at the same time, if known for a
    # cluster.
    dp_alone: Annotated[Known, _data_parallel("one member in a domain")] = None
    dp_several: Annotated[Known, _data_parallel("several members")] = None
    # The search space depends on the size: it is no column over machines.
    size: Annotated[int | None, _accelerators("in {domain}")] = None
    # 64 of 72 where spares stay idle; fewer of a leaf where other jobs have the rest.
    used: Annotated[int | None, _accelerators("in {domain} that a job uses")] = None
    mesh: bool = False
    axes: Annotated[int, _torus("axes of a fast domain that is a torus")] = 1
    side: Annotated[int, _torus("accelerators along an axis of it")] = 1

    def __post_init__(self) -> None:
        raise_problems(f"tier {self.name}", figure_problems(self))

    def fast_domains(self, fast: "Tier") -> float:
        """Count the fast domains that a job uses in one domain of the tier, given the innermost tier."""
        if self.used is None:
            return float(self.size or 1) / float(fast.size or 1)
        return float(self.used) / float(fast.used or fast.size or 1)


@dataclass(frozen=True)
class Software:
    """Paths and values of assumptions that were fitted on one system for a stack of the catalogue."""

    stack: str
    figures: tuple[tuple[str, float], ...]


@document_figures
@dataclass(frozen=True, kw_only=True, eq=False)
class System(ColumnsEqual):
    """Cluster: accelerators connected by network tiers, innermost (fastest) first.

    Raises
    ------
    InputError
        If tiers do not nest, or a figure is not positive; all mistakes at once.
    """

    name: str
    accelerator: Accelerator  # type of all accelerators
    tiers: tuple[Tier, ...]  # the fast domain (NVLink, NVSwitch) first; the outermost connects everything
    gpus: Annotated[
        int | None, FigureSpec("", "accelerators of the whole cluster; unlimited if left out", "count")
    ] = None
    price: Annotated[float | None, FigureSpec("$/h", "price of an accelerator per hour")] = None
    node_power: Annotated[
        float | None, FigureSpec("W", "power of a node per accelerator, the accelerator included")
    ] = None
    pue: Annotated[
        float, FigureSpec("", "power of the data centre relative to that of its computers (PUE)", "factor")
    ] = 1.0
    carbon: Annotated[float | None, FigureSpec("g/kWh", "carbon intensity of the electricity")] = None
    # Of an accelerator with its share of node and network.
    failure_hours: Annotated[float | None, FigureSpec("h", "mean time between failures")] = None
    # At which checkpoints are written.
    storage_bandwidth: Annotated[float | None, _rate("bandwidth to storage per accelerator")] = None
    # Reading, decoding and batching, prefetched while the step before runs; as many as are asked if left out.
    input_rate: Annotated[
        float | None,
        FigureSpec("sequence/s", "sequences that the input pipeline delivers for one accelerator"),
    ] = None
    software: tuple[Software, ...] = ()  # assumptions of software stacks fitted on this system
    calibrated_to: str = ""  # the measurements of a site that its figures are fitted to, in words
    calibrated_with: tuple[tuple[str, str], ...] = ()  # software of those runs, of dense models and experts
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)  # of each figure
    taken: str = field(default="", compare=False, repr=False)  # what a name was taken for, in a sentence

    def __post_init__(self) -> None:
        sizes = [tier.size for tier in self.tiers]
        inner = [size for size in sizes[:-1] if size is not None and is_whole(size)]
        nested = all(outer > size and outer % size == 0 for size, outer in pairwise(inner))
        if len(inner) < 1 or len(inner) != len(sizes) - 1 or sizes[-1] is not None or not nested:
            wrong = (
                f"tiers of sizes {sizes}: must be at least two, each but the last with a size that is a"
                " multiple of the one before, the last without"
            )
            raise InputError(f"system {self.name}", [wrong])
        raise_problems(
            f"system {self.name}", [*used_accelerator_problems(self.tiers).values(), *figure_problems(self)]
        )

    @property
    def is_cpu(self) -> bool:
        """Whether the accelerators are CPUs, the only ones whose caches have a bandwidth of their own."""
        return self.accelerator.cache_bandwidth is not None

    @property
    def has_own_software(self) -> bool:
        """Whether times on it are fitted to software of its own, whatever that is."""
        return bool(self.software or self.calibrated_to or self.is_cpu)

    @property
    def is_tpu(self) -> bool:
        """Whether the accelerators are TPUs, which run what XLA compiles."""
        return self.accelerator.name.lower().startswith("tpu")

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
        """Accelerators in one fast domain (the paper's NVS), those that a job uses."""
        return int(self.tiers[0].used or self.tiers[0].size or 1)

    def domain(self, gpus: int) -> int:
        """Count the accelerators of a fast domain that a job uses: the largest divisor of its size that fits.

        A job on 2048 accelerators takes 64 of the 72 of each NVL72 domain.
        """
        size = self.fast_domain
        return size if gpus <= size else next(n for n in range(size, 0, -1) if gpus % n == 0)

    def parts(self) -> dict[str, Accelerator | Tier]:
        """Return accelerator and tiers by path in a system file, such as ``"network.0"``."""
        return {"accelerator": self.accelerator} | {f"network.{i}": tier for i, tier in enumerate(self.tiers)}

    def figures(self) -> dict[str, Column]:
        """Return every figure that can be a column, by its path, such as ``"network.0.bandwidth"``."""
        return self._figures.copy()

    @cached_property
    def _figures(self) -> dict[str, Column]:
        values = {
            f"{path}.{name}": getattr(part, name)
            for path, part in self.parts().items()
            for name, spec in figure_specs(type(part)).items()
            if spec.varies
        }
        return {path: value for path, value in values.items() if value is not None}

    def specs(self) -> dict[str, FigureSpec]:
        """Return the declaration of every figure that can be a column, known or not, by its path."""
        return {
            f"{path}.{name}": spec
            for path, part in self.parts().items()
            for name, spec in figure_specs(type(part)).items()
            if spec.varies
        }

    def with_figures(self, figures: Mapping[str, object]) -> "System":
        """Return the system with some figures replaced, each under its path in a system file."""
        problems: list[str] = []

        def replace_figures(path: str, part: Any) -> Any:
            values = {
                item.name: figures[f"{path}.{item.name}"]
                for item in fields(part)
                if f"{path}.{item.name}" in figures
            }
            try:
                return replace_fields(part, values) if values else part
            except InputError as error:
                problems.extend(f"{path}.{problem}" for problem in error.problems)

        accelerator, *tiers = (replace_figures(path, part) for path, part in self.parts().items())
        raise_problems(f"system {self.name}", problems)
        return replace(self, accelerator=accelerator, tiers=tuple(tiers))

    def with_visible(self, nbytes: Column) -> "System":
        """Return the system with as much memory as leaves so much to processes [byte]."""
        kept = self.accelerator.driver_bytes
        return self.with_figures({CAPACITY_PATH: nbytes if kept is None else nbytes + kept})

    def machines(self) -> int:
        """Count the machines: the length of the figures that are columns, or 1."""
        return max(getattr(value, "size", 1) for value in self._figures.values())

    def take(self, index: object) -> "System":
        """Return the system with some rows of the figures that are columns."""
        columns = self.columns()
        return self.with_figures({path: value[index] for path, value in columns.items()}) if columns else self

    def columns(self) -> dict[str, Any]:
        """Return the figures that are columns over machines, by path."""
        return {path: value for path, value in self._figures.items() if getattr(value, "ndim", 0)}


def used_accelerator_problems(tiers: Sequence[Any]) -> dict[int, str]:
    """Return what is wrong with the accelerators that a job uses of a domain, by number of the tier.

    Each tier has `used` and `size`, None where it has none.
    """
    problems = {}
    (fast, *_) = tiers
    for i, tier in enumerate(tiers):
        unit = 1 if i == 0 else fast.used or fast.size
        if tier.used is not None and (tier.size is None or tier.used > tier.size or tier.used % unit):
            multiple = f"a multiple of {unit:g}, " if unit > 1 else ""
            allowed = f"{multiple}at most {tier.size:g}" if tier.size else "left out, without domains"
            problems[i] = f"network.{i}.used = {tier.used:g}: must be {allowed}"
    return problems


# Paths of the figures that a time on an accelerator depends on.
_ACCELERATOR_RATES: Final = {f"accelerator.{name}" for name in figure_specs(Accelerator)} - {CAPACITY_PATH}


def changes_accelerator(paths: Iterable[str]) -> bool:
    """Return whether any of these figures is one of the accelerator, its memory capacity aside."""
    return not _ACCELERATOR_RATES.isdisjoint(paths)
