"""Page on JSON outputs, and the schemas it links to, from the results of `traincast.ui.outputs`."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from traincast.core.json_schema import UNIT
from traincast.ui.outputs import output_types, schema

Schema = dict[str, Any]
INTRO = """# JSON outputs

Every command takes `--json` and then prints one JSON object on standard output, also for an error; messages and progress go
to standard error. Numbers are in SI units (FLOP, byte, second) unless the unit says otherwise, shares are fractions of 1, and
what is not known is `null`. Each output has a [JSON Schema](https://json-schema.org/draft/2020-12/schema), in which `x-unit`
is the unit of a number: `traincast schema plan` prints it. On the site the [schemas](schemas/plan.json) stand next to this page; the
tables are generated from them. A key in a table is a path: `[]` stands for every element of a list, `*` for any name. Later
versions may add keys.

| exit code | meaning | standard output |
| --- | --- | --- |
| 0 | there is an answer | the command's object |
| 1 | the answer is no: nothing fits, or published figures are not met | the command's object, else [`error`](#error) |
| 2 | the input cannot be used, or the output not be written | [`error`](#error): every mistake at once |
| 130 | interrupted | [`error`](#error) |
| 141 | the reader of a pipe went away, as `head` does: the signal SIGPIPE, as a shell says it | part of an object |

"""


SCHEMAS = {name: schema(name) for name in output_types()}
USES = Counter(name for output in SCHEMAS.values() for name in output.get("$defs", {}))
SHARED = {name: output for output in SCHEMAS.values() for name in output.get("$defs", {}) if USES[name] > 1}


def resolved(part: Schema, output: Schema) -> Schema:
    """Return a part of a schema, or the result it refers to."""
    return output["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part


def kind(part: Schema, output: Schema) -> str:
    """Return the type of a part of a schema in words."""
    if "anyOf" in part:
        return " or ".join(kind(option, output) for option in part["anyOf"])
    if "$ref" in part and (name := part["$ref"].rpartition("/")[2]) in SHARED:
        return f"[{name}](#{name.lower()})"
    if "enum" in part:
        return ", ".join(f"`{json.dumps(word)}`" for word in part["enum"])
    part = resolved(part, output)
    types = part.get("type", "any")
    names = {
        "string": "text",
        "boolean": "true or false",
        "array": f"list of {kind(part['items'], output)}" if part.get("items") else "list",
    }
    if isinstance(part.get("additionalProperties"), dict):
        names["object"] = f"{kind(part['additionalProperties'], output)} by name"
    return " or ".join(names.get(name, name) for name in (types if isinstance(types, list) else [types]))


def parts_of(part: Schema) -> Iterator[tuple[Schema, str]]:
    """Yield the options, items and values of a part of a schema, with their ending in a path."""
    for option in part.get("anyOf", ()):
        yield option, ""
    if isinstance(part.get("items"), dict):
        yield part["items"], "[]"
    if isinstance(part.get("additionalProperties"), dict):
        yield part["additionalProperties"], ".*"


def unit(part: Schema) -> str:
    """Return the unit of a number, or of the numbers that a part holds."""
    return part.get(UNIT) or next(filter(None, (unit(inner) for inner, _ in parts_of(part))), "")


def rows(part: Schema, output: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield path and schema of every key below a part; results that several outputs hold are not entered."""
    if "$ref" in part and part["$ref"].rpartition("/")[2] in SHARED:
        return
    part = resolved(part, output)
    for key, value in part.get("properties", {}).items():
        at = f"{path}.{key}".removeprefix(".")
        yield at, value
        yield from rows(value, output, at)
    for inner, ending in parts_of(part):
        yield from rows(inner, output, path + ending)


def table(part: Schema, output: Schema) -> str:
    """Return the table of keys of an object."""
    required = set(part.get("required", ()))
    lines = ["| key | type | unit | meaning |", "| --- | --- | --- | --- |"]
    for path, row in rows(part, output):
        meaning = row["description"] + ("" if "." in path or path in required else "; not always there")
        lines.append(f"| `{path}` | {kind(row, output)} | {unit(row)} | {meaning} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the page."""
    text = INTRO + f"## error\n\n[schema](schemas/error.json)\n\n{table(SCHEMAS['error'], SCHEMAS['error'])}"
    for name, output in SCHEMAS.items():
        if name != "error":
            about = output["description"]
            text += (
                f"\n## `traincast {name}`\n\n{about[0].upper()}{about[1:]}. ([schema](schemas/{name}.json))\n"
            )
            text += f"\n{table(output, output)}" if "properties" in output else ""
    text += "\n## What several outputs hold\n"
    for name, output in SHARED.items():
        text += f"\n### {name}\n\n{table(output['$defs'][name], output)}"
    return text


def schemas() -> dict[str, str]:
    """Return the schemas by file name."""
    return {
        f"schemas/{name}.json": json.dumps(output, indent=2, ensure_ascii=False) + "\n"
        for name, output in SCHEMAS.items()
    }
