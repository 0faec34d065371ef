"""The command `scaling`."""

from typing import Annotated

from cyclopts import Parameter

from traincast.analysis.zero_formulas import KERNELS, TRANSFORMER
from traincast.core.errors import InputError
from traincast.ui.cli.app import QUESTION, Json, app, print_json
from traincast.ui.cli.options import Assumed, ModelName, SystemName


@app.command
def scaling(
    *,
    model: ModelName,
    system: SystemName,
    gpus: Annotated[
        str, Parameter(group=QUESTION, help="Numbers of GPUs with commas; efficiencies refer to the fewest.")
    ],
    zero: Annotated[str, Parameter(help="Stages of ZeRO with commas.")] = "1,2,3",
    mbs: Annotated[int, Parameter(help="Sequences of a GPU in an iteration.")] = 1,
    k1: Annotated[float, Parameter(help="Share of compute time in which kernels run.")] = KERNELS,
    k2: Annotated[
        float, Parameter(help="Share of kernel time in which the transformer's kernels run.")
    ] = TRANSFORMER,
    efficiency: Annotated[
        str | None,
        Parameter(help="Efficiency of the network by GPUs, such as 64=0.9,512=0.8; else the system's."),
    ] = None,
    comm_share: Annotated[
        float | None, Parameter(help="Measured share of communication on the fewest GPUs.")
    ] = None,
    target: Annotated[
        float | None, Parameter(help="Efficiency for which to say what network is enough, such as 0.9.")
    ] = None,
    assumptions: Assumed = None,
    json: Json = False,
) -> None:
    """Show how data parallelism with ZeRO scales: compute, communication and efficiency, and the network that would be enough.

    Example: traincast scaling --model gpt-13b --system polaris --gpus 8,16,64,512 --zero 1,2,3
    """
    from traincast.analysis.zero_scaling import scaling as analysed

    curve = None if efficiency is None else _efficiency_curve(efficiency)
    request, stages = analysed(
        model, system, _whole_numbers("--gpus", gpus), _whole_numbers("--zero", zero), mbs, assumptions,
        k1=k1, k2=k2, efficiency=curve, comm_share=comm_share, target=target,
    )  # fmt: skip
    if json:
        print_json(request.record(stages))
        return
    from traincast.ui.text.plans import console
    from traincast.ui.text.scaling import print_scaling

    print_scaling(request, stages, console())


def _whole_numbers(name: str, text: str) -> list[int]:
    """Read whole numbers separated by commas."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise InputError(name, [f"{text!r}: whole numbers with commas are wanted, such as 8,16"]) from None


def _efficiency_curve(text: str) -> dict[int, float]:
    """Read an efficiency curve such as 64=0.9,512=0.8."""
    try:
        pairs = [word.split("=") for word in text.split(",")]
        return {int(n): float(share) for n, share in pairs}
    except ValueError:
        raise InputError("--efficiency", [f"{text!r}: write for instance 64=0.9,512=0.8"]) from None
