"""Linear layers of a model that can have a low-rank adapter: which of them have one, and its weights."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

from traincast.core import InputError
from traincast.model.adapters import (
    ADAPTER_TARGETS,
    JOINED_TARGETS,
    MLP,
    PEFT_DEFAULT,
    ROUTING_TARGETS,
    TARGET_GROUPS,
    Adapters,
)
from traincast.model.architecture import Architecture
from traincast.model.blocks import Kind
from traincast.model.peft_targets import (
    DEFAULT_TARGETS,
    JOINED_EXPERTS,
    JOINED_LAYERS,
    LINEAR_ROUTERS,
    PEFT_VERSION,
    UNREACHED_EXPERTS,
    WITHOUT_OUT_PROJ,
)

STATED: Final = "as lora_target_modules or targets="  # settings of launches and of --train


ExpertRule = Literal["each", "joined", "none"]


def of_type(adapters: Adapters, model_type: str) -> Adapters:
    """Return adapters whose targets are stated: PEFT's default ones are those of a type of model.

    Raises `InputError` if PEFT has no default for the type.
    """
    if PEFT_DEFAULT not in adapters.targets:
        return adapters
    targets = DEFAULT_TARGETS.get(model_type)
    if targets is None:
        kind = f"models of type {model_type}" if model_type else "a model of unknown type in transformers"
        problem = f"{PEFT_VERSION} has no default target modules for {kind}: state them, {STATED}"
        raise InputError("adapters.targets", [problem])
    return replace(adapters, targets=targets)


def expert_rule(model: Architecture) -> ExpertRule:
    """Return which weights of experts have adapters.

    "each": each matrix. "joined": gate and up projection together, with twice the rank, and the down
    projection, but no MLP beside the experts. "none": no weight of an expert.
    """
    if model.experts is None or model.adapters is None or model.adapters.experts == "each":
        return "each"
    if model.adapters.experts == "none":
        return "none"
    if model.transformers_type in JOINED_EXPERTS:
        return "joined"
    return "none" if model.transformers_type in UNREACHED_EXPERTS else "each"


def adapter_problems(model: Architecture) -> list[str]:
    """Return a line for each target of an adapter that the model lacks or that stands in another one."""
    if model.adapters is None:
        return []
    not_modelled = {
        "values are the projected keys": model.keys_are_values,
        "layers have shapes of their own": model.shapes,
        "all heads meet one latent vector": model.latent is not None and model.latent.shared,
        "experts have a width of their own": model.experts is not None and model.experts.width,
    }
    if problems := [f"adapters: not modelled where {what}" for what, holds in not_modelled.items() if holds]:
        return problems
    has = _adaptable(model)
    targets = adapter_targets(model)
    rule = expert_rule(model)
    known = ", ".join(word for word in ADAPTER_TARGETS if word in has)
    is_peft = model.adapters.experts == "peft"
    owner = (
        f"{PEFT_VERSION} adapts no experts of {model.transformers_type}" if is_peft else "experts have none"
    )
    why = f" ({owner})" if rule == "none" else ""
    lacking = [word for word in model.adapters.targets if word not in TARGET_GROUPS and word not in has]
    problems = [f"adapters.targets: {word!r} is none of its {known}{why}" for word in lacking]
    for joined, parts in JOINED_TARGETS.items():
        if joined in targets and (twice := targets & set(parts)):
            problems.append(f"adapters.targets: {joined} includes {', '.join(sorted(twice))}; keep one")
    if not targets and not problems:
        problems.append(f"adapters.targets: it has no {'+'.join(model.adapters.targets)} layers{why}")
    if rule == "joined" and model.gated and len(targets & {"gate", "up"}) == 1:
        problems.append(f"adapters.targets: {PEFT_VERSION} adapts gate and up of experts together; name both")
    if is_peft and "proj" in targets and model.transformers_type in WITHOUT_OUT_PROJ:
        problems.append(
            f"adapters.targets: {PEFT_VERSION} refuses out_proj of Mamba layers ({model.transformers_type}),"
            " and adapters of o_proj alone are not modelled; name others, such as q+k+v"
        )
    return problems


def adapter_targets(model: Architecture) -> frozenset[str]:
    """Return the linear layers with an adapter; a group stands for those of its layers that the model has."""
    if model.adapters is None:
        return frozenset()
    words = {part for word in model.adapters.targets for part in _group(model, word)}
    return frozenset(words & _adaptable(model))


def adapter_ranks(model: Architecture, experts: bool) -> dict[str, int]:
    """Return the rank of the adapter of each linear layer that has one: of experts, or of all else."""
    if model.adapters is None:
        return {}
    rank = model.adapters.rank
    rule = expert_rule(model)
    ranks = dict.fromkeys(adapter_targets(model), rank)
    if rule == "each" or (rule == "none" and not experts):
        return ranks
    if rule == "none":
        return {}
    if not experts:
        return {target: rank for target in ranks if target not in (*MLP, "fc1")}
    both = {"fc1": model.up_projections * rank} if "up" in ranks else {}
    return both | ({"fc2": rank} if "fc2" in ranks else {})


def adapter_parameters(model: Architecture, active: bool = False) -> int:
    """Count the weights of the adapters: rank × (input + output) of each; without `mtp`."""
    if model.adapters is None:
        return 0
    kinds = Counter(model.pattern).items()
    layers = sum(n * _layer_weights(model, kind, active) for kind, n in kinds)
    head = {"head": (model.hidden, model.vocab or 0)}
    return layers + _weights(head, adapter_ranks(model, experts=False))


def _group(model: Architecture, word: str) -> tuple[str, ...]:
    """Return the linear layers of a group, with those that PEFT finds as one in place of their parts.

    "all" and "linear" include what routes tokens to experts, where PEFT finds it. The names of linear modules
    include those of stacked experts only if an MLP beside the experts has the same.
    """
    if word not in TARGET_GROUPS or model.adapters is None or model.adapters.experts != "peft":
        return TARGET_GROUPS.get(word, (word,))
    layers = TARGET_GROUPS[word]
    rule = expert_rule(model)
    kind = model.transformers_type
    for joined in JOINED_LAYERS.get(kind, ()):
        if set(JOINED_TARGETS[joined]) & set(layers):
            layers = (joined, *(layer for layer in layers if layer not in JOINED_TARGETS[joined]))
    if word not in ("all", "linear") or rule == "each":
        return layers
    if kind in LINEAR_ROUTERS or (word == "all" and rule == "joined"):
        return (*layers, *ROUTING_TARGETS)
    has_mlp = _shared_width(model) or any(kind.feed_forward and not kind.moe for kind in model.kinds)
    layers = layers if has_mlp else tuple(layer for layer in layers if layer not in MLP)
    return (*layers, "shared_gate")


def _adaptable(model: Architecture) -> frozenset[str]:
    """Return the names of the linear layers that can have an adapter."""
    names = {"head"} if model.vocab is not None and model.head else set()
    rule = expert_rule(model)
    for kind in model.kinds:
        names |= _mixer_layers(model, kind).keys()
        names |= _routing_layers(model, kind).keys()
        has_mlp = kind.feed_forward and not (rule == "none" and kind.moe and not _shared_width(model))
        names |= _mlp_layers(model, model.ffn).keys() if has_mlp else set()
    return frozenset(names - {"fc1"} if rule == "joined" else names)


def _layer_weights(model: Architecture, kind: Kind, active: bool) -> int:
    """Count the weights of the adapters of a layer."""
    ranks = adapter_ranks(model, experts=False)
    weights = _weights(_mixer_layers(model, kind), ranks)
    experts = model.experts
    if not kind.moe or experts is None:
        return weights + (_weights(_mlp_layers(model, model.ffn), ranks) if kind.feed_forward else 0)
    used = experts.topk if active else experts.experts
    weights += _weights(_routing_layers(model, kind), ranks)
    weights += used * _weights(_mlp_layers(model, experts.ffn), adapter_ranks(model, experts=True))
    shared = _shared_width(model)
    return weights + (_weights(_mlp_layers(model, shared), ranks) if shared else 0)


def _weights(layers: Mapping[str, tuple[int, int]], ranks: Mapping[str, int]) -> int:
    """Count the weights of the adapters of linear layers, rank × (input + output) of each."""
    return sum(ranks.get(name, 0) * sum(pair) for name, pair in layers.items())


def _shared_width(model: Architecture) -> int:
    """Return the inner width of the shared experts; 0 without any."""
    return 0 if model.experts is None else model.experts.shared_ffn


def _routing_layers(model: Architecture, kind: Kind) -> dict[str, tuple[int, int]]:
    """Return the widths of input and output of the router, and of the gate of shared experts."""
    e = model.hidden
    experts = model.experts
    if not kind.moe or experts is None:
        return {}
    gate = {"shared_gate": (e, 1)} if experts.shared_ffn and experts.shared_gate else {}
    return {"router": (e, experts.experts + experts.zero)} | gate


def _mixer_layers(model: Architecture, kind: Kind) -> dict[str, tuple[int, int]]:
    """Return the widths of input and output of the linear layers of what mixes tokens."""
    e = model.hidden
    latent = model.latent
    config = model.linear_attention(kind)
    linear = {}
    if config is not None:
        linear = {"in_proj": (e, config.counts.projected), "proj": (config.counts.inner, e)}
    if not kind.attends:
        return linear
    beside = linear.get("proj", (0, 0))  # its output projection has an adapter of its own
    widths = linear | {"proj": (model.heads * model.value_width + beside[0], e + beside[1])}
    if latent is None:
        q, k, v = model.projection_widths
        return widths | {"q": (e, q), "k": (e, k), "v": (e, v), "qkv": (e, q + k + v)}
    widths["q_up"] = latent.q_rank or e, model.heads * model.head_width
    widths["kv_down"] = e, latent.kv_rank + latent.rope_dim
    if not kind.indexed:  # else it is no linear layer of its own
        widths["kv_up"] = latent.kv_rank, model.heads * (latent.nope_dim + latent.value_dim)
    return widths if latent.q_rank is None else widths | {"q_down": (e, latent.q_rank)}


def _mlp_layers(model: Architecture, f: int) -> dict[str, tuple[int, int]]:
    """Return the widths of input and output of the linear layers of an MLP of inner width f."""
    e = model.hidden
    gate = {"gate": (e, f)} if model.gated else {}
    return {"up": (e, f), "fc1": (e, model.up_projections * f), "fc2": (f, e)} | gate
