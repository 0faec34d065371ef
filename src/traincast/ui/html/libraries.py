"""Libraries that reports are made with."""

from importlib.util import find_spec

from traincast.core import InputError


def require_libraries() -> None:
    """Refuse where a library that reports are made with is not installed."""
    if missing := [name for name in ("jinja2", "matplotlib", "polars") if find_spec(name) is None]:
        problem = f"needs {' and '.join(missing)}: pip install 'traincast[html]'"
        raise InputError("report", [problem])
