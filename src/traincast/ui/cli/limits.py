"""The command on the limits of moving data: `limits`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from traincast.core.errors import ErrorCollector, InputError, whole_number_problems
from traincast.core.output_files import check_folder
from traincast.core.units import parse_count
from traincast.ui.cli.app import OUTPUT, Json, app, print_json
from traincast.ui.cli.completion import names_of_accelerators, names_of_systems

if TYPE_CHECKING:
    from traincast.analysis.training_limits import Limits


@app.command
def limits(
    *,
    accelerator: Annotated[
        str | None,
        Parameter(completer=names_of_accelerators, help="Accelerator of the catalogue, such as h100-sxm-80."),
    ] = None,
    system: Annotated[
        str | None,
        Parameter(
            completer=names_of_systems,
            metavar="SYSTEM",
            help="In its place a system, by name or file: its accelerator and fast domain.",
        ),
    ] = None,
    network: Annotated[
        str | None,
        Parameter(
            help="What a GPU sends and receives together, such as '900 GB/s'; else that of the fastest domain known."
        ),
    ] = None,
    layer: Annotated[str, Parameter(help="Input and output width of the layer.")] = "16384x81920",
    batch: Annotated[str, Parameter(help="Batch of the layer in tokens; k, M and G count in 1024.")] = "4M",
    micro_batches: Annotated[int, Parameter(help="Micro-batches of that batch.")] = 1,
    gpus: Annotated[str | None, Parameter(help="Numbers of GPUs with commas; else 4, 16, … 4194304.")] = None,
    days: Annotated[
        float | None, Parameter(help="Length of training runs [days]; else three months.")
    ] = None,
    batch_growth: Annotated[
        float | None,
        Parameter(help="Exponent of training compute by which batches of training runs grow; else 1/6."),
    ] = None,
    figures: Annotated[
        Path | None, Parameter(group=OUTPUT, help="Draw utilisation into this folder as well, as SVG.")
    ] = None,
    json: Json = False,
) -> None:
    """Say how far moving data lets a cluster, and a training run of fixed length, grow: the best sharding, and what binds.

    Example: traincast limits --accelerator h100-sxm-80 --figures out/limits
    """
    from traincast.analysis.training_limits import BATCH_GROWTH, CLUSTERS, DAYS, check, device_of
    from traincast.analysis.training_limits import limits as find

    errors = ErrorCollector("limits")
    widths = errors.catch(_layer_widths, layer) or (1, 1)
    tokens = errors.catch(parse_count, batch, "--batch", 1024) or 1
    counts = CLUSTERS if gpus is None else errors.catch(_gpu_counts, gpus) or (1,)
    run_days, growth_exponent = (
        DAYS if days is None else days,
        BATCH_GROWTH if batch_growth is None else batch_growth,
    )
    errors.catch(check, widths, tokens, micro_batches, counts, run_days, growth_exponent)
    errors.catch(device_of, accelerator, system, network)
    if figures is not None:
        errors.catch(check_folder, figures)
    errors.raise_any()
    result = find(
        accelerator,
        system=system,
        network=network,
        layer=widths,
        tokens=tokens,
        micro_batches=micro_batches,
        gpus=counts,
        days=run_days,
        batch_growth=growth_exponent,
    )
    drawn = [] if figures is None else _draw(result, figures)
    if json:
        from traincast.ui.outputs.analyses import LimitsOutput

        print_json(LimitsOutput(result.record(), [str(path) for path in drawn]))
        return
    from traincast.ui.text.limits import print_limits
    from traincast.ui.text.plans import console

    print_limits(result, console())
    for path in drawn:
        print(path)


def _layer_widths(text: str) -> tuple[int, int]:
    """Read two widths such as 16384x81920."""
    match = re.fullmatch(r"\s*(\d+)\s*[xX×]\s*(\d+)\s*", text)
    if match is None:
        raise InputError("--layer", [f"{text!r}: write input x output width, such as 16384x81920"])
    return int(match[1]), int(match[2])


def _gpu_counts(text: str) -> tuple[int, ...]:
    """Read numbers of GPUs separated by commas."""
    words = [word.strip() for word in text.split(",")]
    wrong = [f"{word!r}: must be a whole number of at least 1" for word in words if not word.isdecimal()]
    numbers = [int(word) for word in words if word.isdecimal()]
    wrong += [problem for number in numbers for problem in whole_number_problems("gpus", number)]
    if wrong:
        raise InputError("--gpus", wrong)
    return tuple(numbers)


def _draw(limits: "Limits", folder: Path) -> list[Path]:
    """Draw the figures into a folder."""
    from traincast.ui.figures import save, utilisation_by_cluster, utilisation_by_compute

    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for draw in (utilisation_by_cluster, utilisation_by_compute):
        drawn.append(folder / f"{draw.__name__}.svg")
        save(draw(limits), drawn[-1])
    return drawn
