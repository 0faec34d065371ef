"""Content of ``catalog/errors.yaml``, the error model in the catalogue."""

from collections.abc import Mapping
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np

from error_model import ASSUMED, estimate_errors
from left_out_residuals import PARTS, Residuals, gather
from traincast.accuracy.fit.fitted_yaml import write_system
from traincast.core.quantities import Bools
from traincast.step.uncertainty import Errors, Span

TITLE: Final = (
    "Errors of predictions against measured runs, logarithm of predicted over measured (docs/uncertainty.md)"
)


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

    accelerators = np.array([case.accelerator for case in data.cases])
    with_memory = ~np.isnan(data.memory)
    fitted = (*PARTS, "other_stacks", "quantile", "apart", "reach")
    assumed = {name: _entry(value, "assumed", "docs/uncertainty.md") for name, value in ASSUMED.items()}
    if (~np.isnan(data.without_stack)).any():
        assumed["new_stack"] = _entry(
            known.new_stack, source=f"runs predicted with constants fitted without their software, {day}"
        )
    counted = f"{groups(timed)} groups of {int(timed.sum()):,} published runs"
    runs_text = f"{counted}, each predicted with constants fitted without its group"
    return {
        "name": "errors",
        "title": TITLE,
        "source": f"{runs_text} (source x model x accelerator), {day}",
        "time": {name: _entry(getattr(known, name)) for name in fitted}
        | {name: assumed[name] for name in ("new_stack", "new_accelerator", "new_layers")},
        "memory": {
            "ninety": _entry(
                known.memory, source=f"{int(with_memory.sum())} published runs with memory, {day}"
            ),
            "new_stack": assumed["memory_new_stack"],
            "stacks": {
                name: _entry(
                    known.memory_stacks[name],
                    source=f"{groups(with_memory & (data.stacks == name))} groups, {day}",
                )
                for name in sorted(known.memory_stacks)
            },
        },
        "stacks": {
            name: _entry(known.stacks[name], source=f"{groups(timed & (data.stacks == name))} groups, {day}")
            for name in sorted(known.stacks)
        },
        "accelerators": {name: groups(timed & (accelerators == name)) for name in sorted(known.accelerators)},
        "dense": _spans(known.dense),
        "moe": _spans(known.moe),
    }


def _entry(value: float, basis: str = "fitted", source: str | None = None) -> dict[str, Any]:
    """Return a figure of the file."""
    return {
        "value": int(value) if value == int(value) else float(f"{value:.4g}"),
        **({"source": source} if source else {}),
        "basis": basis,
    }


def _spans(spans: Mapping[str, Span]) -> dict[str, Any]:
    """Return the measured range of sizes, and the drift of errors beyond it."""
    return {
        name: {
            "least": _entry(span.least, "measured"),
            "most": _entry(span.most, "measured"),
            "drift": _entry(span.drift),
        }
        for name, span in spans.items()
    }


def write_errors(path: str | Path | None = None) -> Errors:
    """Estimate the error model from the left-out residuals, and write it to a file (the catalogue's)."""
    data = gather()
    known = estimate_errors(data)
    file = Path(str(files("traincast").joinpath("catalog", "errors.yaml"))) if path is None else Path(path)
    write_system(file, document(data, known, date.today().isoformat()))
    return known
