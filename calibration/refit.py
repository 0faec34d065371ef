"""Fit the constants of published.yaml to the measured runs, write them, and predict each run left out.

    python calibration/refit.py                  # some five minutes on one core; needs traincast[calibration]
    python calibration/refit.py --dry-run        # print the constants and the errors, write nothing
    python calibration/refit.py --keep-values    # no fit: left-out errors around the catalogue's values

The fit starts from the priors, which do not depend on the catalogue's values: fitting twice gives the same
result. Values are written with 90 % intervals and the date: those of accelerators and networks to their
files, of software to catalog/software and stacks, universal ones to catalog/calibrated.yaml. A constant that
the data do not determine stays near its prior, and its source says so. Then every run is predicted with
constants fitted without its group (source x model x accelerator), without its stack, and more (left_out.py).
From the table of these predictions the error model is estimated (catalog/errors.yaml). Finally scoreboard.py
renews what depends on the values.
"""

import argparse
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console

from left_out import later_runs, residuals, write, write_open
from published import FOLDERS, in_catalogue, parameters, pooled
from traincast.accuracy.fit.fit import Fitted, bounds, fit
from traincast.accuracy.fit.fitted_yaml import load, text_of, write_value
from traincast.accuracy.fit.least_squares import solution_at
from traincast.accuracy.fit.parameters import FittedConstant, Parameter, prior_precision
from traincast.accuracy.fit.residuals import MeasuredRuns, bundled_runs
from traincast.accuracy.runs.run import Run
from traincast.accuracy.scores import source_of
from traincast.catalog.software import FOLDER
from traincast.catalog.software import constants as constants_of_software
from traincast.core.assumptions import CALIBRATED
from traincast.core.output_files import atomic_output
from traincast.core.quantities import Floats

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "src" / "traincast"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = _parser().parse_args(arguments)
    start, console = time.monotonic(), Console(stderr=True, highlight=False)

    def report(line: str) -> None:
        console.print(f"{time.monotonic() - start:6.0f} s  {line}")

    constants, runs = parameters(), [run for run in (*bundled_runs(), *later_runs()) if run.step_seconds]
    report(f"{len(constants)} constants, {len(runs)} runs")
    fitted = (
        catalogue_as_fitted(constants, runs)
        if options.keep_values
        else fit(constants, runs, progress=report, steps=options.steps, settle=False, pooled=pooled())
    )
    print(table(fitted))
    found = None if options.no_left_out else residuals(fitted, report)
    print(sources(runs, found.columns if found else {"fitted": fitted.solution.residuals}))
    if options.dry_run:
        return
    if not (options.keep_values or options.no_values):
        for path in write_catalogue(map(with_source, fitted.constants)):
            report(f"wrote {path.relative_to(ROOT)}")
    if found:
        write(runs, found.columns)
        write_open(runs, found)
        # in a new process, as this one has loaded the old values
        renewed = (
            "import normalise, errors_yaml, replay_table; "
            "normalise.write(); errors_yaml.write_errors(); replay_table.write()"
        )
        subprocess.run([sys.executable, "-c", renewed], check=True, cwd=Path(__file__).parent)
    renew = [sys.executable, str(Path(__file__).with_name("scoreboard.py")), "--renew"]
    sys.exit(subprocess.run(renew, check=False).returncode)  # 1 where an error grew without a word


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    parser.add_argument("--no-values", action="store_true", help="leave the catalogue as it is")
    parser.add_argument(
        "--no-left-out", action="store_true", help="leave the table of runs left out as it is"
    )
    parser.add_argument(
        "--keep-values", action="store_true", help="no fit: take the values of the catalogue as fitted"
    )
    parser.add_argument("--steps", type=int, default=25, help="most steps of the fit (25)")
    return parser


def catalogue_as_fitted(constants: Sequence[Parameter], runs: Sequence[Run]) -> Fitted:
    """Return the catalogue's present values as if they had just been fitted."""
    evidence = MeasuredRuns(runs, tuple(constants))
    theta = np.clip([constant.theta(in_catalogue(constant)) for constant in constants], *bounds(constants))
    y, slopes = evidence.residuals(theta)
    prior = prior_precision(constants, pooled())
    solution = solution_at(theta, y, slopes, evidence.data, np.ones(len(theta), bool), prior)
    return Fitted(tuple(constants), evidence, evidence.data, solution, y)


def table(fitted: Fitted) -> str:
    """Return a table with one line for each constant."""
    lines = [f"{'constant':58s} {'prior':>10s} {'value':>10s} {'90 %':>21s}  runs"]
    for item in fitted.constants:
        note = "" if item.determined else "  not determined" if item.runs else "  touches no run"
        numbers = f"{item.before:10.4g} {item.value:10.4g} {item.low:10.4g} {item.high:10.4g}"
        lines.append(f"{item.parameter.name:58s} {numbers}  {item.runs:4d}{note}")
    return "\n".join(lines)


def sources(runs: Sequence[Run], errors: dict[str, Floats]) -> str:
    """Return a table of mean absolute relative errors by source, one column per kind of residual."""
    groups: dict[str, list[int]] = defaultdict(list)
    for i, run in enumerate(runs):
        groups[source_of(run.id, run.model.experts is not None)].append(i)
    lines = [f"{'source':14s}{'n':>6s}" + "".join(f"{name:>18s}" for name in errors)]
    for source, rows in sorted(groups.items()):
        known = {name: y[rows][~np.isnan(y[rows])] for name, y in errors.items()}
        cells = (
            f"{100 * np.mean(np.abs(np.expm1(y))):16.2f} %" if len(y) else f"{'':18s}" for y in known.values()
        )
        lines.append(f"{source:14s}{len(rows):6d}" + "".join(cells))
    return "\n".join(lines)


def with_source(constant: FittedConstant) -> FittedConstant:
    """Return a fitted constant with the data and the date of the fit."""
    today = date.today().isoformat()
    source = f"{constant.parameter.meaning}; runs say little, {today}"
    if constant.determined:
        source = f"fitted to {constant.runs} published runs, {today}"
    return replace(constant, source=source)


def write_catalogue(constants: Iterable[FittedConstant], folder: Path = PACKAGE / "catalog") -> list[Path]:
    """Write fitted values to the files of a catalogue that they belong to; return the paths."""
    documents: dict[Path, Any] = {}
    entries = {entry.name: entry for entry in constants_of_software()}
    for constant in constants:
        for name in constant.of or (CALIBRATED,):
            entry = entries.get(name) if constant.parameter.home == "stack" else None
            of_home = Path(FOLDERS.get(constant.parameter.home, "")) / f"{name}.yaml"
            path = folder / (of_home if entry is None else Path(FOLDER.name) / entry.file.name)
            if path not in documents:
                documents[path] = load(path)
            write_value(documents[path] if entry is None else documents[path][name], constant)
    for path, document in documents.items():
        with atomic_output(path) as partial:
            partial.write_text(text_of(document), encoding="utf-8")
    return list(documents)


if __name__ == "__main__":
    main()
