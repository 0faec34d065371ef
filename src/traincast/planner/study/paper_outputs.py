"""Results of the reference code of arXiv 2410.00273 (``exec_<strategy>_<model>_<system>.npy``) as a table.

The files are pickled. Only what arrays of numbers, lists and dicts are made of is unpickled; anything else
is refused, so that a file cannot run code.
"""

import io
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from traincast.catalog.load import load_model
from traincast.core.assumptions import PRESETS
from traincast.core.errors import InputError
from traincast.core.knobs import ALIASES as STRATEGY
from traincast.core.knobs import STRATEGIES
from traincast.core.nomenclature import COLUMNS

NAME: Final = re.compile(r"exec_(?P<strategy>1d|2d-seqp|2d)_(?P<model>.+)_(?P<system>[^_]+)\.npy")
ALLOWED: Final = {  # what arrays of objects are pickled with
    (f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")
} | {("numpy", "ndarray"), ("numpy", "dtype")}
TIMES: Final = {  # component of the step time → key of the code
    "compute": "t_comp", "exposed_memory": "t_mem", "tp_comm": "t_tp_comm", "dp_comm": "t_dp_comm",
    "pp_comm": "t_pp_comm", "bubble": "t_bubble",
}  # fmt: skip
MEMORY: Final = {  # component of memory → key of the code, in GB
    "weights": "wts_mem", "gradients": "wts_grad_mem", "optimizer": "wts_optimizer_states_mem",
    "activations": "acts_mem",
}  # fmt: skip
GB: Final = 1e9


class _ArraysOnly(pickle.Unpickler):
    """Unpickles arrays and numbers, and nothing that runs code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is none of arrays and numbers")
        return super().find_class(module, name)


def is_results(path: Path) -> bool:
    """Return whether a path is that of a file of the code, or of a folder."""
    return path.suffix == ".npy" or path.is_dir()


def read(path: Path) -> pl.DataFrame:
    """Return a file of the reference code, or all of a folder, with the columns of a study's table."""
    if not path.exists():
        raise InputError(str(path), ["no such file"])
    files = sorted(path.glob("exec_*.npy")) if path.is_dir() else [path]
    if not files:
        missing = "exec_<strategy>_<model>_<system>.npy of arXiv 2410.00273's code"
        raise InputError(str(path), [f"a folder without {missing}"])
    frame = pl.concat(
        [pl.DataFrame(list(_rows(file)), infer_schema_length=None) for file in files], how="diagonal"
    )
    return frame.with_columns(pl.col("gbs").fill_null(pl.col("gbs").drop_nulls().first()))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of one file: plans of every number of GPUs, the fastest first."""
    match = NAME.fullmatch(path.name)
    if match is None:
        raise InputError(
            str(path), ["the name must be exec_<strategy>_<model>_<system>.npy, as the code writes it"]
        )
    strategy, model = STRATEGY[match["strategy"]], match["model"].lower().replace("_", "-")
    described = {
        "model": model, "system": match["system"].lower(), "strategy": strategy, "point": 0,
        "assumptions": PRESETS["paper-published"].name,
    }  # fmt: skip
    try:
        known = load_model(model)
        seq, sequences = known.seq, known.training_sequences
    except InputError:  # a model of the user, of which the file says neither
        seq, sequences = None, None
    for _, _, _, sizes, plans_by_size in _content(path):
        for gpus, plans in zip(sizes, plans_by_size, strict=True):
            for rank, plan in enumerate(plans or [None], 1):
                row = described | {"gpus": int(gpus), "rank": rank}
                yield row | _figures(strategy, int(gpus), plan, seq, sequences)


def _content(path: Path) -> Any:
    """Return the array of a file; whatever else it holds is refused."""
    try:
        file = io.BytesIO(path.read_bytes())
        version = np.lib.format.read_magic(file)
        header = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        header(file)
        return _ArraysOnly(file).load()
    except (ValueError, EOFError, AttributeError, ImportError, pickle.UnpicklingError) as error:
        raise InputError(str(path), [f"cannot be read as results of the code ({error})"]) from None


def _figures(
    strategy: str, gpus: int, plan: Any, seq: int | None, sequences: float | None
) -> dict[str, float | None]:
    """Return knobs, times and memory of a plan; null where there is none."""
    names = [name for name, info in COLUMNS.items() if info.kind in {"time", "memory", "result"}]
    if plan is None:
        return dict.fromkeys((*names, "dp", "tp", "pp", "mbs")) | {"gbs": None}
    per_second, memory, degrees, stats = plan
    second = STRATEGIES[strategy].second
    figures: dict[str, Any] = dict.fromkeys(names, 0.0)
    figures |= {name: float(stats[key]) for name, key in TIMES.items()}
    figures |= {name: float(stats[key]) * GB for name, key in MEMORY.items()}
    knobs = {"dp": "dp", "pp": "pp", "mbs": "mbs", "tp": "tp1" if second else "tp"}
    knobs |= {second: "tp2"} if second else {}
    fast = {f"fast_{knob}": f"nv_{key}" for knob, key in knobs.items() if knob != "mbs"}
    figures |= {knob: int(degrees[key]) for knob, key in knobs.items()}
    figures |= {knob: int(stats[key]) for knob, key in fast.items()}
    step = float(stats["t"])
    return figures | {
        "panels": int(degrees.get("nb", 1)),
        "step_seconds": step,
        "memory_bytes": float(memory) * GB,
        "gbs": round(float(per_second) * step),
        "tokens_per_second_per_gpu": None if seq is None else float(per_second) * seq / gpus,
        "training_days": None if sequences is None else sequences / float(per_second) / 86400,
    }
