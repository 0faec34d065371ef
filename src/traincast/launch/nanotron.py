"""Conversions of nanotron's settings that depend on each other; its table is `tables/nanotron.toml`."""

from typing import Any, Final

from traincast.launch.canonical import Facts
from traincast.launch.settings import Settings
from traincast.launch.table import Values

DP, EP = "parallelism.dp", "parallelism.expert_parallel_size"
EXPERTS: Final = "model.model_config.moe_config."
RECOMPUTED: Final = {  # recompute -> setting
    "full": "parallelism.recompute_layer",
    "experts": "parallelism.moe_layer_recompute",
}
SEQ, MBS = "tokens.sequence_length", "tokens.micro_batch_size"
ACCUMULATION: Final = "tokens.batch_accumulation_per_replica"


def write_data(facts: Facts) -> Values:
    """Write the data-parallel replicas; expert parallelism has its own axis."""
    ep = facts.get("ep", 1)
    if facts["dp"] % ep:
        return {DP: facts["dp"]}
    return {DP: facts["dp"] // ep} | ({EP: ep} if ep > 1 else {})


def read_data(settings: Settings) -> Facts:
    """Read the data-parallel replicas, with and without the axis of expert parallelism."""
    ep = settings.number(EP)
    return {"dp": settings.number(DP) * ep} | ({"ep": ep} if f"{EXPERTS}num_experts" in settings else {})


def write_recompute(facts: Facts) -> Values:
    """Write what is recomputed: whole layers, or MoE layers."""
    recomputed = facts["recompute"] in RECOMPUTED and facts.get("recompute_every", 1) == 1
    return {RECOMPUTED[facts["recompute"]]: True} if recomputed else {}


def read_recompute(settings: Settings) -> Facts:
    """Read what is recomputed."""
    return {"recompute": next((kind for kind, name in RECOMPUTED.items() if settings.is_on(name)), "none")}


def write_experts(facts: Facts) -> Values:
    """Write the experts; layers are counted from 0."""
    if "experts.experts" not in facts:
        return {}
    every_layer = len(facts["moe_layers"]) == facts["layers"]
    return {
        f"{EXPERTS}num_experts": facts["experts.experts"],
        f"{EXPERTS}top_k": facts["experts.topk"],
        f"{EXPERTS}layers": [-1] if every_layer else [layer - 1 for layer in facts["moe_layers"]],
    }


def read_experts(settings: Settings) -> Facts:
    """Read the experts, each as wide as the MLP."""
    if not settings.is_on(f"{EXPERTS}num_experts"):
        return {}
    layers = settings.number("model.model_config.num_hidden_layers", default=0)
    return {
        "experts.experts": settings.number(f"{EXPERTS}num_experts"),
        "experts.topk": settings.number(f"{EXPERTS}top_k", default=2),
        "experts.ffn": settings.number("model.model_config.intermediate_size", default=11008),
        "moe_layers": _moe_layers(settings.get(f"{EXPERTS}layers"), layers),
        "etp": 1,
    }


def _moe_layers(indices: Any, layers: int) -> tuple[int, ...]:
    """Return the layers with experts, counted from 1: all of them where no others are listed, from 0."""
    if not isinstance(indices, list) or indices == [-1] or not all(isinstance(i, int) for i in indices):
        return tuple(range(1, layers + 1))
    return tuple(i + 1 for i in indices)


def write_batch(facts: Facts) -> Values:
    """Write micro-batch, accumulation steps and sequence length."""
    accumulation = max(facts["gbs"] // facts["dp"] // facts["mbs"], 1)
    return {SEQ: facts["seq"], MBS: facts["mbs"], ACCUMULATION: accumulation, "tokens.train_steps": 100}


def read_batch(settings: Settings) -> Facts:
    """Read micro-batch, accumulation steps and sequence length."""
    facts: Facts = {"mbs": settings.number(MBS), "accumulation": settings.number(ACCUMULATION)}
    return facts | ({"seq": settings.number(SEQ)} if SEQ in settings else {})
