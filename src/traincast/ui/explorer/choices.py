"""The choices that the page offers: models, systems and their figures, frameworks, knobs."""

from typing import Any, Final

from traincast.catalog.load import model_names, system_names
from traincast.catalog.schema.fields import Count, Entry, Share
from traincast.catalog.software_stacks import stack_names
from traincast.core.assumptions import CALIBRATED, PRESETS
from traincast.core.model import Model
from traincast.core.plan_choices import STRATEGIES
from traincast.core.quantities import COLUMNS
from traincast.core.system import System
from traincast.core.version import __version__
from traincast.planner.framework_spaces import FRAMEWORKS
from traincast.planner.misfit import label
from traincast.planner.search import OBJECTIVES
from traincast.step.arguments import usual_batch
from traincast.step.model_flops import CONVENTIONS
from traincast.ui.explorer.limits import MOST_PLANS, REQUEST_BYTES, SECONDS
from traincast.ui.explorer.question import PASTED, State, catalogue_system, entries, lockable, model_of

SLIDER_REACH: Final = 10.0  # a slider goes from a tenth of the catalogue's figure to ten times it
MAX_DOMAIN: Final = 1024
MIN_SHARE: Final = 0.05


def catalog() -> dict[str, Any]:
    """Return everything that can be chosen for a search, by name."""
    presets = tuple(dict.fromkeys((CALIBRATED, *PRESETS, *stack_names())))
    components = {
        kind: [
            {"name": name, "label": label(name), "meaning": info.meaning}
            for name, info in COLUMNS.items()
            if info.kind == kind
        ]
        for kind in ("time", "memory")
    }
    return {
        "version": __version__,
        "default": State().to_dict(),
        "models": model_names(),
        "systems": system_names(),
        "frameworks": [
            {
                "name": framework.name,
                "about": framework.about,
                "strategies": framework.strategies,
                "assumptions": framework.assumptions,
            }
            for framework in FRAMEWORKS.values()
        ],
        "strategies": tuple(STRATEGIES),
        "objectives": OBJECTIVES,
        "assumptions": presets,
        "locks": lockable(),
        "components": components,
        "conventions": tuple(CONVENTIONS),
        "timeline": True,
        "limits": {"top": MOST_PLANS, "seconds": SECONDS, "request_bytes": REQUEST_BYTES},
    }


def model_info(model: Model) -> dict[str, Any]:
    """Return the key figures of a model."""
    shape = {
        name: getattr(model, name)
        for name in ("layers", "hidden", "heads", "ffn", "vocab", "seq", "global_batch")
    }
    return {
        "name": model.name,
        "left_out": model.left_out or None,
        "pasted": model.name == PASTED,
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        **shape,
        "usual_batch": usual_batch(model.seq),
        "training_tokens": None if model.training_sequences is None else model.training_sequences * model.seq,
        "experts": None if model.experts is None else model.experts.experts,
    }


def state_model_info(state: State) -> dict[str, Any]:
    """Return the key figures of a state's model.

    Raises
    ------
    InputError
        If there is no such model.
    """
    return model_info(model_of(state))


def system_info(name: Any) -> dict[str, Any]:
    """Return a system and every figure that can be changed: its value, unit and slider range.

    Raises
    ------
    InputError
        If there is no such system.
    """
    system = catalogue_system(name)
    return system_summary(system) | {
        "tiers": [tier.name for tier in system.tiers],
        "figures": [_figure(system, path, entry) for path, entry in entries(system).items()],
    }


def system_summary(system: System) -> dict[str, Any]:
    """Return the key figures of a system."""
    return {
        "name": system.name,
        "accelerator": system.accelerator.name,
        "fast_domain": system.fast_domain,
        "gpus": system.gpus,
        "capacity_bytes": float(system.accelerator.hbm_bytes),
        "price": system.price,
    }


def _figure(system: System, path: str, entry: type[Entry]) -> dict[str, Any]:
    """Return one figure with its slider range."""
    sizes = {f"network.{i}.size": tier.size for i, tier in enumerate(system.tiers)}
    value = float(sizes.get(path) or system.figures()[path])
    if issubclass(entry, Share):
        scale, low, high = "linear", min(MIN_SHARE, value), 1.0
    elif issubclass(entry, Count):
        scale, low, high = "whole", 1.0, max(float(MAX_DOMAIN), value)
    elif value:
        scale, low, high = "log", value / SLIDER_REACH, value * SLIDER_REACH
    else:
        scale, low, high = "linear", 0.0, 1.0
    info = COLUMNS[path]
    described = {
        "path": path,
        "meaning": info.meaning,
        "unit": info.unit,
        "value": value,
        "low": low,
        "high": high,
        "scale": scale,
    }
    return described | {"source": system.sources.get(path, "")}
