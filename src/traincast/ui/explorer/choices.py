"""The choices that the page offers: models, systems and their figures, frameworks, knobs."""

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, Final

from traincast.catalog import (
    Count,
    Entry,
    Factor,
    Folder,
    Share,
    model_names,
    stack_names,
    system_names,
    values_of_key,
)
from traincast.core import (
    ALLOWED_VALUES,
    CALIBRATED,
    CHOICES,
    COLUMNS,
    JOINED_CHOICES,
    PRESETS,
    STRATEGIES,
    System,
    __version__,
)
from traincast.model import ADAPTER_TARGETS, TARGET_GROUPS, Adapters, Model
from traincast.planner import FRAMEWORKS, SEARCH_OBJECTIVES, component_label
from traincast.step import CONVENTIONS
from traincast.ui.explorer.limits import MOST_PLANS, REQUEST_BYTES, SECONDS
from traincast.ui.explorer.question import (
    LOCKS,
    PASTED,
    State,
    catalogue_system,
    entries,
    figure_at,
    offered_systems,
)

SLIDER_REACH: Final = 10.0  # a slider goes from a tenth of the catalogue's figure to ten times it
MAX_DOMAIN: Final = 1024
MIN_SHARE: Final = 0.05
DOMAIN: Final = re.compile(r"-nvs\d+$")  # of a machine whose fast domain is chosen by its name
OTHERS: Final = "Others"
YOUR_MACHINES: Final = "Your machines"
PAPER_MACHINES: Final = "Machines of arXiv 2410.00273"


def catalog() -> dict[str, Any]:
    """Return everything that can be chosen for a search, by name."""
    framework_fields = ("name", "about", "strategies", "assumptions")
    return {
        "version": __version__,
        "default": asdict(State()),
        "models": model_names(aliases=False),
        "systems": [*offered_systems(), *system_names()],
        "groups": {"model": _models(), "system": _systems(), "framework": _frameworks()},
        "adapters": {
            "rank": Adapters().rank,
            "targets": "+".join(Adapters().targets),
            "layers": (*TARGET_GROUPS, *ADAPTER_TARGETS),
        },
        "frameworks": [
            {name: getattr(framework, name) for name in framework_fields} for framework in FRAMEWORKS.values()
        ],
        "strategies": tuple(STRATEGIES),
        "objectives": SEARCH_OBJECTIVES,
        "assumptions": tuple(dict.fromkeys((CALIBRATED, *PRESETS, *stack_names()))),
        "locks": [{"name": name, "meaning": COLUMNS[name].meaning, **_lock_kind(name)} for name in LOCKS],
        "components": {kind: _components(kind) for kind in ("time", "memory")},
        "conventions": tuple(CONVENTIONS),
        "limits": {"top": MOST_PLANS, "seconds": SECONDS, "request_bytes": REQUEST_BYTES},
    }


def _models() -> list[dict[str, Any]]:
    """Return the models in groups of a family, as titles spell it: ``"Llama"`` of llama-3-8b."""
    titles = _titles("models")

    def family(name: str) -> str:
        match = re.match(r"[a-z]+", name)
        word = match[0] if match else name
        spelled = re.search(word, titles[name], re.IGNORECASE)
        return spelled[0] if spelled else word

    also = values_of_key("models", "aliases")
    names = model_names(aliases=False)
    return _group_options([_option(name, titles[name], also[name]) for name in names], family)


def _systems() -> list[dict[str, Any]]:
    """Return the systems in groups of an accelerator or its series: ``"H100"``, ``"TPU"``."""
    titles = _titles("systems")
    accelerators = values_of_key("systems", "accelerator")
    called, usual = (values_of_key("systems", key) for key in ("also_called", "usual_for"))
    chips = values_of_key("accelerators", "name")

    def chip(name: str) -> str:
        if name not in titles:
            return PAPER_MACHINES
        titles_of_chip = [title for accelerator in accelerators[name] for title in chips[accelerator]]
        if not titles_of_chip:
            return OTHERS
        series = re.match(
            r"[A-Za-z]{2,}", titles_of_chip[0]
        )  # of one letter, such as H100, the number says more
        return series[0] if series else re.split(r"[ ,]", titles_of_chip[0])[0]

    options = []
    for name in system_names():
        file = DOMAIN.sub("", name)
        options.append(_option(name, titles[file], (*called[file], *usual[file])))
    own = [
        _option(path, f"{system.name}, {calibrated_words(system) or 'a file'}", ())
        for path, system in offered_systems().items()
    ]
    offered = [{"label": YOUR_MACHINES, "options": own}] if own else []
    return [*offered, *_group_options(options, chip)]


def calibrated_words(system: System) -> str:
    """Return what a system is calibrated to: ``"calibrated to your 3 runs"``; empty if to published runs."""
    return f"calibrated to your {system.calibrated_to}" if system.calibrated_to else ""


def _frameworks() -> list[dict[str, object]]:
    """Return the frameworks with the programs that run their plans, as one group."""
    rows = FRAMEWORKS.values()
    options = [_option(row.name, row.about, row.also_called) for row in rows]
    return [{"label": "Frameworks", "options": options}]


def _titles(folder: Folder) -> dict[str, str]:
    return {name: "".join(title) for name, title in values_of_key(folder, "title").items()}


def _option(name: str, title: str, also: Iterable[str]) -> dict[str, Any]:
    """Return what a name is found by: itself, its title and its other names."""
    return {"name": name, "title": title, "also": list(also)}


def _group_options(options: Iterable[dict[str, Any]], group_of: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return options in groups, by label; those that are alone in one come after them, then the paper's."""
    labels: dict[str, str] = {}  # in small letters -> as it is spelled first
    groups: dict[str, list[dict[str, object]]] = {}
    for option in options:
        label = group_of(option["name"])
        labels.setdefault(label.casefold(), label)
        groups.setdefault(label.casefold(), []).append(option)
    alone = groups.pop(OTHERS.casefold(), [])
    alone += [option for members in groups.values() if len(members) == 1 for option in members]
    several = [
        {"label": labels[key], "options": members}
        for key, members in sorted(groups.items())
        if len(members) > 1
    ]
    several += [{"label": OTHERS, "options": alone}] if alone else []
    return sorted(several, key=lambda group: group["label"] == PAPER_MACHINES)


def _components(kind: str) -> list[dict[str, str]]:
    columns = {name: info for name, info in COLUMNS.items() if info.kind == kind}
    return [
        {"name": name, "label": component_label(name), "meaning": info.meaning}
        for name, info in columns.items()
    ]


def _lock_kind(name: str) -> dict[str, object]:
    """Return what a knob or choice can be locked to: a number, text, or one of several values."""
    if name not in CHOICES:
        return {"kind": "number"}
    if name not in ALLOWED_VALUES:
        return {"kind": "text"}
    joined = {"joined": True} if name in JOINED_CHOICES else {}
    return {"kind": "choice", "values": list(ALLOWED_VALUES[name]), **joined}


def model_info(model: Model) -> dict[str, object]:
    """Return the key figures of a model."""
    shape = ("layers", "hidden", "heads", "ffn", "vocab", "seq", "global_batch")
    return {
        "name": model.name,
        "left_out": model.left_out or None,
        "taken": model.taken or None,
        "has_pairs": model.reference,
        "images": None if model.tower is None else model.tower.title,
        "pasted": model.name == PASTED,
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        **{name: getattr(model, name) for name in shape},
        "usual_batch": model.usual_batch,
        "training_tokens": model.training_tokens,
        "experts": None if model.experts is None else model.experts.experts,
    }


def system_info(name: object) -> dict[str, object]:
    """Return a system of the catalogue and every figure that can be changed: value, unit and slider range."""
    system = catalogue_system(name)
    figures = [_figure(system, path, entry) for path, entry in entries(system).items()]
    return system_summary(system) | {"tiers": [tier.name for tier in system.tiers], "figures": figures}


def system_summary(system: System) -> dict[str, object]:
    """Return the key figures of a system."""
    return {
        "name": system.name,
        "accelerator": system.accelerator.name,
        "fast_domain": system.fast_domain,
        "gpus": system.gpus,
        "capacity_bytes": float(system.accelerator.visible_bytes),
        "driver_bytes": float(system.accelerator.driver_bytes or 0),
        "price": system.price,
        "calibrated": calibrated_words(system) or None,
    }


def _figure(system: System, path: str, entry: type[Entry]) -> dict[str, object]:
    value = figure_at(system, path)
    if issubclass(entry, Share):
        scale = "linear"
        low = min(MIN_SHARE, value)
        high = 1.0
    elif issubclass(entry, Count):
        scale = "whole"
        low = 1.0
        high = max(float(MAX_DOMAIN), value)
    elif issubclass(entry, Factor):
        scale = "log"
        low = 1.0
        high = value * SLIDER_REACH
    elif value:
        scale = "log"
        low = value / SLIDER_REACH
        high = value * SLIDER_REACH
    else:
        scale = "linear"
        low = 0.0
        high = 1.0
    column = {"path": path, "meaning": COLUMNS[path].meaning, "unit": COLUMNS[path].unit}
    slider = {"value": value, "low": low, "high": high, "scale": scale}
    return column | slider | {"source": system.sources.get(path, "")}
