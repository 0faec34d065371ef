"""Time of one linear layer, cut in two dimensions and over replicas, on an idealised machine that moves data.

The model of Epoch AI's notebook on data movement (see also Erdil and Schneider-Joseph, arXiv 2411.01137): FLOPs, memory traffic and
network traffic overlap perfectly, and the slowest of them is the time. Attention, pointwise operations, the optimizer, traffic
between pipeline stages, latency and start-up are left out. Degrees need not divide widths.

Formulas take numbers and columns alike; columns of shardings are the last axis.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from traincast.core.quantities import Column, Floats

SUSTAINED: Final = 0.8  # u, share of the peaks of arithmetic and memory that power and cooling leave (Epoch AI's notebook)
RESOURCES: Final = ("FLOP", "memory", "network")


@dataclass(frozen=True, kw_only=True)
class MovementDevice:
    """An accelerator and its network as the model sees them. Every figure may be a number or a column.

    Parameters
    ----------
    name : str
        Name it is known by.
    flops8 : Column
        Dense peak on words of one byte [FLOP byte/s]: it halves with every doubling of the word.
    memory_bandwidth : Column
        Peak memory bandwidth [byte/s].
    network_bandwidth : Column
        Peak of what it sends and receives, both directions together [byte/s].
    sustained : Column
        Share of the first two that is sustained; the network is taken at its peak.
    network : str
        Where the network's bandwidth comes from.
    """

    name: str
    flops8: Column
    memory_bandwidth: Column
    network_bandwidth: Column
    sustained: Column = SUSTAINED
    network: str = "given"


@dataclass(frozen=True, kw_only=True)
class MovementWork:
    """One linear layer, the tokens of a step, and how both are cut. Every field may be a number or a column.

    Parameters
    ----------
    d_in, d_out : Column
        Input and output width.
    tokens : Column
        Tokens of a batch, in all replicas together [token].
    tp_in, tp_out, dp : Column
        Parts of the input width, parts of the output width, and replicas.
    micro_batches : Column
        Micro-batches of a batch.
    width : Column
        Size of a word [byte].
    """

    d_in: Column
    d_out: Column
    tokens: Column
    tp_in: Column = 1.0
    tp_out: Column = 1.0
    dp: Column = 1.0
    micro_batches: Column = 1.0
    width: Column = 2.0

    @property
    def gpus(self) -> Column:
        """Accelerators."""
        return self.tp_in * self.tp_out * self.dp

    @property
    def flops(self) -> Column:
        """Forward and backward of a batch, in all [FLOP]."""
        return 6 * self.d_in * self.d_out * self.tokens


@dataclass(frozen=True)
class ResourceSeconds:
    """What each resource takes of a piece of work [s]; all are at work at once."""

    flop: Column
    memory: Column
    network: Column

    @property
    def total(self) -> Column:
        """Time of the work: that of the slowest [s]."""
        return np.maximum(np.maximum(self.flop, self.memory), self.network)

    def bound(self) -> tuple[Column, Column, Column]:
        """The time, told under the resource that it is spent on; the first of equal ones [s]."""
        flop = np.where((self.flop >= self.memory) & (self.flop >= self.network), 1.0, 0.0)
        memory = np.where(self.memory >= self.network, 1.0 - flop, 0.0)
        return self.total * flop, self.total * memory, self.total * (1.0 - flop - memory)


def all_reduce_words(words: Column, members: Column) -> Column:
    """Words that a device sends or receives in an all-reduce.

    Shards are exchanged directly and reduced, and each result is sent to all at once, which costs the sender nothing.

    Parameters
    ----------
    words : Column
        Length of the vector on each device.
    members : Column
        Devices.
    """
    return 3 * (members - 1) * words / members


def micro_batch(device: MovementDevice, work: MovementWork) -> ResourceSeconds:
    """Forward and backward of one micro-batch on each device [s].

    Parameters
    ----------
    device : MovementDevice
        The accelerator.
    work : MovementWork
        The layer, and how it is cut.
    """
    i, o = work.d_in / work.tp_in, work.d_out / work.tp_out
    n, b = i * o, work.tokens / work.dp / work.micro_batches
    output = all_reduce_words(o * b, work.tp_in)  # forward
    gradient = all_reduce_words(i * b, work.tp_out)  # of the input, backward
    memory = (n + output) + (i * b + 2 * n) + (n + gradient)  # forward, gradient of the weights, gradient of the input
    return _seconds(device, work, 6 * n * b, memory, output + gradient)


def end_of_batch(device: MovementDevice, work: MovementWork) -> ResourceSeconds:
    """All-reduce of a batch's gradients over the replicas [s]; the optimizer is left out.

    Parameters
    ----------
    device : MovementDevice
        The accelerator.
    work : MovementWork
        The layer, and how it is cut.
    """
    words = all_reduce_words(work.d_in / work.tp_in * (work.d_out / work.tp_out), work.dp)
    return _seconds(device, work, 0 * words, words, words)


def _seconds(device: MovementDevice, work: MovementWork, flops: Column, memory: Column, network: Column) -> ResourceSeconds:
    """Times of FLOPs, and of words to and from memory and network [s]."""
    u, w = device.sustained, work.width
    return ResourceSeconds(
        flop=flops * w / (u * device.flops8),
        memory=memory * w / (u * device.memory_bandwidth),
        network=network * w / device.network_bandwidth,
    )


def layer_seconds(device: MovementDevice, work: MovementWork) -> Column:
    """Time of a batch: its micro-batches, then its gradients [s]."""
    return work.micro_batches * micro_batch(device, work).total + end_of_batch(device, work).total


def spent(device: MovementDevice, work: MovementWork) -> tuple[Column, Column, Column]:
    """Time of a batch [s] in which FLOPs, memory and network bind; they add up to `layer_seconds`."""
    layers, gradients = micro_batch(device, work).bound(), end_of_batch(device, work).bound()
    flop, memory, network = (work.micro_batches * one + end for one, end in zip(layers, gradients, strict=True))
    return flop, memory, network


def utilisation(device: MovementDevice, work: MovementWork) -> Column:
    """Share of the dense peak at the word's size that a batch makes use of; at most `Device.sustained`."""
    return work.flops * work.width / (device.flops8 * work.gpus * layer_seconds(device, work))


@dataclass(frozen=True)
class Clusters:
    """The best sharding on each number of accelerators; columns of one length, NaN where a layer cannot be cut into as many.

    Parameters
    ----------
    gpus, tp_in, tp_out, dp : Floats
        Accelerators, and how the layer is cut over them.
    seconds : Floats
        Time of a batch [s].
    utilisation : Floats
        Share of the dense peak.
    spent : tuple of Floats
        Shares of the time in which FLOPs, memory and network bind.
    """

    gpus: Floats
    tp_in: Floats
    tp_out: Floats
    dp: Floats
    seconds: Floats
    utilisation: Floats
    spent: tuple[Floats, Floats, Floats]

    @property
    def binds(self) -> list[str | None]:
        """The resource that most of the time is spent on, for each number of accelerators."""
        return binding(self.spent)


def binding(shares: tuple[Floats, Floats, Floats]) -> list[str | None]:
    """Name of the resource with the largest share; None where shares are NaN."""
    rows = np.stack(shares, axis=-1)
    return [None if np.isnan(row).any() else RESOURCES[int(row.argmax())] for row in rows]


def shardings(gpus: int) -> tuple[Floats, Floats, Floats]:
    """Every tp_in, tp_out, dp whose product is a number of accelerators; columns, tp_in slowest, all ascending."""
    low = np.arange(1, int(gpus**0.5) + 1)
    low = low[gpus % low == 0]
    divisors = np.unique(np.concatenate((low, gpus // low)))
    tp_in, tp_out = (one.ravel() for one in np.meshgrid(divisors, divisors, indexing="ij"))
    fits = (gpus // tp_in) % tp_out == 0
    tp_in, tp_out = tp_in[fits], tp_out[fits]
    return tp_in.astype(float), tp_out.astype(float), (gpus // tp_in // tp_out).astype(float)


def best_shardings(
    device: MovementDevice,
    d_in: float,
    d_out: float,
    tokens: float,
    gpus: list[int],
    micro_batches: float = 1.0,
    width: float = 2.0,
) -> Clusters:
    """The fastest sharding of a layer on each of several numbers of accelerators.

    A device holds at least one weight and one token of a micro-batch. Of equal shardings the one with the least tp_in, then the
    least tp_out is taken.

    Parameters
    ----------
    device : MovementDevice
        The accelerator.
    d_in, d_out : float
        Input and output width of the layer.
    tokens : float
        Tokens of a batch [token].
    gpus : list of int
        Numbers of accelerators.
    micro_batches : float
        Micro-batches of a batch.
    width : float
        Size of a word [byte].
    """
    cuts = [shardings(one) for one in gpus]
    tp_in, tp_out, dp = (np.concatenate(column) for column in zip(*cuts, strict=True))
    work = MovementWork(
        d_in=d_in, d_out=d_out, tokens=tokens, tp_in=tp_in, tp_out=tp_out, dp=dp, micro_batches=micro_batches, width=width
    )
    possible = (tp_in <= d_in) & (tp_out <= d_out) & (dp * micro_batches <= tokens)
    seconds = np.where(possible, layer_seconds(device, work), np.inf)
    ends = np.cumsum([len(one[0]) for one in cuts])
    best = np.array([start + part.argmin() for start, part in zip([0, *ends], np.split(seconds, ends[:-1]), strict=False)])
    there = np.where(possible[best], 1.0, np.nan)
    flop, memory, network = (np.asarray(one)[best] / seconds[best] * there for one in spent(device, work))
    return Clusters(
        gpus=np.array(gpus, float),
        tp_in=tp_in[best] * there,
        tp_out=tp_out[best] * there,
        dp=dp[best] * there,
        seconds=seconds[best] * there,
        utilisation=np.asarray(utilisation(device, work))[best] * there,
        spent=(flop, memory, network),
    )
