"""How wide the terminal is that an answer or a message goes to."""

import os
from typing import Final, TextIO

USUAL_COLUMNS: Final = 80  # where neither the environment nor a terminal says
LEAST_COLUMNS: Final = 40  # that tables and sentences are laid out for


def columns_of(stream: TextIO | None) -> int:
    """Return the columns of a line on a stream: `COLUMNS`, else those of its terminal, else 80."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated):
        return max(int(stated), LEAST_COLUMNS)
    try:
        found = os.get_terminal_size(stream.fileno()).columns if stream is not None else 0
    except (AttributeError, OSError, ValueError):  # no terminal, or no file at all
        found = 0
    return max(found, LEAST_COLUMNS) if found else USUAL_COLUMNS
