"""The ranking: the best plans of a search, a line each, with the knobs in which they differ."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from traincast.core import (
    CHOICES,
    DEFAULTS,
    GIB,
    KNOB_SPECS,
    STRATEGIES,
    Plan,
    gib,
    probability_text,
    seconds,
)
from traincast.planner import Family, equality_sentence
from traincast.step import MODEL_RESOLUTION, Answer, Estimate
from traincast.ui.text.tables import Parts, note, paragraphs, table, width

if TYPE_CHECKING:
    from traincast.planner import Found

ALWAYS_SHOWN: Final = ("tp", "pp", "dp", "mbs")
RANKING_KNOBS: Final = (
    *("tp", "tp2", "cp", "ulysses", "pp", "vp", "dp", "replicas", "ep", "etp", "mbs", "panels"),
    *("zero", "schedule", "recompute", "offload", "sp", "tp_overlap", "ep_overlap", "order"),
    *("precision", "grad_dtype", "master_copy", "optimizer_kind"),
)
STRATEGY_WORDS: Final = {
    "1d": "tensor parallel, no context parallel",
    "summa": "tensor parallel on a grid",
    "context": "context parallel, keys and values gathered",
    "ring": "context parallel, keys and values sent around",
    "ulysses": "context parallel, heads exchanged",
    "hybrid": "ring and ulysses together",
}
SHORT_KNOBS: Final = {"tp_overlap": "overlap", "ep_overlap": "ep ov", "ulysses": "uly", "replicas": "repl"}
KNOB_WORDS: Final = {  # column -> what it is, in the short legend: the least known first
    "zero": "stage of ZeRO, 3 is FSDP",
    "replicas": "groups that shard apart",
    "vp": "chunks of a stage",
    "recompute": "activations computed again",
    "mbs": "micro-batch",
    "order": "axes of ranks, innermost first",
    "tp_overlap": "TP hidden behind GEMMs",
    "ep_overlap": "EP hidden behind computation",
    "panels": "pieces of a SUMMA product",
    "tp2": "columns of SUMMA's grid",
    "tp": "tensor parallel",
    "cp": "context parallel",
    "ep": "expert parallel",
    "pp": "pipeline stages",
    "dp": "replicas",
}
MARK: Final = ">"  # before the recommended plan of a table
LEGEND_LINES: Final = 5


def ranking_table(listed: "Ranking", price: float | None = None, in_full: bool = True) -> Parts:
    """Show plans, one a line; with a price [$/h of a GPU] also the cost of a million tokens.

    `in_full`: the whole legend, else its weightiest `LEGEND_LINES`.
    """
    names = list(listed.header)
    rows = [list(row) for row in listed.rows()]
    if price is not None:
        names.append("$/Mtoken")
        for row, (_, est) in zip(rows, listed.answers, strict=True):
            row.append(f"{price / 3600 / est.tokens_per_second_per_gpu * 1e6:.3f}")
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    lists = _too_wide(columns)
    left = [i for i, name in enumerate(columns) if name in ("strategy", "fast", *Family.KNOBS, *CHOICES)]
    shown = [SHORT_KNOBS.get(name, name) for name in columns]
    yield table(shown, zip(*columns.values(), strict=True), left=left, gap=1)
    yield from map(note, lists)
    if in_full:
        for line in listed.legend():
            yield note(f"{line}; --all lists each" if line.startswith("(…)") else line)
    else:
        yield note("\n".join(_first_lines(listed.short_legend(), LEGEND_LINES)))


def _first_lines(entries: Iterable[str], number: int) -> list[str]:
    """Return entries as one paragraph, as many of the first as so many lines have room for."""
    shown = list[str]()
    for entry in entries:
        longer = "; ".join([*shown, entry])
        if len("\n".join(paragraphs(longer)).splitlines()) > number:
            continue
        shown.append(entry)
    return ["; ".join(shown)]


def _too_wide(columns: dict[str, list[str]]) -> list[str]:
    """Take out the emptiest columns until the others fit the width; return lines that say what they have."""
    lists = []
    names = [name for name in columns if name in KNOB_SPECS and name not in ALWAYS_SHOWN]
    for name in sorted(names, key=lambda name: sum(map(bool, columns[name]))):
        cells = ((SHORT_KNOBS.get(title, title), *column) for title, column in columns.items())
        if sum(1 + max(map(len, column)) for column in cells) <= 1 + width():
            break
        where: dict[str, list[str]] = {}
        for rank, value in zip(columns["#"], columns.pop(name), strict=True):
            where.setdefault(value, []).append(rank.removeprefix(MARK))
        values = (f"{value} in plan {', '.join(ranks)}" for value, ranks in where.items() if value)
        lists.append(f"{name}: {'; '.join(values)}")
    return lists


@dataclass(frozen=True)
class Ranking:
    """Table of the plans of a search: a line for each family, or each plan, best first.

    Unless `by_time`, the recommended one comes first.
    """

    result: "Found"
    each: bool = False
    by_time: bool = True

    @cached_property
    def families(self) -> list[Family]:
        """What the lines are of."""
        rows = [Family(plan, ()) for plan in self.result.ranked] if self.each else self.result.families
        if not self.by_time or self.result.objective == "memory":
            return rows
        return sorted(rows, key=lambda family: self.result.answer(family.plan)[1].step_seconds)

    @property
    def recommended(self) -> int:
        """Index of the line of the recommended plan."""
        first = self.result.recommendation
        return next(i for i, family in enumerate(self.families) if first and family.plan == first.plan)

    def equal(self) -> str:
        """Return which lines are as fast as the recommended one, and which two plans to measure.

        Empty where errors are not known.
        """
        if self.result.objective == "memory" or not self.families:
            return ""
        return equality_sentence(self.answers, self.recommended)

    @property
    def answers(self) -> list[Answer]:
        """The plan of each line."""
        return [self.result.answer(family.plan) for family in self.families]

    @cached_property
    def knobs(self) -> tuple[list[str], list[str]]:
        """Knobs and choices that some plan uses: those in which lines differ, and the same in all of them."""
        plans = [family.plan for family in self.families]
        columns = list[str]()
        same = list[str]()
        for name in knobs_of(plans):
            values = {knob_text(plan, name) for plan in plans}
            if name == "ulysses" and all(plan.ulysses in (1, plan.cp) for plan in plans):
                continue  # the strategy says it
            varied = any(family.others(name) for family in self.families if name in Family.KNOBS)
            (columns if name in ALWAYS_SHOWN or varied or len(values) > 1 else same).append(name)
        return columns, same

    @property
    def is_uncertain(self) -> bool:
        """Whether errors of predictions are known."""
        return self.result.assumptions.errors_known

    @property
    def header(self) -> list[str]:
        """Names of the columns."""
        fits = ["fits"] if self.is_uncertain else []
        fast = ["fast"] if self.is_placed else []
        return ["#", "step", "GiB", *fits, "strategy", *self.knobs[0], *fast]

    @property
    def is_placed(self) -> bool:
        """Whether placements are searched; a framework's order of ranks leaves no choice of them."""
        return not self.result.framework.ordered

    def rows(self) -> Iterator[list[str]]:
        """Yield the cells of each line."""
        for rank, (family, (plan, est)) in enumerate(zip(self.families, self.answers, strict=True), 1):
            fits = [] if est.fits_probability is None else [probability_text(est.fits_probability)]
            figures = seconds(est.step_seconds), f"{est.memory_bytes / GIB:,.1f}"
            cells = (_cell(family, name) for name in self.knobs[0])
            fast = [fast_members(plan)] if self.is_placed else []
            number = f"{MARK if rank == self.recommended + 1 else ''}{rank}"
            yield [number, *figures, *fits, plan.strategy, *cells, *fast]

    def short_legend(self) -> Iterator[str]:
        """Yield what the columns mean in few words, the weightiest first."""
        capacity = gib(float(self.result.system.accelerator.visible_bytes))
        yield f"{MARK} recommended"
        yield f"GiB of {capacity} on the fullest rank"
        columns, same = self.knobs
        if any(family.others(name) for family in self.families for name in Family.KNOBS if name in columns):
            yield f"(…): others within {MODEL_RESOLUTION:.0%}, --all lists them"
        if same:
            yield f"all: {', '.join(f'{name}={knob_text(self.families[0].plan, name)}' for name in same)}"
        yield from self._module_sets()
        for strategy in dict.fromkeys(plan.strategy for plan, _ in self.answers):
            yield f"{strategy}: {STRATEGY_WORDS[strategy]}"
        if self.is_placed:
            yield f"fast: ranks of a group in one domain of {self.result.system.fast_domain:,}"
        explained = [name for name in KNOB_WORDS if name in columns]
        yield from (f"{SHORT_KNOBS.get(name, name)}: {KNOB_WORDS[name]}" for name in explained)

    def _module_sets(self) -> Iterator[str]:
        """Yield the sets of modules that lines recompute and the table shortens."""
        listed = self.families if "recompute" in self.knobs[0] else []
        sets = (value for family in listed for value in (family.plan.recompute, *family.others("recompute")))
        yield from (f"{_short_words(value)}: {value}" for value in dict.fromkeys(sets) if "+" in value)

    def legend(self) -> Iterator[str]:
        """Yield what the columns mean."""
        system = self.result.system
        capacity = f"of {gib(float(system.accelerator.visible_bytes))}"
        spread = ""
        fits = ""
        if self.is_uncertain:
            spread = _spread_text(self.answers[self.recommended][1])
            fits = "; fits: probability that it fits"
        memory = f"GiB: memory of the fullest rank {capacity}"
        yield f"{MARK} recommended; step: time of a step{spread}; {memory}{fits}"
        strategies = dict.fromkeys(plan.strategy for plan, _ in self.answers)
        yield f"strategy {'; '.join(f'{name}: {STRATEGY_WORDS[name]}' for name in strategies)}"
        columns, same = self.knobs
        yield "; ".join(f"{SHORT_KNOBS.get(name, name)}: {short_meaning(name)}" for name in columns)
        if self.is_placed:
            yield f"fast: ranks of a group in one fast domain of {system.fast_domain:,}, where several are"
        if any(family.others(name) for family in self.families for name in Family.KNOBS if name in columns):
            yield f"(…): other values of this knob alone, within {MODEL_RESOLUTION:.0%} of the line's time"
        yield from self._module_sets()
        if same:
            values = (f"{name}={knob_text(self.families[0].plan, name)}" for name in same)
            yield f"in all of them: {', '.join(values)}"


def _spread_text(first: Estimate) -> str:
    """Return by how much a measured step of the recommended plan may be off; plans share most of it."""
    if first.interval is None:
        return ""
    low, high = (end / first.step_seconds - 1 for end in first.interval)
    return f", 90% interval of {MARK} {low:+.0%} to {high:+.0%}"


def _cell(family: Family, name: str) -> str:
    """Return a knob of the plan of a line, and in brackets what else it can be."""
    plan = family.plan
    others = family.others(name) if name in Family.KNOBS else []
    if not others:
        return str(plan.zero) if name == "zero" else _short_words(knob_text(plan, name))
    texts = [_short_words(_value_text(name, value)) for value in others]
    if isinstance(others[0], int):  # numbers ascend
        texts = ["-".join(dict.fromkeys((texts[0], texts[-1])))]
    return f"{_short_words(_value_text(name, getattr(plan, name)))} ({', '.join(texts)})"


def _short_words(value: str) -> str:
    """Return the first of words joined by +, and how many follow."""
    first, *more = value.split("+")
    return f"{first}+{len(more)}" if more else first


def short_meaning(name: str) -> str:
    """Return what a knob is, without the words it can be."""
    return re.split(r";| \(|: (?=none|gpipe)", KNOB_SPECS[name].meaning)[0]


def knobs_of(plans: Sequence[Plan]) -> list[str]:
    """Return the knobs and choices that any of the plans uses."""
    return [
        name for name in RANKING_KNOBS if name in ALWAYS_SHOWN or any(knob_text(plan, name) for plan in plans)
    ]


def knob_text(plan: Plan, name: str) -> str:
    """Return a knob or choice of a plan as text; empty where it has its default value or does not apply."""
    value = getattr(plan, name)
    second = STRATEGIES[plan.strategy].second
    shown = name in ALWAYS_SHOWN or value != DEFAULTS[name]
    if name in ("tp2", "cp", "panels"):
        shown = second == ("tp2" if name == "panels" else name)
    if not shown:
        return ""
    return _value_text(name, value)


def _value_text(name: str, value: object) -> str:
    """Return a value of a knob as text."""
    if name == "order":  # only the axes in which orders differ
        return str(value).removeprefix("tp-cp-")
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def fast_members(plan: Plan) -> str:
    """Return how many ranks of the group of each axis share a fast domain, of those where several do."""
    members = {axis: getattr(plan, f"fast_{axis}") or 1 for axis in STRATEGIES[plan.strategy].axes}
    return " ".join(f"{number}{axis}" for axis, number in members.items() if number > 1)
