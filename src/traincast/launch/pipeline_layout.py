"""Which layers are meant, as frameworks write it: patterns of marks, and layouts of a pipeline."""

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from traincast.core.errors import InputError

MOST: Final = 1 << 16  # layers of a text


def marks(text: str, layers: int) -> tuple[int, ...]:
    """Layers that a pattern marks with 1, counted from 1: ``"3"`` for every third, or ``"([0]*3+[1]*58)"``.

    Raises
    ------
    InputError
        If it is neither.

    Examples
    --------
    >>> marks("2", 6), marks("([0]*1+[1]*2)*2", 6)
    ((2, 4, 6), (2, 3, 5, 6))
    """
    if re.fullmatch(r"\d{1,6}", text) and int(text):
        return tuple(range(int(text), layers + 1, int(text)))
    found = _expanded(re.sub(r"\s", "", text))
    if len(found) != layers:
        wanted = f"a whole number, or a mark for each of {layers} layers such as ([0]*1+[1]*{layers - 1}), is wanted"
        raise InputError("layers", [f"{text[:60]!r}: {wanted}"])
    return tuple(i for i, one in enumerate(found, 1) if one == "1")


def _expanded(text: str) -> str:
    """Marks of a pattern one by one; empty where it is none."""
    while group := re.search(r"\(([^()]*)\)(?:\*(\d{1,5}))?", text):
        inner = _times(_run(group[1]), group[2])
        if not inner:
            return ""
        text = f"{text[: group.start()]}[{','.join(inner)}]{text[group.end() :]}"
    return _run(text)


def _run(text: str) -> str:
    """Marks of lists joined by +, each perhaps repeated; empty where it is something else."""
    found = ""
    for part in text.split("+"):
        listed = re.fullmatch(r"\[([01](?:,[01])*)\](?:\*(\d{1,5}))?", part)
        more = _times(listed[1].replace(",", ""), listed[2]) if listed else ""
        if not more or len(found) > MOST:
            return ""
        found += more
    return found


def _times(text: str, number: str | None) -> str:
    """A text so many times; empty where that is more than any model has."""
    times = int(number or 1)
    return text * times if len(text) * times <= MOST else ""


def marked(chosen: Sequence[int], layers: int) -> str:
    """A pattern that marks layers, in runs.

    Examples
    --------
    >>> marked((4, 5), 5)
    '([0]*3+[1]*2)'
    """
    runs: list[list[int]] = []
    for i in range(1, layers + 1):
        mark = int(i in chosen)
        if runs and runs[-1][0] == mark:
            runs[-1][1] += 1
        else:
            runs.append([mark, 1])
    return f"({'+'.join(f'[{mark}]*{times}' for mark, times in runs)})"


def layout(chunks: Sequence[int], mtp: int = 0) -> str:
    """A layout of a pipeline in Megatron-LM's letters: embedding E, layers t, multi-token prediction m and loss L in every chunk.

    Examples
    --------
    >>> layout((2, 3, 3, 1), mtp=1)
    'Ett|(ttt|)*2tmL'
    """
    stages = ["t" * n if n < 5 else f"t*{n}" for n in chunks]
    stages[0] = "E" + stages[0]
    stages[-1] += "m" * mtp + "L"
    found = ""
    for stage, same in groupby(stages[:-1]):
        times = len(list(same))
        found += f"{stage}|" if times == 1 else f"({stage}|)*{times}"
    return found + stages[-1]


def chunks_of(text: str) -> tuple[int, ...]:
    """Layers of every chunk of a layout.

    Raises
    ------
    InputError
        If it is none.

    Examples
    --------
    >>> chunks_of("Et*2|(t|)*3,m|L")
    (2, 1, 1, 1, 0, 0)
    """
    plain = re.sub(r"[\s,]", "", text)
    while one := re.search(r"([EtmL|])\*(\d{1,4})|\(([EtmL|]*)\)(?:\*(\d{1,4}))?", plain):
        times = _times(one[1] or one[3], one[2] or one[4])
        if not times or len(plain) > MOST:
            break
        plain = plain[: one.start()] + times + plain[one.end() :]
    if not re.fullmatch(r"[EtmL|]+", plain) or len(plain) > MOST:
        raise InputError("layout", [f"{text[:60]!r}: letters E, t, m and L in stages parted by | are wanted, such as Et*4|t*4L"])
    return tuple(stage.count("t") for stage in plain.split("|"))
