"""What a launch decides, in traincast's own words: one flat mapping of facts about model, plan and batch, and back.

A fact has one value for everything that means the same: a knob without effect (sequence parallelism on one rank) is left out,
heads of keys and values are told even where they are as many as those of queries. Two launches are the same if their facts are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, TypeAlias

from traincast.core.errors import InputError
from traincast.core.model import Model
from traincast.core.model_blocks import Experts, Latent, Local
from traincast.core.plan import AXES, Plan
from traincast.core.plan_choices import chunks, words
from traincast.core.system import System
from traincast.step.pipeline_stages import end_layers, split
from traincast.step.placement import placements

Facts: TypeAlias = dict[str, Any]

MEANINGS: Final[Mapping[str, str]] = {  # facts that are no knob, choice or field of a model
    "gpus": "accelerators of the job",
    "gbs": "global batch of one optimizer step [sequences]",
    "chunks": "layers of every model chunk, in order",
    "placement": "members of each group in one fast domain",
    "moe_layers": "layers that have experts, counted from 1",
    "local_layers": "layers with local attention, counted from 1",
}
PARTS: Final[Mapping[str, type]] = {"latent": Latent, "local": Local, "experts": Experts}
PATTERNS: Final = ("first_dense", "every", "global_every", "layers")  # of parts; told layer by layer instead
LEFT_OUT: Final = ("name", "left_out", "sources", "global_batch", "training_sequences", *PARTS)  # of a model
PLACED: Final = tuple(f"fast_{axis}" for axis in AXES)


def facts(model: Model, plan: Plan, gbs: int, system: System | None = None) -> Facts:
    """All facts of a launch.

    Parameters
    ----------
    model, plan : Model, Plan
        What is trained, and how.
    gbs : int
        Global batch [sequences].
    system : System, optional
        The machine; with it the placement is told where it is not that of ranks numbered in the plan's order.
    """
    told = model_facts(model) | plan_facts(plan, model) | {"gbs": gbs, "gpus": plan.gpus}
    if system is not None and not _in_order(plan, system):
        told["placement"] = "·".join(str(getattr(plan, name)) for name in PLACED)
    return told


def model_facts(model: Model) -> Facts:
    """Facts of a model."""
    told: Facts = {one.name: getattr(model, one.name) for one in fields(Model) if one.name not in LEFT_OUT}
    told["biases"] = tuple(sorted(model.biases))
    if model.latent is None:
        told |= {"kv_heads": model.groups, "head_dim": model.head_width}
    if not model.dropout:
        del told["inner_dropout"]
    if model.positions == "learned":
        told["max_positions"] = model.max_positions or model.seq
    else:
        del told["max_positions"]
    for part, kind in PARTS.items():
        one = getattr(model, part)
        if one is not None:
            told |= {f"{part}.{name.name}": getattr(one, name.name) for name in fields(kind) if name.name not in PATTERNS}
    if model.experts is not None:
        told["moe_layers"] = tuple(i for i, kind in enumerate(model.pattern, 1) if kind.moe)
    if model.local is not None:
        told["local_layers"] = tuple(i for i, kind in enumerate(model.pattern, 1) if kind.local)
    return {name: value for name, value in told.items() if value is not None}


def plan_facts(plan: Plan, model: Model) -> Facts:
    """Facts of a plan for a model, its placement left out."""
    told: Facts = {one.name: getattr(plan, one.name) for one in fields(Plan) if one.name not in (*PLACED, "layout")}
    told["recompute"] = modules(plan.recompute)
    without = {
        "sp": plan.tp == 1,
        "tp_overlap": plan.tp == 1,
        "cp_kind": plan.cp == 1,
        "ulysses": plan.cp == 1 or plan.cp_kind != "hybrid",
        "zero": plan.dp * plan.cp == 1,
        "replicas": plan.dp * plan.cp == 1,
        "ep": model.experts is None,
        "etp": model.experts is None,
        "ep_overlap": plan.ep == 1,
        "schedule": plan.pp == 1,
        "order": plan.pp == 1 or plan.dp == 1,
        "recompute_every": plan.recompute != "full",
    }
    if plan.pp > 1:
        told["chunks"] = layers_of_chunks(model, plan)
    return {name: value for name, value in told.items() if not without.get(name, False)}


def modules(recompute: str) -> str:
    """What is recomputed, each way to say it in one form: words in alphabetical order, ``selective`` as ``attention``."""
    chosen = {"attention" if word == "selective" else word for word in words(recompute)}
    return "+".join(sorted(chosen)) or "none"


def layers_of_chunks(model: Model, plan: Plan) -> tuple[int, ...]:
    """Layers of every model chunk of a plan, in order."""
    return chunks(plan.layout) if plan.layout else split(model.layers, plan.pp * plan.vp, end_layers(model))


def _in_order(plan: Plan, system: System) -> bool:
    """Whether the groups are where they are when ranks are numbered in the plan's order."""
    if not plan.placed or system.columns():
        return True
    unplaced: dict[str, Any] = dict.fromkeys(PLACED)
    ordered = placements(replace(plan, **unplaced), system.domain(plan.gpus), ordered=True)
    return ordered is not None and all(float(getattr(ordered, name).flat[0]) == getattr(plan, name) for name in _axes(plan))


def _axes(plan: Plan) -> tuple[str, ...]:
    """Parts of a placement that say something."""
    return tuple(f"fast_{axis}" for axis in AXES if getattr(plan, axis) > 1)


def as_model(told: Mapping[str, Any], name: str) -> Model:
    """The model of facts.

    Raises
    ------
    InputError
        If facts are missing or cannot stand together, or experts or local attention are on layers that no rule gives.
    """
    needed = [one for one in ("layers", "hidden", "heads", "ffn", "seq") if told.get(one) is None]
    if needed:
        raise InputError(name, [f"{one}: missing" for one in needed])
    given = {one.name: told[one.name] for one in fields(Model) if one.name in told}
    for part, kind in PARTS.items():
        own = {key.partition(".")[2]: value for key, value in told.items() if key.startswith(f"{part}.")}
        own |= _pattern(part, told)
        try:
            given |= {part: kind(**own)} if own else {}
        except TypeError as error:  # a width that is needed is missing
            raise InputError(name, [f"{part}: {str(error).partition(') ')[2] or error}"]) from None
    return Model(name=name, **given)


def _pattern(part: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """Which layers a part of the model is on, as its fields say it."""
    if part == "local" and "local_layers" in told:
        return {"layers": tuple(told["local_layers"])} if len(told["local_layers"]) < told["layers"] else {}
    if part == "experts" and "moe_layers" in told:
        return dict(zip(("first_dense", "every"), every(tuple(told["moe_layers"]), told["layers"]), strict=True))
    return {}


def every(layers: Sequence[int], of: int) -> tuple[int, int]:
    """Dense layers before, and the step between layers that have experts.

    Raises
    ------
    InputError
        If they are not every n-th after some dense ones.

    Examples
    --------
    >>> every((4, 5, 6), 6), every((2, 4, 6), 6)
    ((3, 1), (0, 2))
    """
    step = layers[1] - layers[0] if len(layers) > 1 else 1
    first = layers[0] - step if layers else of
    if first < 0 or tuple(range(first + step, of + 1, step)) != tuple(layers):
        raise InputError("layers with experts", [f"{_shown(layers)}: neither all after some dense layers, nor every n-th of them"])
    return first, step


def _shown(layers: Sequence[int]) -> str:
    """Layers for a message."""
    return ", ".join(map(str, layers[:8])) + (", …" if len(layers) > 8 else "")


def as_plan(told: Mapping[str, Any], model: Model) -> Plan:
    """The plan of facts; its placement is left to be chosen.

    Raises
    ------
    InputError
        If knobs or choices cannot be.
    """
    given = {one.name: told[one.name] for one in fields(Plan) if one.name in told}
    if given.get("cp", 1) == 1:
        given = {name: value for name, value in given.items() if name not in ("cp_kind", "ulysses")}
    if given.get("pp", 1) == 1:
        given.pop("schedule", None)
    plan = Plan(**given)
    cut = tuple(told.get("chunks", ()))
    if cut and cut != layers_of_chunks(model, plan):
        return replace(plan, layout=",".join(map(str, cut)))
    return plan
