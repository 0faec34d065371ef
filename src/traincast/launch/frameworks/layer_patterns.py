"""Selections of layers as frameworks write them: patterns with a mark per layer, and pipeline layouts."""

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from traincast.core import InputError
from traincast.launch.settings.settings import evaluate_text

MAX_LAYERS: Final = 1 << 16  # of a layout; keeps expansion of repeated groups bounded


def marked_layers(text: str, layers: int, setting: str = "layers") -> tuple[int, ...]:
    """Return the layers that a pattern marks with 1: ``"3"`` is every third, or ``"([0]*3+[1]*58)"``.

    Examples
    --------
    >>> marked_layers("2", 6), marked_layers("([0]*1+[1]*2)*2", 6)
    ((2, 4, 6), (2, 3, 5, 6))
    """
    if re.fullmatch(r"\d{1,6}", text) and int(text):
        return tuple(range(int(text), layers + 1, int(text)))
    marks = evaluate_text(text)
    if not isinstance(marks, list) or len(marks) != layers or not {*map(str, marks)} <= {"0", "1"}:
        wanted = f"a mark for each of {layers} layers such as ([0]*1+[1]*{layers - 1})"
        raise InputError(setting, [f"{setting} = {text[:60]!r}: must be a whole number, or {wanted}"])
    return tuple(i for i, mark in enumerate(marks, 1) if mark == 1)


def layer_pattern(layers: Sequence[int], total: int) -> str:
    """Return the pattern that marks layers out of a total, in runs of equal marks.

    Examples
    --------
    >>> layer_pattern((4, 5), 5)
    '([0]*3+[1]*2)'
    """
    runs = groupby(int(layer in layers) for layer in range(1, total + 1))
    return f"({'+'.join(f'[{mark}]*{len(list(run))}' for mark, run in runs)})"


def layout_text(chunks: Sequence[int], mtp: int = 0) -> str:
    """Return a pipeline layout in Megatron-LM's letters: embedding E, layers t, MTP layers m, loss L.

    Examples
    --------
    >>> layout_text((2, 3, 3, 1), mtp=1)
    'Ett|(ttt|)*2tmL'
    """
    stages = ["t" * n if n < 5 else f"t*{n}" for n in chunks]
    stages[0] = "E" + stages[0]
    stages[-1] += "m" * mtp + "L"
    runs = ((stage, len(list(run))) for stage, run in groupby(stages[:-1]))
    return "".join(f"{stage}|" if n == 1 else f"({stage}|)*{n}" for stage, n in runs) + stages[-1]


def layout_chunks(text: str) -> tuple[int, ...]:
    """Return the number of layers of every chunk of a layout.

    Examples
    --------
    >>> layout_chunks("Et*2|(t|)*3,m|L")
    (2, 1, 1, 1, 0, 0)
    """
    plain = re.sub(r"[\s,]", "", text)
    while group := re.search(r"([EtmL|])\*(\d{1,4})|\(([EtmL|]*)\)(?:\*(\d{1,4}))?", plain):
        unit = group[1] or group[3]
        times = int(group[2] or group[4] or 1)
        if not 0 < len(unit) * times <= MAX_LAYERS or len(plain) > MAX_LAYERS:
            break
        plain = plain[: group.start()] + unit * times + plain[group.end() :]
    if not re.fullmatch(r"[EtmL|]+", plain) or len(plain) > MAX_LAYERS:
        wanted = "must be letters E, t, m and L in stages separated by |, such as Et*4|t*4L"
        raise InputError("layout", [f"pipeline_model_parallel_layout = {text[:60]!r}: {wanted}"])
    return tuple(stage.count("t") for stage in plain.split("|"))
