"""Output of ``all_reduce_bench.py`` (stas00/ml-engineering, and jeffra's script before it) and its launch."""

import re
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Final

from traincast.accuracy.logs.nccl_tests import CollectiveTest, Found, check_given, rows_of
from traincast.accuracy.logs.rows import CollectiveRows
from traincast.accuracy.logs.text import number

NUMBER: Final = r"\d+(?:\.\d+)?"
TABLE_ROW: Final = re.compile(
    rf"^\|\s*({NUMBER})\s*([KMGT]?)i?B\s*\|\s*({NUMBER})\s*GBps\s*\|\s*({NUMBER})\s*GBps\s*\|", re.MULTILINE
)
ONE_SIZE: Final = re.compile(
    rf"with a ({NUMBER})\s*([KMGT]?)i?B payload \(.*?(\d+) ranks\):\s*algbw: ({NUMBER}) GBps", re.DOTALL
)
# of each rank; its throughput counts a payload twice, in bit/s
TRIAL: Final = re.compile(rf"duration: ({NUMBER}) sec\s+algo throughput: ({NUMBER}) bps")
BUS: Final = re.compile(rf"busbw: ({NUMBER})\s+Gbps")
SIGNS: Final = (
    r"(?m)^\|\s*payload\s*\|\s*busbw\s*\|\s*algbw\s*\||average bandwidth of all_reduce|"
    r"duration: [\d.]+ sec\s+algo throughput: [\d.]+ bps"
)
RANKS: Final = re.compile(r"over (\d+) ranks|\b(\d+) ranks\)")
LAUNCHED: Final = {  # options of torch's launchers
    "nodes": re.compile(r"--nnodes[= ](\d+)\b"),
    "gpus_per_node": re.compile(r"--nproc[-_]per[-_]node[= ](\d+)\b"),
}
HOST: Final = re.compile(r"^(\S+):\d+:\d+ \[\d+\] NCCL INFO", re.MULTILINE)
BYTES: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}  # units of payloads; "B" as well
MIN_BANDWIDTH: Final = 0.1  # [GB/s]; below, two decimals are less than 5 %


def read_all_reduce_bench(file: str, text: str, given: Mapping[str, object]) -> CollectiveRows:
    """Read all payloads of a text; nodes follow from NCCL's lines or the launch where these are in it."""
    check_given(given)
    launched = {name: int(found[1]) for name, option in LAUNCHED.items() if (found := option.search(text))}
    if hosts := len(set(HOST.findall(text))):
        launched["nodes"] = hosts
    return rows_of(
        file, launched | dict(given), _payloads(text, CollectiveTest("allreduce", ranks=_ranks(text)))
    )


def _ranks(text: str) -> int | None:
    """Return how many ranks ran: stated, or from the bus over the algorithm bandwidth, (n - 1)/n."""
    if stated := RANKS.search(text):
        return int(stated[1] or stated[2])
    ratios = [
        (number(bus) or 0.0) * 1e9 / (number(algorithm) or 1.0)
        for bus, (_, algorithm) in zip(BUS.findall(text), TRIAL.findall(text), strict=False)
    ]
    share = median(ratios) if ratios else 1.0
    return round(1 / (1 - share)) if 0 < share < 1 else None


def _payloads(text: str, test: CollectiveTest) -> Iterator[Found]:
    trials = [(float(seconds), float(bits)) for seconds, bits in TRIAL.findall(text)]
    if trials:
        seconds = median(each for each, _ in trials)
        size = median(each * bits for each, bits in trials) / 16
        yield f"{len(trials)} trials", test, (round(size, -6), seconds * 1e6)
    sizes = [(size, unit, algorithm) for size, unit, _, algorithm in TABLE_ROW.findall(text)]
    sizes += [(size, unit, algorithm) for size, unit, _, algorithm in ONE_SIZE.findall(text)]
    for size, unit, algorithm in sizes:
        payload = float(size) * BYTES[unit]
        bandwidth = float(algorithm)
        exact = bandwidth >= MIN_BANDWIDTH
        measured = (payload, payload / bandwidth * 1e-3) if exact else f"{algorithm} GB/s is rounded too much"
        yield f"payload {size} {unit}B", test, measured
