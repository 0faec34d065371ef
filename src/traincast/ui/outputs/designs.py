"""What `design` prints with `--json`."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import numpy as np

from traincast.core import COLUMNS, Doc, Result, describe_key
from traincast.planner import MACHINE_FIGURES, Designs, Refinement, Worth
from traincast.ui.outputs.reference import Answer, HtmlReport

_NUMBER: Final = {"type": ["number", "null"]}
_FIGURES: Final = {
    path: _NUMBER | describe_key(COLUMNS[path].meaning if path in COLUMNS else meaning, COLUMNS[path].unit)
    for path, meaning in MACHINE_FIGURES.items()
}


class PlanOfModel(Result):
    """The fastest plan of a model on a machine."""

    model: Annotated[str, Doc("model of the workload")]
    days: Annotated[float | None, Doc("time of one run; `null` where no plan fits", "d")]
    plan: Annotated[str | None, Doc("its fastest plan; `null` where none fits")]


class DesignedMachine(Result):
    """A machine at a number of GPUs."""

    machine: Annotated[str, Doc("its name, with the figures that vary")]
    kind: Annotated[str, Doc("`designed`, `system` or `offer`")]
    gpus: Annotated[int, Doc("number of GPUs")]
    figures: Annotated[dict[str, float | None], Doc("figures of the machine, in SI", keys=_FIGURES)]
    days: Annotated[float | None, Doc("time of the workload", "d")]
    cost: Annotated[float | None, Doc("cost of the workload", "$")]
    energy_kwh: Annotated[float | None, Doc("electricity of the workload, cooling included", "kWh")]
    megawatts: Annotated[float, Doc("power of all accelerators with their share of the rest", "MW")]
    regret: Annotated[float | None, Doc("worst share over the ranges that it costs more than the cheapest")]
    within_limits: Annotated[bool, Doc("whether every model fits, within all limits")]
    cost_behind: Annotated[
        float | None, Doc("its cost over that of the cheapest designed machine as fast; `null` without one")
    ]
    time_behind: Annotated[
        float | None, Doc("its time over that of the fastest designed machine as cheap; `null` without one")
    ]
    plans: Annotated[list[PlanOfModel], Doc("the fastest plan of each model")]


class PriceRange(Result):
    """Range of a price in which the cheapest machine stays so; in SI units, energy in kWh."""

    price: Annotated[str, Doc("name of the price")]
    value: Annotated[float, Doc("price now", "$")]
    low: Annotated[
        float, Doc("price, down to a tenth, below which another machine is cheaper; 0 where none is", "$")
    ]
    high: Annotated[
        float | None, Doc("price, up to ten times, above which another is; `null` where none is", "$")
    ]
    below: Annotated[str | None, Doc("that machine below; `null` where none is")]
    above: Annotated[str | None, Doc("that machine above; `null` where none is")]


class DesignOutput(Answer, kw_only=True):
    """Front of time, cost and energy over machines for a workload."""

    design: Annotated[str, Doc("name of the question")]
    machines: Annotated[int, Doc("machines searched, at each number of GPUs")]
    cheapest: Annotated[DesignedMachine, Doc("machine of least cost")]
    safest: Annotated[str, Doc("machine of least regret over the ranges of prices and runs")]
    front: Annotated[list[DesignedMachine], Doc("machines that no other beats, the cheapest first")]
    today: Annotated[list[DesignedMachine], Doc("systems and offers of the question")]
    worth: Annotated[list[Worth], Doc("worth of more of each figure at the cheapest machine")]
    prices: Annotated[list[PriceRange], Doc("ranges of prices in which the cheapest stays so")]
    sentences: Annotated[list[str], Doc("the answer in words")]
    refinement: Annotated[Refinement | None, Doc("what was searched of a large grid", optional=True)]
    output: Annotated[str | None, Doc("with `--output`: table of all machines", optional=True)]
    html: HtmlReport
    figures: Annotated[list[str] | None, Doc("with `--figures`: figures drawn", optional=True)]


def design_output(
    found: Designs, output: str | None, html: str | None, figures: Sequence[str] | None
) -> DesignOutput:
    """Return what is printed of designs, and the files written."""
    front = found.front_rows
    rows = _machines(found, [found.cheapest, *front, *found.today])
    row_name = {None: None} | {
        row: found.name(row) for of in found.break_even for row in (of.below, of.above) if row is not None
    }
    return DesignOutput(
        design=found.question.name,
        machines=sum(part.count for part in found.parts),
        cheapest=rows[0],
        safest=found.name(found.safest),
        front=rows[1 : 1 + len(front)],
        today=rows[1 + len(front) :],
        worth=list(found.worth),
        prices=[
            PriceRange(
                of.price.name,
                of.price.value,
                of.low,
                _finite_or_none(of.high),
                row_name[of.below],
                row_name[of.above],
            )
            for of in found.break_even
        ],
        sentences=found.sentences(),
        refinement=found.refinement,
        output=output,
        html=html,
        figures=None if figures is None else list(figures),
    )


def _finite_or_none(value: Any) -> float | None:
    """Return a number, None where it is not finite."""
    return float(value) if value is not None and np.isfinite(value) else None


def _machines(found: Designs, rows: Sequence[int]) -> list[DesignedMachine]:
    """Return machines with their plans."""
    listed = []
    for row, plans in zip(rows, found.plans(rows), strict=True):
        part = found.parts[found.part[row]]
        machine = found.within[row] // part.sizes
        named = zip(found.question.workload, found.run_hours[:, row] / 24, plans, strict=True)
        listed.append(
            DesignedMachine(
                found.name(row),
                part.family.kind,
                int(found.gpus[row]),
                {path: _finite_or_none(part.figure(path)[machine]) for path in MACHINE_FIGURES},
                _finite_or_none(found.hours[row] / 24),
                _finite_or_none(found.cost[row]),
                _finite_or_none(found.energy[row]),
                float(found.kilowatts[row] / 1000),
                _finite_or_none(found.regret[row]),
                bool(found.feasible[row]),
                *found.behind(row),
                [
                    PlanOfModel(work.model.name, _finite_or_none(days), None if plan is None else str(plan))
                    for work, days, plan in named
                ],
            )
        )
    return listed
