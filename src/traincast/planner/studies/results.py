"""Results of a study: a tidy table, the meaning of its columns, and its provenance.

A file is written under a temporary name and renamed, so that it is complete or absent, and is overwritten
only with `force`.
"""

import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import polars as pl

from traincast.core import COLUMNS, InputError, System, __version__, atomic_output, check_output
from traincast.model import Model
from traincast.planner.studies import paper_outputs
from traincast.planner.studies.sweep import JOB_SIZES_PER_CHUNK, MACHINES_PER_CHUNK, RESULTS, Study, Table

WHOLE_NUMBER_COLUMNS: Final = tuple(name for name, info in COLUMNS.items() if info.kind == "knob")


@dataclass(frozen=True, eq=False)
class Results:
    """A table of results."""

    frame: pl.DataFrame  # a row for each point and rank; plan and figures are null where nothing fits
    # ``columns`` (unit and meaning of each), ``study``, ``inputs`` (a hash of each), ``traincast`` (version).
    metadata: dict[str, Any]

    FORMATS: ClassVar = (".parquet", ".csv", ".json")  # endings of its files

    def __eq__(self, other: object) -> bool:
        """Return whether tables and metadata are equal."""
        if not isinstance(other, Results):
            return NotImplemented
        return self.frame.equals(other.frame) and self.metadata == other.metadata

    __hash__ = None  # type: ignore[assignment]  # a frame has no hash

    def to_polars(self) -> pl.DataFrame:
        """Return the table."""
        return self.frame

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON values: ``metadata`` and ``rows``."""
        return {"metadata": self.metadata, "rows": self.frame.to_dicts()}

    def to_json(self) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=1)

    def write(self, path: str | Path, force: bool = False) -> None:
        """Write as .parquet, .csv or .json, by the suffix of the path; CSV has no place for the metadata.

        Raises
        ------
        InputError
            If the suffix is another, the folder is missing, or the file exists and `force` is false.
        """
        path = Path(path)
        check_output(path, force, self.FORMATS)
        with atomic_output(path) as partial:
            if path.suffix == ".parquet":
                write_parquet(self.frame, partial, to_header(self.metadata))
            elif path.suffix == ".csv":
                partial.write_text(self.frame.write_csv(), encoding="utf-8")
            else:
                partial.write_text(self.to_json(), encoding="utf-8")


def write_parquet(frame: pl.DataFrame, path: Path, header: dict[str, str] | None = None) -> None:
    """Write a frame; a full disk is an `OSError`, which polars does not raise."""
    content = io.BytesIO()
    frame.write_parquet(content, metadata=header)
    path.write_bytes(content.getbuffer())


def to_header(metadata: dict[str, object]) -> dict[str, str]:
    """Return metadata in the form a parquet file stores."""
    return {"traincast": json.dumps(metadata, sort_keys=True)}


def read_results(path: str | Path) -> Results:
    """Read a table that traincast wrote, or results of the reference code; anything else is an `InputError`.

    CSV has no metadata: fields whose values are paired one to one are taken for an axis. Results of the code
    of arXiv 2410.00273 are a file .npy, or a folder of them.
    """
    path = Path(path)
    if paper_outputs.is_results(path):
        frame = paper_outputs.read_paper_outputs(path)
        return Results(frame, {"columns": _meanings(frame.columns), "study": {"name": path.stem, "vary": []}})
    if not path.is_file():
        raise InputError(str(path), ["is no file but a device or pipe" if path.exists() else "no such file"])
    try:
        if path.suffix == ".json":
            content = json.loads(path.read_text(encoding="utf-8"))
            return Results(pl.DataFrame(content["rows"], infer_schema_length=None), content["metadata"])
        if path.suffix == ".csv":
            with path.open("rb") as file:  # the columns first: any other file may be of any size
                header = pl.read_csv(file.readline(1 << 16), n_rows=0)
            header.select("point", "model", "system", "strategy", "gpus", "rank", *RESULTS)
            frame = pl.read_csv(path, infer_schema_length=None)
            return Results(frame, {"study": {"vary": _axes(frame)}})
        metadata = json.loads(pl.read_parquet_metadata(path)["traincast"])
        return Results(pl.read_parquet(path), metadata)
    except (KeyError, TypeError, ValueError, pl.exceptions.PolarsError):
        problem = "is no table of results that traincast wrote, as .parquet, .csv or .json"
        raise InputError(str(path), [problem]) from None


def _axes(frame: pl.DataFrame) -> list[dict[str, list[float]]]:
    """Return the axes of the varied fields of a table, which stand between its columns point and model."""
    axes: list[dict[str, list[float]]] = []
    for name in frame.columns[frame.columns.index("point") + 1 : frame.columns.index("model")]:
        values = frame[name].unique(maintain_order=True)
        for axis in axes:
            first = next(iter(axis))
            if frame.select(first, name).n_unique() == len(values) == len(axis[first]):
                axis[name] = values.to_list()
                break
        else:
            axes.append({name: values.to_list()})
    return axes


def read_study_table(path: Path, study: Study) -> Results:
    """Read the table of a study from its file; for CSV, the metadata are recomputed."""
    if path.suffix != ".csv":
        return read_results(path)
    frame = pl.read_csv(path, infer_schema_length=None)
    return Results(frame, describe(study, frame.columns))


def count_rows(path: Path) -> tuple[int, int]:
    """Count the rows of a table, and the candidates that were decided for it."""
    if path.suffix == ".parquet":
        table = pl.scan_parquet(path)
    else:
        table = pl.scan_csv(path) if path.suffix == ".csv" else read_results(path).frame.lazy()
    best_rows = pl.col("candidates").filter(pl.col("rank") == 1)
    rows, decided = table.select(pl.len(), best_rows.sum()).collect().row(0)
    return int(rows), int(decided)


def collect(study: Study, tables: Iterable[pl.DataFrame]) -> Results:
    """Return the table of a study from the frames of its chunks, in the order of its points."""
    frame = arrange(study, pl.concat(tables))
    return Results(frame, describe(study, frame.columns))


def arrange(study: Study, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of chunks in the order of their points, with the varied fields beside the point."""
    frame = frame.sort("series", "point", "gpus", "rank", maintain_order=True).drop("series")
    varied = [pl.Series(path, values)[frame["point"]].alias(path) for path, values in study.fields().items()]
    place = frame.columns.index("point") + 1
    return frame.select(*frame.columns[:place], *varied, *frame.columns[place:])


def describe(study: Study, names: Iterable[str]) -> dict[str, object]:
    """Return the metadata of a study's table: the meaning of its columns, and its provenance."""
    return {"columns": _meanings(names)} | _provenance(study)


def _meanings(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return unit and meaning of columns."""
    return {name: {"unit": COLUMNS[name].unit, "meaning": COLUMNS[name].meaning} for name in names}


def to_frame(table: Table) -> pl.DataFrame:
    """Return a chunk's table as a frame, with whole numbers as integers and null for missing values."""
    frame = pl.DataFrame({name: np.asarray(column) for name, column in table.items()})
    frame = frame.with_columns(pl.selectors.float().fill_nan(None) + 0.0)  # no -0.0
    whole = [name for name in frame.columns if name in WHOLE_NUMBER_COLUMNS]
    return frame.with_columns(pl.col(name).cast(pl.Int64) for name in whole)


def _provenance(study: Study) -> dict[str, object]:
    """Return the provenance of a study's table: version, definition, and a hash of each model and system."""
    items: list[Model | System] = [
        *study.models,
        *study.systems,
    ]  # of different names, as `define_study` asks
    definition = plain(replace(study, models=(), systems=())) | {
        "models": [model.name for model in study.models],
        "systems": [system.name for system in study.systems],
    }
    inputs = {item.name: hash_values(plain(item)) for item in items}
    return {"traincast": __version__, "study": definition, "inputs": inputs}


def fingerprint(study: Study) -> str:
    """Return a hash of all that a study's parts depend on."""
    return hash_values(_provenance(study) | {"chunks": [MACHINES_PER_CHUNK, JOB_SIZES_PER_CHUNK]})


def plain(value: Any) -> Any:
    """Return a dataclass as JSON-ready values."""
    return json.loads(json.dumps(asdict(value), default=float))


def hash_values(value: Any) -> str:
    """Return a hash of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
