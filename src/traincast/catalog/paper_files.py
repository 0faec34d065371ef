"""Machines (``config-*.json``) and models (``{l, e, h, depth}``) of the code of arXiv 2410.00273."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from traincast.core import raise_problems

SOURCE: Final = "file of the reference code of arXiv 2410.00273"
SYSTEM_KEYS: Final = {"matrix_flops_fp16", "nvlink_bandwidth"}  # that tell such a machine
MODEL_KEYS: Final = {"l", "e", "h", "depth"}  # that tell such a model
FIXED: Final = {  # keys with the one value that has the meaning of the code, GB and TFLOP
    "element_size": 2e-9,
    "mask_element_size": 1e-9,
    "flops_units": 1e-12,
    "empirical": False,
}
FIGURES: Final = {  # key → field of an accelerator, and unit
    "matrix_flops_fp16": ("matrix_flops", "TFLOP/s"),
    "vector_flops_fp16": ("vector_flops", "TFLOP/s"),
    "vector_flops_fp32": ("vector_fp32_flops", "TFLOP/s"),
    "hbm_bandwidth": ("hbm_bandwidth", "GB/s"),
    "hbm_capacity": ("hbm_bytes", "GB"),
}
TIER_KEYS: Final = tuple(
    f"{tier}_{key}" for tier in ("nvlink", "ib") for key in ("bandwidth", "eff", "latency")
)
SIZES: Final = ("nvlink_size", "nic_factor")
SEARCHED: Final = {"summa_nb"}  # panels, which are a knob of plans here


def is_system(document: Mapping[str, object]) -> bool:
    """Return whether a document is a machine of the reference code."""
    return document.keys() >= SYSTEM_KEYS


def is_model(document: Mapping[str, object]) -> bool:
    """Return whether a document is a model of the reference code."""
    return document.keys() >= MODEL_KEYS


def as_system_file(document: Mapping[str, object], path: Path) -> dict[str, object]:
    """Return a machine of the reference code as a system file; all mistakes at once."""
    wanted = {*FIGURES, *TIER_KEYS, *SIZES}
    problems = _problems(document, wanted, wanted | FIXED.keys() | SEARCHED)
    problems += [
        f"{key} = {document[key]!r}: must be {value!r}"
        for key, value in FIXED.items()
        if key in document and document[key] != value
    ]
    raise_problems(str(path), problems)
    figures = {field: f"{document[key]} {unit}" for key, (field, unit) in FIGURES.items()}
    tiers = [
        {
            "name": name,
            "bandwidth": f"{document[f'{key}_bandwidth']} GB/s",
            "efficiency": document[f"{key}_eff"],
            "latency": f"{document[f'{key}_latency']} s",
        }
        for name, key in (("nvlink", "nvlink"), ("infiniband", "ib"))
    ]
    tiers[0]["size"], tiers[1]["ports"] = document["nvlink_size"], document["nic_factor"]
    chip = path.stem.removeprefix("config-")
    name = f"{chip.lower()}-nvs{document['nvlink_size']}"
    title = f"{chip} of the reference code of arXiv 2410.00273"
    accelerator = {"name": chip} | figures
    return {"name": name, "title": title, "source": SOURCE, "accelerator": accelerator, "network": tiers}


def as_model_file(document: Mapping[str, object], path: Path) -> dict[str, object]:
    """Return a model of the reference code as a model file: l tokens, e wide, h heads, and f = 4 e."""
    problems = _problems(document, MODEL_KEYS, MODEL_KEYS | {"f"})
    whole = {key: value for key, value in document.items() if isinstance(value, int | float)}
    problems += [
        f"{key} = {value!r}: must be a whole number of at least 1"
        for key, value in whole.items()
        if not (value >= 1 and value == int(value))
    ]
    raise_problems(str(path), problems)
    sizes = {key: int(value) for key, value in whole.items()}
    ffn = {"value": sizes.get("f", 4 * sizes["e"]), "source": f"{SOURCE}: f = 4 e"}
    return {
        "name": path.stem,
        "title": path.stem,
        "source": SOURCE,
        "layers": sizes["depth"],
        "hidden": sizes["e"],
        "heads": sizes["h"],
        "ffn": ffn,
        "seq": sizes["l"],
    }


def _problems(document: Mapping[str, object], wanted: set[str], known: set[str]) -> list[str]:
    """Return what is missing, unknown, or no number."""
    problems = [f"{key}: is missing" for key in sorted(wanted - document.keys())]
    problems += [f"{key}: unknown key" for key in sorted(document.keys() - known)]
    numbers = (key for key in sorted(wanted & document.keys()))
    wrong = [
        key
        for key in numbers
        if isinstance(document[key], bool) or not isinstance(document[key], int | float)
    ]
    return problems + [f"{key} = {document[key]!r}: must be a number" for key in wrong]
