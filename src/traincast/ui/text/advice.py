"""Terminal tables of advice on a plan and a model."""

from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from traincast.analysis.advise import Advice
from traincast.analysis.batch_and_network import BatchSizeOption, Network, best_batch
from traincast.analysis.model_dimensions import GOOD_MULTIPLE, Dimension, Product
from traincast.analysis.per_parameter import BEKMAN, bytes_per_parameter_of
from traincast.core.units import gib, percent, rate, seconds, signed
from traincast.step.estimate import Estimate
from traincast.ui.text.plans import borderless_table, heading, paragraphs, print_memory

MAX_PRODUCTS_LISTED: Final = 4  # wasteful matrix products
MIN_MULTIPLE: Final = 8  # that 16-bit matrix products need


def print_advice(advice: Advice, out: Console) -> None:
    """Print memory, bytes per parameter, throughput, dimensions, batches, network and rules of thumb."""
    out.print(Text(f"Plan: {advice.est.plan}", style="bold"))
    print_memory(advice.est, out)
    print_bytes_per_parameter(advice.est, out)
    _print_throughput(advice, out)
    _print_dimensions(advice.dimensions, advice.products, advice.est, out)
    _print_batches(advice.batches, out)
    _print_network(advice.network, advice.est, out)
    _print_rules(advice, out)


def print_bytes_per_parameter(est: Estimate, out: Console) -> None:
    """Print the bytes per parameter before sharding."""
    kept, n = bytes_per_parameter_of(est), est.model.parameters
    parts = {
        "weights": kept.weights,
        "master copy": kept.master,
        "gradients": kept.gradients,
        "moments": kept.moments,
    }
    parts_text = ", ".join(f"{name} {value:g}" for name, value in parts.items() if value)
    total_text = f"{rate(kept.training * n, 'B')} for all {rate(n, ' parameters')}"
    lines = [
        f"{parts_text}: {total_text}",
        f"inference with the master copy: {kept.inference:g}, {rate(kept.inference * n, 'B')}",
    ]
    out.print(heading(f"Bytes per parameter before sharding: {kept.training:g}"))
    paragraphs(lines, out)


def _columns(table: Table, *names: str, left: tuple[int, ...] = (0,)) -> Table:
    """Add columns to a table: left-aligned where their index is in `left`, right-aligned otherwise."""
    for i, name in enumerate(names):
        table.add_column(name, justify="left" if i in left else "right", no_wrap=i not in left or i == 0)
    return table


def _print_throughput(advice: Advice, out: Console) -> None:
    """Print FLOP/s and utilisation by convention."""
    predicted = advice.step_seconds is None
    time = float(advice.est.step_seconds) if advice.step_seconds is None else advice.step_seconds
    out.print(heading(f"A step of {seconds(time)} ({'predicted' if predicted else 'measured'}), one GPU"))
    if not predicted:
        ratio = float(advice.est.step_seconds) / time - 1
        out.print(f"predicted: {seconds(float(advice.est.step_seconds))} ({signed(ratio)})")
    table = _columns(borderless_table(), "convention", "model TFLOP/s", "MFU", "with recomputation", "HFU")
    for utilisation in advice.throughput:
        hardware = (
            ""
            if utilisation.hardware_flops_per_second is None
            else f"{utilisation.hardware_flops_per_second / 1e12:.1f}"
        )
        shares = ["" if share is None else percent(share) for share in (utilisation.mfu, utilisation.hfu)]
        table.add_row(
            utilisation.convention,
            f"{utilisation.model_flops_per_second / 1e12:.1f}",
            shares[0],
            hardware,
            shares[1],
        )
    out.print(table)
    out.print(Text(f"{BEKMAN}: parameters × 3 (4 with checkpointing) × 2 × tokens", style="dim"))


def _print_dimensions(sizes: list[Dimension], products: list[Product], est: Estimate, out: Console) -> None:
    """Print sizes of the model, better sizes, and matrix products that waste tiles and waves."""
    out.print(
        heading(f"Dimensions (good: multiples of {GOOD_MULTIPLE}, at least of {MIN_MULTIPLE}, on a rank too)")
    )
    table = _columns(
        borderless_table(gap=1),
        "",
        "size",
        "a rank",
        "multiple",
        "better",
        "tiles",
        "FLOP/s",
        "step",
        "",
        left=(0, 8),
    )
    for dimension in sizes:
        better = dimension.better
        cells: tuple[str, ...] = ()
        if better is not None:
            cells = (
                f"{better.value:,}",
                *map(signed, (better.even, better.gain, better.step_seconds)),
                better.said,
            )
        bad = "red" if dimension.multiple < MIN_MULTIPLE else None
        table.add_row(
            dimension.name,
            f"{dimension.value:,}",
            f"{dimension.shard:,.10g}",
            str(dimension.multiple),
            *cells,
            style=bad,
        )
    out.print(table)
    if not est.assumptions.kernels.tile:
        out.print("tiles and waves: not known with these assumptions; --assumptions calibrated knows them")
        return
    if not products:
        out.print("no product wastes more than 2% on tiles and waves")
        return
    out.print(heading(f"Products that waste tiles or waves on {est.system.accelerator.name}"))
    table = _columns(
        borderless_table(), "product", "", "m × k × n", "tiles", "waves", "of all products", left=(0, 1)
    )
    for product in products[:MAX_PRODUCTS_LISTED]:
        sizes_of = f"{product.m:,.0f} × {product.k:,.0f} × {product.n:,.0f}"
        shares = (percent(product.tiles), percent(product.waves), f"{product.share:.2%}")
        table.add_row(product.operation, product.direction, sizes_of, *shares)
    out.print(table)
    lost = sum(product.share for product in products)
    out.print(f"all {len(products)} together: {percent(lost)} of the arithmetic of products")


def _print_batches(rows: list[BatchSizeOption], out: Console) -> None:
    """Print alternatives for micro-batch and gradient accumulation."""
    out.print(heading("Micro-batch and accumulation"))
    table = _columns(
        borderless_table(),
        "mbs",
        "global batch",
        "accumulation",
        "tokens/s",
        "bubble",
        "once a step",
        "memory",
        "fits",
    )
    table.columns[0].justify = "right"
    for i, option in enumerate(rows):
        gain = "as it is" if i == 0 else signed(option.gain)
        fits = "yes" if option.fits else "no"
        cells = (
            str(option.mbs),
            f"{option.gbs:,}",
            f"{option.accumulation:,}",
            gain,
            percent(option.bubble),
            percent(option.update),
        )
        table.add_row(*cells, gib(option.memory_bytes), fits)
    out.print(table)
    best, current = best_batch(rows), rows[0]
    if best.mbs == current.mbs:
        paragraphs(
            [f"mbs {current.mbs} is the best of these that fits at a global batch of {current.gbs:,}."], out
        )
    else:
        room = f"{gib(best.memory_bytes)} in place of {gib(current.memory_bytes)}"
        paragraphs(
            [
                f"mbs {best.mbs} is the best that fits at a global batch of {current.gbs:,}: {signed(best.gain)}, {room}."
            ],
            out,
        )


def _print_network(network: Network, est: Estimate, out: Console) -> None:
    """Print the bandwidth between nodes, and how much the plan needs."""
    node = est.system.fast_domain
    out.print(heading(f"Network between nodes of {node}"))
    if est.plan.gpus <= node:
        paragraphs(["The plan stays inside of one node."], out)
        return
    bandwidths = f"{_bits(network.per_node)} a node ({_bits(network.per_gpu)} a GPU)"
    available = f"{bandwidths}, one way: {percent(network.share)} of the step waits for it"
    if not network.needed_per_node:
        needed = "hardly any bandwidth is needed"
    else:
        needed = f"{_bits(network.needed_per_node)} a node ({_bits(network.needed_per_gpu)} a GPU) are needed"
    enough = "enough" if network.share <= network.allowed else "not enough"
    paragraphs(
        [
            f"{available}.",
            f"For at most {100 * network.allowed:.3g}% of the step, {needed}: what there is is {enough}.",
        ],
        out,
    )


def _bits(bandwidth: float) -> str:
    """Return a bandwidth in bits per second, the unit of network specifications."""
    return rate(float(f"{bandwidth * 8:.3g}"), "b/s")


def _print_rules(advice: Advice, out: Console) -> None:
    """Print rules of thumb beside the estimated figures."""
    out.print(heading("Rules of thumb, and this plan"))
    table = _columns(borderless_table(), "", "rule", "here", "source", left=(0, 1, 2, 3))
    for rule in advice.rules:
        table.add_row(rule.about, rule.rule, rule.here, rule.source)
    out.print(table)
