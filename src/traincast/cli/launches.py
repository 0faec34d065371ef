"""Commands on launches of training frameworks: `export`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from traincast.cli.common import KNOBS, OUTPUT, QUESTION, Force, Json, app, print_json, progress
from traincast.cli.plans import ASKED, UNLOCKED, Asked, Assumed, Locks, ModelName, SystemName, case_of, estimated
from traincast.errors import Mistakes, NothingFits, unknown
from traincast.plan import Plan

if TYPE_CHECKING:
    from traincast.estimate import Estimate


@app.command
def export(
    model: ModelName,
    /,
    *,
    system: SystemName,
    to: Annotated[str, Parameter(help="What to write; docs/export.md lists the formats.")] = "megatron",
    gpus: Annotated[
        int | None,
        Parameter(group=QUESTION, help="GPUs of a search whose best plan is written; else the plan is what its knobs say."),
    ] = None,
    asked: Annotated[Asked, Parameter(name="*", group=QUESTION)] = ASKED,
    locks: Annotated[Locks, Parameter(name="*", group=KNOBS)] = UNLOCKED,
    output: Annotated[Path | None, Parameter(group=OUTPUT, help="File to write; else standard output.")] = None,
    force: Force = False,
    assumptions: Assumed = None,
    json: Json = False,
) -> None:
    """Write the best plan, or the one given, as a launch script or configuration of a training framework.

    What the framework cannot be told is said in the file and on standard error.

    Example: traincast export llama-3-70b --system dgx-h100 --gpus 512 --to megatron --output run.sh
    """
    from traincast.launch.export import FORMATS
    from traincast.launch.export import export as launch_of
    from traincast.written import beside, check_output

    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    if output is not None:
        check_output(output, force, (FORMATS[to].ending,))
    held = {name: value for name, value in vars(locks).items() if value is not None}
    framework = FORMATS[to].framework
    if gpus is None:
        est = estimated(asked, model, system, Plan(**held), assumptions)
    else:
        est = _best(asked, model, system, gpus, framework, held, assumptions)
    launch = launch_of(est, to)
    for line in launch.not_expressed.values():
        print(f"not expressed: {line}", file=sys.stderr)
    if output is not None:
        with beside(output) as partial:
            partial.write_text(launch.text, encoding="utf-8")
    if json:
        told = {"to": to, "output": None if output is None else str(output), "text": launch.text}
        print_json(case_of(est) | {"estimate": est.summary(), **told, "not_expressed": launch.not_expressed})
    elif output is None:
        print(launch.text, end="")


def _best(
    asked: Asked, model: str, system: str, gpus: int, framework: str, held: dict[str, Any], assumptions: str | None
) -> "Estimate":
    """The best plan that a framework can run."""
    from traincast.search import ask

    mistakes = Mistakes("export")
    wanted, machine, gbs = asked.read(mistakes, model, system)
    asking = ask(mistakes, wanted, machine, (gpus,), gbs, assumptions, None, 1, None, framework, held)
    with progress("search") as told:
        (found,) = mistakes.settled(asking).answer(told)
    if found.best is None:
        raise NothingFits(str(found.explain()))
    return found.best[1]
