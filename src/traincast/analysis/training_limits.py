"""How large a cluster, and how large a training run, the movement of data allows (Epoch AI's notebook, arXiv 2411.01137).

`data_movement.py` says what one layer takes; here stands what follows for a cluster, and for whole runs of a fixed length.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from traincast.analysis.data_movement import (
    RESOURCES,
    Clusters,
    MovementDevice,
    MovementWork,
    best_shardings,
    binding,
    layer_seconds,
    spent,
)
from traincast.catalog.load import as_system, load_accelerator, load_system, systems_with
from traincast.core.errors import ErrorCollector, InputError, not_whole
from traincast.core.quantities import Column, Floats
from traincast.core.system import Accelerator, System
from traincast.core.units import in_si

WIDTH: Final = 2.0  # a word of 16 bits [byte]
LAYER: Final = (16384, 5 * 16384)  # widths of the notebook's example
TOKENS: Final = 2048**2  # batch of the notebook's example: 2048 sequences of 2048 tokens
CLUSTERS: Final = tuple(4**k for k in range(1, 12))
DAYS: Final = 365.25 / 4  # three months, as in arXiv 2411.01137
TOKENS_PER_PARAMETER: Final = 20.0  # training tokens of a compute-optimal model (Chinchilla, arXiv 2203.15556)
WIDENING: Final = 5.0  # output over input width of every layer, as in the notebook's example
ASPECT: Final = 128.0  # width over depth: 12288 / 96 = 128 of GPT-3, 16384 / 126 = 130 of Llama 3.1 405B
BATCH: Final = (
    3.8e25,
    16 * 2.0**20,
)  # FLOP and tokens of a batch of the largest run that tells both: Llama 3.1 405B, arXiv 2407.21783
BATCH_GROWTH: Final = 1 / 6  # exponent of training compute: the cube root of the model's size; a choice
COMPUTE: Final = 10.0 ** np.arange(24, 36.01, 0.5)  # training compute looked at [FLOP]
EXCESS: Final = 2.0 ** np.arange(0, 5.01, 0.25)  # accelerators looked at, relative to those needed at full utilisation
CUTS: Final = 2.0 ** np.arange(0, 14.5, 0.5)  # parts of a width looked at for whole runs
HALVES: Final = 0.5  # of the largest utilisation
COLLAPSES: Final = 0.1


@dataclass(frozen=True, kw_only=True)
class Training:
    """Runs of a fixed length by their training compute, each on the fewest accelerators that finish in time; columns of one length.

    Parameters
    ----------
    days : float
        Length of every run [day].
    flops : Floats
        Training compute [FLOP].
    parameters, hidden, tokens : Floats
        Parameters of the model, its width, and tokens of a batch [token].
    gpus, utilisation : Floats
        Accelerators and share of the dense peak; NaN where up to 32 times as many as full utilisation needs do not finish in time.
    spent : tuple of Floats
        Shares of the time in which FLOPs, memory and network bind.
    """

    days: float
    flops: Floats
    parameters: Floats
    hidden: Floats
    tokens: Floats
    gpus: Floats
    utilisation: Floats
    spent: tuple[Floats, Floats, Floats]

    @property
    def binds(self) -> list[str | None]:
        """The resource that most of the time is spent on, for each run."""
        return binding(self.spent)

    def falls_to(self, utilisation: float) -> float | None:
        """Training compute at which utilisation falls to a value [FLOP]; None where it does not on the range looked at."""
        low = np.flatnonzero(~(self.utilisation > utilisation))
        if not len(low) or not low[0] or np.isnan(self.utilisation[low[0]]):
            return None
        i = low[0]
        pair = np.log(self.utilisation[i - 1 : i + 1])
        return float(np.exp(np.interp(-np.log(utilisation), -pair, np.log(self.flops[i - 1 : i + 1]))))


@dataclass(frozen=True)
class Limits:
    """What the movement of data allows on a device.

    Parameters
    ----------
    device : MovementDevice
        The accelerator and its network.
    layer : tuple of int
        Input and output width of the layer of `clusters`.
    tokens : int
        Tokens of its batch [token].
    micro_batches : int
        Micro-batches of that batch.
    clusters : Clusters
        The best sharding of the layer on each number of accelerators.
    training : Training
        Whole runs of a fixed length.
    """

    device: MovementDevice
    layer: tuple[int, int]
    tokens: int
    micro_batches: int
    clusters: Clusters
    training: Training

    @property
    def largest(self) -> float:
        """The largest utilisation there can be: what power and cooling leave of the peak."""
        return float(self.device.sustained)

    @property
    def halves(self) -> float | None:
        """Training compute at which utilisation is half of the largest [FLOP]."""
        return self.training.falls_to(HALVES * self.largest)

    @property
    def collapses(self) -> float | None:
        """Training compute at which utilisation is a tenth of the largest [FLOP]."""
        return self.training.falls_to(COLLAPSES * self.largest)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON; what is not there is None."""
        kept = ("flops8", "memory_bandwidth", "network_bandwidth", "sustained", "network")
        runs = ("flops", "parameters", "hidden", "tokens", "gpus", "utilisation")
        return {
            "accelerator": self.device.name,
            "device": {name: getattr(self.device, name) for name in kept},
            "layer": dict(zip(("d_in", "d_out"), self.layer, strict=True)),
            "batch_tokens": self.tokens,
            "micro_batches": self.micro_batches,
            "clusters": _rows(self.clusters, ("gpus", "tp_in", "tp_out", "dp", "seconds", "utilisation")),
            "training_days": self.training.days,
            "training": _rows(self.training, runs),
            "largest_utilisation": self.largest,
            "halves_flops": self.halves,
            "collapses_flops": self.collapses,
        }


def _rows(table: Clusters | Training, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Rows of a table of columns."""
    columns = [np.asarray(getattr(table, name)) for name in names] + [np.asarray(one) for one in table.spent]
    keys = (*names, *(f"{one.lower()}_share" for one in RESOURCES))
    values = ([None if np.isnan(value) else float(value) for value in row] for row in zip(*columns, strict=True))
    return [dict(zip(keys, row, strict=True)) | {"binds": one} for row, one in zip(values, table.binds, strict=True)]


def limits(
    accelerator: str | Accelerator | None = None,
    *,
    system: str | System | None = None,
    network: float | str | None = None,
    layer: tuple[int, int] = LAYER,
    tokens: int = TOKENS,
    micro_batches: int = 1,
    gpus: tuple[int, ...] | list[int] = CLUSTERS,
    days: float = DAYS,
    batch_growth: float = BATCH_GROWTH,
) -> Limits:
    """What the movement of data allows: the best sharding of a layer on clusters of each size, and runs of a fixed length.

    Parameters
    ----------
    accelerator : str or Accelerator, optional
        The accelerator, by a name of the catalogue; its network is the fastest that a system of the catalogue gives it inside
        a domain, unless `network` says otherwise.
    system : str or System, optional
        In its place a system: its accelerator, and the network inside its fast domain.
    network : float or str, optional
        What an accelerator sends and receives, both directions together: a number [byte/s], or text with its unit.
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
        Exponent of training compute by which batches grow.

    Raises
    ------
    InputError
        With everything that is wrong.
    """
    mistakes = ErrorCollector("limits")
    mistakes.catch(check, layer, tokens, micro_batches, gpus, days, batch_growth)
    device = mistakes.require(mistakes.catch(device_of, accelerator, system, network))
    clusters = best_shardings(device, *layer, tokens, list(gpus), micro_batches, WIDTH)
    return Limits(device, layer, tokens, micro_batches, clusters, training(device, days, batch_growth))


def check(layer: Any, tokens: Any, micro_batches: Any, gpus: Any, days: float, growth: float) -> None:
    """Refuse numbers that are none."""
    wrong = [] if len(layer) == 2 else [f"layer = {layer!r}: must be an input and an output width"]
    named = [*((f"layer[{i}]", one) for i, one in enumerate(layer)), ("tokens", tokens), ("micro_batches", micro_batches)]
    wrong += [one for name, value in (*named, *(("gpus", one) for one in gpus)) for one in not_whole(name, value)]
    wrong += [] if len(gpus) else ["gpus: none are given"]
    wrong += [] if 0 < days < np.inf else [f"days = {days!r}: must be above 0"]
    wrong += [] if 0 <= growth <= 1 else [f"batch_growth = {growth!r}: must be from 0 to 1"]
    if wrong:
        raise InputError("limits", wrong)


def device_of(
    accelerator: str | Accelerator | None = None, system: str | System | None = None, network: float | str | None = None
) -> MovementDevice:
    """The device that an accelerator or a system is to the model; parameters and errors as for `limits`.

    The rate at 8 bits is twice that at 16 where there is none of its own.
    """
    mistakes = ErrorCollector("limits")
    chip, domain = accelerator if isinstance(accelerator, Accelerator) else None, None
    if (accelerator is None) == (system is None):
        mistakes.errors.append(InputError("limits", ["accelerator and system: give one of them"]))
    elif system is not None:
        domain = mistakes.catch(as_system, system)
        chip = None if domain is None else domain.accelerator
    elif chip is None:
        chip = mistakes.catch(load_accelerator, str(accelerator))
        domain = _fastest(str(accelerator)) if network is None and chip is not None else None
    bandwidth = None if network is None else mistakes.catch(_bandwidth, network)
    if chip is not None and network is None and domain is None:
        wrong = f"no system of the catalogue says how {chip.name} is joined: give network, such as 900 GB/s"
        mistakes.errors.append(InputError("limits", [wrong]))
    chip = mistakes.require(chip)
    flops8 = 2 * chip.matrix_flops if chip.fp8_flops is None else chip.fp8_flops
    if bandwidth is not None:
        return MovementDevice(name=chip.name, flops8=flops8, memory_bandwidth=chip.hbm_bandwidth, network_bandwidth=bandwidth)
    assert domain is not None
    told = f"{domain.fast.name} of {domain.name}, both directions"
    return MovementDevice(
        name=chip.name, flops8=flops8, memory_bandwidth=chip.hbm_bandwidth, network_bandwidth=_both(domain), network=told
    )


def _bandwidth(network: float | str) -> float:
    """The bandwidth given [byte/s]."""
    try:
        value = in_si(network, "byte/s")
    except ValueError as error:
        raise InputError("limits", [f"network = {network!r}: {error}"]) from None
    if not 0 < value < np.inf:
        raise InputError("limits", [f"network = {network!r}: must be above 0"])
    return value


def _both(system: System) -> Column:
    """What an accelerator sends and receives inside a fast domain [byte/s]."""
    return 2 * system.fast.bandwidth * system.fast.ports * system.fast.axes


@cache
def _fastest(accelerator: str) -> System | None:
    """The system of the catalogue that gives an accelerator the fastest network inside a domain, if there is any."""
    systems = [load_system(name) for name in systems_with(accelerator)]
    return max(systems, key=_both, default=None)


def batch_tokens(flops: Floats, growth: float = BATCH_GROWTH) -> Floats:
    """Tokens of a batch that grows with training compute from that of the largest run whose batch is known [token].

    Parameters
    ----------
    flops : Floats
        Training compute [FLOP].
    growth : float
        Exponent of training compute.
    """
    known, tokens = BATCH
    return np.asarray(tokens * (flops / known) ** growth)


def training(device: MovementDevice, days: float = DAYS, batch_growth: float = BATCH_GROWTH, flops: Floats = COMPUTE) -> Training:
    """Runs of a fixed length: the fewest accelerators that finish each, and the utilisation that leaves.

    A model of P parameters sees 20 P tokens, 6 P FLOP each. It is a row of equal layers of width d and 5d, d/128 pairs of them:
    P = 10 d³/128. All accelerators work on one layer after the other, with the best of the shardings looked at: parts of widths are
    powers of √2, replicas any number.

    Parameters
    ----------
    device : MovementDevice
        The accelerator.
    days : float
        Length of a run [day].
    batch_growth : float
        Exponent of training compute by which batches grow.
    flops : Floats
        Training compute of each run [FLOP].
    """
    parameters = np.sqrt(flops / (6 * TOKENS_PER_PARAMETER))
    hidden = (parameters * ASPECT / (2 * WIDENING)) ** (1 / 3)
    tokens = batch_tokens(flops, batch_growth)
    needed = flops * WIDTH / (device.sustained * device.flops8 * days * 86400)
    tp_in, tp_out = (one.ravel() for one in np.meshgrid(CUTS, CUTS, indexing="ij"))
    d, b, n = hidden[:, None, None], tokens[:, None, None], needed[:, None, None] * EXCESS[:, None]
    work = MovementWork(d_in=d, d_out=WIDENING * d, tokens=b, tp_in=tp_in, tp_out=tp_out, dp=n / tp_in / tp_out, width=WIDTH)
    seconds, shares = _fastest_cut(device, work)
    ideal = 6 * WIDENING * hidden**2 * tokens * WIDTH / (device.sustained * device.flops8 * needed)
    place, excess = _crossing(ideal[:, None] / seconds)
    flop, memory, network = (
        np.where(np.isnan(excess), np.nan, np.take_along_axis(one / seconds, place[:, None], -1)[:, 0]) for one in shares
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


def _fastest_cut(device: MovementDevice, work: MovementWork) -> tuple[Floats, list[Floats]]:
    """Time of a batch with the fastest of the shardings on the last axis [s], and the time in which each resource binds [s]."""
    fits = (work.dp >= 1) & (work.dp <= work.tokens) & (work.tp_in <= work.d_in) & (work.tp_out <= work.d_out)
    seconds = np.where(fits, layer_seconds(device, work), np.inf)
    best = seconds.argmin(-1)[..., None]
    each = (np.broadcast_to(one, seconds.shape) for one in (seconds, *spent(device, work)))
    least, *shares = (np.take_along_axis(one, best, -1)[..., 0] for one in each)
    return least, shares


def _crossing(speed: Floats) -> tuple[Any, Floats]:
    """Where runs first finish in time: the place on the scale of `EXCESS`, and its value between two places.

    `speed` is how fast a run is relative to what finishes in time, one row for each run; the value is NaN where it never is.
    """
    enough = speed >= 1 - 1e-12
    place = enough.argmax(-1)
    row, before = np.arange(len(speed)), np.maximum(place - 1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):  # not there at all, or the first place
        low, high = np.log(speed[row, before]), np.log(speed[row, place])
        share = np.where(place > 0, -low / (high - low), 1.0)
    between = EXCESS[before] * (EXCESS[place] / EXCESS[before]) ** np.where(np.isfinite(low), share, 1.0)
    return place, np.where(enough.any(-1), between, np.nan)
