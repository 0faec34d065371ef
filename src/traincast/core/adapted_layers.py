"""Linear layers of a model that can have a low-rank adapter: which of them have one, and its weights."""

from collections import Counter
from collections.abc import Mapping

from traincast.core.adapters import GROUPS, JOINED, TARGETS
from traincast.core.model_blocks import Kind
from traincast.core.model_figures import ModelFigures


def adapter_problems(model: ModelFigures) -> list[str]:
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
    has, targets = _adaptable(model), adapter_targets(model)
    known = ", ".join(word for word in TARGETS if word in has)
    lacking = [word for word in model.adapters.targets if word not in GROUPS and word not in has]
    problems = [f"adapters.targets: {word!r} is none of its {known}" for word in lacking]
    for joined, parts in JOINED.items():
        if joined in targets and (twice := targets & set(parts)):
            problems.append(f"adapters.targets: {joined} includes {', '.join(sorted(twice))}; keep one")
    return problems


def adapter_targets(model: ModelFigures) -> frozenset[str]:
    """Return the linear layers with an adapter; a group stands for those of its layers that the model has."""
    given = () if model.adapters is None else model.adapters.targets
    words = {part for word in given for part in GROUPS.get(word, (word,))}
    return frozenset(words & _adaptable(model))


def adapter_parameters(model: ModelFigures, active: bool = False) -> int:
    """Count the weights of the adapters: rank × (input + output) of each; without `mtp`."""
    if model.adapters is None:
        return 0
    targets, kinds = adapter_targets(model), Counter(model.pattern).items()
    layers = sum(n * _layer_widths(model, kind, targets, active) for kind, n in kinds)
    head = model.hidden + (model.vocab or 0) if "head" in targets else 0
    return model.adapters.rank * (layers + head)


def _adaptable(model: ModelFigures) -> frozenset[str]:
    """Return the names of the linear layers that can have an adapter."""
    names = {"head"} if model.vocab is not None and model.head else set()
    for kind in model.kinds:
        names |= _mixer_layers(model, kind).keys()
        names |= _mlp_layers(model, model.ffn).keys() if kind.feed_forward else set()
    return frozenset(names)


def _layer_widths(model: ModelFigures, kind: Kind, targets: frozenset[str], active: bool) -> int:

    def widths(layers: Mapping[str, tuple[int, int]]) -> int:
        return sum(sum(pair) for name, pair in layers.items() if name in targets)

    mixer, experts = widths(_mixer_layers(model, kind)), model.experts
    if not kind.moe or experts is None:
        return mixer + (widths(_mlp_layers(model, model.ffn)) if kind.feed_forward else 0)
    used = experts.topk if active else experts.experts
    shared = widths(_mlp_layers(model, experts.shared_ffn)) if experts.shared_ffn else 0
    return mixer + used * widths(_mlp_layers(model, experts.ffn)) + shared


def _mixer_layers(model: ModelFigures, kind: Kind) -> dict[str, tuple[int, int]]:
    """Return the widths of input and output of the linear layers of what mixes tokens."""
    e, latent, config = model.hidden, model.latent, model.linear_attention(kind)
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


def _mlp_layers(model: ModelFigures, f: int) -> dict[str, tuple[int, int]]:
    """Return the widths of input and output of the linear layers of an MLP of inner width f."""
    e = model.hidden
    gate = {"gate": (e, f)} if model.gated else {}
    return {"up": (e, f), "fc1": (e, model.up_projections * f), "fc2": (f, e)} | gate
