"""Terminal tables of advice, simulated steps, limits of data movement, ZeRO scaling, the paper's results."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

from traincast.analysis import (
    BatchSizeOption,
    Dimension,
    Network,
    Product,
    Trace,
    best_batch,
    bytes_per_parameter_of,
)
from traincast.catalog import Stack
from traincast.core import count_of, format_signed, gib, percent, probability_text, rate_text, seconds
from traincast.planner import Advice, Reproduction, component_label
from traincast.step import LEAST_GAIN, Estimate
from traincast.ui.text.measured import measured_step
from traincast.ui.text.plans import Command, breakdowns, more_options
from traincast.ui.text.tables import Parts, heading, note, paragraphs, table, title_line

if TYPE_CHECKING:
    from traincast.analysis import Limits, MeasuredScaling, Scaling, ScalingRequest, ScalingRow, ShardedLayer

MAX_PRODUCTS_LISTED: Final = 4  # wasteful matrix products
LEAST_SHOWN: Final = 0.0005  # share of tokens/s; less is no difference
CHANGES: Final = "What to change, each alone and the best together"
MAX_CHANGES_LISTED: Final = 5  # changes of one degree or choice
MIN_MULTIPLE: Final = 8  # that 16-bit matrix products need
ALIGNMENT: Final = "alignment not measured"  # of a size that is no good multiple: gains are tiles and waves
SHARES: Final = ("FLOP", "memory", "network")


def advice(result: Advice, command: Command | None = None, why: bool = True) -> Parts:
    """Show where time and memory go, what to change, throughput, and the network that is needed.

    With `why`, also all causes of the width of the interval, dimensions where none is better, bytes per
    parameter, micro-batches and rules of thumb. `command` is as in `plans.certainty`.
    """
    yield from breakdowns(result.est, command, why)
    if result.measured is not None:
        yield from measured_step(result.measured)
    yield from _changes(result)
    yield from _methods(result)
    yield from _throughput(result)
    yield from _network(result.network, result.est)
    if why or any(size.better is not None for size in result.dimensions):
        yield from _dimensions(result.dimensions, result.est)
    if not why:
        yield from more_options(["--why: all causes, bytes per parameter, batches, rules of thumb"])
        return
    yield from _wasteful_products(result.products, result.est)
    yield from bytes_per_parameter(result.est)
    yield from _batches(result.batches)
    yield heading("Rules of thumb, and this plan")
    rules = [(rule.about, rule.rule, rule.here, rule.source) for rule in result.rules]
    yield table(("", "rule", "here", "source"), rows=rules, left=range(4), wrap=(1, 2, 3))


def bytes_per_parameter(est: Estimate) -> Parts:
    """Show the bytes per parameter before sharding."""
    share = bytes_per_parameter_of(est)
    model = est.model
    n = model.parameters if model.adapters is None else model.trained_parameters
    values = (share.weights, share.master, share.gradients, share.moments)
    parts = zip(("weights", "master copy", "gradients", "moments"), values, strict=True)
    parts_text = ", ".join(f"{name} {value:g}" for name, value in parts if value)
    trained = "parameter" if model.adapters is None else "trained parameter"
    yield heading(f"Bytes per {trained} before sharding: {share.training:g}")
    inference = f"inference with the master copy: {share.inference:g}, {rate_text(share.inference * n, 'B')}"
    if model.adapters is not None:
        frozen = f"adapters with their master copy and {rate_text(share.frozen * n, 'B')} of frozen weights"
        inference = f"inference: {rate_text(share.inference * n, 'B')}, {frozen}"
    yield from paragraphs(
        f"{parts_text}: {rate_text(share.training * n, 'B')} for all {rate_text(n, ' parameters')}",
        inference,
    )
    if share.gradients < 4 <= share.master:
        summed = share.training - share.gradients + 4
        yield f"{summed:g} where gradients are summed in fp32 (--grad-dtype fp32), as is usual"


def _throughput(result: Advice) -> Parts:
    predicted = result.est.step_seconds
    if result.step_seconds is None:
        yield heading(f"A step of {seconds(predicted)} (predicted), one GPU")
    else:
        yield heading(f"A step of {seconds(result.step_seconds)} (measured), one GPU")
    rows = []
    for row in result.throughput:
        hardware = row.hardware_flops_per_second
        mfu, hfu = ("" if share is None else percent(share) for share in (row.mfu, row.hfu))
        hardware_text = "" if hardware is None else f"{hardware / 1e12:,.1f}"
        rows.append((row.convention, f"{row.model_flops_per_second / 1e12:,.1f}", mfu, hardware_text, hfu))
    yield table(("convention", "model TFLOP/s", "MFU", "with recomputation", "HFU"), rows)
    yield note("bekman: parameters × 3 (4 with checkpointing) × 2 × tokens")


def _changes(result: Advice) -> Parts:
    """Show the changes of one degree or choice that help, and the best combination of two or three."""
    yield heading(CHANGES)
    names, rows = changes(result)
    if not rows:
        yield f"no change of one, two or three degrees or choices gains {LEAST_GAIN:.1%} and fits"
        return
    last = len(names) - 1
    yield table(names, rows, left=(last,), wrap=(last,))


def changes(result: Advice) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of the changes that help, and of the best combination."""
    listed = result.changes[:MAX_CHANGES_LISTED]
    listed += [] if result.together is None else [result.together]
    known = all(change.fits_probability is not None for change in listed)
    rows = []
    for change in listed:
        words = ", ".join(f"{knob.knob} {knob.new} (is {knob.old})" for knob in change.knobs)
        odds = [probability_text(change.fits_probability or 0.0)] if known else []
        figures = (percent(change.gain), seconds(change.step_seconds), gib(change.memory_bytes), *odds)
        together = "together: " if change is result.together else ""
        rows.append([*figures, f"{together}{words}"])
    return ["gain", "step", "memory", *(["fits"] if known else []), "change"], rows


def _methods(result: Advice) -> Parts:
    """Show the methods that save time or memory on this plan, one change at a time."""
    yield heading("Methods of saving time or memory, one change at a time")
    rows = []
    for row in result.methods:
        sign = "+" if row.memory_bytes > 0 else "-"
        memory = f"{sign}{gib(abs(row.memory_bytes))}" if row.memory_bytes else ""
        gain = format_signed(row.gain) if abs(row.gain) >= LEAST_SHOWN else "as fast"
        rows.append((row.method, row.change, gain, memory, "yes" if row.fits else "no"))
    yield table(("", "", "tokens/s", "memory", "fits"), rows, left=(0, 1))
    est = result.est
    if not est.breakdown["data_loading"]:
        tokens = rate_text(est.gbs * est.model.seq / est.step_seconds, " tokens/s")
        yield f"data loading: no time of its own here as long as {tokens} are read ahead"


def _dimensions(sizes: list[Dimension], est: Estimate) -> Parts:
    good = f"good: multiples of {Dimension.good_multiple}, at least of {MIN_MULTIPLE}, on a rank too"
    yield heading(f"Dimensions ({good})")
    rows = []
    for size in sizes:
        cells = [size.name, f"{size.value:,}", f"{size.shard:,.10g}", str(size.multiple)]
        notes = []
        if size.better is None:
            cells += [""] * 4
        else:
            gains = map(format_signed, (size.better.even, size.better.gain, size.better.step_seconds))
            cells += [f"{size.better.value:,}", *gains]
            notes.append(size.better.said)
        if size.multiple < size.good_multiple:
            notes.append(ALIGNMENT)
        rows.append([*cells, ", ".join(filter(None, notes))])
    names = ("", "size", "a rank", "multiple", "better", "tiles", "FLOP/s", "step", "")
    bad = [size.multiple < MIN_MULTIPLE for size in sizes]
    yield table(names, rows, left=(0, 8), wrap=(8,), gap=1, style=lambda row: "red" if bad[row] else None)
    if not est.assumptions.kernels.tile:
        yield "tiles and waves: not known with these assumptions; --assumptions calibrated knows them"
    if any(size.multiple < Dimension.good_multiple for size in sizes):
        rule = f"the rule of multiples of {Dimension.good_multiple} is bekman's"
        yield from paragraphs(f"Not measured: what other sizes lose beside tiles and waves; {rule}.")


def _wasteful_products(products: list[Product], est: Estimate) -> Parts:
    if not est.assumptions.kernels.tile:
        return
    if not products:
        yield "no GEMM loses more than 2% to tile and wave quantisation"
        return
    yield heading(f"GEMMs that lose most to tile and wave quantisation on {est.system.accelerator.name}")
    rows = [
        (
            *(product.operation, product.direction),
            f"{product.m:,.0f} × {product.k:,.0f} × {product.n:,.0f}",
            *(percent(product.tiles), percent(product.waves), f"{product.share:.2%}"),
        )
        for product in products[:MAX_PRODUCTS_LISTED]
    ]
    names = ("GEMM", "", "m × k × n", "tiles", "waves", "of all GEMMs")
    yield table(names, rows, left=(0, 1), wrap=(1,))
    lost = percent(sum(product.share for product in products))
    yield f"all {len(products)} together: {lost} of the time of GEMMs"


def _batches(options: list[BatchSizeOption]) -> Parts:
    """Show micro-batch, gradient accumulation and what they give, a row for each alternative."""
    names = ("mbs", "global batch", "accumulation", "tokens/s", "bubble", "once a step", "memory", "fits")
    rows = [
        (
            *(str(option.mbs), f"{option.gbs:,}", f"{option.accumulation:,}"),
            *(
                format_signed(option.gain) if i else "as it is",
                percent(option.bubble),
                percent(option.update),
            ),
            *(gib(option.memory_bytes), "yes" if option.fits else "no"),
        )
        for i, option in enumerate(options)
    ]
    yield heading("Micro-batch and accumulation")
    yield table(names, rows, left=())
    best = best_batch(options)
    current = options[0]
    at_batch = f"fits at a global batch of {current.gbs:,}"
    if not best.fits:
        yield from paragraphs(f"None of these {at_batch}.")
    elif best.mbs == current.mbs:
        yield from paragraphs(f"mbs {current.mbs} is the best of these that {at_batch}.")
    else:
        memory = f"{gib(best.memory_bytes)} in place of {gib(current.memory_bytes)}"
        yield from paragraphs(
            f"mbs {best.mbs} is the best that {at_batch}: {format_signed(best.gain)}, {memory}."
        )


def _network(network: Network, est: Estimate) -> Parts:
    """Show the bandwidth between nodes, and how much the plan needs."""
    node = est.system.fast_domain
    yield heading(f"Network between nodes of {node}")
    if est.plan.gpus <= node:
        yield from paragraphs("The plan stays inside of one node.")
        return
    available = f"{_bits(network.per_node)} a node ({_bits(network.per_gpu)} a GPU), one way"
    needed = "hardly any bandwidth is needed"
    if network.needed_per_node:
        needed = f"{_bits(network.needed_per_node)} a node ({_bits(network.needed_per_gpu)} a GPU) are needed"
    enough = "enough" if network.share <= network.allowed else "not enough"
    yield from paragraphs(
        f"{available}: {percent(network.share)} of the step waits for it.",
        f"For at most {100 * network.allowed:.3g}% of the step, {needed}: what there is is {enough}.",
    )


def _bits(bandwidth: float) -> str:
    """Return a bandwidth in bits per second, the unit of network specifications."""
    return rate_text(float(f"{bandwidth * 8:.3g}"), "b/s")


def trace(result: Trace) -> Parts:
    """Show the step by component, simulated and estimated, and the passes and waits of every stage."""
    yield title_line(f"Plan: {result.estimate.plan}")
    simulated = seconds(result.simulated_seconds)
    estimated = seconds(result.step_seconds)
    yield heading(f"Simulated step: {simulated}; estimate: {estimated}")
    rows: list[tuple[str, ...]] = []
    for name, time in result.totals.items():
        of_estimate = float(result.estimate.breakdown[name])
        difference = _difference_text(result.remainder[name], result) if name in result.remainder else ""
        if time or of_estimate:
            rows.append(
                (component_label(name, result.estimate.plan), seconds(time), seconds(of_estimate), difference)
            )
    yield table(("", "trace", "estimate", "estimate minus trace"), rows)
    yield from paragraphs(f"Seconds are those of stage {result.device}, which sets the step.")
    yield heading("Every stage: its passes, what it waits for, micro-batches in flight")
    rows = []
    for device, passes in enumerate(result.by_device):
        waits = {"bubble": 0.0, "pp_comm": 0.0}
        for wait in result.waits[device]:
            waits[wait.component] += wait.seconds
        busy = sum(simulated_pass.end - simulated_pass.start for simulated_pass in passes)
        times = map(seconds, (passes[0].start, busy, *waits.values()))
        rows.append((str(device), *times, f"{result.timeline.peak_in_flight[device]:.3g}"))
    yield table(("stage", "first pass", "passes", "for stages", "for transfers", "in flight"), rows, left=())


def _difference_text(value: float, result: Trace) -> str:
    """Return a difference of times with its sign; rounding errors count as 0 s."""
    if abs(value) <= 1e-9 * result.step_seconds:
        return "0 s"
    return f"{'+' if value > 0 else '-'}{seconds(abs(value))}"


def limits(result: "Limits") -> Parts:
    """Show the best shardings, training runs of a fixed length, and where utilisation falls."""
    device = result.device
    (d_in, d_out) = result.layer
    flops = rate_text(float(device.flops8) / result.width, "FLOP/s")
    memory = rate_text(float(device.memory_bandwidth), "B/s")
    yield title_line(f"Limits of moving data: {device.name}")
    peaks = f"{flops} at {8 * result.width:g} bits and {memory} of memory"
    yield f"{peaks}, of which {float(device.sustained):.0%} are sustained"
    yield f"{rate_text(float(device.network_bandwidth), 'B/s')} of network ({device.network})"
    micro_batches = (
        "1 micro-batch" if result.micro_batches == 1 else f"{result.micro_batches:,} micro-batches"
    )
    yield heading(f"One layer of {d_in:,} x {d_out:,}, {result.tokens:,} tokens a batch in {micro_batches}")
    if result.sharding is not None:
        yield from _given_sharding(result.sharding)
        yield heading("The best sharding")
    yield _cluster_table(result)
    yield note("FLOP, memory, network: share of the time in which each binds")
    yield heading(f"Training runs of {result.training.days:,.0f} days")
    yield _run_table(result)
    yield ""
    yield from paragraphs(*_utilisation_sentences(result))


def _given_sharding(given: "ShardedLayer") -> Parts:
    """Show the times of one given sharding, and which resource binds."""
    gpus = given.tp_in * given.tp_out * given.dp
    yield f"tp_in {given.tp_in:,.10g}, tp_out {given.tp_out:,.10g}, dp {given.dp:,.10g}: {gpus:,.10g} GPUs"
    rows = []
    for name, part in (("a micro-batch", given.micro_batch), ("gradients at its end", given.end_of_batch)):
        times = [float(time) for time in (part.flop, part.memory, part.network)]
        binds = SHARES[times.index(max(times))] if max(times) else ""
        rows.append([name, *map(seconds, times), seconds(max(times)), binds])
    yield table(("", *SHARES, "time", "binds"), rows, left=(0, 5))
    yield f"a batch: {seconds(given.seconds)}, {given.utilisation:.1%} of the dense peak"


def _cluster_table(result: "Limits") -> Table:
    clusters = result.clusters
    rows = []
    degree_columns = (clusters.gpus, clusters.tp_in, clusters.tp_out, clusters.dp)
    columns = (*degree_columns, clusters.seconds, clusters.utilisation)
    for gpus, *degrees, time, used, flop, memory, network in zip(*columns, *clusters.spent, strict=True):
        if np.isnan(time):
            rows.append([f"{gpus:,.0f}", "cannot be sharded so"])
        else:
            shares = (f"{used:.1%}", *(f"{share:.0%}" for share in (flop, memory, network)))
            rows.append([*(f"{degree:,.0f}" for degree in (gpus, *degrees)), seconds(time), *shares])
    names = ("GPUs", "tp_in", "tp_out", "dp", "time", "utilisation", *SHARES)
    return table(names, rows, left=(), gap=1)


def _run_table(result: "Limits") -> Table:
    """Return a table of training runs, one row a decade of compute, as far as they finish in time."""
    runs = result.training
    rows = []
    columns = (runs.flops, runs.parameters, runs.tokens, runs.gpus, runs.utilisation)
    for flops, *sizes, used, flop, memory, network in list(zip(*columns, *runs.spent, strict=True))[::2]:
        if np.isnan(used):
            rows.append([f"{flops:.0e}", "does not", "finish in", "time"])
            break
        shares = (f"{used:.1%}", *(f"{share:.0%}" for share in (flop, memory, network)))
        rows.append([f"{flops:.0e}", *(f"{size:.1e}" for size in sizes), *shares])
    names = ("FLOP", "parameters", "batch", "GPUs", "utilisation", *SHARES)
    return table(names, rows, left=(), gap=1)


def _utilisation_sentences(result: "Limits") -> list[str]:
    """Return sentences on where utilisation falls, and on what is left out."""
    lines = [f"The largest utilisation there can be is {result.largest:.0%}."]
    for utilisation, at, verb in (
        (result.half, result.halves, "halves"),
        (result.tenth, result.collapses, "collapses"),
    ):
        where = f"at {at:.1e} FLOP" if at is not None else "nowhere on the range looked at"
        lines.append(f"Utilisation {verb} (to {utilisation:.0%}) {where}.")
    unfinished = np.isnan(result.training.utilisation)
    if unfinished.any():
        first = f"From {result.training.flops[unfinished][0]:.1e} FLOP on"
        lines.append(
            f"{first}, {result.most_excess:.0f} times the accelerators of full utilisation are not enough."
        )
    omitted = "Latency, attention, the optimizer and a slower network between nodes"
    return [*lines, f"{omitted} are left out: these are ceilings."]


def scaling(
    request: "ScalingRequest", stages: "list[Scaling]", measured: "Sequence[MeasuredScaling]" = ()
) -> Parts:
    """Show the iteration of every ZeRO stage on every number of GPUs, and which network is enough.

    Measured iterations stand beside the formula's.
    """
    model = request.model
    system = request.system
    first = request.gpus[0]
    name = f"{model.title} ({rate_text(request.P, ' parameters')})"
    yield title_line(f"{name} on {system.name}, data parallel with ZeRO")
    yield from paragraphs(*filter(None, (model.taken, system.taken)))
    batch = f"{count_of(request.mbs, 'sequence')} of {model.seq:,} tokens a GPU"
    yield f"{batch}, {request.flops / 1e12:,.1f} TFLOP; assumptions: {Stack(request.assumptions.name).words}"
    products = f"{rate_text(request.rate, 'FLOP/s')}, k1 {request.k1:.3g}, k2 {request.k2:.3g}"
    yield f"computes for {seconds(stages[0].compute)} ({products}), then communicates\n"
    if request.predicted_k1 is not None:
        launched = f"k1 {request.predicted_k1:.2f} by the estimator's launches of kernels (--k1 estimate)"
        yield from paragraphs(launched)
    classes = ", ".join(f"{row.name} {row.seconds_share:.0%}" for row in request.kernel_classes)
    yield from paragraphs(f"kernels by the estimator, attention unfused: {classes}")
    yield ""
    kept_columns = ["eff.", "outer"] if request.mixes_networks else ["efficiency"]
    names = ["ZeRO", "GPUs", "iteration", "comm", "share", "network", *kept_columns, "memory"]
    rows = [_scaling_cells(row, request) for stage in stages for row in stage.rows()]
    yield table([*names, "enough"] if len(rows[0]) > len(names) else names, rows, left=(), gap=1)
    source = "as given" if request.efficiency is not None else "of its times"
    kept = f"{'eff.' if request.mixes_networks else 'efficiency'}: speed kept from {count_of(first, 'GPU')}"
    yield from paragraphs(f"network: eff({first}→n), {source}; {kept}")
    if request.mixes_networks:
        outer = min(gpus for gpus in request.gpus if gpus > system.fast_domain)
        inside = f"{count_of(first, 'GPU')} lie inside one fast domain of {system.fast_domain:,}"
        mixed = f"eff. from there to more compares two networks; outer: speed kept from {outer:,} GPUs"
        yield from paragraphs(f"{inside}: {mixed}")
    kept = f"activations, nothing recomputed, attention fused: {gib(stages[0].activations)} of the memory"
    yield from paragraphs(
        f"{kept}; attention that is not fused, the source's, saves {gib(request.scores)} more"
    )
    yield from paragraphs(*_owner_sentences(request, stages))
    capacity = system.accelerator.visible_bytes
    if any(memory > capacity for stage in stages for memory in stage.memory):
        yield from paragraphs(f"!: more than the {gib(float(capacity))} of a GPU, nothing recomputed")
    if request.target is not None:
        yield from paragraphs(*_target_sentences(request, stages))
    if measured:
        yield from _measured_scaling(measured)


def _measured_scaling(measured: "Sequence[MeasuredScaling]") -> Parts:
    """Show the speed that measured iterations keep, beside the formula's."""
    yield heading("Measured: speed kept from the fewest GPUs")
    rows = [
        (
            str(stage.zero),
            f"{row.gpus:,}",
            seconds(row.seconds),
            f"{row.efficiency:.1%}",
            f"{row.formula:.1%}",
        )
        for stage in measured
        for row in stage.iterations
    ]
    yield table(("ZeRO", "GPUs", "iteration", "measured", "formula"), rows, left=())
    errors = (f"{stage.mean_squared_error:.2g} for ZeRO-{stage.zero}" for stage in measured)
    yield from paragraphs(f"mean squared error of the formula: {', '.join(errors)}")


def _owner_sentences(request: "ScalingRequest", stages: "list[Scaling]") -> Iterator[str]:
    """Say why ZeRO-2 falls where it sends more, shorter messages than its buckets."""
    most = request.gpus[-1]
    owners, buckets = request.owner_messages(most)
    if owners > buckets and any(stage.zero == 2 for stage in stages):
        size = rate_text(2 * request.P / owners, "B")
        yield (
            f"ZeRO-2 reduces each gradient to its one owner, at least one message for each GPU: on {most:,}"
            f" GPUs {owners:,} of {size} instead of {count_of(buckets, 'bucket')}, which is slower the more"
            " GPUs there are, as the source measured on Polaris"
        )


def _scaling_cells(row: "ScalingRow", request: "ScalingRequest") -> list[str]:
    full = "!" if row.memory_bytes > request.system.accelerator.visible_bytes else " "
    network = "" if row.network_efficiency is None else f"{row.network_efficiency:.3f}"
    cells = [str(row.zero), f"{row.gpus:,}", seconds(row.iteration_seconds), seconds(row.comm_seconds)]
    outer = "" if row.outer_efficiency is None else f"{row.outer_efficiency:.1%}"
    cells += [f"{row.comm_share:.1%}", network, f"{row.efficiency:.1%}"]
    cells += [*([outer] if request.mixes_networks else []), gib(row.memory_bytes) + full]
    if request.target is not None and request.efficiency is None:
        enough = row.enough_bandwidth
        if enough is None:
            cells.append("none")
        else:
            cells.append(rate_text(enough, "B/s") if enough else "any")
    return cells


def _target_sentences(request: "ScalingRequest", stages: "list[Scaling]") -> list[str]:
    target = f"{request.target:.0%}"
    lines = []
    if request.efficiency is None:
        domain = request.system.fast_domain
        now = rate_text(request.node_bandwidth, "B/s")
        enough = f"bandwidth of {domain} GPUs of a fast domain to all others, one direction (now {now})"
        first = count_of(request.gpus[0], "GPU")
        lines = [
            f"enough: {enough}, at which the efficiency is {target} of {first} as they are now",
            "any: that network is not used; none: latency, or the network inside a domain, takes too long "
            "already",
        ]
    needed = [
        f"{stage.needed_efficiency:.3f} for ZeRO-{stage.zero}"
        for stage in stages
        if stage.needed_efficiency is not None
    ]
    if needed:
        lines.append(f"network efficiency that is enough for {target}: {', '.join(needed)}")
    return lines


def reproduction(result: Reproduction) -> Parts:
    """Show how well the published searches are reproduced, and what the errata change."""
    yield title_line("arXiv 2410.00273 recomputed")
    speed = result.evaluated / result.seconds / 1e6
    yield f"{result.candidates:,} candidates in each of two variants enumerated, fitted and"
    yield f"timed in {seconds(result.seconds)}: {speed:.1f} M candidates/s"
    yield heading("Published configurations: step time, memory, FLOPs and components")
    rows: list[tuple[str, ...]] = []
    for row in result.configurations:
        moved = (f"up to {row.errata_seconds['all']:.2%}", f"up to {row.errata_memory['all']:.2%}")
        plans = f"{row.configurations:,}"
        rows.append((row.model, row.strategy, plans, f"{row.worst_difference:.1e}", *moved))
    columns = ("model", "strategy", "plans", "worst difference", "errata 1+2+3: time", "memory")
    yield table(columns, rows, left=(0, 1))
    yield heading("Searches: 9 machines × 13 numbers of GPUs each")
    rows = []
    for line in result.searches:
        met = f"{line.agreeing}/{line.compared}" if line.compared else "-"
        worst = "-" if line.worst_difference is None else f"{line.worst_difference:.1e}"
        counts = (f"{line.candidates:,}", f"{line.feasible:,}")
        rows.append((line.model, line.strategy, *counts, met, worst))
    yield table(("model", "strategy", "candidates", "fit", "agree", "worst difference"), rows, left=(0, 1))
    yield heading("Optimal step time, errata corrected against published")
    rows = []
    for line in result.searches:
        change = [f"{value:+.1%}" for value in line.optima_change.values()] or ["nothing fits", "", "", ""]
        rows.append((line.model, line.strategy, *change, str(line.feasibility_changes)))
    names = ("model", "strategy", "mean", "median", "lowest", "highest", "feasibility changed")
    yield table(names, rows, left=(0, 1))
    yield title_line(f"\n{'Every' if result.agrees else 'Not every'} published figure is met.")
