"""Layers of every pipeline stage in a row of measured runs."""

import re
from typing import Final

from traincast.accuracy.runs.row import Cells

LETTER_LAYOUT: Final = re.compile(r"pp_layout (\S+?)[;,]?(?:\s|$)")
REPEATED: Final = re.compile(r"\(([^()]*)\)\*(\d+)|([A-Za-z|])\*(\d+)")
MAX_LAYOUT_LENGTH: Final = 100_000  # characters of a layout in letters, written out


def layout(cells: Cells, layers: int, chunks: int, stack: str) -> str:
    """Return the layers of every model chunk, in order; empty for the balance that the estimator chooses.

    The layout that a row gives; else an even one where layers divide, the head in addition on the last; else embedding and head
    count as a layer each where that divides; else as the framework splits uneven layers.

    Parameters
    ----------
    cells : Cells
        A row: `layout`, or a layout in `notes`.
    layers, chunks : int
        Layers of the model, and model chunks.
    stack : str
        Software stack that ran it.

    Returns
    -------
    str
        Value for `Plan.layout`.
    """
    if stated := cells.text("layout"):
        return stated
    if letters := LETTER_LAYOUT.search(cells.text("notes")):
        return written_out(letters[1])
    if chunks <= 1 or stack == "nanotron-2025":  # nanotron weighs its blocks, the head among them
        return ""
    if layers % chunks == 0:
        return f"{layers // chunks}*{chunks}"
    if (layers + 2) % chunks == 0:
        layers_of_chunk = (layers + 2) // chunks
        return (
            f"{layers_of_chunk - 1},{layers_of_chunk}*{chunks - 2},{layers_of_chunk - 1}"
            if chunks > 2
            else f"{layers_of_chunk - 1},{layers_of_chunk - 1}"
        )
    return (
        _extra_in_the_middle(layers, chunks)
        if stack.startswith(("torchtitan", "automodel")) and layers > chunks
        else ""
    )


def written_out(letters: str) -> str:
    """Return a layout in letters as one in numbers: a layer is t, chunks are separated by |, * repeats.

    Examples
    --------
    >>> written_out("Et*4|(t*4|)*14tmL")
    '4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,1'
    """
    while (match := REPEATED.search(letters)) and len(letters) < MAX_LAYOUT_LENGTH:
        group, times, letter, copies = match.groups()
        expanded = (letter or group) * min(int(copies or times), MAX_LAYOUT_LENGTH)
        letters = letters[: match.start()] + expanded + letters[match.end() :]
    return ",".join(str(chunk.count("t")) for chunk in letters.split("|"))


def _extra_in_the_middle(layers: int, chunks: int) -> str:
    """Return chunks whose extra layers are in the middle, as torchtitan splits."""
    even, extra = divmod(layers, chunks)
    lengths = [even + (0 < i <= extra and i < chunks - 1) for i in range(chunks)]
    lengths[-1] = layers - sum(lengths[:-1])
    return ",".join(map(str, lengths))
