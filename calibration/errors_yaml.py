"""Content of ``catalog/errors.yaml``, the error model in the catalogue."""

from collections.abc import Mapping
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np

import software
from error_model import LEAST_DRIFT, QUANTILES, estimate_errors
from left_out_residuals import PARTS, Residuals, gather
from traincast.accuracy.fit.fitted_yaml import write_system
from traincast.core.quantities import Bools
from traincast.step.uncertainty import ADDED, Errors, Span

TITLE: Final = (
    "Errors of predictions against measured runs, logarithm of predicted over measured (docs/uncertainty.md)"
)

# figure of `ADDED` → of which runs it is the least with which they lie within their intervals
TOLD_BY: Final = {
    "spread": "their software blank",
    "open": "those of dense models whose facts leave software open, facts blind",
    "open_moe": "those with experts whose facts leave software open, facts blind",
    "release": "those of dense models read as the release before theirs, without theirs and later ones",
    "release_moe": "those with experts read as the release before theirs, without theirs and later ones",
}


def document(data: Residuals, known: Errors, day: str) -> dict[str, Any]:
    """Return the content of ``catalog/errors.yaml``.

    Parameters
    ----------
    data, known : Residuals, Errors
        Runs, and the error model estimated from them.
    day : str
        Date of the estimate.
    """
    timed = data.weights > 0

    def groups(mask: Bools) -> int:
        return len(set(data.groups[mask].tolist()))

    with_memory = ~np.isnan(data.memory)
    fitted = (
        *PARTS, "other_stacks", *QUANTILES, "apart", "reach", "ranking_slope", "ranking_shift",
        "ranking_layouts", "ranking_most",
    )  # fmt: skip
    counted = f"{groups(timed)} groups of {int(timed.sum()):,} published runs"
    runs_text = f"{counted}, each predicted with constants fitted without its group"
    return {
        "name": "errors",
        "title": TITLE,
        "source": f"{runs_text} (source x model x accelerator), and without larger ones, {day}",
        "time": {name: _entry(getattr(known, name)) for name in fitted},
        "drifts": {
            name: _entry(value, "assumed" if value == LEAST_DRIFT[name] else "fitted")
            for name, value in known.drifts.items()
        },
        "memory": {
            "ninety": _entry(
                known.memory, source=f"{int(with_memory.sum())} published runs with memory, {day}"
            ),
            "new_stack": _entry(known.memory_new_stack, "assumed", "docs/uncertainty.md"),
            "shift": _entry(known.memory_shift),
            "shifts": {name: _entry(known.memory_shifts[name]) for name in sorted(known.memory_shifts)},
            "stacks": {
                name: _entry(
                    known.memory_stacks[name],
                    source=f"{groups(with_memory & (data.stacks == name))} groups, {day}",
                )
                for name in sorted(known.memory_stacks)
            },
        },
        "software": {  # where a question does not say which it is
            **{
                name: _entry(
                    getattr(known.software, name),
                    source=f"90 % of {counted} within their intervals, {TOLD_BY[name]}, {day}",
                )
                for name in ADDED
            },
            "prior": _entry(known.software.prior, "assumed", "as of the factors of stacks"),
            "generations": software.members(known.software),
            "releases": {name: list(stacks) for name, stacks in known.software.releases.items()},
            "configurations": software.rows(known.software),
        },
        "stacks": {
            name: _entry(known.stacks[name], source=f"{groups(timed & (data.stacks == name))} groups, {day}")
            for name in sorted(known.stacks)
        },
        "measured": {  # by the runs that constants are fitted to
            "stacks": sorted(known.evidence.stacks),
            "experts": sorted(known.evidence.experts),
            "layers": sorted(known.evidence.layers),
            "precisions": {name: sorted(kinds) for name, kinds in known.evidence.precisions.items()},
            "cells": {name: int(n) for name, n in known.evidence.cells.items()},
            "kin": sorted(known.evidence.kin),
            "dense": _spans(known.evidence.dense),
            "moe": _spans(known.evidence.moe),
        },
    }


def _entry(value: float, basis: str = "fitted", source: str | None = None, digits: int = 4) -> dict[str, Any]:
    """Return a figure of the file."""
    return {
        "value": int(value) if value == int(value) else float(f"{value:.{digits}g}"),
        **({"source": source} if source else {}),
        "basis": basis,
    }


def _spans(spans: Mapping[str, Span]) -> dict[str, Any]:
    """Return the measured range of sizes."""
    return {
        name: {
            "least": _entry(span.least, "measured", digits=7),
            "most": _entry(span.most, "measured", digits=7),
        }
        for name, span in spans.items()
    }


def write_errors(path: str | Path | None = None) -> Errors:
    """Estimate the error model from the left-out residuals, and write it to a file (the catalogue's)."""
    data = gather()
    known = software.with_software(data, estimate_errors(data))
    file = Path(str(files("traincast").joinpath("catalog", "errors.yaml"))) if path is None else Path(path)
    write_system(file, document(data, known, date.today().isoformat()))
    return known
