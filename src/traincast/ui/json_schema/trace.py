"""Output of `trace`."""

from traincast.core.quantities import COLUMNS
from traincast.ui.json_schema.estimates import CASE, ESTIMATE
from traincast.ui.json_schema.vocabulary import (
    by_name,
    listed,
    number,
    or_null,
    record,
    redescribed,
    text,
    whole_number,
)

COMPONENTS = record(
    "seconds by component of a step",
    {name: number(info.meaning, "s") for name, info in COLUMNS.items() if info.kind == "time"},
    title="components",
)

TRACE = record(
    "the step as it runs ([timeline](trace.md)); starts and lengths of passes and waits are rounded to a millionth of the step",
    {
        "step_seconds": number("the estimate's time of a step", "s"),
        "simulated_seconds": number("that of the trace, without the remainder", "s"),
        "breakdown_seconds": redescribed(COMPONENTS, "the estimate's seconds by component"),
        "totals_seconds": redescribed(COMPONENTS, "the same of the trace, on the device that sets the step"),
        "closed_form_less_simulation_seconds": record(
            "the remainder: what the estimate has and the trace has not",
            {name: number(COLUMNS[name].meaning, "s") for name in ("bubble", "pp_comm")},
        ),
        "device": whole_number("the device that sets the step"),
        "schedule": text("of the pipeline"),
        "pp": whole_number("devices of the pipeline"),
        "vp": whole_number("chunks of the model on each device"),
        "microbatches": whole_number("of a replica in a step"),
        "pipeline_seconds": number("from `begin` of a device to the end of the pipeline", "s"),
        "transfer_seconds": number("from the end of a pass until the next device has what it passes on", "s"),
        "kinds": listed("kinds of passes, which `passes` refer to by position", text("F, B, W or BW")),
        "chunks": listed(
            "chunks of the model, first to last",
            record(
                "a chunk",
                {
                    "parts": by_name("layers by kind, embedding, head", whole_number("so many")),
                    "passes": by_name(
                        "by kind of pass: seconds by component, in the order in which to draw them; their sum is its length",
                        by_name("seconds by component", number("spent on it", "s")),
                    ),
                },
            ),
        ),
        "after": listed(
            "what follows the pipeline on every device",
            record(
                "one thing",
                {
                    "name": text("in words"),
                    "component": text("component of the step; empty for the remainder"),
                    "start": number("from `begin` of the device", "s"),
                    "seconds": number("its length", "s"),
                },
            ),
        ),
        "devices": listed(
            "devices of the pipeline, first to last",
            record(
                "a device",
                {
                    "stage": whole_number("its place, from 0"),
                    "begin": number("start of the step on it", "s"),
                    "passes": listed(
                        "in order: kind, chunk, micro-batch, start [s]",
                        listed("a pass", number("one of them")),
                    ),
                    "waits": listed(
                        "in order: bubble or pp_comm, start [s], seconds [s]",
                        {"type": "array", "items": {"type": ["string", "number"]}},
                    ),
                    "totals_seconds": COMPONENTS,
                },
            ),
        ),
    },
)
TRACED = record(
    "the step of one plan as it runs",
    {
        **CASE,
        "estimate": ESTIMATE,
        "trace": TRACE,
        "output": or_null(text("the trace that was written")),
        "figure": or_null(text("the figure that was drawn")),
    },
)
