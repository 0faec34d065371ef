"""Terminal table of alternatives: a line each, then their plans, and how their times differ."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from traincast.core import GIB, count_of, number_text, percent, probability_text, seconds, total_text
from traincast.planner import Compared, Comparison
from traincast.ui.text.headline import days
from traincast.ui.text.tables import Parts, heading, note, paragraphs, table, title_line, width

NOT_KNOWN: Final = "-"
NAME: Final = 1  # column that is broken over lines
NAME_COLUMNS: Final = 26  # that it gets, if need be in place of these columns
SPARED: Final = ("days", "MFU")


def comparison(compared: Comparison, plans: bool = True) -> Parts:
    """Show alternatives side by side, whether differences exceed errors, and what each spends its step on.

    Without `plans`, the last is left out.
    """
    rows = compared.alternatives
    yield title_line(title(compared))
    for line in describe_step(rows):
        yield from paragraphs(line)
    yield ""
    names, cells = drop_spare_columns(*figures(rows))
    yield table(names, cells, left=(0, NAME), wrap=(NAME,), gap=1)
    for line in legend(rows):
        yield note(line)
    if sentences := compared.sentences():
        yield ""
        yield from paragraphs(*sentences)
    if not plans:
        return
    yield heading("Plans, and what binds them")
    for row in rows:
        yield from paragraphs(f"{row.label}: {row.in_words}")
        if row.shares:
            yield from paragraphs(f"   {row.binding()}")


def title(compared: Comparison) -> str:
    """Return what all alternatives have in common, as the title of their table."""
    jobs = [row.job for row in compared.alternatives]
    models = list(dict.fromkeys(job.model for job in jobs))
    sizes = sorted({job.gpus for job in jobs})
    systems = list(dict.fromkeys(job.system for job in jobs))
    model = models[0] if len(models) == 1 else count_of(len(models), "model")
    gpus = count_of(sizes[0], "GPU") if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,} GPUs"
    system = f" of {systems[0]}" if len(systems) == 1 else ""
    return f"{model} on {gpus}{system}: {count_of(len(jobs), 'alternative')}"


def describe_step(rows: Sequence[Compared]) -> list[str]:
    """Return what a step is, and the assumptions, where all alternatives share them."""
    taken = list(dict.fromkeys(line for row in rows for line in row.job.taken))
    batches = {(row.job.global_batch, row.job.seq) for row in rows}
    stacks = list(dict.fromkeys(row.job.assumptions for row in rows))
    lines = [*taken]
    if len(batches) == 1:
        ((batch, seq),) = batches
        lines.append(f"a step: {count_of(batch, 'sequence')} of {seq:,} tokens")
    lines.append(f"assumptions: {', '.join(stacks)}")
    return lines


def figures(rows: Sequence[Compared]) -> tuple[list[str], list[list[str]]]:
    """Return the columns of the table and the cells of each alternative.

    Those without a value are left out.
    """
    columns: list[tuple[str, Callable[[Compared], str]]] = [
        ("", lambda row: row.label),
        ("alternative", lambda row: row.name),
        ("step", lambda row: "none fits" if row.step_seconds is None else seconds(row.step_seconds)),
        ("90%", _interval),
        ("GiB", _memory),
        ("fits", _fits),
        ("tok/s/GPU", lambda row: _text(row.tokens_per_second_per_gpu, lambda value: f"{value:,.0f}")),
        ("MFU", lambda row: _text(row.mfu, percent)),
        ("days", lambda row: _text(row.days, lambda value: days(value).removesuffix(" days"))),
        (*_cost(rows),),
    ]
    used = [
        (name, cell)
        for name, cell in columns
        if name in ("", "alternative", "step") or any(cell(row) not in ("", NOT_KNOWN) for row in rows)
    ]
    return [name for name, _ in used], [[cell(row) for _, cell in used] for row in rows]


def drop_spare_columns(names: list[str], cells: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Return a table without the columns of `SPARED` that leave no room for the names of alternatives."""
    kept = list(range(len(names)))
    wanted = min(max(len(row[NAME]) for row in cells), NAME_COLUMNS)
    for spared in SPARED:
        taken = sum(1 + max(len(row[i]) for row in (names, *cells)) for i in kept if i != NAME)
        if width() - taken >= wanted:
            break
        kept = [i for i in kept if names[i] != spared]
    return [names[i] for i in kept], [[row[i] for i in kept] for row in cells]


def _text(value: float | None, form: Callable[[float], str]) -> str:
    return NOT_KNOWN if value is None else form(value)


def _interval(row: Compared) -> str:
    if row.interval is None or row.step_seconds is None:
        return NOT_KNOWN
    size = next((unit for unit in (1.0, 1e-3, 1e-6) if row.step_seconds >= unit), 1e-9)
    low, high = (number_text(end / size, 3) for end in row.interval)
    return f"{low}-{high}"


def _memory(row: Compared) -> str:
    if row.memory_bytes is None:
        return NOT_KNOWN
    used = f"{row.memory_bytes / GIB:,.1f}"
    return used if row.capacity_bytes is None else f"{used}/{row.capacity_bytes / GIB:,.0f}"


def _fits(row: Compared) -> str:
    if not row.fits:
        return "no"
    return "yes" if row.fits_probability is None else probability_text(row.fits_probability)


def _cost(rows: Sequence[Compared]) -> tuple[str, Callable[[Compared], str]]:
    """Return the column of prices: of the whole run where known of all that fit, else of tokens."""
    if all(row.cost is not None for row in rows if row.fits):
        return "cost", lambda row: _text(row.cost, lambda value: f"${total_text(float(f'{value:.3g}'))}")
    return "$/Mtoken", lambda row: _text(row.cost_per_million_tokens, lambda value: f"{value:.3g}")


def legend(rows: Sequence[Compared]) -> Iterator[str]:
    """Yield what the columns are."""
    known: list[Any] = ["90%: interval of the step"] if any(row.interval for row in rows) else []
    known.append("GiB: memory of the fullest rank / of the accelerator")
    if any(row.fits_probability is not None for row in rows):
        known.append("fits: probability that it does")
    if any(row.cost is not None for row in rows):
        known.append("cost: of the whole run, failures aside")
    yield "; ".join(known)
