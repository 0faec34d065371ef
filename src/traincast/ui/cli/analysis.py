"""Commands of analyses: `advise`, `trace`, `flops`, `limits`, `scaling`, `reproduce`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from traincast.core import (
    MUST_BE_WHOLE,
    ErrorCollector,
    InputError,
    check_folder,
    check_output,
    number_text,
    parse_count,
    parse_whole,
    raise_problems,
    whole_number_problems,
)
from traincast.ui import outputs, text
from traincast.ui.cli.app import Force, Json, command, option, output_option, question_option
from traincast.ui.cli.completion import names_of_accelerators, names_of_systems
from traincast.ui.cli.options import (
    LENGTH,
    NOTHING_MEASURED,
    Assumed,
    MeasuredArguments,
    ModelName,
    PlanArguments,
    SystemName,
    read_length,
    require_fit,
    warn_of_misfit,
)
from traincast.ui.cli.output import (
    check_figure,
    command_with,
    fail,
    file_name,
    print_files,
    print_json,
    progress,
)
from traincast.ui.cli.quantities import parse_share

if TYPE_CHECKING:
    from traincast.analysis import FlopsByPart
    from traincast.ui.text.tables import Parts
from traincast.ui.cli.figure_files import FigureFormat, FiguresFolder, save_figures

_WHY = "Show all causes of the interval's width, dimensions, batches, rules of thumb."
_NETWORK_SHARE = "Share of the step that may wait for bandwidth between nodes."


@command("Ask about a run", "advise")
def advise(
    model: ModelName,
    /,
    *,
    question: PlanArguments,
    measured: MeasuredArguments = NOTHING_MEASURED,
    network_share: Annotated[str, option(_NETWORK_SHARE, metavar="SHARE")] = "5%",
    why: Annotated[bool, output_option(_WHY)] = False,
    json: Json = False,
) -> None:
    """Advise on a plan: where its time and memory go, and what to change in methods, sizes and network.

    Tiles, waves and losses of a real machine are known to calibrated assumptions, not to those of the paper.

    Example: traincast advise gpt3-175b --system dgx-a100 --tp 8 --pp 8 --dp 4
    """
    from traincast.planner import advise
    from traincast.step import metrics

    errors = ErrorCollector("advise")
    given = errors.catch(measured.read_measured) or {}
    share = errors.catch(parse_share, network_share, "--network-share") or 0.0
    est = question.estimate(model, errors=errors, real_machine=True)
    advice = advise(est, network_share=share, framework=question.framework, **given)
    if json:
        print_json(outputs.analyses.AdviseOutput(est.job, est, advice))
    else:
        price = question.run.gpu_hour_price(est.system)
        seen = None if advice.measured is None else advice.measured.step_seconds
        measures = metrics(est, step_seconds=seen, **question.run.metrics_arguments())
        lead = text.headline.headline("Plan", est, measures, price, advice.measured)
        header = text.plans.header(est, question.run.usual(est.model, est.system))
        narrowing = () if why else text.headline.narrowing_line(est)
        text.tables.show(lead, [""], header, narrowing, text.analysis.advice(advice, command_with, why))
    require_fit(est)


_TRACE_FILE = "Trace file for Perfetto: .json, or compressed .json.gz."
_STAGES = "Only these stages in the output, such as 0,1,6-7."
_PASSES = "Only passes of these micro-batches in the output, such as 0-15."


@command("Ask about a run", "trace")
def trace(
    model: ModelName,
    /,
    *,
    question: PlanArguments,
    output: Annotated[Path | None, output_option(_TRACE_FILE)] = None,
    figure: Annotated[Path | None, output_option("Figure of the timeline: .svg, .pdf or .png.")] = None,
    stages: Annotated[str | None, output_option(_STAGES)] = None,
    micro_batches: Annotated[str | None, output_option(_PASSES)] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Show the step of one plan as it runs: every pass of every micro-batch on every stage, and every wait.

    Example: traincast trace llama-3-70b --system dgx-h100 --tp 4 --pp 8 --dp 4 --gbs 128 --output trace.json
    """
    from traincast.analysis import TRACE_ENDINGS, trace, write_chrome_trace

    errors = ErrorCollector("trace")
    errors.catch(check_output, output, force, TRACE_ENDINGS)
    errors.catch(check_figure, figure, force)
    selection = [
        errors.catch(_ranges, "--stages", stages) or (),
        errors.catch(_ranges, "--micro-batches", micro_batches) or (),
    ]
    est = errors.require(errors.catch(question.estimate, model, None, ErrorCollector("trace")))
    result = trace(est)
    if output is not None:
        write_chrome_trace(result, output, force, *selection)
    if figure is not None:
        from traincast.ui.figures import save, timeline

        save(timeline(result), figure)
    if json:
        files = map(file_name, (output, figure))
        print_json(outputs.analyses.TraceOutput(est.job, est, result, *files))
    else:
        header = text.plans.header(est, question.run.usual(est.model))
        text.tables.show(header, text.analysis.trace(result))
        print_files(output, figure)
    warn_of_misfit(est)


MAX_IN_RANGE: Final = 1 << 20  # the number of a stage or a micro-batch; all of a range are listed


def _ranges(name: str, text: str | None) -> tuple[int, ...]:
    """Read whole numbers and ranges separated by commas, such as 0,1,6-7."""
    numbers: list[int] = []
    for word in [] if text is None else text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", word, re.ASCII)
        first = parse_whole(match[1]) if match else None
        last = parse_whole(match[2] or match[1]) if match else None
        if first is None or last is None or first > last:
            raise InputError(name, [f"{text!r}: write numbers and ranges with commas, such as 0,1,6-7"])
        if last > MAX_IN_RANGE:
            raise InputError(name, whole_number_problems("number", last, MAX_IN_RANGE))
        numbers += range(first, last + 1)
    return tuple(numbers)


@command("Ask about a run", "metrics")
def flops(
    model: ModelName,
    /,
    *,
    seq: Annotated[int | None, question_option(LENGTH, converter=read_length)] = None,
    json: Json = False,
) -> None:
    """Count the FLOPs of a model by part and convention, its parameters, and the intensity of its matmuls.

    Example: traincast flops mixtral-8x7b --seq 8192
    """
    from traincast.analysis import flops_by_part

    result = flops_by_part(model, seq)
    if json:
        print_json(result)
    else:
        text.tables.show(_flops_text(result))


def _flops_text(result: "FlopsByPart") -> "Parts":
    """Show FLOPs by part, of the whole model, and the intensity of matmuls."""
    from traincast.core import rate_text
    from traincast.ui.text.tables import heading, note, paragraphs, table, title_line

    names = [row.convention for row in result.totals]
    yield title_line(f"{result.model.title}, sequences of {result.seq:,} tokens")
    yield from paragraphs(*filter(None, (result.model.taken,)))
    active_parameters = rate_text(result.active_parameters, "")
    yield f"parameters: {rate_text(result.parameters, '')}, {active_parameters} of them active"
    yield heading("Forward pass of a token [GFLOP]")
    cells = []
    for part in result.parts:
        weights = rate_text(part.parameters, "")
        active = rate_text(part.active_parameters, "")
        cells.append((part.part, weights, active, *(f"{part.forward_flops[n] / 1e9:,.3f}" for n in names)))
    yield table(("part", "weights", "active", *names), cells, gap=1)
    yield heading("Both passes of the whole model [GFLOP]")
    rows = {
        "forward, of a token": [row.forward / 1e9 for row in result.totals],
        "backward": [row.backward / 1e9 for row in result.totals],
        "both": [row.token / 1e9 for row in result.totals],
        "both, of a sequence [TFLOP]": [row.sequence / 1e12 for row in result.totals],
        "MLP or experts / attention": [row.mlp_to_attention for row in result.totals],
    }
    totals = [(name, *(number_text(value) for value in values)) for name, values in rows.items()]
    yield table(("", *names), totals)
    yield from paragraphs(*(f"{row.convention}: {row.about}" for row in result.totals))
    yield heading("Arithmetic intensity of a layer's matmuls [FLOP/byte]")
    matmuls = [
        (row.layer, row.operation, f"{row.forward_intensity:,.0f}", f"{row.backward_intensity:,.0f}")
        for row in result.matmuls
    ]
    yield table(("layer", "operation", "forward", "backward"), matmuls, left=(0, 1))
    yield note("one sequence on one accelerator, with calibrated assumptions")


_ACCELERATOR = "Accelerator of the catalogue, such as h100-sxm-80."
_MACHINE = "In its place a system, by name or file: its accelerator and fast domain."
_NETWORK = (
    "Network bandwidth of a GPU, both directions together, such as '900 GB/s'; else that of the fastest "
    "domain known."
)
_LAYER_BATCH = "Batch of the layer in tokens; k, M and G count in 1024."
_PEAK8 = "Dense peak at 8 bits of that accelerator, such as '1979 TFLOP/s', in place of the catalogue's."
_MEMORY = "Memory bandwidth of that accelerator, such as '3352 GB/s', in place of the catalogue's."
_SUSTAINED = "Share of the peaks of arithmetic and memory that is sustained, such as 80%."
_GROWTH = "Exponent of training compute by which batches of training runs grow; else 1/6."


@command("Companion models", "limits")
def limits(
    *,
    accelerator: Annotated[str | None, option(_ACCELERATOR, completer=names_of_accelerators)] = None,
    system: Annotated[str | None, option(_MACHINE, completer=names_of_systems, metavar="SYSTEM")] = None,
    network: Annotated[str | None, option(_NETWORK)] = None,
    layer: Annotated[str, option("Input and output width of the layer.")] = "16384x81920",
    batch: Annotated[str, option(_LAYER_BATCH)] = "4M",
    micro_batches: Annotated[int, option("Micro-batches of that batch.")] = 1,
    gpus: Annotated[str | None, option("Numbers of GPUs with commas; else 4, 16, … 4194304.")] = None,
    days: Annotated[float | None, option("Length of training runs [days]; else three months.")] = None,
    batch_growth: Annotated[float | None, option(_GROWTH)] = None,
    tp_in: Annotated[float | None, option("Ranks that share the input width of one sharding.")] = None,
    tp_out: Annotated[float | None, option("Ranks that share its output width.")] = None,
    dp: Annotated[float | None, option("Replicas of it; degrees need not divide anything.")] = None,
    width: Annotated[float, option("Size of a word [bytes].")] = 2.0,
    sustained: Annotated[str, option(_SUSTAINED, metavar="SHARE")] = "80%",
    flops8: Annotated[str | None, option(_PEAK8)] = None,
    memory: Annotated[str | None, option(_MEMORY)] = None,
    figures: FiguresFolder = None,
    form: FigureFormat = "svg",
    json: Json = False,
) -> None:
    """Show how far data movement lets a cluster and a fixed run grow: best sharding, and what binds.

    With --tp-in, --tp-out or --dp one sharding is timed as well.

    Example: traincast limits --accelerator h100-sxm-80 --figures out/limits
    """
    from traincast.analysis import limits as find

    errors = ErrorCollector("limits")
    widths = errors.catch(_layer_widths, layer) or (1, 1)
    tokens = errors.catch(parse_count, batch, "--batch", 1024) or 1
    a, b, c = (1.0 if degree is None else degree for degree in (tp_in, tp_out, dp))
    sharding = None if (tp_in, tp_out, dp) == (None, None, None) else (a, b, c)
    share = errors.catch(parse_share, sustained, "--sustained")
    asked: dict[str, Any] = {"days": days, "batch_growth": batch_growth, "sustained": share}
    if gpus is not None:
        asked["gpus"] = errors.catch(_counts, "--gpus", gpus) or (1,)
    errors.catch(check_folder, figures)
    found = errors.catch(
        find,
        accelerator,
        system=system,
        network=network,
        layer=widths,
        tokens=tokens,
        micro_batches=micro_batches,
        sharding=sharding,
        width=width,
        flops8=flops8,
        memory=memory,
        **{name: value for name, value in asked.items() if value is not None},
    )
    result = errors.require(found)
    drawn: list[Path] = []
    if figures is not None:
        from traincast.ui.figures import utilisation_by_cluster, utilisation_by_compute

        by_stem = {draw.__name__: draw(result) for draw in (utilisation_by_cluster, utilisation_by_compute)}
        drawn = save_figures(by_stem.items(), figures, form)
    if json:
        print_json(outputs.analyses.LimitsOutput(result, [str(path) for path in drawn]))
    else:
        text.tables.show(text.analysis.limits(result))
        print_files(*drawn)


def _layer_widths(text: str) -> tuple[int, int]:
    """Read two widths such as 16384x81920."""
    match = re.fullmatch(r"\s*(\d+)\s*[xX×]\s*(\d+)\s*", text)
    width = parse_whole(match[1]) if match else None
    output_width = parse_whole(match[2]) if match else None
    if width is None or output_width is None:
        raise InputError("--layer", [f"{text!r}: write input x output width, such as 16384x81920"])
    return width, output_width


def _counts(name: str, text: str) -> tuple[int, ...]:
    """Read whole numbers separated by commas; every mistake is named."""
    words = [word.strip() for word in text.split(",")]
    wrong = [word for word in words if not parse_whole(word)]
    raise_problems(name, [f"{word!r}: {MUST_BE_WHOLE}" for word in wrong])
    return tuple(map(int, words))


_GPUS = "Numbers of GPUs with commas; efficiencies refer to the fewest."
_K1 = "Share of compute time in which kernels run, or 'estimate' for the estimator's; else 0.83."
_K2 = "Share of kernel time in which the transformer's kernels run; else 0.735."
_EFFICIENCY = "Efficiency of the network by GPUs, such as 64=0.9,512=0.8; else the system's."
_COMM_SHARE = "Measured share of communication on the fewest GPUs."
_MEASURED = (
    "Measured iterations beside the formula: CSV with columns gpus, seconds and, of several stages, zero."
)
_TARGET = "Efficiency for which to say what network is enough, such as 0.9."


@command("Companion models", "scaling")
def scaling(
    *,
    model: ModelName,
    system: SystemName,
    gpus: Annotated[str, question_option(_GPUS)],
    zero: Annotated[str, option("Stages of ZeRO with commas.")] = "1,2,3",
    mbs: Annotated[int, option("Sequences of a GPU in an iteration.")] = 1,
    k1: Annotated[str | None, option(_K1)] = None,
    k2: Annotated[float | None, option(_K2)] = None,
    efficiency: Annotated[str | None, option(_EFFICIENCY)] = None,
    comm_share: Annotated[float | None, option(_COMM_SHARE)] = None,
    target: Annotated[float | None, option(_TARGET)] = None,
    measured: Annotated[Path | None, option(_MEASURED)] = None,
    assumptions: Assumed = None,
    figures: FiguresFolder = None,
    form: FigureFormat = "svg",
    json: Json = False,
) -> None:
    """Show how ZeRO data parallelism scales: compute, communication, efficiency, and what network is enough.

    Example: traincast scaling --model gpt-13b --system polaris --gpus 8,16,64,512 --zero 1,2,3
    """
    from traincast.analysis import scaling as analysed

    errors = ErrorCollector("scaling")
    errors.catch(check_folder, figures)
    shares: dict[str, Any] = {} if k2 is None else {"k2": k2}
    if k1 is not None:
        shares["k1"] = None if k1 == "estimate" else errors.catch(parse_share, k1, "--k1")
    curve = None if efficiency is None else errors.catch(_efficiency_curve, efficiency)
    sizes, zeros = (errors.catch(_counts, *of) or (1,) for of in (("--gpus", gpus), ("--zero", zero)))
    analysis = errors.catch(
        analysed,
        model,
        system,
        sizes,
        zeros,
        mbs,
        assumptions,
        **shares,
        efficiency=curve,
        comm_share=comm_share,
        target=target,
    )
    request, stages = errors.require(analysis)
    compared = None
    if measured is not None:
        from traincast.analysis import measured_scaling

        compared = measured_scaling(measured, stages)
    drawn: list[Path] = []
    if figures is not None:
        from traincast.ui.figures.scaling import MODELS
        from traincast.ui.figures.scaling import figures as figures_of

        fewest = [min(request.gpus)]
        chosen = [stage.zero for stage in stages]
        others = [analysed(name, system, fewest, chosen, mbs, assumptions, **shares) for name in MODELS]
        drawn = save_figures(figures_of(request, stages, others, compared or ()), figures, form)
    if json:
        files = [str(path) for path in drawn]
        print_json(outputs.analyses.ScalingOutput(request.record(stages), compared, files))
    else:
        text.tables.show(text.analysis.scaling(request, stages, compared or ()))
        print_files(*drawn)


def _efficiency_curve(text: str) -> dict[int, float]:
    """Read an efficiency curve such as 64=0.9,512=0.8."""
    try:
        points = [(int(n), float(share)) for n, share in (word.split("=") for word in text.split(","))]
    except ValueError:
        raise InputError("--efficiency", [f"{text!r}: write for instance 64=0.9,512=0.8"]) from None
    curve = dict(points)
    if len(curve) < len(points):
        raise InputError("--efficiency", [f"{text!r}: gives one number of GPUs twice"])
    return curve


@command("Companion models", "errata", "gallery")
def reproduce(
    paper: Annotated[str, option("arXiv number of the paper: 2410.00273.")],
    /,
    *,
    figures: FiguresFolder = None,
    form: FigureFormat = "svg",
    json: Json = False,
) -> None:
    """Recompute the published results of a paper, say how far they agree, and draw its figures.

    Example: traincast reproduce 2410.00273 --figures figures
    """
    from traincast.planner import PUBLISHED_SEARCHES, reproduce

    if paper.lower().removeprefix("arxiv:") != PUBLISHED_SEARCHES.arxiv:
        raise InputError("paper", [f"{paper!r} cannot be reproduced; known: {PUBLISHED_SEARCHES.arxiv}"])
    check_folder(figures)
    with progress("searching"):
        result = reproduce()
    drawn: list[Path] = []
    if figures is not None:
        from traincast.ui.figures.paper import FIGURES, paper_figures

        with progress("figures") as report_progress:
            drawn = save_figures(paper_figures(), figures, form, lambda done: report_progress(done, FIGURES))
    if json:
        print_json(outputs.analyses.ReproduceOutput(result, [str(path) for path in drawn]))
    else:
        text.tables.show(text.analysis.reproduction(result))
        print_files(*drawn)
    if not result.agrees:
        fail("not every published figure is met", 1)
