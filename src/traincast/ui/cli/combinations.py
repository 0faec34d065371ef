"""Models, systems or frameworks of which several are typed: all combinations of them, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from traincast.core import ErrorCollector
from traincast.ui import outputs, text
from traincast.ui.cli.options import RunOptions, framework_typed
from traincast.ui.cli.output import print_json, progress

if TYPE_CHECKING:
    from traincast.planner import Comparison, Question


@dataclass(frozen=True, kw_only=True)
class TypedNames:
    """What the command line names of each kind; every combination is an alternative."""

    models: Sequence[str]
    systems: Sequence[str]
    gpus: Sequence[int] = ()
    frameworks: Sequence[str | None] = (None,)
    assumptions: Sequence[str | None] = (None,)
    plans: Sequence[str] = ()


def several_names(model: str, system: str, framework: str | None) -> TypedNames | None:
    """Return the models, systems and frameworks that are named with commas; None where each is one."""
    words = [word for word in (model, system, framework) if word is not None]
    if not any("," in word for word in words):
        return None
    found = TypedNames(
        models=split_names(model),
        systems=split_names(system),
        frameworks=[None] if framework is None else [*split_names(framework)],
    )
    return found if max(len(found.models), len(found.systems), len(found.frameworks)) > 1 else None


def split_names(text: str) -> list[str]:
    """Return names with commas one by one; a file that exists is one, whatever its name."""
    return [text] if Path(text).exists() else [part.strip() for part in text.split(",") if part.strip()]


def search_combinations(
    errors: ErrorCollector, options: RunOptions, typed: TypedNames, shared: "Question"
) -> "Comparison":
    """Search every combination, and return the comparison; errors are collected in `errors`."""
    from traincast.planner import Alternatives, Comparison, parse_plan

    given = [errors.catch(parse_plan, plan) or {} for plan in typed.plans] or [{}]
    spaces = [None if name is None else errors.catch(framework_typed, name) for name in typed.frameworks]
    questions = []
    for name, of in product(typed.models, typed.systems):
        model, system, gbs = options.read_run(errors, name, of)
        questions.append(replace(shared, model=model, system=system, gbs=gbs))
    alternatives = Alternatives(
        questions=questions, gpus=typed.gpus, frameworks=spaces, assumptions=typed.assumptions, plans=given
    )
    requests = alternatives.requests(errors)
    with progress("compare") as report_progress:
        return Comparison.from_requests(requests, report_progress, **options.metrics_arguments())


def show_comparison(compared: "Comparison", json: bool) -> None:
    """Print a comparison; where nothing fits at all it raises `NothingFits` after it."""
    if json:
        print_json(outputs.plans.CompareOutput(compared))
    else:
        text.tables.show(text.comparison.comparison(compared))
    compared.require_any()
