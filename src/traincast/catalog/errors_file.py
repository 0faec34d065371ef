"""Figures of the errors of predictions, from ``errors.yaml`` (docs/uncertainty.md)."""

from typing import Any

from traincast.catalog.disk_cache import cached_on_disk
from traincast.catalog.documents import read_document


@cached_on_disk
def error_figures() -> dict[str, Any]:
    """Return the parts of the file, with the number of each figure in place of the figure with its source."""
    from importlib.resources import files  # slow to import, and seldom needed

    figures: dict[str, object] = _numbers(
        read_document(files("traincast").joinpath("catalog", "errors.yaml"))
    )
    return figures


def _numbers(item: object) -> Any:
    """Return a part of the file with each figure's number in place of the figure with its source."""
    if not isinstance(item, dict):
        return item
    return float(item["value"]) if "value" in item else {key: _numbers(part) for key, part in item.items()}
