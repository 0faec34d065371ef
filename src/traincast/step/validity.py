"""Validity of plans as named rules: each is a boolean column and the reason a user reads.

Memory is no rule: `Estimate.fits` compares it with the accelerator's capacity.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np

from traincast.core import AXES, Bools, Plan, Plans, chunks, raise_problems
from traincast.model import LINEAR_ATTENTIONS, Experts, LinearAttention, Mamba, Model, RgLru
from traincast.times import SCHEDULES, Requirement

MIN_SLICE: Final = 128  # narrowest slice of a width or of the sequence that is searched
# Whether plans meet it, a boolean column, from model, plans and global batch.
Condition: TypeAlias = Callable[[Model, Plans, int], "bool | Bools"]


@dataclass(frozen=True)
class Rule:
    """A condition that plans must meet."""

    broken: str  # message to the user where it is not met
    about: tuple[str, ...]  # knobs of the plan and figures of the model (and gbs) that it depends on
    holds: Condition
    search_only: bool = False  # whether it only narrows the search, and allows a plan given by hand
    equal_stages: bool = False  # whether it holds only where stages must have equally many layers


def _is_1d(plan: Plans) -> bool:
    return plan.tp_kind == "1d" and plan.cp_kind == "none"


def _needs(name: str, needed: Requirement) -> Condition:
    """Return the condition that plans of a schedule meet a requirement; plans of other schedules pass."""
    return lambda model, plan, gbs: (
        plan.schedule != name or needed.holds(plan.pp, plan.microbatches(gbs), plan.vp)
    )


def _of_experts(holds: Callable[[Experts, Plans], bool | Bools]) -> Condition:
    """Return a condition on models with experts; other models pass."""
    return lambda model, plan, gbs: True if model.experts is None else holds(model.experts, plan)


def _of_linear_attention(holds: Callable[[LinearAttention, Plans], bool | Bools]) -> Condition:
    """Return a condition on models with linear attention; other models pass."""

    def holds_everywhere(model: Model, plan: Plans, gbs: int) -> bool | Bools:
        held: bool | Bools = True
        for part in LINEAR_ATTENTIONS:
            config = getattr(model, part)
            if config is not None:
                held = held & holds(config, plan)
        return held

    return holds_everywhere


def _of_every_layer(holds: Condition) -> Condition:
    """Return a condition on the heads, widths and tokens of every kind of layer."""

    def holds_in_each(model: Model, plan: Plans, gbs: int) -> bool | Bools:
        first, *others = model.variants
        held = holds(first, plan, gbs)
        for variant in others:
            held = held & holds(variant, plan, gbs)
        return held

    return holds_in_each


def _divides(knob: str, figure: str, noun: str) -> Rule:
    """Return the rule that a degree divides a figure of the model."""
    return Rule(
        f"{knob} does not divide {noun}",
        (knob, figure),
        _of_every_layer(lambda model, plan, gbs: getattr(model, figure) % getattr(plan, knob) == 0),
    )


# m: the model, p: plans.
RULES: Final = (
    Rule(
        "adapters with SUMMA are not modelled",
        (),
        lambda m, p, gbs: m.adapters is None or p.tp_kind != "summa",
    ),
    Rule(
        "a packed base is multiplied at 16 bits: precision must be bf16, fp16 or fp32",
        (),
        lambda m, p, gbs: not m.is_packed or not p.recipe.is_low,
    ),
    Rule(
        "a base held as operands of products below 16 bits needs a precision such as fp8 or nvfp4",
        (),
        lambda m, p, gbs: m.adapters is None or m.adapters.base != "operand" or p.recipe.copies > 0,
    ),
    Rule(
        "a vision tower with SUMMA is not modelled",
        (),
        lambda m, p, gbs: m.tower is None or p.tp_kind != "summa",
    ),
    Rule(
        "tp does not divide the heads or the MLP's width of the vision tower",
        ("tp",),
        lambda m, p, gbs: (
            m.tower is None or (m.tower.layers.heads % p.tp == 0) & (m.tower.layers.ffn % p.tp == 0)
        ),
    ),
    _divides("tp", "heads", "the attention heads"),
    Rule(
        "tp and ulysses together do not divide the attention heads",
        ("tp", "ulysses", "heads"),
        _of_every_layer(lambda m, p, gbs: (p.ulysses == 1) | (m.heads % (p.tp * p.ulysses) == 0)),
    ),
    Rule(
        "tp neither divides the heads of keys and values nor is a multiple of them",
        ("tp", "groups"),
        _of_every_layer(
            lambda m, p, gbs: (m.groups == m.heads) | (m.groups % p.tp == 0) | (p.tp % (m.groups or 1) == 0)
        ),
    ),
    Rule(
        "layers with shared weights are not modelled in a pipeline",
        ("pp",),
        lambda m, p, gbs: (p.pp == 1) if m.shared_layers else True,
    ),
    Rule(
        "attention to an encoder is not modelled with context parallelism or 2-D tensor parallelism",
        ("cp", "tp2"),
        lambda m, p, gbs: True if m.encoder is None else (p.cp == 1) & (p.tp_kind == "1d"),
    ),
    Rule(
        "attention to an encoder is not modelled with recompute per-op, torchtitan's",
        (),
        lambda m, p, gbs: m.encoder is None or "per-op" not in p.recomputed,
    ),
    Rule(
        "tp does not divide the heads of linear attention, groups of them, or channels",
        ("tp",),
        _of_linear_attention(
            lambda config, p: np.all([heads % p.tp == 0 for heads in config.counts.sharded], axis=0)
        ),
    ),
    Rule(
        "tp and cp together do not divide the heads of linear attention, or channels",
        ("tp", "cp"),
        _of_linear_attention(lambda config, p: config.counts.sharded[0] % (p.tp * p.cp) == 0),
    ),
    Rule(
        "Mamba-1 and the RG-LRU are not modelled with context parallelism",
        ("cp",),
        _of_linear_attention(lambda config, p: not isinstance(config, Mamba | RgLru) or p.cp == 1),
    ),
    Rule(
        "attention to selected keys is modelled as a fused kernel: attention must be flash",
        (),
        lambda m, p, gbs: ((m.indexer is None) & (m.compressed is None)) | (p.attention == "flash"),
    ),
    Rule(
        "attention to selected keys gathers them: cp_kind must be all-gather",
        ("cp",),
        lambda m, p, gbs: (
            ((m.indexer is None) & (m.compressed is None)) | (p.cp == 1) | (p.cp_kind == "all-gather")
        ),
    ),
    Rule(
        "tp does not divide the groups of heads of the output projection",
        ("tp",),
        lambda m, p, gbs: m.latent is None or m.latent.proj_rank is None or m.latent.proj_groups % p.tp == 0,
    ),
    Rule(
        "copies of the residual stream are not modelled with 2-D tensor parallelism",
        ("tp2",),
        lambda m, p, gbs: (m.streams == 1) | (p.tp_kind == "1d"),
    ),
    Rule(
        "linear attention is not modelled with 2-D tensor parallelism",
        ("tp2",),
        _of_linear_attention(lambda config, p: p.tp_kind == "1d"),
    ),
    _divides("tp", "hidden", "the hidden width"),
    _divides("tp", "ffn", "the MLP's width"),
    _divides("tp2", "hidden", "the hidden width"),
    _divides("tp2", "ffn", "the MLP's width"),
    Rule(
        f"tp cuts a width below {MIN_SLICE}",
        ("tp", "hidden"),
        lambda m, p, gbs: (3 if _is_1d(p) else 1) * m.hidden // p.tp >= MIN_SLICE,  # 3: of qkv
        search_only=True,
    ),
    Rule(
        f"the sequence on a rank is below {MIN_SLICE} tokens",
        ("tp2", "cp", "seq"),
        lambda m, p, gbs: _is_1d(p) | (m.seq // p.context >= MIN_SLICE),
        search_only=True,
    ),
    Rule("the sequence has fewer tokens than context ranks", ("cp", "seq"), lambda m, p, gbs: m.seq >= p.cp),
    Rule(
        "pp does not divide the layers",
        ("pp", "layers"),
        lambda m, p, gbs: (p.layout != "") | (m.layers % p.pp == 0),
        search_only=True,
        equal_stages=True,
    ),
    Rule(
        "the layers do not divide into virtual stages",
        ("pp", "vp", "layers"),
        lambda m, p, gbs: (p.layout != "") | (p.vp == 1) | ((m.layers % (p.pp * p.vp) == 0) & (p.pp > 1)),
        search_only=True,
        equal_stages=True,
    ),
    Rule(
        "ep does not divide the experts (it is 1 without experts)",
        ("ep", "etp"),
        lambda m, p, gbs: (1 if m.experts is None else m.experts.experts) % p.ep == 0,
    ),
    Rule(
        "etp does not divide the width of an expert, or tp that of the shared experts",
        ("tp", "etp"),
        _of_experts(lambda experts, p: (experts.ffn % p.etp == 0) & (experts.shared_ffn % p.tp == 0)),
    ),
    Rule(
        "ep and etp do not divide the ranks of a stage, tp × cp × dp",
        ("ep", "etp", "tp", "cp", "dp"),
        _of_experts(lambda experts, p: p.tp * p.cp * p.dp % (p.ep * p.etp) == 0),
    ),
    Rule(
        "etp is above 1 without experts",
        ("etp",),
        lambda m, p, gbs: (m.experts is not None) | (p.etp == 1),
    ),
    Rule("etp is above tp", ("etp", "tp"), lambda m, p, gbs: p.etp <= p.tp),
    Rule(
        "experts with tp > 1 need sequence parallelism",
        ("tp",),
        _of_experts(lambda experts, p: p.sp | (p.tp == 1)),
    ),
    Rule("ulysses does not divide cp", ("ulysses", "cp"), lambda m, p, gbs: p.cp % p.ulysses == 0),
    Rule(
        "replicas do not divide the ranks that hold the same weights",
        ("replicas", "dp", "cp"),
        lambda m, p, gbs: p.dp * p.cp % p.replicas == 0,
    ),
    Rule(
        "as many replicas as ranks leave nothing to shard: zero = 0 is that plan",
        ("replicas", "dp", "cp"),
        lambda m, p, gbs: not np.any(p.replicas > 1) or (p.replicas == 1) | (p.replicas < p.dp * p.cp),
        search_only=True,
    ),
    Rule(
        "replicas do not divide the ranks that hold the same experts",
        ("replicas", "dp", "cp", "ep"),
        _of_experts(
            lambda experts, p: (p.expert_holders % p.replicas == 0) | (p.replicas % p.expert_holders == 0)
        ),
    ),
    Rule(
        "tp_overlap has nothing to overlap",
        ("tp",),
        lambda m, p, gbs: (not p.tp_overlap) | (p.tp > 1),
        search_only=True,
    ),
    Rule(
        "ep_overlap has nothing to overlap",
        ("ep",),
        lambda m, p, gbs: (not p.ep_overlap) | (p.ep > 1),
        search_only=True,
    ),
    Rule(
        "the layout has another number of chunks than pp × vp",
        ("pp", "vp"),
        lambda m, p, gbs: (p.layout == "") | (p.pp * p.vp == len(chunks(p.layout))),
        search_only=True,
    ),
    Rule(
        "there are more model chunks than layers",
        ("pp", "vp", "layers"),
        lambda m, p, gbs: (p.layout != "") | (p.pp * p.vp <= m.most_chunks),
    ),
    Rule("dp does not divide the global batch", ("dp", "gbs"), lambda m, p, gbs: gbs % p.dp == 0),
    Rule(
        "mbs does not divide the batch of a replica",
        ("mbs", "dp", "gbs"),
        lambda m, p, gbs: gbs % (p.dp * p.mbs) == 0,
    ),
    *(
        Rule(needed.broken, ("pp", "vp", "mbs", "dp", "gbs"), _needs(name, needed))
        for name, schedule in SCHEDULES.items()
        for needed in schedule.requirements
    ),
    Rule(
        "the tokens of a micro-batch do not divide over the tensor ranks",
        ("mbs", "tp", "cp", "tp2", "seq"),
        _of_every_layer(
            lambda m, p, gbs: p.mbs * m.seq % (p.tp2 if p.tp_kind == "summa" else p.tp * p.cp) == 0
        ),
    ),
    Rule(
        "tp does not divide the head's width and the sequence, as SUMMA attention needs",
        ("tp", "hidden", "heads", "seq"),
        lambda m, p, gbs: p.attention != "summa" or (m.head_width % p.tp + m.seq % p.tp == 0),
    ),
    Rule(
        "panels do not divide the hidden width",
        ("panels", "hidden"),
        lambda m, p, gbs: m.hidden % p.panels == 0,
    ),
)


def rules(uneven: bool, framework_rules: tuple[Rule, ...] = ()) -> tuple[Rule, ...]:
    """Return the rules of a search in the order they are checked; with `uneven`, stages may differ."""
    return (*(rule for rule in RULES if not (uneven and rule.equal_stages)), *framework_rules)


def reasons() -> tuple[str, ...]:
    """Return the messages of broken rules, in the order rules are checked."""
    return tuple(dict.fromkeys(rule.broken for rule in rules(uneven=False)))


@lru_cache
def _placement_rules(domain: int) -> tuple[Rule, ...]:
    fast = tuple(f"fast_{axis}" for axis in AXES)

    def divides(axis: str) -> Condition:
        return lambda model, plan, gbs: getattr(plan, axis) % getattr(plan, f"fast_{axis}") == 0

    dividing = (
        Rule(f"fast_{axis} does not divide {axis}", (f"fast_{axis}", axis), divides(axis)) for axis in AXES
    )
    overfull = f"the placement puts more members into a fast domain than the {domain} it has"
    return *dividing, Rule(overfull, fast, lambda model, plan, gbs: plan.placed <= domain)


def broken_rules(model: Model, plan: Plans, gbs: int, domain: int) -> dict[Rule, Bools]:
    """Return the rules that a batch of plans breaks."""
    holds = {
        rule: rule.holds(model, plan, gbs)
        for rule in (*RULES, *_placement_rules(domain))
        if not rule.search_only
    }
    return {rule: ~np.asarray(mask) for rule, mask in holds.items() if mask is not True and not np.all(mask)}


def rule_problems(broken: Iterable[Rule], model: Model, plan: Plan, gbs: int) -> list[str]:
    """Return a line for each rule that a plan breaks, with the values that it depends on."""
    facts = {**vars(model), "groups": model.groups, **plan.columns().numbers(), "gbs": gbs}
    lines = []
    for rule in broken:
        values = ", ".join(f"{name} = {facts[name]:.0f}" for name in rule.about)
        lines.append(f"{rule.broken} ({values})" if values else rule.broken)
    return lines


def require_valid(model: Model, plan: Plan | Plans, gbs: int, domain: int) -> None:
    """Refuse plans that break a rule.

    Raises `InputError` naming every broken rule, with the values for a single plan and the number of rows for
    columns.
    """
    if isinstance(plan, Plan):
        problems = rule_problems(broken_rules(model, plan.columns(), gbs, domain), model, plan, gbs)
    else:
        problems = [
            f"{knob}: holds values that are no whole numbers of at least 1"
            for knob, column in plan.numbers().items()
            if not (np.all(np.asarray(column) >= 1) and np.all(np.mod(column, 1) == 0))
        ]
        if not problems:
            broken = broken_rules(model, plan, gbs, domain)
            problems = [
                f"{rule.broken} ({int(rows.sum())} of {rows.size} rows)" for rule, rows in broken.items()
            ]
    raise_problems("plan", problems)
