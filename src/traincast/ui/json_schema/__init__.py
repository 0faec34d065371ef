"""JSON Schemas (draft 2020-12) of what every command prints with `--json`; `docs/json.md` is written from them.

A new command adds its record to a module here and a line to `OUTPUTS`; tests hold what it prints against that.
"""

from collections.abc import Mapping
from typing import Final

from traincast.core.errors import unknown_name_error
from traincast.ui.json_schema import accuracy, analyses, launch, plans, reference, trace
from traincast.ui.json_schema.vocabulary import Schema, document

OUTPUTS: Final[Mapping[str, Schema]] = {
    "plan": plans.SEARCH,
    "estimate": plans.ONE_PLAN,
    "memory": plans.MEMORY,
    "trace": trace.TRACED,
    "advise": analyses.ADVICE,
    "export": launch.EXPORT,
    "check": launch.CHECK,
    "limits": analyses.LIMITS,
    "scaling": analyses.SCALING,
    "validate": accuracy.VALIDATION,
    "calibrate": accuracy.CALIBRATION,
    "measure": accuracy.MEASURED,
    "catalog": reference.CATALOG,
    "reproduce": reference.REPRODUCTION,
    "study": reference.STUDY,
    "merge": reference.STUDY,
    "plot": reference.FIGURE,
    "serve": reference.SERVED,
    "schema": reference.SCHEMA,
    "completion": reference.COMPLETION,
    "error": reference.ERROR,
}


def schema(name: str) -> Schema:
    """Return the JSON Schema of what a command prints with `--json`, or of ``"error"``, which replaces it if the input is wrong.

    Raises
    ------
    InputError
        If there is no such output.
    """
    if name not in OUTPUTS:
        raise unknown_name_error("output", name, OUTPUTS)
    return document(OUTPUTS[name], f"traincast {name} --json" if name != "error" else "error")
