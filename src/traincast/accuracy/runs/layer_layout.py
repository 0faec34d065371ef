"""Layers of every pipeline stage as a row of measured runs had them."""

import re
from typing import Final

from traincast.accuracy.runs.row import Cells

LETTERS: Final = re.compile(r"pp_layout (\S+?)[;,]?(?:\s|$)")
COPIES: Final = re.compile(r"\(([^()]*)\)\*(\d+)|([A-Za-z|])\*(\d+)")
LONGEST: Final = 100_000  # characters of a layout in letters, written out


def layout(cells: Cells, layers: int, chunks: int, stack: str) -> str:
    """Layers of every model chunk, in order; empty for as balanced as the model weighs them.

    The layout that a row tells; else even where layers divide, with the head on top of the last; else embedding and head counted as
    a layer each where that divides; else as the framework splits what does not.

    Parameters
    ----------
    cells : Cells
        A row: `layout` or what `notes` tell.
    layers, chunks : int
        Layers of the model, and chunks they are cut into.
    stack : str
        Software that ran it.

    Returns
    -------
    str
        As `Plan.layout` takes it.
    """
    if told := cells.text("layout"):
        return told
    if letters := LETTERS.search(cells.text("notes")):
        return written_out(letters[1])
    if chunks <= 1 or stack == "nanotron-2025":  # nanotron weighs its blocks, the head among them
        return ""
    if layers % chunks == 0:
        return f"{layers // chunks}*{chunks}"
    if (layers + 2) % chunks == 0:
        each = (layers + 2) // chunks
        return f"{each - 1},{each}*{chunks - 2},{each - 1}" if chunks > 2 else f"{each - 1},{each - 1}"
    return _middle(layers, chunks) if stack.startswith(("torchtitan", "automodel")) and layers > chunks else ""


def written_out(letters: str) -> str:
    """A layout in letters as one in numbers: layers t of every chunk, chunks parted by |, so many copies after *.

    Examples
    --------
    >>> written_out("Et*4|(t*4|)*14tmL")
    '4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,1'
    """
    while (found := COPIES.search(letters)) and len(letters) < LONGEST:
        group, times, letter, copies = found.groups()
        written = (letter or group) * min(int(copies or times), LONGEST)
        letters = letters[: found.start()] + written + letters[found.end() :]
    return ",".join(str(chunk.count("t")) for chunk in letters.split("|"))


def _middle(layers: int, chunks: int) -> str:
    """Chunks whose extra layers are in the middle ones, as torchtitan splits."""
    each, more = divmod(layers, chunks)
    lengths = [each + (0 < i <= more and i < chunks - 1) for i in range(chunks)]
    lengths[-1] = layers - sum(lengths[:-1])
    return ",".join(map(str, lengths))
