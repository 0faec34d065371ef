"""Columns of a row: given values first, then the log, then a model of the catalogue."""

from collections.abc import Mapping
from typing import Any

from traincast.accuracy.logs.rows import TRAINING
from traincast.accuracy.logs.text import whole_number
from traincast.catalog.load import load_model
from traincast.core.errors import InputError, close_to


def check(given: Mapping[str, Any]) -> None:
    """Raise for given names that are no column of a row.

    Parameters
    ----------
    given : mapping of str to Any
        Values given by the caller.

    Raises
    ------
    InputError
        If a name is not among the columns.
    """
    wrong = [
        f"{name}: no column of a run; {close_to(name, TRAINING)}" for name in given if name not in TRAINING
    ]
    if wrong:
        raise InputError("what is given", wrong)


def of_model(name: str) -> dict[str, Any]:
    """Return the columns that a model fills; the sequence length is left to the run.

    Parameters
    ----------
    name : str
        A model of the catalogue, or a file.

    Raises
    ------
    InputError
        If there is no model of that name.
    """
    model = load_model(name)
    columns: dict[str, Any] = {
        "model": model.name, "layers": model.layers, "hidden": model.hidden, "heads": model.heads, "ffn": model.ffn,
        "kv_heads": model.kv_heads or model.heads, "vocab": model.vocab, "mlp": model.mlp, "mla": str(model.latent is not None),
    }  # fmt: skip
    detail = [f"head_dim={model.head_dim}" if model.head_dim else ""]
    if model.experts:
        experts = model.experts
        columns |= {
            "experts": experts.experts,
            "topk": experts.topk,
            "moe_ffn": experts.ffn,
            "dense_layers": experts.first_dense,
        }
        detail += [
            f"shared_ffn={experts.shared_ffn}" if experts.shared_ffn else "",
            "alternate layers" if experts.every == 2 else "",
        ]
    detail.append("MTP=1" if model.mtp else "")
    return columns | {"moe_detail": " ".join(filter(None, detail))}


def complete(file: str, from_log: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row.

    Parameters
    ----------
    file : str
        Name of the file.
    from_log : mapping of str to Any
        Columns from the log.
    given : mapping of str to Any
        Values given by the caller, which take precedence. ``model`` names a model of the catalogue where the log lacks layers.
    """
    stated = {name: value for name, value in from_log.items() if value not in (None, "")}
    name = given.get("model")
    model = of_model(str(name)) if name and "layers" not in stated else {}
    columns = {"id": file.rsplit(".", 1)[0], "source": file} | model | stated | dict(given)
    if model:
        columns["model"] = model["model"]
    degrees = [whole_number(columns.get(degree)) or 1 for degree in ("tp", "pp", "cp")]
    gpus = whole_number(columns.get("gpus"))
    if gpus and not columns.get("dp") and gpus % (degrees[0] * degrees[1] * degrees[2]) == 0:
        columns["dp"] = gpus // (degrees[0] * degrees[1] * degrees[2])
    return columns
