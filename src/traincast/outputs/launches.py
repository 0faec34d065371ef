"""Outputs of `export`."""

from traincast.outputs.estimates import CASE, ESTIMATE
from traincast.outputs.vocabulary import by_name, or_null, record, text

EXPORT = record(
    "the launch of a plan in the words of a training framework",
    {
        **CASE,
        "estimate": ESTIMATE,
        "to": text("the format"),
        "output": or_null(text("the file written; null where it was to be printed")),
        "text": text("the launch script or configuration"),
        "not_expressed": by_name("what the framework cannot be told, by fact", text("its value, and why")),
    },
)
