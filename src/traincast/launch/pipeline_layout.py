"""Which layers are meant, as frameworks write it: patterns of marks, and layouts of a pipeline."""

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from traincast.core.errors import InputError

MAX_LAYERS: Final = 1 << 16  # layers of a text


def marked_layers(text: str, layers: int) -> tuple[int, ...]:
    """Layers that a pattern marks with 1, counted from 1: ``"3"`` for every third, or ``"([0]*3+[1]*58)"``.

    Raises
    ------
    InputError
        If it is neither.

    Examples
    --------
    >>> marked_layers("2", 6), marked_layers("([0]*1+[1]*2)*2", 6)
    ((2, 4, 6), (2, 3, 5, 6))
    """
    if re.fullmatch(r"\d{1,6}", text) and int(text):
        return tuple(range(int(text), layers + 1, int(text)))
    marks = _expand_pattern(re.sub(r"\s", "", text))
    if len(marks) != layers:
        wanted = f"a whole number, or a mark for each of {layers} layers such as ([0]*1+[1]*{layers - 1}), is wanted"
        raise InputError("layers", [f"{text[:60]!r}: {wanted}"])
    return tuple(i for i, mark in enumerate(marks, 1) if mark == "1")


def _expand_pattern(text: str) -> str:
    """Marks of a pattern one by one; empty where it is none."""
    while group := re.search(r"\(([^()]*)\)(?:\*(\d{1,5}))?", text):
        inner = _repeated(_joined_marks(group[1]), group[2])
        if not inner:
            return ""
        text = f"{text[: group.start()]}[{','.join(inner)}]{text[group.end() :]}"
    return _joined_marks(text)


def _joined_marks(text: str) -> str:
    """Marks of lists joined by +, each perhaps repeated; empty where it is something else."""
    marks = ""
    for part in text.split("+"):
        listed = re.fullmatch(r"\[([01](?:,[01])*)\](?:\*(\d{1,5}))?", part)
        repeated = _repeated(listed[1].replace(",", ""), listed[2]) if listed else ""
        if not repeated or len(marks) > MAX_LAYERS:
            return ""
        marks += repeated
    return marks


def _repeated(text: str, number: str | None) -> str:
    """A text so many times; empty where that is more than any model has."""
    times = int(number or 1)
    return text * times if len(text) * times <= MAX_LAYERS else ""


def layer_pattern(chosen: Sequence[int], layers: int) -> str:
    """A pattern that marks layers, in runs.

    Examples
    --------
    >>> layer_pattern((4, 5), 5)
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


def layout_text(chunks: Sequence[int], mtp: int = 0) -> str:
    """A layout of a pipeline in Megatron-LM's letters: embedding E, layers t, multi-token prediction m and loss L in every chunk.

    Examples
    --------
    >>> layout_text((2, 3, 3, 1), mtp=1)
    'Ett|(ttt|)*2tmL'
    """
    stages = ["t" * n if n < 5 else f"t*{n}" for n in chunks]
    stages[0] = "E" + stages[0]
    stages[-1] += "m" * mtp + "L"
    text = ""
    for stage, same in groupby(stages[:-1]):
        times = len(list(same))
        text += f"{stage}|" if times == 1 else f"({stage}|)*{times}"
    return text + stages[-1]


def layout_chunks(text: str) -> tuple[int, ...]:
    """Layers of every chunk of a layout.

    Raises
    ------
    InputError
        If it is none.

    Examples
    --------
    >>> layout_chunks("Et*2|(t|)*3,m|L")
    (2, 1, 1, 1, 0, 0)
    """
    plain = re.sub(r"[\s,]", "", text)
    while group := re.search(r"([EtmL|])\*(\d{1,4})|\(([EtmL|]*)\)(?:\*(\d{1,4}))?", plain):
        expanded = _repeated(group[1] or group[3], group[2] or group[4])
        if not expanded or len(plain) > MAX_LAYERS:
            break
        plain = plain[: group.start()] + expanded + plain[group.end() :]
    if not re.fullmatch(r"[EtmL|]+", plain) or len(plain) > MAX_LAYERS:
        raise InputError("layout", [f"{text[:60]!r}: letters E, t, m and L in stages parted by | are wanted, such as Et*4|t*4L"])
    return tuple(stage.count("t") for stage in plain.split("|"))
