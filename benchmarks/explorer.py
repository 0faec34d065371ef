"""Load test of the explorer: answers to sliders, with one client and with many. `python
benchmarks/explorer.py` prints the rows of the table in `docs/explorer.md`, in two minutes on an idle machine.

Each client moves a slider: every request is for another machine, so that no cached answer serves it. If the
server is busy (503), the client waits for the time in `retry-after` and retries. A request without any answer
counts as lost.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections import Counter

import httpx

STATE = {
    "model": "llama-3-70b",
    "system": "dgx-h100",
    "gpus": 512,
    "framework": "megatron",
}  # the default space
USUAL = ("200", "503, asked again")


def serve() -> tuple[subprocess.Popen[str], str]:
    """Start a server on a free port; return it and its address once it answers."""
    command = [sys.executable, "-m", "traincast", "serve", "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    reply = "".join(iter(process.stdout.readline, "}\n")) + "}"
    return process, json.loads(reply)["url"]


class Load:
    """Load of several clients, with response times and status counts."""

    def __init__(self, url: str, same: bool):
        self.url, self.same = url, same
        self.seconds: list[float] = []
        self.met: Counter[str] = Counter()
        self.asked = 0

    def body(self) -> dict[str, object]:
        """Return the next request: a new memory bandwidth each time, or one of eight."""
        self.asked += 1
        number = self.asked % 8 if self.same else self.asked
        return STATE | {
            "figures": {
                "accelerator.hbm_bandwidth": 3e12 + number * 1e6 + time.time() % 1e6 * (not self.same)
            }
        }

    async def client(self, http: httpx.AsyncClient, until: float) -> None:
        """Send requests as one user."""
        while time.perf_counter() < until:
            body, start = self.body(), time.perf_counter()
            try:
                while (response := await http.post("/api/search", json=body)).status_code == 503:
                    self.met["503, asked again"] += 1
                    await asyncio.sleep(float(response.headers["retry-after"]))
            except httpx.HTTPError as error:
                self.met[f"lost: {type(error).__name__}"] += 1
                continue
            self.met[str(response.status_code)] += 1
            self.seconds.append(time.perf_counter() - start)

    async def run(self, clients: int, seconds: float) -> None:
        """Run all clients at once."""
        limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
        async with httpx.AsyncClient(base_url=self.url, timeout=120, limits=limits) as http:
            until = time.perf_counter() + seconds
            begin = time.perf_counter()
            await asyncio.gather(*(self.client(http, until) for _ in range(clients)))
            self.report(clients, time.perf_counter() - begin)

    def report(self, clients: int, took: float) -> None:
        """Print a row of the table of `docs/explorer.md`."""
        times = sorted(self.seconds)
        median, p99 = (
            [times[min(int(quantile * len(times)), len(times) - 1)] for quantile in (0.5, 0.99)]
            if times
            else [0.0, 0.0]
        )
        kind = "one of 8 machines" if self.same else "another machine each time"
        refused = self.met["503, asked again"]
        lost = sum(count for name, count in self.met.items() if name.startswith("lost"))
        figures = f"{len(times) / took:,.1f} | {duration(median)} | {duration(p99)} | {refused} | {lost}"
        print(f"| {clients} | {kind} | {figures} |", flush=True)
        if unusual := {name: count for name, count in self.met.items() if name not in USUAL}:
            print(f"other statuses: {unusual}", file=sys.stderr)


def duration(seconds: float) -> str:
    """Write a time as the table of `docs/explorer.md` does."""
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def first_page(url: str) -> None:
    """Measure the page with its first answer, each time for another machine."""
    times = []
    for number in range(20):
        query = STATE | {"accelerator.hbm_bandwidth": 3.1e12 + number * 1e9}
        begin = time.perf_counter()
        page = httpx.get(url, params=query)
        times.append(1000 * (time.perf_counter() - begin))
    print(
        f"the page with its first answer ({len(page.content) >> 10} KiB): median "
        f"{statistics.median(times):.1f} ms"
    )


def main() -> None:
    """Run all measurements on one server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=200)
    options = parser.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}, "
        f"{time.strftime('%Y-%m-%d')}"
    )
    process, url = serve()
    try:
        first_page(url)
        for clients, same in ((1, False), (options.clients, False), (options.clients, True)):
            asyncio.run(Load(url, same).run(clients, options.seconds))
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
