"""Columns of a row: what is given, what the log says, and what a model of the catalogue says, in this order."""

from collections.abc import Mapping
from typing import Any

from traincast.accuracy.logs.rows import TRAINING
from traincast.accuracy.logs.text import whole
from traincast.catalog.load import load_model
from traincast.core.errors import InputError, close_to


def check(given: Mapping[str, Any]) -> None:
    """Refuse what is no column of a row.

    Parameters
    ----------
    given : mapping of str to Any
        What the caller gives.

    Raises
    ------
    InputError
        If a name is not among the columns.
    """
    wrong = [f"{name}: no column of a run; {close_to(name, TRAINING)}" for name in given if name not in TRAINING]
    if wrong:
        raise InputError("what is given", wrong)


def of_model(name: str) -> dict[str, Any]:
    """Columns that a model fills; its length of sequences is left to the run.

    Parameters
    ----------
    name : str
        A model of the catalogue, or a file.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    model = load_model(name)
    found: dict[str, Any] = {
        "model": model.name, "layers": model.layers, "hidden": model.hidden, "heads": model.heads, "ffn": model.ffn,
        "kv_heads": model.kv_heads or model.heads, "vocab": model.vocab, "mlp": model.mlp, "mla": str(model.latent is not None),
    }  # fmt: skip
    detail = [f"head_dim={model.head_dim}" if model.head_dim else ""]
    if model.experts:
        some = model.experts
        found |= {"experts": some.experts, "topk": some.topk, "moe_ffn": some.ffn, "dense_layers": some.first_dense}
        detail += [f"shared_ffn={some.shared_ffn}" if some.shared_ffn else "", "alternate layers" if some.every == 2 else ""]
    detail.append("MTP=1" if model.mtp else "")
    return found | {"moe_detail": " ".join(filter(None, detail))}


def complete(file: str, told: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a row.

    Parameters
    ----------
    file : str
        Name of the file.
    told : mapping of str to Any
        What the log says.
    given : mapping of str to Any
        What the caller gives; it goes first. ``model`` names a model of the catalogue where the log says nothing of layers.
    """
    said = {name: value for name, value in told.items() if value not in (None, "")}
    name = given.get("model")
    model = of_model(str(name)) if name and "layers" not in said else {}
    found = {"id": file.rsplit(".", 1)[0], "source": file} | model | said | dict(given)
    if model:
        found["model"] = model["model"]
    split = [whole(found.get(one)) or 1 for one in ("tp", "pp", "cp")]
    gpus = whole(found.get("gpus"))
    if gpus and not found.get("dp") and gpus % (split[0] * split[1] * split[2]) == 0:
        found["dp"] = gpus // (split[0] * split[1] * split[2])
    return found
