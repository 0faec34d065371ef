"""What a machine is, out of what was timed on it: figures with a physical meaning, each with its source and its spread."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from traincast.assumptions import Assumptions
from traincast.columns import Floats
from traincast.hardware import Accelerator, System, Tier
from traincast.measuring import predicted
from traincast.measuring.rows import Row
from traincast.measuring.searched import Values, mape, nearest
from traincast.stacks import USUAL, resolve
from traincast.units import quantity

TILES: Final = (8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
BUS: Final = {"allreduce": 2.0, "allgather": 1.0, "reducescatter": 1.0, "all2all": 1.0}
GPU: Final = {"matrix_flops", "fp32_flops"}


@dataclass
class Machine:
    """A machine while its figures are found.

    Parameters
    ----------
    about : mapping
        What it says of itself.
    rows : sequence of Row
        What was timed on it.
    accelerator, tier, software : dict
        Figures so far, in SI units, by name.
    errors : dict of str to float
        Mean absolute relative error of the engine's times, by family.
    """

    about: Mapping[str, Any]
    rows: Sequence[Row]
    accelerator: Values = field(default_factory=dict)
    tier: Values = field(default_factory=dict)
    software: Values = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)

    def of(self, family: str, *ops: str) -> list[Row]:
        """Rows of a family, in the type of training where they are none of products."""
        return [row for row in self.rows if row.task.family == family and (not ops or row.task.op in ops)]

    def gpu(self, **more: float) -> Accelerator:
        """The accelerator with some figures more."""
        known = {
            "hbm_bandwidth": 1.0,
            "vector_flops": 1.0,
            "hbm_bytes": float(self.about["memory_bytes"]),
            "processors": int(self.about["processors"]),
        }
        return Accelerator(name="measured", **(known | self.accelerator | more))  # type: ignore[arg-type]  # names of figures

    def assumed(self, **more: float) -> Assumptions:
        """Assumptions with what was found of the software."""
        return replace(resolve(USUAL), **(self.software | more))  # type: ignore[arg-type]  # names of figures

    def system(self, **more: float) -> System:
        """The machine with its network, some figures of it more."""
        return System(name="measured", accelerator=self.gpu(), tiers=(self.inner(**more), self.outer(**more)))

    def inner(self, **more: float) -> Tier:
        """The network that was timed."""
        return Tier(name="node", size=int(self.about["ranks"]), **(self.tier | more))  # type: ignore[arg-type]

    def outer(self, **more: float) -> Tier:
        """What joins several of them, taken to be alike."""
        return Tier(name="between nodes", **(self.tier | more))  # type: ignore[arg-type]


def found(about: Mapping[str, Any], rows: Sequence[Row]) -> Machine:
    """All figures that rows tell of a machine, one family after the other."""
    it = Machine(about, rows)
    _peaks(it)
    _launches(it)
    _memory(it)
    _products(it)
    _attention(it)
    _network(it)
    return it


def _fit(
    it: Machine,
    family: str,
    rows: Sequence[Row],
    predict: Callable[[Values], Floats],
    start: Values,
    bounds: Mapping[str, tuple[float, float]],
) -> Values:
    """Constants that suit the rows of a family."""
    measured = np.array([row.seconds for row in rows])
    values = nearest(predict, measured, start, bounds)
    it.errors[family] = mape(predict(values), measured)
    return values


def _launches(it: Machine) -> None:
    """What an operation costs whatever its size."""
    each = {row.task.op: row.seconds / row.task.sizes[0] for row in it.of("dispatch")}
    host = it.about["kind"] == "cpu"
    kernel = each.get("kernel", 1e-6)
    it.software |= {"launch_seconds": kernel, "attention_launch_seconds": kernel}
    if host:  # nothing is issued ahead of time
        it.software |= {"dispatch_seconds": 0.0, "collective_launch": 1.0, "launch_seconds": each.get("forward", kernel)}
    elif "host" in each:
        it.software["dispatch_seconds"] = each["host"]
    it.software["attention_launch_seconds"] = it.software["launch_seconds"]


def _memory(it: Machine) -> None:
    """Bandwidth of memory and caches, and arithmetic of the vector units."""
    rows = it.of("memory")
    rates = {row: predicted.MOVED[row.task.op] * 4 * row.task.sizes[0] / row.seconds for row in rows}
    largest = max(row.task.sizes[0] for row in rows)
    far = max(rate for row, rate in rates.items() if row.task.sizes[0] == largest)
    near = max(rates.values())
    start = {"hbm_bandwidth": far, "cache_bandwidth": near, "cache_bytes": 8e6, "vector_flops": 30e9, "launch": 1e-6}

    def predict(values: Values) -> Floats:
        figures = {name: value for name, value in values.items() if name != "launch"}
        return predicted.memory(rows, it.gpu(**figures, hbm_sustained=1.0), it.assumed(launch_seconds=values["launch"]))

    values = _fit(it, "memory", rows, predict, start, {"cache_bandwidth": (far, 10 * near), "launch": (1e-7, 1e-4)})
    values.pop("launch")
    it.accelerator |= values | {"hbm_sustained": 1.0}


def _peaks(it: Machine) -> None:
    """The best rates seen."""
    rows = it.of("products")
    for name, types in (("matrix_flops", ("bf16", "fp16")), ("fp32_flops", ("fp32",))):
        rates = [row.task.flops / row.seconds for row in rows if row.task.dtype in types]
        if rates:
            it.accelerator[name] = max(rates)
    it.accelerator.setdefault("matrix_flops", it.accelerator.get("fp32_flops", 1.0))


def _products(it: Machine) -> None:
    """Peaks as the best rates seen, what large products sustain of them, and the tile."""
    rows = it.of("products")
    best: tuple[float, Values, float] | None = None
    for tile in TILES:

        def predict(values: Values, tile: float = tile) -> Floats:
            shares = {name: values[name] for name in ("matrix_sustained", "fp32_sustained")}
            return predicted.products(
                rows,
                it.gpu(**shares),
                it.assumed(tile=tile, outputs_exposed=values["outputs_exposed"], launch_seconds=values["launch"]),
            )

        start = {"matrix_sustained": 0.9, "fp32_sustained": 0.9, "outputs_exposed": 0.3, "launch": 2e-6}
        values = _fit(
            it,
            "products",
            rows,
            predict,
            start,
            {"matrix_sustained": (0.0, 1.0), "fp32_sustained": (0.0, 1.0), "outputs_exposed": (1e-3, 1.0), "launch": (1e-7, 1e-4)},
        )
        if best is None or it.errors["products"] < best[2]:
            best = (tile, values, it.errors["products"])
    assert best is not None
    it.software |= {"tile": best[0], "outputs_exposed": best[1]["outputs_exposed"]}
    it.accelerator |= {name: best[1][name] for name in ("matrix_sustained", "fp32_sustained")}
    it.errors["products"] = best[2]


def _attention(it: Machine) -> None:
    """Rate of fused attention."""
    rows = it.of("attention")
    if not rows:
        return
    start = {"attention_fa2": 0.5, "attention_backward": 0.8, "attention_start": 50.0, "attention_softmax": 20.0, "launch": 1e-5}
    bounds = {"attention_fa2": (0.0, 1.0), "attention_backward": (0.0, 1.0), "launch": (1e-7, 1e-3)}
    own = ("attention_fa2", "attention_backward")

    def predict(values: Values) -> Floats:
        rest = {name: value for name, value in values.items() if name not in (*own, "launch")}
        gpu = it.gpu(**{name: values[name] for name in own})
        return predicted.attention(rows, gpu, it.assumed(**rest, attention_launch_seconds=values["launch"]))

    values = _fit(it, "attention", rows, predict, start, bounds)
    it.software["attention_launch_seconds"] = values.pop("launch")
    it.accelerator |= {name: values.pop(name) for name in own}
    it.software |= values


def _network(it: Machine) -> None:
    """Latency and bandwidth of the network."""
    rows = it.of("collectives", *BUS)
    n = int(it.about["ranks"])
    if not rows:
        return
    rates = [BUS[row.task.op] * (n - 1) / n * row.task.sizes[0] / row.seconds for row in rows]
    least = min(row.seconds for row in rows)
    it.tier = {"bandwidth": max(rates), "efficiency": 1.0}
    start = {"efficiency": 0.8, "launch": least / 2, "latency": least / 2, "simple_latency": least, "ll_bandwidth": max(rates) / 2}
    bounds = {"efficiency": (0.0, 1.0), "ll_bandwidth": (0.0, 2 * max(rates))}

    def predict(values: Values) -> Floats:
        return predicted.collectives(rows, it.system(**values), it.assumed(), it.about)

    it.tier |= _fit(it, "collectives", rows, predict, start, bounds)


def document(it: Machine, name: str, day: str) -> dict[str, Any]:
    """Content of the machine file."""
    about = it.about
    source = f"measured with torch {about['torch']} on {about['device']}, {day}"

    def entry(value: float, unit: str) -> dict[str, Any]:
        short = float(f"{value:.4g}")
        return {"value": quantity(short, unit) if unit else short, "source": source, "basis": "measured"}

    units = {"flops": "FLOP/s", "bandwidth": "byte/s", "bytes": "byte", "latency": "s", "launch": "s"}

    def unit(one: str) -> str:
        return units.get(one.rsplit("_", 1)[-1], "")

    accelerator: dict[str, Any] = {"name": f"{about['device']}, {about['threads']} threads", "source": source}
    accelerator |= {one: entry(value, unit(one)) for one, value in it.accelerator.items()}
    accelerator["hbm_bytes"] = entry(float(about["memory_bytes"]), "byte")
    accelerator["processors"] = {"value": int(about["processors"]), "source": source, "basis": "measured"}
    tier = {one: entry(value, unit(one)) for one, value in it.tier.items()}
    inner = {"name": str(about["backend"] or "node")} | tier | {"size": int(about["ranks"])}
    alike = {one: told | {"source": "taken to be that inside a node", "basis": "assumed"} for one, told in tier.items()}
    software = {"stack": USUAL} | {one: entry(value, "") for one, value in it.software.items()}
    return {
        "name": name,
        "title": f"{about['device']}, {about['ranks']} ranks on {about['nodes']} nodes, measured {day}",
        "source": source,
        "accelerator": accelerator,
        "network": [inner, {"name": "between nodes"} | alike],
        "software": [software],
    }
