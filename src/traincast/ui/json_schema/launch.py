"""Outputs of `export` and `check`."""

from traincast.ui.json_schema.estimates import CASE, ESTIMATE
from traincast.ui.json_schema.vocabulary import by_name, listed, number, or_null, record, redescribed, text

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
SETTING = record(
    "a setting that differs",
    {
        "setting": text("its name, as the framework spells it"),
        "from": or_null(text("its value now; null where it is not set, on where it has none")),
        "to": or_null(text("its value then, the same way")),
    },
)
CHANGE = record(
    "settings changed together",
    {
        "settings": listed("settings that differ", SETTING),
        "gain": number("by how much the step is shorter, as a share"),
        "step_seconds": number("time of a step then", "s"),
        "memory_bytes": number("memory of the fullest rank then", "byte"),
    },
    title="change",
)
CHECK = record(
    "a launch held against what could be",
    {
        **CASE,
        "file": text("the file"),
        "format": text("what it is"),
        "read": listed("settings that the prediction makes use of", text("a setting")),
        "unread": listed(
            "settings that matter and are not read; there are none without `--accept-unread`",
            record(
                "a setting that is not read",
                {
                    "setting": text("its name, as the framework spells it"),
                    "value": text("its value; on where it has none"),
                    "why": text("why it matters"),
                },
            ),
        ),
        "small": listed("settings of small effect, which is not predicted", text("a setting")),
        "not_understood": listed("settings that nothing is known of", text("a setting")),
        "ignored": listed(
            "settings that change no step: logs, data, checkpoints, learning rates", text("a setting")
        ),
        "assumed": listed("what had to be taken for granted", text("in words")),
        "estimate": redescribed(ESTIMATE, "what is predicted of it"),
        "best": or_null(
            redescribed(ESTIMATE, "the best plan of the framework on the same GPUs; null where none fits")
        ),
        "best_settings": listed("settings of the best plan that differ", SETTING),
        "longer_than_best": or_null(
            number("by how much the step is longer than the best plan's, as a share")
        ),
        "changes": listed("changes of one thing that fit and help, the fastest first", CHANGE),
        "together": or_null(
            redescribed(CHANGE, "the best two or three changes together, where they are better than one")
        ),
    },
)
