"""Limits of data movement to clusters and training runs (Epoch AI's notebook, arXiv 2411.01137).

`data_movement.py` gives the time of one layer; this module applies it to clusters, and to training runs of a
fixed length.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Final

import numpy as np

from traincast.analysis.data_movement import (
    SUSTAINED,
    BoundColumns,
    Bounds,
    Clusters,
    MovementDevice,
    MovementWork,
    ResourceSeconds,
    best_shardings,
    end_of_batch,
    layer_seconds,
    micro_batch,
    seconds_by_bound,
    utilisation,
)
from traincast.catalog import as_system, load_accelerator, load_system, systems_with
from traincast.core import (
    INLINE,
    KEY,
    Accelerator,
    Column,
    Doc,
    ErrorCollector,
    Floats,
    InputError,
    Ints,
    Result,
    System,
    to_si,
    whole_number_problems,
)

WORD_BYTES: Final = 2.0  # a word of 16 bits [byte]
EXAMPLE_LAYER: Final = (16384, 5 * 16384)  # widths of the notebook's example
EXAMPLE_TOKENS: Final = 2048**2  # batch of the notebook's example: 2048 sequences of 2048 tokens
CLUSTERS: Final = tuple(4**k for k in range(1, 12))
DAYS: Final = 365.25 / 4  # [day] three months, as in arXiv 2411.01137
TOKENS_PER_PARAMETER: Final = 20.0  # of a compute-optimal model (Chinchilla, arXiv 2203.15556)
OUTPUT_OVER_INPUT: Final = 5.0  # output over input width of every layer, as in the notebook's example
# Width over depth: 12288 / 96 = 128 of GPT-3, 16384 / 126 = 130 of Llama 3.1 405B.
WIDTH_OVER_DEPTH: Final = 128.0
# FLOP and batch [token] of the largest run that publishes both: Llama 3.1 405B, arXiv 2407.21783.
LARGEST_RUN: Final = (3.8e25, 16 * 2.0**20)
BATCH_GROWTH: Final = 1 / 6  # exponent of training compute: the cube root of the model's size; a choice
TRAINING_FLOPS: Final = 10.0 ** np.arange(24, 36.01, 0.5)  # range of training compute [FLOP]
EXCESS: Final = 2.0 ** np.arange(0, 5.01, 0.25)  # accelerators relative to those needed at full utilisation
WIDTH_SHARDS: Final = 2.0 ** np.arange(0, 14.5, 0.5)  # shards of a width tried for training runs
HALF_OF_LARGEST: Final = 0.5  # of the largest utilisation
TENTH_OF_LARGEST: Final = 0.1


@dataclass(frozen=True, kw_only=True)
class Training(BoundColumns):
    """Training runs of a fixed length, each on the fewest accelerators that finish in time, in columns.

    `gpus` and `utilisation` are NaN where even 32 times as many as full utilisation needs do not finish in
    time.
    """

    days: float  # length of every run [day]
    flops: Floats  # training compute [FLOP]
    parameters: Floats  # of the model
    hidden: Floats  # width of the model
    tokens: Floats  # of a batch [token]
    gpus: Floats

    def falls_to(self, utilisation: float) -> float | None:
        """Return the training compute at which utilisation falls to a value [FLOP]; None if it does not."""
        low = np.flatnonzero(~(self.utilisation > utilisation))
        if not len(low) or not low[0] or np.isnan(self.utilisation[low[0]]):
            return None
        i = low[0]
        pair = np.log(self.utilisation[i - 1 : i + 1])
        return float(np.exp(np.interp(-np.log(utilisation), -pair, np.log(self.flops[i - 1 : i + 1]))))


class ClusterRow(Result):
    """The best sharding on one number of accelerators; None where the layer cannot be cut into that many."""

    gpus: Annotated[float, Doc("accelerators")]
    tp_in: Annotated[float | None, Doc("ranks that the input width is sharded over")]
    tp_out: Annotated[float | None, Doc("ranks that the output width is sharded over")]
    dp: Annotated[float | None, Doc("ranks that the batch is sharded over")]
    seconds: Annotated[float | None, Doc("time of a batch", "s")]
    bounds: Annotated[Bounds, INLINE]


class RunRow(Result):
    """A training run of one compute; None where it does not finish in time."""

    flops: Annotated[float, Doc("training compute", "FLOP")]
    parameters: Annotated[float | None, Doc("parameters of the model")]
    hidden: Annotated[float | None, Doc("hidden width of the model")]
    tokens: Annotated[float | None, Doc("tokens of a batch", "token")]
    gpus: Annotated[float | None, Doc("fewest accelerators that finish in time")]
    bounds: Annotated[Bounds, INLINE]


class LayerWidths(Result):
    """Widths of a layer."""

    d_in: Annotated[int, Doc("input width")]
    d_out: Annotated[int, Doc("output width")]


class ShardedLayer(Result):
    """One given sharding of the layer, which need not divide anything."""

    tp_in: Annotated[float, Doc("ranks that the input width is sharded over")]
    tp_out: Annotated[float, Doc("ranks that the output width is sharded over")]
    dp: Annotated[float, Doc("ranks that the batch is sharded over")]
    micro_batch: Annotated[ResourceSeconds, Doc("forward and backward of a micro-batch")]
    end_of_batch: Annotated[ResourceSeconds, Doc("all-reduce of the gradients over the replicas")]
    seconds: Annotated[float, Doc("time of a batch", "s")]
    utilisation: Annotated[float, Doc("share of the dense peak")]


class Limits(Result):
    """Limits that data movement sets on a device."""

    device: Annotated[MovementDevice, Doc("peaks of the accelerator and its network", place=-1)]
    layer: tuple[int, int]  # input and output width of the layer of `clusters`
    tokens: Annotated[int, Doc("tokens of the layer's batch", "token", key="batch_tokens")]
    micro_batches: Annotated[int, Doc("micro-batches of that batch")]
    clusters: Clusters  # the best sharding of the layer on each number of accelerators
    training: Training  # training runs of a fixed length
    width: Annotated[float, Doc("size of a word", "byte", key="word_bytes")] = WORD_BYTES
    sharding: Annotated[ShardedLayer | None, Doc("the sharding given, if one is")] = None

    @property
    def accelerator(self) -> Annotated[str, Doc(place=-2)]:
        """Name of the accelerator."""
        return self.device.name

    @property
    def layer_widths(self) -> Annotated[LayerWidths, Doc(key="layer", place=-1)]:
        """The layer of `clusters`."""
        return LayerWidths(*self.layer)

    @property
    def cluster_rows(self) -> Annotated[list[ClusterRow], Doc(key="clusters")]:
        """The best sharding on each number of accelerators."""
        table = self.clusters
        columns = table.gpus, table.tp_in, table.tp_out, table.dp, table.seconds, table.bounds
        return [ClusterRow(*row) for row in zip(*columns, strict=True)]

    @property
    def training_days(self) -> Annotated[float, KEY]:
        """Length of the training runs [day]."""
        return self.training.days

    @property
    def training_rows(self) -> Annotated[list[RunRow], Doc(key="training")]:
        """Training runs by their compute."""
        runs = self.training
        columns = runs.flops, runs.parameters, runs.hidden, runs.tokens, runs.gpus, runs.bounds
        return [RunRow(*row) for row in zip(*columns, strict=True)]

    @property
    def largest(self) -> Annotated[float, Doc(key="largest_utilisation")]:
        """Largest possible utilisation: the share of the peak that power and cooling allow."""
        return float(self.device.sustained)

    @property
    def halves(self) -> Annotated[float | None, Doc(key="halves_flops")]:
        """Training compute at which utilisation is half of the largest [FLOP]."""
        return self.training.falls_to(self.half)

    @property
    def collapses(self) -> Annotated[float | None, Doc(key="collapses_flops")]:
        """Training compute at which utilisation is a tenth of the largest [FLOP]."""
        return self.training.falls_to(self.tenth)

    @property
    def half(self) -> float:
        """Half of the largest utilisation."""
        return HALF_OF_LARGEST * self.largest

    @property
    def tenth(self) -> float:
        """A tenth of the largest utilisation."""
        return TENTH_OF_LARGEST * self.largest

    @property
    def most_excess(self) -> float:
        """Accelerators that were tried at most, relative to those needed at full utilisation."""
        return float(EXCESS[-1])


def limits(
    accelerator: str | Accelerator | None = None,
    *,
    system: str | System | None = None,
    network: float | str | None = None,
    layer: tuple[int, int] = EXAMPLE_LAYER,
    tokens: int = EXAMPLE_TOKENS,
    micro_batches: int = 1,
    gpus: tuple[int, ...] | list[int] = CLUSTERS,
    days: float = DAYS,
    batch_growth: float = BATCH_GROWTH,
    sharding: tuple[float, float, float] | None = None,
    width: float = WORD_BYTES,
    sustained: float = SUSTAINED,
    flops8: float | str | None = None,
    memory: float | str | None = None,
) -> Limits:
    """Find the limits of data movement: the best sharding on each cluster, and runs of a fixed length.

    Parameters
    ----------
    accelerator : str or Accelerator, optional
        The accelerator, by a name of the catalogue; its network is the fastest fast domain among the systems
        of the catalogue that have it, unless `network` is given.
    system : str or System, optional
        Instead of an accelerator, a system: its accelerator, and the network of its fast domain.
    network : float or str, optional
        Network bandwidth of an accelerator, both directions together: a number [byte/s], or text with its
        unit.
    layer : tuple of int
        Input and output width of the layer.
    tokens : int
        Tokens of a batch [token].
    micro_batches : int
        Micro-batches of a batch.
    gpus : sequence of int
        Numbers of accelerators.
    days : float
        Length of a training run [day].
    batch_growth : float
        Exponent of training compute in the growth of batches.
    sharding : tuple of float, optional
        tp_in, tp_out and dp of one sharding to time as well.
    width : float
        Size of a word [byte].
    sustained : float
        Share of the peaks of arithmetic and memory that is sustained.
    flops8, memory : float or str, optional
        Dense peak on words of one byte [FLOP/s] and memory bandwidth [byte/s], in place of the
        accelerator's.

    Raises
    ------
    InputError
        If arguments cannot be used, all problems at once.
    """
    errors = ErrorCollector("limits")
    errors.add(_problems(layer, tokens, micro_batches, gpus, days, batch_growth, sharding, width))
    device = errors.catch(device_of, accelerator, system, network, sustained, flops8, memory)
    device = errors.require(device)
    clusters = best_shardings(device, *layer, tokens, list(gpus), micro_batches, width)
    runs = training(device, days, batch_growth, width=width)
    given = None
    if sharding is not None:
        batch = {"tokens": tokens, "micro_batches": micro_batches, "width": width}
        given = _sharded_layer(device, sharding, d_in=layer[0], d_out=layer[1], **batch)
    return Limits(device, layer, tokens, micro_batches, clusters, runs, width, given)


def _sharded_layer(
    device: MovementDevice, degrees: tuple[float, float, float], **layer: float
) -> ShardedLayer:
    """Return the time of one given sharding of a layer, whose batch and widths are fields of its work."""
    work = MovementWork(**layer, **dict(zip(("tp_in", "tp_out", "dp"), degrees, strict=True)))
    parts = micro_batch(device, work), end_of_batch(device, work)
    whole = float(layer_seconds(device, work)), float(utilisation(device, work))
    return ShardedLayer(*degrees, *parts, *whole)


MOST: Final = 1e15  # ranks of an axis: far beyond any machine
LEAST_DAYS: Final = 1e-3  # a minute and a half
MOST_DAYS: Final = 36_525  # a century
MOST_WIDTH: Final = 16  # bytes of the widest number that a machine computes with, complex128


def _problems(
    layer: Sequence[float],
    tokens: float,
    micro_batches: float,
    gpus: Collection[object],
    days: float,
    growth: float,
    sharding: Sequence[float] | None,
    width: float,
) -> list[str]:
    """Return what is wrong with the numbers given to `limits`."""
    problems = [] if len(layer) == 2 else [f"layer = {layer!r}: must be an input and an output width"]
    named: list[tuple[str, object]] = [(f"layer[{i}]", size) for i, size in enumerate(layer)]
    named += [("tokens", tokens), ("micro_batches", micro_batches)]
    named += [("gpus", number) for number in gpus]
    problems += [problem for name, value in named for problem in whole_number_problems(name, value)]
    problems += [] if len(gpus) else ["gpus: none are given"]
    if not problems and micro_batches > tokens:
        problems.append(
            f"micro_batches = {micro_batches:,}: must be at most the {tokens:,} tokens of a batch"
        )
    if not LEAST_DAYS <= days <= MOST_DAYS:
        problems.append(f"days = {days!r}: must be from {LEAST_DAYS:g} to {MOST_DAYS:,}")
    problems += [] if 0 <= growth <= 1 else [f"batch_growth = {growth!r}: must be from 0 to 1"]
    if not 0 < width <= MOST_WIDTH:
        problems.append(f"width = {width!r}: must be above 0 and at most {MOST_WIDTH} bytes")
    degrees = zip(("tp_in", "tp_out", "dp"), sharding or (), strict=False)
    return problems + [
        f"{name} = {n!r}: must be from 1 to {MOST:g}" for name, n in degrees if not 1 <= n <= MOST
    ]


def device_of(
    accelerator: str | Accelerator | None = None,
    system: str | System | None = None,
    network: float | str | None = None,
    sustained: float = SUSTAINED,
    flops8: float | str | None = None,
    memory: float | str | None = None,
) -> MovementDevice:
    """Return an accelerator or a system as a device of the model; parameters and errors as for `limits`.

    Without a published 8-bit rate, twice the 16-bit rate is taken.
    """
    errors = ErrorCollector("limits")
    problems = list[str]()
    chip = accelerator if isinstance(accelerator, Accelerator) else None
    network_system = None
    if (accelerator is None) == (system is None):
        problems.append("accelerator and system: give one of them")
    elif system is not None:
        network_system = errors.catch(as_system, system)
        chip = None if network_system is None else network_system.accelerator
    elif chip is None:
        chip = errors.catch(load_accelerator, str(accelerator))
        network_system = _fastest_system(str(accelerator)) if network is None and chip is not None else None
    bandwidth: Column | None = None if network is None else errors.catch(_rate, "network", network)
    peak = None if flops8 is None else errors.catch(_rate, "flops8", flops8, "FLOP/s")
    memory_bandwidth = None if memory is None else errors.catch(_rate, "memory", memory)
    if not 0 < sustained <= 1:
        problems.append(f"sustained = {sustained!r}: must be a share above 0, at most 1")
    if chip is not None and network is None and network_system is None:
        unknown = f"no system of the catalogue says how {chip.name} is joined"
        problems.append(f"{unknown}: give network, such as 900 GB/s")
    errors.add(problems)
    chip = errors.require(chip)
    source = "given"
    if bandwidth is None and network_system is not None:
        bandwidth = _fast_domain_bandwidth(network_system)
        source = f"{network_system.fast.name} of {network_system.name}, both directions"
    assert bandwidth is not None  # else a problem was raised
    return MovementDevice(
        name=chip.name,
        flops8=peak or (2 * chip.matrix_flops if chip.fp8_flops is None else chip.fp8_flops),
        memory_bandwidth=memory_bandwidth or chip.hbm_bandwidth,
        network_bandwidth=bandwidth,
        sustained=sustained,
        network=source,
    )


def _rate(name: str, given: float | str, unit: str = "byte/s") -> float:
    """Return a bandwidth or a rate of arithmetic in SI units [`unit`]."""
    try:
        value = to_si(given, unit)
    except ValueError as error:
        raise InputError("limits", [f"{name} = {given!r}: {error}"]) from None
    if not 0 < value < np.inf:
        raise InputError("limits", [f"{name} = {given!r}: must be above 0"])
    return value


def _fast_domain_bandwidth(system: System) -> Column:
    """Return the bandwidth of an accelerator in its fast domain, both directions together [byte/s]."""
    return 2 * system.fast.bandwidth * system.fast.ports * system.fast.axes


@cache
def _fastest_system(accelerator: str) -> System | None:
    """Return the catalogue's system with the fastest fast domain for an accelerator, if there is any."""
    systems = [load_system(name) for name in systems_with(accelerator)]
    return max(systems, key=_fast_domain_bandwidth, default=None)


def batch_tokens(flops: Floats, growth: float = BATCH_GROWTH) -> Floats:
    """Return the tokens of a batch that grows with training compute from the largest published run's."""
    reference_flops, tokens = LARGEST_RUN
    return np.asarray(tokens * (flops / reference_flops) ** growth)


def training(
    device: MovementDevice,
    days: float = DAYS,
    batch_growth: float = BATCH_GROWTH,
    flops: Floats = TRAINING_FLOPS,
    width: float = WORD_BYTES,
) -> Training:
    """Find the fewest accelerators that finish runs of a fixed length in time, and their utilisation.

    A model of P parameters is trained on 20 P tokens, 6 P FLOP each. It has d/128 pairs of layers of widths d
    and 5d: P = 10 d³/128. All accelerators work on one layer after the other, with the best sharding tried:
    shards of a width are powers of √2, replicas any number.
    """
    parameters = np.sqrt(flops / (6 * TOKENS_PER_PARAMETER))
    hidden = (parameters * WIDTH_OVER_DEPTH / (2 * OUTPUT_OVER_INPUT)) ** (1 / 3)
    tokens = batch_tokens(flops, batch_growth)
    needed = flops * width / (device.sustained * device.flops8 * days * 86400)
    tp_in, tp_out = (degree.ravel() for degree in np.meshgrid(WIDTH_SHARDS, WIDTH_SHARDS, indexing="ij"))
    d = hidden[:, None, None]
    b = tokens[:, None, None]
    n = needed[:, None, None] * EXCESS[:, None]
    dp = n / tp_in / tp_out
    work = MovementWork(
        d_in=d,
        d_out=OUTPUT_OVER_INPUT * d,
        tokens=b,
        width=width,
        tp_in=tp_in,
        tp_out=tp_out,
        dp=dp,
    )
    seconds, shares = _fastest_sharding(device, work)
    ideal = 6 * OUTPUT_OVER_INPUT * hidden**2 * tokens * width / (device.sustained * device.flops8 * needed)
    index, excess = _first_in_time(ideal[:, None] / seconds)
    flop, memory, network = (
        np.where(np.isnan(excess), np.nan, np.take_along_axis(bound / seconds, index[:, None], -1)[:, 0])
        for bound in shares
    )
    return Training(
        days=days,
        flops=flops,
        parameters=parameters,
        hidden=hidden,
        tokens=tokens,
        gpus=needed * excess,
        utilisation=device.sustained / excess,
        spent=(flop, memory, network),
    )


def _fastest_sharding(device: MovementDevice, work: MovementWork) -> tuple[Floats, list[Floats]]:
    """Return the time of a batch with the fastest sharding, and that in which each resource binds [s]."""
    fits = (work.dp >= 1) & (work.dp <= work.tokens) & (work.tp_in <= work.d_in) & (work.tp_out <= work.d_out)
    seconds = np.where(fits, layer_seconds(device, work), np.inf)
    best = seconds.argmin(-1)[..., None]
    columns = np.broadcast_arrays(seconds, *seconds_by_bound(device, work))
    least, *shares = (np.take_along_axis(column, best, -1)[..., 0] for column in columns)
    return least, shares


def _first_in_time(speed: Floats) -> tuple[Ints, Floats]:
    """Return where runs first finish in time: the index into `EXCESS`, and the interpolated value.

    `speed` is relative to a run that just finishes in time, one row for each run; the value is NaN where no
    entry is fast enough.
    """
    enough = speed >= 1 - 1e-12
    index = enough.argmax(-1)
    row = np.arange(len(speed))
    previous = np.maximum(index - 1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):  # a speed of 0, or the first entry
        low = np.log(speed[row, previous])
        high = np.log(speed[row, index])
        share = np.where(index > 0, -low / (high - low), 1.0)
    between = EXCESS[previous] * (EXCESS[index] / EXCESS[previous]) ** np.where(np.isfinite(low), share, 1.0)
    return index, np.where(enough.any(-1), between, np.nan)
