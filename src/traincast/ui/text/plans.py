"""Terminal tables and bars of plans, estimates and searches."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from rich.table import Table
from rich.text import Text

from traincast.catalog import Stack
from traincast.core import (
    GIB,
    PAPER,
    Column,
    Plan,
    System,
    count_of,
    gib,
    long_duration,
    number_text,
    probability_text,
    rate_text,
    seconds,
    total_text,
)
from traincast.planner import component_label, framework_without, plan_in_words, what_decides
from traincast.step import NEVER_MEASURED, Estimate, GroupRow, Metrics, Narrower, usual_assumptions
from traincast.ui.text.headline import days, describe_narrowing, headline, narrowing_line, of_peak, step_text
from traincast.ui.text.ranking import Ranking, ranking_table
from traincast.ui.text.tables import Parts, heading, note, paragraphs, table, title_line, width

if TYPE_CHECKING:
    from traincast.analysis import Anatomy
    from traincast.planner import Found

Command: TypeAlias = Callable[[str], list[str]]  # option → words of a command line with it
MAX_BUBBLE_SHARE: Final = 0.25  # of the step, above which an estimate says what to change
MAX_COMM_SHARE: Final = 0.35
BAR_CHARACTERS: Final = 32  # length of a full bar, where there is room
BESIDE_BARS: Final = 48  # columns of a table that bars leave to its other columns
SHORT_COMPONENTS: Final = {  # column titles of memory components
    "gradients": "grads",
    "optimizer": "optim.",
    "activations": "activ.",
    "gathered": "gath.",
    "workspace": "work.",
}


class Usual(NamedTuple):
    """What a question leaves out, so that the usual is taken."""

    batch: bool = False  # also by the model
    length: bool = False  # of sequences
    tokens: bool = False  # of the whole run
    price: bool = False  # of a GPU hour, where the system has one


NOTHING_USUAL: Final = Usual()


class Shown(NamedTuple):
    """What of an answer is shown, besides what always is."""

    each: bool = False  # plans alike one by one, in place of the best of each family
    # plan in words, all causes of the width of its interval, parts of time and memory, and why others lose
    why: bool = False
    rejected: bool = False  # how many candidates break each rule
    metrics: Sequence[str] = ()  # of the whole run, as in `whole_run`


NOTHING_MORE: Final = Shown()


def search(
    result: "Found",
    elapsed: float,
    measures: Metrics,
    usual: Usual = NOTHING_USUAL,
    shown: Shown = NOTHING_MORE,
    *,
    price: float | None = None,
    faster: Sequence[Estimate] = (),
    command: Command | None = None,
) -> Parts:
    """Show the recommended plan in four lines, what it is of, all plans by time, and why it is recommended.

    `price` is that of a GPU hour [$], `faster` are plans of fewer GPUs that take less time, and `command` is
    as in `certainty`. The last line names `--why` and `--rejected` where they are not given.
    """
    if result.recommended is not None:
        yield from headline(_kind(result), result.recommended[1], measures, price)
        yield from locks(result)
        for est in faster:
            yield f"{est.plan.gpus:,} GPUs would be faster: {seconds(est.step_seconds)} a step"
        if shown.metrics and not shown.why:  # else it stands beside the utilisation
            yield from paragraphs(*whole_run(measures, result.recommended[1], shown.metrics, said=True))
        yield ""
    yield from _question(result, elapsed, usual)
    yield ""
    if result.recommended is not None:
        listed = Ranking(result, shown.each)
        if not shown.each and (equal := listed.equal()):
            yield from paragraphs(equal)
        yield from ranking_table(listed, _gpu_hour_price(result, measures), in_full=shown.why)
        reason = "" if result.recommendation is None else result.recommendation.deciding
        if reason and not shown.why:
            yield ""
            yield from paragraphs(reason)
        if shown.why:
            yield from _why(result, measures, shown.metrics, command)
    more = {
        "--why: all causes, parts, what is held, alternatives": shown.why,
        "--rejected: rules broken": shown.rejected,
    }
    yield from more_options(option for option, is_shown in more.items() if not is_shown)


def more_options(options: Iterable[str]) -> Parts:
    """Show options that say more, as the last line of an answer."""
    if left := "; ".join(options):
        yield note(f"\n{left}")


def _question(result: "Found", elapsed: float, usual: Usual) -> Parts:
    """Show what was asked, what was assumed, and how much was searched."""
    yield from header(result, usual)
    if result.recommended is not None:
        yield from narrowing_line(result.recommended[1])
    of_several = bool(result.framework.includes)
    if of_several and (default := framework_without(result.model, result.system, result.locks)):
        locked = ", ".join(f"{name} = {value}" for name, value in result.locks.items())
        yield from paragraphs(f"{default.name} runs no plans with {locked}")
    share = result.feasible / max(result.candidates, 1)
    counts = (
        f"{result.candidates:,} candidates of {result.framework.label}, {result.feasible:,} fit ({share:.0%})"
    )
    yield from paragraphs(f"{counts}; searched in {seconds(elapsed)}")


def _why(
    result: "Found",
    measures: Metrics,
    asked: Sequence[str],
    command: Command | None,
) -> Parts:
    """Show why the recommended plan is recommended, its parts, and why others lose."""
    if result.recommended is None:
        return
    plan, est = result.recommended
    yield heading("Why")
    if result.recommendation is not None and result.recommendation.reason:
        yield from paragraphs(result.recommendation.reason)
    yield from paragraphs(
        f"In words: {plan_in_words(plan, result.system.tiers)}.",
        f"Searched: {result.framework.label}, {result.framework.about}.",
    )
    yield ""
    yield from breakdowns(est, command)
    yield from utilisation(measures, est, asked)
    explanation = result.explain()
    yield heading("What binds it, and the alternatives")
    yield from paragraphs(*explanation.chosen_accuracy(), *explanation.lines())


def locks(result: "Found") -> Parts:
    """Show what the locks cost, where they cost anything."""
    if sentence := result.describe_lock_price():
        yield from paragraphs(sentence)


def show_rejected(result: "Found") -> Parts:
    """Show how many candidates break each rule."""
    yield heading("Rejected, by the first rule broken, or by memory where all rules are met")
    counts = [(f"{count:,}", reason) for reason, count in result.rejected.items()]
    yield table(("", ""), counts, left=(1,), wrap=(0, 1))


def _kind(result: "Found") -> str:
    """Return what the first plan is called."""
    if result.objective == "memory":
        return "Least memory"
    return "Recommended" if result.within is not None else "Fastest"


def recommendation(result: "Found") -> list[str]:
    """Return the recommended plan in words, and why it is recommended; empty where nothing fits."""
    if result.recommendation is None:
        return []
    lines = [f"{_kind(result)}: {plan_in_words(result.recommendation.plan, result.system.tiers)}."]
    return [*lines, result.recommendation.reason] if result.recommendation.reason else lines


def header(est: "Found | Estimate", usual: Usual = NOTHING_USUAL, timed: bool = True) -> Parts:
    """Show the title of an answer and the remarks on it, as in `remarks`."""
    yield title_line(title(est))
    yield from paragraphs(*remarks(est, usual, timed))


def title(est: "Found | Estimate") -> str:
    """Return model, parameters, number of GPUs and system in a line."""
    model = f"{est.model.title} ({rate_text(est.model.parameters, ' parameters')})"
    return f"{model} on {count_of(est.job.gpus, 'GPU')} of {est.system.name}"


def remarks(est: "Found | Estimate", usual: Usual = NOTHING_USUAL, timed: bool = True) -> list[str]:
    """Return remarks on batch, assumptions, what is taken for what the question leaves out, calibration."""
    model = est.model
    tokens = rate_text(est.gbs * model.seq, " tokens")
    batch = f"{count_of(est.gbs, 'sequence')} of {model.seq:,} tokens ({tokens})"
    if model.reference:
        batch += f": {est.gbs / 2:g} pairs, each of a chosen and a rejected answer"
    lines = [*est.job.taken, f"a step: {batch}; assumptions: {Stack(est.assumptions.name).dated_words}"]
    if isinstance(est, Estimate):
        lines += _chunks_without_layers(est)
    assumed = []
    if usual.batch and not model.is_fine_tuned:  # what that assumes is among what is taken
        assumed.append("the global batch (--global-batch)")
    if usual.length and not model.is_fine_tuned:
        assumed.append("the length of sequences (--seq)")
    if usual.tokens and model.training_tokens is not None:
        assumed.append(f"{total_text(model.training_tokens)} tokens of training (--tokens)")
    if not isinstance(est, Estimate) and model.is_fine_tuned and "recompute" not in est.locks:
        said = est.framework.about_fine_tuning
        assumed += [f"{said} (--recompute)"] if said else []
    if usual.price:
        assumed.append(f"{est.system.name}'s ${est.system.price:g} a GPU-hour (--price)")
    if assumed:
        lines.append(f"assumed: {', '.join(assumed)}")
    if est.assumptions.name == PAPER.name == usual_assumptions(model, est.system):
        lines.append("paper is the default for a model without a vocabulary (see --assumptions)")
    if timed and est.assumptions.errors_known:
        lines.append(f"times are calibrated to {calibration(est.system, est.assumptions.name)}")
    elif timed and not est.assumptions.kernels.sustained_rates:
        lines.append("times are those of an idealised machine, not calibrated to a real one")
    return lines


def _chunks_without_layers(est: Estimate) -> list[str]:
    """Return a sentence on pipeline chunks that have the embedding or the head alone, if there are any."""
    plan = est.plan
    empty = est.chunks_without_layers()
    if not empty:
        return []
    word = "chunk" if len(empty) == 1 else "chunks"
    return [
        f"{word} {' and '.join(map(str, empty))} of {plan.pp * plan.vp} without a layer, only embedding or "
        f"head: pp × vp = {plan.pp} × {plan.vp} for {est.model.layers} layers"
    ]


def calibration(system: System, stack: str) -> str:
    """Return what times on a system are calibrated to, in words; the interval is of published runs.

    Of other software than a stack's, by name, only the machine's constants are those of the runs.
    """
    if not system.calibrated_to:
        return "published runs, with a 90% interval"
    other = ""
    if system.calibrated_with and Stack(stack).fitted_name not in dict(system.calibrated_with).values():
        other = f", but for those of {Stack(stack).words}, which is other software"
    return f"your {system.calibrated_to}{other}; the 90% interval is that of published runs"


def _gpu_hour_price(result: "Found", measures: Metrics) -> float | None:
    """Return the price of a GPU hour [$] where plans are ranked by cost and it is known."""
    if result.objective != "cost" or measures.cost is None or not measures.gpu_hours:
        return None
    return float(measures.cost / measures.gpu_hours)


def breakdowns(est: Estimate, command: Command | None = None, why: bool = True) -> Parts:
    """Show step time and memory by component; with `why` all causes of the width of the interval.

    `command` is as in `certainty`.
    """
    yield title_line(f"Plan: {est.plan}")
    if groups := est.group_rows():
        yield from paragraphs(network_of(est.system, groups))
    yield heading(f"Time of a step: {step_text(est)}, {est.tokens_per_second_per_gpu:,.0f} token/s/GPU")
    if why:
        yield from certainty(est, command)
    yield bar_table(est.breakdown, seconds, est.step_seconds, est.plan)
    yield from paragraphs(*_bound_sentences(est))
    if why:
        yield from _outside(est)
    yield from memory_breakdown(est)


def certainty(est: Estimate, command: Command | None = None, indent: str = "") -> Parts:
    """Show what the interval of a time is made of, and what narrows it most.

    `command` returns the words of the answer's command line with an option added; without it the option is
    shown.
    """
    if not est.widths:
        return
    yield from paragraphs(f"{indent}uncertain by {'; '.join(map(str, est.widths))}")
    if est.narrower is None:
        return
    narrower = f"{indent}{describe_narrowing(est.narrower)} with {describe_option(est.narrower)}"
    if command is None:
        yield from paragraphs(f"{narrower}: {est.narrower.option}")
        return
    yield from paragraphs(f"{narrower}:")
    yield from shell_lines(command(est.narrower.option), f"{indent}  ")


def describe_option(narrower: Narrower) -> str:
    """Return what an option states, and the values that it may have instead, in words."""
    option, _, value = narrower.option.partition(" ")
    fact = value.partition("=")[0]
    stated = {"--framework": "the framework", "--assumptions": "the software"}
    subject = stated.get(option, "the release" if fact == "released" else fact)
    others = f" (or {' or '.join(narrower.others)}, as yours has)" if narrower.others else ""
    return f"{subject} stated{others}"


def shell_lines(command: Sequence[str], indent: str) -> Iterator[str]:
    """Yield the words of a command as lines of the width of the terminal that a shell reads as one."""
    parts = list[str]()
    for word in command:  # an option stays beside its value
        if parts and not word.startswith("-") and parts[-1].startswith("-") and " " not in parts[-1]:
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    line = ""
    for part in parts:
        if line and len(indent) + len(line) + len(part) + len("  \\") > width():
            yield f"{indent}{line} \\"
            line = f"  {part}"
        else:
            line = f"{line} {part}" if line else part
    yield f"{indent}{line}"


def _outside(est: Estimate) -> Parts:
    """Show in which respects a plan lies outside of measured runs, but for those that `certainty` shows."""
    shown = {width.due_to.removeprefix(NEVER_MEASURED) for width in est.widths}
    if respects := [respect for respect in est.outside if respect not in shown]:
        yield from paragraphs(f"The interval is wider outside of measured runs: {'; '.join(respects)}.")


def _bound_sentences(est: Estimate) -> list[str]:
    """Return what to change where the bubble or communication takes a large share of the step."""
    time = est.step_seconds
    plan = est.plan
    shares = {name: float(value) / time for name, value in est.breakdown.items()}
    bubble = shares.get("bubble", 0.0)
    lines = list[str]()
    if bubble > MAX_BUBBLE_SHARE:
        batches = f"{int(est.gbs / plan.dp / plan.mbs):,} micro-batches"
        change = f"more than the {batches} of a replica, fewer stages than {plan.pp}, or a higher vp"
        lines.append(f"The bubble takes {bubble:.0%} of the step: {change} shortens it.")
    comm = {name: share for name, share in shares.items() if name.endswith("_comm")}
    if sum(comm.values()) > MAX_COMM_SHARE:
        largest = max(comm, key=lambda name: comm[name])
        mostly = f"mostly {component_label(largest, plan)}"
        change = "a faster network for it, or fewer ranks in its group, shortens it"
        lines.append(f"Communication takes {sum(comm.values()):.0%} of the step, {mostly}: {change}.")
    if shares["data_loading"]:
        needed = est.gbs / plan.gpus / (time - float(est.breakdown["data_loading"]))
        read, wanted = (number_text(float(each or 0), 3) for each in (est.system.input_rate, needed))
        lines.append(f"The step waits for data: {read} sequences/s are read for a GPU, {wanted} are needed.")
    return lines


def network_of(system: System, groups: Sequence[GroupRow]) -> str:
    """Return in words over which tier each group communicates, and what is special about the tiers."""
    taken = {row.crosses for row in groups}
    words = []
    for tier in system.tiers:
        over = ", ".join(f"{row.group} {row.members}" for row in groups if row.crosses == tier.name)
        facts = {
            "oversubscribed {:g} to 1": tier.taper,
            "{:g} rails": tier.rails,
            "congestion {:.1%} a doubling": tier.congestion,
            f"{{:g}} of {tier.size} used": tier.used,
        }
        if tier.name in taken:
            known = ", ".join(text.format(figure) for text, figure in facts.items() if figure is not None)
            words.append(f"{over} over {tier.name}" + (f" ({known})" if known else ""))
    return f"Network: {'; '.join(words)}."


def memory_breakdown(est: Estimate) -> Parts:
    """Show the memory of the fullest rank by component."""
    peak = f"{gib(est.memory_bytes)} at the {est.memory_phase}"
    yield heading(f"Memory of a rank: {peak}, {memory_verdict(est)}")
    yield from paragraphs(*filter(None, (what_decides(est),)))
    scale, sentence = whole_memory(est)
    if not est.fits:
        yield sentence
    yield bar_table(est.memory, gib, scale, est.plan)


def bar_table(parts: Mapping[str, Column], form: Callable[[float], str], total: float, plan: Plan) -> Table:
    """Return a table of the components of a plan's time or memory, each with its share as a bar."""
    rows = []
    longest = max(min(BAR_CHARACTERS, width() - BESIDE_BARS), 1)
    for name, value in parts.items():
        share = float(value) / total
        if value:
            bar = Text("█" * round(share * longest), style="cyan")
            rows.append((component_label(name, plan), form(float(value)), f"{share:.1%}", bar))
    return table(("", "", "", ""), rows, left=(0, 3))


def utilisation(measures: Metrics, est: Estimate, asked: Sequence[str] = ()) -> Parts:
    """Show throughput, utilisation by convention, and the run; `asked` is as in `whole_run`."""
    achieved = (
        f"{rate_text(float(measures.flops_per_second_per_gpu['megatron']), 'FLOP/s')} per GPU (megatron)"
    )
    if measures.mfu is None:
        lines = [f"{achieved}; MFU: not known, {measures.missing['mfu'][0]} is missing"]
    else:
        shares = {name: float(value) for name, value in measures.mfu.items() if name != "6n"}
        words = ", ".join(f"{share:.1%}{of_peak(est.plan)} ({name})" for name, share in shares.items())
        lines = [f"{achieved}; MFU {words}"]
        if any(share > 1 for share in shares.values()):
            masked = "the convention counts attention in full, of which a causal kernel skips the masked half"
            lines.append(f"above 100%: {masked}")
    yield heading("Utilisation and cost")
    yield from paragraphs(*lines, *whole_run(measures, est, asked))


def whole_run(measures: Metrics, est: Estimate, asked: Sequence[str], *, said: bool = False) -> list[str]:
    """Return totals and goodput of the run as lines.

    A line says what is missing to know "cost" or "goodput" where that is `asked` for. Days and dollars are
    left out where the headline above has `said` them.
    """
    lines = []
    totals = (
        ("{}", days, None if said else measures.days, 1),
        ("{} GPU-hours", total_text, measures.gpu_hours, 1),
        ("${}", total_text, None if said else measures.cost, 1),
        ("{}", lambda value: rate_text(value, "Wh"), measures.energy_kwh, 1e-3),
        ("{} tCO2e", total_text, measures.carbon_kg, 1000),
    )
    known = [
        form.format(text(float(value) / size)) for form, text, value, size in totals if value is not None
    ]
    if known and est.model.training_tokens is not None:
        lines.append(f"{total_text(est.model.training_tokens)} tokens: {', '.join(known)}, failures aside")
    if measures.cost is None and "cost" in asked:
        lines.append(f"cost: not known without {' and '.join(measures.missing['cost'])}")
    return lines if measures.goodput is None and "goodput" not in asked else [*lines, goodput(measures)]


def goodput(measures: Metrics) -> str:
    """Return the share of the time that is training, and what is lost, or what is missing to know it."""
    if measures.goodput is None or measures.checkpoint_interval is None:
        return f"goodput: not known without {' and '.join(measures.missing['goodput'])}"
    often = long_duration(float(measures.checkpoint_interval))
    run = "" if measures.effective_days is None else f", {days(measures.effective_days)} with them"
    written = measures.checkpoint_seconds
    of = "" if written is None else f" of {long_duration(float(written))}"
    return f"goodput {measures.goodput:.1%}: failures, restarts and a checkpoint{of} every {often}{run}"


def stage_memory(est: Estimate) -> Parts:
    """Show the memory of every pipeline stage by component; equal stages share a line."""
    yield title_line(f"Plan: {est.plan}")
    stages = est.device_rows()
    memories = [stage.memory_by_component_bytes for stage in stages]
    used = [name for name in memories[0] if any(memory[name] for memory in memories)]
    rows = [
        (
            str(first) if first == last else f"{first}-{last}",
            *(f"{memories[first][name] / GIB:,.2f}" for name in used),
            f"{stages[first].memory_bytes / GIB:,.2f}",
        )
        for first, last in _equal_runs(memories)
    ]
    capacity = float(est.system.accelerator.visible_bytes)
    yield heading(f"Memory of every stage [GiB]; the accelerator has {capacity / GIB:,.1f}")
    names = ("stage", *(SHORT_COMPONENTS.get(name, name) for name in used), "all")
    yield table(names, rows, left=(), gap=1)
    yield from memory_breakdown(est)


def _equal_runs(rows: Sequence[Mapping[str, Column]]) -> Iterator[tuple[int, int]]:
    """Yield the first and last index of each run of equal rows."""
    first = 0
    for i in range(1, len(rows) + 1):
        if i == len(rows) or rows[i] != rows[first]:
            yield first, i - 1
            first = i


def operations(est: Estimate, anatomy: "Anatomy") -> Parts:
    """Show work, time and collectives of every operation of a layer's micro-batch, and their classes."""
    rows = est.operations()
    yield heading("One layer, one micro-batch: FLOPs, memory traffic, FLOP/byte, saved for backward")
    names = ["operation", "forward", "backward", "forward", "backward", "fwd", "bwd", "saved"]
    work = [(row["operation"], *_work_cells(row), gib(row["saved_bytes"])) for row in rows]
    yield table(names, work, gap=1)
    yield heading("Its time; backward with what is recomputed before it")
    names = ["operation", "forward", "backward", "arithmetic", "exposed memory", "exposed comm"]
    yield table(names, [(row["operation"], *map(seconds, _times_of(row))) for row in rows], gap=1)
    if anatomy.collectives:
        yield heading("Its collectives")
        names = ["operation", "", "collective", "over", "tensor", "times"]
        cells = [
            (row.operation, row.direction, row.collective, row.over, gib(row.nbytes), f"{row.times:g}")
            for row in anatomy.collectives
        ]
        yield table(names, cells, left=(0, 1, 2, 3))
    yield heading("All layers, by class of operation")
    shares = [
        (row.name, *(f"{share:.1%}" for share in (row.flops_share, row.bytes_share, row.seconds_share)))
        for row in anatomy.classes
    ]
    yield table(("", "FLOPs", "memory traffic", "time without communication"), shares)
    whole = f"a sequence, forward and backward, unsharded: {rate_text(anatomy.sequence_flops, 'FLOP')}"
    ratio = anatomy.mlp_to_attention
    yield whole if ratio is None else f"{whole}; MLP to attention {number_text(ratio)}"


def _flops_of(row: Mapping[str, Any]) -> list[float]:
    """Return the FLOPs of an operation's forward and backward pass [FLOP]."""
    return [row[f"{name}_matrix_flops"] + row[f"{name}_vector_flops"] for name in ("forward", "backward")]


def _intensity_text(work: float, moved: float) -> str:
    """Return the arithmetic intensity of a pass [FLOP/byte] in words; empty where it moves nothing."""
    if not moved:
        return ""
    decimals = 0 if work > 10 * moved else 1
    return f"{work / moved:,.{decimals}f}"


def _work_cells(row: Mapping[str, Any]) -> list[str]:
    """Return FLOPs, memory traffic and arithmetic intensity of an operation's two passes."""
    flops = _flops_of(row)
    traffic = [row["forward_bytes"], row["backward_bytes"]]
    pairs = zip(flops, traffic, strict=True)
    intensity = [_intensity_text(work, moved) for work, moved in pairs]
    return [*(rate_text(work, "").strip() for work in flops), *map(gib, traffic), *intensity]


def _times_of(row: Mapping[str, Any]) -> list[float]:
    """Return the time of an operation's passes, and of both what is arithmetic, memory, communication [s]."""
    parts = ("compute", "memory", "comm")
    both = [row[f"forward_{part}_seconds"] + row[f"backward_{part}_seconds"] for part in parts]
    return [row["forward_seconds"], row["backward_seconds"] + row["again_seconds"], *both]


def operation_rows(est: Estimate) -> Iterator[tuple[str, ...]]:
    """Yield name and layer of every operation, its times, work, traffic, communication and saved bytes."""
    for row in est.operations():
        *times, _, _, comm = map(seconds, _times_of(row))
        traffic = gib(row["forward_bytes"] + row["backward_bytes"])
        cells = (*times, rate_text(sum(_flops_of(row)), "FLOP"), traffic, comm, gib(row["saved_bytes"]))
        yield row["operation"], row["part"], *cells


def memory_verdict(est: Estimate) -> str:
    """Say whether a plan fits, in how much memory and with which probability."""
    capacity = gib(float(est.system.accelerator.visible_bytes))
    odds = est.fits_probability
    said = "may fit" if est.verdict == "uncertain" else est.verdict
    return f"{said} in {capacity}" + ("" if odds is None else f" (probability {probability_text(odds)})")


def whole_memory(est: Estimate) -> tuple[float, str]:
    """Return what the memory components of one plan are shares of [byte], and the same in words.

    It is what the accelerator has, or what the plan needs where that is more.
    """
    capacity = float(est.system.accelerator.visible_bytes)
    needed = float(est.memory_bytes)
    if est.fits:
        return capacity, f"shares of the {gib(capacity)} there are"
    return needed, f"shares of the {gib(needed)} it needs; {gib(capacity)} are there"
