"""Facts of a launch: one flat mapping of model, plan and batch in traincast's own terms, and back.

Settings that mean the same give the same facts: a knob without effect (sequence parallelism on one rank) is
left out, and the number of key and value heads is present even where it equals that of query heads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from math import isqrt
from typing import Any, Final

from traincast.core import (
    AXES,
    OPTIMIZERS,
    InputError,
    Plan,
    System,
    chunks,
    make_record,
    replace_fields,
    split_choice,
)
from traincast.launch.settings.facts import Facts, as_facts
from traincast.model import ADAPTER_TARGETS, MODEL_PARTS, SELECTS_LAYERS, ExpertAdapters, Model, expert_rule
from traincast.step import end_layers, placements, split_layers

FILLED: Final = "filled"
DIVIDED: Final = "divided"
LEFT_OVER: Final = "left_over"
# What is assumed of documents whose lengths are not known, by whether sequences are packed; None: of actors.
FULL_LENGTH: Final = {
    None: "prompts and answers are as long as they may get",
    True: "every sequence is one document of full length, as none of their lengths is known",
    False: "every sequence has the full length: shorter documents, padded to the longest, take less",
}
# Tokens of a paragraph of SQuAD 1.1 with question and answer, some 150 words (arXiv 1606.05250); assumed.
SQUAD_TOKENS: Final = 200
OF_SQUAD: Final = (
    f"packed documents have {SQUAD_TOKENS} tokens, about SQuAD's: `lengths` takes those of yours"
)
ASSUMED_LENGTHS: Final = (*FULL_LENGTH.values(), OF_SQUAD)  # what given lengths take the place of
# Of parts; given layer by layer instead.
PATTERN_FIELDS: Final = ("first_dense", "every", "global_every", "layers")
# Parts that few models have and no framework with a launch format: stated only where a model has them.
_RARE: Final = """
    parallel embedding_norm token_types head_bias reference head_transform layer_kinds value_dim head
    gate_per_head channel_mix streams keys_are_values reuses_keys shapes beside beside_layers shared_layers
    inner_norms small_weights mtp_kinds own_width final_norm transform_bias small_end_weights
"""
RARE_MODEL_FIELDS: Final = {
    field.name: field.default for field in fields(Model) if field.name in _RARE.split()
}
OMITTED_MODEL_FIELDS: Final = (
    *("name", "transformers_type", "left_out", "sources", "taken", "global_batch", "training_sequences"),
    "supervised",  # a step is the same
    *MODEL_PARTS,
)
# Facts of parts that few models have, with what the others have: stated only where a model differs.
RARE_PART_FACTS: Final[Facts] = {"latent.shared": False, "latent.proj_groups": 1, "encoder.small_weights": 0}
GOVERNED: Final = {  # fact -> the one without some value of which it is none
    "recompute_every": "recompute",
    "offload_every": "offload",
    "ulysses": "cp_kind",
    LEFT_OVER: "zero",
    DIVIDED: "gbs",
}
PLACEMENT_KNOBS: Final = tuple(f"fast_{axis}" for axis in AXES)


def launch_facts(
    model: Model, plan: Plan, gbs: int, system: System | None = None, *, keeps_stage: bool = False
) -> Facts:
    """Return all facts of a launch; with a machine also a placement that is not in rank order.

    ZeRO-1 of weights without replicas is no other plan than ZeRO-0, unless its facts keep the stage.
    """
    facts = model_facts(model) | plan_facts(plan, model, keeps_stage) | {"gbs": gbs, "gpus": plan.gpus}
    if system is not None and not _in_rank_order(plan, system):
        facts["placement"] = "·".join(str(getattr(plan, name)) for name in PLACEMENT_KNOBS)
    return facts


def device(system: System) -> str:
    """Return what a process of a job computes on: cpu or gpu."""
    return "cpu" if system.is_cpu else "gpu"


def groups_products(system: System) -> bool:
    """Return whether one kernel multiplies for all experts: that needs Ampere, as FlashAttention-2 does."""
    return system.accelerator.attention_fa1 is None or system.accelerator.attention_fa2 is not None


def is_alone(facts: Facts) -> bool:
    """Return whether no weight of a launch has replicas: then its stage of ZeRO is 0, whatever was chosen."""
    return "gpus" in facts and "dp_overlap" not in facts and not facts["zero"]


def with_effect(facts: Facts) -> Facts:
    """Return the facts of a launch without the stage of ZeRO where it has no effect."""
    return as_facts({name: value for name, value in facts.items() if name != "zero" or not is_alone(facts)})


def model_facts(model: Model) -> Facts:
    """Return the facts of a model."""
    facts = _values(model, OMITTED_MODEL_FIELDS)
    facts = {name: value for name, value in facts.items() if RARE_MODEL_FIELDS.get(name, ...) != value}
    facts["biases"] = tuple(sorted(model.biases))
    if model.latent is None:
        facts |= {"kv_heads": model.groups, "head_dim": model.head_width}
    if not model.dropout:
        del facts["inner_dropout"]
    if model.positions == "learned":
        facts["max_positions"] = model.max_positions or model.seq
    else:
        del facts["max_positions"]
    for part in MODEL_PARTS:
        block = getattr(model, part)
        if block is not None:
            omitted = PATTERN_FIELDS if part in SELECTS_LAYERS else ()
            facts |= {f"{part}.{name}": value for name, value in _values(block, omitted).items()}
    facts = {name: value for name, value in facts.items() if RARE_PART_FACTS.get(name, ...) != value}
    facts.pop("experts.routing", None)  # what a router does with its data is no setting
    if model.experts is not None:
        facts["moe_layers"] = tuple(i for i, kind in enumerate(model.pattern, 1) if kind.moe)
    if model.local is not None:
        facts["local_layers"] = tuple(i for i, kind in enumerate(model.pattern, 1) if kind.local)
    if model.tower is not None:
        facts["tower"] = model.tower.title
    if model.adapters is not None:  # targets in one order, groups as what they stand for
        targets = tuple(target for target in ADAPTER_TARGETS if target in model.adapter_targets)
        experts = EXPERTS_OF_RULE[expert_rule(model)]  # equal of rules that make no difference
        facts["adapters"] = replace(model.adapters, targets=targets, experts=experts)
    return as_facts({name: value for name, value in facts.items() if value is not None})


EXPERTS_OF_RULE: Final[Mapping[str, ExpertAdapters]] = {
    "each": "each",
    "joined": "peft",
    "none": "none",
}


def without_training(model: Model) -> Model:
    """Return a model whose weights are all trained, on documents as long as its sequences."""
    return replace(model, adapters=None, reference=False, documents=None)


def apply_training(model: Model, facts: Mapping[str, Any]) -> Model:
    """Return a model as facts say that it is trained: on what, with adapters, a reference or a frozen tower.

    Raises `InputError` if it lacks one of the adapters' targets, or a tower for images.
    """
    if model.tower is not None:
        size = facts.get("image_size", model.tower.size)
        largest = isqrt(facts.get("image_pixels", size**2))
        resized = min(size, largest) if model.tower.resizable else None
        model = model.with_images(facts.get("images"), resized, facts.get("frozen_tower", False))
    elif "images" in facts:
        model = model.with_images(facts["images"])
    objective = "dpo" if facts.get("reference") else "sft"
    return model.fine_tuned(objective, facts.get("adapters"), facts.get("documents"))


def _values(record: Any, omitted: Sequence[str]) -> dict[str, object]:
    """Return the fields of a record by name, without those omitted."""
    return {field.name: getattr(record, field.name) for field in fields(record) if field.name not in omitted}


def plan_facts(plan: Plan, model: Model, keeps_stage: bool = False) -> Facts:
    """Return the facts of a plan for a model, except its placement; see `launch_facts`."""
    facts = _values(plan, (*PLACEMENT_KNOBS, "layout"))
    facts["recompute"] = normalized_recompute(plan.recompute)
    usual_copies = ("usual",) if OPTIMIZERS[plan.optimizer_kind].precision_aware else ("usual", "fp32")
    one_rank = plan.dp * plan.cp == 1
    alone = one_rank and (
        model.experts is None or plan.tp == plan.ep * plan.etp
    )  # also each expert's weights
    without_effect = {
        "sp": plan.tp == 1,
        "tp_overlap": plan.tp == 1,
        "cp_kind": plan.cp == 1,
        "ulysses": plan.cp == 1 or plan.cp_kind != "hybrid",
        "dp_overlap": alone,
        "replicas": alone,
        "ep": model.experts is None,
        "etp": model.experts is None,
        "ep_overlap": model.experts is None or plan.ep * plan.etp == 1,
        "schedule": plan.pp == 1,
        "order": plan.pp == 1 or plan.dp == 1,
        "recompute_every": plan.recompute != "full",
        "offload_every": "activations" not in split_choice(plan.offload),
        "master_copy": plan.master_copy in usual_copies or "optimizer" in split_choice(plan.offload),
    }
    if alone and plan.zero < 2 and not keeps_stage:  # 2 and 3 hold a copy of a layer's weights even there
        facts["zero"] = 0
    if plan.pp > 1:
        facts["chunks"] = chunk_layers(model, plan)
    return as_facts({name: value for name, value in facts.items() if not without_effect.get(name, False)})


def normalized_recompute(recompute: str) -> str:
    """Return a recomputation in normal form: modules in alphabetical order, selective as attention."""
    chosen = {"attention" if word == "selective" else word for word in split_choice(recompute)}
    return "+".join(sorted(chosen)) or "none"


def chunk_layers(model: Model, plan: Plan) -> tuple[int, ...]:
    """Return the number of layers of every model chunk of a plan, in order."""
    return (
        chunks(plan.layout)
        if plan.layout
        else split_layers(model.layers, plan.pp * plan.vp, end_layers(model))
    )


def _in_rank_order(plan: Plan, system: System) -> bool:
    """Return whether the placement is that of ranks numbered in the plan's order."""
    if not plan.placed or system.columns():
        return True
    unplaced = replace_fields(plan, dict.fromkeys(PLACEMENT_KNOBS))
    ordered = placements(unplaced, system.domain(plan.gpus), ordered=True)
    knobs = (f"fast_{axis}" for axis in AXES if getattr(plan, axis) > 1)
    return ordered is not None and all(float(getattr(ordered, k).flat[0]) == getattr(plan, k) for k in knobs)


def model_from_facts(facts: Mapping[str, object], name: str) -> Model:
    """Build the model of facts; raise an `InputError` if some are missing or contradict each other."""
    absent = [key for key in ("layers", "hidden", "heads", "ffn", "seq") if facts.get(key) is None]
    if absent:
        raise InputError(name, [f"{key}: missing" for key in absent])
    arguments = _arguments(Model, facts)
    for part, kind in MODEL_PARTS.items():
        prefix = f"{part}."
        block = {key.removeprefix(prefix): value for key, value in facts.items() if key.startswith(prefix)}
        block |= _pattern_fields(part, facts)
        try:
            arguments |= {part: kind(**block)} if block else {}
        except TypeError as error:  # a required width is missing
            raise InputError(name, [f"{part}: {str(error).partition(') ')[2] or error}"]) from None
    return make_record(Model, {"name": name, **arguments})


def _arguments(kind: type, facts: Mapping[str, object]) -> dict[str, object]:
    """Return the facts that are fields of a record."""
    return {field.name: facts[field.name] for field in fields(kind) if field.name in facts}


def _pattern_fields(part: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a part that select its layers."""
    if part == "local" and "local_layers" in facts:
        local_layers = tuple(facts["local_layers"])
        return {"layers": local_layers} if len(local_layers) < facts["layers"] else {}
    if part == "experts" and "moe_layers" in facts and "layer_kinds" not in facts:
        first_dense, every = dense_layers_and_step(tuple(facts["moe_layers"]), facts["layers"])
        return {"first_dense": first_dense, "every": every}
    return {}


def dense_layers_and_step(layers: Sequence[int], total: int) -> tuple[int, int]:
    """Return the number of dense layers before the first, and the step between, layers that have experts.

    Examples
    --------
    >>> dense_layers_and_step((4, 5, 6), 6), dense_layers_and_step((2, 4, 6), 6)
    ((3, 1), (0, 2))
    """
    step = layers[1] - layers[0] if len(layers) > 1 else 1
    first = layers[0] - step if layers else total
    if first < 0 or tuple(range(first + step, total + 1, step)) != tuple(layers):
        shown = ", ".join(map(str, layers[:8])) + (", …" if len(layers) > 8 else "")
        problem = f"{shown}: must be all layers after the leading dense ones, or every n-th of these"
        raise InputError("layers with experts", [problem])
    return first, step


def plan_from_facts(facts: Mapping[str, Any], model: Model) -> Plan:
    """Build the plan of facts; its placement is chosen later."""
    arguments = _arguments(Plan, facts)
    without_effect = ["cp_kind", "ulysses"] if arguments.get("cp", 1) == 1 else []
    without_effect += ["schedule"] if arguments.get("pp", 1) == 1 else []
    plan = make_record(Plan, {name: value for name, value in arguments.items() if name not in without_effect})
    layers = tuple(facts.get("chunks", ()))
    if layers and (layers != chunk_layers(model, plan) or len(layers) > model.layers):
        return replace(plan, layout=",".join(map(str, layers)))
    return plan
