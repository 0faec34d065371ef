"""Fit the constants of kernel_tables.yaml to tables of timed kernels, and write them to the catalogue.

    python calibration/kernel_tables.py FOLDER             # of Parquet or CSV files
    python calibration/kernel_tables.py FOLDER --dry-run   # print the constants, write nothing

Every kind of kernel is fitted on its own, with one rate for each group of `traincast validate --kernels`
(accelerator, type, library) beside its constants, so that they say what is not the rate: start-up, protocols,
tiles. Kernels of all sizes count; errors within a group are taken to be correlated.
"""

import argparse
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np

from published import HOMES, _parameter, in_catalogue
from refit import write_catalogue
from traincast.accuracy.fit.fit import FittedConstant, bounds, fitted_constant
from traincast.accuracy.fit.least_squares import Data, solve
from traincast.accuracy.fit.parameters import Setting
from traincast.accuracy.kernels import Group, groups_of
from traincast.catalog.documents import read
from traincast.core.quantities import Floats
from traincast.step.uncertainty import NORMAL_90_PERCENT

FILE: Final = Path(__file__).with_suffix(".yaml")
NOISE: Final = 0.08  # expected relative error of a kernel
RATE_SIGMA: Final = 0.3  # of the logarithm of a group's rate relative to the catalogue's
MOST_ROWS: Final = 1500  # of a group: larger ones are thinned, evenly
NUDGE: Final = 1e-3  # of a logarithm, for a derivative
STEPS: Final = 30


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="folder of tables")
    parser.add_argument("--kinds", nargs="*", help="kinds to fit (all)")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    options = parser.parse_args(arguments)
    groups, _ = groups_of([options.folder])
    fitted: list[FittedConstant] = []
    for kind, document in read(FILE).items():
        if not options.kinds or kind in options.kinds:
            fitted += fit_kind(kind, document, groups)
    if not options.dry_run:
        for path in write_catalogue(fitted):
            print(f"wrote {path.name}")


def fit_kind(kind: str, document: dict[str, Any], groups: Sequence[Group]) -> list[FittedConstant]:
    """Return the constants of one kind of kernels, fitted to its groups."""
    constants = tuple(_parameter(HOMES[home], line) for home in document for line in document[home])
    chosen = [group for group in groups if group.key[0] == kind]
    parts = [np.linspace(0, len(g.measured) - 1, min(len(g.measured), MOST_ROWS)).astype(int) for g in chosen]
    measured = np.concatenate([group.measured[rows] for group, rows in zip(chosen, parts, strict=True)])
    n = len(constants)

    def residuals(theta: Floats) -> Floats:
        values = tuple(constant.value(x) for constant, x in zip(constants, theta[:n], strict=True))
        setting, rates = Setting(constants, values), np.exp(RATE_SIGMA * theta[n:])
        times = [
            group.predict(float(rate), setting)[rows]
            for group, rows, rate in zip(chosen, parts, rates, strict=True)
        ]
        return np.asarray(np.log(np.concatenate(times) / measured))

    def model(theta: Floats) -> tuple[Floats, Floats]:
        y = residuals(theta)
        nudges = NUDGE * np.eye(len(theta))
        return y, np.stack([(residuals(theta + nudge) - y) / NUDGE for nudge in nudges], axis=1)

    names = [group.key for group, rows in zip(chosen, parts, strict=True) for _ in rows]
    weights = np.concatenate([np.full(len(rows), 1 / len(rows)) for rows in parts])
    data = Data(weights * 100, np.full(len(names), NOISE), names)
    low, high = bounds(constants)
    limits = np.append(low, np.full(len(chosen), -7.0)), np.append(high, np.full(len(chosen), 7.0))
    start = np.append(
        [constant.theta(in_catalogue(constant)) for constant in constants], np.zeros(len(chosen))
    )
    solution = solve(model, data, np.clip(start, *limits), limits, STEPS)
    reach = NORMAL_90_PERCENT * solution.deviation
    source = f"fitted to {sum(len(group.measured) for group in chosen):,} timings of NVIDIA's aiconfigurator"
    results = []
    for i, constant in enumerate(constants):
        value, least, most = (constant.value(solution.theta[i] + sign * reach[i]) for sign in (0, -1, 1))
        item = fitted_constant(
            constant,
            (value, least, most),
            bool(solution.determined[i]),
            len(names),
            f"{source}, {date.today()}",
        )
        print(f"{constant.name:48s} {constant.prior:10.4g} {value:10.4g} {least:10.4g} {most:10.4g}")
        results.append(item)
    error = np.abs(np.expm1(solution.residuals))
    print(f"{kind}: {100 * np.mean(error):.1f} %, {len(names)} kernels of {len(chosen)} groups")
    return results


if __name__ == "__main__":
    main()
