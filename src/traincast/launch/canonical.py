"""Facts of a launch: one flat mapping of model, plan and batch in traincast's own terms, and back.

Settings that mean the same give the same facts: a knob without effect (sequence parallelism on one rank) is left out, and the
number of key and value heads is present even where it equals that of query heads. Two launches are the same if their facts are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, TypeAlias

from traincast.core.errors import InputError
from traincast.core.knobs import chunks, words
from traincast.core.model import Model
from traincast.core.model_blocks import Experts, Latent, Local
from traincast.core.plan import AXES, Plan
from traincast.core.system import System
from traincast.step.pipeline_stages import end_layers, split
from traincast.step.placement import placements

Facts: TypeAlias = dict[str, Any]

MEANINGS: Final[
    Mapping[str, str]
] = {  # facts that are not a knob or choice of a plan, nor a field of a model
    "gpus": "accelerators of the job",
    "gbs": "global batch of one optimizer step [sequences]",
    "chunks": "layers of every model chunk, in order",
    "placement": "members of each group in one fast domain",
    "moe_layers": "layers that have experts, counted from 1",
    "local_layers": "layers with local attention, counted from 1",
}
MODEL_PARTS: Final[Mapping[str, type]] = {"latent": Latent, "local": Local, "experts": Experts}
PATTERN_FIELDS: Final = (
    "first_dense",
    "every",
    "global_every",
    "layers",
)  # fields of parts; given layer by layer instead
OMITTED_MODEL_FIELDS: Final = (
    "name",
    "left_out",
    "sources",
    "global_batch",
    "training_sequences",
    *MODEL_PARTS,
)  # of a model
PLACEMENT_KNOBS: Final = tuple(f"fast_{axis}" for axis in AXES)


def launch_facts(model: Model, plan: Plan, gbs: int, system: System | None = None) -> Facts:
    """Return all facts of a launch.

    Parameters
    ----------
    model, plan : Model, Plan
        What is trained, and how.
    gbs : int
        Global batch [sequences].
    system : System, optional
        The machine; with it the placement is included where it differs from that of ranks numbered in the plan's order.
    """
    facts = model_facts(model) | plan_facts(plan, model) | {"gbs": gbs, "gpus": plan.gpus}
    if system is not None and not _in_rank_order(plan, system):
        facts["placement"] = "·".join(str(getattr(plan, name)) for name in PLACEMENT_KNOBS)
    return facts


def model_facts(model: Model) -> Facts:
    """Return the facts of a model."""
    facts: Facts = {
        model_field.name: getattr(model, model_field.name)
        for model_field in fields(Model)
        if model_field.name not in OMITTED_MODEL_FIELDS
    }
    facts["biases"] = tuple(sorted(model.biases))
    if model.latent is None:
        facts |= {"kv_heads": model.groups, "head_dim": model.head_width}
    if not model.dropout:
        del facts["inner_dropout"]
    if model.positions == "learned":
        facts["max_positions"] = model.max_positions or model.seq
    else:
        del facts["max_positions"]
    for part, kind in MODEL_PARTS.items():
        block = getattr(model, part)
        if block is not None:
            facts |= {
                f"{part}.{block_field.name}": getattr(block, block_field.name)
                for block_field in fields(kind)
                if block_field.name not in PATTERN_FIELDS
            }
    if model.experts is not None:
        facts["moe_layers"] = tuple(i for i, kind in enumerate(model.pattern, 1) if kind.moe)
    if model.local is not None:
        facts["local_layers"] = tuple(i for i, kind in enumerate(model.pattern, 1) if kind.local)
    return {name: value for name, value in facts.items() if value is not None}


def plan_facts(plan: Plan, model: Model) -> Facts:
    """Return the facts of a plan for a model, except its placement."""
    facts: Facts = {
        knob.name: getattr(plan, knob.name)
        for knob in fields(Plan)
        if knob.name not in (*PLACEMENT_KNOBS, "layout")
    }
    facts["recompute"] = normalized_recompute(plan.recompute)
    ineffective = {
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
        facts["chunks"] = chunk_layers(model, plan)
    return {name: value for name, value in facts.items() if not ineffective.get(name, False)}


def normalized_recompute(recompute: str) -> str:
    """Return a recomputation in its normal form: modules in alphabetical order, ``selective`` as ``attention``."""
    chosen = {"attention" if word == "selective" else word for word in words(recompute)}
    return "+".join(sorted(chosen)) or "none"


def chunk_layers(model: Model, plan: Plan) -> tuple[int, ...]:
    """Return the number of layers of every model chunk of a plan, in order."""
    return chunks(plan.layout) if plan.layout else split(model.layers, plan.pp * plan.vp, end_layers(model))


def _in_rank_order(plan: Plan, system: System) -> bool:
    """Return whether the placement is that of ranks numbered in the plan's order."""
    if not plan.placed or system.columns():
        return True
    unplaced: dict[str, Any] = dict.fromkeys(PLACEMENT_KNOBS)
    ordered = placements(replace(plan, **unplaced), system.domain(plan.gpus), ordered=True)
    return ordered is not None and all(
        float(getattr(ordered, name).flat[0]) == getattr(plan, name) for name in _placed_knobs(plan)
    )


def _placed_knobs(plan: Plan) -> tuple[str, ...]:
    """Return the placement knobs of groups larger than one rank."""
    return tuple(f"fast_{axis}" for axis in AXES if getattr(plan, axis) > 1)


def model_from_facts(facts: Mapping[str, Any], name: str) -> Model:
    """Build the model of facts.

    Raises
    ------
    InputError
        If facts are missing or contradict each other, or the layers with experts follow no supported pattern.
    """
    absent = [key for key in ("layers", "hidden", "heads", "ffn", "seq") if facts.get(key) is None]
    if absent:
        raise InputError(name, [f"{key}: missing" for key in absent])
    arguments = {
        model_field.name: facts[model_field.name]
        for model_field in fields(Model)
        if model_field.name in facts
    }
    for part, kind in MODEL_PARTS.items():
        block_arguments = {
            key.partition(".")[2]: value for key, value in facts.items() if key.startswith(f"{part}.")
        }
        block_arguments |= _pattern_fields(part, facts)
        try:
            arguments |= {part: kind(**block_arguments)} if block_arguments else {}
        except TypeError as error:  # a required width is missing
            raise InputError(name, [f"{part}: {str(error).partition(') ')[2] or error}"]) from None
    return Model(name=name, **arguments)


def _pattern_fields(part: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a part that select its layers."""
    if part == "local" and "local_layers" in facts:
        return (
            {"layers": tuple(facts["local_layers"])} if len(facts["local_layers"]) < facts["layers"] else {}
        )
    if part == "experts" and "moe_layers" in facts:
        return dict(
            zip(
                ("first_dense", "every"),
                dense_layers_and_step(tuple(facts["moe_layers"]), facts["layers"]),
                strict=True,
            )
        )
    return {}


def dense_layers_and_step(layers: Sequence[int], total: int) -> tuple[int, int]:
    """Return the number of dense layers before the first, and the step between, layers that have experts.

    Raises
    ------
    InputError
        If they are not every n-th layer after the leading dense ones.

    Examples
    --------
    >>> dense_layers_and_step((4, 5, 6), 6), dense_layers_and_step((2, 4, 6), 6)
    ((3, 1), (0, 2))
    """
    step = layers[1] - layers[0] if len(layers) > 1 else 1
    first = layers[0] - step if layers else total
    if first < 0 or tuple(range(first + step, total + 1, step)) != tuple(layers):
        raise InputError(
            "layers with experts",
            [
                f"{_abbreviated(layers)}: must be all layers after the leading dense ones, or every n-th of these"
            ],
        )
    return first, step


def _abbreviated(layers: Sequence[int]) -> str:
    """Return the first layers as text for a message."""
    return ", ".join(map(str, layers[:8])) + (", …" if len(layers) > 8 else "")


def plan_from_facts(facts: Mapping[str, Any], model: Model) -> Plan:
    """Build the plan of facts; its placement is chosen later.

    Raises
    ------
    InputError
        If knobs or choices are invalid.
    """
    arguments = {knob.name: facts[knob.name] for knob in fields(Plan) if knob.name in facts}
    if arguments.get("cp", 1) == 1:
        arguments = {name: value for name, value in arguments.items() if name not in ("cp_kind", "ulysses")}
    if arguments.get("pp", 1) == 1:
        arguments.pop("schedule", None)
    plan = Plan(**arguments)
    layers = tuple(facts.get("chunks", ()))
    if layers and layers != chunk_layers(model, plan):
        return replace(plan, layout=",".join(map(str, layers)))
    return plan
