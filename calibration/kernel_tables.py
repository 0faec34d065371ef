"""Fit the constants of kernel_tables.yaml to tables of timed kernels, and write them to the catalogue.

    python calibration/kernel_tables.py FOLDER             # of Parquet or CSV files
    python calibration/kernel_tables.py FOLDER --dry-run   # print the constants, write nothing

Every kind of kernel is fitted on its own, with one rate for each group of `traincast validate --kernels`
(accelerator, type, library) beside its constants, so that they say what is not the rate: start-up, protocols,
tiles. Kernels of all sizes count; errors within a group are taken to be correlated.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from published import HOMES, parameter
from refit import write_catalogue
from traincast.accuracy.fit.least_squares import Data, solve
from traincast.accuracy.fit.parameters import FittedConstant, Setting, fitted_constant
from traincast.accuracy.kernels import ENGINE, KernelGroup, groups_of, own_rate
from traincast.catalog.documents import read_document
from traincast.core.quantities import Floats
from traincast.step.uncertainty import NORMAL_90_PERCENT

HEADER: Final = """\
# Constants of the kernels of an inference engine, fitted by calibration/kernel_tables.py to timings of
# NVIDIA's aiconfigurator on {date}; priors in kernel_tables.yaml beside it. SI units; 90 % intervals."""
FILE: Final = Path(__file__).with_suffix(".yaml")
NOISE: Final = 0.08  # expected relative error of a kernel
RATE_SIGMA: Final = 0.3  # of the logarithm of a group's rate relative to the catalogue's
MOST_ROWS: Final = 800  # of a group: larger ones are thinned, evenly
NUDGE: Final = 1e-3  # of a logarithm, for a derivative
STEPS: Final = 30
WIDEST: Final = 6.0  # bounds of a constant without any [sigma]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="folder of tables")
    parser.add_argument("--kinds", nargs="*", help="kinds to fit (all)")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    options = parser.parse_args(arguments)
    groups, _ = groups_of([options.folder])
    fitted: list[FittedConstant] = []
    engine = read_document(ENGINE) if ENGINE.exists() else {}
    for kind, document in read_document(FILE).items():
        if not options.kinds or kind in options.kinds:
            chosen = [group for group in groups if group.key[0] == kind]
            if "constants" in document:
                engine[kind] = fit_engine(document, chosen)
            else:
                constants = tuple(
                    parameter(HOMES[home], line) for home in document for line in document[home]
                )
                fitted += fit_group(constants, chosen, partial(Setting, constants))[0]
    if not options.dry_run:
        write_engine(engine)
        for path in write_catalogue(fitted):
            print(f"wrote {path.name}")


class Fit(NamedTuple):
    """Fitted constant of an engine's kernels with its 90 % interval."""

    path: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Constant:
    """Constant of a family of an engine's kernels, by its name there, with its prior."""

    path: str
    prior: float
    sigma: float
    why: str
    high: float = np.inf
    low: float = 0.0

    @property
    def name(self) -> str:
        """Name in tables."""
        return self.path

    def value(self, theta: float) -> float:
        """Return the value at theta sigma from the prior, within bounds."""
        return min(max(self.prior * float(np.exp(self.sigma * theta)), self.low), self.high)


def fit_engine(document: dict[str, Any], groups: Sequence[KernelGroup]) -> dict[str, Any]:
    """Return the constants of every family of one kind of kernels: value, low and high."""
    constants = [Constant(**line) for line in document["constants"]]
    result: dict[str, Any] = {}
    for family in sorted({group.family for group in groups}):
        chosen, best = [group for group in groups if group.family == family], np.inf
        for choice in options_of(document.get("choices") or {}):

            def known(values: Sequence[float], choice: dict[str, float] = choice) -> dict[str, float]:
                return dict(zip((constant.path for constant in constants), values, strict=True)) | choice

            items, error = fit_group(constants, chosen, known)
            if error < best:
                best, ends = error, {item.path: item for item in items}
                result[family] = {
                    name: {end: float(f"{getattr(item, end):.4g}") for end in ("value", "low", "high")}
                    for name, item in ends.items()
                } | {name: {"value": value} for name, value in choice.items()}
        print(f"{family}: {100 * best:.1f} %", {k: v["value"] for k, v in result[family].items()}, flush=True)
    return result


def options_of(choices: dict[str, list[float]]) -> list[dict[str, float]]:
    """Return all combinations of choices."""
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


def write_engine(engine: dict[str, Any]) -> None:
    """Write the constants of the engine's kernels."""
    lines = [HEADER.format(date=date.today())]
    for kind, families in engine.items():
        lines.append(f"{kind}:")
        for family, entries in families.items():
            lines.append(f"  {family}:")
            lines += [
                f"    {name}: {{{', '.join(f'{end}: {entry[end]:.4g}' for end in entry)}}}"
                for name, entry in entries.items()
            ]
    ENGINE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def reach_of(constant: Any, end: str) -> float:
    """Return the distance of a bound of a constant from its prior, at most `WIDEST` [sigma]."""
    bound = getattr(constant, end)
    if not 0 < bound < np.inf:
        return WIDEST if end == "high" else -WIDEST
    return float(np.clip(np.log(bound / constant.prior) / constant.sigma, -WIDEST, WIDEST))


def fit_group(
    constants: Sequence[Any], chosen: Sequence[KernelGroup], known: Callable[[Any], Any]
) -> tuple[list[Any], float]:
    """Return constants fitted to groups, each with a rate of its own, and their mean error."""
    parts = [np.linspace(0, len(g.measured) - 1, min(len(g.measured), MOST_ROWS)).astype(int) for g in chosen]
    measured = np.concatenate([group.measured[rows] for group, rows in zip(chosen, parts, strict=True)])
    n = len(constants)

    def residuals(theta: Floats) -> Floats:
        values = tuple(constant.value(x) for constant, x in zip(constants, theta[:n], strict=True))
        setting, rates = known(values), np.exp(RATE_SIGMA * theta[n:])
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
    ends = np.array([[reach_of(constant, end) for constant in constants] for end in ("low", "high")])
    limits = np.append(ends[0], np.full(len(chosen), -7.0)), np.append(ends[1], np.full(len(chosen), 7.0))
    # at the priors, each group at the rate that suits it
    prior = known(tuple(constant.prior for constant in constants))
    rates = [np.log(own_rate(group, prior)) / RATE_SIGMA for group in chosen]
    start = np.clip(np.append(np.zeros(n), rates), *limits)
    solution = solve(model, data, start, limits, STEPS)
    reach = NORMAL_90_PERCENT * solution.deviation
    source = f"fitted to {sum(len(group.measured) for group in chosen):,} timings of NVIDIA's aiconfigurator"
    results: list[Any] = []
    for i, constant in enumerate(constants):
        value, least, most = (constant.value(solution.theta[i] + sign * reach[i]) for sign in (0, -1, 1))
        if isinstance(constant, Constant):
            results.append(Fit(constant.path, value, least, most))
            continue
        said = f"{source}, {date.today()}"
        ends_of = float(value), float(least), float(most)
        results.append(fitted_constant(constant, ends_of, bool(solution.determined[i]), len(names), said))
        print(f"{constant.name:48s} {constant.prior:10.4g} {value:10.4g} {least:10.4g} {most:10.4g}")
    rows_of = np.concatenate([group.ordinary[rows] for group, rows in zip(chosen, parts, strict=True)])
    return results, float(np.abs(np.expm1(solution.residuals[rows_of.astype(bool)])).mean())


if __name__ == "__main__":
    main()
