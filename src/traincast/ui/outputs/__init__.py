"""JSON outputs of the commands: a `Result` for each, and its JSON Schema, made by pydantic.

A new command adds its result to a module here, named after it: `plan` prints a `PlanOutput`. Tests hold what
it prints against the schema.
"""

from functools import cache
from typing import TYPE_CHECKING, Final

import lazy_loader

from traincast.core import Result, require_known

if TYPE_CHECKING:
    from traincast.ui.outputs import accuracy, analyses, designs, launches, plans, reference, tuning

__all__ = ["plans", "analyses", "launches", "accuracy", "tuning", "designs", "reference"]  # noqa: RUF022  in the order of `schema`
__getattr__, _, _ = lazy_loader.attach(__name__, __all__)  # each is imported when it is first used
SUFFIX: Final = "Output"  # of the name of a type, after the command that prints it
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


@cache
def output_types() -> dict[str, type[Result]]:
    """Return the type of what each command prints with `--json`, and of ``"error"``."""
    return {
        name.removesuffix(SUFFIX).lower(): kind
        for module in __all__
        for name, kind in vars(__getattr__(module)).items()
        if name.endswith(SUFFIX)
    }


def schema(name: str) -> dict[str, object]:
    """Return the JSON Schema of an output; nested results are under ``$defs``."""
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        """pydantic's generator, without titles made of names."""

        def field_title_should_be_set(self, schema: object) -> bool:
            return False

    require_known("output", name, output_types())
    result = output_types()[name]
    title = f"traincast {name} --json" if name != "error" else name
    about = (result.__doc__ or "").strip().rstrip(".")
    body = TypeAdapter(result).json_schema(mode="serialization", schema_generator=Generator)
    return {"$schema": DIALECT, "title": title, "description": about[:1].lower() + about[1:]} | body
