"""Alternatives side by side: their best plans, and whether their times differ by more than the error."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from string import ascii_uppercase
from typing import Annotated, Any, ClassVar, Final, Literal

from traincast.catalog import as_model, as_system
from traincast.core import (
    ALLOWED_VALUES,
    INLINE,
    STRATEGIES,
    Assumptions,
    Doc,
    ErrorCollector,
    InputError,
    NothingFits,
    Result,
    System,
    count_of,
    number_text,
    parse_whole,
    percent,
    probability_text,
    raise_problems,
)
from traincast.model import Model
from traincast.planner.answers.differences import Ratio, ratio, ratio_of_intervals
from traincast.planner.answers.plan_sentences import MIN_CHANGE_REPORTED, component_label, plan_in_words
from traincast.planner.answers.saved_answers import SavedAnswer, read_saved_answer
from traincast.planner.answers.shortfall import short_of
from traincast.planner.frameworks.spaces import Framework
from traincast.planner.question import LISTED, Objective, Question
from traincast.planner.search_result import Found
from traincast.planner.searches import SearchRequest, search_request
from traincast.planner.space.search_space import Progress
from traincast.step import Estimate, Job, check_gbs, cost_per_million_tokens, metrics

MOST: Final = len(ascii_uppercase)  # alternatives: a study takes more
MOST_PERCENT: Final = 2.0  # ratio from which on it is said as such
SHARES_SAID: Final = 3  # components of a step, the largest
Per = Literal["step", "token", "GPU"]
TAKES: Final[Mapping[Per, str]] = {  # what times are of -> how they are compared in words
    "step": "{} takes {} {} {}",
    "token": "For a token {} takes {} {} {}",
    "GPU": "For a token a GPU of {} takes {} {} one of {}",
}


class Compared(Result, kw_only=True):
    """The best plan of one alternative, or why it has none."""

    label: Annotated[str, Doc("letter of the alternative")]
    name: Annotated[str, Doc("what sets it apart from the others")]
    job: Annotated[Job, INLINE]
    framework: Annotated[str | None, Doc("framework whose plans were searched; null of a saved estimate")]
    fits: Annotated[bool, Doc("whether a plan fits")]
    step_seconds: Annotated[float | None, Doc("time of one optimizer step; null where nothing fits", "s")]
    step_seconds_low: Annotated[
        float | None, Doc("lower end of its 90 % interval, where errors are known", "s", optional=True)
    ] = None
    step_seconds_high: Annotated[
        float | None, Doc("upper end of its 90 % interval, where errors are known", "s", optional=True)
    ] = None
    memory_bytes: Annotated[
        float | None, Doc("memory of the fullest rank; where nothing fits, of the nearest miss", "byte")
    ]
    capacity_bytes: Annotated[float | None, Doc("memory of the accelerator", "byte")]
    fits_probability: Annotated[
        float | None, Doc("probability that it fits, where errors are known", optional=True)
    ] = None
    tokens_per_second_per_gpu: Annotated[float | None, Doc("throughput of one GPU", "token/s")]
    mfu: Annotated[float | None, Doc("share of the dense peak, Megatron's convention")]
    days: Annotated[float | None, Doc("length of the whole run, where its tokens are known", "day")]
    cost: Annotated[float | None, Doc("price of the whole run, where a price is known", "$")]
    cost_per_million_tokens: Annotated[float | None, Doc("price of a million tokens, likewise", "$")]
    shares: Annotated[Mapping[str, float], Doc("share of the step by component, the largest first")]
    plan: Annotated[Mapping[str, Any] | None, Doc("every knob and choice of the plan", kind="object")]
    in_words: Annotated[str, Doc("the plan in words; where nothing fits, why not")]
    est: Estimate | None = field(default=None, compare=False)  # None of figures that are not ours

    @property
    def interval(self) -> tuple[float, float] | None:
        """90 % interval of the step time [s]."""
        if self.step_seconds_low is None or self.step_seconds_high is None:
            return None
        return self.step_seconds_low, self.step_seconds_high

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.job.global_batch * self.job.seq

    @classmethod
    def from_estimate(
        cls,
        letter: str,
        name: str,
        est: Estimate,
        framework: str | None,
        figures: Mapping[str, Any],
        timed: bool = False,
    ) -> "Compared":
        """Return an estimate of one plan as an alternative; where it does not fit, timed only if `timed`."""
        measures = metrics(est, **figures)
        price = figures.get("price") if figures.get("price") is not None else est.system.price
        throughput = est.tokens_per_second_per_gpu
        fits = bool(est.fits)
        timed = timed or fits
        low, high = est.interval if timed and est.interval is not None else (None, None)
        shares = {name: float(value / est.step_seconds) for name, value in est.breakdown.items()}
        words = plan_in_words(est.plan, est.system.tiers)
        return cls(
            label=letter,
            name=name,
            job=est.job,
            framework=framework,
            fits=fits,
            step_seconds=est.step_seconds if timed else None,
            step_seconds_low=low,
            step_seconds_high=high,
            memory_bytes=est.memory_bytes,
            capacity_bytes=float(est.system.accelerator.visible_bytes),
            fits_probability=est.fits_probability,
            tokens_per_second_per_gpu=throughput if timed else None,
            mfu=float(measures.mfu["megatron"]) if timed and measures.mfu is not None else None,
            days=_number(measures.days) if timed else None,
            cost=_number(measures.cost) if timed else None,
            cost_per_million_tokens=(
                None if price is None or not timed else cost_per_million_tokens(float(price), throughput)
            ),
            shares=_largest_first(shares) if timed else {},
            plan=est.to_dict()["plan"],
            in_words=words if fits else f"the nearest to fitting {short_of(est).splitlines()[0]}",
            est=est,
        )

    def binding(self) -> str:
        """Return what the step is spent on, the largest components."""
        plan = () if self.est is None else (self.est.plan,)
        largest = [(name, share) for name, share in self.shares.items() if share > MIN_CHANGE_REPORTED]
        return ", ".join(
            f"{percent(share)} {component_label(name, *plan)}" for name, share in largest[:SHARES_SAID]
        )


class Difference(Result, kw_only=True):
    """Time of one alternative against that of the fastest."""

    label: Annotated[str, Doc("letter of the alternative")]
    against: Annotated[str, Doc("letter of the alternative it is compared with, the fastest")]
    per: Annotated[Per, Doc("what times are of: a step, a token, or a GPU's time for a token")]
    value: Annotated[float, Doc("predicted time over that of the other", key="ratio")]
    error: Annotated[Ratio | None, Doc("the same with its error; null where errors are not known")]
    sentence: Annotated[str, Doc("the difference in words")]


class Comparison(Result):
    """Alternatives in the order given, and how they differ from the fastest."""

    alternatives: Annotated[list[Compared], Doc("the alternatives, in the order given")]

    LABELS: ClassVar = ascii_uppercase  # letters of the alternatives

    @classmethod
    def from_requests(
        cls,
        requests: Sequence[SearchRequest],
        progress: Progress | None = None,
        *,
        price: float | None = None,
        restart_seconds: float | None = None,
    ) -> "Comparison":
        """Search each of some requests on one number of GPUs, and compare the recommended plans.

        `price` and `restart_seconds` are as for `traincast.metrics`.
        """
        _check_number(len(requests))
        results = []
        for i, request in enumerate(requests):
            results += request.answer(_of_several(progress, i, len(requests)))
        names = _names([_facts(result) for result in results])
        figures = {"price": price, "restart_seconds": restart_seconds}
        rows = [
            _row(cls.LABELS[i], name, result, figures)
            for i, (name, result) in enumerate(zip(names, results, strict=True))
        ]
        return cls(rows)

    @classmethod
    def read(cls, files: Sequence[Path]) -> "Comparison":
        """Compare answers that were saved with ``--json``.

        Raises
        ------
        InputError
            If a file is no such answer.
        """
        _check_number(len(files))
        errors = ErrorCollector("compare")
        read = [errors.catch(read_saved_answer, file) for file in files]
        errors.raise_any()
        answers = [answer for answer in read if answer is not None]
        names = [file.stem for file in files]
        if len(set(names)) < len(names):
            names = list(map(str, files))
        return cls([_saved_row(*row) for row in zip(cls.LABELS, names, answers, strict=False)])

    @property
    def differences(self) -> Annotated[list[Difference], Doc()]:
        """Each alternative that fits against the fastest of them."""
        fitting = [row for row in self.alternatives if row.step_seconds is not None]
        if len(fitting) < 2:
            return []
        per = _comparable_unit(fitting)
        fastest = min(fitting, key=lambda row: _seconds(row, per))
        return [_difference(row, fastest, per) for row in fitting if row is not fastest]

    def sentences(self) -> list[str]:
        """Return how each alternative differs from the fastest, a sentence each."""
        return [difference.sentence for difference in self.differences]

    def ordered(self, by: "Order") -> "Comparison":
        """Return the same alternatives in another order, their letters as before; what is not known last."""
        figure = ORDERS[by]
        if not figure:
            return self

        def place(row: Compared) -> tuple[bool, float]:
            value = getattr(row, figure) if row.fits else None
            sign = -1 if figure == "tokens_per_second_per_gpu" else 1
            return value is None, 0.0 if value is None else sign * float(value)

        return replace(self, alternatives=sorted(self.alternatives, key=place))

    def require_any(self) -> None:
        """Raise `NothingFits` where no alternative has a plan; the message has the nearest misses."""
        if not any(row.fits for row in self.alternatives):
            misses = [f"{row.label} {row.name}: {row.in_words}" for row in self.alternatives]
            raise NothingFits("\n  ".join(("nothing fits:", *misses)))


Order = Literal["given", "time", "memory", "throughput", "cost"]
ORDERS: Final[Mapping[Order, str]] = {
    "given": "",
    "time": "step_seconds",
    "memory": "memory_bytes",
    "throughput": "tokens_per_second_per_gpu",
    "cost": "cost_per_million_tokens",
}


def compare(
    model: str | Path | Model | Sequence[str | Path | Model],
    system: str | Path | System | Sequence[str | Path | System] | None = None,
    *,
    gpus: int | Sequence[int] | None = None,
    gbs: int | None = None,
    framework: str | Framework | Sequence[str | Framework | None] | None = None,
    assumptions: str | Assumptions | Sequence[str | Assumptions | None] | None = None,
    plans: Sequence[Mapping[str, object] | str] = (),
    locks: Mapping[str, object] | None = None,
    price: float | None = None,
    progress: Progress | None = None,
    strategy: str | Sequence[str] | None = None,
    top: int = LISTED,
    vp: int | None = None,
    objective: Objective = "time",
    exhaustive: bool = False,
    fit_probability: float | None = None,
    within: float | None = None,
    given: Mapping[str, str] | None = None,
) -> Comparison:
    """Compare models, systems, numbers of GPUs, frameworks, plans, or saved answers.

    Where several of one kind are given, each is an alternative; of several kinds every combination is.

    Parameters
    ----------
    model, system : str, Path, Model, System, or a sequence of them
        As for `search`. Without a system, models are files that ``plan --json`` or ``estimate --json`` wrote.
    gpus : int or sequence of int
        GPUs in the job.
    gbs : int, optional
        Global batch [sequences]; that of each model if left out.
    framework, assumptions : optional
        As for `search`, or a sequence of them.
    plans : sequence of mapping or str, optional
        Knobs of each plan, such as ``{"tp": 8}`` or ``"tp=8 pp=4"``; what they leave open is searched.
    locks : mapping, optional
        Knobs of all plans.
    price : float, optional
        Price of a GPU for an hour; that of each system if left out [$/h].
    progress : callable, optional
        As for `search`, of each search in turn.
    strategy, top, vp, objective, exhaustive, fit_probability, within, given
        As for `search`, of every search.

    Returns
    -------
    Comparison
        The best plan of each alternative, and how their times differ.

    Raises
    ------
    InputError
        If an argument is invalid; all mistakes at once.

    Examples
    --------
    >>> import traincast as tc
    >>> compared = tc.compare("llama-3-8b", ["dgx-a100", "dgx-h100"], gpus=8, framework="megatron")
    >>> [row.name for row in compared.alternatives], compared.differences[0].error.exceeds_error
    (['dgx-a100', 'dgx-h100'], True)
    """
    models = _as_list(model)
    systems = _as_list(system)
    if system is None:
        return Comparison.read([Path(str(file)) for file in models])
    errors = ErrorCollector("compare")
    errors.add(["gpus: is missing; how many the job has"] if gpus is None else [])
    named = [errors.catch(parse_plan, plan) if isinstance(plan, str) else plan for plan in plans] or [{}]
    read_models = [errors.catch(as_model, each) for each in models]
    read_systems = [errors.catch(as_system, each) for each in systems]
    shared = Question(
        strategy=strategy,
        top=top,
        vp=vp,
        locks=locks,
        objective=objective,
        exhaustive=exhaustive,
        fit_probability=fit_probability,
        within=within,
        given=given,
    )
    questions = [
        replace(shared, model=its_model, system=its_system, gbs=errors.catch(check_gbs, gbs, its_model))
        for its_model, its_system in product(read_models, read_systems)
    ]
    alternatives = Alternatives(
        questions=questions,
        gpus=_as_list(gpus),
        frameworks=_as_list(framework),
        assumptions=_as_list(assumptions),
        plans=[plan or {} for plan in named],
    )
    return Comparison.from_requests(alternatives.requests(errors), progress, price=price)


@dataclass(frozen=True, kw_only=True)
class Alternatives:
    """What is compared: every combination is an alternative, the last field varying fastest."""

    questions: Sequence[Question]  # of each model on each system, with its batch; the rest is equal
    gpus: Sequence[int]
    frameworks: Sequence[str | Framework | None] = (None,)
    assumptions: Sequence[str | Assumptions | None] = (None,)
    plans: Sequence[Mapping[str, Any]] = ({},)  # knobs of each plan, besides the locks of all

    def requests(self, errors: ErrorCollector) -> list[SearchRequest]:
        """Return the search of every alternative, in order.

        Raises
        ------
        InputError
            If an argument is invalid; all mistakes at once, with those in `errors`.
        """
        requests = []
        for question, gpus, framework, assumptions, plan in product(
            self.questions, self.gpus, self.frameworks, self.assumptions, self.plans
        ):
            locks = question.locks or {}
            both = {name: value for name, value in plan.items() if locks.get(name, value) != value}
            errors.add(
                [
                    f"{name} = {value} of a plan contradicts {locks[name]} of all"
                    for name, value in both.items()
                ]
            )
            asked = replace(question, gpus=(gpus,), framework=framework, assumptions=assumptions)
            requests.append(search_request(errors, with_locks(asked, {**locks, **plan})))
        errors.raise_any()
        return [request for request in requests if request is not None]


def _as_list(value: object) -> list[Any]:
    """Return the values of an argument that takes one or several."""
    return list(value) if isinstance(value, list | tuple) else [value]


def parse_plan(text: str) -> dict[str, Any]:
    """Return the knobs of a plan as it is written: ``"ring tp=8 pp=4"``, with blanks or commas.

    Raises
    ------
    InputError
        If a part is no knob with a value, nor the name of a strategy.
    """
    knobs: dict[str, object] = {}
    problems = []
    for part in text.replace(",", " ").split():
        name, sign, value = part.partition("=")
        if not sign and name in STRATEGIES:
            knobs |= STRATEGIES[name].choices
        elif sign and value:
            knobs[name.replace("-", "_")] = _value(name.replace("-", "_"), value)
        else:
            problems.append(f"{part!r}: write name=value, such as tp=8")
    if not knobs and not problems:
        problems.append("is empty; write knobs, such as tp=8 pp=4")
    raise_problems(f"plan {text!r}", problems)
    return knobs


def _value(name: str, text: str) -> object:
    """Return the value of a knob: a number, yes or no, or a word."""
    if any(value is True for value in ALLOWED_VALUES.get(name, ())):
        return {"true": True, "on": True, "false": False, "off": False}.get(text.lower(), text)
    number = parse_whole(text)
    return text if number is None else number


def with_locks(question: Question, locks: Mapping[str, object]) -> Question:
    """Return a question with other locks; a kind of context parallelism that is locked is its strategy."""
    kind = next(
        (s.name for s in STRATEGIES.values() if all(locks.get(name) == v for name, v in s.choices.items())),
        None,
    )
    if kind is None:
        return replace(question, locks=locks)
    rest = {name: value for name, value in locks.items() if name not in STRATEGIES[kind].choices}
    return replace(question, locks=rest, strategy=kind)


def _of_several(progress: Progress | None, place: int, number: int) -> Progress | None:
    """Return the progress of one of several searches, each of which counts as 1."""
    if progress is None:
        return None
    parts = 1000  # progress counts whole steps

    def report(done: float, total: float, decided: int) -> None:
        progress(round(parts * (place + done / max(total, 1))), parts * number, decided)

    return report


def _check_number(number: int) -> None:
    if not 2 <= number <= MOST:
        allowed = f"give 2 to {MOST}, such as two systems with a comma; a study takes more"
        raise InputError("compare", [f"{count_of(number, 'alternative')}: {allowed}"])


def _facts(result: Found) -> dict[str, str]:
    """Return what a search was asked, as text by name."""
    return {
        "model": result.model.name,
        "seq": f"{result.model.seq:,} tokens",
        "system": result.system.name,
        "gpus": count_of(result.gpus, "GPU"),
        "gbs": f"batch {result.gbs:,}",
        "framework": result.framework.label,
        "assumptions": result.assumptions.name,
        "plan": " ".join(f"{name}={value}" for name, value in _locks(result).items()) or "any plan",
    }


def _locks(result: Found) -> dict[str, object]:
    chosen = {"strategy": result.strategies[0]} if len(result.strategies) == 1 else {}
    return {**chosen, **result.locks}


SAID_BY_OTHERS: Final = {  # what differs because something else does -> what else
    "seq": ("model",),
    "gbs": ("model", "seq"),
    "assumptions": ("framework", "system", "model"),
    "plan": (),
    "framework": ("system",),
}


def _names(facts: Sequence[Mapping[str, str]]) -> list[str]:
    """Return for each alternative what sets it apart."""
    differ = [name for name in facts[0] if len({fact[name] for fact in facts}) > 1]
    said = [
        name
        for name in differ
        if not any(other in differ and _follows(name, other, facts) for other in SAID_BY_OTHERS.get(name, ()))
    ]
    if not said:
        return [f"alternative {Comparison.LABELS[i]}" for i in range(len(facts))]
    return [", ".join(fact[name] for name in said) for fact in facts]


def _follows(name: str, other: str, facts: Sequence[Mapping[str, str]]) -> bool:
    """Return whether one fact is the same wherever another is."""
    pairs = {(fact[other], fact[name]) for fact in facts}
    return len(pairs) == len({first for first, _ in pairs})


def _row(letter: str, name: str, result: Found, figures: Mapping[str, object]) -> Compared:
    """Return the recommended plan of a search as an alternative, or the nearest miss."""
    answer = result.explain().miss if result.recommended is None else result.recommended
    if answer is not None:
        return Compared.from_estimate(letter, name, answer[1], result.framework.label, figures)
    why = result.explain().broken_locks() or ["no plan uses exactly so many GPUs"]
    return Compared(
        label=letter,
        name=name,
        job=result.job,
        framework=result.framework.label,
        fits=False,
        step_seconds=None,
        memory_bytes=None,
        capacity_bytes=float(result.system.accelerator.visible_bytes),
        tokens_per_second_per_gpu=None,
        mfu=None,
        days=None,
        cost=None,
        cost_per_million_tokens=None,
        shares={},
        plan=None,
        in_words="; ".join(why),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _largest_first(shares: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _saved_row(letter: str, name: str, saved: SavedAnswer) -> Compared:
    """Return a saved answer as an alternative."""
    if saved.est is not None:
        return Compared.from_estimate(letter, name, saved.est, saved.framework, {})
    return Compared(label=letter, name=name, **saved.figures())


def _comparable_unit(rows: Iterable[Compared]) -> Per:
    """Return what times of some alternatives can be compared of."""
    rows = list(rows)
    if len({row.job.gpus for row in rows}) > 1:
        return "GPU"
    return "step" if len({row.tokens for row in rows}) == 1 else "token"


def _work(row: Compared, per: Per) -> float:
    """Return the work of a step, in units of which times are compared."""
    if per == "step":
        return 1.0
    return row.tokens if per == "token" else row.tokens / row.job.gpus


def _seconds(row: Compared, per: Per) -> float:
    assert row.step_seconds is not None
    return row.step_seconds / _work(row, per)


def _difference(row: Compared, fastest: Compared, per: Per) -> Difference:
    """Compare an alternative with the fastest."""
    work = _work(row, per) / _work(fastest, per)
    value = _seconds(row, per) / _seconds(fastest, per)
    error = None
    if row.est is not None and fastest.est is not None:
        error = ratio(row.est, fastest.est, work)
    elif row.interval is not None and fastest.interval is not None:
        times = [(each.step_seconds or 0.0, *(each.interval or (0.0, 0.0))) for each in (row, fastest)]
        error = ratio_of_intervals(times[0], times[1], work)
    sentence = _sentence(row.label, fastest.label, per, value, error)
    return Difference(
        label=row.label, against=fastest.label, per=per, value=value, error=error, sentence=sentence
    )


def _sentence(letter: str, against: str, per: Per, value: float, error: Ratio | None) -> str:
    """Say by how much a time is longer than the shortest, and whether that exceeds the error."""
    by_how_much = f"{percent(value - 1)} longer"
    measured = "" if error is None else f"its error of {percent(error.error)}"
    if value > MOST_PERCENT:
        by_how_much = f"{number_text(value, 3)} times as long"
        ends = () if error is None else (number_text(error.low, 3), number_text(error.high, 3))
        measured = f"its error ({' to '.join(ends)} times, 90%)"
    if value - 1 < MIN_CHANGE_REPORTED:
        said = f"{letter} and {against} take the same time"
    else:
        than = "as" if value > MOST_PERCENT else "than"
        said = TAKES[per].format(letter, by_how_much, than, against)
    if error is None:
        return f"{said}; how sure that is, is not known."
    verdict = f"{'more than' if error.exceeds_error else 'within'} {measured}"
    likely = probability_text(1 - error.faster)
    return f"{said}, {verdict}: {against} is faster with a probability of {likely}."
