"""What every command prints with `--json`: one JSON Schema (draft 2020-12) each, from which `docs/json.md` is written.

A new command adds its record to a module here and a line to `OUTPUTS`; tests hold what it prints against that.
"""

from collections.abc import Mapping
from typing import Final

from traincast.core.errors import unknown
from traincast.outputs import accuracy, analyses, launches, plans, references, traces
from traincast.outputs.vocabulary import Schema, document

OUTPUTS: Final[Mapping[str, Schema]] = {
    "plan": plans.SEARCH,
    "estimate": plans.ONE_PLAN,
    "memory": plans.MEMORY,
    "trace": traces.TRACED,
    "advise": analyses.ADVICE,
    "export": launches.EXPORT,
    "check": launches.CHECK,
    "limits": analyses.LIMITS,
    "scaling": analyses.SCALING,
    "validate": accuracy.VALIDATION,
    "calibrate": accuracy.CALIBRATION,
    "measure": accuracy.MEASURED,
    "catalog": references.CATALOG,
    "reproduce": references.REPRODUCTION,
    "study": references.STUDY,
    "merge": references.STUDY,
    "plot": references.FIGURE,
    "serve": references.SERVED,
    "schema": references.SCHEMA,
    "completion": references.COMPLETION,
    "error": references.ERROR,
}


def schema(name: str) -> Schema:
    """JSON Schema of what a command prints with `--json`, or of ``"error"``, which stands in its place where input is wrong.

    Raises
    ------
    InputError
        If there is no such output.
    """
    if name not in OUTPUTS:
        raise unknown("output", name, OUTPUTS)
    return document(OUTPUTS[name], f"traincast {name} --json" if name != "error" else "error")
