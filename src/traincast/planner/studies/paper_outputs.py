"""Results of the reference code of arXiv 2410.00273 (``exec_<strategy>_<model>_<system>.npy``) as a table.

The files are pickled and come from others: `pickled_arrays` reads them as plain values, and what they hold is
checked against the shape that the code writes before anything looks at it.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import polars as pl

from traincast.catalog import load_model, read_bytes
from traincast.core import COLUMNS, PRESETS, STRATEGIES, STRATEGY_ALIASES, InputError
from traincast.planner.studies.pickled_arrays import pickled_rows

if TYPE_CHECKING:
    from pydantic import TypeAdapter

NAME: Final = re.compile(r"exec_(?P<strategy>1d|2d-seqp|2d)_(?P<model>.+)_(?P<system>[^_]+)\.npy")
MAX_BYTES: Final = 1 << 25  # many times the largest that the code published
TIMES: Final = {  # component of the step time → key of the code
    "compute": "t_comp",
    "exposed_memory": "t_mem",
    "tp_comm": "t_tp_comm",
    "dp_comm": "t_dp_comm",
    "pp_comm": "t_pp_comm",
    "bubble": "t_bubble",
}
MEMORY: Final = {  # component of memory → key of the code, in GB
    "weights": "wts_mem",
    "gradients": "wts_grad_mem",
    "optimizer": "wts_optimizer_states_mem",
    "activations": "acts_mem",
}
GB: Final = 1e9
Row: TypeAlias = tuple[Any, Any, Any, list[int], list[list[Any] | None]]


def is_results(path: Path) -> bool:
    """Return whether a path is that of a file of the code, or of a folder."""
    return path.suffix == ".npy" or path.is_dir()


def read_paper_outputs(path: Path) -> pl.DataFrame:
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


def _rows(path: Path) -> Iterator[dict[str, object]]:
    """Yield the rows of one file: plans of every number of GPUs, the fastest first."""
    match = NAME.fullmatch(path.name)
    if match is None:
        raise InputError(
            str(path), ["the name must be exec_<strategy>_<model>_<system>.npy, as the code writes it"]
        )
    strategy = STRATEGY_ALIASES[match["strategy"]]
    model = match["model"].lower().replace("_", "-")
    described = {
        "model": model,
        "system": match["system"].lower(),
        "strategy": strategy,
        "point": 0,
        "assumptions": PRESETS["paper-published"].name,
    }
    try:
        known = load_model(model)
        seq = known.seq
        sequences = known.training_sequences
    except InputError:  # a model of the user, of which the file says neither
        seq = None
        sequences = None
    for _, _, _, sizes, plans_by_size in _content(path, strategy):
        for gpus, plans in zip(sizes, plans_by_size, strict=True):
            for rank, plan in enumerate(plans or [None], 1):
                row = described | {"gpus": int(gpus), "rank": rank}
                yield row | _figures(strategy, int(gpus), plan, seq, sequences)


def _content(path: Path, strategy: str) -> list[Row]:
    """Return the rows of a file: fourth in each are numbers of GPUs, fifth the plans on each of them."""
    from pydantic import ValidationError

    try:
        content = pickled_rows(read_bytes(path, MAX_BYTES))
        return _rows_as_written(strategy).validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = "".join(f"[{part!r}]" for part in first["loc"])
        reason = f"content{place}: {first['msg']}"
    except ValueError as error:
        reason = str(error)
    raise InputError(str(path), [f"cannot be read as results of the code ({reason})"]) from None


@cache
def _rows_as_written(strategy: str) -> "TypeAdapter[list[Row]]":
    """Return what checks the rows of a file, as ``run_configs.py`` of the code writes them."""
    from pydantic import AfterValidator, Field, TypeAdapter

    count = Annotated[int, Field(gt=0, lt=1 << 53)]
    positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
    quantity = Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def named(*names: str) -> Any:
        def check(figures: dict[str, float]) -> dict[str, float]:
            missing = [name for name in names if name not in figures]
            if missing:
                raise ValueError(f"without {', '.join(missing)}")
            return figures

        return AfterValidator(check)

    keys = _keys(strategy)
    placed = [f"nv_{key}" for knob, key in keys.items() if knob != "mbs"]
    degrees = Annotated[dict[str, count], named(*keys.values())]
    figures = Annotated[dict[str, quantity], named("t", *placed, *TIMES.values(), *MEMORY.values())]
    plan = tuple[positive, positive, degrees, figures]  # sequences a second, GB, degrees, figures
    row = tuple[object, object, object, list[count], list[list[plan] | None]]

    def one_list_for_each_size(value: Any) -> Any:
        if len(value[3]) != len(value[4]):
            raise ValueError(f"{len(value[4])} lists of plans for {len(value[3])} numbers of GPUs")
        return value

    return TypeAdapter(list[Annotated[row, AfterValidator(one_list_for_each_size)]])


def _keys(strategy: str) -> dict[str, str]:
    """Return the code's name of each knob."""
    second = STRATEGIES[strategy].second
    keys = {"dp": "dp", "pp": "pp", "mbs": "mbs"}
    if second is None:
        return keys | {"tp": "tp"}
    return keys | {"tp": "tp1", second: "tp2"}


def _figures(
    strategy: str, gpus: int, plan: Any, seq: int | None, sequences: float | None
) -> dict[str, float | None]:
    """Return knobs, times and memory of a plan; null where there is none."""
    names = [name for name, info in COLUMNS.items() if info.kind in {"time", "memory", "result"}]
    if plan is None:
        return dict.fromkeys((*names, "dp", "tp", "pp", "mbs")) | {"gbs": None}
    per_second, memory, degrees, stats = plan
    figures: dict[str, Any] = dict.fromkeys(names, 0.0)
    figures |= {name: float(stats[key]) for name, key in TIMES.items()}
    figures |= {name: float(stats[key]) * GB for name, key in MEMORY.items()}
    knobs = _keys(strategy)
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
