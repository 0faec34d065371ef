"""The plan of a row of measured runs: degrees, sharding, precision, overlap, recompute, layout, micro-batch.

Rows that state no micro-batch or recompute get what fits the machine's memory. A pipeline of the Megatron
family has micro-batches of one sequence; JAX does not accumulate gradients, and torchtitan splits the batch
of a replica into as many micro-batches as a pipeline has devices. Elsewhere people take the largest power of
two that needs no recompute; where recompute is needed, its cheapest kind that fits by the estimate of memory,
with a tolerance.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from math import inf, lcm
from typing import Any, Final

from traincast.accuracy.runs.cells import SOFTWARE, Cells, Unreadable, patterns
from traincast.core import PRECISIONS, InputError, Plan, System, choice_problems
from traincast.core import chunks as chunks_of
from traincast.launch import RECOMPUTED_BY_POLICY
from traincast.model import Experts, Model
from traincast.step import estimate

ZERO: Final = {"0": 0, "1": 1, "2": 2, "3": 3, "hsdp": 3} | {  # and strategies of Megatron-FSDP
    f"fsdp {sharded}": level
    for level, sharded in enumerate(("no_shard", "optim", "optim_grads", "optim_grads_params"))
}
TEXT_KNOBS: Final = ("cp_kind", "schedule", "offload", "grad_dtype", "optimizer_kind")  # as columns
DEGREES: Final = ("tp", "pp", "cp", "ep", "dp")  # of a plan, of which a row may state none
INTERLEAVED: Final = "interleaved"  # `vp` of a row that states virtual stages but not how many
REPEATED: Final = re.compile(r"\(([^()]*)\)\*(\d+)|([A-Za-z|])\*(\d+)")
LETTERS: Final = re.compile(r"[A-Za-z|()*\d]*[A-Za-z][A-Za-z|()*\d]*")  # a layout in letters
NODE: Final = 8  # accelerators of a usual node
MEMORY_SLACK: Final = 1.1  # tolerance over the memory of the accelerator, the accuracy of the estimate
MAX_MBS: Final = 1024  # [sequences]
OFFLOAD_EVERY: Final = (8, 4, 2, 1)  # layers of which one is offloaded: recipes offload 5 of 80 to 92 of 126
MAX_LAYOUT_LENGTH: Final = 100_000  # characters of a layout in letters, written out


def degrees(cells: Cells, layers: int) -> dict[str, int]:
    """Return the parallel degrees of a row; a missing one that follows from the others is filled in."""
    problems_before = len(cells.problems)
    gpus = _gpus(cells)
    gpus_are_known = len(cells.problems) == problems_before
    pp, cp, ep = (cells.positive(name, 1) for name in ("pp", "cp", "ep"))
    tp = cells.positive("tp", 0)
    if not tp:  # it follows from the other degrees
        split_without_tp = cells.whole("dp", 1) * pp * cp if cells.text("dp") else 0
        if gpus == 1 or (split_without_tp and gpus % split_without_tp == 0):
            tp = max(gpus // max(split_without_tp, 1), 1)
        else:
            cells.problem("tp is not known")
            tp = 1
    split = tp * pp * cp
    known = {"tp": tp, "cp": cp, "ep": ep, "pp": pp}
    if gpus % split or not gpus:
        if gpus_are_known:
            cells.problem(f"tp × pp × cp = {split} does not divide {gpus} GPUs")
        return known | {"vp": 1, "dp": 1}
    dp = cells.whole("dp", gpus // split)
    if dp * split != gpus:
        cells.problem(f"dp × tp × pp × cp = {dp * split}, not the {gpus} GPUs")
    return known | {"vp": _virtual_stages(cells, layers, pp), "dp": dp}


def _gpus(cells: Cells) -> int:
    """Return the GPUs of a row, noted as assumed where it states none but memory, which alone is then judged.

    Those are one node where the ranks that it states divide one. A rank that shards nothing over replicas
    needs the same memory on any number; of one that does, more nodes than one are not guessed.
    """
    if cells.text("gpus") or not cells.text("memory_gb_published"):
        return cells.positive("gpus")
    dense = cells.positive("tp", 1) * cells.positive("cp", 1) * cells.positive("dp", 1)
    experts = cells.positive("ep", 1) * cells.positive("etp", 1)
    needed = cells.positive("pp", 1) * lcm(dense, experts)
    node = cells.positive("gpus_per_node", NODE)
    is_whole = ZERO.get(cells.text("zero").lower(), 1) == 0
    if node % needed and not is_whole:
        cells.problem("gpus is not known, over which the optimizer is sharded")
        return needed
    cells.assume("gpus")
    gpus = needed if node % needed else node
    cells.row["gpus"] = str(gpus)
    return gpus


def _virtual_stages(cells: Cells, layers: int, pp: int) -> int:
    """Return the virtual stages; without a number, of dense models the most that divide a stage's layers.

    Interleaving costs them little: tuned recipes that state it have few layers in a chunk.
    """
    stated = cells.text("vp").lower()
    of_chunk = cells.stated_number("layers_of_chunk")
    is_number = stated and stated != INTERLEAVED and not of_chunk
    number = cells.positive("vp") if is_number else 1
    if pp == 1 or is_number:
        return 1 if pp == 1 else number
    if of_chunk:
        return max(layers // (pp * of_chunk), 1)
    if chunks := _chunks_of_layout(cells):
        return max(chunks // pp, 1)
    dense = not cells.text("experts")
    if stated != INTERLEAVED and not (dense and cells.states("tuned")):
        return 1
    cells.assume("vp")
    if cells.states("torchtitan"):
        return 2
    even = [v for v in range(2, layers // pp + 1) if layers % (pp * v) == 0]
    return (max if dense else min)(even, default=1)


def _chunks_of_layout(cells: Cells) -> int:
    """Return the model chunks of the layout that a row gives; 0 without, or where it is not valid."""
    stated = stated_layout(cells)
    try:
        return len(chunks_of(stated)) if stated else 0
    except ValueError:
        return 0


def plan(cells: Cells, model: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the row's `Plan`, valid only if no problem was noted.

    `recompute` and `mbs` are missing where the row does not state them; `model` are the arguments of its
    model.
    """
    cut = degrees(cells, model["layers"])
    experts: Experts | None = model.get("experts")
    moe = experts is not None
    # experts are sharded over tp, Megatron-Core's default, which runs with narrow experts turn off
    etp = cells.positive("etp", 0) if moe else 1
    if not etp:
        wide = experts is not None and experts.ffn > model["hidden"] and cut["ep"] <= cut["cp"] * cut["dp"]
        etp = cut["tp"] if wide else 1
    tp = cut["tp"]
    pp = cut["pp"]
    sp = tp == 1 or moe or cells.choose("sp")
    tp_overlap = cells.choose("tp_overlap")
    if tp_overlap is None:
        tp_overlap = sp and not moe and cells.states("tuned")
    arguments: dict[str, object] = {
        **cut,
        "etp": etp,
        "cp_kind": "none" if cut["cp"] == 1 else cells.text("cp_kind").lower() or "ring",
        "sp": sp,
        "attention": cells.choose("attention"),
        "precision": precision_of(cells),
        "layout": layout(cells, model["layers"], pp * cut["vp"]),
        **_sharding(cells, cut),
        "ep_overlap": cut["ep"] > 1 and bool(cells.choose("ep_overlap")),
        "tp_overlap": tp > 1 and bool(tp_overlap),
    }
    for knob in ("grad_dtype", "optimizer_kind"):
        if chosen := cells.choose(knob):
            arguments[knob] = chosen
    if cells.text("offload_every"):
        arguments["offload_every"] = cells.positive("offload_every")
    arguments |= recompute_choice(cells) or {}
    if cells.text("mbs") and not (cells.states("no_accumulation") and pp == 1):
        arguments["mbs"] = cells.positive("mbs")
    knobs = [knob for knob in TEXT_KNOBS if cells.text(knob) and not (knob == "cp_kind" and cut["cp"] == 1)]
    arguments |= {knob: cells.text(knob).lower() for knob in knobs}
    ranks = {"tp_overlap": tp, "ep_overlap": cut["ep"]}
    return arguments | {
        knob: bool(cells.truth(knob)) and n > 1 for knob, n in ranks.items() if cells.text(knob)
    }


def precision_of(cells: Cells) -> str:
    """Return the precision of a row by its name in `PRECISIONS`; bf16 where it is none, which is noted."""
    stated = cells.text("precision").lower()
    recipe = cells.choose("precision") or (stated if stated in PRECISIONS else None)
    if recipe is None:
        known = f"= {stated!r}: must be one of {', '.join(PRECISIONS)}"
        cells.problem(f"precision {known if stated else 'not known'}")
    return recipe or "bf16"


def _sharding(cells: Cells, cut: dict[str, int]) -> dict[str, object]:
    stated = cells.text("zero").lower()
    if stated and stated not in ZERO:
        cells.problem(f"zero = {stated!r}: must be one of {', '.join(ZERO)}")
    if not stated:
        cells.assume("zero")
    zero = ZERO.get(stated, 1)
    # gradients are kept whole until a step's last micro-batch
    if zero > 1 and cut["pp"] > 1 and (zero == ZERO["2"] or cells.states("gathers_once")):
        zero = 1
    ranks = cut["dp"] * cut["cp"]
    replicas = _replicas(cells, stated, ranks, cut["tp"]) if zero else 1
    return {"zero": zero, "replicas": replicas if replicas and ranks % replicas == 0 else 1}


def _replicas(cells: Cells, zero: str, ranks: int, tp: int) -> int:
    """Return the replicas of the shards among the ranks that share weights; HSDP shards within a node."""
    if cells.text("replicas"):
        return cells.positive("replicas")
    return ranks * tp // cells.positive("gpus_per_node", NODE) if zero == "hsdp" else 1


def recompute_choice(cells: Cells) -> dict[str, Any] | None:
    """Return `recompute`, with `recompute_every` for a share of the layers; None where not stated.

    The kind is none, selective, full or modules as a plan or Megatron-Core names them; or the policy of
    rematerialisation by its name (`remat`).
    """
    kind = cells.text("recompute").lower()
    remat = cells.text("remat").lower()
    if kind in ("", "custom"):
        policy = policies().get(remat)
        return policy and dict(policy)
    if kind == "selective" and cells.states("torchtitan"):
        return {"recompute": "per-op"}  # its default `selective_ac_option`
    if not choice_problems("recompute", kind):
        return {"recompute": kind} | _share(cells)
    names = patterns()["recompute_modules"]
    modules = {names.get(name, name) for name in re.split(r"[+, ]+", kind)}
    if not choice_problems("recompute", "+".join(sorted(modules))):
        return {"recompute": "+".join(sorted(modules))}
    known = ", ".join(("none, selective, full", *names))
    cells.problem(f"recompute = {cells.text('recompute')!r}: no kind that is known ({known})")
    return {"recompute": "none"}


@cache
def policies() -> Mapping[str, dict[str, object] | None]:
    """Return what each policy of rematerialisation recomputes, by name; None where the name does not say."""
    known: dict[str, dict[str, object] | None] = {
        name: {"recompute": kind} for name, kind in RECOMPUTED_BY_POLICY.items()
    }
    return known | dict(patterns()["remat_policies"])


def _share(cells: Cells) -> dict[str, int]:
    """Return `recompute_every` where a row states it."""
    return {"recompute_every": cells.positive("recompute_every")} if cells.text("recompute_every") else {}


def stated_layout(cells: Cells) -> str:
    """Return the layout that a row gives, one in letters written out in numbers; empty without."""
    stated = cells.text("layout")
    return written_out(stated) if LETTERS.fullmatch(stated) else stated


def layout(cells: Cells, layers: int, chunks: int) -> str:
    """Return the layers of every model chunk for `Plan.layout`; empty for the estimator's balance.

    The layout that a row gives; else an even one where layers divide, the head in addition on the last; else
    embedding and head count as a layer each where that divides; else as the framework splits uneven layers.
    """
    if stated := stated_layout(cells):
        return stated
    if chunks <= 1 or cells.states("balances_stages"):
        return ""
    if layers % chunks == 0:
        return f"{layers // chunks}*{chunks}"
    if (layers + 2) % chunks == 0:
        each = (layers + 2) // chunks
        middle = f"{each}*{chunks - 2}," if chunks > 2 else ""
        return f"{each - 1},{middle}{each - 1}"
    if cells.states("extra_layers_in_the_middle") and layers > chunks:
        return _extra_in_the_middle(layers, chunks)
    return ""


def written_out(letters: str) -> str:
    """Return a layout in letters as one in numbers: a layer is t, chunks are separated by |, * repeats.

    >>> written_out("Et*4|(t*4|)*14tmL")
    '4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,1'
    """
    while (match := REPEATED.search(letters)) and len(letters) < MAX_LAYOUT_LENGTH:
        group, times, letter, copies = match.groups()
        expanded = (letter or group) * min(int(copies or times), MAX_LAYOUT_LENGTH)
        letters = letters[: match.start()] + expanded + letters[match.end() :]
    return ",".join(str(chunk.count("t")) for chunk in letters.split("|"))


def _extra_in_the_middle(layers: int, chunks: int) -> str:
    """Return chunks whose extra layers are in the middle, as torchtitan splits."""
    even, extra = divmod(layers, chunks)
    lengths = [even + (0 < i <= extra and i < chunks - 1) for i in range(chunks)]
    lengths[-1] = layers - sum(lengths[:-1])
    return ",".join(map(str, lengths))


def fill_plan(cells: Cells, arguments: dict[str, Any], model: Model, system: System, gbs: int) -> Plan:
    """Return the plan, with `mbs` and `recompute` filled in (and noted); raise `Unreadable` if none fits."""
    if cells.states("no_accumulation") and arguments["pp"] == 1:
        # a row may state the batch per chip, which tp chips share
        arguments["mbs"] = max(gbs // arguments["dp"], 1)
    for name in ("mbs", "recompute"):
        if name not in arguments:
            cells.assume(name)
    sizes = [arguments["mbs"]] if "mbs" in arguments else list(_micro_batches(cells, arguments, gbs))
    kinds = [{"recompute": arguments["recompute"]}] if "recompute" in arguments else None
    kinds = kinds or list(_recompute_kinds(cells, model, pipelined=arguments["pp"] > 1))
    # no recompute with large micro-batches first, then more recompute with the smallest
    choices = [(kinds[0], size) for size in sizes] + [(kind, sizes[-1]) for kind in kinds[1:]]
    capacity = system.accelerator.visible_bytes
    for kind, mbs in choices:
        # only full recompute may skip layers
        every = {} if kind["recompute"] == "full" else {"recompute_every": 1}
        plan = Plan(**arguments | {"mbs": mbs} | kind | every)
        needed = _memory(plan, model, system, gbs, cells.text(SOFTWARE)) if len(choices) > 1 else 0.0
        if needed <= MEMORY_SLACK * capacity:
            return plan
    if len(kinds) > 1 and cells.states("recomputes_modules") and needed < inf:
        memory = f"{needed / 2**30:.0f} of {capacity / 2**30:.0f} GiB"
        raise Unreadable(f"needs {memory}, with all that its software recomputes or offloads")
    return plan


def fits_with_slack(plan: Plan, model: Model, system: System, gbs: int, stack: str) -> bool:
    """Return whether a plan fits the accelerator's memory by the estimate, within its accuracy."""
    return _memory(plan, model, system, gbs, stack) <= MEMORY_SLACK * float(system.accelerator.visible_bytes)


def _micro_batches(cells: Cells, arguments: dict[str, Any], gbs: int) -> Iterator[int]:
    share = max(gbs // arguments["dp"], 1)
    accumulated = cells.positive("accumulation", 0)
    if cells.states("no_accumulation"):
        yield share
    elif accumulated and share % accumulated == 0:
        yield share // accumulated
    elif arguments["pp"] > 1:
        micro_batches = arguments["pp"] if cells.states("a_microbatch_per_stage") else share
        yield max(share // micro_batches, 1)
    else:
        power = 1 << (min(share, MAX_MBS).bit_length() - 1)
        while power:
            if share % power == 0:
                yield power
            power >>= 1


def _recompute_kinds(cells: Cells, model: Model, pipelined: bool) -> Iterator[dict[str, Any]]:
    """Yield what a row without a statement may recompute, the cheapest first.

    JAX's policies name the outputs that are saved. Recipes of frameworks that recompute modules never
    recompute whole layers. Without a pipeline, with which Megatron-Core refuses it, they offload the
    activations of as few layers as fit.
    """
    if cells.states("names_policies"):  # outputs that are saved: of all products, of projections, none
        kinds = ("none", "activation+attention+norms", "attention+mlp+norms", "full")
        yield from ({"recompute": kind} for kind in kinds)
        return
    modules = ["none", "selective"]
    if model.experts is not None:
        modules.append("activation+norms")
    if model.latent is not None:
        modules.append("activation+mla_up_proj+norms")
    yield from ({"recompute": kind} for kind in modules)
    if not cells.states("recomputes_modules"):
        yield {"recompute": "full"}
    elif not pipelined:
        offloaded = {"recompute": "none", "offload": "activations"}
        yield from (offloaded | {"offload_every": every} for every in OFFLOAD_EVERY)


@lru_cache(maxsize=1024)  # tables are read again and again, in part: with facts blank, or of another release
def _memory(plan: Plan, model: Model, system: System, gbs: int, stack: str) -> float:
    """Return the memory of a plan, infinite where it breaks a rule [byte]."""
    try:  # some runs joined several machines
        est = estimate(model, replace(system, gpus=None), plan, gbs=gbs, assumptions=stack)
    except InputError:
        return inf
    return float(est.memory_bytes)
