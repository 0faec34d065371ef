"""Page on JSON outputs, and the schemas it links to, from `traincast.ui.json_schema`."""

import json
from collections.abc import Iterator

from traincast.ui.json_schema import OUTPUTS, schema
from traincast.ui.json_schema.vocabulary import UNIT, Schema, rows

INTRO = """# JSON outputs

Every command takes `--json` and then prints one JSON object on standard output, whatever happens; messages and progress go to
standard error. Numbers are in SI units (FLOP, byte, second) unless the unit says otherwise, shares are fractions of 1, and what is
not known is `null`. Each output has a [JSON Schema](https://json-schema.org/draft/2020-12/schema), in which `x-unit` is the unit of
a number: `traincast schema plan` prints it, and the [schemas](schemas/plan.json) lie beside this page, whose tables are written
from them. A key in a table is a path: `[]` stands for every element of a list, `*` for any name. Later versions may add keys.

| exit code | meaning | standard output |
| --- | --- | --- |
| 0 | there is an answer | the command's object |
| 1 | the answer is no: nothing fits, or published figures are not met | the command's object, else [`error`](#error) |
| 2 | the input cannot be used, or the output not be written | [`error`](#error): every mistake at once |
| 130 | interrupted | [`error`](#error) |

"""


def kind(schema_part: Schema) -> str:
    """Return the type of a part of a schema in words."""
    if "anyOf" in schema_part:
        return " or ".join(map(kind, schema_part["anyOf"]))
    if "title" in schema_part:
        return f"[{schema_part['title']}](#{schema_part['title']})"
    if "enum" in schema_part:
        return ", ".join(f"`{json.dumps(word)}`" for word in schema_part["enum"])
    types = schema_part["type"] if isinstance(schema_part["type"], list) else [schema_part["type"]]
    names = {
        "string": "text",
        "boolean": "true or false",
        "array": f"list of {kind(schema_part['items'])}" if "items" in schema_part else "list",
    }
    if isinstance(schema_part.get("additionalProperties"), dict):
        names["object"] = f"{kind(schema_part['additionalProperties'])} by name"
    return " or ".join(names.get(name, name) for name in types)


def unit(schema_part: Schema) -> str:
    """Return the unit of a number, or of the numbers in a list."""
    inner = next(
        (
            schema_part[key]
            for key in ("items", "additionalProperties")
            if isinstance(schema_part.get(key), dict)
        ),
        {},
    )
    return schema_part.get(UNIT, inner.get(UNIT, ""))


def table(schema_part: Schema) -> str:
    """Return the table of keys of a record."""
    required = set(schema_part.get("required", ()))
    lines = ["| key | type | unit | meaning |", "| --- | --- | --- | --- |"]
    for path, part in rows(schema_part):
        meaning = part["description"] + ("" if "." in path or path in required else "; not always there")
        lines.append(f"| `{path}` | {kind(part)} | {unit(part)} | {meaning} |")
    return "\n".join(lines) + "\n"


def titled(schema_part: Schema) -> Iterator[Schema]:
    """Yield the titled records below a part of a schema, inner ones first."""
    parts = [*schema_part.get("properties", {}).values(), *schema_part.get("anyOf", ())]
    parts += [
        schema_part[key]
        for key in ("items", "additionalProperties")
        if isinstance(schema_part.get(key), dict)
    ]
    for part in parts:
        yield from titled(part)
    if "title" in schema_part:
        yield schema_part


def page() -> str:
    """Return the page."""
    commands = {name: output for name, output in OUTPUTS.items() if name != "error"}
    shared = {part["title"]: part for output in commands.values() for part in titled(output)}
    text = INTRO + f"## error\n\n[schema](schemas/error.json)\n\n{table(OUTPUTS['error'])}"
    for name, output in commands.items():
        text += (
            f"\n## `traincast {name}`\n\n{sentence(output['description'])} ([schema](schemas/{name}.json))\n"
        )
        text += f"\n{table(output)}" if "properties" in output else ""
    text += "\n## What several outputs hold\n"
    for name, output in shared.items():
        text += f"\n### {name}\n\n{table(output)}"
    return text


def sentence(words: str) -> str:
    """Return words as a sentence."""
    return f"{words[0].upper()}{words[1:]}."


def schemas() -> dict[str, str]:
    """Return the schemas by file name."""
    return {
        f"schemas/{name}.json": json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n"
        for name in OUTPUTS
    }
