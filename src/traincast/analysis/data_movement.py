"""Time of one linear layer, sharded in two dimensions and over replicas, on an idealised machine.

The model of Epoch AI's notebook on data movement (see also Erdil and Schneider-Joseph, arXiv 2411.01137):
FLOPs, memory traffic and network traffic overlap perfectly, and the slowest of them is the time. Attention,
pointwise operations, the optimizer, traffic between pipeline stages, latency and launch overhead are left
out. Degrees need not divide widths.

Formulas take numbers and columns alike; columns of shardings are the last axis.
"""

from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np

from traincast.core import KEY, Column, Doc, Floats, Result

# u, share of the peaks of arithmetic and memory that power and cooling leave (Epoch AI's notebook).
SUSTAINED: Final = 0.8
RESOURCES: Final = ("FLOP", "memory", "network")


class MovementDevice(Result, kw_only=True):
    """An accelerator and its network as the model sees them; every figure may be a number or a column."""

    name: str
    # Halves with a doubled word.
    flops8: Annotated[Column, Doc("dense peak on words of one byte", "FLOP byte/s")]
    memory_bandwidth: Annotated[Column, Doc("peak memory bandwidth", "byte/s")]
    network_bandwidth: Annotated[Column, Doc("peak network bandwidth, both directions together", "byte/s")]
    sustained: Annotated[Column, Doc("share of the first two that is sustained")] = SUSTAINED
    network: Annotated[str, Doc("source of the network bandwidth")] = "given"


@dataclass(frozen=True, kw_only=True)
class MovementWork:
    """One linear layer, the tokens of a batch, and their sharding; fields are numbers or columns."""

    d_in: Column  # input width
    d_out: Column  # output width
    tokens: Column  # of a batch, over all replicas [token]
    tp_in: Column = 1.0  # shards of the input width
    tp_out: Column = 1.0  # shards of the output width
    dp: Column = 1.0  # replicas
    micro_batches: Column = 1.0  # of a batch
    width: Column = 2.0  # size of a word [byte]

    @property
    def gpus(self) -> Column:
        """Number of accelerators."""
        return self.tp_in * self.tp_out * self.dp

    @property
    def flops(self) -> Column:
        """Forward and backward of a batch, over all accelerators [FLOP]."""
        return 6 * self.d_in * self.d_out * self.tokens


class ResourceSeconds(Result):
    """Time that each resource needs [s]; all overlap perfectly."""

    flop: Annotated[Column, Doc("arithmetic", "s")]
    memory: Annotated[Column, Doc("memory traffic", "s")]
    network: Annotated[Column, Doc("network traffic", "s")]

    @property
    def total(self) -> Annotated[Column, KEY]:
        """Time of the slowest resource [s]."""
        return np.maximum(np.maximum(self.flop, self.memory), self.network)

    def bound(self) -> tuple[Column, Column, Column]:
        """Return the total time under the first resource that binds, and 0 under the others [s]."""
        flop = np.where((self.flop >= self.memory) & (self.flop >= self.network), 1.0, 0.0)
        memory = np.where(self.memory >= self.network, 1.0 - flop, 0.0)
        return self.total * flop, self.total * memory, self.total * (1.0 - flop - memory)


def all_reduce_words(words: Column, members: Column) -> Column:
    """Return the words that a device sends or receives in an all-reduce.

    Shards are exchanged directly and reduced; each result is multicast, which costs the sender nothing.
    """
    return 3 * (members - 1) * words / members


def micro_batch(device: MovementDevice, work: MovementWork) -> ResourceSeconds:
    """Return the time of forward and backward of one micro-batch on each device [s]."""
    i = work.d_in / work.tp_in
    o = work.d_out / work.tp_out
    n = i * o
    b = work.tokens / work.dp / work.micro_batches
    output = all_reduce_words(o * b, work.tp_in)  # forward
    gradient = all_reduce_words(i * b, work.tp_out)  # of the input, backward
    # Forward, gradient of the weights, gradient of the input.
    memory = (n + output) + (i * b + 2 * n) + (n + gradient)
    return _seconds(device, work, 6 * n * b, memory, output + gradient)


def end_of_batch(device: MovementDevice, work: MovementWork) -> ResourceSeconds:
    """Return the time of the gradient all-reduce over the replicas [s]; the optimizer is left out."""
    words = all_reduce_words(work.d_in / work.tp_in * (work.d_out / work.tp_out), work.dp)
    return _seconds(device, work, 0 * words, words, words)


def _seconds(
    device: MovementDevice, work: MovementWork, flops: Column, memory: Column, network: Column
) -> ResourceSeconds:
    """Return the times of FLOPs, and of words to and from memory and network [s]."""
    u = device.sustained
    w = work.width
    return ResourceSeconds(
        flop=flops * w / (u * device.flops8),
        memory=memory * w / (u * device.memory_bandwidth),
        network=network * w / device.network_bandwidth,
    )


def layer_seconds(device: MovementDevice, work: MovementWork) -> Column:
    """Return the time of a batch: its micro-batches, then the gradient all-reduce [s]."""
    return work.micro_batches * micro_batch(device, work).total + end_of_batch(device, work).total


def seconds_by_bound(device: MovementDevice, work: MovementWork) -> tuple[Column, Column, Column]:
    """Split `layer_seconds` into the times in which FLOPs, memory and network bind [s]."""
    micro_batches = micro_batch(device, work).bound()
    gradients = end_of_batch(device, work).bound()
    flop, memory, network = (
        work.micro_batches * micro + end for micro, end in zip(micro_batches, gradients, strict=True)
    )
    return flop, memory, network


def utilisation(device: MovementDevice, work: MovementWork) -> Column:
    """Return the share of the dense peak at the word's size that a batch uses; at most `sustained`."""
    return work.flops * work.width / (device.flops8 * work.gpus * layer_seconds(device, work))


class Bounds(Result):
    """Utilisation, and the shares of the time in which each resource binds; None where NaN."""

    utilisation: Annotated[float | None, Doc("share of the dense peak")]
    flop_share: Annotated[float | None, Doc("share of the time in which arithmetic binds")]
    memory_share: Annotated[float | None, Doc("share of the time in which memory bandwidth binds")]
    network_share: Annotated[float | None, Doc("share of the time in which network bandwidth binds")]
    binds: Annotated[str | None, Doc("the largest of them")]


@dataclass(frozen=True, kw_only=True)
class BoundColumns:
    """Utilisation and what binds, in columns of one length; NaN where there is no solution."""

    utilisation: Floats  # share of the dense peak
    spent: tuple[Floats, Floats, Floats]  # shares of the time in which FLOPs, memory and network bind

    @property
    def binds(self) -> list[str | None]:
        """The resource that binds for most of the time; None where shares are NaN."""
        rows = np.stack(self.spent, axis=-1)
        return [None if np.isnan(row).any() else RESOURCES[int(row.argmax())] for row in rows]

    @property
    def bounds(self) -> list[Bounds]:
        """Utilisation and what binds, row by row."""
        return [Bounds(*row) for row in zip(self.utilisation, *self.spent, self.binds, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Clusters(BoundColumns):
    """The best sharding on each number of accelerators; NaN where a layer cannot be cut into that many."""

    gpus: Floats
    tp_in: Floats
    tp_out: Floats
    dp: Floats
    seconds: Floats  # of a batch [s]


def shardings(gpus: int) -> tuple[Floats, Floats, Floats]:
    """Return tp_in, tp_out, dp of every product that is a number of accelerators: ascending columns."""
    small = np.arange(1, int(gpus**0.5) + 1)
    small = small[gpus % small == 0]
    divisors = np.unique(np.concatenate((small, gpus // small)))
    tp_in, tp_out = (degree.ravel() for degree in np.meshgrid(divisors, divisors, indexing="ij"))
    divides = (gpus // tp_in) % tp_out == 0
    tp_in = tp_in[divides]
    tp_out = tp_out[divides]
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
    """Find the fastest sharding of a layer on each number of accelerators.

    A device holds at least one weight and one token of a micro-batch. Of equal shardings the one with the
    smallest tp_in, then the smallest tp_out, is taken. `width` is the size of a word [byte].
    """
    all_shardings = [shardings(number) for number in gpus]
    tp_in, tp_out, dp = (np.concatenate(column) for column in zip(*all_shardings, strict=True))
    degrees = {"tp_in": tp_in, "tp_out": tp_out, "dp": dp}
    sizes = {"d_in": d_in, "d_out": d_out, "tokens": tokens, "micro_batches": micro_batches, "width": width}
    work = MovementWork(**sizes, **degrees)
    possible = (tp_in <= d_in) & (tp_out <= d_out) & (dp * micro_batches <= tokens)
    seconds = np.where(possible, layer_seconds(device, work), np.inf)
    ends = np.cumsum([len(columns[0]) for columns in all_shardings])
    blocks = zip([0, *ends], np.split(seconds, ends[:-1]), strict=False)
    best = np.array([start + block.argmin() for start, block in blocks])
    valid = np.where(possible[best], 1.0, np.nan)  # factor
    flop, memory, network = (
        np.asarray(bound)[best] / seconds[best] * valid for bound in seconds_by_bound(device, work)
    )
    return Clusters(
        **{name: column[best] * valid for name, column in degrees.items()},
        gpus=np.array(gpus, float),
        seconds=seconds[best] * valid,
        utilisation=np.asarray(utilisation(device, work))[best] * valid,
        spent=(flop, memory, network),
    )
