"""Outputs of `catalog`, `reproduce`, `schema`, `completion`, `study`, `merge`, `plot`, `serve`, and of errors."""

from traincast.ui.json_schema.vocabulary import (
    REPORT,
    Schema,
    flag,
    listed,
    number,
    or_null,
    record,
    text,
    whole_number,
)

_NAMES = {
    "models": "a model",
    "systems": "a system",
    "accelerators": "an accelerator",
    "software_stacks": "a stack",
}
CATALOG = record(
    "without a name `models`, `systems`, `accelerators` and `software_stacks`; with one `name` and `figures`",
    {},
    sometimes={kind: listed("names", text(kind_text)) for kind, kind_text in _NAMES.items()}
    | {
        "name": text("what is shown"),
        "figures": listed(
            "every figure of it",
            record(
                "a figure",
                {
                    "path": text("its name"),
                    "value": number("in SI units"),
                    "unit": text("its unit"),
                    "source": text("where it comes from"),
                    "basis": text("how sure that is"),
                },
            ),
        ),
    },
)

_ERRATA = {name: number(f"erratum {name}") for name in ("1", "2", "3")} | {"all": number("all three")}
REPRODUCTION = record(
    "how far published results are met",
    {
        "paper": text("its number"),
        "agrees": flag("whether every published figure is met"),
        "configurations": listed(
            "published configurations",
            record(
                "of one strategy",
                {
                    "strategy": text("how a layer is cut"),
                    "configurations": whole_number("so many"),
                    "worst_difference": number("largest relative difference"),
                    "errata_seconds": record(
                        "largest relative change of step time if errata are corrected", _ERRATA
                    ),
                    "errata_memory": record(
                        "largest relative change of memory if errata are corrected", _ERRATA
                    ),
                },
            ),
        ),
        "searches": listed(
            "published searches",
            record(
                "of one model and strategy",
                {
                    "model": text("its name"),
                    "strategy": text("how a layer is cut"),
                    "searches": whole_number("so many"),
                    "candidates": whole_number("in all of them"),
                    "feasible": whole_number("candidates that fit"),
                    "compared": whole_number("published optima"),
                    "agreeing": whole_number("those of them that are met"),
                    "worst_difference": or_null(number("largest relative difference")),
                    "optima_change": record(
                        "relative change of the optimum if errata are corrected; empty where nothing fits",
                        {},
                        sometimes={
                            name: number("of the searches")
                            for name in ("mean", "median", "lowest", "highest")
                        },
                    ),
                    "feasibility_changes": whole_number(
                        "searches that have a plan with or without errata only"
                    ),
                },
            ),
        ),
        "candidates": whole_number("in all searches"),
        "evaluated": whole_number("with errata and without"),
        "seconds": number("time that the searches took", "s"),
        "figures": listed("files drawn", text("a path")),
    },
)
STUDY = record(
    "what a study gave",
    {
        "study": text("its name"),
        "output": text("the table written"),
        "rows": or_null(whole_number("of the table; `null` for one shard of several")),
        "candidates": or_null(whole_number("decided; `null` for one shard of several")),
        "seconds": number("time it took", "s"),
    },
    sometimes=REPORT,
)
FIGURE = record("a figure", {"figure": text("the file written"), "kind": text("what it shows")})
SERVED = record(
    "where the explorer is, once it answers",
    {
        "url": text("its address"),
        "host": text("that it listens on"),
        "port": whole_number("that it listens on"),
    },
)
SCHEMA: Schema = {
    "type": "object",
    "description": "a JSON Schema; without a name `outputs`, the names there are",
}
COMPLETION = record("a script for a shell", {"shell": text("its name"), "script": text("what it is to read")})

ERROR = record(
    "what is wrong",
    {
        "error": record(
            "what is wrong",
            {
                "exit_code": whole_number(
                    "1: nothing fits; 2: the input cannot be used, or output not written; 130: interrupted"
                ),
                "message": text("what standard error says as well"),
                "subject": or_null(text("what was being read: a file, an option, a command")),
                "problems": listed("every mistake", text("in words")),
            },
        )
    },
)
