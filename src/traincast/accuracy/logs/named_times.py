"""Logs of MaxText, nanotron and Composer (llm-foundry), which state times of steps but few settings."""

import re
from typing import Final

from traincast.accuracy.logs.training_log import Log, LogFormat

NUMBER: Final = r"[\d.,]*\d(?:[eE][+-]?\d+)?"
START: Final = r"\bmbs: \d+ \| grad_accum: \d+"  # of nanotron: the line states what `STATED` names
STATED: Final = {"mbs": "mbs", "cp": "cp", "seq": "sequence_length", "gbs": "global_batch_size"}


def _of_nanotron(log: Log) -> dict[str, object]:
    """Return the columns that nanotron states where a training starts."""
    line = next((line for line in log.header if re.search(START, line)), "")
    stated = dict(re.findall(r"(\w+): (\d{1,12})\b", line))
    return {"stack": "nanotron", **{column: stated.get(name) for column, name in STATED.items()}}


MAXTEXT: Final = LogFormat(  # src/maxtext/common/metric_logger.py
    signs=r"completed step: \d+, seconds: ",
    starts=r"Config param \w+:",
    progress=(rf"completed step: (?P<at>\d{{1,12}}), seconds: (?P<s>{NUMBER}),",),
    columns=lambda _: {"stack": "MaxText"},
)
NANOTRON: Final = LogFormat(  # trainer.py and logging: three digits, with K for a thousand
    signs=r"\b(?:elapsed_)?time_per_iteration_ms: [\d.]+",
    starts=START,
    progress=(
        rf"iteration: (?P<at>\d{{1,12}}) / \d+ \|.*?time_per_iteration_ms: "
        rf"(?:(?P<s>{NUMBER})K|(?P<ms>{NUMBER})) \|",
    ),
    columns=_of_nanotron,
)
COMPOSER: Final = LogFormat(  # composer/loggers/console_logger.py, callbacks/speed_monitor.py
    signs=r"throughput/(?:samples|batches)_per_sec: ",
    starts=r"^\*{9,}\s*Config:|Starting training\.\.\.",
    progress=(rf"throughput/samples_per_sec: (?P<samples>{NUMBER})\s*$",),
    columns=lambda _: {"stack": "Composer"},
)
FORMATS: Final = (MAXTEXT, NANOTRON, COMPOSER)
